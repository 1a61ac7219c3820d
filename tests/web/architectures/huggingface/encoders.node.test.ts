// Encoders, rerankers and decoders that embed texts: their keys and tensors beside tables that were written by hand from llama.cpp's converter,
// and their vectors and scores in llama.cpp beside a forward pass in float64 that knows Hugging Face's definitions only.
import { describe, expect, it } from 'vitest';
import { convertHuggingface } from '../../../../web/src/architectures/huggingface/convert.js';
import type { Conversion } from '../../../../web/src/architectures/recipe.js';
import { attention, biases, furthest, gated, headNorms, norms, permuted } from '../../support/decoder-tables.js';
import {
  add,
  type Decoder,
  decoderStates,
  encoderVectors,
  gelu,
  mixed,
  multiply,
  Reader,
  slices,
  softmax,
} from '../../support/forward.js';
import { NativeModel } from '../../support/llama-run.js';
import { safetensors } from '../../support/models.js';
import { needNative } from '../../support/native.js';
import { byName, fileOf, folderOf, type Weight, type Weights } from '../../support/recipes.js';
import { sentencePieceFile } from '../../support/sentencepiece.js';
import { Random } from '../../support/support.js';
import { expectTensors, type HandTable, weightsOfTable } from '../../support/tensor-table.js';
import { decoderConfig, plainTokenizer, wordSettings, wordTokenizer } from '../../support/tiny-huggingface.js';

/** llama.cpp's GELU comes from a table of half precision, whose steps of 2^-11 add up to 3e-3, and sums in float32 to 1e-5. */
const [near, nearGelu] = [1e-5, 3e-3];

type Json = Record<string, unknown>;
type Vector = Float64Array;
type Keys = readonly (readonly [name: string, value: unknown])[];

/** A family, as a row of the list. */
interface EncoderCase {
  readonly name: string;
  readonly architecture: string;
  readonly config: Json;
  /** Files beside config.json. */
  readonly files: Json;
  /** @defaultValue 3 */
  readonly layers?: number;
  readonly table: HandTable;
  /** Tensors that are left out. */
  readonly leftOut?: readonly (readonly [name: string, shape: readonly number[]])[];
  /** All keys of the architecture. */
  readonly keys?: Keys;
  /** Some of all keys. */
  readonly some?: Keys;
  /** Those of the tokenizer, without its lists unless they are named. */
  readonly tokens?: Keys;
  readonly notes?: readonly Json[];
  /** The pooling that a user gives on the command line. */
  readonly pooling?: number;
  /** The vector of the text, or the scores of a classifier. Undefined where llama.cpp computes it otherwise. */
  readonly vector: ((weights: Weights) => ArrayLike<number>) | undefined;
  readonly outputs?: number;
  readonly bound: number;
  readonly also?: (native: NativeModel) => void;
}

const rows = 12;

/** A Unigram tokenizer.json, in the order of XLM-R. */
const pieces: readonly (readonly [string, number])[] = [
  ['<s>', 0],
  ['<pad>', 0],
  ['</s>', 0],
  ['<unk>', 0],
  ['▁', -2],
  ['a', -3],
  ['b', -3.5],
  ['▁a', -2.5],
  ['ab', -4],
  ['c', -4.5],
  ['▁ab', -3],
];
const unigram = (more: Json = {}): Json => ({
  added_tokens: ['<s>', '<pad>', '</s>', '<unk>', '<mask>'].map((content, i) => ({
    id: i < 4 ? i : 11,
    content,
    special: true,
  })),
  normalizer: { type: 'Sequence', normalizers: [] },
  pre_tokenizer: { type: 'Metaspace', replacement: '▁', prepend_scheme: 'always' },
  model: { type: 'Unigram', unk_id: 3, vocab: [...pieces, ['<mask>', 0]] },
  ...more,
});

/** A byte-level tokenizer.json of a few tokens. */
const bytes = (post: Json = {}): Json => ({
  added_tokens: ['<s>', '<pad>', '</s>', '<unk>', '<mask>'].map((content, id) => ({ id, content, special: true })),
  pre_tokenizer: { type: 'ByteLevel', add_prefix_space: false, trim_offsets: true },
  post_processor: post,
  model: {
    type: 'BPE',
    vocab: Object.fromEntries(
      ['<s>', '<pad>', '</s>', '<unk>', '<mask>', 'a', 'b', 'c', 'Ġ', 'Ċ', 'ab', 'd'].map((token, id) => [token, id]),
    ),
    merges: ['a b'],
  },
});

const pooling = (mode: string): Json => ({
  'modules.json': [{ type: 'sentence_transformers.models.Pooling', path: '1_Pooling' }],
  '1_Pooling/config.json': { pooling_mode: mode },
});

const words = { 'tokenizer.json': wordTokenizer(), 'tokenizer_config.json': wordSettings };
const three = { id2label: { 0: 'no', 1: 'perhaps', 2: 'yes' } };
const labels = ['no', 'perhaps', 'yes'];
const text = [0, 5, 6, 7, 8, 9, 5, 10, 2];
const shape = { layers: 3, heads: 4, epsilon: 1e-5 };
const mean = (states: readonly Vector[]) => states.reduce(add).map((sum) => sum / states.length);
const ranks = (outputs: number) => ({ kind: 'ranks', outputs });

// ------------------------------------------------------------------------------------------------------------------------- BERT

/** Attention of BERT in a layer. */
const bertAttention = `
  attention.self.query.weight        attn_q.weight             64x64
  attention.self.query.bias          attn_q.bias               64
  attention.self.key.weight          attn_k.weight             64x64
  attention.self.key.bias            attn_k.bias               64
  attention.self.value.weight        attn_v.weight             64x64
  attention.self.value.bias          attn_v.bias               64
  attention.output.dense.weight      attn_output.weight        64x64
  attention.output.dense.bias        attn_output.bias          64
  attention.output.LayerNorm.weight  attn_output_norm.weight   64
  attention.output.LayerNorm.bias    attn_output_norm.bias     64`;

const bertSizes: Json = {
  hidden_size: 64,
  intermediate_size: 96,
  num_hidden_layers: 3,
  num_attention_heads: 4,
  max_position_embeddings: 34,
  layer_norm_eps: 1e-5,
  type_vocab_size: 1,
  vocab_size: rows,
  pad_token_id: 1,
};

const bertLayer = `
  ${bertAttention}
  intermediate.dense.weight          ffn_up.weight             96x64
  intermediate.dense.bias            ffn_up.bias               96
  output.dense.weight                ffn_down.weight           64x96
  output.dense.bias                  ffn_down.bias             64
  output.LayerNorm.weight            layer_output_norm.weight  64
  output.LayerNorm.bias              layer_output_norm.bias    64`;

/** RoBERTa's tensors: two rows of positions come before the first one. */
const robertaTable = (prefix: string, classifier = ''): HandTable => ({
  prefix: `${prefix}encoder.layer.`,
  outside: `
    ${prefix}embeddings.word_embeddings.weight        token_embd.weight       12x64
    ${prefix}embeddings.position_embeddings.weight    position_embd.weight    34x64  rows=2+32  as=32x64
    ${prefix}embeddings.token_type_embeddings.weight  token_types.weight      1x64
    ${prefix}embeddings.LayerNorm.weight              token_embd_norm.weight  64
    ${prefix}embeddings.LayerNorm.bias                token_embd_norm.bias    64
    ${classifier}`,
  layer: bertLayer,
});
const head = (labels: number) => `
  classifier.dense.weight     cls.weight         64x64
  classifier.dense.bias       cls.bias           64
  classifier.out_proj.weight  cls.output.weight  ${labels}x64
  classifier.out_proj.bias    cls.output.bias    ${labels}`;

const bertKeys = [
  ['block_count', 3],
  ['context_length', 32],
  ['embedding_length', 64],
  ['feed_forward_length', 96],
  ['attention.head_count', 4],
  ['attention.layer_norm_epsilon', 1e-5],
  ['attention.causal', false],
] as const;

/** Weights under the names of BERT, with the positions from the first one on. */
function asBert(weights: Weights): Map<string, Weight> {
  return new Map(
    [...weights].map(([name, { shape, values }]) => {
      const own = name.replace(/^roberta\./, '');
      if (!own.includes('position')) return [own, { shape, values }];
      return [own, { shape: [32, 64], values: values.slice(2 * 64) }];
    }),
  );
}

/** BERT with its pooler and a classifier. */
const bertTable = (outputs: number): HandTable => ({
  prefix: 'bert.encoder.layer.',
  outside: `
    bert.embeddings.word_embeddings.weight        token_embd.weight       12x64
    bert.embeddings.position_embeddings.weight    position_embd.weight    32x64
    bert.embeddings.token_type_embeddings.weight  token_types.weight      2x64
    bert.embeddings.LayerNorm.weight              token_embd_norm.weight  64
    bert.embeddings.LayerNorm.bias                token_embd_norm.bias    64
    bert.pooler.dense.weight                      cls.weight              64x64
    bert.pooler.dense.bias                        cls.bias                64
    classifier.weight                             cls.output.weight       ${outputs}x64
    classifier.bias                               cls.output.bias         ${outputs}`,
  layer: bertLayer,
});
const ranked = (outputs: number, more: Json): EncoderCase => ({
  name: `BERT with a classifier of ${outputs}`,
  architecture: 'bert',
  config: {
    ...bertSizes,
    ...{ architectures: ['BertForSequenceClassification'], max_position_embeddings: 32, type_vocab_size: 2, ...more },
  },
  files: words,
  table: bertTable(outputs),
  some: [['bert.classifier.output_labels', outputs === 3 ? labels : ['LABEL_0', 'LABEL_1']]],
  notes: [ranks(outputs)],
  pooling: 4,
  vector(weights) {
    const plain = new Map([...weights].map(([name, weight]): [string, Weight] => [name.replace('bert.', ''), weight]));
    const read = new Reader(plain);
    const [first] = encoderVectors(plain, shape, text) as [Vector];
    return read.linear('classifier', read.linear('pooler.dense', first).map(Math.tanh));
  },
  outputs,
  bound: nearGelu,
});

const xlmrConfig = { architectures: ['XLMRobertaModel'], ...bertSizes };
const berts: readonly EncoderCase[] = [
  {
    name: 'XLM-R',
    architecture: 'bert',
    config: xlmrConfig,
    files: {
      ...pooling('cls'),
      'tokenizer.json': unigram(),
      'tokenizer_config.json': {
        ...{ bos_token: '<s>', eos_token: '</s>', unk_token: '<unk>', clean_up_tokenization_spaces: false },
      },
    },
    table: robertaTable(''),
    keys: [...bertKeys, ['pooling_type', 2]],
    tokens: [
      ['model', 't5'],
      ['pre', 'default'],
      ['tokens', [...pieces.map(([piece]) => piece), '<mask>']],
      ['scores', [...pieces.map(([, score]) => score), 0]],
      ['token_type', [3, 3, 3, 2, 1, 1, 1, 1, 1, 1, 1, 3]],
      ['add_space_prefix', true],
      ['token_type_count', 1],
      ['remove_extra_whitespaces', false],
      ['bos_token_id', 0],
      ['eos_token_id', 2],
      ['unknown_token_id', 3],
      ['padding_token_id', 1],
    ],
    vector: (weights) => encoderVectors(asBert(weights), shape, text)[0]!,
    bound: nearGelu,
    also(native) {
      // By hand: of "▁ab" (-3), "▁a b" (-6) and "▁ ab" (-6), the likeliest is the first.
      expect(native.tokenize('ab a')).toEqual([10, 7]);
      expect(native.tokenize('cab')).toEqual([4, 9, 8]);
    },
  },
  {
    name: 'XLM-R with a classifier',
    architecture: 'bert',
    config: { ...xlmrConfig, architectures: ['XLMRobertaForSequenceClassification'], id2label: { 0: 'LABEL_0' } },
    files: { 'tokenizer.json': unigram() },
    table: robertaTable('roberta.', head(1)),
    keys: [...bertKeys, ['classifier.output_labels', ['LABEL_0']]],
    notes: [ranks(1)],
    pooling: 4,
    vector(weights) {
      const [first] = encoderVectors(asBert(weights), shape, text) as [Vector];
      const read = new Reader(weights);
      return read.linear('classifier.out_proj', read.linear('classifier.dense', first).map(Math.tanh));
    },
    outputs: 1,
    bound: nearGelu,
  },
  {
    name: 'RoBERTa',
    architecture: 'bert',
    config: { ...xlmrConfig, architectures: ['RobertaModel'] },
    files: {
      ...pooling('cls'),
      'tokenizer.json': bytes({ type: 'RobertaProcessing', sep: ['</s>', 2], cls: ['<s>', 0] }),
      'tokenizer_config.json': { bos_token: '<s>', eos_token: '</s>', sep_token: '</s>', cls_token: '<s>' },
    },
    table: robertaTable('roberta.'),
    keys: [...bertKeys, ['pooling_type', 2]],
    tokens: [
      ['model', 'gpt2'],
      ['pre', 'roberta-bpe'],
      ['bos_token_id', 0],
      ['eos_token_id', 2],
      ['seperator_token_id', 2],
      ['cls_token_id', 0],
      ['padding_token_id', 1],
      ['add_bos_token', true],
      ['add_eos_token', true],
      ['add_sep_token', true],
      ['token_type_count', 1],
    ],
    vector: (weights) => encoderVectors(asBert(weights), shape, text)[0]!,
    bound: nearGelu,
  },
  ranked(3, three),
  // It has names for two outputs without any.
  ranked(2, {}),
];

// ------------------------------------------------------------------------------------------------------------------- DistilBERT

const distilTable: HandTable = {
  prefix: 'distilbert.transformer.layer.',
  outside: `
    distilbert.embeddings.word_embeddings.weight      token_embd.weight       12x64
    distilbert.embeddings.position_embeddings.weight  position_embd.weight    32x64
    distilbert.embeddings.LayerNorm.weight            token_embd_norm.weight  64
    distilbert.embeddings.LayerNorm.bias              token_embd_norm.bias    64`,
  layer: `
    attention.q_lin.weight    attn_q.weight             64x64
    attention.q_lin.bias      attn_q.bias               64
    attention.k_lin.weight    attn_k.weight             64x64
    attention.k_lin.bias      attn_k.bias               64
    attention.v_lin.weight    attn_v.weight             64x64
    attention.v_lin.bias      attn_v.bias               64
    attention.out_lin.weight  attn_output.weight        64x64
    attention.out_lin.bias    attn_output.bias          64
    sa_layer_norm.weight      attn_output_norm.weight   64
    sa_layer_norm.bias        attn_output_norm.bias     64
    ffn.lin1.weight           ffn_up.weight             96x64
    ffn.lin1.bias             ffn_up.bias               96
    ffn.lin2.weight           ffn_down.weight           64x96
    ffn.lin2.bias             ffn_down.bias             64
    output_layer_norm.weight  layer_output_norm.weight  64
    output_layer_norm.bias    layer_output_norm.bias    64`,
};
/** The same weights under the names of BERT. */
function renamed(weights: Weights): Map<string, Weight> {
  const own = new Map<string, Weight>();
  for (const [name, weight] of weights) {
    const plain = name
      .replace('distilbert.', '')
      .replace('transformer.layer.', 'encoder.layer.')
      .replace('attention.q_lin', 'attention.self.query')
      .replace('attention.k_lin', 'attention.self.key')
      .replace('attention.v_lin', 'attention.self.value')
      .replace('attention.out_lin', 'attention.output.dense')
      .replace('sa_layer_norm', 'attention.output.LayerNorm')
      .replace('ffn.lin1', 'intermediate.dense')
      .replace('ffn.lin2', 'output.dense')
      .replace('output_layer_norm', 'output.LayerNorm');
    own.set(plain, weight);
  }
  own.set('embeddings.token_type_embeddings.weight', { shape: [1, 64], values: new Float32Array(64) });
  return own;
}

const distilConfig: Json = {
  ...{ dim: 64, hidden_dim: 96, n_layers: 3, n_heads: 4, max_position_embeddings: 32 },
  ...{ vocab_size: rows, activation: 'gelu' },
};
const distils: readonly EncoderCase[] = [
  {
    name: 'DistilBERT',
    architecture: 'bert',
    config: { architectures: ['DistilBertForMaskedLM'], ...distilConfig },
    files: { ...pooling('cls'), ...words },
    table: distilTable,
    leftOut: [['vocab_projector.bias', [rows]]],
    keys: [
      ['attention.layer_norm_epsilon', 1e-12],
      ['block_count', 3],
      ['context_length', 32],
      ['embedding_length', 64],
      ['feed_forward_length', 96],
      ['attention.head_count', 4],
      ['attention.causal', false],
      ['pooling_type', 2],
    ],
    vector: (weights) => encoderVectors(renamed(weights), { ...shape, epsilon: 1e-12 }, text)[0]!,
    bound: nearGelu,
  },
  {
    name: 'DistilBERT with a classifier',
    architecture: 'bert',
    config: { architectures: ['DistilBertForSequenceClassification'], ...distilConfig, ...three },
    files: words,
    table: {
      ...distilTable,
      outside: `${distilTable.outside}
        pre_classifier.weight  cls.weight         64x64
        pre_classifier.bias    cls.bias           64
        classifier.weight      cls.output.weight  3x64
        classifier.bias        cls.output.bias    3`,
    },
    notes: [{ kind: 'computedOtherwise' }, ranks(3)],
    pooling: 4,
    vector: undefined,
    outputs: 3,
    bound: nearGelu,
  },
];

// ------------------------------------------------------------------------------------------------------------------------- Jina

const jina2Table: HandTable = {
  prefix: 'bert.encoder.layer.',
  outside: `
    bert.embeddings.word_embeddings.weight        token_embd.weight       12x64
    bert.embeddings.token_type_embeddings.weight  token_types.weight      2x64
    bert.embeddings.LayerNorm.weight              token_embd_norm.weight  64
    bert.embeddings.LayerNorm.bias                token_embd_norm.bias    64`,
  layer: `
    ${bertAttention}
    mlp.gated_layers.weight            ffn_up.weight             192x64
    mlp.wo.weight                      ffn_down.weight           64x96
    mlp.wo.bias                        ffn_down.bias             64
    mlp.layernorm.weight               layer_output_norm.weight  64
    mlp.layernorm.bias                 layer_output_norm.bias    64`,
};
/** The vectors of a text: scores fall by 2^-2, 2^-4, 2^-6 or 2^-8 for each token of distance. */
function jinaVectors(weights: Weights): Float64Array[] {
  const read = new Reader(weights);
  const norm = (name: string, x: Float64Array) => read.layerNorm(name, x, 1e-12);
  let x = text.map((token) => {
    const word = read.row('bert.embeddings.word_embeddings.weight', token);
    return norm('bert.embeddings.LayerNorm', add(word, read.row('bert.embeddings.token_type_embeddings.weight', 0)));
  });
  for (let i = 0; i < 3; i++) {
    const p = `bert.encoder.layer.${i}.`;
    const [q, k, v] = ['query', 'key', 'value'].map((name) =>
      x.map((one) => slices(read.linear(`${p}attention.self.${name}`, one), 16)),
    ) as [Float64Array[][], Float64Array[][], Float64Array[][]];
    const all = mixed(q, k, v, (product, t, s, h) => product / 4 - Math.abs(t - s) * 4 ** -(h + 1));
    x = x.map((one, t) => {
      const output = read.linear(`${p}attention.output.dense`, all[t]!);
      const y = norm(`${p}attention.output.LayerNorm`, add(one, output));
      const both = read.linear(`${p}mlp.gated_layers`, y);
      const inner = multiply(gelu(both.slice(0, 96)), both.slice(96));
      return norm(`${p}mlp.layernorm`, add(y, read.linear(`${p}mlp.wo`, inner)));
    });
  }
  return x;
}

const jina2Config = {
  architectures: ['JinaBertForMaskedLM'],
  hidden_size: 64,
  intermediate_size: 96,
  num_hidden_layers: 3,
  num_attention_heads: 4,
  max_position_embeddings: 8192,
  layer_norm_eps: 1e-12,
  type_vocab_size: 2,
  vocab_size: rows,
  hidden_act: 'gelu',
  position_embedding_type: 'alibi',
  feed_forward_type: 'geglu',
};

const jina3Table: HandTable = {
  prefix: 'roberta.encoder.layers.',
  outside: `
    roberta.embeddings.word_embeddings.parametrizations.weight.original        token_embd.weight       12x64
    roberta.embeddings.token_type_embeddings.parametrizations.weight.original  token_types.weight      1x64
    roberta.emb_ln.weight                                                      token_embd_norm.weight  64
    roberta.emb_ln.bias                                                        token_embd_norm.bias    64`,
  layer: `
    mixer.Wqkv.parametrizations.weight.original      attn_qkv.weight           192x64
    mixer.Wqkv.bias                                  attn_qkv.bias             192
    mixer.out_proj.parametrizations.weight.original  attn_output.weight        64x64
    mixer.out_proj.bias                              attn_output.bias          64
    norm1.weight                                     attn_output_norm.weight   64
    norm1.bias                                       attn_output_norm.bias     64
    mlp.fc1.parametrizations.weight.original         ffn_up.weight             96x64
    mlp.fc1.bias                                     ffn_up.bias               96
    mlp.fc2.parametrizations.weight.original         ffn_down.weight           64x96
    mlp.fc2.bias                                     ffn_down.bias             64
    norm2.weight                                     layer_output_norm.weight  64
    norm2.bias                                       layer_output_norm.bias    64`,
};
const jina3Config = {
  ...bertSizes,
  architectures: ['XLMRobertaModel'],
  position_embedding_type: 'rotary',
  rotary_emb_base: 20000,
  lora_adaptations: ['retrieval.query', 'text-matching'],
  lora_alpha: 1,
  lora_rank: 4,
};

const jinas: readonly EncoderCase[] = [
  {
    name: 'Jina v2',
    architecture: 'jina-bert-v2',
    config: jina2Config,
    files: { ...pooling('mean'), ...words },
    table: jina2Table,
    keys: [
      ...bertKeys.filter(([name]) => !/context|epsilon/.test(name)),
      ...[['context_length', 8192] as const, ['attention.layer_norm_epsilon', 1e-12] as const],
      ['pooling_type', 1],
    ],
    vector: (weights) => mean(jinaVectors(weights)),
    bound: nearGelu,
  },
  {
    name: 'Jina v3',
    architecture: 'jina-bert-v3',
    config: jina3Config,
    files: { ...pooling('mean'), 'tokenizer.json': unigram() },
    table: jina3Table,
    // Adapters of two tasks, and the pooler.
    leftOut: [
      ['roberta.encoder.layers.0.mixer.Wqkv.parametrizations.weight.0.lora_A', [2, 4, 64]],
      ['roberta.encoder.layers.0.mixer.Wqkv.parametrizations.weight.0.lora_B', [2, 192, 4]],
      ['roberta.pooler.dense.parametrizations.weight.original', [64, 64]],
      ['roberta.pooler.dense.parametrizations.weight.0.lora_A', [2, 4, 64]],
      ['roberta.pooler.dense.bias', [64]],
    ],
    keys: [
      ['block_count', 3],
      ['context_length', 32],
      ['embedding_length', 64],
      ['feed_forward_length', 96],
      ['attention.head_count', 4],
      ['rope.freq_base', 20000],
      ['attention.layer_norm_epsilon', 1e-5],
      ['attention.causal', false],
      ['pooling_type', 1],
    ],
    notes: [{ kind: 'adaptersLeftOut', adapters: ['retrieval.query', 'text-matching'] }],
    vector(weights) {
      // The names of Nomic's model, whose attention and norms are alike.
      const plain = [...weights].map(([name, weight]): [string, Weight] => [
        name.replace('roberta.', '').replace('.parametrizations.weight.original', '.weight').replace('mixer', 'attn'),
        weight,
      ]);
      return mean(encoderVectors(new Map(plain), { ...shape, theta: 20000 }, text));
    },
    bound: nearGelu,
  },
];

// ----------------------------------------------------------------------------------------------------- ModernBERT and its relatives

const modernTable: HandTable = {
  prefix: 'model.layers.',
  outside: `
    model.embeddings.tok_embeddings.weight  token_embd.weight       12x64
    model.embeddings.norm.weight            token_embd_norm.weight  64
    model.final_norm.weight                 output_norm.weight      64`,
  layer: `
    attn.Wqkv.weight  attn_qkv.weight     192x64
    attn.Wo.weight    attn_output.weight  64x64
    mlp_norm.weight   ffn_norm.weight     64
    mlp.Wi.weight     ffn_up.weight       192x64
    mlp.Wo.weight     ffn_down.weight     64x96`,
  some: [{ layers: [1, 2, 3], lines: 'attn_norm.weight  attn_norm.weight  64' }],
};
const modernModel: Decoder = {
  layers: 4,
  heads: 4,
  keyHeads: 4,
  head: 16,
  theta: 160000,
  epsilon: 1e-5,
  layerNorms: true,
  bothSides: true,
  embedding: 'model.embeddings.tok_embeddings.weight',
  embeddingNorm: 'model.embeddings.norm',
  attentionPrefix: 'attn.',
  attentionOutput: 'Wo',
  togetherName: 'Wqkv',
  fusedName: 'mlp.Wi',
  fusedDown: 'mlp.Wo',
  act: gelu,
  norms: { attention: 'attn_norm', feedForward: 'mlp_norm', final: 'model.final_norm' },
  // A token sees two others on each side.
  window: (layer) => (layer % 3 === 0 ? Infinity : 3),
  local: (layer) => ({ theta: layer % 3 === 0 ? 160000 : 10000, divisor: 1 }),
};
/** Sizes of decoders that embed or rank texts. */
const small: Decoder = { layers: 3, heads: 4, keyHeads: 2, head: 16, theta: 10000, epsilon: 1e-5 };
const modernConfig: Json = {
  ...{ hidden_size: 64, intermediate_size: 96, num_hidden_layers: 4, num_attention_heads: 4 },
  ...{ max_position_embeddings: 128, norm_eps: 1e-5, local_attention: 4, vocab_size: rows },
};
const modernRanked: EncoderCase = {
  name: 'ModernBERT with a classifier',
  architecture: 'modern-bert',
  config: {
    ...modernConfig,
    architectures: ['ModernBertForSequenceClassification'],
    classifier_pooling: 'mean',
    ...three,
  },
  files: { 'tokenizer.json': bytes() },
  layers: 4,
  table: {
    ...modernTable,
    outside: `${modernTable.outside}
      head.dense.weight  cls.weight         64x64
      head.norm.weight   cls.norm.weight    64
      classifier.weight  cls.output.weight  3x64
      classifier.bias    cls.output.bias    3`,
  },
  notes: [ranks(3)],
  pooling: 4,
  vector(weights) {
    const read = new Reader(weights);
    const pooled = mean(decoderStates(weights, modernModel, text));
    return read.linear('classifier', read.layerNorm('head.norm', gelu(read.linear('head.dense', pooled)), 1e-5));
  },
  outputs: 3,
  bound: nearGelu,
};

/** Rows of all heads' queries, keys or values, of which each head has 16 after the other. */
const each = (part: number) => [0, 1, 2, 3].map((head) => `${(3 * head + part) * 16}+16`).join(',');
const neoTable: HandTable = {
  prefix: 'model.transformer_encoder.',
  outside: `
    model.encoder.weight     token_embd.weight       12x64
    model.layer_norm.weight  enc.output_norm.weight  64`,
  layer: `
    attention_norm.weight  attn_norm.weight    64
    qkv.weight             attn_qkv.weight     192x64  rows=${[0, 1, 2].map(each).join(',')}  as=192x64
    wo.weight              attn_output.weight  64x64
    ffn_norm.weight        ffn_norm.weight     64
    ffn.w12.weight         ffn_up.weight       192x64
    ffn.w3.weight          ffn_down.weight     64x96`,
};
const neoConfig: Json = {
  ...{ architectures: ['NeoBERT'], hidden_size: 64, intermediate_size: 144, num_hidden_layers: 3 },
  ...{ num_attention_heads: 4, max_length: 128, norm_eps: 1e-5, vocab_size: rows },
};
const neoModel: Decoder = {
  layers: 3,
  heads: 4,
  keyHeads: 4,
  head: 16,
  theta: 10000,
  epsilon: 1e-5,
  bothSides: true,
  neighbors: true,
  embedding: 'model.encoder.weight',
  prefix: 'model.transformer_encoder.',
  attentionPrefix: '',
  attentionOutput: 'wo',
  grouped: 'qkv',
  fusedName: 'ffn.w12',
  fusedDown: 'ffn.w3',
  norms: { attention: 'attention_norm', feedForward: 'ffn_norm', final: 'model.layer_norm' },
};

const moderns: readonly EncoderCase[] = [
  {
    name: 'ModernBERT',
    architecture: 'modern-bert',
    config: {
      ...{ ...modernConfig, architectures: ['ModernBertModel'], layer_norm_eps: 1e-5, global_attn_every_n_layers: 3 },
      ...{ global_rope_theta: 160000, local_rope_theta: 10000 },
    },
    files: { ...pooling('mean'), 'tokenizer.json': bytes() },
    layers: 4,
    table: modernTable,
    keys: [
      ['block_count', 4],
      ['context_length', 128],
      ['embedding_length', 64],
      ['feed_forward_length', 96],
      ['attention.head_count', 4],
      ['rope.freq_base', 160000],
      ['rope.freq_base_swa', 10000],
      ['attention.layer_norm_rms_epsilon', 1e-5],
      ['attention.layer_norm_epsilon', 1e-5],
      ['attention.causal', false],
      ['pooling_type', 1],
      ['attention.sliding_window', 4],
      ['attention.sliding_window_pattern', 3],
      ['rope.scaling.type', 'none'],
      ['vocab_size', rows],
      ['hidden_activation', 'gelu'],
    ],
    some: [
      ['tokenizer.ggml.add_bos_token', true],
      ['tokenizer.ggml.add_eos_token', true],
      ['tokenizer.ggml.add_sep_token', true],
      ['tokenizer.ggml.model', 'gpt2'],
      ['tokenizer.ggml.pre', 'modern-bert'],
    ],
    vector: (weights) => mean(decoderStates(weights, modernModel, text)),
    bound: nearGelu,
  },
  modernRanked,
  {
    name: 'EuroBERT',
    architecture: 'eurobert',
    config: decoderConfig('EuroBertModel', { vocab_size: rows, rope_theta: 250000 }),
    files: { ...pooling('mean'), 'tokenizer.json': bytes() },
    table: {
      prefix: 'model.layers.',
      outside: `
        model.embed_tokens.weight  token_embd.weight   12x64
        model.norm.weight          output_norm.weight  64`,
      layer: norms + attention + gated,
    },
    some: [
      ['eurobert.attention.causal', false],
      ['eurobert.pooling_type', 1],
      ['eurobert.rope.scaling.type', 'none'],
      ['eurobert.rope.freq_base', 250000],
      ['tokenizer.ggml.add_bos_token', false],
    ],
    vector: (weights) => mean(decoderStates(weights, { ...small, theta: 250000, bothSides: true }, text)),
    bound: near,
  },
  {
    name: 'NeoBERT',
    architecture: 'neo-bert',
    config: neoConfig,
    files: words,
    table: neoTable,
    keys: [
      ['block_count', 3],
      ['context_length', 128],
      ['embedding_length', 64],
      ['feed_forward_length', 96],
      ['attention.head_count', 4],
      ['attention.layer_norm_rms_epsilon', 1e-5],
      ['attention.causal', false],
      ['rope.freq_base', 10000],
      ['rope.scaling.type', 'none'],
      ['pooling_type', 2],
    ],
    vector: (weights) => decoderStates(weights, neoModel, text)[0]!,
    bound: near,
  },
  {
    name: 'NeoBERT with a classifier',
    architecture: 'neo-bert',
    config: { ...neoConfig, architectures: ['NeoBERTForSequenceClassification'], ...three },
    files: words,
    table: {
      ...neoTable,
      outside: `${neoTable.outside}
        dense.weight       cls.weight         64x64
        dense.bias         cls.bias           64
        classifier.weight  cls.output.weight  3x64
        classifier.bias    cls.output.bias    3`,
    },
    notes: [ranks(3)],
    pooling: 4,
    vector(weights) {
      const read = new Reader(weights);
      const [first] = decoderStates(weights, neoModel, text) as [Vector];
      return read.linear('classifier', read.linear('dense', first).map(Math.tanh));
    },
    outputs: 3,
    bound: near,
  },
];

// --------------------------------------------------------------------------------------------------------------------- decoders

/** A vocabulary in which the two answers are tokens. */
function withAnswers(): Json {
  const tokenizer = plainTokenizer() as Json & { model: { vocab: Record<string, number> } };
  const { model } = tokenizer;
  const others = Object.entries(model.vocab).filter(([, id]) => id !== 259 && id !== 260);
  return { ...tokenizer, model: { ...model, vocab: { ...Object.fromEntries(others), yes: 259, no: 260 } } };
}

const decoderLayer = norms + headNorms + attention + gated;
const answered = (isTied: boolean) =>
  isTied
    ? `model.norm.weight         output_norm.weight  64
       model.embed_tokens.weight  token_embd.weight   264x64  rows=0+264      as=264x64
       model.embed_tokens.weight  cls.output.weight   264x64  rows=259+1,260+1  as=2x64`
    : `model.norm.weight         output_norm.weight  64
       model.embed_tokens.weight  token_embd.weight   264x64
       lm_head.weight             cls.output.weight   264x64  rows=259+1,260+1  as=2x64`;

/** A reranker of Qwen3, which takes the rows of its answers. */
const reranker = (isTied: boolean): EncoderCase => ({
  name: `Qwen3 as a reranker; with a tied head: ${isTied}`,
  architecture: 'qwen3',
  config: decoderConfig('Qwen3ForCausalLM', {
    ...{ head_dim: 16, tie_word_embeddings: isTied, _name_or_path: 'Qwen/Qwen3-Reranker-0.6B' },
  }),
  files: { 'tokenizer.json': withAnswers(), 'tokenizer_config.json': { chat_template: 'own' } },
  table: { prefix: 'model.layers.', outside: answered(isTied), layer: decoderLayer },
  some: [
    ['qwen3.pooling_type', 4],
    ['qwen3.classifier.output_labels', ['yes', 'no']],
    ['tokenizer.chat_template', 'own'],
    ['tokenizer.chat_templates', ['rerank']],
    ['tokenizer.chat_template.rerank', expect.stringContaining('<Query>: {query}\n<Document>: {document}')],
  ],
  vector(weights) {
    const last = decoderStates(weights, small, text).at(-1)!;
    const logits = new Reader(weights).linear(isTied ? 'model.embed_tokens' : 'lm_head', last);
    return softmax([logits[259]!, logits[260]!]);
  },
  outputs: 2,
  bound: near,
});

const scored = (count: number): EncoderCase => ({
  name: `Qwen3 with a classifier of ${count}`,
  architecture: 'qwen3',
  config: decoderConfig('Qwen3ForSequenceClassification', {
    ...{ head_dim: 16, id2label: Object.fromEntries(labels.slice(0, count).map((label, i) => [i, label])) },
  }),
  files: { 'tokenizer.json': plainTokenizer() },
  table: {
    prefix: 'model.layers.',
    outside: `
      model.embed_tokens.weight  token_embd.weight   264x64
      model.norm.weight          output_norm.weight  64
      score.weight               cls.output.weight   ${count}x64${count === 1 ? '  fill=2' : ''}`,
    layer: decoderLayer,
  },
  vector(weights) {
    const scores = [...new Reader(weights).linear('score', decoderStates(weights, small, text).at(-1)!)];
    return softmax(count === 1 ? [scores[0]!, 0] : scores);
  },
  outputs: count === 1 ? 2 : count,
  bound: near,
});

/** Decoders without their heads. */
const embedders = (
  [
    ['Qwen2Model', 'qwen2', {}, norms + attention + biases + gated, {}],
    ['Qwen2Model', 'qwen2', { is_causal: false }, norms + attention + biases + gated, { bothSides: true }],
    ['Qwen3Model', 'qwen3', { head_dim: 16 }, decoderLayer, {}],
    ['LlamaModel', 'llama', {}, norms + permuted + gated, {}],
    ['LlamaBidirectionalModel', 'llama-embed', {}, norms + permuted + gated, { bothSides: true }],
  ] as readonly [string, string, Json, string, Partial<Decoder>][]
).map(
  ([hugging, architecture, more, layer, model]): EncoderCase => ({
    name: `${hugging} as ${architecture} with ${JSON.stringify(more)}`,
    architecture,
    config: decoderConfig(hugging, more),
    files: { 'tokenizer.json': plainTokenizer() },
    table: {
      prefix: 'layers.',
      outside: `
        embed_tokens.weight  token_embd.weight   264x64
        norm.weight          output_norm.weight  64`,
      layer,
    },
    pooling: 3,
    vector(weights) {
      const own = { embedding: 'embed_tokens.weight', prefix: 'layers.', norms: { final: 'norm' }, ...model };
      return decoderStates(weights, { ...small, ...own }, text).at(-1)!;
    },
    bound: near,
  }),
);

const gemma: EncoderCase = {
  name: 'EmbeddingGemma',
  architecture: 'gemma-embedding',
  config: decoderConfig('Gemma3TextModel', {
    ...{ head_dim: 16, query_pre_attn_scalar: 16, sliding_window: 4, rope_theta: 1e6, rope_local_base_freq: 10000 },
    ...{ num_hidden_layers: 7, use_bidirectional_attention: true },
  }),
  files: { ...pooling('mean'), 'tokenizer.json': plainTokenizer() },
  layers: 7,
  table: {
    prefix: 'layers.',
    outside: `
      embed_tokens.weight  token_embd.weight   264x64
      norm.weight          output_norm.weight  64  +1`,
    layer: `
      input_layernorm.weight             attn_norm.weight            64  +1
      post_attention_layernorm.weight    post_attention_norm.weight  64  +1
      pre_feedforward_layernorm.weight   ffn_norm.weight             64  +1
      post_feedforward_layernorm.weight  post_ffw_norm.weight        64  +1
      self_attn.q_norm.weight            attn_q_norm.weight          16  +1
      self_attn.k_norm.weight            attn_k_norm.weight          16  +1
      ${attention}${gated}`,
  },
  keys: [
    ['block_count', 7],
    ['context_length', 128],
    ['embedding_length', 64],
    ['feed_forward_length', 96],
    ['attention.head_count', 4],
    ['attention.head_count_kv', 2],
    ['rope.freq_base', 1e6],
    ['rope.freq_base_swa', 10000],
    ['attention.layer_norm_rms_epsilon', 1e-5],
    ['attention.key_length', 16],
    ['attention.value_length', 16],
    ['attention.sliding_window', 4],
    ['pooling_type', 1],
  ],
  // The class of Hugging Face halves the window: a token sees two others on each side.
  vector: (weights) =>
    mean(
      decoderStates(
        weights,
        {
          ...{ ...small, layers: 7, gemma: true, theta: 1e6, bothSides: true },
          local: (layer) => ({ theta: layer === 5 ? 1e6 : 10000, divisor: 1 }),
          window: (layer) => (layer === 5 ? Infinity : 3),
          ...{ embedding: 'embed_tokens.weight', prefix: 'layers.', norms: { final: 'norm' } },
        },
        text,
      ),
    ),
  bound: nearGelu,
};

const cases = [
  ...[berts, distils, jinas, moderns].flat(),
  ...[reranker(true), reranker(false), scored(1), scored(3)],
  ...embedders,
  gemma,
];
const caseOf = (name: string) => cases.find((one) => one.name === name) as EncoderCase;

const convert = (weights: Weights, files: Json) => convertHuggingface(folderOf(weights, files));

/** Converts the model of a case. @param more further settings; @param files further files */
const converted = ({ table, layers = 3, config, files }: EncoderCase, more: Json = {}, others: Json = {}) =>
  convert(weightsOfTable(table, layers), { 'config.json': { ...config, ...more }, ...files, ...others });

function keysOf({ keys, architecture }: Conversion) {
  return keys
    .filter(({ name }) => !name.startsWith('tokenizer.') && !name.startsWith('general.'))
    .map(({ name, value }) => [name.slice(architecture.length + 1), value]);
}

const plainValue = (value: unknown) => (typeof value === 'object' ? Array.from(value as ArrayLike<unknown>) : value);

const tokenizerKeys = ({ keys }: Conversion) =>
  keys
    .filter(({ name }) => name.startsWith('tokenizer.ggml.'))
    .map(({ name, value }) => [name.slice(15), plainValue(value)] as const);

describe('keys, tensors and vectors are those of the definition', () => {
  needNative();

  it.each(cases)('$name', async (one) => {
    const { architecture, files, layers = 3, table, leftOut = [], notes = [], pooling: kind, outputs } = one;
    const weights = weightsOfTable(table, layers);
    const more = leftOut.map(([name, dims]): [string, Weight] => {
      return [name, { shape: dims, values: new Float32Array(dims.reduce((a, b) => a * b, 1)).fill(1) }];
    });
    const conversion = await convert(new Map([...weights, ...more]), { 'config.json': one.config, ...files });
    expect(conversion.architecture).toBe(architecture);
    if (one.keys !== undefined) expect(byName(keysOf(conversion))).toEqual(byName([...one.keys]));
    const all = new Map(conversion.keys.map(({ name, value }) => [name, plainValue(value)]));
    for (const [name, value] of one.some ?? []) expect(all.get(name), name).toEqual(value);
    if (one.tokens !== undefined) {
      const named = new Set(one.tokens.map(([name]) => name));
      const lists = ['tokens', 'scores', 'token_type', 'merges'];
      const got = tokenizerKeys(conversion).filter(([name]) => named.has(name) || !lists.includes(name));
      expect(byName(got)).toEqual(byName([...one.tokens]));
    }
    expectTensors(conversion, table, layers);
    // Vocabularies of a few tokens lack most bytes.
    expect(conversion.notes.filter(({ kind }) => kind !== 'lostBytes')).toMatchObject(notes);
    // A pooling that a user gives on the command line is a key here, in the place of the model's own.
    const name = `${architecture}.pooling_type`;
    const keys = kind === undefined ? conversion.keys : conversion.keys.filter((key) => key.name !== name);
    const file = fileOf({ ...conversion, keys }, weights, kind === undefined ? [] : [[name, 'u32', kind]]);
    using native = new NativeModel(file);
    const got = native.pooled(text, outputs);
    if (one.vector === undefined) expect(got.every(Number.isFinite)).toBe(true);
    else expect(furthest([got], [one.vector(weights)])).toBeLessThan(one.bound);
    one.also?.(native);
  });
});

describe('the tokenizer of XLM-R', () => {
  it('takes sentencepiece.bpe.model, whose ids are one less, and its rules', async () => {
    // A table of one unit without entries, and one replacement.
    const charsmap = [4, 0, 0, 0, 0, 0, 0, 0, 0x61, 0];
    const normalizer = [0x12, charsmap.length, ...charsmap];
    const file = sentencePieceFile(
      [
        ['<unk>', 0, 2],
        ['<s>', 0, 3],
        ['</s>', 0, 3],
        ...pieces.slice(4).map(([piece, score]) => [piece, score] as const),
      ],
      { trainer: { 3: 1 }, normalizer: {}, more: [0x1a, normalizer.length, ...normalizer] },
    );
    const weights = weightsOfTable(robertaTable(''), 3);
    const conversion = await convert(weights, { 'config.json': xlmrConfig, 'sentencepiece.bpe.model': file });
    const keys = new Map(tokenizerKeys(conversion).map(([name, value]) => [name, value]));
    expect(keys.get('tokens')).toEqual([...pieces.map(([piece]) => piece), '[PAD10]']);
    expect(keys.get('token_type')).toEqual([3, 3, 3, 2, 1, 1, 1, 1, 1, 1, 1, 5]);
    expect(keys.get('precompiled_charsmap')).toEqual(charsmap);
    expect(conversion.keys.find(({ name }) => name.endsWith('precompiled_charsmap'))?.type).toBe('u8[]');
    expect(keys.get('add_space_prefix')).toBe(true);
  });

  it.each<[what: string, files: Json, words: RegExp]>([
    [
      'rules that are cut',
      { normalizer: { type: 'Precompiled', precompiled_charsmap: btoa('\x08\0\0\0abcd') } },
      /cut or damaged/,
    ],
    ['rules that are no base64', { normalizer: { type: 'Precompiled', precompiled_charsmap: '&' } }, /not base64/],
    ['pieces without scores', { model: { type: 'Unigram', vocab: [['a']] } }, /model\.vocab\[0\] is not a piece/],
    ['pieces by name', { model: { type: 'Unigram', vocab: {} } }, /model\.vocab has to be an array/],
    [
      'more pieces than rows',
      { model: { type: 'Unigram', vocab: new Array(13).fill(0).map((_, i) => [`${i}`, 0]) } },
      /12 rows/,
    ],
    [
      'a piece twice',
      {
        model: {
          type: 'Unigram',
          vocab: [
            ['a', 0],
            ['a', 0],
          ],
        },
      },
      /occurs twice/,
    ],
    ['tokens for bytes', { model: { type: 'Unigram', byte_fallback: true, vocab: [] } }, /byte_fallback/],
    ['another kind', wordTokenizer(), /not supported for bert: wordpiece/],
  ])('is refused with %s', async (_what, more, problem) => {
    await expect(converted(caseOf('XLM-R'), {}, { 'tokenizer.json': unigram(more) })).rejects.toMatchObject({
      name: 'ScalepointError',
      message: expect.stringMatching(problem),
    });
  });
});

describe('what llama.cpp computes otherwise is refused', () => {
  it.each<[string, Json, Json, RegExp]>([
    ['Jina v2', { feed_forward_type: 'original' }, {}, /feed_forward_type is "original"/],
    // Those for German, Spanish and code have byte-level vocabularies.
    ['Jina v2', {}, { 'tokenizer.json': bytes() }, /not supported for jina-bert-v2: bytes/],
    ['Jina v3', { position_embedding_type: 'absolute' }, {}, /position_embedding_type is "absolute"/],
    ['Jina v3', { lora_adaptations: 2 }, {}, /lora_adaptations has to be an array of names/],
    ['Jina v3', { max_position_embeddings: 2 }, {}, /leaves none of 2 positions/],
    [modernRanked.name, { classifier_pooling: undefined }, {}, /classifier_pooling is "cls".*"mean" only/],
    [modernRanked.name, { classifier_pooling: 'cls' }, {}, /classifier_pooling is "cls".*"mean" only/],
  ])('%s with %j', async (name, more, others, problem) => {
    await expect(converted(caseOf(name), more, others)).rejects.toThrow(problem);
  });
});

it('a reranker is known by its README, and refused without its answers', async () => {
  const readme = { 'README.md': new TextEncoder().encode('text\n# Qwen3-Reranker-4B\n') };
  const unnamed = { _name_or_path: undefined };
  const { keys } = await converted(reranker(true), unnamed, readme);
  expect(keys.find(({ name }) => name === 'qwen3.pooling_type')?.value).toBe(4);
  const others = { ...readme, 'tokenizer.json': plainTokenizer() };
  await expect(converted(reranker(true), unnamed, others)).rejects.toThrow(/"yes" or "no"/);
});

describe('dense layers', () => {
  needNative();

  it('EmbeddingGemma has the layers of sentence-transformers behind the pooling', async () => {
    const weights = weightsOfTable(gemma.table, 7);
    const random = new Random(77);
    const [second, third] = [random.bell(128 * 64), random.bell(64 * 128)];
    const brain = new Uint16Array(new Uint32Array(third.buffer).map((bits) => bits >>> 16));
    const dense = (inputs: number, outputs: number) => ({
      in_features: inputs,
      out_features: outputs,
      bias: false,
      activation_function: 'torch.nn.modules.linear.Identity',
    });
    const files = {
      'modules.json': [
        ...(pooling('mean')['modules.json'] as Json[]),
        { type: 'sentence_transformers.models.Dense', path: '2_Dense' },
        { type: 'sentence_transformers.models.Dense', path: '3_Dense' },
      ],
      '2_Dense/config.json': dense(64, 128),
      '2_Dense/model.safetensors': safetensors({ 'linear.weight': { dtype: 'F32', shape: [128, 64], data: second } }),
      '3_Dense/config.json': dense(128, 64),
      '3_Dense/model.safetensors': safetensors({ 'linear.weight': { dtype: 'BF16', shape: [64, 128], data: brain } }),
    };
    const conversion = await converted(gemma, {}, files);
    const got = conversion.keys.filter(({ name }) => /dense|pooling_type|sliding_window$/.test(name));
    expect(byName(got.map(({ name, value }) => [name.replace('gemma-embedding.', ''), value]))).toEqual(
      byName([
        ['attention.sliding_window', 4],
        ['dense_2_feat_in', 64],
        ['dense_2_feat_out', 128],
        ['dense_3_feat_in', 128],
        ['dense_3_feat_out', 64],
        ['pooling_type', 1],
      ]),
    );
    expect(conversion.notes).toEqual([]);
    const [a, b] = conversion.tensors.slice(0, 2);
    expect([a?.name, a?.shape, a?.values]).toEqual(['dense_2.weight', [128, 64], second]);
    const rounded = third.map((value) => {
      const bits = Uint32Array.of(new Uint32Array(Float32Array.of(value).buffer)[0]! & 0xffff0000);
      return new Float32Array(bits.buffer)[0]!;
    });
    expect([b?.name, b?.shape, b?.values]).toEqual(['dense_3.weight', [64, 128], rounded]);
    // Every float16 that is finite, and the same numbers by their definition.
    const halves = Uint16Array.from({ length: 128 * 64 }, (_, i) => ((i * 8 + (i % 8)) % 0x7c00) | ((i & 1) << 15));
    const wide = Float32Array.from(halves, (bits) => {
      const [sign, exponent, fraction] = [bits >> 15 ? -1 : 1, (bits >> 10) & 31, (bits & 1023) / 1024];
      return sign * (exponent === 0 ? fraction * 2 ** -14 : (1 + fraction) * 2 ** (exponent - 15));
    });
    for (const [dtype, data, values] of [
      ['F16', halves, wide],
      ['F64', Float64Array.from(wide), wide],
    ] as const) {
      const weight = safetensors({ 'linear.weight': { dtype, shape: [128, 64], data } });
      const { tensors } = await converted(gemma, {}, { ...files, '2_Dense/model.safetensors': weight });
      expect(tensors[0]?.values, dtype).toEqual(values);
    }
    const whole = safetensors({ 'linear.weight': { dtype: 'I16', shape: [128, 64], data: new Int16Array(128 * 64) } });
    await expect(converted(gemma, {}, { ...files, '2_Dense/model.safetensors': whole })).rejects.toThrow(
      'linear.weight is I16, and no float',
    );
    // llama.cpp multiplies the pooled vector by both.
    using plain = new NativeModel(fileOf(await converted(gemma), weights));
    using native = new NativeModel(fileOf(conversion, weights));
    const times = (matrix: Float32Array, x: readonly number[]) =>
      Array.from({ length: matrix.length / x.length }, (_, row) =>
        x.reduce((sum, value, i) => sum + value * matrix[row * x.length + i]!, 0),
      );
    const expected = times(rounded, times(second, [...plain.pooled(text)]));
    const largest = Math.max(...expected.map(Math.abs));
    // Each product sums at most 128 terms in float32.
    expect(furthest([native.pooled(text)], [expected])).toBeLessThan(largest * 128 * 2 ** -22);
    // A layer of another size than its settings, and a part that llama.cpp does not apply.
    await expect(converted(gemma, {}, { ...files, '2_Dense/config.json': dense(64, 96) })).rejects.toThrow(
      'by 2_Dense/config.json it is [96, 64]',
    );
    const tanh = { ...dense(64, 128), activation_function: 'torch.nn.modules.activation.Tanh' };
    const { notes } = await converted(gemma, {}, { ...files, '2_Dense/config.json': tanh });
    expect(notes).toMatchObject([{ kind: 'denseLeftOut', paths: ['2_Dense'] }]);
  });
});

describe('an encoder of T5', () => {
  needNative();

  const table = (hasGates: boolean): HandTable => ({
    prefix: 'encoder.block.',
    outside: `
      shared.weight                    token_embd.weight       12x64
      encoder.final_layer_norm.weight  enc.output_norm.weight  64`,
    layer: `
      layer.0.layer_norm.weight        attn_norm.weight  64
      layer.0.SelfAttention.q.weight   attn_q.weight     96x64
      layer.0.SelfAttention.k.weight   attn_k.weight     96x64
      layer.0.SelfAttention.v.weight   attn_v.weight     96x64
      layer.0.SelfAttention.o.weight   attn_o.weight     64x96
      layer.1.layer_norm.weight        ffn_norm.weight   64
      ${
        hasGates
          ? `layer.1.DenseReluDense.wi_0.weight  ffn_gate.weight  96x64
             layer.1.DenseReluDense.wi_1.weight  ffn_up.weight    96x64`
          : 'layer.1.DenseReluDense.wi.weight  ffn_up.weight  96x64'
      }
      layer.1.DenseReluDense.wo.weight  ffn_down.weight  64x96`,
    some: [{ layers: [0], lines: 'layer.0.SelfAttention.relative_attention_bias.weight  attn_rel_b.weight  8x4' }],
  });

  /** The number of a distance: exact ones first, then ever longer steps up to 128. An encoder has half of them for later tokens. */
  function bucketOf(distance: number, buckets: number, bothSides: boolean): number {
    const half = bothSides ? buckets / 2 : buckets;
    const exact = half / 2;
    const far = bothSides ? Math.abs(distance) : Math.max(0, -distance);
    const step = Math.floor((Math.log(far / exact) / Math.log(128 / exact)) * (half - exact));
    return (bothSides && distance > 0 ? half : 0) + (far < exact ? far : Math.min(half - 1, exact + step));
  }

  /** The vectors of a text, by the definition of transformers. @param encoded those of the encoder, for its decoder */
  function vectors(
    weights: Weights,
    hasGates: boolean,
    ids: readonly number[],
    encoded?: readonly Float64Array[],
  ): Float64Array[] {
    const stack = encoded === undefined ? 'encoder' : 'decoder';
    const read = new Reader(weights);
    const norm = (name: string, x: Float64Array) => read.rms(name, x, 1e-6, 0);
    type Offset = (t: number, s: number, h: number) => number;
    const attend = (of: string, x: Float64Array[], seen: readonly Float64Array[], offset: Offset) => {
      const heads = (name: string, all: readonly Float64Array[]) =>
        all.map((one) => slices(read.linear(`${of}.${name}`, one), 24));
      const all = mixed(heads('q', x), heads('k', seen), heads('v', seen), (product, ...at) => product + offset(...at));
      return all.map((one) => read.linear(`${of}.o`, one));
    };
    const biases = `${stack}.block.0.layer.0.SelfAttention.relative_attention_bias.weight`;
    const near: Offset = (t, s, h) =>
      encoded !== undefined && s > t ? -Infinity : read.row(biases, bucketOf(s - t, 8, encoded === undefined))[h]!;
    let x = ids.map((id) => read.row('shared.weight', id));
    for (let i = 0; i < 3; i++) {
      const of = `${stack}.block.${i}.layer.`;
      const normed = x.map((one) => norm(`${of}0.layer_norm`, one));
      const own = attend(`${of}0.SelfAttention`, normed, normed, near);
      x = x.map((one, t) => add(one, own[t]!));
      if (encoded !== undefined) {
        const asking = x.map((one) => norm(`${of}1.layer_norm`, one));
        const crossed = attend(`${of}1.EncDecAttention`, asking, encoded, () => 0);
        x = x.map((one, t) => add(one, crossed[t]!));
      }
      const last = `${of}${encoded === undefined ? 1 : 2}`;
      x = x.map((one) => {
        const input = norm(`${last}.layer_norm`, one);
        const dense = `${last}.DenseReluDense.`;
        const inner = hasGates
          ? multiply(gelu(read.linear(`${dense}wi_0`, input)), read.linear(`${dense}wi_1`, input))
          : read.linear(`${dense}wi`, input).map((value) => Math.max(0, value));
        return add(one, read.linear(`${dense}wo`, inner));
      });
    }
    return x.map((one) => norm(`${stack}.final_layer_norm`, one));
  }

  const model = sentencePieceFile(
    [
      ['<pad>', 0, 3],
      ['</s>', 0, 3],
      ['<unk>', 0, 2],
      ...pieces.slice(4).map(([piece, score]) => [piece, score] as const),
    ],
    { trainer: { 3: 1 }, normalizer: {} },
  );
  const config = {
    architectures: ['T5EncoderModel'],
    d_model: 64,
    d_kv: 24,
    d_ff: 96,
    num_layers: 3,
    num_heads: 4,
    relative_attention_num_buckets: 8,
    layer_norm_epsilon: 1e-6,
    n_positions: 512,
    vocab_size: rows,
  };

  it.each([false, true])('has the keys, tensors and vectors of the definition; with gates: %s', async (hasGates) => {
    const weights = weightsOfTable(table(hasGates), 3);
    const twice = new Map([...weights, ['encoder.embed_tokens.weight', weights.get('shared.weight')!]] as const);
    const conversion = await convert(twice, {
      'config.json': { ...config, feed_forward_proj: hasGates ? 'gated-gelu' : 'relu' },
      'spiece.model': model,
    });
    expect(byName(keysOf(conversion))).toEqual(
      byName([
        ['context_length', 512],
        ['embedding_length', 64],
        ['feed_forward_length', 96],
        ['block_count', 3],
        ['attention.head_count', 4],
        ['attention.key_length', 24],
        ['attention.value_length', 24],
        ['attention.layer_norm_epsilon', 1e-6],
        ['attention.relative_buckets_count', 8],
        ['attention.layer_norm_rms_epsilon', 1e-6],
      ]),
    );
    expectPlaced(conversion.tensors, table(hasGates), 'enc.blk.');
    // Programs that call llama_encode see all tokens, and give the pooling. For llama_decode, both are keys here.
    const file = fileOf(conversion, weights, [
      ['t5encoder.pooling_type', 'u32', 1],
      ['t5encoder.attention.causal', 'bool', false],
    ]);
    using native = new NativeModel(file);
    const expected = mean(vectors(weights, hasGates, text));
    expect(furthest([native.pooled(text)], [expected])).toBeLessThan(hasGates ? nearGelu : near);
  });

  /** Compares names, shapes and sources of tensors with a table, whose layers have this prefix in the result. */
  function expectPlaced(tensors: Conversion['tensors'], { prefix, outside, layer, some }: HandTable, to: string): void {
    const lines = (part: string, i?: number) =>
      part.split('\n').flatMap((line) => {
        const [from, name, size] = line.trim().split(/\s+/);
        if (name === undefined) return [];
        return i === undefined ? `${name} ${size} ${from}` : `${to}${i}.${name} ${size} ${prefix}${i}.${from}`;
      });
    const got = tensors.map(({ name, shape: size, sources }) => `${name} ${size.join('x')} ${sources}`);
    const layers = [0, 1, 2].flatMap((i) => lines(layer, i));
    expect(got.sort()).toEqual([...lines(outside), ...layers, ...lines(some![0]!.lines, 0)].sort());
  }

  const decoderTable: HandTable = {
    prefix: 'decoder.block.',
    outside: `
      decoder.final_layer_norm.weight  dec.output_norm.weight  64
      lm_head.weight                   output.weight           12x64`,
    layer: `
      layer.0.layer_norm.weight         attn_norm.weight        64
      layer.0.SelfAttention.q.weight    attn_q.weight           96x64
      layer.0.SelfAttention.k.weight    attn_k.weight           96x64
      layer.0.SelfAttention.v.weight    attn_v.weight           96x64
      layer.0.SelfAttention.o.weight    attn_o.weight           64x96
      layer.1.layer_norm.weight         cross_attn_norm.weight  64
      layer.1.EncDecAttention.q.weight  cross_attn_q.weight     96x64
      layer.1.EncDecAttention.k.weight  cross_attn_k.weight     96x64
      layer.1.EncDecAttention.v.weight  cross_attn_v.weight     96x64
      layer.1.EncDecAttention.o.weight  cross_attn_o.weight     64x96
      layer.2.layer_norm.weight         ffn_norm.weight         64
      layer.2.DenseReluDense.wi_0.weight  ffn_gate.weight  96x64
      layer.2.DenseReluDense.wi_1.weight  ffn_up.weight    96x64
      layer.2.DenseReluDense.wo.weight    ffn_down.weight  64x96`,
    some: [{ layers: [0], lines: 'layer.0.SelfAttention.relative_attention_bias.weight  attn_rel_b.weight  8x4' }],
  };

  it('has a decoder behind it, with the logits of the definition', async () => {
    const weights = new Map([...weightsOfTable(table(true), 3), ...weightsOfTable(decoderTable, 3, 2)]);
    const files = (more: object) => ({
      'config.json': {
        ...config,
        architectures: ['T5ForConditionalGeneration'],
        feed_forward_proj: 'gated-gelu',
        ...more,
      },
      'spiece.model': model,
    });
    const conversion = await convert(weights, files({ tie_word_embeddings: false, num_decoder_layers: 3 }));
    expect(conversion.architecture).toBe('t5');
    expect(byName(keysOf(conversion))).toEqual(
      byName([
        ['context_length', 512],
        ['embedding_length', 64],
        ['feed_forward_length', 96],
        ['block_count', 3],
        ['decoder_block_count', 3],
        ['attention.head_count', 4],
        ['attention.key_length', 24],
        ['attention.value_length', 24],
        ['attention.layer_norm_epsilon', 1e-6],
        ['attention.relative_buckets_count', 8],
        ['attention.layer_norm_rms_epsilon', 1e-6],
        ['decoder_start_token_id', 0],
      ]),
    );
    expectPlaced(
      conversion.tensors.filter(({ name }) => /^(dec\.|output\.)/.test(name)),
      decoderTable,
      'dec.blk.',
    );
    const begun = [0, 7, 4, 9];
    const states = vectors(weights, true, begun, vectors(weights, true, text));
    const expected = states.map((state) => new Reader(weights).linear('lm_head', state));
    using native = new NativeModel(fileOf(conversion, weights));
    expect(furthest(native.logits(begun, text), expected)).toBeLessThan(nearGelu);
    // transformers divides the states of tied models before their head.
    const { notes } = await convert(weights, files({ tie_word_embeddings: true }));
    expect(notes.map(({ kind }) => kind)).toEqual(['unscaledLogits']);
    // UMT5 has distances in each layer.
    const umt5 = convert(
      weights,
      files({ architectures: ['UMT5ForConditionalGeneration'], tie_word_embeddings: false }),
    );
    await expect(umt5).rejects.toThrow(/encoder\.block\.1\.layer\.0\.SelfAttention\.relative_attention_bias/);
  });

  it('is refused without its vocabulary, or with an activation that llama.cpp lacks', async () => {
    const weights = weightsOfTable(table(false), 3);
    const without = convert(weights, { 'config.json': config, 'tokenizer.json': unigram() });
    await expect(without).rejects.toMatchObject({ message: expect.stringContaining('spiece.model') });
    const silu = { ...config, feed_forward_proj: 'gated-silu' };
    const other = convert(weights, { 'config.json': silu, 'spiece.model': model });
    await expect(other).rejects.toMatchObject({ message: expect.stringContaining('gated-silu') });
  });
});
