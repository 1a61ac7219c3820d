/// <reference lib="esnext.disposable" preserve="true" />
// The types of vector search: an index, its options and results.
import type { NewParameters } from '../arrays/options.js';
import type { FloatInput, HalfFormat } from '../arrays/source.js';
import type { LinearQuantizedTensor, QuantizedTensor } from '../arrays/tensor.js';
import type { LoadOptions } from '../core/load-options.js';
import type { NodeWritableHandle } from '../core/node.js';
import type { WorkerLike } from '../core/worker-like.js';
import type { ByteVectors, VectorInput } from './vectors.js';

/** Identifies a vector: a string, or a whole number of at most 2^53 - 1. */
export type VectorId = string | number;

/**
 * The score of a vector x for a query q: `<q, x>`, `<q, x> / (|q| |x|)`, the distance `|q - x|`, or the Hamming distance, which is the number
 * of elements of which one is above 0 and the other is not. Smaller distances are better.
 */
export type VectorMetric = 'dot' | 'cosine' | 'euclidean' | 'hamming';

/**
 * Gets vectors by their ids, in the same order, at full length: from IndexedDB, a server, or memory of the caller's.
 * @returns the vectors in one array or one by one, or a promise of them
 */
export type FetchVectors = (ids: readonly VectorId[]) => VectorInput | Promise<VectorInput>;

/** Options of `rerank`: the best vectors by their codes are scored again by the vectors themselves. */
export interface RerankOptions {
  /**
   * The vectors to score again. 'int8' and 'float16': copies that the index keeps in wasm memory, at full length. A Blob or File: rows of
   * float32, the vector with index i at byte `4 * i * dimension`, read when they are needed. A function: gets them from the caller. With a
   * Blob or a function, only `searchMany` scores again.
   */
  source: 'int8' | 'float16' | Blob | FetchVectors;
  /** Scores `factor * k` vectors again; a number of at least 1. @defaultValue 8 */
  factor?: number | undefined;
}

/** Options of `index`. */
export interface IndexOptions {
  /**
   * [count, dimension], for vectors in one array, of at most 65536 elements each. With a bit for each element: [count, bytes of a vector]. Not
   * needed for a list of vectors or a quantized tensor.
   */
  shape?: readonly number[] | undefined;
  /** Type of the codes. @defaultValue 'int8' */
  dtype?: 'int8' | undefined;
  /** Bits of a code. @defaultValue 8, or 1 with metric 'hamming', which has no other width */
  bits?: 1 | 2 | 4 | 8 | undefined;
  /**
   * The score. 'hamming' stores a bit for each element, and takes ready ones as well:
   * a Uint8Array with the first element in the highest bit (`ubinary` of sentence-transformers, `numpy.packbits`), or an Int8Array of these
   * bytes minus 128 (`binary`). @defaultValue 'dot'
   */
  metric?: VectorMetric | undefined;
  /**
   * Searches by the first elements of each vector alone, for models that are trained for it (Matryoshka).
   * @defaultValue all elements
   */
  dims?: number | undefined;
  /** An id for each vector. @defaultValue the indices */
  ids?: readonly VectorId[] | undefined;
  /** Scores the best again. @defaultValue no second score */
  rerank?: RerankOptions | undefined;
  /**
   * Chooses the rotation of vectors before they become codes of 1, 2 or 4 bits: a whole number below 2^32.
   * @defaultValue 0
   */
  seed?: number | undefined;
  /**
   * Type of the query in a search over 8 bits. 'int8': quantizes the query, too, which takes half the time. 'float32': uses the query as
   * it is, which has a slightly higher recall: scores the best 8 k vectors by their codes again.
   * @defaultValue 'int8'
   */
  queries?: 'int8' | 'float32' | undefined;
  /**
   * Ranges of vectors that are codes in an Int8Array or Uint8Array, as `quantize_embeddings` of sentence-transformers makes them: the least
   * value of each element, then the largest. The index takes each code as the middle of the values that become it. Queries stay floats.
   */
  ranges?: VectorInput | undefined;
  /** Workers of each `searchMany` that names no number. @defaultValue 0 */
  workers?: number | undefined;
  /** The vectors are a Uint16Array of the bits of such floats. */
  from?: HalfFormat | undefined;
}

/** Options of `VectorIndex.add`. */
export interface AddOptions {
  /** An id for each vector, which no vector of the index has. Needed if the others have ids. */
  ids?: readonly VectorId[] | undefined;
  /** Ranges of vectors that are codes; as for `sp.index`. */
  ranges?: VectorInput | undefined;
  /** The vectors are a Uint16Array of the bits of such floats. */
  from?: HalfFormat | undefined;
}

/** Options of `VectorIndex.search`. */
export interface SearchOptions {
  /**
   * The vectors to search: a function of their ids, called once for each vector; or a bit for each index, the lowest bit of byte 0 first.
   * @defaultValue all vectors
   */
  filter?: ((id: VectorId) => boolean) | Uint8Array | undefined;
  /** The factor of `rerank`, or false to score once. @defaultValue that of the index */
  rerank?: number | false | undefined;
}

/** Options of `VectorIndex.searchMany`. */
export interface SearchManyOptions extends SearchOptions {
  /**
   * Number of workers that search, from 0 to 64. Each gets a copy of the codes of its share of the vectors with the first such search, and
   * later what has changed since; it stays until `dispose`, or a search with another number. Every number gives the same results.
   * With 0, the calling thread searches.
   * @defaultValue that of the index
   */
  workers?: number | undefined;
  /**
   * Makes a worker from the file `scalepoint/worker`, for bundlers that do not find it and for pages with Trusted Types.
   * @defaultValue the file beside this module
   */
  worker?: (() => WorkerLike) | undefined;
  /** Called after each group of queries. An error that it throws ends the search. */
  onProgress?: ((progress: SearchProgress) => void) | undefined;
  /** Stops the search; the promise is rejected with the signal's reason. */
  signal?: AbortSignal | undefined;
}

/** Progress of a search, or of the opening or saving of an index. */
export interface SearchProgress {
  /** Queries or bytes that are done. */
  readonly done: number;
  /** All queries or bytes. */
  readonly total: number;
}

/** Results of a search, best first; of equal scores the lower index comes first. */
export interface SearchResult {
  /** Ids of the vectors: their indices, unless ids were given. */
  readonly ids: readonly VectorId[];
  /** Indices of the vectors, in the order in which they were added. Indices of removed vectors are used again if vectors have ids. */
  readonly indices: Uint32Array<ArrayBuffer>;
  /** Their scores: dot products, cosines, or distances; Hamming distances are exact. */
  readonly scores: Float32Array<ArrayBuffer>;
}

/** Options of `VectorIndex.recall`. */
export interface RecallOptions {
  /** Number of results to compare. @defaultValue 10 */
  k?: number | undefined;
  /** The factor of `rerank`, or false to score once. @defaultValue that of the index */
  rerank?: number | false | undefined;
  /** The vectors are a Uint16Array of the bits of such floats. */
  from?: HalfFormat | undefined;
}

/** Options of `VectorIndex.save`. */
export interface SaveOptions {
  /** Replaces an existing file. @defaultValue false */
  overwrite?: boolean | undefined;
  /** Called with the bytes that are written. */
  onProgress?: ((progress: SearchProgress) => void) | undefined;
  /** Stops the work; the promise is rejected with the signal's reason. */
  signal?: AbortSignal | undefined;
}

/**
 * An index of vectors as codes in wasm memory. Made by `sp.index` and `openIndex`.
 */
export interface VectorIndex {
  /** Length of a vector. */
  readonly dimension: number;
  /** Bits of a code. */
  readonly bits: 1 | 2 | 4 | 8;
  /** The score. */
  readonly metric: VectorMetric;
  /** Number of vectors. */
  readonly count: number;
  /** Size of the index in wasm memory, in bytes. */
  readonly bytes: number;
  /**
   * Adds vectors: floats or bytes in one array or one by one, or a quantized tensor. Their indices go from the number of vectors so far on; with
   * ids, indices of removed vectors are used first. After an error the index is as before. Memory grows by half at least, without a copy,
   * so that vectors may come one at a time.
   * @param options ids of the vectors, or options
   * @example index.add(moreVectors, ['a', 'b']);
   * @throws as `sp.index`
   */
  add(vectors: VectorInput | ByteVectors | QuantizedTensor, options?: readonly VectorId[] | AddOptions): void;
  /**
   * Removes vectors. Ids that the index does not have are ignored.
   * @returns the number of vectors that were removed
   * @throws TypeError if ids are no array; ScalepointError `DISPOSED`
   */
  remove(ids: readonly VectorId[]): number;
  /**
   * Replaces vectors, which keep their ids and indices. After an error the index is as before.
   * @throws RangeError for an id that the index does not have; as `add`
   */
  update(
    ids: readonly VectorId[],
    vectors: VectorInput | ByteVectors | QuantizedTensor,
    options?: Pick<AddOptions, 'from' | 'ranges'>,
  ): void;
  /** True if a vector has the id. */
  has(id: VectorId): boolean;
  /**
   * Finds the k vectors with the best scores, or all if there are fewer. @param k number of results @defaultValue 10
   * @example const { ids, scores } = index.search(query, 10, { filter: (id) => id !== 'a' });
   * @throws TypeError or RangeError naming the argument; ScalepointError `NON_FINITE`, `OUT_OF_MEMORY`, `DISPOSED`
   */
  search(query: FloatInput | Uint8Array | Int8Array, k?: number, options?: SearchOptions): SearchResult;
  /**
   * Searches for many queries, which takes less time for each, without blocking the thread for long. Vectors may be added, updated and
   * removed in the meantime: each query sees the index at one moment of the search, and no result names a vector that was removed since.
   * @returns a result for each query
   * @example const results = await index.searchMany(queries, 10, { filter: (id) => id !== 'a' });
   * @throws as `search`; what `rerank.source` throws; ScalepointError `WORKER`, `IO`; the signal's reason
   */
  searchMany(queries: VectorInput | ByteVectors, k?: number, options?: SearchManyOptions): Promise<SearchResult[]>;
  /**
   * Writes the index as one safetensors file, which `openIndex` opens. Without an output, the promise gives the bytes.
   * @param output a path or an open file (Node), a file handle of the browser, or a stream
   * @example await index.save('notes.index.safetensors');
   * @throws ScalepointError `EXISTS`, `IO`, `CHANGED` if the index changes in the meantime, `DISPOSED`; the signal's reason
   */
  save(output?: undefined, options?: SaveOptions): Promise<Uint8Array<ArrayBuffer>>;
  save(output: IndexOutput, options?: SaveOptions): Promise<void>;
  /**
   * Copies the codes and scales of all vectors, for storage: `saveTensors` takes them, and `sp.index` makes the same index of them. For 8 bits
   * alone.
   * @example const bytes = await saveTensors({ index: index.tensor() });
   * @throws RangeError with fewer bits; ScalepointError `OUT_OF_MEMORY`, `DISPOSED`
   */
  tensor(): LinearQuantizedTensor<Int8Array<ArrayBuffer>> & NewParameters;
  /**
   * Measures the recall against an exact search: the mean share of its best k results that this index finds, from 0 to 1. Takes the
   * vectors again, because the index keeps only their codes, and compares all of them with every query.
   * @example const share = index.recall(vectors, queries, { k: 10 });
   * @throws as `search`, and if the number or the length of the vectors differs from that of the index
   */
  recall(vectors: VectorInput | ByteVectors, queries: VectorInput | ByteVectors, options?: RecallOptions): number;
  /** Frees the memory. Safe to call twice. Any later use of the index throws ScalepointError `DISPOSED`. */
  dispose(): void;
  [Symbol.dispose](): void;
}

/** An output of `VectorIndex.save`. A path and a browser's file handle show nothing until the file is whole. */
export type IndexOutput =
  | string
  | URL
  | NodeWritableHandle
  | FileSystemFileHandle
  | FileSystemDirectoryHandle
  | WritableStream<Uint8Array<ArrayBuffer>>;

/** Options of `openIndex`. */
export interface OpenIndexOptions {
  /** Where the core comes from, and which build of it; as `load()`. */
  core?: LoadOptions | undefined;
  /**
   * Where the vectors of `rerank` stay, if the index was saved with some. 'memory': they are read into wasm memory. 'file': they are read when
   * `searchMany` needs them, from a URL by ranges, so that memory holds the codes alone; such an index cannot grow.
   * @defaultValue 'memory'
   */
  rerank?: 'memory' | 'file' | undefined;
  /** Called with the bytes that are read. */
  onProgress?: ((progress: SearchProgress) => void) | undefined;
  /** Stops the work; the promise is rejected with the signal's reason. */
  signal?: AbortSignal | undefined;
}
