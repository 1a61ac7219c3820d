// NVFP4, MXFP4 and MXFP8 as compressed-tensors stores them: restored as it decompresses, and its rules. Written without knowledge of the
// encoder under test.
//   vllm-project/compressed-tensors 01dd1a58 (compressors/nvfp4/helpers.py), 15df5d1c (compressors/mxfp8/base.py), 04a58ff4
//   (quantization/utils/helpers.py), 1ab39ae8 (quantization/utils/mxfp4_utils.py)
import { product } from '../models.js';
import { codeOf, e2m1, e4m3, exponentOf, numberOf, powerOf } from './floats.js';
import { floatsOf, must, type Stored } from './safetensors.js';

const f = Math.fround;

/** Codes and scales of a weight, and the divisor of all scales in NVFP4. */
export interface SmallFloats {
  readonly codes: Uint8Array;
  readonly scales: Uint8Array;
  readonly divisor?: number;
}

/** `weights` of a group of config.json. */
export interface WeightArgs {
  readonly num_bits: number;
  readonly type: string;
  readonly strategy: string;
  readonly group_size: number;
  readonly symmetric: boolean;
}

/** Reads the parts of a module, whose names leave `left`. */
export function readModule(
  tensors: ReadonlyMap<string, Stored>,
  module: string,
  shape: readonly number[],
  { num_bits: bits, group_size: group }: WeightArgs,
  left: Set<string>,
): SmallFloats {
  const take = (part: string, dtype: string, of: readonly number[]): Stored => {
    const stored = tensors.get(`${module}.${part}`);
    must(stored !== undefined, `missing: ${module}.${part}`);
    must(stored.dtype === dtype, `${module}.${part}: ${stored.dtype} instead of ${dtype}`);
    must(String(stored.shape) === String(of), `${module}.${part}: shape ${stored.shape} instead of ${of}`);
    left.delete(`${module}.${part}`);
    return stored;
  };
  const [rows, columns] = shape as [number, number];
  must(columns % group === 0, `${module}: rows of ${columns}`);
  const scales = take('weight_scale', group === 16 ? 'F8_E4M3' : 'U8', [rows, columns / group]).bytes;
  if (bits === 8) return { codes: take('weight', 'F8_E4M3', shape).bytes, scales };
  const bytes = take('weight_packed', 'U8', [rows, columns / 2]).bytes;
  const codes = Uint8Array.from({ length: product(shape) }, (_, i) => (bytes[i >> 1]! >> (4 * (i % 2))) & 15);
  if (group === 32) return { codes, scales };
  return { codes, scales, divisor: floatsOf(take('weight_global_scale', 'F32', [1]))[0]! };
}

/** The numbers that codes and scales stand for, in float32. */
export function restoredSmall({ codes, scales, divisor }: SmallFloats, bits: number): Float32Array {
  const group = codes.length / scales.length;
  const element = bits === 4 ? e2m1 : e4m3;
  return Float32Array.from(codes, (code, i) => {
    const byte = scales[Math.floor(i / group)]!;
    const scale = divisor === undefined ? powerOf(byte) : f(numberOf(byte, e4m3) / divisor);
    return f(numberOf(code, element) * scale);
  });
}

const largestOf = (values: Float32Array) => Math.max(...values.map(Math.abs));

/** Codes of numbers. The sign of -0 is kept, as its casts to float8 do; its casts to float4 drop it. */
const codesOf = (values: Float32Array, scale: number, bits: number) =>
  Uint8Array.from(values, (v) => codeOf(f(v / scale), bits === 4 ? e2m1 : e4m3));

/** MXFP4 and MXFP8: a power of two from the largest number, the next one from 1.75 on. */
export function mxRule(values: Float32Array, bits: number): SmallFloats {
  const scales = new Uint8Array(values.length / 32);
  const codes = new Uint8Array(values.length);
  for (const g of scales.keys()) {
    const own = values.subarray(g * 32, (g + 1) * 32);
    const most = largestOf(own);
    const exponent = most === 0 ? -Infinity : exponentOf(most) + (most / 2 ** exponentOf(most) >= 1.75 ? 1 : 0);
    scales[g] = Math.min(255, Math.max(0, 127 + exponent - (bits === 4 ? 2 : 8)));
    codes.set(codesOf(own, powerOf(scales[g]!), bits), g * 32);
  }
  return { codes, scales };
}

/** NVFP4 of weights in float32, whose module shares its divisor with others up to the number `most`. */
export function nvfp4Rule(values: Float32Array, most = largestOf(values)): SmallFloats {
  // torch divides a number by a tensor as its reciprocal times the number.
  const divisor = f(f(1 / most) * 2688);
  const scales = new Uint8Array(values.length / 16);
  const codes = new Uint8Array(values.length);
  for (const g of scales.keys()) {
    const own = values.subarray(g * 16, (g + 1) * 16);
    const byte = codeOf(f(divisor * f(largestOf(own) / 6)), e4m3);
    scales[g] = byte === 0 ? codeOf(0.125, e4m3) : byte;
    codes.set(codesOf(own, f(numberOf(scales[g]!, e4m3) / divisor), 4), g * 16);
  }
  return { codes, scales, divisor };
}
