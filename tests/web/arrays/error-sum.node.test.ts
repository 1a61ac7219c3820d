import { type DType, type ErrorSum, type Granularity, load, ScalepointError } from 'scalepoint';
import { describe, expect, it } from 'vitest';
import { expectSame, thrownBy } from '../support/support.js';

const instances = [await load({ simd: 'on' }), await load({ simd: 'off' })];

/** Numbers without a pattern, the same in every run. */
function noise(n: number): Float32Array {
  let state = 99;
  return Float32Array.from({ length: n }, () => {
    state = (Math.imul(state, 1664525) + 1013904223) | 0;
    return (state >> 8) / 2 ** 22;
  });
}

describe.each(instances.map((sp) => ({ sp, name: sp.simd ? 'SIMD' : 'scalar' })))(
  'error sums, $name build',
  ({ sp }) => {
    const x = noise(300 * 517);
    const granularities: Granularity[] = [
      { kind: 'per-tensor' },
      { kind: 'per-channel', axis: 0 },
      { kind: 'per-channel', axis: 1 },
      { kind: 'per-group', groupSize: 32 },
      { kind: 'per-group', groupSize: 7, axis: 0 },
    ];

    it('taken while quantizing equal those of comparing afterwards, bit for bit', () => {
      for (const granularity of granularities) {
        for (const dtype of ['int2', 'int4', 'uint8', 'int16'] satisfies DType[]) {
          for (const rounding of ['onnx', 'fused', 'reciprocal'] as const) {
            const options = { shape: [300, 517], granularity, dtype, rounding, scheme: 'asymmetric' } as const;
            const errors = sp.errorSum();
            const q = sp.quantize(x, { ...options, errors });
            const plain = sp.quantize(x, options);
            expectSame(q.data, plain.data as Int8Array);
            expectSame(q.scale, plain.scale);
            expectSame(q.zeroPoint, plain.zeroPoint);
            expect(errors.measures()).toEqual(sp.compare(x, plain));
          }
        }
      }
    });

    it('are the same for arrays in wasm memory', () => {
      const inside = sp.allocate('float32', x.length);
      inside.view.set(x);
      const [a, b] = [sp.errorSum(), sp.errorSum()];
      sp.quantize(x, { dtype: 'int4', errors: a });
      sp.quantize(inside, { dtype: 'int4', errors: b });
      expect(a.measures()).toEqual(b.measures());
      inside.dispose();
    });

    it('add up over pieces, from quantizing and from comparing', () => {
      const half = x.length / 2;
      const scaleAndZero = { scale: 0.01, zeroPoint: 3 };
      const sum = sp.errorSum();
      sp.quantize(x.subarray(0, half), { range: scaleAndZero, errors: sum });
      sum.add(x.subarray(half), sp.quantize(x.subarray(half), { range: scaleAndZero }));
      const whole = sp.compare(x, sp.quantize(x, { range: scaleAndZero }));
      const { mse, maxAbsoluteError, nonFinite } = sum.measures();
      // Two sums of float32 blocks of the same terms in other blocks: each is off by at most 70 * 2^-24.
      expect(Math.abs(mse - whole.mse)).toBeLessThanOrEqual(140 * 2 ** -24 * whole.mse);
      expect(maxAbsoluteError).toBe(whole.maxAbsoluteError);
      expect(nonFinite).toBe(0);
    });

    it('count what is not finite, and are left alone by a call that fails', () => {
      const odd = x.slice(0, 1000);
      odd[7] = Number.NaN;
      odd[900] = Number.NEGATIVE_INFINITY;
      const sum = sp.errorSum();
      expect(() => sp.quantize(odd, { errors: sum })).toThrow(ScalepointError);
      expect(sum.measures()).toEqual(sp.errorSum().measures());
      const q = sp.quantize(odd, { errors: sum, nonFinite: 'saturate' });
      expect(sum.measures()).toEqual(sp.compare(odd, q));
      expect(sum.measures().nonFinite).toBe(2);
    });

    it('start from nothing', () => {
      expect(sp.errorSum().measures()).toEqual({
        mse: 0,
        rmse: 0,
        meanAbsoluteError: 0,
        maxAbsoluteError: 0,
        relativeL2: 0,
        sqnrDb: Number.POSITIVE_INFINITY,
        cosine: 1,
        nonFinite: 0,
      });
    });

    it('must be what errorSum gives', () => {
      for (const errors of [null, {}, true, new Float64Array(7)]) {
        const error = thrownBy(() => sp.quantize(x, { errors: errors as unknown as ErrorSum }));
        const expected = { kind: 'returnedBy', call: 'sp.errorSum()' };
        expect(error).toMatchObject({ problem: { option: 'errors', expected, got: errors } });
      }
    });
  },
);
