/// <reference lib="esnext.disposable" preserve="true" />
// Similarity search: vectors in int8, and the dot products of layers with them.

import { checkOptionsOf } from '../arrays/calls.js';
import { perTensor, specOfDType } from '../arrays/job.js';
import type { CodedVectors } from '../arrays/kind.js';
import { codedVectors, dequantize, isQuantized } from '../arrays/kinds.js';
import { floatForm, LayerMemory, rowsToFill } from '../arrays/layer-memory.js';
import type { NewParameters } from '../arrays/options.js';
import { addressOf, type FloatInput, type HalfFormat, type Source, sourceOf } from '../arrays/source.js';
import { dtypeInfo, type LinearQuantizedTensor, plain, type QuantizedTensor } from '../arrays/tensor.js';
import { isTensor } from '../arrays/tensor-like.js';
import { bindMethods } from '../core/bind.js';
import { checkWhole, choiceIndex } from '../core/check.js';
import { ActivationTypeId, LinearJobRecord, QuantizationSpecRecord, StatusId } from '../core/door.js';
import { disposedError, rangeError, ScalepointError, typeError } from '../core/errors.js';
import { align, type Core, checkStatus, tileSize } from '../core/memory.js';
import { nearest } from '../core/nearest.js';
import { exactly, type Hint, mention, oneOf, onlyWith, without } from '../core/option-problem.js';
import { Best } from './best.js';
import type {
  AddOptions,
  IndexOptions,
  RecallOptions,
  SearchOptions,
  SearchResult,
  VectorId,
  VectorIndex,
} from './search-types.js';
import { type ByteVectors, isList, squares, type VectorInput, type Vectors, vectorsOf } from './vectors.js';

/** Scores that are made at a time: half a mebibyte of doubles. */
const scoresAtOnce = 1 << 16;
/** Vectors that queries are compared with at a time. */
const vectorsAtOnce = 1 << 10;
/** Elements of that many vectors, at most: 4 MiB of floats. */
const elementsAtOnce = tileSize * 8;
/** The spec of the codes of vectors and queries. */
const int8 = specOfDType(dtypeInfo('int8'));

function reciprocal(length: number): number {
  return length === 0 ? 0 : 1 / length;
}

/** Vectors to add: floats, or codes with scales. */
type Given = { readonly count: number; readonly dimension: number } & (
  | { readonly source: Source }
  | { readonly coded: CodedVectors }
);

/** Some of the vectors of an index, in a layer with room for more. */
class IndexSegment {
  readonly memory: LayerMemory;
  /** The factor of dot products with the codes of each vector: its scale, or the reciprocal of their length. */
  readonly factors: Float64Array;
  readonly scales: Float32Array;
  /** Vectors in it. */
  count = 0;

  constructor(core: Core, capacity: number, dimension: number, activations: ActivationTypeId) {
    const form = {
      outputs: capacity,
      inputs: dimension,
      groupSize: dimension,
      bits: 8,
      zeroPoints: false,
      activations,
    };
    this.memory = new LayerMemory(core, form);
    this.factors = new Float64Array(capacity);
    this.scales = new Float32Array(capacity);
  }

  get room(): number {
    return this.factors.length - this.count;
  }
}

/** The rest is in search/, which `load({ index: true })` loads. */
const inIndex: Hint = { kind: 'load', option: mention('index', true) };
const onlyInIndex = ['dims', 'ids', 'ranges', 'rerank', 'seed', 'workers'] as const;

/** @throws TypeError for an option or a call that only whole indexes have */
function refuse(name: string): never {
  throw typeError(name, onlyWith('index', true), undefined, inIndex);
}

/** @throws TypeError for options that only whole indexes have */
function refuseOptions(options: object, names: readonly string[]): void {
  for (const name of names) if ((options as Record<string, unknown>)[name] !== undefined) refuse(name);
}

/**
 * The index of every instance: vectors as int8 codes in wasm memory, with one scale each. Scores are exact over the codes: integer dot
 * products, multiplied by the scales or divided by the lengths of the codes, in double.
 */
export class Int8Index implements VectorIndex {
  readonly dimension: number;
  readonly bits = 8;
  readonly metric: 'dot' | 'cosine';
  readonly #core: Core;
  readonly #int8: boolean;
  #segments: IndexSegment[] = [];
  #alive = true;

  /** @internal */
  constructor(core: Core, vectors: VectorInput | ByteVectors | QuantizedTensor, options: IndexOptions) {
    checkOptionsOf('index', options);
    refuseOptions(options, onlyInIndex);
    choiceIndex(options, 'dtype', ['int8']);
    if (options.bits !== undefined && options.bits !== 8) throw rangeError('bits', oneOf([8]), options.bits, inIndex);
    const metric = nearest(options.metric, ['dot', 'cosine', 'euclidean', 'hamming']);
    if (metric === 'euclidean' || metric === 'hamming')
      throw rangeError('metric', oneOf(['dot', 'cosine']), options.metric, inIndex);
    this.metric = choiceIndex(options, 'metric', ['dot', 'cosine']) === 0 ? 'dot' : 'cosine';
    this.#int8 = choiceIndex(options, 'queries', ['int8', 'float32']) === 0;
    this.#core = core;
    const given = givenVectors(core, vectors, options.shape, options.from);
    this.dimension = given.dimension;
    this.#take(given, given.count);
    bindMethods(this);
  }

  get count(): number {
    return this.#segments.reduce((sum, { count }) => sum + count, 0);
  }

  get bytes(): number {
    return this.#segments.reduce((sum, { memory }) => sum + memory.bytes, 0);
  }

  add(vectors: VectorInput | ByteVectors | QuantizedTensor, options: readonly VectorId[] | AddOptions = {}): void {
    this.#checkAlive();
    if (Array.isArray(options)) refuse('ids');
    checkOptionsOf('index.add', options);
    refuseOptions(options, ['ids', 'ranges']);
    const { dimension } = this;
    const shape = isQuantized(vectors) || isList(vectors) ? undefined : shapeOf(vectors as FloatInput, dimension);
    const given = givenVectors(this.#core, vectors, shape, (options as AddOptions).from);
    // Check after reading the argument, which may have run code of the caller.
    this.#checkAlive();
    if (given.dimension !== dimension) {
      throw rangeError('vectors', exactly(dimension, 'elements'), given.dimension);
    }
    this.#take(given, Math.max(given.count, Math.ceil(this.count / 2)));
  }

  tensor(): LinearQuantizedTensor<Int8Array<ArrayBuffer>> & NewParameters {
    this.#checkAlive();
    const core = this.#core;
    const { count, dimension } = this;
    const data = new Int8Array(count * dimension);
    const scale = new Float32Array(count);
    let start = 0;
    for (const { memory, scales, count: rows } of this.#segments) {
      scale.set(scales.subarray(0, rows), start);
      const step = rowsToFill(dimension);
      core.withMemory(Math.min(step, rows) * dimension, (own) => {
        for (let row = 0; row < rows; row += step) {
          const n = Math.min(step, rows - row) * dimension;
          checkStatus(core.module.getLayerCodes(memory.layer, row, own, n));
          data.set(core.module.HEAP8.subarray(own, own + n), (start + row) * dimension);
        }
      });
      start += rows;
    }
    const granularity = { kind: 'per-channel', axis: 0 } as const;
    const zeroPoint = new Int32Array(count);
    return plain({ kind: 'linear', dtype: 'int8', shape: [count, dimension], granularity, data, scale, zeroPoint });
  }

  /** Adds vectors: first to the room that is left, then to a segment for at least `capacity` vectors. */
  #take(given: Given, capacity: number): void {
    const last = this.#segments.at(-1);
    const fit = Math.min(given.count, last?.room ?? 0);
    const added: [IndexSegment, from: number, count: number][] = [];
    if (last !== undefined && fit > 0) added.push([last, 0, fit]);
    let fresh: IndexSegment | undefined;
    try {
      if (fit < given.count) {
        const activations = this.#int8 ? ActivationTypeId.int8Symmetric : ActivationTypeId.float32;
        fresh = new IndexSegment(this.#core, Math.max(given.count - fit, capacity), given.dimension, activations);
        added.push([fresh, fit, given.count - fit]);
      }
      for (const [segment, from, count] of added) this.#fill(segment, given, from, count);
    } catch (error) {
      fresh?.memory.dispose();
      throw error;
    }
    for (const [segment, , count] of added) segment.count += count;
    if (fresh !== undefined) this.#segments.push(fresh);
  }

  /** Fills the room of a segment with some of the vectors. */
  #fill(segment: IndexSegment, given: Given, first: number, count: number): void {
    const core = this.#core;
    const { module } = core;
    const { dimension } = this;
    const step = rowsToFill(dimension);
    const most = Math.min(count, step);
    // Lay out the floats, the record, a sum of squares, a scale and a zero point for each row, then the codes.
    core.withMemory(most * (dimension * 5 + 16) + LinearJobRecord.bytes + 16, (own) => {
      const job = align(own + most * dimension * 4);
      const sums = job + LinearJobRecord.bytes;
      const scale = sums + most * 8;
      const zeroPoint = scale + most * 4;
      const room = zeroPoint + most * 4;
      for (let row = 0; row < count; ) {
        const at = segment.count + row;
        // End at a multiple of the step, so that all rows but the first and the last ones fill tiles of the layer.
        const rows = Math.min(step - (at % step), count - row);
        const n = rows * dimension;
        const codes = this.#codesOf(given, first + row, rows, { own, scale, zeroPoint, room });
        segment.scales.set(module.HEAPF32.subarray(scale / 4, scale / 4 + rows), at);
        if (this.metric === 'dot') segment.factors.set(segment.scales.subarray(at, at + rows), at);
        else {
          module.sumsOfSquares(codes, rows, dimension, sums);
          for (let i = 0; i < rows; i++) {
            segment.factors[at + i] = reciprocal(Math.sqrt(module.HEAPF64[sums / 8 + i] as number));
          }
        }
        // The layer gives the dot products of codes. Scales are in the factors.
        module.HEAPF32.fill(1, scale / 4, scale / 4 + rows);
        module.HEAP32.fill(0, zeroPoint / 4, zeroPoint / 4 + rows);
        LinearJobRecord.write(module, job, { layout: perTensor, spec: int8, scale, zeroPoint, parameters: rows });
        checkStatus(module.setLayerCodes(segment.memory.layer, at, codes, n, job));
        row += rows;
      }
    });
  }

  /** Writes the scales of some vectors to memory, and returns the address of their codes. */
  #codesOf(
    given: Given,
    row: number,
    rows: number,
    { own, scale, zeroPoint, room }: Readonly<Record<'own' | 'scale' | 'zeroPoint' | 'room', number>>,
  ): number {
    const core = this.#core;
    const { module } = core;
    const { dimension } = this;
    if ('coded' in given) {
      const codes = given.coded.codes(row, rows, room);
      given.coded.copyScales(row, rows, scale);
      return codes;
    }
    const n = rows * dimension;
    const from = addressOf(core, given.source, row * dimension, n, 4, own);
    const status = core.withRecord(QuantizationSpecRecord, int8, (spec) =>
      module._quantizeRuns(spec, from, n, dimension, dimension, scale, zeroPoint, room),
    );
    if (status === StatusId.nonFinite) {
      const index = row * dimension + module.firstNonFinite(from, n);
      const where = `element ${index % dimension} of vector ${Math.floor(index / dimension)}`;
      throw new ScalepointError('NON_FINITE', `vectors: ${where} is not finite`);
    }
    checkStatus(status);
    return room;
  }

  /** The factor of dot products with some codes. */
  #factor(scale: number, codes: number): number {
    const { HEAPF32, HEAP8 } = this.#core.module;
    if (this.metric === 'dot') return HEAPF32[scale / 4] as number;
    return reciprocal(Math.sqrt(squares(HEAP8, codes, this.dimension)));
  }

  #checkAlive(): void {
    if (!this.#alive || this.#core.disposed) throw disposedError('the index');
  }

  search(query: FloatInput, k = 10, options: SearchOptions = {}): SearchResult {
    this.#checkAlive();
    checkOptionsOf('index.search', options);
    refuseOptions(options, ['filter', 'rerank']);
    const core = this.#core;
    const { count, dimension } = this;
    const best = new Best(Math.min(checkWhole(k, 'k', 1), count));
    const source = sourceOf(core, query, undefined, 'query');
    // Check after reading the arguments, which may have run code of the caller.
    this.#checkAlive();
    if (source.length !== dimension) {
      throw rangeError('query', exactly(dimension, 'elements'), source.length);
    }
    let queryFactor = 1;
    let first = 0;
    for (const segment of this.#segments) {
      queryFactor = this.#searchSegment(segment, first, source, best);
      first += segment.count;
    }
    const found = best.sorted();
    return {
      ids: found.map(({ index }) => index),
      indices: Uint32Array.from(found, ({ index }) => index),
      scores: Float32Array.from(found, ({ score }) => score * queryFactor),
    };
  }

  /** Offers the scores of a segment, whose vectors have the indices from `first` on. Returns the factor of the query. */
  #searchSegment({ memory, factors, count }: IndexSegment, first: number, query: Source, best: Best): number {
    const core = this.#core;
    const { dimension } = this;
    const { layer } = memory;
    const work = core.module.layerWorkspaceBytes(layer, 1);
    const step = Math.min(count, scoresAtOnce);
    return core.withMemory(work + step * 8 + dimension * 5 + 32, (at) => {
      const scores = at + work;
      const own = scores + step * 8;
      const from = addressOf(core, query, 0, dimension, 4, own);
      const queryFactor = this.#queryFactor(from, own + dimension * 4);
      for (let row = 0; row < count; row += step) {
        const n = Math.min(step, count - row);
        checkStatus(core.module.layerScores(layer, from, row, scores, n, at, work));
        const sums = core.module.HEAPF64.subarray(scores / 8, scores / 8 + n);
        let { threshold } = best;
        for (let i = 0; i < n; i++) {
          const score = (sums[i] as number) * (factors[row + i] as number);
          if (!(score > threshold || threshold === -Infinity)) continue;
          best.offer(score, first + row + i);
          ({ threshold } = best);
        }
      }
      return queryFactor;
    });
  }

  /** The common factor of all scores of a query: its scale, or the reciprocal of its length. @param room address for its codes */
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
    this.#core.withRecord(QuantizationSpecRecord, int8, (spec) =>
      checkStatus(module._quantizeRuns(spec, query, dimension, dimension, dimension, scale, scale + 4, codes)),
    );
    return this.#factor(scale, codes);
  }

  recall(vectors: VectorInput, queries: VectorInput, options: RecallOptions = {}): number {
    this.#checkAlive();
    checkOptionsOf('recall', options);
    refuseOptions(options, ['rerank']);
    const core = this.#core;
    const { count, dimension } = this;
    const k = Math.min(checkWhole(options.k ?? 10, 'k', 1), count);
    const shapeFor = (input: VectorInput) => (isList(input) ? undefined : shapeOf(input, dimension));
    const asked = vectorsOf(core, queries, shapeFor(queries), undefined, 'queries');
    if (asked.dimension !== dimension) {
      throw rangeError('queries', exactly(dimension, 'elements'), asked.dimension);
    }
    const list = core.withMemory(dimension * 4, (own) =>
      Array.from({ length: asked.count }, (_, i) => {
        const at = addressOf(core, asked.source, i * dimension, dimension, 4, own) / 4;
        return core.module.HEAPF32.slice(at, at + dimension);
      }),
    );
    const found = list.map((query) => new Set(this.search(query, k).indices));
    const given = vectorsOf(core, vectors, shapeFor(vectors), options.from, 'vectors');
    if (given.count !== count || given.dimension !== dimension) {
      throw rangeError('vectors', oneOf([[count, dimension]]), [given.count, given.dimension], {
        kind: 'as',
        option: 'shape',
      });
    }
    let hits = 0;
    for (const [i, best] of searchFloats(core, given, list, this.metric, k).entries()) {
      for (const { index } of best.sorted()) if (found[i]?.has(index)) hits++;
    }
    return hits / (k * list.length);
  }

  remove(): never {
    refuse('remove');
  }

  update(): never {
    refuse('update');
  }

  has(): never {
    refuse('has');
  }

  searchMany(): never {
    refuse('searchMany');
  }

  save(): never {
    refuse('save');
  }

  dispose(): void {
    for (const { memory } of this.#segments) memory.dispose();
    this.#alive = false;
  }

  [Symbol.dispose](): void {
    this.dispose();
  }
}

/** The best k vectors of every query in float32: the reference for the results of an index. */
function searchFloats(
  core: Core,
  { source, count, dimension }: Vectors,
  queries: readonly Float32Array[],
  metric: 'dot' | 'cosine',
  k: number,
): Best[] {
  const best = queries.map(() => new Best(k));
  const step = Math.min(count, vectorsAtOnce, Math.max(1, Math.floor(elementsAtOnce / dimension)));
  const memory = new LayerMemory(core, floatForm(step, dimension));
  try {
    const { layer } = memory;
    const work = core.module.layerWorkspaceBytes(layer, 1);
    core.withMemory(work + (step + dimension + step * dimension) * 4, (at) => {
      const query = at + work;
      const scores = query + dimension * 4;
      const own = scores + step * 4;
      for (let row = 0; row < count; row += step) {
        const n = Math.min(step, count - row);
        const from = addressOf(core, source, row * dimension, n * dimension, 4, own);
        checkStatus(core.module.setLayerFloats(layer, 0, from, n * dimension));
        const { HEAPF32 } = core.module;
        const lengths = Float64Array.from({ length: n }, (_, i) =>
          metric === 'cosine' ? Math.sqrt(squares(HEAPF32, from / 4 + i * dimension, dimension)) : 1,
        );
        for (const [q, values] of queries.entries()) {
          HEAPF32.set(values, query / 4);
          checkStatus(core.module._layerForward(layer, query, 1, scores, at, work));
          for (let i = 0; i < n; i++) {
            const length = lengths[i] as number;
            best[q]?.offer(length === 0 ? 0 : (HEAPF32[scores / 4 + i] as number) / length, row + i);
          }
        }
      }
    });
  } finally {
    memory.dispose();
  }
  return best;
}

/** The shape of vectors in one array, whose length may be wrong; undefined if they carry their own shape. */
function shapeOf(vectors: FloatInput, dimension: number): readonly number[] | undefined {
  const length = isTensor(vectors) ? undefined : (vectors as { readonly length?: number } | null)?.length;
  return length === undefined ? undefined : [Math.floor(length / dimension), dimension];
}

/** The vectors of a caller. Restores codes that are not in the form of the index. */
function givenVectors(
  core: Core,
  vectors: VectorInput | ByteVectors | QuantizedTensor,
  shape: readonly number[] | undefined,
  from: HalfFormat | undefined,
): Given {
  if (!isQuantized(vectors)) return vectorsOf(core, vectors as VectorInput, shape, from, 'vectors');
  if (shape !== undefined) throw typeError('shape', without('vectors.shape'));
  if (from !== undefined) throw typeError('from', without('vectors.dtype'));
  const coded = codedVectors(core, vectors);
  if (coded !== undefined) return { count: coded.count, dimension: coded.dimension, coded };
  const floats = dequantize(core, vectors, {}, 'vectors') as Float32Array;
  return vectorsOf(core, floats, vectors.shape, undefined, 'vectors');
}
