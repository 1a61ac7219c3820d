/**
 * Weights of bitsandbytes, which are only read: 4-bit floats in blocks of the matrix read as one row, whose scales may have codes and scales
 * of their own; and int8 codes with a scale for each row.
 * Reference: github.com/bitsandbytes-foundation/bitsandbytes at 95f9af30. The arithmetic is in cpp/codecs/bitsandbytes.cpp.
 */

import { BitsAndBytesRecord, ElementTypeId, PublishedCodebookId, StoredRecord } from '../../core/door.js';
import { decodeTile, storedRecord } from './calls.js';
import type { CastType } from './cast.js';
import { type BitCheck, floatsFinite } from './checks.js';
import type { Codec, Form, Part, Rectangle, Role } from './codec.js';
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
function partBytes({ type, blockSize, outerSize }: BitsAndBytesForm, role: Role, n: number): number {
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

function rolesOf({ outerSize }: BitsAndBytesForm): Role[] {
  return outerSize === 0 ? ['data', 'scale'] : ['data', 'scale', 'outerScale', 'table'];
}

function runsOf(form: BitsAndBytesForm, role: Role, { row, rows, column, columns, width }: Rectangle) {
  if (role === 'table') return byteRuns(0, tableBytes, 1, tableBytes);
  const first = row * width + column;
  const offset = partBytes(form, role, first);
  const bytes = partBytes(form, role, first + rows * columns) - offset;
  return byteRuns(offset, bytes, 1, bytes);
}

export const bitsAndBytes: Codec<BitsAndBytesForm> = {
  id: 'bitsandbytes',
  label: ({ type }) => (type === 'int8' ? 'I8' : type.toUpperCase()),

  parts(shape, form): Part[] {
    const n = elementsOf(shape);
    return rolesOf(form).map((role) => {
      const bytes = partBytes(form, role, n);
      return { role, suffix: '', dtype: 'U8', shape: [bytes], bytes };
    });
  },

  grid(shape, { type, blockSize, outerSize }) {
    const [rows = 1] = shape;
    const width = elementsOf(shape.slice(1));
    if (type === 'int8') return { rows, rowUnit: 1, columnUnit: width };
    // Rows begin with a block of scales at multiples of this number.
    const block = blockSize * Math.max(1, outerSize);
    return { rows, rowUnit: Math.min(rows, block / greatestCommonDivisor(block, width)), columnUnit: width };
  },

  runs: (_shape, form, role, rectangle) => runsOf(form, role, rectangle),

  cuts() {
    throw new Error('weights of bitsandbytes are only read');
  },

  decode(core, { rows, columns, parts }, form, arena) {
    const { type, blockSize, outerSize, offset, to } = form;
    const rectangle = { row: 0, rows, column: 0, columns, width: columns };
    const stored = storedRecord(rows, columns, parts, (role) => runsOf(form, role, rectangle).bytes);
    const record: BitsAndBytesRecord = {
      int8: type === 'int8',
      book: type === 'fp4' ? PublishedCodebookId.fp4 : PublishedCodebookId.nf4,
      blockSize: type === 'int8' ? columns : blockSize,
      outerSize,
      offset,
      to: ElementTypeId[to],
    };
    return core.withRecord(BitsAndBytesRecord, record, (codes) =>
      core.withRecord(StoredRecord, stored, (at) =>
        decodeTile(core, arena, (...addresses) => core.models.decodeBitsAndBytes(at, codes, ...addresses)),
      ),
    );
  },

  checks: (_shape, { outerSize }, role): readonly BitCheck[] =>
    role === 'outerScale' || role === 'table' || (role === 'scale' && outerSize === 0)
      ? floatsFinite('F32', 'scale')
      : [],
};
