// Counts of equally wide bins.

import { checkNumber, checkWhole } from '../core/check.js';
import { rangeError } from '../core/errors.js';
import { type Core, checkStatus, forEachTile } from '../core/memory.js';
import { mention } from '../core/option-problem.js';
import { checkOptionsOf } from './calls.js';
import { checkBound } from './job.js';
import { finiteRange } from './parameters.js';
import { type FloatInput, type HalfFormat, sourceOf } from './source.js';

/** Options of `histogram`. */
export interface HistogramOptions {
  /** Number of bins, 1 to 2^20. @defaultValue 256 */
  bins?: number | undefined;
  /** Lower edge of the first bin. @defaultValue the smallest finite value */
  min?: number | undefined;
  /** Upper edge of the last bin, which belongs to it. @defaultValue the largest finite value */
  max?: number | undefined;
  /** The input is a Uint16Array of the bits of such floats. */
  from?: HalfFormat | undefined;
}

/** Counts of equally wide bins. Bin i holds the values in [min + i w, min + (i + 1) w), w = (max - min) / bins. NaN is not counted. */
export interface Histogram {
  /** Lower edge of the first bin. */
  readonly min: number;
  /** Upper edge of the last bin. */
  readonly max: number;
  /** Number of values in each bin. */
  readonly counts: Uint32Array<ArrayBuffer>;
  /** Number of values below min, -Infinity included. */
  readonly below: number;
  /** Number of values above max, Infinity included. */
  readonly above: number;
}

/** See Scalepoint.histogram. */
export function histogram(core: Core, x: FloatInput, options: HistogramOptions): Histogram {
  checkOptionsOf('histogram', options);
  const { bins = 256 } = options;
  checkWhole(bins, 'bins', 1, 2 ** 20);
  for (const name of ['min', 'max'] as const) {
    if (options[name] !== undefined) checkBound(checkNumber(options[name], name), name);
  }
  const source = sourceOf(core, x, options.from, 'x');
  const given = options.min !== undefined && options.max !== undefined;
  const found = given ? { min: 0, max: 0 } : finiteRange(core, source);
  const min = Math.fround(options.min ?? found.min);
  const max = Math.fround(options.max ?? found.max);
  if (min > max)
    throw rangeError('min', { kind: 'number', max }, min, { kind: 'with', options: [mention('max', max)] });
  return core.withMemory(bins * 4 + 16, (belowAbove) => {
    const counts = belowAbove + 16;
    core.module.HEAPU8.fill(0, belowAbove, counts + bins * 4);
    forEachTile(source.length, source.inPlace, (start, count) => {
      const piece = source.at(start, count);
      checkStatus(core.module._histogram(piece, count, min, max, counts, bins, belowAbove));
    });
    const { HEAPU32, HEAPF64 } = core.module;
    const { [belowAbove / 8]: below = 0, [belowAbove / 8 + 1]: above = 0 } = HEAPF64;
    const copy = HEAPU32.slice(counts / 4, counts / 4 + bins) as Uint32Array<ArrayBuffer>;
    return { min, max, counts: copy, below, above };
  });
}
