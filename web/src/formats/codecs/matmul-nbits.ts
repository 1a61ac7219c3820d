/**
 * Blocks of codes as the operator MatMulNBits of onnxruntime takes them: the columns of a matrix B [K, N] one after the other, each cut into
 * blocks with a scale. The arithmetic is in cpp/codecs/matmul_nbits.cpp.
 */
import { ElementTypeId, MatMulNBitsRecord, StoredRecord } from '../../core/door.js';
import { decodeTile, encodeTileByInputs, storedRecord } from './calls.js';
import type { Codec, Form, Part, Role, Tile } from './codec.js';
import { cutColumns, cutInPieces, cutInputs, readsAnyRows } from './columns.js';
import { byteRuns, elementsOf } from './elements.js';

export interface MatMulNBitsForm extends Form {
  readonly codec: 'matmul-nbits';
  readonly bits: 2 | 4 | 8;
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
  /** Weights of the squared errors of the rows of B, one for each. Scales are then searched for. */
  readonly importance?: Float32Array<ArrayBuffer> | undefined;
}

/** A shape with all dimensions before the last as one. */
function matrixOf(shape: readonly number[]): readonly [rows: number, columns: number] {
  return [elementsOf(shape.slice(0, -1)), shape.at(-1) ?? 1];
}

/** Sizes of B, and of a column of its codes. */
function sizesOf(shape: readonly number[], { transposed, bits, blockSize, scale, floatZeroPoint }: MatMulNBitsForm) {
  const [first, second] = matrixOf(shape);
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

/** The record of a form for the core. */
function codesOf(form: MatMulNBitsForm, piece?: Tile['piece']): MatMulNBitsRecord {
  const { bits, blockSize, zeroPoint, floatZeroPoint = false, transposed, scale, range } = form;
  return {
    bits,
    blockSize,
    symmetric: !zeroPoint,
    transposed,
    scale: ElementTypeId[scale],
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
    const [rows] = matrixOf(shape);
    return form.transposed ? { rows, rowUnit: 1, columnUnit: k } : { rows, rowUnit: k, columnUnit: 1 };
  },

  runs(shape, form, role, { row, rows, column, columns }) {
    const size = sizesOf(shape, form).bytes[role] as number;
    const [first, some] = form.transposed ? [row, rows] : [column, columns];
    return byteRuns(first * size, some * size, 1, some * size);
  },

  cuts(whole, form, roles, source) {
    const shape = matrixOf(whole);
    const { transposed } = form;
    if (form.importance !== undefined) return cutInputs(shape, !transposed, roles, 1, source);
    if (transposed || !readsAnyRows(source)) return cutColumns(shape, transposed, roles);
    const { bytes } = sizesOf(shape, form);
    const ofColumn = roles.reduce((sum, role) => sum + (bytes[role] as number), 0);
    return cutInPieces(shape, roles, form.blockSize, source?.prefersWide === true ? ofColumn : undefined);
  },

  feedbackGroups: (_core, { blockSize }) => ({ group: blockSize, outer: 0 }),

  encode(core, tile, form, arena) {
    return core.withRecord(MatMulNBitsRecord, codesOf(form, tile.piece), (codes) =>
      encodeTileByInputs(core, tile, form.importance, arena, {
        plain: (at, ...rest) => core.models.encodeMatmulNbits(at, codes, ...rest),
        fed: (at, moments, ...rest) => core.models.encodeMatmulNbitsWithFeedback(at, codes, moments, ...rest),
      }),
    );
  },

  decode(core, { rows, columns, parts }, form, arena) {
    const { n, bytes } = sizesOf([rows, columns], form);
    const stored = storedRecord(rows, columns, parts, (role) => n * (bytes[role] as number));
    return core.withRecord(MatMulNBitsRecord, codesOf(form), (codes) =>
      core.withRecord(StoredRecord, stored, (at) =>
        decodeTile(core, arena, (...addresses) => core.models.decodeMatmulNbits(at, codes, ...addresses)),
      ),
    );
  },

  overflow: ({ scale }) => `, too large for a scale of ${scale}`,
};
