/**
 * LFM2, dense and with experts.
 * Reference: github.com/ggml-org/llama.cpp, gguf-py/gguf/tensor_mapping.py at 0024aa7; conversion/lfm2.py of Tippach/Franken-Llama 1774451. Tests
 * compare with llama.cpp v0.5.0.
 */
import {
  type Details,
  type Draft,
  decoderDefaults,
  decoderSettings,
  layerKinds,
  type ModelClass,
  readExperts,
} from '../huggingface/reading.js';
import type { Row } from '../huggingface/tensors.js';
import { attention, embedding, head, onlyIn } from './rows.js';

const lfmAttention: readonly Row[] = [
  ...attention.slice(0, 3),
  { from: 'self_attn.out_proj', to: 'attn_output', shape: ['hidden', 'queries'] },
  { from: 'self_attn.q_layernorm', to: 'attn_q_norm', shape: ['head'] },
  { from: 'self_attn.k_layernorm', to: 'attn_k_norm', shape: ['head'] },
];

/** Keys and the table of layers with attention or a short convolution. @param rest rows of the feed-forward part */
function readConvolved(draft: Draft, rest: readonly Row[]) {
  const { config, sizes } = draft;
  const isConvolution = layerKinds(draft, ['conv', 'full_attention']);
  const convolves = (layer: number) => isConvolution[layer] === true;
  const convolved = config.whole('conv_L_cache');
  const convolution: readonly Row[] = [
    { from: 'conv.conv', to: 'shortconv.conv', shape: ['hidden', 1, convolved], as: ['hidden', convolved] },
    { from: 'conv.in_proj', to: 'shortconv.in_proj', shape: ['3 hidden', 'hidden'] },
    { from: 'conv.out_proj', to: 'shortconv.out_proj', shape: ['hidden', 'hidden'] },
  ];
  return {
    keys: {
      'attention.head_count_kv': isConvolution.map((one) => (one ? 0 : sizes.keyHeads)),
      vocab_size: sizes.vocabulary,
      'shortconv.l_cache': convolved,
    },
    table: {
      // llama.cpp has the name of the embedding's norm for the last one.
      outside: [embedding, { from: 'model.embedding_norm', to: 'token_embd_norm', shape: ['hidden'] }, head],
      layer: [
        { from: 'operator_norm', to: 'attn_norm', shape: ['hidden'] },
        { from: 'ffn_norm', to: 'ffn_norm', shape: ['hidden'] },
        ...onlyIn(lfmAttention, (layer) => !convolves(layer)),
        ...onlyIn(convolution, convolves),
        ...rest,
      ],
    },
  } as const satisfies Details;
}

const dense: readonly Row[] = [
  { from: 'feed_forward.w1', to: 'ffn_gate', shape: ['feedForward', 'hidden'] },
  { from: 'feed_forward.w3', to: 'ffn_up', shape: ['feedForward', 'hidden'] },
  { from: 'feed_forward.w2', to: 'ffn_down', shape: ['hidden', 'feedForward'] },
];

const lfmDefaults = decoderDefaults([2560, 12288, 32], [32, 8], 128000, {
  norm_eps: 1e-5,
  rope_theta: 1e6,
  conv_L_cache: 3,
  tie_word_embeddings: true,
});

/** LFM2, whose layers have attention or a short convolution. */
const lfm2: ModelClass = {
  architecture: 'lfm2',
  classes: { Lfm2ForCausalLM: lfmDefaults, LFM2ForCausalLM: lfmDefaults },
  preTokenizers: { 'llama-bpe': 'lfm2' },
  only: { ...decoderSettings, conv_bias: [false] },
  decoder({ config }) {
    const stated = config.maybeWhole('block_ff_dim') ?? config.whole('intermediate_size');
    if (config.maybeFlag('block_auto_adjust_ff_dim') === false) return { rmsEpsilon: 'norm_eps', feedForward: stated };
    // The feed-forward part has two thirds of the rows that the file states, rounded up to a multiple.
    const unit = config.whole('block_multiple_of', 256);
    const rows = Math.floor(Math.floor((2 * stated) / 3) * config.positive('block_ffn_dim_multiplier', 1));
    return { rmsEpsilon: 'norm_eps', feedForward: unit * Math.ceil(rows / unit) };
  },
  scaling: ['linear', 'yarn'],
  details: (draft) => readConvolved(draft, dense),
  mlx: { lfm2: { head: 'tied' } },
};

const lfm2moe: ModelClass = {
  ...lfm2,
  architecture: 'lfm2moe',
  classes: {
    Lfm2MoeForCausalLM: decoderDefaults([2048, 7168, 32], [32, 8], 128000, {
      norm_eps: 1e-5,
      rope_theta: 1e6,
      conv_L_cache: 3,
      tie_word_embeddings: true,
      moe_intermediate_size: 1792,
      num_dense_layers: 2,
      num_experts: 32,
      num_experts_per_tok: 4,
    }),
  },
  only: { ...decoderSettings, conv_bias: [false], norm_topk_prob: [true], routed_scaling_factor: [1] },
  decoder: { rmsEpsilon: 'norm_eps' },
  details(draft) {
    const { config, names } = draft;
    const { keys, sizes } = readExperts(config, 'num_experts', { rows: 'moe_intermediate_size' });
    const first = config.whole('num_dense_layers', 0, 0);
    const corrects = names.some((name) => name.endsWith('.expert_bias'));
    const experts: Row[] = [
      { from: 'feed_forward.gate', to: 'ffn_gate_inp', shape: ['experts', 'hidden'] },
      { from: 'feed_forward.experts.#.w1', to: 'ffn_gate_exps', shape: ['expertFeedForward', 'hidden'] },
      { from: 'feed_forward.experts.#.w3', to: 'ffn_up_exps', shape: ['expertFeedForward', 'hidden'] },
      { from: 'feed_forward.experts.#.w2', to: 'ffn_down_exps', shape: ['hidden', 'expertFeedForward'] },
    ];
    const bias: Row = { from: 'feed_forward.expert_bias', to: 'exp_probs_b', whole: '.bias', shape: ['experts'] };
    const read = readConvolved(draft, [
      ...onlyIn(dense, (layer) => layer < first),
      ...onlyIn(corrects ? [...experts, bias] : experts, (layer) => layer >= first),
    ]);
    // A sigmoid makes the shares.
    return { ...read, keys: { ...read.keys, ...keys, leading_dense_block_count: first, expert_gating_func: 2 }, sizes };
  },
  mlx: {},
};

export const lfmFamily: readonly ModelClass[] = [lfm2, lfm2moe];
