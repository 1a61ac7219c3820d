// Quantizes floats to integers with scales and zero points.
import { checkBoolean, checkKeys } from '../core/check.js';
import { QuantizationSpecRecord, StatusId, stepSize } from '../core/door.js';
import { rangeError, typeError } from '../core/errors.js';
import type { OutputErrors } from '../core/measure.js';
import { type Core, forEachTile, isModelsModule, tileParameters, tileSize } from '../core/memory.js';
import { type Expected, mention, ofType, onlyWith } from '../core/option-problem.js';
import { OwnedWasmArray, type WasmArray } from '../core/wasm-array.js';
import { callOptions } from './calls.js';
import { ErrorSum, withSums } from './error-sum.js';
import { type Job, jobOf, type Runs, runsOf } from './job.js';
import type { QuantizeOptions } from './options.js';
import { PackedSink } from './pack.js';
import { failQuantizing, findParameters, withParameters } from './parameters.js';
import { checkApart, Sink, type Sinks } from './sink.js';
import { type FloatInput, type Source, sourceOf, withResident, withWhole } from './source.js';
import { type CodeArray, type LinearQuantizedTensor, plain } from './tensor.js';

type QuantizeByMoments = typeof import('./moments.js').quantizeByMoments;
let byMoments: QuantizeByMoments | undefined;

/** Loads the code for `moments`, which is apart from the rest because only the large module has its calls. */
export async function loadMoments(): Promise<void> {
  const { quantizeByMoments } = await import('./moments.js');
  byMoments = quantizeByMoments;
}

const outNames = ['data', 'scale', 'zeroPoint'];

/** Values of the option `out`. */
const outForm: Expected = {
  kind: 'anyOf',
  of: [ofType('typed array', 'WasmArray'), { kind: 'object', keys: outNames }],
};

/** See Scalepoint.quantize. */
export function quantizeLinear(core: Core, x: FloatInput, options: QuantizeOptions): LinearQuantizedTensor {
  checkKeys(options, callOptions.quantize, '', callOptions);
  const source = sourceOf(core, x, options.from, 'x');
  const job = jobOf(options, source.length, source.shape);
  const { info, layout } = job;
  // Make the outputs, or take those given.
  const { out, moments } = options;
  // A single array is that of the codes.
  const isArray = typeof out !== 'object' || out === null || ArrayBuffer.isView(out) || out instanceof OwnedWasmArray;
  if (!isArray && !Array.isArray(out)) checkKeys(out, outNames, 'out');
  if (!isArray && !('data' in out)) throw typeError('out', outForm, out);
  const places: { data?: unknown; scale?: unknown; zeroPoint?: unknown } = isArray ? { data: out } : out;
  const { data, scale: ownScale, zeroPoint: ownZeroPoint } = places;
  const dataName = isArray ? 'out' : 'out.data';
  const packed = options.packed !== undefined && checkBoolean(options.packed, 'packed');
  const codes = packed
    ? new PackedSink(core, info, source.length, data, dataName)
    : new Sink(core, info.storage, source.length, data, dataName);
  const scale = new Sink(core, 'float32', layout.parameters, ownScale, 'out.scale');
  const zeroPoint = new Sink(core, 'int32', layout.parameters, ownZeroPoint, 'out.zeroPoint');
  // Refuse memory that overlaps.
  checkApart(x, data, dataName);
  checkApart(x, ownScale, 'out.scale');
  checkApart(x, ownZeroPoint, 'out.zeroPoint');
  checkApart(data, ownScale, 'out.scale', dataName);
  checkApart(data, ownZeroPoint, 'out.zeroPoint', dataName);
  checkApart(ownScale, ownZeroPoint, 'out.zeroPoint', 'out.scale');
  const { errors } = options;
  if (errors !== undefined && !(errors instanceof ErrorSum)) {
    throw typeError('errors', { kind: 'returnedBy', call: 'sp.errorSum()' }, errors);
  }
  // Quantize in the fewest passes that the range allows.
  const sinks = { codes, scale, zeroPoint };
  const runs = job.range.kind === 'min-max' && source.length > 0 ? runsOf(layout) : undefined;
  let output: OutputErrors | undefined;
  if (moments === undefined) {
    const other = options.damping === undefined ? options.order && 'order' : 'damping';
    if (other !== undefined) throw rangeError(other, onlyWith('moments'));
  }
  if (moments !== undefined) {
    if (!isModelsModule(core.module) || byMoments === undefined) {
      throw rangeError('moments', { kind: 'absent' }, moments, {
        kind: 'load',
        option: mention('blocks', true),
      });
    }
    output = byMoments(core, source, job, { ...options, moments }, sinks, errors);
  } else if (errors !== undefined) quantizeMeasured(core, source, job, sinks, errors);
  else if (runs !== undefined && runs.run <= tileSize) quantizeRuns(core, source, job.spec, runs, sinks);
  else quantizeInPasses(core, source, job, sinks, undefined);
  const q: { -readonly [K in keyof LinearQuantizedTensor]: LinearQuantizedTensor[K] } = {
    kind: 'linear',
    dtype: info.name,
    shape: job.shape,
    granularity: job.granularity,
    data: codes.result as CodeArray | WasmArray,
    scale: scale.result as Float32Array,
    zeroPoint: zeroPoint.result as Int32Array,
  };
  if (packed) q.packed = true;
  if (output !== undefined) q.output = output;
  return plain(q);
}

/** Quantizes in one pass over tiles of whole runs. Makes range, parameters and codes of a run while it is in the cache. */
function quantizeRuns(
  core: Core,
  source: Source,
  spec: QuantizationSpecRecord,
  { line, run }: Runs,
  { codes, scale, zeroPoint }: Sinks,
): void {
  const { scratch } = core;
  const n = source.length;
  const most = Math.min(Math.max(stepSize, run), tileParameters * run);
  const lines = Math.floor(most / line);
  const runsPerLine = Math.ceil(line / run);
  // Take whole lines if a line and its parameters fit; otherwise whole runs within a line.
  const whole = lines >= 1 && runsPerLine <= tileParameters;
  const linesAtATime = whole ? Math.min(lines, Math.max(1, Math.floor(tileParameters / runsPerLine))) : 1;
  const step = whole ? linesAtATime * line : Math.max(1, Math.floor(most / run)) * run;
  const record = core.pushRecord(QuantizationSpecRecord, spec);
  try {
    for (let start = 0, parameter = 0; start < n; ) {
      const count = whole ? Math.min(step, n - start) : Math.min(step, line - (start % line));
      const used = whole ? (count / line) * runsPerLine : Math.ceil(count / run);
      // Quantize a tile.
      const x = source.at(start, count);
      const status = core.module._quantizeRuns(
        record,
        x,
        count,
        whole ? line : count,
        run,
        scratch.scale,
        scratch.zeroPoint,
        codes.at(start, scratch.y),
      );
      if (status !== StatusId.ok) failQuantizing(core, source, status, { x, count, start });
      // Copy its results to the sinks.
      codes.put(start, count, scratch.y);
      scale.copy(parameter, used, scratch.scale);
      zeroPoint.copy(parameter, used, scratch.zeroPoint);
      start += count;
      parameter += used;
    }
  } finally {
    core.popRecord(record);
  }
}

/** Quantizes, and adds the errors of the codes to a sum. */
function quantizeMeasured(core: Core, source: Source, job: Job, sinks: Sinks, errors: ErrorSum): void {
  errors.collect((sums) => {
    withSums(core, sums, (at) => quantizeInPasses(core, source, job, sinks, at));
    return source.length;
  });
}

/**
 * Quantizes with any layout and range: first finds the parameters, then makes the codes. Adds their errors to the sums at an address, if
 * given.
 */
function quantizeInPasses(core: Core, given: Source, job: Job, sinks: Sinks, sums: number | undefined): void {
  const { codes, scale, zeroPoint } = sinks;
  const tile = core.scratch.y;
  const passes = (source: Source) =>
    withParameters(core, job.layout, job.spec, (at) => {
      findParameters(core, source, job, at);
      scale.copy(0, scale.length, at.scale);
      zeroPoint.copy(0, zeroPoint.length, at.zeroPoint);
      forEachTile(source.length, source.inPlace && codes.address !== undefined, (start, count) => {
        const x = source.at(start, count);
        const to = codes.at(start, tile);
        const status =
          sums === undefined
            ? core.module._quantizeLinear(at.job, x, count, start, to)
            : core.module._quantizeLinearMeasured(at.job, x, count, start, to, sums);
        if (status !== StatusId.ok) failQuantizing(core, source, status, { x, count, start });
        codes.put(start, count, tile);
      });
    });
  if (job.range.kind === 'search') withWhole(core, given, passes);
  else if (job.range.kind === 'min-max') withResident(core, given, passes);
  else passes(given);
}
