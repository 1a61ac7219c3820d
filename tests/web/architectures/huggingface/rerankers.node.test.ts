// Encoders with classifiers, and rerankers: their keys and tensors beside tables that were written by hand from llama.cpp's converter, and their
// scores in llama.cpp beside a forward pass in float64 that knows Hugging Face's definitions only.
import { describe, expect, it } from 'vitest';
import { convertHuggingface } from '../../../../web/src/architectures/huggingface/convert.js';
import { furthest } from '../../support/decoder-tables.js';
import { add, type Decoder, decoderStates, encoderVectors, gelu, Reader, softmax } from '../../support/forward.js';
import { NativeModel } from '../../support/llama-run.js';
import { needNative } from '../../support/native.js';
import { fileOf, folderOf, type Weight, type Weights } from '../../support/recipes.js';
import { expectTensors, type HandTable, weightsOfTable } from '../../support/tensor-table.js';
import { decoderConfig, plainTokenizer, wordSettings, wordTokenizer } from '../../support/tiny-huggingface.js';

/** As in encoders.node.test.ts: sums in float32, and a table of GELU in half precision. */
const [near, nearGelu] = [1e-5, 3e-3];

type Json = Record<string, unknown>;
type Key = readonly [name: string, type: 'u32', value: number];

const text = [0, 5, 6, 7, 8, 9, 5, 10, 2];
/** The pooling that a user gives on the command line, as a key. */
const rank = (architecture: string): Key => [`${architecture}.pooling_type`, 'u32', 4];

const convert = (weights: Weights, files: Json) => convertHuggingface(folderOf(weights, files));

const mean = (states: readonly Float64Array[]) => states.reduce(add).map((sum) => sum / states.length);

/** Expects the scores that llama.cpp finds. */
function expectScores(file: Uint8Array, scores: ArrayLike<number>, bound: number): void {
  using native = new NativeModel(file);
  expect(furthest([native.pooled(text, scores.length)], [scores])).toBeLessThan(bound);
}

const words = { 'tokenizer.json': wordTokenizer(), 'tokenizer_config.json': wordSettings };
const three = { id2label: { 0: 'no', 1: 'perhaps', 2: 'yes' } };
const labels = ['no', 'perhaps', 'yes'];

const keyOf = (conversion: Awaited<ReturnType<typeof convert>>, name: string) =>
  conversion.keys.find((key) => key.name === name)?.value;

describe('BERT with a classifier', () => {
  needNative();

  const table: HandTable = {
    prefix: 'bert.encoder.layer.',
    outside: `
      bert.embeddings.word_embeddings.weight        token_embd.weight       12x64
      bert.embeddings.position_embeddings.weight    position_embd.weight    32x64
      bert.embeddings.token_type_embeddings.weight  token_types.weight      2x64
      bert.embeddings.LayerNorm.weight              token_embd_norm.weight  64
      bert.embeddings.LayerNorm.bias                token_embd_norm.bias    64
      bert.pooler.dense.weight                      cls.weight              64x64
      bert.pooler.dense.bias                        cls.bias                64
      classifier.weight                             cls.output.weight       3x64
      classifier.bias                               cls.output.bias         3`,
    layer: `
      attention.self.query.weight        attn_q.weight             64x64
      attention.self.query.bias          attn_q.bias               64
      attention.self.key.weight          attn_k.weight             64x64
      attention.self.key.bias            attn_k.bias               64
      attention.self.value.weight        attn_v.weight             64x64
      attention.self.value.bias          attn_v.bias               64
      attention.output.dense.weight      attn_output.weight        64x64
      attention.output.dense.bias        attn_output.bias          64
      attention.output.LayerNorm.weight  attn_output_norm.weight   64
      attention.output.LayerNorm.bias    attn_output_norm.bias     64
      intermediate.dense.weight          ffn_up.weight             96x64
      intermediate.dense.bias            ffn_up.bias               96
      output.dense.weight                ffn_down.weight           64x96
      output.dense.bias                  ffn_down.bias             64
      output.LayerNorm.weight            layer_output_norm.weight  64
      output.LayerNorm.bias              layer_output_norm.bias    64`,
  };
  const sizes: Json = {
    hidden_size: 64,
    intermediate_size: 96,
    num_hidden_layers: 3,
    num_attention_heads: 4,
    max_position_embeddings: 32,
    layer_norm_eps: 1e-5,
    type_vocab_size: 2,
    vocab_size: 12,
  };

  it('has the scores of the definition, with its pooler', async () => {
    const weights = weightsOfTable(table, 3);
    const config = { architectures: ['BertForSequenceClassification'], ...sizes, ...three };
    const conversion = await convert(weights, { 'config.json': config, ...words });
    expectTensors(conversion, table, 3);
    expect(keyOf(conversion, 'bert.classifier.output_labels')).toEqual(labels);
    expect(conversion.notes).toMatchObject([{ kind: 'ranks', outputs: 3 }]);
    const plain = new Map([...weights].map(([name, weight]): [string, Weight] => [name.replace('bert.', ''), weight]));
    const [first] = encoderVectors(plain, { layers: 3, heads: 4, epsilon: 1e-5 }, text) as [Float64Array];
    const read = new Reader(plain);
    const scores = read.linear('classifier', read.linear('pooler.dense', first).map(Math.tanh));
    expectScores(fileOf(conversion, weights, [rank('bert')]), scores, nearGelu);
  });

  it('has names for two outputs without any, and loads', async () => {
    const two: HandTable = { ...table, outside: table.outside.replace('3x64', '2x64').replace(/3$/, '2') };
    const weights = weightsOfTable(two, 3);
    const config = { architectures: ['BertForSequenceClassification'], ...sizes };
    const conversion = await convert(weights, { 'config.json': config, ...words });
    expect(keyOf(conversion, 'bert.classifier.output_labels')).toEqual(['LABEL_0', 'LABEL_1']);
    using _native = new NativeModel(fileOf(conversion, weights, [rank('bert')]));
  });
});

describe('DistilBERT with a classifier', () => {
  needNative();

  const table: HandTable = {
    prefix: 'distilbert.transformer.layer.',
    outside: `
      distilbert.embeddings.word_embeddings.weight      token_embd.weight       12x64
      distilbert.embeddings.position_embeddings.weight  position_embd.weight    32x64
      distilbert.embeddings.LayerNorm.weight            token_embd_norm.weight  64
      distilbert.embeddings.LayerNorm.bias              token_embd_norm.bias    64
      pre_classifier.weight                             cls.weight              64x64
      pre_classifier.bias                               cls.bias                64
      classifier.weight                                 cls.output.weight       3x64
      classifier.bias                                   cls.output.bias         3`,
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

  it('has the tensors of the definition, loads, and says what llama.cpp computes otherwise', async () => {
    const weights = weightsOfTable(table, 3);
    const config = {
      architectures: ['DistilBertForSequenceClassification'],
      dim: 64,
      hidden_dim: 96,
      n_layers: 3,
      n_heads: 4,
      max_position_embeddings: 32,
      vocab_size: 12,
      activation: 'gelu',
      ...three,
    };
    const conversion = await convert(weights, { 'config.json': config, ...words });
    expectTensors(conversion, table, 3);
    expect(conversion.notes.map(({ kind }) => kind)).toEqual(['computedOtherwise', 'ranks']);
    using native = new NativeModel(fileOf(conversion, weights, [rank('bert')]));
    expect(native.pooled(text, 3).every(Number.isFinite)).toBe(true);
  });
});

/** A byte-level vocabulary of twelve tokens. */
const bytes: Json = {
  added_tokens: ['<s>', '<pad>', '</s>', '<unk>', '<mask>'].map((content, id) => ({ id, content, special: true })),
  pre_tokenizer: { type: 'ByteLevel', add_prefix_space: false, trim_offsets: true },
  model: {
    type: 'BPE',
    vocab: Object.fromEntries(
      ['<s>', '<pad>', '</s>', '<unk>', '<mask>', 'a', 'b', 'c', 'Ġ', 'Ċ', 'ab', 'd'].map((token, id) => [token, id]),
    ),
    merges: ['a b'],
  },
};

describe('ModernBERT with a classifier', () => {
  needNative();

  const table: HandTable = {
    prefix: 'model.layers.',
    outside: `
      model.embeddings.tok_embeddings.weight  token_embd.weight       12x64
      model.embeddings.norm.weight            token_embd_norm.weight  64
      model.final_norm.weight                 output_norm.weight      64
      head.dense.weight                       cls.weight              64x64
      head.norm.weight                        cls.norm.weight         64
      classifier.weight                       cls.output.weight       3x64
      classifier.bias                         cls.output.bias         3`,
    layer: `
      attn.Wqkv.weight  attn_qkv.weight     192x64
      attn.Wo.weight    attn_output.weight  64x64
      mlp_norm.weight   ffn_norm.weight     64
      mlp.Wi.weight     ffn_up.weight       192x64
      mlp.Wo.weight     ffn_down.weight     64x96`,
    some: [{ layers: [1, 2, 3], lines: 'attn_norm.weight  attn_norm.weight  64' }],
  };
  const config = {
    architectures: ['ModernBertForSequenceClassification'],
    hidden_size: 64,
    intermediate_size: 96,
    num_hidden_layers: 4,
    num_attention_heads: 4,
    max_position_embeddings: 128,
    norm_eps: 1e-5,
    local_attention: 4,
    vocab_size: 12,
    ...three,
  };
  const model: Decoder = {
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
    window: (layer) => (layer % 3 === 0 ? Infinity : 3),
    local: (layer) => ({ theta: layer % 3 === 0 ? 160000 : 10000, divisor: 1 }),
  };

  it('has the scores of the definition, by the mean of all tokens', async () => {
    const weights = weightsOfTable(table, 4);
    const files = { 'config.json': { ...config, classifier_pooling: 'mean' }, 'tokenizer.json': bytes };
    const conversion = await convert(weights, files);
    expectTensors(conversion, table, 4);
    const read = new Reader(weights);
    const pooled = mean(decoderStates(weights, model, text));
    const grown = read.layerNorm('head.norm', gelu(read.linear('head.dense', pooled)), 1e-5);
    expectScores(fileOf(conversion, weights, [rank('modern-bert')]), read.linear('classifier', grown), nearGelu);
  });

  it.each<Json>([{}, { classifier_pooling: 'cls' }])('is refused by the first token: %j', async (more) => {
    const files = { 'config.json': { ...config, ...more }, 'tokenizer.json': bytes };
    await expect(convert(weightsOfTable(table, 4), files)).rejects.toThrow(/classifier_pooling is "cls".*"mean" only/);
  });
});

describe('EuroBERT', () => {
  needNative();

  const table: HandTable = {
    prefix: 'model.layers.',
    outside: `
      model.embed_tokens.weight  token_embd.weight   12x64
      model.norm.weight          output_norm.weight  64`,
    layer: `
      input_layernorm.weight           attn_norm.weight    64
      post_attention_layernorm.weight  ffn_norm.weight     64
      self_attn.q_proj.weight          attn_q.weight       64x64
      self_attn.k_proj.weight          attn_k.weight       32x64
      self_attn.v_proj.weight          attn_v.weight       32x64
      self_attn.o_proj.weight          attn_output.weight  64x64
      mlp.gate_proj.weight             ffn_gate.weight     96x64
      mlp.up_proj.weight               ffn_up.weight       96x64
      mlp.down_proj.weight             ffn_down.weight     64x96`,
  };

  it('has the keys, tensors and vectors of the definition', async () => {
    const weights = weightsOfTable(table, 3);
    const conversion = await convert(weights, {
      'config.json': decoderConfig('EuroBertModel', { vocab_size: 12, rope_theta: 250000 }),
      'tokenizer.json': bytes,
      'modules.json': [{ type: 'sentence_transformers.models.Pooling', path: '1_Pooling' }],
      '1_Pooling/config.json': { pooling_mode: 'mean' },
    });
    expect(conversion.architecture).toBe('eurobert');
    expectTensors(conversion, table, 3);
    const own = conversion.keys.filter(({ name }) => /causal|pooling|scaling|freq_base|add_bos/.test(name));
    expect(new Map(own.map(({ name, value }) => [name, value]))).toEqual(
      new Map<string, unknown>([
        ['eurobert.attention.causal', false],
        ['eurobert.pooling_type', 1],
        ['eurobert.rope.scaling.type', 'none'],
        ['eurobert.rope.freq_base', 250000],
        ['tokenizer.ggml.add_bos_token', false],
      ]),
    );
    const model: Decoder = {
      layers: 3,
      heads: 4,
      keyHeads: 2,
      head: 16,
      theta: 250000,
      epsilon: 1e-5,
      bothSides: true,
    };
    const states = decoderStates(weights, model, text);
    using native = new NativeModel(fileOf(conversion, weights));
    expect(furthest([native.pooled(text)], [mean(states)])).toBeLessThan(near);
  });
});

describe('NeoBERT', () => {
  needNative();

  /** Rows of all heads' queries, keys or values, of which each head has 16 after the other. */
  const each = (part: number) => [0, 1, 2, 3].map((head) => `${(3 * head + part) * 16}+16`).join(',');
  const table: HandTable = {
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

  const config: Json = {
    architectures: ['NeoBERT'],
    hidden_size: 64,
    intermediate_size: 144,
    num_hidden_layers: 3,
    num_attention_heads: 4,
    max_length: 128,
    norm_eps: 1e-5,
    vocab_size: 12,
  };
  const model: Decoder = {
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

  it('has the keys, tensors and vectors of the definition', async () => {
    const weights = weightsOfTable(table, 3);
    const conversion = await convert(weights, { 'config.json': config, ...words });
    expectTensors(conversion, table, 3);
    const own = conversion.keys.filter(({ name }) => name.startsWith('neo-bert.'));
    expect(new Map(own.map(({ name, value }) => [name.slice(9), value]))).toEqual(
      new Map<string, unknown>([
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
      ]),
    );
    using native = new NativeModel(fileOf(conversion, weights));
    expect(furthest([native.pooled(text)], [decoderStates(weights, model, text)[0]!])).toBeLessThan(near);
  });

  it('with a classifier', async () => {
    const classifier = `
      dense.weight       cls.weight         64x64
      dense.bias         cls.bias           64
      classifier.weight  cls.output.weight  3x64
      classifier.bias    cls.output.bias    3`;
    const own: HandTable = { ...table, outside: table.outside + classifier };
    const weights = weightsOfTable(own, 3);
    const files = { 'config.json': { ...config, architectures: ['NeoBERTForSequenceClassification'], ...three } };
    const conversion = await convert(weights, { ...files, ...words });
    expectTensors(conversion, own, 3);
    const read = new Reader(weights);
    const [first] = decoderStates(weights, model, text) as [Float64Array];
    const scores = read.linear('classifier', read.linear('dense', first).map(Math.tanh));
    const keys = conversion.keys.filter(({ name }) => !name.endsWith('pooling_type'));
    expectScores(fileOf({ ...conversion, keys }, weights, [rank('neo-bert')]), scores, near);
  });
});

// --------------------------------------------------------------------------------------------------------------------- decoders

const decoderLayer = `
  input_layernorm.weight           attn_norm.weight    64
  post_attention_layernorm.weight  ffn_norm.weight     64
  self_attn.q_norm.weight          attn_q_norm.weight  16
  self_attn.k_norm.weight          attn_k_norm.weight  16
  self_attn.q_proj.weight          attn_q.weight       64x64
  self_attn.k_proj.weight          attn_k.weight       32x64
  self_attn.v_proj.weight          attn_v.weight       32x64
  self_attn.o_proj.weight          attn_output.weight  64x64
  mlp.gate_proj.weight             ffn_gate.weight     96x64
  mlp.up_proj.weight               ffn_up.weight       96x64
  mlp.down_proj.weight             ffn_down.weight     64x96`;
const qwen3: Decoder = { layers: 3, heads: 4, keyHeads: 2, head: 16, theta: 10000, epsilon: 1e-5 };

/** A vocabulary in which the two answers are tokens. */
function withAnswers(): Json {
  const tokenizer = plainTokenizer() as Json & { model: { vocab: Record<string, number> } };
  const { model } = tokenizer;
  const others = Object.entries(model.vocab).filter(([, id]) => id !== 259 && id !== 260);
  return { ...tokenizer, model: { ...model, vocab: { ...Object.fromEntries(others), yes: 259, no: 260 } } };
}

describe('Qwen3 as a reranker', () => {
  needNative();

  const prefix = 'model.layers.';
  const outside = (isTied: boolean) =>
    isTied
      ? `model.norm.weight         output_norm.weight  64
         model.embed_tokens.weight  token_embd.weight   264x64  rows=0+264      as=264x64
         model.embed_tokens.weight  cls.output.weight   264x64  rows=259+1,260+1  as=2x64`
      : `model.norm.weight         output_norm.weight  64
         model.embed_tokens.weight  token_embd.weight   264x64
         lm_head.weight             cls.output.weight   264x64  rows=259+1,260+1  as=2x64`;

  it.each([true, false])('takes the rows of its answers; with a tied head: %s', async (isTied) => {
    const table: HandTable = { prefix, outside: outside(isTied), layer: decoderLayer };
    const weights = weightsOfTable(table, 3);
    const config = decoderConfig('Qwen3ForCausalLM', {
      head_dim: 16,
      tie_word_embeddings: isTied,
      _name_or_path: 'Qwen/Qwen3-Reranker-0.6B',
    });
    const conversion = await convert(weights, {
      'config.json': config,
      'tokenizer.json': withAnswers(),
      'tokenizer_config.json': { chat_template: 'own' },
    });
    expectTensors(conversion, table, 3);
    expect(keyOf(conversion, 'qwen3.pooling_type')).toBe(4);
    expect(keyOf(conversion, 'qwen3.classifier.output_labels')).toEqual(['yes', 'no']);
    expect(keyOf(conversion, 'tokenizer.chat_template')).toBe('own');
    expect(keyOf(conversion, 'tokenizer.chat_templates')).toEqual(['rerank']);
    expect(keyOf(conversion, 'tokenizer.chat_template.rerank')).toContain('<Query>: {query}\n<Document>: {document}');
    const last = decoderStates(weights, qwen3, text).at(-1)!;
    const logits = new Reader(weights).linear(isTied ? 'model.embed_tokens' : 'lm_head', last);
    expectScores(fileOf(conversion, weights), softmax([logits[259]!, logits[260]!]), near);
  });

  it('is known by its README, and refused without its answers', async () => {
    const table: HandTable = { prefix, outside: outside(true), layer: decoderLayer };
    const weights = weightsOfTable(table, 3);
    const config = decoderConfig('Qwen3ForCausalLM', { head_dim: 16, tie_word_embeddings: true });
    const readme = new TextEncoder().encode('text\n# Qwen3-Reranker-4B\n');
    const files = { 'config.json': config, 'README.md': readme };
    const known = await convert(weights, { ...files, 'tokenizer.json': withAnswers() });
    expect(keyOf(known, 'qwen3.pooling_type')).toBe(4);
    await expect(convert(weights, { ...files, 'tokenizer.json': plainTokenizer() })).rejects.toThrow(/"yes" or "no"/);
  });

  it.each([1, 3])('with a classifier of %d outputs', async (count) => {
    const table: HandTable = {
      prefix,
      outside: `
        model.embed_tokens.weight  token_embd.weight   264x64
        model.norm.weight          output_norm.weight  64
        score.weight               cls.output.weight   ${count}x64${count === 1 ? '  fill=2' : ''}`,
      layer: decoderLayer,
    };
    const weights = weightsOfTable(table, 3);
    const ids = Object.fromEntries(labels.slice(0, count).map((label, i) => [i, label]));
    const config = decoderConfig('Qwen3ForSequenceClassification', { head_dim: 16, id2label: ids });
    const conversion = await convert(weights, { 'config.json': config, 'tokenizer.json': plainTokenizer() });
    expectTensors(conversion, table, 3);
    expect(conversion.notes).toEqual([]);
    const last = decoderStates(weights, qwen3, text).at(-1)!;
    const scores = [...new Reader(weights).linear('score', last)];
    expectScores(fileOf(conversion, weights), softmax(count === 1 ? [scores[0]!, 0] : scores), near);
  });
});

describe('decoders without their heads', () => {
  needNative();

  const plain = (table: HandTable): HandTable => ({
    ...table,
    prefix: 'layers.',
    outside: `
      embed_tokens.weight  token_embd.weight   264x64
      norm.weight          output_norm.weight  64`,
  });
  const layer = decoderLayer.replace(/.*_norm\.weight {10}.*\n/g, '');
  const permuted = layer
    .replace(/(self_attn\.q_proj.*64x64)/, '$1  heads=4')
    .replace(/(self_attn\.k_proj.*32x64)/, '$1  heads=2');
  const biases = `
    self_attn.q_proj.bias  attn_q.bias  64
    self_attn.k_proj.bias  attn_k.bias  32
    self_attn.v_proj.bias  attn_v.bias  32`;

  it.each<[string, string, Json, string, Partial<Decoder>]>([
    ['Qwen2Model', 'qwen2', {}, layer + biases, {}],
    ['Qwen2Model', 'qwen2', { is_causal: false }, layer + biases, { bothSides: true }],
    ['Qwen3Model', 'qwen3', { head_dim: 16 }, decoderLayer, {}],
    ['LlamaModel', 'llama', {}, permuted, {}],
    ['LlamaBidirectionalModel', 'llama-embed', {}, permuted, { bothSides: true }],
  ])('%s as %s with %j', async (hugging, architecture, more, lines, model) => {
    const table = plain({ prefix: '', outside: '', layer: lines });
    const weights = weightsOfTable(table, 3);
    const conversion = await convert(weights, {
      'config.json': decoderConfig(hugging, more),
      'tokenizer.json': plainTokenizer(),
    });
    expect(conversion.architecture).toBe(architecture);
    expectTensors(conversion, table, 3);
    const own: Decoder = {
      ...qwen3,
      embedding: 'embed_tokens.weight',
      prefix: 'layers.',
      norms: { final: 'norm' },
      ...model,
    };
    const states = decoderStates(weights, own, text);
    using native = new NativeModel(fileOf(conversion, weights, [[`${architecture}.pooling_type`, 'u32', 3]]));
    expect(furthest([native.pooled(text)], [states.at(-1)!])).toBeLessThan(near);
  });
});
