/** Elements as files store them: single floats, or blocks of ggml. Every codec makes its parts from them. */
import { type BlockType, blockTypeInfo, isBlockType } from '../core/blocks.js';
import {
  ErrorSums,
  Granularity,
  type Layout,
  LinearJob,
  NonFinite,
  type QuantizationSpec,
  Rounding,
  Scheme,
  Status,
  SymmetricRange,
} from '../core/door.js';
import type { Core } from '../core/wasm.js';
import type { Arena } from './arena.js';
import {
  type Cuts,
  type Encoded,
  type Problem,
  type Range,
  type Rectangle,
  type Role,
  type Runs,
  tileElements,
} from './codec.js';

/** Bytes of one element of the types that are floats. */
const floatBytes: Readonly<Record<string, number>> = { F32: 4, F16: 2, BF16: 2, F64: 8 };

/** Whether elements of this type can be turned into floats. */
export function isReadable(type: string): boolean {
  return Object.hasOwn(floatBytes, type) || isBlockType(type);
}

/** Bytes of so many elements of a type that can be turned into floats. */
export function bytesOf(type: string, elements: number): number {
  if (!isBlockType(type)) return elements * (floatBytes[type] as number);
  const { elements: n, bytes } = blockTypeInfo(type);
  return (elements / n) * bytes;
}

/** Number of elements of a shape. */
export function elementsOf(shape: readonly number[]): number {
  return shape.reduce((product, dimension) => product * dimension, 1);
}

// ------------------------------------------------------------------------------------------------------------------------ cutting

/** Runs of `bytes` bytes. They are one run if each begins where the one before ends. */
export function runsOf(offset: number, bytes: number, count: number, stride: number): Runs {
  return bytes === stride
    ? { offset, bytes: bytes * count, count: 1, stride: bytes * count }
    : { offset, bytes, count, stride };
}

/** Where a rectangle lies if the elements stand one after the other. `size` gives the bytes of so many elements. */
export function placeOfElements(size: (elements: number) => number, rectangle: Rectangle): Runs {
  const { row, rows, column, columns, width } = rectangle;
  return runsOf(size(row * width + column), size(columns), rows, size(width));
}

/** Tiles of neighbors, without regard to rows. */
export function* cutFlat(elements: number, roles: readonly Role[], most = tileElements): Cuts {
  for (let column = 0; column < elements; column += most) {
    const columns = Math.min(most, elements - column);
    yield { kind: 'tile', rectangle: { row: 0, rows: 1, column, columns, width: elements }, roles };
  }
}

// --------------------------------------------------------------------------------------------------------------------- in the core

/** What `encode` gives while the arena only counts. */
export const nothing: Encoded = { parts: {} };

/** For calls whose arguments are right: any other status is a mistake in here. */
export function check(status: Status): void {
  if (status !== Status.ok) throw new Error(`the core refused a tile with status ${status}`);
}

/** Elements as floats: where they are if they are float32, else in the arena. Returns their address. float64 is rounded to nearest. */
export function floats(core: Core, arena: Arena, type: string, source: number, n: number): number {
  if (type === 'F32') return source;
  const x = arena.take(n * 4);
  if (arena.onlyCounts) return x;
  const { module } = core;
  if (type === 'F16') check(module.widenFloat16(source, n, x));
  else if (type === 'BF16') check(module.widenBfloat16(source, n, x));
  else if (type === 'F64') module.HEAPF32.set(module.HEAPF64.subarray(source / 8, source / 8 + n), x / 4);
  else check(module.dequantizeBlocks(source, n, blockTypeInfo(type as BlockType).id, x));
  return x;
}

/** What is wrong with the first float that is NaN or infinite. `x` holds the floats of `source`. */
export function nonFinite(core: Core, x: number, n: number, type: string, source: number): Problem {
  const { module } = core;
  const index = module.firstNonFinite(x, n);
  const value = type === 'F64' ? module.HEAPF64[source / 8 + index] : module.HEAPF32[x / 4 + index];
  return { kind: Number.isFinite(value) ? 'beyond float32' : 'non-finite', index, value: value as number };
}

/**
 * The first element in [start, start + count) that was finite and no longer is, at `y`. NaN and infinities that were there before pass.
 * @param y where element 0 would be
 */
export function firstLost(
  core: Core,
  y: number,
  start: number,
  count: number,
  before: (i: number) => number,
): Problem | undefined {
  const { module } = core;
  const end = start + count;
  for (let i = start; i < end; i++) {
    i += module.firstNonFinite(y + i * 4, end - i);
    // A long stretch of NaN would take one call for each of them. Its end is found here.
    while (i < end && !Number.isFinite(before(i))) i++;
    if (i < end && !Number.isFinite(module.HEAPF32[y / 4 + i])) {
      return { kind: 'overflow', index: i, value: before(i) };
    }
  }
  return undefined;
}

/** Signed codes of so many bits, rounded as round(x / scale + zero point). */
export function specOf(bits: number): QuantizationSpec {
  return {
    dtype: { bits, isSigned: true },
    scheme: Scheme.symmetric,
    symmetricRange: SymmetricRange.restricted,
    includeZero: true,
    rounding: Rounding.fused,
    nonFinite: NonFinite.error,
  };
}

/** Runs of one size, one after the other, with a scale each. */
export function layoutOfRuns(count: number, size: number): Layout {
  return { granularity: Granularity.perChannel, axisSize: count, innerSize: size, groupSize: 1 };
}

/** The range of n elements, or what is wrong with one of them. */
export function observe(
  core: Core,
  arena: Arena,
  type: string,
  source: number,
  n: number,
): { readonly range?: Range; readonly problem?: Problem } {
  const x = floats(core, arena, type, source, n);
  const min = arena.take(4);
  const max = arena.take(4);
  if (arena.onlyCounts) return {};
  const { module } = core;
  module.clearRange(min, max, 1);
  const job = { layout: layoutOfRuns(1, n), spec: specOf(8), scale: 0, zeroPoint: 0, parameters: 1 };
  const status = core.withRecord(LinearJob, job, (at) => module.observe(at, x, n, 0, min, max));
  if (status === Status.nonFinite) return { problem: nonFinite(core, x, n, type, source) };
  check(status);
  return { range: [module.HEAPF32[min / 4] as number, module.HEAPF32[max / 4] as number] };
}

// --------------------------------------------------------------------------------------------------------------------------- sums

export function clearSums({ module, scratch }: Core): void {
  module.HEAPF64.fill(0, scratch.sums / 8, (scratch.sums + ErrorSums.bytes) / 8);
}

/** Adds the errors of the floats at y against those at x. */
export function addErrors({ module, scratch }: Core, x: number, y: number, n: number): void {
  check(module.accumulateError(x, y, n, scratch.sums));
}

/** A copy of the sums. */
export function sumsOf({ module, scratch }: Core): Float64Array<ArrayBuffer> {
  return module.HEAPF64.slice(scratch.sums / 8, (scratch.sums + ErrorSums.bytes) / 8) as Float64Array<ArrayBuffer>;
}
