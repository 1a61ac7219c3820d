/// <reference lib="esnext.disposable" preserve="true" />
// The class of the array calls: what they are, for users. What they do is in arrays/ and layers/.
import { type BlockOptions, quantizeBlocks } from '../arrays/blocks.js';
import {
  type CastOptions,
  castFloat,
  castToFloat32,
  type FloatFormat,
  type Minifloat,
  type WidenOptions,
} from '../arrays/cast.js';
import type { PackedCodebookTensor } from '../arrays/codebook.js';
import { type CompareEachOptions, compare, errorSum } from '../arrays/compare.js';
import type { CompareOptions, ErrorSum } from '../arrays/error-sum.js';
import { type Histogram, type HistogramOptions, histogram } from '../arrays/histogram.js';
import { dequantize, pack, unpack } from '../arrays/kinds.js';
import type { PackedTensor } from '../arrays/linear.js';
import { Observer, type ObserverOptions } from '../arrays/observer.js';
import type { QuantizationParameters, QuantizeOptions, QuantizeOutput } from '../arrays/options.js';
import { chooseParameters } from '../arrays/parameters.js';
import { type CodebookOptions, quantizeCodebook } from '../arrays/quantize-codebook.js';
import { quantizeLinear } from '../arrays/quantize-linear.js';
import type { FloatInput, HalfFormat } from '../arrays/source.js';
import { type SweepMeasures, type SweepOptions, type SweepVariant, sweep } from '../arrays/sweep.js';
import type {
  BlockTensor,
  CodeArray,
  CodebookTensor,
  CodesOf,
  DType,
  LinearQuantizedTensor,
  QuantizedTensor,
} from '../arrays/tensor.js';
import type { BlockType } from '../core/blocks.js';
import { version } from '../core/core.mjs';
import { type LoadOptions, loadCore } from '../core/load.js';
import type { ErrorMeasures } from '../core/measure.js';
import { type Core, isModelsModule, type WasmDType } from '../core/memory.js';
import { OwnedWasmArray, type WasmArray, type WasmArrayOf } from '../core/wasm-array.js';
import { Importance } from '../layers/importance.js';
import {
  type FloatLinearOptions,
  floatLayer,
  type Layer,
  type LinearOptions,
  quantizedLayer,
} from '../layers/layer.js';
import { type IndexOptions, VectorIndex } from '../layers/vector-index.js';
import type { VectorInput } from '../layers/vectors.js';

/** An instance of the core: quantizes, restores and measures arrays. Made by `load`. */
export class Scalepoint {
  readonly #core: Core;
  /** Whether the SIMD build is in use. */
  readonly simd: boolean;
  /** Whether all types of ggml's blocks and `search: 'best'` are there: see `load({ blocks: true })`. */
  readonly blocks: boolean;
  /** Version of the package. */
  readonly version: string = version;

  /** Which build of the core it is. @internal */
  get buildId(): number {
    return this.#core.module.buildId();
  }

  /** @internal */
  constructor(core: Core) {
    this.#core = core;
    this.simd = core.module.isSimd();
    this.blocks = isModelsModule(core.module);
  }

  /**
   * Float values to integer codes with scale and zero point.
   *
   * A code restores x within scale / 2, up to float rounding, unless x saturates.
   * @example const q = sp.quantize(weights, { shape: [768, 3072], granularity: { kind: 'per-channel', axis: 0 } });
   * @throws TypeError or RangeError naming the option; ScalepointError `NON_FINITE`, `OUT_OF_MEMORY`, `DISPOSED`. What `out` holds
   * after an error means nothing.
   */
  quantize<const D extends DType = 'int8'>(
    x: FloatInput,
    options?: QuantizeOptions & { dtype?: D; out?: undefined },
  ): LinearQuantizedTensor<CodesOf<D>>;
  quantize<Data extends CodeArray | WasmArray>(
    x: FloatInput,
    options: QuantizeOptions & { out: QuantizeOutput<Data> },
  ): LinearQuantizedTensor<Data>;
  quantize(x: FloatInput, options: QuantizeOptions): LinearQuantizedTensor;
  quantize(x: FloatInput, options: QuantizeOptions = {}): LinearQuantizedTensor {
    return quantizeLinear(this.#core, x, options);
  }

  /**
   * Float values to blocks of one of ggml's types: the bytes that its own quantizer makes, with or without an importance matrix
   * (`weights`). Q8_0 and Q4_0 are always there; the other types and `search: 'best'` need `load({ blocks: true })`.
   * @example const blocks = sp.quantizeBlocks(weights, 'Q4_K', { shape: [4096, 4096] });
   * @throws TypeError or RangeError naming the option, also if this instance lacks the type; ScalepointError `NON_FINITE`, `OVERFLOW` if a block would restore infinities,
   * `OUT_OF_MEMORY`, `DISPOSED`. What `out` holds after an error means nothing.
   */
  quantizeBlocks(x: FloatInput, type: BlockType, options?: BlockOptions<Uint8Array>): BlockTensor<Uint8Array>;
  quantizeBlocks(x: FloatInput, type: BlockType, options: BlockOptions): BlockTensor;
  quantizeBlocks(x: FloatInput, type: BlockType, options: BlockOptions = {}): BlockTensor {
    return quantizeBlocks(this.#core, x, type, options);
  }

  /**
   * Float values to the codes of a codebook. Every block of x is divided by its largest magnitude, and each quotient becomes the index of
   * the value nearest to it; halfway between two values, of the smaller one. nf4 and fp4 are those of bitsandbytes, codes and absmax bit
   * for bit, except that blocks of zeros get the code of 0.
   *
   * A learned codebook (`{ learn: 16 }`) has the values, in ascending order, that make the squared error of these data small: the best
   * partition of their histogram, improved by Lloyd's iteration. Data with fewer different quotients repeat the largest value.
   *
   * With `range: 'mse'` the divisors are searched for, negative ones included, and a learned codebook together with them. With
   * `absmaxType: 'int8'` they are such as int8 holds: learned codes in blocks of 16 then take 4.5 bits an element in all.
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
    return chooseParameters(this.#core, x, options);
  }

  /**
   * The float values that codes stand for: scale * (code - zeroPoint), one float32 multiplication; a codebook's value times the absmax of
   * the block; or the values of ggml's blocks, bit for bit as ggml restores them. Wherever floats are restored from blocks, here and in
   * `compare`, `linear` and `index`, types other than Q8_0 and Q4_0 need `load({ blocks: true })`.
   * @throws TypeError or RangeError naming the field; ScalepointError `OUT_OF_MEMORY`, `DISPOSED`
   */
  dequantize(q: QuantizedTensor, options?: { out?: undefined }): Float32Array<ArrayBuffer>;
  dequantize<T extends Float32Array | WasmArray>(q: QuantizedTensor, options: { out: T }): T;
  dequantize(
    q: QuantizedTensor,
    options: { out?: Float32Array | WasmArray | undefined } = {},
  ): Float32Array | WasmArray {
    return dequantize(this.#core, q, options);
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
    return compare(this.#core, a, b, options);
  }

  /**
   * The error measures of many settings: for each variant what `compare(x, quantize(x, variant))` gives, bit for bit, and the bits that
   * a number takes. After the ranges were found, the data are read once for all variants.
   * @example const [a, b] = sp.sweep(weights, [{ dtype: 'int4' }, { dtype: 'int4', range: 'mse' }]); b.sqnrDb; b.bitsPerNumber;
   * @throws as `quantize`
   */
  sweep(x: FloatInput, variants: readonly SweepVariant[], options: SweepOptions = {}): SweepMeasures[] {
    return sweep(this.#core, x, variants, options);
  }

  /**
   * Adds up the error measures of a tensor that comes in pieces.
   * @example const sum = sp.errorSum(); for (const [x, q] of pieces) sum.add(x, q); sum.measures().sqnrDb;
   */
  errorSum(): ErrorSum {
    return errorSum(this.#core);
  }

  /**
   * Counts of equally wide bins, over the range of the finite values unless told otherwise.
   * @throws TypeError or RangeError naming the option; ScalepointError `OUT_OF_MEMORY`, `DISPOSED`
   */
  histogram(x: FloatInput, options: HistogramOptions = {}): Histogram {
    return histogram(this.#core, x, options);
  }

  /**
   * Codes packed densely: element i of the flat array takes the bits [i * bits, (i + 1) * bits) of the result, least significant
   * first, in two's complement. The result has ceil(n * bits / 8) bytes. Codes of a codebook take as many bits as its largest index.
   * @throws TypeError or RangeError naming the field; ScalepointError `OUT_OF_MEMORY`, `DISPOSED`
   */
  pack(q: LinearQuantizedTensor | CodebookTensor): Uint8Array<ArrayBuffer> {
    return pack(this.#core, q);
  }

  /**
   * The reverse of `pack`: a fresh array of codes for a tensor of that dtype and shape, or of that codebook and shape.
   * @throws TypeError or RangeError naming the argument; ScalepointError `OUT_OF_MEMORY`, `DISPOSED`
   */
  unpack(bytes: Uint8Array, q: PackedCodebookTensor): Uint8Array<ArrayBuffer>;
  unpack(bytes: Uint8Array, q: PackedTensor): CodeArray;
  unpack(bytes: Uint8Array, q: PackedTensor | PackedCodebookTensor): CodeArray {
    return unpack(this.#core, bytes, q);
  }

  /**
   * Floats rounded to a narrower format, half to even, as their bits: a Uint16Array for float16 and bfloat16, a Uint8Array for the
   * others. float4e2m1 leaves the upper half of every byte 0. As ONNX Cast defines it.
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
    return new Observer(this.#core, options);
  }

  /**
   * A linear layer, y = x W^T + bias, on quantized weights of shape [outputs, inputs]: codes of up to 8 bits with one scale, one an
   * output or one a group of inputs, symmetric or not; or ggml's blocks of Q8_0 or Q4_0. The weights are packed once into wasm
   * memory, where each takes a byte, or half of one if it has up to 4 bits. Any other quantized tensor (codebooks, other blocks, other
   * granularities, 16 bits) is restored: its layer computes with the floats that the codes stand for, in four bytes each.
   * @example const layer = sp.linear(q, { activations: 'int8' }); const y = layer.forward(x); layer.dispose();
   * @throws TypeError or RangeError naming the option, or `q.data` if a code is outside of its dtype or the scale of a block is not finite;
   * ScalepointError `OUT_OF_MEMORY`, `DISPOSED`
   */
  linear(q: QuantizedTensor, options: LinearOptions = {}): Layer {
    return quantizedLayer(this.#core, q, options);
  }

  /**
   * The same layer on float weights, for comparison.
   * @example const layer = sp.matmulFloat(weights, { shape: [768, 3072] });
   * @throws TypeError or RangeError naming the option; ScalepointError `OUT_OF_MEMORY`, `DISPOSED`
   */
  matmulFloat(w: FloatInput, options: FloatLinearOptions): Layer {
    return floatLayer(this.#core, w, options);
  }

  /**
   * Collects how much the columns of weights are used, from what layers or other programs multiply them with, and writes the importance
   * matrix, with which quantized model files have smaller errors where it counts.
   * @example const importance = sp.importance(); importance.add('blk.0.attn_q.weight', x, { columns: 4096 }); await importance.file();
   */
  importance(): Importance {
    return new Importance(this.#core, async (weights, options) => {
      const { importanceFile } = await import('../formats/gguf/importance-file.js');
      return importanceFile(weights, options);
    });
  }

  /**
   * An index for similarity search: a byte an element, and a scale a vector. Codes of up to 8 bits, signed, symmetric and with one
   * scale a vector, are taken as they are; other quantized tensors are restored first. The index grows with `add`.
   * @example const index = sp.index(vectors, { shape: [10000, 384], metric: 'cosine' }); index.search(query).indices;
   * @throws TypeError or RangeError naming the option; ScalepointError `NON_FINITE`, `OUT_OF_MEMORY`, `DISPOSED`
   */
  index(vectors: VectorInput | QuantizedTensor, options: IndexOptions = {}): VectorIndex {
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

  /** Gives all wasm memory of this instance back, with its WasmArrays. To call it twice is fine. Any use after it is a ScalepointError `DISPOSED`. */
  dispose(): void {
    this.#core.dispose();
  }

  [Symbol.dispose](): void {
    this.dispose();
  }
}

/**
 * Loads the wasm core: the small module, or with `blocks: true` the large one, which has all types of ggml's blocks. Every call makes one more
 * instance with its own memory.
 * @example const sp = await load();
 * @throws TypeError or RangeError naming the option; ScalepointError `WASM_LOAD`, `CSP`, `VERSION_MISMATCH`
 */
export async function load(options?: LoadOptions): Promise<Scalepoint> {
  return new Scalepoint(await loadCore(options));
}
