/**
 * Opens a model of MLC by its index, and gathers codes with their scales. The index is untrusted: only plain names of files are accepted, and
 * everything in it is compared with the files.
 * Reference: github.com/apache/tvm at 0906717, python/tvm/contrib/tvmjs.py (load_tensor_cache).
 */

import { ScalepointError } from '../../core/errors.js';
import { ofType } from '../../core/option-problem.js';
import { type MlcForm, mlcGroup } from '../codecs/mlc.js';
import { type ByteSource, quoted } from '../files/bytes.js';
import type { LogicalTensor, MetadataValue, OpenFile, OpenInput, OpenModel, SourceTensor } from '../format.js';
import { besideFile } from '../shards.js';
import { elementCount, plainTensor } from '../tensors.js';

/** Largest index, and most files and arrays. A model of a hundred layers has a thousand arrays. */
const mostIndexBytes = 50_000_000;
const mostFiles = 10_000;
const mostArrays = 1_000_000;
const mostDimensions = 8;

/** Types of arrays: their names here, and the bytes of an element. */
const types: Readonly<Record<string, readonly [dtype: string, bytes: number]>> = {
  uint32: ['U32', 4],
  int32: ['I32', 4],
  uint8: ['U8', 1],
  int8: ['I8', 1],
  float16: ['F16', 2],
  float32: ['F32', 4],
  bfloat16: ['BF16', 2],
};

type Fields = Readonly<Record<string, unknown>>;

function indexError(message: string, tensor?: string): never {
  throw new ScalepointError('BAD_FILE', `index: ${message}`, { tensor });
}

function objectFields(value: unknown, what: string): Fields {
  const isObject = typeof value === 'object' && value !== null && !Array.isArray(value);
  return isObject ? (value as Fields) : indexError(`${what} is not an object`);
}

const fieldOf = (fields: Fields, name: string) => (Object.hasOwn(fields, name) ? fields[name] : undefined);

const isWhole = (value: unknown): value is number => Number.isSafeInteger(value) && Number(value) >= 0;

/** A whole number. */
function wholeField(fields: Fields, name: string, what: string): number {
  const value = fieldOf(fields, name);
  if (isWhole(value)) return value;
  return indexError(`${name} of ${what} is not a whole number`);
}

function stringField(fields: Fields, name: string, what: string): string {
  const value = fieldOf(fields, name);
  return typeof value === 'string' ? value : indexError(`${name} of ${what} is not a text`);
}

/** A list of at most `most` values. */
function listField(fields: Fields, name: string, what: string, most: number): readonly unknown[] {
  const value = fieldOf(fields, name);
  if (!Array.isArray(value)) return indexError(`${name} of ${what} is not a list`);
  if (value.length <= most) return value;
  return indexError(`${name} of ${what} has ${value.length} entries, more than ${most}`);
}

/** An array of a shard. */
function shardArray(value: unknown, file: number, shard: string, size: number): SourceTensor {
  const fields = objectFields(value, `an array of ${quoted(shard)}`);
  const name = stringField(fields, 'name', `an array of ${quoted(shard)}`);
  const what = quoted(name);
  const shape = listField(fields, 'shape', what, mostDimensions);
  if (!shape.every(isWhole)) return indexError(`the shape of ${what} is wrong`, name);
  const dtype = stringField(fields, 'dtype', what);
  const format = stringField(fields, 'format', what);
  const known = Object.hasOwn(types, dtype) ? types[dtype] : undefined;
  if (known === undefined) return indexError(`the type ${quoted(dtype)} of ${what} is not known`, name);
  // float32 is stored as bfloat16 unless it is raw.
  const [type, each] = dtype === 'float32' && format === 'f32-to-bf16' ? (['BF16', 2] as const) : known;
  if (format !== 'raw' && format !== 'f32-to-bf16')
    indexError(`the format ${quoted(format)} of ${what} is not known`, name);
  const elements = elementCount(shape);
  const bytes = wholeField(fields, 'nbytes', what);
  const byteOffset = wholeField(fields, 'byteOffset', what);
  if (elements === undefined || elements * each !== bytes)
    indexError(`${what} has ${bytes} bytes, which its shape and type do not take`, name);
  if (byteOffset + bytes > size) indexError(`${what} reaches beyond the end of ${quoted(shard)}`, name);
  return { name, dtype: type, shape, bytes, byteOffset, file };
}

/** Opens a model by its index. */
export async function openMlc(files: readonly OpenFile[], open: OpenInput): Promise<OpenModel> {
  const [{ source, input }, ...given] = files as [OpenFile, ...OpenFile[]];
  if (source.size > mostIndexBytes)
    indexError(`the file has ${source.size} bytes, more than the ${mostIndexBytes} allowed`);
  let index: Fields;
  try {
    const text = new TextDecoder('utf-8', { fatal: true }).decode(await source.read(0, source.size));
    index = objectFields(JSON.parse(text), 'it');
  } catch (error) {
    if (error instanceof ScalepointError) throw error;
    return indexError('it is not JSON');
  }
  const shards = listField(index, 'records', 'it', mostFiles);
  const byName = new Map(given.map((file) => [file.source.name, file.source]));
  const opened: ByteSource[] = [];
  const sources: ByteSource[] = [];
  const checksums: (string | undefined)[] = [];
  const tensors: SourceTensor[] = [];
  const names = new Set<string>();
  const shardNames = new Set<string>();
  const close = async () => {
    for (const one of opened) await one.close();
  };
  try {
    for (const [file, record] of shards.entries()) {
      const shard = objectFields(record, 'a file');
      const name = stringField(shard, 'dataPath', 'a file');
      // A name in the same folder, on any system.
      const isPlain = name !== '' && !/[/\\:]|\.\./.test(name) && ![...name].some((c) => c < ' ' || c === '\x7f');
      if (!isPlain) indexError(`the file name ${quoted(name)} is not a plain name`);
      if (shardNames.has(name)) indexError(`the file ${quoted(name)} is there twice`);
      shardNames.add(name);
      const known = byName.get(name);
      const source = known ?? (await besideFile(input, open, ofType('tensor-cache.json with its files'))(name));
      if (known === undefined) opened.push(source);
      sources.push(source);
      checksums.push(Object.hasOwn(shard, 'md5sum') ? stringField(shard, 'md5sum', quoted(name)) : undefined);
      const size = wholeField(shard, 'nbytes', quoted(name));
      if (source.size !== size) indexError(`${quoted(name)} has ${source.size} bytes, and the index says ${size}`);
      const own = listField(shard, 'records', quoted(name), mostArrays).map((one) => shardArray(one, file, name, size));
      const sorted = own.toSorted((a, b) => a.byteOffset - b.byteOffset || a.bytes - b.bytes);
      for (const [i, { name, byteOffset }] of sorted.entries()) {
        const before = sorted[i - 1];
        if (before !== undefined && before.byteOffset + before.bytes > byteOffset)
          indexError(`${quoted(name)} overlaps ${quoted(before.name)}`, name);
      }
      for (const tensor of own) {
        if (names.has(tensor.name)) indexError(`${quoted(tensor.name)} is there twice`, tensor.name);
        names.add(tensor.name);
        tensors.push(tensor);
      }
      if (tensors.length > mostArrays) indexError(`there are more than ${mostArrays} arrays`);
    }
  } catch (error) {
    await close();
    throw error;
  }
  const metadata = Object.create(null) as Record<string, MetadataValue>;
  const stated = typeof index.metadata === 'object' && !Array.isArray(index.metadata) ? index.metadata : {};
  for (const [name, one] of Object.entries(stated ?? {}).slice(0, 100)) {
    if (typeof one === 'number' || typeof one === 'string' || typeof one === 'boolean') metadata[name] = one;
  }
  const bytes = sources.reduce((sum, { size }) => sum + size, 0);
  return { bytes, files: sources, tensors, metadata, checksums, close };
}

const codesEnd = '.q_weight';

/** The tensors of a model, codes together with their scales. */
export function mlcTensors({ tensors }: OpenModel): LogicalTensor[] {
  const byName = new Map(tensors.map((tensor) => [tensor.name, tensor]));
  const weights = tensors.flatMap((data): LogicalTensor[] => {
    if (!data.name.endsWith(codesEnd) || data.dtype !== 'U32') return [];
    const module = data.name.slice(0, -codesEnd.length);
    const scale = byName.get(`${module}.q_scale`);
    if (scale === undefined || (scale.dtype !== 'F16' && scale.dtype !== 'BF16')) return [];
    const shape = [...data.shape.slice(0, -1), (data.shape.at(-1) ?? 0) * 8];
    const expected = [...shape.slice(0, -1), (shape.at(-1) ?? 0) / mlcGroup];
    if (shape.length < 2 || String(expected) !== String(scale.shape)) return [];
    const form: MlcForm = { codec: 'mlc', floats: scale.dtype === 'F16' ? 'F16' : 'F32' };
    const parts = [
      { role: 'data', tensor: data },
      { role: 'scale', tensor: scale },
    ];
    return [{ name: `${module}.weight`, shape, type: 'I4', form, parts }];
  });
  const taken = new Map(weights.flatMap((weight) => weight.parts.map(({ tensor }) => [tensor, weight] as const)));
  return tensors.flatMap((tensor) => {
    const weight = taken.get(tensor);
    if (weight === undefined) return [plainTensor(tensor)];
    return weight.parts[0]?.tensor === tensor ? [weight] : [];
  });
}
