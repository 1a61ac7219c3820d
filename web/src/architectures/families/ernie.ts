/**
 * Ernie 4.5, dense and with experts.
 * Reference: github.com/ggml-org/llama.cpp, conversion/ernie.py at 051139f. Tests compare with llama.cpp v0.5.0.
 */
import { unsupportedConfig } from '../huggingface/errors.js';
import { decoderDefaults, type ModelClass, readExperts, siluSettings } from '../huggingface/reading.js';
import type { Row } from '../huggingface/tensors.js';
import { attention, denseThenExperts, feedForward, norms, qwenExperts, sharedExperts, withBias } from './rows.js';

/** The attention's matrices in one, and gate and up in another, as Paddle writes them. */
const joinedRows: readonly Row[] = [
  {
    from: 'self_attn.qkv_proj',
    to: '',
    shape: ['together', 'hidden'],
    shares: [
      { to: 'attn_q', shape: ['queries', 'hidden'], windows: ({ queries }) => [[0, queries]] },
      { to: 'attn_k', shape: ['keys', 'hidden'], windows: ({ queries, keys }) => [[queries, keys]] },
      { to: 'attn_v', shape: ['keys', 'hidden'], windows: ({ queries, keys }) => [[queries + keys, keys]] },
    ],
  },
  {
    from: 'mlp.up_gate_proj',
    to: '',
    shape: ['2 feedForward', 'hidden'],
    shares: [
      { to: 'ffn_gate', shape: ['feedForward', 'hidden'], windows: ({ feedForward: rows }) => [[0, rows]] },
      { to: 'ffn_up', shape: ['feedForward', 'hidden'], windows: ({ feedForward: rows }) => [[rows, rows]] },
    ],
  },
];

const ernieMore = { rms_norm_eps: 1e-5, rope_theta: 5e5, tie_word_embeddings: true };
const ernieDefaults = decoderDefaults([1024, 3072, 18], [16, 2, 128], 131072, ernieMore);

const ernie: ModelClass = {
  architecture: 'ernie4_5',
  traits: { pairs: 'neighbors' },
  classes: { Ernie4_5ForCausalLM: ernieDefaults, Ernie4_5_ForCausalLM: ernieDefaults },
  only: siluSettings,
  scaling: ['linear', 'yarn'],
  details: ({ names }) => ({
    table: {
      layer: names.some((name) => name.endsWith('.qkv_proj.weight'))
        ? [...norms, ...joinedRows, ...attention.slice(3), ...feedForward.slice(2)]
        : [...norms, ...withBias([...attention, ...feedForward], 'optional')],
      rename: (name) => name.replace('ernie.', 'model.'),
    },
  }),
  mlx: { ernie4_5: {} },
};

const ernieMoe: ModelClass = {
  architecture: 'ernie4_5-moe',
  traits: { pairs: 'neighbors' },
  classes: {
    Ernie4_5_MoeForCausalLM: decoderDefaults([2560, 12288, 28], [20, 4], 131072, {
      ...ernieMore,
      moe_intermediate_size: 1536,
      moe_num_experts: 64,
      moe_k: 6,
      moe_num_shared_experts: 2,
      moe_layer_start_index: 1,
    }),
  },
  only: { ...siluSettings, use_bias: [false], moe_layer_interval: [1] },
  scaling: ['linear', 'yarn'],
  details({ config, sizes }) {
    const names = { used: 'moe_k', rows: 'moe_intermediate_size' };
    const { keys, sizes: counts } = readExperts(config, 'moe_num_experts', names);
    const { expertFeedForward = 0 } = counts;
    const shared = config.maybeWhole('moe_num_shared_experts', 0) ?? 0;
    const dense = config.maybeWhole('moe_layer_start_index', 0) ?? 0;
    // The converter takes the shared experts for this long, whatever their number.
    const sharedFeedForward = Math.floor(sizes.feedForward / sizes.keyHeads);
    if (shared > 0 && sharedFeedForward !== shared * expertFeedForward)
      unsupportedConfig(
        `${shared} shared experts have ${shared * expertFeedForward} rows; llama.cpp's converter writes ` +
          `intermediate_size / num_key_value_heads, which is ${sharedFeedForward}`,
      );
    const end = config.maybeWhole('moe_layer_end_index', -1);
    if (end !== undefined && end !== -1 && end !== sizes.layers - 1)
      unsupportedConfig(`moe_layer_end_index is ${end}; llama.cpp computes experts up to the last layer`);
    return {
      keys: {
        ...keys,
        interleave_moe_layer_step: 1,
        leading_dense_block_count: dense,
        expert_shared_count: shared,
        expert_shared_feed_forward_length: shared > 0 ? sharedFeedForward : undefined,
      },
      sizes: { ...counts, sharedFeedForward },
      table: {
        layer: [
          ...[...norms, ...attention],
          ...denseThenExperts(dense, [
            ...qwenExperts(false),
            {
              from: 'mlp.moe_statics.e_score_correction_bias',
              to: 'exp_probs_b',
              whole: '.bias',
              shape: [1, 'experts'],
            },
            ...(shared > 0 ? sharedExperts('mlp.shared_experts') : []),
          ]),
        ],
        // Layers that predict further tokens are left out.
        rename: (name) => (/^model\.mtp_/.test(name) ? undefined : name),
      },
    };
  },
};

export const ernieFamily: readonly ModelClass[] = [ernie, ernieMoe];
