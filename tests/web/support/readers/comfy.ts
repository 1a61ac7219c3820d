// ComfyUI's own kind of safetensors: how a layer is loaded and restored, and the rules that make codes. Written without knowledge of the
// encoder under test.
//   Comfy-Org/ComfyUI 0271a469 (comfy/quant_ops.py); Comfy-Org/comfy-kitchen 0935c34b (backends/eager/quantization.py), 12b8bdd6
//   (tensor/int8.py). Markers and scales are taken as `_load_quantized_module` does, of which a copy of unknown version was read. Its
//   `e8m0_to_f32` was not: that byte 0 stands for 0 is as other readers of these scales have it.
import { codeOf, e2m1, e4m3, evenRound, numberOf, powerOf } from './floats.js';
import { floatsOf, must, type Stored } from './safetensors.js';

const f = Math.fround;

/** A weight of [rows, columns] with its codes and scales in the order of the weight. */
export interface ComfyLayer {
  readonly format: string;
  readonly values: Float32Array;
  /** A code for each weight: bits of a small float, or int8. */
  readonly codes: Int16Array;
  /** One for the tensor, each row or each block: bytes of small floats, or float32. */
  readonly scales: ArrayLike<number>;
  /** The scale of the whole tensor, in NVFP4. */
  readonly whole?: number;
}

/** Scales from tiles of 128 rows and 4 columns, of which each is stored as 32 rows of 16 (`from_blocked`). */
function unblocked(stored: Uint8Array, rows: number, columns: number): Uint8Array {
  const across = Math.ceil(columns / 4);
  return Uint8Array.from({ length: rows * columns }, (_, i) => {
    const [row, column] = [Math.floor(i / columns), i % columns];
    const tile = Math.floor(row / 128) * across + Math.floor(column / 4);
    return stored[tile * 512 + (row % 32) * 16 + Math.floor((row % 128) / 32) * 4 + (column % 4)]!;
  });
}

/** Loads a layer; undefined for one without codes. Names that it takes leave `left`. */
export function loadLayer(
  tensors: ReadonlyMap<string, Stored>,
  layer: string,
  [rows, columns]: readonly [number, number],
  left: Set<string>,
): ComfyLayer | undefined {
  const marker = tensors.get(`${layer}.comfy_quant`);
  if (marker === undefined) return undefined;
  must(marker.dtype === 'U8' && marker.shape.length === 1, `${layer}.comfy_quant: ${marker.dtype}`);
  const { format } = JSON.parse(new TextDecoder().decode(marker.bytes)) as { format: string };
  left.delete(`${layer}.comfy_quant`);
  const take = (part: string, dtypes: readonly string[], shapes: readonly (readonly number[])[]): Stored => {
    const name = `${layer}.${part}`;
    const stored = tensors.get(name);
    must(stored !== undefined, `missing: ${name}`);
    must(dtypes.includes(stored.dtype), `${name}: ${stored.dtype}`);
    must(
      shapes.some((shape) => String(shape) === String(stored.shape)),
      `${name}: shape ${stored.shape}`,
    );
    left.delete(name);
    return stored;
  };
  const roundUp = (n: number, unit: number) => Math.ceil(n / unit) * unit;
  const whole8 = (dtype: string) => take('weight', [dtype], [[rows, columns]]).bytes;
  if (format === 'int8_tensorwise') {
    const codes = Int16Array.from(new Int8Array(whole8('I8')));
    return restored(format, columns, { codes, scales: floatsOf(take('weight_scale', ['F32'], [[], [rows, 1]])) });
  }
  if (format === 'float8_e4m3fn') {
    const codes = Int16Array.from(whole8('F8_E4M3'));
    return restored(format, columns, { codes, scales: floatsOf(take('weight_scale', ['F32'], [[]])) });
  }
  const isMx = format === 'mxfp8';
  const group = isMx ? 32 : 16;
  must((isMx || format === 'nvfp4') && columns % group === 0 && rows % group === 0, `${layer}: ${format}`);
  const perRow = columns / group;
  const padded = [roundUp(rows, 128), roundUp(perRow, 4)];
  const scales = unblocked(take('weight_scale', [isMx ? 'F8_E8M0' : 'F8_E4M3', 'U8'], [padded]).bytes, rows, perRow);
  if (isMx) return restored(format, columns, { codes: Int16Array.from(whole8('F8_E4M3')), scales });
  const bytes = take('weight', ['U8'], [[rows, columns / 2]]).bytes;
  // The even one of two is in the high bits.
  const codes = Int16Array.from({ length: rows * columns }, (_, i) => (bytes[i >> 1]! >> (i % 2 === 0 ? 4 : 0)) & 15);
  return restored(format, columns, { codes, scales, whole: floatsOf(take('weight_scale_2', ['F32'], [[]]))[0]! });
}

/** Adds the numbers that codes and scales stand for, in float32. */
export function restored(format: string, columns: number, made: Made): ComfyLayer {
  const { codes, scales, whole = 1 } = made;
  const perScale = { int8_tensorwise: columns, float8_e4m3fn: codes.length, mxfp8: 32, nvfp4: 16 }[format]!;
  const scaleAt = (i: number) => scales[scales.length === 1 ? 0 : Math.floor(i / perScale)]!;
  const value = {
    int8_tensorwise: (i: number) => f(codes[i]! * scaleAt(i)),
    float8_e4m3fn: (i: number) => f(numberOf(codes[i]!, e4m3) * scaleAt(i)),
    mxfp8: (i: number) => numberOf(codes[i]!, e4m3) * (scaleAt(i) === 0 ? 0 : powerOf(scaleAt(i))),
    nvfp4: (i: number) => f(numberOf(codes[i]!, e2m1) * f(whole * numberOf(scaleAt(i), e4m3))),
  }[format]!;
  return { format, ...made, values: Float32Array.from(codes, (_, i) => value(i)) };
}

/** Codes and scales by the rules of comfy-kitchen. */
export type Made = Pick<ComfyLayer, 'codes' | 'scales' | 'whole'>;

const largestOf = (values: Float32Array) => Math.max(...values.map(Math.abs));

/** A scale for the tensor, of weights in float32. */
export function fp8Rule(values: Float32Array): Made {
  const scale = f(largestOf(values) / 448);
  const inverse = f(1 / scale);
  const codes = Int16Array.from(values, (v) => codeOf(f(v * inverse), e4m3));
  return { codes, scales: [scale] };
}

/** A scale for each row, in float32. */
export function int8Rule(values: Float32Array, columns: number): Made {
  const scales = new Float32Array(values.length / columns);
  const codes = new Int16Array(values.length);
  for (const row of scales.keys()) {
    const own = values.subarray(row * columns, (row + 1) * columns);
    const scale = Math.max(f(largestOf(own) / 127), f(1e-30));
    scales[row] = scale;
    codes.set(
      own.map((v) => Math.min(127, Math.max(-128, evenRound(f(v / scale))))),
      row * columns,
    );
  }
  return { codes, scales };
}

/** A power of two for each 32, rounded up by a logarithm in float32. */
export function mxfp8Rule(values: Float32Array): Made {
  const codes = new Int16Array(values.length);
  const scales = new Uint8Array(values.length / 32);
  for (const g of scales.keys()) {
    const own = values.subarray(g * 32, (g + 1) * 32);
    const most = largestOf(own);
    if (most === 0) continue;
    const exponent = Math.ceil(f(Math.log2(Math.max(f(most / 448), 2 ** -127)))) + 127;
    scales[g] = Math.min(254, Math.max(0, exponent));
    codes.set(
      own.map((v) => codeOf(f(v / powerOf(scales[g]!)), e4m3)),
      g * 32,
    );
  }
  return { codes, scales };
}

/** A float8 for each 16 and a float32 for the tensor, of weights in float32. */
export function nvfp4Rule(values: Float32Array): Made {
  const whole = f(largestOf(values) / 2688);
  const codes = new Int16Array(values.length);
  const scales = new Uint8Array(values.length / 16);
  for (const g of scales.keys()) {
    const own = values.subarray(g * 16, (g + 1) * 16);
    scales[g] = codeOf(Math.min(448, f(f(largestOf(own) / 6) / whole)), e4m3);
    const scale = f(whole * numberOf(scales[g]!, e4m3));
    codes.set(
      own.map((v) => (scale === 0 ? 0 : codeOf(f(v / scale), e2m1))),
      g * 16,
    );
  }
  return { codes, scales, whole };
}
