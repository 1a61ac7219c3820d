// Mistral's own layout: params.json, names of tensors, and tekken.json, beside tables that were written by hand from llama.cpp's converter.
import { describe, expect, it } from 'vitest';
import { convertHuggingface } from '../../../../web/src/architectures/huggingface/convert.js';
import { furthest, largest } from '../../support/decoder-tables.js';
import { decoderLogits } from '../../support/forward.js';
import { NativeModel } from '../../support/llama-run.js';
import { needNative } from '../../support/native.js';
import { ownLogits } from '../../support/own-logits.js';
import { byName, fileOf, folderOf, type Weight } from '../../support/recipes.js';
import { expectTensors, type HandTable, weightsOfTable } from '../../support/tensor-table.js';

const params = {
  dim: 64,
  n_layers: 3,
  head_dim: 16,
  hidden_dim: 96,
  n_heads: 4,
  n_kv_heads: 2,
  norm_eps: 1e-5,
  vocab_size: 264,
  rope_theta: 10000,
  max_position_embeddings: 128,
};
const table: HandTable = {
  prefix: 'layers.',
  outside: `
    tok_embeddings.weight  token_embd.weight   264x64
    norm.weight            output_norm.weight  64
    output.weight          output.weight       264x64`,
  layer: `
    attention.wq.weight     attn_q.weight       64x64
    attention.wk.weight     attn_k.weight       32x64
    attention.wv.weight     attn_v.weight       32x64
    attention.wo.weight     attn_output.weight  64x64
    attention_norm.weight   attn_norm.weight    64
    ffn_norm.weight         ffn_norm.weight     64
    feed_forward.w1.weight  ffn_gate.weight     96x64
    feed_forward.w2.weight  ffn_down.weight     64x96
    feed_forward.w3.weight  ffn_up.weight       96x64`,
};
const pattern = String.raw`[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+`;
const token = (bytes: Uint8Array | string, rank: number) => ({
  rank,
  token_bytes: Buffer.from(bytes as Uint8Array).toString('base64'),
});
/** Six tokens of the class, one for each byte, two that merges make, and one beyond the vocabulary. */
const tekken = {
  config: { pattern, num_vocab_tokens: 300, default_vocab_size: 264, default_num_special_tokens: 6, version: 'v7' },
  vocab: [
    ...Array.from({ length: 256 }, (_, byte) => token(Uint8Array.of(byte), byte)),
    ...['He', 'Hel', 'beyond'].map((text, i) => token(text, 256 + i)),
  ],
  special_tokens: ['<unk>', '<s>', '</s>', '[INST]', '<pad>'].map((token_str, rank) => ({
    rank,
    token_str,
    is_control: true,
  })),
};
const convert = (weights: ReadonlyMap<string, Weight>, more: object = {}, vocabulary: object = tekken) =>
  convertHuggingface(folderOf(weights, { 'params.json': { ...params, ...more }, 'tekken.json': vocabulary }));

describe("Mistral's own layout", () => {
  needNative();

  const weights = weightsOfTable(table, 3);
  const tokens = [1, 17, 200, 33, 4, 99, 250, 8, 17, 121];

  it('has the keys, tensors, tokens and logits of the definition', async () => {
    const tower = [
      'vision_encoder.patch_conv.weight',
      'patch_merger.merging_layer.weight',
      'pre_mm_projector_norm.weight',
    ];
    const beside = tower.map((name) => [name, { shape: [2], values: new Float32Array(2) }] as const);
    const conversion = await convert(new Map([...weights, ...beside]));
    expect(conversion.architecture).toBe('llama');
    expectTensors(conversion, table, 3);
    const keys = conversion.keys.filter(({ name }) => name.startsWith('llama.'));
    expect(byName(keys.map(({ name, value }) => [name.slice(6), value]))).toEqual(
      byName([
        ['block_count', 3],
        ['context_length', 128],
        ['embedding_length', 64],
        ['feed_forward_length', 96],
        ['attention.head_count', 4],
        ['attention.head_count_kv', 2],
        ['attention.layer_norm_rms_epsilon', 1e-5],
        ['attention.key_length', 16],
        ['attention.value_length', 16],
        ['rope.freq_base', 10000],
        ['rope.dimension_count', 16],
      ]),
    );
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
    // The names of Hugging Face, with a rotary embedding of neighbors.
    const renamed = [...weights].map(([name, weight]): [string, Weight] => [
      name.replace(/attention\.w(\w)\./, 'attention.$1_proj.'),
      weight,
    ]);
    const expected = decoderLogits(
      new Map(renamed),
      {
        layers: 3,
        heads: 4,
        keyHeads: 2,
        head: 16,
        theta: 10000,
        epsilon: 1e-5,
        neighbors: true,
        embedding: 'tok_embeddings.weight',
        headName: 'output.weight',
        prefix: 'layers.',
        attentionPrefix: 'attention.',
        mlp: { gate: 'feed_forward.w1', up: 'feed_forward.w3', down: 'feed_forward.w2' },
        norms: { attention: 'attention_norm', feedForward: 'ffn_norm', final: 'norm' },
      },
      tokens,
    );
    const file = fileOf(conversion, weights);
    using native = new NativeModel(file);
    // As in decoder-cases.ts: sums in float32 over 3 layers, and those of our own pass.
    const most = Math.max(1, largest(expected));
    expect(furthest(native.logits(tokens), expected) / most).toBeLessThan(1e-5);
    expect(furthest(await ownLogits(new Uint8Array(file), tokens), expected) / most).toBeLessThan(2e-5);
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
    ['experts', { moe: { num_experts: 8 } }, tekken, /params\.json has experts/],
    ['codes', { quantization: { qformat_weight: 'fp8_e4m3' } }, tekken, /weights are quantized/],
    ['a vocabulary of the first version', {}, { ...tekken, special_tokens: undefined }, /lists no special_tokens/],
    ['a vocabulary without a pattern', {}, { ...tekken, config: {} }, /config lacks pattern/],
    ['bytes that are no base64', {}, { ...tekken, vocab: [{ rank: 0, token_bytes: '%' }] }, /the bytes "%"/],
  ])('is refused with %s', async (_what, more, vocabulary, words) => {
    await expect(convert(weights, more, vocabulary)).rejects.toThrow(words);
  });
});
