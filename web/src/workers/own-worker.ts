// Starts the worker file of this package. scalepoint/inline replaces this module by web/src/inline/own-worker.ts.
import { nodeModule } from '../core/node.js';
import type { WorkerLike } from '../core/worker-like.js';

/** A function that starts the worker file beside this module; undefined if this engine has no workers. */
export async function ownWorker(): Promise<(() => WorkerLike) | undefined> {
  if (typeof Worker !== 'undefined') {
    return () => new Worker(new URL('./scalepoint-worker.js', import.meta.url), { type: 'module' });
  }
  const threads = nodeModule('node:worker_threads');
  if (threads === undefined) return undefined;
  // Not a literal URL: bundlers would emit a second file for it.
  const url = new URL(import.meta.url.replace(/[^/]*$/, 'scalepoint-worker.js'));
  // Without execArgv, arguments of this process such as --input-type would keep the file from running.
  // Workers hold few objects. Without the limit, each would let garbage grow to tens of megabytes.
  return () => new threads.Worker(url, { execArgv: [], resourceLimits: { maxYoungGenerationSizeMb: 8 } });
}
