// Quantizes a matrix by the second moments of its inputs, with the error feedback of GPTQ.
import { MatrixByMomentsRecord, MatrixCodesRecord, MomentsRecord, StatusId } from '../core/door.js';
import { outOfMemory, rangeError, ScalepointError, typeError } from '../core/errors.js';
import { factorOf } from '../core/factor.js';
import { addSums, measuresOf, type OutputErrors, sumCount } from '../core/measure.js';
import { type Core, checkStatus, forEachTile } from '../core/memory.js';
import { exactly, type Hint, mention, ofType, oneOf, without } from '../core/option-problem.js';
import { typedArrayName } from '../core/realms.js';
import type { ErrorSum } from './error-sum.js';
import type { Job } from './job.js';
import { checkMatrix } from './job.js';
import type { QuantizeOptions } from './options.js';
import { findParameters, withParameters } from './parameters.js';
import type { Sinks } from './sink.js';
import { nonFiniteError, type Source, withWhole } from './source.js';
import { dtypeInfo, dtypes } from './tensor.js';

/** Options with second moments. */
export type MomentsOptions = QuantizeOptions & { readonly moments: Float32Array };

/** A checked call. */
interface Call {
  readonly moments: Float32Array;
  readonly damping: number;
  /** True: the columns with the largest inputs come first. */
  readonly falls: boolean;
  readonly rows: number;
  readonly columns: number;
  /** Columns that share a scale; 0 for all of a row. */
  readonly groupSize: number;
  /** True if scales are searched for while columns are rounded. */
  readonly searches: boolean;
}

const withOption: Hint = { kind: 'with', options: [mention('moments')] };

/** Default and largest value of `damping`. */
const usualDamping = 0.01;
const mostDamping = 10;

/** Elements that are quantized at a time, and the rows whose loops go through a matrix together. */
const elementsAtATime = 1 << 20;
const rowsTogether = 4;

/** The columns of a group. @throws RangeError naming the member of `granularity` */
function groupSizeOf({ granularity, layout }: Job): number {
  if (granularity.kind === 'per-tensor')
    throw rangeError('granularity.kind', oneOf(['per-channel', 'per-group']), granularity.kind, withOption);
  const axis = granularity.kind === 'per-channel' ? 0 : 1;
  if (granularity.axis !== axis) throw rangeError('granularity.axis', oneOf([axis]), granularity.axis, withOption);
  return granularity.kind === 'per-channel' ? 0 : layout.groupSize;
}

/** @throws TypeError or RangeError naming the option */
function checked(job: Job, options: MomentsOptions): Call {
  const { moments, damping = usualDamping, order = 'falling', range, rounding, nonFinite, includeZero } = options;
  if (typedArrayName(moments) !== 'Float32Array') throw typeError('moments', ofType('Float32Array'), moments);
  const [rows, columns] = checkMatrix(job.shape, 'shape');
  if (moments.length !== columns * columns)
    throw rangeError('moments', exactly(columns * columns, 'elements'), moments.length);
  if (job.info.bits > 8) {
    const small = dtypes.filter((name) => dtypeInfo(name).bits <= 8);
    throw rangeError('dtype', oneOf(small), job.info.name, withOption);
  }
  const groupSize = groupSizeOf(job);
  if (typeof damping !== 'number') throw typeError('damping', ofType('number'), damping);
  if (!(damping >= 0 && damping <= mostDamping))
    throw rangeError('damping', { kind: 'number', min: 0, max: mostDamping }, damping);
  const orders = ['falling', 'stored'];
  if (!orders.includes(order)) throw rangeError('order', oneOf(orders), order);
  if (rounding !== undefined) throw rangeError('rounding', without('moments'), rounding);
  if (nonFinite === 'saturate') throw rangeError('nonFinite', without('moments'), nonFinite);
  if (includeZero === false && range === 'mse') {
    throw rangeError('includeZero', without('range', 'mse'), includeZero, withOption);
  }
  return { moments, damping, falls: order === 'falling', rows, columns, groupSize, searches: range === 'mse' };
}

/** Calls f with the second moments and their factor in wasm memory. */
function withMoments<T>(
  core: Core,
  { moments, damping, falls, columns, groupSize }: Call,
  f: (record: MomentsRecord) => T,
): T {
  return core.withMemory(4 * columns * columns, (address) => {
    core.module.HEAPF32.set(moments, address / 4);
    const wrong = core.models.checkMoments(address, columns);
    if (wrong < moments.length) {
      const value = moments[wrong] as number;
      const isMirrored = Number.isFinite(value) && wrong % (columns + 1) !== 0;
      const expected = isMirrored
        ? ({ kind: 'state', state: 'symmetric' } as const)
        : ({ kind: 'number', finite: true, ...(Number.isFinite(value) ? { min: 0 } : {}) } as const);
      throw rangeError(`moments[${wrong}]`, expected, value);
    }
    const factor = factorOf(core, address, columns, damping, falls ? { group: groupSize, outer: 0 } : undefined);
    if (factor === undefined) throw rangeError('moments', { kind: 'state', state: 'positiveDefinite' }, moments);
    try {
      return f({ ...factor, moments: address, heldBack: 0 });
    } finally {
      core.release(factor.feedback);
    }
  });
}

/** The arenas of instances, whose memory is empty between calls. */
const arenas = new WeakMap<Core, number>();

function withArena<T>(core: Core, f: (arena: number) => T): T {
  const arena = arenas.get(core) ?? core.models.makeArena();
  if (arena === 0) throw outOfMemory('an arena');
  arenas.set(core, arena);
  try {
    return f(arena);
  } finally {
    core.models.releaseArena(arena);
  }
}

/** Calls f with the addresses of the scales and zero points that the range gives; of zeros if they are searched for later. */
function withGiven<T>(core: Core, source: Source, job: Job, { searches }: Call, f: (...at: [number, number]) => T): T {
  if (searches) return f(0, 0);
  return withParameters(core, job.layout, job.spec, (at) => {
    findParameters(core, source, job, at);
    return f(at.scale, at.zeroPoint);
  });
}

/** Fails for a number that has no code. */
function checkFinite(core: Core, source: Source): void {
  forEachTile(source.length, false, (start, count) => {
    const x = source.at(start, count);
    if (core.module.firstNonFinite(x, count) < count)
      throw nonFiniteError(source, core, x, count, start, 'it would spoil all columns behind it');
  });
}

/** Hands over the results of some rows. */
function handOver(
  core: Core,
  sinks: Sinks,
  made: MatrixCodesRecord,
  first: { element: number; set: number },
  n: number,
  sets: number,
): void {
  const { codes, scale, zeroPoint } = sinks;
  const tile = core.scratch.y;
  forEachTile(n, false, (start, count) => {
    const to = codes.at(first.element + start, tile);
    core.module.HEAPU8.copyWithin(to, made.codes + start, made.codes + start + count);
    codes.put(first.element + start, count, tile);
  });
  scale.copy(first.set, sets, made.scales);
  zeroPoint.copy(first.set, sets, made.zeroPoints);
}

/** Quantizes to sinks, and adds errors to a sum. See the option `moments`. */
export function quantizeByMoments(
  core: Core,
  given: Source,
  job: Job,
  options: MomentsOptions,
  sinks: Sinks,
  errors: ErrorSum | undefined,
): OutputErrors | undefined {
  const call = checked(job, options);
  const { rows, columns, groupSize } = call;
  checkFinite(core, given);
  const all = new Float64Array(sumCount);
  const { info, range, layout } = job;
  const setsOfRow = layout.parameters / rows;
  const atATime = Math.max(rowsTogether, Math.floor(elementsAtATime / columns / rowsTogether) * rowsTogether);
  const importance = range.kind === 'search' ? range.importance : undefined;
  const form = {
    columns,
    groupSize,
    dtype: { bits: info.bits, isSigned: info.signed },
    symmetric: options.scheme !== 'asymmetric',
  };
  const quantizeRows = (moments: MomentsRecord, x: number, weights: number, scales: number, zeroPoints: number) =>
    withArena(core, (arena) => {
      for (let row = 0; row < rows; row += atATime) {
        const [count, set] = [Math.min(atATime, rows - row), row * setsOfRow];
        const own = scales === 0 ? 0 : 4 * set;
        const matrix = { ...form, importance: weights, scales: scales + own, zeroPoints: zeroPoints + own };
        core.models.startInArena(arena, 0);
        const result = core.pushRecord(MatrixCodesRecord);
        try {
          const status = core.withRecord(MomentsRecord, moments, (m) =>
            core.withRecord(MatrixByMomentsRecord, matrix, (at) =>
              core.models.quantizeByMoments(x + 4 * row * columns, count, at, m, arena, result),
            ),
          );
          if (status === StatusId.outOfMemory) throw outOfMemory('the codes of some rows');
          if (status === StatusId.overflow)
            throw new ScalepointError('OVERFLOW', `rows ${row} to ${row + count - 1} of x need scales beyond float32`);
          checkStatus(status);
          const made = MatrixCodesRecord.read(core.module, result);
          handOver(core, sinks, made, { element: row * columns, set }, count * columns, count * setsOfRow);
          addSums(all, Object.values(made.sums));
        } finally {
          core.popRecord(result);
        }
      }
    });
  withWhole(core, given, (source) =>
    withMoments(core, call, (moments) =>
      core.withMemory(4 * columns, (weights) => {
        if (importance === undefined) core.models.momentsDiagonal(moments.moments, columns, weights);
        else core.module.HEAPF32.set(importance, weights / 4);
        withGiven(core, source, job, call, (scales, zeroPoints) =>
          quantizeRows(moments, source.at(0, source.length), weights, scales, zeroPoints),
        );
      }),
    ),
  );
  errors?.collect((sums) => {
    addSums(sums, all);
    return given.length;
  });
  return measuresOf(all, given.length).output;
}
