/**
 * Tensors of decoders whose layers differ from Llama's in their norms, biases or order.
 * Reference: github.com/ggml-org/llama.cpp, gguf-py/gguf/tensor_mapping.py at 0024aa7, and for the changes of each architecture
 * conversion/ gemma.py at 061b8c5, olmo.py, glm.py, phi.py, exaone.py, hunyuan.py, ernie.py at 051139f, granite.py 010f22d, command_r.py
 * 00487aa, nemotron.py 003ebfc, gptneox.py 2eb57bc, starcoder.py 5535795, falcon.py 5535795, chatglm.py 32e9e04, stablelm.py of
 * Tippach/Franken-Llama 1774451.
 */
import {
  attention,
  embedding,
  feedForward,
  finalNorm,
  head,
  headNorms,
  layerPrefix,
  llamaAttention,
  norms,
  outsideDecoder,
  plusOne,
  withBias,
  withoutBias,
  withoutHead,
  withPrefix,
} from './tables.js';
import type { Row, RowsOf, TensorTable } from './tensors.js';

const biasedAttention = withBias(attention, 'optional');

export const gemma: TensorTable = {
  layerPrefix,
  outside: plusOne([embedding, finalNorm]),
  layer: plusOne([...norms, ...attention, ...feedForward]),
  rename: withoutHead,
};

/** Embeddings of Gemma 3 lack the prefix of the model. */
export function withoutModel(table: TensorTable): TensorTable {
  const { rename } = table;
  return { ...table, rename: (name) => rename?.(withPrefix(name)) };
}

/** The attention of Llama with keys of its own architecture; biases as config.json says. */
export const graniteDense: TensorTable = {
  layerPrefix,
  outside: outsideDecoder,
  layer: [...norms, ...llamaAttention, ...withBias(feedForward, 'optional')],
};

/** Norms behind the attention and the feed-forward part, and none before them. */
const lateNorms: readonly Row[] = [
  { from: 'post_attention_layernorm', to: 'post_attention_norm', shape: ['hidden'] },
  { from: 'post_feedforward_layernorm', to: 'post_ffw_norm', shape: ['hidden'] },
];

export const olmo: TensorTable = {
  layerPrefix,
  outside: [embedding, head],
  layer: [...llamaAttention.map(withoutBias), ...feedForward],
};

export const olmo2: TensorTable = {
  layerPrefix,
  outside: outsideDecoder,
  layer: [
    ...lateNorms,
    ...attention,
    { from: 'self_attn.q_norm', to: 'attn_q_norm', shape: ['queries'] },
    { from: 'self_attn.k_norm', to: 'attn_k_norm', shape: ['keys'] },
    ...feedForward,
  ],
};

export const exaone4: TensorTable = {
  layerPrefix,
  outside: outsideDecoder,
  layer: [...lateNorms, ...attention, ...headNorms, ...feedForward],
};

export const glm4: TensorTable = {
  layerPrefix,
  outside: outsideDecoder,
  layer: [
    { from: 'input_layernorm', to: 'attn_norm', shape: ['hidden'] },
    { from: 'post_self_attn_layernorm', to: 'post_attention_norm', shape: ['hidden'] },
    { from: 'post_attention_layernorm', to: 'ffn_norm', shape: ['hidden'] },
    { from: 'post_mlp_layernorm', to: 'post_ffw_norm', shape: ['hidden'] },
    ...biasedAttention.slice(0, 3),
    ...attention.slice(3),
    { from: 'mlp.gate_up_proj', to: 'ffn_up', shape: ['twoFeedForward', 'hidden'] },
    { from: 'mlp.down_proj', to: 'ffn_down', shape: ['hidden', 'feedForward'] },
  ],
};

/** ChatGLM 3 and GLM-4-9B. @param biases true if the products of attention have biases; undefined if config.json does not say */
export const chatglm = (biases: boolean | undefined): TensorTable => ({
  layersKey: 'num_layers',
  layerPrefix: 'encoder.layers.',
  outside: [
    { from: 'embedding.word_embeddings', to: 'token_embd', shape: ['vocabulary', 'hidden'] },
    { from: 'encoder.final_layernorm', to: 'output_norm', shape: ['hidden'] },
    { from: 'output_layer', to: 'output', shape: ['vocabulary', 'hidden'], optional: true },
  ],
  layer: [
    ...norms,
    {
      from: 'self_attention.query_key_value',
      to: 'attn_qkv',
      shape: ['together', 'hidden'],
      bias: biases === undefined ? 'optional' : biases ? 'always' : 'never',
    },
    { from: 'self_attention.dense', to: 'attn_output', shape: ['hidden', 'queries'] },
    { from: 'mlp.dense_h_to_4h', to: 'ffn_up', shape: ['twoFeedForward', 'hidden'] },
    { from: 'mlp.dense_4h_to_h', to: 'ffn_down', shape: ['hidden', 'feedForward'] },
  ],
  rename: (name) => (name.endsWith('rotary_pos_emb.inv_freq') ? undefined : name.replace(/^transformer\./, '')),
});

/** GLM-4-9B and GLM-Edge in the names of transformers. */
export const glm: TensorTable = {
  layerPrefix,
  outside: outsideDecoder,
  layer: [
    ...norms,
    ...biasedAttention.slice(0, 3),
    ...attention.slice(3),
    { from: 'mlp.gate_up_proj', to: 'ffn_up', shape: ['twoFeedForward', 'hidden'] },
    { from: 'mlp.down_proj', to: 'ffn_down', shape: ['hidden', 'feedForward'] },
  ],
};

/** Names of norms in the first models of BitNet. */
const bitnetNames: Readonly<Record<string, string>> = {
  'self_attn.inner_attn_ln': 'self_attn.attn_sub_norm',
  'mlp.ffn_layernorm': 'mlp.ffn_sub_norm',
};

/** BitNet, whose products are rounded to three values, and have a norm before the last one of each part. The head is the embedding. */
export const bitnet: TensorTable = {
  layerPrefix,
  outside: [embedding, finalNorm],
  layer: [
    ...norms,
    ...[...attention, ...feedForward].map((row): Row => ({ ...row, ternary: true })),
    { from: 'self_attn.attn_sub_norm', to: 'attn_sub_norm', shape: ['hidden'] },
    { from: 'mlp.ffn_sub_norm', to: 'ffn_sub_norm', shape: ['feedForward'] },
  ],
  rename: (name) => {
    const old = Object.keys(bitnetNames).find((part) => name.endsWith(`.${part}.weight`));
    return withoutHead(old === undefined ? name : name.replace(old, bitnetNames[old] as string));
  },
};

export const starcoder2: TensorTable = {
  layerPrefix,
  outside: [embedding, { ...finalNorm, bias: 'always' }, head],
  layer: [
    ...withBias(norms, 'always'),
    ...withBias(attention, 'always'),
    { from: 'mlp.c_fc', to: 'ffn_up', shape: ['feedForward', 'hidden'], bias: 'always' },
    { from: 'mlp.c_proj', to: 'ffn_down', shape: ['hidden', 'feedForward'], bias: 'always' },
  ],
};

/** @param parallel true if layers have one norm, for their attention and their feed-forward part */
export const stablelm = (parallel: boolean, biases: boolean, normsOfHeads: boolean): TensorTable => ({
  layerPrefix,
  outside: [embedding, { ...finalNorm, bias: 'always' }, head],
  layer: [
    ...withBias(parallel ? norms.slice(0, 1) : norms, 'always'),
    ...(biases ? withBias(attention.slice(0, 3), 'always') : attention.slice(0, 3)),
    ...attention.slice(3),
    ...(normsOfHeads
      ? ([
          { from: 'self_attn.q_layernorm.norms.#', to: 'attn_q_norm', shape: ['head'], count: 'heads' },
          { from: 'self_attn.k_layernorm.norms.#', to: 'attn_k_norm', shape: ['head'], count: 'keyHeads' },
        ] as const)
      : []),
    ...feedForward,
  ],
});

/**
 * Rows of groups, each of which has the queries that share a key, this key and its value, gathered to all queries, all keys and all values.
 */
const regrouped: RowsOf = ({ heads, keyHeads, head: rows }) => {
  const queries = heads / keyHeads;
  const part = (i: number) => Math.max(0, (i % (queries + 2)) - queries + 1);
  return Array.from({ length: heads + 2 * keyHeads }, (_, i) => i)
    .sort((a, b) => part(a) - part(b))
    .map((i) => [i * rows, rows] as const);
};

export const gptneox: TensorTable = {
  layerPrefix: 'gpt_neox.layers.',
  outside: [
    { from: 'gpt_neox.embed_in', to: 'token_embd', shape: ['vocabulary', 'hidden'] },
    { from: 'gpt_neox.final_layer_norm', to: 'output_norm', shape: ['hidden'], bias: 'always' },
    { from: 'embed_out', to: 'output', shape: ['vocabulary', 'hidden'], optional: true },
  ],
  layer: withBias(
    [
      ...norms,
      {
        from: 'attention.query_key_value',
        to: '',
        shape: ['together', 'hidden'],
        shares: [{ to: 'attn_qkv', shape: ['together', 'hidden'], windows: regrouped }],
      },
      { from: 'attention.dense', to: 'attn_output', shape: ['hidden', 'hidden'] },
      { from: 'mlp.dense_h_to_4h', to: 'ffn_up', shape: ['feedForward', 'hidden'] },
      { from: 'mlp.dense_4h_to_h', to: 'ffn_down', shape: ['hidden', 'feedForward'] },
    ],
    'always',
  ),
  // Masks of old files.
  rename: (name) => (/\.attention\.(rotary_emb|bias|masked_bias)/.test(name) ? undefined : name),
};

/** @param twoNorms true if the attention and the feed-forward part have a norm each. @param groups of queries that share a key */
export const falcon = (twoNorms: boolean, groups: number): TensorTable => ({
  layerPrefix: 'transformer.h.',
  outside: [
    { from: 'transformer.word_embeddings', to: 'token_embd', shape: ['vocabulary', 'hidden'] },
    { from: 'transformer.ln_f', to: 'output_norm', shape: ['hidden'], bias: 'always' },
    head,
  ],
  layer: [
    ...withBias(
      twoNorms
        ? [
            { from: 'ln_mlp', to: 'attn_norm', shape: ['hidden'] },
            { from: 'ln_attn', to: 'attn_norm_2', shape: ['hidden'] },
          ]
        : norms.slice(0, 1),
      'always',
    ),
    {
      from: 'self_attention.query_key_value',
      shape: ['together', 'hidden'],
      ...(groups > 1
        ? { to: '', shares: [{ to: 'attn_qkv', shape: ['together', 'hidden'], windows: regrouped }] }
        : { to: 'attn_qkv' }),
    },
    { from: 'self_attention.dense', to: 'attn_output', shape: ['hidden', 'hidden'] },
    { from: 'mlp.dense_h_to_4h', to: 'ffn_up', shape: ['feedForward', 'hidden'] },
    { from: 'mlp.dense_4h_to_h', to: 'ffn_down', shape: ['hidden', 'feedForward'] },
  ],
});

export const phi2: TensorTable = {
  layerPrefix,
  outside: [
    embedding,
    { from: 'model.final_layernorm', to: 'output_norm', shape: ['hidden'], bias: 'always' },
    { from: 'lm_head', to: 'output', shape: ['vocabulary', 'hidden'], bias: 'optional' },
  ],
  layer: withBias(
    [
      ...norms.slice(0, 1),
      ...attention.slice(0, 3),
      { from: 'self_attn.dense', to: 'attn_output', shape: ['hidden', 'queries'] },
      { from: 'mlp.fc1', to: 'ffn_up', shape: ['feedForward', 'hidden'] },
      { from: 'mlp.fc2', to: 'ffn_down', shape: ['hidden', 'feedForward'] },
    ],
    'always',
  ),
};

/** One norm for attention and feed-forward part. @param headNorms true if queries and keys have norms of each head */
export const commandR = (headNorms: boolean): TensorTable => ({
  layerPrefix,
  outside: [embedding, finalNorm],
  layer: [
    ...norms.slice(0, 1),
    ...attention,
    ...(headNorms
      ? ([
          { from: 'self_attn.q_norm', to: 'attn_q_norm', shape: ['heads', 'head'] },
          { from: 'self_attn.k_norm', to: 'attn_k_norm', shape: ['keyHeads', 'head'] },
        ] as const)
      : []),
    ...feedForward,
  ],
});

export const cohere2: TensorTable = {
  layerPrefix,
  outside: [embedding, finalNorm],
  layer: [...norms.slice(0, 1), ...attention, ...feedForward],
};

/** @param tied true if the head is the embedding, which the converter then leaves out */
export const hunyuan = (tied: boolean): TensorTable => ({
  layerPrefix,
  outside: tied ? [embedding, finalNorm] : outsideDecoder,
  layer: [
    ...norms,
    ...biasedAttention,
    { from: 'self_attn.query_layernorm', to: 'attn_q_norm', shape: ['head'] },
    { from: 'self_attn.key_layernorm', to: 'attn_k_norm', shape: ['head'] },
    ...feedForward,
  ],
  ...(tied ? { rename: withoutHead } : {}),
});

/** One window of rows. */
const rowsFrom =
  (first: (sizes: Parameters<RowsOf>[0]) => number, count: (sizes: Parameters<RowsOf>[0]) => number): RowsOf =>
  (sizes) => [[first(sizes), count(sizes)]];

/** Ernie with the attention's matrices in one, and gate and up in another, as Paddle writes it. */
const ernieTogether: readonly Row[] = [
  {
    from: 'self_attn.qkv_proj',
    to: '',
    shape: ['together', 'hidden'],
    shares: [
      {
        to: 'attn_q',
        shape: ['queries', 'hidden'],
        windows: rowsFrom(
          () => 0,
          (n) => n.queries,
        ),
      },
      {
        to: 'attn_k',
        shape: ['keys', 'hidden'],
        windows: rowsFrom(
          (n) => n.queries,
          (n) => n.keys,
        ),
      },
      {
        to: 'attn_v',
        shape: ['keys', 'hidden'],
        windows: rowsFrom(
          (n) => n.queries + n.keys,
          (n) => n.keys,
        ),
      },
    ],
  },
  {
    from: 'mlp.up_gate_proj',
    to: '',
    shape: ['twoFeedForward', 'hidden'],
    shares: [
      {
        to: 'ffn_gate',
        shape: ['feedForward', 'hidden'],
        windows: rowsFrom(
          () => 0,
          (n) => n.feedForward,
        ),
      },
      {
        to: 'ffn_up',
        shape: ['feedForward', 'hidden'],
        windows: rowsFrom(
          (n) => n.feedForward,
          (n) => n.feedForward,
        ),
      },
    ],
  },
];

function ernieName(name: string): string {
  return name.replace('ernie.', 'model.');
}

/** @param together true if the folder has fused matrices */
export const ernie = (together: boolean): TensorTable => ({
  layerPrefix,
  outside: outsideDecoder,
  layer: together
    ? [...norms, ...ernieTogether, ...attention.slice(3), ...feedForward.slice(2)]
    : [...norms, ...biasedAttention, ...withBias(feedForward, 'optional')],
  rename: ernieName,
});

export const nemotron: TensorTable = {
  layerPrefix,
  outside: plusOne([embedding, { ...finalNorm, bias: 'always' }, head]),
  layer: plusOne([...withBias(norms, 'always'), ...biasedAttention, ...withBias(feedForward.slice(1), 'optional')]),
};

export const seedOss: TensorTable = {
  layerPrefix,
  outside: outsideDecoder,
  layer: [
    { from: 'input_layernorm', to: 'attn_norm', shape: ['hidden'] },
    { from: 'post_attention_layernorm', to: 'post_attention_norm', shape: ['hidden'] },
    ...biasedAttention,
    ...feedForward,
  ],
};

/** @param convolves true for layers with a short convolution in the place of attention */
export const lfm2 = (convolves: (layer: number) => boolean): TensorTable => ({
  layerPrefix,
  outside: [
    embedding,
    // llama.cpp has this name for it, though it is the last norm.
    { from: 'model.embedding_norm', to: 'token_embd_norm', shape: ['hidden'] },
    head,
  ],
  layer: [
    { from: 'operator_norm', to: 'attn_norm', shape: ['hidden'] },
    { from: 'ffn_norm', to: 'ffn_norm', shape: ['hidden'] },
    ...lfmAttention.map((row): Row => ({ ...row, only: (layer) => !convolves(layer) })),
    ...shortConvolution.map((row): Row => ({ ...row, only: convolves })),
    { from: 'feed_forward.w1', to: 'ffn_gate', shape: ['feedForward', 'hidden'] },
    { from: 'feed_forward.w3', to: 'ffn_up', shape: ['feedForward', 'hidden'] },
    { from: 'feed_forward.w2', to: 'ffn_down', shape: ['hidden', 'feedForward'] },
  ],
});

const lfmAttention: readonly Row[] = [
  ...attention.slice(0, 3),
  { from: 'self_attn.out_proj', to: 'attn_output', shape: ['hidden', 'queries'] },
  { from: 'self_attn.q_layernorm', to: 'attn_q_norm', shape: ['head'] },
  { from: 'self_attn.k_layernorm', to: 'attn_k_norm', shape: ['head'] },
];

const shortConvolution: readonly Row[] = [
  { from: 'conv.conv', to: 'shortconv.conv', shape: ['hidden', 1, 'convolved'], as: ['hidden', 'convolved'] },
  { from: 'conv.in_proj', to: 'shortconv.in_proj', shape: ['threeHidden', 'hidden'] },
  { from: 'conv.out_proj', to: 'shortconv.out_proj', shape: ['hidden', 'hidden'] },
];
