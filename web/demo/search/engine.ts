import type { Scalepoint, VectorIndex, VectorMetric } from 'scalepoint';
import { nextTask } from '../../src/tooling.js';
import { makeVectors, type VectorSet } from './made.js';
import { type DataFacts, type Figures, figuresKey, type Picture, pictureKey, type SearchStep } from './messages.js';
import { readVectors } from './read.js';
import { defaults, dimsOf, factors, type Settings, widths } from './settings.js';

const madeCount = 100_000;
const madeDimension = 256;
/** Queries, which the index does not hold. */
const mostQueries = 64;
/** Results of a query. */
const k = 10;
/** True neighbors in the picture, by far more than are asked for, so that it shows a cloud. */
const shownVectors = 1000;
/** An index has room for a multiple of this count of vectors. */
const blockVectors = 32;
/** Rows that are multiplied with all queries at a time. */
const rowsAtOnce = 4096;
/** Exact searches that are timed. */
const timedExactly = 3;

/** Vectors and queries, with the exact products that searches are compared with. */
interface Held {
  readonly set: VectorSet;
  readonly queries: readonly Float32Array[];
  /** Dot products of each query with all vectors. */
  readonly products: readonly Float32Array[];
  /** Squared lengths. */
  readonly squares: Float64Array;
}

const dot = (a: Float32Array, from: number, b: Float32Array) => {
  let sum = 0;
  for (let i = 0; i < b.length; i++) sum += (a[from + i] as number) * (b[i] as number);
  return sum;
};

/** Computes for the page, one thing after the other, what it wants first. */
export class SearchEngine {
  readonly #core: Scalepoint;
  #report: (step: SearchStep) => void = () => {};
  #held: Held | undefined;
  #wanted: Settings = defaults;
  #running = false;
  /** The indexes of one metric, number of elements and kind of copies, by their bits. */
  readonly #indexes = new Map<number, VectorIndex>();
  #indexesKey = '';
  readonly #reported = new Set<string>();
  /** The best vectors of each query by exact scores. */
  readonly #truth = new Map<VectorMetric, readonly Uint32Array[]>();
  #rowBytes = 0;

  constructor(core: Scalepoint) {
    this.#core = core;
  }

  /** Measures settings first. Settles once all are measured, or at once while another call measures. */
  want(settings: Settings, report: (step: SearchStep) => void): Promise<void> {
    this.#wanted = settings;
    return this.#run(report);
  }

  /** Reads or makes vectors, and measures them. An engine opens vectors once. */
  async open(file: File | undefined, settings: Settings, report: (step: SearchStep) => void): Promise<void> {
    const { version, simd, buildId } = this.#core;
    report({ kind: 'core', facts: { version, simd, buildId } });
    this.#wanted = settings;
    this.#report = report;
    const words = file === undefined ? 'Making vectors' : `Reading ${file.name}`;
    const done = (share: number) => report({ kind: 'doing', words, share });
    done(0);
    await nextTask();
    const made = file === undefined;
    const { left, ...all } = made
      ? { ...makeVectors(madeCount + mostQueries, madeDimension, done), left: 0 }
      : await readVectors(file, done);
    this.#held = await this.#hold(all);
    report({ kind: 'data', facts: { ...this.#factsOf(this.#held), made, left } });
    await this.#run(report);
  }

  /** Takes the last vectors as queries, and compares them with all others. */
  async #hold({ values, count: all, dimension, name }: VectorSet): Promise<Held> {
    const asked = Math.min(mostQueries, Math.floor(all / 5));
    const count = all - asked;
    const queries = Array.from({ length: asked }, (_, i) =>
      values.slice((count + i) * dimension, (count + i + 1) * dimension),
    );
    const bad = values.findIndex((x) => !Number.isFinite(x));
    if (bad >= 0)
      throw new Error(
        `Element ${(bad % dimension) + 1} of vector ${Math.floor(bad / dimension) + 1} is ${values[bad]}.`,
      );
    const batch = new Float32Array(asked * dimension);
    for (const [i, query] of queries.entries()) batch.set(query, i * dimension);
    const products = queries.map(() => new Float32Array(count));
    for (let row = 0; row < count; row += rowsAtOnce) {
      const rows = Math.min(rowsAtOnce, count - row);
      const layer = this.#core.matmulFloat(values.subarray(row * dimension, (row + rows) * dimension), {
        shape: [rows, dimension],
      });
      const found = layer.forward(batch, { batch: asked });
      layer.dispose();
      for (const [i, list] of products.entries()) list.set(found.subarray(i * rows, (i + 1) * rows), row);
      this.#report({ kind: 'doing', words: 'Searching exactly, to compare', share: row / count });
      await nextTask();
    }
    const squares = Float64Array.from({ length: count }, (_, i) => {
      const from = i * dimension;
      return dot(values, from, values.subarray(from, from + dimension));
    });
    const set = { name, values: values.subarray(0, count * dimension), count, dimension };
    return { set, queries, products, squares };
  }

  #factsOf({ set, queries }: Held): Omit<DataFacts, 'made' | 'left'> {
    const { name, count, dimension, values } = set;
    const times = queries.slice(0, timedExactly).map((query) => {
      const start = performance.now();
      const scores = new Float64Array(count);
      for (let i = 0; i < count; i++) scores[i] = dot(values, i * dimension, query);
      bestOf(scores, k);
      return performance.now() - start;
    });
    return { name, count, dimension, queries: queries.length, exactMilliseconds: Math.min(...times) };
  }

  /** The exact score, for which higher is better. */
  #values({ set, queries, products, squares }: Held, metric: Settings['metric'], query: number): Float64Array {
    const q = queries[query] as Float32Array;
    const length = dot(q, 0, q);
    const list = products[query] as Float32Array;
    return Float64Array.from({ length: set.count }, (_, i) => {
      const product = list[i] as number;
      if (metric === 'dot') return product;
      const square = squares[i] as number;
      if (metric === 'euclidean') return -Math.sqrt(Math.max(0, length + square - 2 * product));
      return length * square > 0 ? product / Math.sqrt(length * square) : 0;
    });
  }

  #truthOf(held: Held, metric: Settings['metric']): readonly Uint32Array[] {
    const known = this.#truth.get(metric);
    if (known !== undefined) return known;
    const made = held.queries.map((_, i) => bestOf(this.#values(held, metric, i), k));
    this.#truth.set(metric, made);
    return made;
  }

  /** Does the next thing, until nothing is left to do. */
  async #run(report: (step: SearchStep) => void): Promise<void> {
    if (this.#running) return;
    this.#running = true;
    this.#report = report;
    try {
      while (this.#held !== undefined && this.#step(this.#held)) await nextTask();
    } finally {
      this.#running = false;
    }
  }

  /** Computes the most wanted result that was not sent yet. Returns false if all were sent. */
  #step(held: Held): boolean {
    const wanted = { ...this.#wanted, query: this.#wanted.query % held.queries.length };
    const key = `${wanted.metric} ${wanted.part} ${wanted.rows}`;
    if (key !== this.#indexesKey) {
      for (const index of this.#indexes.values()) index.dispose();
      this.#indexes.clear();
      this.#indexesKey = key;
      this.#rowBytes = 0;
    }
    const isReported = (key: string) => this.#reported.size === this.#reported.add(key).size;
    const figuresOf = (settings: Settings) => {
      const key = figuresKey(settings);
      if (isReported(key)) return false;
      this.#reportWork(settings);
      this.#report({ kind: 'figures', key, figures: this.#figuresOf(held, this.#indexOf(held, settings), settings) });
      return true;
    };
    const pictureOf = (settings: Settings) => {
      const key = pictureKey(settings);
      if (isReported(key)) return false;
      this.#report({ kind: 'picture', key, picture: this.#pictureOf(held, this.#indexOf(held, settings), settings) });
      return true;
    };
    if (figuresOf(wanted) || pictureOf(wanted)) return true;
    // Measure ahead: the factors first, which need no other index.
    for (const bits of [wanted.bits, ...widths.filter((one) => one !== wanted.bits)]) {
      for (const factor of factors) if (figuresOf({ ...wanted, bits, factor })) return true;
      if (pictureOf({ ...wanted, bits })) return true;
    }
    return false;
  }

  /** Says what the page waits for, if it waits for these settings. */
  #reportWork(settings: Settings): void {
    const { bits } = settings;
    if (figuresKey(settings) !== figuresKey(this.#wanted)) return;
    const words = this.#indexes.has(bits) ? 'Searching' : `Making codes of ${bits} ${bits === 1 ? 'bit' : 'bits'}`;
    this.#report({ kind: 'doing', words, share: 1 });
  }

  /** The index of settings. It is made in one call, so that it has no room for more vectors. */
  #indexOf({ set }: Held, settings: Settings): VectorIndex {
    const { bits, metric, rows } = settings;
    const known = this.#indexes.get(bits);
    if (known !== undefined) return known;
    const { values, count, dimension } = set;
    const dims = dimsOf(settings, dimension);
    const options = { bits, metric, dims, rerank: { source: rows } } as const;
    const index = this.#core.index(values, { shape: [count, dimension], ...options });
    this.#indexes.set(bits, index);
    this.#rowBytes ||= this.#measureRow(values.subarray(0, dimension), options);
    return index;
  }

  /** Bytes of a row for a second score: the difference that they make in a small index. */
  #measureRow(vector: Float32Array, options: object): number {
    const shape = [1, vector.length];
    const withRows = this.#core.index(vector, { ...options, shape });
    const without = this.#core.index(vector, { ...options, shape, rerank: undefined });
    const bytes = (withRows.bytes - without.bytes) / blockVectors;
    withRows.dispose();
    without.dispose();
    return bytes;
  }

  #figuresOf(held: Held, index: VectorIndex, { factor, metric }: Settings): Figures {
    const truth = this.#truthOf(held, metric);
    const rerank = factor === 0 ? false : factor;
    // The first search may wait for memory.
    index.search(held.queries[0] as Float32Array, k, { rerank });
    const start = performance.now();
    const found = held.queries.map((query) => index.search(query, k, { rerank }).indices);
    const milliseconds = (performance.now() - start) / held.queries.length;
    let hits = 0;
    for (const [i, indices] of found.entries()) {
      const best = new Set(truth[i]);
      for (const one of indices) if (best.has(one)) hits++;
    }
    const wanted = truth.reduce((sum, { length }) => sum + length, 0);
    const rows = Math.ceil(held.set.count / blockVectors) * blockVectors;
    const bytes = index.bytes - (factor === 0 ? rows * this.#rowBytes : 0);
    return { recall: hits / wanted, milliseconds, bytes };
  }

  #pictureOf(held: Held, index: VectorIndex, { metric, query }: Settings): Picture {
    const values = this.#values(held, metric, query);
    const q = held.queries[query] as Float32Array;
    const shown = bestOf(values, shownVectors);
    const most = k * (factors.at(-1) as number);
    const best = index.search(q, most, { rerank: false }).scores;
    const filter = new Uint8Array(Math.ceil(values.length / 8));
    for (const i of shown) filter[i >>> 3] = (filter[i >>> 3] as number) | (1 << (i & 7));
    const found = index.search(q, shown.length, { filter, rerank: false });
    const estimate = new Map([...found.indices].map((i, at) => [i, found.scores[at] as number]));
    const sign = metric === 'euclidean' ? -1 : 1;
    return {
      exact: Float32Array.from(shown, (i) => sign * (values[i] as number)),
      estimates: Float32Array.from(shown, (i) => estimate.get(i) ?? Number.NaN),
      neighbors: Math.min(k, shown.length),
      best,
    };
  }
}

/** The indices of the highest values, best first. */
function bestOf(values: Float64Array, count: number): Uint32Array {
  // Most values are below a bound that a sample gives, so that few are sorted.
  const sample = Float64Array.from({ length: Math.min(values.length, 2000) }, (_, i) => {
    return values[Math.floor((i * values.length) / 2000) % values.length] as number;
  }).sort();
  const share = Math.min(1, (4 * count) / values.length + 0.005);
  const bound = sample[Math.floor((1 - share) * (sample.length - 1))] as number;
  let list: number[] = [];
  for (let i = 0; i < values.length; i++) if ((values[i] as number) >= bound) list.push(i);
  if (list.length < count) list = Array.from(values.keys());
  list.sort((a, b) => (values[b] as number) - (values[a] as number) || a - b);
  return Uint32Array.from(list.slice(0, count));
}
