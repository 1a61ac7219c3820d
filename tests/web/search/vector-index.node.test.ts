// Similarity search: the best by sorting all, exact over the codes.
import type { IndexOptions } from 'scalepoint';
import { load } from 'scalepoint';
import { describe, expect, it } from 'vitest';
import {
  cores,
  describeBuilds,
  expectCode,
  expected,
  expectRefusal,
  expectSame,
  memorySize,
  Random,
} from '../support/support.js';

/** Scores over the oracle's codes, in double. Best first, of equal ones the lower index. */
function sorted(vectors: Float32Array, dimension: number, query: Float32Array, options: IndexOptions) {
  const { metric = 'dot', queries = 'int8' } = options;
  const q = expected(query, {});
  const values = queries === 'int8' ? q.data : query;
  const length = (v: ArrayLike<number>) => Math.sqrt(Array.from(v).reduce((a, b) => a + b * b, 0));
  const scored: { index: number; score: number }[] = [];
  for (let index = 0; index * dimension < vectors.length; index++) {
    const v = expected(vectors.subarray(index * dimension, (index + 1) * dimension), {});
    let dot = 0;
    for (let i = 0; i < dimension; i++) dot += v.data[i]! * values[i]!;
    const lengths = length(v.data) * length(values);
    const score =
      metric === 'dot' ? dot * v.scale[0]! * (queries === 'int8' ? q.scale[0]! : 1) : lengths === 0 ? 0 : dot / lengths;
    scored.push({ index, score });
  }
  return scored.sort((a, b) => b.score - a.score || a.index - b.index);
}

describeBuilds('index', (sp) => {
  it('is the same in whatever pieces ready codes are added', () => {
    const random = new Random(12);
    for (const [count, dimension] of [
      [5000, 33],
      [61, 20_000],
    ] as const) {
      const x = random.bell(count * dimension);
      const query = random.bell(dimension);
      const granularity = { kind: 'per-channel', axis: 0 } as const;
      const q = sp.quantize(x, { shape: [count, dimension], granularity });
      const rows = (from: number, to: number) => ({
        ...q,
        shape: [to - from, dimension],
        data: q.data.slice(from * dimension, to * dimension),
        scale: q.scale.slice(from, to),
        zeroPoint: q.zeroPoint.slice(from, to),
      });
      for (const metric of ['dot', 'cosine'] as const) {
        const whole = sp.index(q, { metric });
        expectSame(whole.tensor().data, q.data);
        expectSame(whole.tensor().scale, q.scale);
        const pieces = sp.index(rows(0, 3), { metric });
        for (const [from, to] of [
          [3, 4],
          [4, 12],
          [12, count - 5],
          [count - 5, count],
        ] as const) {
          pieces.add(rows(from, to));
        }
        expectSame(pieces.tensor().data, q.data);
        expectSame(pieces.tensor().scale, q.scale);
        const [found, want] = [pieces.search(query, count), whole.search(query, count)];
        expectSame(found.indices, want.indices);
        expectSame(found.scores, want.scores);
        whole.dispose();
        pieces.dispose();
      }
    }
  });

  it('finds what sorting all scores finds', () => {
    const random = new Random(1);
    for (const metric of ['dot', 'cosine'] as const) {
      for (const queries of ['int8', 'float32'] as const) {
        for (const [count, dimension] of [
          [1, 1],
          [100, 33],
          [517, 64],
        ] as const) {
          const vectors = random.bell(count * dimension);
          // A few are the same, and one is zero.
          vectors.copyWithin(0, vectors.length - 2 * dimension, vectors.length - dimension);
          if (count > 5) vectors.fill(0, 5 * dimension, 6 * dimension);
          const options = { metric, queries, shape: [count, dimension] };
          const index = sp.index(vectors, options);
          expect([index.count, index.dimension, index.metric]).toEqual([count, dimension, metric]);
          const query = random.bell(dimension);
          const want = sorted(vectors, dimension, query, options);
          for (const k of [1, 3, 10, count, count + 5]) {
            const { indices, scores } = index.search(query, k);
            const best = want.slice(0, k);
            expectSame(indices, new Uint32Array(best.map((b) => b.index)));
            // Queries of int8: the sum, the factors of the query and of the vector, and two products are rounded to float32, and the score.
            // Others are rounded once, and a few times in double.
            const roundings = queries === 'int8' ? 6 : 1.01;
            for (const [i, { score }] of best.entries())
              expect(Math.abs(scores[i]! - score)).toBeLessThanOrEqual(roundings * 2 ** -24 * Math.abs(score));
          }
          index.dispose();
        }
      }
    }
  });

  it('takes vectors one by one, in float16, and from wasm memory', () => {
    const random = new Random(2);
    const flat = random.bell(40 * 16);
    const list = Array.from({ length: 40 }, (_, i) => flat.subarray(i * 16, (i + 1) * 16));
    const inside = sp.allocate('float32', flat.length);
    inside.view.set(flat);
    const query = random.bell(16);
    const want = sp.index(flat, { shape: [40, 16] }).search(query, 7);
    for (const vectors of [list, list.map((v) => [...v]), inside]) {
      const index = sp.index(vectors, vectors === inside ? { shape: [40, 16] } : {});
      const got = index.search(query, 7);
      expectSame(got.indices, want.indices);
      expectSame(got.scores, want.scores);
      index.dispose();
    }
    const halves = sp.castFloat(flat, 'float16');
    const index = sp.index(halves, { shape: [40, 16], from: 'float16' });
    const restored = sp.index(sp.castToFloat32(halves, 'float16'), { shape: [40, 16] });
    expectSame(index.search(query, 7).scores, restored.search(query, 7).scores);
    inside.dispose();
  });

  it('finds ten by default, and all of fewer', () => {
    const vectors = new Random(5).bell(12 * 16);
    const query = vectors.subarray(0, 16);
    const index = sp.index(vectors, { shape: [12, 16] });
    expect(index.search(query)).toEqual(index.search(query, 10));
    expect(index.search(query).indices).toHaveLength(10);
    const few = sp.index(vectors.subarray(0, 3 * 16), { shape: [3, 16] });
    expect(few.search(query).indices).toHaveLength(3);
    index.dispose();
    few.dispose();
  });

  it('knows its recall', () => {
    const random = new Random(3);
    const vectors = random.bell(2500 * 48);
    const asked = random.bell(20 * 48);
    const list = Array.from({ length: 20 }, (_, i) => asked.subarray(i * 48, (i + 1) * 48));
    for (const [metric, queries] of [
      ['dot', 'int8'],
      ['dot', 'float32'],
      ['cosine', 'int8'],
    ] as const) {
      const index = sp.index(vectors, { shape: [2500, 48], metric, queries });
      // The same by sorting, in double.
      let hits = 0;
      for (const query of list) {
        const scores = Array.from({ length: 2500 }, (_, i) => {
          let dot = 0;
          let size = 0;
          for (let j = 0; j < 48; j++) {
            dot += vectors[i * 48 + j]! * query[j]!;
            size += vectors[i * 48 + j]! ** 2;
          }
          return { i, score: metric === 'dot' ? dot : dot / Math.sqrt(size) };
        }).sort((a, b) => b.score - a.score);
        const found = new Set(index.search(query, 10).indices);
        for (const { i } of scores.slice(0, 10)) if (found.has(i)) hits++;
      }
      const recall = index.recall(vectors, asked);
      expect(recall).toBe(hits / 200);
      // Otherwise these data would tell nothing.
      expect(recall).toBeLessThan(1);
      expect(index.recall(vectors, list, { k: 10 })).toBe(recall);
      expect(index.recall(vectors, list, { k: 2500 })).toBe(1);
      index.dispose();
    }
  });

  it('tells long vectors apart', () => {
    const dimension = 60_000;
    const vectors = new Float32Array(2 * dimension).fill(1);
    vectors[2 * dimension - 1] = -1;
    const index = sp.index(vectors, { shape: [2, dimension] });
    const { indices, scores } = index.search(new Float32Array(dimension).fill(1), 2);
    expectSame(indices, new Uint32Array([0, 1]));
    const scale = Math.fround(1 / 127);
    for (const [i, n] of [dimension, dimension - 2].entries()) {
      const exact = 127 * 127 * n * scale * scale;
      // The sum and two products are rounded to float32.
      expect(Math.abs(scores[i]! - exact)).toBeLessThanOrEqual(3 * 2 ** -24 * exact);
    }
    index.dispose();
  });

  it('refuses wrong arguments by name', () => {
    const bad = (vectors: unknown, options?: unknown) => () => sp.index(vectors as never, options as never);
    const good = new Float32Array(12);
    expectRefusal(bad(good), TypeError, 'shape');
    expectRefusal(bad(good, { shape: [3, 5] }), RangeError, 'shape');
    expectRefusal(bad(good, { shape: [12] }), RangeError, 'shape');
    expectRefusal(bad(new Float32Array(0), { shape: [0, 0] }), RangeError, 'shape');
    expectRefusal(bad([good, new Float32Array(3)]), RangeError, 'vectors');
    expectRefusal(bad([good, null]), TypeError, 'vectors');
    expectRefusal(bad('v', { shape: [1, 1] }), TypeError, 'vectors');
    expectRefusal(bad(good, { shape: [3, 4], dtype: 'int4' }), RangeError, 'dtype');
    expectRefusal(bad(good, { shape: [3, 4], metric: 'l2' }), RangeError, 'metric');
    expectRefusal(bad(good, { shape: [3, 4], queries: 'int4' }), RangeError, 'queries');
    // Activations are what layers have.
    expectRefusal(bad(good, { shape: [3, 4], activations: 'int8' }), TypeError, 'activations');
    expectRefusal(bad(good, { shape: [3, 4], k: 1 }), TypeError, 'k');
    const error = expectCode(
      bad([
        [1, 2],
        [3, NaN],
      ]),
      'NON_FINITE',
    );
    expect(error.message).toContain('element 1 of vector 1');
    const index = sp.index(good, { shape: [3, 4] });
    const search = (query: unknown, k: unknown) => () => index.search(query as never, k as never);
    expectRefusal(search(new Float32Array(3), 1), RangeError, 'query');
    expectRefusal(search('q', 1), TypeError, 'query');
    expectRefusal(search(new Float32Array(4), 0), RangeError, 'k');
    expectRefusal(search(new Float32Array(4), 1.5), RangeError, 'k');
    expectRefusal(search(new Float32Array(4), '1'), TypeError, 'k');
    expectCode(search([0, 0, Infinity, 0], 1), 'NON_FINITE');
    expectRefusal(() => index.recall(good.subarray(4), good), RangeError, 'vectors');
    expectRefusal(() => index.recall(good, [[1, 2]]), RangeError, 'queries');
    expectRefusal(() => index.recall(good, good, { k: -1 }), RangeError, 'k');
    expectRefusal(() => index.recall(good, good, { n: 1 } as never), TypeError, 'n');
    index.dispose();
    index.dispose();
    expectCode(search(new Float32Array(4), 1), 'DISPOSED');
    expectCode(() => index.recall(good, good), 'DISPOSED');
  });
});

describe('an index', () => {
  it('gives its memory back, after errors too', () => {
    const { sp } = cores[0]!;
    const vectors = new Float32Array(1 << 19).fill(1);
    const bad = vectors.slice();
    bad[1 << 18] = NaN;
    sp.index(vectors, { shape: [1024, 512] }).dispose();
    const before = memorySize(sp);
    for (let i = 0; i < 20; i++) {
      expectCode(() => sp.index(bad, { shape: [1024, 512] }), 'NON_FINITE');
      const index = sp.index(vectors, { shape: [1024, 512] });
      index.search(vectors.subarray(0, 512), 5);
      index.dispose();
    }
    expect(memorySize(sp)).toBe(before);
  });

  it('is gone with its instance', async () => {
    const sp = await load();
    const index = sp.index([[1, 2]]);
    sp.dispose();
    expectCode(() => index.search([1, 2], 1), 'DISPOSED');
  });
});
