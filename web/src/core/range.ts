// Ranges that are searched for, by arrays and model files alike.
import { checkForms, checkNumber } from './check.js';
import { RangeMethodId } from './door.js';
import { type Expected, oneOf } from './option-problem.js';

/** A search as the core takes it: the method, and the percentile for the method that needs one. */
export interface RangeSearch {
  readonly method: RangeMethodId;
  readonly percentile: number;
}

export const mseSearch: RangeSearch = { method: RangeMethodId.mse, percentile: 100 };

/** The searches that need a name only. */
const namedSearches = {
  mse: mseSearch,
  entropy: { method: RangeMethodId.entropy, percentile: 100 },
} as const satisfies Record<string, RangeSearch>;

type NamedSearch = keyof typeof namedSearches;

/** A range that depends on all values, not only on the smallest and the largest; see Range of the array calls. */
export type SearchedRange =
  | NamedSearch
  | {
      /** Share of the values in the range, in percent: above 50, at most 100. */
      readonly percentile: number;
    };

/** Members of a granularity of model files. */
export const modelGranularityNames: readonly string[] = ['kind', 'groupSize'];

/** The ranges that have a name. */
export const rangeNames: readonly string[] = ['min-max', ...Object.keys(namedSearches)];

/** Members of such a range. */
export const searchedMembers: readonly string[] = ['percentile'];

/** Values of the option, except given ranges. */
export const searchedRangeForm: Expected = {
  kind: 'anyOf',
  of: [oneOf(rangeNames), { kind: 'object', keys: searchedMembers }],
};

export function isNamedRange(range: unknown): range is 'min-max' | NamedSearch {
  return rangeNames.includes(range as string);
}

/**
 * The search for such a range in the core; undefined for any other range.
 * @param forms the members of all ranges that the call takes
 * @throws TypeError or RangeError naming `range.percentile`, or a member that is unknown
 */
export function searchOf(range: unknown, forms: readonly (readonly string[])[]): RangeSearch | undefined {
  checkForms(range, forms, 'range');
  if (isNamedRange(range)) return range === 'min-max' ? undefined : namedSearches[range];
  if (typeof range !== 'object' || range === null || !('percentile' in range)) return undefined;
  const percentile = checkNumber(range.percentile, 'range.percentile', { kind: 'number', above: 50, max: 100 });
  return { method: RangeMethodId.percentile, percentile };
}
