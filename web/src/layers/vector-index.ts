/// <reference lib="esnext.disposable" preserve="true" />
// Similarity search: vectors in int8, and the dot products of layers over them.

import { checkKeys, choice, specOfDType } from '../arrays/options.js';
import { type FloatInput, type HalfFormat, type Source, sourceOf } from '../arrays/source.js';
import { checkShape, dtypeInfo, perTensor } from '../arrays/tensor.js';
import { ActivationType, LinearJob, QuantizationSpec, Status } from '../core/door.js';
import { ScalepointError } from '../core/errors.js';
import { type Core, checkStatus, tileSize } from '../core/memory.js';
import { show } from '../core/show.js';
import { addressOf, floatLayer, LayerMemory } from './layer.js';

/** Options of `index`. */
export interface IndexOptions {
  /** [count, dimension], for vectors in one array; a list of vectors says it itself. */
  shape?: readonly number[];
  /** @defaultValue 'int8' */
  dtype?: 'int8';
  /** What a score is. @defaultValue 'dot' */
  metric?: 'dot' | 'cosine';
  /**
   * 'int8': queries are quantized, too, which takes half the time. 'float32': they are used as they are, which finds a little more.
   * @defaultValue 'int8'
   */
  activations?: 'int8' | 'float32';
  /** The vectors are a Uint16Array of the bits of such floats. */
  from?: HalfFormat;
}

/** What a search found, best first; of equal scores the lower index comes first. */
export interface SearchResult {
  readonly indices: Uint32Array<ArrayBuffer>;
  readonly scores: Float32Array<ArrayBuffer>;
}

/** Options of `VectorIndex.recall`. */
export interface RecallOptions {
  /** How many results are compared. @defaultValue 10 */
  k?: number;
  /** The vectors are a Uint16Array of the bits of such floats. */
  from?: HalfFormat;
}

/** Vectors in one array, or one by one. */
export type VectorInput = FloatInput | readonly (Float32Array | Float64Array | readonly number[])[];

const indexKeys = new Set(['shape', 'dtype', 'metric', 'activations', 'from']);
const recallKeys = new Set(['k', 'from']);
/** Scores that are made at a time: half a mebibyte of doubles. */
const scoresAtOnce = 1 << 16;
/** Float vectors that a recall compares at a time. */
const vectorsAtOnce = 1 << 10;
/** How vectors and queries become codes. */
const int8 = specOfDType(dtypeInfo('int8'));

/** The best k of what it is offered: a heap with the worst on top. */
class Best {
  readonly #scores: number[] = [];
  readonly #indices: number[] = [];

  constructor(private readonly k: number) {}

  /** What a score has to be above; candidates come in the order of their indices, so that of equal ones the first stays. */
  get threshold(): number {
    return this.#scores.length < this.k ? -Infinity : (this.#scores[0] as number);
  }

  offer(score: number, index: number): void {
    const scores = this.#scores;
    const indices = this.#indices;
    if (scores.length < this.k) {
      let at = scores.length;
      while (at > 0) {
        const parent = (at - 1) >> 1;
        if (!worse(score, index, scores[parent] as number, indices[parent] as number)) break;
        scores[at] = scores[parent] as number;
        indices[at] = indices[parent] as number;
        at = parent;
      }
      scores[at] = score;
      indices[at] = index;
      return;
    }
    if (!(score > (scores[0] as number))) return;
    let at = 0;
    for (;;) {
      let child = 2 * at + 1;
      if (child >= scores.length) break;
      const right = child + 1;
      if (
        right < scores.length &&
        worse(scores[right] as number, indices[right] as number, scores[child] as number, indices[child] as number)
      ) {
        child = right;
      }
      if (!worse(scores[child] as number, indices[child] as number, score, index)) break;
      scores[at] = scores[child] as number;
      indices[at] = indices[child] as number;
      at = child;
    }
    scores[at] = score;
    indices[at] = index;
  }

  /** Best first. */
  sorted(): { score: number; index: number }[] {
    return this.#scores
      .map((score, i) => ({ score, index: this.#indices[i] as number }))
      .sort((a, b) => b.score - a.score || a.index - b.index);
  }
}

function worse(score: number, index: number, otherScore: number, otherIndex: number): boolean {
  return score < otherScore || (score === otherScore && index > otherIndex);
}

/** How many results are wanted. @throws TypeError or RangeError naming `k` */
function checkCount(k: unknown): number {
  if (typeof k !== 'number') throw new TypeError(`k: expected a whole number, got ${show(k)}`);
  if (!Number.isSafeInteger(k) || k < 1) throw new RangeError(`k: expected a whole number of at least 1, got ${k}`);
  return k;
}

/** Vectors as one source, with their count and dimension. @throws TypeError or RangeError naming `what` or the vector */
function vectorsOf(
  core: Core,
  vectors: VectorInput,
  shape: readonly number[] | undefined,
  from: HalfFormat | undefined,
  what: string,
): { source: Source; count: number; dimension: number } {
  let flat: FloatInput = vectors as FloatInput;
  let dimensions = shape;
  if (Array.isArray(vectors) && typeof vectors[0] === 'object') {
    const list = vectors as readonly ArrayLike<number>[];
    const dimension = list[0]?.length ?? 0;
    const all = new Float32Array(list.length * dimension);
    for (const [i, vector] of list.entries()) {
      if (typeof vector !== 'object' || vector === null || vector.length !== dimension) {
        throw new RangeError(`${what}[${i}]: expected ${dimension} elements as in ${what}[0], got ${show(vector)}`);
      }
      all.set(vector, i * dimension);
    }
    flat = all;
    dimensions = shape ?? [list.length, dimension];
  }
  const source = sourceOf(core, flat, from, what);
  if (dimensions === undefined) throw new TypeError('shape: expected [count, dimension] for vectors in one array');
  const [count = 0, dimension = 0] = checkShape(dimensions, source.length);
  if (dimensions.length !== 2 || count === 0 || dimension === 0) {
    throw new RangeError(`shape: expected [count, dimension], each at least 1, got ${show(dimensions)}`);
  }
  return { source, count, dimension };
}

function squares(values: ArrayLike<number>, start: number, count: number): number {
  let sum = 0;
  for (let i = start; i < start + count; i++) sum += (values[i] as number) ** 2;
  return sum;
}

/**
 * Vectors as int8 codes in wasm memory, a scale each, to be searched. Scores are exact over the codes: integer dot products, times
 * the scales or over the codes' lengths, in double. Made by `sp.index`.
 */
export class VectorIndex {
  /** Number of vectors. */
  readonly count: number;
  /** Length of a vector. */
  readonly dimension: number;
  readonly metric: 'dot' | 'cosine';
  /** Bytes that the index takes in wasm memory. */
  readonly bytes: number;
  readonly #core: Core;
  readonly #memory: LayerMemory;
  readonly #int8: boolean;
  /** What the dot product with the codes of a vector counts: its scale, or one over their length. */
  readonly #factors: Float64Array;

  /** @internal */
  constructor(core: Core, vectors: VectorInput, options: IndexOptions) {
    checkKeys(options, indexKeys);
    choice(options, 'dtype', ['int8']);
    this.metric = choice(options, 'metric', ['dot', 'cosine']) === 0 ? 'dot' : 'cosine';
    this.#int8 = choice(options, 'activations', ['int8', 'float32']) === 0;
    const { source, count, dimension } = vectorsOf(core, vectors, options.shape, options.from, 'vectors');
    this.count = count;
    this.dimension = dimension;
    this.#core = core;
    this.#factors = new Float64Array(count);
    const activations = this.#int8 ? ActivationType.int8Symmetric : ActivationType.float32;
    const form = { rows: count, columns: dimension, groupSize: dimension, bits: 8, zeroPoints: false, activations };
    this.#memory = new LayerMemory(core, form, 0);
    this.bytes = this.#memory.bytes;
    try {
      this.#fill(source);
    } catch (error) {
      this.#memory.dispose();
      throw error;
    }
  }

  #fill(source: Source): void {
    const core = this.#core;
    const { dimension } = this;
    // Beside the floats: the record, for every row a scale and a zero point, then the codes.
    this.#memory.forRows(
      (rows) => rows * (dimension * 5 + 8) + LinearJob.bytes + 24,
      (row, rows, own) => {
        const { module } = core;
        const job = Math.ceil((own + rows * dimension * 4) / 8) * 8;
        const scale = job + LinearJob.bytes;
        const zeroPoint = scale + rows * 4;
        const codes = zeroPoint + rows * 4;
        const n = rows * dimension;
        const from = addressOf(core, source, row * dimension, n, 4, own);
        LinearJob.write(module, job, { layout: perTensor, spec: int8, scale, zeroPoint, parameters: rows });
        const status = core.withRecord(QuantizationSpec, int8, (spec) =>
          module._quantizeRuns(spec, from, n, dimension, dimension, scale, zeroPoint, codes),
        );
        if (status === Status.nonFinite) {
          const index = row * dimension + module.firstNonFinite(from, n);
          const where = `element ${index % dimension} of vector ${Math.floor(index / dimension)}`;
          throw new ScalepointError('NON_FINITE', `vectors: ${where} is not finite`);
        }
        checkStatus(status);
        for (let i = 0; i < rows; i++) {
          const length =
            this.metric === 'cosine' ? Math.sqrt(squares(module.HEAP8, codes + i * dimension, dimension)) : 0;
          this.#factors[row + i] =
            this.metric === 'dot' ? (module.HEAPF32[scale / 4 + i] as number) : length === 0 ? 0 : 1 / length;
        }
        module.HEAPF32.fill(1, scale / 4, scale / 4 + rows);
        checkStatus(module.setLayerCodes(this.#memory.layer, row, codes, n, job));
      },
    );
  }

  /**
   * The k vectors that are most similar to a query, or all if there are fewer.
   * @example const { indices, scores } = index.search(query, 10);
   * @throws TypeError or RangeError naming the argument; ScalepointError `NON_FINITE`, `OUT_OF_MEMORY`, `DISPOSED`
   */
  search(query: FloatInput, k: number): SearchResult {
    this.#memory.checkAlive('the index');
    const core = this.#core;
    const { count, dimension } = this;
    const wanted = Math.min(checkCount(k), count);
    const source = sourceOf(core, query, undefined, 'query');
    if (source.length !== dimension) {
      throw new RangeError(`query: expected ${dimension} elements, got ${source.length}`);
    }
    const { layer } = this.#memory;
    const work = core.module.layerWorkspaceBytes(layer, 1);
    const step = Math.min(count, scoresAtOnce);
    const best = new Best(wanted);
    let queryFactor = 1;
    core.withMemory(work + step * 8 + dimension * 5 + 32, (at) => {
      const scores = at + work;
      const own = scores + step * 8;
      const from = addressOf(core, source, 0, dimension, 4, own);
      queryFactor = this.#queryFactor(from, own + dimension * 4);
      for (let row = 0; row < count; row += step) {
        const n = Math.min(step, count - row);
        checkStatus(core.module.layerScores(layer, from, row, scores, n, at, work));
        const sums = core.module.HEAPF64.subarray(scores / 8, scores / 8 + n);
        const factors = this.#factors;
        let { threshold } = best;
        for (let i = 0; i < n; i++) {
          const score = (sums[i] as number) * (factors[row + i] as number);
          if (score > threshold || threshold === -Infinity) {
            best.offer(score, row + i);
            ({ threshold } = best);
          }
        }
      }
    });
    const found = best.sorted();
    return {
      indices: Uint32Array.from(found, ({ index }) => index),
      scores: Float32Array.from(found, ({ score }) => score * queryFactor),
    };
  }

  /** What every score of a query is multiplied with: its scale, or one over its length. `room`: for its codes. */
  #queryFactor(query: number, room: number): number {
    const { module } = this.#core;
    const { dimension } = this;
    const bad = module.firstNonFinite(query, dimension);
    if (bad < dimension) {
      throw new ScalepointError('NON_FINITE', `query[${bad}] is ${module.HEAPF32[query / 4 + bad]}`);
    }
    if (!this.#int8) {
      if (this.metric === 'dot') return 1;
      const length = Math.sqrt(squares(module.HEAPF32, query / 4, dimension));
      return length === 0 ? 0 : 1 / length;
    }
    const scale = room + 8;
    const codes = scale + 8;
    this.#core.withRecord(QuantizationSpec, int8, (spec) =>
      checkStatus(module._quantizeRuns(spec, query, dimension, dimension, dimension, scale, scale + 4, codes)),
    );
    if (this.metric === 'dot') return module.HEAPF32[scale / 4] as number;
    const length = Math.sqrt(squares(module.HEAP8, codes, dimension));
    return length === 0 ? 0 : 1 / length;
  }

  /**
   * How much of what a search in float32 finds this index finds, too: the mean share of the best k, from 0 to 1. Takes the vectors
   * once more, as the index keeps their codes only, and works through all of them for every query.
   * @example const share = index.recall(vectors, queries, { k: 10 });
   * @throws as `search`, and where the vectors are not as many or as long as those of the index
   */
  recall(vectors: VectorInput, queries: VectorInput, options: RecallOptions = {}): number {
    this.#memory.checkAlive('the index');
    checkKeys(options, recallKeys);
    const core = this.#core;
    const { count, dimension } = this;
    const k = Math.min(checkCount(options.k ?? 10), count);
    const shapeOf = (input: VectorInput) =>
      Array.isArray(input) && typeof input[0] === 'object'
        ? undefined
        : [Math.floor((input as FloatInput).length / dimension), dimension];
    const asked = vectorsOf(core, queries, shapeOf(queries), undefined, 'queries');
    if (asked.dimension !== dimension) {
      throw new RangeError(`queries: expected vectors of ${dimension} elements, got ${asked.dimension}`);
    }
    const list: Float32Array[] = [];
    for (let i = 0; i < asked.count; i++) {
      list.push(
        core.withMemory(dimension * 4, (own) => {
          const at = addressOf(core, asked.source, i * dimension, dimension, 4, own) / 4;
          return core.module.HEAPF32.slice(at, at + dimension);
        }),
      );
    }
    const found = list.map((query) => new Set(this.search(query, k).indices));
    const given = vectorsOf(core, vectors, shapeOf(vectors), options.from, 'vectors');
    if (given.count !== count || given.dimension !== dimension) {
      throw new RangeError(
        `vectors: expected ${count} of ${dimension} elements as in the index, got ${given.count} of ${given.dimension}`,
      );
    }
    const exact = this.#searchFloats(given.source, list, k);
    let hits = 0;
    for (const [i, best] of exact.entries()) {
      for (const { index } of best.sorted()) if (found[i]?.has(index)) hits++;
    }
    return hits / (k * list.length);
  }

  /** The best k vectors of every query, in float32. */
  #searchFloats(source: Source, queries: readonly Float32Array[], k: number): Best[] {
    const core = this.#core;
    const { count, dimension, metric } = this;
    const best = queries.map(() => new Best(k));
    const step = Math.min(count, vectorsAtOnce, Math.max(1, Math.floor((tileSize * 8) / dimension)));
    const memory = new LayerMemory(core, floatLayer(step, dimension), 0);
    try {
      const work = core.module.layerWorkspaceBytes(memory.layer, 1);
      core.withMemory(work + (step + dimension + step * dimension) * 4, (at) => {
        const query = at + work;
        const scores = query + dimension * 4;
        const own = scores + step * 4;
        for (let row = 0; row < count; row += step) {
          const n = Math.min(step, count - row);
          const from = addressOf(core, source, row * dimension, n * dimension, 4, own);
          checkStatus(core.module.setLayerFloats(memory.layer, 0, from, n * dimension));
          const { HEAPF32 } = core.module;
          const lengths = Float64Array.from({ length: metric === 'cosine' ? n : 0 }, (_, i) =>
            Math.sqrt(squares(HEAPF32, from / 4 + i * dimension, dimension)),
          );
          for (const [q, values] of queries.entries()) {
            HEAPF32.set(values, query / 4);
            checkStatus(core.module._layerForward(memory.layer, query, 1, scores, at, work));
            for (let i = 0; i < n; i++) {
              const dot = HEAPF32[scores / 4 + i] as number;
              const length = lengths[i] ?? 1;
              best[q]?.offer(length === 0 ? 0 : dot / length, row + i);
            }
          }
        }
      });
    } finally {
      memory.dispose();
    }
    return best;
  }

  /** Gives the memory back. Twice is fine; use after it is a ScalepointError `DISPOSED`. */
  dispose(): void {
    this.#memory.dispose();
  }

  [Symbol.dispose](): void {
    this.dispose();
  }
}
