// Replaces web/src/workers/own-worker.ts in scalepoint/inline, where the worker is part of the code.
import { nodeModule } from '../core/node.js';
import type { WorkerLike } from '../core/worker-like.js';
import { worker } from './embedded.mjs';
import { unpackEmbedded } from './unpack.js';

/** The code of the worker, unpacked once. */
let code: Promise<string> | undefined;
/** URL of the code in a browser. */
let address: string | undefined;

/** Returns a function that starts the worker from its code; undefined if this engine has no workers. */
export async function ownWorker(): Promise<(() => WorkerLike) | undefined> {
  const threads = typeof Worker === 'undefined' ? nodeModule('node:worker_threads') : undefined;
  if (typeof Worker === 'undefined' && threads === undefined) return undefined;
  code ??= unpackEmbedded(worker).then((bytes) => new TextDecoder().decode(bytes));
  const text = await code;
  if (threads !== undefined) {
    const url = new URL(`data:text/javascript,${encodeURIComponent(text)}`);
    return () => new threads.Worker(url, { execArgv: [], resourceLimits: { maxYoungGenerationSizeMb: 8 } });
  }
  // Keep one address for all workers. It is never revoked, because some engines fetch it late.
  address ??= URL.createObjectURL(new Blob([text], { type: 'text/javascript' }));
  const url = address;
  return () => new Worker(url, { type: 'module' });
}
