// The errors of many settings at once.

import { checkKeys, checkShape } from '../core/check.js';
import { ErrorSumsRecord, LinearJobRecord, SchemeId, StatusId } from '../core/door.js';
import { typeError, within } from '../core/errors.js';
import { type ErrorMeasures, measuresOf, sumCount } from '../core/measure.js';
import { type Core, forEachTile } from '../core/memory.js';
import { ofType } from '../core/option-problem.js';
import { callOptions, checkOptionsOf, variantNames } from './calls.js';
import { type Job, jobOf } from './job.js';
import type { QuantizeOptions } from './options.js';
import { failQuantizing, findParameters } from './parameters.js';
import { type FloatInput, type HalfFormat, type Source, sourceOf, withWhole } from './source.js';

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
  const measured = withWhole(core, source, (whole) => measureJobs(core, whole, jobs));
  return jobs.map((job, i) => ({ ...(measured[i] as ErrorMeasures), bitsPerNumber: bitsPerNumber(job) }));
}

const floatBits = 32;
const wideZeroPointBits = 32;

/** See SweepMeasures. */
function bitsPerNumber({ info, layout, spec, range }: Job): number {
  const narrow = spec.includeZero && range.kind !== 'given';
  const hasZeroPoints = spec.scheme === SchemeId.asymmetric || range.kind === 'given';
  const zeroPointBits = !hasZeroPoints ? 0 : narrow ? info.bits : wideZeroPointBits;
  return layout.size === 0 ? 0 : info.bits + (layout.parameters * (floatBits + zeroPointBits)) / layout.size;
}

/** A job in wasm memory: sums, record, scales and zero points, in one allocation. */
interface SweepAddresses {
  readonly sums: number;
  readonly record: number;
}

function writeJob(core: Core, source: Source, job: Job, sums: number): SweepAddresses {
  const { layout, spec } = job;
  const n = layout.parameters;
  const record = sums + ErrorSumsRecord.bytes;
  const scale = record + LinearJobRecord.bytes;
  const zeroPoint = scale + n * 4;
  core.module.HEAPU8.fill(0, sums, sums + ErrorSumsRecord.bytes);
  LinearJobRecord.write(core.module, record, { layout, spec, scale, zeroPoint, parameters: n });
  core.withMemory(n * 8, (min) =>
    findParameters(core, source, job, { job: record, scale, zeroPoint, min, max: min + n * 4 }),
  );
  return { sums, record };
}

/** Measures the codes of each job. First finds all parameters, then reads each tile once for all jobs. */
function measureJobs(core: Core, source: Source, jobs: readonly Job[]): ErrorMeasures[] {
  const allocated: number[] = [];
  try {
    const written = jobs.map((job) => {
      const sums = core.allocate(ErrorSumsRecord.bytes + LinearJobRecord.bytes + job.layout.parameters * 8);
      allocated.push(sums);
      return writeJob(core, source, job, sums);
    });
    forEachTile(source.length, false, (start, count) => {
      const x = source.at(start, count);
      for (const { sums, record } of written) {
        const status = core.module._quantizeLinearMeasured(record, x, count, start, core.scratch.y, sums);
        if (status !== StatusId.ok) failQuantizing(source, core, status, x, count, start);
      }
    });
    return written.map(({ sums }) =>
      measuresOf(core.module.HEAPF64.slice(sums / 8, sums / 8 + sumCount), source.length),
    );
  } finally {
    for (const address of allocated) core.release(address);
  }
}
