/** Puts small tiles together into batches, and their output at neighboring positions into single writes. */
import type { ByteSource } from '../formats/files/bytes.js';
import { type Ask, answerTo } from './questions.js';
import type { BatchedStep, BytesStep, CopiedStep, Steps } from './steps.js';
import { type Batch, BatchLimit } from './task.js';
import { type Destination, nowhere, type TileStep } from './tiles.js';

/** The tensor and the rectangle of a task that is under way. */
export type TileSubject = Pick<TileStep, 'tensor' | 'index' | 'sourceBytes' | 'rectangle'>;

/** Bytes of the memory of a batch, and where they go. */
export interface BatchWrite {
  /** Index of the file of the result. */
  readonly file: number;
  readonly position: number;
  readonly offset: number;
  bytes: number;
  /** The tile that makes the bytes, or the first of several tiles; undefined for known bytes. */
  tile: TileSubject | undefined;
  /** Memory that they go to in place of a file. `position` is one in it. */
  readonly into: Uint8Array<ArrayBuffer> | undefined;
}

/** A batch, and how its output is written. */
export interface PlannedBatch {
  readonly tiles: readonly TileSubject[];
  readonly batch: Batch;
  /** Known bytes, and their offsets in the memory of the batch. */
  readonly known: readonly { readonly offset: number; readonly bytes: Uint8Array<ArrayBuffer> }[];
  /** In the order of positions, those into memory first. */
  readonly writes: readonly BatchWrite[];
}

/** Known bytes up to this size are written together with their neighbors. */
const smallBytes = 1 << 12;
/** Elements from which on a tile is not: together with known bytes, workers could not write it. */
const largeTile = 1 << 16;

/** A stretch of the output of a batch. */
interface OutputStretch {
  readonly to: Destination;
  /** The index of the tile that makes it, or the bytes if they are known. */
  readonly from: number | Uint8Array<ArrayBuffer>;
  readonly zeros: boolean;
}

function stretchesOf(steps: readonly BatchedStep[]): OutputStretch[] {
  const stretches: OutputStretch[] = [];
  let tiles = 0;
  for (const step of steps) {
    if (step.kind === 'bytes') {
      const { file, position, bytes, zeros = false } = step;
      const { length } = bytes;
      const to = { role: '', file, position, bytes: length, count: 1, stride: length, into: undefined };
      stretches.push({ to, from: bytes, zeros });
      continue;
    }
    const from = tiles++;
    for (const to of step.destinations) stretches.push({ to, from, zeros: false });
  }
  return stretches.sort((a, b) => byPosition(a.to, b.to));
}

function byPosition(a: { file: number; position: number }, b: { file: number; position: number }): number {
  return a.file - b.file || a.position - b.position;
}

/** Adds a write to a list, or to its last write if that ends where this one begins, both in the file and in the memory of the batch. */
function add(writes: BatchWrite[], { file, position, offset, bytes, tile, into }: BatchWrite): void {
  const last = writes.at(-1);
  const follows =
    last?.file === file &&
    last.into === into &&
    last.position + last.bytes === position &&
    last.offset + last.bytes === offset;
  if (!follows) writes.push({ file, position, offset, bytes, tile, into });
  else {
    last.bytes += bytes;
    last.tile ??= tile;
  }
}

/** Sorts writes by their positions. */
function inOrder(writes: BatchWrite[]): BatchWrite[] {
  // Only runs of one stretch that lie between runs of another are out of order.
  if (writes.every((write, i) => i === 0 || byPosition(writes[i - 1] as BatchWrite, write) <= 0)) return writes;
  const result: BatchWrite[] = [];
  for (const write of writes.sort(byPosition)) add(result, write);
  return result;
}

/** Writes as numbers, for `Batch.writes`. */
function packed(writes: readonly BatchWrite[]): Float64Array<ArrayBuffer> {
  const numbers = new Float64Array(4 * writes.length);
  let at = 0;
  for (const { file, position, offset, bytes } of writes) {
    numbers[at++] = file;
    numbers[at++] = position;
    numbers[at++] = offset;
    numbers[at++] = bytes;
  }
  return numbers;
}

/** Lays out the memory of a batch in the order of positions. */
function layOut(steps: readonly BatchedStep[]): PlannedBatch {
  // Separate the tasks, which are sent away, from their subjects.
  const tiles: TileSubject[] = [];
  const tasks: TileStep['task'][] = [];
  for (const step of steps) {
    if (step.kind === 'bytes') continue;
    const { tensor, index, sourceBytes, rectangle, task } = step;
    tiles.push({ tensor, index, sourceBytes, rectangle });
    tasks.push(task);
  }
  // Give each stretch its memory, and collect the writes.
  let size = 0;
  let onlyTasks = true;
  const writes: BatchWrite[] = [];
  const known: { offset: number; bytes: Uint8Array<ArrayBuffer> }[] = [];
  for (const { to, from, zeros } of stretchesOf(steps)) {
    const { role, file, position, bytes, count, stride, into } = to;
    const tile = typeof from === 'number' ? tiles[from] : undefined;
    const isWritten = file !== nowhere || into !== undefined;
    for (let i = 0; i < count && isWritten; i++) {
      add(writes, { file, position: position + i * stride, offset: size + i * bytes, bytes, tile, into });
    }
    const task = typeof from === 'number' ? tasks[from] : undefined;
    if (task?.kind === 'encode') task.outputs.push({ role, offset: size, bytes: bytes * count });
    if (typeof from !== 'number') known.push({ offset: size, bytes: from });
    // Known bytes and held parts are in this thread, so that only this thread can write them. Zeros are everywhere.
    onlyTasks &&= isWritten && (tile !== undefined || zeros) && into === undefined;
    size += bytes * count;
  }
  const all = inOrder(writes);
  return {
    tiles,
    batch: { tasks, outputBytes: size, writes: onlyTasks && all.length > 0 ? packed(all) : undefined },
    known,
    writes: all,
  };
}

/** A batch without tasks, of bytes that are too long to be copied. */
function alone({ file, position, bytes }: BytesStep): PlannedBatch {
  const write = { file, position, offset: 0, bytes: bytes.length, tile: undefined, into: undefined };
  return { tiles: [], batch: { tasks: [], outputBytes: bytes.length }, known: [{ offset: 0, bytes }], writes: [write] };
}

/** Bytes of one read when the input is copied. */
const copiedAtOnce = 1 << 20;

/** Reads bytes of the input, a batch for each read. */
async function* copies(
  { file, position, copied }: CopiedStep,
  files: readonly ByteSource[],
): AsyncGenerator<PlannedBatch> {
  const { from, begin, bytes } = copied;
  const source = files[from];
  if (source === undefined) throw new Error(`the plan copies from file ${from}, which is not there`);
  for (let done = 0; done < bytes; done += copiedAtOnce) {
    const read = await source.read(begin + done, begin + Math.min(bytes, done + copiedAtOnce));
    yield alone({ kind: 'bytes', file, position: position + done, bytes: read });
  }
}

/** Collects steps until they have to become a batch. */
class Collector {
  #steps: BatchedStep[] = [];
  readonly #limit = new BatchLimit();
  #hasKnown = false;
  #hasLarge = false;

  get isEmpty(): boolean {
    return this.#steps.length === 0;
  }

  /** Adds a step. Returns the batch before it, if the step did not fit. */
  add(step: BatchedStep): PlannedBatch | undefined {
    const large = step.kind === 'tile' && step.task.rows * step.task.columns >= largeTile;
    const isKnown = step.kind === 'bytes' && !step.zeros;
    const clashes = large ? this.#hasKnown : this.#hasLarge && isKnown;
    let before: PlannedBatch | undefined;
    if (clashes || (step.kind === 'tile' && !this.#limit.admits(step.task))) {
      before = this.flush();
      if (step.kind === 'tile') this.#limit.admits(step.task);
    }
    this.#steps.push(step);
    this.#hasKnown ||= isKnown;
    this.#hasLarge ||= large;
    return before;
  }

  flush(): PlannedBatch {
    const batch = layOut(this.#steps);
    this.#steps = [];
    this.#limit.clear();
    [this.#hasKnown, this.#hasLarge] = [false, false];
    return batch;
  }
}

/**
 * Groups steps into batches and keeps their order. Questions are asked in between, and copied bytes are read.
 * @param files those of the input
 */
export async function* batchesOf(steps: Steps, files: readonly ByteSource[], ask: Ask): AsyncGenerator<PlannedBatch> {
  const collector = new Collector();
  for (let next = steps.next(); !next.done; ) {
    const step = next.value;
    if (step.kind === 'question') {
      next = steps.next(await answerTo(step, ask));
      continue;
    }
    const isLong = step.kind === 'bytes' && step.bytes.length > smallBytes;
    if (isLong || step.kind === 'copied') {
      if (!collector.isEmpty) yield collector.flush();
      if (step.kind === 'copied') yield* copies(step, files);
      else yield alone(step as BytesStep);
    } else {
      const before = collector.add(step);
      if (before !== undefined) yield before;
    }
    next = steps.next(undefined);
  }
  if (!collector.isEmpty) yield collector.flush();
}
