// Scales and zero points in wasm memory: allocates and finds them.

import { LayoutRecord, LinearJobRecord, NonFiniteId, type QuantizationSpecRecord, StatusId } from '../core/door.js';
import { rangeError } from '../core/errors.js';
import { type Core, checkStatus, forEachTile, tileParameters } from '../core/memory.js';
import { checkOptionsOf } from './calls.js';
import { type Job, jobOf, type Layout, layoutOf, specOfDType } from './job.js';
import type { NewParameters, QuantizeOptions } from './options.js';
import { Sink } from './sink.js';
import { type FloatInput, type FloatTile, nonFiniteError, type Source, sourceOf, withWhole } from './source.js';
import { dtypeInfo } from './tensor.js';

/** Addresses in wasm memory. Each array has one element for each parameter of a layout. */
export interface Parameters {
  /** A LinearJobRecord of these scales and zero points. */
  readonly job: number;
  readonly scale: number;
  readonly zeroPoint: number;
  /** The bounds of ranges. */
  readonly min: number;
  readonly max: number;
}

/** Calls f with memory for the parameters of a layout. */
export function withParameters<T>(
  core: Core,
  layout: Layout,
  spec: QuantizationSpecRecord,
  f: (at: Parameters) => T,
): T {
  const n = layout.parameters;
  const use = (scale: number, zeroPoint: number, min: number, max: number) =>
    core.withRecord(LinearJobRecord, { layout, spec, scale, zeroPoint, parameters: n }, (job) =>
      f({ job, scale, zeroPoint, min, max }),
    );
  const { scale, zeroPoint } = core.scratch;
  const half = tileParameters * 2;
  if (n * 2 <= tileParameters) return use(scale, zeroPoint, scale + half, zeroPoint + half);
  return core.withMemory(n * 16, (at) => use(at, at + n * 4, at + n * 8, at + n * 12));
}

/** Throws the error for the status of a call over a tile. */
export function failQuantizing(core: Core, source: Source, status: StatusId, tile: FloatTile): never {
  if (status === StatusId.nonFinite) {
    const advice = "pass nonFinite: 'saturate' to quantize the rest and saturate such values";
    throw nonFiniteError(core, source, tile, advice);
  }
  checkStatus(status);
  throw new Error('scalepoint: unexpected status of the core');
}

/** Writes the parameters of a job to wasm memory. Searches need a source whose elements are all in wasm memory: that of withWhole. */
export function findParameters(core: Core, source: Source, { range, layout }: Job, at: Parameters): void {
  switch (range.kind) {
    case 'given':
      core.module.HEAPF32.set(range.scale, at.scale / 4);
      core.module.HEAP32.set(range.zeroPoint, at.zeroPoint / 4);
      return;
    case 'search': {
      const n = source.length;
      const { importance, search } = range;
      const columns = importance?.length ?? 0;
      const { module } = core;
      const bytes = core.withRecord(LayoutRecord, layout, (where) => module.searchScratchBytes(where, n, columns > 0));
      core.withMemory(bytes + 4 * columns, (scratch) => {
        const x = source.at(0, n);
        const weights = scratch + bytes;
        if (importance !== undefined) module.HEAPF32.set(importance, weights / 4);
        const status =
          columns > 0
            ? module._searchImportantQparams(at.job, x, n, weights, columns, scratch, bytes)
            : module.searchQparams(at.job, x, n, search.method, search.percentile, scratch, bytes);
        if (status !== StatusId.ok) failQuantizing(core, source, status, { x, count: n, start: 0 });
      });
      return;
    }
    case 'bounds':
      core.module.HEAPF32.set(range.min, at.min / 4);
      core.module.HEAPF32.set(range.max, at.max / 4);
      break;
    case 'min-max':
      observeRange(core, source, layout, at);
  }
  checkStatus(core.module._chooseQparams(at.job, at.min, at.max));
}

/** Writes the smallest and the largest value of each parameter to wasm memory. */
export function observeRange(core: Core, source: Source, layout: Layout, { job, min, max }: Parameters): void {
  core.module._clearRange(min, max, layout.parameters);
  forEachTile(source.length, source.inPlace, (start, count) => {
    const x = source.at(start, count);
    const status = core.module._observe(job, x, count, start, min, max);
    if (status !== StatusId.ok) failQuantizing(core, source, status, { x, count, start });
  });
}

/** The range of the finite values; [0, 0] without finite values. */
export function finiteRange(core: Core, source: Source): { readonly min: number; readonly max: number } {
  const layout = layoutOf({ kind: 'per-tensor' }, [source.length], source.length);
  const spec = { ...specOfDType(dtypeInfo('int8')), nonFinite: NonFiniteId.saturate };
  return withParameters(core, layout, spec, (at) => {
    observeRange(core, source, layout, at);
    const { [at.min / 4]: min = 0, [at.max / 4]: max = 0 } = core.module.HEAPF32;
    return min <= max ? { min, max } : { min: 0, max: 0 };
  });
}

/** Scales and zero points that `JSON.stringify` writes as lists of numbers, which the option `range` takes. */
export function writable(scale: Float32Array<ArrayBuffer>, zeroPoint: Int32Array<ArrayBuffer>): NewParameters {
  const toJSON = () => ({ scale: [...scale], zeroPoint: [...zeroPoint] });
  // A function among the members that are copied would keep the object from structuredClone and postMessage.
  return Object.defineProperty({ scale, zeroPoint }, 'toJSON', { value: toJSON });
}

/** See Scalepoint.chooseQuantizationParameters. */
export function chooseParameters(core: Core, x: FloatInput, options: QuantizeOptions): NewParameters {
  checkOptionsOf('quantize', options);
  if (options.moments !== undefined) throw rangeError('moments', { kind: 'absent' }, options.moments);
  const source = sourceOf(core, x, options.from, 'x');
  const job = jobOf(options, source.length, source.shape);
  const { layout, spec } = job;
  const scale = new Sink(core, 'float32', layout.parameters, undefined, 'scale');
  const zeroPoint = new Sink(core, 'int32', layout.parameters, undefined, 'zeroPoint');
  const find = (ready: Source) =>
    withParameters(core, layout, spec, (at) => {
      findParameters(core, ready, job, at);
      scale.copy(0, scale.length, at.scale);
      zeroPoint.copy(0, zeroPoint.length, at.zeroPoint);
    });
  if (job.range.kind === 'search') withWhole(core, source, find);
  else find(source);
  return writable(scale.result as Float32Array<ArrayBuffer>, zeroPoint.result as Int32Array<ArrayBuffer>);
}
