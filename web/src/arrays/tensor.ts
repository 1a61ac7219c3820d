/// <reference lib="esnext.disposable" preserve="true" />
import type { BlockType } from '../core/blocks.js';
import { Granularity as DoorGranularity, type Layout as DoorLayout } from '../core/door.js';
import { show } from '../core/show.js';

/** An integer type that codes can have. */
export type DType =
  | 'int2'
  | 'int3'
  | 'int4'
  | 'int5'
  | 'int6'
  | 'int7'
  | 'int8'
  | 'uint2'
  | 'uint3'
  | 'uint4'
  | 'uint5'
  | 'uint6'
  | 'uint7'
  | 'uint8'
  | 'int16'
  | 'uint16';

/** Which elements share one scale and zero point. Negative axes count from the end. */
export type Granularity =
  | { readonly kind: 'per-tensor' }
  | { readonly kind: 'per-channel'; readonly axis: number }
  | {
      readonly kind: 'per-group';
      /** Elements along the axis that share a scale. The last group of an axis may be shorter. */
      readonly groupSize: number;
      /** @defaultValue the last axis */
      readonly axis?: number;
    };

/** Where codes live in memory, one code an element: one byte up to 8 bits, two for 16 bits. */
export type CodeArray = Int8Array | Uint8Array | Int16Array | Uint16Array;

/** What a dtype means in numbers. */
export interface DTypeInfo {
  readonly name: DType;
  readonly bits: number;
  readonly signed: boolean;
  /** The smallest code. */
  readonly qmin: number;
  /** The largest code. */
  readonly qmax: number;
  /** The element type of the array that holds the codes. */
  readonly storage: 'int8' | 'uint8' | 'int16' | 'uint16';
}

const names: readonly DType[] = [
  'int2',
  'int3',
  'int4',
  'int5',
  'int6',
  'int7',
  'int8',
  'uint2',
  'uint3',
  'uint4',
  'uint5',
  'uint6',
  'uint7',
  'uint8',
  'int16',
  'uint16',
];

// Frozen, as every caller gets the same ones.
const infos = new Map<string, DTypeInfo>(
  names.map((name) => {
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

/** Every dtype, narrow to wide, signed first. */
export const dtypes: readonly DType[] = Object.freeze([...names]);

/**
 * Bits, range and storage of a dtype.
 * @throws RangeError if there is no such dtype.
 */
export function dtypeInfo(dtype: DType): DTypeInfo {
  const info = infos.get(dtype);
  if (info === undefined) throw new RangeError(`dtype: expected one of ${names.join(', ')}, got ${show(dtype)}`);
  return info;
}

/** The layout of parameters over an array. */
export interface Layout extends DoorLayout {
  /** Number of elements. */
  readonly size: number;
  /** Number of scales and zero points. */
  readonly parameters: number;
}

/**
 * The number of elements of a shape.
 * @throws TypeError or RangeError naming `shape`.
 */
export function sizeOfShape(shape: unknown): number {
  if (!Array.isArray(shape)) throw new TypeError(`shape: expected an array of whole numbers, got ${show(shape)}`);
  let product = 1;
  let zero = false;
  for (const dimension of shape as unknown[]) {
    if (typeof dimension !== 'number') throw new TypeError(`shape: expected whole numbers, got ${show(shape)}`);
    if (!Number.isSafeInteger(dimension) || dimension < 0) {
      throw new RangeError(`shape: expected whole numbers of at least 0, got ${show(shape)}`);
    }
    if (dimension === 0) zero = true;
    else product *= dimension;
    if (product > Number.MAX_SAFE_INTEGER) throw new RangeError(`shape: the product of ${show(shape)} is too large`);
  }
  return zero ? 0 : product;
}

/**
 * A copy of a shape for so many elements; of one dimension unless given.
 * @throws TypeError or RangeError naming `shape`.
 */
export function checkShape(shape: unknown, size: number): number[] {
  if (shape === undefined) return [size];
  const product = sizeOfShape(shape);
  if (product !== size) {
    throw new RangeError(`shape: the product of ${show(shape)} is ${product}, but the array has ${size} elements`);
  }
  return [...(shape as number[])];
}

/**
 * Resolves a granularity for a shape: the axis becomes non-negative, defaults are filled in.
 * @throws TypeError or RangeError naming the option.
 */
export function resolveGranularity(granularity: unknown, shape: readonly number[]): Granularity {
  if (granularity === undefined) return { kind: 'per-tensor' };
  if (typeof granularity !== 'object' || granularity === null) {
    throw new TypeError(
      `granularity: expected an object such as { kind: 'per-channel', axis: 0 }, got ${show(granularity)}`,
    );
  }
  const { kind, axis, groupSize } = granularity as { kind?: unknown; axis?: unknown; groupSize?: unknown };
  if (kind === 'per-tensor') return { kind };
  if (kind !== 'per-channel' && kind !== 'per-group') {
    throw new RangeError(`granularity.kind: expected 'per-tensor', 'per-channel' or 'per-group', got ${show(kind)}`);
  }
  const given = axis === undefined && kind === 'per-group' ? -1 : axis;
  if (typeof given !== 'number') throw new TypeError(`granularity.axis: expected a whole number, got ${show(given)}`);
  const resolved = given < 0 ? given + shape.length : given;
  if (!Number.isInteger(given) || resolved < 0 || resolved >= shape.length) {
    throw new RangeError(`granularity.axis: axis ${given} is out of range for shape ${show(shape)}`);
  }
  if (kind === 'per-channel') return { kind, axis: resolved };
  if (typeof groupSize !== 'number') {
    throw new TypeError(`granularity.groupSize: expected a whole number, got ${show(groupSize)}`);
  }
  if (!Number.isSafeInteger(groupSize) || groupSize < 1) {
    throw new RangeError(`granularity.groupSize: expected a whole number of at least 1, got ${groupSize}`);
  }
  return { kind, groupSize, axis: resolved };
}

/** The layout of a resolved granularity. */
export function layoutOf(granularity: Granularity, shape: readonly number[], size: number): Layout {
  if (granularity.kind === 'per-tensor') {
    return {
      granularity: DoorGranularity.perTensor,
      axisSize: 1,
      innerSize: 1,
      groupSize: 1,
      size,
      parameters: 1,
    };
  }
  const axis = granularity.axis ?? shape.length - 1;
  const axisSize = shape[axis] ?? 1;
  let innerSize = 1;
  for (let i = axis + 1; i < shape.length; i++) innerSize *= shape[i] ?? 1;
  if (granularity.kind === 'per-channel') {
    return {
      granularity: DoorGranularity.perChannel,
      axisSize,
      innerSize,
      groupSize: 1,
      size,
      parameters: axisSize,
    };
  }
  const groupSize = Math.max(1, Math.min(granularity.groupSize, axisSize));
  const outerSize = size === 0 ? 0 : size / (axisSize * innerSize);
  const parameters = outerSize * Math.ceil(axisSize / groupSize) * innerSize;
  return { granularity: DoorGranularity.perGroup, axisSize, innerSize, groupSize, size, parameters };
}

/** One scale and zero point for all elements. */
export const perTensor: DoorLayout = {
  granularity: DoorGranularity.perTensor,
  axisSize: 1,
  innerSize: 1,
  groupSize: 1,
};

/**
 * Memory inside the wasm instance, made by `sp.allocate`. Reading and writing it costs no copy.
 * It lives until `dispose()`.
 */
export interface WasmArray {
  readonly dtype: WasmDType;
  /** Number of elements. */
  readonly length: number;
  /** A typed array over the memory. Read it anew after any other call: when wasm memory grows, older views become empty. */
  readonly view: WasmView;
  /** Gives the memory back. Twice is fine; use after it is a ScalepointError `DISPOSED`. */
  dispose(): void;
  [Symbol.dispose](): void;
}

/** Element types of a WasmArray. */
export type WasmDType = 'float32' | 'int8' | 'uint8' | 'int16' | 'uint16' | 'int32';
/** The typed arrays that a WasmArray can show itself as. */
export type WasmView = Float32Array | CodeArray | Int32Array;

/** Integers with the scale and zero point that give them meaning. Plain data, unless its data is a WasmArray. */
export interface LinearQuantizedTensor<Data extends CodeArray | WasmArray = CodeArray | WasmArray> {
  readonly kind: 'linear';
  readonly dtype: DType;
  readonly shape: readonly number[];
  readonly granularity: Granularity;
  /** One code an element, in row-major order. */
  readonly data: Data;
  /** One scale; one a channel; or one a group, in row-major order of the shape with the axis divided by groupSize, rounded up. */
  readonly scale: Float32Array;
  /** As many as there are scales. */
  readonly zeroPoint: Int32Array;
}

/** ggml blocks, byte for byte as a GGUF file holds them. Plain data, unless its data is a WasmArray. */
export interface BlockTensor<Data extends Uint8Array | WasmArray = Uint8Array | WasmArray> {
  readonly kind: 'blocks';
  readonly type: BlockType;
  /** The last dimension is a multiple of the block's elements. */
  readonly shape: readonly number[];
  /** Block after block, in row-major order. */
  readonly data: Data;
}

/** Indices into a codebook, with the size that the values of each block are relative to. Plain data, unless its data is a WasmArray. */
export interface CodebookTensor<Data extends Uint8Array | WasmArray = Uint8Array | WasmArray> {
  readonly kind: 'codebook';
  /** 2 to 256 values, by code. */
  readonly codebook: Float32Array;
  /** Consecutive elements, in row-major order, that share an absmax. The last block may be shorter. */
  readonly blockSize: number;
  /** The largest size in each block, or what took its place, maybe negative: a code stands for codebook[code] * absmax. */
  readonly absmax: Float32Array;
  /** One code an element, in row-major order. */
  readonly data: Data;
  readonly shape: readonly number[];
}

/** Any quantized tensor. */
export type QuantizedTensor = LinearQuantizedTensor | CodebookTensor | BlockTensor;
