/** Key-value pairs of GGUF files to be written. */
import type { MetadataValue } from '../format.js';
import { type GgufPair, typeNumber, type ValueTypeName } from './header.js';

/** A key and its value, with a type of GGUF. */
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

/** Collects the parts of a pair, and joins them at the end. */
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

/** The pair of a key, as stored. */
export function pairOf(key: GgufKey): GgufPair {
  const pair = new PairWriter();
  pair.string(key.name);
  if (key.type === 'string') {
    pair.u32(typeNumber('string'));
    pair.string(key.value);
  } else if (key.type === 'string[]') {
    pair.u32(typeNumber('array'));
    pair.u32(typeNumber('string'));
    pair.u64(key.value.length);
    for (const text of key.value) pair.string(text);
  } else {
    const isArray = key.type.endsWith('[]');
    const type = (isArray ? key.type.slice(0, -2) : key.type) as ValueTypeName;
    const writer = writers[type] as Writer;
    const values = (isArray ? key.value : [key.value]) as ArrayLike<Scalar>;
    if (isArray) pair.u32(typeNumber('array'));
    pair.u32(typeNumber(type));
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
