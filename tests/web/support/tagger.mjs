// A transformer encoder that tags the words of texts: its training, and its graph as exporters write those of BERT. Products are computed by
// layers of the package, everything else here.
import * as ort from 'onnxruntime-web';
import { bell, randomNumbers } from '../../../web/demo/shared/digits.mjs';
import { Graph } from './story-model.mjs';
import { tagCount, taggedTexts, wordCount } from './tagged-texts.mjs';

/** @typedef {{ layers: number, width: number, inner: number, heads: number, length: number }} Sizes */
/** @typedef {Record<string, { shape: number[], data: Float32Array<ArrayBuffer> }>} Weights */
/** @typedef {{ matmulFloat(w: Float32Array, options: { shape: number[] }): { forward(x: Float32Array, options: object): Float32Array<ArrayBuffer>, dispose(): void } }} Products */

ort.env.wasm.numThreads = 1;
ort.env.logLevel = 'error';

const epsilon = 1e-5;

/** The matrices of a layer. */
const products = ['query', 'key', 'value', 'output', 'up', 'down'];

// ----------------------------------------------------------------------------------------------------------------- weights

/** @param {Sizes} sizes @param {number} seed @returns {Weights} */
function freshWeights({ layers, width, inner, length }, seed) {
  const random = randomNumbers(seed);
  /** @type {Weights} */
  const weights = {};
  const matrix = (/** @type {string} */ name, /** @type {number[]} */ shape, /** @type {number} */ spread) => {
    const count = shape.reduce((a, b) => a * b, 1);
    weights[name] = { shape, data: Float32Array.from({ length: count }, () => spread * bell(random)) };
  };
  const vector = (/** @type {string} */ name, /** @type {number} */ size, value = 0) => {
    weights[name] = { shape: [size], data: new Float32Array(size).fill(value) };
  };
  const dense = (/** @type {string} */ name, /** @type {number} */ from, /** @type {number} */ to) => {
    matrix(`${name}.weight`, [to, from], 1 / Math.sqrt(from));
    vector(`${name}.bias`, to);
  };
  const norm = (/** @type {string} */ name) => {
    vector(`${name}.weight`, width, 1);
    vector(`${name}.bias`, width);
  };
  matrix('embeddings.word', [wordCount, width], 0.5);
  matrix('embeddings.position', [length, width], 0);
  // Begin with waves, by which words find their neighbors.
  const wave = (/** @type {number} */ i) => {
    const [position, column] = [Math.floor(i / width), i % width];
    const angle = position * 100 ** (-(column % (width / 2)) / (width / 2));
    return 0.5 * (column < width / 2 ? Math.sin(angle) : Math.cos(angle));
  };
  const { data } = /** @type {Weights[string]} */ (weights['embeddings.position']);
  for (let i = 0; i < data.length; i++) data[i] = wave(i);
  norm('embeddings.norm');
  for (let i = 0; i < layers; i++) {
    for (const name of products) {
      dense(`layer.${i}.${name}`, name === 'down' ? inner : width, name === 'up' ? inner : width);
    }
    norm(`layer.${i}.norm1`);
    norm(`layer.${i}.norm2`);
  }
  dense('classifier', width, tagCount);
  return weights;
}

// ---------------------------------------------------------------------------------------------------------------- training

/** @param {Float32Array} x @param {number} rows */
function turned(x, rows) {
  const columns = x.length / rows;
  const to = new Float32Array(x.length);
  for (let r = 0; r < rows; r += 32) {
    for (let c = 0; c < columns; c++) {
      for (let i = r; i < Math.min(rows, r + 32); i++) to[c * rows + i] = x[i * columns + c];
    }
  }
  return to;
}

// Arrays of hot loops are arguments: those of a scope around a function are loaded again for each element.

/** @typedef {{ width: number, head: number, length: number }} HeadSizes */

/**
 * Attention of one head in one text, from `start` on: shares of all words in each, and values by them.
 * @param {Float32Array} qs @param {Float32Array} ks @param {Float32Array} vs @param {Float32Array} ms @param {Float32Array} own shares
 * @param {number} start @param {HeadSizes} sizes
 */
function mixValues(qs, ks, vs, ms, own, start, { width, head, length }) {
  const sharpness = 1 / Math.sqrt(head);
  for (let q = 0; q < length; q++) {
    const [at, row] = [start + q * width, q * length];
    let most = Number.NEGATIVE_INFINITY;
    for (let k = 0; k < length; k++) {
      const to = start + k * width;
      let [even, odd] = [0, 0];
      for (let i = 0; i < head; i += 2) {
        even += qs[at + i] * ks[to + i];
        odd += qs[at + i + 1] * ks[to + i + 1];
      }
      own[row + k] = (even + odd) * sharpness;
      most = Math.max(most, own[row + k]);
    }
    let all = 0;
    for (let k = 0; k < length; k++) all += own[row + k] = Math.exp(own[row + k] - most);
    for (let k = 0; k < length; k++) {
      const [to, share] = [start + k * width, own[row + k] / all];
      own[row + k] = share;
      for (let i = 0; i < head; i++) ms[at + i] += share * vs[to + i];
    }
  }
}

/**
 * Slopes of one head in one text, by those of the mixed values.
 * @param {readonly Float32Array[]} data queries, keys, values, and shares
 * @param {readonly Float32Array[]} found slopes of queries, keys and values, and those of the mixed values
 * @param {Float64Array} slopes memory for those of one word
 * @param {number} start @param {HeadSizes} sizes
 */
function mixSlopes([qs, ks, vs, own], [dq, dk, dv, dm], slopes, start, { width, head, length }) {
  const sharpness = 1 / Math.sqrt(head);
  for (let q = 0; q < length; q++) {
    const [at, row] = [start + q * width, q * length];
    let mean = 0;
    for (let k = 0; k < length; k++) {
      const [to, share] = [start + k * width, own[row + k]];
      let sum = 0;
      for (let i = 0; i < head; i++) {
        const slope = dm[at + i];
        sum += slope * vs[to + i];
        dv[to + i] += share * slope;
      }
      slopes[k] = sum;
      mean += share * sum;
    }
    for (let k = 0; k < length; k++) {
      const [to, slope] = [start + k * width, own[row + k] * (slopes[k] - mean) * sharpness];
      for (let i = 0; i < head; i++) {
        dq[at + i] += slope * ks[to + i];
        dk[to + i] += slope * qs[at + i];
      }
    }
  }
}

/** A pass over a batch of texts, forward and back. */
class Pass {
  #sp;
  #weights;
  #sizes;
  /** Gradients by weight. @type {Record<string, Float32Array>} */
  gradients = {};
  /** Steps back, in the order of the steps forward. @type {(() => void)[]} */
  #back = [];

  /** @param {Products} sp @param {Weights} weights @param {Sizes} sizes */
  constructor(sp, weights, sizes) {
    this.#sp = sp;
    this.#weights = weights;
    this.#sizes = sizes;
  }

  #data(/** @type {string} */ name) {
    return /** @type {Weights[string]} */ (this.#weights[name]).data;
  }

  /** x W'. W has `outputs` rows. */
  #product(/** @type {Float32Array} */ x, /** @type {Float32Array} */ w, /** @type {number} */ outputs) {
    const inputs = w.length / outputs;
    const layer = this.#sp.matmulFloat(w, { shape: [outputs, inputs] });
    const y = layer.forward(x, { batch: x.length / inputs });
    layer.dispose();
    return y;
  }

  /** A value, and the slope of the loss by it. @param {Float32Array<ArrayBuffer>} data */
  #value(data) {
    return { data, slope: new Float32Array(data.length) };
  }

  /** @param {ReturnType<Pass['_type']>} x @param {string} name */
  #dense(x, name) {
    const [w, bias] = [this.#data(`${name}.weight`), this.#data(`${name}.bias`)];
    const [outputs, inputs] = [bias.length, w.length / bias.length];
    const rows = x.data.length / inputs;
    const y = this.#value(this.#product(x.data, w, outputs));
    for (let at = 0; at < y.data.length; at += outputs) for (let i = 0; i < outputs; i++) y.data[at + i] += bias[i];
    this.#back.push(() => {
      const back = this.#product(y.slope, turned(w, outputs), inputs);
      const slopes = x.slope;
      for (let i = 0; i < back.length; i++) slopes[i] += back[i];
      this.gradients[`${name}.weight`] = this.#product(turned(y.slope, rows), turned(x.data, rows), inputs);
      const sums = new Float32Array(outputs);
      for (let at = 0; at < y.slope.length; at += outputs) for (let i = 0; i < outputs; i++) sums[i] += y.slope[at + i];
      this.gradients[`${name}.bias`] = sums;
    });
    return y;
  }

  /** @returns {{ data: Float32Array<ArrayBuffer>, slope: Float32Array<ArrayBuffer> }} */
  _type() {
    throw new Error('a type');
  }

  /** The norm of x + y. @param {ReturnType<Pass['_type']>} x @param {ReturnType<Pass['_type']> | undefined} y @param {string} name */
  #norm(x, y, name) {
    const [w, bias] = [this.#data(`${name}.weight`), this.#data(`${name}.bias`)];
    const width = w.length;
    const rows = x.data.length / width;
    const normal = new Float32Array(x.data.length);
    const scales = new Float64Array(rows);
    const z = this.#value(new Float32Array(x.data.length));
    for (let r = 0, at = 0; r < rows; r++, at += width) {
      let [mean, square] = [0, 0];
      for (let i = at; i < at + width; i++) mean += normal[i] = x.data[i] + (y === undefined ? 0 : y.data[i]);
      mean /= width;
      for (let i = at; i < at + width; i++) square += (normal[i] - mean) ** 2;
      const scale = 1 / Math.sqrt(square / width + epsilon);
      scales[r] = scale;
      for (let i = at; i < at + width; i++) {
        normal[i] = (normal[i] - mean) * scale;
        z.data[i] = normal[i] * w[i - at] + bias[i - at];
      }
    }
    this.#back.push(() => {
      const [dw, dbias] = [new Float32Array(width), new Float32Array(width)];
      for (let r = 0, at = 0; r < rows; r++, at += width) {
        let [sum, product] = [0, 0];
        for (let i = 0; i < width; i++) {
          const slope = z.slope[at + i];
          dw[i] += slope * normal[at + i];
          dbias[i] += slope;
          sum += slope * w[i];
          product += slope * w[i] * normal[at + i];
        }
        for (let i = 0; i < width; i++) {
          const slope = scales[r] * (z.slope[at + i] * w[i] - (sum + normal[at + i] * product) / width);
          x.slope[at + i] += slope;
          if (y !== undefined) y.slope[at + i] += slope;
        }
      }
      this.gradients[`${name}.weight`] = dw;
      this.gradients[`${name}.bias`] = dbias;
    });
    return z;
  }

  /** Attention of all words of a text to each other. @param {ReturnType<Pass['_type']>[]} inputs */
  #attention([query, key, value]) {
    const { width, heads, length } = this.#sizes;
    const head = width / heads;
    const texts = query.data.length / width / length;
    const mixed = this.#value(new Float32Array(query.data.length));
    const shares = new Float32Array(texts * heads * length * length);
    const each = (/** @type {(start: number, own: Float32Array) => void} */ use) => {
      for (let one = 0; one < texts * heads; one++) {
        const start = Math.floor(one / heads) * length * width + (one % heads) * head;
        use(start, shares.subarray(one * length * length, (one + 1) * length * length));
      }
    };
    const [qs, ks, vs, ms] = [query.data, key.data, value.data, mixed.data];
    each((start, own) => mixValues(qs, ks, vs, ms, own, start, { width, head, length }));
    this.#back.push(() => {
      const slopes = new Float64Array(length);
      const [dq, dk, dv, dm] = [query.slope, key.slope, value.slope, mixed.slope];
      each((start, own) => mixSlopes([qs, ks, vs, own], [dq, dk, dv, dm], slopes, start, { width, head, length }));
    });
    return mixed;
  }

  /** x times the normal distribution function of x, with erf as in Abramowitz and Stegun 7.1.26. @param {ReturnType<Pass['_type']>} x */
  #bend(x) {
    const y = this.#value(new Float32Array(x.data.length));
    const [from, to, slopes] = [x.data, y.data, new Float32Array(x.data.length)];
    for (let i = 0; i < slopes.length; i++) {
      const v = from[i];
      const z = Math.abs(v) * Math.SQRT1_2;
      const t = 1 / (1 + 0.3275911 * z);
      const e = Math.exp(-z * z);
      const rest =
        t * (0.254829592 + t * (-0.284496736 + t * (1.421413741 + t * (-1.453152027 + t * 1.061405429)))) * e;
      const share = v < 0 ? rest / 2 : 1 - rest / 2;
      to[i] = v * share;
      slopes[i] = share + (v * e) / Math.sqrt(2 * Math.PI);
    }
    this.#back.push(() => {
      const [dx, dy] = [x.slope, y.slope];
      for (let i = 0; i < slopes.length; i++) dx[i] += slopes[i] * dy[i];
    });
    return y;
  }

  /** @param {readonly { ids: number[] }[]} texts */
  #embedded(texts) {
    const { width, length } = this.#sizes;
    const [words, positions] = [this.#data('embeddings.word'), this.#data('embeddings.position')];
    const x = this.#value(new Float32Array(texts.length * length * width));
    const places = texts.flatMap(({ ids }) => ids.map((id, i) => [id * width, i * width]));
    for (const [row, [word, position]] of places.entries()) {
      for (let i = 0; i < width; i++) x.data[row * width + i] = words[word + i] + positions[position + i];
    }
    this.#back.push(() => {
      const [dwords, dpositions] = [new Float32Array(words.length), new Float32Array(positions.length)];
      for (const [row, [word, position]] of places.entries()) {
        for (let i = 0; i < width; i++) {
          dwords[word + i] += x.slope[row * width + i];
          dpositions[position + i] += x.slope[row * width + i];
        }
      }
      this.gradients['embeddings.word'] = dwords;
      this.gradients['embeddings.position'] = dpositions;
    });
    return this.#norm(x, undefined, 'embeddings.norm');
  }

  /** Runs the network, and finds the gradients of its mean loss, which it returns. @param {readonly import('./tagged-texts.mjs').TaggedText[]} texts */
  run(texts) {
    let x = this.#embedded(texts);
    for (let i = 0; i < this.#sizes.layers; i++) {
      const own = `layer.${i}`;
      const mixed = this.#attention(['query', 'key', 'value'].map((name) => this.#dense(x, `${own}.${name}`)));
      const attended = this.#norm(x, this.#dense(mixed, `${own}.output`), `${own}.norm1`);
      const bent = this.#bend(this.#dense(attended, `${own}.up`));
      x = this.#norm(attended, this.#dense(bent, `${own}.down`), `${own}.norm2`);
    }
    const scores = this.#dense(x, 'classifier');
    // Find the loss, and its slopes.
    const rows = scores.data.length / tagCount;
    let loss = 0;
    for (const [row, tag] of texts.flatMap(({ tags }) => tags).entries()) {
      const own = scores.data.subarray(row * tagCount, (row + 1) * tagCount);
      const most = own.reduce((a, b) => Math.max(a, b));
      const all = own.reduce((sum, v) => sum + Math.exp(v - most), 0);
      loss -= (own[tag] - most - Math.log(all)) / rows;
      for (let i = 0; i < tagCount; i++) {
        scores.slope[row * tagCount + i] = (Math.exp(own[i] - most) / all - (i === tag ? 1 : 0)) / rows;
      }
    }
    for (const step of this.#back.toReversed()) step();
    return loss;
  }
}

/**
 * Trains a network by Adam.
 * @param {Products} sp
 * @param {Sizes} sizes
 * @param {{ steps: number, texts: number, rate: number, seed: number, onStep?: (step: number, loss: number) => void }} options texts of a step
 * @returns {Weights}
 */
export function teachTagger(sp, sizes, { steps, texts, rate, seed, onStep }) {
  const weights = freshWeights(sizes, seed);
  const [first, second] = [0, 1].map(() =>
    Object.fromEntries(Object.entries(weights).map(([name, { data }]) => [name, new Float32Array(data.length)])),
  );
  for (let step = 0; step < steps; step++) {
    const pass = new Pass(sp, weights, sizes);
    const loss = pass.run(taggedTexts({ count: texts, length: sizes.length, seed: 1000 * seed + step }));
    onStep?.(step, loss);
    // Rise for a tenth of the steps, then fall to 0.
    const share = Math.min((step + 1) / (0.1 * steps), (1 + Math.cos((Math.PI * step) / steps)) / 2);
    const [fix1, fix2] = [1 - 0.9 ** (step + 1), 1 - 0.98 ** (step + 1)];
    for (const [name, slopes] of Object.entries(pass.gradients)) {
      const { data } = weights[name];
      const [m, v] = [first[name], second[name]];
      for (let i = 0; i < data.length; i++) {
        m[i] = 0.9 * m[i] + 0.1 * slopes[i];
        v[i] = 0.98 * v[i] + 0.02 * slopes[i] * slopes[i];
        data[i] -= (rate * share * (m[i] / fix1)) / (Math.sqrt(v[i] / fix2) + 1e-8);
      }
    }
  }
  return weights;
}

// ----------------------------------------------------------------------------------------------------------------- as ONNX

/**
 * The network as a graph: input_ids and attention_mask [batch, length] to logits [batch, length, tags].
 * @param {Weights} weights
 * @param {Sizes} sizes
 */
export function taggerModel(weights, { layers, width, heads }) {
  const g = new Graph();
  const put = (/** @type {string} */ name) => {
    const { shape, data } = weights[name];
    return g.floats(name, shape, data);
  };
  g.floats('sharpness', [], [1 / Math.sqrt(width / heads)]);
  g.floats('root', [], [Math.SQRT2]);
  g.floats('one', [], [1]);
  g.floats('half', [], [0.5]);
  g.floats('least', [], [-10_000]);
  for (const [name, values] of Object.entries({
    by_head: [0, 0, heads, width / heads],
    joined: [0, 0, width],
    mask_axes: [1, 2],
  })) {
    g.integers(name, values);
  }
  for (const [name, value] of Object.entries({ zero: 0, step: 1, axis: 1 })) g.integer(name, value);
  const norm = (/** @type {string} */ x, /** @type {string} */ name) =>
    g.add('LayerNormalization', [x, put(`${name}.weight`), put(`${name}.bias`)]);
  const dense = (/** @type {string} */ x, /** @type {string} */ name, /** @type {string | undefined} */ output) => {
    const { shape, data } = weights[`${name}.weight`];
    const matrix = g.floats(`${name}.weight`, shape.toReversed(), turned(data, shape[0]));
    return g.add('Add', [put(`${name}.bias`), g.add('MatMul', [x, matrix])], {}, output);
  };
  const seen = g.add('Unsqueeze', [g.add('Cast', ['attention_mask'], { to: 1 }), 'mask_axes']);
  const mask = g.add('Mul', [g.add('Sub', ['one', seen]), 'least']);
  const length = g.add('Gather', [g.add('Shape', ['input_ids']), 'axis']);
  const positions = g.add('Gather', [put('embeddings.position'), g.add('Range', ['zero', length, 'step'])]);
  const words = g.add('Gather', [put('embeddings.word'), 'input_ids']);
  let x = norm(g.add('Add', [words, positions]), 'embeddings.norm');
  for (let i = 0; i < layers; i++) {
    const own = `layer.${i}`;
    const split = (/** @type {string} */ name, /** @type {number[]} */ perm) =>
      g.add('Transpose', [g.add('Reshape', [dense(x, `${own}.${name}`), 'by_head'])], { perm });
    const [query, key] = [split('query', [0, 2, 1, 3]), split('key', [0, 2, 3, 1])];
    const scores = g.add('Add', [g.add('Mul', [g.add('MatMul', [query, key]), 'sharpness']), mask]);
    const mixed = g.add('MatMul', [g.add('Softmax', [scores], { axis: 3 }), split('value', [0, 2, 1, 3])]);
    const joined = g.add('Reshape', [g.add('Transpose', [mixed], { perm: [0, 2, 1, 3] }), 'joined']);
    const attended = norm(g.add('Add', [dense(joined, `${own}.output`), x]), `${own}.norm1`);
    const up = dense(attended, `${own}.up`);
    const shares = g.add('Add', [g.add('Erf', [g.add('Div', [up, 'root'])]), 'one']);
    const bent = g.add('Mul', [g.add('Mul', [up, shares]), 'half']);
    x = norm(g.add('Add', [dense(bent, `${own}.down`), attended]), `${own}.norm2`);
  }
  dense(x, 'classifier', 'logits');
  const input = (/** @type {string} */ name) =>
    /** @type {[string, string[], number]} */ ([name, ['batch', 'length'], 7]);
  return g.file([input('input_ids'), input('attention_mask')], [['logits', ['batch', 'length', tagCount], 1]]);
}

/** The inputs of texts of one length. @param {readonly { ids: readonly number[] }[]} texts */
export function inputsOf(texts) {
  const shape = [texts.length, texts[0]?.ids.length ?? 0];
  const data = texts.flatMap(({ ids }) => ids);
  return { input_ids: { data, shape }, attention_mask: { data: data.map(() => 1), shape } };
}

/**
 * The logits of texts, row by row.
 * @param {Uint8Array} model
 * @param {readonly { ids: readonly number[] }[]} texts
 */
export async function logitsOf(model, texts) {
  const session = await ort.InferenceSession.create(model.slice(), { logSeverityLevel: 3 });
  try {
    const given = Object.entries(inputsOf(texts)).map(([name, { data, shape }]) => {
      return [name, new ort.Tensor('int64', BigInt64Array.from(data, BigInt), shape)];
    });
    return /** @type {Float32Array} */ ((await session.run(Object.fromEntries(given))).logits?.data);
  } finally {
    await session.release();
  }
}

/** Share of words whose tag has the largest logit. @param {Float32Array} logits @param {readonly import('./tagged-texts.mjs').TaggedText[]} texts */
export function rightIn(logits, texts) {
  const tags = texts.flatMap((text) => text.tags);
  const right = tags.filter((tag, i) => {
    const own = logits.subarray(i * tagCount, (i + 1) * tagCount);
    return own[tag] === own.reduce((a, b) => Math.max(a, b));
  });
  return right.length / tags.length;
}
