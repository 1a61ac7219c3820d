/**
 * T5, mT5 and UMT5, their encoders alone or with decoders.
 * Reference: github.com/ggml-org/llama.cpp, conversion/t5.py at 5535795. Tests compare with llama.cpp v0.5.0.
 */
import { noteOf } from '../../core/note.js';
import { show } from '../../core/show.js';
import { unsupportedConfig } from '../huggingface/errors.js';
import { type Draft, encoderNumbers, type ModelClass } from '../huggingface/reading.js';
import type { Row, TensorTable } from '../huggingface/tensors.js';
import { head } from './rows.js';

/** Attention under a name. @param target the part of llama.cpp's names in front of `attn_` */
function t5Attention(name: string, target = ''): Row[] {
  return [
    { from: `${name}.q`, to: `${target}attn_q`, shape: ['queries', 'hidden'] },
    { from: `${name}.k`, to: `${target}attn_k`, shape: ['keys', 'hidden'] },
    { from: `${name}.v`, to: `${target}attn_v`, shape: ['keys', 'hidden'] },
    { from: `${name}.o`, to: `${target}attn_o`, shape: ['hidden', 'queries'] },
  ];
}

/** The feed-forward part. @param isGated true if it has a gate */
function t5FeedForward(name: string, isGated: boolean): Row[] {
  const dense = `${name}.DenseReluDense`;
  const up: Row = { from: `${dense}.wi${isGated ? '_1' : ''}`, to: 'ffn_up', shape: ['feedForward', 'hidden'] };
  return [
    { from: `${name}.layer_norm`, to: 'ffn_norm', shape: ['hidden'] },
    ...(isGated ? [{ ...up, from: `${dense}.wi_0`, to: 'ffn_gate' }] : []),
    up,
    { from: `${dense}.wo`, to: 'ffn_down', shape: ['hidden', 'feedForward'] },
  ];
}

/** Names of the embedding. */
const embeddingNames = ['decoder.embed_tokens.weight', 'encoder.embed_tokens.weight', 'shared.weight'];

/** The table of a model. @param decoderLayers undefined for an encoder alone. @param eachDistances true if each layer has distances of its own */
function t5Table({ config, names }: Draft, decoderLayers: number | undefined, eachDistances: boolean): TensorTable {
  const act = config.get('feed_forward_proj') ?? 'relu';
  if (act !== 'relu' && act !== 'gated-gelu')
    unsupportedConfig(`feed_forward_proj is ${show(act)}; llama.cpp computes T5 with "relu" or "gated-gelu" only`);
  const isGated = act === 'gated-gelu';
  const selfAttention: readonly Row[] = [
    { from: 'layer.0.layer_norm', to: 'attn_norm', shape: ['hidden'] },
    ...t5Attention('layer.0.SelfAttention'),
    {
      from: 'layer.0.SelfAttention.relative_attention_bias',
      to: 'attn_rel_b',
      shape: ['buckets', 'heads'],
      only: (layer) => eachDistances || layer === 0,
    },
  ];
  // The first tensor with a name of the embedding counts, and the others are left out.
  const first = names.find((name) => embeddingNames.includes(name));
  const rename = (name: string) =>
    embeddingNames.includes(name) ? (name === first ? 'shared.weight' : undefined) : name;
  const outside: readonly Row[] = [
    { from: 'shared', to: 'token_embd', shape: ['vocabulary', 'hidden'] },
    { from: 'encoder.final_layer_norm', to: 'enc.output_norm', shape: ['hidden'] },
  ];
  const encoder = {
    layerPrefix: 'encoder.block.',
    layerTarget: 'enc.blk.',
    layer: [...selfAttention, ...t5FeedForward('layer.1', isGated)],
    rename,
  };
  if (decoderLayers === undefined) return { ...encoder, outside };
  return {
    ...encoder,
    outside: [...outside, { from: 'decoder.final_layer_norm', to: 'dec.output_norm', shape: ['hidden'] }, head],
    second: {
      layerPrefix: 'decoder.block.',
      layerTarget: 'dec.blk.',
      layers: decoderLayers,
      layer: [
        ...selfAttention,
        { from: 'layer.1.layer_norm', to: 'cross_attn_norm', shape: ['hidden'] },
        ...t5Attention('layer.1.EncDecAttention', 'cross_'),
        ...t5FeedForward('layer.2', isGated),
      ],
    },
  };
}

const t5Defaults = {
  d_model: 512,
  d_kv: 64,
  d_ff: 2048,
  num_layers: 6,
  num_heads: 8,
  relative_attention_num_buckets: 32,
  layer_norm_epsilon: 1e-6,
};

/** Defaults of mT5 and UMT5; their sizes differ from those of T5. */
const mt5Defaults = {
  feed_forward_proj: 'gated-gelu',
  relative_attention_num_buckets: 32,
  layer_norm_epsilon: 1e-6,
  decoder_start_token_id: 0,
};

const t5Encoder: ModelClass = {
  architecture: 't5encoder',
  classes: { T5EncoderModel: t5Defaults },
  only: { relative_attention_max_distance: [128] },
  encoder: 't5',
  lacks: ['attention.causal'],
  numbers(read) {
    const { config } = read;
    const names = { layers: 'num_layers', hidden: 'd_model', heads: 'num_heads', feedForward: 'd_ff' };
    const { keys, sizes } = encoderNumbers(read, names, 'layer_norm_epsilon');
    const [headSize, buckets] = [config.whole('d_kv'), config.whole('relative_attention_num_buckets')];
    const queries = sizes.heads * headSize;
    return {
      keys: {
        ...keys,
        context_length: config.whole('n_positions', 512),
        'attention.layer_norm_rms_epsilon': keys['attention.layer_norm_epsilon'],
        'attention.key_length': headSize,
        'attention.value_length': headSize,
        'attention.relative_buckets_count': buckets,
      },
      sizes: { ...sizes, head: headSize, queries, keys: queries, buckets },
    };
  },
  details: (draft) => ({ table: t5Table(draft, undefined, false) }),
};

/** Keys and the table of a model with its decoder. */
function readT5(draft: Draft, eachDistances: boolean) {
  const { config, notes, sizes } = draft;
  const decoderLayers = config.maybeWhole('num_decoder_layers') ?? sizes.layers;
  const tied = config.maybeFlag('tie_word_embeddings') ?? true;
  if (tied) {
    const text =
      'tie_word_embeddings is true: transformers divides what the head takes by the square root of d_model, and llama.cpp does not, so ' +
      'that its logits are larger by this factor; sample with a temperature that is larger by it, too';
    notes.push(noteOf('unscaledLogits', { factor: Math.sqrt(sizes.hidden) }, text));
  }
  const start = config.whole('decoder_start_token_id', undefined, 0);
  return {
    keys: { decoder_block_count: decoderLayers, decoder_start_token_id: start },
    table: t5Table(draft, decoderLayers, eachDistances),
    // A head that is stored is written, whatever the file says.
    tied: tied ? undefined : false,
  };
}

const t5: ModelClass = {
  ...t5Encoder,
  architecture: 't5',
  classes: {
    T5ForConditionalGeneration: { ...t5Defaults, decoder_start_token_id: 0 },
    MT5ForConditionalGeneration: { ...mt5Defaults, tie_word_embeddings: false },
  },
  details: (draft) => readT5(draft, false),
};

/** UMT5, of which each layer has distances of its own. */
const umt5: ModelClass = {
  ...t5,
  classes: { UMT5ForConditionalGeneration: mt5Defaults },
  details: (draft) => readT5(draft, true),
};

export const t5Family: readonly ModelClass[] = [t5Encoder, t5, umt5];
