/**
 * The common interface of files to read, and their errors. Everything is read by position, so that a file of any size takes little memory.
 * `open.ts` opens them.
 */
import { ScalepointError } from '../../core/errors.js';
import type { NodeFileHandle } from '../../core/node.js';
import { show } from '../../core/show.js';

/** Bytes that can be read from any position. */
export interface ByteSource {
  /** Number of bytes. */
  readonly size: number;
  /** File name without its folder, if there is one. */
  readonly name?: string;
  /**
   * The bytes [begin, end), all of them.
   * @throws ScalepointError `BAD_FILE` if the range leaves the source, `IO` if reading fails, `CHANGED` if there are fewer bytes now
   */
  read(begin: number, end: number): Promise<Uint8Array<ArrayBuffer>>;
  /** Like `read`, but fills existing memory with the bytes from `begin` on. Undefined if this would save nothing. */
  readonly readInto?: ((begin: number, target: Uint8Array) => Promise<void>) | undefined;
  /**
   * Fails if the file was changed since it was opened.
   * @throws ScalepointError `CHANGED`
   */
  verify(): Promise<void>;
  /** Closes the file, if this source opened it. */
  close(): Promise<void>;
  /** Lets a worker read the same bytes by itself; undefined if it cannot. */
  readonly reference?: SourceReference | undefined;
  /** True if each read is slow, however short it is, as from a server. */
  readonly isFar?: boolean | undefined;
  /** Announces what is read next, in order, so that a source on a server fetches it in few requests. */
  readonly expect?: ((stretches: readonly Stretch[]) => void) | undefined;
  /** Tells that an announced stretch is read once less. */
  readonly skip?: ((stretch: Stretch) => void) | undefined;
  /** The file of the system; undefined for other sources. */
  readonly identity?: FileIdentity | undefined;
}

/** The bytes [begin, end) of a file. */
export interface Stretch {
  readonly begin: number;
  readonly end: number;
  /** Number of times that it is read; 1 by default. */
  readonly times?: number | undefined;
}

/** Identifies a file of the system and its state. */
interface FileStamp {
  /** As `fileIdOf` gives it. */
  readonly fileId: string;
  readonly size: number;
  readonly mtimeMs: number | undefined;
}

/**
 * Refers to the bytes of a source, for a worker that opens them again: a Blob; a path (Node); or the descriptor of an open file, which
 * threads of Node share on most systems.
 */
export type SourceReference =
  | { readonly kind: 'blob'; readonly blob: Blob }
  | { readonly kind: 'path'; readonly path: string; readonly stamp: FileStamp }
  | { readonly kind: 'descriptor'; readonly descriptor: number; readonly stamp: FileStamp };

/** Device and inode of a file; undefined if the system does not report them. */
export function fileIdOf({
  dev,
  ino,
}: {
  readonly dev?: number | undefined;
  readonly ino?: number | undefined;
}): string | undefined {
  return dev === undefined || !ino ? undefined : `${dev}:${ino}`;
}

/** Identifies a file of the system, whatever its name. */
interface FileIdentity {
  /** The open file, or the handle of the browser, that was given. */
  readonly handle: object;
  /** As `fileIdOf` gives it. */
  readonly fileId: string | undefined;
}

/** A file that a call reads, and so must not write. */
export interface InputFile extends FileIdentity {
  /** The option that names it. */
  readonly option: string;
}

/** A stream of bytes: the response of a fetch, a stream of the web, or one of Node. */
export type StreamInput = Response | ReadableStream<Uint8Array> | AsyncIterable<Uint8Array>;

/** A file of a model hub. Files beside it are known without asking. `hubModel` gives it. */
export interface FarFile {
  /** Its name, without its folder. */
  readonly name: string;
  /** Name of its folder. */
  readonly folder: string;
  /** Opens it, as often as wanted. Gives a source of bytes, or the file in another place: a Blob, or a path. */
  open(signal: AbortSignal | undefined): Promise<unknown>;
  /** The file at a path from its folder; undefined if it is missing. */
  beside(path: string): FarFile | undefined;
}

/** True for a file of a model hub. */
export function isFarFile(input: unknown): input is FarFile {
  const { open, beside } = (input ?? {}) as Partial<FarFile>;
  return typeof open === 'function' && typeof beside === 'function';
}

/** The file at a path from the folder of a file. @throws ScalepointError `NOT_FOUND` */
export function farFileBeside(file: FarFile, path: string): FarFile {
  const found = file.beside(path);
  if (found !== undefined) return found;
  throw new ScalepointError('NOT_FOUND', `${quoted(path)} is missing beside ${quoted(file.name)} on the hub`);
}

/**
 * A file to read: its bytes, a Blob or File, a URL or its text (`https://…`), in Node also a path or an open file (which stays open). Also
 * a Response or a stream of bytes, which is first read to its end: into a temporary file in Node, elsewhere into a Blob. Models and
 * statistics may also be named as on the Hugging Face hub: `hf:owner/name`, `hf:owner/name:Q4_K_M`, `hf:owner/name@revision/path`.
 */
export type FileInput = Uint8Array | ArrayBuffer | Blob | URL | string | NodeFileHandle | StreamInput | FarFile;

/** A file that an option names, or its handle in the browser. */
export type OptionFile = FileInput | FileSystemFileHandle;

/** A name in quotes for an error message, shortened if it is very long. */
export function quoted(name: string): string {
  return JSON.stringify(name.length > 300 ? `${name.slice(0, 297)}...` : name);
}

/** Names that messages list at most. */
const mostNames = 3;

/** Names for a message, the first few of a long list. */
export function quotedNames(names: readonly string[], most = mostNames): string {
  const more = names.length > most ? ` and ${names.length - most} more` : '';
  return names.slice(0, most).map(quoted).join(', ') + more;
}

/** Zeroed memory. @throws ScalepointError `OUT_OF_MEMORY` */
export function allocate(bytes: number, hint: string): Uint8Array<ArrayBuffer> {
  try {
    return new Uint8Array(bytes);
  } catch (cause) {
    throw new ScalepointError('OUT_OF_MEMORY', `there is no memory for ${bytes} bytes${hint}`, { cause });
  }
}

/** The size of a source and its ways to read, made of one that fills memory. Ranges are checked before. */
export function readsInto(
  size: number,
  fill: (begin: number, target: Uint8Array) => Promise<void>,
): Required<Pick<ByteSource, 'size' | 'read' | 'readInto'>> {
  return {
    size,
    async read(begin, end) {
      checkRange(begin, end, size);
      const target = allocate(end - begin, ' at once');
      await fill(begin, target);
      return target;
    },
    async readInto(begin, target) {
      checkRange(begin, begin + target.length, size);
      await fill(begin, target);
    },
  };
}

/** Pieces of bytes, one behind the other. */
export function joinedBytes(pieces: readonly Uint8Array[]): Uint8Array<ArrayBuffer> {
  const all = new Uint8Array(pieces.reduce((sum, { length }) => sum + length, 0));
  let at = 0;
  for (const piece of pieces) {
    all.set(piece, at);
    at += piece.length;
  }
  return all;
}

/** Fills memory with the bytes of a source, from a position on. */
export async function fillFrom(source: ByteSource, begin: number, target: Uint8Array): Promise<void> {
  if (source.readInto === undefined) target.set(await source.read(begin, begin + target.length));
  else await source.readInto(begin, target);
}

/** Reverses the bytes of each unit. */
export function swapBytes(bytes: Uint8Array, unit: number): void {
  for (let at = 0; at < bytes.length; at += unit) bytes.subarray(at, at + unit).reverse();
}

/** The system's text for an error without code, call and path, such as `no such file or directory`. */
export function systemMessage(cause: unknown): string {
  const text = cause instanceof Error ? cause.message : show(cause);
  return /^[A-Z0-9]+: ([^,]+)/.exec(text)?.[1] ?? text;
}

/** The error for a failure of the system. @param path of the file, if it has one */
export function ioError(what: string, cause: unknown, path?: string): ScalepointError {
  return new ScalepointError('IO', `${what}: ${systemMessage(cause)}`, { cause, path });
}

/** The code of the system's error for a missing file. */
const missing = 'ENOENT';

/** True if an error means that a file is missing. */
export function isMissing(error: unknown): boolean {
  const { cause } = error as { cause?: { code?: unknown } };
  return error instanceof ScalepointError && error.code === 'IO' && cause?.code === missing;
}

/** The error for a file of more bytes than its purpose allows. */
export function tooLongError(label: string, most: number): ScalepointError {
  return new ScalepointError('BAD_FILE', `${label} has more than the ${most} bytes allowed`);
}

/** The error for a file that became shorter while it was read. */
export function shrunkError(label: string, byteOffset: number): ScalepointError {
  return new ScalepointError('CHANGED', `${label} became shorter while it was read`, { byteOffset });
}

/**
 * Checks the number of bytes that a read gave.
 * @throws ScalepointError `CHANGED` if there are too few, `IO` if there are too many
 */
export function checkLength(came: number, asked: number, label: string, begin: number): void {
  if (came < asked) throw shrunkError(label, begin + came);
  if (came === asked) return;
  const message = `cannot read ${label}: ${came} bytes came, of ${asked} that were asked for`;
  throw new ScalepointError('IO', message, { byteOffset: begin });
}

/** @throws ScalepointError `BAD_FILE` if a range leaves its file */
export function checkRange(begin: number, end: number, size: number): void {
  if (begin >= 0 && begin <= end && end <= size && Number.isSafeInteger(begin) && Number.isSafeInteger(end)) return;
  throw new ScalepointError('BAD_FILE', `bytes ${begin} to ${end} lie outside of the file, which has ${size} bytes`, {
    byteOffset: begin,
  });
}

/**
 * Checks the number of bytes that a call of the system reports, from 0 to `most`. Returns it.
 * @throws ScalepointError `IO`
 */
export function checkByteCount(count: unknown, most: number, what: string): number {
  if (Number.isInteger(count) && (count as number) >= 0 && (count as number) <= most) return count as number;
  throw new ScalepointError('IO', `${what}: the count of bytes is ${show(count)}, of ${most} that were asked for`);
}

/** Checks the number of bytes that a write took, from 1 to `most`. Returns it. @throws ScalepointError `IO` */
export function checkTaken(count: unknown, most: number, label: string, position: number): number {
  const taken = checkByteCount(count, most, `cannot write ${label}`);
  if (taken > 0) return taken;
  throw new ScalepointError('IO', `cannot write ${label}: no bytes were taken at ${position}`);
}

/**
 * Reads bytes of a Blob into memory. `arrayBuffer` allocates, but reads of a stream into existing memory (BYOB) sometimes never end in
 * Chromium 156, some hundred megabytes into a file.
 * @param chunk bytes that are in memory twice
 */
export async function readBlob(blob: Blob, begin: number, target: Uint8Array, chunk: number): Promise<void> {
  for (let done = 0; done < target.length; done += chunk) {
    const end = Math.min(target.length, done + chunk);
    let bytes: Uint8Array;
    try {
      bytes = new Uint8Array(await blob.slice(begin + done, begin + end).arrayBuffer());
    } catch (cause) {
      throw ioError('cannot read the file', cause);
    }
    checkLength(bytes.length, end - done, 'the file', begin + done);
    target.set(bytes, done);
  }
}

/** The error for an answer of a server without the file. */
export function answerError(address: string, status: number): ScalepointError {
  const cause = status === 404 ? { cause: Object.assign(new Error('not found'), { code: missing }) } : {};
  return new ScalepointError('IO', `cannot fetch ${address}: the server answered ${status}`, cause);
}

export function grouped<Key, Item>(items: Iterable<Item>, keyOf: (item: Item) => Key): Map<Key, Item[]> {
  const groups = new Map<Key, Item[]>();
  for (const item of items) {
    const key = keyOf(item);
    const group = groups.get(key);
    if (group === undefined) groups.set(key, [item]);
    else group.push(item);
  }
  return groups;
}
