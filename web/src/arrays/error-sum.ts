// Error measures of tensors that arrive in pieces.
import { bindMethods } from '../core/bind.js';
import { type ErrorMeasures, measuresOf, sumCount } from '../core/measure.js';
import type { Core } from '../core/memory.js';
import type { FloatInput, HalfFormat } from './source.js';
import type { QuantizedTensor } from './tensor.js';

/** Options of `compare`. */
export interface CompareOptions {
  /** Each array argument that is a Uint16Array holds the bits of such floats. */
  from?: HalfFormat | undefined;
}

/** Adds the errors of b against a to sums, in the order of the door's ErrorSums, and returns the number of elements. */
type AddErrors = (
  a: FloatInput,
  b: QuantizedTensor | FloatInput,
  options: CompareOptions,
  sums: Float64Array,
) => number;

/** Error measures over pieces; made by `sp.errorSum()`. */
export class ErrorSum {
  readonly #add: AddErrors;
  readonly #sums = new Float64Array(sumCount);
  #pairs = 0;

  /** @internal */
  constructor(add: AddErrors) {
    this.#add = add;
    bindMethods(this);
  }

  /**
   * Adds a piece: its floats, and the quantized tensor or the floats to compare with them.
   * @throws as `compare`
   */
  add(a: FloatInput, b: QuantizedTensor | FloatInput, options: CompareOptions = {}): void {
    this.collect((sums) => this.#add(a, b, options, sums));
  }

  /** Calls f, which adds to the sums and returns the number of pairs. If f throws, the sums stay the same. @internal */
  collect(f: (sums: Float64Array) => number): void {
    const sums = this.#sums.slice();
    this.#pairs += f(sums);
    this.#sums.set(sums);
  }

  /** The measures of all pieces together. */
  measures(): ErrorMeasures {
    return measuresOf(this.#sums, this.#pairs);
  }
}

/** Copies sums into the scratch memory, lets f add to them there, and copies them back. */
export function withSums(core: Core, sums: Float64Array, f: (address: number) => void): void {
  const address = core.scratch.sums;
  core.module.HEAPF64.set(sums, address / 8);
  f(address);
  sums.set(core.module.HEAPF64.subarray(address / 8, address / 8 + sums.length));
}
