import type { Failure } from '../shared/calls.js';
import { formatCount, formatMany } from '../shared/format.js';
import type { PageProblem } from '../shared/problems.js';
import type { Statistics } from './data.js';
import type { Settings } from './settings.js';

/** The action that a problem offers. */
export interface WaysOut {
  saturate(): void;
  useIntegers(): void;
}

/** Explains why quantizing failed. */
export function explainQuantizing(
  { code, message }: Failure,
  { notFinite, firstNotFinite }: Statistics,
  settings: Settings,
  ways?: WaysOut,
): PageProblem {
  const integers = ways && { action: { label: 'Use integers', run: ways.useIntegers } };
  if (code === 'NON_FINITE') {
    const whole = settings.codes === 'integers';
    return {
      title: `${formatMany(notFinite, 'number')} ${notFinite === 1 ? 'is' : 'are'} NaN or infinite`,
      text: `The first stands at index ${formatCount(firstNotFinite)}. Codes cannot represent NaN, so quantizing refuses it by default. ${whole ? 'With' : 'Integers can saturate: with'} “Saturate”, NaN becomes the zero point, infinities go to the ends, and the range comes from the finite numbers.`,
      ...(whole && ways !== undefined ? { action: { label: 'Saturate them', run: ways.saturate } } : integers),
    };
  }
  if (code === 'OUT_OF_MEMORY') {
    return {
      title: 'The browser gave no more memory',
      text: `${message}. Close other tabs, or choose a smaller tensor.`,
    };
  }
  if (settings.codes === 'blocks') {
    return {
      title: `These rows do not fill blocks of ${settings.block}`,
      text: `${message}. Choose another kind of codes, or numbers in longer rows.`,
      ...integers,
    };
  }
  return {
    title: 'These settings do not work for these numbers',
    text: `${message}. Change that setting, or press Reset.`,
  };
}
