// Tries again of requests, without the waiting.

/** Runs with pauses between tries of a hundredth of their time. Returns the pauses, in milliseconds. */
export async function hurried<T>(run: () => Promise<T>): Promise<{ readonly result: T; readonly pauses: number[] }> {
  const { setTimeout: real } = globalThis;
  const pauses: number[] = [];
  globalThis.setTimeout = ((call: () => void, milliseconds = 0, ...more: unknown[]) => {
    // Other timers end requests that stall.
    const isPause = new Error('here').stack?.includes('Tries.again') ?? false;
    if (isPause) pauses.push(milliseconds);
    return real(call, isPause ? milliseconds / 100 : milliseconds, ...more);
  }) as typeof setTimeout;
  try {
    return { result: await run(), pauses };
  } finally {
    globalThis.setTimeout = real;
  }
}
