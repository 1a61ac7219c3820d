/** Checks options. They come from JavaScript as well, so that they are checked as if they had no types. */
import { rangeError, typeError } from '../core/errors.js';
import { type Expected, ofType, oneOf, whole } from '../core/option-problem.js';
import type { Format } from '../formats/format.js';
import { didYouMean, type OptionTable, type PlanChoices } from '../formats/options.js';
import { formats } from '../formats/registry.js';
import type { WorkOptions } from '../pipeline/start.js';
import { accepts, type Maker, makerOf, makersFor } from './maker.js';
import { checkSize, hasSize, type SizeOptions, sizeNames } from './sizes.js';

/** One table for formats that share it, with the first of these formats. */
function tables(): Map<OptionTable, Format> {
  const found = new Map<OptionTable, Format>();
  for (const format of formats()) if (!found.has(format.options)) found.set(format.options, format);
  return found;
}

function namesIn(table: OptionTable, sidecars: boolean): string[] {
  return Object.entries(table.entries).flatMap(([name, { sidecar }]) =>
    (sidecar === undefined) === sidecars ? [] : [name],
  );
}

function optionNames(sidecars: boolean): string[] {
  return [...new Set([...tables().keys()].flatMap((table) => namesIn(table, sidecars)))];
}

/** Options of `planModel`. */
export function planNames(): string[] {
  return ['to', ...optionNames(false), 'rules', ...sizeNames];
}

/** Options about files beside the result. */
export function sidecarNames(): string[] {
  return optionNames(true);
}

export const workNames: readonly string[] = ['workers', 'worker', 'core', 'onProgress', 'signal'];

/** Fails unless it is an object without other options than these. */
export function checkOptions(options: unknown, names: readonly string[]): void {
  if (typeof options !== 'object' || options === null) throw typeError('options', ofType('object'), options);
  for (const name of Object.keys(options)) {
    if (!names.includes(name))
      throw typeError(name, { kind: 'knownOption', names }, undefined, didYouMean(name, names));
  }
}

/** The targets of a format. */
const targetsOf = ({ targets, label }: Format, condition = '') =>
  oneOf(
    targets.map(({ name }) => name),
    label + condition,
  );

/** What can be told without the file: that all options are known, and the target is one of some format. */
export function checkPlanOptions(options: object, names: readonly string[]): void {
  checkOptions(options, names);
  const { to } = options as { to?: unknown };
  checkSize(options as SizeOptions);
  if (to === 'auto' && hasSize(options as SizeOptions)) return;
  if (formats().some((format) => accepts(format, to))) return;
  const owners = [...tables().values()];
  const known = owners.map(({ targets }) => targets.map(({ name }) => name));
  const expected: Expected = { kind: 'anyOf', of: owners.map((format) => targetsOf(format)) };
  throw rangeError('to', expected, to, didYouMean(to, ...known));
}

/** The error for a target that a file cannot have. */
export function targetError(from: Format, to: unknown): RangeError {
  const names = from.targets.map(({ name }) => name);
  const more = makersFor(from).flatMap(({ format, converter }) =>
    converter === undefined ? [] : [targetsOf(format, ` if it is ${converter.condition}`)],
  );
  return rangeError('to', { kind: 'anyOf', of: [targetsOf(from), ...more] }, to, didYouMean(to, names));
}

/** Checks everything that decides about a result, for a file of some format. Returns who makes it. */
export function checkChoices(from: Format, choices: PlanChoices): Maker {
  const maker = makerOf(from, choices.to);
  if (maker === undefined) throw targetError(from, choices.to);
  const { format } = maker;
  const { entries } = format.options;
  const given = Object.entries(choices).filter(([, value]) => value !== undefined);
  for (const [table, owner] of tables()) {
    if (table === format.options) continue;
    const foreign = given.find(([name]) => !Object.hasOwn(entries, name) && namesIn(table, false).includes(name));
    // It would be without effect, and nobody would be told.
    if (foreign !== undefined)
      throw rangeError(foreign[0], { kind: 'onlyFor', files: `${owner.label} files` }, foreign[1]);
  }
  for (const [name, value] of given) if (Object.hasOwn(entries, name)) entries[name]?.check(value, name);
  format.options.check(choices);
  return maker;
}

/** What the option `workers` can be at most. */
export const maxWorkers = 64;

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

/** Options of `quantizeModel` that are about no format. */
export function checkResultOptions(options: { readonly overwrite?: unknown; readonly minSqnrDb?: unknown }): void {
  const { overwrite, minSqnrDb } = options;
  if (overwrite !== undefined && typeof overwrite !== 'boolean') {
    throw typeError('overwrite', ofType('boolean'), overwrite);
  }
  if (minSqnrDb !== undefined && (typeof minSqnrDb !== 'number' || Number.isNaN(minSqnrDb))) {
    throw typeError('minSqnrDb', { kind: 'number' }, minSqnrDb);
  }
}
