/** Options of GGUF results. Reference: github.com/ggml-org/llama.cpp, tools/quantize/quantize.cpp at 03161a4. */
import { checkSearched, isBlockType } from '../../core/blocks.js';
import { rangeError, typeError } from '../../core/errors.js';
import { ofType, oneOf, onlyWith, whole, without } from '../../core/option-problem.js';
import {
  type BlockSearchOptions,
  checkRules,
  choiceOption,
  type Flag,
  type NonFiniteOptions,
  nonFinite,
  type OptionInfo,
  optionTable,
  type PlanChoices,
  type RequantizeOptions,
  toggle,
} from '../options.js';
import { checkCopy, part, type ShardOptions, shardSize } from '../shards.js';
import { checkStatistics, type StatisticsOptions, statisticsEntries } from '../statistics-options.js';
import { type MetadataEdits, metadata } from './edits.js';
import { pruneLayers } from './prune.js';
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

/** Options of a GGUF result. */
export interface GgufOptions
  extends ShardOptions,
    StatisticsOptions,
    RequantizeOptions,
    NonFiniteOptions,
    BlockSearchOptions {
  /** GGUF: every weight in the type of the target, without llama-quantize's mixture. @defaultValue false */
  readonly pure?: boolean | undefined;
  /**
   * GGUF: llama-quantize pads to 32 bytes but copies `general.alignment`. If that states another value, programs look for the tensors in
   * the wrong places. true states 32; false gives the same bytes as llama-quantize, and a note.
   * @defaultValue false
   */
  readonly fixAlignment?: boolean | undefined;
  /**
   * GGUF: weights whose rows are not whole blocks of their type. true: another type, as llama-quantize chooses it: Q5_0 in place of Q4_K,
   * for example; `totals.fellBack` is the share of such weights. false: an error.
   * @defaultValue true
   */
  readonly fallback?: boolean | undefined;
  /** GGUF: true keeps output.weight. @defaultValue false */
  readonly leaveOutputTensor?: boolean | undefined;
  /**
   * GGUF: layers to leave out, as with llama-quantize; later ones move up. A note lists layers that the model lacks.
   * @defaultValue none
   */
  readonly pruneLayers?: readonly number[] | undefined;
  /** GGUF: parts of the names of weights that use the importance matrix. @defaultValue all */
  readonly includeWeights?: readonly string[] | undefined;
  /** GGUF: parts of the names of weights that do not use the importance matrix. @defaultValue none */
  readonly excludeWeights?: readonly string[] | undefined;
  /**
   * GGUF: columns of importance 0, which no input reached when the matrix was made. 'floor': a hundredth of the mean of their matrix, so that
   * blocks of them keep their values. 'zero': the bytes of llama-quantize, where such blocks become zeros in most types.
   * @defaultValue 'floor'
   */
  readonly unseenColumns?: 'floor' | 'zero' | undefined;
  /**
   * GGUF from a folder: treatment of tokenizers without byte tokens, which are refused because llama.cpp aborts at the first
   * character that they lack. `keep` converts them anyway.
   * @defaultValue 'refuse'
   */
  readonly missingBytes?: 'refuse' | 'keep' | undefined;
  /**
   * GGUF from a folder: llama.cpp's name of the pre-tokenizer, for a tokenizer whose own is not recognized, which is refused otherwise. Such
   * as 'llama-bpe', 'qwen2' or 'gpt-2'. llama.cpp does not load a name that it does not know.
   * @defaultValue the one that tokenizer.json describes
   */
  readonly preTokenizer?: string | undefined;
  /**
   * GGUF from a folder: the vision tower in place of the language model, as llama.cpp takes it with `--mmproj`. F32, F16, BF16 and Q8_0 are
   * those of llama.cpp's converter.
   * @defaultValue false
   */
  readonly mmproj?: boolean | undefined;
  /**
   * GGUF: splits the result into files with at most this many tensors.
   * @defaultValue one file
   */
  readonly splitTensors?: number | undefined;
  /**
   * GGUF: keeps the files of a split model, each tensor in the file of its number, as with llama-quantize. Tensors keep their order.
   * @defaultValue false: one file, unless `shardSize` or `splitTensors` says otherwise
   */
  readonly keepSplit?: boolean | undefined;
  /**
   * GGUF: metadata to set, by key: `{ 'general.name': 'Name', 'llama.context_length': { int: 8192 } }`. Whole numbers are stored as u32 and
   * fractions as f32, as by llama-quantize. A key that exists keeps its kind of value. `general.alignment` and `split.*` follow from the
   * layout and cannot be set.
   * @defaultValue as in the file
   */
  readonly metadata?: MetadataEdits | undefined;
}

/** Largest value of `splitTensors`. */
const mostTensors = 1_000_000;

/** --split-tensors. */
const splitTensors: OptionInfo = {
  flags: [{ name: 'split-tensors', value: 'N', about: 'several files of at most N tensors each' }],
  check(value, name) {
    if (Number.isInteger(value) && (value as number) >= 1 && (value as number) <= mostTensors) return;
    throw rangeError(name, whole(1, mostTensors), value);
  },
  read({ 'split-tensors': text }) {
    if (/^\d{1,7}$/.test(String(text))) return Number(text);
    throw rangeError('--split-tensors', whole(1, mostTensors), text);
  },
};

/** The matrix comes before options about its weights, in the help. */
const { importance, ...feedbackEntries } = statisticsEntries;

/** An option that is a list of parts of names. */
function partsOfNames(flag: Flag): OptionInfo {
  return {
    flags: [{ ...flag, value: 'NAME', multiple: true }],
    check(value, name) {
      if (Array.isArray(value) && value.every((part) => typeof part === 'string' && part !== '')) return;
      throw typeError(name, ofType('array of parts of names'), value);
    },
    read: (words) => words[flag.name],
  };
}

/** Checks the options about the weights of an importance matrix. */
function checkImportance({
  importance: matrix,
  moments,
  includeWeights,
  excludeWeights,
  unseenColumns,
}: PlanChoices<GgufOptions>): void {
  if (unseenColumns !== undefined && matrix === undefined && moments === undefined) {
    throw rangeError('unseenColumns', onlyWith('importance'), unseenColumns);
  }
  for (const [name, value] of Object.entries({ includeWeights, excludeWeights })) {
    if (value !== undefined && matrix === undefined) throw rangeError(name, onlyWith('importance'));
  }
  if (includeWeights !== undefined && excludeWeights !== undefined) {
    throw rangeError('excludeWeights', without('includeWeights'));
  }
}

/** Checks that the target has a better search. */
function checkSearch({ to, search }: PlanChoices<GgufOptions>): void {
  if (search !== 'best' || to === 'auto') return;
  if (to === 'copy') throw rangeError('search', without('to', 'copy'));
  const { base } = fileTypes[aliases[to as keyof typeof aliases] ?? (to as FileType)];
  if (!isSearched(base)) checkSearched(base, 'to');
}

/** Options of vision towers. Their types are those of the converter, and llama.cpp reads them from one file. */
const ofTowers = ['mmproj', 'metadata', 'requantize', 'nonFinite', 'fixAlignment'];

/** Checks the options of a vision tower. */
function checkTower(choices: PlanChoices<GgufOptions>): void {
  const { to, mmproj, rules = [] } = choices;
  if (mmproj !== true) return;
  if (!towerTargets.includes(to as FileType)) throw rangeError('to', oneOf(towerTargets), to);
  const given = Object.keys(options.entries).find(
    (name) => !ofTowers.includes(name) && choices[name as keyof GgufOptions] !== undefined,
  );
  const other = rules.length > 0 ? 'rules[0]' : given;
  if (other !== undefined) throw rangeError(other, without('mmproj', true));
}

/** Checks for options that exclude each other. */
function checkFiles(choices: PlanChoices<GgufOptions>): void {
  const {
    to,
    shardSize: size,
    splitTensors: tensors,
    pure,
    requantize,
    leaveOutputTensor,
    pruneLayers: layers,
    keepSplit,
  } = choices;
  if (keepSplit === true && (size !== undefined || tensors !== undefined)) {
    throw rangeError('keepSplit', without(size === undefined ? 'splitTensors' : 'shardSize'));
  }
  if (size !== undefined && tensors !== undefined) {
    throw rangeError('splitTensors', without('shardSize'));
  }
  for (const [name, value] of Object.entries({ pure, requantize, leaveOutputTensor })) {
    if (to === 'copy' && value === true) throw rangeError(name, without('to', 'copy'), value);
  }
  if (to === 'copy' && layers !== undefined) throw rangeError('pruneLayers', without('to', 'copy'));
}

/** The options of GGUF files. Rules do not apply to tensors that llama.cpp needs as floats, such as norms and 1-D tensors. */
export const options = optionTable<GgufOptions>({
  title: 'GGUF',
  entries: {
    pure: toggle({ name: 'pure', about: "every weight in TYPE, without llama-quantize's mixture" }),
    fallback: {
      ...toggle({
        name: 'no-fallback',
        about: 'refuse rows that blocks of the type do not divide, which get another type by default',
      }),
      read: () => false,
    },
    requantize: toggle({ name: 'requantize', about: 'also quantize what is quantized already' }),
    nonFinite,
    fixAlignment: toggle({
      name: 'fix-alignment',
      about:
        'correct general.alignment where FILE states one that the result does not have; llama-quantize leaves it wrong',
    }),
    leaveOutputTensor: toggle({ name: 'leave-output-tensor', about: 'keep output.weight as it is' }),
    pruneLayers,
    importance,
    includeWeights: partsOfNames({
      name: 'include-weights',
      about: 'use the importance matrix for weights with NAME in their names alone; can be repeated',
    }),
    excludeWeights: partsOfNames({
      name: 'exclude-weights',
      about: 'do not use the importance matrix for weights with NAME in their names; can be repeated',
    }),
    unseenColumns: choiceOption(['floor', 'zero'], {
      name: 'unseen-columns',
      value: 'HOW',
      about:
        'zero: give columns of importance 0 no weight, as llama-quantize does (default floor: a hundredth of the mean)',
    }),
    ...feedbackEntries,
    search: choiceOption(['usual', 'best'], {
      name: 'search',
      value: 'HOW',
      about: 'best: lower errors than llama-quantize in the same types and bytes, in more time (default usual)',
    }),
    missingBytes: choiceOption(['refuse', 'keep'], {
      name: 'missing-bytes',
      value: 'HOW',
      about: 'refuse or keep tokenizers without byte tokens, on which llama.cpp may crash (default refuse)',
    }),
    preTokenizer: {
      flags: [
        {
          name: 'pre-tokenizer',
          value: 'NAME',
          about: "llama.cpp's name for a pre-tokenizer that is not recognized, such as llama-bpe or qwen2",
        },
      ],
      check(value, name) {
        if (typeof value === 'string' && /^[\w.-]{1,60}$/.test(value)) return;
        throw typeError(
          name,
          { kind: 'text', form: 'a name of llama.cpp', examples: ['llama-bpe', 'qwen2', 'gpt-2'] },
          value,
        );
      },
      read: (words) => words['pre-tokenizer'],
    },
    mmproj: toggle({ name: 'mmproj', about: "the vision tower of a folder, for llama.cpp's --mmproj" }),
    keepSplit: toggle({ name: 'keep-split', about: 'as many files as FILE is in, with the same tensors in each' }),
    shardSize,
    splitTensors,
    part,
    metadata,
  },
  check(choices) {
    checkCopy(choices);
    checkFiles(choices);
    checkTower(choices);
    checkStatistics(choices);
    checkImportance(choices);
    checkSearch(choices);
    checkRules(choices.rules, ({ to, granularity }, path) => {
      if (to !== undefined && !isCastType(to) && !isBlockType(to)) {
        throw rangeError(`${path}.to`, oneOf(ruleTargets, 'GGUF'), to);
      }
      if (granularity !== undefined) {
        throw rangeError(`${path}.granularity`, { kind: 'onlyFor', files: 'safetensors' }, granularity);
      }
    });
  },
});

/** Checked choices for a GGUF result. */
export type GgufChoices = PlanChoices<GgufOptions, GgufTarget>;
