/** Values and names as error messages show them. */
import { tagOf } from './realms.js';

/** A name with its article. */
export function article(name: string): string {
  return `${/^[aeiou]/i.test(name) && !/^u[ir]/i.test(name) ? 'an' : 'a'} ${name}`;
}

/** A value for an error message: short, and never throwing. */
export function show(value: unknown): string {
  try {
    return showAt(value, 0);
  } catch {
    // Proxies and getters may throw anything.
    return `a value of type ${typeof value}`;
  }
}

function showAt(value: unknown, depth: number): string {
  if (typeof value === 'string') return JSON.stringify(value.length > 60 ? `${value.slice(0, 57)}...` : value);
  if (Array.isArray(value)) {
    return value.length > 12 || depth > 1
      ? `an array of ${value.length}`
      : `[${value.map((v) => showAt(v, depth + 1)).join(', ')}]`;
  }
  if (ArrayBuffer.isView(value)) return `${Object.prototype.toString.call(value).slice(8, -1)}`;
  if (typeof value === 'function') return 'a function';
  if (typeof value === 'bigint') return `${value}n`;
  if (typeof value === 'object' && value !== null) {
    const tag = tagOf(value);
    if (tag !== 'Object') return article(tag);
    // An object of a class has members that its user never wrote, such as those of a stream of Node.
    const made: unknown = Object.getPrototypeOf(value)?.constructor;
    const isPlain = typeof made !== 'function' || made.name === '' || made.name === 'Object';
    if (!isPlain) return article(made.name);
    const keys = Object.keys(value);
    if (keys.length === 0 || depth > 1) return 'an object';
    const members = keys.slice(0, 4).map((key) => `${key}: ${showAt(value[key as keyof typeof value], depth + 1)}`);
    return `{ ${members.join(', ')}${keys.length > 4 ? ', ...' : ''} }`;
  }
  return String(value);
}
