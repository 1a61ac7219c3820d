/** The one loop over batches. Writing a plan, measuring and comparing give it their steps, and take the results in order. */

import { sumCount } from '../core/measure.js';
import { type Waiting, waitingFor } from '../core/waiting.js';
import type { Rectangle } from '../formats/codecs/codec.js';
import type { ByteSource } from '../formats/files/bytes.js';
import type { PlannedTensor } from '../formats/format.js';
import { batchesOf, type PlannedBatch, type TileSubject } from './batches.js';
import { elementAt, mainPart } from './logical-tensor.js';
import type { TensorProgress } from './progress.js';
import type { Steps } from './steps.js';
import { type Batch, type BatchResult, problemIn, type RangeTask, type SetsTask, TaskError } from './task.js';
import { problemError, tensorError } from './tensor-errors.js';
import { TensorSums } from './tensor-sums.js';
import type { TileRunner } from './tile-runner.js';

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
export type StartedBatch = Omit<PlannedBatch, 'batch'>;

/** A batch whose result is on its way. */
interface Pending {
  readonly started: StartedBatch;
  readonly result: Promise<BatchResult>;
  /** True if it counts towards the batches that the runner has at a time. A few known bytes do not. */
  readonly counts: boolean;
}

/** Known bytes from which on they count as a batch, since they take memory until they are written. */
const manyBytes = 1 << 14;

/** Milliseconds between two looks whether files were changed, while batches of several tensors end. */
const betweenChecks = 10;

/** The result of a batch without tasks. */
const nothing = { done: 0, measured: new Uint8Array(0), sums: new Float64Array(0), answers: [] };

/** One run of the loop. */
class Engine {
  readonly sums: TensorSums;
  readonly #work: EngineWork;
  readonly #waiting: Waiting;
  /** When the files were last checked for changes. */
  #verified = 0;

  constructor(work: EngineWork, waiting: Waiting) {
    this.#work = work;
    this.#waiting = waiting;
    this.sums = new TensorSums(work.tensors);
  }

  /** Carries out all steps, with no more batches under way than the runner can use. */
  async run(): Promise<void> {
    const { steps, files, runner, signal } = this.#work;
    const pending: Pending[] = [];
    let underWay = 0;
    const ask = (tensor: PlannedTensor, task: RangeTask | SetsTask, rectangle: Rectangle) =>
      this.#ask(tensor, task, rectangle);
    for await (const { batch, ...started } of batchesOf(steps, files, ask)) {
      const counts = started.tiles.length > 0 || batch.outputBytes >= manyBytes;
      pending.push({ started, result: this.#start(batch, started), counts });
      underWay += Number(counts);
      while (underWay > runner.concurrency) {
        const first = pending.shift() as Pending;
        await this.#finish(first);
        underWay -= Number(first.counts);
      }
      signal?.throwIfAborted();
    }
    for (const one of pending) await this.#finish(one);
    for (const file of files) await file.verify();
    signal?.throwIfAborted();
  }

  /** Starts a batch. A failure shows when its turn comes. */
  #start(batch: Batch, { tiles, known }: StartedBatch): Promise<BatchResult> {
    if (tiles.length > 0) {
      const result = this.#carryOut(batch, tiles);
      result.catch(() => {});
      return result;
    }
    // A single stretch of known bytes is written from where it is.
    return Promise.resolve({ ...nothing, output: new ArrayBuffer(known.length === 1 ? 0 : batch.outputBytes) });
  }

  /** Carries out a task at once. */
  async #ask(tensor: PlannedTensor, task: RangeTask | SetsTask, rectangle: Rectangle) {
    const { answers } = await this.#carryOut({ tasks: [task], outputBytes: 0 }, [{ tensor, rectangle }]);
    return { ...answers[0] };
  }

  async #carryOut(batch: Batch, subjects: readonly Pick<TileSubject, 'tensor' | 'rectangle'>[]): Promise<BatchResult> {
    let result: BatchResult;
    try {
      result = await this.#waiting.soon(this.#work.runner.run(batch));
    } catch (error) {
      if (!(error instanceof TaskError)) throw error;
      const { tensor } = subjects[error.task] as (typeof subjects)[number];
      // The message names a file only if the error must come from it: not if writing failed, nor if two files are compared.
      const isFromFile = !error.writing && batch.tasks[error.task]?.inputs.length === 1;
      throw tensorError(error.cause, tensor, isFromFile ? this.#work.files : []);
    }
    const problem = problemIn(result);
    if (problem === undefined) return result;
    const { tensor, rectangle } = subjects[result.done - 1] as (typeof subjects)[number];
    throw problemError(tensor, problem, elementAt(rectangle, problem.index));
  }

  /** Hands over the result of a batch, adds its sums, and reports progress. */
  async #finish({ started, result: promise }: Pending): Promise<void> {
    const result = await promise;
    await this.#work.take(started, result, this.#waiting);
    const { measured, sums } = result;
    for (const [i, { index }] of started.tiles.entries()) {
      if (measured[i] === 1) this.sums.add(index, sums, i * sumCount);
    }
    await this.#report(started);
  }

  /** Reports the tiles of a batch. If it ends a tensor, the tensor's file must not have changed since it was opened. */
  async #report({ tiles }: StartedBatch): Promise<void> {
    const { files, progress } = this.#work;
    const ended = new Map<number, PlannedTensor>();
    for (const { tensor, index, sourceBytes } of tiles) {
      if (sourceBytes > 0 && progress.add(index, sourceBytes)) ended.set(mainPart(tensor.source).file, tensor);
    }
    // Batches of small tensors end too often for a check each.
    const now = performance.now();
    if (tiles.length > 1 && now - this.#verified < betweenChecks) return;
    this.#verified = now;
    for (const [file, tensor] of ended) {
      try {
        await files[file]?.verify();
      } catch (error) {
        throw tensorError(error, tensor, files);
      }
    }
  }
}

/**
 * Carries out steps. Returns the error sums of the tensors. The runner cannot be used again after an error.
 * @throws ScalepointError, the signal's reason, or an error that `take` or `onProgress` throws
 */
export async function runSteps(work: EngineWork): Promise<TensorSums> {
  work.signal?.throwIfAborted();
  const waiting = waitingFor(work.signal);
  const engine = new Engine(work, waiting);
  try {
    await engine.run();
  } finally {
    waiting.end();
  }
  return engine.sums;
}
