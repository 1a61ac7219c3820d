/** Ling 2 and Ring 2. Reference: conversion/bailingmoe.py of Tippach/Franken-Llama 1774451. Tests compare with llama.cpp v0.5.0. */
import { show } from '../../core/show.js';
import { unsupportedConfig } from '../huggingface/errors.js';
import { decoderDefaults, type ModelClass, readExperts, rotatedOf } from '../huggingface/reading.js';
import type { Row } from '../huggingface/tensors.js';
import { nextRows } from './glm.js';
import { denseThenExperts, finalNorm, head, norms, onlyIn, qwenExperts, sharedExperts } from './rows.js';

const attention: readonly Row[] = [
  { from: 'attention.query_key_value', to: 'attn_qkv', shape: ['together', 'hidden'] },
  { from: 'attention.dense', to: 'attn_output', shape: ['hidden', 'queries'] },
  { from: 'attention.query_layernorm', to: 'attn_q_norm', shape: ['head'] },
  { from: 'attention.key_layernorm', to: 'attn_k_norm', shape: ['head'] },
];

export const bailingMoe2: ModelClass = {
  architecture: 'bailingmoe2',
  classes: {
    BailingMoeV2ForCausalLM: decoderDefaults([2048, 5120, 20], [16, 4, 128], 32768, {
      rope_theta: 6e5,
      partial_rotary_factor: 0.5,
      num_experts: 256,
      num_experts_per_tok: 8,
      num_shared_experts: 1,
      moe_intermediate_size: 512,
      first_k_dense_replace: 1,
      n_group: 8,
      topk_group: 4,
      routed_scaling_factor: 2.5,
      norm_topk_prob: true,
      score_function: 'sigmoid',
    }),
  },
  preTokenizers: { bailingmoe: 'bailingmoe2' },
  only: {
    hidden_act: ['silu'],
    use_qk_norm: [true],
    use_qkv_bias: [false],
    use_bias: [false],
    score_function: ['sigmoid'],
  },
  scaling: ['linear', 'yarn'],
  details(draft) {
    const { config, sizes } = draft;
    const { keys, sizes: counts } = readExperts(config, 'num_experts', { rows: 'moe_intermediate_size' });
    const { expertFeedForward = 0 } = counts;
    const shared = config.whole('num_shared_experts');
    const sharedFeedForward = config.whole('moe_shared_expert_intermediate_size', expertFeedForward * shared);
    if (sharedFeedForward % expertFeedForward !== 0)
      unsupportedConfig(
        `moe_shared_expert_intermediate_size is ${show(sharedFeedForward)}; it has to be a multiple of ${expertFeedForward}`,
      );
    const dense = config.whole('first_k_dense_replace', 0, 0);
    const next = config.maybeWhole('num_nextn_predict_layers', 0);
    const layers = sizes.layers + (next ?? 0);
    return {
      keys: {
        ...keys,
        block_count: layers,
        expert_group_count: config.whole('n_group'),
        expert_group_used_count: config.whole('topk_group'),
        // A sigmoid makes the shares.
        expert_gating_func: 2,
        'rope.dimension_count': rotatedOf(draft, 0.5),
        leading_dense_block_count: dense,
        vocab_size: sizes.vocabulary,
        expert_shared_feed_forward_length: sharedFeedForward,
        expert_weights_scale: config.positive('routed_scaling_factor'),
        expert_shared_count: shared,
        expert_weights_norm: config.maybeFlag('norm_topk_prob') ?? true,
        nextn_predict_layers: next,
      },
      sizes: { ...counts, layers, sharedFeedForward },
      table: {
        outside: [
          { from: 'model.word_embeddings', to: 'token_embd', shape: ['vocabulary', 'hidden'] },
          ...[finalNorm, head],
        ],
        layer: [
          ...[...norms, ...attention],
          ...denseThenExperts(dense, [
            ...qwenExperts(false),
            { from: 'mlp.gate.expert_bias', to: 'exp_probs_b', whole: '.bias', shape: ['experts'] },
            ...sharedExperts('mlp.shared_experts'),
          ]),
          ...onlyIn(
            [...nextRows, { from: 'final_layernorm', to: 'layer_output_norm', shape: ['hidden'], optional: true }],
            (layer) => layer >= sizes.layers,
          ),
        ],
      },
    };
  },
};
