import type { Granularity } from 'scalepoint';

/**
 * The parts of a tensor. A part is a set of elements that share a scale: the whole tensor, a channel, or a group. The tensor is seen
 * with the shape [outer, axis, inner]; for per-tensor that is [1, 1, inner].
 */
export interface TensorParts {
  readonly kind: Granularity['kind'];
  readonly outer: number;
  readonly axis: number;
  readonly inner: number;
  /** Number of consecutive indices along the axis that share a scale. */
  readonly span: number;
  /** Number of parts along the axis. */
  readonly across: number;
  /** Number of parts, and so of scales. */
  readonly count: number;
}

const product = (numbers: readonly number[]) => numbers.reduce((a, b) => a * b, 1);

/** The parts of a tensor. The granularity's axis must be at least 0 and less than the number of dimensions. */
export function partsOf(granularity: Granularity, shape: readonly number[]): TensorParts {
  const size = product(shape);
  if (granularity.kind === 'per-tensor') {
    return { kind: 'per-tensor', outer: 1, axis: 1, inner: size, span: 1, across: 1, count: 1 };
  }
  const at = granularity.axis ?? shape.length - 1;
  const axis = shape[at] ?? 1;
  const outer = product(shape.slice(0, at));
  const inner = product(shape.slice(at + 1));
  if (granularity.kind === 'per-channel') {
    return { kind: 'per-channel', outer, axis, inner, span: 1, across: axis, count: axis };
  }
  const span = Math.max(1, Math.min(granularity.groupSize, axis));
  const across = Math.ceil(axis / span);
  return { kind: 'per-group', outer, axis, inner, span, across, count: outer * across * inner };
}

/** The part of an element of the flat array. */
export function partAt({ kind, axis, inner, span, across }: TensorParts, index: number): number {
  const at = Math.floor(index / inner) % axis;
  if (kind === 'per-channel') return at;
  const row = Math.floor(index / (axis * inner)) * across + Math.floor(at / span);
  return kind === 'per-group' ? row * inner + (index % inner) : 0;
}

/** Consecutive elements. Element values[start + i] with 0 <= i < length belongs to part `part` + i * step. */
export interface ElementRun {
  readonly start: number;
  readonly length: number;
  readonly part: number;
  readonly step: 0 | 1;
}

/** Divides a tensor into runs. They are long, so that loops over them are fast. */
export function* runsOf({ kind, outer, axis, inner, span, across }: TensorParts): Generator<ElementRun> {
  if (kind === 'per-group' && inner === 1) {
    for (let o = 0; o < outer; o++) {
      for (let group = 0; group < across; group++) {
        const length = Math.min(span, axis - group * span);
        yield { start: o * axis + group * span, length, part: o * across + group, step: 0 };
      }
    }
    return;
  }
  for (let o = 0; o < outer; o++) {
    for (let a = 0; a < axis; a++) {
      const start = (o * axis + a) * inner;
      if (kind === 'per-group') {
        yield { start, length: inner, part: (o * across + Math.floor(a / span)) * inner, step: 1 };
      } else if (inner === 1 && kind === 'per-channel') {
        // On the last axis each element belongs to the next channel, so a row is one run.
        yield { start, length: axis, part: 0, step: 1 };
        break;
      } else yield { start, length: inner, part: kind === 'per-channel' ? a : 0, step: 0 };
    }
  }
}

/** Indices in the flat array of the elements of one part, ascending. */
export function elementsOf(parts: TensorParts, part: number): Uint32Array {
  if (parts.kind === 'per-group') {
    const row = Math.floor(part / parts.inner);
    const o = Math.floor(row / parts.across);
    const first = (row % parts.across) * parts.span;
    const length = Math.min(parts.span, parts.axis - first);
    return Uint32Array.from({ length }, (_, i) => (o * parts.axis + first + i) * parts.inner + (part % parts.inner));
  }
  const positions = new Uint32Array(parts.outer * parts.inner);
  let end = 0;
  for (let o = 0; o < parts.outer; o++) {
    const start = (o * parts.axis + part) * parts.inner;
    for (let i = 0; i < parts.inner; i++) positions[end++] = start + i;
  }
  return positions;
}

/** A smaller tensor that consists of evenly spaced slices of a larger one. */
export interface Sample {
  readonly values: Float32Array;
  readonly shape: readonly number[];
  /** Index in the whole tensor of element `index` of the sample. */
  readonly position: (index: number) => number;
}

/**
 * Takes a sample of a tensor with at most `limit` elements, unless a single slice or group exceeds the limit. The axis of the granularity
 * is the last to be thinned, so that all of its channels or groups stay in the sample if possible. Groups are never split.
 */
export function takeSample(
  values: Float32Array,
  shape: readonly number[],
  granularity: Granularity,
  limit: number,
): Sample {
  let sample: Sample = { values, shape, position: (index) => index };
  const own = granularity.kind === 'per-tensor' ? -1 : (granularity.axis ?? shape.length - 1);
  // Longest first, and the granularity's own axis last.
  const order = shape
    .map((_, axis) => axis)
    .sort((a, b) => Number(a === own) - Number(b === own) || shape[b]! - shape[a]!);
  for (const axis of order) {
    const size = sample.values.length;
    if (size <= limit) break;
    const unit = axis === own && granularity.kind === 'per-group' ? granularity.groupSize : 1;
    sample = thin(sample, axis, unit, Math.max(1, Math.floor((sample.shape[axis]! * limit) / size / unit)));
  }
  return sample;
}

/** Keeps `pieces` evenly spaced pieces of `unit` indices along an axis. */
function thin(from: Sample, axis: number, unit: number, pieces: number): Sample {
  const length = from.shape[axis]!;
  const inner = product(from.shape.slice(axis + 1));
  const outer = product(from.shape.slice(0, axis));
  const whole = Math.ceil(length / unit);
  if (pieces >= whole) return from;
  const kept: number[] = [];
  for (let piece = 0; piece < pieces; piece++) {
    const first = Math.floor((piece * whole) / pieces) * unit;
    for (let a = first; a < Math.min(first + unit, length); a++) kept.push(a);
  }
  const values = new Float32Array(outer * kept.length * inner);
  let end = 0;
  for (let o = 0; o < outer; o++) {
    for (const a of kept) {
      const start = (o * length + a) * inner;
      values.set(from.values.subarray(start, start + inner), end);
      end += inner;
    }
  }
  const position = (index: number) => {
    const row = Math.floor(index / inner);
    const a = kept[row % kept.length]!;
    return from.position((Math.floor(row / kept.length) * length + a) * inner + (index % inner));
  };
  return { values, shape: from.shape.map((n, at) => (at === axis ? kept.length : n)), position };
}
