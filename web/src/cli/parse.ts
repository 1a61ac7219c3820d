/** From the words of a command line to the values of its flags. */
import { parseArgs } from 'node:util';
import type { Rule } from '../model.js';
import { didYouMean, formats, type Hint, mention, ofType, ruleFrom, type Words } from '../tooling.js';
import type { CommandFlags, FlagGroup, ValuesOf } from './flags.js';
import { UsageError } from './process.js';
import { asUsage, usageError, wrongFlag } from './wording.js';

/** A command line, split. */
export interface Line<Flags> {
  /** The values of its flags. */
  readonly values: ValuesOf<Flags>;
  /** The values as they were written. */
  readonly words: Words;
  readonly positionals: readonly string[];
  /** All flags of the command. */
  readonly flags: CommandFlags;
}

/** A command. Parsing, help and completions follow from this. */
export interface Command<Flags extends CommandFlags = CommandFlags> {
  /** Its purpose in a few words, and its usual arguments, for the overview. */
  readonly about: string;
  readonly line?: () => string;
  /** The ways to call it, without the name of the program. */
  readonly usage: readonly string[];
  /** Its purpose in a few sentences. @param all true for the help of all flags */
  text(all: boolean): string;
  /** The flags that it takes. */
  flags(): Flags;
  /** The flags that help and completions have. @defaultValue all, without a heading */
  readonly groups?: () => readonly FlagGroup[];
  /** Meanings of exit codes 0 and 1. @defaultValue done, failed */
  readonly exits?: readonly [done: string, failed: string];
  /** Sentences behind the flags in the help of all flags. */
  readonly footnotes?: () => readonly string[];
  /** Command lines, without the name of the program. */
  examples(all: boolean): readonly string[];
  /** Carries out a line that does not ask for help. Returns the exit code. */
  carryOut(line: Line<Flags>): Promise<number>;
}

/** Commands by name. */
export type Commands = Readonly<Record<string, Command>>;

/** Makes a command. */
export const makeCommand = <Flags extends CommandFlags>(command: Command<Flags>): Command<Flags> => command;

/** The groups of flags of a command. */
export const groupsOf = ({ groups, flags }: Command): readonly FlagGroup[] => groups?.() ?? [{ flags: flags() }];

/** True for a command line that asks for help. */
export const asksForHelp = (words: Words): boolean => words.help === true || words['help-all'] === true;

/** A flag of a command line, as parseArgs splits it. */
interface OptionToken {
  readonly name: string;
  /** As it was given: --output or -o. */
  readonly rawName: string;
  readonly value?: string | undefined;
  /** True if the value is part of the same word, as in --to=int8. */
  readonly inlineValue?: boolean | undefined;
}

/** Fails if a flag is unknown, lacks its value, or has one that it does not take. @throws UsageError */
function checkFlag({ name, rawName, value, inlineValue }: OptionToken, flags: CommandFlags, commands: Commands): void {
  const flag = Object.hasOwn(flags, name) ? flags[name] : undefined;
  if (flag === undefined) {
    const { names } = didYouMean(rawName.replace(/^-+/, ''), Object.keys(flags));
    const owner = Object.keys(commands).find((other) => Object.hasOwn(commands[other]?.flags() ?? {}, name));
    const hint: Hint =
      names.length === 0 && owner !== undefined
        ? { kind: 'takenBy', call: `scalepoint ${owner}`, name: `--${name}` }
        : { kind: 'didYouMean', names: names.map((known) => `--${known}`) };
    throw usageError({ option: rawName, expected: { kind: 'knownOption', names: [] }, got: undefined, hint });
  }
  if (flag.value === undefined) {
    if (value !== undefined) throw wrongFlag(name, { kind: 'absent' }, value);
    return;
  }
  if (value === undefined) throw wrongFlag(name, ofType('value'));
  // Most likely the value was forgotten, and this is the next option. Numbers may be negative.
  if (inlineValue || !/^-[^\d.]/.test(value)) return;
  const literal = mention(`--${name}=${value}`);
  throw wrongFlag(name, ofType('value'), value, { kind: 'try', option: literal, effect: `takes ${value} itself` });
}

/**
 * Splits a command line, and reads the values of its flags unless it asks for help.
 * @param commands all commands, for advice
 * @throws UsageError
 */
export function parseArguments<Flags extends CommandFlags>(
  args: readonly string[],
  { flags: flagsOf }: Command<Flags>,
  commands: Commands,
): Line<Flags> {
  const flags = flagsOf();
  const options = Object.fromEntries(
    Object.entries(flags).map(([name, { value, multiple = false, short }]) => [
      name,
      { type: value === undefined ? 'boolean' : 'string', multiple, ...(short && { short }) } as const,
    ]),
  );
  // Not strict: Node's own messages are not for the users of this program.
  const parsed = parseArgs({ args: [...args], options, allowPositionals: true, strict: false, tokens: true });
  const words: Record<string, string | boolean | string[]> = {};
  for (const token of parsed.tokens) {
    if (token.kind !== 'option') continue;
    checkFlag(token, flags, commands);
    const { name, rawName, value: given, inlineValue }: OptionToken = token;
    // -o=OUT means the same as -o OUT.
    const value = inlineValue && !rawName.startsWith('--') ? given?.replace(/^=/, '') : given;
    const before = words[name];
    if (value === undefined) words[name] = true;
    else words[name] = flags[name]?.multiple ? [...(Array.isArray(before) ? before : []), value] : value;
  }
  const values: Record<string, unknown> = {};
  try {
    for (const [name, word] of asksForHelp(words) ? [] : Object.entries(words)) {
      const read = flags[name]?.read;
      if (read === undefined || typeof word === 'boolean') values[name] = word;
      else values[name] = typeof word === 'string' ? read(word, name) : word.map((one) => read(one, name));
    }
  } catch (error) {
    throw asUsage(error, words);
  }
  return { values: values as ValuesOf<Flags>, words, positionals: parsed.positionals, flags };
}

/** The files of a command, one for each of `names`. @throws UsageError */
export function positionalFiles<const Names extends readonly string[]>(
  positionals: readonly string[],
  names: Names,
  command: string,
): { readonly [I in keyof Names]: string } {
  const missing = names.findIndex((_, i) => positionals[i] === undefined || positionals[i] === '');
  const single = names.length === 1;
  if (missing >= 0) throw new UsageError(`${command} needs ${single ? 'a ' : ''}${names.slice(missing).join(' and ')}`);
  const extra = positionals[names.length];
  if (extra === undefined) return positionals as { readonly [I in keyof Names]: string };
  const takes = `${single ? 'one ' : ''}${names.join(' and ')}`;
  const advice = single ? '; for a model in several files, name its folder, its index or its first file' : '';
  throw new UsageError(`${command} takes ${takes}, got ${JSON.stringify(extra)} as well${advice}`);
}

/** A name in the spelling of the targets and their other names, or else as it is. The model functions check that it exists. */
export function spelledTarget(text: string, others: readonly string[] = []): string {
  const names = formats.flatMap(({ targets, aliases }) => [
    ...targets.map(({ name }) => name),
    ...Object.keys(aliases),
  ]);
  return [...names, ...others].find((name) => name.toLowerCase() === text.toLowerCase()) ?? text;
}

/** A rule with its type in the spelling of the lists. The model functions check that it fits the file. */
export function spelledRule(rule: Rule): Rule {
  const types = formats.flatMap(({ ruleTargets }) => ruleTargets);
  return rule.to === undefined ? rule : { ...rule, to: spelledTarget(rule.to, types) };
}

/** Value of --rule. @throws UsageError */
export function parseRule(text: string): Rule {
  try {
    return spelledRule(ruleFrom(text, '--rule'));
  } catch (error) {
    throw asUsage(error);
  }
}
