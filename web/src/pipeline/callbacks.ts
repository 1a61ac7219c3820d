/** Functions that the caller gave. */
import type { Progress } from './progress.js';

/** What ends a work, and what hears of it. */
interface Callbacks {
  readonly signal?: AbortSignal | undefined;
  readonly onProgress?: ((progress: Progress) => void) | undefined;
}

function isThenable(value: unknown): value is PromiseLike<unknown> {
  return typeof (value as { then?: unknown } | null | undefined)?.then === 'function';
}

/**
 * Does some work with options whose `onProgress` may be an async function: a promise of it that is rejected aborts the work with the
 * reason, as an error that it throws does.
 */
export async function withCallbacks<Options extends Callbacks, T>(
  options: Options,
  use: (options: Options) => Promise<T>,
): Promise<T> {
  const { signal, onProgress } = options;
  if (onProgress === undefined) return use(options);
  const controller = new AbortController();
  const abort = () => controller.abort(signal?.reason);
  if (signal?.aborted) abort();
  signal?.addEventListener('abort', abort, { once: true });
  const report = (progress: Progress) => {
    const returned: unknown = onProgress(progress);
    if (isThenable(returned)) returned.then(undefined, (reason: unknown) => controller.abort(reason));
  };
  try {
    return await use({ ...options, signal: controller.signal, onProgress: report });
  } finally {
    signal?.removeEventListener('abort', abort);
  }
}
