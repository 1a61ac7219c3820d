/** Wasm memory of the forward pass. */

import { floatForm, LayerMemory } from '../arrays/layer-memory.js';
import { type Core, checkStatus } from '../core/memory.js';
import type { ProductSpec } from './layer-jobs.js';

/** Memory that is freed together. */
export class Memory {
  readonly core: Core;
  readonly #frees: (() => void)[] = [];

  constructor(core: Core) {
    this.core = core;
  }

  floats(n: number): number {
    return this.bytes(n * 4);
  }

  bytes(n: number): number {
    const address = this.core.allocate(n);
    this.own(() => this.core.release(address));
    return address;
  }

  /** Frees something else together with the memory. */
  own(free: () => void): void {
    this.#frees.push(free);
  }

  release(): void {
    for (const free of this.#frees.splice(0)) free();
  }
}

/** Copies floats to wasm memory. */
export function toWasm({ module }: Core, values: Float32Array, address: number): void {
  module.HEAPF32.set(values, address >>> 2);
}

/** A copy of floats in wasm memory. */
export function fromWasm({ module }: Core, address: number, n: number): Float32Array<ArrayBuffer> {
  return module.HEAPF32.slice(address >>> 2, (address >>> 2) + n);
}

/** Rows that pass the weights of a product at a time. */
const rowsAtOnce = 64;

/** Float weights in wasm memory, ready for products. */
export class Product {
  readonly spec: ProductSpec;
  readonly #core: Core;
  readonly #matrix: LayerMemory;
  readonly #work: number;
  readonly #workBytes: number;

  constructor(spec: ProductSpec, memory: Memory) {
    const { core } = memory;
    this.spec = spec;
    this.#core = core;
    const matrix = new LayerMemory(core, floatForm(spec.outputs, spec.inputs));
    memory.own(() => matrix.dispose());
    this.#matrix = matrix;
    this.#workBytes = core.module.layerWorkspaceBytes(matrix.layer, rowsAtOnce);
    this.#work = memory.bytes(this.#workBytes);
    this.setBias(new Float32Array(spec.outputs));
  }

  setRows(row: number, values: Float32Array): void {
    const core = this.#core;
    core.withMemory(values.byteLength, (at) => {
      toWasm(core, values, at);
      checkStatus(core.module.setLayerFloats(this.#matrix.layer, row, at, values.length));
    });
  }

  setBias(values: Float32Array): void {
    const core = this.#core;
    core.withMemory(values.byteLength, (at) => {
      toWasm(core, values, at);
      checkStatus(core.module.setLayerBias(this.#matrix.layer, at, values.length));
    });
  }

  /** y = x W' + bias, for `rows` rows. */
  run(x: number, rows: number, y: number): void {
    const { module } = this.#core;
    const { inputs, outputs } = this.spec;
    for (let row = 0; row < rows; row += rowsAtOnce) {
      const n = Math.min(rowsAtOnce, rows - row);
      const [from, to] = [x + row * inputs * 4, y + row * outputs * 4];
      checkStatus(module._layerForward(this.#matrix.layer, from, n, to, this.#work, this.#workBytes));
    }
  }
}
