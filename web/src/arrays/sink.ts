// Sinks for the results of the core. Fill arrays in wasm memory in place, and copy to others.
import { rangeError, typeError } from '../core/errors.js';
import { arrayTypes, type Core, elementBytes, type WasmDType, type WasmView } from '../core/memory.js';
import { exactly, ofType } from '../core/option-problem.js';
import { typedArrayName } from '../core/realms.js';
import { OwnedWasmArray, type WasmArray } from '../core/wasm-array.js';
import { addressOfView, checkAttached, checkUnchanged } from './source.js';
import { isTensor } from './tensor-like.js';

/** Up to this number of values are copied one by one, which is faster than making a view of them. */
const handful = 16;

/** Takes results tile by tile. */
export interface ResultSink {
  /** Address of the results in wasm memory; undefined if they have to be copied. */
  readonly address: number | undefined;
  /** The result for the caller. */
  readonly result: WasmView | WasmArray;
  /** Address for the results from `start` on: in place, or in `tile`. */
  at(start: number, tile: number): number;
  /** Takes a tile of results, unless they were made in place. */
  put(start: number, count: number, tile: number): void;
}

/** An array for results: the caller's, or a new one. */
export class Sink implements ResultSink {
  /** Address of the results in wasm memory; undefined for other arrays. */
  readonly address: number | undefined;
  readonly #array: WasmView | undefined;
  readonly #given: WasmView | WasmArray;

  /** @throws TypeError or RangeError naming `what` */
  constructor(
    private readonly core: Core,
    private readonly dtype: WasmDType,
    readonly length: number,
    out: unknown,
    private readonly what: string,
  ) {
    if (out === undefined) {
      this.#array = new arrayTypes[dtype](length);
      this.#given = this.#array;
      return;
    }
    const expected = arrayTypes[dtype].name;
    const found = out instanceof OwnedWasmArray ? arrayTypes[out.dtype].name : typedArrayName(out);
    if (found !== expected) {
      throw typeError(what, ofType(expected, `WasmArray of ${dtype}`), out);
    }
    const given = out as WasmView | OwnedWasmArray;
    if (!(given instanceof OwnedWasmArray)) checkAttached(given, what);
    if (given.length !== length) throw rangeError(what, exactly(length, 'elements'), given.length);
    this.#given = given;
    if (given instanceof OwnedWasmArray) {
      this.address = given.addressIn(core, what);
    } else {
      this.address = addressOfView(core, given);
      if (this.address === undefined) this.#array = given;
    }
  }

  /** The result for the caller. Makes a new view if memory grew. */
  get result(): WasmView | WasmArray {
    const given = this.#given;
    if (this.address === undefined || given instanceof OwnedWasmArray || given.length === this.length) return given;
    return this.core.view(this.dtype, this.address, this.length);
  }

  /** Address for the results from `start` on: in place, or `tile`. */
  at(start: number, tile: number): number {
    if (this.address === undefined) return tile;
    this.#checkOwned();
    return this.address + start * elementBytes[this.dtype];
  }

  /** Fails if a WasmArray was disposed since the call began. */
  #checkOwned(): void {
    if (this.#given instanceof OwnedWasmArray) this.#given.addressIn(this.core, this.what);
  }

  /** Copies a tile of results to the array, unless they were made in place. */
  put(start: number, count: number, tile: number): void {
    const array = this.#array;
    if (array === undefined) return;
    checkUnchanged(array, this.length, this.what);
    if (count > handful) {
      array.set(this.core.viewAgain(this.dtype, tile, count), start);
      return;
    }
    const heap = this.core.heap(this.dtype);
    const from = tile / elementBytes[this.dtype];
    for (let i = 0; i < count; i++) array[start + i] = heap[from + i] as number;
  }

  /** Copies results of four bytes each from anywhere in wasm memory. */
  copy(start: number, count: number, from: number): void {
    if (this.address === undefined) {
      this.put(start, count, from);
      return;
    }
    this.#checkOwned();
    this.core.heap(this.dtype).copyWithin(this.address / 4 + start, from / 4, from / 4 + count);
  }
}

/** @throws RangeError if `out`, an array that the caller gave, shares memory with x. @param name path of x in errors */
export function checkApart(x: unknown, out: unknown, what: string, name = 'x'): void {
  if (x === undefined || out === undefined) return;
  const given = isTensor(x) && 'data' in x ? x.data : x;
  const a = given instanceof OwnedWasmArray ? given.view : given;
  const b = out instanceof OwnedWasmArray ? out.view : out;
  if (!ArrayBuffer.isView(a) || !ArrayBuffer.isView(b) || a.buffer !== b.buffer) return;
  if (a.byteOffset < b.byteOffset + b.byteLength && b.byteOffset < a.byteOffset + a.byteLength) {
    throw rangeError(what, { kind: 'apart', from: name }, out);
  }
}

/** Sinks of the results. */
export interface Sinks {
  readonly codes: ResultSink;
  readonly scale: Sink;
  readonly zeroPoint: Sink;
}
