/**
 * Weights of bitsandbytes, which are only read: 4-bit floats in blocks of the matrix read as one row, whose scales may have codes and scales
 * of their own; and int8 codes with a scale for each row.
 * Reference: github.com/bitsandbytes-foundation/bitsandbytes at 95f9af30. The arithmetic is in cpp/codecs/bitsandbytes.cpp.
 */
import { BitsAndBytesRecord, ElementTypeId, PublishedCodebookId } from '../../core/door.js';
import { codecInCore } from './calls.js';
import type { CastType } from './cast.js';
import { floatsFinite } from './checks.js';
import type { Codec, Form, Role } from './codec.js';
import { byteRuns, elementsOf, greatestCommonDivisor } from './elements.js';

export interface BitsAndBytesForm extends Form {
  readonly codec: 'bitsandbytes';
  readonly type: 'nf4' | 'fp4' | 'int8';
  /** Elements that share a scale. Of int8, a row. */
  readonly blockSize: number;
  /** Scales that share a scale of their own; 0: scales are float32. */
  readonly outerSize: number;
  /** Added to scales of scales. */
  readonly offset: number;
  /** Type that elements of 4 bits are rounded to when they are restored. */
  readonly to: CastType;
}

const tableBytes = 4 * 256;

/** Bytes of a part for n elements from the start of a block of scales. */
function blockBytes({ type, blockSize, outerSize }: BitsAndBytesForm, role: Role, n: number): number {
  const blocks = Math.ceil(n / blockSize);
  switch (role) {
    case 'data':
      return type === 'int8' ? n : Math.ceil(n / 2);
    case 'scale':
      return outerSize === 0 ? 4 * blocks : blocks;
    case 'outerScale':
      return 4 * Math.ceil(blocks / outerSize);
    default:
      return tableBytes;
  }
}

export const bitsAndBytes: Codec<BitsAndBytesForm> = codecInCore(BitsAndBytesRecord, {
  id: 'bitsandbytes',
  label: ({ type }) => (type === 'int8' ? 'I8' : type.toUpperCase()),

  parts: (shape, form) =>
    ['data', 'scale', ...(form.outerSize === 0 ? [] : ['outerScale', 'table'])].map((role) => {
      const bytes = blockBytes(form, role, elementsOf(shape));
      return { role, suffix: '', dtype: 'U8', shape: [bytes], bytes };
    }),

  grid(shape, { type, blockSize, outerSize }) {
    const [rows = 1] = shape;
    const width = elementsOf(shape.slice(1));
    if (type === 'int8') return { rows, rowUnit: 1, columnUnit: width };
    // Rows begin with a block of scales at multiples of this number.
    const block = blockSize * Math.max(1, outerSize);
    return { rows, rowUnit: Math.min(rows, block / greatestCommonDivisor(block, width)), columnUnit: width };
  },

  runs(_shape, form, role, { row, rows, column, columns, width }) {
    if (role === 'table') return byteRuns(0, tableBytes);
    const first = row * width + column;
    const offset = blockBytes(form, role, first);
    return byteRuns(offset, blockBytes(form, role, first + rows * columns) - offset);
  },

  checks: (_shape, { outerSize }, role) =>
    role === 'outerScale' || role === 'table' || (role === 'scale' && outerSize === 0)
      ? floatsFinite('F32', 'scale')
      : [],

  record: ({ type, blockSize, outerSize, offset, to }: BitsAndBytesForm, { columns }) => ({
    int8: type === 'int8',
    book: type === 'fp4' ? PublishedCodebookId.fp4 : PublishedCodebookId.nf4,
    blockSize: type === 'int8' ? columns : blockSize,
    outerSize,
    offset,
    to: ElementTypeId[to],
  }),
  calls: { decode: 'decodeBitsAndBytes' },
});
