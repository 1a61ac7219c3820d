/** Reads packed files of zip archives. */
import { ScalepointError } from '../core/errors.js';
import { allocate, type ByteSource, checkRange, quoted } from './files/bytes.js';
import { badFile } from './files/errors.js';
import type { PlacedEntry } from './zip.js';

/** Bytes of packed data that are read at a time. */
const packedWindow = 1 << 16;

/** The packed bytes of an entry. */
function packedStream(source: ByteSource, { begin, end }: PlacedEntry): ReadableStream<Uint8Array<ArrayBuffer>> {
  let at = begin;
  return new ReadableStream<Uint8Array<ArrayBuffer>>(
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
}

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
    const inflating = new DecompressionStream('deflate-raw');
    this.#reader = packedStream(this.#source, this.#place).pipeThrough(inflating).getReader();
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
