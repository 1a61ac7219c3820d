/**
 * Pairs and tensors of GGUF files, as both reading and writing know them: types of values, and ggml's types of tensors.
 * Reference: github.com/ggml-org/ggml, src/gguf.cpp and include/ggml.h at d99724f.
 */
import { blockTypeInfo, blockTypes } from '../../core/blocks.js';
import { rangeError } from '../../core/errors.js';
import { type GgmlType, listedTypes } from '../../core/listed-types.js';
import { oneOf } from '../../core/option-problem.js';
import { elementCount } from '../tensors.js';

// -------------------------------------------------------------------------------------------------------------------------- pairs

/** A number or a truth value of the metadata. */
export type MetadataScalar = number | bigint | boolean;

/** A type of values. */
export interface ValueType {
  readonly name: ValueTypeName;
  /** Size of a value, or of the prefix of a string or an array. */
  readonly bytes: number;
  readonly get?: (view: DataView, at: number) => MetadataScalar;
  readonly set?: (view: DataView, at: number, value: MetadataScalar) => void;
}
export type ValueTypeName =
  | 'u8'
  | 'i8'
  | 'u16'
  | 'i16'
  | 'u32'
  | 'i32'
  | 'f32'
  | 'bool'
  | 'string'
  | 'array'
  | 'u64'
  | 'i64'
  | 'f64';

/** A type of numbers, by the methods of DataView. */
function numberType(
  name: ValueTypeName,
  bytes: number,
  method: 'Uint8' | 'Int8' | 'Uint16' | 'Int16' | 'Uint32' | 'Int32' | 'Float32' | 'Float64',
): ValueType {
  const [get, set] = [`get${method}`, `set${method}`] as const;
  return {
    name,
    bytes,
    get: (view, at) => view[get](at, true),
    set: (view, at, value) => view[set](at, Number(value), true),
  };
}

/** A type of integers of 64 bits. A value is a number if that is exact, else a bigint. */
function integerType(name: ValueTypeName, method: 'BigUint64' | 'BigInt64'): ValueType {
  return {
    name,
    bytes: 8,
    get(view, at) {
      const value = view[`get${method}`](at, true);
      const number = Number(value);
      return Number.isSafeInteger(number) ? number : value;
    },
    set: (view, at, value) => view[`set${method}`](at, BigInt(value), true),
  };
}

/** Types of values, in the order of their numbers. */
export const valueTypes: readonly ValueType[] = [
  numberType('u8', 1, 'Uint8'),
  numberType('i8', 1, 'Int8'),
  numberType('u16', 2, 'Uint16'),
  numberType('i16', 2, 'Int16'),
  numberType('u32', 4, 'Uint32'),
  numberType('i32', 4, 'Int32'),
  numberType('f32', 4, 'Float32'),
  {
    name: 'bool',
    bytes: 1,
    get: (view, at) => view.getUint8(at) !== 0,
    set: (view, at, value) => view.setUint8(at, value ? 1 : 0),
  },
  { name: 'string', bytes: 8 },
  { name: 'array', bytes: 12 },
  integerType('u64', 'BigUint64'),
  integerType('i64', 'BigInt64'),
  numberType('f64', 8, 'Float64'),
];

/** A key and its value as stored. */
export interface GgufPair {
  readonly key: string;
  /** Key, type and value, as in the file. */
  readonly bytes: Uint8Array<ArrayBuffer>;
}

export const alignmentKey = 'general.alignment';
export const defaultAlignment = 32;

/** The next multiple of an alignment. */
export const alignedTo = (size: number, alignment: number) => Math.ceil(size / alignment) * alignment;

/** Bytes that a tensor takes in a file, with its padding. */
export const paddedSize = (bytes: number) => alignedTo(bytes, defaultAlignment);

// ------------------------------------------------------------------------------------------------------------------------ tensors

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

/** Bytes of the shortest tensor in a header: an empty name and no dimensions. */
export const minTensorBytes = 8 + 4 + 4 + 8;

/** Every type of tensors, in the order of ggml's numbers. */
export const ggmlTypes: readonly GgmlType[] = Object.freeze(
  [
    ...listedTypes,
    ...blockTypes.map((type): GgmlType => {
      const { name, id, elements, bytes } = blockTypeInfo(type);
      return { name, id, elements, bytes };
    }),
  ].sort((a, b) => a.id - b.id),
);

/** Types by ggml's numbers. */
export const typesById: ReadonlyMap<number, GgmlType> = new Map(ggmlTypes.map((type) => [type.id, type]));
const typesByName = new Map(ggmlTypes.map((type) => [type.name, type]));

/** The type of that name. @throws RangeError for other names */
export function ggmlType(name: string): GgmlType {
  const type = typesByName.get(name);
  if (type === undefined) throw rangeError('type', oneOf([...typesByName.keys()]), name);
  return type;
}

/** Size of a tensor in bytes. Undefined if its rows are not whole blocks or it is too large. */
export function ggmlBytes({ elements, bytes }: GgmlType, shape: readonly number[]): number | undefined {
  const size = ((elementCount(shape) ?? Number.NaN) / elements) * bytes;
  return Number.isSafeInteger(size) && (shape.at(-1) ?? 1) % elements === 0 ? size : undefined;
}
