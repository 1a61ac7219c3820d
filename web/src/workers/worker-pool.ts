/** Has workers carry out jobs, each with an instance of the core of its own. `web/src/worker.ts` names their handlers. */

import { type ErrorData, errorFrom, ScalepointError, typeError } from '../core/errors.js';
import type { WasmModule } from '../core/load-options.js';
import { ofType } from '../core/option-problem.js';
import { show } from '../core/show.js';
import type { WorkerLike } from '../core/worker-like.js';
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

/** A job for a worker. */
export interface AskedJob<Answer> {
  /** The name of the handler that carries it out, as in `web/src/worker.ts`. */
  readonly handler: string;
  readonly job: object;
  /** Memory that moves with the job. */
  readonly transfer?: ArrayBuffer[] | undefined;
  /** Checks an answer, because the caller may have made the worker. */
  isAnswer(answer: unknown): answer is Answer;
}

/** A job under way. */
interface PendingJob {
  isAnswer(answer: unknown): boolean;
  resolve(answer: never): void;
  reject(reason: unknown): void;
}

/** A worker and its jobs. */
interface Seat {
  readonly worker: WorkerLike;
  readonly jobs: Map<number, PendingJob>;
  /** Stops waiting for the worker to start or to end. */
  leave(reason: unknown): void;
}

/** Options of `WorkerPool.start`. */
export interface PoolOptions {
  /** Number of workers. */
  readonly count: number;
  /** The compiled core. */
  readonly module: WebAssembly.Module;
  /** The module whose calls jobs need. @defaultValue 'core' */
  readonly calls?: WasmModule | undefined;
  /** Makes a worker. @defaultValue that of this package */
  readonly worker?: (() => WorkerLike) | undefined;
  /** Ends the start. */
  readonly signal?: AbortSignal | undefined;
  /** Takes data that a job under way sends, with the index of its worker. */
  readonly receive?: ((worker: number, data: unknown) => void) | undefined;
}

/** Workers that carry out jobs. */
export class WorkerPool {
  readonly #seats: Seat[] = [];
  #nextId = 0;
  #ended: { readonly reason: unknown } | undefined;

  private constructor() {}

  /** Starts workers and waits until they are ready. @throws ScalepointError `WORKER`, or what loading the core throws */
  static async start(options: PoolOptions): Promise<WorkerPool> {
    const { count, module, calls = 'core', worker, signal, receive = () => {} } = options;
    signal?.throwIfAborted();
    const make = worker ?? (await workerOfPackage());
    signal?.throwIfAborted();
    const pool = new WorkerPool();
    const abort = () => pool.dispose(signal?.reason);
    signal?.addEventListener('abort', abort, { once: true });
    try {
      const add = (_: unknown, i: number) =>
        pool.#add({ kind: 'start', module, calls }, make, (data) => receive(i, data));
      await Promise.all(Array.from({ length: count }, add));
    } catch (error) {
      pool.dispose(error);
      throw error;
    } finally {
      signal?.removeEventListener('abort', abort);
    }
    return pool;
  }

  #add(
    start: Extract<WorkerRequest, { kind: 'start' }>,
    create: () => WorkerLike,
    take: (data: unknown) => void,
  ): Promise<void> {
    return new Promise((resolve, reject) => {
      const worker = checkWorker(create());
      const stopped = (what: string, cause?: unknown) =>
        this.dispose(new ScalepointError('WORKER', `a worker ${what}`, { cause }));
      // Stop a worker that stays silent for too long.
      let ticks = 0;
      const timer = setInterval(() => {
        if (++ticks < startTicks) return;
        stopped(`said nothing for ${startMilliseconds / 1000} s: its file is not scalepoint-worker.js of this version`);
      }, startMilliseconds / startTicks);
      const endStart = () => clearInterval(timer);
      const watch = new AbortController();
      const leave = (reason: unknown) => {
        endStart();
        watch.abort();
        reject(reason);
      };
      const jobs: Seat['jobs'] = new Map();
      this.#seats.push({ worker, jobs, leave });
      // Browsers have no event for the end of a worker, but they release its locks. Insecure pages have no locks.
      const locks = 'on' in worker ? undefined : globalThis.navigator?.locks;
      const lock = locks && `scalepoint-${crypto.randomUUID()}`;
      const started = (locked: boolean) => {
        endStart();
        resolve();
        if (locks === undefined || lock === undefined || !locked) return;
        locks.request(lock, { signal: watch.signal }, () => stopped('ended before its time')).catch(() => {});
      };
      const receive = (reply: unknown) => {
        if (!isReply(reply)) stopped(`sent ${show(reply)}, which is not an answer`);
        else if (reply.kind === 'ready') started(reply.locked);
        else if (reply.kind === 'data') take(reply.data);
        else this.#settle(jobs, reply, stopped);
      };
      listen(worker, receive, stopped);
      send(worker, { ...start, lock }, []);
    });
  }

  /** Takes the answer to a job, or its failure. */
  #settle(
    jobs: Seat['jobs'],
    reply: Extract<WorkerReply, { kind: 'answer' | 'failure' }>,
    stopped: (what: string) => void,
  ): void {
    if (this.#ended !== undefined) return;
    const job = jobs.get(reply.id ?? -1);
    if (reply.kind === 'failure') {
      const error = errorFrom(reply.error);
      jobs.delete(reply.id ?? -1);
      if (job !== undefined) job.reject(error);
      else this.dispose(error instanceof ScalepointError ? error : new ScalepointError('WORKER', error.message));
    } else if (job?.isAnswer(reply.answer)) {
      jobs.delete(reply.id);
      job.resolve(reply.answer as never);
    } else {
      stopped('sent an answer that nobody asked for');
    }
  }

  /** Number of workers. */
  get count(): number {
    return this.#seats.length;
  }

  /** True once the workers ended. */
  get ended(): boolean {
    return this.#ended !== undefined;
  }

  /** Sets if a process of Node waits for the workers. @param on true to wait */
  keepRunning(on: boolean): void {
    for (const { worker } of this.#seats) {
      if (on) worker.ref?.();
      else worker.unref?.();
    }
  }

  /** Has a worker carry out a job. Those of one worker are carried out in the order of the calls. @throws ScalepointError `WORKER` */
  ask<Answer>(worker: number, { handler, job, transfer = [], isAnswer }: AskedJob<Answer>): Promise<Answer> {
    return new Promise((resolve, reject) => {
      if (this.#ended !== undefined) {
        reject(this.#ended.reason);
        return;
      }
      const { worker: asked, jobs } = this.#seats[worker] as Seat;
      const id = this.#nextId++;
      jobs.set(id, { isAnswer, resolve, reject });
      try {
        send(asked, { kind: 'job', id, handler, job }, transfer);
      } catch (error) {
        jobs.delete(id);
        reject(error);
      }
    });
  }

  /** Sends data to a handler of a worker. @throws ScalepointError `WORKER` */
  tell(worker: number, handler: string, data: object, transfer: ArrayBuffer[]): void {
    if (this.#ended === undefined)
      send((this.#seats[worker] as Seat).worker, { kind: 'data', handler, data }, transfer);
  }

  /** Ends the workers. Jobs under way are rejected with the reason. */
  dispose(reason: unknown = new ScalepointError('DISPOSED', 'the workers were disposed of')): void {
    if (this.#ended !== undefined) return;
    this.#ended = { reason };
    for (const { worker, jobs, leave } of this.#seats) {
      leave(reason);
      quietly(() => worker.terminate());
      for (const job of jobs.values()) job.reject(reason);
      jobs.clear();
    }
  }
}

/** A message to a worker. */
export type WorkerRequest =
  /** The first message: loads the core. `lock`: name of a lock to hold for as long as the worker lives. */
  | {
      readonly kind: 'start';
      readonly module: WebAssembly.Module;
      readonly calls: WasmModule;
      readonly lock?: string | undefined;
    }
  /** Work, which is carried out in the order of the messages. */
  | { readonly kind: 'job'; readonly id: number; readonly handler: string; readonly job: object }
  /** Data for jobs of a handler, which it takes at once. */
  | { readonly kind: 'data'; readonly handler: string; readonly data: object };

/** A message from a worker. */
export type WorkerReply =
  /** `locked`: true if it holds the lock. */
  | { readonly kind: 'ready'; readonly locked: boolean }
  | { readonly kind: 'answer'; readonly id: number; readonly answer: unknown }
  /** Data from a job that is under way. */
  | { readonly kind: 'data'; readonly data: unknown }
  /** `id`: the job that failed; undefined if the worker could not start. */
  | { readonly kind: 'failure'; readonly id: number | undefined; readonly error: ErrorData };

/** True if a worker that the caller made replies as the file `scalepoint/worker` does. */
function isReply(reply: unknown): reply is WorkerReply {
  const { kind, error } = (reply ?? {}) as Record<string, unknown>;
  if (kind === 'failure') return typeof ((error ?? {}) as Partial<ErrorData>).message === 'string';
  return kind === 'ready' || kind === 'answer' || kind === 'data';
}
