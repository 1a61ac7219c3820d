/** Distributions of generated numbers. Each one is hard or easy for quantization in a way of its own. */
export type Distribution = 'normal' | 'uniform' | 'heavy-tailed' | 'one-sided' | 'bimodal' | 'outliers';

/** All distributions, each with its name on the page and a hint on what it shows. */
export const distributions: readonly { readonly name: Distribution; readonly label: string; readonly hint: string }[] =
  [
    { name: 'normal', label: 'Normal', hint: 'Bell-shaped, like the weights of most layers.' },
    { name: 'uniform', label: 'Uniform', hint: 'Every level is used equally often: the best case for even steps.' },
    {
      name: 'heavy-tailed',
      label: 'Heavy-tailed',
      hint: 'A few far values stretch the range. Most numbers share a few levels.',
    },
    {
      name: 'one-sided',
      label: 'One-sided',
      hint: 'Never negative, like activations after ReLU. Half of the symmetric levels are wasted.',
    },
    { name: 'bimodal', label: 'Two peaks', hint: 'Levels between the peaks are wasted.' },
    {
      name: 'outliers',
      label: 'With outliers',
      hint: 'One number in a thousand is ten times larger. Groups contain the damage.',
    },
  ];

/** Rows of every generated matrix: enough to show a gain of per-channel scales, and few enough to look at one by one. */
export const generatedRows = 16;

/** A random number generator, uniform in [0, 1). The same seed gives the same numbers in every browser. */
function createRandom(seed: number): () => number {
  // Xorshift with 32 bits of state, which must not be zero. The multiplication makes the states of neighboring seeds differ in many bits.
  let state = (Math.imul(seed + 1, 0x9e3779b1) ^ 0x2545f491) >>> 0 || 1;
  const next = () => {
    state ^= state << 13;
    state ^= state >>> 17;
    state ^= state << 5;
    state >>>= 0;
    return state / 0x1_0000_0000;
  };
  // The first outputs still correlate with the seed, so they are skipped.
  for (let i = 0; i < 16; i++) next();
  return next;
}

/** A generator of standard normal numbers by the Box-Muller transform. It returns the two numbers of each pair in turn. */
function createNormal(random: () => number): () => number {
  let spare: number | undefined;
  return () => {
    if (spare !== undefined) {
      const value = spare;
      spare = undefined;
      return value;
    }
    // 1 - u lies in (0, 1], so that the logarithm is finite.
    const radius = Math.sqrt(-2 * Math.log(1 - random()));
    const angle = 2 * Math.PI * random();
    spare = radius * Math.sin(angle);
    return radius * Math.cos(angle);
  };
}

/** Options of `generate`. */
export interface GenerateOptions {
  readonly distribution: Distribution;
  /** Total count of numbers, a multiple of `generatedRows`. */
  readonly size: number;
  readonly seed: number;
  /** True to scale rows by factors from 1/4 to 4, since channels of a trained layer differ in magnitude. */
  readonly rowsDiffer: boolean;
}

/** Generates a matrix of `generatedRows` rows in row-major order. */
export function generate({ distribution, size, seed, rowsDiffer }: GenerateOptions): Float32Array {
  const random = createRandom(seed);
  const normal = createNormal(random);
  const draw: Record<Distribution, () => number> = {
    normal,
    uniform: () => 2 * random() - 1,
    // Student's t with 3 degrees of freedom is normal / sqrt(mean of 3 squared normals). The 1e-3 bounds the magnitude.
    'heavy-tailed': () => normal() / Math.sqrt((normal() ** 2 + normal() ** 2 + normal() ** 2) / 3 + 1e-3),
    'one-sided': () => Math.abs(normal()),
    bimodal: () => (random() < 0.5 ? -1 : 1) + 0.25 * normal(),
    outliers: () => normal() * (random() < 0.001 ? 10 : 1),
  };
  const values = new Float32Array(size);
  for (let i = 0; i < size; i++) values[i] = draw[distribution]();
  if (rowsDiffer) {
    const columns = size / generatedRows;
    // 7 and 16 have no common factor, so each factor occurs once, and the rows are not sorted by magnitude.
    for (let row = 0; row < generatedRows; row++) {
      const factor = 2 ** ((((row * 7) % generatedRows) / (generatedRows - 1)) * 4 - 2);
      for (let i = row * columns; i < (row + 1) * columns; i++) values[i] = values[i]! * factor;
    }
  }
  return values;
}
