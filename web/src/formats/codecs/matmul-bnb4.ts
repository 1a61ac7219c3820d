/**
 * Blocks of 4-bit floats as the operator MatMulBnb4 of onnxruntime takes them: the columns of a matrix B [K, N] one after the other, each cut
 * into blocks with a scale. The arithmetic is in cpp/codecs/matmul_bnb4.cpp.
 */
import { MatMulBnb4Record, PublishedCodebookId, StoredRecord } from '../../core/door.js';
import type { Core } from '../../core/memory.js';
import type { Arena } from './arena.js';
import { decodeTile, encodeTile, storedRecord } from './calls.js';
import type { Bytes, Codec, Encoded, Form, Role, Tile } from './codec.js';
import { cutColumns, cutInPieces, readsAnyRows } from './columns.js';
import { byteRuns, elementsOf } from './elements.js';

export interface MatMulBnb4Form extends Form {
  readonly codec: 'matmul-bnb4';
  /** A divisor of K. */
  readonly blockSize: number;
  /** True if the tensor is B with its columns as rows, [N, K]. */
  readonly transposed: boolean;
}

function codesOf({ blockSize, transposed }: MatMulBnb4Form): MatMulBnb4Record {
  return { book: PublishedCodebookId.nf4, blockSize, transposed };
}

/** Bytes of a part. */
function bytesOfPart(role: Role, elements: number, blockSize: number): number {
  return role === 'data' ? elements / 2 : (4 * elements) / blockSize;
}

function encodeWhole(core: Core, tile: Tile, form: MatMulBnb4Form, arena: Arena): Encoded {
  return core.withRecord(MatMulBnb4Record, codesOf(form), (codes) =>
    encodeTile(core, tile, arena, (at, ...addresses) => core.models.encodeMatmulBnb4(at, codes, ...addresses)),
  );
}

/** Copies columns of bytes into longer columns, in units of four bytes. */
function spread({ module }: Core, { address, bytes }: Bytes, columns: number, to: number, columnBytes: number): void {
  const words = module.HEAP32;
  const [count, stride] = [bytes / columns / 4, columnBytes / 4];
  for (let column = 0, from = address / 4, at = to / 4; column < columns; column++, at += stride) {
    for (let i = 0; i < count; i++) words[at + i] = words[from++] as number;
  }
}

/** Encodes a piece of a tile. The core makes the parts of the piece, which are then copied into those of the tile. */
function encodePiece(core: Core, tile: Tile, form: MatMulBnb4Form, arena: Arena): Encoded {
  const { piece, columns, roles } = tile;
  const { row, of } = piece as NonNullable<Tile['piece']>;
  const sizeOf = (role: Role, rows: number) => bytesOfPart(role, rows * columns, form.blockSize);
  // Take the memory of the tile's parts first, so that its address is the same for each piece.
  const parts: Record<Role, Bytes> = {};
  for (const role of roles) parts[role] = { address: arena.take(sizeOf(role, of)), bytes: sizeOf(role, of) };
  const { problem, ...encoded } = encodeWhole(core, { ...tile, piece: undefined }, form, arena);
  if (problem !== undefined) return { parts, problem: { ...problem, index: problem.index + row * columns } };
  for (const role of roles) {
    const { address, bytes } = parts[role] as Bytes;
    const to = address + sizeOf(role, row) / columns;
    spread(core, encoded.parts[role] as Bytes, columns, to, bytes / columns);
  }
  return { ...encoded, parts };
}

export const matMulBnb4: Codec<MatMulBnb4Form> = {
  id: 'matmul-bnb4',
  label: ({ blockSize }) => `NF4 (${blockSize})`,

  parts(shape, { blockSize }) {
    const n = elementsOf(shape);
    return [
      { role: 'data', suffix: '_Bnb4', dtype: 'U8', shape: [n / 2], bytes: n / 2 },
      { role: 'scale', suffix: '_absmax', dtype: 'F32', shape: [n / blockSize], bytes: (4 * n) / blockSize },
    ];
  },

  grid(shape, { transposed }) {
    const [rows = 1, columns = 1] = shape;
    return transposed ? { rows, rowUnit: 1, columnUnit: columns } : { rows, rowUnit: rows, columnUnit: 1 };
  },

  runs(shape, { transposed, blockSize }, role, { row, rows, column, columns }) {
    const [first, some, k] = transposed ? [row, rows, shape[1] as number] : [column, columns, shape[0] as number];
    const size = bytesOfPart(role, k, blockSize);
    return byteRuns(first * size, some * size, 1, some * size);
  },

  cuts(shape, { transposed, blockSize }, roles, source) {
    const [k = 0] = shape;
    // Copying the parts of pieces pays only if reading parts of rows is slow.
    if (transposed || !readsAnyRows(source) || source?.prefersWide !== true)
      return cutColumns(shape, transposed, roles);
    const ofColumn = roles.reduce((sum, role) => sum + bytesOfPart(role, k, blockSize), 0);
    return cutInPieces(shape, roles, blockSize, ofColumn);
  },

  encode: (core, tile, form, arena) =>
    tile.piece === undefined ? encodeWhole(core, tile, form, arena) : encodePiece(core, tile, form, arena),

  decode(core, { rows, columns, parts }, form, arena) {
    const n = rows * columns;
    const stored = storedRecord(rows, columns, parts, (role) => bytesOfPart(role, n, form.blockSize));
    return core.withRecord(MatMulBnb4Record, codesOf(form), (codes) =>
      core.withRecord(StoredRecord, stored, (at) =>
        decodeTile(core, arena, (...addresses) => core.models.decodeMatmulBnb4(at, codes, ...addresses)),
      ),
    );
  },
};
