// Mistral's own layout: what it has beside the tables of support/decoders/mistral.ts.
import { describe, expect, it } from 'vitest';
import { convertHuggingface } from '../../../../web/src/architectures/huggingface/convert.js';
import { caseOf } from '../../support/decoder-cases.js';
import { mistral, params, tekken } from '../../support/decoders/mistral.js';
import { NativeModel } from '../../support/llama-run.js';
import { needNative } from '../../support/native.js';
import { byName, fileOf, folderOf, type Weight } from '../../support/recipes.js';
import { weightsOfTable } from '../../support/tensor-table.js';

const convert = (weights: ReadonlyMap<string, Weight>, more: object = {}, vocabulary: object = tekken) =>
  convertHuggingface(folderOf(weights, { 'params.json': { ...params, ...more }, 'tekken.json': vocabulary }));

describe("Mistral's own layout", () => {
  needNative();

  const weights = weightsOfTable(caseOf(mistral.cases, "Mistral's own layout").table, 3);

  it('has the tokens of the definition, and no tower', async () => {
    const tower = [
      'vision_encoder.patch_conv.weight',
      'patch_merger.merging_layer.weight',
      'pre_mm_projector_norm.weight',
    ];
    const beside = tower.map((name) => [name, { shape: [2], values: new Float32Array(2) }] as const);
    const conversion = await convert(new Map([...weights, ...beside]));
    const own = new Map(conversion.keys.map(({ name, value }) => [name.replace('tokenizer.ggml.', ''), value]));
    expect(own.get('pre')).toBe('tekken');
    expect((own.get('tokens') as string[]).slice(0, 6)).toEqual([
      '<unk>',
      '<s>',
      '</s>',
      '[INST]',
      '<pad>',
      '<SPECIAL_5>',
    ]);
    expect(own.get('merges')).toEqual(['H e', 'He l']);
    const roles = [
      'bos_token_id',
      'eos_token_id',
      'unknown_token_id',
      'padding_token_id',
      'add_bos_token',
      'add_eos_token',
    ];
    expect(roles.map((name) => own.get(name))).toEqual([1, 2, 0, 4, true, false]);
    using native = new NativeModel(fileOf(conversion, weights));
    expect(native.tokenize('Help')).toEqual([6 + 257, 6 + 112]);
  });

  it('has the scaling of long contexts, and an architecture of its own with a temperature', async () => {
    const yarn = { factor: 2, beta: 32, alpha: 1, apply_scale: false, original_max_position_embeddings: 64 };
    const conversion = await convert(weights, { yarn, llama_4_scaling: { beta: 0.1 } });
    expect(conversion.architecture).toBe('mistral3');
    const found = conversion.keys.filter(({ name }) => /scaling|temperature/.test(name));
    expect(byName(found.map(({ name, value }) => [name.slice(9), value]))).toEqual(
      byName([
        ['rope.scaling.type', 'yarn'],
        ['rope.scaling.factor', 2],
        ['rope.scaling.yarn_beta_fast', 32],
        ['rope.scaling.yarn_beta_slow', 1],
        ['rope.scaling.yarn_log_multiplier', 1],
        ['rope.scaling.original_context_length', 64],
        ['attention.temperature_scale', 0.1],
      ]),
    );
    const plain = await convert(weights, { yarn: { ...yarn, apply_scale: true } });
    expect(plain.architecture).toBe('llama');
    expect(plain.keys.find(({ name }) => name.endsWith('yarn_log_multiplier'))?.value).toBe(0);
  });

  it.each<[string, object, object, RegExp]>([
    ['codes', { quantization: { qformat_weight: 'fp8_e4m3' } }, tekken, /weights are quantized/],
    ['a vocabulary of the first version', {}, { ...tekken, special_tokens: undefined }, /lists no special_tokens/],
    ['a vocabulary without a pattern', {}, { ...tekken, config: {} }, /config lacks pattern/],
    ['bytes that are no base64', {}, { ...tekken, vocab: [{ rank: 0, token_bytes: '%' }] }, /the bytes "%"/],
  ])('is refused with %s', async (_what, more, vocabulary, words) => {
    await expect(convert(weights, more, vocabulary)).rejects.toThrow(words);
  });
});
