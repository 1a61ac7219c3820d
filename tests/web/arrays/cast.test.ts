import { load } from 'scalepoint';
import { describe, expect, it } from 'vitest';
import { expectRefusal, thrownBy } from '../support/support.js';

const instances = [await load({ simd: 'on' }), await load({ simd: 'off' })];
const formats = ['float8e4m3fn', 'float8e5m2', 'float4e2m1'] as const;

// tests/cpp/minifloat_test.cpp has every value, every midpoint and random bits.
describe.each(instances.map((sp) => ({ sp, name: sp.simd ? 'simd' : 'scalar' })))('casts, $name', ({ sp }) => {
  it('rounds half to even, and keeps infinities and NaN as far as there are some', () => {
    const x = [1 + 2 ** -11, 1 + 3 * 2 ** -11, 1 + 2 ** -8, 2.5, -0, 3e38, -Infinity, Number.NaN];
    expect([...sp.castFloat(x, 'float16')]).toEqual([0x3c00, 0x3c02, 0x3c04, 0x4100, 0x8000, 0x7c00, 0xfc00, 0x7e00]);
    expect([...sp.castFloat(x, 'bfloat16')]).toEqual([0x3f80, 0x3f80, 0x3f80, 0x4020, 0x8000, 0x7f62, 0xff80, 0x7fc0]);
    expect([...sp.castFloat(x, 'float8e4m3fn')]).toEqual([0x38, 0x38, 0x38, 0x42, 0x80, 0x7e, 0xfe, 0x7f]);
    expect([...sp.castFloat(x, 'float4e2m1')]).toEqual([2, 2, 2, 4, 8, 7, 15, 7]);
    expect([...sp.castFloat(x, 'float8e5m2', { saturate: false })].slice(5)).toEqual([0x7c, 0xfc, 0x7f]);
    expect([...sp.castToFloat32(Uint16Array.of(1, 0x7bff, 0xfc00), 'float16')]).toEqual([2 ** -24, 65504, -Infinity]);
  });

  it.each(formats)('takes any length and alignment for %s', (name) => {
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
    const words = new Uint16Array(4);
    const values = ['float16', 'bfloat16', 'float8e4m3fn', 'float8e5m2', 'float4e2m1'];
    const toUnknown = () => sp.castFloat([1], 'float8' as 'float16');
    expect(thrownBy(toUnknown)).toMatchObject({ problem: { expected: { kind: 'oneOf', values }, got: 'float8' } });
    expectRefusal(toUnknown, RangeError, 'to');
    const fromUnknown = () => sp.castToFloat32(words, 'half' as 'float16');
    expect(thrownBy(fromUnknown)).toMatchObject({ problem: { expected: { kind: 'oneOf', values }, got: 'half' } });
    expectRefusal(fromUnknown, RangeError, 'from');
    const floats = new Float32Array(4);
    expectRefusal(() => sp.castToFloat32(floats as unknown as Uint16Array, 'float16'), TypeError, 'bits');
    expectRefusal(() => sp.castToFloat32(words, 'float8e5m2'), TypeError, 'bits');
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
  for (const name of [...formats, 'float16', 'bfloat16'] as const) {
    for (const saturate of [true, false]) {
      const expected = scalar.castFloat(x, name, { saturate });
      const difference = simd.castFloat(x, name, { saturate }).findIndex((code, i) => code !== expected[i]);
      if (difference >= 0) expect.fail(`${name}: the builds differ at ${x[difference]}`);
    }
  }
});
