// Vectors of a caller in any form: floats, or codes of 8 bits with scales.
import { codedVectors, dequantize, isQuantized } from '../arrays/kinds.js';
import { addressOf } from '../arrays/source.js';
import type { QuantizedTensor } from '../arrays/tensor.js';
import { isTensor } from '../arrays/tensor-like.js';
import { checkShape } from '../core/check.js';
import { rangeError, typeError } from '../core/errors.js';
import { type Core, tileSize } from '../core/memory.js';
import { exactly, without } from '../core/option-problem.js';
import type { WasmArray } from '../core/wasm-array.js';
import { bitRows, type GivenVectors, rangedRows } from './given-bytes.js';
import type { IndexOptions, VectorMetric } from './search-types.js';
import { type ByteVectors, isList, type VectorInput, vectorsOf } from './vectors.js';

/** Rows that are read at a time. */
export const rowsAtOnce = (dimension: number) => Math.max(1, Math.floor(tileSize / dimension));

/**
 * Checks vectors of a caller.
 * @param options as the caller gave them
 * @param dimension of the index, if it has vectors: arrays need no shape then
 * @throws TypeError or RangeError naming the argument
 */
export function readVectors(
  core: Core,
  vectors: VectorInput | ByteVectors | QuantizedTensor,
  metric: VectorMetric,
  { shape, from, ranges }: Pick<IndexOptions, 'shape' | 'from' | 'ranges'>,
  dimension?: number,
): GivenVectors {
  if (ranges !== undefined) {
    if (metric === 'hamming') throw typeError('ranges', without('metric', 'hamming'));
    if (from !== undefined) throw typeError('from', without('ranges'));
    return checked(rangedRows(core, vectors, ranges, { shape, dimension }), dimension);
  }
  const bits =
    metric === 'hamming' && from === undefined
      ? bitRows(core, vectors, { shape, what: 'vectors', dimension })
      : undefined;
  if (bits !== undefined) return checked(bits, dimension);
  if (isQuantized(vectors)) {
    if (shape !== undefined) throw typeError('shape', without('vectors.shape'));
    if (from !== undefined) throw typeError('from', without('vectors.dtype'));
    return checked(readQuantized(core, vectors), dimension);
  }
  // An index may begin empty.
  let length: number | undefined;
  if (!isList(vectors)) {
    const hasShape = isTensor(vectors) || !(Array.isArray(vectors) || ArrayBuffer.isView(vectors));
    // A WasmArray has a view.
    const array = hasShape ? (vectors as Partial<WasmArray> | null)?.view : vectors;
    length = array?.length;
  }
  if (shape !== undefined && length === 0) {
    const [count = 0, width = 0] = checkShape(shape, 0);
    if (shape.length === 2 && count === 0 && width > 0)
      return { count, dimension: width, floats: (_row, _rows, own) => own };
  }
  if (length === 0 && dimension !== undefined) return { count: 0, dimension, floats: (_row, _rows, own) => own };
  const form =
    shape ??
    (length !== undefined && dimension !== undefined ? [Math.floor(length / dimension), dimension] : undefined);
  const { source, ...size } = vectorsOf(core, vectors as VectorInput, form, from, 'vectors');
  const floats = (row: number, rows: number, own: number) =>
    addressOf(core, source, row * size.dimension, rows * size.dimension, 4, own);
  return checked({ ...size, floats }, dimension);
}

function checked(given: GivenVectors, dimension: number | undefined): GivenVectors {
  if (dimension === undefined || given.dimension === dimension) return given;
  throw rangeError('vectors', exactly(dimension, 'elements'), given.dimension);
}

function readQuantized(core: Core, vectors: QuantizedTensor): GivenVectors {
  const coded = codedVectors(core, vectors);
  let restored: Float32Array | undefined;
  const dimension = vectors.shape.at(-1) ?? 0;
  const floats = (row: number, rows: number, own: number) => {
    restored ??= dequantize(core, vectors, {}, 'vectors') as Float32Array;
    core.module.HEAPF32.set(restored.subarray(row * dimension, (row + rows) * dimension), own >>> 2);
    return own;
  };
  if (coded !== undefined) return { count: coded.count, dimension: coded.dimension, coded, floats };
  restored = dequantize(core, vectors, {}, 'vectors') as Float32Array;
  const { source, ...size } = vectorsOf(core, restored, vectors.shape, undefined, 'vectors');
  return {
    ...size,
    floats: (row, rows, own) => addressOf(core, source, row * size.dimension, rows * size.dimension, 4, own),
  };
}
