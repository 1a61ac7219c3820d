/**
 * BERT and encoders that follow it: DistilBERT, RoBERTa, XLM-R, Jina v2 and v3; graphs of ELECTRA, CamemBERT and MPNet, too.
 * Reference: github.com/ggml-org/llama.cpp, conversion/bert.py at 2ca8afc. Tests compare with llama.cpp v0.5.0.
 */
import { noteOf } from '../../core/note.js';
import { show } from '../../core/show.js';
import { badConfig } from '../huggingface/errors.js';
import { isObject } from '../huggingface/json.js';
import type { Keys } from '../huggingface/keys.js';
import { type Details, type Draft, encoderNumbers, type ModelClass, noteOtherwise } from '../huggingface/reading.js';
import type { Row, TensorTable } from '../huggingface/tensors.js';
import type { EncoderGraph, Heads } from '../onnx/families.js';
import { withBias } from './rows.js';

const bertDefaults = {
  hidden_size: 768,
  intermediate_size: 3072,
  num_hidden_layers: 12,
  num_attention_heads: 12,
  max_position_embeddings: 512,
  layer_norm_eps: 1e-12,
  type_vocab_size: 2,
};

/** Tensors that an embedding model does not need: its pooler, and heads for training. */
const unused = /^(embeddings\.position_ids$|pooler\.dense\.|cls\.predictions|cls\.seq_relationship)/;

/** The name of a tensor without the prefix of the model and with endings of today; undefined for tensors that are left out. */
export function bertName(name: string): string | undefined {
  const own = name
    .replace(/^(bert|roberta|distilbert)\./, '')
    .replace(/\.gamma$/, '.weight')
    .replace(/\.beta$/, '.bias');
  return unused.test(own) ? undefined : own;
}

export const words: Row = { from: 'embeddings.word_embeddings', to: 'token_embd', shape: ['vocabulary', 'hidden'] };
const positionRow: Row = {
  from: 'embeddings.position_embeddings',
  to: 'position_embd',
  shape: ['positions', 'hidden'],
};
export const tokenTypes: Row = {
  from: 'embeddings.token_type_embeddings',
  to: 'token_types',
  shape: ['tokenTypes', 'hidden'],
};
const embeddingNorm: Row = { from: 'embeddings.LayerNorm', to: 'token_embd_norm', shape: ['hidden'], bias: 'always' };
export const earlyNorm: Row = { from: 'emb_ln', to: 'token_embd_norm', shape: ['hidden'], bias: 'always' };

const bertAttention = withBias([
  { from: 'attention.self.query', to: 'attn_q', shape: ['hidden', 'hidden'] },
  { from: 'attention.self.key', to: 'attn_k', shape: ['hidden', 'hidden'] },
  { from: 'attention.self.value', to: 'attn_v', shape: ['hidden', 'hidden'] },
  { from: 'attention.output.dense', to: 'attn_output', shape: ['hidden', 'hidden'] },
  { from: 'attention.output.LayerNorm', to: 'attn_output_norm', shape: ['hidden'] },
]);

const bertTable: TensorTable = {
  layerPrefix: 'encoder.layer.',
  outside: [words, positionRow, tokenTypes, embeddingNorm],
  layer: [
    ...bertAttention,
    ...withBias([
      { from: 'intermediate.dense', to: 'ffn_up', shape: ['feedForward', 'hidden'] },
      { from: 'output.dense', to: 'ffn_down', shape: ['hidden', 'feedForward'] },
      { from: 'output.LayerNorm', to: 'layer_output_norm', shape: ['hidden'] },
    ]),
  ],
  rename: bertName,
};

/** Settings that graphs of these encoders compute. */
const absolute = { position_embedding_type: ['absolute'], is_decoder: [false], add_cross_attention: [false] } as const;

/** Heads that classify tokens, and find the ends of answers. */
const tokenHeads: Heads = {
  ForTokenClassification: [{ linear: 'classifier' }],
  ForQuestionAnswering: [{ linear: 'qa_outputs' }],
};

/** Names of the tensors of a layer, and outside of layers. */
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

const bertGraph: EncoderGraph = {
  kind: 'encoder',
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

const electraGraph: EncoderGraph = {
  ...bertGraph,
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

export const bert: ModelClass = {
  architecture: 'bert',
  classes: { BertModel: bertDefaults, BertForMaskedLM: bertDefaults },
  writesPooling: true,
  // RoBERTa, whose architecture in llama.cpp is that of BERT.
  preTokenizers: { 'gpt-2': 'roberta-bpe' },
  only: { hidden_act: ['gelu'], position_embedding_type: ['absolute'], is_decoder: [false] },
  numbers(read) {
    const names = { layers: 'num_hidden_layers', hidden: 'hidden_size', heads: 'num_attention_heads' };
    const { config } = read;
    const all = { ...names, feedForward: 'intermediate_size', context: 'max_position_embeddings' };
    const { keys, sizes } = encoderNumbers(read, all, 'layer_norm_eps');
    return { keys, sizes: { ...sizes, tokenTypes: config.whole('type_vocab_size', 1) } };
  },
  encoder: 'wordpiece',
  table: bertTable,
  onnx: { Bert: bertGraph, Electra: electraGraph },
};

/** The names of a classifier's outputs by their numbers, which llama.cpp counts them by, and their number: two, if the file states none. */
export function readLabels({ config }: Draft): { readonly keys: Keys; readonly count: number } {
  const stated = config.get('id2label');
  if (stated !== undefined && !isObject(stated)) return badConfig(`id2label has to be an object, got ${show(stated)}`);
  const ids = Object.keys(stated ?? {}).sort((a, b) => Number(a) - Number(b));
  const labels = ids.map((key) => stated?.[key]).filter((name) => typeof name === 'string');
  if (stated !== undefined && (ids.length === 0 || labels.length < ids.length))
    return badConfig('id2label has to name each output of the classifier');
  const count = stated === undefined ? config.whole('num_labels', 2) : ids.length;
  const names = stated === undefined ? Array.from({ length: count }, (_, i) => `LABEL_${i}`) : labels;
  return { keys: { 'classifier.output_labels': stated === undefined && count === 1 ? undefined : names }, count };
}

/** Keys, sizes and the table of an encoder with a classifier. */
export function readClassifier(draft: Draft, table: TensorTable, rows: readonly Row[]): Details {
  const { keys, count } = readLabels(draft);
  const text =
    'the classifier needs the pooling RANK, which the converter does not write: run llama.cpp with --pooling rank';
  draft.notes.push(noteOf('ranks', { outputs: count }, text));
  return { keys, sizes: { labels: count }, table: { ...table, outside: [...(table.outside ?? []), ...rows] } };
}

const classifier: Row = { from: 'classifier', to: 'cls.output', shape: ['labels', 'hidden'], bias: 'always' };

/** BERT with a classifier behind its pooler, which the converter leaves out: llama.cpp computes it by the names of RoBERTa's. */
const bertClassifier: ModelClass = {
  ...bert,
  classes: { BertForSequenceClassification: bertDefaults },
  details(draft) {
    const rename = (name: string) => bertName(name.replace(/^bert\.pooler\.dense\./, 'cls.'));
    const pooler: Row = { from: 'cls', to: 'cls', shape: ['hidden', 'hidden'], bias: 'always' };
    return readClassifier(draft, { ...bertTable, rename }, [pooler, classifier]);
  },
};

const distilDefaults = { dim: 768, hidden_dim: 3072, n_layers: 6, n_heads: 12, max_position_embeddings: 512 };

const distilBertGraph: EncoderGraph = {
  kind: 'encoder',
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

const distilBert: ModelClass = {
  ...bert,
  classes: { DistilBertModel: distilDefaults, DistilBertForMaskedLM: distilDefaults },
  only: { activation: ['gelu'] },
  numbers(read) {
    const names = { layers: 'n_layers', hidden: 'dim', heads: 'n_heads', feedForward: 'hidden_dim' };
    return encoderNumbers(read, { ...names, context: 'max_position_embeddings' }, 1e-12);
  },
  table: {
    layerPrefix: 'transformer.layer.',
    outside: [words, positionRow, embeddingNorm],
    layer: withBias([
      { from: 'attention.q_lin', to: 'attn_q', shape: ['hidden', 'hidden'] },
      { from: 'attention.k_lin', to: 'attn_k', shape: ['hidden', 'hidden'] },
      { from: 'attention.v_lin', to: 'attn_v', shape: ['hidden', 'hidden'] },
      { from: 'attention.out_lin', to: 'attn_output', shape: ['hidden', 'hidden'] },
      { from: 'sa_layer_norm', to: 'attn_output_norm', shape: ['hidden'] },
      { from: 'ffn.lin1', to: 'ffn_up', shape: ['feedForward', 'hidden'] },
      { from: 'ffn.lin2', to: 'ffn_down', shape: ['hidden', 'feedForward'] },
      { from: 'output_layer_norm', to: 'layer_output_norm', shape: ['hidden'] },
    ]),
    // Heads for training are left out.
    rename: (name) => (/^(distilbert\.)?vocab_/.test(name) ? undefined : bertName(name)),
  },
  onnx: { DistilBert: distilBertGraph },
};

const distilBertClassifier: ModelClass = {
  ...distilBert,
  classes: { DistilBertForSequenceClassification: distilDefaults },
  details(draft) {
    noteOtherwise(
      draft,
      'bert',
      'the classifier of DistilBERT has a relu, in the place of which llama.cpp computes a tanh',
    );
    const first: Row = { from: 'pre_classifier', to: 'cls', shape: ['hidden', 'hidden'], bias: 'always' };
    return readClassifier(draft, distilBert.table as TensorTable, [first, classifier]);
  },
};

// ------------------------------------------------------------------------------------------------------------------------ RoBERTa

/** Positions that come before the first one: those up to the padding. */
function positionOffset({ config, sizes: { positions = 0 } }: Draft): number {
  const offset = config.whole('pad_token_id', 1, 0) + 1;
  if (offset >= positions) badConfig(`pad_token_id ${offset - 1} leaves none of ${positions} positions`);
  return offset;
}

const classifierRows: readonly Row[] = [
  { from: 'classifier.dense', to: 'cls', shape: ['hidden', 'hidden'], bias: 'always' },
  { from: 'classifier.out_proj', to: 'cls.output', shape: ['labels', 'hidden'], bias: 'always' },
];

/** Keys, sizes and the table of RoBERTa and XLM-R: BERT whose positions begin behind the padding. */
function readRoberta(draft: Draft, classifies: boolean): Details {
  const offset = positionOffset(draft);
  const stored = draft.sizes.positions ?? 0;
  const positions = stored - offset;
  const share = {
    to: 'position_embd',
    shape: [positions, 'hidden'],
    windows: () => [[offset, positions] as const],
  } as const;
  const position: Row = { ...positionRow, to: '', shape: [stored, 'hidden'], shares: [share] };
  const table: TensorTable = { ...bertTable, outside: [words, tokenTypes, embeddingNorm, position] };
  const details = classifies ? readClassifier(draft, table, classifierRows) : { table };
  return {
    ...details,
    keys: { ...details.keys, context_length: positions },
    sizes: { ...details.sizes, positions },
  };
}

const robertaGraph: EncoderGraph = {
  kind: 'encoder',
  modelType: 'roberta',
  prefix: 'roberta.',
  outside: bertOutside,
  layer: bertLayer,
  countsWords: true,
  only: absolute,
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

const mpnetGraph: EncoderGraph = {
  kind: 'encoder',
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
  heads: robertaGraph.heads,
};

const roberta: ModelClass = {
  ...bert,
  classes: { RobertaModel: bertDefaults },
  encoder: 'roberta',
  details: (draft) => readRoberta(draft, false),
  onnx: {
    Roberta: robertaGraph,
    XLMRoberta: { ...robertaGraph, modelType: 'xlm-roberta' },
    Camembert: { ...robertaGraph, modelType: 'camembert' },
    MPNet: mpnetGraph,
  },
};

const robertaClassifier: ModelClass = {
  ...roberta,
  classes: { RobertaForSequenceClassification: bertDefaults },
  details: (draft) => readRoberta(draft, true),
};

const xlmRobertaClassifier: ModelClass = {
  ...robertaClassifier,
  classes: { XLMRobertaForSequenceClassification: bertDefaults },
  encoder: 'xlm-roberta',
};

// --------------------------------------------------------------------------------------------------------------------------- Jina

/** XLM-R, or Jina v3, whose config.json names adapters, with a rotary embedding in the place of positions. */
const xlmRoberta: ModelClass = {
  ...bert,
  architecture: 'jina-bert-v3',
  classes: { XLMRobertaModel: bertDefaults },
  encoder: 'xlm-roberta',
  only: { hidden_act: ['gelu'], is_decoder: [false] },
  details(draft) {
    const { config, notes, sizes } = draft;
    const adapters = config.get('lora_adaptations');
    config.only('position_embedding_type', adapters === undefined ? 'absolute' : 'rotary');
    if (adapters === undefined) return { ...readRoberta(draft, false), architecture: 'bert' };
    if (!Array.isArray(adapters) || !adapters.every((name) => typeof name === 'string'))
      badConfig(`lora_adaptations has to be an array of names, got ${show(adapters)}`);
    const text =
      `the adapters ${(adapters as string[]).join(', ')} are left out: llama.cpp's convert_hf_to_gguf.py writes each as a file of its own, ` +
      'and --lora of llama.cpp adds one to this model';
    notes.push(noteOf('adaptersLeftOut', { adapters }, text));
    return {
      keys: {
        context_length: (sizes.positions ?? 0) - positionOffset(draft),
        'rope.freq_base': config.positive('rotary_emb_base', 10000),
      },
      table: {
        layerPrefix: 'encoder.layers.',
        outside: [words, tokenTypes, earlyNorm],
        layer: withBias([
          { from: 'mixer.Wqkv', to: 'attn_qkv', shape: ['together', 'hidden'] },
          { from: 'mixer.out_proj', to: 'attn_output', shape: ['hidden', 'hidden'] },
          { from: 'norm1', to: 'attn_output_norm', shape: ['hidden'] },
          { from: 'mlp.fc1', to: 'ffn_up', shape: ['feedForward', 'hidden'] },
          { from: 'mlp.fc2', to: 'ffn_down', shape: ['hidden', 'feedForward'] },
          { from: 'norm2', to: 'layer_output_norm', shape: ['hidden'] },
        ]),
        // Unwrap parametrizations, of which `original` is the weight, and leave adapters and the pooler out.
        rename: (name) => {
          const own = name.replace('.parametrizations.', '.').replace(/\.original$/, '');
          return /\.0\.lora_[AB]$/.test(own) ? undefined : bertName(own);
        },
      },
    };
  },
};

/** Jina v2 with a WordPiece vocabulary, whose attention falls with the distance (ALiBi). One matrix holds gate and up. */
const jinaBert: ModelClass = {
  ...bert,
  architecture: 'jina-bert-v2',
  classes: { JinaBertModel: {}, JinaBertForMaskedLM: {} },
  only: { feed_forward_type: ['geglu'], ...bert.only, position_embedding_type: ['alibi'] },
  table: {
    ...bertTable,
    outside: [words, tokenTypes, embeddingNorm],
    layer: [
      ...bertAttention,
      { from: 'mlp.gated_layers', to: 'ffn_up', shape: ['2 feedForward', 'hidden'] },
      { from: 'mlp.wo', to: 'ffn_down', shape: ['hidden', 'feedForward'], bias: 'always' },
      { from: 'mlp.layernorm', to: 'layer_output_norm', shape: ['hidden'], bias: 'always' },
    ],
  },
};

export const bertFamily: readonly ModelClass[] = [
  ...[
    bert,
    bertClassifier,
    distilBert,
    distilBertClassifier,
    roberta,
    robertaClassifier,
    xlmRoberta,
    xlmRobertaClassifier,
    jinaBert,
  ],
];
