/** Results of a given size, and files of rules. */
import { lstat, readFile, writeFile } from 'node:fs/promises';
import { type Rule, ScalepointError } from '../model.js';
import { type ModelFit, problemOf, rulesFrom, rulesText, sayProblem } from '../tooling.js';
import { ruleOf, spelledRule } from './options.js';
import { systemText, UsageError } from './process.js';
import { printable } from './text.js';
import { commandWords } from './wording.js';

/** Flags about sizes and rules. */
export const sizeFlags = {
  'target-size': { type: 'string' },
  'target-bpw': { type: 'string' },
  rules: { type: 'string' },
  'save-rules': { type: 'string' },
} as const;

/** Their values. */
export interface SizeValues {
  readonly 'target-size'?: string;
  readonly 'target-bpw'?: string;
  readonly rule?: readonly string[];
  readonly rules?: string;
  readonly 'save-rules'?: string;
}

/** True if the flags ask for a size. */
export function isSized(values: SizeValues): boolean {
  return values['target-size'] !== undefined || values['target-bpw'] !== undefined;
}

/** Checks the flags about sizes. @throws UsageError */
export function checkSizes(values: SizeValues, isOne: boolean): void {
  const { 'target-bpw': bits, 'save-rules': path } = values;
  if (bits !== undefined && values['target-size'] !== undefined)
    throw new UsageError('--target-bpw: a size is given by --target-size or by --target-bpw, not by both');
  if (bits !== undefined && !/^(\d+\.?\d*|\.\d+)$/.test(bits))
    throw new UsageError(`--target-bpw: expected a number of bits, such as 4.5, got ${JSON.stringify(bits)}`);
  if (path === undefined) return;
  if (path === '') throw new UsageError('--save-rules: expected the name of a file');
  if (!isSized(values)) throw new UsageError('--save-rules goes with --target-size or --target-bpw');
  if (!isOne) throw new UsageError('--save-rules: one file has room for the rules of one type, not of several');
}

/** The options that say how large a result may be. */
export function sizeOf({ 'target-size': size, 'target-bpw': bits }: SizeValues) {
  return {
    ...(size === undefined ? {} : { targetSize: size }),
    ...(bits === undefined ? {} : { targetBitsPerWeight: Number(bits) }),
  };
}

/** The size as part of a file name: `3.5GB`, `4.5bpw`; undefined if no size was given. */
export function sizeLabel({ 'target-size': size, 'target-bpw': bits }: SizeValues): string | undefined {
  if (bits !== undefined) return `${bits}bpw`;
  // A number alone means bytes.
  return size !== undefined && /^\d+$/.test(size) ? `${size}B` : size?.replaceAll(' ', '');
}

/** The rules in a file of llama-quantize, NAME=TYPE with spaces or new lines between them. Names are in lower case. @throws UsageError */
export async function typesOf(path: string | undefined): Promise<readonly string[]> {
  if (path === undefined) return [];
  let text: string;
  try {
    text = await readFile(path, 'utf8');
  } catch (cause) {
    throw new UsageError(`--tensor-type-file: cannot read ${JSON.stringify(path)}: ${systemText(cause)}`);
  }
  const words = text.split(/\s+/).filter((word) => word !== '');
  return words.map((word) => {
    const [, name, type] = /^([^=]+)=(.+)$/.exec(word) ?? [];
    if (name === undefined) {
      throw new UsageError(`--tensor-type-file: expected NAME=TYPE, got ${JSON.stringify(word)}`);
    }
    return `${name.toLowerCase()}=${type}`;
  });
}

/** The rules of a command line, then those of a file. @throws UsageError */
export async function rulesOf({ rule = [], rules: path }: SizeValues): Promise<readonly Rule[]> {
  const given = rule.map(ruleOf);
  if (path === undefined) return given;
  let text: string;
  try {
    text = await readFile(path, 'utf8');
  } catch (cause) {
    throw new ScalepointError('IO', `cannot read ${JSON.stringify(path)}: ${systemText(cause)}`, { cause });
  }
  try {
    return [...given, ...rulesFrom(text).map(spelledRule)];
  } catch (error) {
    const problem = problemOf(error);
    if (problem === undefined) throw error;
    throw new UsageError(`--rules: ${problem.option}: ${sayProblem(problem, commandWords)}`);
  }
}

/** Rules as values of --rule, for messages. */
export function ruleTexts(rules: readonly Rule[]): string[] {
  return rules.map((rule) => rulesText([rule]).trimEnd());
}

/** Fails if the file of rules exists. @throws ScalepointError `EXISTS` */
export async function checkRulesFree({ 'save-rules': path }: SizeValues, force: boolean): Promise<void> {
  if (path === undefined || force || (await lstat(path).catch(() => undefined)) === undefined) return;
  throw new ScalepointError('EXISTS', `${JSON.stringify(path)} exists already, nothing was written`, { path });
}

/** Writes the rules of a result, if that was asked for. */
export async function saveRules({ 'save-rules': path }: SizeValues, rules: readonly Rule[]): Promise<void> {
  if (path === undefined) return;
  try {
    await writeFile(path, rulesText(rules));
  } catch (cause) {
    throw new ScalepointError('IO', `cannot write ${JSON.stringify(path)}: ${systemText(cause)}`, { cause });
  }
}

/** A fit for --json: the rules as texts. */
export function fitJson(fit: ModelFit | undefined): object {
  return fit === undefined ? {} : { fit: { ...fit, rules: ruleTexts(fit.rules) } };
}

/** The line about the file of rules. */
export function savedLine(values: SizeValues): string[] {
  const path = values['save-rules'];
  return path === undefined ? [] : [`wrote ${printable(path)}`];
}
