// Errors of an array in parts, and of many settings at once.

import { ErrorSums, Granularity, Layout as LayoutRecord, LinearJob, Status } from '../core/door.js';
import { type ErrorMeasures, measuresOf, sumCount } from '../core/measure.js';
import { type Core, checkStatus, tileSize } from '../core/memory.js';
import type { Job } from './options.js';
import { forEachTile, type Source } from './source.js';
import type { Layout } from './tensor.js';

const half = tileSize / 2;

/** Leaves the floats [start, start + count) that x is held against somewhere and gives their address; count <= tileSize / 2. */
export type Restore = (start: number, count: number) => number;

/** Floats of codes, in the second half of the second scratch tile: the codes may be in its first half. */
export function restoreInto(core: Core): number {
  return core.scratch.y + half * 4;
}

/** The measures of each parameter of a layout, from sums that each tile adds to. */
export function measureEach(core: Core, source: Source, layout: Layout, restored: Restore): ErrorMeasures[] {
  const { parameters } = layout;
  const bytes = parameters * ErrorSums.bytes;
  const measure = (sums: number, record: number) => {
    core.module.HEAPU8.fill(0, sums, sums + bytes);
    // Tiles of one size whatever the source is: their ends show in the last bits of float32 sums.
    forEachTile(
      source.length,
      false,
      (start, count) => {
        const y = restored(start, count);
        const x = source.at(start, count);
        checkStatus(core.module.accumulateErrorEach(record, x, y, count, start, sums, parameters));
      },
      half,
    );
    const all = core.module.HEAPF64.slice(sums / 8, (sums + bytes) / 8);
    return Array.from({ length: parameters }, (_, p) =>
      measuresOf(all.subarray(p * sumCount, (p + 1) * sumCount), sizeOf(layout, p)),
    );
  };
  return core.withRecord(LayoutRecord, layout, (record) => core.withMemory(bytes, (sums) => measure(sums, record)));
}

/** Number of elements of a parameter. */
function sizeOf({ size, granularity, axisSize, innerSize, groupSize }: Layout, parameter: number): number {
  if (granularity === Granularity.perTensor) return size;
  if (granularity === Granularity.perChannel) return size / axisSize;
  const group = Math.floor(parameter / innerSize) % Math.ceil(axisSize / groupSize);
  return Math.min(groupSize, axisSize - group * groupSize);
}

/** Finds the parameters of a job at these addresses. */
type FindParameters = (
  job: Job,
  at: { job: number; min: number; max: number; scale: number; zeroPoint: number },
) => void;

/** The measures of every job's codes: all parameters first, then each tile is read once for all of them. */
export function measureJobs(
  core: Core,
  source: Source,
  jobs: readonly Job[],
  find: FindParameters,
  fail: (status: Status, x: number, count: number, start: number) => never,
): ErrorMeasures[] {
  const addresses: number[] = [];
  try {
    const places = jobs.map((job) => {
      const n = job.layout.parameters;
      // The sums, the record, the scales and the zero points.
      const sums = core.allocate(ErrorSums.bytes + LinearJob.bytes + n * 8);
      addresses.push(sums);
      core.module.HEAPU8.fill(0, sums, sums + ErrorSums.bytes);
      const record = sums + ErrorSums.bytes;
      const scale = record + LinearJob.bytes;
      const zeroPoint = scale + n * 4;
      LinearJob.write(core.module, record, { ...job, scale, zeroPoint, parameters: n });
      core.withMemory(n * 8, (min) => find(job, { job: record, min, max: min + n * 4, scale, zeroPoint }));
      return { sums, record };
    });
    forEachTile(source.length, false, (start, count) => {
      const x = source.at(start, count);
      for (const { sums, record } of places) {
        const status = core.module.quantizeLinearMeasured(record, x, count, start, core.scratch.y, sums);
        if (status !== Status.ok) fail(status, x, count, start);
      }
    });
    return places.map(({ sums }) =>
      measuresOf(core.module.HEAPF64.slice(sums / 8, sums / 8 + sumCount), source.length),
    );
  } finally {
    for (const address of addresses) core.release(address);
  }
}
