// Tensors whose codes are packed from the start.
import type { Granularity, LinearQuantizedTensor, PackedLinearTensor, QuantizeOptions, Range } from 'scalepoint';
import { afterEach, expect, it } from 'vitest';
import {
  describeBuilds,
  dtypes,
  expectCode,
  expectGood,
  expectRefusal,
  expectSame,
  Random,
  roundings,
  schemes,
} from '../support/support.js';

/** Shapes whose lines, groups and tiles end in the middle of a byte. */
const cases: readonly { shape: readonly number[]; granularity: Granularity }[] = [
  { shape: [0], granularity: { kind: 'per-tensor' } },
  { shape: [1], granularity: { kind: 'per-tensor' } },
  { shape: [7], granularity: { kind: 'per-tensor' } },
  { shape: [1003], granularity: { kind: 'per-tensor' } },
  { shape: [9, 13], granularity: { kind: 'per-channel', axis: 0 } },
  { shape: [9, 13], granularity: { kind: 'per-channel', axis: 1 } },
  { shape: [5, 3, 7], granularity: { kind: 'per-channel', axis: 1 } },
  { shape: [11, 100], granularity: { kind: 'per-group', groupSize: 33 } },
  { shape: [11, 96], granularity: { kind: 'per-group', groupSize: 32 } },
  { shape: [33, 7], granularity: { kind: 'per-group', groupSize: 4, axis: 0 } },
  { shape: [3, 20_001], granularity: { kind: 'per-channel', axis: 0 } },
  { shape: [5001, 11], granularity: { kind: 'per-group', groupSize: 3 } },
];

/** The same tensor with one code per element, packed by `pack`. */
function packedOf(sp: Parameters<Parameters<typeof describeBuilds>[1]>[0], q: LinearQuantizedTensor) {
  return { ...q, data: sp.pack(q), packed: true };
}

/** Compares array by array, because toEqual takes a microsecond for each element. */
function expectTensor(got: LinearQuantizedTensor, want: LinearQuantizedTensor, what = ''): void {
  const { data, scale, zeroPoint, ...rest } = got;
  const { data: wantData, scale: wantScale, zeroPoint: wantZeroPoint, ...wantRest } = want;
  expectSame(data, wantData as Uint8Array, what);
  expectSame(scale, wantScale, what);
  expectSame(zeroPoint, wantZeroPoint, what);
  expect(rest).toEqual(wantRest);
}

describeBuilds('quantize with packed', (sp) => {
  afterEach(() => expectGood(sp));

  it.each(dtypes)('gives what pack gives of %s', (dtype) => {
    const random = new Random(900);
    for (const { shape, granularity } of cases) {
      const n = shape.reduce((a, b) => a * b, 1);
      const x = random.bell(n);
      for (const options of [{}, { scheme: 'asymmetric' }, { rounding: 'fused' }] as const) {
        const all = { dtype, shape, granularity, ...options };
        const q = sp.quantize(x, { ...all, packed: true });
        expect(q.packed).toBe(true);
        expectTensor(q, packedOf(sp, sp.quantize(x, all)), `${shape}`);
      }
    }
  });

  it('gives it for every rounding, scheme and range', () => {
    const x = new Random(901).bell(21 * 45);
    const ranges: Range[] = [
      'min-max',
      'mse',
      'entropy',
      { percentile: 99 },
      { min: -1, max: 2 },
      { scale: 0.1, zeroPoint: 1 },
    ];
    for (const dtype of ['int3'] as const) {
      for (const scheme of schemes) {
        for (const rounding of roundings) {
          for (const range of ranges) {
            const all: QuantizeOptions = {
              dtype,
              scheme,
              rounding,
              range,
              shape: [21, 45],
              granularity: { kind: 'per-channel', axis: 0 },
            };
            expectTensor(sp.quantize(x, { ...all, packed: true }), packedOf(sp, sp.quantize(x, all)));
          }
        }
      }
    }
  });

  it('reads any input', () => {
    const x = new Random(902).bell(40_003);
    const options = { dtype: 'int3', granularity: { kind: 'per-group', groupSize: 50 } } as const;
    const want = packedOf(sp, sp.quantize(x, options));
    const inWasm = sp.allocate('float32', x.length);
    inWasm.view.set(x);
    for (const input of [Float64Array.from(x), Array.from(x), inWasm]) {
      expectTensor(sp.quantize(input, { ...options, packed: true }), want);
    }
    inWasm.dispose();
    const bits = sp.castFloat(x, 'float16');
    expectTensor(
      sp.quantize(bits, { ...options, from: 'float16', packed: true }),
      packedOf(sp, sp.quantize(bits, { ...options, from: 'float16' })),
    );
  });

  it('saturates values that are not finite, and refuses them', () => {
    const x = new Random(903).bell(20_000);
    x[19_999] = Number.NaN;
    x[5] = Infinity;
    const all = { dtype: 'int4', granularity: { kind: 'per-group', groupSize: 32 }, nonFinite: 'saturate' } as const;
    expectTensor(sp.quantize(x, { ...all, packed: true }), packedOf(sp, sp.quantize(x, all)));
    expectCode(() => sp.quantize(x, { dtype: 'int4', packed: true }), 'NON_FINITE');
  });

  it('fills out, in JavaScript and in wasm memory', () => {
    const x = new Random(904).bell(50_001);
    const all = { dtype: 'int3', granularity: { kind: 'per-group', groupSize: 7 } } as const;
    const want = packedOf(sp, sp.quantize(x, all));
    const around = new Uint8Array(want.data.length + 9).fill(7);
    const data = around.subarray(5, 5 + want.data.length);
    const q: PackedLinearTensor<Uint8Array> = sp.quantize(x, { ...all, packed: true, out: data });
    expect(q.data).toBe(data);
    expectTensor(q, want);
    expect([...around.subarray(0, 5), ...around.subarray(-4)]).toEqual(new Array(9).fill(7));

    const inWasm = sp.allocate('uint8', want.data.length);
    const [scale, zeroPoint] = [new Float32Array(want.scale.length), new Int32Array(want.scale.length)];
    const other = sp.quantize(x, { ...all, packed: true, out: { data: inWasm, scale, zeroPoint } });
    expect(other.data).toBe(inWasm);
    expectSame(inWasm.view, want.data);
    expectSame(scale, want.scale);
    // Packed codes in wasm memory are read in place.
    expectSame(sp.dequantize(other), sp.dequantize(want));
    expectSame(sp.unpack(other.data, other), sp.unpack(want.data, want) as Int8Array);
    inWasm.dispose();
  });

  it('adds the same errors', () => {
    const x = new Random(905).bell(30_001);
    for (const granularity of [{ kind: 'per-tensor' }, { kind: 'per-group', groupSize: 100 }] as const) {
      const [packed, plain] = [sp.errorSum(), sp.errorSum()];
      sp.quantize(x, { dtype: 'int4', granularity, packed: true, errors: packed });
      sp.quantize(x, { dtype: 'int4', granularity, errors: plain });
      expect(packed.measures()).toEqual(plain.measures());
    }
  });

  it('refuses values other than booleans, and arrays that do not fit', () => {
    const x = new Float32Array(10);
    for (const packed of [1, 'true', null, {}] as never[]) {
      expectRefusal(() => sp.quantize(x, { packed }), TypeError, 'packed');
    }
    const out = (data: unknown) => () => sp.quantize(x, { dtype: 'int4', packed: true, out: data as Uint8Array });
    expectRefusal(out(new Int8Array(5)), TypeError, 'out');
    expectRefusal(out(new Uint8Array(10)), RangeError, 'out');
    expectRefusal(() => sp.sweep(x, [{ packed: true } as never]), TypeError, 'variants[0].packed');
    expect(sp.quantize(x, { packed: false })).toEqual(sp.quantize(x));
  });
});

describeBuilds('a packed tensor', (sp) => {
  afterEach(() => expectGood(sp));

  it.each(dtypes)('of %s is taken wherever a plain one is', (dtype) => {
    const random = new Random(910);
    for (const { shape, granularity } of cases) {
      const n = shape.reduce((a, b) => a * b, 1);
      const x = random.bell(n);
      const q = sp.quantize(x, { dtype, shape, granularity, scheme: 'asymmetric' });
      const p = structuredClone(packedOf(sp, q));
      expectSame(sp.dequantize(p), sp.dequantize(q), `${shape}`);
      expectSame(sp.pack(p), p.data);
      expectSame(sp.unpack(p.data, p), q.data);
      expect(sp.compare(x, p)).toEqual(sp.compare(x, q));
      if (shape.length === 2 && (shape[1] as number) < 1000) {
        const per = { per: 'channel', axis: 1 } as const;
        expect(sp.compare(x, p, per)).toEqual(sp.compare(x, q, per));
      }
    }
  });

  it('becomes a layer and an index', () => {
    const random = new Random(911);
    for (const [rows, columns] of [
      [1, 1],
      [19, 13],
      [40, 131],
      [3, 50_001],
      [2, 140_003],
    ] as const) {
      const x = random.bell(rows * columns);
      const v = random.bell(columns);
      const all = ['int2', 'int3', 'uint4', 'int5', 'int7', 'int8', 'uint16'] as const;
      // More columns than a tile holds are for one type.
      for (const dtype of columns > 1000 ? (['int3'] as const) : all) {
        for (const granularity of [
          { kind: 'per-channel', axis: 0 },
          { kind: 'per-channel', axis: 1 },
          { kind: 'per-group', groupSize: 20 },
        ] as const) {
          const q = sp.quantize(x, { dtype, shape: [rows, columns], granularity });
          const p = packedOf(sp, q);
          const layers = [sp.linear(q), sp.linear(p)] as const;
          expectSame(layers[1].forward(v), layers[0].forward(v), `${dtype} ${rows} x ${columns}`);
          for (const layer of layers) layer.dispose();
          // An index takes vectors of at most 65536 elements.
          if (columns > 65_536) continue;
          const indices = [sp.index(q, { metric: 'cosine' }), sp.index(p, { metric: 'cosine' })] as const;
          expect(indices[1].search(v)).toEqual(indices[0].search(v));
          expectTensor(indices[1].tensor(), indices[0].tensor());
          for (const index of indices) index.dispose();
        }
      }
    }
  });

  it('is refused where its fields do not fit, naming them', () => {
    const q = sp.quantize(new Float32Array(9).fill(1), { dtype: 'int4', packed: true });
    const dequantize = (fields: object) => () => sp.dequantize({ ...q, ...fields });
    expectRefusal(dequantize({ packed: 1 }), TypeError, 'q.packed');
    expectRefusal(dequantize({ packed: 'yes' }), TypeError, 'q.packed');
    expectRefusal(dequantize({ packed: false }), TypeError, 'q.data');
    expectRefusal(dequantize({ packed: undefined }), TypeError, 'q.data');
    expectRefusal(dequantize({ data: new Int8Array(9) }), TypeError, 'q.data');
    expectRefusal(dequantize({ data: new Uint8Array(9) }), RangeError, 'q.data');
    expectRefusal(dequantize({ data: new Uint8Array(4) }), RangeError, 'q.data');
    expectRefusal(dequantize({ shape: [11] }), RangeError, 'q.data');
    expectRefusal(dequantize({ shape: [2.5] }), RangeError, 'q.shape');
    expectRefusal(() => sp.compare(new Float32Array(10), q), RangeError, 'b');
    const gone = sp.allocate('uint8', 5);
    gone.dispose();
    expectCode(dequantize({ data: gone }), 'DISPOSED');
  });
});

describeBuilds('pack and unpack with out', (sp) => {
  afterEach(() => expectGood(sp));

  it('fill the array that they are given', () => {
    const x = new Random(920).bell(40_001);
    for (const dtype of dtypes) {
      const q = sp.quantize(x, { dtype });
      const want = sp.pack(q);
      const bytes = new Uint8Array(want.length + 3).fill(9);
      const part = bytes.subarray(2, 2 + want.length);
      expect(sp.pack(q, { out: part })).toBe(part);
      expectSame(part, want);
      expect([bytes[0], bytes[1], bytes.at(-1)]).toEqual([9, 9, 9]);
      const codes = q.data.slice();
      codes.fill(0);
      expect(sp.unpack(part, q, { out: codes })).toBe(codes);
      expectSame(codes, q.data);

      const inWasm = sp.allocate('uint8', want.length);
      expect(sp.pack(q, { out: inWasm })).toBe(inWasm);
      expectSame(inWasm.view, want);
      const back = sp.allocate(
        dtype === 'int16' || dtype === 'uint16' ? dtype : dtype.startsWith('u') ? 'uint8' : 'int8',
        x.length,
      );
      sp.unpack(inWasm, q, { out: back });
      expectSame(back.view, q.data);
      back.dispose();
      inWasm.dispose();
    }
    const q = sp.quantizeCodebook(x, { codebook: 'nf4' });
    const out = new Uint8Array(Math.ceil(x.length / 2));
    sp.pack(q, { out });
    expectSame(out, sp.pack(q));
    const codes = new Uint8Array(x.length);
    expectSame(sp.unpack(out, q, { out: codes }), q.data);
  });

  it('refuse arrays that do not fit, and those that share memory', () => {
    const q = sp.quantize(new Float32Array(16), { dtype: 'uint4' });
    const bytes = sp.pack(q);
    expectRefusal(() => sp.pack(q, { out: new Uint8Array(7) }), RangeError, 'out');
    expectRefusal(() => sp.pack(q, { out: new Int8Array(8) as never }), TypeError, 'out');
    expectRefusal(() => sp.pack(q, { out: q.data.subarray(0, 8) }), RangeError, 'out');
    expectRefusal(() => sp.pack(q, { into: bytes } as never), TypeError, 'into');
    expectRefusal(() => sp.unpack(bytes, q, { out: new Uint8Array(15) }), RangeError, 'out');
    expectRefusal(() => sp.unpack(bytes, q, { out: new Int8Array(16) }), TypeError, 'out');
    const both = new Uint8Array(24);
    expectRefusal(() => sp.unpack(both.subarray(0, 8), q, { out: both.subarray(7, 23) }), RangeError, 'out');
  });
});
