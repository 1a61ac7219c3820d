/** Opens files to read: bytes in memory, Blobs, URLs, and in Node paths and open files. */

import { rangeError, ScalepointError, typeError } from '../../core/errors.js';
import { nodeModule } from '../../core/node.js';
import { ofType } from '../../core/option-problem.js';
import { isBuffer, isBytes } from '../../core/realms.js';
import { aMoment, type Waiting, waitingFor } from '../../core/waiting.js';
import {
  allocate,
  type ByteSource,
  checkLength,
  checkRange,
  type FileInput,
  type InputFile,
  ioError,
} from './bytes.js';
import { handleSource, pathSource } from './handle.js';
import { isStream, streamSource } from './stream.js';
import { urlSource } from './url.js';

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

function detachedError(bytes: unknown, cause: unknown): TypeError {
  return typeError('file', { kind: 'state', state: 'attached' }, bytes, undefined, cause);
}

/** All bytes of a buffer. @throws TypeError if it is detached */
function bytesOf(buffer: ArrayBuffer): Uint8Array {
  try {
    return new Uint8Array(buffer);
  } catch (cause) {
    throw detachedError(buffer, cause);
  }
}

/** A source in memory. Reads copy the bytes, because the caller may transfer or resize the buffer at any time. */
function memorySource(bytes: Uint8Array): ByteSource {
  try {
    // A detached buffer looks like an empty one, but no view of it can be made.
    if (bytes.byteLength === 0) new Uint8Array(bytes.buffer);
  } catch (cause) {
    throw detachedError(bytes, cause);
  }
  const size = bytes.byteLength;
  const { buffer, byteOffset } = bytes;
  /** All of the bytes. Making a view fails, or the view is empty, if the buffer shrank or was detached. */
  const current = (begin: number): Uint8Array => {
    let view: Uint8Array | undefined;
    try {
      view = new Uint8Array(buffer, byteOffset, size);
    } catch {
      // The check below throws.
    }
    if (view?.length === size) return view;
    const message = 'the array was changed while it was read: its buffer was detached, or shrank below it';
    throw new ScalepointError('CHANGED', message, { byteOffset: begin });
  };
  const copy = (begin: number, target: Uint8Array) => {
    checkRange(begin, begin + target.length, size);
    target.set(current(begin).subarray(begin, begin + target.length));
  };
  return {
    size,
    async readInto(begin, target) {
      copy(begin, target);
    },
    async read(begin, end) {
      checkRange(begin, end, size);
      const target = allocate(end - begin, ' at once');
      copy(begin, target);
      return target;
    },
    async verify() {
      current(0);
    },
    async close() {},
  };
}

/** Bytes of one read of a Blob. Each read allocates memory, which then becomes garbage. */
const blobChunk = 1 << 18;

function blobSource(blob: Blob): ByteSource {
  const name = (blob as { name?: unknown }).name;
  const { size } = blob;
  const bytesOf = async (begin: number, end: number) => {
    try {
      return new Uint8Array(await blob.slice(begin, end).arrayBuffer());
    } catch (cause) {
      throw ioError('cannot read the file', cause);
    }
  };
  return {
    size,
    isFar: true,
    // Node crashes if a worker reads a Blob of a file.
    reference: nodeModule('node:fs') === undefined ? { kind: 'blob', blob } : undefined,
    ...(typeof name === 'string' && name !== '' ? { name } : {}),
    async read(begin, end) {
      checkRange(begin, end, size);
      return bytesOf(begin, end);
    },
    async readInto(begin, target) {
      checkRange(begin, begin + target.length, size);
      for (let done = 0; done < target.length; done += blobChunk) {
        const end = Math.min(target.length, done + blobChunk);
        const bytes = await bytesOf(begin + done, begin + end);
        checkLength(bytes.length, end - done, 'the file', begin + done);
        target.set(bytes, done);
      }
    },
    // Reading a File that has changed fails by itself.
    async verify() {},
    async close() {},
  };
}

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
  if (typeof file === 'string' || isStream(file)) return true;
  if (typeof file !== 'object' || file === null) return false;
  const { read, stat } = file as { read?: unknown; stat?: unknown };
  return typeof read === 'function' && typeof stat === 'function';
}

function opened(given: FileInput, signal: AbortSignal | undefined, most?: number): Promise<ByteSource> | ByteSource {
  const file = withAddress(given);
  if (isBytes(file)) return memorySource(file);
  if (isBuffer(file)) return memorySource(bytesOf(file));
  if (file instanceof Blob) return blobSource(file);
  if (file instanceof URL) return urlSource(file, signal, blobSource, most);
  if (typeof file === 'string') return pathSource(file);
  if (isStream(file)) return streamSource(file, signal, blobSource, most);
  if (isFileInput(file)) return handleSource(file, 'the open file', async () => {});
  throw typeError('file', fileForm, file);
}

/**
 * Opens a file for reading by position. All calls of the source end as soon as the signal aborts.
 * @param most bytes to fetch at once from a server without ranges, which may send without end; no limit by default
 * @throws TypeError if `file` cannot be read, ScalepointError `IO` if it cannot be opened, the signal's reason
 */
export async function openWithin({ signal, soon }: Waiting, file: FileInput, most?: number): Promise<ByteSource> {
  signal?.throwIfAborted();
  const source = await soon(Promise.resolve(opened(file, signal, most)), (late) => void aMoment(late.close()));
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
