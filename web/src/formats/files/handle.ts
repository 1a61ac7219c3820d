/**
 * Files of the system (Node): paths and open files. Node's file system is reached through `process.getBuiltinModule` and never imported,
 * so that this file loads in a browser as it is.
 */
import { ScalepointError, typeError } from '../../core/errors.js';
import { type NodeFileHandle, nodeModule, type WritableFileHandle } from '../../core/node.js';
import { ofType } from '../../core/option-problem.js';
import { show } from '../../core/show.js';
import { aMoment } from '../../core/waiting.js';
import {
  allocate,
  type ByteSource,
  checkByteCount,
  checkRange,
  fileIdOf,
  ioError,
  quoted,
  type SourceReference,
  shorterError,
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
  // Read some bytes; a file may give fewer than asked for.
  const readSome = async (position: number, target: Uint8Array, done: number): Promise<number> => {
    const left = target.length - done;
    let count: unknown;
    try {
      count = (await handle.read(target, done, left, position)).bytesRead;
    } catch (cause) {
      throw ioError(`cannot read ${label}`, cause);
    }
    const checked = checkByteCount(count, left, `cannot read ${label}`);
    if (checked > 0) return checked;
    if ((await statusOf(handle, label)).size <= position) throw shorterError(label, position);
    throw new ScalepointError('IO', `cannot read ${label}: no more bytes came`, { byteOffset: position });
  };
  // Read on until the target is full.
  const readInto = async (begin: number, target: Uint8Array) => {
    checkRange(begin, begin + target.length, size);
    for (let done = 0; done < target.length; ) done += await readSome(begin + done, target, done);
  };
  return {
    size,
    readInto,
    async read(begin, end) {
      checkRange(begin, end, size);
      const bytes = allocate(end - begin, ' at once');
      await readInto(begin, bytes);
      return bytes;
    },
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

/** A source in the file at a path, or at a `file:` URL. */
export async function pathSource(given: string | URL): Promise<ByteSource> {
  const [fs, constants, paths, urls] = [
    nodeModule('node:fs/promises'),
    nodeModule('node:fs')?.constants,
    nodeModule('node:path'),
    nodeModule('node:url'),
  ];
  if (fs === undefined || constants === undefined || paths === undefined || urls === undefined) {
    throw typeError('file', ofType('File', 'Uint8Array', 'URL'), given, {
      kind: 'because',
      message: 'paths need Node',
    });
  }
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
