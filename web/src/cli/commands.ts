/** Chooses the command of a command line, and prints errors. */
import { existsSync } from 'node:fs';
import { QualityError, ScalepointError } from '../model.js';
import { didYouMean, isQuestion, sayHint } from '../tooling.js';
import { bench } from './bench.js';
import { compareCommand } from './compare.js';
import { completions } from './completions.js';
import { inspect } from './inspect.js';
import { calibrate, evaluate } from './language.js';
import { errorJson, fileOf, Interrupted, printJson, UsageError } from './process.js';
import { plan, quantizeCommand } from './quantize.js';
import { merge, split as splitFile } from './split.js';
import { painter, printable } from './text.js';
import { usage } from './usage.js';
import { verify } from './verify.js';
import { commandMessage } from './wording.js';

const commands: Readonly<Record<string, (args: string[]) => Promise<number>>> = {
  inspect,
  plan,
  quantize: quantizeCommand,
  compare: compareCommand,
  verify,
  evaluate,
  calibrate,
  split: splitFile,
  merge,
  bench,
  completions,
};
const names = Object.keys(commands);
const wanted = `expected a command (${names.join(', ')}) or a file`;

/** Command and arguments of a command line. The default command is `quantize`. */
function split(args: readonly string[]): { readonly name: string; readonly rest: string[] } {
  const [name, ...rest] = args;
  if (name === undefined) throw new UsageError(wanted);
  if (name === 'help') return rest[0] === undefined ? { name: 'help', rest } : { ...split(rest), rest: ['--help'] };
  if (Object.hasOwn(commands, name)) return { name, rest };
  // A single word that is not a file is a misspelled command.
  if (/^[a-z]+$/i.test(name) && !existsSync(name)) {
    const hint = didYouMean(name, names);
    throw new UsageError(`${wanted}, got ${JSON.stringify(name)}${sayHint(hint)}`, { hint });
  }
  return { name: 'quantize', rest: [...args] };
}

/** Carries out a command line. Returns the exit code. */
export async function carryOut(args: readonly string[]): Promise<number> {
  const isHelp = args[0] === '--help' || args[0] === '-h';
  const { name, rest } = isHelp ? { name: 'help', rest: [] } : split(args);
  const command = commands[name];
  // The help of these two has more than a screen shows. That of others is whole.
  const isLong = name === 'quantize' || name === 'plan';
  if (command !== undefined) return command(isLong ? rest : rest.map((arg) => (arg === '--help-all' ? '--help' : arg)));
  process.stdout.write(usage());
  return 0;
}

/** The stacks of an error and its causes. */
function stackOf(error: Error): string {
  const lines: string[] = [];
  for (let cause: unknown = error; cause !== undefined; cause = cause instanceof Error ? cause.cause : undefined) {
    const text = cause instanceof Error ? (cause.stack ?? cause.message) : String(cause);
    lines.push(...`${lines.length > 0 ? 'caused by ' : ''}${text}`.split('\n').map(printable));
  }
  return lines.join('\n');
}

/** The help command for a wrong command line. */
function helpFor(args: readonly string[]): string {
  try {
    return `scalepoint ${split(args).name} --help`;
  } catch {
    return 'scalepoint --help';
  }
}

/** The path that an error names in its text. */
function pathOf(error: unknown): string | undefined {
  return error instanceof ScalepointError ? error.path : undefined;
}

/** Prints an error on one line, and with --json also on stdout. Returns the exit code. */
export function printFailure(error: unknown, args: readonly string[]): number {
  const message = commandMessage(error);
  const file = fileOf(error);
  let text = file === undefined ? message : `${file}: ${message}`;
  if (error instanceof ScalepointError) {
    if (error.byteOffset !== undefined) text += ` (byte ${error.byteOffset})`;
    if (error.code === 'EXISTS') text += '; --force replaces it';
  }
  const isUsage = error instanceof UsageError;
  if (isUsage) text += `${isQuestion(error.hint) ? ' See' : '; see'} ${helpFor(args)}`;
  // The report of a missed quality gate has been printed with the error.
  if (args.includes('--json') && !(error instanceof QualityError))
    printJson({ file: file ?? pathOf(error), error: errorJson(error, message) });
  process.stderr.write(`${painter(process.stderr)('red', 'scalepoint:')} ${printable(text)}\n`);
  if (args.includes('--verbose') && error instanceof Error) process.stderr.write(`${stackOf(error)}\n`);
  if (isUsage) return 2;
  return error instanceof Interrupted ? error.exitCode : 1;
}
