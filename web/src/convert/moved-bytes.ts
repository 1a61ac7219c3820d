/** Reads bytes whose elements change places: a strided view of a stored tensor, such as the transpose of a matrix. */
import type { MovedElements } from './task.js';

/** Reads bytes of a file, from a position on, into memory from one offset to another. Synchronous where the file allows it. */
export type ReadInto = (
  file: number,
  begin: number,
  target: Uint8Array,
  from: number,
  to: number,
) => void | Promise<void>;

/** Most bytes of one read. Heads of real models, within which rows change places, have fewer. */
const mostAtOnce = 1 << 23;
/** Runs are read together with the bytes between them up to this stride in runs, and on local files up to this gap. */
const mostStride = 32;
const nearGap = 1 << 12;

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

/** Cuts the runs [begin, end) of a view into boxes. */
function* boxesOf(
  dims: readonly BoxDimension[],
  unit: number,
  begin: number,
  end: number,
  from = 0,
  to = 0,
): Generator<Box> {
  if (begin >= end) return;
  const [first, ...rest] = dims;
  if (first === undefined) {
    yield { dims: [], from, to, unit };
    return;
  }
  const size = rest.reduce((product, { count }) => product * count, 1);
  const at = (i: number) => [from + i * first.from, to + i * first.to] as const;
  // A part of the first index, whole ones, and a part of the last one.
  const whole = [Math.ceil(begin / size), Math.floor(end / size)] as const;
  const firstPart = Math.floor(begin / size);
  if (begin % size !== 0) {
    const base = firstPart * size;
    yield* boxesOf(rest, unit, begin - base, Math.min(end, base + size) - base, ...at(firstPart));
  }
  if (whole[1] > whole[0]) {
    const [source, target] = at(whole[0]);
    const all = [{ ...first, count: whole[1] - whole[0] }, ...rest].filter(({ count }) => count > 1);
    yield { dims: all.sort((a, b) => b.from - a.from), from: source, to: target, unit };
  }
  if (end % size !== 0 && Math.floor(end / size) >= whole[0]) {
    const base = Math.floor(end / size) * size;
    yield* boxesOf(rest, unit, 0, end - base, ...at(Math.floor(end / size)));
  }
}

/** Views memory as numbers of `unit` bytes; undefined if its place or the unit forbid this. */
function numbersOf(memory: Uint8Array, unit: number) {
  if (memory.byteOffset % unit !== 0) return undefined;
  const length = Math.floor(memory.length / unit);
  if (unit === 2) return new Uint16Array(memory.buffer, memory.byteOffset, length);
  if (unit === 4) return new Uint32Array(memory.buffer, memory.byteOffset, length);
  if (unit === 8) return new BigUint64Array(memory.buffer, memory.byteOffset, length);
  return undefined;
}

/** Copies the runs of a box out of memory, which begins with the first of them. */
function scatter(held: Uint8Array, { dims, to, unit }: Box, target: Uint8Array): void {
  const [a, b] = [numbersOf(held, unit), numbersOf(target, unit)] as [Uint32Array, Uint32Array];
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

/** Reads a box: all at once where its runs lie close to each other, else piece by piece. */
async function readBox(
  box: Box,
  file: number,
  begin: number,
  target: Uint8Array,
  read: ReadInto,
  isNear: boolean,
  memory: { held: Uint8Array<ArrayBuffer> },
): Promise<void> {
  const { dims, from, to, unit } = box;
  const [first, ...rest] = dims;
  if (first === undefined) {
    await read(file, begin + from, target, to, to + unit);
    return;
  }
  // Find how many of the first dimension can be read together.
  const inner = spanOf({ dims: rest, unit });
  const isClose = rest.every((one, k) => isDense(one, spanOf({ dims: rest.slice(k + 1), unit }), isNear));
  const together =
    isClose && inner <= mostAtOnce && isDense(first, inner, isNear)
      ? Math.max(1, Math.min(first.count, Math.floor((mostAtOnce - inner) / first.from) + 1))
      : 1;
  for (let i = 0; i < first.count; i += together) {
    const count = Math.min(together, first.count - i);
    const part = { dims: [{ ...first, count }, ...rest], from: from + i * first.from, to: to + i * first.to, unit };
    if (count === 1 && (together === 1 || rest.length === 0)) {
      await readBox({ ...part, dims: rest }, file, begin, target, read, isNear, memory);
      continue;
    }
    const span = spanOf(part);
    if (memory.held.length < span) memory.held = new Uint8Array(span);
    const held = memory.held.subarray(0, span);
    await read(file, begin + part.from, held, 0, span);
    scatter(held, part, target);
  }
}

/** True if reading the runs of a dimension together costs less than one by one. */
function isDense({ from }: BoxDimension, inner: number, isNear: boolean): boolean {
  return from <= mostStride * inner && (!isNear || from - inner <= nearGap);
}

/** Fills a target with bytes of a view, from `moved.from` on. @param begin where the view begins in the file */
export async function readMoved(
  file: number,
  begin: number,
  { unit, dims, from }: MovedElements,
  target: Uint8Array,
  read: ReadInto,
  isNear: boolean,
): Promise<void> {
  // Strides in the result follow from the counts.
  let to = unit;
  const all = dims.toReversed().map(([count, stride]): BoxDimension => {
    const one = { count, from: stride, to };
    to *= count;
    return one;
  });
  const memory = { held: new Uint8Array(0) };
  const [first, last] = [Math.floor(from / unit), Math.ceil((from + target.length) / unit)];
  // Runs that are cut: read them whole, and take the wanted bytes.
  const whole = from % unit === 0 && target.length % unit === 0;
  const taken = whole ? target : new Uint8Array((last - first) * unit);
  for (const box of boxesOf(all.reverse(), unit, first, last, 0, -first * unit))
    await readBox(box, file, begin, taken, read, isNear, memory);
  if (!whole) target.set(taken.subarray(from - first * unit, from - first * unit + target.length));
}
