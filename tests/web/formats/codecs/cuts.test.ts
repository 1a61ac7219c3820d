import { describe, expect, it } from 'vitest';
import type { Form, Part, Rectangle, Role, TileCut } from '../../../../web/src/formats/codecs/codec.js';
import { tileElements } from '../../../../web/src/formats/codecs/codec.js';
import { codecOf, partsOf } from '../../../../web/src/formats/codecs/registry.js';

const codes = (form: object) => ({
  codec: 'compressed-tensors',
  type: 'int',
  bits: 8,
  symmetric: true,
  groupSize: undefined,
  packed: false,
  scale: 'F32',
  ...form,
});

const forms: readonly (readonly [what: string, form: Form, shapes: readonly (readonly number[])[]])[] = [
  ['a copy of floats', { codec: 'copy', dtype: 'BF16', bytes: 2 * 70 * 33 } as Form, [[70, 33]]],
  ['a copy of bytes', { codec: 'copy', dtype: 'I64', bytes: 8 * 5 } as Form, [[5]]],
  ['a long copy', { codec: 'copy', dtype: 'U8', bytes: 4 * tileElements + 5 } as Form, [[4 * tileElements + 5]]],
  ['a cast', { codec: 'cast', to: 'F16' } as Form, [[], [3], [1025, 1024]]],
  ['blocks', { codec: 'ggml', to: 'Q4_K' } as Form, [[256], [4100, 256]]],
  [
    'codes',
    codes({}),
    [
      [1, 1],
      [70, 33],
      [6, 5, 7, 3],
      [4200, 256],
      [2, tileElements + 128],
    ],
  ],
  [
    'codes with zero points',
    codes({ symmetric: false, scale: 'BF16' }),
    [
      [70, 33],
      [2, tileElements + 128],
    ],
  ],
  [
    'float8',
    codes({ type: 'float', scale: 'F16' }),
    [
      [70, 33],
      [2, tileElements + 128],
    ],
  ],
  [
    'words',
    codes({ packed: true }),
    [
      [9, 45],
      [2, tileElements + 3],
    ],
  ],
  [
    'words with zero points',
    codes({ packed: true, symmetric: false }),
    [
      [9, 45],
      [9, tileElements / 4 + 8],
      [2, 262_153],
    ],
  ],
  [
    'groups',
    codes({ bits: 4, packed: true, groupSize: 32 }),
    [
      [9, 64],
      [9, tileElements + 64],
    ],
  ],
  [
    'groups with zero points',
    codes({ bits: 4, packed: true, groupSize: 64, symmetric: false, scale: 'F16' }),
    [
      [17, 128],
      [9, 131_200],
      [11, tileElements + 64],
    ],
  ],
  [
    'a group longer than a tile',
    codes({ bits: 4, packed: true, groupSize: 2 ** 18, symmetric: false }),
    [[9, 2 ** 18]],
  ],
];

/** The tiles that make some parts. Ranges that are asked for are answered with [-1, 1]. */
function tilesOf(shape: readonly number[], form: Form, roles: readonly Role[]): TileCut[] {
  const tiles: TileCut[] = [];
  const cuts = codecOf(form).cuts?.(shape, form, roles);
  if (cuts === undefined) throw new Error(`tensors of ${form.codec} are only read`);
  for (let next = cuts.next(); !next.done; ) {
    const cut = next.value;
    if (cut.kind === 'tile') tiles.push(cut);
    next = cuts.next(cut.kind === 'range' ? ([-1, 1] as const) : undefined);
  }
  return tiles;
}

/** Fails unless runs cover [0, size) once each. */
function expectCovered(runs: readonly (readonly [begin: number, end: number])[], size: number, what: string): void {
  const sorted = [...runs].sort((a, b) => a[0] - b[0]);
  let end = 0;
  for (const [begin, next] of sorted) {
    expect(begin, `${what}: where a run begins`).toBe(end);
    end = next;
  }
  expect(end, `${what}: where the last one ends`).toBe(size);
}

const stored = (parts: readonly Part[]) => parts.filter(({ constant }) => constant === undefined);

describe('the tiles of a tensor', () => {
  it.each(forms)('make every byte of its parts once: %s', (_what, form, shapes) => {
    const codec = codecOf(form);
    for (const shape of shapes) {
      const parts = stored(partsOf(shape, form));
      const roles = parts.map(({ role }) => role);
      for (const wanted of [roles, ...roles.map((role) => [role])]) {
        const tiles = tilesOf(shape, form, wanted);
        for (const { role, bytes } of parts.filter((part) => wanted.includes(part.role))) {
          const runs = tiles
            .filter((tile) => tile.roles.includes(role))
            .flatMap(({ rectangle }) => {
              const { offset, bytes: length, count, stride } = codec.runs(shape, form, role, rectangle);
              return Array.from({ length: count }, (_, i) => {
                return [offset + i * stride, offset + i * stride + length] as const;
              });
            });
          expectCovered(runs, bytes, `${role} of [${shape}], asked for ${wanted}`);
        }
      }
    }
  });

  it.each(forms)('are rectangles of its grid, no larger than they have to be: %s', (_what, form, shapes) => {
    for (const shape of shapes) {
      const { rows, rowUnit, columnUnit } = codecOf(form).grid(shape, form);
      const roles = stored(partsOf(shape, form)).map(({ role }) => role);
      for (const { rectangle, roles: made, ranges } of tilesOf(shape, form, roles)) {
        const { row, rows: count, column, columns, width }: Rectangle = rectangle;
        if (rows !== undefined) expect(row + count).toBeLessThanOrEqual(rows);
        expect(column % columnUnit).toBe(0);
        expect(column + columns).toBeLessThanOrEqual(width);
        // Codes alone may be cut between the rows of a word of zero points.
        if (made.includes('zeroPoint')) expect(row % rowUnit).toBe(0);
        if (ranges !== undefined) expect(ranges).toHaveLength(2 * count);
        if (made.includes('data')) {
          const most = form.codec === 'copy' ? 4 * tileElements : tileElements;
          expect(count * columns).toBeLessThanOrEqual(Math.max(most, columnUnit));
        }
      }
    }
  });

  it('have a place for each row of a rectangle, or one for all', () => {
    const form = codes({ bits: 4, packed: true, groupSize: 32, symmetric: false, scale: 'F16' });
    const codec = codecOf(form);
    const shape = [20, 128];
    const part = { row: 8, rows: 9, column: 32, columns: 64, width: 128 };
    // 128 codes are 64 bytes; 4 groups a row.
    expect(codec.runs(shape, form, 'data', part)).toEqual({ offset: 8 * 64 + 16, bytes: 32, count: 9, stride: 64 });
    expect(codec.runs(shape, form, 'scale', part)).toEqual({ offset: (8 * 4 + 1) * 2, bytes: 4, count: 9, stride: 8 });
    // Eight rows share a word: rows 8 to 16 lie in the second and third.
    expect(codec.runs(shape, form, 'zeroPoint', part)).toEqual({
      offset: (4 + 1) * 4,
      bytes: 8,
      count: 2,
      stride: 16,
    });
    const whole = { row: 8, rows: 8, column: 0, columns: 128, width: 128 };
    expect(codec.runs(shape, form, 'data', whole)).toEqual({ offset: 512, bytes: 512, count: 1, stride: 512 });
  });
});

describe('the tiles of a tensor whose columns have an importance', () => {
  it.each([[[]], [[2]], [[3, 2]]])('have that of their matrix: dimensions [%s] before it', (outer) => {
    // Two matrices have an importance of their own.
    const matrices = outer.at(-1) ?? 1;
    const importance = Float32Array.from({ length: 32 * matrices }, (_, i) => i);
    const shape = [...outer, 5, 32];
    const form = { codec: 'ggml', to: 'Q4_0', importance } as Form;
    const tiles = tilesOf(shape, form, ['data']);
    expect(tiles.map(({ rectangle: { row, rows } }) => [row, rows])).toEqual(tiles.map((_, i) => [5 * i, 5]));
    expect(tiles).toHaveLength(outer.reduce((all, n) => all * n, 1));
    for (const [i, { form: own }] of tiles.entries()) {
      const from = (i % matrices) * 32;
      expect(own).toEqual({ ...form, importance: importance.slice(from, from + 32) });
    }
  });
});
