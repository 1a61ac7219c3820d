/** Opens files to read: bytes in memory, Blobs, URLs, and in Node paths and open files. */

import { rangeError, ScalepointError, typeError } from '../../core/errors.js';
import { nodeModule } from '../../core/node.js';
import { ofType } from '../../core/option-problem.js';
import { isBuffer, isBytes, tagOf } from '../../core/realms.js';
import { aMoment, type Waiting, waitingFor } from '../../core/waiting.js';
import {
  answerError,
  type ByteSource,
  checkLength,
  checkRange,
  type FarFile,
  type FileInput,
  type InputFile,
  ioError,
  isFarFile,
  readBlob,
  readsInto,
  type StreamInput,
  tooLongError,
} from './bytes.js';
import { handleSource, pathSource } from './handle.js';
import { urlFile } from './ranged.js';

/** Types of the option `file`. */
const fileForm = ofType('Uint8Array', 'ArrayBuffer', 'Blob', 'Response', 'stream', 'URL', 'path', 'open file');

/** Texts that are URLs, not paths. */
const address = /^(https?:\/\/|file:\/\/|blob:)/i;

/** The URL of a text that begins like one; other inputs as they are. @throws RangeError naming `file` */
export function withAddress<T>(input: T): T | URL {
  if (typeof input !== 'string' || !address.test(input)) return input;
  try {
    return new URL(input);
  } catch {
    throw rangeError('file', { kind: 'text', form: 'a URL', examples: ['https://example.org/model.gguf'] }, input);
  }
}

/** A source in memory. Reads copy the bytes, because the caller may transfer or resize the buffer at any time. */
function memorySource(given: Uint8Array | ArrayBuffer): ByteSource {
  let bytes: Uint8Array;
  try {
    bytes = isBytes(given) ? given : new Uint8Array(given);
    // A detached buffer looks like an empty one, but no view of it can be made.
    if (bytes.byteLength === 0) new Uint8Array(bytes.buffer);
  } catch (cause) {
    throw typeError('file', { kind: 'state', state: 'attached' }, given, undefined, cause);
  }
  const size = bytes.byteLength;
  const { buffer, byteOffset } = bytes;
  const fill = async (begin: number, target: Uint8Array) => {
    let view: Uint8Array | undefined;
    try {
      // Making a view fails, or the view is empty, if the buffer shrank or was detached.
      view = new Uint8Array(buffer, byteOffset, size);
    } catch {
      // The check below throws.
    }
    if (view?.length !== size) {
      const message = 'the array was changed while it was read: its buffer was detached, or shrank below it';
      throw new ScalepointError('CHANGED', message, { byteOffset: begin });
    }
    target.set(view.subarray(begin, begin + target.length));
  };
  return { ...readsInto(size, fill), verify: () => fill(0, new Uint8Array(0)), async close() {} };
}

/** Bytes of one read of a Blob. Each read allocates memory, which then becomes garbage. */
const blobChunk = 1 << 18;

function blobSource(blob: Blob): ByteSource {
  const name = (blob as { name?: unknown }).name;
  const { size } = blob;
  return {
    size,
    isFar: true,
    // Node crashes if a worker reads a Blob of a file.
    reference: nodeModule('node:fs') === undefined ? { kind: 'blob', blob } : undefined,
    ...(typeof name === 'string' && name !== '' ? { name } : {}),
    async read(begin, end) {
      checkRange(begin, end, size);
      try {
        return new Uint8Array(await blob.slice(begin, end).arrayBuffer());
      } catch (cause) {
        throw ioError('cannot read the file', cause);
      }
    },
    async readInto(begin, target) {
      checkRange(begin, begin + target.length, size);
      await readBlob(blob, begin, target, blobChunk);
    },
    // Reading a File that has changed fails by itself.
    async verify() {},
    async close() {},
  };
}

// ---------------------------------------------------------------------------------------------------------------------- servers

/** A name in a URL, decoded; unchanged if the result would not be a name. */
export function decodedName(encoded: string): string {
  try {
    const name = decodeURIComponent(encoded);
    // A slash in a name would make it a path.
    return /[/\\]/.test(name) ? encoded : name;
  } catch {
    return encoded;
  }
}

/** The name of the file at a URL. */
export const urlFileName = ({ pathname }: URL): string => decodedName(pathname.split('/').pop() ?? '');

/** A file of a server or of a hub: a source, or in another place. */
async function farSource(file: Pick<FarFile, 'name' | 'open'>, signal: AbortSignal | undefined): Promise<ByteSource> {
  const found = (await file.open(signal)) as ByteSource | Blob | string;
  const source =
    found instanceof Blob ? blobSource(found) : typeof found === 'string' ? await pathSource(found) : found;
  return { ...source, ...(file.name === '' ? {} : { name: file.name }) };
}

// ---------------------------------------------------------------------------------------------------------------------- streams

/** True for a stream of bytes. False for a folder of the browser, which lists its files by the same method. */
function isStream(file: unknown): file is StreamInput {
  if (typeof file !== 'object' || file === null) return false;
  const tag = tagOf(file);
  if (tag === 'Response' || tag === 'ReadableStream') return true;
  return !('getFileHandle' in file) && typeof (file as AsyncIterable<unknown>)[Symbol.asyncIterator] === 'function';
}

/** The bytes of a stream that nobody has read, with the file's name if it is known. */
function unreadStream(file: StreamInput): { readonly body: ReadableStream<Uint8Array>; readonly name: string } {
  const read = { kind: 'state', state: 'unread' } as const;
  if (tagOf(file) === 'Response') {
    const { ok, status, url, body, bodyUsed } = file as Response;
    if (!ok) throw answerError(url || 'the file', status);
    if (bodyUsed || body === null) throw typeError('file', read, file);
    if (body.locked) throw typeError('file', { kind: 'state', state: 'unlocked' }, file);
    return { body, name: url === '' ? '' : urlFileName(new URL(url)) };
  }
  if (tagOf(file) === 'ReadableStream') {
    const body = file as ReadableStream<Uint8Array>;
    if (body.locked) throw typeError('file', { kind: 'state', state: 'unlocked' }, file);
    return { body, name: '' };
  }
  const { destroyed, readableEnded, path } = file as { destroyed?: unknown; readableEnded?: unknown; path?: unknown };
  if (destroyed === true || readableEnded === true) throw typeError('file', read, file);
  const name = typeof path === 'string' ? (path.split(/[\\/]/).pop() ?? '') : '';
  // A stream of the web over one of Node, or over a generator.
  const iterator = (file as AsyncIterable<Uint8Array>)[Symbol.asyncIterator]();
  const body = new ReadableStream<Uint8Array>({
    async pull(controller) {
      const { done, value } = await iterator.next();
      if (done) controller.close();
      else controller.enqueue(value);
    },
    async cancel() {
      await iterator.return?.();
    },
  });
  return { body, name };
}

/** A file of Node's folder for temporary files, without a name, so that it goes with its handle even if the process is killed. */
async function temporaryFile(label: string) {
  const [fs, os, paths] = [nodeModule('node:fs/promises'), nodeModule('node:os'), nodeModule('node:path')];
  if (fs === undefined || os === undefined || paths === undefined) return undefined;
  const path = paths.join(os.tmpdir(), `scalepoint-${globalThis.crypto.randomUUID()}`);
  try {
    const handle = await fs.open(path, 'wx+', 0o600);
    await fs.rm(path, { force: true });
    return handle;
  } catch (cause) {
    throw ioError(`cannot make a temporary file for ${label}`, cause, path);
  }
}

/** Bytes after which a browser may put a part of a Blob on disk. */
const partBytes = 1 << 24;

/**
 * Reads a stream to its end, and opens its bytes. Formats are read by position. The bytes go in Node into a temporary file without a name,
 * which goes with its handle; elsewhere into a Blob, which browsers keep on disk if it is large.
 * @param most bytes of it; no limit by default
 * @throws TypeError if the stream was read before or has other chunks than bytes; ScalepointError `IO`, or `BAD_FILE` for more bytes
 */
async function streamSource(file: StreamInput, signal: AbortSignal | undefined, most = Infinity): Promise<ByteSource> {
  const { body, name } = unreadStream(file);
  const label = name === '' ? 'the stream' : name;
  const named = name === '' ? {} : { name };
  const reader = body.getReader();
  const cancel = (reason: unknown) => void reader.cancel(reason).catch(() => {});
  const stop = () => cancel(signal?.reason);
  signal?.addEventListener('abort', stop);
  const handle = await temporaryFile(label);
  try {
    const parts: Blob[] = [];
    let chunks: Uint8Array<ArrayBuffer>[] = [];
    let size = 0;
    for (let held = 0; ; ) {
      const { done, value } = await reader.read();
      signal?.throwIfAborted();
      if (done) break;
      if (!isBytes(value)) throw typeError('file', ofType('stream of Uint8Array'), value);
      if (size + value.length > most) throw tooLongError(label, most);
      for (let begin = 0; handle !== undefined && begin < value.length; ) {
        begin += (await handle.write(value, begin, value.length - begin, size + begin)).bytesWritten;
      }
      size += value.length;
      if (handle !== undefined) continue;
      chunks.push(value as Uint8Array<ArrayBuffer>);
      held += value.length;
      if (held < partBytes) continue;
      parts.push(new Blob(chunks));
      [chunks, held] = [[], 0];
    }
    const source = handle && (await handleSource(handle, label, () => handle.close()));
    return { ...(source ?? blobSource(new Blob([...parts, ...chunks]))), ...named };
  } catch (cause) {
    cancel(cause);
    if (handle !== undefined) await aMoment(handle.close());
    signal?.throwIfAborted();
    if (cause instanceof ScalepointError || (cause instanceof TypeError && 'option' in cause)) throw cause;
    throw ioError(`cannot read ${label}`, cause);
  } finally {
    signal?.removeEventListener('abort', stop);
  }
}

// ---------------------------------------------------------------------------------------------------------------------- opening

/** True for a file handle of the browser. */
export function isHandle(file: unknown): file is FileSystemFileHandle {
  return typeof (file as Partial<FileSystemFileHandle> | null | undefined)?.getFile === 'function';
}

/** The File of a handle; other inputs as they are. @throws ScalepointError `IO` */
export async function fileOfHandle(input: FileInput | FileSystemFileHandle): Promise<{ readonly file: FileInput }> {
  // An object, because a promise that was given in place of a file must not be awaited here.
  if (!isHandle(input)) return { file: input };
  try {
    return { file: await input.getFile() };
  } catch (cause) {
    throw ioError('cannot read the file', cause);
  }
}

/** True if a value has the type of a file to read. */
export function isFileInput(file: unknown): file is FileInput {
  if (file instanceof Uint8Array || file instanceof ArrayBuffer || file instanceof Blob || file instanceof URL)
    return true;
  if (typeof file === 'string' || isStream(file) || isFarFile(file)) return true;
  if (typeof file !== 'object' || file === null) return false;
  const { read, stat } = file as { read?: unknown; stat?: unknown };
  return typeof read === 'function' && typeof stat === 'function';
}

/**
 * Opens a file for reading by position. All calls of the source end as soon as the signal aborts.
 * @param most bytes to fetch at once from a server without ranges, which may send without end; no limit by default
 * @throws TypeError if `file` cannot be read, ScalepointError `IO` if it cannot be opened, the signal's reason
 */
export async function openWithin({ signal, soon }: Waiting, file: FileInput, most?: number): Promise<ByteSource> {
  signal?.throwIfAborted();
  const input = withAddress(file);
  let opening: ByteSource | Promise<ByteSource>;
  if (isBytes(input) || isBuffer(input)) opening = memorySource(input);
  else if (input instanceof Blob) opening = blobSource(input);
  else if (input instanceof URL && input.protocol === 'file:' && nodeModule('node:fs/promises') !== undefined)
    opening = pathSource(input);
  else if (input instanceof URL) {
    const open = () => urlFile(input).open(signal, most);
    opening = farSource({ name: urlFileName(input), open }, signal);
  } else if (isFarFile(input)) opening = farSource(input, signal);
  else if (typeof input === 'string') opening = pathSource(input);
  else if (isStream(input)) opening = streamSource(input, signal, most);
  else if (isFileInput(input)) opening = handleSource(input, 'the open file', async () => {});
  else throw typeError('file', fileForm, input);
  const source = await soon(Promise.resolve(opening), (late) => void aMoment(late.close()));
  const { readInto } = source;
  return {
    ...source,
    async read(begin, end) {
      const bytes = await soon(source.read(begin, end));
      checkLength(bytes.length, end - begin, 'the file', begin);
      return bytes;
    },
    readInto: readInto && ((begin, target) => soon(readInto(begin, target))),
    verify: () => soon(source.verify()),
    // After an abort, a read may hang. Closing must not wait for it.
    close: () => (signal?.aborted ? aMoment(source.close()) : source.close()),
  };
}

/** Notes files among those that a call reads. */
export interface InputNotes {
  readonly inputs: InputFile[];
  /** The option that names the file. */
  readonly option: string;
}

/**
 * `openWithin` for a call that writes files: notes the file among those that it reads.
 * @param given the input that the file comes from, if that is another one
 */
export async function openInput(
  waiting: Waiting,
  file: FileInput,
  { inputs, option }: InputNotes,
  { given = file, most }: { readonly given?: unknown; readonly most?: number } = {},
): Promise<ByteSource> {
  const source = await openWithin(waiting, file, most);
  const identity = isHandle(given) ? { handle: given, fileId: undefined } : source.identity;
  if (identity !== undefined) inputs.push({ ...identity, option });
  return source;
}

/** `openWithin` without a signal. */
export function openSource(file: FileInput): Promise<ByteSource> {
  return openWithin(waitingFor(undefined), file);
}
