/**
 * Reads headers of GGUF files: magic, version, counts, key-value pairs, tensor entries. Padding and the tensors' bytes follow. The file
 * does not state the length of its header, so it is read in steps. Accepts everything that ggml's own reader accepts, and longer names.
 * Files are untrusted.
 * Reference: github.com/ggml-org/ggml, docs/gguf.md and src/gguf.cpp at d99724f.
 */

import { ScalepointError } from '../../core/errors.js';
import { show } from '../../core/show.js';
import { allocate, type ByteSource, quoted } from '../files/bytes.js';
import type { MetadataValue } from '../format.js';
import { elementCount } from '../tensors.js';
import {
  alignedTo,
  alignmentKey,
  defaultAlignment,
  type GgufPair,
  type GgufTensor,
  ggmlBytes,
  type MetadataScalar,
  minTensorBytes,
  typesById,
  type ValueType,
  valueTypes,
} from './contents.js';

/** Longest array that is shown whole. Longer ones are cut to the first few elements. */
const wholeArray = 64;
const firstOfArray = 8;

// ------------------------------------------------------------------------------------------------------------------------- header

/** A checked header. */
export interface GgufHeader {
  /** 2 or 3. */
  readonly version: number;
  /** Divisor of all offsets of tensors. */
  readonly alignment: number;
  /** In the order of their bytes. */
  readonly tensors: readonly GgufTensor[];
  /** The key-value pairs. Without a prototype, as `__proto__` may be a key. */
  readonly metadata: Readonly<Record<string, MetadataValue>>;
  /** The key-value pairs as they are stored, in file order. */
  readonly pairs: readonly GgufPair[];
  /** Offset of the tensors' bytes. */
  readonly dataOffset: number;
}

/** Largest header: the limit of safetensors. GGUF states no limit; the largest real headers have vocabularies of 20 MB. */
const maxHeaderBytes = 100_000_000;
/** Longest name. ggml accepts 63 bytes and 4 dimensions; files of diffusion models, for programs with their own readers, exceed both. */
const maxNameBytes = 127;
const maxDimensions = 5;
/** Shortest pair: a key of one byte and a value of one byte. */
const minPairBytes = 8 + 1 + 4 + 1;
/**
 * Largest number of pairs or tensors, whose objects stay below 64 MiB. Real files have dozens of pairs and at most some ten thousand
 * tensors.
 */
const maxEntries = 100_000;
/** Bytes of the first read. Later reads grow the buffer by half, so that it stays below twice the header. */
const firstRead = 1 << 16;

/** Reads a header from its start, in steps. Errors are `BAD_FILE` with the offset. */
class HeaderReader {
  position = 0;
  /** The tensor being read, for errors. */
  tensor: string | undefined;
  private readonly source: ByteSource;
  private bytes = new Uint8Array(0);
  private view = new DataView(this.bytes.buffer);
  /** Number of valid bytes in `bytes`. */
  private filled = 0;
  private readonly strict = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true });
  private readonly lenient = new TextDecoder('utf-8', { ignoreBOM: true });

  constructor(source: ByteSource) {
    this.source = source;
  }

  fail(message: string, position = this.position): never {
    const place = this.tensor === undefined ? '' : `tensor ${quoted(this.tensor)}: `;
    throw new ScalepointError('BAD_FILE', `${place}${message}`, {
      tensor: this.tensor,
      byteOffset: Math.min(position, this.source.size),
    });
  }

  /** Fails unless the file has `count` more bytes within the limit of headers. */
  private expect(count: number | bigint, what: string): void {
    const left = this.source.size - this.position;
    if (count > left) this.fail(`the file ends inside of ${what}, which needs ${count} bytes and has ${left}`);
    if (this.position + Number(count) > maxHeaderBytes) {
      this.fail(`${what} ends beyond the first ${maxHeaderBytes} bytes, which is the limit of a header here`);
    }
  }

  /** True if the next `count` bytes are in memory. */
  private has(count: number): boolean {
    return this.position + count <= this.filled;
  }

  /** Reads the next `count` bytes into memory. Call `expect` first. */
  private async load(count: number): Promise<void> {
    const end = this.position + count;
    if (end <= this.filled) return;
    const size = Math.min(this.source.size, maxHeaderBytes, Math.max(end, firstRead, Math.ceil(this.filled * 1.5)));
    const piece = await this.source.read(this.filled, size);
    const larger = allocate(size, ' of the header');
    larger.set(this.bytes.subarray(0, this.filled));
    larger.set(piece, this.filled);
    this.bytes = larger;
    this.view = new DataView(larger.buffer);
    this.filled = size;
  }

  /** Reads the next `count` bytes into memory, or fails. `count` is untrusted. */
  async need(count: number | bigint, what: string): Promise<void> {
    this.expect(count, what);
    await this.load(Number(count));
  }

  /** Reads a 32-bit number that is in memory already. */
  u32(): number {
    const value = this.view.getUint32(this.position, true);
    this.position += 4;
    return value;
  }

  /** Reads a 64-bit number that is in memory already. */
  u64(): bigint {
    const value = this.view.getBigUint64(this.position, true);
    this.position += 8;
    return value;
  }

  /** Steps over a string and returns the offset of its bytes; undefined if it is not in memory yet. */
  private stringInMemory(): number | undefined {
    if (!this.has(8)) return undefined;
    const length = Number(this.view.getBigUint64(this.position, true));
    if (!this.has(8 + length)) return undefined;
    this.position += 8 + length;
    return this.position - length;
  }

  /** Steps over a string and returns the offset of its bytes. */
  private async string(what: string): Promise<number> {
    await this.need(8, `the length of ${what}`);
    const length = this.u64();
    await this.need(length, what);
    this.position += Number(length);
    return this.position - Number(length);
  }

  /** The text from `begin` to the position. Real vocabularies contain invalid UTF-8. */
  private text(begin: number): string {
    return this.lenient.decode(this.bytes.subarray(begin, this.position));
  }

  /** Reads a name: valid UTF-8 without zero bytes, since a zero ends names in ggml. */
  async name(what: string): Promise<string> {
    const start = this.position;
    const begin = await this.string(what);
    const bytes = this.bytes.subarray(begin, this.position);
    if (bytes.includes(0)) this.fail(`${what} holds a byte 0`, start);
    try {
      return this.strict.decode(bytes);
    } catch {
      return this.fail(`${what} is not UTF-8`, start);
    }
  }

  /** Reads the number of a type. */
  valueType(what: string): ValueType {
    const id = this.u32();
    const type = valueTypes[id];
    if (type === undefined) this.fail(`${what} has the unknown type ${id}`, this.position - 4);
    return type;
  }

  /** Reads a number or boolean that is in memory already. */
  private scalar(type: ValueType, what: string): MetadataScalar {
    if (type.name === 'bool' && this.bytes[this.position]! > 1) {
      this.fail(`${what} is neither 0 nor 1, but ${this.bytes[this.position]}`);
    }
    const value = type.get?.(this.view, this.position) as MetadataScalar;
    this.position += type.bytes;
    return value;
  }

  private async array(what: string): Promise<MetadataValue> {
    await this.need(12, what);
    const start = this.position;
    const type = this.valueType(`the elements of ${what}`);
    if (type.name === 'array') this.fail(`${what} is an array of arrays, which ggml does not read`, start);
    const claimed = this.u64();
    if (claimed * BigInt(type.bytes) > this.source.size - this.position) {
      this.fail(`${what} claims ${claimed} elements, more than the file has bytes for`, start + 4);
    }
    const length = Number(claimed);
    this.expect(length * type.bytes, what);
    const shown = length <= wholeArray ? length : firstOfArray;
    const first: (MetadataScalar | string)[] = [];
    if (type.name === 'string') {
      for (let i = 0; i < length; i++) {
        const begin = this.stringInMemory() ?? (await this.string(what));
        if (i < shown) first.push(this.text(begin));
      }
    } else {
      await this.load(length * type.bytes);
      // Check all booleans. Read only the shown elements of other types.
      const read = type.name === 'bool' ? length : shown;
      for (let i = 0; i < read; i++) {
        const value = this.scalar(type, what);
        if (i < shown) first.push(value);
      }
      this.position += (length - read) * type.bytes;
    }
    return length <= wholeArray ? first : { elementType: type.name, length, first };
  }

  async value(type: ValueType, what: string): Promise<MetadataValue> {
    if (type.name === 'array') return this.array(what);
    if (type.name === 'string') return this.text(await this.string(what));
    await this.need(type.bytes, what);
    return this.scalar(type, what);
  }

  /** The bytes [begin, end), all in memory. */
  part(begin: number, end: number): Uint8Array<ArrayBuffer> {
    return this.bytes.subarray(begin, end);
  }
}

/** A key, and the bytes [begin, end) of its pair. */
type PairPlace = readonly [key: string, begin: number, end: number];

async function readPairs(
  reader: HeaderReader,
  count: number,
): Promise<{ metadata: Record<string, MetadataValue>; places: PairPlace[]; alignment: number }> {
  const metadata = Object.create(null) as Record<string, MetadataValue>;
  const places: PairPlace[] = [];
  let alignment = defaultAlignment;
  for (let i = 0; i < count; i++) {
    const begin = reader.position;
    const key = await reader.name(`key ${i}`);
    if (key === '') reader.fail(`key ${i} is empty`, begin);
    if (Object.hasOwn(metadata, key)) reader.fail(`the key ${quoted(key)} occurs twice`, begin);
    const what = `the value of ${quoted(key)}`;
    await reader.need(4, `the type of ${what}`);
    const at = reader.position;
    const type = reader.valueType(what);
    const value = await reader.value(type, what);
    metadata[key] = value;
    places.push([key, begin, reader.position]);
    if (key !== alignmentKey) continue;
    if (type.name !== 'u32') reader.fail(`${what} has the type ${type.name} instead of u32`, at);
    alignment = value as number;
    if (alignment === 0 || (alignment & (alignment - 1)) !== 0) {
      reader.fail(`${what} is ${alignment}, which is not a power of two`, at + 4);
    }
  }
  return { metadata, places, alignment };
}

/** A tensor with its offset from the end of the header, and the position of its entry. */
interface TensorEntry extends GgufTensor {
  readonly position: number;
}

async function tensorEntry(reader: HeaderReader, index: number, names: Set<string>): Promise<TensorEntry> {
  const position = reader.position;
  const name = await reader.name(`the name of tensor ${index}`);
  reader.tensor = name;
  if (reader.position - position - 8 > maxNameBytes) {
    reader.fail(
      `the name has ${reader.position - position - 8} bytes, more than the ${maxNameBytes} allowed`,
      position,
    );
  }
  if (names.has(name)) reader.fail('the name occurs twice', position);
  names.add(name);
  await reader.need(4, 'the number of dimensions');
  const dimensions = reader.u32();
  if (dimensions > maxDimensions) {
    reader.fail(`${dimensions} dimensions are more than the ${maxDimensions} allowed`, reader.position - 4);
  }
  const rest = dimensions * 8 + 12;
  await reader.need(rest, 'the entry');
  const start = reader.position;
  const shape: number[] = [];
  for (let i = 0; i < dimensions; i++) shape.unshift(Number(reader.u64()));
  // Rounded numbers, beyond 2^53, fail this check as well.
  if (elementCount(shape) === undefined) reader.fail(`the product of shape ${show(shape)} is too large`, start);
  const id = reader.u32();
  const type = typesById.get(id);
  if (type === undefined) reader.fail(`the type ${id} is unknown or was removed from ggml`, reader.position - 4);
  const bytes = ggmlBytes(type, shape);
  if (bytes === undefined) {
    const blocks = `blocks of ${type.elements} elements`;
    reader.fail(`rows of shape ${show(shape)} do not divide into ${type.name}'s ${blocks}`, start);
  }
  const byteOffset = Number(reader.u64());
  return { name, dtype: type.name, shape, bytes, byteOffset, position };
}

/**
 * Reads and checks the header of a GGUF file. Each length is compared with the size of the file before memory is allocated. As in ggml,
 * bytes may follow the last tensor, and its padding may be missing.
 * @throws ScalepointError `BAD_FILE` with the offset, and the tensor if one is at fault
 */
export async function readGguf(source: ByteSource): Promise<GgufHeader> {
  const reader = new HeaderReader(source);
  // Read magic, version and counts.
  await reader.need(24, 'the header');
  if (reader.u32() !== 0x46554747) reader.fail("the file does not begin with 'GGUF'", 0);
  const version = reader.u32();
  if (version !== 2 && version !== 3) {
    const reason =
      (version & 0xffff) === 0 && version !== 0 ? 'the file is big-endian' : `version ${version} is not supported`;
    reader.fail(`${reason}; little-endian files of version 2 and 3 are`, 4);
  }
  const tensorCount = reader.u64();
  const pairCount = reader.u64();
  for (const [count, what, bytes, position] of [
    [tensorCount, 'tensors', minTensorBytes, 8],
    [pairCount, 'key-value pairs', minPairBytes, 16],
  ] as const) {
    const room = source.size - 24;
    if (count > room / bytes) reader.fail(`${count} ${what} have no room in the file`, position);
    if (count > maxEntries) reader.fail(`${count} ${what} are more than the ${maxEntries} supported`, position);
  }

  const { metadata, places, alignment } = await readPairs(reader, Number(pairCount));
  const names = new Set<string>();
  const entries: TensorEntry[] = [];
  for (let i = 0; i < tensorCount; i++) {
    entries.push(await tensorEntry(reader, i, names));
    reader.tensor = undefined;
  }

  const dataOffset = alignedTo(reader.position, alignment);
  let covered = 0;
  const tensors = entries.map(({ position, ...tensor }) => {
    const { name, bytes, byteOffset } = tensor;
    reader.tensor = name;
    if (byteOffset !== covered) {
      reader.fail(`the offset is ${byteOffset}, but ${covered} comes after the tensors before it`, position);
    }
    if (dataOffset + covered + bytes > source.size) {
      const there = Math.max(0, source.size - dataOffset);
      reader.fail(`it ends ${covered + bytes} bytes into the data, of which the file has only ${there}`, position);
    }
    covered = alignedTo(covered + bytes, alignment);
    return { ...tensor, byteOffset: dataOffset + byteOffset };
  });
  const pairs = places.map(([key, begin, end]) => ({ key, bytes: reader.part(begin, end) }));
  return { version, alignment, tensors, metadata, pairs, dataOffset };
}
