/**
 * Encoders: the keys that each reads, and the settings that llama.cpp supports for each.
 * Reference: github.com/ggml-org/llama.cpp, conversion/ bert.py at 2ca8afc, t5.py 5535795. Tests compare with llama.cpp v0.5.0.
 */
import { noteOf } from '../../core/note.js';
import { show } from '../../core/show.js';
import type { Config } from './config.js';
import { badFolderFile, unsupported } from './errors.js';
import { isObject } from './json.js';
import { type Model, none, type Read, vocabularyOf } from './reading.js';
import * as tables from './tables.js';
import * as encoders from './tables-encoders.js';
import type { TensorTable } from './tensors.js';

const file = 'config.json';

/** Sizes of an encoder, whose heads are all alike. */
function encoderSizes(layers: number, hidden: number, heads: number, feedForward: number) {
  if (hidden % heads !== 0) badFolderFile(file, `vectors of ${hidden} elements cannot be divided into ${heads} heads`);
  const head = hidden / heads;
  const sizes = {
    ...none,
    layers,
    hidden,
    twoHidden: 2 * hidden,
    heads,
    keyHeads: heads,
    head,
    queries: hidden,
    keys: hidden,
  };
  return { ...sizes, together: 3 * hidden, feedForward, twoFeedForward: 2 * feedForward };
}

/** @param positionKind the kind of positions */
function bert(read: Read, positionKind = 'absolute'): Model {
  const { config, notes } = read;
  config.only('hidden_act', 'gelu');
  config.only('position_embedding_type', positionKind);
  config.only('is_decoder', false);
  const [layers, hidden] = [config.whole('num_hidden_layers'), config.whole('hidden_size')];
  const [heads, feedForward] = [config.whole('num_attention_heads'), config.whole('intermediate_size')];
  const positions = config.whole('max_position_embeddings');
  return {
    architecture: 'bert',
    hyper: {
      layers,
      context: positions,
      hidden,
      feedForward,
      heads,
      normEpsilon: config.positive('layer_norm_eps'),
      causal: false,
    },
    sizes: {
      ...encoderSizes(layers, hidden, heads, feedForward),
      vocabulary: vocabularyOf(read),
      positions,
      tokenTypes: config.whole('type_vocab_size', 1),
    },
    table: tables.bert,
    encoder: 'wordpiece',
    made: () => [],
    tied: undefined,
    notes,
  };
}

/** Jina v2 with a WordPiece vocabulary, whose attention falls with the distance (ALiBi). */
function jinaBert(read: Read): Model {
  const { config } = read;
  config.only('feed_forward_type', 'geglu');
  const model = bert(read, 'alibi');
  return { ...model, architecture: 'jina-bert-v2', table: encoders.jinaBert };
}

/** Training context of a Nomic model, from its config. */
function nomicContext(config: Config): number {
  const [positions, trained] = [config.whole('n_positions'), config.whole('max_trained_positions', 2048)];
  if (positions === 8192 && trained === 2048) return 2048;
  if (positions === 2048 && trained === 2048) return 512;
  return unsupported(file, `n_positions is ${positions} and max_trained_positions ${trained}; known are 8192 and 2048`);
}

function nomicBert(read: Read): Model {
  const { config, notes } = read;
  if (config.get('moe_every_n_layers') !== undefined && config.get('moe_every_n_layers') !== 0)
    unsupported(file, 'moe_every_n_layers is set; Nomic models with experts are not supported');
  config.only('activation_function', 'swiglu');
  for (const key of ['causal', 'qkv_proj_bias', 'mlp_fc1_bias', 'mlp_fc2_bias', 'prenorm', 'rotary_emb_interleaved'])
    config.only(key, false);
  config.only('rotary_emb_fraction', 1);
  if (config.get('rotary_emb_scale_base') !== undefined)
    unsupported(file, 'rotary_emb_scale_base is set; llama.cpp computes Nomic models without it');
  const [layers, hidden] = [config.whole('n_layer'), config.whole('n_embd')];
  const [heads, feedForward] = [config.whole('n_head'), config.whole('n_inner')];
  return {
    architecture: 'nomic-bert',
    hyper: {
      layers,
      context: nomicContext(config),
      hidden,
      feedForward,
      heads,
      theta: config.positive('rotary_emb_base'),
      normEpsilon: config.positive('layer_norm_epsilon'),
      causal: false,
    },
    sizes: {
      ...encoderSizes(layers, hidden, heads, feedForward),
      vocabulary: vocabularyOf(read),
      tokenTypes: config.whole('type_vocab_size', 1),
    },
    table: tables.nomicBert,
    encoder: 'wordpiece',
    made: () => [],
    tied: undefined,
    notes,
  };
}

/**
 * Names of a classifier's outputs, by their numbers; undefined for names that say nothing. A file that names none has two outputs.
 */
function labelsOf(config: Config): { readonly names: readonly string[] | undefined; readonly count: number } {
  const stated = config.get('id2label');
  if (stated === undefined) return { names: undefined, count: config.whole('num_labels', 2) };
  if (!isObject(stated)) return badFolderFile(file, `id2label has to be an object, got ${show(stated)}`);
  const names = Object.keys(stated)
    .sort((a, b) => Number(a) - Number(b))
    .map((key) => stated[key]);
  if (names.length === 0 || names.some((name) => typeof name !== 'string'))
    return badFolderFile(file, 'id2label has to name each output of the classifier');
  const isUsual = names.length === 2 && names[0] === 'LABEL_0';
  return { names: isUsual ? undefined : (names as string[]), count: names.length };
}

/** Positions of RoBERTa that come before the first one: those up to the padding. */
function positionOffset(config: Config, stored: number): number {
  const offset = config.whole('pad_token_id', 1, 0) + 1;
  if (offset >= stored) badFolderFile(file, `pad_token_id ${offset - 1} leaves none of ${stored} positions`);
  return offset;
}

/** XLM-R, or Jina v3, whose config.json names adapters. */
function xlmRoberta(read: Read): Model {
  const { config, notes } = read;
  const adapters = config.get('lora_adaptations');
  if (adapters === undefined) return roberta(read, 'xlm-roberta', false);
  if (!Array.isArray(adapters) || !adapters.every((name) => typeof name === 'string'))
    badFolderFile(file, `lora_adaptations has to be an array of names, got ${show(adapters)}`);
  const model = bert(read, 'rotary');
  const stored = model.sizes.positions;
  const text =
    `the adapters ${(adapters as string[]).join(', ')} are left out: llama.cpp's convert_hf_to_gguf.py writes each as a file of its own, ` +
    'and --lora of llama.cpp adds one to this model';
  notes.push(noteOf('adaptersLeftOut', { adapters }, text));
  return {
    ...model,
    architecture: 'jina-bert-v3',
    hyper: {
      ...model.hyper,
      context: stored - positionOffset(config, stored),
      theta: config.positive('rotary_emb_base', 10000),
    },
    table: encoders.jinaXlmRoberta,
    encoder: 'xlm-roberta',
  };
}

/** RoBERTa and XLM-R: BERT whose positions begin behind the padding. `classifies` is true for models with a classifier. */
function roberta(read: Read, encoder: 'roberta' | 'xlm-roberta', classifies: boolean): Model {
  const { config, notes } = read;
  const model = bert(read);
  const { positions: stored, hidden } = model.sizes;
  const offset = positionOffset(config, stored);
  const labels = labelsOf(config);
  if (classifies) {
    const text =
      'the classifier needs the pooling RANK, which the converter does not write: run llama.cpp with --pooling rank';
    notes.push(noteOf('ranks', { outputs: labels.count }, text));
  }
  return {
    ...model,
    hyper: {
      ...model.hyper,
      context: stored - offset,
      ...(labels.names === undefined ? {} : { labels: labels.names }),
    },
    sizes: { ...model.sizes, storedPositions: stored, positions: stored - offset, hidden, labels: labels.count },
    table: encoders.roberta(offset, classifies),
    encoder,
  };
}

function distilBert(read: Read): Model {
  const { config, notes } = read;
  config.only('activation', 'gelu');
  const [layers, hidden] = [config.whole('n_layers'), config.whole('dim')];
  const [heads, feedForward] = [config.whole('n_heads'), config.whole('hidden_dim')];
  const positions = config.whole('max_position_embeddings');
  return {
    architecture: 'bert',
    hyper: { layers, context: positions, hidden, feedForward, heads, earlyNormEpsilon: 1e-12, causal: false },
    sizes: { ...encoderSizes(layers, hidden, heads, feedForward), vocabulary: vocabularyOf(read), positions },
    table: encoders.distilBert,
    encoder: 'wordpiece',
    made: () => [],
    tied: undefined,
    notes,
  };
}

function modernBert(read: Read): Model {
  const { config, rope, notes } = read;
  config.only('hidden_activation', 'gelu');
  for (const key of ['attention_bias', 'mlp_bias', 'norm_bias']) config.only(key, false);
  const [layers, hidden] = [config.whole('num_hidden_layers'), config.whole('hidden_size')];
  const [heads, feedForward] = [config.whole('num_attention_heads'), config.whole('intermediate_size')];
  const epsilon = config.positive('norm_eps');
  const window = config.whole('local_attention');
  if (window % 2 !== 0) badFolderFile(file, `local_attention is ${window}; it has to be even`);
  // The runtime reads one addend, and the converter writes one for norms of each kind that the file states.
  const stated = config.maybePositive('layer_norm_eps');
  if (stated !== undefined && stated !== epsilon)
    unsupported(file, `layer_norm_eps is ${stated} and norm_eps ${epsilon}; llama.cpp computes them alike only`);
  return {
    architecture: 'modern-bert',
    hyper: {
      layers,
      context: config.whole('max_position_embeddings'),
      hidden,
      feedForward,
      heads,
      theta: rope.theta ?? config.positive('global_rope_theta'),
      localTheta: rope.localTheta ?? config.positive('local_rope_theta'),
      rmsEpsilon: epsilon,
      normEpsilon: stated ?? epsilon,
      causal: false,
      window,
      globalStep: config.whole('global_attn_every_n_layers'),
      lateRopeType: 'none',
      vocabulary: vocabularyOf(read),
      activation: 'gelu',
    },
    sizes: { ...encoderSizes(layers, hidden, heads, feedForward), vocabulary: vocabularyOf(read) },
    table: encoders.modernBert,
    encoder: 'modern-bert',
    made: () => [],
    tied: undefined,
    notes,
  };
}

/** An encoder of T5. @param ownDistances true if each layer has distances of its own */
function t5encoder(read: Read, ownDistances = false): Model {
  const { config, notes } = read;
  config.only('relative_attention_max_distance', 128);
  const [layers, hidden] = [config.whole('num_layers'), config.whole('d_model')];
  const [heads, feedForward] = [config.whole('num_heads'), config.whole('d_ff')];
  const [head, buckets] = [config.whole('d_kv'), config.whole('relative_attention_num_buckets')];
  const epsilon = config.positive('layer_norm_epsilon');
  const queries = heads * head;
  return {
    architecture: 't5encoder',
    hyper: {
      layers,
      context: config.whole('n_positions', 512),
      hidden,
      feedForward,
      heads,
      head,
      normEpsilon: epsilon,
      rmsEpsilon: epsilon,
      buckets,
    },
    sizes: {
      ...encoderSizes(layers, hidden, 1, feedForward),
      heads,
      head,
      queries,
      keys: queries,
      vocabulary: vocabularyOf(read),
      buckets,
    },
    table: withT5Embedding(read, encoders.t5(isGated(config), ownDistances)),
    encoder: 't5',
    made: () => [],
    tied: undefined,
    notes,
  };
}

/** The embedding has one of three names; the first tensor counts, and the others are left out. */
function withT5Embedding({ names }: Read, table: TensorTable): TensorTable {
  const found = names.find((name) => encoders.t5Embeddings.includes(name));
  return {
    ...table,
    rename: (name) => {
      if (!encoders.t5Embeddings.includes(name)) return name;
      return name === found ? 'shared.weight' : undefined;
    },
  };
}

/** True if the feed-forward part of T5 has a gate. */
function isGated(config: Config): boolean {
  const act = config.get('feed_forward_proj') ?? 'relu';
  if (act !== 'relu' && act !== 'gated-gelu')
    unsupported(file, `feed_forward_proj is ${show(act)}; llama.cpp computes T5 with "relu" or "gated-gelu" only`);
  return act === 'gated-gelu';
}

/** T5, mT5 and UMT5 with their decoders. */
function t5(read: Read, ownDistances: boolean): Model {
  const { config, notes } = read;
  const model = t5encoder(read, ownDistances);
  const decoderLayers = config.maybeWhole('num_decoder_layers') ?? model.sizes.layers;
  const tied = config.maybeFlag('tie_word_embeddings') ?? true;
  if (tied) {
    const text =
      'tie_word_embeddings is true: transformers divides what the head takes by the square root of d_model, and llama.cpp does not, so ' +
      'that its logits are larger by this factor; sample with a temperature that is larger by it, too';
    notes.push(noteOf('unscaledLogits', { factor: Math.sqrt(model.sizes.hidden) }, text));
  }
  return {
    ...model,
    architecture: 't5',
    hyper: { ...model.hyper, decoderLayers, decoderStart: config.whole('decoder_start_token_id', undefined, 0) },
    table: withT5Embedding(read, encoders.t5WithDecoder(isGated(config), ownDistances, decoderLayers)),
    // A head that is stored is written, whatever the file says.
    tied: tied ? undefined : false,
  };
}

/** Readers by the name that config.json has under `architectures`. */
export const encoderReaders: Readonly<Record<string, (read: Read) => Model>> = {
  BertModel: (read) => bert(read),
  BertForMaskedLM: (read) => bert(read),
  JinaBertModel: jinaBert,
  JinaBertForMaskedLM: jinaBert,
  NomicBertModel: nomicBert,
  RobertaModel: (read) => roberta(read, 'roberta', false),
  RobertaForSequenceClassification: (read) => roberta(read, 'roberta', true),
  XLMRobertaModel: xlmRoberta,
  XLMRobertaForSequenceClassification: (read) => roberta(read, 'xlm-roberta', true),
  DistilBertModel: distilBert,
  DistilBertForMaskedLM: distilBert,
  ModernBertModel: modernBert,
  ModernBertForMaskedLM: modernBert,
  T5EncoderModel: (read) => t5encoder(read),
  T5ForConditionalGeneration: (read) => t5(read, false),
  MT5ForConditionalGeneration: (read) => t5(read, false),
  UMT5ForConditionalGeneration: (read) => t5(read, true),
};
