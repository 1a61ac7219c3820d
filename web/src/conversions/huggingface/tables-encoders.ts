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

/** @param gated true if the feed-forward part has a gate */
export const t5 = (gated: boolean): TensorTable => ({
  layerPrefix: 'encoder.block.',
  layerTarget: 'enc.blk.',
  outside: [
    { from: 'shared', to: 'token_embd', shape: ['vocabulary', 'hidden'] },
    { from: 'encoder.final_layer_norm', to: 'enc.output_norm', shape: ['hidden'] },
  ],
  layer: [
    { from: 'layer.0.layer_norm', to: 'attn_norm', shape: ['hidden'] },
    { from: 'layer.0.SelfAttention.q', to: 'attn_q', shape: ['queries', 'hidden'] },
    { from: 'layer.0.SelfAttention.k', to: 'attn_k', shape: ['keys', 'hidden'] },
    { from: 'layer.0.SelfAttention.v', to: 'attn_v', shape: ['keys', 'hidden'] },
    { from: 'layer.0.SelfAttention.o', to: 'attn_o', shape: ['hidden', 'queries'] },
    {
      from: 'layer.0.SelfAttention.relative_attention_bias',
      to: 'attn_rel_b',
      shape: ['buckets', 'heads'],
      only: (layer) => layer === 0,
    },
    { from: 'layer.1.layer_norm', to: 'ffn_norm', shape: ['hidden'] },
    ...(gated
      ? ([
          { from: 'layer.1.DenseReluDense.wi_0', to: 'ffn_gate', shape: ['feedForward', 'hidden'] },
          { from: 'layer.1.DenseReluDense.wi_1', to: 'ffn_up', shape: ['feedForward', 'hidden'] },
        ] as const)
      : ([{ from: 'layer.1.DenseReluDense.wi', to: 'ffn_up', shape: ['feedForward', 'hidden'] }] as const)),
    { from: 'layer.1.DenseReluDense.wo', to: 'ffn_down', shape: ['hidden', 'feedForward'] },
  ],
});
