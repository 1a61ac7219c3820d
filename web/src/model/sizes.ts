/** Options that say how large a result may be. */
import { rangeError, typeError } from '../core/errors.js';
import { type Expected, without } from '../core/option-problem.js';
import { bytesOf, sizeForm } from '../formats/shards.js';

/** What says how large a result may be. */
export interface SizeOptions {
  /**
   * GGUF, and int4, int8 and q4 of other formats: the size that the files of a result may have together, in bytes or as '3.5GB'. What each
   * weight loses in each type is measured, and the types are chosen that lose least in this size. `rules` go before.
   * @defaultValue the types follow from `to`
   */
  readonly targetSize?: number | string | undefined;
  /** The same as bits for each element of the model's tensors, such as 4.5. @defaultValue the types follow from `to` */
  readonly targetBitsPerWeight?: number | undefined;
}

export const sizeNames: readonly string[] = ['targetSize', 'targetBitsPerWeight'];

/** Whether there is a size to fit. */
export function hasSize({ targetSize, targetBitsPerWeight }: SizeOptions): boolean {
  return targetSize !== undefined || targetBitsPerWeight !== undefined;
}

/** @throws TypeError or RangeError naming the option */
export function checkSize({ targetSize: size, targetBitsPerWeight: bits }: SizeOptions): void {
  if (size !== undefined && bits !== undefined) {
    throw rangeError('targetBitsPerWeight', without('targetSize'));
  }
  if (size !== undefined && bytesOf(size) === undefined) {
    const fails = ['number', 'string'].includes(typeof size) ? rangeError : typeError;
    throw fails('targetSize', sizeForm, size);
  }
  if (bits === undefined) return;
  const expected: Expected = { kind: 'number', above: 0, max: 64 };
  if (typeof bits !== 'number') throw typeError('targetBitsPerWeight', expected, bits);
  if (!(bits > 0 && bits <= 64)) throw rangeError('targetBitsPerWeight', expected, bits);
}
