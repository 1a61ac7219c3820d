// Stamps of finished steps, so that they are not repeated: digests of the files that a step read, kept in build/stamps.

import { createHash } from 'node:crypto';
import { existsSync, mkdirSync, readdirSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { root } from './steps.mjs';

/**
 * Returns the result of a function that reads, or undefined for a missing file: links may lead nowhere, and files of editors come and go.
 * @template T
 * @param {() => T} read @returns {T | undefined}
 */
function ifPresent(read) {
  try {
    return read();
  } catch (error) {
    if (/** @type {NodeJS.ErrnoException} */ (error).code === 'ENOENT') return undefined;
    throw error;
  }
}

/**
 * All files at some paths of the project, those inside of folders too, apart from installed packages.
 * @param {string[]} paths
 * @param {string[]} [without] paths inside of those folders to leave out
 * @returns {string[]}
 */
export function filesAt(paths, without = []) {
  const inside = (/** @type {string} */ folder) =>
    (ifPresent(() => readdirSync(join(root, folder))) ?? [])
      .filter((name) => name !== 'node_modules')
      .map((name) => join(folder, name))
      .filter((path) => !without.includes(path));
  return paths
    .flatMap((path) => {
      const found = statSync(join(root, path), { throwIfNoEntry: false });
      if (found?.isDirectory()) return filesAt(inside(path), without);
      return found?.isFile() ? [path] : [];
    })
    .sort();
}

/** A digest of names and contents. A missing file counts as one without a length. @param {string[]} files */
export function digestOf(files) {
  const hash = createHash('sha256');
  for (const file of files) {
    const content = ifPresent(() => readFileSync(join(root, file)));
    hash.update(`${file} ${content?.length}\n`).update(content ?? '');
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
