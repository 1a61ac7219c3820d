// Importance of columns in the search for ranges: weighted errors in float64, the bits of both builds, errors.
import type { Granularity, QuantizeOptions, Scalepoint } from 'scalepoint';
import { expect, it } from 'vitest';
import { cores, describeBuilds, dtypes, expectRefusal, parametersOf, Random } from '../support/support.js';

const shape = [6, 8, 40];
const columns = 40;
const granularities: Granularity[] = [
  { kind: 'per-tensor' },
  { kind: 'per-channel', axis: 0 },
  { kind: 'per-channel', axis: 1 },
  { kind: 'per-channel', axis: 2 },
  { kind: 'per-group', groupSize: 32 },
  { kind: 'per-group', groupSize: 3, axis: 0 },
  { kind: 'per-group', groupSize: 4, axis: 1 },
];

/** Those whose scales are for several columns. */
const mixed = [0, 1, 2, 4];

const drawn = (seed: number) => {
  const random = new Random(seed);
  const importance = Float32Array.from(random.bell(columns), (v) => v * v * v * v);
  importance[7] = 0;
  return { x: Float32Array.from(random.bell(6 * 8 * 40)), importance };
};

describeBuilds('importance in quantize', (sp) => {
  it('is never worse by weighted errors than other ranges, and mostly better', () => {
    let [better, all] = [0, 0];
    for (const [i, granularity] of granularities.entries()) {
      for (const dtype of dtypes) {
        for (const scheme of ['symmetric', 'asymmetric'] as const) {
          const { x, importance } = drawn(700 + i);
          const options = { dtype, scheme, granularity, shape, includeZero: i % 2 === 0 };
          const { of, count } = parametersOf(shape, granularity);
          const errors = (more: QuantizeOptions) => {
            const restored = sp.dequantize(sp.quantize(x, { ...options, ...more }));
            const sums = new Float64Array(count);
            for (const [at, v] of x.entries()) {
              sums[of[at] as number]! += (importance[at % columns] as number) * (v - (restored[at] as number)) ** 2;
            }
            return sums;
          };
          const found = errors({ range: 'mse', importance });
          const unweighted = errors({ range: 'mse' });
          const plain = errors({ range: 'min-max' });
          for (let p = 0; p < count; p++) {
            // Float32 sums of either error are off by up to 4e-6 of it.
            const most = Math.min(unweighted[p] as number, plain[p] as number) * (1 + 1e-5) + 1e-12;
            expect(found[p], `${JSON.stringify(options)} ${p}`).toBeLessThanOrEqual(most);
            // Equal weights, and 16 bits, gain nothing.
            if (dtype.endsWith('16') || !mixed.includes(i)) continue;
            all++;
            if ((found[p] as number) < 0.999 * (unweighted[p] as number)) better++;
          }
        }
      }
    }
    expect(better).toBeGreaterThan(all / 3);
  });

  it('is the same result for equal importance, and in every call', () => {
    const { x, importance } = drawn(801);
    const options = { dtype: 'int4', shape, granularity: { kind: 'per-group', groupSize: 32 } } as const;
    const plain = sp.quantize(x, { ...options, range: 'mse' });
    const equal = new Float32Array(columns).fill(0.3);
    expect(sp.quantize(x, { ...options, range: 'mse', importance: equal })).toEqual(plain);
    const weighted = { ...options, range: 'mse', importance } as const;
    const q = sp.quantize(x, weighted);
    expect(q.scale).not.toEqual(plain.scale);
    const { scale, zeroPoint } = sp.chooseQuantizationParameters(x, weighted);
    expect([scale, zeroPoint]).toEqual([q.scale, q.zeroPoint]);
    expect(sp.quantize(x, { ...weighted, packed: true }).scale).toEqual(q.scale);
    using inside = sp.allocate('float32', x.length);
    inside.view.set(x);
    expect(sp.quantize(inside, weighted)).toEqual(q);
    const { shape: _, ...variant } = weighted;
    const [measured] = sp.sweep(x, [variant], { shape });
    expect(measured?.mse).toBe(sp.compare(x, q).mse);
    expect(sp.quantize(new Float32Array(0), { range: 'mse', importance: new Float32Array(0) }).data.length).toBe(0);
  });

  it('refuses wrong importance', () => {
    const { x, importance } = drawn(802);
    const refuses = (options: object, option: string, type: typeof RangeError | typeof TypeError = RangeError) =>
      expectRefusal(
        () => sp.quantize(x, { shape, range: 'mse', importance, ...options } as QuantizeOptions),
        type,
        option,
      );
    refuses({ range: undefined }, 'importance');
    refuses({ range: 'min-max' }, 'importance');
    refuses({ range: 'entropy' }, 'importance');
    refuses({ range: { percentile: 99 } }, 'importance');
    refuses({ importance: importance.subarray(1) }, 'importance');
    refuses({ shape: [6 * 8 * 40] }, 'importance');
    refuses({ importance: 1 }, 'importance', TypeError);
    refuses({ importance: 'matrix' }, 'importance', TypeError);
    for (const wrong of [-1, Number.NaN, Number.POSITIVE_INFINITY]) {
      refuses({ importance: importance.with(3, wrong) }, 'importance[3]');
    }
  });
});

it('gives the same bits in both builds', () => {
  const [a, b] = cores.map(({ sp }) => sp) as [Scalepoint, Scalepoint];
  for (const granularity of granularities) {
    for (const dtype of ['int2', 'int4', 'uint8'] as const) {
      for (const scheme of ['symmetric', 'asymmetric'] as const) {
        const { x, importance } = drawn(900);
        const options = { dtype, scheme, shape, granularity, range: 'mse', importance } as const;
        expect(a.quantize(x, options)).toEqual(b.quantize(x, options));
      }
    }
  }
});
