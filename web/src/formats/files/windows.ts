/** Reads a file on a server in few large requests, ahead of its readers. */
import { allocate, type Stretch } from './bytes.js';

/** Most bytes of a window, a stretch that is fetched at once. Large enough that the time of a request does not count. */
const windowBytes = 14 << 20;
/** Bytes of stretches whose order of reading is neglected, so that neighbors in the file come together. */
const horizonBytes = 3 * windowBytes;
/** Bytes that are worth no request of their own: short stretches, and gaps between long ones. */
const smallBytes = 1 << 16;
/** Bytes that are still to come at which a further window is asked for. They keep the line busy until its answer begins. */
const comingBytes = windowBytes;
/** Windows behind the one that is read whose turn is soon. */
const near = 2;
/** Bytes of the first window of a reader that goes from one stretch to the next. Each one after it has twice the size. */
const firstAhead = 1 << 19;
/** The use of memory that cannot be allocated, in errors. */
const use = ' of a file on a server';
/** Most windows in memory, those of all files together: what two readers need without fetching twice. */
const mostWindows = 6;
/** Most bytes of windows in memory. */
const mostHeld = mostWindows * windowBytes;

interface Window {
  readonly begin: number;
  end: number;
  /** Index in the order of reading; undefined for a window that was not announced. */
  index?: number;
  /** Bytes that are still to be read, without those of small stretches. Bytes that are read twice count twice. */
  left: number;
  /** Bytes that are read in all. */
  readonly total: number;
  /** Small stretches between the others, whose bytes are kept for their turn. */
  readonly small: SmallStretch[];
  bytes?: Promise<Uint8Array> | undefined;
  /** Its memory, once all bytes are there. */
  memory?: Uint8Array<ArrayBuffer> | undefined;
  /** Readers that wait for it or copy from it. */
  readers: number;
}

/** A stretch that is too short for a request of its own, such as a bias. */
interface SmallStretch extends Stretch {
  readonly window: Window;
  bytes?: Uint8Array;
}

/** The windows in memory, the oldest first. */
const held = new Set<Window>();

/** Bytes of memory for a large window. One that reaches to its neighbor is a gap longer. */
const largeBytes = windowBytes + smallBytes;

/** Memory of earlier large windows. Reused, because garbage would pile up. */
const spare: ArrayBuffer[] = [];

function drop(window: Window): void {
  window.bytes = undefined;
  held.delete(window);
  recycle(window);
  if (held.size === 0) spare.length = 0;
}

/** Keeps the memory of a window that is dropped and that nobody reads. */
function recycle(window: Window): void {
  if (window.bytes !== undefined || window.readers > 0) return;
  const buffer = window.memory?.buffer;
  if (buffer?.byteLength === largeBytes && held.size + spare.length < mostWindows) spare.push(buffer);
  window.memory = undefined;
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
      if (last === undefined || part.begin > last.end + smallBytes) {
        joined.push({ begin: part.begin, end: part.end, parts: [part] });
        continue;
      }
      last.end = Math.max(last.end, part.end);
      last.parts.push(part);
    }
    // Cut them into windows of about the same size.
    for (const { begin, end, parts } of joined) {
      const size = Math.ceil((end - begin) / Math.ceil((end - begin) / windowBytes));
      for (let at = begin; at < end; at += size) {
        const to = Math.min(end, at + size);
        const overlap = (part: Stretch) => Math.max(0, Math.min(to, part.end) - Math.max(at, part.begin));
        const left = parts.reduce((sum, part) => sum + overlap(part) * (part.times ?? 1), 0);
        windows.push({ begin: at, end: to, index: windows.length, left, total: left, small: [], readers: 0 });
      }
    }
    [group, bytes] = [[], 0];
  };
  for (const { begin, end, times } of stretches) {
    // A long stretch comes in several groups.
    for (let at = begin; at < end; ) {
      const to = Math.min(end, at + horizonBytes - bytes);
      group.push({ begin: at, end: to, times });
      bytes += to - at;
      at = to;
      if (bytes === horizonBytes) flush();
    }
  }
  flush();
  return windows;
}

/** The last of the windows, in the order of positions, that begins at or before a position, and the one behind it. */
function windowsAt(
  sorted: readonly Window[],
  at: number,
): readonly [found: Window | undefined, next: Window | undefined] {
  let [low, high] = [0, sorted.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if ((sorted[middle] as Window).begin <= at) low = middle + 1;
    else high = middle;
  }
  return [sorted[low - 1], sorted[low]];
}

/** Fetches bytes from a position on into memory. @param onBytes called with the number of bytes that came */
type Fetch = (begin: number, target: Uint8Array, onBytes?: (count: number) => void) => Promise<void>;

/** Reads stretches of a file through windows. */
export class WindowReader {
  readonly #size: number;
  readonly #fetch: Fetch;
  /** Announced windows, in the order of reading, and by position. They do not overlap. */
  #order: readonly Window[] = [];
  #sorted: readonly Window[] = [];
  /** Small stretches in these windows, by their positions. */
  #small: ReadonlyMap<number, SmallStretch> = new Map();
  /** Index of the window that was read last; -1 before the first. */
  #position = -1;
  /** Bytes that were asked for and are still to come. */
  #coming = 0;
  /** The window of a reader that goes from one stretch to the next, where it goes on, and the size of its last window. */
  #ahead: Window | undefined;
  #next: number | undefined;
  #aheadBytes = 0;

  constructor(size: number, fetch: Fetch) {
    this.#size = size;
    this.#fetch = fetch;
  }

  /** Announces what is read, in order. */
  expect(stretches: readonly Stretch[]): void {
    this.clear();
    const isLong = ({ begin, end }: Stretch) => end - begin > smallBytes;
    this.#order = windowsFor(stretches.filter(isLong));
    this.#sorted = this.#order.toSorted((a, b) => a.begin - b.begin);
    const last = Math.max(0, ...stretches.map(({ end }) => end));
    for (const [i, window] of this.#sorted.entries()) {
      const gap = (this.#sorted[i + 1]?.begin ?? last) - window.end;
      if (gap > 0 && gap <= smallBytes) window.end += gap;
    }
    // Short stretches come along with the long ones around them.
    const small = new Map<number, SmallStretch>();
    for (const stretch of stretches) {
      const [window] = windowsAt(this.#sorted, stretch.begin);
      if (isLong(stretch) || window === undefined || stretch.end > window.end) continue;
      const one = { ...stretch, window };
      window.small.push(one);
      small.set(stretch.begin, one);
    }
    this.#small = small;
  }

  /** Takes a reading of a stretch back. */
  skip({ begin, end }: Stretch): void {
    for (const window of this.#order) {
      window.left -= Math.max(0, Math.min(end, window.end) - Math.max(begin, window.begin));
    }
  }

  /** Drops all windows. */
  clear(): void {
    for (const window of [...this.#order, this.#ahead]) if (window !== undefined) drop(window);
    [this.#order, this.#sorted, this.#small, this.#ahead] = [[], [], new Map(), undefined];
    this.#position = -1;
  }

  /** Fills memory with the bytes from a position on. */
  async readInto(begin: number, target: Uint8Array): Promise<void> {
    const end = begin + target.length;
    for (let at = begin; at < end; ) {
      const small = this.#small.get(at);
      if (small !== undefined && small.end <= end) {
        target.set(await this.#smallBytes(small), at - begin);
        at = small.end;
        continue;
      }
      const [window, until] = this.#windowAt(at, end);
      if (window === undefined) {
        this.#next = until;
        await this.#fetch(at, target.subarray(at - begin, until - begin));
        at = until;
        continue;
      }
      window.readers++;
      try {
        const bytes = await this.#load(window);
        const some = bytes.subarray(at - window.begin, Math.min(window.end, end) - window.begin);
        target.set(some, at - begin);
        at += some.length;
        window.left -= some.length;
      } finally {
        window.readers--;
        recycle(window);
      }
      this.#dropBefore(window);
    }
  }

  /** Drops windows that are read, but for the last one: columns that are read one after the other overlap. */
  #dropBefore({ index = -1 }: Window): void {
    for (const other of held) {
      if (other.left <= 0 && other.index !== undefined && other.index < index && this.#order[other.index] === other)
        drop(other);
    }
  }

  /** The bytes of a short stretch. Its window is fetched now if its turn comes soon. */
  async #smallBytes(small: SmallStretch): Promise<Uint8Array> {
    const { begin, end, window } = small;
    if (small.bytes === undefined && window.index !== undefined && window.index <= this.#position + near) {
      await this.#load(window);
    }
    if (small.bytes !== undefined) return small.bytes;
    const bytes = new Uint8Array(end - begin);
    await this.#fetch(begin, bytes);
    return bytes;
  }

  /** The window that holds a position; without one, the position up to which no window has the bytes. */
  #windowAt(at: number, end: number): readonly [window: Window | undefined, until: number] {
    if (this.#ahead !== undefined && this.#ahead.begin <= at && at < this.#ahead.end) return [this.#ahead, at];
    const [found, following] = windowsAt(this.#sorted, at);
    if (found !== undefined && at < found.end) return [found, at];
    const before = following?.begin ?? this.#size;
    // Read ahead for a reader that goes on where it ended.
    this.#aheadBytes = at === this.#next ? Math.min(windowBytes, Math.max(firstAhead, 2 * this.#aheadBytes)) : 0;
    const to = Math.min(before, at + this.#aheadBytes);
    if (to <= end) return [undefined, Math.min(end, before)];
    if (this.#ahead !== undefined) drop(this.#ahead);
    this.#ahead = { begin: at, end: to, left: to - at, total: to - at, small: [], readers: 0 };
    this.#next = to;
    return [this.#ahead, at];
  }

  /** The bytes of a window that is read now. Fetches the next ones ahead. */
  #load(window: Window): Promise<Uint8Array> {
    this.#position = window.index ?? this.#position;
    if (window.bytes === undefined) this.#makeRoom(window);
    const bytes = this.#start(window);
    this.#fetchAhead();
    return bytes;
  }

  /** Fetches the windows that are read next, as far as the line is free and there is room. */
  #fetchAhead(): void {
    for (let i = this.#position + 1; this.#coming < comingBytes; i++) {
      const next = this.#order[i];
      if (next === undefined) return;
      if (next.bytes !== undefined || next.left <= 0) continue;
      if (!this.#makeRoom(next)) return;
      this.#start(next);
    }
  }

  /** Makes room in memory for a window: drops those that are read, and those that are read again after it. True if there is room. */
  #makeRoom({ begin, end, index = -1 }: Window): boolean {
    let sum = end - begin;
    for (const other of held) sum += other.end - other.begin;
    while (sum > mostHeld) {
      let least: Window | undefined;
      for (const other of held) {
        if (other.readers > 0 || other.memory === undefined) continue;
        const at = this.#order[other.index ?? -1] === other ? (other.index as number) : undefined;
        if (other.left <= 0 && at !== this.#position) {
          least = other;
          break;
        }
        const isAgain = other.total > other.end - other.begin && other.left <= other.total / 2;
        if (at !== undefined && isAgain && at > (least?.index ?? index)) least = other;
      }
      if (least === undefined) return false;
      sum -= least.end - least.begin;
      drop(least);
    }
    return true;
  }

  #start(window: Window): Promise<Uint8Array> {
    if (window.bytes !== undefined) return window.bytes;
    const { begin, end } = window;
    // A stretch that is read again comes whole again.
    if (window.left <= 0) window.left = end - begin;
    const buffer = end - begin > windowBytes / 2 ? (spare.pop() ?? allocate(largeBytes, use).buffer) : undefined;
    const memory = buffer === undefined ? allocate(end - begin, use) : new Uint8Array(buffer, 0, end - begin);
    let left = end - begin;
    this.#coming += left;
    const come = (count: number) => {
      left -= count;
      this.#coming -= count;
      if (this.#order[window.index ?? -1] === window) this.#fetchAhead();
    };
    const bytes = this.#fetch(begin, memory, come).then(() => {
      for (const one of window.small) one.bytes ??= memory.slice(one.begin - begin, one.end - begin);
      if (window.bytes === bytes) window.memory = memory;
      return memory;
    });
    window.bytes = bytes;
    // Memory has room for others once a window is whole.
    bytes.then(
      () => come(0),
      () => {
        drop(window);
        this.#coming -= left;
      },
    );
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
