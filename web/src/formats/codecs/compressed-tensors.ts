/**
 * Codes with scales, as compressed-tensors stores them: integers of 4 or 8 bits, or float8e4m3fn. Packed integers of 2 to 8 bits are read.
 *
 * A tensor is a matrix: its rows are the indices of axis 0. `X` is stored as
 *   X, or X_packed     the codes, or int32 words of codes whose rows are padded to whole words
 *   X_scale            one scale for each row, or for each group of neighbors in a row
 *   X_zero_point       likewise, if not symmetric. Packed down the columns if the codes are packed
 *   X_g_idx            of packed codes that are read: the group of each column, if groups do not hold neighbors
 *   X_shape            of packed codes: the shape, as int64
 * Other programs read packed codes of two dimensions only. Tensors of more dimensions are packed as the matrix.
 * Reference: github.com/vllm-project/compressed-tensors, src/compressed_tensors/compressors at ac8e2ba8.
 */
import { CompressedTensorsRecord, ElementTypeId } from '../../core/door.js';
import { noteOf } from '../../core/note.js';
import { mention } from '../../core/option-problem.js';
import { mseSearch, type SearchedRange, searchedMembers, searchOf } from '../../core/range.js';
import { codecInCore, readsElements } from './calls.js';
import type { CastType } from './cast.js';
import { floatsFinite } from './checks.js';
import { type Codec, type Form, type Grid, type Rectangle, type Role, tileElements, type ValueRange } from './codec.js';
import { byteRuns, bytesOfElements, elementPart, elementsOf, errorBlock, multipleOf } from './elements.js';
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
  readonly wholeWords?: boolean | undefined;
}

export interface CompressedForm extends Form, Packing {
  readonly codec: 'compressed-tensors';
  /** Integers, or float8e4m3fn: 8 bits, symmetric, one scale for each row, not packed. */
  readonly type: 'int' | 'float';
  readonly symmetric: boolean;
  /** Elements of a row that share a scale, a divisor of its length. Undefined: the whole row shares one. */
  readonly groupSize: number | undefined;
  /** True for codes in words. Those that do not cross words are only read. */
  readonly packed: boolean;
  /** True if a part has the group of each column. Such codes are only read. @defaultValue false */
  readonly grouped?: boolean | undefined;
  /** Type of the scales. */
  readonly scale: CastType;
  /** For integers: the search for the ranges of rows that fit into a tile. Undefined: from the smallest to the largest value. */
  readonly range?: SearchedRange | undefined;
}

// ----------------------------------------------------------------------------------------------------------------------- packing

/** Codes after which the next one begins a word. */
export function codesPerUnit({ bits, wholeWords }: Packing): number {
  return wholeWords ? Math.floor(32 / bits) : multipleOf([32, bits]) / bits;
}

/** The bit at which a code of a sequence begins. */
function firstBit(i: number, packing: Packing): number {
  if (!packing.wholeWords) return i * packing.bits;
  const perWord = codesPerUnit(packing);
  return Math.floor(i / perWord) * 32 + (i % perWord) * packing.bits;
}

/** Int32 words that hold n codes. */
export function wordsOf(n: number, packing: Packing): number {
  return Math.ceil(packing.wholeWords ? n / codesPerUnit(packing) : (n * packing.bits) / 32);
}

/** Unused bits of the last word of n codes. */
export function spareBits(n: number, packing: Packing): number {
  const used = (firstBit(n - 1, packing) + packing.bits) % 32;
  return used === 0 ? 0 : (~0 << used) >>> 0;
}

/** Sequences of codes in words. */
interface PackedLines {
  readonly lines: number;
  /** Codes of each. */
  readonly length: number;
  /** Words from one of a sequence to the next, and from one sequence to the next. */
  readonly step: number;
  readonly stride: number;
}

/** Unpacks signed codes, one sequence after the other. */
function unpacked(bytes: Uint8Array, packing: Packing, { lines, length, step, stride }: PackedLines) {
  const { bits } = packing;
  const codes = new Int8Array(lines * length);
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  for (let line = 0, at = 0; line < lines; line++) {
    const wordAt = (word: number) => view.getUint32(4 * (line * stride + word * step), true);
    for (let i = 0; i < length; i++, at++) {
      const begin = firstBit(i, packing);
      const [word, bit] = [Math.floor(begin / 32), begin % 32];
      const low = wordAt(word) >>> bit;
      const code = bit + bits > 32 ? low | (wordAt(word + 1) << (32 - bit)) : low;
      codes[at] = (code & (2 ** bits - 1)) - 2 ** (bits - 1);
    }
  }
  return codes;
}

/** Number of rows that share a word of zero points. */
export function rowsPerWord(form: CompressedForm): number {
  return form.packed && !form.symmetric ? codesPerUnit(form) : 1;
}

// ------------------------------------------------------------------------------------------------------------------------ cutting

/** A tensor as a matrix, and the sizes of its tiles. */
function tileSizes(shape: readonly number[], form: CompressedForm, source?: Grid) {
  const [rows = 0] = shape;
  const width = elementsOf(shape.slice(1));
  const perWord = multipleOf([rowsPerWord(form), source?.rowUnit ?? 1]);
  // Blocks of elements in no particular rows are cut like floats, because they are decoded first.
  const unit = multipleOf([form.groupSize ?? errorBlock, source?.rows === undefined ? 1 : source.columnUnit]);
  return {
    rows,
    width,
    /** Whole rows of a tile; 0 if the rows of a word exceed a tile. */
    rowsPerTile: Math.floor(tileElements / width / perWord) * perWord,
    /** Columns of a tile in that case. A single group may be larger than a tile. */
    segment: Math.max(1, Math.floor(tileElements / perWord / unit)) * unit,
  };
}

/** True if a form can take the importance of columns: tiles hold whole rows of a matrix. */
export function canWeighCompressedTensors(shape: readonly number[], form: CompressedForm): boolean {
  return form.type === 'int' && shape.length === 2 && elementsOf(shape) > 0 && tileSizes(shape, form).rowsPerTile > 0;
}

export const compressedTensors: Codec<CompressedForm> = codecInCore(CompressedTensorsRecord, {
  id: 'compressed-tensors',
  label: ({ type, bits }) => (type === 'float' ? 'F8_E4M3' : `I${bits}`),

  parts(shape, form) {
    const { type, symmetric, groupSize, packed, grouped = false, scale } = form;
    const [rows = 0, ...inner] = shape;
    const columns = elementsOf(inner);
    const scales = [rows, ...(groupSize === undefined ? inner.map(() => 1) : [columns / groupSize])];
    const parts = [
      packed
        ? elementPart('data', '_packed', 'I32', [rows, wordsOf(columns, form)])
        : elementPart('data', '', type === 'float' ? 'F8_E4M3' : 'I8', shape),
      elementPart('scale', '_scale', scale, scales),
    ];
    if (!symmetric) {
      const [dtype, lines] = packed ? ['I32', wordsOf(rows, form)] : ['I8', rows];
      parts.push(elementPart('zeroPoint', '_zero_point', dtype, [lines, ...scales.slice(1)]));
    }
    if (grouped) parts.push(elementPart('group', '_g_idx', 'I32', [columns]));
    if (packed) {
      const constant = new Uint8Array(BigInt64Array.from(shape, BigInt).buffer);
      parts.push({ ...elementPart('shape', '_shape', 'I64', [shape.length]), constant });
    }
    return parts;
  },

  grid(shape, form) {
    const width = elementsOf(shape.slice(1));
    const codes = form.packed ? codesPerUnit(form) : 1;
    // Groups may hold columns in any order.
    const columnUnit = form.grouped ? width : multipleOf([form.groupSize ?? 1, codes]);
    return { rows: shape[0], rowUnit: rowsPerWord(form), columnUnit };
  },

  runs(_shape, form, role, { row, rows, column, columns, width }) {
    const { groupSize, packed, scale } = form;
    if (role === 'group') return byteRuns(0, 4 * width);
    if (role === 'data') {
      const [whole, before, some] = packed
        ? [4 * wordsOf(width, form), 4 * wordsOf(column, form), 4 * wordsOf(columns, form)]
        : [width, column, columns];
      return byteRuns(row * whole + before, some, rows, whole);
    }
    const [perRow, groups, group] =
      groupSize === undefined ? [1, 1, 0] : [width / groupSize, columns / groupSize, column / groupSize];
    // Zero points are packed down the rows.
    const isPacked = packed && role === 'zeroPoint';
    const [first, count] = isPacked ? [wordsOf(row, form), wordsOf(rows, form)] : [row, rows];
    const size = role === 'scale' ? bytesOfElements(scale, 1) : isPacked ? 4 : 1;
    return byteRuns((first * perRow + group) * size, groups * size, count, perRow * size);
  },

  feedbackGroups: (_core, { groupSize = 0 }) => ({ group: groupSize, outer: 0 }),

  *cuts(shape, form, roles, source) {
    const { rows, width, rowsPerTile, segment } = tileSizes(shape, form, source);
    if (rows * width === 0) return;
    for (let row = 0; rowsPerTile > 0 && row < rows; row += rowsPerTile) {
      const rectangle = { row, rows: Math.min(rowsPerTile, rows - row), column: 0, columns: width, width };
      yield { kind: 'tile', rectangle, roles };
    }
    if (rowsPerTile > 0) return;

    // Cut long rows: those of one word together, and their codes into segments of single rows.
    const perWord = rowsPerWord(form);
    const segments = (row: number, rows: number): Rectangle[] =>
      Array.from({ length: Math.ceil(width / segment) }, (_, i) => {
        const column = i * segment;
        return { row, rows, column, columns: Math.min(segment, width - column), width };
      });
    for (let first = 0; first < rows; first += perWord) {
      const count = Math.min(perWord, rows - first);
      const ranges: ValueRange[] = [];
      let others = roles;
      if (form.groupSize === undefined) {
        // Ask for the range of each row, which is longer than a tile and has one scale.
        for (let r = 0; r < count; r++) {
          ranges.push((yield { kind: 'range', rectangles: segments(first + r, 1) }) as ValueRange);
        }
        const parameters = roles.filter((role) => role !== 'data');
        others = roles.filter((role) => role === 'data');
        if (parameters.length > 0) {
          const rectangle = { row: first, rows: count, column: 0, columns: width, width };
          yield { kind: 'tile', rectangle, roles: parameters, ranges: Float32Array.from(ranges.flat()), reads: false };
        }
      } else if (perWord > 1 && roles.includes('zeroPoint')) {
        // Make the zero points first, because those of these rows share words.
        others = roles.filter((role) => role !== 'zeroPoint');
        for (const rectangle of segments(first, count)) yield { kind: 'tile', rectangle, roles: ['zeroPoint'] };
      }
      // Make the codes, segment by segment.
      for (let r = 0; others.length > 0 && r < count; r++) {
        const range = ranges[r];
        for (const rectangle of segments(first + r, 1)) {
          const tile = { kind: 'tile', rectangle, roles: others } as const;
          yield range === undefined ? tile : { ...tile, ranges: Float32Array.from(range) };
        }
      }
    }
  },

  checks(shape, form, role) {
    const { type, packed, scale, groupSize } = form;
    const [rows = 0, ...inner] = shape;
    const columns = elementsOf(inner);
    if (role === 'scale') return floatsFinite(scale, 'scale');
    if (role === 'group') return [];
    if (type === 'float') return floatsFinite('F8_E4M3', 'element', true);
    if (!packed || rows * columns === 0) return [];
    const texts = { one: 'word has bits behind its last code', many: 'words have bits behind their last code' };
    const words = { kind: 'spareBits', unit: 4, wrong: 'any', isProblem: true, ...texts } as const;
    if (role === 'data') {
      const stride = wordsOf(columns, form) * 4;
      return [{ ...words, at: stride - 4, stride, mask: spareBits(columns, form), container: 'row' }];
    }
    const perRow = groupSize === undefined ? 1 : columns / groupSize;
    const at = (wordsOf(rows, form) - 1) * perRow * 4;
    return [{ ...words, at, stride: 4, mask: spareBits(rows, form), container: 'group' }];
  },

  // Without elements, a tile needs no memory for its columns.
  tileIn: (tile) => (readsElements(tile) ? tile : { ...tile, columns: 1 }),
  record: ({ type, bits, symmetric, groupSize = 0, packed, wholeWords = false, grouped = false, scale, range }) => ({
    float8: type === 'float',
    bits,
    symmetric,
    groupSize,
    packed,
    wholeWords,
    grouped,
    scale: ElementTypeId[scale],
    search: range !== undefined,
    ...((range && searchOf(range, [searchedMembers])) ?? mseSearch),
  }),
  calls: {
    encode: 'encodeCompressedTensors',
    feedback: 'encodeCompressedTensorsWithFeedback',
    decode: 'decodeCompressedTensors',
  },

  codes(shape, form, parts) {
    const { type, bits, symmetric, groupSize, packed, grouped, scale: scaleType } = form;
    if (type === 'float' || grouped) return undefined;
    const [rows = 0] = shape;
    const columns = elementsOf(shape.slice(1));
    const {
      data,
      scale: scales,
      zeroPoint,
    } = parts as Readonly<Record<Role, Uint8Array>> & Record<'data' | 'scale' | 'zeroPoint', Uint8Array>;
    const scale = floatsIn(scales, scaleType);
    const groups = scale.length / Math.max(1, rows);
    const zeroPoints = new Int32Array(scale.length);
    if (!symmetric && packed) {
      // A word holds those of neighboring rows.
      const codes = unpacked(zeroPoint, form, { lines: groups, length: rows, step: groups, stride: 1 });
      for (const [i, code] of codes.entries()) zeroPoints[(i % rows) * groups + Math.floor(i / rows)] = code;
    } else if (!symmetric) zeroPoints.set(new Int8Array(zeroPoint.slice().buffer));
    return {
      kind: 'linear',
      dtype: `int${bits}`,
      shape,
      granularity:
        groupSize === undefined ? { kind: 'per-channel', axis: 0 } : { kind: 'per-group', groupSize, axis: 1 },
      data: packed
        ? unpacked(data, form, { lines: rows, length: columns, step: 1, stride: wordsOf(columns, form) })
        : new Int8Array(data.slice().buffer),
      scale,
      zeroPoint: zeroPoints,
    };
  },

  overflow: () => ', too large for the scale',

  notes(tensors) {
    const long = tensors.filter(
      ({ shape, form }) =>
        form.range !== undefined && form.groupSize === undefined && tileSizes(shape, form).rowsPerTile === 0,
    );
    if (long.length === 0) return [];
    const which = long.length === 1 ? 'a tensor' : `${long.length} tensors`;
    return [
      noteOf(
        'rangeNotSearched',
        { tensors: long.map(({ name }) => name) },
        mention('range'),
        `: the channels of ${which} are too long to search; their range is min-max`,
      ),
    ];
  },
});
