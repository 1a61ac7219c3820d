/** PLaMo 2, whose layers of Mamba and of attention take turns. Reference: conversion/plamo.py of Tippach/Franken-Llama 1774451. Tests compare with llama.cpp v0.5.0. */
import { noteOf } from '../../core/note.js';
import { decoderDefaults, decoderSettings, type ModelClass } from '../huggingface/reading.js';
import type { Row } from '../huggingface/tensors.js';
import { checkSpace } from './mamba.js';
import { embedding, finalNorm, head, onlyIn } from './rows.js';

/** Norms, whose weights are stored without these numbers. llama.cpp reads some under names without an ending. */
const norms: readonly Row[] = [
  { from: 'pre_mixer_norm', to: 'attn_norm', shape: ['hidden'], add: 1 },
  { from: 'post_mixer_norm.weight', to: 'post_attention_norm', whole: '', shape: ['hidden'], add: 1 / 5 },
  { from: 'pre_mlp_norm', to: 'ffn_norm', shape: ['hidden'], add: 1 },
  { from: 'post_mlp_norm.weight', to: 'post_ffw_norm', whole: '', shape: ['hidden'], add: 1 / 5 ** 1.5 },
];

const feedForward: readonly Row[] = [
  { from: 'mlp.gate_up_proj', to: 'ffn_up', shape: ['2 feedForward', 'hidden'] },
  { from: 'mlp.down_proj', to: 'ffn_down', shape: ['hidden', 'feedForward'] },
];

const attention: readonly Row[] = [
  { from: 'mixer.qkv_proj', to: 'attn_qkv', shape: ['together', 'hidden'] },
  { from: 'mixer.o_proj', to: 'attn_output', shape: ['hidden', 'queries'] },
  // Each head has a norm of its own.
  { from: 'mixer.q_weight', to: 'attn_q_norm', whole: '.weight', shape: ['heads', 'head'] },
  { from: 'mixer.k_weight', to: 'attn_k_norm', whole: '.weight', shape: ['keyHeads', 'head'] },
];

const plamoDefaults = decoderDefaults([4096, 13312, 32], [32, 4], 2048, {
  hidden_size_per_head: 128,
  mamba_d_state: 64,
  mamba_d_conv: 4,
  mamba_num_heads: 64,
  mamba_step: 2,
  mamba_enabled: true,
});

export const plamo2: ModelClass = {
  architecture: 'plamo2',
  classes: { Plamo2ForCausalLM: plamoDefaults, PLaMo2ForCausalLM: plamoDefaults },
  only: { ...decoderSettings, mamba_enabled: [true] },
  decoder: ({ config }) => ({ head: config.whole('hidden_size_per_head') }),
  scaling: [],
  details({ config, notes, sizes }) {
    const { layers, heads, keyHeads, head: size, hidden, vocabulary, positions = 0 } = sizes;
    const step = config.whole('mamba_step');
    const half = Math.floor(step / 2);
    // With few layers, the last one alone has attention.
    const attends = Array.from({ length: layers }, (_, i) => (layers <= half ? i === layers - 1 : i % step === half));
    const steps = config.whole('mamba_num_heads');
    const [state, convolved] = [config.whole('mamba_d_state'), config.whole('mamba_d_conv')];
    const { inner } = checkSpace({ inner: steps * size, state, convolved, steps, groups: 1 });
    const rank = Math.max(64, Math.floor(hidden / 16));
    const window = config.maybeWhole('attention_window_size');
    if (window !== undefined && window < positions) {
      const text = `attention_window_size ${window} is not written, because llama.cpp computes this architecture without one`;
      notes.push(noteOf('noSlidingWindow', { window }, text));
    }
    const space: Row[] = [
      { from: 'mixer.A_log', to: 'ssm_a', whole: '', shape: [steps], negativeExp: true },
      { from: 'mixer.D', to: 'ssm_d', whole: '', shape: [steps] },
      { from: 'mixer.dt_bias', to: 'ssm_dt', whole: '.bias', shape: [steps] },
      { from: 'mixer.conv1d', to: 'ssm_conv1d', shape: [inner, 1, convolved], as: [inner, convolved] },
      { from: 'mixer.in_proj', to: 'ssm_in', shape: [2 * inner, 'hidden'] },
      { from: 'mixer.bcdt_proj', to: 'ssm_x', shape: [rank + 2 * state, inner] },
      { from: 'mixer.dt_proj', to: 'ssm_dt', shape: [steps, rank] },
      { from: 'mixer.dt_norm_weight', to: 'ssm_dt_norm', whole: '', shape: [rank] },
      { from: 'mixer.B_norm_weight', to: 'ssm_b_norm', whole: '', shape: [state] },
      { from: 'mixer.C_norm_weight', to: 'ssm_c_norm', whole: '', shape: [state] },
      { from: 'mixer.out_proj', to: 'ssm_out', shape: ['hidden', inner] },
    ];
    return {
      keys: {
        vocab_size: vocabulary,
        'attention.head_count': attends.map((attends) => (attends ? heads : 0)),
        'attention.head_count_kv': attends.map((attends) => (attends ? keyHeads : 0)),
        'ssm.state_size': state,
        'ssm.conv_kernel': convolved,
        'ssm.time_step_rank': steps,
        'ssm.inner_size': inner,
        'ssm.group_count': 0,
      },
      table: {
        layerPrefix: 'model.layers.layers.',
        outside: [embedding, { ...finalNorm, add: 1 }, head],
        layer: [
          ...norms,
          ...onlyIn(space, (layer) => attends[layer] !== true),
          ...onlyIn(attention, (layer) => attends[layer] === true),
          ...feedForward,
        ],
      },
    };
  },
};
