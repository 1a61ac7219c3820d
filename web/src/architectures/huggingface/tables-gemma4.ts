/**
 * Tensors of Gemma 4. Layers with a window and those without differ in the sizes of their heads.
 * Reference: github.com/ggml-org/llama.cpp, conversion/gemma.py at 061b8c5, src/models/gemma4.cpp 06e514f, gguf-py/gguf/tensor_mapping.py.
 */
import { embedding, feedForward, finalNorm, gemmaNorms, layerPrefix, onlyIn, withoutHead } from './tables.js';
import type { Row, TensorTable } from './tensors.js';

/** Sizes of attention in some layers. */
export interface Attention {
  readonly heads: number;
  readonly keyHeads: number;
  readonly head: number;
  /** True if keys are the values, too, before their norms. */
  readonly keysAreValues: boolean;
}

/** Inputs of each layer for each token. */
export interface PerLayer {
  readonly layers: number;
  /** Elements of each token's inputs of a layer; 0 without them. */
  readonly perLayer: number;
  readonly perLayerVocabulary: number;
}

export interface Gemma4 extends PerLayer {
  readonly isLocal: (layer: number) => boolean;
  readonly local: Attention;
  readonly full: Attention;
  /** The first layer that has no keys and values of its own. */
  readonly firstShared: number;
  readonly feedForwardOf: (layer: number) => number;
  readonly hasExperts: boolean;
}

/** Attention of a kind. Folders may hold keys and values of layers that do not use them. */
function attentionRows({ heads, keyHeads, head, keysAreValues }: Attention, areOptional: boolean): Row[] {
  const optional = areOptional ? ({ optional: true } as const) : {};
  return [
    { from: 'self_attn.q_proj', to: 'attn_q', shape: [heads * head, 'hidden'] },
    { from: 'self_attn.k_proj', to: 'attn_k', shape: [keyHeads * head, 'hidden'], ...optional },
    ...(keysAreValues
      ? []
      : [{ from: 'self_attn.v_proj', to: 'attn_v', shape: [keyHeads * head, 'hidden'], ...optional } as const]),
    { from: 'self_attn.o_proj', to: 'attn_output', shape: ['hidden', heads * head] },
    { from: 'self_attn.q_norm', to: 'attn_q_norm', shape: [head] },
    { from: 'self_attn.k_norm', to: 'attn_k_norm', shape: [head], ...optional },
  ];
}

/** The feed-forward part with a number of rows. */
function feedForwardRows(rows: number): Row[] {
  return feedForward.map((row) => ({ ...row, shape: row.shape.map((size) => (size === 'feedForward' ? rows : size)) }));
}

const expertRows: readonly Row[] = [
  { from: 'router.proj', to: 'ffn_gate_inp', shape: ['experts', 'hidden'] },
  { from: 'router.scale', to: 'ffn_gate_inp.scale', whole: '', shape: ['hidden'] },
  { from: 'router.per_expert_scale', to: 'ffn_down_exps.scale', whole: '', shape: ['experts'] },
  {
    from: 'experts.gate_up_proj',
    to: 'ffn_gate_up_exps',
    whole: '.weight',
    shape: ['experts', 'twoExpertFeedForward', 'hidden'],
  },
  {
    from: 'experts.down_proj',
    to: 'ffn_down_exps',
    whole: '.weight',
    shape: ['experts', 'hidden', 'expertFeedForward'],
  },
  { from: 'pre_feedforward_layernorm_2', to: 'pre_ffw_norm_2', shape: ['hidden'] },
  { from: 'post_feedforward_layernorm_1', to: 'post_ffw_norm_1', shape: ['hidden'] },
  { from: 'post_feedforward_layernorm_2', to: 'post_ffw_norm_2', shape: ['hidden'] },
];

/** Inputs of a layer for each token. */
export function perLayerRows(width: number): Row[] {
  return [
    { from: 'per_layer_input_gate', to: 'inp_gate', shape: [width, 'hidden'] },
    { from: 'per_layer_projection', to: 'proj', shape: ['hidden', width] },
    { from: 'post_per_layer_input_norm', to: 'post_norm', shape: ['hidden'] },
  ];
}

export function perLayerOutside({ perLayer, layers, perLayerVocabulary }: PerLayer): Row[] {
  const all = perLayer * layers;
  return [
    { from: 'model.embed_tokens_per_layer', to: 'per_layer_token_embd', shape: [perLayerVocabulary, all] },
    { from: 'model.per_layer_model_projection', to: 'per_layer_model_proj', shape: [all, 'hidden'] },
    { from: 'model.per_layer_projection_norm', to: 'per_layer_proj_norm', shape: [perLayer] },
  ];
}

export function gemma4(model: Gemma4): TensorTable {
  const { isLocal, local, full, firstShared, feedForwardOf, layers, perLayer, hasExperts } = model;
  const kinds = [
    { sizes: local, only: isLocal },
    { sizes: full, only: (layer: number) => !isLocal(layer) },
  ];
  const widths = [...new Set(Array.from({ length: layers }, (_, i) => feedForwardOf(i)))];
  return {
    layerPrefix,
    outside: [embedding, finalNorm, ...(perLayer === 0 ? [] : perLayerOutside(model))],
    layer: [
      ...gemmaNorms,
      ...kinds.flatMap(({ sizes, only }) => [
        ...onlyIn(attentionRows(sizes, false), (layer) => only(layer) && layer < firstShared),
        ...onlyIn(attentionRows(sizes, true), (layer) => only(layer) && layer >= firstShared),
      ]),
      ...widths.flatMap((rows) => onlyIn(feedForwardRows(rows), (layer) => feedForwardOf(layer) === rows)),
      { from: 'layer_scalar', to: 'layer_output_scale', whole: '.weight', shape: [1] },
      ...(perLayer === 0 ? [] : perLayerRows(perLayer)),
      ...(hasExperts ? expertRows : []),
    ],
    rename: withoutHead,
  };
}
