// The rules by which MLX makes codes, and mlx-lm a folder, one element at a time. Written from their sources; it shares no code with web/src and
// cpp/. Sources: github.com/ml-explore/mlx at 846d1762, mlx/backend/cpu/quantized.cpp (quantize) and mlx/ops.cpp (affine_quantize,
// affine_dequantize); github.com/ml-explore/mlx-lm at d78bf58e, mlx_lm/utils.py.
import { nearestOf, numbersOf, type StoredTensor } from './compressed.js';
import { roundHalfEven } from './support.js';

/** The parts of a module with codes. */
export interface MlxParts {
  /** One code an element, in order. */
  readonly codes: readonly number[];
  readonly scales: Float64Array;
  readonly biases: Float64Array;
}

const f = Math.fround;

/** Rounds a float32 to a type. */
export const mlxRounded = (dtype: string, v: number) => (dtype === 'F32' ? f(v) : nearestOf(dtype, v));

/** Codes of values that are of the type of the model already. */
export function mlxQuantized(values: ArrayLike<number>, bits: number, groupSize: number, dtype: string): MlxParts {
  const bins = 2 ** bits - 1;
  const groups = values.length / groupSize;
  const codes: number[] = [];
  const [scales, biases] = [new Float64Array(groups), new Float64Array(groups)];
  for (let group = 0; group < groups; group++) {
    let [low, high] = [Infinity, -Infinity];
    for (let i = 0; i < groupSize; i++) {
      low = Math.min(low, values[group * groupSize + i]!);
      high = Math.max(high, values[group * groupSize + i]!);
    }
    const mask = Math.abs(low) > Math.abs(high);
    let scale = Math.max(f(f(high - low) / bins), f(1e-7));
    if (!mask) scale = -scale;
    const edge = mask ? low : high;
    const first = roundHalfEven(f(edge / scale));
    let bias = 0;
    if (first !== 0) {
      scale = f(edge / first);
      bias = edge;
    }
    for (let i = 0; i < groupSize; i++) {
      const q = roundHalfEven(f(f(values[group * groupSize + i]! - bias) / scale));
      codes.push(Math.min(Math.max(q, 0), bins));
    }
    scales[group] = mlxRounded(dtype, scale);
    biases[group] = mlxRounded(dtype, bias);
  }
  return { codes, scales, biases };
}

/** The codes in the words of a module's weight: bits of a row follow each other, the lowest first. */
function mlxCodes({ bytes }: StoredTensor, bits: number): number[] {
  const codes: number[] = [];
  for (let bit = 0; bit < bytes.length * 8; bit += bits) {
    let code = 0;
    for (let i = 0; i < bits; i++) code += ((bytes[(bit + i) >> 3]! >> ((bit + i) & 7)) & 1) << i;
    codes.push(code);
  }
  return codes;
}

/** The parts of a module in a file. */
export function mlxParts(tensors: ReadonlyMap<string, StoredTensor>, module: string, bits: number): MlxParts {
  const [weight, scales, biases] = ['weight', 'scales', 'biases'].map((end) => tensors.get(`${module}.${end}`)) as [
    StoredTensor,
    StoredTensor,
    StoredTensor,
  ];
  return { codes: mlxCodes(weight, bits), scales: numbersOf(scales), biases: numbersOf(biases) };
}

/** The values that codes stand for, in float32. */
export function mlxRestored({ codes, scales, biases }: MlxParts): Float32Array<ArrayBuffer> {
  const groupSize = codes.length / scales.length;
  return Float32Array.from(codes, (code, i) => {
    const group = Math.floor(i / groupSize);
    return f(f(code * scales[group]!) + biases[group]!);
  });
}
