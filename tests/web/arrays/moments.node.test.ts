// GPTQ of arrays: errors of outputs in float64, the textbook's algorithm, and refusals.
import { describe, expect, it } from 'vitest';
import { type DType, dtypeInfo, load, type QuantizeOptions } from '../../../web/src/index.js';
import { Random, thrownBy } from '../support/support.js';

const sp = await load({ blocks: true });

/** Options of any type. */
const anything = (options: object) => options as QuantizeOptions;

const [rows, columns, tokens] = [12, 96, 400];

/** Inputs whose columns depend on each other, and differ in size. */
function inputs(): Float64Array[] {
  const random = new Random(5);
  const mixed = Array.from({ length: columns }, () => random.bell(columns));
  const sizes = random.bell(columns).map((v) => Math.exp(v));
  return Array.from({ length: tokens }, () => {
    const base = random.bell(columns);
    return Float64Array.from({ length: columns }, (_, i) => {
      const own = mixed[i]!.reduce((sum, v, j) => sum + (j < 12 ? v * base[j]! : 0), 0);
      return sizes[i]! * (base[i]! + 0.5 * own);
    });
  });
}

const x = inputs();
const moments = new Float32Array(columns * columns);
for (let i = 0; i < columns; i++) {
  for (let j = 0; j < columns; j++)
    moments[i * columns + j] = x.reduce((sum, row) => sum + row[i]! * row[j]!, 0) / tokens;
}
const weights = new Random(7).bell(rows * columns);

/** The sum over rows of e H e'. */
function outputError(restored: Float32Array, original: Float32Array = weights): number {
  let sum = 0;
  for (let row = 0; row < original.length; row += columns) {
    for (let i = 0; i < columns; i++) {
      const e = original[row + i]! - restored[row + i]!;
      for (let j = 0; j < columns; j++)
        sum += e * (original[row + j]! - restored[row + j]!) * moments[i * columns + j]!;
    }
  }
  return sum;
}

const shape = [rows, columns];
const groups = { kind: 'per-group', groupSize: 32 } as const;
const channels = { kind: 'per-channel', axis: 0 } as const;
const all = outputError(new Float32Array(weights.length));

/**
 * The codes of GPTQ as its paper has it, from left to right, with given scales: by the Cholesky factor of the inverse, in float64. Then moves
 * each code twice to where the error is the least while all others stay.
 */
function textbook(scale: Float32Array, zeroPoint: Int32Array, low: number, high: number): Int32Array {
  const n = columns;
  const h = Array.from({ length: n }, (_, i) => Float64Array.from(moments.subarray(i * n, (i + 1) * n)));
  const mean = h.reduce((sum, row, i) => sum + row[i]!, 0) / n;
  for (let i = 0; i < n; i++) h[i]![i]! += 0.01 * mean;
  const damped = h.map((row) => row.slice());
  // Invert by Gauss and Jordan.
  const inverse = h.map((_, i) => Float64Array.from({ length: n }, (__, j) => Number(i === j)));
  for (let i = 0; i < n; i++) {
    const pivot = h[i]![i]!;
    for (const matrix of [h, inverse]) matrix[i] = matrix[i]!.map((v) => v / pivot);
    for (let k = 0; k < n; k++) {
      const factor = h[k]![i]!;
      if (k === i || factor === 0) continue;
      for (const matrix of [h, inverse]) matrix[k] = matrix[k]!.map((v, j) => v - factor * matrix[i]![j]!);
    }
  }
  // inverse = U' U with an upper triangular U.
  const u = inverse.map((row) => row.map(() => 0));
  for (let i = 0; i < n; i++) {
    for (let j = i; j < n; j++) {
      let sum = inverse[i]![j]!;
      for (let k = 0; k < i; k++) sum -= u[k]![i]! * u[k]![j]!;
      u[i]![j] = i === j ? Math.sqrt(sum) : sum / u[i]![i]!;
    }
  }
  const codes = new Int32Array(weights.length);
  for (let row = 0; row < rows; row++) {
    const w = Float64Array.from(weights.subarray(row * n, (row + 1) * n));
    for (let i = 0; i < n; i++) {
      const set = row * (n / 32) + Math.floor(i / 32);
      const code = Math.min(Math.max(Math.round(w[i]! / scale[set]!) + zeroPoint[set]!, low), high);
      codes[row * n + i] = code;
      const e = (w[i]! - (code - zeroPoint[set]!) * scale[set]!) / u[i]![i]!;
      for (let j = i; j < n; j++) w[j]! -= e * u[i]![j]!;
    }
    const setOf = (i: number) => row * (n / 32) + Math.floor(i / 32);
    const restoredAt = (i: number) => (codes[row * n + i]! - zeroPoint[setOf(i)]!) * scale[setOf(i)]!;
    const errors = Float64Array.from({ length: n }, (_, i) => weights[row * n + i]! - restoredAt(i));
    for (let step = 0; step < 2 * n; step++) {
      const i = step % n;
      const slope = errors.reduce((sum, e, j) => sum + e * damped[i]![j]!, 0);
      const best = Math.round((restoredAt(i) + slope / damped[i]![i]!) / scale[setOf(i)]!) + zeroPoint[setOf(i)]!;
      codes[row * n + i] = Math.min(Math.max(best, low), high);
      errors[i] = weights[row * n + i]! - restoredAt(i);
    }
  }
  return codes;
}

describe('quantize with a moments', () => {
  const small: DType[] = ['int2', 'int3', 'int4', 'int5', 'int6', 'int7', 'int8', 'uint2', 'uint4', 'uint8'];
  for (const dtype of small) {
    for (const scheme of ['symmetric', 'asymmetric'] as const) {
      it.each([groups, channels])(`loses less of the outputs: ${dtype}, ${scheme}, %o`, (granularity) => {
        const options = { dtype, scheme, shape, granularity } as const;
        for (const range of ['mse', 'min-max', { percentile: 99.9 }] as const) {
          const plain = sp.quantize(weights, { ...options, range });
          const fed = sp.quantize(weights, { ...options, range, moments });
          const { output } = fed;
          // Codes are those of the dtype, and the result says what its outputs lose.
          const { qmin, qmax } = dtypeInfo(dtype);
          expect(fed.data.every((code) => code >= qmin && code <= qmax)).toBe(true);
          expect(fed.data.constructor).toBe(plain.data.constructor);
          const after = outputError(sp.dequantize(fed));
          // Errors are summed in float32, in sums of at most 96 terms, which cancel in part.
          expect(Math.abs(output!.after / (after / all) - 1)).toBeLessThan(1e-3);
          expect(output!.after).toBeLessThan(output!.before);
          expect(output!.damping).toBe(0.01);
          expect(after).toBeLessThan(0.9 * outputError(sp.dequantize(plain)));
          if (range === 'mse') continue;
          expect(fed.scale).toEqual(plain.scale);
          expect(fed.zeroPoint).toEqual(plain.zeroPoint);
          expect(output!.before).toBeGreaterThan(0);
        }
      });
    }
  }

  it('makes the codes of the textbook from left to right', () => {
    const options = { dtype: 'int3', shape, granularity: groups } as const;
    const range = sp.chooseQuantizationParameters(weights, { ...options, range: 'mse' });
    const fed = sp.quantize(weights, { ...options, range, moments, order: 'stored' });
    const expected = textbook(range.scale, range.zeroPoint, -4, 3);
    // Errors in float32 and float64 round a few weights that lie halfway to other codes, and rows change behind them.
    const same = fed.data.reduce((sum, code, i) => sum + Number(code === expected[i]), 0);
    expect(same / expected.length).toBeGreaterThan(0.97);
    const restored = Float32Array.from(expected, (code, i) => code * range.scale[Math.floor(i / 32)]!);
    expect(Math.abs(outputError(sp.dequantize(fed)) / outputError(restored) - 1)).toBeLessThan(0.02);
  });

  it('packs, fills arrays, and adds errors', () => {
    const options = { dtype: 'int3', shape, granularity: groups, range: 'mse', moments } as const;
    const q = sp.quantize(weights, options);
    const packed = sp.quantize(weights, { ...options, packed: true });
    expect(packed.data).toEqual(sp.pack(q));
    expect(packed.output).toEqual(q.output);
    const out = {
      data: sp.allocate('int8', weights.length),
      scale: new Float32Array(36),
      zeroPoint: new Int32Array(36),
    };
    const errors = sp.errorSum();
    sp.quantize(weights, { ...options, out, errors });
    expect(out.data.view).toEqual(q.data);
    expect(out.scale).toEqual(q.scale);
    expect(out.zeroPoint).toEqual(q.zeroPoint);
    const { output, weightedL2, ...measures } = errors.measures();
    expect(output).toEqual(q.output);
    expect(weightedL2).toBeGreaterThan(0);
    expect(measures).toEqual(sp.compare(weights, q));
    out.data.dispose();
  });

  it('takes importance for the codes that rows keep, and more damping', () => {
    const options = { dtype: 'int2', shape, granularity: groups, range: 'mse' } as const;
    const importance = new Random(3).bell(columns).map((v) => v * v);
    const other = sp.quantize(weights, { ...options, moments, importance });
    const plain = sp.quantize(weights, { ...options, importance });
    expect(Math.abs(other.output!.before / (outputError(sp.dequantize(plain)) / all) - 1)).toBeLessThan(1e-3);
    // A matrix of rank 1 needs some damping.
    const flat = new Float32Array(columns * columns).fill(1);
    expect(sp.quantize(weights, { ...options, moments: flat, damping: 0 }).output!.damping).toBeGreaterThan(0);
    expect(sp.quantize(weights, { ...options, moments: flat, damping: 0.5 }).output!.damping).toBe(0.5);
  });

  it('gives the same codes with each build, and a row at a time', async () => {
    const scalar = await load({ blocks: true, simd: 'off' });
    for (const granularity of [groups, channels]) {
      for (const order of ['falling', 'stored'] as const) {
        const options = { dtype: 'int4', granularity, range: 'mse', scheme: 'asymmetric', moments, order } as const;
        const { output, ...q } = sp.quantize(weights, { ...options, shape });
        const { output: _, ...again } = scalar.quantize(weights, { ...options, shape });
        expect(again).toEqual(q);
        const one = sp.quantize(weights.subarray(columns, 2 * columns), { ...options, shape: [1, columns] });
        expect(one.data).toEqual(q.data.slice(columns, 2 * columns));
      }
    }
    scalar.dispose();
  });

  it('refuses what has no meaning', async () => {
    const good = { dtype: 'int4', shape, granularity: groups, range: 'mse', moments } as const;
    const refused = (more: object) => thrownBy(() => sp.quantize(weights, anything({ ...good, ...more })));
    const changed = (f: (h: Float32Array) => void) => {
      const copy = moments.slice();
      f(copy);
      return { moments: copy };
    };
    const cases: readonly (readonly [object, object])[] = [
      [{ moments: [...moments] }, { name: 'TypeError', option: 'moments' }],
      [{ moments: moments.subarray(1) }, { name: 'RangeError', option: 'moments' }],
      [changed((h) => h.fill(NaN, 5, 6)), { name: 'RangeError', option: 'moments[5]' }],
      [changed((h) => h.fill(Infinity, 7, 8)), { name: 'RangeError', option: 'moments[7]' }],
      [changed((h) => h.fill(-1, columns + 1, columns + 2)), { name: 'RangeError', option: `moments[${columns + 1}]` }],
      [changed((h) => h.fill(1e4, columns, columns + 1)), { name: 'RangeError', option: `moments[${columns}]` }],
      [{ dtype: 'int16' }, { name: 'RangeError', option: 'dtype' }],
      [{ shape: [rows * columns] }, { name: 'RangeError', option: 'granularity' }],
      [{ granularity: undefined }, { name: 'RangeError', option: 'granularity.kind' }],
      [{ granularity: { kind: 'per-channel', axis: 1 } }, { name: 'RangeError', option: 'granularity.axis' }],
      [{ granularity: { ...groups, axis: 0 } }, { name: 'RangeError', option: 'granularity.axis' }],
      [{ damping: -1 }, { name: 'RangeError', option: 'damping' }],
      [{ damping: '1' }, { name: 'TypeError', option: 'damping' }],
      [{ order: 'rising' }, { name: 'RangeError', option: 'order' }],
      [{ rounding: 'fused' }, { name: 'RangeError', option: 'rounding' }],
      [{ nonFinite: 'saturate' }, { name: 'RangeError', option: 'nonFinite' }],
      [{ includeZero: false }, { name: 'RangeError', option: 'includeZero' }],
      [
        { moments: undefined, damping: 0.1 },
        { name: 'RangeError', option: 'damping' },
      ],
      [
        { moments: undefined, order: 'stored' },
        { name: 'RangeError', option: 'order' },
      ],
    ];
    for (const [more, expected] of cases) {
      if ('shape' in more) expect(() => sp.quantize(weights, anything({ ...good, ...more }))).toThrow(RangeError);
      else expect(refused(more), JSON.stringify(Object.keys(more))).toMatchObject(expected);
    }
    const spoiled = weights.slice();
    spoiled[100] = NaN;
    expect(() => sp.quantize(spoiled, good)).toThrow(/x\[100\] is NaN/);
    expect(thrownBy(() => sp.chooseQuantizationParameters(weights, good as QuantizeOptions))).toMatchObject({
      option: 'moments',
    });
  });
});
