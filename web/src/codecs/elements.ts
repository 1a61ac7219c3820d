/** Elements as files store them: single floats, or blocks of ggml. Every codec makes its parts from them. */
import { blockTypeInfo, isBlockType } from '../core/blocks.js';
import { type Cuts, type Rectangle, type Role, type Runs, tileElements } from './codec.js';

/** Bytes of one element of the types that are floats. */
const floatBytes: Readonly<Record<string, number>> = { F32: 4, F16: 2, BF16: 2, F64: 8 };

/** Bytes of so many elements of a type that can be turned into floats. */
export function bytesOf(type: string, elements: number): number {
  if (!isBlockType(type)) return elements * (floatBytes[type] as number);
  const { elements: n, bytes } = blockTypeInfo(type);
  return (elements / n) * bytes;
}

/** Number of elements of a shape. */
export function elementsOf(shape: readonly number[]): number {
  return shape.reduce((product, dimension) => product * dimension, 1);
}

// ------------------------------------------------------------------------------------------------------------------------ cutting

/** Runs of `bytes` bytes. They are one run if each begins where the one before ends. */
export function runsOf(offset: number, bytes: number, count: number, stride: number): Runs {
  return bytes === stride
    ? { offset, bytes: bytes * count, count: 1, stride: bytes * count }
    : { offset, bytes, count, stride };
}

/** Where a rectangle lies if the elements stand one after the other. `size` gives the bytes of so many elements. */
export function placeOfElements(size: (elements: number) => number, rectangle: Rectangle): Runs {
  const { row, rows, column, columns, width } = rectangle;
  return runsOf(size(row * width + column), size(columns), rows, size(width));
}

/** Tiles of neighbors, without regard to rows. */
export function* cutFlat(elements: number, roles: readonly Role[], most = tileElements): Cuts {
  for (let column = 0; column < elements; column += most) {
    const columns = Math.min(most, elements - column);
    yield { kind: 'tile', rectangle: { row: 0, rows: 1, column, columns, width: elements }, roles };
  }
}
