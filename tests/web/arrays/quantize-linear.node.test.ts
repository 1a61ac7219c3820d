import type { Granularity, LinearQuantizedTensor, QuantizeOptions } from 'scalepoint';
import { expect, it } from 'vitest';
import {
  describeBuilds,
  dtypes,
  epsilon,
  expectAsOracle,
  expectCode,
  expected,
  expectGood,
  expectSame,
  Random,
  type Rule,
  rangeOf,
  roundings,
  schemes,
} from '../support/support.js';

// tests/cpp has ties, lengths, layouts, ends of types, zeros, NaN, and scales at the ends of float32: linear_test.cpp, qparams_test.cpp and
// min_max_test.cpp. properties.node.test.ts takes any shape and granularity.
describeBuilds('quantize', (sp) => {
  it('makes int8 codes around 0 with one scale by default', () => {
    const x = new Float32Array([-1, -0.5, 0, 0.25, 2]);
    const q = sp.quantize(x);
    expect(q).toEqual({
      kind: 'linear',
      dtype: 'int8',
      shape: [5],
      granularity: { kind: 'per-tensor' },
      data: new Int8Array([-64, -32, 0, 16, 127]),
      scale: new Float32Array([2 / 127]),
      zeroPoint: new Int32Array([0]),
    } satisfies LinearQuantizedTensor);
  });

  it('says on which axis its scales lie, counted from the start', () => {
    const x = new Float32Array(24).fill(1);
    const granularityOf = (granularity: Granularity) => sp.quantize(x, { shape: [2, 3, 4], granularity }).granularity;
    expect(granularityOf({ kind: 'per-channel', axis: -3 })).toEqual({ kind: 'per-channel', axis: 0 });
    expect(granularityOf({ kind: 'per-group', groupSize: 2 })).toEqual({ kind: 'per-group', groupSize: 2, axis: 2 });
    expect(granularityOf({ kind: 'per-group', groupSize: 9, axis: -2 })).toEqual({
      kind: 'per-group',
      groupSize: 9,
      axis: 1,
    });
  });

  it('neither changes nor keeps its input, its shape and its range', () => {
    const x = new Float32Array([1, -2, 3, -4]);
    const shape = [2, 2];
    const scale = new Float32Array([0.5]);
    const q = sp.quantize(x, { shape, range: { scale, zeroPoint: [3] } });
    expect(x).toEqual(new Float32Array([1, -2, 3, -4]));
    x.fill(100);
    shape.push(7);
    scale.fill(9);
    expect(q.data).toEqual(new Int8Array([5, -1, 9, -5]));
    expect(q.shape).toEqual([2, 2]);
    expect(q.scale).toEqual(new Float32Array([0.5]));
  });

  it('gives arrays of its own with every call', () => {
    const x = new Float32Array([1, 2]);
    const [a, b] = [sp.quantize(x), sp.quantize(x)];
    expect(a.data).not.toBe(b.data);
    expect((a.data as Int8Array).buffer).not.toBe((b.data as Int8Array).buffer);
    expect(a.scale.buffer.byteLength).toBe(4);
    expect(sp.dequantize(a)).not.toBe(sp.dequantize(a));
  });

  it('rounds ties to even, each rounding at its own place', () => {
    const x = new Float32Array([-2.5, -1.5, -0.5, 0.5, 1.5, 2.5]);
    const codes = (rounding: 'onnx' | 'fused' | 'reciprocal') =>
      sp.quantize(x, { rounding, range: { scale: 1, zeroPoint: 1 } }).data;
    // The zero point comes after the rounding, or before it: x + 1 is -1.5, -0.5, 0.5, 1.5, 2.5, 3.5.
    expect(codes('onnx')).toEqual(new Int8Array([-1, -1, 1, 1, 3, 3]));
    expect(codes('fused')).toEqual(new Int8Array([-2, 0, 0, 2, 2, 4]));
    expect(codes('reciprocal')).toEqual(new Int8Array([-1, -1, 1, 1, 3, 3]));
  });

  it('divides for onnx and fused, and multiplies with the reciprocal only for reciprocal', () => {
    // 1 / 7 is a little more than it should be in float32, so that 45.5 / 7 = 6.5 and 87.5 / 7 = 12.5 come out above the tie.
    const x = new Float32Array([45.5, 87.5, -45.5, -87.5]);
    const codes = (rounding: 'onnx' | 'fused' | 'reciprocal') =>
      sp.quantize(x, { rounding, range: { scale: 7, zeroPoint: 0 } }).data;
    expect(codes('onnx')).toEqual(new Int8Array([6, 12, -6, -12]));
    expect(codes('fused')).toEqual(new Int8Array([6, 12, -6, -12]));
    expect(codes('reciprocal')).toEqual(new Int8Array([7, 13, -7, -13]));
  });

  it('uses given scales and zero points, numbers or one for each channel or group', () => {
    const random = new Random(15);
    const shape = [3, 10];
    const x = random.uniform(30, -9, 9);
    const cases: { granularity: Granularity; count: number }[] = [
      { granularity: { kind: 'per-tensor' }, count: 1 },
      { granularity: { kind: 'per-channel', axis: 0 }, count: 3 },
      { granularity: { kind: 'per-channel', axis: 1 }, count: 10 },
      { granularity: { kind: 'per-group', groupSize: 4 }, count: 9 },
      { granularity: { kind: 'per-group', groupSize: 2, axis: 0 }, count: 20 },
    ];
    for (const { granularity, count } of cases) {
      const scale = random.uniform(count, 0.01, 0.2);
      const zeroPoint = Array.from({ length: count }, () => random.below(300) - 150);
      for (const rounding of roundings) {
        const rule = { shape, granularity, rounding };
        const many = expected(x, rule, { scale, zeroPoint });
        for (const range of [
          { scale, zeroPoint },
          { scale: Array.from(scale), zeroPoint: new Int32Array(zeroPoint) },
          { scale: new Float64Array(scale), zeroPoint: new Int16Array(zeroPoint) },
        ]) {
          const q = sp.quantize(x, { ...rule, range });
          expectSame(q.data, many.data);
          expectSame(q.scale, many.scale);
          expectSame(q.zeroPoint, many.zeroPoint);
          expectSame(sp.dequantize(q), many.restored);
          expectSame(sp.chooseQuantizationParameters(x, { ...rule, range }).scale, many.scale);
        }
        const one = expected(x, rule, { scale: [0.07], zeroPoint: [-5] });
        const q = sp.quantize(x, { ...rule, range: { scale: 0.07, zeroPoint: -5 } });
        expectSame(q.data, one.data);
        expectSame(q.scale, one.scale);
      }
    }
  });

  it('rounds a given scale to float32 and uses it so', () => {
    const q = sp.quantize(new Float32Array([1]), { range: { scale: 0.1, zeroPoint: 0 } });
    expect(q.scale[0]).toBe(Math.fround(0.1));
  });

  it('takes ranges as bounds, numbers or one for each channel or group', () => {
    const random = new Random(16);
    const x = random.uniform(24, -4, 4);
    const rules: Rule[] = schemes.flatMap((scheme) =>
      dtypes.map((dtype) => ({ scheme, dtype, shape: [4, 6], granularity: { kind: 'per-channel', axis: 0 } })),
    );
    for (const rule of rules) {
      // Bounds act as if the smallest and largest value were these.
      const bounds = [
        { min: -1, max: 2 },
        { min: 0, max: 3 },
        { min: -0.5, max: -0.5 },
        { min: 0, max: 0 },
      ];
      const range = { min: bounds.map((b) => b.min), max: Float64Array.from(bounds, (b) => b.max) };
      const parameters = bounds.map(({ min, max }) => {
        const { scale, zeroPoint } = expected([min, max], { ...rule, shape: [2], granularity: { kind: 'per-tensor' } });
        return { scale: scale[0]!, zeroPoint: zeroPoint[0]! };
      });
      const want = expected(x, rule, {
        scale: parameters.map((p) => p.scale),
        zeroPoint: parameters.map((p) => p.zeroPoint),
      });
      const q = sp.quantize(x, { ...rule, range });
      expectSame(q.scale, want.scale);
      expectSame(q.zeroPoint, want.zeroPoint);
      expectSame(q.data, want.data);
      const one = sp.quantize(x, { ...rule, range: { min: -1, max: 2 } });
      expect(new Set(one.scale)).toEqual(new Set([want.scale[0]]));
    }
  });

  it('saturates what lies outside of the bounds', () => {
    const x = new Float32Array([-100, -1, 0, 0.9921875, 1, 100]);
    const q = sp.quantize(x, { dtype: 'uint8', scheme: 'asymmetric', range: { min: -1, max: 0.9921875 } });
    // 255 steps of 1 / 128; -1 is 128 of them below 0.
    expect([q.scale[0], q.zeroPoint[0]]).toEqual([1 / 128, 128]);
    expect(q.data).toEqual(new Uint8Array([0, 0, 128, 255, 255, 255]));
  });

  it.each(dtypes)('treats NaN and infinities of %s as told', (dtype) => {
    const x = new Float32Array([1, Number.NaN, -0.5, Infinity, 0, -Infinity, 0.25]);
    for (const scheme of schemes) {
      for (const rounding of roundings) {
        for (const granularity of [
          { kind: 'per-tensor' },
          { kind: 'per-group', groupSize: 3 },
          { kind: 'per-channel', axis: 0 },
        ] as const) {
          const options: QuantizeOptions & Rule = { dtype, scheme, rounding, granularity };
          const error = expectCode(() => sp.quantize(x, options), 'NON_FINITE');
          expect(error.message).toContain('x[1] is NaN');
          expectCode(() => sp.chooseQuantizationParameters(x, options), 'NON_FINITE');
          expectAsOracle(sp, x, { ...options, nonFinite: 'saturate' });
        }
      }
    }
    expectGood(sp);
  });

  it('says which element is not finite, also beyond the first tile', () => {
    const n = 300_000;
    for (const at of [0, 15, 16, 131_071, 131_072, n - 1]) {
      const x = new Float32Array(n).fill(0.5);
      x[at] = -Infinity;
      for (const options of [
        {},
        { granularity: { kind: 'per-channel', axis: 0 } },
        { granularity: { kind: 'per-group', groupSize: 32 } },
        { range: { scale: 1, zeroPoint: 0 } },
        { range: { min: 0, max: 1 } },
      ] satisfies QuantizeOptions[]) {
        const error = expectCode(() => sp.quantize(x, options), 'NON_FINITE');
        expect(error.message).toMatch(new RegExp(`^x\\[${at}\\] is -Infinity;`));
      }
    }
    expectGood(sp);
  });

  it('gives an array of zeros scale 1 and restores zeros, where the notebooks divide by zero', () => {
    for (const dtype of dtypes) {
      for (const scheme of schemes) {
        for (const includeZero of [true, false]) {
          const q = sp.quantize(new Float32Array(9), { dtype, scheme, includeZero });
          const zero = scheme === 'symmetric' && dtype.startsWith('u') ? 2 ** (rangeOf(dtype).bits - 1) : 0;
          expect([...q.scale, ...q.zeroPoint]).toEqual([1, zero]);
          expect(sp.dequantize(q)).toEqual(new Float32Array(9));
        }
      }
    }
  });

  it('covers a range that excludes zero, where the zero point of the notebooks saturates everything', () => {
    const x = new Random(17).uniform(200, 10, 20);
    for (const dtype of dtypes) {
      const { bits, qmin, qmax } = rangeOf(dtype);
      // The formula of the notebooks: the zero point is clamped into the type after the scale was chosen without it. Every
      // x / scale + zero point is then at least qmin + 10 / scale, which is qmax or more, since scale is 10 / (qmax - qmin) or less.
      const [low, high] = [Math.min(...x), Math.max(...x)];
      const clamped = {
        scale: (high - low) / (qmax - qmin),
        zeroPoint: Math.min(Math.max(Math.round(qmin - low / ((high - low) / (qmax - qmin))), qmin), qmax),
      };
      const theirs = sp.quantize(x, { dtype, rounding: 'fused', range: clamped });
      expect(clamped.zeroPoint).toBe(qmin);
      expect(new Set(theirs.data as Iterable<number>)).toEqual(new Set([qmax]));

      for (const includeZero of [true, false]) {
        const q = sp.quantize(x, { dtype, scheme: 'asymmetric', includeZero });
        const step = q.scale[0]!;
        // Half a step, and a rounding each of the quotient, the scale and the product.
        const bound = step / 2 + 3 * epsilon * 20;
        expect(sp.compare(x, q).maxAbsoluteError).toBeLessThanOrEqual(bound);
        // The levels that 10 to 20 make up: half of them when 0 is in the range, all of them when it is not.
        if (bits <= 4)
          expect(new Set(q.data as Iterable<number>).size).toBeGreaterThanOrEqual(2 ** bits / (includeZero ? 2 : 1));
      }
    }
  });

  it('quantizes empty arrays of any shape', () => {
    const empty = new Float32Array(0);
    const cases: [number[], Granularity | undefined, number][] = [
      [[0], undefined, 1],
      [[0, 5], undefined, 1],
      [[0], { kind: 'per-channel', axis: 0 }, 0],
      [[0, 5], { kind: 'per-channel', axis: 1 }, 5],
      [[5, 0], { kind: 'per-channel', axis: 0 }, 5],
      [[5, 0], { kind: 'per-channel', axis: 1 }, 0],
      [[5, 0], { kind: 'per-group', groupSize: 2 }, 0],
      [[0, 5], { kind: 'per-group', groupSize: 2 }, 0],
      [[2, 0, 3], { kind: 'per-group', groupSize: 2, axis: 0 }, 0],
    ];
    for (const [shape, granularity, count] of cases) {
      for (const scheme of schemes) {
        for (const range of [undefined, { min: -1, max: 1 }, { scale: 0.5, zeroPoint: 3 }]) {
          const options: QuantizeOptions = {
            shape,
            scheme,
            ...(granularity && { granularity }),
            ...(range && { range }),
          };
          const q = sp.quantize(empty, options);
          expect(q.data).toEqual(new Int8Array(0));
          expect(q.shape).toEqual(shape);
          expect([q.scale.length, q.zeroPoint.length]).toEqual([count, count]);
          if (range === undefined) {
            expect(q.scale).toEqual(new Float32Array(count).fill(1));
            expect(q.zeroPoint).toEqual(new Int32Array(count));
          }
          expect(sp.dequantize(q)).toEqual(new Float32Array(0));
          expect(sp.chooseQuantizationParameters(empty, options)).toEqual({ scale: q.scale, zeroPoint: q.zeroPoint });
        }
      }
    }
  });
});
