/**
 * Bytes at rest: where model files are read from and written to. Everything is asked for by position, so that a file of any size is
 * handled piece by piece. Node's file system is reached through `process.getBuiltinModule`, never through an import, so that this
 * file loads in a browser as it is.
 */
import { ScalepointError } from '../errors.js';
import { show } from '../tensor.js';

/** Bytes that can be read from any position. */
export interface ByteSource {
  /** Number of bytes. */
  readonly size: number;
  /** File name without its folder, where there is one. */
  readonly name?: string;
  /**
   * The bytes [begin, end). The result may be a view of memory that belongs to the caller of the library: never write into it.
   * @throws ScalepointError `BAD_FILE` if the range leaves the source, `IO` if reading fails
   */
  read(begin: number, end: number): Promise<Uint8Array<ArrayBuffer>>;
  /** Gives back what `openSource` opened itself. */
  close(): Promise<void>;
}

/** An open file of Node's `fs/promises`: what is used of it. */
export interface NodeFileHandle {
  read(buffer: Uint8Array, offset: number, length: number, position: number): Promise<{ readonly bytesRead: number }>;
  stat(): Promise<{ readonly size: number; isFile(): boolean }>;
}

/** A file to read: its bytes, a Blob or File, a URL, in Node also a path or an open file (which stays open). */
export type FileInput = Uint8Array | ArrayBuffer | Blob | URL | string | NodeFileHandle;

/** Copies and conversions go through the memory in pieces of about this many bytes: large enough for disks, small next to a model. */
export const pieceBytes = 4 * 2 ** 20;

/** An open file to write: what is used of it. */
interface WritableFileHandle extends NodeFileHandle {
  write(
    buffer: Uint8Array,
    offset: number,
    length: number,
    position: number,
  ): Promise<{ readonly bytesWritten: number }>;
  datasync(): Promise<void>;
  close(): Promise<void>;
}

/** What is used of Node's modules. Written out, so that users of the types need none of Node's. */
interface NodeModules {
  'node:fs/promises': {
    open(path: string | URL, flags: string): Promise<WritableFileHandle>;
    stat(path: string): Promise<{ isFile(): boolean }>;
    rename(from: string, to: string): Promise<void>;
    rm(path: string, options: { force: boolean }): Promise<void>;
  };
  'node:path': { dirname(path: string): string; join(...parts: string[]): string };
  'node:url': { fileURLToPath(url: URL): string };
}

/** A module of Node, or undefined where there is none. */
function nodeModule<K extends keyof NodeModules>(name: K): NodeModules[K] | undefined {
  const { process } = globalThis as { process?: { getBuiltinModule?(name: K): NodeModules[K] | undefined } };
  return process?.getBuiltinModule?.(name);
}

/** A name for an error message: whole, unless it is absurdly long. */
export function quoted(name: string): string {
  return JSON.stringify(name.length > 300 ? `${name.slice(0, 297)}...` : name);
}

/** Zeroed memory. @throws ScalepointError `OUT_OF_MEMORY` */
function allocate(bytes: number, hint: string): Uint8Array<ArrayBuffer> {
  try {
    return new Uint8Array(bytes);
  } catch (cause) {
    throw new ScalepointError('OUT_OF_MEMORY', `there is no memory for ${bytes} bytes${hint}`, { cause });
  }
}

/** The system's words for an error, without its code, its call and its path: `no such file or directory`. */
function systemMessage(cause: unknown): string {
  const text = cause instanceof Error ? cause.message : String(cause);
  return /^[A-Z0-9]+: ([^,]+)/.exec(text)?.[1] ?? text;
}

function ioError(what: string, cause: unknown): ScalepointError {
  return new ScalepointError('IO', `${what}: ${systemMessage(cause)}`, { cause });
}

function checkRange(begin: number, end: number, size: number): void {
  if (begin >= 0 && begin <= end && end <= size && Number.isSafeInteger(begin) && Number.isSafeInteger(end)) return;
  throw new ScalepointError('BAD_FILE', `bytes ${begin} to ${end} lie outside of the file, which has ${size} bytes`, {
    byteOffset: begin,
  });
}

function memorySource(bytes: Uint8Array): ByteSource {
  try {
    // A detached buffer looks like an empty one, but nothing can be made over it.
    if (bytes.byteLength === 0) new Uint8Array(bytes.buffer);
  } catch (cause) {
    throw new TypeError('file: the array is detached, its memory was transferred elsewhere', { cause });
  }
  const size = bytes.byteLength;
  // Text decoders and files refuse shared memory, so that is read by copying.
  const { buffer } = bytes;
  const own = buffer instanceof ArrayBuffer ? new Uint8Array(buffer, bytes.byteOffset, size) : undefined;
  return {
    size,
    async read(begin, end) {
      checkRange(begin, end, size);
      return own?.subarray(begin, end) ?? new Uint8Array(bytes.subarray(begin, end));
    },
    async close() {},
  };
}

function blobSource(blob: Blob): ByteSource {
  const name = (blob as { name?: unknown }).name;
  return {
    size: blob.size,
    ...(typeof name === 'string' && name !== '' ? { name } : {}),
    async read(begin, end) {
      checkRange(begin, end, blob.size);
      try {
        return new Uint8Array(await blob.slice(begin, end).arrayBuffer());
      } catch (cause) {
        throw ioError('cannot read the file', cause);
      }
    },
    async close() {},
  };
}

async function handleSource(handle: NodeFileHandle, label: string, close: () => Promise<void>): Promise<ByteSource> {
  const status = await handle.stat();
  if (!status.isFile()) throw new ScalepointError('IO', `cannot read ${label}: it is no regular file`);
  const { size } = status;
  return {
    size,
    async read(begin, end) {
      checkRange(begin, end, size);
      const bytes = allocate(end - begin, ' at once');
      let done = 0;
      while (done < bytes.length) {
        let count: number;
        try {
          count = (await handle.read(bytes, done, bytes.length - done, begin + done)).bytesRead;
        } catch (cause) {
          throw ioError(`cannot read ${label}`, cause);
        }
        if (count === 0) {
          throw new ScalepointError('IO', `${label} became shorter while it was read`, { byteOffset: begin + done });
        }
        done += count;
      }
      return bytes;
    },
    close,
  };
}

async function pathSource(path: string | URL): Promise<ByteSource> {
  const fs = nodeModule('node:fs/promises');
  if (fs === undefined) {
    throw new TypeError(`file: paths are for Node; pass a File, bytes or a URL instead of ${quoted(String(path))}`);
  }
  const label = quoted(String(path));
  let handle: WritableFileHandle;
  try {
    handle = await fs.open(path, 'r');
  } catch (cause) {
    throw ioError(`cannot open ${label}`, cause);
  }
  try {
    const name = String(path).split(/[\\/]/).pop() ?? '';
    const source = await handleSource(handle, label, () => handle.close());
    return { ...source, ...(name === '' ? {} : { name }) };
  } catch (error) {
    await handle.close();
    throw error;
  }
}

async function urlSource(url: URL): Promise<ByteSource> {
  if (url.protocol === 'file:' && nodeModule('node:fs/promises') !== undefined) return pathSource(url);
  let response: Response;
  let blob: Blob;
  try {
    response = await fetch(url, { credentials: 'same-origin' });
    blob = await response.blob();
  } catch (cause) {
    throw ioError(`cannot fetch ${url.href}`, cause);
  }
  if (!response.ok) throw new ScalepointError('IO', `cannot fetch ${url.href}: the server answered ${response.status}`);
  const name = url.pathname.split('/').pop() ?? '';
  return { ...blobSource(blob), ...(name === '' ? {} : { name }) };
}

/**
 * Opens a file for reading by position.
 * @throws TypeError if `file` is nothing that can be read, ScalepointError `IO` if it cannot be opened
 */
export async function openSource(file: FileInput): Promise<ByteSource> {
  if (file instanceof Uint8Array) return memorySource(file);
  if (file instanceof ArrayBuffer) return memorySource(new Uint8Array(file));
  if (file instanceof Blob) return blobSource(file);
  if (file instanceof URL) return urlSource(file);
  if (typeof file === 'string') return pathSource(file);
  if (typeof file === 'object' && file !== null && typeof file.read === 'function' && typeof file.stat === 'function') {
    return handleSource(file, 'the open file', async () => {});
  }
  throw new TypeError(`file: expected bytes, a Blob, a URL, a path or an open file, got ${show(file)}`);
}

/** Bytes that can be written at any position, and that count only once they are all there. */
export interface ByteSink {
  /** Puts bytes at a position. They may be changed once the promise is fulfilled. */
  write(position: number, bytes: Uint8Array): Promise<void>;
  /**
   * Makes the whole visible. To be called once, when every byte was written.
   * @throws ScalepointError `IO` or `EXISTS`; `discard` is still to be called then
   */
  finish(): Promise<void>;
  /** Removes what was written. Never throws; does nothing after `finish`. */
  discard(): Promise<void>;
}

/** A sink in memory. `bytes` is whole after `finish`. */
export function memorySink(size: number): ByteSink & { readonly bytes: Uint8Array<ArrayBuffer> } {
  const bytes = allocate(size, ' of result: write it to a file');
  return {
    bytes,
    async write(position, piece) {
      bytes.set(piece, position);
    },
    async finish() {},
    async discard() {},
  };
}

/**
 * A sink in a file (Node). The bytes go to a temporary name in the same folder, which is renamed when whole: at no time is there half
 * a file under the name `path`.
 * @throws ScalepointError `EXISTS` if the file is there and `overwrite` is false, `IO` if it cannot be written
 */
export async function fileSink(path: string | URL, size: number, overwrite: boolean): Promise<ByteSink> {
  const [fs, paths, urls] = [nodeModule('node:fs/promises'), nodeModule('node:path'), nodeModule('node:url')];
  if (fs === undefined || paths === undefined || urls === undefined) {
    throw new TypeError('output: paths are for Node; leave it out and take result.blob()');
  }
  const target = path instanceof URL ? urls.fileURLToPath(path) : path;
  const label = quoted(target);

  const checkTarget = async () => {
    // A missing target is the good case; whatever else stands in the way shows when the temporary file is opened.
    const status = await fs.stat(target).catch(() => undefined);
    if (status === undefined) return;
    // Renaming over a folder fails late; renaming over a device would replace the device.
    if (!status.isFile()) throw new ScalepointError('IO', `cannot write ${label}: it is no regular file`);
    if (!overwrite) throw new ScalepointError('EXISTS', `${label} exists already`);
  };
  await checkTarget();

  const temporary = paths.join(paths.dirname(target), `.scalepoint-${crypto.randomUUID().slice(0, 8)}.partial`);
  let handle: WritableFileHandle | undefined;
  try {
    handle = await fs.open(temporary, 'wx');
  } catch (cause) {
    throw ioError(`cannot write ${label}`, cause);
  }
  let written = 0;
  const close = async () => {
    const open = handle;
    handle = undefined;
    await open?.close();
  };
  let finished = false;
  return {
    async write(position, bytes) {
      if (handle === undefined) throw new Error('the file is closed');
      for (let done = 0; done < bytes.length; ) {
        try {
          done += (await handle.write(bytes, done, bytes.length - done, position + done)).bytesWritten;
        } catch (cause) {
          throw ioError(`cannot write ${label}`, cause);
        }
      }
      written += bytes.length;
    },
    async finish() {
      if (written !== size) throw new Error(`${written} of ${size} bytes were written`);
      try {
        // Without this a power cut after the rename could leave the name with nothing behind it.
        await handle?.datasync();
        await close();
      } catch (cause) {
        throw ioError(`cannot write ${label}`, cause);
      }
      await checkTarget();
      try {
        await fs.rename(temporary, target);
      } catch (cause) {
        throw ioError(`cannot write ${label}`, cause);
      }
      finished = true;
    },
    async discard() {
      if (finished) return;
      await close().catch(() => {});
      await fs.rm(temporary, { force: true }).catch(() => {});
    },
  };
}
