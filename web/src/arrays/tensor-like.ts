// Tensors of other libraries: their numbers in row-major order, their shape, and the format of 16-bit floats.
import { sizeOfShape } from '../core/check.js';
import { rangeError, typeError } from '../core/errors.js';
import { ofType, whole } from '../core/option-problem.js';
import { typedArrayName } from '../core/realms.js';
import type { WasmArray } from '../core/wasm-array.js';

/** The 16-bit float formats whose bits a Uint16Array can hold. */
export type HalfFormat = 'float16' | 'bfloat16';

/** Floats as `readTensor` of `scalepoint/model` returns them: an array with its type and shape. */
export interface StoredFloats {
  /** F16 and BF16: the array holds their bits. */
  readonly dtype: 'F32' | 'F64' | 'F16' | 'BF16';
  /** Its product is the number of elements. */
  readonly shape: readonly number[];
  /** The floats, or the bits of 16-bit floats. */
  readonly data: Float32Array | Float64Array | Uint16Array;
}

/**
 * A tensor of any type as `readTensor` of `scalepoint/model` returns it. Calls take those of floats, and refuse others by their type when they
 * run.
 */
export interface StoredTensor {
  /** Its name in the file. */
  readonly name: string;
  /** Its type in the file. */
  readonly dtype: string;
  /** Blocks of ggml, which `dequantize` takes. */
  readonly kind?: 'blocks' | undefined;
  /** Its product is the number of elements. */
  readonly shape: readonly number[];
  /** Its elements, as the file holds them. */
  readonly data: ArrayBufferView;
}

/** Type, shape and order of the elements of a tensor. */
interface TensorLayout {
  /** Quantized tensors have it, which are not taken as floats. */
  readonly kind?: undefined;
  /** 'float16' or 'bfloat16': a Uint16Array holds the bits of such floats. */
  readonly type?: unknown;
  /** `type` under another name. */
  readonly dtype?: unknown;
  /** Distances in `data` between the elements of each dimension, or a function that returns them. @defaultValue row-major order */
  readonly strides?: unknown;
  /** `strides` under another name. */
  readonly stride?: unknown;
  /** Index in `data` of the first element, with `strides`. @defaultValue 0 */
  readonly offset?: unknown;
  /** True if the elements come column by column. @defaultValue false */
  readonly fortranOrder?: unknown;
}

/** A tensor with dimensions, as in onnxruntime-web and transformers.js. */
export interface TensorInput extends TensorLayout {
  /** Floats, their bits, or numbers. */
  readonly data: ArrayLike<unknown> | WasmArray;
  /** Its product is the number of elements. */
  readonly dims: readonly number[];
}

/** An array with a shape, as in ndarray and npyjs. */
interface ShapedTensor extends TensorLayout {
  /** Floats, their bits, or numbers. */
  readonly data: ArrayLike<unknown> | WasmArray;
  /** Its product is the number of elements. */
  readonly shape: readonly number[];
}

/** A tensor that copies its elements on demand, as in TensorFlow.js. */
interface LazyTensor {
  /** Its product is the number of elements. */
  readonly shape: readonly number[];
  /** Returns the floats. */
  dataSync(): ArrayLike<unknown>;
}

/**
 * A tensor of another library, in the memory of JavaScript. Elements that are not in row-major order are copied into it, and those of
 * integers are refused.
 */
export type TensorLike = TensorInput | ShapedTensor | LazyTensor;

/** True for an object with a shape that is not a quantized tensor. */
export function isTensor(x: unknown): x is TensorLike | StoredFloats {
  if (typeof x !== 'object' || x === null || ArrayBuffer.isView(x) || 'kind' in x) return false;
  const { dims, shape = dims } = x as { readonly dims?: unknown; readonly shape?: unknown };
  return Array.isArray(shape) && ('data' in x || 'dataSync' in x);
}

/** The format of 16-bit floats by the names that libraries have for it. */
const formats: Readonly<Record<string, HalfFormat>> = {
  F16: 'float16',
  BF16: 'bfloat16',
  float16: 'float16',
  bfloat16: 'bfloat16',
};

const product = (dimensions: readonly number[]) => dimensions.reduce((a, b) => a * b, 1);

/** The parts of a tensor. */
export interface TensorParts {
  readonly data: unknown;
  readonly shape: readonly number[];
  /** Number of elements. */
  readonly size: number;
  /** Format of a Uint16Array, if the tensor names one. */
  readonly format: HalfFormat | undefined;
  /** The name that the tensor has for its type. */
  readonly named: unknown;
}

/** Reads a tensor. @throws TypeError or RangeError naming a member of it */
export function partsOfTensor(x: TensorLike | StoredFloats, what: string): TensorParts {
  const tensor = x as Partial<TensorInput & ShapedTensor & LazyTensor>;
  const { dims, shape: given = dims, dtype, type = dtype, offset = 0 } = tensor;
  const shape = given as readonly number[];
  const size = sizeOfShape(shape, `${what}.shape`);
  const format = typeof type === 'string' && Object.hasOwn(formats, type) ? formats[type] : undefined;
  const isLazy = typeof tensor.dataSync === 'function';
  let data: unknown;
  let strides = tensor.strides ?? tensor.stride;
  try {
    data = isLazy ? tensor.dataSync?.() : tensor.data;
    // Tensors of transformers.js have a method.
    if (typeof strides === 'function') strides = strides.call(tensor);
  } catch (cause) {
    // Elements on a GPU, or of a tensor that was disposed.
    const because = { kind: 'because', message: cause instanceof Error ? cause.message : String(cause) } as const;
    throw typeError(`${what}.data`, { kind: 'state', state: 'attached' }, undefined, because, cause);
  }
  const columnMajor = tensor.fortranOrder === true ? shape.map((_, i) => product(shape.slice(0, i))) : undefined;
  const steps = (strides ?? columnMajor) as readonly number[] | undefined;
  // Tensors of TensorFlow.js have strides, and return their elements in row-major order.
  if (isLazy || steps === undefined) return { data, shape, size, format, named: type };
  // Bring the elements into row-major order.
  const array = data as ArrayLike<unknown>;
  if (!Array.isArray(data) && typedArrayName(data) === undefined) {
    throw typeError(`${what}.data`, ofType('typed array', 'array of numbers'), data);
  }
  // Find the first and the last element in memory.
  const first = typeof offset === 'number' ? offset : NaN;
  const axes = shape.map((length, i) => ({ length, step: steps[i] ?? NaN }));
  const reaches = axes.map(({ length, step }) => (length - 1) * step);
  const low = reaches.reduce((sum, reach) => sum + Math.min(0, reach), first);
  const high = reaches.reduce((sum, reach) => sum + Math.max(0, reach), first);
  if (!Number.isInteger(low) || !Number.isInteger(high) || low < 0)
    throw rangeError(`${what}.strides`, whole(), strides);
  if (size > 0 && high >= array.length) {
    throw rangeError(`${what}.data`, { kind: 'number', min: high + 1, unit: 'elements' }, array.length);
  }
  const isInOrder = steps.every((step, i) => step === product(shape.slice(i + 1)));
  if (isInOrder && ArrayBuffer.isView(data)) {
    return { data: (data as Float32Array).subarray(first, first + size), shape, size, format, named: type };
  }
  // Gather the elements in an array of the same type.
  const gathered = new (array.constructor as new (n: number) => unknown[])(size);
  axes.reverse();
  for (let i = 0; i < size; i++) {
    let at = first;
    let rest = i;
    for (const { length, step } of axes) {
      at += (rest % length) * step;
      rest = Math.floor(rest / length);
    }
    gathered[i] = array[at];
  }
  return { data: gathered, shape, size, format, named: type };
}
