/** Options and values as a command line writes them, and errors in these words. */
import { ScalepointError } from '../model.js';
import {
  type Expected,
  type FormatOption,
  formats,
  type Hint,
  type OptionProblem,
  type OptionWords,
  orList,
  problemOf,
  sayHint,
  sayProblem,
  show,
  type Words,
} from '../tooling.js';
import { UsageError } from './process.js';

/** Flags with other names than the options that they set. Those of all other options are called like them: `--target-size`, `targetSize`. */
const renamedFlags: Readonly<Record<string, string>> = {
  targetBitsPerWeight: 'target-bpw',
  minSqnrDb: 'min-sqnr',
  overwrite: 'force',
  repository: 'push',
  'run.dimensions': 'dim',
  'run.samples': 'samples',
};

/** Options of the model functions without a format that have flags. */
const plainOptions: readonly string[] = ['to', 'targetSize', 'workers', 'minOutput', 'lora', 'data', 'output', 'plan'];

function formatOption(name: string): FormatOption | undefined {
  return formats.find(({ options }) => Object.hasOwn(options.entries, name))?.options.entries[name];
}

/**
 * The words of a command line: `--to int8`.
 * @param given the flags of the line: a message names an option by the flag that set it
 * @param rules the rules of the line, as they were written
 */
export function commandWordsFor(given: Words, rules: readonly string[] = []): OptionWords {
  /** `--rule "REGEX=int8"` for paths in it. */
  const ruleOf = (path: string) => {
    if (path.startsWith('rules[].')) return "--rule 'REGEX=TYPE'";
    const [, i] = /^rules\[(\d+)\]/.exec(path) ?? [];
    return i === undefined || rules[Number(i)] === undefined ? undefined : `--rule ${JSON.stringify(rules[Number(i)])}`;
  };
  const flagOf = (path: string): string | undefined => {
    if (path.startsWith('--')) return path;
    const [, member] = path.split('.');
    // Keys of metadata have dots.
    const [base = path] = /^\w+/.exec(path) ?? [];
    const isPlain = plainOptions.includes(base);
    const flags = formatOption(base)?.flags ?? [];
    const plain =
      renamedFlags[path] ??
      renamedFlags[base] ??
      (isPlain ? base.replace(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`) : undefined);
    const flag =
      flags.find((one) => one.member === member && member !== undefined) ??
      flags.find((one) => given[one.name] !== undefined) ??
      flags[0];
    if (plain !== undefined) return `--${plain}`;
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
      const info = formatOption(path);
      // The flags that set the members of an object. The first flag sets the kind; beside others, which imply it, it can be left out.
      const flags = values.map((value) => {
        if (info === undefined || typeof value !== 'object' || value === null) return undefined;
        const members = Object.entries(value);
        const texts = members.flatMap(([key, member]) => {
          const flag = info.flags.find((one) => one.member === key);
          return flag === undefined ? [] : [`--${flag.name} ${member}`];
        });
        return texts.length > 0 ? texts.join(' ') : `--${info.flags[0]?.name} ${members[0]?.[1]}`;
      });
      if (flags.every((one) => one !== undefined)) return flags.join(' or ');
      const switches = values.map((value) =>
        info?.flags.find((flag) => flag.value === undefined && (flag.means ?? true) === value),
      );
      if (switches.every((flag) => flag !== undefined)) return switches.map((flag) => `--${flag.name}`).join(' or ');
      return `${flagOf(path) ?? path} ${text}`;
    },
    value: String,
    given: (value) => (value === undefined ? 'nothing' : show(value)),
    isSwitch: (path) => {
      const name = flagOf(path)?.slice(2);
      return formatOption(path)?.flags.some((flag) => flag.name === name && flag.value === undefined) ?? false;
    },
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
export function asUsage(error: unknown, given: Words = {}, rules: readonly string[] = []): unknown {
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
