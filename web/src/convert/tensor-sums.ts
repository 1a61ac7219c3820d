/** The error sums of all tensors of a plan. */

import { addSums, type ErrorMeasures, measuresOf, sumCount } from '../core/measure.js';
import { elementsOf } from '../formats/codecs/elements.js';
import type { PlannedTensor } from '../formats/format.js';

/** Tensors that share one array. */
const tensorsPerPage = 256;

/** Error sums by tensor. Stored in pages, since an array for each tensor would take several times the memory of its numbers. */
export class TensorSums {
  readonly #pages: (Float64Array | undefined)[];
  readonly #found: Uint8Array;

  /** @param count number of tensors */
  constructor(count: number) {
    this.#pages = new Array(Math.ceil(count / tensorsPerPage));
    this.#found = new Uint8Array(count);
  }

  #pageOf(index: number): Float64Array {
    const number = Math.floor(index / tensorsPerPage);
    const page = this.#pages[number] ?? new Float64Array(tensorsPerPage * sumCount);
    this.#pages[number] = page;
    return page;
  }

  /** Adds the sums that begin at `from` in an array. */
  add(index: number, more: Float64Array, from: number): void {
    addSums(this.#pageOf(index), more, (index % tensorsPerPage) * sumCount, from);
    this.#found[index] = 1;
  }

  /** The sums of a tensor; undefined if none of its tiles were measured. */
  of(index: number): Float64Array | undefined {
    if (this.#found[index] !== 1) return undefined;
    const begin = (index % tensorsPerPage) * sumCount;
    return this.#pageOf(index).subarray(begin, begin + sumCount);
  }

  /** The measures of each tensor that was read as floats. */
  measures(tensors: readonly PlannedTensor[]): (ErrorMeasures | undefined)[] {
    return tensors.map(({ source, kept }, i) => {
      const elements = elementsOf(source.shape);
      const empty = elements === 0 && kept === undefined ? new Float64Array(sumCount) : undefined;
      const sums = this.of(i) ?? empty;
      return sums && measuresOf(sums, elements);
    });
  }
}
