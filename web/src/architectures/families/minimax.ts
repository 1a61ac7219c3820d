/** MiniMax M2. Reference: github.com/ggml-org/llama.cpp, conversion/minimax.py at 7bca1fd. Tests compare with llama.cpp v0.5.0. */
import { decoderDefaults, type ModelClass, readExperts, siluSettings } from '../huggingface/reading.js';
import type { Row } from '../huggingface/tensors.js';
import { attention, norms } from './rows.js';

/** Norms of all queries and all keys together. */
const wideNorms: readonly Row[] = [
  { from: 'self_attn.q_norm', to: 'attn_q_norm', shape: ['queries'] },
  { from: 'self_attn.k_norm', to: 'attn_k_norm', shape: ['keys'] },
];

export const minimaxM2: ModelClass = {
  architecture: 'minimax-m2',
  classes: {
    MiniMaxM2ForCausalLM: decoderDefaults([3072, 1536, 62], [48, 8, 128], 196608, {
      rope_theta: 5e6,
      rotary_dim: 64,
      num_local_experts: 256,
      num_experts_per_tok: 8,
      scoring_func: 'sigmoid',
    }),
  },
  preTokenizers: { 'gpt-4o': 'minimax-m2' },
  only: {
    ...siluSettings,
    scoring_func: ['sigmoid'],
    use_qk_norm: [true],
    attention_bias: [false],
    shared_intermediate_size: [0],
  },
  scaling: ['linear', 'yarn'],
  details({ config, names }) {
    const { keys, sizes } = readExperts(config, 'num_local_experts', { rows: 'intermediate_size' });
    const gate = 'block_sparse_moe.';
    const bias: Row = { from: `${gate}e_score_correction_bias`, to: 'exp_probs_b', whole: '.bias', shape: ['experts'] };
    return {
      // A sigmoid makes the shares.
      keys: { ...keys, expert_gating_func: 2, 'rope.dimension_count': config.whole('rotary_dim') },
      sizes,
      table: {
        layer: [
          ...[...norms, ...attention, ...wideNorms],
          { from: `${gate}gate`, to: 'ffn_gate_inp', shape: ['experts', 'hidden'] },
          ...(names.some((name) => name.endsWith('.e_score_correction_bias')) ? [bias] : []),
          { from: `${gate}experts.#.w1`, to: 'ffn_gate_exps', shape: ['expertFeedForward', 'hidden'] },
          { from: `${gate}experts.#.w2`, to: 'ffn_down_exps', shape: ['hidden', 'expertFeedForward'] },
          { from: `${gate}experts.#.w3`, to: 'ffn_up_exps', shape: ['expertFeedForward', 'hidden'] },
        ],
      },
    };
  },
};
