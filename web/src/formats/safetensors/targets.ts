/** The targets of safetensors results: one table with the facts of each. */
import type { CastType } from '../codecs/cast.js';
import type { ComfyFormat } from '../codecs/comfy.js';
import type { CodeWidth } from '../codecs/compressed-tensors.js';
import type { GptqWidth } from '../codecs/gptq.js';
import type { MicroscaledKind } from '../codecs/microscaled.js';
import { type MlxWidth, mlxGroupSizes } from '../codecs/mlx.js';
import type { Target } from '../format.js';
import { copyTarget, shardOptions } from '../shards.js';
import { statisticsNames } from '../statistics.js';

/** Integer codes. */
export interface IntegerCodes {
  readonly kind: 'integers';
  readonly bits: CodeWidth;
  /** Default group sizes, all known to loaders: the first that divides all rows of this target is used. */
  readonly groupSizes: readonly number[];
}

/** Float8 codes with a scale for each row. */
interface FloatCodes {
  readonly kind: 'floats';
  readonly bits: 8;
}

/** Codes of ComfyUI. */
interface ComfyCodes {
  readonly kind: 'comfy';
  readonly format: ComfyFormat;
}

/** Small floats in blocks, in the layout of compressed-tensors. */
interface MicroscaledCodes {
  readonly kind: 'microscaled';
  readonly form: MicroscaledKind;
}

/** Codes of MLX: integers with a scale and a bias for each group, or small floats in blocks. */
interface MlxCodes {
  readonly kind: 'mlx';
  readonly form: MlxWidth | MicroscaledKind;
}

/** Integers of GPTQ or AWQ, whose matrices are transposed. */
interface GptqCodes {
  readonly kind: 'gptq';
  readonly words: 'gptq' | 'awq';
  readonly bits: GptqWidth;
}

/** Codes of a target, of a kind for each layout; those of compressed-tensors are the first two. */
export type StoredCodes = IntegerCodes | FloatCodes | ComfyCodes | MicroscaledCodes | MlxCodes | GptqCodes;

/** Contents of a target: codes, floats of another type, or copies. */
type Stores = StoredCodes | { readonly kind: 'cast'; readonly type: CastType } | { readonly kind: 'copy' };

interface TargetFacts extends Omit<Target, 'name'> {
  readonly stores: Stores;
  /** Targets that rules may mix it with for a result of a given size. A configuration has one kind of codes. */
  readonly mixedWith?: readonly string[];
}

const floatOptions = ['requantize', 'nonFinite', ...shardOptions];
const codeOptions = ['include', 'config', ...floatOptions];
const integerOptions = ['scheme', 'granularity', 'range', 'packed', ...statisticsNames, ...codeOptions];

const blockOptions = ['range', 'importance', 'config', ...floatOptions];

/** A target in the layout of GPTQ or AWQ. */
function gptq(words: 'gptq' | 'awq', bits: GptqWidth, text: string) {
  return {
    about: `${bits} bits in groups, in the layout of ${text}`,
    stores: { kind: 'gptq', words, bits },
    options: ['granularity', 'range', ...statisticsNames, 'config', ...floatOptions],
    completes: ['config'],
  } as const;
}

/** A target of MLX with small floats. */
function mlxFloats(form: MicroscaledKind, words: string) {
  return {
    about: `MLX: ${words}`,
    stores: { kind: 'mlx', form },
    options: blockOptions,
    completes: ['config'],
    mixedWith: ['bfloat16'],
  } as const;
}

/** A target of MLX. @param wider targets with more bits, which a mixture may have besides */
function mlx(bits: MlxWidth, ...wider: readonly MlxWidth[]) {
  return {
    about: `MLX: ${bits} bits, a scale and a bias for each group`,
    stores: { kind: 'mlx', form: bits },
    options: ['granularity', 'search', ...blockOptions],
    completes: ['config'],
    mixedWith: [...wider.map((width) => `mlx-${width}bit`), 'bfloat16'],
  } as const;
}

const table = {
  int8: {
    about: '8 bits, in groups',
    stores: { kind: 'integers', bits: 8, groupSizes: [128, 64, 32] },
    options: [...integerOptions, 'activations'],
    mixedWith: ['bfloat16'],
    preset: 'balanced',
  },
  int4: {
    about: '4 bits, in groups',
    stores: { kind: 'integers', bits: 4, groupSizes: [128] },
    options: integerOptions,
    mixedWith: ['int8', 'bfloat16'],
    preset: 'small',
  },
  float8e4m3fn: {
    about: '8 bits, small floats and a scale for each row',
    stores: { kind: 'floats', bits: 8 },
    options: codeOptions,
    mixedWith: ['bfloat16'],
  },
  'comfy-fp8': {
    about: 'ComfyUI: 8 bits, small floats and a scale for each tensor',
    stores: { kind: 'comfy', format: 'float8_e4m3fn' },
    options: floatOptions,
  },
  'comfy-int8': {
    about: 'ComfyUI: 8 bits, integers and a scale for each row',
    stores: { kind: 'comfy', format: 'int8_tensorwise' },
    options: ['range', ...floatOptions],
  },
  'comfy-mxfp8': {
    about: 'ComfyUI: 8.25 bits, small floats and a power of two for each 32',
    stores: { kind: 'comfy', format: 'mxfp8' },
    options: floatOptions,
  },
  'comfy-nvfp4': {
    about: 'ComfyUI: 4.5 bits, small floats and a scale for each 16',
    stores: { kind: 'comfy', format: 'nvfp4' },
    options: ['range', ...floatOptions],
  },
  nvfp4: {
    about: '4 bits, small floats in blocks of 16, for NVIDIA GPUs',
    stores: { kind: 'microscaled', form: 'nvfp4' },
    options: blockOptions,
    mixedWith: ['bfloat16'],
  },
  mxfp4: {
    about: '4 bits, small floats in blocks of 32',
    stores: { kind: 'microscaled', form: 'mxfp4' },
    options: blockOptions,
    mixedWith: ['bfloat16'],
  },
  mxfp8: {
    about: '8 bits, small floats in blocks of 32',
    stores: { kind: 'microscaled', form: 'mxfp8' },
    options: blockOptions,
    mixedWith: ['bfloat16'],
  },
  'mlx-4bit': mlx(4, 6, 8),
  'mlx-2bit': mlx(2, 4, 6, 8),
  'mlx-3bit': mlx(3, 4, 6, 8),
  'mlx-5bit': mlx(5, 6, 8),
  'mlx-6bit': mlx(6, 8),
  'mlx-8bit': mlx(8),
  'mlx-mxfp4': mlxFloats('mxfp4', '4.25 bits, small floats in blocks of 32'),
  'mlx-nvfp4': mlxFloats('nvfp4', '4.5 bits, small floats in blocks of 16'),
  'mlx-mxfp8': mlxFloats('mxfp8', '8.25 bits, small floats in blocks of 32'),
  gptq: gptq('gptq', 4, 'GPTQ'),
  'gptq-8bit': gptq('gptq', 8, 'GPTQ'),
  'gptq-3bit': gptq('gptq', 3, 'GPTQ'),
  'gptq-2bit': gptq('gptq', 2, 'GPTQ'),
  awq: gptq('awq', 4, 'AWQ, with zero points'),
  float16: {
    about: 'half the bytes of float32, small range',
    stores: { kind: 'cast', type: 'F16' },
    options: floatOptions,
  },
  bfloat16: {
    about: 'half the bytes of float32, all of its range',
    stores: { kind: 'cast', type: 'BF16' },
    options: floatOptions,
    preset: 'safe',
  },
} as const satisfies Readonly<Record<string, TargetFacts>>;

/** A target that converts. */
type ConvertingTarget = keyof typeof table;

/** A target of a safetensors result. */
export type SafetensorsTarget = ConvertingTarget | 'copy';

/** Targets of the weights of a safetensors file. */
export const safetensorsTargets = Object.keys(table) as readonly ConvertingTarget[];

function factsOf(to: unknown): TargetFacts | undefined {
  return isTarget(to) ? table[to] : undefined;
}

/** True for targets that convert. */
export function isTarget(value: unknown): value is ConvertingTarget {
  return typeof value === 'string' && Object.hasOwn(table, value);
}

/** Descriptions of the targets. */
export const targets: readonly Target[] = [
  ...Object.entries(table).map(([name, { stores: _, mixedWith: __, ...target }]: [string, TargetFacts]): Target => {
    return { name, ...target };
  }),
  copyTarget(shardOptions),
];

/** Targets of rules in a result of a given size; undefined if the target takes no mixtures. */
export function mixtureOf(to: string): readonly string[] | undefined {
  const others = factsOf(to)?.mixedWith;
  return others && [to, ...others];
}

function storesOf<Kind extends Stores['kind']>(to: unknown, kind: Kind): Extract<Stores, { kind: Kind }> | undefined {
  const stores = factsOf(to)?.stores;
  return stores?.kind === kind ? (stores as Extract<Stores, { kind: Kind }>) : undefined;
}

/** The integer codes that a target stores. */
export const integersOf = (to: unknown): IntegerCodes | undefined => storesOf(to, 'integers');

/** The small floats in blocks that a target stores. */
export const microscaledOf = (to: unknown): MicroscaledKind | undefined => storesOf(to, 'microscaled')?.form;

/** The codes that a target stores. */
export function codesOf(to: unknown): StoredCodes | undefined {
  const stores = factsOf(to)?.stores;
  return stores === undefined || stores.kind === 'cast' || stores.kind === 'copy' ? undefined : stores;
}

/** True for codes in the layout of compressed-tensors, whose loaders join layers and need one scheme for them. */
export const sharesSchemes = (to: unknown): boolean =>
  ['integers', 'floats', 'microscaled'].includes(codesOf(to)?.kind ?? '');

/** The codes of MLX that a target stores. */
export const mlxCodesOf = (to: unknown): MlxCodes | undefined => storesOf(to, 'mlx');

/** The codes of GPTQ or AWQ that a target stores. */
export const gptqCodesOf = (to: unknown): GptqCodes | undefined => storesOf(to, 'gptq');

/** Sizes of groups that loaders of a target know; undefined if they take any. */
export function knownGroupsOf(to: unknown): readonly number[] | undefined {
  return gptqCodesOf(to) !== undefined || typeof mlxCodesOf(to)?.form === 'number' ? mlxGroupSizes : undefined;
}

/** The format of ComfyUI that a target stores. */
export const comfyFormatOf = (to: unknown): ComfyFormat | undefined => storesOf(to, 'comfy')?.format;

/** True if an option applies to a target. */
export function takesOption(to: unknown, option: string): boolean {
  return factsOf(to)?.options.includes(option) ?? false;
}

/** The type that a target casts floats to. */
export const castOf = (to: unknown): CastType | undefined => storesOf(to, 'cast')?.type;

/** Default group sizes of all targets, the largest first. */
export const usualGroupSizes: readonly number[] = [
  ...new Set(safetensorsTargets.flatMap((to) => integersOf(to)?.groupSizes ?? [])),
].sort((a, b) => b - a);
