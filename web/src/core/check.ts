// Checks of arguments that several folders share. Arguments may come from JavaScript, so that types are checked as well. Each check throws
// a TypeError or a RangeError whose `option` is the path of the argument.
import { rangeError, typeError } from './errors.js';
import { nearest, sameName } from './nearest.js';
import { type Hint, type NumberForm, ofType, oneOf, onlyWith, whole, without } from './option-problem.js';
import { tagOf } from './realms.js';

/** The options of calls, by the name of the call. */
export type CallOptions = Readonly<Record<string, readonly string[]>>;

/** Options of which each call has at most one that callers may mean by a value alone, or by another library's name. */
const typeOptions: readonly string[] = ['dtype', 'to', 'codebook'];

/** Names that other libraries have for an option. */
const foreignNames: readonly (readonly [name: string, words: RegExp])[] = [
  ['scheme', /^(is_?)?(a?symmetric|a?sym)$/i],
  ['workers', /^(n_?)?(threads|num_?threads|num_?workers|concurrency)$/i],
  ['signal', /^abort(_?signal|_?controller)?$/i],
  ['output', /^(out(_?(path|file|dir))?|dest(ination)?|save_?path)$/i],
  ['range', /^(calibration|observer|clip(ping)?)$/i],
];

/** An option as code: `dtype: 'int4'`. */
function codeOfOption(name: string, value: unknown): string {
  const bits = typeof value === 'number' && Number.isInteger(value) ? `int${value}` : value;
  return typeof bits === 'string' ? `${name}: '${bits}'` : name;
}

/** The option that another library's name for it means. */
function foreignOption(key: string, value: unknown, names: readonly string[]): string | undefined {
  const type = typeOptions.find((name) => names.includes(name));
  if (
    type !== undefined &&
    /^(n_?)?bits$|^(quantization_?)?(d?type|data_?type|precision|quant|format|dtype)$/i.test(key)
  ) {
    return codeOfOption(type, value);
  }
  const found = foreignNames.find(([name, words]) => names.includes(name) && words.test(key))?.[0];
  if (found !== 'scheme') return found;
  const isSymmetric = /asym/i.test(key) ? value === false : value !== false;
  return codeOfOption('scheme', isSymmetric ? 'symmetric' : 'asymmetric');
}

/** True for an object other than an array, whose elements would be its members. */
function hasMembers(value: unknown): value is object {
  return typeof value === 'object' && value !== null && !Array.isArray(value) && !ArrayBuffer.isView(value);
}

/**
 * Fails unless it is an object without unknown members. All objects of options are checked here.
 * @param names of its members. Those with a point are members of its members, and serve as hints: `granularity.axis`
 * @param path of the object; empty for the options of a call
 * @param calls the other calls that a member may have been meant for
 */
export function checkKeys(options: unknown, names: readonly string[], path = '', calls: CallOptions = {}): void {
  // A promise was probably to be awaited. Elements of arrays would be members.
  const isList = Array.isArray(options) || ArrayBuffer.isView(options);
  if (typeof options !== 'object' || options === null || isList || tagOf(options) === 'Promise') {
    // A value alone stands for an option: `{ to: 'int8' }` for 'int8'.
    const main = [...typeOptions, 'range', 'shape', 'kind'].find((name) => names.includes(name));
    const isValue = typeof options === 'string' || typeof options === 'number';
    const code = main !== undefined && isValue ? `{ ${codeOfOption(main, options)} }` : undefined;
    throw typeError(path || 'options', ofType('object'), options, code === undefined ? code : { kind: 'write', code });
  }
  for (const key in options) {
    if (names.includes(key) && !key.includes('.')) continue;
    const before = path && `${path}.`;
    const own = names.filter((name) => !name.includes('.')).map((name) => before + name);
    // Find what was meant: another library's name, a near name, a member of another option, or another call with such an option.
    const value = (options as Record<string, unknown>)[key];
    const last = names.map((name) => name.slice(name.lastIndexOf('.') + 1));
    const near = nearest(key, last);
    const foreign = sameName(key, names) === undefined ? foreignOption(key, value, names) : undefined;
    const meant = foreign ?? names.find((_, i) => last[i] === near);
    const call = Object.keys(calls).find((name) => calls[name]?.includes(key));
    let hint: Hint | undefined;
    if (meant !== undefined) hint = { kind: 'didYouMean', names: [before + meant] };
    else if (call !== undefined) hint = { kind: 'takenBy', call, name: key };
    throw typeError(before + key, { kind: 'knownOption', names: own }, undefined, hint);
  }
}

/** True for a member that was given. */
const isGiven = (object: object, key: string) => (object as Record<string, unknown>)[key] !== undefined;

/**
 * Checks the members of an object of one of several kinds, such as a granularity. Returns its kind.
 * @param names of the members of any kind
 * @param kinds the members of each kind, by the value of `kind`
 */
export function checkKindMembers<Kind extends string>(
  value: unknown,
  names: readonly string[],
  kinds: Readonly<Record<Kind, readonly string[]>>,
  path: string,
): Kind {
  const all = Object.keys(kinds) as Kind[];
  if (!hasMembers(value)) {
    const meant = nearest(value, all) as Kind | undefined;
    const more = meant === undefined ? [] : kinds[meant].filter((name) => name !== 'kind');
    const code = [`{ kind: '${meant}'`, ...more].join(', ');
    const hint: Hint | undefined = meant && { kind: 'write', code: `${code} }` };
    throw typeError(path, { kind: 'object', keys: names }, value, hint);
  }
  checkKeys(value, names, path);
  const { kind } = value as { kind?: unknown };
  if (!all.includes(kind as Kind)) throw rangeError(`${path}.kind`, oneOf(all), kind);
  for (const key in value) {
    if (!isGiven(value, key) || kinds[kind as Kind].includes(key)) continue;
    const owners = all.filter((other) => kinds[other].includes(key));
    throw rangeError(`${path}.${key}`, onlyWith(`${path}.kind`, ...owners), kind);
  }
  return kind as Kind;
}

/** Checks the members of an object of one of several forms, such as a range: those of two forms exclude each other. Ignores other values. */
export function checkForms(value: unknown, forms: readonly (readonly string[])[], path: string): void {
  if (!hasMembers(value)) return;
  checkKeys(value, forms.flat(), path);
  const form = forms.find((keys) => keys.some((key) => isGiven(value, key)));
  for (const key in value) {
    if (form === undefined || form.includes(key) || !isGiven(value, key)) continue;
    throw rangeError(`${path}.${key}`, without(`${path}.${form.find((other) => isGiven(value, other))}`));
  }
}

export function checkBoolean(value: unknown, name: string): boolean {
  if (typeof value !== 'boolean') throw typeError(name, ofType('boolean'), value);
  return value;
}

export function checkFunction(value: unknown, name: string): void {
  if (typeof value !== 'function') throw typeError(name, ofType('function'), value);
}

/** Checks the signal of any window. */
export function checkSignal(value: unknown, name: string): void {
  if (typeof (value as AbortSignal | null)?.throwIfAborted !== 'function')
    throw typeError(name, ofType('AbortSignal'), value);
}

const anyNumber: NumberForm = { kind: 'number' };

/** Checks a number. NaN meets no condition but that of any number. */
export function checkNumber(value: unknown, name: string, expected = anyNumber): number {
  if (typeof value !== 'number') throw typeError(name, expected, value);
  if (expected === anyNumber) return value;
  const { whole, finite, min = -Infinity, max = Infinity, above, multipleOf } = expected;
  const isWithin = value >= min && value <= max && (above === undefined || value > above);
  const isKind = whole || multipleOf !== undefined ? Number.isSafeInteger(value) : !finite || Number.isFinite(value);
  const isMultiple = multipleOf === undefined || value % multipleOf === 0;
  if (!isWithin || !isKind || !isMultiple) throw rangeError(name, expected, value);
  return value;
}

/** Checks a whole number that a double holds exactly. */
export const checkWhole = (value: unknown, name: string, min: number, max?: number): number =>
  checkNumber(value, name, whole(min, max));

/** Checks that a value is one of some values. */
export function checkChoice<const T>(value: unknown, name: string, values: readonly T[]): T {
  if (!(values as readonly unknown[]).includes(value)) throw rangeError(name, oneOf(values), value);
  return value as T;
}

/** The value of an option, checked. The first of the values is the default. */
export function readChoice<const T>(options: object, name: string, values: readonly T[]): T {
  const { [name]: value = values[0] } = options as Record<string, unknown>;
  return checkChoice(value, name, values);
}

/** The number of an option whose values are the names of an enum of the core. */
export function enumChoice<Name extends string, T extends number>(
  options: object,
  name: string,
  values: Readonly<Record<Name, T>>,
  fallback: T,
): T {
  const value = (options as Record<string, unknown>)[name];
  if (value === undefined) return fallback;
  if (typeof value !== 'string' || !Object.hasOwn(values, value))
    throw rangeError(name, oneOf(Object.keys(values)), value);
  return values[value as Name];
}

/** The number of elements of a shape. @param name path of the shape in errors */
export function sizeOfShape(shape: unknown, name = 'shape'): number {
  if (!Array.isArray(shape)) throw typeError(name, { kind: 'shape' }, shape);
  let product = 1;
  let zero = false;
  for (const dimension of shape as unknown[]) {
    if (typeof dimension !== 'number') throw typeError(name, { kind: 'shape' }, shape);
    if (!Number.isSafeInteger(dimension) || dimension < 0) {
      throw rangeError(name, { kind: 'shape' }, shape);
    }
    if (dimension === 0) zero = true;
    else product *= dimension;
    if (product > Number.MAX_SAFE_INTEGER) {
      throw rangeError(name, { kind: 'shape', maxElements: Number.MAX_SAFE_INTEGER }, shape);
    }
  }
  return zero ? 0 : product;
}

/** A copy of a tensor's shape, whose product has to be `size`. */
export function checkOwnShape(shape: unknown, size: number, name: string): number[] {
  if (sizeOfShape(shape, name) !== size) {
    throw rangeError(name, { kind: 'shape', elements: size }, shape);
  }
  return [...(shape as number[])];
}

/** A copy of a shape for `size` elements; [size] by default. */
export function checkShape(shape: unknown, size: number): number[] {
  return shape === undefined ? [size] : checkOwnShape(shape, size, 'shape');
}

/** Largest value of the option `workers`. */
export const maxWorkers = 64;
