/** What the bits of a stored tensor may not be, whatever its numbers are: scales that are NaN, bits that belong to no code. */

/** A look at units of bytes that stand at equal distances in a part. */
export interface BitCheck {
  /** Bytes of a unit. Units begin at multiples of it. */
  readonly unit: 1 | 2 | 4;
  /** Where the first unit is in the part, and how far apart they are, in bytes. */
  readonly at: number;
  readonly stride: number;
  readonly mask: number;
  /** A unit is wrong if all bits of the mask are set, or if any of them is. */
  readonly wrong: 'all' | 'any';
  /** Whether that is an error in every file. Floats by themselves may be NaN. */
  readonly isProblem: boolean;
  /** What is wrong: behind `1 `, and behind a larger number. */
  readonly one: string;
  readonly many: string;
  /** What there is one of in each stride, such as `block`; undefined if it is an element. */
  readonly container?: string;
}

/** Which bits of floats are all set if the value is NaN or infinite. The high half of a float64 tells it. */
const exponents: Readonly<Record<string, Pick<BitCheck, 'unit' | 'mask'> & { readonly bytes: number }>> = {
  F64: { bytes: 8, unit: 4, mask: 0x7ff00000 },
  F32: { bytes: 4, unit: 4, mask: 0x7f800000 },
  F16: { bytes: 2, unit: 2, mask: 0x7c00 },
  BF16: { bytes: 2, unit: 2, mask: 0x7f80 },
  F8_E5M2: { bytes: 1, unit: 1, mask: 0x7c },
  // There is no infinity: only NaN has all bits of exponent and fraction.
  F8_E4M3: { bytes: 1, unit: 1, mask: 0x7f },
  // Powers of two, and one NaN.
  F8_E8M0: { bytes: 1, unit: 1, mask: 0xff },
};

const nonFinite = { wrong: 'all', one: 'is NaN or infinite', many: 'are NaN or infinite' } as const;

/** Floats that fill a part. Nothing for other types. */
export function floatsFinite(type: string, what: 'element' | 'scale'): BitCheck[] {
  const float = Object.hasOwn(exponents, type) ? exponents[type] : undefined;
  if (float === undefined) return [];
  const { bytes, unit, mask } = float;
  const texts = { one: `${what} ${nonFinite.one}`, many: `${what}s ${nonFinite.many}` };
  return [{ unit, mask, wrong: 'all', at: bytes - unit, stride: bytes, isProblem: what === 'scale', ...texts }];
}

/** A float in each block of so many bytes. */
export function blockFinite(type: string, what: string, at: number, stride: number): BitCheck {
  const { unit, mask } = exponents[type] as (typeof exponents)[string];
  const texts = { one: `${what} ${nonFinite.one}`, many: `${what}s ${nonFinite.many}` };
  return { unit, mask, wrong: 'all', at, stride, isProblem: true, ...texts, container: 'block' };
}
