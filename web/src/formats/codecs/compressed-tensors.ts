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
import { CompressedTensorsRecord, ElementTypeId, StoredRecord } from '../../core/door.js';
import { noteOf } from '../../core/note.js';
import { mention } from '../../core/option-problem.js';
import { mseSearch, type SearchedRange, searchedMembers, searchOf } from '../../core/range.js';
import { decodeTile, encodeTileByInputs, readsElements, storedRecord } from './calls.js';
import type { CastType } from './cast.js';
import { type BitCheck, floatsFinite } from './checks.js';
import {
  type Codec,
  type Cuts,
  type Form,
  type Grid,
  type Part,
  type Rectangle,
  type Role,
  tileElements,
  type ValueRange,
} from './codec.js';
import {
  type CodeWidth,
  codesPerUnit,
  compressedCodes,
  type Packing,
  spareBits,
  wordsOf,
} from './compressed-tensors-codes.js';
import { byteRuns, elementsOf, errorBlock, multipleOf } from './elements.js';

export interface CompressedForm extends Form {
  readonly codec: 'compressed-tensors';
  /** Integers, or float8e4m3fn: 8 bits, symmetric, one scale for each row, not packed. */
  readonly type: 'int' | 'float';
  readonly bits: CodeWidth;
  readonly symmetric: boolean;
  /** Elements of a row that share a scale, a divisor of its length. Undefined: the whole row shares one. */
  readonly groupSize: number | undefined;
  readonly packed: boolean;
  /** True for codes that do not cross words, which are only read. See Packing. @defaultValue false */
  readonly wholeWords?: boolean | undefined;
  /** True if a part has the group of each column. Such codes are only read. @defaultValue false */
  readonly grouped?: boolean | undefined;
  /** Type of the scales. */
  readonly scale: CastType;
  /** For integers: the search for the ranges of rows that fit into a tile. Undefined: from the smallest to the largest value. */
  readonly range?: SearchedRange | undefined;
  /** For integers: weights of the squared errors of each column. Scales are then searched for. See canWeighCompressedTensors. */
  readonly importance?: Float32Array<ArrayBuffer> | undefined;
}

const packingOf = ({ bits, wholeWords = false }: CompressedForm): Packing => ({ bits, wholeWords });

/** Bytes of n neighboring codes. */
function codeBytes(n: number, form: CompressedForm): number {
  return form.packed ? wordsOf(n, packingOf(form)) * 4 : n;
}

function scaleBytes({ scale }: CompressedForm): number {
  return scale === 'F32' ? 4 : 2;
}

// -------------------------------------------------------------------------------------------------------------------------- parts

/** Number of rows that share a word of zero points. */
export function rowsPerWord(form: CompressedForm): number {
  return form.packed && !form.symmetric ? codesPerUnit(packingOf(form)) : 1;
}

/** Rows can be cut at multiples of this many columns: all columns if groups hold columns in any order. */
function columnUnitOf(width: number, form: CompressedForm): number {
  if (form.grouped) return width;
  return multipleOf([form.groupSize ?? 1, form.packed ? codesPerUnit(packingOf(form)) : 1]);
}

/** The shape as int64, little-endian. */
function shapeBytes(shape: readonly number[]): Uint8Array<ArrayBuffer> {
  const bytes = new Uint8Array(8 * shape.length);
  const view = new DataView(bytes.buffer);
  shape.forEach((dimension, i) => {
    view.setBigInt64(8 * i, BigInt(dimension), true);
  });
  return bytes;
}

function partsOf(shape: readonly number[], form: CompressedForm): Part[] {
  const { type, symmetric, groupSize, packed, grouped = false, scale } = form;
  const packing = packingOf(form);
  const [rows = 0, ...inner] = shape;
  const columns = elementsOf(inner);
  const scales = [rows, ...(groupSize === undefined ? inner.map(() => 1) : [columns / groupSize])];
  const part = (role: Role, suffix: string, dtype: string, shape: readonly number[], size: number): Part => {
    return { role, suffix, dtype, shape, bytes: elementsOf(shape) * size };
  };
  const parts = [
    packed
      ? part('data', '_packed', 'I32', [rows, wordsOf(columns, packing)], 4)
      : part('data', '', type === 'float' ? 'F8_E4M3' : 'I8', shape, 1),
    part('scale', '_scale', scale, scales, scaleBytes(form)),
  ];
  if (!symmetric) {
    const words = [wordsOf(rows, packing), ...scales.slice(1)];
    parts.push(
      packed ? part('zeroPoint', '_zero_point', 'I32', words, 4) : part('zeroPoint', '_zero_point', 'I8', scales, 1),
    );
  }
  if (grouped) parts.push(part('group', '_g_idx', 'I32', [columns], 4));
  if (packed) parts.push({ ...part('shape', '_shape', 'I64', [shape.length], 8), constant: shapeBytes(shape) });
  return parts;
}

function partRuns(form: CompressedForm, role: Role, { row, rows, column, columns, width }: Rectangle) {
  if (role === 'data') {
    const size = (n: number) => codeBytes(n, form);
    return byteRuns(row * size(width) + size(column), size(columns), rows, size(width));
  }
  if (role === 'group') return byteRuns(0, 4 * width, 1, 4 * width);
  const { groupSize } = form;
  const perRow = groupSize === undefined ? 1 : width / groupSize;
  const groups = groupSize === undefined ? 1 : columns / groupSize;
  const group = groupSize === undefined ? 0 : column / groupSize;
  if (role === 'scale') {
    const size = scaleBytes(form);
    return byteRuns((row * perRow + group) * size, groups * size, rows, perRow * size);
  }
  const lines = (n: number) => (form.packed ? wordsOf(n, packingOf(form)) : n);
  const size = form.packed ? 4 : 1;
  const first = lines(row) * perRow + group;
  return byteRuns(first * size, groups * size, lines(rows), perRow * size);
}

// ------------------------------------------------------------------------------------------------------------------------ cutting

/** A tensor as a matrix, and the sizes of its tiles. */
function matrixOf(shape: readonly number[], form: CompressedForm, source?: Grid) {
  const rows = shape[0] as number;
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
  return form.type === 'int' && shape.length === 2 && elementsOf(shape) > 0 && matrixOf(shape, form).rowsPerTile > 0;
}

/** True if rows that share a scale are longer than a tile. */
function cutsRuns(shape: readonly number[], form: CompressedForm): boolean {
  return form.groupSize === undefined && matrixOf(shape, form).rowsPerTile === 0;
}

function* cutsOf(shape: readonly number[], form: CompressedForm, roles: readonly Role[], source?: Grid): Cuts {
  const { rows, width, rowsPerTile } = matrixOf(shape, form, source);
  if (rows * width === 0) return;
  if (rowsPerTile === 0) {
    const perWord = rowsPerWord(form);
    for (let row = 0; row < rows; row += perWord) {
      yield* cutLongRows(shape, form, roles, row, Math.min(perWord, rows - row), source);
    }
    return;
  }
  for (let row = 0; row < rows; row += rowsPerTile) {
    const rectangle = { row, rows: Math.min(rowsPerTile, rows - row), column: 0, columns: width, width };
    yield { kind: 'tile', rectangle, roles };
  }
}

/** Cuts the rows of one word. Their codes are cut into segments of single rows. */
function* cutLongRows(
  shape: readonly number[],
  form: CompressedForm,
  roles: readonly Role[],
  row: number,
  rows: number,
  source: Grid | undefined,
): Cuts {
  const { width, segment } = matrixOf(shape, form, source);
  const segments = (row: number, rows: number): Rectangle[] =>
    Array.from({ length: Math.ceil(width / segment) }, (_, i) => {
      const column = i * segment;
      return { row, rows, column, columns: Math.min(segment, width - column), width };
    });
  const ranges: ValueRange[] = [];
  let others = roles;
  if (form.groupSize === undefined) {
    // Ask for the range of each row, which is longer than a tile and has one scale.
    for (let r = 0; r < rows; r++) {
      ranges.push((yield { kind: 'range', rectangles: segments(row + r, 1) }) as ValueRange);
    }
    const parameters = roles.filter((role) => role !== 'data');
    others = roles.filter((role) => role === 'data');
    if (parameters.length > 0) {
      const rectangle = { row, rows, column: 0, columns: width, width };
      yield { kind: 'tile', rectangle, roles: parameters, ranges: Float32Array.from(ranges.flat()), reads: false };
    }
  } else if (rowsPerWord(form) > 1 && roles.includes('zeroPoint')) {
    // Make the zero points first, because those of these rows share words.
    others = roles.filter((role) => role !== 'zeroPoint');
    for (const rectangle of segments(row, rows)) yield { kind: 'tile', rectangle, roles: ['zeroPoint'] };
  }
  if (others.length === 0) return;
  // Make the codes, segment by segment.
  for (let r = 0; r < rows; r++) {
    const range = ranges[r];
    for (const rectangle of segments(row + r, 1)) {
      yield {
        kind: 'tile',
        rectangle,
        roles: others,
        ...(range === undefined ? {} : { ranges: Float32Array.from(range) }),
      };
    }
  }
}

// ------------------------------------------------------------------------------------------------------------------------- checks

function checksOf(shape: readonly number[], form: CompressedForm, role: Role): readonly BitCheck[] {
  const { type, packed, scale, groupSize } = form;
  const packing = packingOf(form);
  const [rows = 0, ...inner] = shape;
  const columns = elementsOf(inner);
  if (role === 'scale') return floatsFinite(scale, 'scale');
  if (role === 'group') return [];
  if (type === 'float') {
    // No quantizer writes NaN codes.
    return floatsFinite('F8_E4M3', 'element').map((check) => ({ ...check, isProblem: true }));
  }
  if (!packed || rows * columns === 0) return [];
  const texts = { one: 'word has bits behind its last code', many: 'words have bits behind their last code' };
  const words = { kind: 'spareBits', unit: 4, wrong: 'any', isProblem: true, ...texts } as const;
  if (role === 'data') {
    const stride = wordsOf(columns, packing) * 4;
    return [{ ...words, at: stride - 4, stride, mask: spareBits(columns, packing), container: 'row' }];
  }
  const perRow = groupSize === undefined ? 1 : columns / groupSize;
  return [
    {
      ...words,
      at: (wordsOf(rows, packing) - 1) * perRow * 4,
      stride: 4,
      mask: spareBits(rows, packing),
      container: 'group',
    },
  ];
}

// --------------------------------------------------------------------------------------------------------------- in the core

/** The record of a form for the core. */
function codesOf(form: CompressedForm): CompressedTensorsRecord {
  const { type, bits, symmetric, groupSize, packed, wholeWords = false, grouped = false, scale, range } = form;
  return {
    float8: type === 'float',
    bits,
    symmetric,
    groupSize: groupSize ?? 0,
    packed,
    wholeWords,
    grouped,
    scale: ElementTypeId[scale],
    search: range !== undefined,
    ...(searchOf(range, [searchedMembers]) ?? mseSearch),
  };
}

export const compressedTensors: Codec<CompressedForm> = {
  id: 'compressed-tensors',
  label: ({ type, bits }) => (type === 'float' ? 'F8_E4M3' : `I${bits}`),
  parts: partsOf,
  grid: (shape, form) => ({
    rows: shape[0],
    rowUnit: rowsPerWord(form),
    columnUnit: columnUnitOf(elementsOf(shape.slice(1)), form),
  }),
  runs: (_shape, form, role, rectangle) => partRuns(form, role, rectangle),
  feedbackGroups: (_core, { groupSize = 0 }) => ({ group: groupSize, outer: 0 }),
  cuts: cutsOf,

  encode(core, whole, form, arena) {
    // Without elements, a tile needs no memory for its columns.
    const tile = readsElements(whole) ? whole : { ...whole, columns: 1 };
    return core.withRecord(CompressedTensorsRecord, codesOf(form), (codes) =>
      encodeTileByInputs(core, tile, form.importance, arena, {
        plain: (at, ...rest) => core.models.encodeCompressedTensors(at, codes, ...rest),
        fed: (at, moments, ...rest) => core.models.encodeCompressedTensorsWithFeedback(at, codes, moments, ...rest),
      }),
    );
  },

  decode(core, { rows, columns, parts }, form, arena) {
    const rectangle = { row: 0, rows, column: 0, columns, width: columns };
    const stored = storedRecord(rows, columns, parts, (role) => {
      const { bytes, count } = partRuns(form, role, rectangle);
      return bytes * count;
    });
    return core.withRecord(CompressedTensorsRecord, codesOf(form), (codes) =>
      core.withRecord(StoredRecord, stored, (at) =>
        decodeTile(core, arena, (...addresses) => core.models.decodeCompressedTensors(at, codes, ...addresses)),
      ),
    );
  },

  codes: (shape, form, parts) =>
    form.type === 'float' || form.grouped
      ? undefined
      : compressedCodes(shape, { ...form, wholeWords: form.wholeWords === true }, parts),

  checks: checksOf,
  overflow: () => ', too large for the scale',
  notes(tensors) {
    const long = tensors.filter(({ shape, form }) => form.range !== undefined && cutsRuns(shape, form));
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
};
