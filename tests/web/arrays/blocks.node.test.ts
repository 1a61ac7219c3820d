import { type BlockType, blockTypeInfo, blockTypes } from 'scalepoint';
import { describe, expect, it } from 'vitest';
import { blockSets, digest, digests, needsOf, nextFloat, sample } from '../support/blockdata.js';
import { ggmlDequantize, ggmlQuantize } from '../support/ggml.js';
import { needNative } from '../support/native.js';
import { isSlow } from '../support/slow-native.js';
import {
  bfloat16Value,
  describeLarge,
  difference,
  expectCode,
  expectSame,
  float16Value,
  largeCores,
  Random,
} from '../support/support.js';

needNative();

const types = blockTypes.filter((type) => blockTypeInfo(type).elements === 32);
const perSet = 600;

/** Splits blocks into those from which ggml restores finite floats and the others, as arrays of their elements. */
function byFiniteness(type: BlockType, x: Float32Array): { finite: Float32Array; others: Float32Array[] } {
  const { elements } = blockTypeInfo(type);
  const restored = ggmlDequantize(type, ggmlQuantize(type, x));
  const finite: number[] = [];
  const others: Float32Array[] = [];
  for (let at = 0; at < x.length; at += elements) {
    const block = x.subarray(at, at + elements);
    if (restored.subarray(at, at + elements).every(Number.isFinite)) finite.push(...block);
    else others.push(block);
  }
  return { finite: Float32Array.from(finite), others };
}

/** Where two arrays of floats differ in a bit, all NaN counting as one. */
function floatDifference(got: Float32Array, want: Float32Array): string | undefined {
  const same = (a: Float32Array) => a.map((v) => (Number.isNaN(v) ? Number.NaN : v));
  return difference(same(got), same(want));
}

describeLarge('quantizeBlocks', (sp) => {
  for (const type of types) {
    it(`gives ggml's bytes for ${type}`, () => {
      let compared = 0;
      for (const { name, x } of blockSets(32, perSet, 1)) {
        const { finite, others } = byFiniteness(type, x);
        expectSame(sp.quantizeBlocks(finite, type).data, ggmlQuantize(type, finite), name);
        compared += finite.length / 32;
        for (const block of others) expectCode(() => sp.quantizeBlocks(block, type), 'OVERFLOW');
        // Only the largest numbers there are may be too large.
        if (name !== 'large' && name !== 'any finite float') expect(others).toHaveLength(0);
      }
      expect(compared).toBeGreaterThanOrEqual(10_000);
    });

    it(`gives ggml's bytes for the bits of 16-bit floats in ${type}`, () => {
      const random = new Random(5);
      for (const [from, value] of [
        ['float16', float16Value],
        ['bfloat16', bfloat16Value],
      ] as const) {
        const bits = sp.castFloat(
          random.bell(32 * 500).map((v, i) => v * 2 ** (Math.floor(i / 32) % 12)),
          from,
        );
        const widened = Float32Array.from(bits, value);
        expectSame(sp.quantizeBlocks(bits, type, { from }).data, ggmlQuantize(type, widened), from);
      }
    });

    it(`restores ggml's floats from any bytes of ${type}`, () => {
      const { bytes } = blockTypeInfo(type);
      const random = new Random(9);
      const data = Uint8Array.from({ length: bytes * 10_000 }, () => random.bits() & 255);
      const restored = sp.dequantize({ kind: 'blocks', type, shape: [320_000], data });
      const want = ggmlDequantize(type, data);
      expect(floatDifference(restored, want)).toBeUndefined();
      // NaN and infinities among the scales were tried too.
      if (type !== 'MXFP4') expect(want.some(Number.isNaN)).toBe(true);
    });
  }

  it('makes every exponent of MXFP4 as ggml does, next to the powers of two where log2f rounds up', () => {
    const blocks: number[] = [];
    const random = new Random(3);
    for (let n = -149; n <= 128; n++) {
      // The largest float below 2^n, and the 64 below it; then 2^n itself and what follows.
      let v = n === 128 ? nextFloat(Infinity, -1) : n === -149 ? 0 : nextFloat(2 ** n, -1);
      for (let i = 0; i < 65 && v > 0; i++, v = nextFloat(v, -1)) blocks.push(v);
      if (n < 128) blocks.push(2 ** n, nextFloat(2 ** n, 1), 1.5 * 2 ** n);
    }
    const x = new Float32Array(blocks.length * 32);
    blocks.forEach((size, b) => {
      const rest = random.uniform(32, -size, size);
      rest[random.below(32)] = random.pick([size, -size]);
      x.set(rest, b * 32);
    });
    expectSame(sp.quantizeBlocks(x, 'MXFP4').data, ggmlQuantize('MXFP4', x));
  });

  it('finds the first of several elements that are farthest from zero', () => {
    for (const type of types) {
      for (let first = 0; first < 31; first++) {
        const x = new Float32Array(32).fill(0.25);
        x.fill(-2, first + 1);
        x[first] = 2;
        expectSame(sp.quantizeBlocks(x, type).data, ggmlQuantize(type, x), `${type}, ${first}`);
        const negative = x.map((v) => -v);
        expectSame(sp.quantizeBlocks(negative, type).data, ggmlQuantize(type, negative), `${type}, ${first}`);
      }
    }
  });

  it('keeps the sign of the first zero where zero is the minimum', () => {
    for (const type of ['Q4_1', 'Q5_1'] as const) {
      for (let first = 0; first < 32; first++) {
        for (const [zero, later] of [
          [0, -0],
          [-0, 0],
        ] as const) {
          const x = new Float32Array(32).fill(later);
          x.fill(3, 0, first);
          x[first] = zero;
          const { data } = sp.quantizeBlocks(x, type);
          expectSame(data, ggmlQuantize(type, x), `${type}, ${first}`);
          expect(data[3]! >> 7).toBe(Object.is(zero, -0) ? 1 : 0);
        }
      }
    }
  });
});

describe('blocks', () => {
  it('have the digests to which every engine is held', () => {
    const ready = blockTypes.filter((type) => !isSlow(type));
    const found = ready.map((type) => {
      const x = sample(blockTypeInfo(type).elements);
      const blocks = ggmlQuantize(type, x, needsOf(type, x.length).weights as Float32Array | undefined);
      return [type, { blocks: digest(blocks), floats: digest(ggmlDequantize(type, blocks)) }];
    });
    expect(Object.fromEntries(found)).toEqual(Object.fromEntries(ready.map((type) => [type, digests[type]])));
  });

  it('are the same however many are made at once', () => {
    for (const { sp, build } of largeCores) {
      for (const type of types) {
        const x = sample(32).subarray(0, 32 * 14);
        const whole = sp.quantizeBlocks(x, type).data;
        const { bytes } = blockTypeInfo(type);
        for (let n = 1; n <= 9; n++) {
          for (const start of [0, 3]) {
            const { data } = sp.quantizeBlocks(x.subarray(start * 32, (start + n) * 32), type);
            expectSame(data, whole.slice(start * bytes, (start + n) * bytes), `${n} of ${type}, ${build}`);
          }
        }
      }
    }
  });
});
