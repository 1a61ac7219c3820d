import { type BlockTensor, type BlockType, blockTypeInfo, blockTypes } from 'scalepoint';
import { describe, expect, it } from 'vitest';
import { digest, digests, isGrid, needsOf, sample } from '../support/blockdata.js';
import {
  bfloat16Value,
  describeLarge,
  difference,
  expectCode,
  expectGood,
  expectRefusal,
  expectSame,
  float16Value,
  memorySize,
  Random,
} from '../support/support.js';

/** More than a tile of the scratch memory, and not a whole number of tiles. */
const long = (1 << 17) * 2 + 256 * 5;
const data = (n: number, seed = 1) => new Random(seed).bell(n);

function blocksOf(type: BlockType, blocks: number, shape?: number[]): BlockTensor<Uint8Array> {
  const { elements, bytes } = blockTypeInfo(type);
  const random = new Random(31);
  return {
    kind: 'blocks',
    type,
    shape: shape ?? [blocks * elements],
    data: Uint8Array.from({ length: blocks * bytes }, () => random.bits() & 63),
  };
}

describe('block types', () => {
  it('have the numbers and sizes of ggml', () => {
    const infos = blockTypes.map(blockTypeInfo);
    expect(infos.map(({ name, id, elements, bytes }) => [name, id, elements, bytes].join(' '))).toEqual([
      'Q4_0 2 32 18',
      'Q4_1 3 32 20',
      'Q5_0 6 32 22',
      'Q5_1 7 32 24',
      'Q8_0 8 32 34',
      'Q2_K 10 256 84',
      'Q3_K 11 256 110',
      'Q4_K 12 256 144',
      'Q5_K 13 256 176',
      'Q6_K 14 256 210',
      'IQ2_XXS 16 256 66',
      'IQ2_XS 17 256 74',
      'IQ3_XXS 18 256 98',
      'IQ1_S 19 256 50',
      'IQ4_NL 20 32 18',
      'IQ3_S 21 256 110',
      'IQ2_S 22 256 82',
      'IQ4_XS 23 256 136',
      'IQ1_M 29 256 56',
      'TQ1_0 34 256 54',
      'TQ2_0 35 256 66',
      'MXFP4 39 32 17',
      'Q1_0 41 128 18',
      'Q2_0 42 64 18',
    ]);
    const demanding = infos.filter(({ needsWeights }) => needsWeights).map(({ name }) => name);
    expect(demanding).toEqual(['IQ2_XXS', 'IQ2_XS', 'IQ1_S']);
    for (const wrong of ['q4_0', 'Q8_1', 'constructor', '', undefined, 2]) {
      expectRefusal(() => blockTypeInfo(wrong as BlockType), RangeError, 'type');
    }
  });
});

describeLarge('quantizeBlocks', (sp) => {
  it("gives ggml's bytes, and dequantize ggml's floats", () => {
    for (const type of blockTypes) {
      const x = sample(blockTypeInfo(type).elements);
      const blocks = sp.quantizeBlocks(x, type, needsOf(type, x.length));
      expect({ blocks: digest(blocks.data), floats: digest(sp.dequantize(blocks)) }, type).toEqual(digests[type]);
    }
  });

  it('restores what it quantized within half a step', () => {
    // Levels of a range [-1, 1] or less. The symmetric types with an even number of levels have none for the negative of the farthest
    // element: a whole step there. Scale and minimum are float16, off by 2^-11 of themselves at most, which makes 2^-11 of scale times
    // level, 2 at most, and of the minimum, 1 at most. What float32 rounds is below 2^-20.
    const bounds = { Q8_0: 1 / 127 / 2, Q4_0: 1 / 8, Q5_0: 1 / 16, Q4_1: 2 / 15 / 2, Q5_1: 2 / 31 / 2 };
    const x = new Random(3).uniform(32 * 64);
    for (const [type, bound] of Object.entries(bounds)) {
      const y = sp.dequantize(sp.quantizeBlocks(x, type as BlockType));
      for (const [i, v] of x.entries())
        expect(Math.abs(v - y[i]!)).toBeLessThanOrEqual(bound + 3 * 2 ** -11 + 2 ** -20);
    }
  });

  it('tells type and shape, and gives plain data', () => {
    const x = data(3 * 512);
    for (const type of blockTypes) {
      const needs = needsOf(type, x.length);
      const q = sp.quantizeBlocks(x, type, { ...needs, shape: [3, 2, 256] });
      expect(q.kind).toBe('blocks');
      expect(q.type).toBe(type);
      expect(q.shape).toEqual([3, 2, 256]);
      const { data: same, shape } = sp.quantizeBlocks(x, type, needs);
      expectSame(q.data, same);
      expect(shape).toEqual(needs.shape ?? [3 * 512]);
      expectSame(sp.dequantize(structuredClone(q)), sp.dequantize(q));
    }
  });

  it('takes every kind of input, and leaves it alone', () => {
    const x = data(32 * 9).map((v) => Math.fround(v));
    const copy = x.slice();
    const want = sp.quantizeBlocks(x, 'Q5_1').data;
    expectSame(sp.quantizeBlocks(Array.from(x), 'Q5_1').data, want);
    expectSame(sp.quantizeBlocks(Float64Array.from(x), 'Q5_1').data, want);
    const behind = new Float32Array(x.length + 3);
    behind.set(x, 3);
    expectSame(sp.quantizeBlocks(behind.subarray(3), 'Q5_1').data, want);
    expectSame(x, copy);
    for (const [from, value] of [
      ['float16', float16Value],
      ['bfloat16', bfloat16Value],
    ] as const) {
      const bits = sp.castFloat(x, from);
      const widened = sp.quantizeBlocks(Float32Array.from(bits, value), 'Q5_1').data;
      expectSame(sp.quantizeBlocks(bits, 'Q5_1', { from }).data, widened);
      const inside = sp.allocate('uint16', bits.length);
      inside.view.set(bits);
      expectSame(sp.quantizeBlocks(inside, 'Q5_1', { from }).data, widened);
      inside.dispose();
    }
  });

  it('gives the same from tiles and in place', () => {
    const x = data(long);
    const inside = sp.allocate('float32', long);
    inside.view.set(x);
    for (const type of ['Q8_0', 'Q4_1', 'MXFP4', 'Q6_K'] as const) {
      const { elements, bytes } = blockTypeInfo(type);
      const size = (long / elements) * bytes;
      const { data: want } = sp.quantizeBlocks(x, type);
      expect(want).toHaveLength(size);
      // Each piece alone, so that an element at the edge of a tile is nowhere near one.
      for (const at of [(1 << 17) - 512, (1 << 18) - 512]) {
        const piece = sp.quantizeBlocks(x.subarray(at, at + 1024), type).data;
        const start = (at / elements) * bytes;
        expectSame(piece, want.slice(start, start + piece.length), `${type} around ${at}`);
      }
      const out = new Uint8Array(size);
      expect(sp.quantizeBlocks(x, type, { out }).data).toBe(out);
      expectSame(out, want);
      const place = sp.allocate('uint8', size);
      const q = sp.quantizeBlocks(inside, type, { out: place });
      expect(q.data).toBe(place);
      expectSame(place.view.slice(), want);
      place.view.fill(0);
      expectSame(sp.quantizeBlocks(x, type, { out: place.view as Uint8Array }).data, want);
      expectSame(sp.quantizeBlocks(inside, type).data, want);

      const restored = sp.dequantize({ kind: 'blocks', type, shape: [long], data: want });
      expectSame(sp.dequantize(q), restored);
      const y = sp.allocate('float32', long);
      expect(sp.dequantize(q, { out: y })).toBe(y);
      expectSame(y.view.slice(), restored);
      const floats = new Float32Array(long);
      expect(sp.dequantize(q, { out: floats })).toBe(floats);
      expectSame(floats, restored);
      y.dispose();
      place.dispose();
    }
    inside.dispose();
  });

  it('takes no more memory than its result', () => {
    const x = data(long);
    sp.quantizeBlocks(x, 'Q8_0');
    const before = memorySize(sp);
    for (let i = 0; i < 20; i++) sp.compare(x, sp.quantizeBlocks(x, 'Q8_0'));
    expect(memorySize(sp)).toBe(before);
  });

  it('takes no elements at all', () => {
    for (const shape of [[0], [0, 256], [3, 0]]) {
      const q = sp.quantizeBlocks(new Float32Array(), 'Q4_K', { shape });
      expect(q.data).toHaveLength(0);
      expect(sp.dequantize(q)).toHaveLength(0);
      expect(sp.compare(new Float32Array(), q).sqnrDb).toBe(Infinity);
    }
  });

  it('refuses wrong arguments by name', () => {
    const x = data(512);
    const wrong =
      (options: object, type: unknown = 'Q8_0') =>
      () =>
        sp.quantizeBlocks(x, type as BlockType, options);
    expectRefusal(wrong({}, 'Q8_1'), RangeError, 'type');
    expectRefusal(wrong({}, null), RangeError, 'type');
    expectRefusal(wrong({ shape: [16, 32, 1] }), RangeError, 'shape');
    expectRefusal(wrong({ shape: [32, 16] }), RangeError, 'shape');
    expectRefusal(wrong({ shape: [4, 128] }, 'Q4_K'), RangeError, 'shape');
    expectRefusal(wrong({ shape: [8, 32] }), RangeError, 'shape');
    expectRefusal(() => sp.quantizeBlocks(x.subarray(1), 'Q8_0'), RangeError, 'shape');
    expectRefusal(() => sp.quantizeBlocks(x.subarray(0, 1), 'Q8_0', { shape: [] }), RangeError, 'shape');
    expectRefusal(wrong({ groupSize: 32 }), TypeError, 'groupSize');
    expectRefusal(wrong({ from: 'float32' }), RangeError, 'from');
    expectRefusal(wrong({ out: new Uint8Array(543) }), RangeError, 'out');
    expectRefusal(wrong({ out: new Int8Array(544) }), TypeError, 'out');
    const shared = new ArrayBuffer(2048);
    const overlapping = { out: new Uint8Array(shared, 100, 544) };
    expectRefusal(() => sp.quantizeBlocks(new Float32Array(shared), 'Q8_0', overlapping), RangeError, 'out');
    expectRefusal(() => sp.quantizeBlocks(new Int8Array(32) as never, 'Q8_0'), TypeError, 'x');
    expectGood(sp);
  });

  it('names the first element that is not finite', () => {
    for (const type of blockTypes) {
      for (const value of [Number.NaN, Infinity, -Infinity]) {
        for (const index of [0, 37, 255, 1000, (1 << 17) + 300, long - 1]) {
          if (index > 1000 && type.endsWith('_K') && value === Infinity) continue;
          const x = new Float32Array(index < 1000 ? 256 : index === 1000 ? 1024 : long);
          x[index] = value;
          const error = expectCode(() => sp.quantizeBlocks(x, type, needsOf(type, x.length)), 'NON_FINITE');
          expect(error.message).toContain(`x[${index}] is ${value}`);
        }
      }
      // A NaN of either sign, with anything around it.
      for (const bits of [0x7f800001, 0x7fc00000, 0xff800001, 0xffc00000, 0xffffffff]) {
        const x = data(256 * 5);
        new Uint32Array(x.buffer)[513] = bits;
        const { message } = expectCode(() => sp.quantizeBlocks(x, type, needsOf(type, x.length)), 'NON_FINITE');
        expect(message).toContain('x[513] is NaN');
      }
    }
    expectGood(sp);
  });

  it('says where a scale is beyond float16', () => {
    for (const type of blockTypes) {
      const { elements, needsWeights } = blockTypeInfo(type);
      const x = data(isGrid(type) ? 256 * 8 : long);
      const block = 512 + elements;
      // Beyond 65504 * 127 * 32, the largest scales and level of Q6_K; the other types reach less far.
      x[block] = 2 ** 40;
      if (type === 'MXFP4') {
        // Its scales are powers of two of float32's range.
        expect(sp.dequantize(sp.quantizeBlocks(x, type))[block]).toBe(2 ** 40);
        continue;
      }
      const error = expectCode(() => sp.quantizeBlocks(x, type, needsOf(type, x.length)), 'OVERFLOW');
      if (!needsWeights) expect(error.message).toContain(`x[${block}] to x[${block + elements - 1}]`);
      expect(error.message).toContain(type);
    }
    const inside = sp.allocate('float32', 32 * 7);
    (inside.view as Float32Array)[32 * 5 + 1] = 1e30;
    expect(expectCode(() => sp.quantizeBlocks(inside, 'Q4_0'), 'OVERFLOW').message).toContain('x[160] to x[191]');
    inside.dispose();
    // The minimum of an affine type, while its step is small.
    expectCode(() => sp.quantizeBlocks(new Float32Array(32).fill(65520), 'Q4_1'), 'OVERFLOW');
    expectSame(
      sp.dequantize(sp.quantizeBlocks(new Float32Array(32).fill(65519), 'Q4_1')),
      new Float32Array(32).fill(65504),
    );
    expectGood(sp);
  });
});

describeLarge('blocks', (sp) => {
  it('are restored from arrays and wasm memory', () => {
    for (const type of blockTypes) {
      const q = blocksOf(type, 40);
      const want = sp.dequantize(q);
      expect(want).toHaveLength(40 * blockTypeInfo(type).elements);
      const inside = sp.allocate('uint8', q.data.length);
      inside.view.set(q.data);
      expectSame(sp.dequantize({ ...q, data: inside }), want);
      inside.dispose();
    }
  });

  it('are compared as the floats that they stand for', () => {
    const x = data(long, 8);
    const bits = sp.castFloat(x, 'float16');
    for (const type of blockTypes.filter((one) => !isGrid(one) || one === 'IQ3_S')) {
      const q = sp.quantizeBlocks(x, type);
      const restored = sp.dequantize(q);
      expect(sp.compare(x, q)).toEqual(sp.compare(x, restored));
      expect(sp.compare(bits, q, { from: 'float16' })).toEqual(sp.compare(bits, restored, { from: 'float16' }));
    }
    const q = sp.quantizeBlocks(x, 'Q8_0');
    const [inside, place] = [sp.allocate('float32', long), sp.allocate('uint8', q.data.length)];
    inside.view.set(x);
    const same = sp.quantizeBlocks(inside, 'Q8_0', { out: place });
    expect(sp.compare(inside, same)).toEqual(sp.compare(x, q));
    const sum = sp.errorSum();
    sum.add(inside, same);
    expect(sum.measures()).toEqual(sp.compare(x, q));
    inside.dispose();
    place.dispose();
  });

  it('lose less with more bits', () => {
    const x = data(1 << 14, 4);
    const sqnr = (type: BlockType) => sp.compare(x, sp.quantizeBlocks(x, type)).sqnrDb;
    const order = ['Q2_K', 'Q3_K', 'Q4_K', 'Q5_K', 'Q6_K', 'Q8_0'] as const;
    for (let i = 1; i < order.length; i++) expect(sqnr(order[i]!)).toBeGreaterThan(sqnr(order[i - 1]!));
    expect(difference(sp.quantizeBlocks(x, 'Q4_0').data, sp.quantizeBlocks(x, 'IQ4_NL').data)).toBeDefined();
  });

  it('are refused when something is wrong with them', () => {
    const q = blocksOf('Q4_0', 4);
    const wrong = (change: object) => () => sp.dequantize({ ...q, ...change } as BlockTensor);
    expectRefusal(wrong({ type: 'Q9_0' }), RangeError, 'q.type');
    expectRefusal(wrong({ shape: [96] }), RangeError, 'q.data');
    expectRefusal(wrong({ shape: [16, 8] }), RangeError, 'q.shape');
    expectRefusal(wrong({ shape: [-32] }), RangeError, 'q.shape');
    expectRefusal(wrong({ shape: undefined }), TypeError, 'q.shape');
    expectRefusal(wrong({ shape: [2 ** 32, 2 ** 20] }), RangeError, 'q.data');
    expectRefusal(wrong({ data: q.data.subarray(1) }), RangeError, 'q.data');
    expectRefusal(wrong({ data: new Int8Array(72) }), TypeError, 'q.data');
    expectRefusal(wrong({ kind: 'codebook' }), TypeError, 'q');
    expectRefusal(() => sp.dequantize(q, { out: new Float32Array(127) }), RangeError, 'out');
    expectRefusal(() => sp.compare(new Float32Array(127), q), RangeError, 'b');
    expectRefusal(() => sp.pack(q as never), TypeError, 'q');
    expectGood(sp);
  });
});
