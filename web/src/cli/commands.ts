/** Chooses the command of a command line, and prints errors. */
import { existsSync } from 'node:fs';
import { QualityError, ScalepointError } from '../model.js';
import { didYouMean, isQuestion, sayHint } from '../tooling.js';
import { bench } from './bench.js';
import { calibrate } from './calibrate.js';
import { compare } from './compare.js';
import { makeCompletions } from './completions.js';
import { evaluate } from './evaluate.js';
import { inspect } from './inspect.js';
import { merge } from './merge.js';
import { asksForHelp, type Command, type Commands, parseArguments } from './parse.js';
import { plan } from './plan.js';
import { errorJson, fileOfError, Interrupted, printJson, UsageError } from './process.js';
import { quantize } from './quantize.js';
import { split } from './split.js';
import { complain, printable } from './text.js';
import { helpText, isLong, overview } from './usage.js';
import { verify } from './verify.js';
import { commandMessage } from './wording.js';

/** All commands, in the order of the help. */
export const commands: Commands = {
  quantize,
  inspect,
  plan,
  split,
  merge,
  compare,
  verify,
  calibrate,
  evaluate,
  bench,
  completions: makeCompletions(() => commands),
};
const names = Object.keys(commands);
const expectation = `expected a command (${names.join(', ')}) or a file`;

/** Command and arguments of a command line. The default command is `quantize`. */
function commandIn(args: readonly string[]): { readonly name: string; readonly rest: readonly string[] } {
  const [first, ...rest] = args;
  if (first === undefined) throw new UsageError(expectation);
  if (first === 'help') return rest[0] === undefined ? { name: first, rest } : { ...commandIn(rest), rest: ['--help'] };
  const name = names.find((known) => known === first);
  if (name !== undefined) return { name, rest };
  // A single word that is not a file is a misspelled command.
  if (/^[a-z]+$/i.test(first) && !existsSync(first)) {
    const hint = didYouMean(first, names);
    throw new UsageError(`${expectation}, got ${JSON.stringify(first)}${sayHint(hint)}`, { hint });
  }
  return { name: 'quantize', rest: args };
}

/** Carries out a command line. Returns the exit code. */
export async function carryOutLine(args: readonly string[]): Promise<number> {
  const isHelp = args[0] === '--help' || args[0] === '-h';
  const { name, rest } = isHelp ? { name: 'help', rest: [] } : commandIn(args);
  if (name === 'help') {
    process.stdout.write(overview(commands));
    return 0;
  }
  const command = commands[name] as Command;
  // The help of most commands is whole.
  const words = isLong(command) ? rest : rest.map((arg) => (arg === '--help-all' ? '--help' : arg));
  const line = parseArguments(words, command, commands);
  if (!asksForHelp(line.words)) return command.carryOut(line);
  process.stdout.write(helpText(command, line.words['help-all'] === true));
  return 0;
}

/** Prints an error on one line, and with --json also on stdout. Returns the exit code. */
export function printFailure(error: unknown, args: readonly string[]): number {
  const message = commandMessage(error);
  const file = fileOfError(error);
  let text = file === undefined ? message : `${file}: ${message}`;
  if (error instanceof ScalepointError) {
    if (error.byteOffset !== undefined) text += ` (byte ${error.byteOffset})`;
    if (error.code === 'EXISTS') text += '; --force replaces it';
  }
  const isUsage = error instanceof UsageError;
  if (isUsage) {
    let help = 'scalepoint --help';
    try {
      help = `scalepoint ${commandIn(args).name} --help`;
    } catch {
      // The command itself is wrong.
    }
    text += `${isQuestion(error.hint) ? ' See' : '; see'} ${help}`;
  }
  // The report of a missed quality gate has been printed with the error.
  if (args.includes('--json') && !(error instanceof QualityError)) {
    const path = error instanceof ScalepointError ? error.path : undefined;
    printJson({ file: file ?? path, error: errorJson(error, message) });
  }
  complain(text);
  if (args.includes('--verbose') && error instanceof Error) {
    // The stacks of the error and its causes.
    let before = '';
    for (let cause: unknown = error; cause !== undefined; cause = cause instanceof Error ? cause.cause : undefined) {
      const stack = cause instanceof Error ? (cause.stack ?? cause.message) : String(cause);
      process.stderr.write(`${`${before}${stack}`.split('\n').map(printable).join('\n')}\n`);
      before = 'caused by ';
    }
  }
  if (isUsage) return 2;
  return error instanceof Interrupted ? error.exitCode : 1;
}
