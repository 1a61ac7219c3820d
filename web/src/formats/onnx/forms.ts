/** Forms of codes in ONNX models. */

import type { SearchedRange } from '../../core/range.js';
import type { CastForm } from '../codecs/cast.js';
import { canSearch, type DequantizeLinearForm } from '../codecs/dequantize-linear.js';

/** Options for codes. */
export interface CodeOptions {
  readonly bits: 2 | 4 | 8;
  readonly signed: boolean;
  readonly symmetric: boolean;
  /** True: codes have the range of a 7-bit integer. Only for 8 bits without blocks. */
  readonly reduced?: boolean | undefined;
  readonly blockSize?: number | undefined;
  readonly range?: SearchedRange | undefined;
  /** Type of the scales, and of the restored floats. Undefined: F32. */
  readonly scale?: 'F32' | 'F16' | undefined;
}

/** Form of codes with a scale for each index of an axis, or for each block along it. */
export function linearForm(
  shape: readonly number[],
  axis: number | undefined,
  { bits, signed, symmetric, reduced = false, blockSize, range, scale = 'F32' }: CodeOptions,
): DequantizeLinearForm {
  const product = (dimensions: readonly number[]) => dimensions.reduce((all, n) => all * n, 1);
  let sharing: DequantizeLinearForm['sharing'] = 'tile';
  if (axis !== undefined) {
    const isLast =
      product(shape.slice(axis + 1)) === 1 && (blockSize !== undefined || product(shape.slice(0, axis)) > 1);
    if (blockSize !== undefined) sharing = isLast ? 'rowBlocks' : 'columnBlocks';
    else sharing = isLast ? 'columns' : 'rows';
  }
  const form = {
    codec: 'dequantize-linear',
    bits,
    signed,
    symmetric,
    ...(reduced ? { reduced } : {}),
    sharing,
    axis,
    blockSize,
    scale,
  } as const;
  // Signed symmetric codes have the default zero point.
  const whole: DequantizeLinearForm = { ...form, zeroPoint: !(symmetric && signed) };
  return range !== undefined && canSearch(shape, whole) ? { ...whole, range } : whole;
}

/** float16, saturating: values out of range, such as those of masks, become the largest one. */
export const halfForm: CastForm = { codec: 'cast', to: 'F16', saturate: true };
