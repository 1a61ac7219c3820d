import * as scalepoint from 'scalepoint';
import { type DType, dtypeInfo, type Granularity, dtypes as listed } from 'scalepoint';
import { describe, expect, it } from 'vitest';
import { describeBuilds, dtypes, expectRefusal, expectSame, parametersOf, rangeOf } from '../support/support.js';

describe('the package', () => {
  it('exports what its documentation names', () => {
    for (const name of ['load', 'dtypes', 'dtypeInfo', 'ScalepointError']) expect(scalepoint).toHaveProperty(name);
  });
});

describe('dtypes', () => {
  it('are all of int2 to int8, uint2 to uint8, int16 and uint16', () => {
    expect([...listed].sort()).toEqual([...dtypes].sort());
    expect(new Set(listed).size).toBe(16);
  });

  it('have the range of their bits and an array to live in', () => {
    for (const dtype of dtypes) {
      const { bits, signed, qmin, qmax } = rangeOf(dtype);
      const storage = `${signed ? '' : 'u'}int${bits === 16 ? 16 : 8}`;
      expect(dtypeInfo(dtype)).toEqual({ name: dtype, bits, signed, qmin, qmax, storage });
      expect(qmax - qmin).toBe(2 ** bits - 1);
    }
  });

  it('are refused if they do not exist', () => {
    for (const name of [
      'int1',
      'int9',
      'uint1',
      'int32',
      'INT8',
      '',
      'constructor',
      null,
      undefined,
      8,
      Symbol('int8'),
    ]) {
      expectRefusal(() => dtypeInfo(name as DType), RangeError, 'dtype');
    }
  });

  it('cannot be changed by whoever reads them', () => {
    const before = JSON.stringify(listed.map((dtype) => dtypeInfo(dtype)));
    try {
      (dtypeInfo('int8') as { qmax: number }).qmax = 5;
    } catch {
      // A frozen one says so.
    }
    try {
      (listed as DType[]).pop();
    } catch {
      // Likewise.
    }
    expect(JSON.stringify(listed.map((dtype) => dtypeInfo(dtype)))).toBe(before);
  });
});

describeBuilds('a quantized tensor', (sp) => {
  it('holds its codes in the smallest array that they fit', () => {
    for (const dtype of dtypes) {
      const { data } = sp.quantize([1, 2, 3], { dtype });
      expect(Object.prototype.toString.call(data).slice(8, -6).toLowerCase()).toBe(dtypeInfo(dtype).storage);
      expect((data as Uint8Array).byteLength).toBe(dtype.endsWith('16') ? 6 : 3);
    }
  });

  it('has as many scales and zero points as its granularity makes of its shape, in that order', () => {
    const shapes = [[12], [3, 4], [4, 3], [2, 3, 4], [2, 1, 3, 2]];
    for (const shape of shapes) {
      const size = shape.reduce((a, b) => a * b, 1);
      for (let axis = -shape.length; axis < shape.length; axis++) {
        const granularities: Granularity[] = [
          { kind: 'per-channel', axis },
          ...[1, 2, 3, 5, 100].map((groupSize) => ({ kind: 'per-group' as const, axis, groupSize })),
        ];
        for (const granularity of granularities) {
          const { of, count } = parametersOf(shape, granularity);
          // Element i is the number of its scale, plus one: with 1 as the only value of a group its scale is this over 127.
          const x = Float32Array.from(of, (p) => p + 1);
          const q = sp.quantize(x, { shape, granularity });
          expect([q.scale.length, q.zeroPoint.length]).toEqual([count, count]);
          expectSame(
            q.scale,
            Float32Array.from({ length: count }, (_, p) => (p + 1) / 127),
          );
          expectSame(q.data, new Int8Array(size).fill(127));
        }
      }
    }
  });

  it('takes a group along the last axis by default', () => {
    const x = [1, 2, 3, 4, 5, 6];
    const q = sp.quantize(x, { shape: [2, 3], granularity: { kind: 'per-group', groupSize: 2 } });
    expectSame(q.scale, new Float32Array([2, 3, 5, 6].map((v) => v / 127)));
    expect(q.granularity).toEqual({ kind: 'per-group', groupSize: 2, axis: 1 });
  });

  it('is plain data', () => {
    const q = sp.quantize([1, -2, 3], { dtype: 'uint8', scheme: 'asymmetric' });
    expect(Object.getPrototypeOf(q)).toBe(Object.prototype);
    expect(Object.keys(q).sort()).toEqual(['data', 'dtype', 'granularity', 'kind', 'scale', 'shape', 'zeroPoint']);
    expect(structuredClone(q)).toEqual(q);
  });

  it('may be made by hand, with what `quantize` gives', () => {
    const restored = sp.dequantize({
      kind: 'linear',
      dtype: 'int4',
      shape: [2, 2],
      granularity: { kind: 'per-group', groupSize: 2, axis: 0 },
      data: new Int8Array([1, 2, -3, -8]),
      scale: new Float32Array([0.5, 2]),
      zeroPoint: new Int32Array([1, -1]),
    });
    // Both rows are in one group, so there is a scale for each column.
    expect(restored).toEqual(new Float32Array([0, 6, -2, -14]));
  });

  it('restores codes beyond its dtype as they are', () => {
    // The type says what quantize makes; a code is a number.
    const q = sp.quantize([7], { dtype: 'int4', range: { scale: 1, zeroPoint: 0 } });
    expect(sp.dequantize({ ...q, data: new Int8Array([100]) })).toEqual(new Float32Array([100]));
  });

  it('restores the farthest codes exactly', () => {
    for (const zeroPoint of [2 ** 22, -(2 ** 22)]) {
      for (const [dtype, codes] of [
        ['int16', new Int16Array([-32768, 32767])],
        ['uint16', new Uint16Array([0, 65535])],
      ] as const) {
        const q = sp.quantize([0, 0], { dtype, range: { scale: 3, zeroPoint } });
        const want = Float32Array.from(codes, (code) => Math.fround(3 * (code - zeroPoint)));
        expectSame(sp.dequantize({ ...q, data: codes }), want);
      }
    }
  });
});
