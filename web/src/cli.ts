#!/usr/bin/env node
// The command line. Results go to stdout; progress and errors to stderr, so that pipes stay clean.
import { fileURLToPath } from 'node:url';
import { explainFailure, hearsSignals, run } from './cli/main.js';
import { systemText } from './cli/system-text.js';
import { endWithWatcher, isWatched, watch } from './cli/watched.js';

/** The error that closed stdout. */
let failure: NodeJS.ErrnoException | undefined;
/** The exit code of the command, once it has ended. */
let ended: number | undefined;

/** Sets the exit code once the command has ended, and reports an output that could not be written unless another error was printed. */
function end(): void {
  if (ended === undefined) return;
  process.exitCode = failure === undefined ? ended : Math.max(1, ended);
  if (failure === undefined || ended > 0) return;
  process.stderr.write(`scalepoint: cannot write to standard output: ${systemText(failure)}\n`);
}

process.stdout.on('error', (error: NodeJS.ErrnoException) => {
  // Ignore a reader such as `head` that has seen enough, and a closed terminal.
  if (error.code === 'EPIPE' || error.code === 'EIO' || failure !== undefined) return;
  failure = error;
  end();
});
// Errors cannot be reported without stderr.
process.stderr.on('error', () => {});

const args = process.argv.slice(2);

/** Carries out the command in this process. */
function here(): void {
  run(args)
    .catch((error: unknown) => explainFailure(error, args))
    .then((code) => {
      ended = code;
      end();
    });
}

if (isWatched()) {
  endWithWatcher();
  here();
} else if (!hearsSignals(args)) {
  here();
} else {
  watch(fileURLToPath(import.meta.url), args).then((code) => {
    if (code === undefined) here();
    else process.exitCode = code;
  });
}
