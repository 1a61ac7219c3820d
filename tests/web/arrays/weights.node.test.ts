// Blocks with the importance of columns, beside ggml's own functions.
import { type BlockType, blockTypeInfo, blockTypes } from 'scalepoint';
import { expect, it } from 'vitest';
import { blockSets, isGrid } from '../support/blockdata.js';
import { ggmlDequantize, ggmlQuantize } from '../support/ggml.js';
import { needNative } from '../support/native.js';
import { isSlow } from '../support/slow-native.js';
import { describeLarge, expectCode, expectRefusal, expectSame, Random } from '../support/support.js';

needNative();

const rows = 10;
/** Types with grids have tests of their own (grids.node.test.ts). */
const types = blockTypes.filter((type) => !isGrid(type));

/** Importances of n columns, each set of another kind. */
const importances: Readonly<Record<string, (random: Random, n: number) => Float32Array>> = {
  'all alike': (_random, n) => new Float32Array(n).fill(1),
  'like squares of activations': (random, n) => random.bell(n).map((v) => v * v),
  'of any size': (random, n) => Float32Array.from({ length: n }, () => 2 ** (random.below(40) - 20)),
  'with zeros': (random, n) => random.uniform(n, -1, 1).map((v) => Math.max(v, 0)),
  'one column above all': (random, n) => {
    const values = random.uniform(n, 0, 1e-6);
    values[random.below(n)] = 1e6;
    return values;
  },
};

interface Case {
  readonly what: string;
  readonly x: Float32Array;
  readonly importance: Float32Array;
  readonly blocks: Uint8Array;
  /** True if ggml restores finite floats. If not, llama-quantize refuses the file. */
  readonly isGood: boolean;
}

function casesOf(type: BlockType): Case[] {
  const { elements } = blockTypeInfo(type);
  // As many blocks of every type; rows of one block, and of more.
  const columns = [elements, 3 * elements];
  return Object.entries(importances).flatMap(([kind, make], i) =>
    columns.flatMap((n, j) =>
      blockSets(n, rows * (elements === 32 ? 6 : 1), 60 + 2 * i + j).map(({ name, x }, k) => {
        const importance = make(new Random(90 + k), n);
        const blocks = ggmlQuantize(type, x, importance);
        const isGood = ggmlDequantize(type, blocks).every(Number.isFinite);
        return { what: `${name}, ${kind}, rows of ${n}`, x, importance, blocks, isGood };
      }),
    ),
  );
}

const cases = new Map<BlockType, Case[]>();

/** Made once for all builds. */
function knownCases(type: BlockType): Case[] {
  const known = cases.get(type) ?? casesOf(type);
  cases.set(type, known);
  return known;
}

describeLarge('quantizeBlocks with weights', (sp) => {
  it.each(types)("gives ggml's bytes for %s", (type) => {
    let good = 0;
    for (const { what, x, importance, blocks, isGood } of knownCases(type)) {
      const options = { weights: importance, shape: [x.length / importance.length, importance.length] };
      if (isGood) {
        expectSame(sp.quantizeBlocks(x, type, options).data, blocks, what);
        good++;
      } else {
        expectCode(() => sp.quantizeBlocks(x, type, options), 'OVERFLOW');
      }
    }
    expect(good).toBeGreaterThan(150);
  });

  it.each(blockTypes.filter((type) => !isSlow(type)))(
    'of any length gives the same in wasm memory and from halves in %s',
    (type) => {
      const { elements } = blockTypeInfo(type);
      const random = new Random(3);
      for (const columns of [elements * 5, 256 * 75]) {
        const x = random.bell(columns * 3).map((v) => Math.fround(Math.round(v * 256) / 256));
        const weights = random.uniform(columns, 0, 1);
        const want = ggmlQuantize(type, x, weights);
        const options = { weights, shape: [3, columns] };
        expectSame(sp.quantizeBlocks(x, type, options).data, want);
        expectSame(sp.quantizeBlocks(sp.castFloat(x, 'float16'), type, { ...options, from: 'float16' }).data, want);
        const [inside, out] = [sp.allocate('float32', x.length), sp.allocate('uint8', want.length)];
        inside.view.set(x);
        sp.quantizeBlocks(inside, type, { ...options, weights: [...weights], out });
        expectSame(out.view.slice(), want);
        inside.dispose();
        out.dispose();
      }
    },
  );

  it('takes rows that are longer than its tiles', () => {
    const columns = (1 << 17) + 256 * 3;
    const random = new Random(4);
    const x = random.bell(columns * 2);
    const weights = random.uniform(columns, 0, 1);
    const got = sp.quantizeBlocks(x, 'Q4_0', { weights, shape: [2, columns] });
    expectSame(got.data, ggmlQuantize('Q4_0', x, weights));
  });

  it('refuses values that are not weights, by name', () => {
    const x = new Random(5).bell(512);
    const wrong = (weights: unknown) => () =>
      sp.quantizeBlocks(x, 'Q4_K', { weights: weights as Float32Array, shape: [2, 256] });
    expectRefusal(wrong(new Float32Array(255)), RangeError, 'weights');
    expectRefusal(wrong(new Float32Array(512)), RangeError, 'weights');
    expectRefusal(wrong(new Int32Array(256)), TypeError, 'weights');
    for (const bad of [Number.NaN, Infinity, -1]) {
      expectRefusal(wrong(new Float32Array(256).fill(bad, 77, 78)), RangeError, 'weights');
    }
    const nan = x.slice();
    nan[300] = Number.NaN;
    const error = expectCode(
      () => sp.quantizeBlocks(nan, 'Q4_K', { weights: new Float32Array(256), shape: [2, 256] }),
      'NON_FINITE',
    );
    expect(error.message).toContain('x[300] is NaN');
  });
});
