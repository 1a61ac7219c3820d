// Arrays at strides: every element in its place, whatever the shape, in bounded memory.
import { expect, it } from 'vitest';
import { openSource } from '../../../web/src/formats/files/open.js';
import { columnMajorStrides, rowMajorStrides, StridedReader } from '../../../web/src/formats/strided.js';

/** Writes the number of each element, counted row by row, in column-major order. */
function columnMajor(shape: readonly number[], size: number): Uint8Array<ArrayBuffer> {
  const count = shape.reduce((product, dimension) => product * dimension, 1);
  const bytes = new Uint8Array(count * size);
  const strides = shape.map((_, axis) => shape.slice(0, axis).reduce((product, dimension) => product * dimension, 1));
  for (let row = 0; row < count; row++) {
    let rest = row;
    let at = 0;
    for (let axis = shape.length - 1; axis >= 0; axis--) {
      at += (rest % (shape[axis] as number)) * (strides[axis] as number);
      rest = Math.floor(rest / (shape[axis] as number));
    }
    for (let i = 0; i < size; i++) bytes[at * size + i] = byteOf(row, i);
  }
  return bytes;
}
/** Byte i of the element of that number. */
const byteOf = (row: number, i: number) => (row * 31 + Math.floor(row / 256) * 7 + i * 101) & 255;

/** Reads bytes [begin, end). */
async function readFrom(reader: StridedReader, begin: number, end: number): Promise<Uint8Array> {
  const bytes = new Uint8Array(end - begin);
  await reader.readInto(begin, bytes);
  return bytes;
}

/** Fails unless the bytes are those of consecutive elements. */
function expectElements(bytes: Uint8Array, begin: number, size: number): void {
  const wrong = bytes.findIndex((byte, at) => byte !== byteOf(begin + Math.floor(at / size), at % size));
  expect(wrong).toBe(-1);
}

it.each<[readonly number[], number]>([
  [[5, 7], 4],
  [[2, 3, 4], 1],
  [[3, 1, 4, 1, 5], 2],
  [[4, 3, 2, 3], 8],
  [[60, 50], 4],
])('of shape %j with elements of %i bytes', async (shape, size) => {
  const offset = 13;
  const bytes = columnMajor(shape, size);
  const file = new Uint8Array([...new Uint8Array(offset), ...bytes, 9, 9]);
  const reader = new StridedReader(await openSource(file), offset, shape, columnMajorStrides(shape), size);
  const count = bytes.length / size;
  expectElements(await readFrom(reader, 0, bytes.length), 0, size);
  const pieces = [0, 1, Math.floor(count / 3), Math.floor(count / 2), count - 1, count];
  await Promise.all(
    pieces.flatMap((begin) =>
      pieces
        .filter((end) => end >= begin)
        .map(async (end) => expectElements(await readFrom(reader, begin * size, end * size), begin, size)),
    ),
  );
});

// Bands of 4 KiB. These arrays have several: of rows, of parts of a row, of parts of rows of rows.
it.each<[readonly number[], number]>([
  [[60, 61], 4],
  [[9, 3003], 4],
  [[3, 3, 1300], 4],
  [[2, 9001], 2],
  [[4501, 2], 8],
  [[7, 11, 13, 2], 1],
  [[17_001, 3], 1],
])('of shape %j with elements of %i bytes, in bounded memory', async (shape, size) => {
  const bytes = columnMajor(shape, size);
  const count = bytes.length / size;
  const source = await openSource(bytes);
  let read = 0;
  const counting = {
    ...source,
    readInto: (begin: number, target: Uint8Array) => {
      expect(target.length).toBeLessThanOrEqual(2 ** 20);
      read += target.length;
      return source.readInto?.(begin, target) as Promise<void>;
    },
  };
  const most = 4096;
  const reader = new StridedReader(counting, 0, shape, columnMajorStrides(shape), size, most);
  const step = 503;
  for (let begin = 0; begin < count; begin += step) {
    const end = Math.min(count, begin + step);
    expectElements(await readFrom(reader, begin * size, end * size), begin, size);
  }
  // Each band once, and for each at most all of the array. Bands are as full as their axis lets them be.
  expect(read).toBeLessThanOrEqual(bytes.length * Math.ceil((2 * bytes.length) / most));
});

it('reads a band again after an error', async () => {
  const bytes = columnMajor([60, 61], 4);
  const source = await openSource(bytes);
  let fails = true;
  const broken = {
    ...source,
    readInto: (begin: number, target: Uint8Array) => {
      if (fails) return Promise.reject(new Error('once'));
      return source.readInto?.(begin, target) as Promise<void>;
    },
  };
  const reader = new StridedReader(broken, 0, [60, 61], [1, 60], 4);
  await expect(readFrom(reader, 0, 400)).rejects.toThrow('once');
  fails = false;
  expectElements(await readFrom(reader, 0, 400), 0, 4);
});

// Permuted axes, slices with gaps, and elements that repeat.
it.each<[readonly number[], readonly number[], number]>([
  [[4, 5, 6], [1, 24, 4], 4],
  [[4, 5, 6], [6, 24, 1], 2],
  [[5, 7], [20, 1], 8],
  [[5, 7], [30, 3], 1],
  [[3, 4, 5], [0, 5, 1], 4],
  [[3, 4, 5], [20, 0, 1], 2],
  [[6, 9], [0, 0], 4],
  [[50, 70, 3], [1, 50, 7000], 4],
  [[1, 4], [999, 2], 2],
])('of shape %j at strides %j with elements of %i bytes', async (shape, strides, size) => {
  const last = shape.reduce((sum, dimension, i) => sum + (dimension - 1) * (strides[i] as number), 0);
  const file = Uint8Array.from({ length: 5 + (last + 1) * size }, (_, i) => (i * 37 + (i >> 8) * 11) & 255);
  const count = shape.reduce((product, dimension) => product * dimension, 1);
  const rows = rowMajorStrides(shape);
  const expected = new Uint8Array(count * size);
  for (let i = 0; i < count; i++) {
    const at = shape.reduce(
      (sum, dimension, k) => sum + (Math.floor(i / (rows[k] as number)) % dimension) * (strides[k] as number),
      0,
    );
    expected.set(file.subarray(5 + at * size, 5 + (at + 1) * size), i * size);
  }
  for (const most of [64, 4096, undefined]) {
    const reader = new StridedReader(await openSource(file), 5, shape, strides, size, most);
    const step = Math.max(1, Math.floor(count / 3));
    for (let begin = 0; begin < count; begin += step) {
      const end = Math.min(count, begin + step);
      expect(await readFrom(reader, begin * size, end * size)).toEqual(expected.slice(begin * size, end * size));
    }
  }
});
