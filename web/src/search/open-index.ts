// Opens the file of an index.
import { checkFunction, checkKeys, readChoice } from '../core/check.js';
import { maxDimension, StoredRowId } from '../core/door.js';
import { ScalepointError } from '../core/errors.js';
import { loadCore } from '../core/load.js';
import { checkLoadOptions } from '../core/load-options.js';
import type { Core } from '../core/memory.js';
import { show } from '../core/show.js';
import { waitingFor } from '../core/waiting.js';
import type { ByteSource, OptionFile } from '../formats/files/bytes.js';
import { fileOfHandle, openWithin } from '../formats/files/open.js';
import { readSafetensors, type TensorInfo } from '../formats/safetensors/header.js';
import { checkId, type IdTable } from './ids.js';
import { type Rerank, scoredByCodes } from './rows.js';
import { type IndexFacts, indexKey, indexVersion, partsOfIndex } from './save.js';
import { SearchIndex } from './search-index.js';
import type { OpenIndexOptions, VectorId, VectorIndex } from './search-types.js';
import type { StoredArray, VectorStore } from './vector-store.js';

const optionNames = ['core', 'rerank', 'onProgress', 'signal'] as const;

/** Bytes that are read at a time. */
const chunk = 1 << 22;

const bad = (message: string, tensor?: string, byteOffset?: number) =>
  new ScalepointError('BAD_FILE', message, { tensor, byteOffset });

/** The facts of a file, checked. */
interface FileFacts extends IndexFacts {
  /** Indices that were given so far. */
  readonly count: number;
  readonly rerank: { readonly row: StoredRowId; readonly factor: number } | undefined;
}

/** A member of a file's facts that has to be a whole number within bounds. */
function wholeMember(facts: Record<string, unknown>, name: string, min: number, max: number): number {
  const value = facts[name];
  if (typeof value === 'number' && Number.isInteger(value) && value >= min && value <= max) return value;
  throw bad(`the index has ${name} ${show(value)}, which is no whole number from ${min} to ${max}`);
}

/** A member that has to be one of some values. */
function memberOf<T>(facts: Record<string, unknown>, name: string, values: readonly T[]): T {
  const value = facts[name] as T;
  if (values.includes(value)) return value;
  throw bad(`the index has ${name} ${show(value)}, which is unknown`);
}

/** Reads the facts of a file. @throws ScalepointError `BAD_FILE` */
function factsOf(text: string | undefined): FileFacts {
  if (text === undefined) throw bad('the file is no index: index.save writes such files');
  let parsed: unknown;
  try {
    parsed = JSON.parse(text);
  } catch (cause) {
    throw new ScalepointError('BAD_FILE', 'the facts of the index are not JSON', { cause });
  }
  if (typeof parsed !== 'object' || parsed === null) throw bad('the facts of the index are no object');
  const facts = parsed as Record<string, unknown>;
  if (facts.version !== indexVersion)
    throw bad(`index.save writes version ${indexVersion}, not ${show(facts.version)}`);
  const dimension = wholeMember(facts, 'dimension', 1, maxDimension);
  let rerank: FileFacts['rerank'];
  if (facts.rerank !== undefined) {
    const given = (facts.rerank ?? {}) as Record<string, unknown>;
    const row = memberOf(given, 'row', [StoredRowId.int8, StoredRowId.float16]);
    const { factor } = given;
    if (typeof factor !== 'number' || !(factor >= 1) || factor > 2 ** 32)
      throw bad(`the index has factor ${show(factor)}`);
    rerank = { row, factor };
  }
  const metric = memberOf(facts, 'metric', ['dot', 'cosine', 'euclidean', 'hamming'] as const);
  return {
    dimension,
    dims: wholeMember(facts, 'dims', 1, dimension),
    bits: memberOf(facts, 'bits', metric === 'hamming' ? ([1] as const) : ([1, 2, 4, 8] as const)),
    metric,
    seed: wholeMember(facts, 'seed', 0, 2 ** 32 - 1),
    queries: facts.queries === undefined ? undefined : memberOf(facts, 'queries', ['float32'] as const),
    count: wholeMember(facts, 'count', 0, 2 ** 32 - 64),
    rerank,
  };
}

/** The tensors of a file by name, with the types and shapes that the facts ask for. @throws ScalepointError `BAD_FILE` */
function tensorsOf(
  tensors: readonly TensorInfo[],
  facts: FileFacts,
  store: VectorStore,
  rowBytes: number,
): ReadonlyMap<string, TensorInfo> {
  const byName = new Map(tensors.map((tensor) => [tensor.name, tensor]));
  const idBytes = byName.get('ids')?.bytes;
  const sizes = { blocks: Math.ceil(facts.count / 32), vectorBytes: store.vectorBytes, rowBytes, idBytes };
  const expected = partsOfIndex(facts, sizes);
  for (const { name, dtype, shape } of expected) {
    const tensor = byName.get(name);
    if (tensor === undefined) throw bad('the tensor is missing', name);
    if (tensor.dtype !== dtype || tensor.shape.join() !== shape.join()) {
      const found = `${tensor.dtype} [${tensor.shape.join(', ')}]`;
      throw bad(`the tensor is ${found} in place of ${dtype} [${shape.join(', ')}]`, name, tensor.byteOffset);
    }
  }
  for (const { name, byteOffset } of tensors) {
    if (!expected.some((part) => part.name === name)) throw bad('an index has no such tensor', name, byteOffset);
  }
  return byName;
}

/** Reads the ids of a file: null where a vector was removed. @throws ScalepointError `BAD_FILE` */
async function readIds(
  source: ByteSource,
  { byteOffset, bytes }: TensorInfo,
  store: VectorStore,
  count: number,
): Promise<(VectorId | undefined)[]> {
  let parsed: unknown;
  try {
    const text = await source.read(byteOffset, byteOffset + bytes);
    parsed = JSON.parse(new TextDecoder('utf-8', { fatal: true }).decode(text));
  } catch (cause) {
    if (cause instanceof ScalepointError) throw cause;
    throw new ScalepointError('BAD_FILE', 'the ids are not JSON', { tensor: 'ids', byteOffset, cause });
  }
  if (!Array.isArray(parsed) || parsed.length !== count) throw bad(`there are not ${count} ids`, 'ids', byteOffset);
  const seen = new Set<VectorId>();
  return parsed.map((id: unknown, i) => {
    if (store.isAlive(i) !== (id !== null)) throw bad(`id ${i} and the removed vectors differ`, 'ids', byteOffset);
    if (id === null) return undefined;
    let checked: VectorId;
    try {
      checked = checkId(id, `id ${i}`);
    } catch (cause) {
      throw new ScalepointError('BAD_FILE', `id ${i} is ${show(id)}`, { tensor: 'ids', byteOffset, cause });
    }
    if (seen.size === seen.add(checked).size) throw bad(`id ${show(checked)} is there twice`, 'ids', byteOffset);
    return checked;
  });
}

/** Reads the vectors of a file into the memory of an index. Returns their number. */
async function readVectors(
  source: ByteSource,
  facts: FileFacts,
  { core, store, ids, withRows }: { core: Core; store: VectorStore; ids: IdTable; withRows: boolean },
  { tensors, done }: { tensors: ReadonlyMap<string, TensorInfo>; done: (bytes: number) => void },
): Promise<number> {
  const { count } = facts;
  if (count > 0) store.grow(count, 0);
  const names: StoredArray[] = ['codes', 'factors', 'extras', 'alive'];
  if (withRows) names.push('rows');
  // Say what is read, so that nothing else is fetched from a server.
  const read = [...names, 'center', 'ids'].flatMap((name) => tensors.get(name) ?? []);
  source.expect?.(read.map(({ byteOffset, bytes }) => ({ begin: byteOffset, end: byteOffset + bytes })));
  for (const name of names) {
    const tensor = tensors.get(name) as TensorInfo;
    const runs: [address: number, bytes: number][] = [];
    store.eachPart(name, count, (address, bytes) => runs.push([address, bytes]));
    let position = tensor.byteOffset;
    for (const [address, bytes] of runs) {
      for (let at = 0; at < bytes; at += chunk) {
        const n = Math.min(chunk, bytes - at);
        const got = await source.read(position, position + n);
        core.module.HEAPU8.set(got, address + at);
        position += n;
        done(n);
      }
      const areFloats = name === 'factors' || name === 'extras';
      if (areFloats && core.module.firstNonFinite(address, bytes / 4) < bytes / 4)
        throw bad('a number is not finite', name, tensor.byteOffset);
    }
  }
  store.findBounds(0, count);
  // Find the vectors that are there.
  let alive = 0;
  for (const [i, word] of store.aliveWords().entries()) {
    for (let rest = word; rest !== 0; rest &= rest - 1) alive++;
    // Earlier releases left removed vectors in the file.
    for (let rest = ~word; rest !== 0; rest &= rest - 1) store.clear(i * 32 + 31 - Math.clz32(rest & -rest), 1);
    const over = i * 32 + 32 - count;
    const allowed = over <= 0 ? 0xffffffff : over >= 32 ? 0 : 0xffffffff >>> over;
    if ((word & ~allowed) !== 0) throw bad('a vector beyond the last one is there', 'alive');
  }
  const center = tensors.get('center');
  if (center !== undefined) {
    const bytes = await source.read(center.byteOffset, center.byteOffset + center.bytes);
    const values = new Float32Array(bytes.buffer, bytes.byteOffset, center.bytes / 4);
    if (values.some((value) => !Number.isFinite(value)))
      throw bad('a number is not finite', 'center', center.byteOffset);
    store.center = values;
    done(center.bytes);
  }
  const named = tensors.get('ids');
  ids.fill(named && (await readIds(source, named, store, count)), count);
  if (named !== undefined) done(named.bytes);
  source.expect?.([]);
  return alive;
}

/** As `openIndex` of the package. */
export async function openIndexFile(file: OptionFile, options: OpenIndexOptions): Promise<VectorIndex> {
  checkKeys(options, optionNames);
  const { core: load = {}, onProgress, signal } = options;
  checkLoadOptions(load, 'core');
  const rerankFrom = readChoice(options, 'rerank', ['memory', 'file']);
  if (onProgress !== undefined) checkFunction(onProgress, 'onProgress');
  signal?.throwIfAborted();
  const waiting = waitingFor(signal);
  let source: ByteSource | undefined;
  let core: Core | undefined;
  let index: SearchIndex | undefined;
  try {
    source = await openWithin(waiting, (await fileOfHandle(file)).file);
    const opened = source;
    const { tensors, metadata } = await readSafetensors(opened);
    const facts = factsOf(metadata[indexKey]);
    const own = await waiting.soon(loadCore(load), (late) => late.dispose());
    core = own;
    // Find the vectors for a second score.
    const rowBytes = facts.rerank === undefined ? 0 : own.module.storedRowBytes(facts.rerank.row, facts.dimension);
    const inFile = rerankFrom === 'file' && facts.rerank !== undefined;
    const begin = tensors.find(({ name }) => name === 'rows')?.byteOffset ?? 0;
    const { dimension, dims, bits, metric, seed, queries, count } = facts;
    let rerank: Rerank | undefined = queries && scoredByCodes;
    if (facts.rerank !== undefined) {
      const { row, factor } = facts.rerank;
      rerank = {
        factor,
        source: inFile ? { kind: 'file', row, file: opened, begin, count, fixed: false } : { kind: 'kept', row },
      };
    }
    const hasIds = tensors.some(({ name }) => name === 'ids');
    // The first vectors of an empty index find its center.
    const parts = { rerank, hasIds, ownsCore: true, centered: count > 0 };
    index = new SearchIndex(own, { dimension, dims, bits, metric, seed, queries }, parts);
    await index.load(async (store, ids) => {
      const byName = tensorsOf(tensors, facts, store, rowBytes);
      const read = [...byName.values()].filter(({ name }) => !inFile || name !== 'rows');
      const total = read.reduce((sum, { bytes }) => sum + bytes, 0);
      let done = 0;
      const report = (bytes: number) => {
        signal?.throwIfAborted();
        done += bytes;
        onProgress?.({ done, total });
      };
      const withRows = rowBytes > 0 && !inFile;
      return readVectors(opened, facts, { core: own, store, ids, withRows }, { tensors: byName, done: report });
    });
    if (inFile) source = undefined;
    return index;
  } catch (error) {
    index?.dispose();
    core?.dispose();
    throw error;
  } finally {
    waiting.end();
    await source?.close();
  }
}
