// Small floats by their definition: a sign, an exponent and a fraction. Everything is computed in double precision, where it is exact.

/** A binary float with an implicit leading one. */
export interface FloatFormat {
  /** Bits of the fraction. */
  readonly fraction: number;
  /** Exponent of the smallest normal number. */
  readonly smallest: number;
  readonly largest: number;
  /** Bits of the whole number. */
  readonly bits: number;
  /** True if values beyond the largest round to infinity. */
  readonly hasInfinity: boolean;
}

export const float32: FloatFormat = {
  ...{ fraction: 23, smallest: -126, largest: 2 ** 128 - 2 ** 104, bits: 32, hasInfinity: true },
};
export const float16: FloatFormat = { fraction: 10, smallest: -14, largest: 65504, bits: 16, hasInfinity: true };
export const bfloat16: FloatFormat = {
  ...{ fraction: 7, smallest: -126, largest: 2 ** 128 - 2 ** 120, bits: 16, hasInfinity: true },
};
export const e4m3: FloatFormat = { fraction: 3, smallest: -6, largest: 448, bits: 8, hasInfinity: false };
export const e2m1: FloatFormat = { fraction: 1, smallest: 0, largest: 6, bits: 4, hasInfinity: false };

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

/** The nearest value of a format, ties to even. Beyond the largest: infinity, or the largest where the format has none. */
export function nearest(x: number, format: FloatFormat): number {
  const size = Math.abs(x);
  if (size === 0 || Number.isNaN(x) || size === Infinity)
    return format.hasInfinity || size === 0 ? x : clampTo(x, format);
  const step = 2 ** (Math.max(exponentOf(size), format.smallest) - format.fraction);
  const rounded = evenRound(size / step) * step;
  const kept = rounded <= format.largest ? rounded : format.hasInfinity ? Infinity : format.largest;
  return Object.is(Math.sign(x), 1) ? kept : -kept;
}

const clampTo = (x: number, { largest }: FloatFormat) => (x > 0 ? largest : -largest);

/** Bits of a value that the format has. */
function bitsOf(value: number, format: FloatFormat): number {
  const { fraction, smallest, bits } = format;
  const size = Math.abs(value);
  const sign = value < 0 || Object.is(value, -0) ? 2 ** (bits - 1) : 0;
  if (size === Infinity) return sign + (2 ** (bits - 1 - fraction) - 1) * 2 ** fraction;
  if (size < 2 ** smallest) return sign + size / 2 ** (smallest - fraction);
  const exponent = exponentOf(size);
  return sign + (exponent - smallest + 1) * 2 ** fraction + (size / 2 ** exponent - 1) * 2 ** fraction;
}

/** The value of bits. NaN of float8 is the code whose bits are all set, of the larger formats any with the largest exponent. */
export function numberOf(code: number, format: FloatFormat): number {
  const { fraction, smallest, bits, hasInfinity } = format;
  const sign = code >= 2 ** (bits - 1) ? -1 : 1;
  const field = code % 2 ** (bits - 1);
  const exponent = Math.floor(field / 2 ** fraction);
  const rest = field % 2 ** fraction;
  if (hasInfinity && exponent === 2 ** (bits - 1 - fraction) - 1) return rest === 0 ? sign * Infinity : NaN;
  if (bits === 8 && field === 127) return NaN;
  const size = exponent === 0 ? rest : rest + 2 ** fraction;
  return sign * size * 2 ** (smallest - fraction + Math.max(exponent, 1) - 1);
}

/** The nearest code of a format, ties to even, saturated where the format has no infinity. */
export const codeOf = (x: number, format: FloatFormat): number => bitsOf(nearest(x, format), format);

/** A power of two as its exponent plus 127 (E8M0). */
export const powerOf = (code: number): number => 2 ** (code - 127);

/** Numbers of a float type as a file stores them. */
export function encode(values: ArrayLike<number>, format: FloatFormat): Float32Array | Uint16Array {
  if (format === float32) return Float32Array.from(values);
  return Uint16Array.from(values, (v) => codeOf(v, format));
}
