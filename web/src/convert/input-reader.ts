/** The inputs of tasks: their pieces, and reading them. Small inputs that lie close together in a file are read at once. */
import { type ByteSource, fillFrom } from '../formats/files/bytes.js';
import { type ReadInto, readView } from '../formats/strided.js';
import { type InputPart, type TileTask, zerosFile } from './task.js';

/** Inputs up to this size are read together. Larger ones go straight into their target. */
const smallInput = 1 << 16;
/** Bytes between two inputs that are read along with them. */
const smallGap = 1 << 12;
/** Runs from this size on are read one by one. */
const longRun = 1 << 16;
/** Most bytes of one read. */
const mostAtOnce = 1 << 20;
/** Most bytes of one read of elements that change places. Heads of real models, within which rows change places, have fewer. */
const mostMoved = 1 << 23;

/** Rows of a task that are in memory together. */
export interface TilePiece {
  readonly row: number;
  readonly rows: number;
}

/** The rows of a task, cut into pieces. */
export function taskPieces(task: TileTask): TilePiece[] {
  const { rows } = task;
  const pieceRows = ('pieceRows' in task ? task.pieceRows : undefined) ?? rows;
  if (rows <= pieceRows) return [{ row: 0, rows }];
  return Array.from({ length: Math.ceil(rows / pieceRows) }, (_, i) => ({
    row: i * pieceRows,
    rows: Math.min(pieceRows, rows - i * pieceRows),
  }));
}

/** Bytes of an input part that a piece takes. */
export function pieceBytes({ rows }: TileTask, { bytes, count }: InputPart, piece: TilePiece): number {
  return piece.rows === rows ? bytes * count : ((bytes * count) / rows) * piece.rows;
}

/** The parts that a task reads, in the order in which its converter fills them. */
export function inputPartsOf(task: TileTask): readonly InputPart[] {
  const { inputs } = task;
  if (task.kind === 'encode' && task.cached !== undefined) return [];
  return inputs.length === 1 ? inputs[0].parts : inputs.flatMap(({ parts }) => parts);
}

/** Bytes of files that another thread reads. They arrive in the order in which inputs are filled. */
export interface GivenBytes {
  /** True if the other thread reads this file. */
  areOf(file: number): boolean;
  /** Fills a target with the next bytes: at once if they are here. */
  take(target: Uint8Array): void | Promise<void>;
}

/** The bytes of an input part that a piece takes. The part is one run, or has a run for each row. */
function sliceOf(task: TileTask, part: InputPart, piece: TilePiece): InputPart {
  const { bytes, count, stride, begin } = part;
  if (count === task.rows && part.moved === undefined)
    return { ...part, begin: begin + piece.row * stride, count: piece.rows };
  const size = pieceBytes(task, part, piece);
  const skipped = (bytes / task.rows) * piece.row;
  const { moved } = part;
  if (moved !== undefined)
    return { ...part, bytes: size, stride: size, moved: { ...moved, from: moved.from + skipped } };
  return { ...part, begin: begin + skipped, bytes: size, stride: size };
}

/** An input part of a task, or some of its bytes. */
export interface InputSlice {
  /** Index of the task in the batch. */
  readonly task: number;
  readonly part: InputPart;
}

/** The inputs of a batch from the wanted files, in the order in which they are filled, in slices of at most `most` bytes. */
export function* slicesInTurn(
  tasks: readonly TileTask[],
  isWanted: (file: number) => boolean,
  most: number,
): Generator<InputSlice> {
  for (const [index, task] of tasks.entries()) {
    for (const piece of taskPieces(task)) {
      for (const whole of inputPartsOf(task)) {
        if (whole.file === zerosFile || !isWanted(whole.file)) continue;
        const part = piece.rows === task.rows ? whole : sliceOf(task, whole, piece);
        const { begin, bytes, count, stride, moved } = part;
        // Cut between runs if these are short enough, else within them.
        const runs = Math.max(1, Math.floor(most / bytes));
        for (let i = 0; i < count; i += runs) {
          const some = Math.min(runs, count - i);
          if (bytes * count <= most) yield { task: index, part };
          else if (bytes <= most) yield { task: index, part: { ...part, begin: begin + i * stride, count: some } };
          else {
            for (let at = 0; at < bytes; at += most) {
              const size = Math.min(most, bytes - at);
              const run = { ...part, bytes: size, count: 1, stride: size };
              if (moved === undefined) yield { task: index, part: { ...run, begin: begin + i * stride + at } };
              else yield { task: index, part: { ...run, moved: { ...moved, from: moved.from + at } } };
            }
          }
        }
      }
    }
  }
}

/** Reads inputs. */
export class InputReader {
  readonly #read: ReadInto;
  readonly #isNear: (file: number) => boolean;
  /** Inputs that were read together with others. */
  readonly #found = new Map<InputPart, Uint8Array>();
  /** Memory for inputs that are read together, reused for each batch. */
  #memory = new Uint8Array(0);
  #given: GivenBytes | undefined;
  readonly #spare: ArrayBuffer[];

  /**
   * @param isNear whether a file is local, so that short reads are cheap
   * @param spare memory of earlier reads, reused because garbage would pile up
   */
  constructor(read: ReadInto, isNear: (file: number) => boolean, spare: ArrayBuffer[] = []) {
    this.#read = read;
    this.#isNear = isNear;
    this.#spare = spare;
  }

  /**
   * Begins a batch, and reads its small inputs together. A part of a read that fails here is read again alone, so that the error names its
   * task.
   * @param given bytes that come from another thread
   */
  async begin(wanted: readonly InputPart[], given?: GivenBytes): Promise<void> {
    this.#found.clear();
    this.#given = given;
    const own = given === undefined ? wanted : wanted.filter(({ file }) => !given.areOf(file));
    // Group small inputs that lie close to each other.
    const small = own.filter(
      ({ bytes, count, moved, file }) =>
        moved === undefined && count === 1 && bytes <= smallInput && file !== zerosFile,
    );
    small.sort((a, b) => a.file - b.file || a.begin - b.begin);
    const groups: { file: number; begin: number; end: number; parts: InputPart[] }[] = [];
    let last: (typeof groups)[number] | undefined;
    for (const part of small) {
      const { file, begin, bytes } = part;
      const end = begin + bytes;
      if (last?.file === file && begin <= last.end + smallGap && end - last.begin <= mostAtOnce) {
        last.parts.push(part);
        last.end = Math.max(last.end, end);
      } else {
        last = { file, begin, end, parts: [part] };
        groups.push(last);
      }
    }
    const several = groups.filter(({ parts }) => parts.length > 1);
    const size = several.reduce((sum, { begin, end }) => sum + end - begin, 0);
    if (this.#memory.length < size) this.#memory = new Uint8Array(size);
    let at = 0;
    for (const { file, begin, end, parts } of several) {
      const memory = this.#memory.subarray(at, at + end - begin);
      at += memory.length;
      try {
        await this.#read(file, begin, memory, 0, memory.length);
      } catch {
        continue;
      }
      for (const part of parts)
        this.#found.set(part, memory.subarray(part.begin - begin, part.begin - begin + part.bytes));
    }
  }

  /** True if reading a file again costs more than caching the bytes. Local files are in the cache of the system already. */
  paysToCache(file: number): boolean {
    return this.#given?.areOf(file) === true || !this.#isNear(file);
  }

  /** Fills the targets with the inputs of a piece, from the one at `first` on: at once if all of them are here. */
  fill(task: TileTask, targets: readonly Uint8Array[], piece: TilePiece, first = 0): void | Promise<void> {
    const parts = inputPartsOf(task);
    for (let i = first; i < parts.length; i++) {
      const part = parts[i] as InputPart;
      const target = targets[i] as Uint8Array;
      const found = this.#found.get(part);
      let pending: Promise<void> | undefined;
      if (part.file === zerosFile) target.fill(0);
      else if (this.#given?.areOf(part.file)) pending = this.#given.take(target) ?? undefined;
      else if (found === undefined)
        pending = this.put(piece.rows === task.rows ? part : sliceOf(task, part, piece), target);
      else if (found.length === target.length) target.set(found);
      else {
        const begin = pieceBytes(task, part, { row: 0, rows: piece.row });
        target.set(found.subarray(begin, begin + target.length));
      }
      // One after the other, because bytes from another thread arrive in this order.
      if (pending !== undefined) return pending.then(() => this.fill(task, targets, piece, i + 1));
    }
  }

  /** Fills a target with an input part. */
  async put(part: InputPart, target: Uint8Array): Promise<void> {
    const found = this.#found.get(part);
    if (found !== undefined) {
      target.set(found);
      return;
    }
    const { file, begin, bytes, count, stride, moved } = part;
    if (moved === undefined && (count === 1 || bytes >= longRun)) {
      for (let i = 0; i < count; i++) {
        const pending = this.#read(file, begin + i * stride, target, i * bytes, (i + 1) * bytes);
        if (pending !== undefined) await pending;
      }
      return;
    }
    const view = moved ?? { unit: bytes, dims: [[count, stride] as const], from: 0 };
    const most = moved === undefined ? mostAtOnce : mostMoved;
    const reads = { read: this.#read, isNear: this.#isNear(file), most, spare: this.#spare };
    return readView(file, begin, view, target, reads);
  }
}

/** An InputReader of files that are open in this thread. @param spare memory of earlier reads */
export function inputReaderFor(files: readonly ByteSource[], spare?: ArrayBuffer[]): InputReader {
  return new InputReader(
    (file, begin, memory, from, to) => fillFrom(files[file] as ByteSource, begin, memory.subarray(from, to)),
    () => false,
    spare,
  );
}
