import type {
  DType,
  ErrorMeasures,
  Granularity,
  QuantizationParameters,
  QuantizeOptions,
  Scalepoint,
} from 'scalepoint';
import type { DataSet } from './data.js';
import { elementsOf, type Parts, partsOf, type Run, runsOf, takeSample } from './parts.js';
import { codeRange, dtypeOf, granularityOf, percentile, type Settings } from './settings.js';

/** The codes of one part and what they stand for: level(code) = scale * (code - zeroPoint). */
export interface Levels {
  readonly qmin: number;
  readonly qmax: number;
  readonly scale: number;
  readonly zeroPoint: number;
}

/** Size of the quantized data, in bytes. */
export interface ByteCount {
  /** As stored where the numbers came from. */
  readonly before: number;
  /** Codes as `pack` lays them out: bits one after the other, no padding but in the last byte. */
  readonly codes: number;
  /** Four bytes each. */
  readonly scales: number;
  /** None if the scheme fixes them; as wide as a code's storage otherwise, and four bytes when they may leave the dtype's range. */
  readonly zeroPoints: number;
  readonly after: number;
  readonly ratio: number;
  readonly bitsPerWeight: number;
}

/** A quantized tensor, restored and measured. */
export interface Evaluation {
  readonly settings: Settings;
  readonly dtype: DType;
  readonly granularity: Granularity;
  /** False: values are an evenly spaced sample of the data. */
  readonly exact: boolean;
  readonly values: Float32Array;
  readonly shape: readonly number[];
  /** Where an element of values stands in the data. */
  readonly position: (index: number) => number;
  readonly parts: Parts;
  readonly codes: ArrayLike<number>;
  readonly scale: Float32Array;
  readonly zeroPoint: Int32Array;
  readonly restored: Float32Array;
  readonly comparison: ErrorMeasures;
  /** Elements beyond the outermost levels by more than half a step. */
  readonly clipped: number;
  readonly bytes: ByteCount;
}

/** One part of an evaluation: what the pictures show. */
export interface Slice {
  readonly part: number;
  readonly values: Float32Array;
  readonly codes: ArrayLike<number>;
  readonly restored: Float32Array;
  readonly levels: Levels;
  readonly clipped: number;
}

/** The options of `quantize` that the settings stand for. Options at their defaults are left out. */
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

/** Quantizes as the settings say. Less than the whole range is covered by finer steps around the same zero point. */
export function quantize(core: Scalepoint, values: Float32Array, settings: Settings, shape: readonly number[]) {
  const options = quantizeOptions(settings, shape);
  if (settings.cover === 100 || settings.range !== 'min-max') return core.quantize(values, options);
  const { rounding, ...forParameters } = options;
  const { scale, zeroPoint } = core.chooseQuantizationParameters(values, forParameters);
  const range = { scale: scale.map((step) => step * (settings.cover / 100)), zeroPoint };
  return core.quantize(values, { ...options, range });
}

/** Counts bytes before and after, for the whole of the data. */
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

/** Counts the values of a run that lie beyond the outermost levels by more than half a step: rounding alone cannot explain their errors. */
function countClipped(
  values: Float32Array,
  { scale, zeroPoint }: QuantizationParameters,
  { qmin, qmax }: { readonly qmin: number; readonly qmax: number },
  { start, length, part, step }: Run,
): number {
  // The margin is for the float32 rounding of scale, which can put the extremes themselves a hair beyond half a step.
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
 * Quantizes, restores and measures.
 * @param limit most elements to work on; beyond it an evenly spaced sample stands for the data.
 * @throws whatever the core throws: NON_FINITE for data with NaN, unless the settings say otherwise.
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

/** Cuts one part out of an evaluation. A part that does not exist is moved to the last one. */
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

/** Copies the chosen elements. A plain loop: `from` with a function takes ten times as long. */
function pick<T extends Float32Array | Int32Array>(from: ArrayLike<number>, elements: Uint32Array, to: T): T {
  for (let i = 0; i < elements.length; i++) to[i] = from[elements[i]!]!;
  return to;
}

/** The number that a code stands for. In double, as the picture's outermost levels may lie beyond the float32 range. */
export function levelAt({ scale, zeroPoint }: Levels, code: number): number {
  return scale * (code - zeroPoint);
}
