// Error measures and the sums that they come from.

import type { CompareOptions } from '../arrays/options.js';
import type { FloatInput } from '../arrays/source.js';
import type { QuantizedTensor } from '../arrays/tensor.js';
import { ErrorSums } from './door.js';

/** How far y is from x; e = x - y. */
export interface ErrorMeasures {
  /** Mean of e^2. */
  readonly mse: number;
  /** Square root of the mse. */
  readonly rmse: number;
  readonly meanAbsoluteError: number;
  readonly maxAbsoluteError: number;
  /** sqrt(sum e^2 / sum x^2). */
  readonly relativeL2: number;
  /** 10 log10(sum x^2 / sum e^2), in decibels. Infinity without any error; -Infinity for a zero signal with an error. */
  readonly sqnrDb: number;
  /** sum x y / sqrt(sum x^2 sum y^2), in [-1, 1]. 1 without any error; 0 for a zero signal with an error. */
  readonly cosine: number;
  /** Pairs with a NaN or an infinity; they are left out of everything else. */
  readonly nonFinite: number;
}

/** Adds the pairs of a and b to the sums, in the order of the door's ErrorSums. Returns their number. */
type AddErrors = (
  a: FloatInput,
  b: QuantizedTensor | FloatInput,
  options: CompareOptions,
  sums: Float64Array,
) => number;

/** Number of sums, and which of them is a maximum. */
export const sumCount = ErrorSums.bytes / 8;
const maxAbsolute = ErrorSums.offsets.maxAbsoluteError / 8;

/** Error measures over pieces; made by `sp.errorSum()`. */
export class ErrorSum {
  readonly #add: AddErrors;
  readonly #sums = new Float64Array(sumCount);
  #pairs = 0;

  /** @internal */
  constructor(add: AddErrors) {
    this.#add = add;
  }

  /**
   * Adds a piece: its floats, and the quantized tensor or the floats to hold against them.
   * @throws as `compare`
   */
  add(a: FloatInput, b: QuantizedTensor | FloatInput, options: CompareOptions = {}): void {
    this.collect((sums) => this.#add(a, b, options, sums));
  }

  /** Lets f add to the sums and say how many pairs there were. If it throws, nothing was added. @internal */
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

/** Adds sums of further pairs, both in the order of the door's ErrorSums. */
export function addSums(sums: Float64Array, more: Float64Array): void {
  for (const [i, value] of more.entries()) {
    const sum = sums[i] as number;
    sums[i] = i === maxAbsolute ? Math.max(sum, value) : sum + value;
  }
}

/** The measures that follow from the sums of the door's ErrorSums, in its order. */
export function measuresOf(sums: Float64Array, length: number): ErrorMeasures {
  const { squaredError, absoluteError, maxAbsoluteError, squaredX, squaredY, product, nonFinite } = ErrorSums.read(
    { HEAPF64: sums },
    0,
  );
  const n = length - nonFinite;
  const mse = n === 0 ? 0 : squaredError / n;
  const noError = squaredError === 0;
  return {
    mse,
    rmse: Math.sqrt(mse),
    meanAbsoluteError: n === 0 ? 0 : absoluteError / n,
    maxAbsoluteError,
    relativeL2: noError ? 0 : Math.sqrt(squaredError / squaredX),
    sqnrDb: noError ? Infinity : squaredX === 0 ? -Infinity : 10 * Math.log10(squaredX / squaredError),
    cosine: noError
      ? 1
      : squaredX === 0 || squaredY === 0
        ? 0
        : clampCosine(product / Math.sqrt(squaredX) / Math.sqrt(squaredY)),
    nonFinite,
  };
}

function clampCosine(v: number): number {
  return Math.max(-1, Math.min(1, v));
}
