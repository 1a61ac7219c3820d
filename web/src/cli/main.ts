/** Runs commands and prints errors. */
import { QualityError, ScalepointError } from '../model.js';
import { bench } from './bench.js';
import { compare } from './compare.js';
import { inCommandWords } from './formats.js';
import { inspect } from './inspect.js';
import { errorJson, fileOf, Interrupted, printJson, UsageError } from './process.js';
import { plan, quantize } from './quantize.js';
import { painter, printable } from './text.js';
import { usage } from './usage.js';

const commands: Readonly<Record<string, (args: string[]) => Promise<number>>> = {
  inspect,
  plan,
  quantize,
  compare,
  bench,
};
const commandNames = 'inspect, plan, quantize, compare or bench';

async function version(): Promise<number> {
  const { load } = await import('../index.js');
  const sp = await load();
  const tier = sp.simd ? 'SIMD' : 'scalar';
  process.stdout.write(`scalepoint ${sp.version} (core ${sp.buildId.toString(16)}, ${tier})\n`);
  sp.dispose();
  return 0;
}

/** Carries out a command line. Returns the exit code. */
export async function run(args: readonly string[]): Promise<number> {
  const [name, ...rest] = args;
  switch (name) {
    case 'help':
    case '--help':
    case '-h':
      process.stdout.write(usage());
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

/** The stacks of an error and its causes. */
function stackOf(error: Error): string {
  const lines: string[] = [];
  for (let cause: unknown = error; cause !== undefined; cause = cause instanceof Error ? cause.cause : undefined) {
    const text = cause instanceof Error ? (cause.stack ?? cause.message) : String(cause);
    lines.push(...`${lines.length > 0 ? 'caused by ' : ''}${text}`.split('\n').map(printable));
  }
  return lines.join('\n');
}

/** Prints an error on one line, and with --json also on stdout. Returns the exit code. */
export function explain(error: unknown, args: readonly string[]): number {
  const message = inCommandWords(error instanceof Error ? error.message : String(error));
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
