/**
 * Codes with scales as ONNX's DequantizeLinear takes them: one scale for a tensor, for each index of an axis, or for blocks along an axis.
 * The arithmetic is in cpp/codecs/dequantize_linear.cpp.
 */
import { DequantizeLinearRecord, ElementTypeId, SharingId } from '../../core/door.js';
import { mseSearch, type SearchedRange, searchedMembers, searchOf } from '../../core/range.js';
import { codecInCore, readsElements } from './calls.js';
import {
  type ByteRuns,
  type Codec,
  columnTileElements,
  type Form,
  type Rectangle,
  type Role,
  tileElements,
} from './codec.js';
import { byteRuns, bytesOfElements, cutOutputs, elementPart, elementsOf } from './elements.js';

/**
 * The elements of a matrix that share a scale: all; a row; a column; or neighbors in a row or a column. Rows are the indices of the axis and
 * of the dimensions before it; of the dimensions before it alone if the axis is the last one (`columns` and `rowBlocks`).
 */
type ScaleSharing = 'tile' | 'rows' | 'columns' | 'rowBlocks' | 'columnBlocks';

/**
 * Importance is that of the inputs of the matrix: each row if columns share scales, else each column. Only if canWeighDequantizeLinear.
 */
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
  /** Smaller scales, and those of zeros alone, become this one. Only for symmetric codes without blocks. Undefined: any scale. */
  readonly leastScale?: number | undefined;
}

/** A tensor as a matrix, in which the core finds the elements that share a scale. */
interface SharedMatrix {
  readonly sharing: ScaleSharing;
  readonly rows: number;
  readonly columns: number;
  /** Rows after which the scales repeat. */
  readonly period: number;
  /** Size of a block. */
  readonly block: number;
}

function sharedMatrix(
  shape: readonly number[],
  { sharing, axis, leading, blockSize }: Pick<DequantizeLinearForm, 'sharing' | 'axis' | 'leading' | 'blockSize'>,
): SharedMatrix {
  const block = blockSize ?? 0;
  if (axis === undefined) return { sharing, rows: 1, columns: elementsOf(shape), period: 1, block };
  const outer = elementsOf(shape.slice(0, axis));
  const size = shape[axis] ?? 1;
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
  const { sharing, rows, columns, period } = sharedMatrix(shape, form);
  if (sharing === 'tile') return columns <= tileElements;
  if (sharing === 'rows') return columns <= tileElements && rows === period;
  return sharing !== 'columns' || rows <= tileElements;
}

/** True if the scales are those of columns, or of blocks of them. */
const isByColumns = (sharing: ScaleSharing) => sharing === 'columns' || sharing === 'columnBlocks';

/** True for a matrix whose tiles can hold all inputs of some outputs, which share no scale. */
export function canWeighDequantizeLinear(shape: readonly number[], form: DequantizeLinearForm): boolean {
  const matrix = sharedMatrix(shape, form);
  const { sharing, rows, columns, period } = matrix;
  if (sharing === 'tile' || shape.length !== 2 || rows !== period) return false;
  const { rowUnit, columnUnit } = sharingUnits(matrix, form);
  return (isByColumns(sharing) ? rows * columnUnit : columns * rowUnit) <= columnTileElements;
}

/** True if rows of several periods can be read at once: blocks end with the period, and zero points fill whole bytes. */
export function isReadable(
  shape: readonly number[],
  form: Pick<DequantizeLinearForm, 'sharing' | 'axis' | 'leading' | 'blockSize' | 'bits' | 'zeroPoint'>,
): boolean {
  const { sharing, rows, period, block } = sharedMatrix(shape, form);
  if (rows === period) return true;
  if (sharing === 'columnBlocks') return period % block === 0;
  return sharing !== 'rows' || !form.zeroPoint || (period * form.bits) % 8 === 0;
}

/** The bytes of a part that hold a rectangle. */
function matrixRuns(matrix: SharedMatrix, form: DequantizeLinearForm, role: Role, rectangle: Rectangle): ByteRuns {
  const { sharing, period, block } = matrix;
  const { row, rows, column, columns, width } = rectangle;
  const size = (n: number) => (role === 'scale' ? bytesOfElements(form.scale, n) : Math.ceil((n * form.bits) / 8));
  if (role === 'data') {
    // Read rows that end within a byte as a whole.
    if (column === 0 && columns === width) return byteRuns(size(row * width), size(rows * width));
    return byteRuns(size(row * width + column), size(columns), rows, size(width));
  }
  if (sharing === 'tile') return byteRuns(0, size(1));
  if (sharing === 'columns') return byteRuns(size(column), size(columns));
  if (sharing === 'rowBlocks') {
    const perRow = Math.ceil(width / block);
    if (columns === width) return byteRuns(size(row * perRow), size(rows * perRow));
    return byteRuns(size(row * perRow + column / block), size(Math.ceil(columns / block)), rows, size(perRow));
  }
  // A rectangle of several periods repeats the same scales.
  if (sharing === 'rows' && rows > period) {
    return { offset: 0, bytes: size(period), count: rows / period, stride: 0 };
  }
  if (sharing === 'rows') return byteRuns(size(row % period), size(rows));
  const perPeriod = Math.ceil(period / block);
  const first = Math.floor(row / period) * perPeriod + (row % period) / block;
  const count = rows > period ? (rows / period) * perPeriod : Math.ceil(rows / block);
  if (columns === width) return byteRuns(size(first * width), size(count * width));
  return byteRuns(size(first * width + column), size(columns), count, size(width));
}

// ------------------------------------------------------------------------------------------------------------------------ cutting

/** Tiles that a worker observes for one message with the ranges of columns, because each message takes time. */
const observedTiles = 4;

/** The fewest rows, or periods, and the fewest columns at which codes and zero points end with a whole byte; all columns if none do. */
function sharingUnits(matrix: SharedMatrix, { bits, zeroPoint }: DequantizeLinearForm) {
  const { sharing, rows, columns, period, block } = matrix;
  const endsByte = (codes: number) => (codes * bits) % 8 === 0;
  const blocks = Math.ceil(columns / block);
  const unit = rows !== period ? period : sharing === 'columnBlocks' ? block : 1;
  const rowUnit = [1, 2].find((factor) => {
    const n = unit * factor;
    if (!endsByte(n * columns)) return false;
    if (sharing === 'rowBlocks') return endsByte(n * blocks);
    if (sharing === 'columnBlocks') return endsByte(Math.ceil(n / block) * columns);
    return sharing !== 'rows' || !zeroPoint || rows !== period || endsByte(n);
  });
  const cutsRows = endsByte(columns) && (sharing !== 'rowBlocks' || !zeroPoint || endsByte(blocks));
  const columnUnit = sharing !== 'rowBlocks' ? 8 : zeroPoint ? (block * 8) / bits : block;
  return { rowUnit: (rowUnit ?? 4) * unit, columnUnit: cutsRows ? columnUnit : columns };
}

/** Rectangles of whole rows of up to `tiles` tiles. Each lies in one period. */
function* strips({ rows, columns, period }: SharedMatrix, unit: number, tiles = 1): Generator<Rectangle> {
  const most = tiles * Math.max(1, Math.floor(tileElements / columns / unit)) * unit;
  for (let first = 0; first < rows; first += period) {
    for (let row = first; row < first + period; row += most) {
      yield { row, rows: Math.min(most, first + period - row), column: 0, columns, width: columns };
    }
  }
}

export const dequantizeLinear: Codec<DequantizeLinearForm> = codecInCore(DequantizeLinearRecord, {
  id: 'dequantize-linear',
  label: codeType,

  parts(shape, form) {
    const { axis, leading, blockSize, scale, zeroPoint } = form;
    let sets: readonly number[] = [];
    if (axis !== undefined && leading) sets = shape.slice(0, axis + 1);
    else if (axis !== undefined && blockSize === undefined) sets = [shape[axis] ?? 1];
    else if (blockSize !== undefined)
      sets = shape.map((dimension, i) => (i === axis ? Math.ceil(dimension / blockSize) : dimension));
    return [
      elementPart('data', '_quantized', codeType(form), shape),
      elementPart('scale', '_scale', scale, sets),
      ...(zeroPoint ? [elementPart('zeroPoint', '_zero_point', codeType(form), sets)] : []),
    ];
  },

  grid(shape, form) {
    const matrix = sharedMatrix(shape, form);
    if (matrix.sharing === 'tile') return { rows: undefined, rowUnit: 1, columnUnit: 8 };
    return { rows: matrix.rows, ...sharingUnits(matrix, form) };
  },

  runs: (shape, form, role, rectangle) => matrixRuns(sharedMatrix(shape, form), form, role, rectangle),

  *cuts(shape, form, roles, source) {
    const matrix = sharedMatrix(shape, form);
    const { sharing, rows, columns, period } = matrix;
    if (rows * columns === 0) return;
    const { rowUnit, columnUnit } = sharingUnits(matrix, form);
    if (form.importance !== undefined) {
      const turned = isByColumns(sharing);
      const elements = turned && source?.prefersWide === true ? columnTileElements : undefined;
      yield* cutOutputs([rows, columns], roles, { turned, unit: turned ? columnUnit : rowUnit, elements });
      return;
    }
    // Cut into tiles that hold all elements of each scale, if they are small enough.
    const whole = { row: 0, rows, column: 0, columns, width: columns };
    const fits = rows * columns <= (sharing === 'columns' ? columnTileElements : tileElements) && rows === period;
    const isInRows = sharing === 'rows' && rows === period && columns <= tileElements;
    if (fits && sharing === 'columns') {
      yield { kind: 'tile', rectangle: whole, roles };
      return;
    }
    if (form.blockSize !== undefined || fits || isInRows) {
      for (const rectangle of strips(matrix, rowUnit)) yield { kind: 'tile', rectangle, roles };
      return;
    }

    // Observe all sets, because the scales are shared by more than a tile.
    const tiles: Rectangle[] = [];
    if (sharing === 'tile' || columns > tileElements) {
      for (let row = 0; row < rows; row++) {
        for (let column = 0; column < columns; column += tileElements)
          tiles.push({ row, rows: 1, column, columns: Math.min(tileElements, columns - column), width: columns });
      }
    } else tiles.push(...strips(matrix, 1));
    const searches = form.range !== undefined;
    const goesOn = sharing === 'columns' && !searches && columns <= tileElements;
    const rectangles = goesOn ? [...strips(matrix, 1, observedTiles)] : sharing === 'columns' && searches ? [] : tiles;
    // A search needs all rows of some columns.
    const most = Math.max(1, Math.floor(tileElements / rows));
    for (let column = 0; sharing === 'columns' && searches && column < columns; column += most)
      rectangles.push({ row: 0, rows, column, columns: Math.min(most, columns - column), width: columns });
    const firstSet = ({ row, column }: Rectangle) =>
      sharing === 'tile' ? 0 : sharing === 'columns' ? column : row % period;
    const sets = (yield {
      kind: 'sets',
      count: sharing === 'tile' ? 1 : sharing === 'columns' ? columns : period,
      observed: rectangles.map((rectangle) => ({ rectangle, first: firstSet(rectangle) })),
      pieceRows: goesOn ? Math.max(1, Math.floor(tileElements / columns)) : undefined,
    }) as Float32Array<ArrayBuffer>;

    // Make scales and zero points from the answer alone, then the codes.
    const parameters = roles.filter((role) => role !== 'data');
    if (parameters.length > 0) {
      const rectangle = { ...whole, rows: sharing === 'rows' ? period : rows };
      yield { kind: 'tile', rectangle, roles: parameters, ranges: sets, reads: false };
    }
    if (!roles.includes('data')) return;
    for (const rectangle of tiles) {
      const first = firstSet(rectangle);
      const many = sharing === 'rows' ? rectangle.rows : sharing === 'columns' ? rectangle.columns : 1;
      yield { kind: 'tile', rectangle, roles: ['data'], ranges: sets.subarray(2 * first, 2 * (first + many)) };
    }
  },

  feedbackGroups: (_core, { blockSize = 0 }) => ({ group: blockSize, outer: 0 }),
  overflow: ({ scale }) => `, too large for a scale of ${scale}`,

  // Without elements, a tile needs memory for one row or column only.
  tileIn: (tile, { sharing }) =>
    readsElements(tile) ? tile : { ...tile, ...(sharing === 'columns' ? { rows: 1 } : { columns: 1 }) },

  // A stored tile has all of its scales, those of repeated periods, too.
  storedBytes({ rows, columns }, form, role) {
    const matrix = { sharing: form.sharing, rows, columns, period: rows, block: form.blockSize ?? 1 };
    return matrixRuns(matrix, form, role, { row: 0, rows, column: 0, columns, width: columns }).bytes;
  },

  record: (
    { bits, signed, symmetric, reduced = false, sharing, blockSize = 0, scale, range, leastScale = 0 },
    { piece },
  ) => ({
    bits,
    isSigned: signed,
    symmetric,
    reduced,
    sharing: SharingId[sharing],
    blockSize,
    scale: ElementTypeId[scale],
    search: range !== undefined,
    ...((range && searchOf(range, [searchedMembers])) ?? mseSearch),
    leastScale,
    goesOn: piece !== undefined && piece.row > 0,
  }),
  calls: {
    encode: 'encodeDequantizeLinear',
    feedback: 'encodeDequantizeLinearWithFeedback',
    observe: 'observeDequantizeLinear',
    decode: 'decodeDequantizeLinear',
  },
});
