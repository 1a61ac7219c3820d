// Vectors of a caller as bytes: a bit for each element, or a code for each with ranges of the elements.
import type { CodedVectors } from '../arrays/kind.js';
import { CodeSource, sourceOf } from '../arrays/source.js';
import { isTensor, partsOfTensor } from '../arrays/tensor-like.js';
import { checkShape } from '../core/check.js';
import { maxDimension } from '../core/door.js';
import { rangeError, typeError } from '../core/errors.js';
import type { Core } from '../core/memory.js';
import { exactly, mention, ofType, whole } from '../core/option-problem.js';
import { typedArrayName } from '../core/realms.js';
import { isList, type VectorInput, vectorsOf } from './vectors.js';

/** Vectors with a bit for each element. */
interface BitVectors {
  /** Bytes of a vector. */
  readonly width: number;
  /** Bits to turn in each byte. */
  readonly flip: number;
  /** Address of rows [row, row + rows), at most a tile of bytes, valid until the next call. */
  at(row: number, rows: number): number;
}

/** Vectors of a caller. */
export interface GivenVectors {
  readonly count: number;
  readonly dimension: number;
  /** Codes that an index of 8 bits takes as they are. */
  readonly coded?: CodedVectors | undefined;
  /** Bits that an index for Hamming distances takes as they are. */
  readonly bits?: BitVectors | undefined;
  /**
   * Address of rows [row, row + rows) as floats, valid until the next call.
   * @param own address of memory for them
   */
  floats(row: number, rows: number, own: number): number;
}

/** Bytes in one array. */
interface Bytes {
  readonly data: Uint8Array | Int8Array;
  /** Shape of a tensor or a list. */
  readonly shape?: readonly number[] | undefined;
}

const isSigned = ({ data }: Bytes) => typedArrayName(data) === 'Int8Array';

/** The bytes of an array, a tensor, or a list of either; undefined for other inputs. @throws TypeError or RangeError naming `what` */
function bytesOf(x: unknown, what: string): Bytes | undefined {
  if (isList(x)) return joinBytes(x, what);
  const tensor = isTensor(x) ? partsOfTensor(x, what) : undefined;
  const data = (tensor?.data ?? x) as Uint8Array | Int8Array;
  const name = typedArrayName(data);
  if (name !== 'Uint8Array' && name !== 'Int8Array') return undefined;
  if (tensor !== undefined && tensor.size !== data.length) {
    throw rangeError(`${what}.shape`, { kind: 'shape', elements: data.length }, tensor.shape);
  }
  return { data, shape: tensor?.shape };
}

/** Vectors that come one by one, in one array. */
function joinBytes(list: readonly unknown[], what: string): Bytes | undefined {
  const first = bytesOf(list[0], `${what}[0]`);
  if (first === undefined) return undefined;
  const { length } = first.data;
  const signed = isSigned(first);
  const all = signed ? new Int8Array(list.length * length) : new Uint8Array(list.length * length);
  for (const [i, vector] of list.entries()) {
    const name = `${what}[${i}]`;
    const bytes = bytesOf(vector, name);
    if (bytes === undefined || isSigned(bytes) !== signed) {
      throw typeError(name, ofType(signed ? 'Int8Array' : 'Uint8Array'), vector, { kind: 'as', option: `${what}[0]` });
    }
    if (bytes.data.length !== length) {
      throw rangeError(name, exactly(length, 'bytes'), bytes.data.length, { kind: 'as', option: `${what}[0]` });
    }
    all.set(bytes.data, i * length);
  }
  return { data: all, shape: [list.length, length] };
}

/**
 * Vectors as bytes, of which `restore` makes floats; undefined for other inputs.
 * @param each elements that a byte holds: 8 or 1
 * @param dimension of the index, if it has vectors: arrays need no shape then
 */
function rowsOf(
  core: Core,
  vectors: unknown,
  {
    shape,
    what,
    each,
    dimension,
  }: { shape?: readonly number[] | undefined; what: string; each: number; dimension?: number | undefined },
  restore: (from: number, rows: number, width: number, signed: boolean, to: number) => void,
): GivenVectors | undefined {
  const bytes = bytesOf(vectors, what);
  if (bytes === undefined) return undefined;
  const { data } = bytes;
  const signed = isSigned(bytes);
  const source = new CodeSource(core, data, signed ? 'int8' : 'uint8', what);
  let dimensions = shape ?? bytes.shape;
  if (dimension !== undefined && dimensions?.length !== 2) {
    const elements = data.length * each;
    if (dimension % each !== 0) throw rangeError(what, exactly(dimension, 'elements'), elements);
    if (elements % dimension !== 0) {
      throw rangeError(what, { kind: 'number', multipleOf: dimension, unit: 'elements' }, elements);
    }
    dimensions = [elements / dimension, dimension / each];
  }
  const expected = { kind: 'shape', dimensions: ['count', each === 8 ? 'bytes' : 'dimension'] } as const;
  if (dimensions === undefined) throw typeError('shape', expected, dimensions);
  const [count = 0, width = 0] = checkShape(dimensions, data.length);
  if (dimensions.length !== 2 || width === 0) throw rangeError('shape', expected, dimensions);
  // A tile holds vectors up to this length, and their ranges.
  if (width * each > maxDimension) throw rangeError('shape', whole(1, maxDimension), width * each);
  const at = (row: number, rows: number) => source.at(row * width, rows * width);
  return {
    count,
    dimension: width * each,
    ...(each === 8 && { bits: { width, flip: flipOf(signed), at } }),
    floats(row, rows, own) {
      restore(at(row, rows), rows, width, signed, own);
      return own;
    },
  };
}

/** The bits to turn in bytes, which may have a sign. */
const flipOf = (signed: boolean) => (signed ? 128 : 0);

/** Vectors with a bit for each element, as floats 1 and -1; undefined for other inputs. @throws TypeError or RangeError naming `what` */
export function bitRows(
  core: Core,
  vectors: unknown,
  about: { shape?: readonly number[] | undefined; what: string; dimension?: number | undefined },
): GivenVectors | undefined {
  return rowsOf(core, vectors, { ...about, each: 8 }, (from, rows, width, signed, to) =>
    core.module.floatsOfBits(from, rows * width, flipOf(signed), to),
  );
}

/** The starts and ends of ranges. @throws TypeError or RangeError naming the element */
function rangesOf(core: Core, ranges: VectorInput, dimension: number): Float32Array {
  const n = 2 * dimension;
  const source = isList(ranges)
    ? vectorsOf(core, ranges, undefined, undefined, 'ranges').source
    : sourceOf(core, ranges, undefined, 'ranges');
  if (source.length !== n) throw rangeError('ranges', exactly(n, 'elements'), source.length);
  const at = source.at(0, n) >>> 2;
  const values = core.module.HEAPF32.slice(at, at + n);
  for (const [i, value] of values.entries()) {
    const min = i < dimension ? undefined : (values[i - dimension] as number);
    if (!Number.isFinite(value) || (min !== undefined && value < min)) {
      throw rangeError(`ranges[${i}]`, { kind: 'number', finite: true, ...(min !== undefined && { min }) }, value);
    }
  }
  return values;
}

/** Vectors of codes with ranges, as floats. @throws TypeError or RangeError naming the argument */
export function rangedRows(
  core: Core,
  vectors: unknown,
  ranges: VectorInput,
  about: { shape?: readonly number[] | undefined; dimension?: number | undefined },
): GivenVectors {
  let values: Float32Array | undefined;
  const given = rowsOf(core, vectors, { ...about, what: 'vectors', each: 1 }, (from, rows, width, signed, to) =>
    core.withMemory(width * 8, (at) => {
      core.module.HEAPF32.set(values as Float32Array, at >>> 2);
      core.module.floatsOfRanges(from, rows, width, signed, at, to);
    }),
  );
  if (given === undefined) {
    throw typeError('vectors', ofType('Int8Array', 'Uint8Array'), vectors, {
      kind: 'with',
      options: [mention('ranges')],
    });
  }
  values = rangesOf(core, ranges, given.dimension);
  return given;
}
