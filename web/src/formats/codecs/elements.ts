/** Elements as files store them: single floats, or blocks of ggml. Every codec makes its parts from them, and cuts them into tiles. */
import { blockTypeInfo, isBlockType } from '../../core/blocks.js';
import { ElementTypeId } from '../../core/door.js';
import { listedTypes } from '../../core/listed-types.js';
import {
  type ByteRuns,
  type Cuts,
  type Form,
  type Grid,
  type Part,
  pieceElements,
  type Rectangle,
  type Role,
  tileElements,
  type ValueRange,
} from './codec.js';

/** Bytes of one element of floats and integers. Floats of 8 bits, and unsigned integers, are not ggml's. */
const elementBytes: Readonly<Record<string, number>> = {
  ...Object.fromEntries(
    Object.entries(ElementTypeId).map(([name, id]) => [name, listedTypes.find((type) => type.id === id)?.bytes ?? 1]),
  ),
  ...{ I2: 1 / 4, U2: 1 / 4, I4: 1 / 2, U4: 1 / 2, I8: 1, U8: 1, I32: 4, U32: 4, I64: 8 },
};

/** Bytes of elements of a type. Those of less than a byte fill whole bytes together. */
export function bytesOfElements(type: string, elements: number): number {
  if (!isBlockType(type)) return Math.ceil(elements * (elementBytes[type] as number));
  const { elements: n, bytes } = blockTypeInfo(type);
  return (elements / n) * bytes;
}

/** A part whose size follows from its type and shape. @param replaces end of the tensor's name in place of which the suffix stands */
export function elementPart(
  role: Role,
  suffix: string,
  dtype: string,
  shape: readonly number[],
  replaces?: string,
): Part {
  const part = { role, suffix, dtype, shape, bytes: bytesOfElements(dtype, elementsOf(shape)) };
  return replaces === undefined ? part : { ...part, replaces };
}

/**
 * The largest number of layers, heads, elements of a head or experts of a model with these tensors: each layer has a tensor, and the others
 * are part of a dimension.
 */
export function largestCount(tensors: readonly { readonly shape: readonly number[] }[]): number {
  let most = tensors.length;
  for (const { shape } of tensors) for (const dimension of shape) most = Math.max(most, dimension);
  return most;
}

/** Number of elements of a shape. */
export function elementsOf(shape: readonly number[]): number {
  return shape.reduce((product, dimension) => product * dimension, 1);
}

/** A change of elements that are read. */
export interface ElementChange {
  /** A number that is added in float32 to each. @defaultValue 0 */
  readonly add?: number | undefined;
  /** True: -exp(x) in place of each x, before the factors and the addend. @defaultValue false */
  readonly negativeExp?: boolean | undefined;
  /**
   * A scale: each x becomes the nearest of -1, 0 and 1 times it, before all else. @defaultValue 0: none
   */
  readonly ternary?: number | undefined;
  /** A number by which each is multiplied in float32, before the addend. @defaultValue 1 */
  readonly factor?: number | undefined;
  /** A second factor of the elements of each row, by which their product is multiplied. */
  readonly rowFactors?: Float32Array<ArrayBuffer> | undefined;
  /** A third factor, of the elements of each column. */
  readonly columnFactors?: Float32Array<ArrayBuffer> | undefined;
}

/** True if a change is more than none. */
export function changesElements({
  add = 0,
  negativeExp = false,
  ternary = 0,
  factor = 1,
  rowFactors,
  columnFactors,
}: ElementChange): boolean {
  const factors = rowFactors ?? columnFactors;
  return add !== 0 || negativeExp || ternary !== 0 || factor !== 1 || factors !== undefined;
}

// --------------------------------------------------------------------------------------------------------------------------- runs

/** Runs of `bytes` bytes, joined into one if each begins where the one before it ends. */
export function byteRuns(offset: number, bytes: number, count = 1, stride = bytes): ByteRuns {
  return bytes === stride
    ? { offset, bytes: bytes * count, count: 1, stride: bytes * count }
    : { offset, bytes, count, stride };
}

/** The bytes of a rectangle of contiguous elements. @param size gives the bytes of n elements */
export function elementRuns(size: (elements: number) => number, rectangle: Rectangle): ByteRuns {
  const { row, rows, column, columns, width } = rectangle;
  return byteRuns(size(row * width + column), size(columns), rows, size(width));
}

// ------------------------------------------------------------------------------------------------------------------------ cutting

/** The greatest common divisor of two whole numbers. */
export function greatestCommonDivisor(a: number, b: number): number {
  return b === 0 ? a : greatestCommonDivisor(b, a % b);
}

/** The least common multiple of all numbers. */
export function multipleOf(numbers: readonly number[]): number {
  return numbers.reduce((multiple, n) => (multiple / greatestCommonDivisor(multiple, n)) * n, 1);
}

/** Elements over which the core blocks its error sums. */
export const errorBlock = 512;

/** Cuts elements into rectangles of at most `most` elements, at which all grids can be cut. */
export function* rectanglesOf(
  elements: number,
  grids: readonly Grid[],
  most = tileElements,
): Generator<Rectangle, void> {
  // Without a grid that has rows, all elements are one row.
  const rows = grids.find((grid) => grid.rows !== undefined)?.rows ?? 1;
  const width = elements / rows;
  const rowUnit = multipleOf(grids.map((grid) => grid.rowUnit));
  const rowsPerTile = Math.floor(most / width / rowUnit) * rowUnit;
  if (rowsPerTile > 0) {
    // Tiles do not cross the ends of matrices.
    const matrix = Math.min(rows, ...grids.flatMap(({ matrixRows }) => matrixRows ?? []));
    for (let first = 0; first < rows; first += matrix) {
      const end = Math.min(rows, first + matrix);
      for (let row = first; row < end; row += rowsPerTile) {
        yield { row, rows: Math.min(rowsPerTile, end - row), column: 0, columns: width, width };
      }
    }
    return;
  }
  const unit = multipleOf([errorBlock, ...grids.map(({ columnUnit }) => columnUnit)]);
  const segment = Math.max(1, Math.floor(most / rowUnit / unit)) * unit;
  for (let row = 0; row < rows; row += rowUnit) {
    for (let column = 0; column < width; column += segment) {
      const columns = Math.min(segment, width - column);
      yield { row, rows: Math.min(rowUnit, rows - row), column, columns, width };
    }
  }
}

/** Tiles at which all grids can be cut. Without a grid that has rows: tiles of consecutive elements. */
export function* cutAlong(
  grids: readonly (Grid | undefined)[],
  elements: number,
  roles: readonly Role[],
  most = tileElements,
): Cuts {
  if (elements === 0) return;
  const known = grids.flatMap((grid) => grid ?? []);
  for (const rectangle of rectanglesOf(elements, known, most)) yield { kind: 'tile', rectangle, roles };
}

/** The importance of one of the matrices of a tensor. A tensor that is a sample may have fewer of them, from the middle. */
export function matrixImportance(
  importance: Float32Array<ArrayBuffer>,
  matrix: number,
  count: number,
  width: number,
): Float32Array<ArrayBuffer> {
  const each = importance.length / width;
  const skipped = Math.max(0, Math.floor((each - count) / 2));
  const from = ((skipped + matrix) % each) * width;
  return importance.slice(from, from + width);
}

/**
 * Tiles of whole rows, each with the importance of its matrix alone, so that workers receive only the numbers that they need. Dimensions
 * before that of the matrices share the importance.
 */
function* cutWeighted(
  shape: readonly number[],
  importance: Float32Array<ArrayBuffer>,
  form: Form,
  roles: readonly Role[],
  source?: Grid,
): Cuts {
  const [width = 1, rows = 1, each = 1] = shape.toReversed();
  const unit = source?.rows === undefined ? 1 : source.rowUnit;
  const matrices = elementsOf(shape.slice(0, -2));
  const most = Math.max(1, Math.floor(tileElements / width / unit)) * unit;
  for (let matrix = 0; matrix < matrices; matrix++) {
    const own = { ...form, importance: matrixImportance(importance, matrix % each, each, width) };
    for (let row = 0; row < rows; row += most) {
      const rectangle = {
        row: matrix * rows + row,
        rows: Math.min(most, rows - row),
        column: 0,
        columns: width,
        width,
      };
      yield { kind: 'tile', rectangle, roles, form: own };
    }
  }
}

/** The grid of a tensor as one matrix of rows that can be cut behind each group of columns. */
export function rowGrid(shape: readonly number[], columnUnit: number): Grid {
  return { rows: elementsOf(shape.slice(0, -1)), rowUnit: 1, columnUnit };
}

/** Makes the cuts of a codec from its grid: tiles at which the source can be cut, too, of whole rows where columns have importance. */
export function cutsAlong<F extends Form>(gridOf: (shape: readonly number[], form: F) => Grid) {
  return (shape: readonly number[], form: F, roles: readonly Role[], source?: Grid): Cuts =>
    form.importance === undefined
      ? cutAlong([gridOf(shape, form), source], elementsOf(shape), roles)
      : cutWeighted(shape, form.importance, form, roles, source);
}

/**
 * Tiles of a matrix with a number for all of it, as the only element of the part `single`. It follows from the range of the matrix, the other
 * parts from the range and their elements.
 */
export function* cutByRange(rectangles: readonly Rectangle[], roles: readonly Role[], single: Role, form?: Form): Cuts {
  const ranges = Float32Array.from((yield { kind: 'range', rectangles }) as ValueRange);
  const own = form === undefined ? { ranges } : { ranges, form };
  const others = roles.filter((role) => role !== single);
  const [first] = rectangles as [Rectangle];
  if (others.length < roles.length) yield { kind: 'tile', rectangle: first, roles: [single], reads: false, ...own };
  if (others.length === 0) return;
  for (const rectangle of rectangles) yield { kind: 'tile', rectangle, roles: others, ...own };
}

/**
 * Tiles of a matrix that hold all inputs of the outputs in them.
 * @param cut `turned`: true for a matrix [inputs, outputs] in place of [outputs, inputs]. `unit`: outputs of a tile are a multiple of it, and
 *   of 16 if they are columns, so that gathering them reads whole cache lines. `elements`: those of a tile, tileElements by default
 */
export function* cutOutputs(
  shape: readonly number[],
  roles: readonly Role[],
  cut: { readonly turned?: boolean; readonly unit: number; readonly elements?: number | undefined },
): Cuts {
  const { turned = false, unit, elements = tileElements } = cut;
  const [first = 0, second = 0] = shape;
  const [inputs, outputs] = turned ? [first, second] : [second, first];
  if (inputs * outputs === 0) return;
  const some = turned ? Math.max(unit, 16) : unit;
  const most = Math.max(1, Math.floor(elements / inputs / some)) * some;
  for (let begin = 0; begin < outputs; begin += most) {
    const count = Math.min(most, outputs - begin);
    const rectangle = turned
      ? { row: 0, rows: inputs, column: begin, columns: count, width: outputs }
      : { row: begin, rows: count, column: 0, columns: inputs, width: inputs };
    yield { kind: 'tile', rectangle, roles };
  }
}

/** Largest number of elements of a tile in pieces. */
const piecedElements = 16 * tileElements;

/** Largest size of the parts of a wide tile in bytes, and largest number of elements of its pieces. They bound the memory of a worker. */
const widePartBytes = 32 * 2 ** 20;
const widePieceElements = 2 * pieceElements;

/** True if a stored tensor can be cut at every element, into rows of any length. */
export function readsAnyRows(source: Grid | undefined): boolean {
  return source !== undefined && source.rows === undefined && source.columnUnit === 1;
}

/**
 * Tiles of whole columns of a matrix [K, N], in pieces of whole blocks. The parts of a tile are much smaller than its floats.
 * @param columnBytes bytes of the parts of a column; given for wide tiles only
 */
export function* cutInPieces(
  [k = 0, n = 0]: readonly number[],
  roles: readonly Role[],
  blockSize: number,
  columnBytes: number | undefined,
): Cuts {
  if (k * n === 0) return;
  const inTile = (columns: number) => Math.max(1, Math.floor(columns / 16)) * 16;
  let most: number;
  if (columnBytes === undefined) most = inTile(Math.min(piecedElements / k, pieceElements / blockSize));
  else {
    const widest = inTile(Math.min(widePartBytes / columnBytes, widePieceElements / blockSize));
    // Divide the columns evenly.
    most = Math.min(widest, Math.ceil(n / Math.ceil(n / widest) / 16) * 16);
  }
  for (let column = 0; column < n; column += most) {
    const columns = Math.min(most, n - column);
    const pieceRows = Math.max(1, Math.floor(pieceElements / columns / blockSize)) * blockSize;
    const rectangle = { row: 0, rows: k, column, columns, width: n };
    yield { kind: 'tile', rectangle, roles, pieceRows: pieceRows < k ? pieceRows : undefined };
  }
}
