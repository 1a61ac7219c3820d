// An index after any sequence of changes, saved and opened in between, against a sort of the scores of single vectors. fast-check prints the
// seed and the smallest counterexample of a failure.
import fc from 'fast-check';
import { type IndexOptions, load, openIndex, type Scalepoint, type VectorId, type VectorIndex } from 'scalepoint';
import { expect, it, vi } from 'vitest';
import { Random, wasmFiles } from '../support/support.js';

vi.setConfig({ testTimeout: 120_000 });

const builds: { core: { wasm: typeof wasmFiles.simd; simd: 'on' | 'off' }; sp: Scalepoint }[] = [];
for (const simd of ['on', 'off'] as const) {
  const core = { simd, wasm: wasmFiles[simd === 'on' ? 'simd' : 'scalar'] };
  builds.push({ core, sp: await load({ ...core }) });
}

type Step =
  | { readonly kind: 'add'; readonly count: number }
  | { readonly kind: 'update'; readonly count: number }
  | { readonly kind: 'remove'; readonly oneIn: number }
  | { readonly kind: 'reopen' }
  | { readonly kind: 'search'; readonly k: number; readonly workers: number };

const count = fc.integer({ min: 1, max: 90 });
const search = fc.record({
  kind: fc.constant('search' as const),
  k: fc.constantFrom(1, 20, 500),
  workers: fc.integer({ min: 0, max: 3 }),
});
const step: fc.Arbitrary<Step> = fc.oneof(
  { weight: 2, arbitrary: fc.record({ kind: fc.constant('add' as const), count }) },
  fc.record({ kind: fc.constant('update' as const), count }),
  fc.record({ kind: fc.constant('remove' as const), oneIn: fc.integer({ min: 1, max: 4 }) }),
  { weight: 2, arbitrary: fc.constant<Step>({ kind: 'reopen' }) },
  search,
);

const scored = fc.record({
  bits: fc.constantFrom(1 as const, 2 as const, 4 as const, 8 as const),
  metric: fc.constantFrom('dot' as const, 'cosine' as const, 'euclidean' as const),
  rerank: fc.constantFrom(
    undefined,
    { source: 'int8' as const, factor: 1000 },
    { source: 'float16' as const, factor: 1000 },
  ),
});
const form = fc.oneof(
  { weight: 5, arbitrary: scored },
  fc.constant({ bits: 1 as const, metric: 'hamming' as const, rerank: undefined }),
);

const sequence = fc.record({
  build: fc.constantFrom(...builds),
  options: form,
  isLong: fc.boolean(),
  hasIds: fc.boolean(),
  begin: fc.integer({ min: 0, max: 40 }),
  steps: fc.array(step, { minLength: 2, maxLength: 12 }),
  last: search,
  seed: fc.integer(),
});

/** The scores of single vectors, by the codes that an index gives them whose first vectors these are. */
class Alone {
  readonly #index: VectorIndex;

  constructor(sp: Scalepoint, first: Float32Array, shape: [number, number], options: IndexOptions) {
    const ids = Array.from({ length: shape[0] }, (_, i) => i);
    this.#index = sp.index(first, { ...options, shape, ids });
    this.#index.remove(ids.slice(1));
  }

  score(vector: Float32Array, query: Float32Array): number {
    this.#index.update([0], vector);
    return this.#index.search(query, 1).scores[0] as number;
  }

  dispose(): void {
    this.#index.dispose();
  }
}

it('finds the same in any number of workers after any changes, also in a file', async () => {
  // Rows begin at any place of it.
  const pool = new Random(40).bell(12_000);
  await fc.assert(
    fc.asyncProperty(sequence, async ({ build: { core, sp }, options, isLong, hasIds, begin, steps, last, seed }) => {
      const random = new Random(seed);
      // Stripes of the workers have one block of long vectors of 8 bits.
      const dimension = isLong && options.bits === 8 ? 8192 : 40;
      const rows = (n: number) => {
        const x = new Float32Array(n * dimension);
        for (let i = 0; i < n; i++) {
          const from = random.below(pool.length - dimension);
          x.set(pool.subarray(from, from + dimension), i * dimension);
        }
        return x;
      };
      const row = (x: Float32Array, i: number) => x.subarray(i * dimension, (i + 1) * dimension);
      const queries = rows(2);
      /** The vectors with their indices, and the indices of removed ones that later vectors get. */
      const model = new Map<VectorId, { index: number; vector: Float32Array }>();
      const free: number[] = [];
      let [end, next] = [0, 0];
      let alone: Alone | undefined;
      const added = (x: Float32Array): VectorId[] => {
        const n = x.length / dimension;
        if (n > 0) alone ??= new Alone(sp, x, [n, dimension], options);
        return Array.from({ length: n }, (_, i) => {
          const index = free.shift() ?? end++;
          const id = hasIds ? `v${next++}` : index;
          model.set(id, { index, vector: row(x, i) });
          return id;
        });
      };
      const x = rows(begin);
      const ids = added(x);
      let index = sp.index(x, { ...options, shape: [begin, dimension], ...(hasIds ? { ids } : {}) });
      try {
        for (const step of [...steps, last]) {
          const known = [...model.keys()];
          if (step.kind === 'add') {
            const more = rows(step.count);
            const names = added(more);
            index.add(more, hasIds ? names : {});
          } else if (step.kind === 'update') {
            const some = known.filter((_, i) => i % 3 === step.count % 3).slice(0, step.count);
            const other = rows(some.length);
            index.update(some, other);
            for (const [i, id] of some.entries()) model.get(id)!.vector = row(other, i);
          } else if (step.kind === 'remove') {
            const some = known.filter(() => random.below(step.oneIn) === 0);
            expect(index.remove(some)).toBe(some.length);
            for (const id of some) {
              if (hasIds) free.push(model.get(id)!.index);
              model.delete(id);
            }
            free.sort((a, b) => a - b);
          } else if (step.kind === 'reopen') {
            const file = await index.save();
            index.dispose();
            index = await openIndex(file, { core });
          } else {
            expect(index.count).toBe(model.size);
            const many = await index.searchMany(queries, step.k, { workers: step.workers });
            for (const [i, found] of many.entries()) {
              const query = row(queries, i);
              const sign = options.metric === 'euclidean' || options.metric === 'hamming' ? -1 : 1;
              const best = [...model]
                .map(([id, { index, vector }]) => ({ id, index, score: alone!.score(vector, query) }))
                .sort((a, b) => sign * (b.score - a.score) || a.index - b.index)
                .slice(0, step.k);
              expect([...found.ids]).toEqual(best.map(({ id }) => id));
              expect([...found.indices]).toEqual(best.map(({ index }) => index));
              expect([...found.scores]).toEqual(best.map(({ score }) => score));
            }
          }
        }
      } finally {
        index.dispose();
        alone?.dispose();
      }
    }),
    { numRuns: 8 },
  );
});
