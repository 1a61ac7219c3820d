/**
 * Tensors of mixtures of experts.
 * Reference: github.com/ggml-org/llama.cpp, gguf-py/gguf/tensor_mapping.py at 0024aa7, conversion/ qwen.py 03173d5, granite.py 010f22d,
 * olmo.py, glm.py, phi.py, ernie.py 051139f.
 */
import {
  attention,
  embedding,
  feedForward,
  finalNorm,
  gateUpShares,
  head,
  headNorms,
  layerPrefix,
  llamaAttention,
  mixtralExperts,
  norms,
  onlyIn,
  outsideDecoder,
  qwenExperts,
  separateExperts,
  sharedExperts,
  withBias,
  withoutOptional,
  withPrefix,
} from './tables.js';
import { olmo2 } from './tables-dense.js';
import type { Row, RowsOf, TensorTable } from './tensors.js';

export const qwen2moe = (stacked: boolean): TensorTable => ({
  layerPrefix,
  outside: outsideDecoder,
  layer: [
    ...norms,
    ...withBias(attention.slice(0, 3), 'always'),
    ...attention.slice(3),
    ...qwenExperts(stacked),
    { from: 'mlp.shared_expert_gate', to: 'ffn_gate_inp_shexp', shape: [1, 'hidden'] },
    ...sharedExperts('mlp.shared_expert'),
  ],
  rename: withPrefix,
});

export const olmoe: TensorTable = {
  layerPrefix,
  outside: outsideDecoder,
  layer: [...norms, ...olmo2.layer.filter(({ to }) => to.startsWith('attn_')), ...qwenExperts(false)],
};

/** Phi with experts, all of whose norms and products of attention have biases, and the head, too. */
export const phimoe: TensorTable = {
  layerPrefix,
  outside: [embedding, { ...finalNorm, bias: 'always' }, { ...withoutOptional(head), bias: 'always' }],
  layer: [...withBias([...norms, ...attention], 'always'), ...mixtralExperts],
};

/** Half of the rows of the experts that all tokens pass. */
const sharedHalf =
  (half: 0 | 1): RowsOf =>
  ({ sharedFeedForward: rows }) => [[half * rows, rows]];

/** Gate and up of the experts that all tokens pass, in one matrix. */
const sharedTogether: readonly Row[] = [
  {
    from: 'shared_mlp.input_linear',
    to: '',
    shape: ['twoSharedFeedForward', 'hidden'],
    shares: [
      { to: 'ffn_gate_shexp', shape: ['sharedFeedForward', 'hidden'], windows: sharedHalf(0) },
      { to: 'ffn_up_shexp', shape: ['sharedFeedForward', 'hidden'], windows: sharedHalf(1) },
    ],
  },
  { from: 'shared_mlp.output_linear', to: 'ffn_down_shexp', shape: ['hidden', 'sharedFeedForward'] },
];

/** @param hasShared true if all tokens pass some experts, too */
export const graniteMoe = (hasShared: boolean): TensorTable => ({
  layerPrefix,
  outside: outsideDecoder,
  layer: [
    ...norms,
    ...llamaAttention,
    { from: 'block_sparse_moe.router.layer', to: 'ffn_gate_inp', shape: ['experts', 'hidden'] },
    {
      from: 'block_sparse_moe.input_linear',
      to: '',
      shape: ['experts', 'twoExpertFeedForward', 'hidden'],
      shares: gateUpShares,
    },
    { from: 'block_sparse_moe.output_linear', to: 'ffn_down_exps', shape: ['experts', 'hidden', 'expertFeedForward'] },
    ...(hasShared ? sharedTogether : []),
  ],
});

/**
 * @param layers those of the model, without the ones that predict further tokens
 * @param dense layers without experts at the beginning
 */
export const glm4moe = (layers: number, dense: number, hasHeadNorms: boolean): TensorTable => ({
  layerPrefix,
  outside: outsideDecoder,
  layer: [
    { from: 'input_layernorm', to: 'attn_norm', shape: ['hidden'] },
    { from: 'post_attention_layernorm', to: 'post_attention_norm', shape: ['hidden'] },
    ...withBias(attention.slice(0, 3), 'optional'),
    ...attention.slice(3),
    ...(hasHeadNorms ? headNorms : []),
    ...onlyIn(feedForward, (layer) => layer < dense),
    ...onlyIn(
      [
        { from: 'mlp.gate', to: 'ffn_gate_inp', shape: ['experts', 'hidden'] },
        { from: 'mlp.gate.e_score_correction_bias', to: 'exp_probs_b', whole: '.bias', shape: ['experts'] },
        ...separateExperts,
        ...sharedExperts('mlp.shared_experts'),
      ],
      (layer) => layer >= dense,
    ),
    ...onlyIn(
      [
        { from: 'eh_proj', to: 'nextn.eh_proj', shape: ['hidden', 'twoHidden'] },
        { from: 'enorm', to: 'nextn.enorm', shape: ['hidden'] },
        { from: 'hnorm', to: 'nextn.hnorm', shape: ['hidden'] },
        { from: 'embed_tokens', to: 'nextn.embed_tokens', shape: ['vocabulary', 'hidden'], optional: true },
        { from: 'shared_head.head', to: 'nextn.shared_head_head', shape: ['vocabulary', 'hidden'], optional: true },
        { from: 'shared_head.norm', to: 'nextn.shared_head_norm', shape: ['hidden'], optional: true },
      ],
      (layer) => layer >= layers,
    ),
  ],
});

/** @param dense layers without experts at the beginning */
export const ernieMoe = (dense: number, hasShared: boolean): TensorTable => ({
  layerPrefix,
  outside: outsideDecoder,
  layer: [
    ...norms,
    ...attention,
    ...onlyIn(feedForward, (layer) => layer < dense),
    ...onlyIn(
      [
        { from: 'mlp.gate', to: 'ffn_gate_inp', shape: ['experts', 'hidden'] },
        { from: 'mlp.moe_statics.e_score_correction_bias', to: 'exp_probs_b', whole: '.bias', shape: [1, 'experts'] },
        ...separateExperts,
        ...(hasShared ? sharedExperts('mlp.shared_experts') : []),
      ],
      (layer) => layer >= dense,
    ),
  ],
  // Layers that predict further tokens are left out.
  rename: (name) => (/^model\.mtp_/.test(name) ? undefined : name),
});
