// Ranges that are searched for, by arrays and model files alike.
import { checkNumber } from './check.js';
import { RangeMethod } from './door.js';
import { rangeError } from './errors.js';

/** A range that depends on all values, not only on the smallest and the largest; see Range of the array calls. */
export type SearchedRange = 'mse' | 'entropy' | { readonly percentile: number };

/** What the core is told: the method, and the percentile that it may need. */
export interface RangeSearch {
  readonly method: RangeMethod;
  readonly percentile: number;
}

export const mseSearch: RangeSearch = { method: RangeMethod.mse, percentile: 100 };
const entropySearch: RangeSearch = { method: RangeMethod.entropy, percentile: 100 };

/**
 * How the core finds such a range; undefined for any other.
 * @throws TypeError or RangeError naming `range.percentile`
 */
export function searchOf(range: unknown): RangeSearch | undefined {
  if (range === 'mse') return mseSearch;
  if (range === 'entropy') return entropySearch;
  if (typeof range !== 'object' || range === null || !('percentile' in range)) return undefined;
  const percentile = checkNumber(range.percentile, 'range.percentile');
  if (!(percentile > 50 && percentile <= 100)) {
    throw rangeError('range.percentile', `expected a number above 50, at most 100, got ${percentile}`);
  }
  return { method: RangeMethod.percentile, percentile };
}
