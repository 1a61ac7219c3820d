// Progress over tensors: bytes done, and the end of each tensor.
import { expect, it } from 'vitest';
import { TensorProgress } from '../../../web/src/convert/engine.js';
import type { Progress } from '../../../web/src/convert/work-options.js';

/** Progress over tensors of these sizes, and its reports. */
function progressOf(bytes: readonly number[]) {
  const seen: Progress[] = [];
  const tensor = (index: number) =>
    ({ phase: 'quantize', tensor: `t${index}`, bytes: bytes[index] as number }) as const;
  return { seen, progress: new TensorProgress(bytes.length, tensor, (one) => seen.push(one)) };
}

it('reports the end of each tensor, in any order', () => {
  const { seen, progress } = progressOf([100, 0, 50]);
  expect(progress.add(2, 50)).toBe(true);
  expect(progress.add(1, 0)).toBe(true);
  expect([progress.add(0, 60), progress.add(0, 40)]).toEqual([false, true]);
  const common = { phase: 'quantize', count: 3, bytesTotal: 150 };
  expect(seen).toEqual([
    { ...common, tensor: 't2', index: 2, bytesDone: 50 },
    { ...common, tensor: 't1', index: 1, bytesDone: 50 },
    { ...common, tensor: 't0', index: 0, bytesDone: 150 },
  ]);
});

it('counts bytes that several tiles read once, and never exceeds the total', () => {
  const { seen, progress } = progressOf([100, 30]);
  expect([progress.add(0, 70), progress.add(0, 70), progress.add(0, 70)]).toEqual([false, true, false]);
  progress.skip(1);
  expect(progress.add(1, 0)).toBe(true);
  expect(seen.map(({ bytesDone }) => bytesDone)).toEqual([100, 130]);
});
