// Indexes: results against a sort of all vectors, ids, changes, filters and second scores. The codes are tested in
// tests/cpp/search_test.cpp.
import {
  type IndexOptions,
  load,
  openIndex,
  type Scalepoint,
  type SearchResult,
  type VectorIndex,
  type VectorMetric,
} from 'scalepoint';
import { describe, expect, it } from 'vitest';
import { expectCode, expectRefusal, expectSame, Random, thrownBy, wasmFiles } from '../support/support.js';

const builds: { build: string; sp: Scalepoint }[] = [];
for (const [build, simd] of [
  ['SIMD', 'on'],
  ['scalar', 'off'],
] as const) {
  builds.push({ build, sp: await load({ simd, wasm: wasmFiles[simd === 'on' ? 'simd' : 'scalar'] }) });
}
const [simd, scalar] = builds.map(({ sp }) => sp) as [Scalepoint, Scalepoint];

const metrics: readonly VectorMetric[] = ['dot', 'cosine', 'euclidean'];
const widths = [1, 2, 4, 8] as const;

/** Vectors around centers, with a common part, as embeddings have. */
function clustered(random: Random, count: number, dimension: number, clusters = 10): Float32Array {
  const centers = random.bell(clusters * dimension);
  const common = random.bell(dimension);
  const noise = random.bell(count * dimension);
  return Float32Array.from(noise, (x, i) => {
    const column = i % dimension;
    const cluster = Math.floor(i / dimension) % clusters;
    return common[column]! + centers[cluster * dimension + column]! + 0.7 * x;
  });
}

/** The exact score in double. */
function scoreOf(metric: VectorMetric, q: ArrayLike<number>, x: ArrayLike<number>): number {
  let [dot, qq, xx, distance] = [0, 0, 0, 0];
  for (let i = 0; i < q.length; i++) {
    dot += q[i]! * x[i]!;
    qq += q[i]! ** 2;
    xx += x[i]! ** 2;
    distance += (q[i]! - x[i]!) ** 2;
  }
  if (metric === 'dot') return dot;
  if (metric === 'cosine') return qq * xx > 0 ? dot / Math.sqrt(qq * xx) : 0;
  return Math.sqrt(distance);
}

const row = (x: Float32Array, dimension: number, i: number) => x.subarray(i * dimension, (i + 1) * dimension);

/** The indices of all vectors that `keep` lets through, best first. */
function ranked(metric: VectorMetric, x: Float32Array, q: Float32Array, keep = (_: number) => true): number[] {
  const sign = metric === 'euclidean' ? -1 : 1;
  return Array.from({ length: x.length / q.length }, (_, i) => i)
    .filter(keep)
    .map((i) => ({ i, score: sign * scoreOf(metric, q, row(x, q.length, i)) }))
    .sort((a, b) => b.score - a.score || a.i - b.i)
    .map(({ i }) => i);
}

const share = (found: Iterable<number>, best: readonly number[]) => {
  const set = new Set(best);
  return [...found].filter((i) => set.has(i)).length / best.length;
};

const made = (sp: Scalepoint, x: Float32Array, dimension: number, options: IndexOptions = {}): VectorIndex =>
  sp.index(x, { shape: [x.length / dimension, dimension], ...options });

function expectEqual(a: SearchResult, b: SearchResult): void {
  expect(a.ids).toEqual(b.ids);
  expect(a.indices).toEqual(b.indices);
  expect(a.scores).toEqual(b.scores);
}

for (const { build, sp } of builds) {
  describe(`whole index (${build})`, () => {
    it.each(metrics)('finds most of the best by %s, and scores near the exact ones', (metric) => {
      const random = new Random(5);
      const dimension = 100;
      const x = clustered(random, 700, dimension);
      const queries = Array.from({ length: 8 }, (_, i) =>
        Float32Array.from(row(x, dimension, i * 37), (v) => v + 0.3 * (random.bell(1)[0] as number)),
      );
      // Lower bounds, far below what is found, so that a mix-up of bits, signs or vectors fails.
      for (const [bits, least] of [
        [1, 0.3],
        [2, 0.5],
        [4, 0.8],
        [8, 0.95],
      ] as const) {
        using index = made(sp, x, dimension, { metric, bits });
        let mean = 0;
        for (const q of queries) {
          const { indices, scores } = index.search(q, 10);
          mean += share(indices, ranked(metric, x, q).slice(0, 10)) / queries.length;
          for (let i = 1; i < 10; i++) {
            if (metric === 'euclidean') expect(scores[i]).toBeGreaterThanOrEqual(scores[i - 1]!);
            else expect(scores[i]).toBeLessThanOrEqual(scores[i - 1]!);
          }
        }
        expect(mean, `${bits} bits`).toBeGreaterThan(least);
        expect(index.recall(x, queries, { k: 10 })).toBeCloseTo(mean, 6);
      }
    });

    it('measures recall over more vectors than are in memory at once', () => {
      const dimension = 1024;
      const x = clustered(new Random(15), 300, dimension);
      using index = made(sp, x, dimension, { metric: 'cosine', bits: 8 });
      const query = row(x, dimension, 290);
      const found = share(index.search(query, 10).indices, ranked('cosine', x, query).slice(0, 10));
      expect(found).toBeGreaterThan(0.8);
      expect(index.recall(x, query, { k: 10 })).toBeCloseTo(found, 6);
    });

    it('scores the best again by int8 or float16, with exact results', () => {
      const random = new Random(6);
      const dimension = 64;
      const x = clustered(random, 500, dimension);
      const q = random.bell(dimension);
      for (const metric of metrics) {
        const best = ranked(metric, x, q).slice(0, 10);
        using index = made(sp, x, dimension, { metric, bits: 2, rerank: { source: 'float16', factor: 50 } });
        const { indices, scores } = index.search(q, 10);
        expect([...indices]).toEqual(best);
        for (const [i, at] of best.entries()) {
          // float16 is off by 2^-11 of each element at most, which moves a score of these vectors by less than .05.
          expect(Math.abs(scores[i]! - scoreOf(metric, q, row(x, dimension, at)))).toBeLessThan(0.05);
        }
        using coarse = made(sp, x, dimension, { metric, bits: 1, rerank: { source: 'int8', factor: 50 } });
        expect(share(coarse.search(q, 10).indices, best)).toBeGreaterThanOrEqual(0.9);
        expect(share(coarse.search(q, 10, { rerank: false }).indices, best)).toBeLessThan(1);
        expect(share(coarse.search(q, 10, { rerank: 50 }).indices, best)).toBeGreaterThanOrEqual(0.9);
      }
    });

    it('keeps ids and indices over changes, as brute force over the vectors that are left', () => {
      const random = new Random(7);
      const dimension = 24;
      for (const bits of widths) {
        using index = made(sp, random.bell(0), dimension, {
          shape: [0, dimension],
          ids: [],
          bits,
          metric: 'cosine',
          rerank: { source: 'float16', factor: 1000 },
        });
        expect(index.count).toBe(0);
        expect(index.search(random.bell(dimension)).ids).toEqual([]);
        const model = new Map<string, Float32Array>();
        let next = 0;
        for (let round = 0; round < 12; round++) {
          const count = 1 + random.below(60);
          const x = random.bell(count * dimension);
          const ids = Array.from({ length: count }, () => `v${next++}`);
          index.add(x, ids);
          for (const [i, id] of ids.entries()) model.set(id, row(x, dimension, i));
          const gone = [...model.keys()].filter(() => random.below(3) === 0);
          expect(index.remove([...gone, 'unknown'])).toBe(gone.length);
          for (const id of gone) model.delete(id);
          const changed = [...model.keys()].filter(() => random.below(6) === 0);
          const y = random.bell(changed.length * dimension);
          if (changed.length > 0) index.update(changed, y);
          for (const [i, id] of changed.entries()) model.set(id, row(y, dimension, i));
          expect(index.count).toBe(model.size);
          const q = random.bell(dimension);
          const best = [...model]
            .map(([id, v]) => ({ id, score: scoreOf('cosine', q, v) }))
            .sort((a, b) => b.score - a.score)
            .slice(0, 7)
            .map(({ id }) => id);
          expect(index.search(q, 7).ids).toEqual(best);
          for (const id of best) expect(index.has(id)).toBe(true);
          for (const id of gone) expect(index.has(id)).toBe(false);
        }
      }
    });

    it('does not use the indices of removed vectors again without ids', () => {
      const random = new Random(8);
      using index = made(sp, random.bell(40), 8, { bits: 1 });
      expect(index.remove([1, 3, 77, 3])).toBe(2);
      index.add(random.bell(16));
      expect(index.count).toBe(5);
      expect([...index.search(random.bell(8), 99).ids].sort()).toEqual([0, 2, 4, 5, 6]);
      expect(index.remove([5])).toBe(1);
      expect(index.has(5)).toBe(false);
      expect(index.has(6)).toBe(true);
    });

    it('searches only what a filter lets through', () => {
      const random = new Random(9);
      const dimension = 32;
      const x = random.bell(300 * dimension);
      const ids = Array.from({ length: 300 }, (_, i) => 1000 + i);
      for (const bits of widths) {
        using index = made(sp, x, dimension, { bits, ids, rerank: { source: 'float16', factor: 300 } });
        index.remove([1000, 1009]);
        const q = random.bell(dimension);
        const keep = (i: number) => i % 3 === 0 && i !== 0 && i !== 9;
        const best = ranked('dot', x, q, keep).slice(0, 12);
        const byId = index.search(q, 12, { filter: (id) => ((id as number) - 1000) % 3 === 0 });
        expect([...byId.indices]).toEqual(best);
        expect(byId.ids).toEqual(best.map((i) => 1000 + i));
        const bitSet = new Uint8Array(38);
        for (let i = 0; i < 300; i += 3) bitSet[i >> 3]! |= 1 << (i & 7);
        expectEqual(index.search(q, 12, { filter: bitSet }), byId);
        expect(index.search(q, 12, { filter: () => false }).ids).toEqual([]);
        expectRefusal(() => index.search(q, 12, { filter: new Uint8Array(37) }), RangeError, 'filter');
        // A filter that changes the index.
        const shrinking = index.search(q, 300, { filter: (id) => index.remove([id]) === 1 });
        expect(shrinking.ids).toEqual([]);
        expect(index.count).toBe(0);
      }
    });

    it('searches for many queries as for each alone', async () => {
      const random = new Random(10);
      const dimension = 48;
      const x = clustered(random, 400, dimension);
      const queries = random.bell(70 * dimension);
      for (const metric of metrics) {
        for (const bits of widths) {
          using index = made(sp, x, dimension, { bits, metric });
          const progress: number[] = [];
          const many = await index.searchMany(queries, 5, { onProgress: ({ done }) => progress.push(done) });
          expect(many).toHaveLength(70);
          for (const [i, one] of many.entries()) expectEqual(one, index.search(row(queries, dimension, i), 5));
          expect(progress.at(-1)).toBe(70);
          expect(progress.length).toBeGreaterThan(1);
        }
      }
    });

    it('gets vectors of a second score from the caller, or from a Blob', async () => {
      const random = new Random(11);
      const dimension = 40;
      const x = clustered(random, 300, dimension);
      const q = random.bell(dimension);
      const best = ranked('cosine', x, q).slice(0, 5);
      const asked: number[] = [];
      const source = async (ids: readonly (string | number)[]) => {
        asked.push(...(ids as number[]));
        return ids.map((id) => row(x, dimension, id as number));
      };
      using fetched = made(sp, x, dimension, { bits: 1, metric: 'cosine', rerank: { source, factor: 30 } });
      const [result] = await fetched.searchMany([q], 5);
      expect([...result!.indices]).toEqual(best);
      expect(asked).toHaveLength(150);
      expect(new Set(asked).size).toBe(150);
      expectRefusal(() => fetched.search(q, 5), TypeError, 'rerank');
      expect(fetched.search(q, 5, { rerank: false }).ids).toHaveLength(5);
      using read = made(sp, x, dimension, {
        bits: 1,
        metric: 'cosine',
        rerank: { source: new Blob([x as never]), factor: 30 },
      });
      expectEqual((await read.searchMany([q], 5))[0]!, result!);
      using short = made(sp, x, dimension, { bits: 1, rerank: { source: new Blob([x.subarray(0, 400) as never]) } });
      await expect(short.searchMany([q], 5)).rejects.toMatchObject({ code: 'BAD_FILE' });
      using wrong = made(sp, x, dimension, { bits: 1, rerank: { source: () => [x.slice(0, 3)] } });
      await expect(wrong.searchMany([q], 1)).rejects.toMatchObject({ option: 'rerank.source' });
    });

    it('leaves out vectors that are removed while others are fetched', async () => {
      const random = new Random(12);
      const dimension = 16;
      const x = random.bell(50 * dimension);
      const ids = Array.from({ length: 50 }, (_, i) => `id${i}`);
      const q = random.bell(dimension);
      const index = made(sp, x, dimension, {
        bits: 4,
        ids,
        rerank: {
          factor: 50,
          async source(some) {
            // The next vectors get the indices of the removed ones.
            index.remove(['id1', 'id2', 'id3']);
            index.add(random.bell(3 * dimension), ['new1', 'new2', 'new3']);
            return some.map((id) => row(x, dimension, Number(String(id).slice(2))));
          },
        },
      });
      const [{ ids: found }] = (await index.searchMany([q], 50)) as [SearchResult];
      expect(found).toHaveLength(47);
      expect(found).not.toContain('id1');
      expect(found.some((id) => String(id).startsWith('new'))).toBe(false);
      index.dispose();
    });

    it('orders short vectors as long ones, as the index of every instance does', async () => {
      const [random, dimension, small] = [new Random(17), 32, 2 ** -70];
      const x = random.bell(500 * dimension);
      const queries = random.bell(3 * dimension);
      // Products are about 2^-140, where float32 has 9 bits left. Powers of two change no codes.
      const shortOf = (values: Float32Array) => values.map((value) => value * small);
      const plainInstance = await load({ wasm: wasmFiles[build === 'SIMD' ? 'simd' : 'scalar'] });
      using plain = plainInstance.index(shortOf(x), { shape: [500, dimension] });
      for (const rerank of [undefined, { source: 'int8', factor: 4 } as const]) {
        using index = made(sp, x, dimension, { rerank });
        using short = made(sp, shortOf(x), dimension, { rerank });
        const want = await index.searchMany(queries, 50);
        const found = await short.searchMany(shortOf(queries), 50);
        expect(found.map(({ ids }) => ids)).toEqual(want.map(({ ids }) => ids));
        expect(found.map(({ scores }) => scores)).toEqual(
          want.map(({ scores }) => scores.map((score) => score * small * small)),
        );
        for (const [q, { ids }] of rerank === undefined ? found.entries() : [])
          expect(plain.search(shortOf(row(queries, dimension, q)), 50).ids).toEqual(ids);
      }
    });

    it('searches by the first elements, and scores again by all', () => {
      const random = new Random(13);
      const dimension = 64;
      // Later elements are small, as Matryoshka training makes them.
      const x = random.bell(400 * dimension).map((v, i) => (v / (1 + (i % dimension))) * 8);
      const q = random.bell(dimension).map((v, i) => (v / (1 + i)) * 8);
      const short = (v: Float32Array) => v.filter((_, i) => i % dimension < 16);
      for (const bits of widths) {
        using index = made(sp, x, dimension, { bits, dims: 16, metric: 'cosine' });
        using plain = made(sp, short(x), 16, { bits, metric: 'cosine' });
        expect(index.dimension).toBe(64);
        expectEqual(index.search(q, 10), plain.search(short(q), 10));
        using again = made(sp, x, dimension, {
          bits,
          dims: 16,
          metric: 'cosine',
          rerank: { source: 'float16', factor: 40 },
        });
        expect([...again.search(q, 5).indices]).toEqual(ranked('cosine', x, q).slice(0, 5));
      }
    });

    it('takes ready codes as they are, and gives them back', () => {
      const random = new Random(14);
      for (const dimension of [32, 33]) {
        const x = random.bell(300 * dimension);
        const q = sp.quantize(x, { shape: [300, dimension], granularity: { kind: 'per-channel', axis: 0 } });
        for (const metric of metrics) {
          using index = sp.index(q, { metric });
          using floats = made(sp, x, dimension, { metric });
          for (const { data, scale, ...rest } of [index.tensor(), floats.tensor()]) {
            expectSame(data, q.data);
            expectSame(scale, q.scale);
            expect({ ...q, ...rest }).toEqual(q);
          }
          expectEqual(index.search(row(x, dimension, 5), 9), floats.search(row(x, dimension, 5), 9));
          index.remove([0, 7]);
          const { data, scale, shape } = index.tensor();
          expect(shape).toEqual([298, dimension]);
          expect(data.subarray(0, dimension)).toEqual(q.data.subarray(dimension, 2 * dimension));
          expect(scale[6]).toBe(q.scale[8]);
        }
      }
    });

    it('has defined results for odd sizes', () => {
      const random = new Random(15);
      for (const dimension of [1, 2, 3, 5, 17, 129]) {
        for (const bits of widths) {
          for (const metric of metrics) {
            using index = made(sp, random.bell(3 * dimension), dimension, { bits, metric });
            const { ids, scores } = index.search(random.bell(dimension), 10);
            expect(ids).toHaveLength(3);
            expect(scores.every(Number.isFinite)).toBe(true);
            using zeros = made(sp, new Float32Array(2 * dimension), dimension, { bits, metric });
            expect([...zeros.search(new Float32Array(dimension), 2).indices]).toEqual([0, 1]);
            expect([...zeros.search(new Float32Array(dimension), 2).scores]).toEqual([0, 0]);
          }
        }
      }
    });

    it('refuses what is wrong, and stays as it was', async () => {
      const random = new Random(16);
      const x = random.bell(80);
      const q = random.bell(8);
      const refuse = (options: object, name: string, type: typeof TypeError | typeof RangeError = RangeError) =>
        expectRefusal(() => made(sp, x, 8, options as IndexOptions), type, name);
      refuse({ bits: 3 }, 'bits');
      refuse({ metric: 'manhattan' }, 'metric');
      refuse({ dims: 9 }, 'dims');
      refuse({ dims: 0 }, 'dims');
      refuse({ seed: 2 ** 32 }, 'seed');
      refuse({ ids: [1, 2] }, 'ids');
      refuse({ ids: Array(10).fill('a') }, 'ids[1]');
      refuse({ ids: [...Array(9).keys(), {}] }, 'ids[9]', TypeError);
      refuse({ ids: [...Array(9).keys(), 0.5] }, 'ids[9]');
      refuse({ rerank: { source: 'int4' } }, 'rerank.source', TypeError);
      refuse({ rerank: { source: 'int8', factor: 0.5 } }, 'rerank.factor');
      refuse({ rerank: { source: 'int8', times: 2 } }, 'rerank.times', TypeError);
      refuse({ rerank: 8 }, 'rerank', TypeError);
      using index = made(sp, x, 8, { bits: 2, ids: [...Array(10).keys()] });
      const before = index.search(q, 10);
      expectRefusal(() => index.search(q, 0), RangeError, 'k');
      expectRefusal(() => index.search(random.bell(7), 3), RangeError, 'query');
      expectRefusal(() => index.search(q, 3, { rerank: 4 }), TypeError, 'rerank');
      expectRefusal(() => index.add(random.bell(8)), RangeError, 'ids');
      expectRefusal(() => index.add(random.bell(8), [3]), RangeError, 'ids[0]');
      expectRefusal(() => index.add(random.bell(9), [33]), RangeError, 'shape');
      expectRefusal(() => index.update([99], random.bell(8)), RangeError, 'ids[0]');
      expectRefusal(() => index.update([1], random.bell(16)), RangeError, 'vectors');
      expectCode(() => index.search(Float32Array.of(1, 2, 3, 4, Number.NaN, 6, 7, 8)), 'NON_FINITE');
      const bad = random.bell(16);
      bad[13] = Number.POSITIVE_INFINITY;
      expect(expectCode(() => index.add(bad, [20, 21]), 'NON_FINITE').message).toContain('element 5 of vector 1');
      expectCode(() => index.update([1, 2], bad), 'NON_FINITE');
      expect(thrownBy(() => index.tensor())).toBeInstanceOf(RangeError);
      expect(index.count).toBe(10);
      expectEqual(index.search(q, 10), before);
      const stopped = AbortSignal.abort('enough');
      await expect(index.searchMany([q], 3, { signal: stopped })).rejects.toBe('enough');
      expect(await index.searchMany([], 3)).toEqual([]);
      index.dispose();
      index.dispose();
      expectCode(() => index.search(q), 'DISPOSED');
      await expect(index.searchMany([q])).rejects.toMatchObject({ code: 'DISPOSED' });
      await expect(index.save()).rejects.toMatchObject({ code: 'DISPOSED' });
    });

    it('stops between groups of queries', async () => {
      const random = new Random(17);
      using index = made(sp, random.bell(64), 8, { bits: 1 });
      const controller = new AbortController();
      const many = index.searchMany(random.bell(8 * 100), 3, {
        signal: controller.signal,
        onProgress: () => controller.abort('stop'),
      });
      await expect(many).rejects.toBe('stop');
    });
  });
}

describe('both builds', () => {
  it('make the same bytes and results', async () => {
    const random = new Random(20);
    for (const dimension of [7, 64, 100, 384]) {
      const x = clustered(random, 150, dimension);
      const q = random.bell(dimension);
      for (const bits of widths) {
        for (const metric of metrics) {
          const options: IndexOptions = {
            bits,
            metric,
            seed: 3,
            rerank: { source: bits === 1 ? 'int8' : 'float16', factor: 2 },
          };
          using a = made(simd, x, dimension, options);
          using b = made(scalar, x, dimension, options);
          for (const rerank of [2, false] as const)
            expectEqual(a.search(q, 20, { rerank }), b.search(q, 20, { rerank }));
          expectSame(await a.save(), await b.save());
        }
      }
    }
  });
});

const ones = (byte: number): number => (byte === 0 ? 0 : (byte & 1) + ones(byte >> 1));

for (const { build, sp } of builds) {
  describe(`ready codes of others (${build})`, () => {
    const count = 300;
    const width = 6;
    const dimension = width * 8;
    // Few different bytes, so that many distances are equal.
    const random = new Random(41);
    const ubinary = Uint8Array.from({ length: count * width }, (_, i) => (i % 7 === 0 ? random.below(256) : 0xa3));
    const binary = Int8Array.from(ubinary, (byte) => byte - 128);
    const vector = (i: number) => ubinary.subarray(i * width, (i + 1) * width);
    const shape = [count, width];

    /** Indices and distances, nearest first. */
    const nearest = (q: Uint8Array, k: number, keep = (_: number) => true) =>
      Array.from({ length: count }, (_, i) => i)
        .filter(keep)
        .map((i) => ({ i, distance: q.reduce((sum, byte, at) => sum + ones(byte ^ vector(i)[at]!), 0) }))
        .sort((a, b) => a.distance - b.distance || a.i - b.i)
        .slice(0, k);

    const expectNearest = ({ indices, scores }: SearchResult, best: ReturnType<typeof nearest>) => {
      expect([...indices]).toEqual(best.map(({ i }) => i));
      expect([...scores]).toEqual(best.map(({ distance }) => distance));
    };

    it('are found by their Hamming distance, in any form', async () => {
      const list = Array.from({ length: count }, (_, i) => vector(i));
      const tensor = { type: 'uint8', dims: shape, data: ubinary };
      // The first element is the highest bit.
      const floats = Float32Array.from({ length: count * dimension }, (_, i) =>
        (ubinary[i >> 3]! >> (7 - (i % 8))) & 1 ? 0.25 : -3,
      );
      for (const [vectors, form] of [
        [ubinary, shape],
        [binary, shape],
        [list, undefined],
        [tensor, undefined],
        [
          [
            { type: 'int8', dims: [1, width], data: binary.subarray(0, width) },
            ...list.slice(1).map((v) => Int8Array.from(v, (b) => b - 128)),
          ],
          undefined,
        ],
        [floats, [count, dimension]],
      ] as const) {
        using index = sp.index(vectors as Uint8Array, { metric: 'hamming', shape: form });
        expect([index.bits, index.dimension, index.count]).toEqual([1, dimension, count]);
        for (const at of [0, 1, 37, 299]) {
          const best = nearest(vector(at), 20);
          expect(best[0]!.distance).toBe(0);
          expectNearest(index.search(vector(at), 20), best);
          expectNearest(index.search(binary.subarray(at * width, (at + 1) * width), 20), best);
          expectNearest(index.search(floats.subarray(at * dimension, (at + 1) * dimension), 20), best);
          expectNearest(index.search({ dims: [1, width], data: vector(at) }, 20), best);
        }
        const many = await index.searchMany(ubinary, 20);
        for (const [at, found] of many.entries()) expectNearest(found, nearest(vector(at), 20));
        expect(await index.searchMany(list, 20)).toEqual(many);
        expect(index.recall(ubinary, list.slice(0, 3))).toBe(1);
      }
    });

    it('are in files as those of floats are', async () => {
      const ids = Array.from({ length: count }, (_, i) => i);
      const floats = Float32Array.from({ length: count * dimension }, (_, i) =>
        (ubinary[i >> 3]! >> (7 - (i % 8))) & 1 ? 1 : -1,
      );
      const fileOf = async (all: Uint8Array | Int8Array | Float32Array, dims: number) => {
        const size = all.length / count;
        using index = sp.index(all.subarray(0, 100 * size), {
          metric: 'hamming',
          shape: [100, size],
          dims,
          ids: ids.slice(0, 100),
        });
        index.add(all.subarray(100 * size, 250 * size), ids.slice(100, 250));
        index.update([7], all.subarray(250 * size, 251 * size));
        index.remove([3, 99, 101]);
        // Those that follow get the places of removed ones.
        index.add(all.subarray(251 * size), ids.slice(251));
        return await index.save();
      };
      for (const dims of [dimension, 13]) {
        const expected = await fileOf(floats, dims);
        expect(await fileOf(ubinary, dims)).toEqual(expected);
        expect(await fileOf(binary, dims)).toEqual(expected);
      }
    });

    it('can be added, replaced, removed and filtered', () => {
      const ids = Array.from({ length: count }, (_, i) => `v${i}`);
      using index = sp.index(new Uint8Array(0), { shape: [0, width], metric: 'hamming', ids: [] });
      index.add(ubinary.subarray(0, 100 * width), ids.slice(0, 100));
      index.add(binary.subarray(100 * width), ids.slice(100));
      const q = vector(5);
      expectNearest(index.search(q, 9), nearest(q, 9));
      index.update(
        ['v7'],
        vector(5).map((byte) => byte ^ 255),
      );
      expect([...index.search(q, count).scores].at(-1)).toBe(dimension);
      index.update(['v7'], vector(7));
      index.remove(['v5', 'v6']);
      const filter = (id: string | number) => id !== 'v8';
      expectNearest(
        index.search(q, 9, { filter }),
        nearest(q, 9, (i) => ![5, 6, 8].includes(i)),
      );
    });

    it('are searched by their first elements on request', () => {
      using index = sp.index(ubinary, { shape, metric: 'hamming', dims: 12 });
      const q = vector(3);
      const distance = (i: number) => ones(q[0]! ^ vector(i)[0]!) + ones((q[1]! ^ vector(i)[1]!) >> 4);
      const { indices, scores } = index.search(q, 50);
      expect([...scores]).toEqual([...indices].map(distance));
      expect([...scores].sort((a, b) => a - b)).toEqual([...scores]);
    });

    it('are refused by name where they do not fit', () => {
      const refuse = (vectors: unknown, options: object, option: string, type: typeof RangeError | typeof TypeError) =>
        expectRefusal(() => sp.index(vectors as Uint8Array, { metric: 'hamming', ...options }), type, option);
      refuse(ubinary, { shape, bits: 8 }, 'bits', RangeError);
      refuse(ubinary, { shape, rerank: { source: 'int8' } }, 'rerank', TypeError);
      refuse(ubinary, { shape, ranges: new Float32Array(2 * width) }, 'ranges', TypeError);
      refuse(ubinary, { shape, from: 'float16' }, 'vectors', TypeError);
      refuse(ubinary, {}, 'shape', TypeError);
      refuse(ubinary, { shape: [count, dimension] }, 'shape', RangeError);
      refuse(ubinary, { shape: [count * width] }, 'shape', RangeError);
      refuse(new Uint8Array(65537), { shape: [1, 65537] }, 'shape', RangeError);
      refuse(new Uint16Array(12), { shape: [2, 6] }, 'vectors', TypeError);
      refuse([vector(0), vector(1).subarray(1)], {}, 'vectors[1]', RangeError);
      refuse([vector(0), binary.subarray(0, width)], {}, 'vectors[1]', TypeError);
      refuse({ dims: [3, 3], data: vector(0) }, {}, 'vectors.shape', RangeError);
      expectRefusal(() => sp.index(ubinary as never, { shape }), TypeError, 'vectors');
      expect(() => sp.index(binary, { shape })).toThrow(
        "write { metric: 'hamming' } for bits, { ranges } for codes, or",
      );
      using index = sp.index(ubinary, { shape, metric: 'hamming' });
      expectRefusal(() => index.add(vector(0).subarray(1)), RangeError, 'vectors');
      expectRefusal(() => index.search(vector(0).subarray(1)), RangeError, 'query');
      expectRefusal(() => index.search(ubinary), RangeError, 'query');
      expectRefusal(() => index.search(new Uint16Array(dimension)), TypeError, 'query');
      expectRefusal(() => index.search(new Float32Array(width)), RangeError, 'query');
      expectCode(() => index.add(new Float32Array(dimension).fill(NaN)), 'NON_FINITE');
      expect(index.count).toBe(count);
    });

    it('with ranges stand for the middle of the values that become them', () => {
      const [n, d] = [200, 12];
      const x = clustered(random, n, d);
      const column = (j: number) => Array.from({ length: n }, (_, i) => x[i * d + j]!);
      const starts = Float32Array.from({ length: d }, (_, j) => Math.min(...column(j)));
      const ends = Float32Array.from({ length: d }, (_, j) => Math.max(...column(j)));
      const ranges = Float32Array.of(...starts, ...ends);
      // What quantize_embeddings does, with a cast of numpy that cuts off.
      const place = (v: number, i: number) => (v - starts[i % d]!) / ((ends[i % d]! - starts[i % d]!) / 255);
      const codes = Int8Array.from(x, (v, i) => Math.trunc(place(v, i) - 128));
      const unsigned = Uint8Array.from(x, (v, i) => Math.trunc(place(v, i)));
      const middle = (data: Int8Array | Uint8Array) =>
        Float32Array.from(data, (code, i) => {
          const half = data instanceof Uint8Array || code > 0 ? 0.5 : code < 0 ? -0.5 : 0;
          const step = (ends[i % d]! - starts[i % d]!) / 255;
          return starts[i % d]! + (code + (data instanceof Uint8Array ? 0 : 128) + half) * step;
        });
      const q = row(x, d, 17);
      for (const data of [codes, unsigned]) {
        for (const options of [{}, { bits: 4, metric: 'cosine' }, { metric: 'euclidean', dims: 8 }] as const) {
          using index = sp.index(data, { shape: [n, d], ranges, ...options });
          using expected = sp.index(middle(data), { shape: [n, d], ...options });
          expectEqual(index.search(q, 30), expected.search(q, 30));
          index.add(data.subarray(0, d), { ranges: [starts, ends] });
          expected.add(middle(data).subarray(0, d));
          index.update([2], data.subarray(d, 2 * d), { ranges: { dims: [2, d], data: ranges } });
          expected.update([2], middle(data).subarray(d, 2 * d));
          expectEqual(index.search(q, 30), expected.search(q, 30));
        }
      }
      const shape = [n, d];
      expectRefusal(() => sp.index(codes, { shape, ranges: ranges.subarray(1) }), RangeError, 'ranges');
      expectRefusal(
        () => sp.index(codes, { shape, ranges: [...ranges.slice(0, -1), NaN] }),
        RangeError,
        `ranges[${2 * d - 1}]`,
      );
      expectRefusal(() => sp.index(codes, { shape, ranges: [...ends, ...starts] }), RangeError, `ranges[${d}]`);
      const long = { shape: [1, 2 ** 18], ranges: new Float32Array(2 ** 19) };
      expectRefusal(() => sp.index(new Int8Array(2 ** 18), long), RangeError, 'shape');
      expectRefusal(() => sp.index(x as never, { shape, ranges }), TypeError, 'vectors');
      expectRefusal(() => sp.index(codes as never, { shape }), TypeError, 'vectors');
      expectRefusal(() => sp.index(codes, { shape, ranges, from: 'float16' }), TypeError, 'from');
    });
  });
}

describe('queries of floats', () => {
  const random = new Random(21);
  const x = random.bell(300 * 24);
  const query = random.bell(24);

  it('score the codes as they are, with whatever else an index can', async () => {
    const sp = await load();
    using index = sp.index(x, {
      shape: [300, 24],
      queries: 'float32',
      ids: Array.from({ length: 300 }, (_, i) => `${i}`),
    });
    const { data, scale } = index.tensor();
    const exact = Array.from({ length: 300 }, (_, row) => {
      let sum = 0;
      for (let i = 0; i < 24; i++) sum += query[i]! * data[row * 24 + i]!;
      return { id: `${row}`, score: Math.fround(sum * scale[row]!) };
    }).sort((a, b) => b.score - a.score);
    const found = index.search(query, 5);
    expect(found.ids).toEqual(exact.slice(0, 5).map(({ id }) => id));
    expect([...found.scores]).toEqual(exact.slice(0, 5).map(({ score }) => score));
    expect(await index.searchMany([query], 5)).toEqual([found]);
    index.remove([exact[0]!.id]);
    expect(index.search(query, 4).ids).toEqual(found.ids.slice(1));
    // Codes alone find the vectors without a second score.
    expect(index.search(query, 4, { rerank: false }).scores).not.toEqual(index.search(query, 4).scores);
  });

  it('stay what they are in a file', async () => {
    const sp = await load();
    using index = sp.index(x, { shape: [300, 24], queries: 'float32', metric: 'cosine' });
    using opened = await openIndex(await index.save());
    expect(opened.search(query, 20)).toEqual(index.search(query, 20));
  });

  it('need codes of 8 bits', async () => {
    const sp = await load();
    expectRefusal(() => sp.index(x, { shape: [300, 24], queries: 'float32', bits: 4 }), RangeError, 'queries');
  });
});
