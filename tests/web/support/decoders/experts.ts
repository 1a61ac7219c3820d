// Decoders with experts.

import { expect } from 'vitest';
import type { DecoderCase, Refusal } from '../decoder-cases.js';
import {
  attention,
  biases,
  common,
  experts,
  five,
  gated,
  headNorms,
  heads,
  llamaKeys,
  mixtral,
  mixtralExperts,
  namesOf,
  next,
  normBiases,
  norms,
  normsBetween,
  outside,
  permuted,
  prefix,
  router,
  separate,
  shared,
  tiedOutside,
  untied,
  usualTable,
} from '../decoder-tables.js';
import {
  add,
  type Decoder,
  dot,
  joined,
  multiply,
  rotaryFrequencies,
  rotate,
  sigmoid,
  silu,
  slices,
  softmax,
  turnedOf,
  type Vector,
} from '../forward.js';
import { lfm2, lfm2Dense, lfm2Model } from './dense.js';
import { attended, best } from './latent.js';

/** Rows of gates or ups in the halves of each of five experts. */
const halves = (half: number, rows: number) => [0, 1, 2, 3, 4].map((e) => `${(2 * e + half) * rows}+${rows}`).join(',');
const stacked = (rows: number) => `
  mlp.experts.gate_up_proj  ffn_gate_exps.weight  5x${2 * rows}x64  rows=${halves(0, rows)}  as=5x${rows}x64
  mlp.experts.gate_up_proj  ffn_up_exps.weight    5x${2 * rows}x64  rows=${halves(1, rows)}  as=5x${rows}x64
  mlp.experts.down_proj     ffn_down_exps.weight  5x64x${rows}`;

const routed: Partial<Decoder> = { ...untied, experts, usedExperts: 2 };

const qwen2moe: Omit<DecoderCase, 'name' | 'table'> = {
  own: true,
  hugging: 'Qwen2MoeForCausalLM',
  architecture: 'qwen2moe',
  config: {
    num_experts: 5,
    num_experts_per_tok: 2,
    moe_intermediate_size: 48,
    shared_expert_intermediate_size: 80,
    norm_topk_prob: false,
  },
  keys: common(...five, ['expert_feed_forward_length', 48], ['expert_shared_feed_forward_length', 80]),
  model: {
    ...routed,
    shares: { of: 'all' },
    shared: namesOf('mlp.shared_expert'),
    sharedGate: 'mlp.shared_expert_gate',
  },
};
const qwen2layer = `${norms}${attention}${biases}${router}
  mlp.shared_expert_gate.weight  ffn_gate_inp_shexp.weight  1x64
  ${shared('mlp.shared_expert', 80)}`;

/** A layer of EXAONE. */
const exaoneLayer = (rest: string) => `${norms}${attention}${headNorms}${rest}`;

/** Factors of Phi's short contexts, and that of its attention. */
const phiFactors = [1, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6, 1.7];
const phiFactor = Math.sqrt(1 + Math.log(2) / Math.log(4096));

const gptOss: DecoderCase = {
  name: 'gpt-oss in 16 bits',
  own: true,
  hugging: 'GptOssForCausalLM',
  architecture: 'gpt-oss',
  layers: 4,
  config: {
    head_dim: 16,
    num_local_experts: 5,
    num_experts_per_tok: 2,
    sliding_window: 4,
    attention_bias: true,
    swiglu_limit: 7,
    layer_types: ['sliding_attention', 'full_attention', 'sliding_attention', 'full_attention'],
    tie_word_embeddings: false,
  },
  keys: common(
    ...heads,
    ...five,
    ['block_count', 4],
    ['attention.sliding_window', 4],
    ['expert_feed_forward_length', 96],
  ),
  table: usualTable(`${normsBetween}${attention}${biases}
      self_attn.o_proj.bias            attn_output.bias      64
      self_attn.sinks                  attn_sinks.weight     4
      mlp.router.weight                ffn_gate_inp.weight   5x64
      mlp.router.bias                  ffn_gate_inp.bias     5
      mlp.experts.gate_up_proj         ffn_gate_exps.weight  5x64x192  np=5x64x192[:,:,0::2]T  as=5x96x64
      mlp.experts.gate_up_proj         ffn_up_exps.weight    5x64x192  np=5x64x192[:,:,1::2]T  as=5x96x64
      mlp.experts.gate_up_proj_bias    ffn_gate_exps.bias    5x192     np=5x192[:,0::2]        as=5x96
      mlp.experts.gate_up_proj_bias    ffn_up_exps.bias      5x192     np=5x192[:,1::2]        as=5x96
      mlp.experts.down_proj            ffn_down_exps.weight  5x96x64   np=5x96x64T             as=5x64x96
      mlp.experts.down_proj_bias       ffn_down_exps.bias    5x64`),
  model: {
    ...untied,
    attend(read, p, layer, x) {
      const frequencies = rotaryFrequencies(10000, 16);
      const part = (name: string) => x.map((one) => read.linear(`${p}self_attn.${name}_proj`, one));
      const turn = (all: Vector[]) =>
        all.map((one, t) => joined(slices(one, 16).map((head) => rotate(head, t, frequencies, 1))));
      const sinks = read.get(`${p}self_attn.sinks`).values;
      const wish = { scale: 1 / 4, window: layer % 2 === 0 ? 4 : Infinity, sinks };
      const all = attended(turn(part('q')), turn(part('k')), part('v'), wish, { heads: 4, keyHeads: 2 });
      return all.map((one) => read.linear(`${p}self_attn.o_proj`, one));
    },
    grow(read, p, x) {
      const scores = [...read.linear(`${p}mlp.router`, x)];
      const chosen = best(scores, 2);
      const shares = softmax(chosen.map((e) => scores[e]!));
      const name = `${p}mlp.experts.gate_up_proj`;
      const bias = read.get(`${name}_bias`).values;
      const outputs = chosen.map((e, i) => {
        const part = (first: 0 | 1) =>
          turnedOf(read, name, e, x, first, 2, 96).map((v, o) => v + bias[e * 192 + 2 * o + first]!);
        const gate = part(0).map((v) => Math.min(v, 7));
        const up = part(1).map((v) => Math.max(-7, Math.min(v, 7)));
        const inner = gate.map((v, o) => v * sigmoid(1.702 * v) * (up[o]! + 1));
        const down = turnedOf(read, `${p}mlp.experts.down_proj`, e, inner);
        return down.map((v, o) => (v + read.get(`${p}mlp.experts.down_proj_bias`).values[e * 64 + o]!) * shares[i]!);
      });
      return outputs.reduce(add);
    },
  },
};

const cases: readonly DecoderCase[] = [
  {
    name: 'Qwen2 with experts',
    ...qwen2moe,
    table: usualTable(qwen2layer + separate(5, 48)),
  },
  {
    name: 'Qwen2 with stacked experts',
    ...qwen2moe,
    table: usualTable(qwen2layer + stacked(48)),
    model: { ...qwen2moe.model, stacked: ['mlp.experts.gate_up_proj', 'mlp.experts.down_proj'] },
  },
  {
    name: 'Qwen3 with stacked experts',
    own: true,
    hugging: 'Qwen3MoeForCausalLM',
    architecture: 'qwen3moe',
    config: {
      head_dim: 16,
      num_experts: 5,
      num_experts_per_tok: 2,
      moe_intermediate_size: 48,
      norm_topk_prob: true,
    },
    keys: common(...heads, ...five, ['expert_feed_forward_length', 48]),
    table: usualTable(norms + attention + headNorms + router + stacked(48)),
    model: { ...routed, stacked: ['mlp.experts.gate_up_proj', 'mlp.experts.down_proj'] },
  },
  {
    name: 'Phi with experts',
    own: true,
    hugging: 'PhiMoEForCausalLM',
    architecture: 'phimoe',
    config: {
      num_local_experts: 5,
      num_experts_per_tok: 2,
      attention_bias: true,
      lm_head_bias: true,
      max_position_embeddings: 8192,
      original_max_position_embeddings: 4096,
      tie_word_embeddings: false,
      sliding_window: 8192,
      rope_scaling: {
        type: 'longrope',
        long_factor: [4, 5, 6, 7, 8, 9, 10, 11],
        short_factor: phiFactors,
        long_mscale: 1.25,
        short_mscale: 1.25,
      },
    },
    keys: common(
      ['context_length', 8192],
      ['rope.scaling.attn_factor', phiFactor],
      ['rope.scaling.original_context_length', 4096],
      ['rope.dimension_count', 16],
      ['attention.sliding_window', 8192],
      ...five,
    ),
    table: {
      prefix,
      outside: `${outside}
        model.norm.bias  output_norm.bias  64
        lm_head.bias     output.bias       264`,
      layer: `${norms}${normBiases}${attention}${biases}
        self_attn.o_proj.bias                   attn_output.bias      64
        block_sparse_moe.gate.weight            ffn_gate_inp.weight   5x64${mixtral('block_sparse_moe', 96)}`,
    },
    // By llama.cpp's definitions, which differ from Hugging Face's: norms subtract the mean there, each expert has a softmax of its own, and
    // the rotary embedding has the factors that config.json states.
    model: {
      ...routed,
      experts: mixtralExperts('block_sparse_moe'),
      rmsBiases: true,
      frequencies: (f) => f.map((one, i) => one / phiFactors[i]!),
      rotaryFactor: phiFactor,
    },
  },
  {
    name: 'OLMoE',
    own: true,
    hugging: 'OlmoeForCausalLM',
    architecture: 'olmoe',
    config: {
      num_experts: 5,
      num_experts_per_tok: 2,
      num_key_value_heads: 4,
      norm_topk_prob: false,
      clip_qkv: null,
    },
    keys: common(...five, ['attention.head_count_kv', 4]),
    table: usualTable(`${norms}${attention.replaceAll('32x64', '64x64')}
        self_attn.q_norm.weight  attn_q_norm.weight  64
        self_attn.k_norm.weight  attn_k_norm.weight  64
        ${router}${separate(5, 96)}`),
    model: { ...routed, keyHeads: 4, headNorms: 'all', shares: { of: 'all' } },
  },
  {
    name: 'Granite with experts',
    own: true,
    hugging: 'GraniteMoeForCausalLM',
    architecture: 'granitemoe',
    config: {
      num_local_experts: 5,
      num_experts_per_tok: 2,
      attention_multiplier: 0.125,
      embedding_multiplier: 12,
      residual_multiplier: 0.22,
      logits_scaling: 8,
      tie_word_embeddings: true,
    },
    keys: common(
      ...five,
      ...llamaKeys,
      ['attention.scale', 0.125],
      ['embedding_scale', 12],
      ['residual_scale', 0.22],
      ['logit_scale', 8],
    ),
    table: usualTable(
      `${norms}${permuted}
        block_sparse_moe.router.layer.weight   ffn_gate_inp.weight   5x64
        block_sparse_moe.input_linear.weight   ffn_gate_exps.weight  5x192x64  rows=${halves(0, 96)}  as=5x96x64
        block_sparse_moe.input_linear.weight   ffn_up_exps.weight    5x192x64  rows=${halves(1, 96)}  as=5x96x64
        block_sparse_moe.output_linear.weight  ffn_down_exps.weight  5x64x96`,
      { outside: tiedOutside },
    ),
    model: {
      usedExperts: 2,
      experts: { ...experts, router: 'block_sparse_moe.router.layer' },
      stacked: ['block_sparse_moe.input_linear.weight', 'block_sparse_moe.output_linear.weight'],
      scale: 64,
      embeddingFactor: 12,
      residualFactor: 0.22,
      logitFactor: 1 / 8,
    },
  },
  {
    name: 'Granite with experts and shared ones',
    own: true,
    hugging: 'GraniteMoeSharedForCausalLM',
    architecture: 'granitemoe',
    config: {
      num_local_experts: 5,
      num_experts_per_tok: 2,
      shared_intermediate_size: 80,
      attention_multiplier: 0.25,
    },
    keys: common(
      ...five,
      ...llamaKeys,
      ['attention.scale', 0.25],
      ['embedding_scale', 1],
      ['residual_scale', 1],
      ['logit_scale', 1],
      ['expert_shared_feed_forward_length', 80],
    ),
    table: usualTable(`${norms}${permuted}
        block_sparse_moe.router.layer.weight   ffn_gate_inp.weight    5x64
        block_sparse_moe.input_linear.weight   ffn_gate_exps.weight   5x192x64  rows=${halves(0, 96)}  as=5x96x64
        block_sparse_moe.input_linear.weight   ffn_up_exps.weight     5x192x64  rows=${halves(1, 96)}  as=5x96x64
        block_sparse_moe.output_linear.weight  ffn_down_exps.weight   5x64x96
        shared_mlp.input_linear.weight         ffn_gate_shexp.weight  160x64  rows=0+80   as=80x64
        shared_mlp.input_linear.weight         ffn_up_shexp.weight    160x64  rows=80+80  as=80x64
        shared_mlp.output_linear.weight        ffn_down_shexp.weight  64x80`),
    model: {
      headName: 'lm_head.weight',
      usedExperts: 2,
      experts: { ...experts, router: 'block_sparse_moe.router.layer' },
      stacked: ['block_sparse_moe.input_linear.weight', 'block_sparse_moe.output_linear.weight'],
      sharedFused: ['shared_mlp.input_linear', 'shared_mlp.output_linear'],
      scale: 16,
    },
  },
  {
    name: 'GLM-4 with experts, and a layer that predicts a further token',
    own: true,
    hugging: 'Glm4MoeForCausalLM',
    architecture: 'glm4moe',
    layers: 4,
    config: {
      head_dim: 16,
      num_hidden_layers: 3,
      num_nextn_predict_layers: 1,
      first_k_dense_replace: 1,
      n_routed_experts: 5,
      num_experts_per_tok: 2,
      n_shared_experts: 1,
      moe_intermediate_size: 48,
      routed_scaling_factor: 1.5,
      norm_topk_prob: true,
      n_group: 1,
      topk_group: 1,
      partial_rotary_factor: 0.5,
      use_qk_norm: true,
      attention_bias: true,
    },
    keys: common(
      ...heads,
      ...five,
      ['expert_group_count', 1],
      ['expert_group_used_count', 1],
      ['block_count', 4],
      ['rope.dimension_count', 8],
      ['expert_feed_forward_length', 48],
      ['expert_shared_count', 1],
      ['leading_dense_block_count', 1],
      ['expert_gating_func', 2],
      ['expert_weights_scale', 1.5],
      ['expert_weights_norm', true],
      ['nextn_predict_layers', 1],
    ),
    table: {
      prefix,
      outside,
      layer: `${normsBetween}${attention}${biases}${headNorms}`,
      some: [
        { layers: [0], lines: gated },
        {
          layers: [1, 2, 3],
          lines: `${router}
            mlp.gate.e_score_correction_bias  exp_probs_b.bias  5
            ${separate(5, 48)}${shared('mlp.shared_experts', 48)}`,
        },
        {
          layers: [3],
          lines: next,
        },
      ],
    },
    model: {
      ...routed,
      layers: 3,
      rotated: 8,
      shares: { of: 'sigmoid', normalized: true, factor: 1.5, bias: 'mlp.gate.e_score_correction_bias' },
      shared: namesOf('mlp.shared_experts'),
    },
  },
  {
    name: 'Ernie 4.5 with experts',
    own: true,
    hugging: 'Ernie4_5_MoeForCausalLM',
    architecture: 'ernie4_5-moe',
    config: {
      head_dim: 16,
      moe_num_experts: 5,
      moe_k: 2,
      moe_num_shared_experts: 1,
      moe_layer_start_index: 1,
      moe_intermediate_size: 48,
    },
    keys: common(
      ...heads,
      ...five,
      ['interleave_moe_layer_step', 1],
      ['leading_dense_block_count', 1],
      ['expert_feed_forward_length', 48],
      ['expert_shared_count', 1],
      ['expert_shared_feed_forward_length', 48],
    ),
    table: {
      prefix,
      outside,
      layer: norms + attention,
      some: [
        { layers: [0], lines: gated },
        {
          layers: [1, 2],
          lines: `${router}
            mlp.moe_statics.e_score_correction_bias  exp_probs_b.bias  1x5
            ${separate(5, 48)}${shared('mlp.shared_experts', 48)}`,
        },
      ],
    },
    model: {
      ...routed,
      neighbors: true,
      shares: { of: 'all', normalized: true, bias: 'mlp.moe_statics.e_score_correction_bias' },
      shared: namesOf('mlp.shared_experts'),
    },
  },
  {
    name: 'MiniMax M2',
    hugging: 'MiniMaxM2ForCausalLM',
    architecture: 'minimax-m2',
    config: { head_dim: 16, rotary_dim: 8, num_local_experts: 5, num_experts_per_tok: 2, intermediate_size: 48 },
    keys: common(
      ...heads,
      ...five,
      ['expert_gating_func', 2],
      ['feed_forward_length', 48],
      ['expert_feed_forward_length', 48],
      ['rope.dimension_count', 8],
    ),
    table: usualTable(`${norms}${attention}
        self_attn.q_norm.weight                   attn_q_norm.weight    64
        self_attn.k_norm.weight                   attn_k_norm.weight    32
        block_sparse_moe.gate.weight              ffn_gate_inp.weight   5x64
        block_sparse_moe.e_score_correction_bias  exp_probs_b.bias      5${mixtral('block_sparse_moe', 48)}`),
    model: {
      ...untied,
      rotated: 8,
      headNorms: 'all',
      usedExperts: 2,
      experts: mixtralExperts('block_sparse_moe'),
      shares: { of: 'sigmoid', normalized: true, bias: 'block_sparse_moe.e_score_correction_bias' },
    },
  },
  {
    name: 'LFM2 with experts',
    hugging: 'Lfm2MoeForCausalLM',
    architecture: 'lfm2moe',
    config: {
      layer_types: ['conv', 'full_attention', 'conv'],
      norm_eps: 1e-5,
      rms_norm_eps: undefined,
      conv_L_cache: 3,
      num_dense_layers: 1,
      num_experts: 5,
      num_experts_per_tok: 2,
      moe_intermediate_size: 48,
      norm_topk_prob: true,
      use_expert_bias: true,
    },
    keys: common(
      ...five,
      ['attention.head_count_kv', [0, 2, 0]],
      ['expert_feed_forward_length', 48],
      ['leading_dense_block_count', 1],
      ['expert_gating_func', 2],
      ['vocab_size', 264],
      ['shortconv.l_cache', 3],
    ),
    table: {
      ...lfm2,
      some: [
        ...lfm2.some,
        { layers: [0], lines: lfm2Dense },
        {
          layers: [1, 2],
          lines: `
            feed_forward.gate.weight  ffn_gate_inp.weight  5x64
            feed_forward.expert_bias  exp_probs_b.bias     5
            ${mixtral('feed_forward', 48)}`,
        },
      ],
    },
    model: {
      ...lfm2Model,
      usedExperts: 2,
      experts: mixtralExperts('feed_forward'),
      shares: { of: 'sigmoid', normalized: true, bias: 'feed_forward.expert_bias' },
    },
  },
  {
    name: 'Ling 2',
    hugging: 'BailingMoeV2ForCausalLM',
    architecture: 'bailingmoe2',
    layers: 4,
    config: {
      head_dim: 16,
      num_hidden_layers: 3,
      num_nextn_predict_layers: 1,
      num_experts: 5,
      num_experts_per_tok: 2,
      num_shared_experts: 1,
      moe_intermediate_size: 48,
      n_group: 1,
      topk_group: 1,
      routed_scaling_factor: 1.5,
    },
    keys: common(
      ...heads,
      ...five,
      ['expert_group_count', 1],
      ['expert_group_used_count', 1],
      ['expert_gating_func', 2],
      ['block_count', 4],
      ['rope.dimension_count', 8],
      ['leading_dense_block_count', 1],
      ['vocab_size', 264],
      ['expert_feed_forward_length', 48],
      ['expert_shared_feed_forward_length', 48],
      ['expert_weights_scale', 1.5],
      ['expert_shared_count', 1],
      ['expert_weights_norm', true],
      ['nextn_predict_layers', 1],
    ),
    table: {
      prefix,
      outside: `
        model.word_embeddings.weight  token_embd.weight   264x64
        model.norm.weight             output_norm.weight  64
        lm_head.weight                output.weight       264x64`,
      layer: `${norms}
        attention.query_key_value.weight  attn_qkv.weight     128x64
        attention.dense.weight            attn_output.weight  64x64
        attention.query_layernorm.weight  attn_q_norm.weight  16
        attention.key_layernorm.weight    attn_k_norm.weight  16`,
      some: [
        { layers: [0], lines: gated },
        {
          layers: [1, 2, 3],
          lines: `${separate(5, 48)}${shared('mlp.shared_experts', 48)}
            mlp.gate.weight       ffn_gate_inp.weight  5x64
            mlp.gate.expert_bias  exp_probs_b.bias     5`,
        },
        {
          layers: [3],
          lines: `
            eh_proj.weight          nextn.eh_proj.weight      64x128
            enorm.weight            nextn.enorm.weight        64
            hnorm.weight            nextn.hnorm.weight        64
            final_layernorm.weight  layer_output_norm.weight  64`,
        },
      ],
    },
    model: {
      ...untied,
      layers: 3,
      rotated: 8,
      embedding: 'model.word_embeddings.weight',
      attentionPrefix: 'attention.',
      attentionOutput: 'dense',
      togetherName: 'query_key_value',
      norms: { query: 'query_layernorm', key: 'key_layernorm' },
      usedExperts: 2,
      experts,
      shared: namesOf('mlp.shared_experts'),
      shares: { of: 'sigmoid', normalized: true, factor: 1.5, bias: 'mlp.gate.expert_bias' },
    },
  },
  {
    name: 'Solar Open',
    own: true,
    hugging: 'SolarOpenForCausalLM',
    architecture: 'glm4moe',
    config: {
      head_dim: 16,
      first_k_dense_replace: 1,
      n_routed_experts: 5,
      num_experts_per_tok: 2,
      n_shared_experts: 1,
      moe_intermediate_size: 48,
      n_group: 1,
      topk_group: 1,
      norm_topk_prob: true,
      attention_bias: false,
    },
    keys: common(
      ...heads,
      ...five,
      ['expert_group_count', 1],
      ['expert_group_used_count', 1],
      ['rope.dimension_count', 16],
      ['expert_feed_forward_length', 48],
      ['expert_shared_count', 1],
      ['leading_dense_block_count', 1],
      ['expert_gating_func', 2],
      ['expert_weights_scale', 1],
      ['expert_weights_norm', true],
    ),
    table: {
      prefix,
      outside,
      layer: `${attention}
        input_layernorm.weight           attn_norm.weight            64
        post_attention_layernorm.weight  post_attention_norm.weight  64`,
      some: [
        { layers: [0], lines: gated },
        {
          layers: [1, 2],
          lines: `${separate(5, 48)}${shared('mlp.shared_experts', 48)}
            mlp.gate.weight                   ffn_gate_inp.weight  5x64
            mlp.gate.e_score_correction_bias  exp_probs_b.bias     5`,
        },
      ],
    },
    model: {
      ...untied,
      usedExperts: 2,
      experts,
      shared: namesOf('mlp.shared_experts'),
      shares: { of: 'sigmoid', normalized: true, bias: 'mlp.gate.e_score_correction_bias' },
    },
  },
  {
    name: 'Llama 4',
    hugging: 'Llama4ForCausalLM',
    architecture: 'llama4',
    layers: 4,
    config: {
      head_dim: 16,
      intermediate_size: 48,
      intermediate_size_mlp: 96,
      num_local_experts: 5,
      num_experts_per_tok: 1,
      interleave_moe_layer_step: 2,
      use_qk_norm: true,
      tie_word_embeddings: false,
    },
    keys: common(
      ...heads,
      ['expert_count', 5],
      ['expert_used_count', 1],
      ['block_count', 4],
      ...llamaKeys,
      ['interleave_moe_layer_step', 2],
      ['expert_feed_forward_length', 48],
    ),
    table: {
      prefix,
      outside,
      layer: norms + attention,
      some: [
        { layers: [0, 2], lines: gated.replaceAll('mlp.', 'feed_forward.') },
        {
          layers: [1, 3],
          lines: `
            feed_forward.router.weight                   ffn_gate_inp.weight    5x64
            feed_forward.experts.gate_up_proj            ffn_gate_exps.weight   5x64x96  np=5x64x96[:,:,0:48]T   as=5x48x64
            feed_forward.experts.gate_up_proj            ffn_up_exps.weight     5x64x96  np=5x64x96[:,:,48:96]T  as=5x48x64
            feed_forward.experts.down_proj               ffn_down_exps.weight   5x48x64  np=5x48x64T             as=5x64x48
            feed_forward.shared_expert.gate_proj.weight  ffn_gate_shexp.weight  48x64
            feed_forward.shared_expert.up_proj.weight    ffn_up_shexp.weight    48x64
            feed_forward.shared_expert.down_proj.weight  ffn_down_shexp.weight  64x48`,
        },
      ],
    },
    model: {
      ...untied,
      attend(read, p, layer, x) {
        const rotates = (layer + 1) % 4 !== 0;
        const frequencies = rotaryFrequencies(10000, 16);
        const turn = (name: string) =>
          x.map((one, t) =>
            joined(
              slices(read.linear(`${p}self_attn.${name}_proj`, one), 16).map((head) => {
                if (!rotates) return head;
                const turned = rotate(head, t, frequencies, 1, true);
                return turned.map((v) => v / Math.sqrt(dot(turned, turned) / 16 + 1e-5));
              }),
            ),
          );
        const v = x.map((one) => read.linear(`${p}self_attn.v_proj`, one));
        const all = attended(turn('q'), turn('k'), v, { scale: 1 / 4 }, { heads: 4, keyHeads: 2 });
        return all.map((one) => read.linear(`${p}self_attn.o_proj`, one));
      },
      grow(read, p, x) {
        const own = `${p}feed_forward.`;
        const dense = (name: string, one: Vector) =>
          read.linear(
            `${name}down_proj`,
            multiply(silu(read.linear(`${name}gate_proj`, one)), read.linear(`${name}up_proj`, one)),
          );
        if (!read.has(`${own}router.weight`)) return dense(own, x);
        const scores = [...read.linear(`${own}router`, x)];
        const [e] = best(scores, 1) as [number];
        // The share weighs the input of the expert.
        const weighed = x.map((v) => v * sigmoid(scores[e]!));
        const name = `${own}experts.gate_up_proj`;
        const inner = multiply(
          silu(turnedOf(read, name, e, weighed, 0, 1, 48)),
          turnedOf(read, name, e, weighed, 48, 1, 48),
        );
        return add(turnedOf(read, `${own}experts.down_proj`, e, inner), dense(`${own}shared_expert.`, x));
      },
    },
  },
  {
    name: 'Hunyuan with experts',
    hugging: 'HunYuanMoEV1ForCausalLM',
    architecture: 'hunyuan-moe',
    config: {
      head_dim: 16,
      use_qk_norm: true,
      num_experts: 5,
      moe_topk: [2, 2, 2],
      moe_intermediate_size: [96, 96, 96],
      num_shared_expert: [1, 1, 1],
      rope_scaling: { type: 'xdrope', alpha: 1000 },
    },
    keys: common(
      ...heads,
      ...five,
      ['rope.freq_base', expect.closeTo(10000 * 1000 ** (16 / 14), 3)],
      ['rope.scaling.type', 'none'],
      ['rope.scaling.factor', 1],
      ['expert_feed_forward_length', 96],
      ['expert_shared_feed_forward_length', 96],
      ['expert_shared_count', 1],
    ),
    table: usualTable(`${norms}${attention}
        self_attn.query_layernorm.weight  attn_q_norm.weight   16
        self_attn.key_layernorm.weight    attn_k_norm.weight   16
        mlp.gate.wg.weight                ffn_gate_inp.weight  5x64
        ${separate(5, 96)}${shared('mlp.shared_mlp', 96)}`),
    model: {
      ...routed,
      theta: 10000 * 1000 ** (16 / 14),
      headNorms: 'rotated',
      norms: { query: 'query_layernorm', key: 'key_layernorm' },
      experts: { ...experts, router: 'mlp.gate.wg' },
      shared: namesOf('mlp.shared_mlp'),
    },
  },
  {
    name: 'EXAONE with experts, windows, and a layer that predicts a further token',
    hugging: 'ExaoneMoEForCausalLM',
    architecture: 'exaone-moe',
    layers: 4,
    config: {
      head_dim: 16,
      sliding_window: 4,
      sliding_window_pattern: 'LLLG',
      num_experts: 5,
      num_experts_per_tok: 2,
      num_shared_experts: 1,
      moe_intermediate_size: 48,
      first_k_dense_replace: 1,
      routed_scaling_factor: 1.5,
      norm_topk_prob: true,
      scoring_func: 'sigmoid',
      n_group: 1,
      topk_group: 1,
      num_nextn_predict_layers: 1,
    },
    keys: common(
      ...heads,
      ...five,
      ['expert_group_count', 1],
      ['expert_group_used_count', 1],
      ['block_count', 5],
      ['expert_gating_func', 2],
      ['vocab_size', 264],
      ['attention.sliding_window', 4],
      ['attention.sliding_window_pattern', [true, true, true, false]],
      ['expert_feed_forward_length', 48],
      ['expert_shared_count', 1],
      ['expert_shared_feed_forward_length', 48],
      ['expert_weights_scale', 1.5],
      ['expert_weights_norm', true],
      ['leading_dense_block_count', 1],
      ['nextn_predict_layers', 1],
      ['rope.scaling.type', 'none'],
    ),
    table: {
      prefix,
      outside: `${outside}
        mtp.fc.weight                     blk.4.nextn.eh_proj.weight           64x128
        mtp.pre_fc_norm_embedding.weight  blk.4.nextn.enorm.weight             64
        mtp.pre_fc_norm_hidden.weight     blk.4.nextn.hnorm.weight             64
        mtp.norm.weight                   blk.4.nextn.shared_head_norm.weight  64
        ${exaoneLayer(gated).replace(/^( *)(\S+)( +)/gm, '$1mtp.layers.0.$2$3blk.4.')}`,
      layer: exaoneLayer(''),
      some: [
        { layers: [0], lines: gated },
        {
          layers: [1, 2, 3],
          lines: `${router}
            mlp.e_score_correction_bias  exp_probs_b.bias  5
            ${separate(5, 48)}${shared('mlp.shared_experts', 48)}`,
        },
      ],
    },
    model: {
      ...routed,
      rotates: (layer) => layer !== 3,
      window: (layer) => (layer === 3 ? Infinity : 4),
      shared: namesOf('mlp.shared_experts'),
      shares: { of: 'sigmoid', normalized: true, factor: 1.5, bias: 'mlp.e_score_correction_bias' },
    },
  },
  gptOss,
];

const refusals: readonly Refusal[] = [
  ['Hunyuan with experts', { moe_topk: [2, 1, 2] }, /moe_topk is .*one number for all layers/],
  ['Hunyuan with experts', { moe_intermediate_size: 48 }, /moe_intermediate_size is 48/],
  ['Hunyuan with experts', { moe_topk: 0 }, /moe_topk has to be/, 'BAD_FILE'],
  ['EXAONE with experts', { mlp_layer_types: ['dense', 'dense', 'sparse', 'sparse'] }, /mlp_layer_types/],
  ['EXAONE with experts', { num_nextn_predict_layers: 2 }, /num_nextn_predict_layers is 2/],
  ['EXAONE with experts', { sliding_window: null }, /sliding_window is null/],
  ['Phi with experts', { attention_bias: false }, /attention_bias is false/],
  ['Phi with experts', { lm_head_bias: undefined }, /lm_head_bias is false/],
  ['Qwen2 with experts', { norm_topk_prob: true }, /norm_topk_prob is true/],
  ['Qwen2 with experts', { mlp_only_layers: [1] }, /mlp_only_layers/],
  ['Qwen2 with experts', { num_experts_per_tok: 6 }, /num_experts_per_tok 6/, 'BAD_FILE'],
  ['Qwen2 with experts', { num_experts: 2 ** 30 }, /too few/, 'BAD_FILE'],
  ['OLMoE', { clip_qkv: 8 }, /clip_qkv is 8/],
  ['GLM-4 with experts, and a layer that predicts a further token', { n_group: 4 }, /n_group is 4/],
  [
    'GLM-4 with experts, and a layer that predicts a further token',
    { n_routed_experts: 2 ** 30 },
    /too few/,
    'BAD_FILE',
  ],
  ['Ernie 4.5 with experts', { moe_layer_interval: 2 }, /moe_layer_interval is 2/],
  ['Ernie 4.5 with experts', { moe_num_shared_experts: 2 }, /2 shared experts have 96 rows/],
  ['Ernie 4.5 with experts', { moe_layer_end_index: 1 }, /moe_layer_end_index is 1/],
  ['MiniMax M2', { scoring_func: 'softmax' }, /scoring_func is "softmax"/],
  ['LFM2 with experts', { norm_topk_prob: false }, /norm_topk_prob is false/],
  ['Ling 2', { moe_shared_expert_intermediate_size: 50 }, /has to be a multiple of 48/],
  ['Llama 4', { use_qk_norm: false }, /use_qk_norm is false/],
  ['Llama 4', { moe_layers: [0, 1, 2, 3] }, /moe_layers/],
  ['Llama 4', { no_rope_layers: [1, 1, 1, 1] }, /no_rope_layers\[3\] is 1/],
  ['Llama 4', { attention_chunk_size: 4096 }, /attention_chunk_size is 4096/],
  ['gpt-oss in 16 bits', { swiglu_limit: 6 }, /swiglu_limit is 6/],
  ['gpt-oss in 16 bits', { layer_types: Array(4).fill('full_attention') }, /layer_types\[0\]/],
];

export const mixtures = { cases, refusals };
