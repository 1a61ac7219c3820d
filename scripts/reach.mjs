// The files that a test reaches: those that it imports or names, and what these import or name.

import { readFileSync, statSync } from 'node:fs';
import { dirname, join, relative } from 'node:path';
import { root } from './steps.mjs';

/**
 * A file of the project, by a path from another file or from the root; sources are TypeScript under the name of their JavaScript.
 * @param {string} from @param {string} specifier
 * @returns {string | undefined}
 */
function fileAt(from, specifier) {
  const path = relative(root, join(root, from, specifier));
  // Stamps, warnings of TypeDoc, and files on the way to the wasm files follow from sources.
  if (/^\.\.|^build\/(?:stamps\/|wasm\/|reference-warnings)|node_modules/.test(path)) return undefined;
  const isFile = (/** @type {string} */ name) =>
    statSync(join(root, name), { throwIfNoEntry: false })?.isFile() === true;
  return [path, path.replace(/\.(m?)js$/, '.$1ts'), path.replace(/\.js$/, '.mjs')].find(isFile);
}

/** @type {Map<string, string[]>} */
const known = new Map();

/** The files that a program imports, and those whose path it says: from its folder, or from the root. @param {string} file */
function namedBy(file) {
  const before = known.get(file);
  if (before !== undefined) return before;
  const code = readFileSync(join(root, file), 'utf8').replace(/^ *\/\/.*$|\/\*[\s\S]*?\*\//gm, '');
  const strings = [...code.matchAll(/(['"`])([\w@./-]+\.\w+)\1/g)].map(([, , text = '']) => text);
  const found = strings.flatMap((text) => {
    const here = fileAt(dirname(file), text);
    // Names of files that a test makes are like names in the root: only paths with a folder count there.
    const there = text.includes('/') && !text.startsWith('.') ? fileAt('', text) : undefined;
    return [text.startsWith('.') ? here : undefined, there].filter((path) => path !== undefined);
  });
  known.set(file, found);
  return found;
}

/**
 * All files that a test can reach in this way, through tests, scripts and pages. What it reaches in the library is in `web/src` as a whole.
 * @param {string} test
 */
export function reached(test) {
  const seen = new Set([test]);
  for (const file of seen) {
    if (/^(tests|scripts|web\/demo)\/.*\.(ts|mjs|js)$/.test(file)) for (const next of namedBy(file)) seen.add(next);
  }
  return [...seen];
}
