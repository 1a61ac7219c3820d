/**
 * Blocks of codes as the operator MatMulNBits of onnxruntime takes them: the columns of a matrix B [K, N] one after the other, each cut into
 * blocks with a scale. The arithmetic is that of cpp/codecs/matmul_nbits.cpp.
 */
import { ElementType, MatMulNBits, Stored } from '../core/door.js';
import { decodeTile, encodeTile, storedRecord } from './calls.js';
import {
  type Codec,
  type Cuts,
  columnTileElements,
  type Form,
  type Grid,
  type Part,
  pieceElements,
  type Role,
  type Tile,
  tileElements,
} from './codec.js';
import { elementsOf, runsOf } from './elements.js';

export interface MatMulNBitsForm extends Form {
  readonly codec: 'matmul-nbits';
  readonly bits: 2 | 4 | 8;
  readonly blockSize: number;
  /** Whether zero points are stored. Without, they are 2^(bits - 1). */
  readonly zeroPoint: boolean;
  /** Whether zero points are floats of the scales' type. Only of 2 and 4 bits. */
  readonly floatZeroPoint?: boolean | undefined;
  /** Whether the tensor is B with its columns as rows, [N, K]. */
  readonly transposed: boolean;
  readonly scale: 'F32' | 'F16';
  /** Undefined: from the smallest to the largest value. */
  readonly range?: 'mse' | undefined;
}

/** Sizes of B, and of a column of its codes. */
function sizesOf(shape: readonly number[], { transposed, bits, blockSize, scale, floatZeroPoint }: MatMulNBitsForm) {
  const [first = 1, second = 1] = shape;
  const [k, n] = transposed ? [second, first] : [first, second];
  const blocks = Math.ceil(k / blockSize);
  const blockBytes = (blockSize * bits) / 8;
  const scaleBytes = blocks * (scale === 'F16' ? 2 : 4);
  const bytes: Readonly<Record<Role, number>> = {
    data: blocks * blockBytes,
    scale: scaleBytes,
    zeroPoint: floatZeroPoint ? scaleBytes : Math.ceil((blocks * bits) / 8),
  };
  return { k, n, blocks, blockBytes, bytes };
}

function partsOf(shape: readonly number[], form: MatMulNBitsForm): Part[] {
  const { n, blocks, blockBytes, bytes } = sizesOf(shape, form);
  const part = (role: Role, suffix: string, dtype: string, columns: readonly number[]): Part => {
    return { role, suffix, dtype, shape: [n, ...columns], bytes: n * (bytes[role] as number) };
  };
  return [
    part('data', `_Q${form.bits}`, 'U8', [blocks, blockBytes]),
    part('scale', '_scales', form.scale, [blocks]),
    ...(form.zeroPoint
      ? [
          form.floatZeroPoint
            ? part('zeroPoint', '_zero_points', form.scale, [blocks])
            : part('zeroPoint', '_zero_points', 'U8', [bytes.zeroPoint as number]),
        ]
      : []),
  ];
}

/** Elements of a tile that comes in pieces. */
const piecedElements = 16 * tileElements;

/** Of a wide tile: bytes of its parts, and elements of a piece. A worker has no more at a time. */
const widePartBytes = 32 * 2 ** 20;
const widePieceElements = 2 * pieceElements;

/** Whether a stored tensor is elements in no particular rows, of which any rows can be read. */
function isPlain(source: Grid | undefined): boolean {
  return source !== undefined && source.rows === undefined && source.columnUnit === 1;
}

/** Tiles of whole columns of B [K, N]. If it is transposed, they are rows. */
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
function columnsAtOnce(
  shape: readonly number[],
  form: MatMulNBitsForm,
  roles: readonly Role[],
  isWide: boolean,
): number {
  const { k, n, bytes } = sizesOf(shape, form);
  const inTile = (most: number) => Math.max(1, Math.floor(most / 16)) * 16;
  if (!isWide) return inTile(Math.min(piecedElements / k, pieceElements / form.blockSize));
  const ofColumn = roles.reduce((sum, role) => sum + (bytes[role] as number), 0);
  const most = inTile(Math.min(widePartBytes / ofColumn, widePieceElements / form.blockSize));
  // None of them much narrower than the others.
  return Math.min(most, Math.ceil(n / Math.ceil(n / most) / 16) * 16);
}

/** Tiles of whole columns that come in pieces of whole blocks: the codes take an eighth of the memory of the floats. */
function* cutInPieces(shape: readonly number[], form: MatMulNBitsForm, roles: readonly Role[], isWide: boolean): Cuts {
  const [k = 0, n = 0] = shape;
  const { blockSize } = form;
  const most = columnsAtOnce(shape, form, roles, isWide);
  for (let column = 0; column < n; column += most) {
    const columns = Math.min(most, n - column);
    const step = Math.max(1, Math.floor(pieceElements / columns / blockSize)) * blockSize;
    const rectangle = { row: 0, rows: k, column, columns, width: n };
    yield { kind: 'tile', rectangle, roles, step: step < k ? step : undefined };
  }
}

/** What the core has to know of a form. */
function codesOf(form: MatMulNBitsForm, piece?: Tile['piece']): MatMulNBits {
  const { bits, blockSize, zeroPoint, floatZeroPoint = false, transposed, scale, range } = form;
  return {
    bits,
    blockSize,
    symmetric: !zeroPoint,
    transposed,
    scale: ElementType[scale],
    search: range !== undefined,
    floatZeroPoints: floatZeroPoint,
    row: piece?.row ?? 0,
    allRows: piece?.of ?? 0,
  };
}

export const matMulNBits: Codec<MatMulNBitsForm> = {
  id: 'matmul-nbits',
  label: ({ bits, blockSize }) => `Q${bits} (${blockSize})`,
  parts: partsOf,

  grid(shape, form) {
    const { k } = sizesOf(shape, form);
    return form.transposed
      ? { rows: shape[0], rowUnit: 1, columnUnit: k }
      : { rows: shape[0], rowUnit: k, columnUnit: 1 };
  },

  place(shape, form, role, { row, rows, column, columns }) {
    const size = sizesOf(shape, form).bytes[role] as number;
    const [first, some] = form.transposed ? [row, rows] : [column, columns];
    return runsOf(first * size, some * size, 1, some * size);
  },

  cuts(shape, form, roles, source) {
    const { transposed } = form;
    const inPieces = !transposed && isPlain(source) && elementsOf(shape) > 0;
    return inPieces
      ? cutInPieces(shape, form, roles, source?.prefersWide === true)
      : cutColumns(shape, transposed, roles);
  },

  encode(core, tile, form, arena) {
    return core.withRecord(MatMulNBits, codesOf(form, tile.piece), (codes) =>
      encodeTile(core, tile, arena, (at, ...room) => core.module.encodeMatmulNbits(at, codes, ...room)),
    );
  },

  decode(core, { rows, columns, parts }, form, arena) {
    const { n, bytes } = sizesOf([rows, columns], form);
    const stored = storedRecord(rows, columns, parts, (role) => n * (bytes[role] as number));
    return core.withRecord(MatMulNBits, codesOf(form), (codes) =>
      core.withRecord(Stored, stored, (at) =>
        decodeTile(core, arena, (...room) => core.module.decodeMatmulNbits(at, codes, ...room)),
      ),
    );
  },

  overflow: ({ scale }) => `, too large for a scale of ${scale}`,
};
