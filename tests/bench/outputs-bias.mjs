// The gain of correcting biases: b += mean(x) (W - Q)', with the means of the inputs of the network that reads digits. Figures are squared
// errors of its scores on other digits, relative to those of range 'mse', as means of four draws of 1,024 digits.
//   node tests/bench/outputs-bias.mjs
import * as ort from 'onnxruntime-web';
import { calibrateModel, quantizeModel, readFloats } from '../../dist/model.js';
import { digitSamples, digitsModel } from '../web/support/digits-model.mjs';
import { Graph, weightsIn } from '../web/support/story-model.mjs';

ort.env.wasm.numThreads = 1;
ort.env.logLevel = 'error';

const model = digitsModel();
const weights = weightsIn(new URL('../../web/demo/public/samples/digits.safetensors', import.meta.url).pathname);
const layers = ['fc1', 'fc2', 'fc3'];
const others = digitSamples(1000, 103);

/** The network with other weights, which also gives the inputs of its layers. */
function network(replaced) {
  const g = new Graph();
  const all = { ...weights, ...replaced };
  const put = (name) => g.floats(name, all[name].shape, all[name].data);
  const dense = (x, name, output = `${name}.sum`) =>
    g.add('Gemm', [x, put(`${name}.weight`), put(`${name}.bias`)], { transB: 1 }, output);
  const normal = g.add('LayerNormalization', [dense('images', 'fc1'), put('norm.weight'), put('norm.bias')]);
  dense(g.add('Relu', [dense(g.add('Relu', [normal], {}, 'second'), 'fc2')], {}, 'third'), 'fc3', 'scores');
  const columns = (name) => weights[`${name}.weight`].shape[1];
  return g.file(
    [['images', ['count', columns('fc1')], 1]],
    [
      ['scores', ['count', 10], 1],
      ['second', ['count', columns('fc2')], 1],
      ['third', ['count', columns('fc3')], 1],
    ],
  );
}

async function outputsOf(file, { data, shape }) {
  const session = await ort.InferenceSession.create(file.slice(), { logSeverityLevel: 3 });
  const results = await session.run({ images: new ort.Tensor('float32', data, shape) });
  await session.release();
  return results;
}

/** Means of the columns of rows. */
function meansOf(data, columns) {
  const sums = new Float64Array(columns);
  for (const [i, v] of data.entries()) sums[i % columns] += v;
  return sums.map((sum) => (sum * columns) / data.length);
}

/** The bias of a layer with the mean error of its outputs made up for. */
function corrected(name, restored, means) {
  const { shape, data } = weights[`${name}.bias`];
  const { data: w } = weights[`${name}.weight`];
  const n = means.length;
  const errorOf = (row) => means.reduce((sum, mean, i) => sum + mean * (w[row * n + i] - restored[row * n + i]), 0);
  return { shape, data: data.map((v, row) => v + errorOf(row)) };
}

const expected = (await outputsOf(network({}), others)).scores.data;
const errorOf = async (replaced) =>
  (await outputsOf(network(replaced), others)).scores.data.reduce((sum, v, i) => sum + (v - expected[i]) ** 2, 0);

for (const to of ['q4', 'q2', 'int4-weights', 'int8-weights']) {
  const sums = {};
  const add = async (name, replaced) => {
    sums[name] = (sums[name] ?? 0) + (await errorOf(replaced));
  };
  for (let seed = 1; seed <= 4; seed++) {
    const samples = Array.from({ length: 16 }, (_, i) => digitSamples(64, seed * 100 + i));
    const data = await calibrateModel(
      model,
      samples.map((images) => ({ images })),
      { moments: true },
    );
    const [, columns] = samples[0].shape;
    const all = { data: Float32Array.from(samples.flatMap((one) => [...one.data])), shape: [1024, columns] };
    const { second, third } = await outputsOf(network({}), all);
    const inputs = [all, second, third].map(({ data: x }, i) => meansOf(x, weights[`${layers[i]}.weight`].shape[1]));
    for (const [name, options] of [
      ["range: 'mse'", { range: 'mse' }],
      ['gptq', { method: 'gptq', moments: data }],
    ]) {
      const bytes = await (await quantizeModel(model, { to, workers: 0, ...options })).bytes();
      const [plain, changed] = [{}, {}];
      for (const [i, layer] of layers.entries()) {
        const { shape } = weights[`${layer}.weight`];
        const [outputs, n] = shape;
        const found = (await readFloats(bytes, `${layer}.weight`)).data;
        // Blocks of MatMulNBits stand for the transposed weight.
        const turned = Float32Array.from(found, (_, at) => found[(at % n) * outputs + Math.floor(at / n)]);
        plain[`${layer}.weight`] = { shape, data: to.startsWith('q') ? turned : found };
        changed[`${layer}.bias`] = corrected(layer, plain[`${layer}.weight`].data, inputs[i]);
      }
      await add(name, plain);
      await add(`${name}, biases corrected`, { ...plain, ...changed });
    }
  }
  const base = sums["range: 'mse'"];
  for (const [name, sum] of Object.entries(sums))
    console.log(`${to.padEnd(14)} ${name.padEnd(34)} ${(sum / base).toFixed(3)}`);
}
