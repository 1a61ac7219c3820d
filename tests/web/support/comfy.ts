// A reader of ComfyUI's quantized safetensors for the tests: it finds the marker of a layer, takes its parts and multiplies, one number at a
// time in float32, as comfy-kitchen's eager backend does. Written from the description of the layout; it shares no code with web/src.
import type { StoredTensor } from './compressed.js';

function float8Value(code: number): number {
  const [exponent, fraction] = [(code >> 3) & 15, code & 7];
  const magnitude = exponent === 0 ? fraction * 2 ** -9 : (1 + fraction / 8) * 2 ** (exponent - 7);
  return (exponent === 15 && fraction === 7 ? Number.NaN : magnitude) * (code & 128 ? -1 : 1);
}

const float8Values = Float64Array.from({ length: 256 }, (_, code) => float8Value(code));
const float8 = (code: number) => float8Values[code] as number;

const float4 = [0, 0.5, 1, 1.5, 2, 3, 4, 6];

/** The byte of a group's scale: cuBLAS tiles of 128 rows by 4 groups, in rows of tiles. */
function scaleAt(scale: StoredTensor, row: number, group: number): number {
  const across = (scale.shape[1] as number) / 4;
  const tile = Math.floor(row / 128) * across + Math.floor(group / 4);
  const inside = row % 128;
  return scale.bytes[tile * 512 + (inside % 32) * 16 + Math.floor(inside / 32) * 4 + (group % 4)] as number;
}

const floats = new WeakMap<StoredTensor, Float32Array>();
function floatsOf(tensor: StoredTensor): Float32Array {
  const made = floats.get(tensor) ?? new Float32Array(tensor.bytes.slice().buffer);
  floats.set(tensor, made);
  return made;
}

/** A layer's settings, by its marker; undefined without one. */
export function markerOf(tensors: ReadonlyMap<string, StoredTensor>, layer: string): { format: string } | undefined {
  const marker = tensors.get(`${layer}.comfy_quant`);
  return marker && JSON.parse(new TextDecoder().decode(marker.bytes));
}

/** The floats of a layer's weight. */
export function restoredWeight(tensors: ReadonlyMap<string, StoredTensor>, layer: string): Float32Array {
  const { format } = markerOf(tensors, layer) as { format: string };
  const data = tensors.get(`${layer}.weight`) as StoredTensor;
  const scale = tensors.get(`${layer}.weight_scale`) as StoredTensor;
  const [rows = 0, stored = 0] = data.shape;
  const columns = format === 'nvfp4' ? 2 * stored : stored;
  const restored = new Float32Array(rows * columns);
  const whole =
    format === 'nvfp4' ? (floatsOf(tensors.get(`${layer}.weight_scale_2`) as StoredTensor)[0] as number) : 0;
  for (let row = 0; row < rows; row++) {
    for (let column = 0; column < columns; column++) {
      const i = row * columns + column;
      const code = data.bytes[format === 'nvfp4' ? i >> 1 : i] as number;
      if (format === 'float8_e4m3fn') restored[i] = float8(code) * (floatsOf(scale)[0] as number);
      if (format === 'int8_tensorwise') restored[i] = ((code << 24) >> 24) * (floatsOf(scale)[row] as number);
      if (format === 'mxfp8') {
        const power = scaleAt(scale, row, Math.floor(column / 32));
        restored[i] = power === 0 ? 0 : float8(code) * 2 ** (power - 127);
      }
      if (format === 'nvfp4') {
        const nibble = column % 2 === 0 ? code >> 4 : code & 15;
        const factor = Math.fround(float8(scaleAt(scale, row, Math.floor(column / 16))) * whole);
        restored[i] = (float4[nibble & 7] as number) * (nibble & 8 ? -1 : 1) * factor;
      }
    }
  }
  return restored;
}
