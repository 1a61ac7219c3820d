// Checks of arguments that several folders share. Arguments may come from JavaScript, so that types are checked as well. Each check throws
// a TypeError or a RangeError whose `option` is the path of the argument.
import { rangeError, typeError } from './errors.js';
import { type Expected, ofType, oneOf, whole } from './option-problem.js';

/** Fails unless it is an object without other keys than these. */
export function checkKeys(options: unknown, known: ReadonlySet<string>): void {
  if (typeof options !== 'object' || options === null) {
    throw typeError('options', ofType('object'), options);
  }
  for (const key in options) {
    if (!known.has(key)) throw typeError(key, { kind: 'knownOption', names: [...known] });
  }
}

export function checkBoolean(value: unknown, name: string): boolean {
  if (typeof value !== 'boolean') throw typeError(name, ofType('boolean'), value);
  return value;
}

/** Checks a number. @param expected the condition in the error; by default any number */
export function checkNumber(value: unknown, name: string, expected: Expected = { kind: 'number' }): number {
  if (typeof value !== 'number') throw typeError(name, expected, value);
  return value;
}

/** A whole number that is not below `least`, and that a double holds exactly. */
export function checkWhole(value: unknown, name: string, least: number): number {
  const expected = whole(least);
  const n = checkNumber(value, name, expected);
  if (!Number.isSafeInteger(n) || n < least) throw rangeError(name, expected, n);
  return n;
}

/** The index of an option's value in a list of values. The first one is the default. */
export function choice(options: object, name: string, values: readonly string[]): number {
  const value = (options as Record<string, unknown>)[name];
  if (value === undefined) return 0;
  const index = values.indexOf(value as string);
  if (index < 0) throw rangeError(name, oneOf(values), value);
  return index;
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
