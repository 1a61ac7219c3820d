import type { CodebookSource, CodebookTensor } from 'scalepoint';
import { expect, it } from 'vitest';
import { describeBuilds, expectCode, expectRefusal, expectSame, largeCores, Random } from '../support/support.js';

const { fround } = Math;
const tileSize = 1 << 17;

// bitsandbytes, csrc/kernels.cu: the values by code, and the decision trees, written down as the bounds between them. Its bounds are
// decimal numbers that the compiler rounds to float32; four of them are so close to the middle of two floats that reading them as a
// double and rounding that would give the other one. Here they are as float32: -0.8480964004993439, 0.1202552504837513,
// 0.5016634166240692 and 0.8614784181118011.
const nf4 = [
  -1, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635, -0.18477343022823334,
  -0.09105003625154495, 0, 0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224,
  0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1,
].map(fround);
const nf4Bounds = [
  -0.8480964303016663, -0.6106329262256622, -0.4599952697753906, -0.33967943489551544, -0.23460740596055984,
  -0.13791173323988914, -0.045525018125772476, 0.03979014977812767, 0.1202552542090416, 0.2035212516784668,
  0.2920137718319893, 0.3893125355243683, 0.5016633868217468, 0.6427869200706482, 0.8614783883094788,
].map(fround);
const fp4Sizes = [0, 0.0625, 8, 12, 4, 6, 2, 3].map((v) => fround(v / 12));
const fp4 = [...fp4Sizes, ...fp4Sizes.map((v) => 0 - v)];
const fp4Bounds = [0.00260417, 0.0859375, 0.20833333, 0.29166667, 0.4166667, 0.583333, 0.8333333].map(fround);
const fp4Order = [0, 1, 6, 7, 4, 5, 2, 3];

function nf4Code(v: number): number {
  return nf4Bounds.filter((bound) => v > bound).length;
}

function fp4Code(v: number): number {
  const size = Math.abs(v);
  return (fp4Order[fp4Bounds.filter((bound) => size > bound).length] as number) + (v < 0 ? 8 : 0);
}

interface Expected {
  readonly absmax: Float32Array;
  readonly codes: Uint8Array;
}

function expected(x: Float32Array, blockSize: number, codeOf: (v: number) => number): Expected {
  const absmax = new Float32Array(Math.ceil(x.length / blockSize));
  for (const [i, v] of x.entries()) {
    const block = Math.floor(i / blockSize);
    absmax[block] = Math.max(absmax[block] as number, Math.abs(v));
  }
  const codes = Uint8Array.from(x, (v, i) => {
    const largest = absmax[Math.floor(i / blockSize)] as number;
    if (largest === 0) return codeOf(0);
    const inverse = fround(1 / largest);
    // Where the reciprocal is beyond float32 all is raised by 2^64.
    if (inverse === Infinity) return codeOf(fround(v * 2 ** 64 * fround(1 / (largest * 2 ** 64))));
    return codeOf(fround(v * inverse));
  });
  return { absmax, codes };
}

function expectTensor(q: CodebookTensor, want: Expected, what = ''): void {
  expectSame(q.absmax, want.absmax, `${what} absmax`);
  expectSame(q.data, want.codes, `${what} codes`);
}

function nextAbove(x: number): number {
  const float = Float32Array.of(x);
  const word = new Int32Array(float.buffer);
  word[0] = (word[0] as number) + (x < 0 ? -1 : 1);
  return float[0] as number;
}

function nextBelow(x: number): number {
  return -nextAbove(-x);
}

function gaussian(n: number, seed: number): Float32Array {
  const random = new Random(seed);
  return Float32Array.from({ length: n }, () => normal(random));
}

/** Box and Muller's way. */
function normal(random: Random): number {
  const radius = Math.sqrt(-2 * Math.log((random.bits() + 1) / 2 ** 32));
  return radius * Math.cos((2 * Math.PI * random.bits()) / 2 ** 32);
}

const known = [
  ['nf4', nf4, nf4Code],
  ['fp4', fp4, fp4Code],
] as const;

// tests/cpp/codebook_test.cpp finds the nearest value of any codebook, and the best absmax.
describeBuilds('codebooks', (sp) => {
  for (const [name, values, codeOf] of known) {
    it(`gives the values of ${name} as published`, () => {
      const q = sp.quantizeCodebook([1], { codebook: name });
      expect([...q.codebook]).toEqual(values);
      expect(q).toMatchObject({ kind: 'codebook', blockSize: 64, shape: [1] });
    });

    it(`quantizes to ${name} as the published trees do, on and beside every bound`, () => {
      // A 1 in every block makes the quotients the values themselves.
      const bounds = name === 'nf4' ? nf4Bounds : [...fp4Bounds, ...fp4Bounds.map((v) => -v), 0, -0];
      const points = [...bounds, ...values].flatMap((v) => [v, nextAbove(v), nextBelow(v)]);
      const x = Float32Array.from(points.flatMap((v) => [1, v]));
      expectTensor(sp.quantizeCodebook(x, { codebook: name, blockSize: 2 }), expected(x, 2, codeOf));
      expectTensor(sp.quantizeCodebook(x, { codebook: name, blockSize: x.length }), expected(x, x.length, codeOf));
    });
  }

  it('does the same for blocks of several tiles, and for pieces of them', () => {
    const n = 2 * tileSize + 1234;
    const x = gaussian(n, 77);
    for (const blockSize of [tileSize, tileSize - 1, tileSize + 1, tileSize * 2, n, 4 * n, 100_001]) {
      const q = sp.quantizeCodebook(x, { codebook: 'nf4', blockSize });
      expectTensor(q, expected(x, blockSize, nf4Code), `${blockSize}`);
    }
    const q = sp.quantizeCodebook(x, { codebook: 'fp4', blockSize: 3 });
    expectTensor(q, expected(x, 3, fp4Code));
    const restored = sp.dequantize(q);
    expect(restored[n - 1]).toBe(
      fround((fp4[(q.data as Uint8Array)[n - 1] as number] as number) * (q.absmax.at(-1) as number)),
    );
  });

  it('measures its error as that of the restored floats', () => {
    for (const [n, blockSize] of [
      [3 * tileSize + 5, 64],
      [tileSize + 5, 1000],
      [70_000, 1],
      [10, 64],
    ] as const) {
      const x = gaussian(n, 3);
      const q = sp.quantizeCodebook(x, { codebook: 'nf4', blockSize });
      const measures = sp.compare(x, q);
      expect(measures).toEqual(sp.compare(x, sp.dequantize(q)));
      const sum = sp.errorSum();
      sum.add(x, q);
      expect(sum.measures()).toEqual(measures);
    }
  });

  it('reads every kind of input and fills every kind of output', () => {
    const x = gaussian(200, 9);
    const bits = sp.castFloat(x, 'float16');
    const rounded = sp.castToFloat32(bits, 'float16');
    const want = sp.quantizeCodebook(rounded, { codebook: 'nf4' });
    const { codebook, absmax, data } = want;
    expect(sp.quantizeCodebook(bits, { codebook: 'nf4', from: 'float16' })).toEqual(want);
    expect(sp.quantizeCodebook([...rounded], { codebook: 'nf4' })).toEqual(want);
    expect(sp.quantizeCodebook(rounded, { codebook: 'nf4', shape: [10, 20] }).shape).toEqual([10, 20]);
    const out = new Uint8Array(200);
    expect(sp.quantizeCodebook(rounded, { codebook: 'nf4', out }).data).toBe(out);
    expectSame(out, data as Uint8Array);
    using wasm = sp.allocate('float32', 200);
    using codes = sp.allocate('uint8', 200);
    using back = sp.allocate('float32', 200);
    wasm.view.set(rounded);
    const inside = sp.quantizeCodebook(wasm, { codebook: 'nf4', out: codes });
    expect(inside.data).toBe(codes);
    expectSame(codes.view, data as Uint8Array);
    expectSame(inside.absmax, absmax);
    expect(sp.dequantize(inside, { out: back })).toBe(back);
    expectSame(back.view, sp.dequantize(want));
    expect(sp.compare(wasm, inside)).toEqual(sp.compare(rounded, want));
    expect(structuredClone(want)).toEqual(want);
    // Given values are copied, not kept.
    const given = codebook.slice();
    const q = sp.quantizeCodebook(rounded, { codebook: given });
    given.fill(0);
    expectSame(q.codebook, codebook);
  });

  it('packs codes into as few bits as the codebook needs', () => {
    const x = gaussian(tileSize + 77, 4);
    for (const [count, bits] of [
      [2, 1],
      [3, 2],
      [4, 2],
      [8, 3],
      [16, 4],
      [17, 5],
      [256, 8],
    ] as const) {
      const codebook = Float32Array.from({ length: count }, (_, i) => i / count);
      const q = sp.quantizeCodebook(x, { codebook });
      const data = q.data as Uint8Array;
      const packed = sp.pack(q);
      expect(packed.length).toBe(Math.ceil((x.length * bits) / 8));
      for (const i of [0, 1, 7, 8, 1000, tileSize - 1, tileSize, x.length - 1]) {
        let code = 0;
        for (let b = 0; b < bits; b++) {
          const at = i * bits + b;
          code |= (((packed[at >> 3] as number) >> (at & 7)) & 1) << b;
        }
        expect(code).toBe(data[i]);
      }
      expectSame(sp.unpack(packed, q), data);
    }
    expectRefusal(() => sp.unpack(new Uint8Array(3), sp.quantizeCodebook(x, { codebook: 'nf4' })), RangeError, 'bytes');
  });

  it('restores Gaussian weights better than Q4_K does, in as many bits', () => {
    const x = gaussian(1 << 18, 17);
    const { sp: large } = largeCores[0]!;
    const blocks = large.quantizeBlocks(x, 'Q4_K');
    expect((8 * blocks.data.length) / x.length).toBe(4.5);
    const error = large.compare(x, blocks).relativeL2;
    const options = { blockSize: 16, range: 'mse', absmaxType: 'int8' } as const;
    const learned = sp.quantizeCodebook(x, { codebook: { learn: 16 }, ...options });
    expect(sp.compare(x, learned).relativeL2).toBeLessThan(error);
    const published = sp.quantizeCodebook(x, { codebook: 'nf4', ...options });
    expect(sp.compare(x, published).relativeL2).toBeLessThan(error);
    // Stored size: codes of 4 bits, an int8 absmax for 16 of them, a bfloat16 for 256 of these, the codebook in float32.
    const { length } = x;
    for (const q of [learned, published]) {
      const scales = sp.quantize(q.absmax, {
        dtype: 'int8',
        shape: [q.absmax.length],
        granularity: { kind: 'per-group', groupSize: 256 },
      });
      expectSame(sp.dequantize(scales), q.absmax);
      const kept = sp.castFloat(scales.scale, 'bfloat16') as Uint16Array;
      expectSame(sp.castToFloat32(kept, 'bfloat16'), scales.scale);
      const bytes = sp.pack(q).length + sp.pack(scales).length + kept.byteLength + q.codebook.byteLength;
      expect(bytes).toBe(length / 2 + length / 16 + (2 * length) / 4096 + 16 * 4);
    }
  });

  it('uses a lopsided codebook either way', () => {
    const x = Float32Array.of(0, 1, 2, 3, 0, -1, -2, -3);
    const q = sp.quantizeCodebook(x, { codebook: Float32Array.of(0, 1, 2, 3), blockSize: 4, range: 'mse' });
    expect([...q.absmax]).toEqual([1, -1]);
    expect(sp.compare(x, q).sqnrDb).toBe(Infinity);
  });

  it('learns from data with few values, from zeros and from nothing', () => {
    const few = Float32Array.from({ length: 1000 }, (_, i) => [-2, 0.5, 0, 8][i % 4] as number);
    const q = sp.quantizeCodebook(few, { codebook: { learn: 8 }, blockSize: 1000 });
    expect([...q.codebook]).toEqual([-0.25, 0, 0.0625, 1, 1, 1, 1, 1]);
    expectSame(sp.dequantize(q), few);
    const constant = sp.quantizeCodebook(new Float32Array(100).fill(-3), { codebook: { learn: 2 } });
    expect([...constant.codebook]).toEqual([-1, -1]);
    expectSame(sp.dequantize(constant), new Float32Array(100).fill(-3));
    const zeros = sp.quantizeCodebook(new Float32Array(100), { codebook: { learn: 4 } });
    expect([...zeros.codebook]).toEqual([0, 0, 0, 0]);
    expectSame(sp.dequantize(zeros), new Float32Array(100));
    const nothing = sp.quantizeCodebook([], { codebook: { learn: 4 } });
    expect([...nothing.codebook]).toEqual([0, 0, 0, 0]);
    expect(nothing.absmax.length).toBe(0);
    // One outlier so far away that the rest is tiny beside it.
    const outlier = gaussian(10_000, 15);
    outlier[5000] = 0;
    const fourteen = sp.quantizeCodebook(outlier, { codebook: { learn: 14 }, blockSize: 10_000 });
    const withFourteen = sp.compare(outlier, fourteen).mse;
    outlier[5000] = 1e9;
    const sharp = sp.quantizeCodebook(outlier, { codebook: { learn: 16 }, blockSize: 10_000 });
    outlier[5000] = 0;
    const rest = sp.dequantize(sharp);
    rest[5000] = 0;
    // 15 values are left for the rest. They have to do better than 14 that the outlier does not disturb.
    expect(sp.compare(outlier, rest).mse).toBeLessThan(withFourteen);
    const denormal = sp.quantizeCodebook(
      gaussian(1000, 16).map((v) => v * 1e-42),
      { codebook: { learn: 4 } },
    );
    for (const v of denormal.codebook) expect(Math.abs(v)).toBeLessThanOrEqual(1);
  });

  it('refuses what is not finite', () => {
    for (const bad of [Number.NaN, Infinity, -Infinity]) {
      for (const codebook of ['nf4', 'fp4', Float32Array.of(0, 1), { learn: 4 }] as const) {
        for (const blockSize of [64, tileSize * 4]) {
          const x = gaussian(tileSize + 100, 1);
          x[tileSize + 3] = bad;
          const error = expectCode(() => sp.quantizeCodebook(x, { codebook, blockSize }), 'NON_FINITE');
          expect(error.message).toContain(`x[${tileSize + 3}] is ${bad}`);
        }
      }
    }
    expect((sp.quantizeCodebook([1, 2], { codebook: 'nf4' }).data as Uint8Array)[1]).toBe(15);
  });

  it('names a wrong option', () => {
    const q = (options: object) => () => sp.quantizeCodebook([1, 2, 3], options as { codebook: CodebookSource });
    expectRefusal(q({}), TypeError, 'codebook');
    expectRefusal(q({ codebook: 'nf5' }), RangeError, 'codebook');
    expectRefusal(q({ codebook: [0, 1] }), TypeError, 'codebook');
    expectRefusal(q({ codebook: new Float64Array(4) }), TypeError, 'codebook');
    expectRefusal(q({ codebook: new Float32Array(1) }), RangeError, 'codebook');
    expectRefusal(q({ codebook: new Float32Array(257) }), RangeError, 'codebook');
    expectRefusal(q({ codebook: Float32Array.of(0, Number.NaN) }), RangeError, 'codebook[1]');
    expectRefusal(q({ codebook: { learn: 1 } }), RangeError, 'codebook.learn');
    expectRefusal(q({ codebook: { learn: 257 } }), RangeError, 'codebook.learn');
    expectRefusal(q({ codebook: { learn: 2.5 } }), RangeError, 'codebook.learn');
    expectRefusal(q({ codebook: { learn: '4' } }), TypeError, 'codebook.learn');
    expectRefusal(q({ codebook: 'nf4', blockSize: 0 }), RangeError, 'blockSize');
    expectRefusal(q({ codebook: 'nf4', blockSize: 1.5 }), RangeError, 'blockSize');
    expectRefusal(q({ codebook: 'nf4', blockSize: '64' }), TypeError, 'blockSize');
    expectRefusal(q({ codebook: 'nf4', range: 'best' }), RangeError, 'range');
    expectRefusal(q({ codebook: 'nf4', absmaxType: 'float16' }), RangeError, 'absmaxType');
    expectRefusal(q({ codebook: 'nf4', shape: [2] }), RangeError, 'shape');
    expectRefusal(q({ codebook: 'nf4', out: new Uint8Array(4) }), RangeError, 'out');
    expectRefusal(q({ codebook: 'nf4', out: new Int8Array(3) }), TypeError, 'out');
    expectRefusal(q({ codebook: 'nf4', groupSize: 3 }), TypeError, 'groupSize');
  });

  it('names what is wrong with a tensor', () => {
    const good = sp.quantizeCodebook(gaussian(100, 2), { codebook: 'nf4' });
    const x = new Float32Array(100);
    const wrong = (change: object) => ({ ...good, ...change }) as CodebookTensor;
    const cases = [
      [{ codebook: [0, 1] }, TypeError, 'codebook'],
      [{ codebook: new Float32Array(1) }, RangeError, 'codebook'],
      [{ codebook: Float32Array.of(0, Infinity) }, RangeError, 'codebook[1]'],
      [{ blockSize: 0 }, RangeError, 'blockSize'],
      [{ blockSize: 10 }, RangeError, 'absmax'],
      [{ absmax: [1, 1] }, TypeError, 'absmax'],
      [{ absmax: Float32Array.of(1, -Infinity) }, RangeError, 'absmax[1]'],
      [{ absmax: Float32Array.of(1, Number.NaN) }, RangeError, 'absmax[1]'],
      [{ data: new Int8Array(100) }, TypeError, 'data'],
      [{ data: new Uint8Array(99) }, RangeError, 'shape'],
      [{ shape: [50, 3] }, RangeError, 'shape'],
      [{ shape: [-100] }, RangeError, 'shape'],
      [{ data: new Uint8Array(100).fill(16, 98) }, RangeError, 'data[98]'],
      [{ shape: undefined }, TypeError, 'shape'],
    ] as const;
    for (const [change, type, field] of cases) {
      const at = (name: string) => `${name}.${field}`;
      expectRefusal(() => sp.dequantize(wrong(change)), type, at('q'));
      expectRefusal(() => sp.compare(x, wrong(change)), type, at('b'));
      expectRefusal(() => sp.pack(wrong(change)), type, at('q'));
    }
    expectRefusal(() => sp.compare(new Float32Array(99), good), RangeError, 'b');
  });
});
