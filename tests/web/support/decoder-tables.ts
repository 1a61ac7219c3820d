// Pieces of tables of decoders, and measures of their logits.
import type { Decoder } from './forward.js';
import type { HandTable } from './tensor-table.js';

/** Keys of a model without the architecture in their names. */
export type Keys = readonly (readonly [name: string, value: unknown])[];

/** Keys with other values, and further ones. A value that is undefined takes the key away. */
export const changed = (keys: Keys, ...changes: Keys): Keys =>
  [...new Map([...keys, ...changes])].filter(([, value]) => value !== undefined);

/** Keys of most decoders. */
const usual: Keys = [
  ['block_count', 3],
  ['context_length', 128],
  ['embedding_length', 64],
  ['feed_forward_length', 96],
  ['attention.head_count', 4],
  ['attention.head_count_kv', 2],
  ['rope.freq_base', 10000],
  ['attention.layer_norm_rms_epsilon', 1e-5],
];
export const common = (...changes: Keys): Keys => changed(usual, ...changes);

/** In place of RMS norms, norms that subtract the mean. */
export const layerNorm: Keys = [
  ['attention.layer_norm_rms_epsilon', undefined],
  ['attention.layer_norm_epsilon', 1e-5],
];
/** The lengths of heads. */
export const heads: Keys = [
  ['attention.key_length', 16],
  ['attention.value_length', 16],
];
export const five: Keys = [
  ['expert_count', 5],
  ['expert_used_count', 2],
];
/** As Llama has them. */
export const llamaKeys: Keys = [
  ['vocab_size', 264],
  ['rope.dimension_count', 16],
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
export const normsBetween = `
  input_layernorm.weight           attn_norm.weight            64
  post_attention_layernorm.weight  post_attention_norm.weight  64`;
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
/** A table of layers of one kind, in a model with a head. */
export const usualTable = (layer: string, more: Partial<HandTable> = {}): HandTable => ({
  prefix,
  outside,
  layer,
  ...more,
});

/** A router of five experts, and their matrices. */
export const router = `
  mlp.gate.weight  ffn_gate_inp.weight  5x64`;
export const separate = (count: number, rows: number) => `
  mlp.experts.#.gate_proj.weight  ffn_gate_exps.weight  ${rows}x64  stack=${count}
  mlp.experts.#.up_proj.weight    ffn_up_exps.weight    ${rows}x64  stack=${count}
  mlp.experts.#.down_proj.weight  ffn_down_exps.weight  64x${rows}  stack=${count}`;

/** Experts under the names of Mixtral. */
export const mixtral = (name: string, rows: number) => `
  ${name}.experts.#.w1.weight  ffn_gate_exps.weight  ${rows}x64  stack=5
  ${name}.experts.#.w2.weight  ffn_down_exps.weight  64x${rows}  stack=5
  ${name}.experts.#.w3.weight  ffn_up_exps.weight    ${rows}x64  stack=5`;
export const shared = (name: string, rows: number) => `
  ${name}.gate_proj.weight  ffn_gate_shexp.weight  ${rows}x64
  ${name}.up_proj.weight    ffn_up_shexp.weight    ${rows}x64
  ${name}.down_proj.weight  ffn_down_shexp.weight  64x${rows}`;

/** A layer that predicts a further token. */
export const next = `
  eh_proj.weight           nextn.eh_proj.weight           64x128
  enorm.weight             nextn.enorm.weight             64
  hnorm.weight             nextn.hnorm.weight             64
  embed_tokens.weight      nextn.embed_tokens.weight      264x64
  shared_head.head.weight  nextn.shared_head_head.weight  264x64
  shared_head.norm.weight  nextn.shared_head_norm.weight  64`;

type Names = readonly [gate: string, up: string, down: string];

/** Facts of forward passes: a head of its own, and names of experts. */
export const untied: Partial<Decoder> = { headName: 'lm_head.weight' };
export const namesOf = (name: string): Names => [`${name}.gate_proj`, `${name}.up_proj`, `${name}.down_proj`];
export const experts = { router: 'mlp.gate', expert: (e: number) => namesOf(`mlp.experts.${e}`) };
export const mixtralExperts = (name: string, gate = 'gate') => ({
  router: `${name}.${gate}`,
  expert: (e: number): Names => [`${name}.experts.${e}.w1`, `${name}.experts.${e}.w3`, `${name}.experts.${e}.w2`],
});

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
