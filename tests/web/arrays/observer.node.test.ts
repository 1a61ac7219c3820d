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

  /**
   * 2^16 values, four times over, and a few of their own: more than four fall in the bins of most of them, and few in those of the tails, where
   * the percentile of 99.999 lies.
   */
  const times = 4;
  const many: [string, Float32Array, number[]][] = [
    ['weights', random.bell(1 << 16), []],
    ['one outlier', random.bell(1 << 16), [-1000]],
    ['two outliers', random.bell(1 << 16), [60, -20]],
    [
      'heavy tails',
      random.bell(1 << 16).map((v) => v / Math.max(0.01, Math.abs(random.uniform(1)[0] as number))),
      [5000],
    ],
    ['activations', random.bell(1 << 16).map((v) => Math.max(0, v)), [100]],
    ['far from zero', random.uniform(1 << 16, 0.9, 1), []],
  ];

  it.each(many)('chooses as quantize does for all values at once: %s', (name, batch, rest) => {
    const all = new Float32Array(batch.length * times + rest.length);
    for (let i = 0; i < times; i++) all.set(batch, i * batch.length);
    all.set(rest, batch.length * times);
    for (const dtype of ['int4', 'int8'] as const) {
      for (const scheme of ['symmetric', 'asymmetric'] as const) {
        const chosen = (range: ObserverOptions['range'] & {}) => {
          const options: ObserverOptions = { range, dtype, scheme };
          const observer = sp.observer(options);
          for (let i = 0; i < times; i++) observer.observe(batch);
          observer.observe(rest);
          expect(observer.count).toBe(all.length);
          const found = observer.parameters();
          const want = sp.chooseQuantizationParameters(all, options);
          return { ...found, ratio: (found.scale[0] as number) / (want.scale[0] as number), want };
        };
        const what = `${name} ${dtype} ${scheme}`;
        const errorWith = ({ scale, zeroPoint }: { scale: Float32Array; zeroPoint: Int32Array }) =>
          sp.compare(all, sp.quantize(all, { dtype, scheme, range: { scale, zeroPoint } })).mse;
        const mse = chosen('mse');
        expect(errorWith(mse), what).toBeLessThanOrEqual(errorWith(mse.want) * 1.01);
        for (const percentile of [99, 99.999]) {
          // Each end is off by 2^-10 of itself, and both have their own sign where 0 lies in the range.
          expect(Math.abs(chosen({ percentile }).ratio - 1), what).toBeLessThanOrEqual(2 ** -10);
        }
        // Thresholds with nearly the same divergence may take each other's place.
        expect(Math.abs(chosen('entropy').ratio - 1), what).toBeLessThanOrEqual(0.05);
      }
    }
  });

  it('counts each of few values, whatever their range', () => {
    for (const values of [[3], [-2, 5], [-1, -1, 7, 7], [0, 1e-30, 2], [-4, -3.5, -3]]) {
      for (const range of ['mse', 'entropy', { percentile: 100 }, { percentile: 75 }] as const) {
        for (const scheme of ['symmetric', 'asymmetric'] as const) {
          const options: ObserverOptions = { range, scheme, dtype: 'int4' };
          const observer = sp.observer(options);
          observer.observe(values);
          const want = sp.chooseQuantizationParameters(values, options);
          const ratio = (observer.parameters().scale[0] as number) / (want.scale[0] as number);
          // Several scales may restore such values with next to no error.
          if (range !== 'mse')
            expect(Math.abs(ratio - 1), `${values} ${JSON.stringify(range)}`).toBeLessThanOrEqual(2 ** -9);
          else expect(observer.parameters().scale[0]).toBeGreaterThan(0);
        }
      }
    }
  });

  it('finds what quantize finds for values that repeat', () => {
    const steps = Array.from({ length: 40 }, (_, i) => 0.1 * (i - 13));
    for (const distinct of [[0.1, -3, 2], steps]) {
      const values = Float32Array.from({ length: 4000 }, (_, i) => distinct[(i * i) % distinct.length] as number);
      for (const dtype of ['int3', 'int8'] as const) {
        for (const range of ['mse', { percentile: 99 }] as const) {
          for (const scheme of ['symmetric', 'asymmetric'] as const) {
            const options: ObserverOptions = { range, scheme, dtype };
            const observer = sp.observer(options);
            for (let i = 0; i < values.length; i += 1000) observer.observe(values.subarray(i, i + 1000));
            const errorWith = ({ scale, zeroPoint }: { scale: Float32Array; zeroPoint: Int32Array }) =>
              sp.compare(values, sp.quantize(values, { dtype, scheme, range: { scale, zeroPoint } })).rmse;
            const [found, want] = [observer.parameters(), sp.chooseQuantizationParameters(values, options)];
            const what = `${distinct} ${dtype} ${JSON.stringify(range)} ${scheme}`;
            // Twice 2^-22 of the root mean square, within which searches call errors the same.
            const slack = 2 ** -21 * Math.hypot(...distinct);
            if (range === 'mse') expect(errorWith(found), what).toBeLessThanOrEqual(errorWith(want) * 1.005 + slack);
            else expect((found.scale[0] as number) / (want.scale[0] as number), what).toBeCloseTo(1, 6);
          }
        }
      }
    }
  });

  it("takes 'min-max' for 'mse' with 16 bits, whose steps are narrower than its bins", () => {
    const observer = sp.observer({ range: 'mse', dtype: 'int16' });
    observer.observe(x);
    expectSame(observer.parameters().scale, sp.chooseQuantizationParameters(x, { dtype: 'int16' }).scale);
  });

  it('moves its range as PyTorch does', () => {
    const observer = sp.observer({ averaging: 0.01 });
    observer.observe([-1, 1]);
    observer.observe([-3, 2]);
    expect(observer.parameters().scale[0]).toBeCloseTo((1 + 0.01 * 2) / 127, 7);
  });

  it('starts empty, forgets, and takes any input', () => {
    const observer = sp.observer({ range: 'mse' });
    expectCode(() => observer.parameters(), 'EMPTY');
    observer.observe([]);
    expectCode(() => observer.parameters(), 'EMPTY');
    observer.observe([1, 2, 3]);
    observer.observe(sp.castFloat([4], 'float16'), { from: 'float16' });
    expect(observer.count).toBe(4);
    observer.reset();
    expect(observer.count).toBe(0);
    expectCode(() => observer.parameters(), 'EMPTY');
    const wild = sp.observer({ nonFinite: 'saturate' });
    wild.observe([NaN, Infinity]);
    expect(wild.count).toBe(0);
    expectCode(() => wild.parameters(), 'EMPTY');
  });

  it('gives parameters that survive JSON, and that quantize takes back', () => {
    const values = random.bell(999);
    const observer = sp.observer({ dtype: 'uint8', scheme: 'asymmetric', range: { percentile: 99.9 } });
    observer.observe(values);
    const channels = sp.observer({ granularity: { kind: 'per-channel', axis: 1 }, dtype: 'int4' });
    channels.observe(values, { shape: [333, 3] });
    const perChannel = { shape: [333, 3], granularity: { kind: 'per-channel', axis: 1 }, dtype: 'int4' } as const;
    const cases = [
      [observer.parameters(), { dtype: 'uint8', scheme: 'asymmetric' }],
      [channels.parameters(), perChannel],
      [sp.chooseQuantizationParameters(values, { range: 'mse' }), {}],
      [sp.chooseQuantizationParameters(values, { ...perChannel, range: 'entropy' }), perChannel],
    ] as const;
    for (const [range, options] of cases) {
      const text = JSON.stringify(range);
      expect(text).toMatch(/^{"scale":\[[-\d.e,]+\],"zeroPoint":\[[\d,-]+\]}$/);
      const [before, after] = [range, JSON.parse(text)].map((one) => sp.quantize(values, { ...options, range: one }));
      expect(after).toEqual(before);
      // They stay plain data.
      expect(structuredClone(range)).toEqual({ scale: range.scale, zeroPoint: range.zeroPoint });
      expect(Object.keys(range)).toEqual(['scale', 'zeroPoint']);
    }
  });

  it('chooses for each channel, as quantize does for all batches in one array', () => {
    const granularity = { kind: 'per-channel', axis: 1 } as const;
    const batchesOf = [2, 1, 5].map((rows) => ({ shape: [rows, 4, 3], x: random.bell(rows * 12) }));
    for (const options of [
      {},
      { dtype: 'uint8', scheme: 'asymmetric' },
      { dtype: 'int4', scheme: 'asymmetric', includeZero: false },
    ] as const) {
      const observer = sp.observer({ ...options, granularity: { kind: 'per-channel', axis: -2 } });
      for (const { shape, x: batch } of batchesOf) observer.observe(batch, { shape });
      expect(observer.count).toBe(96);
      const all = Float32Array.from(batchesOf.flatMap(({ x: batch }) => [...batch]));
      const want = sp.chooseQuantizationParameters(all, { ...options, granularity, shape: [8, 4, 3] });
      expect(observer.parameters()).toEqual(want);
      expect(want.scale).toHaveLength(4);
    }
    // A tensor states its shape itself.
    const stored = sp.observer({ granularity });
    stored.observe({ dtype: 'F32', shape: [2, 2], data: Float32Array.of(1, -2, 3, 1) });
    expect(stored.parameters().scale).toEqual(Float32Array.of(3 / 127, 2 / 127));
  });

  it('moves the range of each channel, and leaves alone what a batch lacks', () => {
    const channels = { kind: 'per-channel', axis: 1 } as const;
    const observer = sp.observer({ granularity: channels, averaging: 0.5, nonFinite: 'saturate' });
    observer.observe([-1, NaN, 1, Infinity], { shape: [2, 2] });
    expect(observer.count).toBe(2);
    // Without a finite value, the range is empty, as that of quantize.
    expect(observer.parameters().scale).toEqual(Float32Array.of(1 / 127, 1));
    observer.observe([-3, 4], { shape: [1, 2] });
    expect(observer.parameters().scale).toEqual(Float32Array.of(2 / 127, 4 / 127));
    observer.observe([NaN, 8], { shape: [1, 2] });
    expect(observer.parameters().scale).toEqual(Float32Array.of(2 / 127, 6 / 127));
  });

  it('refuses wrong channels by name', () => {
    const bad = (options: unknown) => () => sp.observer(options as never);
    expectRefusal(bad({ granularity: { kind: 'per-group', groupSize: 2 } }), RangeError, 'granularity.kind');
    for (const granularity of [{}, { kind: 'per-row' }])
      expectRefusal(bad({ granularity }), RangeError, 'granularity.kind');
    for (const granularity of [null, 'per-channel']) expectRefusal(bad({ granularity }), TypeError, 'granularity');
    const sized = { kind: 'per-channel', axis: 1, groupSize: 2 };
    expectRefusal(bad({ granularity: sized }), TypeError, 'granularity.groupSize');
    expectRefusal(bad({ granularity: { kind: 'per-tensor', axis: 1 } }), RangeError, 'granularity.axis');
    const channels = { kind: 'per-channel', axis: 1 };
    for (const range of ['mse', 'entropy', { percentile: 99 }]) {
      expectRefusal(bad({ granularity: channels, range }), RangeError, 'range');
    }
    const observer = sp.observer({ granularity: { kind: 'per-channel', axis: 1 } });
    expectRefusal(() => observer.observe([1, 2]), RangeError, 'granularity.axis');
    expectRefusal(() => observer.observe([1, 2], { shape: [2, 2] }), RangeError, 'shape');
    observer.observe([1, 2], { shape: [1, 2] });
    expectRefusal(() => observer.observe([1, 2, 3], { shape: [1, 3] }), RangeError, 'shape');
    expectCode(() => observer.observe([9, NaN], { shape: [1, 2] }), 'NON_FINITE');
    expect(observer.count).toBe(2);
    expect(observer.parameters().scale).toEqual(Float32Array.of(1 / 127, 2 / 127));
    observer.reset();
    observer.observe([1, 2, 3], { shape: [1, 3] });
    expect(observer.parameters().scale).toHaveLength(3);
  });

  it('refuses wrong arguments by name, and batches that are not finite whole', async () => {
    const bad = (options: unknown) => () => sp.observer(options as never);
    expectRefusal(bad({ averaging: 0 }), RangeError, 'averaging');
    expectRefusal(bad({ averaging: '1' }), TypeError, 'averaging');
    expectRefusal(bad({ averaging: 0.1, range: 'mse' }), RangeError, 'averaging');
    expectRefusal(bad({ range: { scale: 1, zeroPoint: 0 } }), RangeError, 'range');
    expectRefusal(bad({ range: 'mean' }), RangeError, 'range');
    expectRefusal(bad({ dtype: 'int9' }), RangeError, 'dtype');
    expectRefusal(bad({ shape: [1] }), TypeError, 'shape');
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
