/**
 * GPT-2, GPT-NeoX, Pythia, Falcon, StarCoder 2, StableLM, and gpt-oss: decoders in the names of GPT, or with its LayerNorms.
 * Reference: github.com/ggml-org/llama.cpp, conversion/ gpt2.py and falcon.py at 5535795, gptneox.py 2eb57bc, starcoder.py 5535795, gpt_oss.py
 * 2984e6e; stablelm.py of Tippach/Franken-Llama 1774451. Tests compare with llama.cpp v0.5.0.
 */
import { badConfig, unsupportedConfig } from '../huggingface/errors.js';
import {
  allBut,
  checkWindow,
  decoderDefaults,
  decoderSettings,
  type ModelClass,
  readExperts,
  rotatedOf,
  siluSettings,
  vocabularyOf,
} from '../huggingface/reading.js';
import { setting } from '../huggingface/rope.js';
import type { Row, Sizes, ViewOf } from '../huggingface/tensors.js';
import {
  attention,
  embedding,
  feedForward,
  finalNorm,
  head,
  norms,
  normsBetween,
  regrouped,
  turnedExperts,
  viewFrom,
  withBias,
} from './rows.js';

// ------------------------------------------------------------------------------------------------------------------------- GPT-2

/** A matrix that is stored with its inputs as rows. @param times of the outputs */
function turnedRow(
  from: string,
  to: string,
  [ins, outs]: readonly ['hidden' | 'feedForward', 'hidden' | 'feedForward'],
  times = 1,
): Row {
  const view: ViewOf = (sizes: Sizes) => viewFrom(0, [times * sizes[outs], 1], [sizes[ins], times * sizes[outs]]);
  const outputs = times === 3 ? (`3 ${outs}` as const) : outs;
  return { from, to, shape: [ins, outputs], as: [outputs, ins], view, bias: 'always' };
}

const gpt2: ModelClass = {
  architecture: 'gpt2',
  classes: {
    GPT2LMHeadModel: { n_embd: 768, n_layer: 12, n_head: 12, n_positions: 1024, layer_norm_epsilon: 1e-5 },
  },
  only: {
    activation_function: ['gelu_new', 'gelu_pytorch_tanh', 'gelu_fast'],
    scale_attn_weights: [true],
    scale_attn_by_inverse_layer_idx: [false],
    add_cross_attention: [false],
  },
  numbers(read) {
    const { config } = read;
    const [layers, hidden, heads] = [config.whole('n_layer'), config.whole('n_embd'), config.whole('n_head')];
    if (hidden % heads !== 0) badConfig(`n_embd ${hidden} is not a multiple of n_head ${heads}`);
    const positions = config.whole('n_positions');
    const context = config.whole('n_ctx', positions);
    if (context !== positions) badConfig(`n_ctx is ${context} and n_positions is ${positions}`);
    const inner = 4 * hidden;
    config.only('n_inner', inner);
    return {
      keys: {
        block_count: layers,
        context_length: context,
        embedding_length: hidden,
        feed_forward_length: inner,
        'attention.head_count': heads,
        'attention.layer_norm_epsilon': config.positive('layer_norm_epsilon'),
      },
      sizes: {
        ...{ layers, hidden, heads, keyHeads: heads, head: hidden / heads, feedForward: inner, positions },
        ...{ vocabulary: vocabularyOf(read), queries: hidden, keys: hidden, together: 3 * hidden },
      },
    };
  },
  ties: false,
  table: {
    layerPrefix: 'h.',
    outside: [
      { from: 'wte', to: 'token_embd', shape: ['vocabulary', 'hidden'] },
      { from: 'wpe', to: 'position_embd', shape: ['positions', 'hidden'] },
      { ...finalNorm, from: 'ln_f', bias: 'always' },
      head,
    ],
    layer: [
      { from: 'ln_1', to: 'attn_norm', shape: ['hidden'], bias: 'always' },
      { from: 'ln_2', to: 'ffn_norm', shape: ['hidden'], bias: 'always' },
      turnedRow('attn.c_attn', 'attn_qkv', ['hidden', 'hidden'], 3),
      turnedRow('attn.c_proj', 'attn_output', ['hidden', 'hidden']),
      turnedRow('mlp.c_fc', 'ffn_up', ['hidden', 'feedForward']),
      turnedRow('mlp.c_proj', 'ffn_down', ['feedForward', 'hidden']),
    ],
    // Masks of old files.
    rename: (name) => (/\.attn\.(bias|masked_bias)$/.test(name) ? undefined : name.replace(/^transformer\./, '')),
  },
};

// ------------------------------------------------------------------------------------------------- GPT-NeoX, Falcon, StarCoder 2

/** The feed-forward part of GPT-NeoX and Falcon. */
const denseFeedForward: readonly Row[] = [
  { from: 'mlp.dense_h_to_4h', to: 'ffn_up', shape: ['feedForward', 'hidden'] },
  { from: 'mlp.dense_4h_to_h', to: 'ffn_down', shape: ['hidden', 'feedForward'] },
];

/** GPT-NeoX and Pythia. */
const gptneox: ModelClass = {
  architecture: 'gptneox',
  traits: { pairs: 'halves', isCentered: true, isParallel: 'stated', gate: 'geluTanh' },
  classes: {
    GPTNeoXForCausalLM: decoderDefaults([6144, 24576, 44], [64], 2048, { layer_norm_eps: 1e-5, rotary_pct: 0.25 }),
  },
  preTokenizers: { 'gpt-2': 'olmo' },
  only: {
    hidden_act: ['gelu', 'gelu_new', 'gelu_fast', 'gelu_pytorch_tanh'],
    attention_bias: [true],
    rotary_emb_base: [10000],
  },
  decoder: { normEpsilon: 'layer_norm_eps', plainHeads: true, ownKeys: true },
  scaling: [],
  theta: 'usual',
  lacks: ['attention.head_count_kv'],
  ties: false,
  table: {
    layerPrefix: 'gpt_neox.layers.',
    outside: [
      { from: 'gpt_neox.embed_in', to: 'token_embd', shape: ['vocabulary', 'hidden'] },
      { from: 'gpt_neox.final_layer_norm', to: 'output_norm', shape: ['hidden'], bias: 'always' },
      { from: 'embed_out', to: 'output', shape: ['vocabulary', 'hidden'], optional: true },
    ],
    layer: withBias([
      ...norms,
      {
        from: 'attention.query_key_value',
        to: '',
        shape: ['together', 'hidden'],
        shares: [{ to: 'attn_qkv', shape: ['together', 'hidden'], windows: regrouped }],
      },
      { from: 'attention.dense', to: 'attn_output', shape: ['hidden', 'hidden'] },
      ...denseFeedForward,
    ]),
    // Masks of old files.
    rename: (name) => (/\.attention\.(rotary_emb|bias|masked_bias)/.test(name) ? undefined : name),
  },
  details({ config, rope, sizes }) {
    const share = setting(rope, 'partial_rotary_factor') ?? config.positive('rotary_pct');
    const dimensions = Math.floor(share * sizes.head);
    if (share > 1 || dimensions < 2 || dimensions % 2 !== 0)
      badConfig(`rotary_pct ${share} turns ${dimensions} elements of a head; they have to be pairs`);
    const parallel = config.maybeFlag('use_parallel_residual') ?? true;
    return { keys: { 'rope.dimension_count': dimensions, use_parallel_residual: parallel } };
  },
  mlx: {
    gpt_neox: {
      head: 'own',
      embedding: 'model.embed_in',
      output: 'model.embed_out',
      unused: /\.attention\.(masked_)?bias$/,
      rename: (name) => name.replace(/^gpt_neox\.layers\./, 'model.h.').replace(/^(gpt_neox\.)?(?!model\.)/, 'model.'),
    },
  },
};

const falconDefaults = { layer_norm_epsilon: 1e-5, max_position_embeddings: 2048, rope_theta: 10000 };

/**
 * Falcon in the names of transformers, and those of the first checkpoints (RefinedWeb). It has sizes of its own in each folder. The converter
 * takes a context of 2048 and a base of 10000; here they are those of the folder.
 */
const falcon: ModelClass = {
  architecture: 'falcon',
  traits: { pairs: 'halves', isCentered: true, isParallel: true, gate: 'geluTanh' },
  classes: { FalconForCausalLM: falconDefaults, RWForCausalLM: falconDefaults },
  only: {
    parallel_attn: [true],
    bias: [false],
    activation: ['gelu'],
    apply_residual_connection_post_layernorm: [false],
  },
  decoder({ config }) {
    if (config.maybeFlag('alibi') === true)
      unsupportedConfig('alibi is true; llama.cpp computes Falcon with a rotary embedding only');
    const heads = config.maybeWhole('num_attention_heads') ?? config.whole('n_head');
    const stated = config.maybeWhole('num_kv_heads') ?? config.maybeWhole('n_head_kv');
    // The first checkpoints say so by their type.
    const isNew = config.maybeFlag('new_decoder_architecture') ?? config.get('model_type') === 'RefinedWeb';
    const hidden = config.maybeWhole('hidden_size') ?? config.whole('n_embed');
    config.only('ffn_hidden_size', 4 * hidden);
    return {
      layers: config.maybeWhole('num_hidden_layers') ?? config.whole('n_layer'),
      hidden,
      heads,
      keyHeads: isNew ? (stated ?? heads) : config.maybeFlag('multi_query') === false ? heads : 1,
      feedForward: 4 * hidden,
      normEpsilon: 'layer_norm_epsilon',
      plainHeads: true,
    };
  },
  scaling: [],
  theta: 'other',
  details({ names, sizes }) {
    // The attention and the feed-forward part have a norm each, or one together.
    const hasTwoNorms = names.some((name) => name.endsWith('.ln_attn.weight'));
    const twoNorms: readonly Row[] = [
      { from: 'ln_mlp', to: 'attn_norm', shape: ['hidden'] },
      { from: 'ln_attn', to: 'attn_norm_2', shape: ['hidden'] },
    ];
    const products: Row = { from: 'self_attention.query_key_value', to: 'attn_qkv', shape: ['together', 'hidden'] };
    const shares = [{ to: 'attn_qkv', shape: ['together', 'hidden'], windows: regrouped }] as const;
    return {
      keys: { tensor_data_layout: 'jploski' },
      table: {
        layerPrefix: 'transformer.h.',
        outside: [
          { from: 'transformer.word_embeddings', to: 'token_embd', shape: ['vocabulary', 'hidden'] },
          { from: 'transformer.ln_f', to: 'output_norm', shape: ['hidden'], bias: 'always' },
          head,
        ],
        layer: [
          ...withBias(hasTwoNorms ? twoNorms : norms.slice(0, 1)),
          sizes.keyHeads > 1 ? { ...products, to: '', shares } : products,
          { from: 'self_attention.dense', to: 'attn_output', shape: ['hidden', 'hidden'] },
          ...denseFeedForward,
        ],
      },
    };
  },
};

const starcoder2: ModelClass = {
  architecture: 'starcoder2',
  traits: { pairs: 'halves', isCentered: true, gate: 'geluTanh' },
  classes: {
    Starcoder2ForCausalLM: decoderDefaults([3072, 12288, 30], [24, 2], 4096, {
      norm_epsilon: 1e-5,
      tie_word_embeddings: true,
    }),
  },
  preTokenizers: { smollm: 'starcoder' },
  only: { ...decoderSettings, hidden_act: ['gelu_pytorch_tanh'], use_bias: [true] },
  decoder: { normEpsilon: 'norm_epsilon', plainHeads: true },
  scaling: ['linear', 'yarn'],
  table: {
    outside: [embedding, { ...finalNorm, bias: 'always' }, head],
    layer: withBias([
      ...norms,
      ...attention,
      { from: 'mlp.c_fc', to: 'ffn_up', shape: ['feedForward', 'hidden'] },
      { from: 'mlp.c_proj', to: 'ffn_down', shape: ['hidden', 'feedForward'] },
    ]),
  },
  details(draft) {
    checkWindow(draft);
    return {};
  },
  mlx: { starcoder2: {} },
};

/** Norms of queries and keys of each head, a tensor each. */
const separateHeadNorms: readonly Row[] = [
  { from: 'self_attn.q_layernorm.norms.#', to: 'attn_q_norm', shape: ['head'], count: 'heads' },
  { from: 'self_attn.k_layernorm.norms.#', to: 'attn_k_norm', shape: ['head'], count: 'keyHeads' },
];

const stablelm: ModelClass = {
  architecture: 'stablelm',
  traits: { pairs: 'halves', isCentered: true, isParallel: 'norm' },
  classes: {
    StableLmForCausalLM: decoderDefaults([2560, 6912, 32], [32, 32], 4096, { layer_norm_eps: 1e-5 }),
  },
  preTokenizers: { qwen2: 'stablelm2' },
  only: { hidden_act: ['silu'] },
  decoder: { normEpsilon: 'layer_norm_eps', plainHeads: true },
  scaling: [],
  theta: 'usual',
  details(draft) {
    const { config } = draft;
    // Layers have one norm for their attention and their feed-forward part, or one each.
    const parallel = config.maybeFlag('use_parallel_residual') ?? false;
    const products = attention.slice(0, 3);
    return {
      keys: { 'rope.dimension_count': rotatedOf(draft, 0.25), use_parallel_residual: parallel },
      table: {
        outside: [embedding, { ...finalNorm, bias: 'always' }, head],
        layer: [
          ...withBias(parallel ? norms.slice(0, 1) : norms),
          ...(config.maybeFlag('use_qkv_bias') === true ? withBias(products) : products),
          ...attention.slice(3),
          ...(config.maybeFlag('qk_layernorm') === true ? separateHeadNorms : []),
          ...feedForward,
        ],
      },
    };
  },
  mlx: { stablelm: { head: 'own' } },
};

// ----------------------------------------------------------------------------------------------------------------------- gpt-oss

/** Every second row or bias of each expert. @param width elements of a row, 1 for biases */
const everySecond =
  (half: 0 | 1, kind: 'rows' | 'biases'): ViewOf =>
  ({ experts = 0, hidden, expertFeedForward: outputs = 0 }) => {
    const width = kind === 'rows' ? hidden : 1;
    const rows = [
      [experts, 2 * outputs * width],
      [outputs, 2 * width],
    ] as const;
    return viewFrom(half * width, ...rows, ...(kind === 'rows' ? ([[hidden, 1]] as const) : []));
  };

const halves = [0, 1] as const;
const gateOrUp = (half: 0 | 1) => (half === 0 ? 'ffn_gate_exps' : 'ffn_up_exps');

/** Experts in MXFP4, with their outputs as rows. */
const codedExperts: readonly Row[] = [
  {
    from: 'mlp.experts.gate_up_proj',
    to: '',
    whole: '.weight',
    shape: ['experts', '2 expertFeedForward', 'hidden'],
    shares: halves.map((half) => ({
      to: gateOrUp(half),
      shape: ['experts', 'expertFeedForward', 'hidden'],
      view: everySecond(half, 'rows'),
    })),
  },
  {
    from: 'mlp.experts.down_proj',
    to: 'ffn_down_exps',
    whole: '.weight',
    shape: ['experts', 'hidden', 'expertFeedForward'],
  },
];

/** gpt-oss, whose gates and ups take turns. */
const gptOss: ModelClass = {
  mlx: { gpt_oss: { head: 'own', experts: { block: 'mlp', stack: 'experts' }, precise: /\.router$/ } },
  architecture: 'gpt-oss',
  traits: { pairs: 'halves', normsBetween: true, gate: 'boundSilu', slides: allBut(2) },
  classes: {
    GptOssForCausalLM: decoderDefaults([2880, 2880, 36], [64, 8, 64], 131072, {
      rms_norm_eps: 1e-5,
      rope_theta: 150000,
      sliding_window: 128,
      num_local_experts: 128,
      num_experts_per_tok: 4,
    }),
  },
  only: { ...siluSettings, attention_bias: [true], swiglu_limit: [7] },
  scaling: ['yarn'],
  slides: allBut(2),
  details({ config, isCoded }) {
    const { keys, sizes: counts } = readExperts(config, 'num_local_experts', { rows: 'intermediate_size' });
    return {
      keys: { ...keys, 'attention.sliding_window': config.whole('sliding_window') },
      sizes: counts,
      table: {
        layer: [
          ...normsBetween,
          ...withBias(attention),
          { from: 'self_attn.sinks', to: 'attn_sinks', whole: '.weight', shape: ['heads'] },
          { from: 'mlp.router', to: 'ffn_gate_inp', shape: ['experts', 'hidden'], bias: 'always' },
          ...(isCoded ? codedExperts : turnedExperts('mlp.experts', 'turns')),
          {
            from: 'mlp.experts.gate_up_proj_bias',
            to: '',
            whole: '.bias',
            shape: ['experts', '2 expertFeedForward'],
            shares: halves.map((half) => ({
              to: gateOrUp(half),
              shape: ['experts', 'expertFeedForward'],
              view: everySecond(half, 'biases'),
            })),
          },
          { from: 'mlp.experts.down_proj_bias', to: 'ffn_down_exps', whole: '.bias', shape: ['experts', 'hidden'] },
        ],
      },
    };
  },
};

export const gptFamily: readonly ModelClass[] = [gpt2, gptneox, falcon, starcoder2, stablelm, gptOss];
