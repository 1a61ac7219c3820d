// Sources of inputs for the core. Read any kind of input in wasm memory, tile by tile, and use arrays that lie there in place.
import { checkChoice } from '../core/check.js';
import { rangeError, ScalepointError, typeError } from '../core/errors.js';
import {
  arrayTypes,
  type Core,
  elementBytes,
  forEachTile,
  tileSize,
  type WasmDType,
  type WasmView,
} from '../core/memory.js';
import { exactly, type Hint, mention, ofType, oneOf, without } from '../core/option-problem.js';
import { typedArrayName } from '../core/realms.js';
import { OwnedWasmArray, type WasmArray } from '../core/wasm-array.js';
import {
  type HalfFormat,
  isTensor,
  partsOfTensor,
  type StoredFloats,
  type StoredTensor,
  type TensorLike,
} from './tensor-like.js';

export type { HalfFormat, StoredFloats, StoredTensor };

/** A Float16Array, which not all engines have. */
export interface Float16ArrayLike extends ArrayBufferView {
  /** Number of elements. */
  readonly length: number;
  readonly [Symbol.toStringTag]: 'Float16Array';
}

/** Any input that can be quantized. Its values are first rounded to float32. */
export type FloatInput =
  | Float32Array
  | Float64Array
  | Float16ArrayLike
  | Uint16Array
  | readonly number[]
  | WasmArray
  | StoredFloats
  | StoredTensor
  | TensorLike;

/** Values of `from`. */
export const halfFormats: readonly HalfFormat[] = ['float16', 'bfloat16'];

type AnyTypedArray = WasmView | Float64Array | Float16ArrayLike | Uint32Array;

/** @throws TypeError if the array's buffer was detached, or shrank below it. */
export function checkAttached(array: AnyTypedArray, what: string): void {
  if (array.length > 0) return;
  try {
    // Throw for detached and out-of-bounds arrays, whose length reads 0.
    (array as Uint8Array).at(0);
  } catch (cause) {
    throw typeError(what, { kind: 'state', state: 'attached' }, array, undefined, cause);
  }
}

/**
 * Fails unless an array still has `length` elements. Reading the other arguments may have run code of the caller, which detached or shrank
 * the array. Its elements would then be read from stale memory.
 * @throws TypeError naming `what`
 */
export function checkUnchanged(array: { readonly length: number }, length: number, what: string): void {
  if (array.length !== length) throw typeError(what, { kind: 'state', state: 'unchanged' }, array);
}

/** Address of a typed array that is a view of wasm memory. */
export function addressOfView(core: Core, array: AnyTypedArray): number | undefined {
  return array.buffer === core.module.HEAPU8.buffer ? array.byteOffset : undefined;
}

// ------------------------------------------------------------------------------------------------------------------- floats

/** Elements that a call can read as float32 in wasm memory. */
export interface Source {
  /** Number of elements. */
  readonly length: number;
  /** True if all elements lie in wasm memory as float32, so that any number of them can be read at once. */
  readonly inPlace: boolean;
  /** The shape of an input that has one; undefined for arrays. */
  shape?: readonly number[] | undefined;
  /**
   * Address of the float32 values of elements [start, start + count), valid until the next call. count is at most tileSize unless inPlace.
   */
  at(start: number, count: number): number;
  /** An element before its rounding to float32; undefined for inputs that are not rounded. */
  given?(index: number): number | undefined;
  /**
   * Largest size in bytes of float32 at which several passes take less time over elements kept in wasm memory than over tiles copied in
   * each pass.
   */
  readonly mostKept?: number;
  /** Keeps the elements in memory of length * 4 bytes at that address. */
  residentAt?(address: number): Source;
}

/** Float32 values that lie in wasm memory. */
class WasmFloatSource implements Source {
  shape?: readonly number[] | undefined;
  readonly inPlace = true;

  /** @param from the array that the values were copied from, if any */
  constructor(
    readonly length: number,
    private readonly address: number,
    private readonly from?: Source,
  ) {}

  at(start: number): number {
    return this.address + start * 4;
  }

  given(index: number): number | undefined {
    return this.from?.given?.(index);
  }
}

/** A WasmArray of float32. */
class WasmArraySource implements Source {
  shape?: readonly number[] | undefined;
  readonly inPlace = true;

  readonly length: number;

  constructor(
    private readonly core: Core,
    private readonly array: OwnedWasmArray,
    private readonly what: string,
  ) {
    this.length = array.length;
  }

  at(start: number): number {
    // It may have been disposed since the call began.
    return this.array.addressIn(this.core, this.what) + start * 4;
  }
}

/**
 * `mostKept` by the bytes of an element. From 1 MiB of floats on, a tile that was just copied is in a nearer cache than kept elements: two
 * passes over 16 Mi floats take 0.8 times as long. Doubles are kept up to a larger size, because rounding them again would take longer.
 */
const mostKeptOf: Readonly<Record<number, number>> = { 4: 2 ** 20, 8: 64 * 2 ** 20 };

/** A typed array that is copied into one buffer of wasm memory, tile by tile. */
class CopiedSource implements Source {
  shape?: readonly number[] | undefined;
  readonly inPlace = false;
  readonly length: number;
  readonly mostKept: number;

  constructor(
    private readonly core: Core,
    private readonly array: Float32Array | Float64Array,
    private readonly what: string,
    private readonly to: number,
  ) {
    this.length = array.length;
    this.mostKept = mostKeptOf[array.BYTES_PER_ELEMENT] ?? 0;
  }

  at(start: number, count: number): number {
    const { array } = this;
    checkUnchanged(array, this.length, this.what);
    const whole = start === 0 && count === this.length;
    this.core.module.HEAPF32.set(whole ? array : array.subarray(start, start + count), this.to >>> 2);
    return this.to;
  }

  given(index: number): number | undefined {
    return this.array[index];
  }

  residentAt(address: number): Source {
    return new ResidentSource(this.core, this.array, this.what, address);
  }
}

/** A typed array that stays in wasm memory after its first reading, so that later ones need no copy. */
class ResidentSource implements Source {
  shape?: readonly number[] | undefined;
  readonly inPlace = false;
  readonly length: number;
  #known = 0;

  constructor(
    private readonly core: Core,
    private readonly array: Float32Array | Float64Array,
    private readonly what: string,
    private readonly address: number,
  ) {
    this.length = array.length;
  }

  given(index: number): number | undefined {
    return this.array[index];
  }

  at(start: number, count: number): number {
    if (start + count > this.#known) {
      checkUnchanged(this.array, this.length, this.what);
      this.core.module.HEAPF32.set(this.array.subarray(start, start + count), (this.address >>> 2) + start);
      this.#known = start + count;
    }
    return this.address + start * 4;
  }
}

/** 16-bit floats, from JavaScript or wasm memory, widened tile by tile. */
class HalfSource implements Source {
  shape?: readonly number[] | undefined;
  readonly inPlace = false;

  /** @param bits an array, or the address of a view of wasm memory */
  constructor(
    private readonly core: Core,
    private readonly bits: Uint16Array | OwnedWasmArray | number,
    private readonly what: string,
    private readonly to: number,
    readonly length: number,
    private readonly format: HalfFormat,
  ) {}

  at(start: number, count: number): number {
    const { core, bits, what } = this;
    const { module } = core;
    let from = core.scratch.bits;
    if (typeof bits === 'number') from = bits + start * 2;
    else if (bits instanceof OwnedWasmArray) from = bits.addressIn(core, what) + start * 2;
    else {
      checkUnchanged(bits, this.length, what);
      module.HEAPU16.set(bits.subarray(start, start + count), from >>> 1);
    }
    if (this.format === 'float16') module._widenFloat16(from, count, this.to);
    else module._widenBfloat16(from, count, this.to);
    return this.to;
  }
}

/** Types of floats as `readTensor` of `scalepoint/model` names them. */
const storedTypes: readonly StoredFloats['dtype'][] = ['F32', 'F64', 'F16', 'BF16'];

/** @throws RangeError if it is a tensor of another type as `readTensor` returns it: with its name, type and bytes */
function refuseStored(x: unknown, what: string): void {
  const { name, dtype, kind, data } = (x ?? {}) as Partial<Record<keyof StoredTensor, unknown>>;
  if (typeof name !== 'string' || typeof dtype !== 'string' || !ArrayBuffer.isView(data)) return;
  const hint: Hint | undefined =
    kind === undefined ? undefined : { kind: 'takenBy', call: 'dequantize', name: 'a quantized tensor' };
  throw rangeError(`${what}.dtype`, oneOf(storedTypes), dtype, hint);
}

/** The kinds of input. */
const inputs = ofType('Float32Array', 'Float64Array', 'Float16Array', 'number[]', 'WasmArray', 'tensor of floats');

/**
 * Reads x as float32.
 * @param from the format of 16-bit floats, if x holds their bits
 * @param to address that tiles are copied to: `scratch.x` or `scratch.y`
 * @throws TypeError or RangeError naming `what`
 */
export function sourceOf(core: Core, x: unknown, from: unknown, what: string, to = core.scratch.x): Source {
  const half = from === undefined ? undefined : checkChoice(from, 'from', halfFormats);
  if (x instanceof OwnedWasmArray) {
    x.addressIn(core, what);
    if (half === undefined && x.dtype === 'float32') return new WasmArraySource(core, x, what);
    if (half !== undefined && x.dtype === 'uint16') return new HalfSource(core, x, what, to, x.length, half);
    throw typeError(`${what}.dtype`, oneOf([half === undefined ? 'float32' : 'uint16']), x.dtype);
  }
  const name = typedArrayName(x);
  // Take a tensor of another library apart.
  if (name === undefined && isTensor(x)) {
    const { data, shape, size, format, named } = partsOfTensor(x, what);
    if (half !== undefined && format !== undefined)
      throw typeError('from', without(`${what}.${'type' in x ? 'type' : 'dtype'}`, named));
    if (isTensor(data)) throw typeError(`${what}.data`, inputs, data);
    const array = typedArrayName(data);
    const bits = half ?? (array === 'Uint16Array' ? format : undefined);
    if (bits === undefined && !array?.startsWith('Float')) refuseStored(x, what);
    const source = sourceOf(core, data, bits, `${what}.data`, to);
    if (source.length !== size) throw rangeError(`${what}.shape`, { kind: 'shape', elements: source.length }, shape);
    source.shape = shape;
    return source;
  }
  const bitsError = () => typeError(what, ofType('Uint16Array'), x, { kind: 'with', options: [mention('from', half)] });
  if (Array.isArray(x)) {
    if (half !== undefined) throw bitsError();
    // Read all numbers now, because reading one may run code of the caller, which may use the instance.
    const floats = new Float32Array(x.length);
    let exact: Float64Array | undefined;
    for (let i = 0; i < floats.length; i++) {
      const value: unknown = x[i];
      if (typeof value !== 'number') throw typeError(`${what}[${i}]`, { kind: 'number' }, value);
      floats[i] = value;
      // Keep numbers beyond float32 for the error.
      if (exact === undefined && Math.abs(Math.fround(value)) !== Infinity) continue;
      exact ??= Float64Array.from(floats);
      exact[i] = value;
    }
    return new CopiedSource(core, exact ?? floats, what, to);
  }
  if (name === undefined) {
    refuseStored(x, what);
    throw typeError(what, inputs, x);
  }
  // Take a typed array.
  const array = x as AnyTypedArray;
  checkAttached(array, what);
  const address = addressOfView(core, array);
  if (half === undefined ? name === 'Float16Array' : name === 'Uint16Array') {
    const bits = address ?? new Uint16Array(array.buffer, array.byteOffset, array.length);
    return new HalfSource(core, bits, what, to, array.length, half ?? 'float16');
  }
  if (half !== undefined) throw bitsError();
  if (name !== 'Float32Array' && name !== 'Float64Array') {
    const bits: Hint = { kind: 'try', option: mention('from', 'float16'), effect: 'reads bits of 16-bit floats' };
    throw typeError(what, inputs, x, name === 'Uint16Array' ? bits : undefined);
  }
  if (name === 'Float32Array' && address !== undefined) return new WasmFloatSource(array.length, address);
  return new CopiedSource(core, array as Float32Array | Float64Array, what, to);
}

/** Calls f with a source whose elements are all in wasm memory until f returns. */
export function withWhole<T>(core: Core, source: Source, f: (whole: Source) => T): T {
  if (source.inPlace) return f(source);
  return core.withMemory(source.length * 4, (own) => {
    forEachTile(source.length, false, (start, count) => {
      const from = source.at(start, count);
      core.module.HEAPU8.copyWithin(own + start * 4, from, from + count * 4);
    });
    return f(new WasmFloatSource(source.length, own, source));
  });
}

/** Calls f with a source for several passes. Copies an array of moderate size once, if memory has room for it. */
export function withResident(core: Core, source: Source, f: (source: Source) => void): void {
  const bytes = source.length * 4;
  const worthIt = source.length > tileSize && bytes <= (source.mostKept ?? 0);
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

/** Elements [start, start + count) of a source, as floats at an address. */
export interface FloatTile {
  readonly x: number;
  readonly count: number;
  readonly start: number;
}

/** The error for the first NaN or infinity of a tile. `advice` ends the message. */
export function nonFiniteError(
  core: Core,
  source: Source,
  { x, count, start }: FloatTile,
  advice: string,
): ScalepointError {
  const index = core.module.firstNonFinite(x, count);
  const given = source.given?.(start + index) ?? core.module.HEAPF32[x / 4 + index];
  const value = Number.isFinite(given) ? `${given}, beyond float32` : `${given}`;
  return new ScalepointError('NON_FINITE', `x[${start + index}] is ${value}; ${advice}`);
}

// -------------------------------------------------------------------------------------------------------------------- codes

/** Scales or zero points of a caller, checked. Copies them if they lie in memory that may grow. @throws TypeError or RangeError naming them */
export function parametersOf<T extends Float32Array | Int32Array>(
  core: Core,
  given: unknown,
  make: new (n: number) => T,
  n: number,
  name: string,
): T {
  if (typedArrayName(given) !== make.name) throw typeError(name, ofType(make.name), given);
  const array = given as T;
  checkAttached(array, name);
  if (array.length !== n) throw rangeError(name, exactly(n, 'elements'), array.length);
  return array.buffer === core.module.HEAPU8.buffer ? (array.slice() as T) : array;
}

/** Codes of a tensor. */
export interface CodeReader {
  /** Number of codes. */
  readonly length: number;
  /** True if all codes lie in wasm memory, one per element. */
  readonly inPlace: boolean;
  /** Address of the codes [start, start + count), valid until the next call. count is at most tileSize unless inPlace. */
  at(start: number, count: number): number;
}

/** Codes that lie in wasm memory, or are copied there tile by tile. */
export class CodeSource implements CodeReader {
  readonly length: number;
  readonly inPlace: boolean;
  readonly #address: number;
  readonly #array: Exclude<WasmView, Float32Array> | OwnedWasmArray | undefined;

  /** @param to address that tiles are copied to @throws TypeError or RangeError naming `what` */
  constructor(
    private readonly core: Core,
    data: unknown,
    private readonly dtype: Exclude<WasmDType, 'float32'>,
    private readonly what: string,
    to = core.scratch.y,
  ) {
    const expected = arrayTypes[dtype].name;
    const found = data instanceof OwnedWasmArray ? arrayTypes[data.dtype].name : typedArrayName(data);
    if (found !== expected) throw typeError(what, ofType(expected), data);
    const array = data as Exclude<WasmView, Float32Array> | OwnedWasmArray;
    this.length = array.length;
    if (array instanceof OwnedWasmArray) {
      this.#address = array.addressIn(core, what);
      this.#array = array;
      this.inPlace = true;
      return;
    }
    checkAttached(array, what);
    const address = addressOfView(core, array);
    this.inPlace = address !== undefined;
    this.#address = address ?? to;
    if (address === undefined) this.#array = array;
  }

  at(start: number, count: number): number {
    const size = elementBytes[this.dtype];
    const array = this.#array;
    if (array === undefined) return this.#address + start * size;
    if (array instanceof OwnedWasmArray) return array.addressIn(this.core, this.what) + start * size;
    checkUnchanged(array, this.length, this.what);
    const part = count === this.length ? array : array.subarray(start, start + count);
    this.core.heap(this.dtype).set(part, this.#address / size);
    return this.#address;
  }
}

/**
 * The address of elements [start, start + count), for any count. Gathers more than a tile of them at `own`.
 * @param size bytes of an element
 */
export function addressOf(
  core: Core,
  source: Source | CodeReader,
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
