// Layers and indices take every kind of quantized tensor, as codes where there are kernels, or else as the floats that they stand for.
import type { QuantizedTensor, QuantizeOptions } from 'scalepoint';
import { type BlockType, blockTypeInfo, blockTypes } from 'scalepoint';
import { expect, it } from 'vitest';
import { describeLarge, expectCode, expectRefusal, expectSame, Random } from '../support/support.js';

describeLarge('layers', (sp) => {
  // 5 rows are more than a step of the largest blocks holds at these widths, and no multiple of a tile of rows.
  const [outputs, inputs] = [5, 768];
  const w = new Random(3).bell(outputs * inputs);
  const x = new Random(4).bell(inputs * 2);
  const shape = [outputs, inputs];
  const weightsOf = (type: BlockType) =>
    blockTypeInfo(type).needsWeights ? { weights: x.slice(0, inputs).map(Math.abs) } : {};
  const others: readonly (readonly [name: string, q: QuantizedTensor])[] = [
    ['nf4', sp.quantizeCodebook(w, { codebook: 'nf4', blockSize: 64, shape })],
    ['learned, blocks across rows', sp.quantizeCodebook(w, { codebook: { learn: 5 }, blockSize: 50, shape })],
    ...blockTypes
      .filter((type) => !['Q8_0', 'Q4_0'].includes(type) && inputs % blockTypeInfo(type).elements === 0)
      .map((type) => [type, sp.quantizeBlocks(w, type, { ...weightsOf(type), shape })] as const),
    ...(
      [
        { dtype: 'int16' },
        { granularity: { kind: 'per-channel', axis: 1 } },
        { granularity: { kind: 'per-group', groupSize: 2, axis: 0 } },
      ] as Omit<QuantizeOptions, 'out'>[]
    ).map((options) => [JSON.stringify(options), sp.quantize(w, { shape, ...options })] as const),
  ];

  it('compute with what the codes of other kinds stand for', () => {
    for (const [name, q] of others) {
      const layer = sp.linear(q);
      const floats = sp.matmulFloat(sp.dequantize(q), { shape });
      expectSame(layer.forward(x), floats.forward(x), name);
      expectRefusal(() => sp.linear(q, { activations: 'int8' }), RangeError, 'activations');
      layer.dispose();
      floats.dispose();
    }
  });

  it('restore rows that are longer than a step', () => {
    const wide = new Random(5).bell(2 * 40_000);
    const q = sp.quantizeCodebook(wide, { codebook: 'fp4', blockSize: 64, shape: [2, 40_000] });
    const layer = sp.linear(q);
    const floats = sp.matmulFloat(sp.dequantize(q), { shape: [2, 40_000] });
    expectSame(layer.forward(wide), floats.forward(wide));
    layer.dispose();
    floats.dispose();
  });

  it('index what the codes of other kinds stand for', () => {
    for (const [name, q] of others) {
      const index = sp.index(q);
      const floats = sp.index(sp.dequantize(q), { shape });
      expect(index.search(x.subarray(0, inputs)), name).toEqual(floats.search(x.subarray(0, inputs)));
      index.dispose();
      floats.dispose();
    }
  });
});

describeLarge('index', (sp) => {
  const dimension = 33;
  const vectors = new Random(7).bell(100 * dimension);
  const query = new Random(8).bell(dimension);
  const rows = { kind: 'per-channel', axis: 0 } as const;

  it('takes codes as they are, and gives them back', () => {
    for (const options of [{}, { dtype: 'int4' }, { symmetricRange: 'full' }] as Omit<
      QuantizeOptions,
      'out' | 'packed'
    >[]) {
      const q = sp.quantize(vectors, { shape: [100, dimension], granularity: rows, ...options });
      for (const metric of ['dot', 'cosine'] as const) {
        const index = sp.index(q, { metric });
        const back = index.tensor();
        expectSame(back.data, q.data);
        expectSame(back.scale, q.scale);
        const again = sp.index(back, { metric });
        expect(again.search(query)).toEqual(index.search(query));
        again.dispose();
        index.dispose();
      }
    }
    const one = sp.quantize(vectors, { shape: [100, dimension] });
    const index = sp.index(one);
    expect(index.tensor().scale).toEqual(new Float32Array(100).fill(one.scale[0] as number));
    expectSame(index.tensor().data, one.data);
    index.dispose();
    const fromFloats = sp.index(vectors, { shape: [100, dimension] });
    const same = sp.quantize(vectors, { shape: [100, dimension], granularity: rows });
    expectSame(fromFloats.tensor().data, same.data);
    expectSame(fromFloats.tensor().scale, same.scale);
    fromFloats.dispose();
  });

  it('restores codes that do not fit int8 as they are', () => {
    const options = { shape: [100, dimension], granularity: rows };
    for (const q of [
      sp.quantize(vectors, { ...options, dtype: 'uint8', scheme: 'asymmetric' }),
      sp.quantize(vectors, { ...options, scheme: 'asymmetric' }),
      sp.quantize(vectors, { ...options, granularity: { kind: 'per-group', groupSize: 8 } }),
    ]) {
      const index = sp.index(q);
      const floats = sp.index(sp.dequantize(q), { shape: [100, dimension] });
      expect(index.search(query, 100)).toEqual(floats.search(query, 100));
      index.dispose();
      floats.dispose();
    }
  });

  it('grows by any number of vectors, and finds the same', () => {
    const all = sp.index(vectors, { shape: [100, dimension], metric: 'cosine' });
    for (const step of [1, 7, 99]) {
      const index = sp.index(vectors.subarray(0, dimension), { shape: [1, dimension], metric: 'cosine' });
      for (let i = 1; i < 100; i += step) index.add(vectors.subarray(i * dimension, (i + step) * dimension));
      expect(index.count).toBe(100);
      expect(index.search(query, 100)).toEqual(all.search(query, 100));
      expectSame(index.tensor().data, all.tensor().data);
      index.dispose();
    }
    all.add(all.tensor());
    expect(all.count).toBe(200);
    const { indices } = all.search(query, 2);
    // The same vector twice: the first one comes first.
    expect(indices[1]).toBe((indices[0] as number) + 100);
    expect(all.search(query).indices).toHaveLength(10);
    all.dispose();
  });

  it('is as before after an error in adding', () => {
    const index = sp.index(vectors, { shape: [100, dimension] });
    const before = index.search(query, 100);
    const bad = vectors.slice(0, 60 * dimension);
    bad[59 * dimension + 1] = Number.NaN;
    expectCode(() => index.add(bad), 'NON_FINITE');
    expectRefusal(() => index.add(new Float32Array(dimension + 1)), RangeError, 'shape');
    expectRefusal(() => index.add([[1, 2]]), RangeError, 'vectors');
    expectRefusal(() => index.add(vectors, { shape: [100, dimension] } as never), TypeError, 'shape');
    expectRefusal(() => sp.index(index.tensor(), { shape: [100, dimension] }), TypeError, 'shape');
    expectRefusal(() => sp.index(sp.quantize(vectors)), RangeError, 'vectors.shape');
    expect(index.count).toBe(100);
    expect(index.search(query, 100)).toEqual(before);
    index.dispose();
    expectCode(() => index.add(vectors), 'DISPOSED');
    expectCode(() => index.tensor(), 'DISPOSED');
  });
});
