/** The one loop over batches. Writing a plan, measuring and comparing give it their steps, and take the results in order. */
import { addSums, type ErrorMeasures, measuresOf, sumCount } from '../core/measure.js';
import { type Waiting, waitingFor } from '../core/waiting.js';
import type { Rectangle, ValueRange } from '../formats/codecs/codec.js';
import { elementsOf } from '../formats/codecs/elements.js';
import type { ByteSource } from '../formats/files/bytes.js';
import type { PlannedTensor } from '../formats/format.js';
import { batchesOf, type PlannedBatch, type TileSubject } from './batches.js';
import { elementAt, mainPart, problemError, tensorError } from './logical-tensor.js';
import type { TensorProgress } from './progress.js';
import { rectangleInput } from './rectangle-input.js';
import type { Steps } from './steps.js';
import { type Answer, type Batch, type BatchResult, problemIn, TaskError, type TileRunner } from './task.js';
import type { QuestionStep, Reply } from './tiles.js';

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
    const problem = problemIn(result);
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
