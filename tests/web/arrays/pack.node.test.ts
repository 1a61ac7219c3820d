import type { CodeArray, DType, LinearQuantizedTensor, PackedTensor, QuantizedTensor } from 'scalepoint';
import { afterEach, expect, it } from 'vitest';
import {
  type Codes,
  codesOf,
  describeBuilds,
  dtypes,
  expectGood,
  expectRefusal,
  expectSame,
  Random,
  rangeOf,
  resizableBuffer,
} from '../support/support.js';

/** Bit by bit, as the documentation words it: bit b of element i is bit i * bits + b of the result. */
function packed(codes: ArrayLike<number>, bits: number): Uint8Array {
  const bytes = new Uint8Array(Math.ceil((codes.length * bits) / 8));
  for (let i = 0; i < codes.length; i++) {
    for (let b = 0; b < bits; b++) {
      const at = i * bits + b;
      if ((codes[i]! >> b) & 1) bytes[at >> 3]! |= 1 << (at & 7);
    }
  }
  return bytes;
}

function tensor(dtype: DType, data: Codes, shape = [data.length]): LinearQuantizedTensor {
  return {
    kind: 'linear',
    dtype,
    shape,
    granularity: { kind: 'per-tensor' },
    data: data as CodeArray,
    scale: new Float32Array([1]),
    zeroPoint: new Int32Array([0]),
  };
}

function randomCodes(dtype: DType, n: number, seed: number): Codes {
  const random = new Random(seed);
  const { qmin, qmax } = rangeOf(dtype);
  const codes = codesOf(dtype, n);
  for (let i = 0; i < n; i++) codes[i] = qmin + random.below(qmax - qmin + 1);
  return codes;
}

// tests/cpp/pack_bits_test.cpp has every code at every place, any bytes and any alignment.
describeBuilds('pack and unpack', (sp) => {
  afterEach(() => expectGood(sp));

  it('put the lowest bits first', () => {
    expect(sp.pack(tensor('uint4', new Uint8Array([1, 2, 3])))).toEqual(new Uint8Array([0x21, 0x03]));
    expect(sp.pack(tensor('int4', new Int8Array([-1, 7, -8])))).toEqual(new Uint8Array([0x7f, 0x08]));
    expect(sp.pack(tensor('uint2', new Uint8Array([0, 1, 2, 3, 1])))).toEqual(new Uint8Array([0b11100100, 0b01]));
    // 3 bits: 001 010 011 gives 11010001 and 0.
    expect(sp.pack(tensor('uint3', new Uint8Array([1, 2, 3])))).toEqual(new Uint8Array([0b11010001, 0]));
    expect(sp.pack(tensor('int16', new Int16Array([-2, 258])))).toEqual(new Uint8Array([0xfe, 0xff, 2, 1]));
    expect(sp.unpack(new Uint8Array([0x7f, 0x08]), { dtype: 'int4', shape: [3] })).toEqual(new Int8Array([-1, 7, -8]));
  });

  it.each(dtypes)('are the reverse of each other for %s', (dtype) => {
    const { bits } = rangeOf(dtype);
    // Short, beside a step of copying, and beside a tile.
    for (const n of [0, 7, 16_385, 131_073]) {
      const codes = randomCodes(dtype, n, n + bits);
      const q = tensor(dtype, codes);
      const bytes = sp.pack(q);
      expectSame(bytes, packed(codes, bits), `${n} packed`);
      expectSame(sp.unpack(bytes, q), codes, `${n} unpacked`);
    }
  });

  it('work on parts of arrays, on wasm memory, and on arrays of any shape', () => {
    const codes = randomCodes('int5', 600, 71) as Int8Array;
    const want = packed(codes, 5);
    const around = new Int8Array(700);
    around.set(codes, 51);
    expectSame(sp.pack(tensor('int5', around.subarray(51, 651))), want);
    const inWasm = sp.allocate('int8', 700);
    inWasm.view.set(codes, 51);
    expectSame(sp.pack(tensor('int5', inWasm.view.subarray(51, 651))), want);
    const exact = sp.allocate('int8', 600);
    exact.view.set(codes);
    expectSame(sp.pack({ ...tensor('int5', codes), data: exact }), want);
    expectSame(sp.pack(tensor('int5', codes, [10, 3, 20])), want);
    expectSame(sp.pack(tensor('int5', codes, [600, 1, 1])), want);

    const bytes = new Uint8Array(want.length + 9);
    bytes.set(want, 7);
    const q = { dtype: 'int5', shape: [2, 300] } as const;
    expectSame(sp.unpack(bytes.subarray(7, 7 + want.length), q), codes);
    const resizable = new Uint8Array(resizableBuffer(want.length));
    resizable.set(want);
    expectSame(sp.unpack(resizable, q), codes);
    const wasmBytes = sp.allocate('uint8', want.length);
    wasmBytes.view.set(want);
    expectSame(sp.unpack(wasmBytes.view, q), codes);
    for (const array of [inWasm, exact, wasmBytes]) array.dispose();
  });

  it('give arrays of their own', () => {
    const q = tensor('uint8', new Uint8Array([1, 2, 3]));
    const bytes = sp.pack(q);
    bytes.fill(9);
    expect(q.data).toEqual(new Uint8Array([1, 2, 3]));
    const codes = sp.unpack(bytes, q);
    bytes.fill(0);
    expect(codes).toEqual(new Uint8Array([9, 9, 9]));
  });

  it('turn a quantized tensor into bytes and back', () => {
    const x = new Random(72).bell(500);
    for (const dtype of dtypes) {
      const q = sp.quantize(x, { dtype, shape: [20, 25], granularity: { kind: 'per-channel', axis: 0 } });
      const again: QuantizedTensor = { ...q, data: sp.unpack(sp.pack(q), q) };
      expect(again).toEqual(q);
    }
  });

  it('take empty tensors', () => {
    for (const dtype of dtypes) {
      for (const shape of [[0], [0, 7], [3, 0]]) {
        const q = tensor(dtype, codesOf(dtype, 0), shape);
        expect(sp.pack(q)).toEqual(new Uint8Array(0));
        expectSame(sp.unpack(new Uint8Array(0), q), codesOf(dtype, 0));
      }
    }
  });

  it('refuse wrong bytes and wrong tensors, naming them', () => {
    const q: PackedTensor = { dtype: 'int3', shape: [8] };
    const unpack = sp.unpack.bind(sp) as (bytes: unknown, q: unknown) => unknown;
    const bytes = new Uint8Array(3);
    expectRefusal(() => unpack(undefined, q), TypeError, 'bytes');
    expectRefusal(() => unpack([1, 2, 3], q), TypeError, 'bytes');
    expectRefusal(() => unpack(new ArrayBuffer(3), q), TypeError, 'bytes');
    expectRefusal(() => unpack(new Int8Array(3), q), TypeError, 'bytes');
    expectRefusal(() => unpack(new Uint8ClampedArray(3), q), TypeError, 'bytes');
    expectRefusal(() => unpack(new Uint8Array(2), q), RangeError, 'bytes');
    expectRefusal(() => unpack(new Uint8Array(4), q), RangeError, 'bytes');
    const gone = new Uint8Array(3);
    structuredClone(gone.buffer, { transfer: [gone.buffer] });
    expectRefusal(() => unpack(gone, q), TypeError, 'bytes');
    expectRefusal(() => unpack(bytes, undefined), TypeError, 'q');
    expectRefusal(() => unpack(bytes, null), TypeError, 'q');
    expectRefusal(() => unpack(bytes, 'int3'), TypeError, 'q');
    expectRefusal(() => unpack(bytes, { ...q, dtype: 'int9' }), RangeError, 'q.dtype');
    expectRefusal(() => unpack(bytes, { shape: [8] }), RangeError, 'q.dtype');
    expectRefusal(() => unpack(bytes, { dtype: 'int3' }), TypeError, 'q.shape');
    expectRefusal(() => unpack(bytes, { ...q, shape: 8 }), TypeError, 'q.shape');
    expectRefusal(() => unpack(bytes, { ...q, shape: ['8'] }), TypeError, 'q.shape');
    expectRefusal(() => unpack(bytes, { ...q, shape: [8n] }), TypeError, 'q.shape');
    expectRefusal(() => unpack(bytes, { ...q, shape: [null] }), TypeError, 'q.shape');
    expectRefusal(() => unpack(bytes, { ...q, shape: [-2, -4] }), RangeError, 'q.shape');
    expectRefusal(() => unpack(bytes, { ...q, shape: [0.5, 16] }), RangeError, 'q.shape');
    expectRefusal(() => unpack(bytes, { ...q, shape: [Number.NaN] }), RangeError, 'q.shape');
    expectRefusal(() => unpack(bytes, { ...q, shape: [Infinity, 0] }), RangeError, 'q.shape');
    expectRefusal(() => unpack(bytes, { ...q, shape: [2 ** 40, 2 ** 40] }), RangeError, 'q.shape');
    expectRefusal(() => unpack(bytes, { ...q, shape: new Array(200).fill(2 ** 20) }), RangeError, 'q.shape');
    // As many elements as there are numbers; their bytes are not there, and no memory is taken for them.
    expectRefusal(() => unpack(bytes, { ...q, shape: [Number.MAX_SAFE_INTEGER] }), RangeError, 'bytes');
  });
});
