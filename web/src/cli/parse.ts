/** From the words of a command line to the options of the model functions. */
import { parseArgs } from 'node:util';
import type { Rule } from '../model.js';
import {
  didYouMean,
  type Expected,
  formats,
  type Hint,
  maxWorkers,
  mention,
  ofType,
  oneOf,
  ruleFrom,
  whole,
} from '../tooling.js';
import { calibrateFlags, compareFlags, evaluateFlags, inspectFlags, quantizeFlags } from './flags.js';
import { UsageError } from './process.js';
import { asUsage, usageError, wrongFlag } from './wording.js';

type OptionsConfig = NonNullable<NonNullable<Parameters<typeof parseArgs>[0]>['options']>;

/** A flag of a command line, as parseArgs splits it. */
interface OptionToken {
  readonly name: string;
  /** As it was given: --output or -o. */
  readonly rawName: string;
  readonly value?: string | undefined;
  /** True if the value is part of the same word, as in --to=int8. */
  readonly inlineValue?: boolean | undefined;
}

/** A command that has a flag. */
function commandOf(flag: string): string | undefined {
  const flags = { inspect: inspectFlags, quantize: quantizeFlags, compare: compareFlags, calibrate: calibrateFlags };
  return Object.entries({ ...flags, evaluate: evaluateFlags }).find(([, known]) => Object.hasOwn(known, flag))?.[0];
}

/** Fails if a flag is unknown, lacks its value, or has one that it does not take. @throws UsageError */
function checkFlag(token: OptionToken, options: OptionsConfig): void {
  const { name, rawName, value, inlineValue } = token;
  const option = Object.hasOwn(options, name) ? options[name] : undefined;
  if (option === undefined) {
    const { names } = didYouMean(rawName.replace(/^-+/, ''), Object.keys(options));
    const owner = commandOf(name);
    const hint: Hint =
      names.length === 0 && owner !== undefined
        ? { kind: 'takenBy', call: `scalepoint ${owner}`, name: `--${name}` }
        : { kind: 'didYouMean', names: names.map((known) => `--${known}`) };
    throw usageError({ option: rawName, expected: { kind: 'knownOption', names: [] }, got: undefined, hint });
  }
  if (option.type === 'boolean') {
    if (value !== undefined) throw wrongFlag(name, { kind: 'absent' }, value);
    return;
  }
  if (value === undefined) throw wrongFlag(name, ofType('value'));
  // Most likely the value was forgotten, and this is the next option. Numbers may be negative.
  if (inlineValue || !/^-[^\d.]/.test(value)) return;
  const literal = mention(`--${name}=${value}`);
  throw wrongFlag(name, ofType('value'), value, { kind: 'try', option: literal, effect: `takes ${value} itself` });
}

/** Splits a command line. @throws UsageError */
export function parseArguments<T extends OptionsConfig>(args: string[], options: T) {
  // Not strict: Node's own messages are not for the users of this program.
  const parsed = parseArgs({ args, options, allowPositionals: true, strict: false, tokens: true });
  const values: Record<string, string | boolean | string[]> = {};
  for (const token of parsed.tokens) {
    if (token.kind !== 'option') continue;
    checkFlag(token, options);
    const { name, rawName, value: given, inlineValue }: OptionToken = token;
    // -o=OUT means the same as -o OUT.
    const value = inlineValue && !rawName.startsWith('--') ? given?.replace(/^=/, '') : given;
    const before = values[name];
    if (value === undefined) values[name] = true;
    else values[name] = options[name]?.multiple ? [...(Array.isArray(before) ? before : []), value] : value;
  }
  return { values: values as ReturnType<typeof strictly<T>>['values'], positionals: parsed.positionals };
}

/** Used for its return type only. */
const strictly = <T extends OptionsConfig>(options: T) => parseArgs({ options, allowPositionals: true, strict: true });

/** The files of a command, one for each of `names`. @throws UsageError */
export function filesOf(positionals: readonly string[], names: readonly string[], command: string): string[] {
  const missing = names.findIndex((_, i) => positionals[i] === undefined || positionals[i] === '');
  const single = names.length === 1;
  if (missing >= 0) throw new UsageError(`${command} needs ${single ? 'a ' : ''}${names.slice(missing).join(' and ')}`);
  const extra = positionals[names.length];
  if (extra === undefined) return [...positionals];
  const takes = `${single ? 'one ' : ''}${names.join(' and ')}`;
  const advice = single ? '; for a model in several files, name its folder, its index or its first file' : '';
  throw new UsageError(`${command} takes ${takes}, got ${JSON.stringify(extra)} as well${advice}`);
}

function numberOf(name: string, text: string, expected: Expected, pattern: RegExp): number {
  if (!pattern.test(text)) throw wrongFlag(name, expected, text);
  return Number(text);
}

/** A whole number. @throws UsageError */
export function wholeOf(name: string, text: string | undefined): number | undefined {
  return text === undefined ? undefined : numberOf(name, text, whole(0), /^\d{1,9}$/);
}

/** Value of --workers. @throws UsageError */
export function workersOf(text: string | undefined): number | undefined {
  const workers = wholeOf('workers', text);
  if (workers === undefined || workers <= maxWorkers) return workers;
  throw wrongFlag('workers', whole(0, maxWorkers), workers);
}

/** Value of --lora: the file of an adapter, and how many times it is added. @throws UsageError */
export function adapterOf(text: string): { readonly file: string; readonly strength?: number } {
  const [, path, strength] = /^(.+):([-+]?(?:\d+\.?\d*|\.\d+))$/.exec(text) ?? [];
  if (path !== undefined) return { file: path, strength: Number(strength) };
  if (text === '' || text.endsWith(':')) throw wrongFlag('lora', ofType('name of a file'), text);
  return { file: text };
}

/** Value of --min-sqnr. @throws UsageError */
export function decibelsOf(text: string | undefined): number | undefined {
  const pattern = /^[-+]?(\d+\.?\d*|\.\d+)$/;
  return text === undefined ? undefined : numberOf('min-sqnr', text, { kind: 'number', unit: 'decibels' }, pattern);
}

/** One of a few words, as a flag has it; undefined without the flag. @throws UsageError */
export function choiceOf<Word extends string>(
  name: string,
  text: string | undefined,
  words: readonly Word[],
): Word | undefined {
  const known = words.find((word) => word === text);
  if (known !== undefined || text === undefined) return known;
  throw wrongFlag(name, oneOf(words), text, didYouMean(text, words));
}

/** The spelling of a name in a list, found without regard to case; undefined if the list lacks it. */
function spelled(text: string, names: readonly string[]): string | undefined {
  return names.find((name) => name.toLowerCase() === text.toLowerCase());
}

/** Value of --to, in the spelling of the lists. The model functions check that the target exists. */
export function targetOf(text: string): string {
  const names = formats().flatMap(({ targets, aliases }) => [
    ...targets.map(({ name }) => name),
    ...Object.keys(aliases),
  ]);
  return spelled(text, names) ?? text;
}

/** A rule with its type in the spelling of the lists. The model functions check that it fits the file. */
export function spelledRule(rule: Rule): Rule {
  if (rule.to === undefined) return rule;
  const names = formats().flatMap(({ targets, ruleTargets }) => [...targets.map(({ name }) => name), ...ruleTargets]);
  return { ...rule, to: spelled(rule.to, names) ?? rule.to };
}

/** Value of --rule. @throws UsageError */
export function parseRule(text: string): Rule {
  try {
    return spelledRule(ruleFrom(text, '--rule'));
  } catch (error) {
    throw asUsage(error);
  }
}
