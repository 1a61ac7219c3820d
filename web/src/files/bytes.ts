/**
 * Bytes at rest: where model files are read from and written to. Everything is asked for by position, so that a file of any size is
 * handled piece by piece. Node's file system is reached through `process.getBuiltinModule`, never through an import, so that this
 * file loads in a browser as it is.
 */

import { ScalepointError } from '../core/errors.js';
import { nodeModule, type WritableFileHandle } from '../core/node.js';
import { show } from '../core/show.js';

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
  /** As read, into memory that is there already, from `begin` on. Undefined where `read` is as good. */
  readonly readInto?: ((begin: number, target: Uint8Array) => Promise<void>) | undefined;
  /**
   * Fails if the bytes are no longer those that were opened.
   * @throws ScalepointError `CHANGED`
   */
  verify(): Promise<void>;
  /** Gives back what `openSource` opened itself. */
  close(): Promise<void>;
  /** How a worker reads the same bytes by itself; undefined where it cannot. */
  readonly reference?: SourceReference | undefined;
}

/** Bytes that another thread can read: a Blob, or an open file of this process (Node). */
export type SourceReference =
  | { readonly kind: 'blob'; readonly blob: Blob }
  | { readonly kind: 'descriptor'; readonly descriptor: number };

/** An open file of Node's `fs/promises`: what is used of it. */
export interface NodeFileHandle {
  /** The descriptor, by which workers read. */
  readonly fd?: number;
  read(buffer: Uint8Array, offset: number, length: number, position: number): Promise<{ readonly bytesRead: number }>;
  stat(): Promise<{ readonly size: number; readonly mtimeMs?: number; isFile(): boolean }>;
}

/** A file to read: its bytes, a Blob or File, a URL, in Node also a path or an open file (which stays open). */
export type FileInput = Uint8Array | ArrayBuffer | Blob | URL | string | NodeFileHandle;

/** A name for an error message: whole, unless it is absurdly long. */
export function quoted(name: string): string {
  return JSON.stringify(name.length > 300 ? `${name.slice(0, 297)}...` : name);
}

/** Zeroed memory. @throws ScalepointError `OUT_OF_MEMORY` */
export function allocate(bytes: number, hint: string): Uint8Array<ArrayBuffer> {
  try {
    return new Uint8Array(bytes);
  } catch (cause) {
    throw new ScalepointError('OUT_OF_MEMORY', `there is no memory for ${bytes} bytes${hint}`, { cause });
  }
}

/** The system's words for an error, without its code, its call and its path: `no such file or directory`. */
export function systemMessage(cause: unknown): string {
  const text = cause instanceof Error ? cause.message : String(cause);
  return /^[A-Z0-9]+: ([^,]+)/.exec(text)?.[1] ?? text;
}

export function ioError(what: string, cause: unknown): ScalepointError {
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
    async verify() {},
    async close() {},
  };
}

function blobSource(blob: Blob): ByteSource {
  const name = (blob as { name?: unknown }).name;
  return {
    size: blob.size,
    // Node ends when a worker reads a Blob of a file: there, this thread reads them.
    reference: nodeModule('node:fs') === undefined ? { kind: 'blob', blob } : undefined,
    ...(typeof name === 'string' && name !== '' ? { name } : {}),
    async read(begin, end) {
      checkRange(begin, end, blob.size);
      let bytes: Uint8Array<ArrayBuffer>;
      try {
        bytes = new Uint8Array(await blob.slice(begin, end).arrayBuffer());
      } catch (cause) {
        throw ioError('cannot read the file', cause);
      }
      if (bytes.length === end - begin) return bytes;
      throw new ScalepointError('CHANGED', 'the file became shorter while it was read', {
        byteOffset: begin + bytes.length,
      });
    },
    // Reading a File fails by itself once it has changed.
    async verify() {},
    async close() {},
  };
}

async function handleSource(handle: NodeFileHandle, label: string, close: () => Promise<void>): Promise<ByteSource> {
  const status = await handle.stat();
  if (!status.isFile()) throw new ScalepointError('IO', `cannot read ${label}: it is no regular file`);
  const { size } = status;
  const readInto = async (begin: number, target: Uint8Array) => {
    checkRange(begin, begin + target.length, size);
    let done = 0;
    while (done < target.length) {
      let count: number;
      try {
        count = (await handle.read(target, done, target.length - done, begin + done)).bytesRead;
      } catch (cause) {
        throw ioError(`cannot read ${label}`, cause);
      }
      if (count === 0) {
        throw new ScalepointError('CHANGED', `${label} became shorter while it was read`, {
          byteOffset: begin + done,
        });
      }
      done += count;
    }
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
      let now: typeof status;
      try {
        now = await handle.stat();
      } catch (cause) {
        throw ioError(`cannot read ${label}`, cause);
      }
      if (now.size === size && now.mtimeMs === status.mtimeMs) return;
      throw new ScalepointError('CHANGED', `${label} was changed while it was read`);
    },
    close,
    reference: handle.fd === undefined ? undefined : { kind: 'descriptor', descriptor: handle.fd },
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

/**
 * A file on a server, read by ranges where the server offers that, and fetched as a whole where it does not. A file that changes
 * meanwhile is noticed by its ETag or date.
 */
async function urlSource(url: URL): Promise<ByteSource> {
  if (url.protocol === 'file:' && nodeModule('node:fs/promises') !== undefined) return pathSource(url);
  const request = async (headers: Record<string, string>) => {
    let response: Response;
    try {
      response = await fetch(url, { credentials: 'same-origin', headers });
    } catch (cause) {
      throw ioError(`cannot fetch ${url.href}`, cause);
    }
    // 416: the file is empty, and has no range.
    if (!response.ok && response.status !== 416) {
      throw new ScalepointError('IO', `cannot fetch ${url.href}: the server answered ${response.status}`);
    }
    return response;
  };
  const received = async <T>(body: Promise<T>) => {
    try {
      return await body;
    } catch (cause) {
      throw ioError(`cannot fetch ${url.href}`, cause);
    }
  };
  const named = url.pathname.split('/').pop() ?? '';
  const name = named === '' ? {} : { name: named };
  const first = await request({ Range: 'bytes=0-0' });
  const size = Number(/^bytes 0-0\/(\d+)$/.exec(first.headers.get('content-range') ?? '')?.[1] ?? Number.NaN);
  if (first.status !== 206 || !Number.isSafeInteger(size)) {
    // A server without ranges answers with the whole file; one that hides its size is asked again.
    const whole = first.status === 200 ? first : await request({});
    return { ...blobSource(await received(whole.blob())), ...name };
  }
  await first.body?.cancel();
  const version = first.headers.get('etag') ?? first.headers.get('last-modified');
  return {
    size,
    ...name,
    async read(begin, end) {
      checkRange(begin, end, size);
      if (begin === end) return new Uint8Array(0);
      const response = await request({ Range: `bytes=${begin}-${end - 1}` });
      const now = response.headers.get('etag') ?? response.headers.get('last-modified');
      const bytes = new Uint8Array(
        response.status === 206 ? await received(response.arrayBuffer()) : new ArrayBuffer(0),
      );
      if (bytes.length !== end - begin || now !== version) {
        throw new ScalepointError('CHANGED', `${url.href} was changed while it was read`, { byteOffset: begin });
      }
      return bytes;
    },
    async verify() {},
    async close() {},
  };
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
