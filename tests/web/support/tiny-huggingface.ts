// Tiny random models as Hugging Face's folders hold them: config.json, tokenizer and weights under Hugging Face's names.
import type { Weight } from './recipes.js';
import { xorshift } from './xorshift.js';

type Json = Record<string, unknown>;

/** Sizes of the tiny models. */
export const tiny = { hidden: 64, heads: 4, keyHeads: 2, feedForward: 96, layers: 3, vocabulary: 264 } as const;

/** Random numbers around 0. The same seed gives the same ones. */
function random(seed: number): () => number {
  const bits = xorshift(seed);
  const uniform = () => bits() / 2 ** 32;
  return () => uniform() + uniform() + uniform() + uniform() - 2;
}

/** Weights by name, made as they are named. */
export class Maker {
  readonly weights = new Map<string, Weight>();
  private readonly next: () => number;

  constructor(seed: number) {
    this.next = random(seed);
  }

  matrix(name: string, rows: number, columns: number): this {
    const values = Float32Array.from({ length: rows * columns }, () => (this.next() / Math.sqrt(columns)) * 1.5);
    this.weights.set(name, { shape: [rows, columns], values });
    return this;
  }

  /** A vector around a number. */
  vector(name: string, length: number, around: number): this {
    this.weights.set(name, {
      shape: [length],
      values: Float32Array.from({ length }, () => around + 0.3 * this.next()),
    });
    return this;
  }

  /** A matrix with a bias. */
  dense(name: string, rows: number, columns: number): this {
    return this.matrix(`${name}.weight`, rows, columns).vector(`${name}.bias`, rows, 0);
  }

  /** A LayerNorm. */
  norm(name: string, length: number): this {
    return this.vector(`${name}.weight`, length, 1).vector(`${name}.bias`, length, 0);
  }
}

/** Choices of a decoder's weights. */
export interface DecoderOptions {
  readonly layers?: number;
  readonly head?: number;
  readonly heads?: number;
  readonly keyHeads?: number;
  /** Which projections have biases. */
  readonly biases?: readonly string[];
  readonly headNorms?: boolean;
  readonly tied?: boolean;
  readonly gemma?: boolean;
  /** True if queries, keys and values are one matrix, and gate and up another. */
  readonly fused?: boolean;
  /** Experts under their names, instead of one feed-forward. */
  readonly experts?: {
    readonly count: number;
    readonly router: string;
    readonly names: (e: number) => readonly string[];
  };
  readonly rows?: number;
  readonly seed?: number;
}

/** Weights of a decoder. */
export function decoderWeights({
  layers = tiny.layers,
  heads = tiny.heads,
  head = tiny.hidden / tiny.heads,
  keyHeads = tiny.keyHeads,
  biases = [],
  headNorms = false,
  tied = false,
  gemma = false,
  fused = false,
  experts,
  rows = tiny.vocabulary,
  seed = 1,
}: DecoderOptions = {}): Map<string, Weight> {
  const make = new Maker(seed);
  const { hidden, feedForward } = tiny;
  const around = gemma ? 0 : 1;
  const project = (name: string, out: number, into: number) =>
    biases.includes(name.split('.').at(-1)!) ? make.dense(name, out, into) : make.matrix(`${name}.weight`, out, into);
  make.matrix('model.embed_tokens.weight', rows, hidden);
  for (let i = 0; i < layers; i++) {
    const p = `model.layers.${i}.`;
    make
      .vector(`${p}input_layernorm.weight`, hidden, around)
      .vector(`${p}post_attention_layernorm.weight`, hidden, around);
    if (gemma)
      for (const name of ['pre', 'post']) make.vector(`${p}${name}_feedforward_layernorm.weight`, hidden, around);
    if (fused) project(`${p}self_attn.qkv_proj`, (heads + 2 * keyHeads) * head, hidden);
    else
      for (const [name, count] of [
        ['q', heads],
        ['k', keyHeads],
        ['v', keyHeads],
      ] as const)
        project(`${p}self_attn.${name}_proj`, count * head, hidden);
    project(`${p}self_attn.o_proj`, hidden, heads * head);
    if (headNorms) for (const name of ['q', 'k']) make.vector(`${p}self_attn.${name}_norm.weight`, head, around);
    if (experts !== undefined) {
      make.matrix(`${p}${experts.router}.weight`, experts.count, hidden);
      for (let e = 0; e < experts.count; e++) {
        const [gate, up, down] = experts.names(e) as [string, string, string];
        make.matrix(`${p}${gate}.weight`, feedForward, hidden).matrix(`${p}${down}.weight`, hidden, feedForward);
        make.matrix(`${p}${up}.weight`, feedForward, hidden);
      }
    } else if (fused) {
      make.matrix(`${p}mlp.gate_up_proj.weight`, 2 * feedForward, hidden);
      make.matrix(`${p}mlp.down_proj.weight`, hidden, feedForward);
    } else {
      project(`${p}mlp.gate_proj`, feedForward, hidden);
      project(`${p}mlp.up_proj`, feedForward, hidden);
      project(`${p}mlp.down_proj`, hidden, feedForward);
    }
  }
  make.vector('model.norm.weight', hidden, around);
  if (!tied) make.matrix('lm_head.weight', rows, hidden);
  return make.weights;
}

/** The config.json of a decoder. `more` adds keys; a key that is undefined is left out. */
export function decoderConfig(architecture: string, more: Json = {}): Json {
  return {
    architectures: [architecture],
    hidden_size: tiny.hidden,
    intermediate_size: tiny.feedForward,
    num_hidden_layers: tiny.layers,
    num_attention_heads: tiny.heads,
    num_key_value_heads: tiny.keyHeads,
    max_position_embeddings: 128,
    rms_norm_eps: 1e-5,
    rope_theta: 10000,
    vocab_size: tiny.vocabulary,
    ...more,
  };
}

/** Weights of BERT. */
export function bertWeights(rows: number, seed = 1): Map<string, Weight> {
  const make = new Maker(seed);
  const { hidden, feedForward, layers } = tiny;
  make.matrix('embeddings.word_embeddings.weight', rows, hidden);
  make.matrix('embeddings.position_embeddings.weight', 128, hidden);
  make.matrix('embeddings.token_type_embeddings.weight', 2, hidden);
  make.norm('embeddings.LayerNorm', hidden);
  for (let i = 0; i < layers; i++) {
    const p = `encoder.layer.${i}.`;
    for (const name of ['query', 'key', 'value']) make.dense(`${p}attention.self.${name}`, hidden, hidden);
    make.dense(`${p}attention.output.dense`, hidden, hidden).norm(`${p}attention.output.LayerNorm`, hidden);
    make.dense(`${p}intermediate.dense`, feedForward, hidden).dense(`${p}output.dense`, hidden, feedForward);
    make.norm(`${p}output.LayerNorm`, hidden);
  }
  return make.weights;
}

/** Weights of Nomic's BERT. */
export function nomicWeights(rows: number, seed = 1): Map<string, Weight> {
  const make = new Maker(seed);
  const { hidden, feedForward, layers } = tiny;
  make.matrix('embeddings.word_embeddings.weight', rows, hidden);
  make.matrix('embeddings.token_type_embeddings.weight', 2, hidden);
  make.norm('emb_ln', hidden);
  for (let i = 0; i < layers; i++) {
    const p = `encoder.layers.${i}.`;
    make.matrix(`${p}attn.Wqkv.weight`, 3 * hidden, hidden).matrix(`${p}attn.out_proj.weight`, hidden, hidden);
    make.norm(`${p}norm1`, hidden).norm(`${p}norm2`, hidden);
    make.matrix(`${p}mlp.fc11.weight`, feedForward, hidden).matrix(`${p}mlp.fc12.weight`, feedForward, hidden);
    make.matrix(`${p}mlp.fc2.weight`, hidden, feedForward);
  }
  return make.weights;
}

/** A SentencePiece-style tokenizer.json with the 256 bytes and little else. */
export function plainTokenizer(more: Json = {}): Json {
  const tokens = [
    '<unk>',
    '<s>',
    '</s>',
    ...Array.from({ length: 256 }, (_, i) => `<0x${i.toString(16).toUpperCase().padStart(2, '0')}>`),
    ...'abcd▁',
  ];
  return {
    added_tokens: tokens.slice(0, 3).map((content, id) => ({ id, content, special: true })),
    normalizer: { type: 'Replace', pattern: { String: ' ' }, content: '▁' },
    pre_tokenizer: null,
    post_processor: null,
    model: {
      type: 'BPE',
      byte_fallback: true,
      unk_token: '<unk>',
      vocab: Object.fromEntries(tokens.map((token, id) => [token, id])),
      merges: [],
    },
    ...more,
  };
}

/** A WordPiece tokenizer.json of a few words. */
export function wordTokenizer(more: Json = {}): Json {
  const tokens = ['[PAD]', '[UNK]', '[CLS]', '[SEP]', '[MASK]', 'the', 'cat', 'sat', '##s', 'on', 'mat', '.'];
  return {
    added_tokens: tokens.slice(0, 5).map((content, id) => ({ id, content, special: true })),
    normalizer: { type: 'BertNormalizer', lowercase: true },
    pre_tokenizer: { type: 'BertPreTokenizer' },
    model: {
      type: 'WordPiece',
      unk_token: '[UNK]',
      continuing_subword_prefix: '##',
      max_input_chars_per_word: 100,
      vocab: Object.fromEntries(tokens.map((token, id) => [token, id])),
    },
    ...more,
  };
}

/** The tokenizer_config.json of `wordTokenizer`. */
export const wordSettings: Json = {
  unk_token: '[UNK]',
  sep_token: '[SEP]',
  pad_token: '[PAD]',
  cls_token: '[CLS]',
  mask_token: '[MASK]',
};

/** Files beside the weights of a BERT whose vocabulary has a size. */
export const bertFiles = (vocabulary: number) => ({
  'config.json': decoderConfig('BertModel', { layer_norm_eps: 1e-12, type_vocab_size: 2, vocab_size: vocabulary }),
  'tokenizer.json': wordTokenizer(),
  'tokenizer_config.json': wordSettings,
});
