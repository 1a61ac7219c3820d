// Decoders whose layers are of several kinds.

import type { DecoderCase, Refusal } from '../decoder-cases.js';
import {
  changed,
  common,
  gated,
  heads,
  mixtral,
  mixtralExperts,
  namesOf,
  next,
  norms,
  outside,
  prefix,
  shared,
  untied,
} from '../decoder-tables.js';
import {
  add,
  type Decoder,
  dot,
  joined,
  multiply,
  type Reader,
  relu2,
  rotaryFrequencies,
  rotate,
  scaled,
  sigmoid,
  silu,
  slices,
  type Vector,
} from '../forward.js';
import { decoderConfig } from '../tiny-huggingface.js';
import { attended, best, latentLayer, latentOf } from './latent.js';

// ---------------------------------------------------------------------------------------------------------------------- Step 3.5

/** Step 3.5: layers 1 and 3 have windows of 6 tokens, six heads and whole heads that turn. Layer 2 has experts. Layer 3 predicts a token. */
const stepConfig = {
  num_hidden_layers: 3,
  num_nextn_predict_layers: 1,
  num_key_value_heads: undefined,
  num_attention_groups: 2,
  head_dim: 16,
  attention_other_setting: {
    attention_type: 'sliding_attention',
    num_attention_heads: 6,
    num_attention_groups: 3,
    head_dim: 16,
  },
  layer_types: ['full_attention', 'sliding_attention', 'full_attention', 'sliding_attention'],
  partial_rotary_factors: [0.5, 1, 0.5, 1],
  rope_theta: [5e6, 1e4, 5e6, 1e4],
  // Factors of 1, between 1 and 2, and 2 for the four pairs that turn.
  rope_scaling: {
    rope_type: 'llama3',
    factor: 2,
    original_max_position_embeddings: 4000,
    low_freq_factor: 1,
    high_freq_factor: 32,
  },
  yarn_only_types: ['full_attention'],
  sliding_window: 6,
  use_qk_norm: true,
  use_head_wise_attn_gate: true,
  use_moe_router_bias: true,
  moe_layers_enum: '2',
  moe_num_experts: 5,
  moe_top_k: 2,
  moe_intermediate_size: 48,
  share_expert_dim: 80,
  moe_router_activation: 'sigmoid',
  moe_router_scaling_factor: 1.5,
  norm_expert_weight: true,
  swiglu_limits: [0, 0, 0.25],
  swiglu_limits_shared: [0.3, null, 0.2],
  tie_word_embeddings: false,
};
const stepHeads = (count: number, keys: number) => `
  self_attn.q_proj.weight  attn_q.weight       ${count * 16}x64
  self_attn.k_proj.weight  attn_k.weight       ${keys * 16}x64
  self_attn.v_proj.weight  attn_v.weight       ${keys * 16}x64
  self_attn.o_proj.weight  attn_output.weight  64x${count * 16}
  self_attn.g_proj.weight  attn_gate.weight    ${count}x64`;

/** The divisors of frequencies, by the definition of Llama 3. */
const stepScaled = (frequencies: readonly number[]) =>
  frequencies.map((f) => {
    const [low, high] = [4000, 4000 / 32];
    const wave = (2 * Math.PI) / f;
    if (wave < high) return f;
    if (wave > low) return f / 2;
    const smooth = (4000 / wave - 1) / 31;
    return ((1 - smooth) * f) / 2 + smooth * f;
  });

const stepAttend: NonNullable<Decoder['attend']> = (read, p, layer, x) => {
  const own = `${p}self_attn.`;
  const slides = layer === 1;
  const frequencies = slides ? rotaryFrequencies(1e4, 16) : stepScaled(rotaryFrequencies(5e6, 8));
  const all = (name: string, norm?: string) =>
    x.map((one, t) =>
      joined(
        slices(read.linear(`${own}${name}_proj`, one), 16).map((head) =>
          norm === undefined ? head : rotate(read.rms(own + norm, head, 1e-5, 1), t, frequencies, 1),
        ),
      ),
    );
  const count = slides ? { heads: 6, keyHeads: 3 } : { heads: 4, keyHeads: 2 };
  const result = attended(
    all('q', 'q_norm'),
    all('k', 'k_norm'),
    all('v'),
    { scale: 1 / 4, window: slides ? 6 : Infinity },
    count,
  );
  return result.map((one, t) => {
    const gates = read.linear(`${own}g_proj`, x[t]!).map(sigmoid);
    return read.linear(`${own}o_proj`, joined(slices(one, 16).map((head, h) => scaled(head, gates[h]!))));
  });
};

const stepGrow: NonNullable<Decoder['grow']> = (read, p, x) => {
  const layer = Number(/\d+/.exec(p)![0]);
  const part = (limit: number, [gate, up, down]: readonly [Vector, Vector, (one: Vector) => Vector]) => {
    const most = limit === 0 ? Infinity : limit;
    return down(
      multiply(
        silu(gate).map((v) => Math.min(v, most)),
        up.map((v) => Math.max(-most, Math.min(v, most))),
      ),
    );
  };
  const dense = (name: string) =>
    part([0.3, 0, 0.2][layer]!, [
      read.linear(`${p}${name}.gate_proj`, x),
      read.linear(`${p}${name}.up_proj`, x),
      (one) => read.linear(`${p}${name}.down_proj`, one),
    ]);
  if (!read.has(`${p}moe.gate.weight`)) return dense('mlp');
  const product = (name: string, e: number, one: Vector) => {
    const { shape, values } = read.get(`${p}moe.${name}_proj.weight`);
    const [, rows, columns] = shape as [number, number, number];
    return Float64Array.from({ length: rows }, (_, r) =>
      one.reduce((sum, v, c) => sum + v * values[(e * rows + r) * columns + c]!, 0),
    );
  };
  const shares = [...read.linear(`${p}moe.gate`, x)].map(sigmoid);
  const bias = read.get(`${p}moe.router_bias`).values;
  const chosen = best(
    shares.map((v, e) => v + bias[e]!),
    2,
  );
  const sum = chosen.reduce((all, e) => all + shares[e]!, 0);
  const routed = chosen.map((e) =>
    scaled(
      part(0.25, [product('gate', e, x), product('up', e, x), (one) => product('down', e, one)]),
      (1.5 * shares[e]!) / sum,
    ),
  );
  return [...routed, dense('share_expert')].reduce(add);
};

const step: DecoderCase = {
  name: 'Step 3.5',
  hugging: 'Step3p5ForCausalLM',
  architecture: 'step35',
  layers: 4,
  config: stepConfig,
  keys: [
    ...changed(
      common(...heads),
      ['block_count', 4],
      ['rope.freq_base', 5e6],
      ['attention.head_count', [4, 6, 4, 6]],
      ['attention.head_count_kv', [2, 3, 2, 3]],
    ),
    ['rope.freq_base_swa', 1e4],
    ['attention.sliding_window', 6],
    ['attention.sliding_window_pattern', [false, true, false, true]],
    ['expert_count', 5],
    ['expert_used_count', 2],
    ['expert_feed_forward_length', 48],
    ['expert_shared_feed_forward_length', 80],
    ['expert_gating_func', 2],
    ['expert_weights_scale', 1.5],
    ['expert_weights_norm', true],
    ['leading_dense_block_count', 2],
    ['moe_every_n_layers', 1],
    ['swiglu_clamp_exp', [0, 0, 0.25, 0]],
    ['swiglu_clamp_shexp', [0.3, 0, 0.2, 0]],
    ['nextn_predict_layers', 1],
  ],
  table: {
    prefix,
    outside: `
      model.embed_tokens.weight  token_embd.weight   264x64
      model.norm.weight          output_norm.weight  64  +1
      lm_head.weight             output.weight       264x64`,
    layer: `
      input_layernorm.weight           attn_norm.weight    64  +1
      post_attention_layernorm.weight  ffn_norm.weight     64  +1
      self_attn.q_norm.weight          attn_q_norm.weight  16  +1
      self_attn.k_norm.weight          attn_k_norm.weight  16  +1`,
    some: [
      { layers: [0, 2], lines: stepHeads(4, 2) },
      { layers: [1, 3], lines: stepHeads(6, 3) },
      { layers: [0, 1, 3], lines: gated },
      {
        layers: [2],
        lines: `
          moe.gate.weight                ffn_gate_inp.weight    5x64
          moe.router_bias                exp_probs_b.bias       5
          moe.gate_proj.weight           ffn_gate_exps.weight   5x48x64
          moe.up_proj.weight             ffn_up_exps.weight     5x48x64
          moe.down_proj.weight           ffn_down_exps.weight   5x64x48
          share_expert.gate_proj.weight  ffn_gate_shexp.weight  80x64
          share_expert.up_proj.weight    ffn_up_shexp.weight    80x64
          share_expert.down_proj.weight  ffn_down_shexp.weight  64x80`,
      },
      {
        layers: [3],
        lines: next
          .replaceAll(/(norm.weight .*)$/gm, '$1 +1')
          .replace('shared_head.head.', 'transformer.shared_head.output.')
          .replace('shared_head.norm.', 'transformer.shared_head.norm.'),
      },
    ],
  },
  model: { ...untied, layers: 3, normPlus: 1, attend: stepAttend, grow: stepGrow },
};

// -------------------------------------------------------------------------------------------------------------------- Kimi Linear

/** A convolution over 4 tokens, then SiLU. */
function convolved(values: Float32Array, x: readonly Vector[]): Vector[] {
  return x.map((one, t) =>
    silu(one.map((_, c) => [0, 1, 2, 3].reduce((sum, k) => sum + values[c * 4 + k]! * (x[t - 3 + k]?.[c] ?? 0), 0))),
  );
}

/** Linear attention with a decay for each channel: four heads of 16 elements. */
const kimiDelta: NonNullable<Decoder['attend']> = (read, p, _layer, x) => {
  const own = `${p}self_attn.`;
  const [q, k, v] = ['q', 'k', 'v'].map((name) =>
    convolved(
      read.get(`${own}${name}_conv1d.weight`).values,
      x.map((one) => read.linear(`${own}${name}_proj`, one)),
    ).map((one) => slices(one, 16)),
  ) as [Vector[][], Vector[][], Vector[][]];
  const unit = (one: Vector) => scaled(one, 1 / Math.sqrt(dot(one, one) + 1e-6));
  const [logs, steps] = [read.get(`${own}A_log`).values, read.get(`${own}dt_bias`).values];
  // A state takes keys to values, a row for each element of a key.
  const states = Array.from({ length: 4 }, () => Array.from({ length: 16 }, () => new Float64Array(16)));
  return x.map((one, t) => {
    const decays = read
      .linear(`${own}f_b_proj`, read.linear(`${own}f_a_proj`, one))
      .map((f, i) => Math.exp(-Math.exp(logs[Math.floor(i / 16)]!) * Math.log1p(Math.exp(f + steps[i]!))));
    const betas = read.linear(`${own}b_proj`, one).map(sigmoid);
    const gates = slices(read.linear(`${own}g_b_proj`, read.linear(`${own}g_a_proj`, one)).map(sigmoid), 16);
    const heads = states.map((state, h) => {
      const [query, key] = [unit(q[t]![h]!), unit(k[t]![h]!)];
      state.forEach((row, i) => {
        row.forEach((_, j) => {
          row[j]! *= decays[h * 16 + i]!;
        });
      });
      const known = state.map((row, i) => scaled(row, key[i]!)).reduce(add);
      const change = scaled(add(v[t]![h]!, scaled(known, -1)), betas[h]!);
      state.forEach((row, i) => {
        row.forEach((_, j) => {
          row[j]! += key[i]! * change[j]!;
        });
      });
      const output = state.map((row, i) => scaled(row, query[i]! / 4)).reduce(add);
      return multiply(read.rms(`${own}o_norm`, output, 1e-5, 0), gates[h]!);
    });
    return read.linear(`${own}o_proj`, joined(heads));
  });
};

// Positions do not turn heads.
const kimiFull = latentOf((frequencies) => frequencies.map(() => 0));

const kimiLinear = {
  full_attn_layers: [2, 4],
  kda_layers: [1, 3],
  num_heads: 4,
  head_dim: 16,
  short_conv_kernel_size: 4,
};
const kimi: DecoderCase = {
  name: 'Kimi Linear',
  hugging: 'KimiLinearForCausalLM',
  architecture: 'kimi-linear',
  layers: 4,
  // The norm behind a head makes outputs of any length alike. Those of the first tokens are products of one query with few keys, which nearly
  // cancel in some of the heads: to a hundredth, which leaves float32 with a hundred times its rounding.
  bound: 1e-4,
  config: {
    max_position_embeddings: undefined,
    model_max_length: 128,
    num_key_value_heads: 4,
    head_dim: 16,
    linear_attn_config: kimiLinear,
    q_lora_rank: null,
    kv_lora_rank: 32,
    qk_nope_head_dim: 12,
    qk_rope_head_dim: 8,
    v_head_dim: 20,
    mla_use_nope: true,
    first_k_dense_replace: 1,
    moe_layer_freq: 1,
    num_experts: 5,
    num_experts_per_token: 2,
    num_shared_experts: 2,
    moe_intermediate_size: 48,
    moe_router_activation_func: 'sigmoid',
    moe_renormalize: true,
    routed_scaling_factor: 1.5,
    use_grouped_topk: true,
    num_expert_group: 1,
    topk_group: 1,
    num_nextn_predict_layers: 0,
    tie_word_embeddings: false,
  },
  keys: [
    ...changed(
      common(...heads),
      ['block_count', 4],
      ['attention.head_count_kv', [0, 1, 0, 1]],
      ['attention.key_length', 40],
    ),
    ['vocab_size', 264],
    ['ssm.conv_kernel', 4],
    ['kda.head_dim', 16],
    ['attention.kv_lora_rank', 32],
    ['rope.dimension_count', 8],
    ['attention.key_length_mla', 20],
    ['attention.value_length_mla', 20],
    ['expert_count', 5],
    ['expert_used_count', 2],
    ['expert_group_used_count', 1],
    ['expert_gating_func', 2],
    ['expert_feed_forward_length', 48],
    ['expert_shared_count', 2],
    ['leading_dense_block_count', 1],
    ['expert_weights_scale', 1.5],
  ],
  table: {
    prefix,
    outside,
    layer: norms,
    some: [
      {
        layers: [0, 2],
        lines: `
          self_attn.q_proj.weight    attn_q.weight        64x64
          self_attn.k_proj.weight    attn_k.weight        64x64
          self_attn.v_proj.weight    attn_v.weight        64x64
          self_attn.q_conv1d.weight  ssm_conv1d_q.weight  64x1x4  as=1x64x1x4
          self_attn.k_conv1d.weight  ssm_conv1d_k.weight  64x1x4  as=1x64x1x4
          self_attn.v_conv1d.weight  ssm_conv1d_v.weight  64x1x4  as=1x64x1x4
          self_attn.A_log            ssm_a                1x1x4x1  -exp
          self_attn.dt_bias          ssm_dt.bias          64
          self_attn.b_proj.weight    ssm_beta.weight      4x64
          self_attn.f_a_proj.weight  ssm_f_a.weight       16x64
          self_attn.f_b_proj.weight  ssm_f_b.weight       64x16
          self_attn.g_a_proj.weight  ssm_g_a.weight       16x64
          self_attn.g_b_proj.weight  ssm_g_b.weight       64x16
          self_attn.o_norm.weight    ssm_norm.weight      16
          self_attn.o_proj.weight    attn_output.weight   64x64`,
      },
      { layers: [1, 3], lines: latentLayer },
      { layers: [0], lines: gated },
      {
        layers: [1, 2, 3],
        lines: `
          block_sparse_moe.gate.weight                   ffn_gate_inp.weight  5x64
          block_sparse_moe.gate.e_score_correction_bias  exp_probs_b.bias     5
          ${mixtral('block_sparse_moe', 48)}
          ${shared('block_sparse_moe.shared_experts', 96)}`,
      },
    ],
  },
  model: {
    ...untied,
    layers: 4,
    attend: (read, p, layer, x) => (layer % 2 === 0 ? kimiDelta : kimiFull)(read, p, layer, x),
    usedExperts: 2,
    experts: mixtralExperts('block_sparse_moe'),
    shares: { of: 'sigmoid', normalized: true, factor: 1.5, bias: 'block_sparse_moe.gate.e_score_correction_bias' },
    shared: namesOf('block_sparse_moe.shared_experts'),
  },
};

// ------------------------------------------------------------------------------------------------------------------------- RWKV 7

/** Lines of a vocabulary as Python writes them, with single and double quotes, and what GGUF has for them. */
export const rwkvLines: readonly (readonly [line: string, token: string])[] = [
  ["'\\x00' 1", '\\x00'],
  ["'\\t\\n' 2", '\\t\\n'],
  [`"'" 1`, "'"],
  [`'"' 1`, '"'],
  [`'\\'"' 2`, `\\'"`],
  ["'\\\\' 1", '\\\\'],
  ["'é ' 3", '\\xc3\\xa9 '],
  ["'\\u0301' 2", '\\xcc\\x81'],
  ["b'\\xe4\\xb8' 2", '\\xe4\\xb8'],
  ["' a' 2", ' a'],
];
const rwkvVocabulary = rwkvLines.map(([line], i) => `${i + 1} ${line}\n`).join('');

/** The values of the first layer, which later layers mix with theirs, and what the second part of the layer had for the token before. */
let firstValues: readonly Vector[] = [];
let inputBefore: Vector | undefined;

/** Tokens mixed with those before them, by a share for each element. */
const shifted = (read: Reader, name: string, x: readonly Vector[]) => {
  const share = Float64Array.from(read.get(name).values);
  return x.map((one, t) => add(one, multiply(share, add(x[t - 1] ?? scaled(one, 0), scaled(one, -1)))));
};

const rwkvMix: NonNullable<Decoder['attend']> = (read, p, layer, x) => {
  inputBefore = undefined;
  const own = `${p}attn.`;
  const [r, w, k, v, a, g] = [...'rwkvag'].map((name) => shifted(read, `${own}x_${name}`, x)) as [
    Vector[],
    Vector[],
    Vector[],
    Vector[],
    Vector[],
    Vector[],
  ];
  const linear = (name: string, all: readonly Vector[]) => all.map((one) => read.linear(own + name, one));
  const low = (name: string, all: readonly Vector[], between = (one: Vector) => one) =>
    linear(`${name}_lora.lora.2`, linear(`${name}_lora.lora.0`, all).map(between));
  const vector = (name: string) => Float64Array.from(read.get(own + name).values);
  const decays = low('w', w, (one) => one.map(Math.tanh)).map((one) =>
    one.map((d) => Math.exp(-Math.exp(-0.5) * sigmoid(d))),
  );
  const [queries, values, all] = [linear('r_proj', r), linear('v_proj', v), linear('k_proj', k)];
  if (layer === 0) firstValues = values;
  else {
    const shares = low('v', v).map((one) => one.map(sigmoid));
    for (const [t, one] of values.entries())
      values[t] = add(one, multiply(shares[t]!, add(firstValues[t]!, scaled(one, -1))));
  }
  const rates = low('a', a).map((one) => one.map(sigmoid));
  const gates = low('g', g, (one) => one.map(sigmoid));
  const [kk, ka, rk] = ['k_k', 'k_a', 'r_k'].map(vector) as [Vector, Vector, Vector];
  const states = Array.from({ length: 128 }, () => new Float64Array(64));
  return x.map((_, t) => {
    const keys = all[t]!.map((one, c) => one * (1 + (rates[t]![c]! - 1) * ka[c]!));
    const removed = joined(slices(multiply(all[t]!, kk), 64).map((one) => scaled(one, 1 / Math.hypot(...one))));
    const output = values[t]!.map((value, c) => {
      const [state, from] = [states[c]!, 64 * Math.floor(c / 64)];
      const at = (one: Vector, i: number) => one[from + i]!;
      const before = dot(state, removed.slice(from, from + 64));
      for (let i = 0; i < 64; i++)
        state[i] = state[i]! * at(decays[t]!, i) - before * at(removed, i) * at(rates[t]!, i) + value * at(keys, i);
      return dot(state, queries[t]!.slice(from, from + 64));
    });
    const normed = joined(slices(output, 64).map((one) => read.layerNorm('', one, 64e-5)));
    const [weight, bias] = [vector('g_norm.weight'), vector('g_norm.bias')];
    const direct = slices(multiply(multiply(keys, queries[t]!), rk), 64).map((one) => one.reduce((sum, n) => sum + n));
    const mixed = normed.map((n, c) => n * weight[c]! + bias[c]! + direct[Math.floor(c / 64)]! * values[t]![c]!);
    return read.linear(`${own}o_proj`, multiply(mixed, gates[t]!));
  });
};

const rwkvGrow: NonNullable<Decoder['grow']> = (read, p, x) => {
  const [, mixed] = shifted(read, `${p}ffn.x_k`, [inputBefore ?? scaled(x, 0), x]);
  inputBefore = x;
  return read.linear(`${p}ffn.value`, relu2(read.linear(`${p}ffn.key`, mixed!)));
};

const rwkv: DecoderCase = {
  name: 'RWKV 7',
  hugging: 'RWKV7ForCausalLM',
  architecture: 'rwkv7',
  files: { 'config.json': decoderConfig('RWKV7ForCausalLM'), 'rwkv_vocab_v20230424.txt': rwkvVocabulary },
  config: {
    num_hidden_layers: 3,
    hidden_size: 128,
    hidden_act: 'sqrelu',
    head_dim: 64,
    num_heads: null,
    norm_eps: 1e-5,
    ...{ decay_low_rank_dim: 8, a_low_rank_dim: 12, v_low_rank_dim: 4, gate_low_rank_dim: 20 },
    tie_word_embeddings: false,
  },
  keys: [
    ['block_count', 3],
    ['context_length', 2 ** 20],
    ['embedding_length', 128],
    ['feed_forward_length', 96],
    ['attention.head_count', 0],
    ['attention.layer_norm_epsilon', 1e-5],
    ['wkv.head_size', 64],
    ['attention.decay_lora_rank', 8],
    ['attention.iclr_lora_rank', 12],
    ['attention.value_residual_mix_lora_rank', 4],
    ['attention.gate_lora_rank', 20],
  ],
  model: {
    embedding: 'model.embeddings.weight',
    embeddingNorm: 'model.layers.0.pre_norm',
    headName: 'lm_head.weight',
    layerNorms: true,
    norms: { attention: 'attn_norm', feedForward: 'ffn_norm', final: 'model.norm' },
    attend: rwkvMix,
    grow: rwkvGrow,
  },
  table: {
    prefix,
    outside: `
      model.embeddings.weight         token_embd.weight       264x128
      model.layers.0.pre_norm.weight  token_embd_norm.weight  128
      model.layers.0.pre_norm.bias    token_embd_norm.bias    128
      model.norm.weight               output_norm.weight      128
      model.norm.bias                 output_norm.bias        128
      lm_head.weight                  output.weight           264x128`,
    layer: `
      attn_norm.weight            attn_norm.weight              128
      attn_norm.bias              attn_norm.bias                128
      ffn_norm.weight             attn_norm_2.weight            128
      ffn_norm.bias               attn_norm_2.bias              128
      attn.w_lora.lora.2.bias     time_mix_w0.weight            128
      attn.w_lora.lora.0.weight   time_mix_w1.weight            8x128
      attn.w_lora.lora.2.weight   time_mix_w2.weight            128x8
      attn.a_lora.lora.2.bias     time_mix_a0.weight            128
      attn.a_lora.lora.0.weight   time_mix_a1.weight            12x128
      attn.a_lora.lora.2.weight   time_mix_a2.weight            128x12
      attn.g_lora.lora.0.weight   time_mix_g1.weight            20x128
      attn.g_lora.lora.2.weight   time_mix_g2.weight            128x20
      attn.k_k                    time_mix_k_k.weight           128
      attn.k_a                    time_mix_k_a.weight           128
      attn.r_k                    time_mix_r_k.weight           2x64   as=128
      attn.k_proj.weight          time_mix_key.weight           128x128
      attn.v_proj.weight          time_mix_value.weight         128x128
      attn.r_proj.weight          time_mix_receptance.weight    128x128
      attn.o_proj.weight          time_mix_output.weight        128x128
      attn.g_norm.weight          time_mix_ln.weight            128
      attn.g_norm.bias            time_mix_ln.bias              128
      ffn.x_k                     channel_mix_lerp_k.weight     128
      ffn.key.weight              channel_mix_key.weight        96x128
      ffn.value.weight            channel_mix_value.weight      128x96
      attn.x_@                    time_mix_lerp_fused.weight    1x1x128  each=rwkvag`,
    some: [
      {
        // llama.cpp wants values of the first layer that it does not use.
        layers: [0],
        lines: `
          attn.a_lora.lora.2.bias    time_mix_v0.weight  128
          attn.a_lora.lora.0.weight  time_mix_v1.weight  12x128
          attn.a_lora.lora.2.weight  time_mix_v2.weight  128x12`,
      },
      {
        layers: [1, 2],
        lines: `
          attn.v_lora.lora.2.bias    time_mix_v0.weight  128
          attn.v_lora.lora.0.weight  time_mix_v1.weight  4x128
          attn.v_lora.lora.2.weight  time_mix_v2.weight  128x4`,
      },
    ],
  },
};

// ------------------------------------------------------------------------------------------------------------------------ PLaMo 2

/** Tokens of the vocabulary: five that are named, bytes, and letters. */
const plamoTokens = [
  ['<|plamo:unk|>', 0, 'UNKNOWN'],
  ...['<|plamo:bos|>', '<|plamo:eos|>', '<|plamo:pad|>'].map((text) => [text, 0, 'CONTROL']),
  ['<|plamo:op|>', 0, 'NORMAL'],
  ...Array.from({ length: 256 }, (_, i) => [`<0x${i.toString(16).toUpperCase().padStart(2, '0')}>`, 0, 'BYTE']),
  ['a', -1.5, 'NORMAL'],
];

const plamo: DecoderCase = {
  name: 'PLaMo 2',
  hugging: 'Plamo2ForCausalLM',
  architecture: 'plamo2',
  layers: 4,
  files: {
    'config.json': decoderConfig('Plamo2ForCausalLM', { num_hidden_layers: 4 }),
    'tokenizer.jsonl': new TextEncoder().encode(plamoTokens.map((token) => JSON.stringify(token)).join('\n')),
    'tokenizer_config.json': { bos_token: '<|plamo:bos|>', eos_token: '<|plamo:eos|>', chat_template: 'left out' },
  },
  config: {
    hidden_size_per_head: 16,
    mamba_num_heads: 4,
    mamba_d_state: 16,
    mamba_d_conv: 4,
    mamba_step: 2,
    mamba_enabled: true,
    tie_word_embeddings: true,
  },
  keys: [
    ...changed(
      common(...heads),
      ['block_count', 4],
      ['attention.head_count', [0, 4, 0, 4]],
      ['attention.head_count_kv', [0, 2, 0, 2]],
    ),
    ['vocab_size', 264],
    ['ssm.state_size', 16],
    ['ssm.conv_kernel', 4],
    ['ssm.time_step_rank', 4],
    ['ssm.inner_size', 64],
    ['ssm.group_count', 0],
  ],
  table: {
    prefix: 'model.layers.layers.',
    outside: `
      model.embed_tokens.weight  token_embd.weight   264x64
      model.norm.weight          output_norm.weight  64  +1`,
    layer: `
      pre_mixer_norm.weight    attn_norm.weight            64  +1
      post_mixer_norm.weight   post_attention_norm  64  +1/5
      pre_mlp_norm.weight      ffn_norm.weight             64  +1
      post_mlp_norm.weight     post_ffw_norm  64  +1/5**1.5
      mlp.gate_up_proj.weight  ffn_up.weight               192x64
      mlp.down_proj.weight     ffn_down.weight             64x96`,
    some: [
      {
        layers: [0, 2],
        lines: `
          mixer.A_log             ssm_a               4  -exp
          mixer.D                 ssm_d               4
          mixer.dt_bias           ssm_dt.bias         4
          mixer.conv1d.weight     ssm_conv1d.weight   64x1x4  as=64x4
          mixer.in_proj.weight    ssm_in.weight       128x64
          mixer.bcdt_proj.weight  ssm_x.weight        96x64
          mixer.dt_proj.weight    ssm_dt.weight       4x64
          mixer.dt_norm_weight    ssm_dt_norm  64
          mixer.B_norm_weight     ssm_b_norm   16
          mixer.C_norm_weight     ssm_c_norm   16
          mixer.out_proj.weight   ssm_out.weight      64x64`,
      },
      {
        layers: [1, 3],
        lines: `
          mixer.qkv_proj.weight  attn_qkv.weight     128x64
          mixer.o_proj.weight    attn_output.weight  64x64
          mixer.q_weight         attn_q_norm.weight  4x16
          mixer.k_weight         attn_k_norm.weight  2x16`,
      },
    ],
  },
  // llama.cpp v0.5.0 loads the file, and does not end a pass over ten tokens within minutes.
  isRun: false,
};

export const hybrids: { readonly cases: readonly DecoderCase[]; readonly refusals: readonly Refusal[] } = {
  cases: [step, kimi, plamo, rwkv],
  refusals: [
    ['Step 3.5', { moe_router_activation: undefined }, /moe_router_activation is "softmax"/],
    ['Step 3.5', { layer_types: ['full_attention', 'other', 'full_attention'] }, /layer_types\[1\] is "other"/],
    ['Step 3.5', { layer_types: ['full_attention'] }, /layer_types has to be an array of 3/, 'BAD_FILE'],
    ['Step 3.5', { partial_rotary_factors: [0.5, 0.5, 0.5] }, /partial_rotary_factors\[1\] is 0.5/],
    ['Step 3.5', { rope_theta: [5e6, 1e4, 1e4] }, /rope_theta\[2\] is 10000/],
    ['Step 3.5', { rope_theta: ['x', 1e4] }, /rope_theta has to be numbers/, 'BAD_FILE'],
    ['Step 3.5', { yarn_only_types: undefined }, /yarn_only_types is undefined/],
    ['Step 3.5', { use_rope_layers: [1, 0, 1] }, /use_rope_layers/],
    ['Step 3.5', { attention_other_setting: { head_dim: 32 } }, /attention_other_setting.head_dim/],
    [
      'Step 3.5',
      { attention_other_setting: { num_attention_heads: 0.5 } },
      /attention_other_setting.num_att/,
      'BAD_FILE',
    ],
    ['Step 3.5', { moe_layers_enum: 'x' }, /moe_layers_enum has to be a list/, 'BAD_FILE'],
    ['Step 3.5', { norm_expert_weight: undefined }, /norm_expert_weight is missing/, 'BAD_FILE'],
    ['Step 3.5', { swiglu_limits: [-1] }, /swiglu_limits has to have numbers/, 'BAD_FILE'],
    ['Step 3.5', { tie_word_embeddings: true }, /tie_word_embeddings is true/],
    ['PLaMo 2', { mamba_enabled: false }, /mamba_enabled is false/],
    ['Kimi Linear', { moe_renormalize: false }, /moe_renormalize is false/],
    ['Kimi Linear', { linear_attn_config: undefined }, /linear_attn_config has to be an object/, 'BAD_FILE'],
    ['Kimi Linear', { linear_attn_config: { ...kimiLinear, num_heads: 2 } }, /linear_attn_config.num_heads is 2/],
    ['Kimi Linear', { linear_attn_config: { ...kimiLinear, kda_layers: [1] } }, /layer 3 is in neither/],
    ['Kimi Linear', { linear_attn_config: { ...kimiLinear, kda_layers: 1 } }, /kda_layers has to be/, 'BAD_FILE'],
  ],
};
