import type {
  DType,
  ErrorMeasures,
  Granularity,
  QuantizationParameters,
  QuantizeOptions,
  Scalepoint,
} from 'scalepoint';
import type { Levels } from '../shared/levels.js';
import type { DataSet } from './data.js';
import { elementsOf, type Parts, partsOf, type Run, runsOf, takeSample } from './parts.js';
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
  /** Whether `values` are all of the data. If not, they are an evenly spaced sample. */
  readonly exact: boolean;
  readonly values: Float32Array;
  readonly shape: readonly number[];
  /** Index in the data of an element of `values`. */
  readonly position: (index: number) => number;
  readonly parts: Parts;
  readonly codes: ArrayLike<number>;
  readonly scale: Float32Array;
  readonly zeroPoint: Int32Array;
  readonly restored: Float32Array;
  readonly comparison: ErrorMeasures;
  /** Number of elements more than half a step beyond the outermost levels. */
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

/** Bytes of all of the data before and after quantization. */
export function countBytes(data: DataSet, settings: Settings): ByteCount {
  const { length } = data.values;
  const { count } = partsOf(granularityOf(settings, data.shape.length), data.shape);
  const storage = settings.bits > 8 ? 2 : 1;
  const codes = Math.ceil((length * settings.bits) / 8);
  const scales = 4 * count;
  const zeroPoints = settings.scheme === 'symmetric' ? 0 : count * (settings.includeZero ? storage : 4);
  const after = codes + scales + zeroPoints;
  const before = data.stored.bytes;
  return { before, codes, scales, zeroPoints, after, ratio: before / after, bitsPerWeight: (after * 8) / length };
}

/** Counts the values of a run that lie more than half a step beyond the outermost levels. Their error is more than rounding. */
function countClipped(
  values: Float32Array,
  { scale, zeroPoint }: QuantizationParameters,
  { qmin, qmax }: { readonly qmin: number; readonly qmax: number },
  { start, length, part, step }: Run,
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

/** The levels of one part. */
function levelsOf(evaluation: Pick<Evaluation, 'settings' | 'scale' | 'zeroPoint'>, part: number): Levels {
  return { ...codeRange(evaluation.settings), scale: evaluation.scale[part]!, zeroPoint: evaluation.zeroPoint[part]! };
}

/**
 * Quantizes and restores the data and measures the error.
 * @param limit most elements to work on; of larger data, an evenly spaced sample is taken
 * @throws what the core throws, such as NON_FINITE for data with NaN if the settings do not allow it
 */
export function evaluate(core: Scalepoint, data: DataSet, settings: Settings, limit: number): Evaluation {
  const granularity = granularityOf(settings, data.shape.length);
  const exact = data.values.length <= limit;
  const { values, shape, position } = exact
    ? { values: data.values, shape: data.shape, position: (index: number) => index }
    : takeSample(data.values, data.shape, granularity, limit);
  const quantized = quantize(core, values, settings, shape);
  const restored = core.dequantize(quantized);
  const { scale, zeroPoint } = quantized;
  const parts = partsOf(granularity, shape);
  let clipped = 0;
  for (const run of runsOf(parts)) clipped += countClipped(values, quantized, codeRange(settings), run);
  return {
    settings,
    dtype: dtypeOf(settings),
    granularity,
    exact,
    values,
    shape,
    position,
    parts,
    codes: ArrayBuffer.isView(quantized.data) ? quantized.data : quantized.data.view,
    scale,
    zeroPoint,
    restored,
    comparison: core.compare(values, quantized),
    clipped,
    bytes: countBytes(data, settings),
  };
}

/** Extracts one part of an evaluation. `wanted` is clamped to the parts that there are. */
export function sliceOf(evaluation: Evaluation, wanted: number): Slice {
  const { parts, values, codes, restored } = evaluation;
  const part = Math.max(0, Math.min(wanted, parts.count - 1));
  const levels = levelsOf(evaluation, part);
  if (parts.count === 1) return { part, values, codes, restored, levels, clipped: evaluation.clipped };
  const elements = elementsOf(parts, part);
  const { length } = elements;
  const slice = {
    part,
    values: pick(values, elements, new Float32Array(length)),
    codes: pick(codes, elements, new Int32Array(length)),
    restored: pick(restored, elements, new Float32Array(length)),
    levels,
  };
  const run: Run = { start: 0, length, part, step: 0 };
  return { ...slice, clipped: countClipped(slice.values, evaluation, levels, run) };
}

/** Copies the chosen elements. The plain loop is ten times as fast as `from` with a function. */
function pick<T extends Float32Array | Int32Array>(from: ArrayLike<number>, elements: Uint32Array, to: T): T {
  for (let i = 0; i < elements.length; i++) to[i] = from[elements[i]!]!;
  return to;
}
