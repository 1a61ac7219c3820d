/** Hands that carry out parts of a forward pass: workers, or the calling thread. */

import { orReason, type WorkOptions } from '../convert/start.js';
import type { Core } from '../core/memory.js';
import { WorkerPool } from '../workers/worker-pool.js';
import { TransformerHand } from './hand.js';
import { isAnswer, type TransformerAnswer, type TransformerJob } from './jobs.js';

/** Carries out jobs. */
export interface Hands {
  /** Number of hands, from 1. */
  readonly count: number;
  /** A core in the calling thread. */
  readonly core: Core;
  /** Has a hand carry out a job. Those of one hand are carried out in the order of the calls. */
  ask(hand: number, job: TransformerJob, transfer?: ArrayBuffer[]): Promise<TransformerAnswer>;
}

/** Starts hands, and disposes of them after the work. @param workers 0 for the calling thread */
export async function withHands<T>(
  workers: number,
  { worker, core: given, signal }: Pick<WorkOptions, 'worker' | 'core' | 'signal'>,
  use: (hands: Hands) => Promise<T>,
): Promise<T> {
  const load = await import('../core/load.js');
  const module = await load.compileCore('core', given);
  const core = await load.instantiateCore('core', module);
  try {
    const starting = workers === 0 ? undefined : WorkerPool.start({ count: workers, module, worker, signal });
    const started = starting && (await orReason(starting, { worker, signal }));
    if (started === undefined || started instanceof Error) {
      const hand = new TransformerHand(core);
      return await use({ count: 1, core, ask: async (_, job) => hand.carryOut(job) });
    }
    // End the work at once, because a slice takes seconds.
    const abort = () => started.dispose(signal?.reason);
    signal?.addEventListener('abort', abort, { once: true });
    try {
      signal?.throwIfAborted();
      const ask: Hands['ask'] = (hand, job, transfer) => started.ask(hand, { to: 'layers', job, transfer, isAnswer });
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
 * Does numbered work with all hands, and takes the results in the order of their numbers.
 * @param run does the work of a number with a hand
 */
export async function inOrder<T>(
  hands: Pick<Hands, 'count'>,
  count: number,
  run: (index: number, hand: number) => Promise<T>,
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
  const work = async (hand: number) => {
    while (next < count) {
      const index = next++;
      results.set(index, await run(index, hand));
      taking = taking.then(takeNext);
      await taking;
    }
  };
  await Promise.all(Array.from({ length: Math.min(hands.count, count) }, (_, hand) => work(hand)));
}
