// The options of the array calls: their types, and the checks that turn them into numbers for the core.

import {
  Granularity as DoorGranularity,
  maxZeroPoint,
  NonFinite,
  type QuantizationSpec,
  Rounding,
  Scheme,
  SymmetricRange,
} from '../core/door.js';
import { ScalepointError } from '../core/errors.js';
import type { ErrorSum } from '../core/measure.js';
import { tileSize } from '../core/memory.js';
import { type RangeSearch, type SearchedRange, searchOf } from '../core/range.js';
import { show } from '../core/show.js';
import type { HalfFormat } from './source.js';
import {
  type CodeArray,
  checkShape,
  type DType,
  type DTypeInfo,
  dtypeInfo,
  type Granularity,
  type Layout,
  layoutOf,
  resolveGranularity,
  type WasmArray,
} from './tensor.js';

/**
 * How the range that the codes cover is found, for each scale by itself.
 *
 * 'min-max': all values. 'mse': the least squared error of the restored values, zero points included. 'entropy': the least divergence
 * of a histogram of 2048 bins from its quantized self, as TensorRT calibrates; made for activations. { percentile }: from the
 * (100 - p)th to the pth percentile, symmetric up to the pth of the sizes; above 50, at most 100. Or given, as numbers, or one a
 * channel or group.
 */
export type Range =
  | 'min-max'
  | SearchedRange
  | { readonly min: number | ArrayLike<number>; readonly max: number | ArrayLike<number> }
  | { readonly scale: number | ArrayLike<number>; readonly zeroPoint: number | ArrayLike<number> };

/** Options that decide scale and zero point. */
export interface ParameterOptions {
  /** @defaultValue 'int8' */
  dtype?: DType;
  /**
   * 'symmetric': zero point 0 (unsigned: the middle, 2^(bits-1)). 'asymmetric': the codes cover [min, max].
   * @defaultValue 'symmetric'
   */
  scheme?: 'symmetric' | 'asymmetric';
  /** Its product is the number of elements. @defaultValue [length] */
  shape?: readonly number[];
  /** @defaultValue { kind: 'per-tensor' } */
  granularity?: Granularity;
  /** @defaultValue 'min-max' */
  range?: Range;
  /**
   * true: the range is widened to hold 0. false: it is not, and the zero point of an asymmetric scheme may leave the dtype's range (at most
   * 2^22 in size; the scale is widened to keep that).
   * @defaultValue true
   */
  includeZero?: boolean;
  /**
   * Symmetric scale: absmax / qmax ('restricted') or 2 absmax / (qmax - qmin) ('full').
   * @defaultValue 'restricted'
   */
  symmetricRange?: 'restricted' | 'full';
  /**
   * What NaN and infinities do. 'error': a ScalepointError `NON_FINITE`. 'saturate': NaN becomes the zero point (saturated to the
   * dtype), infinities the ends, and the range comes from the finite values.
   * @defaultValue 'error'
   */
  nonFinite?: 'error' | 'saturate';
  /** The input is a Uint16Array of the bits of such floats. */
  from?: HalfFormat;
}

/** Where `quantize` puts its results: the codes alone, or all three. */
export type QuantizeOutput<Data extends CodeArray | WasmArray = CodeArray | WasmArray> =
  | Data
  | { readonly data: Data; readonly scale?: Float32Array; readonly zeroPoint?: Int32Array };

/** Options of `quantize`. */
export interface QuantizeOptions extends ParameterOptions {
  /**
   * How x becomes a code, in float32, half to even, saturated last: 'onnx' round(x / scale) + zeroPoint, 'fused'
   * round(x / scale + zeroPoint), 'reciprocal' round(x * (1 / scale)) + zeroPoint.
   * @defaultValue 'onnx'
   */
  rounding?: 'onnx' | 'fused' | 'reciprocal';
  /** Arrays of the right kind and length to fill instead of fresh ones. */
  out?: QuantizeOutput;
  /** Takes the error measures of the result, in the same pass over the data; see `sp.errorSum()`. */
  errors?: ErrorSum;
}

/** Options of `quantizeBlocks`. */
export interface BlockOptions<Data extends Uint8Array | WasmArray = Uint8Array | WasmArray> {
  /** Its product is the number of elements, its last dimension a multiple of the block's. @defaultValue [length] */
  shape?: readonly number[];
  /** The input is a Uint16Array of the bits of such floats. */
  from?: HalfFormat;
  /** A Uint8Array or a WasmArray of uint8, of the length that the blocks take, to fill instead of a fresh one. */
  out?: Data;
}

/** Scale and zero point: one; one a channel; or one a group. */
export interface QuantizationParameters {
  readonly scale: Float32Array;
  readonly zeroPoint: Int32Array;
}

/** Options of `compare`. */
export interface CompareOptions {
  /** Each array argument that is a Uint16Array holds the bits of such floats. */
  from?: HalfFormat;
}

/** Options of `compare` for one result a channel or a group. */
export type CompareEachOptions = CompareOptions & {
  /** The shape of both arrays. @defaultValue that of the quantized tensor, or [length] */
  shape?: readonly number[];
} & (
    | {
        per: 'channel';
        /** Negative axes count from the end. */
        axis: number;
      }
    | {
        per: 'group';
        /** Elements along the axis; the last group of an axis may be shorter. */
        groupSize: number;
        /** @defaultValue the last axis */
        axis?: number;
      }
  );

/** What `sweep` tries: options of `quantize`, without those that say what the input is or where results go. */
export type SweepVariant = Omit<QuantizeOptions, 'shape' | 'from' | 'out' | 'errors'>;

/** Options of `sweep`. */
export interface SweepOptions {
  /** Its product is the number of elements. @defaultValue [length] */
  shape?: readonly number[];
  /** The input is a Uint16Array of the bits of such floats. */
  from?: HalfFormat;
}

/** Options of `histogram`. */
export interface HistogramOptions {
  /** Number of bins, 1 to 2^20. @defaultValue 256 */
  bins?: number;
  /** Lower edge of the first bin. @defaultValue the smallest finite value */
  min?: number;
  /** Upper edge of the last bin, which belongs to it. @defaultValue the largest finite value */
  max?: number;
  /** The input is a Uint16Array of the bits of such floats. */
  from?: HalfFormat;
}

/** Counts of equally wide bins. Bin i holds the values in [min + i w, min + (i + 1) w), w = (max - min) / bins; NaN is counted nowhere. */
export interface Histogram {
  readonly min: number;
  readonly max: number;
  readonly counts: Uint32Array;
  /** Values below min, -Infinity too. */
  readonly below: number;
  /** Values above max, Infinity too. */
  readonly above: number;
}

/** What `unpack` has to know of the codes. */
export interface PackedTensor {
  readonly dtype: DType;
  readonly shape: readonly number[];
}

export const quantizeKeys = new Set([
  'dtype',
  'scheme',
  'shape',
  'granularity',
  'range',
  'includeZero',
  'symmetricRange',
  'rounding',
  'nonFinite',
  'from',
  'out',
  'errors',
]);
export const blockKeys = new Set(['shape', 'from', 'out']);
export const compareKeys = new Set(['from']);
export const compareEachKeys = new Set(['from', 'per', 'axis', 'groupSize', 'shape']);
export const sweepKeys = new Set(['shape', 'from']);
export const variantKeys = new Set(
  [...quantizeKeys].filter((key) => !['shape', 'from', 'out', 'errors'].includes(key)),
);
export const histogramKeys = new Set(['bins', 'min', 'max', 'from']);
export const dequantizeKeys = new Set(['out']);

export function checkKeys(options: unknown, known: ReadonlySet<string>): void {
  if (typeof options !== 'object' || options === null)
    throw new TypeError(`options: expected an object, got ${show(options)}`);
  for (const key in options) {
    if (!known.has(key))
      throw new TypeError(`options: there is no option ${show(key)}; there are ${[...known].join(', ')}`);
  }
}

function choiceError(name: string, values: readonly string[], value: unknown): RangeError {
  return new RangeError(`${name}: expected ${values.map((v) => `'${v}'`).join(' or ')}, got ${show(value)}`);
}

/** Which of the values an option has; the first unless given. */
export function choice(options: object, name: string, values: readonly string[]): number {
  const value = (options as Record<string, unknown>)[name];
  if (value === undefined) return 0;
  const index = values.indexOf(value as string);
  if (index < 0) throw choiceError(name, values, value);
  return index;
}

/** The number of an option whose values are those of an enum of the core. */
function enumChoice<K extends string, T extends number>(
  options: object,
  name: string,
  values: Readonly<Record<K, T>>,
  fallback: T,
): T {
  const value = (options as Record<string, unknown>)[name];
  if (value === undefined) return fallback;
  if (typeof value !== 'string' || !Object.hasOwn(values, value)) throw choiceError(name, Object.keys(values), value);
  return values[value as K];
}

/** Values of `from`; undefined counts as the first. */
export const halfFormats = ['float16', 'bfloat16'];

/** A spec of which only the type is read. */
export function specOfDType(info: DTypeInfo): QuantizationSpec {
  return {
    dtype: { bits: info.bits, isSigned: info.signed },
    scheme: Scheme.symmetric,
    symmetricRange: SymmetricRange.restricted,
    includeZero: true,
    rounding: Rounding.onnx,
    nonFinite: NonFinite.error,
  };
}

/** The options that the core reads. */
function specOf(options: QuantizeOptions, info: DTypeInfo): QuantizationSpec {
  const { includeZero = true } = options;
  if (typeof includeZero !== 'boolean')
    throw new TypeError(`includeZero: expected a boolean, got ${show(includeZero)}`);
  return {
    dtype: { bits: info.bits, isSigned: info.signed },
    scheme: enumChoice(options, 'scheme', Scheme, Scheme.symmetric),
    symmetricRange: enumChoice(options, 'symmetricRange', SymmetricRange, SymmetricRange.restricted),
    includeZero,
    rounding: enumChoice(options, 'rounding', Rounding, Rounding.onnx),
    nonFinite: enumChoice(options, 'nonFinite', NonFinite, NonFinite.error),
  };
}

/** A number or an array of them as one value a parameter. Taken over at once: an array may change, or lie in memory that grows. */
function perParameter<T extends Float32Array | Int32Array>(
  value: unknown,
  make: new (n: number) => T,
  parameters: number,
  name: string,
  check: (v: number, name: string) => void,
): T {
  const all = new make(parameters);
  if (typeof value === 'number') {
    check(value, name);
    all.fill(value);
    return all;
  }
  const list = value as ArrayLike<number> | null | undefined;
  if (typeof list !== 'object' || list === null || typeof list.length !== 'number') {
    throw new TypeError(`${name}: expected a number or an array of numbers, got ${show(value)}`);
  }
  if (list.length !== parameters) {
    throw new RangeError(`${name}: expected ${parameters} values, one for each scale, got ${list.length}`);
  }
  for (let i = 0; i < parameters; i++) {
    const v: unknown = list[i];
    if (typeof v !== 'number') throw new TypeError(`${name}[${i}]: expected a number, got ${show(v)}`);
    check(v, `${name}[${i}]`);
    all[i] = v;
  }
  return all;
}

/** Calls check for every value; names are made only when one fails. */
export function checkEach(
  values: Float32Array | Int32Array,
  check: (v: number, name: string) => void,
  name: string,
): void {
  for (let i = 0; i < values.length; i++) {
    try {
      check(values[i] as number, name);
    } catch {
      check(values[i] as number, `${name}[${i}]`);
    }
  }
}

export function checkBound(v: number, name: string): void {
  if (!Number.isFinite(Math.fround(v))) throw new RangeError(`${name}: expected a finite float32 number, got ${v}`);
}

export function checkScale(v: number, name: string): void {
  const scale = Math.fround(v);
  if (!(scale > 0 && scale < Infinity))
    throw new RangeError(`${name}: expected a finite number above 0 in float32, got ${v}`);
}

export function checkZeroPoint(v: number, name: string): void {
  if (!Number.isInteger(v) || Math.abs(v) > maxZeroPoint) {
    throw new RangeError(`${name}: expected a whole number of at most 2^22 in size, got ${v}`);
  }
}

/** A checked `range` option. */
type ResolvedRange =
  | { kind: 'min-max' }
  | ({ kind: 'search' } & RangeSearch)
  | { kind: 'bounds'; min: Float32Array; max: Float32Array }
  | { kind: 'given'; scale: Float32Array; zeroPoint: Int32Array };

function resolveRange(range: unknown, parameters: number): ResolvedRange {
  if (range === undefined || range === 'min-max') return { kind: 'min-max' };
  const search = searchOf(range);
  if (search !== undefined) return { kind: 'search', ...search };
  if (typeof range === 'object' && range !== null) {
    const given = range as Record<string, unknown>;
    if ('scale' in given || 'zeroPoint' in given) {
      return {
        kind: 'given',
        scale: perParameter(given.scale, Float32Array, parameters, 'range.scale', checkScale),
        zeroPoint: perParameter(given.zeroPoint, Int32Array, parameters, 'range.zeroPoint', checkZeroPoint),
      };
    }
    if ('min' in given || 'max' in given) {
      const min = perParameter(given.min, Float32Array, parameters, 'range.min', checkBound);
      const max = perParameter(given.max, Float32Array, parameters, 'range.max', checkBound);
      for (const [i, low] of min.entries()) {
        if (low > (max[i] as number)) throw new RangeError(`range: min ${low} is above max ${max[i]}`);
      }
      return { kind: 'bounds', min, max };
    }
  }
  const got =
    typeof range === 'object' && range !== null
      ? `an object with ${Object.keys(range).join(', ') || 'no keys'}`
      : show(range);
  throw new RangeError(
    `range: expected 'min-max', 'mse', 'entropy', { percentile }, { min, max } or { scale, zeroPoint }, got ${got}`,
  );
}

/** Everything about a `quantize` call that does not depend on the values. */
export interface Job {
  info: DTypeInfo;
  shape: number[];
  granularity: Granularity;
  layout: Layout;
  spec: QuantizationSpec;
  range: ResolvedRange;
}

const perTensor: Granularity = { kind: 'per-tensor' };

export function jobOf(options: QuantizeOptions, size: number): Job {
  const info = dtypeInfo(options.dtype === undefined ? 'int8' : options.dtype);
  const spec = specOf(options, info);
  const shape = checkShape(options.shape, size);
  const granularity = options.granularity === undefined ? perTensor : resolveGranularity(options.granularity, shape);
  const layout = layoutOf(granularity, shape, size);
  // Bounds, scales and zero points of all of them have to lie in wasm memory at once.
  if (layout.parameters > 2 ** 28) {
    throw new ScalepointError('OUT_OF_MEMORY', `wasm memory has no room for ${layout.parameters} scales`);
  }
  return { info, shape, granularity, layout, spec, range: resolveRange(options.range, layout.parameters) };
}

/**
 * Line and run length if every parameter's elements are contiguous and fit into a tile: range, parameters and codes then take one pass.
 */
export function runsOf(layout: Layout): { line: number; run: number } | undefined {
  const { size, granularity, axisSize, innerSize, groupSize } = layout;
  let runs: { line: number; run: number } | undefined;
  if (granularity === DoorGranularity.perTensor) runs = { line: size, run: size };
  else if (granularity === DoorGranularity.perChannel) {
    if (innerSize > 1 && size === axisSize * innerSize) runs = { line: innerSize, run: innerSize };
  } else if (innerSize === 1) runs = { line: axisSize, run: groupSize };
  return runs !== undefined && runs.run <= tileSize ? runs : undefined;
}
