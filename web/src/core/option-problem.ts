// Options that texts mention, as data. The package, the command line and the page have words of their own for options and values.
import { show } from './show.js';

/** An option inside of data, with a value where one is meant. Each edge writes it its own way: `to: 'int8'`, `--to int8`. */
export interface OptionMention {
  readonly kind: 'option';
  /** Path of the option: `to`, `granularity.groupSize`, `rules[2].to`. `rules[].keep` is that of any rule. */
  readonly option: string;
  readonly value?: unknown;
}

/** Mentions an option. */
export function mention(option: string, value?: unknown): OptionMention {
  return value === undefined ? { kind: 'option', option } : { kind: 'option', option, value };
}

/** How an edge writes options and values. */
export interface OptionWords {
  /** The name of an option. */
  option(path: string): string;
  /** An option with one of these values. */
  withValues(path: string, values: readonly unknown[]): string;
  /** A value that was expected. */
  value(value: unknown): string;
}

const quote = (value: unknown) => (typeof value === 'string' ? `'${value}'` : show(value));

/** The words of the API: `to: 'int8'`. */
export const apiWords: OptionWords = {
  option: (path) => path,
  withValues: (path, values) => `${path.replace(/^rules\[\]\./, 'a rule with ')}: ${values.map(quote).join(' or ')}`,
  value: quote,
};

/** An option, with its value if it has one. */
export function sayMention({ option, value }: OptionMention, words: OptionWords = apiWords): string {
  return value === undefined ? words.option(option) : words.withValues(option, [value]);
}
