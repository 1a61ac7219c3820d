import type { Scalepoint } from 'scalepoint';
import type { Bins } from '../shared/charts.js';
import { statisticsOf } from './data.js';

/** Most codes of a bar whose counts are listed one by one. */
export const mostShares = 4;

/** A histogram that knows which codes the numbers of each bar became. */
export interface Bars extends Bins {
  /** The lowest and the highest code of each bar. Meaningless where the bar is empty. Absent if nothing was quantized. */
  readonly codes?: {
    readonly first: Int32Array;
    readonly last: Int32Array;
    /** For each bar the counts of its first `mostShares` codes. */
    readonly shares: Uint32Array;
  };
}

/** Histogram of the finite numbers; undefined without any. Numbers that are all equal get a single bin. */
export function binsOf(core: Scalepoint, values: Float32Array, bins: number): Bins | undefined {
  const { min, max, notFinite } = statisticsOf(values);
  const finite = values.length - notFinite;
  if (finite === 0) return undefined;
  if (min === max) return { min, max, counts: [finite] };
  const { counts } = core.histogram(values, { bins, min, max });
  return { min, max, counts };
}

/** The bin of each number; -1 for those that are not finite. */
function binOf(values: Float32Array, { min, max, counts }: Bins): Int32Array {
  const bins = counts.length;
  const perUnit = bins / (max - min);
  return Int32Array.from(values, (x) => {
    if (!Number.isFinite(x)) return -1;
    return max > min ? Math.max(0, Math.min(bins - 1, Math.floor((x - min) * perUnit))) : 0;
  });
}

/** The histogram of a part with the codes of each bar. Rounding never changes the order of numbers, so a bar's codes are neighbors. */
export function barsOf(
  core: Scalepoint,
  values: Float32Array,
  codes: ArrayLike<number> | undefined,
  bins: number,
): Bars | undefined {
  const found = binsOf(core, values, bins);
  if (found === undefined || codes === undefined) return found;
  const at = binOf(values, found);
  const { length } = found.counts;
  const first = new Int32Array(length).fill(2 ** 31 - 1);
  const last = new Int32Array(length).fill(-(2 ** 31));
  for (let i = 0; i < at.length; i++) {
    const bin = at[i]!;
    if (bin < 0) continue;
    const code = codes[i]!;
    if (code < first[bin]!) first[bin] = code;
    if (code > last[bin]!) last[bin] = code;
  }
  const counts = new Uint32Array(length);
  const shares = new Uint32Array(length * mostShares);
  for (let i = 0; i < at.length; i++) {
    const bin = at[i]!;
    if (bin < 0) continue;
    counts[bin] = counts[bin]! + 1;
    const nth = codes[i]! - first[bin]!;
    if (nth < mostShares) shares[bin * mostShares + nth] = shares[bin * mostShares + nth]! + 1;
  }
  return { ...found, counts, codes: { first, last, shares } };
}
