import type { ErrorMeasures, FloatInput, WasmArray } from 'scalepoint';
import { expect, it } from 'vitest';
import {
  describeBuilds,
  epsilon,
  expectGood,
  expectRefusal,
  largestFloat,
  Random,
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

// tests/cpp/metrics_test.cpp has the arithmetic: lengths, sizes and alignments, against sums in double.
const lengths = [1, 2, 3, 4, 5, 7, 8, 9, 16, 255, 256, 257, 513, 1000, 4096];
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
    for (const n of lengths) {
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

  it('counts pairs with NaN or an infinity, and leaves them out of the rest', () => {
    for (const bad of [Number.NaN, Infinity, -Infinity]) {
      // e = 1, 2; sum x^2 = 13: all exact in float32.
      for (const [a, b] of [
        [
          [2, bad, 3],
          [1, 7, 5],
        ],
        [
          [2, 7, 3],
          [1, bad, 5],
        ],
        [
          [2, bad, 3],
          [1, bad, 5],
        ],
      ] as const)
        expect(sp.compare(a, b)).toMatchObject({ nonFinite: 1, mse: 2.5, maxAbsoluteError: 2, meanAbsoluteError: 1.5 });
    }
    expect(sp.compare([Number.NaN, Infinity], [Number.NaN, 1])).toEqual({ ...perfect, nonFinite: 2 });
    expect(sp.compare([Infinity, 3], [Infinity, 3])).toEqual({ ...perfect, nonFinite: 1 });
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
