/** Reads column-major arrays as if they were row-major, in bounded memory. */
import { allocate, type ByteSource } from '../files/bytes.js';

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

/** Reads an array at an offset of a file. */
export class ColumnMajorReader {
  readonly #source: ByteSource;
  readonly #offset: number;
  readonly #elementBytes: number;
  /** Shape without dimensions of 1. */
  readonly #shape: readonly number[];
  /** The axis that is cut, the number of elements per index of it, and the number of indices per band. */
  readonly #axis: number;
  readonly #inner: number;
  readonly #indices: number;
  #band: Band & { readonly bytes: Uint8Array<ArrayBuffer> } = { begin: 0, end: 0, bytes: new Uint8Array(0) };
  /** The last read. Reads run in sequence because they share the band. */
  #last: Promise<unknown> = Promise.resolve();

  /** @param most bytes that are rearranged at a time */
  constructor(source: ByteSource, offset: number, shape: readonly number[], elementBytes: number, most = bandBytes) {
    this.#source = source;
    this.#offset = offset;
    this.#elementBytes = elementBytes;
    this.#shape = shape.filter((dimension) => dimension !== 1);
    let axis = 0;
    let inner = this.#shape.slice(1).reduce((product, dimension) => product * dimension, 1);
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
    const dimension = shape[axis] as number;
    const line = Math.floor(element / (inner * dimension));
    const from = Math.floor((element % (inner * dimension)) / (inner * this.#indices)) * this.#indices;
    const count = Math.min(this.#indices, dimension - from);
    const begin = line * inner * dimension + from * inner;
    // Reuse the memory of the band before.
    const room = this.#band.bytes.buffer;
    const bytes = count * inner * this.#elementBytes;
    const target =
      room.byteLength >= bytes ? new Uint8Array(room, 0, bytes) : allocate(bytes, ' of a column-major array');
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
      origin += (rest % dimension) * this.#strideOf(axis);
      rest = Math.floor(rest / dimension);
    }
    return origin;
  }

  /** Elements in the file between two indices of an axis. */
  #strideOf(axis: number): number {
    return this.#shape.slice(0, axis).reduce((product, dimension) => product * dimension, 1);
  }

  /** Puts `count` indices of the cut axis, from `from` on, into memory, in row-major order. */
  async #gather(line: number, from: number, count: number, target: Uint8Array<ArrayBuffer>): Promise<void> {
    const [shape, axis, inner, size] = [this.#shape, this.#axis, this.#inner, this.#elementBytes];
    const stride = this.#strideOf(axis) * size;
    const column = stride * (shape[axis] as number);
    const span = stride * (count - 1) + size;
    const ahead = column - span <= smallGap ? windowBytes : Math.min(span, windowBytes);
    const origin = this.#originOf(line) * size + from * stride;
    const after = shape.slice(axis + 1);
    const order = new RowMajorOrder(after);
    // Elements of eight bytes are two words.
    const unit = Math.min(size, 4);
    const to = wordsOf(target, unit);
    let window: Window = { begin: 0, bytes: new Uint8Array(0) };
    let words = wordsOf(window.bytes, unit);
    const [step, row] = [stride / unit, (inner * size) / unit];
    for (let j = 0; j < inner; j++, order.next()) {
      for (let i = 0; i < count; ) {
        const at = origin + j * column + i * stride;
        if (at < window.begin || at + size > window.begin + window.bytes.length) {
          window = await this.#window(at, ahead, window);
          words = wordsOf(window.bytes, unit);
        }
        // Elements left in the window.
        const there = Math.floor((window.begin + window.bytes.length - at - size) / stride) + 1;
        const end = Math.min(count, i + there);
        let a = (at - window.begin) / unit;
        let b = ((i * inner + order.position) * size) / unit;
        for (; i < end; i++, a += step, b += row) {
          to[b] = words[a] as number;
          if (size === 8) to[b + 1] = words[a + 1] as number;
        }
      }
    }
  }

  /** Reads bytes of the array, from a position in it on. */
  async #window(begin: number, ahead: number, { bytes: { buffer } }: Window): Promise<Window> {
    const all = this.#shape.reduce((product, dimension) => product * dimension, this.#elementBytes);
    const length = Math.min(Math.max(ahead, this.#elementBytes), all - begin);
    const bytes = buffer.byteLength >= length ? new Uint8Array(buffer, 0, length) : new Uint8Array(length);
    const at = this.#offset + begin;
    if (this.#source.readInto === undefined) bytes.set(await this.#source.read(at, at + length));
    else await this.#source.readInto(at, bytes);
    return { begin, bytes };
  }
}

/** Iterates over a column-major array in its order, and gives the position of each element in the row-major array. */
class RowMajorOrder {
  readonly #shape: readonly number[];
  readonly #strides: readonly number[];
  readonly #index: number[];
  position = 0;

  constructor(shape: readonly number[]) {
    this.#shape = shape;
    this.#strides = shape.map((_, axis) =>
      shape.slice(axis + 1).reduce((product, dimension) => product * dimension, 1),
    );
    this.#index = shape.map(() => 0);
  }

  /** Goes on to the next element. The first axis runs fastest. */
  next(): void {
    for (const [axis, dimension] of this.#shape.entries()) {
      const stride = this.#strides[axis] as number;
      const index = (this.#index[axis] as number) + 1;
      this.#index[axis] = index;
      this.position += stride;
      if (index < dimension) return;
      this.#index[axis] = 0;
      this.position -= stride * dimension;
    }
  }
}

/** Bytes that begin where their buffer does, as words of 1, 2 or 4 bytes. */
function wordsOf(bytes: Uint8Array<ArrayBuffer>, unit: number): Uint8Array | Uint16Array | Uint32Array {
  const length = Math.floor(bytes.length / unit);
  if (unit === 4) return new Uint32Array(bytes.buffer, 0, length);
  return unit === 2 ? new Uint16Array(bytes.buffer, 0, length) : bytes;
}
