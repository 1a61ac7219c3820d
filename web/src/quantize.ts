/// <reference lib="esnext.disposable" preserve="true" />
import {
  CodeSource,
  checkApart,
  type FloatInput,
  forEachTile,
  type HalfFormat,
  ResidentSource,
  Sink,
  type Source,
  sourceOf,
} from './array.js';
import { version } from './core.mjs';
import { ScalepointError } from './errors.js';
import {
  type CodeArray,
  checkShape,
  type DType,
  type DTypeInfo,
  dtypeInfo,
  type Granularity,
  type Layout,
  type LinearQuantizedTensor,
  layoutOf,
  type QuantizedTensor,
  resolveGranularity,
  show,
  type WasmArray,
  type WasmDType,
} from './tensor.js';
import { type Core, type LoadOptions, loadCore, OwnedWasmArray, tileParameters, tileSize } from './wasm.js';

/** How the range that the codes cover is found. Numbers, or one a channel or group. */
export type Range =
  | 'min-max'
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
export type QuantizeOutput =
  | CodeArray
  | WasmArray
  | { readonly data: CodeArray | WasmArray; readonly scale?: Float32Array; readonly zeroPoint?: Int32Array };

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
}

/** Scale and zero point: one; one a channel; or one a group. */
export interface QuantizationParameters {
  readonly scale: Float32Array;
  readonly zeroPoint: Int32Array;
}

/** How far y is from x; e = x - y. */
export interface ErrorMeasures {
  /** Mean of e^2. */
  readonly mse: number;
  /** Square root of the mse. */
  readonly rmse: number;
  readonly meanAbsoluteError: number;
  readonly maxAbsoluteError: number;
  /** sqrt(sum e^2 / sum x^2). */
  readonly relativeL2: number;
  /** 10 log10(sum x^2 / sum e^2), in decibels. Infinity without any error; -Infinity for a zero signal with an error. */
  readonly sqnrDb: number;
  /** sum x y / sqrt(sum x^2 sum y^2), in [-1, 1]. 1 without any error; 0 for a zero signal with an error. */
  readonly cosine: number;
  /** Pairs with a NaN or an infinity; they are left out of everything else. */
  readonly nonFinite: number;
}

/** Options of `compare`. */
export interface CompareOptions {
  /** Each array argument that is a Uint16Array holds the bits of such floats. */
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

const maxZeroPoint = 2 ** 22;
/** Arrays up to this size are kept in wasm memory between the two passes of a range and its codes; larger ones are copied twice. */
const residentBytes = 64 * 2 ** 20;
const statusNonFinite = 7;

const quantizeKeys = new Set([
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
]);
const compareKeys = new Set(['from']);
const histogramKeys = new Set(['bins', 'min', 'max', 'from']);
const dequantizeKeys = new Set(['out']);

function checkKeys(options: unknown, known: ReadonlySet<string>): void {
  if (typeof options !== 'object' || options === null)
    throw new TypeError(`options: expected an object, got ${show(options)}`);
  for (const key in options) {
    if (!known.has(key))
      throw new TypeError(`options: there is no option ${show(key)}; there are ${[...known].join(', ')}`);
  }
}

function choice(options: object, name: string, values: readonly string[]): number {
  const value = (options as Record<string, unknown>)[name];
  if (value === undefined) return 0;
  const index = values.indexOf(value as string);
  if (index < 0) {
    throw new RangeError(`${name}: expected ${values.map((v) => `'${v}'`).join(' or ')}, got ${show(value)}`);
  }
  return index;
}

const schemes = ['symmetric', 'asymmetric'];
const symmetricRanges = ['restricted', 'full'];
const roundings = ['onnx', 'fused', 'reciprocal'];
const policies = ['error', 'saturate'];

/** The dtype alone, as cpp/bindings.cpp packs a spec. */
function dtypeSpec(info: DTypeInfo): number {
  return info.bits | (info.signed ? 1 << 5 : 0);
}

/** All of the options that the core reads, in one number. */
function specOf(options: QuantizeOptions, info: DTypeInfo): number {
  const { includeZero = true } = options;
  if (typeof includeZero !== 'boolean')
    throw new TypeError(`includeZero: expected a boolean, got ${show(includeZero)}`);
  return (
    dtypeSpec(info) |
    (choice(options, 'scheme', schemes) << 6) |
    (choice(options, 'symmetricRange', symmetricRanges) << 7) |
    (includeZero ? 1 << 8 : 0) |
    (choice(options, 'rounding', roundings) << 9) |
    (choice(options, 'nonFinite', policies) << 11)
  );
}

/** A number or an array of them, as a function of the parameter's index. */
function perParameter(
  value: unknown,
  parameters: number,
  name: string,
  check: (v: number, name: string) => void,
): (i: number) => number {
  if (typeof value === 'number') {
    check(value, name);
    return () => value;
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
  }
  return (i) => list[i] as number;
}

function checkBound(v: number, name: string): void {
  if (!Number.isFinite(Math.fround(v))) throw new RangeError(`${name}: expected a finite float32 number, got ${v}`);
}

function checkScale(v: number, name: string): void {
  const scale = Math.fround(v);
  if (!(scale > 0 && scale < Infinity))
    throw new RangeError(`${name}: expected a finite number above 0 in float32, got ${v}`);
}

function checkZeroPoint(v: number, name: string): void {
  if (!Number.isInteger(v) || Math.abs(v) > maxZeroPoint) {
    throw new RangeError(`${name}: expected a whole number of at most 2^22 in size, got ${v}`);
  }
}

/** A checked `range` option. */
type ResolvedRange =
  | { kind: 'min-max' }
  | { kind: 'bounds'; min: (i: number) => number; max: (i: number) => number }
  | { kind: 'given'; scale: (i: number) => number; zeroPoint: (i: number) => number };

function resolveRange(range: unknown, parameters: number): ResolvedRange {
  if (range === undefined || range === 'min-max') return { kind: 'min-max' };
  if (typeof range === 'object' && range !== null) {
    const given = range as Record<string, unknown>;
    if ('scale' in given || 'zeroPoint' in given) {
      return {
        kind: 'given',
        scale: perParameter(given.scale, parameters, 'range.scale', checkScale),
        zeroPoint: perParameter(given.zeroPoint, parameters, 'range.zeroPoint', checkZeroPoint),
      };
    }
    if ('min' in given || 'max' in given) {
      const min = perParameter(given.min, parameters, 'range.min', checkBound);
      const max = perParameter(given.max, parameters, 'range.max', checkBound);
      for (let i = 0; i < parameters; i++) {
        if (min(i) > max(i)) throw new RangeError(`range: min ${min(i)} is above max ${max(i)}`);
      }
      return { kind: 'bounds', min, max };
    }
  }
  const got =
    typeof range === 'object' && range !== null
      ? `an object with ${Object.keys(range).join(', ') || 'no keys'}`
      : show(range);
  throw new RangeError(`range: expected 'min-max', { min, max } or { scale, zeroPoint }, got ${got}`);
}

/** Everything about a `quantize` call that does not depend on the values. */
interface Job {
  info: DTypeInfo;
  shape: number[];
  granularity: Granularity;
  layout: Layout;
  spec: number;
  range: ResolvedRange;
}

const perTensor: Granularity = { kind: 'per-tensor' };

function jobOf(options: QuantizeOptions, size: number): Job {
  const info = dtypeInfo(options.dtype ?? 'int8');
  const spec = specOf(options, info);
  const shape = checkShape(options.shape, size);
  const granularity = options.granularity === undefined ? perTensor : resolveGranularity(options.granularity, shape);
  const layout = layoutOf(granularity, shape, size);
  return { info, shape, granularity, layout, spec, range: resolveRange(options.range, layout.parameters) };
}

/**
 * Line and run length if every parameter's elements are contiguous and fit into a tile: range, parameters and codes then take one pass.
 */
function runsOf(layout: Layout): { line: number; run: number } | undefined {
  const { kind, size, axisSize, innerSize, groupSize } = layout;
  let runs: { line: number; run: number } | undefined;
  if (kind === 0) runs = { line: size, run: size };
  else if (kind === 1 && innerSize > 1 && size === axisSize * innerSize) runs = { line: innerSize, run: innerSize };
  else if (kind === 2 && innerSize === 1) runs = { line: axisSize, run: groupSize };
  return runs !== undefined && runs.run <= tileSize ? runs : undefined;
}

/** Addresses of the parameters of a call in wasm memory. */
interface Parameters {
  min: number;
  max: number;
  scale: number;
  zeroPoint: number;
}

function isOutObject(out: unknown): out is { data: unknown; scale?: unknown; zeroPoint?: unknown } {
  return typeof out === 'object' && out !== null && !ArrayBuffer.isView(out) && !(out instanceof OwnedWasmArray);
}

function parameterArray<T extends Float32Array | Int32Array>(
  given: unknown,
  make: new (n: number) => T,
  n: number,
  name: string,
): T {
  if (given === undefined) return new make(n);
  if (Object.prototype.toString.call(given).slice(8, -1) !== make.name) {
    throw new TypeError(`${name}: expected a ${make.name}, got ${show(given)}`);
  }
  const array = given as T;
  if (array.length !== n) throw new RangeError(`${name}: expected ${n} elements, got ${array.length}`);
  return array;
}

/** An instance of the core: quantizes, restores and measures arrays. Made by `load`. */
export class Scalepoint {
  readonly #core: Core;
  /** Whether the SIMD build is in use. */
  readonly simd: boolean;
  /** Version of the package. */
  readonly version: string = version;

  /** @internal */
  constructor(core: Core) {
    this.#core = core;
    this.simd = core.module.isSimd();
  }

  /**
   * Float values to integer codes with scale and zero point.
   *
   * Restoring a code gives x within scale / 2, up to float rounding, unless x saturates.
   * @example const q = sp.quantize(weights, { shape: [768, 3072], granularity: { kind: 'per-channel', axis: 0 } });
   * @throws TypeError or RangeError naming the option; ScalepointError `NON_FINITE`, `OUT_OF_MEMORY`, `DISPOSED`. What `out` holds
   * after an error means nothing.
   */
  quantize(x: FloatInput, options: QuantizeOptions = {}): LinearQuantizedTensor {
    checkKeys(options, quantizeKeys);
    const core = this.#core;
    const source = sourceOf(core, x, options.from, 'x');
    const job = jobOf(options, source.length);
    const { info, layout } = job;
    const { out } = options;
    const places: { data: unknown; scale?: unknown; zeroPoint?: unknown } = isOutObject(out) ? out : { data: out };
    const codes = new Sink(core, info.storage, source.length, places.data, isOutObject(out) ? 'out.data' : 'out');
    if (out !== undefined) checkApart(x, codes, 'out');
    const scale = parameterArray(places.scale, Float32Array, layout.parameters, 'out.scale');
    const zeroPoint = parameterArray(places.zeroPoint, Int32Array, layout.parameters, 'out.zeroPoint');
    const runs = job.range.kind === 'min-max' ? runsOf(layout) : undefined;
    if (runs !== undefined) this.#quantizeRuns(source, job, runs, codes, scale, zeroPoint);
    else this.#quantizeInPasses(source, job, codes, scale, zeroPoint);
    return {
      kind: 'linear',
      dtype: info.name,
      shape: job.shape,
      granularity: job.granularity,
      data: codes.result as CodeArray | WasmArray,
      scale,
      zeroPoint,
    };
  }

  /**
   * Scale and zero point alone, as `quantize` would choose them.
   * @throws as `quantize`
   */
  chooseQuantizationParameters(x: FloatInput, options: QuantizeOptions = {}): QuantizationParameters {
    checkKeys(options, quantizeKeys);
    const core = this.#core;
    const source = sourceOf(core, x, options.from, 'x');
    const job = jobOf(options, source.length);
    const scale = new Float32Array(job.layout.parameters);
    const zeroPoint = new Int32Array(job.layout.parameters);
    this.#withParameters(job.layout.parameters, (at) => {
      this.#findParameters(source, job, at);
      this.#copyParameters(at, scale, zeroPoint);
    });
    return { scale, zeroPoint };
  }

  /**
   * The float values that codes stand for: scale * (code - zeroPoint), one float32 multiplication.
   * @throws TypeError or RangeError naming the field; ScalepointError `OUT_OF_MEMORY`, `DISPOSED`
   */
  dequantize(q: QuantizedTensor, options?: { out?: undefined }): Float32Array<ArrayBuffer>;
  dequantize<T extends Float32Array | WasmArray>(q: QuantizedTensor, options: { out: T }): T;
  dequantize(
    q: QuantizedTensor,
    options: { out?: Float32Array | WasmArray | undefined } = {},
  ): Float32Array | WasmArray {
    checkKeys(options, dequantizeKeys);
    const core = this.#core;
    const { codes, layout, spec } = this.#codesOf(q, 'q');
    const x = new Sink(core, 'float32', codes.length, options.out, 'out');
    if (options.out !== undefined) checkApart(q.data, x, 'out');
    this.#withGivenParameters(q, (at) => {
      const tile = core.scratch.x;
      forEachTile(codes.length, codes.inPlace && x.address !== undefined, (start, count) => {
        const from = codes.at(start, count);
        const to = x.at(start, tile);
        this.#check(
          core.module.dequantizeLinear(
            from,
            count,
            layout.kind,
            layout.axisSize,
            layout.innerSize,
            layout.groupSize,
            start,
            at.scale,
            at.zeroPoint,
            layout.parameters,
            spec,
            to,
          ),
        );
        x.put(start, count, tile);
      });
    });
    return x.result as Float32Array | WasmArray;
  }

  /**
   * Error measures of b against a: a quantized tensor against the floats that it came from, or two arrays.
   * @throws TypeError or RangeError naming the argument; ScalepointError `OUT_OF_MEMORY`, `DISPOSED`
   */
  compare(a: FloatInput, b: QuantizedTensor | FloatInput, options: CompareOptions = {}): ErrorMeasures {
    const sum = this.errorSum();
    sum.add(a, b, options);
    return sum.measures();
  }

  /**
   * Adds up the error measures of a tensor that comes in pieces.
   * @example const sum = sp.errorSum(); for (const [x, q] of pieces) sum.add(x, q); sum.measures().sqnrDb;
   */
  errorSum(): ErrorSum {
    return new ErrorSum((a, b, options, sums) => this.#addErrors(a, b, options, sums));
  }

  /** Adds the pairs of a and b to the sums, in the order of ErrorSums in cpp/scalepoint.h. Returns their number. */
  #addErrors(a: FloatInput, b: QuantizedTensor | FloatInput, options: CompareOptions, sums: Float64Array): number {
    checkKeys(options, compareKeys);
    const core = this.#core;
    const { from } = options;
    const fromOf = (v: unknown) => (from !== undefined && isHalf(v) ? from : undefined);
    const source = sourceOf(core, a, fromOf(a), 'a');
    const at = core.scratch.sums;
    core.module.HEAPF64.set(sums, at / 8);
    if (isQuantized(b)) {
      const { codes, layout, spec } = this.#codesOf(b, 'b');
      checkSameLength(source.length, codes.length);
      this.#withGivenParameters(b, ({ scale, zeroPoint }) => {
        forEachTile(source.length, source.inPlace && codes.inPlace, (start, count) => {
          const x = source.at(start, count);
          const y = codes.at(start, count);
          this.#check(
            core.module.accumulateCodeError(
              x,
              count,
              y,
              layout.kind,
              layout.axisSize,
              layout.innerSize,
              layout.groupSize,
              start,
              scale,
              zeroPoint,
              layout.parameters,
              spec,
              at,
            ),
          );
        });
      });
    } else {
      const other = sourceOf(core, b, fromOf(b), 'b', core.scratch.y);
      checkSameLength(source.length, other.length);
      forEachTile(source.length, source.inPlace && other.inPlace, (start, count) => {
        const x = source.at(start, count);
        this.#check(core.module.accumulateError(x, other.at(start, count), count, at));
      });
    }
    sums.set(core.module.HEAPF64.subarray(at / 8, at / 8 + sums.length));
    return source.length;
  }

  /**
   * Counts of equally wide bins, over the range of the finite values unless told otherwise.
   * @throws TypeError or RangeError naming the option; ScalepointError `OUT_OF_MEMORY`, `DISPOSED`
   */
  histogram(x: FloatInput, options: HistogramOptions = {}): Histogram {
    checkKeys(options, histogramKeys);
    const core = this.#core;
    const { bins = 256 } = options;
    if (typeof bins !== 'number') throw new TypeError(`bins: expected a whole number, got ${show(bins)}`);
    if (!Number.isInteger(bins) || bins < 1 || bins > 1 << 20)
      throw new RangeError(`bins: expected 1 to 2^20, got ${bins}`);
    for (const name of ['min', 'max'] as const) {
      const v: unknown = options[name];
      if (v === undefined) continue;
      if (typeof v !== 'number') throw new TypeError(`${name}: expected a number, got ${show(v)}`);
      checkBound(v, name);
    }
    const source = sourceOf(core, x, options.from, 'x');
    const found =
      options.min === undefined || options.max === undefined ? this.#finiteRange(source) : { min: 0, max: 0 };
    const min = Math.fround(options.min ?? found.min);
    const max = Math.fround(options.max ?? found.max);
    if (min > max) throw new RangeError(`min: ${min} is above max ${max}`);
    return core.withMemory(bins * 4 + 24, (address) => {
      const outside = address + 8 - (address % 8);
      const counts = outside + 16;
      core.module.HEAPU8.fill(0, outside, counts + bins * 4);
      forEachTile(source.length, source.inPlace, (start, count) => {
        const piece = source.at(start, count);
        this.#check(core.module.histogram(piece, count, min, max, counts, bins, outside));
      });
      const { HEAPU32, HEAPF64 } = core.module;
      return {
        min,
        max,
        counts: HEAPU32.slice(counts / 4, counts / 4 + bins),
        below: HEAPF64[outside / 8] as number,
        above: HEAPF64[outside / 8 + 1] as number,
      };
    });
  }

  /**
   * Codes packed densely: element i of the flat array takes the bits [i * bits, (i + 1) * bits) of the result, least significant
   * first, in two's complement. The result has ceil(n * bits / 8) bytes.
   * @throws TypeError or RangeError naming the field; ScalepointError `OUT_OF_MEMORY`, `DISPOSED`
   */
  pack(q: QuantizedTensor): Uint8Array<ArrayBuffer> {
    const core = this.#core;
    const { codes, info, spec } = this.#codesOf(q, 'q');
    const packed = new Sink(core, 'uint8', packedSize(codes.length, info.bits), undefined, 'out');
    const tile = core.scratch.x;
    forEachTile(codes.length, false, (start, count) => {
      const from = codes.at(start, count);
      this.#check(core.module.pack(from, count, spec, tile));
      packed.put((start * info.bits) / 8, packedSize(count, info.bits), tile);
    });
    return packed.result as Uint8Array<ArrayBuffer>;
  }

  /**
   * The reverse of `pack`: a fresh array of codes for a tensor of that dtype and shape.
   * @throws TypeError or RangeError naming the argument; ScalepointError `OUT_OF_MEMORY`, `DISPOSED`
   */
  unpack(bytes: Uint8Array, q: PackedTensor): CodeArray {
    const core = this.#core;
    if (typeof q !== 'object' || q === null)
      throw new TypeError(`q: expected an object with dtype and shape, got ${show(q)}`);
    const info = dtypeInfo(q.dtype);
    const { shape } = q;
    if (!Array.isArray(shape)) throw new TypeError(`shape: expected an array of whole numbers, got ${show(shape)}`);
    let n = 1;
    for (const dimension of shape) n *= dimension;
    checkShape(shape, n);
    const packed = new CodeSource(core, bytes, 'uint8', 'bytes');
    if (packed.length !== packedSize(n, info.bits)) {
      throw new RangeError(
        `bytes: expected ${packedSize(n, info.bits)} bytes for ${n} codes of ${info.bits} bits, got ${packed.length}`,
      );
    }
    const codes = new Sink(core, info.storage, n, undefined, 'out');
    const tile = core.scratch.x;
    forEachTile(n, false, (start, count) => {
      const from = packed.at((start * info.bits) / 8, packedSize(count, info.bits));
      this.#check(core.module.unpack(from, count, dtypeSpec(info), tile));
      codes.put(start, count, tile);
    });
    return codes.result as CodeArray;
  }

  /**
   * Floats rounded to a 16-bit format, half to even, as their bits. A value too large for float16 becomes infinity.
   * @throws TypeError or RangeError naming the argument; ScalepointError `DISPOSED`
   */
  castFloat(x: FloatInput, to: HalfFormat): Uint16Array<ArrayBuffer> {
    const core = this.#core;
    if (to !== 'float16' && to !== 'bfloat16')
      throw new RangeError(`to: expected 'float16' or 'bfloat16', got ${show(to)}`);
    const source = sourceOf(core, x, undefined, 'x');
    const bits = new Sink(core, 'uint16', source.length, undefined, 'out');
    const tile = core.scratch.y;
    forEachTile(source.length, false, (start, count) => {
      const at = source.at(start, count);
      const { module } = core;
      this.#check(to === 'float16' ? module.narrowFloat16(at, count, tile) : module.narrowBfloat16(at, count, tile));
      bits.put(start, count, tile);
    });
    return bits.result as Uint16Array<ArrayBuffer>;
  }

  /**
   * The values of 16-bit floats, exactly.
   * @param bits a Uint16Array of their bits, or a WasmArray of uint16
   * @throws TypeError or RangeError naming the argument; ScalepointError `DISPOSED`
   */
  castToFloat32(bits: Uint16Array | WasmArray, from: HalfFormat): Float32Array<ArrayBuffer> {
    const core = this.#core;
    if (from !== 'float16' && from !== 'bfloat16') {
      throw new RangeError(`from: expected 'float16' or 'bfloat16', got ${show(from)}`);
    }
    const source = sourceOf(core, bits, from, 'bits');
    const x = new Sink(core, 'float32', source.length, undefined, 'out');
    forEachTile(source.length, false, (start, count) => x.put(start, count, source.at(start, count)));
    return x.result as Float32Array<ArrayBuffer>;
  }

  /**
   * An array inside wasm memory. Calls read and write it in place, which saves the copies between JavaScript and wasm.
   * @example const x = sp.allocate('float32', 1 << 24); x.view.set(weights); sp.quantize(x, { out: sp.allocate('int8', 1 << 24) });
   * @throws TypeError or RangeError naming the argument; ScalepointError `OUT_OF_MEMORY`, `DISPOSED`
   */
  allocate<T extends WasmDType>(dtype: T, length: number): WasmArrayOf<T> {
    return new OwnedWasmArray(this.#core, dtype, length) as unknown as WasmArrayOf<T>;
  }

  /** Gives all wasm memory of this instance back, that of its WasmArrays too. Twice is fine; use after it is a ScalepointError `DISPOSED`. */
  dispose(): void {
    this.#core.dispose();
  }

  [Symbol.dispose](): void {
    this.dispose();
  }

  /** One pass over tiles that hold whole runs. */
  #quantizeRuns(
    source: Source,
    job: Job,
    { line, run }: { line: number; run: number },
    codes: Sink,
    scale: Float32Array,
    zeroPoint: Int32Array,
  ): void {
    const core = this.#core;
    const { scratch } = core;
    const n = source.length;
    if (n === 0) {
      // No element, but per tensor there is a scale.
      this.#quantizeInPasses(source, job, codes, scale, zeroPoint);
      return;
    }
    const most = Math.min(tileSize, tileParameters * run);
    const lines = Math.floor(most / line);
    const runsPerLine = Math.ceil(line / run);
    // Whole lines, as long as one fits with its parameters; otherwise whole runs within a line.
    const whole = lines >= 1 && runsPerLine <= tileParameters;
    const linesAtATime = whole ? Math.min(lines, Math.max(1, Math.floor(tileParameters / runsPerLine))) : 1;
    const step = whole ? linesAtATime * line : Math.max(1, Math.floor(most / run)) * run;
    let parameter = 0;
    for (let start = 0; start < n; ) {
      const count = whole ? Math.min(step, n - start) : Math.min(step, line - (start % line));
      const used = whole ? (count / line) * runsPerLine : Math.ceil(count / run);
      const from = source.at(start, count);
      const to = codes.at(start, scratch.y);
      const status = core.module.quantizeRuns(
        from,
        count,
        whole ? line : count,
        run,
        job.spec,
        scratch.scale,
        scratch.zeroPoint,
        used,
        to,
      );
      if (status !== 0) this.#fail(status, from, count, start);
      codes.put(start, count, scratch.y);
      copyOut(core.module.HEAPF32, scratch.scale, used, scale, parameter);
      copyOut(core.module.HEAP32, scratch.zeroPoint, used, zeroPoint, parameter);
      start += count;
      parameter += used;
    }
  }

  /** Any layout and range: the parameters first, then the codes. */
  #quantizeInPasses(given: Source, job: Job, codes: Sink, scale: Float32Array, zeroPoint: Int32Array): void {
    const core = this.#core;
    const { layout, spec } = job;
    const passes = (source: Source) =>
      this.#withParameters(layout.parameters, (at) => {
        this.#findParameters(source, job, at);
        this.#copyParameters(at, scale, zeroPoint);
        const tile = core.scratch.y;
        forEachTile(source.length, source.inPlace && codes.address !== undefined, (start, count) => {
          const from = source.at(start, count);
          const to = codes.at(start, tile);
          const status = core.module.quantizeLinear(
            from,
            count,
            layout.kind,
            layout.axisSize,
            layout.innerSize,
            layout.groupSize,
            start,
            at.scale,
            at.zeroPoint,
            layout.parameters,
            spec,
            to,
          );
          if (status !== 0) this.#fail(status, from, count, start);
          codes.put(start, count, tile);
        });
      });
    const bytes = given.length * 4;
    if (!given.inPlace && job.range.kind === 'min-max' && given.length > tileSize && bytes <= residentBytes) {
      core.withMemory(bytes, (address) => passes(new ResidentSource(core, given, address)));
    } else {
      passes(given);
    }
  }

  /** Leaves the parameters that the job asks for in wasm memory. */
  #findParameters(source: Source, job: Job, at: Parameters): void {
    const core = this.#core;
    const { layout, spec, range } = job;
    const n = layout.parameters;
    if (range.kind === 'given') {
      const { HEAPF32, HEAP32 } = core.module;
      for (let i = 0; i < n; i++) {
        HEAPF32[at.scale / 4 + i] = range.scale(i);
        HEAP32[at.zeroPoint / 4 + i] = range.zeroPoint(i);
      }
      return;
    }
    if (range.kind === 'bounds') {
      const { HEAPF32 } = core.module;
      for (let i = 0; i < n; i++) {
        HEAPF32[at.min / 4 + i] = range.min(i);
        HEAPF32[at.max / 4 + i] = range.max(i);
      }
    } else {
      core.module.clearRange(at.min, at.max, n);
      forEachTile(source.length, source.inPlace, (start, count) => {
        const from = source.at(start, count);
        const status = core.module.observe(
          from,
          count,
          layout.kind,
          layout.axisSize,
          layout.innerSize,
          layout.groupSize,
          start,
          spec,
          at.min,
          at.max,
          n,
        );
        if (status !== 0) this.#fail(status, from, count, start);
      });
    }
    this.#check(core.module.chooseQparams(at.min, at.max, n, spec, at.scale, at.zeroPoint));
  }

  /** The range of the finite values; [0, 0] if there are none. */
  #finiteRange(source: Source): { min: number; max: number } {
    const core = this.#core;
    return this.#withParameters(1, ({ min, max }) => {
      core.module.clearRange(min, max, 1);
      forEachTile(source.length, source.inPlace, (start, count) => {
        const from = source.at(start, count);
        this.#check(core.module.observe(from, count, 0, 1, 1, 1, start, 1 << 11, min, max, 1));
      });
      const { HEAPF32 } = core.module;
      const low = HEAPF32[min / 4] as number;
      const high = HEAPF32[max / 4] as number;
      return low <= high ? { min: low, max: high } : { min: 0, max: 0 };
    });
  }

  #withParameters<T>(n: number, f: (at: Parameters) => T): T {
    const { scratch } = this.#core;
    if (n * 2 <= tileParameters) {
      const half = tileParameters * 2;
      return f({
        scale: scratch.scale,
        zeroPoint: scratch.zeroPoint,
        min: scratch.scale + half,
        max: scratch.zeroPoint + half,
      });
    }
    return this.#core.withMemory(n * 16, (a) => f({ scale: a, zeroPoint: a + n * 4, min: a + n * 8, max: a + n * 12 }));
  }

  /** Brings a quantized tensor's parameters into wasm memory for f. */
  #withGivenParameters<T>(q: LinearQuantizedTensor, f: (at: Parameters) => T): T {
    return this.#withParameters(q.scale.length, (at) => {
      this.#core.module.HEAPF32.set(q.scale, at.scale / 4);
      this.#core.module.HEAP32.set(q.zeroPoint, at.zeroPoint / 4);
      return f(at);
    });
  }

  #copyParameters(at: Parameters, scale: Float32Array, zeroPoint: Int32Array): void {
    copyOut(this.#core.module.HEAPF32, at.scale, scale.length, scale, 0);
    copyOut(this.#core.module.HEAP32, at.zeroPoint, zeroPoint.length, zeroPoint, 0);
  }

  /** Checks a tensor that the caller gave, down to every scale. */
  #codesOf(q: unknown, what: string): { codes: CodeSource; info: DTypeInfo; layout: Layout; spec: number } {
    if (!isQuantized(q)) throw new TypeError(`${what}: expected a quantized tensor of kind 'linear', got ${show(q)}`);
    const info = dtypeInfo(q.dtype);
    const codes = new CodeSource(this.#core, q.data, info.storage, `${what}.data`);
    if (q.shape === undefined) throw new TypeError(`${what}.shape: expected an array of whole numbers, got undefined`);
    const shape = checkShape(q.shape, codes.length);
    const layout = layoutOf(resolveGranularity(q.granularity, shape), shape, codes.length);
    const scale = parameterArray(q.scale ?? null, Float32Array, layout.parameters, `${what}.scale`);
    const zeroPoint = parameterArray(q.zeroPoint ?? null, Int32Array, layout.parameters, `${what}.zeroPoint`);
    for (let i = 0; i < scale.length; i++) {
      checkScale(scale[i] as number, `${what}.scale[${i}]`);
      checkZeroPoint(zeroPoint[i] as number, `${what}.zeroPoint[${i}]`);
    }
    return { codes, info, layout, spec: dtypeSpec(info) };
  }

  /** For calls whose arguments were checked: any status but 0 is our own mistake. */
  #check(status: number): void {
    if (status !== 0) throw new Error(`scalepoint: the core refused checked arguments with status ${status}`);
  }

  #fail(status: number, x: number, count: number, start: number): never {
    if (status === statusNonFinite) {
      const index = this.#core.module.firstNonFinite(x, count);
      const value = this.#core.module.HEAPF32[x / 4 + index];
      throw new ScalepointError(
        'NON_FINITE',
        `x[${start + index}] is ${value}; pass nonFinite: 'saturate' to quantize the rest and saturate such values`,
      );
    }
    this.#check(status);
    throw new Error('scalepoint: unreachable');
  }
}

/** Error measures over pieces; made by `sp.errorSum()`. */
export class ErrorSum {
  readonly #add: (
    a: FloatInput,
    b: QuantizedTensor | FloatInput,
    options: CompareOptions,
    sums: Float64Array,
  ) => number;
  readonly #sums = new Float64Array(7);
  #pairs = 0;

  /** @internal */
  constructor(
    add: (a: FloatInput, b: QuantizedTensor | FloatInput, options: CompareOptions, sums: Float64Array) => number,
  ) {
    this.#add = add;
  }

  /**
   * Adds a piece: its floats, and the quantized tensor or the floats to hold against them.
   * @throws as `compare`
   */
  add(a: FloatInput, b: QuantizedTensor | FloatInput, options: CompareOptions = {}): void {
    this.#pairs += this.#add(a, b, options, this.#sums);
  }

  /** The measures of all pieces together. */
  measures(): ErrorMeasures {
    return measuresOf(this.#sums, this.#pairs);
  }
}

/** A WasmArray whose view is of the kind that its dtype says. */
export type WasmArrayOf<T extends WasmDType> = WasmArray & {
  readonly dtype: T;
  readonly view: {
    float32: Float32Array;
    int8: Int8Array;
    uint8: Uint8Array;
    int16: Int16Array;
    uint16: Uint16Array;
    int32: Int32Array;
  }[T];
};

function copyOut<T extends Float32Array | Int32Array>(heap: T, address: number, n: number, to: T, start: number): void {
  // A loop is faster than subarray and set for the few parameters of common calls.
  if (n < 16) for (let i = 0; i < n; i++) to[start + i] = heap[address / 4 + i] as number;
  else to.set(heap.subarray(address / 4, address / 4 + n), start);
}

function packedSize(n: number, bits: number): number {
  return Math.floor(n / 8) * bits + Math.ceil(((n % 8) * bits) / 8);
}

function isQuantized(value: unknown): value is LinearQuantizedTensor {
  return typeof value === 'object' && value !== null && (value as { kind?: unknown }).kind === 'linear';
}

function isHalf(value: unknown): boolean {
  return value instanceof Uint16Array || (value instanceof OwnedWasmArray && value.dtype === 'uint16');
}

function checkSameLength(a: number, b: number): void {
  if (a !== b) throw new RangeError(`b: expected ${a} elements as in a, got ${b}`);
}

/** The measures that follow from the sums of cpp/scalepoint.h's ErrorSums, in its order. */
function measuresOf(sums: Float64Array, length: number): ErrorMeasures {
  const [
    squaredError = 0,
    absoluteError = 0,
    maxAbsoluteError = 0,
    squaredX = 0,
    squaredY = 0,
    product = 0,
    nonFinite = 0,
  ] = sums;
  const n = length - nonFinite;
  const mse = n === 0 ? 0 : squaredError / n;
  const noError = squaredError === 0;
  return {
    mse,
    rmse: Math.sqrt(mse),
    meanAbsoluteError: n === 0 ? 0 : absoluteError / n,
    maxAbsoluteError,
    relativeL2: noError ? 0 : Math.sqrt(squaredError / squaredX),
    sqnrDb: noError ? Infinity : squaredX === 0 ? -Infinity : 10 * Math.log10(squaredX / squaredError),
    cosine: noError
      ? 1
      : squaredX === 0 || squaredY === 0
        ? 0
        : clampCosine(product / Math.sqrt(squaredX) / Math.sqrt(squaredY)),
    nonFinite,
  };
}

function clampCosine(v: number): number {
  return Math.max(-1, Math.min(1, v));
}

/**
 * Loads the wasm core. Every call makes one more instance with its own memory.
 * @example const sp = await load();
 * @throws TypeError or RangeError naming the option; ScalepointError `WASM_LOAD`, `CSP`, `VERSION_MISMATCH`
 */
export async function load(options?: LoadOptions): Promise<Scalepoint> {
  return new Scalepoint(await loadCore(options));
}
