// Opens the file of an index.
import { checkKeys, choiceIndex } from '../core/check.js';
import { maxDimension, StoredRowId } from '../core/door.js';
import { ScalepointError, typeError } from '../core/errors.js';
import { loadCore } from '../core/load.js';
import { checkLoadOptions } from '../core/load-options.js';
import type { Core } from '../core/memory.js';
import { ofType } from '../core/option-problem.js';
import { show } from '../core/show.js';
import { type Waiting, waitingFor } from '../core/waiting.js';
import type { ByteSource, OptionFile } from '../formats/files/bytes.js';
import { fileOfHandle, openWithin } from '../formats/files/open.js';
import { readSafetensors, type TensorInfo } from '../formats/safetensors/header.js';
import { checkId, type IdTable } from './ids.js';
import { checkFactor, type Rerank, scoredByCodes } from './rows.js';
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
  if (Number.isInteger(value) && (value as number) >= min && (value as number) <= max) return value as number;
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

/** Checks numbers that were read: they have to be finite. */
function checkFinite(core: Core, address: number, bytes: number, tensor: TensorInfo): void {
  const n = bytes / 4;
  const first = core.module.firstNonFinite(address, n);
  if (first < n) throw bad('a number is not finite', tensor.name, tensor.byteOffset);
}

/** Fills an index with the contents of a file. Returns the number of vectors. */
async function fill(
  core: Core,
  source: ByteSource,
  tensors: ReadonlyMap<string, TensorInfo>,
  facts: FileFacts,
  store: VectorStore,
  ids: IdTable,
  withRows: boolean,
  read: (bytes: number) => void,
): Promise<number> {
  const { count } = facts;
  if (count > 0) store.grow(count, 0);
  const names: StoredArray[] = ['codes', 'factors', 'extras', 'alive'];
  if (withRows) names.push('rows');
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
        read(n);
      }
      if (name === 'factors' || name === 'extras') checkFinite(core, address, bytes, tensor);
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
    read(center.bytes);
  }
  const named = tensors.get('ids');
  ids.fill(named && (await readIds(source, named, store, count)), count);
  if (named !== undefined) read(named.bytes);
  return alive;
}

/** As `openIndex` of the package. */
export async function openIndexFile(file: OptionFile, options: OpenIndexOptions): Promise<VectorIndex> {
  checkKeys(options, optionNames);
  const { core: load = {}, onProgress, signal } = options;
  checkLoadOptions(load, 'core');
  const rerankFrom = (['memory', 'file'] as const)[choiceIndex(options, 'rerank', ['memory', 'file'])];
  if (onProgress !== undefined && typeof onProgress !== 'function') {
    throw typeError('onProgress', ofType('function'), onProgress);
  }
  signal?.throwIfAborted();
  const waiting = waitingFor(signal);
  try {
    const source = await openWithin(waiting, (await fileOfHandle(file)).file);
    let keepOpen = false;
    try {
      const opened = await openSource(source, waiting, { load, rerankFrom, onProgress, signal });
      keepOpen = opened.keepOpen;
      return opened.index;
    } finally {
      if (!keepOpen) await source.close();
    }
  } finally {
    waiting.end();
  }
}

async function openSource(
  source: ByteSource,
  waiting: Waiting,
  {
    load,
    rerankFrom,
    onProgress,
    signal,
  }: Pick<OpenIndexOptions, 'onProgress' | 'signal'> & { load: object; rerankFrom: 'memory' | 'file' | undefined },
): Promise<{ index: SearchIndex; keepOpen: boolean }> {
  const { tensors, metadata } = await readSafetensors(source);
  const facts = factsOf(metadata[indexKey]);
  const hasIds = tensors.some(({ name }) => name === 'ids');
  const core = await waiting.soon(loadCore(load), (late) => late.dispose());
  let index: SearchIndex | undefined;
  try {
    const rowBytes = facts.rerank === undefined ? 0 : core.module.storedRowBytes(facts.rerank.row, facts.dimension);
    const inFile = rerankFrom === 'file' && facts.rerank !== undefined;
    const rows = tensors.find(({ name }) => name === 'rows');
    const rerank: Rerank | undefined = facts.rerank && {
      factor: checkFactor(facts.rerank.factor, 'factor'),
      source: inFile
        ? {
            kind: 'file',
            row: facts.rerank.row,
            file: source,
            begin: rows?.byteOffset ?? 0,
            count: facts.count,
            fixed: false,
          }
        : { kind: 'kept', row: facts.rerank.row },
    };
    const { dimension, dims, bits, metric, seed, queries } = facts;
    index = new SearchIndex(
      core,
      { dimension, dims, bits, metric, seed, queries },
      // The first vectors of an empty index find its center.
      { rerank: rerank ?? (queries && scoredByCodes), hasIds, ownsCore: true, centered: facts.count > 0 },
    );
    await index.load(async (store, ids) => {
      const byName = tensorsOf(tensors, facts, store, rowBytes);
      const total = [...byName.values()].reduce(
        (sum, { name, bytes }) => sum + (inFile && name === 'rows' ? 0 : bytes),
        0,
      );
      let done = 0;
      return fill(core, source, byName, facts, store, ids, rowBytes > 0 && !inFile, (bytes) => {
        signal?.throwIfAborted();
        done += bytes;
        onProgress?.({ done, total });
      });
    });
    return { index, keepOpen: inFile };
  } catch (error) {
    index?.dispose();
    core.dispose();
    throw error;
  }
}
