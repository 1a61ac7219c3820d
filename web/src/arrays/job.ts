// Checks the options of `quantize`, and turns them into a job for the core.
import { checkBoolean, checkNumber, checkShape, enumChoice } from '../core/check.js';
import {
  maxZeroPoint,
  NonFiniteId,
  type QuantizationSpecRecord,
  RoundingId,
  SchemeId,
  SymmetricRangeId,
} from '../core/door.js';
import { outOfMemory, rangeError, typeError } from '../core/errors.js';
import { type Expected, exactly, ofType, oneOf, onlyWith, whole } from '../core/option-problem.js';
import { type RangeSearch, rangeNames, searchOf } from '../core/range.js';
import { rangeForms } from './calls.js';
import { type Layout, layoutOf, resolveGranularity } from './layout.js';
import type { QuantizeOptions } from './options.js';
import { type DTypeInfo, dtypeInfo, type Granularity } from './tensor.js';

/** Everything about a call of `quantize` that does not depend on the values. */
export interface Job {
  readonly info: DTypeInfo;
  readonly shape: number[];
  readonly granularity: Granularity;
  readonly layout: Layout;
  readonly spec: QuantizationSpecRecord;
  readonly range: ResolvedRange;
}

/** A checked `range` option. */
type ResolvedRange =
  | { readonly kind: 'min-max' }
  | { readonly kind: 'search'; readonly search: RangeSearch; readonly importance: Float32Array | undefined }
  | { readonly kind: 'bounds'; readonly min: Float32Array; readonly max: Float32Array }
  | { readonly kind: 'given'; readonly scale: Float32Array; readonly zeroPoint: Int32Array };

/** A spec for calls that read only its type. */
export function specOfDType({ bits, signed }: DTypeInfo): QuantizationSpecRecord {
  return {
    dtype: { bits, isSigned: signed },
    scheme: SchemeId.symmetric,
    symmetricRange: SymmetricRangeId.restricted,
    includeZero: true,
    rounding: RoundingId.onnx,
    nonFinite: NonFiniteId.error,
  };
}

function specOf(options: QuantizeOptions, { bits, signed }: DTypeInfo): QuantizationSpecRecord {
  const includeZero = options.includeZero === undefined || checkBoolean(options.includeZero, 'includeZero');
  return {
    dtype: { bits, isSigned: signed },
    scheme: enumChoice(options, 'scheme', SchemeId, SchemeId.symmetric),
    symmetricRange: enumChoice(options, 'symmetricRange', SymmetricRangeId, SymmetricRangeId.restricted),
    includeZero,
    rounding: enumChoice(options, 'rounding', RoundingId, RoundingId.onnx),
    nonFinite: enumChoice(options, 'nonFinite', NonFiniteId, NonFiniteId.error),
  };
}

/** Checks one number. `name` is its path. */
type Check = (v: number, name: string) => void;

/** Fails unless the number is finite in float32. */
export const checkBound: Check = (v, name) => {
  if (!Number.isFinite(Math.fround(v))) throw rangeError(name, { kind: 'number', finite: true }, v);
};

export const checkScale: Check = (v, name) => {
  const scale = Math.fround(v);
  if (!(scale > 0 && scale < Infinity)) {
    throw rangeError(name, { kind: 'number', finite: true, above: 0 }, v);
  }
};

export const checkZeroPoint: Check = (v, name) => {
  if (!Number.isInteger(v) || Math.abs(v) > maxZeroPoint) {
    throw rangeError(name, whole(-maxZeroPoint, maxZeroPoint), v);
  }
};

/** Calls check for every value. Builds paths with an index only for values that fail. */
export function checkEach(values: Float32Array | Int32Array, check: Check, name: string): void {
  let i = 0;
  try {
    for (; i < values.length; i++) check(values[i] as number, name);
  } catch {
    check(values[i] as number, `${name}[${i}]`);
  }
}

/** A number or an array, as one value for each parameter. Copies arrays, which may change or lie in memory that grows. */
function perParameter<T extends Float32Array | Int32Array>(
  value: unknown,
  make: new (n: number) => T,
  parameters: number,
  name: string,
  check: Check,
): T {
  const all = new make(parameters);
  if (typeof value === 'number') {
    check(value, name);
    all.fill(value);
    return all;
  }
  const list = value as ArrayLike<number> | null | undefined;
  if (typeof list !== 'object' || list === null || typeof list.length !== 'number') {
    throw typeError(name, ofType('number', 'array of numbers'), value);
  }
  if (list.length !== parameters) {
    throw rangeError(name, exactly(parameters, 'values'), list.length);
  }
  for (let i = 0; i < parameters; i++) {
    const v = checkNumber(list[i], `${name}[${i}]`);
    check(v, `${name}[${i}]`);
    all[i] = v;
  }
  return all;
}

/** Values of the option `range`. */
const rangeForm: Expected = {
  kind: 'anyOf',
  of: [oneOf(rangeNames), ...rangeForms.map((keys): Expected => ({ kind: 'object', keys }))],
};

const checkWeight: Check = (v, name) => {
  if (!(v >= 0 && Math.fround(v) < Infinity)) throw rangeError(name, { kind: 'number', finite: true, min: 0 }, v);
};

/** A copy of the importance of each column. */
function importanceOf({ importance, range }: QuantizeOptions, columns: number): Float32Array | undefined {
  if (importance === undefined) return undefined;
  if (range !== 'mse') throw rangeError('importance', onlyWith('range', 'mse'));
  if (typeof importance === 'number') throw typeError('importance', ofType('Float32Array'), importance);
  return perParameter(importance, Float32Array, columns, 'importance', checkWeight);
}

function resolveRange(options: QuantizeOptions, parameters: number, columns: number): ResolvedRange {
  const { range } = options;
  const importance = importanceOf(options, columns);
  if (range === undefined || range === 'min-max') return { kind: 'min-max' };
  const search = searchOf(range, rangeForms);
  if (search !== undefined) return { kind: 'search', search, importance };
  if (typeof range === 'object' && range !== null) {
    const given = range as Record<string, unknown>;
    if ('scale' in given || 'zeroPoint' in given) {
      return {
        kind: 'given',
        scale: perParameter(given.scale, Float32Array, parameters, 'range.scale', checkScale),
        zeroPoint: perParameter(given.zeroPoint, Int32Array, parameters, 'range.zeroPoint', checkZeroPoint),
      };
    }
    if ('min' in given || 'max' in given) {
      const min = perParameter(given.min, Float32Array, parameters, 'range.min', checkBound);
      const max = perParameter(given.max, Float32Array, parameters, 'range.max', checkBound);
      for (const [i, low] of min.entries()) {
        if (low <= (max[i] as number)) continue;
        const path = typeof given.min === 'number' ? 'range.min' : `range.min[${i}]`;
        throw rangeError(path, { kind: 'number', max: max[i] }, low);
      }
      return { kind: 'bounds', min, max };
    }
  }
  throw rangeError('range', rangeForm, range);
}

/** Scales that wasm memory can hold together with bounds and zero points: 16 bytes each. */
const mostParameters = 2 ** 28;

/** @throws TypeError or RangeError naming the option; ScalepointError `OUT_OF_MEMORY` if there are more scales than memory can hold */
export function jobOf(options: QuantizeOptions, size: number, ownShape?: readonly number[]): Job {
  const info = dtypeInfo(options.dtype === undefined ? 'int8' : options.dtype);
  const spec = specOf(options, info);
  const shape = checkShape(options.shape ?? ownShape, size);
  const granularity = resolveGranularity(options.granularity, shape);
  const layout = layoutOf(granularity, shape, size);
  if (layout.parameters > mostParameters) {
    throw outOfMemory(`${layout.parameters} scales`);
  }
  return { info, shape, granularity, layout, spec, range: resolveRange(options, layout.parameters, shape.at(-1) ?? 1) };
}
