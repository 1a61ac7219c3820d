// Arrays in wasm memory.
import type { WasmDType } from 'scalepoint';
import { expect, it } from 'vitest';
import { describeBuilds, expectCode, expectGood, expectRefusal, expectSame, memorySize } from '../support/support.js';

const kinds = {
  float32: Float32Array,
  int8: Int8Array,
  uint8: Uint8Array,
  int16: Int16Array,
  uint16: Uint16Array,
  int32: Int32Array,
} as const;

describeBuilds('a WasmArray', (sp) => {
  it('shows itself as a typed array of its kind', () => {
    for (const [dtype, kind] of Object.entries(kinds)) {
      for (const length of [0, 1, 7, 1000]) {
        const array = sp.allocate(dtype as WasmDType, length);
        expect([array.dtype, array.length]).toEqual([dtype, length]);
        expect(array.view).toBeInstanceOf(kind);
        expect(array.view.length).toBe(length);
        array.view.fill(3);
        expect(new Set(array.view)).toEqual(new Set(length ? [3] : []));
        array.dispose();
      }
    }
  });

  it('shares its memory with no other', () => {
    const arrays = Array.from({ length: 50 }, (_, i) => sp.allocate('uint8', i * 3));
    for (const [i, array] of arrays.entries()) array.view.fill(i);
    for (const [i, array] of arrays.entries()) expect([...array.view].every((v) => v === i)).toBe(true);
    for (const array of arrays) array.dispose();
  });

  it('refuses wrong types and lengths, naming them', () => {
    const allocate = sp.allocate.bind(sp) as (dtype: unknown, length: unknown) => unknown;
    expectRefusal(() => allocate('float64', 1), RangeError, 'dtype');
    expectRefusal(() => allocate('int4', 1), RangeError, 'dtype');
    expectRefusal(() => allocate('toString', 1), RangeError, 'dtype');
    expectRefusal(() => allocate('__proto__', 1), RangeError, 'dtype');
    expectRefusal(() => allocate(undefined, 1), RangeError, 'dtype');
    expectRefusal(() => allocate(['int8'], 1), RangeError, 'dtype');
    expectRefusal(() => allocate('int8', '1'), TypeError, 'length');
    expectRefusal(() => allocate('int8', 1n), TypeError, 'length');
    expectRefusal(() => allocate('int8', undefined), TypeError, 'length');
    expectRefusal(() => allocate('int8', -1), RangeError, 'length');
    expectRefusal(() => allocate('int8', 1.5), RangeError, 'length');
    expectRefusal(() => allocate('int8', Number.NaN), RangeError, 'length');
    expectRefusal(() => allocate('int8', Infinity), RangeError, 'length');
    expectRefusal(() => allocate('int8', 2 ** 53), RangeError, 'length');
    expectGood(sp);
  });

  it('says OUT_OF_MEMORY beyond 4 GiB, and the next one works', () => {
    for (const [dtype, length] of [
      ['float32', 2 ** 30],
      ['float32', 2 ** 32 + 1],
      ['int8', 2 ** 32],
      ['int8', 2 ** 32 - 1],
      ['int8', 2 ** 53 - 1],
      ['int16', 2 ** 31 + 1],
      ['int32', 2 ** 52],
    ] as const) {
      expectCode(() => sp.allocate(dtype, length), 'OUT_OF_MEMORY');
    }
    expectGood(sp);
    const array = sp.allocate('float32', 10);
    array.view.fill(1);
    expectSame(sp.quantize(array).data, new Int8Array(10).fill(127));
    array.dispose();
  });

  it('has to be of the right kind and length for what it is used for', () => {
    const array = sp.allocate('float32', 4);
    array.view.set([1, 2, 3, 4]);
    for (const dtype of ['int8', 'uint8', 'int16', 'int32', 'uint16'] as const) {
      const other = sp.allocate(dtype, 4);
      expectRefusal(() => sp.quantize(other), TypeError, 'x');
      if (dtype !== 'uint16') expectRefusal(() => sp.quantize(other, { from: 'float16' }), TypeError, 'x');
      if (dtype !== 'int8') expectRefusal(() => sp.quantize(array, { out: other as never }), TypeError, 'out');
      expectRefusal(() => sp.dequantize(sp.quantize(array), { out: other }), TypeError, 'out');
      other.dispose();
    }
    expectRefusal(() => sp.quantize(array, { from: 'float16' }), TypeError, 'x');
    const short = sp.allocate('int8', 3);
    expectRefusal(() => sp.quantize(array, { out: short }), RangeError, 'out');
    short.dispose();
    array.dispose();
  });

  it('is gone after dispose, and a second dispose does nothing', () => {
    const array = sp.allocate('float32', 4);
    const codes = sp.allocate('int8', 4);
    const q = sp.quantize(array, { out: codes });
    array.dispose();
    array.dispose();
    array[Symbol.dispose]();
    codes.dispose();
    expectCode(() => array.view, 'DISPOSED');
    expectCode(() => sp.quantize(array), 'DISPOSED');
    expectCode(() => sp.compare(array, [1, 2, 3, 4]), 'DISPOSED');
    expectCode(() => sp.compare([1, 2, 3, 4], array), 'DISPOSED');
    expectCode(() => sp.histogram(array), 'DISPOSED');
    expectCode(() => sp.quantize([1, 2, 3, 4], { out: codes }), 'DISPOSED');
    expectCode(() => sp.dequantize(q), 'DISPOSED');
    expectCode(() => sp.pack(q), 'DISPOSED');
    expectCode(() => sp.compare([1, 2, 3, 4], q), 'DISPOSED');
    expectGood(sp);
  });

  it('gives its memory back when it is disposed', () => {
    const make = () => sp.allocate('float32', 2 ** 20);
    make().dispose();
    const before = memorySize(sp);
    for (let i = 0; i < 50; i++) make().dispose();
    expect(memorySize(sp)).toBe(before);
  });

  it('does not give the same memory back twice', () => {
    const a = sp.allocate('uint8', 1000);
    a.dispose();
    const b = sp.allocate('uint8', 1000);
    b.view.fill(7);
    a.dispose();
    const c = sp.allocate('uint8', 1000);
    c.view.fill(9);
    expect(new Set(b.view)).toEqual(new Set([7]));
    b.dispose();
    c.dispose();
  });
});
