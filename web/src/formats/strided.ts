/**
 * Reads elements that lie at strides, as in a transpose or in a column-major array, as if they followed each other, in bounded memory.
 */
import { elementsOf } from './codecs/elements.js';
import { allocate, type ByteSource, fillFrom } from './files/bytes.js';

/**
 * Elements that change places when they are read: a strided view, as in NumPy, whose runs of `unit` bytes follow each other in the result.
 * The wanted bytes begin `from` bytes after the first run. `begin` is where the first run stands in the file.
 */
export interface MovedElements {
  readonly unit: number;
  /** Dimensions, the outermost first: the count of runs, and the bytes from one to the next in the file, which may lie before it. */
  readonly dims: readonly (readonly [count: number, stride: number])[];
  readonly from: number;
}

/** Reads bytes of a file, from a position on, into memory from one offset to another. Synchronous where the file allows it. */
export type ReadInto = (
  file: number,
  begin: number,
  target: Uint8Array,
  from: number,
  to: number,
) => void | Promise<void>;

/** Runs are read together with the bytes between them up to this stride in runs, and on local files up to this gap. */
const mostStride = 32;
const nearGap = 1 << 12;

/** How a view is read. */
export interface ViewReads {
  readonly read: ReadInto;
  /** True for a local file, of which short reads are cheap. */
  readonly isNear: boolean;
  /** Most bytes of one read of several runs. */
  readonly most: number;
  /** Runs are also read together up to this gap. @defaultValue 0 */
  readonly smallGap?: number;
  /** Memory of earlier reads, reused because garbage would pile up. */
  readonly spare: ArrayBuffer[];
}

/** A dimension of a box of runs: their count, and the bytes from one to the next in the file and in the result. */
interface BoxDimension {
  readonly count: number;
  readonly from: number;
  readonly to: number;
}

/** Runs of `unit` bytes. Dimensions are in falling order of their strides in the file. */
interface Box {
  readonly dims: readonly BoxDimension[];
  readonly from: number;
  readonly to: number;
  readonly unit: number;
}

/** Bytes from the first to the last byte of a box in the file. */
function spanOf({ dims, unit }: Pick<Box, 'dims' | 'unit'>): number {
  return dims.reduce((sum, { count, from }) => sum + (count - 1) * from, unit);
}

/** Cuts the runs [begin, end) of a box into boxes. */
function* boxesWithin({ dims, from, to, unit }: Box, begin: number, end: number): Generator<Box> {
  if (begin >= end) return;
  const [first, ...rest] = dims;
  if (first === undefined) {
    yield { dims: [], from, to, unit };
    return;
  }
  const size = rest.reduce((product, { count }) => product * count, 1);
  const [firstWhole, endWhole] = [Math.ceil(begin / size), Math.floor(end / size)];
  const part = (i: number, low: number, high: number) =>
    boxesWithin({ dims: rest, from: from + i * first.from, to: to + i * first.to, unit }, low, high);
  // A part of the first index, whole ones, and a part of the last one.
  if (begin % size !== 0) {
    const base = (firstWhole - 1) * size;
    yield* part(firstWhole - 1, begin - base, Math.min(end, base + size) - base);
  }
  if (endWhole > firstWhole) {
    const all = [{ ...first, count: endWhole - firstWhole }, ...rest].filter(({ count }) => count > 1);
    // Begin with the first run in the file: those that go back are taken from their ends.
    const begun = { from: from + firstWhole * first.from, to: to + firstWhole * first.to };
    const forth = all.map((one) => {
      if (one.from >= 0) return one;
      begun.from += (one.count - 1) * one.from;
      begun.to += (one.count - 1) * one.to;
      return { count: one.count, from: -one.from, to: -one.to };
    });
    yield { dims: forth.sort((a, b) => b.from - a.from), ...begun, unit };
  }
  if (end % size !== 0 && endWhole >= firstWhole) yield* part(endWhole, 0, end - endWhole * size);
}

/** Views memory as numbers of `unit` bytes; undefined if its place or the unit forbid this. */
function asNumbers(memory: Uint8Array, unit: number) {
  if (memory.byteOffset % unit !== 0) return undefined;
  const length = Math.floor(memory.length / unit);
  if (unit === 1) return memory;
  if (unit === 2) return new Uint16Array(memory.buffer, memory.byteOffset, length);
  if (unit === 4) return new Uint32Array(memory.buffer, memory.byteOffset, length);
  if (unit === 8) return new BigUint64Array(memory.buffer, memory.byteOffset, length);
  return undefined;
}

/** Copies the runs of a box out of memory, which begins with the first of them. */
function scatter(held: Uint8Array, { dims, to, unit }: Box, target: Uint8Array): void {
  const [a, b] = [asNumbers(held, unit), asNumbers(target, unit)] as [Uint32Array, Uint32Array];
  const isWhole = a !== undefined && b !== undefined && to % unit === 0;
  const [x, y] = isWhole ? [a, b] : [held, target];
  const size = isWhole ? unit : 1;
  const inner = dims.at(-1) ?? { count: 1, from: 0, to: 0 };
  const [fromStep, toStep] = [inner.from / size, inner.to / size];
  const visit = (k: number, source: number, place: number) => {
    const one = k < dims.length - 1 ? dims[k] : undefined;
    if (one !== undefined) {
      for (let i = 0; i < one.count; i++) visit(k + 1, source + (i * one.from) / size, place + (i * one.to) / size);
    } else if (isWhole) {
      for (let i = 0; i < inner.count; i++) y[place + i * toStep] = x[source + i * fromStep] as number;
    } else {
      for (let i = 0; i < inner.count; i++) {
        const at = source + i * fromStep;
        y.set(x.subarray(at, at + unit), place + i * toStep);
      }
    }
  };
  visit(0, 0, to / size);
}

/** Reads a box: all at once where its runs lie close to each other, else piece by piece. @param begin where the view begins in the file */
async function readBox(box: Box, file: number, begin: number, target: Uint8Array, reads: ViewReads): Promise<void> {
  const { dims, from, to, unit } = box;
  const { read, isNear, most, smallGap = 0, spare } = reads;
  const [first, ...rest] = dims;
  if (first === undefined) return read(file, begin + from, target, to, to + unit);
  // Find how many of the first dimension can be read together: if that costs less than one by one, in each dimension.
  const isClose = dims.every((one, k) => {
    const inner = spanOf({ dims: dims.slice(k + 1), unit });
    const gap = one.from - inner;
    return gap <= smallGap || (one.from <= mostStride * inner && (!isNear || gap <= nearGap));
  });
  const inner = spanOf({ dims: rest, unit });
  const together =
    isClose && inner <= most ? Math.max(1, Math.min(first.count, Math.floor((most - inner) / first.from) + 1)) : 1;
  for (let i = 0; i < first.count; i += together) {
    const count = Math.min(together, first.count - i);
    const place = { from: from + i * first.from, to: to + i * first.to, unit };
    if (rest.length === 0 && count === 1) {
      const pending = read(file, begin + place.from, target, place.to, place.to + unit);
      if (pending !== undefined) await pending;
    } else if (together === 1) await readBox({ ...place, dims: rest }, file, begin, target, reads);
    else {
      const part = { ...place, dims: [{ ...first, count }, ...rest] };
      const span = spanOf(part);
      const memory = spare.pop();
      const held = new Uint8Array(memory !== undefined && memory.byteLength >= span ? memory : new ArrayBuffer(span));
      await read(file, begin + part.from, held, 0, span);
      scatter(held.subarray(0, span), part, target);
      spare.push(held.buffer);
    }
  }
}

/** Fills a target with bytes of a view, from `view.from` on. @param begin where the view begins in the file */
export async function readView(
  file: number,
  begin: number,
  { unit, dims, from }: MovedElements,
  target: Uint8Array,
  reads: ViewReads,
): Promise<void> {
  // Strides in the result follow from the counts.
  let to = unit;
  const all = dims.toReversed().map(([count, stride]): BoxDimension => {
    const one = { count, from: stride, to };
    to *= count;
    return one;
  });
  const [first, last] = [Math.floor(from / unit), Math.ceil((from + target.length) / unit)];
  // Read runs that are cut as a whole, and take the wanted bytes.
  const isCut = from % unit !== 0 || target.length % unit !== 0;
  const taken = isCut ? new Uint8Array((last - first) * unit) : target;
  for (const box of boxesWithin({ dims: all.reverse(), unit, from: 0, to: -first * unit }, first, last))
    await readBox(box, file, begin, taken, reads);
  if (isCut) target.set(taken.subarray(from - first * unit, from - first * unit + target.length));
}

// ------------------------------------------------------------------------------------------------------------------------- arrays

/** Bytes that are rearranged at a time. Each such band of an array may require reading all of its bytes. */
const bandBytes = 2 ** 24;
/** Most bytes of one read. */
const arrayReadBytes = 2 ** 20;
/** Largest gap that is read rather than skipped. */
const smallGap = 2 ** 16;

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
  readonly #offset: number;
  readonly #elementBytes: number;
  /** Shape without dimensions of 1, and the strides of these axes in elements. */
  readonly #shape: readonly number[];
  readonly #strides: readonly number[];
  readonly #reads: ViewReads;
  /** The axis that is cut, the number of elements per index of it, and the number of indices per band. */
  readonly #axis: number;
  readonly #inner: number;
  readonly #indices: number;
  /**
   * Elements in memory, from `begin` to before `end` in row-major order: a range of indices of one axis, a fixed index of each axis before it,
   * and all of those after.
   */
  #band: { readonly begin: number; readonly end: number; readonly bytes: Uint8Array<ArrayBuffer> } = {
    begin: 0,
    end: 0,
    bytes: new Uint8Array(0),
  };
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
    this.#offset = offset;
    this.#elementBytes = elementBytes;
    this.#shape = shape.filter((dimension) => dimension !== 1);
    this.#strides = strides.filter((_, axis) => shape[axis] !== 1);
    const read: ReadInto = (_file, begin, memory, from, to) => fillFrom(source, begin, memory.subarray(from, to));
    this.#reads = { read, isNear: false, most: arrayReadBytes, smallGap, spare: [] };
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
    const [axis, inner, size] = [this.#axis, this.#inner, this.#elementBytes];
    const dimension = this.#shape[axis] ?? 1;
    const line = Math.floor(element / (inner * dimension));
    const from = Math.floor((element % (inner * dimension)) / (inner * this.#indices)) * this.#indices;
    const count = Math.min(this.#indices, dimension - from);
    const begin = line * inner * dimension + from * inner;
    // Reuse the memory of the band before.
    const room = this.#band.bytes.buffer;
    const bytes = count * inner * size;
    const target =
      room.byteLength >= bytes ? new Uint8Array(room, 0, bytes) : allocate(bytes, ' of a rearranged array');
    this.#band = { begin: 0, end: 0, bytes: target };
    const dims = this.#shape.map((n, i) => [n, (this.#strides[i] as number) * size] as const);
    await readView(0, this.#offset, { unit: size, dims, from: begin * size }, target, this.#reads);
    this.#band = { begin, end: begin + count * inner, bytes: target };
  }
}
