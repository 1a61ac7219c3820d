/// <reference lib="esnext.disposable" preserve="true" />
// Arrays that live in wasm memory, so that calls read and write them in place.
import { bindMethods } from './bind.js';
import { checkWhole } from './check.js';
import { disposedError, rangeError, typeError } from './errors.js';
import { arrayTypes, type Core, elementBytes, type WasmDType, type WasmView } from './memory.js';
import { oneOf } from './option-problem.js';

/**
 * An array inside the wasm instance, made by `sp.allocate`. Reading and writing it costs no copy.
 * It lives until `dispose()`.
 */
export interface WasmArray {
  /** Type of the elements. */
  readonly dtype: WasmDType;
  /** Number of elements. */
  readonly length: number;
  /** A typed array over the memory. Read it anew after any other call: when wasm memory grows, older views become empty. */
  readonly view: WasmView;
  /** Frees the memory. Safe to call twice. Any later use of the array throws ScalepointError `DISPOSED`. */
  dispose(): void;
  [Symbol.dispose](): void;
}

/** A WasmArray whose view has the type that belongs to its dtype. */
export type WasmArrayOf<T extends WasmDType> = WasmArray & {
  /** Type of the elements. */
  readonly dtype: T;
  /** The elements. Read the view anew after any other call. */
  readonly view: InstanceType<(typeof arrayTypes)[T]>;
};

/** A WasmArray with its instance and its address. */
export class OwnedWasmArray implements WasmArray {
  readonly dtype: WasmDType;
  readonly length: number;
  readonly #core: Core;
  #address: number | undefined;

  /** @throws TypeError or RangeError naming the argument, ScalepointError `OUT_OF_MEMORY` */
  constructor(core: Core, dtype: WasmDType, length: number) {
    if (typeof dtype !== 'string' || !Object.hasOwn(arrayTypes, dtype)) {
      throw rangeError('dtype', oneOf(Object.keys(arrayTypes)), dtype);
    }
    this.length = checkWhole(length, 'length', 0);
    this.#core = core;
    this.dtype = dtype;
    this.#address = core.allocate(length * elementBytes[dtype]);
    bindMethods(this);
  }

  /** Address of the array in the memory of `core`. @throws TypeError if it belongs to another instance */
  addressIn(core: Core, what: string): number {
    if (this.#address === undefined || this.#core.disposed) throw disposedError(what);
    if (core !== this.#core) throw typeError(what, { kind: 'state', state: 'own' }, this);
    return this.#address;
  }

  get view(): WasmView {
    if (this.#address === undefined || this.#core.disposed) throw disposedError('a WasmArray');
    return this.#core.view(this.dtype, this.#address, this.length);
  }

  dispose(): void {
    if (this.#address !== undefined) this.#core.release(this.#address);
    this.#address = undefined;
  }

  [Symbol.dispose](): void {
    this.dispose();
  }
}
