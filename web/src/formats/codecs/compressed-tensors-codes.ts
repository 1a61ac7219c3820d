/** Unpacks the codes of a stored tensor: one for each element, with scales and zero points as numbers. */
import type { CastType } from './cast.js';
import type { Codes, Role } from './codec.js';
import { elementsOf, multipleOf } from './elements.js';
import { floatsIn } from './floats-in.js';

/** Bits of the codes of compressed-tensors. Those of 4 and 8 bits are written, too. */
export type CodeWidth = 2 | 3 | 4 | 5 | 6 | 7 | 8;

/** The packing of codes into int32 words. */
export interface Packing {
  readonly bits: CodeWidth;
  /**
   * True if a word holds whole codes only, and its highest bits are unused; false if codes cross words. Both are the same where bits divide
   * 32.
   */
  readonly wholeWords: boolean;
}

/** Codes after which the next one begins a word. */
export function codesPerUnit({ bits, wholeWords }: Packing): number {
  return wholeWords ? Math.floor(32 / bits) : multipleOf([32, bits]) / bits;
}

/** The bit at which a code of a sequence begins. */
function bitOf(i: number, packing: Packing): number {
  if (!packing.wholeWords) return i * packing.bits;
  const perWord = codesPerUnit(packing);
  return Math.floor(i / perWord) * 32 + (i % perWord) * packing.bits;
}

/** Int32 words that hold n codes. */
export function wordsOf(n: number, packing: Packing): number {
  return n === 0 ? 0 : Math.ceil((bitOf(n - 1, packing) + packing.bits) / 32);
}

/** Unused bits of the last word of n codes. */
export function spareBits(n: number, packing: Packing): number {
  const used = (bitOf(n - 1, packing) + packing.bits) % 32;
  return used === 0 ? 0 : (~0 << used) >>> 0;
}

/** The members of a form that decide about its layout. */
interface CodeLayout extends Packing {
  readonly symmetric: boolean;
  readonly groupSize: number | undefined;
  readonly packed: boolean;
  readonly scale: CastType;
}

/** Reads the signed code i of a sequence. @param wordAt gives its words */
function codeAt(i: number, packing: Packing, wordAt: (word: number) => number): number {
  const { bits } = packing;
  const at = bitOf(i, packing);
  const [word, bit] = [Math.floor(at / 32), at % 32];
  const low = wordAt(word) >>> bit;
  const code = bit + bits > 32 ? low | (wordAt(word + 1) << (32 - bit)) : low;
  return (code & (2 ** bits - 1)) - 2 ** (bits - 1);
}

/** Unpacks rows of `columns` codes. Each row begins with a new word. */
function unpack(bytes: Uint8Array, rows: number, columns: number, packing: Packing): Int8Array<ArrayBuffer> {
  const codes = new Int8Array(rows * columns);
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const words = wordsOf(columns, packing);
  for (let row = 0, i = 0; row < rows; row++) {
    const wordAt = (word: number) => view.getUint32(4 * (row * words + word), true);
    for (let column = 0; column < columns; column++, i++) codes[i] = codeAt(column, packing, wordAt);
  }
  return codes;
}

/** Unpacks zero points that are packed down the rows: a word holds those of neighboring rows. */
function unpackDown(bytes: Uint8Array, rows: number, groups: number, packing: Packing): Int32Array<ArrayBuffer> {
  const zeroPoint = new Int32Array(rows * groups);
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  for (let group = 0; group < groups; group++) {
    const wordAt = (word: number) => view.getUint32(4 * (word * groups + group), true);
    for (let row = 0; row < rows; row++) zeroPoint[row * groups + group] = codeAt(row, packing, wordAt);
  }
  return zeroPoint;
}

/** Codes in compressed-tensors' layout. @param parts their bytes, by role */
export function compressedCodes(
  shape: readonly number[],
  { bits, wholeWords, symmetric, groupSize, packed, scale: scaleType }: CodeLayout,
  parts: Readonly<Record<Role, Uint8Array>>,
): Codes {
  const rows = shape[0] as number;
  const columns = elementsOf(shape.slice(1));
  const [data, scales, zeroPoints] = [parts.data, parts.scale, parts.zeroPoint] as [Uint8Array, Uint8Array, Uint8Array];
  const scale = floatsIn(scales, scaleType);
  const groups = scale.length / Math.max(1, rows);
  const packing = { bits, wholeWords };
  return {
    kind: 'linear',
    dtype: `int${bits}`,
    shape,
    granularity: groupSize === undefined ? { kind: 'per-channel', axis: 0 } : { kind: 'per-group', groupSize, axis: 1 },
    data: packed ? unpack(data, rows, columns, packing) : Int8Array.from(data, (byte) => (byte << 24) >> 24),
    scale,
    zeroPoint: symmetric
      ? new Int32Array(scale.length)
      : packed
        ? unpackDown(zeroPoints, rows, groups, packing)
        : Int32Array.from(zeroPoints, (byte) => (byte << 24) >> 24),
  };
}
