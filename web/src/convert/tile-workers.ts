/**
 * Carries out batches in workers. Workers open the files of the model and of the result by themselves if they can, read straight into wasm
 * memory, and write from there. For other files this thread reads and writes.
 */
import { errorFrom, ScalepointError } from '../core/errors.js';
import { isBuffer } from '../core/realms.js';
import { type PoolOptions, WorkerPool } from '../workers/worker-pool.js';
import { Feed } from './feed.js';
import { CacheOwners } from './input-cache.js';
import { type Batch, type BatchResult, TaskError, type TileRunner, type WorkFiles } from './task.js';
import {
  type BatchBytes,
  type BatchFailure,
  isBatchAnswer,
  isOpenedFiles,
  type LastRanges,
  packBatch,
  type TakenBytes,
  type TileJob,
} from './tile-jobs.js';

/** A batch and its promise. */
interface PendingBatch {
  /** Undefined once it is sent, because the tasks of many small tensors take much memory. */
  batch: Batch | undefined;
  /** The worker that has cached the input. Undefined: any worker can do it. */
  readonly owner: Seat | undefined;
  resolve(result: BatchResult): void;
  reject(reason: unknown): void;
}

/** A worker and its batches. */
interface Seat {
  readonly index: number;
  /** Number of its next batch. */
  next: number;
  /** Count of its batches under way. */
  busy: number;
  /** Sends the inputs that the worker cannot read. */
  readonly feed: Feed;
  /** The ranges that it was sent last. */
  readonly last: LastRanges;
  /** For each source, true if the worker has opened it. */
  reads: readonly boolean[];
  /** True if it has opened all sinks. */
  writes: boolean;
}

/** Batches that a worker has at a time: one that it works on and the next one, so that it never waits for messages. */
const batchesPerWorker = 2;

/** Carries out batches in workers. */
export class TileWorkers implements TileRunner {
  readonly concurrency: number;
  readonly #pool: WorkerPool;
  readonly #seats: readonly Seat[];
  readonly #queue: PendingBatch[] = [];
  readonly #owners: CacheOwners<Seat>;
  readonly #spare: ArrayBuffer[] = [];

  private constructor(pool: WorkerPool, { sources }: WorkFiles) {
    this.#pool = pool;
    this.concurrency = pool.count * batchesPerWorker;
    this.#owners = new CacheOwners(pool.count);
    // Memory for inputs, shared by all workers.
    const spare: ArrayBuffer[] = [];
    this.#seats = Array.from({ length: pool.count }, (_, index) => {
      const feed = new Feed({
        files: sources,
        isOpen: (file) => seat.reads[file] === true,
        spare,
        send: (number, bytes) => this.#tell(seat, { number, bytes }),
      });
      const seat: Seat = { index, next: 0, busy: 0, feed, last: {}, reads: [], writes: false };
      return seat;
    });
  }

  /** Starts workers and has them open the files. @throws ScalepointError `WORKER`, or what loading the core throws */
  static async start(options: PoolOptions, files: WorkFiles): Promise<TileWorkers> {
    let seats: readonly Seat[] = [];
    const receive = (worker: number, data: unknown) => {
      const { memory } = (data ?? {}) as Partial<TakenBytes>;
      if (isBuffer(memory)) seats[worker]?.feed.takeBack(memory);
    };
    const pool = await WorkerPool.start({ ...options, receive });
    try {
      const workers = new TileWorkers(pool, files);
      seats = workers.#seats;
      const sources = files.sources.map(({ reference }) => reference);
      const sinks = files.sinks.map(({ reference }) => reference);
      const job: TileJob = { kind: 'open', sources, sinks };
      const open = async (seat: Seat) =>
        Object.assign(seat, await pool.ask(seat.index, { to: 'tiles', job, isAnswer: isOpenedFiles }));
      await Promise.all(seats.map(open));
      return workers;
    } catch (error) {
      pool.dispose(error);
      throw error;
    }
  }

  #tell({ index }: Seat, data: BatchBytes): void {
    this.#pool.tell(index, 'tiles', data, data.bytes === undefined ? [] : [data.bytes.buffer]);
  }

  run(asked: Batch): Promise<BatchResult> {
    return new Promise((resolve, reject) => {
      const { batch, owner } = this.#owners.assign(asked);
      this.#queue.push({ batch, owner, resolve, reject });
      this.#dispatch();
    });
  }

  /** Hands waiting batches to the workers with the fewest batches, or to the owners of cached inputs. */
  #dispatch(): void {
    for (let i = 0; i < this.#queue.length; ) {
      const idle = this.#seats.reduce((best, other) => (other.busy < best.busy ? other : best));
      if (idle.busy >= batchesPerWorker) return;
      const pending = this.#queue[i] as PendingBatch;
      const seat = pending.owner ?? idle;
      if (seat.busy >= batchesPerWorker) i++;
      else {
        this.#queue.splice(i, 1);
        this.#send(seat, pending, pending.batch as Batch);
      }
    }
  }

  #send(seat: Seat, pending: PendingBatch, { tasks, outputBytes, writes: asked }: Batch): void {
    const number = seat.next++;
    const count = tasks.length;
    const writes = seat.writes ? asked : undefined;
    const expected = { tasks: count, outputBytes, isWritten: writes !== undefined };
    const spare = writes === undefined ? this.#spare.pop() : undefined;
    let isOver = false;
    const end = (settle: () => void) => {
      isOver = true;
      seat.busy--;
      settle();
      this.#dispatch();
    };
    pending.batch = undefined;
    seat.busy++;
    const job: TileJob = { kind: 'batch', number, batch: packBatch({ tasks, outputBytes, writes }, seat.last), spare };
    const answered = this.#pool.ask(seat.index, {
      to: 'tiles',
      job,
      transfer: spare === undefined ? [] : [spare],
      isAnswer: (answer): answer is BatchResult | BatchFailure => isBatchAnswer(expected, answer),
    });
    answered.then(
      (answer) =>
        end(() => {
          if ('failed' in answer) {
            const { task, writing, error } = answer.failed;
            pending.reject(new TaskError(Math.min(task, count - 1), errorFrom(error), writing));
          } else {
            this.#owners.add(answer, seat);
            pending.resolve(answer);
          }
        }),
      (reason) =>
        end(() => {
          // The worker may not have received these ranges.
          seat.last.ranges = undefined;
          pending.reject(new TaskError(0, reason));
        }),
    );
    if (seat.reads.every((isOpen) => isOpen)) return;
    seat.feed.give({ id: number, tasks, isOver: () => isOver || this.#pool.ended }).catch((error) => {
      pending.reject(error);
      // The worker waits for the bytes, and fails.
      if (!isOver) this.#tell(seat, { number, bytes: undefined });
    });
  }

  recycle(output: ArrayBuffer): void {
    if (this.#spare.length < this.concurrency) this.#spare.push(output);
  }

  dispose(reason: unknown = new ScalepointError('DISPOSED', 'the workers were disposed of')): void {
    // The batches that wait are sent in vain, and rejected, too.
    this.#pool.dispose(reason);
  }
}
