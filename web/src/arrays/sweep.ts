// Errors of an array in parts, and of many settings at once.

import { type ErrorMeasures, measuresOf, sumCount } from '../core/measure.js';
import { type Core, checkStatus, tileSize } from '../core/wasm.js';
import { forEachTile, type Source } from './array.js';
import type { Job } from './options.js';
import type { Layout } from './tensor.js';

/** Bytes of the sums of one parameter. */
const sumBytes = sumCount * 8;
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
  return core.withMemory(parameters * sumBytes, (sums) => {
    core.module.HEAPU8.fill(0, sums, sums + parameters * sumBytes);
    // Tiles of one size whatever the source is: their ends show in the last bits of float32 sums.
    forEachTile(
      source.length,
      false,
      (start, count) => {
        const y = restored(start, count);
        const x = source.at(start, count);
        const status = core.module.accumulateErrorEach(x, y, count, ...layout.numbers, start, sums, parameters);
        checkStatus(status);
      },
      half,
    );
    const all = core.module.HEAPF64.slice(sums / 8, (sums + parameters * sumBytes) / 8);
    return Array.from({ length: parameters }, (_, p) =>
      measuresOf(all.subarray(p * sumCount, (p + 1) * sumCount), sizeOf(layout, p)),
    );
  });
}

/** Number of elements of a parameter. */
function sizeOf({ size, numbers }: Layout, parameter: number): number {
  const [kind, axisSize, innerSize, groupSize] = numbers;
  if (kind !== 2) return kind === 0 ? size : size / axisSize;
  const group = Math.floor(parameter / innerSize) % Math.ceil(axisSize / groupSize);
  return Math.min(groupSize, axisSize - group * groupSize);
}

/** Finds the parameters of a job at these addresses. */
type FindParameters = (job: Job, at: { min: number; max: number; scale: number; zeroPoint: number }) => void;

/** The measures of every job's codes: all parameters first, then each tile is read once for all of them. */
export function measureJobs(
  core: Core,
  source: Source,
  jobs: readonly Job[],
  find: FindParameters,
  fail: (status: number, x: number, count: number, start: number) => never,
): ErrorMeasures[] {
  const addresses: number[] = [];
  try {
    const places = jobs.map((job) => {
      const n = job.layout.parameters;
      const sums = core.allocate(64 + n * 8);
      addresses.push(sums);
      core.module.HEAPU8.fill(0, sums, sums + 64);
      const scale = sums + 64;
      const zeroPoint = scale + n * 4;
      core.withMemory(n * 8, (min) => find(job, { min, max: min + n * 4, scale, zeroPoint }));
      return { sums, scale, zeroPoint };
    });
    forEachTile(source.length, false, (start, count) => {
      const x = source.at(start, count);
      for (const [i, { layout, spec }] of jobs.entries()) {
        const { sums, scale, zeroPoint } = places[i] as (typeof places)[number];
        const status = core.module.quantizeLinearMeasured(
          x,
          count,
          ...layout.numbers,
          start,
          scale,
          zeroPoint,
          layout.parameters,
          spec,
          core.scratch.y,
          sums,
        );
        if (status !== 0) fail(status, x, count, start);
      }
    });
    return places.map(({ sums }) =>
      measuresOf(core.module.HEAPF64.slice(sums / 8, sums / 8 + sumCount), source.length),
    );
  } finally {
    for (const address of addresses) core.release(address);
  }
}
