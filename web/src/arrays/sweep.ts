// The errors of many settings at once.

import { checkKeys, checkShape } from '../core/check.js';
import { ErrorSumsRecord, LinearJobRecord, SchemeId, StatusId } from '../core/door.js';
import { typeError, within } from '../core/errors.js';
import { type ErrorMeasures, measuresOf, sumCount } from '../core/measure.js';
import { type Core, forEachTile } from '../core/memory.js';
import { ofType } from '../core/option-problem.js';
import { callOptions, checkOptionsOf, variantNames } from './calls.js';
import { jobOf } from './job.js';
import type { QuantizeOptions } from './options.js';
import { failQuantizing, findParameters } from './parameters.js';
import { type FloatInput, type HalfFormat, sourceOf, withWhole } from './source.js';

/** A variant of `sweep`: options of `quantize`, without those about the input and the output. */
export type SweepVariant = Omit<
  QuantizeOptions,
  'shape' | 'from' | 'out' | 'errors' | 'packed' | 'moments' | 'damping' | 'order'
>;

/** Options of `sweep`. */
export interface SweepOptions {
  /** Its product is the number of elements. @defaultValue [length] */
  shape?: readonly number[] | undefined;
  /** The input is a Uint16Array of the bits of such floats. */
  from?: HalfFormat | undefined;
}

/** Results of `sweep` for a variant: its error, and its size. */
export interface SweepMeasures extends ErrorMeasures {
  /**
   * Stored bits per number: those of its code, and its share of the scales (float32) and of the zero points. Zero points take 0 bits in a
   * symmetric scheme, 32 bits if they may lie outside of the dtype, and otherwise as many as a code.
   */
  readonly bitsPerNumber: number;
}

const floatBits = 32;
const wideZeroPointBits = 32;

/** Offset of the record of a job from its sums. Scales and zero points follow it. */
const jobOffset = ErrorSumsRecord.bytes;

/** See Scalepoint.sweep. */
export function sweep(
  core: Core,
  x: FloatInput,
  variants: readonly SweepVariant[],
  options: SweepOptions,
): SweepMeasures[] {
  checkOptionsOf('sweep', options);
  if (!Array.isArray(variants)) throw typeError('variants', ofType('array'), variants);
  const source = sourceOf(core, x, options.from, 'x');
  const shape = checkShape(options.shape ?? source.shape, source.length);
  const jobs = (variants as readonly SweepVariant[]).map((variant, i) =>
    within(`variants[${i}]`, () => {
      checkKeys(variant, variantNames, '', { sweep: callOptions.sweep });
      return jobOf({ ...variant, shape }, source.length);
    }),
  );
  // Find all parameters, then read each tile once for all jobs.
  const { module } = core;
  const allocated: number[] = [];
  const measured = withWhole(core, source, (whole) => {
    try {
      for (const job of jobs) {
        const { layout, spec } = job;
        const n = layout.parameters;
        const sums = core.allocate(jobOffset + LinearJobRecord.bytes + n * 8);
        allocated.push(sums);
        const scale = sums + jobOffset + LinearJobRecord.bytes;
        const zeroPoint = scale + n * 4;
        module.HEAPU8.fill(0, sums, sums + jobOffset);
        LinearJobRecord.write(module, sums + jobOffset, { layout, spec, scale, zeroPoint, parameters: n });
        core.withMemory(n * 8, (min) => {
          const at = { job: sums + jobOffset, scale, zeroPoint, min, max: min + n * 4 };
          findParameters(core, whole, job, at);
        });
      }
      forEachTile(whole.length, false, (start, count) => {
        const from = whole.at(start, count);
        for (const sums of allocated) {
          const status = module._quantizeLinearMeasured(sums + jobOffset, from, count, start, core.scratch.y, sums);
          if (status !== StatusId.ok) failQuantizing(core, whole, status, { x: from, count, start });
        }
      });
      return allocated.map((sums) => measuresOf(module.HEAPF64.slice(sums / 8, sums / 8 + sumCount), whole.length));
    } finally {
      for (const address of allocated) core.release(address);
    }
  });
  return jobs.map(({ info, layout, spec, range }, i) => {
    const narrow = spec.includeZero && range.kind !== 'given';
    const hasZeroPoints = spec.scheme === SchemeId.asymmetric || range.kind === 'given';
    const zeroPointBits = !hasZeroPoints ? 0 : narrow ? info.bits : wideZeroPointBits;
    const parameterBits = (layout.parameters * (floatBits + zeroPointBits)) / layout.size;
    return { ...(measured[i] as ErrorMeasures), bitsPerNumber: layout.size === 0 ? 0 : info.bits + parameterBits };
  });
}
