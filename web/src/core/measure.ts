// Error measures, and the sums that they come from.
import { ErrorSumsRecord } from './door.js';

/** Error measures of y against x, with e = x - y. */
export interface ErrorMeasures {
  /** Mean of e^2. */
  readonly mse: number;
  /** Square root of the mse. */
  readonly rmse: number;
  /** Mean of |e|. */
  readonly meanAbsoluteError: number;
  /** Largest |e|. */
  readonly maxAbsoluteError: number;
  /** sqrt(sum e^2 / sum x^2). */
  readonly relativeL2: number;
  /** sqrt(sum w e^2 / sum w x^2), with w the importance of a column; undefined without an importance matrix. */
  readonly weightedL2?: number | undefined;
  /** 10 log10(sum x^2 / sum e^2), in decibels. Infinity without any error; -Infinity for a zero signal with an error. */
  readonly sqnrDb: number;
  /** sum x y / sqrt(sum x^2 sum y^2), in [-1, 1]. 1 without any error; 0 for a zero signal with an error. */
  readonly cosine: number;
  /** Number of pairs with a NaN or an infinity. All other measures leave them out. */
  readonly nonFinite: number;
  /** Errors of the outputs of a matrix with `method: 'gptq'`; undefined without. */
  readonly output?: OutputErrors | undefined;
  /** Count of numbers beyond a float type that became its largest one; undefined instead of 0. */
  readonly saturated?: number | undefined;
}

/**
 * Errors of y = x W' for inputs x: the mean square of the error of y relative to that of y, over all rows of W.
 */
export interface OutputErrors {
  /** With the codes that importance alone gives. */
  readonly before: number;
  /** With the codes of the result: at most `before`. */
  readonly after: number;
  /** True if x are held-back data, which the codes do not know; false if the codes were fitted to them. */
  readonly heldBack: boolean;
  /** The share `after` / `before` on the data that the codes were fitted to, at most 1; undefined if `before` is 0 there. */
  readonly fitted?: number | undefined;
  /** Share of the rows of W that keep the codes that importance alone gives, because those of `gptq` made outputs no better. */
  readonly plain: number;
  /** Share of the mean of the diagonal that was added to it: `damping`, or more if the moments could not be factored with that. */
  readonly damping: number;
}

/** Number of sums. They are doubles in the order of the door's ErrorSums. */
export const sumCount = ErrorSumsRecord.bytes / 8;

/** The index of each sum. */
export const sumIndex = ErrorSumsRecord.read({ HEAPF64: Float64Array.from({ length: sumCount }, (_, i) => i) }, 0);

/** Sums in the order of the door's ErrorSums. */
export type Sums = Float64Array | number[];

/** Sums that are the largest of all pairs. */
const largest = new Set([sumIndex.maxAbsoluteError, sumIndex.damping]);

/** Adds the sums of further pairs. `at` and `from` are the offsets of the sums in their arrays. */
export function addSums(sums: Sums, more: Sums, at = 0, from = 0): void {
  for (let i = 0; i < sumCount; i++) {
    const [sum, value] = [sums[at + i] as number, more[from + i] as number];
    sums[at + i] = largest.has(i) ? Math.max(sum, value) : sum + value;
  }
}

/** Number of pairs with a NaN or an infinity. */
export function nonFiniteOf(sums: Sums): number {
  return sums[sumIndex.nonFinite] as number;
}

/** The length of the first of both vectors. */
export function normOf(sums: Float64Array): number {
  return Math.sqrt(sums[sumIndex.squaredX] as number);
}

/** Number of pairs of different values of which at least one is NaN or infinite. */
export function mismatchesOf(x: ArrayLike<number>, y: ArrayLike<number>): number {
  let count = 0;
  for (let i = 0; i < x.length; i++) {
    const [a, b] = [x[i] as number, y[i] as number];
    // Comparisons with NaN are false.
    if (!(Math.abs(a) < Infinity && Math.abs(b) < Infinity) && a !== b && !(Number.isNaN(a) && Number.isNaN(b)))
      count++;
  }
  return count;
}

/** The measures that follow from the sums of `length` pairs. */
export function measuresOf(sums: Float64Array, length: number): ErrorMeasures {
  const all = ErrorSumsRecord.read({ HEAPF64: sums }, 0);
  const { squaredError, absoluteError, maxAbsoluteError, squaredX, squaredY, product, nonFinite, saturated } = all;
  const n = length - nonFinite;
  const mse = n === 0 ? 0 : squaredError / n;
  const noError = squaredError === 0;
  return {
    mse,
    rmse: Math.sqrt(mse),
    meanAbsoluteError: n === 0 ? 0 : absoluteError / n,
    maxAbsoluteError,
    relativeL2: noError ? 0 : Math.sqrt(squaredError / squaredX),
    ...(all.weightedX > 0 ? { weightedL2: Math.sqrt(all.weightedError / all.weightedX) } : {}),
    sqnrDb: noError ? Infinity : squaredX === 0 ? -Infinity : 10 * Math.log10(squaredX / squaredError),
    cosine: noError
      ? 1
      : squaredX === 0 || squaredY === 0
        ? 0
        : Math.max(-1, Math.min(1, product / Math.sqrt(squaredX) / Math.sqrt(squaredY))),
    nonFinite,
    ...(all.outputX > 0
      ? {
          output: {
            before: all.outputBefore / all.outputX,
            after: all.outputError / all.outputX,
            heldBack: all.heldOutputs > 0,
            ...(all.fittedBefore > 0 ? { fitted: all.fittedError / all.fittedBefore } : {}),
            plain: all.plainOutputs / all.outputs,
            damping: all.damping,
          },
        }
      : {}),
    ...(saturated > 0 ? { saturated } : {}),
  };
}

/** The largest float16. */
const largestHalf = 65_504;

/**
 * True for a tensor of a single number that float16 cannot hold, such as the -3.4e38 that masks add. It stands for infinity: its error has
 * no meaning, and would outweigh those of all other tensors.
 * @param elements number of elements of the tensor
 * @param magnitude that of the number, or of its error
 */
export function standsForInfinity(elements: number, magnitude: number): boolean {
  return elements === 1 && magnitude > largestHalf;
}
