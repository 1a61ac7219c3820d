/** Cuts matrices whose columns are stored one after the other, in blocks. */
import { type Cuts, columnTileElements, type Grid, pieceElements, type Role, tileElements } from './codec.js';

/** Largest number of elements of a tile in pieces. */
const piecedElements = 16 * tileElements;

/** Largest size of the parts of a wide tile in bytes, and largest number of elements of its pieces. They bound the memory of a worker. */
const widePartBytes = 32 * 2 ** 20;
const widePieceElements = 2 * pieceElements;

/** True if a stored tensor can be cut at every element, into rows of any length. */
export function readsAnyRows(source: Grid | undefined): boolean {
  return source !== undefined && source.rows === undefined && source.columnUnit === 1;
}

/** Tiles of whole columns of a matrix [K, N]. In a transposed matrix, these are rows. */
export function* cutColumns(shape: readonly number[], transposed: boolean, roles: readonly Role[]): Cuts {
  const [first = 0, second = 0] = shape;
  const [k, n] = transposed ? [second, first] : [first, second];
  if (k * n === 0) return;
  // A multiple of 16 columns, so that gathering columns reads whole cache lines.
  const most = Math.max(1, Math.floor((transposed ? tileElements : columnTileElements) / k / 16)) * 16;
  for (let begin = 0; begin < n; begin += most) {
    const some = Math.min(most, n - begin);
    const rectangle = transposed
      ? { row: begin, rows: some, column: 0, columns: k, width: k }
      : { row: 0, rows: k, column: begin, columns: some, width: n };
    yield { kind: 'tile', rectangle, roles };
  }
}

/** Columns of a tile in pieces. */
function columnsAtOnce([k = 0, n = 0]: readonly number[], blockSize: number, columnBytes: number | undefined): number {
  const inTile = (most: number) => Math.max(1, Math.floor(most / 16)) * 16;
  if (columnBytes === undefined) return inTile(Math.min(piecedElements / k, pieceElements / blockSize));
  const most = inTile(Math.min(widePartBytes / columnBytes, widePieceElements / blockSize));
  // Divide the columns evenly.
  return Math.min(most, Math.ceil(n / Math.ceil(n / most) / 16) * 16);
}

/**
 * Tiles of whole columns of a matrix [K, N], in pieces of whole blocks. The parts of a tile are much smaller than its floats.
 * @param columnBytes bytes of the parts of a column; given for wide tiles only
 */
export function* cutInPieces(
  shape: readonly number[],
  roles: readonly Role[],
  blockSize: number,
  columnBytes: number | undefined,
): Cuts {
  const [k = 0, n = 0] = shape;
  if (k * n === 0) return;
  const most = columnsAtOnce(shape, blockSize, columnBytes);
  for (let column = 0; column < n; column += most) {
    const columns = Math.min(most, n - column);
    const pieceRows = Math.max(1, Math.floor(pieceElements / columns / blockSize)) * blockSize;
    const rectangle = { row: 0, rows: k, column, columns, width: n };
    yield { kind: 'tile', rectangle, roles, pieceRows: pieceRows < k ? pieceRows : undefined };
  }
}

/**
 * Tiles of a matrix that hold all inputs of the outputs in them.
 * @param turned true for a matrix [inputs, outputs]
 * @param unit outputs of a tile are a multiple of it
 */
export function* cutInputs(
  shape: readonly number[],
  turned: boolean,
  roles: readonly Role[],
  unit: number,
  source: Grid | undefined,
): Cuts {
  const [first = 0, second = 0] = shape;
  const [inputs, outputs] = turned ? [first, second] : [second, first];
  if (inputs * outputs === 0) return;
  // Columns are read row by row, so that wide tiles need fewer reads.
  const elements = turned && source?.prefersWide === true ? columnTileElements : tileElements;
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
