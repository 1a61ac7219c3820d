/**
 * Rows of tensors that several families share: names at Hugging Face and in llama.cpp, and shapes.
 * Reference: github.com/ggml-org/llama.cpp, gguf-py/gguf/tensor_mapping.py at 0024aa7.
 */
import type { ElementView } from '../../formats/format.js';
import type { Row, RowsOf } from '../huggingface/tensors.js';

export const embedding: Row = { from: 'model.embed_tokens', to: 'token_embd', shape: ['vocabulary', 'hidden'] };
export const finalNorm: Row = { from: 'model.norm', to: 'output_norm', shape: ['hidden'] };
export const head: Row = { from: 'lm_head', to: 'output', shape: ['vocabulary', 'hidden'], optional: true };

export const norms: readonly Row[] = [
  { from: 'input_layernorm', to: 'attn_norm', shape: ['hidden'] },
  { from: 'post_attention_layernorm', to: 'ffn_norm', shape: ['hidden'] },
];

/** Norms before and behind attention, of which the second one stands before the feed-forward part. */
export const normsBetween: readonly Row[] = [
  { from: 'input_layernorm', to: 'attn_norm', shape: ['hidden'] },
  { from: 'post_attention_layernorm', to: 'post_attention_norm', shape: ['hidden'] },
];

/** Norms behind the attention and the feed-forward part, and none before them. */
export const lateNorms: readonly Row[] = [
  { from: 'post_attention_layernorm', to: 'post_attention_norm', shape: ['hidden'] },
  { from: 'post_feedforward_layernorm', to: 'post_ffw_norm', shape: ['hidden'] },
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

/** Attention whose queries, keys and values have biases as config.json says, and whose output has none. */
export const biasedInputs: readonly Row[] = [...withBias(attention.slice(0, 3), 'stated'), ...attention.slice(3)];

export const feedForward: readonly Row[] = [
  { from: 'mlp.gate_proj', to: 'ffn_gate', shape: ['feedForward', 'hidden'] },
  { from: 'mlp.up_proj', to: 'ffn_up', shape: ['feedForward', 'hidden'] },
  { from: 'mlp.down_proj', to: 'ffn_down', shape: ['hidden', 'feedForward'] },
];

/** A feed-forward part whose gates and ups are one matrix. */
export const joinedFeedForward: readonly Row[] = [
  { from: 'mlp.gate_up_proj', to: 'ffn_up', shape: ['2 feedForward', 'hidden'] },
  { from: 'mlp.down_proj', to: 'ffn_down', shape: ['hidden', 'feedForward'] },
];

/** Rows with a bias. */
export function withBias(rows: readonly Row[], bias: NonNullable<Row['bias']> = 'always'): Row[] {
  return rows.map((row) => ({ ...row, bias }));
}

/** The attention of Llama: llama.cpp rotates neighbors, Hugging Face halves. */
export const llamaAttention = withBias(attention, 'stated').map((row): Row => {
  if (row.to === 'attn_q') return { ...row, permute: 'heads' };
  return row.to === 'attn_k' ? { ...row, permute: 'keyHeads' } : row;
});

/** Adds the prefix that is missing in folders of the model without its head. */
export function withPrefix(name: string): string {
  return /^(layers\.\d|embed_tokens\.|norm\.)/.test(name) ? `model.${name}` : name;
}

/** A row without a bias. */
export function withoutBias({ bias: _, ...row }: Row): Row {
  return row;
}

/** Rows of some layers only. */
export function onlyIn(rows: readonly Row[], only: (layer: number) => boolean): Row[] {
  return rows.map((row) => ({ ...row, only }));
}

/** Rows whose norms are stored without the 1 that is added to them. */
export function plusOne(rows: readonly Row[]): Row[] {
  return rows.map((row) => (row.to.endsWith('norm') ? { ...row, add: 1 } : row));
}

/** Drops the head: in these models it is the embedding, even if the file stores one. */
export function withoutHead(name: string): string | undefined {
  return name === 'lm_head.weight' ? undefined : name;
}

// ------------------------------------------------------------------------------------------------------------------------ experts

/** The router and the experts of Mixtral. */
export const mixtralExperts: readonly Row[] = [
  { from: 'block_sparse_moe.gate', to: 'ffn_gate_inp', shape: ['experts', 'hidden'] },
  { from: 'block_sparse_moe.experts.#.w1', to: 'ffn_gate_exps', shape: ['feedForward', 'hidden'] },
  { from: 'block_sparse_moe.experts.#.w2', to: 'ffn_down_exps', shape: ['hidden', 'feedForward'] },
  { from: 'block_sparse_moe.experts.#.w3', to: 'ffn_up_exps', shape: ['feedForward', 'hidden'] },
];

/** Matrices of experts, a tensor each. */
const separateExperts: readonly Row[] = [
  { from: 'mlp.experts.#.gate_proj', to: 'ffn_gate_exps', shape: ['expertFeedForward', 'hidden'] },
  { from: 'mlp.experts.#.up_proj', to: 'ffn_up_exps', shape: ['expertFeedForward', 'hidden'] },
  { from: 'mlp.experts.#.down_proj', to: 'ffn_down_exps', shape: ['hidden', 'expertFeedForward'] },
];

/** Gates and ups in halves of one tensor. */
export const gateUpShares: NonNullable<Row['shares']> = ['ffn_gate_exps', 'ffn_up_exps'].map((to, half) => ({
  to,
  shape: ['experts', 'expertFeedForward', 'hidden'],
  windows: ({ experts = 0, expertFeedForward: rows = 0 }) =>
    Array.from({ length: experts }, (_, e) => [(2 * e + half) * rows, rows] as const),
}));

/** Matrices of all experts in two tensors, as transformers stores them since its version 5. */
const stackedExperts: readonly Row[] = [
  {
    from: 'mlp.experts.gate_up_proj',
    to: '',
    whole: '.weight',
    shape: ['experts', '2 expertFeedForward', 'hidden'],
    shares: gateUpShares,
  },
  {
    from: 'mlp.experts.down_proj',
    to: 'ffn_down_exps',
    whole: '.weight',
    shape: ['experts', 'hidden', 'expertFeedForward'],
  },
];

/** The router and the experts of Qwen, whose matrices are tensors each, or stacked in two. */
export const qwenExperts = (stacked: boolean): readonly Row[] => [
  { from: 'mlp.gate', to: 'ffn_gate_inp', shape: ['experts', 'hidden'] },
  ...(stacked ? stackedExperts : separateExperts),
];

/** A dense part in the first layers, and experts in those behind them. @param dense number of the first layers */
export const denseThenExperts = (dense: number, experts: readonly Row[]): Row[] => [
  ...onlyIn(feedForward, (layer) => layer < dense),
  ...onlyIn(experts, (layer) => layer >= dense),
];

/** Experts that all tokens pass, under a name of the folder. */
export const sharedExperts = (name: string): Row[] => [
  { from: `${name}.gate_proj`, to: 'ffn_gate_shexp', shape: ['sharedFeedForward', 'hidden'] },
  { from: `${name}.up_proj`, to: 'ffn_up_shexp', shape: ['sharedFeedForward', 'hidden'] },
  { from: `${name}.down_proj`, to: 'ffn_down_shexp', shape: ['hidden', 'sharedFeedForward'] },
];

/** Gate and up of a part that all tokens pass, in one matrix. @param end of the names in GGUF */
export const joinedShared = (end: '' | '_shexp'): readonly Row[] => [
  {
    from: 'shared_mlp.input_linear',
    to: '',
    shape: ['2 sharedFeedForward', 'hidden'],
    shares: ['ffn_gate', 'ffn_up'].map((to, half) => ({
      to: `${to}${end}`,
      shape: ['sharedFeedForward', 'hidden'],
      windows: ({ sharedFeedForward: rows = 0 }) => [[half * rows, rows]],
    })),
  },
  { from: 'shared_mlp.output_linear', to: `ffn_down${end}`, shape: ['hidden', 'sharedFeedForward'] },
];

/** A view of the elements from `offset` on: counts and strides, outermost first. */
export function viewFrom(offset: number, ...dims: ElementView['dims']): ElementView {
  return { offset, dims };
}

/** Experts that are stored with their inputs as rows. @param order that of gates and ups */
export const turnedExperts = (name: string, order: 'halves' | 'turns' = 'halves'): Row[] => [
  {
    from: `${name}.gate_up_proj`,
    to: '',
    whole: '.weight',
    shape: ['experts', 'hidden', '2 expertFeedForward'],
    shares: ([0, 1] as const).map((half) => ({
      to: half === 0 ? 'ffn_gate_exps' : 'ffn_up_exps',
      shape: ['experts', 'expertFeedForward', 'hidden'],
      // Gates and ups have half of the columns each, or every second one.
      view: ({ experts = 0, hidden, expertFeedForward: outputs = 0 }) => {
        const [first, step] = order === 'halves' ? [half * outputs, 1] : [half, 2];
        return viewFrom(first, [experts, 2 * hidden * outputs], [outputs, step], [hidden, 2 * outputs]);
      },
    })),
  },
  {
    from: `${name}.down_proj`,
    to: 'ffn_down_exps',
    whole: '.weight',
    shape: ['experts', 'expertFeedForward', 'hidden'],
    as: ['experts', 'hidden', 'expertFeedForward'],
    view: ({ experts = 0, hidden, expertFeedForward: inputs = 0 }) =>
      viewFrom(0, [experts, inputs * hidden], [hidden, 1], [inputs, hidden]),
  },
];

// ------------------------------------------------------------------------------------------------------------------- other layers

/** Rows of groups, each of which has the queries that share a key, this key and its value, gathered to all queries, all keys and all values. */
export const regrouped: RowsOf = ({ heads, keyHeads, head: rows }) => {
  const queries = heads / keyHeads;
  const part = (i: number) => Math.max(0, (i % (queries + 2)) - queries + 1);
  return Array.from({ length: heads + 2 * keyHeads }, (_, i) => i)
    .sort((a, b) => part(a) - part(b))
    .map((i) => [i * rows, rows] as const);
};
