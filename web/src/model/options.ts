/** Checks options of plans and results. Calls may come from JavaScript, so that types are checked as well. */
import { rangeError, typeError } from '../core/errors.js';
import { type Expected, ofType, oneOf } from '../core/option-problem.js';
import type { Format } from '../formats/format.js';
import { didYouMean, type OptionTable, type PlanChoices } from '../formats/options.js';
import { formats } from '../formats/registry.js';
import { accepts, type Maker, makerOf, makersFor } from './maker.js';
import { checkSize, hasSize, type SizeOptions, sizeNames } from './sizes.js';
import { checkOptions } from './work-options.js';

/** Lists each table of options once, with the first of the formats that share it. */
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

/** The targets of a format. */
const targetsOf = ({ targets, label }: Format) =>
  oneOf(
    targets.map(({ name }) => name),
    label,
  );

/** Checks options before the file is opened: their names, and that at least one format has the target. */
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

/** The error for a target that is impossible for files of a format. */
export function targetError(from: Format, to: unknown): RangeError {
  const names = from.targets.map(({ name }) => name);
  const more = makersFor(from).flatMap(({ format, converter }) =>
    converter === undefined ? [] : [ofType(`target of ${format.label} if it is ${converter.condition}`)],
  );
  return rangeError('to', { kind: 'anyOf', of: [targetsOf(from), ...more] }, to, didYouMean(to, names));
}

/** Checks everything that decides about a result of a file of this format. Returns its maker. */
export function checkChoices(from: Format, choices: PlanChoices): Maker {
  const maker = makerOf(from, choices.to);
  if (maker === undefined) throw targetError(from, choices.to);
  const { format } = maker;
  const { entries } = format.options;
  const given = Object.entries(choices).filter(([, value]) => value !== undefined);
  for (const [table, owner] of tables()) {
    if (table === format.options) continue;
    const foreign = given.find(([name]) => !Object.hasOwn(entries, name) && namesIn(table, false).includes(name));
    // Reject options of other formats: they would have no effect.
    if (foreign !== undefined)
      throw rangeError(foreign[0], { kind: 'onlyFor', files: `${owner.label} files` }, foreign[1]);
  }
  for (const [name, value] of given) if (Object.hasOwn(entries, name)) entries[name]?.check(value, name);
  format.options.check(choices);
  return maker;
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
