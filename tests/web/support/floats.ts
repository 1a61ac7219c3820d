// Small floats by their definition: a sign, an exponent and a fraction. Everything is computed in double precision, where it is exact.

/** A binary float with an implicit leading one. Values beyond the largest round to infinity. */
export interface FloatFormat {
  /** Bits of the fraction. */
  readonly fraction: number;
  /** Exponent of the smallest normal number. */
  readonly smallest: number;
  readonly largest: number;
}

export const float32: FloatFormat = { fraction: 23, smallest: -126, largest: 2 ** 128 - 2 ** 104 };
export const float16: FloatFormat = { fraction: 10, smallest: -14, largest: 65504 };
export const bfloat16: FloatFormat = { fraction: 7, smallest: -126, largest: 2 ** 128 - 2 ** 120 };

/** Floats of safetensors by the names of their types. */
export const named: Readonly<Record<string, FloatFormat>> = { F32: float32, F16: float16, BF16: bfloat16 };

const word = new DataView(new ArrayBuffer(8));

/** The largest whole number e with 2^e <= x, for a positive x that a float32 or a normal double can be. */
export function exponentOf(x: number): number {
  word.setFloat64(0, x);
  return ((word.getUint16(0) >> 4) & 0x7ff) - 1023;
}

/** The whole number nearest to x, the even one of two. */
export function evenRound(x: number): number {
  const down = Math.floor(x);
  const rest = x - down;
  if (rest !== 0.5) return rest < 0.5 ? down : down + 1;
  return down % 2 === 0 ? down : down + 1;
}

/** The nearest value of a format, ties to even. */
export function nearest(x: number, { fraction, smallest, largest }: FloatFormat): number {
  const size = Math.abs(x);
  if (size === 0 || Number.isNaN(x) || size === Infinity) return x;
  const step = 2 ** (Math.max(exponentOf(size), smallest) - fraction);
  const rounded = evenRound(size / step) * step;
  const kept = rounded <= largest ? rounded : Infinity;
  return x > 0 ? kept : -kept;
}
