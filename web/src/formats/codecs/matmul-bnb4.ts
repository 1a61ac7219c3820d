/**
 * Blocks of 4-bit floats as the operator MatMulBnb4 of onnxruntime takes them: the columns of a matrix B [K, N] one after the other, each cut
 * into blocks with a scale. The arithmetic is in cpp/codecs/matmul_bnb4.cpp.
 */
import { MatMulBnb4Record, PublishedCodebookId } from '../../core/door.js';
import { codecInCore } from './calls.js';
import { type Bytes, type Codec, columnTileElements, type Form, type Role } from './codec.js';
import { byteRuns, cutInPieces, cutOutputs, elementPart, elementsOf, readsAnyRows } from './elements.js';

export interface MatMulBnb4Form extends Form {
  readonly codec: 'matmul-bnb4';
  /** A divisor of K. */
  readonly blockSize: number;
  /** True if the tensor is B with its columns as rows, [N, K]. */
  readonly transposed: boolean;
}

/** Bytes of a part. */
function bnb4Bytes(role: Role, elements: number, blockSize: number): number {
  return role === 'data' ? elements / 2 : (4 * elements) / blockSize;
}

const wholeTiles: Codec<MatMulBnb4Form> = codecInCore(MatMulBnb4Record, {
  id: 'matmul-bnb4',
  label: ({ blockSize }) => `NF4 (${blockSize})`,

  parts(shape, { blockSize }) {
    const n = elementsOf(shape);
    return [elementPart('data', '_Bnb4', 'U8', [n / 2]), elementPart('scale', '_absmax', 'F32', [n / blockSize])];
  },

  grid(shape, { transposed }) {
    const [rows = 1, columns = 1] = shape;
    return transposed ? { rows, rowUnit: 1, columnUnit: columns } : { rows, rowUnit: rows, columnUnit: 1 };
  },

  runs(shape, { transposed, blockSize }, role, { row, rows, column, columns }) {
    const [height = 0, width = 0] = shape;
    const [first, some, k] = transposed ? [row, rows, width] : [column, columns, height];
    const size = bnb4Bytes(role, k, blockSize);
    return byteRuns(first * size, some * size);
  },

  cuts(shape, { transposed, blockSize, importance }, roles, source) {
    const [k = 0] = shape;
    if (importance !== undefined) return cutOutputs(shape, roles, { turned: !transposed, unit: 1 });
    // Copying the parts of pieces pays only if reading parts of rows is slow.
    if (transposed || !readsAnyRows(source) || source?.prefersWide !== true) {
      const elements = transposed ? undefined : columnTileElements;
      return cutOutputs(shape, roles, { turned: !transposed, unit: 16, elements });
    }
    const ofColumn = roles.reduce((sum, role) => sum + bnb4Bytes(role, k, blockSize), 0);
    return cutInPieces(shape, roles, blockSize, ofColumn);
  },

  record: ({ blockSize, transposed }: MatMulBnb4Form) => ({ book: PublishedCodebookId.nf4, blockSize, transposed }),
  feedbackGroups: (_core, { blockSize }) => ({ group: blockSize, outer: 0 }),
  calls: { encode: 'encodeMatmulBnb4', feedback: 'encodeMatmulBnb4WithFeedback', decode: 'decodeMatmulBnb4' },
});

export const matMulBnb4: Codec<MatMulBnb4Form> = {
  ...wholeTiles,

  encode(core, tile, form, arena) {
    const encode = wholeTiles.encode as NonNullable<typeof wholeTiles.encode>;
    const { piece, columns, roles } = tile;
    if (piece === undefined) return encode(core, tile, form, arena);
    // The core makes the parts of the piece, which are then copied into those of the tile. Take the memory of the tile's parts first, so
    // that its address is the same for each piece.
    const { row, of } = piece;
    const sizeOfRows = (role: Role, rows: number) => bnb4Bytes(role, rows * columns, form.blockSize);
    const parts: Record<Role, Bytes> = {};
    for (const role of roles) parts[role] = { address: arena.take(sizeOfRows(role, of)), bytes: sizeOfRows(role, of) };
    const { problem, ...encoded } = encode(core, { ...tile, piece: undefined }, form, arena);
    if (problem !== undefined) return { parts, problem: { ...problem, index: problem.index + row * columns } };
    for (const role of roles) {
      const [from, to] = [encoded.parts[role] as Bytes, parts[role] as Bytes];
      // Columns of the piece become parts of longer columns, in units of four bytes.
      const words = core.module.HEAP32;
      const [count, stride] = [from.bytes / columns / 4, to.bytes / columns / 4];
      let word = from.address / 4;
      let at = (to.address + sizeOfRows(role, row) / columns) / 4;
      for (let column = 0; column < columns; column++, at += stride) {
        for (let i = 0; i < count; i++) words[at + i] = words[word++] as number;
      }
    }
    return { ...encoded, parts };
  },
};
