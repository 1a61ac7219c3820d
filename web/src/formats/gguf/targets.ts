/** Targets of GGUF files, one row each. Reference: github.com/ggml-org/llama.cpp, tools/quantize/quantize.cpp at 03161a4. */

import { type BlockType, blockTypes, searchedTypes } from '../../core/blocks.js';
import type { CastType } from '../codecs/cast.js';
import type { Target } from '../format.js';
import { copyTarget, shardOptions } from '../shards.js';
import { statisticsNames } from '../statistics.js';

/** Target type of a tensor. */
export type TargetType = CastType | BlockType | 'NVFP4';

/** A file type. */
interface FileTypeRow extends Pick<Target, 'about' | 'preset' | 'isUsual'> {
  readonly id: number;
  readonly base: TargetType;
  readonly fitted?: true;
}

/**
 * File types of llama-quantize, each with its number (llama_ftype) and the type of most tensors. `fitted` marks the types of mixtures that are
 * fitted to a size. The others have too large errors for most models (types for weights trained with few values, and for experts), or are grids
 * of points, most of which require an importance matrix. llama-quantize lacks MXFP4 and NVFP4: llama.cpp has one number for MXFP4 and MXFP4_MOE, and
 * its converter keeps NVFP4 where a model has it.
 */
export const fileTypes = {
  Q8_0: { id: 7, base: 'Q8_0', fitted: true, about: '8.5 bits, hardly any loss', preset: 'safe' },
  Q4_0: { id: 2, base: 'Q4_0', fitted: true },
  Q4_1: { id: 3, base: 'Q4_1', fitted: true },
  Q5_0: { id: 8, base: 'Q5_0', fitted: true },
  Q5_1: { id: 9, base: 'Q5_1', fitted: true },
  Q2_K: { id: 10, base: 'Q2_K', fitted: true, about: '2.6 to 3 bits, large loss', isUsual: true },
  Q2_K_S: { id: 21, base: 'Q2_K', about: '2.6 bits, takes an importance matrix' },
  Q3_K_S: { id: 11, base: 'Q3_K' },
  Q3_K_M: { id: 12, base: 'Q3_K', fitted: true, about: '3.9 bits, visible loss', preset: 'small' },
  Q3_K_L: { id: 13, base: 'Q3_K' },
  Q4_K_S: { id: 14, base: 'Q4_K', isUsual: true },
  Q4_K_M: { id: 15, base: 'Q4_K', fitted: true, about: '4.8 bits, the usual choice', preset: 'balanced' },
  Q5_K_S: { id: 16, base: 'Q5_K', isUsual: true },
  Q5_K_M: { id: 17, base: 'Q5_K', fitted: true, about: '5.7 bits, small loss', isUsual: true },
  Q6_K: { id: 18, base: 'Q6_K', fitted: true, about: '6.6 bits, very small loss', isUsual: true },
  IQ1_S: { id: 24, base: 'IQ1_S', about: '1.6 bits, takes an importance matrix' },
  IQ1_M: { id: 31, base: 'IQ1_M', about: '1.8 bits, takes an importance matrix' },
  IQ2_XXS: { id: 19, base: 'IQ2_XXS', about: '2.1 bits, takes an importance matrix' },
  IQ2_XS: { id: 20, base: 'IQ2_XS', about: '2.3 bits, takes an importance matrix' },
  IQ2_S: { id: 28, base: 'IQ2_XS', about: '2.5 bits, takes an importance matrix' },
  IQ2_M: { id: 29, base: 'IQ2_S', about: '2.7 bits, takes an importance matrix' },
  IQ3_XXS: { id: 23, base: 'IQ3_XXS', about: '3.1 bits, takes an importance matrix' },
  IQ3_XS: { id: 22, base: 'IQ3_S', about: '3.3 bits, takes an importance matrix' },
  IQ3_S: { id: 26, base: 'IQ3_S', about: '3.4 bits, less loss than Q3_K_S' },
  IQ3_M: { id: 27, base: 'IQ3_S', about: '3.7 bits, less loss than Q3_K_M' },
  IQ4_NL: { id: 25, base: 'IQ4_NL', fitted: true, about: '4.5 bits, uneven levels' },
  IQ4_XS: { id: 30, base: 'IQ4_XS', fitted: true, about: '4.3 bits, uneven levels', isUsual: true },
  MXFP4_MOE: { id: 38, base: 'MXFP4', about: 'experts at 4.3 bits, the rest at 8.5' },
  MXFP4: { id: 38, base: 'MXFP4', about: '4.3 bits, scales that are powers of two' },
  NVFP4: { id: 39, base: 'NVFP4', about: '4.5 bits, two levels of scales; the rest at 8.5' },
  TQ1_0: { id: 36, base: 'TQ1_0', about: '1.7 bits, for models trained with three values' },
  TQ2_0: { id: 37, base: 'TQ2_0', about: '2.1 bits, for models trained with three values' },
  Q1_0: { id: 40, base: 'Q1_0', about: '1.1 bits, for models trained with two values' },
  Q2_0: { id: 41, base: 'Q2_0', about: '2.3 bits, for models trained with three values' },
  F16: { id: 1, base: 'F16', fitted: true, about: 'half precision', isUsual: true },
  BF16: { id: 32, base: 'BF16', fitted: true, about: 'half the bytes, all of the range' },
  F32: { id: 0, base: 'F32', about: 'back to full precision' },
} as const satisfies Readonly<Record<string, FileTypeRow>>;
/** Name of llama-quantize's mixture of block types for a whole file. */
export type FileType = keyof typeof fileTypes;

/** Short names, with the same meaning as on llama-quantize's command line. */
export const aliases = { Q3_K: 'Q3_K_M', Q4_K: 'Q4_K_M', Q5_K: 'Q5_K_M' } as const satisfies Readonly<
  Record<string, FileType>
>;

/** Targets of GGUF files. */
export const ggufTargets: readonly FileType[] = Object.freeze(Object.keys(fileTypes) as FileType[]);

/** A target of a GGUF result: a file type, or Q3_K, Q4_K or Q5_K for its M form; or copies of all tensors. */
export type GgufTarget = FileType | keyof typeof aliases | AdapterTarget | 'copy';

/** The target of an adapter alone, beside the folder of its model. */
export type AdapterTarget = 'lora-gguf';

/** Targets of vision towers, which are those of llama.cpp's converter. */
export const towerTargets: readonly FileType[] = ['F16', 'BF16', 'F32', 'Q8_0'];

const fileOptions = ['metadata', 'splitTensors', ...shardOptions];

/** Descriptions of the targets. */
export const targets: readonly Target[] = [
  ...ggufTargets.map((name) => {
    const { id: _, base: __, fitted: ___, ...words }: FileTypeRow = fileTypes[name];
    return {
      name,
      ...words,
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
    };
  }),
  {
    name: 'lora-gguf' satisfies AdapterTarget,
    about: "the adapter of --lora alone, for llama.cpp's --lora",
    needs: ['lora'],
    options: ['requantize', 'nonFinite', 'metadata'],
  },
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
