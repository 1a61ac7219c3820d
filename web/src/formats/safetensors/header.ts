/**
 * Reads and writes headers of safetensors files: `u64 N` (little-endian), N bytes of JSON, then the tensors' bytes. Files are untrusted,
 * so that everything in a header is checked.
 * Reference: github.com/huggingface/safetensors, README.md and safetensors/src/tensor.rs.
 */

import { ScalepointError } from '../../core/errors.js';
import { show } from '../../core/show.js';
import { type ByteSource, quoted } from '../../files/bytes.js';
import { compareNames, elementCount } from '../tensors.js';
import { JsonReader, maxExtras, maxMembers } from './json.js';

/** Element types and their bits, in the order of the reference. It writes files from the last type to the first. */
const dtypeBits = {
  BOOL: 8,
  F4: 4,
  F6_E2M3: 6,
  F6_E3M2: 6,
  U8: 8,
  I8: 8,
  F8_E5M2: 8,
  F8_E4M3: 8,
  F8_E8M0: 8,
  F8_E4M3FNUZ: 8,
  F8_E5M2FNUZ: 8,
  I16: 16,
  U16: 16,
  F16: 16,
  BF16: 16,
  I32: 32,
  U32: 32,
  F32: 32,
  C64: 64,
  F64: 64,
  I64: 64,
  U64: 64,
} as const;

/** Element type of a stored tensor, in the spelling of safetensors. */
export type TensorDType = keyof typeof dtypeBits;

const dtypeOrder = new Map<string, number>(Object.keys(dtypeBits).map((dtype, index) => [dtype, index]));

/** A tensor in a file. */
export interface TensorInfo {
  readonly name: string;
  readonly dtype: TensorDType;
  /** Row-major; empty for a scalar. */
  readonly shape: readonly number[];
  /** Size in bytes. */
  readonly bytes: number;
  /** Where its bytes begin, from the start of the file. */
  readonly byteOffset: number;
}

/** A header that has been checked. */
export interface SafetensorsHeader {
  /** In the order of their bytes. They cover the rest of the file without gaps. */
  readonly tensors: readonly TensorInfo[];
  /** The strings of `__metadata__`. Without a prototype, as `__proto__` may be a key. */
  readonly metadata: Readonly<Record<string, string>>;
}

/** The limit of the format. */
const maxHeaderBytes = 100_000_000;

/** More dimensions than numpy and PyTorch make. */
const maxRank = 64;

/** Size of a tensor in bytes. Undefined if that is not a whole number or too large. */
export function tensorBytes(dtype: TensorDType, shape: readonly number[]): number | undefined {
  const bits = (elementCount(shape) ?? Number.NaN) * dtypeBits[dtype];
  return Number.isSafeInteger(bits) && bits % 8 === 0 ? bits / 8 : undefined;
}

/** An entry of the header. */
interface Entry {
  readonly tensor: TensorInfo;
  /** Where the entry is in the header. */
  readonly position: number;
}

/** Shapes that were read, by their numbers. Most tensors of a model have one of few. */
type Shapes = Map<string, readonly number[]>;

function shared(shapes: Shapes, shape: number[]): readonly number[] {
  const key = shape.join();
  const known = shapes.get(key);
  if (known !== undefined) return known;
  // A copy takes no more memory than its numbers need.
  const copy = shape.slice();
  shapes.set(key, copy);
  return copy;
}

function readEntry(json: JsonReader, name: string, position: number, dataOffset: number, shapes: Shapes): Entry {
  const found: { dtype?: string; shape?: number[]; offsets?: number[] } = {};
  json.object('the entry', maxExtras, (key) => {
    if (key === 'dtype') found.dtype = json.string('dtype');
    else if (key === 'shape') found.shape = json.naturals('shape', maxRank);
    else if (key === 'data_offsets') found.offsets = json.naturals('data_offsets', maxRank);
    else json.skip(3);
  });
  const { dtype, shape, offsets } = found;
  if (dtype === undefined) json.fail('dtype is missing', position);
  if (shape === undefined) json.fail('shape is missing', position);
  if (offsets === undefined) json.fail('data_offsets is missing', position);
  if (!dtypeOrder.has(dtype)) json.fail(`dtype ${show(dtype)} is unknown`, position);
  const known = dtype as TensorDType;
  if (offsets.length !== 2) json.fail(`data_offsets has ${offsets.length} numbers instead of 2`, position);
  const [begin = 0, end = 0] = offsets;
  if (end < begin) json.fail(`data_offsets ends at ${end}, before it begins at ${begin}`, position);
  const elements = elementCount(shape);
  if (elements === undefined) json.fail(`the product of shape ${show(shape)} is too large`, position);
  const bytes = tensorBytes(known, shape);
  if (bytes === undefined) {
    json.fail(`${elements} elements of ${known} with ${dtypeBits[known]} bits are no whole number of bytes`, position);
  }
  if (end - begin !== bytes) {
    json.fail(`${known} of shape ${show(shape)} has ${bytes} bytes, but data_offsets span ${end - begin}`, position);
  }
  const byteOffset = dataOffset + begin;
  return { tensor: { name, dtype: known, shape: shared(shapes, shape), bytes, byteOffset }, position };
}

function fail(message: string, byteOffset: number): never {
  throw new ScalepointError('BAD_FILE', message, { byteOffset });
}

/** Reads the length of the header. Returns where the tensors' bytes begin. */
async function readLength(source: ByteSource): Promise<number> {
  if (source.size < 8) {
    fail(`the file has ${source.size} bytes, too few for the 8 that hold the length of the header`, source.size);
  }
  const start = await source.read(0, 8);
  const length = new DataView(start.buffer, start.byteOffset, 8).getBigUint64(0, true);
  if (length > maxHeaderBytes) fail(`the header claims ${length} bytes, more than the ${maxHeaderBytes} allowed`, 0);
  const dataOffset = 8 + Number(length);
  if (dataOffset > source.size) {
    fail(`the header claims ${length} bytes, but the file ends after ${source.size - 8} of them`, source.size);
  }
  return dataOffset;
}

/** Reads the JSON. Offsets are not yet compared with each other and the size of the file. */
function readEntries(json: JsonReader, dataOffset: number): { entries: Entry[]; metadata: Record<string, string> } {
  const entries: Entry[] = [];
  const shapes: Shapes = new Map();
  const metadata = Object.create(null) as Record<string, string>;
  json.object('the header', maxMembers, (name, position) => {
    if (name === '__metadata__') {
      json.object('__metadata__', maxExtras, (key) => {
        metadata[key] = json.string(`the value of ${quoted(key)} in __metadata__`);
      });
      return;
    }
    json.tensor = name;
    entries.push(readEntry(json, name, position, dataOffset, shapes));
    json.tensor = undefined;
  });
  if (json.peek() !== undefined) json.fail('there is more than spaces after the closing brace');
  return { entries, metadata };
}

/** Checks that the tensors, in the order of their bytes, neither overlap nor leave gaps nor end beyond the file. Returns their end. */
function checkOffsets(json: JsonReader, entries: readonly Entry[], dataOffset: number, size: number): number {
  let covered = 0;
  for (const { tensor, position } of entries) {
    json.tensor = tensor.name;
    const begin = tensor.byteOffset - dataOffset;
    const end = begin + tensor.bytes;
    if (begin > covered) json.fail(`data_offsets begins at ${begin} and leaves a hole after ${covered}`, position);
    if (begin < covered) {
      json.fail(
        `data_offsets begins at ${begin} and overlaps the tensor before it, which ends at ${covered}`,
        position,
      );
    }
    if (dataOffset + end > size) {
      json.fail(`data_offsets ends at ${end}, but the file has only ${size - dataOffset} bytes of data`, position);
    }
    covered = end;
  }
  return dataOffset + covered;
}

/**
 * Reads and checks the header of a safetensors file. Every size is compared with the size of the file before memory is allocated for it.
 * @throws ScalepointError `BAD_FILE` with the offset, and with the tensor if the error is in one
 */
export async function readSafetensors(source: ByteSource): Promise<SafetensorsHeader> {
  const dataOffset = await readLength(source);
  const header = await source.read(8, dataOffset);
  const json = new JsonReader(header, 8);
  if (header[0] !== 0x7b) json.fail("expected '{' as the first byte");
  const { entries, metadata } = readEntries(json, dataOffset);
  entries.sort(({ tensor: a }, { tensor: b }) => a.byteOffset - b.byteOffset || a.bytes - b.bytes);
  const end = checkOffsets(json, entries, dataOffset, source.size);
  if (end !== source.size) fail(`the tensors end at byte ${end}, but the file has ${source.size} bytes`, end);
  return { tensors: entries.map(({ tensor }) => tensor), metadata };
}

/** A tensor to be written. */
export interface NamedTensor {
  readonly name: string;
  readonly dtype: TensorDType;
  readonly shape: readonly number[];
}

/** A safetensors file to be written: its header, and where each tensor's bytes go. */
export interface SafetensorsLayout {
  /** The first bytes of the file: length and JSON. */
  readonly header: Uint8Array<ArrayBuffer>;
  /** Which tensors follow, by their indices, in the order of their bytes. */
  readonly order: readonly number[];
  /** Where each tensor begins, from the start of the file, by its index. */
  readonly offsets: Float64Array;
  /** Bytes of the whole file. */
  readonly size: number;
}

type Compare = (a: string, b: string) => number;

/** Engines compare strings by their units, fast. That is byte order, unless there are units from the surrogates on. */
function comparerOf(tensors: readonly NamedTensor[]): Compare {
  const isSimple = tensors.every(({ name }) => !/[\ud800-\uffff]/.test(name));
  return isSimple ? (a, b) => (a < b ? -1 : a > b ? 1 : 0) : compareNames;
}

/** A name that two sorted lists have in common, or that one has twice. */
function twice(a: readonly string[], b: readonly string[], compare: Compare): string | undefined {
  if (a === b) return a.find((name, i) => i > 0 && name === a[i - 1]);
  for (let i = 0, j = 0; i < a.length && j < b.length; ) {
    const order = compare(a[i] as string, b[j] as string);
    if (order === 0) return a[i];
    if (order < 0) i++;
    else j++;
  }
  return undefined;
}

/** The tensors in the order of the reference: wide dtypes first, names in byte order. @throws RangeError if a name is taken */
function orderOf(tensors: readonly NamedTensor[]): number[] {
  const compare = comparerOf(tensors);
  const byType = new Map<TensorDType, number[]>();
  for (let index = 0; index < tensors.length; index++) {
    const { dtype } = tensors[index] as NamedTensor;
    const list = byType.get(dtype);
    if (list === undefined) byType.set(dtype, [index]);
    else list.push(index);
  }
  const nameOf = (index: number) => (tensors[index] as NamedTensor).name;
  const byName = (a: number, b: number) => compare(nameOf(a), nameOf(b));
  const place = (dtype: TensorDType) => dtypeOrder.get(dtype) ?? 0;
  let places: number[] = [];
  const lists = [...byType]
    .sort(([a], [b]) => place(b) - place(a))
    .map(([, list]) => {
      const at = (i: number) => list[i] as number;
      // The scales of some codes are ordered as the codes are, and to see that takes a tenth of the time of sorting.
      const isLike =
        places.length === list.length &&
        places.every((to, i) => i === 0 || byName(at(places[i - 1] as number), at(to)) < 0);
      if (!isLike) places = [...list.keys()].sort((a, b) => byName(at(a), at(b)));
      return places.map(at);
    });
  // A set of all names would take more memory and time than comparing the few lists.
  const names = [...lists.map((list) => list.map(nameOf)), ['__metadata__']];
  for (const [i, first] of names.entries()) {
    for (const second of names.slice(i)) {
      const taken = twice(first, second, compare);
      if (taken !== undefined) throw new RangeError(`tensor ${quoted(taken)}: the name is taken`);
    }
  }
  return lists.flat();
}

/** Where each tensor begins and the last one ends, from the end of the header. @throws RangeError as `layoutSafetensors` */
function placesOf(tensors: readonly NamedTensor[], order: readonly number[]): { offsets: Float64Array; end: number } {
  const offsets = new Float64Array(tensors.length);
  let end = 0;
  for (const index of order) {
    const { name, dtype, shape } = tensors[index] as NamedTensor;
    const bytes = tensorBytes(dtype, shape);
    if (bytes === undefined)
      throw new RangeError(`tensor ${quoted(name)}: shape ${show(shape)} of ${dtype} cannot be stored`);
    offsets[index] = end;
    end += bytes;
  }
  return { offsets, end };
}

/** Tensors whose JSON is made at a time. The header of a hundred thousand has tens of megabytes. */
const tensorsAtOnce = 512;

/** Names that JSON writes as they are. */
const isPlainKey = /^[\w.\-/]*$/;

/** The key of the metadata with its value, if there is any. */
function metadataOf(metadata: Readonly<Record<string, string>>): string {
  return Object.keys(metadata).length > 0 ? `"__metadata__":${JSON.stringify(metadata)}` : '';
}

/** How many digits a whole number has. */
function digitsOf(n: number): number {
  let digits = 1;
  for (let power = 10; n >= power; power *= 10) digits++;
  return digits;
}

/** Bytes of what jsonOf makes. */
function jsonBytes(
  tensors: readonly NamedTensor[],
  order: readonly number[],
  offsets: Float64Array,
  end: number,
  metadata: Readonly<Record<string, string>>,
  encoder: TextEncoder,
): number {
  const frame = '"":{"dtype":"","shape":[],"data_offsets":[,]}'.length;
  const first = encoder.encode(metadataOf(metadata)).length;
  const commas = Math.max(0, order.length - 1) + (first > 0 && order.length > 0 ? 1 : 0);
  let bytes = '{}'.length + first + commas + frame * order.length;
  let last: readonly number[] | undefined;
  let dimensions = 0;
  for (let i = 0; i < order.length; i++) {
    const index = order[i] as number;
    const { name, dtype, shape } = tensors[index] as NamedTensor;
    const next = order[i + 1];
    if (shape !== last) dimensions = shape.join().length;
    last = shape;
    bytes += isPlainKey.test(name) ? name.length : encoder.encode(JSON.stringify(name)).length - 2;
    bytes += dtype.length + dimensions + digitsOf(offsets[index] as number);
    bytes += digitsOf(next === undefined ? end : (offsets[next] as number));
  }
  return bytes;
}

/** The JSON of a header, in pieces. */
function* jsonOf(
  tensors: readonly NamedTensor[],
  order: readonly number[],
  offsets: Float64Array,
  end: number,
  metadata: Readonly<Record<string, string>>,
): Generator<string, void> {
  let piece = `{${metadataOf(metadata)}`;
  let last: readonly number[] | undefined;
  let dimensions = '';
  if (piece !== '{' && order.length > 0) piece += ',';
  for (let i = 0; i < order.length; i++) {
    const index = order[i] as number;
    const { name, dtype, shape } = tensors[index] as NamedTensor;
    const next = order[i + 1];
    const stop = next === undefined ? end : offsets[next];
    const place = `[${offsets[index]},${stop}]}`;
    if (shape !== last) dimensions = shape.join();
    last = shape;
    const key = isPlainKey.test(name) ? `"${name}"` : JSON.stringify(name);
    piece += `${key}:{"dtype":"${dtype}","shape":[${dimensions}],"data_offsets":${place}`;
    if (next !== undefined) piece += ',';
    if (i % tensorsAtOnce !== tensorsAtOnce - 1) continue;
    yield piece;
    piece = '';
  }
  yield `${piece}}`;
}

/**
 * Lays out a file as the reference does. Wide dtypes come first, so that every tensor is aligned. Within a dtype, names are in byte order.
 * The header is padded with spaces to a multiple of 8.
 * @throws RangeError if two tensors have one name, or if a shape does not make whole bytes; ScalepointError `BAD_FILE` if the header
 *   would be longer than the format allows
 */
export function layoutSafetensors(
  tensors: readonly NamedTensor[],
  metadata: Readonly<Record<string, string>> = {},
): SafetensorsLayout {
  const order = orderOf(tensors);
  const { offsets, end } = placesOf(tensors, order);
  const encoder = new TextEncoder();
  // Counted first: so the JSON is never in memory as a string, or as bytes of any other size.
  const used = jsonBytes(tensors, order, offsets, end, metadata, encoder);
  const length = Math.ceil(used / 8) * 8;
  if (length > maxHeaderBytes) {
    throw new ScalepointError(
      'BAD_FILE',
      `the header would have ${length} bytes, more than the ${maxHeaderBytes} allowed`,
    );
  }
  const header = new Uint8Array(8 + length).fill(0x20, 8 + used);
  new DataView(header.buffer).setBigUint64(0, BigInt(length), true);
  let at = 8;
  for (const piece of jsonOf(tensors, order, offsets, end, metadata)) {
    at += encoder.encodeInto(piece, header.subarray(at)).written;
  }
  if (at !== 8 + used) throw new Error(`the header has ${at - 8} bytes instead of ${used}`);
  for (let i = 0; i < offsets.length; i++) offsets[i] = (offsets[i] as number) + header.length;
  return { header, order, offsets, size: header.length + end };
}
