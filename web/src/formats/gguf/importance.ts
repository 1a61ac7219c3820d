/**
 * Importance matrices of llama.cpp: for each weight, the mean squares of the activations multiplied with each column. Files are GGUF, or an
 * older form of plain numbers.
 * Reference: github.com/ggml-org/llama.cpp, common/imatrix-loader.cpp at 0a32c5e and tools/quantize/quantize.cpp at 03161a4.
 */
import { ScalepointError } from '../../core/errors.js';
import { type Note, noteOf } from '../../core/note.js';
import { type ByteSource, type FileInput, quoted, quotedNames } from '../../files/bytes.js';
import type { ReadOptionFile } from '../format.js';
import { inFile } from '../shards.js';
import { type GgufHeader, type GgufPair, type GgufTensor, readGguf } from './header.js';
import { pairOf, u32Pair } from './pairs.js';

/** Importance of one weight. */
interface ImportanceEntry {
  /** One number for each column, those of several matrices (experts) one after the other. */
  readonly values: Float32Array<ArrayBuffer>;
  /** True if some matrix was never used; its columns weigh alike. */
  readonly isPartial: boolean;
}

/** An importance matrix that has been checked: all numbers are finite and not negative. */
export interface ImportanceMatrix {
  /** By the names of weights. */
  readonly entries: ReadonlyMap<string, ImportanceEntry>;
  /** Path as given, or name. */
  readonly file: string | undefined;
  readonly dataset: string | undefined;
  /** Number of chunks of text it was made from; 0 if unknown. */
  readonly chunks: number;
}

function fail(message: string, tensor?: string, byteOffset?: number): never {
  const place = tensor === undefined ? '' : `${quoted(tensor)}: `;
  throw new ScalepointError('BAD_FILE', `${place}${message}`, { tensor, byteOffset });
}

function checkValues(values: Float32Array, what: string, name: string, byteOffset: number): void {
  const wrong = values.findIndex((value) => !(value >= 0 && value < Number.POSITIVE_INFINITY));
  if (wrong < 0) return;
  fail(`${what} ${wrong} is ${values[wrong]}; they are finite and at least 0`, name, byteOffset + 4 * wrong);
}

/** Reads little-endian floats. */
async function floatsAt(source: ByteSource, begin: number, count: number): Promise<Float32Array<ArrayBuffer>> {
  const bytes = await source.read(begin, begin + 4 * count);
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  return Float32Array.from({ length: count }, (_, i) => view.getFloat32(4 * i, true));
}

// --------------------------------------------------------------------------------------------------------------------------- GGUF

const keys = ['imatrix.datasets', 'imatrix.chunk_count', 'imatrix.chunk_size'] as const;

/** The tensors of an entry by the ends of their names. `in_sum` is not used. */
type ImportanceTensors = Partial<Record<'in_sum2' | 'counts' | 'in_sum', GgufTensor>>;

function partsByName({ tensors }: GgufHeader): Map<string, ImportanceTensors> {
  const found = new Map<string, ImportanceTensors>();
  for (const tensor of tensors) {
    const [, name, end] = /^(.*)\.(in_sum2|counts|in_sum)$/s.exec(tensor.name) ?? [];
    if (name === undefined || end === undefined) continue;
    if (tensor.dtype !== 'F32') fail(`it is ${tensor.dtype} instead of F32`, tensor.name, tensor.byteOffset);
    found.set(name, { ...found.get(name), [end]: tensor });
  }
  return found;
}

async function entryOf(
  source: ByteSource,
  name: string,
  parts: ImportanceTensors,
): Promise<ImportanceEntry | undefined> {
  const { in_sum2: sums, counts } = parts;
  if (sums === undefined || counts === undefined) {
    return fail(`the file has no ${sums === undefined ? 'in_sum2' : 'counts'} for it`, name);
  }
  if (parts.in_sum !== undefined && parts.in_sum.bytes !== sums.bytes) {
    fail('its in_sum and in_sum2 have different sizes', name, parts.in_sum.byteOffset);
  }
  const [values, matrices] = [sums.bytes / 4, counts.bytes / 4];
  // llama-quantize skips empty entries.
  if (values === 0 || matrices === 0) return undefined;
  if (values % matrices !== 0) fail(`${values} sums are not those of ${matrices} matrices`, name, sums.byteOffset);
  const [read, times] = [
    await floatsAt(source, sums.byteOffset, values),
    await floatsAt(source, counts.byteOffset, matrices),
  ];
  checkValues(read, 'sum', name, sums.byteOffset);
  checkValues(times, 'count', name, counts.byteOffset);
  const columns = values / matrices;
  let isPartial = false;
  for (const [matrix, time] of times.entries()) {
    const count = Math.fround(Math.floor(time + 0.5));
    const own = read.subarray(matrix * columns, (matrix + 1) * columns);
    if (count === 0) own.fill(1);
    else for (const [i, sum] of own.entries()) own[i] = sum / count;
    isPartial ||= count === 0;
  }
  return { values: read, isPartial };
}

async function readGgufMatrix(source: ByteSource): Promise<Omit<ImportanceMatrix, 'file'>> {
  const header = await readGguf(source);
  const { metadata } = header;
  const missing = keys.find((key) => metadata[key] === undefined);
  if (missing !== undefined) fail(`this is not an importance matrix: ${missing} is missing`);
  const parts = partsByName(header);
  if (parts.size === 0) fail('the importance matrix has no sums');
  const entries = new Map<string, ImportanceEntry>();
  for (const [name, some] of parts) {
    const entry = await entryOf(source, name, some);
    if (entry !== undefined) entries.set(name, entry);
  }
  const [datasets, count] = [metadata['imatrix.datasets'], metadata['imatrix.chunk_count']];
  const all = Array.isArray(datasets) ? datasets : (datasets as { readonly first?: readonly unknown[] }).first;
  const dataset: unknown = all?.[0];
  return {
    entries,
    dataset: typeof dataset === 'string' ? dataset : undefined,
    chunks: typeof count === 'number' ? count : 0,
  };
}

// ----------------------------------------------------------------------------------------------------------------- the older form

/** Longest name accepted. */
const mostNameBytes = 1024;

/** Reads consecutive numbers and names. */
class Reader {
  position = 0;

  constructor(readonly source: ByteSource) {}

  get left(): number {
    return this.source.size - this.position;
  }

  async take(bytes: number, what: string): Promise<Uint8Array<ArrayBuffer>> {
    if (bytes > this.left) fail(`the importance matrix ends inside of ${what}`, undefined, this.source.size);
    this.position += bytes;
    return this.source.read(this.position - bytes, this.position);
  }

  async int(what: string): Promise<number> {
    const bytes = await this.take(4, what);
    return new DataView(bytes.buffer, bytes.byteOffset, 4).getInt32(0, true);
  }

  /** Reads a text, ended by a 0 as in C. */
  async text(bytes: number, what: string): Promise<string> {
    const all = await this.take(bytes, what);
    const end = all.indexOf(0);
    return new TextDecoder().decode(end < 0 ? all : all.subarray(0, end));
  }
}

async function readOldEntry(reader: Reader, index: number): Promise<readonly [name: string, entry: ImportanceEntry]> {
  const what = `entry ${index}`;
  const start = reader.position;
  const length = await reader.int(what);
  if (length < 1 || length > mostNameBytes) {
    fail(`${what} has a name of ${length} bytes, so this is not an importance matrix`, undefined, start);
  }
  const name = await reader.text(length, what);
  const calls = await reader.int(what);
  const count = await reader.int(what);
  if (count < 1 || 4 * count > reader.left) {
    fail(`it claims ${count} values, and the file has bytes for ${Math.floor(reader.left / 4)}`, name, reader.position);
  }
  const begin = reader.position;
  const values = await floatsAt(reader.source, begin, count);
  reader.position += 4 * count;
  checkValues(values, 'value', name, begin);
  const divisor = Math.fround(calls);
  if (calls > 0) for (const [i, value] of values.entries()) values[i] = value / divisor;
  return [name, { values, isPartial: false }];
}

async function readOldMatrix(source: ByteSource): Promise<Omit<ImportanceMatrix, 'file'>> {
  const reader = new Reader(source);
  const count = await reader.int('the number of entries');
  // An entry has at least a name of one byte and one value.
  if (count < 1 || count > reader.left / 17) {
    fail(`this is not an importance matrix: it claims ${count} entries in ${reader.left} bytes`, undefined, 0);
  }
  const entries = new Map<string, ImportanceEntry>();
  for (let i = 0; i < count; i++) entries.set(...(await readOldEntry(reader, i)));
  // The rest may be missing, or cut off.
  const chunks = reader.left >= 4 ? await reader.int('the number of chunks') : 0;
  const length = reader.left >= 4 ? await reader.int('the name of the data set') : 0;
  const dataset = length > 0 && length <= reader.left ? await reader.text(length, 'the name') : undefined;
  return { entries, dataset, chunks: Math.max(0, chunks) };
}

// ------------------------------------------------------------------------------------------------------------------------ reading

const magic = 0x46554747;

/** Options for the importance of columns. */
export interface ImportanceChoices {
  readonly importance?: FileInput | undefined;
  readonly includeWeights?: readonly string[] | undefined;
  readonly excludeWeights?: readonly string[] | undefined;
}

/** Position of the moments of a weight's inputs. */
export interface WeightMoments {
  readonly byteOffset: number;
  readonly columns: number;
}

/** Second moments of the inputs of weights. */
export interface ModelMoments {
  /** The file that holds them. */
  readonly file: FileInput;
  readonly weights: ReadonlyMap<string, WeightMoments>;
  /** Their diagonals, as an importance matrix. */
  readonly importance: ImportanceMatrix;
}

async function readMatrix(source: ByteSource): Promise<Omit<ImportanceMatrix, 'file'>> {
  const start = await source.read(0, Math.min(4, source.size));
  const isGguf = start.length === 4 && new DataView(start.buffer, start.byteOffset, 4).getUint32(0, true) === magic;
  return isGguf ? readGgufMatrix(source) : readOldMatrix(source);
}

/**
 * Reads the importance matrix that the options name, without excluded entries; undefined without a matrix or entries. Without a name, it is
 * that of the moments.
 * @throws ScalepointError `BAD_FILE`, `IO`
 */
export async function readImportance(
  choices: ImportanceChoices,
  readOptionFile: ReadOptionFile,
  moments?: ModelMoments,
): Promise<ImportanceMatrix | undefined> {
  const { importance, includeWeights = [], excludeWeights = [] } = choices;
  if (importance === undefined) return moments?.importance;
  const matrix = await readOptionFile(importance, async (source): Promise<ImportanceMatrix> => {
    const file = typeof importance === 'string' ? importance : source.name;
    return { ...(await inFile(file ?? 'importance', readMatrix(source))), file };
  });
  const isIn = (name: string) => (part: string) => name.includes(part);
  const entries = [...matrix.entries].filter(
    ([name]) => (includeWeights.length === 0 || includeWeights.some(isIn(name))) && !excludeWeights.some(isIn(name)),
  );
  return entries.length === 0 ? undefined : { ...matrix, entries: new Map(entries) };
}

// -------------------------------------------------------------------------------------------------------------------------- using

/** Longest text: llama-quantize keeps 128 bytes with a final 0. */
const mostTextBytes = 127;

/** A key with a text, cut to the longest. */
function cutPair(name: string, value: string): GgufPair {
  const { key, bytes } = pairOf({ name, type: 'string', value });
  const excess = new TextEncoder().encode(value).length - mostTextBytes;
  if (excess <= 0) return { key, bytes };
  const cut = bytes.slice(0, bytes.length - excess);
  new DataView(cut.buffer).setBigUint64(cut.length - mostTextBytes - 8, BigInt(mostTextBytes), true);
  return { key, bytes: cut };
}

const imatrixKeys = ['file', 'dataset', 'entries_count', 'chunks_count'].map((end) => `quantize.imatrix.${end}`);

/** The pairs, with those that llama-quantize adds for an importance matrix. */
export function withImportance(pairs: readonly GgufPair[], matrix: ImportanceMatrix | undefined): readonly GgufPair[] {
  if (matrix === undefined) return pairs;
  const { file, dataset, entries, chunks } = matrix;
  const [fileKey, datasetKey, entriesKey, chunksKey] = imatrixKeys as [string, string, string, string];
  const own = [
    ...(file === undefined ? [] : [cutPair(fileKey, file)]),
    ...(dataset === undefined ? [] : [cutPair(datasetKey, dataset)]),
    u32Pair(entriesKey, entries.size),
    ...(chunks > 0 ? [u32Pair(chunksKey, chunks)] : []),
  ];
  const set = own.map(({ key }) => key);
  return [...pairs.filter(({ key }) => !set.includes(key)), ...own];
}

/** True for tensors whose entries may have any size: they are not multiplied with activations. */
const isEmbedding = (name: string) => name === 'token_embd.weight' || name === 'per_layer_token_embd.weight';

/** Number of columns of all matrices of a tensor. */
const sizeOf = (shape: readonly number[]) => (shape.at(-1) ?? 1) * (shape.at(-3) ?? 1);

/** Gives the tensors of a model their importance, and records mismatches for the notes. */
export class ModelImportance {
  readonly #matrix: ImportanceMatrix | undefined;
  readonly #used = new Set<string>();
  readonly #without: string[] = [];
  readonly #partial: string[] = [];

  constructor(matrix: ImportanceMatrix | undefined) {
    this.#matrix = matrix;
  }

  /** Importance of the columns of a tensor whose result does not depend on it; undefined without a fitting entry. */
  seen({ name, shape }: GgufTensor): Float32Array<ArrayBuffer> | undefined {
    const values = this.#matrix?.entries.get(name)?.values;
    return values?.length === sizeOf(shape) ? values : undefined;
  }

  /** The importance of the columns of a tensor. @throws ScalepointError `BAD_FILE` if the matrix belongs to another model */
  of({ name, shape }: GgufTensor): Float32Array<ArrayBuffer> | undefined {
    if (this.#matrix === undefined) return undefined;
    const entry = this.#matrix.entries.get(name);
    const size = sizeOf(shape);
    if (entry === undefined || (entry.values.length !== size && isEmbedding(name))) {
      this.#without.push(name);
      if (entry !== undefined) this.#used.add(name);
      return undefined;
    }
    this.#used.add(name);
    if (entry.values.length !== size) {
      const message = `the importance matrix has ${entry.values.length} numbers for it instead of ${size}: it is that of another model`;
      fail(message, name);
    }
    if (entry.isPartial) this.#partial.push(name);
    return entry.values;
  }

  /** Notes about mismatches. */
  notes(): Note[] {
    if (this.#matrix === undefined) return [];
    const unused = [...this.#matrix.entries.keys()].filter((name) => !this.#used.has(name));
    return [
      ...noteOn('noImportance', 'quantized without importance: no entry in the matrix for', this.#without),
      ...noteOn(
        'partialImportance',
        'some experts were never active when the matrix was made, so all columns of those experts were weighted equally:',
        this.#partial,
      ),
      ...noteOn('unusedImportance', 'in the importance matrix but not quantized by it:', unused),
    ];
  }
}

function noteOn(kind: string, what: string, tensors: readonly string[]): Note[] {
  return tensors.length === 0 ? [] : [noteOf(kind, { tensors }, `${what} ${quotedNames(tensors)}`)];
}
