/**
 * Options of formats: validation, description, and command-line flags. A table has one entry for each option, the single source of all
 * three.
 */
import { rangeError, typeError } from '../core/errors.js';
import { type Hint, mention, ofType, oneOf, without } from '../core/option-problem.js';
import { isNamedRange, rangeNames, type SearchedRange, searchedRangeForm, searchOf } from '../core/range.js';
import { article } from '../core/show.js';

// -------------------------------------------------------------------------------------------------------------------------- rules

/** Elements that share a scale: one index of axis 0, or `groupSize` neighbors of the last dimension. */
export type ModelGranularity =
  | { readonly kind: 'per-channel' }
  | {
      readonly kind: 'per-group';
      /** Number of neighbors in the last dimension that share a scale. */
      readonly groupSize: number;
    };

/** Treatment of the tensors whose names match. The first match decides. */
export type Rule =
  | {
      /** Expression that selects tensors by name. */
      readonly match: RegExp;
      /** Copies the tensors. */
      readonly keep: true;
      /** Absent, because the tensors are kept. */
      readonly to?: undefined;
      /** Absent, because the tensors are kept. */
      readonly granularity?: undefined;
    }
  | {
      /** Expression that selects tensors by name. */
      readonly match: RegExp;
      /** The tensors are not kept. */
      readonly keep?: false | undefined;
      /** A target of the format, or a tensor type: 'int4', 'Q6_K', 'F16'. */
      readonly to: string;
      /** Elements that share a scale, if the target leaves a choice. */
      readonly granularity?: ModelGranularity | undefined;
    };

/** The rule for a name; undefined if no rule matches. Flags g and y of expressions have no effect. */
export function ruleFor(rules: readonly Rule[], name: string): Rule | undefined {
  return rules.find(({ match }) => name.search(match) >= 0);
}

/** The hint for a tensor that cannot be converted. */
export const keepHint: Hint = { kind: 'try', option: mention('rules[].keep', true), effect: 'copies it' };

/**
 * Checks the parts of rules that all formats share, and calls `check` for each rule with its path, such as `rules[2]`.
 * @throws TypeError or RangeError naming the option
 */
export function checkRules(rules: unknown, check: (rule: Rule, path: string) => void): void {
  if (rules === undefined) return;
  if (!Array.isArray(rules)) throw typeError('rules', ofType('array'), rules);
  for (const [i, rule] of rules.entries()) {
    const path = `rules[${i}]`;
    const { match, keep, to } = (rule ?? {}) as Record<string, unknown>;
    if (!(match instanceof RegExp)) throw typeError(`${path}.match`, ofType('RegExp'), match);
    if (keep === true && to !== undefined) throw rangeError(`${path}.to`, without(`${path}.keep`, true));
    if (keep !== true && to === undefined) throw rangeError(`${path}.to`, { kind: 'required' });
    if (keep !== undefined && typeof keep !== 'boolean') {
      throw typeError(`${path}.keep`, ofType('boolean'), keep);
    }
    check(rule as Rule, path);
  }
}

// -------------------------------------------------------------------------------------------------------------------------- hints

/** Common spellings for kinds of numbers in type names: `fp16` for float16, `q8` for int8 or Q8_0. */
const kinds: Readonly<Record<string, string>> = {
  ...Object.fromEntries(['i', 'int', 'integer', 'q', 'w', 'u', 'uint', 'bit', 'bits'].map((word) => [word, 'integer'])),
  ...Object.fromEntries(['f', 'fp', 'float', 'half'].map((word) => [word, 'float'])),
  ...Object.fromEntries(['bf', 'bfp', 'bfloat', 'brain'].map((word) => [word, 'bfloat'])),
};

/** Kind and bits at the start of a name, such as `integer 8` for Q8_0; undefined for other names. */
function kindOf(name: string): string | undefined {
  const [, before, bits, after] = /^([a-z]*)[-_]?(\d+)[-_]?([a-z]*)/.exec(name.toLowerCase()) ?? [];
  const kind = kinds[(before || after) ?? ''];
  return kind === undefined ? undefined : `${kind} ${bits}`;
}

/** Number of characters to add, remove, replace or swap with their neighbor to turn one word into the other. */
function distance(a: string, b: string): number {
  let before: number[] = [];
  let row = Array.from({ length: b.length + 1 }, (_, j) => j);
  for (let i = 1; i <= a.length; i++) {
    const next = [i];
    for (let j = 1; j <= b.length; j++) {
      const cost = a[i - 1] === b[j - 1] ? 0 : 1;
      let least = Math.min((row[j] as number) + 1, (next[j - 1] as number) + 1, (row[j - 1] as number) + cost);
      if (i > 1 && j > 1 && a[i - 1] === b[j - 2] && a[i - 2] === b[j - 1]) {
        least = Math.min(least, (before[j - 2] as number) + 1);
      }
      next.push(least);
    }
    [before, row] = [row, next];
  }
  return row[b.length] as number;
}

/** Longest word that is compared with names. */
const mostLetters = 40;

const plain = (text: string) => text.toLowerCase().replace(/[-_.\s]/g, '');
const digits = (text: string) => text.replace(/\D/g, '');

/**
 * The name most likely meant by a word: the same letters, a longer or a shorter form, the same kind of number, or one or two letters apart.
 * Numbers of bits must match: `int3` has no near name.
 */
export function nearest(word: unknown, names: readonly string[]): string | undefined {
  if (typeof word !== 'string' || word === '' || word.length > mostLetters) return undefined;
  const [text, kind] = [plain(word), kindOf(word)];
  const alike = kind === undefined ? [] : names.filter((name) => kindOf(name) === kind);
  const found =
    names.find((name) => plain(name) === text) ??
    names.find((name) => plain(name) === `${text}m`) ??
    names.find((name) => plain(name).length > 2 && text.startsWith(plain(name))) ??
    // Among several, prefer M, the usual one: Q4_K_M for q4.
    alike.find((name) => name.endsWith('_M')) ??
    alike[0] ??
    names.find((name) => text.length > 2 && plain(name).startsWith(text));
  if (found !== undefined) return found;
  const most = Math.min(2, Math.floor(text.length / 3));
  const [best] = names
    .filter((name) => digits(name) === digits(word))
    .map((name) => ({ name, far: distance(text, plain(name)) }))
    .sort((a, b) => a.far - b.far);
  return best !== undefined && best.far <= most ? best.name : undefined;
}

/** A file of a format in a sentence. */
export function aFile(label: string): string {
  return `${article(label)} file`;
}

/** The hint for an unknown name: the nearest name of each list. */
export function didYouMean(
  word: unknown,
  ...lists: readonly (readonly string[])[]
): Extract<Hint, { kind: 'didYouMean' }> {
  const found = new Set(lists.flatMap((names) => nearest(word, names) ?? []));
  return { kind: 'didYouMean', names: [...found].filter((name) => name !== word) };
}

// ------------------------------------------------------------------------------------------------------------------------- tables

/** Arguments of a command line by flag: texts, true for switches, lists for flags that can be repeated. */
export type Words = Readonly<Record<string, string | boolean | readonly string[] | undefined>>;

/** A command-line flag of an option. */
export interface Flag {
  /** Name without the dashes. */
  readonly name: string;
  /** Placeholder for its value in the help; undefined for switches. */
  readonly value?: string;
  /** True if it can be given several times. */
  readonly multiple?: boolean;
  /** Member of the option that it sets, if it sets only one. */
  readonly member?: string;
  /** Description in a few words, for the help. */
  readonly about: string;
}

/** A JSON file beside a result. Its option holds the present content. */
export interface Sidecar {
  /** Member of a plan that shows the addition. */
  readonly planned: string;
  /** Key of the entry in the file. */
  readonly entry: string;
  /** Its purpose and place, in a sentence or two. */
  readonly about: string;
  /** The content with the value added. @throws TypeError or ScalepointError if that is not possible */
  merge(content: unknown, value: Readonly<Record<string, unknown>>): Record<string, unknown>;
  /** The content without the entry; undefined if it lacks the entry. */
  without(content: unknown): Record<string, unknown> | undefined;
  /** True if the entry can describe a model with tensors of these types. */
  fits(types: readonly string[]): boolean;
  /** The name of the file for an output of some name, in the same folder. */
  nameFor(output: string): string;
  /** Reads a file so that `print` gives back all of it as it was. @throws ScalepointError `BAD_FILE` */
  parse(text: string): {
    /** Content of the file. */
    readonly value: Readonly<Record<string, unknown>>;
    /** The text of a value, with the indentation and the large numbers of the file. */
    print(value: unknown): string;
  };
  /** The text of a new file. */
  print(value: unknown): string;
}

/** Description of an option. */
export interface OptionInfo {
  /** Flags; empty if the command line lacks the option. */
  readonly flags: readonly Flag[];
  /** Checks the value alone. @throws TypeError or RangeError naming the option */
  check(value: unknown, name: string): void;
  /** Parses the arguments of its flags. @throws RangeError whose option is the flag, such as `--range` */
  read(words: Words): unknown;
  /** The file beside the result, if the option describes one. Such an option does not change the result itself. */
  readonly sidecar?: Sidecar;
}

/** Choices for a result: the target, the rules, and the options of a format. */
export type PlanChoices<Options extends object = object, TargetName extends string = string> = Options & {
  /** Target of the weights. */
  readonly to: TargetName;
  /** Exceptions. The first match decides. */
  readonly rules?: readonly Rule[] | undefined;
};

/** The options of a format. */
export interface OptionTable {
  /** Heading in the help. */
  readonly title: string;
  /** Options by name. */
  readonly entries: Readonly<Record<string, OptionInfo>>;
  /** Checks combinations of valid values, and the rules. @throws TypeError or RangeError naming the option */
  check(choices: PlanChoices): void;
}

/** A table with an entry for every option of a type. */
export function optionTable<Options extends object>(table: {
  readonly title: string;
  readonly entries: { readonly [Name in keyof Required<Options>]: OptionInfo };
  check(choices: PlanChoices<Options>): void;
}): OptionTable {
  return table as unknown as OptionTable;
}

/** An option with a few values. */
export function choice(values: readonly string[], flag: Flag): OptionInfo {
  return {
    flags: [flag],
    check(value, name) {
      if (values.includes(value as string)) return;
      throw rangeError(name, oneOf(values), value, didYouMean(value, values));
    },
    read: (words) => words[flag.name],
  };
}

/** An option that is true or false. */
export function toggle(flag: Flag): OptionInfo {
  return {
    flags: [flag],
    check(value, name) {
      if (typeof value !== 'boolean') throw typeError(name, ofType('boolean'), value);
    },
    read: (words) => words[flag.name],
  };
}

/** The option for finding ranges, shared by formats. */
export const searchedRange: OptionInfo = {
  flags: [
    {
      name: 'range',
      value: 'R',
      about: 'what the codes cover: min-max (the default), mse (least squared error), entropy, or percentile:99.9',
    },
  ],
  check(value, name) {
    if (value === 'min-max' || searchOf(value) !== undefined) return;
    throw rangeError(name, searchedRangeForm, value);
  },
  read({ range: text }): 'min-max' | SearchedRange | undefined {
    if (isNamedRange(text)) return text;
    const [, number] = /^percentile:(\d+(?:\.\d+)?)$/.exec(String(text)) ?? [];
    const percentile = Number(number);
    if (percentile > 50 && percentile <= 100) return { percentile };
    if (number !== undefined) throw rangeError('--range', { kind: 'number', above: 50, max: 100 }, percentile);
    throw rangeError('--range', oneOf([...rangeNames, 'percentile:P']), text);
  },
};
