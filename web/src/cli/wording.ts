/** Options and values as a command line writes them, and errors in these words. */
import { ScalepointError } from '../model.js';
import {
  type Flag,
  formats,
  type OptionInfo,
  type OptionWords,
  problemOf,
  sayHint,
  sayProblem,
  type Words,
} from '../tooling.js';

/** Flags of options that do not belong to a format. */
const plainFlags: Readonly<Record<string, string>> = {
  to: 'to',
  targetSize: 'target-size',
  targetBitsPerWeight: 'target-bpw',
  workers: 'workers',
  minSqnrDb: 'min-sqnr',
  output: 'output',
  overwrite: 'force',
  'run.dimensions': 'dim',
};

function infoOf(name: string): OptionInfo | undefined {
  return formats().find(({ options }) => Object.hasOwn(options.entries, name))?.options.entries[name];
}

/** True if a switch alone means the value. */
function means(info: OptionInfo, flag: Flag, value: unknown): boolean {
  return flag.value === undefined && info.read({ [flag.name]: true }) === value;
}

/**
 * The words of a command line: `--to int8`.
 * @param given the flags of the line: a message names an option by the flag that set it
 * @param rules the rules of the line, as they were written
 */
export function commandWordsFor(given: Words, rules: readonly string[] = []): OptionWords {
  /** `--rule "REGEX=int8"` for paths in it. */
  const ruleOf = (path: string) => {
    if (path.startsWith('rules[].')) return "--rule 'REGEX=keep'";
    const [, i] = /^rules\[(\d+)\]/.exec(path) ?? [];
    return i === undefined || rules[Number(i)] === undefined ? undefined : `--rule ${JSON.stringify(rules[Number(i)])}`;
  };
  const flagOf = (path: string): string | undefined => {
    if (path.startsWith('--')) return path;
    const [name = '', member] = path.split('.');
    // Keys of metadata have dots.
    const flags = infoOf(/^\w+/.exec(name)?.[0] ?? '')?.flags ?? [];
    const plain = plainFlags[path] ?? plainFlags[name];
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
      const text = values.map(String).join(' or ');
      const rule = ruleOf(path);
      if (rule !== undefined) return path.startsWith('rules[].') ? rule : `${text} in ${rule}`;
      const info = infoOf(path);
      const switches = values.map((value) => info?.flags.find((flag) => means(info, flag, value)));
      if (switches.every((flag) => flag !== undefined)) return switches.map((flag) => `--${flag.name}`).join(' or ');
      return `${flagOf(path) ?? path} ${text}`;
    },
    value: String,
    isSwitch: (path) => {
      const name = flagOf(path)?.slice(2);
      return infoOf(path)?.flags.some((flag) => flag.name === name && flag.value === undefined) ?? false;
    },
  };
}

/** The same without a command line. */
export const commandWords: OptionWords = commandWordsFor({});

/** Message of an error about an option, in flags; undefined for options without a flag. */
export function inFlags(error: unknown, given: Words = {}, rules: readonly string[] = []): string | undefined {
  const problem = problemOf(error);
  const words = commandWordsFor(given, rules);
  if (problem === undefined) return undefined;
  const name = words.option(problem.option);
  return name.startsWith('--') ? `${name}: ${sayProblem(problem, words)}` : undefined;
}

/** Message of an error, with options as flags. */
export function commandMessage(error: unknown): string {
  const problem = problemOf(error);
  // Leave out the word "file": the command line puts the name of the file before the message.
  if (problem?.option === 'file') return sayProblem(problem, commandWords);
  if (error instanceof ScalepointError) return error.statement + sayHint(error.hint, commandWords);
  return inFlags(error) ?? (error instanceof Error ? error.message : String(error));
}
