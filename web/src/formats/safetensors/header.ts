/**
 * safetensors: `u64 N` (little-endian), N bytes of JSON, then the tensors' bytes. A file is untrusted: the header is parsed by the
 * small strict reader below, because `JSON.parse` silently keeps the last of two equal keys and knows no byte offsets.
 * Reference: github.com/huggingface/safetensors, README.md and safetensors/src/tensor.rs.
 */

import { ScalepointError } from '../../core/errors.js';
import { show } from '../../core/show.js';
import { type ByteSource, quoted } from '../../files/bytes.js';

/** Element types and their bits, in the order of the reference: a file written by it holds wide types first. */
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

/** What the header of a file says, checked. */
export interface SafetensorsHeader {
  /** In the order of their bytes, which cover the rest of the file without holes. */
  readonly tensors: readonly TensorInfo[];
  /** The strings of `__metadata__`. Without a prototype, as `__proto__` may be a key. */
  readonly metadata: Readonly<Record<string, string>>;
}

/** The limit of the format. */
const maxHeaderBytes = 100_000_000;
/** serde_json, the reference's JSON reader, stops at this depth. Only values that nobody reads can nest at all. */
const maxDepth = 128;

/** Number of elements of a shape, or undefined if it is no safe integer. Zeros do not hide an overflow of the other dimensions. */
export function elementCount(shape: readonly number[]): number | undefined {
  let product = 1;
  for (const dimension of shape) {
    product *= dimension === 0 ? 1 : dimension;
    if (product > Number.MAX_SAFE_INTEGER) return undefined;
  }
  return shape.includes(0) ? 0 : product;
}

/** Bytes of a tensor, or undefined if they are no whole number or too large. */
export function tensorBytes(dtype: TensorDType, shape: readonly number[]): number | undefined {
  const bits = (elementCount(shape) ?? Number.NaN) * dtypeBits[dtype];
  return Number.isSafeInteger(bits) && bits % 8 === 0 ? bits / 8 : undefined;
}

const quote = 0x22;
const backslash = 0x5c;
const isDigit = (byte: number | undefined) => byte !== undefined && byte >= 0x30 && byte <= 0x39;

/** Reads JSON from bytes, keeping the position. Fails with `BAD_FILE` and the offset in the file. */
export class JsonReader {
  position = 0;
  /** The tensor being read, for errors. */
  tensor: string | undefined;
  private readonly bytes: Uint8Array;
  private readonly origin: number;
  private readonly what: string;
  private readonly decoder = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true });

  /** `origin` is the offset of the bytes in the file, `what` is what errors call them. */
  constructor(bytes: Uint8Array, origin: number, what = 'header') {
    this.bytes = bytes;
    this.origin = origin;
    this.what = what;
  }

  fail(message: string, position = this.position): never {
    const place = this.tensor === undefined ? this.what : `tensor ${quoted(this.tensor)}`;
    throw new ScalepointError('BAD_FILE', `${place}: ${message}`, {
      tensor: this.tensor,
      byteOffset: this.origin + position,
    });
  }

  /** The next byte that is not white space; undefined at the end. */
  peek(): number | undefined {
    for (;;) {
      const byte = this.bytes[this.position];
      if (byte !== 0x20 && byte !== 0x09 && byte !== 0x0a && byte !== 0x0d) return byte;
      this.position++;
    }
  }

  /** Steps over a character if it is the next one. */
  take(character: string): boolean {
    if (this.peek() !== character.charCodeAt(0)) return false;
    this.position++;
    return true;
  }

  expect(character: string, where: string): void {
    if (!this.take(character)) this.fail(`expected '${character}' ${where}, got ${this.seen()}`);
  }

  /** What stands at the position, for errors. */
  private seen(): string {
    const byte = this.peek();
    if (byte === undefined) return `the end of the ${this.what}`;
    return byte > 0x20 && byte < 0x7f
      ? `'${String.fromCharCode(byte)}'`
      : `byte 0x${byte.toString(16).padStart(2, '0')}`;
  }

  string(what: string): string {
    if (this.peek() !== quote) this.fail(`expected ${what}, a string, got ${this.seen()}`);
    const start = this.position;
    let escaped = false;
    for (;;) {
      this.position++;
      const byte = this.bytes[this.position];
      if (byte === undefined) this.fail(`${what} has no closing quote`, start);
      if (byte < 0x20) this.fail(`${what} holds a control character`);
      if (byte === quote) break;
      if (byte === backslash) {
        escaped = true;
        this.position++;
      }
    }
    this.position++;
    let text: string;
    try {
      text = this.decoder.decode(this.bytes.subarray(start + 1, this.position - 1));
    } catch {
      this.fail(`${what} is not UTF-8`, start);
    }
    if (!escaped) return text;
    try {
      text = JSON.parse(`"${text}"`) as string;
    } catch {
      this.fail(`${what} has an unknown escape`, start);
    }
    // Half of a surrogate pair is no character: such a name could not be written back as UTF-8.
    if (/\p{Surrogate}/u.test(text)) this.fail(`${what} has half of a surrogate pair`, start);
    return text;
  }

  /** A whole number of at least 0 that a double holds exactly, written in digits. */
  natural(what: string): number {
    if (!isDigit(this.peek())) this.fail(`expected ${what}, a whole number of at least 0, got ${this.seen()}`);
    const start = this.position;
    let value = 0;
    for (; isDigit(this.bytes[this.position]); this.position++) {
      value = value * 10 + (this.bytes[this.position] as number) - 0x30;
    }
    if (this.position - start > 1 && this.bytes[start] === 0x30) this.fail(`${what} has a leading zero`, start);
    const next = this.bytes[this.position];
    if (next === 0x2e || next === 0x45 || next === 0x65) this.fail(`${what} is no whole number in digits`, start);
    if (!Number.isSafeInteger(value)) this.fail(`${what} is too large`, start);
    return value;
  }

  naturals(what: string): number[] {
    const values: number[] = [];
    this.expect('[', `before ${what}`);
    if (this.take(']')) return values;
    do values.push(this.natural(`a number of ${what}`));
    while (this.take(','));
    this.expect(']', `after ${what}`);
    return values;
  }

  /** Calls `member` with each key and its position; it has to read the value. */
  object(what: string, member: (key: string, position: number) => void): void {
    const keys = new Set<string>();
    this.expect('{', `at the start of ${what}`);
    if (this.take('}')) return;
    do {
      this.peek();
      const position = this.position;
      const key = this.string(`a key of ${what}`);
      if (keys.has(key)) this.fail(`${what} has the key ${quoted(key)} twice`, position);
      keys.add(key);
      this.expect(':', 'after a key');
      member(key, position);
    } while (this.take(','));
    this.expect('}', `at the end of ${what}`);
  }

  /** Steps over a value that nobody reads. */
  skip(depth: number): void {
    if (depth > maxDepth) this.fail(`the JSON nests deeper than ${maxDepth} levels`);
    const byte = this.peek();
    if (byte === 0x7b) this.object('a value', () => this.skip(depth + 1));
    else if (byte === quote) this.string('a value');
    else if (this.take('[')) {
      if (this.take(']')) return;
      do this.skip(depth + 1);
      while (this.take(','));
      this.expect(']', 'after a list');
    } else {
      const start = this.position;
      while (/[-+.\w]/.test(String.fromCharCode(this.bytes[this.position] ?? 0))) this.position++;
      const word = this.decoder.decode(this.bytes.subarray(start, this.position));
      if (!/^(true|false|null|-?(0|[1-9]\d*)(\.\d+)?([eE][-+]?\d+)?)$/.test(word)) {
        this.position = start;
        this.fail(`expected a value, got ${this.seen()}`);
      }
    }
  }
}

/** A header entry with what is needed to check it against the others. */
interface Entry {
  readonly name: string;
  readonly dtype: TensorDType;
  readonly shape: readonly number[];
  /** Offsets after the header. */
  readonly begin: number;
  readonly end: number;
  /** Where the entry is in the header. */
  readonly position: number;
}

function readEntry(json: JsonReader, name: string, position: number): Entry {
  const found: { dtype?: string; shape?: number[]; offsets?: number[] } = {};
  json.object('the entry', (key) => {
    if (key === 'dtype') found.dtype = json.string('dtype');
    else if (key === 'shape') found.shape = json.naturals('shape');
    else if (key === 'data_offsets') found.offsets = json.naturals('data_offsets');
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
  return { name, dtype: known, shape, begin, end, position };
}

/**
 * Reads and checks the header of a safetensors file. Nothing is allocated on the word of the file alone: every size is held against
 * the size of the file first.
 * @throws ScalepointError `BAD_FILE` saying what is wrong, with the tensor and the offset of its entry where there is one
 */
export async function readSafetensors(source: ByteSource): Promise<SafetensorsHeader> {
  const fail = (message: string, byteOffset: number): never => {
    throw new ScalepointError('BAD_FILE', message, { byteOffset });
  };
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

  const header = await source.read(8, dataOffset);
  const json = new JsonReader(header, 8);
  if (header[0] !== 0x7b) json.fail("expected '{' as the first byte");
  const entries: Entry[] = [];
  const metadata = Object.create(null) as Record<string, string>;
  json.object('the header', (name, position) => {
    if (name === '__metadata__') {
      json.object('__metadata__', (key) => {
        metadata[key] = json.string(`the value of ${quoted(key)} in __metadata__`);
      });
      return;
    }
    json.tensor = name;
    entries.push(readEntry(json, name, position));
    json.tensor = undefined;
  });
  if (json.peek() !== undefined) json.fail('there is more than spaces after the closing brace');

  entries.sort((a, b) => a.begin - b.begin || a.end - b.end);
  let covered = 0;
  for (const { name, begin, end, position } of entries) {
    json.tensor = name;
    if (begin > covered) json.fail(`data_offsets begins at ${begin} and leaves a hole after ${covered}`, position);
    if (begin < covered) {
      json.fail(
        `data_offsets begins at ${begin} and overlaps the tensor before it, which ends at ${covered}`,
        position,
      );
    }
    if (dataOffset + end > source.size) {
      json.fail(
        `data_offsets ends at ${end}, but the file has only ${source.size - dataOffset} bytes of data`,
        position,
      );
    }
    covered = end;
  }
  if (dataOffset + covered !== source.size) {
    fail(
      `the tensors end at byte ${dataOffset + covered}, but the file has ${source.size} bytes`,
      dataOffset + covered,
    );
  }
  const tensors = entries.map(({ name, dtype, shape, begin, end }) => ({
    name,
    dtype,
    shape,
    bytes: end - begin,
    byteOffset: dataOffset + begin,
  }));
  return { tensors, metadata };
}

/** Code point order, which is UTF-8 byte order. (`<` on strings compares UTF-16 units, another order beyond U+FFFF.) */
export function compareNames(a: string, b: string): number {
  for (let i = 0; ; ) {
    const left = a.codePointAt(i);
    const right = b.codePointAt(i);
    if (left === undefined || right === undefined) return a.length - b.length;
    if (left !== right) return left - right;
    i += left > 0xffff ? 2 : 1;
  }
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
 * Lays out a file as the reference does: wide dtypes first, so that every tensor is aligned, names in byte order within a dtype, the
 * header padded with spaces to a multiple of 8.
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
