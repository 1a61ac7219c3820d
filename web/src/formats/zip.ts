/**
 * Reads zip archives: the list of their files, the place of each, and packed files.
 * Reference: PKWARE's APPNOTE.TXT, sections 4.3 and 4.5.
 */
import { ScalepointError } from '../core/errors.js';
import { allocate, type ByteSource, checkRange, quoted } from './files/bytes.js';
import { badFile } from './files/errors.js';

/** A file in an archive. */
export interface ZipEntry {
  readonly name: string;
  readonly method: number;
  readonly flags: number;
  readonly packed: number;
  readonly size: number;
  /** Offset of its local header. */
  readonly at: number;
}

/** Size of the record at the end of an archive, which locates the list of files. A comment, mostly empty, follows it. */
const endBytes = 22;
const mostComment = 0xffff;
/** Placeholder for numbers that do not fit into 32 bits. */
const beyond = 0xffff_ffff;

const viewOf = ({ buffer, byteOffset, byteLength }: Uint8Array) => new DataView(buffer, byteOffset, byteLength);

/** Size and offset of the list of files, from the record for large archives. @param end offset of the usual record */
async function wideEnd(source: ByteSource, end: number): Promise<[bytes: number, at: number]> {
  const locator = end - 20;
  const view = locator < 0 ? undefined : viewOf(await source.read(locator, end));
  if (view?.getUint32(0, true) !== 0x07064b50) badFile('the zip archive lacks the record of its large size', end);
  const at = Number(view.getBigUint64(8, true));
  if (!(at + 56 <= locator)) badFile('the record of the size lies outside of the zip archive', locator);
  const record = viewOf(await source.read(at, at + 56));
  if (record.getUint32(0, true) !== 0x06064b50) badFile('the zip archive lacks the record of its large size', at);
  return [Number(record.getBigUint64(40, true)), Number(record.getBigUint64(48, true))];
}

/** Largest list of files in bytes. */
const mostListBytes = 1 << 24;

/** The files of an archive, and the offset of their list. */
export async function entriesOf(source: ByteSource): Promise<{ entries: readonly ZipEntry[]; listAt: number }> {
  const start = Math.max(0, source.size - endBytes - mostComment);
  const tail = viewOf(await source.read(start, source.size));
  let end = tail.byteLength - endBytes;
  while (end >= 0 && tail.getUint32(end, true) !== 0x06054b50) end--;
  if (end < 0) badFile('the zip archive has no end', source.size);
  let [bytes, at] = [tail.getUint32(end + 12, true), tail.getUint32(end + 16, true)];
  if (bytes === beyond || at === beyond) [bytes, at] = await wideEnd(source, start + end);
  if (at + bytes > start + end) badFile('the list of the zip archive lies outside of it', start + end);
  if (bytes > mostListBytes) badFile(`the list of the zip archive has ${bytes} bytes, more than ${mostListBytes}`, at);
  const list = await source.read(at, at + bytes);
  const view = viewOf(list);
  const entries: ZipEntry[] = [];
  for (let i = 0; i < bytes; ) {
    const lengths = i + 46 > bytes ? [] : [28, 30, 32].map((k) => view.getUint16(i + k, true));
    const [name = 0, extra = 0, comment = 0] = lengths;
    const after = i + 46 + name + extra + comment;
    if (after > bytes || view.getUint32(i, true) !== 0x02014b50)
      badFile('the list of the zip archive is damaged', at + i);
    const nameEnd = i + 46 + name;
    const values = [view.getUint32(i + 24, true), view.getUint32(i + 20, true), view.getUint32(i + 42, true)];
    // Sizes and an offset that do not fit into 32 bits stand in an extra field.
    const end = nameEnd + extra;
    for (let k = nameEnd; k + 4 <= end; k += 4 + view.getUint16(k + 2, true)) {
      if (view.getUint16(k, true) !== 1) continue;
      let next = k + 4;
      const fieldEnd = Math.min(end, next + view.getUint16(k + 2, true));
      for (const [index, value] of values.entries()) {
        if (value !== beyond) continue;
        if (next + 8 > fieldEnd) badFile('a zip entry lacks its size', at + k);
        values[index] = Number(view.getBigUint64(next, true));
        next += 8;
      }
    }
    const [size, packed, offset] = values as [number, number, number];
    entries.push({
      name: new TextDecoder().decode(list.subarray(i + 46, nameEnd)),
      flags: view.getUint16(i + 8, true),
      method: view.getUint16(i + 10, true),
      packed,
      size,
      at: offset,
    });
    i = after;
  }
  return { entries, listAt: at };
}

/** Largest ratio of deflate. Entries that state more are invalid. */
const mostRatio = 1032;

/** An entry, and where its packed bytes are. */
export interface PlacedEntry {
  readonly entry: ZipEntry;
  /** Offset behind its local header. */
  readonly begin: number;
  readonly end: number;
}

/** Locates the bytes of an entry, and checks its sizes. */
export async function placed(source: ByteSource, entry: ZipEntry): Promise<PlacedEntry> {
  const { name, method, flags, packed, size, at } = entry;
  if (!(at + 30 <= source.size)) badFile(`${quoted(name)} lies outside of the zip archive`, source.size);
  if (flags & 1) badFile(`${quoted(name)} in the zip archive is encrypted`, at);
  const head = viewOf(await source.read(at, at + 30));
  if (head.getUint32(0, true) !== 0x04034b50) badFile(`${quoted(name)} is not where the zip archive says`, at);
  const begin = at + 30 + head.getUint16(26, true) + head.getUint16(28, true);
  if (!(begin + packed <= source.size)) badFile(`${quoted(name)} lies outside of the zip archive`, at);
  if (method === 0 && packed !== size) badFile(`${quoted(name)} has two sizes in the zip archive`, at);
  if (size > mostRatio * packed + 1024) badFile(`${quoted(name)} cannot be as large as the zip archive says`, at);
  if (method !== 0 && method !== 8) badFile(`${quoted(name)} is packed in a way that is not read (${method})`, at);
  return { entry, begin, end: begin + packed };
}

/** Checks that entries share no bytes, so that a small archive does not stand for much memory. @param listAt begin of the list of files */
export function checkEntriesApart(entries: readonly PlacedEntry[], listAt: number): void {
  let [covered, before] = [0, ''];
  for (const { entry, end } of entries.toSorted((a, b) => a.entry.at - b.entry.at)) {
    const { name, at } = entry;
    if (at < covered) badFile(`${quoted(name)} overlaps ${quoted(before)} in the zip archive`, at);
    if (end > listAt) badFile(`${quoted(name)} overlaps the list of the zip archive`, at);
    [covered, before] = [end, name];
  }
}

/** The bytes of an entry that is not packed. */
export function storedSource(source: ByteSource, { entry: { size }, begin }: PlacedEntry): ByteSource {
  return {
    size,
    async read(from, to) {
      checkRange(from, to, size);
      return source.read(begin + from, begin + to);
    },
    async verify() {},
    async close() {},
  };
}

/** Bytes of packed data that are read at a time. */
const packedWindow = 1 << 16;

/**
 * A packed entry, inflated as it is read. Reading what lies before the last read begins anew. It gives as many bytes as the archive states,
 * so that a small file cannot fill the memory. Reads run in sequence.
 */
export class InflatedSource implements ByteSource {
  readonly size: number;
  readonly #source: ByteSource;
  readonly #place: PlacedEntry;
  #reader: ReadableStreamDefaultReader<Uint8Array> | undefined;
  /** Bytes that are inflated and not read yet, and their position. */
  #rest: Uint8Array = new Uint8Array(0);
  #at = 0;
  /** The last read. */
  #last: Promise<unknown> = Promise.resolve();

  constructor(source: ByteSource, place: PlacedEntry) {
    this.#source = source;
    this.#place = place;
    this.size = place.entry.size;
  }

  read(begin: number, end: number): Promise<Uint8Array<ArrayBuffer>> {
    const result = this.#last.then(() => this.#read(begin, end));
    this.#last = result.catch(() => {});
    return result;
  }

  async #read(begin: number, end: number): Promise<Uint8Array<ArrayBuffer>> {
    const { size } = this;
    checkRange(begin, end, size);
    const { name, at } = this.#place.entry;
    const target = allocate(end - begin, ` for ${quoted(name)}`);
    if (this.#reader === undefined || begin < this.#at) await this.#begin();
    while (this.#at < end) {
      if (this.#rest.length === 0 && !(await this.#more()))
        badFile(`${quoted(name)} is smaller than the zip archive says`, at);
      // Skip bytes before the range, and copy those in it.
      const part = this.#rest.subarray(0, (this.#at < begin ? begin : end) - this.#at);
      if (this.#at >= begin) target.set(part, this.#at - begin);
      this.#at += part.length;
      this.#rest = this.#rest.subarray(part.length);
    }
    const isLonger = this.#at === size && (this.#rest.length > 0 || (await this.#more()));
    if (isLonger) badFile(`${quoted(name)} is larger than the zip archive says`, at);
    return target;
  }

  async #begin(): Promise<void> {
    await this.#stop();
    this.#rest = new Uint8Array(0);
    this.#at = 0;
    const source = this.#source;
    const { begin, end } = this.#place;
    let at = begin;
    const packed = new ReadableStream<Uint8Array<ArrayBuffer>>(
      {
        async pull(controller) {
          const to = Math.min(end, at + packedWindow);
          if (to > at) controller.enqueue(await source.read(at, to));
          at = to;
          if (at === end) controller.close();
        },
      },
      { highWaterMark: 0 },
    );
    this.#reader = packed.pipeThrough(new DecompressionStream('deflate-raw')).getReader();
  }

  /** Inflates more bytes. Returns false at the end. */
  async #more(): Promise<boolean> {
    try {
      for (;;) {
        const { value, done } = await (this.#reader as ReadableStreamDefaultReader<Uint8Array>).read();
        if (done) return false;
        this.#rest = value;
        if (value.length > 0) return true;
      }
    } catch (cause) {
      if (cause instanceof ScalepointError) throw cause;
      const { name, at: byteOffset } = this.#place.entry;
      throw new ScalepointError('BAD_FILE', `${quoted(name)} in the zip archive is damaged`, { byteOffset, cause });
    }
  }

  async verify(): Promise<void> {}

  close(): Promise<void> {
    const result = this.#last.then(() => this.#stop());
    this.#last = result;
    return result;
  }

  async #stop(): Promise<void> {
    const reader = this.#reader;
    this.#reader = undefined;
    await reader?.cancel().catch(() => {});
  }
}
