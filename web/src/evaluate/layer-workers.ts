/** Workers that carry out parts of a forward pass, or the calling thread in their place. */

import { orReason } from '../convert/start.js';
import type { WorkOptions } from '../convert/work-options.js';
import type { Core } from '../core/memory.js';
import { WorkerPool } from '../workers/worker-pool.js';
import { LayerHandler } from './layer-handler.js';
import { isAnswer, type TransformerAnswer, type TransformerJob } from './layer-jobs.js';

/** Carries out jobs. */
export interface LayerWorkers {
  /** Number of workers, from 1. */
  readonly count: number;
  /** A core in the calling thread. */
  readonly core: Core;
  /** Has a worker carry out a job. Those of one worker are carried out in the order of the calls. */
  ask(worker: number, job: TransformerJob, transfer?: ArrayBuffer[]): Promise<TransformerAnswer>;
}

/** Starts workers, and disposes of them after the work. @param workers their count; 0: the calling thread does the work */
export async function withLayerWorkers<T>(
  workers: number,
  { worker, core: given, signal }: Pick<WorkOptions, 'worker' | 'core' | 'signal'>,
  use: (layerWorkers: LayerWorkers) => Promise<T>,
): Promise<T> {
  const load = await import('../core/load.js');
  const module = await load.compileCore('core', given);
  const core = await load.instantiateCore('core', module);
  try {
    const starting = workers === 0 ? undefined : WorkerPool.start({ count: workers, module, worker, signal });
    const started = starting && (await orReason(starting, { worker, signal }));
    if (started === undefined || started instanceof Error) {
      const handler = new LayerHandler(core);
      return await use({ count: 1, core, ask: async (_, job) => handler.carryOut(job) });
    }
    // End the work at once, because a slice takes seconds.
    const abort = () => started.dispose(signal?.reason);
    signal?.addEventListener('abort', abort, { once: true });
    try {
      signal?.throwIfAborted();
      const ask: LayerWorkers['ask'] = (worker, job, transfer) =>
        started.ask(worker, { handler: 'layers', job, transfer, isAnswer });
      return await use({ count: workers, core, ask });
    } finally {
      signal?.removeEventListener('abort', abort);
      started.dispose();
    }
  } finally {
    core.dispose();
  }
}

/**
 * Does numbered work with all workers, and takes the results in the order of their numbers.
 * @param run does the work of a number with a worker
 */
export async function takeInOrder<T>(
  layerWorkers: Pick<LayerWorkers, 'count'>,
  count: number,
  run: (index: number, worker: number) => Promise<T>,
  take: (index: number, result: T) => void | Promise<void>,
): Promise<void> {
  const results = new Map<number, T>();
  let next = 0;
  let taken = 0;
  let taking = Promise.resolve();
  const takeNext = async () => {
    for (let result = results.get(taken); result !== undefined; result = results.get(taken)) {
      results.delete(taken);
      await take(taken++, result);
    }
  };
  const work = async (worker: number) => {
    while (next < count) {
      const index = next++;
      results.set(index, await run(index, worker));
      taking = taking.then(takeNext);
      await taking;
    }
  };
  await Promise.all(Array.from({ length: Math.min(layerWorkers.count, count) }, (_, worker) => work(worker)));
}
