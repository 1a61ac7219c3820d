// Searches in workers: the same results as in the calling thread, for any number of workers and over changes.
import { load, type Scalepoint, type SearchManyOptions, type SearchResult, type VectorIndex } from 'scalepoint';
import { describe, expect, it } from 'vitest';
import { rejectionOf } from '../support/models.js';
import { expectRefusal, expectSame, Random, wasmFiles } from '../support/support.js';

const builds: { build: string; sp: Scalepoint }[] = [];
for (const [build, simd] of [
  ['SIMD', 'on'],
  ['scalar', 'off'],
] as const) {
  builds.push({ build, sp: await load({ simd, wasm: wasmFiles[simd === 'on' ? 'simd' : 'scalar'] }) });
}
const sp = builds[0]!.sp;

const inNode = typeof Worker === 'undefined';

/** A worker of this package that the test can end. */
async function madeWorker(made: { terminate(): unknown }[]): Promise<NonNullable<SearchManyOptions['worker']>> {
  const url = new URL('../../../web/src/workers/scalepoint-worker.js', import.meta.url);
  const { Worker: Thread } = inNode ? await import('node:worker_threads') : { Worker: undefined };
  return () => {
    const worker = Thread === undefined ? new Worker(url, { type: 'module' }) : new Thread(url);
    made.push(worker);
    return worker as never;
  };
}

function expectEqual(many: readonly SearchResult[], expected: readonly SearchResult[]): void {
  expect(many).toHaveLength(expected.length);
  for (const [i, { ids, indices, scores }] of many.entries()) {
    expect(ids).toEqual(expected[i]!.ids);
    expectSame(indices, expected[i]!.indices);
    expectSame(scores, expected[i]!.scores);
  }
}

/** Vectors of few values, so that many scores are equal. */
const coarse = (random: Random, length: number) => random.bell(length).map((x) => Math.sign(x));

let large: Float32Array | undefined;

/** An index whose vectors fill several stripes of each worker. */
function largeIndex(options: object = {}): { index: VectorIndex; x: Float32Array; dimension: number } {
  const dimension = 8;
  large ??= coarse(new Random(31), 200_000 * dimension);
  const x = large;
  return { index: sp.index(x, { shape: [200_000, dimension], bits: 8, ...options }), x, dimension };
}

for (const { build, sp } of builds) {
  describe(`a search in workers (${build})`, () => {
    it('gives the same results for any number of workers', async () => {
      const random = new Random(30);
      const dimension = 100;
      const x = random.bell(900 * dimension);
      const queries = random.bell(70 * dimension);
      for (const [bits, metric, rerank] of [
        [1, 'cosine', { source: 'int8', factor: 4 }],
        [2, 'dot', undefined],
        [4, 'euclidean', { source: 'float16', factor: 2 }],
        [8, 'dot', undefined],
        [1, 'hamming', undefined],
      ] as const) {
        using index = sp.index(x, { shape: [900, dimension], bits, metric, rerank });
        for (const k of [1, 10, 1000]) {
          const expected = await index.searchMany(queries, k);
          for (const workers of [1, 3]) expectEqual(await index.searchMany(queries, k, { workers }), expected);
        }
        const filter = (id: string | number) => (id as number) % 3 === 1;
        const expected = await index.searchMany(queries, 7, { filter });
        expectEqual(await index.searchMany(queries, 7, { filter, workers: 3 }), expected);
      }
    });
  });
}

describe('workers of an index', () => {
  it('share many stripes of blocks, and equal scores come in the order of their indices', async () => {
    const { index, x, dimension } = largeIndex({ workers: 3 });
    const queries = x.slice(0, 40 * dimension);
    const expected = await index.searchMany(queries, 50, { workers: 0 });
    expect(new Set(expected[0]!.scores).size).toBeLessThan(50);
    expectEqual(await index.searchMany(queries, 50), expected);
    const bits = new Uint8Array(25_000).map((_, i) => (i % 2 === 0 ? 0x5a : 0));
    expectEqual(
      await index.searchMany(queries, 50, { filter: bits }),
      await index.searchMany(queries, 50, { filter: bits, workers: 0 }),
    );
    index.dispose();
  });

  it('follow additions, updates and removals, from an empty index on', async () => {
    const random = new Random(32);
    const dimension = 24;
    const queries = random.bell(5 * dimension);
    using index = sp.index(new Float32Array(0), { shape: [0, dimension], bits: 4, ids: [] });
    expect(await index.searchMany(queries, 3, { workers: 2 })).toMatchObject(Array(5).fill({ ids: [] }));
    let next = 0;
    for (let round = 0; round < 12; round++) {
      const count = round === 3 ? 400 : 1 + (round % 5) * 11;
      index.add(
        random.bell(count * dimension),
        Array.from({ length: count }, () => `v${next++}`),
      );
      const some = Array.from({ length: 7 }, (_, i) => `v${(i * 31 + round) % next}`);
      index.remove(some.slice(0, 4));
      const left = some.slice(4).filter((id) => index.has(id));
      index.update(left, random.bell(left.length * dimension));
      expectEqual(
        await index.searchMany(queries, 20, { workers: 2 }),
        await index.searchMany(queries, 20, { workers: 0 }),
      );
    }
  });

  it('search while vectors are added and removed, and name no vector that was removed since', async () => {
    const random = new Random(33);
    const { index, x, dimension } = largeIndex({ ids: Array.from({ length: 200_000 }, (_, i) => `v${i}`) });
    const queries = x.slice(0, 64 * dimension);
    const [before] = await index.searchMany(queries, 40, { workers: 2 });
    const searching = index.searchMany(queries, 40, { workers: 2 });
    // The search has begun: its groups are under way.
    await Promise.resolve();
    const gone = new Set(before!.ids.slice(0, 20));
    expect(index.remove([...gone] as string[])).toBe(20);
    // They take the indices of the removed ones.
    index.add(
      coarse(random, 20 * dimension),
      Array.from({ length: 20 }, (_, i) => `new${i}`),
    );
    const results = await searching;
    expect(results).toHaveLength(64);
    for (const { ids } of results) expect(ids.filter((id) => gone.has(id))).toEqual([]);
    expectEqual(
      await index.searchMany(queries, 40, { workers: 2 }),
      await index.searchMany(queries, 40, { workers: 0 }),
    );
    index.dispose();
  });

  it('serve several searches at a time, and give way to another number', async () => {
    const random = new Random(34);
    const dimension = 16;
    using index = sp.index(random.bell(500 * dimension), { shape: [500, dimension], bits: 2 });
    const queries = random.bell(100 * dimension);
    const expected = await index.searchMany(queries, 5);
    const numbers = [2, 1, 2, 0, 3, 1];
    const all = await Promise.all(numbers.map((workers) => index.searchMany(queries, 5, { workers })));
    for (const many of all) expectEqual(many, expected);
  });

  it('leave the thread free, report progress and stop at a signal', async () => {
    const { index, x, dimension } = largeIndex();
    const queries = x.slice(0, 200 * dimension);
    const progress: number[] = [];
    const onProgress = ({ done, total }: { done: number; total: number }) => {
      expect(total).toBe(200);
      progress.push(done);
    };
    await index.searchMany(queries, 5, { workers: 2, onProgress });
    expect(progress).toEqual([32, 64, 96, 128, 160, 192, 200]);
    const controller = new AbortController();
    const stopped = index.searchMany(queries, 5, {
      workers: 2,
      signal: controller.signal,
      onProgress: () => controller.abort('stop'),
    });
    await expect(stopped).rejects.toBe('stop');
    await expect(index.searchMany(queries, 5, { workers: 2, signal: AbortSignal.abort('no') })).rejects.toBe('no');
    // The workers go on with other searches.
    expectEqual(await index.searchMany(queries, 5, { workers: 2 }), await index.searchMany(queries, 5, { workers: 0 }));
    index.dispose();
  });

  it('fail with a typed error if one is lost, and are replaced by the next search', async () => {
    const { index, x, dimension } = largeIndex();
    const queries = x.slice(0, 40 * dimension);
    const made: { terminate(): unknown }[] = [];
    const worker = await madeWorker(made);
    const expected = await index.searchMany(queries, 5, { workers: 2, worker });
    expect(made).toHaveLength(2);
    const lost = index.searchMany(queries, 5, { workers: 2, worker });
    await Promise.resolve();
    made[1]!.terminate();
    expect(await rejectionOf(lost)).toMatchObject({ name: 'ScalepointError', code: 'WORKER' });
    expectEqual(await index.searchMany(queries, 5, { workers: 2, worker }), expected);
    expect(made).toHaveLength(4);
    const failing = () => {
      throw new Error('no worker today');
    };
    expect(await rejectionOf(index.searchMany(queries, 5, { workers: 1, worker: failing }))).toBeInstanceOf(Error);
    expectEqual(await index.searchMany(queries, 5, { workers: 1 }), expected);
    index.dispose();
  });

  it('end with the index, whose searches are rejected', async () => {
    const { index, x, dimension } = largeIndex();
    const made: { terminate(): unknown }[] = [];
    const worker = await madeWorker(made);
    await index.searchMany(x.slice(0, dimension), 5, { workers: 1, worker });
    const searching = index.searchMany(x.slice(0, 64 * dimension), 5, { workers: 1, worker });
    const starting = index.searchMany(x.slice(0, dimension), 5, { workers: 2, worker });
    index.dispose();
    expect(await rejectionOf(searching)).toMatchObject({ code: 'DISPOSED' });
    expect(await rejectionOf(starting)).toMatchObject({ code: 'DISPOSED' });
    expect(made).toHaveLength(1);
  });

  it('refuses wrong numbers of workers by name', async () => {
    const x = new Random(38).bell(80);
    expectRefusal(() => sp.index(x, { shape: [10, 8], workers: -1 }), RangeError, 'workers');
    expectRefusal(() => sp.index(x, { shape: [10, 8], workers: '2' as never }), TypeError, 'workers');
    using index = sp.index(x, { shape: [10, 8], bits: 4 });
    const refused = (options: SearchManyOptions) => rejectionOf(index.searchMany(x.slice(0, 8), 2, options));
    expect(await refused({ workers: 65 })).toMatchObject({ option: 'workers' });
    expect(await refused({ workers: 0.5 })).toMatchObject({ option: 'workers' });
    expect(await refused({ worker: 1 as never })).toMatchObject({ option: 'worker' });
  });
});
