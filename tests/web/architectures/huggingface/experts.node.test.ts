import { type DecoderCase, testDecoders, testRefusals } from '../../support/decoder-cases.js';
import {
  attention,
  biases,
  common,
  gated,
  headNorms,
  type Keys,
  normBiases,
  norms,
  outside,
  permuted,
  prefix,
  tiedOutside,
} from '../../support/decoder-tables.js';
import type { Decoder } from '../../support/forward.js';

const heads: Keys = [
  ['attention.layer_norm_rms_epsilon', 1e-5],
  ['attention.key_length', 16],
  ['attention.value_length', 16],
];

/** Keys of most decoders, with those of experts before the lengths of heads. */
const withExperts = (keys: Keys, ...more: Keys): Keys => {
  const all = common(keys);
  const at = all.findIndex(([name]) => name.endsWith('rms_epsilon')) + 1;
  return [...all.slice(0, at), ...more, ...all.slice(at)];
};
const usual: Keys = [['attention.layer_norm_rms_epsilon', 1e-5]];
const five: Keys = [
  ['expert_count', 5],
  ['expert_used_count', 2],
];

const separate = (count: number, rows: number) => `
  mlp.experts.#.gate_proj.weight  ffn_gate_exps.weight  ${rows}x64  stack=${count}
  mlp.experts.#.up_proj.weight    ffn_up_exps.weight    ${rows}x64  stack=${count}
  mlp.experts.#.down_proj.weight  ffn_down_exps.weight  64x${rows}  stack=${count}`;
const router = `
  mlp.gate.weight  ffn_gate_inp.weight  5x64`;
const shared = (name: string, rows: number) => `
  ${name}.gate_proj.weight  ffn_gate_shexp.weight  ${rows}x64
  ${name}.up_proj.weight    ffn_up_shexp.weight    ${rows}x64
  ${name}.down_proj.weight  ffn_down_shexp.weight  64x${rows}`;

/** Rows of gates or ups in the halves of each of five experts. */
const halves = (half: number, rows: number) => [0, 1, 2, 3, 4].map((e) => `${(2 * e + half) * rows}+${rows}`).join(',');
const stacked = (rows: number) => `
  mlp.experts.gate_up_proj  ffn_gate_exps.weight  5x${2 * rows}x64  rows=${halves(0, rows)}  as=5x${rows}x64
  mlp.experts.gate_up_proj  ffn_up_exps.weight    5x${2 * rows}x64  rows=${halves(1, rows)}  as=5x${rows}x64
  mlp.experts.down_proj     ffn_down_exps.weight  5x64x${rows}`;

const experts = {
  router: 'mlp.gate',
  expert: (e: number) =>
    ['gate', 'up', 'down'].map((name) => `mlp.experts.${e}.${name}_proj`) as unknown as readonly [
      string,
      string,
      string,
    ],
};
const sharedNames = (name: string): readonly [string, string, string] => [
  `${name}.gate_proj`,
  `${name}.up_proj`,
  `${name}.down_proj`,
];
const routed: Partial<Decoder> = { headName: 'lm_head.weight', experts, usedExperts: 2 };

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
  keys: [...withExperts(usual, ...five), ['expert_feed_forward_length', 48], ['expert_shared_feed_forward_length', 80]],
  model: {
    ...routed,
    shares: { of: 'all' },
    shared: sharedNames('mlp.shared_expert'),
    sharedGate: 'mlp.shared_expert_gate',
  },
};
const qwen2layer = `${norms}${attention}${biases}${router}
  mlp.shared_expert_gate.weight  ffn_gate_inp_shexp.weight  1x64
  ${shared('mlp.shared_expert', 80)}`;

/** Factors of Phi's short contexts, and that of its attention. */
const phiFactors = [1, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6, 1.7];
const phiFactor = Math.sqrt(1 + Math.log(2) / Math.log(4096));

const cases: readonly DecoderCase[] = [
  {
    name: 'Qwen2 with experts',
    ...qwen2moe,
    table: { prefix, outside, layer: qwen2layer + separate(5, 48) },
  },
  {
    name: 'Qwen2 with stacked experts',
    ...qwen2moe,
    table: { prefix, outside, layer: qwen2layer + stacked(48) },
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
    keys: [...withExperts(heads, ...five), ['expert_feed_forward_length', 48]],
    table: { prefix, outside, layer: norms + attention + headNorms + router + stacked(48) },
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
    earlyKeys: [['rope.scaling.attn_factor', phiFactor]],
    keys: [
      ['context_length', 8192],
      ['rope.scaling.original_context_length', 4096],
      ['embedding_length', 64],
      ['feed_forward_length', 96],
      ['block_count', 3],
      ['attention.head_count', 4],
      ['attention.head_count_kv', 2],
      ['attention.layer_norm_rms_epsilon', 1e-5],
      ['rope.dimension_count', 16],
      ['rope.freq_base', 10000],
      ['attention.sliding_window', 8192],
      ['expert_used_count', 2],
      ['expert_count', 5],
    ],
    table: {
      prefix,
      outside: `${outside}
        model.norm.bias  output_norm.bias  64
        lm_head.bias     output.bias       264`,
      layer: `${norms}${normBiases}${attention}${biases}
        self_attn.o_proj.bias                   attn_output.bias      64
        block_sparse_moe.gate.weight            ffn_gate_inp.weight   5x64
        block_sparse_moe.experts.#.w1.weight    ffn_gate_exps.weight  96x64  stack=5
        block_sparse_moe.experts.#.w2.weight    ffn_down_exps.weight  64x96  stack=5
        block_sparse_moe.experts.#.w3.weight    ffn_up_exps.weight    96x64  stack=5`,
    },
    // By llama.cpp's definitions, which differ from Hugging Face's: norms subtract the mean there, each expert has a softmax of its own, and
    // the rotary embedding has the factors that config.json states.
    model: {
      ...routed,
      experts: {
        router: 'block_sparse_moe.gate',
        expert: (e) => [1, 3, 2].map((w) => `block_sparse_moe.experts.${e}.w${w}`) as [string, string, string],
      },
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
    keys: withExperts(usual, ...five).map(([name, value]) => [name, name.endsWith('_kv') ? 4 : value] as const),
    table: {
      prefix,
      outside,
      layer: `${norms}${attention.replaceAll('32x64', '64x64')}
        self_attn.q_norm.weight  attn_q_norm.weight  64
        self_attn.k_norm.weight  attn_k_norm.weight  64
        ${router}${separate(5, 96)}`,
    },
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
    keys: [
      ...withExperts(usual, ...five),
      ['vocab_size', 264],
      ['rope.dimension_count', 16],
      ['attention.scale', 0.125],
      ['embedding_scale', 12],
      ['residual_scale', 0.22],
      ['logit_scale', 8],
    ],
    table: {
      prefix,
      outside: tiedOutside,
      layer: `${norms}${permuted}
        block_sparse_moe.router.layer.weight   ffn_gate_inp.weight   5x64
        block_sparse_moe.input_linear.weight   ffn_gate_exps.weight  5x192x64  rows=${halves(0, 96)}  as=5x96x64
        block_sparse_moe.input_linear.weight   ffn_up_exps.weight    5x192x64  rows=${halves(1, 96)}  as=5x96x64
        block_sparse_moe.output_linear.weight  ffn_down_exps.weight  5x64x96`,
    },
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
    keys: [
      ...withExperts(usual, ...five),
      ['vocab_size', 264],
      ['rope.dimension_count', 16],
      ['attention.scale', 0.25],
      ['embedding_scale', 1],
      ['residual_scale', 1],
      ['logit_scale', 1],
      ['expert_shared_feed_forward_length', 80],
    ],
    table: {
      prefix,
      outside,
      layer: `${norms}${permuted}
        block_sparse_moe.router.layer.weight   ffn_gate_inp.weight    5x64
        block_sparse_moe.input_linear.weight   ffn_gate_exps.weight   5x192x64  rows=${halves(0, 96)}  as=5x96x64
        block_sparse_moe.input_linear.weight   ffn_up_exps.weight     5x192x64  rows=${halves(1, 96)}  as=5x96x64
        block_sparse_moe.output_linear.weight  ffn_down_exps.weight   5x64x96
        shared_mlp.input_linear.weight         ffn_gate_shexp.weight  160x64  rows=0+80   as=80x64
        shared_mlp.input_linear.weight         ffn_up_shexp.weight    160x64  rows=80+80  as=80x64
        shared_mlp.output_linear.weight        ffn_down_shexp.weight  64x80`,
    },
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
    keys: [
      ...withExperts(heads, ...five, ['expert_group_count', 1], ['expert_group_used_count', 1]).map(
        ([name, value]) => [name, name === 'block_count' ? 4 : value] as const,
      ),
      ['rope.dimension_count', 8],
      ['expert_feed_forward_length', 48],
      ['expert_shared_count', 1],
      ['leading_dense_block_count', 1],
      ['expert_gating_func', 2],
      ['expert_weights_scale', 1.5],
      ['expert_weights_norm', true],
      ['nextn_predict_layers', 1],
    ],
    table: {
      prefix,
      outside,
      layer: `
        input_layernorm.weight           attn_norm.weight            64
        post_attention_layernorm.weight  post_attention_norm.weight  64
        ${attention}${biases}${headNorms}`,
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
          lines: `
            eh_proj.weight           nextn.eh_proj.weight           64x128
            enorm.weight             nextn.enorm.weight             64
            hnorm.weight             nextn.hnorm.weight             64
            embed_tokens.weight      nextn.embed_tokens.weight      264x64
            shared_head.head.weight  nextn.shared_head_head.weight  264x64
            shared_head.norm.weight  nextn.shared_head_norm.weight  64`,
        },
      ],
    },
    model: {
      ...routed,
      layers: 3,
      rotated: 8,
      shares: { of: 'sigmoid', normalized: true, factor: 1.5, bias: 'mlp.gate.e_score_correction_bias' },
      shared: sharedNames('mlp.shared_experts'),
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
    keys: [
      ...common(heads),
      ['expert_count', 5],
      ['expert_used_count', 2],
      ['interleave_moe_layer_step', 1],
      ['leading_dense_block_count', 1],
      ['expert_feed_forward_length', 48],
      ['expert_shared_count', 1],
      ['expert_shared_feed_forward_length', 48],
    ],
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
      shared: sharedNames('mlp.shared_experts'),
    },
  },
];

testDecoders(cases);

testRefusals(cases, [
  ['Phi with experts', { attention_bias: false }, /attention_bias is false/],
  ['Phi with experts', { lm_head_bias: undefined }, /lm_head_bias is false/],
  ['Qwen2 with experts', { norm_topk_prob: true }, /norm_topk_prob is true/, 'UNKNOWN_FORMAT'],
  ['Qwen2 with experts', { mlp_only_layers: [1] }, /mlp_only_layers/, 'UNKNOWN_FORMAT'],
  ['Qwen2 with experts', { num_experts_per_tok: 6 }, /num_experts_per_tok 6/, 'BAD_FILE'],
  ['Qwen2 with experts', { num_experts: 2 ** 30 }, /too few/, 'BAD_FILE'],
  ['OLMoE', { clip_qkv: 8 }, /clip_qkv is 8/, 'UNKNOWN_FORMAT'],
  ['GLM-4 with experts, and a layer that predicts a further token', { n_group: 4 }, /n_group is 4/, 'UNKNOWN_FORMAT'],
  [
    'GLM-4 with experts, and a layer that predicts a further token',
    { n_routed_experts: 2 ** 30 },
    /too few/,
    'BAD_FILE',
  ],
  ['Ernie 4.5 with experts', { moe_layer_interval: 2 }, /moe_layer_interval is 2/, 'UNKNOWN_FORMAT'],
  ['Ernie 4.5 with experts', { moe_num_shared_experts: 2 }, /2 shared experts have 96 rows/, 'UNKNOWN_FORMAT'],
  ['Ernie 4.5 with experts', { moe_layer_end_index: 1 }, /moe_layer_end_index is 1/, 'UNKNOWN_FORMAT'],
]);
