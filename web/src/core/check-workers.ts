// Checks the options about workers.
import { rangeError, typeError } from './errors.js';
import { ofType, whole } from './option-problem.js';

/** Largest value of the option `workers`. */
export const maxWorkers = 64;

/** @throws TypeError or RangeError naming the option */
export function checkWorkers(workers: unknown): number | undefined {
  if (workers === undefined) return undefined;
  if (typeof workers !== 'number') throw typeError('workers', whole(0, maxWorkers), workers);
  if (!Number.isInteger(workers) || workers < 0 || workers > maxWorkers) {
    throw rangeError('workers', whole(0, maxWorkers), workers);
  }
  return workers;
}

/** @throws TypeError naming the option */
export function checkFunction(value: unknown, name: string): void {
  if (value !== undefined && typeof value !== 'function') throw typeError(name, ofType('function'), value);
}
