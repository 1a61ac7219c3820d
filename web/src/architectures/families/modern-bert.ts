/**
 * Nomic, ModernBERT, EuroBERT and NeoBERT, whose encoders have a rotary embedding.
 * Reference: github.com/ggml-org/llama.cpp, conversion/bert.py at 2ca8afc. Tests compare with llama.cpp v0.5.0.
 */
import { badConfig, unsupportedConfig } from '../huggingface/errors.js';
import { decoderDefaults, encoderNumbers, type ModelClass, siluSettings } from '../huggingface/reading.js';
import type { TensorTable } from '../huggingface/tensors.js';
import type { EncoderGraph } from '../onnx/families.js';
import { bert, bertName, earlyNorm, readClassifier, tokenTypes, words } from './bert.js';
import { attention, embedding, feedForward, finalNorm, norms, regrouped, withPrefix } from './rows.js';

const nomicGraph: EncoderGraph = {
  kind: 'encoder',
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
  outside: { words: words.from, types: tokenTypes.from, norm: 'emb_ln' },
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
  onnx: { NomicBert: nomicGraph },
};

const modernBertGraph: EncoderGraph = {
  kind: 'encoder',
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
  onnx: { ModernBert: modernBertGraph },
};

/** ModernBERT with a classifier, to which llama.cpp gives the mean of the tokens. */
const modernBertClassifier: ModelClass = {
  ...modernBert,
  classes: { ModernBertForSequenceClassification: { ...modernDefaults, classifier_pooling: 'cls' } },
  only: { ...modernBert.only, classifier_pooling: ['mean'], classifier_bias: [false], classifier_activation: ['gelu'] },
  details: (draft) =>
    readClassifier(draft, modernBert.table as TensorTable, [
      { from: 'classifier', to: 'cls.output', shape: ['labels', 'hidden'], bias: 'always' },
    ]),
};

/** EuroBERT: layers of Llama whose tokens see all others. */
const euroBert: ModelClass = {
  architecture: 'eurobert',
  classes: {
    EuroBertModel: decoderDefaults([768, 3072, 12], [12], 8192, { rms_norm_eps: 1e-5, rope_theta: 250000 }),
  },
  writesPooling: true,
  adds: { bos: false },
  only: { ...siluSettings, attention_bias: [false], mlp_bias: [false] },
  scaling: [],
  ties: false,
  details: ({ keys }) => ({
    keys: { 'attention.causal': false, 'rope.scaling.type': 'none', 'rope.freq_base': keys['rope.freq_base'] },
    table: { outside: [embedding, finalNorm], layer: [...norms, ...attention, ...feedForward], rename: withPrefix },
  }),
};

/** NeoBERT. The converter takes its queries, keys and values as they are; here they are in llama.cpp's order. */
const neoBert: ModelClass = {
  architecture: 'neo-bert',
  classes: { NeoBERT: {}, NeoBERTLMHead: {} },
  encoder: 'wordpiece',
  only: { hidden_act: ['swiglu'], rope: [true], rms_norm: [true], ngpt: [false] },
  numbers(read) {
    const { config } = read;
    const names = { layers: 'num_hidden_layers', hidden: 'hidden_size', heads: 'num_attention_heads' };
    const all = { ...names, feedForward: 'intermediate_size', context: 'max_length' };
    const { keys, sizes } = encoderNumbers(read, all, 1);
    const feedForward = Math.floor((2 * sizes.feedForward) / 3);
    return {
      keys: {
        ...keys,
        feed_forward_length: feedForward,
        'attention.layer_norm_epsilon': undefined,
        'attention.layer_norm_rms_epsilon': config.positive('norm_eps', 1e-6),
        'rope.freq_base': 10000,
        'rope.scaling.type': 'none',
        // The first token stands for the text, as the model card says.
        pooling_type: 2,
      },
      sizes: { ...sizes, feedForward },
    };
  },
  table: {
    layerPrefix: 'transformer_encoder.',
    outside: [
      { from: 'encoder', to: 'token_embd', shape: ['vocabulary', 'hidden'] },
      { from: 'layer_norm', to: 'enc.output_norm', shape: ['hidden'] },
    ],
    layer: [
      { from: 'attention_norm', to: 'attn_norm', shape: ['hidden'] },
      {
        from: 'qkv',
        to: '',
        shape: ['together', 'hidden'],
        shares: [{ to: 'attn_qkv', shape: ['together', 'hidden'], windows: regrouped }],
      },
      { from: 'wo', to: 'attn_output', shape: ['hidden', 'hidden'] },
      { from: 'ffn_norm', to: 'ffn_norm', shape: ['hidden'] },
      { from: 'ffn.w12', to: 'ffn_up', shape: ['2 feedForward', 'hidden'] },
      { from: 'ffn.w3', to: 'ffn_down', shape: ['hidden', 'feedForward'] },
    ],
    rename: (name) => {
      const own = name.replace(/^model\./, '');
      return own.startsWith('decoder.') || own === 'freqs_cis' ? undefined : own;
    },
  },
};

const neoBertClassifier: ModelClass = {
  ...neoBert,
  classes: { NeoBERTForSequenceClassification: {} },
  details: (draft) =>
    readClassifier(draft, neoBert.table as TensorTable, [
      { from: 'dense', to: 'cls', shape: ['hidden', 'hidden'], bias: 'always' },
      { from: 'classifier', to: 'cls.output', shape: ['labels', 'hidden'], bias: 'always' },
    ]),
};

export const modernBertFamily: readonly ModelClass[] = [
  ...[nomicBert, modernBert, modernBertClassifier, euroBert, neoBert, neoBertClassifier],
];
