// Folders for transformers.js as models of their own: judged on texts, compared and run.
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { compareModels, evaluateModel, type QuantizeModelResult, quantizeModel } from 'scalepoint/model';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { NativeBackend } from '../../../../web/src/cli/native.js';
import { run } from '../../cli/support.js';
import { howToInstall } from '../../formats/onnx/transformers.js';
import { furthest, largest } from '../../support/decoder-tables.js';
import { story, storyFolder } from '../../support/divergence.js';
import { RunningDecoder } from './runs.js';

const place = mkdtempSync(join(tmpdir(), 'scalepoint-made-'));
afterAll(() => rmSync(place, { recursive: true }));

const dtypes = ['fp32', 'fp16', 'q8', 'int8', 'uint8', 'q4', 'q4f16', 'bnb4', 'q8-blocks'] as const;
const made = new Map<string, QuantizeModelResult>();
const folderOf = (dtype: (typeof dtypes)[number]) => join(place, dtype);
const fileOf = (dtype: (typeof dtypes)[number]) => made.get(dtype)!.files[0]!.name.replace(/^[^/]*/, folderOf(dtype));

beforeAll(async () => {
  for (const to of dtypes) {
    made.set(to, await quantizeModel(storyFolder, { to: `onnx:${to}`, output: folderOf(to), workers: 0 }));
  }
});

const options = { text: story, chunkSize: 64, workers: 0 };

describe('evaluateModel', () => {
  it('has the figures of the source for float32, by the folder and by the file in it', async () => {
    const own = await evaluateModel(storyFolder, options);
    for (const model of [folderOf('fp32'), fileOf('fp32')]) {
      const found = await evaluateModel(model, { ...options, reference: storyFolder });
      // The tokenizer is that of the folder.
      expect(found).toMatchObject({ tokens: own.tokens, counted: own.counted, referencePerplexity: own.perplexity });
      // Logits of both are off by 2.2e-6 of the largest at most, which is below 32: by 7e-5.
      expect(Math.abs(Math.log(found.perplexity.value / own.perplexity.value))).toBeLessThan(1.4e-4);
      expect(found.kl.max).toBeLessThan(1e-6);
      expect(found.sameTop.value).toBe(1);
    }
  });

  it.each(dtypes.slice(1))('tells how far %s is from float32', async (dtype) => {
    const found = await evaluateModel(folderOf(dtype), { ...options, reference: folderOf('fp32') });
    expect(found.kl.value).toBeGreaterThan(0);
    // float16 has errors of 2^-11, codes of 4 bits cost some hundredths of a nat.
    expect(found.kl.value).toBeLessThan(dtype === 'fp16' ? 1e-4 : 0.2);
    expect(found.sameTop.value).toBeGreaterThan(0.8);
  });
});

describe('compareModels', () => {
  it.each(dtypes)('finds the errors of the report for %s', async (dtype) => {
    for (const reference of [storyFolder, folderOf('fp32')]) {
      const { tensors, skipped } = await compareModels(reference, folderOf(dtype), { workers: 0 });
      const found = new Map(tensors.map(({ name, error }) => [name, error]));
      expect(skipped.filter(({ differs }) => differs)).toEqual([]);
      const { report } = made.get(dtype)!;
      const converted = report.tensors.filter(({ name, error }) => error !== undefined && name.startsWith('model.'));
      for (const { name, error } of converted) {
        // A table that a look-up and a product share has codes of its own for each.
        const { maxAbsoluteError, mse } = found.get(name) ?? error!;
        expect(maxAbsoluteError, name).toBe(error!.maxAbsoluteError);
        // Each of four lanes adds up 128 squares in float32 (kErrorBlock), and here in another order.
        expect(Math.abs(mse - error!.mse), name).toBeLessThanOrEqual(2 ** -17 * mse);
      }
      expect(converted.filter(({ name }) => found.has(name)).length).toBeGreaterThan(27);
    }
  });

  it('runs them', async () => {
    const { outputs, skippedOutputs } = await compareModels(folderOf('fp32'), folderOf('q8-blocks'), {
      run: { layers: true },
      workers: 0,
    });
    expect(skippedOutputs).toEqual([]);
    expect(outputs?.map(({ name }) => name)).toEqual(expect.arrayContaining(['logits', 'present.0.key']));
    for (const { error, mismatched, name } of outputs!) {
      expect(mismatched, name).toBe(0);
      expect(error.sqnrDb, name).toBeGreaterThan(25);
    }
    const itself = await compareModels(folderOf('fp32'), fileOf('fp32'), { run: true, workers: 0 });
    for (const { error, name } of itself.outputs!) expect(error.maxAbsoluteError, name).toBe(0);
    await expect(compareModels(storyFolder, folderOf('q4'), { run: true })).rejects.toMatchObject({ code: 'RUNTIME' });
  });
});

describe('onnxruntime', () => {
  const packages = fileURLToPath(new URL('../../../transformers/node_modules/', import.meta.url));
  const nodeFile = join(packages, 'onnxruntime-node/dist/index.js');
  const native = new NativeBackend(nodeFile);
  afterAll(() => native.close());

  it.each(dtypes)('computes %s alike in WebAssembly and natively, with and without optimizations', async (dtype) => {
    const file = new Uint8Array(readFileSync(fileOf(dtype)));
    const ids = Array.from({ length: 24 }, (_, i) => (i * i * 37 + 5) % 768);
    const rows: Float32Array[][] = [];
    for (const level of ['disabled', 'all'] as const) {
      const decoder = await RunningDecoder.open(file, level);
      rows.push((await decoder.run([ids])).logits[0]!);
      await decoder.close();
    }
    const [plain, optimized] = rows as [Float32Array[], Float32Array[]];
    // Codes of activations may round to neighbors, and float16 is rounded where optimizations remove casts. Others differ by roundings alone.
    const share = /8$/.test(dtype) ? 0.05 : /16$/.test(dtype) ? 0.01 : 1e-5;
    expect(furthest(optimized, plain)).toBeLessThan(share * largest(plain));
    if (!existsSync(nodeFile)) return expect(howToInstall).toBe('');
    const run = { backends: [native], layers: true };
    const { backends } = await compareModels(folderOf('fp32'), folderOf(dtype), { run, workers: 0 });
    const { b } = backends![0]!;
    expect(b).toMatchObject({ kind: 'ran', nodes: { off: 0 } });
    if (b.kind !== 'ran') return;
    for (const { name, own } of b.outputs) expect(own!.relativeL2, name).toBeLessThan(share);
  });
});

describe('the command line', () => {
  it('takes folders of each type', async () => {
    const lines = [
      [storyFolder, '--to', 'onnx:fp32', '-o', join(place, 'again')],
      ['verify', folderOf('fp16')],
      ['inspect', folderOf('q4')],
      ['evaluate', folderOf('q4'), folderOf('fp32'), '--text', join(place, 'text'), '--chunk-size', '64'],
      ['compare', folderOf('fp32'), folderOf('q4'), '--run'],
      ['evaluate', folderOf('q4'), '--ids', join(place, 'ids'), '--chunk-size', '64'],
    ];
    writeFileSync(join(place, 'text'), story);
    writeFileSync(join(place, 'ids'), Array.from({ length: 64 }, (_, i) => (i * 331) % 768).join(' '));
    const texts: string[] = [];
    for (const line of lines) {
      const { code, stderr, stdout } = await run(line, {}, place);
      expect([line, code, stderr]).toEqual([line, 0, expect.not.stringContaining('scalepoint: -')]);
      texts.push(stdout);
    }
    const same = [folderOf('fp32'), join(place, 'again')].map((one) => readFileSync(join(one, 'onnx/model.onnx')));
    expect(Buffer.compare(same[0]!, same[1]!)).toBe(0);
    expect(texts[1]).toContain('no problems found');
    expect(texts[3]).toMatch(/same top token .*\nperplexity .*\nreference .*\nKL divergence +0\.\d/s);
    expect(texts[3]).not.toContain('does not suit');
    expect(texts[4]).toContain('logits');
    expect(texts[5]).toContain(
      '\nthe text does not suit the model: its perplexity is near that of a guess among its 768 tokens\n',
    );
  });
});
