/** How matrices are cut whose columns are stored one after the other, in blocks. */
import { type Cuts, columnTileElements, type Grid, pieceElements, type Role, tileElements } from './codec.js';

/** Elements of a tile that comes in pieces. */
const piecedElements = 16 * tileElements;

/** Of a wide tile: bytes of its parts, and elements of a piece. A worker has no more at a time. */
const widePartBytes = 32 * 2 ** 20;
const widePieceElements = 2 * pieceElements;

/** Whether a stored tensor is elements in no particular rows, of which any rows can be read. */
export function readsAnyRows(source: Grid | undefined): boolean {
  return source !== undefined && source.rows === undefined && source.columnUnit === 1;
}

/** Tiles of whole columns of a matrix [K, N]. If it is transposed, they are rows. */
export function* cutColumns(shape: readonly number[], transposed: boolean, roles: readonly Role[]): Cuts {
  const [first = 0, second = 0] = shape;
  const [k, n] = transposed ? [second, first] : [first, second];
  if (k * n === 0) return;
  // Where columns are gathered, whole cache lines of the rows.
  const most = Math.max(1, Math.floor((transposed ? tileElements : columnTileElements) / k / 16)) * 16;
  for (let begin = 0; begin < n; begin += most) {
    const some = Math.min(most, n - begin);
    const rectangle = transposed
      ? { row: begin, rows: some, column: 0, columns: k, width: k }
      : { row: 0, rows: k, column: begin, columns: some, width: n };
    yield { kind: 'tile', rectangle, roles };
  }
}

/** Columns of a tile that comes in pieces. */
function columnsAtOnce([k = 0, n = 0]: readonly number[], blockSize: number, columnBytes: number | undefined): number {
  const inTile = (most: number) => Math.max(1, Math.floor(most / 16)) * 16;
  if (columnBytes === undefined) return inTile(Math.min(piecedElements / k, pieceElements / blockSize));
  const most = inTile(Math.min(widePartBytes / columnBytes, widePieceElements / blockSize));
  // None of them much narrower than the others.
  return Math.min(most, Math.ceil(n / Math.ceil(n / most) / 16) * 16);
}

/**
 * Tiles of whole columns of a matrix [K, N] that come in pieces of whole blocks: the parts take a small share of the memory of the floats.
 * @param columnBytes of wide tiles, the bytes of the parts of a column
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
