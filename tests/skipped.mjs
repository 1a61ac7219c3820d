// The tests that may be skipped, each with its reason. Any other test that is skipped fails the run.

import { spawnSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import { fileURLToPath } from 'node:url';

const isThere = (/** @type {string} */ path) => existsSync(fileURLToPath(new URL(path, import.meta.url)));
const runs = (/** @type {string} */ program) => spawnSync(program, ['-c', 'true']).status === 0;
const isLinux = process.platform === 'linux';

/**
 * @typedef {object} Skip
 * @property {string} reason
 * @property {boolean} applies true where these tests may be skipped
 * @property {RegExp} files their files
 * @property {RegExp} [tests] their names, with those of the groups around them; without it, all tests of the files
 */

/** @type {Skip[]} */
const skips = [
  {
    reason: 'needs sample models of others, which are not in the repository; SCALEPOINT_SAMPLES names their folder',
    applies: process.env.SCALEPOINT_SAMPLES === undefined,
    files:
      /\.samples\.node\.test\.ts$|\/(folder|tokens|onnx-statistics|fit-logits|fit-outputs|half|run|static|run\/evaluate|demo\/model\/outputs)\.node\.test\.ts$/,
    tests: /sample models?|TinyStories|the exported story model|ONNX language models?/,
  },
  {
    reason: "needs llama.cpp's libraries, which exist for Linux on x64 alone",
    applies: !(isLinux && process.arch === 'x64') && !isThere('llama/node_modules'),
    files: /^tests\/web\//,
  },
  {
    reason: 'needs devices and pipes of Linux',
    applies: !isLinux,
    files: /\/(failures|side-files|usage|cli|backends|address-space)\.node\.test\.ts$/,
  },
  ...['bash', 'fish', 'zsh'].map((shell) => ({
    reason: `needs ${shell}, which is not installed`,
    applies: !runs(shell),
    files: /\/completions\.node\.test\.ts$/,
    tests: new RegExp(`in ${shell}`),
  })),
];

/**
 * The reason why a test may be skipped; undefined without one.
 * @param {string} file @param {string} test its name, with those of the groups around it
 */
export function reasonToSkip(file, test) {
  return skips.find(({ applies, files, tests = /^/ }) => applies && files.test(file) && tests.test(test))?.reason;
}
