// What goes into and comes out of the core: reads any kind of input as float32 in wasm memory, tile by tile, and writes results to
// wherever they belong. Arrays that lie in wasm memory already are used in place.
import { ScalepointError } from '../core/errors.js';
import { type Core, OwnedWasmArray, tileSize } from '../core/memory.js';
import { article, show } from '../core/show.js';
import type { CodeArray, WasmArray, WasmDType, WasmView } from './tensor.js';

/** A Float16Array, which engines have only lately. */
export interface Float16ArrayLike extends ArrayBufferView {
  readonly length: number;
  readonly [Symbol.toStringTag]: 'Float16Array';
}

/** Anything that can be quantized. Values beyond float32 are rounded to it first. */
export type FloatInput = Float32Array | Float64Array | Float16ArrayLike | Uint16Array | readonly number[] | WasmArray;

/** The 16-bit float formats whose bits a Uint16Array can hold. */
export type HalfFormat = 'float16' | 'bfloat16';

type AnyTypedArray = WasmView | Float64Array | Float16ArrayLike | Uint32Array;

const tagOf = Object.getOwnPropertyDescriptor(Object.getPrototypeOf(Int8Array.prototype), Symbol.toStringTag)?.get;

/** 'Float32Array' and so on, also for arrays of other windows; undefined for anything that is no typed array. */
export function typedArrayName(value: unknown): string | undefined {
  return tagOf?.call(value) as string | undefined;
}

/** @throws TypeError if the array's buffer was detached, or shrank below it. */
export function checkAttached(array: AnyTypedArray, what: string): void {
  if (array.length > 0) return;
  try {
    // Throws for detached and out-of-bounds arrays, whose length reads 0.
    (array as Uint8Array).at(0);
  } catch (cause) {
    throw new TypeError(`${what}: the array is detached, or its buffer shrank below it`, { cause });
  }
}

/** Elements that a call can read as float32 in wasm memory. */
export abstract class Source {
  /** How often a walk of the elements pays off: once means that they are there already. */
  abstract readonly inPlace: boolean;

  constructor(
    protected readonly core: Core,
    /** Number of elements. */
    readonly length: number,
  ) {}

  /** Address of the float32 values of elements [start, start + count), count <= tileSize unless inPlace. Good until the next call. */
  abstract at(start: number, count: number): number;

  /** The same elements, to be kept in memory of length * 4 bytes at that address; undefined where that would save nothing. */
  residentAt?(address: number): Source;
}

/** Float32 values that lie in wasm memory. */
class WasmSource extends Source {
  readonly inPlace = true;

  constructor(
    core: Core,
    length: number,
    private readonly address: number,
  ) {
    super(core, length);
  }

  at(start: number): number {
    return this.address + start * 4;
  }
}

/** A typed array that is copied into one buffer of wasm memory, tile by tile. */
class CopiedSource extends Source {
  readonly inPlace = false;

  constructor(
    core: Core,
    private readonly array: Float32Array | Float64Array,
    private readonly to: number,
  ) {
    super(core, array.length);
  }

  at(start: number, count: number): number {
    const { array } = this;
    const whole = start === 0 && count === this.length;
    this.core.module.HEAPF32.set(whole ? array : array.subarray(start, start + count), this.to >>> 2);
    return this.to;
  }

  override residentAt(address: number): Source {
    return new ResidentSource(this.core, this.array, address);
  }
}

/**
 * The numbers of a plain array. They are taken over at once: reading one may run code of the caller's, which may use the instance.
 * @throws TypeError naming the element
 */
function floatsOf(array: readonly unknown[], what: string): Float32Array {
  const floats = new Float32Array(array.length);
  for (let i = 0; i < floats.length; i++) {
    const value = array[i];
    if (typeof value !== 'number') throw new TypeError(`${what}[${i}]: expected a number, got ${show(value)}`);
    floats[i] = value;
  }
  return floats;
}

/** 16-bit floats, from JavaScript or wasm memory, widened tile by tile. */
class HalfSource extends Source {
  readonly inPlace = false;

  constructor(
    core: Core,
    private readonly array: Uint16Array | undefined,
    private readonly address: number,
    private readonly to: number,
    length: number,
    private readonly format: HalfFormat,
  ) {
    super(core, length);
  }

  at(start: number, count: number): number {
    const { core, array } = this;
    const { module } = core;
    let from = this.address + start * 2;
    if (array !== undefined) {
      from = core.scratch.bits;
      module.HEAPU16.set(array.subarray(start, start + count), from >>> 1);
    }
    if (this.format === 'float16') module.widenFloat16(from, count, this.to);
    else module.widenBfloat16(from, count, this.to);
    return this.to;
  }
}

/** A typed array that is kept in wasm memory after its first reading, so that a second one costs nothing. */
class ResidentSource extends Source {
  readonly inPlace = false;
  #known = 0;

  constructor(
    core: Core,
    private readonly array: Float32Array | Float64Array,
    private readonly address: number,
  ) {
    super(core, array.length);
  }

  at(start: number, count: number): number {
    if (start + count > this.#known) {
      this.core.module.HEAPF32.set(this.array.subarray(start, start + count), (this.address >>> 2) + start);
      this.#known = start + count;
    }
    return this.address + start * 4;
  }
}

/** Calls f with a source all of whose elements are in wasm memory at once, where they stay until it returns. */
export function withWhole<T>(core: Core, source: Source, f: (whole: Source) => T): T {
  if (source.inPlace) return f(source);
  return core.withMemory(source.length * 4, (own) => {
    forEachTile(source.length, false, (start, count) => {
      const from = source.at(start, count);
      core.module.HEAPU8.copyWithin(own + start * 4, from, from + count * 4);
    });
    return f(new WasmSource(core, source.length, own));
  });
}

/**
 * Calls f with the source for more than one pass: an array of moderate size is copied once and stays for the others, where memory has
 * room for it.
 */
export function withResident(core: Core, source: Source, f: (source: Source) => void): void {
  const bytes = source.length * 4;
  const worthIt = source.length > tileSize && bytes <= residentBytes;
  const address = worthIt && source.residentAt !== undefined ? core.tryAllocate(bytes) : 0;
  if (source.residentAt === undefined || address === 0) {
    f(source);
    return;
  }
  try {
    f(source.residentAt(address));
  } finally {
    core.release(address);
  }
}

/** Address of a typed array that is a view of wasm memory. */
function addressOfView(core: Core, array: AnyTypedArray): number | undefined {
  return array.buffer === core.module.HEAPU8.buffer ? array.byteOffset : undefined;
}

/**
 * Reads x as float32.
 * @param to where tiles are copied: `scratch.x` or `scratch.y`
 * @throws TypeError or RangeError naming `what`
 */
export function sourceOf(core: Core, x: unknown, from: unknown, what: string, to = core.scratch.x): Source {
  if (from !== undefined && from !== 'float16' && from !== 'bfloat16') {
    throw new RangeError(`from: expected 'float16' or 'bfloat16', got ${show(from)}`);
  }
  if (x instanceof OwnedWasmArray) {
    const address = x.addressIn(core, what);
    if (from === undefined && x.dtype === 'float32') return new WasmSource(core, x.length, address);
    if (from !== undefined && x.dtype === 'uint16') return new HalfSource(core, undefined, address, to, x.length, from);
    throw new TypeError(
      `${what}: expected a WasmArray of ${from === undefined ? 'float32' : 'uint16'}, got one of ${x.dtype}`,
    );
  }
  if (Array.isArray(x)) {
    if (from !== undefined) throw new TypeError(`${what}: with from '${from}' expected a Uint16Array, got an array`);
    return new CopiedSource(core, floatsOf(x, what), to);
  }
  const name = typedArrayName(x);
  if (name === undefined) {
    throw new TypeError(
      `${what}: expected a Float32Array, Float64Array, Float16Array, number[] or WasmArray, got ${show(x)}`,
    );
  }
  const array = x as AnyTypedArray;
  checkAttached(array, what);
  if (from === undefined ? name === 'Float16Array' : name === 'Uint16Array') {
    const address = addressOfView(core, array);
    const bits = new Uint16Array(array.buffer, array.byteOffset, array.length);
    return new HalfSource(
      core,
      address === undefined ? bits : undefined,
      address ?? 0,
      to,
      array.length,
      (from ?? 'float16') as HalfFormat,
    );
  }
  if (from !== undefined) throw new TypeError(`${what}: with from '${from}' expected a Uint16Array, got ${name}`);
  if (name !== 'Float32Array' && name !== 'Float64Array') {
    const advice = name === 'Uint16Array' ? "; for bits of 16-bit floats say from: 'float16' or 'bfloat16'" : '';
    throw new TypeError(
      `${what}: expected a Float32Array, Float64Array, Float16Array, number[] or WasmArray, got ${name}${advice}`,
    );
  }
  const address = addressOfView(core, array);
  if (name === 'Float32Array' && address !== undefined) return new WasmSource(core, array.length, address);
  return new CopiedSource(core, array as Float32Array | Float64Array, to);
}

const constructors = {
  float32: Float32Array,
  int8: Int8Array,
  uint8: Uint8Array,
  int16: Int16Array,
  uint16: Uint16Array,
  int32: Int32Array,
};

const sizes: Record<WasmDType, number> = { float32: 4, int8: 1, uint8: 1, int16: 2, uint16: 2, int32: 4 };

/** A place for results: the caller's array, or a fresh one. */
export class Sink {
  /** Where the results lie if that is wasm memory. */
  readonly address: number | undefined;
  readonly #array: WasmView | undefined;
  readonly #given: WasmView | WasmArray;

  /** @throws TypeError or RangeError naming `what` */
  constructor(
    private readonly core: Core,
    private readonly dtype: WasmDType,
    readonly length: number,
    out: unknown,
    what: string,
  ) {
    if (out === undefined) {
      this.#array = new constructors[dtype](length);
      this.#given = this.#array;
      return;
    }
    const expected = constructors[dtype].name;
    const found = out instanceof OwnedWasmArray ? constructors[out.dtype].name : typedArrayName(out);
    if (found !== expected)
      throw new TypeError(`${what}: expected ${article(expected)} or a WasmArray of ${dtype}, got ${show(out)}`);
    const given = out as WasmView | OwnedWasmArray;
    if (!(given instanceof OwnedWasmArray)) checkAttached(given, what);
    if (given.length !== length) {
      throw new RangeError(`${what}: expected ${length} elements, got ${given.length}`);
    }
    this.#given = given;
    if (given instanceof OwnedWasmArray) {
      this.address = given.addressIn(core, what);
    } else {
      this.address = addressOfView(core, given);
      if (this.address === undefined) this.#array = given;
    }
  }

  /** What the caller gets back. If memory grew, a view of it is made anew. */
  get result(): WasmView | WasmArray {
    const given = this.#given;
    if (this.address === undefined || given instanceof OwnedWasmArray || given.length === this.length) return given;
    return this.core.view(this.dtype, this.address, this.length);
  }

  /** Address for the results [start, ...): in place, or `tile`. */
  at(start: number, tile: number): number {
    return this.address === undefined ? tile : this.address + start * sizes[this.dtype];
  }

  /** Brings a tile of results home, unless they were made in place. */
  put(start: number, count: number, tile: number): void {
    const array = this.#array;
    if (array === undefined) return;
    // For a handful of values a loop is faster than a view of them.
    if (count > 16) {
      const view = this.core.viewAgain(this.dtype, tile, count);
      array.set(view, start);
      return;
    }
    const heap = this.core.heap(this.dtype);
    const from = tile / sizes[this.dtype];
    for (let i = 0; i < count; i++) array[start + i] = heap[from + i] as number;
  }
}

/** Brings results from somewhere in wasm memory home. */
export function copyOut(
  core: Core,
  dtype: 'float32' | 'int32',
  from: number,
  count: number,
  to: Sink,
  start: number,
): void {
  if (to.address === undefined) {
    to.put(start, count, from);
  } else {
    const heap = core.heap(dtype);
    heap.copyWithin(to.address / 4 + start, from / 4, from / 4 + count);
  }
}

/** @throws RangeError if `out`, an array that the caller gave, shares memory with x. */
export function checkApart(x: unknown, out: unknown, what: string): void {
  if (out === undefined) return;
  const a = x instanceof OwnedWasmArray ? x.view : x;
  const b = out instanceof OwnedWasmArray ? out.view : out;
  if (!ArrayBuffer.isView(a) || !ArrayBuffer.isView(b) || a.buffer !== b.buffer) return;
  if (a.byteOffset < b.byteOffset + b.byteLength && b.byteOffset < a.byteOffset + a.byteLength) {
    throw new RangeError(`${what}: shares memory with the input`);
  }
}

/** Codes that lie in wasm memory, or are copied there tile by tile. */
export class CodeSource {
  readonly length: number;
  readonly inPlace: boolean;
  readonly #address: number;
  readonly #array: CodeArray | undefined;

  /** @throws TypeError or RangeError naming `what` */
  constructor(
    private readonly core: Core,
    data: unknown,
    private readonly dtype: WasmDType,
    what: string,
  ) {
    const found = data instanceof OwnedWasmArray ? constructors[data.dtype].name : typedArrayName(data);
    if (found !== constructors[dtype].name) {
      throw new TypeError(`${what}: expected ${article(constructors[dtype].name)}, got ${show(data)}`);
    }
    const array = data as CodeArray | OwnedWasmArray;
    this.length = array.length;
    if (array instanceof OwnedWasmArray) {
      this.#address = array.addressIn(core, what);
      this.inPlace = true;
      return;
    }
    checkAttached(array, what);
    const address = addressOfView(core, array);
    this.inPlace = address !== undefined;
    this.#address = address ?? core.scratch.y;
    if (address === undefined) this.#array = array;
  }

  /** Address of the codes [start, start + count), count <= tileSize unless inPlace. */
  at(start: number, count: number): number {
    const size = sizes[this.dtype];
    if (this.#array === undefined) return this.#address + start * size;
    const part = count === this.length ? this.#array : this.#array.subarray(start, start + count);
    (this.core.heap(this.dtype) as CodeArray).set(part, this.#address / size);
    return this.#address;
  }
}

/** Arrays up to this size are kept in wasm memory between two passes over them; larger ones are copied twice. */
const residentBytes = 64 * 2 ** 20;

/** Calls f for consecutive tiles of n elements; with `whole`, for all of them at once. */
export function forEachTile(
  n: number,
  whole: boolean,
  f: (start: number, count: number) => void,
  size = tileSize,
): void {
  const step = whole ? n : size;
  for (let start = 0; start < n; start += step) f(start, Math.min(step, n - start));
}

/** The error for the first NaN or infinity among the floats at x, which begin with element start. */
export function nonFiniteError(core: Core, x: number, count: number, start: number): ScalepointError {
  const index = core.module.firstNonFinite(x, count);
  const value = core.module.HEAPF32[x / 4 + index];
  return new ScalepointError(
    'NON_FINITE',
    `x[${start + index}] is ${value}; pass nonFinite: 'saturate' to quantize the rest and saturate such values`,
  );
}
