import { type BlockType, blockTypeInfo, blockTypes } from 'scalepoint';
import { expect, it } from 'vitest';
import { type BlockSet, blockSets, nextFloat } from '../support/blockdata.js';
import { ggmlDequantize, ggmlQuantize } from '../support/ggml.js';
import { needNative } from '../support/native.js';
import { describeLarge, difference, expectCode, expectSame, Random } from '../support/support.js';

needNative();

const elements = 256;
const types = blockTypes.filter((type) => type.endsWith('_K'));

/** Where the float16 numbers of a block lie. */
const halves: Partial<Record<BlockType, readonly number[]>> = {
  Q2_K: [80, 82],
  Q3_K: [108],
  Q4_K: [0, 2],
  Q5_K: [0, 2],
  Q6_K: [208],
};

/** Element i of super-block b; `f` belongs to the super-block. */
type Make = (random: Random, i: number, f: number) => number;

const bell = (random: Random) => random.bell(1)[0]!;
const zero = (random: Random) => random.pick([0, -0]);

/** Values that make sub-blocks of a super-block differ, and values that lead searches astray. */
const makers: Record<string, Make> = {
  'sub-blocks of other sizes': (random, i) => bell(random) * 2 ** (3 * (i >> 4) - 36),
  'elements of other sizes': (random) => bell(random) * 2 ** (random.below(64) - 60),
  'every other sub-block empty': (random, i) => (i & 16 ? zero(random) : bell(random)),
  'one sub-block filled': (random, i, f) => (i >> 4 === ((f * 1000) & 15) ? bell(random) : zero(random)),
  'one spike': (_random, i, f) => (i === Math.floor(Math.abs(f * 1000) % 256) ? f : 0),
  'a spike over noise': (random, i, f) => (i === Math.floor(Math.abs(f * 1000) % 256) ? 3e4 * f : 1e-5 * bell(random)),
  'one magnitude': (random, _i, f) => random.pick([f, -f]),
  'one magnitude among others': (random, _i, f) => random.pick([f, -f, f * bell(random)]),
  'nearly constant': (random, _i, f) => f + (random.below(8) === 0 ? 1e-6 : 0),
  'a ramp': (_random, i, f) => f * (i & 31),
  'whole and half numbers': (random) => (random.below(63) - 31) / 2,
  'few values': (random, _i, f) => f * random.below(4),
  'positive in one half, negative in the other': (random, i) => (i < 128 ? 1 : -1) * Math.abs(bell(random)),
  'far from zero and close together': (random, _i, f) => -1000 * Math.abs(f) - random.below(8) * 2 ** -14,
  // The smaller minimum rounds away from its sub-block by millions of its steps.
  'minimums apart': (random, i) => (i < 32 ? -60_000 : -400 - random.below(16) * 2 ** -14),
  'about the size that counts as zero': (random) => 1e-15 * bell(random),
  'products that are subnormal': (random, _i, f) => 2 ** (-30 - 16 * Math.abs(f)) * bell(random),
};

function sets(): BlockSet[] {
  const count = 250;
  const own = Object.entries(makers).map(([name, make], k) => {
    const random = new Random(400 + k);
    const x = new Float32Array(count * elements);
    for (let b = 0; b < count; b++) {
      const f = bell(random);
      for (let i = 0; i < elements; i++) x[b * elements + i] = make(random, i, f);
    }
    return { name, x };
  });
  // Enough for sub-blocks that take all five sweeps of Q3_K.
  const weights = { name: 'many weights', x: new Random(399).bell(12_000 * elements) };
  return [...blockSets(elements, 250, 200), ...own, weights];
}

interface Split {
  readonly kept: Float32Array;
  readonly blocks: Uint8Array;
  readonly tooLarge: readonly Float32Array[];
}

/** The blocks whose scales float16 holds, and where the others are. */
function split(type: BlockType, x: Float32Array): Split {
  const { bytes } = blockTypeInfo(type);
  const all = ggmlQuantize(type, x);
  const tooLarge: Float32Array[] = [];
  const kept: number[] = [];
  for (let b = 0; b < x.length / elements; b++) {
    if (halves[type]!.some((at) => (all[b * bytes + at + 1]! & 0x7c) === 0x7c)) {
      tooLarge.push(x.subarray(b * elements, (b + 1) * elements));
    } else {
      kept.push(b);
    }
  }
  if (tooLarge.length === 0) return { kept: x, blocks: all, tooLarge };
  const keptX = new Float32Array(kept.length * elements);
  const blocks = new Uint8Array(kept.length * bytes);
  kept.forEach((b, i) => {
    keptX.set(x.subarray(b * elements, (b + 1) * elements), i * elements);
    blocks.set(all.subarray(b * bytes, (b + 1) * bytes), i * bytes);
  });
  return { kept: keptX, blocks, tooLarge };
}

const data = sets();

/** Asks ggml about each type once, for both builds. */
function onceForEach<T>(make: (type: BlockType) => T): (type: BlockType) => T {
  const made = new Map<BlockType, T>();
  return (type) => {
    const known = made.get(type) ?? make(type);
    made.set(type, known);
    return known;
  };
}

/** What ggml makes of the data. */
const splitsOf = onceForEach((type) => data.map(({ name, x }) => ({ name, ...split(type, x) })));

/** Blocks with the largest finite scales, and floats that are larger by the last bit of a factor. */
const largestOf = onceForEach((type) => {
  const random = new Random(11);
  return Array.from({ length: 60 }, () => {
    const x = random.bell(elements);
    const scaled = (factor: number) => x.map((v) => v * factor);
    const isGood = (blocks: Uint8Array) => halves[type]!.every((at) => (blocks[at + 1]! & 0x7c) !== 0x7c);
    // Closes in on the largest factor that keeps the scales finite, to the last bit.
    let low = 1;
    let high = 2 ** 40;
    while (nextFloat(low, 1) < high) {
      const middle = Math.fround((low + high) / 2);
      if (isGood(ggmlQuantize(type, scaled(middle)))) low = middle;
      else high = middle;
    }
    return { x: scaled(low), blocks: ggmlQuantize(type, scaled(low)), tooLarge: scaled(high) };
  });
});

/** Floats whose NaN have the same bits. */
const canonical = (floats: Float32Array) => {
  for (let i = 0; i < floats.length; i++) if (Number.isNaN(floats[i])) floats[i] = Number.NaN;
  return floats;
};

/** Any bytes, and blocks of floats with heavy tails, with the floats that ggml restores. */
const restoredOf = onceForEach((type) => {
  const random = new Random(12);
  const any = new Uint8Array(10_000 * blockTypeInfo(type).bytes);
  for (let i = 0; i < any.length; i++) any[i] = random.bits() & 255;
  const real = ggmlQuantize(type, data.find(({ name }) => name === 'heavy tails')!.x);
  return [any, real].map((blocks) => ({ blocks, floats: canonical(ggmlDequantize(type, blocks)) }));
});

describeLarge('quantizeBlocks', (sp) => {
  for (const type of types) {
    it(`gives ggml's bytes for ${type}`, () => {
      let compared = 0;
      for (const { name, kept, blocks, tooLarge } of splitsOf(type)) {
        expectSame(sp.quantizeBlocks(kept, type).data, blocks, name);
        compared += kept.length / elements;
        for (const block of tooLarge.slice(0, 20)) expectCode(() => sp.quantizeBlocks(block, type), 'OVERFLOW');
        if (name !== 'large' && name !== 'any finite float') expect(tooLarge, name).toHaveLength(0);
      }
      expect(compared).toBeGreaterThanOrEqual(20_000);
    });

    it(`gives ggml's bytes for ${type} up to the largest scale that float16 holds`, () => {
      for (const [round, { x, blocks, tooLarge }] of largestOf(type).entries()) {
        expectSame(sp.quantizeBlocks(x, type).data, blocks, `round ${round}`);
        expectCode(() => sp.quantizeBlocks(tooLarge, type), 'OVERFLOW');
      }
    });

    it(`restores ggml's floats from ${type} blocks and from any bytes`, () => {
      const [any, real] = restoredOf(type);
      for (const { blocks, floats } of [any!, real!]) {
        const got = sp.dequantize({ kind: 'blocks', type, shape: [floats.length], data: blocks });
        expect(difference(canonical(got), floats)).toBeUndefined();
      }
      expect(any!.floats.some(Number.isNaN)).toBe(true);
    });
  }
});
