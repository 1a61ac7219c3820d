/** Files of a few kilobytes that a command line names: configurations, rules, templates. They may be pipes. */
import { constants } from 'node:fs';
import { type FileHandle, open } from 'node:fs/promises';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { ScalepointError } from '../model.js';
import { readHubText, urlOfText } from '../tooling.js';
import { hubFileNamed } from './input.js';
import { about, UsageError } from './process.js';
import { systemText } from './system-text.js';

/** Largest size in bytes of most files. A larger file must be something else. */
const mostBytes = 16 * 2 ** 20;
/** Bytes of a read. */
const chunkBytes = 1 << 18;
/** Time in ms between two attempts to read from a pipe that has nothing to give yet. */
const pauseMilliseconds = 10;

/** The path that a command line names, as it is or as a URL with `file:`. Undefined for other URLs. */
export function localPath(text: string): string | undefined {
  const { url } = urlOfText(text) ?? {};
  if (url === undefined) return text;
  return url.protocol === 'file:' ? fileURLToPath(url) : undefined;
}

/**
 * The text of a small file, without a byte order mark.
 * @param text a path, or a URL with `file:`
 * @param most largest size in bytes
 * @throws ScalepointError `IO`; `BAD_FILE` if it is too long, or not UTF-8; UsageError for other URLs
 */
export function readText(text: string, most = mostBytes): Promise<string> {
  return about(text, async () => {
    const hub = await hubFileNamed(text);
    if (hub !== undefined && (hub.entry.size ?? 0) > most)
      throw new ScalepointError('BAD_FILE', `the file has more than the ${most} bytes allowed`);
    if (hub !== undefined) return readHubText(hub);
    const path = localPath(text);
    if (path === undefined)
      throw new UsageError(
        `${text}: URLs are read for models and their statistics only; save this file, and give its path`,
      );
    const pieces: Uint8Array[] = [];
    let file: FileHandle | undefined;
    try {
      // A pipe without a writer would hold up the process. On Windows there are no such pipes.
      file = await open(path, constants.O_RDONLY | (constants.O_NONBLOCK ?? 0));
      // The size that the system states is 0 for pipes and devices.
      for (let done = 0, { size } = await file.stat(); ; ) {
        if (Math.max(done, size) > most)
          throw new ScalepointError('BAD_FILE', `the file has more than the ${most} bytes allowed`);
        const piece = new Uint8Array(chunkBytes);
        const read = await file.read(piece, 0, chunkBytes, null).catch((error: NodeJS.ErrnoException) => {
          if (error.code === 'EAGAIN') return undefined;
          throw error;
        });
        // Wait for the writer of a pipe.
        if (read === undefined) await sleep(pauseMilliseconds);
        else if (read.bytesRead === 0) break;
        else pieces.push(piece.subarray(0, read.bytesRead));
        done += read?.bytesRead ?? 0;
      }
    } catch (cause) {
      if (cause instanceof ScalepointError) throw cause;
      throw new ScalepointError('IO', `cannot read ${JSON.stringify(path)}: ${systemText(cause)}`, { cause, path });
    } finally {
      await file?.close();
    }
    try {
      return new TextDecoder('utf-8', { fatal: true }).decode(Buffer.concat(pieces));
    } catch (cause) {
      throw new ScalepointError('BAD_FILE', 'the file is not UTF-8', { cause, path });
    }
  });
}
