// The types of one to two bits and IQ4_XS beside ggml's own functions.
import { type BlockType, blockTypeInfo } from 'scalepoint';
import { expect, it } from 'vitest';
import { blockSets } from '../support/blockdata.js';
import { ggmlDequantize, ggmlQuantize } from '../support/ggml.js';
import { needNative } from '../support/native.js';
import { describeLarge, difference, expectCode, expectSame, Random } from '../support/support.js';

needNative();

/** Where the float16 scale of a block is. */
const scaleAt: Partial<Record<BlockType, number>> = { IQ4_XS: 0, TQ1_0: 52, TQ2_0: 64, Q1_0: 0, Q2_0: 0 };
const types = Object.keys(scaleAt) as BlockType[];

/** Blocks of every kind with ggml's bytes for them, without those whose scale float16 does not hold. */
function setsOf(type: BlockType) {
  const { elements, bytes } = blockTypeInfo(type);
  const random = new Random(21);
  const outlier = blockSets(elements, 300, 5).map(({ x }) => {
    // Most elements become very small beside one.
    const y = x.map((v) => v * 2 ** -20);
    for (let at = 0; at < y.length; at += elements) y[at + random.below(elements)] = x[at]!;
    return { name: 'one of another size', x: y };
  });
  const few = random
    .uniform(300 * elements, 0, 1)
    .map((v, i) => Math.floor(v * 3 - 1) * 2 ** (Math.floor(i / elements) % 20));
  const sets = [...blockSets(elements, 300, 4), ...outlier, { name: 'three values', x: few }];
  return sets.map(({ name, x }) => {
    const made = ggmlQuantize(type, x);
    const fits = (b: number) => (made[b * bytes + scaleAt[type]! + 1]! & 0x7c) !== 0x7c;
    const blocks = Array.from({ length: x.length / elements }, (_, b) => b);
    const pick = <T extends Float32Array | Uint8Array>(from: T, size: number): T =>
      from.filter((_: number, i: number) => fits(Math.floor(i / size))) as T;
    const tooLarge = blocks.filter((b) => !fits(b)).map((b) => x.subarray(b * elements, (b + 1) * elements));
    return { name, x: pick(x, elements), blocks: pick(made, bytes), tooLarge };
  });
}

const data = new Map<BlockType, ReturnType<typeof setsOf>>();

/** Made once for all builds. */
function dataOf(type: BlockType) {
  const known = data.get(type) ?? setsOf(type);
  data.set(type, known);
  return known;
}

describeLarge('quantizeBlocks', (sp) => {
  it.each(types)("gives ggml's bytes for %s", (type) => {
    let compared = 0;
    for (const { name, x, blocks, tooLarge } of dataOf(type)) {
      expectSame(sp.quantizeBlocks(x, type).data, blocks, name);
      compared += x.length / blockTypeInfo(type).elements;
      for (const block of tooLarge.slice(0, 20)) expectCode(() => sp.quantizeBlocks(block, type), 'OVERFLOW');
    }
    expect(compared).toBeGreaterThanOrEqual(10_000);
  });

  it.each(types)('makes the same blocks of %s alone and in any number', (type) => {
    const { elements, bytes } = blockTypeInfo(type);
    const x = new Random(8).bell(30 * elements);
    const all = ggmlQuantize(type, x);
    for (let n = 1; n <= 9; n++) {
      const got = sp.quantizeBlocks(x.subarray(n * elements, 2 * n * elements), type).data;
      expectSame(got, all.subarray(n * bytes, 2 * n * bytes), `${n} blocks`);
    }
  });

  it.each(types)('takes %s up to the largest scale that float16 holds', (type) => {
    const { elements } = blockTypeInfo(type);
    // The scale itself, or its largest step: 65504 is the largest, and from 65520 on float16 rounds up to infinity.
    const x = new Float32Array(elements).fill(type === 'IQ4_XS' ? 65504 * 32 : 65504);
    if (type === 'IQ4_XS') x.fill(0, 32).fill(-65504 * 32 * 100, 0, 1);
    expectSame(sp.quantizeBlocks(x, type).data, ggmlQuantize(type, x));
    const larger = new Float32Array(elements).fill(2 ** 30);
    expectCode(() => sp.quantizeBlocks(larger, type), 'OVERFLOW');
    if (type !== 'IQ4_XS') {
      expectSame(sp.quantizeBlocks(x.fill(65519), type).data, ggmlQuantize(type, x));
      expectCode(() => sp.quantizeBlocks(x.fill(65520), type), 'OVERFLOW');
    }
  });

  it.each(types)("restores ggml's floats from any bytes of %s", (type) => {
    const { elements, bytes } = blockTypeInfo(type);
    const random = new Random(9);
    const any = Uint8Array.from({ length: bytes * 3000 }, () => random.bits() & 255);
    const canonical = (floats: Float32Array) => floats.map((v) => (Number.isNaN(v) ? Number.NaN : v));
    const restored = sp.dequantize({ kind: 'blocks', type, shape: [3000 * elements], data: any });
    const want = ggmlDequantize(type, any);
    expect(difference(canonical(restored), canonical(want))).toBeUndefined();
    expect(want.some(Number.isNaN)).toBe(true);
  });
});
