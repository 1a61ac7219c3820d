// Ranges that are searched for: what arrays and model files have in common.
import { RangeMethod } from './door.js';
import { show } from './show.js';

/** A range that takes more than the smallest and the largest value; see Range of the array calls. */
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
  const { percentile } = range;
  if (typeof percentile !== 'number') {
    throw new TypeError(`range.percentile: expected a number, got ${show(percentile)}`);
  }
  if (!(percentile > 50 && percentile <= 100)) {
    throw new RangeError(`range.percentile: expected a number above 50, at most 100, got ${percentile}`);
  }
  return { method: RangeMethod.percentile, percentile };
}
