/**
 * Files to read: bytes in memory, Blobs, URLs, and in Node paths and open files. Everything is read by position, so that a file of any
 * size is handled piece by piece. Node's file system is reached through `process.getBuiltinModule` and never imported, so that this file
 * loads in a browser as it is.
 */

import { ScalepointError, typeError } from '../core/errors.js';
import { type NodeFileHandle, nodeModule, type WritableFileHandle } from '../core/node.js';
import { show } from '../core/show.js';

export type { NodeFileHandle } from '../core/node.js';

/** Bytes that can be read from any position. */
export interface ByteSource {
  /** Number of bytes. */
  readonly size: number;
  /** File name without its folder, if there is one. */
  readonly name?: string;
  /**
   * The bytes [begin, end). The result may be a view of memory that belongs to the caller of the library: never write into it.
   * @throws ScalepointError `BAD_FILE` if the range leaves the source, `IO` if reading fails
   */
  read(begin: number, end: number): Promise<Uint8Array<ArrayBuffer>>;
  /** Like `read`, but from `begin` on into memory that is there already. Undefined if `read` is as good. */
  readonly readInto?: ((begin: number, target: Uint8Array) => Promise<void>) | undefined;
  /**
   * Fails if the bytes are no longer those that were opened.
   * @throws ScalepointError `CHANGED`
   */
  verify(): Promise<void>;
  /** Closes what `openSource` opened. */
  close(): Promise<void>;
  /** How a worker reads the same bytes by itself; undefined if it cannot. */
  readonly reference?: SourceReference | undefined;
}

/** Bytes that another thread can read: a Blob, or an open file of this process (Node). */
export type SourceReference =
  | { readonly kind: 'blob'; readonly blob: Blob }
  | { readonly kind: 'descriptor'; readonly descriptor: number };

/** A file to read: its bytes, a Blob or File, a URL, in Node also a path or an open file (which stays open). */
export type FileInput = Uint8Array | ArrayBuffer | Blob | URL | string | NodeFileHandle;

/** A name for an error message, cut if it is absurdly long. */
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

/** The system's text for an error without code, call and path, such as `no such file or directory`. */
export function systemMessage(cause: unknown): string {
  const text = cause instanceof Error ? cause.message : String(cause);
  return /^[A-Z0-9]+: ([^,]+)/.exec(text)?.[1] ?? text;
}

/** The error for a failure of the system. */
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
    // A detached buffer looks like an empty one, but no view of it can be made.
    if (bytes.byteLength === 0) new Uint8Array(bytes.buffer);
  } catch (cause) {
    throw Object.assign(typeError('file', 'the array is detached, its memory was transferred elsewhere'), { cause });
  }
  const size = bytes.byteLength;
  // Text decoders and files refuse shared memory, so that it is copied.
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
    // Node crashes if a worker reads a Blob of a file. There this thread reads them.
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
    // Reading a File that has changed fails by itself.
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
    throw typeError('file', `paths are for Node; pass a File, bytes or a URL instead of ${quoted(String(path))}`);
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

/** Asks a server. @throws ScalepointError `IO` */
async function request(url: URL, headers: Record<string, string>): Promise<Response> {
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
}

/** The body of an answer. @throws ScalepointError `IO` */
async function received<T>(url: URL, body: Promise<T>): Promise<T> {
  try {
    return await body;
  } catch (cause) {
    throw ioError(`cannot fetch ${url.href}`, cause);
  }
}

/** What tells versions of a file apart. */
function versionOf({ headers }: Response): string | null {
  return headers.get('etag') ?? headers.get('last-modified');
}

/**
 * A file on a server, read by ranges if the server offers them, and otherwise fetched as a whole. A file that changes meanwhile is
 * noticed by its ETag or date.
 */
async function urlSource(url: URL): Promise<ByteSource> {
  if (url.protocol === 'file:' && nodeModule('node:fs/promises') !== undefined) return pathSource(url);
  const named = url.pathname.split('/').pop() ?? '';
  const name = named === '' ? {} : { name: named };
  const first = await request(url, { Range: 'bytes=0-0' });
  const size = Number(/^bytes 0-0\/(\d+)$/.exec(first.headers.get('content-range') ?? '')?.[1] ?? Number.NaN);
  if (first.status !== 206 || !Number.isSafeInteger(size)) {
    // A server without ranges answers with the whole file. One that hides the size is asked again.
    const whole = first.status === 200 ? first : await request(url, {});
    return { ...blobSource(await received(url, whole.blob())), ...name };
  }
  await first.body?.cancel();
  const version = versionOf(first);
  return {
    size,
    ...name,
    async read(begin, end) {
      checkRange(begin, end, size);
      if (begin === end) return new Uint8Array(0);
      const response = await request(url, { Range: `bytes=${begin}-${end - 1}` });
      const body = response.status === 206 ? await received(url, response.arrayBuffer()) : new ArrayBuffer(0);
      if (body.byteLength !== end - begin || versionOf(response) !== version) {
        throw new ScalepointError('CHANGED', `${url.href} was changed while it was read`, { byteOffset: begin });
      }
      return new Uint8Array(body);
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
  throw typeError('file', `expected bytes, a Blob, a URL, a path or an open file, got ${show(file)}`);
}
