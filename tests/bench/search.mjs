// Vector search: recall of codes with and without a second score over several kinds of data, and times beside reading the codes.
//
//   node tests/bench/search.mjs [--recall] [--speed] [--dimensions 384,1536] [--count 20000] [--kinds clustered]
//
// Recall is the mean share of the exact best 10 among the 10 that a search finds, by cosine, for 50 queries that were not indexed.

import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { makeLimits } from '../../dist/bench.js';
import { load } from '../../dist/index.js';
import { readFloats } from '../../dist/model.js';
import { drawDigits, testSeed } from '../../web/demo/shared/digits.mjs';
import { kinds, rows, startRandom, uniform } from './vector-kinds.mjs';

const { values } = parseArgs({
  options: {
    recall: { type: 'boolean', default: false },
    speed: { type: 'boolean', default: false },
    dimensions: { type: 'string', default: '384,1536' },
    count: { type: 'string', default: '20000' },
    kinds: { type: 'string', default: '' },
  },
});
const both = !values.recall && !values.speed;
const dimensions = values.dimensions.split(',').map(Number);
const count = Number(values.count);
const queries = 50;
const sp = await load({ index: true });

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

const share = (/** @type {number} */ x) => x.toFixed(3).replace(/^0/, '').padStart(6);

/** @param {string} kind @param {Float32Array} x @param {Float32Array} asked @param {number} dimension */
function printRecall(kind, x, asked, dimension) {
  for (const bits of /** @type {const} */ ([1, 2, 4, 8])) {
    const rerank = /** @type {const} */ ({ source: 'float16' });
    const index = sp.index(x, { shape: [count, dimension], metric: 'cosine', bits, rerank });
    const factors = /** @type {const} */ ([false, 4, 8, 16]);
    const found = factors.map((factor) => share(index.recall(x, asked, { k: 10, rerank: factor })));
    console.log(`${kind.padEnd(16)}${String(dimension).padStart(5)}  ${bits} bits  ${found.join(' ')}`);
    index.dispose();
  }
}

if (values.recall || both) {
  console.log(`recall at 10 of ${count} vectors: without a second score, and with factors 4, 8 and 16\n`);
  for (const dimension of dimensions) {
    for (const [kind, of] of Object.entries(kinds)) {
      if (!isAsked(kind)) continue;
      startRandom();
      const make = of(dimension);
      const x = rows(make, count, dimension);
      const asked = rows(make, queries, dimension);
      printRecall(kind, x, asked, dimension);
    }
  }
  if (isAsked('sample network')) {
    const { x, width } = await activations(count + queries);
    printRecall('sample network', x.slice(0, count * width), x.slice(count * width), width);
  }
}

/** The median time of some calls, in ms. @param {() => unknown} f */
function median(f, times = 15) {
  for (let i = 0; i < 3; i++) f();
  const all = Array.from({ length: times }, () => {
    const start = performance.now();
    f();
    return performance.now() - start;
  });
  return /** @type {number} */ (all.sort((a, b) => a - b)[times >> 1]);
}

if (values.speed || both) {
  const n = 100_000;
  const limits = await makeLimits();
  console.log(
    `\n${n} vectors, one thread, ms: a search for 10, each of 32, reading the codes; vectors added in a second`,
  );
  for (const dimension of dimensions) {
    const x = new Float32Array(n * dimension);
    for (let i = 0; i < x.length; i++) x[i] = uniform() + uniform() + uniform() - 1.5;
    const asked = rows(kinds.normal(), 32, dimension);
    for (const bits of /** @type {const} */ ([1, 2, 4, 8])) {
      const start = performance.now();
      const index = sp.index(x, { shape: [n, dimension], metric: 'cosine', bits });
      const made = performance.now() - start;
      const one = median(() => index.search(asked.subarray(0, dimension), 10));
      const times = [];
      for (let i = 0; i < 4; i++) {
        const from = performance.now();
        await index.searchMany(asked, 10);
        times.push((performance.now() - from) / 32);
      }
      const many = Math.min(...times);
      const bytes = index.bytes;
      limits.prepare(Math.ceil((n * dimension * bits) / 32));
      const read = median(() => limits.read(Math.floor((n * dimension * bits) / 8 / 4)));
      const ms = [one, many, read].map((time) => time.toFixed(2).padStart(7)).join('');
      const ratio = `${(one / read).toFixed(2)} x reading, ${(one / many).toFixed(1)} x in batches`;
      console.log(
        `${dimension}  ${bits} bits ${ms}  ${ratio}, ${Math.round((n / made) * 1000)} a second, ${(bytes / 1e6).toFixed(1)} MB`,
      );
      index.dispose();
    }
  }
}
