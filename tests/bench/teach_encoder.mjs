// Trains a small transformer encoder on a made language, for outputs-encoder.mjs: 4 layers, 256 wide. It tags the words of texts, which takes
// the whole sentence. Writes it as ONNX, and prints how many words of other texts it tags right. Takes some ten minutes of one core.
//
//   npm run build && node tests/bench/teach_encoder.mjs model.onnx [--steps 600] [--seed 1]
import { writeFileSync } from 'node:fs';
import { parseArgs } from 'node:util';
import { load } from '../../dist/index.js';
import { shareByWord, taggedTexts } from '../web/support/tagged-texts.mjs';
import { logitsOf, rightIn, taggerModel, teachTagger } from '../web/support/tagger.mjs';

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: { steps: { type: 'string', default: '600' }, seed: { type: 'string', default: '1' } },
});
const [path] = positionals;
if (path === undefined) throw new Error('Name the file to make.');
const sizes = { layers: 4, width: 256, inner: 512, heads: 4, length: 32 };
const [steps, seed] = [Number(values.steps), Number(values.seed)];
const onStep = (step, loss) => {
  if (step % 20 === 0) console.log(`step ${step}: loss ${loss.toFixed(4)}`);
};
const weights = teachTagger(await load(), sizes, { steps, texts: 16, rate: 1e-3, seed, onStep });
const model = taggerModel(weights, sizes);
writeFileSync(path, model);

const { length } = sizes;
const others = taggedTexts({ count: 200, length, seed: 10 });
const known = taggedTexts({ count: 2000, length, seed: 20 });
const percent = (share) => `${(100 * share).toFixed(1)} %`;
console.log(`right tags of other texts: ${percent(rightIn(await logitsOf(model, others), others))}`);
console.log(`by the most frequent tag of each word: ${percent(shareByWord(known, others))}`);
