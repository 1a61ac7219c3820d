// Floats to the bits of narrower floats, and back.

import { checkBoolean } from '../core/check.js';
import { type CoreModule, MinifloatId, OverflowId, type StatusId } from '../core/door.js';
import { type Core, checkStatus, forEachTile } from '../core/memory.js';
import type { WasmArray } from '../core/wasm-array.js';
import { checkOptionsOf } from './calls.js';
import { checkApart, Sink } from './sink.js';
import { CodeSource, type FloatInput, type HalfFormat, sourceOf } from './source.js';
import { floatNames, typeNameError } from './type-names.js';

/** The float formats of at most 8 bits, one element per byte. */
export type Minifloat = 'float8e4m3fn' | 'float8e5m2' | 'float4e2m1';
/** The float formats that `castFloat` makes, as ONNX defines them. */
export type FloatFormat = HalfFormat | Minifloat;

/** Options of `castFloat`. */
export interface CastOptions<Data extends Uint8Array | Uint16Array | WasmArray = Uint8Array | Uint16Array | WasmArray> {
  /**
   * The result for magnitudes above the largest value of a float8, infinity included. true: the largest value. false: infinity, or NaN in
   * float8e4m3fn. Other formats ignore the option: the result is infinity for float16 and bfloat16, 6 for float4e2m1.
   * @defaultValue true
   */
  saturate?: boolean | undefined;
  /** The input is a Uint16Array of the bits of such floats. */
  from?: HalfFormat | undefined;
  /** A Uint16Array (float16, bfloat16) or a Uint8Array, or a WasmArray of such, to fill instead of a fresh one. */
  out?: Data | undefined;
}

/** Options of `castToFloat32`. */
export interface WidenOptions<Data extends Float32Array | WasmArray = Float32Array | WasmArray> {
  /** A Float32Array, or a WasmArray of float32, to fill instead of a fresh one. */
  out?: Data | undefined;
}

interface FloatFormatInfo {
  readonly storage: 'uint8' | 'uint16';
  narrow(module: CoreModule, x: number, n: number, overflow: OverflowId, bits: number): StatusId;
  widen(module: CoreModule, bits: number, n: number, x: number): StatusId;
}

function minifloat(id: MinifloatId): FloatFormatInfo {
  return {
    storage: 'uint8',
    narrow: (module, x, n, overflow, bits) => module._narrowMinifloat(x, n, id, overflow, bits),
    widen: (module, bits, n, x) => module._widenMinifloat(bits, n, id, x),
  };
}

const formats = new Map<unknown, FloatFormatInfo>([
  [
    'float16',
    {
      storage: 'uint16',
      narrow: (module, x, n, _, bits) => module._narrowFloat16(x, n, bits),
      widen: (module, bits, n, x) => module._widenFloat16(bits, n, x),
    },
  ],
  [
    'bfloat16',
    {
      storage: 'uint16',
      narrow: (module, x, n, _, bits) => module._narrowBfloat16(x, n, bits),
      widen: (module, bits, n, x) => module._widenBfloat16(bits, n, x),
    },
  ],
  ['float8e4m3fn', minifloat(MinifloatId.float8E4M3FN)],
  ['float8e5m2', minifloat(MinifloatId.float8E5M2)],
  ['float4e2m1', minifloat(MinifloatId.float4E2M1)],
]);

function formatOf(format: unknown, what: string): FloatFormatInfo {
  const info = formats.get(format);
  if (info === undefined) {
    throw typeNameError(what, floatNames, format);
  }
  return info;
}

/** See Scalepoint.castFloat. */
export function castFloat(
  core: Core,
  x: FloatInput,
  to: FloatFormat,
  options: CastOptions,
): Uint8Array | Uint16Array | WasmArray {
  const format = formatOf(to, 'to');
  checkOptionsOf('castFloat', options);
  const { from, out } = options;
  const saturate = options.saturate === undefined || checkBoolean(options.saturate, 'saturate');
  const source = sourceOf(core, x, from, 'x');
  const overflow = saturate ? OverflowId.saturate : OverflowId.escape;
  const bits = new Sink(core, format.storage, source.length, out, 'out');
  checkApart(x, out, 'out');
  const { module } = core;
  const tile = core.scratch.y;
  forEachTile(source.length, source.inPlace && bits.address !== undefined, (start, count) => {
    checkStatus(format.narrow(module, source.at(start, count), count, overflow, bits.at(start, tile)));
    bits.put(start, count, tile);
  });
  return bits.result as Uint8Array | Uint16Array | WasmArray;
}

/** See Scalepoint.castToFloat32. */
export function castToFloat32(
  core: Core,
  bits: Uint8Array | Uint16Array | WasmArray,
  from: FloatFormat,
  options: WidenOptions,
): Float32Array | WasmArray {
  const format = formatOf(from, 'from');
  checkOptionsOf('castToFloat32', options);
  const { out } = options;
  const codes = new CodeSource(core, bits, format.storage, 'bits');
  const x = new Sink(core, 'float32', codes.length, out, 'out');
  checkApart(bits, out, 'out', 'bits');
  const { module } = core;
  const tile = core.scratch.x;
  forEachTile(codes.length, codes.inPlace && x.address !== undefined, (start, count) => {
    checkStatus(format.widen(module, codes.at(start, count), count, x.at(start, tile)));
    x.put(start, count, tile);
  });
  return x.result as Float32Array | WasmArray;
}
