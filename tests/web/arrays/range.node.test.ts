/// <reference types="vite/client" />
// Ranges that are searched for: PyTorch's observers, the bits of both builds, any input, errors.
import type { QuantizeOptions } from 'scalepoint';
import { expect, it } from 'vitest';
import pytorchText from '../../golden/pytorch.json?raw';
import {
  describeBuilds,
  expectCode,
  expectGood,
  expectRefusal,
  expectSame,
  memorySize,
  Random,
} from '../support/support.js';

interface Observed {
  scale: number;
  zero_point: number;
  mse: number;
}
interface Golden {
  kind: string;
  dist: string;
  x: number[];
  [observer: string]: unknown;
}
const goldens = (JSON.parse(pytorchText) as { cases: Golden[] }).cases.filter((c) => c.kind === 'observers');

const ranges: NonNullable<QuantizeOptions['range']>[] = ['mse', 'entropy', { percentile: 99 }, { percentile: 100 }];

/**
 * The search promises that no scale has an error lower by more than 0.1 %. Each of two errors is a float32 sum, off by 70 * 2^-24. Native
 * tests hold the search to the same bound against an exhaustive one.
 */
const slack = 1.001 + 140 * 2 ** -24;

describeBuilds('range', (sp) => {
  it.each(goldens.map((c) => [c.dist, c] as const))("'mse' errs no more than any observer of PyTorch: %s", (_, c) => {
    const x = new Float32Array(c.x);
    for (const [name, observed] of Object.entries(c)) {
      if (typeof observed !== 'object' || observed === null || !('mse' in observed)) continue;
      const { scale, zero_point: zeroPoint } = observed as Observed;
      const dtype = name.includes('quint8') ? 'uint8' : 'int8';
      const scheme = name.includes('symmetric') ? 'symmetric' : 'asymmetric';
      const theirs = sp.compare(x, sp.quantize(x, { dtype, range: { scale, zeroPoint } })).mse;
      const ours = sp.compare(x, sp.quantize(x, { dtype, scheme, range: 'mse' })).mse;
      expect([name, ours <= theirs * slack]).toEqual([name, true]);
    }
  });

  it('is found in arrays of every kind, and of more than a tile', () => {
    const random = new Random(3);
    const x = random.bell(150_000);
    const inside = sp.allocate('float32', x.length);
    inside.view.set(x);
    const halves = sp.castFloat(x, 'float16');
    for (const range of ranges) {
      const want = sp.chooseQuantizationParameters(x, { range });
      for (const input of [inside, Float64Array.from(x), [...x]]) {
        const got = sp.quantize(input, { range });
        expectSame(got.scale, want.scale);
        expectSame(sp.dequantize(got), sp.dequantize(sp.quantize(x, { range })));
      }
      const restored = sp.castToFloat32(halves, 'float16');
      expectSame(sp.quantize(halves, { range, from: 'float16' }).scale, sp.quantize(restored, { range }).scale);
    }
    inside.dispose();
  });

  it('leaves no memory behind', () => {
    const x = new Random(4).bell(100_000);
    sp.quantize(x, { range: 'mse' });
    const before = memorySize(sp);
    for (let i = 0; i < 20; i++) {
      sp.quantize(x, { range: 'mse', granularity: { kind: 'per-group', groupSize: 64 } });
      expectRefusal(() => sp.quantize(x, { range: { percentile: i } }), RangeError, 'range.percentile');
    }
    expect(memorySize(sp)).toBe(before);
  });

  it('is refused by name, and so are values that are not finite', () => {
    const x = new Float32Array(8).fill(1);
    const bad = (range: unknown) => () => sp.quantize(x, { range } as never);
    for (const range of ['mean', {}, 3]) expectRefusal(bad(range), RangeError, 'range');
    expectRefusal(bad({ percentiles: 99 }), TypeError, 'range.percentiles');
    for (const percentile of [50, 101, NaN]) expectRefusal(bad({ percentile }), RangeError, 'range.percentile');
    expectRefusal(bad({ percentile: '99' }), TypeError, 'range.percentile');
    x[3] = NaN;
    for (const range of ranges) {
      expect(expectCode(() => sp.quantize(x, { range }), 'NON_FINITE').message).toContain('x[3] is NaN');
      expect(sp.quantize(x, { range, nonFinite: 'saturate' }).scale[0]).toBeGreaterThan(0);
    }
    expectGood(sp);
  });
});

describeBuilds('compare per channel', (sp) => {
  it('takes codebooks as well', () => {
    const x = new Random(6).bell(4 * 64);
    const q = sp.quantizeCodebook(x, { codebook: 'nf4', blockSize: 64, shape: [4, 64] });
    const rows = sp.compare(x, q, { per: 'channel', axis: 0 });
    expect(rows).toHaveLength(4);
    const restored = sp.dequantize(q);
    for (const [i, row] of rows.entries()) {
      const part = [i * 64, (i + 1) * 64] as const;
      expect(row.mse).toBeCloseTo(sp.compare(x.subarray(...part), restored.subarray(...part)).mse, 9);
    }
  });
});
