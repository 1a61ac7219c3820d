// The rules by which MLX makes codes, and mlx-lm a folder, one element at a time. Written from their sources; it shares no code with web/src and
// cpp/. Sources: github.com/ml-explore/mlx at 846d1762, mlx/backend/cpu/quantized.cpp (quantize) and mlx/ops.cpp (affine_quantize,
// affine_dequantize); github.com/ml-explore/mlx-lm at d78bf58e, mlx_lm/utils.py.
import { nearestOf, numbersOf, type StoredTensor } from './compressed.js';
import { roundHalfEven } from './support.js';

/** The parts of a module with codes. */
export interface MlxParts {
  /** One code an element, in order. */
  readonly codes: Uint8Array;
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
  const codes = new Uint8Array(values.length);
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
      if (Number.isNaN(q)) throw new Error(`there is no code for element ${group * groupSize + i}`);
      codes[group * groupSize + i] = Math.min(Math.max(q, 0), bins);
    }
    scales[group] = mlxRounded(dtype, scale);
    biases[group] = mlxRounded(dtype, bias);
  }
  return { codes, scales, biases };
}

/** The codes in the words of a module's weight: bits of a row follow each other, the lowest first. */
export function mlxCodes({ bytes }: StoredTensor, bits: number): Uint8Array {
  const codes = new Uint8Array(Math.ceil((bytes.length * 8) / bits));
  for (let i = 0; i < codes.length; i++) {
    // A code lies in one byte or in two neighbors.
    const at = (i * bits) >> 3;
    const two = bytes[at]! + 256 * (bytes[at + 1] ?? 0);
    codes[i] = (two >> ((i * bits) & 7)) & (2 ** bits - 1);
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
  const values = new Float32Array(codes.length);
  for (let i = 0; i < codes.length; i++) {
    const group = Math.floor(i / groupSize);
    values[i] = f(codes[i]! * scales[group]!) + biases[group]!;
  }
  return values;
}

/** The kinds of small floats: bits, elements of a block, and the largest value of an element. */
export const mlxFloatKinds = { mxfp4: [4, 32, 6], nvfp4: [4, 16, 6], mxfp8: [8, 32, 448] } as const;

/** Values of the codes of a small float, without signs. */
const tables = {
  4: [0, 0.5, 1, 1.5, 2, 3, 4, 6],
  8: Array.from({ length: 127 }, (_, code) => {
    const exponent = code >> 3;
    return exponent === 0 ? (code & 7) * 2 ** -9 : (8 + (code & 7)) * 2 ** (exponent - 10);
  }),
} as const;

/** The nearest code, of two the even one, at most the largest. */
function nearestCode(table: readonly number[], v: number): number {
  let best = 0;
  for (let code = 1; code < table.length; code++) {
    const difference = Math.abs(table[code]! - v) - Math.abs(table[best]! - v);
    if (difference < 0 || (difference === 0 && code % 2 === 0)) best = code;
  }
  return best;
}

/**
 * Codes and scales of small floats as MLX's kernels for GPUs make them: mlx/backend/metal/kernels/fp_quantized.h at 00703ea6 (fp_quantize),
 * fp8.h at 0ae28ee7 (mx_scale_round_up) and fp4.h at 1c845607. Two things differ: a block of zeros has the scale 1 in mxfp4 and mxfp8, and
 * elements are divided by float8 scales, which the kernel does by a product with the reciprocal.
 */
export function mlxFloats(values: ArrayLike<number>, kind: keyof typeof mlxFloatKinds) {
  const [bits, block, largest] = mlxFloatKinds[kind];
  const codes = new Uint8Array(values.length);
  const scales = new Uint8Array(values.length / block);
  for (let first = 0; first < values.length; first += block) {
    let most = 0;
    for (let i = first; i < first + block; i++) most = Math.max(most, Math.abs(values[i]!));
    const quotient = f(most / largest);
    let scale: number;
    if (kind === 'nvfp4') {
      const code = nearestCode(tables[8], quotient);
      scales[first / block] = code;
      scale = tables[8][code]!;
    } else {
      let exponent = 0;
      while (most > 0 && 2 ** exponent < quotient) exponent++;
      while (most > 0 && 2 ** (exponent - 1) >= quotient) exponent--;
      if (exponent < -127 || exponent > 128) throw new Error(`no byte holds the exponent ${exponent}`);
      scales[first / block] = exponent + 127;
      scale = 2 ** exponent;
    }
    for (let i = first; i < first + block; i++) {
      const v = values[i]!;
      const sign = v < 0 || Object.is(v, -0) ? 1 << (bits - 1) : 0;
      codes[i] = scale === 0 ? 0 : sign | nearestCode(tables[bits], f(Math.abs(v) / scale));
    }
  }
  return { codes, scales };
}

/** The values that codes of small floats stand for, in float32. */
export function mlxFloatsRestored({ codes, scales }: ReturnType<typeof mlxFloats>, kind: keyof typeof mlxFloatKinds) {
  const [bits, block] = mlxFloatKinds[kind];
  const values = new Float32Array(codes.length);
  for (let i = 0; i < codes.length; i++) {
    const [code, byte] = [codes[i]!, scales[Math.floor(i / block)]!];
    const scale = kind === 'nvfp4' ? tables[8][byte]! : 2 ** (byte - 127);
    const value = tables[bits][code & (2 ** (bits - 1) - 1)]!;
    values[i] = (code >> (bits - 1) === 1 ? -value : value) * scale;
  }
  return values;
}
