/** Starts commands. Imports the rest on demand, so that --version answers at once. */

/** Prints the version and the number of the build. */
async function printVersion(): Promise<number> {
  const { buildId, version } = await import('../core/core.mjs');
  process.stdout.write(`scalepoint ${version} (build ${buildId.toString(16)})\n`);
  return 0;
}

/** Carries out a command line. Returns the exit code. */
export async function run(args: readonly string[]): Promise<number> {
  const [first = ''] = args;
  if (['--version', '-V', '-v'].includes(first)) return printVersion();
  const { carryOut } = await import('./commands.js');
  return carryOut(args);
}

/** Prints an error on one line, and with --json also on stdout. Returns the exit code. */
export async function explainFailure(error: unknown, args: readonly string[]): Promise<number> {
  const { printFailure } = await import('./commands.js');
  return printFailure(error, args);
}
