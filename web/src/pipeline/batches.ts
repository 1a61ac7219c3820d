/** Puts small tiles together into batches, and what they write at neighboring positions into single writes. */
import type { ByteSource } from '../files/bytes.js';
import { type Batch, BatchLimit } from '../runner/task.js';
import {
  type Ask,
  answerTo,
  type BytesStep,
  type CopiedStep,
  type Destination,
  type Step,
  type Steps,
  type TileStep,
} from './tiles.js';

/** What is to be known of a tile once its task is on its way. */
export type Tile = Pick<TileStep, 'tensor' | 'index' | 'sourceBytes' | 'rectangle'>;

/** Bytes of the memory of a batch, and where they go. */
export interface Write {
  /** Which file of the result. */
  readonly file: number;
  readonly position: number;
  readonly offset: number;
  bytes: number;
  /** The tile that they come from, or the first of several; undefined if they were known. */
  tile: Tile | undefined;
  /** Memory that they go to in place of a file. `position` is one in it. */
  readonly into: Uint8Array<ArrayBuffer> | undefined;
}

/** What is carried out and written together. */
export interface BatchStep {
  readonly tiles: readonly Tile[];
  readonly batch: Batch;
  /** Bytes that are known, and where they go in the memory of the batch. */
  readonly known: readonly { readonly offset: number; readonly bytes: Uint8Array<ArrayBuffer> }[];
  /** In the order of positions, those into memory first. */
  readonly writes: readonly Write[];
}

/** Known bytes up to this size are written together with what is next to them. */
const smallBytes = 1 << 12;
/** Tiles from this size on are not: known bytes would keep workers from writing them. */
const largeTile = 1 << 16;

/** Something that a batch writes. */
interface Stretch {
  readonly to: Destination;
  /** The number of the tile that makes it, or the bytes if they are known. */
  readonly from: number | Uint8Array<ArrayBuffer>;
  readonly zeros: boolean;
}

function stretchesOf(steps: readonly Step[]): Stretch[] {
  const stretches: Stretch[] = [];
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

/** Adds a write to a list, or to the last one of it if that ends where this one begins, in the file and in the memory of the batch. */
function add(writes: Write[], { file, position, offset, bytes, tile, into }: Write): void {
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

/** The same writes in the order of positions. */
function inOrder(writes: Write[]): Write[] {
  // They are, unless the runs of one stretch lie between those of another.
  if (writes.every((write, i) => i === 0 || byPosition(writes[i - 1] as Write, write) <= 0)) return writes;
  const result: Write[] = [];
  for (const write of writes.sort(byPosition)) add(result, write);
  return result;
}

/** Writes as numbers, for `Batch.writes`. */
function packed(writes: readonly Write[]): Float64Array<ArrayBuffer> {
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
function layOut(steps: readonly Step[]): BatchStep {
  const tiles: Tile[] = [];
  const tasks: TileStep['task'][] = [];
  for (const step of steps) {
    if (step.kind === 'bytes') continue;
    const { tensor, index, sourceBytes, rectangle, task } = step;
    tiles.push({ tensor, index, sourceBytes, rectangle });
    tasks.push(task);
  }
  let size = 0;
  let onlyTasks = true;
  const writes: Write[] = [];
  const known: { offset: number; bytes: Uint8Array<ArrayBuffer> }[] = [];
  for (const { to, from, zeros } of stretchesOf(steps)) {
    const { role, file, position, bytes, count, stride, into } = to;
    const tile = typeof from === 'number' ? tiles[from] : undefined;
    for (let i = 0; i < count; i++) {
      add(writes, { file, position: position + i * stride, offset: size + i * bytes, bytes, tile, into });
    }
    if (typeof from === 'number') tasks[from]?.outputs.push({ role, offset: size, bytes: bytes * count });
    else known.push({ offset: size, bytes: from });
    // Known bytes, and what waits in memory, are here and not where the tasks are carried out. Zeros are everywhere.
    onlyTasks &&= (tile !== undefined || zeros) && into === undefined;
    size += bytes * count;
  }
  const all = inOrder(writes);
  return {
    tiles,
    batch: { tasks, outputBytes: size, writes: onlyTasks ? packed(all) : undefined },
    known,
    writes: all,
  };
}

/** Bytes that are too long to be copied, in the place of a batch. */
function alone({ file, position, bytes }: BytesStep): BatchStep {
  const write = { file, position, offset: 0, bytes: bytes.length, tile: undefined, into: undefined };
  return { tiles: [], batch: { tasks: [], outputBytes: bytes.length }, known: [{ offset: 0, bytes }], writes: [write] };
}

/** Bytes that are read at once to be copied. */
const copiedAtOnce = 1 << 20;

/** Bytes of the input, some at a time. */
async function* copies(
  { file, position, copied }: CopiedStep,
  files: readonly ByteSource[],
): AsyncGenerator<BatchStep> {
  const { from, begin, bytes } = copied;
  const source = files[from];
  if (source === undefined) throw new Error(`the plan copies from file ${from}, which is not there`);
  for (let done = 0; done < bytes; done += copiedAtOnce) {
    const read = await source.read(begin + done, begin + Math.min(bytes, done + copiedAtOnce));
    yield alone({ kind: 'bytes', file, position: position + done, bytes: read });
  }
}

/**
 * The same steps in batches, in the same order. Questions are asked in between, and what is copied is read.
 * @param files those of the input
 */
export async function* batchesOf(steps: Steps, files: readonly ByteSource[], ask: Ask): AsyncGenerator<BatchStep> {
  let waiting: Step[] = [];
  const limit = new BatchLimit();
  /** Whether known bytes wait, and whether a large tile does. */
  let [knows, isLarge] = [false, false];
  const flush = () => {
    [knows, isLarge] = [false, false];
    const batch = layOut(waiting);
    waiting = [];
    limit.clear();
    return batch;
  };
  for (let next = steps.next(); !next.done; ) {
    const step = next.value;
    if (step.kind === 'question') {
      next = steps.next(await answerTo(step, ask));
      continue;
    }
    if (step.kind === 'copied') {
      if (waiting.length > 0) yield flush();
      yield* copies(step, files);
      next = steps.next(undefined);
      continue;
    }
    if (step.kind === 'bytes' && step.bytes.length > smallBytes) {
      if (waiting.length > 0) yield flush();
      yield alone(step);
    } else {
      const large = step.kind === 'tile' && step.task.rows * step.task.columns >= largeTile;
      const isKnown = step.kind === 'bytes' && !step.zeros;
      if (large ? knows : isLarge && isKnown) yield flush();
      if (step.kind === 'tile' && !limit.admits(step.task)) {
        yield flush();
        limit.admits(step.task);
      }
      waiting.push(step);
      knows ||= isKnown;
      isLarge ||= large;
    }
    next = steps.next(undefined);
  }
  if (waiting.length > 0) yield flush();
}
