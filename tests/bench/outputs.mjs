// Measures the outputs of quantized language models on texts that they were not calibrated on: the divergence of the next token from the original.
//
//   npm run build && SCALEPOINT_SAMPLES=... node tests/bench/outputs.mjs [--model FOLDER ...] [--types Q4_K_M,Q2_K] [--ways plain,importance,gptq]
//                                                                        [--seeds 3] [--tokens 4096] [--bits 5,6] [--base DIST]
//
// Types are those of GGUF, or targets of safetensors, such as mlx-4bit:32 with a size of groups behind it; their linear weights are restored into
// a folder of floats. A way may have options of GPTQ behind it, such as gptq:damping=0.03 or gptq:heldBack=0.25. The way `base` is GPTQ by
// another build of the package, whose folder is DIST.
//
// A model is a folder of a small llama; without one, TinyStories of the samples. (teach_llama.mjs makes another one.) Each seed draws texts of
// 256 tokens from the model: `tokens` to calibrate, and as many others to judge. Embeddings and the output stay float16. Columns: bits for each
// linear weight; mean divergence with the standard error over texts; difference from the first way, and ratio to it, with standard errors of the
// paired texts; the ratio of each seed. With --bits, the types of all tensors are chosen for this number of bits a weight: by the errors of
// weights, by importance, and by the errors of outputs with GPTQ. All results then round with GPTQ.

import { cpSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { basename, join, resolve } from 'node:path';
import { pathToFileURL } from 'node:url';
import { parseArgs } from 'node:util';
import {
  calibrateModel,
  fitTypes,
  inspectModel,
  measureTypes,
  quantizeModel,
  readFloats,
  saveTensors,
} from '../../dist/model.js';
import { divergences, drawTexts, joined, meanOf, ratioOf, show } from './stories.mjs';

/** Embeddings and outputs in float16, so that the linear weights decide. */
const rules = [{ match: '^(token_embd|output)\\.', to: 'F16' }];

/** Length of a text in tokens. */
const textLength = 256;

/** Options of `quantizeModel` for each way. `importance` and `statistics` are those of the seed. */
const ways = {
  plain: () => ({}),
  importance: ({ importance }) => ({ importance }),
  best: () => ({ search: 'best' }),
  'best+importance': ({ importance }) => ({ search: 'best', importance }),
  gptq: ({ statistics }) => ({ method: 'gptq', moments: statistics }),
  base: async ({ statistics, base }) => ({
    method: 'gptq',
    moments: await statistics.moments.blob(),
    quantize: base.quantizeModel,
  }),
  stored: ({ statistics }) => ({ method: 'gptq', moments: statistics, order: 'stored' }),
};

/** Options of `measureTypes` for each way to choose types. */
const choices = {
  weights: () => ({}),
  importance: ({ importance }) => ({ importance }),
  outputs: ({ statistics }) => ({ method: 'gptq', moments: statistics }),
};

/** A way and its options. @param {string} text */
function parsedWay(text) {
  const [way, option] = text.split(':');
  const [name, value] = option?.split('=') ?? [];
  return { way, options: name === undefined ? {} : { [name]: Number(value) } };
}

const types = ['Q4_K_M', 'Q3_K_M', 'Q2_K', 'Q5_K_M', 'Q6_K', 'Q4_0', 'Q4_1', 'Q5_0', 'Q5_1', 'Q8_0'];

/**
 * Draws texts and calibrates for each seed.
 * @param {string} folder @param {{ seeds: number, tokens: number }} options
 */
async function prepared(folder, { seeds, tokens }) {
  const file = await (await quantizeModel(folder, { to: 'F32', missingBytes: 'keep' })).bytes();
  const cases = [];
  for (let seed = 1; seed <= seeds; seed++) {
    const all = await drawTexts(folder, { seed, texts: (2 * tokens) / textLength, length: textLength });
    const half = all.length / 2;
    /** @type {Map<number | undefined, import('../../dist/model.js').ModelStatistics>} */
    const known = new Map();
    /** @param {number} [heldBack] */
    const statisticsOf = async (heldBack) => {
      const options = { chunkSize: textLength, moments: true, heldBack, mix: 0 };
      if (!known.has(heldBack)) known.set(heldBack, await calibrateModel(file, joined(all.slice(0, half)), options));
      return known.get(heldBack);
    };
    const importance = new Blob([await (await statisticsOf()).bytes()]);
    cases.push({ statisticsOf, importance, texts: all.slice(half) });
  }
  return { file, cases };
}

/**
 * Prints a line for each way of a type, and returns the divergences of all texts.
 * @param {string} label @param {Record<string, number[][]>} found by way: the divergences of the texts of each seed
 */
function report(label, found) {
  const [first] = Object.values(found);
  for (const [way, seeds] of Object.entries(found)) {
    const [own, base] = [seeds.flat(), first.flat()];
    const difference = meanOf(own.map((value, i) => value - base[i]));
    const each = seeds.map((values, i) => ratioOf(values, first[i]).value.toFixed(3)).join(' ');
    const compared =
      seeds === first ? '' : `${show(difference, 5).padStart(20)}  ${show(ratioOf(own, base), 3)}  (${each})`;
    console.log(`${label.padEnd(20)} ${way.padEnd(22)} ${show(meanOf(own), 5)}  ${compared}`);
  }
}

/** Bits for each linear weight of layers. @param {import('../../dist/model.js').ModelReport} report */
function bitsOf({ tensors }) {
  const linear = tensors.filter(
    ({ name }) => /(_proj|attn_\w+|attn_output|ffn_(gate|up|down))\.weight$/.test(name) && !/norm/.test(name),
  );
  const elements = linear.reduce((sum, { shape }) => sum + shape.reduce((a, b) => a * b, 1), 0);
  return (8 * linear.reduce((sum, { bytesAfter }) => sum + bytesAfter, 0)) / elements;
}

/**
 * Divergences of a model of a type of GGUF, or of a target of safetensors, whose name has a lower-case letter.
 * @param {string} folder @param {Uint8Array} file the model in float32 @param {string} type @param {object} options @param {Uint32Array[]} texts
 */
async function judgedAs(folder, file, type, { quantize = quantizeModel, ...options }, texts) {
  const [to, size] = type.split(':');
  if (!/[a-z]/.test(to)) {
    const made = await quantize(file, { to, rules, ...options });
    return { kl: await divergences(await made.bytes(), file, texts), bits: bitsOf(made.report) };
  }
  const granularity = size === undefined ? {} : { granularity: { kind: 'per-group', groupSize: Number(size) } };
  const config = JSON.parse(readFileSync(join(folder, 'config.json'), 'utf8'));
  const made = await quantize(folder, { to, ...granularity, config, ...options });
  const source = join(folder, 'model.safetensors');
  const work = mkdtempSync(join(tmpdir(), 'outputs-'));
  try {
    // The codes of MLX need the settings beside them.
    const codes = join(work, 'codes.safetensors');
    writeFileSync(codes, await made.bytes());
    writeFileSync(join(work, 'config.json'), JSON.stringify(made.config));
    const floats = {};
    for (const { name } of (await inspectModel(source)).tensors)
      floats[name] = await readFloats(/_proj\.weight$/.test(name) ? codes : source, name);
    cpSync(folder, work, { recursive: true });
    writeFileSync(join(work, 'model.safetensors'), await saveTensors(floats));
    return { kl: await divergences(work, file, texts), bits: bitsOf(made.report) };
  } finally {
    rmSync(work, { recursive: true });
  }
}

/** Chooses types for sizes. @param {Uint8Array} file @param {object[]} cases @param {number[]} sizes in bits for each weight */
async function fitSizes(file, cases, sizes) {
  const found = sizes.map(() => ({}));
  for (const [name, options] of Object.entries(choices)) {
    for (const row of found) row[name] = [];
    for (const { statisticsOf, importance, texts } of cases) {
      const statistics = await statisticsOf();
      const table = await measureTypes(file, { to: 'auto', ...options({ importance, statistics }) });
      for (const [i, targetBitsPerWeight] of sizes.entries()) {
        const fit = fitTypes(table, { targetBitsPerWeight });
        const { to, rules } = fit;
        const made = await quantizeModel(file, { to, rules, method: 'gptq', moments: statistics });
        found[i][name].push(await divergences(await made.bytes(), file, texts));
      }
    }
  }
  for (const [i, bits] of sizes.entries()) report(`${bits} bits`, found[i]);
}

/** Measures types of GGUF. */
async function main() {
  const { values } = parseArgs({
    options: {
      model: {
        type: 'string',
        multiple: true,
        default: [join(process.env.SCALEPOINT_SAMPLES ?? '', 'tinystories-656k')],
      },
      types: { type: 'string', default: types.join() },
      ways: { type: 'string', default: 'importance,plain,gptq' },
      seeds: { type: 'string', default: '3' },
      tokens: { type: 'string', default: '4096' },
      bits: { type: 'string' },
      base: { type: 'string' },
    },
  });
  const base = values.base && (await import(pathToFileURL(resolve(values.base, 'model.js')).href));
  for (const folder of values.model) {
    const { file, cases } = await prepared(folder, { seeds: Number(values.seeds), tokens: Number(values.tokens) });
    const judged = cases.length * cases[0].texts.length;
    console.log(`\n${basename(folder)}: ${cases.length} seeds, ${judged} texts of ${textLength} tokens\n`);
    if (values.bits !== undefined) {
      await fitSizes(file, cases, values.bits.split(',').map(Number));
      continue;
    }
    for (const to of values.types.split(',')) {
      /** @type {Record<string, number[][]>} */
      const found = {};
      let bits = 0;
      for (const way of values.ways.split(',')) {
        found[way] = [];
        const { way: name, options } = parsedWay(way);
        const { heldBack, ...others } = options;
        for (const { statisticsOf, importance, texts } of cases) {
          const statistics = await statisticsOf(heldBack);
          const given = { ...(await ways[name]({ importance, statistics, base })), ...others };
          const judged = await judgedAs(folder, file, to, given, texts);
          found[way].push(judged.kl);
          bits = judged.bits;
        }
      }
      report(`${to}, ${bits.toFixed(2)} bits`, found);
    }
  }
}

await main();
