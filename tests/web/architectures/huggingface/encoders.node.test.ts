// Encoders beside BERT and Nomic: their keys and tensors beside tables that were written by hand from llama.cpp's converter, and their vectors
// in llama.cpp beside a forward pass in float64 that knows Hugging Face's definitions only.
import { describe, expect, it } from 'vitest';
import { convertHuggingface } from '../../../../web/src/architectures/huggingface/convert.js';
import type { Conversion } from '../../../../web/src/architectures/recipe.js';
import { furthest } from '../../support/decoder-tables.js';
import { add, decoderStates, encoderVectors, gelu, mixed, multiply, Reader, slices } from '../../support/forward.js';
import { NativeModel } from '../../support/llama-run.js';
import { needNative } from '../../support/native.js';
import { byName, fileOf, folderOf, type Weight, type Weights } from '../../support/recipes.js';
import { sentencePieceFile } from '../../support/sentencepiece.js';
import { expectTensors, type HandTable, weightsOfTable } from '../../support/tensor-table.js';
import { wordSettings, wordTokenizer } from '../../support/tiny-huggingface.js';

/** llama.cpp's GELU comes from a table of half precision, whose steps of 2^-11 add up to 3e-3, and sums in float32 to 1e-5. */
const [near, nearGelu] = [1e-5, 3e-3];

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

type Json = Record<string, unknown>;

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
const bytes = (post: Json): Json => ({
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

function keysOf({ keys, architecture }: Conversion) {
  return keys
    .filter(({ name }) => !name.startsWith('tokenizer.') && !name.startsWith('general.'))
    .map(({ name, value }) => [name.slice(architecture.length + 1), value]);
}

const tokenizerKeys = ({ keys }: Conversion) =>
  keys
    .filter(({ name }) => name.startsWith('tokenizer.ggml.'))
    .map(({ name, value }) => [
      name.slice(15),
      typeof value === 'object' ? Array.from(value as ArrayLike<unknown>) : value,
    ]);

const convert = (weights: Weights, files: Json) => convertHuggingface(folderOf(weights, files));

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

const text = [0, 5, 6, 7, 8, 9, 5, 10, 2];

/** Fails unless llama.cpp has this vector for the text, or the mean of these. */
function expectPooled(file: Uint8Array, states: readonly Float64Array[], bound = nearGelu): void {
  const mean = states.reduce(add).map((sum) => sum / states.length);
  using native = new NativeModel(file);
  expect(furthest([native.pooled(text)], [mean])).toBeLessThan(bound);
}
const shape = { layers: 3, heads: 4, epsilon: 1e-5 };

describe('XLM-R', () => {
  needNative();

  const config = { architectures: ['XLMRobertaModel'], ...bertSizes };
  const weights = weightsOfTable(robertaTable(''), 3);

  it('has the keys, tensors, tokens and vectors of the definition', async () => {
    const settings = { bos_token: '<s>', eos_token: '</s>', unk_token: '<unk>', clean_up_tokenization_spaces: false };
    const conversion = await convert(weights, {
      ...pooling('cls'),
      'config.json': config,
      'tokenizer.json': unigram(),
      'tokenizer_config.json': settings,
    });
    expect(conversion.architecture).toBe('bert');
    expect(byName(keysOf(conversion))).toEqual(byName([...bertKeys, ['pooling_type', 2]]));
    expectTensors(conversion, robertaTable(''), 3);
    expect(byName(tokenizerKeys(conversion))).toEqual(
      byName([
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
      ]),
    );
    using native = new NativeModel(fileOf(conversion, weights));
    expect(furthest([native.pooled(text)], [encoderVectors(asBert(weights), shape, text)[0]!])).toBeLessThan(nearGelu);
    // By hand: of "▁ab" (-3), "▁a b" (-6) and "▁ ab" (-6), the likeliest is the first.
    expect(native.tokenize('ab a')).toEqual([10, 7]);
    expect(native.tokenize('cab')).toEqual([4, 9, 8]);
  });

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
    const conversion = await convert(weights, { 'config.json': config, 'sentencepiece.bpe.model': file });
    const keys = new Map(tokenizerKeys(conversion).map(([name, value]) => [name, value]));
    expect(keys.get('tokens')).toEqual([...pieces.map(([piece]) => piece), '[PAD10]']);
    expect(keys.get('token_type')).toEqual([3, 3, 3, 2, 1, 1, 1, 1, 1, 1, 1, 5]);
    expect(keys.get('precompiled_charsmap')).toEqual(charsmap);
    expect(conversion.keys.find(({ name }) => name.endsWith('precompiled_charsmap'))?.type).toBe('u8[]');
    expect(keys.get('add_space_prefix')).toBe(true);
  });

  it('with a classifier ranks texts', async () => {
    const table = robertaTable('roberta.', head(1));
    const own = weightsOfTable(table, 3);
    const conversion = await convert(own, {
      'config.json': {
        ...config,
        architectures: ['XLMRobertaForSequenceClassification'],
        id2label: { 0: 'LABEL_0' },
      },
      'tokenizer.json': unigram(),
    });
    expect(byName(keysOf(conversion))).toEqual(byName([...bertKeys, ['classifier.output_labels', ['LABEL_0']]]));
    expectTensors(conversion, table, 3);
    expect(conversion.notes).toMatchObject([{ kind: 'ranks', outputs: 1 }]);
    // The pooling that a user gives on the command line is a key here.
    using native = new NativeModel(fileOf(conversion, own, [['bert.pooling_type', 'u32', 4]]));
    const [first] = encoderVectors(asBert(own), shape, text) as [Float64Array];
    const read = new Reader(own);
    const score = read.linear('classifier.out_proj', read.linear('classifier.dense', first).map(Math.tanh));
    expect(Math.abs(native.pooled(text, 1)[0]! - score[0]!)).toBeLessThan(nearGelu);
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
  ])('is refused with %s', async (_what, more, words) => {
    const files = { 'config.json': config, 'tokenizer.json': unigram(more) };
    await expect(convert(weights, files)).rejects.toMatchObject({
      name: 'ScalepointError',
      message: expect.stringMatching(words),
    });
  });
});

describe('RoBERTa', () => {
  needNative();

  it('has the keys, tensors and vectors of the definition', async () => {
    const table = robertaTable('roberta.');
    const weights = weightsOfTable(table, 3);
    const conversion = await convert(weights, {
      ...pooling('cls'),
      'config.json': { architectures: ['RobertaModel'], ...bertSizes },
      'tokenizer.json': bytes({ type: 'RobertaProcessing', sep: ['</s>', 2], cls: ['<s>', 0] }),
      'tokenizer_config.json': { bos_token: '<s>', eos_token: '</s>', sep_token: '</s>', cls_token: '<s>' },
    });
    expect(byName(keysOf(conversion))).toEqual(byName([...bertKeys, ['pooling_type', 2]]));
    expectTensors(conversion, table, 3);
    const keys = tokenizerKeys(conversion).filter(
      ([name]) => !['tokens', 'token_type', 'merges'].includes(name as string),
    );
    expect(byName(keys)).toEqual(
      byName([
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
      ]),
    );
    expectPooled(fileOf(conversion, weights), encoderVectors(asBert(weights), shape, text).slice(0, 1));
  });
});

describe('DistilBERT', () => {
  needNative();

  const table: HandTable = {
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

  it('has the keys, tensors and vectors of the definition', async () => {
    const weights = weightsOfTable(table, 3);
    const files = {
      ...pooling('cls'),
      'config.json': {
        architectures: ['DistilBertForMaskedLM'],
        dim: 64,
        hidden_dim: 96,
        n_layers: 3,
        n_heads: 4,
        max_position_embeddings: 32,
        vocab_size: rows,
        activation: 'gelu',
      },
      'tokenizer.json': wordTokenizer(),
      'tokenizer_config.json': wordSettings,
    };
    const conversion = await convert(
      new Map([...weights, ['vocab_projector.bias', { shape: [rows], values: new Float32Array(rows) }]]),
      files,
    );
    expect(byName(keysOf(conversion))).toEqual(
      byName([
        ['attention.layer_norm_epsilon', 1e-12],
        ['block_count', 3],
        ['context_length', 32],
        ['embedding_length', 64],
        ['feed_forward_length', 96],
        ['attention.head_count', 4],
        ['attention.causal', false],
        ['pooling_type', 2],
      ]),
    );
    expectTensors(conversion, table, 3);
    const states = encoderVectors(renamed(weights), { ...shape, epsilon: 1e-12 }, text);
    expectPooled(fileOf(conversion, weights), states.slice(0, 1));
  });
});

describe('Jina v2', () => {
  needNative();

  const table: HandTable = {
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
  function vectors(weights: Weights): Float64Array[] {
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

  const config = {
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

  it('has the keys, tensors and vectors of the definition', async () => {
    const weights = weightsOfTable(table, 3);
    const files = { ...pooling('mean'), 'tokenizer.json': wordTokenizer(), 'tokenizer_config.json': wordSettings };
    const conversion = await convert(weights, { ...files, 'config.json': config });
    expect(conversion.architecture).toBe('jina-bert-v2');
    const own = new Map<string, number>(
      Object.entries({ context_length: 8192, 'attention.layer_norm_epsilon': 1e-12 }),
    );
    expect(byName(keysOf(conversion))).toEqual(
      byName([...bertKeys.map(([name, value]) => [name, own.get(name) ?? value]), ['pooling_type', 1]]),
    );
    expectTensors(conversion, table, 3);
    expectPooled(fileOf(conversion, weights), vectors(weights));
    const other = convert(weights, { ...files, 'config.json': { ...config, feed_forward_type: 'original' } });
    await expect(other).rejects.toThrow(/feed_forward_type is "original"/);
    // Those for German, Spanish and code have byte-level vocabularies.
    const coded = convert(weights, { ...files, 'tokenizer.json': bytes({}), 'config.json': config });
    await expect(coded).rejects.toThrow(/not supported for jina-bert-v2: bytes/);
  });
});

describe('Jina v3', () => {
  needNative();

  const table: HandTable = {
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
  const config = {
    ...bertSizes,
    architectures: ['XLMRobertaModel'],
    position_embedding_type: 'rotary',
    rotary_emb_base: 20000,
    lora_adaptations: ['retrieval.query', 'text-matching'],
    lora_alpha: 1,
    lora_rank: 4,
  };
  /** Adapters of two tasks, and the pooler, which are left out. */
  const leftOut = [
    ['encoder.layers.0.mixer.Wqkv.parametrizations.weight.0.lora_A', [2, 4, 64]],
    ['encoder.layers.0.mixer.Wqkv.parametrizations.weight.0.lora_B', [2, 192, 4]],
    ['pooler.dense.parametrizations.weight.original', [64, 64]],
    ['pooler.dense.parametrizations.weight.0.lora_A', [2, 4, 64]],
    ['pooler.dense.bias', [64]],
  ] as const;

  it('has the keys, tensors and vectors of the definition, without its adapters', async () => {
    const weights = weightsOfTable(table, 3);
    const more = leftOut.map(([name, dims]): [string, Weight] => {
      const values = new Float32Array(dims.reduce((a, b) => a * b, 1)).fill(1);
      return [`roberta.${name}`, { shape: dims, values }];
    });
    const files = { ...pooling('mean'), 'tokenizer.json': unigram() };
    const conversion = await convert(new Map([...weights, ...more]), { ...files, 'config.json': config });
    expect(conversion.architecture).toBe('jina-bert-v3');
    expect(byName(keysOf(conversion))).toEqual(
      byName([
        ['block_count', 3],
        ['context_length', 32],
        ['embedding_length', 64],
        ['feed_forward_length', 96],
        ['attention.head_count', 4],
        ['rope.freq_base', 20000],
        ['attention.layer_norm_epsilon', 1e-5],
        ['attention.causal', false],
        ['pooling_type', 1],
      ]),
    );
    expectTensors(conversion, table, 3);
    expect(conversion.notes).toMatchObject([
      { kind: 'adaptersLeftOut', adapters: ['retrieval.query', 'text-matching'] },
    ]);
    // The names of Nomic's model, whose attention and norms are alike.
    const plain = [...weights].map(([name, weight]): [string, Weight] => [
      name.replace('roberta.', '').replace('.parametrizations.weight.original', '.weight').replace('mixer', 'attn'),
      weight,
    ]);
    expectPooled(fileOf(conversion, weights), encoderVectors(new Map(plain), { ...shape, theta: 20000 }, text));
  });

  it.each<[string, Json, RegExp]>([
    ['positions of its own', { position_embedding_type: 'absolute' }, /position_embedding_type is "absolute"/],
    ['adapters without names', { lora_adaptations: 2 }, /lora_adaptations has to be an array of names/],
    ['no position', { max_position_embeddings: 2 }, /leaves none of 2 positions/],
  ])('is refused with %s', async (_what, more, words) => {
    const files = { 'config.json': { ...config, ...more }, 'tokenizer.json': unigram() };
    await expect(convert(weightsOfTable(table, 3), files)).rejects.toThrow(words);
  });
});

describe('ModernBERT', () => {
  needNative();

  const table: HandTable = {
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

  it('has the keys, tensors and vectors of the definition', async () => {
    const weights = weightsOfTable(table, 4);
    const conversion = await convert(weights, {
      ...pooling('mean'),
      'config.json': {
        architectures: ['ModernBertModel'],
        hidden_size: 64,
        intermediate_size: 96,
        num_hidden_layers: 4,
        num_attention_heads: 4,
        max_position_embeddings: 128,
        norm_eps: 1e-5,
        layer_norm_eps: 1e-5,
        local_attention: 4,
        global_attn_every_n_layers: 3,
        global_rope_theta: 160000,
        local_rope_theta: 10000,
        vocab_size: rows,
      },
      'tokenizer.json': bytes({}),
    });
    expect(byName(keysOf(conversion))).toEqual(
      byName([
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
      ]),
    );
    expectTensors(conversion, table, 4);
    expect(tokenizerKeys(conversion)).toEqual(
      expect.arrayContaining([
        ['add_bos_token', true],
        ['add_eos_token', true],
        ['add_sep_token', true],
        ['model', 'gpt2'],
        ['pre', 'modern-bert'],
      ]),
    );
    const states = decoderStates(
      weights,
      {
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
        prefix: 'model.layers.',
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
      },
      text,
    );
    expectPooled(fileOf(conversion, weights), states);
  });
});

describe('an encoder of T5', () => {
  needNative();

  const table = (gated: boolean): HandTable => ({
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
        gated
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
    gated: boolean,
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
        const inner = gated
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

  it.each([false, true])('has the keys, tensors and vectors of the definition; with gates: %s', async (gated) => {
    const weights = weightsOfTable(table(gated), 3);
    const twice = new Map([...weights, ['encoder.embed_tokens.weight', weights.get('shared.weight')!]] as const);
    const conversion = await convert(twice, {
      'config.json': { ...config, feed_forward_proj: gated ? 'gated-gelu' : 'relu' },
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
    expectPlaced(conversion.tensors, table(gated), 'enc.blk.');
    // Programs that call llama_encode see all tokens, and give the pooling. For llama_decode, both are keys here.
    const file = fileOf(conversion, weights, [
      ['t5encoder.pooling_type', 'u32', 1],
      ['t5encoder.attention.causal', 'bool', false],
    ]);
    expectPooled(file, vectors(weights, gated, text), gated ? nearGelu : near);
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
