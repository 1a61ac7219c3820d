/** Checks options that most calls share. Calls may come from JavaScript, so that types are checked as well. */
import { type CallOptions, checkKeys } from '../core/check.js';
import { rangeError, typeError } from '../core/errors.js';
import { checkLoadOptions, loadNames } from '../core/load-options.js';
import { ofType, whole } from '../core/option-problem.js';
import { modelGranularityNames, searchedMembers } from '../core/range.js';
import type { WorkOptions } from '../pipeline/start.js';

/** The names of all options about how work is done. */
export const workNames: readonly string[] = ['workers', 'worker', 'core', 'onProgress', 'signal'];

/** Members of the option `run`. */
export const runNames: readonly string[] = ['inputs', 'dimensions', 'seed', 'layers', 'backends', 'runtime'];

/** Members of the option `run` of `quantizeModel`. */
export const outputRunNames: readonly string[] = ['samples', ...runNames.filter((name) => name !== 'layers')];

/** Members of options that are objects, for hints. */
const members: CallOptions = {
  granularity: modelGranularityNames,
  range: searchedMembers,
  core: loadNames,
  run: runNames,
};

/**
 * Fails unless it is an object without other options than these. All calls on model files check their options here.
 * @param calls the other calls that an option may have been meant for
 * @throws TypeError naming the option
 */
export function checkOptions(options: unknown, names: readonly string[], calls?: CallOptions): void {
  const inside = names.flatMap((name) => members[name]?.map((member) => `${name}.${member}`) ?? []);
  checkKeys(options, [...names, ...inside], '', calls);
}

/** Largest value of the option `workers`. */
export const maxWorkers = 64;

/** @throws TypeError or RangeError naming the option */
export function checkWorkOptions({ workers, worker, core, onProgress, signal }: WorkOptions): void {
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
  if (core !== undefined) checkLoadOptions(core, 'core');
  if (signal !== undefined && !(signal instanceof AbortSignal)) {
    throw typeError('signal', ofType('AbortSignal'), signal);
  }
}
