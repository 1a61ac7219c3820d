// The file of an index: a safetensors file with some tensors, and the facts of the index as JSON in its metadata.
import { blockVectors } from '../core/door.js';
import type { Core } from '../core/memory.js';
import { waitingFor } from '../core/waiting.js';
import type { ByteSource } from '../formats/files/bytes.js';
import { memorySink, openSink } from '../formats/files/sinks.js';
import { madeBytes } from '../formats/format.js';
import { layoutSafetensors, type NamedTensor } from '../formats/safetensors/write-header.js';
import type { IdTable } from './ids.js';
import type { IndexOutput, SaveOptions, VectorMetric } from './search-types.js';
import type { StoredArray, VectorStore } from './vector-store.js';

/** The facts of an index that do not change. */
export interface IndexFacts {
  /** Length of a vector. */
  readonly dimension: number;
  /** Elements that have codes. */
  readonly dims: number;
  readonly bits: 1 | 2 | 4 | 8;
  readonly metric: VectorMetric;
  readonly seed: number;
  /** Undefined for queries of int8. */
  readonly queries: 'float32' | undefined;
}

/** Key of the metadata. */
export const indexKey = 'scalepoint.index';
export const indexVersion = 1;

/** Sizes of the arrays of an index. */
interface IndexSizes {
  /** Blocks of 32 vectors. */
  readonly blocks: number;
  readonly vectorBytes: number;
  /** Bytes of a row that is kept; 0 without. */
  readonly rowBytes: number;
  /** Bytes of the ids as JSON; undefined without. */
  readonly idBytes: number | undefined;
}

/** The tensors of the file of an index. */
export function partsOfIndex({ bits, dims, metric }: IndexFacts, sizes: IndexSizes): NamedTensor[] {
  const { blocks, vectorBytes, rowBytes, idBytes } = sizes;
  const vectors = blocks * 32;
  const parts: NamedTensor[] = [
    {
      name: 'codes',
      dtype: bits === 8 ? 'I8' : 'U8',
      shape: bits === 8 ? [vectors, vectorBytes] : [blocks, vectorBytes, 32],
    },
    { name: 'factors', dtype: 'F32', shape: [vectors] },
    { name: 'extras', dtype: 'F32', shape: [vectors] },
    { name: 'alive', dtype: 'U32', shape: [blocks] },
  ];
  if (bits !== 8 && metric !== 'hamming') parts.push({ name: 'center', dtype: 'F32', shape: [dims] });
  if (rowBytes > 0) parts.push({ name: 'rows', dtype: 'U8', shape: [vectors, rowBytes] });
  if (idBytes !== undefined) parts.push({ name: 'ids', dtype: 'U8', shape: [idBytes] });
  return parts;
}

/** Bytes that are written at a time. */
const chunk = 1 << 22;

/** The parts of an index. */
interface IndexParts {
  readonly facts: IndexFacts;
  readonly store: VectorStore;
  readonly ids: IdTable;
  /** The factor of a second score. */
  readonly factor: number | undefined;
  /** The file of the vectors for a second score, which must not be replaced. */
  readonly rows: ByteSource | undefined;
  /** Fails if the index was changed or disposed of. */
  check(): void;
}

/** Writes an index. Returns the bytes if no output is given. */
export async function saveIndex(
  core: Core,
  { facts, store, ids, factor, rows, check }: IndexParts,
  output: IndexOutput | undefined,
  { overwrite, onProgress, signal }: SaveOptions,
): Promise<Uint8Array<ArrayBuffer> | undefined> {
  signal?.throwIfAborted();
  const count = ids.length;
  const text =
    ids.all && new TextEncoder().encode(JSON.stringify(Array.from({ length: count }, (_, i) => ids.all?.[i] ?? null)));
  const { kept } = store.form;
  const blocks = Math.ceil(count / blockVectors);
  const parts = partsOfIndex(facts, {
    blocks,
    vectorBytes: store.vectorBytes,
    rowBytes: store.rowBytes,
    idBytes: text?.length,
  });
  const about = { version: indexVersion, ...facts, count, rerank: kept && { row: kept.kind, factor } };
  const { header, order, size } = layoutSafetensors(parts, { [indexKey]: JSON.stringify(about) });
  const waiting = waitingFor(signal);
  const memory = output === undefined ? memorySink(size) : undefined;
  const inputs = rows?.identity === undefined ? [] : [{ ...rows.identity, option: 'rerank' }];
  const sink =
    memory ?? (await openSink(output as IndexOutput, { overwrite, waiting, inputs, name: 'index.safetensors' }));
  try {
    let position = 0;
    const write = async (bytes: Uint8Array<ArrayBuffer>) => {
      check();
      await waiting.soon(sink.write(position, bytes));
      position += bytes.length;
      onProgress?.({ done: position, total: size });
      check();
    };
    await write(madeBytes(header));
    for (const index of order) {
      const { name } = parts[index] as (typeof parts)[number];
      if (name === 'ids') {
        const bytes = text as Uint8Array<ArrayBuffer>;
        for (let at = 0; at < bytes.length; at += chunk) await write(bytes.slice(at, at + chunk));
      } else if (name === 'center') {
        const { center } = store;
        await write(new Uint8Array(center.buffer));
      } else {
        const runs: [address: number, bytes: number][] = [];
        store.eachPart(name as StoredArray, count, (address, bytes) => runs.push([address, bytes]));
        for (const [address, bytes] of runs) {
          for (let at = 0; at < bytes; at += chunk) {
            const from = address + at;
            await write(core.module.HEAPU8.slice(from, from + Math.min(chunk, bytes - at)) as Uint8Array<ArrayBuffer>);
          }
        }
      }
    }
    await waiting.soon(sink.finish());
    return await memory?.bytes();
  } catch (error) {
    await sink.discard(error);
    throw error;
  } finally {
    waiting.end();
  }
}
