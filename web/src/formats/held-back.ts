/** The share of a model's data that takes no part in its second moments, so that codes made by these can be judged on it. */
import { rangeError } from '../core/errors.js';
import { mention, onlyWith } from '../core/option-problem.js';

/** Share of chunks or samples that is held back by default. */
const usualHeldBack = 0.125;

/** Largest share. */
export const mostHeldBack = 0.5;

/** The share that an option means. @throws RangeError */
export function heldBackShare(given: unknown, moments: boolean): number {
  if (given === undefined) return moments ? usualHeldBack : 0;
  if (!moments) throw rangeError('heldBack', onlyWith('moments', true), given);
  if (typeof given !== 'number' || !(given >= 0 && given <= mostHeldBack)) {
    throw rangeError('heldBack', { kind: 'number', min: 0, max: mostHeldBack }, given);
  }
  return given;
}

/** True if the sample of an index is held back: the second one, and then one of each 1 / share. */
export function isHeldBack(index: number, share: number): boolean {
  return index > 0 && Math.ceil(index * share) > Math.ceil((index - 1) * share);
}

/** The error for data of which nothing can be held back. @param option name of the data */
export function tooFewToHoldBack(option: string, count: number, least: number, unit: string): RangeError {
  const hint = { kind: 'try', option: mention('heldBack', 0), effect: 'holds nothing back' } as const;
  return rangeError(option, { kind: 'number', min: least, unit }, count, hint);
}
