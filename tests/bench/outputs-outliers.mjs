// Outputs of ONNX models whose activations are quantized, without and with large channels of norms folded into the weights behind them.
//   SCALEPOINT_SAMPLES=FOLDER node tests/bench/outputs-outliers.mjs
// TinyStories as it is, and with channels of each norm multiplied and the columns of the weights behind them divided: the same function.
// Two draws: 8 texts of 256 tokens give factors and decide, and 16 others are judged: the divergence of the next token from float32, its
// share of that without folds, and the cosine of the logits.
import { join } from 'node:path';
import * as ort from 'onnxruntime-web';
import { calibrateModel, quantizeModel } from '../../dist/model.js';
import { divergence, drawTexts, storyModel, storyWeights } from '../web/support/story-model.mjs';
import { meanOf, ratioOf, show } from './stories.mjs';

ort.env.wasm.numThreads = 1;
ort.env.logLevel = 'error';

const length = 256;
const weights = storyWeights(join(process.env.SCALEPOINT_SAMPLES ?? '', 'tinystories-656k'));

/** Channels that are large, by the factor. */
const cases = [
  ['as trained', 1, []],
  ['1 channel x 300', 300, [17]],
  ['2 channels x 100', 100, [17, 90]],
  ['2 channels x 10', 10, [17, 90]],
];

/** The weights with large channels of norms. @param {number} factor @param {readonly number[]} channels */
function withOutliers(factor, channels) {
  const made = Object.fromEntries(
    Object.entries(weights).map(([name, one]) => [name, { ...one, data: one.data.slice() }]),
  );
  for (const [name, { shape, data }] of Object.entries(made)) {
    const width = shape.at(-1);
    if (/layers.*layernorm/.test(name)) for (const i of channels) data[i] *= factor;
    else if (/layers.*\b([qkv]|gate|up)_proj/.test(name))
      for (let row = 0; row < shape[0]; row++) for (const i of channels) data[row * width + i] /= factor;
  }
  return made;
}

/** The logits of each text. @param {Uint8Array} file @param {readonly Uint32Array[]} texts */
async function logitsOf(file, texts) {
  const session = await ort.InferenceSession.create(file.slice(), { logSeverityLevel: 3 });
  const found = [];
  for (const ids of texts) {
    const input = new ort.Tensor('int64', BigInt64Array.from(ids, BigInt), [1, length]);
    found.push((await session.run({ input_ids: input })).logits.data);
  }
  await session.release();
  return found;
}

/** The divergence of each text from a reference, and the cosine of all logits. */
function judged(expected, found) {
  const sums = { xy: 0, xx: 0, yy: 0 };
  for (const [t, x] of expected.entries()) {
    for (const [i, value] of x.entries()) {
      sums.xy += value * found[t][i];
      sums.xx += value * value;
      sums.yy += found[t][i] ** 2;
    }
  }
  const kl = expected.map((x, t) => divergence(x, found[t]).value);
  return { kl, cosine: sums.xy / Math.sqrt(sums.xx * sums.yy) };
}

for (const [name, factor, channels] of cases) {
  const model = storyModel(withOutliers(factor, channels), length);
  for (const to of (process.env.TYPES ?? 'q8,int8,int8-static').split(',')) {
    const all = { plain: [], folded: [] };
    const cosines = { plain: [], folded: [] };
    let norms = 0;
    for (const seed of [1, 2]) {
      const texts = drawTexts(weights, { texts: 24, length, seed }).map((ids) => Uint32Array.from(ids));
      const samples = texts.slice(0, 8).map((ids) => ({ input_ids: { data: ids, shape: [1, length] } }));
      const ranges = to === 'int8-static' ? { ranges: await calibrateModel(model, samples, { ranges: true }) } : {};
      const rules = [{ match: '^model\\.embed_tokens', keep: true }];
      const plain = await quantizeModel(model, { to, rules, ...ranges, workers: 0 });
      const folded = await quantizeModel(model, {
        to,
        rules,
        ...ranges,
        workers: 0,
        foldOutliers: true,
        run: { samples },
      });
      const expected = await logitsOf(model, texts.slice(8));
      norms += folded.report.folding.norms.length;
      for (const [way, made] of Object.entries({ plain, folded })) {
        const { kl, cosine } = judged(expected, await logitsOf(await made.bytes(), texts.slice(8)));
        all[way].push(...kl);
        cosines[way].push(cosine);
      }
    }
    const ratio = show(ratioOf(all.folded, all.plain), 4);
    const kl = Object.values(all).map((values) => show(meanOf(values), 5));
    const texts = Object.values(cosines).map((values) => values.map((value) => value.toFixed(4)).join(' '));
    console.log(
      `${name.padEnd(18)} ${to.padEnd(12)} ${kl.join('  ')}  ${ratio}  cosine ${texts.join(' to ')}; ${norms} norms`,
    );
  }
}
