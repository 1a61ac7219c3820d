/** Reading many small stretches of a file that lie side by side. */
import type { ByteSource } from './bytes.js';

/** Bytes that are read at once. Longer stretches are read alone. */
const windowBytes = 1 << 16;

/** The bytes [begin, end) of a source. They are good until the next call. */
export type ReadStretch = (begin: number, end: number) => Promise<Uint8Array<ArrayBuffer>>;

/** Reads what comes next together with a stretch, once a stretch follows the one before it. */
export function readNeighbors(source: ByteSource): ReadStretch {
  let held: Uint8Array<ArrayBuffer> = new Uint8Array(0);
  let from = 0;
  /** Where the last stretch ended. */
  let last = -1;
  return async (begin, end) => {
    const follows = begin === last;
    last = end;
    if (begin >= from && end <= from + held.length) return held.subarray(begin - from, end - from);
    if (end - begin >= windowBytes) return source.read(begin, end);
    held = await source.read(begin, follows ? Math.min(source.size, begin + windowBytes) : end);
    from = begin;
    return held.subarray(0, end - begin);
  };
}
