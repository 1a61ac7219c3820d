// The types with grids beside ggml's own functions, with the importance of columns and without.
import { type BlockType, blockTypeInfo, blockTypes, type Scalepoint, type ScalepointError } from 'scalepoint';
import { expect, it } from 'vitest';
import { blockSets, isGrid } from '../support/blockdata.js';
import { ggmlDequantize, ggmlQuantize } from '../support/ggml.js';
import { needNative } from '../support/native.js';
import { expectRecorded, isSlow } from '../support/slow-native.js';
import {
  describeLarge,
  difference,
  expectCode,
  expectRefusal,
  expectSame,
  largeCores,
  Random,
} from '../support/support.js';

needNative();

const types = blockTypes.filter(isGrid);
const quick = types.filter((type) => !isSlow(type));
const columns = 512;

/** Importances, each set of another kind. */
const importances: Readonly<Record<string, (random: Random) => Float32Array>> = {
  'all alike': () => new Float32Array(columns).fill(1),
  'like squares of activations': (random) => random.bell(columns).map((v) => v * v),
  'of any size': (random) => Float32Array.from({ length: columns }, () => 2 ** (random.below(40) - 20)),
  'with zeros': (random) => random.uniform(columns, -1, 1).map((v) => Math.max(v, 0)),
  'one column above all': (random) => {
    const values = random.uniform(columns, 0, 1e-6);
    values[random.below(columns)] = 1e6;
    return values;
  },
};

/** Few levels, sub-blocks of zeros among others, and elements of any size. */
function moreSets(rows: number, seed: number): { name: string; x: Float32Array }[] {
  const random = new Random(seed);
  const x = () => random.bell(columns * rows);
  return [
    { name: 'sub-blocks of zeros', x: x().map((v, i) => (Math.floor(i / 16) % 3 === 0 ? 0 : v)) },
    { name: 'sub-blocks of any size', x: x().map((v, i) => v * 2 ** ((Math.floor(i / 16) % 40) - 30)) },
    { name: 'few levels', x: x().map((v) => Math.round(v * 2) / 4) },
    { name: 'a level and its halves', x: x().map((v, i) => Math.sign(v) * 2 ** -(i % 3)) },
  ];
}

interface Case {
  readonly what: string;
  readonly x: Float32Array;
  readonly weights: Float32Array | undefined;
}

/** Rows of every kind with importances of every kind. */
function* casesOf(type: BlockType, rows: number): Generator<Case> {
  const kinds = Object.entries(importances);
  const { needsWeights } = blockTypeInfo(type);
  for (const [i, [kind, make]] of [...kinds, ...(needsWeights ? [] : [['none', undefined] as const])].entries()) {
    for (const { name, x } of [...blockSets(columns, rows, 60 + i), ...moreSets(rows, i)]) {
      yield { what: `${name}, importance ${kind}`, x, weights: make?.(new Random(90 + i)) };
    }
  }
}

const blocksOf = (sp: Scalepoint, type: BlockType, x: Float32Array, weights: Float32Array | undefined) =>
  sp.quantizeBlocks(x, type, { shape: [x.length / columns, columns], ...(weights && { weights }) }).data;

const joined = (all: readonly Uint8Array[]) => new Uint8Array(Buffer.concat(all));

const simd = largeCores.find(({ build }) => build === 'SIMD')?.sp as Scalepoint;

const scalar = largeCores.find(({ build }) => build === 'scalar')?.sp as Scalepoint;

/** The rows that are not too large, and the others: for these ggml may end the process. */
function sorted({ x, weights }: Case, type: BlockType) {
  const fits = (rows: Float32Array) => {
    try {
      return blocksOf(simd, type, rows, weights).length > 0;
    } catch {
      return false;
    }
  };
  if (fits(x)) return { good: x, bad: [] };
  const rows = Array.from({ length: x.length / columns }, (_, i) => x.slice(i * columns, (i + 1) * columns));
  const good = rows.filter(fits);
  return { good: Float32Array.from(good.flatMap((row) => [...row])), bad: rows.filter((row) => !good.includes(row)) };
}

it.each(types)("gives ggml's bytes for %s", async (type) => {
  const all: Uint8Array[] = [];
  const fromGgml: (() => Uint8Array)[] = [];
  for (const one of casesOf(type, 4)) {
    const { good, bad } = sorted(one, type);
    const made = blocksOf(simd, type, good, one.weights);
    expectSame(blocksOf(scalar, type, good, one.weights), made, one.what);
    expect(ggmlDequantize(type, made).every(Number.isFinite), one.what).toBe(true);
    if (isSlow(type)) fromGgml.push(() => ggmlQuantize(type, good, one.weights));
    else expectSame(made, ggmlQuantize(type, good, one.weights), one.what);
    all.push(made);
    for (const row of bad) {
      // Only the largest numbers there are may be too large.
      expect(Math.max(...row.map(Math.abs)), one.what).toBeGreaterThan(2 ** 19);
      expectCode(() => blocksOf(scalar, type, row, one.weights), 'OVERFLOW');
    }
  }
  if (isSlow(type)) await expectRecorded(`${type}, some`, joined(all), () => joined(fromGgml.map((make) => make())));
});

it.each(types)("gives ggml's bytes for 10,000 blocks of %s", async (type) => {
  const cases = [...casesOf(type, 50)].filter(({ what }) => !/^(large|any finite float)/.test(what));
  const made = joined(cases.map(({ x, weights }) => blocksOf(simd, type, x, weights)));
  await expectRecorded(`${type}, many`, made, () =>
    joined(cases.map(({ x, weights }) => ggmlQuantize(type, x, weights))),
  );
  expect(made.length / blockTypeInfo(type).bytes).toBeGreaterThanOrEqual(10_000);
});

describeLarge('types with grids', (sp) => {
  it.each(types)('are restored as ggml does from any bytes of %s', (type) => {
    const { bytes } = blockTypeInfo(type);
    const random = new Random(9);
    const data = Uint8Array.from({ length: bytes * 3000 }, () => random.bits() & 255);
    const canonical = (floats: Float32Array) => floats.map((v) => (Number.isNaN(v) ? Number.NaN : v));
    const restored = sp.dequantize({ kind: 'blocks', type, shape: [3000 * 256], data });
    const want = ggmlDequantize(type, data);
    expect(difference(canonical(restored), canonical(want))).toBeUndefined();
    expect(want.some(Number.isNaN)).toBe(true);
  });

  it('are refused without the importance of columns where ggml refuses them, by name', () => {
    const x = new Random(2).bell(512);
    for (const type of types) {
      const make = () => sp.quantizeBlocks(x, type);
      if (blockTypeInfo(type).needsWeights) expectRefusal(make, RangeError, 'weights');
      else expect(make().data).toHaveLength(2 * blockTypeInfo(type).bytes);
    }
  });

  it.each(quick)('are made of zeros, and of what is less than ggml looks at, in %s', (type) => {
    const weights = new Float32Array(256).fill(1);
    for (const v of [0, -0, 2 ** -149, 1e-20, 1e-16, 1e-12, 1e-8, 9.9e-8]) {
      const x = new Float32Array(256).fill(v);
      x[17] = -v;
      const got = sp.quantizeBlocks(x, type, { shape: [1, 256], weights });
      expectSame(got.data, ggmlQuantize(type, x, weights), String(v));
    }
  });

  it.each(types)('say what is too large in %s', async (type) => {
    const weights = new Float32Array(256).fill(1);
    const make = (x: Float32Array) => sp.quantizeBlocks(x, type, { shape: [x.length / 256, 256], weights });
    const x = new Random(3).bell(512);
    expectCode(() => make(x.map((v) => 2 ** 30 * v)), 'OVERFLOW');
    // Where sums are infinite, a search may find nothing and give zeros. Then ggml does so, too.
    for (const factor of [2 ** 60, 2 ** 64, 2 ** 100]) {
      const huge = x.map((v) => factor * v);
      let made: Uint8Array<ArrayBuffer>;
      try {
        made = make(huge).data as Uint8Array<ArrayBuffer>;
      } catch (error) {
        expect((error as ScalepointError).code).toBe('OVERFLOW');
        continue;
      }
      await expectRecorded(`${type}, times ${factor}`, made, () => ggmlQuantize(type, huge, weights));
    }
    x[300] = Number.NaN;
    expect(expectCode(() => make(x), 'NON_FINITE').message).toContain('x[300] is NaN');
  });
});
