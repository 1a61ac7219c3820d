/** Files on a server. */
import { ScalepointError } from '../../core/errors.js';
import { nodeModule } from '../../core/node.js';
import { allocate, type ByteSource, checkRange, ioError, missing, shorterError, tooLongError } from './bytes.js';
import { pathSource } from './handle.js';

/** A file to fetch, until a signal aborts. */
interface RemoteFile {
  readonly url: URL;
  readonly signal: AbortSignal | undefined;
}

/** Asks a server. @throws ScalepointError `IO` */
async function request({ url, signal }: RemoteFile, headers: Record<string, string>): Promise<Response> {
  let response: Response;
  try {
    response = await fetch(url, { credentials: 'same-origin', headers, signal: signal ?? null });
  } catch (cause) {
    // Node's fetch keeps the reason in the error's own cause.
    const reason = (cause as { cause?: unknown } | null)?.cause;
    const tells = reason instanceof Error && reason.message !== '';
    throw ioError(`cannot fetch ${url.href}`, tells ? reason : cause);
  }
  // 416: the file is empty, and has no range.
  if (response.ok || response.status === 416) return response;
  drop(response);
  const { status } = response;
  const cause = status === 404 ? { cause: Object.assign(new Error('not found'), { code: missing }) } : {};
  throw new ScalepointError('IO', `cannot fetch ${url.href}: the server answered ${status}`, cause);
}

/** Cancels a response whose body is not needed. */
function drop({ body }: Response): void {
  body?.cancel().catch(() => {});
}

/** The version of a file, if the server reports one. */
function versionOf({ headers }: Response): string | null {
  return headers.get('etag') ?? headers.get('last-modified');
}

/** The range of the file in a response. `size` is undefined if the server hides it. */
function rangeOf({ status, headers }: Response): { begin: number; last: number; size: number | undefined } | undefined {
  const [, begin, last, size] = /^bytes (\d+)-(\d+)\/(\d+|\*)$/i.exec(headers.get('content-range') ?? '') ?? [];
  if (status !== 206 || begin === undefined) return undefined;
  return { begin: Number(begin), last: Number(last), size: size === '*' ? undefined : Number(size) };
}

/** Reads the body of a response, which has to fill memory exactly. @throws ScalepointError `IO` if it is longer, `CHANGED` if it is shorter */
async function takeBody({ url }: RemoteFile, response: Response, begin: number, target: Uint8Array): Promise<void> {
  const { length } = target;
  const reader = response.body?.getReader();
  let done = 0;
  for (;;) {
    let chunk: Awaited<ReturnType<ReadableStreamDefaultReader<Uint8Array>['read']>> | undefined;
    try {
      chunk = await reader?.read();
    } catch (cause) {
      throw ioError(`cannot fetch ${url.href}`, cause);
    }
    if (chunk === undefined || chunk.done) break;
    const { value } = chunk;
    if (value.length > length - done) {
      reader?.cancel().catch(() => {});
      throw new ScalepointError(
        'IO',
        `cannot fetch ${url.href}: the server sent more than the ${length} bytes asked for`,
      );
    }
    target.set(value, done);
    done += value.length;
  }
  if (done < length) throw shorterError(url.href, begin + done);
}

/** Fetches bytes into memory from a file of known size and version. */
async function fetchRange(file: RemoteFile, begin: number, target: Uint8Array, size: number, version: string | null) {
  const { href } = file.url;
  const end = begin + target.length;
  const response = await request(file, { Range: `bytes=${begin}-${end - 1}` });
  const range = rangeOf(response);
  const isSame = versionOf(response) === version && (range?.size === undefined || range.size === size);
  if (isSame && range?.begin === begin && range.last === end - 1) return takeBody(file, response, begin, target);
  drop(response);
  if (!isSame || response.status !== 206) {
    throw new ScalepointError('CHANGED', `${href} was changed while it was read`, { byteOffset: begin });
  }
  const got = response.headers.get('content-range') ?? 'no range';
  const message = `cannot fetch ${href}: the server sent ${got} instead of bytes ${begin}-${end - 1}`;
  throw new ScalepointError('IO', message, { byteOffset: begin });
}

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

/** A stream that fails behind a number of bytes. @throws ScalepointError `BAD_FILE` */
function limited(body: ReadableStream<Uint8Array>, most: number, label: string): ReadableStream<Uint8Array> {
  let left = most;
  return body.pipeThrough(
    new TransformStream({
      transform(chunk, controller) {
        left -= chunk.length;
        if (left < 0) throw tooLongError(label, most);
        controller.enqueue(chunk);
      },
    }),
  );
}

/** A source of the whole file, from a server without ranges. @param first its response to a request for a range */
async function fetchWhole(
  file: RemoteFile,
  first: Response,
  wholeSource: (blob: Blob) => ByteSource,
  most: number | undefined,
): Promise<ByteSource> {
  const { href } = file.url;
  // A server without ranges sends the whole file. A server that hides the size is asked again.
  if (first.status !== 200) drop(first);
  const whole = first.status === 200 ? first : await request(file, {});
  if (whole.status !== 200) {
    drop(whole);
    throw new ScalepointError(
      'IO',
      `cannot fetch ${href}: the server answered ${whole.status} instead of the whole file`,
    );
  }
  try {
    const { body } = whole;
    const isLimited = most !== undefined && body !== null;
    return wholeSource(await (isLimited ? new Response(limited(body, most, href)) : whole).blob());
  } catch (cause) {
    if (cause instanceof ScalepointError) throw cause;
    throw ioError(`cannot fetch ${href}`, cause);
  }
}

/**
 * A file on a server, read by ranges if the server offers them, and otherwise fetched as a whole. Changes in between are noticed by size,
 * ETag or date.
 * @param wholeSource makes a source of a file that was fetched as a whole
 * @param most bytes of such a file
 */
export async function urlSource(
  url: URL,
  signal: AbortSignal | undefined,
  wholeSource: (blob: Blob) => ByteSource,
  most?: number,
): Promise<ByteSource> {
  if (url.protocol === 'file:' && nodeModule('node:fs/promises') !== undefined) return pathSource(url);
  const file = { url, signal };
  const name = urlFileName(url);
  const named = name === '' ? {} : { name };
  const first = await request(file, { Range: 'bytes=0-0' });
  const range = rangeOf(first);
  const size = range?.size;
  if (range?.begin !== 0 || range.last !== 0 || size === undefined || !Number.isSafeInteger(size)) {
    return { ...(await fetchWhole(file, first, wholeSource, most)), ...named };
  }
  drop(first);
  const version = versionOf(first);
  return {
    size,
    ...named,
    isFar: true,
    async read(begin, end) {
      checkRange(begin, end, size);
      const target = allocate(end - begin, ' at once');
      if (begin < end) await fetchRange(file, begin, target, size, version);
      return target;
    },
    async readInto(begin, target) {
      checkRange(begin, begin + target.length, size);
      if (target.length > 0) await fetchRange(file, begin, target, size, version);
    },
    async verify() {},
    async close() {},
  };
}
