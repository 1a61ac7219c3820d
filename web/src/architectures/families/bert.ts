/**
 * BERT and encoders that follow it: DistilBERT, RoBERTa, XLM-R, Jina v2 and v3, Nomic and ModernBERT.
 * Reference: github.com/ggml-org/llama.cpp, conversion/bert.py at 2ca8afc. Tests compare with llama.cpp v0.5.0.
 */
import { noteOf } from '../../core/note.js';
import { show } from '../../core/show.js';
import { badConfig, unsupportedConfig } from '../huggingface/errors.js';
import { isObject } from '../huggingface/json.js';
import { type Details, type Draft, encoderNumbers, type ModelClass } from '../huggingface/reading.js';
import type { Row, TensorTable } from '../huggingface/tensors.js';
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
function bertName(name: string): string | undefined {
  const own = name
    .replace(/^(bert|roberta|distilbert)\./, '')
    .replace(/\.gamma$/, '.weight')
    .replace(/\.beta$/, '.bias');
  return unused.test(own) ? undefined : own;
}

const words: Row = { from: 'embeddings.word_embeddings', to: 'token_embd', shape: ['vocabulary', 'hidden'] };
const positionRow: Row = {
  from: 'embeddings.position_embeddings',
  to: 'position_embd',
  shape: ['positions', 'hidden'],
};
const tokenTypes: Row = {
  from: 'embeddings.token_type_embeddings',
  to: 'token_types',
  shape: ['tokenTypes', 'hidden'],
};
const embeddingNorm: Row = { from: 'embeddings.LayerNorm', to: 'token_embd_norm', shape: ['hidden'], bias: 'always' };
const earlyNorm: Row = { from: 'emb_ln', to: 'token_embd_norm', shape: ['hidden'], bias: 'always' };

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

const bert: ModelClass = {
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
};

const distilDefaults = { dim: 768, hidden_dim: 3072, n_layers: 6, n_heads: 12, max_position_embeddings: 512 };

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
  const { config, notes, sizes } = draft;
  const offset = positionOffset(draft);
  // Read the names of a classifier's outputs, by their numbers. A file that states none has two outputs.
  const stated = config.get('id2label');
  if (stated !== undefined && !isObject(stated)) return badConfig(`id2label has to be an object, got ${show(stated)}`);
  const ids = Object.keys(stated ?? {}).sort((a, b) => Number(a) - Number(b));
  const labels = ids.map((key) => stated?.[key]).filter((name) => typeof name === 'string');
  if (stated !== undefined && (ids.length === 0 || labels.length < ids.length))
    return badConfig('id2label has to name each output of the classifier');
  const count = stated === undefined ? config.whole('num_labels', 2) : ids.length;
  const isNamed = stated !== undefined && !(count === 2 && labels[0] === 'LABEL_0');
  if (classifies) {
    const text =
      'the classifier needs the pooling RANK, which the converter does not write: run llama.cpp with --pooling rank';
    notes.push(noteOf('ranks', { outputs: count }, text));
  }
  const stored = sizes.positions ?? 0;
  const positions = stored - offset;
  const share = {
    to: 'position_embd',
    shape: [positions, 'hidden'],
    windows: () => [[offset, positions] as const],
  } as const;
  return {
    keys: { context_length: positions, 'classifier.output_labels': isNamed ? labels : undefined },
    sizes: { positions, labels: count },
    table: {
      ...bertTable,
      outside: [
        ...[words, tokenTypes, embeddingNorm],
        { ...positionRow, to: '', shape: [stored, 'hidden'], shares: [share] },
        ...(classifies ? classifierRows : []),
      ],
    },
  };
}

const roberta: ModelClass = {
  ...bert,
  classes: { RobertaModel: bertDefaults },
  encoder: 'roberta',
  details: (draft) => readRoberta(draft, false),
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

// ---------------------------------------------------------------------------------------------------------- Nomic and ModernBERT

const nomicBert: ModelClass = {
  ...bert,
  architecture: 'nomic-bert',
  classes: { NomicBertModel: {} },
  only: {
    activation_function: ['swiglu'],
    causal: [false],
    qkv_proj_bias: [false],
    mlp_fc1_bias: [false],
    mlp_fc2_bias: [false],
    prenorm: [false],
    rotary_emb_interleaved: [false],
    rotary_emb_fraction: [1],
  },
  numbers(read) {
    const { config } = read;
    if (config.get('moe_every_n_layers') !== undefined && config.get('moe_every_n_layers') !== 0)
      unsupportedConfig('moe_every_n_layers is set; Nomic models with experts are not supported');
    if (config.get('rotary_emb_scale_base') !== undefined)
      unsupportedConfig('rotary_emb_scale_base is set; llama.cpp computes Nomic models without it');
    const names = { layers: 'n_layer', hidden: 'n_embd', heads: 'n_head', feedForward: 'n_inner' };
    const { keys, sizes } = encoderNumbers(read, names, 'layer_norm_epsilon');
    // The training context follows from two numbers.
    const [positions, trained] = [config.whole('n_positions'), config.whole('max_trained_positions', 2048)];
    if (trained !== 2048 || (positions !== 8192 && positions !== 2048))
      unsupportedConfig(`n_positions is ${positions} and max_trained_positions ${trained}; known are 8192 and 2048`);
    const own = {
      context_length: positions === 8192 ? 2048 : 512,
      'rope.freq_base': config.positive('rotary_emb_base'),
    };
    return { keys: { ...keys, ...own }, sizes: { ...sizes, tokenTypes: config.whole('type_vocab_size', 1) } };
  },
  table: {
    layerPrefix: 'encoder.layers.',
    outside: [words, { ...tokenTypes, optional: true }, earlyNorm],
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
  },
};

const modernDefaults = {
  hidden_size: 768,
  intermediate_size: 1152,
  num_hidden_layers: 22,
  num_attention_heads: 12,
  max_position_embeddings: 8192,
  norm_eps: 1e-5,
  local_attention: 128,
  global_attn_every_n_layers: 3,
  global_rope_theta: 160000,
  local_rope_theta: 10000,
};

const modernBert: ModelClass = {
  architecture: 'modern-bert',
  classes: { ModernBertModel: modernDefaults, ModernBertForMaskedLM: modernDefaults },
  writesPooling: true,
  preTokenizers: { 'gpt-2': 'modern-bert' },
  adds: { bos: true, eos: true, sep: true },
  only: { hidden_activation: ['gelu'], attention_bias: [false], mlp_bias: [false], norm_bias: [false] },
  encoder: 'modern-bert',
  numbers(read) {
    const { config, rope } = read;
    const names = { layers: 'num_hidden_layers', hidden: 'hidden_size', heads: 'num_attention_heads' };
    const all = { ...names, feedForward: 'intermediate_size', context: 'max_position_embeddings' };
    const epsilon = config.positive('norm_eps');
    // The runtime reads one addend, and the converter writes one for norms of each kind that the file states.
    const stated = config.maybePositive('layer_norm_eps');
    if (stated !== undefined && stated !== epsilon)
      unsupportedConfig(`layer_norm_eps is ${stated} and norm_eps ${epsilon}; llama.cpp computes them alike only`);
    const { keys, sizes } = encoderNumbers(read, all, stated ?? epsilon);
    const window = config.whole('local_attention');
    if (window % 2 !== 0) badConfig(`local_attention is ${window}; it has to be even`);
    return {
      keys: {
        ...keys,
        'rope.freq_base': rope.theta ?? config.positive('global_rope_theta'),
        'rope.freq_base_swa': rope.localTheta ?? config.positive('local_rope_theta'),
        'rope.scaling.type': 'none',
        'attention.layer_norm_rms_epsilon': epsilon,
        'attention.sliding_window': window,
        // Each n-th layer sees the whole text, and the others a window.
        'attention.sliding_window_pattern': config.whole('global_attn_every_n_layers'),
        vocab_size: sizes.vocabulary,
        hidden_activation: 'gelu',
      },
      sizes,
    };
  },
  table: {
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
      { from: 'mlp.Wi', to: 'ffn_up', shape: ['2 feedForward', 'hidden'] },
      { from: 'mlp.Wo', to: 'ffn_down', shape: ['hidden', 'feedForward'] },
    ],
    // The last product of the head for training is the embedding, with a bias.
    rename: (name) => {
      const own = name.replace(/^model\./, '');
      return own.startsWith('decoder.') ? undefined : own;
    },
  },
};

export const bertFamily: readonly ModelClass[] = [
  ...[bert, distilBert, roberta, robertaClassifier, xlmRoberta, xlmRobertaClassifier, jinaBert, nomicBert, modernBert],
];
