#!/usr/bin/env node
// The command line. Results go to stdout; progress and errors to stderr, so that pipes stay clean.
import { explain, run } from './cli/main.js';
import { systemText } from './cli/process.js';

/** What the process ends with at least. */
let least = 0;

process.stdout.on('error', (error: NodeJS.ErrnoException) => {
  // It is no error if a reader such as `head` has seen enough, nor if the terminal was closed.
  if (error.code === 'EPIPE' || error.code === 'EIO' || least > 0) return;
  least = 1;
  process.exitCode = Math.max(least, Number(process.exitCode ?? 0));
  process.stderr.write(`scalepoint: cannot write to standard output: ${systemText(error)}\n`);
});
// Nobody is left to tell.
process.stderr.on('error', () => {});

const args = process.argv.slice(2);
run(args)
  .catch((error: unknown) => explain(error, args))
  .then((code) => {
    process.exitCode = Math.max(least, code);
  });
