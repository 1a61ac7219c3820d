/**
 * Files to read, and what all kinds of them have in common. Everything is read by position, so that a file of any size is handled piece
 * by piece. `open.ts` opens them.
 */

import { ScalepointError } from '../core/errors.js';
import type { NodeFileHandle } from '../core/node.js';
import { show } from '../core/show.js';

export type { NodeFileHandle } from '../core/node.js';

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
  /** Like `read`, but from `begin` on into memory that is there already. Undefined if `read` is as good. */
  readonly readInto?: ((begin: number, target: Uint8Array) => Promise<void>) | undefined;
  /**
   * Fails if the bytes are no longer those that were opened.
   * @throws ScalepointError `CHANGED`
   */
  verify(): Promise<void>;
  /** Closes what was opened for this source, and not what was given. */
  close(): Promise<void>;
  /** How a worker reads the same bytes by itself; undefined if it cannot. */
  readonly reference?: SourceReference | undefined;
  /** Whether it is far away, so that each read takes long, however short it is. */
  readonly isFar?: boolean | undefined;
  /** Which file of the system it is; undefined if it is none. */
  readonly identity?: FileIdentity | undefined;
}

/** What tells a file of the system, and a state of it, from others. */
interface FileStamp {
  /** As `fileIdOf` gives it. */
  readonly fileId: string;
  readonly size: number;
  readonly mtimeMs: number | undefined;
}

/**
 * What a worker opens to read the same bytes: a Blob; a path (Node); or the descriptor of an open file, which all threads of Node share,
 * but not those of every system.
 */
export type SourceReference =
  | { readonly kind: 'blob'; readonly blob: Blob }
  | { readonly kind: 'path'; readonly path: string; readonly stamp: FileStamp }
  | { readonly kind: 'descriptor'; readonly descriptor: number; readonly stamp: FileStamp };

/** Device and number of a file; undefined if the system has none. */
export function fileIdOf({ dev, ino }: { readonly dev?: number; readonly ino?: number }): string | undefined {
  return dev === undefined || !ino ? undefined : `${dev}:${ino}`;
}

/** What tells a file of the system from others, whatever its name. */
export interface FileIdentity {
  /** The open file that was given. */
  readonly handle: object;
  /** Device and number of the file; undefined where the system has none. */
  readonly fileId: string | undefined;
}

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
  const text = cause instanceof Error ? cause.message : show(cause);
  return /^[A-Z0-9]+: ([^,]+)/.exec(text)?.[1] ?? text;
}

/** The error for a failure of the system. @param path of the file, if it has one */
export function ioError(what: string, cause: unknown, path?: string): ScalepointError {
  return new ScalepointError('IO', `${what}: ${systemMessage(cause)}`, { cause, path });
}

/** What is told of a file that is not there, as systems tell it. */
export const missing = 'ENOENT';

/** Whether an error means that there is no such file. */
export function isMissing(error: unknown): boolean {
  const { cause } = error as { cause?: { code?: unknown } };
  return error instanceof ScalepointError && error.code === 'IO' && cause?.code === missing;
}

/** The error for a file that ends before its time. */
export function shorterError(label: string, byteOffset: number): ScalepointError {
  return new ScalepointError('CHANGED', `${label} became shorter while it was read`, { byteOffset });
}

/**
 * Checks how many bytes came from a file in answer to a read.
 * @throws ScalepointError `CHANGED` if there were fewer than were asked for, `IO` if there were more
 */
export function checkLength(came: number, asked: number, label: string, begin: number): void {
  if (came < asked) throw shorterError(label, begin + came);
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
 * The number of bytes that a call read or wrote, at least 0. It may be fewer than were asked for, and it comes from outside.
 * @throws ScalepointError `IO`
 */
export function checkByteCount(count: unknown, most: number, what: string): number {
  if (Number.isInteger(count) && (count as number) >= 0 && (count as number) <= most) return count as number;
  throw new ScalepointError('IO', `${what}: the count of bytes is ${show(count)}, of ${most} that were asked for`);
}
