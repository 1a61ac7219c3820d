// Vector search beside other libraries, in one process and in turns: bytes, time to build, time of a query, recall at 10.
//
//   npm ci --prefix tests/vectors
//   node tests/bench/vectors.mjs [--count 20000] [--dimension 384] [--json]
//
// The vectors lie in 1,000 clusters, as far from each other as from their center. 100 more of the same kind are the queries. Scores are
// cosines. Each contestant builds its index once. Then all contestants search in turns, five rounds, and the
// least time of each query counts, because other work on the machine can only make it longer.

import { mkdtempSync, readFileSync, rmSync, statSync } from 'node:fs';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { parseArgs } from 'node:util';
import { load } from '../../dist/index.js';

const { values } = parseArgs({
  options: {
    count: { type: 'string', default: '20000' },
    dimension: { type: 'string', default: '384' },
    json: { type: 'boolean', default: false },
  },
});
const count = Number(values.count);
const dimension = Number(values.dimension);
const asked = 100;
const k = 10;
const rounds = 5;
const packages = fileURLToPath(new URL('../vectors/node_modules/', import.meta.url));

let state = 1;
/** A number from 0 to 1, by xorshift. */
function uniform() {
  state ^= state << 13;
  state ^= state >>> 17;
  state ^= state << 5;
  return (state >>> 0) / 2 ** 32;
}
const normal = () => Math.sqrt(-2 * Math.log(1 - uniform())) * Math.cos(2 * Math.PI * uniform());
const centers = Float32Array.from({ length: 1000 * dimension }, normal);
/** Vectors of length 1, so that all metrics have one order. @param {number} n */
function made(n) {
  const x = new Float32Array(n * dimension);
  for (let row = 0; row < n; row++) {
    const center = Math.floor(uniform() * 1000) * dimension;
    let squares = 0;
    for (let i = 0; i < dimension; i++) {
      const value = /** @type {number} */ (centers[center + i]) + normal();
      x[row * dimension + i] = value;
      squares += value * value;
    }
    const length = Math.sqrt(squares);
    for (let i = 0; i < dimension; i++)
      x[row * dimension + i] = /** @type {number} */ (x[row * dimension + i]) / length;
  }
  return x;
}
const x = made(count);
const all = made(asked);
const queries = Array.from({ length: asked }, (_, i) => all.slice(i * dimension, (i + 1) * dimension));
const rowOf = (/** @type {number} */ i) => x.subarray(i * dimension, (i + 1) * dimension);

/** Keeps the best k of scores. @param {ArrayLike<number>} scores */
function best(scores) {
  /** @type {number[]} */
  const list = [];
  for (let i = 0; i < scores.length; i++) {
    const score = /** @type {number} */ (scores[i]);
    if (list.length === k && score <= /** @type {number} */ (scores[/** @type {number} */ (list[k - 1])])) continue;
    let at = list.length;
    while (at > 0 && /** @type {number} */ (scores[/** @type {number} */ (list[at - 1])]) < score) at--;
    list.splice(at, 0, i);
    if (list.length > k) list.pop();
  }
  return list;
}

/** @typedef {{ search: (query: Float32Array, i: number) => ArrayLike<number>, bytes: number | undefined }} Contestant */
/** @type {Record<string, () => Contestant | Promise<Contestant>>} */
const contestants = {};

const sp = await load({ index: true });
for (const [bits, factor] of /** @type {const} */ ([
  [1, 4],
  [1, 8],
  [1, 16],
  [2, 0],
  [2, 4],
  [4, 0],
  [4, 2],
  [8, 0],
])) {
  contestants[
    `Scalepoint, ${bits} ${bits === 1 ? 'bit' : 'bits'}${factor === 0 ? '' : `, best ${k * factor} by int8`}`
  ] = () => {
    const rerank = factor === 0 ? undefined : /** @type {const} */ ({ source: 'int8', factor });
    const index = sp.index(x, { shape: [count, dimension], metric: 'cosine', bits, rerank });
    return { search: (query) => index.search(query, k).indices, bytes: index.bytes };
  };
}

contestants['plain JavaScript, float32'] = () => {
  const scores = new Float64Array(count);
  return {
    bytes: x.byteLength,
    search(query) {
      for (let row = 0; row < count; row++) {
        let sum = 0;
        const from = row * dimension;
        for (let i = 0; i < dimension; i++)
          sum += /** @type {number} */ (x[from + i]) * /** @type {number} */ (query[i]);
        scores[row] = sum;
      }
      return best(scores);
    },
  };
};

contestants['plain JavaScript, int8'] = () => {
  const codes = new Int8Array(count * dimension);
  const scales = new Float64Array(count);
  const encode = (/** @type {Float32Array} */ row, /** @type {Int8Array} */ to) => {
    const scale = row.reduce((most, value) => Math.max(most, Math.abs(value)), 0) / 127;
    for (let i = 0; i < dimension; i++) to[i] = Math.round(/** @type {number} */ (row[i]) / scale);
    return scale;
  };
  for (let i = 0; i < count; i++) scales[i] = encode(rowOf(i), codes.subarray(i * dimension, (i + 1) * dimension));
  const scores = new Float64Array(count);
  const code = new Int8Array(dimension);
  return {
    bytes: codes.byteLength + scales.byteLength,
    search(query) {
      encode(query, code);
      for (let row = 0; row < count; row++) {
        let sum = 0;
        const from = row * dimension;
        for (let i = 0; i < dimension; i++) {
          sum = (sum + /** @type {number} */ (codes[from + i]) * /** @type {number} */ (code[i])) | 0;
        }
        scores[row] = sum * /** @type {number} */ (scales[row]);
      }
      return best(scores);
    },
  };
};

const folder = mkdtempSync(join(tmpdir(), 'scalepoint-vectors-'));
const { default: usearch } = await import(
  pathToFileURL(createRequire(join(packages, 'index.js')).resolve('usearch')).href
);
for (const [type, expansion] of /** @type {const} */ ([
  ['f32', 64],
  ['i8', 64],
  ['i8', 256],
])) {
  contestants[`usearch (native), HNSW ${type}, expansion ${expansion}`] = () => {
    const index = new usearch.Index({
      metric: 'cos',
      dimensions: dimension,
      quantization: type,
      expansion_search: expansion,
    });
    index.add(
      BigUint64Array.from({ length: count }, (_, i) => BigInt(i)),
      x,
      1,
    );
    const file = join(folder, `${type}.usearch`);
    index.save(file);
    return {
      bytes: statSync(file).size,
      search: (query) => Array.from(index.search(query, k, 1).keys, Number),
    };
  };
}
const keys = BigUint64Array.from({ length: count }, (_, i) => BigInt(i));
contestants['usearch (native), exact float32'] = () => ({
  bytes: x.byteLength,
  search: (query) =>
    Array.from(usearch.exactSearch(x, query, dimension, k, usearch.MetricKind.Cos, 1, keys).keys ?? [], Number),
});

// It is compiled for pages alone, so it gets names that it looks for.
const stands = {
  window: globalThis,
  document: { currentScript: null, baseURI: 'file:///' },
  indexedDB: { open: () => ({}) },
};
Object.assign(globalThis, stands);
const log = console.log;
console.log = () => {};
const { loadHnswlib } = await import(pathToFileURL(join(packages, 'hnswlib-wasm/dist/hnswlib.js')).href);
const hnswlib = await loadHnswlib();
console.log = log;
for (const name of Object.keys(stands)) Reflect.deleteProperty(globalThis, name);
for (const ef of [64, 256]) {
  contestants[`hnswlib-wasm, HNSW float32, ef ${ef}`] = () => {
    const index = new hnswlib.HierarchicalNSW('cosine', dimension, '');
    index.initIndex(count, 16, 200, 100);
    for (let i = 0; i < count; i++) index.addPoint(rowOf(i), i, false);
    index.setEfSearch(ef);
    return { bytes: undefined, search: (query) => index.searchKnn(query, k, undefined).neighbors };
  };
}

const edgevec = await import(pathToFileURL(join(packages, 'edgevec/edgevec.js')).href);
edgevec.initSync({ module: readFileSync(join(packages, 'edgevec/edgevec_bg.wasm')) });
contestants['edgevec, HNSW float32'] = () => {
  const config = new edgevec.EdgeVecConfig(dimension);
  config.setMetricType('cosine');
  const index = new edgevec.EdgeVec(config);
  // Its ids are 1, 2, ….
  index.insertBatchFlat(x, count);
  const of = (/** @type {{ id: number }[]} */ found) => found.map(({ id }) => id - 1);
  return { bytes: Number(index.memoryUsage()), search: (query) => of(index.search(query, k)) };
};

const truth = queries.map(
  (query) =>
    new Set(
      best(
        Float64Array.from({ length: count }, (_, row) => {
          let sum = 0;
          for (let i = 0; i < dimension; i++)
            sum += /** @type {number} */ (x[row * dimension + i]) * /** @type {number} */ (query[i]);
          return sum;
        }),
      ),
    ),
);

/** @type {{ name: string, contestant: Contestant, build: number, times: number[], recall: number }[]} */
const rows = [];
for (const [name, make] of Object.entries(contestants)) {
  const start = performance.now();
  try {
    const contestant = await make();
    rows.push({ name, contestant, build: performance.now() - start, times: [], recall: 0 });
  } catch (error) {
    console.error(`${name}: ${error instanceof Error ? error.message : error}`);
  }
}
for (let round = 0; round < rounds; round++) {
  for (const row of rows) {
    let hits = 0;
    for (const [i, query] of queries.entries()) {
      const start = performance.now();
      const found = row.contestant.search(query, i);
      row.times[i] = Math.min(row.times[i] ?? Infinity, performance.now() - start);
      for (const index of Array.from(found)) if (truth[i]?.has(index)) hits++;
    }
    row.recall = hits / (asked * k);
  }
}
rmSync(folder, { recursive: true });

/** The mean time of a query. @param {readonly number[]} times */
const mean = (times) => times.reduce((sum, time) => sum + time, 0) / times.length;

if (values.json) {
  const plain = rows.map(({ name, contestant, build, times, recall }) => ({
    name,
    bytes: contestant.bytes,
    build,
    milliseconds: mean(times),
    recall,
  }));
  console.log(JSON.stringify(plain, null, 2));
} else {
  console.log(`${count} vectors of ${dimension}, ${asked} queries, cosine, ${k} results\n`);
  console.log('| index | MB | built in s | ms a query | recall at 10 |\n| --- | --- | --- | --- | --- |');
  for (const { name, contestant, build, times, recall } of rows) {
    const size = contestant.bytes === undefined ? '–' : (contestant.bytes / 1e6).toFixed(1);
    console.log(
      `| ${name} | ${size} | ${(build / 1000).toFixed(2)} | ${mean(times).toPrecision(2)} | ${recall.toFixed(3)} |`,
    );
  }
}
process.exit();
