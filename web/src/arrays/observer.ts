// Calibration: chooses scale and zero point for values that arrive in batches, in bounded memory.
import { checkKeys, checkNumber, choice } from '../core/check.js';
import { Layout as LayoutRecord, RangeMethod, Scheme, Status } from '../core/door.js';
import { rangeError } from '../core/errors.js';
import { type Core, checkStatus, forEachTile } from '../core/memory.js';
import { onlyWith } from '../core/option-problem.js';
import { type SearchedRange, searchedRangeForm } from '../core/range.js';
import { type Job, jobOf } from './job.js';
import type { QuantizationParameters, QuantizeOptions } from './options.js';
import { chooseParameters, failQuantizing, withParameters } from './parameters.js';
import { type FloatInput, type HalfFormat, type Source, sourceOf } from './source.js';
import { dtypeInfo } from './tensor.js';

/** Options of `observer`: those that decide scale and zero point, per tensor. */
export interface ObserverOptions
  extends Pick<QuantizeOptions, 'dtype' | 'scheme' | 'includeZero' | 'symmetricRange' | 'nonFinite'> {
  /** Method that finds the range of all batches; see `Range`. @defaultValue 'min-max' */
  range?: 'min-max' | SearchedRange;
  /**
   * With 'min-max': each further batch moves the range by this fraction towards its own, as in PyTorch's MovingAverageMinMaxObserver with
   * 0.01.
   * @defaultValue the range of all batches
   */
  averaging?: number;
}

const observerKeys = new Set(['range', 'dtype', 'scheme', 'includeZero', 'symmetricRange', 'nonFinite', 'averaging']);
const observeKeys = new Set(['from']);

/** Number of low bits of a float32 that its bin ignores. An octave has 1024 bins, each at most 2^-10 of its values wide. */
const binShift = 13;
/** Number of bins of one sign, in the order of their magnitudes. */
const half = 2 ** (31 - binShift);
const lowBits = 2 ** binShift - 1;
/** Marks a bin with several different values, in place of the low bits of its only value. */
const several = lowBits + 2;
/**
 * Largest number of stand-ins for the values of a bin. Leaves no gaps in the histogram of 'entropy', whose bins are at least half as wide.
 */
const mostOfBin = 4;

const edge = new Float32Array(2);
const edgeBits = new Uint32Array(edge.buffer);

function binOf(value: number): number {
  edge[0] = value;
  return (edgeBits[0] as number) >>> binShift;
}

/** The finite values of a batch. */
interface BatchRange {
  readonly min: number;
  readonly max: number;
  readonly count: number;
}

/** Counts of the observed values, in bins by sign and magnitude. */
class ValueHistogram {
  /** Number of values in each bin. */
  readonly counts = new Float64Array(2 ** (32 - binShift));
  /** The low bits of the only value of a bin, plus 1; 0 for an empty bin. Keeps repeated values exact if they are alone in their bins. */
  readonly #only = new Uint16Array(2 ** (32 - binShift));

  /** Counts a float32, given by its bits. */
  add(bits: number): void {
    const bin = bits >>> binShift;
    this.counts[bin] = (this.counts[bin] as number) + 1;
    const low = (bits & lowBits) + 1;
    const known = this.#only[bin] as number;
    if (known !== low) this.#only[bin] = known === 0 ? low : several;
  }

  /** Stand-ins for the values of a bin, each for about the same number of values. */
  standIns(bin: number): number[] {
    const low = this.#only[bin] as number;
    edgeBits[0] = (bin << binShift) | (low < several ? low - 1 : 0);
    edgeBits[1] = edgeBits[0] | lowBits;
    const [from = 0, to = 0] = edge;
    if (low < several) return [from];
    const values = Math.min(this.counts[bin] as number, mostOfBin);
    return Array.from({ length: values }, (_, j) => from + ((to - from) * (j + 0.5)) / values);
  }
}

/**
 * Observes batches, and chooses scale and zero point for all values together. Made by `sp.observer()`.
 *
 * 'min-max' needs the smallest and the largest value only, and is exact. The other ranges come from a histogram by sign and magnitude,
 * which takes 5 MiB for any number of values. Its bins are at most 2^-10 of their values wide. The smallest and the largest value are
 * exact, and so is a value that is alone in its bin, even if repeated. Each other value is counted at another place in its bin.
 *
 * { percentile }: off by at most 2^-10 of the percentile. 'mse': with types of up to 8 bits, the squared error is at most 1 % above that of
 * the parameters which `quantize` finds for all values at once. With 16 bits, whose steps are narrower than the bins, 'mse' is 'min-max'.
 * 'entropy': the threshold for values that moved by less than 2^-10 of themselves; may differ from that of `quantize` if thresholds have
 * nearly the same divergence.
 */
export class Observer {
  readonly #core: Core;
  readonly #options: ObserverOptions;
  #histogram: ValueHistogram | undefined;
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
      throw rangeError('range', searchedRangeForm, range);
    }
    if (averaging !== undefined) {
      checkNumber(averaging, 'averaging');
      if (!(averaging > 0 && averaging <= 1)) {
        throw rangeError('averaging', { kind: 'number', above: 0, max: 1 }, averaging);
      }
      if (range !== 'min-max') throw rangeError('averaging', onlyWith('range', 'min-max'), range);
    }
    this.#core = core;
    this.#options = { ...options };
    // Fail now on wrong options, not after all batches.
    this.parameters();
  }

  /** Number of finite values observed so far. */
  get count(): number {
    return this.#seen;
  }

  /**
   * Observes a batch.
   * @throws TypeError or RangeError naming the argument; ScalepointError `NON_FINITE` unless `nonFinite` is 'saturate': the batch is then
   *   ignored; `DISPOSED`
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
    if (range !== 'min-max') this.#histogram ??= new ValueHistogram();
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

  /** Finds the range of the finite values of a batch, and adds the values to the histogram, if any. */
  #see(source: Source): BatchRange {
    const core = this.#core;
    const histogram = this.#histogram;
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
        histogram?.add(HEAPU32[i] as number);
      }
    });
    return { min, max, count };
  }

  /**
   * Chooses scale and zero point for all observed values, as `quantize` does for one array of them. Before the first value, those of an
   * empty array.
   * @throws ScalepointError `OUT_OF_MEMORY`, `DISPOSED`
   */
  parameters(): QuantizationParameters {
    const { averaging: _, ...options } = this.#options;
    const histogram = this.#histogram;
    const job = jobOf(options, 0);
    let ends = this.#ends();
    if (job.range.kind === 'search' && histogram !== undefined) {
      const { method, percentile } = job.range.search;
      if (method === RangeMethod.percentile) {
        const pairs = this.#pairs(histogram);
        const symmetric = job.spec.scheme === Scheme.symmetric;
        const high = this.#percentile(pairs, percentile / 100, symmetric ? Math.abs : Number);
        ends = Float32Array.of(symmetric ? -high : this.#percentile(pairs, 1 - percentile / 100, Number), high);
      } else if (method === RangeMethod.entropy || job.info.bits <= 8) {
        return this.#search(histogram, job, method);
      }
    }
    return chooseParameters(this.#core, ends, { ...options, range: 'min-max' });
  }

  /** The smallest and the largest value, which stand for all values. */
  #ends(): Float32Array {
    return this.#seen === 0 ? new Float32Array(0) : Float32Array.of(this.#min, this.#max);
  }

  /** Finds parameters for the values of the histogram. */
  #search(histogram: ValueHistogram, { layout, spec }: Job, method: RangeMethod): QuantizationParameters {
    const core = this.#core;
    const pairs = this.#pairs(histogram);
    return withParameters(core, layout, spec, ({ job, scale, zeroPoint }) => {
      const bytes = core.withRecord(LayoutRecord, layout, (at) => core.module.searchScratchBytes(at, 0));
      core.withMemory(bytes + pairs.length * 4, (scratch) => {
        const at = scratch + bytes;
        core.module.HEAPF32.set(pairs, at / 4);
        const n = pairs.length / 2;
        checkStatus(core.module._searchWeighted(job, at, n, method, scratch, bytes));
      });
      const { HEAPF32, HEAP32 } = core.module;
      return {
        scale: HEAPF32.slice(scale / 4, scale / 4 + 1),
        zeroPoint: HEAP32.slice(zeroPoint / 4, zeroPoint / 4 + 1),
      };
    });
  }

  /** Pairs of a value and its count, in the order of magnitudes, and then both ends. */
  #pairs(histogram: ValueHistogram): number[] {
    const { counts } = histogram;
    const ends = [this.#min, this.#max];
    const pairs: number[] = [];
    const change = (by: number) => {
      for (const bin of ends.map(binOf)) counts[bin] = (counts[bin] as number) + by;
    };
    change(-1);
    for (let i = 0; i < 2 * half; i++) {
      // Visit the bins of both signs in turns.
      const bin = (i >> 1) + (i & 1) * half;
      const count = counts[bin] as number;
      if (count === 0) continue;
      const values = histogram.standIns(bin);
      values.forEach((value, j) => {
        const [before, after] = [j, j + 1].map((n) => Math.floor((n * count) / values.length)) as [number, number];
        pairs.push(Math.max(this.#min, Math.min(this.#max, value)), after - before);
      });
    }
    change(1);
    return pairs.concat(ends.flatMap((end) => [end, 1]));
  }

  /** A percentile of the values, or of their magnitudes, by linear interpolation between two of them. */
  #percentile(pairs: readonly number[], share: number, of: (value: number) => number): number {
    const sorted = Array.from({ length: pairs.length / 2 }, (_, i) => [of(pairs[2 * i]!), pairs[2 * i + 1]!] as const);
    sorted.sort(([a], [b]) => a - b);
    const place = share * (this.#seen - 1);
    const rank = Math.floor(place);
    let before = 0;
    let low: number | undefined;
    for (const [value, count] of sorted) {
      before += count;
      if (rank < before) low ??= value;
      if (low !== undefined && rank + 1 < before) return low + (place - rank) * (value - low);
    }
    return low as number;
  }

  /** Forgets all observed values. */
  reset(): void {
    this.#histogram = undefined;
    this.#min = Infinity;
    this.#max = -Infinity;
    this.#seen = 0;
  }
}
