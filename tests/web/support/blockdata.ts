// Numbers for the tests of ggml's blocks. Some are like the weights of models; others are hard cases for rounding, signs and the limits of
// float formats. Only exact operations are used, so that every engine makes the same numbers.
import { type BlockOptions, type BlockType, blockTypeInfo } from 'scalepoint';
import { Random } from './support.js';

/** Blocks of one kind. */
export interface BlockSet {
  name: string;
  x: Float32Array;
}

type MakeBlock = (random: Random, elements: number) => ArrayLike<number>;

const signs = [-1, 1] as const;

/** 2^k for a random whole k in [low, high]. */
function power(random: Random, low: number, high: number): number {
  return 2 ** (low + random.below(high - low + 1));
}

const float = new Float32Array(1);
const bits = new Int32Array(float.buffer);

/** The float32 next to v. A step of 1 goes up, -1 goes down. */
export function nextFloat(v: number, step: -1 | 1): number {
  if (v === 0) return step * 2 ** -149;
  float[0] = v;
  bits[0]! += v > 0 ? step : -step;
  return float[0]!;
}

/**
 * Multiples of half a step and float32 numbers next to them. `whole` lists the numbers of steps from zero (or from the minimum, if
 * `affine`) to the extreme element. These are the divisors by which the types compute their scales, so that the step becomes the scale.
 */
function ties(random: Random, elements: number, whole: readonly number[], affine: boolean): Float32Array {
  const step = power(random, -12, 8);
  const top = random.pick(whole);
  const base = affine ? random.below(9) - 4 : 0;
  const x = Float32Array.from({ length: elements }, () => {
    const halves = affine ? random.below(2 * top + 1) : random.below(4 * top + 1) - 2 * top;
    const v = (base + halves / 2) * step;
    return random.below(4) === 0 ? nextFloat(v, random.pick(signs)) : v;
  });
  // A neighbor of an end may lie outside of the range.
  for (let i = 0; i < elements; i++) {
    const [low, high] = affine ? [base, base + top] : [-top, top];
    x[i] = Math.min(Math.max(x[i]!, low * step), high * step);
  }
  x[random.below(elements)] = (base + top) * step * (affine ? 1 : random.pick(signs));
  if (affine) x[(random.below(elements - 1) + 1) % elements] = base * step;
  return x;
}

const makers: Record<string, MakeBlock> = {
  weights: (random, n) => random.bell(n).map((v) => 0.03 * v),
  'weights of any scale': (random, n) => {
    const scale = power(random, -40, 12);
    return random.bell(n).map((v) => scale * v);
  },
  'heavy tails': (random, n) => random.bell(n).map((v) => v / (0.01 + random.bits() / 2 ** 32)),
  'one large element': (random, n) => {
    const x = random.bell(n).map((v) => 0.01 * v);
    x[random.below(n)] = random.pick(signs) * 4;
    return x;
  },
  'far from zero': (random, n) => {
    const middle = (random.below(2001) - 1000) / 16;
    return random.bell(n).map((v) => middle + v);
  },
  negative: (random, n) => random.uniform(n, -1, -0.001),
  positive: (random, n) => random.uniform(n, 0.001, 1),
  constant: (random, n) => {
    const [v] = random.anyFinite(1);
    // Only magnitudes that are in range for the float16 scale of every type.
    const kept = Math.abs(v!) < 1e4 && Math.abs(v!) > 1e-20 ? v! : random.pick(signs) * 0.1;
    return new Float32Array(n).fill(kept);
  },
  'zeros of both signs': (random, n) => {
    const kind = random.below(3);
    return Float32Array.from({ length: n }, () => (kind === 0 || (kind === 1 && random.below(2) === 0) ? 0 : -0));
  },
  sparse: (random, n) => {
    const sign = random.below(3) - 1;
    return Float32Array.from({ length: n }, () => {
      if (random.below(8) > 0) return random.pick([0, -0]);
      const v = random.bell(1)[0]!;
      return sign === 0 ? v : sign * Math.abs(v);
    });
  },
  'both signs of one size': (random, n) => {
    const size = power(random, -8, 4) * (1 + random.below(100) / 100);
    return Float32Array.from({ length: n }, () => size * random.pick([1, -1, 0.5, 0.25, -0.3]));
  },
  'two values': (random, n) => {
    const [a, b] = random.bell(2);
    return Float32Array.from({ length: n }, () => random.pick([a!, b!]));
  },
  'ties of a symmetric type': (random, n) => ties(random, n, [4, 8, 12, 16, 31, 32, 113, 127], false),
  'ties of an affine type': (random, n) => ties(random, n, [3, 15, 31, 63], true),
  'middles of 4-bit floats': (random, n) => {
    const step = power(random, -20, 12);
    const x = Float32Array.from({ length: n }, () => {
      const v = step * random.pick(signs) * random.pick([0, 0.5, 1.5, 2.5, 3.5, 5, 7, 10, 12]);
      return random.below(4) === 0 ? nextFloat(v, random.pick(signs)) : v;
    });
    x[random.below(n)] = 12 * step * random.pick(signs);
    return x;
  },
  subnormal: (random, n) => {
    const scale = power(random, -148, -120);
    return random.bell(n).map((v) => scale * v);
  },
  'almost zero': (random, n) => {
    const scale = power(random, -110, -45);
    return random.bell(n).map((v) => scale * v);
  },
  'scales that are subnormal in float16': (random, n) => {
    const scale = power(random, -26, -8);
    return random.bell(n).map((v) => scale * v);
  },
  large: (random, n) => {
    const scale = power(random, 13, 24);
    return random.bell(n).map((v) => scale * v);
  },
  'any finite float': (random, n) => random.anyFinite(n),
};

/** Blocks of every kind, `blocks` of each. Those of the last two kinds may be too large for some types. */
export function blockSets(elements: number, blocks: number, seed: number): BlockSet[] {
  return Object.entries(makers).map(([name, make], i) => {
    const random = new Random(seed + i);
    const x = new Float32Array(blocks * elements);
    for (let b = 0; b < blocks; b++) x.set(make(random, elements), b * elements);
    return { name, x };
  });
}

/** 19 blocks of every kind except the last two, so that none is too large for any type. */
export function sample(elements: number): Float32Array {
  const sets = blockSets(elements, 19, 77).slice(0, -2);
  const x = new Float32Array(sets.length * 19 * elements);
  sets.forEach((set, i) => {
    x.set(set.x, i * 19 * elements);
  });
  return x;
}

/** Types with grids, which take a hundred times as long as the others. */
export const isGrid = (type: BlockType) => /^IQ[123]_/.test(type);

/** Options that types need for n elements: types that require importance get the same importance for all columns. */
export function needsOf(type: BlockType, n: number): Pick<BlockOptions, 'shape' | 'weights'> {
  const { elements, needsWeights } = blockTypeInfo(type);
  return needsWeights ? { shape: [n / elements, elements], weights: new Float32Array(elements).fill(1) } : {};
}

/** A 32-bit hash of the bytes of an array (FNV-1a). */
export function digest(array: ArrayBufferView): number {
  let hash = 0x811c9dc5;
  for (const byte of new Uint8Array(array.buffer, array.byteOffset, array.byteLength)) {
    hash = Math.imul(hash ^ byte, 0x01000193);
  }
  return hash >>> 0;
}

/** Digests of the blocks that ggml makes from `sample`, and of the floats that it restores from them. A test checks ggml against these. */
export const digests: Record<BlockType, { blocks: number; floats: number }> = {
  Q4_0: { blocks: 9472492, floats: 1465736463 },
  Q4_1: { blocks: 1208954802, floats: 77712887 },
  Q5_0: { blocks: 926233776, floats: 2577464286 },
  Q5_1: { blocks: 182877433, floats: 393425127 },
  Q8_0: { blocks: 3370112591, floats: 3820417170 },
  Q2_K: { blocks: 4195425614, floats: 1617016404 },
  Q3_K: { blocks: 3342471839, floats: 1800878181 },
  Q4_K: { blocks: 1273245362, floats: 3206802158 },
  Q5_K: { blocks: 2649280582, floats: 2463477798 },
  Q6_K: { blocks: 1126405199, floats: 3305777187 },
  IQ2_XXS: { blocks: 766225676, floats: 394836763 },
  IQ2_XS: { blocks: 174611734, floats: 1381289506 },
  IQ3_XXS: { blocks: 1611371786, floats: 286443557 },
  IQ1_S: { blocks: 684224358, floats: 3422894976 },
  IQ4_NL: { blocks: 3430518335, floats: 249489376 },
  IQ3_S: { blocks: 2427805901, floats: 3808694333 },
  IQ2_S: { blocks: 3900973771, floats: 2442877976 },
  IQ4_XS: { blocks: 68764838, floats: 1488084849 },
  IQ1_M: { blocks: 3260755777, floats: 1109359170 },
  TQ1_0: { blocks: 1258632438, floats: 2723114772 },
  TQ2_0: { blocks: 446135006, floats: 2723114772 },
  MXFP4: { blocks: 697356754, floats: 3578812827 },
  Q1_0: { blocks: 728233143, floats: 3205846981 },
  Q2_0: { blocks: 597008426, floats: 1051493108 },
};
