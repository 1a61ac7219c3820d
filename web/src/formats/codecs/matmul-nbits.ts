/**
 * Blocks of codes as the operator MatMulNBits of onnxruntime takes them: the columns of a matrix B [K, N] one after the other, each cut into
 * blocks with a scale. The arithmetic is in cpp/codecs/matmul_nbits.cpp.
 */
import { ElementTypeId, MatMulNBitsRecord } from '../../core/door.js';
import { codecInCore } from './calls.js';
import { type Codec, columnTileElements, type Form, type Tile } from './codec.js';
import {
  byteRuns,
  bytesOfElements,
  cutInPieces,
  cutOutputs,
  elementPart,
  elementsOf,
  readsAnyRows,
} from './elements.js';

/** Widths of the codes. */
export type BlockBits = 2 | 4 | 8;

/** The importance is that of the rows of B. */
export interface MatMulNBitsForm extends Form {
  readonly codec: 'matmul-nbits';
  readonly bits: BlockBits;
  readonly blockSize: number;
  /** True if zero points are stored. Otherwise they are 2^(bits - 1). */
  readonly zeroPoint: boolean;
  /** True if zero points are floats of the scales' type. Only for 2 and 4 bits. */
  readonly floatZeroPoint?: boolean | undefined;
  /** True if the tensor is B with its columns as rows, [N, K], or several of them below each other. */
  readonly transposed: boolean;
  readonly scale: 'F32' | 'F16';
  /** Undefined: from the smallest to the largest value. */
  readonly range?: 'mse' | undefined;
}

/** Sizes of B, and of a column of its codes. All dimensions before the last count as one. */
function columnSizes(
  shape: readonly number[],
  { transposed, bits, blockSize, scale, floatZeroPoint }: MatMulNBitsForm,
) {
  const [rows, columns] = [elementsOf(shape.slice(0, -1)), shape.at(-1) ?? 1];
  const [k, n] = transposed ? [columns, rows] : [rows, columns];
  const blocks = Math.ceil(k / blockSize);
  const blockBytes = (blockSize * bits) / 8;
  const scaleBytes = bytesOfElements(scale, blocks);
  const bytes = {
    data: blocks * blockBytes,
    scale: scaleBytes,
    zeroPoint: floatZeroPoint ? scaleBytes : Math.ceil((blocks * bits) / 8),
  };
  return { k, n, rows, columns, blocks, blockBytes, bytes };
}

export const matMulNBits: Codec<MatMulNBitsForm> = codecInCore(MatMulNBitsRecord, {
  id: 'matmul-nbits',
  label: ({ bits, blockSize }) => `Q${bits} (${blockSize})`,

  parts(shape, form) {
    const { n, blocks, blockBytes, bytes } = columnSizes(shape, form);
    const [type, columns] = form.floatZeroPoint ? [form.scale, blocks] : ['U8', bytes.zeroPoint];
    return [
      elementPart('data', `_Q${form.bits}`, 'U8', [n, blocks, blockBytes]),
      elementPart('scale', '_scales', form.scale, [n, blocks]),
      ...(form.zeroPoint ? [elementPart('zeroPoint', '_zero_points', type, [n, columns])] : []),
    ];
  },

  grid(shape, form) {
    const { k, rows } = columnSizes(shape, form);
    return form.transposed ? { rows, rowUnit: 1, columnUnit: k } : { rows, rowUnit: k, columnUnit: 1 };
  },

  runs(shape, form, role, { row, rows, column, columns }) {
    const size = columnSizes(shape, form).bytes[role as 'data'];
    const [first, some] = form.transposed ? [row, rows] : [column, columns];
    return byteRuns(first * size, some * size);
  },

  cuts(shape, form, roles, source) {
    const { rows, columns, bytes } = columnSizes(shape, form);
    const matrix = [rows, columns];
    const turned = !form.transposed;
    // Columns are read row by row, so that wide tiles need fewer reads.
    const prefersWide = source?.prefersWide === true;
    const elements = turned ? columnTileElements : undefined;
    if (form.importance !== undefined)
      return cutOutputs(matrix, roles, { turned, unit: 1, elements: prefersWide ? elements : undefined });
    if (!turned || !readsAnyRows(source)) return cutOutputs(matrix, roles, { turned, unit: 16, elements });
    const ofColumn = roles.reduce((sum, role) => sum + bytes[role as 'data'], 0);
    return cutInPieces(matrix, roles, form.blockSize, prefersWide ? ofColumn : undefined);
  },

  feedbackGroups: (_core, { blockSize }) => ({ group: blockSize, outer: 0 }),
  overflow: ({ scale }) => `, too large for a scale of ${scale}`,

  record: (
    { bits, blockSize, zeroPoint, floatZeroPoint = false, transposed, scale, range }: MatMulNBitsForm,
    { piece }: Pick<Tile, 'piece'>,
  ) => ({
    bits,
    blockSize,
    symmetric: !zeroPoint,
    transposed,
    scale: ElementTypeId[scale],
    search: range !== undefined,
    floatZeroPoints: floatZeroPoint,
    row: piece?.row ?? 0,
    allRows: piece?.of ?? 0,
  }),
  calls: { encode: 'encodeMatmulNbits', feedback: 'encodeMatmulNbitsWithFeedback', decode: 'decodeMatmulNbits' },
});
