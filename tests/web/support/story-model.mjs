// The TinyStories sample as a plain ONNX graph, texts drawn from it, and the moments of the inputs of its weights. The forward pass here
// computes in double, a token at a time, and shares no code with the package or with the graph.
import { readFileSync } from 'node:fs';
import { join } from 'node:path';

// ----------------------------------------------------------------------------------------------------------------- weights

/** Sizes of the network, from its config.json. */
const [layers, width, heads, keyHeads, vocabulary] = [2, 128, 8, 4, 2048];
const head = width / heads;
const epsilon = 1e-6;
const theta = 10_000;
/** Ids that begin and end texts. */
const [begin, end] = [1, 2];

/** @typedef {Record<string, { shape: number[], data: Float32Array<ArrayBuffer> }>} Weights */

/**
 * The tensors of the network.
 * @param {string} folder the sample
 * @returns {Weights}
 */
export const storyWeights = (folder) => weightsIn(join(folder, 'model.safetensors'));

/**
 * The tensors of a file in float32.
 * @param {string} path
 * @returns {Weights}
 */
export function weightsIn(path) {
  const bytes = readFileSync(path);
  const length = Number(bytes.readBigUInt64LE(0));
  const header = JSON.parse(bytes.subarray(8, 8 + length).toString());
  delete header.__metadata__;
  return Object.fromEntries(
    Object.entries(header).map(
      ([
        name,
        {
          shape,
          data_offsets: [from, to],
        },
      ]) => {
        const data = new Float32Array(new Uint8Array(bytes.subarray(8 + length + from, 8 + length + to)).buffer);
        return [name, { shape, data }];
      },
    ),
  );
}

/** The weights of products in the layers, each with the others that have the same input. */
export const sharedInputs = Array.from({ length: layers }, (_, i) => [
  ['q', 'k', 'v'].map((part) => `model.layers.${i}.self_attn.${part}_proj.weight`),
  [`model.layers.${i}.self_attn.o_proj.weight`],
  ['gate', 'up'].map((part) => `model.layers.${i}.mlp.${part}_proj.weight`),
  [`model.layers.${i}.mlp.down_proj.weight`],
]).flat();

// -------------------------------------------------------------------------------------------------------------- in JavaScript

/** Sums of the products of rows with x. @param {Float32Array} w @param {number} n @param {Float64Array} x */
function product(w, n, x) {
  const y = new Float64Array(w.length / n);
  // Add up four rows at a time, which do not wait for each other.
  let row = 0;
  for (; row + 3 < y.length; row += 4) {
    let [a, b, c, d] = [0, 0, 0, 0];
    const at = row * n;
    for (let i = 0; i < n; i++) {
      const v = x[i];
      a += w[at + i] * v;
      b += w[at + n + i] * v;
      c += w[at + 2 * n + i] * v;
      d += w[at + 3 * n + i] * v;
    }
    y[row] = a;
    y[row + 1] = b;
    y[row + 2] = c;
    y[row + 3] = d;
  }
  for (; row < y.length; row++) for (let i = 0; i < n; i++) y[row] += w[row * n + i] * x[i];
  return y;
}

/** One text, token after token. */
class StoryText {
  /** @type {{ k: Float64Array[], v: Float64Array[] }[]} */
  #past = Array.from({ length: layers }, () => ({ k: [], v: [] }));
  #weights;
  #onInput;

  /**
   * @param {Weights} weights
   * @param {(name: string, x: Float64Array) => void} [onInput] takes the input of each weight in the layers
   */
  constructor(weights, onInput = () => {}) {
    this.#weights = weights;
    this.#onInput = onInput;
  }

  #data(/** @type {string} */ name) {
    const weight = this.#weights[name];
    if (weight === undefined) throw new Error(`no ${name}`);
    return weight.data;
  }

  #product(/** @type {string} */ name, /** @type {Float64Array} */ x) {
    const w = this.#data(name);
    const n = x.length;
    if (name !== 'lm_head.weight') this.#onInput(name, x);
    return product(w, n, x);
  }

  #norm(/** @type {string} */ name, /** @type {Float64Array} */ x) {
    const w = this.#data(name);
    const scale = 1 / Math.sqrt(x.reduce((sum, v) => sum + v * v, 0) / x.length + epsilon);
    return x.map((v, i) => v * scale * w[i]);
  }

  #turn(/** @type {Float64Array} */ x, /** @type {number} */ position) {
    const half = head / 2;
    for (let i = 0; i < half; i++) {
      const angle = position * theta ** (-i / half);
      const [cos, sin] = [Math.cos(angle), Math.sin(angle)];
      for (let at = 0; at < x.length; at += head) {
        const a = x[at + i];
        const b = x[at + half + i];
        x[at + i] = a * cos - b * sin;
        x[at + half + i] = b * cos + a * sin;
      }
    }
    return x;
  }

  /** The logits behind the next token. @param {number} token */
  next(token) {
    const position = this.#past[0].k.length;
    const add = (/** @type {Float64Array} */ x, /** @type {Float64Array} */ y) => x.map((v, i) => v + y[i]);
    let x = Float64Array.from(this.#data('lm_head.weight').subarray(token * width, (token + 1) * width));
    for (const [i, { k, v }] of this.#past.entries()) {
      const layer = `model.layers.${i}`;
      const a = this.#norm(`${layer}.input_layernorm.weight`, x);
      const q = this.#turn(this.#product(`${layer}.self_attn.q_proj.weight`, a), position);
      k.push(this.#turn(this.#product(`${layer}.self_attn.k_proj.weight`, a), position));
      v.push(this.#product(`${layer}.self_attn.v_proj.weight`, a));
      const mixed = new Float64Array(width);
      for (let h = 0; h < heads; h++) {
        const [to, from] = [h * head, Math.floor((h * keyHeads) / heads) * head];
        const scores = k.map((key) => {
          let sum = 0;
          for (let j = 0; j < head; j++) sum += q[to + j] * key[from + j];
          return sum / Math.sqrt(head);
        });
        const most = Math.max(...scores);
        const shares = scores.map((score) => Math.exp(score - most));
        const all = shares.reduce((sum, share) => sum + share, 0);
        for (let t = 0; t < shares.length; t++) {
          const part = shares[t] / all;
          const values = v[t];
          for (let j = 0; j < head; j++) mixed[to + j] += part * values[from + j];
        }
      }
      x = add(x, this.#product(`${layer}.self_attn.o_proj.weight`, mixed));
      const b = this.#norm(`${layer}.post_attention_layernorm.weight`, x);
      const gate = this.#product(`${layer}.mlp.gate_proj.weight`, b);
      const up = this.#product(`${layer}.mlp.up_proj.weight`, b);
      const bent = gate.map((g, j) => (g / (1 + Math.exp(-g))) * up[j]);
      x = add(x, this.#product(`${layer}.mlp.down_proj.weight`, bent));
    }
    return this.#product('lm_head.weight', this.#norm('model.norm.weight', x));
  }
}

/**
 * Texts drawn from the network, always the same. The next token is drawn with its own probability.
 * @param {Weights} weights
 * @param {{ texts: number, length: number, seed: number }} wanted
 * @param {(name: string, x: Float64Array) => void} [onInput]
 */
export function drawTexts(weights, { texts, length, seed }, onInput) {
  let state = seed;
  const uniform = () => {
    state = (state + 0x6d2b79f5) | 0;
    let t = Math.imul(state ^ (state >>> 15), 1 | state);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32;
  };
  return Array.from({ length: texts }, () => {
    const text = new StoryText(weights, onInput);
    const ids = [begin];
    while (ids.length < length) {
      const logits = text.next(/** @type {number} */ (ids.at(-1)));
      const most = logits.reduce((a, b) => Math.max(a, b));
      const shares = logits.map((v) => Math.exp(v - most));
      let left = uniform() * shares.reduce((sum, v) => sum + v, 0);
      const found = shares.findIndex((v) => {
        left -= v;
        return left < 0;
      });
      ids.push(found === end || found < 0 ? begin : found);
    }
    text.next(/** @type {number} */ (ids.at(-1)));
    return ids;
  });
}

/** Adds up the moments of the inputs of weights. */
export class StoryMoments {
  /** @type {Map<string, { sums: Float64Array, columns: number }>} */
  #sums = new Map();
  #tokens = 0;

  /** @param {string} name @param {Float64Array} x */
  add(name, x) {
    const shared = sharedInputs.find(([first]) => first === name);
    if (shared === undefined) return;
    const n = x.length;
    const { sums } = this.#sums.get(name) ?? { sums: new Float64Array(n * n) };
    for (let i = 0; i < n; i++) {
      const [row, one] = [i * n, x[i]];
      for (let j = 0; j < n; j++) sums[row + j] += one * x[j];
    }
    this.#sums.set(name, { sums, columns: n });
    if (name === sharedInputs[0][0]) this.#tokens++;
  }

  /** The file of moments. */
  file() {
    const inputs = [...this.#sums].map(([name, { sums, columns }]) => ({
      names: /** @type {string[]} */ (sharedInputs.find(([first]) => first === name)),
      columns,
      moments: Float32Array.from(sums, (v) => v / this.#tokens),
    }));
    return momentsFile(inputs, this.#tokens);
  }
}

/**
 * A file of moments as calibrating writes it.
 * @param {readonly { names: readonly string[], columns: number, moments: Float32Array<ArrayBuffer> }[]} inputs
 * @param {number} tokens
 */
export function momentsFile(inputs, tokens) {
  /** @type {Record<string, unknown>} */
  const header = {
    __metadata__: {
      format: 'scalepoint.moments',
      tokens: String(tokens),
      ...Object.fromEntries(inputs.flatMap(({ names }) => names.map((name) => [name, names[0]]))),
    },
  };
  /** @type {Float32Array<ArrayBuffer>[]} */
  const parts = [];
  let at = 0;
  const place = (
    /** @type {string} */ name,
    /** @type {number[]} */ shape,
    /** @type {Float32Array<ArrayBuffer>} */ data,
  ) => {
    header[name] = { dtype: 'F32', shape, data_offsets: [at, at + data.byteLength] };
    at += data.byteLength;
    parts.push(data);
  };
  for (const { names, columns, moments } of inputs) {
    const diagonal = Float32Array.from({ length: columns }, (_, i) => moments[i * (columns + 1)]);
    place(`${names[0]}.diagonal`, [columns], diagonal);
    place(/** @type {string} */ (names[0]), [columns, columns], moments);
  }
  const json = Buffer.from(JSON.stringify(header));
  const size = Buffer.alloc(8);
  size.writeBigUInt64LE(BigInt(json.length));
  return new Uint8Array(Buffer.concat([size, json, ...parts.map(({ buffer }) => Buffer.from(buffer))]));
}

// ------------------------------------------------------------------------------------------------------------------- as ONNX

/** @param {number} value @returns {number[]} */
const varint = (value) => (value < 128 ? [value] : [(value % 128) + 128, ...varint(Math.floor(value / 128))]);
const field = (/** @type {number} */ number, /** @type {Uint8Array} */ bytes) =>
  Buffer.concat([Buffer.from([...varint(number * 8 + 2), ...varint(bytes.length)]), bytes]);
const text = (/** @type {number} */ number, /** @type {string} */ value) => field(number, Buffer.from(value));
const int = (/** @type {number} */ number, /** @type {number} */ value) =>
  Buffer.from([...varint(number * 8), ...varint(value)]);
const message = (/** @type {Uint8Array[]} */ ...parts) => Buffer.concat(parts);

/** Collects nodes and tensors of a graph. */
export class Graph {
  /** @type {Buffer[]} */
  #nodes = [];
  /** @type {Buffer[]} */
  #tensors = [];
  /** @type {Set<string>} */
  #domains = new Set();
  #count = 0;

  /**
   * Adds a node with one output, whose name it returns.
   * @param {string} op
   * @param {string[]} inputs
   * @param {Record<string, number | number[]>} [attributes] integers
   * @param {string} [output]
   * @param {string} [domain]
   */
  add(op, inputs, attributes = {}, output = `v${this.#count++}`, domain = '') {
    const given = Object.entries(attributes).map(([name, value]) => {
      const numbers = Array.isArray(value) ? value.map((v) => int(8, v)) : [int(3, value)];
      return field(5, message(text(1, name), ...numbers, int(20, Array.isArray(value) ? 7 : 2)));
    });
    const node = [...inputs.map((name) => text(1, name)), text(2, output), text(4, op), ...given];
    this.#nodes.push(message(...node, ...(domain === '' ? [] : [text(7, domain)])));
    if (domain !== '') this.#domains.add(domain);
    return output;
  }

  /** @param {string} name @param {number[]} dims @param {ArrayLike<number>} values */
  floats(name, dims, values) {
    const data = Float32Array.from(values);
    this.#tensors.push(
      message(...dims.map((d) => int(1, d)), int(2, 1), text(8, name), field(9, Buffer.from(data.buffer))),
    );
    return name;
  }

  /** @param {string} name @param {number[]} values */
  integers(name, values) {
    const data = BigInt64Array.from(values.map(BigInt));
    this.#tensors.push(message(int(1, values.length), int(2, 7), text(8, name), field(9, Buffer.from(data.buffer))));
    return name;
  }

  /** A scalar. @param {string} name @param {number} value */
  integer(name, value) {
    this.#tensors.push(
      message(int(2, 7), text(8, name), field(9, Buffer.from(BigInt64Array.of(BigInt(value)).buffer))),
    );
    return name;
  }

  /** @param {string} name @param {number} type element type @param {number[]} dims @param {Uint8Array} bytes */
  codes(name, type, dims, bytes) {
    this.#tensors.push(message(...dims.map((d) => int(1, d)), int(2, type), text(8, name), field(9, bytes)));
    return name;
  }

  /** A file. Inputs and outputs have the shapes [name, dims, element type], in which texts are unknown dimensions. */
  file(
    /** @type {[string, (number | string)[], number][]} */ inputs,
    /** @type {[string, (number | string)[], number][]} */ outputs,
    opset = 17,
  ) {
    const value = (/** @type {[string, (number | string)[], number]} */ [name, dims, type]) => {
      const shape = message(...dims.map((d) => field(1, typeof d === 'number' ? int(1, d) : text(2, d))));
      return message(text(1, name), field(2, field(1, message(int(1, type), field(2, shape)))));
    };
    const graph = message(
      ...this.#nodes.map((one) => field(1, one)),
      text(2, 'g'),
      ...this.#tensors.map((one) => field(5, one)),
      ...inputs.map((one) => field(11, value(one))),
      ...outputs.map((one) => field(12, value(one))),
    );
    const others = [...this.#domains].map((domain) => field(8, message(text(1, domain), int(2, 1))));
    return new Uint8Array(message(int(1, 10), field(7, graph), field(8, int(2, opset)), ...others));
  }
}

/** @param {{ shape: number[], data: Float32Array }} weight */
function turned({ shape: [rows, columns], data }) {
  const to = new Float32Array(data.length);
  for (let i = 0; i < data.length; i++) to[(i % columns) * rows + Math.floor(i / columns)] = data[i];
  return to;
}

/**
 * The network for texts of a length: input_ids [batch, length] to logits [batch, length, vocabulary].
 * @param {Weights} weights
 * @param {number} length
 */
export function storyModel(weights, length) {
  const g = new Graph();
  /** @type {(name: string) => { shape: number[], data: Float32Array }} */
  const weightOf = (name) => /** @type {never} */ (weights[name]);
  g.floats('epsilon', [], [epsilon]);
  g.floats('sharpness', [], [1 / Math.sqrt(head)]);
  const table = (/** @type {(angle: number) => number} */ f) =>
    Array.from({ length: length * head }, (_, i) =>
      f(Math.floor(i / head) * theta ** (-(i % (head / 2)) / (head / 2))),
    );
  g.floats('cosines', [length, head], table(Math.cos));
  g.floats('sines', [length, head], table(Math.sin));
  g.floats(
    'mask',
    [length, length],
    Array.from({ length: length * length }, (_, i) => (i % length > i / length ? -1e9 : 0)),
  );
  for (const [name, values] of Object.entries({
    zero: [0],
    half: [head / 2],
    whole: [head],
    last: [3],
    queries: [0, length, heads, head],
    keys: [0, length, keyHeads, head],
    grouped: [0, keyHeads, heads / keyHeads, length, head],
    single: [2],
    separate: [0, heads, length, head],
    joined: [0, length, width],
  })) {
    g.integers(name, values);
  }
  const norm = (/** @type {string} */ x, /** @type {string} */ name) => {
    const mean = g.add('ReduceMean', [g.add('Mul', [x, x])], { axes: [2] });
    const scaled = g.add('Div', [x, g.add('Sqrt', [g.add('Add', [mean, 'epsilon'])])]);
    return g.add('Mul', [scaled, g.floats(name, [width], weightOf(name).data)]);
  };
  const product = (/** @type {string} */ x, /** @type {string} */ name) => {
    const weight = weightOf(name);
    return g.add('MatMul', [x, g.floats(name, weight.shape.toReversed(), turned(weight))]);
  };
  const rotate = (/** @type {string} */ x) => {
    const [low, high] = [g.add('Slice', [x, 'zero', 'half', 'last']), g.add('Slice', [x, 'half', 'whole', 'last'])];
    const moved = g.add('Concat', [g.add('Neg', [high]), low], { axis: 3 });
    return g.add('Add', [g.add('Mul', [x, 'cosines']), g.add('Mul', [moved, 'sines'])]);
  };
  const split = (/** @type {string} */ x, /** @type {string} */ shape) =>
    g.add('Transpose', [g.add('Reshape', [x, shape])], { perm: [0, 2, 1, 3] });
  const embedding = weightOf('lm_head.weight');
  let x = g.add('Gather', [g.floats('model.embed_tokens.weight', embedding.shape, embedding.data), 'input_ids']);
  for (let i = 0; i < layers; i++) {
    const layer = `model.layers.${i}`;
    const a = norm(x, `${layer}.input_layernorm.weight`);
    const q = rotate(split(product(a, `${layer}.self_attn.q_proj.weight`), 'queries'));
    const k = rotate(split(product(a, `${layer}.self_attn.k_proj.weight`), 'keys'));
    const v = split(product(a, `${layer}.self_attn.v_proj.weight`), 'keys');
    // Queries of one key head lie in a dimension of their own.
    const [keys, values] = [k, v].map((one) => g.add('Unsqueeze', [one, 'single']));
    const turnedKeys = g.add('Transpose', [keys], { perm: [0, 1, 2, 4, 3] });
    const scores = g.add('Mul', [g.add('MatMul', [g.add('Reshape', [q, 'grouped']), turnedKeys]), 'sharpness']);
    const shares = g.add('Softmax', [g.add('Add', [scores, 'mask'])], { axis: 4 });
    const mixed = g.add('Reshape', [g.add('MatMul', [shares, values]), 'separate']);
    const joined = g.add('Reshape', [g.add('Transpose', [mixed], { perm: [0, 2, 1, 3] }), 'joined']);
    x = g.add('Add', [x, product(joined, `${layer}.self_attn.o_proj.weight`)]);
    const b = norm(x, `${layer}.post_attention_layernorm.weight`);
    const gate = product(b, `${layer}.mlp.gate_proj.weight`);
    const bent = g.add('Mul', [
      g.add('Mul', [gate, g.add('Sigmoid', [gate])]),
      product(b, `${layer}.mlp.up_proj.weight`),
    ]);
    x = g.add('Add', [x, product(bent, `${layer}.mlp.down_proj.weight`)]);
  }
  const last = norm(x, 'model.norm.weight');
  g.add('MatMul', [last, g.add('Transpose', ['model.embed_tokens.weight'], { perm: [1, 0] })], {}, 'logits');
  return g.file([['input_ids', ['batch', length], 7]], [['logits', ['batch', length, vocabulary], 1]]);
}

// ------------------------------------------------------------------------------------------------------------------- judging

/** Logarithms of the probabilities of a row of logits. @param {Float32Array} logits */
function logarithms(logits) {
  let [most, sum] = [Number.NEGATIVE_INFINITY, 0];
  for (let i = 0; i < logits.length; i++) most = Math.max(most, logits[i]);
  for (let i = 0; i < logits.length; i++) sum += Math.exp(logits[i] - most);
  const [found, last] = [new Float64Array(logits.length), Math.log(sum)];
  for (let i = 0; i < logits.length; i++) found[i] = logits[i] - most - last;
  return found;
}

/**
 * Mean divergence of the next token, and its standard error.
 * @param {Float32Array} reference logits, a row for each token
 * @param {Float32Array} logits
 */
export function divergence(reference, logits) {
  const found = Array.from({ length: reference.length / vocabulary }, (_, t) => {
    const [p, q] = [reference, logits].map((all) => logarithms(all.subarray(t * vocabulary, (t + 1) * vocabulary)));
    return p.reduce((sum, v, i) => sum + Math.exp(v) * (v - q[i]), 0);
  });
  const mean = found.reduce((a, b) => a + b) / found.length;
  const variance = found.reduce((sum, v) => sum + (v - mean) ** 2, 0) / (found.length - 1);
  return { value: mean, error: Math.sqrt(variance / found.length) };
}
