/** Callbacks of the caller that may be async. */

/** The signal and the callback of a call. */
interface Callbacks {
  readonly signal?: AbortSignal | undefined;
  readonly onProgress?: ((progress: never) => void) | undefined;
}

function isThenable(value: unknown): value is PromiseLike<unknown> {
  return typeof (value as { then?: unknown } | null | undefined)?.then === 'function';
}

/**
 * Calls `use` with options whose `onProgress` may be an async function. If its promise is rejected, the work is aborted with the reason, as
 * if it had thrown.
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
  const report = (progress: never) => {
    const returned: unknown = onProgress(progress);
    if (isThenable(returned)) returned.then(undefined, (reason: unknown) => controller.abort(reason));
  };
  try {
    return await use({ ...options, signal: controller.signal, onProgress: report });
  } finally {
    signal?.removeEventListener('abort', abort);
  }
}
