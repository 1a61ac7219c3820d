/**
 * Options as data. A schema has an entry for each option, under its doc comment. The type, the check, suggestions, the flags of the command
 * line, their help and completion, and the controls of the page follow from the entry.
 */
import { checkBoolean, checkChoice, checkFunction, checkNumber } from './check.js';
import { rangeError } from './errors.js';
import { type NumberForm, onlyWith, without } from './option-problem.js';

export type { NumberForm };

/** Arguments of a command line by flag: texts, true for switches, lists for flags that can be repeated. */
export type Words = Readonly<Record<string, string | boolean | readonly string[] | undefined>>;

/** A flag of the command line. */
export interface Flag {
  /** Name without the dashes. */
  readonly name: string;
  /** Placeholder for its value in the help; undefined for switches. FILE and OUT are completed with names of files. */
  readonly value?: string | undefined;
  /** True if it can be given several times. */
  readonly multiple?: boolean;
  /** True if its value is a file whose text the option takes. `read` gets the text in place of the name. */
  readonly isText?: boolean;
  /** Member of the option that it sets, if it sets only one. */
  readonly member?: string;
  /** The value of the option that a switch stands for. @defaultValue true */
  readonly means?: unknown;
  /** The accepted values, if there are few. */
  readonly choices?: readonly string[];
  /** Description in a few words, for the help. */
  readonly about: string;
}

/** An option that goes with others, with a value where one is meant. */
interface OtherOption {
  readonly option: string;
  readonly value?: unknown;
}

/** An entry of a schema. */
export interface OptionInfo<T = unknown> {
  /** The type of its values. No entry has this member: it carries the type alone. */
  readonly type?: T | undefined;
  /** Flags; empty if the command line lacks the option. */
  readonly flags: readonly Flag[];
  /** The value that turns the option off, and so goes with every other option. */
  readonly off?: T | undefined;
  /** Other options, of which it needs one. */
  readonly needs?: readonly OtherOption[] | undefined;
  /** Other options that exclude it. */
  readonly excludedBy?: readonly OtherOption[] | undefined;
  /** Checks the value alone. @throws TypeError or RangeError naming the option */
  check(value: unknown, name: string): void;
  /** Parses the arguments of its flags. @throws RangeError whose option is the flag, such as `--range` */
  read(words: Words): unknown;
}

/** Options by name. */
export type Schema = Readonly<Record<string, OptionInfo>>;

/** The type of an object of options. */
export type OptionsOf<S> = {
  readonly [Name in keyof S]?: S[Name] extends { readonly type?: infer T } ? T | undefined : never;
};

/** Makes an entry from its check and its flags. Reads the value of the flag that is given, or the meaning of the switch. */
export function option<T>(check: OptionInfo['check'], ...flags: readonly Flag[]): OptionInfo<T> {
  const read = (words: Words) => {
    const [flag, other] = flags.filter(({ name }) => words[name] !== undefined);
    if (flag !== undefined && other !== undefined) throw rangeError(`--${other.name}`, without(`--${flag.name}`));
    if (flag === undefined || flag.value !== undefined) return flag && words[flag.name];
    return flag.means ?? true;
  };
  return { flags, check, read };
}

/** The arguments by which the flags of an option set a value: the inverse of `read`. Beside flags of members, the one of the kind is left out. */
export function flagWords({ flags }: Pick<OptionInfo, 'flags'>, value: unknown): Words {
  const [first] = flags;
  const set = flags.find(({ value: takes, means = true }) => takes === undefined && means === value);
  if (set !== undefined) return { [set.name]: true };
  if (first === undefined || typeof value !== 'object' || value === null) return { [first?.name ?? '']: String(value) };
  const members = Object.entries(value);
  const named = members.flatMap(([key, member]) => {
    const flag = flags.find((one) => one.member === key);
    return flag === undefined ? [] : [[flag.name, String(member)]];
  });
  if (named.length > 0) return Object.fromEntries(named);
  return { [first.name]: members.map(([key, member]) => (key === 'kind' ? member : `${key}:${member}`)).join() };
}

/** An entry with other members in place of some. */
export function amended<T>(info: OptionInfo<T>, more: Partial<Omit<OptionInfo<T>, 'type'>>): OptionInfo<T> {
  return { ...info, ...more };
}

/** An option with a few values. @param off the value that turns it off */
export function choice<const T>(values: readonly T[], flag?: Flag | readonly Flag[], off?: NoInfer<T>): OptionInfo<T> {
  const flags = [flag ?? []].flat();
  const names = values.filter((value) => typeof value === 'string');
  const shown = flags.map((one) => (one.value === undefined ? one : { ...one, choices: names }));
  return amended(
    option<T>((value, name) => checkChoice(value, name, values), ...shown),
    { off },
  );
}

/** An option that is true or false. */
export function toggle(...flags: readonly Flag[]): OptionInfo<boolean> {
  const isOn = flags.every(({ means = true }) => means === true);
  return amended(option<boolean>(checkBoolean, ...flags), isOn ? { off: false } : {});
}

/** Parses the text of a flag. @throws RangeError naming the flag */
export function readNumber(text: unknown, flag: string, form: NumberForm): number {
  const pattern = form.whole ? /^\d{1,15}$/ : /^[-+]?(\d+\.?\d*|\.\d+)(e[-+]?\d+)?$/i;
  if (typeof text !== 'string' || !pattern.test(text)) throw rangeError(`--${flag}`, form, text);
  return checkNumber(Number(text), `--${flag}`, form);
}

/** An option that is a number. */
export function numberOption(form: Omit<NumberForm, 'kind'>, flag?: Flag): OptionInfo<number> {
  const expected: NumberForm = { kind: 'number', ...form };
  const made = option<number>((value, name) => checkNumber(value, name, expected), ...(flag ? [flag] : []));
  return flag ? amended(made, { read: (words) => readNumber(words[flag.name], flag.name, expected) }) : made;
}

/** An option that is a function of the caller. */
export function callback<T>(): OptionInfo<T> {
  return option<T>(checkFunction);
}

/** Checks the values of the options that are given. @throws TypeError or RangeError naming the option */
export function checkOptionValues(schema: Schema, options: object): void {
  const values = options as Readonly<Record<string, unknown>>;
  for (const [name, { check }] of Object.entries(schema)) if (values[name] !== undefined) check(values[name], name);
}

/** Checks that each given option goes with the others. @throws RangeError naming the option */
export function checkTogether(schema: Schema, options: object): void {
  const given = (name: string): unknown => {
    const value = (options as Readonly<Record<string, unknown>>)[name];
    return value === schema[name]?.off ? undefined : value;
  };
  const holds = ({ option: name, value }: OtherOption) =>
    value === undefined ? given(name) !== undefined : given(name) === value;
  for (const [name, { needs = [], excludedBy = [], flags }] of Object.entries(schema)) {
    const value = given(name);
    if (value === undefined) continue;
    const other = excludedBy.find(holds);
    if (other !== undefined) {
      const isPlain = typeof value === 'boolean' || flags.some(({ choices }) => choices !== undefined);
      throw rangeError(name, without(other.option, other.value), isPlain ? value : undefined);
    }
    const [first] = needs;
    if (first === undefined || needs.some(holds)) continue;
    throw rangeError(name, onlyWith(first.option, ...(first.value === undefined ? [] : [first.value])));
  }
}
