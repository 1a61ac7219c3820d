// Outputs of quantized encoders beside those of float32, on texts that neither training nor statistics have seen: the squared error of the
// logits as a share of their squares, and as a share of that with `range: 'mse'`, with standard errors over texts; and the words that are
// tagged right.
//
//   node tests/bench/teach_encoder.mjs model.onnx && node tests/bench/outputs-encoder.mjs model.onnx [--texts 256]
import { readFileSync } from 'node:fs';
import { parseArgs } from 'node:util';
import { calibrateModel, quantizeModel } from '../../dist/model.js';
import { taggedTexts } from '../web/support/tagged-texts.mjs';
import { inputsOf, logitsOf, rightIn } from '../web/support/tagger.mjs';
import { meanOf, ratioOf, show } from './stories.mjs';

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: { texts: { type: 'string', default: '256' } },
});
const [path] = positionals;
if (path === undefined) throw new Error('Name the file that teach_encoder.mjs made.');
const model = new Uint8Array(readFileSync(path));
const count = Number(values.texts);
const [seen, others] = [1_000_001, 1_000_002].map((seed) => taggedTexts({ count, length: 32, seed }));
const samples = Array.from({ length: count / 16 }, (_, i) => inputsOf(seen.slice(16 * i, 16 * i + 16)));
const data = await calibrateModel(model, samples, { moments: true });
const importance = await data.blob();
const expected = await logitsOf(model, others);
const each = expected.length / count;
const share = (logits) => (100 * rightIn(logits, others)).toFixed(1);
console.log(`float32: ${share(expected)} % of the words of ${count} texts`);

/** Squared errors of the logits of each text, as shares of the mean of squares. */
function errorsOf(logits) {
  const squares = expected.reduce((sum, v) => sum + v * v, 0) / count;
  return Array.from({ length: count }, (_, text) => {
    let sum = 0;
    for (let i = text * each; i < (text + 1) * each; i++) sum += (logits[i] - expected[i]) ** 2;
    return sum / squares;
  });
}

const ways = {
  'min-max': {},
  mse: { range: 'mse' },
  importance: { importance },
  gptq: { method: 'gptq', moments: data },
};
for (const [to, options] of [
  ['q4', {}],
  ['q4', { zeroPoints: true }],
  ['q4', { zeroPoints: 'float' }],
  ['q2', {}],
  ['q2', { zeroPoints: true }],
  ['q8-blocks', {}],
  ['int4-weights', {}],
  ['int8-weights', {}],
  ['q8', {}],
]) {
  /** @type {number[] | undefined} */
  let base;
  const { zeroPoints } = options;
  const name = `${to}${zeroPoints === undefined ? '' : `, zero points ${zeroPoints}`}`;
  for (const [way, more] of Object.entries(ways)) {
    // Tables of embeddings stay floats: statistics say nothing about them.
    const rules = [{ match: '^embeddings', keep: true }];
    const made = await quantizeModel(model, { to, ...options, ...more, rules });
    const logits = await logitsOf(await made.bytes(), others);
    const errors = errorsOf(logits);
    if (way === 'mse') base = errors;
    const ratio = base === undefined ? '' : show(ratioOf(errors, base), 3);
    console.log(
      `${name.padEnd(26)} ${way.padEnd(12)} ${show(meanOf(errors), 7)}  ${ratio.padEnd(16)} ${share(logits)} %`,
    );
  }
}
