/** Kimi Linear. Reference: conversion/kimi_linear.py of Tippach/Franken-Llama 1774451. Tests compare with llama.cpp v0.5.0. */
import { show } from '../../core/show.js';
import { isCount } from '../../formats/files/json.js';
import { Config } from '../huggingface/config.js';
import { badConfig, unsupportedConfig } from '../huggingface/errors.js';
import { objectMember } from '../huggingface/json.js';
import { type Draft, decoderDefaults, type ModelClass, readExperts, siluSettings } from '../huggingface/reading.js';
import type { Row } from '../huggingface/tensors.js';
import { latentAttention } from './deepseek.js';
import { denseThenExperts, embedding, finalNorm, mixtralExperts, norms, onlyIn, sharedExperts } from './rows.js';

/** Sizes of linear attention, and the layers that have attention over all tokens instead. */
interface Linear {
  readonly head: number;
  readonly convolved: number;
  readonly full: readonly boolean[];
}

function readLinear({ config, sizes: { heads, layers } }: Draft): Linear {
  const name = 'linear_attn_config';
  const settings = objectMember({ [name]: config.get(name) }, name) ?? badConfig(`${name} has to be an object`);
  const own = new Config(settings, undefined, undefined, name);
  own.only('num_heads', heads);
  // Layers are counted from 1.
  const numbers = (key: string): ReadonlySet<number> => {
    const list = own.get(key);
    if (Array.isArray(list) && list.every((n) => isCount(n))) return new Set(list as number[]);
    return badConfig(`${name}.${key} has to be an array of numbers, got ${show(list)}`);
  };
  const [full, linear] = [numbers('full_attn_layers'), numbers('kda_layers')];
  const other = Array.from({ length: layers }, (_, i) => i + 1).find((layer) => full.has(layer) === linear.has(layer));
  if (other !== undefined)
    unsupportedConfig(
      `layer ${other} is in ${full.has(other) ? 'both' : 'neither'} of kda_layers and full_attn_layers`,
    );
  return {
    head: own.whole('head_dim'),
    convolved: own.whole('short_conv_kernel_size'),
    full: Array.from({ length: layers }, (_, i) => full.has(i + 1)),
  };
}

/** Linear attention with a decay for each channel (KDA). */
function linearRows(heads: number, { head, convolved }: Linear): Row[] {
  const all = heads * head;
  const each = ['q', 'k', 'v'] as const;
  return [
    ...each.map((part): Row => ({ from: `self_attn.${part}_proj`, to: `attn_${part}`, shape: [all, 'hidden'] })),
    ...each.map(
      (part): Row => ({
        from: `self_attn.${part}_conv1d`,
        to: `ssm_conv1d_${part}`,
        shape: [all, 1, convolved],
        as: [1, all, 1, convolved],
      }),
    ),
    { from: 'self_attn.A_log', to: 'ssm_a', whole: '', shape: [1, 1, heads, 1], negativeExp: true },
    { from: 'self_attn.dt_bias', to: 'ssm_dt', whole: '.bias', shape: [all] },
    { from: 'self_attn.b_proj', to: 'ssm_beta', shape: [heads, 'hidden'] },
    { from: 'self_attn.f_a_proj', to: 'ssm_f_a', shape: [head, 'hidden'] },
    { from: 'self_attn.f_b_proj', to: 'ssm_f_b', shape: [all, head] },
    { from: 'self_attn.g_a_proj', to: 'ssm_g_a', shape: [head, 'hidden'] },
    { from: 'self_attn.g_b_proj', to: 'ssm_g_b', shape: [all, head] },
    { from: 'self_attn.o_norm', to: 'ssm_norm', shape: [head] },
    { from: 'self_attn.o_proj', to: 'attn_output', shape: ['hidden', all] },
  ];
}

const correction: Row = {
  from: 'block_sparse_moe.gate.e_score_correction_bias',
  to: 'exp_probs_b',
  whole: '.bias',
  shape: ['experts'],
};

export const kimiLinear: ModelClass = {
  architecture: 'kimi-linear',
  classes: {
    KimiLinearForCausalLM: decoderDefaults([2304, 9216, 27], [32, 32], 1048576, {
      rms_norm_eps: 1e-5,
      moe_router_activation_func: 'sigmoid',
      moe_renormalize: true,
      num_shared_experts: 1,
      first_k_dense_replace: 1,
    }),
  },
  only: {
    ...siluSettings,
    q_lora_rank: [null],
    mla_use_nope: [true],
    moe_router_activation_func: ['sigmoid'],
    moe_renormalize: [true],
    moe_layer_freq: [1],
    num_expert_group: [1],
    topk_group: [1],
    num_nextn_predict_layers: [0],
    // llama.cpp reads the head as a tensor of its own.
    tie_word_embeddings: [false],
  },
  decoder: ({ config }) => {
    const context =
      config.stated('max_position_embeddings') === undefined ? config.maybeWhole('model_max_length') : undefined;
    return context === undefined ? {} : { context };
  },
  scaling: [],
  details(draft) {
    const { config, sizes } = draft;
    const { heads } = sizes;
    const linear = readLinear(draft);
    config.only('num_key_value_heads', heads);
    const latent = {
      queryRank: undefined,
      rank: config.whole('kv_lora_rank'),
      plain: config.whole('qk_nope_head_dim'),
      rotated: config.whole('qk_rope_head_dim'),
      value: config.whole('v_head_dim'),
    };
    const { keys, sizes: counts } = readExperts(config, 'num_experts', {
      used: 'num_experts_per_token',
      rows: 'moe_intermediate_size',
    });
    const [dense, shared] = [config.whole('first_k_dense_replace', 0, 0), config.whole('num_shared_experts')];
    const isFull = (layer: number) => linear.full[layer] === true;
    return {
      keys: {
        ...keys,
        vocab_size: sizes.vocabulary,
        // Layers of linear attention have no cache of keys.
        'attention.head_count_kv': linear.full.map((full) => (full ? 1 : 0)),
        'ssm.conv_kernel': linear.convolved,
        'kda.head_dim': linear.head,
        'attention.kv_lora_rank': latent.rank,
        'rope.dimension_count': latent.rotated,
        'attention.key_length': latent.rank + latent.rotated,
        'attention.key_length_mla': latent.plain + latent.rotated,
        'attention.value_length_mla': latent.value,
        expert_gating_func: 2,
        expert_group_used_count: config.maybeWhole('topk_group'),
        expert_shared_count: shared,
        expert_weights_scale: config.positive('routed_scaling_factor'),
        leading_dense_block_count: dense,
      },
      sizes: { ...counts, sharedFeedForward: shared * (counts.expertFeedForward ?? 0) },
      table: {
        outside: [embedding, finalNorm, { from: 'lm_head', to: 'output', shape: ['vocabulary', 'hidden'] }],
        layer: [
          ...norms,
          ...onlyIn(linearRows(heads, linear), (layer) => !isFull(layer)),
          ...onlyIn(latentAttention(heads, latent, false), isFull),
          ...denseThenExperts(dense, [
            ...mixtralExperts.map(
              (row): Row => ({
                ...row,
                shape: row.shape.map((size) => (size === 'feedForward' ? 'expertFeedForward' : size)),
              }),
            ),
            correction,
            ...sharedExperts('block_sparse_moe.shared_experts'),
          ]),
        ],
      },
    };
  },
};
