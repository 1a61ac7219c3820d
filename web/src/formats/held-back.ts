/** Shares of the data of second moments: what takes no part in them, so that codes made by these can be judged on it, and what is mixed in. */
import { rangeError } from '../core/errors.js';
import { mention, onlyWith } from '../core/option-problem.js';

/** Shares by default: of chunks or samples that are held back, and of random tokens. */
const usualShares = { heldBack: 0.125, mix: 0.25 };

/** Largest share. */
export const mostShare = 0.5;

/** The share that an option means. @throws RangeError */
export function momentsShare(option: keyof typeof usualShares, given: unknown, moments: boolean): number {
  if (given === undefined) return moments ? usualShares[option] : 0;
  if (!moments) throw rangeError(option, onlyWith('moments', true), given);
  if (typeof given !== 'number' || !(given >= 0 && given <= mostShare)) {
    throw rangeError(option, { kind: 'number', min: 0, max: mostShare }, given);
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
