/** From the words of the command line to the options of the model functions, and back for their errors. */
import { parseArgs } from 'node:util';
import { blockTypes } from '../core/blocks.js';
import { ggufTargets, type ModelTarget, type PlanOptions, type Rule, safetensorsTargets } from '../model.js';
import { UsageError } from './process.js';

type OptionsConfig = NonNullable<NonNullable<Parameters<typeof parseArgs>[0]>['options']>;

/** Options that every command takes. */
export const commonOptions = {
  json: { type: 'boolean' },
  verbose: { type: 'boolean' },
  'no-color': { type: 'boolean' },
  help: { type: 'boolean', short: 'h' },
} as const satisfies OptionsConfig;

/** Splits a command line. @throws UsageError */
export function parse<T extends OptionsConfig>(args: string[], options: T) {
  try {
    return parseArgs({ args, options, allowPositionals: true, strict: true });
  } catch (error) {
    // The first sentence says what is wrong; the second explains "--" at length.
    throw new UsageError(error instanceof Error ? (error.message.split(/\. /)[0] as string) : String(error));
  }
}

/** The files of a command that takes so many. @throws UsageError */
export function filesOf(positionals: readonly string[], names: readonly string[], command: string): string[] {
  const missing = names.findIndex((_, i) => positionals[i] === undefined || positionals[i] === '');
  const single = names.length === 1;
  if (missing >= 0) throw new UsageError(`${command} needs ${single ? 'a ' : ''}${names.slice(missing).join(' and ')}`);
  const extra = positionals[names.length];
  if (extra === undefined) return [...positionals];
  const takes = `${single ? 'one ' : ''}${names.join(' and ')}`;
  throw new UsageError(`${command} takes ${takes}, got ${JSON.stringify(extra)} as well`);
}

function numberOf(name: string, text: string, what: string, pattern: RegExp): number {
  if (!pattern.test(text)) throw new UsageError(`--${name}: expected ${what}, got ${JSON.stringify(text)}`);
  return Number(text);
}

/** A whole number. @throws UsageError */
export function wholeOf(name: string, text: string | undefined): number | undefined {
  return text === undefined ? undefined : numberOf(name, text, 'a whole number', /^\d{1,9}$/);
}

/** What the model functions take. */
const mostWorkers = 64;

/** What --workers means. @throws UsageError */
export function workersOf(text: string | undefined): number | undefined {
  const workers = wholeOf('workers', text);
  if (workers === undefined || workers <= mostWorkers) return workers;
  throw new UsageError(`--workers: expected 0 to ${mostWorkers}, got ${workers}`);
}

/** What --min-sqnr means. @throws UsageError */
export function decibelsOf(text: string | undefined): number | undefined {
  const pattern = /^[-+]?(\d+\.?\d*|\.\d+)$/;
  return text === undefined ? undefined : numberOf('min-sqnr', text, 'a number of decibels', pattern);
}

/** Short names of file types, which stand for their M form. */
const shortTargets = ['Q3_K', 'Q4_K', 'Q5_K'] as const;

/** A name of a list in its own spelling, whatever its case was. */
function spelled<T extends string>(text: string, names: readonly T[]): T | undefined {
  return names.find((name) => name.toLowerCase() === text.toLowerCase());
}

/** What --to means. @throws UsageError */
export function targetOf(text: string): ModelTarget {
  const target = spelled(text, [...safetensorsTargets, ...ggufTargets, ...shortTargets]);
  if (target !== undefined) return target;
  const known = `${safetensorsTargets.join(', ')} for safetensors, or ${ggufTargets.join(', ')} for GGUF`;
  throw new UsageError(`--to: expected ${known}, got ${JSON.stringify(text)}`);
}

/** What --rule means; whether its type fits the file, the model functions check. @throws UsageError */
export function ruleOf(text: string): Rule {
  // Types have no "=", but expressions may.
  const split = text.lastIndexOf('=');
  const target = text.slice(split + 1);
  if (split < 1 || target === '') {
    throw new UsageError(`--rule: expected 'REGEX=TYPE' or 'REGEX=keep', got ${JSON.stringify(text)}`);
  }
  let match: RegExp;
  try {
    match = new RegExp(text.slice(0, split));
  } catch (error) {
    throw new UsageError(`--rule: ${error instanceof Error ? error.message : error}`);
  }
  if (target.toLowerCase() === 'keep') return { match, keep: true };
  return { match, to: spelled(target, [...safetensorsTargets, ...ggufTargets, ...blockTypes]) ?? target };
}

/** Groups of int4 unless told otherwise, and of --granularity per-group. */
const defaultGroupSize = 128;

/** What --granularity and --group-size mean together. @throws UsageError */
export function granularityOf(kind: string | undefined, size: string | undefined): PlanOptions['granularity'] {
  const groupSize = wholeOf('group-size', size);
  if (kind === undefined && groupSize === undefined) return undefined;
  if (kind === 'per-channel' && groupSize === undefined) return { kind };
  if (kind === 'per-channel') throw new UsageError('--group-size: only for --granularity per-group');
  if (kind === undefined || kind === 'per-group')
    return { kind: 'per-group', groupSize: groupSize ?? defaultGroupSize };
  throw new UsageError(`--granularity: expected per-channel or per-group, got ${JSON.stringify(kind)}`);
}

/** What --range means. @throws UsageError */
export function rangeOf(text: string | undefined): PlanOptions['range'] {
  if (text === undefined || text === 'min-max' || text === 'mse' || text === 'entropy') return text;
  const [, number] = /^percentile:(\d+(?:\.\d+)?)$/.exec(text) ?? [];
  const percentile = Number(number);
  if (percentile > 50 && percentile <= 100) return { percentile };
  throw new UsageError(
    `--range: expected min-max, mse, entropy or percentile:P with P above 50 and at most 100, got ${JSON.stringify(text)}`,
  );
}

/** Options of the model functions that have the same names. */
const sameNames = ['to', 'scheme', 'range', 'packed', 'activations', 'pure', 'requantize'];

/** The words of the command line in place of those of the model functions. */
export function translated(message: string): string {
  return message
    .replaceAll('requantize: true', '--requantize')
    .replaceAll('fixAlignment', '--fix-alignment')
    .replaceAll('a rule with keep: true', "--rule 'REGEX=keep'");
}

/** What was said of the options that have other names for the model functions. */
interface Said {
  readonly rule?: readonly string[] | undefined;
  readonly granularity?: string | undefined;
}

/** An error of the model functions about an option, as an error of the command line; other errors as they are. */
export function asUsage(error: unknown, { rule = [], granularity }: Said): unknown {
  if (!(error instanceof RangeError || error instanceof TypeError)) return error;
  const ruleName = (index: string) => `--rule ${JSON.stringify(rule[Number(index)])}`;
  const [, name = '', index, rest = ''] =
    /^(rules\[(\d+)\](?:\.\w+)?|granularity(?:\.\w+)?|\w+): (.*)$/s.exec(error.message) ?? [];
  let option = sameNames.includes(name) ? `--${name}` : undefined;
  if (name === 'fixAlignment') option = '--fix-alignment';
  if (name.startsWith('granularity')) option = granularity === undefined ? '--group-size' : '--granularity';
  if (name === 'granularity.groupSize') option = '--group-size';
  if (index !== undefined) option = ruleName(index);
  if (option === undefined) return error;
  const text = translated(rest.replace(/rules\[(\d+)\]\.(to|granularity)/g, (_, i) => ruleName(i)));
  const usage = new UsageError(`${option}: ${text}`);
  usage.cause = error;
  return usage;
}
