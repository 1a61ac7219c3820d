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

function readEntry(json: JsonReader, name: string, position: number, dataOffset: number): Entry {
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
  return { tensor: { name, dtype: known, shape, bytes, byteOffset: dataOffset + begin }, position };
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
  const metadata = Object.create(null) as Record<string, string>;
  json.object('the header', maxMembers, (name, position) => {
    if (name === '__metadata__') {
      json.object('__metadata__', maxExtras, (key) => {
        metadata[key] = json.string(`the value of ${quoted(key)} in __metadata__`);
      });
      return;
    }
    json.tensor = name;
    entries.push(readEntry(json, name, position, dataOffset));
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

/** A safetensors file to be written: its header, and where each tensor's bytes go. */
export interface SafetensorsLayout {
  /** The first bytes of the file: length and JSON. */
  readonly header: Uint8Array<ArrayBuffer>;
  /** In the order of their bytes. */
  readonly tensors: readonly TensorInfo[];
  /** Bytes of the whole file. */
  readonly size: number;
}

/**
 * Lays out a file as the reference does. Wide dtypes come first, so that every tensor is aligned. Within a dtype, names are in byte order.
 * The header is padded with spaces to a multiple of 8.
 * @throws RangeError if two tensors have one name, or if a shape does not make whole bytes; ScalepointError `BAD_FILE` if the header
 *   would be longer than the format allows
 */
export function layoutSafetensors(
  tensors: readonly { readonly name: string; readonly dtype: TensorDType; readonly shape: readonly number[] }[],
  metadata: Readonly<Record<string, string>> = {},
): SafetensorsLayout {
  const order = (dtype: TensorDType) => dtypeOrder.get(dtype) ?? 0;
  const sorted = [...tensors].sort((a, b) => order(b.dtype) - order(a.dtype) || compareNames(a.name, b.name));
  const members: string[] = [];
  const names = new Set<string>(['__metadata__']);
  if (Object.keys(metadata).length > 0) members.push(`"__metadata__":${JSON.stringify(metadata)}`);
  let offset = 0;
  const placed = sorted.map(({ name, dtype, shape }) => {
    const bytes = tensorBytes(dtype, shape);
    if (bytes === undefined)
      throw new RangeError(`tensor ${quoted(name)}: shape ${show(shape)} of ${dtype} cannot be stored`);
    if (names.has(name)) throw new RangeError(`tensor ${quoted(name)}: the name is taken`);
    names.add(name);
    const end = offset + bytes;
    members.push(
      `${JSON.stringify(name)}:{"dtype":"${dtype}","shape":${JSON.stringify(shape)},"data_offsets":[${offset},${end}]}`,
    );
    const info = { name, dtype, shape, bytes, byteOffset: offset };
    offset = end;
    return info;
  });

  const json = new TextEncoder().encode(`{${members.join(',')}}`);
  const length = Math.ceil(json.length / 8) * 8;
  if (length > maxHeaderBytes) {
    throw new ScalepointError(
      'BAD_FILE',
      `the header would have ${length} bytes, more than the ${maxHeaderBytes} allowed`,
    );
  }
  const header = new Uint8Array(8 + length).fill(0x20);
  new DataView(header.buffer).setBigUint64(0, BigInt(length), true);
  header.set(json, 8);
  const shifted = placed.map((info) => ({ ...info, byteOffset: header.length + info.byteOffset }));
  return { header, tensors: shifted, size: header.length + offset };
}
