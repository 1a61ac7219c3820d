/** Encoders whose graphs are known, by the beginnings of the names of their classes. */
import type { EncoderGraph, Heads } from './encoder.js';

const kind = 'encoder';
const absolute = { position_embedding_type: ['absolute'], is_decoder: [false], add_cross_attention: [false] } as const;

/** Heads that classify tokens, and find the ends of answers. */
const tokenHeads: Heads = {
  ForTokenClassification: [{ linear: 'classifier' }],
  ForQuestionAnswering: [{ linear: 'qa_outputs' }],
};

const bertLayer = {
  prefix: 'encoder.layer.',
  attention: ['attention.self.query', 'attention.self.key', 'attention.self.value'],
  output: 'attention.output.dense',
  norms: ['attention.output.LayerNorm', 'output.LayerNorm'],
  up: 'intermediate.dense',
  down: 'output.dense',
} as const;

const bertOutside = {
  words: 'embeddings.word_embeddings',
  positions: 'embeddings.position_embeddings',
  types: 'embeddings.token_type_embeddings',
  norm: 'embeddings.LayerNorm',
} as const;

const bert: EncoderGraph = {
  kind,
  modelType: 'bert',
  prefix: 'bert.',
  outside: bertOutside,
  layer: bertLayer,
  takesTypes: true,
  only: absolute,
  heads: {
    ...tokenHeads,
    ForMaskedLM: [
      { linear: 'cls.predictions.transform.dense' },
      { apply: 'act' },
      { norm: 'cls.predictions.transform.LayerNorm' },
      { tied: 'words', bias: 'cls.predictions.bias' },
    ],
    ForSequenceClassification: [
      { take: 'first' },
      { linear: 'bert.pooler.dense' },
      { apply: 'tanh' },
      { linear: 'classifier' },
    ],
  },
};

/** A head on the first token: a product, a function and a product. */
const denseHead = (apply: 'tanh' | 'gelu') =>
  [{ take: 'first' }, { linear: 'classifier.dense' }, { apply }, { linear: 'classifier.out_proj' }] as const;

const roberta: EncoderGraph = {
  ...bert,
  modelType: 'roberta',
  prefix: 'roberta.',
  countsWords: true,
  heads: {
    ...tokenHeads,
    ForMaskedLM: [
      { linear: 'lm_head.dense' },
      { apply: 'gelu' },
      { norm: 'lm_head.layer_norm' },
      { tied: 'words', bias: 'lm_head.bias' },
    ],
    ForSequenceClassification: denseHead('tanh'),
  },
};
const { takesTypes: _, ...withoutTypes } = roberta;

const distilbert: EncoderGraph = {
  kind,
  modelType: 'distilbert',
  prefix: 'distilbert.',
  sizes: {
    hidden: 'dim',
    layers: 'n_layers',
    heads: 'n_heads',
    feedForward: 'hidden_dim',
    activation: 'activation',
    epsilon: 'layer_norm_eps',
  },
  outside: { words: bertOutside.words, positions: bertOutside.positions, norm: bertOutside.norm },
  layer: {
    prefix: 'transformer.layer.',
    attention: ['attention.q_lin', 'attention.k_lin', 'attention.v_lin'],
    output: 'attention.out_lin',
    norms: ['sa_layer_norm', 'output_layer_norm'],
    up: 'ffn.lin1',
    down: 'ffn.lin2',
  },
  heads: {
    ...tokenHeads,
    ForMaskedLM: [
      { linear: 'vocab_transform' },
      { apply: 'act' },
      { norm: 'vocab_layer_norm' },
      { tied: 'words', bias: 'vocab_projector.bias' },
    ],
    ForSequenceClassification: [
      { take: 'first' },
      { linear: 'pre_classifier' },
      { apply: 'relu' },
      { linear: 'classifier' },
    ],
  },
};

const electra: EncoderGraph = {
  ...bert,
  modelType: 'electra',
  prefix: 'electra.',
  outside: { ...bertOutside, project: 'embeddings_project' },
  heads: {
    ...tokenHeads,
    ForMaskedLM: [
      { linear: 'generator_predictions.dense' },
      { apply: 'gelu' },
      { norm: 'generator_predictions.LayerNorm' },
      { tied: 'words', bias: 'generator_lm_head.bias' },
    ],
    ForSequenceClassification: denseHead('gelu'),
  },
};

const mpnet: EncoderGraph = {
  kind,
  modelType: 'mpnet',
  prefix: 'mpnet.',
  outside: {
    words: bertOutside.words,
    positions: bertOutside.positions,
    norm: bertOutside.norm,
    distances: 'encoder.relative_attention_bias',
  },
  layer: {
    ...bertLayer,
    attention: ['attention.attn.q', 'attention.attn.k', 'attention.attn.v'],
    output: 'attention.attn.o',
    norms: ['attention.LayerNorm', 'output.LayerNorm'],
  },
  countsWords: true,
  heads: roberta.heads,
};

const modernbert: EncoderGraph = {
  kind,
  modelType: 'modernbert',
  prefix: 'model.',
  sizes: {
    hidden: 'hidden_size',
    layers: 'num_hidden_layers',
    heads: 'num_attention_heads',
    feedForward: 'intermediate_size',
    activation: 'hidden_activation',
    epsilon: 'norm_eps',
  },
  outside: { words: 'embeddings.tok_embeddings', norm: 'embeddings.norm', finalNorm: 'final_norm' },
  layer: {
    prefix: 'layers.',
    attention: ['attn.Wqkv'],
    output: 'attn.Wo',
    norms: ['attn_norm', 'mlp_norm'],
    up: 'mlp.Wi',
    down: 'mlp.Wo',
    gate: 'half',
  },
  isPreNorm: true,
  rotary: 'modernbert',
  heads: {
    ForMaskedLM: [
      { linear: 'head.dense' },
      { apply: 'act' },
      { norm: 'head.norm' },
      { tied: 'words', bias: 'decoder.bias' },
    ],
    ForSequenceClassification: [
      { take: 'pooled' },
      { linear: 'head.dense' },
      { apply: 'act' },
      { norm: 'head.norm' },
      { linear: 'classifier' },
    ],
    ForTokenClassification: [
      { linear: 'head.dense' },
      { apply: 'act' },
      { norm: 'head.norm' },
      { linear: 'classifier' },
    ],
  },
};

const nomic: EncoderGraph = {
  kind,
  modelType: 'nomic_bert',
  prefix: 'bert.',
  sizes: {
    hidden: 'n_embd',
    layers: 'n_layer',
    heads: 'n_head',
    feedForward: 'n_inner',
    activation: 'activation_function',
    epsilon: 'layer_norm_epsilon',
  },
  outside: { words: bertOutside.words, types: bertOutside.types, norm: 'emb_ln' },
  layer: {
    prefix: 'encoder.layers.',
    attention: ['attn.Wqkv'],
    output: 'attn.out_proj',
    norms: ['norm1', 'norm2'],
    up: 'mlp.fc11',
    down: 'mlp.fc2',
    gate: { linear: 'mlp.fc12' },
  },
  takesTypes: true,
  rotary: 'nomic',
  activation: 'silu',
  heads: {},
  only: {
    activation_function: ['swiglu'],
    rotary_emb_fraction: [1],
    rotary_emb_interleaved: [false],
    rotary_scaling_factor: [null],
    prenorm: [false],
  },
};

/** Families by the beginnings of the names of their classes. */
export const encoderFamilies: Readonly<Record<string, EncoderGraph>> = {
  Bert: bert,
  DistilBert: distilbert,
  Roberta: withoutTypes,
  XLMRoberta: { ...withoutTypes, modelType: 'xlm-roberta' },
  Camembert: { ...withoutTypes, modelType: 'camembert' },
  Electra: electra,
  MPNet: mpnet,
  ModernBert: modernbert,
  NomicBert: nomic,
};
