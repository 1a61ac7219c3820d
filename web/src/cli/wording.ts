/** Options and values as a command line writes them, and errors in these words. */
import { type Rule, ScalepointError } from '../model.js';
import {
  type Expected,
  type Flag,
  flagWords,
  formats,
  type Hint,
  type OptionProblem,
  type OptionWords,
  orList,
  problemOf,
  rulesText,
  sayHint,
  sayProblem,
  show,
  type Words,
} from '../tooling.js';
import { benchFlags, type CommandFlags, calibrateFlags, compareFlags, evaluateFlags, quantizeFlags } from './flags.js';
import { UsageError } from './process.js';

/** The flags that set an option: those of formats, or of commands. */
function flagsFor(option: string): readonly Flag[] {
  const format = formats.find(({ options }) => Object.hasOwn(options.entries, option));
  if (format !== undefined) return format.options.entries[option]?.flags ?? [];
  const all: CommandFlags = { ...benchFlags, ...compareFlags, ...evaluateFlags, ...calibrateFlags, ...quantizeFlags };
  const camel = (name: string) => name.replace(/-./g, ([, letter = '']) => letter.toUpperCase());
  return Object.entries(all).flatMap(([name, flag]) =>
    (flag.option ?? camel(name)) === option ? [{ ...flag, name }] : [],
  );
}

/**
 * The words of a command line: `--to int8`.
 * @param given the flags of the line: a message names an option by the flag that set it
 * @param rules the rules of the line
 */
export function commandWordsFor(given: Words, rules: readonly Rule[] = []): OptionWords {
  /** `--rule "REGEX=int8"` for paths in it. */
  const ruleOf = (path: string) => {
    if (path.startsWith('rules[].')) return "--rule 'REGEX=TYPE'";
    const rule = rules[Number(/^rules\[(\d+)\]/.exec(path)?.[1])];
    return rule && `--rule ${JSON.stringify(rulesText([rule]).trimEnd())}`;
  };
  const flagAt = (path: string): Flag | undefined => {
    // Paths of rules have words of their own.
    if (path.startsWith('rules[')) return undefined;
    const [option = path] = /^(run\.)?\w+/.exec(path) ?? [];
    const member = path.slice(option.length + 1);
    const flags = flagsFor(option);
    return (
      flags.find((one) => one.member === member) ?? flags.find(({ name }) => given[name] !== undefined) ?? flags[0]
    );
  };
  const flagOf = (path: string): string | undefined => {
    if (path.startsWith('--')) return path;
    const flag = flagAt(path);
    const [, key] = /^\w+\["(.*)"\]/.exec(path) ?? [];
    return flag && (key === undefined ? `--${flag.name}` : `--${flag.name} ${key}`);
  };
  return {
    option: (path) => ruleOf(path) ?? flagOf(path) ?? path,
    withValues(path, values) {
      const text = orList(values.map((value) => (typeof value === 'object' ? show(value) : String(value))));
      if (path.startsWith('rules[].')) return `--rule 'REGEX=${path.endsWith('.keep') ? 'keep' : text}'`;
      const rule = ruleOf(path);
      // Rules of the command line have a type alone.
      if (rule !== undefined && path.endsWith('.granularity')) return `in code, the granularity ${text} of ${rule}`;
      if (rule !== undefined) return `${text} in ${rule}`;
      const flags = flagsFor(path);
      const said = values.map((value) => {
        const words = Object.entries(flagWords({ flags }, value));
        return words.map(([name, word]) => (word === true ? `--${name}` : `--${name} ${word}`)).join(' ');
      });
      const isSaid = (value: unknown, i: number) => typeof value === 'object' || !said[i]?.includes(' ');
      if (flags.length > 0 && values.every(isSaid)) return said.join(' or ');
      return `${flagOf(path) ?? path} ${text}`;
    },
    value: String,
    given: (value) => (value === undefined ? 'nothing' : show(value)),
    isSwitch: (path) => flagAt(path)?.value === undefined && flagAt(path) !== undefined,
  };
}

/** The words of a command line that has no flags yet. */
export const commandWords: OptionWords = commandWordsFor({});

/** Message of an error about an option, in flags; undefined for options without a flag. */
function inFlags(error: unknown, words: OptionWords): string | undefined {
  const problem = problemOf(error);
  if (problem === undefined) return undefined;
  const name = words.option(problem.option);
  return name.startsWith('--') ? `${name}: ${sayProblem(problem, words)}` : undefined;
}

/** The error for a wrong option, named as the command line does. */
export function usageError(problem: OptionProblem): UsageError {
  return new UsageError(`${problem.option}: ${sayProblem(problem, commandWords)}`, { problem });
}

/** The error for a flag with a wrong value, or with others that exclude it. @param flag name without the dashes */
export const wrongFlag = (flag: string, expected: Expected, got?: unknown, hint?: Hint): UsageError =>
  usageError({ option: `--${flag}`, expected, got, hint });

/** An error of the model functions about an option, as an error of the command line; other errors as they are. */
export function asUsage(error: unknown, given: Words = {}, rules: readonly Rule[] = []): unknown {
  const message = inFlags(error, commandWordsFor(given, rules));
  return message === undefined ? error : new UsageError(message, { problem: problemOf(error), cause: error });
}

/** Message of an error, with options as flags. */
export function commandMessage(error: unknown): string {
  const problem = problemOf(error);
  // Leave out the word "file": the command line puts the name of the file before the message.
  if (problem?.option === 'file') return sayProblem(problem, commandWords);
  if (error instanceof ScalepointError) return error.statement + sayHint(error.hint, commandWords);
  return inFlags(error, commandWords) ?? (error instanceof Error ? error.message : String(error));
}
