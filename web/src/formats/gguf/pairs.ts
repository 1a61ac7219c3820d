/** Key-value pairs of GGUF files to be written. */
import type { MetadataValue } from '../format.js';
import { type GgufPair, type MetadataScalar, type ValueType, type ValueTypeName, valueTypes } from './contents.js';
import type { GgufHeader } from './header.js';

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

  /** Writes values of a type of numbers. */
  scalars({ bytes, set }: ValueType, values: ArrayLike<MetadataScalar>): void {
    const at = this.#room(bytes * values.length);
    for (let i = 0; i < values.length; i++) set?.(this.#view, at + i * bytes, values[i] as MetadataScalar);
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
  const isArray = key.type.endsWith('[]');
  const name = (isArray ? key.type.slice(0, -2) : key.type) as ValueTypeName;
  const number = (type: ValueTypeName) => valueTypes.findIndex((known) => known.name === type);
  const values = (isArray ? key.value : [key.value]) as ArrayLike<MetadataScalar> | readonly (string | Uint8Array)[];
  if (isArray) pair.u32(number('array'));
  pair.u32(number(name));
  if (isArray) pair.u64(values.length);
  if (name === 'string') for (const text of values as readonly (string | Uint8Array)[]) pair.string(text);
  else pair.scalars(valueTypes[number(name)] as ValueType, values as ArrayLike<MetadataScalar>);
  return { key: key.name, bytes: pair.all() };
}

/** All elements of an array of a header, which its metadata may have cut; undefined for other values. */
export function arrayOf({ pairs }: GgufHeader, name: string): (MetadataScalar | string)[] | undefined {
  const bytes = pairs.find(({ key }) => key === name)?.bytes;
  if (bytes === undefined) return undefined;
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  // The reader of the header has checked all lengths.
  const number = (at: number) => Number(view.getBigUint64(at, true));
  let at = 8 + number(0);
  if (valueTypes[view.getUint32(at, true)]?.name !== 'array') return undefined;
  const type = valueTypes[view.getUint32(at + 4, true)] as ValueType;
  const count = number(at + 8);
  at += 16;
  const decoder = new TextDecoder('utf-8', { ignoreBOM: true });
  return Array.from({ length: count }, () => {
    const begin = at + type.bytes;
    const length = type.name === 'string' ? number(at) : 0;
    const value = type.get?.(view, at) ?? decoder.decode(bytes.subarray(begin, begin + length));
    at = begin + length;
    return value;
  });
}

/** A key with an unsigned 32-bit value. */
export const u32Pair = (name: string, value: number): GgufPair => pairOf({ name, type: 'u32', value });

/** Number of array elements to keep: plans read only the first ones. */
const mostElements = 64;

/** Metadata as a reader of the pairs gives it, with long arrays cut. */
export function ggufMetadata(keys: readonly GgufKey[]): Record<string, MetadataValue> {
  const metadata = Object.create(null) as Record<string, MetadataValue>;
  for (const { name, type, value } of keys) {
    if (!type.endsWith('[]')) metadata[name] = value as MetadataScalar | string;
    else metadata[name] = Array.from(value as ArrayLike<MetadataScalar>).slice(0, mostElements);
  }
  return metadata;
}

// ------------------------------------------------------------------------------------------------------------------------- splits

// Keys of models in several files, as made by gguf-split: the number of the file, the number of files, and the number of tensors in all
// files. Reference: github.com/ggml-org/llama.cpp v0.5.0, tools/gguf-split.
export const numberKey = 'split.no';
export const countKey = 'split.count';
export const tensorsKey = 'split.tensors.count';

/** Keys of split models only. */
export const splitKeys: readonly string[] = [numberKey, countKey, tensorsKey];

/** Pairs of one of several files, in the order of gguf-split, or with `keepSplit` of llama-quantize. @param index from 0 */
export function splitPairs(
  index: number,
  count: number,
  tensors: number,
  { keepSplit = false }: { readonly keepSplit?: boolean | undefined } = {},
): GgufPair[] {
  const pairs = [
    pairOf({ name: tensorsKey, type: 'i32', value: tensors }),
    pairOf({ name: countKey, type: 'u16', value: count }),
  ];
  return [pairOf({ name: numberKey, type: 'u16', value: index }), ...(keepSplit ? pairs.reverse() : pairs)];
}

/** Largest number of files, stored in 16 bits. */
export const mostSplits = 65_535;

/** Number of files of a model, by the keys of one. */
export function splitCount({ metadata }: GgufHeader): number {
  const count = metadata[countKey];
  return typeof count === 'number' ? count : 1;
}

/** The pairs of a model, without those of splits. */
export function withoutSplits(pairs: readonly GgufPair[]): GgufPair[] {
  return pairs.filter(({ key }) => !splitKeys.includes(key));
}
