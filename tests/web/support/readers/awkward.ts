// Weights on which encoders go wrong: in each group of consecutive numbers another difficulty.
import type { TestTensor } from '../models.js';
import { Random } from '../support.js';
import { encode, type FloatFormat, named, nearest } from './floats.js';

/** Groups of numbers. `at` counts within the group, and `random` is the same whatever was asked before. */
export const groups: Readonly<Record<string, (at: number, random: Random) => number>> = {
  bell: (_, random) => random.bell(1)[0]!,
  zeros: () => 0,
  'negative zeros': (at) => (at % 3 === 0 ? -0 : 0),
  constant: () => 0.3,
  'negative constant': () => -2.75,
  positive: (_, random) => 1 + random.bits() / 2 ** 32,
  negative: (_, random) => -1 - random.bits() / 2 ** 30,
  outlier: (at, random) => (at === 5 ? 1000 : random.bell(1)[0]! / 50),
  'one number': (at) => (at === 7 ? -0.0625 : 0),
  // Halves and quarters of steps whose largest multiples are 7, 15 and 6 as well.
  ties: (at) => [7, -7, 0.5, 1.5, -2.5, 3.5, -0.5, 4.5, 6.5, -5.5][at % 10]! / 8,
  'small ties': (at) => [6, 0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5, -0.25, -0.75, -1.75, -5, -3.5][at % 13]! * 2 ** -9,
  tiny: (at, random) => (random.below(7) - 3) * 2 ** -24 * (at % 2 === 0 ? 1 : 3),
  'equal ends': (at, random) => (at < 2 ? [0.5, -0.5][at]! : random.bell(1)[0]! / 4),
  'one side of zero and zero': (at) => (at % 4) / 3,
  large: (at) => [3e4, -6e4, 100, 5.5e4][at % 4]!,
};

/** Groups with numbers near the ends of float32. */
export const extremes: Readonly<Record<string, (at: number, random: Random) => number>> = {
  denormal: (at, random) => (random.below(255) - 127) * 2 ** -149 * (at % 2 === 0 ? 1 : 64),
  'smallest normals': (_, random) => (random.below(9) - 4) * 2 ** -126,
  'near the largest': (at, random) => (at % 5 === 0 ? 1 : -1) * 2 ** 120 * (1 + random.below(3)),
};

/** A matrix of such groups, in a float type. Each row begins with another kind. */
export function awkward(
  dtype: string,
  shape: readonly number[],
  { group = 32, kinds = groups, seed = 1 }: { group?: number; kinds?: typeof groups; seed?: number } = {},
): TestTensor & { readonly values: Float32Array } {
  const format: FloatFormat = named[dtype]!;
  const columns = shape.at(-1)!;
  const count = shape.reduce((a, b) => a * b, 1);
  const all = Object.values(kinds);
  const random = new Random(seed);
  const perRow = Math.ceil(columns / group);
  const values = Float32Array.from({ length: count }, (_, i) => {
    const row = Math.floor(i / columns);
    const column = i % columns;
    const kind = all[(row * perRow + Math.floor(column / group) + seed) % all.length]!;
    return nearest(Math.fround(kind(column % group, random)), format);
  });
  return { dtype, shape, values, data: encode(values, format) };
}
