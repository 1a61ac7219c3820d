/// <reference lib="esnext.disposable" preserve="true" />
// An index of vectors: codes of 1 to 8 bits with ids, removal, filters, second scores, many queries and files.

import { checkOptionsOf } from '../arrays/calls.js';
import type { NewParameters } from '../arrays/options.js';
import { type FloatInput, sourceOf } from '../arrays/source.js';
import { type LinearQuantizedTensor, plain, type QuantizedTensor } from '../arrays/tensor.js';
import { bindMethods } from '../core/bind.js';
import {
  checkChoice,
  checkFunction,
  checkKeys,
  checkSignal,
  checkWhole,
  maxWorkers,
  readChoice,
} from '../core/check.js';
import { MetricId, maxDimension, StatusId, StoredRowId } from '../core/door.js';
import { disposedError, rangeError, ScalepointError, typeError } from '../core/errors.js';
import { imported } from '../core/imported.js';
import { type Core, checkStatus } from '../core/memory.js';
import { exactly, ofType, oneOf, onlyWith, whole, without } from '../core/option-problem.js';
import { isBytes } from '../core/realms.js';
import { nextTask, waitingFor } from '../core/waiting.js';
import { bitRows, type GivenVectors } from './given-bytes.js';
import { readVectors, rowsAtOnce } from './given-vectors.js';
import { checkIds, IdTable } from './ids.js';
import { checkFactor, fetchRows, type Rerank, type Rows, readRows, rerankOf, scoredByCodes } from './rows.js';
import type { IndexFacts } from './save.js';
import type {
  AddOptions,
  IndexOptions,
  IndexOutput,
  RecallOptions,
  SaveOptions,
  SearchManyOptions,
  SearchOptions,
  SearchResult,
  VectorId,
  VectorIndex,
  VectorMetric,
} from './search-types.js';
import type { Shares } from './shares.js';
import { type Found, VectorStore } from './vector-store.js';
import { type ByteVectors, isList, type VectorInput, vectorsOf } from './vectors.js';

const metrics: readonly VectorMetric[] = ['dot', 'cosine', 'euclidean', 'hamming'];
/** 1 if larger scores are better, and -1 for distances. */
const signOf = (metric: VectorMetric) => (metric === 'euclidean' || metric === 'hamming' ? -1 : 1);

/** Queries that pass the codes together, unless there are more bytes of codes. */
const queriesAtOnce = 32;
const bytesAtOnce = 2 ** 28;
/** Bytes that the queries of a group pass one after the other over more codes. Both take some 0.15 s, and then the thread yields. */
const bytesInTurn = 2 ** 31;
/** Groups of queries that workers have at a time: one to work on and the next one. */
const groupsAtOnce = 2;

/** The name of a query among several, for errors. */
const queryName = (i: number) => `queries[${i}]`;

/** A query as floats: its full length, for a second score. */
type Query = Float32Array<ArrayBuffer>;

/** Options of a search, checked. */
interface Wanted {
  readonly k: number;
  readonly allowed: Uint32Array<ArrayBuffer> | undefined;
  /** Vectors to score again; 0 without a second score. */
  readonly again: number;
}

/** The vectors that workers found, and the request that they answer. */
interface Scanned {
  readonly wanted: Wanted;
  readonly found: readonly Found[];
}

/** Rows of floats in wasm memory, and the index of the first one among the vectors that a caller gave. */
interface GivenRows {
  readonly x: number;
  readonly rows: number;
  readonly dimension: number;
  readonly row: number;
}

/** @throws ScalepointError for a status other than ok */
function checkEncoded(core: Core, status: StatusId, { x, rows, dimension, row }: GivenRows): void {
  if (status === StatusId.nonFinite) {
    const index = core.module.firstNonFinite(x, rows * dimension);
    const where = `element ${index % dimension} of vector ${row + Math.floor(index / dimension)}`;
    throw new ScalepointError('NON_FINITE', `vectors: ${where} is not finite`);
  }
  if (status === StatusId.overflow) {
    throw new ScalepointError('OVERFLOW', 'vectors: a vector is too long, or too short, for the range of float32');
  }
  checkStatus(status);
}

/** A bit for each vector that a filter lets through and that was not removed; undefined without a filter. */
function allowedWords(
  filter: SearchOptions['filter'],
  store: VectorStore,
  ids: IdTable,
): Uint32Array<ArrayBuffer> | undefined {
  if (filter === undefined) return undefined;
  const words = store.aliveWords();
  if (typeof filter === 'function') {
    for (const [i, word] of words.entries()) {
      let kept = word;
      for (let rest = kept; rest !== 0; rest &= rest - 1) {
        const bit = 31 - Math.clz32(rest & -rest);
        if (!filter(ids.at(i * 32 + bit))) kept &= ~(1 << bit);
      }
      words[i] = kept;
    }
    // The function may have changed the index.
    return store.aliveWords().map((alive, i) => alive & (words[i] ?? 0));
  }
  if (!isBytes(filter)) throw typeError('filter', ofType('function', 'Uint8Array'), filter);
  const needed = Math.ceil(ids.length / 8);
  if (filter.length < needed) throw rangeError('filter', { kind: 'number', min: needed, unit: 'bytes' }, filter.length);
  for (let i = 0; i < words.length; i++) {
    const at = i * 4;
    const bits =
      (filter[at] ?? 0) | ((filter[at + 1] ?? 0) << 8) | ((filter[at + 2] ?? 0) << 16) | ((filter[at + 3] ?? 0) << 24);
    words[i]! &= bits;
  }
  return words;
}

/** The index of `sp.index` and `openIndex`. */
export class SearchIndex implements VectorIndex {
  readonly dimension: number;
  readonly bits: 1 | 2 | 4 | 8;
  readonly metric: VectorMetric;
  readonly #core: Core;
  /** True if the index owns its core. */
  readonly #ownsCore: boolean;
  readonly #facts: IndexFacts;
  readonly #store: VectorStore;
  readonly #ids: IdTable;
  readonly #rerank: Rerank | undefined;
  /** Indices of removed vectors, which later ones get. */
  readonly #free: number[] = [];
  /** True if they are in descending order. */
  #isSorted = true;
  #count = 0;
  /** True once the center is known. */
  #centered: boolean;
  /** Grows with each change. */
  #version = 0;
  /** Workers of `searchMany` without a number of its own. */
  readonly #workers: number;
  /** Workers that hold shares of the vectors, once a search asked for some. */
  #shares: Promise<Shares> | undefined;
  /** For each search that waits for workers: the indices of vectors that were removed since it began. */
  readonly #removedSince = new Set<Set<number>>();
  #alive = true;

  /** @internal */
  constructor(
    core: Core,
    facts: IndexFacts,
    parts: {
      rerank: Rerank | undefined;
      hasIds: boolean;
      ownsCore: boolean;
      centered: boolean;
      workers?: number | undefined;
    },
  ) {
    this.#core = core;
    this.#facts = facts;
    this.#rerank = parts.rerank;
    this.#ownsCore = parts.ownsCore;
    this.#workers = parts.workers ?? 0;
    this.dimension = facts.dimension;
    this.bits = facts.bits;
    this.metric = facts.metric;
    this.#centered = parts.centered || facts.bits === 8 || facts.metric === 'hamming';
    const source = parts.rerank?.source;
    this.#store = new VectorStore(core, {
      dimension: facts.dims,
      bits: facts.bits,
      metric: MetricId[facts.metric],
      seed: facts.seed,
      kept: source?.kind === 'kept' ? { kind: source.row, dimension: facts.dimension } : undefined,
    });
    this.#ids = new IdTable(parts.hasIds, (index) => this.#store.isAlive(index));
    bindMethods(this);
  }

  get count(): number {
    return this.#count;
  }

  get bytes(): number {
    return this.#store.bytes;
  }

  #checkAlive(): void {
    if (!this.#alive || this.#core.disposed) throw disposedError('the index');
  }

  /** Takes vectors of a file. @internal */
  async load(fill: (store: VectorStore, ids: IdTable) => Promise<number>): Promise<void> {
    this.#count = await fill(this.#store, this.#ids);
    if (!this.#reuses) return;
    for (let index = this.#ids.length - 1; index >= 0; index--) {
      if (this.#ids.all?.[index] === undefined) this.#free.push(index);
    }
  }

  /** True if later vectors may get the indices of removed ones. */
  get #reuses(): boolean {
    const source = this.#rerank?.source;
    return this.#ids.given && !(source?.kind === 'file' && source.fixed);
  }

  // ---------------------------------------------------------------------------------------------------------------- changes

  add(vectors: VectorInput | ByteVectors | QuantizedTensor, options: readonly VectorId[] | AddOptions = {}): void {
    this.#checkAlive();
    const given: AddOptions = Array.isArray(options) ? { ids: options } : (options as AddOptions);
    checkOptionsOf('index.add', given);
    this.addGiven(readVectors(this.#core, vectors, this.metric, given, this.dimension), given.ids);
  }

  /** Adds vectors that were read. @internal */
  addGiven(given: GivenVectors, ids: readonly VectorId[] | undefined): void {
    // Check after reading the argument, which may have run code of the caller.
    this.#checkAlive();
    const { count } = given;
    if (ids === undefined && this.#ids.given && count > 0) throw rangeError('ids', { kind: 'required' });
    if (ids !== undefined && !this.#ids.given) throw typeError('ids', onlyWith('index.ids'), ids);
    const names = ids === undefined ? undefined : checkIds(ids, 'ids', count);
    if (names !== undefined) this.#ids.checkNew(names);
    this.#checkFile();
    if (count === 0) return;
    const center = this.#centered ? undefined : this.#store.center;
    // The lowest first, so that an index and its file go on in the same way.
    if (!this.#isSorted) this.#free.sort((a, b) => b - a);
    this.#isSorted = true;
    const reused = this.#free.slice(Math.max(0, this.#free.length - count)).reverse();
    const first = this.#ids.length;
    try {
      this.#store.grow(first + count - reused.length);
      if (center !== undefined) {
        // Find the center of the first vectors.
        const { dims } = this.#facts;
        this.#core.withMemory(dims * 8, (sums) => {
          this.#core.module.HEAPF64.fill(0, sums >>> 3, (sums >>> 3) + dims);
          this.#eachTile(given, 0, count, (x, row, rows) => {
            const status = this.#store.addToCenter(x, rows, sums);
            checkEncoded(this.#core, status, { x, rows, dimension: dims, row });
          });
          this.#store.finishCenter(sums, count);
        });
      }
      for (const [row, index] of reused.entries()) this.#fill(given, row, 1, index);
      this.#fill(given, reused.length, count - reused.length, first);
    } catch (error) {
      if (center !== undefined) this.#store.center = center;
      for (const index of reused) this.#store.clear(index, 1);
      this.#store.clear(first, count - reused.length);
      throw error;
    }
    this.#centered = true;
    this.#free.length -= reused.length;
    for (let row = 0; row < count; row++) {
      const index = reused[row] ?? first + row - reused.length;
      this.#store.setAlive(index, true);
      if (names !== undefined) this.#ids.set(index, names[row]);
    }
    this.#ids.extend(first + count - reused.length);
    this.#count += count;
    this.#version++;
  }

  /** Rows of a file cannot change. @throws TypeError */
  #checkFile(): void {
    const source = this.#rerank?.source;
    if (source?.kind !== 'file' || source.fixed) return;
    const message = 'the vectors for the second score are in the file, which stays as it is';
    throw typeError('rerank', oneOf(['memory']), 'file', { kind: 'because', message });
  }

  /** Calls f with rows of floats: their first `dims` elements, and all of them. */
  #eachTile(
    given: GivenVectors,
    first: number,
    count: number,
    f: (x: number, row: number, rows: number, full: number) => void,
  ): void {
    const { dimension, dims } = this.#facts;
    const core = this.#core;
    const step = Math.min(count, rowsAtOnce(dimension));
    core.withMemory(step * (dimension + dims) * 4 + 16, (own) => {
      for (let row = first; row < first + count; row += step) {
        const rows = Math.min(step, first + count - row);
        const full = given.floats(row, rows, own);
        let x = full;
        if (dims < dimension) {
          x = own + step * dimension * 4;
          for (let i = 0; i < rows; i++) {
            const from = full + i * dimension * 4;
            core.module.HEAPU8.copyWithin(x + i * dims * 4, from, from + dims * 4);
          }
        }
        f(x, row, rows, full);
      }
    });
  }

  /** Makes the codes of rows of vectors, as those from `index` on. */
  #fill(given: GivenVectors, first: number, count: number, index: number): void {
    if (count === 0) return;
    const core = this.#core;
    const { dims, dimension } = this.#facts;
    const kept = this.#rerank?.source.kind === 'kept';
    const { coded, bits } = given;
    if (coded !== undefined && this.bits === 8 && dims === dimension && !kept) {
      // Take codes as they are.
      const step = Math.min(count, rowsAtOnce(dimension));
      core.withMemory(step * (dimension + 8), (scales) => {
        for (let row = first; row < first + count; row += step) {
          const rows = Math.min(step, first + count - row);
          const codes = coded.codes(row, rows, scales + step * 8);
          coded.copyScales(row, rows, scales);
          const status = this.#store.takeCodes(codes, scales, rows, index + row - first);
          checkEncoded(core, status, { x: scales, rows, dimension: 1, row });
        }
      });
      return;
    }
    if (bits !== undefined) {
      const { width, flip, at } = bits;
      const step = rowsAtOnce(width);
      for (let row = first; row < first + count; row += step) {
        const rows = Math.min(step, first + count - row);
        this.#store.takeBits(at(row, rows), width, rows, flip, index + row - first);
      }
      return;
    }
    this.#eachTile(given, first, count, (x, row, rows, full) => {
      const to = index + row - first;
      checkEncoded(core, this.#store.encode(x, rows, to), { x, rows, dimension: dims, row });
      if (kept) checkEncoded(core, this.#store.keepRows(full, rows, to), { x: full, rows, dimension, row });
    });
  }

  remove(ids: readonly VectorId[]): number {
    this.#checkAlive();
    if (!Array.isArray(ids)) throw typeError('ids', ofType('array of strings or numbers'), ids);
    let removed = 0;
    for (const id of ids) {
      const index = this.#ids.indexOf(id);
      if (index === undefined) continue;
      this.#store.setAlive(index, false);
      this.#store.clear(index, 1);
      this.#ids.delete(index);
      for (const since of this.#removedSince) since.add(index);
      if (this.#reuses) this.#free.push(index);
      this.#isSorted = false;
      removed++;
    }
    this.#count -= removed;
    if (removed > 0) this.#version++;
    return removed;
  }

  update(
    ids: readonly VectorId[],
    vectors: VectorInput | ByteVectors | QuantizedTensor,
    options: Pick<AddOptions, 'from' | 'ranges'> = {},
  ): void {
    this.#checkAlive();
    checkOptionsOf('index.update', options);
    const names = checkIds(ids);
    const given = readVectors(this.#core, vectors, this.metric, options, this.dimension);
    this.#checkAlive();
    if (given.count !== names.length) throw rangeError('vectors', exactly(names.length, 'vectors'), given.count);
    this.#checkFile();
    const indices = names.map((id, i) => {
      const index = this.#ids.indexOf(id);
      if (index === undefined) throw rangeError(`ids[${i}]`, { kind: 'returnedBy', call: 'index' }, id);
      return index;
    });
    // Make all codes once behind the others, where an error changes nothing.
    const end = this.#ids.length;
    this.#store.grow(end + names.length);
    try {
      this.#fill(given, 0, names.length, end);
      for (const [row, index] of indices.entries()) this.#fill(given, row, 1, index);
    } finally {
      this.#store.clear(end, names.length);
    }
    this.#version++;
  }

  has(id: VectorId): boolean {
    this.#checkAlive();
    return this.#ids.indexOf(id) !== undefined;
  }

  // ----------------------------------------------------------------------------------------------------------------- search

  /** Checks the options of a search. */
  #wanted(k: unknown, { filter, rerank }: SearchOptions, canWait: boolean): Wanted {
    const most = Math.min(checkWhole(k, 'k', 1), this.#count);
    const own = this.#rerank;
    let again = 0;
    if (rerank !== undefined && rerank !== false) {
      checkFactor(rerank, 'rerank');
      if (own === undefined) throw typeError('rerank', onlyWith('index.rerank'), rerank);
    }
    if (own !== undefined && rerank !== false) {
      if (!canWait && (own.source.kind === 'file' || own.source.kind === 'fetched')) {
        const message = 'the vectors for it are read or fetched, for which searchMany waits';
        throw typeError('rerank', oneOf([false]), rerank, { kind: 'because', message });
      }
      again = Math.min(this.#count, Math.ceil(most * (rerank ?? own.factor)));
    }
    const allowed = allowedWords(filter, this.#store, this.#ids);
    // Check after the filter, which runs code of the caller.
    this.#checkAlive();
    return { k: most, allowed, again };
  }

  /** Queries with a bit for each element, as floats 1 and -1; undefined for other inputs. */
  #bitsOf(queries: unknown, what: string): Query[] | undefined {
    if (this.metric !== 'hamming') return undefined;
    const core = this.#core;
    const { dimension } = this;
    const given = bitRows(core, queries, { what, dimension });
    this.#checkAlive();
    if (given === undefined) return undefined;
    if (given.dimension !== dimension) throw rangeError(what, exactly(dimension, 'elements'), given.dimension);
    return core.withMemory(dimension * 4, (own) =>
      Array.from({ length: given.count }, (_, i) => {
        const at = given.floats(i, 1, own) >>> 2;
        return core.module.HEAPF32.slice(at, at + dimension);
      }),
    );
  }

  /** A copy of a vector of floats. */
  #copyOf(query: unknown, what: string): Query {
    const { dimension } = this;
    const source = sourceOf(this.#core, query, undefined, what);
    this.#checkAlive();
    if (source.length !== dimension) throw rangeError(what, exactly(dimension, 'elements'), source.length);
    const at = source.at(0, dimension) >>> 2;
    return this.#core.module.HEAPF32.slice(at, at + dimension);
  }

  search(query: FloatInput | Uint8Array | Int8Array, k = 10, options: SearchOptions = {}): SearchResult {
    this.#checkAlive();
    checkOptionsOf('index.search', options);
    const { dimension } = this;
    const given = this.#bitsOf(query, 'query') ?? [this.#copyOf(query, 'query')];
    const [copy] = given;
    if (copy === undefined || given.length > 1)
      throw rangeError('query', exactly(dimension, 'elements'), given.length * dimension);
    const wanted = this.#wanted(k, options, false);
    const [found] = this.#scan([copy], wanted, () => 'query') as [Found];
    return this.#resultOf(wanted.again === 0 ? found : this.#scoreStored(copy, found, wanted.k));
  }

  /** The best vectors of some queries by their codes. */
  #scan(queries: readonly Query[], { k, again, allowed }: Wanted, nameOf = queryName): Found[] {
    return this.#withPrepared(queries, nameOf, (at) =>
      this.#store.search(at, queries.length, Math.max(k, again), allowed),
    );
  }

  /** Calls f with the address of prepared queries. @param nameOf names a query by its place, for errors */
  #withPrepared<T>(queries: readonly Query[], nameOf: (i: number) => string, f: (at: number) => T): T {
    const core = this.#core;
    const { queryBytes } = this.#store;
    const { dims } = this.#facts;
    return core.withMemory(queries.length * queryBytes + dims * 4, (at) => {
      const x = at + queries.length * queryBytes;
      for (const [i, query] of queries.entries()) {
        core.module.HEAPF32.set(query.subarray(0, dims), x >>> 2);
        const status = this.#store.prepare(x, at + i * queryBytes);
        if (status === StatusId.nonFinite || query.some((value) => !Number.isFinite(value))) {
          const bad = query.findIndex((value) => !Number.isFinite(value));
          const name = nameOf(i);
          const message = bad < 0 ? `${name} is too long for float32` : `${name}[${bad}] is ${query[bad]}`;
          throw new ScalepointError('NON_FINITE', message);
        }
        if (status === StatusId.overflow)
          throw new ScalepointError('OVERFLOW', `${nameOf(i)} is too long, or too short, for the range of float32`);
        checkStatus(status);
      }
      return f(at);
    });
  }

  /** The best vectors of some queries by their codes, found by workers. */
  async #scanShares(shares: Shares, queries: readonly Query[], k: unknown, options: SearchOptions): Promise<Scanned> {
    const removed = new Set<number>();
    this.#removedSince.add(removed);
    try {
      const wanted = this.#wanted(k, options, true);
      await shares.update();
      this.#checkAlive();
      const { allowed } = wanted;
      if (allowed !== undefined) {
        for (const index of removed) allowed[index >>> 5]! &= ~(1 << (index & 31));
      }
      const prepared = this.#withPrepared(queries, queryName, (at) =>
        this.#core.module.HEAPU8.slice(at, at + queries.length * this.#store.queryBytes),
      ) as Uint8Array<ArrayBuffer>;
      const all = await shares.scan(prepared, Math.max(wanted.k, wanted.again), allowed);
      this.#checkAlive();
      if (removed.size === 0) return { wanted, found: all };
      const found = all.map(
        ({ indices, scores }): Found => ({
          indices: indices.filter((index) => !removed.has(index)),
          scores: scores.filter((_, i) => !removed.has(indices[i] ?? NaN)),
        }),
      );
      return { wanted, found };
    } finally {
      this.#removedSince.delete(removed);
    }
  }

  /** The workers for a search, which `leave` gives back. Those of another number end when nothing uses them. */
  async #enterShares(count: number, { worker, signal }: SearchManyOptions): Promise<Shares> {
    for (;;) {
      const before = this.#shares;
      if (before === undefined) {
        this.#shares = this.#startShares(count, { worker, signal });
        // Every search that waits sees the failure, or starts workers of its own.
        this.#shares.catch(() => {});
        const own = this.#shares;
        try {
          await own;
        } catch (error) {
          if (this.#shares === own) this.#shares = undefined;
          throw error;
        }
        continue;
      }
      const shares = await before.catch(() => undefined);
      this.#checkAlive();
      if (shares?.count === count && !shares.ended) {
        shares.enter();
        return shares;
      }
      await shares?.idle();
      // Another search may have come first.
      if (this.#shares !== before || shares?.used) continue;
      this.#shares = undefined;
      shares?.dispose(disposedError('the workers'));
    }
  }

  async #startShares(count: number, options: Pick<SearchManyOptions, 'worker' | 'signal'>): Promise<Shares> {
    // Most searches need no workers.
    const { Shares } = await imported(import('./shares.js'));
    this.#checkAlive();
    const shares = await Shares.start(this.#store, this.#core.module, count, options);
    try {
      this.#checkAlive();
    } catch (error) {
      shares.dispose(error);
      throw error;
    }
    if (this.#ids.length > 0) shares.change(0, this.#ids.length);
    this.#store.onChange = (first, n) => shares.change(first, n);
    return shares;
  }

  /** Scores vectors again by their kept rows or their codes, and keeps the best k. */
  #scoreStored(query: Query, found: Found, k: number): Found {
    const core = this.#core;
    const store = this.#store;
    const { kept } = store.form;
    if (kept !== undefined) {
      const addresses = Array.from(found.indices, (index) => store.rowAddress(index));
      return this.#scoreAgain(query, found, { kind: kept.kind, addresses }, k);
    }
    const { dims } = this.#facts;
    const rowBytes = core.module.storedRowBytes(StoredRowId.int8, dims);
    return core.withMemory(found.indices.length * rowBytes, (rows) => {
      const addresses = Array.from(found.indices, (_, i) => rows + i * rowBytes);
      const factors = Array.from(found.indices, (index, i) => {
        const row = rows + i * rowBytes;
        store.copyCodes(index, row);
        if (this.metric === 'euclidean') return 1;
        // Codes are floats as they are, and products with scales are not. Cosines need no scale.
        const { HEAPF32 } = core.module;
        const { [row >>> 2]: scale = 1 } = HEAPF32;
        HEAPF32[row >>> 2] = 1;
        return this.metric === 'dot' ? scale : 1;
      });
      return this.#scoreAgain(query.subarray(0, dims), found, { kind: StoredRowId.int8, addresses, factors }, k);
    });
  }

  /** Scores vectors by their rows, and keeps the best k. @param rows `factors` multiply the scores */
  #scoreAgain(
    query: Query,
    found: Found,
    rows: Pick<Rows, 'kind' | 'addresses'> & { readonly factors?: readonly number[] },
    k: number,
  ): Found {
    const core = this.#core;
    const n = rows.addresses.length;
    const { metric } = this;
    const dimension = query.length;
    const scores = core.withMemory(n * 12 + dimension * 8, (to) => {
      const q = to + n * 8;
      const scratch = q + dimension * 4;
      const at = scratch + dimension * 4;
      core.module.HEAPF32.set(query, q >>> 2);
      core.module.HEAPU32.set(rows.addresses, at >>> 2);
      core.module.scoreRows(MetricId[metric], q, dimension, rows.kind, at, n, to, scratch);
      // Short vectors keep their order in float64.
      return core.module.HEAPF64.slice(to / 8, to / 8 + n).map((score, i) => score * (rows.factors?.[i] ?? 1));
    });
    const sign = signOf(metric);
    const scored = Array.from(found.indices, (index, i) => {
      const score = scores[i] ?? NaN;
      // Rows of a file may hold NaN, which is worse than any score.
      return { index, score, value: Number.isNaN(score) ? -Infinity : score * sign };
    });
    const best = scored.sort((a, b) => b.value - a.value || a.index - b.index).slice(0, k);
    return {
      indices: Uint32Array.from(best, ({ index }) => index),
      scores: Float32Array.from(best, ({ score }) => score),
    };
  }

  #resultOf({ indices, scores }: Found): SearchResult {
    return { ids: Array.from(indices, (index) => this.#ids.at(index)), indices, scores };
  }

  async searchMany(
    queries: VectorInput | ByteVectors,
    k = 10,
    options: SearchManyOptions = {},
  ): Promise<SearchResult[]> {
    this.#checkAlive();
    checkOptionsOf('index.searchMany', options);
    const { signal, onProgress, workers = this.#workers } = options;
    if (onProgress !== undefined) checkFunction(onProgress, 'onProgress');
    if (signal !== undefined) checkSignal(signal, 'signal');
    checkWhole(workers, 'workers', 0, maxWorkers);
    if (options.worker !== undefined) checkFunction(options.worker, 'worker');
    signal?.throwIfAborted();
    const list = this.#queriesOf(queries);
    const waiting = waitingFor(signal);
    let shares: Shares | undefined;
    try {
      if (workers > 0) shares = await waiting.soon(this.#enterShares(workers, options), (late) => late.leave());
      this.#checkAlive();
      const codes = (this.#count * this.#store.vectorBytes) / Math.max(1, workers);
      const step = codes <= bytesAtOnce ? queriesAtOnce : Math.max(1, Math.floor(bytesInTurn / codes));
      const results: SearchResult[] = [];
      /** Groups that workers have at the moment, so that they need not wait for the next one. */
      const ahead: Promise<SearchResult[]>[] = [];
      const takeFirst = async () => {
        results.push(...(await waiting.soon(ahead.shift() as Promise<SearchResult[]>)));
        onProgress?.({ done: results.length, total: list.length });
        signal?.throwIfAborted();
      };
      for (let i = 0; i < list.length; i += step) {
        const some = list.slice(i, i + step);
        if (shares !== undefined) {
          if (ahead.length === groupsAtOnce) await takeFirst();
          const group = this.#scanShares(shares, some, k, options).then(({ wanted, found }) =>
            this.#finish(some, found, wanted, waiting.soon),
          );
          // Errors are seen when its turn comes, or not at all after an earlier one.
          group.catch(() => {});
          ahead.push(group);
          continue;
        }
        if (i > 0) await waiting.soon(nextTask());
        signal?.throwIfAborted();
        this.#checkAlive();
        const wanted = this.#wanted(k, options, true);
        const found = this.#scan(some, wanted);
        results.push(...(await this.#finish(some, found, wanted, waiting.soon)));
        onProgress?.({ done: results.length, total: list.length });
      }
      while (ahead.length > 0) await takeFirst();
      return results;
    } finally {
      shares?.leave();
      waiting.end();
    }
  }

  /** Copies of the queries of a caller. */
  #queriesOf(queries: VectorInput | ByteVectors): Query[] {
    const core = this.#core;
    const { dimension } = this;
    const bits = this.#bitsOf(queries, 'queries');
    if (bits !== undefined) return bits;
    if (isList(queries)) return queries.map((query, i) => this.#copyOf(query, queryName(i)));
    if (Array.isArray(queries) && queries.length === 0) return [];
    const length = (queries as { readonly length?: number }).length;
    const shape = length === undefined ? undefined : [Math.floor(length / dimension), dimension];
    const asked = vectorsOf(core, queries as VectorInput, shape, undefined, 'queries');
    if (asked.dimension !== dimension) throw rangeError('queries', exactly(dimension, 'elements'), asked.dimension);
    return Array.from({ length: asked.count }, (_, i) => {
      const at = asked.source.at(i * dimension, dimension) >>> 2;
      return core.module.HEAPF32.slice(at, at + dimension);
    });
  }

  /** Scores the vectors of some queries again if that was asked for. */
  async #finish(
    queries: readonly Query[],
    found: readonly Found[],
    { k, again }: Wanted,
    soon: <T>(promise: Promise<T>) => Promise<T>,
  ): Promise<SearchResult[]> {
    const source = this.#rerank?.source;
    if (again === 0 || source === undefined) return found.map((one) => this.#resultOf(one));
    if (source.kind === 'kept' || source.kind === 'codes')
      return found.map((one, i) => this.#resultOf(this.#scoreStored(queries[i] as Query, one, k)));
    // Get each vector once.
    const indices = [...new Set(found.flatMap((one) => [...one.indices]))].sort((a, b) => a - b);
    const ids = indices.map((index) => this.#ids.at(index));
    if (indices.length === 0) return found.map((one) => this.#resultOf(one));
    const bytes = this.#core.module.storedRowBytes(
      source.kind === 'file' ? source.row : StoredRowId.float32,
      this.dimension,
    );
    const rows =
      source.kind === 'file'
        ? await readRows(this.#core, source, indices, bytes, soon)
        : await fetchRows(this.#core, source.fetch, ids, this.dimension, soon);
    try {
      this.#checkAlive();
      const place = new Map(indices.map((index, i) => [index, i]));
      return found.map((one, q) => {
        // Leave out vectors that were removed in the meantime, and indices that others got.
        const kept = [...one.indices].filter((index) => {
          const id = ids[place.get(index) as number] as VectorId;
          return this.#ids.indexOf(id) === index;
        });
        const addresses = kept.map((index) => rows.addresses[place.get(index) as number] as number);
        const left: Found = { indices: Uint32Array.from(kept), scores: one.scores };
        return this.#resultOf(this.#scoreAgain(queries[q] as Query, left, { kind: rows.kind, addresses }, k));
      });
    } finally {
      if (!this.#core.disposed) rows.release();
    }
  }

  // -------------------------------------------------------------------------------------------------------------- out again

  tensor(): LinearQuantizedTensor<Int8Array<ArrayBuffer>> & NewParameters {
    this.#checkAlive();
    if (this.bits !== 8) throw rangeError('bits', oneOf([8]), this.bits);
    const { dims } = this.#facts;
    const count = this.#count;
    const data = new Int8Array(count * dims);
    const scale = new Float32Array(count);
    let row = 0;
    for (let first = 0; first < this.#ids.length; ) {
      if (!this.#store.isAlive(first)) {
        first++;
        continue;
      }
      let end = first + 1;
      if (count === this.#ids.length) end = count;
      else while (end < this.#ids.length && this.#store.isAlive(end)) end++;
      const n = end - first;
      this.#store.readCodes(first, n, data.subarray(row * dims, (row + n) * dims), scale.subarray(row, row + n));
      row += n;
      first = end;
    }
    const granularity = { kind: 'per-channel', axis: 0 } as const;
    const zeroPoint = new Int32Array(count);
    return plain({ kind: 'linear', dtype: 'int8', shape: [count, dims], granularity, data, scale, zeroPoint });
  }

  recall(vectors: VectorInput | ByteVectors, queries: VectorInput | ByteVectors, options: RecallOptions = {}): number {
    this.#checkAlive();
    checkOptionsOf('recall', options);
    const core = this.#core;
    const { dimension } = this;
    const k = Math.min(checkWhole(options.k ?? 10, 'k', 1), this.#count);
    const list = this.#queriesOf(queries);
    const { rerank } = options;
    const found = list.map((query) => new Set(this.search(query, k, { rerank }).indices));
    const given = readVectors(core, vectors, this.metric, options, dimension);
    if (given.count !== this.#count) throw rangeError('vectors', exactly(this.#count, 'vectors'), given.count);
    const exact = this.#searchExactly(given, list, k);
    let hits = 0;
    for (const [i, indices] of exact.entries()) for (const index of indices) if (found[i]?.has(index)) hits++;
    return hits / (k * list.length);
  }

  /** The indices of the best k vectors of each query, by exact scores. */
  #searchExactly(given: GivenVectors, queries: readonly Query[], k: number): number[][] {
    const { dimension, metric } = this;
    const alive = Array.from({ length: this.#ids.length }, (_, i) => i).filter((index) => this.#store.isAlive(index));
    const sign = signOf(metric);
    const best: { index: number; value: number }[][] = queries.map(() => []);
    const step = rowsAtOnce(dimension);
    for (let first = 0; first < given.count; first += step) {
      const rows = Math.min(step, given.count - first);
      this.#core.withMemory(rows * dimension * 4, (own) => {
        const x = given.floats(first, rows, own);
        const addresses = Array.from({ length: rows }, (_, i) => x + i * dimension * 4);
        const indices = Uint32Array.from(addresses, (_, i) => alive[first + i] as number);
        for (const [q, query] of queries.entries()) {
          const found = { indices, scores: new Float32Array(0) };
          const scored = this.#scoreAgain(query, found, { kind: StoredRowId.float32, addresses }, k);
          const more = Array.from(scored.indices, (index, i) => ({
            index,
            value: (scored.scores[i] as number) * sign,
          }));
          const all = [...(best[q] ?? []), ...more].sort((a, b) => b.value - a.value || a.index - b.index);
          best[q] = all.slice(0, k);
        }
      });
    }
    return best.map((list) => list.map(({ index }) => index));
  }

  save(output?: undefined, options?: SaveOptions): Promise<Uint8Array<ArrayBuffer>>;
  save(output: IndexOutput, options?: SaveOptions): Promise<undefined>;
  async save(output?: IndexOutput, options: SaveOptions = {}): Promise<Uint8Array<ArrayBuffer> | undefined> {
    this.#checkAlive();
    checkOptionsOf('index.save', options);
    const version = this.#version;
    const source = this.#rerank?.source;
    // Most apps that search do not save.
    const { saveIndex } = await imported(import('./save.js'));
    const parts = {
      facts: this.#facts,
      store: this.#store,
      ids: this.#ids,
      factor: this.#rerank?.factor,
      rows: source?.kind === 'file' ? source.file : undefined,
      check: () => {
        this.#checkAlive();
        if (this.#version !== version) throw new ScalepointError('CHANGED', 'the index was changed while it was saved');
      },
    };
    return saveIndex(this.#core, parts, output, options);
  }

  dispose(): void {
    if (!this.#alive) return;
    this.#alive = false;
    const source = this.#rerank?.source;
    if (source?.kind === 'file') source.file.close().catch(() => {});
    this.#shares?.then((shares) => shares.dispose(disposedError('the index'))).catch(() => {});
    if (!this.#core.disposed) this.#store.dispose();
    if (this.#ownsCore) this.#core.dispose();
  }

  [Symbol.dispose](): void {
    this.dispose();
  }
}

/** See Scalepoint.index. */
export function makeIndex(
  core: Core,
  vectors: VectorInput | ByteVectors | QuantizedTensor,
  options: IndexOptions,
): SearchIndex {
  checkOptionsOf('index', options);
  readChoice(options, 'dtype', ['int8']);
  const queries = readChoice(options, 'queries', ['int8', 'float32']) === 'int8' ? undefined : 'float32';
  const metric = readChoice(options, 'metric', metrics);
  const isHamming = metric === 'hamming';
  const bits = checkChoice(options.bits ?? (isHamming ? 1 : 8), 'bits', isHamming ? [1] : [1, 2, 4, 8]);
  if (queries !== undefined && bits !== 8) throw rangeError('queries', onlyWith('bits', 8), queries);
  if (isHamming && options.rerank !== undefined) throw typeError('rerank', without('metric', 'hamming'));
  const seed = checkWhole(options.seed ?? 0, 'seed', 0, 2 ** 32 - 1);
  const given = readVectors(core, vectors, metric, options);
  const { dimension } = given;
  if (dimension > maxDimension) throw rangeError('shape', whole(1, maxDimension), dimension);
  const dims = checkWhole(options.dims ?? dimension, 'dims', 1, dimension);
  const { ids, workers = 0 } = options;
  checkWhole(workers, 'workers', 0, maxWorkers);
  let rerank = queries === undefined ? undefined : scoredByCodes;
  if (options.rerank !== undefined) {
    checkKeys(options.rerank, ['source', 'factor'], 'rerank');
    rerank = rerankOf(options.rerank, dimension);
  }
  const facts: IndexFacts = { dimension, dims, bits, metric, seed, queries };
  const index = new SearchIndex(core, facts, {
    rerank,
    workers,
    hasIds: ids !== undefined,
    ownsCore: false,
    centered: false,
  });
  try {
    index.addGiven(given, ids);
  } catch (error) {
    index.dispose();
    throw error;
  }
  return index;
}
