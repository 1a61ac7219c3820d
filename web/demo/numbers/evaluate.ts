import {
  blockTypeInfo,
  type DType,
  type ErrorMeasures,
  type Granularity,
  type QuantizationParameters,
  type QuantizeOptions,
  type Scalepoint,
} from 'scalepoint';
import type { Levels } from '../shared/levels.js';
import { blockLength, blockParts, levelsInUse, listLevels, quantizeUneven } from './codes.js';
import { countOf, type DataFacts, type DataSet } from './data.js';
import { type ElementRun, elementsOf, partsOf, runsOf, type TensorParts, takeSample } from './parts.js';
import { codeRange, dtypeOf, granularityOf, percentile, type Settings } from './settings.js';

/** Bytes of the data before and after quantization. */
export interface ByteCount {
  /** Bytes in the type that the numbers were stored in. */
  readonly before: number;
  /** Bytes of the codes as `pack` stores them: no padding except in the last byte. */
  readonly codes: number;
  /** Bytes of the scales, four for each. */
  readonly scales: number;
  /**
   * Bytes of the zero points. 0 for the symmetric scheme, where they are constant. Otherwise each takes as many bytes as an unpacked
   * code, or four without `includeZero`, since it may then lie outside of the dtype's range.
   */
  readonly zeroPoints: number;
  readonly after: number;
  readonly ratio: number;
  readonly bitsPerWeight: number;
}

/** A quantized tensor with its restored values and their error. */
export interface Evaluation {
  readonly settings: Settings;
  readonly dtype: DType;
  readonly granularity: Granularity;
  /** True if `values` are all of the data. Otherwise they are an evenly spaced sample. */
  readonly exact: boolean;
  readonly values: Float32Array;
  readonly shape: readonly number[];
  /** Index in the data of an element of `values`. */
  readonly position: (index: number) => number;
  readonly parts: TensorParts;
  /** Absent for blocks, which interleave codes with scales. */
  readonly codes: ArrayLike<number> | undefined;
  /** Empty for blocks. */
  readonly scale: Float32Array;
  /** Empty unless the codes are integers. */
  readonly zeroPoint: Int32Array;
  /** The values of the codes at scale 1, if they are not evenly spaced. */
  readonly codebook?: Float32Array;
  readonly restored: Float32Array;
  readonly comparison: ErrorMeasures;
  /** Number of elements more than half a step beyond the outermost levels; 0 unless the codes are integers. */
  readonly clipped: number;
  readonly bytes: ByteCount;
}

/** One part of an evaluation: the whole tensor, a channel or a group. The pictures show one part at a time. */
export interface Slice {
  readonly part: number;
  readonly values: Float32Array;
  readonly codes: ArrayLike<number>;
  readonly restored: Float32Array;
  readonly levels: Levels;
  readonly clipped: number;
}

/** The options of `quantize` for these settings, without those that have their default value. */
export function quantizeOptions(settings: Settings, shape: readonly number[]): QuantizeOptions {
  const granularity = granularityOf(settings, shape.length);
  return {
    shape: [...shape],
    ...(dtypeOf(settings) !== 'int8' && { dtype: dtypeOf(settings) }),
    ...(settings.scheme !== 'symmetric' && { scheme: settings.scheme }),
    ...(granularity.kind !== 'per-tensor' && { granularity }),
    ...(settings.range !== 'min-max' && { range: settings.range === 'percentile' ? { percentile } : settings.range }),
    ...(settings.scheme === 'symmetric' &&
      settings.symmetricRange !== 'restricted' && { symmetricRange: settings.symmetricRange }),
    ...(settings.scheme === 'asymmetric' && !settings.includeZero && { includeZero: false }),
    ...(settings.rounding !== 'onnx' && { rounding: settings.rounding }),
    ...(settings.nonFinite !== 'error' && { nonFinite: settings.nonFinite }),
  };
}

/** Quantizes with these settings. If `cover` is below 100, the min-max scales are multiplied by cover / 100; zero points stay. */
export function quantize(core: Scalepoint, values: Float32Array, settings: Settings, shape: readonly number[]) {
  const options = quantizeOptions(settings, shape);
  if (settings.cover === 100 || settings.range !== 'min-max') return core.quantize(values, options);
  const { rounding, ...forParameters } = options;
  const { scale, zeroPoint } = core.chooseQuantizationParameters(values, forParameters);
  const range = { scale: scale.map((step) => step * (settings.cover / 100)), zeroPoint };
  return core.quantize(values, { ...options, range });
}

/** Bits of a code and bytes of a scale, for each kind. ggml counts its scales as part of a block. */
function bytesOfUneven(data: DataFacts, settings: Settings): Pick<ByteCount, 'codes' | 'scales'> {
  const length = countOf(data);
  if (settings.codes === 'blocks') {
    const { elements, bytes } = blockTypeInfo(settings.block);
    return { codes: Math.ceil(length / elements) * bytes, scales: 0 };
  }
  const codes = settings.codes === 'nf4' ? Math.ceil(length / 2) : length;
  return { codes, scales: 4 * blockParts(settings, data.shape).count };
}

/** Bytes of all of the data before and after quantization. */
export function countBytes(data: DataFacts, settings: Settings): ByteCount {
  const length = countOf(data);
  const before = data.stored.bytes;
  if (settings.codes !== 'integers') {
    const parts = bytesOfUneven(data, settings);
    const after = parts.codes + parts.scales;
    return { before, ...parts, zeroPoints: 0, after, ratio: before / after, bitsPerWeight: (after * 8) / length };
  }
  const { count } = partsOf(granularityOf(settings, data.shape.length), data.shape);
  const storage = settings.bits > 8 ? 2 : 1;
  const codes = Math.ceil((length * settings.bits) / 8);
  const scales = 4 * count;
  const zeroPoints = settings.scheme === 'symmetric' ? 0 : count * (settings.includeZero ? storage : 4);
  const after = codes + scales + zeroPoints;
  return { before, codes, scales, zeroPoints, after, ratio: before / after, bitsPerWeight: (after * 8) / length };
}

/** Counts the values of a run that lie more than half a step beyond the outermost levels. Their error is more than rounding. */
function countClipped(
  values: Float32Array,
  { scale, zeroPoint }: QuantizationParameters,
  { qmin, qmax }: { readonly qmin: number; readonly qmax: number },
  { start, length, part, step }: ElementRun,
): number {
  // The scale is rounded to float32. The margin of 0.001 keeps that from putting the extremes of the data beyond half a step.
  const low = qmin - 0.501;
  const high = qmax + 0.501;
  let count = 0;
  for (let i = 0; i < length; i++) {
    const at = part + i * step;
    const code = values[start + i]! / scale[at]! + zeroPoint[at]!;
    if (code < low || code > high) count++;
  }
  return count;
}

/** The granularity for taking samples. Numbers that share a scale stay together. */
function sampleGranularity(settings: Settings, shape: readonly number[]): Granularity {
  if (settings.codes === 'integers') return granularityOf(settings, shape.length);
  if (settings.codes !== 'blocks' && settings.granularity === 'per-tensor') return { kind: 'per-tensor' };
  if (settings.codes !== 'blocks' && settings.granularity === 'per-channel') return { kind: 'per-channel', axis: 0 };
  return { kind: 'per-group', groupSize: blockLength(settings, shape), axis: shape.length - 1 };
}

/** Quantizes and restores values with integer codes. */
function evaluateIntegers(core: Scalepoint, values: Float32Array, settings: Settings, shape: readonly number[]) {
  const quantized = quantize(core, values, settings, shape);
  const { scale, zeroPoint } = quantized;
  const parts = partsOf(granularityOf(settings, shape.length), shape);
  let clipped = 0;
  for (const run of runsOf(parts)) clipped += countClipped(values, quantized, codeRange(settings), run);
  return {
    parts,
    codes: ArrayBuffer.isView(quantized.data) ? quantized.data : quantized.data.view,
    scale,
    zeroPoint,
    restored: core.dequantize(quantized),
    comparison: core.compare(values, quantized),
    clipped,
  };
}

/** Quantizes and restores values with codes of another kind. */
function evaluateUneven(core: Scalepoint, values: Float32Array, settings: Settings, shape: readonly number[]) {
  const { codes, codebook, ...result } = quantizeUneven(core, values, settings, shape);
  return {
    parts: blockParts(settings, shape),
    codes,
    zeroPoint: new Int32Array(),
    clipped: 0,
    ...(codebook !== undefined && { codebook }),
    ...result,
  };
}

/**
 * Quantizes and restores the data and measures the error.
 * @param limit most elements to work on; of larger data, an evenly spaced sample is taken
 * @throws what the core throws, such as NON_FINITE for data with NaN if the settings do not allow it
 */
export function evaluate(core: Scalepoint, data: DataSet, settings: Settings, limit: number): Evaluation {
  const exact = data.values.length <= limit;
  const { values, shape, position } = exact
    ? { values: data.values, shape: data.shape, position: (index: number) => index }
    : takeSample(data.values, data.shape, sampleGranularity(settings, data.shape), limit);
  const run = settings.codes === 'integers' ? evaluateIntegers : evaluateUneven;
  return {
    settings,
    dtype: dtypeOf(settings),
    granularity: granularityOf(settings, data.shape.length),
    exact,
    values,
    shape,
    position,
    ...run(core, values, settings, shape),
    bytes: countBytes(data, settings),
  };
}

/** The levels of one part whose codes are integers or indices into a codebook. */
function levelsOf({ settings, scale, zeroPoint, codebook }: Evaluation, part: number): Levels {
  const step = scale[part]!;
  if (codebook !== undefined) return listLevels(Array.from(codebook, (value) => value * step));
  return { ...codeRange(settings), scale: step, zeroPoint: zeroPoint[part]! };
}

/** Extracts one part of an evaluation. `wanted` is clamped to the parts that there are. */
export function sliceOf(evaluation: Evaluation, wanted: number): Slice {
  const { parts } = evaluation;
  const part = Math.max(0, Math.min(wanted, parts.count - 1));
  const elements = parts.count === 1 ? undefined : elementsOf(parts, part);
  const cut = <T extends Float32Array | Int32Array>(from: ArrayLike<number>, empty: (n: number) => T) =>
    elements === undefined ? (from as T) : pick(from, elements, empty(elements.length));
  const values = cut(evaluation.values, (n) => new Float32Array(n));
  const restored = cut(evaluation.restored, (n) => new Float32Array(n));
  if (evaluation.codes === undefined) return { part, values, restored, clipped: 0, ...levelsInUse(restored) };
  const codes = cut(evaluation.codes, (n) => new Int32Array(n));
  const levels = levelsOf(evaluation, part);
  if (levels.values !== undefined) return { part, values, codes, restored, levels, clipped: 0 };
  const run: ElementRun = { start: 0, length: values.length, part, step: 0 };
  return { part, values, codes, restored, levels, clipped: countClipped(values, evaluation, levels, run) };
}

/** Copies the chosen elements. The plain loop is ten times as fast as `from` with a function. */
function pick<T extends Float32Array | Int32Array>(from: ArrayLike<number>, elements: Uint32Array, to: T): T {
  for (let i = 0; i < elements.length; i++) to[i] = from[elements[i]!]!;
  return to;
}
