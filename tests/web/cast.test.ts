import { load } from 'scalepoint';
import { describe, expect, it } from 'vitest';

const instances = [await load({ simd: 'on' }), await load({ simd: 'off' })];
const all = Uint16Array.from({ length: 65536 }, (_, i) => i);
const oneFloat = new Float32Array(1);
const oneWord = new Uint32Array(oneFloat.buffer);

/** The value of a float16, by the definition of the format. */
function float16(bits: number): number {
  const sign = bits & 0x8000 ? -1 : 1;
  const exponent = (bits >> 10) & 31;
  const fraction = bits & 1023;
  if (exponent === 31) return fraction === 0 ? sign * Number.POSITIVE_INFINITY : Number.NaN;
  return exponent === 0 ? sign * fraction * 2 ** -24 : sign * (1 + fraction / 1024) * 2 ** (exponent - 15);
}

/** The value of a bfloat16: that of the float32 with these upper bits. */
function bfloat16(bits: number): number {
  oneWord[0] = bits * 65536;
  return oneFloat[0] as number;
}

describe.each(instances.map((sp) => ({ sp, name: sp.simd ? 'simd' : 'scalar' })))('casts, $name', ({ sp }) => {
  for (const [format, exact, infinity] of [
    ['float16', float16, 0x7c00],
    ['bfloat16', bfloat16, 0x7f80],
  ] as const) {
    it(`widens every ${format} exactly`, () => {
      const values = sp.castToFloat32(all, format);
      for (const bits of all) {
        if (!Object.is(values[bits], exact(bits))) expect.fail(`${bits} became ${values[bits]}`);
      }
    });

    it(`rounds to ${format} half to even: every value, every midpoint and its neighbours`, () => {
      const x: number[] = [];
      const expected: number[] = [];
      for (let bits = 0; bits < infinity; bits++) {
        const low = exact(bits);
        // Above the largest value lies what would be the next one if the exponent went on.
        const high = bits + 1 < infinity ? exact(bits + 1) : 2 * low - exact(bits - 1);
        // Exact in float32, which has more bits than either format, but for the subnormal numbers of bfloat16.
        const middle = (low + high) / 2;
        if (Math.fround(middle) !== middle) continue;
        oneFloat[0] = middle;
        const word = oneWord[0] as number;
        oneWord[0] = word - 1;
        const below = oneFloat[0] as number;
        oneWord[0] = word + 1;
        const above = oneFloat[0] as number;
        x.push(low, middle, below, above, -low, -middle, -below, -above);
        const even = bits % 2 === 0 ? bits : bits + 1;
        expected.push(bits, even, bits, bits + 1);
        expected.push(bits | 0x8000, even | 0x8000, bits | 0x8000, (bits + 1) | 0x8000);
      }
      const rounded = sp.castFloat(Float32Array.from(x), format);
      for (const [i, bits] of rounded.entries()) {
        if (bits !== expected[i]) expect.fail(`${x[i]} became ${bits} instead of ${expected[i]}`);
      }
      expect(x.length).toBeGreaterThan(8 * 30000);
    });

    it(`keeps infinities and NaN in ${format}`, () => {
      const bits = sp.castFloat([Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY, Number.NaN, 3e38, -0], format);
      expect(bits[0]).toBe(infinity);
      expect(bits[1]).toBe(infinity | 0x8000);
      expect(sp.castToFloat32(bits, format)[2]).toBeNaN();
      expect(bits[3]).toBe(format === 'float16' ? infinity : 0x7f62);
      expect(bits[4]).toBe(0x8000);
    });
  }

  it('names a wrong format or input', () => {
    expect(() => sp.castFloat([1], 'float8' as 'float16')).toThrow(
      /^to: expected 'float16' or 'bfloat16', got "float8"/,
    );
    expect(() => sp.castToFloat32(all, 'half' as 'float16')).toThrow(/^from: expected/);
    expect(() => sp.castToFloat32(new Float32Array(1) as unknown as Uint16Array, 'float16')).toThrow(TypeError);
    expect(sp.castToFloat32(sp.castFloat([0.5, -2], 'bfloat16'), 'bfloat16')).toEqual(Float32Array.of(0.5, -2));
  });
});
