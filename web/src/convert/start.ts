/** Starts a runner: workers, or the calling thread. */

import { ScalepointError } from '../core/errors.js';
import type { LoadOptions } from '../core/load-options.js';
import { nodeModule } from '../core/node.js';
import { noteOf } from '../core/note.js';
import { waitingFor } from '../core/waiting.js';
import type { WorkerLike } from '../core/worker-like.js';
import { CallingThread } from './calling-thread.js';
import type { Progress } from './progress.js';
import type { TileRunner, WorkFiles } from './tile-runner.js';
import { TileWorkers } from './tile-workers.js';

/** Options about workers, progress and canceling. */
export interface WorkOptions {
  /**
   * Number of workers. With 0, the calling thread does the work. Every number gives the same bytes.
   * Where workers cannot start, the calling thread does the work, and the report has a note.
   * @defaultValue one less than the number of processors, at most 8; 0 for small models
   */
  readonly workers?: number | undefined;
  /**
   * Makes a worker from the file `scalepoint/worker`, for bundlers that do not find it and for pages with Trusted Types.
   * @defaultValue the file beside this module
   */
  readonly worker?: (() => WorkerLike) | undefined;
  /** Where the large module of the core comes from, and which build of it; as `load()`, but `blocks` is ignored. */
  readonly core?: LoadOptions | undefined;
  /** Called when a tensor is done, and in between at most every 50 ms. An error that it throws ends the work, as does a rejected promise. */
  readonly onProgress?: ((progress: Progress) => void) | undefined;
  /** Stops the work; the promise is rejected with the signal's reason. */
  readonly signal?: AbortSignal | undefined;
}

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

async function makeRunner(
  elements: number,
  files: WorkFiles,
  { workers = defaultWorkers(elements), worker, core, signal }: WorkOptions,
): Promise<TileRunner> {
  const load = await import('../core/load.js');
  const module = await load.compileCore('core', core);
  if (workers === 0) return CallingThread.start(module, files.sources);
  const starting = TileWorkers.start({ count: workers, module, worker, signal }, files);
  const started = await orReason(starting, { worker, signal });
  if (!(started instanceof Error)) return started;
  const note = noteOf('noWorkers', {}, `without workers, which is slower: ${started.message}`);
  return CallingThread.start(module, files.sources, note);
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
  const waiting = waitingFor(options.signal);
  try {
    return await waiting.soon(makeRunner(elements, files, options), (late) => late.dispose());
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
