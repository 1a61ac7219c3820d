/** Key-value pairs of GGUF files to be written. */
import type { MetadataValue } from '../format.js';
import type { GgufPair } from './header.js';

/** A key and its value, as GGUF types them. */
export type GgufKey = { readonly name: string } & (
  | { readonly type: 'u8' | 'u16' | 'u32' | 'i8' | 'i16' | 'i32' | 'f32' | 'f64'; readonly value: number }
  | { readonly type: 'u64' | 'i64'; readonly value: number | bigint }
  | { readonly type: 'bool'; readonly value: boolean }
  | { readonly type: 'string'; readonly value: string }
  | { readonly type: 'u32[]' | 'i32[]' | 'f32[]'; readonly value: ArrayLike<number> }
  | { readonly type: 'bool[]'; readonly value: readonly boolean[] }
  | { readonly type: 'string[]'; readonly value: readonly (string | Uint8Array)[] }
);

type Scalar = number | bigint | boolean;

/** How a number is written: GGUF's number of its type, its size and its bytes. */
interface Writer {
  readonly id: number;
  readonly bytes: number;
  write(view: DataView, at: number, value: Scalar): void;
}

const writers: Readonly<Record<string, Writer>> = {
  u8: { id: 0, bytes: 1, write: (view, at, value) => view.setUint8(at, Number(value)) },
  i8: { id: 1, bytes: 1, write: (view, at, value) => view.setInt8(at, Number(value)) },
  u16: { id: 2, bytes: 2, write: (view, at, value) => view.setUint16(at, Number(value), true) },
  i16: { id: 3, bytes: 2, write: (view, at, value) => view.setInt16(at, Number(value), true) },
  u32: { id: 4, bytes: 4, write: (view, at, value) => view.setUint32(at, Number(value), true) },
  i32: { id: 5, bytes: 4, write: (view, at, value) => view.setInt32(at, Number(value), true) },
  f32: { id: 6, bytes: 4, write: (view, at, value) => view.setFloat32(at, Number(value), true) },
  bool: { id: 7, bytes: 1, write: (view, at, value) => view.setUint8(at, value ? 1 : 0) },
  u64: { id: 10, bytes: 8, write: (view, at, value) => view.setBigUint64(at, BigInt(value), true) },
  i64: { id: 11, bytes: 8, write: (view, at, value) => view.setBigInt64(at, BigInt(value), true) },
  f64: { id: 12, bytes: 8, write: (view, at, value) => view.setFloat64(at, Number(value), true) },
};

const [stringId, arrayId] = [8, 9];
const encoder = new TextEncoder();

/** Parts of a pair, put together at the end. */
class PairWriter {
  readonly #pieces: Uint8Array[] = [];
  #size = 0;

  bytes(bytes: Uint8Array): void {
    this.#pieces.push(bytes);
    this.#size += bytes.length;
  }

  numbers({ bytes, write }: Writer, values: ArrayLike<Scalar>): void {
    const piece = new Uint8Array(bytes * values.length);
    const view = new DataView(piece.buffer);
    for (let i = 0; i < values.length; i++) write(view, i * bytes, values[i] as Scalar);
    this.bytes(piece);
  }

  u32(value: number): void {
    this.numbers(writers.u32 as Writer, [value]);
  }

  u64(value: number): void {
    this.numbers(writers.u64 as Writer, [value]);
  }

  string(text: string | Uint8Array): void {
    const bytes = typeof text === 'string' ? encoder.encode(text) : text;
    this.u64(bytes.length);
    this.bytes(bytes);
  }

  all(): Uint8Array<ArrayBuffer> {
    const all = new Uint8Array(this.#size);
    let at = 0;
    for (const piece of this.#pieces) {
      all.set(piece, at);
      at += piece.length;
    }
    return all;
  }
}

/** The pair that says this. */
export function pairOf(key: GgufKey): GgufPair {
  const pair = new PairWriter();
  pair.string(key.name);
  if (key.type === 'string') {
    pair.u32(stringId);
    pair.string(key.value);
  } else if (key.type === 'string[]') {
    pair.u32(arrayId);
    pair.u32(stringId);
    pair.u64(key.value.length);
    for (const text of key.value) pair.string(text);
  } else {
    const isArray = key.type.endsWith('[]');
    const writer = writers[isArray ? key.type.slice(0, -2) : key.type] as Writer;
    const values = (isArray ? key.value : [key.value]) as ArrayLike<Scalar>;
    if (isArray) pair.u32(arrayId);
    pair.u32(writer.id);
    if (isArray) pair.u64(values.length);
    pair.numbers(writer, values);
  }
  return { key: key.name, bytes: pair.all() };
}

/** Elements of arrays that are kept: what a plan looks at is at the beginning. */
const mostElements = 64;

/** What a reader of the pairs would find, with the beginnings of long arrays. */
export function metadataOf(keys: readonly GgufKey[]): Record<string, MetadataValue> {
  const metadata = Object.create(null) as Record<string, MetadataValue>;
  for (const { name, type, value } of keys) {
    if (!type.endsWith('[]')) metadata[name] = value as Scalar | string;
    else metadata[name] = Array.from(value as ArrayLike<Scalar>).slice(0, mostElements);
  }
  return metadata;
}
