// Models with one kind of operator each, and an encoder, to run quantized on several backends.
import { Graph } from '../web/support/story-model.mjs';

/** Numbers that look like weights: sums of three uniform ones, always the same. @param {number} seed */
function drawing(seed) {
  let state = seed * 7919 + 1;
  const uniform = () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return state / 2 ** 32;
  };
  return (/** @type {number} */ n, /** @type {number} */ spread) =>
    Float32Array.from({ length: n }, () => spread * (uniform() + uniform() + uniform() - 1.5));
}

/**
 * @typedef {{ type: 'float32' | 'int64', dims: number[], data: Float32Array | BigInt64Array }} Input
 * @typedef {{ file: Uint8Array, feeds: Record<string, Input>, output: string }} Sample
 */

/**
 * Layers with a Relu behind each, from x to y of the same shape.
 * @param {number} seed
 * @param {number[]} dims
 * @param {number} depth
 * @param {(g: Graph, draw: ReturnType<typeof drawing>, x: string, i: number) => string} layer adds layer i
 * @returns {Sample}
 */
function chain(seed, dims, depth, layer) {
  const draw = drawing(seed);
  const g = new Graph();
  let x = 'x';
  for (let i = 0; i < depth; i++) x = g.add('Relu', [layer(g, draw, x, i)], {}, i === depth - 1 ? 'y' : undefined);
  const size = dims.reduce((a, b) => a * b, 1);
  return {
    file: g.file([['x', dims, 1]], [['y', dims, 1]]),
    feeds: { x: { type: 'float32', dims, data: draw(size, 1) } },
    output: 'y',
  };
}

/** @param {number} rows @returns {Sample} */
const products = (rows, seed = 1, [width, depth] = [512, 3]) =>
  chain(seed, [rows, width], depth, (g, draw, x, i) =>
    g.add('MatMul', [x, g.floats(`w${i}`, [width, width], draw(width * width, 2 / Math.sqrt(width)))]),
  );

/** @returns {Sample} */
const gemms = (seed = 1, [rows, width, depth] = [16, 256, 3]) =>
  chain(seed, [rows, width], depth, (g, draw, x, i) => {
    const w = g.floats(`w${i}`, [width, width], draw(width * width, 2 / Math.sqrt(width)));
    return g.add('Gemm', [x, w, g.floats(`b${i}`, [width], draw(width, 0.2))], { transB: 1 });
  });

/** @returns {Sample} */
const convolutions = (seed = 1, [channels, size, depth] = [64, 28, 3]) =>
  chain(seed, [1, channels, size, size], depth, (g, draw, x, i) => {
    const spread = 2 / Math.sqrt(9 * channels);
    const w = g.floats(`w${i}`, [channels, channels, 3, 3], draw(channels * channels * 9, spread));
    return g.add('Conv', [x, w, g.floats(`b${i}`, [channels], draw(channels, 0.2))], { pads: [1, 1, 1, 1] });
  });

/** @returns {Sample} */
function table(seed = 1, [rows, width, tokens] = [5000, 256, 16]) {
  const draw = drawing(seed);
  const g = new Graph();
  g.add('Relu', [g.add('Gather', [g.floats('w', [rows, width], draw(rows * width, 1)), 'ids'])], {}, 'y');
  const ids = BigInt64Array.from({ length: tokens }, (_, i) => BigInt((i * 1009) % rows));
  return {
    file: g.file([['ids', [1, tokens], 7]], [['y', [1, tokens, width], 1]]),
    feeds: { ids: { type: 'int64', dims: [1, tokens], data: ids } },
    output: 'y',
  };
}

/** @param {'LSTM' | 'GRU'} op @returns {Sample} */
function recurrent(op, seed = 1, [hidden, inputs, steps] = [128, 128, 16]) {
  const draw = drawing(seed);
  const gates = (op === 'LSTM' ? 4 : 3) * hidden;
  const g = new Graph();
  const w = g.floats('w', [1, gates, inputs], draw(gates * inputs, 2 / Math.sqrt(inputs)));
  const r = g.floats('r', [1, gates, hidden], draw(gates * hidden, 2 / Math.sqrt(hidden)));
  g.add(op, ['x', w, r], { hidden_size: hidden }, 'y');
  const dims = [steps, 1, inputs];
  return {
    file: g.file([['x', dims, 1]], [['y', [steps, 1, 1, hidden], 1]]),
    feeds: { x: { type: 'float32', dims, data: draw(steps * inputs, 1) } },
    output: 'y',
  };
}

/**
 * An encoder as BERT has it: layers of attention over all tokens and of two products, with norms behind them.
 * @returns {Sample}
 */
function encoder(seed = 1, [layers, width, heads, vocabulary, tokens] = [3, 128, 4, 1000, 32]) {
  const draw = drawing(seed);
  const g = new Graph();
  const each = width / heads;
  g.integers('split', [0, 0, heads, each]);
  g.integers('joined', [0, 0, width]);
  g.floats('sharpness', [], [1 / Math.sqrt(each)]);
  const linear = (/** @type {string} */ x, /** @type {string} */ name, from = width, to = width) => {
    const w = g.floats(`${name}.weight`, [from, to], draw(from * to, 2 / Math.sqrt(from)));
    return g.add('Add', [g.add('MatMul', [x, w]), g.floats(`${name}.bias`, [to], draw(to, 0.1))]);
  };
  const norm = (/** @type {string} */ x, /** @type {string} */ name, output = `${name}.sum`) => {
    const scale = g.floats(
      `${name}.weight`,
      [width],
      draw(width, 0.3).map((v) => 1 + v),
    );
    return g.add('LayerNormalization', [x, scale, g.floats(`${name}.bias`, [width], draw(width, 0.2))], {}, output);
  };
  let x = norm(
    g.add('Gather', [g.floats('embeddings', [vocabulary, width], draw(vocabulary * width, 2)), 'input_ids']),
    'first',
  );
  for (let i = 0; i < layers; i++) {
    const by = (/** @type {string} */ what, /** @type {number[]} */ perm) =>
      g.add('Transpose', [g.add('Reshape', [linear(x, `layer${i}.${what}`), 'split'])], { perm });
    const scores = g.add('MatMul', [by('query', [0, 2, 1, 3]), by('key', [0, 2, 3, 1])]);
    const shares = g.add('Softmax', [g.add('Mul', [scores, 'sharpness'])]);
    const mixed = g.add('MatMul', [shares, by('value', [0, 2, 1, 3])]);
    const joined = g.add('Reshape', [g.add('Transpose', [mixed], { perm: [0, 2, 1, 3] }), 'joined']);
    const attended = norm(g.add('Add', [x, linear(joined, `layer${i}.output`)]), `layer${i}.norm1`);
    const up = linear(attended, `layer${i}.up`, width, 4 * width);
    const bent = g.add('Mul', [up, g.add('Sigmoid', [up])]);
    const down = linear(bent, `layer${i}.down`, 4 * width, width);
    x = norm(g.add('Add', [attended, down]), `layer${i}.norm2`, i === layers - 1 ? 'hidden' : undefined);
  }
  const ids = BigInt64Array.from({ length: tokens }, (_, i) => BigInt((i * 997 * seed + i) % vocabulary));
  return {
    file: g.file([['input_ids', [1, tokens], 7]], [['hidden', [1, tokens, width], 1]]),
    feeds: { input_ids: { type: 'int64', dims: [1, tokens], data: ids } },
    output: 'hidden',
  };
}

/** @type {Record<string, () => Sample>} */
export const samples = {
  'MatMul, 1 row': () => products(1),
  'MatMul, 64 rows': () => products(64),
  Gemm: () => gemms(),
  Conv: () => convolutions(),
  Gather: () => table(),
  LSTM: () => recurrent('LSTM'),
  GRU: () => recurrent('GRU'),
  encoder: () => encoder(),
};

/** Of useful sizes. @type {Record<string, () => Sample>} */
export const largeSamples = {
  '4 MatMul 2048×2048, 1 row': () => products(1, 1, [2048, 4]),
  '4 MatMul 2048×2048, 128 rows': () => products(128, 1, [2048, 4]),
  '4 Conv 128×128×3×3, 56×56': () => convolutions(1, [128, 56, 4]),
  'encoder, 4 layers of 768, 1 token': () => encoder(1, [4, 768, 12, 1000, 1]),
  'encoder, 4 layers of 768, 128 tokens': () => encoder(1, [4, 768, 12, 1000, 128]),
};
