/** Targets of GGUF results, and their options. Reference: github.com/ggml-org/llama.cpp, tools/quantize/quantize.cpp at 03161a4. */
import type { CastType } from '../../codecs/cast.js';
import { type BlockSearch, type BlockType, blockTypes, checkSearched, isBlockType } from '../../core/blocks.js';
import { rangeError, typeError } from '../../core/errors.js';
import { ofType, oneOf, onlyWith, whole, without } from '../../core/option-problem.js';
import type { Target } from '../format.js';
import {
  checkRules,
  choiceOption,
  type Flag,
  type OptionInfo,
  optionTable,
  type PlanChoices,
  toggle,
} from '../options.js';
import { checkCopy, copyTarget, part, type ShardOptions, shardOptions, shardSize } from '../shards.js';
import { checkStatistics, type StatisticsOptions, statisticsEntries, statisticsNames } from '../statistics-options.js';
import { type MetadataEdits, metadata } from './edits.js';
import { pruneLayers } from './prune.js';

// ------------------------------------------------------------------------------------------------------------------------ targets

/** Target type of a tensor. */
export type TargetType = CastType | BlockType;

/**
 * File types of llama-quantize, each with its number (llama_ftype) and the type of most tensors. `fitted` marks the types of mixtures that are
 * fitted to a size. Others are for models trained with few values or for experts, with errors too large elsewhere, or of points on a grid,
 * most of which require an importance matrix.
 */
export const fileTypes = {
  Q8_0: { id: 7, base: 'Q8_0', fitted: true },
  Q4_0: { id: 2, base: 'Q4_0', fitted: true },
  Q4_1: { id: 3, base: 'Q4_1', fitted: true },
  Q5_0: { id: 8, base: 'Q5_0', fitted: true },
  Q5_1: { id: 9, base: 'Q5_1', fitted: true },
  Q2_K: { id: 10, base: 'Q2_K', fitted: true },
  Q2_K_S: { id: 21, base: 'Q2_K' },
  Q3_K_S: { id: 11, base: 'Q3_K' },
  Q3_K_M: { id: 12, base: 'Q3_K', fitted: true },
  Q3_K_L: { id: 13, base: 'Q3_K' },
  Q4_K_S: { id: 14, base: 'Q4_K' },
  Q4_K_M: { id: 15, base: 'Q4_K', fitted: true },
  Q5_K_S: { id: 16, base: 'Q5_K' },
  Q5_K_M: { id: 17, base: 'Q5_K', fitted: true },
  Q6_K: { id: 18, base: 'Q6_K', fitted: true },
  IQ1_S: { id: 24, base: 'IQ1_S' },
  IQ1_M: { id: 31, base: 'IQ1_M' },
  IQ2_XXS: { id: 19, base: 'IQ2_XXS' },
  IQ2_XS: { id: 20, base: 'IQ2_XS' },
  IQ2_S: { id: 28, base: 'IQ2_XS' },
  IQ2_M: { id: 29, base: 'IQ2_S' },
  IQ3_XXS: { id: 23, base: 'IQ3_XXS' },
  IQ3_XS: { id: 22, base: 'IQ3_S' },
  IQ3_S: { id: 26, base: 'IQ3_S' },
  IQ3_M: { id: 27, base: 'IQ3_S' },
  IQ4_NL: { id: 25, base: 'IQ4_NL', fitted: true },
  IQ4_XS: { id: 30, base: 'IQ4_XS', fitted: true },
  MXFP4_MOE: { id: 38, base: 'MXFP4' },
  TQ1_0: { id: 36, base: 'TQ1_0' },
  TQ2_0: { id: 37, base: 'TQ2_0' },
  Q1_0: { id: 40, base: 'Q1_0' },
  Q2_0: { id: 41, base: 'Q2_0' },
  F16: { id: 1, base: 'F16', fitted: true },
  BF16: { id: 32, base: 'BF16', fitted: true },
  F32: { id: 0, base: 'F32' },
} as const satisfies Readonly<Record<string, { id: number; base: TargetType; fitted?: true }>>;
/** Name of llama-quantize's mixture of block types for a whole file. */
export type FileType = keyof typeof fileTypes;

/** Short names, with the same meaning as on llama-quantize's command line. */
export const aliases = { Q3_K: 'Q3_K_M', Q4_K: 'Q4_K_M', Q5_K: 'Q5_K_M' } as const satisfies Readonly<
  Record<string, FileType>
>;

/** Targets of GGUF files. */
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
  Q2_K_S: '2.6 bits, takes an importance matrix',
  IQ1_S: '1.6 bits, takes an importance matrix',
  IQ1_M: '1.8 bits, takes an importance matrix',
  IQ2_XXS: '2.1 bits, takes an importance matrix',
  IQ2_XS: '2.3 bits, takes an importance matrix',
  IQ2_S: '2.5 bits, takes an importance matrix',
  IQ2_M: '2.7 bits, takes an importance matrix',
  IQ3_XXS: '3.1 bits, takes an importance matrix',
  IQ3_XS: '3.3 bits, takes an importance matrix',
  IQ3_S: '3.4 bits, less loss than Q3_K_S',
  IQ3_M: '3.7 bits, less loss than Q3_K_M',
  IQ4_NL: '4.5 bits, uneven levels',
  IQ4_XS: '4.3 bits, uneven levels',
  MXFP4_MOE: 'experts at 4.3 bits, the rest at 8.5',
  TQ1_0: '1.7 bits, for models trained with three values',
  TQ2_0: '2.1 bits, for models trained with three values',
  Q1_0: '1.1 bits, for models trained with two values',
  Q2_0: '2.3 bits, for models trained with three values',
  F16: 'half precision',
  BF16: 'half the bytes, all of the range',
  F32: 'back to full precision',
};

const presets: Readonly<Partial<Record<FileType, NonNullable<Target['preset']>>>> = {
  Q3_K_M: 'small',
  Q4_K_M: 'balanced',
  Q8_0: 'safe',
};

/** Common choices besides the presets. */
const usual: readonly FileType[] = ['Q2_K', 'Q4_K_S', 'Q5_K_S', 'Q5_K_M', 'Q6_K', 'IQ4_XS', 'F16'];

const fileOptions = ['metadata', 'splitTensors', ...shardOptions];

/** Descriptions of the targets. */
export const targets: readonly Target[] = [
  ...ggufTargets.map((name) => {
    const [about, preset] = [abouts[name], presets[name]];
    return {
      name,
      ...(about === undefined ? {} : { about }),
      options: [
        'pure',
        'requantize',
        'fixAlignment',
        'missingBytes',
        'leaveOutputTensor',
        'pruneLayers',
        ...statisticsNames,
        'includeWeights',
        'excludeWeights',
        'search',
        'keepSplit',
        ...fileOptions,
      ],
      ...(preset === undefined ? {} : { preset }),
      ...(usual.includes(name) ? { isUsual: true } : {}),
    };
  }),
  copyTarget(['keepSplit', ...fileOptions]),
];

const castTypes: readonly CastType[] = ['F32', 'F16', 'BF16'];

export function isCastType(dtype: unknown): dtype is CastType {
  return castTypes.includes(dtype as CastType);
}

/** Targets of rules. */
export const ruleTargets: readonly TargetType[] = [...castTypes, ...blockTypes];

// ------------------------------------------------------------------------------------------------------------------------ options

/** Options of a GGUF result. */
export interface GgufOptions extends ShardOptions, StatisticsOptions {
  /** GGUF: every weight in the type of the target, without llama-quantize's mixture. @defaultValue false */
  readonly pure?: boolean | undefined;
  /**
   * GGUF: true allows quantizing weights that are quantized already, which adds to their errors.
   * @defaultValue false
   */
  readonly requantize?: boolean | undefined;
  /**
   * GGUF: llama-quantize pads to 32 bytes but copies `general.alignment`. If that states another value, programs look for the tensors in
   * the wrong places. true states 32; false gives the same bytes as llama-quantize, and a note.
   * @defaultValue false
   */
  readonly fixAlignment?: boolean | undefined;
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
   * GGUF: `best` tries more scales than llama-quantize and fits the stored ones, for smaller errors in the same types and bytes, weighted
   * by the importance of columns if there is a matrix. Every reader loads the result. A million weights take 0.1 to 0.5 seconds on one
   * core. Types of one to two bits have no such search.
   * @defaultValue 'usual': the bytes of llama-quantize
   */
  readonly search?: BlockSearch | undefined;
  /**
   * GGUF from a folder: treatment of a vocabulary without tokens for single bytes. llama.cpp aborts at the first character that
   * such a vocabulary lacks. `keep` converts it anyway.
   * @defaultValue 'refuse'
   */
  readonly missingBytes?: 'refuse' | 'keep' | undefined;
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
function checkImportance({ importance: matrix, includeWeights, excludeWeights }: PlanChoices<GgufOptions>): void {
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
  checkSearched(fileTypes[aliases[to as keyof typeof aliases] ?? (to as FileType)].base, 'to');
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
    requantize: toggle({ name: 'requantize', about: 'also quantize what is quantized already' }),
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
    ...feedbackEntries,
    search: choiceOption(['usual', 'best'], {
      name: 'search',
      value: 'HOW',
      about: 'best: lower errors than llama-quantize in the same types and bytes, in more time (default usual)',
    }),
    missingBytes: choiceOption(['refuse', 'keep'], {
      name: 'missing-bytes',
      value: 'HOW',
      about: 'refuse or keep a vocabulary without tokens for single bytes, at which llama.cpp can end (default refuse)',
    }),
    keepSplit: toggle({ name: 'keep-split', about: 'as many files as FILE is in, with the same tensors in each' }),
    shardSize,
    splitTensors,
    part,
    metadata,
  },
  check(choices) {
    checkCopy(choices);
    checkFiles(choices);
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
