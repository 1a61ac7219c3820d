/** The process around a command: signals, the line of progress, memory, output for machines, errors. */

import { readFileSync } from 'node:fs';
import type { DataProgress, Progress } from '../model.js';
import { ScalepointError } from '../model.js';
import type { Hint, OptionProblem } from '../tooling.js';
import { jsonText } from './json.js';
import { formatBytes, formatSeconds, printable, terminalColumns } from './text.js';
import { codeAfter, type Ending, endMilliseconds, onEnding } from './watched.js';

/**
 * Wrong usage of the command line: exit code 2. `usageError` makes those about an option, from data. Sentences of their own are for command
 * lines on which no option is wrong: a file, a command or a choice of options is missing, or there is a file too many.
 */
export class UsageError extends Error {
  /** The wrong option, if one is. */
  readonly problem: OptionProblem | undefined;
  /** Advice at the end of the message. */
  readonly hint: Hint | undefined;
  constructor(message: string, about: Pick<UsageError, 'cause'> & Partial<Pick<UsageError, 'problem' | 'hint'>> = {}) {
    super(message, about.cause === undefined ? undefined : { cause: about.cause });
    this.problem = about.problem;
    this.hint = about.hint ?? about.problem?.hint;
  }
}

/** A signal ended the work. The exit code is 128 plus its number. */
export class Interrupted extends Error {
  readonly exitCode: number;
  constructor(message: string, exitCode: number) {
    super(message);
    this.exitCode = exitCode;
  }
}

/** Ends the process as the signal would, but first runs the exit handlers, which remove partial files. */
function endNow(name: Ending): never {
  process.once('exit', () => {
    process.removeAllListeners(name);
    // A normal exit would wait for system calls that may hang.
    process.kill(process.pid, name);
  });
  return process.exit(codeAfter(name));
}

/** A signal that aborts with an Interrupted on the first request to end the process. The second request ends it at once. */
export function abortOnSignal(message: string): AbortSignal {
  const controller = new AbortController();
  onEnding((name) => {
    if (controller.signal.aborted) endNow(name);
    controller.abort(new Interrupted(message, codeAfter(name)));
    setTimeout(() => endNow(name), endMilliseconds).unref();
  });
  return controller.signal;
}

/** The file that an error is about. */
const placeOf = new WeakMap<Error, string>();

/** Calls f, and notes the file on its errors. */
export async function about<T>(file: string, f: () => Promise<T>): Promise<T> {
  try {
    return await f();
  } catch (error) {
    const isNamed = error instanceof ScalepointError && (error.code === 'IO' || error.code === 'EXISTS');
    if (error instanceof ScalepointError && !isNamed && !placeOf.has(error)) placeOf.set(error, file);
    throw error;
  }
}

/** The file that `about` noted for an error. */
export function fileOfError(error: unknown): string | undefined {
  return error instanceof Error ? placeOf.get(error) : undefined;
}

/** Prints a value as JSON. */
export function printJson(value: unknown): void {
  process.stdout.write(`${jsonText(value)}\n`);
}

/** An error as --json prints it. */
export function errorJson(error: unknown, message = error instanceof Error ? error.message : String(error)) {
  if (error instanceof Interrupted) return { code: 'ABORTED', message };
  if (error instanceof UsageError) return { code: 'USAGE', message };
  if (!(error instanceof ScalepointError)) return { code: 'INTERNAL', message };
  const { code, tensor, byteOffset } = error;
  return { code, message, tensor, byteOffset };
}

/** The most memory that the process has held so far, in bytes. */
export function peakBytes(): number {
  try {
    // On Linux, resourceUsage() also counts the memory of the parent process at the start. This does not.
    const peak = /^VmHWM:\s*(\d+) kB$/m.exec(readFileSync('/proc/self/status', 'latin1'))?.[1];
    if (peak !== undefined) return Number(peak) * 1024;
  } catch {
    // Other systems have no such file.
  }
  return process.resourceUsage().maxRSS * 1024;
}

/** The last line of --verbose: time and memory. */
export function effort(): string {
  return `took ${process.uptime().toFixed(1)} s, peak memory ${formatBytes(peakBytes())}`;
}

/**
 * The line of progress: 42% ████████░░░░░░░░░░░░ 1.31 GB of 3.09 GB  12 s left  blk.7.ffn_up.weight. In a narrow terminal the bar becomes
 * shorter and the last parts are left out, so that it stays one line.
 * @param milliseconds since the start
 * @param width most columns; a full line would scroll the terminal
 */
export function progressText(
  { tensor, bytesDone, bytesTotal }: Pick<Progress, 'tensor' | 'bytesDone' | 'bytesTotal'>,
  milliseconds: number,
  width: number,
): string {
  const share = bytesDone / Math.max(bytesTotal, 1);
  const done = `${formatBytes(bytesDone)} of ${formatBytes(bytesTotal)}`;
  return lineText({ share, seconds: milliseconds / 1000, done, name: tensor }, width);
}

/** The progress of data that pass a model: 42% ████████░░░░░░░░░░░░ 310 tokens/s  12 s left  layer 7 of 16. The rate is that of all passes. */
export function dataProgressText(
  { unit, pass, passes, done, total }: DataProgress,
  milliseconds: number,
  width: number,
  passesBefore = 0,
): string {
  const left = passes - passesBefore;
  const share = (pass - passesBefore - 1 + done / Math.max(total, 1)) / Math.max(left, 1);
  const seconds = milliseconds / 1000;
  const rate = (share * total) / Math.max(seconds, 1e-3);
  const digits = rate < 10 ? 1 : 0;
  const text = rate.toLocaleString('en', { minimumFractionDigits: digits, maximumFractionDigits: digits });
  return lineText({ share, seconds, done: `${text} ${unit}/s`, name: `pass ${pass} of ${passes}` }, width);
}

/** The parts of a line of progress. */
interface ProgressParts {
  /** Share of the work that is done. */
  readonly share: number;
  readonly seconds: number;
  /** The amount of work that is done. */
  readonly done: string;
  /** The current work. */
  readonly name: string;
}

function lineText({ share, seconds, done, name }: ProgressParts, width: number): string {
  const percent = `${Math.floor(share * 100)}%`.padStart(4);
  // Too early for an estimate.
  const left = share < 0.01 ? '' : `  ${formatSeconds(seconds * (1 / share - 1))} left`;
  const blocks = width >= 40 ? 20 : 8;
  const bar = '█'.repeat(Math.round(share * blocks)).padEnd(blocks, '░');
  let line = '';
  for (const part of [percent, ` ${bar}`, ...(width >= 40 ? [` ${done}`, left] : [left])]) {
    if (line.length + part.length > width) return line;
    line += part;
  }
  const room = width - line.length - 2;
  return room < leastName ? line : `${line}  ${startWithin(printable(name), room)}`;
}

/** The start of a text that fits into some columns. Characters from U+1100 on may take two. */
function startWithin(text: string, columns: number): string {
  let [start, used] = ['', 0];
  for (const character of text) {
    used += (character.codePointAt(0) as number) < 0x1100 ? 1 : 2;
    if (used > columns - 1 && start.length + character.length < text.length) return `${start}…`;
    start += character;
  }
  return used > columns ? '…' : start;
}

/** Columns of a name that are worth showing. */
const leastName = 8;

/** A line of progress on stderr, if that is a terminal. It does not appear for quick work. */
export const progressLine = (quiet: boolean) =>
  lineOn(quiet, (_: Pick<Progress, 'tensor' | 'bytesDone' | 'bytesTotal'>) => progressText);

/** A line of progress of data that pass a model. */
export const dataProgressLine = (quiet: boolean) =>
  lineOn(
    quiet,
    (first: DataProgress) => (progress: DataProgress, milliseconds: number, width: number) =>
      dataProgressText(progress, milliseconds, width, first.pass - 1),
  );

/** @param sayFrom gives the text of reports, from the first one: a run that goes on begins with a later pass */
function lineOn<P>(
  quiet: boolean,
  sayFrom: (first: P) => (progress: P, milliseconds: number, width: number) => string,
) {
  const active = !quiet && process.stderr.isTTY === true;
  const start = performance.now();
  let last = start;
  let drawn = false;
  let say: ReturnType<typeof sayFrom> | undefined;
  return {
    update(progress: P): void {
      say ??= sayFrom(progress);
      const now = performance.now();
      if (!active || now - start < 200 || now - last < 50) return;
      last = now;
      drawn = true;
      const line = say(progress, now - start, terminalColumns(process.stderr) - 1);
      process.stderr.write(`\r\x1b[2K${line}`);
    },
    clear(): void {
      if (drawn) process.stderr.write('\r\x1b[2K');
      drawn = false;
    },
  };
}
