// Encoders for transformers.js: graphs of tiny models with each head, run by onnxruntime, beside forward passes in float64 that were written
// from the definitions of Hugging Face's transformers.
import * as ort from 'onnxruntime-web';
import { quantizeModel } from 'scalepoint/model';
import { describe, expect, it } from 'vitest';
import { furthest, largest } from '../../support/decoder-tables.js';
import {
  add,
  mixed,
  multiply,
  Reader,
  rotaryFrequencies,
  rotate,
  silu,
  slices,
  type Vector,
} from '../../support/forward.js';
import { chosen, expectBytes, rejectionOf, safetensors } from '../../support/models.js';
import type { Weights } from '../../support/recipes.js';
import { bertWeights, Maker, nomicWeights, tiny, wordSettings, wordTokenizer } from '../../support/tiny-huggingface.js';
import { makeFolder, makeOf } from './runs.js';

const { hidden, heads, layers, feedForward } = tiny;
const rows = 40;
const tokens = [2, 5, 17, 30, 8, 22, 39, 11, 6, 3];
const shorter = [2, 9, 31, 7, 12, 3];

/** As with decoders: float32 sums of up to 96 products through 3 layers and a head. */
const near = 2.2e-6;

/** The error function: its series near 0, else the continued fraction of its complement. Good to 1e-13. */
function erf(x: number): number {
  const size = Math.abs(x);
  if (size < 2.5) {
    let [term, sum] = [x, x];
    for (let n = 1; n < 80; n++) {
      term *= (-x * x) / n;
      sum += term / (2 * n + 1);
    }
    return (2 / Math.sqrt(Math.PI)) * sum;
  }
  let fraction = 0;
  for (let n = 80; n > 0; n--) fraction = n / 2 / (size + fraction);
  return Math.sign(x) * (1 - Math.exp(-x * x) / Math.sqrt(Math.PI) / (size + fraction));
}
const gelu = (x: Vector) => x.map((v) => 0.5 * v * (1 + erf(v / Math.SQRT2)));
const tanh = (x: Vector) => x.map(Math.tanh);
const relu = (x: Vector) => x.map((v) => Math.max(0, v));

/** Attention over all tokens. @param bias of a score, by query, key and head */
function attend(
  parts: readonly (readonly Vector[])[],
  bias: (query: number, key: number, head: number) => number = () => 0,
  turn: (head: Vector, position: number) => Vector = (head) => head,
): Vector[] {
  const size = hidden / heads;
  const [q, k, v] = [0, 1, 2].map((which) => parts.map((part) => slices(part[which]!, size)));
  const turned = (all: Vector[][]) => all.map((row, t) => row.map((head) => turn(head, t)));
  return mixed(turned(q!), turned(k!), v!, (product, t, s, h) => product / Math.sqrt(size) + bias(t, s, h));
}

/** The names of a layer's tensors. */
interface LayerNames {
  readonly prefix: string;
  readonly attention: readonly string[];
  readonly output: string;
  readonly norms: readonly [string, string];
  readonly up: string;
  readonly down: string;
}

const bertNames: LayerNames = {
  prefix: 'encoder.layer.',
  attention: ['attention.self.query', 'attention.self.key', 'attention.self.value'],
  output: 'attention.output.dense',
  norms: ['attention.output.LayerNorm', 'output.LayerNorm'],
  up: 'intermediate.dense',
  down: 'output.dense',
};

/** The layers of BERT. */
function bertLayers(
  read: Reader,
  prefix: string,
  names: LayerNames,
  embedded: readonly Vector[],
  bias?: (query: number, key: number, head: number) => number,
): Vector[] {
  let x = [...embedded];
  for (let i = 0; i < layers; i++) {
    const p = `${prefix}${names.prefix}${i}.`;
    const mixedUp = attend(
      x.map((one) => names.attention.map((name) => read.linear(p + name, one))),
      bias,
    );
    x = x.map((one, t) => {
      const y = read.layerNorm(p + names.norms[0], add(one, read.linear(p + names.output, mixedUp[t]!)), 1e-12);
      return read.layerNorm(
        p + names.norms[1],
        add(y, read.linear(p + names.down, gelu(read.linear(p + names.up, y)))),
        1e-12,
      );
    });
  }
  return x;
}

/** Vectors of BERT and its kin. @param first the first position; `types` true if there are kinds of tokens */
const bertStates =
  (prefix: string, names: LayerNames, first: number, types: boolean) =>
  (read: Reader, text: readonly number[]): Vector[] => {
    const row = (name: string, i: number) => read.row(`${prefix}embeddings.${name}_embeddings.weight`, i);
    const embedded = text.map((token, t) => {
      const sum = add(row('word', token), row('position', first + t));
      const all = types ? add(sum, row('token_type', 0)) : sum;
      const normed = read.layerNorm(`${prefix}embeddings.LayerNorm`, all, 1e-12);
      return read.has(`${prefix}embeddings_project.weight`)
        ? read.linear(`${prefix}embeddings_project`, normed)
        : normed;
    });
    if (!read.has(`${prefix}encoder.relative_attention_bias.weight`)) return bertLayers(read, prefix, names, embedded);
    // MPNet's buckets: exact up to 8, then by the logarithm up to 128; keys behind the query have the second half.
    const bucket = (distance: number) => {
      const size = Math.abs(distance);
      const own = size < 8 ? size : Math.min(15, 8 + Math.floor((Math.log(size / 8) / Math.log(16)) * 8 + 1e-9));
      return own + (distance > 0 ? 16 : 0);
    };
    return bertLayers(
      read,
      prefix,
      names,
      embedded,
      (t, s, h) => read.row(`${prefix}encoder.relative_attention_bias.weight`, bucket(s - t))[h]!,
    );
  };

/** Weights of BERT's kin under their names. */
function bertKin(prefix: string, names: LayerNames, positions: number, types: number, width: number = hidden): Maker {
  const make = new Maker(5);
  make.matrix(`${prefix}embeddings.word_embeddings.weight`, rows, width);
  make.matrix(`${prefix}embeddings.position_embeddings.weight`, positions, width);
  if (types > 0) make.matrix(`${prefix}embeddings.token_type_embeddings.weight`, types, width);
  make.norm(`${prefix}embeddings.LayerNorm`, width);
  for (let i = 0; i < layers; i++) {
    const p = `${prefix}${names.prefix}${i}.`;
    for (const name of [...names.attention, names.output]) make.dense(p + name, hidden, hidden);
    for (const name of names.norms) make.norm(p + name, hidden);
    make.dense(p + names.up, feedForward, hidden).dense(p + names.down, hidden, feedForward);
  }
  return make;
}

/** ModernBERT's vectors. */
function modernStates(read: Reader, text: readonly number[]): Vector[] {
  const size = hidden / heads;
  let x = text.map((token) =>
    read.layerNorm('model.embeddings.norm', read.row('model.embeddings.tok_embeddings.weight', token), 1e-5),
  );
  for (let i = 0; i < layers; i++) {
    const p = `model.layers.${i}.`;
    const isGlobal = i % 3 === 0;
    const frequencies = rotaryFrequencies(isGlobal ? 160000 : 10000, size);
    const first = i === 0 ? x : x.map((one) => read.layerNorm(`${p}attn_norm`, one, 1e-5));
    const attended = attend(
      first.map((one) => slices(read.linear(`${p}attn.Wqkv`, one), hidden)),
      (t, s) => (isGlobal || Math.abs(t - s) <= 2 ? 0 : -Infinity),
      (head, t) => rotate(head, t, frequencies, 1),
    );
    x = x.map((one, t) => add(one, read.linear(`${p}attn.Wo`, attended[t]!)));
    x = x.map((one) => {
      const [input, gate] = slices(read.linear(`${p}mlp.Wi`, read.layerNorm(`${p}mlp_norm`, one, 1e-5)), feedForward);
      return add(one, read.linear(`${p}mlp.Wo`, multiply(gelu(input!), gate!)));
    });
  }
  return x.map((one) => read.layerNorm('model.final_norm', one, 1e-5));
}

function modernWeights(): Maker {
  const make = new Maker(6);
  const scale = (name: string) => make.vector(`${name}.weight`, hidden, 1);
  make.matrix('model.embeddings.tok_embeddings.weight', rows, hidden);
  scale('model.embeddings.norm');
  scale('model.final_norm');
  for (let i = 0; i < layers; i++) {
    const p = `model.layers.${i}.`;
    if (i > 0) scale(`${p}attn_norm`);
    scale(`${p}mlp_norm`);
    make.matrix(`${p}attn.Wqkv.weight`, 3 * hidden, hidden).matrix(`${p}attn.Wo.weight`, hidden, hidden);
    make.matrix(`${p}mlp.Wi.weight`, 2 * feedForward, hidden).matrix(`${p}mlp.Wo.weight`, hidden, feedForward);
  }
  return make;
}

/** Nomic's vectors. */
function nomicStates(read: Reader, text: readonly number[]): Vector[] {
  const frequencies = rotaryFrequencies(1000, hidden / heads);
  let x = text.map((token) => {
    const sum = add(
      read.row('embeddings.word_embeddings.weight', token),
      read.row('embeddings.token_type_embeddings.weight', 0),
    );
    return read.layerNorm('emb_ln', sum, 1e-12);
  });
  for (let i = 0; i < layers; i++) {
    const p = `encoder.layers.${i}.`;
    const attended = attend(
      x.map((one) => slices(read.linear(`${p}attn.Wqkv`, one), hidden)),
      undefined,
      (head, t) => rotate(head, t, frequencies, 1),
    );
    x = x.map((one, t) => {
      const y = read.layerNorm(`${p}norm1`, add(one, read.linear(`${p}attn.out_proj`, attended[t]!)), 1e-12);
      const inner = multiply(read.linear(`${p}mlp.fc11`, y), silu(read.linear(`${p}mlp.fc12`, y)));
      return read.layerNorm(`${p}norm2`, add(y, read.linear(`${p}mlp.fc2`, inner)), 1e-12);
    });
  }
  return x;
}

/** A product with a table, and a bias of another name. */
const tied = (read: Reader, words: string, bias: string) => (x: Vector) => {
  const { values } = read.get(bias);
  return read.linear(words, x).map((v, i) => v + values[i]!);
};

interface Case {
  readonly architecture: string;
  readonly weights: () => Maker;
  readonly states: (read: Reader, text: readonly number[]) => Vector[];
  readonly config?: Readonly<Record<string, unknown>>;
  /** The head's output of the vectors, for heads of tokens; of the text in one row. */
  readonly head?: (read: Reader, states: readonly Vector[]) => Vector[];
  readonly takesTypes?: true;
}

const config = {
  hidden_size: hidden,
  intermediate_size: feedForward,
  num_hidden_layers: layers,
  num_attention_heads: heads,
  max_position_embeddings: 60,
  vocab_size: rows,
  layer_norm_eps: 1e-12,
  hidden_act: 'gelu',
  type_vocab_size: 2,
};

const plainBert = () => Object.assign(new Maker(1), { weights: bertWeights(rows) });
const bertOf = (head: (make: Maker) => Maker) => () => head(bertKin('bert.', bertNames, 60, 2));
const bertWith = bertStates('bert.', bertNames, 0, true);
const robertaOf = (head: (make: Maker) => Maker) => () => head(bertKin('roberta.', bertNames, 60, 1));
const robertaWith = bertStates('roberta.', bertNames, 2, true);
const roberta = { ...config, pad_token_id: 1, type_vocab_size: 1 };
const distilNames: LayerNames = {
  prefix: 'transformer.layer.',
  attention: ['attention.q_lin', 'attention.k_lin', 'attention.v_lin'],
  output: 'attention.out_lin',
  norms: ['sa_layer_norm', 'output_layer_norm'],
  up: 'ffn.lin1',
  down: 'ffn.lin2',
};
const distil = {
  dim: hidden,
  hidden_dim: feedForward,
  n_layers: layers,
  n_heads: heads,
  max_position_embeddings: 60,
  vocab_size: rows,
  activation: 'gelu',
};
const distilOf = (head: (make: Maker) => Maker) => () => head(bertKin('distilbert.', distilNames, 60, 0));
const distilWith = bertStates('distilbert.', distilNames, 0, false);
const mpnetNames: LayerNames = {
  ...bertNames,
  attention: ['attention.attn.q', 'attention.attn.k', 'attention.attn.v'],
  output: 'attention.attn.o',
  norms: ['attention.LayerNorm', 'output.LayerNorm'],
};
const modern = {
  ...config,
  norm_eps: 1e-5,
  hidden_activation: 'gelu',
  local_attention: 4,
  global_attn_every_n_layers: 3,
  classifier_pooling: 'mean',
};
const nomic = {
  n_embd: hidden,
  n_inner: feedForward,
  n_layer: layers,
  n_head: heads,
  vocab_size: rows,
  layer_norm_epsilon: 1e-12,
  rotary_emb_base: 1000,
  rotary_emb_fraction: 1,
  activation_function: 'swiglu',
  type_vocab_size: 2,
};

const cases: readonly Case[] = [
  { architecture: 'BertModel', weights: plainBert, states: bertStates('', bertNames, 0, true), takesTypes: true },
  {
    architecture: 'BertForMaskedLM',
    weights: bertOf((make) =>
      make
        .dense('cls.predictions.transform.dense', hidden, hidden)
        .norm('cls.predictions.transform.LayerNorm', hidden)
        .vector('cls.predictions.bias', rows, 0),
    ),
    states: bertWith,
    takesTypes: true,
    head: (read, states) =>
      states
        .map((x) => gelu(read.linear('cls.predictions.transform.dense', x)))
        .map((x) => read.layerNorm('cls.predictions.transform.LayerNorm', x, 1e-12))
        .map(tied(read, 'bert.embeddings.word_embeddings', 'cls.predictions.bias')),
  },
  {
    architecture: 'BertForSequenceClassification',
    weights: bertOf((make) => make.dense('bert.pooler.dense', hidden, hidden).dense('classifier', 3, hidden)),
    states: bertWith,
    takesTypes: true,
    head: (read, [first]) => [read.linear('classifier', tanh(read.linear('bert.pooler.dense', first!)))],
  },
  {
    architecture: 'BertForTokenClassification',
    weights: bertOf((make) => make.dense('classifier', 5, hidden)),
    states: bertWith,
    takesTypes: true,
    head: (read, states) => states.map((x) => read.linear('classifier', x)),
  },
  {
    architecture: 'BertForQuestionAnswering',
    weights: bertOf((make) => make.dense('qa_outputs', 2, hidden)),
    states: bertWith,
    takesTypes: true,
    head: (read, states) => states.map((x) => read.linear('qa_outputs', x)),
  },
  {
    architecture: 'RobertaModel',
    weights: () => bertKin('', bertNames, 60, 1),
    states: bertStates('', bertNames, 2, true),
    config: roberta,
  },
  {
    architecture: 'RobertaForMaskedLM',
    weights: robertaOf((make) =>
      make.dense('lm_head.dense', hidden, hidden).norm('lm_head.layer_norm', hidden).vector('lm_head.bias', rows, 0),
    ),
    states: robertaWith,
    config: roberta,
    head: (read, states) =>
      states
        .map((x) => gelu(read.linear('lm_head.dense', x)))
        .map((x) => read.layerNorm('lm_head.layer_norm', x, 1e-12))
        .map(tied(read, 'roberta.embeddings.word_embeddings', 'lm_head.bias')),
  },
  {
    architecture: 'XLMRobertaForSequenceClassification',
    weights: robertaOf((make) =>
      make.dense('classifier.dense', hidden, hidden).dense('classifier.out_proj', 1, hidden),
    ),
    states: robertaWith,
    config: roberta,
    head: (read, [first]) => [read.linear('classifier.out_proj', tanh(read.linear('classifier.dense', first!)))],
  },
  {
    architecture: 'DistilBertForSequenceClassification',
    weights: distilOf((make) => make.dense('pre_classifier', hidden, hidden).dense('classifier', 2, hidden)),
    states: distilWith,
    config: distil,
    head: (read, [first]) => [read.linear('classifier', relu(read.linear('pre_classifier', first!)))],
  },
  {
    architecture: 'DistilBertForMaskedLM',
    weights: distilOf((make) =>
      make
        .dense('vocab_transform', hidden, hidden)
        .norm('vocab_layer_norm', hidden)
        .vector('vocab_projector.bias', rows, 0),
    ),
    states: distilWith,
    config: distil,
    head: (read, states) =>
      states
        .map((x) => gelu(read.linear('vocab_transform', x)))
        .map((x) => read.layerNorm('vocab_layer_norm', x, 1e-12))
        .map(tied(read, 'distilbert.embeddings.word_embeddings', 'vocab_projector.bias')),
  },
  {
    architecture: 'ElectraForSequenceClassification',
    weights: () =>
      bertKin('electra.', bertNames, 60, 2, 32)
        .dense('electra.embeddings_project', hidden, 32)
        .dense('classifier.dense', hidden, hidden)
        .dense('classifier.out_proj', 2, hidden),
    states: bertStates('electra.', bertNames, 0, true),
    config: { ...config, embedding_size: 32 },
    takesTypes: true,
    head: (read, [first]) => [read.linear('classifier.out_proj', gelu(read.linear('classifier.dense', first!)))],
  },
  {
    architecture: 'MPNetModel',
    weights: () => bertKin('', mpnetNames, 60, 0).matrix('encoder.relative_attention_bias.weight', 32, heads),
    states: bertStates('', mpnetNames, 2, false),
    config: { ...config, pad_token_id: 1 },
  },
  {
    architecture: 'ModernBertForSequenceClassification',
    weights: () =>
      modernWeights()
        .matrix('head.dense.weight', hidden, hidden)
        .vector('head.norm.weight', hidden, 1)
        .dense('classifier', 2, hidden),
    states: modernStates,
    config: modern,
    head(read, states) {
      const mean = states.reduce(add).map((v) => v / states.length);
      const x = read.layerNorm('head.norm', gelu(read.linear('head.dense', mean)), 1e-5);
      return [read.linear('classifier', x)];
    },
  },
  {
    architecture: 'ModernBertForMaskedLM',
    weights: () =>
      modernWeights()
        .matrix('head.dense.weight', hidden, hidden)
        .vector('head.norm.weight', hidden, 1)
        .vector('decoder.bias', rows, 0),
    states: modernStates,
    config: modern,
    head: (read, states) =>
      states
        .map((x) => read.layerNorm('head.norm', gelu(read.linear('head.dense', x)), 1e-5))
        .map(tied(read, 'model.embeddings.tok_embeddings', 'decoder.bias')),
  },
  {
    architecture: 'NomicBertModel',
    weights: () => Object.assign(new Maker(1), { weights: nomicWeights(rows) }),
    states: nomicStates,
    config: nomic,
    takesTypes: true,
  },
];

const filesOf = ({ architecture, config: own = config }: Case) => ({
  'config.json': { architectures: [architecture], ...own },
  'tokenizer.json': wordTokenizer(),
  'tokenizer_config.json': wordSettings,
});

/** Outputs of a model for two texts, the second of which has padding behind it. */
async function outputs(file: Uint8Array, takesTypes: boolean) {
  const session = await ort.InferenceSession.create(file.slice(), { logSeverityLevel: 3 });
  try {
    expect(session.inputNames).toEqual(['input_ids', 'attention_mask', ...(takesTypes ? ['token_type_ids'] : [])]);
    const all = [tokens, shorter];
    const tensorOf = (value: (text: readonly number[], t: number) => number) =>
      new ort.Tensor('int64', BigInt64Array.from(all.flatMap((text) => tokens.map((_, t) => BigInt(value(text, t))))), [
        2,
        tokens.length,
      ]);
    const found = await session.run({
      // The padding of RoBERTa.
      input_ids: tensorOf((text, t) => text[t] ?? 1),
      attention_mask: tensorOf((text, t) => Number(t < text.length)),
      ...(takesTypes ? { token_type_ids: tensorOf(() => 0) } : {}),
    });
    return new Map(
      Object.entries(found).map(([name, { data, dims }]) => [name, { data: data as Float32Array, dims: [...dims] }]),
    );
  } finally {
    await session.release();
  }
}

describe('outputs in float32 are those of the definition', () => {
  it.each(cases)('$architecture', async (one) => {
    const { weights } = one.weights();
    const { files } = await makeFolder(weights as Weights, filesOf(one), { to: 'onnx:fp32' });
    const found = await outputs(files.get('onnx/model.onnx')!, one.takesTypes === true);
    const read = new Reader(weights as Weights);
    for (const [b, text] of [tokens, shorter].entries()) {
      const states = one.states(read, text);
      const expected = one.head?.(read, states) ?? states;
      const row = (name: string, t: number) => {
        const { data, dims } = found.get(name)!;
        const inner = dims.length === 3 ? dims[2]! : dims[1]!;
        const at = dims.length === 3 ? b * tokens.length + t : b;
        return data.slice(at * inner, (at + 1) * inner);
      };
      const got = expected.map((_, t) => {
        if (one.architecture.endsWith('QuestionAnswering'))
          return Float32Array.of(row('start_logits', t)[t]!, row('end_logits', t)[t]!);
        return row(one.head === undefined ? 'last_hidden_state' : 'logits', t);
      });
      expect(got[0]).toHaveLength(expected[0]!.length);
      expect(furthest(got, expected)).toBeLessThan(near * Math.max(1, largest(expected)));
    }
  });
});

describe('modules of sentence-transformers', () => {
  const type = (name: string) => `sentence_transformers.models.${name}`;
  const list = (...names: readonly string[]) =>
    names.map((name, i) => ({ idx: i, name: String(i), path: i === 0 ? '' : `${i}_${name}`, type: type(name) }));
  const pooling = (mode: string) => ({ word_embedding_dimension: hidden, [`pooling_mode_${mode}`]: true });
  const make = new Maker(11).dense('2', 40, hidden).matrix('3.weight', 24, 40);
  const denses = Object.fromEntries(
    [2, 3].flatMap((i) => {
      const parts = ['weight', 'bias'].flatMap((end) => {
        const found = make.weights.get(`${i}.${end}`);
        return found === undefined ? [] : [[`linear.${end}`, { dtype: 'F32', shape: found.shape, data: found.values }]];
      });
      const [rows, columns] = i === 2 ? [40, hidden] : [24, 40];
      const config = {
        in_features: columns,
        out_features: rows,
        bias: i === 2,
        activation_function: i === 2 ? 'torch.nn.modules.activation.Tanh' : 'torch.nn.modules.linear.Identity',
      };
      return [
        [`${i}_Dense/config.json`, config],
        [`${i}_Dense/model.safetensors`, safetensors(Object.fromEntries(parts))],
      ];
    }),
  ) as Readonly<Record<string, object>>;
  const bert = { architecture: 'BertModel', weights: plainBert, states: bertStates('', bertNames, 0, true) } as const;
  const sourceOf = (files: Readonly<Record<string, object>>, architecture = 'BertModel') => {
    const { weights } = bert.weights();
    const tensors = [...(weights as Weights)].map(([name, { shape, values }]) => {
      return [name, { dtype: 'F32', shape, data: values }] as const;
    });
    const beside = { ...filesOf({ ...bert, architecture }), ...files };
    return [
      chosen('model.safetensors', safetensors(Object.fromEntries(tensors))),
      ...Object.entries(beside).map(([name, content]) => chosen(name, content)),
    ];
  };
  const normalized = (x: Vector) => x.map((v) => v / Math.hypot(...x));
  const ways: Readonly<Record<string, (states: readonly Vector[]) => Vector>> = {
    mean_tokens: (states) => states.reduce(add).map((v) => v / states.length),
    cls_token: ([first]) => first!,
    lasttoken: (states) => states.at(-1)!,
  };

  it.each(Object.entries(ways))('%s, products and a norm make one vector', async (mode, way) => {
    const files = {
      'modules.json': list('Transformer', 'Pooling', 'Dense', 'Dense', 'Normalize'),
      '1_Pooling/config.json': pooling(mode),
      ...denses,
    };
    // Weights of a head are not needed.
    const made = await makeOf(sourceOf(files, 'BertForMaskedLM'), { to: 'onnx:fp32' });
    expect([...made.files.keys()]).toEqual(
      expect.arrayContaining(['2_Dense/model.safetensors', '1_Pooling/config.json']),
    );
    const found = (await outputs(made.files.get('onnx/model.onnx')!, true)).get('sentence_embedding')!;
    expect(found.dims).toEqual([2, 24]);
    const read = new Reader(bert.weights().weights as Weights);
    const dense = new Reader(make.weights);
    for (const [b, text] of [tokens, shorter].entries()) {
      const expected = normalized(dense.linear('3', tanh(dense.linear('2', way(bert.states(read, text))))));
      // Vectors of length 1, whose elements follow from sums of at most 96 products in 3 layers and two more products.
      expect(furthest([found.data.slice(b * 24, (b + 1) * 24)], [expected])).toBeLessThan(2e-6);
    }
  });

  it('have the bytes of their float32 graph in other types, with codes for their products', async () => {
    const files = {
      'modules.json': list('Transformer', 'Pooling', 'Dense'),
      '1_Pooling/config.json': pooling('cls_token'),
      ...denses,
    };
    const floats = await makeOf(sourceOf(files), { to: 'onnx:fp32' });
    for (const to of ['q8', 'fp16', 'q4'] as const) {
      const direct = await makeOf(sourceOf(files), { to: `onnx:${to}` });
      const name = [...direct.files.keys()].find((one) => one.endsWith('.onnx'))!;
      const expected = await quantizeModel(floats.files.get('onnx/model.onnx')!, { to, workers: 0 });
      expectBytes(direct.files.get(name)!, await expected.bytes(), to);
      const { kept } = direct.result.report.tensors.find((one) => one.name === '2_Dense.linear.weight')!;
      expect(kept, to).toBeUndefined();
    }
  });

  const usual = {
    'modules.json': list('Transformer', 'Pooling', 'Dense'),
    '1_Pooling/config.json': pooling('mean_tokens'),
  };
  it.each<[string, Readonly<Record<string, object>>]>([
    ['the pooling is max', { ...usual, '1_Pooling/config.json': pooling('max_tokens') }],
    [
      'the pooling is mean and max',
      { ...usual, '1_Pooling/config.json': { ...pooling('mean_tokens'), ...pooling('max_tokens') } },
    ],
    ['include_prompt', { ...usual, '1_Pooling/config.json': { ...pooling('mean_tokens'), include_prompt: false } }],
    ['2_Dense/config.json', usual],
    [
      'module 2 is "sentence_transformers.models.LSTM"',
      { ...usual, 'modules.json': list('Transformer', 'Pooling', 'LSTM') },
    ],
    ['module 1 is', { ...usual, 'modules.json': list('Transformer', 'Dense') }],
    ['no module', { ...usual, 'modules.json': list('Transformer') }],
    [
      '"0_BERT"',
      {
        ...usual,
        'modules.json': list('Transformer', 'Pooling').map((one, i) => (i ? one : { ...one, path: '0_BERT' })),
      },
    ],
    [
      'activation_function is "torch.nn.modules.activation.Softplus"',
      {
        ...usual,
        ...denses,
        '2_Dense/config.json': {
          ...denses['2_Dense/config.json'],
          activation_function: 'torch.nn.modules.activation.Softplus',
        },
      },
    ],
    [
      'it takes vectors of 40 elements',
      {
        ...usual,
        ...denses,
        'modules.json': list('Transformer', 'Pooling', 'Dense').map((one, i) =>
          i < 2 ? one : { ...one, path: '3_Dense' },
        ),
      },
    ],
  ])('are refused by name: %s', async (message, files) => {
    const refused = await rejectionOf(quantizeModel(sourceOf(files), { to: 'onnx:fp32' }));
    expect((refused as Error).message.replaceAll("'", '"')).toContain(message.replaceAll("'", '"'));
    expect(refused).toMatchObject({ code: expect.stringMatching(/^(UNKNOWN_FORMAT|BAD_FILE)$/) });
  });
});

describe('a folder of bfloat16', () => {
  const one = cases.find(({ architecture }) => architecture === 'BertForMaskedLM')!;

  it.each(['fp16', 'q8', 'q4'] as const)('as onnx:%s has the bytes that its float32 has in that type', async (to) => {
    const weights = one.weights().weights as Weights;
    const floats = await makeFolder(weights, filesOf(one), { to: 'onnx:fp32' }, 'BF16');
    const direct = await makeFolder(weights, filesOf(one), { to: `onnx:${to}` }, 'BF16');
    const [file = ''] = [...direct.files.keys()].filter((name) => name.endsWith('.onnx'));
    const expected = await quantizeModel(floats.files.get('onnx/model.onnx')!, { to, workers: 0 });
    expectBytes(direct.files.get(file)!, await expected.bytes(), file);
  });
});
