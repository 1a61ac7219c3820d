// GPTQ in GGUF files: what models say on other texts, the report against sums in float64, and the files of moments.
import { existsSync, mkdtempSync, readdirSync } from 'node:fs';
import { readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { MomentsLayout, type SharedInputs } from '../../../web/src/evaluate/moments-file.js';
import { importanceFile } from '../../../web/src/formats/gguf/importance-matrix.js';
import {
  calibrateModel,
  evaluateModel,
  inspectModel,
  type ModelStatistics,
  planModel,
  type QuantizeModelOptions,
  type QuantizeModelResult,
  quantizeModel,
  type Rule,
  readFloats,
} from '../../../web/src/model.js';
import { madeUp, storyFolder, storyteller } from '../support/divergence.js';
import { NativeModel } from '../support/llama-run.js';
import { needNative } from '../support/native.js';
import { drawn } from '../support/tokens.js';

needNative();

/** Embeddings and heads in float16, so that the weights with moments decide. */
const rules = [{ match: '^(token_embd|output)\\.', to: 'F16' as const }];
const chunkSize = 64;

interface Case {
  readonly file: Uint8Array<ArrayBuffer>;
  readonly statistics: ModelStatistics;
}
const cases = new Map<string, Case>();
const caseOf = (name: string) => cases.get(name) as Case;

beforeAll(async () => {
  for (const [name, file] of [
    ['made up', madeUp()],
    ['storyteller', await storyteller()],
  ] as const) {
    const statistics = await calibrateModel(file, drawn(4096, 5), { chunkSize, moments: true, mix: 0 });
    cases.set(name, { file, statistics });
  }
});

type Target = 'Q4_K_M' | 'Q3_K_M' | 'Q2_K' | 'Q4_0' | 'Q6_K' | 'IQ4_NL' | 'IQ4_XS' | 'NVFP4';

/** Results that several tests look at. */
const results = new Map<string, Promise<QuantizeModelResult>>();

/** A model with feedback. */
function fedBack(name: string, to: Target): Promise<QuantizeModelResult> {
  const { file, statistics } = caseOf(name);
  const made =
    results.get(`${name} ${to}`) ?? quantizeModel(file, { to, method: 'gptq', moments: statistics, rules, workers: 0 });
  results.set(`${name} ${to}`, made);
  return made;
}

/** A model with importance alone, and with feedback. */
async function both(name: string, to: Target) {
  const { file, statistics } = caseOf(name);
  const importance = new Blob([await statistics.bytes()]);
  const plain = await quantizeModel(file, { to, importance, rules, workers: 0 });
  return { file, plain, fed: await fedBack(name, to) };
}

const outputsOf = ({ report }: QuantizeModelResult) =>
  report.tensors.flatMap(({ name, error }) => (error?.output === undefined ? [] : [{ name, ...error.output }]));

/** The diagonals of moments, as an importance matrix: that of GPTQ without `importance`. */
async function importanceOfMoments(moments: Uint8Array<ArrayBuffer>): Promise<Blob> {
  const { metadata } = await inspectModel(moments);
  const entries = Object.entries(metadata as Record<string, string>).filter(([name]) => name.startsWith('blk.'));
  const sums = entries.map(async ([name, entry]) => ({
    name,
    sums: Float64Array.from((await readFloats(moments, `${entry}.diagonal`)).data),
    counts: Float64Array.of(1),
  }));
  return new Blob([importanceFile(await Promise.all(sums), { chunks: 1, chunkSize: 1 })]);
}

/** A file of moments as it is if nothing is held back. */
async function withoutHeldBack(moments: Uint8Array<ArrayBuffer>): Promise<Uint8Array<ArrayBuffer>> {
  const {
    format: _,
    tokens,
    heldBackTokens: __,
    ...entries
  } = (await inspectModel(moments)).metadata as Record<string, string>;
  const inputs: SharedInputs[] = [];
  for (const first of new Set(Object.values(entries))) {
    const names = Object.keys(entries).filter((name) => entries[name] === first);
    const { shape } = await readFloats(moments, first);
    inputs.push({ names, columns: shape[0] as number, heldBack: false });
  }
  const layout = new MomentsLayout(inputs, { tokens: Number(tokens), heldBack: 0 });
  const file = new Uint8Array(layout.size);
  const to = { write: async (at: number, bytes: Uint8Array) => file.set(bytes, at) };
  await to.write(0, layout.header);
  for (const {
    names: [name = ''],
  } of inputs)
    await layout.write(to, name, (await readFloats(moments, name)).data, false);
  return file;
}

async function importanceValues(file: Uint8Array<ArrayBuffer>) {
  const { tensors } = await inspectModel(file);
  const sums = tensors.filter(({ name }) => name.endsWith('.in_sum2'));
  return new Map(await Promise.all(sums.map(async ({ name }) => [name, (await readFloats(file, name)).data] as const)));
}

describe('quantizeModel with gptq', () => {
  it.each([
    ['made up', 'Q4_K_M'],
    ['made up', 'Q2_K'],
    ['storyteller', 'Q3_K_M'],
    ['storyteller', 'Q4_0'],
    ['storyteller', 'IQ4_NL'],
    ['made up', 'IQ4_XS'],
    ['storyteller', 'NVFP4'],
  ] as const)('is closer on other texts than importance alone: %s as %s', async (name, to) => {
    const { file, plain, fed } = await both(name, to);
    const kl = async (made: QuantizeModelResult) => {
      const options = { text: drawn(2048, 77), reference: file, chunkSize };
      const { kl: found } = await evaluateModel(await made.bytes(), options);
      return found as NonNullable<typeof found>;
    };
    const [before, after] = [await kl(plain), await kl(fed)];
    expect(after.value + 2 * Math.hypot(before.error, after.error)).toBeLessThan(before.value);
    for (const { name: tensor, before: b, after: a } of outputsOf(fed)) expect(a, tensor).toBeLessThanOrEqual(b);
    expect(fed.files).toEqual(plain.files.map(({ name: n }) => ({ name: n, bytes: expect.any(Number) })));
  });

  it('reports errors of outputs on held-back data as float64 finds them', async () => {
    const { file, fed } = await both('made up', 'Q4_K_M');
    const moments = await (caseOf('made up').statistics.moments as NonNullable<ModelStatistics['moments']>).bytes();
    const importance = await importanceOfMoments(moments);
    const plain = await quantizeModel(file, { to: 'Q4_K_M', importance, rules, workers: 0 });
    const [a, b] = [await plain.bytes(), await fed.bytes()];
    for (const [weight, entry] of [
      ['blk.0.attn_k.weight', 'blk.0.attn_q.weight'],
      ['blk.2.ffn_down.weight', 'blk.2.ffn_down.weight'],
    ] as const) {
      const fitted = (await readFloats(moments, entry)).data;
      const held = (await readFloats(moments, `${entry}.heldBack`)).data;
      const w = await readFloats(file, weight);
      const n = w.shape.at(-1) as number;
      const squared = (h: Float32Array, x: Float32Array, y?: Float32Array) => {
        let sum = 0;
        for (let row = 0; row < x.length; row += n) {
          const e = Float64Array.from({ length: n }, (_, i) => (x[row + i] as number) - (y?.[row + i] ?? 0));
          // The moments are symmetric.
          for (let i = 0; i < n; i++) {
            let product = 0.5 * e[i]! * h[i * n + i]!;
            for (let j = 0; j < i; j++) product += e[j]! * h[i * n + j]!;
            sum += 2 * e[i]! * product;
          }
        }
        return sum;
      };
      const found = outputsOf(fed).find(({ name }) => name === weight)!;
      const all = squared(held, w.data);
      const [x, y] = [(await readFloats(a, weight)).data, (await readFloats(b, weight)).data];
      expect(Math.abs(found.before / (squared(held, w.data, x) / all) - 1)).toBeLessThan(1e-3);
      expect(Math.abs(found.after / (squared(held, w.data, y) / all) - 1)).toBeLessThan(1e-3);
      expect(found.after).toBeLessThan(0.8 * found.before);
      const share = squared(fitted, w.data, y) / squared(fitted, w.data, x);
      expect(Math.abs((found.fitted as number) / share - 1)).toBeLessThan(1e-3);
      expect(found).toMatchObject({ heldBack: true, damping: 0.01 });
      expect(found.plain).toBeLessThan(0.1);
    }
    expect(fed.report.notes.map(({ kind }) => kind)).not.toContain('notHeldBack');
  });

  it('keeps plain codes where GPTQ is worse on held-back data', async () => {
    const { file } = caseOf('made up');
    // Too few tokens for the columns: errors go to inputs that these do not have, but others do.
    const few = await calibrateModel(file, drawn(128, 5), { chunkSize, moments: true, heldBack: 0.5, mix: 0 });
    const bytes = await few.moments!.bytes();
    const { tensors } = await inspectModel(bytes);
    const worse = 'blk.1.attn_output.weight';
    const { byteOffset, shape } = tensors.find(({ name }) => name === `${worse}.heldBack`)!;
    const n = shape[0] as number;
    new Float32Array(bytes.buffer, byteOffset, n * n).fill(0).forEach((_, i, h) => {
      if (i % (n + 1) === 0) h[i] = 1;
    });
    const options = { to: 'Q4_0', workers: 0, rules } as const;
    const fed = await quantizeModel(file, { ...options, method: 'gptq', moments: new Blob([bytes]) });
    const plain = await quantizeModel(file, { ...options, importance: await importanceOfMoments(bytes) });
    const weights = async ({ bytes: all }: QuantizeModelResult, name: string) =>
      (await readFloats(await all(), name)).data;
    const output = outputsOf(fed).find(({ name }) => name === worse)!;
    expect(output).toMatchObject({ heldBack: true, plain: 1, fitted: 1 });
    expect(output.after).toBe(output.before);
    expect(await weights(fed, worse)).toEqual(await weights(plain, worse));
    const note = fed.report.notes.find(({ kind }) => kind === 'outputsNoBetter');
    expect(note?.tensors).toContain(worse);
    for (const { name, before, after } of outputsOf(fed)) {
      expect(after, name).toBeLessThanOrEqual(before);
      expect(note?.tensors?.includes(name) ?? false, name).toBe(after === before);
    }
    // Without the held-back part, the same weights take the codes that fit the few tokens.
    const old = await withoutHeldBack(bytes);
    const rest = { match: '^(?!blk\\.1\\.attn_output).*', to: 'F16' as const };
    const fitted = await quantizeModel(file, { ...options, rules: [rest], method: 'gptq', moments: new Blob([old]) });
    const other = outputsOf(fitted).find(({ name }) => name === worse)!;
    expect(other).toMatchObject({ heldBack: false });
    expect(other.after).toBeLessThan(0.5 * other.before);
    expect(await weights(fitted, worse)).not.toEqual(await weights(plain, worse));
    expect(fitted.report.notes.find(({ kind }) => kind === 'notHeldBack')?.tensors).toContain(worse);
  });

  it.each(['Q4_0', 'Q2_K', 'Q3_K_M', 'Q6_K', 'IQ4_XS', 'NVFP4'] as const)(
    'makes the same bytes in every way, as %s',
    async (to) => {
      const { file, statistics } = caseOf('made up');
      // Each matrix once in each type that it has in any layer: mixtures give more bits to some layers.
      const all = { to, method: 'gptq', moments: statistics, rules } as const;
      const codesOf = async (choices: QuantizeModelOptions) =>
        (await planModel(file, choices as typeof all)).tensors.filter(
          ({ name, shape, to: type }) => name.startsWith('blk.') && shape.length > 1 && type !== 'F16',
        );
      const every = await codesOf(all);
      const kindOf = ({ name, shape, to: type }: (typeof every)[number]) =>
        `${name.replace(/^blk\.\d+/, '')} ${shape} ${type}`;
      const kinds = every.map(kindOf);
      const some = every.filter((_, i) => kinds.indexOf(kinds[i] as string) === i);
      const own = some.map(({ name, to: type }): Rule => ({ match: `^${name}$`, to: type as typeof to }));
      const rest: Rule = { match: '^blk\\.\\d\\.(attn|ffn)_(q|k|v|output|gate|up|down)\\.', to: 'F16' };
      // Rules take no NVFP4, so that all layers have it.
      const options = to === 'NVFP4' ? all : ({ ...all, rules: [...rules, ...own, rest] } as const);
      expect(await codesOf(options)).toEqual(to === 'NVFP4' ? every : some);
      expect([some.length, every.length]).toEqual([to === 'Q3_K_M' ? 8 : 7, 21]);
      const bytes = await (await quantizeModel(file, { ...options, workers: 0 })).bytes();
      const others = [
        { ...options, workers: 2 },
        { ...options, workers: 0, order: 'falling' as const, core: { simd: 'off' as const } },
        { ...options, workers: 1, moments: new Blob([await statistics.moments!.bytes()]) },
      ];
      for (const other of others) {
        const made = await (await quantizeModel(file, other)).bytes();
        expect(Buffer.compare(made, bytes)).toBe(0);
      }
      // llama.cpp computes what our forward pass does.
      using model = new NativeModel(bytes);
      const ids = [...drawn(24, 3)];
      const theirs = model.logits(ids);
      expect(theirs.every((row) => row.every(Number.isFinite))).toBe(true);
    },
  );

  it.each(['made up', 'storyteller'] as const)('loses less with the largest inputs first: %s', async (name) => {
    const { file, statistics } = caseOf(name);
    const options = { to: 'Q4_0', method: 'gptq', moments: statistics, rules, workers: 0 } as const;
    const sums = [];
    for (const made of [await fedBack(name, 'Q4_0'), await quantizeModel(file, { ...options, order: 'stored' })]) {
      const outputs = outputsOf(made);
      for (const { name: tensor, before, after } of outputs) expect(after, tensor).toBeLessThanOrEqual(before);
      // Matrices differ in their errors by powers of ten.
      sums.push(outputs.reduce((sum, { after }) => sum + Math.log(after), 0) / outputs.length);
    }
    expect(sums[0]).toBeLessThan(sums[1] as number);
  });

  it('takes folders', async () => {
    const folder = storyFolder;
    const ids = drawn(512, 5);
    const statistics = await calibrateModel(folder, ids, { chunkSize, moments: true });
    const options = { to: 'Q4_0', method: 'gptq', missingBytes: 'keep', workers: 0 } as const;
    const fromFolder = await quantizeModel(folder, { ...options, moments: statistics });
    const gguf = await (await quantizeModel(folder, { to: 'F32', missingBytes: 'keep' })).bytes();
    const fromFile = await quantizeModel(gguf, { ...options, moments: statistics });
    expect(outputsOf(fromFolder).length).toBe(29);
    // The table is the output layer, too: moments know nothing of the rows that tokens look up.
    const damped = outputsOf(fromFile).filter(({ damping }) => damping >= 2);
    expect(damped).toMatchObject([{ name: 'token_embd.weight', damping: 2 }]);
    expect(outputsOf(fromFile)).toEqual(expect.arrayContaining(outputsOf(fromFolder)));
  });

  it('names what it rounds to the nearest', async () => {
    const { file, statistics } = caseOf('made up');
    const made = await quantizeModel(file, {
      to: 'Q4_K_M',
      method: 'gptq',
      moments: statistics,
      rules: [{ match: 'blk.0.ffn_up', to: 'IQ3_S' }],
      workers: 0,
    });
    const note = made.report.notes.find(({ kind }) => kind === 'noFeedback');
    expect(note?.tensors).toEqual(['token_embd.weight', 'blk.0.ffn_up.weight']);
    const names = outputsOf(made).map(({ name }) => name);
    expect(names).not.toContain('blk.0.ffn_up.weight');
    expect(names.length).toBe(21);
  });

  it('says that a better search hardly changes it', async () => {
    const { file, statistics } = caseOf('storyteller');
    const options = { to: 'Q4_K_M', method: 'gptq', moments: statistics, rules, workers: 0 } as const;
    const best = await quantizeModel(file, { ...options, search: 'best' });
    const usual = await fedBack('storyteller', 'Q4_K_M');
    const fed = outputsOf(usual).map(({ name }) => name);
    const notes = best.report.notes.filter(({ kind }) => kind === 'searchWithoutEffect');
    expect(notes).toMatchObject([{ text: expect.stringContaining("method: 'gptq'") }]);
    expect([...(notes[0]?.tensors ?? [])].sort()).toEqual(fed.sort());
    expect(usual.report.notes.map(({ kind }) => kind)).not.toContain('searchWithoutEffect');
  });

  it('refuses wrong options', async () => {
    const { file, statistics } = caseOf('made up');
    const to = 'Q4_K_M' as const;
    const rejects = async (options: object, problem: object) =>
      expect(quantizeModel(file, { to, ...options } as Parameters<typeof quantizeModel>[1])).rejects.toMatchObject(
        problem,
      );
    await rejects({ method: 'gptq' }, { option: 'moments' });
    await rejects({ method: 'best' }, { option: 'method' });
    await rejects({ moments: statistics }, { option: 'moments' });
    await rejects({ damping: 0.1 }, { option: 'damping' });
    await rejects({ order: 'stored' }, { option: 'order' });
    await rejects({ method: 'gptq', moments: statistics, order: 'rising' }, { option: 'order' });
    await rejects({ method: 'gptq', moments: statistics, damping: -1 }, { option: 'damping' });
    await rejects({ method: 'gptq', moments: statistics, damping: 11 }, { option: 'damping' });
    await rejects({ method: 'gptq', moments: { moments: 1 } }, { option: 'moments' });
    await rejects({ to: 'copy', method: 'gptq', moments: statistics }, { option: 'method' });
    const withoutMoments = await calibrateModel(file, drawn(64, 1), { chunkSize });
    expect(withoutMoments.moments).toBeUndefined();
    await rejects({ method: 'gptq', moments: withoutMoments }, { option: 'moments' });
    await rejects({ method: 'gptq', moments: new Blob([await statistics.bytes()]) }, { code: 'BAD_FILE' });
    await rejects({ method: 'gptq', moments: new Blob([file]) }, { code: 'BAD_FILE' });
    await rejects({ method: 'gptq', moments: caseOf('storyteller').statistics }, { code: 'BAD_FILE' });
  });

  it('damps more, or fails with the name of the weight', async () => {
    const { file, statistics } = caseOf('made up');
    const good = await statistics.moments!.bytes();
    const { tensors } = await inspectModel(good);
    const square = tensors.find(({ name }) => name === 'blk.1.attn_output.weight')!;
    const changed = (change: (h: Float32Array, n: number) => void) => {
      const bytes = good.slice();
      const h = new Float32Array(bytes.buffer, square.byteOffset, square.bytes / 4);
      change(h, square.shape[0] as number);
      return new Blob([bytes]);
    };
    // All other weights keep their floats.
    const rest = { match: '^(?!blk\\.1\\.attn_output).*', to: 'F16' as const };
    const options = { to: 'Q4_0', method: 'gptq', workers: 0, rules: [rest] } as const;
    // Pairs of columns that agree more than they can.
    const indefinite = changed((h, n) => {
      const large = 1.5 * Math.sqrt((h[0] as number) * (h[n + 1] as number));
      h[1] = large;
      h[n] = large;
    });
    const made = await quantizeModel(file, { ...options, moments: indefinite });
    const note = made.report.notes.find(({ kind }) => kind === 'dampedMore');
    expect(note).toMatchObject({ tensors: ['blk.1.attn_output.weight'] });
    expect(note?.damping).toBeGreaterThan(0.01);
    const holed = changed((h) => {
      h[5] = Number.NaN;
    });
    await expect(quantizeModel(file, { ...options, moments: holed })).rejects.toMatchObject({
      code: 'BAD_FILE',
      tensor: 'blk.1.attn_output.weight',
    });
    const held = tensors.find(({ name }) => name === 'blk.1.attn_output.weight.heldBack')!;
    for (const value of [Number.NaN, Number.POSITIVE_INFINITY]) {
      const bytes = good.slice();
      new Float32Array(bytes.buffer, held.byteOffset, 6).fill(value);
      await expect(quantizeModel(file, { ...options, moments: new Blob([bytes]) })).rejects.toMatchObject({
        code: 'BAD_FILE',
        tensor: 'blk.1.attn_output.weight',
      });
    }
    // Held-back moments of another size and type.
    for (const change of ['"shape":[256,256]', '"dtype":"F32"'] as const) {
      const other = change.startsWith('"shape') ? '"shape":[128,512]' : '"dtype":"I32"';
      const text = new TextDecoder('latin1').decode(good);
      const at = text.indexOf(change, text.indexOf('"blk.1.attn_output.weight.heldBack":'));
      const bytes = good.slice();
      bytes.set(new TextEncoder().encode(other), at);
      await expect(quantizeModel(file, { ...options, moments: new Blob([bytes]) })).rejects.toMatchObject({
        code: 'BAD_FILE',
        tensor: 'blk.1.attn_output.weight',
        message: expect.stringContaining('held-back'),
      });
    }
    const cut = new Blob([good.subarray(0, good.length - 4)]);
    await expect(quantizeModel(file, { ...options, moments: cut })).rejects.toMatchObject({ code: 'BAD_FILE' });
  });
});

describe('calibrateModel with moments', () => {
  const folder = mkdtempSync(join(tmpdir(), 'scalepoint-moments-'));
  afterAll(() => rm(folder, { recursive: true }));

  it('collects the moments of what llama.cpp computes', async () => {
    const { file } = caseOf('made up');
    const ids = Uint32Array.of(1, ...drawn(47, 9));
    const statistics = await calibrateModel(file, ids, { chunkSize: ids.length, moments: true });
    const bytes = await statistics.moments!.bytes();
    using model = new NativeModel(file);
    const inputs = new Map<string, { x: number[]; columns: number }>();
    model.activations([...ids], (name, x, columns) => inputs.set(name, { x: [...x], columns }));
    const { metadata, tensors } = await inspectModel(bytes);
    expect(metadata).toMatchObject({
      format: 'scalepoint.moments',
      tokens: '48',
      'blk.2.attn_v.weight': 'blk.2.attn_q.weight',
    });
    for (const name of [
      'blk.0.attn_q.weight',
      'blk.2.attn_output.weight',
      'blk.0.ffn_gate.weight',
      'blk.1.ffn_down.weight',
    ]) {
      const { x, columns } = inputs.get(name)!;
      const rows = x.length / columns;
      const h = (await readFloats(bytes, name)).data;
      const diagonal = (await readFloats(bytes, `${name}.diagonal`)).data;
      const most = diagonal.reduce((a, b) => Math.max(a, b));
      for (const [i, j] of [
        [0, 0],
        [3, 7],
        [7, 3],
        [columns - 1, 2],
        [100, 101],
        [columns - 1, columns - 1],
      ] as const) {
        let sum = 0;
        for (let row = 0; row < rows; row++) sum += x[row * columns + i]! * x[row * columns + j]!;
        expect(Math.abs((h[i * columns + j] as number) - sum / rows), `${name} ${i} ${j}`).toBeLessThan(1e-3 * most);
        expect(h[i * columns + j]).toBe(h[j * columns + i]);
      }
      expect([...diagonal]).toEqual(Array.from({ length: columns }, (_, i) => h[i * (columns + 1)]));
    }
    // Each weight has a divergence. Products that share inputs share moments: four for each layer, and those of the head.
    expect(tensors.length).toBe(2 * (4 * 3 + 1) + (7 * 3 + 2));
  });

  it('holds chunks back, of which the last may be shorter', async () => {
    const { file } = caseOf('made up');
    // Ten chunks, and a half.
    const ids = drawn(10.5 * chunkSize, 9);
    const chunk = (i: number) => ids.slice(i * chunkSize, (i + 1) * chunkSize);
    const ownOf = (isHeld: boolean, held: readonly number[]) =>
      Uint32Array.from(
        Array.from({ length: 11 }, (_, i) => i).flatMap((i) => (held.includes(i) === isHeld ? [...chunk(i)] : [])),
      );
    const all = await importanceValues(await (await calibrateModel(file, ids, { chunkSize })).bytes());
    for (const [heldBack, held] of [
      [undefined, [1, 9, 10]],
      [0.25, [1, 5, 9, 10]],
      [0.5, [1, 3, 5, 7, 9, 10]],
    ] as const) {
      const options = { chunkSize, moments: true, heldBack, mix: 0 };
      const statistics = await calibrateModel(file, ids, options);
      expect(statistics).toMatchObject({ tokens: ids.length, chunks: 11, heldBackChunks: held.length });
      const bytes = await statistics.moments!.bytes();
      const [own, other] = [ownOf(false, held), ownOf(true, held)];
      expect((await inspectModel(bytes)).metadata).toMatchObject({
        tokens: String(own.length),
        heldBackTokens: String(other.length),
      });
      // Slices begin elsewhere, so that sums in float32 differ by the rounding of up to 256 products.
      for (const [data, end] of [
        [own, ''],
        [other, '.heldBack'],
      ] as const) {
        const alone = await calibrateModel(file, data, { ...options, heldBack: 0 });
        expect(alone.heldBackChunks).toBe(0);
        const expected = await alone.moments!.bytes();
        for (const name of ['blk.0.attn_q.weight', 'blk.2.ffn_down.weight']) {
          const found = (await readFloats(bytes, `${name}${end}`)).data;
          const { data: h } = await readFloats(expected, name);
          const most = h.reduce((a, b) => Math.max(a, b));
          found.forEach((v, i) => {
            if (Math.abs(v - (h[i] as number)) > 256 * 2 ** -23 * most) throw new Error(`${name}${end} ${i}`);
          });
        }
      }
      // The importance counts all tokens.
      const counted = await importanceValues(await statistics.bytes());
      for (const [name, values] of all) {
        const most = values.reduce((a, b) => Math.max(a, b));
        values.forEach((v, i) => {
          if (Math.abs(v - (counted.get(name)?.[i] as number)) > 256 * 2 ** -23 * most) throw new Error(name);
        });
      }
    }
  });

  it('holds nothing back of a single chunk, and says so', async () => {
    const { file } = caseOf('made up');
    const ids = drawn(1.5 * chunkSize, 9);
    const statistics = await calibrateModel(file, ids, { chunkSize, moments: true });
    expect(statistics).toMatchObject({ chunks: 2, heldBackChunks: 0 });
    const made = await quantizeModel(file, { to: 'Q4_0', method: 'gptq', moments: statistics, workers: 0 });
    expect(made.report.notes.find(({ kind }) => kind === 'notHeldBack')?.tensors?.length).toBe(22);
    const rejects = async (options: object, problem: object) =>
      expect(calibrateModel(file, ids, { chunkSize, moments: true, ...options })).rejects.toMatchObject(problem);
    await rejects({ heldBack: 0.25 }, { option: 'data', name: 'RangeError' });
    for (const wrong of [-0.1, 0.51, Number.NaN, '0.1']) await rejects({ heldBack: wrong }, { option: 'heldBack' });
    await rejects({ heldBack: 0.25, moments: false }, { option: 'heldBack' });
    expect((await calibrateModel(file, ids, { chunkSize, moments: true, heldBack: 0 })).heldBackChunks).toBe(0);
  });

  it('writes both files or none', async () => {
    const { file } = caseOf('made up');
    const output = join(folder, 'imatrix.gguf');
    const path = `${output}.moments.safetensors`;
    const statistics = await calibrateModel(file, drawn(64, 1), { chunkSize, moments: true, output });
    expect(statistics.moments).toMatchObject({ path, size: (await readFile(path)).length });
    await expect(statistics.moments!.bytes()).rejects.toThrow(TypeError);
    const made = await quantizeModel(file, { to: 'Q4_0', method: 'gptq', moments: statistics, workers: 0 });
    expect(outputsOf(made).length).toBe(22);
    await expect(calibrateModel(file, drawn(64, 1), { chunkSize, moments: true, output })).rejects.toMatchObject({
      code: 'EXISTS',
    });
    // Stopped in the middle.
    const controller = new AbortController();
    const stopped = join(folder, 'stopped.gguf');
    const promise = calibrateModel(file, drawn(256, 1), {
      chunkSize,
      moments: true,
      output: stopped,
      signal: controller.signal,
      onProgress: ({ pass }) => {
        if (pass === 3) controller.abort();
      },
    });
    await expect(promise).rejects.toMatchObject({ name: 'AbortError' });
    expect(existsSync(stopped)).toBe(false);
    expect(readdirSync(folder).sort()).toEqual(['imatrix.gguf', 'imatrix.gguf.moments.safetensors']);
  });
});
