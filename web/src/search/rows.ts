// The vectors that the best are scored again by: kept in wasm memory, in a file, or with the caller.
import { checkNumber } from '../core/check.js';
import { StoredRowId } from '../core/door.js';
import { rangeError, ScalepointError, typeError } from '../core/errors.js';
import type { Core } from '../core/memory.js';
import { exactly, ofType, oneOf } from '../core/option-problem.js';
import type { ByteSource } from '../formats/files/bytes.js';
import type { FetchVectors, RerankOptions, VectorId } from './search-types.js';
import { isList, vectorsOf } from './vectors.js';

/** Where the vectors for a second score are. */
export type RowSource =
  /** In wasm memory, beside the codes. */
  | { readonly kind: 'kept'; readonly row: StoredRowId }
  /** In a file: that of index i at `begin + i * bytes`. */
  | {
      readonly kind: 'file';
      readonly row: StoredRowId;
      readonly file: ByteSource;
      readonly begin: number;
      /** Indices that it has. */
      readonly count: number;
      /** True if the file belongs to the caller, whose rows no later vector may take. */
      readonly fixed: boolean;
    }
  | { readonly kind: 'fetched'; readonly fetch: FetchVectors }
  /** The codes of 8 bits, which a query of floats is compared with. */
  | { readonly kind: 'codes' };

/** A source of a second score with its factor. */
export interface Rerank {
  readonly source: RowSource;
  readonly factor: number;
}

/** For queries of floats over codes of 8 bits. The codes of a query find the vectors to score. */
export const scoredByCodes: Rerank = { source: { kind: 'codes' }, factor: 8 };

/** Rows of some vectors in wasm memory. */
export interface Rows {
  readonly kind: StoredRowId;
  /** The address of each row. */
  readonly addresses: readonly number[];
  release(): void;
}

const keptKinds = { int8: StoredRowId.int8, float16: StoredRowId.float16 } as const;

/** @throws TypeError or RangeError naming the option */
export const checkFactor = (factor: unknown, name: string): number =>
  checkNumber(factor, name, { kind: 'number', min: 1, finite: true });

/** The source of rerank options. @throws TypeError or RangeError naming the option */
export function rerankOf({ source, factor = 8 }: RerankOptions, dimension: number): Rerank {
  checkFactor(factor, 'rerank.factor');
  if (typeof source === 'function') return { factor, source: { kind: 'fetched', fetch: source } };
  if (typeof Blob !== 'undefined' && source instanceof Blob) {
    const count = Math.floor(source.size / (4 * dimension));
    return {
      factor,
      source: { kind: 'file', row: StoredRowId.float32, file: blobBytes(source), begin: 0, count, fixed: true },
    };
  }
  if (typeof source === 'string' && Object.hasOwn(keptKinds, source)) {
    return { factor, source: { kind: 'kept', row: keptKinds[source as keyof typeof keptKinds] } };
  }
  const expected = [oneOf(Object.keys(keptKinds)), ofType('Blob', 'function')];
  throw typeError('rerank.source', { kind: 'anyOf', of: expected }, source);
}

/** A Blob to read rows of. */
function blobBytes(blob: Blob): ByteSource {
  return {
    size: blob.size,
    isFar: true,
    async read(begin, end) {
      try {
        return new Uint8Array(await blob.slice(begin, end).arrayBuffer());
      } catch (cause) {
        throw new ScalepointError('IO', 'cannot read the vectors of rerank.source', { cause });
      }
    },
    async verify() {},
    async close() {},
  };
}

/** Rows of a file that are read at the same time. */
const readsAtOnce = 16;
/** Bytes between two rows that are read with them. */
const mostGap = 1 << 14;

/** Reads rows of a file. @param indices in ascending order */
export async function readRows(
  core: Core,
  source: Extract<RowSource, { kind: 'file' }>,
  indices: readonly number[],
  rowBytes: number,
  soon: <T>(promise: Promise<T>) => Promise<T>,
): Promise<Rows> {
  const missing = indices.find((index) => index >= source.count);
  if (missing !== undefined) {
    throw new ScalepointError('BAD_FILE', `rerank.source has ${source.count} vectors, and none for index ${missing}`);
  }
  // Join neighboring rows, because each read takes long.
  const spans: { first: number; last: number }[] = [];
  for (const index of indices) {
    const span = spans.at(-1);
    if (span !== undefined && (index - span.last - 1) * rowBytes <= mostGap) span.last = index;
    else spans.push({ first: index, last: index });
  }
  const chunks = new Map<number, Uint8Array>();
  for (let i = 0; i < spans.length; i += readsAtOnce) {
    const some = spans.slice(i, i + readsAtOnce);
    const read = some.map(({ first, last }) =>
      source.file.read(source.begin + first * rowBytes, source.begin + (last + 1) * rowBytes),
    );
    for (const [j, bytes] of (await soon(Promise.all(read))).entries()) {
      const { first, last } = some[j] as { first: number; last: number };
      for (let index = first; index <= last; index++) {
        chunks.set(index, bytes.subarray((index - first) * rowBytes, (index - first + 1) * rowBytes));
      }
    }
  }
  const step = Math.ceil(rowBytes / 8) * 8;
  const memory = core.allocate(indices.length * step + 8);
  const start = Math.ceil(memory / 8) * 8;
  const addresses = indices.map((index, i) => {
    core.module.HEAPU8.set(chunks.get(index) as Uint8Array, start + i * step);
    return start + i * step;
  });
  return { kind: source.row, addresses, release: () => core.release(memory) };
}

/** Gets vectors from the caller. @throws TypeError or RangeError naming `rerank.source` */
export async function fetchRows(
  core: Core,
  fetch: FetchVectors,
  ids: readonly VectorId[],
  dimension: number,
  soon: <T>(promise: Promise<T>) => Promise<T>,
): Promise<Rows> {
  const vectors = await soon(Promise.resolve(fetch(ids)));
  const shape = isList(vectors) ? undefined : [ids.length, dimension];
  const { source, count, dimension: width } = vectorsOf(core, vectors, shape, undefined, 'rerank.source');
  if (count !== ids.length) throw rangeError('rerank.source', exactly(ids.length, 'vectors'), count);
  if (width !== dimension) throw rangeError('rerank.source', exactly(dimension, 'elements'), width);
  const memory = core.allocate(count * dimension * 4);
  try {
    for (let row = 0; row < count; row++) {
      const from = source.at(row * dimension, dimension);
      core.module.HEAPU8.copyWithin(memory + row * dimension * 4, from, from + dimension * 4);
    }
    const bad = core.module.firstNonFinite(memory, count * dimension);
    if (bad < count * dimension) {
      throw new ScalepointError('NON_FINITE', `rerank.source: element ${bad % dimension} of a vector is not finite`);
    }
  } catch (error) {
    core.release(memory);
    throw error;
  }
  const addresses = ids.map((_, i) => memory + i * dimension * 4);
  return { kind: StoredRowId.float32, addresses, release: () => core.release(memory) };
}
