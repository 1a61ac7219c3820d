/** Unpacks the codes of a stored tensor: one for each element, with scales and zero points as numbers. */
import type { CastType } from './cast.js';
import type { Codes, Role } from './codec.js';
import { elementsOf } from './elements.js';

/** Bits of the codes of compressed-tensors, and how many codes an int32 word holds. */
const wordCodes = { 4: 8, 8: 4 } as const;
export type CodeWidth = keyof typeof wordCodes;
export const codeWidths: readonly CodeWidth[] = Object.keys(wordCodes).map(Number) as CodeWidth[];

/** Most codes of a word. */
export const mostCodesPerWord = Math.max(...Object.values(wordCodes));

/** Codes that an int32 word holds. */
export function codesPerWord(bits: CodeWidth): number {
  return wordCodes[bits];
}

/** Int32 words that hold n codes. */
export function wordsOf(n: number, bits: CodeWidth): number {
  return Math.ceil(n / wordCodes[bits]);
}

/** The members of a form that decide about its layout. */
interface CodeLayout {
  readonly bits: CodeWidth;
  readonly symmetric: boolean;
  readonly groupSize: number | undefined;
  readonly packed: boolean;
  readonly scale: CastType;
}

function halfAsFloat(bits: number): number {
  const [sign, exponent, fraction] = [bits >> 15 ? -1 : 1, (bits >> 10) & 31, bits & 1023];
  if (exponent === 31) return fraction === 0 ? sign * Infinity : Number.NaN;
  return exponent === 0 ? sign * fraction * 2 ** -24 : sign * (1024 + fraction) * 2 ** (exponent - 25);
}

/** Floats of 16 bits or of 32, exactly. */
function floatsIn(bytes: Uint8Array, type: CastType): Float32Array<ArrayBuffer> {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  if (type === 'F32') return Float32Array.from({ length: bytes.length / 4 }, (_, i) => view.getFloat32(4 * i, true));
  const at = (i: number) => view.getUint16(2 * i, true);
  if (type === 'F16') return Float32Array.from({ length: bytes.length / 2 }, (_, i) => halfAsFloat(at(i)));
  return new Float32Array(Uint32Array.from({ length: bytes.length / 2 }, (_, i) => at(i) * 2 ** 16).buffer);
}

/** Unpacks rows of `columns` codes. Each row begins with a new word. */
function unpack(bytes: Uint8Array, rows: number, columns: number, bits: CodeWidth): Int8Array<ArrayBuffer> {
  const codes = new Int8Array(rows * columns);
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const perWord = codesPerWord(bits);
  const rowBytes = 4 * wordsOf(columns, bits);
  const middle = 1 << (bits - 1);
  for (let row = 0, i = 0; row < rows; row++) {
    for (let column = 0; column < columns; column++, i++) {
      const word = view.getUint32(row * rowBytes + 4 * Math.floor(column / perWord), true);
      codes[i] = ((word >>> ((column % perWord) * bits)) & (2 * middle - 1)) - middle;
    }
  }
  return codes;
}

/** Unpacks zero points that are packed down the rows: a word holds those of neighboring rows. */
function unpackDown(bytes: Uint8Array, rows: number, groups: number, bits: CodeWidth): Int32Array<ArrayBuffer> {
  const zeroPoint = new Int32Array(rows * groups);
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const perWord = codesPerWord(bits);
  const middle = 1 << (bits - 1);
  for (let row = 0; row < rows; row++) {
    for (let group = 0; group < groups; group++) {
      const word = view.getUint32(4 * (Math.floor(row / perWord) * groups + group), true);
      zeroPoint[row * groups + group] = ((word >>> ((row % perWord) * bits)) & (2 * middle - 1)) - middle;
    }
  }
  return zeroPoint;
}

/** Codes in compressed-tensors' layout. @param parts their bytes, by role */
export function compressedCodes(
  shape: readonly number[],
  { bits, symmetric, groupSize, packed, scale: scaleType }: CodeLayout,
  parts: Readonly<Record<Role, Uint8Array>>,
): Codes {
  const rows = shape[0] as number;
  const columns = elementsOf(shape.slice(1));
  const [data, scales, zeroPoints] = [parts.data, parts.scale, parts.zeroPoint] as [Uint8Array, Uint8Array, Uint8Array];
  const scale = floatsIn(scales, scaleType);
  const groups = scale.length / Math.max(1, rows);
  return {
    kind: 'linear',
    dtype: bits === 4 ? 'int4' : 'int8',
    shape,
    granularity: groupSize === undefined ? { kind: 'per-channel', axis: 0 } : { kind: 'per-group', groupSize, axis: 1 },
    data: packed ? unpack(data, rows, columns, bits) : Int8Array.from(data, (byte) => (byte << 24) >> 24),
    scale,
    zeroPoint: symmetric
      ? new Int32Array(scale.length)
      : packed
        ? unpackDown(zeroPoints, rows, groups, bits)
        : Int32Array.from(zeroPoints, (byte) => (byte << 24) >> 24),
  };
}
