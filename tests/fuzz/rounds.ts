// Amount of work of the fuzz tests. `npm test` runs round 0, which is short. `npm run fuzz` runs further rounds: ten times as many files each, from
// other seeds. SCALEPOINT_FUZZ=N runs round N alone, such as one that failed.

import { xorshift } from '../web/support/xorshift.js';

const round = Number(process.env.SCALEPOINT_FUZZ ?? 0);
const factor = round === 0 ? 1 : 10;

/** The number of files in this round, from that of round 0. */
export const filesOf = (files: number): number => files * factor;

/** The seed of this round, from that of round 0. A large prime keeps the seeds of all rounds and tests apart. */
export const seedOf = (seed: number): number => (seed + round * 1_000_003) % 2 ** 31;

/** A seeded generator of whole numbers in [0, n). */
export function random(seed: number): (n: number) => number {
  const bits = xorshift(seed);
  return (n) => bits() % n;
}
