// Models with latent attention, as DeepSeek's: their tables, keys, and forward pass in float64.
import type { FolderJson } from './decoder-cases.js';
import { common, type Keys, norms } from './decoder-tables.js';
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
} from './forward.js';

/** The indices of the largest numbers. */
export const best = (all: readonly number[], count: number) =>
  [...all.keys()].sort((a, b) => all[b]! - all[a]!).slice(0, count);

/** Attention of each head by itself. */
export function heads(
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

export const withExperts = (keys: Keys, ...more: Keys): Keys => {
  const at = keys.findIndex(([name]) => name.endsWith('rms_epsilon')) + 1;
  return [...keys.slice(0, at), ...more, ...keys.slice(at)];
};

/** Latent attention: keys of 12 elements and 8 that turn, values of 20, 32 compressed ones. */
export const latent: NonNullable<Decoder['attend']> = (read, p, _layer, x) => {
  const own = `${p}self_attn.`;
  const norm = (name: string, one: Vector) => read.rms(`${own}${name}`, one, 1e-5, 0);
  const frequencies = rotaryFrequencies(10000, 8);
  const turn = (one: Vector, t: number) => rotate(one, t, frequencies, 1, true);
  const queries = x.map((one, t) => {
    const all = read.has(`${own}q_proj.weight`)
      ? read.linear(`${own}q_proj`, one)
      : read.linear(`${own}q_b_proj`, norm('q_a_layernorm', read.linear(`${own}q_a_proj`, one)));
    return joined(slices(all, 20).map((head) => joined([head.slice(0, 12), turn(head.slice(12), t)])));
  });
  const compressed = x.map((one) => read.linear(`${own}kv_a_proj_with_mqa`, one));
  const both = compressed.map((one) =>
    slices(read.linear(`${own}kv_b_proj`, norm('kv_a_layernorm', one.slice(0, 32))), 32),
  );
  const keys = both.map((all, t) =>
    joined(all.map((head) => joined([head.slice(0, 12), turn(compressed[t]!.slice(32), t)]))),
  );
  const values = both.map((all) => joined(all.map((head) => head.slice(12))));
  const all = heads(queries, keys, values, { scale: 1 / Math.sqrt(20) }, { heads: 4, keyHeads: 4 });
  return all.map((one) => read.linear(`${own}o_proj`, one));
};

/** DeepSeek's experts. `correct`: V3's shares, and its choice by groups. */
export const deepseekExperts =
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

export const deepseekLayer = `${norms}
  self_attn.kv_a_proj_with_mqa.weight  attn_kv_a_mqa.weight   40x64
  self_attn.kv_a_layernorm.weight      attn_kv_a_norm.weight  32
  self_attn.kv_b_proj.weight           attn_k_b.weight        128x32  np=4x32x32[:,0:12,:]T  as=4x32x12
  self_attn.kv_b_proj.weight           attn_v_b.weight        128x32  np=4x32x32[:,12:32,:]  as=4x20x32
  self_attn.o_proj.weight              attn_output.weight     64x80`;
export const deepseekMixture = (count: number) => `
  mlp.gate.weight                      ffn_gate_inp.weight    ${count}x64
  mlp.experts.#.gate_proj.weight       ffn_gate_exps.weight   48x64  stack=${count}
  mlp.experts.#.up_proj.weight         ffn_up_exps.weight     48x64  stack=${count}
  mlp.experts.#.down_proj.weight       ffn_down_exps.weight   64x48  stack=${count}
  mlp.shared_experts.gate_proj.weight  ffn_gate_shexp.weight  96x64
  mlp.shared_experts.up_proj.weight    ffn_up_shexp.weight    96x64
  mlp.shared_experts.down_proj.weight  ffn_down_shexp.weight  64x96`;
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
export const latentKeys = (experts: Keys, query: Keys, norm: Keys): Keys => [
  ...withExperts(common(), ...experts).map(
    ([name, value]) => [name, name.endsWith('head_count_kv') ? 1 : value] as const,
  ),
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
];
