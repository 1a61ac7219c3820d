/** LFM2. Reference: github.com/ggml-org/llama.cpp, gguf-py/gguf/tensor_mapping.py at 0024aa7. Tests compare with llama.cpp v0.5.0. */
import { decoderDefaults, decoderSettings, layerKinds, type ModelClass } from '../huggingface/reading.js';
import type { Row } from '../huggingface/tensors.js';
import { attention, embedding, head, onlyIn } from './rows.js';

const lfmAttention: readonly Row[] = [
  ...attention.slice(0, 3),
  { from: 'self_attn.out_proj', to: 'attn_output', shape: ['hidden', 'queries'] },
  { from: 'self_attn.q_layernorm', to: 'attn_q_norm', shape: ['head'] },
  { from: 'self_attn.k_layernorm', to: 'attn_k_norm', shape: ['head'] },
];

/** LFM2, whose layers have attention or a short convolution. */
export const lfm2: ModelClass = {
  architecture: 'lfm2',
  classes: {
    Lfm2ForCausalLM: decoderDefaults([2560, 12288, 32], [32, 8], 128000, {
      norm_eps: 1e-5,
      rope_theta: 1e6,
      conv_L_cache: 3,
      tie_word_embeddings: true,
    }),
  },
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
  details(draft) {
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
          { from: 'feed_forward.w1', to: 'ffn_gate', shape: ['feedForward', 'hidden'] },
          { from: 'feed_forward.w3', to: 'ffn_up', shape: ['feedForward', 'hidden'] },
          { from: 'feed_forward.w2', to: 'ffn_down', shape: ['hidden', 'feedForward'] },
        ],
      },
    };
  },
  mlx: { lfm2: { head: 'tied' } },
};
