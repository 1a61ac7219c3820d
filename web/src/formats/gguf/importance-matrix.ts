/**
 * Importance matrices of llama.cpp: for each weight, the mean squares of the activations multiplied with each column. Files are GGUF, which
 * are written, too, or an older form of plain numbers.
 * Reference: github.com/ggml-org/llama.cpp, common/imatrix-loader.cpp at 0a32c5e, tools/quantize/quantize.cpp at 03161a4, and
 * tools/imatrix/imatrix.cpp at 006e7ef.
 */
import { checkKeys } from '../../core/check.js';
import { rangeError, typeError } from '../../core/errors.js';
import { ofType, whole } from '../../core/option-problem.js';
import { floatsIn } from '../codecs/floats-in.js';
import type { ByteSource } from '../files/bytes.js';
import { badStatistics } from '../files/errors.js';
import type { ImportanceEntry, ImportanceMatrix } from '../statistics.js';
import { compareNames } from '../tensors.js';
import type { GgufTensor } from './contents.js';
import { readGguf } from './header.js';
import { layoutGguf } from './layout.js';
import { type GgufKey, pairOf } from './pairs.js';

function checkImportances(values: Float32Array, what: string, name: string, byteOffset: number): void {
  const wrong = values.findIndex((value) => !(value >= 0 && value < Number.POSITIVE_INFINITY));
  if (wrong < 0) return;
  badStatistics(`${what} ${wrong} is ${values[wrong]}; they are finite and at least 0`, name, byteOffset + 4 * wrong);
}

/** Reads little-endian floats. */
const floatsAt = async (source: ByteSource, begin: number, count: number) =>
  floatsIn(await source.read(begin, begin + 4 * count), 'F32');

// --------------------------------------------------------------------------------------------------------------------------- GGUF

const keys = ['imatrix.datasets', 'imatrix.chunk_count', 'imatrix.chunk_size'] as const;

/** The tensors of an entry by the ends of their names. `in_sum` is not used. */
type ImportanceTensors = Partial<Record<'in_sum2' | 'counts' | 'in_sum', GgufTensor>>;

async function importanceEntry(
  source: ByteSource,
  name: string,
  parts: ImportanceTensors,
): Promise<ImportanceEntry | undefined> {
  const { in_sum2: sums, counts } = parts;
  if (sums === undefined || counts === undefined) {
    return badStatistics(`the file has no ${sums === undefined ? 'in_sum2' : 'counts'} for it`, name);
  }
  if (parts.in_sum !== undefined && parts.in_sum.bytes !== sums.bytes) {
    badStatistics('its in_sum and in_sum2 have different sizes', name, parts.in_sum.byteOffset);
  }
  const [values, matrices] = [sums.bytes / 4, counts.bytes / 4];
  // llama-quantize skips empty entries.
  if (values === 0 || matrices === 0) return undefined;
  if (values % matrices !== 0)
    badStatistics(`${values} sums are not those of ${matrices} matrices`, name, sums.byteOffset);
  const [read, times] = [
    await floatsAt(source, sums.byteOffset, values),
    await floatsAt(source, counts.byteOffset, matrices),
  ];
  checkImportances(read, 'sum', name, sums.byteOffset);
  checkImportances(times, 'count', name, counts.byteOffset);
  const columns = values / matrices;
  const unused: number[] = [];
  for (const [matrix, time] of times.entries()) {
    const count = Math.fround(Math.floor(time + 0.5));
    const own = read.subarray(matrix * columns, (matrix + 1) * columns);
    if (count === 0) {
      own.fill(1);
      unused.push(matrix);
    } else for (const [i, sum] of own.entries()) own[i] = sum / count;
  }
  return { values: read, unused };
}

async function readGgufMatrix(source: ByteSource): Promise<Omit<ImportanceMatrix, 'file'>> {
  const { metadata, tensors } = await readGguf(source);
  const missing = keys.find((key) => metadata[key] === undefined);
  if (missing !== undefined) badStatistics(`this is not an importance matrix: ${missing} is missing`);
  const parts = new Map<string, ImportanceTensors>();
  for (const tensor of tensors) {
    const [, name, end] = /^(.*)\.(in_sum2|counts|in_sum)$/s.exec(tensor.name) ?? [];
    if (name === undefined || end === undefined) continue;
    if (tensor.dtype !== 'F32') badStatistics(`it is ${tensor.dtype} instead of F32`, tensor.name, tensor.byteOffset);
    parts.set(name, { ...parts.get(name), [end]: tensor });
  }
  if (parts.size === 0) badStatistics('the importance matrix has no sums');
  const entries = new Map<string, ImportanceEntry>();
  for (const [name, some] of parts) {
    const entry = await importanceEntry(source, name, some);
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
    if (bytes > this.left) badStatistics(`the importance matrix ends inside of ${what}`, undefined, this.source.size);
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

async function readOldMatrix(source: ByteSource): Promise<Omit<ImportanceMatrix, 'file'>> {
  const reader = new Reader(source);
  const count = await reader.int('the number of entries');
  // An entry has at least a name of one byte and one value.
  if (count < 1 || count > reader.left / 17) {
    badStatistics(`this is not an importance matrix: it claims ${count} entries in ${reader.left} bytes`, undefined, 0);
  }
  const entries = new Map<string, ImportanceEntry>();
  for (let i = 0; i < count; i++) {
    const what = `entry ${i}`;
    const start = reader.position;
    const length = await reader.int(what);
    if (length < 1 || length > mostNameBytes) {
      badStatistics(`${what} has a name of ${length} bytes, so this is not an importance matrix`, undefined, start);
    }
    const name = await reader.text(length, what);
    const calls = await reader.int(what);
    const columns = await reader.int(what);
    if (columns < 1 || 4 * columns > reader.left) {
      const room = Math.floor(reader.left / 4);
      badStatistics(`it claims ${columns} values, and the file has bytes for ${room}`, name, reader.position);
    }
    const begin = reader.position;
    const values = await floatsAt(source, begin, columns);
    reader.position += 4 * columns;
    checkImportances(values, 'value', name, begin);
    const divisor = Math.fround(calls);
    if (calls > 0) for (const [k, value] of values.entries()) values[k] = value / divisor;
    entries.set(name, { values });
  }
  // The rest may be missing, or cut off.
  const chunks = reader.left >= 4 ? await reader.int('the number of chunks') : 0;
  const length = reader.left >= 4 ? await reader.int('the name of the data set') : 0;
  const dataset = length > 0 && length <= reader.left ? await reader.text(length, 'the name') : undefined;
  return { entries, dataset, chunks: Math.max(0, chunks) };
}

// ------------------------------------------------------------------------------------------------------------------------ reading

/** Reads an importance matrix of either form. @throws ScalepointError `BAD_FILE`, `IO` */
export async function importanceIn(source: ByteSource): Promise<Omit<ImportanceMatrix, 'file'>> {
  const start = await source.read(0, Math.min(4, source.size));
  const isGguf =
    start.length === 4 && new DataView(start.buffer, start.byteOffset, 4).getUint32(0, true) === 0x46554747;
  return isGguf ? readGgufMatrix(source) : readOldMatrix(source);
}

// ------------------------------------------------------------------------------------------------------------------------ writing

/** Statistics of a weight: for each column of each matrix, in order, the sum of squares of the activations multiplied with it. */
interface Sums {
  readonly name: string;
  readonly sums: Float64Array;
  /** Number of rows that each matrix was multiplied with. */
  readonly counts: Float64Array;
}

/** Metadata of the file. */
interface About {
  readonly datasets?: readonly string[] | undefined;
  readonly chunks?: number | undefined;
  readonly chunkSize?: number | undefined;
}

/** Bytes of the file. llama-quantize requires all three keys. */
export function importanceFile(weights: readonly Sums[], about: About): Uint8Array<ArrayBuffer> {
  checkKeys(about, ['datasets', 'chunks', 'chunkSize']);
  const { datasets = ['unnamed'] } = about;
  if (!Array.isArray(datasets) || !datasets.every((name) => typeof name === 'string')) {
    throw typeError('datasets', ofType('array of names'), datasets);
  }
  const rows = weights.reduce((most, { counts }) => counts.reduce((a, b) => Math.max(a, b), most), 1);
  const chunks = about.chunks ?? 1;
  const chunkSize = about.chunkSize ?? Math.ceil(rows / chunks);
  for (const [name, value] of Object.entries({ chunks, chunkSize })) {
    const fits = Number.isInteger(value) && value >= 1 && value < 2 ** 32;
    if (!fits) throw rangeError(name, whole(1, 2 ** 32 - 1), value);
  }
  const keys: GgufKey[] = [
    { name: 'general.type', type: 'string', value: 'imatrix' },
    { name: 'imatrix.datasets', type: 'string[]', value: datasets },
    { name: 'imatrix.chunk_count', type: 'u32', value: chunks },
    { name: 'imatrix.chunk_size', type: 'u32', value: chunkSize },
  ];
  const parts = weights
    .toSorted((a, b) => compareNames(a.name, b.name))
    .flatMap(({ name, sums, counts }) => [
      { name: `${name}.in_sum2`, values: sums, shape: [counts.length, sums.length / counts.length] },
      { name: `${name}.counts`, values: counts, shape: [counts.length, 1] },
    ]);
  const { header, tensors, size } = layoutGguf(
    keys.map(pairOf),
    parts.map(({ name, shape }) => ({ name, shape, dtype: 'F32' })),
  );
  const file = new Uint8Array(size);
  const view = new DataView(file.buffer);
  file.set(header);
  for (const [i, { values }] of parts.entries()) {
    const at = (tensors[i] as (typeof tensors)[number]).byteOffset;
    for (const [k, value] of values.entries()) view.setFloat32(at + 4 * k, value, true);
  }
  return file;
}
