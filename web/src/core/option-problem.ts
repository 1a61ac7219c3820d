// What is wrong with an argument, as data, and the sentence about it. The package, the command line and the page write the same data: each
// has words of its own for options and values.
import { article, show } from './show.js';

/** An option inside of data, with a value where one is meant. Each edge writes it its own way: `to: 'int8'`, `--to int8`. */
export interface OptionMention {
  readonly kind: 'option';
  /** Path of the option: `to`, `granularity.groupSize`, `rules[2].to`. `rules[].keep` is that of any rule. */
  readonly option: string;
  readonly value?: unknown;
}

/** Mentions an option. */
export function option(path: string, value?: unknown): OptionMention {
  return value === undefined ? { kind: 'option', option: path } : { kind: 'option', option: path, value };
}
