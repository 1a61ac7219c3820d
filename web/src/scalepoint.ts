/// <reference lib="esnext.disposable" preserve="true" />
// The array calls: quantize, dequantize, compare and the rest.

import {
  type CastOptions,
  castFloat,
  castToFloat32,
  type FloatFormat,
  type Minifloat,
  type WidenOptions,
} from './arrays/cast.js';
import {
  addCodebookErrors,
  type CodebookOptions,
  dequantizeCodebook,
  isCodebook,
  type PackedCodebookTensor,
  packCodebook,
  quantizeCodebook,
  unpackCodebook,
} from './arrays/codebook.js';
import { Observer, type ObserverOptions } from './arrays/observer.js';
import {
  type BlockOptions,
  blockKeys,
  type CompareEachOptions,
  type CompareOptions,
  checkBound,
  checkEach,
  checkKeys,
  checkScale,
  checkZeroPoint,
  choice,
  compareEachKeys,
  compareKeys,
  dequantizeKeys,
  type Histogram,
  type HistogramOptions,
  halfFormats,
  histogramKeys,
  type Job,
  jobOf,
  type PackedTensor,
  type QuantizationParameters,
  type QuantizeOptions,
  type QuantizeOutput,
  quantizeKeys,
  runsOf,
  type SweepOptions,
  type SweepVariant,
  specOfDType,
  sweepKeys,
  variantKeys,
} from './arrays/options.js';
import {
  CodeSource,
  checkApart,
  checkAttached,
  copyOut,
  type FloatInput,
  forEachTile,
  type HalfFormat,
  nonFiniteError,
  Sink,
  type Source,
  sourceOf,
  typedArrayName,
  withResident,
  withWhole,
} from './arrays/source.js';
import { measureEach, measureJobs, restoreInto } from './arrays/sweep.js';
import {
  type BlockTensor,
  type CodeArray,
  type CodebookTensor,
  checkShape,
  type DTypeInfo,
  dtypeInfo,
  type Granularity,
  type Layout,
  type LinearQuantizedTensor,
  layoutOf,
  perTensor,
  type QuantizedTensor,
  resolveGranularity,
  sizeOfShape,
  type WasmArray,
  type WasmDType,
} from './arrays/tensor.js';
import { type BlockType, type BlockTypeInfo, blocksOfShape, blockTypeInfo } from './core/blocks.js';
import { version } from './core/core.mjs';
import {
  DType as DTypeRecord,
  Layout as LayoutRecord,
  LinearJob,
  NonFinite,
  QuantizationSpec as SpecRecord,
  Status,
} from './core/door.js';
import { ScalepointError } from './core/errors.js';
import { type ErrorMeasures, ErrorSum } from './core/measure.js';
import {
  type Core,
  checkStatus,
  type LoadOptions,
  loadCore,
  OwnedWasmArray,
  tileParameters,
  tileSize,
} from './core/memory.js';
import { article, show } from './core/show.js';
import {
  type FloatLinearOptions,
  type Layer,
  type LinearOptions,
  linearOfBlocks,
  linearOfCodes,
  linearOfFloats,
} from './layers/layer.js';
import { type IndexOptions, VectorIndex, type VectorInput } from './layers/vector-index.js';

/** Addresses of the parameters of a call in wasm memory. */
interface Parameters {
  /** LinearJob of the door. */
  job: number;
  min: number;
  max: number;
  scale: number;
  zeroPoint: number;
}

const outKeys = new Set(['data', 'scale', 'zeroPoint']);

/** The three places of an `out` option. */
function placesOf(out: unknown): { data?: unknown; scale?: unknown; zeroPoint?: unknown } {
  if (typeof out !== 'object' || out === null || ArrayBuffer.isView(out) || out instanceof OwnedWasmArray)
    return { data: out };
  if (!('data' in out)) {
    throw new TypeError(`out: expected a typed array, a WasmArray or { data, scale, zeroPoint }, got ${show(out)}`);
  }
  for (const key in out)
    if (!outKeys.has(key))
      throw new TypeError(`out: there is no ${show(key)} to give; there are data, scale, zeroPoint`);
  return out;
}

/** The parameters of a tensor that the caller gave, taken over where they lie in memory that may grow. */
function parametersOf<T extends Float32Array | Int32Array>(
  core: Core,
  given: unknown,
  make: new (n: number) => T,
  n: number,
  name: string,
): T {
  if (typedArrayName(given) !== make.name)
    throw new TypeError(`${name}: expected ${article(make.name)}, got ${show(given)}`);
  const array = given as T;
  checkAttached(array, name);
  if (array.length !== n) throw new RangeError(`${name}: expected ${n} elements, got ${array.length}`);
  return array.buffer === core.module.HEAPU8.buffer ? (array.slice() as T) : array;
}

/** A tensor that the caller gave, checked. */
interface GivenTensor {
  readonly codes: CodeSource;
  readonly info: DTypeInfo;
  readonly shape: readonly number[];
  readonly granularity: Granularity;
  readonly layout: Layout;
  readonly spec: SpecRecord;
  readonly scale: Float32Array;
  readonly zeroPoint: Int32Array;
}

/** A tensor of blocks that the caller gave, checked. */
interface GivenBlocks {
  readonly codes: CodeSource;
  readonly info: BlockTypeInfo;
  readonly shape: readonly number[];
  /** Number of elements. */
  readonly length: number;
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
  quantize(
    x: FloatInput,
    options?: QuantizeOptions & { out?: QuantizeOutput<CodeArray> },
  ): LinearQuantizedTensor<CodeArray>;
  quantize(x: FloatInput, options: QuantizeOptions): LinearQuantizedTensor;
  quantize(x: FloatInput, options: QuantizeOptions = {}): LinearQuantizedTensor {
    checkKeys(options, quantizeKeys);
    const core = this.#core;
    const source = sourceOf(core, x, options.from, 'x');
    const job = jobOf(options, source.length);
    const { info, layout } = job;
    const { out } = options;
    const places = placesOf(out);
    const codes = new Sink(core, info.storage, source.length, places.data, places === out ? 'out.data' : 'out');
    const scale = new Sink(core, 'float32', layout.parameters, places.scale, 'out.scale');
    const zeroPoint = new Sink(core, 'int32', layout.parameters, places.zeroPoint, 'out.zeroPoint');
    checkApart(x, places.data, places === out ? 'out.data' : 'out');
    checkApart(x, places.scale, 'out.scale');
    checkApart(x, places.zeroPoint, 'out.zeroPoint');
    const { errors } = options;
    if (errors !== undefined && !(errors instanceof ErrorSum)) {
      throw new TypeError(`errors: expected what sp.errorSum() gives, got ${show(errors)}`);
    }
    const runs = job.range.kind === 'min-max' ? runsOf(layout) : undefined;
    if (errors !== undefined) {
      errors.collect((sums) => {
        core.module.HEAPF64.set(sums, core.scratch.sums / 8);
        this.#quantizeInPasses(source, job, codes, scale, zeroPoint, true);
        sums.set(this.#sums(sums.length));
        return source.length;
      });
    } else if (runs !== undefined) {
      this.#quantizeRuns(source, job, runs, codes, scale, zeroPoint);
    } else {
      this.#quantizeInPasses(source, job, codes, scale, zeroPoint, false);
    }
    return {
      kind: 'linear',
      dtype: info.name,
      shape: job.shape,
      granularity: job.granularity,
      data: codes.result as CodeArray | WasmArray,
      scale: scale.result as Float32Array,
      zeroPoint: zeroPoint.result as Int32Array,
    };
  }

  /**
   * Float values to blocks of one of ggml's types: the bytes that its own quantizer makes without an importance matrix.
   * @example const blocks = sp.quantizeBlocks(weights, 'Q4_K', { shape: [4096, 4096] });
   * @throws TypeError or RangeError naming the option; ScalepointError `NON_FINITE`, `OVERFLOW` if a block would restore infinities,
   * `OUT_OF_MEMORY`, `DISPOSED`. What `out` holds after an error means nothing.
   */
  quantizeBlocks(x: FloatInput, type: BlockType, options?: BlockOptions<Uint8Array>): BlockTensor<Uint8Array>;
  quantizeBlocks(x: FloatInput, type: BlockType, options: BlockOptions): BlockTensor;
  quantizeBlocks(x: FloatInput, type: BlockType, options: BlockOptions = {}): BlockTensor {
    checkKeys(options, blockKeys);
    const core = this.#core;
    const info = blockTypeInfo(type);
    const source = sourceOf(core, x, options.from, 'x');
    const shape = checkShape(options.shape, source.length);
    const { elements, bytes } = info;
    const blocks = new Sink(core, 'uint8', blocksOfShape(info, shape, source.length) * bytes, options.out, 'out');
    checkApart(x, options.out, 'out');
    const tile = core.scratch.y;
    forEachTile(source.length, source.inPlace && blocks.address !== undefined, (start, count) => {
      const at = (start / elements) * bytes;
      const from = source.at(start, count);
      const to = blocks.at(at, tile);
      const status = core.module.quantizeBlocks(from, count, info.id, to);
      if (status !== Status.ok) this.#failBlocks(status, info, from, count, start);
      blocks.put(at, (count / elements) * bytes, tile);
    });
    return { kind: 'blocks', type: info.name, shape, data: blocks.result as Uint8Array | WasmArray };
  }

  /**
   * Float values to the codes of a codebook: every block of x is divided by its largest size, and each quotient becomes the index of
   * the value nearest to it; halfway between two, of the smaller one. nf4 and fp4 are those of bitsandbytes, codes and absmax bit for
   * bit, but for blocks of nothing but zeros, which get the code of 0.
   *
   * A learned codebook (`{ learn: 16 }`) has the values, in ascending order, that make the squared error of these very data small: the
   * best partition of a histogram of theirs, then Lloyd's iteration. Of data with fewer different quotients the largest is repeated.
   *
   * With `range: 'mse'` the divisors are searched for, negative ones included, and a learned codebook together with them; with
   * `absmaxType: 'int8'` they are such as int8 holds. Learned codes in blocks of 16 then take 4.5 bits an element in all.
   * @example const q = sp.quantizeCodebook(weights, { codebook: 'nf4', blockSize: 64 });
   * @throws TypeError or RangeError naming the option; ScalepointError `NON_FINITE`, `OUT_OF_MEMORY`, `DISPOSED`. What `out` holds
   * after an error means nothing.
   */
  quantizeCodebook(x: FloatInput, options: CodebookOptions<Uint8Array>): CodebookTensor<Uint8Array>;
  quantizeCodebook(x: FloatInput, options: CodebookOptions): CodebookTensor;
  quantizeCodebook(x: FloatInput, options: CodebookOptions): CodebookTensor {
    return quantizeCodebook(this.#core, x, options);
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
    const scale = new Sink(core, 'float32', job.layout.parameters, undefined, 'scale');
    const zeroPoint = new Sink(core, 'int32', job.layout.parameters, undefined, 'zeroPoint');
    this.#withSource(source, job, (ready) =>
      this.#withParameters(job.layout, job.spec, (at) => {
        this.#findParameters(ready, job, at);
        this.#copyParameters(at, scale, zeroPoint);
      }),
    );
    return { scale: scale.result as Float32Array, zeroPoint: zeroPoint.result as Int32Array };
  }

  /**
   * The float values that codes stand for: scale * (code - zeroPoint), one float32 multiplication; of a codebook its value times the
   * block's absmax; or those of ggml's blocks, bit for bit as ggml restores them.
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
    if (isBlocks(q)) return this.#dequantizeBlocks(q, options.out);
    if (isCodebook(q)) return dequantizeCodebook(core, q, options.out);
    const given = this.#codesOf(q, 'q', "'linear', 'codebook' or 'blocks'");
    const { codes } = given;
    const x = new Sink(core, 'float32', codes.length, options.out, 'out');
    checkApart(q.data, options.out, 'out');
    this.#withGivenParameters(given, (at) => {
      const tile = core.scratch.x;
      forEachTile(codes.length, codes.inPlace && x.address !== undefined, (start, count) => {
        const from = codes.at(start, count);
        const to = x.at(start, tile);
        checkStatus(core.module.dequantizeLinear(at.job, from, count, start, to));
        x.put(start, count, tile);
      });
    });
    return x.result as Float32Array | WasmArray;
  }

  /**
   * Error measures of b against a: a quantized tensor against the floats that it came from, or two arrays. With `per` one result a
   * channel or group, in the order in which a quantized tensor has its scales.
   * @example sp.compare(weights, q, { per: 'channel', axis: 0 }).map((m) => m.sqnrDb);
   * @throws TypeError or RangeError naming the argument; ScalepointError `OUT_OF_MEMORY`, `DISPOSED`
   */
  compare(a: FloatInput, b: QuantizedTensor | FloatInput, options: CompareEachOptions): ErrorMeasures[];
  compare(a: FloatInput, b: QuantizedTensor | FloatInput, options?: CompareOptions): ErrorMeasures;
  compare(
    a: FloatInput,
    b: QuantizedTensor | FloatInput,
    options: CompareOptions | CompareEachOptions = {},
  ): ErrorMeasures | ErrorMeasures[] {
    if (typeof options === 'object' && options !== null && 'per' in options) return this.#compareEach(a, b, options);
    const sum = this.errorSum();
    sum.add(a, b, options);
    return sum.measures();
  }

  /** One result a channel or group, in the order of their scales. */
  #compareEach(a: FloatInput, b: QuantizedTensor | FloatInput, options: CompareEachOptions): ErrorMeasures[] {
    checkKeys(options, compareEachKeys);
    const core = this.#core;
    const { from } = options;
    choice(options, 'from', halfFormats);
    if (options.per !== 'channel' && options.per !== 'group') {
      throw new RangeError(`per: expected 'channel' or 'group', got ${show((options as { per: unknown }).per)}`);
    }
    const fromOf = (v: unknown) => (from !== undefined && isHalf(v) ? from : undefined);
    const source = sourceOf(core, a, fromOf(a), 'a');
    const shape = checkShape(
      options.shape ?? (isQuantized(b) || isBlocks(b) || isCodebook(b) ? b.shape : undefined),
      source.length,
    );
    const { axis } = options;
    const granularity = resolveGranularity(
      options.per === 'channel'
        ? { kind: 'per-channel', axis }
        : { kind: 'per-group', groupSize: options.groupSize, ...(axis === undefined ? {} : { axis }) },
      shape,
    );
    const layout = layoutOf(granularity, shape, source.length);
    if (isBlocks(b)) {
      const given = this.#blocksOf(b, 'b');
      checkSameLength(source.length, given.length);
      return measureEach(core, source, layout, (start, count) => {
        this.#restoreBlocks(given, start, count, restoreInto(core));
        return restoreInto(core);
      });
    }
    if (isQuantized(b)) {
      const given = this.#codesOf(b, 'b');
      checkSameLength(source.length, given.codes.length);
      return this.#withGivenParameters(given, ({ job }) =>
        measureEach(core, source, layout, (start, count) => {
          const codes = given.codes.at(start, count);
          const to = restoreInto(core);
          checkStatus(core.module.dequantizeLinear(job, codes, count, start, to));
          return to;
        }),
      );
    }
    const floats = isCodebook(b) ? this.dequantize(b) : b;
    const other = sourceOf(core, floats, fromOf(floats), 'b', core.scratch.y);
    checkSameLength(source.length, other.length);
    return measureEach(core, source, layout, (start, count) => other.at(start, count));
  }

  /**
   * The error measures of many settings: for each variant what `compare(x, quantize(x, variant))` gives, bit for bit. Tiles of the
   * data are read once for all of them, after the ranges were found.
   * @example sp.sweep(weights, [2, 3, 4].map((bits) => ({ dtype: `int${bits}`, range: 'mse' })));
   * @throws as `quantize`
   */
  sweep(x: FloatInput, variants: readonly SweepVariant[], options: SweepOptions = {}): ErrorMeasures[] {
    checkKeys(options, sweepKeys);
    if (!Array.isArray(variants)) throw new TypeError(`variants: expected an array, got ${show(variants)}`);
    const core = this.#core;
    const source = sourceOf(core, x, options.from, 'x');
    const jobs = (variants as readonly SweepVariant[]).map((variant) => {
      checkKeys(variant, variantKeys);
      return jobOf({ ...variant, ...(options.shape === undefined ? {} : { shape: options.shape }) }, source.length);
    });
    let measures: ErrorMeasures[] = [];
    withWhole(core, source, (kept) => {
      measures = measureJobs(
        core,
        kept,
        jobs,
        (job, at) => this.#findParameters(kept, job, at),
        (...where) => this.#fail(...where),
      );
    });
    return measures;
  }

  /**
   * Adds up the error measures of a tensor that comes in pieces.
   * @example const sum = sp.errorSum(); for (const [x, q] of pieces) sum.add(x, q); sum.measures().sqnrDb;
   */
  errorSum(): ErrorSum {
    return new ErrorSum((a, b, options, sums) => this.#addErrors(a, b, options, sums));
  }

  /** Adds the pairs of a and b to the sums, in the order of the door's ErrorSums. Returns their number. */
  #addErrors(a: FloatInput, b: QuantizedTensor | FloatInput, options: CompareOptions, sums: Float64Array): number {
    checkKeys(options, compareKeys);
    const core = this.#core;
    const { from } = options;
    choice(options, 'from', halfFormats);
    const fromOf = (v: unknown) => (from !== undefined && isHalf(v) ? from : undefined);
    const source = sourceOf(core, a, fromOf(a), 'a');
    const at = core.scratch.sums;
    if (isBlocks(b)) {
      const given = this.#blocksOf(b, 'b');
      checkSameLength(source.length, given.length);
      core.module.HEAPF64.set(sums, at / 8);
      // The second scratch tile holds half a tile of blocks and the floats that they stand for.
      const half = tileSize / 2;
      const restored = core.scratch.y + half * 4;
      forEachTile(
        source.length,
        false,
        (start, count) => {
          const x = source.at(start, count);
          this.#restoreBlocks(given, start, count, restored);
          checkStatus(core.module.accumulateError(x, restored, count, at));
        },
        half,
      );
    } else if (isCodebook(b)) {
      addCodebookErrors(core, source, b, (length) => {
        checkSameLength(source.length, length);
        core.module.HEAPF64.set(sums, at / 8);
      });
    } else if (isQuantized(b)) {
      const given = this.#codesOf(b, 'b');
      const { codes } = given;
      checkSameLength(source.length, codes.length);
      core.module.HEAPF64.set(sums, at / 8);
      this.#withGivenParameters(given, ({ job }) => {
        forEachTile(source.length, source.inPlace && codes.inPlace, (start, count) => {
          const x = source.at(start, count);
          const y = codes.at(start, count);
          checkStatus(core.module.accumulateCodeError(job, x, count, start, y, at));
        });
      });
    } else {
      const other = sourceOf(core, b, fromOf(b), 'b', core.scratch.y);
      checkSameLength(source.length, other.length);
      core.module.HEAPF64.set(sums, at / 8);
      forEachTile(source.length, source.inPlace && other.inPlace, (start, count) => {
        const x = source.at(start, count);
        checkStatus(core.module.accumulateError(x, other.at(start, count), count, at));
      });
    }
    sums.set(this.#sums(sums.length));
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
        checkStatus(core.module.histogram(piece, count, min, max, counts, bins, outside));
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
   * first, in two's complement. The result has ceil(n * bits / 8) bytes. Codes of a codebook take as many bits as its largest index.
   * @throws TypeError or RangeError naming the field; ScalepointError `OUT_OF_MEMORY`, `DISPOSED`
   */
  pack(q: LinearQuantizedTensor | CodebookTensor): Uint8Array<ArrayBuffer> {
    const core = this.#core;
    if (isCodebook(q)) return packCodebook(core, q);
    const { codes, info, spec } = this.#codesOf(q, 'q');
    const packed = new Sink(core, 'uint8', packedSize(codes.length, info.bits), undefined, 'out');
    const tile = core.scratch.x;
    core.withRecord(DTypeRecord, spec.dtype, (dtype) => {
      forEachTile(codes.length, false, (start, count) => {
        const from = codes.at(start, count);
        checkStatus(core.module.pack(from, count, dtype, tile));
        packed.put((start * info.bits) / 8, packedSize(count, info.bits), tile);
      });
    });
    return packed.result as Uint8Array<ArrayBuffer>;
  }

  /**
   * The reverse of `pack`: a fresh array of codes for a tensor of that dtype and shape, or of that codebook and shape.
   * @throws TypeError or RangeError naming the argument; ScalepointError `OUT_OF_MEMORY`, `DISPOSED`
   */
  unpack(bytes: Uint8Array, q: PackedCodebookTensor): Uint8Array<ArrayBuffer>;
  unpack(bytes: Uint8Array, q: PackedTensor): CodeArray;
  unpack(bytes: Uint8Array, q: PackedTensor | PackedCodebookTensor): CodeArray {
    const core = this.#core;
    if (isPackedCodebook(q)) return unpackCodebook(core, bytes, q);
    if (typeof q !== 'object' || q === null)
      throw new TypeError(`q: expected an object with dtype and shape, got ${show(q)}`);
    const info = dtypeInfo(q.dtype);
    const n = sizeOfShape(q.shape);
    const packed = new CodeSource(core, bytes, 'uint8', 'bytes');
    if (packed.length !== packedSize(n, info.bits)) {
      throw new RangeError(
        `bytes: expected ${packedSize(n, info.bits)} bytes for ${n} codes of ${info.bits} bits, got ${packed.length}`,
      );
    }
    const codes = new Sink(core, info.storage, n, undefined, 'out');
    const tile = core.scratch.x;
    core.withRecord(DTypeRecord, specOfDType(info).dtype, (dtype) => {
      forEachTile(n, false, (start, count) => {
        const from = packed.at((start * info.bits) / 8, packedSize(count, info.bits));
        checkStatus(core.module.unpack(from, count, dtype, tile));
        codes.put(start, count, tile);
      });
    });
    return codes.result as CodeArray;
  }

  /**
   * Floats rounded to a narrower format, half to even, as their bits: a Uint16Array for float16 and bfloat16, a Uint8Array for the
   * others, of which float4e2m1 leaves the upper half of every byte 0. As ONNX Cast defines it.
   * @example const bits = sp.castFloat(weights, 'float8e4m3fn', { saturate: true });
   * @throws TypeError or RangeError naming the argument; ScalepointError `OUT_OF_MEMORY`, `DISPOSED`
   */
  castFloat(x: FloatInput, to: HalfFormat, options?: CastOptions & { out?: undefined }): Uint16Array<ArrayBuffer>;
  castFloat(x: FloatInput, to: Minifloat, options?: CastOptions & { out?: undefined }): Uint8Array<ArrayBuffer>;
  castFloat(
    x: FloatInput,
    to: FloatFormat,
    options?: CastOptions & { out?: undefined },
  ): Uint8Array<ArrayBuffer> | Uint16Array<ArrayBuffer>;
  castFloat<T extends Uint8Array | Uint16Array | WasmArray>(
    x: FloatInput,
    to: FloatFormat,
    options: CastOptions & { out: T },
  ): T;
  castFloat(x: FloatInput, to: FloatFormat, options?: CastOptions): Uint8Array | Uint16Array | WasmArray;
  castFloat(x: FloatInput, to: FloatFormat, options: CastOptions = {}): Uint8Array | Uint16Array | WasmArray {
    return castFloat(this.#core, x, to, options);
  }

  /**
   * The values of narrower floats, exactly. The upper half of a byte with a float4e2m1 is not read.
   * @param bits what `castFloat` makes: a Uint16Array or a Uint8Array, or a WasmArray of such
   * @throws TypeError or RangeError naming the argument; ScalepointError `OUT_OF_MEMORY`, `DISPOSED`
   */
  castToFloat32(
    bits: Uint8Array | Uint16Array | WasmArray,
    from: FloatFormat,
    options?: { out?: undefined },
  ): Float32Array<ArrayBuffer>;
  castToFloat32<T extends Float32Array | WasmArray>(
    bits: Uint8Array | Uint16Array | WasmArray,
    from: FloatFormat,
    options: { out: T },
  ): T;
  castToFloat32(
    bits: Uint8Array | Uint16Array | WasmArray,
    from: FloatFormat,
    options: WidenOptions = {},
  ): Float32Array | WasmArray {
    return castToFloat32(this.#core, bits, from, options);
  }

  /**
   * Sees batches of values and gives scale and zero point for all of them.
   * @example const observer = sp.observer({ range: 'mse' }); for (const x of batches) observer.observe(x); observer.parameters();
   * @throws TypeError or RangeError naming the option; ScalepointError `OUT_OF_MEMORY`, `DISPOSED`
   */
  observer(options: ObserverOptions = {}): Observer {
    return new Observer(this.#core, options, (x, given) => this.chooseQuantizationParameters(x, given));
  }

  /**
   * A linear layer, y = x W^T + bias, on quantized weights of shape [outputs, inputs]: codes of up to 8 bits with one scale, one an
   * output or one a group of inputs, symmetric or not; or ggml's blocks of Q8_0 or Q4_0. The weights are packed once into wasm
   * memory, where they take a byte each, or half of one up to 4 bits.
   * @example const layer = sp.linear(q, { activations: 'int8' }); const y = layer.forward(x); layer.dispose();
   * @throws TypeError or RangeError naming the option; ScalepointError `OUT_OF_MEMORY`, `DISPOSED`
   */
  linear(q: QuantizedTensor, options: LinearOptions = {}): Layer {
    return isBlocks(q)
      ? linearOfBlocks(this.#core, this.#blocksOf(q, 'q'), options)
      : linearOfCodes(this.#core, this.#codesOf(q, 'q', "'linear' or 'blocks'"), options);
  }

  /**
   * The same layer on float weights, for comparison.
   * @example const layer = sp.matmulFloat(weights, { shape: [768, 3072] });
   * @throws TypeError or RangeError naming the option; ScalepointError `OUT_OF_MEMORY`, `DISPOSED`
   */
  matmulFloat(w: FloatInput, options: FloatLinearOptions): Layer {
    return linearOfFloats(this.#core, w, options);
  }

  /**
   * An index for similarity search: a byte an element, and a scale a vector.
   * @example const index = sp.index(vectors, { shape: [10000, 384], metric: 'cosine' }); index.search(query, 10).indices;
   * @throws TypeError or RangeError naming the option; ScalepointError `NON_FINITE`, `OUT_OF_MEMORY`, `DISPOSED`
   */
  index(vectors: VectorInput, options: IndexOptions = {}): VectorIndex {
    return new VectorIndex(this.#core, vectors, options);
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
    scale: Sink,
    zeroPoint: Sink,
  ): void {
    const core = this.#core;
    const { scratch } = core;
    const n = source.length;
    if (n === 0) {
      // No element, but per tensor there is a scale.
      this.#quantizeInPasses(source, job, codes, scale, zeroPoint, false);
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
    core.withRecord(SpecRecord, job.spec, (spec) => {
      for (let start = 0; start < n; ) {
        const count = whole ? Math.min(step, n - start) : Math.min(step, line - (start % line));
        const used = whole ? (count / line) * runsPerLine : Math.ceil(count / run);
        const from = source.at(start, count);
        const to = codes.at(start, scratch.y);
        const status = core.module._quantizeRuns(
          spec,
          from,
          count,
          whole ? line : count,
          run,
          scratch.scale,
          scratch.zeroPoint,
          to,
        );
        if (status !== Status.ok) this.#fail(status, from, count, start);
        codes.put(start, count, scratch.y);
        copyOut(core, 'float32', scratch.scale, used, scale, parameter);
        copyOut(core, 'int32', scratch.zeroPoint, used, zeroPoint, parameter);
        start += count;
        parameter += used;
      }
    });
  }

  /** Any layout and range: the parameters first, then the codes, whose errors are added to the sums in the scratch memory if measured. */
  #quantizeInPasses(given: Source, job: Job, codes: Sink, scale: Sink, zeroPoint: Sink, measured: boolean): void {
    const core = this.#core;
    const { layout, spec } = job;
    const passes = (source: Source) =>
      this.#withParameters(layout, spec, (at) => {
        this.#findParameters(source, job, at);
        this.#copyParameters(at, scale, zeroPoint);
        const { y: tile, sums } = core.scratch;
        forEachTile(source.length, source.inPlace && codes.address !== undefined, (start, count) => {
          const from = source.at(start, count);
          const to = codes.at(start, tile);
          const status = measured
            ? core.module.quantizeLinearMeasured(at.job, from, count, start, to, sums)
            : core.module.quantizeLinear(at.job, from, count, start, to);
          if (status !== Status.ok) this.#fail(status, from, count, start);
          codes.put(start, count, tile);
        });
      });
    if (job.range.kind === 'search') {
      withWhole(core, given, passes);
      return;
    }
    if (job.range.kind === 'min-max') withResident(core, given, passes);
    else passes(given);
  }

  /** Calls f with the source as the job needs it: a search looks at all elements at once. */
  #withSource<T>(source: Source, job: Job, f: (ready: Source) => T): T {
    return job.range.kind === 'search' ? withWhole(this.#core, source, f) : f(source);
  }

  /** Leaves the parameters that the job asks for in wasm memory. */
  #findParameters(source: Source, job: Job, at: Parameters): void {
    const core = this.#core;
    const { layout, range } = job;
    if (range.kind === 'given') {
      core.module.HEAPF32.set(range.scale, at.scale / 4);
      core.module.HEAP32.set(range.zeroPoint, at.zeroPoint / 4);
      return;
    }
    if (range.kind === 'search') {
      const bytes = core.withRecord(LayoutRecord, layout, (where) =>
        core.module.searchScratchBytes(where, source.length),
      );
      core.withMemory(bytes, (scratch) => {
        const x = source.at(0, source.length);
        const { method, percentile } = range;
        const status = core.module.searchQparams(at.job, x, source.length, method, percentile, scratch, bytes);
        if (status !== Status.ok) this.#fail(status, x, source.length, 0);
      });
      return;
    }
    if (range.kind === 'bounds') {
      core.module.HEAPF32.set(range.min, at.min / 4);
      core.module.HEAPF32.set(range.max, at.max / 4);
    } else {
      core.module.clearRange(at.min, at.max, layout.parameters);
      forEachTile(source.length, source.inPlace, (start, count) => {
        const from = source.at(start, count);
        const status = core.module.observe(at.job, from, count, start, at.min, at.max);
        if (status !== Status.ok) this.#fail(status, from, count, start);
      });
    }
    checkStatus(core.module.chooseQparams(at.job, at.min, at.max));
  }

  /** The range of the finite values; [0, 0] if there are none. */
  #finiteRange(source: Source): { min: number; max: number } {
    const core = this.#core;
    const layout = { ...perTensor, size: source.length, parameters: 1 };
    const spec = { ...specOfDType(dtypeInfo('int8')), nonFinite: NonFinite.saturate };
    return this.#withParameters(layout, spec, ({ job, min, max }) => {
      core.module.clearRange(min, max, 1);
      forEachTile(source.length, source.inPlace, (start, count) => {
        const from = source.at(start, count);
        checkStatus(core.module.observe(job, from, count, start, min, max));
      });
      const { HEAPF32 } = core.module;
      const low = HEAPF32[min / 4] as number;
      const high = HEAPF32[max / 4] as number;
      return low <= high ? { min: low, max: high } : { min: 0, max: 0 };
    });
  }

  /** The sums in the scratch memory. */
  #sums(n: number): Float64Array {
    const at = this.#core.scratch.sums / 8;
    return this.#core.module.HEAPF64.subarray(at, at + n);
  }

  /** Calls f with memory for the parameters of a layout, and for as many bounds of ranges. */
  #withParameters<T>(layout: Layout, spec: SpecRecord, f: (at: Parameters) => T): T {
    const core = this.#core;
    const n = layout.parameters;
    // Written out: engines take some microseconds to spread an object.
    const use = (scale: number, zeroPoint: number, min: number, max: number) =>
      core.withRecord(LinearJob, { layout, spec, scale, zeroPoint, parameters: n }, (job) =>
        f({ job, scale, zeroPoint, min, max }),
      );
    const { scale, zeroPoint } = core.scratch;
    const half = tileParameters * 2;
    if (n * 2 <= tileParameters) return use(scale, zeroPoint, scale + half, zeroPoint + half);
    return core.withMemory(n * 16, (a) => use(a, a + n * 4, a + n * 8, a + n * 12));
  }

  /** Brings a quantized tensor's parameters into wasm memory for f. */
  #withGivenParameters<T>(q: GivenTensor, f: (at: Parameters) => T): T {
    return this.#withParameters(q.layout, q.spec, (at) => {
      this.#core.module.HEAPF32.set(q.scale, at.scale / 4);
      this.#core.module.HEAP32.set(q.zeroPoint, at.zeroPoint / 4);
      return f(at);
    });
  }

  #copyParameters(at: Parameters, scale: Sink, zeroPoint: Sink): void {
    copyOut(this.#core, 'float32', at.scale, scale.length, scale, 0);
    copyOut(this.#core, 'int32', at.zeroPoint, zeroPoint.length, zeroPoint, 0);
  }

  /** Checks a tensor that the caller gave, down to every scale. */
  #codesOf(q: unknown, what: string, kinds = "'linear'"): GivenTensor {
    if (!isQuantized(q)) throw new TypeError(`${what}: expected a quantized tensor of kind ${kinds}, got ${show(q)}`);
    const info = dtypeInfo(q.dtype);
    const codes = new CodeSource(this.#core, q.data, info.storage, `${what}.data`);
    if (q.shape === undefined) throw new TypeError(`${what}.shape: expected an array of whole numbers, got undefined`);
    const shape = checkShape(q.shape, codes.length);
    const granularity = resolveGranularity(q.granularity, shape);
    const layout = layoutOf(granularity, shape, codes.length);
    const scale = parametersOf(this.#core, q.scale, Float32Array, layout.parameters, `${what}.scale`);
    const zeroPoint = parametersOf(this.#core, q.zeroPoint, Int32Array, layout.parameters, `${what}.zeroPoint`);
    checkEach(scale, checkScale, `${what}.scale`);
    checkEach(zeroPoint, checkZeroPoint, `${what}.zeroPoint`);
    return { codes, info, shape, granularity, layout, spec: specOfDType(info), scale, zeroPoint };
  }

  /** Checks a tensor of blocks that the caller gave. */
  #blocksOf(q: BlockTensor, what: string): GivenBlocks {
    const info = blockTypeInfo(q.type);
    const codes = new CodeSource(this.#core, q.data, 'uint8', `${what}.data`);
    if (q.shape === undefined) throw new TypeError(`${what}.shape: expected an array of whole numbers, got undefined`);
    const length = sizeOfShape(q.shape);
    const bytes = blocksOfShape(info, q.shape, length) * info.bytes;
    if (codes.length !== bytes) {
      throw new RangeError(
        `${what}.data: expected ${bytes} bytes for ${length} elements of ${info.name}, got ${codes.length}`,
      );
    }
    return { codes, info, shape: q.shape, length };
  }

  /** Leaves the floats of some blocks at that address. */
  #restoreBlocks({ codes, info }: GivenBlocks, start: number, count: number, to: number): void {
    const { elements, bytes, id } = info;
    const from = codes.at((start / elements) * bytes, (count / elements) * bytes);
    checkStatus(this.#core.module.dequantizeBlocks(from, count, id, to));
  }

  #dequantizeBlocks(q: BlockTensor, out: Float32Array | WasmArray | undefined): Float32Array | WasmArray {
    const core = this.#core;
    const given = this.#blocksOf(q, 'q');
    const x = new Sink(core, 'float32', given.length, out, 'out');
    checkApart(q.data, out, 'out');
    const tile = core.scratch.x;
    forEachTile(given.length, given.codes.inPlace && x.address !== undefined, (start, count) => {
      this.#restoreBlocks(given, start, count, x.at(start, tile));
      x.put(start, count, tile);
    });
    return x.result as Float32Array | WasmArray;
  }

  #failBlocks(status: Status, info: BlockTypeInfo, x: number, count: number, start: number): never {
    const { module, scratch } = this.#core;
    if (status === Status.nonFinite) {
      const index = module.firstNonFinite(x, count);
      const value = module.HEAPF32[x / 4 + index];
      throw new ScalepointError('NON_FINITE', `x[${start + index}] is ${value}; ggml's blocks hold finite values only`);
    }
    if (status === Status.overflow) {
      // One block after the other shows which it was.
      const { elements, id, name } = info;
      let at = 0;
      while (module.quantizeBlocks(x + at * 4, elements, id, scratch.y) === Status.ok) at += elements;
      const where = `x[${start + at}] to x[${start + at + elements - 1}]`;
      throw new ScalepointError('OVERFLOW', `${where}: too large for a ${name} block, which would restore infinities`);
    }
    checkStatus(status);
    throw new Error('scalepoint: unreachable');
  }

  #fail(status: Status, x: number, count: number, start: number): never {
    if (status === Status.nonFinite) throw nonFiniteError(this.#core, x, count, start);
    checkStatus(status);
    throw new Error('scalepoint: unreachable');
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

function packedSize(n: number, bits: number): number {
  return Math.floor(n / 8) * bits + Math.ceil(((n % 8) * bits) / 8);
}

function isQuantized(value: unknown): value is LinearQuantizedTensor {
  return typeof value === 'object' && value !== null && (value as { kind?: unknown }).kind === 'linear';
}

function isBlocks(value: unknown): value is BlockTensor {
  return typeof value === 'object' && value !== null && (value as { kind?: unknown }).kind === 'blocks';
}

function isPackedCodebook(q: PackedTensor | PackedCodebookTensor): q is PackedCodebookTensor {
  return isCodebook(q);
}

function isHalf(value: unknown): boolean {
  return value instanceof Uint16Array || (value instanceof OwnedWasmArray && value.dtype === 'uint16');
}

function checkSameLength(a: number, b: number): void {
  if (a !== b) throw new RangeError(`b: expected ${a} elements as in a, got ${b}`);
}

/**
 * Loads the wasm core. Every call makes one more instance with its own memory.
 * @example const sp = await load();
 * @throws TypeError or RangeError naming the option; ScalepointError `WASM_LOAD`, `CSP`, `VERSION_MISMATCH`
 */
export async function load(options?: LoadOptions): Promise<Scalepoint> {
  return new Scalepoint(await loadCore(options));
}
