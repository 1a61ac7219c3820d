/** Reads the inputs of batches. Small ones that lie close together in a file are read at once. */
import type { ByteSource } from '../files/bytes.js';
import { type Input, inputsOf, type MovedRows, type Slab, slabBytes, slabsOf, type TileTask } from './task.js';

/** Reads bytes of a file, from a position on, into memory from one offset to another: at once, or later. */
export type ReadInto = (
  file: number,
  begin: number,
  target: Uint8Array,
  from: number,
  to: number,
) => void | Promise<void>;

/** Inputs up to this size are read together. Larger ones go straight to where they are needed. */
const smallInput = 1 << 16;
/** Bytes between two inputs that it pays to read along. */
const smallGap = 1 << 12;
/** Runs below this size are read together with what lies between them, unless that is so many times as much. */
const smallRun = 1 << 16;
const mostStride = 32;
/** In a file of the system, a read takes as long as copying so many bytes. */
const nearGap = 1 << 12;
/** Bytes that are read at once. */
const mostAtOnce = 1 << 20;
/** The same of rows that are moved within them. Real heads have 64 to 256 rows. */
const mostHead = 1 << 23;

/** Bytes of files that another thread reads. They come in the order in which inputs are filled. */
export interface GivenBytes {
  /** Whether they are those of a file. */
  areOf(file: number): boolean;
  /** Puts the next ones into a place: at once if they are here. */
  take(place: Uint8Array): void | Promise<void>;
}

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
  let last: Group | undefined;
  for (const input of small) {
    const { file, begin, bytes } = input;
    const end = begin + bytes;
    if (last?.file === file && begin <= last.end + smallGap && end - last.begin <= mostAtOnce) {
      last.inputs.push(input);
      last.end = Math.max(last.end, end);
    } else {
      last = { file, begin, end, inputs: [input] };
      groups.push(last);
    }
  }
  return groups.filter(({ inputs }) => inputs.length > 1);
}

/** Some rows of an input. It is one run, or has a run for each row. */
function sliceOf(task: TileTask, input: Input, slab: Slab): Input {
  const { bytes, count, stride, begin } = input;
  if (count === task.rows) return { ...input, begin: begin + slab.row * stride, count: slab.rows };
  const size = slabBytes(task, input, slab);
  return { ...input, begin: begin + (bytes / task.rows) * slab.row, bytes: size, stride: size };
}

/** An input of a task, or a part of it. */
export interface InputPart {
  /** Which task of the batch, from 0. */
  readonly task: number;
  readonly input: Input;
}

/** An input in parts of at most so many bytes. */
function* cut(input: Input, most: number): Generator<Input> {
  const { begin, bytes, count, stride, moved } = input;
  if (bytes * count <= most) yield input;
  else if (bytes <= most) {
    const rows = Math.floor(most / bytes);
    for (let row = 0; row < count; row += rows) {
      yield { ...input, begin: begin + row * stride, count: Math.min(rows, count - row) };
    }
  } else {
    for (let i = 0; i < count; i++) {
      for (let at = 0; at < bytes; at += most) {
        const size = Math.min(most, bytes - at);
        const run = { ...input, bytes: size, count: 1, stride: size };
        if (moved !== undefined) yield { ...run, moved: { ...moved, from: moved.from + at } };
        else yield { ...run, begin: begin + i * stride + at };
      }
    }
  }
}

/** The inputs of a batch from some files, in the order in which they are filled, in parts of at most so many bytes. */
export function* partsInTurn(
  tasks: readonly TileTask[],
  isWanted: (file: number) => boolean,
  most: number,
): Generator<InputPart> {
  for (const [i, task] of tasks.entries()) {
    for (const slab of slabsOf(task)) {
      for (const input of inputsOf(task)) {
        if (!isWanted(input.file)) continue;
        const rows = slab.rows === task.rows ? input : sliceOf(task, input, slab);
        for (const part of cut(rows, most)) yield { task: i, input: part };
      }
    }
  }
}

/** Reads inputs. */
export class InputReader {
  readonly #read: ReadInto;
  readonly #isNear: (file: number) => boolean;
  /** What is in memory already. */
  readonly #found = new Map<Input, Uint8Array>();
  /** Memory for inputs that are read together, used again for each batch. */
  #memory = new Uint8Array(0);
  #given: GivenBytes | undefined;
  readonly #spare: ArrayBuffer[];

  /**
   * @param isNear whether a file is one of the system, of which short reads are cheap
   * @param spare memory of earlier reads. As garbage, it would pile up
   */
  constructor(read: ReadInto, isNear: (file: number) => boolean, spare: ArrayBuffer[] = []) {
    this.#read = read;
    this.#isNear = isNear;
    this.#spare = spare;
  }

  /**
   * Reads the inputs of a batch that can be read at once. What fails here is read again by itself, to tell which task it is about.
   * @param given what comes from another thread
   */
  async begin(wanted: readonly Input[], given?: GivenBytes): Promise<void> {
    this.#found.clear();
    this.#given = given;
    const own = given === undefined ? wanted : wanted.filter(({ file }) => !given.areOf(file));
    const groups = groupsOf(own);
    const size = groups.reduce((sum, { begin, end }) => sum + end - begin, 0);
    if (this.#memory.length < size) this.#memory = new Uint8Array(size);
    let at = 0;
    for (const { file, begin, end, inputs } of groups) {
      const bytes = this.#memory.subarray(at, at + end - begin);
      at += bytes.length;
      const read = async () => this.#read(file, begin, bytes, 0, bytes.length);
      const isRead = await read().then(
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

  /** Whether to read a file again costs more than to keep what was read. To copy it once more from the cache of the system does not. */
  paysToKeep(file: number): boolean {
    return this.#given?.areOf(file) === true || !this.#isNear(file);
  }

  /** Puts what some rows of a task of that batch take into its places: at once if all of it is there. */
  fill(task: TileTask, places: readonly Uint8Array[], slab: Slab): void | Promise<void> {
    let last: Promise<void> | undefined;
    const inputs = inputsOf(task);
    for (let i = 0; i < inputs.length; i++) {
      const input = inputs[i] as Input;
      const place = places[i] as Uint8Array;
      // One after the other: what comes from another thread comes in this order.
      if (last === undefined) last = this.#fillOne(task, input, place, slab) ?? undefined;
      else last = last.then(() => this.#fillOne(task, input, place, slab));
    }
    return last;
  }

  #fillOne(task: TileTask, input: Input, place: Uint8Array, slab: Slab): void | Promise<void> {
    if (this.#given?.areOf(input.file)) return this.#given.take(place);
    const found = this.#found.get(input);
    if (found === undefined) return this.put(slab.rows === task.rows ? input : sliceOf(task, input, slab), place);
    if (found.length === place.length) place.set(found);
    else {
      const begin = slabBytes(task, input, { row: 0, rows: slab.row });
      place.set(found.subarray(begin, begin + place.length));
    }
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
    const isFar = stride > mostStride * bytes || (stride - bytes > nearGap && this.#isNear(file));
    if (count > 1 && bytes < smallRun && !isFar) return this.#pick(input, place);
    for (let i = 0; i < count; i++) {
      const pending = this.#read(file, begin + i * stride, place, i * bytes, (i + 1) * bytes);
      if (pending !== undefined) await pending;
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
      const to = at - from;
      if (held.length === 0) {
        await this.#read(file, begin + (first * head + stored) * rowBytes + skip, place, to, to + length);
      } else {
        if (inMemory !== first) await this.#read(file, begin + first * headBytes, held, 0, headBytes);
        inMemory = first;
        place.set(held.subarray(stored * rowBytes + skip, stored * rowBytes + skip + length), to);
      }
      at += length;
    }
  }

  /** Reads short runs together with what lies between them. */
  async #pick({ file, begin, bytes, count, stride }: Input, place: Uint8Array): Promise<void> {
    const most = Math.max(1, Math.floor(mostAtOnce / stride));
    const size = (Math.min(most, count) - 1) * stride + bytes;
    const spare = this.#spare.pop();
    const held = new Uint8Array(spare !== undefined && spare.byteLength >= size ? spare : new ArrayBuffer(size));
    for (let first = 0; first < count; first += most) {
      const some = Math.min(most, count - first);
      const span = held.subarray(0, (some - 1) * stride + bytes);
      await this.#read(file, begin + first * stride, span, 0, span.length);
      for (let i = 0; i < some; i++) place.set(span.subarray(i * stride, i * stride + bytes), (first + i) * bytes);
    }
    this.#spare.push(held.buffer);
  }
}

/** Reads files that are open in this thread. @param spare memory of earlier reads */
export function readerOf(files: readonly ByteSource[], spare?: ArrayBuffer[]): InputReader {
  const read: ReadInto = async (file, begin, memory, from, to) => {
    const source = files[file] as ByteSource;
    const target = memory.subarray(from, to);
    if (source.readInto === undefined) target.set(await source.read(begin, begin + target.length));
    else await source.readInto(begin, target);
  };
  return new InputReader(read, () => false, spare);
}
