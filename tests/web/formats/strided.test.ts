// Column-major arrays: every element in its place, whatever the shape, in bounded memory.
import { expect, it } from 'vitest';
import { openSource } from '../../../web/src/files/open.js';
import { ColumnMajorReader } from '../../../web/src/formats/strided.js';

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
async function readFrom(reader: ColumnMajorReader, begin: number, end: number): Promise<Uint8Array> {
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
  const reader = new ColumnMajorReader(await openSource(file), offset, shape, size);
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
  const reader = new ColumnMajorReader(counting, 0, shape, size, most);
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
  const reader = new ColumnMajorReader(broken, 0, [60, 61], 4);
  await expect(readFrom(reader, 0, 400)).rejects.toThrow('once');
  fails = false;
  expectElements(await readFrom(reader, 0, 400), 0, 4);
});
