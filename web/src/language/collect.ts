/** Collects the importance and the moments of the inputs of a language model's products. */
import { importanceFile } from '../formats/gguf/importance-file.js';
import type { Hands } from '../pipeline/hands.js';
import { type RunnableLanguage, statesOf, type TokenProgress } from './evaluate.js';
import type { InputWatcher } from './forward.js';
import type { InputSums, PassedLayer } from './saved-state.js';

/** Takes the moments of some inputs: means over rows, a square of their columns, and the diagonal of it. */
export type TakeMoments = (name: string, moments: Float32Array<ArrayBuffer>, diagonal: Float32Array) => Promise<void>;

/** Inputs that wait for a hand to add their moments, at most. */
const mostWaiting = 8;

/** Sums of the second moments of the inputs of a layer: 8 bytes for each entry, and 4 when one is finished. Each is kept by one hand. */
class LayerMoments {
  readonly #hands: Hands;
  /** The hand that keeps the sums of each input, by the first weight of it. */
  readonly #keepers = new Map<string, number>();
  /** Columns of the inputs that each hand keeps, squared. */
  readonly #load: number[];
  readonly #waiting: Promise<unknown>[] = [];

  constructor(hands: Hands) {
    this.#hands = hands;
    this.#load = new Array(hands.count).fill(0);
  }

  /** Divides the inputs of a layer among the hands, the largest first. Returns their names. */
  begin(inputs: readonly { readonly names: readonly string[]; readonly columns: number }[]): readonly string[] {
    this.#keepers.clear();
    this.#load.fill(0);
    for (const { names, columns } of inputs.toSorted((a, b) => b.columns - a.columns)) {
      const keeper = this.#load.indexOf(Math.min(...this.#load));
      this.#load[keeper] = (this.#load[keeper] as number) + columns ** 2;
      this.#keepers.set(names[0] as string, keeper);
    }
    return [...this.#keepers.keys()];
  }

  /** Adds inputs. Those of one name are added in the order of the calls. */
  async add(name: string, x: Float32Array<ArrayBuffer>, columns: number): Promise<void> {
    const added = this.#hands.ask(this.#keepers.get(name) as number, { kind: 'addMoments', name, x, columns }, [
      x.buffer,
    ]);
    // Reported by the wait.
    added.catch(() => {});
    this.#waiting.push(added);
    if (this.#waiting.length > mostWaiting) await this.#waiting.shift();
  }

  /** Hands over the moments of a layer, and frees the sums. */
  async finish(all: ReadonlyMap<string, InputSums>, take: TakeMoments): Promise<void> {
    await Promise.all(this.#waiting.splice(0));
    for (const [name, keeper] of this.#keepers) {
      const { columns, rows } = all.get(name) as InputSums;
      const { values } = await this.#hands.ask(keeper, { kind: 'takeMoments', name, columns, rows });
      const diagonal = Float32Array.from({ length: columns }, (_, i) => values[i * (columns + 1)] as number);
      await take(name, values, diagonal);
    }
  }
}

/** Adds sums. */
function addSums({ core }: Hands, more: Float64Array, sums: Float64Array): void {
  const bytes = more.byteLength;
  core.withMemory(bytes * 2, (at) => {
    const [from, to] = [at >>> 3, (at + bytes) >>> 3];
    core.module.HEAPF64.set(more, from);
    core.module.HEAPF64.set(sums, to);
    core.models.addSums(at, more.length, at + bytes);
    sums.set(core.module.HEAPF64.subarray(to, to + sums.length));
  });
}

/** Options of `collectFromTexts`. */
export interface CollectTextsOptions {
  readonly onProgress: TokenProgress;
  /** Called for the inputs of each layer behind it; undefined to collect squares alone. */
  readonly takeMoments?: TakeMoments | undefined;
  /** A layer that an earlier run has passed. */
  readonly passed?: PassedLayer | undefined;
  /** Called behind each layer. */
  readonly onLayer?: ((passed: PassedLayer) => Promise<void>) | undefined;
}

/**
 * Runs a model on texts and adds up the squares of the inputs of each product.
 * @throws ScalepointError `NON_FINITE` naming the weight or the layer
 */
export async function collectFromTexts(
  model: RunnableLanguage,
  ids: Uint32Array,
  textSize: number,
  { onProgress, takeMoments, passed, onLayer }: CollectTextsOptions,
): Promise<InputSums[]> {
  const { hands, forward, facts } = model;
  const all = new Map(passed?.sums.map((sums) => [sums.names[0] as string, sums]));
  const moments = takeMoments && new LayerMoments(hands);
  const take: InputWatcher['take'] = async ({ names, rows, columns, squares, x }, expert) => {
    const key = names[0] as string;
    const matrices = expert === undefined ? 1 : facts.experts;
    const sums = all.get(key) ?? {
      names,
      columns,
      rows: 0,
      squares: new Float64Array(columns * matrices),
      counts: new Float64Array(matrices),
    };
    all.set(key, sums);
    const matrix = expert ?? 0;
    addSums(hands, squares, sums.squares.subarray(matrix * columns, (matrix + 1) * columns));
    if (sums.counts !== undefined) (sums.counts[matrix] as number) += rows;
    sums.rows += rows;
    if (x !== undefined) await moments?.add(key, x, columns);
  };
  const { layers } = facts;
  await statesOf(model, ids, textSize, {
    onTokens: (progress) => onProgress({ ...progress, passes: layers }),
    passed,
    watcher: (layer) => ({ watch: { squares: true, inputs: moments?.begin(forward.inputsOf(layer)) ?? [] }, take }),
    async onLayer(layer, states) {
      if (takeMoments !== undefined) await moments?.finish(all, takeMoments);
      await onLayer?.({ layer, states, sums: [...all.values()] });
    },
  });
  return [...all.values()];
}

/** The sums as an importance matrix of llama.cpp, and the weights that it has numbers for. */
export function importanceOf(
  sums: readonly InputSums[],
  chunks: number,
  chunkSize: number,
): { readonly file: Uint8Array<ArrayBuffer>; readonly weights: readonly string[] } {
  const entries = sums.flatMap(({ names, squares, rows, matrices = 1, counts }) =>
    names.map((name) => ({ name, sums: squares, counts: counts ?? new Float64Array(matrices).fill(rows) })),
  );
  return { file: importanceFile(entries, { chunks, chunkSize }), weights: entries.map(({ name }) => name) };
}
