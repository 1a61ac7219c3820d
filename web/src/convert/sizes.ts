/** Options for the size of a result. */
import { rangeError, typeError } from '../core/errors.js';
import { type Expected, without } from '../core/option-problem.js';
import { parseSize, sizeForm } from '../formats/shards.js';

/** Limits of the size of a result. */
export interface SizeOptions {
  /**
   * GGUF, and int4, int8 and q4 of other formats: the largest size of all files of the result together, in bytes or as '3.5GB'. Measures
   * the error of each weight in each type, and chooses the types with the least error in this size. `rules` have priority.
   * @defaultValue the types follow from `to`
   */
  readonly targetSize?: number | string | undefined;
  /** Target size as bits for each element of the model's tensors, such as 4.5. @defaultValue the types follow from `to` */
  readonly targetBitsPerWeight?: number | undefined;
}

export const sizeNames: readonly string[] = ['targetSize', 'targetBitsPerWeight'];

/** True if a size is given. */
export function hasSize({ targetSize, targetBitsPerWeight }: SizeOptions): boolean {
  return targetSize !== undefined || targetBitsPerWeight !== undefined;
}

/** @throws TypeError or RangeError naming the option */
export function checkSize({ targetSize: size, targetBitsPerWeight: bits }: SizeOptions): void {
  if (size !== undefined && bits !== undefined) {
    throw rangeError('targetBitsPerWeight', without('targetSize'));
  }
  if (size !== undefined && parseSize(size) === undefined) {
    const fails = ['number', 'string'].includes(typeof size) ? rangeError : typeError;
    throw fails('targetSize', sizeForm, size);
  }
  if (bits === undefined) return;
  const expected: Expected = { kind: 'number', above: 0, max: 64 };
  if (typeof bits !== 'number') throw typeError('targetBitsPerWeight', expected, bits);
  if (!(bits > 0 && bits <= 64)) throw rangeError('targetBitsPerWeight', expected, bits);
}
