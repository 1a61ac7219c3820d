/** Bits that no valid tensor has, such as scales that are NaN or padding that is not 0. */

/** A check of units of bytes at equal distances in a part. */
export interface BitCheck {
  /** The mistake: a float is NaN or infinite, bits lie outside of any code, or a byte is neither 0 nor 1. */
  readonly kind: 'notFinite' | 'spareBits' | 'notBoolean';
  /** Bytes of a unit. Units begin at multiples of it. */
  readonly unit: 1 | 2 | 4;
  /** Offset of the first unit in the part, and distance between units, in bytes. */
  readonly at: number;
  readonly stride: number;
  readonly mask: number;
  /** A unit is wrong if all bits of the mask are set, or if any bit is set. */
  readonly wrong: 'all' | 'any';
  /** True for an error in any file, false for a note. Plain floats may be NaN. */
  readonly isProblem: boolean;
  /** The message after `1 `, and after a larger count. */
  readonly one: string;
  readonly many: string;
  /** Name of the bytes of one stride, such as `block`; undefined for elements. */
  readonly container?: string;
}

/** The exponent bits of floats, which are all set for NaN and infinity. Those of a float64 are in its high half. */
const exponents: Readonly<Record<string, Pick<BitCheck, 'unit' | 'mask'> & { readonly bytes: number }>> = {
  F64: { bytes: 8, unit: 4, mask: 0x7ff00000 },
  F32: { bytes: 4, unit: 4, mask: 0x7f800000 },
  F16: { bytes: 2, unit: 2, mask: 0x7c00 },
  BF16: { bytes: 2, unit: 2, mask: 0x7f80 },
  F8_E5M2: { bytes: 1, unit: 1, mask: 0x7c },
  // This type has no infinity. NaN alone has all bits of exponent and fraction set.
  F8_E4M3: { bytes: 1, unit: 1, mask: 0x7f },
  // This type has powers of two, and one NaN.
  F8_E8M0: { bytes: 1, unit: 1, mask: 0xff },
};

const nonFinite = { one: 'is NaN or infinite', many: 'are NaN or infinite' } as const;
const notFinite = { kind: 'notFinite', wrong: 'all' } as const;

/** The check of floats that fill a part. Empty for other types. @param isProblem true where no quantizer writes NaN */
export function floatsFinite(type: string, what: 'element' | 'scale', isProblem = what === 'scale'): BitCheck[] {
  const float = Object.hasOwn(exponents, type) ? exponents[type] : undefined;
  if (float === undefined) return [];
  const { bytes, unit, mask } = float;
  const texts = { one: `${what} ${nonFinite.one}`, many: `${what}s ${nonFinite.many}` };
  return [{ ...notFinite, unit, mask, at: bytes - unit, stride: bytes, isProblem, ...texts }];
}

/** The check of a float in each block. @param stride size of a block in bytes */
export function blockFinite(type: string, what: string, at: number, stride: number): BitCheck {
  const { unit, mask } = exponents[type] as (typeof exponents)[string];
  const texts = { one: `${what} ${nonFinite.one}`, many: `${what}s ${nonFinite.many}` };
  return { ...notFinite, unit, mask, at, stride, isProblem: true, ...texts, container: 'block' };
}
