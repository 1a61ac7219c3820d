// Stamps of finished steps, so that they are not repeated: digests of the files that a step read, kept in build/stamps.

import { createHash } from 'node:crypto';
import { existsSync, mkdirSync, readdirSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { root } from './steps.mjs';

/**
 * All files at some paths of the project, those inside of folders too, apart from installed packages.
 * @param {string[]} paths
 * @param {string[]} [without] paths inside of those folders to leave out
 * @returns {string[]}
 */
export function filesAt(paths, without = []) {
  const inside = (/** @type {string} */ folder) =>
    readdirSync(join(root, folder))
      .filter((name) => name !== 'node_modules')
      .map((name) => join(folder, name))
      .filter((path) => !without.includes(path));
  const present = paths.filter((path) => existsSync(join(root, path)));
  return present
    .flatMap((path) => (statSync(join(root, path)).isFile() ? [path] : filesAt(inside(path), without)))
    .sort();
}

/** A digest of names and contents. @param {string[]} files */
export function digestOf(files) {
  const hash = createHash('sha256');
  for (const file of files) {
    const content = readFileSync(join(root, file));
    hash.update(`${file} ${content.length}\n`).update(content);
  }
  return hash.digest('hex');
}

/** @param {string} name */
const pathOf = (name) => join(root, 'build/stamps', name);

/** The stamp of that name; undefined without one. @param {string} name */
export function stampOf(name) {
  const path = pathOf(name);
  return existsSync(path) ? readFileSync(path, 'utf8') : undefined;
}

/** @param {string} name @param {string} text */
export function keepStamp(name, text) {
  mkdirSync(join(root, 'build/stamps'), { recursive: true });
  writeFileSync(pathOf(name), text);
}
