// Vector search beside other libraries, in one process and in turns: bytes, time to build, time of a query, recall at 10.
//
//   npm ci --prefix tests/vectors
//   node tests/bench/vectors.mjs [--count 20000] [--dimension 384] [--per-cluster 20] [--rounds 5] [--json]
//     [--only 'usearch|8 bits'] [--without 'hnswlib|edgevec']
//
// The vectors are those of 1,000 random clusters, or with `--per-cluster` of clusters of one size (vector-kinds.mjs), divided by their
// length. 100 more of the same kind are the queries. Scores are cosines. Each contestant builds its index once, and searches with several
// settings. All of them search in turns, in rounds, and the least time of each query counts. Times are those of the processor, without
// waits for other work on the machine. Graphs of hnswlib-wasm and edgevec take minutes to build.

import { mkdtempSync, readFileSync, rmSync, statSync } from 'node:fs';
import { createRequire } from 'node:module';
import { cpus, tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { parseArgs } from 'node:util';
import { load } from '../../dist/index.js';
import { bestOf, clustersOf, kinds, meanOf, rows } from './vector-kinds.mjs';

const { values } = parseArgs({
  options: {
    count: { type: 'string', default: '20000' },
    dimension: { type: 'string', default: '384' },
    'per-cluster': { type: 'string' },
    only: { type: 'string', default: '' },
    without: { type: 'string', default: '(?!)' },
    rounds: { type: 'string', default: '5' },
    json: { type: 'boolean', default: false },
  },
});
const count = Number(values.count);
const dimension = Number(values.dimension);
const asked = 100;
const k = 10;
const rounds = Number(values.rounds);
const only = new RegExp(values.only);
const without = new RegExp(values.without);
const packages = fileURLToPath(new URL('../vectors/node_modules/', import.meta.url));

const size = values['per-cluster'];
const make = (size === undefined ? kinds['random clusters'] : clustersOf(Number(size)))(dimension, count);
/** Vectors of length 1, so that all metrics have one order. @param {number} n */
function made(n) {
  const x = rows(make, n, dimension);
  for (let start = 0; start < x.length; start += dimension) {
    const row = x.subarray(start, start + dimension);
    const length = Math.hypot(...row);
    for (let i = 0; i < dimension; i++) row[i] = /** @type {number} */ (row[i]) / length;
  }
  return x;
}
const x = made(count);
const all = made(asked);
const queries = Array.from({ length: asked }, (_, i) => all.slice(i * dimension, (i + 1) * dimension));
const rowOf = (/** @type {number} */ i) => x.subarray(i * dimension, (i + 1) * dimension);

/** @typedef {(query: Float32Array) => ArrayLike<number>} Search */
/** An index, and searches of it by what is added to its name. @typedef {{ searches: Record<string, Search>, bytes: number | undefined }} Built */
/** @type {Record<string, () => Built>} */
const contestants = {};

const sp = await load();
for (const [bits, source, factors] of /** @type {const} */ ([
  [1, 'int8', [4, 8, 16]],
  [1, 'float16', [8, 16]],
  [2, undefined, []],
  [2, 'float16', [4]],
  [4, undefined, []],
  [4, 'float16', [2]],
  [8, undefined, []],
])) {
  const name = `Scalepoint, ${bits} ${bits === 1 ? 'bit' : 'bits'}`;
  contestants[source === undefined ? name : `${name} and ${source}`] = () => {
    const rerank = source && { source };
    const index = sp.index(x, { shape: [count, dimension], metric: 'cosine', bits, rerank });
    const searches = factors.map((factor) => {
      const search = (/** @type {Float32Array} */ query) => index.search(query, k, { rerank: factor }).indices;
      return [`, best ${k * factor} again`, search];
    });
    if (source === undefined) searches.push(['', (query) => index.search(query, k).indices]);
    return { searches: Object.fromEntries(searches), bytes: index.bytes };
  };
}

contestants['plain JavaScript, float32'] = () => {
  const scores = new Float64Array(count);
  return {
    bytes: x.byteLength,
    searches: {
      '': (query) => {
        for (let row = 0; row < count; row++) {
          let sum = 0;
          const from = row * dimension;
          for (let i = 0; i < dimension; i++)
            sum += /** @type {number} */ (x[from + i]) * /** @type {number} */ (query[i]);
          scores[row] = sum;
        }
        return bestOf(scores, k);
      },
    },
  };
};
const exact = contestants['plain JavaScript, float32'];

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
    searches: {
      '': (query) => {
        encode(query, code);
        for (let row = 0; row < count; row++) {
          let sum = 0;
          const from = row * dimension;
          for (let i = 0; i < dimension; i++) {
            sum = (sum + /** @type {number} */ (codes[from + i]) * /** @type {number} */ (code[i])) | 0;
          }
          scores[row] = sum * /** @type {number} */ (scales[row]);
        }
        return bestOf(scores, k);
      },
    },
  };
};

/** Candidates that a search of a graph keeps. */
const expansions = [64, 256];

const folder = mkdtempSync(join(tmpdir(), 'scalepoint-vectors-'));
const { default: usearch } = await import(
  pathToFileURL(createRequire(join(packages, 'index.js')).resolve('usearch')).href
);
const keys = BigUint64Array.from({ length: count }, (_, i) => BigInt(i));
for (const type of /** @type {const} */ (['f32', 'i8'])) {
  contestants[`usearch (native), HNSW ${type}`] = () => {
    const config = { metric: 'cos', dimensions: dimension, quantization: type };
    const index = new usearch.Index({ ...config, expansion_search: expansions[0] });
    index.add(keys, x, 1);
    const file = join(folder, `${type}.usearch`);
    index.save(file);
    // An index has one expansion, so the others are loaded.
    const searches = expansions.map((expansion, i) => {
      let own = index;
      if (i > 0) {
        own = new usearch.Index({ ...config, expansion_search: expansion });
        own.load(file);
      }
      const search = (/** @type {Float32Array} */ query) => Array.from(own.search(query, k, 1).keys, Number);
      return [`, expansion ${expansion}`, search];
    });
    return { bytes: statSync(file).size, searches: Object.fromEntries(searches) };
  };
}
contestants['usearch (native), exact float32'] = () => ({
  bytes: x.byteLength,
  searches: {
    '': (query) =>
      Array.from(usearch.exactSearch(x, query, dimension, k, usearch.MetricKind.Cos, 1, keys).keys ?? [], Number),
  },
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
contestants['hnswlib-wasm, HNSW float32'] = () => {
  const index = new hnswlib.HierarchicalNSW('cosine', dimension, '');
  index.initIndex(count, 16, 200, 100);
  for (let i = 0; i < count; i++) index.addPoint(rowOf(i), i, false);
  const searches = expansions.map((ef) => {
    const search = (/** @type {Float32Array} */ query) => {
      index.setEfSearch(ef);
      return index.searchKnn(query, k, undefined).neighbors;
    };
    return [`, ef ${ef}`, search];
  });
  return { bytes: undefined, searches: Object.fromEntries(searches) };
};

const edgevec = await import(pathToFileURL(join(packages, 'edgevec/edgevec.js')).href);
edgevec.initSync({ module: readFileSync(join(packages, 'edgevec/edgevec_bg.wasm')) });
contestants.edgevec = () => {
  const config = new edgevec.EdgeVecConfig(dimension);
  config.setMetricType('cosine');
  const index = new edgevec.EdgeVec(config);
  index.enableBQ();
  // Its ids are 1, 2, ….
  index.insertBatchFlat(x, count);
  const of = (/** @type {{ id: number }[]} */ found) => found.map(({ id }) => id - 1);
  return {
    bytes: Number(index.memoryUsage()),
    searches: {
      ', HNSW float32': (query) => of(index.search(query, k)),
      [`, 1 bit, best ${k * 8} again`]: (query) => of(index.searchBQRescored(query, k, 8)),
    },
  };
};

const truth = queries.map((query) => new Set(Array.from(exact().searches['']?.(query) ?? [])));

/** Time of the processor that this process has taken, in ms. */
function processorTime() {
  const { user, system } = process.cpuUsage();
  return (user + system) / 1000;
}

/** @type {{ name: string, search: Search, bytes: number | undefined, build: number, times: number[], hits: number[] }[]} */
const runs = [];
const asks = (/** @type {string} */ name) => only.test(name) && !without.test(name);
for (const [name, build] of Object.entries(contestants).filter(([name]) => asks(name))) {
  const start = processorTime();
  try {
    const { searches, bytes } = build();
    const built = processorTime() - start;
    for (const [setting, search] of Object.entries(searches)) {
      runs.push({ name: name + setting, search, bytes, build: built, times: [], hits: [] });
    }
  } catch (error) {
    console.error(`${name}: ${error instanceof Error ? error.message : error}`);
  }
}
for (let round = 0; round < rounds; round++) {
  for (const run of runs) {
    for (const [i, query] of queries.entries()) {
      const start = processorTime();
      const found = run.search(query);
      run.times[i] = Math.min(run.times[i] ?? Infinity, processorTime() - start);
      run.hits[i] = Array.from(found).filter((index) => truth[i]?.has(index)).length;
    }
  }
}
rmSync(folder, { recursive: true });

const found = runs.map(({ name, bytes, build, times, hits }) => {
  const { mean: recall, error } = meanOf(hits.map((n) => n / k));
  return { name, bytes, build, milliseconds: meanOf(times).mean, recall, error };
});
if (values.json) {
  console.log(JSON.stringify(found, null, 2));
} else {
  const kind = size === undefined ? 'in 1,000 random clusters' : `in clusters of ${size}`;
  console.log(`${count} vectors of ${dimension} ${kind}, ${asked} queries, cosine, ${k} results; ${cpus()[0]?.model}`);
  console.log(`standard error of recall: at most ${Math.max(...found.map(({ error }) => error)).toFixed(3)}\n`);
  console.log('| index | MB | built in s | ms a query | recall at 10 |\n| --- | --- | --- | --- | --- |');
  for (const { name, bytes, build, milliseconds, recall } of found) {
    const mb = bytes === undefined ? '–' : (bytes / 1e6).toFixed(1);
    const built = build < 1 ? 0 : Number((build / 1000).toPrecision(2));
    console.log(`| ${name} | ${mb} | ${built} | ${milliseconds.toPrecision(2)} | ${recall.toFixed(3)} |`);
  }
}
process.exit();
