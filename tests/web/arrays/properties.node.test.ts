// Properties of any input. fast-check prints the seed and the smallest counterexample of a failure.
import fc from 'fast-check';
import type { CodeArray, DType, Granularity, QuantizeOptions } from 'scalepoint';
import { expect, it } from 'vitest';
import {
  codesOf,
  cores,
  describeBuilds,
  dtypes,
  expectAsOracle,
  expected,
  expectSame,
  expectWithinHalfStep,
  type Rule,
  rangeOf,
  roundings,
  schemes,
} from '../support/support.js';

const dtype = fc.constantFrom(...dtypes);
const scheme = fc.constantFrom(...schemes);
const rounding = fc.constantFrom(...roundings);
const symmetricRange = fc.constantFrom('restricted' as const, 'full' as const);

/** Numbers of every size up to 2^100, denormals among them. */
const floats = (constraints: { minLength?: number; maxLength?: number } = {}) =>
  fc.float32Array({ min: -(2 ** 100), max: 2 ** 100, noNaN: true, maxLength: 80, ...constraints });
/** Numbers of about one size, and so of many different codes. */
const plain = (constraints: { minLength?: number; maxLength?: number } = {}) =>
  fc.float32Array({ min: -8, max: 8, noNaN: true, maxLength: 80, ...constraints });
const someFloats = fc.oneof(floats({ minLength: 1 }), plain({ minLength: 1 }));

/** An array with a shape of up to four dimensions and a granularity. */
const shaped = fc.array(fc.integer({ min: 1, max: 7 }), { minLength: 1, maxLength: 4 }).chain((shape) => {
  const n = shape.reduce((a, b) => a * b, 1);
  const axis = fc.integer({ min: -shape.length, max: shape.length - 1 });
  const granularity: fc.Arbitrary<Granularity> = fc.oneof(
    fc.constant<Granularity>({ kind: 'per-tensor' }),
    axis.map((a): Granularity => ({ kind: 'per-channel', axis: a })),
    fc
      .tuple(axis, fc.integer({ min: 1, max: 9 }))
      .map(([a, groupSize]): Granularity => ({ kind: 'per-group', groupSize, axis: a })),
  );
  const x = fc.oneof(floats({ minLength: n, maxLength: n }), plain({ minLength: n, maxLength: n }));
  return fc.record({ x, shape: fc.constant(shape), granularity });
});

const options = fc.record({ dtype, scheme, rounding, symmetricRange });

/** Everything about a result as plain numbers. */
function bytesOf(q: { data: unknown; scale: Float32Array; zeroPoint: Int32Array }): number[][] {
  return [Array.from(q.data as CodeArray), Array.from(q.scale), Array.from(q.zeroPoint)];
}

describeBuilds('for any array, quantize', (sp) => {
  it('agrees with the oracle, whatever the shape and the granularity', () => {
    fc.assert(
      fc.property(shaped, options, ({ x, shape, granularity }, rule) => {
        expectAsOracle(sp, x, { ...rule, shape, granularity });
      }),
      { numRuns: 1000 },
    );
  });

  it('agrees with the oracle about given scales and zero points', () => {
    const scale = fc.float({ min: Math.fround(2 ** -140), max: Math.fround(2 ** 120), noNaN: true });
    const zeroPoint = fc.oneof(fc.integer({ min: -300, max: 300 }), fc.integer({ min: -(2 ** 22), max: 2 ** 22 }));
    fc.assert(
      fc.property(someFloats, dtype, rounding, scale, zeroPoint, (x, d, r, s, z) => {
        const q = sp.quantize(x, { dtype: d, rounding: r, range: { scale: s, zeroPoint: z } });
        const want = expected(x, { dtype: d, rounding: r }, { scale: [s], zeroPoint: [z] });
        expectSame(q.data, want.data);
        expectSame(sp.dequantize(q), want.restored);
      }),
      { numRuns: 1000 },
    );
  });

  it('gives the parameters that chooseQuantizationParameters gives alone', () => {
    fc.assert(
      fc.property(shaped, options, fc.boolean(), ({ x, shape, granularity }, rule, includeZero) => {
        const all: QuantizeOptions = { ...rule, shape, granularity, includeZero };
        const { scale, zeroPoint } = sp.quantize(x, all);
        expect(sp.chooseQuantizationParameters(x, all)).toEqual({ scale, zeroPoint });
      }),
      { numRuns: 500 },
    );
  });

  it('covers ranges without zero, with zero points of at most 2^22 in size', () => {
    fc.assert(
      fc.property(someFloats, dtype, rounding, (x, d, r) => {
        const q = sp.quantize(x, { dtype: d, scheme: 'asymmetric', rounding: r, includeZero: false });
        expect(Math.abs(q.zeroPoint[0]!)).toBeLessThanOrEqual(2 ** 22);
        // As in expectWithinHalfStep, but values may be 2^22 steps from zero, where an epsilon is a quarter of a step: beside the half
        // for the nearest code there are two for the quotient (with the reciprocal), one for the scale and one for the product.
        const far = x.reduce((m, v) => Math.max(m, Math.abs(v)), 0) / q.scale[0]!;
        if (far < 2 ** 16) expectWithinHalfStep(x, q.scale[0]!, sp.dequantize(q), 17);
        else expect(sp.compare(x, q).maxAbsoluteError).toBeLessThanOrEqual(q.scale[0]! * 1.5);
      }),
      { numRuns: 500 },
    );
  });

  it('survives a structured clone', () => {
    fc.assert(
      fc.property(shaped, options, ({ x, shape, granularity }, rule) => {
        const q = sp.quantize(x, { ...rule, shape, granularity });
        const clone = structuredClone(q);
        expectSame(sp.dequantize(clone), sp.dequantize(q));
        expect(sp.compare(x, clone)).toEqual(sp.compare(x, q));
      }),
      { numRuns: 100 },
    );
  });

  it('is measured like the values that it restores', () => {
    fc.assert(
      fc.property(shaped, options, ({ x, shape, granularity }, rule) => {
        const errors = sp.errorSum();
        const q = sp.quantize(x, { ...rule, shape, granularity, errors });
        expect(sp.compare(x, q)).toEqual(sp.compare(x, sp.dequantize(q)));
        expect(errors.measures()).toEqual(sp.compare(x, q));
      }),
      { numRuns: 300 },
    );
  });
});

describeBuilds('for any codes, pack', (sp) => {
  it('can be undone', () => {
    const codes = dtype.chain((d: DType) => {
      const { qmin, qmax } = rangeOf(d);
      return fc.record({
        d: fc.constant(d),
        values: fc.array(fc.integer({ min: qmin, max: qmax }), { maxLength: 200 }),
      });
    });
    fc.assert(
      fc.property(codes, ({ d, values }) => {
        const data = codesOf(d, values);
        const q = { ...sp.quantize(new Float32Array(values.length), { dtype: d }), data: data as CodeArray };
        const bytes = sp.pack(q);
        expect(bytes.length).toBe(Math.ceil((values.length * rangeOf(d).bits) / 8));
        expectSame(sp.unpack(bytes, q), data);
      }),
      { numRuns: 500 },
    );
  });
});

it('both builds give the same bytes for any bits, NaN and infinities among them', () => {
  const anything = fc
    .uint32Array({ minLength: 1, maxLength: 100 })
    .map((bits) => new Float32Array(bits.buffer, bits.byteOffset, bits.length));
  fc.assert(
    fc.property(anything, options, fc.boolean(), (x, rule, includeZero) => {
      const all: QuantizeOptions & Rule = { ...rule, includeZero, nonFinite: 'saturate' };
      for (const granularity of [
        { kind: 'per-tensor' },
        { kind: 'per-group', groupSize: 16 },
        { kind: 'per-channel', axis: 0 },
      ] as const) {
        const [a, b] = cores.map(({ sp }) => {
          const q = sp.quantize(x, { ...all, granularity });
          return { q: bytesOf(q), restored: Array.from(sp.dequantize(q)), measures: sp.compare(x, q) };
        });
        expect(a).toEqual(b);
      }
    }),
    { numRuns: 1000 },
  );
});
