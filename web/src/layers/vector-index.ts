/// <reference lib="esnext.disposable" preserve="true" />
// Similarity search: vectors in int8, and the dot products of layers with them.
import { specOfDType } from '../arrays/job.js';
import { perTensor } from '../arrays/layout.js';
import { addressOf, type FloatInput, type HalfFormat, type Source, sourceOf } from '../arrays/source.js';
import { dtypeInfo } from '../arrays/tensor.js';
import { checkKeys, checkWhole, choice } from '../core/check.js';
import { ActivationType, LinearJob, QuantizationSpec, Status } from '../core/door.js';
import { rangeError, ScalepointError } from '../core/errors.js';
import { type Core, checkStatus } from '../core/memory.js';
import { Best } from './best.js';
import { copiesOf, searchFloats } from './float-search.js';
import { LayerMemory } from './layer-memory.js';
import { isList, squares, type VectorInput, vectorsOf } from './vectors.js';

/** Options of `index`. */
export interface IndexOptions {
  /** [count, dimension], for vectors in one array. A list of vectors needs none. */
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

const indexKeys = new Set(['shape', 'dtype', 'metric', 'activations', 'from']);
const recallKeys = new Set(['k', 'from']);
/** Scores that are made at a time: half a mebibyte of doubles. */
const scoresAtOnce = 1 << 16;
/** How vectors and queries become codes. */
const int8 = specOfDType(dtypeInfo('int8'));

/** The next multiple of 8. */
function align(address: number): number {
  return Math.ceil(address / 8) * 8;
}

function reciprocal(length: number): number {
  return length === 0 ? 0 : 1 / length;
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
  /** For each vector what a dot product with its codes is multiplied by: its scale, or the reciprocal of their length. */
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
    const form = { outputs: count, inputs: dimension, groupSize: dimension, bits: 8, zeroPoints: false, activations };
    this.#memory = new LayerMemory(core, form);
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
    const { module } = core;
    const { dimension } = this;
    // The floats, the record, for every row a scale and a zero point, then the codes.
    this.#memory.forRows(
      (rows) => rows * (dimension * 5 + 8) + LinearJob.bytes + 24,
      (row, rows, own) => {
        const n = rows * dimension;
        const job = align(own + n * 4);
        const scale = job + LinearJob.bytes;
        const zeroPoint = scale + rows * 4;
        const codes = zeroPoint + rows * 4;
        const from = addressOf(core, source, row * dimension, n, 4, own);
        const status = core.withRecord(QuantizationSpec, int8, (spec) =>
          module._quantizeRuns(spec, from, n, dimension, dimension, scale, zeroPoint, codes),
        );
        if (status === Status.nonFinite) {
          const index = row * dimension + module.firstNonFinite(from, n);
          const where = `element ${index % dimension} of vector ${Math.floor(index / dimension)}`;
          throw new ScalepointError('NON_FINITE', `vectors: ${where} is not finite`);
        }
        checkStatus(status);
        for (let i = 0; i < rows; i++) this.#factors[row + i] = this.#factor(scale + i * 4, codes + i * dimension);
        // The layer gives the dot products of codes. Scales are in the factors.
        module.HEAPF32.fill(1, scale / 4, scale / 4 + rows);
        LinearJob.write(module, job, { layout: perTensor, spec: int8, scale, zeroPoint, parameters: rows });
        checkStatus(module.setLayerCodes(this.#memory.layer, row, codes, n, job));
      },
    );
  }

  /** What a dot product with some codes is multiplied by. */
  #factor(scale: number, codes: number): number {
    const { HEAPF32, HEAP8 } = this.#core.module;
    if (this.metric === 'dot') return HEAPF32[scale / 4] as number;
    return reciprocal(Math.sqrt(squares(HEAP8, codes, this.dimension)));
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
    const best = new Best(Math.min(checkWhole(k, 'k', 1), count));
    const source = sourceOf(core, query, undefined, 'query');
    // To read the arguments may have run code of the caller's.
    this.#memory.checkAlive('the index');
    if (source.length !== dimension) {
      throw rangeError('query', `expected ${dimension} elements, got ${source.length}`);
    }
    const { layer } = this.#memory;
    const work = core.module.layerWorkspaceBytes(layer, 1);
    const step = Math.min(count, scoresAtOnce);
    let queryFactor = 1;
    core.withMemory(work + step * 8 + dimension * 5 + 32, (at) => {
      const scores = at + work;
      const own = scores + step * 8;
      const from = addressOf(core, source, 0, dimension, 4, own);
      queryFactor = this.#queryFactor(from, own + dimension * 4);
      for (let row = 0; row < count; row += step) {
        const n = Math.min(step, count - row);
        checkStatus(core.module.layerScores(layer, from, row, scores, n, at, work));
        this.#offer(best, core.module.HEAPF64.subarray(scores / 8, scores / 8 + n), row);
      }
    });
    const found = best.sorted();
    return {
      indices: Uint32Array.from(found, ({ index }) => index),
      scores: Float32Array.from(found, ({ score }) => score * queryFactor),
    };
  }

  /** Offers the scores of the vectors from `row` on, which are sums times factors. */
  #offer(best: Best, sums: Float64Array, row: number): void {
    const factors = this.#factors;
    let { threshold } = best;
    for (let i = 0; i < sums.length; i++) {
      const score = (sums[i] as number) * (factors[row + i] as number);
      if (score > threshold || threshold === -Infinity) {
        best.offer(score, row + i);
        ({ threshold } = best);
      }
    }
  }

  /** What all scores of a query are multiplied by: its scale, or the reciprocal of its length. `room`: memory for its codes. */
  #queryFactor(query: number, room: number): number {
    const { module } = this.#core;
    const { dimension } = this;
    const bad = module.firstNonFinite(query, dimension);
    if (bad < dimension) {
      throw new ScalepointError('NON_FINITE', `query[${bad}] is ${module.HEAPF32[query / 4 + bad]}`);
    }
    if (!this.#int8) {
      return this.metric === 'dot' ? 1 : reciprocal(Math.sqrt(squares(module.HEAPF32, query / 4, dimension)));
    }
    const scale = room + 8;
    const codes = scale + 8;
    this.#core.withRecord(QuantizationSpec, int8, (spec) =>
      checkStatus(module._quantizeRuns(spec, query, dimension, dimension, dimension, scale, scale + 4, codes)),
    );
    return this.#factor(scale, codes);
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
    const k = Math.min(checkWhole(options.k ?? 10, 'k', 1), count);
    const shapeOf = (input: VectorInput) =>
      isList(input) ? undefined : [Math.floor(input.length / dimension), dimension];
    const asked = vectorsOf(core, queries, shapeOf(queries), undefined, 'queries');
    if (asked.dimension !== dimension) {
      throw rangeError('queries', `expected vectors of ${dimension} elements, got ${asked.dimension}`);
    }
    const list = copiesOf(core, asked);
    const found = list.map((query) => new Set(this.search(query, k).indices));
    const given = vectorsOf(core, vectors, shapeOf(vectors), options.from, 'vectors');
    if (given.count !== count || given.dimension !== dimension) {
      const got = `${given.count} of ${given.dimension}`;
      throw rangeError('vectors', `expected ${count} of ${dimension} elements as in the index, got ${got}`);
    }
    let hits = 0;
    for (const [i, best] of searchFloats(core, given, list, this.metric, k).entries()) {
      for (const { index } of best.sorted()) if (found[i]?.has(index)) hits++;
    }
    return hits / (k * list.length);
  }

  /** Gives the memory back. To call it twice is fine. Any use after it is a ScalepointError `DISPOSED`. */
  dispose(): void {
    this.#memory.dispose();
  }

  [Symbol.dispose](): void {
    this.dispose();
  }
}
