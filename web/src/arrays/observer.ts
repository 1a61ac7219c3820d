// Calibration: scale and zero point for values that come in batches, in bounded memory.
import { checkKeys, checkNumber, choice } from '../core/check.js';
import { Status } from '../core/door.js';
import { rangeError } from '../core/errors.js';
import { type Core, forEachTile } from '../core/memory.js';
import type { SearchedRange } from '../core/range.js';
import type { QuantizationParameters, QuantizeOptions } from './options.js';
import { chooseParameters, failQuantizing } from './parameters.js';
import { type FloatInput, type HalfFormat, type Source, sourceOf } from './source.js';
import { dtypeInfo } from './tensor.js';

/** Options of `observer`: what decides scale and zero point, per tensor. */
export interface ObserverOptions
  extends Pick<QuantizeOptions, 'dtype' | 'scheme' | 'includeZero' | 'symmetricRange' | 'nonFinite'> {
  /** @defaultValue 'min-max' */
  range?: 'min-max' | SearchedRange;
  /**
   * With 'min-max': the range moves to that of each further batch by this part, as PyTorch's MovingAverageMinMaxObserver does with 0.01.
   * @defaultValue the range of all batches
   */
  averaging?: number;
}

const observerKeys = new Set(['range', 'dtype', 'scheme', 'includeZero', 'symmetricRange', 'nonFinite', 'averaging']);
const observeKeys = new Set(['from']);

/** Low bits of a float32 that do not show in its bin: 1024 bins an octave, each at most 2^-10 of its values wide. */
const binShift = 13;
/** Values that stand for all, when parameters are chosen. */
const mostValues = 1 << 20;

/** The finite values of a batch. */
interface Batch {
  readonly min: number;
  readonly max: number;
  readonly count: number;
}

/**
 * Sees batches and chooses scale and zero point for all values together; made by `sp.observer()`.
 *
 * 'min-max' needs the smallest and the largest value only. The other ranges rest on a histogram by sign and magnitude, which takes 4 MiB for
 * any number of values. When parameters are asked for, up to 2^20 values stand for all: they are spread over the bins by their counts, and
 * the true ends are among them.
 */
export class Observer {
  readonly #core: Core;
  readonly #options: ObserverOptions;
  #counts: Float64Array | undefined;
  #min = Infinity;
  #max = -Infinity;
  #seen = 0;

  /** @internal */
  constructor(core: Core, options: ObserverOptions) {
    checkKeys(options, observerKeys);
    const { range = 'min-max', averaging } = options;
    dtypeInfo(options.dtype ?? 'int8');
    choice(options, 'nonFinite', ['error', 'saturate']);
    if (typeof range === 'object' && range !== null && !('percentile' in range)) {
      throw rangeError('range', "an observer takes 'min-max', 'mse', 'entropy' or { percentile }, got given ones");
    }
    if (averaging !== undefined) {
      checkNumber(averaging, 'averaging');
      if (!(averaging > 0 && averaging <= 1)) {
        throw rangeError('averaging', `expected a number above 0, at most 1, got ${averaging}`);
      }
      if (range !== 'min-max') throw rangeError('averaging', "only for range 'min-max'");
    }
    this.#core = core;
    this.#options = { ...options };
    // Wrong options fail now, and not when all has been seen.
    this.parameters();
  }

  /** Number of finite values that were seen. */
  get count(): number {
    return this.#seen;
  }

  /**
   * Takes a batch into account.
   * @throws TypeError or RangeError naming the argument; ScalepointError `NON_FINITE` unless such values are to be saturated: the batch
   * then counts for nothing; `DISPOSED`
   */
  observe(x: FloatInput, options: { from?: HalfFormat } = {}): void {
    checkKeys(options, observeKeys);
    const core = this.#core;
    const source = sourceOf(core, x, options.from, 'x');
    const { nonFinite = 'error', range = 'min-max', averaging } = this.#options;
    if (nonFinite === 'error') {
      forEachTile(source.length, false, (start, count) => {
        const at = source.at(start, count);
        if (core.module.firstNonFinite(at, count) < count)
          failQuantizing(source, core, Status.nonFinite, at, count, start);
      });
    }
    if (range !== 'min-max') this.#counts ??= new Float64Array(2 ** (32 - binShift));
    const { min, max, count } = this.#see(source);
    if (count === 0) return;
    if (averaging !== undefined && this.#seen > 0) {
      this.#min = Math.fround(this.#min + averaging * (min - this.#min));
      this.#max = Math.fround(this.#max + averaging * (max - this.#max));
    } else {
      this.#min = Math.min(this.#min, min);
      this.#max = Math.max(this.#max, max);
    }
    this.#seen += count;
  }

  /** The finite values of a batch, which are added to the histogram if there is one. */
  #see(source: Source): Batch {
    const core = this.#core;
    const counts = this.#counts;
    let min = Infinity;
    let max = -Infinity;
    let count = 0;
    forEachTile(source.length, false, (start, size) => {
      const at = source.at(start, size) / 4;
      const { HEAPF32, HEAPU32 } = core.module;
      for (let i = at; i < at + size; i++) {
        const value = HEAPF32[i] as number;
        if (!Number.isFinite(value)) continue;
        if (value < min) min = value;
        if (value > max) max = value;
        count++;
        if (counts !== undefined) {
          const bin = (HEAPU32[i] as number) >>> binShift;
          counts[bin] = (counts[bin] as number) + 1;
        }
      }
    });
    return { min, max, count };
  }

  /**
   * Scale and zero point for all that was seen: as `quantize` chooses them for one array of it all. Before anything was seen those of
   * an empty array.
   * @throws ScalepointError `OUT_OF_MEMORY`, `DISPOSED`
   */
  parameters(): QuantizationParameters {
    const { averaging: _, ...options } = this.#options;
    const values = this.#counts === undefined ? this.#ends() : this.#values(this.#counts);
    return chooseParameters(this.#core, values, options);
  }

  /** The smallest and the largest value stand for all. */
  #ends(): Float32Array {
    return this.#seen === 0 ? new Float32Array(0) : Float32Array.of(this.#min, this.#max);
  }

  /** Values that stand for those of the histogram. */
  #values(counts: Float64Array): Float32Array {
    const share = Math.min(1, mostValues / this.#seen);
    const values = new Float32Array(Math.floor(this.#seen * share) + 2);
    const edges = new Float32Array(2);
    const bits = new Uint32Array(edges.buffer);
    let n = 0;
    let due = 0;
    for (let bin = 0; bin < counts.length; bin++) {
      if (counts[bin] === 0) continue;
      // A fraction of a value is left to the next bin.
      due += (counts[bin] as number) * share;
      const whole = Math.min(Math.floor(due + 1e-9), values.length - n);
      due -= whole;
      bits[0] = bin << binShift;
      bits[1] = (bin << binShift) | (2 ** binShift - 1);
      const [from = 0, to = 0] = edges;
      for (let i = 0; i < whole; i++) {
        const value = from + ((to - from) * (i + 0.5)) / whole;
        values[n++] = Math.max(this.#min, Math.min(this.#max, value));
      }
    }
    if (n > 1) {
      // The ends themselves, in place of the values nearest to them.
      let low = 0;
      let high = 0;
      for (let i = 1; i < n; i++) {
        if ((values[i] as number) < (values[low] as number)) low = i;
        if ((values[i] as number) > (values[high] as number)) high = i;
      }
      values[low] = this.#min;
      if (high !== low) values[high] = this.#max;
    }
    return values.subarray(0, n);
  }

  /** Forgets what was seen. */
  reset(): void {
    this.#counts = undefined;
    this.#min = Infinity;
    this.#max = -Infinity;
    this.#seen = 0;
  }
}
