// Timing: contestants run in turns in one process, so that a slow moment of the machine hits all of them, and medians are compared.

/**
 * @param {Record<string, () => unknown>} contestants functions to time; one that returns a promise is awaited
 * @param {{ rounds?: number, sampleMs?: number }} [options] rounds: samples of each; sampleMs: least length of a sample, in milliseconds,
 *   which short functions reach by repetition (browsers' clocks tick every 0.1 ms)
 * @returns {Promise<Record<string, number>>} median milliseconds of one call
 */
export async function race(contestants, { rounds = 15, sampleMs = 4 } = {}) {
  /** @type {Record<string, { repeat: number, samples: number[] }>} */
  const state = {};
  for (const [name, run] of Object.entries(contestants)) {
    // Three calls warm up the engine's optimizing compiler; the last tells how often to repeat.
    let repeat = 1;
    for (let i = 0; i < 3; i++) await run();
    for (;;) {
      const ms = await sample(run, repeat);
      if (ms >= sampleMs) break;
      repeat = Math.ceil(repeat * Math.min(10, Math.max(1.5, (1.2 * sampleMs) / Math.max(ms, 0.05))));
    }
    state[name] = { repeat, samples: [] };
  }
  for (let round = 0; round < rounds; round++) {
    for (const [name, run] of Object.entries(contestants)) {
      const { repeat, samples } = state[name];
      samples.push((await sample(run, repeat)) / repeat);
    }
  }
  return Object.fromEntries(Object.entries(state).map(([name, { samples }]) => [name, median(samples)]));
}

/** Milliseconds for `repeat` calls. */
async function sample(run, repeat) {
  const start = performance.now();
  for (let i = 0; i < repeat; i++) {
    const result = run();
    if (result instanceof Promise) await result;
  }
  return performance.now() - start;
}

function median(values) {
  const sorted = values.toSorted((a, b) => a - b);
  return sorted[sorted.length >> 1];
}
