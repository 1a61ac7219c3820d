/** Puts small tiles together into batches, and their output at neighboring positions into single writes. */
import { tileElements } from '../formats/codecs/codec.js';
import type { ByteSource } from '../formats/files/bytes.js';
import type { BatchedStep, BytesStep, Steps } from './steps.js';
import type { Batch } from './task.js';
import { type Destination, nowhere, type QuestionStep, type Reply, type TileStep } from './tiles.js';

/** The tensor and the rectangle of a task that is under way. */
export type TileSubject = Pick<TileStep, 'tensor' | 'index' | 'sourceBytes' | 'rectangle'>;

/** Bytes of the memory of a batch, and where they go. */
interface BatchWrite {
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

type Place = Pick<BatchWrite, 'file' | 'position'>;
const byPosition = (a: Place, b: Place) => a.file - b.file || a.position - b.position;

/** Adds a write to a list, or to its last write if that ends where this one begins, both in the file and in the memory of the batch. */
function addWrite(writes: BatchWrite[], { file, position, offset, bytes, tile, into }: BatchWrite): void {
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

/** Lays out the memory of a batch in the order of positions. */
function layOutBatch(steps: readonly BatchedStep[]): PlannedBatch {
  // Separate the tasks, which are sent away, from their subjects. List the stretches of the output.
  const tiles: TileSubject[] = [];
  const tasks: TileStep['task'][] = [];
  const stretches: { to: Destination; from: number | Uint8Array<ArrayBuffer>; zeros: boolean }[] = [];
  for (const step of steps) {
    if (step.kind === 'bytes') {
      const { file, position, bytes, zeros = false } = step;
      const { length } = bytes;
      const to = { role: '', file, position, bytes: length, count: 1, stride: length, into: undefined };
      stretches.push({ to, from: bytes, zeros });
      continue;
    }
    const { tensor, index, sourceBytes, rectangle, task, destinations } = step;
    for (const to of destinations) stretches.push({ to, from: tiles.length, zeros: false });
    tiles.push({ tensor, index, sourceBytes, rectangle });
    tasks.push(task);
  }
  // Give each stretch its memory, and collect the writes.
  let outputBytes = 0;
  let onlyTasks = true;
  let writes: BatchWrite[] = [];
  const known: { offset: number; bytes: Uint8Array<ArrayBuffer> }[] = [];
  for (const { to, from, zeros } of stretches.sort((a, b) => byPosition(a.to, b.to))) {
    const { role, file, position, bytes, count, stride, into } = to;
    const tile = typeof from === 'number' ? tiles[from] : undefined;
    const isWritten = file !== nowhere || into !== undefined;
    for (let i = 0; i < count && isWritten; i++) {
      addWrite(writes, { file, position: position + i * stride, offset: outputBytes + i * bytes, bytes, tile, into });
    }
    const task = typeof from === 'number' ? tasks[from] : undefined;
    if (task?.kind === 'encode') task.outputs.push({ role, offset: outputBytes, bytes: bytes * count });
    if (typeof from !== 'number') known.push({ offset: outputBytes, bytes: from });
    // Known bytes and held parts are in this thread, so that only this thread can write them. Zeros are everywhere.
    onlyTasks &&= isWritten && (tile !== undefined || zeros) && into === undefined;
    outputBytes += bytes * count;
  }
  // Only runs of one stretch that lie between runs of another are out of order.
  if (writes.some((write, i) => i > 0 && byPosition(writes[i - 1] as BatchWrite, write) > 0)) {
    const sorted: BatchWrite[] = [];
    for (const write of writes.sort(byPosition)) addWrite(sorted, write);
    writes = sorted;
  }
  const numbers = onlyTasks && writes.length > 0 ? new Float64Array(4 * writes.length) : undefined;
  if (numbers !== undefined) {
    for (const [i, { file, position, offset, bytes }] of writes.entries())
      numbers.set([file, position, offset, bytes], 4 * i);
  }
  return { tiles, batch: { tasks, outputBytes, writes: numbers }, known, writes };
}

/** A batch without tasks, of bytes that are too long to be copied. */
function bytesAlone({ file, position, bytes }: Pick<BytesStep, 'file' | 'position' | 'bytes'>): PlannedBatch {
  const write = { file, position, offset: 0, bytes: bytes.length, tile: undefined, into: undefined };
  return { tiles: [], batch: { tasks: [], outputBytes: bytes.length }, known: [{ offset: 0, bytes }], writes: [write] };
}

/** Most tasks of a batch. More would save little, and progress would be reported less often. */
const mostTasks = 256;
/** Known bytes up to this size are written together with their neighbors. */
const smallBytes = 1 << 12;
/** Elements from which on a tile is not: together with known bytes, workers could not write it. */
const largeTile = 1 << 16;
/** Bytes of one read when the input is copied. */
const copiedAtOnce = 1 << 20;

/**
 * Groups steps into batches and keeps their order. Questions are answered in between, and copied bytes are read. A batch has up to the
 * elements of a full tile, so that a full tile travels alone.
 * @param files those of the input
 */
export async function* batchesOf(
  steps: Steps,
  files: readonly ByteSource[],
  answer: (question: QuestionStep) => Promise<Reply>,
): AsyncGenerator<PlannedBatch> {
  // The steps of the next batch.
  let collected: BatchedStep[] = [];
  let [tasks, elements, hasKnown, hasLarge] = [0, 0, false, false];
  const flush = () => {
    const batch = layOutBatch(collected);
    collected = [];
    [tasks, elements, hasKnown, hasLarge] = [0, 0, false, false];
    return batch;
  };
  let reply: Reply | undefined;
  for (let next = steps.next(); !next.done; next = steps.next(reply)) {
    const step = next.value;
    reply = undefined;
    if (step.kind === 'question') {
      reply = await answer(step);
      continue;
    }
    // Copied bytes and long ones travel alone.
    if (step.kind === 'copied') {
      if (collected.length > 0) yield flush();
      const { file, position, copied } = step;
      const source = files[copied.from];
      if (source === undefined) throw new Error(`the plan copies from file ${copied.from}, which is not there`);
      for (let done = 0; done < copied.bytes; done += copiedAtOnce) {
        const end = Math.min(copied.bytes, done + copiedAtOnce);
        const bytes = await source.read(copied.begin + done, copied.begin + end);
        yield bytesAlone({ file, position: position + done, bytes });
      }
      continue;
    }
    if (step.kind === 'bytes' && step.bytes.length > smallBytes) {
      if (collected.length > 0) yield flush();
      yield bytesAlone(step);
      continue;
    }
    // Add the step to those before it if they fit together.
    const isKnown = step.kind === 'bytes' && !step.zeros;
    let [size, isLarge, isFull] = [0, false, false];
    if (step.kind === 'tile') {
      const { task } = step;
      isLarge = task.rows * task.columns >= largeTile;
      // A task with a cached input has to go to the owner of the cache, and therefore travels alone.
      size = 'cached' in task && task.cached !== undefined ? tileElements : task.rows * task.columns;
      isFull = tasks > 0 && (tasks >= mostTasks || elements + size > tileElements);
    }
    const clashes = isLarge ? hasKnown : hasLarge && isKnown;
    if (isFull || clashes) yield flush();
    collected.push(step);
    tasks += Number(step.kind === 'tile');
    elements += size;
    hasKnown ||= isKnown;
    hasLarge ||= isLarge;
  }
  if (collected.length > 0) yield flush();
}
