/**
 * Files that a worker opens by itself from a reference, so that their bytes need not pass through the thread that opened them first. If the
 * worker cannot open the file, or finds another file in its place, the first thread reads or writes for it.
 */
import { ScalepointError } from '../../core/errors.js';
import { type NodeModules, nodeModule } from '../../core/node.js';
import { checkByteCount, checkTaken, fileIdOf, ioError, readBlob, type SourceReference, shrunkError } from './bytes.js';
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

type FileSystem = NodeModules['node:fs'];

/**
 * The descriptor of an open file, or of the file at a path, which then stays open for as long as this thread lives; undefined if it cannot be
 * opened or fails a test.
 */
function descriptorIf(
  fs: FileSystem,
  place: number | string,
  flags: number,
  isSame: (status: ReturnType<FileSystem['fstatSync']>) => boolean,
): number | undefined {
  let opened: number | undefined;
  try {
    // Without O_NONBLOCK, a pipe that has taken the path since would block this thread.
    if (typeof place === 'string') opened = fs.openSync(place, flags | (fs.constants.O_NONBLOCK ?? 0));
    const descriptor = opened ?? Number(place);
    if (isSame(fs.fstatSync(descriptor))) return descriptor;
  } catch {
    // The file is missing, or this thread does not have the descriptor.
  }
  if (opened !== undefined) fs.closeSync(opened);
  return undefined;
}

/** Opens a file to read. Undefined if this thread cannot, or if another file has taken its place. */
export function readerOf(reference: SourceReference): ReadBytes | undefined {
  if (reference.kind === 'blob')
    return (begin, target, from, to) => readBlob(reference.blob, begin, target.subarray(from, to), blobChunk);
  const fs = nodeModule('node:fs');
  if (fs === undefined) return undefined;
  const { fileId, size, mtimeMs } = reference.stamp;
  // The descriptor may belong to another file in this thread.
  const place = reference.kind === 'path' ? reference.path : reference.descriptor;
  const descriptor = descriptorIf(
    fs,
    place,
    fs.constants.O_RDONLY,
    (status) => fileIdOf(status) === fileId && status.size === size && status.mtimeMs === mtimeMs,
  );
  if (descriptor === undefined) return undefined;
  return (begin, target, from, to) => {
    for (let done = from; done < to; ) {
      const left = to - done;
      const position = begin + done - from;
      let count: number;
      let sizeNow: number;
      try {
        count = fs.readSync(descriptor, target, done, left, position);
        sizeNow = count === 0 ? fs.fstatSync(descriptor).size : 0;
      } catch (cause) {
        throw ioError('cannot read the file', cause);
      }
      done += checkByteCount(count, left, 'cannot read the file');
      if (count > 0) continue;
      if (sizeNow <= position) throw shrunkError('the file', position);
      throw new ScalepointError('IO', 'cannot read the file: no more bytes came', { byteOffset: position });
    }
  };
}

/** Opens a file to write. Undefined if this thread cannot, or if another file has taken its place. */
export function writerOf({ path, label, fileId }: SinkReference): WriteBytes | undefined {
  const fs = nodeModule('node:fs');
  if (fs === undefined) return undefined;
  const descriptor = descriptorIf(fs, path, fs.constants.O_WRONLY, (status) => fileIdOf(status) === fileId);
  if (descriptor === undefined) return undefined;
  return (position, bytes) => {
    for (let done = 0; done < bytes.length; ) {
      const left = bytes.length - done;
      let count: number;
      try {
        count = fs.writeSync(descriptor, bytes, done, left, position + done);
      } catch (cause) {
        throw ioError(`cannot write ${label}`, cause);
      }
      done += checkTaken(count, left, label, position + done);
    }
  };
}
