// Which inputs are kept between two tasks.
import { describe, expect, it } from 'vitest';
import { Keepers } from '../../../web/src/runner/cache-owners.js';
import type { Batch, RangeTask } from '../../../web/src/runner/task.js';

const asking = (total: number): Batch => {
  const task: RangeTask = {
    kind: 'range',
    rows: 1,
    columns: 4,
    pieces: [{ form: { codec: 'cast' }, inputs: [] }],
    keep: { number: 1, total },
  };
  return { tasks: [task], outputBytes: 0 };
};

describe('keepers', () => {
  // 16 MiB each. Of more than four times that, most would be read again anyway.
  it.each([1, 2, 8])('%d are asked to keep what a quarter of has room', (count) => {
    const keepers = new Keepers<string>(count);
    const most = count * 64 * 2 ** 20;
    expect(keepers.assign(asking(most)).batch).toEqual(asking(most));
    const [task] = keepers.assign(asking(most + 1)).batch.tasks as RangeTask[];
    expect(task?.keep).toBeUndefined();
    expect(task?.pieces).toEqual((asking(1).tasks[0] as RangeTask).pieces);
  });

  it('have back what they kept, and nobody else', () => {
    const keepers = new Keepers<string>(2);
    const kept = { number: 1, row: 0, isLast: true };
    const encode = { ...asking(1).tasks[0], kind: 'encode', to: { codec: 'cast' }, outputs: [], measures: false, kept };
    const batch = { tasks: [encode], outputBytes: 0 } as unknown as Batch;
    keepers.add({ answers: [{ task: 0, kept: 1 }] }, 'second');
    expect(keepers.assign(batch)).toEqual({ batch, keeper: 'second' });
    const again = keepers.assign(batch);
    expect([again.keeper, again.batch.tasks[0]]).toEqual([undefined, { ...encode, kept: undefined }]);
  });
});
