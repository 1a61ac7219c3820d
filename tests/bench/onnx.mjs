// Run times of ONNX results in onnxruntime-web, in one thread, as multiples of that of the float32 model. Contestants take turns, each round begins
// with another one, and minima count. Rounds end when none of the last ones has lowered a minimum by more than 1 %, so that other work on
// the machine makes this longer, not wrong.
//   node tests/bench/onnx.mjs [--rounds N] [--only NAME]      at most N rounds
import { parseArgs } from 'node:util';
import * as ort from 'onnxruntime-web';
import { quantizeModel } from '../../dist/model.js';

ort.env.wasm.numThreads = 1;
ort.env.logLevel = 'error';

const { values } = parseArgs({ options: { rounds: { type: 'string' }, only: { type: 'string' } } });
const rounds = Number(values.rounds ?? 200);
/** Rounds without news after which it ends. */
const quietRounds = 30;

// ------------------------------------------------------------------------------------------------------------------- models

const varint = (value) => (value < 128 ? [value] : [(value % 128) + 128, ...varint(Math.floor(value / 128))]);
const field = (number, bytes) =>
  Buffer.concat([Buffer.from([...varint(number * 8 + 2), ...varint(bytes.length)]), bytes]);
const text = (number, value) => field(number, Buffer.from(value));
const int = (number, value) => Buffer.from([...varint(number * 8), ...varint(value)]);
const message = (...parts) => Buffer.concat(parts);

let state = 1;
function uniform() {
  state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
  return state / 2 ** 32;
}
function floats(n, spread = 0.05) {
  return Float32Array.from({ length: n }, () => spread * (uniform() + uniform() + uniform() - 1.5));
}

function tensor(name, dims) {
  const data = floats(dims.reduce((a, b) => a * b, 1));
  return message(...dims.map((d) => int(1, d)), int(2, 1), text(8, name), field(9, Buffer.from(data.buffer)));
}
function value(name, dims, type = 1) {
  const shape = message(...dims.map((d) => field(1, int(1, d))));
  return message(text(1, name), field(2, field(1, message(int(1, type), field(2, shape)))));
}
function attribute(name, given) {
  const list = Array.isArray(given);
  const numbers = list ? given.map((one) => int(8, one)) : [int(3, given)];
  return field(5, message(text(1, name), ...numbers, int(20, list ? 7 : 2)));
}
function node(op, inputs, outputs, attributes = {}) {
  return message(
    ...inputs.map((name) => text(1, name)),
    ...outputs.map((name) => text(2, name)),
    text(4, op),
    ...Object.entries(attributes).map(([name, given]) => attribute(name, given)),
  );
}
function model({ nodes, weights, inputs, outputs }) {
  const graph = message(
    ...nodes.map((one) => field(1, one)),
    text(2, 'g'),
    ...weights.map(([name, dims]) => field(5, tensor(name, dims))),
    ...inputs.map((one) => field(11, value(...one))),
    ...outputs.map((one) => field(12, value(...one))),
  );
  return new Uint8Array(message(int(1, 10), field(7, graph), field(8, int(2, 21))));
}

function layers(rows) {
  const [width, depth] = [1024, 4];
  const names = Array.from({ length: depth }, (_, i) => i);
  return {
    file: model({
      nodes: names.flatMap((i) => [
        node('MatMul', [`x${i}`, `w${i}`], [`p${i}`]),
        node('Relu', [`p${i}`], [`x${i + 1}`]),
      ]),
      weights: names.map((i) => [`w${i}`, [width, width]]),
      inputs: [['x0', [rows, width]]],
      outputs: [[`x${depth}`, [rows, width]]],
    }),
    feeds: { x0: new ort.Tensor('float32', floats(rows * width, 1), [rows, width]) },
  };
}

function convolutions() {
  const names = [0, 1, 2];
  return {
    file: model({
      nodes: names.flatMap((i) => [
        node('Conv', [`x${i}`, `w${i}`], [`p${i}`], { pads: [1, 1, 1, 1] }),
        node('Relu', [`p${i}`], [`x${i + 1}`]),
      ]),
      weights: names.map((i) => [`w${i}`, [64, 64, 3, 3]]),
      inputs: [['x0', [1, 64, 28, 28]]],
      outputs: [['x3', [1, 64, 28, 28]]],
    }),
    feeds: { x0: new ort.Tensor('float32', floats(64 * 28 * 28, 1), [1, 64, 28, 28]) },
  };
}

function embedding() {
  return {
    file: model({
      nodes: [node('Gather', ['w', 'i'], ['y'])],
      weights: [['w', [20000, 256]]],
      inputs: [['i', [1, 16], 7]],
      outputs: [['y', [1, 16, 256]]],
    }),
    feeds: {
      i: new ort.Tensor(
        'int64',
        BigInt64Array.from({ length: 16 }, (_, i) => BigInt(i * 1000)),
        [1, 16],
      ),
    },
  };
}

function lstm() {
  const [hidden, inputs, steps] = [256, 256, 16];
  return {
    file: model({
      nodes: [node('LSTM', ['x', 'w', 'r'], ['y'], { hidden_size: hidden })],
      weights: [
        ['w', [1, 4 * hidden, inputs]],
        ['r', [1, 4 * hidden, hidden]],
      ],
      inputs: [['x', [steps, 1, inputs]]],
      outputs: [['y', [steps, 1, 1, hidden]]],
    }),
    feeds: { x: new ort.Tensor('float32', floats(steps * inputs, 1), [steps, 1, inputs]) },
  };
}

const models = {
  'MatMul, 1 row': () => layers(1),
  'MatMul, 64 rows': () => layers(64),
  Conv: convolutions,
  Gather: embedding,
  LSTM: lstm,
};
const targets = [
  'fp16',
  'q8',
  'uint8',
  'int8-weights',
  'uint8-weights',
  'int4-weights',
  'q4',
  'q4f16',
  'q8-blocks',
  'bnb4',
  'q2',
];

// --------------------------------------------------------------------------------------------------------------------- race

async function session(file) {
  return ort.InferenceSession.create(file, { graphOptimizationLevel: 'all', logSeverityLevel: 3 });
}

async function race(name, { file, feeds }) {
  const contestants = [{ to: 'float32', size: file.length, session: await session(file.slice()), best: Infinity }];
  for (const to of targets) {
    const { report, bytes } = await quantizeModel(file, { to, workers: 0 });
    if (report.totals.quantized + report.totals.cast === 0) continue;
    const made = await bytes();
    contestants.push({ to, size: made.length, session: await session(made), best: Infinity });
  }
  for (let round = 0, news = 0; round < rounds && round - news <= quietRounds; round++) {
    for (let i = 0; i < contestants.length; i++) {
      const one = contestants[(round + i) % contestants.length];
      const start = performance.now();
      await one.session.run(feeds);
      const time = performance.now() - start;
      if (time < 0.99 * one.best) news = round;
      one.best = Math.min(one.best, time);
    }
  }
  const [float] = contestants;
  console.log(`\n${name}: float32 takes ${float.best.toFixed(2)} ms, ${(float.size / 2 ** 20).toFixed(1)} MiB`);
  for (const { to, size, best } of contestants.slice(1)) {
    const [times, share] = [(best / float.best).toFixed(2), (size / float.size).toFixed(3)];
    console.log(`  ${to.padEnd(14)} ${times.padStart(7)} times the time, ${share} of the bytes`);
  }
  for (const one of contestants) await one.session.release();
}

for (const [name, make] of Object.entries(models)) {
  if (values.only === undefined || name.includes(values.only)) await race(name, make());
}
