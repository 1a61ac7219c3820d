/** Compares the names of all files that a run writes with each other, and with those of all files that it reads. */

import { fstatSync } from 'node:fs';
import { lstat, readlink, realpath, stat } from 'node:fs/promises';
import { basename, dirname, join, resolve } from 'node:path';
import { inspectModel } from '../model.js';
import { filesBeside, ofType } from '../tooling.js';
import { type FlaggedLine, namedFiles, sidecarFlags } from './format-flags.js';
import type { Input } from './input.js';
import { wrongFlag } from './wording.js';

/** A file that a run writes. */
export interface WrittenFile {
  /** The flag that names it, or the result that it belongs to. */
  readonly flag: 'output' | 'save-rules' | 'save-plan' | 'resume';
  readonly path: string;
  /** True for a file that may replace the one its content comes from, such as config.json. */
  readonly isSidecar?: boolean;
  /** True for a file that several results complete. */
  readonly isShared?: boolean | undefined;
}

/** A file that a run reads. */
interface ReadFile {
  readonly id: string | undefined;
  readonly what: string;
  /** True for files whose content a sidecar may continue. */
  readonly isConfiguration?: boolean;
}

// -------------------------------------------------------------------------------------------------------------------------- identity

/** Device and inode of a file, whatever its name; undefined if it is missing or the system does not report them. */
async function idOf(path: string): Promise<string | undefined> {
  const status = await stat(path, { bigint: true }).catch(() => undefined);
  return status === undefined || status.ino === 0n ? undefined : `${status.dev}:${status.ino}`;
}

/** Identity of a file that the shell opened; undefined for pipes and terminals. */
function idOfOpen(descriptor: number): string | undefined {
  try {
    const status = fstatSync(descriptor, { bigint: true });
    return status.isFile() && status.ino !== 0n ? `${status.dev}:${status.ino}` : undefined;
  } catch {
    // The shell may close it.
    return undefined;
  }
}

/** Most symbolic links on the way to a file, as in Linux. */
const mostLinks = 40;

/** The absolute path of a file that may be missing, without links. Paths of equal files are equal up to cases and normal forms. */
async function realPlace(path: string, links = mostLinks): Promise<string> {
  const [folder, name] = [dirname(resolve(path)), basename(resolve(path))];
  const status = await lstat(path).catch(() => undefined);
  if (status?.isSymbolicLink() && links > 0) return realPlace(resolve(folder, await readlink(path)), links - 1);
  const found = await realpath(folder).catch(() => undefined);
  if (found !== undefined) return join(found, name);
  return folder === dirname(folder) ? join(folder, name) : join(await realPlace(folder, links), name);
}

// -------------------------------------------------------------------------------------------------------------------------- the files

/** The files that a run reads: the model, those beside it, and those that flags name. */
async function readFiles({ name, file, isPath }: Input, line: FlaggedLine): Promise<readonly ReadFile[]> {
  const found: ReadFile[] = [];
  const input = 'the input itself';
  if (isPath) {
    // Most often the input is one file. The others of a sharded model stand beside the index.
    const shards = (await inspectModel(file)).files.map((shard) => join(dirname(name), shard));
    for (const path of [name, ...shards]) found.push({ id: await idOf(path), what: input });
  } else found.push({ id: idOfOpen(0), what: input });
  const configurations = Object.keys(sidecarFlags());
  for (const { flag, path } of await namedFiles(line)) {
    found.push({ id: await idOf(path), what: `the file of --${flag}`, isConfiguration: configurations.includes(flag) });
  }
  for (const beside of isPath ? filesBeside : []) {
    const what = 'a file that the input is read with';
    found.push({ id: await idOf(join(dirname(name), beside)), what, isConfiguration: true });
  }
  return found;
}

/**
 * Fails if a file would be written that is read: a file of the model, one beside it such as its tokenizer, or one that a flag names. Also
 * fails if rules or a plan would be written over a file of the result.
 * @param written the rules and the plan last
 * @throws UsageError
 */
export async function checkFilesApart(written: readonly WrittenFile[], input: Input, line: FlaggedLine): Promise<void> {
  const fail = ({ flag, path }: WrittenFile, message: string): never => {
    throw wrongFlag(flag, ofType('name of another file'), path, { kind: 'because', message });
  };
  // Compare existing files with those that are read.
  const ids: (string | undefined)[] = [];
  for (const { path } of written) ids.push(await idOf(path));
  if (ids.some((id) => id !== undefined)) {
    const read = await readFiles(input, line);
    const streams = [1, 2].map((descriptor) => ({ id: idOfOpen(descriptor), what: 'standard output' }));
    for (const [i, file] of written.entries()) {
      const others: readonly ReadFile[] = file.flag !== 'output' ? [...read, ...streams] : read;
      const same = others.find(
        ({ id, isConfiguration }) => id !== undefined && id === ids[i] && !(file.isSidecar && isConfiguration),
      );
      if (same !== undefined) fail(file, `it is ${same.what}`);
    }
  }
  // Compare the rules and the plan with the files of the result, which have names of their own.
  const places = new Set<string>();
  for (const [i, file] of written.entries()) {
    // Some systems take names for the same that differ in these forms.
    const [place, id] = [(await realPlace(file.path)).normalize('NFC').toLowerCase(), ids[i]];
    const isSame = places.has(place) || (id !== undefined && ids.indexOf(id) < i);
    if (isSame && file.flag !== 'output') fail(file, 'it is a file of the result');
    places.add(place);
  }
}
