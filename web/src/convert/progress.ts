/** Progress, and when callers are notified. */

/** Progress of a conversion. */
export interface Progress {
  /** The current work. */
  readonly phase: 'quantize' | 'copy' | 'verify';
  /** Name of the tensor. */
  readonly tensor: string;
  /** Index of the tensor in the order of the input. */
  readonly index: number;
  /** Number of tensors. */
  readonly count: number;
  /** With several targets: the target of the result that is being made. The numbers are about this result. */
  readonly to?: string | undefined;
  /** Bytes of tensors done so far. */
  readonly bytesDone: number;
  /** Bytes of all tensors. */
  readonly bytesTotal: number;
}

/**
 * Progress of data through a model, for `evaluateModel` and `calibrateModel`. All data pass one part of the model after the other, so that the
 * share of the work that is done is `(pass - 1 + done / total) / passes`.
 */
export interface DataProgress {
  /** The current work. */
  readonly phase: 'evaluate' | 'calibrate';
  /** The things that `done` and `total` count. */
  readonly unit: 'tokens' | 'samples';
  /** The current pass over the data, from 1. A language model has one for each layer, and one for the logits where they are judged. */
  readonly pass: number;
  /** Number of passes. With a reference, its passes follow those of the model. */
  readonly passes: number;
  /** Tokens or samples that are done in this pass. */
  readonly done: number;
  /** Tokens or samples of each pass. */
  readonly total: number;
}

/** Milliseconds between two reports of one tensor. */
const interval = 50;

/** A tensor in reports. */
type Reported = Pick<Progress, 'phase' | 'tensor'> & { readonly bytes: number };

/** Counts the bytes of tensors, and calls `onProgress`. */
export class TensorProgress {
  readonly #tensor: (index: number) => Reported;
  readonly #onProgress: ((progress: Progress) => void) | undefined;
  /** Bytes of each tensor that are still to come. */
  readonly #left: Float64Array;
  readonly #bytesTotal: number;
  #bytesDone = 0;
  /** Time of the last report. */
  #reported = performance.now();

  /**
   * @param count number of tensors
   * @param tensor gives the tensor of an index
   */
  constructor(count: number, tensor: (index: number) => Reported, onProgress?: (progress: Progress) => void) {
    this.#tensor = tensor;
    this.#onProgress = onProgress;
    this.#left = Float64Array.from({ length: count }, (_, i) => tensor(i).bytes);
    this.#bytesTotal = this.#left.reduce((sum, bytes) => sum + bytes, 0);
  }

  /** Counts bytes of a tensor. Bytes that several tiles read count once. Returns whether the tensor has ended. */
  add(index: number, bytes: number): boolean {
    const before = this.#left[index] as number;
    const counted = Math.min(bytes, before);
    this.#left[index] = before - counted;
    this.#bytesDone += counted;
    const isEnd = counted === before && (counted > 0 || bytes === 0);
    // Report the end of each tensor, and in between when 50 ms have passed since the last report.
    const now = performance.now();
    if (!isEnd && now - this.#reported < interval) return false;
    this.#reported = now;
    if (this.#onProgress !== undefined) {
      const { phase, tensor } = this.#tensor(index);
      const [bytesDone, bytesTotal] = [this.#bytesDone, this.#bytesTotal];
      this.#onProgress({ phase, tensor, index, count: this.#left.length, bytesDone, bytesTotal });
    }
    return isEnd;
  }

  /** Counts all bytes of a tensor without a report. */
  skip(index: number): void {
    this.#bytesDone += this.#left[index] as number;
    this.#left[index] = 0;
  }
}
