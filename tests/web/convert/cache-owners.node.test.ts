// Inputs that are cached between two tasks.
import { describe, expect, it } from 'vitest';
import { CacheOwners } from '../../../web/src/convert/start.js';
import type { Batch, RangeTask } from '../../../web/src/convert/task.js';

const asking = (total: number): Batch => {
  const task: RangeTask = {
    kind: 'range',
    rows: 1,
    columns: 4,
    inputs: [{ form: { codec: 'cast' }, parts: [] }],
    cache: { id: 1, total },
  };
  return { tasks: [task], outputBytes: 0 };
};

describe('owners of caches', () => {
  // 16 MiB each. Most of a larger tensor would be read again anyway.
  it.each([1, 2, 8])('%d cache tensors of up to four times their room', (count) => {
    const owners = new CacheOwners<string>(count);
    const most = count * 64 * 2 ** 20;
    expect(owners.assign(asking(most)).batch).toEqual(asking(most));
    const [task] = owners.assign(asking(most + 1)).batch.tasks as RangeTask[];
    expect(task?.cache).toBeUndefined();
    expect(task?.inputs).toEqual((asking(1).tasks[0] as RangeTask).inputs);
  });

  it('get the tasks with their cached inputs, once', () => {
    const owners = new CacheOwners<string>(2);
    const cached = { id: 1, row: 0, isLast: true };
    const encode = {
      ...asking(1).tasks[0],
      kind: 'encode',
      to: { codec: 'cast' },
      outputs: [],
      measures: false,
      cached,
    };
    const batch = { tasks: [encode], outputBytes: 0 } as unknown as Batch;
    owners.add({ answers: [{ task: 0, cached: 1 }] }, 'second');
    expect(owners.assign(batch)).toEqual({ batch, owner: 'second' });
    const again = owners.assign(batch);
    expect([again.owner, again.batch.tasks[0]]).toEqual([undefined, { ...encode, cached: undefined }]);
  });
});
