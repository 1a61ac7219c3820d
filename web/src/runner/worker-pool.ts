/**
 * Carries out batches of tiles in workers, each with an instance of the core of its own. Workers open the files of the model and of the
 * result by themselves if they can, read straight into wasm memory and write from there. For the others this thread reads and writes.
 */
import { type ErrorCode, ScalepointError, typeError } from '../core/errors.js';
import { sumCount } from '../core/measure.js';
import type { Note } from '../core/note.js';
import { ofType } from '../core/option-problem.js';
import { isBuffer, isBytes, isDoubles } from '../core/realms.js';
import { show } from '../core/show.js';
import type { ByteSource, SourceReference } from '../files/bytes.js';
import type { ByteSink, SinkReference } from '../files/sink.js';
import { Keepers } from './cache-owners.js';
import { Feed } from './feed.js';
import { type LastRanges, type PackedBatch, packBatch } from './messages.js';
import { ownWorker } from './own-worker.js';
import { type Batch, type BatchResult, problemIn, TaskError } from './task.js';
import type { WorkerLike } from './worker-like.js';

/** What a worker is sent: first how to start, then batches. */
export type WorkerRequest =
  | {
      readonly kind: 'start';
      readonly module: WebAssembly.Module;
      /** The files that batches read and write; undefined where a worker cannot open them. */
      readonly sources: readonly (SourceReference | undefined)[];
      readonly sinks: readonly (SinkReference | undefined)[];
      /** Name of a lock to hold for as long as the worker lives. */
      readonly lock?: string | undefined;
    }
  | {
      readonly kind: 'batch';
      readonly id: number;
      /** `writes` is there if the worker is to write the output. */
      readonly batch: PackedBatch;
      /** Memory for an output that is sent back. */
      readonly spare: ArrayBuffer | undefined;
    }
  /**
   * The next bytes of a batch from files that the worker did not open, in the order in which it puts them into its memory. Undefined if
   * they could not be read.
   */
  | { readonly kind: 'bytes'; readonly id: number; readonly bytes: Uint8Array<ArrayBuffer> | undefined };

/** What a worker answers. */
export type WorkerReply =
  /** `locked`: whether it holds the lock. `reads`: which sources it has opened. `writes`: whether it has opened all sinks. */
  | { readonly kind: 'ready'; readonly locked: boolean; readonly reads: readonly boolean[]; readonly writes: boolean }
  | { readonly kind: 'result'; readonly id: number; readonly result: BatchResult }
  /** The memory of bytes that are no longer needed. */
  | { readonly kind: 'taken'; readonly memory: ArrayBuffer }
  /** `task`: which task of the batch. `writing`: whether its output could not be written. */
  | {
      readonly kind: 'failure';
      readonly id: number | undefined;
      readonly task: number;
      readonly writing: boolean;
      readonly cause?: SystemError | undefined;
      readonly code?: ErrorCode;
      readonly message: string;
      readonly byteOffset?: number | undefined;
    };

/** An error of the system in plain data. */
export interface SystemError {
  readonly message: string;
  readonly code: string;
  readonly errno: number | undefined;
  readonly syscall: string | undefined;
}

/** Carries out batches. */
export interface TileRunner {
  /** How many batches to start before waiting for the first one. */
  readonly concurrency: number;
  /** What to know about how it runs. */
  readonly note?: Note;
  /** @throws TaskError */
  run(batch: Batch): Promise<BatchResult>;
  /** Takes back the output of a batch that is no longer needed, to use its memory again. */
  recycle(output: ArrayBuffer): void;
  /** Ends all work. Pending promises are rejected with the reason. Can be called twice. */
  dispose(reason?: unknown): void;
}

/** A worker of Node, which has another kind of events. */
interface NodeWorker extends WorkerLike {
  on(type: string, listener: (value: never) => void): void;
}

/** How long a worker may be silent before it has loaded its code and the core: something else was started, or nothing. */
const startMilliseconds = 5_000;

/** How many steps that time has. While this thread is busy no message arrives, and only one step passes. */
const startSteps = 20;

/** What starts the worker of this package. @throws ScalepointError `WORKER` if this engine has none */
async function workerOfPackage(): Promise<() => WorkerLike> {
  const start = await ownWorker();
  if (start === undefined) throw new ScalepointError('WORKER', 'this engine has no workers');
  return () => {
    try {
      return start();
    } catch (cause) {
      throw new ScalepointError('WORKER', `a worker could not be started: ${messageOf(cause)}`, { cause });
    }
  };
}

function messageOf(cause: unknown): string {
  return cause instanceof Error ? cause.message : String(cause);
}

/** Does something whose failure, now or later, is of no interest. */
function quietly(action: () => unknown): void {
  (async () => action())().catch(() => {});
}

/** Sends a message. @throws ScalepointError `WORKER` */
function send(worker: WorkerLike, request: WorkerRequest, transfer: ArrayBuffer[]): void {
  try {
    worker.postMessage(request, transfer);
  } catch (cause) {
    throw new ScalepointError('WORKER', `a worker takes no messages: ${messageOf(cause)}`, { cause });
  }
}

/** A worker that the caller made. @throws TypeError if it is none */
function checkWorker(worker: unknown): WorkerLike {
  const { postMessage, terminate, on, addEventListener } = (worker ?? {}) as Record<string, unknown>;
  const listens = typeof on === 'function' || typeof addEventListener === 'function';
  if (typeof postMessage === 'function' && typeof terminate === 'function' && listens) return worker as WorkerLike;
  // A promise that rejects while nobody waits for it would end the process.
  quietly(() => worker);
  throw typeError('worker', ofType('function that returns a Worker'), worker);
}

function isResult(result: Partial<BatchResult> | undefined): boolean {
  const { output, done, measured, sums, answers } = result ?? {};
  // Workers of Node make them in another context than jsdom's.
  const arrays = isBuffer(output) && isBytes(measured) && isDoubles(sums);
  return arrays && Number.isInteger(done) && Array.isArray(answers);
}

/** Whether a worker that the caller made answers as the file `scalepoint/worker` does. */
function isReply(reply: unknown): reply is WorkerReply {
  const { kind, result, task, message } = (reply ?? {}) as Record<string, unknown> & { result?: Partial<BatchResult> };
  if (kind === 'failure') return typeof message === 'string' && Number.isInteger(task) && (task as number) >= 0;
  if (kind === 'result') return isResult(result);
  if (kind === 'taken') return isBuffer((reply as { memory?: unknown }).memory);
  return kind === 'ready' && Array.isArray((reply as { reads?: unknown }).reads);
}

/** Whether a result is one of a batch: with all of its bytes unless they were to be written, and all tasks up to a problem. */
function isResultOf(expected: Expected, result: BatchResult): boolean {
  const { tasks, outputBytes } = expected;
  const { output, written = false, done, measured, sums } = result;
  const complete = done === tasks || (done < tasks && problemIn(result) !== undefined);
  const measures = measured.length === tasks && [0, tasks * sumCount].includes(sums.length);
  const bytes = expected.written ? 0 : outputBytes;
  return output.byteLength === bytes && written === expected.written && measures && complete;
}

/** The error that a worker told of. */
function errorOf({ code, message, byteOffset, cause }: Extract<WorkerReply, { kind: 'failure' }>): Error {
  if (code === undefined) return new Error(message);
  const place = { byteOffset, cause: cause && Object.assign(new Error(cause.message), cause) };
  return new ScalepointError(code, message, place);
}

/** Listens to a worker, of a browser or of Node. `stopped` is called with what happened to it if it ends. */
function listen(
  worker: WorkerLike,
  receive: (reply: unknown) => void,
  stopped: (what: string, cause?: unknown) => void,
): void {
  if ('on' in worker) {
    const node = worker as NodeWorker;
    node.on('message', receive);
    node.on('error', (cause: unknown) => stopped(`failed: ${messageOf(cause)}`, cause));
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

/** What the result of a batch has to be like. */
interface Expected {
  readonly tasks: number;
  readonly outputBytes: number;
  /** Whether the worker writes the output. */
  readonly written: boolean;
}

/** A batch and its promise. */
interface Job {
  readonly id: number;
  /** Undefined once it is sent: the tasks of many small tensors take much memory. */
  batch: Batch | undefined;
  /** What is expected of the result. */
  expected: Expected;
  /** Who has to do it, since it keeps the inputs. Undefined: anyone. */
  readonly keeper: Seat | undefined;
  resolve(result: BatchResult): void;
  reject(reason: unknown): void;
}

/** A worker and what it has to do. */
interface Seat {
  readonly worker: WorkerLike;
  readonly jobs: Map<number, Job>;
  /** Sends what it cannot read. */
  readonly feed: Feed;
  /** The ranges that it was sent last. */
  readonly last: LastRanges;
  /** Which sources it has opened. */
  reads: readonly boolean[];
  /** Whether it has opened all sinks. */
  writes: boolean;
  /** Stops waiting for the worker to start or to end. */
  leave(reason: unknown): void;
}

/** Batches that a worker has at a time: one that it works on and the next one, so that it never waits for messages. */
const jobsPerWorker = 2;

/** What batches read and write. */
export interface WorkFiles {
  readonly sources: readonly ByteSource[];
  readonly sinks: readonly ByteSink[];
}

/** Runs batches in workers. */
export class WorkerPool implements TileRunner {
  readonly concurrency: number;
  readonly #files: WorkFiles;
  readonly #seats: Seat[] = [];
  readonly #queue: Job[] = [];
  readonly #keepers: Keepers<Seat>;
  readonly #spare: ArrayBuffer[] = [];
  /** Memory for inputs. Workers share it. */
  readonly #spareInputs: ArrayBuffer[] = [];
  #nextId = 0;
  #ended: { readonly reason: unknown } | undefined;

  private constructor(count: number, files: WorkFiles) {
    this.concurrency = count * jobsPerWorker;
    this.#keepers = new Keepers(count);
    this.#files = files;
  }

  /**
   * Starts so many workers and waits until they are ready.
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
      let steps = 0;
      const timer = setInterval(() => {
        if (++steps < startSteps) return;
        stopped(`said nothing for ${startMilliseconds / 1000} s: its file is not scalepoint-worker.js of this version`);
      }, startMilliseconds / startSteps);
      const watch = new AbortController();
      const seat: Seat = {
        worker,
        jobs: new Map(),
        feed: new Feed({
          files: this.#files.sources,
          isOpen: (file) => seat.reads[file] === true,
          spare: this.#spareInputs,
          send: (id, bytes) => this.#post(seat, { kind: 'bytes', id, bytes }, [bytes.buffer]),
        }),
        last: {},
        reads: [],
        writes: false,
        leave(reason) {
          clearInterval(timer);
          watch.abort();
          reject(reason);
        },
      };
      this.#seats.push(seat);
      // Browsers have no event for the end of a worker, but they release its locks. Not every page has locks.
      const locks = 'on' in worker ? undefined : globalThis.navigator?.locks;
      const lock = locks && `scalepoint-${crypto.randomUUID()}`;
      const started = ({ locked, reads, writes }: Extract<WorkerReply, { kind: 'ready' }>) => {
        clearInterval(timer);
        Object.assign(seat, { reads, writes });
        resolve();
        if (locks === undefined || lock === undefined || !locked) return;
        locks.request(lock, { signal: watch.signal }, () => stopped('ended before its time')).catch(() => {});
      };
      const receive = (reply: unknown) => {
        if (!isReply(reply)) stopped(`sent ${show(reply)}, which is no answer`);
        else if (reply.kind === 'ready') started(reply);
        else if (reply.kind === 'taken') seat.feed.takeBack(reply.memory);
        else this.#receive(seat, reply, stopped);
      };
      listen(worker, receive, stopped);
      const sources = this.#files.sources.map(({ reference }) => reference);
      const sinks = this.#files.sinks.map(({ reference }) => reference);
      send(worker, { kind: 'start', module, sources, sinks, lock }, []);
    });
  }

  /** Takes the answer to a job. */
  #receive(
    seat: Seat,
    reply: Extract<WorkerReply, { kind: 'result' | 'failure' }>,
    stopped: (what: string) => void,
  ): void {
    if (this.#ended !== undefined) return;
    const job = seat.jobs.get(reply.id ?? -1);
    if (reply.kind === 'failure') {
      const { code, message, task, writing } = reply;
      if (job === undefined) this.dispose(new ScalepointError(code ?? 'WORKER', message));
      job?.reject(new TaskError(Math.min(task, job.expected.tasks - 1), errorOf(reply), writing));
    } else if (job !== undefined && isResultOf(job.expected, reply.result)) {
      this.#keepers.add(reply.result, seat);
      job.resolve(reply.result);
    } else {
      stopped('sent a result that is none of what it was asked for');
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
      const { batch, keeper } = this.#keepers.assign(asked);
      const expected = { tasks: batch.tasks.length, outputBytes: batch.outputBytes, written: false };
      this.#queue.push({ id: this.#nextId++, batch, expected, keeper, resolve, reject });
      this.#dispatch();
    });
  }

  /** Hands waiting jobs to the workers that have the least to do, or that keep the inputs. */
  #dispatch(): void {
    for (let i = 0; i < this.#queue.length && this.#ended === undefined; ) {
      const idle = this.#seats.reduce((best, other) => (other.jobs.size < best.jobs.size ? other : best));
      if (idle.jobs.size >= jobsPerWorker) return;
      const job = this.#queue[i] as Job;
      const seat = job.keeper ?? idle;
      if (seat.jobs.size >= jobsPerWorker) i++;
      else {
        this.#queue.splice(i, 1);
        seat.jobs.set(job.id, job);
        void this.#send(seat, job, job.batch as Batch);
      }
    }
  }

  async #send(seat: Seat, job: Job, { tasks, outputBytes, writes }: Batch): Promise<void> {
    const { id, reject } = job;
    const batch = { tasks, outputBytes, writes: seat.writes ? writes : undefined };
    job.batch = undefined;
    job.expected = { tasks: tasks.length, outputBytes, written: batch.writes !== undefined };
    const spare = batch.writes === undefined ? this.#spare.pop() : undefined;
    try {
      const packed = packBatch(batch, seat.last);
      this.#post(seat, { kind: 'batch', id, batch: packed, spare }, spare === undefined ? [] : [spare]);
    } catch (error) {
      // It may have got nothing of this.
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
      // It waits for them, and fails.
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
    for (const { worker, jobs, leave } of this.#seats) {
      leave(reason);
      quietly(() => worker.terminate());
      for (const job of jobs.values()) job.reject(new TaskError(0, reason));
      jobs.clear();
    }
    for (const job of this.#queue) job.reject(new TaskError(0, reason));
    this.#queue.length = 0;
  }
}
