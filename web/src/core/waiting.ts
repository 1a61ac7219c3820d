/** Waits for promises that may never settle, until a signal or a time limit ends the wait. */

/** Waits for promises until a signal aborts. */
export interface Waiting {
  readonly signal: AbortSignal | undefined;
  /**
   * The promise, or a rejection with the signal's reason as soon as it aborts.
   * @param late called with a value that arrives after that
   */
  soon<T>(promise: Promise<T>, late?: (value: T) => void): Promise<T>;
  /** Stops listening to the signal. */
  end(): void;
}

/**
 * Rejects all pending waits as soon as the signal aborts. Does not race against one long-lived promise, because that promise would hold
 * every result, megabytes each, until the end.
 */
export function waitingFor(signal: AbortSignal | undefined): Waiting {
  if (signal === undefined) return { signal, soon: (promise) => promise, end: () => {} };
  const pending = new Set<(reason: unknown) => void>();
  const interrupt = () => {
    for (const reject of pending) reject(signal.reason);
  };
  signal.addEventListener('abort', interrupt, { once: true });
  return {
    signal,
    soon: <T>(promise: Promise<T>, late?: (value: T) => void): Promise<T> =>
      new Promise((resolve, reject) => {
        if (signal.aborted) reject(signal.reason);
        pending.add(reject);
        promise
          .then((value) => {
            if (signal.aborted) late?.(value);
            resolve(value);
          }, reject)
          .finally(() => pending.delete(reject));
      }),
    end: () => signal.removeEventListener('abort', interrupt),
  };
}

/** Time limit for closing a resource that may hang. */
const patienceMilliseconds = 50;

/** Waits until the promise settles, but not longer than a moment. Never rejects. */
export async function aMoment(promise: Promise<unknown>): Promise<void> {
  let timer: ReturnType<typeof setTimeout> | undefined;
  const timeout = new Promise((resolve) => {
    timer = setTimeout(resolve, patienceMilliseconds);
  });
  await Promise.race([promise.catch(() => {}), timeout]);
  clearTimeout(timer);
}

/** A promise that is fulfilled in another task. Timers of browsers would wait for 4 ms. */
export function nextTask(): Promise<void> {
  return new Promise((resolve) => {
    const { port1, port2 } = new MessageChannel();
    port1.onmessage = () => {
      port1.close();
      resolve();
    };
    port2.postMessage(undefined);
  });
}

/** Count of tensors from which on reading, planning and reporting are tasks of their own, so that a page stays free. */
const manyTensors = 4000;

/** Lets other tasks go first, between two steps about many tensors. */
export const pauseFor = ({ length }: readonly unknown[]) => (length > manyTensors ? nextTask() : undefined);
