/**
 * Names of files that are being written (Node). A process that ends early removes its own partial files. Those of killed processes are
 * recognized by their names and removed by the next process that writes into the folder.
 */
import { nodeModule } from '../../core/node.js';

/** The members that are used of the process. */
interface Process {
  readonly pid: number;
  kill(pid: number, signal: 0): unknown;
  on(event: 'exit', listener: () => void): unknown;
  off(event: 'exit', listener: () => void): unknown;
}
const { process } = globalThis as unknown as { readonly process?: Process };

/** Partial files of this thread. */
const own = new Set<string>();

function removeOwn(): void {
  for (const path of own) {
    try {
      nodeModule('node:fs')?.rmSync(path, { force: true });
    } catch {
      // The next run removes it.
    }
  }
}

/** Removes a file at the end of the process, unless `forget` is called before. */
export function remember(path: string): void {
  if (own.size === 0) process?.on('exit', removeOwn);
  own.add(path);
}

export function forget(path: string): void {
  own.delete(path);
  if (own.size === 0) process?.off('exit', removeOwn);
}

/** A hash of this host and container, within which process ids are unique. */
async function hostTag(): Promise<string> {
  const space = await nodeModule('node:fs/promises')
    ?.readlink('/proc/self/ns/pid')
    .catch(() => '');
  let hash = 0x811c9dc5;
  for (const character of `${nodeModule('node:os')?.hostname()}\n${space}`) {
    hash = Math.imul(hash ^ (character.codePointAt(0) as number), 0x01000193) >>> 0;
  }
  return hash.toString(16).padStart(8, '0');
}

/** A name for a file that is being written: `.scalepoint-HOST-PROCESS-RANDOM.partial`. */
export async function partialName(): Promise<string> {
  return `.scalepoint-${await hostTag()}-${process?.pid}-${crypto.randomUUID().slice(0, 8)}.partial`;
}

function isAlive(pid: number): boolean {
  try {
    process?.kill(pid, 0);
    return true;
  } catch (error) {
    // EPERM: the process exists, and belongs to another user.
    return (error as { code?: unknown }).code !== 'ESRCH';
  }
}

/** Removes partial files of dead processes from a folder. Never fails. */
export async function removeDead(folder: string): Promise<void> {
  const [fs, paths] = [nodeModule('node:fs/promises'), nodeModule('node:path')];
  if (fs === undefined || paths === undefined) return;
  const pattern = new RegExp(`^\\.scalepoint-${await hostTag()}-(\\d{1,10})-[0-9a-f]{8}\\.partial$`);
  const names = await fs.readdir(folder).catch(() => []);
  for (const name of names) {
    const [, pid] = pattern.exec(name) ?? [];
    if (pid === undefined || isAlive(Number(pid))) continue;
    await fs.rm(paths.join(folder, name), { force: true }).catch(() => {});
  }
}
