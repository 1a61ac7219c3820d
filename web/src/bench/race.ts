// Timing: contestants run in turns in one process, so that a slow moment of the machine hits all of them, and medians are compared.

/** Options of `race`. */
export interface RaceOptions {
  /** Samples of each contestant. @defaultValue 15 */
  readonly rounds?: number;
  /**
   * Least length of a sample in milliseconds, which short functions reach by repetition: browsers' clocks tick every 0.1 ms.
   * @defaultValue 4
   */
  readonly sampleMs?: number;
  /** Stops between two samples; the race rejects with its reason. */
  readonly signal?: AbortSignal | undefined;
}

/** A function to time; one that returns a promise is awaited. */
export type Contestant = () => unknown;

/** Median milliseconds of one call of each contestant. Between samples other tasks get their turn. */
export async function race<Name extends string>(
  contestants: Readonly<Record<Name, Contestant>>,
  { rounds = 15, sampleMs = 4, signal }: RaceOptions = {},
): Promise<Record<Name, number>> {
  const names = Object.keys(contestants) as Name[];
  const state = new Map<Name, { repeat: number; samples: number[] }>();
  for (const name of names) {
    const run = contestants[name];
    // Three calls warm up the engine's optimizing compiler; the last tells how often to repeat.
    let repeat = 1;
    for (let i = 0; i < 3; i++) await run();
    for (;;) {
      const ms = await sample(run, repeat);
      await pause(signal);
      if (ms >= sampleMs) break;
      repeat = Math.ceil(repeat * Math.min(10, Math.max(1.5, (1.2 * sampleMs) / Math.max(ms, 0.05))));
    }
    state.set(name, { repeat, samples: [] });
  }
  for (let round = 0; round < rounds; round++) {
    for (const [name, { repeat, samples }] of state) {
      samples.push((await sample(contestants[name], repeat)) / repeat);
      await pause(signal);
    }
  }
  const medians = names.map((name) => [name, median(state.get(name)?.samples ?? [])]);
  return Object.fromEntries(medians) as Record<Name, number>;
}

/** Lets other tasks run: clicks on a page, above all. */
async function pause(signal: AbortSignal | undefined): Promise<void> {
  await new Promise((resolve) => setTimeout(resolve));
  signal?.throwIfAborted();
}

/** Milliseconds for `repeat` calls. */
async function sample(run: Contestant, repeat: number): Promise<number> {
  const start = performance.now();
  for (let i = 0; i < repeat; i++) {
    const result = run();
    if (result instanceof Promise) await result;
  }
  return performance.now() - start;
}

function median(values: readonly number[]): number {
  return [...values].sort((a, b) => a - b)[values.length >> 1] ?? Number.NaN;
}
