// Results of a given size: what the table says is what results are, and what is chosen is the best of it.
import { describe, expect, it } from 'vitest';
import { mixtures } from '../../../web/src/formats/gguf/gguf.js';
import {
  fitTypes,
  inspectModel,
  type ModelReport,
  measureTypes,
  planModel,
  quantizeModel,
  sizeCurve,
} from '../../../web/src/model.js';
import { rulesFrom, rulesText } from '../../../web/src/tooling.js';
import { activationsOf, matrixFile } from '../support/importance.js';
import { safetensors, weights } from '../support/models.js';
import { thrownBy } from '../support/support.js';
import { tinyLlama } from '../support/tiny-llama.js';

const llama = tinyLlama({ layers: 3, rows: 8 });
const table = await measureTypes(llama, { to: 'auto' });
const [smallest, largest] = [sizeCurve(table)[0]!.bytes, sizeCurve(table).at(-1)!.bytes];

/** The loss of a result, as the table counts it: embeddings and the output layer eight times. */
const lossOf = ({ tensors }: ModelReport) =>
  tensors.reduce((sum, { name, error }) => {
    const weight = /^(token_embd|output)\.weight$/.test(name) ? 8 : 1;
    return sum + weight * (error?.relativeL2 ?? 0) ** 2;
  }, 0);

// Sums of so few terms in another order differ by less.
const rounding = 1e-12;

describe('a GGUF result of a given size', () => {
  it('mixes types without grids, and floats of 16 bits', () => {
    const types = ['Q4_0', 'Q4_1', 'Q5_0', 'Q5_1', 'Q8_0', 'Q2_K', 'Q3_K', 'Q4_K', 'Q5_K', 'Q6_K', 'IQ4_NL', 'IQ4_XS'];
    expect(mixtures.types('Q4_K_M')).toEqual([...types, 'F16', 'BF16']);
    expect(mixtures.types('copy')).toBeUndefined();
  });

  it.each([0, 0.1, 0.35, 0.6, 1])('is as large and as good as predicted: %s', async (part) => {
    const targetSize = Math.floor(smallest + part * (largest - smallest));
    const plan = await planModel(llama, { to: 'auto', targetSize });
    const { fit } = plan;
    const result = await quantizeModel(llama, plan);
    const bytes = await result.bytes();
    expect(bytes.length).toBeLessThanOrEqual(targetSize);
    expect(bytes.length).toBe(plan.totals.bytesAfter);
    expect(bytes.length).toBe(fit?.bytes);
    const loss = lossOf(result.report);
    expect(Math.abs(loss - fit!.error)).toBeLessThanOrEqual(rounding * loss);
    expect(fit?.bound).toBe(fit?.error);
    expect(fitTypes(table, { targetSize })).toMatchObject({ bytes: fit?.bytes, error: fit?.error, rules: fit?.rules });
    // The same in one step, and from the rules as text.
    const inOne = await quantizeModel(llama, { to: plan.to, targetSize });
    expect(await inOne.bytes()).toEqual(bytes);
    const rules = rulesFrom(rulesText(fit!.rules));
    expect(await (await quantizeModel(llama, { to: plan.to, rules })).bytes()).toEqual(bytes);
  });

  it.each(['Q3_K_M', 'Q4_K_M', 'Q5_K_M'] as const)('loses less than %s in the same bytes', async (to) => {
    const recipe = await quantizeModel(llama, { to });
    const targetSize = recipe.report.totals.bytesAfter;
    const { report } = await quantizeModel(llama, { to, targetSize });
    expect(report.totals.bytesAfter).toBeLessThanOrEqual(targetSize);
    expect(lossOf(report)).toBeLessThan(lossOf(recipe.report));
  });

  it('has at most the given bits for each weight', async () => {
    const { totals, fit } = await planModel(llama, { to: 'auto', targetBitsPerWeight: 4.5 });
    expect(totals.bitsPerWeight).toBeLessThanOrEqual(4.5);
    expect(fit?.bytes).toBe(totals.bytesAfter);
    // One step more of any weight would be too much: the smallest are 8 rows of 256, in which a type more takes 0.4 to 2 bits.
    const elements = table.tensors.reduce((sum, tensor) => sum + tensor.elements, 0);
    expect(totals.bitsPerWeight).toBeGreaterThan(4.5 - (2 * 8 * 256) / elements);
  });

  it('keeps everything as it is where that fits', async () => {
    const plan = await planModel(llama, { to: 'auto', targetSize: '1 TB' });
    expect(plan.to).toBe('F16');
    expect(plan.fit).toMatchObject({ error: 0, bound: 0 });
    expect(plan.tensors.every(({ from, to }) => from === to)).toBe(true);
  });

  it('is refused with the smallest size if there is nothing as small', async () => {
    const expected = { kind: 'number', min: smallest, unit: 'bytes' };
    const refusal = { name: 'RangeError', problem: { option: 'targetSize', expected, got: smallest - 1 } };
    await expect(planModel(llama, { to: 'auto', targetSize: smallest - 1 })).rejects.toMatchObject(refusal);
    expect((await planModel(llama, { to: 'auto', targetSize: smallest })).fit?.bytes).toBe(smallest);
    const bits = await planModel(llama, { to: 'auto', targetBitsPerWeight: 1 }).catch((error) => error);
    expect(bits).toMatchObject({ name: 'RangeError', option: 'targetBitsPerWeight' });
    const least = bits.problem.expected.min as number;
    await planModel(llama, { to: 'auto', targetBitsPerWeight: least });
  });

  it('follows rules first', async () => {
    const rules = [
      { match: /ffn_up/, to: 'Q8_0' },
      { match: /blk\.0\.ffn_down/, keep: true },
    ] as const;
    const { report, fit } = await quantizeModel(llama, { to: 'Q4_K_M', targetBitsPerWeight: 6, rules });
    const types = new Map(report.tensors.map(({ name, to }) => [name, to]));
    expect(types.get('blk.1.ffn_up.weight')).toBe('Q8_0');
    expect(types.get('blk.0.ffn_down.weight')).toBe('F16');
    expect(fit?.rules.every(({ match }) => !new RegExp(match).test('blk.1.ffn_up.weight'))).toBe(true);
    const loss = lossOf(report);
    expect(Math.abs(loss - fit!.error)).toBeLessThanOrEqual(rounding * loss);
  });

  it('replaces types that do not fit the rows', async () => {
    const narrow = tinyLlama({ layers: 1, embedding: 96, feedForward: 128, attention: 64 });
    const plan = await planModel(narrow, { to: 'auto', targetBitsPerWeight: 7 });
    expect(plan.notes).toEqual([]);
    expect((await (await quantizeModel(narrow, plan)).bytes()).length).toBe(plan.fit?.bytes);
  });

  it('fits with a result in several files', async () => {
    const targetSize = Math.floor((smallest + largest) / 2);
    const plan = await planModel(llama, { to: 'auto', targetSize, splitTensors: 5 });
    expect(plan.files.length).toBeGreaterThan(3);
    expect(plan.files.reduce((sum, { bytes }) => sum + bytes, 0)).toBeLessThanOrEqual(targetSize);
  });
});

describe('with an importance matrix', async () => {
  const { tensors } = await inspectModel(llama);
  const activations = activationsOf(tensors);
  const importance = matrixFile(activations);

  it('chooses types as without it, and rounds by it', async () => {
    const same = await measureTypes(llama, { to: 'auto', importance });
    // Keys about the matrix make the header larger.
    expect({ ...same, otherBytes: 0 }).toEqual({ ...table, otherBytes: 0 });
    expect(same.otherBytes).toBeGreaterThan(table.otherBytes);
    const plain = await planModel(llama, { to: 'auto', targetBitsPerWeight: 4.5 });
    const weighted = await planModel(llama, { to: 'auto', targetBitsPerWeight: 4.5, importance });
    expect({ ...weighted.fit, bytes: 0 }).toEqual({ ...plain.fit, bytes: 0 });
    const [a, b] = await Promise.all([plain, weighted].map(async (plan) => (await quantizeModel(llama, plan)).bytes()));
    expect(Buffer.compare(a!, b!)).not.toBe(0);
    // A file of exactly the given size is possible, and a larger one never comes out.
    for (const size of [a!.length, b!.length, b!.length + 32]) {
      const file = await (await quantizeModel(llama, { to: 'auto', targetSize: size, importance })).bytes();
      expect(file.length).toBeLessThanOrEqual(size);
    }
  });

  it('reads the matrix once for the plans of all types', async () => {
    let read = 0;
    const file = {
      stat: async () => ({ size: importance.length, mtimeMs: 0, isFile: () => true }),
      async read(buffer: Uint8Array, offset: number, length: number, position: number) {
        buffer.set(importance.subarray(position, position + length), offset);
        read += length;
        return { bytesRead: length };
      },
    };
    const expected = await planModel(llama, { to: 'auto', targetBitsPerWeight: 4.5, importance });
    const plan = await planModel(llama, { to: 'auto', targetBitsPerWeight: 4.5, importance: file });
    expect(plan.fit).toEqual(expected.fit);
    // All of it once, what lies behind the header in the blocks that the header is read by, and the start that shows its kind.
    expect(read).toBeLessThan(2 * importance.length + 2 ** 12);
  });
});

it('gives the same table with any workers', async () => {
  for (const workers of [0, 2]) expect(await measureTypes(llama, { to: 'auto', workers })).toEqual(table);
  expect(structuredClone(table)).toEqual(table);
});

it('draws a curve that falls, of sizes that can be had', () => {
  const curve = sizeCurve(table);
  for (const [i, { bytes, error }] of curve.entries()) {
    const before = curve[i - 1];
    if (before !== undefined) expect(bytes > before.bytes && error < before.error).toBe(true);
    const fit = fitTypes(table, { targetSize: bytes });
    expect(fit.bytes).toBe(bytes);
    expect(Math.abs(fit.error - error)).toBeLessThanOrEqual(rounding * curve[0]!.error);
  }
});

it('names layers of one type in one rule', async () => {
  const { rules } = fitTypes(table, { targetSize: smallest });
  const text = rulesText(rules);
  expect(text).toContain('^blk\\.(0|1|2)\\.ffn_down\\.weight$=Q2_K\n');
  expect(rulesFrom(`# mine\r\n\r\n${text}lm_head = keep\n`).at(-1)).toEqual({ match: 'lm_head ', keep: true });
  expect(() => rulesFrom('a=Q8_0\nb')).toThrow(/^line 2: .*'REGEX=keep', got "b"$/);
  expect(() => rulesFrom('(=Q8_0')).toThrow(/^line 1: expected a regular expression, got "\(": a \( has no \)$/);
});

const model = safetensors({
  'model.embed_tokens.weight': weights('F32', [64, 256]),
  'model.layers.0.q_proj.weight': weights('F32', [256, 256], 2),
  'model.layers.0.k_proj.weight': weights('BF16', [64, 256], 3),
  'model.layers.1.q_proj.weight': weights('F32', [256, 256], 4),
  'model.norm.weight': weights('F32', [256], 5),
});

it.each(['150kB', '200kB', '400kB'])(
  'fits safetensors into %s with what one configuration can say',
  async (targetSize) => {
    const plan = await planModel(model, { to: 'int4', targetSize });
    const result = await quantizeModel(model, plan);
    const bytes = await result.bytes();
    expect(bytes.length).toBe(plan.fit?.bytes);
    const limit = 1000 * Number.parseInt(targetSize, 10);
    expect(bytes.length).toBeLessThanOrEqual(limit);
    const { tensors } = await inspectModel(bytes);
    expect(tensors.length).toBeGreaterThan(4);
    const loss = result.report.tensors.reduce((sum, { error }) => sum + (error?.relativeL2 ?? 0) ** 2, 0);
    expect(Math.abs(loss - plan.fit!.error)).toBeLessThanOrEqual(rounding * loss);
  },
);

it.each<[Parameters<typeof fitTypes>[1], string, object]>([
  [{ targetSize: 'big' }, 'targetSize', { expected: { kind: 'anyOf' }, got: 'big' }],
  [{ targetSize: 0 }, 'targetSize', { got: 0 }],
  [{ targetBitsPerWeight: 0 }, 'targetBitsPerWeight', { expected: { kind: 'number', above: 0, max: 64 }, got: 0 }],
  [{ targetBitsPerWeight: Number.NaN }, 'targetBitsPerWeight', { got: Number.NaN }],
  [
    { targetSize: 1, targetBitsPerWeight: 1 },
    'targetBitsPerWeight',
    { expected: { kind: 'without', other: { option: 'targetSize' } } },
  ],
])('refuses what is no size: %o', async (size, option, problem) => {
  const error = { option, problem };
  await expect(planModel(llama, { to: 'auto', ...size })).rejects.toMatchObject(error);
  await expect(quantizeModel(llama, { to: 'Q4_0', ...size })).rejects.toMatchObject(error);
  expect(thrownBy(() => fitTypes(table, size))).toMatchObject(error);
});

it('refuses sizes where the target decides about all types, and auto without a size', async () => {
  const size = { targetSize: '1MB' };
  await expect(planModel(model, { to: 'float16', ...size })).rejects.toMatchObject({ option: 'targetSize' });
  await expect(planModel(llama, { to: 'copy', ...size })).rejects.toMatchObject({ option: 'targetSize' });
  await expect(planModel(llama, { to: 'auto' })).rejects.toMatchObject({ option: 'to' });
  expect(() => fitTypes(table, {})).toThrow(/targetSize/);
});
