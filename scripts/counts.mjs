// Counts of tests, and the last line of a run.

/** @typedef {{ passed: number, failed: number, skipped: number }} Counts */

/** Counts of a run that did not finish. */
export const unfinished = { passed: 0, failed: 1, skipped: 0 };

/** @param {Iterable<Counts>} all @returns {Counts} */
export function sumOf(all) {
  const sum = { passed: 0, failed: 0, skipped: 0 };
  for (const { passed, failed, skipped } of all) {
    sum.passed += passed;
    sum.failed += failed;
    sum.skipped += skipped;
  }
  return sum;
}

/**
 * Prints `N passed, N failed` when the process ends, and sets its exit code. Libraries may end the process at any moment; Vitest does after an
 * error that no test caused. Then the line counts the files that ended, and one failure.
 */
export class Outcome {
  /** @type {Counts[]} */
  #ended = [];
  /** @type {Counts | undefined} */
  #whole;

  constructor() {
    process.on('exit', () => {
      const { passed, failed } = this.#whole ?? sumOf([...this.#ended, unfinished]);
      console.log(`\n${passed} passed, ${failed} failed`);
      process.exitCode = failed === 0 ? 0 : 1;
    });
  }

  /** Adds a file of tests that came to its end. @param {Counts} counts */
  add(counts) {
    this.#ended.push(counts);
  }

  /** Says that the run is over. @param {Counts} counts those of all files */
  finish(counts) {
    this.#whole = counts;
  }
}
