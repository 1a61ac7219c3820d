// The tests that may be skipped, each with its reason. Any other test that is skipped fails the run.

import { existsSync } from 'node:fs';
import { fileURLToPath } from 'node:url';

const here = (/** @type {string} */ path) => existsSync(fileURLToPath(new URL(path, import.meta.url)));
const onLinux = process.platform === 'linux';
const onWindows = process.platform === 'win32';

/**
 * @typedef {object} Skip
 * @property {string} reason
 * @property {boolean} applies true where these tests may be skipped
 * @property {RegExp} files their files
 * @property {RegExp} [tests] their names, with those of the groups around them; without it, all tests of the files
 */

/** @type {Skip[]} */
export const skips = [];

/**
 * The reason why a test may be skipped; undefined without one.
 * @param {string} file @param {string} test its name, with those of the groups around it
 */
export function reasonToSkip(file, test) {
  return skips.find(({ applies, files, tests = /^/ }) => applies && files.test(file) && tests.test(test))?.reason;
}
