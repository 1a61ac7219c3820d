#!/usr/bin/env node
// The command line. Results go to stdout; progress and errors to stderr, so that pipes stay clean.
import { explain, run } from './cli/main.js';

// It is no error if a reader such as `head` has seen enough, nor if the terminal was closed.
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
