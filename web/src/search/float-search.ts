// Similarity search in float32: the reference for the results of an index.

import { floatForm, LayerMemory } from '../arrays/layer-memory.js';
import { addressOf } from '../arrays/source.js';
import { type Core, checkStatus, tileSize } from '../core/memory.js';
import { Best } from './best.js';
import { squares, type Vectors } from './vectors.js';

/** Vectors that queries are compared with at a time. */
const vectorsAtOnce = 1 << 10;
/** Elements of that many vectors, at most: 4 MiB of floats. */
const elementsAtOnce = tileSize * 8;

/** The best k vectors of every query. */
export function searchFloats(
  core: Core,
  { source, count, dimension }: Vectors,
  queries: readonly Float32Array[],
  metric: 'dot' | 'cosine',
  k: number,
): Best[] {
  const best = queries.map(() => new Best(k));
  const step = Math.min(count, vectorsAtOnce, Math.max(1, Math.floor(elementsAtOnce / dimension)));
  const memory = new LayerMemory(core, floatForm(step, dimension));
  try {
    const { layer } = memory;
    const work = core.module.layerWorkspaceBytes(layer, 1);
    core.withMemory(work + (step + dimension + step * dimension) * 4, (at) => {
      const query = at + work;
      const scores = query + dimension * 4;
      const own = scores + step * 4;
      for (let row = 0; row < count; row += step) {
        const n = Math.min(step, count - row);
        const from = addressOf(core, source, row * dimension, n * dimension, 4, own);
        checkStatus(core.module.setLayerFloats(layer, 0, from, n * dimension));
        const { HEAPF32 } = core.module;
        const lengths = metric === 'cosine' ? lengthsOf(HEAPF32, from / 4, n, dimension) : new Float64Array(n).fill(1);
        for (const [q, values] of queries.entries()) {
          HEAPF32.set(values, query / 4);
          checkStatus(core.module._layerForward(layer, query, 1, scores, at, work));
          for (let i = 0; i < n; i++) {
            const length = lengths[i] as number;
            best[q]?.offer(length === 0 ? 0 : (HEAPF32[scores / 4 + i] as number) / length, row + i);
          }
        }
      }
    });
  } finally {
    memory.dispose();
  }
  return best;
}

/** The lengths of n vectors, one after the other from index `start` on. */
function lengthsOf(heap: Float32Array, start: number, n: number, dimension: number): Float64Array {
  return Float64Array.from({ length: n }, (_, i) => Math.sqrt(squares(heap, start + i * dimension, dimension)));
}

/** Copies of all vectors of a source, one by one. */
export function copiesOf(core: Core, { source, count, dimension }: Vectors): Float32Array[] {
  return core.withMemory(dimension * 4, (own) =>
    Array.from({ length: count }, (_, i) => {
      const at = addressOf(core, source, i * dimension, dimension, 4, own) / 4;
      return core.module.HEAPF32.slice(at, at + dimension);
    }),
  );
}
