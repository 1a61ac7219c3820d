/** Checks options that most calls share. Calls come from JavaScript as well, so nothing is taken for granted. */
import { rangeError, typeError } from '../core/errors.js';
import { show } from '../core/show.js';
import { didYouMean } from '../formats/options.js';
import type { WorkOptions } from '../pipeline/start.js';

/** The names of all options about how work is done. */
export const workNames: readonly string[] = ['workers', 'worker', 'core', 'onProgress', 'signal'];

/** @throws TypeError naming an option that is not among these names */
export function checkNames(options: object, names: readonly string[]): void {
  for (const name of Object.keys(options)) {
    if (names.includes(name)) continue;
    throw typeError(name, `unknown option; there are ${names.join(', ')}${didYouMean(name, names)}`);
  }
}

/** Largest value of the option `workers`. */
export const maxWorkers = 64;

/** @throws TypeError or RangeError naming the option */
export function checkWorkOptions({ workers, worker, onProgress, signal }: WorkOptions): void {
  if (workers !== undefined && typeof workers !== 'number') {
    throw typeError('workers', `expected a whole number, got ${show(workers)}`);
  }
  if (workers !== undefined && (!Number.isInteger(workers) || workers < 0 || workers > maxWorkers)) {
    throw rangeError('workers', `expected 0 to ${maxWorkers}, got ${workers}`);
  }
  for (const [name, value] of Object.entries({ worker, onProgress })) {
    if (value !== undefined && typeof value !== 'function') {
      throw typeError(name, `expected a function, got ${show(value)}`);
    }
  }
  if (signal !== undefined && !(signal instanceof AbortSignal)) {
    throw typeError('signal', `expected an AbortSignal, got ${show(signal)}`);
  }
}
