/**
 * Streams as files. Formats are read by position, so that a stream is read to its end first: in Node into a temporary file without a name,
 * which goes with its handle; elsewhere into a Blob, which browsers keep on disk if it is large.
 */
import { ScalepointError, typeError } from '../../core/errors.js';
import { nodeModule } from '../../core/node.js';
import { ofType } from '../../core/option-problem.js';
import { isBytes, tagOf } from '../../core/realms.js';
import { aMoment } from '../../core/waiting.js';
import { type ByteSource, ioError, missing, type StreamInput, tooLongError } from './bytes.js';
import { handleSource } from './handle.js';
import { urlFileName } from './url.js';

/** True for a stream of bytes. False for a folder of the browser, which lists its files by the same method. */
export function isStream(file: unknown): file is StreamInput {
  if (typeof file !== 'object' || file === null) return false;
  const tag = tagOf(file);
  if (tag === 'Response' || tag === 'ReadableStream') return true;
  return !('getFileHandle' in file) && typeof (file as AsyncIterable<unknown>)[Symbol.asyncIterator] === 'function';
}

/** A stream of the web over one of Node, or over a generator. */
function streamOver(iterable: AsyncIterable<Uint8Array>): ReadableStream<Uint8Array> {
  const iterator = iterable[Symbol.asyncIterator]();
  return new ReadableStream({
    async pull(controller) {
      const { done, value } = await iterator.next();
      if (done) controller.close();
      else controller.enqueue(value);
    },
    async cancel() {
      await iterator.return?.();
    },
  });
}

/** The bytes of a stream that nobody has read, with the file's name if it is known. */
function opened(file: StreamInput): { readonly body: ReadableStream<Uint8Array>; readonly name: string } {
  const read = { kind: 'state', state: 'unread' } as const;
  if (tagOf(file) === 'Response') {
    const { ok, status, url, body, bodyUsed } = file as Response;
    if (!ok) {
      const cause = status === 404 ? { cause: Object.assign(new Error('not found'), { code: missing }) } : {};
      throw new ScalepointError('IO', `cannot fetch ${url || 'the file'}: the server answered ${status}`, cause);
    }
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
  return { body: streamOver(file as AsyncIterable<Uint8Array>), name };
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

/** Collects chunks in a Blob. */
function blobOfChunks() {
  const parts: Blob[] = [];
  let chunks: Uint8Array<ArrayBuffer>[] = [];
  let held = 0;
  const fold = () => {
    parts.push(new Blob(chunks));
    chunks = [];
    held = 0;
  };
  return {
    add(chunk: Uint8Array<ArrayBuffer>) {
      chunks.push(chunk);
      held += chunk.length;
      if (held >= partBytes) fold();
    },
    end() {
      fold();
      return new Blob(parts);
    },
  };
}

/**
 * Reads a stream to its end, and opens its bytes.
 * @param blobSource opens a Blob
 * @param most bytes of it; no limit by default
 * @throws TypeError if the stream was read before or has other chunks than bytes; ScalepointError `IO`, or `BAD_FILE` for more bytes
 */
export async function streamSource(
  file: StreamInput,
  signal: AbortSignal | undefined,
  blobSource: (blob: Blob) => ByteSource,
  most = Infinity,
): Promise<ByteSource> {
  const { body, name } = opened(file);
  const label = name === '' ? 'the stream' : name;
  const named = name === '' ? {} : { name };
  const reader = body.getReader();
  const cancel = (reason: unknown) => void reader.cancel(reason).catch(() => {});
  const stop = () => cancel(signal?.reason);
  signal?.addEventListener('abort', stop);
  const handle = await temporaryFile(label);
  try {
    const blob = handle === undefined ? blobOfChunks() : undefined;
    let size = 0;
    for (;;) {
      const { done, value } = await reader.read();
      signal?.throwIfAborted();
      if (done) break;
      if (!isBytes(value)) throw typeError('file', ofType('stream of Uint8Array'), value);
      if (size + value.length > most) throw tooLongError(label, most);
      blob?.add(value as Uint8Array<ArrayBuffer>);
      for (let begin = 0; handle !== undefined && begin < value.length; ) {
        begin += (await handle.write(value, begin, value.length - begin, size + begin)).bytesWritten;
      }
      size += value.length;
    }
    const source = handle && (await handleSource(handle, label, () => handle.close()));
    return { ...(source ?? blobSource((blob as ReturnType<typeof blobOfChunks>).end())), ...named };
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
