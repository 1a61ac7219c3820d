/**
 * Files on servers, read by ranges. An address to which the server redirects, such as a signed one, is asked until it expires. What fails in
 * passing is tried again: only the bytes that are missing, and not before the server wants to be asked.
 */
import { ScalepointError } from '../../core/errors.js';
import { answerError, type ByteSource, ioError, readsInto, shrunkError, tooLongError } from './bytes.js';
import { WindowReader } from './windows.js';

/** A file on a server. */
export interface RangedServer {
  /** Its name in errors. */
  readonly label: string;
  readonly address: URL;
  /** Its size in bytes, if that is known before. */
  readonly size?: number | undefined;
  /** Seconds without a byte after which the rest is asked for again. */
  readonly seconds?: number | undefined;
  /** Asks an address of the file: its own, or the last one to which that led, which `url` of the response states. */
  fetch(address: URL, headers: Record<string, string>, signal: AbortSignal | undefined): Promise<Response>;
  /** The error for an answer without bytes. Reads the body or cancels it. */
  refusal(response: Response): Promise<ScalepointError>;
}

/** Cancels a response whose body is not needed. */
export function drop({ body }: Response): void {
  body?.cancel().catch(() => {});
}

/** The error for a request without an answer. Node's fetch keeps the reason in the error's own cause, and browsers keep it to themselves. */
export function fetchError(label: string, cause: unknown): ScalepointError {
  const reason = (cause as { cause?: unknown } | null)?.cause;
  if (cause instanceof TypeError && reason === undefined) {
    const why = 'no answer; the connection may be down, or the server may not let this page read it';
    return new ScalepointError('IO', `cannot fetch ${label}: ${why}`, { cause });
  }
  return ioError(`cannot fetch ${label}`, reason instanceof Error && reason.message !== '' ? reason : cause);
}

/** The error for a server that sends nothing. */
export class StalledError extends ScalepointError {
  constructor(label: string, seconds: number) {
    super('IO', `cannot fetch ${label}: nothing came for ${seconds} s`);
  }
}

/** Waits for what a server sends, and calls `giveUp` after some seconds. A busy thread takes what has come before that. */
async function within<T>(seconds: number | undefined, coming: Promise<T>, giveUp: () => void): Promise<T> {
  if (seconds === undefined) return coming;
  let timer = setTimeout(() => {
    timer = setTimeout(giveUp);
  }, seconds * 1000);
  return coming.finally(() => clearTimeout(timer));
}

/** Sends a request, and gives up after some seconds without an answer. @throws ScalepointError `IO` then */
export async function answered(
  label: string,
  { seconds, signal }: { readonly seconds: number | undefined; readonly signal: AbortSignal | null | undefined },
  send: (signal: AbortSignal) => Promise<Response>,
): Promise<Response> {
  const own = new AbortController();
  const stop = () => own.abort(signal?.reason);
  if (signal?.aborted) stop();
  signal?.addEventListener('abort', stop, { once: true });
  try {
    return await within(seconds, send(own.signal), () => own.abort(new StalledError(label, seconds as number)));
  } finally {
    signal?.removeEventListener('abort', stop);
  }
}

/** The bytes of a body as they come. @throws ScalepointError `IO` after some seconds without one, or the signal's reason */
export async function* bytesOf(
  { body }: Response,
  label: string,
  { seconds, signal }: { readonly seconds?: number | undefined; readonly signal: AbortSignal | undefined },
): AsyncGenerator<Uint8Array> {
  const reader = body?.getReader();
  if (reader === undefined) return;
  const stop = () => void reader.cancel().catch(() => {});
  signal?.addEventListener('abort', stop, { once: true });
  let isStalled = false;
  const giveUp = () => {
    isStalled = true;
    stop();
  };
  try {
    for (;;) {
      const { done, value } = await within(seconds, reader.read(), giveUp);
      signal?.throwIfAborted();
      if (isStalled) throw new StalledError(label, seconds as number);
      if (done) return;
      yield value;
    }
  } finally {
    signal?.removeEventListener('abort', stop);
    stop();
  }
}

// ------------------------------------------------------------------------------------------------------------------------ tries

/** Tries before an error, those since the last byte that came. */
const mostTries = 5;
/** Seconds between the first two tries, and the longest pause that no server asks for. */
const [firstPause, longestPause] = [1, 8];
/** The longest time in seconds that a server may ask for: the window of the hub's quotas. */
const longestAsked = 301;

/** Statuses after which asking again may help. */
const passing: readonly number[] = [408, 429, 500, 502, 503, 504];

/** Seconds after which a server wants to be asked again; undefined if it does not say so. */
export function secondsAsked({ headers }: Response): number | undefined {
  // RateLimit: "resolvers";r=0;t=42 means that 0 requests are left, and more in 42 seconds.
  const quotas = [...(headers.get('ratelimit') ?? '').matchAll(/;\s*r=(\d+)\s*;\s*t=(\d+)/g)];
  const used = quotas.flatMap(([, left, seconds]) => (Number(left) === 0 ? Number(seconds) + 1 : []));
  if (used.length > 0) return Math.max(...used);
  const after = headers.get('retry-after') ?? '';
  const seconds = /^\d+$/.test(after) ? Number(after) : (Date.parse(after) - Date.now()) / 1000;
  return Number.isFinite(seconds) ? Math.max(0, seconds) : undefined;
}

/** Counts tries, and waits between them. */
export class Tries {
  readonly #signal: AbortSignal | undefined;
  #count = 1;

  constructor(signal: AbortSignal | undefined) {
    this.#signal = signal;
  }

  /** Notes that bytes came. */
  restart(): void {
    this.#count = 1;
  }

  /** Waits for the next try. @param asked seconds that the server asks for @throws the error behind the last try, or the signal's reason */
  async again(error: unknown, asked?: number): Promise<void> {
    const signal = this.#signal;
    signal?.throwIfAborted();
    if (this.#count >= mostTries || (asked ?? 0) > longestAsked) throw error;
    const seconds = asked ?? Math.min(longestPause, firstPause * 2 ** (this.#count - 1));
    this.#count++;
    await new Promise<void>((resolve, reject) => {
      const stop = () => {
        clearTimeout(timer);
        reject(signal?.reason);
      };
      const timer = setTimeout(() => {
        signal?.removeEventListener('abort', stop);
        resolve();
      }, seconds * 1000);
      signal?.addEventListener('abort', stop, { once: true });
    });
  }

  /** Passes a good response on. For another one it waits, and gives undefined. @throws the refusal */
  async passed(
    response: Response,
    refusal: (response: Response) => Promise<ScalepointError>,
  ): Promise<Response | undefined> {
    // 416: the file is empty, and has no range.
    if (response.ok || response.status === 416) return response;
    const asked = secondsAsked(response);
    const error = await refusal(response);
    if (!passing.includes(response.status)) throw error;
    await this.again(error, asked);
    return undefined;
  }
}

// ----------------------------------------------------------------------------------------------------------------------- ranges

/** Bytes of the first request. They hold the header of nearly all safetensors files. */
const headBytes = 100_000;

/** Statuses of an address that has expired. */
const expired: readonly number[] = [401, 403, 404, 410];

/** The range of the file in a response. `size` is undefined if the server hides it. */
function answeredRange({ status, headers }: Response) {
  const [, begin, last, size] = /^bytes (\d+)-(\d+)\/(\d+|\*)$/i.exec(headers.get('content-range') ?? '') ?? [];
  if (status !== 206 || begin === undefined) return undefined;
  // Some servers repeat the last byte that was asked for, behind the end of the file.
  const end = size === '*' ? Number.POSITIVE_INFINITY : Number(size);
  return { begin: Number(begin), last: Math.min(Number(last), end - 1), size: size === '*' ? undefined : end };
}

/** The facts about a file that its server gave. */
interface Found {
  readonly size: number;
  /** Its first bytes. */
  readonly head: Uint8Array;
}

interface FillOptions {
  /** Size of the file in bytes. */
  readonly size: number;
  readonly signal: AbortSignal | undefined;
  /** Called with the number of bytes that came. */
  readonly onBytes?: ((count: number) => void) | undefined;
}

/** A file on a server, which may be opened many times. Its first bytes are fetched once. */
export class RangedFile {
  readonly #server: RangedServer;
  /** The address to which the server redirected last. */
  #led: URL | undefined;
  #found: Promise<Found | Blob> | undefined;
  /** ETags or dates of the file, by the server that gave them. */
  readonly #versions = new Map<string, string | null>();

  constructor(server: RangedServer) {
    this.#server = server;
  }

  /**
   * Opens the file. A Blob of all bytes from a server without ranges.
   * @param most bytes of such a Blob, because a server may send without end; no limit by default
   * @throws ScalepointError `IO`
   */
  async open(signal: AbortSignal | undefined, most = this.#server.size): Promise<ByteSource | Blob> {
    this.#found ??= this.#begin(signal, most);
    const found = await this.#found.catch((error: unknown) => {
      this.#found = undefined;
      throw error;
    });
    if (found instanceof Blob) return found;
    const { size, head } = found;
    const ended = new AbortController();
    const stop = () => ended.abort(signal?.reason);
    if (signal?.aborted) stop();
    signal?.addEventListener('abort', stop);
    const windows = new WindowReader(size, (begin, target, onBytes) =>
      this.#fill(begin, target, { size, signal: ended.signal, onBytes }),
    );
    const fill = async (begin: number, target: Uint8Array) => {
      const known = head.subarray(begin, begin + target.length);
      target.set(known);
      await windows.readInto(begin + known.length, target.subarray(known.length));
    };
    return {
      ...readsInto(size, fill),
      isFar: true,
      expect: (stretches) =>
        windows.expect(
          stretches.flatMap(({ begin, end, times }) =>
            end > head.length ? { begin: Math.max(begin, head.length), end, times } : [],
          ),
        ),
      skip: (stretch) => windows.skip(stretch),
      async verify() {},
      async close() {
        signal?.removeEventListener('abort', stop);
        windows.clear();
        ended.abort(new ScalepointError('DISPOSED', 'the file was closed'));
      },
    };
  }

  /** Asks for the file or a range of it, until there is an answer. */
  async #ask(headers: Record<string, string>, signal: AbortSignal | undefined, tries: Tries): Promise<Response> {
    const { label, address: own, size, refusal } = this.#server;
    for (;;) {
      const address = this.#led ?? own;
      let response: Response;
      try {
        response = await this.#server.fetch(address, headers, signal);
      } catch (cause) {
        signal?.throwIfAborted();
        const isStalled = cause instanceof StalledError;
        if (cause instanceof ScalepointError && !isStalled) throw cause;
        const error = isStalled ? cause : fetchError(label, cause);
        // A server that never answered is the wrong one.
        if (this.#versions.size === 0 && !isStalled) throw error;
        await tries.again(error);
        continue;
      }
      if (address !== own && expired.includes(response.status)) {
        drop(response);
        if (this.#led === address) this.#led = undefined;
        continue;
      }
      const passed = await tries.passed(response, (refused) => refusal.call(this.#server, refused));
      if (passed === undefined) continue;
      if (passed.url !== '' && passed.url !== address.href) this.#led = new URL(passed.url);
      const range = answeredRange(passed);
      if (size !== undefined && range?.size !== undefined && range.size !== size) {
        drop(passed);
        throw new ScalepointError('CHANGED', `${label} has ${range.size} bytes in place of the ${size} listed`);
      }
      return passed;
    }
  }

  /** Finds the size and the first bytes. */
  async #begin(signal: AbortSignal | undefined, most: number | undefined): Promise<Found | Blob> {
    const tries = new Tries(signal);
    const first = await this.#ask({ Range: `bytes=0-${headBytes - 1}` }, signal, tries);
    const range = answeredRange(first);
    const size = range?.size;
    if (
      size === undefined ||
      !Number.isSafeInteger(size) ||
      range?.begin !== 0 ||
      range.last !== Math.min(size, headBytes) - 1
    )
      return this.#whole(first, { signal, most, tries });
    const head = new Uint8Array(range.last + 1);
    this.#versions.set(serverOf(first), versionOf(first));
    await this.#fill(0, head, { size, signal }, first);
    return { size, head };
  }

  /** Fetches bytes of the file into memory. @param first the answer to the request for them, if it is here */
  async #fill(
    begin: number,
    target: Uint8Array,
    { size, signal, onBytes }: FillOptions,
    first?: Response,
  ): Promise<void> {
    const { label, seconds } = this.#server;
    const tries = new Tries(signal);
    const end = begin + target.length;
    let answer = first;
    for (let done = 0; done < target.length; ) {
      const from = begin + done;
      const response = answer ?? (await this.#ask({ Range: `bytes=${from}-${end - 1}` }, signal, tries));
      answer = undefined;
      const wrong = this.#problemOf(response, from, end, size);
      if (wrong !== undefined) {
        drop(response);
        throw wrong;
      }
      // Take the bytes until they end, or the connection is cut or stalls.
      const chunks = bytesOf(response, label, { seconds, signal });
      let failure: unknown = shrunkError(label, from);
      for (;;) {
        let chunk: Uint8Array | undefined;
        try {
          chunk = (await chunks.next()).value;
        } catch (cause) {
          signal?.throwIfAborted();
          failure = cause instanceof ScalepointError ? cause : fetchError(label, cause);
        }
        if (chunk === undefined) break;
        if (chunk.length > target.length - done) {
          await chunks.return(undefined);
          const message = `cannot fetch ${label}: the server sent more than the ${end - from} bytes asked for`;
          throw new ScalepointError('IO', message);
        }
        target.set(chunk, done);
        done += chunk.length;
        if (chunk.length > 0) tries.restart();
        onBytes?.(chunk.length);
      }
      if (done < target.length) await tries.again(failure);
    }
  }

  /** The error for a response that does not have the bytes [begin, end) of this file. */
  #problemOf(response: Response, begin: number, end: number, size: number): ScalepointError | undefined {
    const { label } = this.#server;
    const { status, headers } = response;
    const range = answeredRange(response);
    const server = serverOf(response);
    const version = versionOf(response);
    if (!this.#versions.has(server)) this.#versions.set(server, version);
    const isSame = this.#versions.get(server) === version && (range?.size === undefined || range.size === size);
    if (!isSame || status !== 206)
      return new ScalepointError('CHANGED', `${label} was changed while it was read`, { byteOffset: begin });
    const packed = headers.get('content-encoding') ?? 'identity';
    const isAsked = range?.begin === begin && range.last === end - 1;
    if (isAsked && packed === 'identity') return undefined;
    const got = isAsked ? `a range packed by ${packed}` : (headers.get('content-range') ?? 'no range');
    const message = `cannot fetch ${label}: the server sent ${got} instead of bytes ${begin}-${end - 1}`;
    return new ScalepointError('IO', message, { byteOffset: begin });
  }

  /** All bytes, from a server without ranges. @param first its response to a request for a range */
  async #whole(
    first: Response,
    { signal, most, tries }: { signal: AbortSignal | undefined; most: number | undefined; tries: Tries },
  ): Promise<Blob> {
    const { label, size } = this.#server;
    // Such a server sends the whole file. One that hides the size is asked again.
    if (first.status !== 200) drop(first);
    const whole = first.status === 200 ? first : await this.#ask({}, signal, tries);
    if (whole.status !== 200) {
      drop(whole);
      const message = `cannot fetch ${label}: the server answered ${whole.status} instead of the whole file`;
      throw new ScalepointError('IO', message);
    }
    let blob: Blob;
    try {
      const { body } = whole;
      let left = most ?? Number.POSITIVE_INFINITY;
      // Fail behind the limit.
      const limited = new TransformStream<Uint8Array, Uint8Array<ArrayBuffer>>({
        transform(chunk, controller) {
          left -= chunk.length;
          if (left < 0) throw tooLongError(label, most as number);
          controller.enqueue(chunk as Uint8Array<ArrayBuffer>);
        },
      });
      blob = await (body === null ? whole : new Response(body.pipeThrough(limited, signal && { signal }))).blob();
    } catch (cause) {
      signal?.throwIfAborted();
      if (cause instanceof ScalepointError) throw cause;
      throw ioError(`cannot fetch ${label}`, cause);
    }
    if (size === undefined || blob.size === size) return blob;
    throw new ScalepointError('CHANGED', `${label} has ${blob.size} bytes in place of the ${size} listed`);
  }
}

/** The version of a file, if the server reports one. */
const versionOf = ({ headers }: Response) => headers.get('etag') ?? headers.get('last-modified');

/** The server that a response comes from. */
const serverOf = ({ url }: Response) => (url === '' ? '' : new URL(url).origin);

/** A file at any URL. */
export function urlFile(url: URL): RangedFile {
  return new RangedFile({
    label: url.href,
    address: url,
    fetch: (address, headers, signal) =>
      fetch(address, { credentials: 'same-origin', headers, signal: signal ?? null }),
    async refusal(response) {
      drop(response);
      return answerError(url.href, response.status);
    },
  });
}
