/** Targets of GGUF files, one row each. Reference: github.com/ggml-org/llama.cpp, tools/quantize/quantize.cpp at 03161a4. */

import { type BlockType, blockTypes, searchedTypes } from '../../core/blocks.js';
import type { CastType } from '../codecs/cast.js';
import type { Target } from '../format.js';
import { copyTarget, shardOptions } from '../shards.js';
import { statisticsNames } from '../statistics.js';

/** Target type of a tensor. */
export type TargetType = CastType | BlockType | 'NVFP4';

/**
 * File types of llama-quantize, each with its number (llama_ftype) and the type of most tensors. `fitted` marks the types of mixtures that are
 * fitted to a size. The others have too large errors for most models (types for weights trained with few values, and for experts), or are grids
 * of points, most of which require an importance matrix. llama-quantize lacks MXFP4 and NVFP4: llama.cpp has one number for MXFP4 and MXFP4_MOE, and
 * its converter keeps NVFP4 where a model has it.
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
  MXFP4: { id: 38, base: 'MXFP4' },
  NVFP4: { id: 39, base: 'NVFP4' },
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
  MXFP4: '4.3 bits, scales that are powers of two',
  NVFP4: '4.5 bits, two levels of scales; the rest at 8.5',
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

/** Targets of vision towers, which are those of llama.cpp's converter. */
export const towerTargets: readonly FileType[] = ['F16', 'BF16', 'F32', 'Q8_0'];

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
        'fallback',
        'requantize',
        'nonFinite',
        'fixAlignment',
        'missingBytes',
        'preTokenizer',
        ...(towerTargets.includes(name) ? ['mmproj'] : []),
        'leaveOutputTensor',
        'pruneLayers',
        ...statisticsNames,
        'unseenColumns',
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

/** True for a type that llama-quantize has a better search for, or this package a search of its own. */
export function isSearched(type: TargetType): boolean {
  return type === 'NVFP4' || (searchedTypes as readonly string[]).includes(type);
}

export function isCastType(dtype: unknown): dtype is CastType {
  return castTypes.includes(dtype as CastType);
}

/** Targets of rules. */
export const ruleTargets: readonly TargetType[] = [...castTypes, ...blockTypes];
