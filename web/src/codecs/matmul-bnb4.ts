/**
 * Blocks of 4-bit floats as the operator MatMulBnb4 of onnxruntime takes them: the columns of a matrix B [K, N] one after the other, each cut
 * into blocks with a scale. The arithmetic is that of cpp/codecs/matmul_bnb4.cpp.
 */
import { MatMulBnb4, PublishedCodebook, Stored } from '../core/door.js';
import { decodeTile, encodeTile, storedRecord } from './calls.js';
import type { Codec, Form } from './codec.js';
import { elementsOf, runsOf } from './elements.js';
import { cutColumns } from './matmul-nbits.js';

export interface MatMulBnb4Form extends Form {
  readonly codec: 'matmul-bnb4';
  /** A divisor of K. */
  readonly blockSize: number;
  /** Whether the tensor is B with its columns as rows, [N, K]. */
  readonly transposed: boolean;
}

function codesOf({ blockSize, transposed }: MatMulBnb4Form): MatMulBnb4 {
  return { book: PublishedCodebook.nf4, blockSize, transposed };
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

  place(shape, { transposed, blockSize }, role, { row, rows, column, columns }) {
    const [first, some, k] = transposed ? [row, rows, shape[1] as number] : [column, columns, shape[0] as number];
    const size = role === 'data' ? k / 2 : (4 * k) / blockSize;
    return runsOf(first * size, some * size, 1, some * size);
  },

  cuts: (shape, { transposed }, roles) => cutColumns(shape, transposed, roles),

  encode(core, tile, form, arena) {
    return core.withRecord(MatMulBnb4, codesOf(form), (codes) =>
      encodeTile(core, tile, arena, (at, ...room) => core.module.encodeMatmulBnb4(at, codes, ...room)),
    );
  },

  decode(core, { rows, columns, parts }, form, arena) {
    const n = rows * columns;
    const stored = storedRecord(rows, columns, parts, (role) => (role === 'data' ? n / 2 : (4 * n) / form.blockSize));
    return core.withRecord(MatMulBnb4, codesOf(form), (codes) =>
      core.withRecord(Stored, stored, (at) =>
        decodeTile(core, arena, (...room) => core.module.decodeMatmulBnb4(at, codes, ...room)),
      ),
    );
  },
};
