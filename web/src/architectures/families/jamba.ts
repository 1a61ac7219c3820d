/**
 * Jamba: layers of Mamba with norms of its steps and states, or of attention without positions, and experts in some of them.
 * Reference: conversion/jamba.py of Tippach/Franken-Llama 1774451. Tests compare with llama.cpp v0.5.0.
 */
import { unsupportedConfig } from '../huggingface/errors.js';
import { decoderDefaults, type ModelClass, readExperts, siluSettings } from '../huggingface/reading.js';
import type { Row } from '../huggingface/tensors.js';
import { attention, embedding, feedForward, finalNorm, head, onlyIn } from './rows.js';

export const jamba: ModelClass = {
  architecture: 'jamba',
  classes: {
    JambaForCausalLM: decoderDefaults([4096, 14336, 32], [32, 8], 262144, {
      attn_layer_offset: 4,
      attn_layer_period: 8,
      expert_layer_offset: 1,
      expert_layer_period: 2,
      num_experts: 16,
      num_experts_per_tok: 2,
      mamba_d_state: 16,
      mamba_d_conv: 4,
      mamba_expand: 2,
    }),
  },
  only: { ...siluSettings, mamba_conv_bias: [true], mamba_proj_bias: [false], sliding_window: [null] },
  decoder: { plainHeads: true },
  lacks: ['rope.freq_base'],
  details(draft) {
    const { config, sizes, names } = draft;
    const { layers, hidden, keyHeads } = sizes;
    const inner = config.whole('mamba_expand') * hidden;
    if (inner !== 2 * hidden)
      unsupportedConfig(`mamba_expand is ${inner / hidden}; llama.cpp computes Jamba with 2 only`);
    const [state, convolved] = [config.whole('mamba_d_state'), config.whole('mamba_d_conv')];
    const rank = config.get('mamba_dt_rank');
    const steps = rank === undefined || rank === 'auto' ? Math.ceil(hidden / 16) : config.whole('mamba_dt_rank');
    const every = (name: string) => {
      const [offset, period] = [config.whole(`${name}_layer_offset`, 0, 0), config.whole(`${name}_layer_period`)];
      return (layer: number) => layer >= offset && (layer - offset) % period === 0;
    };
    const [attends, isRouted] = [every('attn'), every('expert')];
    const { keys, sizes: counts } = readExperts(config, 'num_experts');
    // A model with one expert has a dense part everywhere.
    const routes = (layer: number) => (counts.experts ?? 0) > 1 && isRouted(layer);
    const isSeparate = names.some((name) => /\.feed_forward\.experts\.0\./.test(name));
    const dense = feedForward.map((row) => ({ ...row, from: row.from.replace('mlp', 'feed_forward') }));
    const mixture: Row[] = [
      { from: 'feed_forward.router', to: 'ffn_gate_inp', shape: ['experts', 'hidden'] },
      ...dense.map((row) => ({
        ...row,
        from: row.from.replace('feed_forward.', 'feed_forward.experts.#.'),
        to: `${row.to}_exps`,
      })),
    ];
    if (!isSeparate && names.some((name) => name.includes('.experts.gate_up_proj')))
      unsupportedConfig('experts are stacked in one tensor for a layer; the converter takes a tensor for each');
    const space: Row[] = [
      { from: 'mamba.A_log', to: 'ssm_a', whole: '', shape: [inner, state], negativeExp: true },
      { from: 'mamba.D', to: 'ssm_d', whole: '', shape: [inner] },
      { from: 'mamba.conv1d', to: 'ssm_conv1d', shape: [inner, 1, convolved], as: [inner, convolved], bias: 'always' },
      { from: 'mamba.in_proj', to: 'ssm_in', shape: [2 * inner, 'hidden'] },
      { from: 'mamba.x_proj', to: 'ssm_x', shape: [steps + 2 * state, inner] },
      { from: 'mamba.dt_proj', to: 'ssm_dt', shape: [inner, steps], bias: 'always' },
      { from: 'mamba.dt_layernorm', to: 'ssm_dt_norm', shape: [steps] },
      { from: 'mamba.b_layernorm', to: 'ssm_b_norm', shape: [state] },
      { from: 'mamba.c_layernorm', to: 'ssm_c_norm', shape: [state] },
      { from: 'mamba.out_proj', to: 'ssm_out', shape: ['hidden', inner] },
    ];
    return {
      keys: {
        ...keys,
        'attention.head_count_kv': Array.from({ length: layers }, (_, i) => (attends(i) ? keyHeads : 0)),
        'ssm.conv_kernel': convolved,
        'ssm.inner_size': inner,
        'ssm.state_size': state,
        'ssm.time_step_rank': steps,
      },
      sizes: counts,
      table: {
        outside: [embedding, { ...finalNorm, from: 'model.final_layernorm' }, head],
        layer: [
          { from: 'input_layernorm', to: 'attn_norm', shape: ['hidden'] },
          { from: 'pre_ff_layernorm', to: 'ffn_norm', shape: ['hidden'] },
          ...onlyIn(attention, attends),
          ...onlyIn(space, (layer) => !attends(layer)),
          ...onlyIn(dense, (layer) => !routes(layer)),
          ...onlyIn(mixture, routes),
        ],
      },
    };
  },
};
