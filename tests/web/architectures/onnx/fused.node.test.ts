// The fused profile of decoders: graphs of tiny models with onnxruntime's operators, run by onnxruntime-web and onnxruntime-node, beside a
// forward pass in float64.
import * as web from 'onnxruntime-web';
import { planModel } from 'scalepoint/model';
import { describe, expect, it } from 'vitest';
import { nodeEngine } from '../../formats/onnx/node-engines.js';
import { howToInstall } from '../../formats/onnx/transformers.js';
import { furthest, largest } from '../../support/decoder-tables.js';
import { folder } from '../../support/folders.js';
import type { Weights } from '../../support/recipes.js';
import { bertFiles, bertWeights } from '../../support/tiny-huggingface.js';
import { cases, expectDefinition, filesOf, near, tokens, weightsOf } from './decoder-cases.js';
import { type FolderJson, makeFolder, RunningDecoder } from './runs.js';

const runtimes = { 'onnxruntime-web': web, 'onnxruntime-node': nodeEngine };

const named = (name: string) => cases.find((one) => one.name === name)!;
const fused = (one: (typeof cases)[number], more: object = {}) =>
  makeFolder(weightsOf(one), filesOf(one), { to: 'onnx:fp32', profile: 'fused', ...more });

describe.each(Object.entries(runtimes))('logits in %s are those of the definition', (_, runtime) => {
  it.each(cases.filter(({ name }) => name !== 'Gemma 2'))('$name', async (one) => {
    if (runtime === undefined) return expect(howToInstall).toBe('');
    const { files } = await fused(one);
    for (const level of ['all', 'disabled'] as const) {
      const decoder = await RunningDecoder.open(files.get('onnx/model.onnx')!, level, runtime);
      try {
        await expectDefinition(one, decoder);
        // As transformers.js generates texts: logits of the last token alone.
        const [all] = (await decoder.run([tokens])).logits;
        const [last] = (await decoder.run([tokens], undefined, 1)).logits;
        expect(last).toHaveLength(1);
        // Both are near the definition.
        expect(furthest(last!, all!.slice(-1))).toBeLessThan(2 * near * largest(all!));
      } finally {
        await decoder.close();
      }
    }
  });
});

it('has float16 around its operators, and in caches on request', async () => {
  const { files } = await fused(named('Qwen 3'), { to: 'onnx:fp16', kvCache: 'float16' });
  const decoder = await RunningDecoder.open(files.get('onnx/model_fp16.onnx')!);
  const floats = await RunningDecoder.open((await fused(named('Qwen 3'))).files.get('onnx/model.onnx')!);
  try {
    const [[halves], [exact]] = [(await decoder.run([tokens])).logits, (await floats.run([tokens])).logits];
    // Weights and activations of 11 bits: of each of 2 layers and the head some 6 are rounded one after the other.
    expect(furthest(halves!, exact!)).toBeLessThan(largest(exact!) * Math.sqrt(18) * 2 ** -10);
  } finally {
    await Promise.all([decoder.close(), floats.close()]);
  }
});

describe('is refused', () => {
  const planned = (weights: Weights, files: FolderJson) => {
    const tensors = [...weights].map(
      ([name, { shape, values }]) => [name, { dtype: 'F32', shape, data: values }] as const,
    );
    return planModel(folder(Object.fromEntries(tensors), files), { to: 'onnx:q4', profile: 'fused' });
  };

  it('for attention with a cap', async () => {
    const one = named('Gemma 2');
    await expect(planned(weightsOf(one), filesOf(one))).rejects.toMatchObject({
      code: 'UNKNOWN_FORMAT',
      message: expect.stringMatching(/attn_logit_softcapping is 50, .*; the profile plain computes it$/),
    });
  });

  it('for heads that onnxruntime refuses', async () => {
    const one = { ...named('Llama'), config: { head_dim: 20 }, weights: { head: 20 } };
    await expect(planned(weightsOf(one), filesOf(one))).rejects.toThrow(/a head has 20 elements/);
  });

  it('for encoders, and in results of other kinds', async () => {
    await expect(planned(bertWeights(12), bertFiles(12))).rejects.toThrow(/BertModel is an encoder/);
    const model = (await fused(named('Llama'))).files.get('onnx/model.onnx')!;
    await expect(planModel(model, { to: 'q4', profile: 'fused' })).rejects.toMatchObject({ option: 'profile' });
  });
});
