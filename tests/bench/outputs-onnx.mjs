// Outputs of quantized ONNX models beside those of float32: nearest codes, and codes that pass errors on. A model draws 4,096 tokens for the
// statistics, and 4,096 others to judge by. `onnxruntime` are the codes that its Python tool stores for GPTQ, which passes no errors on: the
// nearest ones of fresh ranges (onnxruntime/python/tools/quantization/neural_compressor/weight_only.py, read at 64c3ad18).
//   SCALEPOINT_SAMPLES=FOLDER node tests/bench/outputs-onnx.mjs
import { join } from 'node:path';
import * as ort from 'onnxruntime-web';
import { calibrateModel, quantizeModel } from '../../dist/model.js';
import { digitSamples, digitsModel } from '../web/support/digits-model.mjs';
import {
  divergence,
  drawTexts,
  StoryMoments,
  sharedInputs,
  storyModel,
  storyWeights,
} from '../web/support/story-model.mjs';

ort.env.wasm.numThreads = 1;
ort.env.logLevel = 'error';

const samples = process.env.SCALEPOINT_SAMPLES;
if (samples === undefined) throw new Error('set SCALEPOINT_SAMPLES to the folder of samples');
const length = 256;
const weights = storyWeights(join(samples, 'tinystories-656k'));

const moments = new StoryMoments();
drawTexts(weights, { texts: 16, length, seed: 1 }, (name, x) => moments.add(name, x));
const data = new Blob([moments.file()]);
const judged = drawTexts(weights, { texts: 16, length, seed: 2 });

/** The logits of all texts. */
async function logitsOf(file) {
  const session = await ort.InferenceSession.create(file.slice(), {
    graphOptimizationLevel: 'all',
    logSeverityLevel: 3,
  });
  const parts = [];
  for (const ids of judged) {
    const input = new ort.Tensor('int64', BigInt64Array.from(ids, BigInt), [1, length]);
    parts.push((await session.run({ input_ids: input })).logits.data);
  }
  await session.release();
  const all = new Float32Array(parts.reduce((n, part) => n + part.length, 0));
  for (const [i, part] of parts.entries()) all.set(part, i * part.length);
  return all;
}

/** Codes of 4 bits with the scale 2 absmax / 15 in blocks of 32 inputs. */
function nearest({ shape, data: values }) {
  const restored = new Float32Array(values.length);
  for (let at = 0; at < values.length; at += 32) {
    const block = values.subarray(at, at + 32);
    const scale = (2 * block.reduce((most, v) => Math.max(most, Math.abs(v)), 0)) / 15;
    for (const [i, v] of block.entries())
      restored[at + i] = Math.fround(scale) * Math.max(-8, Math.min(7, Math.round(v / scale)));
  }
  return { shape, data: restored };
}

const float = storyModel(weights, length);
const reference = await logitsOf(float);
const rules = [{ match: '^model\\.embed_tokens', keep: true }];
const line = (name, { value, error }, than = value) =>
  console.log(`${name.padEnd(44)} ${value.toFixed(5)} ± ${error.toFixed(5)}  ${(value / than).toFixed(3)}`);

const stored = { ...weights };
for (const name of sharedInputs.flat()) stored[name] = nearest(weights[name]);
const tool = divergence(reference, await logitsOf(storyModel(stored, length)));

// The network that reads digits: squared errors of its scores, as a share of their squares.
{
  const model = digitsModel();
  const seen = digitSamples(1000, 2);
  const others = digitSamples(1000, 3);
  const collected = await calibrateModel(model, [{ images: seen }], { moments: true });
  const scoresOf = async (file) => {
    const session = await ort.InferenceSession.create(file.slice(), {
      graphOptimizationLevel: 'all',
      logSeverityLevel: 3,
    });
    const { scores } = await session.run({ images: new ort.Tensor('float32', others.data, others.shape) });
    await session.release();
    return scores.data;
  };
  const expected = await scoresOf(model);
  const squares = expected.reduce((sum, v) => sum + v * v, 0);
  for (const to of ['q4', 'q2', 'int4-weights', 'int8-weights']) {
    const judge = async (options) => {
      const found = await scoresOf(await (await quantizeModel(model, { to, workers: 0, ...options })).bytes());
      return { value: found.reduce((sum, v, i) => sum + (v - expected[i]) ** 2, 0) / squares, error: 0 };
    };
    const mse = await judge({ range: 'mse' });
    line(`digits, ${to}: mse`, mse);
    line(`digits, ${to}: importance`, await judge({ importance: await collected.blob() }), mse.value);
    line(`digits, ${to}: gptq`, await judge({ method: 'gptq', moments: collected }), mse.value);
  }
}

for (const [to, options] of [
  ['q4', {}],
  ['q4', { zeroPoints: true }],
  ['q4', { zeroPoints: 'float' }],
  ['q4f16', {}],
  ['q2', {}],
  ['q2', { zeroPoints: true }],
  ['q8-blocks', {}],
  ['int4-weights', {}],
  ['int4-weights', { zeroPoints: true }],
  ['int8-weights', {}],
  ['uint8-weights', {}],
]) {
  const name = `${to}${options.zeroPoints === undefined ? '' : options.zeroPoints === true ? ', zero points' : ', float zero points'}`;
  const judge = async (more) => {
    const made = await quantizeModel(float, { to, ...options, rules, ...more, workers: 0 });
    return divergence(reference, await logitsOf(await made.bytes()));
  };
  const mse = await judge({ range: 'mse' });
  line(`${name}: min-max`, await judge({}), mse.value);
  line(`${name}: mse`, mse);
  if (to === 'q4' && options.zeroPoints === undefined) line(`${name}: onnxruntime`, tool, mse.value);
  // Moments alone give importance too.
  line(`${name}: gptq`, await judge({ method: 'gptq', moments: data }), mse.value);
}
