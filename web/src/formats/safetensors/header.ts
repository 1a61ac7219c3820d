/**
 * Reads headers of safetensors files: `u64 N` (little-endian), N bytes of JSON, then the tensors' bytes. Files are untrusted, so everything
 * in a header is checked. write-header.ts writes them.
 * Reference: github.com/huggingface/safetensors, README.md and safetensors/src/tensor.rs at 24b0b28.
 */

import { show } from '../../core/show.js';
import { type ByteSource, quoted } from '../files/bytes.js';
import { badFile } from '../files/errors.js';
import { elementCount } from '../tensors.js';
import { JsonReader, maxExtras, maxMembers } from './json.js';

/** Bits of element types, in the order of the reference, which writes files from the last type to the first. */
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

/** Position of each type in that order. */
export const dtypeOrder: ReadonlyMap<string, number> = new Map(
  Object.keys(dtypeBits).map((dtype, index) => [dtype, index]),
);

/** A tensor in a file. */
export interface TensorInfo {
  readonly name: string;
  readonly dtype: TensorDType;
  /** Row-major; empty for a scalar. */
  readonly shape: readonly number[];
  /** Size in bytes. */
  readonly bytes: number;
  /** Offset of its first byte in its file. */
  readonly byteOffset: number;
  /** Index of its file in a model of several files, from 0. */
  readonly file: number;
}

/** A checked header. */
export interface SafetensorsHeader {
  /** In the order of their bytes. They cover the rest of the file without gaps. */
  readonly tensors: readonly TensorInfo[];
  /** The strings of `__metadata__`. Without a prototype, as `__proto__` may be a key. */
  readonly metadata: Readonly<Record<string, string>>;
}

/** Largest header of the format. */
export const maxHeaderBytes = 100_000_000;

/** Largest rank accepted, at least that of numpy and PyTorch. */
const maxRank = 64;

/** Size of a tensor in bytes; undefined if not a whole number, or too large. */
export function tensorBytes(dtype: TensorDType, shape: readonly number[]): number | undefined {
  const bits = (elementCount(shape) ?? Number.NaN) * dtypeBits[dtype];
  return Number.isSafeInteger(bits) && bits % 8 === 0 ? bits / 8 : undefined;
}

/** Makes a function that gives equal shapes as one array. Models have few shapes, and often many consecutive tensors of one. */
function shapeSharing(): (shape: readonly number[]) => readonly number[] {
  const byNumbers = new Map<string, readonly number[]>();
  let last: readonly number[] = [];
  return (shape) => {
    let isLast = shape.length === last.length;
    for (let i = 0; isLast && i < shape.length; i++) isLast = shape[i] === last[i];
    if (isLast) return last;
    const key = shape.join();
    // Copy it, to free spare capacity.
    last = byNumbers.get(key) ?? shape.slice();
    byNumbers.set(key, last);
    return last;
  };
}

/** Facts that all entries of a header share. */
interface EntrySetting {
  /** Offset of the tensors' bytes. */
  readonly dataOffset: number;
  /** Index of the file. */
  readonly file: number;
  readonly sharedShape: ReturnType<typeof shapeSharing>;
}

function readTensorEntry(json: JsonReader, name: string, position: number, setting: EntrySetting): TensorInfo {
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
  if (bytes === undefined)
    json.fail(`${elements} elements of ${known} with ${dtypeBits[known]} bits do not fill whole bytes`, position);
  if (end - begin !== bytes)
    json.fail(`${known} of shape ${show(shape)} has ${bytes} bytes, but data_offsets span ${end - begin}`, position);
  const { dataOffset, file, sharedShape } = setting;
  return { name, dtype: known, shape: sharedShape(shape), bytes, byteOffset: dataOffset + begin, file };
}

/**
 * Reads and checks the header of a safetensors file. Each size is compared with the size of the file before memory is allocated.
 * @param file index of the file in a model of several files
 * @throws ScalepointError `BAD_FILE` with the offset, and the tensor if one is at fault
 */
export async function readSafetensors(source: ByteSource, file = 0): Promise<SafetensorsHeader> {
  // Read the length of the header.
  const { size } = source;
  if (size < 8) badFile(`the file has ${size} bytes, too few for the 8 that hold the length of the header`, size);
  const start = await source.read(0, 8);
  const length = new DataView(start.buffer, start.byteOffset, 8).getBigUint64(0, true);
  if (length > maxHeaderBytes) badFile(`the header claims ${length} bytes, more than the ${maxHeaderBytes} allowed`, 0);
  const dataOffset = 8 + Number(length);
  if (dataOffset > size)
    badFile(`the header claims ${length} bytes, but the file ends after ${size - 8} of them`, size);
  // Read the JSON: tensors, and the positions of their entries.
  const header = await source.read(8, dataOffset);
  const json: JsonReader = new JsonReader(header, 8);
  if (header[0] !== 0x7b) json.fail("expected '{' as the first byte");
  const setting = { dataOffset, file, sharedShape: shapeSharing() };
  const metadata = Object.create(null) as Record<string, string>;
  let tensors: TensorInfo[] = [];
  let positions: number[] = [];
  json.object('the header', maxMembers, (name, position) => {
    if (name === '__metadata__') {
      json.object('__metadata__', maxExtras, (key) => {
        metadata[key] = json.string(`the value of ${quoted(key)} in __metadata__`);
      });
      return;
    }
    json.tensor = name;
    tensors.push(readTensorEntry(json, name, position, setting));
    positions.push(position);
    json.tensor = undefined;
  });
  if (json.peek() !== undefined) json.fail('there is more than spaces after the closing brace');
  // Sort by offset. Most files are sorted already.
  const compare = (a: TensorInfo, b: TensorInfo) => a.byteOffset - b.byteOffset || a.bytes - b.bytes;
  if (tensors.some((tensor, i) => i > 0 && compare(tensors[i - 1] as TensorInfo, tensor) > 0)) {
    const found = tensors.map((tensor, i) => ({ tensor, position: positions[i] as number }));
    found.sort((a, b) => compare(a.tensor, b.tensor));
    tensors = found.map(({ tensor }) => tensor);
    positions = found.map(({ position }) => position);
  }
  // Check that they do not overlap, leave gaps, or exceed the file.
  let covered = 0;
  for (const [i, { name, byteOffset, bytes }] of tensors.entries()) {
    const position = positions[i] as number;
    const begin = byteOffset - dataOffset;
    const end = begin + bytes;
    json.tensor = name;
    if (begin > covered) json.fail(`data_offsets begins at ${begin} and leaves a hole after ${covered}`, position);
    if (begin < covered) {
      const message = `data_offsets begins at ${begin} and overlaps the tensor before it, which ends at ${covered}`;
      json.fail(message, position);
    }
    if (dataOffset + end > size)
      json.fail(`data_offsets ends at ${end}, but the file has only ${size - dataOffset} bytes of data`, position);
    covered = end;
  }
  const end = dataOffset + covered;
  if (end !== size) badFile(`the tensors end at byte ${end}, but the file has ${size} bytes`, end);
  return { tensors, metadata };
}
