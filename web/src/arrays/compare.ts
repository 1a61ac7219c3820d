// Error measures of a quantized tensor or an array against the original floats.

import { checkChoice, checkShape } from '../core/check.js';
import { ErrorSumsRecord, LayoutRecord } from '../core/door.js';
import { rangeError } from '../core/errors.js';
import { type ErrorMeasures, measuresOf, sumCount } from '../core/measure.js';
import { type Core, checkStatus, forEachTile, tileSize } from '../core/memory.js';
import { exactly, onlyWith } from '../core/option-problem.js';
import { OwnedWasmArray } from '../core/wasm-array.js';
import { checkOptionsOf } from './calls.js';
import { type CompareOptions, ErrorSum, withSums } from './error-sum.js';
import { type Layout, layoutOf, resolveMembers, sizeOfParameter } from './job.js';
import { givenTensor, isQuantized } from './kinds.js';
import { type FloatInput, type HalfFormat, halfFormats, type Source, sourceOf } from './source.js';
import type { QuantizedTensor } from './tensor.js';

/** Options of `compare` for one result per channel or group. */
export type CompareEachOptions = CompareOptions & {
  /** The shape of both arrays. @defaultValue that of the quantized tensor, or [length] */
  shape?: readonly number[] | undefined;
} & (
    | {
        per: 'channel';
        /** Negative axes count from the end. */
        axis: number;
      }
    | {
        per: 'group';
        /** Elements along the axis; the last group of an axis may be shorter. */
        groupSize: number;
        /** The axis along which elements are grouped. @defaultValue the last axis */
        axis?: number | undefined;
      }
  );

/** See Scalepoint.compare. */
export function compareArrays(
  core: Core,
  a: FloatInput,
  b: QuantizedTensor | FloatInput,
  options: CompareOptions | CompareEachOptions,
): ErrorMeasures | ErrorMeasures[] {
  checkOptionsOf('compare', options);
  const { from } = options;
  if (from !== undefined) checkChoice(from, 'from', halfFormats);
  if (!('per' in options) || options.per === undefined) {
    const other = Object.entries(options).find(([name, value]) => name !== 'from' && value !== undefined);
    if (other !== undefined) throw rangeError(other[0], onlyWith('per', 'channel', 'group'));
    const sum = errorSum(core);
    sum.add(a, b, { from });
    return sum.measures();
  }
  // Measure each channel or group, in the order of their scales.
  checkChoice(options.per, 'per', ['channel', 'group']);
  if (options.per === 'channel' && 'groupSize' in options && options.groupSize !== undefined) {
    throw rangeError('groupSize', onlyWith('per', 'group'), options.per);
  }
  const source = sourceOf(core, a, fromFor(a, from), 'a');
  const shape = checkShape(options.shape ?? (isQuantized(b) ? b.shape : source.shape), source.length);
  const granularity = resolveMembers(`per-${options.per}`, options, shape, '');
  const layout = layoutOf(granularity, shape, source.length);
  const given = givenTensor(core, b, 'b');
  if (given !== undefined) {
    checkSameLength(source.length, given.length);
    // The second scratch tile holds half a tile of codes, and then the floats that they stand for.
    const restored = core.scratch.y + halfTile * 4;
    return given.restore((restore) =>
      measureEach(core, source, layout, (start, count) => {
        restore(start, count, restored);
        return restored;
      }),
    );
  }
  const other = sourceOf(core, b, fromFor(b, from), 'b', core.scratch.y);
  checkSameLength(source.length, other.length);
  return measureEach(core, source, layout, (start, count) => other.at(start, count));
}

/** See Scalepoint.errorSum. */
export function errorSum(core: Core): ErrorSum {
  return new ErrorSum((a, b, options, sums) => addErrors(core, a, b, options, sums));
}

/** `from`, for an argument that can hold the bits of such floats. */
function fromFor(value: unknown, from: HalfFormat | undefined): HalfFormat | undefined {
  const isHalf = value instanceof Uint16Array || (value instanceof OwnedWasmArray && value.dtype === 'uint16');
  return isHalf ? from : undefined;
}

function checkSameLength(a: number, b: number): void {
  if (a !== b) throw rangeError('b', exactly(a, 'elements'), b, { kind: 'as', option: 'a' });
}

/** Adds the pairs of a and b to the sums. Returns their number. */
function addErrors(
  core: Core,
  a: FloatInput,
  b: QuantizedTensor | FloatInput,
  options: CompareOptions,
  sums: Float64Array,
): number {
  checkOptionsOf('errorSum.add', options);
  const { from } = options;
  if (from !== undefined) checkChoice(from, 'from', halfFormats);
  const source = sourceOf(core, a, fromFor(a, from), 'a');
  const { length } = source;
  const given = givenTensor(core, b, 'b');
  if (given !== undefined) {
    checkSameLength(length, given.length);
    withSums(core, sums, (at) => given.addErrors(source, at));
    return length;
  }
  const other = sourceOf(core, b, fromFor(b, from), 'b', core.scratch.y);
  checkSameLength(length, other.length);
  withSums(core, sums, (at) => {
    forEachTile(length, source.inPlace && other.inPlace, (start, count) => {
      const x = source.at(start, count);
      checkStatus(core.module._accumulateError(x, other.at(start, count), count, at));
    });
  });
  return length;
}

const halfTile = tileSize / 2;

/**
 * The measures of each parameter of a layout.
 * @param other writes the floats [start, start + count) to compare with x to memory outside of scratch.x, and returns their address; count
 *   is at most halfTile
 */
function measureEach(
  core: Core,
  x: Source,
  layout: Layout,
  other: (start: number, count: number) => number,
): ErrorMeasures[] {
  const { parameters } = layout;
  const bytes = parameters * ErrorSumsRecord.bytes;
  const measure = (record: number, sums: number) => {
    core.module.HEAPU8.fill(0, sums, sums + bytes);
    // Use the same tiles for any source, because the last bits of float32 sums depend on them.
    forEachTile(
      x.length,
      false,
      (start, count) => {
        const y = other(start, count);
        checkStatus(core.module._accumulateErrorEach(record, x.at(start, count), y, count, start, sums, parameters));
      },
      halfTile,
    );
    const all = core.module.HEAPF64.slice(sums / 8, (sums + bytes) / 8);
    return Array.from({ length: parameters }, (_, p) =>
      measuresOf(all.subarray(p * sumCount, (p + 1) * sumCount), sizeOfParameter(layout, p)),
    );
  };
  return core.withRecord(LayoutRecord, layout, (record) => core.withMemory(bytes, (sums) => measure(record, sums)));
}
