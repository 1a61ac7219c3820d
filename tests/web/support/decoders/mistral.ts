// Mistral's models, in the names of transformers and in its own layout: params.json, names of tensors, and tekken.json.
import type { DecoderCase, FolderJson, Refusal } from '../decoder-cases.js';
import {
  attention,
  common,
  experts,
  five,
  gated,
  heads,
  type Keys,
  mixtralExperts,
  namesOf,
  norms,
  outside,
  prefix,
  router,
  separate,
  shared,
  untied,
} from '../decoder-tables.js';
import type { Decoder } from '../forward.js';
import { yarn } from './dense.js';
import { compressed, latentConfig, latentKeys, latentOf, within } from './latent.js';

const pattern = String.raw`[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+`;
const token = (bytes: Uint8Array | string, rank: number) => ({
  rank,
  token_bytes: Buffer.from(bytes as Uint8Array).toString('base64'),
});
/** Six tokens of the class, one for each byte, two that merges make, and one beyond the vocabulary. */
export const tekken = {
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

export const params = {
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
const own = { 'params.json': params, 'tekken.json': tekken };

/** Names of transformers by those of the layout. */
const pairs: readonly (readonly [string, string])[] = [
  ['tok_embeddings.', 'model.embed_tokens.'],
  ['output.', 'lm_head.'],
  ['attention.wkv_a_with_mqa', 'self_attn.kv_a_proj_with_mqa'],
  ['attention.wkv_b', 'self_attn.kv_b_proj'],
  ['attention.wq_a', 'self_attn.q_a_proj'],
  ['attention.wq_b', 'self_attn.q_b_proj'],
  ['attention.q_a_norm', 'self_attn.q_a_layernorm'],
  ['attention.kv_a_norm', 'self_attn.kv_a_layernorm'],
  ['attention.wq', 'self_attn.q_proj'],
  ['attention.wk', 'self_attn.k_proj'],
  ['attention.wv', 'self_attn.v_proj'],
  ['attention.wo', 'self_attn.o_proj'],
  ['attention_norm', 'input_layernorm'],
  ['ffn_norm', 'post_attention_layernorm'],
  ['feed_forward.gate', 'block_sparse_moe.gate'],
  ['feed_forward.experts', 'block_sparse_moe.experts'],
  ['feed_forward.w1', 'mlp.gate_proj'],
  ['feed_forward.w2', 'mlp.down_proj'],
  ['feed_forward.w3', 'mlp.up_proj'],
  ['shared_experts.w1', 'mlp.shared_experts.gate_proj'],
  ['shared_experts.w2', 'mlp.shared_experts.down_proj'],
  ['shared_experts.w3', 'mlp.shared_experts.up_proj'],
  ['gate.weight', 'mlp.gate.weight'],
];

/** A table in the names of the layout. */
function inLayout({ outside: all, layer, some }: DecoderCase['table']): DecoderCase['table'] {
  const changed = (lines: string) =>
    pairs
      .reduce(
        (text, [to, from]) => text.replaceAll(new RegExp(`(^ *)${from.replaceAll('.', '\\.')}`, 'gm'), `$1${to}`),
        lines,
      )
      .replaceAll('mlp.experts.#.gate_proj', 'experts.#.w1')
      .replaceAll('mlp.experts.#.down_proj', 'experts.#.w2')
      .replaceAll('mlp.experts.#.up_proj', 'experts.#.w3');
  const named = some?.map(({ layers, lines }) => ({ layers, lines: changed(lines) }));
  return {
    prefix: 'layers.',
    outside: changed(all).replace('model.norm', 'norm'),
    layer: changed(layer),
    ...(named && { some: named }),
  };
}
function rename(name: string): string {
  const own = name.replace(/^norm\./, 'model.norm.').replace(/^layers\./, 'model.layers.');
  const [from, to] = pairs.find(([one]) => own.includes(one)) ?? ['', ''];
  const expert = /^(.*\.\d+)\.experts\.(\d+)\.w(\d)/.exec(own);
  if (expert === null) return own.replace(from, to);
  return `${expert[1]}.mlp.experts.${expert[2]}.${['gate', 'down', 'up'][Number(expert[3]) - 1]}_proj.weight`;
}

const yarnKeys: Keys = [
  ['rope.scaling.type', 'yarn'],
  ['rope.scaling.factor', 4],
  ['rope.scaling.original_context_length', 8],
  ['rope.scaling.yarn_beta_fast', 32],
  ['rope.scaling.yarn_beta_slow', 1],
];
const temperature: Keys = [
  // It keeps llama.cpp from multiplying scores.
  ['rope.scaling.attn_factor', 1 / (1 + 0.1 * Math.log(4))],
  ['attention.temperature_scale', 0.5],
  ['attention.temperature_length', 8],
];
const counts: Keys = [
  ['expert_count', 6],
  ['expert_used_count', 2],
  ['expert_group_count', 1],
  ['expert_group_used_count', 1],
];
const rank: Keys = [['attention.q_lora_rank', 24]];
const normed: Keys = [['expert_weights_norm', true]];
/** Queries grow with their position, and their scores do not grow with the factor of YaRN. */
const model: Partial<Decoder> = {
  ...untied,
  attend: latentOf(yarn(8, 4, 8), (position) => 1 + 0.5 * Math.log(1 + Math.floor(position / 8))),
  usedExperts: 2,
  experts,
  shared: namesOf('mlp.shared_experts'),
  shares: { of: 'all', normalized: true, factor: 1.5 },
};
const mixture = `${router.replace('5x', '6x')}${shared('mlp.shared_experts', 96)}`;
const latentTable = (matrices: string): DecoderCase['table'] => ({
  prefix,
  outside,
  layer: compressed,
  some: [
    { layers: [0], lines: gated },
    { layers: [1, 2], lines: mixture + matrices },
  ],
});
const small4 = {
  ...latentConfig,
  model_type: 'mistral4',
  q_lora_rank: 24,
  n_routed_experts: 6,
  norm_topk_prob: true,
  rope_theta: undefined,
  rope_parameters: {
    type: 'yarn',
    rope_theta: 10000,
    factor: 4,
    original_max_position_embeddings: 8,
    beta_fast: 32,
    beta_slow: 1,
    mscale: 1,
    mscale_all_dim: 1,
    llama_4_scaling_beta: 0.5,
  },
};

const cases: readonly DecoderCase[] = [
  {
    name: 'Mistral Small 4',
    hugging: 'Mistral3ForConditionalGeneration',
    architecture: 'mistral4',
    config: { text_config: small4 },
    keys: [...latentKeys(counts, rank, normed), ...yarnKeys, ...temperature],
    table: within('language_model.', {
      ...latentTable(`
        mlp.experts.gate_up_proj  ffn_gate_up_exps.weight  6x96x64
        mlp.experts.down_proj     ffn_down_exps.weight     6x64x48`),
    }),
    rename: (name) => name.replace('language_model.', ''),
    model: { ...model, stacked: ['mlp.experts.gate_up_proj', 'mlp.experts.down_proj'] },
  },
  {
    name: 'Mistral Small 4 without its tower, and with experts apart',
    hugging: 'Mistral4ForCausalLM',
    architecture: 'mistral4',
    config: small4,
    keys: [...latentKeys(counts, rank, normed), ...yarnKeys, ...temperature],
    table: latentTable(separate(6, 48)),
    model,
  },
  {
    name: 'Mistral Large 3 in its own layout',
    hugging: '',
    architecture: 'deepseek2',
    files: own,
    config: {
      n_kv_heads: 4,
      ...{ q_lora_rank: 24, kv_lora_rank: 32, qk_nope_head_dim: 12, qk_rope_head_dim: 8, v_head_dim: 20 },
      yarn: { factor: 4, beta: 32, alpha: 1, apply_scale: false, original_max_position_embeddings: 8 },
      llama_4_scaling: { beta: 0.5, original_max_position_embeddings: 8 },
      moe: {
        ...{ num_experts: 6, num_experts_per_tok: 2, num_expert_groups: 1, num_expert_groups_per_tok: 1 },
        ...{
          num_shared_experts: 2,
          expert_hidden_dim: 48,
          first_k_dense_replace: 1,
          routed_scale: 1.5,
          route_every_n: 1,
        },
      },
    } satisfies FolderJson,
    keys: [...latentKeys([...counts, ['expert_gating_func', 1]], rank, normed), ...yarnKeys, ...temperature],
    table: inLayout(latentTable(separate(6, 48))),
    rename,
    model,
  },
  {
    name: "Mistral's own layout",
    own: true,
    hugging: '',
    architecture: 'llama',
    files: own,
    keys: common(...heads, ['rope.dimension_count', 16]),
    table: inLayout({ prefix, outside, layer: norms + attention + gated }),
    rename,
    model: { ...untied, neighbors: true },
  },
  {
    name: "Mixtral in Mistral's own layout",
    own: true,
    hugging: '',
    architecture: 'llama',
    files: own,
    config: { moe: { num_experts: 5, num_experts_per_tok: 2 } },
    keys: common(...heads, ...five, ['rope.dimension_count', 16]),
    table: inLayout({
      prefix,
      outside,
      layer: `${norms}${attention}
        block_sparse_moe.gate.weight          ffn_gate_inp.weight   5x64
        block_sparse_moe.experts.#.w1.weight  ffn_gate_exps.weight  96x64  stack=5
        block_sparse_moe.experts.#.w2.weight  ffn_down_exps.weight  64x96  stack=5
        block_sparse_moe.experts.#.w3.weight  ffn_up_exps.weight    96x64  stack=5`,
    }),
    rename,
    model: { ...untied, neighbors: true, usedExperts: 2, experts: mixtralExperts('block_sparse_moe') },
  },
];

const refusals: readonly Refusal[] = [
  ['Mistral Small 4', { text_config: { ...small4, topk_method: 'other' } }, /topk_method is "other"/],
  ['Mistral Large 3 in its own layout', { moe: { route_every_n: 2 } }, /moe_layer_freq is 2/],
  [
    "Mixtral in Mistral's own layout",
    { llama_4_scaling: { beta: 1 }, yarn: { factor: 2, original_max_position_embeddings: 8 } },
    /but no kv_lora_rank/,
  ],
];

export const mistral = { cases, refusals };
