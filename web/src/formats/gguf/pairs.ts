/** Key-value pairs of GGUF files to be written. */
import type { MetadataValue } from '../format.js';
import { type GgufPair, ggmlTypeNumber, type ValueTypeName } from './contents.js';

/** A key and its value, with a type of GGUF. */
export type GgufKey = { readonly name: string } & (
  | { readonly type: 'u8' | 'u16' | 'u32' | 'i8' | 'i16' | 'i32' | 'f32' | 'f64'; readonly value: number }
  | { readonly type: 'u64' | 'i64'; readonly value: number | bigint }
  | { readonly type: 'bool'; readonly value: boolean }
  | { readonly type: 'string'; readonly value: string }
  | { readonly type: 'u8[]' | 'u32[]' | 'i32[]' | 'f32[]'; readonly value: ArrayLike<number> }
  | { readonly type: 'bool[]'; readonly value: readonly boolean[] }
  | { readonly type: 'string[]'; readonly value: readonly (string | Uint8Array)[] }
);

type Scalar = number | bigint | boolean;

/** Writes numbers of a type: their size and bytes. */
interface Writer {
  readonly bytes: number;
  write(view: DataView, at: number, value: Scalar): void;
}

const writers: Readonly<Record<string, Writer>> = {
  u8: { bytes: 1, write: (view, at, value) => view.setUint8(at, Number(value)) },
  i8: { bytes: 1, write: (view, at, value) => view.setInt8(at, Number(value)) },
  u16: { bytes: 2, write: (view, at, value) => view.setUint16(at, Number(value), true) },
  i16: { bytes: 2, write: (view, at, value) => view.setInt16(at, Number(value), true) },
  u32: { bytes: 4, write: (view, at, value) => view.setUint32(at, Number(value), true) },
  i32: { bytes: 4, write: (view, at, value) => view.setInt32(at, Number(value), true) },
  f32: { bytes: 4, write: (view, at, value) => view.setFloat32(at, Number(value), true) },
  bool: { bytes: 1, write: (view, at, value) => view.setUint8(at, value ? 1 : 0) },
  u64: { bytes: 8, write: (view, at, value) => view.setBigUint64(at, BigInt(value), true) },
  i64: { bytes: 8, write: (view, at, value) => view.setBigInt64(at, BigInt(value), true) },
  f64: { bytes: 8, write: (view, at, value) => view.setFloat64(at, Number(value), true) },
};

const encoder = new TextEncoder();

/** Writes the parts of a pair one after the other. A tokenizer has hundreds of thousands of texts, so that memory is taken for many at once. */
class PairWriter {
  #memory = new Uint8Array(256);
  #view = new DataView(this.#memory.buffer);
  #size = 0;

  /** Makes room for more bytes. Returns their position. */
  #room(bytes: number): number {
    if (this.#size + bytes > this.#memory.length) {
      const larger = new Uint8Array(2 * (this.#size + bytes));
      larger.set(this.#memory.subarray(0, this.#size));
      this.#memory = larger;
      this.#view = new DataView(larger.buffer);
    }
    return this.#size;
  }

  numbers({ bytes, write }: Writer, values: ArrayLike<Scalar>): void {
    const at = this.#room(bytes * values.length);
    for (let i = 0; i < values.length; i++) write(this.#view, at + i * bytes, values[i] as Scalar);
    this.#size += bytes * values.length;
  }

  u32(value: number): void {
    this.#view.setUint32(this.#room(4), value, true);
    this.#size += 4;
  }

  /** A count. */
  u64(value: number): void {
    this.u32(value % 2 ** 32);
    this.u32(Math.floor(value / 2 ** 32));
  }

  /** Writes UTF-8. Returns its bytes. Most tokens are short, and have codes of one or two bytes, which take less time than a call of the encoder. */
  #encode(text: string, begin: number): number {
    const memory = this.#memory;
    let at = begin;
    for (let i = 0; i < text.length; i++) {
      const code = text.charCodeAt(i);
      if (code < 0x80) memory[at++] = code;
      else if (code < 0x800) {
        memory[at++] = 0xc0 | (code >> 6);
        memory[at++] = 0x80 | (code & 0x3f);
      } else return encoder.encodeInto(text, memory.subarray(begin)).written;
    }
    return at - begin;
  }

  string(text: string | Uint8Array): void {
    // A code unit becomes at most three bytes.
    const at = this.#room(8 + 3 * text.length) + 8;
    let written = text.length;
    if (typeof text === 'string') written = this.#encode(text, at);
    else this.#memory.set(text, at);
    this.u64(written);
    this.#size += written;
  }

  all(): Uint8Array<ArrayBuffer> {
    return this.#memory.slice(0, this.#size);
  }
}

/** The pair of a key, as stored. */
export function pairOf(key: GgufKey): GgufPair {
  const pair = new PairWriter();
  pair.string(key.name);
  if (key.type === 'string') {
    pair.u32(ggmlTypeNumber('string'));
    pair.string(key.value);
  } else if (key.type === 'string[]') {
    pair.u32(ggmlTypeNumber('array'));
    pair.u32(ggmlTypeNumber('string'));
    pair.u64(key.value.length);
    for (const text of key.value) pair.string(text);
  } else {
    const isArray = key.type.endsWith('[]');
    const type = (isArray ? key.type.slice(0, -2) : key.type) as ValueTypeName;
    const writer = writers[type] as Writer;
    const values = (isArray ? key.value : [key.value]) as ArrayLike<Scalar>;
    if (isArray) pair.u32(ggmlTypeNumber('array'));
    pair.u32(ggmlTypeNumber(type));
    if (isArray) pair.u64(values.length);
    pair.numbers(writer, values);
  }
  return { key: key.name, bytes: pair.all() };
}

/** A key with an unsigned 32-bit value. */
export const u32Pair = (name: string, value: number): GgufPair => pairOf({ name, type: 'u32', value });

/** Number of array elements to keep: plans read only the first ones. */
const mostElements = 64;

/** Metadata as a reader of the pairs gives it, with long arrays cut. */
export function metadataOf(keys: readonly GgufKey[]): Record<string, MetadataValue> {
  const metadata = Object.create(null) as Record<string, MetadataValue>;
  for (const { name, type, value } of keys) {
    if (!type.endsWith('[]')) metadata[name] = value as Scalar | string;
    else metadata[name] = Array.from(value as ArrayLike<Scalar>).slice(0, mostElements);
  }
  return metadata;
}
