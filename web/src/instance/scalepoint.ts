/// <reference lib="esnext.disposable" preserve="true" />
// The public class of the array calls: signatures and documentation. The code is in arrays/ and layers/.
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
import { type CompareEachOptions, compareArrays, errorSum } from '../arrays/compare.js';
import type { CompareOptions, ErrorSum } from '../arrays/error-sum.js';
import { type Histogram, type HistogramOptions, histogram } from '../arrays/histogram.js';
import { Importance } from '../arrays/importance.js';
import { dequantize, pack, unpack } from '../arrays/kinds.js';
import {
  type FloatLinearOptions,
  floatLayer,
  type Layer,
  type LinearOptions,
  quantizedLayer,
} from '../arrays/layer.js';
import type { PackedTensor } from '../arrays/linear.js';
import { Observer, type ObserverOptions } from '../arrays/observer.js';
import type { NewParameters, QuantizeOptions, QuantizeOutput } from '../arrays/options.js';
import { chooseParameters } from '../arrays/parameters.js';
import { type CodebookOptions, quantizeCodebook } from '../arrays/quantize-codebook.js';
import { loadMoments, quantizeLinear } from '../arrays/quantize-linear.js';
import type { FloatInput, HalfFormat } from '../arrays/source.js';
import { type SweepMeasures, type SweepOptions, type SweepVariant, sweep } from '../arrays/sweep.js';
import type {
  BlockTensor,
  CodeArray,
  CodebookParameters,
  CodebookTensor,
  CodesOf,
  DType,
  LinearQuantizedTensor,
  PackedLinearTensor,
  QuantizedTensor,
} from '../arrays/tensor.js';
import { bindMethods } from '../core/bind.js';
import type { BlockType } from '../core/blocks.js';
import { version } from '../core/core.mjs';
import { imported } from '../core/imported.js';
import { loadCore } from '../core/load.js';
import type { LoadOptions } from '../core/load-options.js';
import type { ErrorMeasures } from '../core/measure.js';
import { type Core, isModelsModule, type WasmDType } from '../core/memory.js';
import { OwnedWasmArray, type WasmArray, type WasmArrayOf } from '../core/wasm-array.js';
import { makeIndex } from '../search/search-index.js';
import type { IndexOptions, VectorIndex } from '../search/search-types.js';
import type { ByteVectors, VectorInput } from '../search/vectors.js';

/**
 * Quantizes, restores and measures arrays with an instance of the core. `load` makes it. Its methods can be taken out of it:
 * `const { quantize } = sp`.
 */
export class Scalepoint {
  readonly #core: Core;
  /** True if the SIMD build is in use. */
  readonly simd: boolean;
  /** True if all types of ggml's blocks and `search: 'best'` are available: see `load({ blocks: true })`. */
  readonly blocks: boolean;
  /** Version of the package. */
  readonly version: string = version;

  /** The number of the core's build. @internal */
  get buildId(): number {
    return this.#core.module.buildId();
  }

  /** @internal */
  constructor(core: Core) {
    this.#core = core;
    this.simd = core.module.isSimd();
    this.blocks = isModelsModule(core.module);
    bindMethods(this);
  }

  /**
   * Quantizes floats to integer codes with scale and zero point. A code restores x within scale / 2, up to float rounding, unless x
   * saturates.
   * @example const q = sp.quantize(weights, { shape: [768, 3072], granularity: { kind: 'per-channel', axis: 0 } });
   * @throws TypeError or RangeError naming the option; ScalepointError `NON_FINITE`, `OUT_OF_MEMORY`, `DISPOSED`. After an error the
   * content of `out` is undefined.
   */
  // The first overload decides which values editors offer for dtype.
  quantize<const D extends DType>(
    x: FloatInput,
    options: QuantizeOptions & { dtype: D | undefined; out?: undefined; packed?: false | undefined },
  ): LinearQuantizedTensor<CodesOf<D>> & NewParameters;
  quantize(
    x: FloatInput,
    options?: QuantizeOptions & { dtype?: undefined; out?: undefined; packed?: false | undefined },
  ): LinearQuantizedTensor<CodesOf<'int8'>> & NewParameters;
  quantize(
    x: FloatInput,
    options: QuantizeOptions & { out?: undefined; packed?: false | undefined },
  ): LinearQuantizedTensor<CodesOf<DType>> & NewParameters;
  quantize(
    x: FloatInput,
    options: QuantizeOptions & { out?: undefined; packed: true },
  ): PackedLinearTensor<Uint8Array<ArrayBuffer>> & NewParameters;
  quantize<Data extends Uint8Array | WasmArray>(
    x: FloatInput,
    options: QuantizeOptions & { out: QuantizeOutput<Data>; packed: true },
  ): PackedLinearTensor<Data>;
  quantize<Data extends CodeArray | WasmArray>(
    x: FloatInput,
    options: QuantizeOptions & { out: QuantizeOutput<Data> },
  ): LinearQuantizedTensor<Data>;
  quantize(x: FloatInput, options: QuantizeOptions): LinearQuantizedTensor;
  quantize(x: FloatInput, options: QuantizeOptions = {}): LinearQuantizedTensor {
    return quantizeLinear(this.#core, x, options);
  }

  /**
   * Quantizes floats to blocks of one of ggml's types: the bytes that its own quantizer makes, with or without an importance matrix
   * (`weights`). The last dimension has to be a multiple of the type's block. Every instance has Q8_0 and Q4_0; the other types and
   * `search: 'best'` need `load({ blocks: true })`.
   * @example const blocks = sp.quantizeBlocks(weights, 'Q4_K', { shape: [4096, 4096] });
   * @throws TypeError or RangeError naming the option, also if this instance lacks the type; ScalepointError `NON_FINITE`, `OVERFLOW` if a
   * block would restore infinities, `OUT_OF_MEMORY`, `DISPOSED`. After an error the content of `out` is undefined.
   */
  quantizeBlocks(
    x: FloatInput,
    type: BlockType,
    options?: BlockOptions & { out?: undefined },
  ): BlockTensor<Uint8Array<ArrayBuffer>>;
  quantizeBlocks<Data extends Uint8Array | WasmArray>(
    x: FloatInput,
    type: BlockType,
    options: BlockOptions & { out: Data },
  ): BlockTensor<Data>;
  quantizeBlocks(x: FloatInput, type: BlockType, options: BlockOptions): BlockTensor;
  quantizeBlocks(x: FloatInput, type: BlockType, options: BlockOptions = {}): BlockTensor {
    return quantizeBlocks(this.#core, x, type, options);
  }

  /**
   * Quantizes floats to the codes of a codebook. Divides each block of x by its largest magnitude, and stores for each quotient the index of
   * the nearest value; halfway between two values, that of the smaller one. nf4 and fp4 are those of bitsandbytes, codes and absmax bit for
   * bit, except that blocks of zeros get the code of 0.
   *
   * A learned codebook (`{ learn: 16 }`) holds the values, in ascending order, that make the squared error of these data small: the best
   * partition of their histogram, improved by Lloyd's iteration. Data with fewer different quotients repeat the largest value.
   *
   * `range: 'mse'` searches for the divisors, negative ones included, together with a learned codebook. `absmaxType: 'int8'` rounds them to
   * int8 with a scale: learned codes in blocks of 16 then take 4.5 bits an element in all.
   * @example const q = sp.quantizeCodebook(weights, { codebook: 'nf4', blockSize: 64 });
   * @throws TypeError or RangeError naming the option; ScalepointError `NON_FINITE`, `OUT_OF_MEMORY`, `DISPOSED`. After an error the
   * content of `out` is undefined.
   */
  quantizeCodebook(
    x: FloatInput,
    options: CodebookOptions & { out?: undefined },
  ): CodebookTensor<Uint8Array<ArrayBuffer>> & CodebookParameters;
  quantizeCodebook<Data extends Uint8Array | WasmArray>(
    x: FloatInput,
    options: CodebookOptions & { out: Data },
  ): CodebookTensor<Data> & CodebookParameters;
  quantizeCodebook(x: FloatInput, options: CodebookOptions): CodebookTensor & CodebookParameters;
  quantizeCodebook(x: FloatInput, options: CodebookOptions): CodebookTensor & CodebookParameters {
    return quantizeCodebook(this.#core, x, options);
  }

  /**
   * Chooses scale and zero point as `quantize` does, without making codes.
   * @throws as `quantize`
   */
  chooseQuantizationParameters(x: FloatInput, options: QuantizeOptions = {}): NewParameters {
    return chooseParameters(this.#core, x, options);
  }

  /**
   * Restores floats from codes: scale * (code - zeroPoint) with one float32 multiplication; the value of a codebook times the absmax of the
   * block; or the values of ggml's blocks, bit for bit as ggml restores them. Wherever floats are restored from blocks, here and in
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
   * Measures the error of b against a: of a quantized tensor against the floats that it came from, or of two arrays. With `per`, returns
   * one result for each channel or group, in the order of the scales of a quantized tensor.
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
    return compareArrays(this.#core, a, b, options);
  }

  /**
   * Measures the errors of many settings: for each variant the result of `compare(x, quantize(x, variant))`, bit for bit, and the bits that
   * a number takes. Finds the ranges, then reads the data once for all variants.
   * @example const [a, b] = sp.sweep(weights, [{ dtype: 'int4' }, { dtype: 'int4', range: 'mse' }]); b.sqnrDb; b.bitsPerNumber;
   * @throws as `quantize`
   */
  sweep(x: FloatInput, variants: readonly SweepVariant[], options: SweepOptions = {}): SweepMeasures[] {
    return sweep(this.#core, x, variants, options);
  }

  /**
   * Adds up the error measures of a tensor that arrives in pieces.
   * @example const sum = sp.errorSum(); for (const [x, q] of pieces) sum.add(x, q); sum.measures().sqnrDb;
   */
  errorSum(): ErrorSum {
    return errorSum(this.#core);
  }

  /**
   * Counts values in bins of equal width, over the range of the finite values unless `min` and `max` are given.
   * @throws TypeError or RangeError naming the option; ScalepointError `OUT_OF_MEMORY`, `DISPOSED`
   */
  histogram(x: FloatInput, options: HistogramOptions = {}): Histogram {
    return histogram(this.#core, x, options);
  }

  /**
   * Packs codes densely, into `out` if given: element i of the flat array takes the bits [i * bits, (i + 1) * bits) of the result, least
   * significant first, in two's complement. The result has ceil(n * bits / 8) bytes. Codes of a codebook take as many bits as its largest index.
   * `quantize(x, { packed: true })` makes packed codes at once, in about the time of `quantize`.
   * @example const bytes = sp.pack(q);
   * @throws TypeError or RangeError naming the field; ScalepointError `OUT_OF_MEMORY`, `DISPOSED`
   */
  pack(q: LinearQuantizedTensor | CodebookTensor, options?: { out?: undefined }): Uint8Array<ArrayBuffer>;
  pack<T extends Uint8Array | WasmArray>(q: LinearQuantizedTensor | CodebookTensor, options: { out: T }): T;
  pack(
    q: LinearQuantizedTensor | CodebookTensor,
    options: { out?: Uint8Array | WasmArray | undefined } = {},
  ): Uint8Array | WasmArray {
    return pack(this.#core, q, options);
  }

  /**
   * Reverses `pack`: makes the codes of a tensor of that dtype and shape, or of that codebook and shape, in `out` if given.
   * @example const codes = sp.unpack(sp.pack(q), q);
   * @throws TypeError or RangeError naming the argument; ScalepointError `OUT_OF_MEMORY`, `DISPOSED`
   */
  unpack(
    bytes: Uint8Array | WasmArray,
    q: PackedCodebookTensor,
    options?: { out?: undefined },
  ): Uint8Array<ArrayBuffer>;
  unpack(bytes: Uint8Array | WasmArray, q: PackedTensor, options?: { out?: undefined }): CodesOf<DType>;
  unpack<T extends CodeArray | WasmArray>(
    bytes: Uint8Array | WasmArray,
    q: PackedTensor | PackedCodebookTensor,
    options: { out: T },
  ): T;
  unpack(
    bytes: Uint8Array | WasmArray,
    q: PackedTensor | PackedCodebookTensor,
    options: { out?: CodeArray | WasmArray | undefined } = {},
  ): CodeArray | WasmArray {
    return unpack(this.#core, bytes, q, options);
  }

  /**
   * Rounds floats to a narrower format, half to even, as ONNX Cast defines it. Returns their bits: a Uint16Array for float16 and bfloat16, a
   * Uint8Array for the others. float4e2m1 leaves the upper half of every byte 0.
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
   * Restores the exact values of narrower floats. Ignores the upper half of a byte with a float4e2m1.
   * @param bits as `castFloat` returns them: a Uint16Array or a Uint8Array, or a WasmArray of such
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
   * Observes batches of values, and chooses scale and zero point for all of them.
   * @example const observer = sp.observer({ range: 'mse' }); for (const x of batches) observer.observe(x); observer.parameters();
   * @throws TypeError or RangeError naming the option; ScalepointError `OUT_OF_MEMORY`, `DISPOSED`
   */
  observer(options: ObserverOptions = {}): Observer {
    return new Observer(this.#core, options);
  }

  /**
   * Makes a linear layer, y = x W^T + bias, of quantized weights of shape [outputs, inputs]: codes of up to 8 bits with one scale, one for
   * each output or one for each group of inputs, symmetric or not; or ggml's blocks of Q8_0 or Q4_0. Packs the weights once into wasm
   * memory, where each takes a byte, or half of one if it has up to 4 bits. Restores any other quantized tensor (codebooks, other blocks,
   * other granularities, 16 bits): its layer computes with floats, in four bytes each.
   * @example const layer = sp.linear(q, { activations: 'int8' }); const y = layer.forward(x); layer.dispose();
   * @throws TypeError or RangeError naming the option, or `q.data` if a code is outside of its dtype or the scale of a block is not finite;
   * ScalepointError `OUT_OF_MEMORY`, `DISPOSED`
   */
  linear(q: QuantizedTensor, options: LinearOptions = {}): Layer {
    return quantizedLayer(this.#core, q, options);
  }

  /**
   * Makes the same layer of float weights, for comparison.
   * @example const layer = sp.matmulFloat(weights, { shape: [768, 3072] });
   * @throws TypeError or RangeError naming the option; ScalepointError `OUT_OF_MEMORY`, `DISPOSED`
   */
  matmulFloat(w: FloatInput, options: FloatLinearOptions = {}): Layer {
    return floatLayer(this.#core, w, options);
  }

  /**
   * Collects the importance of each column of weights from the activations that layers or other programs multiply them with, and writes an
   * importance matrix. Model files that are quantized with it have smaller errors in the most important columns.
   * @example const importance = sp.importance(); importance.add('blk.0.attn_q.weight', x, { columns: 4096 }); await importance.file();
   */
  importance(): Importance {
    return new Importance(this.#core, async (weights, options) => {
      const { importanceFile } = await imported(import('../formats/gguf/importance-matrix.js'));
      return importanceFile(weights, options);
    });
  }

  /**
   * Makes an index for similarity search, with 1, 2, 4 or 8 bits for each element. Takes codes of up to 8 bits as they are if they are
   * signed, symmetric and have one scale for each vector, and the index has 8 bits; restores other quantized tensors first. `add` makes it
   * grow.
   * @example const index = sp.index(vectors, { shape: [10000, 384], metric: 'cosine', bits: 4 }); index.search(query).indices;
   * @throws TypeError or RangeError naming the option; ScalepointError `NON_FINITE`, `OUT_OF_MEMORY`, `DISPOSED`
   */
  index(vectors: VectorInput | ByteVectors | QuantizedTensor, options: IndexOptions = {}): VectorIndex {
    return makeIndex(this.#core, vectors, options);
  }

  /**
   * Allocates an array inside wasm memory. Calls read and write it in place, which saves the copies between JavaScript and wasm.
   * @example const x = sp.allocate('float32', 1 << 24); x.view.set(weights); sp.quantize(x, { out: sp.allocate('int8', 1 << 24) });
   * @throws TypeError or RangeError naming the argument; ScalepointError `OUT_OF_MEMORY`, `DISPOSED`
   */
  allocate<T extends WasmDType>(dtype: T, length: number): WasmArrayOf<T> {
    return new OwnedWasmArray(this.#core, dtype, length) as unknown as WasmArrayOf<T>;
  }

  /** Frees all wasm memory of this instance, with its WasmArrays. Safe to call twice. Any use after it throws ScalepointError `DISPOSED`. */
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
 * @throws TypeError or RangeError naming the option; ScalepointError `WASM_LOAD`, `OUT_OF_MEMORY`, `CSP`,
 *   `VERSION_MISMATCH`
 */
export async function load(options?: LoadOptions): Promise<Scalepoint> {
  const core = await loadCore(options);
  const sp = new Scalepoint(core);
  if (sp.blocks) await imported(loadMoments());
  return sp;
}
