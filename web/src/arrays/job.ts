// Checks the options of `quantize`, and turns them into a job for the core: the type, the layout of scales, and the range.
import { checkBoolean, checkKindMembers, checkNumber, checkShape, checkWhole, enumChoice } from '../core/check.js';
import {
  GranularityId,
  type LayoutRecord,
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
import { granularityKinds, rangeForms } from './calls.js';
import type { QuantizeOptions } from './options.js';
import { type DTypeInfo, dtypeInfoAt, type Granularity } from './tensor.js';

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

// ------------------------------------------------------------------------------------------------------------------------- layout

/** The layout of scales over an array, as in the core, and numbers that follow from it. */
export interface Layout extends LayoutRecord {
  /** Number of elements. */
  readonly size: number;
  /** Number of scales and zero points. */
  readonly parameters: number;
}

/**
 * Resolves a granularity for a shape. The axis becomes non-negative, and defaults are filled in.
 * @throws TypeError or RangeError naming the option
 */
export function resolveGranularity(
  granularity: unknown,
  shape: readonly number[],
  option = 'granularity',
): Granularity {
  if (granularity === undefined) return { kind: 'per-tensor' };
  const kind = checkKindMembers(granularity, granularityKinds['per-group'], granularityKinds, option);
  if (kind === 'per-tensor') return { kind };
  return resolveMembers(kind, granularity as GranularityMembers, shape, `${option}.`);
}

/** Members of a granularity before they are checked. */
interface GranularityMembers {
  readonly axis?: unknown;
  readonly groupSize?: unknown;
}

/**
 * Resolves a granularity that is given as a kind and its members.
 * @param before the start of the paths of members in errors: `granularity.`, or nothing
 */
export function resolveMembers(
  kind: 'per-channel' | 'per-group',
  { axis, groupSize }: GranularityMembers,
  shape: readonly number[],
  before: string,
): Granularity {
  const fallback = kind === 'per-group' ? -1 : undefined;
  const given = checkNumber(
    axis === undefined ? fallback : axis,
    `${before}axis`,
    whole(-shape.length, shape.length - 1),
  );
  const resolved = given < 0 ? given + shape.length : given;
  if (kind === 'per-channel') return { kind, axis: resolved };
  return { kind, groupSize: checkWhole(groupSize, `${before}groupSize`, 1), axis: resolved };
}

/** One scale and zero point for all elements. */
export const perTensor: LayoutRecord = {
  granularity: GranularityId.perTensor,
  axisSize: 1,
  innerSize: 1,
  groupSize: 1,
};

/** The layout of a resolved granularity. */
export function layoutOf(granularity: Granularity, shape: readonly number[], size: number): Layout {
  if (granularity.kind === 'per-tensor') {
    // Written out because object spread would slow down calls on small arrays.
    return {
      granularity: GranularityId.perTensor,
      axisSize: 1,
      innerSize: 1,
      groupSize: 1,
      size,
      parameters: 1,
    };
  }
  const axis = granularity.axis ?? shape.length - 1;
  const axisSize = shape[axis] ?? 1;
  let innerSize = 1;
  for (let i = axis + 1; i < shape.length; i++) innerSize *= shape[i] ?? 1;
  if (granularity.kind === 'per-channel') {
    return {
      granularity: GranularityId.perChannel,
      axisSize,
      innerSize,
      groupSize: 1,
      size,
      parameters: axisSize,
    };
  }
  const groupSize = Math.max(1, Math.min(granularity.groupSize, axisSize));
  const outerSize = size === 0 ? 0 : size / (axisSize * innerSize);
  const parameters = outerSize * Math.ceil(axisSize / groupSize) * innerSize;
  return { granularity: GranularityId.perGroup, axisSize, innerSize, groupSize, size, parameters };
}

/** Number of elements that share a parameter. */
export function sizeOfParameter(
  { size, granularity, axisSize, innerSize, groupSize }: Layout,
  parameter: number,
): number {
  if (granularity === GranularityId.perTensor) return size;
  if (granularity === GranularityId.perChannel) return size / axisSize;
  const group = Math.floor(parameter / innerSize) % Math.ceil(axisSize / groupSize);
  return Math.min(groupSize, axisSize - group * groupSize);
}

/** Division of the lines of an array into runs. One run has one scale and zero point; the last run of a line may be shorter. */
export interface Runs {
  readonly line: number;
  readonly run: number;
}

/** The runs of a layout in which neighboring elements share each scale; undefined for other layouts. */
export function runsOf({ size, granularity, axisSize, innerSize, groupSize }: Layout): Runs | undefined {
  if (granularity === GranularityId.perTensor) return { line: size, run: size };
  if (granularity === GranularityId.perGroup) return innerSize === 1 ? { line: axisSize, run: groupSize } : undefined;
  return innerSize > 1 && size === axisSize * innerSize ? { line: innerSize, run: innerSize } : undefined;
}

/** Checks the shape of a matrix. @throws RangeError naming `what` unless it has two dimensions, each at least 1 */
export function checkMatrix(shape: readonly number[], what: string): readonly [outputs: number, inputs: number] {
  const [outputs = 0, inputs = 0] = shape;
  if (shape.length !== 2 || outputs === 0 || inputs === 0) {
    throw rangeError(what, { kind: 'shape', dimensions: ['outputs', 'inputs'] }, shape);
  }
  return [outputs, inputs];
}

// ------------------------------------------------------------------------------------------------------------------ type and range

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

/** Fails unless the number is finite in float32, and not negative. */
export const checkWeight: Check = (v, name) => {
  if (!(v >= 0 && Math.fround(v) < Infinity)) throw rangeError(name, { kind: 'number', finite: true, min: 0 }, v);
};

function resolveRange({ range, importance }: QuantizeOptions, parameters: number, columns: number): ResolvedRange {
  if (importance !== undefined && range !== 'mse') throw rangeError('importance', onlyWith('range', 'mse'));
  if (typeof importance === 'number') throw typeError('importance', ofType('Float32Array'), importance);
  const search = searchOf(range, rangeForms);
  if (search !== undefined) {
    const weights = importance && perParameter(importance, Float32Array, columns, 'importance', checkWeight);
    return { kind: 'search', search, importance: weights };
  }
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
  const { dtype = 'int8', range = 'min-max', includeZero, importance } = options;
  const info = dtypeInfoAt(dtype, 'dtype');
  const spec = {
    dtype: { bits: info.bits, isSigned: info.signed },
    scheme: enumChoice(options, 'scheme', SchemeId, SchemeId.symmetric),
    symmetricRange: enumChoice(options, 'symmetricRange', SymmetricRangeId, SymmetricRangeId.restricted),
    includeZero: includeZero === undefined || checkBoolean(includeZero, 'includeZero'),
    rounding: enumChoice(options, 'rounding', RoundingId, RoundingId.onnx),
    nonFinite: enumChoice(options, 'nonFinite', NonFiniteId, NonFiniteId.error),
  };
  const shape = checkShape(options.shape ?? ownShape, size);
  const granularity = resolveGranularity(options.granularity, shape);
  const layout = layoutOf(granularity, shape, size);
  if (layout.parameters > mostParameters) throw outOfMemory(`${layout.parameters} scales`);
  const resolved: ResolvedRange =
    range === 'min-max' && importance === undefined
      ? { kind: 'min-max' }
      : resolveRange(options, layout.parameters, shape.at(-1) ?? 1);
  return { info, shape, granularity, layout, spec, range: resolved };
}
