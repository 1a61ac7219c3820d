/** Starts commands. Imports the rest on demand, so that --version answers at once. */

const versionFlags: readonly string[] = ['--version', '-V', '-v'];

/** Commands that write nothing. A signal ends them, whatever they do, because they do not listen to it. */
const endedBySignals: readonly string[] = [...versionFlags, 'help', '-h', 'completions', 'inspect', 'plan'];

/** True for a command line that listens to signals. */
export function hearsSignals(args: readonly string[]): boolean {
  const [first] = args;
  if (first === undefined || endedBySignals.includes(first)) return false;
  return !args.some((arg) => arg === '--help' || arg === '--help-all' || arg === '--dry-run');
}

/** Carries out a command line. Returns the exit code. */
export async function run(args: readonly string[]): Promise<number> {
  const [first = ''] = args;
  if (versionFlags.includes(first)) {
    const { buildId, version } = await import('../core/core.mjs');
    process.stdout.write(`scalepoint ${version} (build ${buildId.toString(16)})\n`);
    return 0;
  }
  const { carryOutLine } = await import('./commands.js');
  return carryOutLine(args);
}

/** Prints an error on one line, and with --json also on stdout. Returns the exit code. */
export async function explainFailure(error: unknown, args: readonly string[]): Promise<number> {
  const { printFailure } = await import('./commands.js');
  return printFailure(error, args);
}
