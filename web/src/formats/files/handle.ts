/**
 * Files of the system (Node): paths and open files. Node's file system is reached through `process.getBuiltinModule` and never imported,
 * so that this file loads in a browser as it is.
 */
import { ScalepointError, typeError } from '../../core/errors.js';
import { type NodeFileHandle, nodeModule, type WritableFileHandle } from '../../core/node.js';
import { type Expected, ofType } from '../../core/option-problem.js';
import { show } from '../../core/show.js';
import { aMoment } from '../../core/waiting.js';
import {
  type ByteSource,
  checkByteCount,
  fileIdOf,
  ioError,
  quoted,
  readsInto,
  type SourceReference,
  shrunkError,
} from './bytes.js';

type FileStatus = Awaited<ReturnType<NodeFileHandle['stat']>>;

/** The status of an open file, which has to be a regular file. @throws ScalepointError `IO` */
async function statusOf(handle: Pick<NodeFileHandle, 'stat'>, label: string): Promise<FileStatus> {
  let status: FileStatus;
  try {
    status = await handle.stat();
    if (!status.isFile()) throw new Error('it is not a regular file');
  } catch (cause) {
    throw ioError(`cannot read ${label}`, cause);
  }
  if (Number.isSafeInteger(status.size) && status.size >= 0) return status;
  throw new ScalepointError('IO', `cannot read ${label}: its size is ${show(status.size)}`);
}

/**
 * A source in an open file.
 * @param path of the file, if this package opened it
 */
export async function handleSource(
  handle: NodeFileHandle,
  label: string,
  close: () => Promise<void>,
  path?: string,
): Promise<ByteSource> {
  const status = await statusOf(handle, label);
  const { size } = status;
  // Refer to the file in its state for a worker, which checks it by its inode. Some systems do not report inodes.
  const fileId = fileIdOf(status);
  let reference: SourceReference | undefined;
  if (fileId !== undefined && (path ?? handle.fd) !== undefined) {
    const stamp = { fileId, size, mtimeMs: status.mtimeMs };
    reference =
      path === undefined
        ? { kind: 'descriptor', descriptor: handle.fd as number, stamp }
        : { kind: 'path', path, stamp };
  }
  // Read until the target is full; a file may give fewer bytes than asked for.
  const fill = async (begin: number, target: Uint8Array) => {
    for (let done = 0; done < target.length; ) {
      const [left, position] = [target.length - done, begin + done];
      let count: unknown;
      try {
        count = (await handle.read(target, done, left, position)).bytesRead;
      } catch (cause) {
        throw ioError(`cannot read ${label}`, cause);
      }
      const came = checkByteCount(count, left, `cannot read ${label}`);
      done += came;
      if (came > 0) continue;
      if ((await statusOf(handle, label)).size <= position) throw shrunkError(label, position);
      throw new ScalepointError('IO', `cannot read ${label}: no more bytes came`, { byteOffset: position });
    }
  };
  return {
    ...readsInto(size, fill),
    async verify() {
      const now = await statusOf(handle, label);
      if (now.size === size && now.mtimeMs === status.mtimeMs) return;
      throw new ScalepointError('CHANGED', `${label} was changed while it was read`);
    },
    close,
    reference,
    identity: { handle, fileId },
  };
}

/**
 * The modules of Node for files.
 * @param option names the path in the error, and `expected` what other engines take
 * @throws TypeError in other engines
 */
export function nodeFiles(option: string, expected: Expected, given?: unknown, message = 'paths need Node') {
  const [fs, paths, urls] = [nodeModule('node:fs/promises'), nodeModule('node:path'), nodeModule('node:url')];
  const constants = nodeModule('node:fs')?.constants;
  if (fs === undefined || paths === undefined || urls === undefined || constants === undefined)
    throw typeError(option, expected, given, { kind: 'because', message });
  return { fs, paths, urls, constants };
}

/** A source in the file at a path, or at a `file:` URL. */
export async function pathSource(given: string | URL): Promise<ByteSource> {
  const { fs, paths, urls, constants } = nodeFiles('file', ofType('File', 'Uint8Array', 'URL'), given);
  let path = String(given);
  let handle: WritableFileHandle;
  try {
    if (given instanceof URL) path = urls.fileURLToPath(given);
    // Without O_NONBLOCK, a pipe without a writer would block a thread of Node, and signals could not stop it.
    handle = await fs.open(path, constants.O_RDONLY | (constants.O_NONBLOCK ?? 0));
  } catch (cause) {
    throw ioError(`cannot open ${quoted(path)}`, cause, path);
  }
  try {
    const name = path.split(/[\\/]/).pop() ?? '';
    const source = await handleSource(handle, quoted(path), () => handle.close(), paths.resolve(path));
    return { ...source, ...(name === '' ? {} : { name }) };
  } catch (error) {
    await aMoment(handle.close());
    throw error;
  }
}
