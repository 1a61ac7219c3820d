// Parameters for values that come in batches.
import type { ObserverOptions } from 'scalepoint';
import { load } from 'scalepoint';
import { expect, it } from 'vitest';
import { describeBuilds, expectCode, expectRefusal, expectSame, Random } from '../support/support.js';

describeBuilds('observer', (sp) => {
  const random = new Random(1);
  const x = random.bell(50_000);
  x[4321] = 9;
  x[7] = -5;
  const batches = (size: number) =>
    Array.from({ length: x.length / size }, (_, i) => x.subarray(i * size, (i + 1) * size));

  it("gives the parameters of all batches together, with 'min-max' exactly", () => {
    for (const options of [
      {},
      { dtype: 'uint4', scheme: 'asymmetric' },
      { includeZero: false, scheme: 'asymmetric' },
    ] as const) {
      const observer = sp.observer(options);
      for (const batch of batches(1000)) observer.observe(batch);
      expect(observer.count).toBe(x.length);
      const want = sp.chooseQuantizationParameters(x, options);
      expectSame(observer.parameters().scale, want.scale);
      expectSame(observer.parameters().zeroPoint, want.zeroPoint);
    }
  });

  it('with other ranges errs hardly more than parameters of all values at once', () => {
    for (const range of ['mse', 'entropy', { percentile: 99 }] as const) {
      for (const dtype of ['int4', 'int8'] as const) {
        for (const scheme of ['symmetric', 'asymmetric'] as const) {
          const options: ObserverOptions = { range, dtype, scheme };
          const observer = sp.observer(options);
          for (const batch of batches(5000)) observer.observe(batch);
          const { scale, zeroPoint } = observer.parameters();
          const ours = sp.compare(x, sp.quantize(x, { dtype, scheme, range: { scale, zeroPoint } })).mse;
          const whole = sp.compare(x, sp.quantize(x, options)).mse;
          // A bin is at most 2^-10 of its values wide. Values move by as much at most, and so does what is clipped of them. Its square
          // moves by twice that.
          expect(ours).toBeLessThanOrEqual(whole * (1 + 2 * 2 ** -10));
        }
      }
    }
  });

  it('moves its range as PyTorch does', () => {
    const observer = sp.observer({ averaging: 0.01 });
    observer.observe([-1, 1]);
    observer.observe([-3, 2]);
    expect(observer.parameters().scale[0]).toBeCloseTo((1 + 0.01 * 2) / 127, 7);
  });

  it('starts empty, forgets, and takes any input', () => {
    const observer = sp.observer({ range: 'mse' });
    expect(observer.parameters().scale[0]).toBe(1);
    observer.observe([]);
    observer.observe([1, 2, 3]);
    observer.observe(sp.castFloat([4], 'float16'), { from: 'float16' });
    expect(observer.count).toBe(4);
    observer.reset();
    expect([observer.count, observer.parameters().scale[0]]).toEqual([0, 1]);
  });

  it('refuses wrong arguments by name, and batches that are not finite whole', async () => {
    const bad = (options: unknown) => () => sp.observer(options as never);
    expectRefusal(bad({ averaging: 0 }), RangeError, 'averaging');
    expectRefusal(bad({ averaging: '1' }), TypeError, 'averaging');
    expectRefusal(bad({ averaging: 0.1, range: 'mse' }), RangeError, 'averaging');
    expectRefusal(bad({ range: { scale: 1, zeroPoint: 0 } }), RangeError, 'range');
    expectRefusal(bad({ range: 'mean' }), RangeError, 'range');
    expectRefusal(bad({ dtype: 'int9' }), RangeError, 'dtype');
    expectRefusal(bad({ shape: [1] }), TypeError, 'options');
    const observer = sp.observer({ range: 'mse' });
    expectCode(() => observer.observe([5, NaN]), 'NON_FINITE');
    expect(observer.count).toBe(0);
    const saturating = sp.observer({ nonFinite: 'saturate' });
    saturating.observe([5, NaN, Infinity]);
    expect([saturating.count, saturating.parameters().scale[0]]).toEqual([1, Math.fround(5 / 127)]);
    const own = await load();
    const gone = own.observer();
    own.dispose();
    expectCode(() => gone.observe([1]), 'DISPOSED');
  });
});
