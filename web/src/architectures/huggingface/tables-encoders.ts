/**
 * Tensors of encoders beside BERT and Nomic.
 * Reference: github.com/ggml-org/llama.cpp, gguf-py/gguf/tensor_mapping.py at 0024aa7, conversion/ bert.py 2ca8afc, t5.py 5535795.
 */
import { bert, bertName, withBias } from './tables.js';
import type { Row, TensorTable } from './tensors.js';

/** Drops the prefix of the model. */
function named(prefix: string) {
  return (name: string) => bertName(name.replace(new RegExp(`^${prefix}\\.`), ''));
}

const classifier: readonly Row[] = [
  { from: 'classifier.dense', to: 'cls', shape: ['hidden', 'hidden'], bias: 'always' },
  { from: 'classifier.out_proj', to: 'cls.output', shape: ['labels', 'hidden'], bias: 'always' },
];

/** @param offset rows of the table of positions that come before the first position */
export const roberta = (offset: number, classifies: boolean): TensorTable => ({
  ...bert,
  outside: [
    ...bert.outside.filter(({ to }) => to !== 'position_embd'),
    {
      from: 'embeddings.position_embeddings',
      to: '',
      shape: ['storedPositions', 'hidden'],
      shares: [
        { to: 'position_embd', shape: ['positions', 'hidden'], windows: ({ positions }) => [[offset, positions]] },
      ],
    },
    ...(classifies ? classifier : []),
  ],
  rename: named('roberta'),
});

/** Jina v2: BERT without positions; one matrix holds gate and up of the feed-forward part. */
export const jinaBert: TensorTable = {
  ...bert,
  outside: bert.outside.filter(({ to }) => to !== 'position_embd'),
  layer: [
    ...bert.layer.filter(({ to }) => to.startsWith('attn_')),
    { from: 'mlp.gated_layers', to: 'ffn_up', shape: ['twoFeedForward', 'hidden'] },
    { from: 'mlp.wo', to: 'ffn_down', shape: ['hidden', 'feedForward'], bias: 'always' },
    { from: 'mlp.layernorm', to: 'layer_output_norm', shape: ['hidden'], bias: 'always' },
  ],
};

/** Adapters of Jina v3 in a folder, after its parametrizations are unwrapped. */
const adapterEnd = /\.0\.lora_[AB]$/;

/** Unwraps parametrizations, of which `original` is the weight, and leaves adapters and the pooler out. */
function jinaName(name: string): string | undefined {
  const own = name
    .replace(/^roberta\./, '')
    .replace('.parametrizations.', '.')
    .replace(/\.original$/, '');
  return adapterEnd.test(own) ? undefined : bertName(own);
}

/** Jina v3: XLM-R with a rotary embedding in the place of positions. */
export const jinaXlmRoberta: TensorTable = {
  layerPrefix: 'encoder.layers.',
  outside: [
    ...bert.outside.filter(({ to }) => to === 'token_embd' || to === 'token_types'),
    { from: 'emb_ln', to: 'token_embd_norm', shape: ['hidden'], bias: 'always' },
  ],
  layer: withBias(
    [
      { from: 'mixer.Wqkv', to: 'attn_qkv', shape: ['together', 'hidden'] },
      { from: 'mixer.out_proj', to: 'attn_output', shape: ['hidden', 'hidden'] },
      { from: 'norm1', to: 'attn_output_norm', shape: ['hidden'] },
      { from: 'mlp.fc1', to: 'ffn_up', shape: ['feedForward', 'hidden'] },
      { from: 'mlp.fc2', to: 'ffn_down', shape: ['hidden', 'feedForward'] },
      { from: 'norm2', to: 'layer_output_norm', shape: ['hidden'] },
    ],
    'always',
  ),
  rename: jinaName,
};

/** Heads for training are left out. */
function distilName(name: string): string | undefined {
  const own = name.replace(/^distilbert\./, '');
  return own.startsWith('vocab_') ? undefined : bertName(own);
}

export const distilBert: TensorTable = {
  layerPrefix: 'transformer.layer.',
  outside: bert.outside.filter(({ to }) => to !== 'token_types'),
  layer: withBias(
    [
      { from: 'attention.q_lin', to: 'attn_q', shape: ['hidden', 'hidden'] },
      { from: 'attention.k_lin', to: 'attn_k', shape: ['hidden', 'hidden'] },
      { from: 'attention.v_lin', to: 'attn_v', shape: ['hidden', 'hidden'] },
      { from: 'attention.out_lin', to: 'attn_output', shape: ['hidden', 'hidden'] },
      { from: 'sa_layer_norm', to: 'attn_output_norm', shape: ['hidden'] },
      { from: 'ffn.lin1', to: 'ffn_up', shape: ['feedForward', 'hidden'] },
      { from: 'ffn.lin2', to: 'ffn_down', shape: ['hidden', 'feedForward'] },
      { from: 'output_layer_norm', to: 'layer_output_norm', shape: ['hidden'] },
    ],
    'always',
  ),
  rename: distilName,
};

export const modernBert: TensorTable = {
  layerPrefix: 'layers.',
  outside: [
    { from: 'embeddings.tok_embeddings', to: 'token_embd', shape: ['vocabulary', 'hidden'] },
    { from: 'embeddings.norm', to: 'token_embd_norm', shape: ['hidden'] },
    { from: 'final_norm', to: 'output_norm', shape: ['hidden'] },
    { from: 'head.dense', to: 'cls', shape: ['hidden', 'hidden'], optional: true },
    { from: 'head.norm', to: 'cls.norm', shape: ['hidden'], optional: true },
  ],
  layer: [
    { from: 'attn_norm', to: 'attn_norm', shape: ['hidden'], only: (layer) => layer > 0 },
    { from: 'attn.Wqkv', to: 'attn_qkv', shape: ['together', 'hidden'] },
    { from: 'attn.Wo', to: 'attn_output', shape: ['hidden', 'hidden'] },
    { from: 'mlp_norm', to: 'ffn_norm', shape: ['hidden'] },
    { from: 'mlp.Wi', to: 'ffn_up', shape: ['twoFeedForward', 'hidden'] },
    { from: 'mlp.Wo', to: 'ffn_down', shape: ['hidden', 'feedForward'] },
  ],
  // The last product of the head for training is the embedding, with a bias.
  rename: (name) => {
    const own = name.replace(/^model\./, '');
    return own.startsWith('decoder.') ? undefined : own;
  },
};

/** Names of the embedding of T5. */
export const t5Embeddings: readonly string[] = [
  'decoder.embed_tokens.weight',
  'encoder.embed_tokens.weight',
  'shared.weight',
];

/** Attention of T5 under a name. @param target the part of llama.cpp's names in front of `attn_` */
function t5Attention(name: string, target = ''): Row[] {
  return [
    { from: `${name}.q`, to: `${target}attn_q`, shape: ['queries', 'hidden'] },
    { from: `${name}.k`, to: `${target}attn_k`, shape: ['keys', 'hidden'] },
    { from: `${name}.v`, to: `${target}attn_v`, shape: ['keys', 'hidden'] },
    { from: `${name}.o`, to: `${target}attn_o`, shape: ['hidden', 'queries'] },
  ];
}

/** Attention of T5 to the text itself, with distances. @param own true if each layer has its own distances */
function t5SelfAttention(own: boolean): Row[] {
  return [
    { from: 'layer.0.layer_norm', to: 'attn_norm', shape: ['hidden'] },
    ...t5Attention('layer.0.SelfAttention'),
    {
      from: 'layer.0.SelfAttention.relative_attention_bias',
      to: 'attn_rel_b',
      shape: ['buckets', 'heads'],
      only: (layer) => own || layer === 0,
    },
  ];
}

/** The feed-forward part of T5. @param gated true if it has a gate */
function t5FeedForward(name: string, gated: boolean): Row[] {
  const dense = `${name}.DenseReluDense`;
  return [
    { from: `${name}.layer_norm`, to: 'ffn_norm', shape: ['hidden'] },
    ...(gated
      ? ([
          { from: `${dense}.wi_0`, to: 'ffn_gate', shape: ['feedForward', 'hidden'] },
          { from: `${dense}.wi_1`, to: 'ffn_up', shape: ['feedForward', 'hidden'] },
        ] as const)
      : ([{ from: `${dense}.wi`, to: 'ffn_up', shape: ['feedForward', 'hidden'] }] as const)),
    { from: `${dense}.wo`, to: 'ffn_down', shape: ['hidden', 'feedForward'] },
  ];
}

const t5Outside: readonly Row[] = [
  { from: 'shared', to: 'token_embd', shape: ['vocabulary', 'hidden'] },
  { from: 'encoder.final_layer_norm', to: 'enc.output_norm', shape: ['hidden'] },
];

/** The encoder of T5. @param ownDistances true if each layer has distances of its own, as in UMT5 */
export const t5 = (gated: boolean, ownDistances = false): TensorTable => ({
  layerPrefix: 'encoder.block.',
  layerTarget: 'enc.blk.',
  outside: t5Outside,
  layer: [...t5SelfAttention(ownDistances), ...t5FeedForward('layer.1', gated)],
});

/** T5 with its decoder. @param layers those of the decoder */
export const t5WithDecoder = (gated: boolean, ownDistances: boolean, layers: number): TensorTable => ({
  ...t5(gated, ownDistances),
  outside: [
    ...t5Outside,
    { from: 'decoder.final_layer_norm', to: 'dec.output_norm', shape: ['hidden'] },
    { from: 'lm_head', to: 'output', shape: ['vocabulary', 'hidden'], optional: true },
  ],
  second: {
    layerPrefix: 'decoder.block.',
    layerTarget: 'dec.blk.',
    layers,
    layer: [
      ...t5SelfAttention(ownDistances),
      { from: 'layer.1.layer_norm', to: 'cross_attn_norm', shape: ['hidden'] },
      ...t5Attention('layer.1.EncDecAttention', 'cross_'),
      ...t5FeedForward('layer.2', gated),
    ],
  },
});
