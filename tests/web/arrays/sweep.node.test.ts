import type { ErrorMeasures, SweepVariant } from 'scalepoint';
import { expect, it } from 'vitest';
import { describeBuilds, expectCode, expectRefusal, parametersOf, Random } from '../support/support.js';

const names = ['mse', 'meanAbsoluteError', 'maxAbsoluteError', 'relativeL2', 'sqnrDb', 'cosine'] as const;

function expectNear(got: ErrorMeasures, want: ErrorMeasures, what: string): void {
  // Both sum in float32 blocks of up to 512 terms, of different elements: 70 * 2^-24 each (see accumulate_error), four times for the
  // product in the cosine.
  for (const name of names) {
    if (got[name] === want[name]) continue;
    expect(Math.abs(got[name] / want[name] - 1), `${what} ${name}`).toBeLessThan(8 * 70 * 2 ** -24);
  }
  expect(got.nonFinite, what).toBe(want.nonFinite);
}

describeBuilds('compare', (sp) => {
  it('gives for each channel or group what it gives for their elements alone', () => {
    const random = new Random(6);
    for (const shape of [[5], [4, 300], [3, 7, 9], [2, 3, 40, 2], [2, 70000]]) {
      const x = random.bell(shape.reduce((a, b) => a * b, 1));
      const q = sp.quantize(x, { shape, dtype: 'int4', granularity: { kind: 'per-group', groupSize: 16 } });
      const y = sp.dequantize(q);
      for (const axis of shape.keys()) {
        for (const options of [{ per: 'channel', axis } as const, { per: 'group', groupSize: 3, axis } as const]) {
          if (options.per === 'group' && x.length > 10000) continue;
          const { of, count } = parametersOf(
            shape,
            options.per === 'channel' ? { kind: 'per-channel', axis } : { kind: 'per-group', groupSize: 3, axis },
          );
          if (count > 3000) continue;
          const each = sp.compare(x, q, options);
          expect(each.length).toBe(count);
          expect(sp.compare(x, y, { ...options, shape })).toEqual(each);
          for (let p = 0; p < count; p++) {
            const take = (values: Float32Array) => values.filter((_, i) => of[i] === p);
            expectNear(each[p]!, sp.compare(take(x), take(y)), `${shape} ${JSON.stringify(options)} ${p}`);
          }
        }
      }
    }
  });

  it('gives the same wherever the arrays lie, and takes blocks and halves', () => {
    const x = new Random(7).bell(3 * 70000);
    const shape = [3, 70000];
    const inside = sp.allocate('float32', x.length);
    inside.view.set(x);
    const q = sp.quantize(x, { shape });
    const each = sp.compare(x, q, { per: 'channel', axis: 0 });
    expect(sp.compare(inside, q, { per: 'channel', axis: -2 })).toEqual(each);
    const half = sp.castFloat(x, 'float16');
    const widened = sp.castToFloat32(half, 'float16');
    expect(
      sp.compare(half, widened, { per: 'group', groupSize: 50000, shape, from: 'float16' }).map((m) => m.mse),
    ).toEqual([0, 0, 0, 0, 0, 0]);
    const blocks = sp.quantizeBlocks(x.subarray(0, 640), 'Q8_0', { shape: [2, 320] });
    const restored = sp.dequantize(blocks);
    expect(sp.compare(x.subarray(0, 640), blocks, { per: 'channel', axis: 0 })).toEqual(
      sp.compare(x.subarray(0, 640), restored, { per: 'channel', axis: 0, shape: [2, 320] }),
    );
    inside.dispose();
  });

  it('counts pairs that are not finite where they are', () => {
    const x = Float32Array.of(1, NaN, 3, 4, 5, 6);
    const y = Float32Array.of(1, 2, 3, 4, Infinity, 6);
    const count = (options: Parameters<typeof sp.compare>[2]) =>
      (sp.compare(x, y, options as never) as never as ErrorMeasures[]).map((m) => m.nonFinite);
    expect(count({ per: 'channel', axis: 0, shape: [2, 3] } as never)).toEqual([1, 1]);
    expect(count({ per: 'channel', axis: 1, shape: [2, 3] } as never)).toEqual([0, 2, 0]);
  });

  it('refuses wrong options', () => {
    const x = new Float32Array(6);
    const wrong = (options: object, type: typeof TypeError | typeof RangeError, name: string) =>
      expectRefusal(() => sp.compare(x, x, options as never), type, name);
    wrong({ per: 'channel', axis: 0, groupSize: 2 }, RangeError, 'groupSize');
    wrong({ axis: 0 }, RangeError, 'axis');
    wrong({ shape: [6] }, RangeError, 'shape');
    wrong({ per: 'row' }, RangeError, 'per');
    wrong({ per: 'channel' }, TypeError, 'axis');
    wrong({ per: 'channel', axis: 1 }, RangeError, 'axis');
    wrong({ per: 'group', groupSize: 0 }, RangeError, 'groupSize');
    wrong({ per: 'channel', axis: 0, shape: [5] }, RangeError, 'shape');
    expectRefusal(() => sp.compare(x, new Float32Array(5), { per: 'channel', axis: 0 }), RangeError, 'b');
  });
});

describeBuilds('sweep', (sp) => {
  const shape = [3, 50001];
  const x = new Random(8).bell(3 * 50001);
  const variants: SweepVariant[] = [
    {},
    { dtype: 'int4', range: 'mse' },
    { dtype: 'uint8', scheme: 'asymmetric', rounding: 'fused' },
    { dtype: 'int16', granularity: { kind: 'per-channel', axis: 1 } },
    { dtype: 'int4', granularity: { kind: 'per-group', groupSize: 32 }, range: { percentile: 99 } },
    { dtype: 'int2', granularity: { kind: 'per-channel', axis: 0 }, range: { min: [-1, -2, -1], max: [1, 1, 2] } },
    { range: { scale: 0.01, zeroPoint: 3 }, rounding: 'reciprocal' },
  ];

  it('gives what compare gives for each variant, bit for bit', () => {
    const inside = sp.allocate('float32', x.length);
    inside.view.set(x);
    const half = sp.castFloat(x, 'bfloat16');
    for (const [input, from] of [[x], [inside], [half, 'bfloat16']] as const) {
      const options = from === undefined ? {} : { from };
      const want = variants.map((variant) => {
        const q = sp.quantize(input as never, { ...variant, ...options, shape });
        return sp.compare(input as never, q, options);
      });
      const measured = sp.sweep(input as never, variants, { shape, ...options });
      expect(measured.map(({ bitsPerNumber: _, ...measures }) => measures)).toEqual(want);
    }
    inside.dispose();
  });

  it('takes no variants and no elements', () => {
    expect(sp.sweep(x, [])).toEqual([]);
    const nothing = { ...sp.compare([], []), bitsPerNumber: 0 };
    expect(sp.sweep([], [{}, { range: 'mse' }])).toEqual([nothing, nothing]);
  });

  it('says how many bits a number takes', () => {
    const groups = { kind: 'per-group', groupSize: 32 } as const;
    const cases: [variant: SweepVariant, bits: number][] = [
      [{}, 8 + 32 / 256],
      [{ dtype: 'uint8' }, 8 + 32 / 256],
      [{ dtype: 'int4', granularity: groups }, 5],
      [{ dtype: 'int4', granularity: groups, range: 'mse' }, 5],
      // A zero point has the bits of a code; without zero in the range it has 32.
      [{ dtype: 'int4', granularity: groups, scheme: 'asymmetric' }, 5 + 4 / 32],
      [{ dtype: 'int4', granularity: groups, scheme: 'asymmetric', includeZero: false }, 6],
      [{ dtype: 'int16', granularity: { kind: 'per-channel', axis: 1 } }, 16 + 32 / 4],
      [{ dtype: 'int2', range: { min: -1, max: 1 } }, 2 + 32 / 256],
      [{ dtype: 'int2', range: { scale: 1, zeroPoint: 7 } }, 2 + 64 / 256],
      // The last group of a row is short: 64 elements in 3 groups.
      [{ dtype: 'uint3', granularity: { kind: 'per-group', groupSize: 30 } }, 3 + (32 * 3) / 64],
    ];
    const measured = sp.sweep(
      x.subarray(0, 256),
      cases.map(([variant]) => variant),
      { shape: [4, 64] },
    );
    expect(measured.map(({ bitsPerNumber }) => bitsPerNumber)).toEqual(cases.map(([, bits]) => bits));
  });

  it('refuses wrong options', () => {
    expectRefusal(() => sp.sweep(x, {} as never), TypeError, 'variants');
    expectRefusal(() => sp.sweep(x, [{}, { shape: [1] } as never]), TypeError, 'variants[1].shape');
    expectRefusal(() => sp.sweep(x, [], { dtype: 'int8' } as never), TypeError, 'dtype');
    expectRefusal(() => sp.sweep(x, [{ dtype: 'int1' } as never]), RangeError, 'variants[0].dtype');
    expectRefusal(() => sp.sweep(x, [{}], { shape: [5] }), RangeError, 'shape');
    expectCode(() => sp.sweep([1, NaN], [{ range: { scale: 1, zeroPoint: 0 } }]), 'NON_FINITE');
    expectCode(() => sp.sweep([1, NaN], [{}]), 'NON_FINITE');
  });
});
