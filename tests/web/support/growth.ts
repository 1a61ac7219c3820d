// Work that must not grow with the square of its input.
import { expect } from 'vitest';

/** Milliseconds of processor time of this process; in a browser, of time. */
const now = () => {
  if (typeof process === 'undefined') return performance.now();
  const { user, system } = process.cpuUsage();
  return (user + system) / 1000;
};

/**
 * Expects that four times as much input takes less than eight times as long. Work in proportion takes four times as long, work in the square
 * sixteen times: the bound is as far from one as from the other. Other programs and the first, slow runs only add time, so that the shortest
 * of some runs counts, and more runs follow while the bound is not kept.
 * @param prepare makes an input of size n, and returns the work on it
 * @param n large enough that work in the square would outweigh all other
 */
export async function expectProportional(prepare: (n: number) => () => unknown, n: number): Promise<void> {
  const works = [prepare(n), prepare(4 * n)];
  const shortest = [Number.POSITIVE_INFINITY, Number.POSITIVE_INFINITY];
  let ratio = Number.POSITIVE_INFINITY;
  for (let round = 0; round < 4 && ratio >= 8; round++) {
    for (const [i, work] of works.entries()) {
      const begin = now();
      await work();
      shortest[i] = Math.min(shortest[i] as number, now() - begin);
    }
    ratio = (shortest[1] as number) / (shortest[0] as number);
  }
  expect(ratio, `${4 * n} took ${shortest[1]} ms, ${n} took ${shortest[0]} ms`).toBeLessThan(8);
}
