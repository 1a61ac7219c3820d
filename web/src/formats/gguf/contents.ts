/** Pairs and tensors of GGUF files, as both reading and writing know them. Reference: github.com/ggml-org/ggml, src/gguf.cpp at d99724f. */

/** Types of values, in the order of their numbers. `bytes`: size of a value, or of the prefix of a string or an array. */
export const valueTypes = [
  { name: 'u8', bytes: 1, get: (view: DataView, at: number) => view.getUint8(at) },
  { name: 'i8', bytes: 1, get: (view: DataView, at: number) => view.getInt8(at) },
  { name: 'u16', bytes: 2, get: (view: DataView, at: number) => view.getUint16(at, true) },
  { name: 'i16', bytes: 2, get: (view: DataView, at: number) => view.getInt16(at, true) },
  { name: 'u32', bytes: 4, get: (view: DataView, at: number) => view.getUint32(at, true) },
  { name: 'i32', bytes: 4, get: (view: DataView, at: number) => view.getInt32(at, true) },
  { name: 'f32', bytes: 4, get: (view: DataView, at: number) => view.getFloat32(at, true) },
  { name: 'bool', bytes: 1, get: (view: DataView, at: number) => view.getUint8(at) !== 0 },
  { name: 'string', bytes: 8, get: undefined },
  { name: 'array', bytes: 12, get: undefined },
  { name: 'u64', bytes: 8, get: (view: DataView, at: number) => whole(view.getBigUint64(at, true)) },
  { name: 'i64', bytes: 8, get: (view: DataView, at: number) => whole(view.getBigInt64(at, true)) },
  { name: 'f64', bytes: 8, get: (view: DataView, at: number) => view.getFloat64(at, true) },
] as const;
export type ValueType = (typeof valueTypes)[number];
export type ValueTypeName = ValueType['name'];

/** The number of a type of values. */
export function ggmlTypeNumber(type: ValueTypeName): number {
  return valueTypes.findIndex(({ name }) => name === type);
}

/** Type of a pair's value. */
export function typeNameOf({ bytes }: GgufPair): ValueTypeName {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
  const number = view.getUint32(8 + Number(view.getBigUint64(0, true)), true);
  return (valueTypes[number] as ValueType).name;
}

/** The value as a number if that is exact, else as a bigint. */
function whole(value: bigint): number | bigint {
  const number = Number(value);
  return Number.isSafeInteger(number) ? number : value;
}

/** A key and its value as stored. */
export interface GgufPair {
  readonly key: string;
  /** Key, type and value, as in the file. */
  readonly bytes: Uint8Array<ArrayBuffer>;
}

/** A tensor in a file. */
export interface GgufTensor {
  readonly name: string;
  /** Such as `F16` or `Q4_K`. */
  readonly dtype: string;
  /** Row-major: the dimensions of GGUF in reverse order. */
  readonly shape: readonly number[];
  /** Size in bytes. */
  readonly bytes: number;
  /** Offset of its first byte in its file. */
  readonly byteOffset: number;
  /** Index of its file in a split model, from 0. */
  readonly file?: number;
}

export const alignmentKey = 'general.alignment';
export const defaultAlignment = 32;
/** Bytes of the shortest tensor in a header: an empty name and no dimensions. */
export const minTensorBytes = 8 + 4 + 4 + 8;

/** The next multiple of an alignment. */
export const padded = (size: number, alignment: number) => Math.ceil(size / alignment) * alignment;
