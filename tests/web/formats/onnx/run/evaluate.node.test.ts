// Language models as ONNX, judged on tokens: the figures of the same network as a folder.
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { calibrateModel, evaluateModel, quantizeModel, readFloats } from 'scalepoint/model';
import { describe, expect, it } from 'vitest';
import { type LlamaConfig, llamaModel } from '../../../support/llama-onnx.js';
import { encoderModel } from '../transformer.js';

const samples = process.env.SCALEPOINT_SAMPLES;
const folder = join(samples ?? '', 'tinystories-656k');

const drawn = (n: number) => Uint32Array.from({ length: n }, (_, i) => (i * i * 37 + i * 11 + 5) % 2048);

/** The network as ONNX. Files beside it name the first token. */
async function exported(hasCache = false): Promise<File[]> {
  const config = JSON.parse(await readFile(join(folder, 'config.json'), 'utf8')) as LlamaConfig;
  const file = llamaModel(config, await readFile(join(folder, 'model.safetensors')), hasCache);
  const beside = await Promise.all(
    ['config.json', 'tokenizer_config.json'].map(async (name) => new File([await readFile(join(folder, name))], name)),
  );
  return [new File([file], 'model.onnx'), ...beside];
}

describe.skipIf(samples === undefined)('ONNX language models', () => {
  it.each([false, true])('have the perplexity of the folder, with caches: %s', async (hasCache) => {
    const model = await exported(hasCache);
    const options = { text: drawn(150), chunkSize: 32 };
    const onnx = await evaluateModel(model, { ...options, reference: join(folder, 'model.safetensors') });
    const own = await evaluateModel(join(folder, 'model.safetensors'), options);
    expect(onnx).toMatchObject({ tokens: 128, chunks: 4, counted: 60 });
    expect(onnx.referencePerplexity).toEqual(own.perplexity);
    // Logits of both are off by some 1e-5 of the largest, which is about 20.
    expect(Math.abs(Math.log(onnx.perplexity.value / own.perplexity.value))).toBeLessThan(1e-4);
    expect(onnx.kl.max).toBeLessThan(1e-6);
    expect(onnx.sameTop.value).toBe(1);
  });

  it('are compared with what they were before', async () => {
    const model = await exported();
    const passes: unknown[] = [];
    const onProgress = (progress: object) => passes.push(progress);
    const small = new File([await (await quantizeModel(model, { to: 'q4', workers: 0 })).bytes()], 'model_q4.onnx');
    const found = await evaluateModel(small, { reference: model, text: drawn(150), chunkSize: 50, onProgress });
    // Rounding to 4 bits costs some hundredths of a nat.
    expect(found.kl.value).toBeGreaterThan(1e-3);
    expect(found.kl.value).toBeLessThan(1);
    expect(passes.at(-1)).toEqual({ phase: 'evaluate', unit: 'tokens', pass: 1, passes: 1, done: 150, total: 150 });
  });

  it('have the statistics of the folder', async () => {
    const ids = Uint32Array.of(1, ...drawn(63));
    const options = { chunkSize: 64, moments: true } as const;
    const onnx = await calibrateModel(await exported(), ids, options);
    const own = await calibrateModel(join(folder, 'model.safetensors'), ids, options);
    const pairs = [
      ['self_attn.q_proj', 'attn_q'],
      ['self_attn.o_proj', 'attn_output'],
      ['mlp.gate_proj', 'ffn_gate'],
      ['mlp.down_proj', 'ffn_down'],
    ] as const;
    for (const layer of [0, 1]) {
      for (const [a, b] of pairs) {
        const mean = async (file: Uint8Array<ArrayBuffer>, name: string) => {
          const count = (await readFloats(file, `${name}.counts`)).data[0] as number;
          return Array.from((await readFloats(file, `${name}.in_sum2`)).data, (sum) => sum / count);
        };
        const x = await mean(await onnx.bytes(), `model.layers.${layer}.${a}.weight`);
        const y = await mean(await own.bytes(), `blk.${layer}.${b}.weight`);
        const most = Math.max(...y);
        expect(x.length).toBe(y.length);
        for (const [i, value] of y.entries()) expect(Math.abs((x[i] as number) - value)).toBeLessThan(1e-4 * most);
      }
    }
  });

  it('that are no language models, or whose ids do not fit, are refused', async () => {
    const text = drawn(16);
    const file = join(samples ?? '', 'cnn_fp32.onnx');
    await expect(evaluateModel(file, { text })).rejects.toMatchObject({ code: 'UNKNOWN_FORMAT' });
    const [model] = (await exported()) as [File];
    await expect(evaluateModel(model, { text: [1, 2, 3, 2048] })).rejects.toThrow(RangeError);
    await expect(evaluateModel(model, { text: [1, 2, 3] })).rejects.toThrow(RangeError);
    await expect(evaluateModel(model, { text: 'a text' })).rejects.toMatchObject({ code: 'BAD_FILE' });
    const encoder = evaluateModel(encoderModel(), { text: text.map((id) => id % 100), reference: model });
    await expect(encoder).rejects.toMatchObject({ code: 'BAD_FILE' });
    const run = { dimensions: { x: -1 } };
    await expect(evaluateModel(model, { text, run })).rejects.toMatchObject({ option: 'run.dimensions.x' });
    const controller = new AbortController();
    const reason = new Error('enough');
    const onProgress = () => controller.abort(reason);
    const { signal } = controller;
    await expect(evaluateModel(model, { text, chunkSize: 8, signal, onProgress })).rejects.toBe(reason);
  });
});
