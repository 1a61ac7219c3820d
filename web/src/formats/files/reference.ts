/**
 * Files that a worker opens by itself from a reference, so that their bytes need not pass through the thread that opened them first. If the
 * worker cannot open the file, or finds another file in its place, the first thread reads or writes for it.
 */
import { ScalepointError } from '../../core/errors.js';
import { type NodeModules, nodeModule } from '../../core/node.js';
import { checkByteCount, fileIdOf, ioError, readBlob, type SourceReference, shorterError } from './bytes.js';
import type { SinkReference } from './sink.js';

/**
 * Reads bytes, from a position on, into memory from one offset to another: all of them, or it fails with a ScalepointError. Files of the
 * system are read synchronously, since a promise or a view of the memory would take longer than a short read.
 */
export type ReadBytes = (begin: number, target: Uint8Array, from: number, to: number) => void | Promise<void>;
/** Writes bytes at a position: all of them, or it fails with a ScalepointError. */
export type WriteBytes = (position: number, bytes: Uint8Array) => void;

/** Bytes of a Blob that are in memory twice. */
const blobChunk = 1 << 22;

// ------------------------------------------------------------------------------------------------------------ files of the system

type FileSystem = NodeModules['node:fs'];

/** Reads from an open file. */
function readFrom(
  fs: FileSystem,
  descriptor: number,
  begin: number,
  target: Uint8Array,
  from: number,
  to: number,
): void {
  for (let done = from; done < to; ) {
    const left = to - done;
    const position = begin + done - from;
    let count: number;
    let size: number;
    try {
      count = fs.readSync(descriptor, target, done, left, position);
      size = count === 0 ? fs.fstatSync(descriptor).size : 0;
    } catch (cause) {
      throw ioError('cannot read the file', cause);
    }
    done += checkByteCount(count, left, 'cannot read the file');
    if (count > 0) continue;
    if (size <= position) throw shorterError('the file', position);
    throw new ScalepointError('IO', 'cannot read the file: no more bytes came', { byteOffset: position });
  }
}

/** Writes to an open file. */
function writeTo(fs: FileSystem, descriptor: number, label: string, position: number, bytes: Uint8Array): void {
  for (let done = 0; done < bytes.length; ) {
    const left = bytes.length - done;
    let count: number;
    try {
      count = fs.writeSync(descriptor, bytes, done, left, position + done);
    } catch (cause) {
      throw ioError(`cannot write ${label}`, cause);
    }
    if (checkByteCount(count, left, `cannot write ${label}`) === 0) {
      throw new ScalepointError('IO', `cannot write ${label}: no bytes were taken at ${position + done}`);
    }
    done += count;
  }
}

type FileStatus = ReturnType<FileSystem['fstatSync']>;

/** True if an open file passes a test. */
function passes(fs: FileSystem, descriptor: number, isSame: (status: FileStatus) => boolean): boolean {
  try {
    return isSame(fs.fstatSync(descriptor));
  } catch {
    return false;
  }
}

/** Opens a path if the file there passes a test, for as long as this thread lives. */
function openIf(
  fs: FileSystem,
  path: string,
  flags: number,
  isSame: (status: FileStatus) => boolean,
): number | undefined {
  let descriptor: number;
  try {
    // Without O_NONBLOCK, a pipe that has taken the path since would block this thread.
    descriptor = fs.openSync(path, flags | (fs.constants.O_NONBLOCK ?? 0));
  } catch {
    return undefined;
  }
  if (passes(fs, descriptor, isSame)) return descriptor;
  fs.closeSync(descriptor);
  return undefined;
}

/** Opens a file to read. Undefined if this thread cannot, or if another file has taken its place. */
export function readerOf(reference: SourceReference): ReadBytes | undefined {
  if (reference.kind === 'blob')
    return (begin, target, from, to) => readBlob(reference.blob, begin, target.subarray(from, to), blobChunk);
  const fs = nodeModule('node:fs');
  if (fs === undefined) return undefined;
  const { fileId, size, mtimeMs } = reference.stamp;
  const isSame = (status: FileStatus) =>
    fileIdOf(status) === fileId && status.size === size && status.mtimeMs === mtimeMs;
  if (reference.kind === 'path') {
    const opened = openIf(fs, reference.path, fs.constants.O_RDONLY, isSame);
    return opened === undefined ? undefined : (...range) => readFrom(fs, opened, ...range);
  }
  // The descriptor may belong to another file in this thread.
  const { descriptor } = reference;
  return passes(fs, descriptor, isSame) ? (...range) => readFrom(fs, descriptor, ...range) : undefined;
}

/** Opens a file to write. Undefined if this thread cannot, or if another file has taken its place. */
export function writerOf({ path, label, fileId }: SinkReference): WriteBytes | undefined {
  const fs = nodeModule('node:fs');
  if (fs === undefined) return undefined;
  const opened = openIf(fs, path, fs.constants.O_WRONLY, (status) => fileIdOf(status) === fileId);
  return opened === undefined ? undefined : (position, bytes) => writeTo(fs, opened, label, position, bytes);
}
