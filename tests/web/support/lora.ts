// Makes adapters (LoRA) in the spellings of several tools, and adds them to weights in float64 with a bound for what float32 makes of them.
// Spellings: github.com/huggingface/peft at 000b5847, src/peft/utils/save_and_load.py; Comfy-Org/ComfyUI at 6f98b150,
// comfy/weight_adapter/lora.py; huggingface/diffusers at ed6847a1, src/diffusers/loaders/lora_conversion_utils.py. It shares no code with
// web/src and cpp/.
import { product, type TestTensor } from './models.js';
import { Random } from './support.js';

/** The matrices of an adapter for a weight: up [rows, rank] and down [rank, columns]; with a middle down is [rank, inputs]. */
export interface Pair {
  readonly rank: number;
  readonly up: Float32Array<ArrayBuffer>;
  readonly down: Float32Array<ArrayBuffer>;
  /** [rank, rank, kernel]. */
  readonly middle?: Float32Array<ArrayBuffer>;
}

/** Random numbers: small integers, or floats with few zero bits. */
function numbers(n: number, seed: number, isWhole: boolean): Float32Array<ArrayBuffer> {
  const random = new Random(seed);
  return Float32Array.from({ length: n }, () => (isWhole ? random.below(7) - 3 : random.bits() / 2 ** 31 - 1));
}

export function pair(rows: number, columns: number, rank: number, seed: number, isWhole = false): Pair {
  return { rank, up: numbers(rows * rank, seed, isWhole), down: numbers(rank * columns, seed + 1, isWhole) };
}

export function float32(shape: readonly number[], data: Float32Array<ArrayBuffer>): TestTensor {
  return { dtype: 'F32', shape, data };
}

/** A weight of small integers, or of floats. */
export const weight = (shape: readonly number[], seed: number, isWhole = false): TestTensor =>
  float32(shape, numbers(product(shape), seed, isWhole));

export function transpose(x: Float32Array<ArrayBuffer>, rows: number): Float32Array<ArrayBuffer> {
  const columns = x.length / rows;
  return x.map((_, i) => x[(i % rows) * columns + Math.floor(i / rows)]!);
}

/** A product of matrices that is added to a weight. */
export interface Added {
  readonly pair: Pair;
  readonly factor: number;
  /** DoRA: the length that each row of the sum gets. */
  readonly lengths?: Float32Array<ArrayBuffer>;
}

/**
 * The weight with products added, in float64, and how far float32 may be off at each element: with u = 2^-24, a sum of r products is rounded at
 * most r + 1 times on the way of each product, the factor once, and its product with the sum once; each adds a relative error of at most u to the
 * sum of magnitudes. The result of each addition to the weight is rounded once more. Lengths follow PEFT's rule, src/peft/tuners/lora/variants.py
 * at b921e124: factor = length / norm of the row, row *= factor. A norm is off by the norm of what its elements are off at most; what its own sum
 * in float64 is off is less than 2^-40 of it. The factor and each product are rounded once.
 */
export function merged(base: TestTensor, additions: readonly Added[], kernel = 1) {
  const rows = base.shape[0]!;
  const source = base.data as Float32Array;
  const columns = source.length / rows;
  const values = new Float64Array(source.length);
  const bounds = new Float64Array(source.length);
  const u = 2 ** -24;
  values.set(source);
  for (const {
    pair: { rank, up, down, middle },
    factor,
    lengths,
  } of additions) {
    for (let row = 0; row < rows; row++) {
      for (let column = 0; column < columns; column++) {
        const at = row * columns + column;
        let [sum, size] = [0, 0];
        for (let k = 0; k < rank; k++) {
          let [entry, magnitude] = [down[k * columns + column]!, Math.abs(down[k * columns + column]!)];
          if (middle !== undefined) {
            const [input, position] = [Math.floor(column / kernel), column % kernel];
            [entry, magnitude] = [0, 0];
            for (let b = 0; b < rank; b++) {
              const term = middle[(k * rank + b) * kernel + position]! * down[(b * columns) / kernel + input]!;
              entry += term;
              magnitude += Math.abs(term);
            }
          }
          sum += up[row * rank + k]! * entry;
          size += Math.abs(up[row * rank + k]!) * magnitude;
        }
        // A middle makes sums of its own before.
        const roundings = (middle === undefined ? 1 : 2) * (rank + 1) + 2;
        const before = ((1 + u) ** roundings - 1) * Math.abs(factor) * size;
        values[at]! += factor * sum;
        bounds[at]! += before;
        bounds[at]! += u * (Math.abs(values[at]!) + bounds[at]!);
      }
      if (lengths === undefined) continue;
      const norm = (all: Float64Array) => Math.hypot(...all.subarray(row * columns, (row + 1) * columns));
      const [exact, length] = [norm(values), Math.abs(lengths[row]!)];
      const most = (length / (exact - norm(bounds))) * (1 + u) * (1 + 2 ** -40);
      for (let at = row * columns; at < (row + 1) * columns; at++) {
        const size = Math.abs(values[at]!);
        bounds[at] = bounds[at]! * most + size * (most - length / exact) + u * (size + bounds[at]!) * most;
        values[at]! *= lengths[row]! / exact;
      }
    }
  }
  return { values, bounds };
}

/** The tensors of a layer as a tool spells them. */
export type Spelling = (module: string, pair: Pair, columns: number, alpha: number) => Record<string, TestTensor>;

const matrices = ({ rank, up, down }: Pair, columns: number) => ({
  up: float32([up.length / rank, rank], up),
  down: float32([rank, columns], down),
});

const scalar = (value: number) => float32([], Float32Array.of(value));

/** Spellings, each with the name that the module has in the file. */
export const spellings = {
  peft: (module, one, columns, _alpha) => {
    const { up, down } = matrices(one, columns);
    return { [`base_model.model.${module}.lora_A.weight`]: down, [`base_model.model.${module}.lora_B.weight`]: up };
  },
  kohya: (module, one, columns, alpha) => {
    const { up, down } = matrices(one, columns);
    const name = `lora_unet_${module.replaceAll('.', '_')}`;
    return { [`${name}.lora_down.weight`]: down, [`${name}.lora_up.weight`]: up, [`${name}.alpha`]: scalar(alpha) };
  },
  diffusers: (module, one, columns, alpha) => {
    const { up, down } = matrices(one, columns);
    return {
      [`transformer.${module}.lora_A.weight`]: down,
      [`transformer.${module}.lora_B.weight`]: up,
      [`transformer.${module}.alpha`]: scalar(alpha),
    };
  },
  'diffusers with down and up': (module, one, columns, alpha) => {
    const { up, down } = matrices(one, columns);
    return {
      [`unet.${module}.lora.down.weight`]: down,
      [`unet.${module}.lora.up.weight`]: up,
      [`unet.${module}.alpha`]: scalar(alpha),
    };
  },
  'plain names': (module, one, columns, alpha) => {
    const { up, down } = matrices(one, columns);
    return {
      [`${module}.lora_down.weight`]: down,
      [`${module}.lora_up.weight`]: up,
      [`${module}.alpha`]: scalar(alpha),
    };
  },
} satisfies Record<string, Spelling> as Readonly<
  Record<'peft' | 'kohya' | 'diffusers' | 'diffusers with down and up' | 'plain names', Spelling>
>;
