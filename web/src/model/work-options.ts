/** Checks options that most calls share. Calls may come from JavaScript, so that types are checked as well. */
import { rangeError, typeError } from '../core/errors.js';
import { ofType, whole } from '../core/option-problem.js';
import { didYouMean } from '../formats/options.js';
import type { WorkOptions } from '../pipeline/start.js';

/** The names of all options about how work is done. */
export const workNames: readonly string[] = ['workers', 'worker', 'core', 'onProgress', 'signal'];

/** @throws TypeError unless it is an object without other options than these */
export function checkOptions(options: unknown, names: readonly string[]): void {
  if (typeof options !== 'object' || options === null) throw typeError('options', ofType('object'), options);
  for (const name of Object.keys(options)) {
    if (!names.includes(name))
      throw typeError(name, { kind: 'knownOption', names }, undefined, didYouMean(name, names));
  }
}

/** Largest value of the option `workers`. */
export const maxWorkers = 64;

/** @throws TypeError or RangeError naming the option */
export function checkWorkOptions({ workers, worker, onProgress, signal }: WorkOptions): void {
  if (workers !== undefined && typeof workers !== 'number') {
    throw typeError('workers', whole(0, maxWorkers), workers);
  }
  if (workers !== undefined && (!Number.isInteger(workers) || workers < 0 || workers > maxWorkers)) {
    throw rangeError('workers', whole(0, maxWorkers), workers);
  }
  for (const [name, value] of Object.entries({ worker, onProgress })) {
    if (value !== undefined && typeof value !== 'function') {
      throw typeError(name, ofType('function'), value);
    }
  }
  if (signal !== undefined && !(signal instanceof AbortSignal)) {
    throw typeError('signal', ofType('AbortSignal'), signal);
  }
}
