/**
 * Carries out batches in workers, each with an instance of the core of its own. Workers open the files of the model and of the result by
 * themselves if they can, read straight into wasm memory, and write from there. For other files this thread reads and writes.
 */

import { CacheOwners } from '../convert/cache-owners.js';
import { Feed } from '../convert/feed.js';
import { type LastRanges, packBatch } from '../convert/packed-batch.js';
import { type Batch, type BatchResult, TaskError } from '../convert/task.js';
import type { TileRunner, WorkFiles } from '../convert/tile-runner.js';
import { errorFrom, ScalepointError, typeError } from '../core/errors.js';
import { ofType } from '../core/option-problem.js';
import { show } from '../core/show.js';
import type { WorkerLike } from '../core/worker-like.js';
import { isAnswer, type TransformerAnswer, type TransformerJob } from '../evaluate/jobs.js';
import { isScanAnswer, type ScanAnswer, type ScanJob } from '../search/jobs.js';
import {
  type ExpectedResult,
  type HandAnswer,
  type HandJob,
  isReply,
  isResultOf,
  type WorkerReply,
  type WorkerRequest,
} from './messages.js';
import { ownWorker } from './own-worker.js';

/** A worker of Node, which has another kind of events. */
interface NodeWorker extends WorkerLike {
  on(type: string, listener: (value: never) => void): void;
}

/** Milliseconds that a worker may take to load its code and the core. A silent worker runs another file, or no file at all. */
const startMilliseconds = 5_000;

/** Ticks of that time. While this thread is busy no message arrives, and only one tick passes. */
const startTicks = 20;

/** A function that starts the worker of this package. @throws ScalepointError `WORKER` if this engine has no workers */
async function workerOfPackage(): Promise<() => WorkerLike> {
  const start = await ownWorker();
  if (start === undefined) throw new ScalepointError('WORKER', 'this engine has no workers');
  return () => {
    try {
      return start();
    } catch (cause) {
      throw new ScalepointError('WORKER', `a worker could not be started: ${errorFrom(cause).message}`, { cause });
    }
  };
}

/** Calls a function and ignores its failure, now or later. */
function quietly(action: () => unknown): void {
  (async () => action())().catch(() => {});
}

/** Sends a message. @throws ScalepointError `WORKER` */
function send(worker: WorkerLike, request: WorkerRequest, transfer: ArrayBuffer[]): void {
  try {
    worker.postMessage(request, transfer);
  } catch (cause) {
    throw new ScalepointError('WORKER', `a worker takes no messages: ${errorFrom(cause).message}`, { cause });
  }
}

/** Checks a worker that the caller made. @throws TypeError */
function checkWorker(worker: unknown): WorkerLike {
  const { postMessage, terminate, on, addEventListener } = (worker ?? {}) as Record<string, unknown>;
  const listens = typeof on === 'function' || typeof addEventListener === 'function';
  if (typeof postMessage === 'function' && typeof terminate === 'function' && listens) return worker as WorkerLike;
  // An unhandled rejection of a promise that was given in place of a worker would end the process.
  quietly(() => worker);
  throw typeError('worker', ofType('function that returns a Worker'), worker);
}

/** Listens to a worker, of a browser or of Node. `stopped` is called with the reason if it ends. */
function listen(
  worker: WorkerLike,
  receive: (reply: unknown) => void,
  stopped: (what: string, cause?: unknown) => void,
): void {
  if ('on' in worker) {
    const node = worker as NodeWorker;
    node.on('message', receive);
    node.on('error', (cause: unknown) => stopped(`failed: ${errorFrom(cause).message}`, cause));
    node.on('exit', () => stopped('ended before its time'));
    return;
  }
  worker.addEventListener?.('message', (event) => receive((event as MessageEvent<unknown>).data));
  worker.addEventListener?.('messageerror', () => stopped('sent what cannot be read'));
  worker.addEventListener?.('error', (event) => {
    // The promise reports it.
    event.preventDefault();
    const { message } = event as ErrorEvent;
    // An error without a message means that the file could not be loaded.
    const missing = 'could not be loaded: serve scalepoint-worker.js beside the bundle, or give the worker option';
    stopped(message ? `failed: ${message}` : missing, event);
  });
}

/** Calls `stopped` if a worker stays silent for too long. Returns how to end the wait. */
function expectStart(stopped: (what: string) => void): () => void {
  let ticks = 0;
  const timer = setInterval(() => {
    if (++ticks < startTicks) return;
    stopped(`said nothing for ${startMilliseconds / 1000} s: its file is not scalepoint-worker.js of this version`);
  }, startMilliseconds / startTicks);
  return () => clearInterval(timer);
}

/** A batch and its promise. */
interface PendingBatch {
  readonly id: number;
  /** Undefined once it is sent, because the tasks of many small tensors take much memory. */
  batch: Batch | undefined;
  expected: ExpectedResult;
  /** The worker that has cached the input. Undefined: any worker can do it. */
  readonly owner: Seat | undefined;
  resolve(result: BatchResult): void;
  reject(reason: unknown): void;
}

/** The ends of a promise. */
interface PromiseWithReason<T> {
  resolve(value: T): void;
  reject(reason: unknown): void;
}

/** A worker and its jobs. */
interface Seat {
  readonly worker: WorkerLike;
  readonly jobs: Map<number, PendingBatch>;
  /** Jobs that it was asked for. */
  readonly asked: Map<number, PromiseWithReason<HandAnswer>>;
  /** Sends the inputs that the worker cannot read. */
  readonly feed: Feed;
  /** The ranges that it was sent last. */
  readonly last: LastRanges;
  /** For each source, whether the worker has opened it. */
  reads: readonly boolean[];
  /** True if it has opened all sinks. */
  writes: boolean;
  /** Stops waiting for the worker to start or to end. */
  leave(reason: unknown): void;
}

/** Batches that a worker has at a time: one that it works on and the next one, so that it never waits for messages. */
const jobsPerWorker = 2;

/** Carries out batches in workers. */
export class WorkerPool implements TileRunner {
  readonly concurrency: number;
  readonly #files: WorkFiles;
  readonly #seats: Seat[] = [];
  readonly #queue: PendingBatch[] = [];
  readonly #owners: CacheOwners<Seat>;
  readonly #spare: ArrayBuffer[] = [];
  /** Memory for inputs, shared by all workers. */
  readonly #spareInputs: ArrayBuffer[] = [];
  #nextId = 0;
  #ended: { readonly reason: unknown } | undefined;

  private constructor(count: number, files: WorkFiles) {
    this.concurrency = count * jobsPerWorker;
    this.#owners = new CacheOwners(count);
    this.#files = files;
  }

  /**
   * Starts `count` workers and waits until they are ready.
   * @throws ScalepointError `WORKER`, or what loading the core throws
   */
  static async start(
    count: number,
    module: WebAssembly.Module,
    files: WorkFiles,
    create: (() => WorkerLike) | undefined,
    signal: AbortSignal | undefined,
  ): Promise<WorkerPool> {
    signal?.throwIfAborted();
    const make = create ?? (await workerOfPackage());
    signal?.throwIfAborted();
    const pool = new WorkerPool(count, files);
    const abort = () => pool.dispose(signal?.reason);
    signal?.addEventListener('abort', abort, { once: true });
    try {
      await Promise.all(Array.from({ length: count }, () => pool.#add(module, make)));
    } catch (error) {
      pool.dispose(error);
      throw error;
    } finally {
      signal?.removeEventListener('abort', abort);
    }
    return pool;
  }

  #add(module: WebAssembly.Module, create: () => WorkerLike): Promise<void> {
    return new Promise((resolve, reject) => {
      const worker = checkWorker(create());
      const stopped = (what: string, cause?: unknown) =>
        this.dispose(new ScalepointError('WORKER', `a worker ${what}`, { cause }));
      const endStart = expectStart(stopped);
      const watch = new AbortController();
      const leave = (reason: unknown) => {
        endStart();
        watch.abort();
        reject(reason);
      };
      const seat = this.#seatOf(worker, leave);
      this.#seats.push(seat);
      // Browsers have no event for the end of a worker, but they release its locks. Insecure pages have no locks.
      const locks = 'on' in worker ? undefined : globalThis.navigator?.locks;
      const lock = locks && `scalepoint-${crypto.randomUUID()}`;
      const started = ({ locked, reads, writes }: Extract<WorkerReply, { kind: 'ready' }>) => {
        endStart();
        Object.assign(seat, { reads, writes });
        resolve();
        if (locks === undefined || lock === undefined || !locked) return;
        locks.request(lock, { signal: watch.signal }, () => stopped('ended before its time')).catch(() => {});
      };
      const receive = (reply: unknown) => {
        if (!isReply(reply)) stopped(`sent ${show(reply)}, which is not an answer`);
        else if (reply.kind === 'ready') started(reply);
        else if (reply.kind === 'taken') seat.feed.takeBack(reply.memory);
        else if (reply.kind === 'answer') this.#answer(seat, reply.id, (ask) => ask.resolve(reply.answer));
        else if (reply.kind === 'failure' && this.#answer(seat, reply.id, (ask) => ask.reject(errorFrom(reply.error))))
          return;
        else this.#receive(seat, reply, stopped);
      };
      listen(worker, receive, stopped);
      const sources = this.#files.sources.map(({ reference }) => reference);
      const sinks = this.#files.sinks.map(({ reference }) => reference);
      send(worker, { kind: 'start', module, sources, sinks, lock }, []);
    });
  }

  #seatOf(worker: WorkerLike, leave: Seat['leave']): Seat {
    const seat: Seat = {
      worker,
      jobs: new Map(),
      asked: new Map(),
      feed: new Feed({
        files: this.#files.sources,
        isOpen: (file) => seat.reads[file] === true,
        spare: this.#spareInputs,
        send: (id, bytes) => this.#post(seat, { kind: 'bytes', id, bytes }, [bytes.buffer]),
      }),
      last: {},
      reads: [],
      writes: false,
      leave,
    };
    return seat;
  }

  /** Ends a question. Returns false if there is no such question. */
  #answer(seat: Seat, id: number | undefined, end: (ask: PromiseWithReason<HandAnswer>) => void): boolean {
    const ask = seat.asked.get(id ?? -1);
    if (ask === undefined) return false;
    seat.asked.delete(id ?? -1);
    end(ask);
    return true;
  }

  /** Number of workers. */
  get count(): number {
    return this.#seats.length;
  }

  /** True once the workers ended. */
  get ended(): boolean {
    return this.#ended !== undefined;
  }

  /** Says whether a process of Node waits for the workers. */
  keepRunning(on: boolean): void {
    for (const { worker } of this.#seats) {
      if (on) worker.ref?.();
      else worker.unref?.();
    }
  }

  /** Has a worker carry out a job. Those of one worker are carried out in the order of the calls. */
  async ask(worker: number, job: TransformerJob, transfer: ArrayBuffer[]): Promise<TransformerAnswer> {
    const answer = await this.#ask(worker, job, transfer);
    if (!isAnswer(answer)) throw new ScalepointError('WORKER', 'a worker sent the answer to another job');
    return answer;
  }

  /** The same for a share of the vectors of an index. */
  async scan(worker: number, job: ScanJob, transfer: ArrayBuffer[]): Promise<ScanAnswer> {
    const answer = await this.#ask(worker, job, transfer);
    if (!isScanAnswer(answer)) throw new ScalepointError('WORKER', 'a worker sent the answer to another job');
    return answer;
  }

  #ask(worker: number, job: HandJob, transfer: ArrayBuffer[]): Promise<HandAnswer> {
    return new Promise((resolve, reject) => {
      if (this.#ended !== undefined) {
        reject(this.#ended.reason);
        return;
      }
      const seat = this.#seats[worker] as Seat;
      const id = this.#nextId++;
      seat.asked.set(id, { resolve, reject });
      try {
        this.#post(seat, { kind: 'job', id, job }, transfer);
      } catch (error) {
        seat.asked.delete(id);
        reject(error);
      }
    });
  }

  /** Takes the result of a job, or its failure. */
  #receive(
    seat: Seat,
    reply: Extract<WorkerReply, { kind: 'result' | 'failure' }>,
    stopped: (what: string) => void,
  ): void {
    if (this.#ended !== undefined) return;
    const job = seat.jobs.get(reply.id ?? -1);
    if (reply.kind === 'failure') {
      const { task, writing } = reply;
      const error = errorFrom(reply.error);
      if (job === undefined)
        this.dispose(error instanceof ScalepointError ? error : new ScalepointError('WORKER', error.message));
      job?.reject(new TaskError(Math.min(task, job.expected.tasks - 1), error, writing));
    } else if (job !== undefined && isResultOf(job.expected, reply.result)) {
      this.#owners.add(reply.result, seat);
      job.resolve(reply.result);
    } else {
      stopped('sent a result that nobody asked for');
      return;
    }
    seat.jobs.delete(reply.id ?? -1);
    this.#dispatch();
  }

  run(asked: Batch): Promise<BatchResult> {
    return new Promise((resolve, reject) => {
      if (this.#ended !== undefined) {
        reject(new TaskError(0, this.#ended.reason));
        return;
      }
      const { batch, owner } = this.#owners.assign(asked);
      const expected = { tasks: batch.tasks.length, outputBytes: batch.outputBytes, written: false };
      this.#queue.push({ id: this.#nextId++, batch, expected, owner, resolve, reject });
      this.#dispatch();
    });
  }

  /** Hands waiting jobs to the workers with the fewest jobs, or to the owners of cached inputs. */
  #dispatch(): void {
    for (let i = 0; i < this.#queue.length && this.#ended === undefined; ) {
      const idle = this.#seats.reduce((best, other) => (other.jobs.size < best.jobs.size ? other : best));
      if (idle.jobs.size >= jobsPerWorker) return;
      const job = this.#queue[i] as PendingBatch;
      const seat = job.owner ?? idle;
      if (seat.jobs.size >= jobsPerWorker) i++;
      else {
        this.#queue.splice(i, 1);
        seat.jobs.set(job.id, job);
        void this.#send(seat, job, job.batch as Batch);
      }
    }
  }

  async #send(seat: Seat, job: PendingBatch, { tasks, outputBytes, writes }: Batch): Promise<void> {
    const { id, reject } = job;
    const batch = { tasks, outputBytes, writes: seat.writes ? writes : undefined };
    job.batch = undefined;
    job.expected = { tasks: tasks.length, outputBytes, written: batch.writes !== undefined };
    const spare = batch.writes === undefined ? this.#spare.pop() : undefined;
    try {
      const packed = packBatch(batch, seat.last);
      this.#post(seat, { kind: 'batch', id, batch: packed, spare }, spare === undefined ? [] : [spare]);
    } catch (error) {
      // The worker may not have received these ranges.
      seat.last.ranges = undefined;
      seat.jobs.delete(id);
      reject(error);
      this.#dispatch();
      return;
    }
    if (seat.reads.every((isOpen) => isOpen)) return;
    const isOver = () => this.#ended !== undefined || !seat.jobs.has(id);
    try {
      await seat.feed.give({ id, tasks, isOver });
    } catch (error) {
      reject(error);
      // The worker waits for the bytes, and fails.
      if (!isOver()) this.#post(seat, { kind: 'bytes', id, bytes: undefined }, []);
    }
  }

  #post({ worker }: Seat, request: WorkerRequest, transfer: ArrayBuffer[]): void {
    send(worker, request, transfer);
  }

  recycle(output: ArrayBuffer): void {
    if (this.#spare.length < this.concurrency) this.#spare.push(output);
  }

  dispose(reason: unknown = new ScalepointError('DISPOSED', 'the workers were disposed of')): void {
    if (this.#ended !== undefined) return;
    this.#ended = { reason };
    for (const { worker, jobs, asked, leave } of this.#seats) {
      leave(reason);
      quietly(() => worker.terminate());
      for (const job of jobs.values()) job.reject(new TaskError(0, reason));
      jobs.clear();
      for (const ask of asked.values()) ask.reject(reason);
      asked.clear();
    }
    for (const job of this.#queue) job.reject(new TaskError(0, reason));
    this.#queue.length = 0;
  }
}
