/** Targets of ONNX models, one row each. */
import type { BlockBits } from '../codecs/matmul-nbits.js';
import type { Target } from '../format.js';
import { statisticsNames } from '../statistics.js';

/**
 * Where onnxruntime-web (1.30) computes a result with WebGPU: on the GPU; integer products and convolutions, or codes of activations, on the
 * CPU, with copies between them; or on a GPU with 16-bit floats (shader-f16) alone, where sums in float16 are less exact than elsewhere.
 * Otherwise outputs are those in WebAssembly, for all targets natively too (tests/bench/backends.mjs, webgpu.mjs).
 */
export type OnWebGpu = 'gpu' | 'integersOnCpu' | 'activationsOnCpu' | 'needsFloat16';

/** Members of rows of a kind, whose weights have a codec. */
interface Row<Kind extends string, Codec extends string, Bits extends number>
  extends Pick<Target, 'about' | 'preset' | 'needs' | 'raised'> {
  readonly kind: Kind;
  readonly codec: Codec;
  readonly bits: Bits;
  /** Accepted types of weights. */
  readonly takes: readonly ('F32' | 'F16')[];
  /** True if all other floats become float16. */
  readonly half?: true;
  readonly onWebGpu: OnWebGpu;
  /** Accepted values of `range`; undefined if codes do not depend on a range. */
  readonly ranges?: 'all' | 'min-max and mse';
  /** Accepted values of `zeroPoints`; undefined without a choice. */
  readonly zeroPoints?: readonly (boolean | 'float')[];
  /** Default block size; undefined without blocks. */
  readonly blockSize?: number;
  /** Targets that one model may mix, all for float activations. */
  readonly mixed?: readonly string[];
  /** Ending of results' names, if other than the name of the target. */
  readonly ending?: string;
}

/** A row of the table of targets. */
type AnyRow =
  /**
   * Codes are multiplied as integers: activations are quantized while the model runs. `signed`: true for symmetric codes, signed where they are
   * multiplied; 'byModel': symmetric unless the model has convolutions or attention, and signed only by request.
   */
  | (Row<'integers', 'dequantize-linear', 8> & { readonly signed: boolean | 'byModel' })
  /** Codes are restored to floats. `signed`: true for symmetric codes; 'withoutZeroPoints': signed unless zero points are requested. */
  | (Row<'restored', 'dequantize-linear', 4 | 8> & { readonly signed: boolean | 'withoutZeroPoints' })
  /** Codes are restored to floats between activations that are integers, too, with ranges measured before. */
  | (Row<'static', 'dequantize-linear', 8> & { readonly signed: true })
  /** Operators of onnxruntime read blocks. `restoresOthers`: other weights have 8 bits, too, which become floats when the model is loaded. */
  | (Row<'blocks', 'matmul-nbits', BlockBits> & { readonly blockSize: number; readonly restoresOthers?: true })
  /** Blocks of 4-bit floats. */
  | (Row<'blocks', 'matmul-bnb4', 4> & { readonly blockSize: number })
  /** 16-bit floats. */
  | (Row<'half', 'cast', 16> & { readonly half: true });

const floats = ['F32'] as const;
// onnxruntime scales integer codes in float32, and so does MatMulBnb4 on the CPU.
const floatsAndHalves = ['F32', 'F16'] as const;

const integers = {
  kind: 'integers',
  codec: 'dequantize-linear',
  bits: 8,
  takes: floats,
  ranges: 'all',
  onWebGpu: 'integersOnCpu',
} as const;
const restored = {
  kind: 'restored',
  codec: 'dequantize-linear',
  takes: floatsAndHalves,
  ranges: 'all',
  onWebGpu: 'gpu',
} as const;
const blocks = {
  kind: 'blocks',
  codec: 'matmul-nbits',
  takes: floatsAndHalves,
  ranges: 'min-max and mse',
  zeroPoints: [false, true, 'float'],
  blockSize: 32,
  onWebGpu: 'gpu',
} as const;

const rows = {
  q8: {
    ...integers,
    about: '8 bits, multiplied as integers; right on every processor',
    signed: 'byModel',
    preset: 'balanced',
    // transformers.js uses this ending for q8.
    ending: 'quantized',
    raised: 'q8-blocks',
  },
  int8: { ...integers, about: 'the same with a sign, in products 7 bits', signed: true, raised: 'int8-weights' },
  uint8: { ...integers, about: 'the same with zero points', signed: false, raised: 'uint8-weights' },
  'int8-weights': {
    ...restored,
    about: '8 bits, a scale for each channel; floats when it runs',
    bits: 8,
    signed: true,
    mixed: ['int8-weights'],
    raised: 'fp16',
  },
  'uint8-weights': { ...restored, about: 'the same with zero points', bits: 8, signed: false, raised: 'fp16' },
  'int8-static': {
    kind: 'static',
    codec: 'dequantize-linear',
    about: '8 bits for activations as well, by their ranges; for NPUs',
    needs: ['ranges'],
    bits: 8,
    signed: true,
    takes: floats,
    ranges: 'all',
    onWebGpu: 'activationsOnCpu',
    raised: 'int8-weights',
  },
  'int4-weights': {
    ...restored,
    about: '4 bits in blocks, for every runtime of opset 21',
    bits: 4,
    signed: 'withoutZeroPoints',
    zeroPoints: [false, true],
    blockSize: 32,
    mixed: ['int4-weights', 'int8-weights'],
    raised: 'int8-weights',
  },
  q4: {
    ...blocks,
    about: '4 bits in blocks, for onnxruntime',
    bits: 4,
    preset: 'small',
    mixed: ['q4', 'q8-blocks'],
    raised: 'q8-blocks',
  },
  q4f16: {
    ...blocks,
    about: 'q4, with everything else in float16',
    bits: 4,
    half: true,
    onWebGpu: 'needsFloat16',
    raised: 'q8-blocks',
  },
  q2: {
    ...blocks,
    about: '2 bits in blocks, for onnxruntime',
    bits: 2,
    mixed: ['q2', 'q4', 'q8-blocks'],
    raised: 'q4',
  },
  q2f16: {
    ...blocks,
    about: 'q2, with everything else in float16',
    bits: 2,
    half: true,
    onWebGpu: 'needsFloat16',
    raised: 'q4f16',
  },
  'q8-blocks': {
    ...blocks,
    about: '8 bits in blocks, for onnxruntime, also on WebGPU',
    bits: 8,
    restoresOthers: true,
    zeroPoints: [false, true],
    mixed: ['q8-blocks'],
    raised: 'fp16',
  },
  bnb4: {
    kind: 'blocks',
    codec: 'matmul-bnb4',
    about: '4-bit floats (NF4) in blocks, for onnxruntime',
    bits: 4,
    takes: floats,
    blockSize: 64,
    onWebGpu: 'gpu',
    raised: 'q8-blocks',
  },
  fp16: {
    kind: 'half',
    codec: 'cast',
    about: 'weights with half the bytes of float32',
    bits: 16,
    takes: floats,
    half: true,
    onWebGpu: 'needsFloat16',
    preset: 'safe',
  },
} as const satisfies Readonly<Record<string, AnyRow>>;

/** A target of an ONNX model. */
export type OnnxTarget = keyof typeof rows;

/** Description of a target. */
export type TargetInfo = Target & AnyRow & { readonly name: OnnxTarget };

/** A target of one kind. */
export type TargetOf<Kind extends AnyRow['kind']> = TargetInfo & { readonly kind: Kind };

/** The targets, in the order of the help. Options apply to some rows. */
export const targets: readonly TargetInfo[] = Object.entries(rows).map(([name, row]) => {
  const { kind, codec, half, ranges, zeroPoints, blockSize }: AnyRow = row;
  const options = [
    ...(ranges === undefined ? [] : ['range']),
    ...(ranges === undefined && codec !== 'matmul-bnb4' ? [] : statisticsNames),
    ...(kind === 'integers' ? ['perTensor', 'reduceRange'] : []),
    ...(kind === 'static' || half === true ? ['ranges'] : []),
    ...(kind === 'integers' || kind === 'static' ? ['foldOutliers'] : []),
    ...(half === true ? ['kvCache'] : []),
    ...(kind === 'restored' && blockSize === undefined ? ['dequantize'] : []),
    ...(blockSize === undefined ? [] : ['blockSize']),
    ...(zeroPoints === undefined ? [] : ['zeroPoints']),
    'nonFinite',
    'externalData',
  ];
  return { name: name as OnnxTarget, ...row, options } as TargetInfo;
});

/** Names of the targets. */
export const onnxTargets: readonly OnnxTarget[] = targets.map(({ name }) => name);

/** The target of a valid name. */
export function targetNamed(name: string): TargetInfo {
  const found = targets.find((target) => target.name === name);
  if (found === undefined) throw new Error(`unknown target ${name}`);
  return found;
}

// ------------------------------------------------------------------------------------------------------------------------ folders

/** The dtypes of transformers.js, and `q8-blocks`, which it loads as fp32 from a file of another name. */
const dtypes = {
  fp32: 'float32',
  fp16: 'float16',
  q8: '8 bits, multiplied as integers',
  int8: 'the same with a sign',
  uint8: 'the same with zero points',
  q4: '4 bits in blocks',
  q4f16: 'q4, with everything else in float16',
  bnb4: '4-bit floats (NF4) in blocks',
  'q8-blocks': '8 bits in blocks, also on WebGPU',
} as const satisfies Readonly<Partial<Record<OnnxTarget | 'fp32', string>>>;

type Dtype = keyof typeof dtypes;

/** A target of a folder for transformers.js. */
export type OnnxFolderTarget = `onnx:${Dtype}`;

/** Facts about the model that a target of folders makes. */
export interface FolderFacts {
  /** The target of ONNX files that makes it; undefined for float32. */
  readonly target: OnnxTarget | undefined;
  /** Name of its file without the extension. */
  readonly stem: string;
  /** The dtype with which transformers.js finds it under its stem. */
  readonly dtype: string;
}

/**
 * The facts of a target; undefined for targets of files. Reference: npm @huggingface/transformers 4.3.2, src/utils/dtypes.js.
 */
export function folderFacts(to: string): FolderFacts | undefined {
  const [, name] = /^onnx:(.*)$/.exec(to) ?? [];
  if (name === undefined || !Object.hasOwn(dtypes, name)) return undefined;
  if (name === 'fp32') return { target: undefined, stem: 'model', dtype: name };
  const { ending = name }: { readonly ending?: string } = targetNamed(name);
  return { target: name as OnnxTarget, stem: `model_${ending}`, dtype: name === 'q8-blocks' ? 'fp32' : name };
}

/** Targets of folders. They have the options of the files that they make, unless these run the model, and take quantized models. */
export const folderTargets: readonly Target[] = Object.entries(dtypes).map(([name, about]) => {
  const all = name === 'fp32' ? ['nonFinite', 'externalData'] : targetNamed(name).options;
  const options = all.filter((option) => option !== 'foldOutliers');
  return {
    name: `onnx:${name}`,
    about: `for transformers.js: ${about}`,
    options: [...options, 'requantize', 'profile', 'also'],
  };
});

/** Names of the options that a target takes. */
export const optionsOf = (to: string) => [...folderTargets, ...targets].find(({ name }) => name === to)?.options;

/** The choices for each target of a result: of several, those that it takes or none of them. */
export function choicesByTarget<T extends { readonly to: string; readonly also?: readonly string[] | undefined }>({
  also = [],
  ...choices
}: T): readonly Omit<T, 'also'>[] {
  const all = [choices.to, ...also];
  if (all.length === 1) return [choices];
  const takes = (to: string, name: string) =>
    name === 'rules' ? folderFacts(to)?.target !== undefined : optionsOf(to)?.includes(name) === true;
  return all.map((to) => {
    const own = Object.entries(choices).filter(([name]) => takes(to, name) || !all.some((other) => takes(other, name)));
    return { ...Object.fromEntries(own), to } as typeof choices;
  });
}
