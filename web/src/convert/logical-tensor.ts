/** Sizes and positions in logical tensors. */
import type { Rectangle } from '../formats/codecs/codec.js';
import type { LogicalTensor, SourceTensor } from '../formats/format.js';

/** Bytes of the stored tensors that a tensor consists of. */
export function storedBytes({ parts }: LogicalTensor): number {
  return parts.reduce((sum, { tensor }) => sum + tensor.bytes, 0);
}

/** The stored tensor that holds the elements. */
export function mainPart({ parts }: LogicalTensor): SourceTensor {
  return (parts[0] as (typeof parts)[number]).tensor;
}

/** The position in its tensor of an element of a rectangle. */
export function elementAt({ row, column, columns, width }: Rectangle, index: number): number {
  return (row + Math.floor(index / columns)) * width + column + (index % columns);
}

/** The index of an element, as in `[3, 0, 7]`. */
export function indexOf(element: number, shape: readonly number[]): string {
  const index: number[] = [];
  let rest = element;
  for (const dimension of [...shape].reverse()) {
    index.unshift(rest % dimension);
    rest = Math.floor(rest / dimension);
  }
  return `[${index.join(', ')}]`;
}
