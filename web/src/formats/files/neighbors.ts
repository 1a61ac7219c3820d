/** Reads many small neighboring stretches of a file at once. */
import type { ByteSource } from './bytes.js';

/** Bytes of one read. Longer stretches are read alone. */
const windowBytes = 1 << 16;

/** Gives the bytes [begin, end) of a source. They are valid until the next call. */
export type ReadStretch = (begin: number, end: number) => Promise<Uint8Array<ArrayBuffer>>;

/** Reads ahead as soon as one stretch begins where the one before it ended. */
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
