/**
 * Codes with scales as ONNX's DequantizeLinear takes them: one scale for a tensor, for each index of an axis, or for blocks along an axis.
 * The arithmetic is in cpp/codecs/dequantize_linear.cpp.
 */
import { DequantizeLinearRecord, ElementTypeId, SharingId, StoredRecord } from '../../core/door.js';
import { mseSearch, type SearchedRange, searchedMembers, searchOf } from '../../core/range.js';
import { decodeTile, encodeTileByInputs, observeSets, readsElements, storedRecord } from './calls.js';
import {
  type ByteRuns,
  type Codec,
  type Cuts,
  columnTileElements,
  type Form,
  type Grid,
  type Part,
  type Rectangle,
  type Role,
  type SetsCut,
  type Tile,
  tileElements,
} from './codec.js';
import { cutInputs } from './columns.js';
import { byteRuns, elementsOf } from './elements.js';

/**
 * The elements of a matrix that share a scale: all; a row; a column; or neighbors in a row or a column. Rows are the indices of the axis and
 * of the dimensions before it; of the dimensions before it alone if the axis is the last one (`columns` and `rowBlocks`).
 */
type ScaleSharing = 'tile' | 'rows' | 'columns' | 'rowBlocks' | 'columnBlocks';

export interface DequantizeLinearForm extends Form {
  readonly codec: 'dequantize-linear';
  readonly bits: 2 | 4 | 8;
  readonly signed: boolean;
  readonly symmetric: boolean;
  /** True: codes of 8 bits have the range of a 7-bit integer, so that 16 bits hold each sum of two products with uint8. */
  readonly reduced?: boolean | undefined;
  /** True if zero points are stored. Otherwise they are 0, or 2^(bits - 1) if the codes are symmetric and unsigned. */
  readonly zeroPoint: boolean;
  readonly sharing: ScaleSharing;
  /** Undefined: one scale for the tensor. */
  readonly axis: number | undefined;
  /** True if each index of the dimensions before the axis has its own scales. */
  readonly leading?: boolean | undefined;
  /** Elements along the axis that share a scale. Undefined: all elements with the same index. */
  readonly blockSize?: number | undefined;
  readonly scale: 'F32' | 'F16';
  /** Undefined: from the smallest to the largest value. Only if a tile holds all elements that share a scale, see canSearch. */
  readonly range?: SearchedRange | undefined;
  /**
   * Weights of the squared errors, one for each input of the matrix: each row if columns share scales, else each column. Scales are then
   * searched for. Only if canWeighDequantizeLinear.
   */
  readonly importance?: Float32Array<ArrayBuffer> | undefined;
  /** Smaller scales, and those of zeros alone, become this one. Only for symmetric codes without blocks. Undefined: any scale. */
  readonly leastScale?: number | undefined;
}

/** A tensor as a matrix, in which the core finds the elements that share a scale. */
interface Matrix {
  readonly sharing: ScaleSharing;
  readonly rows: number;
  readonly columns: number;
  /** Rows after which the scales repeat. */
  readonly period: number;
  /** Size of a block. */
  readonly block: number;
}

function matrixOf(
  shape: readonly number[],
  { sharing, axis, leading, blockSize }: Pick<DequantizeLinearForm, 'sharing' | 'axis' | 'leading' | 'blockSize'>,
): Matrix {
  const block = blockSize ?? 0;
  if (axis === undefined) return { sharing, rows: 1, columns: elementsOf(shape), period: 1, block };
  const outer = elementsOf(shape.slice(0, axis));
  const size = shape[axis] as number;
  if (sharing === 'columns' || sharing === 'rowBlocks')
    return { sharing, rows: outer, columns: size, period: outer, block };
  const period = leading ? outer * size : size;
  return { sharing, rows: outer * size, columns: elementsOf(shape.slice(axis + 1)), period, block };
}

/** Type of the codes. */
function codeType({ bits, signed }: DequantizeLinearForm): string {
  return `${signed ? 'I' : 'U'}${bits}`;
}

/** True if all elements that share a scale fit into a tile, so that ranges can be searched. */
export function canSearch(
  shape: readonly number[],
  form: Pick<DequantizeLinearForm, 'sharing' | 'axis' | 'leading'>,
): boolean {
  const { sharing, rows, columns, period } = matrixOf(shape, form);
  if (sharing === 'tile') return columns <= tileElements;
  if (sharing === 'rows') return columns <= tileElements && rows === period;
  return sharing !== 'columns' || rows <= tileElements;
}

/** True if the scales are those of columns, or of blocks of them. */
const isByColumns = (sharing: ScaleSharing) => sharing === 'columns' || sharing === 'columnBlocks';

/** True for a matrix whose tiles can hold all inputs of some outputs, which share no scale. */
export function canWeighDequantizeLinear(shape: readonly number[], form: DequantizeLinearForm): boolean {
  const matrix = matrixOf(shape, form);
  const { sharing, rows, columns, period } = matrix;
  if (sharing === 'tile' || shape.length !== 2 || rows !== period) return false;
  const [inputs, unit] = isByColumns(sharing) ? [rows, columnUnit(matrix, form)] : [columns, rowUnit(matrix, form)];
  return inputs * unit <= columnTileElements;
}

// -------------------------------------------------------------------------------------------------------------------------- parts

function scaleShape(shape: readonly number[], { axis, leading, blockSize }: DequantizeLinearForm): number[] {
  if (axis === undefined) return [];
  if (leading) return shape.slice(0, axis + 1);
  if (blockSize === undefined) return [shape[axis] as number];
  return shape.map((dimension, i) => (i === axis ? Math.ceil(dimension / blockSize) : dimension));
}

function partsOf(shape: readonly number[], form: DequantizeLinearForm): Part[] {
  const sets = scaleShape(shape, form);
  const dtype = codeType(form);
  const codes = (role: Role, suffix: string, shape: readonly number[]): Part => {
    return { role, suffix, dtype, shape, bytes: Math.ceil((elementsOf(shape) * form.bits) / 8) };
  };
  const scale = { role: 'scale', suffix: '_scale', dtype: form.scale, shape: sets };
  return [
    codes('data', '_quantized', shape),
    { ...scale, bytes: elementsOf(sets) * (form.scale === 'F16' ? 2 : 4) },
    ...(form.zeroPoint ? [codes('zeroPoint', '_zero_point', sets)] : []),
  ];
}

/** The bytes of the scales of a rectangle, or of its zero points. @param size gives the bytes of n of them */
function setRuns(matrix: Matrix, size: (n: number) => number, rectangle: Rectangle): ByteRuns {
  const { sharing, period, block } = matrix;
  const { row, rows, column, columns, width } = rectangle;
  if (sharing === 'tile') return byteRuns(0, size(1), 1, size(1));
  if (sharing === 'columns') return byteRuns(size(column), size(columns), 1, size(columns));
  if (sharing === 'rowBlocks') {
    const perRow = Math.ceil(width / block);
    if (columns === width) return byteRuns(size(row * perRow), size(rows * perRow), 1, size(rows * perRow));
    return byteRuns(size(row * perRow + column / block), size(Math.ceil(columns / block)), rows, size(perRow));
  }
  // A rectangle of several periods repeats the same scales.
  if (sharing === 'rows' && rows > period) {
    return { offset: 0, bytes: size(period), count: rows / period, stride: 0 };
  }
  if (sharing === 'rows') return byteRuns(size(row % period), size(rows), 1, size(rows));
  const perPeriod = Math.ceil(period / block);
  const first = Math.floor(row / period) * perPeriod + (row % period) / block;
  const count = rows > period ? (rows / period) * perPeriod : Math.ceil(rows / block);
  if (columns === width) return byteRuns(size(first * width), size(count * width), 1, size(count * width));
  return byteRuns(size(first * width + column), size(columns), count, size(width));
}

function partRuns(shape: readonly number[], form: DequantizeLinearForm, role: Role, rectangle: Rectangle): ByteRuns {
  const codes = (n: number) => Math.ceil((n * form.bits) / 8);
  if (role === 'data') {
    const { row, rows, column, columns, width } = rectangle;
    // Read rows that end within a byte as a whole.
    if (column === 0 && columns === width)
      return byteRuns(codes(row * width), codes(rows * width), 1, codes(rows * width));
    return byteRuns(codes(row * width + column), codes(columns), rows, codes(width));
  }
  const size = (n: number) => (role === 'zeroPoint' ? codes(n) : n * (form.scale === 'F16' ? 2 : 4));
  return setRuns(matrixOf(shape, form), size, rectangle);
}

// ------------------------------------------------------------------------------------------------------------------------ cutting

/** Tiles that a worker observes for one message with the ranges of columns, because each message takes time. */
const observedTiles = 4;

/** Number of the zero points of n rows if they are stored; else a number that fills whole bytes. */
function zeroPointsOf({ sharing, rows, columns, period, block }: Matrix, n: number, stored: boolean): number {
  if (sharing === 'rowBlocks') return n * Math.ceil(columns / block);
  if (sharing === 'columnBlocks') return Math.ceil(n / block) * columns;
  return sharing === 'rows' && stored && rows === period ? n : 8;
}

/** The fewest rows, or periods, whose codes and zero points end with a whole byte. */
function rowUnit(matrix: Matrix, { bits, zeroPoint }: DequantizeLinearForm): number {
  const { sharing, rows, columns, period, block } = matrix;
  const unit = rows !== period ? period : sharing === 'columnBlocks' ? block : 1;
  const isWhole = (n: number) =>
    (n * columns * bits) % 8 === 0 && (zeroPointsOf(matrix, n, zeroPoint) * bits) % 8 === 0;
  return ([1, 2].find((factor) => isWhole(unit * factor)) ?? 4) * unit;
}

/** The fewest columns at which each row can be cut: all of them, if a row's codes or zero points end within a byte. */
function columnUnit({ sharing, columns, block }: Matrix, { bits, zeroPoint }: DequantizeLinearForm): number {
  const zeroPoints = sharing === 'rowBlocks' && zeroPoint ? Math.ceil(columns / block) : 8;
  if ((columns * bits) % 8 !== 0 || (zeroPoints * bits) % 8 !== 0) return columns;
  return sharing !== 'rowBlocks' ? 8 : zeroPoint ? (block * 8) / bits : block;
}

/** True if rows of several periods can be read at once: blocks end with the period, and zero points fill whole bytes. */
export function isReadable(
  shape: readonly number[],
  form: Pick<DequantizeLinearForm, 'sharing' | 'axis' | 'leading' | 'blockSize' | 'bits' | 'zeroPoint'>,
): boolean {
  const { sharing, rows, period, block } = matrixOf(shape, form);
  if (rows === period) return true;
  if (sharing === 'columnBlocks') return period % block === 0;
  return sharing !== 'rows' || !form.zeroPoint || (period * form.bits) % 8 === 0;
}

/** Rectangles of whole rows of up to `tiles` tiles. Each lies in one period. */
function* strips({ rows, columns, period }: Matrix, unit: number, tiles = 1): Generator<Rectangle> {
  const most = tiles * Math.max(1, Math.floor(tileElements / columns / unit)) * unit;
  for (let first = 0; first < rows; first += period) {
    for (let row = first; row < first + period; row += most) {
      yield { row, rows: Math.min(most, first + period - row), column: 0, columns, width: columns };
    }
  }
}

/** Rectangles of single rows or segments of them. */
function* segments({ rows, columns }: Matrix): Generator<Rectangle> {
  for (let row = 0; row < rows; row++) {
    for (let column = 0; column < columns; column += tileElements) {
      yield { row, rows: 1, column, columns: Math.min(tileElements, columns - column), width: columns };
    }
  }
}

/** Rectangles of all rows of some columns. */
function* stripes({ rows, columns }: Matrix): Generator<Rectangle> {
  const most = Math.max(1, Math.floor(tileElements / rows));
  for (let column = 0; column < columns; column += most) {
    yield { row: 0, rows, column, columns: Math.min(most, columns - column), width: columns };
  }
}

function* cutsOf(shape: readonly number[], form: DequantizeLinearForm, roles: readonly Role[], source?: Grid): Cuts {
  const matrix = matrixOf(shape, form);
  const { sharing, rows, columns, period } = matrix;
  if (rows * columns === 0) return;
  if (form.importance !== undefined) {
    const turned = isByColumns(sharing);
    yield* cutInputs([rows, columns], turned, roles, turned ? columnUnit(matrix, form) : rowUnit(matrix, form), source);
    return;
  }
  // Cut into tiles that hold all elements of each scale, if they are small enough.
  const hasBlocks = form.blockSize !== undefined;
  const fits = rows * columns <= (sharing === 'columns' ? columnTileElements : tileElements) && rows === period;
  const isInRows = sharing === 'rows' && rows === period && columns <= tileElements;
  if (fits && sharing === 'columns') {
    yield { kind: 'tile', rectangle: { row: 0, rows, column: 0, columns, width: columns }, roles };
    return;
  }
  if (hasBlocks || fits || isInRows) {
    for (const rectangle of strips(matrix, rowUnit(matrix, form))) yield { kind: 'tile', rectangle, roles };
    return;
  }
  yield* cutObserved(matrix, form, roles);
}

/** Tiles of a tensor whose scales are shared by more than a tile. All of it is observed first. */
function* cutObserved(matrix: Matrix, form: DequantizeLinearForm, roles: readonly Role[]): Cuts {
  const { sharing, rows, columns, period } = matrix;
  const isFlat = sharing === 'tile' || columns > tileElements;
  const tiles = isFlat ? [...segments(matrix)] : [...strips(matrix, 1)];
  const firstOf = ({ row, column }: Rectangle) =>
    sharing === 'tile' ? 0 : sharing === 'columns' ? column : row % period;
  // Observe all sets.
  const sets = (yield setsCutOf(matrix, form, tiles, firstOf)) as Float32Array<ArrayBuffer>;
  // Make scales and zero points from the answer alone.
  const parameters = roles.filter((role) => role !== 'data');
  if (parameters.length > 0) {
    const rectangle = { row: 0, rows: sharing === 'rows' ? period : rows, column: 0, columns, width: columns };
    yield { kind: 'tile', rectangle, roles: parameters, ranges: sets, reads: false };
  }
  if (!roles.includes('data')) return;
  // Make the codes.
  for (const rectangle of tiles) {
    const first = firstOf(rectangle);
    const many = sharing === 'rows' ? rectangle.rows : sharing === 'columns' ? rectangle.columns : 1;
    yield { kind: 'tile', rectangle, roles: ['data'], ranges: sets.subarray(2 * first, 2 * (first + many)) };
  }
}

/** The rectangles in which the sets are observed. */
function setsCutOf(
  matrix: Matrix,
  { range }: DequantizeLinearForm,
  tiles: readonly Rectangle[],
  firstOf: (rectangle: Rectangle) => number,
): SetsCut {
  const { sharing, columns, period } = matrix;
  const searches = range !== undefined;
  const goesOn = sharing === 'columns' && !searches && columns <= tileElements;
  const rectangles =
    sharing === 'columns' && searches ? [...stripes(matrix)] : goesOn ? [...strips(matrix, 1, observedTiles)] : tiles;
  return {
    kind: 'sets',
    count: sharing === 'tile' ? 1 : sharing === 'columns' ? columns : period,
    observed: rectangles.map((rectangle) => ({ rectangle, first: firstOf(rectangle) })),
    pieceRows: goesOn ? Math.max(1, Math.floor(tileElements / columns)) : undefined,
  };
}

// --------------------------------------------------------------------------------------------------------------- in the core

/** The record of a form for the core. */
function codesOf(
  { bits, signed, symmetric, reduced = false, sharing, blockSize, scale, range, leastScale }: DequantizeLinearForm,
  piece?: Tile['piece'],
): DequantizeLinearRecord {
  return {
    bits,
    isSigned: signed,
    symmetric,
    reduced,
    sharing: SharingId[sharing],
    blockSize: blockSize ?? 0,
    scale: ElementTypeId[scale],
    search: range !== undefined,
    ...(searchOf(range, [searchedMembers]) ?? mseSearch),
    leastScale: leastScale ?? 0,
    goesOn: piece !== undefined && piece.row > 0,
  };
}

export const dequantizeLinear: Codec<DequantizeLinearForm> = {
  id: 'dequantize-linear',
  label: codeType,
  parts: partsOf,

  grid(shape, form) {
    const matrix = matrixOf(shape, form);
    if (matrix.sharing === 'tile') return { rows: undefined, rowUnit: 1, columnUnit: 8 };
    return { rows: matrix.rows, rowUnit: rowUnit(matrix, form), columnUnit: columnUnit(matrix, form) };
  },

  runs: partRuns,
  cuts: cutsOf,

  feedbackGroups: (_core, { blockSize = 0 }) => ({ group: blockSize, outer: 0 }),

  encode(core, whole, form, arena) {
    // Without elements, a tile needs memory for one row or column only.
    const line = form.sharing === 'columns' ? { rows: 1 } : { columns: 1 };
    const tile = readsElements(whole) ? whole : { ...whole, ...line };
    return core.withRecord(DequantizeLinearRecord, codesOf(form), (codes) =>
      encodeTileByInputs(core, tile, form.importance, arena, {
        plain: (at, ...rest) => core.models.encodeDequantizeLinear(at, codes, ...rest),
        fed: (at, moments, ...rest) => core.models.encodeDequantizeLinearWithFeedback(at, codes, moments, ...rest),
      }),
    );
  },

  observe(core, tile, form, arena) {
    return core.withRecord(DequantizeLinearRecord, codesOf(form, tile.piece), (codes) =>
      observeSets(core, tile, arena, (at, ...addresses) =>
        core.models.observeDequantizeLinear(at, codes, ...addresses),
      ),
    );
  },

  decode(core, { rows, columns, parts }, form, arena) {
    const stored = storedRecord(rows, columns, parts, (role) => sizeOf(form, rows, columns, role));
    return core.withRecord(DequantizeLinearRecord, codesOf(form), (codes) =>
      core.withRecord(StoredRecord, stored, (at) =>
        decodeTile(core, arena, (...addresses) => core.models.decodeDequantizeLinear(at, codes, ...addresses)),
      ),
    );
  },

  overflow: ({ scale }) => `, too large for a scale of ${scale}`,
};

/** Bytes of a part of a tile. */
function sizeOf(form: DequantizeLinearForm, rows: number, columns: number, role: Role): number {
  const codes = (n: number) => Math.ceil((n * form.bits) / 8);
  if (role === 'data') return codes(rows * columns);
  const block = form.blockSize ?? 1;
  const sets = {
    tile: 1,
    rows,
    columns,
    rowBlocks: rows * Math.ceil(columns / block),
    columnBlocks: Math.ceil(rows / block) * columns,
  }[form.sharing];
  return role === 'zeroPoint' ? codes(sets) : sets * (form.scale === 'F16' ? 2 : 4);
}
