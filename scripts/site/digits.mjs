// Trains the sample model of the page and the tests, a small network that reads digits. The script draws the digits itself.
//
//   node scripts/site/digits.mjs        writes web/demo/public/samples/digits.safetensors
//
// The bytes are the same on every machine. The script uses no clock, no system random numbers, and no arithmetic except + - * / and
// square root, whose results IEEE 754 defines exactly. (Math.exp and similar functions differ between engines.) Weights are rounded to
// float32 after every step. Sums are in double, in a fixed order.

import { mkdirSync, writeFileSync } from 'node:fs';
import { dirname } from 'node:path';
import { fileURLToPath } from 'node:url';
import { bell, classes, drawDigits, pixels, randomNumbers, side, testSeed } from '../../web/demo/shared/digits.mjs';

export { drawDigits, side };

/** @typedef {{ shape: number[], data: Float32Array }} Tensor */
/** @typedef {Record<string, Tensor>} Tensors */
/** @typedef {import('../../web/demo/shared/digits.mjs').Digits} Digits */

/** Path of the sample. */
export const samplePath = fileURLToPath(new URL('../../web/demo/public/samples/digits.safetensors', import.meta.url));

/** Units of each of the two hidden layers. As a multiple of 128 it is divisible by every usual group size. */
const hidden = 128;

const seeds = { weights: 1, training: 2, test: testSeed };
const testCount = 1000;
const batchSize = 32;
const defaultSteps = 800;

// -------------------------------------------------------------------------------------------------------------- digits

/** The thousand digits on which accuracy is measured. Training does not use them. */
export function drawTestDigits() {
  return drawDigits(testCount, seeds.test);
}

// ------------------------------------------------------------------------------------------------------------- network

/**
 * The data of a tensor. Throws if there is no such tensor.
 * @param {Tensors} tensors
 * @param {string} name
 */
function dataOf(tensors, name) {
  const tensor = tensors[name];
  if (tensor === undefined) throw new Error(`the network has no tensor ${name}`);
  return tensor.data;
}

/**
 * The weights before training.
 * @returns {Tensors}
 */
function freshTensors() {
  const random = randomNumbers(seeds.weights);
  const dense = (/** @type {number} */ outputs, /** @type {number} */ inputs) => {
    const spread = Math.sqrt(2 / inputs);
    return {
      shape: [outputs, inputs],
      data: Float32Array.from({ length: outputs * inputs }, () => spread * bell(random)),
    };
  };
  const vector = (/** @type {number} */ size, /** @type {number} */ value) => ({
    shape: [size],
    data: new Float32Array(size).fill(value),
  });
  return {
    'fc1.weight': dense(hidden, pixels),
    'fc1.bias': vector(hidden, 0),
    'norm.weight': vector(hidden, 1),
    'norm.bias': vector(hidden, 0),
    'fc2.weight': dense(hidden, hidden),
    'fc2.bias': vector(hidden, 0),
    'fc3.weight': dense(classes, hidden),
    'fc3.bias': vector(classes, 0),
  };
}

/**
 * y = W x + b.
 * @param {Float32Array} weight [y.length, x.length]
 * @param {Float32Array} bias
 * @param {Float64Array} x
 * @param {Float64Array} y
 */
function dense(weight, bias, x, y) {
  const inputs = x.length;
  for (let o = 0, w = 0; o < y.length; o++) {
    // Four independent sums are faster than one, in which each addition waits for the one before it. Every layer has a multiple of four inputs.
    let a = 0;
    let b = 0;
    let c = 0;
    let d = 0;
    for (let i = 0; i < inputs; i += 4, w += 4) {
      a += weight[w] * x[i];
      b += weight[w + 1] * x[i + 1];
      c += weight[w + 2] * x[i + 2];
      d += weight[w + 3] * x[i + 3];
    }
    y[o] = a + b + (c + d) + bias[o];
  }
}

/**
 * Backpropagation through `dense`. Adds to the gradients of W and b, and sets dx unless it is null.
 * @param {Float32Array} weight
 * @param {Float64Array} x
 * @param {Float64Array} dy
 * @param {Float64Array} dWeight
 * @param {Float64Array} dBias
 * @param {Float64Array | null} dx
 */
function denseBack(weight, x, dy, dWeight, dBias, dx) {
  const inputs = x.length;
  dx?.fill(0);
  for (let o = 0; o < dy.length; o++) {
    const slope = dy[o];
    if (slope === 0) continue;
    dBias[o] += slope;
    const row = o * inputs;
    for (let i = 0; i < inputs; i++) dWeight[row + i] += slope * x[i];
    if (dx !== null) for (let i = 0; i < inputs; i++) dx[i] += slope * weight[row + i];
  }
}

/** Working memory of one pass. Each field is the output of a layer. */
function scratch() {
  const vector = (size = hidden) => new Float64Array(size);
  return {
    image: vector(pixels),
    sum1: vector(),
    normal: vector(),
    hidden1: vector(),
    sum2: vector(),
    hidden2: vector(),
    scores: vector(classes),
  };
}

/**
 * Runs the network: dense, layer norm, ReLU, dense, ReLU, dense.
 * @param {Tensors} tensors
 * @param {ReturnType<typeof scratch>} s holds the image; the other fields are filled
 * @returns {number} the reciprocal of the standard deviation in the layer norm
 */
function forward(tensors, s) {
  dense(dataOf(tensors, 'fc1.weight'), dataOf(tensors, 'fc1.bias'), s.image, s.sum1);
  let mean = 0;
  for (let i = 0; i < hidden; i++) mean += s.sum1[i];
  mean /= hidden;
  let variance = 0;
  for (let i = 0; i < hidden; i++) variance += (s.sum1[i] - mean) * (s.sum1[i] - mean);
  const sharpness = 1 / Math.sqrt(variance / hidden + 1e-5);
  const gain = dataOf(tensors, 'norm.weight');
  const shift = dataOf(tensors, 'norm.bias');
  for (let i = 0; i < hidden; i++) {
    s.normal[i] = (s.sum1[i] - mean) * sharpness;
    s.hidden1[i] = Math.max(0, s.normal[i] * gain[i] + shift[i]);
  }
  dense(dataOf(tensors, 'fc2.weight'), dataOf(tensors, 'fc2.bias'), s.hidden1, s.sum2);
  for (let i = 0; i < hidden; i++) s.hidden2[i] = Math.max(0, s.sum2[i]);
  dense(dataOf(tensors, 'fc3.weight'), dataOf(tensors, 'fc3.bias'), s.hidden2, s.scores);
  return sharpness;
}

/**
 * The number of digits that the network classifies correctly.
 * @param {Tensors} tensors
 * @param {Digits} digits
 */
export function countRight(tensors, digits) {
  const s = scratch();
  let right = 0;
  for (let n = 0; n < digits.count; n++) {
    s.image.set(digits.images.subarray(n * pixels, (n + 1) * pixels));
    forward(tensors, s);
    let best = 0;
    for (let c = 1; c < classes; c++) if (s.scores[c] > s.scores[best]) best = c;
    if (best === digits.labels[n]) right++;
  }
  return right;
}

// ------------------------------------------------------------------------------------------------------------ training

/**
 * e^x for x <= 0, by a Taylor series for e^(x / 64) and six squarings. The result is 0 for x < -64.
 * @param {number} x
 */
function exponential(x) {
  if (x < -64) return 0;
  const part = x / 64;
  let sum = 1;
  for (let i = 16; i > 0; i--) sum = 1 + (sum * part) / i;
  for (let i = 0; i < 6; i++) sum *= sum;
  return sum;
}

/**
 * Trains a network with softmax cross-entropy and stochastic gradient descent with momentum. The learning rate decreases linearly to zero.
 * Each training digit is used once.
 * @param {{ steps?: number }} [options]
 * @returns {Tensors}
 */
export function train({ steps = defaultSteps } = {}) {
  const tensors = freshTensors();
  const names = Object.keys(tensors);
  const zeros = () => Object.fromEntries(names.map((name) => [name, new Float64Array(dataOf(tensors, name).length)]));
  const gradients = zeros();
  const velocities = zeros();
  const gradient = (/** @type {string} */ name) => /** @type {Float64Array} */ (gradients[name]);
  const digits = drawDigits(steps * batchSize, seeds.training);
  const s = scratch();
  const slopes = scratch();

  for (let step = 0; step < steps; step++) {
    for (const name of names) gradient(name).fill(0);
    for (let n = step * batchSize; n < (step + 1) * batchSize; n++) {
      s.image.set(digits.images.subarray(n * pixels, (n + 1) * pixels));
      const sharpness = forward(tensors, s);

      let largest = s.scores[0];
      for (let c = 1; c < classes; c++) largest = Math.max(largest, s.scores[c]);
      let total = 0;
      for (let c = 0; c < classes; c++) {
        slopes.scores[c] = exponential(s.scores[c] - largest);
        total += slopes.scores[c];
      }
      for (let c = 0; c < classes; c++) {
        slopes.scores[c] = (slopes.scores[c] / total - (c === digits.labels[n] ? 1 : 0)) / batchSize;
      }

      denseBack(
        dataOf(tensors, 'fc3.weight'),
        s.hidden2,
        slopes.scores,
        gradient('fc3.weight'),
        gradient('fc3.bias'),
        slopes.hidden2,
      );
      for (let i = 0; i < hidden; i++) slopes.sum2[i] = s.hidden2[i] > 0 ? slopes.hidden2[i] : 0;
      denseBack(
        dataOf(tensors, 'fc2.weight'),
        s.hidden1,
        slopes.sum2,
        gradient('fc2.weight'),
        gradient('fc2.bias'),
        slopes.hidden1,
      );

      const gain = dataOf(tensors, 'norm.weight');
      const dGain = gradient('norm.weight');
      const dShift = gradient('norm.bias');
      let mean = 0;
      let meanProduct = 0;
      for (let i = 0; i < hidden; i++) {
        const slope = s.hidden1[i] > 0 ? slopes.hidden1[i] : 0;
        dGain[i] += slope * s.normal[i];
        dShift[i] += slope;
        slopes.normal[i] = slope * gain[i];
        mean += slopes.normal[i];
        meanProduct += slopes.normal[i] * s.normal[i];
      }
      mean /= hidden;
      meanProduct /= hidden;
      // The mean and the variance depend on every unit. Their gradients are subtracted here.
      for (let i = 0; i < hidden; i++)
        slopes.sum1[i] = sharpness * (slopes.normal[i] - mean - s.normal[i] * meanProduct);
      denseBack(
        dataOf(tensors, 'fc1.weight'),
        s.image,
        slopes.sum1,
        gradient('fc1.weight'),
        gradient('fc1.bias'),
        null,
      );
    }

    const rate = 0.1 * (1 - step / steps);
    for (const name of names) {
      const data = dataOf(tensors, name);
      const velocity = /** @type {Float64Array} */ (velocities[name]);
      const slope = gradient(name);
      for (let i = 0; i < data.length; i++) {
        velocity[i] = 0.9 * velocity[i] + slope[i];
        data[i] -= rate * velocity[i];
      }
    }
  }
  return tensors;
}

// ---------------------------------------------------------------------------------------------------------------- file

/**
 * Writes a safetensors file: the length of the header, the header (JSON, padded with spaces to a multiple of 8), and the float32 data.
 * @param {Tensors} tensors
 * @param {Record<string, string>} metadata
 */
export function toSafetensors(tensors, metadata) {
  /** @type {Record<string, unknown>} */
  const header = { __metadata__: metadata };
  const entries = Object.entries(tensors).sort(([a], [b]) => (a < b ? -1 : 1));
  let end = 0;
  for (const [name, { shape, data }] of entries) {
    header[name] = { dtype: 'F32', shape, data_offsets: [end, end + data.length * 4] };
    end += data.length * 4;
  }
  const json = JSON.stringify(header);
  const text = new TextEncoder().encode(json + ' '.repeat((8 - (json.length % 8)) % 8));
  const bytes = new Uint8Array(8 + text.length + end);
  const view = new DataView(bytes.buffer);
  view.setBigUint64(0, BigInt(text.length), true);
  bytes.set(text, 8);
  let offset = 8 + text.length;
  for (const [, { data }] of entries) {
    for (const value of data) {
      view.setFloat32(offset, value, true);
      offset += 4;
    }
  }
  return bytes;
}

/** Trains the sample and returns the whole file. */
export function makeSample() {
  const tensors = train();
  const digits = drawTestDigits();
  const right = countRight(tensors, digits);
  const bytes = toSafetensors(tensors, {
    description: `Reads ${side} x ${side} images of digits: fc1, layer norm, ReLU, fc2, ReLU, fc3`,
    license: 'MIT',
    made_by: 'scripts/site/digits.mjs',
    test_accuracy: `${right} of ${digits.count} digits`,
  });
  return { bytes, right, count: digits.count };
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const start = performance.now();
  const { bytes, right, count } = makeSample();
  mkdirSync(dirname(samplePath), { recursive: true });
  writeFileSync(samplePath, bytes);
  const seconds = ((performance.now() - start) / 1000).toFixed(1);
  console.log(`digits.safetensors: ${bytes.length} bytes, ${right} of ${count} test digits right, ${seconds} s`);
}
