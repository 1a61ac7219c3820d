/** Starts what carries out the work: workers, or this thread. */

import { ScalepointError } from '../core/errors.js';
import type { LoadOptions } from '../core/load.js';
import { nodeModule } from '../core/node.js';
import { inlineRunner } from '../runner/calling-thread.js';
import type { WorkerLike } from '../runner/worker-like.js';
import { type TileRunner, WorkerPool, type WorkFiles } from '../runner/worker-pool.js';
import type { Progress } from './progress.js';

/** How the work is done. */
export interface WorkOptions {
  /**
   * Workers to share the work; 0 for none. Every number gives the same bytes.
   * Where workers cannot start, the calling thread does the work, and the report has a note.
   * @defaultValue one less than there are processors, at most 8; none for small models
   */
  readonly workers?: number;
  /**
   * Makes a worker from the file `scalepoint/worker`, for bundlers that do not find it and for pages with Trusted Types.
   * @defaultValue the file beside this module
   */
  readonly worker?: () => WorkerLike;
  /** Where the large module of the core comes from, and which build of it; as `load()`, but `blocks` is ignored. */
  readonly core?: LoadOptions;
  /** Called when a tensor is done, and in between at most every 50 ms. An error that it throws ends the work, as does a rejected promise. */
  readonly onProgress?: (progress: Progress) => void;
  /** Stops the work; the promise is rejected with the signal's reason. */
  readonly signal?: AbortSignal;
}

/** Elements from which on starting workers takes less time than they save. */
const elementsForWorkers = 1 << 22;

function defaultWorkers(elements: number): number {
  if (elements < elementsForWorkers) return 0;
  const processors =
    nodeModule('node:os')?.availableParallelism() ??
    (globalThis as { navigator?: { hardwareConcurrency?: number } }).navigator?.hardwareConcurrency ??
    2;
  return Math.max(1, Math.min(8, processors - 1));
}

/** Starts a runner for so many elements. The core is loaded only here, so that looking into a file fetches no wasm. */
export async function startRunner(
  elements: number,
  files: WorkFiles,
  { workers = defaultWorkers(elements), worker, core, signal }: WorkOptions,
): Promise<TileRunner> {
  const load = await import('../core/load.js');
  const module = await load.compileCore('core', core);
  if (workers === 0) return inlineRunner(module, files.sources);
  try {
    return await WorkerPool.start(workers, module, files, worker, signal);
  } catch (error) {
    // Who gives a worker wants to know what is wrong with it.
    if (worker !== undefined || signal?.aborted || !(error instanceof ScalepointError && error.code === 'WORKER')) {
      throw error;
    }
    const runner = await inlineRunner(module, files.sources);
    return Object.assign(runner, { note: `without workers, which is slower: ${error.message}` });
  }
}
