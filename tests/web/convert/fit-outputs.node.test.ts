// Results of a given size by errors of outputs: with moments, and with GPTQ.
import { mkdtempSync } from 'node:fs';
import { rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { beforeAll, describe, expect, it } from 'vitest';
import {
  calibrateModel,
  estimateModel,
  evaluateModel,
  fitTypes,
  inspectModel,
  type ModelReport,
  type ModelStatistics,
  measureTypes,
  planModel,
  quantizeModel,
  readFloats,
  sizeCurve,
  type TypeTable,
} from '../../../web/src/model.js';
import type { SizePoint } from '../../../web/src/tooling.js';
import { madeUpLlama } from '../support/made-up-llama.js';
import { drawn } from '../support/tokens.js';

const chunkSize = 64;

/** Sums of so few terms in another order differ by less. */
const rounding = 1e-12;

const file = madeUpLlama({ layers: 1 });
let statistics: ModelStatistics;
let moments: Uint8Array<ArrayBuffer>;
let table: TypeTable;
const divergences = new Map<string, number>();
const gptq = () => ({ method: 'gptq', moments: statistics }) as const;

beforeAll(async () => {
  statistics = await calibrateModel(file, drawn(2048, 5), { chunkSize, moments: true, heldBack: 0 });
  moments = await (statistics.moments as NonNullable<ModelStatistics['moments']>).bytes();
  table = await measureTypes(file, { to: 'auto', ...gptq() });
  for (const { name } of (await inspectModel(moments)).tensors) {
    const [, weight] = /^(.*)\.divergence$/.exec(name) ?? [];
    if (weight !== undefined) divergences.set(weight, (await readFloats(moments, name)).data[0] as number);
  }
});

/** Expected divergence of a result, where all weights with moments pass errors on. Those of norms are kept. */
const lossOf = ({ tensors }: ModelReport) =>
  tensors.reduce((sum, { name, error }) => {
    const loss = error?.output?.after ?? (error?.weightedL2 ?? error?.relativeL2 ?? 0) ** 2;
    return sum + (loss === 0 ? 0 : (divergences.get(name) as number) * loss);
  }, 0);

/** The quadratic form x' h x. */
function formOf(h: Float64Array, x: Float64Array): number {
  let sum = 0;
  // Add up four rows at a time, which do not wait for each other.
  const n = x.length;
  for (let i = 0; i < n; i += 4) {
    let [a, b, c, d] = [0, 0, 0, 0];
    for (let j = 0, at = i * n; j < n; j++, at++) {
      const v = x[j]!;
      a += h[at]! * v;
      b += h[at + n]! * v;
      c += h[at + 2 * n]! * v;
      d += h[at + 3 * n]! * v;
    }
    sum += a * x[i]! + b * x[i + 1]! + c * x[i + 2]! + d * x[i + 3]!;
  }
  return sum;
}

describe('a fit by errors of outputs', () => {
  it.each([3.5, 5.5])('is as large and as good as predicted: %s bits', async (targetBitsPerWeight) => {
    const { bytes: targetSize } = fitTypes(table, { targetBitsPerWeight });
    const plan = await planModel(file, { to: 'auto', targetSize, ...gptq() });
    const result = await quantizeModel(file, plan, { moments: statistics });
    const bytes = await result.bytes();
    expect(bytes.length).toBe(plan.totals.bytesAfter);
    expect(bytes.length).toBe(plan.fit?.bytes);
    expect(bytes.length).toBeLessThanOrEqual(targetSize);
    const types = new Set(result.report.tensors.map(({ to }) => to));
    // The report does not have errors of outputs of types that pass none on.
    if (![...types].some((type) => type.startsWith('IQ') || type === 'F16' || type === 'BF16')) {
      const loss = lossOf(result.report);
      expect(Math.abs(loss - plan.fit!.error)).toBeLessThanOrEqual(rounding * loss);
    }
    expect(fitTypes(table, { targetSize })).toMatchObject({ bytes: plan.fit?.bytes, error: plan.fit?.error });
  });

  it.each(['IQ4_XS', 'Q4_K'] as const)('measures outputs as float64 finds them: %s', async (to) => {
    const name = 'blk.0.ffn_down.weight';
    const rules = [{ match: '.', to }];
    const made = await (await quantizeModel(file, { to: 'Q4_0', rules, ...gptq() })).bytes();
    const [x, y, h] = await Promise.all([readFloats(file, name), readFloats(made, name), readFloats(moments, name)]);
    const n = x.shape.at(-1) as number;
    let [error, all] = [0, 0];
    const squares = Float64Array.from(h.data);
    for (let row = 0; row < x.data.length; row += n) {
      const w = Float64Array.from(x.data.subarray(row, row + n));
      error += formOf(
        squares,
        w.map((v, i) => v - (y.data[row + i] as number)),
      );
      all += formOf(squares, w);
    }
    const types = table.tensors.find((tensor) => tensor.name === name)?.types;
    const expected = types?.find((type) => type.to === to)?.error as number;
    const found = expected / (divergences.get(name) as number);
    // Products of 768 errors are summed in float32, in sums of at most 256: 1e-3 is far above 256 * 2^-24 of the terms, which cancel in part.
    expect(Math.abs(found / (error / all) - 1)).toBeLessThan(1e-3);
  });

  it('is the smallest of the curve with an expected divergence', async () => {
    const curve = sizeCurve(table);
    const { bytes, error } = curve[Math.floor(curve.length / 2)] as SizePoint;
    const fit = fitTypes(table, { targetDivergence: error });
    expect(fit.bytes).toBe(bytes);
    expect(fit.error).toBeLessThanOrEqual(error * (1 + rounding));
    expect(fitTypes(table, { targetDivergence: error * (1 - 1e-9) }).bytes).toBeGreaterThan(bytes);
    for (const [of, targetDivergence] of [
      [table, (curve.at(-1) as SizePoint).error / 2],
      [{ ...table, isDivergence: undefined }, error],
    ] as const) {
      expect(() => fitTypes(of, { targetDivergence })).toThrow(expect.objectContaining({ option: 'targetDivergence' }));
    }
    expect(() => fitTypes(table, { targetDivergence: 1, targetSize: 1 })).toThrow(RangeError);
  });

  it('estimates GPTQ, not plain codes', async () => {
    const options = { to: 'Q3_K_M', sample: Infinity, ...gptq() } as const;
    const { report } = await quantizeModel(file, { to: 'Q3_K_M', ...gptq() });
    const estimate = await estimateModel(file, options);
    for (const [i, { name, error }] of report.tensors.entries()) {
      if (error?.output === undefined) continue;
      expect(estimate.tensors[i]?.error?.output, name).toEqual(error.output);
    }
  });

  it('also chooses types of safetensors', async () => {
    const folder = mkdtempSync(join(tmpdir(), 'fit-outputs-'));
    try {
      const { saveTensors } = await import('../../../web/src/model.js');
      const name = 'blk.0.ffn_down.weight';
      const other = 'blk.0.attn_q.weight';
      const floats = Object.fromEntries(
        await Promise.all([name, other].map(async (one) => [one, await readFloats(file, one)])),
      );
      const path = join(folder, 'model.safetensors');
      await writeFile(path, await saveTensors(floats));
      const options = { to: 'int4', targetBitsPerWeight: 6.5, method: 'gptq', moments: moments } as const;
      const { report, fit } = await quantizeModel(path, options);
      expect(report.totals.bitsPerWeight).toBeLessThanOrEqual(6.5);
      expect(new Set(report.tensors.map(({ to }) => to)).size).toBe(2);
      const loss = lossOf(report);
      expect(Math.abs(loss - (fit?.error as number))).toBeLessThanOrEqual(rounding * loss);
    } finally {
      await rm(folder, { recursive: true });
    }
  });
});

const samples = process.env.SCALEPOINT_SAMPLES;
it.skipIf(samples === undefined)(
  'sample model: diverges less on other texts than a fit by errors of weights, in the same bytes',
  async () => {
    const folder = join(samples as string, 'tinystories-656k');
    const stories = await (await quantizeModel(folder, { to: 'F16', missingBytes: 'keep' })).bytes();
    const data = await calibrateModel(stories, drawn(4096, 5), { chunkSize, moments: true });
    const tables = [
      await measureTypes(stories, { to: 'auto' }),
      await measureTypes(stories, { to: 'auto', method: 'gptq', moments: data }),
    ];
    const kl: number[] = [];
    for (const one of tables) {
      const { to, rules } = fitTypes(one, { targetBitsPerWeight: 5 });
      const bytes = await (
        await quantizeModel(stories, { to: to as 'Q4_0', rules, method: 'gptq', moments: data })
      ).bytes();
      const found = await evaluateModel(bytes, { text: drawn(2048, 77), reference: stories, chunkSize });
      kl.push(found.kl.value);
    }
    expect(kl[1]).toBeLessThan(0.95 * (kl[0] as number));
  },
);
