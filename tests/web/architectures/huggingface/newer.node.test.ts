// Families of today beside tables that were written by hand from llama.cpp's converter, with their logits in llama.cpp beside a forward pass in
// float64 that knows Hugging Face's definitions only.
import { type DecoderCase, testDecoders, testRefusals } from '../../support/decoder-cases.js';
import {
  attention,
  common,
  gated,
  headNorms,
  type Keys,
  norms,
  outside,
  permuted,
  prefix,
  tiedOutside,
} from '../../support/decoder-tables.js';
import type { Decoder } from '../../support/forward.js';
import {
  deepseekExperts,
  deepseekLayer,
  deepseekMixture,
  latent,
  latentConfig,
  latentKeys,
  withExperts,
} from '../../support/latent.js';

const heads: Keys = [
  ['attention.layer_norm_rms_epsilon', 1e-5],
  ['attention.key_length', 16],
  ['attention.value_length', 16],
];
const changed = (keys: Keys, ...changes: Keys): Keys =>
  keys.map(([name, value]) => [name, new Map(changes).get(name) ?? value] as const);

const five: Keys = [
  ['expert_count', 5],
  ['expert_used_count', 2],
];
const untied: Partial<Decoder> = { headName: 'lm_head.weight' };
const separate = `
  mlp.experts.#.gate_proj.weight  ffn_gate_exps.weight  48x64  stack=5
  mlp.experts.#.up_proj.weight    ffn_up_exps.weight    48x64  stack=5
  mlp.experts.#.down_proj.weight  ffn_down_exps.weight  64x48  stack=5`;
const shared = `
  mlp.shared_experts.gate_proj.weight  ffn_gate_shexp.weight  48x64
  mlp.shared_experts.up_proj.weight    ffn_up_shexp.weight    48x64
  mlp.shared_experts.down_proj.weight  ffn_down_shexp.weight  64x48`;
const named = (name: (e: number, part: string) => string) => (e: number) =>
  ['gate', 'up', 'down'].map((part) => name(e, part)) as unknown as readonly [string, string, string];
const experts = { router: 'mlp.gate', expert: named((e, part) => `mlp.experts.${e}.${part}_proj`) };
const sharedNames = ['gate', 'up', 'down'].map((part) => `mlp.shared_experts.${part}_proj`) as unknown as readonly [
  string,
  string,
  string,
];

/** A layer that predicts a further token. */
const next = `
  eh_proj.weight           nextn.eh_proj.weight           64x128
  enorm.weight             nextn.enorm.weight             64
  hnorm.weight             nextn.hnorm.weight             64
  embed_tokens.weight      nextn.embed_tokens.weight      264x64
  shared_head.head.weight  nextn.shared_head_head.weight  264x64
  shared_head.norm.weight  nextn.shared_head_norm.weight  64`;

// ------------------------------------------------------------------------------------------------------------- latent attention

const compressed = `${deepseekLayer}
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
  keys: [
    ...changed(latentKeys(groups, [['attention.q_lora_rank', 24]], [['expert_weights_norm', true]]), [
      'block_count',
      4,
    ]),
    ['nextn_predict_layers', 1],
  ],
} as const satisfies Partial<DecoderCase>;
const indexerKeys: Keys = [
  ['attention.indexer.head_count', 2],
  ['attention.indexer.key_length', 64],
  ['attention.indexer.top_k', 32],
];
const indexerConfig = { index_n_heads: 2, index_head_dim: 64, index_topk: 32 };

const latentCases: readonly DecoderCase[] = [
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
      latentKeys([], [['attention.q_lora_rank', 24]], []).filter(([name]) => name !== ''),
      ['leading_dense_block_count', 3],
      ['expert_feed_forward_length', 96],
      ['expert_shared_count', 0],
      ['expert_weights_scale', 1],
    ),
    table: { prefix, outside: tiedOutside, layer: compressed + gated },
    model: { attend: latent },
  },
];

// ------------------------------------------------------------------------------------------------------------- usual attention

const others: readonly DecoderCase[] = [
  {
    name: 'MiniMax M2',
    hugging: 'MiniMaxM2ForCausalLM',
    architecture: 'minimax-m2',
    config: { head_dim: 16, rotary_dim: 8, num_local_experts: 5, num_experts_per_tok: 2, intermediate_size: 48 },
    keys: [
      ...changed(withExperts(common(heads), ...five, ['expert_gating_func', 2]), ['feed_forward_length', 48]),
      ['expert_feed_forward_length', 48],
      ['rope.dimension_count', 8],
    ],
    table: {
      prefix,
      outside,
      layer: `${norms}${attention}
        self_attn.q_norm.weight                   attn_q_norm.weight    64
        self_attn.k_norm.weight                   attn_k_norm.weight    32
        block_sparse_moe.gate.weight              ffn_gate_inp.weight   5x64
        block_sparse_moe.e_score_correction_bias  exp_probs_b.bias      5
        block_sparse_moe.experts.#.w1.weight      ffn_gate_exps.weight  48x64  stack=5
        block_sparse_moe.experts.#.w2.weight      ffn_down_exps.weight  64x48  stack=5
        block_sparse_moe.experts.#.w3.weight      ffn_up_exps.weight    48x64  stack=5`,
    },
    model: {
      ...untied,
      rotated: 8,
      headNorms: 'all',
      usedExperts: 2,
      experts: {
        router: 'block_sparse_moe.gate',
        expert: (e) => [1, 3, 2].map((w) => `block_sparse_moe.experts.${e}.w${w}`) as [string, string, string],
      },
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
    keys: [
      ...changed(withExperts(common(), ...five), ['attention.head_count_kv', [0, 2, 0]]),
      ['expert_feed_forward_length', 48],
      ['leading_dense_block_count', 1],
      ['expert_gating_func', 2],
      ['vocab_size', 264],
      ['shortconv.l_cache', 3],
    ],
    table: {
      prefix,
      outside: `
        model.embed_tokens.weight    token_embd.weight       264x64
        model.embedding_norm.weight  token_embd_norm.weight  64`,
      layer: `
        operator_norm.weight  attn_norm.weight  64
        ffn_norm.weight       ffn_norm.weight   64`,
      some: [
        {
          layers: [0, 2],
          lines: `
            conv.conv.weight      shortconv.conv.weight      64x1x3  as=64x3
            conv.in_proj.weight   shortconv.in_proj.weight   192x64
            conv.out_proj.weight  shortconv.out_proj.weight  64x64`,
        },
        {
          layers: [1],
          lines: `
            self_attn.q_proj.weight       attn_q.weight       64x64
            self_attn.k_proj.weight       attn_k.weight       32x64
            self_attn.v_proj.weight       attn_v.weight       32x64
            self_attn.out_proj.weight     attn_output.weight  64x64
            self_attn.q_layernorm.weight  attn_q_norm.weight  16
            self_attn.k_layernorm.weight  attn_k_norm.weight  16`,
        },
        {
          layers: [0],
          lines: `
            feed_forward.w1.weight  ffn_gate.weight  96x64
            feed_forward.w3.weight  ffn_up.weight    96x64
            feed_forward.w2.weight  ffn_down.weight  64x96`,
        },
        {
          layers: [1, 2],
          lines: `
            feed_forward.gate.weight          ffn_gate_inp.weight   5x64
            feed_forward.expert_bias          exp_probs_b.bias      5
            feed_forward.experts.#.w1.weight  ffn_gate_exps.weight  48x64  stack=5
            feed_forward.experts.#.w3.weight  ffn_up_exps.weight    48x64  stack=5
            feed_forward.experts.#.w2.weight  ffn_down_exps.weight  64x48  stack=5`,
        },
      ],
    },
    model: {
      attentionOutput: 'out_proj',
      convolves: (layer) => layer !== 1,
      norms: {
        attention: 'operator_norm',
        feedForward: 'ffn_norm',
        final: 'model.embedding_norm',
        query: 'q_layernorm',
        key: 'k_layernorm',
      },
      mlp: { gate: 'feed_forward.w1', up: 'feed_forward.w3', down: 'feed_forward.w2' },
      usedExperts: 2,
      experts: {
        router: 'feed_forward.gate',
        expert: (e) => [1, 3, 2].map((w) => `feed_forward.experts.${e}.w${w}`) as [string, string, string],
      },
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
    keys: [
      ...changed(
        withExperts(
          common(heads),
          ...five,
          ['expert_group_count', 1],
          ['expert_group_used_count', 1],
          ['expert_gating_func', 2],
        ),
        ['block_count', 4],
      ),
      ['rope.dimension_count', 8],
      ['leading_dense_block_count', 1],
      ['vocab_size', 264],
      ['expert_feed_forward_length', 48],
      ['expert_shared_feed_forward_length', 48],
      ['expert_weights_scale', 1.5],
      ['expert_shared_count', 1],
      ['expert_weights_norm', true],
      ['nextn_predict_layers', 1],
    ],
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
          lines: `${separate}${shared}
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
      shared: sharedNames,
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
    keys: [
      ...withExperts(common(heads), ...five, ['expert_group_count', 1], ['expert_group_used_count', 1]),
      ['rope.dimension_count', 16],
      ['expert_feed_forward_length', 48],
      ['expert_shared_count', 1],
      ['leading_dense_block_count', 1],
      ['expert_gating_func', 2],
      ['expert_weights_scale', 1],
      ['expert_weights_norm', true],
    ],
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
          lines: `${separate}${shared}
            mlp.gate.weight                   ffn_gate_inp.weight  5x64
            mlp.gate.e_score_correction_bias  exp_probs_b.bias     5`,
        },
      ],
    },
    model: {
      ...untied,
      usedExperts: 2,
      experts,
      shared: sharedNames,
      shares: { of: 'sigmoid', normalized: true, bias: 'mlp.gate.e_score_correction_bias' },
    },
  },
  {
    name: 'InternLM 2',
    hugging: 'InternLM2ForCausalLM',
    architecture: 'internlm2',
    keys: common(),
    table: {
      prefix,
      outside: `
        model.tok_embeddings.weight  token_embd.weight   264x64
        model.norm.weight            output_norm.weight  64
        output.weight                output.weight       264x64`,
      layer: `
        attention_norm.weight   attn_norm.weight    64
        ffn_norm.weight         ffn_norm.weight     64
        attention.wqkv.weight   attn_q.weight       128x64  np=2x4x2x8x64[:,0:2]T01324  as=64x64
        attention.wqkv.weight   attn_k.weight       128x64  np=2x4x2x8x64[:,2:3]T01324  as=32x64
        attention.wqkv.weight   attn_v.weight       128x64  rows=48+16,112+16  as=32x64
        attention.wo.weight     attn_output.weight  64x64
        feed_forward.w1.weight  ffn_gate.weight     96x64
        feed_forward.w3.weight  ffn_up.weight       96x64
        feed_forward.w2.weight  ffn_down.weight     64x96`,
    },
    model: {
      headName: 'output.weight',
      embedding: 'model.tok_embeddings.weight',
      attentionPrefix: 'attention.',
      attentionOutput: 'wo',
      grouped: 'wqkv',
      norms: { attention: 'attention_norm', feedForward: 'ffn_norm' },
      mlp: { gate: 'feed_forward.w1', up: 'feed_forward.w3', down: 'feed_forward.w2' },
    },
  },
  {
    name: 'InternLM 3',
    own: true,
    hugging: 'InternLM3ForCausalLM',
    architecture: 'llama',
    config: { head_dim: 16, rope_scaling: { rope_type: 'dynamic', factor: 6 } },
    keys: [...common(heads), ['vocab_size', 264], ['rope.dimension_count', 16]],
    table: { prefix, outside, layer: norms + permuted + gated },
    model: untied,
  },
  {
    name: 'MiniCPM',
    hugging: 'MiniCPMForCausalLM',
    architecture: 'minicpm',
    config: { scale_emb: 12, scale_depth: 1.4, dim_model_base: 32, tie_word_embeddings: true },
    keys: [...common(), ['embedding_scale', 12], ['residual_scale', 1.4 / Math.sqrt(3)], ['logit_scale', 2]],
    table: { prefix, outside: tiedOutside, layer: norms + permuted + gated },
    model: { embeddingFactor: 12, residualFactor: 1.4 / Math.sqrt(3), logitFactor: 1 / 2 },
  },
];

// ------------------------------------------------------------------------------------------------------------- beside towers

/** A table whose names begin with a prefix. */
const within = (start: string, table: DecoderCase['table']): DecoderCase['table'] => ({
  ...table,
  prefix: start + table.prefix,
  outside: table.outside.replace(/^( *)(?=\w)/gm, `$1${start}`),
});
const thinker = within('thinker.', {
  prefix,
  outside,
  layer: `${norms}${attention}${headNorms}`,
});
const thinkerModel: Partial<Decoder> = {
  embedding: 'thinker.model.embed_tokens.weight',
  prefix: 'thinker.model.layers.',
  headName: 'thinker.lm_head.weight',
  norms: { final: 'thinker.model.norm' },
};
const sections = { rope_scaling: { rope_type: 'default', mrope_section: [3, 3, 2] } };
const towers: readonly DecoderCase[] = [
  {
    name: 'Kimi K2.5',
    hugging: 'KimiK25ForConditionalGeneration',
    architecture: 'deepseek2',
    ...latentCase,
    layers: 3,
    config: {
      text_config: { architectures: ['DeepseekV3ForCausalLM'], ...latentCase.config, scoring_func: 'sigmoid' },
    },
    keys: changed(
      latentCase.keys.filter(([name]) => name !== 'nextn_predict_layers'),
      ['block_count', 3],
    ),
    table: within('language_model.', latentModel('', false).table),
    model: {
      ...latentModel('', false).model,
      embedding: 'language_model.model.embed_tokens.weight',
      prefix: 'language_model.model.layers.',
      headName: 'language_model.lm_head.weight',
      norms: { final: 'language_model.model.norm' },
    },
  },
  {
    name: 'Qwen3-ASR',
    hugging: 'Qwen3ASRForConditionalGeneration',
    architecture: 'qwen3vl',
    config: { thinker_config: { text_config: { head_dim: 16, ...sections } } },
    keys: [...common(heads), ['rope.dimension_sections', [3, 3, 2, 0]], ['n_deepstack_layers', 0]],
    table: { ...thinker, layer: thinker.layer + gated },
    model: thinkerModel,
  },
  {
    name: 'Qwen3-Omni',
    hugging: 'Qwen3OmniMoeForConditionalGeneration',
    architecture: 'qwen3vlmoe',
    config: {
      thinker_config: {
        text_config: {
          head_dim: 16,
          num_experts: 5,
          num_experts_per_tok: 2,
          moe_intermediate_size: 48,
          norm_topk_prob: true,
          ...sections,
        },
      },
    },
    keys: [
      ...withExperts(common(heads), ...five),
      ['rope.dimension_sections', [3, 3, 2, 0]],
      ['n_deepstack_layers', 0],
      ['expert_feed_forward_length', 48],
    ],
    table: {
      ...thinker,
      layer: `${thinker.layer}${separate}
        mlp.gate.weight  ffn_gate_inp.weight  5x64`,
    },
    model: { ...thinkerModel, usedExperts: 2, experts },
  },
];

const cases = [...latentCases, ...others, ...towers];
testDecoders(cases);

testRefusals(cases, [
  ['GLM-5', { index_topk: undefined, index_head_dim: 0 }, /index_head_dim has to be/, 'BAD_FILE'],
  ['GLM-5', { indexer_types: ['full'] }, /indexer_types has to name/, 'BAD_FILE'],
  ['GLM-5', { q_lora_rank: null }, /q_lora_rank/],
  ['MiniMax M2', { scoring_func: 'softmax' }, /scoring_func is "softmax"/],
  ['LFM2 with experts', { norm_topk_prob: false }, /norm_topk_prob is false/],
  ['Ling 2', { moe_shared_expert_intermediate_size: 50 }, /has to be a multiple of 48/],
  ['MiniCPM', { rope_scaling: { rope_type: 'yarn', factor: 2 } }, /rope_type is "yarn"/],
  [
    'MiniCPM',
    { rope_scaling: { rope_type: 'longrope', original_max_position_embeddings: 64 } },
    /original_max_position_embeddings is 64/,
  ],
]);
