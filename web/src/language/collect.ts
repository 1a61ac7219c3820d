/** Collects the importance and the moments of the inputs of a language model's products. */
import { ScalepointError } from '../core/errors.js';
import { type Core, checkStatus } from '../core/memory.js';
import { importanceFile } from '../formats/gguf/importance-file.js';
import { type RunnableLanguage, statesOf, type TokenProgress } from './evaluate.js';
import type { WatchInputs } from './forward.js';

/** Sums over the inputs that some weights share. */
export interface InputSums {
  /** The weights, in llama.cpp's names. */
  readonly names: readonly string[];
  readonly columns: number;
  /** Number of matrices that share the columns. @defaultValue 1 */
  readonly matrices?: number | undefined;
  /** Rows that were counted. */
  rows: number;
  /** Sum of squares of each column. */
  readonly squares: Float64Array<ArrayBuffer>;
}

/** Takes the moments of some inputs: means over rows, a square of their columns, and the diagonal of it. The memory is used again. */
export type TakeMoments = (name: string, moments: Float32Array<ArrayBuffer>, diagonal: Float32Array) => Promise<void>;

/** Sums of the second moments of the inputs of a layer, in wasm memory: 8 bytes for each entry, and twice 4 when one is finished. */
class LayerMoments {
  readonly #core: Core;
  /** Addresses of the sums, by the first weight of their inputs. */
  readonly #sums = new Map<string, number>();

  constructor(core: Core) {
    this.#core = core;
  }

  add(name: string, x: number, rows: number, columns: number): void {
    const core = this.#core;
    const size = 8 * columns * columns;
    let sums = this.#sums.get(name);
    if (sums === undefined) {
      sums = core.allocate(size);
      this.#sums.set(name, sums);
      core.module.HEAPU8.fill(0, sums, sums + size);
    }
    const to = sums;
    core.withMemory(Number(core.models.momentsScratchBytes(columns)), (scratch) =>
      checkStatus(core.models.addMoments(x, rows, columns, scratch, to)),
    );
  }

  /** Hands over the moments of a layer, and frees the sums. */
  async finish(all: ReadonlyMap<string, InputSums>, take: TakeMoments): Promise<void> {
    const core = this.#core;
    for (const [name, sums] of this.#sums) {
      const { columns, rows } = all.get(name) as InputSums;
      const moments = new Float32Array(columns * columns);
      core.withMemory(4 * columns * columns, (means) => {
        core.models.finishMoments(sums, columns, rows, means);
        moments.set(core.module.HEAPF32.subarray(means >>> 2, (means >>> 2) + moments.length));
      });
      core.release(sums);
      this.#sums.delete(name);
      const diagonal = Float32Array.from({ length: columns }, (_, i) => moments[i * (columns + 1)] as number);
      await take(name, moments, diagonal);
    }
  }
}

/**
 * Runs a model on texts and adds up the squares of the inputs of each product.
 * @param takeMoments called for the inputs of each layer behind it; undefined to collect squares alone
 * @throws ScalepointError `NON_FINITE` naming the weight
 */
export async function collectSums(
  model: RunnableLanguage,
  ids: Uint32Array,
  textSize: number,
  onProgress: TokenProgress,
  takeMoments?: TakeMoments,
): Promise<InputSums[]> {
  const { core } = model;
  const all = new Map<string, InputSums>();
  const moments = takeMoments && new LayerMoments(core);
  const watch: WatchInputs = (names, x, rows, columns) => {
    const key = names[0] as string;
    const sums = all.get(key) ?? { names, columns, rows: 0, squares: new Float64Array(columns) };
    all.set(key, sums);
    if (core.module.firstNonFinite(x, rows * columns) < rows * columns) {
      throw new ScalepointError('NON_FINITE', `the inputs of ${key} are not finite`, { tensor: key });
    }
    core.withMemory(8 * columns, (memory) => {
      core.module.HEAPF64.fill(0, memory >>> 3, (memory >>> 3) + columns);
      checkStatus(core.module.addSquares(x, rows * columns, 0, memory, columns));
      const more = core.module.HEAPF64.subarray(memory >>> 3, (memory >>> 3) + columns);
      for (const [i, sum] of more.entries()) (sums.squares[i] as number) += sum;
    });
    sums.rows += rows;
    moments?.add(key, x, rows, columns);
  };
  const { layers } = model.facts;
  const onTokens: TokenProgress = (progress) => onProgress({ ...progress, passes: layers });
  await statesOf(model, ids, textSize, onTokens, watch, async () => {
    if (takeMoments !== undefined) await moments?.finish(all, takeMoments);
  });
  return [...all.values()];
}

/** The sums as an importance matrix of llama.cpp, and the weights that it has numbers for. */
export function importanceOf(
  sums: readonly InputSums[],
  chunks: number,
  chunkSize: number,
): { readonly file: Uint8Array<ArrayBuffer>; readonly weights: readonly string[] } {
  const entries = sums.flatMap(({ names, squares, rows, matrices = 1 }) =>
    names.map((name) => ({ name, sums: squares, counts: new Float64Array(matrices).fill(rows) })),
  );
  return { file: importanceFile(entries, { chunks, chunkSize }), weights: entries.map(({ name }) => name) };
}
