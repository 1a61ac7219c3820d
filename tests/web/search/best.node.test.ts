// The heap that keeps the best scores.
import { describe, expect, it } from 'vitest';
import { Best } from '../../../web/src/search/best.js';
import { Random } from '../support/support.js';

describe('the best of many scores', () => {
  it('are those that sorting finds, of equal ones the first', () => {
    const random = new Random(5);
    for (const n of [0, 1, 2, 7, 100, 1000]) {
      for (const k of [1, 2, 3, 10, 1000]) {
        const scores = Array.from({ length: n }, () => random.below(50) - 25);
        const best = new Best(k);
        for (const [i, score] of scores.entries()) best.offer(score, i);
        const sorted = scores
          .map((score, index) => ({ score, index }))
          .sort((a, b) => b.score - a.score || a.index - b.index);
        expect(best.sorted()).toEqual(sorted.slice(0, k));
        expect(best.threshold).toBe(n < k ? -Infinity : sorted[k - 1]?.score);
      }
    }
  });

  it('leave NaN out once there are enough', () => {
    const best = new Best(2);
    for (const [i, score] of [1, 2, Number.NaN, 3].entries()) best.offer(score, i);
    expect(best.sorted()).toEqual([
      { score: 3, index: 3 },
      { score: 2, index: 1 },
    ]);
  });
});
