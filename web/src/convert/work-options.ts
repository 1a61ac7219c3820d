/** Checks options that most calls share. Calls may come from JavaScript, so that types are checked as well. */
import { type CallOptions, checkKeys } from '../core/check.js';
import { checkFunction, checkWorkers } from '../core/check-workers.js';
import { typeError } from '../core/errors.js';
import { checkLoadOptions, loadNames } from '../core/load-options.js';
import { ofType } from '../core/option-problem.js';
import { modelGranularityNames, searchedMembers } from '../core/range.js';
import type { WorkOptions } from './start.js';

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

/** @throws TypeError or RangeError naming the option */
export function checkWorkOptions({ workers, worker, core, onProgress, signal }: WorkOptions): void {
  checkWorkers(workers);
  checkFunction(worker, 'worker');
  checkFunction(onProgress, 'onProgress');
  if (core !== undefined) checkLoadOptions(core, 'core');
  if (signal !== undefined && !(signal instanceof AbortSignal)) {
    throw typeError('signal', ofType('AbortSignal'), signal);
  }
}
