// Times contestants in turns in one process. The fastest sample of each counts: other work of the machine can only make a sample slower,
// and with many short turns each contestant gets some undisturbed ones.

import { checkKeys } from '../core/check.js';

/** Options of `race`. */
export interface RaceOptions {
  /** Samples of each contestant. @defaultValue 15 */
  readonly rounds?: number | undefined;
  /**
   * Least length of a sample in milliseconds, which short functions reach by repetition: browsers' clocks tick every 0.1 ms.
   * @defaultValue 4
   */
  readonly sampleMs?: number | undefined;
  /**
   * Time that each contestant runs before it is timed, in milliseconds, and at least for three calls. Engines optimize a function only
   * after it has run for a while, which takes longest for functions that call much JavaScript.
   * @defaultValue 800
   */
  readonly warmupMs?: number | undefined;
  /** Stops between two samples; the race rejects with its reason. */
  readonly signal?: AbortSignal | undefined;
}

/**
 * A function to time; one that returns a promise is awaited. Bind a loop in JavaScript to its arguments instead of calling it in an arrow
 * function: engines inline it there and may leave it half optimized, which once took six times as long.
 */
export type Contestant = () => unknown;

/** Longest sample that is given to a contestant because another one needs as long for one call, in milliseconds. */
const mostSampleMs = 50;

/** Returns the milliseconds of one call of each contestant, in its fastest sample. Other tasks run between samples. */
export async function race<Name extends string>(
  contestants: Readonly<Record<Name, Contestant>>,
  options: RaceOptions = {},
): Promise<Record<Name, number>> {
  checkKeys(options, ['rounds', 'sampleMs', 'warmupMs', 'signal']);
  const { rounds = 15, sampleMs = 4, warmupMs = 800, signal } = options;
  const names = Object.keys(contestants) as Name[];
  const state = new Map<Name, { repeat: number; least: number }>();
  /** Milliseconds of one call, in the last sample before the race. */
  const last = new Map<Name, number>();
  for (const name of names) {
    const run = contestants[name];
    // Repeat more often as it gets faster, until samples are long enough at its final speed.
    let repeat = 1;
    let lastMs = 0;
    for (let calls = 0, spent = 0; ; ) {
      const ms = await sample(run, repeat);
      await pause(signal);
      calls += repeat;
      lastMs = ms;
      spent += ms;
      if (ms < sampleMs)
        repeat = Math.ceil(repeat * Math.min(10, Math.max(1.5, (1.2 * sampleMs) / Math.max(ms, 0.05))));
      else if (calls >= 3 && spent >= warmupMs) break;
    }
    state.set(name, { repeat, least: Number.POSITIVE_INFINITY });
    last.set(name, lastMs / repeat);
  }
  // Make all samples equally long: on a busy machine a short one is undisturbed more often, which would flatter the faster contestant.
  const length = Math.min(mostSampleMs, Math.max(...last.values()));
  for (const [name, one] of state) one.repeat = Math.max(one.repeat, Math.round(length / (last.get(name) as number)));
  for (let round = 0; round < rounds; round++) {
    for (const [name, one] of state) {
      one.least = Math.min(one.least, (await sample(contestants[name], one.repeat)) / one.repeat);
      await pause(signal);
    }
  }
  return Object.fromEntries([...state].map(([name, { least }]) => [name, least])) as Record<Name, number>;
}

/** Lets other tasks run: clicks on a page, above all. */
async function pause(signal: AbortSignal | undefined): Promise<void> {
  await new Promise((resolve) => setTimeout(resolve));
  signal?.throwIfAborted();
}

/** Times `repeat` calls, in milliseconds. */
async function sample(run: Contestant, repeat: number): Promise<number> {
  const start = performance.now();
  for (let i = 0; i < repeat; i++) {
    const result = run();
    if (result instanceof Promise) await result;
  }
  return performance.now() - start;
}
