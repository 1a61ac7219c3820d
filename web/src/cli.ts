#!/usr/bin/env node
// The command line. Results go to stdout; progress and errors to stderr, so that pipes stay clean.
import { explain, run } from './cli/main.js';
import { systemText } from './cli/process.js';

/** Why nothing more goes to stdout. */
let failure: NodeJS.ErrnoException | undefined;
/** What the command ended with, once it has. */
let ended: number | undefined;

/** Ends the process with what the command ended with, or with what became of its output. An error has been told already. */
function end(): void {
  if (ended === undefined) return;
  process.exitCode = failure === undefined ? ended : Math.max(1, ended);
  if (failure === undefined || ended > 0) return;
  process.stderr.write(`scalepoint: cannot write to standard output: ${systemText(failure)}\n`);
}

process.stdout.on('error', (error: NodeJS.ErrnoException) => {
  // It is no error if a reader such as `head` has seen enough, nor if the terminal was closed.
  if (error.code === 'EPIPE' || error.code === 'EIO' || failure !== undefined) return;
  failure = error;
  end();
});
// Nobody is left to tell.
process.stderr.on('error', () => {});

const args = process.argv.slice(2);
run(args)
  .catch((error: unknown) => explain(error, args))
  .then((code) => {
    ended = code;
    end();
  });
