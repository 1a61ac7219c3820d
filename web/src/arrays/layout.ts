// The layout of scales and zero points over the elements of an array.

import { checkKind, checkNumber, checkWhole } from '../core/check.js';
import { GranularityId, type LayoutRecord } from '../core/door.js';
import { rangeError } from '../core/errors.js';
import { whole } from '../core/option-problem.js';
import { granularityKinds } from './calls.js';
import type { Granularity } from './tensor.js';

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
  const kind = checkKind(granularity, granularityKinds['per-group'], granularityKinds, option);
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
  const given = checkNumber(axis === undefined ? fallback : axis, `${before}axis`, whole());
  const resolved = given < 0 ? given + shape.length : given;
  if (!Number.isInteger(given) || resolved < 0 || resolved >= shape.length) {
    throw rangeError(`${before}axis`, whole(-shape.length, shape.length - 1), given);
  }
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
