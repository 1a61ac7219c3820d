/** Names in forms of weights with adapters, for code that is loaded with adapters alone. */
import type { ElementTypeId } from '../../core/door.js';
import { castTypeOf } from './cast.js';

/** Float types of an adapter's matrices. */
export type LowRankType = keyof typeof ElementTypeId;

/** True for a type of an adapter's matrices. */
export const isLowRankType = (dtype: string): dtype is LowRankType => Object.hasOwn(castTypeOf, dtype);

/** Roles of the matrices of an adapter by its place in the form. */
export const lowRankRoles = (index: number) => ({
  up: `up${index}`,
  down: `down${index}`,
  middle: `middle${index}`,
});
