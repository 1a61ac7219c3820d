// Decoders with latent attention.

import type { DecoderCase, FolderJson, Refusal } from '../decoder-cases.js';
import {
  changed,
  common,
  five,
  gated,
  type Keys,
  next,
  norms,
  outside,
  prefix,
  separate,
  shared,
  tiedOutside,
  untied,
  usualTable,
} from '../decoder-tables.js';
import {
  add,
  type Decoder,
  joined,
  mixed,
  multiply,
  rotaryFrequencies,
  rotate,
  sigmoid,
  silu,
  slices,
  softmax,
  type Vector,
} from '../forward.js';

/** The indices of the largest numbers. */
export const best = (all: readonly number[], count: number) =>
  [...all.keys()].sort((a, b) => all[b]! - all[a]!).slice(0, count);

/** Attention of each head by itself. */
export function attended(
  queries: readonly Vector[],
  keys: readonly Vector[],
  values: readonly Vector[],
  { scale, window = Infinity, sinks }: { scale: number; window?: number; sinks?: ArrayLike<number> },
  count: { heads: number; keyHeads: number },
): Vector[] {
  const [q, k, v] = [queries, keys, values].map((all, i) =>
    all.map((one) => slices(one, one.length / (i === 0 ? count.heads : count.keyHeads))),
  ) as [Vector[][], Vector[][], Vector[][]];
  return mixed(q, k, v, (product, t, s) => (s > t || t - s >= window ? -Infinity : product * scale), sinks);
}

/** Latent attention: keys of 12 elements and 8 that turn, values of 20, 32 compressed ones. */
export const latentOf =
  (
    turned: (frequencies: readonly number[]) => readonly number[] = (f) => f,
    temperature: (position: number) => number = () => 1,
  ): NonNullable<Decoder['attend']> =>
  (read, p, _layer, x) => {
    const own = `${p}self_attn.`;
    const norm = (name: string, one: Vector) => read.rms(`${own}${name}`, one, 1e-5, 0);
    const frequencies = turned(rotaryFrequencies(10000, 8));
    const turn = (one: Vector, t: number) => rotate(one, t, frequencies, 1, true);
    const queries = x.map((one, t) => {
      const all = read.has(`${own}q_proj.weight`)
        ? read.linear(`${own}q_proj`, one)
        : read.linear(`${own}q_b_proj`, norm('q_a_layernorm', read.linear(`${own}q_a_proj`, one)));
      const heads = slices(all, 20).map((head) => joined([head.slice(0, 12), turn(head.slice(12), t)]));
      return joined(heads).map((v) => v * temperature(t));
    });
    const compressed = x.map((one) => read.linear(`${own}kv_a_proj_with_mqa`, one));
    const both = compressed.map((one) =>
      slices(read.linear(`${own}kv_b_proj`, norm('kv_a_layernorm', one.slice(0, 32))), 32),
    );
    const keys = both.map((all, t) =>
      joined(all.map((head) => joined([head.slice(0, 12), turn(compressed[t]!.slice(32), t)]))),
    );
    const values = both.map((all) => joined(all.map((head) => head.slice(12))));
    const all = attended(queries, keys, values, { scale: 1 / Math.sqrt(20) }, { heads: 4, keyHeads: 4 });
    return all.map((one) => read.linear(`${own}o_proj`, one));
  };

/** DeepSeek's experts. `correct`: V3's shares, and its choice by groups. */
const deepseekExperts =
  (correct: boolean): NonNullable<Decoder['grow']> =>
  (read, p, x) => {
    const dense = (name: string) =>
      read.linear(
        `${name}.down_proj`,
        multiply(silu(read.linear(`${name}.gate_proj`, x)), read.linear(`${name}.up_proj`, x)),
      );
    if (!read.has(`${p}mlp.gate.weight`)) return dense(`${p}mlp`);
    const scores = [...read.linear(`${p}mlp.gate`, x)];
    const shares = correct ? scores.map(sigmoid) : softmax(scores);
    let ranks = shares;
    if (correct) {
      const bias = read.get(`${p}mlp.gate.e_score_correction_bias`).values;
      ranks = shares.map((v, e) => v + bias[e]!);
      // Of three groups of two experts, the two with the largest sums of their two best.
      const sums = [0, 1, 2].map((g) => ranks[2 * g]! + ranks[2 * g + 1]!);
      const groups = best(sums, 2);
      ranks = ranks.map((v, e) => (groups.includes(Math.floor(e / 2)) ? v : -Infinity));
    }
    const chosen = best(ranks, 2);
    const sum = correct ? chosen.reduce((all, e) => all + shares[e]!, 0) : 1;
    const routed = chosen.map((e) => dense(`${p}mlp.experts.${e}`).map((v) => (v * shares[e]! * 1.5) / sum));
    return [...routed, dense(`${p}mlp.shared_experts`)].reduce(add);
  };

const latent = latentOf();

/** Latent attention of four heads without its queries. */
const latentLines = `
  self_attn.kv_a_proj_with_mqa.weight  attn_kv_a_mqa.weight   40x64
  self_attn.kv_a_layernorm.weight      attn_kv_a_norm.weight  32
  self_attn.kv_b_proj.weight           attn_k_b.weight        128x32  np=4x32x32[:,0:12,:]T  as=4x32x12
  self_attn.kv_b_proj.weight           attn_v_b.weight        128x32  np=4x32x32[:,12:32,:]  as=4x20x32
  self_attn.o_proj.weight              attn_output.weight     64x80`;
const deepseekLayer = norms + latentLines;
const plainQueries = `
  self_attn.q_proj.weight  attn_q.weight  80x64`;
/** Latent attention whose queries are not compressed. */
export const latentLayer = latentLines + plainQueries;
const deepseekMixture = (count: number) => `
  mlp.gate.weight  ffn_gate_inp.weight  ${count}x64
  ${separate(count, 48)}${shared('mlp.shared_experts', 96)}`;
export const latentConfig: FolderJson = {
  num_key_value_heads: 4,
  kv_lora_rank: 32,
  qk_nope_head_dim: 12,
  qk_rope_head_dim: 8,
  v_head_dim: 20,
  n_shared_experts: 2,
  num_experts_per_tok: 2,
  moe_intermediate_size: 48,
  first_k_dense_replace: 1,
  routed_scaling_factor: 1.5,
};
export const latentKeys = (experts: Keys, query: Keys, norm: Keys): Keys =>
  common(
    ...experts,
    ['attention.head_count_kv', 1],
    ['leading_dense_block_count', 1],
    ['vocab_size', 264],
    ...query,
    ['attention.kv_lora_rank', 32],
    ['attention.key_length', 40],
    ['attention.value_length', 32],
    ['attention.key_length_mla', 20],
    ['attention.value_length_mla', 20],
    ['expert_feed_forward_length', 48],
    ['expert_shared_count', 2],
    ['expert_weights_scale', 1.5],
    ...norm,
    ['rope.dimension_count', 8],
  );

export const compressed = `${deepseekLayer}
  self_attn.q_a_proj.weight       attn_q_a.weight       24x64
  self_attn.q_a_layernorm.weight  attn_q_a_norm.weight  24
  self_attn.q_b_proj.weight       attn_q_b.weight       80x24`;
const corrected = `
  mlp.gate.e_score_correction_bias  exp_probs_b.bias  6`;
const indexer = `
  self_attn.indexer.wq_b.weight          indexer.attn_q_b.weight  128x24
  self_attn.indexer.wk.weight            indexer.attn_k.weight    64x64
  self_attn.indexer.k_norm.weight        indexer.k_norm.weight    64
  self_attn.indexer.k_norm.bias          indexer.k_norm.bias      64
  self_attn.indexer.weights_proj.weight  indexer.proj.weight      2x64`;
const groups: Keys = [
  ['expert_count', 6],
  ['expert_used_count', 2],
  ['expert_group_count', 3],
  ['expert_group_used_count', 2],
  ['expert_gating_func', 2],
];
const latentModel = (more = '', nextLayer = true): Pick<DecoderCase, 'table' | 'model'> => ({
  table: {
    prefix,
    outside,
    layer: compressed,
    some: [
      { layers: [0], lines: gated },
      { layers: nextLayer ? [1, 2, 3] : [1, 2], lines: deepseekMixture(6) + corrected },
      { layers: nextLayer ? [0, 1, 2, 3] : [0, 1, 2], lines: more },
      { layers: nextLayer ? [3] : [], lines: next },
    ],
  },
  model: { ...untied, layers: 3, attend: latent, grow: deepseekExperts(true) },
});
const usualKeys = latentKeys(groups, [['attention.q_lora_rank', 24]], [['expert_weights_norm', true]]);
const latentCase = {
  layers: 4,
  config: {
    ...latentConfig,
    num_hidden_layers: 3,
    num_nextn_predict_layers: 1,
    q_lora_rank: 24,
    n_routed_experts: 6,
    n_group: 3,
    topk_group: 2,
    norm_topk_prob: true,
  },
  keys: changed(usualKeys, ['block_count', 4], ['nextn_predict_layers', 1]),
} as const satisfies Partial<DecoderCase>;
const indexerKeys: Keys = [
  ['attention.indexer.head_count', 2],
  ['attention.indexer.key_length', 64],
  ['attention.indexer.top_k', 32],
];
const indexerConfig = { index_n_heads: 2, index_head_dim: 64, index_topk: 32 };

/** A table whose names begin with a prefix. */
export const within = (start: string, table: DecoderCase['table']): DecoderCase['table'] => ({
  ...table,
  prefix: start + table.prefix,
  outside: table.outside.replace(/^( *)(?=\w)/gm, `$1${start}`),
});

const cases: readonly DecoderCase[] = [
  {
    name: 'GLM-4.7-Flash',
    hugging: 'Glm4MoeLiteForCausalLM',
    architecture: 'deepseek2',
    ...latentCase,
    ...latentModel(),
  },
  {
    name: 'GLM-5',
    hugging: 'GlmMoeDsaForCausalLM',
    architecture: 'glm-dsa',
    ...latentCase,
    config: { ...latentCase.config, ...indexerConfig },
    keys: [...latentCase.keys, ...indexerKeys],
    ...latentModel(indexer),
  },
  {
    name: 'DeepSeek V3.2',
    hugging: 'DeepseekV32ForCausalLM',
    architecture: 'deepseek32',
    ...latentCase,
    config: { ...latentCase.config, ...indexerConfig },
    keys: [...latentCase.keys, ...indexerKeys],
    ...latentModel(indexer),
  },
  {
    name: 'Youtu',
    hugging: 'YoutuForCausalLM',
    architecture: 'deepseek2',
    config: {
      ...latentConfig,
      q_lora_rank: 24,
      n_shared_experts: undefined,
      num_experts_per_tok: undefined,
      moe_intermediate_size: undefined,
      first_k_dense_replace: undefined,
      routed_scaling_factor: undefined,
      tie_word_embeddings: true,
    },
    keys: changed(
      latentKeys([], [['attention.q_lora_rank', 24]], []),
      ['leading_dense_block_count', 3],
      ['expert_feed_forward_length', 96],
      ['expert_shared_count', 0],
      ['expert_weights_scale', 1],
    ),
    table: usualTable(compressed + gated, { outside: tiedOutside }),
    model: { attend: latent },
  },
  {
    name: 'DeepSeek V2 Lite',
    hugging: 'DeepseekV2ForCausalLM',
    architecture: 'deepseek2',
    // llama.cpp takes only models of this depth for ones whose queries are not compressed.
    layers: 26,
    config: {
      ...latentConfig,
      q_lora_rank: null,
      n_routed_experts: 5,
      scoring_func: 'softmax',
      topk_method: 'greedy',
      norm_topk_prob: false,
      tie_word_embeddings: true,
    },
    keys: changed(latentKeys([], [], []), ...five, ['expert_gating_func', 1], ['block_count', 26]),
    table: {
      prefix,
      outside: tiedOutside,
      layer: deepseekLayer + plainQueries,
      some: [
        { layers: [0], lines: gated },
        { layers: Array.from({ length: 25 }, (_, i) => i + 1), lines: deepseekMixture(5) },
      ],
    },
    model: { attend: latent, grow: deepseekExperts(false) },
  },
  {
    name: 'DeepSeek V3',
    hugging: 'DeepseekV3ForCausalLM',
    architecture: 'deepseek2',
    config: { ...latentCase.config, scoring_func: 'sigmoid', topk_method: 'noaux_tc', tie_word_embeddings: false },
    keys: usualKeys,
    ...latentModel('', false),
  },
  {
    name: 'Kimi K2.5',
    hugging: 'KimiK25ForConditionalGeneration',
    architecture: 'deepseek2',
    ...latentCase,
    layers: 3,
    config: {
      text_config: { architectures: ['DeepseekV3ForCausalLM'], ...latentCase.config, scoring_func: 'sigmoid' },
    },
    keys: usualKeys,
    table: within('language_model.', latentModel('', false).table),
    model: {
      ...latentModel('', false).model,
      embedding: 'language_model.model.embed_tokens.weight',
      prefix: 'language_model.model.layers.',
      headName: 'language_model.lm_head.weight',
      norms: { final: 'language_model.model.norm' },
    },
  },
];

const refusals: readonly Refusal[] = [
  ['GLM-5', { index_topk: undefined, index_head_dim: 0 }, /index_head_dim has to be/, 'BAD_FILE'],
  ['GLM-5', { indexer_types: ['full'] }, /indexer_types has to name/, 'BAD_FILE'],
  ['GLM-5', { q_lora_rank: null }, /q_lora_rank/],
  ['DeepSeek V3', { q_lora_rank: null }, /q_lora_rank is null; llama.cpp computes 3 layers with one only/],
  ['DeepSeek V3', { rope_interleave: false }, /rope_interleave is false/],
  ['DeepSeek V3', { scoring_func: 'relu' }, /scoring_func is "relu"/],
  ['DeepSeek V3', { n_routed_experts: 2 ** 30 }, /too few/, 'BAD_FILE'],
  ['DeepSeek V3', { kv_lora_rank: 16 }, /has the shape/, 'BAD_FILE'],
  [
    'DeepSeek V3',
    {
      rope_scaling: { type: 'yarn', factor: 4, original_max_position_embeddings: 32, mscale: 1, mscale_all_dim: 0.5 },
    },
    /mscale is 1 and mscale_all_dim 0.5/,
  ],
];

export const latentAttention = { cases, refusals };
