// Quantized tensors, and the types of their codes.
import type { BlockType } from '../core/blocks.js';
import type { OutputErrors } from '../core/measure.js';
import type { WasmArray } from '../core/wasm-array.js';
import { integerNames, typeNameError } from './type-names.js';

/** An integer type that codes can have. */
export type DType = (typeof integerNames)[number];

/** The elements that share one scale and zero point. Negative axes count from the end. */
export type Granularity =
  | { readonly kind: 'per-tensor' }
  | {
      readonly kind: 'per-channel';
      /** Each index of this axis is a channel. */
      readonly axis: number;
    }
  | {
      readonly kind: 'per-group';
      /** Elements along the axis that share a scale. The last group of an axis may be shorter. */
      readonly groupSize: number;
      /** The axis along which elements are grouped. @defaultValue the last axis */
      readonly axis?: number | undefined;
    };

/** An array of codes, one per element: of one byte for up to 8 bits, of two bytes for 16 bits. */
export type CodeArray = Int8Array | Uint8Array | Int16Array | Uint16Array;

/** A new array of the codes of a dtype. */
export type CodesOf<D extends DType> = D extends 'int16'
  ? Int16Array<ArrayBuffer>
  : D extends 'uint16'
    ? Uint16Array<ArrayBuffer>
    : D extends `u${string}`
      ? Uint8Array<ArrayBuffer>
      : Int8Array<ArrayBuffer>;

/** Bits, range and storage of a dtype. */
export interface DTypeInfo {
  /** The dtype itself. */
  readonly name: DType;
  /** Bits of a code. */
  readonly bits: number;
  /** True if codes can be negative. */
  readonly signed: boolean;
  /** The smallest code. */
  readonly qmin: number;
  /** The largest code. */
  readonly qmax: number;
  /** The element type of the array that holds the codes. */
  readonly storage: 'int8' | 'uint8' | 'int16' | 'uint16';
}

// Frozen because all callers get the same objects.
const infos = new Map<string, DTypeInfo>(
  integerNames.map((name) => {
    const signed = name.startsWith('int');
    const bits = Number(name.replace(/^u?int/, ''));
    return [
      name,
      Object.freeze({
        name,
        bits,
        signed,
        qmin: signed ? -(2 ** (bits - 1)) : 0,
        qmax: signed ? 2 ** (bits - 1) - 1 : 2 ** bits - 1,
        storage: `${signed ? '' : 'u'}int${bits > 8 ? 16 : 8}` as DTypeInfo['storage'],
      }),
    ];
  }),
);

/** Every dtype: those of up to 8 bits, signed first, then those of 16. */
export const dtypes: readonly DType[] = Object.freeze([...integerNames]);

/**
 * Bits, range and storage of a dtype.
 * @throws RangeError for an unknown dtype
 */
export function dtypeInfo(dtype: DType): DTypeInfo {
  return dtypeInfoAt(dtype, 'dtype');
}

/** Finds a type by its name. Errors name the path of the option. */
export function dtypeInfoAt(dtype: DType, option: string): DTypeInfo {
  const info = infos.get(dtype);
  if (info === undefined) throw typeNameError(option, integerNames, dtype);
  return info;
}

/**
 * A new tensor that JSON.stringify refuses, because JSON would write its arrays as objects with a key for each element. The function that
 * throws is not enumerable, so that structuredClone and postMessage skip it.
 */
export function plain<T extends QuantizedTensor>(tensor: T): T {
  return Object.defineProperty(tensor, 'toJSON', {
    value: () => {
      throw new TypeError('JSON has no typed arrays: saveTensors of scalepoint/model gives bytes to be stored or sent');
    },
  });
}

/** Integers with the scale and zero point that give them meaning. Plain data, unless its data is a WasmArray. */
export interface LinearQuantizedTensor<Data extends CodeArray | WasmArray = CodeArray | WasmArray> {
  readonly kind: 'linear';
  /** Type of the codes. */
  readonly dtype: DType;
  /** Its product is the number of elements. */
  readonly shape: readonly number[];
  /** The elements that share one scale and zero point. */
  readonly granularity: Granularity;
  /** One code per element, in row-major order. With `packed: true`, their bytes as `pack` returns them. */
  readonly data: Data;
  /** True if the codes are packed: see the option `packed` of `quantize`. @defaultValue false */
  readonly packed?: boolean | undefined;
  /**
   * One scale per tensor, per channel or per group. Those of groups have the row-major order of the shape with the axis divided by
   * groupSize, rounded up.
   */
  readonly scale: Float32Array;
  /** One zero point per scale. */
  readonly zeroPoint: Int32Array;
  /** With the option `moments`: errors of outputs, and the damping that was used. */
  readonly output?: OutputErrors | undefined;
}

/** Integers whose codes are packed densely, as `quantize(x, { packed: true })` returns them. */
export interface PackedLinearTensor<Data extends Uint8Array | WasmArray = Uint8Array | WasmArray>
  extends LinearQuantizedTensor<Data> {
  readonly packed: true;
}

/** ggml blocks, byte for byte as a GGUF file holds them. Plain data, unless its data is a WasmArray. */
export interface BlockTensor<Data extends Uint8Array | WasmArray = Uint8Array | WasmArray> {
  readonly kind: 'blocks';
  /** ggml's name of the blocks. */
  readonly type: BlockType;
  /** The last dimension is a multiple of the block's elements. */
  readonly shape: readonly number[];
  /** Block after block, in row-major order. */
  readonly data: Data;
}

/** Indices into a codebook, with a scale for each block, called absmax. Plain data, unless its data is a WasmArray. */
export interface CodebookTensor<Data extends Uint8Array | WasmArray = Uint8Array | WasmArray> {
  readonly kind: 'codebook';
  /** 2 to 256 values, by code. */
  readonly codebook: Float32Array;
  /** Consecutive elements, in row-major order, that share an absmax. The last block may be shorter. */
  readonly blockSize: number;
  /**
   * One per block: a code stands for codebook[code] * absmax. The largest magnitude in the block, unless `range: 'mse'` found another
   * scale.
   */
  readonly absmax: Float32Array;
  /** One code per element, in row-major order. */
  readonly data: Data;
  /** Its product is the number of elements. */
  readonly shape: readonly number[];
}

/** The values of the codes of a codebook, in new arrays. */
export interface CodebookParameters {
  /** 2 to 256 values, by code. */
  readonly codebook: Float32Array<ArrayBuffer>;
  /** One per block. */
  readonly absmax: Float32Array<ArrayBuffer>;
}

/** Any quantized tensor. */
export type QuantizedTensor = LinearQuantizedTensor | CodebookTensor | BlockTensor;
