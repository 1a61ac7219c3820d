/** Reads arrays whose elements lie at strides, such as column-major ones, as if they were row-major, in bounded memory. */
import { elementsOf } from './codecs/elements.js';
import { allocate, type ByteSource } from './files/bytes.js';

/** Bytes that are rearranged at a time. Each such band of an array may require reading all of its bytes. */
const bandBytes = 2 ** 24;
/** Bytes that are read at a time. */
const windowBytes = 2 ** 20;
/** Largest gap that is read rather than skipped. */
const smallGap = 2 ** 16;

/**
 * Consecutive elements of the row-major array: a range of indices of one axis, a fixed index of each axis before it, and all of those
 * after.
 */
interface Band {
  /** The first element, and the one after the last. */
  readonly begin: number;
  readonly end: number;
}

/** Bytes of the file that are in memory. */
interface Window {
  readonly begin: number;
  readonly bytes: Uint8Array<ArrayBuffer>;
}

/** Elements between two indices of each axis of a column-major array. */
export function columnMajorStrides(shape: readonly number[]): number[] {
  return shape.map((_, axis) => elementsOf(shape.slice(0, axis)));
}

/** Strides of a row-major array, in elements. */
export function rowMajorStrides(shape: readonly number[]): number[] {
  return shape.map((_, axis) => elementsOf(shape.slice(axis + 1)));
}

/** Reads an array whose first element lies at an offset of a file. */
export class StridedReader {
  readonly #source: ByteSource;
  readonly #offset: number;
  readonly #elementBytes: number;
  /** Shape without dimensions of 1, and the strides of these axes in elements. */
  readonly #shape: readonly number[];
  readonly #strides: readonly number[];
  /** Bytes from the first element to the end of the last in the file. */
  readonly #span: number;
  /** The axis that is cut, the number of elements per index of it, and the number of indices per band. */
  readonly #axis: number;
  readonly #inner: number;
  readonly #indices: number;
  #band: Band & { readonly bytes: Uint8Array<ArrayBuffer> } = { begin: 0, end: 0, bytes: new Uint8Array(0) };
  /** The last read. Reads run in sequence because they share the band. */
  #last: Promise<unknown> = Promise.resolve();

  /**
   * @param shape without a 0
   * @param strides elements in the file between two indices of each axis, at least 0
   * @param most bytes that are rearranged at a time
   */
  constructor(
    source: ByteSource,
    offset: number,
    shape: readonly number[],
    strides: readonly number[],
    elementBytes: number,
    most = bandBytes,
  ) {
    this.#source = source;
    this.#offset = offset;
    this.#elementBytes = elementBytes;
    this.#shape = shape.filter((dimension) => dimension !== 1);
    this.#strides = strides.filter((_, axis) => shape[axis] !== 1);
    const last = this.#shape.reduce((sum, dimension, i) => sum + (dimension - 1) * (this.#strides[i] as number), 0);
    this.#span = (last + 1) * elementBytes;
    let axis = 0;
    let inner = elementsOf(this.#shape.slice(1));
    while (inner * elementBytes > most) {
      axis++;
      inner /= this.#shape[axis] as number;
    }
    this.#axis = axis;
    this.#inner = inner;
    this.#indices = Math.floor(most / (inner * elementBytes));
  }

  /** Reads bytes of the row-major array from `begin` on. `begin` and the length must be multiples of the element size. */
  readInto(begin: number, target: Uint8Array): Promise<void> {
    const result = this.#last.then(() => this.#readInto(begin, target));
    this.#last = result.catch(() => {});
    return result;
  }

  async #readInto(begin: number, target: Uint8Array): Promise<void> {
    const size = this.#elementBytes;
    const end = begin + target.length;
    for (let at = begin; at < end; ) {
      if (at < this.#band.begin * size || at >= this.#band.end * size) await this.#load(at / size);
      const { begin: first, end: last, bytes } = this.#band;
      const to = Math.min(end, last * size);
      target.set(bytes.subarray(at - first * size, to - first * size), at - begin);
      at = to;
    }
  }

  /** Brings the band of an element into memory. */
  async #load(element: number): Promise<void> {
    const shape = this.#shape;
    const [axis, inner] = [this.#axis, this.#inner];
    const dimension = shape[axis] ?? 1;
    const line = Math.floor(element / (inner * dimension));
    const from = Math.floor((element % (inner * dimension)) / (inner * this.#indices)) * this.#indices;
    const count = Math.min(this.#indices, dimension - from);
    const begin = line * inner * dimension + from * inner;
    // Reuse the memory of the band before.
    const room = this.#band.bytes.buffer;
    const bytes = count * inner * this.#elementBytes;
    const target =
      room.byteLength >= bytes ? new Uint8Array(room, 0, bytes) : allocate(bytes, ' of a rearranged array');
    this.#band = { begin: 0, end: 0, bytes: target };
    await this.#gather(line, from, count, target);
    this.#band = { begin, end: begin + count * inner, bytes: target };
  }

  /** The position in the file, in elements, of the first element of a line: the axes before the cut one, counted row by row. */
  #originOf(line: number): number {
    let rest = line;
    let origin = 0;
    for (let axis = this.#axis - 1; axis >= 0; axis--) {
      const dimension = this.#shape[axis] as number;
      origin += (rest % dimension) * (this.#strides[axis] as number);
      rest = Math.floor(rest / dimension);
    }
    return origin;
  }

  /** Puts `count` indices of the cut axis, from `from` on, into memory, in row-major order. */
  async #gather(line: number, from: number, count: number, target: Uint8Array<ArrayBuffer>): Promise<void> {
    const [shape, axis, size] = [this.#shape, this.#axis, this.#elementBytes];
    const stride = (this.#strides[axis] ?? 1) * size;
    const origin = this.#originOf(line) * size + from * stride;
    // Go through the elements as they lie in the file: the axis with the smallest stride runs fastest.
    const inner = rowMajorStrides(shape.slice(axis)).map((to, i) => ({
      count: i === 0 ? count : (shape[axis + i] as number),
      from: (this.#strides[axis + i] as number) * size,
      to: to * size,
    }));
    const [fastest = { count, from: stride, to: size }, ...others] = inner.sort((x, y) => x.from - y.from);
    const span = fastest.from * (fastest.count - 1) + size;
    const gap = (others[0]?.from ?? span) - span;
    const ahead = gap <= smallGap ? windowBytes : Math.min(span, windowBytes);
    // Elements of eight bytes are two words.
    const unit = Math.min(size, 4);
    const to = wordsIn(target, unit);
    let window: Window = { begin: 0, bytes: new Uint8Array(0) };
    let words = wordsIn(window.bytes, unit);
    const [step, row] = [fastest.from / unit, fastest.to / unit];
    const index = others.map(() => 0);
    let [lineFrom, lineTo] = [origin, 0];
    for (;;) {
      for (let i = 0; i < fastest.count; ) {
        const at = lineFrom + i * fastest.from;
        if (at < window.begin || at + size > window.begin + window.bytes.length) {
          window = await this.#window(at, ahead, window);
          words = wordsIn(window.bytes, unit);
        }
        // Elements left in the window.
        const bytesLeft = window.begin + window.bytes.length - at - size;
        const there = step === 0 ? fastest.count : Math.floor(bytesLeft / fastest.from) + 1;
        const end = Math.min(fastest.count, i + there);
        let a = (at - window.begin) / unit;
        let b = (lineTo + i * fastest.to) / unit;
        for (; i < end; i++, a += step, b += row) {
          to[b] = words[a] as number;
          if (size === 8) to[b + 1] = words[a + 1] as number;
        }
      }
      // Go on to the next line.
      let k = 0;
      for (; k < others.length; k++) {
        const { count: most, from: fromStep, to: toStep } = others[k] as (typeof others)[number];
        lineFrom += fromStep;
        lineTo += toStep;
        index[k] = (index[k] as number) + 1;
        if ((index[k] as number) < most) break;
        index[k] = 0;
        lineFrom -= fromStep * most;
        lineTo -= toStep * most;
      }
      if (k === others.length) return;
    }
  }

  /** Reads bytes of the array, from a position in it on. */
  async #window(begin: number, ahead: number, { bytes: { buffer } }: Window): Promise<Window> {
    const length = Math.min(Math.max(ahead, this.#elementBytes), this.#span - begin);
    const bytes = buffer.byteLength >= length ? new Uint8Array(buffer, 0, length) : new Uint8Array(length);
    const at = this.#offset + begin;
    if (this.#source.readInto === undefined) bytes.set(await this.#source.read(at, at + length));
    else await this.#source.readInto(at, bytes);
    return { begin, bytes };
  }
}

/** Bytes that begin where their buffer does, as words of 1, 2 or 4 bytes. */
function wordsIn(bytes: Uint8Array<ArrayBuffer>, unit: number): Uint8Array | Uint16Array | Uint32Array {
  const length = Math.floor(bytes.length / unit);
  if (unit === 4) return new Uint32Array(bytes.buffer, 0, length);
  return unit === 2 ? new Uint16Array(bytes.buffer, 0, length) : bytes;
}
