/**
 * Tensors of each architecture: their names at Hugging Face and in llama.cpp, and their shapes.
 * Reference: github.com/ggml-org/llama.cpp, gguf-py/gguf/tensor_mapping.py at 0024aa7.
 */
import type { Row, RowsOf, TensorTable } from './tensors.js';

export const embedding: Row = { from: 'model.embed_tokens', to: 'token_embd', shape: ['vocabulary', 'hidden'] };
export const finalNorm: Row = { from: 'model.norm', to: 'output_norm', shape: ['hidden'] };
export const head: Row = { from: 'lm_head', to: 'output', shape: ['vocabulary', 'hidden'], optional: true };
export const outsideDecoder = [embedding, finalNorm, head];

export const norms: readonly Row[] = [
  { from: 'input_layernorm', to: 'attn_norm', shape: ['hidden'] },
  { from: 'post_attention_layernorm', to: 'ffn_norm', shape: ['hidden'] },
];

/** Norms of queries and keys within a head. */
export const headNorms: readonly Row[] = [
  { from: 'self_attn.q_norm', to: 'attn_q_norm', shape: ['head'] },
  { from: 'self_attn.k_norm', to: 'attn_k_norm', shape: ['head'] },
];

export const attention: readonly Row[] = [
  { from: 'self_attn.q_proj', to: 'attn_q', shape: ['queries', 'hidden'] },
  { from: 'self_attn.k_proj', to: 'attn_k', shape: ['keys', 'hidden'] },
  { from: 'self_attn.v_proj', to: 'attn_v', shape: ['keys', 'hidden'] },
  { from: 'self_attn.o_proj', to: 'attn_output', shape: ['hidden', 'queries'] },
];

export const feedForward: readonly Row[] = [
  { from: 'mlp.gate_proj', to: 'ffn_gate', shape: ['feedForward', 'hidden'] },
  { from: 'mlp.up_proj', to: 'ffn_up', shape: ['feedForward', 'hidden'] },
  { from: 'mlp.down_proj', to: 'ffn_down', shape: ['hidden', 'feedForward'] },
];

export function withBias(rows: readonly Row[], bias: 'optional' | 'always'): Row[] {
  return rows.map((row) => ({ ...row, bias }));
}

/** The attention of Llama: llama.cpp rotates neighbors, Hugging Face halves. */
export const llamaAttention = withBias(attention, 'optional').map((row): Row => {
  if (row.to === 'attn_q') return { ...row, permute: 'heads' };
  return row.to === 'attn_k' ? { ...row, permute: 'keyHeads' } : row;
});

/** Adds the prefix that is missing in folders of the model without its head. */
export function withPrefix(name: string): string {
  return /^(layers\.\d|embed_tokens\.|norm\.)/.test(name) ? `model.${name}` : name;
}

export const layerPrefix = 'model.layers.';

export const llama: TensorTable = {
  layerPrefix,
  outside: outsideDecoder,
  layer: [...norms, ...llamaAttention, ...withBias(feedForward, 'optional')],
};

/** The router and the experts of Mixtral. */
export const mixtralExperts: readonly Row[] = [
  { from: 'block_sparse_moe.gate', to: 'ffn_gate_inp', shape: ['experts', 'hidden'] },
  { from: 'block_sparse_moe.experts.#.w1', to: 'ffn_gate_exps', shape: ['feedForward', 'hidden'] },
  { from: 'block_sparse_moe.experts.#.w2', to: 'ffn_down_exps', shape: ['hidden', 'feedForward'] },
  { from: 'block_sparse_moe.experts.#.w3', to: 'ffn_up_exps', shape: ['feedForward', 'hidden'] },
];

export const mixtral: TensorTable = {
  layerPrefix,
  outside: outsideDecoder,
  layer: [...norms, ...llamaAttention, ...mixtralExperts],
};

export const smollm3: TensorTable = {
  layerPrefix,
  outside: outsideDecoder,
  layer: [...norms, ...llamaAttention.map(withoutBias), ...feedForward],
};

/** A row that must not be missing. */
export function withoutOptional({ optional: _, ...row }: Row): Row {
  return row;
}

/** A row without a bias. */
export function withoutBias({ bias: _, ...row }: Row): Row {
  return row;
}

export const qwen2: TensorTable = {
  layerPrefix,
  // Of the architectures whose transformers class has no bias here, llama.cpp adds that of this one alone.
  outside: [embedding, finalNorm, { ...head, bias: 'optional' }],
  layer: [...norms, ...withBias(attention.slice(0, 3), 'always'), ...attention.slice(3), ...feedForward],
  rename: withPrefix,
};

export const qwen3: TensorTable = {
  layerPrefix,
  outside: outsideDecoder,
  layer: [...norms, ...attention, ...headNorms, ...feedForward],
  rename: withPrefix,
};

/** The router and the experts of Qwen, whose matrices are tensors each, or stacked in two. */
export const qwenExperts = (stacked: boolean): readonly Row[] => [
  { from: 'mlp.gate', to: 'ffn_gate_inp', shape: ['experts', 'hidden'] },
  ...(stacked ? stackedExperts : separateExperts),
];

/** Matrices of experts, a tensor each. */
export const separateExperts: readonly Row[] = [
  { from: 'mlp.experts.#.gate_proj', to: 'ffn_gate_exps', shape: ['expertFeedForward', 'hidden'] },
  { from: 'mlp.experts.#.up_proj', to: 'ffn_up_exps', shape: ['expertFeedForward', 'hidden'] },
  { from: 'mlp.experts.#.down_proj', to: 'ffn_down_exps', shape: ['hidden', 'expertFeedForward'] },
];

/** Experts that all tokens pass, under a name of the folder. */
export const sharedExperts = (name: string): Row[] => [
  { from: `${name}.gate_proj`, to: 'ffn_gate_shexp', shape: ['sharedFeedForward', 'hidden'] },
  { from: `${name}.up_proj`, to: 'ffn_up_shexp', shape: ['sharedFeedForward', 'hidden'] },
  { from: `${name}.down_proj`, to: 'ffn_down_shexp', shape: ['hidden', 'sharedFeedForward'] },
];

/** Rows of some layers only. */
export function onlyIn(rows: readonly Row[], only: (layer: number) => boolean): Row[] {
  return rows.map((row) => ({ ...row, only }));
}

/** Rows of one half of each expert's matrix, which holds gate and up. */
const halfOfExperts =
  (half: 0 | 1): RowsOf =>
  ({ experts, expertFeedForward: rows }) =>
    Array.from({ length: experts }, (_, e) => [(2 * e + half) * rows, rows] as const);

/** Gates and ups in halves of one tensor. */
export const gateUpShares: NonNullable<Row['shares']> = [
  { to: 'ffn_gate_exps', shape: ['experts', 'expertFeedForward', 'hidden'], windows: halfOfExperts(0) },
  { to: 'ffn_up_exps', shape: ['experts', 'expertFeedForward', 'hidden'], windows: halfOfExperts(1) },
];

/** Matrices of all experts in two tensors, as transformers stores them since its version 5. */
const stackedExperts: readonly Row[] = [
  {
    from: 'mlp.experts.gate_up_proj',
    to: '',
    whole: '.weight',
    shape: ['experts', 'twoExpertFeedForward', 'hidden'],
    shares: gateUpShares,
  },
  {
    from: 'mlp.experts.down_proj',
    to: 'ffn_down_exps',
    whole: '.weight',
    shape: ['experts', 'hidden', 'expertFeedForward'],
  },
];

export const qwen3moe = (stacked: boolean): TensorTable => ({
  layerPrefix,
  outside: outsideDecoder,
  layer: [...norms, ...attention, ...headNorms, ...qwenExperts(stacked)],
  rename: withPrefix,
});

export function plusOne(rows: readonly Row[]): Row[] {
  return rows.map((row) => (row.to.endsWith('norm') ? { ...row, plusOne: true } : row));
}

/** Norms before and behind attention and the feed-forward part. */
export const gemmaNorms: readonly Row[] = [
  { from: 'input_layernorm', to: 'attn_norm', shape: ['hidden'] },
  { from: 'post_attention_layernorm', to: 'post_attention_norm', shape: ['hidden'] },
  { from: 'pre_feedforward_layernorm', to: 'ffn_norm', shape: ['hidden'] },
  { from: 'post_feedforward_layernorm', to: 'post_ffw_norm', shape: ['hidden'] },
];

/** Drops the head: in these models it is the embedding, even if the file stores one. */
export function withoutHead(name: string): string | undefined {
  return name === 'lm_head.weight' ? undefined : name;
}

export const gemma2: TensorTable = {
  layerPrefix,
  outside: plusOne([embedding, finalNorm]),
  layer: plusOne([...gemmaNorms, ...attention, ...feedForward]),
  rename: withoutHead,
};

export const gemma3: TensorTable = {
  layerPrefix,
  outside: plusOne([embedding, finalNorm]),
  layer: plusOne([...gemmaNorms, ...attention, ...headNorms, ...feedForward]),
  rename: withoutHead,
};

export const phi3: TensorTable = {
  layerPrefix,
  outside: outsideDecoder,
  layer: [
    ...norms,
    { from: 'self_attn.qkv_proj', to: 'attn_qkv', shape: ['together', 'hidden'] },
    { from: 'self_attn.o_proj', to: 'attn_output', shape: ['hidden', 'queries'] },
    { from: 'mlp.gate_up_proj', to: 'ffn_up', shape: ['twoFeedForward', 'hidden'] },
    { from: 'mlp.down_proj', to: 'ffn_down', shape: ['hidden', 'feedForward'] },
  ],
};

/** Tensors that an embedding model does not need: its pooler, and heads for training. */
const unused = /^(embeddings\.position_ids$|pooler\.dense\.|cls\.predictions|cls\.seq_relationship)/;

export function bertName(name: string): string | undefined {
  const own = name
    .replace(/^bert\./, '')
    .replace(/\.gamma$/, '.weight')
    .replace(/\.beta$/, '.bias');
  return unused.test(own) ? undefined : own;
}

export const bert: TensorTable = {
  layerPrefix: 'encoder.layer.',
  outside: [
    { from: 'embeddings.word_embeddings', to: 'token_embd', shape: ['vocabulary', 'hidden'] },
    { from: 'embeddings.position_embeddings', to: 'position_embd', shape: ['positions', 'hidden'] },
    { from: 'embeddings.token_type_embeddings', to: 'token_types', shape: ['tokenTypes', 'hidden'] },
    { from: 'embeddings.LayerNorm', to: 'token_embd_norm', shape: ['hidden'], bias: 'always' },
  ],
  layer: withBias(
    [
      { from: 'attention.self.query', to: 'attn_q', shape: ['hidden', 'hidden'] },
      { from: 'attention.self.key', to: 'attn_k', shape: ['hidden', 'hidden'] },
      { from: 'attention.self.value', to: 'attn_v', shape: ['hidden', 'hidden'] },
      { from: 'attention.output.dense', to: 'attn_output', shape: ['hidden', 'hidden'] },
      { from: 'attention.output.LayerNorm', to: 'attn_output_norm', shape: ['hidden'] },
      { from: 'intermediate.dense', to: 'ffn_up', shape: ['feedForward', 'hidden'] },
      { from: 'output.dense', to: 'ffn_down', shape: ['hidden', 'feedForward'] },
      { from: 'output.LayerNorm', to: 'layer_output_norm', shape: ['hidden'] },
    ],
    'always',
  ),
  rename: bertName,
};

export const nomicBert: TensorTable = {
  layerPrefix: 'encoder.layers.',
  outside: [
    { from: 'embeddings.word_embeddings', to: 'token_embd', shape: ['vocabulary', 'hidden'] },
    { from: 'embeddings.token_type_embeddings', to: 'token_types', shape: ['tokenTypes', 'hidden'], optional: true },
    { from: 'emb_ln', to: 'token_embd_norm', shape: ['hidden'], bias: 'always' },
  ],
  layer: [
    { from: 'attn.Wqkv', to: 'attn_qkv', shape: ['together', 'hidden'] },
    { from: 'attn.out_proj', to: 'attn_output', shape: ['hidden', 'hidden'] },
    { from: 'norm1', to: 'attn_output_norm', shape: ['hidden'], bias: 'always' },
    { from: 'mlp.fc11', to: 'ffn_up', shape: ['feedForward', 'hidden'] },
    { from: 'mlp.fc12', to: 'ffn_gate', shape: ['feedForward', 'hidden'] },
    { from: 'mlp.fc2', to: 'ffn_down', shape: ['hidden', 'feedForward'] },
    { from: 'norm2', to: 'layer_output_norm', shape: ['hidden'], bias: 'always' },
  ],
  rename: bertName,
};
