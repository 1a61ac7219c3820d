/** Reads a file on a server in few large requests, ahead of its readers. */
import { allocate, type Stretch } from './bytes.js';

/** Most bytes of a window, a stretch that is fetched at once. Large enough that the time of a request does not count. */
const windowBytes = 1 << 24;
/** Bytes of stretches whose order of reading is neglected, so that neighbors in the file come together. */
const horizonBytes = 3 * windowBytes;
/** Bytes between two stretches that are fetched along with them. */
const gapBytes = 1 << 16;
/** Windows that are fetched ahead of the one that is read. */
const windowsAhead = 2;
/** Bytes of the first window of a reader that goes from one stretch to the next. Each one after it has twice the size. */
const firstAhead = 1 << 19;
/** Most bytes of windows in memory, those of all files together. */
const mostHeld = 1 << 27;

interface Window {
  readonly begin: number;
  readonly end: number;
  /** Index in the order of reading; undefined for a window that was not announced. */
  readonly index?: number;
  /** Bytes that are still to be read. */
  left: number;
  bytes?: Promise<Uint8Array> | undefined;
  wasLoaded?: boolean;
}

/** The windows in memory, the oldest first. */
const held = new Set<Window>();

function drop(window: Window): void {
  window.bytes = undefined;
  held.delete(window);
}

/** The windows for stretches in the order of reading: neighbors in the file are joined, as far as they are read at about the same time. */
function windowsFor(stretches: readonly Stretch[]): Window[] {
  const windows: Window[] = [];
  let group: Stretch[] = [];
  let bytes = 0;
  const flush = () => {
    const joined: { begin: number; end: number; parts: Stretch[] }[] = [];
    for (const part of group.sort((a, b) => a.begin - b.begin)) {
      const last = joined.at(-1);
      if (last === undefined || part.begin > last.end + gapBytes) {
        joined.push({ begin: part.begin, end: part.end, parts: [part] });
        continue;
      }
      last.end = Math.max(last.end, part.end);
      last.parts.push(part);
    }
    for (const { begin, end, parts } of joined) {
      for (let at = begin; at < end; at += windowBytes) {
        const to = Math.min(end, at + windowBytes);
        const left = parts.reduce(
          (sum, part) => sum + Math.max(0, Math.min(to, part.end) - Math.max(at, part.begin)),
          0,
        );
        windows.push({ begin: at, end: to, index: windows.length, left });
      }
    }
    [group, bytes] = [[], 0];
  };
  for (const { begin, end } of stretches) {
    // A long stretch comes in several groups.
    for (let at = begin; at < end; ) {
      const to = Math.min(end, at + horizonBytes - bytes);
      group.push({ begin: at, end: to });
      bytes += to - at;
      at = to;
      if (bytes === horizonBytes) flush();
    }
  }
  flush();
  return windows;
}

/** Reads stretches of a file through windows. */
export class WindowReader {
  readonly #size: number;
  readonly #fetch: (begin: number, target: Uint8Array) => Promise<void>;
  /** Announced windows, in the order of reading, and by position. They do not overlap, unless stretches are read again. */
  #order: readonly Window[] = [];
  #sorted: readonly Window[] = [];
  /** The window of a reader that goes from one stretch to the next, its end, and the size of the next one. */
  #ahead: Window | undefined;
  #next: number | undefined;
  #aheadBytes = 0;

  constructor(size: number, fetch: (begin: number, target: Uint8Array) => Promise<void>) {
    this.#size = size;
    this.#fetch = fetch;
  }

  /** Announces what is read, in order. */
  expect(stretches: readonly Stretch[]): void {
    this.clear();
    this.#order = windowsFor(stretches);
    this.#sorted = this.#order.toSorted((a, b) => a.begin - b.begin);
  }

  /** Drops all windows. */
  clear(): void {
    for (const window of [...this.#order, this.#ahead]) if (window !== undefined) drop(window);
    [this.#order, this.#sorted, this.#ahead] = [[], [], undefined];
  }

  /** Fills memory with the bytes from a position on. */
  async readInto(begin: number, target: Uint8Array): Promise<void> {
    for (let done = 0; done < target.length; ) {
      const at = begin + done;
      const [window, before] = this.#windowAt(at, begin + target.length);
      if (window === undefined) {
        const end = Math.min(begin + target.length, before);
        this.#next = end;
        await this.#fetch(at, target.subarray(done, end - begin));
        done = end - begin;
        continue;
      }
      const bytes = await this.#load(window);
      const some = bytes.subarray(at - window.begin, at - window.begin + target.length - done);
      target.set(some, done);
      done += some.length;
      window.left -= some.length;
      if (window.left <= 0) drop(window);
    }
  }

  /** The window that holds a position. Without one, the position where the next one begins. */
  #windowAt(at: number, end: number): readonly [window: Window | undefined, before: number] {
    if (this.#ahead !== undefined && this.#ahead.begin <= at && at < this.#ahead.end) return [this.#ahead, at];
    // Find the last announced window that begins at or before the position.
    let [low, high] = [0, this.#sorted.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if ((this.#sorted[middle] as Window).begin <= at) low = middle + 1;
      else high = middle;
    }
    const found = this.#sorted[low - 1];
    if (found !== undefined && at < found.end) return [found, at];
    const before = this.#sorted[low]?.begin ?? this.#size;
    // Read ahead for a reader that goes on where it ended.
    this.#aheadBytes = at === this.#next ? Math.min(windowBytes, Math.max(firstAhead, 2 * this.#aheadBytes)) : 0;
    const to = Math.min(before, at + this.#aheadBytes);
    if (to <= end) return [undefined, before];
    if (this.#ahead !== undefined) drop(this.#ahead);
    this.#ahead = { begin: at, end: to, left: to - at };
    this.#next = to;
    return [this.#ahead, at];
  }

  #load(window: Window): Promise<Uint8Array> {
    const bytes = this.#start(window);
    for (let i = 1; window.index !== undefined && i <= windowsAhead; i++) {
      const next = this.#order[window.index + i];
      if (next !== undefined && !next.wasLoaded) this.#start(next);
    }
    return bytes;
  }

  #start(window: Window): Promise<Uint8Array> {
    if (window.bytes !== undefined) return window.bytes;
    const { begin, end } = window;
    // A stretch that is read again comes whole again.
    if (window.left <= 0) window.left = end - begin;
    window.wasLoaded = true;
    const memory = allocate(end - begin, ' of a file on a server');
    const bytes = this.#fetch(begin, memory).then(() => memory);
    window.bytes = bytes;
    bytes.catch(() => drop(window));
    held.add(window);
    let sum = 0;
    for (const { begin, end } of held) sum += end - begin;
    for (const oldest of held) {
      if (sum <= mostHeld || oldest === window) break;
      sum -= oldest.end - oldest.begin;
      drop(oldest);
    }
    return bytes;
  }
}
