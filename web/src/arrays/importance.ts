// Importance of the columns of weights: the sums of squares of the activations that they are multiplied with.

import { bindMethods } from '../core/bind.js';
import { checkWhole } from '../core/check.js';
import { rangeError, typeError } from '../core/errors.js';
import { type Core, checkStatus, forEachTile } from '../core/memory.js';
import { mention, ofType, oneOf } from '../core/option-problem.js';
import { checkOptionsOf } from './calls.js';
import type { Layer } from './layer.js';
import { type FloatInput, type HalfFormat, nonFiniteError, type Source, sourceOf } from './source.js';

/** Options of `Importance.add`. */
export interface ActivationOptions {
  /** Length of a row. @defaultValue the last dimension of x, or the length known from a layer or from the first call */
  columns?: number | undefined;
  /** The input is a Uint16Array of the bits of such floats. */
  from?: HalfFormat | undefined;
  /** Index of the matrix in a weight with several, such as experts, from 0. @defaultValue 0 */
  matrix?: number | undefined;
  /** Number of matrices of the weight. @defaultValue 1, or as in the first call */
  matrices?: number | undefined;
}

/** Metadata of an importance matrix. */
export interface ImportanceFileOptions {
  /** Names of the texts. @defaultValue ['unnamed'] */
  datasets?: readonly string[] | undefined;
  /** Number of chunks of text. @defaultValue 1 */
  chunks?: number | undefined;
  /** Tokens of a chunk. @defaultValue the most rows of a weight divided by the chunks, rounded up */
  chunkSize?: number | undefined;
}

/** The sums of a weight. */
export interface ActivationSums {
  /** Its name in the GGUF file. */
  readonly name: string;
  /** Sums of squares for each column, of one matrix after the other. */
  readonly sums: Float64Array<ArrayBuffer>;
  /** Number of rows that each matrix was multiplied with. */
  readonly counts: Float64Array<ArrayBuffer>;
}

/** Writes the file. */
export type WriteImportance = (
  weights: readonly ActivationSums[],
  options: ImportanceFileOptions,
) => Promise<Uint8Array<ArrayBuffer>>;

/**
 * Collects the importance of the columns of weights, for importance matrices of llama.cpp. Made by `sp.importance()`.
 * @example importance.watch(layer, 'blk.0.ffn_down.weight'); run(model); await writeFile('imatrix.gguf', await importance.file());
 */
export class Importance {
  readonly #core: Core;
  readonly #write: WriteImportance;
  readonly #weights = new Map<string, ActivationSums>();

  /** @internal */
  constructor(core: Core, write: WriteImportance) {
    this.#core = core;
    this.#write = write;
    bindMethods(this);
  }

  /**
   * Counts the inputs of a layer from now on, for the weights with these names: several if they are multiplied with the same inputs, such
   * as those of query, key and value. Returns a function that stops counting.
   * @throws TypeError or RangeError naming the argument
   */
  watch(layer: Layer, ...names: readonly string[]): () => void {
    if (names.length === 0) throw rangeError('names', { kind: 'number', min: 1, unit: 'name' }, 0);
    const weights = [...new Set(names)].map((name) => this.#weightOf(name, layer.inputs, 1));
    const end = layer.watch((source) => this.#count(source, weights, 0));
    for (const weight of weights) this.#weights.set(weight.name, weight);
    return end;
  }

  /**
   * Counts rows of numbers that a weight is multiplied with. All numbers are finite.
   * @example importance.add('blk.0.attn_q.weight', x, { columns: 4096 }); importance.add('blk.0.ffn_up.weight', outputs.normalized);
   * @throws TypeError or RangeError naming the argument; ScalepointError `NON_FINITE`, after which the sums stay the same; `DISPOSED`
   */
  add(name: string, x: FloatInput, options: ActivationOptions = {}): void {
    checkOptionsOf('importance.add', options);
    const source = sourceOf(this.#core, x, options.from, 'x');
    const known = this.#weights.get(name);
    const matrices = checkWhole(options.matrices ?? known?.counts.length ?? 1, 'matrices', 1);
    const { shape = [] } = source;
    const last = shape.length > 1 ? shape.at(-1) : undefined;
    const given = options.columns ?? last ?? (known && known.sums.length / known.counts.length) ?? shape[0];
    if (given === undefined)
      throw rangeError('columns', { kind: 'required' }, given, { kind: 'with', options: [mention('name', name)] });
    const columns = checkWhole(given, 'columns', 1);
    const matrix = checkWhole(options.matrix ?? 0, 'matrix', 0, matrices - 1);
    if (source.length % columns !== 0)
      throw rangeError('x', { kind: 'number', multipleOf: columns, unit: 'elements' }, source.length);
    const weight = this.#weightOf(name, columns, matrices);
    this.#count(source, [weight], matrix);
    this.#weights.set(name, weight);
  }

  /** Names of the weights with sums. */
  get names(): string[] {
    return [...this.#weights.keys()];
  }

  /**
   * The importance matrix as a GGUF file, which `importance` of model files and llama-quantize's --imatrix take.
   * @throws TypeError or RangeError naming the option, or `names` if no row was counted
   */
  async file(options: ImportanceFileOptions = {}): Promise<Uint8Array<ArrayBuffer>> {
    const weights = [...this.#weights.values()].filter(({ counts }) => counts.some((count) => count > 0));
    if (weights.length === 0) throw rangeError('names', { kind: 'number', min: 1, unit: 'counted weight' }, 0);
    return this.#write(weights, options);
  }

  /** The sums of a weight. Those of an unknown weight are new, and not stored yet. */
  #weightOf(name: unknown, columns: number, matrices: number): ActivationSums {
    if (typeof name !== 'string' || name === '') throw typeError('name', ofType('string'), name);
    const known = this.#weights.get(name);
    if (known === undefined) {
      return { name, sums: new Float64Array(columns * matrices), counts: new Float64Array(matrices) };
    }
    if (known.counts.length !== matrices) {
      throw rangeError('matrices', oneOf([known.counts.length]), matrices, {
        kind: 'with',
        options: [mention('name', name)],
      });
    }
    const before = known.sums.length / matrices;
    if (before !== columns)
      throw rangeError('columns', oneOf([before]), columns, { kind: 'with', options: [mention('name', name)] });
    return known;
  }

  /** Adds the rows of a source. */
  #count(source: Source, weights: readonly ActivationSums[], matrix: number): void {
    const core = this.#core;
    const [{ sums: all, counts }] = weights as readonly [ActivationSums];
    const columns = all.length / counts.length;
    forEachTile(source.length, false, (start, count) => {
      const at = source.at(start, count);
      if (core.module.firstNonFinite(at, count) < count) {
        throw nonFiniteError(
          core,
          source,
          { x: at, count, start },
          'it would make a column count more than all others',
        );
      }
    });
    core.withMemory(8 * columns, (sums) => {
      core.module.HEAPF64.fill(0, sums / 8, sums / 8 + columns);
      forEachTile(source.length, false, (start, count) => {
        checkStatus(core.module.addSquares(source.at(start, count), count, start % columns, sums, columns));
      });
      const more = core.module.HEAPF64.subarray(sums / 8, sums / 8 + columns);
      for (const weight of weights) {
        for (const [i, sum] of more.entries()) weight.sums[matrix * columns + i]! += sum;
        weight.counts[matrix]! += source.length / columns;
      }
    });
  }
}
