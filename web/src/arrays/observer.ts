// Calibration: chooses scale and zero point for values that arrive in batches, in bounded memory.
import { bindMethods } from '../core/bind.js';
import { checkKindMembers, checkNumber, checkShape } from '../core/check.js';
import { LayoutRecord, RangeMethodId, SchemeId } from '../core/door.js';
import { rangeError, ScalepointError } from '../core/errors.js';
import { type Core, checkStatus, forEachTile } from '../core/memory.js';
import { exactly, oneOf, onlyWith, without } from '../core/option-problem.js';
import { type SearchedRange, searchedRangeForm, searchOf } from '../core/range.js';
import { checkOptionsOf, granularityKinds, rangeForms } from './calls.js';
import { type Job, jobOf, layoutOf, resolveGranularity } from './job.js';
import type { NewParameters, QuantizeOptions } from './options.js';
import { chooseParameters, observeRange, withParameters, writable } from './parameters.js';
import { type FloatInput, type HalfFormat, type Source, sourceOf } from './source.js';
import type { Granularity } from './tensor.js';

/** Options of `observer`: those that decide scale and zero point. */
export interface ObserverOptions
  extends Pick<QuantizeOptions, 'dtype' | 'scheme' | 'includeZero' | 'symmetricRange' | 'nonFinite'> {
  /**
   * Values that share one scale and zero point: all, or those of an index of an axis of the batches. 'per-channel' takes the range 'min-max'.
   * @defaultValue { kind: 'per-tensor' }
   */
  granularity?: Exclude<Granularity, { readonly kind: 'per-group' }> | undefined;
  /** Method that finds the range of all batches; see `Range`. @defaultValue 'min-max' */
  range?: 'min-max' | SearchedRange | undefined;
  /**
   * With 'min-max': each further batch moves the range by this fraction towards its own, as in PyTorch's MovingAverageMinMaxObserver with
   * 0.01.
   * @defaultValue the range of all batches
   */
  averaging?: number | undefined;
}

/** Options of `Observer.observe`. */
export interface ObserveOptions {
  /** Shape of the batch, for an observer per channel. @defaultValue that of x if it has one, or [length] */
  shape?: readonly number[] | undefined;
  /** x is a Uint16Array of the bits of such floats. */
  from?: HalfFormat | undefined;
}

/** Members of `granularity` by its kind. */
const { 'per-group': _, ...kinds } = granularityKinds;

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

/** The smallest and the largest value of each channel. */
interface Ends {
  readonly min: Float32Array;
  readonly max: Float32Array;
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
    this.counts[bin]!++;
    const low = (bits & lowBits) + 1;
    const known = this.#only[bin];
    if (known !== low) this.#only[bin] = known === 0 ? low : several;
  }

  /** Calls `take` with stand-ins for the values of a bin, and with the number of values of each, which is about the same for all. */
  forStandIns(bin: number, take: (value: number, count: number) => void): void {
    const { [bin]: low = 0 } = this.#only;
    const { [bin]: count = 0 } = this.counts;
    edgeBits[0] = (bin << binShift) | (low < several ? low - 1 : 0);
    edgeBits[1] = edgeBits[0] | lowBits;
    const [from = 0, to = 0] = edge;
    if (low < several) {
      take(from, count);
      return;
    }
    const values = Math.min(count, mostOfBin);
    let before = 0;
    for (let j = 0; j < values; j++) {
      const after = Math.floor(((j + 1) * count) / values);
      take(from + ((to - from) * (j + 0.5)) / values, after - before);
      before = after;
    }
  }
}

/**
 * Observes batches, and chooses scale and zero point for all values together, or for each channel. Made by `sp.observer()`.
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
  /** The smallest and the largest finite value of each channel; undefined before the first batch with a finite value. */
  #ends: Ends | undefined;
  #seen = 0;

  /** @internal */
  constructor(core: Core, options: ObserverOptions) {
    checkOptionsOf('observer', options);
    const { range = 'min-max', averaging, granularity } = options;
    if (typeof range === 'object' && searchOf(range, rangeForms) === undefined) {
      throw rangeError('range', searchedRangeForm, range);
    }
    if (averaging !== undefined) {
      checkNumber(averaging, 'averaging', { kind: 'number', above: 0, max: 1 });
      if (range !== 'min-max') throw rangeError('averaging', onlyWith('range', 'min-max'), range);
    }
    // Fail now on wrong options, not after all batches. The size of the axis is known with the first one.
    jobOf(this.#jobOptions(options), 0);
    const given = (granularity as { readonly kind?: unknown } | null | undefined)?.kind;
    if (given === 'per-group') throw rangeError('granularity.kind', oneOf(Object.keys(kinds)), given);
    const kind =
      granularity === undefined
        ? 'per-tensor'
        : checkKindMembers(granularity, kinds['per-channel'], kinds, 'granularity');
    if (kind === 'per-channel' && range !== 'min-max') {
      throw rangeError('range', without('granularity.kind', kind), range);
    }
    this.#core = core;
    this.#options = { ...options };
    bindMethods(this);
  }

  /** The options for all values together. */
  #jobOptions({ averaging: _, granularity: __, ...options }: ObserverOptions): QuantizeOptions {
    return options;
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
  observe(x: FloatInput, options: ObserveOptions = {}): void {
    checkOptionsOf('observe', options);
    const core = this.#core;
    const source = sourceOf(core, x, options.from, 'x');
    const { nonFinite, range = 'min-max', granularity } = this.#options;
    const shape = checkShape(options.shape ?? source.shape, source.length);
    const layout = layoutOf(resolveGranularity(granularity, shape), shape, source.length);
    const channels = this.#ends?.min.length ?? layout.parameters;
    if (layout.parameters !== channels) throw rangeError('shape', exactly(channels, 'channels'), layout.parameters);
    // Find the range of each channel. This fails before anything changes.
    const { spec } = jobOf(this.#jobOptions(this.#options), 0);
    const batch = withParameters(core, layout, spec, (at) => {
      observeRange(core, source, layout, at);
      const read = (from: number) => core.module.HEAPF32.slice(from / 4, from / 4 + channels);
      return { min: read(at.min), max: read(at.max) };
    });
    // Count the values, one by one if they are needed or may be left out.
    if (range !== 'min-max') this.#histogram ??= new ValueHistogram();
    const all = this.#histogram === undefined && nonFinite !== 'saturate';
    const count = all ? source.length : this.#see(source);
    if (count === 0) return;
    this.#seen += count;
    if (this.#ends === undefined) this.#ends = batch;
    else this.#widen(this.#ends, batch);
  }

  /** Widens the range of each channel, or moves it, by that of a batch. */
  #widen({ min, max }: Ends, batch: Ends): void {
    const { averaging } = this.#options;
    for (const [i, low] of batch.min.entries()) {
      const [high, oldLow, oldHigh] = [batch.max[i], min[i], max[i]] as [number, number, number];
      // Channels without finite values have no range.
      if (!(low <= high)) continue;
      if (averaging !== undefined && oldLow <= oldHigh) {
        min[i] = oldLow + averaging * (low - oldLow);
        max[i] = oldHigh + averaging * (high - oldHigh);
      } else {
        min[i] = Math.min(oldLow, low);
        max[i] = Math.max(oldHigh, high);
      }
    }
  }

  /** Counts the finite values of a batch, and adds them to the histogram, if any. */
  #see(source: Source): number {
    const core = this.#core;
    const histogram = this.#histogram;
    let count = 0;
    forEachTile(source.length, false, (start, size) => {
      const at = source.at(start, size) / 4;
      const { HEAPF32, HEAPU32 } = core.module;
      for (let i = at; i < at + size; i++) {
        if (!Number.isFinite(HEAPF32[i])) continue;
        count++;
        histogram?.add(HEAPU32[i] as number);
      }
    });
    return count;
  }

  /**
   * Chooses scale and zero point, as `quantize` does for one array of all observed values. `JSON.stringify` writes them, and the option
   * `range` takes them back.
   * @throws ScalepointError `EMPTY` before the first finite value; `OUT_OF_MEMORY`, `DISPOSED`
   */
  parameters(): NewParameters {
    const ends = this.#ends;
    if (ends === undefined) throw new ScalepointError('EMPTY', 'the observer has seen no finite value');
    const options = this.#jobOptions(this.#options);
    const histogram = this.#histogram;
    const job = jobOf(options, 0);
    let { min, max }: Ends = ends;
    if (job.range.kind === 'search' && histogram !== undefined) {
      const { method, percentile } = job.range.search;
      if (method === RangeMethodId.percentile) {
        const pairs = this.#pairs(histogram, ends);
        const symmetric = job.spec.scheme === SchemeId.symmetric;
        const high = this.#percentile(pairs, percentile / 100, symmetric ? Math.abs : Number);
        min = Float32Array.of(symmetric ? -high : this.#percentile(pairs, 1 - percentile / 100, Number));
        max = Float32Array.of(high);
      } else if (method === RangeMethodId.entropy || job.info.bits <= 8) {
        return this.#search(this.#pairs(histogram, ends), job, method);
      }
    }
    // The ends of each channel stand for its values. Channels without finite values have infinite ends, which do not count.
    const values = Float32Array.from(Array.from(min, (low, i) => [low, max[i] ?? NaN]).flat());
    return chooseParameters(this.#core, values, {
      ...options,
      shape: [min.length, 2],
      granularity: { kind: 'per-channel', axis: 0 },
      range: 'min-max',
      nonFinite: 'saturate',
    });
  }

  /** Finds parameters for the values of the histogram. */
  #search(pairs: readonly number[], { layout, spec }: Job, method: RangeMethodId): NewParameters {
    const core = this.#core;
    return withParameters(core, layout, spec, ({ job, scale, zeroPoint }) => {
      const bytes = core.withRecord(LayoutRecord, layout, (at) => core.module.searchScratchBytes(at, 0, false));
      core.withMemory(bytes + pairs.length * 4, (scratch) => {
        const at = scratch + bytes;
        core.module.HEAPF32.set(pairs, at / 4);
        const n = pairs.length / 2;
        checkStatus(core.module._searchWeighted(job, at, n, method, scratch, bytes));
      });
      const { HEAPF32, HEAP32 } = core.module;
      return writable(HEAPF32.slice(scale / 4, scale / 4 + 1), HEAP32.slice(zeroPoint / 4, zeroPoint / 4 + 1));
    });
  }

  /** Pairs of a value and its count, in the order of magnitudes, and then both ends. */
  #pairs(histogram: ValueHistogram, { min: [min = 0], max: [max = 0] }: Ends): number[] {
    const { counts } = histogram;
    const ends = [min, max];
    const pairs: number[] = [];
    edge.set(ends);
    const bins = Array.from(edgeBits, (bits) => bits >>> binShift);
    const change = (by: number) => {
      for (const bin of bins) counts[bin]! += by;
    };
    const take = (value: number, count: number) => pairs.push(Math.max(min, Math.min(max, value)), count);
    change(-1);
    for (let i = 0; i < 2 * half; i++) {
      // Visit the bins of both signs in turns.
      const bin = (i >> 1) + (i & 1) * half;
      if (counts[bin] !== 0) histogram.forStandIns(bin, take);
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
    let low = NaN;
    for (const [value, count] of sorted) {
      if (before <= rank) low = value;
      before += count;
      if (rank + 1 < before) return low + (place - rank) * (value - low);
    }
    return low;
  }

  /** Forgets all observed values. */
  reset(): void {
    this.#histogram = undefined;
    this.#ends = undefined;
    this.#seen = 0;
  }
}
