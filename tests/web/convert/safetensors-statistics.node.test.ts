// Codes of safetensors by data about the inputs: outputs on other texts, weighted errors in float64, names, wrong data.
import { mkdtempSync } from 'node:fs';
import { cp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { load } from 'scalepoint';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import {
  calibrateModel,
  evaluateModel,
  inspectModel,
  type ModelStatistics,
  planModel,
  type QuantizeModelOptions,
  type QuantizeModelResult,
  quantizeModel,
  readFloats,
  type SavableTensor,
  saveTensors,
} from '../../../web/src/model.js';
import { storyFolder } from '../support/divergence.js';
import { Random } from '../support/support.js';

const source = storyFolder;

/** Ids that are drawn evenly. */
const drawn = (n: number, seed: number) => {
  const random = new Random(seed);
  return Uint32Array.from(random.bell(n), (v) => 3 + (Math.floor(Math.abs(v * 1e5)) % 500));
};
const chunkSize = 64;
const granularity = { kind: 'per-group', groupSize: 32 } as const;

describe('codes of a folder by data', () => {
  let folder = '';
  let statistics: ModelStatistics;
  let matrix: Blob;
  let names: string[] = [];

  beforeAll(async () => {
    folder = mkdtempSync(join(tmpdir(), 'scalepoint-'));
    await cp(source, join(folder, 'model'), { recursive: true });
    statistics = await calibrateModel(source, drawn(4096, 5), { chunkSize, moments: true });
    matrix = new Blob([await statistics.bytes()]);
    const { tensors } = await inspectModel(join(source, 'model.safetensors'));
    names = tensors.map(({ name }) => name);
  });
  afterAll(() => rm(folder, { recursive: true }));

  /** Results by their options, for tests that look at the same. */
  const results = new Map<string, Promise<QuantizeModelResult>>();
  function made(options: Partial<QuantizeModelOptions>): Promise<QuantizeModelResult> {
    const { moments: data, importance, ...plain } = options;
    const key = JSON.stringify([plain, data === undefined, importance === undefined]);
    const isShared = (data === undefined || data === statistics) && (importance === undefined || importance === matrix);
    const result =
      (isShared ? results.get(key) : undefined) ??
      quantizeModel(source, { to: 'int4', granularity, workers: 0, ...options } as QuantizeModelOptions);
    if (isShared) results.set(key, result);
    return result;
  }

  /** The folder with the restored weights of a result. @param part of the names of weights that are restored; others stay as they are */
  async function restored(result: QuantizeModelResult, part = ''): Promise<string> {
    // Codes of MLX need the settings beside them.
    const codes = join(folder, 'codes.safetensors');
    await writeFile(codes, await result.bytes());
    await writeFile(join(folder, 'config.json'), JSON.stringify(result.config ?? {}));
    const tensors: Record<string, SavableTensor> = {};
    for (const name of names) {
      const { data, shape } = await readFloats(name.includes(part) ? codes : join(source, 'model.safetensors'), name);
      tensors[name] = { data, shape } as SavableTensor;
    }
    await writeFile(join(folder, 'model', 'model.safetensors'), await saveTensors(tensors));
    return join(folder, 'model');
  }
  const outputsOf = ({ report }: QuantizeModelResult) =>
    report.tensors.flatMap(({ name, error }) => (error?.output === undefined ? [] : [{ name, ...error.output }]));

  it.each(['symmetric', 'asymmetric'] as const)('is closer on other texts: %s', async (scheme) => {
    const kl = async (options: Partial<QuantizeModelOptions>) => {
      const file = await restored(await made({ scheme, ...options }));
      const { kl: found } = await evaluateModel(file, { text: drawn(2048, 77), reference: source, chunkSize });
      return found as NonNullable<typeof found>;
    };
    const plain = await kl({ range: 'mse' });
    const fed = await kl({ method: 'gptq', moments: statistics });
    expect(fed.value + 2 * Math.hypot(plain.error, fed.error)).toBeLessThan(plain.value);
    const outputs = outputsOf(await made({ scheme, method: 'gptq', moments: statistics }));
    expect(outputs.length).toBe(28);
    for (const { name, before, after } of outputs) expect(after, name).toBeLessThan(before);
  });

  it.each([
    { to: 'mlx-4bit', granularity },
    { to: 'mlx-3bit', granularity },
    { to: 'mlx-nvfp4' },
    { to: 'mlx-mxfp4' },
    { to: 'nvfp4' },
    { to: 'mxfp4' },
    { to: 'gptq', granularity },
    { to: 'awq', granularity },
  ] as const)('is closer on other texts than the nearest codes by importance: %o', async (grid) => {
    const config = JSON.parse(await readFile(join(source, 'config.json'), 'utf8'));
    const base = { granularity: undefined, config, ...grid } as const;
    const fed = await made({ ...base, method: 'gptq', moments: statistics });
    // All weights of layers have moments.
    const outputs = outputsOf(fed);
    expect(outputs.length).toBeGreaterThanOrEqual(28);
    for (const { name, before, after } of outputs) expect(after, name).toBeLessThanOrEqual(before);
    const meanLog = (which: 'before' | 'after') =>
      outputs.reduce((sum, output) => sum + Math.log(output[which]), 0) / outputs.length;
    expect(Math.exp(meanLog('after') - meanLog('before'))).toBeLessThan(0.8);
    // The embeddings, which MLX stores in codes, too, are multiplied with other inputs than texts have here.
    const kl = async (result: QuantizeModelResult) =>
      (await evaluateModel(await restored(result, '_proj'), { text: drawn(2048, 77), reference: source, chunkSize })).kl
        ?.value;
    expect(await kl(fed)).toBeLessThan((await kl(await made({ ...base, importance: matrix }))) as number);
  });

  it.each([
    { to: 'int4', granularity, scheme: 'symmetric' },
    { to: 'int4', granularity, scheme: 'asymmetric' },
    { to: 'int8', granularity: { kind: 'per-channel' }, scheme: 'asymmetric', packed: false },
    { to: 'int8', granularity, scheme: 'symmetric' },
  ] as const)('stores the codes whose errors it reports: %o', async (options) => {
    const importance = new Map<string, Float32Array>();
    const read = async (name: string) => (await readFloats(matrix, `${name}.in_sum2`)).data;
    importance.set('model.layers.0.self_attn.q_proj.weight', await read('blk.0.attn_q.weight'));
    importance.set('model.layers.1.mlp.down_proj.weight', await read('blk.1.ffn_down.weight'));
    const plain = await made({ ...options, range: 'mse' });
    const weighted = await made({ ...options, importance: matrix });
    for (const [name, weights] of importance) {
      const x = (await readFloats(join(source, 'model.safetensors'), name)).data;
      const errorOf = async (result: QuantizeModelResult) => {
        const y = (await readFloats(await result.bytes(), name)).data;
        let [error, all] = [0, 0];
        for (const [i, v] of x.entries()) {
          const w = weights[i % weights.length] as number;
          error += w * (v - (y[i] as number)) ** 2;
          all += w * v * v;
        }
        return Math.sqrt(error / all);
      };
      const found = await errorOf(weighted);
      expect(found).toBeLessThan(await errorOf(plain));
      const said = weighted.report.tensors.find((tensor) => tensor.name === name)?.error?.weightedL2;
      // Sums of 512 products in float32.
      expect(Math.abs((said as number) / found - 1)).toBeLessThan(1e-4);
    }
  });

  it.each([
    { to: 'int4', granularity, scheme: 'asymmetric' },
    { to: 'int8', granularity, scheme: 'symmetric' },
    { to: 'int8', granularity: { kind: 'per-channel' }, scheme: 'asymmetric', packed: false },
    { to: 'mlx-4bit', granularity },
    { to: 'nvfp4', granularity: undefined },
    { to: 'mlx-mxfp4', granularity: undefined },
  ] as const)('makes the same bytes in every way: %o', async (options) => {
    for (const more of [{ importance: matrix }, { method: 'gptq', moments: statistics }] as const) {
      const bytes = await (await made({ ...options, ...more })).bytes();
      for (const other of [{ workers: 2 }, { core: { simd: 'off' as const } }]) {
        const same = await (await made({ ...options, ...more, ...other })).bytes();
        expect(Buffer.compare(same, bytes)).toBe(0);
      }
    }
  });

  it.each([
    { to: 'int4', granularity, scheme: 'asymmetric' },
    { to: 'int8', granularity: { kind: 'per-channel' }, scheme: 'symmetric', packed: false },
  ] as const)('reports errors of outputs on held-back data: %o', async (options) => {
    const moments = await (statistics.moments as NonNullable<ModelStatistics['moments']>).bytes();
    const fed = await made({ ...options, method: 'gptq', moments: statistics });
    const bytes = await fed.bytes();
    for (const [name, entry] of [
      ['model.layers.0.self_attn.v_proj.weight', 'blk.0.attn_q.weight'],
      ['model.layers.1.mlp.down_proj.weight', 'blk.1.ffn_down.weight'],
    ] as const) {
      const h = (await readFloats(moments, `${entry}.heldBack`)).data;
      const w = (await readFloats(join(source, 'model.safetensors'), name)).data;
      const q = (await readFloats(bytes, name)).data;
      const n = Math.sqrt(h.length);
      const squared = (x: (i: number) => number) => {
        let sum = 0;
        for (let row = 0; row < w.length; row += n) {
          const values = Float64Array.from({ length: n }, (_, i) => x(row + i));
          // The moments are symmetric.
          for (let i = 0; i < n; i++) {
            let product = 0.5 * values[i]! * h[i * n + i]!;
            for (let j = 0; j < i; j++) product += values[j]! * h[i * n + j]!;
            sum += 2 * values[i]! * product;
          }
        }
        return sum;
      };
      const expected = squared((i) => (w[i] as number) - (q[i] as number)) / squared((i) => w[i] as number);
      const found = outputsOf(fed).find((output) => output.name === name);
      expect(found).toMatchObject({ heldBack: true });
      // Products in float32.
      expect(Math.abs((found?.after as number) / expected - 1)).toBeLessThan(1e-3);
    }
  });

  it('takes the own names of tensors first', async () => {
    using sp = await load();
    const importance = sp.importance();
    const name = 'model.layers.0.self_attn.q_proj.weight';
    const x = Float32Array.from({ length: 96 }, (_, i) => (i < 8 ? 10 : 0.01));
    importance.add(name, x, { columns: 96 });
    importance.add('blk.0.attn_q.weight', x.toReversed(), { columns: 96 });
    const result = await made({ importance: new Blob([await importance.file()]) });
    const { notes, tensors } = result.report;
    expect(notes.find(({ kind }) => kind === 'unusedImportance')?.tensors).toEqual(['blk.0.attn_q.weight']);
    expect(notes.find(({ kind }) => kind === 'noImportance')?.tensors).toHaveLength(27);
    expect(tensors.find((tensor) => tensor.name === name)?.error?.weightedL2).toBeLessThan(0.1);
  });

  it('refuses wrong options and data', async () => {
    const rejects = (options: object, problem: object) => expect(made(options)).rejects.toMatchObject(problem);
    const data = statistics;
    await rejects({ method: 'gptq' }, { option: 'moments' });
    await rejects({ moments: data }, { option: 'moments' });
    await rejects({ damping: 0.1 }, { option: 'damping' });
    await rejects({ importance: 7 }, { option: 'importance' });
    await rejects({ importance: matrix, range: 'min-max' }, { option: 'range' });
    await rejects({ method: 'gptq', moments: data, range: 'entropy' }, { option: 'range' });
    await rejects({ to: 'float16', granularity: undefined, importance: matrix }, { option: 'importance' });
    await rejects({ to: 'float8e4m3fn', granularity: undefined, method: 'gptq', moments: data }, { option: 'method' });
    await rejects({ to: 'mxfp8', granularity: undefined, method: 'gptq', moments: data }, { option: 'method' });
    await rejects({ to: 'copy', granularity: undefined, importance: matrix }, { option: 'importance' });
    await rejects({ importance: new Blob([new Uint8Array(64)]) }, { code: 'BAD_FILE' });
    await rejects({ method: 'gptq', moments: matrix }, { code: 'BAD_FILE' });
    await rejects(
      { method: 'gptq', moments: new Blob([await readFile(join(source, 'model.safetensors'))]) },
      { code: 'BAD_FILE' },
    );
    // Statistics of another model: other columns, and other names.
    using sp = await load();
    const matrixOf = async (name: string, columns: number) => {
      const importance = sp.importance();
      importance.add(name, new Float32Array(columns).fill(1), { columns });
      return new Blob([await importance.file()]);
    };
    await rejects(
      { importance: await matrixOf('blk.0.attn_q.weight', 64) },
      { code: 'BAD_FILE', tensor: 'model.layers.0.self_attn.q_proj.weight' },
    );
    await rejects({ importance: await matrixOf('blk.0.other.weight', 96) }, { code: 'BAD_FILE' });
  });

  it('plans the same sizes', async () => {
    const plan = await planModel(source, { to: 'int4', granularity, method: 'gptq', moments: statistics });
    const plain = await planModel(source, { to: 'int4', granularity });
    expect(plan.totals).toEqual(plain.totals);
    expect(plan.quantizationConfig).toMatchObject({ config_groups: { group_0: { weights: { observer: 'mse' } } } });
    const result = await made({ method: 'gptq', moments: statistics });
    expect((await result.bytes()).length).toBe(plan.totals.bytesAfter);
  });
});
