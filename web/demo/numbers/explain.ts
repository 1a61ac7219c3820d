import { ScalepointError } from 'scalepoint';
import { formatCount, formatMany } from '../shared/format.js';
import { messageOf, type Problem } from '../shared/problems.js';
import type { Statistics } from './data.js';

/** Explains why quantizing failed. */
export function explainQuantizing(error: unknown, statistics: Statistics, saturate?: () => void): Problem {
  if (error instanceof ScalepointError && error.code === 'NON_FINITE') {
    const { notFinite, firstNotFinite } = statistics;
    return {
      title: `${formatMany(notFinite, 'number')} ${notFinite === 1 ? 'is' : 'are'} NaN or infinite`,
      text: `The first stands at index ${formatCount(firstNotFinite)}. No integer stands for NaN, so quantizing refuses it unless told otherwise. With “Saturate”, NaN becomes the zero point, infinities go to the ends, and the range comes from the finite numbers.`,
      ...(saturate !== undefined && { action: { label: 'Saturate them', run: saturate } }),
    };
  }
  if (error instanceof ScalepointError && error.code === 'OUT_OF_MEMORY') {
    return {
      title: 'The browser gave no more memory',
      text: `${error.message}. Close other tabs, or choose a smaller tensor.`,
    };
  }
  return {
    title: 'These settings do not work for these numbers',
    text: `${messageOf(error)}. Change that setting, or press Reset.`,
  };
}
