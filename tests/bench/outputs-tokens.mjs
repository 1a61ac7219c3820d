// Measures how many tokens calibration takes: the divergence of quantized language models against the tokens that GPTQ and importance learn from.
//
//   npm run build && node tests/bench/outputs-tokens.mjs FOLDER TYPE [--tokens 256,1024,4096] [--judged 4096] [--seeds 2]
//
// FOLDER is a small llama. Each seed draws texts of 256 tokens from the model: the first ones to calibrate, others to judge, which are the same
// for every number of tokens. Columns: mean divergence with the standard error over texts, and its ratio to the codes nearest to the weights.

import { parseArgs } from 'node:util';
import { calibrateModel, quantizeModel } from '../../dist/model.js';
import { divergences, drawTexts, joined, meanOf, ratioOf, show } from './stories.mjs';

const textLength = 256;
const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    tokens: { type: 'string', default: '256,512,1024,2048,4096,8192' },
    judged: { type: 'string', default: '4096' },
    seeds: { type: 'string', default: '2' },
  },
});
const [folder, type] = positionals;
if (folder === undefined || type === undefined) throw new Error('usage: outputs-tokens.mjs FOLDER TYPE');
const counts = values.tokens.split(',').map(Number);
const most = Math.max(...counts);

/** Embeddings and outputs in float16, so that the linear weights decide. */
const rules = [{ match: '^(token_embd|output)\\.', to: 'F16' }];
const file = await (await quantizeModel(folder, { to: 'F32', missingBytes: 'keep' })).bytes();

/** @param {object} options @param {Uint32Array[]} texts */
async function judge(options, texts) {
  const made = await quantizeModel(file, { to: type, rules, ...options });
  return divergences(await made.bytes(), file, texts);
}

/** Divergences of all texts, by tokens and way. @type {Map<string, number[]>} */
const found = new Map();
const add = (/** @type {string} */ key, /** @type {number[]} */ more) =>
  found.set(key, [...(found.get(key) ?? []), ...more]);
for (let seed = 1; seed <= Number(values.seeds); seed++) {
  const all = await drawTexts(folder, { seed, texts: (most + Number(values.judged)) / textLength, length: textLength });
  const judged = all.slice(most / textLength);
  add('nearest', await judge({}, judged));
  for (const tokens of counts) {
    const texts = joined(all.slice(0, tokens / textLength));
    const statistics = await calibrateModel(file, texts, { chunkSize: textLength, moments: true });
    add(`${tokens} importance`, await judge({ importance: new Blob([await statistics.bytes()]) }, judged));
    add(`${tokens} gptq`, await judge({ method: 'gptq', data: statistics }, judged));
  }
}
const nearest = found.get('nearest') ?? [];
for (const [key, own] of found) {
  console.log(`${type}  ${key.padEnd(18)}${show(meanOf(own), 5)}   ${show(ratioOf(own, nearest), 3)}`);
}
