/// <reference lib="esnext.disposable" preserve="true" />
// Linear layers on quantized weights.

import { bindMethods } from '../core/bind.js';
import { checkWhole, readChoice } from '../core/check.js';
import { ActivationTypeId } from '../core/door.js';
import { rangeError, typeError } from '../core/errors.js';
import { type Core, checkStatus, tileSize } from '../core/memory.js';
import { exactly, mention, oneOf, onlyWith } from '../core/option-problem.js';
import type { WasmArray } from '../core/wasm-array.js';
import { checkOptionsOf } from './calls.js';
import type { Weights } from './kind.js';
import { weightsOf } from './kinds.js';
import { floatWeights, LayerMemory } from './layer-memory.js';
import { checkApart, Sink } from './sink.js';
import { addressOf, type FloatInput, type HalfFormat, type Source, sourceOf } from './source.js';
import type { QuantizedTensor } from './tensor.js';

/** Options of `linear`. */
export interface LinearOptions {
  /** One number per output, added last. */
  bias?: FloatInput | undefined;
  /**
   * Type of the activations. 'float32': x as it is (W8A32, W4A32). 'int8': quantizes each row of x on the fly (W8A8, W4A8), which is faster
   * and adds the error of that rounding. Only for the codes that layers compute with (see `linear`).
   * @defaultValue 'float32'
   */
  activations?: 'float32' | 'int8' | undefined;
  /**
   * Scheme of the int8 rows of x. 'symmetric': scale = absmax / 127, as `quantize` by default. 'asymmetric': with a zero point, for x that
   * is mostly of one sign.
   * @defaultValue 'symmetric'
   */
  activationScheme?: 'symmetric' | 'asymmetric' | undefined;
}

/** Options of `matmulFloat`. */
export interface FloatLinearOptions {
  /** [outputs, inputs]. @defaultValue that of the weights, if they have one */
  shape?: readonly number[] | undefined;
  /** One number per output, added last. */
  bias?: FloatInput | undefined;
  /** The weights are a Uint16Array of the bits of such floats. */
  from?: HalfFormat | undefined;
}

/** Options of `Layer.forward`. */
export interface ForwardOptions<T extends Float32Array | WasmArray = Float32Array | WasmArray> {
  /** Rows of x. @defaultValue as many as x has */
  batch?: number | undefined;
  /** A Float32Array or a WasmArray of float32 of batch * outputs elements, to fill instead of a fresh one. */
  out?: T | undefined;
}

/** Rows of x per call of the core, which reads the weights once for all of them. */
const rowsAtOnce = 128;

/** A linear layer, y = x W^T + bias, its weights in wasm memory. Made by `sp.linear` and `sp.matmulFloat`. */
export class Layer {
  /** Length of a row of x. */
  readonly inputs: number;
  /** Length of a row of y. */
  readonly outputs: number;
  /** Size of the layer in wasm memory, in bytes. */
  readonly bytes: number;
  readonly #core: Core;
  readonly #memory: LayerMemory;
  readonly #watchers = new Set<(x: Source) => void>();

  /** @internal */
  constructor(core: Core, memory: LayerMemory) {
    this.#core = core;
    this.#memory = memory;
    ({ inputs: this.inputs, outputs: this.outputs, bytes: this.bytes } = memory);
    bindMethods(this);
  }

  /**
   * y[b, o] = sum_i x[b, i] * W[o, i] + bias[o], as an array of batch * outputs numbers.
   *
   * On quantized weights a row of x gives the same bits in any batch and engine. With int8 activations the sum of a group is exact
   * in integers, and y is rounded once. With float32 activations the error is at most 2^-24 |y| + 2^-29 times the sum over blocks of
   * 128 inputs of (sum |W| * largest |x| of the block); if one x is much larger than the others of its block, about that of a sum in
   * float32. NaN and infinities have the same effect as in float32.
   * @example const y = layer.forward(x, { batch: 4 });
   * @throws TypeError or RangeError naming the argument; ScalepointError `OUT_OF_MEMORY`, `DISPOSED`
   */
  forward(x: FloatInput, options?: ForwardOptions & { out?: undefined }): Float32Array<ArrayBuffer>;
  forward<T extends Float32Array | WasmArray>(x: FloatInput, options: ForwardOptions<T> & { out: T }): T;
  forward(x: FloatInput, options: ForwardOptions = {}): Float32Array | WasmArray {
    this.#memory.checkAlive('the layer');
    checkOptionsOf('forward', options);
    const core = this.#core;
    const { inputs, outputs } = this;
    const source = sourceOf(core, x, undefined, 'x');
    const { length } = source;
    if (options.batch !== undefined && checkWhole(options.batch, 'batch', 0) * inputs !== length) {
      const hint = { kind: 'with', options: [mention('rows', options.batch)] } as const;
      throw rangeError('x', exactly(options.batch * inputs, 'elements'), length, hint);
    }
    if (length % inputs !== 0) throw rangeError('x', { kind: 'number', multipleOf: inputs, unit: 'elements' }, length);
    const batch = length / inputs;
    const { out } = options;
    const y = new Sink(core, 'float32', batch * outputs, out, 'out');
    checkApart(x, out, 'out');
    // Check after reading the arguments, which may have run code of the caller.
    this.#memory.checkAlive('the layer');
    if (batch === 0) return y.result as Float32Array | WasmArray;
    for (const watcher of this.#watchers) watcher(source);
    const { layer } = this.#memory;

    // Use the scratch tiles if the rows fit; allocate memory otherwise.
    const rows = Math.min(batch, rowsAtOnce);
    const ownX = !source.inPlace && rows * inputs > tileSize ? rows * inputs * 4 : 0;
    const ownY = y.address === undefined && rows * outputs > tileSize ? rows * outputs * 4 : 0;
    const work = core.module.layerWorkspaceBytes(layer, rows);
    core.withMemory(work + ownX + ownY, (at) => {
      const toX = at + work;
      const toY = ownY > 0 ? toX + ownX : core.scratch.y;
      for (let row = 0; row < batch; row += rows) {
        const n = Math.min(rows, batch - row);
        const from = addressOf(core, source, row * inputs, n * inputs, 4, toX);
        checkStatus(core.module._layerForward(layer, from, n, y.at(row * outputs, toY), at, work));
        y.put(row * outputs, n * outputs, toY);
      }
    });
    return y.result as Float32Array | WasmArray;
  }

  /** Calls f with every x from now on, before it is used. Returns a function that stops these calls. @internal */
  watch(f: (x: Source) => void): () => void {
    this.#watchers.add(f);
    return () => {
      this.#watchers.delete(f);
    };
  }

  /** Frees the memory. Safe to call twice. Any later use of the layer throws ScalepointError `DISPOSED`. */
  dispose(): void {
    this.#memory.dispose();
  }

  [Symbol.dispose](): void {
    this.dispose();
  }
}

/** Makes a layer of weights. Frees its memory after an error. */
function layerOf(
  core: Core,
  { outputs, inputs, groupSize, bits, zeroPoints, zeroPoint, ...weights }: Weights,
  given: FloatInput | undefined,
  activations: ActivationTypeId,
): Layer {
  // Check the bias before anything is packed.
  const bias = given === undefined ? undefined : sourceOf(core, given, undefined, 'bias');
  if (bias !== undefined && bias.length !== outputs)
    throw rangeError('bias', exactly(outputs, 'elements'), bias.length);
  const memory = new LayerMemory(core, { outputs, inputs, groupSize, bits, zeroPoints, activations }, zeroPoint);
  try {
    if (bias !== undefined) memory.setBias(bias);
    memory.forRows(weights.ownBytes, (row, rows, own) => weights.fill(memory.layer, row, rows, own));
  } catch (error) {
    memory.dispose();
    throw error;
  }
  return new Layer(core, memory);
}

/** See Scalepoint.linear. */
export function quantizedLayer(core: Core, q: QuantizedTensor, options: LinearOptions): Layer {
  const weights = weightsOf(core, q);
  checkOptionsOf('linear', options);
  const activations = readChoice(options, 'activations', ['float32', 'int8']);
  const scheme = readChoice(options, 'activationScheme', ['symmetric', 'asymmetric']);
  if (activations === 'float32') {
    if (options.activationScheme !== undefined)
      throw rangeError('activationScheme', onlyWith('activations', 'int8'), options.activations);
    return layerOf(core, weights, options.bias, ActivationTypeId.float32);
  }
  // No kernel multiplies floats with int8.
  if (weights.bits === 32)
    throw rangeError('activations', oneOf(['float32']), activations, { kind: 'as', option: 'q' });
  const type = scheme === 'asymmetric' ? ActivationTypeId.int8Asymmetric : ActivationTypeId.int8Symmetric;
  return layerOf(core, weights, options.bias, type);
}

/** See Scalepoint.matmulFloat. */
export function floatLayer(core: Core, w: FloatInput, options: FloatLinearOptions): Layer {
  checkOptionsOf('matmulFloat', options);
  const source = sourceOf(core, w, options.from, 'w');
  const { shape = source.shape } = options;
  if (!Array.isArray(shape)) {
    throw typeError('shape', { kind: 'shape', dimensions: ['outputs', 'inputs'] }, shape);
  }
  return layerOf(core, floatWeights(core, source, shape), options.bias, ActivationTypeId.float32);
}
