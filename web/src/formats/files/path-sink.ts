/** Results under a name of the file system (Node). A file appears under its name whole or not at all. */
import { rangeError, ScalepointError, typeError } from '../../core/errors.js';
import { type NodeWritableHandle, nodeModule, type WritableFileHandle } from '../../core/node.js';
import { ofType } from '../../core/option-problem.js';
import { type Waiting, waitingFor } from '../../core/waiting.js';
import { checkByteCount, fileIdOf, type InputFile, ioError, quoted } from './bytes.js';
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

/** Removes a file at the end of the process, unless `forget` is called before. */
function remember(path: string): void {
  if (partials.size === 0) process?.on('exit', removePartials);
  partials.add(path);
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

/** A name for a file that is being written: `.scalepoint-HOST-PROCESS-RANDOM.partial`. */
async function partialName(): Promise<string> {
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
async function removeDead(folder: string): Promise<void> {
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
    if (checkByteCount(count, left, `cannot write ${label}`) === 0) {
      throw new ScalepointError('IO', `cannot write ${label}: no bytes were taken at ${position + done}`);
    }
    done += count as number;
  }
}

/** The modules of Node that are used to write files. @throws TypeError in other engines */
function nodeFiles() {
  const [fs, paths, urls] = [nodeModule('node:fs/promises'), nodeModule('node:path'), nodeModule('node:url')];
  if (fs === undefined || paths === undefined || urls === undefined) {
    throw typeError('output', ofType('WritableStream', 'file handle'), undefined, {
      kind: 'because',
      message: 'paths need Node',
    });
  }
  return { fs, paths, urls };
}

/** Most symbolic links on the way to a file, as in Linux. */
const mostLinks = 40;

/** Follows symbolic links. The file at the end may be missing. */
async function followed(given: string): Promise<string> {
  const { fs, paths } = nodeFiles();
  let path = given;
  for (let links = 0; links <= mostLinks; links++) {
    const status = await fs.lstat(path).catch(() => undefined);
    if (!status?.isSymbolicLink()) return path;
    path = paths.resolve(await fs.realpath(paths.dirname(path)), await fs.readlink(path));
  }
  throw new Error('too many symbolic links');
}

/** The path of a result, and the mode of the file that it replaces. */
interface OutputTarget {
  readonly path: string;
  readonly mode: number | undefined;
}

/** The option that names an output, and the files that the call reads, of which more may come until the output is finished. */
export interface OutputNames {
  readonly option?: string;
  readonly inputs: readonly InputFile[];
}

const unnamed: OutputNames = { inputs: [] };

/** Examines the file under a name. @throws RangeError if it is an input; ScalepointError `EXISTS` or `IO` */
async function outputTarget(
  path: string,
  overwrite: boolean,
  { option = 'output', inputs }: OutputNames,
): Promise<OutputTarget> {
  const { fs } = nodeFiles();
  const label = quoted(path);
  // The file is usually missing. Other obstacles show when the temporary file is opened.
  const status = await fs.lstat(path).catch(() => undefined);
  if (status === undefined) return { path, mode: undefined };
  let target = path;
  let reached: typeof status | undefined = status;
  if (status.isSymbolicLink()) {
    target = await followed(path).catch((cause) => {
      throw ioError(`cannot write ${label}`, cause, path);
    });
    reached = await fs.lstat(target).catch(() => undefined);
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

/** Fails if a file is an input, or cannot be replaced. @throws RangeError; ScalepointError `IO` */
export async function checkNoInput(path: string, names: OutputNames): Promise<void> {
  await outputTarget(path, true, names);
}

function existsError(path: string, cause: unknown): ScalepointError {
  return new ScalepointError('EXISTS', `${quoted(path)} exists already`, { cause, path });
}

const codeOf = (cause: unknown) => (cause as { code?: unknown } | undefined)?.code;

/** Gives a file a name that must be free. If several processes try, one succeeds. @throws ScalepointError `EXISTS` or `IO` */
async function claim(temporary: string, path: string): Promise<void> {
  const { fs } = nodeFiles();
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

/** A sink in an open file under a temporary name. */
function partialFile(
  { temporary, handle, target }: { temporary: string; handle: WritableFileHandle; target: OutputTarget },
  fileId: string | undefined,
  { overwrite, names, waiting }: { overwrite: boolean; names: OutputNames; waiting: Waiting },
): ByteSink {
  const { fs, paths } = nodeFiles();
  const { path, mode } = target;
  const label = quoted(path);
  let opened: WritableFileHandle | undefined = handle;
  const called = async (call: Promise<unknown> | undefined) => {
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
      if (mode !== undefined) await called(opened?.chmod(mode));
      // Without this, a power cut after the rename could leave the name with nothing behind it.
      await waiting.soon(called(opened?.datasync()));
      await called(close());
      waiting.signal?.throwIfAborted();
      await outputTarget(path, overwrite, names);
      if (overwrite) await called(fs.rename(temporary, path));
      else await claim(temporary, path);
      forget(temporary);
    },
    async withdraw() {
      if (mode === undefined) await fs.rm(path, { force: true }).catch(() => {});
    },
    async discard() {
      // Does nothing after `finish`, which renamed the file.
      await close().catch(() => {});
      await fs.rm(temporary, { force: true }).catch(() => {});
      forget(temporary);
    },
  };
}

/**
 * A sink in a file (Node). The bytes go to a temporary name in the same folder. The file gets its name when it is whole, so that there is
 * never half a file under the name `path`. A replaced file keeps its mode. A symbolic link remains, and the file that it leads to is
 * replaced.
 * @throws RangeError if it is one of the inputs; ScalepointError `EXISTS` if the name is taken and `overwrite` is false, `IO` if it cannot
 *   be written
 */
export async function pathSink(
  path: string | URL,
  overwrite: boolean,
  waiting: Waiting = waitingFor(undefined),
  names: OutputNames = unnamed,
): Promise<ByteSink> {
  const { fs, paths, urls } = nodeFiles();
  const { signal, soon } = waiting;
  const named = path instanceof URL ? urls.fileURLToPath(path) : path;
  const prepare = async () => {
    const target = await outputTarget(named, overwrite, names);
    const folder = paths.dirname(target.path);
    await removeDead(folder);
    return { target, temporary: paths.join(folder, await partialName()) };
  };
  const { target, temporary } = await soon(prepare());
  // From here on a canceled call ends only after the temporary file is removed.
  remember(temporary);
  let sink: ByteSink;
  try {
    const handle = await fs.open(temporary, 'wx', target.mode ?? 0o666);
    const fileId = fileIdOf(await handle.stat().catch(() => ({})));
    sink = partialFile({ temporary, handle, target }, fileId, { overwrite, names, waiting });
  } catch (cause) {
    forget(temporary);
    throw ioError(`cannot write ${quoted(named)}`, cause, named);
  }
  if (signal?.aborted) {
    await sink.discard(signal.reason);
    throw signal.reason;
  }
  return sink;
}

/**
 * Removes a file (Node), or the file that a link leads to. Does nothing if the file is missing.
 * @throws RangeError if it is one of the inputs; ScalepointError `IO`
 */
export async function removeFile(path: string | URL, names: OutputNames): Promise<void> {
  const { fs, urls } = nodeFiles();
  const named = path instanceof URL ? urls.fileURLToPath(path) : path;
  const { path: target } = await outputTarget(named, true, names);
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
  const { fs, urls } = nodeFiles();
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
