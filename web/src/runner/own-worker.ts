// Where the worker of this package is. scalepoint/inline has own-worker.ts of web/src/inline in its place.
import { nodeModule } from '../core/node.js';
import type { WorkerLike } from './worker-like.js';

/** What starts the worker file beside this module; undefined if this engine has no workers. */
export async function ownWorker(): Promise<(() => WorkerLike) | undefined> {
  if (typeof Worker !== 'undefined') {
    return () => new Worker(new URL('./scalepoint-worker.js', import.meta.url), { type: 'module' });
  }
  const threads = nodeModule('node:worker_threads');
  if (threads === undefined) return undefined;
  // Not a literal URL: bundlers would emit a second file for it.
  const url = new URL(import.meta.url.replace(/[^/]*$/, 'scalepoint-worker.js'));
  // Arguments of this process such as --input-type would keep the file from running.
  // Workers keep next to nothing, and would let garbage grow to tens of megabytes each.
  return () => new threads.Worker(url, { execArgv: [], resourceLimits: { maxYoungGenerationSizeMb: 8 } });
}
