/** Collects the importance and the moments of the inputs of a language model's products. */
import { importanceFile } from '../formats/gguf/importance-file.js';
import { type RunnableLanguage, statesOf, type TokenProgress } from './evaluate.js';
import type { InputWatcher } from './forward.js';
import type { LayerWorkers } from './layer-workers.js';
import type { InputSums, PassedLayer } from './saved-state.js';

/** Takes the moments of some inputs: means over rows, a square of their columns. */
export type TakeMoments = (name: string, moments: Float32Array<ArrayBuffer>, isHeldBack: boolean) => Promise<void>;

/** Inputs that wait for a worker to add their moments, at most. */
const mostWaiting = 8;

/**
 * Sums of the second moments of the inputs of a layer: 8 bytes for each entry, and 4 when one is finished. Each is kept by one worker. Rows that
 * are held back come last, so that the other sums are finished before.
 */
class LayerMoments {
  readonly #workers: LayerWorkers;
  readonly #take: TakeMoments;
  /** Number of rows that are not held back. */
  readonly #fitted: number;
  /** Columns and rows of each input so far. */
  readonly #seen = new Map<string, { readonly columns: number; rows: number }>();
  /** The worker that keeps the sums of each input, by the first weight of it. */
  readonly #keepers = new Map<string, number>();
  /** Columns of the inputs that each worker keeps, squared. */
  readonly #load: number[];
  readonly #waiting: Promise<unknown>[] = [];

  constructor(layerWorkers: LayerWorkers, fitted: number, take: TakeMoments) {
    this.#workers = layerWorkers;
    this.#fitted = fitted;
    this.#take = take;
    this.#load = new Array(layerWorkers.count).fill(0);
  }

  /** Divides the inputs of a layer among the workers, the largest first. Returns their names. */
  begin(inputs: readonly { readonly names: readonly string[]; readonly columns: number }[]): readonly string[] {
    this.#keepers.clear();
    this.#seen.clear();
    this.#load.fill(0);
    for (const { names, columns } of inputs.toSorted((a, b) => b.columns - a.columns)) {
      const keeper = this.#load.indexOf(Math.min(...this.#load));
      this.#load[keeper] = (this.#load[keeper] as number) + columns ** 2;
      this.#keepers.set(names[0] as string, keeper);
    }
    return [...this.#keepers.keys()];
  }

  /** Adds inputs in the order of their rows. */
  async add(name: string, x: Float32Array<ArrayBuffer>, columns: number): Promise<void> {
    const seen = this.#seen.get(name) ?? { columns, rows: 0 };
    this.#seen.set(name, seen);
    const rows = x.length / columns;
    const before = Math.max(0, Math.min(rows, this.#fitted - seen.rows));
    const isCut = before > 0 && before < rows;
    if (before > 0) await this.#send(name, isCut ? x.slice(0, before * columns) : x, columns);
    if (before < rows) {
      // Finish the first sums before held-back rows begin.
      if (seen.rows <= this.#fitted) await this.#handOver(name, columns, this.#fitted, false);
      await this.#send(name, isCut ? x.slice(before * columns) : x, columns);
    }
    seen.rows += rows;
  }

  async #send(name: string, x: Float32Array<ArrayBuffer>, columns: number): Promise<void> {
    const added = this.#workers.ask(this.#keepers.get(name) as number, { kind: 'addMoments', name, x, columns }, [
      x.buffer,
    ]);
    // Reported by the wait.
    added.catch(() => {});
    this.#waiting.push(added);
    if (this.#waiting.length > mostWaiting) await this.#waiting.shift();
  }

  /** Hands over the last moments of a layer, and frees the sums. */
  async finish(): Promise<void> {
    for (const [name, { columns, rows }] of this.#seen) {
      const isHeldBack = rows > this.#fitted;
      await this.#handOver(name, columns, isHeldBack ? rows - this.#fitted : rows, isHeldBack);
    }
  }

  async #handOver(name: string, columns: number, rows: number, isHeldBack: boolean): Promise<void> {
    await Promise.all(this.#waiting.splice(0));
    const keeper = this.#keepers.get(name) as number;
    const { values } = await this.#workers.ask(keeper, { kind: 'takeMoments', name, columns, rows });
    await this.#take(name, values, isHeldBack);
  }
}

/** Adds sums. */
function addSums({ core }: LayerWorkers, more: Float64Array, sums: Float64Array): void {
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
  /** Called for the inputs of each layer; undefined to collect squares alone. */
  readonly takeMoments?: TakeMoments | undefined;
  /** Number of tokens whose moments come first. Those of the others are held back. */
  readonly fitted: number;
  /** A layer that an earlier run has passed. */
  readonly passed?: PassedLayer | undefined;
  /** Called behind each layer. */
  readonly onLayer?: ((passed: PassedLayer) => Promise<void>) | undefined;
}

/**
 * Runs a model on texts and adds up the squares of the inputs of each product, the head's among them, which may be the table of the tokens.
 * @throws ScalepointError `NON_FINITE` naming the weight or the layer
 */
export async function collectFromTexts(
  model: RunnableLanguage,
  ids: Uint32Array,
  textSize: number,
  { onProgress, takeMoments, fitted, passed, onLayer }: CollectTextsOptions,
): Promise<InputSums[]> {
  const { layerWorkers, forward, facts } = model;
  const all = new Map(passed?.sums.map((sums) => [sums.names[0] as string, sums]));
  const moments = takeMoments && new LayerMoments(layerWorkers, fitted, takeMoments);
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
    addSums(layerWorkers, squares, sums.squares.subarray(matrix * columns, (matrix + 1) * columns));
    if (sums.counts !== undefined) (sums.counts[matrix] as number) += rows;
    sums.rows += rows;
    if (x !== undefined) await moments?.add(key, x, columns);
  };
  const { layers } = facts;
  const states = await statesOf(model, ids, textSize, {
    onTokens: (progress) => onProgress({ ...progress, passes: layers }),
    passed,
    watcher: (layer) => ({ watch: { squares: true, inputs: moments?.begin(forward.inputsOf(layer)) ?? [] }, take }),
    async onLayer(layer, states) {
      await moments?.finish();
      await onLayer?.({ layer, states, sums: [...all.values()] });
    },
  });
  const inputs = moments?.begin([forward.head]) ?? [];
  await forward.headInputs(states, { watch: { squares: true, inputs }, take });
  await moments?.finish();
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
