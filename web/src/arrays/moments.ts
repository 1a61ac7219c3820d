// Quantizes a matrix by the second moments of its inputs, with the error feedback of GPTQ.
import { checkChoice, checkNumber } from '../core/check.js';
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

const withOption: Hint = { kind: 'with', options: [mention('moments')] };

/** Elements that are quantized at a time, and the rows whose loops go through a matrix together. */
const elementsAtATime = 1 << 20;
const rowsTogether = 4;

/** The arenas of instances, whose memory is empty between calls. */
const arenas = new WeakMap<Core, number>();

/** Quantizes to sinks, and adds errors to a sum. See the option `moments`. */
export function quantizeByMoments(
  core: Core,
  given: Source,
  job: Job,
  options: MomentsOptions,
  sinks: Sinks,
  errors: ErrorSum | undefined,
): OutputErrors | undefined {
  const { moments, damping = 0.01, order = 'falling', rounding, nonFinite, includeZero } = options;
  const { info, granularity, layout, range } = job;
  const { module, models, scratch } = core;
  // Check the options, and that columns have finite numbers.
  if (typedArrayName(moments) !== 'Float32Array') throw typeError('moments', ofType('Float32Array'), moments);
  const [rows, columns] = checkMatrix(job.shape, 'shape');
  if (moments.length !== columns * columns)
    throw rangeError('moments', exactly(columns * columns, 'elements'), moments.length);
  if (info.bits > 8) {
    const small = dtypes.filter((name) => dtypeInfo(name).bits <= 8);
    throw rangeError('dtype', oneOf(small), info.name, withOption);
  }
  const { kind } = granularity;
  if (kind === 'per-tensor')
    throw rangeError('granularity.kind', oneOf(['per-channel', 'per-group']), kind, withOption);
  const axis = kind === 'per-channel' ? 0 : 1;
  if (granularity.axis !== axis) throw rangeError('granularity.axis', oneOf([axis]), granularity.axis, withOption);
  checkNumber(damping, 'damping', { kind: 'number', min: 0, max: 10 });
  checkChoice(order, 'order', ['falling', 'stored']);
  if (rounding !== undefined) throw rangeError('rounding', without('moments'), rounding);
  if (nonFinite === 'saturate') throw rangeError('nonFinite', without('moments'), nonFinite);
  // Scales are searched for while columns are rounded.
  const searches = options.range === 'mse';
  if (includeZero === false && searches) {
    throw rangeError('includeZero', without('range', 'mse'), includeZero, withOption);
  }
  forEachTile(given.length, false, (start, count) => {
    const x = given.at(start, count);
    if (module.firstNonFinite(x, count) < count)
      throw nonFiniteError(core, given, { x, count, start }, 'it would spoil all columns behind it');
  });
  // Prepare to quantize some rows at a time, with the factor of the moments.
  const all = new Float64Array(sumCount);
  const groupSize = kind === 'per-channel' ? 0 : layout.groupSize;
  const setsOfRow = layout.parameters / rows;
  const atATime = Math.max(rowsTogether, Math.floor(elementsAtATime / columns / rowsTogether) * rowsTogether);
  const form = {
    columns,
    groupSize,
    dtype: { bits: info.bits, isSigned: info.signed },
    symmetric: options.scheme !== 'asymmetric',
  };
  const arena = arenas.get(core) ?? models.makeArena();
  if (arena === 0) throw outOfMemory('an arena');
  arenas.set(core, arena);
  const quantizeRows = (factored: MomentsRecord, x: number, weights: number, scales: number, zeroPoints: number) => {
    for (let row = 0; row < rows; row += atATime) {
      const [count, first, set] = [Math.min(atATime, rows - row), row * columns, row * setsOfRow];
      const own = searches ? 0 : 4 * set;
      const matrix = { ...form, importance: weights, scales: scales + own, zeroPoints: zeroPoints + own };
      models.startInArena(arena, 0);
      const result = core.pushRecord(MatrixCodesRecord);
      try {
        const status = core.withRecord(MomentsRecord, factored, (m) =>
          core.withRecord(MatrixByMomentsRecord, matrix, (at) =>
            models.quantizeByMoments(x + 4 * first, count, at, m, arena, result),
          ),
        );
        if (status === StatusId.outOfMemory) throw outOfMemory('the codes of some rows');
        if (status === StatusId.overflow)
          throw new ScalepointError('OVERFLOW', `rows ${row} to ${row + count - 1} of x need scales beyond float32`);
        checkStatus(status);
        const made = MatrixCodesRecord.read(module, result);
        forEachTile(count * columns, false, (start, n) => {
          const to = sinks.codes.at(first + start, scratch.y);
          module.HEAPU8.copyWithin(to, made.codes + start, made.codes + start + n);
          sinks.codes.put(first + start, n, scratch.y);
        });
        sinks.scale.copy(set, count * setsOfRow, made.scales);
        sinks.zeroPoint.copy(set, count * setsOfRow, made.zeroPoints);
        addSums(all, Object.values(made.sums));
      } finally {
        core.popRecord(result);
      }
    }
  };
  try {
    withWhole(core, given, (source) =>
      core.withMemory(4 * columns * (columns + 1), (address) => {
        // Factor the moments.
        module.HEAPF32.set(moments, address / 4);
        const wrong = models.checkMoments(address, columns);
        const value = moments[wrong];
        if (value !== undefined) {
          const min = Number.isFinite(value) ? 0 : undefined;
          const isMirrored = min === 0 && wrong % (columns + 1) !== 0;
          const number = { kind: 'number', finite: true, min } as const;
          throw rangeError(`moments[${wrong}]`, isMirrored ? { kind: 'state', state: 'symmetric' } : number, value);
        }
        const groups = order === 'falling' ? { group: groupSize, outer: 0 } : undefined;
        const factor = factorOf(core, address, columns, damping, groups);
        if (factor === undefined) throw rangeError('moments', { kind: 'state', state: 'positiveDefinite' }, moments);
        try {
          // Weigh columns by the importance, or by the diagonal.
          const weights = address + 4 * columns * columns;
          const importance = range.kind === 'search' ? range.importance : undefined;
          if (importance === undefined) models.momentsDiagonal(address, columns, weights);
          else module.HEAPF32.set(importance, weights / 4);
          // Quantize by scales that the range gives, unless they are searched for.
          const factored = { ...factor, moments: address, heldBack: 0 };
          const x = source.at(0, source.length);
          if (searches) quantizeRows(factored, x, weights, 0, 0);
          else
            withParameters(core, layout, job.spec, (at) => {
              findParameters(core, source, job, at);
              quantizeRows(factored, x, weights, at.scale, at.zeroPoint);
            });
        } finally {
          core.release(factor.feedback);
        }
      }),
    );
  } finally {
    models.releaseArena(arena);
  }
  errors?.collect((sums) => {
    addSums(sums, all);
    return given.length;
  });
  return measuresOf(all, given.length).output;
}
