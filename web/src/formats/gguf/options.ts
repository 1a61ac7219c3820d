/** What GGUF files can become, and the options that decide about it. */
import type { CastType } from '../../codecs/cast.js';
import { type BlockType, blockTypes, isBlockType } from '../../core/blocks.js';
import { rangeError } from '../../core/errors.js';
import { show } from '../../core/show.js';
import type { Target } from '../format.js';
import { checkRules, choice, didYouMean, type OptionInfo, optionTable, type PlanChoices, toggle } from '../options.js';
import { checkCopy, copyTarget, part, type ShardOptions, shardOptions, shardSize } from '../shards.js';
import { type MetadataEdits, metadata } from './edits.js';

// ------------------------------------------------------------------------------------------------------------------------ targets

/** A type that tensors are converted to. */
export type TargetType = CastType | BlockType;

/** File types of llama-quantize: its number of each (llama_ftype), and the type that most tensors get. */
export const fileTypes = {
  Q8_0: { id: 7, base: 'Q8_0' },
  Q4_0: { id: 2, base: 'Q4_0' },
  Q4_1: { id: 3, base: 'Q4_1' },
  Q5_0: { id: 8, base: 'Q5_0' },
  Q5_1: { id: 9, base: 'Q5_1' },
  Q2_K: { id: 10, base: 'Q2_K' },
  Q3_K_S: { id: 11, base: 'Q3_K' },
  Q3_K_M: { id: 12, base: 'Q3_K' },
  Q3_K_L: { id: 13, base: 'Q3_K' },
  Q4_K_S: { id: 14, base: 'Q4_K' },
  Q4_K_M: { id: 15, base: 'Q4_K' },
  Q5_K_S: { id: 16, base: 'Q5_K' },
  Q5_K_M: { id: 17, base: 'Q5_K' },
  Q6_K: { id: 18, base: 'Q6_K' },
  IQ4_NL: { id: 25, base: 'IQ4_NL' },
  F16: { id: 1, base: 'F16' },
  BF16: { id: 32, base: 'BF16' },
  F32: { id: 0, base: 'F32' },
} as const satisfies Readonly<Record<string, { id: number; base: TargetType }>>;
/** A name of a mixture of block types for a whole file, as llama-quantize has them. */
export type FileType = keyof typeof fileTypes;

/** Short names, which mean the same on llama-quantize's command line. */
export const aliases = { Q3_K: 'Q3_K_M', Q4_K: 'Q4_K_M', Q5_K: 'Q5_K_M' } as const satisfies Readonly<
  Record<string, FileType>
>;

/** What a GGUF file can become. */
export const ggufTargets: readonly FileType[] = Object.freeze(Object.keys(fileTypes) as FileType[]);

/** A target of a GGUF result: a file type, or Q3_K, Q4_K or Q5_K for its M form; or copies of all tensors. */
export type GgufTarget = FileType | keyof typeof aliases | 'copy';

const abouts: Readonly<Partial<Record<FileType, string>>> = {
  Q8_0: '8.5 bits, hardly any loss',
  Q6_K: '6.6 bits, very small loss',
  Q5_K_M: '5.7 bits, small loss',
  Q4_K_M: '4.8 bits, the usual choice',
  Q3_K_M: '3.9 bits, visible loss',
  Q2_K: '2.6 to 3 bits, large loss',
  IQ4_NL: '4.5 bits, uneven levels',
  F16: 'half precision',
  BF16: 'half the bytes, all of the range',
  F32: 'back to full precision',
};

const presets: Readonly<Partial<Record<FileType, NonNullable<Target['preset']>>>> = {
  Q3_K_M: 'small',
  Q4_K_M: 'balanced',
  Q8_0: 'safe',
};

const fileOptions = ['metadata', 'splitTensors', ...shardOptions];

/** The same for people. */
export const targets: readonly Target[] = [
  ...ggufTargets.map((name) => {
    const [about, preset] = [abouts[name], presets[name]];
    return {
      name,
      ...(about === undefined ? {} : { about }),
      options: ['pure', 'requantize', 'fixAlignment', 'missingBytes', ...fileOptions],
      ...(preset === undefined ? {} : { preset }),
    };
  }),
  copyTarget(fileOptions),
];

const castTypes: readonly CastType[] = ['F32', 'F16', 'BF16'];

export function isCastType(dtype: unknown): dtype is CastType {
  return castTypes.includes(dtype as CastType);
}

/** Types that rules can ask for. */
export const ruleTargets: readonly TargetType[] = [...castTypes, ...blockTypes];

// ------------------------------------------------------------------------------------------------------------------------ options

/** What decides about a GGUF result. */
export interface GgufOptions extends ShardOptions {
  /** GGUF: every weight in the type of the target, without llama-quantize's mixture. @defaultValue false */
  readonly pure?: boolean | undefined;
  /**
   * GGUF: whether weights that are quantized already may be quantized again, which adds to their errors.
   * @defaultValue false
   */
  readonly requantize?: boolean | undefined;
  /**
   * GGUF: llama-quantize pads to 32 bytes and copies `general.alignment` as it is. If that says something else, programs look for the
   * tensors in the wrong places. true states 32; false gives the same bytes as llama-quantize, and a note.
   * @defaultValue false
   */
  readonly fixAlignment?: boolean | undefined;
  /**
   * GGUF from a folder: what happens if the vocabulary has no tokens for single bytes. llama.cpp ends its process at the first character
   * that such a vocabulary lacks. `keep` converts it all the same.
   * @defaultValue 'refuse'
   */
  readonly missingBytes?: 'refuse' | 'keep' | undefined;
  /**
   * GGUF: a result in several files, each with so many tensors at most.
   * @defaultValue one file
   */
  readonly splitTensors?: number | undefined;
  /**
   * GGUF: values of the metadata to be set, by their keys: `{ 'general.name': 'Name', 'llama.context_length': { int: 8192 } }`. Whole numbers
   * are stored as u32 and fractions as f32, as llama-quantize stores them. A key that is there keeps its kind of value; those that follow
   * from the layout, `general.alignment` and `split.*`, cannot be set.
   * @defaultValue as in the file
   */
  readonly metadata?: MetadataEdits | undefined;
}

/** How messages mention options. */
export const requantizeMention = 'requantize: true';
export const fixAlignmentMention = 'fixAlignment';
export const missingBytesMention = "missingBytes: 'keep'";

/** Most tensors of a file that can be asked for. */
const mostTensors = 1_000_000;

/** --split-tensors. */
const splitTensors: OptionInfo = {
  flags: [{ name: 'split-tensors', value: 'N', about: 'several files, of so many tensors at most' }],
  check(value, name) {
    if (Number.isInteger(value) && (value as number) >= 1 && (value as number) <= mostTensors) return;
    throw rangeError(name, `expected a whole number from 1 to ${mostTensors}, got ${show(value)}`);
  },
  read({ 'split-tensors': text }) {
    if (/^\d{1,7}$/.test(String(text))) return Number(text);
    throw rangeError('--split-tensors', `expected a whole number, got ${JSON.stringify(text)}`);
  },
};

/** Options that mean nothing together. */
function checkFiles({ to, shardSize: size, splitTensors: tensors, pure, requantize }: PlanChoices<GgufOptions>): void {
  if (size !== undefined && tensors !== undefined) {
    throw rangeError('splitTensors', 'files are limited by their size or by their tensors, not by both');
  }
  for (const [name, value] of Object.entries({ pure, requantize })) {
    if (to === 'copy' && value === true) throw rangeError(name, "to: 'copy' converts nothing");
  }
}

/** The options of GGUF files. Rules do not reach what llama.cpp needs in floats: norms, 1-D tensors and the like. */
export const options = optionTable<GgufOptions>({
  title: 'GGUF',
  entries: {
    pure: toggle({ name: 'pure', about: "every weight in TYPE, without llama-quantize's mixture" }),
    requantize: toggle({ name: 'requantize', about: 'also quantize what is quantized already' }, requantizeMention),
    fixAlignment: toggle(
      {
        name: 'fix-alignment',
        about:
          'correct general.alignment where FILE states one that the result does not have; llama-quantize leaves it wrong',
      },
      fixAlignmentMention,
    ),
    missingBytes: choice(['refuse', 'keep'], {
      name: 'missing-bytes',
      value: 'HOW',
      mention: [missingBytesMention, '--missing-bytes keep'],
      about: 'refuse or keep a vocabulary without tokens for single bytes, at which llama.cpp can end (default refuse)',
    }),
    shardSize,
    splitTensors,
    part,
    metadata,
  },
  check(choices) {
    checkCopy(choices);
    checkFiles(choices);
    checkRules(choices.rules, ({ to, granularity }, path) => {
      if (to !== undefined && !isCastType(to) && !isBlockType(to)) {
        const hint = didYouMean(to, ruleTargets);
        throw rangeError(`${path}.to`, `expected one of ${ruleTargets.join(', ')} for GGUF, got ${show(to)}${hint}`);
      }
      if (granularity !== undefined) {
        throw rangeError(`${path}.granularity`, `only for safetensors, got ${show(granularity)}`);
      }
    });
  },
});

/** What decides about a GGUF result, after it has been checked. */
export type GgufChoices = PlanChoices<GgufOptions, GgufTarget>;
