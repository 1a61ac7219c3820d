// The state of the page about speed.
import type { BenchRow } from 'scalepoint/bench';
import { expect, it } from 'vitest';
import { type State, withRow } from '../../../../web/demo/speed/state.js';

const none: State = { run: 'first', rows: [], length: 'quick' };
const row = (milliseconds: number, plain: number, limit: number, size = '1 Mi floats'): BenchRow => {
  return {
    part: 'arrays',
    operation: 'range and quantize',
    size,
    milliseconds,
    rate: 1,
    unit: 'G floats/s',
    plain,
    limit,
  };
};

it('takes the least times of all runs of a size for the headline', () => {
  // 0.5 and 20 ms, then 1 and 16 ms; memory alone takes 0.25 and 0.4 ms.
  const first = withRow(none, row(0.5, 40, 2));
  expect(withRow(first, row(1, 16, 2.5)).headline).toEqual(row(0.5, 32, 2));
  expect(withRow(first, row(0.25, 64, 2)).headline).toEqual(row(0.25, 64, 2));
  // Other sizes have other times.
  expect(withRow(first, row(9, 30, 2, '16 Mi floats')).headline).toEqual(row(9, 30, 2, '16 Mi floats'));
});

it('leaves the headline to its operation', () => {
  const first = withRow({ ...none, run: 'all' }, row(0.5, 40, 2));
  const other = { ...row(0.1, 9, 1), operation: 'range' };
  expect(withRow(first, other)).toEqual({ ...first, rows: [row(0.5, 40, 2), other] });
});
