// Checks of arguments that several rooms share. Arguments come from JavaScript, so nothing is taken for granted. What fails is a TypeError
// or a RangeError whose `option` is the path of the argument.
import { type OptionError, rangeError, typeError } from './errors.js';
import { show } from './show.js';

/** Fails unless it is an object without other keys than these. */
export function checkKeys(options: unknown, known: ReadonlySet<string>): void {
  if (typeof options !== 'object' || options === null) {
    throw typeError('options', `expected an object, got ${show(options)}`);
  }
  for (const key in options) {
    if (!known.has(key)) {
      throw typeError('options', `there is no option ${show(key)}; there are ${[...known].join(', ')}`);
    }
  }
}

export function checkBoolean(value: unknown, name: string): boolean {
  if (typeof value !== 'boolean') throw typeError(name, `expected a boolean, got ${show(value)}`);
  return value;
}

/** @param what a noun with its article: what the message asks for */
export function checkNumber(value: unknown, name: string, what = 'a number'): number {
  if (typeof value !== 'number') throw typeError(name, `expected ${what}, got ${show(value)}`);
  return value;
}

/** A whole number that is not below `least`, and that a double holds exactly. */
export function checkWhole(value: unknown, name: string, least: number): number {
  const n = checkNumber(value, name, 'a whole number');
  if (!Number.isSafeInteger(n) || n < least) {
    throw rangeError(name, `expected a whole number of at least ${least}, got ${n}`);
  }
  return n;
}

function choiceError(name: string, values: readonly string[], value: unknown): OptionError<RangeError> {
  return rangeError(name, `expected ${values.map((v) => `'${v}'`).join(' or ')}, got ${show(value)}`);
}

/** Which of the values an option has, by index. The first one is the default. */
export function choice(options: object, name: string, values: readonly string[]): number {
  const value = (options as Record<string, unknown>)[name];
  if (value === undefined) return 0;
  const index = values.indexOf(value as string);
  if (index < 0) throw choiceError(name, values, value);
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
  if (typeof value !== 'string' || !Object.hasOwn(values, value)) throw choiceError(name, Object.keys(values), value);
  return values[value as Name];
}

/** The number of elements of a shape. `name` is what errors call it. */
export function sizeOfShape(shape: unknown, name = 'shape'): number {
  if (!Array.isArray(shape)) throw typeError(name, `expected an array of whole numbers, got ${show(shape)}`);
  let product = 1;
  let zero = false;
  for (const dimension of shape as unknown[]) {
    if (typeof dimension !== 'number') throw typeError(name, `expected whole numbers, got ${show(shape)}`);
    if (!Number.isSafeInteger(dimension) || dimension < 0) {
      throw rangeError(name, `expected whole numbers of at least 0, got ${show(shape)}`);
    }
    if (dimension === 0) zero = true;
    else product *= dimension;
    if (product > Number.MAX_SAFE_INTEGER) throw rangeError(name, `the product of ${show(shape)} is too large`);
  }
  return zero ? 0 : product;
}

/** A copy of the shape that a tensor of so many elements has to have. */
export function checkOwnShape(shape: unknown, size: number, name: string): number[] {
  const product = sizeOfShape(shape, name);
  if (product !== size) {
    throw rangeError(name, `the product of ${show(shape)} is ${product}, but the array has ${size} elements`);
  }
  return [...(shape as number[])];
}

/** A copy of a shape that was given for so many elements. Without one there is one dimension. */
export function checkShape(shape: unknown, size: number): number[] {
  return shape === undefined ? [size] : checkOwnShape(shape, size, 'shape');
}
