/// <reference lib="esnext.disposable" preserve="true" />
// Layers on quantized weights: packed once into wasm memory, where they stay until disposed.

import { checkKeys, choice, specOfDType } from '../arrays/options.js';
import {
  type CodeSource,
  checkApart,
  type FloatInput,
  type HalfFormat,
  Sink,
  type Source,
  sourceOf,
} from '../arrays/source.js';
import { type DTypeInfo, type Granularity, perTensor, type WasmArray } from '../arrays/tensor.js';
import type { BlockType, BlockTypeInfo } from '../core/blocks.js';
import { ActivationType, LayerSpec, LinearJob, PackedLayer } from '../core/door.js';
import { disposedError, ScalepointError } from '../core/errors.js';
import { type Core, checkStatus, tileSize } from '../core/memory.js';
import { show } from '../core/show.js';

/** Options of `linear`. */
export interface LinearOptions {
  /** One number an output, added last. */
  bias?: FloatInput;
  /**
   * What the layer computes with. 'float32': x as it is (W8A32, W4A32). 'int8': each row of x is quantized on the fly (W8A8, W4A8),
   * which is faster and costs the error of that rounding.
   * @defaultValue 'float32'
   */
  activations?: 'float32' | 'int8';
  /**
   * How rows of x become int8: as `quantize` does by default, absmax / 127, or with a zero point, for x of one sign mostly.
   * @defaultValue 'symmetric'
   */
  activationScheme?: 'symmetric' | 'asymmetric';
}

/** Options of `matmulFloat`. */
export interface FloatLinearOptions {
  /** [outputs, inputs] */
  shape: readonly number[];
  /** One number an output, added last. */
  bias?: FloatInput;
  /** The weights are a Uint16Array of the bits of such floats. */
  from?: HalfFormat;
}

/** Options of `Layer.forward`. */
export interface ForwardOptions<T extends Float32Array | WasmArray = Float32Array | WasmArray> {
  /** Rows of x. @defaultValue as many as x has */
  batch?: number;
  /** A Float32Array or a WasmArray of float32 of batch * outputs elements, to fill instead of a fresh one. */
  out?: T;
}

const linearKeys = new Set(['bias', 'activations', 'activationScheme']);
const floatLinearKeys = new Set(['shape', 'bias', 'from']);
const forwardKeys = new Set(['batch', 'out']);

/** Rows of x that go to the core at a time, which reads the weights once for all of them. */
const rowsAtOnce = 128;

/** A quantized tensor that the caller gave, checked. */
export interface CheckedCodes {
  readonly codes: CodeSource;
  readonly info: DTypeInfo;
  readonly shape: readonly number[];
  readonly granularity: Granularity;
  readonly scale: Float32Array;
  readonly zeroPoint: Int32Array;
}

/** A tensor of blocks that the caller gave, checked. */
export interface CheckedBlocks {
  readonly codes: CodeSource;
  readonly info: BlockTypeInfo;
  readonly shape: readonly number[];
}

/**
 * The address of elements [start, start + count), however many: those of several tiles are brought together at `own`.
 * @param size bytes of an element
 */
export function addressOf(
  core: Core,
  source: Source | CodeSource,
  start: number,
  count: number,
  size: number,
  own: number,
): number {
  if (source.inPlace || count <= tileSize) return source.at(start, count);
  for (let at = 0; at < count; at += tileSize) {
    const n = Math.min(tileSize, count - at);
    const from = source.at(start + at, n);
    core.module.HEAPU8.copyWithin(own + at * size, from, from + n * size);
  }
  return own;
}

/** @throws RangeError naming `what` unless it is a shape of two dimensions, each at least 1. */
function checkMatrix(shape: readonly number[], what: string): readonly [outputs: number, inputs: number] {
  const [outputs = 0, inputs = 0] = shape;
  if (shape.length !== 2 || outputs === 0 || inputs === 0) {
    throw new RangeError(`${what}: expected two dimensions, [outputs, inputs], got ${show(shape)}`);
  }
  return [outputs, inputs];
}

/** A layer's memory: made by the functions below, filled by them, and walked by `forward` and by searches. */
export class LayerMemory {
  readonly outputs: number;
  readonly inputs: number;
  readonly bytes: number;
  /** PackedLayer of the door, with the weights behind it. */
  readonly layer: number;
  readonly #core: Core;
  #alive = true;

  /** @throws ScalepointError `OUT_OF_MEMORY` */
  constructor(core: Core, spec: LayerSpec, zeroPoint: number) {
    this.#core = core;
    ({ rows: this.outputs, columns: this.inputs } = spec);
    if (this.outputs > 2 ** 31 || this.inputs > 2 ** 31) {
      throw new ScalepointError(
        'OUT_OF_MEMORY',
        `wasm memory has no room for ${this.outputs} x ${this.inputs} weights`,
      );
    }
    this.bytes = core.withRecord(LayerSpec, spec, (at) => core.module.layerBytes(at));
    this.layer = core.allocate(PackedLayer.bytes + this.bytes);
    const weights = this.layer + PackedLayer.bytes;
    PackedLayer.write(core.module, this.layer, { spec, weights, bytes: this.bytes });
    checkStatus(core.module.makeLayer(this.layer, zeroPoint));
  }

  /** Calls f for as many rows at a time as a tile holds, at least one. `own`: bytes of memory that f gets for itself. */
  forRows(own: (rows: number) => number, f: (row: number, rows: number, own: number) => void): void {
    const step = Math.min(this.outputs, Math.max(1, Math.floor(tileSize / this.inputs)));
    this.#core.withMemory(own(step), (address) => {
      for (let row = 0; row < this.outputs; row += step) f(row, Math.min(step, this.outputs - row), address);
    });
  }

  setBias(bias: Source): void {
    const core = this.#core;
    core.withMemory(this.outputs * 4, (own) => {
      const at = addressOf(core, bias, 0, this.outputs, 4, own);
      checkStatus(core.module.setLayerBias(this.layer, at, this.outputs));
    });
  }

  /** @throws ScalepointError `DISPOSED` */
  checkAlive(what: string): void {
    if (!this.#alive || this.#core.disposed) throw disposedError(what);
  }

  dispose(): void {
    if (this.#alive) this.#core.release(this.layer);
    this.#alive = false;
  }
}

/** A linear layer, y = x W^T + bias, its weights in wasm memory. Made by `sp.linear` and `sp.matmulFloat`. */
export class Layer {
  /** Length of a row of x. */
  readonly inputs: number;
  /** Length of a row of y. */
  readonly outputs: number;
  /** Bytes that the layer takes in wasm memory. */
  readonly bytes: number;
  readonly #core: Core;
  readonly #memory: LayerMemory;

  /** @internal */
  constructor(core: Core, memory: LayerMemory) {
    this.#core = core;
    this.#memory = memory;
    ({ inputs: this.inputs, outputs: this.outputs, bytes: this.bytes } = memory);
  }

  /**
   * y[b, o] = sum_i x[b, i] * W[o, i] + bias[o], as an array of batch * outputs numbers.
   *
   * On quantized weights a row of x gives the same bits in any batch and engine. With int8 activations the sum of a group is exact
   * in integers, and y is rounded once. With float32 activations the error is at most 2^-24 |y| + 2^-29 times the sum over blocks of
   * 128 inputs of (sum |W| * largest |x| of the block); and where one x dwarfs the others of its block, about that of a sum in
   * float32. NaN and infinities give what they give in float32.
   * @example const y = layer.forward(x, { batch: 4 });
   * @throws TypeError or RangeError naming the argument; ScalepointError `OUT_OF_MEMORY`, `DISPOSED`
   */
  forward(x: FloatInput, options?: ForwardOptions & { out?: undefined }): Float32Array<ArrayBuffer>;
  forward<T extends Float32Array | WasmArray>(x: FloatInput, options: ForwardOptions<T> & { out: T }): T;
  forward(x: FloatInput, options: ForwardOptions = {}): Float32Array | WasmArray {
    this.#memory.checkAlive('the layer');
    checkKeys(options, forwardKeys);
    const core = this.#core;
    const { inputs, outputs } = this;
    const source = sourceOf(core, x, undefined, 'x');
    const batch = this.#batchOf(options.batch, source.length);
    const y = new Sink(core, 'float32', batch * outputs, options.out, 'out');
    checkApart(x, options.out, 'out');
    if (batch === 0) return y.result as Float32Array | WasmArray;
    const { layer } = this.#memory;

    // The scratch tiles take what fits; more gets memory of its own.
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
        const to = y.at(row * outputs, toY);
        checkStatus(core.module._layerForward(layer, from, n, to, at, work));
        y.put(row * outputs, n * outputs, toY);
      }
    });
    return y.result as Float32Array | WasmArray;
  }

  #batchOf(batch: unknown, length: number): number {
    const { inputs } = this;
    if (batch !== undefined) {
      if (typeof batch !== 'number') throw new TypeError(`batch: expected a whole number, got ${show(batch)}`);
      if (!Number.isSafeInteger(batch) || batch < 0) {
        throw new RangeError(`batch: expected a whole number of at least 0, got ${batch}`);
      }
      if (batch * inputs !== length) {
        throw new RangeError(`x: expected ${batch * inputs} elements for ${batch} rows of ${inputs}, got ${length}`);
      }
      return batch;
    }
    if (length % inputs !== 0) throw new RangeError(`x: expected rows of ${inputs} elements, got ${length}`);
    return length / inputs;
  }

  /** Gives the memory back. Twice is fine; use after it is a ScalepointError `DISPOSED`. */
  dispose(): void {
    this.#memory.dispose();
  }

  [Symbol.dispose](): void {
    this.dispose();
  }
}

/** The bias of a layer, checked before anything is packed. */
function biasOf(core: Core, bias: FloatInput | undefined, outputs: number): Source | undefined {
  if (bias === undefined) return undefined;
  const source = sourceOf(core, bias, undefined, 'bias');
  if (source.length !== outputs) throw new RangeError(`bias: expected ${outputs} elements, got ${source.length}`);
  return source;
}

/** Makes the memory, fills it and gives a layer; nothing stays behind if filling fails. */
function layerOf(core: Core, memory: LayerMemory, bias: Source | undefined, fill: () => void): Layer {
  try {
    if (bias !== undefined) memory.setBias(bias);
    fill();
  } catch (error) {
    memory.dispose();
    throw error;
  }
  return new Layer(core, memory);
}

function activationsOf(options: LinearOptions): ActivationType {
  const int8 = choice(options, 'activations', ['float32', 'int8']);
  const asymmetric = choice(options, 'activationScheme', ['symmetric', 'asymmetric']);
  if (int8 === 0 && options.activationScheme !== undefined) {
    throw new RangeError("activationScheme: only int8 activations have one; say activations: 'int8'");
  }
  if (int8 === 0) return ActivationType.float32;
  return asymmetric === 0 ? ActivationType.int8Symmetric : ActivationType.int8Asymmetric;
}

/** Columns that share a scale. */
function groupSizeOf(granularity: Granularity, inputs: number): number {
  if (granularity.kind === 'per-tensor') return inputs;
  if (granularity.kind === 'per-channel' && granularity.axis === 0) return inputs;
  if (granularity.kind === 'per-group' && granularity.axis === 1) return Math.min(granularity.groupSize, inputs);
  throw new RangeError(
    `q.granularity: a layer takes one scale, one an output (per-channel along axis 0), or one a group of inputs (per-group along axis 1); got ${granularity.kind} along axis ${granularity.axis}`,
  );
}

/** A layer on linear codes. */
export function linearOfCodes(core: Core, q: CheckedCodes, options: LinearOptions): Layer {
  checkKeys(options, linearKeys);
  const { codes, info, scale, zeroPoint } = q;
  const [outputs, inputs] = checkMatrix(q.shape, 'q.shape');
  if (info.bits > 8) throw new RangeError(`q.dtype: expected a type of at most 8 bits, got ${info.name}`);
  const groupSize = groupSizeOf(q.granularity, inputs);
  const groups = Math.ceil(inputs / groupSize);
  const common = zeroPoint.every((zero) => zero === zeroPoint[0]);
  const bits = info.bits <= 4 ? 4 : 8;
  const bias = biasOf(core, options.bias, outputs);
  const spec = {
    rows: outputs,
    columns: inputs,
    groupSize,
    bits,
    zeroPoints: !common,
    activations: activationsOf(options),
  };
  const memory = new LayerMemory(core, spec, common ? (zeroPoint[0] ?? 0) : 0);
  return layerOf(core, memory, bias, () => {
    // For every row its scales, then its zero points.
    memory.forRows(
      (rows) => rows * groups * 8 + inputs,
      (row, rows, own) => {
        const n = rows * groups;
        const { HEAPF32, HEAP32 } = core.module;
        if (scale.length === 1) {
          HEAPF32.fill(scale[0] as number, own / 4, own / 4 + n);
          HEAP32.fill(zeroPoint[0] as number, own / 4 + n, own / 4 + 2 * n);
        } else {
          HEAPF32.set(scale.subarray(row * groups, row * groups + n), own / 4);
          HEAP32.set(zeroPoint.subarray(row * groups, row * groups + n), own / 4 + n);
        }
        const from = addressOf(core, codes, row * inputs, rows * inputs, 1, own + 8 * n);
        const record = {
          layout: perTensor,
          spec: specOfDType(info),
          scale: own,
          zeroPoint: own + 4 * n,
          parameters: n,
        };
        core.withRecord(LinearJob, record, (job) =>
          checkStatus(core.module.setLayerCodes(memory.layer, row, from, rows * inputs, job)),
        );
      },
    );
  });
}

const layerBlocks: readonly BlockType[] = ['Q8_0', 'Q4_0'];

/** A layer on ggml's blocks. */
export function linearOfBlocks(core: Core, q: CheckedBlocks, options: LinearOptions): Layer {
  checkKeys(options, linearKeys);
  const { codes, info } = q;
  const [outputs, inputs] = checkMatrix(q.shape, 'q.shape');
  if (!layerBlocks.includes(info.name)) {
    throw new RangeError(`q.type: layers take blocks of ${layerBlocks.join(' and ')}, got ${info.name}`);
  }
  const bias = biasOf(core, options.bias, outputs);
  const bits = info.name === 'Q8_0' ? 8 : 4;
  const activations = activationsOf(options);
  const spec = { rows: outputs, columns: inputs, groupSize: info.elements, bits, zeroPoints: false, activations };
  const memory = new LayerMemory(core, spec, 0);
  const rowBytes = (inputs / info.elements) * info.bytes;
  return layerOf(core, memory, bias, () => {
    memory.forRows(
      (rows) => rows * rowBytes,
      (row, rows, own) => {
        const from = addressOf(core, codes, row * rowBytes, rows * rowBytes, 1, own);
        checkStatus(core.module.setLayerBlocks(memory.layer, row, from, rows * rowBytes, info.id));
      },
    );
  });
}

/** The form of a layer of float weights. */
export function floatLayer(rows: number, columns: number): LayerSpec {
  const activations = ActivationType.float32;
  return { rows, columns, groupSize: columns, bits: 32, zeroPoints: false, activations };
}

/** A layer on float weights. */
export function linearOfFloats(core: Core, w: FloatInput, options: FloatLinearOptions): Layer {
  checkKeys(options, floatLinearKeys);
  const source = sourceOf(core, w, options.from, 'w');
  if (!Array.isArray(options.shape)) {
    throw new TypeError(`shape: expected [outputs, inputs], got ${show(options.shape)}`);
  }
  const [outputs, inputs] = checkMatrix(options.shape, 'shape');
  if (!Number.isSafeInteger(outputs) || !Number.isSafeInteger(inputs) || outputs * inputs !== source.length) {
    throw new RangeError(`shape: ${show(options.shape)} does not hold the ${source.length} elements of w`);
  }
  const bias = biasOf(core, options.bias, outputs);
  const memory = new LayerMemory(core, floatLayer(outputs, inputs), 0);
  return layerOf(core, memory, bias, () => setFloats(core, memory, source));
}

/** Fills a layer of float weights. */
export function setFloats(core: Core, memory: LayerMemory, source: Source): void {
  const { inputs } = memory;
  memory.forRows(
    (rows) => rows * inputs * 4,
    (row, rows, own) => {
      const from = addressOf(core, source, row * inputs, rows * inputs, 4, own);
      checkStatus(core.module.setLayerFloats(memory.layer, row, from, rows * inputs));
    },
  );
}
