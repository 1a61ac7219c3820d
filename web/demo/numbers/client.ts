import { callWorker, type WorkerCaller } from '../shared/calls.js';
import type { NumbersCalls } from './worker.js';

/** The worker, which holds the visitor's data. */
export type Client = WorkerCaller<NumbersCalls>;

export const startClient = (): Client =>
  callWorker(() => new Worker(new URL('./worker.ts', import.meta.url), { type: 'module' }), {
    work: 'computes',
    isOnly: true,
  });
