import type { ErrorMeasures, FloatInput, WasmArray } from 'scalepoint';
import { expect, it } from 'vitest';
import {
  describeBuilds,
  dtypes,
  epsilon,
  expectGood,
  expectRefusal,
  largestFloat,
  Random,
  schemes,
  smallestFloat,
} from '../support/support.js';

const perfect: ErrorMeasures = {
  mse: 0,
  rmse: 0,
  meanAbsoluteError: 0,
  maxAbsoluteError: 0,
  relativeL2: 0,
  sqnrDb: Infinity,
  cosine: 1,
  nonFinite: 0,
};

/** Every sum in double, one pair after the other. */
function sumsOf(x: ArrayLike<number>, y: ArrayLike<number>) {
  const s = { ee: 0, e: 0, max: 0, xx: 0, yy: 0, xy: 0, left: 0, n: 0 };
  for (let i = 0; i < x.length; i++) {
    const [a, b] = [Math.fround(x[i]!), Math.fround(y[i]!)];
    if (!Number.isFinite(a) || !Number.isFinite(b)) {
      s.left++;
      continue;
    }
    const e = a - b;
    s.n++;
    s.ee += e * e;
    s.e += Math.abs(e);
    s.max = Math.max(s.max, Math.abs(e));
    s.xx += a * a;
    s.yy += b * b;
    s.xy += a * b;
  }
  return s;
}

/**
 * Fails unless the measures are those of x and y, up to what the header of the core allows for: each sum of squares or sizes may be
 * off by 70 epsilon of itself, that of the products by 125 epsilon of the root of both sums of squares. The double sums here are better
 * by a factor of 2^29 a term, which 1.01 makes room for.
 */
function expectMeasures(m: ErrorMeasures, x: ArrayLike<number>, y: ArrayLike<number>): void {
  const s = sumsOf(x, y);
  const slack = 70 * epsilon * 1.01;
  const near = (got: number, want: number, bound: number, what: string) => {
    if (!(Math.abs(got - want) <= bound)) expect.fail(`${what}: got ${got}, expected ${want} within ${bound}`);
  };
  expect(m.nonFinite).toBe(s.left);
  if (s.ee === 0) {
    expect(m).toEqual({ ...perfect, nonFinite: s.left });
    return;
  }
  near(m.mse, s.ee / s.n, slack * (s.ee / s.n), 'mse');
  // The root halves a relative error.
  near(m.rmse, Math.sqrt(s.ee / s.n), (slack / 2) * Math.sqrt(s.ee / s.n), 'rmse');
  near(m.meanAbsoluteError, s.e / s.n, slack * (s.e / s.n), 'meanAbsoluteError');
  // The largest difference is one of them, rounded to float32 or not.
  near(m.maxAbsoluteError, s.max, epsilon * s.max, 'maxAbsoluteError');
  if (s.xx === 0) {
    expect([m.relativeL2, m.sqnrDb, m.cosine]).toEqual([Infinity, -Infinity, 0]);
    return;
  }
  const ratio = s.ee / s.xx;
  // Both sums of the ratio may be off, and the root halves that.
  near(m.relativeL2, Math.sqrt(ratio), slack * Math.sqrt(ratio), 'relativeL2');
  // 10 log10(1 + e) is less than 4.35 e.
  near(m.sqnrDb, -10 * Math.log10(ratio), 2 * 4.35 * slack, 'sqnrDb');
  if (s.yy === 0) {
    expect(m.cosine).toBe(0);
    return;
  }
  // The product, and that root, whose two squares may be off by 70 epsilon each.
  near(m.cosine, s.xy / Math.sqrt(s.xx) / Math.sqrt(s.yy), (125 + 70) * epsilon * 1.01, 'cosine');
  expect(Math.abs(m.cosine)).toBeLessThanOrEqual(1);
}

const lengths = [1, 2, 3, 4, 5, 7, 8, 9, 16, 63, 255, 256, 257, 511, 512, 513, 1000, 1025, 4096, 131_071, 131_073];
const sizes = [1, 1e-10, 1e-20, 1e-30, 1e-38, 3e-42, 1e10, 1e18, 1e30, 1e38];

describeBuilds('compare', (sp) => {
  it('gives the measures of a small example', () => {
    // e = 0, 0, 0, -1; sum x^2 = 30, sum y^2 = 39, sum x y = 34: all exact in float32.
    const m = sp.compare([1, 2, 3, 4], [1, 2, 3, 5]);
    expect(m).toEqual({
      mse: 0.25,
      rmse: 0.5,
      meanAbsoluteError: 0.25,
      maxAbsoluteError: 1,
      relativeL2: Math.sqrt(1 / 30),
      sqnrDb: 10 * Math.log10(30),
      cosine: 34 / Math.sqrt(30) / Math.sqrt(39),
      nonFinite: 0,
    });
  });

  it('gives Infinity, 1 and 0 exactly when there is no error', () => {
    const random = new Random(50);
    for (const n of lengths.filter((n) => n < 5000)) {
      for (const size of sizes) {
        const x = random.bell(n).map((v) => v * size);
        expect(sp.compare(x, x)).toEqual(perfect);
        expect(sp.compare(x, x.slice())).toEqual(perfect);
      }
    }
    expect(sp.compare(new Float32Array(9), new Float32Array(9))).toEqual(perfect);
    expect(sp.compare([0, -0, 1], [-0, 0, 1])).toEqual(perfect);
    expect(sp.compare([largestFloat, -largestFloat], [largestFloat, -largestFloat])).toEqual(perfect);
    expect(sp.compare([smallestFloat], [smallestFloat])).toEqual(perfect);
  });

  it('gives nothing for nothing', () => {
    expect(sp.compare([], [])).toEqual(perfect);
    expect(sp.compare([], sp.quantize([]))).toEqual(perfect);
  });

  it('gives -Infinity and 0 for a signal of zeros with an error', () => {
    for (const y of [
      [1, 0, 0],
      [0, -1e-30, 0],
      [largestFloat, 0, 0],
      [smallestFloat, 0, 0],
    ]) {
      const m = sp.compare([0, -0, 0], y);
      expect([m.sqnrDb, m.cosine, m.relativeL2]).toEqual([-Infinity, 0, Infinity]);
      expect(m.mse).toBeGreaterThan(0);
    }
  });

  it('gives 0 dB and cosine 0 for a result of zeros', () => {
    for (const size of sizes) {
      const x = new Random(51).bell(700).map((v) => v * size);
      const m = sp.compare(x, new Float32Array(700));
      expect([m.sqnrDb, m.cosine, m.relativeL2]).toEqual([0, 0, 1]);
    }
  });

  it('gives cosine -1 for the opposite, and 1 for a multiple', () => {
    for (const size of sizes) {
      const x = new Random(52).bell(900).map((v) => v * size);
      // Products and squares are the same numbers, so only the two roots and divisions in double round.
      expect(
        Math.abs(
          sp.compare(
            x,
            x.map((v) => -v),
          ).cosine + 1,
        ),
      ).toBeLessThanOrEqual(2 ** -51);
      expect(
        Math.abs(
          sp.compare(
            x,
            x.map((v) => v / 2),
          ).cosine - 1,
        ),
      ).toBeLessThanOrEqual(140 * epsilon);
    }
  });

  it.each(sizes)('agrees with sums in double for numbers around %d', (size) => {
    const random = new Random(53);
    for (const n of lengths) {
      const x = random.bell(n).map((v) => v * size);
      for (const error of [1, 0.01, 1e-4, 1e-7]) {
        const y = x.map((v) => v + v * error * (random.bits() / 2 ** 31 - 1));
        expectMeasures(sp.compare(x, y), x, y);
      }
      const z = random.bell(n);
      expectMeasures(sp.compare(x, z), x, z);
      expectMeasures(sp.compare(z, x), z, x);
    }
  });

  it('agrees with sums in double where squares begin to vanish or to overflow in float32', () => {
    // All of one value, so that roundings do not even out.
    for (let exponent = -90; exponent <= 64; exponent++) {
      for (const fraction of [1, 1.1, 1.37, 1.7, 1.99]) {
        const value = fraction * 2 ** exponent;
        for (const n of [1, 8, 512, 700]) {
          const x = new Float32Array(n).fill(value);
          expectMeasures(sp.compare(x, new Float32Array(n)), x, new Float32Array(n));
          const y = x.map((v) => v * 0.75);
          expectMeasures(sp.compare(x, y), x, y);
        }
      }
    }
  });

  it('agrees with sums in double for numbers of very different sizes', () => {
    const random = new Random(54);
    for (let round = 0; round < 60; round++) {
      const n = 1 + random.below(2000);
      const x = random.bell(n);
      const y = random.bell(n);
      // Whole blocks of one size, single values of another, and blocks of zeros.
      for (let i = 0; i < n; i++) {
        const size = sizes[(i >> 8) % sizes.length]!;
        x[i]! *= size;
        y[i]! *= size;
      }
      for (let k = 0; k < 3; k++) {
        const at = random.below(n);
        x[at] = random.pick([0, 1e30, -1e38, 1e-40, largestFloat, -largestFloat]);
        y[at] = random.pick([0, 1e30, -1e38, 1e-40, largestFloat, -largestFloat]);
        x.fill(0, random.below(n), random.below(n));
        y.fill(0, random.below(n), random.below(n));
      }
      expectMeasures(sp.compare(x, y), x, y);
      const z = random.anyFinite(n);
      expectMeasures(sp.compare(x, z), x, z);
    }
  });

  it('measures differences beyond float32', () => {
    const m = sp.compare([largestFloat, 1], [-largestFloat, 1]);
    expect(m.maxAbsoluteError).toBe(2 * largestFloat);
    expect(m.mse).toBe((2 * largestFloat) ** 2 / 2);
    expect(m.nonFinite).toBe(0);
  });

  it('measures the smallest differences', () => {
    const m = sp.compare([smallestFloat, 0], [0, 0]);
    expect([m.maxAbsoluteError, m.mse, m.meanAbsoluteError]).toEqual([
      smallestFloat,
      smallestFloat ** 2 / 2,
      smallestFloat / 2,
    ]);
  });

  it('counts pairs with NaN or an infinity, and leaves them out of the rest', () => {
    const random = new Random(55);
    for (const n of [1, 4, 5, 255, 256, 257, 512, 513, 1000, 131_073]) {
      const x = random.bell(n);
      const y = random.bell(n);
      for (const bad of [Number.NaN, Infinity, -Infinity]) {
        const at = [0, n - 1, n >> 1];
        const broken = x.slice();
        for (const i of at) broken[i] = bad;
        const without = (v: Float32Array) => v.filter((_, i) => !at.includes(i));
        for (const [a, b] of [
          [broken, y],
          [y, broken],
          [broken, broken],
        ] as const) {
          const m = sp.compare(a, b);
          expect(m.nonFinite).toBe(new Set(at).size);
          expectMeasures(m, a, b);
          expectMeasures({ ...m, nonFinite: 0 }, without(a), without(b));
        }
      }
    }
    expect(sp.compare([Number.NaN, Infinity], [Number.NaN, 1])).toEqual({ ...perfect, nonFinite: 2 });
    expect(sp.compare([Infinity, 3], [Infinity, 3])).toEqual({ ...perfect, nonFinite: 1 });
  });

  it('measures codes as the values that they stand for, to the last bit', () => {
    const random = new Random(56);
    for (const n of [1, 5, 16, 255, 256, 257, 512, 1025, 2047, 2048, 2049, 4100]) {
      const x = random.bell(n).map((v) => v * 10 ** (random.below(60) - 30));
      for (const dtype of dtypes) {
        for (const scheme of schemes) {
          for (const granularity of [
            { kind: 'per-tensor' },
            { kind: 'per-channel', axis: 0 },
            { kind: 'per-group', groupSize: 7 },
            { kind: 'per-group', groupSize: 64 },
            { kind: 'per-group', groupSize: 256 },
          ] as const) {
            const q = sp.quantize(x, { dtype, scheme, granularity });
            expect(sp.compare(x, q), `${dtype} ${scheme} ${granularity.kind} of ${n}`).toEqual(
              sp.compare(x, sp.dequantize(q)),
            );
          }
        }
      }
    }
    const shape = [6, 50, 9];
    const x = random.bell(2700);
    for (const axis of [0, 1, 2]) {
      for (const granularity of [
        { kind: 'per-channel', axis },
        { kind: 'per-group', axis, groupSize: 4 },
      ] as const) {
        const q = sp.quantize(x, { shape, granularity, scheme: 'asymmetric' });
        expect(sp.compare(x, q)).toEqual(sp.compare(x, sp.dequantize(q)));
      }
    }
  });

  it('gives the same for every kind of array', () => {
    const random = new Random(57);
    for (const n of [5, 300, 131_073]) {
      const x = random.bell(n);
      const y = random.bell(n);
      const inWasm = sp.allocate('float32', n);
      const other = sp.allocate('float32', n);
      inWasm.view.set(x);
      other.view.set(y);
      const want = sp.compare(x, y);
      const lefts: FloatInput[] = [x, Array.from(x), new Float64Array(x), inWasm, inWasm.view];
      const rights: FloatInput[] = [y, Array.from(y), new Float64Array(y), other, other.view];
      for (const a of lefts) for (const b of rights) expect(sp.compare(a, b)).toEqual(want);
      for (const array of [inWasm, other] as WasmArray[]) array.dispose();
    }
  });

  it('leaves both sides as they were', () => {
    const [x, y] = [new Random(58).bell(99), new Random(59).bell(99)];
    const [copyX, copyY] = [x.slice(), y.slice()];
    sp.compare(x, y);
    expect([x, y]).toEqual([copyX, copyY]);
  });
});

describeBuilds('errorSum', (sp) => {
  it('adds up pieces to the measures of the whole', () => {
    const random = new Random(61);
    const x = random.bell(5000);
    const y = random.bell(5000);
    x[77] = Number.NaN;
    // Sums are taken over blocks of 512 pairs, so that pieces of whole blocks change nothing.
    const sum = sp.errorSum();
    for (let at = 0; at < 5000; at += 1024) sum.add(x.subarray(at, at + 1024), y.subarray(at, at + 1024));
    expect(sum.measures()).toEqual(sp.compare(x, y));
    // Other pieces round elsewhere.
    const odd = sp.errorSum();
    for (let at = 0; at < 5000; at += 33) odd.add(x.subarray(at, at + 33), y.subarray(at, at + 33));
    expectMeasures(odd.measures(), x, y);
  });

  it('adds up quantized tensors and arrays, and can be read in between', () => {
    const random = new Random(62);
    // Of whole blocks, so that the measures of both together are the same to the last bit.
    const [a, b] = [random.bell(512), random.bell(1024)];
    const [qa, qb] = [
      sp.quantize(a),
      sp.quantize(b, { dtype: 'int4', granularity: { kind: 'per-group', groupSize: 32 } }),
    ];
    const sum = sp.errorSum();
    expect(sum.measures()).toEqual(perfect);
    sum.add(a, qa);
    expect(sum.measures()).toEqual(sp.compare(a, qa));
    sum.add(b, qb);
    sum.add([], []);
    const both = (x: Float32Array, y: Float32Array) => new Float32Array([...x, ...y]);
    expect(sum.measures()).toEqual(sp.compare(both(a, b), both(sp.dequantize(qa), sp.dequantize(qb))));
    expect(sp.compare(a, qa)).toEqual(sp.compare(a, sp.dequantize(qa)));
  });

  it('keeps its sums when a piece is refused, and other sums apart', () => {
    const x = new Random(63).bell(300);
    const y = new Random(64).bell(300);
    const [sum, other] = [sp.errorSum(), sp.errorSum()];
    sum.add(x, y);
    expectRefusal(() => sum.add(x, y.subarray(1)), RangeError, 'b');
    expectRefusal(() => sum.add(null as never, y), TypeError, 'a');
    const late: unknown[] = new Array(140_000).fill(1);
    late[139_000] = '1';
    expectRefusal(() => sum.add(new Float32Array(140_000), late as number[]), TypeError, 'b[139000]');
    expect(other.measures()).toEqual(perfect);
    expect(sum.measures()).toEqual(sp.compare(x, y));
    expectGood(sp);
  });
});
