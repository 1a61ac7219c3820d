// Measures how types are chosen for a given size: by the errors of weights, by the errors of outputs, and by the measured divergence of each
// weight, beside the mixtures of llama.cpp in the same bytes.
//
//   npm run build && SCALEPOINT_SAMPLES=... node tests/bench/outputs-sizes.mjs [--model FOLDER ...] [--types Q2_K,Q3_K_M,Q4_K_M,Q5_K_M]
//                                                                              [--seeds 2] [--tokens 4096] [--layers]
//
// A model is a folder of a small llama; without one, TinyStories of the samples and the storyteller of the site. Each seed draws texts of 256
// tokens from the model: `tokens` to calibrate, and as many others to judge. All results round with GPTQ by the same data, tables and output
// layers among them, and none is larger than the mixture. Columns: bytes; mean divergence with the standard error over texts; the expected
// divergence; the ratio to the mixture with the standard error of the paired texts, and that of each seed. Below each model: the geometric mean
// of the ratios of each way over all sizes. With --layers, tables and output layers stay float16.

import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { calibrateModel, planModel, quantizeModel } from '../../dist/model.js';
import { divergences, drawTexts, joined, meanOf, ratioOf, show } from './stories.mjs';

const textLength = 256;

/** Rules with --layers. */
const floatEnds = [{ match: '^(token_embd|output)\\.', to: 'F16' }];

/** A file of moments without divergences, as earlier releases wrote it: their entries get other names. @param {Uint8Array} file */
function withoutDivergences(file) {
  const header = 8 + Number(new DataView(file.buffer, file.byteOffset).getBigUint64(0, true));
  const text = Buffer.from(file.subarray(0, header)).toString('latin1').replaceAll('.divergence"', '.unmeasured"');
  return Buffer.concat([Buffer.from(text, 'latin1'), file.subarray(header)]);
}

/** Options of `measureTypes` for each way to choose types. */
const ways = {
  weights: () => ({}),
  outputs: ({ plain }) => ({ method: 'gptq', moments: plain }),
  divergence: ({ moments }) => ({ method: 'gptq', moments }),
};

/** @param {string} folder @param {{ seeds: number, tokens: number }} options */
async function prepared(folder, { seeds, tokens }) {
  const file = await (await quantizeModel(folder, { to: 'F32', missingBytes: 'keep' })).bytes();
  const cases = [];
  for (let seed = 1; seed <= seeds; seed++) {
    const all = await drawTexts(folder, { seed, texts: (2 * tokens) / textLength, length: textLength });
    const half = all.length / 2;
    const statistics = await calibrateModel(file, joined(all.slice(0, half)), { chunkSize: textLength, moments: true });
    const moments = await statistics.moments.bytes();
    cases.push({ moments, plain: withoutDivergences(moments), texts: all.slice(half) });
  }
  return { file, cases };
}

/** @param {string} folder @param {string[]} types @param {{ seeds: number, tokens: number, rules: object[] }} options */
async function measure(folder, types, { rules, ...options }) {
  const { file, cases } = await prepared(folder, options);
  console.log(`\n${folder.split('/').at(-1)}: ${cases.length} seeds, ${cases.length * cases[0].texts.length} texts\n`);
  /** @type {Record<string, number[]>} */
  const logs = {};
  for (const type of types) {
    /** @type {Record<string, { found: number[][], bytes: number, expected: number[] }>} */
    const rows = {};
    for (const one of cases) {
      const gptq = { method: 'gptq', moments: one.plain };
      const add = async (way, choice, expected) => {
        const made = await (await quantizeModel(file, { ...choice, ...gptq })).bytes();
        rows[way] ??= { found: [], bytes: made.length, expected: [] };
        rows[way].found.push(await divergences(made, file, one.texts));
        rows[way].expected.push(expected);
        return made.length;
      };
      const targetSize = await add(type, { to: type, rules }, Number.NaN);
      for (const [way, optionsOf] of Object.entries(ways)) {
        const {
          to,
          options: chosen,
          fit,
        } = await planModel(file, { to: 'auto', targetSize, rules, ...optionsOf(one) });
        await add(way, { to, rules: chosen.rules }, fit.isDivergence ? fit.error : Number.NaN);
      }
    }
    const base = rows[type].found;
    for (const [way, { found, bytes, expected }] of Object.entries(rows)) {
      const ratio = ratioOf(found.flat(), base.flat());
      const each = found.map((values, i) => ratioOf(values, base[i]).value.toFixed(3)).join(' ');
      const known = Number.isNaN(expected[0]) ? '' : meanOf(expected).value.toFixed(5);
      const figures = `${show(meanOf(found.flat()), 5)} ${known.padStart(8)}`;
      console.log(
        `${(way === type ? type : `  ${way}`).padEnd(14)} ${String(bytes).padStart(9)} ${figures}  ${show(ratio, 3)}  (${each})`,
      );
      const name = way === type ? 'mixture' : way;
      logs[name] = [...(logs[name] ?? []), Math.log(ratio.value)];
    }
  }
  for (const [way, all] of Object.entries(logs))
    console.log(`${way.padEnd(14)} ${Math.exp(meanOf(all).value).toFixed(3)}`);
}

const { values } = parseArgs({
  options: {
    model: {
      type: 'string',
      multiple: true,
      default: [
        join(process.env.SCALEPOINT_SAMPLES ?? '', 'tinystories-656k'),
        join(import.meta.dirname, '../../web/demo/public/samples/storyteller'),
      ],
    },
    types: { type: 'string', default: 'Q2_K,Q3_K_M,Q4_K_M,Q5_K_M' },
    seeds: { type: 'string', default: '2' },
    tokens: { type: 'string', default: '4096' },
    layers: { type: 'boolean', default: false },
  },
});
for (const folder of values.model)
  await measure(folder, values.types.split(','), {
    seeds: Number(values.seeds),
    tokens: Number(values.tokens),
    rules: values.layers ? floatEnds : [],
  });
