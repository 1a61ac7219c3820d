// Logits of quantized GGUF files, of every type that can be restored, against a forward pass in float64 over the restored weights.
import { expect, it } from 'vitest';
import { convertHuggingface } from '../../../web/src/architectures/huggingface/convert.js';
import { blockTypes } from '../../../web/src/core/blocks.js';
import { inspectModel, quantizeModel, readFloats } from '../../../web/src/model.js';
import { type Decoder, decoderLogits } from '../support/forward.js';
import { activationsOf, matrixFile } from '../support/importance.js';
import { ownLogits } from '../support/own-logits.js';
import { fileOf, folderOf, type Weight } from '../support/recipes.js';
import { decoderConfig, Maker, plainTokenizer, tiny } from '../support/tiny-huggingface.js';

/** Rows of whole super-blocks. */
const [hidden, inner, heads, head, layers] = [256, 512, 4, 64, 1];
const tokens = [1, 17, 200, 33, 4, 99, 250, 8, 17, 121];

/**
 * Sums of at most 512 products in float32, of restored weights that are exact in both passes: at most 512 * 2^-24 = 3e-5 of the sum of
 * magnitudes if all roundings agree, and some 2^-24 * sqrt(512) = 1.3e-6 as they come. Eight products in a row, and norms that divide by
 * less than 1, make some ten times as much.
 */
const near = 2e-5;

/** Names of the two halves of each layer: llama.cpp's and Hugging Face's. Qwen 3 keeps the order of rows. */
const names: readonly (readonly [string, string])[] = [
  ['token_embd', 'model.embed_tokens'],
  ['output', 'lm_head'],
  ...Array.from({ length: layers }, (_, i) =>
    [
      ['attn_q', 'self_attn.q_proj'],
      ['attn_k', 'self_attn.k_proj'],
      ['attn_v', 'self_attn.v_proj'],
      ['attn_output', 'self_attn.o_proj'],
      ['ffn_gate', 'mlp.gate_proj'],
      ['ffn_up', 'mlp.up_proj'],
      ['ffn_down', 'mlp.down_proj'],
    ].map(([ours, theirs]) => [`blk.${i}.${ours}`, `model.layers.${i}.${theirs}`] as const),
  ).flat(),
];

const decoder: Decoder = {
  layers,
  heads,
  keyHeads: 2,
  head,
  theta: 10000,
  epsilon: 1e-5,
  headName: 'lm_head.weight',
};

function weightsOf(): Map<string, Weight> {
  const make = new Maker(3);
  make.matrix('model.embed_tokens.weight', tiny.vocabulary, hidden).matrix('lm_head.weight', tiny.vocabulary, hidden);
  make.vector('model.norm.weight', hidden, 1);
  for (let i = 0; i < layers; i++) {
    const layer = `model.layers.${i}.`;
    for (const norm of ['input_layernorm', 'post_attention_layernorm'])
      make.vector(`${layer}${norm}.weight`, hidden, 1);
    for (const part of ['q', 'k']) make.vector(`${layer}self_attn.${part}_norm.weight`, head, 1);
    make.matrix(`${layer}self_attn.q_proj.weight`, hidden, hidden);
    for (const part of ['k', 'v']) make.matrix(`${layer}self_attn.${part}_proj.weight`, hidden / 2, hidden);
    make.matrix(`${layer}self_attn.o_proj.weight`, hidden, hidden);
    for (const part of ['gate', 'up']) make.matrix(`${layer}mlp.${part}_proj.weight`, inner, hidden);
    make.matrix(`${layer}mlp.down_proj.weight`, hidden, inner);
  }
  return make.weights;
}

const weights = weightsOf();
const config = decoderConfig('Qwen3ForCausalLM', {
  hidden_size: hidden,
  intermediate_size: inner,
  num_attention_heads: heads,
  num_key_value_heads: 2,
  num_hidden_layers: layers,
  head_dim: head,
});
const folder = folderOf(weights, { 'config.json': config, 'tokenizer.json': plainTokenizer() });
const file = fileOf(await convertHuggingface(folder), weights) as Uint8Array<ArrayBuffer>;
const importance = matrixFile(activationsOf((await inspectModel(file)).tensors));

it.each([...blockTypes, 'F16', 'BF16', 'F32'] as const)('are those of restored weights: %s', async (type) => {
  const to = type === 'F16' || type === 'BF16' || type === 'F32' ? type : ('F32' as const);
  // Embeddings have no importance, which some types need.
  const rules = [
    { match: '^token_embd', to: 'Q8_0' },
    { match: '.', to: type },
  ] as const;
  const made = await (await quantizeModel(file, { to, rules, importance, workers: 0 })).bytes();
  const types = new Map((await inspectModel(made)).tensors.map((tensor) => [tensor.name, tensor.dtype]));
  const restored = new Map(weights);
  for (const [ours, theirs] of names) {
    expect(types.get(`${ours}.weight`), ours).toBe(ours === 'token_embd' ? 'Q8_0' : type);
    const { data, shape } = await readFloats(made, `${ours}.weight`);
    restored.set(`${theirs}.weight`, { shape, values: data });
  }
  const expected = decoderLogits(restored, decoder, tokens);
  const found = await ownLogits(made, tokens);
  let [far, most] = [0, 0];
  for (const [t, row] of expected.entries()) {
    for (const [i, logit] of row.entries()) {
      far = Math.max(far, Math.abs(logit - found[t]![i]!));
      most = Math.max(most, Math.abs(logit));
    }
  }
  expect(far / most).toBeLessThan(near);
});
