// Vectors of a caller: in one array, or one by one.
import { type FloatInput, type HalfFormat, type Source, sourceOf } from '../arrays/source.js';
import type { TensorLike } from '../arrays/tensor-like.js';
import { checkShape } from '../core/check.js';
import { rangeError, typeError } from '../core/errors.js';
import { type Core, tileSize } from '../core/memory.js';
import { type Expected, exactly } from '../core/option-problem.js';

/** Vectors in one array, or one by one. */
export type VectorInput = FloatInput | readonly (Float32Array | Float64Array | readonly number[] | TensorLike)[];

/** Vectors as bytes, in one array or one by one: a bit for each element with metric 'hamming', or a code for each with `ranges`. */
export type ByteVectors = Uint8Array | Int8Array | readonly (Uint8Array | Int8Array)[];

/** Vectors as one source. */
export interface Vectors {
  readonly source: Source;
  readonly count: number;
  readonly dimension: number;
}

/** True for vectors that come one by one. */
export function isList(vectors: unknown): vectors is Exclude<VectorInput, FloatInput> {
  return Array.isArray(vectors) && typeof vectors[0] === 'object';
}

/** The shape of vectors in one array. */
const vectorsShape: Expected = { kind: 'shape', dimensions: ['count', 'dimension'] };

/** The shape of a vector alone. */
const vectorShape: Expected = { kind: 'shape', dimensions: ['dimension'] };

/** Vectors that come one by one, in one array. Those in tensors may have dimensions of 1 before their last one. */
function joinVectors(core: Core, list: Exclude<VectorInput, FloatInput>, what: string): Float32Array {
  let all = new Float32Array();
  for (const [i, vector] of list.entries()) {
    const name = `${what}[${i}]`;
    const source = sourceOf(core, vector, undefined, name);
    const { length, shape = [length] } = source;
    if (shape.at(-1) !== length) throw rangeError(`${name}.shape`, vectorShape, shape);
    if (i === 0) all = new Float32Array(list.length * length);
    const dimension = all.length / list.length;
    if (length !== dimension) {
      throw rangeError(name, exactly(dimension, 'elements'), length, { kind: 'as', option: `${what}[0]` });
    }
    for (let at = 0; at < length; at += tileSize) {
      const count = Math.min(tileSize, length - at);
      const from = source.at(at, count) >>> 2;
      all.set(core.module.HEAPF32.subarray(from, from + count), i * length + at);
    }
  }
  return all;
}

/** @throws TypeError or RangeError naming `what` or the vector */
export function vectorsOf(
  core: Core,
  vectors: VectorInput,
  shape: readonly number[] | undefined,
  from: HalfFormat | undefined,
  what: string,
): Vectors {
  let flat = vectors as FloatInput;
  let dimensions = shape;
  if (isList(vectors)) {
    const all = joinVectors(core, vectors, what);
    flat = all;
    dimensions = shape ?? [vectors.length, all.length / vectors.length];
  }
  const source = sourceOf(core, flat, from, what);
  dimensions ??= source.shape;
  if (dimensions === undefined) throw typeError('shape', vectorsShape, dimensions);
  const [count = 0, dimension = 0] = checkShape(dimensions, source.length);
  if (dimensions.length !== 2 || count === 0 || dimension === 0) {
    throw rangeError('shape', vectorsShape, dimensions);
  }
  return { source, count, dimension };
}
