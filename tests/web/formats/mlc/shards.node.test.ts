// Shards of models for WebLLM, by the rule of TVM's TensorCacheShardingManager (python/tvm/contrib/tvmjs.py at 0906717).
import { expect, it } from 'vitest';
import type { PlannedTensor } from '../../../../web/src/formats/format.js';
import { modelFiles } from '../../../../web/src/formats/mlc/layout.js';

const most = 2 ** 25;

it.each([
  // Together less than a shard.
  [[most - 8, 4], [most - 4]],
  // As large as a shard: the next array begins one.
  [
    [most - 8, 8],
    [most - 8, 8],
  ],
  // An array of half a shard comes before those that wait, a smaller one after them.
  [
    [most / 2 + 8, most / 2],
    [most / 2, most / 2 + 8],
  ],
  [
    [most / 2 + 8, most / 2 - 4],
    [most / 2 + 8, most / 2 - 4],
  ],
  [
    [4, 3 * most, 8],
    [3 * most, 12],
  ],
])('hold arrays of %j bytes in %j', (arrays, shards) => {
  const planned = arrays.map((bytes) => ({ parts: [{ role: 'data', dtype: 'U32', shape: [bytes / 4], bytes }] }));
  const parameters = arrays.map((_, i) => ({
    module: `m${i}`,
    tensors: [i],
    stored: [{ name: 'q_weight', role: 'data' as const }],
  }));
  const files = modelFiles(parameters, planned as unknown as PlannedTensor[], 1, []);
  const found = files.filter(({ suffix }) => suffix.endsWith('.bin'));
  expect(found.map(({ size }) => size)).toEqual(shards);
  expect(found.map(({ suffix }) => suffix)).toEqual(shards.map((_, i) => `/params_shard_${i}.bin`));
});
