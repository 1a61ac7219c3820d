/**
 * The quantization levels of one part and its parameters. A code restores to scale * (code - zeroPoint), or, if `values` are given, to
 * values[code - qmin].
 */
export interface Levels {
  readonly qmin: number;
  readonly qmax: number;
  readonly scale: number;
  readonly zeroPoint: number;
  /** Levels that are not evenly spaced, in ascending order. */
  readonly values?: readonly number[];
  /** True if the codes are only the ranks of the values, as in ggml's blocks, whose bits hold codes and scales together. */
  readonly areRanks?: true;
}

/**
 * The value that a code restores to, in double: the outermost levels in a picture may exceed the float32 range. Between two codes it is
 * between their levels, and beyond the outermost ones it goes on with the outermost step.
 */
export function levelAt({ scale, zeroPoint, values, qmin }: Levels, code: number): number {
  if (values === undefined) return scale * (code - zeroPoint);
  const last = values.length - 1;
  if (last <= 0) return values[0] ?? 0;
  const at = code - qmin;
  const below = Math.max(0, Math.min(Math.floor(at), last - 1));
  const low = values[below]!;
  return at === below ? low : low + (at - below) * (values[below + 1]! - low);
}
