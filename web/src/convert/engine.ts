/**
 * Puts small tiles together into batches, and carries these out in one loop. Writing a plan, measuring and comparing give it their steps, and
 * take the results in order.
 */
import { addSums, type ErrorMeasures, measuresOf, sumCount } from '../core/measure.js';
import { type Waiting, waitingFor } from '../core/waiting.js';
import { type Rectangle, tileElements, type ValueRange } from '../formats/codecs/codec.js';
import { elementsOf } from '../formats/codecs/elements.js';
import type { ByteSource } from '../formats/files/bytes.js';
import type { PlannedTensor } from '../formats/format.js';
import { elementAt, mainPart, problemError, rectangleInput, tensorError } from './logical-tensor.js';
import type { BatchedStep, BytesStep, Steps } from './steps.js';
import { type Answer, type Batch, type BatchResult, TaskError, type TileRunner } from './task.js';
import { type Destination, nowhere, type QuestionStep, type Reply, type TileStep } from './tiles.js';
import type { Progress } from './work-options.js';

/** Tensors that share one array. */
const tensorsPerPage = 256;

/** Error sums by tensor. Stored in pages, since an array for each tensor would take several times the memory of its numbers. */
export class TensorSums {
  readonly #pages: (Float64Array | undefined)[] = [];
  readonly #found: Uint8Array;

  /** @param count number of tensors */
  constructor(count: number) {
    this.#found = new Uint8Array(count);
  }

  /** Adds the sums that begin at `from` in an array. */
  add(index: number, more: Float64Array, from: number): void {
    const page = Math.floor(index / tensorsPerPage);
    this.#pages[page] ??= new Float64Array(tensorsPerPage * sumCount);
    addSums(this.#pages[page], more, (index % tensorsPerPage) * sumCount, from);
    this.#found[index] = 1;
  }

  /** The sums of a tensor; undefined if none of its tiles were measured. */
  of(index: number): Float64Array | undefined {
    if (this.#found[index] !== 1) return undefined;
    const begin = (index % tensorsPerPage) * sumCount;
    return this.#pages[Math.floor(index / tensorsPerPage)]?.subarray(begin, begin + sumCount);
  }

  /** The measures of each tensor that was read as floats. */
  measures(tensors: readonly PlannedTensor[]): (ErrorMeasures | undefined)[] {
    return tensors.map(({ source, kept }, i) => {
      const elements = elementsOf(source.shape);
      const empty = elements === 0 && kept === undefined ? new Float64Array(sumCount) : undefined;
      const sums = this.of(i) ?? empty;
      return sums && measuresOf(sums, elements);
    });
  }
}

/** Milliseconds between two reports of one tensor. */
const interval = 50;

/** A tensor in reports. */
type Reported = Pick<Progress, 'phase' | 'tensor'> & { readonly bytes: number };

/** Counts the bytes of tensors, and calls `onProgress`. */
export class TensorProgress {
  readonly #tensor: (index: number) => Reported;
  readonly #onProgress: ((progress: Progress) => void) | undefined;
  /** Bytes of each tensor that are still to come. */
  readonly #left: Float64Array;
  readonly #bytesTotal: number;
  #bytesDone = 0;
  /** Time of the last report. */
  #reported = performance.now();

  /**
   * @param count number of tensors
   * @param tensor gives the tensor of an index
   */
  constructor(count: number, tensor: (index: number) => Reported, onProgress?: (progress: Progress) => void) {
    this.#tensor = tensor;
    this.#onProgress = onProgress;
    this.#left = Float64Array.from({ length: count }, (_, i) => tensor(i).bytes);
    this.#bytesTotal = this.#left.reduce((sum, bytes) => sum + bytes, 0);
  }

  /** Counts bytes of a tensor. Bytes that several tiles read count once. Returns whether the tensor has ended. */
  add(index: number, bytes: number): boolean {
    const before = this.#left[index] ?? 0;
    const counted = Math.min(bytes, before);
    this.#left[index] = before - counted;
    this.#bytesDone += counted;
    const isEnd = counted === before && (counted > 0 || bytes === 0);
    // Report the end of each tensor, and in between when 50 ms have passed since the last report.
    const now = performance.now();
    if (!isEnd && now - this.#reported < interval) return false;
    this.#reported = now;
    if (this.#onProgress !== undefined) {
      const { phase, tensor } = this.#tensor(index);
      const [bytesDone, bytesTotal] = [this.#bytesDone, this.#bytesTotal];
      this.#onProgress({ phase, tensor, index, count: this.#left.length, bytesDone, bytesTotal });
    }
    return isEnd;
  }

  /** Counts all bytes of a tensor without a report. */
  skip(index: number): void {
    this.#bytesDone += this.#left[index] ?? 0;
    this.#left[index] = 0;
  }
}

/** The steps to carry out, and with what. */
export interface EngineWork {
  readonly steps: Steps;
  /** Number of tensors that the steps count. */
  readonly tensors: number;
  readonly files: readonly ByteSource[];
  readonly runner: TileRunner;
  readonly progress: TensorProgress;
  readonly signal: AbortSignal | undefined;
  /** Takes the result of a batch. Called in the order of the batches, one at a time. */
  take(batch: StartedBatch, result: BatchResult, waiting: Waiting): void | Promise<void>;
}

/** A batch without its tasks, whose memory is free once they are sent. */
type StartedBatch = Omit<PlannedBatch, 'batch'>;

/** Carries out a batch. @param subjects the tensors and rectangles of its tasks, which errors name */
type CarryOut = (batch: Batch, subjects: readonly Pick<TileSubject, 'tensor' | 'rectangle'>[]) => Promise<BatchResult>;

/** Answers a question of a codec, with a task for each rectangle. */
async function answerQuestion({ tensor, cut, requests }: QuestionStep, carryOut: CarryOut): Promise<Reply> {
  const observe = async (rectangle: Rectangle, i: number): Promise<Partial<Answer>> => {
    const { rows, columns } = rectangle;
    const seen = { rows, columns, inputs: [rectangleInput(tensor.source, rectangle)], cache: requests?.[i] } as const;
    const task =
      cut.kind === 'range'
        ? ({ ...seen, kind: 'range' } as const)
        : ({ ...seen, kind: 'sets', to: tensor.form, pieceRows: cut.pieceRows } as const);
    const { answers } = await carryOut({ tasks: [task], outputBytes: 0 }, [{ tensor, rectangle }]);
    return { ...answers[0] };
  };
  if (cut.kind === 'range') {
    let [low, high] = [Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY];
    for (const { range } of await Promise.all(cut.rectangles.map(observe))) {
      const [min, max] = range as ValueRange;
      low = Math.min(low, min);
      high = Math.max(high, max);
    }
    return [low, high];
  }
  const pairs = new Float32Array(2 * cut.count);
  for (let i = 0; i < pairs.length; i++) pairs[i] = i % 2 === 0 ? Number.POSITIVE_INFINITY : Number.NEGATIVE_INFINITY;
  const add = async ({ rectangle, first }: (typeof cut.observed)[number], i: number) => {
    const { sets = new Float32Array(0) } = await observe(rectangle, i);
    for (let from = 0, to = 2 * first; from < sets.length; from += 2, to += 2) {
      if ((sets[from] as number) < (pairs[to] as number)) pairs[to] = sets[from] as number;
      if ((sets[from + 1] as number) > (pairs[to + 1] as number)) pairs[to + 1] = sets[from + 1] as number;
    }
  };
  await Promise.all(cut.observed.map(add));
  return pairs;
}

/** Known bytes from which on they count as a batch, since they take memory until they are written. */
const manyBytes = 1 << 14;

/** Milliseconds between two looks whether files were changed, while batches of several tensors end. */
const betweenChecks = 10;

/** The result of a batch without tasks. */
const nothing = { done: 0, measured: new Uint8Array(0), sums: new Float64Array(0), answers: [] };

/**
 * Carries out steps, with no more batches under way than the runner can use. Returns the error sums of the tensors. The runner cannot be
 * used again after an error.
 * @throws ScalepointError, the signal's reason, or an error that `take` or `onProgress` throws
 */
export async function runSteps(work: EngineWork): Promise<TensorSums> {
  const { steps, files, runner, progress, signal } = work;
  signal?.throwIfAborted();
  const waiting = waitingFor(signal);
  const sums = new TensorSums(work.tensors);
  let lastCheck = 0;

  const carryOut: CarryOut = async (batch, subjects) => {
    let result: BatchResult;
    try {
      result = await waiting.soon(runner.run(batch));
    } catch (error) {
      if (!(error instanceof TaskError)) throw error;
      const { tensor } = subjects[error.task] as (typeof subjects)[number];
      // The message names a file only if the error must come from it: not if writing failed, nor if two files are compared.
      const isFromFile = !error.writing && batch.tasks[error.task]?.inputs.length === 1;
      throw tensorError(error.cause, tensor, isFromFile ? files : []);
    }
    // A worker keeps these rows, so they are not read again.
    for (const { task, cached } of result.answers) {
      const [input] = (cached !== undefined && batch.tasks[task]?.inputs) || [];
      for (const { file, begin, bytes } of input?.parts ?? []) files[file]?.skip?.({ begin, end: begin + bytes });
    }
    const problem = result.answers.at(-1)?.problem;
    if (problem === undefined) return result;
    const { tensor, rectangle } = subjects[result.done - 1] as (typeof subjects)[number];
    throw problemError(tensor, problem, elementAt(rectangle, problem.index));
  };

  /** Hands over the result of a batch, adds its sums, and reports progress. */
  const finish = async (started: StartedBatch, result: BatchResult) => {
    await work.take(started, result, waiting);
    const { tiles } = started;
    const ended = new Map<number, PlannedTensor>();
    for (const [i, { tensor, index, sourceBytes }] of tiles.entries()) {
      if (result.measured[i] === 1) sums.add(index, result.sums, i * sumCount);
      if (sourceBytes > 0 && progress.add(index, sourceBytes)) ended.set(mainPart(tensor.source).file, tensor);
    }
    // The file of a tensor that ended must not have changed since it was opened. Batches of small tensors end too often for a check each.
    const now = performance.now();
    if (tiles.length > 1 && now - lastCheck < betweenChecks) return;
    lastCheck = now;
    for (const [file, tensor] of ended) {
      try {
        await files[file]?.verify();
      } catch (error) {
        throw tensorError(error, tensor, files);
      }
    }
  };

  try {
    /** Batches whose results are on their way. A few known bytes do not count towards those that the runner has at a time. */
    const pending: { started: StartedBatch; result: Promise<BatchResult>; counts: boolean }[] = [];
    let underWay = 0;
    for await (const { batch, ...started } of batchesOf(steps, files, (step) => answerQuestion(step, carryOut))) {
      const { tiles, known } = started;
      // A single stretch of known bytes is written from where it is.
      const result =
        tiles.length > 0
          ? carryOut(batch, tiles)
          : Promise.resolve({ ...nothing, output: new ArrayBuffer(known.length === 1 ? 0 : batch.outputBytes) });
      // A failure shows when its turn comes.
      result.catch(() => {});
      const counts = tiles.length > 0 || batch.outputBytes >= manyBytes;
      pending.push({ started, result, counts });
      underWay += Number(counts);
      while (underWay > runner.concurrency) {
        const first = pending.shift() as (typeof pending)[number];
        await finish(first.started, await first.result);
        underWay -= Number(first.counts);
      }
      signal?.throwIfAborted();
    }
    for (const one of pending) await finish(one.started, await one.result);
    for (const file of files) await file.verify();
    signal?.throwIfAborted();
  } finally {
    waiting.end();
  }
  return sums;
}

/** The tensor and the rectangle of a task that is under way. */
type TileSubject = Pick<TileStep, 'tensor' | 'index' | 'sourceBytes' | 'rectangle'>;

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
interface PlannedBatch {
  readonly tiles: readonly TileSubject[];
  readonly batch: Batch;
  /** Known bytes, and their offsets in the memory of the batch. */
  readonly known: readonly { readonly offset: number; readonly bytes: Uint8Array<ArrayBuffer> }[];
  /** In the order of positions, those into memory first. */
  readonly writes: readonly BatchWrite[];
}

type Place = Pick<BatchWrite, 'file' | 'position'>;
const byPosition = (a: Place, b: Place) => a.file - b.file || a.position - b.position;

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
  const runs: BatchWrite[] = [];
  const known: { offset: number; bytes: Uint8Array<ArrayBuffer> }[] = [];
  for (const { to, from, zeros } of stretches.sort((a, b) => byPosition(a.to, b.to))) {
    const { role, file, position, bytes, count, stride, into } = to;
    const tile = typeof from === 'number' ? tiles[from] : undefined;
    const isWritten = file !== nowhere || into !== undefined;
    for (let i = 0; i < count && isWritten; i++) {
      runs.push({ file, position: position + i * stride, offset: outputBytes + i * bytes, bytes, tile, into });
    }
    const task = typeof from === 'number' ? tasks[from] : undefined;
    if (task?.kind === 'encode') task.outputs.push({ role, offset: outputBytes, bytes: bytes * count });
    if (typeof from !== 'number') known.push({ offset: outputBytes, bytes: from });
    // Known bytes and held parts are in this thread, so that only this thread can write them. Zeros are everywhere.
    onlyTasks &&= isWritten && (tile !== undefined || zeros) && into === undefined;
    outputBytes += bytes * count;
  }
  // Only runs of one stretch that lie between runs of another are out of order.
  if (runs.some((run, i) => i > 0 && byPosition(runs[i - 1] as BatchWrite, run) > 0)) runs.sort(byPosition);
  // Join runs that follow each other both in the file and in the memory of the batch.
  const writes: BatchWrite[] = [];
  for (const run of runs) {
    const last = writes.at(-1);
    const follows =
      last?.file === run.file &&
      last.into === run.into &&
      last.position + last.bytes === run.position &&
      last.offset + last.bytes === run.offset;
    if (follows) {
      last.bytes += run.bytes;
      last.tile ??= run.tile;
    } else writes.push(run);
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
async function* batchesOf(
  steps: Steps,
  files: readonly ByteSource[],
  answer: (question: QuestionStep) => Promise<Reply>,
): AsyncGenerator<PlannedBatch> {
  // The steps of the next batch.
  const collected: BatchedStep[] = [];
  let [tasks, elements, hasKnown, hasLarge] = [0, 0, false, false];
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
      if (collected.length > 0) yield layOutBatch(collected.splice(0));
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
      if (collected.length > 0) yield layOutBatch(collected.splice(0));
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
    if (collected.length > 0 && (isFull || clashes)) yield layOutBatch(collected.splice(0));
    if (collected.length === 0) [tasks, elements, hasKnown, hasLarge] = [0, 0, false, false];
    collected.push(step);
    tasks += Number(step.kind === 'tile');
    elements += size;
    hasKnown ||= isKnown;
    hasLarge ||= isLarge;
  }
  if (collected.length > 0) yield layOutBatch(collected.splice(0));
}
