/** Options of GGUF results. Reference: github.com/ggml-org/llama.cpp, tools/quantize/quantize.cpp at 03161a4. */
import { checkSearched, isBlockType } from '../../core/blocks.js';
import { checkNumber } from '../../core/check.js';
import { rangeError, typeError } from '../../core/errors.js';
import { type Expected, type Hint, ofType, oneOf, whole, without } from '../../core/option-problem.js';
import {
  amended,
  choice,
  type Flag,
  numberOption,
  type OptionsOf,
  option,
  toggle,
  type Words,
} from '../../core/schema.js';
import {
  checkRules,
  checkStatistics,
  feedbackEntries,
  importanceEntry,
  type NonFiniteOptions,
  nonFiniteEntry,
  notInCopies,
  optionTable,
  type PlanChoices,
  type RequantizeOptions,
  requantizeEntry,
  type ScaleSearchOptions,
  type StatisticsOptions,
  searchEntry,
} from '../options.js';
import { partEntry, type ShardOptions, shardEntries } from '../shards.js';
import { alignmentKey } from './contents.js';
import { type MetadataEdit, type MetadataEdits, nameKey, templateKey } from './edits.js';
import { splitKeys } from './pairs.js';
import {
  aliases,
  type FileType,
  fileTypes,
  type GgufTarget,
  isCastType,
  isSearched,
  ruleTargets,
  towerTargets,
} from './targets.js';

// ----------------------------------------------------------------------------------------------------------------------- metadata

/** Keys that follow from the layout of the file. */
const keysOfLayout: readonly string[] = [alignmentKey, ...splitKeys];
const byLayout: Hint = { kind: 'because', message: 'it follows from the layout of the file' };

/** ggml keeps keys in 128 bytes where it overrides them. */
const mostKeyBytes = 127;

/** Valid values of a key, for errors. */
const editForm: Expected = {
  kind: 'anyOf',
  of: [ofType('string', 'boolean'), { kind: 'object', keys: ['int'] }, { kind: 'object', keys: ['float'] }],
};

function checkEdit(edit: unknown, path: string): void {
  if (typeof edit === 'boolean') return;
  if (typeof edit === 'string') {
    // A lone surrogate would be stored as another character.
    if (!/\p{Surrogate}/u.test(edit)) return;
    throw rangeError(path, ofType('text of whole characters'), edit);
  }
  const members = (typeof edit === 'object' && edit !== null ? edit : { edit }) as Record<string, unknown>;
  const { int, float, ...rest } = members;
  const isOne = (int === undefined) !== (float === undefined) && Object.keys(rest).length === 0;
  if (!isOne) throw typeError(path, editForm, edit);
  const u32 = whole(0, 2 ** 32 - 1);
  if (int !== undefined && typeof int !== 'number') throw rangeError(`${path}.int`, u32, int);
  if (int !== undefined) checkNumber(int, `${path}.int`, u32);
  if (float !== undefined && !(typeof float === 'number' && Number.isFinite(Math.fround(float)))) {
    throw rangeError(`${path}.float`, { kind: 'number', finite: true }, float);
  }
}

const overrides = ['llama.context_length=int:8192', 'llama.rope.freq_base=float:1e4', 'KEY=bool:true', 'KEY=str:TEXT'];

/** Edits by the flags --override-kv, --name and --chat-template. */
function readEdits({ 'override-kv': words, name, 'chat-template': template }: Words): MetadataEdits {
  const edits: (readonly [key: string, value: MetadataEdit])[] = [];
  for (const word of Array.isArray(words) ? (words as readonly string[]) : []) {
    const [, key, type = '', text = ''] = /^([^=]+)=(\w+):(.*)$/s.exec(word) ?? [];
    if (key === undefined || !['int', 'float', 'bool', 'str'].includes(type)) {
      throw rangeError('--override-kv', { kind: 'text', form: 'KEY=TYPE:VALUE', examples: overrides }, word);
    }
    let edit: MetadataEdit | undefined;
    if (type === 'str') edit = text;
    else if (type === 'bool' && /^(true|false)$/.test(text)) edit = text === 'true';
    else if (type === 'int' && /^\d{1,15}$/.test(text)) edit = { int: Number(text) };
    else if (type === 'float' && /^[-+]?(\d+\.?\d*|\.\d+)(e[-+]?\d+)?$/i.test(text)) edit = { float: Number(text) };
    if (edit === undefined) throw rangeError('--override-kv', ofType(type), word);
    edits.push([key, edit]);
  }
  if (name !== undefined) edits.push([nameKey, String(name)]);
  if (template !== undefined) edits.push([templateKey, String(template)]);
  const keys = edits.map(([key]) => key);
  const twice = keys.find((key, i) => keys.indexOf(key) < i);
  if (twice !== undefined) throw rangeError('--override-kv', { kind: 'distinct' }, twice);
  return Object.fromEntries(edits);
}

// ------------------------------------------------------------------------------------------------------------------------ options

/** An option that is a list of parts of names, for weights of an importance matrix. */
function partsOfNames(flag: Pick<Flag, 'name' | 'about'>) {
  const check = (value: unknown, name: string) => {
    if (Array.isArray(value) && value.every((part) => typeof part === 'string' && part !== '')) return;
    throw typeError(name, ofType('array of parts of names'), value);
  };
  const made = option<readonly string[]>(check, { ...flag, value: 'NAME', multiple: true });
  return amended(made, { needs: [{ option: 'importance' }] });
}

/** Options of a GGUF result, in the order of the help. */
const entries = {
  /** GGUF: every weight in the type of the target, without llama-quantize's mixture. @defaultValue false */
  pure: amended(toggle({ name: 'pure', about: "every weight in TYPE, without llama-quantize's mixture" }), notInCopies),
  /**
   * GGUF: weights whose rows are not whole blocks of their type. true: another type, as llama-quantize chooses it: Q5_0 in place of Q4_K,
   * for example; `totals.fellBack` is the share of such weights. false: an error.
   * @defaultValue true
   */
  fallback: toggle({
    name: 'no-fallback',
    means: false,
    about: 'refuse rows that blocks of the type do not divide, which get another type by default',
  }),
  ...requantizeEntry,
  ...nonFiniteEntry,
  /**
   * GGUF: llama-quantize pads to 32 bytes but copies `general.alignment`. If that states another value, programs look for the tensors in
   * the wrong places. true states 32; false gives the same bytes as llama-quantize, and a note.
   * @defaultValue false
   */
  fixAlignment: toggle({
    name: 'fix-alignment',
    about:
      'correct general.alignment where FILE states one that the result does not have; llama-quantize leaves it wrong',
  }),
  /** GGUF: true keeps output.weight. @defaultValue false */
  leaveOutputTensor: amended(
    toggle({ name: 'leave-output-tensor', about: 'keep output.weight as it is' }),
    notInCopies,
  ),
  /**
   * GGUF: layers to leave out, as with llama-quantize; later ones move up. A note lists layers that the model lacks.
   * @defaultValue none
   */
  pruneLayers: amended(
    option<readonly number[]>(
      (value, name) => {
        if (!Array.isArray(value)) throw typeError(name, ofType('array of whole numbers'), value);
        const layers = whole(0, 1_000_000);
        for (const layer of value) {
          if (typeof layer !== 'number') throw rangeError(name, layers, layer);
          checkNumber(layer, name, layers);
        }
      },
      { name: 'prune-layers', value: 'L0,L1,…', about: 'leave out these layers; those behind them move up' },
    ),
    {
      ...notInCopies,
      read({ 'prune-layers': text }: Words) {
        if (/^\d{1,7}(,\d{1,7})*$/.test(String(text))) return String(text).split(',').map(Number);
        throw rangeError('--prune-layers', { kind: 'text', examples: ['3,4,5'] }, text);
      },
    },
  ),
  ...importanceEntry,
  /** GGUF: parts of the names of weights that use the importance matrix. @defaultValue all */
  includeWeights: partsOfNames({
    name: 'include-weights',
    about: 'use the importance matrix for weights with NAME in their names alone; can be repeated',
  }),
  /** GGUF: parts of the names of weights that do not use the importance matrix. @defaultValue none */
  excludeWeights: amended(
    partsOfNames({
      name: 'exclude-weights',
      about: 'do not use the importance matrix for weights with NAME in their names; can be repeated',
    }),
    { excludedBy: [{ option: 'includeWeights' }] },
  ),
  /**
   * GGUF: columns of importance 0, which no input reached when the matrix was made. 'floor': a hundredth of the mean of their matrix, so that
   * blocks of them keep their values. 'zero': the bytes of llama-quantize, where such blocks become zeros in most types.
   * @defaultValue 'floor'
   */
  unseenColumns: amended(
    choice(['floor', 'zero'], {
      name: 'unseen-columns',
      value: 'HOW',
      about:
        'zero: give columns of importance 0 no weight, as llama-quantize does (default floor: a hundredth of the mean)',
    }),
    { needs: [{ option: 'importance' }, { option: 'moments' }] },
  ),
  ...feedbackEntries,
  ...searchEntry('best: lower errors than llama-quantize in the same types and bytes, in more time (default usual)'),
  /**
   * GGUF from a folder: treatment of tokenizers without byte tokens, which are refused because llama.cpp aborts at the first
   * character that they lack. `keep` converts them anyway.
   * @defaultValue 'refuse'
   */
  missingBytes: choice(['refuse', 'keep'], {
    name: 'missing-bytes',
    value: 'HOW',
    about: 'refuse or keep tokenizers without byte tokens, on which llama.cpp may crash (default refuse)',
  }),
  /**
   * GGUF from a folder: llama.cpp's name of the pre-tokenizer, for a tokenizer whose own is not recognized, which is refused otherwise. Such
   * as 'llama-bpe', 'qwen2' or 'gpt-2'. llama.cpp does not load a name that it does not know.
   * @defaultValue the one that tokenizer.json describes
   */
  preTokenizer: option<string>(
    (value, name) => {
      if (typeof value === 'string' && /^[\w.-]{1,60}$/.test(value)) return;
      const examples = ['llama-bpe', 'qwen2', 'gpt-2'];
      throw typeError(name, { kind: 'text', form: 'a name of llama.cpp', examples }, value);
    },
    {
      name: 'pre-tokenizer',
      value: 'NAME',
      about: "llama.cpp's name for a pre-tokenizer that is not recognized, such as llama-bpe or qwen2",
    },
  ),
  /**
   * GGUF from a folder: the vision tower in place of the language model, as llama.cpp takes it with `--mmproj`. F32, F16, BF16 and Q8_0 are
   * those of llama.cpp's converter.
   * @defaultValue false
   */
  mmproj: toggle({ name: 'mmproj', about: "the vision tower of a folder, for llama.cpp's --mmproj" }),
  /**
   * GGUF: keeps the files of a split model, each tensor in the file of its number, as with llama-quantize. Tensors keep their order.
   * @defaultValue false: one file, unless `shardSize` or `splitTensors` says otherwise
   */
  keepSplit: amended(
    toggle({ name: 'keep-split', about: 'as many files as FILE is in, with the same tensors in each' }),
    { excludedBy: [{ option: 'shardSize' }, { option: 'splitTensors' }] },
  ),
  ...shardEntries,
  /**
   * GGUF: splits the result into files with at most this many tensors.
   * @defaultValue one file
   */
  splitTensors: amended(
    numberOption(
      { whole: true, min: 1, max: 1_000_000 },
      { name: 'split-tensors', value: 'N', about: 'several files of at most N tensors each' },
    ),
    { excludedBy: [{ option: 'shardSize' }] },
  ),
  ...partEntry,
  /**
   * GGUF: metadata to set, by key: `{ 'general.name': 'Name', 'llama.context_length': { int: 8192 } }`. Whole numbers are stored as u32 and
   * fractions as f32, as by llama-quantize. A key that exists keeps its kind of value. `general.alignment` and `split.*` follow from the
   * layout and cannot be set.
   * @defaultValue as in the file
   */
  metadata: amended(
    option<MetadataEdits>(
      (value, name) => {
        if (typeof value !== 'object' || value === null || Array.isArray(value)) {
          throw typeError(name, ofType('object'), value);
        }
        for (const [key, edit] of Object.entries(value)) {
          const path = `${name}[${JSON.stringify(key)}]`;
          const bytes = new TextEncoder().encode(key).length;
          if (bytes === 0 || bytes > mostKeyBytes || key.includes('\0')) {
            throw rangeError(path, { kind: 'number', min: 1, max: mostKeyBytes, unit: 'bytes' }, bytes);
          }
          if (keysOfLayout.includes(key)) throw rangeError(path, { kind: 'absent' }, edit, byLayout);
          checkEdit(edit, path);
        }
      },
      {
        name: 'override-kv',
        value: 'KEY=TYPE:VALUE',
        multiple: true,
        about: 'set a key of the metadata, TYPE is int, float, bool or str; can be repeated',
      },
      { name: 'name', value: 'TEXT', about: `the name of the model, ${nameKey}` },
      { name: 'chat-template', value: 'FILE', isText: true, about: `${templateKey}, from a file` },
    ),
    { read: readEdits },
  ),
};

/** Options of a GGUF result. */
export interface GgufOptions
  extends ShardOptions,
    StatisticsOptions,
    ScaleSearchOptions,
    RequantizeOptions,
    NonFiniteOptions,
    OptionsOf<typeof entries> {}

/** Checked choices for a GGUF result. */
export type GgufChoices = PlanChoices<GgufOptions, GgufTarget>;

/** Options of vision towers. Their types are those of the converter, and llama.cpp reads them from one file. */
const ofTowers = ['mmproj', 'metadata', 'requantize', 'nonFinite', 'fixAlignment'];

/** The options of GGUF files. Rules do not apply to tensors that llama.cpp needs as floats, such as norms and 1-D tensors. */
export const options = optionTable<GgufOptions>('GGUF', entries, (choices) => {
  const { to, mmproj, search, rules = [] } = choices;
  if (mmproj === true) {
    if (!towerTargets.includes(to as FileType)) throw rangeError('to', oneOf(towerTargets), to);
    const given = Object.keys(entries).find(
      (name) => !ofTowers.includes(name) && choices[name as keyof GgufOptions] !== undefined,
    );
    const other = rules.length > 0 ? 'rules[0]' : given;
    if (other !== undefined) throw rangeError(other, without('mmproj', true));
  }
  checkStatistics(choices);
  // Check that the target has a better search.
  if (search === 'best' && to !== 'auto' && to !== 'lora-gguf') {
    const { base } = fileTypes[aliases[to as keyof typeof aliases] ?? (to as FileType)];
    if (!isSearched(base)) checkSearched(base, 'to');
  }
  checkRules(choices.rules, ({ to, granularity }, path) => {
    if (to !== undefined && !isCastType(to) && !isBlockType(to)) {
      throw rangeError(`${path}.to`, oneOf(ruleTargets, 'GGUF'), to);
    }
    if (granularity !== undefined) {
      throw rangeError(`${path}.granularity`, { kind: 'onlyFor', files: 'safetensors' }, granularity);
    }
  });
});
