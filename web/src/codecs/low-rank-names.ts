/** Names in forms of weights with adapters, for code that is loaded with adapters alone. */
import type { ElementTypeId } from '../core/door.js';

/** Float types of an adapter's matrices. */
export type LowRankType = keyof typeof ElementTypeId;

const lowRankTypes = ['F32', 'F16', 'BF16', 'F64', 'F8_E4M3', 'F8_E5M2'] as const satisfies readonly LowRankType[];

/** True for a type of an adapter's matrices. */
export const isLowRankType = (dtype: string): dtype is LowRankType =>
  (lowRankTypes as readonly string[]).includes(dtype);

/** Roles of the matrices of an adapter by its place in the form. */
export const lowRankRoles = (index: number) => ({
  up: `up${index}`,
  down: `down${index}`,
  middle: `middle${index}`,
});
