/// <reference types="vite/client" />
// Codes that other programs made: tests/golden/README.md says which.
import type { DType, Granularity } from 'scalepoint';
import { describe, expect, it } from 'vitest';
import notebooksText from '../../golden/notebooks.json?raw';
import pytorchText from '../../golden/pytorch.json?raw';
import linesText from '../../golden/quantize_linear.jsonl?raw';
import {
  codesOf,
  describeBuilds,
  epsilon,
  expected,
  expectSame,
  parametersOf,
  type Rounding,
  type Rule,
  rangeOf,
  type Scheme,
} from '../support/support.js';

/** Largest error of `compare`, relative to a sum in exact arithmetic: cpp/scalepoint.h says 70 roundings at most. */
const sumError = 70 * epsilon;

// ------------------------------------------------------------------------------------------------------------------- PyTorch

interface PyTorchCase {
  kind: string;
  dtype?: DType;
  bits?: number;
  dist?: string;
  shape?: number[];
  axis?: number;
  group_size?: number;
  x: number[];
  scale?: number;
  scales?: number[];
  zero_point?: number;
  zero_points?: number[];
  q_fused?: number[];
  q_onnx?: number[];
  q_reciprocal?: number[];
  dequantized?: number[];
  mse?: number;
  minmax_affine_quint8?: Observed;
  minmax_symmetric_qint8?: Observed;
  per_channel?: boolean;
  in_features?: number;
  out_features?: number;
  w?: number[];
  q?: number[];
}
interface Observed {
  scale: number;
  zero_point: number;
  mse: number;
}

const { cases: pytorchCases } = JSON.parse(pytorchText) as { cases: PyTorchCase[] };
const quantized = pytorchCases.filter((c) => c.q_fused !== undefined);
const observers = pytorchCases.filter((c) => c.kind === 'observers');
const layers = pytorchCases.filter((c) => c.kind === 'linear_w8a32');

function ruleOf(c: PyTorchCase): Rule & { dtype: DType } {
  const granularity: Granularity =
    c.axis !== undefined
      ? { kind: 'per-channel', axis: c.axis }
      : c.group_size !== undefined
        ? { kind: 'per-group', groupSize: c.group_size }
        : { kind: 'per-tensor' };
  const scheme = c.kind.endsWith('_symmetric') ? 'symmetric' : 'asymmetric';
  return { dtype: c.dtype ?? (`int${c.bits}` as DType), scheme, shape: c.shape!, granularity };
}

describe('the golden files', () => {
  it('hold the cases that their page tells of', () => {
    expect([pytorchCases.length, quantized.length, observers.length, layers.length]).toEqual([140, 127, 5, 8]);
    expect(lines.length).toBe(80);
    expect(notebooks.length).toBe(13);
    expect(new Set(quantized.map((c) => c.bits).filter(Boolean))).toEqual(new Set([2, 3, 4, 5, 6, 8]));
    const axes = quantized.filter((c) => c.axis !== undefined).map((c) => `${c.axis} of ${c.shape!.length}`);
    expect(new Set(axes).size).toBe(2 + 3 + 4);
  });
});

describeBuilds('PyTorch', (sp) => {
  it.each(quantized.map((c, i) => [i, c.kind, ruleOf(c).dtype, c] as const))(
    'agrees about case %i: %s %s',
    (_, kind, dtype, c) => {
      const rule = ruleOf(c);
      const x = new Float32Array(c.x);
      const scale = c.scales ?? [c.scale!];
      const zeroPoint = c.zero_points ?? (c.zero_point !== undefined ? [c.zero_point] : scale.map(() => 0));
      const goldens: [Rounding, number[] | undefined][] = [
        ['fused', c.q_fused],
        ['onnx', c.q_onnx],
        ['reciprocal', c.q_reciprocal],
      ];
      for (const [rounding, codes] of goldens) {
        if (codes === undefined) continue;
        const q = sp.quantize(x, { ...rule, rounding, range: { scale, zeroPoint } });
        expectSame(q.data, codesOf(dtype, codes), `${rounding}, scale given`);
        if (kind === 'given_params') continue;
        const derived = sp.quantize(x, { ...rule, rounding });
        expectSame(derived.scale, new Float32Array(scale), 'scale');
        expectSame(derived.zeroPoint, new Int32Array(zeroPoint), 'zero point');
        expectSame(derived.data, codesOf(dtype, codes), `${rounding}, scale derived`);
      }
      const q = sp.quantize(x, { ...rule, rounding: 'fused', range: { scale, zeroPoint } });
      // Printed so that they read back exactly, and made with the same one product.
      expectSame(sp.dequantize(q), new Float32Array(c.dequantized!), 'restored');
      // Theirs is a mean of squares, in float32 at worst: one rounding a term for the square, and log2(n) for a sum by halves up to n for
      // one that runs along.
      expect(Math.abs(sp.compare(x, q).mse - c.mse!)).toBeLessThanOrEqual(
        c.mse! * (sumError + (x.length + 2) * epsilon),
      );
    },
  );

  it.each(observers.map((c) => [c.dist, c] as const))('chooses the ranges of its observers: %s', (_, c) => {
    const x = new Float32Array(c.x);
    for (const [observed, options] of [
      [c.minmax_affine_quint8!, { dtype: 'uint8', scheme: 'asymmetric' }],
      // PyTorch's symmetric scale spreads over all 255 steps.
      [c.minmax_symmetric_qint8!, { dtype: 'int8', scheme: 'symmetric', symmetricRange: 'full' }],
    ] as const) {
      const { scale, zeroPoint } = sp.chooseQuantizationParameters(x, options);
      // The observers subtract and divide in float32, which rounds twice; we do so in double and round once.
      expect(Math.abs(scale[0]! - observed.scale)).toBeLessThanOrEqual(3 * epsilon * observed.scale);
      expect(zeroPoint[0]).toBe(observed.zero_point);
      const q = sp.quantize(x, {
        ...options,
        rounding: 'reciprocal',
        range: { scale: observed.scale, zeroPoint: observed.zero_point },
      });
      const { mse } = sp.compare(x, q);
      expect(Math.abs(mse - observed.mse)).toBeLessThanOrEqual(observed.mse * (sumError + (x.length + 2) * epsilon));
    }
  });

  it.each(layers.map((c, i) => [i, c] as const))('agrees about the weights of layer %i', (_, c) => {
    const w = new Float32Array(c.w!);
    const shape = [c.out_features!, c.in_features!];
    const granularity: Granularity = c.per_channel ? { kind: 'per-channel', axis: 0 } : { kind: 'per-tensor' };
    const q = sp.quantize(w, { shape, granularity, rounding: 'fused' });
    expectSame(q.data, codesOf('int8', c.q!), 'codes');
    // One scale per tensor is printed for every row.
    expectSame(q.scale, new Float32Array(c.per_channel ? c.scales! : c.scales!.slice(0, 1)), 'scale');
  });
});

// --------------------------------------------------------------------------------------------------------------- random cases

interface Line {
  config: {
    id: number;
    dtype: DType;
    scheme: 'sym' | 'asym';
    granularity: 'tensor' | 'channel' | 'group';
    axis: number;
    group_size: number;
    params: 'zero' | 'seed' | 'onnx';
    rounding: 'onnx' | 'torch';
  };
  shape: number[];
  x: number[];
  scale: number[];
  scale_f64: number[];
  zero_point: number[];
  q: number[];
  deq: number[];
  err: { mse: number; max_abs: number; mean_abs: number; sqnr_db: number | null };
  flags: string[];
}

const lines = linesText
  .trim()
  .split('\n')
  .map((line) => JSON.parse(line) as Line);

function lineRule({
  config,
  shape,
}: Line): Rule & { dtype: DType; rounding: Rounding; scheme: Scheme; granularity: Granularity } {
  const { axis } = config;
  return {
    dtype: config.dtype,
    scheme: config.scheme === 'sym' ? 'symmetric' : 'asymmetric',
    rounding: config.rounding === 'torch' ? 'fused' : 'onnx',
    shape,
    granularity:
      config.granularity === 'channel'
        ? { kind: 'per-channel', axis }
        : config.granularity === 'group'
          ? { kind: 'per-group', groupSize: config.group_size, axis }
          : { kind: 'per-tensor' },
  };
}

/** Smallest and largest value of every scale. */
function extremesOf(line: Line): { low: number; high: number }[] {
  const { of, count } = parametersOf(line.shape, lineRule(line).granularity);
  const extremes = Array.from({ length: count }, () => ({ low: Infinity, high: -Infinity }));
  for (const [i, v] of line.x.entries()) {
    const e = extremes[of[i]!]!;
    e.low = Math.min(e.low, v);
    e.high = Math.max(e.high, v);
  }
  return extremes;
}

/** True if the line's rule gives that range the same scale and zero point as ours, as the golden page says. */
function sameRule(line: Line, { low, high }: { low: number; high: number }, scale: number): boolean {
  // Ours is computed in double, and never below 2^-127.
  if (line.config.params === 'onnx' || scale < 2 ** -127) return false;
  return line.config.scheme === 'sym' || line.config.params === 'zero' || low === high || (low <= 0 && high >= 0);
}

describeBuilds('a numpy implementation', (sp) => {
  it.each(lines.map((line) => [line.config.id, line.config.dtype, line] as const))(
    'agrees about case %i, %s, with its scale and zero point',
    (_, dtype, line) => {
      const x = new Float32Array(line.x);
      const rule = lineRule(line);
      const q = sp.quantize(x, { ...rule, range: { scale: line.scale, zeroPoint: line.zero_point } });
      expectSame(q.data, codesOf(dtype, line.q), 'codes');
      expectSame(q.scale, new Float32Array(line.scale), 'scale');
      // Theirs may say -0 for a code at the zero point.
      expectSame(sp.dequantize(q), new Float32Array(line.deq.map((v) => v + 0)), 'restored');
      const measures = sp.compare(x, q);
      const within = (got: number, want: number) => expect(Math.abs(got - want)).toBeLessThanOrEqual(want * sumError);
      within(measures.mse, line.err.mse);
      within(measures.meanAbsoluteError, line.err.mean_abs);
      // The largest difference of two float32 numbers is rounded once, and is one of these numbers at least.
      expect(Math.abs(measures.maxAbsoluteError - line.err.max_abs)).toBeLessThanOrEqual(line.err.max_abs * epsilon);
      // null stands for a ratio without an error, or of nothing to nothing.
      if (line.err.sqnr_db === null) expect(measures.sqnrDb).toBe(Infinity);
      // A relative error e of each sum is 10 log10(1 + e), which is less than 4.35 e, decibels.
      else expect(Math.abs(measures.sqnrDb - line.err.sqnr_db)).toBeLessThanOrEqual(2 * 4.35 * sumError);
    },
  );

  it.each(lines.map((line) => [line.config.id, line.config.params, line] as const))(
    'agrees about scale and zero point of case %i, %s, where its rule is ours',
    (_, params, line) => {
      const x = new Float32Array(line.x);
      const rule = lineRule(line);
      const q = sp.quantize(x, rule);
      const { of } = parametersOf(line.shape, rule.granularity);
      const { qmin, qmax } = rangeOf(rule.dtype);
      const same = extremesOf(line).map((extremes, p) => sameRule(line, extremes, line.scale_f64[p]!));
      expect([q.scale.length, q.zeroPoint.length]).toEqual([line.scale.length, line.scale.length]);
      for (const [p, isSame] of same.entries()) {
        if (!isSame) continue;
        expect([q.scale[p], q.zeroPoint[p]], `parameter ${p}`).toEqual([
          Math.fround(line.scale[p]!),
          line.zero_point[p],
        ]);
      }
      for (const [i, code] of line.q.entries()) {
        if (same[of[i]!]) expect((q.data as ArrayLike<number>)[i], `element ${i}`).toBe(code);
      }
      if (params !== 'onnx') return;
      // DynamicQuantizeLinear subtracts and divides in float32, which rounds twice; we do so in double and round once.
      for (const [p, scale] of line.scale.entries()) {
        const { low, high } = extremesOf(line)[p]!;
        // Where a scale is denormal or vanishes, ours is 2^-127.
        const width = Math.max(high, 0) - Math.min(low, 0);
        if (width > 0 && width < 2 ** -126 * (qmax - qmin)) continue;
        expect(Math.abs(q.scale[p]! - scale)).toBeLessThanOrEqual(3 * epsilon * scale);
      }
    },
  );

  it('has our rule in most cases', () => {
    const shared = lines.filter((line) =>
      extremesOf(line).every((extremes, p) => sameRule(line, extremes, line.scale_f64[p]!)),
    );
    // 80, less 16 of DynamicQuantizeLinear, less those whose range leaves out zero and those with a denormal scale.
    expect(shared.length).toBeGreaterThan(40);
  });

  it('loses what lies outside of zero to its clamped zero point, where we cover the range', () => {
    let saturated = 0;
    for (const line of lines) {
      const x = new Float32Array(line.x);
      const rule = lineRule(line);
      const { bits, qmin, qmax } = rangeOf(rule.dtype);
      const { of } = parametersOf(line.shape, rule.granularity);
      const outside = extremesOf(line).map(({ low, high }) => low < high && (low > 0 || high < 0));
      if (line.config.params !== 'seed' || rule.scheme === 'symmetric' || !outside.some(Boolean)) continue;
      for (const includeZero of [true, false]) {
        const q = sp.quantize(x, { ...rule, includeZero });
        const restored = sp.dequantize(q);
        for (const [i, v] of line.x.entries()) {
          const p = of[i]!;
          if (!outside[p]) continue;
          const steps = v / line.scale[p]! + line.zero_point[p]!;
          // Theirs: more than half a step beyond the last code.
          if (steps > qmax + 0.5 || steps < qmin - 0.5) saturated++;
          // Ours: half a step; every rounding of the quotient, the zero point, the scale and the product is an epsilon of a value
          // that is at most as large as the largest in the range.
          const { low, high } = extremesOf(line)[p]!;
          const bound =
            q.scale[p]! * (0.5 + epsilon * (2 ** bits + 1)) + 4 * epsilon * Math.max(Math.abs(low), Math.abs(high));
          expect(Math.abs(restored[i]! - v)).toBeLessThanOrEqual(bound);
        }
      }
      const theirs = sp.quantize(x, { ...rule, range: { scale: line.scale, zeroPoint: line.zero_point } });
      const ours = sp.quantize(x, { ...rule, includeZero: false });
      expect(sp.compare(x, ours).mse).toBeLessThanOrEqual(sp.compare(x, theirs).mse);
    }
    expect(saturated).toBeGreaterThan(0);
  });
});

// ------------------------------------------------------------------------------------------------------------------- notebooks

interface Printed {
  values: number[];
  halfUnit: number;
}
interface NotebookCase {
  notebook: number;
  name: string;
  dtype: DType;
  scheme: Scheme;
  given: boolean;
  axis: number | null;
  shape: number[];
  input: Printed;
  scale: Printed | null;
  zeroPoint: number;
  codes: number[] | null;
  restored: Printed | null;
  error?: Printed;
  mse: { value: number; halfUnit: number } | null;
  overflowed?: number[];
}

const notebooks = JSON.parse(notebooksText) as NotebookCase[];

describeBuilds('what notebooks print', (sp) => {
  it.each(notebooks.map((c) => [c.notebook, c.name, c] as const))('comes out in notebook %i: %s', (_, __, c) => {
    const x = new Float32Array(c.input.values);
    const { qmin, qmax } = rangeOf(c.dtype);
    const granularity: Granularity = c.axis === null ? { kind: 'per-tensor' } : { kind: 'per-channel', axis: c.axis };
    const options = {
      dtype: c.dtype,
      scheme: c.scheme,
      shape: c.shape,
      rounding: 'fused',
      granularity,
    } as const;
    const q = sp.quantize(
      x,
      c.given ? { ...options, range: { scale: c.scale!.values, zeroPoint: c.zeroPoint } } : options,
    );
    const largest = Math.max(...x.map(Math.abs));
    // Largest distance of our x from theirs: half of the last digit printed, and the rounding to float32.
    const inputError = c.input.halfUnit + epsilon * largest;
    const levels = c.scheme === 'symmetric' ? qmax : qmax - qmin;
    const ends = c.scheme === 'symmetric' ? 1 : 2;
    const { of } = parametersOf(c.shape, granularity);
    /** Largest distance of our scale from theirs: one or two ends of the range over the levels, a rounding, and their last digit. */
    const scaleError = (scale: number) =>
      (c.given ? 0 : (ends * inputError) / levels) + epsilon * scale + (c.scale?.halfUnit ?? 0);

    for (const [p, scale] of (c.scale?.values ?? []).entries()) {
      expect(Math.abs(q.scale[p]! - scale)).toBeLessThanOrEqual(scaleError(scale));
    }
    expect(new Set(q.zeroPoint)).toEqual(new Set([c.zeroPoint]));
    if (c.codes !== null) expectSame(q.data, codesOf(c.dtype, c.codes), 'codes');

    const y = sp.dequantize(q);
    const steps = Array.from(q.data as ArrayLike<number>, (code, i) => Math.abs(code - q.zeroPoint[of[i]!]!));
    /** Largest distance of our restored values from theirs before printing: the scale's error in each step, and a rounding on either side. */
    const restoredError = Array.from(y, (v, i) => steps[i]! * scaleError(q.scale[of[i]!]!) + 2 * epsilon * Math.abs(v));
    for (const [i, v] of (c.restored?.values ?? []).entries()) {
      expect(Math.abs(y[i]! - v), `restored ${i}`).toBeLessThanOrEqual(restoredError[i]! + c.restored!.halfUnit);
    }
    for (const [i, v] of (c.error?.values ?? []).entries()) {
      const bound = restoredError[i]! + inputError + c.error!.halfUnit;
      expect(Math.abs(y[i]! - x[i]! - v), `error ${i}`).toBeLessThanOrEqual(bound);
    }
    if (c.mse === null) return;
    // Each error e may be off by d, so its square by up to 2 |e| d + d^2; the mean of |e| is at most the root of the mean square. Then
    // two sums, theirs in float32 at worst, and their last digit.
    const { mse } = sp.compare(x, q);
    const d = inputError + Math.max(...restoredError);
    const bound = 2 * Math.sqrt(mse) * d + d * d + mse * (sumError + (x.length + 2) * epsilon) + c.mse.halfUnit;
    expect(Math.abs(mse - c.mse.value)).toBeLessThanOrEqual(bound);
  });

  it('comes out right where a subtraction in int8 overflows', () => {
    const c = notebooks.find(({ overflowed }) => overflowed !== undefined)!;
    const x = new Float32Array(c.input.values);
    const y = sp.dequantize(
      sp.quantize(x, { range: { scale: c.scale!.values, zeroPoint: c.zeroPoint }, rounding: 'fused' }),
    );
    // 127 + 70 and 126 + 70 are beyond int8.
    const wrong = c.overflowed!.flatMap((v, i) => (v !== y[i] ? [i] : []));
    expect(wrong).toEqual([2, 7]);
    expect(wrong.map((i) => y[i])).toEqual([689.5, 686]);
  });

  it('bounds the error of groups of three in numbers from 0 to 1, as the notebook finds it', () => {
    // Its input is not printed. Half a step of 1 / 127 at most, squared; and 2e-6 is what it printed, of this order.
    const x = Float32Array.from({ length: 36 }, (_, i) => ((i * 29) % 37) / 37);
    const rule: Rule = { shape: [6, 6], granularity: { kind: 'per-group', groupSize: 3 }, rounding: 'fused' };
    const q = sp.quantize(x, rule as object);
    expectSame(q.data, expected(x, rule).data);
    expect(sp.compare(x, q).mse).toBeLessThanOrEqual((0.5 / 127) ** 2);
  });
});
