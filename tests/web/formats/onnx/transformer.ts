// A small encoder in the layout of transformers.js: config.json, tokenizer.json, tokenizer_config.json and onnx/model.onnx. Its weights are
// random, of the size that training gives, so that its logits differ from token to token.
import * as onnx from './encoder.js';

const hidden = 64;
const heads = 4;
const inner = 256;
const layers = 2;
const positions = 32;
const tokenTypes = 8;

const special = ['[PAD]', '[UNK]', '[CLS]', '[SEP]', '[MASK]'];
const words =
  'a an the small large model weight scale zero point code block reads writes holds rounds and or not . ,'.split(' ');
const vocabulary = [...special, ...words, ...Array.from({ length: 102 }, (_, i) => `##${i}`)];

/** The sentence that tests read. */
export const sentence = 'the small model reads a large block , and writes the scale or the zero point .';

/** Collects nodes and weights of a graph. */
class Builder {
  readonly nodes: onnx.TestNode[] = [];
  readonly initializers: onnx.Bytes[] = [];
  #count = 0;

  /** Adds a node with one output, whose name it returns. */
  add(op: string, inputs: readonly string[], attributes: onnx.TestNode['attributes'] = {}, out = `v${this.#count}`) {
    this.nodes.push({ op, name: `${op}_${this.#count++}`, in: inputs, out: [out], attributes });
    return out;
  }

  /** A matrix or table. Values are uniform sums of variance spread²/4; so outputs of a product keep the size of its inputs. */
  weight(name: string, dims: readonly number[], spread: number): string {
    this.initializers.push(onnx.floatTensor(name, dims, this.initializers.length + 1, spread));
    return name;
  }

  floats(name: string, values: readonly number[], dims: readonly number[] = [values.length]): string {
    this.initializers.push(onnx.tensor({ name, dims, raw: onnx.floats(values) }));
    return name;
  }

  integers(name: string, values: readonly number[], dims: readonly number[] = [values.length]): string {
    this.initializers.push(onnx.tensor({ name, type: 7, dims, raw: onnx.int64s(values) }));
    return name;
  }

  norm(x: string, name: string): string {
    const scale = this.floats(
      `${name}.weight`,
      Array.from({ length: hidden }, (_, i) => 1 + 0.1 * Math.sin(i)),
    );
    const bias = this.floats(
      `${name}.bias`,
      Array.from({ length: hidden }, (_, i) => 0.1 * Math.cos(i)),
    );
    return this.add('LayerNormalization', [x, scale, bias], { axis: -1, epsilon: { float: 1e-5 } });
  }

  /** @param spread smaller for what is added to the sum that goes through all layers */
  linear(x: string, name: string, from: number, to: number, spread = 2 / Math.sqrt(from)): string {
    const product = this.add('MatMul', [x, this.weight(`${name}.weight`, [from, to], spread)]);
    return this.add('Add', [product, this.weight(`${name}.bias`, [to], 0.1)]);
  }
}

/** One layer: attention over all tokens that the mask leaves, then two products with a bend between them. */
function layer(b: Builder, x: string, mask: string, name: string): string {
  const split = (what: string, perm: number[]) => {
    const rows = b.add('Reshape', [b.linear(x, `${name}.${what}`, hidden, hidden), 'by_head']);
    return b.add('Transpose', [rows], { perm });
  };
  const [query, key, value] = [split('query', [0, 2, 1, 3]), split('key', [0, 2, 3, 1]), split('value', [0, 2, 1, 3])];
  const scores = b.add('Add', [b.add('Mul', [b.add('MatMul', [query, key]), 'sharpness']), mask]);
  const mixed = b.add('MatMul', [b.add('Softmax', [scores], { axis: -1 }), value]);
  const joined = b.add('Reshape', [b.add('Transpose', [mixed], { perm: [0, 2, 1, 3] }), 'joined']);
  const attended = b.norm(
    b.add('Add', [x, b.linear(joined, `${name}.output`, hidden, hidden, 1 / Math.sqrt(hidden))]),
    `${name}.norm1`,
  );
  const up = b.linear(attended, `${name}.up`, hidden, inner);
  const bent = b.add('Mul', [up, b.add('Sigmoid', [up])]);
  return b.norm(
    b.add('Add', [attended, b.linear(bent, `${name}.down`, inner, hidden, 1 / Math.sqrt(inner))]),
    `${name}.norm2`,
  );
}

/** The float32 model: input_ids, attention_mask and token_type_ids to logits. Its table of tokens is also that of the output. */
export function encoderModel(): Uint8Array<ArrayBuffer> {
  const b = new Builder();
  const table = b.weight('embeddings.word', [vocabulary.length, hidden], 2);
  b.weight('embeddings.position', [positions, hidden], 0.5);
  b.weight('embeddings.type', [tokenTypes, hidden], 0.5);
  b.floats('sharpness', [1 / Math.sqrt(hidden / heads)], []);
  b.floats('one', [1], []);
  b.floats('least', [-10_000], []);
  b.integers('by_head', [0, 0, heads, hidden / heads]);
  b.integers('joined', [0, 0, hidden]);
  b.integers('first', [0], []);
  b.integers('step', [1], []);
  b.integers('axis1', [1], []);
  b.integers('mask_axes', [1, 2]);
  const length = b.add('Gather', [b.add('Shape', ['input_ids']), 'axis1'], { axis: 0 });
  const places = b.add('Gather', ['embeddings.position', b.add('Range', ['first', length, 'step'])]);
  const types = b.add('Gather', ['embeddings.type', 'token_type_ids']);
  const tokens = b.add('Gather', [table, 'input_ids']);
  const seen = b.add('Unsqueeze', [b.add('Cast', ['attention_mask'], { to: 1 }), 'mask_axes']);
  const mask = b.add('Mul', [b.add('Sub', ['one', seen]), 'least']);
  let x = b.norm(b.add('Add', [b.add('Add', [tokens, types]), places]), 'embeddings.norm');
  for (let i = 0; i < layers; i++) x = layer(b, x, mask, `layer.${i}`);
  b.add('MatMul', [x, b.add('Transpose', [table], { perm: [1, 0] })], {}, 'logits');
  const tokenInput = (name: string) => [name, ['batch_size', 'sequence_length'], 7] as const;
  return onnx.model({
    nodes: b.nodes,
    initializers: b.initializers,
    inputs: ['input_ids', 'attention_mask', 'token_type_ids'].map(tokenInput),
    outputs: [['logits', ['batch_size', 'sequence_length', vocabulary.length]]],
  });
}

const tokenizer = {
  version: '1.0',
  truncation: null,
  padding: null,
  added_tokens: special.map((content, id) => ({
    id,
    content,
    single_word: false,
    lstrip: false,
    rstrip: false,
    normalized: false,
    special: true,
  })),
  normalizer: {
    type: 'BertNormalizer',
    clean_text: true,
    handle_chinese_chars: true,
    strip_accents: null,
    lowercase: true,
  },
  pre_tokenizer: { type: 'BertPreTokenizer' },
  post_processor: {
    type: 'TemplateProcessing',
    single: [
      { SpecialToken: { id: '[CLS]', type_id: 0 } },
      { Sequence: { id: 'A', type_id: 0 } },
      { SpecialToken: { id: '[SEP]', type_id: 0 } },
    ],
    pair: [],
    special_tokens: {
      '[CLS]': { id: '[CLS]', ids: [2], tokens: ['[CLS]'] },
      '[SEP]': { id: '[SEP]', ids: [3], tokens: ['[SEP]'] },
    },
  },
  decoder: { type: 'WordPiece', prefix: '##', cleanup: true },
  model: {
    type: 'WordPiece',
    unk_token: '[UNK]',
    continuing_subword_prefix: '##',
    max_input_chars_per_word: 100,
    vocab: Object.fromEntries(vocabulary.map((word, i) => [word, i])),
  },
};

/** The small files beside the model. */
export const sidecars: Readonly<Record<string, object>> = {
  'config.json': {
    model_type: 'bert',
    architectures: ['BertForMaskedLM'],
    hidden_size: hidden,
    num_attention_heads: heads,
    num_hidden_layers: layers,
    intermediate_size: inner,
    max_position_embeddings: positions,
    type_vocab_size: tokenTypes,
    vocab_size: vocabulary.length,
    pad_token_id: 0,
  },
  'tokenizer.json': tokenizer,
  'tokenizer_config.json': {
    tokenizer_class: 'BertTokenizer',
    model_max_length: positions,
    unk_token: '[UNK]',
    cls_token: '[CLS]',
    sep_token: '[SEP]',
    pad_token: '[PAD]',
    mask_token: '[MASK]',
  },
};
