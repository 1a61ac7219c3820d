// Measures how many tokens calibration takes, and which: the divergence of quantized language models against the tokens that GPTQ and importance
// learn from.
//
//   npm run build && node tests/bench/outputs-tokens.mjs FOLDER TYPE [--tokens 256,1024,4096] [--judged 4096] [--seeds 2]
//                    node tests/bench/outputs-tokens.mjs FOLDER --domains [--tokens 4096] [--judged 1024] [--seeds 2]
//
// FOLDER is a small llama. Each seed draws texts of 256 tokens from the model: the first ones to calibrate, others to judge, which are the same
// for every number of tokens. Columns: mean divergence with the standard error over texts, and its ratio to the codes nearest to the weights.
//
// With --domains, texts are stories, tables of numbers, or code of this repository. Those of each domain are judged, 128 tokens each, with
// statistics of each domain: of the text alone, and of mixes in which a quarter or a half of all tokens are random (even over the vocabulary) or
// drawn from the model. `in place`: of as many tokens in all; `on top`: added to the text. An eighth is held back of the text and of the other
// tokens. Each judged text counts relative to the mean without data of its domain and seed. Columns: the ratio to that without data within a
// domain and in other domains, and both ratios to the text alone, with standard errors over the judged texts; below, those of each domain that is
// judged. Divergences go to the standard error as they come.

import { cpSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { Tokenizer } from '@huggingface/tokenizers';
import { calibrateModel, inspectModel, quantizeModel, readFloats, saveTensors } from '../../dist/model.js';
import { generator, story } from '../../scripts/site/storyteller/stories.mjs';
import { divergences, drawTexts, joined, meanOf, ratioOf, show } from './stories.mjs';

const textLength = 256;
const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    domains: { type: 'boolean', default: false },
    tokens: { type: 'string' },
    judged: { type: 'string' },
    seeds: { type: 'string', default: '2' },
  },
});
const [folder, type] = positionals;
if (folder === undefined || (type === undefined) !== values.domains) {
  throw new Error('usage: outputs-tokens.mjs FOLDER (TYPE | --domains)');
}
const seeds = Array.from({ length: Number(values.seeds) }, (_, i) => i + 1);

/** Embeddings and outputs in float16, so that the linear weights decide. */
const rules = [{ match: '^(token_embd|output)\\.', to: 'F16' }];
const file = await (await quantizeModel(folder, { to: 'F32', missingBytes: 'keep' })).bytes();

/** Measures how many tokens it takes. */
async function measureCounts() {
  const counts = (values.tokens ?? '256,512,1024,2048,4096,8192').split(',').map(Number);
  const most = Math.max(...counts);

  /** @param {object} options @param {Uint32Array[]} texts */
  const judge = async (options, texts) => {
    const made = await quantizeModel(file, { to: type, rules, ...options });
    return divergences(await made.bytes(), file, texts);
  };

  /** Divergences of all texts, by tokens and way. @type {Map<string, number[]>} */
  const found = new Map();
  const add = (/** @type {string} */ key, /** @type {number[]} */ more) =>
    found.set(key, [...(found.get(key) ?? []), ...more]);
  for (const seed of seeds) {
    const texts = (most + Number(values.judged ?? 4096)) / textLength;
    const all = await drawTexts(folder, { seed, texts, length: textLength });
    const judged = all.slice(most / textLength);
    add('nearest', await judge({}, judged));
    for (const tokens of counts) {
      const texts = joined(all.slice(0, tokens / textLength));
      const statistics = await calibrateModel(file, texts, { chunkSize: textLength, moments: true, mix: 0 });
      add(`${tokens} importance`, await judge({ importance: new Blob([await statistics.bytes()]) }, judged));
      add(`${tokens} gptq`, await judge({ method: 'gptq', moments: statistics }, judged));
    }
  }
  const nearest = found.get('nearest') ?? [];
  for (const [key, own] of found) {
    console.log(`${type}  ${key.padEnd(18)}${show(meanOf(own), 5)}   ${show(ratioOf(own, nearest), 3)}`);
  }
}

// ----------------------------------------------------------------------------------------------------------------- domains

const sources = fileURLToPath(new URL('../../web/src/', import.meta.url));
const files = readdirSync(sources, { recursive: true })
  .filter((name) => String(name).endsWith('.ts'))
  .sort();

/** Pieces of text of each domain. @type {Record<string, (random: () => number) => string>} */
const domains = {
  stories: story,
  tables: (random) => {
    const cell = () => (random() * 10 ** Math.floor(random() * 5)).toFixed(Math.floor(random() * 3));
    return Array.from({ length: 8 }, () => `${Array.from({ length: 6 }, cell).join(',')}\n`).join('');
  },
  code: (random) => {
    const text = readFileSync(join(sources, files[Math.floor(random() * files.length)]), 'utf8');
    return text.slice(Math.floor(random() * text.length)).slice(0, 1500);
  },
};

/** What is mixed with a text. @type {{ name: string, other?: 'random' | 'drawn', share?: number, onTop?: boolean }[]} */
const mixes = [
  { name: 'text alone' },
  ...['random', 'drawn'].flatMap((other) =>
    [1 / 4, 1 / 2].map((share) => ({ name: `${share} ${other}, in place`, other, share })),
  ),
  ...[1 / 4, 1 / 2].map((share) => ({ name: `${share} random, on top`, other: 'random', share, onTop: true })),
];

/** How weights are quantized. @type {Record<string, { to: string, method?: 'gptq' }>} */
const ways = {
  'Q4_K_M gptq': { to: 'Q4_K_M', method: 'gptq' },
  'Q4_K_M importance': { to: 'Q4_K_M' },
  'int8 gptq': { to: 'int8', method: 'gptq' },
};

/** A model to judge. int8 becomes a folder of floats. @param {string} work @param {object} options */
async function quantized(work, { to, ...options }) {
  if (to !== 'int8') return (await quantizeModel(file, { to, rules, ...options })).bytes();
  const source = join(folder, 'model.safetensors');
  const bytes = await (await quantizeModel(source, { to, ...options })).bytes();
  const floats = {};
  for (const { name } of (await inspectModel(source)).tensors) floats[name] = await readFloats(bytes, name);
  writeFileSync(join(work, 'model.safetensors'), await saveTensors(floats));
  return work;
}

/** Mean of a by mean of b over all domains, whose texts vary by themselves. @param {number[][]} a @param {number[][]} b */
function pooledRatio(a, b) {
  const sum = (groups) => groups.reduce((all, group) => all + meanOf(group).value, 0);
  const value = sum(a) / sum(b);
  const errors = a.map((group, i) => meanOf(group.map((x, k) => x - value * b[i][k])).error);
  return { value, error: Math.hypot(...errors) / sum(b) };
}

/** Measures which tokens it takes. @param {string} work a folder of a model, whose weights are replaced */
async function measureDomains(work) {
  const read = (name) => JSON.parse(readFileSync(join(folder, name), 'utf8'));
  const tokenizer = new Tokenizer(read('tokenizer.json'), read('tokenizer_config.json'));
  const { vocab_size: vocabulary } = read('config.json');
  const [count, judged] = [Number(values.tokens ?? 4096) / textLength, Number(values.judged ?? 1024)];

  /** Texts of a domain. @param {string} domain @param {number} seed @param {number} texts @param {number} length */
  const textsOf = (domain, seed, texts, length) => {
    const random = generator(seed);
    const ids = [];
    while (ids.length < texts * length) {
      ids.push(...tokenizer.encode(domains[domain](random), { add_special_tokens: false }).ids);
    }
    return Array.from({ length: texts }, (_, i) => Uint32Array.from(ids.slice(i * length, (i + 1) * length)));
  };

  /** Relative divergences: by way, data and mix, domain that is judged, all texts. @type {Map<string, number[]>} */
  const found = new Map();
  const judge = async (seed, texts, data, options) => {
    for (const [way, own] of Object.entries(ways)) {
      const given = own.method === 'gptq' ? { moments: options.statistics } : { importance: options.importance };
      const model = await quantized(work, options.statistics === undefined ? { to: own.to } : { ...own, ...given });
      for (const domain of Object.keys(domains)) {
        const values = await divergences(model, file, texts[domain]);
        console.error(JSON.stringify({ seed, way, data, domain, values }));
        const below = data === 'none' ? meanOf(values).value : undefined;
        const baseKey = `${way}|base ${seed}|${domain}`;
        if (below !== undefined) found.set(baseKey, [below]);
        const [base] = found.get(baseKey);
        const key = `${way}|${data}|${domain}`;
        found.set(key, [...(found.get(key) ?? []), ...values.map((value) => value / base)]);
      }
    }
  };
  for (const seed of seeds) {
    const texts = {};
    for (const domain of Object.keys(domains)) texts[domain] = textsOf(domain, 1000 + seed, judged / 128, 128);
    await judge(seed, texts, 'none', {});
    const random = generator(seed);
    const others = {
      random: Array.from({ length: count }, () =>
        Uint32Array.from({ length: textLength }, () => 3 + Math.floor(random() * (vocabulary - 3))),
      ),
      drawn: await drawTexts(folder, { seed, texts: count, length: textLength }),
    };
    const measure = async (data, chunks) => {
      const options = { chunkSize: textLength, moments: true, mix: 0 };
      const statistics = await calibrateModel(file, joined(chunks), options);
      await judge(seed, texts, data, { statistics, importance: new Blob([await statistics.bytes()]) });
    };
    for (const [other, chunks] of Object.entries(others)) await measure(other, chunks);
    for (const domain of Object.keys(domains)) {
      const own = textsOf(domain, seed, count, textLength);
      for (const { name, other, share = 0, onTop } of mixes) {
        const mixed = others[other]?.slice(0, Math.round(onTop ? (count * share) / (1 - share) : count * share)) ?? [];
        const chunks = [...own.slice(0, onTop ? count : count - mixed.length), ...mixed];
        // Of 16 chunks, 1 and 9 are held back. On top, that holds for both parts.
        if (!onTop) [chunks[9], chunks[count - 1]] = [chunks[count - 1], chunks[9]];
        await measure(`${domain} ${name}`, chunks);
      }
    }
  }

  // Print tables.
  const names = Object.keys(domains);
  for (const way of Object.keys(ways)) {
    const of = (data, domain) => found.get(`${way}|${data}|${domain}`);
    const without = (data) =>
      names.map((domain) => show(ratioOf(of(data, domain), of('none', domain)), 3).padEnd(14)).join('  ');
    /** The texts of each domain, with statistics of their own domain, or the mean of those of others. */
    const pooled = (name, isOwn) =>
      names.map((domain) => {
        const rows = names.filter((one) => (one === domain) === isOwn).map((one) => of(`${one} ${name}`, domain));
        return rows[0].map((_, i) => rows.reduce((sum, row) => sum + row[i], 0) / rows.length);
      });
    console.log(`\n${way.padEnd(36)}${names.map((name) => name.padEnd(16)).join('')}`);
    for (const other of ['random', 'drawn']) console.log(`${`${other} alone`.padEnd(36)}${without(other)}`);
    const none = names.map((domain) => of('none', domain));
    for (const { name } of mixes) {
      const [within, beyond] = [true, false].map((isOwn) => pooled(name, isOwn));
      const figures = [pooledRatio(within, none), pooledRatio(beyond, none)];
      const toAlone = [true, false].map((isOwn) => pooledRatio(pooled(name, isOwn), pooled('text alone', isOwn)));
      console.log(`${name.padEnd(24)} ${[...figures, ...toAlone].map((one) => show(one, 3)).join('  ')}`);
      for (const domain of names) console.log(`    by ${domain.padEnd(29)}${without(`${domain} ${name}`)}`);
    }
  }
}

if (values.domains) {
  const work = mkdtempSync(join(tmpdir(), 'outputs-'));
  try {
    cpSync(folder, work, { recursive: true });
    await measureDomains(work);
  } finally {
    rmSync(work, { recursive: true });
  }
} else {
  await measureCounts();
}
