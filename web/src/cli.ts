#!/usr/bin/env node
// The command line over model.ts. Results go to stdout; progress and errors to stderr, so that pipes stay clean.
import { bench } from './cli/bench.js';
import { compare } from './cli/compare.js';
import { inspect } from './cli/inspect.js';
import { translated } from './cli/options.js';
import { errorJson, fileOf, Interrupted, printJson, UsageError } from './cli/process.js';
import { plan, quantize } from './cli/quantize.js';
import { painter, printable } from './cli/text.js';
import { usage } from './cli/usage.js';
import { QualityError, ScalepointError } from './model.js';

const commands: Readonly<Record<string, (args: string[]) => Promise<number>>> = {
  inspect,
  plan,
  quantize,
  compare,
  bench,
};
const commandNames = 'inspect, plan, quantize, compare or bench';

async function version(): Promise<number> {
  const { load } = await import('./index.js');
  const sp = await load();
  process.stdout.write(`scalepoint ${sp.version} (core ${sp.buildId.toString(16)}, ${sp.simd ? 'SIMD' : 'scalar'})\n`);
  sp.dispose();
  return 0;
}

async function run(args: string[]): Promise<number> {
  const [name, ...rest] = args;
  switch (name) {
    case 'help':
    case '--help':
    case '-h':
      process.stdout.write(usage);
      return 0;
    case '--version':
    case '-v':
      return version();
    case undefined:
      throw new UsageError(`expected a command, ${commandNames}`);
    default: {
      const command = Object.hasOwn(commands, name) ? commands[name] : undefined;
      if (command === undefined) throw new UsageError(`expected ${commandNames}, got ${JSON.stringify(name)}`);
      return command(rest);
    }
  }
}

/** Where an error and those underneath it arose. */
function stackOf(error: Error): string {
  const lines: string[] = [];
  for (let cause: unknown = error; cause !== undefined; cause = cause instanceof Error ? cause.cause : undefined) {
    const text = cause instanceof Error ? (cause.stack ?? cause.message) : String(cause);
    lines.push(...`${lines.length > 0 ? 'caused by ' : ''}${text}`.split('\n').map(printable));
  }
  return lines.join('\n');
}

/** Says on one line what went wrong, with --json also on stdout. Returns the exit code. */
function explain(error: unknown, args: readonly string[]): number {
  const message = translated(error instanceof Error ? error.message : String(error));
  const file = fileOf(error);
  let text = file === undefined ? message : `${file}: ${message}`;
  if (error instanceof ScalepointError) {
    if (error.byteOffset !== undefined) text += ` (byte ${error.byteOffset})`;
    if (error.code === 'EXISTS') text += '; --force replaces it';
  }
  const isUsage = error instanceof UsageError;
  if (isUsage) text += `; see scalepoint ${Object.hasOwn(commands, args[0] ?? '') ? `${args[0]} ` : ''}--help`;
  // A missed quality gate has been printed with its report.
  else if (args.includes('--json') && !(error instanceof QualityError)) {
    printJson({ file, error: errorJson(error, message) });
  }
  process.stderr.write(`${painter(process.stderr)('red', 'scalepoint:')} ${printable(text)}\n`);
  if (args.includes('--verbose') && error instanceof Error) process.stderr.write(`${stackOf(error)}\n`);
  if (isUsage) return 2;
  return error instanceof Interrupted ? error.exitCode : 1;
}

// A reader such as `head` that has seen enough is no error, nor is a terminal that was closed.
process.stdout.on('error', (error: NodeJS.ErrnoException) => {
  if (error.code !== 'EPIPE' && error.code !== 'EIO') throw error;
});
// Nobody is left to tell.
process.stderr.on('error', () => {});

const args = process.argv.slice(2);
run(args).then(
  (code) => {
    process.exitCode = code;
  },
  (error: unknown) => {
    process.exitCode = explain(error, args);
  },
);
