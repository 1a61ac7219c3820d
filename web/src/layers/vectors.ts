// Vectors of a caller: in one array, or one by one.
import { type FloatInput, type HalfFormat, type Source, sourceOf } from '../arrays/source.js';
import { checkShape } from '../core/check.js';
import { rangeError, typeError } from '../core/errors.js';
import type { Core } from '../core/memory.js';
import { type Expected, exactly, ofType } from '../core/option-problem.js';
import { typedArrayName } from '../core/realms.js';

/** Vectors in one array, or one by one. */
export type VectorInput = FloatInput | readonly (Float32Array | Float64Array | readonly number[])[];

/** Vectors as one source. */
export interface Vectors {
  readonly source: Source;
  readonly count: number;
  readonly dimension: number;
}

/** True for vectors that come one by one. */
export function isList(vectors: VectorInput): vectors is Exclude<VectorInput, FloatInput> {
  return Array.isArray(vectors) && typeof vectors[0] === 'object';
}

/** The shape of vectors in one array. */
const vectorsShape: Expected = { kind: 'shape', dimensions: ['count', 'dimension'] };

/** Vectors that come one by one, in one array. */
function joined(list: readonly ArrayLike<number>[], dimension: number, what: string): Float32Array {
  const all = new Float32Array(list.length * dimension);
  for (const [i, vector] of list.entries()) {
    if (!Array.isArray(vector) && typedArrayName(vector) === undefined) {
      throw typeError(`${what}[${i}]`, ofType('Float32Array', 'Float64Array', 'number[]'), vector);
    }
    if (vector.length !== dimension) {
      throw rangeError(`${what}[${i}]`, exactly(dimension, 'elements'), vector.length, {
        kind: 'as',
        option: `${what}[0]`,
      });
    }
    all.set(vector, i * dimension);
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
    const length = vectors[0]?.length ?? 0;
    flat = joined(vectors, length, what);
    dimensions = shape ?? [vectors.length, length];
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

/** The sum of squares of some values. */
export function squares(values: ArrayLike<number>, start: number, count: number): number {
  let sum = 0;
  for (let i = start; i < start + count; i++) sum += (values[i] as number) ** 2;
  return sum;
}
