/** Floats of 16 bits or of 32 as numbers, without the core. */
import type { CastType } from './cast.js';

/** A float16 as a number. */
export function fromHalf(word: number): number {
  const [exponent, fraction] = [(word >>> 10) & 31, word & 1023];
  const sign = word & 0x8000 ? -1 : 1;
  if (exponent === 31) return fraction === 0 ? sign * Infinity : Number.NaN;
  return sign * (exponent === 0 ? fraction * 2 ** -24 : (1024 + fraction) * 2 ** (exponent - 25));
}

/** The floats in little-endian bytes, exactly. */
export function floatsIn(bytes: Uint8Array, type: CastType): Float32Array<ArrayBuffer> {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  if (type === 'F32') return Float32Array.from({ length: bytes.length / 4 }, (_, i) => view.getFloat32(4 * i, true));
  const at = (i: number) => view.getUint16(2 * i, true);
  if (type === 'F16') return Float32Array.from({ length: bytes.length / 2 }, (_, i) => fromHalf(at(i)));
  return new Float32Array(Uint32Array.from({ length: bytes.length / 2 }, (_, i) => at(i) * 2 ** 16).buffer);
}
