/** Checks options of plans and results. Calls come from JavaScript as well, so nothing is taken for granted. */
import { rangeError, typeError } from '../core/errors.js';
import { show } from '../core/show.js';
import type { Format } from '../formats/format.js';
import { aFile, didYouMean, type OptionTable, type PlanChoices } from '../formats/options.js';
import { formats } from '../formats/registry.js';
import { accepts, type Maker, makerOf, makersFor } from './maker.js';
import { checkSize, hasSize, type SizeOptions, sizeNames } from './sizes.js';
import { checkNames } from './work-options.js';

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

const targetList = ({ targets }: Format) => targets.map(({ name }) => name).join(', ');

/** Checks options before the file is open: their names, and that some format has the target. */
export function checkPlanOptions(options: object, names: readonly string[]): void {
  if (typeof options !== 'object' || options === null) {
    const example = formats()[0]?.targets[0]?.name;
    throw typeError('options', `expected an object such as { to: '${example}' }, got ${show(options)}`);
  }
  checkNames(options, names);
  const { to } = options as { to?: unknown };
  checkSize(options as SizeOptions);
  if (to === 'auto' && hasSize(options as SizeOptions)) return;
  if (formats().some((format) => accepts(format, to))) return;
  const lists = [...tables().values()].map((format) => `${targetList(format)} for ${format.label}`);
  const known = [...tables().values()].map(({ targets }) => targets.map(({ name }) => name));
  throw rangeError('to', `expected ${lists.join(', or ')}, got ${show(to)}${didYouMean(to, ...known)}`);
}

/** The error for a target that is impossible for files of a format. */
export function targetError(from: Format, to: unknown): RangeError {
  const names = from.targets.map(({ name }) => name);
  const more = makersFor(from).flatMap(({ format, converter }) =>
    converter === undefined ? [] : [`, and ${format.label} if it is ${converter.condition}`],
  );
  const hint = didYouMean(to, names);
  const list = `${names.join(', ')}${more.join('')}`;
  return rangeError('to', `${aFile(from.label)} can become ${list}, not ${show(to)}${hint}`);
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
    if (foreign !== undefined) throw rangeError(foreign[0], `this option is for ${owner.label} files`);
  }
  for (const [name, value] of given) if (Object.hasOwn(entries, name)) entries[name]?.check(value, name);
  format.options.check(choices);
  return maker;
}

/** Options of `quantizeModel` that are about no format. */
export function checkResultOptions(options: { readonly overwrite?: unknown; readonly minSqnrDb?: unknown }): void {
  const { overwrite, minSqnrDb } = options;
  if (overwrite !== undefined && typeof overwrite !== 'boolean') {
    throw typeError('overwrite', `expected true or false, got ${show(overwrite)}`);
  }
  if (minSqnrDb !== undefined && (typeof minSqnrDb !== 'number' || Number.isNaN(minSqnrDb))) {
    throw typeError('minSqnrDb', `expected a number, got ${show(minSqnrDb)}`);
  }
}
