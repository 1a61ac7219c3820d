// Vector search: recall of codes with and without a second score over several kinds of data, and times beside reading the codes.
//
//   node tests/bench/search.mjs [--recall] [--speed] [--dimensions 384,1536] [--count 10000] [--queries 2000]
//     [--kinds 'clusters of 20,normal']
//
// Goals of speed are for 100,000 vectors of 1536, and of adding for 384. Goals of recall are for clusters of 20. Tables state which are
// reached. Recall is the mean share of the exact best 10 among the 10 that a search finds, by cosine, for queries that were not indexed.
// Its standard error is that of the mean of these queries.

import { cpus } from 'node:os';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { makeLimits } from '../../dist/bench.js';
import { load } from '../../dist/index.js';
import { readFloats } from '../../dist/model.js';
import { drawDigits, testSeed } from '../../web/demo/shared/digits.mjs';
import { bestOf, kinds, meanOf, rows, startRandom, uniform } from './vector-kinds.mjs';

const { values } = parseArgs({
  options: {
    recall: { type: 'boolean', default: false },
    speed: { type: 'boolean', default: false },
    dimensions: { type: 'string', default: '384,1536' },
    count: { type: 'string', default: '10000' },
    queries: { type: 'string', default: '2000' },
    kinds: { type: 'string', default: '' },
  },
});
const both = !values.recall && !values.speed;
const dimensions = values.dimensions.split(',').map(Number);
const count = Number(values.count);
const queries = Number(values.queries);
const k = 10;
const sp = await load();

/** True for kinds of data that `--kinds` names, or without it for all. @param {string} kind */
const isAsked = (kind) => values.kinds === '' || values.kinds.split(',').includes(kind);

/** Activations behind the first layer of the sample network of the site, for digits that it has not seen. @param {number} n */
async function activations(n) {
  const file = fileURLToPath(new URL('../../web/demo/public/samples/digits.safetensors', import.meta.url));
  const [weight, bias, gain, shift] = await Promise.all(
    ['fc1.weight', 'fc1.bias', 'norm.weight', 'norm.bias'].map((name) => readFloats(file, name)),
  );
  const [width = 0, pixels = 0] = weight.shape;
  const layer = sp.matmulFloat(weight.data, { shape: [width, pixels], bias: bias.data });
  const x = layer.forward(drawDigits(n, testSeed).images, { batch: n });
  layer.dispose();
  for (let start = 0; start < x.length; start += width) {
    const row = x.subarray(start, start + width);
    const mean = row.reduce((sum, value) => sum + value, 0) / width;
    const variance = row.reduce((sum, value) => sum + (value - mean) ** 2, 0) / width;
    for (let i = 0; i < width; i++) {
      const value = /** @type {number} */ (row[i] - mean) / Math.sqrt(variance + 1e-5);
      row[i] = Math.max(0, value * /** @type {number} */ (gain.data[i]) + /** @type {number} */ (shift.data[i]));
    }
  }
  return { x, width };
}

const share = (/** @type {number} */ x) => x.toFixed(3).replace(/^0/, '').padStart(5);

/** Queries whose scores are held at a time. */
const queriesAtOnce = 100;

/** The exact best k of each query, by cosine. @param {Float32Array} x @param {Float32Array} asked @param {number} dimension */
function exactly(x, asked, dimension) {
  const units = x.slice();
  for (let start = 0; start < units.length; start += dimension) {
    const row = units.subarray(start, start + dimension);
    const length = Math.sqrt(row.reduce((sum, value) => sum + value * value, 0));
    for (let i = 0; i < dimension; i++) row[i] = /** @type {number} */ (row[i]) / length;
  }
  const layer = sp.matmulFloat(units, { shape: [count, dimension] });
  /** @type {Set<number>[]} */
  const found = [];
  for (let first = 0; first < queries; first += queriesAtOnce) {
    const end = Math.min(queries, first + queriesAtOnce);
    const scores = layer.forward(asked.subarray(first * dimension, end * dimension), { batch: end - first });
    for (let q = 0; q < end - first; q++) found.push(new Set(bestOf(scores.subarray(q * count, (q + 1) * count), k)));
  }
  layer.dispose();
  return found;
}

/**
 * Recall that is asked of clusters of 20, by bits and factor.
 * @type {readonly (readonly [bits: number, factor: number | false, least: number])[]}
 */
const recallGoals = [
  [4, false, 0.95],
  [2, false, 0.85],
  [1, 8, 0.98],
];
/** @type {string[]} */
const recallRows = [];

/** @param {string} kind @param {Float32Array} x @param {Float32Array} asked @param {number} dimension */
async function printRecall(kind, x, asked, dimension) {
  const truth = exactly(x, asked, dimension);
  for (const bits of /** @type {const} */ ([1, 2, 4, 8])) {
    const rerank = /** @type {const} */ ({ source: 'float16' });
    const index = sp.index(x, { shape: [count, dimension], metric: 'cosine', bits, rerank });
    const means = [];
    for (const factor of /** @type {const} */ ([false, 4, 8, 16])) {
      const results = await index.searchMany(asked, k, { rerank: factor });
      const { mean, error } = meanOf(
        results.map(({ indices }, q) => indices.reduce((hits, i) => hits + (truth[q]?.has(i) ? 1 : 0), 0) / k),
      );
      means.push({ mean, error });
      for (const [asks, by, least] of recallGoals) {
        if (kind !== 'clusters of 20' || asks !== bits || by !== factor) continue;
        const name = `${dimension} dimensions, ${bits} ${bits === 1 ? 'bit' : 'bits'}${factor ? `, factor ${factor}` : ''}`;
        recallRows.push(`| ${name} | at least ${least} | ${share(mean)} | ${mean >= least ? 'yes' : 'no'} |`);
      }
    }
    const found = means.map(({ mean }) => share(mean)).join(' ');
    const most = Math.max(...means.map(({ error }) => error));
    console.log(`${kind.padEnd(16)}${String(dimension).padStart(5)}  ${bits} bits  ${found}  error ${share(most)}`);
    index.dispose();
  }
}

if (values.recall || both) {
  console.log(
    `recall at ${k} of ${count} vectors, ${queries} queries: without a second score, with factors 4, 8 and 16, and the largest`,
  );
  console.log('standard error of these four\n');
  for (const dimension of dimensions) {
    for (const [kind, of] of Object.entries(kinds)) {
      if (!isAsked(kind)) continue;
      startRandom();
      const make = of(dimension, count);
      const x = rows(make, count, dimension);
      const asked = rows(make, queries, dimension);
      await printRecall(kind, x, asked, dimension);
    }
  }
  if (isAsked('sample network')) {
    const { x, width } = await activations(count + queries);
    await printRecall('sample network', x.slice(0, count * width), x.slice(count * width), width);
  }
  if (recallRows.length > 0) {
    console.log(
      `\n| clusters of 20 | asked | measured | reached |\n| --- | --- | --- | --- |\n${recallRows.join('\n')}`,
    );
  }
}

/**
 * The least times of some calls in ms, which run in turns: other work on the machine can only make them longer.
 * @template {string} Name @param {Record<Name, () => unknown>} calls @returns {Promise<Record<Name, number>>}
 */
async function leastTimes(calls, rounds = 15) {
  const times = /** @type {Record<Name, number>} */ ({});
  for (let i = 0; i < rounds; i++) {
    for (const name of /** @type {Name[]} */ (Object.keys(calls))) {
      const start = performance.now();
      await calls[name]();
      times[name] = Math.min(times[name] ?? Infinity, performance.now() - start);
    }
  }
  return times;
}

/** Numbers of a bell shape, quickly. @param {number} n */
function quickBell(n) {
  const x = new Float32Array(n);
  for (let i = 0; i < n; i++) x[i] = uniform() + uniform() + uniform() - 1.5;
  return x;
}

if (values.speed || both) {
  const n = 100_000;
  const limits = await makeLimits();
  /** @type {[goal: string, asked: string, measured: string, isReached: boolean][]} */
  const goals = [];
  const head = ['dimensions, bits', 'search', 'of 32', 'reading the codes', 'selection', 'added in a second', 'MB'];
  console.log(`\n${n} vectors, one thread, ms; ${cpus()[0]?.model}\n`);
  console.log(`| ${head.join(' | ')} |\n|${head.map(() => ' --- |').join('')}`);
  for (const dimension of dimensions) {
    const x = quickBell(n * dimension);
    const asked = rows(kinds.normal(), 32, dimension);
    for (const bits of /** @type {const} */ ([1, 2, 4, 8])) {
      const start = performance.now();
      const index = sp.index(x, { shape: [n, dimension], metric: 'cosine', bits });
      const added = (n / (performance.now() - start)) * 1000;
      // All that a search does besides sums over dimensions, and sums over 16 of them.
      const narrow = sp.index(x.subarray(0, n * 16), { shape: [n, 16], metric: 'cosine', bits });
      const bytes = (n * dimension * bits) / 8;
      limits.prepare(Math.ceil(bytes / 4));
      const { search, read, selection } = await leastTimes({
        search: () => index.search(asked.subarray(0, dimension), 10),
        read: () => limits.read(Math.floor(bytes / 4)),
        selection: () => narrow.search(asked.subarray(0, 16), 10),
      });
      const { batch } = await leastTimes({ batch: () => index.searchMany(asked, 10) }, 4);
      const each = batch / 32;
      const cells = [search, each, read, selection].map((time) => time.toPrecision(2));
      const more = [Math.round(added).toLocaleString('en-US'), (index.bytes / 1e6).toFixed(1)];
      console.log(`| ${[`${dimension}, ${bits}`, ...cells, ...more].join(' | ')} |`);
      const name = `${dimension} dimensions, ${bits} ${bits === 1 ? 'bit' : 'bits'}`;
      const most = bits === 1 ? 1.5 : 1.3;
      const of = (/** @type {number} */ ratio) => `${ratio.toFixed(2)} x`;
      if (dimension === 1536) {
        goals.push(
          [`${name}: search / reading`, `at most ${most}`, of(search / read), search <= most * read],
          [`${name}: search / each of 32`, 'at least 3', of(search / each), search >= 3 * each],
          [`${name}: selection / search`, 'at most .1', `below ${of(selection / search)}`, selection <= 0.1 * search],
        );
      } else if (dimension === 384 && bits < 8) {
        goals.push([`${name}: added in a second`, 'at least 50,000', more[0] ?? '', added >= 50_000]);
      }
      index.dispose();
      narrow.dispose();
    }
    const q = sp.quantize(x, { dtype: 'int8', shape: [n, dimension], granularity: { kind: 'per-channel', axis: 0 } });
    const { ready, copy } = await leastTimes(
      {
        ready: () => sp.index(q, { metric: 'cosine' }).dispose(),
        copy: () => q.data.slice(),
      },
      5,
    );
    goals.push([
      `${dimension} dimensions: an index from int8 codes / a copy`,
      'at most 1.5',
      `${(ready / copy).toFixed(2)} x`,
      ready <= 1.5 * copy,
    ]);
  }
  console.log('\n| goal | asked | measured | reached |\n| --- | --- | --- | --- |');
  for (const [goal, wanted, measured, isReached] of goals) {
    console.log(`| ${goal} | ${wanted} | ${measured} | ${isReached ? 'yes' : 'no'} |`);
  }
}
