// Which of several forms each tensor gets within a budget, held to exhaustive search.
import { describe, expect, it } from 'vitest';
import { chooseWithin, frontier, type SizedChoice } from '../../../web/src/convert/budget.js';
import { Random } from '../support/support.js';

/** Numbers in [0, 1). */
function randomSource(seed: number): () => number {
  const random = new Random(seed);
  return () => random.bits() / 2 ** 32;
}

/** The least error within a budget, by trying everything; undefined if nothing fits. */
function least(lists: readonly (readonly SizedChoice[])[], budget: number): number | undefined {
  const [first, ...others] = lists;
  if (first === undefined) return budget < 0 ? undefined : 0;
  let best: number | undefined;
  for (const { bytes, error } of first) {
    const rest = least(others, budget - bytes);
    if (rest !== undefined && (best === undefined || error + rest < best)) best = error + rest;
  }
  return best;
}

const sum = (
  lists: readonly (readonly SizedChoice[])[],
  picks: readonly number[],
  of: (choice: SizedChoice) => number,
) => lists.reduce((total, list, i) => total + of(list[picks[i]!]!), 0);

/** Every budget at which something changes, and those beside it. */
function budgetsOf(lists: readonly (readonly SizedChoice[])[]): number[] {
  let sums = new Set([0]);
  for (const list of lists) sums = new Set([...sums].flatMap((total) => list.map(({ bytes }) => total + bytes)));
  return [...sums].flatMap((total) => [total - 1, total, total + 1]);
}

function check(lists: readonly (readonly SizedChoice[])[], budgets: readonly number[] = budgetsOf(lists)): void {
  for (const budget of budgets) {
    const expected = least(lists, budget);
    const chosen = chooseWithin(lists, budget);
    expect(chosen === undefined).toBe(expected === undefined);
    if (chosen === undefined || expected === undefined) continue;
    expect(chosen.bytes).toBe(sum(lists, chosen.picks, ({ bytes }) => bytes));
    expect(chosen.bytes).toBeLessThanOrEqual(budget);
    // Sums of at most eight terms in another order differ by at most eight units in the last place.
    expect(Math.abs(chosen.error - expected)).toBeLessThanOrEqual(8 * Number.EPSILON * expected);
    expect(chosen.bound).toBe(chosen.error);
  }
}

describe('least error', () => {
  const random = randomSource(17);
  const whole = (most: number) => Math.floor(random() * most);

  it('is that of exhaustive search for any lists', () => {
    for (let round = 0; round < 60; round++) {
      const lists = Array.from({ length: 1 + whole(5) }, () =>
        Array.from({ length: 1 + whole(4) }, () => ({ bytes: 1 + whole(30), error: random() })),
      );
      check(lists);
    }
  });

  it('is that of exhaustive search where sizes and errors are often equal', () => {
    for (let round = 0; round < 60; round++) {
      const lists = Array.from({ length: 1 + whole(5) }, () =>
        Array.from({ length: 1 + whole(5) }, () => ({ bytes: 32 * whole(4), error: whole(4) })),
      );
      check(lists);
    }
  });

  it('is that of exhaustive search for choices like those of models', () => {
    const bits = [2.625, 3.4375, 4.5, 5.5, 6.5625, 8.5, 16];
    const lists = Array.from({ length: 6 }, () => {
      const elements = 256 * (1 + whole(40));
      const energy = random();
      return bits.map((width) => ({ bytes: 32 * Math.ceil((elements * width) / 256), error: energy * 4 ** -width }));
    });
    const smallest = lists.reduce((total, [first]) => total + first!.bytes, 0);
    check(
      lists,
      Array.from({ length: 25 }, (_, i) => Math.floor(smallest * (1 + i / 10))),
    );
  });
});

it('takes the best of everything if that fits, and nothing if the smallest do not', () => {
  const lists = [
    [
      { bytes: 10, error: 3 },
      { bytes: 20, error: 0 },
      { bytes: 20, error: 0 },
    ],
    [
      { bytes: 7, error: 1 },
      { bytes: 5, error: 1 },
    ],
  ];
  expect(chooseWithin(lists, 1e15)).toEqual({ picks: [1, 1], bytes: 25, error: 1, bound: 1 });
  expect(chooseWithin(lists, 15)).toEqual({ picks: [0, 1], bytes: 15, error: 4, bound: 4 });
  expect(chooseWithin(lists, 14)).toBeUndefined();
  expect(chooseWithin([], 0)).toEqual({ picks: [], bytes: 0, error: 0, bound: 0 });
});

it('is close to a proven bound for thousands of tensors, whatever their order', () => {
  const random = randomSource(4);
  const lists = Array.from({ length: 3000 }, (_, i) => {
    const elements = 4096 * [1024, 4096, 11008][i % 3]!;
    const energy = 0.5 + random();
    return [2.625, 3.4375, 4.25, 4.5, 5.5, 6.5625, 8.5, 16].map((width) => ({
      bytes: (elements * width) / 8,
      error: energy * (0.8 + 0.4 * random()) * 4 ** -width,
    }));
  });
  const smallest = lists.reduce((total, [first]) => total + first!.bytes, 0);
  const budget = Math.floor(1.7 * smallest);
  const chosen = chooseWithin(lists, budget)!;
  expect(chosen.bytes).toBeLessThanOrEqual(budget);
  expect(chosen.error / chosen.bound - 1).toBeLessThan(1e-4);
  const turned = chooseWithin(lists.toReversed(), budget)!;
  expect(turned.error / chosen.bound - 1).toBeLessThan(1e-4);
});

it('gives sizes and least errors from the smallest to the best', () => {
  const lists = [
    [
      { bytes: 1, error: 8 },
      { bytes: 2, error: 7 },
      { bytes: 3, error: 2 },
    ],
    [
      { bytes: 4, error: 1 },
      { bytes: 8, error: 0 },
    ],
  ];
  expect(frontier(lists)).toEqual([
    { bytes: 5, error: 9 },
    { bytes: 7, error: 3 },
    { bytes: 11, error: 2 },
  ]);
  for (const { bytes, error } of frontier(lists)) expect(chooseWithin(lists, bytes)?.error).toBe(error);
});
