import { type FloatFormat, load } from 'scalepoint';
import { describe, expect, it } from 'vitest';
import { expectRefusal, thrownBy } from '../support/support.js';

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

/** The float32 next to x > 0. */
function floatBelow(x: number): number {
  oneFloat[0] = x;
  oneWord[0] = (oneWord[0] as number) - 1;
  return oneFloat[0] as number;
}
function floatAbove(x: number): number {
  oneFloat[0] = x;
  oneWord[0] = (oneWord[0] as number) + 1;
  return oneFloat[0] as number;
}

interface Format<Name extends FloatFormat = FloatFormat> {
  readonly name: Name;
  /** The value of a code without its sign. */
  value(code: number): number;
  /** The code of the largest number, what takes its place without saturation where numbers are larger, and that of NaN. */
  readonly largest: number;
  readonly overflow: number;
  readonly nan: number;
  readonly signBit: number;
  /** The values of the codes up to the largest, and what would be the next one if numbers went on. */
  readonly values: number[];
}

/** A format by its bits of exponent and fraction. The codes above the largest number are infinity, if the format has it, and NaN. */
function format<Name extends FloatFormat>(
  name: Name,
  exponentBits: number,
  fractionBits: number,
  largest: number,
  infinity: number | undefined,
  overflow: number,
  nan: number,
): Format<Name> {
  const bias = 2 ** (exponentBits - 1) - 1;
  const ones = 2 ** fractionBits;
  const number = (code: number) => {
    const exponent = Math.floor(code / ones);
    const fraction = code % ones;
    return exponent === 0
      ? fraction * 2 ** (1 - bias - fractionBits)
      : (ones + fraction) * 2 ** (exponent - bias - fractionBits);
  };
  const value = (code: number) => (code <= largest ? number(code) : code === infinity ? Infinity : NaN);
  const values = Array.from({ length: largest + 2 }, (_, code) => number(code));
  return { name, value, largest, overflow, nan, signBit: 2 ** (exponentBits + fractionBits), values };
}

// ONNX, "Float stored in 8 bits" and "Float stored in 4 bits".
const formats = [
  format('float8e4m3fn', 4, 3, 0x7e, undefined, 0x7f, 0x7f),
  format('float8e5m2', 5, 2, 0x7b, 0x7c, 0x7c, 0x7f),
  format('float4e2m1', 2, 1, 7, undefined, 7, 7),
];
const halves = [
  format('float16', 5, 10, 0x7bff, 0x7c00, 0x7c00, 0x7e00),
  format('bfloat16', 8, 7, 0x7f7f, 0x7f80, 0x7f80, 0x7fc0),
];

/** The nearest code, ties to the even one, for sizes that come in ascending order, or start again from below. */
class Walk {
  #code = 0;
  #last = 0;
  constructor(readonly format: Format) {}

  code(size: number): number {
    const { values, largest } = this.format;
    if (size < this.#last) this.#code = 0;
    this.#last = size;
    // Up as long as the next code is nearer, or as near and even. The middle is exact in double.
    for (; this.#code <= largest; this.#code++) {
      const middle = ((values[this.#code] as number) + (values[this.#code + 1] as number)) / 2;
      if (size < middle || (size === middle && this.#code % 2 === 0)) break;
    }
    return this.#code;
  }
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

  for (const format of formats) {
    const { name, largest, overflow, nan, signBit, values } = format;

    it(`restores every ${name}`, () => {
      const bits = Uint8Array.from({ length: 256 }, (_, i) => i);
      for (const [code, x] of sp.castToFloat32(bits, name).entries()) {
        const size = code & (signBit - 1);
        const value = code & signBit ? -format.value(size) : format.value(size);
        if (!Object.is(x, value)) expect.fail(`${code} became ${x} instead of ${value}`);
        if (Number.isNaN(x) || code >= 2 * signBit) continue;
        for (const saturate of [true, false]) {
          const again = sp.castFloat([x], name, { saturate })[0];
          // An infinity that saturates is the only value that does not come back.
          expect(again).toBe(saturate && size > largest ? largest | (code & signBit) : code);
        }
      }
    });

    it(`rounds to ${name} half to even: every value, every midpoint and its neighbours`, () => {
      const x: number[] = [];
      const expected: number[] = [];
      for (let code = 0; code <= largest; code++) {
        const next = code < largest ? code + 1 : overflow;
        const middle = ((values[code] as number) + (values[code + 1] as number)) / 2;
        x.push(values[code] as number, middle, floatBelow(middle), floatAbove(middle));
        expected.push(code, code % 2 === 0 ? code : next, code, next);
      }
      x.push(3.4e38, Number.POSITIVE_INFINITY);
      expected.push(overflow, overflow);
      for (const sign of [0, signBit]) {
        const floats = Float32Array.from(x, (v) => (sign === 0 ? v : -v));
        const escaped = sp.castFloat(floats, name, { saturate: false });
        const saturated = sp.castFloat(floats, name);
        for (const [i, code] of expected.entries()) {
          if (escaped[i] !== (code | sign)) expect.fail(`${floats[i]} became ${escaped[i]} instead of ${code | sign}`);
          const most = Math.min(code, largest) | sign;
          if (saturated[i] !== most) expect.fail(`${floats[i]} became ${saturated[i]} instead of ${most}`);
        }
      }
    });

    it(`keeps NaN in ${name} as far as there is one`, () => {
      const patterns = Uint32Array.of(0x7fc00000, 0xffc00000, 0x7f800001, 0xff800001, 0x7fffffff, 0xffffffff);
      const bits = sp.castFloat(new Float32Array(patterns.buffer), name);
      const negative = name === 'float4e2m1' ? nan : nan | signBit;
      expect([...bits]).toEqual([nan, negative, nan, negative, nan, negative]);
      expect(sp.castFloat(new Float32Array(patterns.buffer), name, { saturate: false })).toEqual(bits);
    });

    it(`takes any length and alignment for ${name}`, () => {
      for (const length of [0, 1, 3, 4, 15, 16, 17, 31, 33, 100]) {
        for (const offset of [0, 1, 2, 3]) {
          const x = new Float32Array(length + offset).map((_, i) => Math.sin(i) * 9).subarray(offset);
          const bits = sp.castFloat(x, name);
          expect([...bits]).toEqual(Array.from(x, (v) => sp.castFloat([v], name)[0]));
          const padded = new Uint8Array(length + offset);
          padded.set(bits, offset);
          const back = sp.castToFloat32(padded.subarray(offset), name);
          expect(back).toEqual(Float32Array.from(bits, (v) => sp.castToFloat32(Uint8Array.of(v), name)[0] as number));
        }
      }
    });
  }

  it('rounds 2^24 floats of all sizes to every format as the tables say', () => {
    // Every 256th pattern and some of its successors, in ascending order, so that the oracle walks along its table.
    const step = 1 << 20;
    const patterns = new Uint32Array(step);
    const oracles = [...formats, ...halves].map((format) => new Walk(format));
    for (let block = 0; block < 16; block++) {
      for (let i = 0; i < step; i++) patterns[i] = (block * step + i) * 256 + ((i * 167) & 255);
      const x = new Float32Array(patterns.buffer);
      for (const oracle of oracles) {
        const { name, largest, overflow, nan, signBit } = oracle.format;
        const escaped = sp.castFloat(x, name, { saturate: false });
        const saturated = sp.castFloat(x, name, { saturate: true });
        const half = name === 'float16' || name === 'bfloat16';
        for (let i = 0; i < step; i++) {
          const v = x[i] as number;
          const sign = (patterns[i] as number) >= 2 ** 31 ? signBit : 0;
          let most: number;
          let code: number;
          if (Number.isNaN(v)) {
            code = name === 'float4e2m1' ? nan : nan | sign;
            most = code;
          } else {
            code = oracle.code(Math.abs(v));
            most = (half ? code : Math.min(code, largest)) | sign;
            code = (code > largest ? overflow : code) | sign;
          }
          if (escaped[i] !== code || saturated[i] !== most) {
            expect.fail(`${name}: ${v} became ${escaped[i]} and ${saturated[i]} instead of ${code} and ${most}`);
          }
        }
      }
    }
  });

  it('reads every kind of input and fills every kind of output', () => {
    const x = Float32Array.of(1.5, -448, 0.1, 1e9, 0);
    const expected = sp.castFloat(x, 'float8e4m3fn');
    const bits = sp.castFloat(x, 'float16');
    expect(sp.castFloat(bits, 'float8e5m2', { from: 'float16' })).toEqual(
      sp.castFloat(sp.castToFloat32(bits, 'float16'), 'float8e5m2'),
    );
    const out = new Uint8Array(5);
    expect(sp.castFloat([...x], 'float8e4m3fn', { out })).toBe(out);
    expect(out).toEqual(expected);
    using wasm = sp.allocate('float32', 5);
    using codes = sp.allocate('uint8', 5);
    using halfs = sp.allocate('uint16', 5);
    using back = sp.allocate('float32', 5);
    wasm.view.set(x);
    expect(sp.castFloat(wasm, 'float8e4m3fn', { out: codes })).toBe(codes);
    expect(codes.view).toEqual(expected);
    expect(sp.castFloat(x, 'float8e4m3fn', { out: codes }).view).toEqual(expected);
    expect(sp.castFloat(wasm, 'float16', { out: halfs }).view).toEqual(bits);
    expect(sp.castToFloat32(codes, 'float8e4m3fn', { out: back })).toBe(back);
    expect(back.view).toEqual(sp.castToFloat32(expected, 'float8e4m3fn'));
    expect(sp.castToFloat32(bits, 'float16', { out: back }).view).toEqual(sp.castToFloat32(halfs, 'float16'));
    const floats = new Float32Array(5);
    expect(sp.castToFloat32(expected, 'float8e4m3fn', { out: floats })).toBe(floats);
    expect(floats).toEqual(sp.castToFloat32(expected, 'float8e4m3fn'));
  });

  it('casts arrays longer than its scratch memory', () => {
    const x = new Float32Array((1 << 17) * 2 + 77).map((_, i) => ((i * 7919) % 65521) / 100 - 300);
    const bits = sp.castFloat(x, 'float8e4m3fn');
    const back = sp.castToFloat32(bits, 'float8e4m3fn');
    for (const i of [0, 1, (1 << 14) - 1, 1 << 14, (1 << 17) - 1, 1 << 17, 1 << 18, x.length - 1]) {
      expect(bits[i]).toBe(sp.castFloat([x[i] as number], 'float8e4m3fn')[0]);
      expect(back[i]).toBe(sp.castToFloat32(bits.subarray(i, i + 1), 'float8e4m3fn')[0]);
    }
  });

  it('names a wrong format, option or input', () => {
    const values = ['float16', 'bfloat16', 'float8e4m3fn', 'float8e5m2', 'float4e2m1'];
    const toUnknown = () => sp.castFloat([1], 'float8' as 'float16');
    expect(thrownBy(toUnknown)).toMatchObject({ problem: { expected: { kind: 'oneOf', values }, got: 'float8' } });
    expectRefusal(toUnknown, RangeError, 'to');
    const fromUnknown = () => sp.castToFloat32(all, 'half' as 'float16');
    expect(thrownBy(fromUnknown)).toMatchObject({ problem: { expected: { kind: 'oneOf', values }, got: 'half' } });
    expectRefusal(fromUnknown, RangeError, 'from');
    const floats = new Float32Array(4);
    expectRefusal(() => sp.castToFloat32(floats as unknown as Uint16Array, 'float16'), TypeError, 'bits');
    expectRefusal(() => sp.castToFloat32(all, 'float8e5m2'), TypeError, 'bits');
    const cast = (options: object) => () => sp.castFloat([1], 'float8e5m2', options);
    expectRefusal(cast({ saturate: 1 }), TypeError, 'saturate');
    expectRefusal(cast({ out: new Uint16Array(1) }), TypeError, 'out');
    expectRefusal(cast({ out: new Uint8Array(2) }), RangeError, 'out');
    expectRefusal(cast({ round: 'up' }), TypeError, 'round');
    const shared = { out: new Uint8Array(floats.buffer, 0, 4) };
    expectRefusal(() => sp.castFloat(floats, 'float8e5m2', shared), RangeError, 'out');
    expect(sp.castToFloat32(sp.castFloat([0.5, -2], 'bfloat16'), 'bfloat16')).toEqual(Float32Array.of(0.5, -2));
  });
});

it('casts to the same bits in both builds', () => {
  const patterns = Uint32Array.from({ length: 100_003 }, (_, i) => (i * 2654435761) % 2 ** 32);
  const x = new Float32Array(patterns.buffer);
  const [simd, scalar] = instances as [(typeof instances)[0], (typeof instances)[0]];
  for (const { name } of [...formats, ...halves]) {
    for (const saturate of [true, false]) {
      const expected = scalar.castFloat(x, name, { saturate });
      const difference = simd.castFloat(x, name, { saturate }).findIndex((code, i) => code !== expected[i]);
      if (difference >= 0) expect.fail(`${name}: the builds differ at ${x[difference]}`);
    }
  }
});
