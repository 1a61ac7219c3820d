// Strided views of files beside the plainest way to read them: element by element.
import { describe, expect, it } from 'vitest';
import { type ReadInto, readView } from '../../../web/src/formats/strided.js';
import { xorshift } from '../support/xorshift.js';

type Dimensions = readonly (readonly [count: number, stride: number])[];

/** The bytes of a view, run by run. */
function plainly(file: Uint8Array, begin: number, unit: number, dims: Dimensions): Uint8Array {
  const starts = dims.reduce<number[]>(
    (all, [count, stride]) => all.flatMap((at) => Array.from({ length: count }, (_, i) => at + i * stride)),
    [begin],
  );
  return Uint8Array.from(starts.flatMap((at) => [...file.subarray(at, at + unit)]));
}

const bytes = (n: number) => {
  const next = xorshift(7);
  return Uint8Array.from({ length: n }, () => next() & 255);
};

/** Reads of a file in memory, with the bytes of each. */
function readerOf(file: Uint8Array): { read: ReadInto; sizes: number[] } {
  const sizes: number[] = [];
  const read: ReadInto = (_file, begin, target, from, to) => {
    if (begin < 0 || begin + (to - from) > file.length) throw new Error('a read beyond the file');
    sizes.push(to - from);
    target.set(file.subarray(begin, begin + to - from), from);
  };
  return { read, sizes };
}

const views: readonly (readonly [what: string, unit: number, dims: Dimensions])[] = [
  [
    'the transpose of a 12 x 20 matrix of 2 bytes',
    2,
    [
      [20, 2],
      [12, 40],
    ],
  ],
  [
    'the transpose of a 9 x 7 matrix of 4 bytes',
    4,
    [
      [7, 4],
      [9, 28],
    ],
  ],
  [
    'the transpose of a 9 x 7 matrix of 8 bytes',
    8,
    [
      [7, 8],
      [9, 56],
    ],
  ],
  [
    'the transpose of a 9 x 7 matrix of 1 byte',
    1,
    [
      [7, 1],
      [9, 7],
    ],
  ],
  [
    'odd columns of three matrices, transposed',
    2,
    [
      [3, 120],
      [5, 4],
      [6, 20],
    ],
  ],
  [
    'rows of heads in another order',
    24,
    [
      [4, 192],
      [4, 24],
      [2, 96],
    ],
  ],
  [
    'rows of unequal heads, regrouped',
    6,
    [
      [3, 30],
      [4, 90],
      [5, 6],
    ],
  ],
  [
    'elements in turns with those of a tensor before it',
    2,
    [
      [3, 60],
      [4, 2],
      [2, -24],
    ],
  ],
  ['one run', 10, []],
  [
    'runs far apart',
    2,
    [
      [5, 50],
      [3, 3000],
    ],
  ],
];

describe('a strided view', () => {
  it.each(views)('of %s is read as element by element', async (_what, unit, dims) => {
    const [file, begin] = [bytes(20_000), 26];
    const whole = plainly(file, begin, unit, dims);
    // Memory of earlier reads is larger, and has other bytes in it.
    const spare = [new Uint8Array(10).fill(7).buffer, new Uint8Array(30_000).fill(7).buffer];
    for (const isNear of [true, false]) {
      const { read } = readerOf(file);
      const random = xorshift(unit + whole.length);
      for (let round = 0; round < 60; round++) {
        const a = round === 0 ? 0 : random() % whole.length;
        const b = round === 0 ? whole.length : a + (random() % (whole.length - a + 1));
        // Also from the middle of a run, and into memory at any place.
        const target = new Uint8Array(new ArrayBuffer(b - a + 3), round % 4 === 0 ? 3 : 0, b - a);
        await readView(0, begin, { unit, dims, from: a }, target, { read, isNear, most: 1 << 23, spare });
        expect(Buffer.compare(target, whole.subarray(a, b)), `${a} to ${b}`).toBe(0);
      }
    }
  });

  it('is read in few pieces where its runs lie close to each other, and in bounded ones', async () => {
    const [rows, columns] = [3000, 3000];
    const file = new Uint8Array(2 * rows * columns);
    // 300 columns of a transpose.
    const dims = [
      [columns, 2],
      [rows, 2 * columns],
    ] as const;
    const target = new Uint8Array(2 * 300 * rows);
    for (const isNear of [false, true]) {
      const { read, sizes } = readerOf(file);
      await readView(0, 0, { unit: 2, dims, from: 2 * 600 * rows }, target, { read, isNear, most: 1 << 23, spare: [] });
      expect(Math.max(...sizes)).toBeLessThanOrEqual(1 << 23);
      expect(sizes.length).toBeLessThanOrEqual(isNear ? rows : 3);
      // Local files are read without the bytes between runs.
      if (isNear) expect(sizes.reduce((a, b) => a + b)).toBe(target.length);
    }
    // Elements in turns with those of a tensor before it are one read.
    const { read, sizes } = readerOf(file);
    const view = { unit: 2, dims: [[1000, 2] as const, [2, -2000] as const], from: 0 };
    await readView(0, 2000, view, new Uint8Array(4000), { read, isNear: false, most: 1 << 23, spare: [] });
    expect(sizes.length).toBe(1);
  });
});
