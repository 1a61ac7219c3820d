/** Reads the inputs of batches. Small ones that lie close together in a file are read at once. */
import type { ByteSource } from '../files/bytes.js';
import { type Input, inputsOf, type MovedRows, type TileTask } from './tasks.js';

/** Reads bytes of a file, from a position on, into memory. */
export type ReadInto = (file: number, begin: number, target: Uint8Array) => Promise<void>;

/** Inputs up to this size are read together. Larger ones go straight to where they are needed. */
const smallInput = 1 << 16;
/** Bytes between two inputs that it pays to read along. */
const smallGap = 1 << 12;
/** Runs below this size are read together with what lies between them, unless that is so many times as much. */
const smallRun = 1 << 16;
const mostStride = 32;
/** Bytes that are read at once. */
const mostAtOnce = 1 << 20;
/** The same of rows that are moved within them. Real heads have 64 to 256 rows. */
const mostHead = 1 << 23;

/** Neighbors in a file. */
interface Group {
  readonly file: number;
  readonly begin: number;
  end: number;
  readonly inputs: Input[];
}

/** Small inputs, those together that are close to each other. */
function groupsOf(inputs: readonly Input[]): Group[] {
  const small = inputs.filter(({ bytes, count, moved }) => moved === undefined && count === 1 && bytes <= smallInput);
  small.sort((a, b) => a.file - b.file || a.begin - b.begin);
  const groups: Group[] = [];
  for (const input of small) {
    const { file, begin, bytes } = input;
    const end = begin + bytes;
    const last = groups.at(-1);
    if (last?.file === file && begin <= last.end + smallGap && end - last.begin <= mostAtOnce) {
      last.inputs.push(input);
      last.end = Math.max(last.end, end);
    } else groups.push({ file, begin, end, inputs: [input] });
  }
  return groups.filter(({ inputs }) => inputs.length > 1);
}

/** Reads inputs. */
export class InputReader {
  readonly #read: ReadInto;
  /** What is in memory already. */
  readonly #found = new Map<Input, Uint8Array>();

  constructor(read: ReadInto) {
    this.#read = read;
  }

  /**
   * Reads the inputs of a batch that can be read at once. What fails here is read again by itself, to tell which task it is about.
   * @param given further inputs, which are there already
   */
  async begin(wanted: readonly Input[], given: ReadonlyMap<Input, Uint8Array> = new Map()): Promise<void> {
    this.#found.clear();
    for (const [input, bytes] of given) this.#found.set(input, bytes);
    for (const { file, begin, end, inputs } of groupsOf(wanted)) {
      const bytes = new Uint8Array(end - begin);
      const isRead = await this.#read(file, begin, bytes).then(
        () => true,
        () => false,
      );
      if (!isRead) continue;
      for (const input of inputs) {
        const from = input.begin - begin;
        this.#found.set(input, bytes.subarray(from, from + input.bytes));
      }
    }
  }

  /** Puts the inputs of a task of that batch into their places. */
  async fill(task: TileTask, places: readonly Uint8Array[]): Promise<void> {
    for (const [i, input] of inputsOf(task).entries()) await this.put(input, places[i] as Uint8Array);
  }

  /** Puts one of them into its place. */
  async put(input: Input, place: Uint8Array): Promise<void> {
    const found = this.#found.get(input);
    if (found !== undefined) {
      place.set(found);
      return;
    }
    const { file, begin, bytes, count, stride, moved } = input;
    if (moved !== undefined) return this.#move(input, moved, place);
    if (count > 1 && stride <= mostStride * bytes && bytes < smallRun) return this.#pick(input, place);
    for (let i = 0; i < count; i++) {
      await this.#read(file, begin + i * stride, place.subarray(i * bytes, (i + 1) * bytes));
    }
  }

  /** Reads rows that are moved, those of a head at once if there is room for them. */
  async #move({ file, begin, bytes }: Input, { head, rowBytes, from }: MovedRows, place: Uint8Array): Promise<void> {
    const headBytes = head * rowBytes;
    const held = new Uint8Array(headBytes <= mostHead ? headBytes : 0);
    let inMemory = -1;
    for (let at = from; at < from + bytes; ) {
      const row = Math.floor(at / rowBytes);
      const [first, i] = [Math.floor(row / head), row % head];
      const stored = (i % 2) * (head / 2) + (i >> 1);
      const skip = at - row * rowBytes;
      const length = Math.min(rowBytes - skip, from + bytes - at);
      const target = place.subarray(at - from, at - from + length);
      if (held.length === 0) await this.#read(file, begin + (first * head + stored) * rowBytes + skip, target);
      else {
        if (inMemory !== first) await this.#read(file, begin + first * headBytes, held);
        inMemory = first;
        target.set(held.subarray(stored * rowBytes + skip, stored * rowBytes + skip + length));
      }
      at += length;
    }
  }

  /** Reads short runs together with what lies between them. */
  async #pick({ file, begin, bytes, count, stride }: Input, place: Uint8Array): Promise<void> {
    const most = Math.max(1, Math.floor(mostAtOnce / stride));
    const held = new Uint8Array((Math.min(most, count) - 1) * stride + bytes);
    for (let first = 0; first < count; first += most) {
      const some = Math.min(most, count - first);
      const span = held.subarray(0, (some - 1) * stride + bytes);
      await this.#read(file, begin + first * stride, span);
      for (let i = 0; i < some; i++) place.set(span.subarray(i * stride, i * stride + bytes), (first + i) * bytes);
    }
  }
}

/** Reads files that are open in this thread. */
export function readerOf(files: readonly ByteSource[]): InputReader {
  return new InputReader(async (file, begin, target) => {
    const source = files[file] as ByteSource;
    if (source.readInto === undefined) target.set(await source.read(begin, begin + target.length));
    else await source.readInto(begin, target);
  });
}
