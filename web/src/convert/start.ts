/** Starts a runner of batches: workers, or the calling thread. Tasks with an input in a cache go to the worker that has it. */
import { errorFrom, ScalepointError } from '../core/errors.js';
import type { Core } from '../core/memory.js';
import { nodeModule } from '../core/node.js';
import { type Note, noteOf } from '../core/note.js';
import { isBuffer } from '../core/realms.js';
import { waitingFor } from '../core/waiting.js';
import type { ByteSource } from '../formats/files/bytes.js';
import { type PoolOptions, WorkerPool } from '../workers/worker-pool.js';
import { Feed } from './feed.js';
import { inputPartsOf, inputReaderFor } from './input-reader.js';
import {
  type Batch,
  type BatchResult,
  type EncodeTask,
  mostCached,
  TaskError,
  type TileRunner,
  type WorkFiles,
} from './task.js';
import { TileConverter } from './tile-converter.js';
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
import type { WorkOptions } from './work-options.js';

/** Elements from which on workers save more time than starting them takes. */
const elementsForWorkers = 1 << 22;

/** The number of workers for that many elements, if the caller gives none. */
export function defaultWorkers(elements: number): number {
  if (elements < elementsForWorkers) return 0;
  const processors =
    nodeModule('node:os')?.availableParallelism() ??
    (globalThis as { navigator?: { hardwareConcurrency?: number } }).navigator?.hardwareConcurrency ??
    2;
  return Math.max(1, Math.min(8, processors - 1));
}

/** A tensor that exceeds the caches of all workers by more than this factor is not cached: most of it would be read again anyway. */
const mostTimes = 4;

/** Knows which worker has cached which inputs, and sends it the tasks with these inputs. */
export class CacheOwners<Owner> {
  readonly #most: number;
  readonly #owners = new Map<number, Owner>();

  /** @param count number of caches */
  constructor(count: number) {
    this.#most = mostTimes * count * mostCached;
  }

  /** Remembers the inputs that an owner has cached. */
  add({ answers }: Pick<BatchResult, 'answers'>, owner: Owner): void {
    for (const { cached } of answers) if (cached !== undefined) this.#owners.set(cached, owner);
  }

  /** The owner that has to carry out a batch; undefined if any worker can. Inputs that are in no cache are read again. */
  assign(batch: Batch): { readonly batch: Batch; readonly owner: Owner | undefined } {
    // A task that requests or takes a cached input is the only one of its batch.
    const [task] = batch.tasks;
    if (task !== undefined && 'cache' in task && (task.cache?.total ?? 0) > this.#most)
      return { batch: { ...batch, tasks: [{ ...task, cache: undefined }] }, owner: undefined };
    const cached = (task as Partial<EncodeTask> | undefined)?.cached;
    if (cached === undefined) return { batch, owner: undefined };
    const owner = this.#owners.get(cached.id);
    if (cached.isLast) this.#owners.delete(cached.id);
    if (owner !== undefined) return { batch, owner };
    return { batch: { ...batch, tasks: [{ ...(task as EncodeTask), cached: undefined }] }, owner };
  }
}

/** Milliseconds that this thread may work without a pause. */
const busyMilliseconds = 8;

/** Carries out batches in this thread, one after the other. @param note for the report */
function callingThread(core: Core, files: readonly ByteSource[], note: Note | undefined): TileRunner {
  const converter = new TileConverter(core);
  const inputs = inputReaderFor(files);
  const owners = new CacheOwners<TileConverter>(1);
  let last: Promise<unknown> = Promise.resolve();
  let spare: ArrayBuffer | undefined;
  let rested = performance.now();
  let ended: { readonly reason: unknown } | undefined;
  return {
    concurrency: 1,
    ...(note !== undefined && { note }),
    run(asked) {
      const { batch } = owners.assign(asked);
      const result = last.then(async () => {
        if (ended !== undefined) throw ended.reason;
        await inputs.begin(batch.tasks.flatMap(inputPartsOf));
        // The memory becomes the output of this batch, and may come back through `recycle`.
        const output = spare?.byteLength === batch.outputBytes ? spare : new ArrayBuffer(batch.outputBytes);
        spare = undefined;
        const memory = new Uint8Array(output);
        const converted = await converter.run(
          batch,
          inputs,
          (offset, bytes) => memory.set(bytes, offset),
          async () => {
            // Let the page draw and react to a cancel. Only every few milliseconds, because browsers delay each of these waits.
            if (performance.now() - rested > busyMilliseconds) {
              await new Promise((resolve) => setTimeout(resolve));
              rested = performance.now();
            }
            if (ended !== undefined) throw ended.reason;
          },
        );
        owners.add(converted, converter);
        return { ...converted, output };
      });
      last = result.catch(() => {});
      return result;
    },
    recycle(output) {
      spare = output;
    },
    dispose(reason) {
      ended ??= { reason };
      core.dispose();
    },
  };
}

/** Waits for workers to start. Returns the reason where the engine has none, so that the calling thread does the work. */
export async function orReason<Workers>(
  starting: Promise<Workers>,
  { worker, signal }: Pick<WorkOptions, 'worker' | 'signal'>,
): Promise<Workers | ScalepointError> {
  try {
    return await starting;
  } catch (error) {
    // A worker that the caller gave must not fail silently.
    const isHarmless = error instanceof ScalepointError && ['WORKER', 'OUT_OF_MEMORY'].includes(error.code);
    if (worker !== undefined || signal?.aborted || !isHarmless) throw error;
    return error;
  }
}

/**
 * Starts a runner. The core is loaded only here, so that looking into a file fetches no wasm. Ends as soon as the signal aborts.
 * @param elements to be converted
 */
export async function startRunner(elements: number, files: WorkFiles, options: WorkOptions): Promise<TileRunner> {
  const { workers: count = defaultWorkers(elements), worker, core, signal } = options;
  const waiting = waitingFor(signal);
  const starting = (async (): Promise<TileRunner> => {
    const load = await import('../core/load.js');
    const module = await load.compileCore('core', core);
    let note: Note | undefined;
    if (count > 0) {
      const started = await orReason(TileWorkers.start({ count, module, worker, signal }, files), options);
      if (!(started instanceof Error)) return started;
      note = noteOf('noWorkers', {}, `without workers, which is slower: ${started.message}`);
    }
    return callingThread(await load.instantiateCore('core', module), files.sources, note);
  })();
  try {
    return await waiting.soon(starting, (late) => late.dispose());
  } finally {
    waiting.end();
  }
}

/** Starts a runner, and disposes of it after the work. @param elements to be converted */
export async function withRunner<T>(
  elements: number,
  files: WorkFiles,
  options: WorkOptions,
  use: (runner: TileRunner) => Promise<T>,
): Promise<T> {
  const runner = await startRunner(elements, files, options);
  try {
    return await use(runner);
  } finally {
    runner.dispose();
  }
}

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
class TileWorkers implements TileRunner {
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
        Object.assign(seat, await pool.ask(seat.index, { handler: 'tiles', job, isAnswer: isOpenedFiles }));
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
      handler: 'tiles',
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
