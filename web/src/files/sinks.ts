/**
 * Where results go: memory, a path or an open file (Node), a file handle of the browser, a stream. A file appears under its name whole or
 * not at all.
 */

import { ScalepointError, typeError } from '../core/errors.js';
import { nodeModule, type WritableFileHandle } from '../core/node.js';
import { show } from '../core/show.js';
import { allocate, ioError, quoted } from './bytes.js';

/** A place for the bytes of a file, which appears when all of them are there. */
export interface ByteSink {
  /** Whether bytes can be written at any position. Otherwise each position has to be the end of what was written before. */
  readonly positional: boolean;
  /** Whether the receiver may keep what it is given. Otherwise the memory can be used again once the bytes are written. */
  readonly keeps: boolean;
  /** Writes bytes at a position. The promise is fulfilled when the receiver has taken them. */
  write(position: number, bytes: Uint8Array<ArrayBuffer>): Promise<void>;
  /**
   * Makes the whole visible. To be called once, when every byte was written.
   * @throws ScalepointError `IO` or `EXISTS`; `discard` is still to be called then
   */
  finish(): Promise<void>;
  /** Removes what was written. Never throws; does nothing after `finish`. */
  discard(reason: unknown): Promise<void>;
}

/** A sink whose bytes stay in memory. */
export interface MemorySink extends ByteSink {
  /** The result. To be called after `finish`. */
  blob(): Blob;
  bytes(): Promise<Uint8Array<ArrayBuffer>>;
}

/** An open file of Node's `fs/promises` for writing: what is used of it. */
export interface NodeWritableHandle {
  write(
    buffer: Uint8Array,
    offset: number,
    length: number,
    position: number,
  ): Promise<{ readonly bytesWritten: number }>;
  truncate(length: number): Promise<void>;
}

/**
 * Where a result can go: a path (Node), an open file (Node), a file handle of the browser (OPFS or a save dialog), or a stream.
 * A path and a browser's file handle show nothing until the result is whole. After an error, an open file is empty and a stream aborted.
 */
export type ModelOutput =
  | string
  | URL
  | NodeWritableHandle
  | FileSystemFileHandle
  | WritableStream<Uint8Array<ArrayBuffer>>;

/** Results up to this size are put together in one array. Larger ones become a Blob of pieces, which the engine may keep on disk. */
const arrayLimit = 64 * 2 ** 20;
/** Size of such a piece in bytes. */
const blobPiece = 8 * 2 ** 20;

/** A sink in memory. @throws ScalepointError `OUT_OF_MEMORY` */
export function memorySink(size: number): MemorySink {
  if (size > arrayLimit) return blobSink();
  const bytes = allocate(size, ' of result: give an output');
  return {
    positional: true,
    keeps: false,
    async write(position, piece) {
      bytes.set(piece, position);
    },
    async finish() {},
    async discard() {},
    blob: () => new Blob([bytes]),
    bytes: async () => bytes,
  };
}

function blobSink(): MemorySink {
  const blobs: Blob[] = [];
  let pieces: Uint8Array<ArrayBuffer>[] = [];
  let waiting = 0;
  let finished = false;
  const flush = () => {
    blobs.push(new Blob(pieces));
    pieces = [];
    waiting = 0;
  };
  return {
    positional: false,
    keeps: false,
    async write(_position, piece) {
      pieces.push(piece.slice());
      waiting += piece.length;
      if (waiting >= blobPiece) flush();
    },
    async finish() {
      flush();
      finished = true;
    },
    async discard() {
      if (finished) return;
      blobs.length = 0;
      pieces = [];
    },
    blob: () => new Blob(blobs),
    async bytes() {
      const blob = new Blob(blobs);
      try {
        return new Uint8Array(await blob.arrayBuffer());
      } catch (cause) {
        throw new ScalepointError('OUT_OF_MEMORY', `there is no memory for ${blob.size} bytes: take blob()`, { cause });
      }
    },
  };
}

/** Writes all of the bytes through a handle of Node. */
async function writeAll(
  handle: Pick<NodeWritableHandle, 'write'>,
  position: number,
  bytes: Uint8Array,
  label: string,
): Promise<void> {
  for (let done = 0; done < bytes.length; ) {
    try {
      done += (await handle.write(bytes, done, bytes.length - done, position + done)).bytesWritten;
    } catch (cause) {
      throw ioError(`cannot write ${label}`, cause);
    }
  }
}

/** What is used of Node to write files. @throws TypeError if there is none */
function nodeFiles() {
  const [fs, paths, urls] = [nodeModule('node:fs/promises'), nodeModule('node:path'), nodeModule('node:url')];
  if (fs === undefined || paths === undefined || urls === undefined) {
    throw typeError('output', 'paths are for Node; leave it out and take result.blob()');
  }
  return { fs, paths, urls };
}

/** Fails unless a file can be put under a name. @throws ScalepointError `EXISTS` or `IO` */
async function checkTarget(target: string, overwrite: boolean): Promise<void> {
  // A missing target is the good case. Whatever else stands in the way shows when the temporary file is opened.
  const status = await nodeFiles()
    .fs.stat(target)
    .catch(() => undefined);
  if (status === undefined) return;
  const label = quoted(target);
  // Renaming over a folder fails late, and renaming over a device would replace the device.
  if (!status.isFile()) throw new ScalepointError('IO', `cannot write ${label}: it is no regular file`);
  if (!overwrite) throw new ScalepointError('EXISTS', `${label} exists already`);
}

/**
 * A sink in a file (Node). The bytes go to a temporary name in the same folder, which is renamed when the file is whole: at no time is
 * there half a file under the name `path`.
 * @throws ScalepointError `EXISTS` if the file is there and `overwrite` is false, `IO` if it cannot be written
 */
export async function pathSink(path: string | URL, overwrite: boolean): Promise<ByteSink> {
  const { fs, paths, urls } = nodeFiles();
  const target = path instanceof URL ? urls.fileURLToPath(path) : path;
  const label = quoted(target);
  /** Waits for a call to the system. */
  const done = async <T>(call: Promise<T> | undefined): Promise<T | undefined> => {
    try {
      return await call;
    } catch (cause) {
      throw ioError(`cannot write ${label}`, cause);
    }
  };
  await checkTarget(target, overwrite);
  const temporary = paths.join(paths.dirname(target), `.scalepoint-${crypto.randomUUID().slice(0, 8)}.partial`);
  let handle: WritableFileHandle | undefined = await done(fs.open(temporary, 'wx'));
  const close = async () => {
    const open = handle;
    handle = undefined;
    await open?.close();
  };
  let finished = false;
  return {
    positional: true,
    keeps: false,
    async write(position, bytes) {
      if (handle === undefined) throw new Error('the file is closed');
      await writeAll(handle, position, bytes, label);
    },
    async finish() {
      // Without this, a power cut after the rename could leave the name with nothing behind it.
      await done(handle?.datasync());
      await done(close());
      await checkTarget(target, overwrite);
      await done(fs.rename(temporary, target));
      finished = true;
    },
    async discard() {
      if (finished) return;
      await close().catch(() => {});
      await fs.rm(temporary, { force: true }).catch(() => {});
    },
  };
}

/** A sink in a file that the caller opened (Node) and closes. */
async function handleSink(handle: NodeWritableHandle): Promise<ByteSink> {
  // The end of a longer file would remain. Devices have no length; whatever else fails here fails in writing, too.
  await handle.truncate(0).catch(() => {});
  let finished = false;
  return {
    positional: true,
    keeps: false,
    write: (position, bytes) => writeAll(handle, position, bytes, 'the open file'),
    async finish() {
      finished = true;
    },
    async discard() {
      if (!finished) await handle.truncate(0).catch(() => {});
    },
  };
}

/** Whether a stream also takes positions, as `createWritable` of a browser's file handle gives it. */
function isFileStream(stream: WritableStream): stream is FileSystemWritableFileStream {
  return typeof (stream as { seek?: unknown }).seek === 'function';
}

/** How long to wait for a stream that is being aborted. */
const abortMilliseconds = 50;

/** A sink in a stream, which is closed at the end. Files of the browser take positions, and show their bytes once they are closed. */
function streamSink(stream: WritableStream<Uint8Array<ArrayBuffer>> | FileSystemWritableFileStream): ByteSink {
  if (stream.locked) throw typeError('output', 'the stream is locked, something else writes to it');
  const positional = isFileStream(stream);
  const writer = (stream as WritableStream<unknown>).getWriter();
  // A broken stream also rejects this promise. The error shows in `write`, and must not end the process here.
  writer.closed.catch(() => {});
  let finished = false;
  let emptied = !positional;
  const guarded = async (action: () => Promise<void>) => {
    try {
      await action();
    } catch (cause) {
      throw cause instanceof ScalepointError ? cause : ioError('cannot write to the output', cause);
    }
  };
  return {
    positional,
    keeps: !positional,
    write: (position, bytes) =>
      guarded(async () => {
        await writer.ready;
        // Without this, the end of a longer file would remain.
        if (!emptied) await writer.write({ type: 'truncate', size: 0 });
        emptied = true;
        await writer.write(positional ? { type: 'write', position, data: bytes } : bytes);
      }),
    finish: () =>
      guarded(async () => {
        await writer.close();
        finished = true;
      }),
    async discard(reason) {
      if (finished) return;
      const aborted = writer.abort(reason).catch(() => {});
      // Aborting waits for what is being written, and a receiver that hangs must not hold up the error.
      let timer: ReturnType<typeof setTimeout> | undefined;
      await Promise.race([
        aborted,
        new Promise((resolve) => {
          timer = setTimeout(resolve, abortMilliseconds);
        }),
      ]);
      clearTimeout(timer);
      writer.releaseLock();
    },
  };
}

/**
 * Opens an output.
 * @throws TypeError if it is nothing that can be written; ScalepointError `EXISTS` or `IO`
 */
export async function openSink(output: ModelOutput, overwrite: boolean): Promise<ByteSink> {
  if (typeof output === 'string' || output instanceof URL) return pathSink(output, overwrite);
  if (typeof output === 'object' && output !== null) {
    if (typeof WritableStream !== 'undefined' && output instanceof WritableStream) return streamSink(output);
    if ('createWritable' in output && typeof output.createWritable === 'function') {
      try {
        return streamSink(await output.createWritable());
      } catch (cause) {
        throw ioError('cannot write the file', cause);
      }
    }
    if ('write' in output && typeof output.write === 'function' && typeof output.truncate === 'function') {
      return handleSink(output);
    }
  }
  throw typeError('output', `expected a path, a WritableStream or a file handle, got ${show(output)}`);
}
