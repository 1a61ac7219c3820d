/** Elements as files store them: single floats, or blocks of ggml. Every codec makes its parts from them. */
import { blockTypeInfo, isBlockType } from '../../core/blocks.js';
import { ElementTypeId } from '../../core/door.js';
import { listedTypes } from '../../core/listed-types.js';
import { type ByteRuns, type Cuts, type Form, type Grid, type Rectangle, type Role, tileElements } from './codec.js';

/** Bytes of one element of the types that are floats. Those of 8 bits are not ggml's. */
const floatBytes: Readonly<Record<string, number>> = Object.fromEntries(
  Object.entries(ElementTypeId).map(([name, id]) => [name, listedTypes.find((type) => type.id === id)?.bytes ?? 1]),
);

/** Bytes of elements of a type that can be decoded to floats. */
export function bytesOfElements(type: string, elements: number): number {
  if (!isBlockType(type)) return elements * (floatBytes[type] as number);
  const { elements: n, bytes } = blockTypeInfo(type);
  return (elements / n) * bytes;
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

// ------------------------------------------------------------------------------------------------------------------------ cutting

/** Runs of `bytes` bytes, joined into one if each begins where the one before it ends. */
export function byteRuns(offset: number, bytes: number, count: number, stride: number): ByteRuns {
  return bytes === stride
    ? { offset, bytes: bytes * count, count: 1, stride: bytes * count }
    : { offset, bytes, count, stride };
}

/** The bytes of a rectangle of contiguous elements. @param size gives the bytes of n elements */
export function elementRuns(size: (elements: number) => number, rectangle: Rectangle): ByteRuns {
  const { row, rows, column, columns, width } = rectangle;
  return byteRuns(size(row * width + column), size(columns), rows, size(width));
}

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

/** Cuts rows into runs of at most `most`, which do not cross the ends of matrices. */
function* rowsOfTiles(
  rows: number,
  most: number,
  grids: readonly Pick<Grid, 'matrixRows'>[],
): Generator<readonly [row: number, rows: number], void> {
  const matrices = grids.flatMap(({ matrixRows }) => matrixRows ?? []);
  const matrix = matrices.length === 0 ? rows : Math.min(...matrices);
  for (let first = 0; first < rows; first += matrix) {
    const end = Math.min(rows, first + matrix);
    for (let row = first; row < end; row += most) yield [row, Math.min(most, end - row)];
  }
}

/** Cuts elements into rectangles of at most a tile, at which all grids can be cut. */
export function* rectanglesOf(elements: number, grids: readonly Grid[]): Generator<Rectangle, void> {
  // Without a grid that has rows, all elements are one row.
  const rows = grids.find((grid) => grid.rows !== undefined)?.rows ?? 1;
  const width = elements / rows;
  const rowUnit = multipleOf(grids.map((grid) => grid.rowUnit));
  const rowsPerTile = Math.floor(tileElements / width / rowUnit) * rowUnit;
  if (rowsPerTile > 0) {
    for (const [row, some] of rowsOfTiles(rows, rowsPerTile, grids)) {
      yield { row, rows: some, column: 0, columns: width, width };
    }
    return;
  }
  const unit = multipleOf([errorBlock, ...grids.map(({ columnUnit }) => columnUnit)]);
  const segment = Math.max(1, Math.floor(tileElements / rowUnit / unit)) * unit;
  for (let row = 0; row < rows; row += rowUnit) {
    for (let column = 0; column < width; column += segment) {
      const columns = Math.min(segment, width - column);
      yield { row, rows: Math.min(rowUnit, rows - row), column, columns, width };
    }
  }
}

/** Tiles of a matrix if the stored tensor has rows; else tiles of consecutive elements. */
export function* cutLike(source: Grid | undefined, elements: number, roles: readonly Role[]): Cuts {
  if (source?.rows === undefined) {
    yield* cutFlat(elements, roles);
    return;
  }
  yield* cutAlong([source], elements, roles);
}

/** Tiles of a matrix at which all grids can be cut. */
export function* cutAlong(grids: readonly Grid[], elements: number, roles: readonly Role[]): Cuts {
  for (const rectangle of rectanglesOf(elements, grids)) yield { kind: 'tile', rectangle, roles };
}

/** A form with weights of the squared errors. */
interface Weighted extends Form {
  readonly importance?: Float32Array<ArrayBuffer> | undefined;
}

/**
 * Tiles of whole rows, each with the importance of its matrix alone, so that workers receive only the numbers that they need. A tensor that
 * is a sample may have fewer matrices, from the middle. Dimensions before that of the matrices share the importance.
 * @param importance one number for each column of each matrix, one matrix after the other
 */
export function* cutWeighted(
  shape: readonly number[],
  importance: Float32Array<ArrayBuffer>,
  form: Weighted,
  roles: readonly Role[],
  source?: Grid,
): Cuts {
  const [width = 1, rows = 1, each = 1] = shape.toReversed();
  const unit = source?.rows === undefined ? 1 : source.rowUnit;
  const skipped = Math.floor((importance.length / width - each) / 2);
  const matrices = elementsOf(shape.slice(0, -2));
  const most = Math.max(1, Math.floor(tileElements / width / unit)) * unit;
  for (let matrix = 0; matrix < matrices; matrix++) {
    const from = (skipped + (matrix % each)) * width;
    const own: Weighted = { ...form, importance: importance.slice(from, from + width) };
    for (let row = 0; row < rows; row += most) {
      const count = Math.min(most, rows - row);
      const rectangle = { row: matrix * rows + row, rows: count, column: 0, columns: width, width };
      yield { kind: 'tile', rectangle, roles, form: own };
    }
  }
}

/** Tiles of consecutive elements. */
export function* cutFlat(elements: number, roles: readonly Role[], most = tileElements): Cuts {
  for (let column = 0; column < elements; column += most) {
    const columns = Math.min(most, elements - column);
    yield { kind: 'tile', rectangle: { row: 0, rows: 1, column, columns, width: elements }, roles };
  }
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
}

/** True if a change is more than none. */
export function changesElements({
  add = 0,
  negativeExp = false,
  ternary = 0,
  factor = 1,
  rowFactors,
}: ElementChange): boolean {
  return add !== 0 || negativeExp || ternary !== 0 || factor !== 1 || rowFactors !== undefined;
}
