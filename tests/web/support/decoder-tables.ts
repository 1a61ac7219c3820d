// Pieces of tables of decoders, and measures of their logits.

/** Keys of a model without the architecture in their names. */
export type Keys = readonly (readonly [name: string, value: unknown])[];

/** Keys that most decoders begin with. `more` come before the norm. */
export const common = (norm: Keys = [['attention.layer_norm_rms_epsilon', 1e-5]], theta: unknown = 10000): Keys => [
  ['block_count', 3],
  ['context_length', 128],
  ['embedding_length', 64],
  ['feed_forward_length', 96],
  ['attention.head_count', 4],
  ['attention.head_count_kv', 2],
  ['rope.freq_base', theta],
  ...norm,
];

export const outside = `
  model.embed_tokens.weight  token_embd.weight   264x64
  model.norm.weight          output_norm.weight  64
  lm_head.weight             output.weight       264x64`;
export const tiedOutside = `
  model.embed_tokens.weight  token_embd.weight   264x64
  model.norm.weight          output_norm.weight  64`;
export const attention = `
  self_attn.q_proj.weight  attn_q.weight       64x64
  self_attn.k_proj.weight  attn_k.weight       32x64
  self_attn.v_proj.weight  attn_v.weight       32x64
  self_attn.o_proj.weight  attn_output.weight  64x64`;
export const permuted = `
  self_attn.q_proj.weight  attn_q.weight       64x64  heads=4
  self_attn.k_proj.weight  attn_k.weight       32x64  heads=2
  self_attn.v_proj.weight  attn_v.weight       32x64
  self_attn.o_proj.weight  attn_output.weight  64x64`;
export const biases = `
  self_attn.q_proj.bias    attn_q.bias  64
  self_attn.k_proj.bias    attn_k.bias  32
  self_attn.v_proj.bias    attn_v.bias  32`;
export const gated = `
  mlp.gate_proj.weight  ffn_gate.weight  96x64
  mlp.up_proj.weight    ffn_up.weight    96x64
  mlp.down_proj.weight  ffn_down.weight  64x96`;
export const norms = `
  input_layernorm.weight           attn_norm.weight  64
  post_attention_layernorm.weight  ffn_norm.weight   64`;
export const normBiases = `
  input_layernorm.bias             attn_norm.bias    64
  post_attention_layernorm.bias    ffn_norm.bias     64`;
export const lateNorms = `
  post_attention_layernorm.weight    post_attention_norm.weight  64
  post_feedforward_layernorm.weight  post_ffw_norm.weight        64`;
export const headNorms = `
  self_attn.q_norm.weight  attn_q_norm.weight  16
  self_attn.k_norm.weight  attn_k_norm.weight  16`;
export const prefix = 'model.layers.';

/** gpt-oss without the matrices of its experts. */
export const gptOssLayer = `
  input_layernorm.weight           x  64
  post_attention_layernorm.weight  x  64
  self_attn.q_proj.weight          x  64x64
  self_attn.q_proj.bias            x  64
  self_attn.k_proj.weight          x  32x64
  self_attn.k_proj.bias            x  32
  self_attn.v_proj.weight          x  32x64
  self_attn.v_proj.bias            x  32
  self_attn.o_proj.weight          x  64x64
  self_attn.o_proj.bias            x  64
  self_attn.sinks                  x  4
  mlp.router.weight                x  5x64
  mlp.router.bias                  x  5
  mlp.experts.gate_up_proj_bias    x  5x192
  mlp.experts.down_proj_bias       x  5x64`;

/** The largest difference of two lists of vectors. */
export function furthest(a: ArrayLike<number>[], b: ArrayLike<number>[]): number {
  let most = a.length === b.length ? 0 : Infinity;
  a.forEach((row, t) => {
    for (let i = 0; i < row.length; i++) most = Math.max(most, Math.abs(row[i]! - b[t]![i]!));
  });
  return most;
}

/** The largest number of a list of vectors. */
export const largest = (logits: ArrayLike<number>[]) =>
  logits.reduce((most, row) => Array.from(row).reduce((a, b) => Math.max(a, Math.abs(b)), most), 0);
