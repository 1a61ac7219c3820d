/** Results under a name of the file system (Node). A file appears under its name whole or not at all. */
import { rangeError, ScalepointError } from '../../core/errors.js';
import { type NodeWritableHandle, nodeModule, type WritableFileHandle } from '../../core/node.js';
import { ofType } from '../../core/option-problem.js';
import { type Waiting, waitingFor } from '../../core/waiting.js';
import { checkTaken, fileIdOf, type InputFile, ioError, quoted } from './bytes.js';
import { nodeFiles } from './handle.js';
import type { ByteSink } from './sink.js';

// ------------------------------------------------------------------------------------------------------- names of partial files

// A process that ends early removes its own partial files. Those of killed processes are recognized by their names and removed by the next
// process that writes into the folder.

/** The members that are used of the process. */
interface Process {
  readonly pid: number;
  kill(pid: number, signal: 0): unknown;
  on(event: 'exit', listener: () => void): unknown;
  off(event: 'exit', listener: () => void): unknown;
}
const { process } = globalThis as unknown as { readonly process?: Process };

/** The code of an error of the system. */
const codeOf = (cause: unknown) => (cause as { code?: unknown } | undefined)?.code;

/** Partial files of this thread. */
const partials = new Set<string>();

function removePartials(): void {
  for (const path of partials) {
    try {
      nodeModule('node:fs')?.rmSync(path, { force: true });
    } catch {
      // The next run removes it.
    }
  }
}

function forget(path: string): void {
  partials.delete(path);
  if (partials.size === 0) process?.off('exit', removePartials);
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

/** True if a process runs. One that belongs to another user fails with EPERM. */
function isAlive(pid: number): boolean {
  try {
    process?.kill(pid, 0);
    return true;
  } catch (error) {
    return codeOf(error) !== 'ESRCH';
  }
}

// ------------------------------------------------------------------------------------------------------------------------ writing

/** Writes all of the bytes through a handle of Node. */
export async function writeAll(
  handle: Pick<NodeWritableHandle, 'write'>,
  position: number,
  bytes: Uint8Array,
  label: string,
): Promise<void> {
  for (let done = 0; done < bytes.length; ) {
    const left = bytes.length - done;
    let count: unknown;
    try {
      count = (await handle.write(bytes, done, left, position + done)).bytesWritten;
    } catch (cause) {
      throw ioError(`cannot write ${label}`, cause);
    }
    done += checkTaken(count, left, label, position + done);
  }
}

/** The modules of Node that are used to write files. @throws TypeError in other engines */
const outputModules = () => nodeFiles('output', ofType('WritableStream', 'file handle'));

/** Most symbolic links on the way to a file, as in Linux. */
const mostLinks = 40;

/** The option that names an output, and the files that the call reads, of which more may come until the output is finished. */
export interface OutputNames {
  readonly option?: string;
  readonly inputs: readonly InputFile[];
}

/**
 * Examines the file under a name. Returns the path of the file that it leads to, and its mode if it is there.
 * @throws RangeError if it is an input; ScalepointError `EXISTS` or `IO`
 */
export async function checkOutput(
  path: string,
  overwrite: boolean,
  { option = 'output', inputs }: OutputNames,
): Promise<{ readonly path: string; readonly mode: number | undefined }> {
  const { fs, paths } = outputModules();
  const label = quoted(path);
  // The file is usually missing. Other obstacles show when the temporary file is opened.
  let reached = await fs.lstat(path).catch(() => undefined);
  if (reached === undefined) return { path, mode: undefined };
  // Follow symbolic links. The file at the end may be missing.
  let target = path;
  try {
    for (let links = 0; reached?.isSymbolicLink(); links++) {
      if (links === mostLinks) throw new Error('too many symbolic links');
      target = paths.resolve(await fs.realpath(paths.dirname(target)), await fs.readlink(target));
      reached = await fs.lstat(target).catch(() => undefined);
    }
  } catch (cause) {
    throw ioError(`cannot write ${label}`, cause, path);
  }
  const fileId = reached && fileIdOf(reached);
  const input = fileId === undefined ? undefined : inputs.find((one) => one.fileId === fileId);
  if (input !== undefined) throw rangeError(option, { kind: 'apart', from: input.option }, path);
  // Renaming over a folder fails late, and renaming over a device would replace the device.
  if (reached?.isFile() === false)
    throw new ScalepointError('IO', `cannot write ${label}: it is not a regular file`, { path });
  if (overwrite) return { path: target, mode: reached === undefined ? undefined : reached.mode & 0o777 };
  const what = reached === undefined ? 'exists already, as a link to a missing file' : 'exists already';
  throw new ScalepointError('EXISTS', `${label} ${what}`, { path });
}

function existsError(path: string, cause: unknown): ScalepointError {
  return new ScalepointError('EXISTS', `${quoted(path)} exists already`, { cause, path });
}

/** Gives a file a name that must be free. If several processes try, one succeeds. @throws ScalepointError `EXISTS` or `IO` */
async function claim(temporary: string, path: string): Promise<void> {
  const { fs } = outputModules();
  const label = quoted(path);
  try {
    await fs.link(temporary, path);
    await fs.rm(temporary, { force: true }).catch(() => {});
    return;
  } catch (cause) {
    if (codeOf(cause) === 'EEXIST') throw existsError(path, cause);
  }
  // Some file systems have no hard links. There an empty file takes the name first.
  try {
    await (await fs.open(path, 'wx')).close();
  } catch (cause) {
    throw codeOf(cause) === 'EEXIST' ? existsError(path, cause) : ioError(`cannot write ${label}`, cause, path);
  }
  try {
    await fs.rename(temporary, path);
  } catch (cause) {
    await fs.rm(path, { force: true }).catch(() => {});
    throw ioError(`cannot write ${label}`, cause, path);
  }
}

/**
 * A sink in a file (Node). The bytes go to a temporary name in the same folder. The file gets its name when it is whole, so that there is
 * never half a file under the name `path`. A replaced file keeps its mode. A symbolic link remains, and the file that it leads to is
 * replaced.
 * @throws RangeError if it is one of the inputs; ScalepointError `EXISTS` if the name is taken and `overwrite` is false, `IO` if it cannot
 *   be written
 */
export async function pathSink(
  given: string | URL,
  overwrite: boolean,
  waiting: Waiting = waitingFor(undefined),
  names: OutputNames = { inputs: [] },
): Promise<ByteSink> {
  const { fs, paths, urls } = outputModules();
  const { signal, soon } = waiting;
  const named = given instanceof URL ? urls.fileURLToPath(given) : given;
  const prepare = async () => {
    const target = await checkOutput(named, overwrite, names);
    const folder = paths.dirname(target.path);
    const tag = await hostTag();
    // Remove partial files of dead processes.
    const pattern = new RegExp(`^\\.scalepoint-${tag}-(\\d{1,10})-[0-9a-f]{8}\\.partial$`);
    for (const name of await fs.readdir(folder).catch(() => [])) {
      const [, pid] = pattern.exec(name) ?? [];
      if (pid === undefined || isAlive(Number(pid))) continue;
      await fs.rm(paths.join(folder, name), { force: true }).catch(() => {});
    }
    const partial = `.scalepoint-${tag}-${process?.pid}-${crypto.randomUUID().slice(0, 8)}.partial`;
    return { ...target, temporary: paths.join(folder, partial) };
  };
  const { path, mode, temporary } = await soon(prepare());
  // From here on a canceled call ends only after the temporary file is removed: at the end of the process, unless it is forgotten before.
  if (partials.size === 0) process?.on('exit', removePartials);
  partials.add(temporary);
  let handle: WritableFileHandle;
  let fileId: string | undefined;
  try {
    handle = await fs.open(temporary, 'wx', mode ?? 0o666);
    fileId = fileIdOf(await handle.stat().catch(() => ({})));
  } catch (cause) {
    forget(temporary);
    throw ioError(`cannot write ${quoted(named)}`, cause, named);
  }
  const label = quoted(path);
  let opened: WritableFileHandle | undefined = handle;
  const checked = async (call: Promise<unknown> | undefined) => {
    try {
      await call;
    } catch (cause) {
      throw ioError(`cannot write ${label}`, cause, path);
    }
  };
  const close = async () => {
    const closed = opened;
    opened = undefined;
    await closed?.close();
  };
  const discard = async () => {
    // Does nothing after `finish`, which renamed the file.
    await close().catch(() => {});
    await fs.rm(temporary, { force: true }).catch(() => {});
    forget(temporary);
  };
  if (signal?.aborted) {
    await discard();
    throw signal.reason;
  }
  return {
    positional: true,
    retains: false,
    reference: fileId === undefined ? undefined : { path: paths.resolve(temporary), label, fileId },
    async write(position, bytes) {
      if (opened === undefined) throw new Error('the file is closed');
      await writeAll(opened, position, bytes, label);
    },
    async finish() {
      // The mode of a new file is masked by the process.
      if (mode !== undefined) await checked(opened?.chmod(mode));
      // Without this, a power cut after the rename could leave the name with nothing behind it.
      await soon(checked(opened?.datasync()));
      await checked(close());
      signal?.throwIfAborted();
      await checkOutput(path, overwrite, names);
      if (overwrite) await checked(fs.rename(temporary, path));
      else await claim(temporary, path);
      forget(temporary);
    },
    async withdraw() {
      if (mode === undefined) await fs.rm(path, { force: true }).catch(() => {});
    },
    discard,
  };
}

/**
 * Removes a file (Node), or the file that a link leads to. Does nothing if the file is missing.
 * @throws RangeError if it is one of the inputs; ScalepointError `IO`
 */
export async function removeFile(path: string | URL, names: OutputNames): Promise<void> {
  const { fs, urls } = outputModules();
  const named = path instanceof URL ? urls.fileURLToPath(path) : path;
  const { path: target } = await checkOutput(named, true, names);
  try {
    await fs.rm(target, { force: true });
  } catch (cause) {
    throw ioError(`cannot replace ${quoted(named)}`, cause, named);
  }
}

/**
 * Makes a folder unless it exists (Node). Returns a function that removes it again if it was made and nothing is in it, which never throws.
 * @throws ScalepointError `IO`
 */
export async function makeFolder(path: string | URL): Promise<() => Promise<void>> {
  const { fs, urls } = outputModules();
  const named = path instanceof URL ? urls.fileURLToPath(path) : path;
  try {
    await fs.mkdir(named);
  } catch (cause) {
    if (codeOf(cause) === 'EEXIST') return async () => {};
    throw ioError(`cannot make the folder ${quoted(named)}`, cause, named);
  }
  return async () => {
    await fs.rmdir(named).catch(() => {});
  };
}
