/**
 * Elements of eight bits with a scale for the whole matrix, for each row, or for each block of rows and columns. Such tensors are only read.
 * The arithmetic is in cpp/codecs/scaled_elements.cpp.
 */
import { ElementTypeId, ScaledElementsRecord, ScaledTypeId } from '../../core/door.js';
import { codecInCore } from './calls.js';
import type { CastType } from './cast.js';
import { floatsFinite } from './checks.js';
import type { Codec, Form } from './codec.js';
import { byteRuns, bytesOfElements, elementPart, elementRuns, elementsOf } from './elements.js';

export interface ScaledForm extends Form {
  readonly codec: 'scaled-elements';
  readonly type: keyof typeof ScaledTypeId;
  /** Type of the scales. */
  readonly scale: CastType;
  /** Rows and columns that share a scale; undefined: all of them. */
  readonly blockRows: number | undefined;
  readonly blockColumns: number | undefined;
  /** True for I8 with one scale, and a zero point for all elements. @defaultValue false */
  readonly hasZeroPoint?: boolean | undefined;
  /** Type of the floats that it was made of. */
  readonly floats: CastType;
}

/** Blocks along an axis of n. */
const blocksAlong = (n: number, block: number | undefined) => (block === undefined ? 1 : Math.ceil(n / block));

export const scaledElements: Codec<ScaledForm> = codecInCore(ScaledElementsRecord, {
  id: 'scaled-elements',
  label: ({ type }) => type,

  parts(shape, { type, scale, blockRows, blockColumns, hasZeroPoint }) {
    const [rows = 0, ...inner] = shape;
    const scales = [blocksAlong(rows, blockRows), blocksAlong(elementsOf(inner), blockColumns)];
    return [
      { ...elementPart('data', '', 'I8', shape), dtype: type },
      elementPart('scale', '_scale', scale, scales),
      ...(hasZeroPoint ? [{ ...elementPart('zeroPoint', '_zero_point', 'I8', scales), dtype: type }] : []),
    ];
  },

  grid: ([rows = 1], { blockRows = 1, blockColumns = 1 }) => ({ rows, rowUnit: blockRows, columnUnit: blockColumns }),

  runs(_shape, { blockRows, blockColumns, scale }, role, rectangle) {
    if (role === 'data') return elementRuns((n) => n, rectangle);
    if (role === 'zeroPoint') return byteRuns(0, 1);
    const { row, rows, column, columns, width } = rectangle;
    const size = bytesOfElements(scale, 1);
    const perRow = blocksAlong(width, blockColumns);
    const [down, across] = [blocksAlong(rows, blockRows), blocksAlong(columns, blockColumns)];
    const first = (blockRows === undefined ? 0 : row / blockRows) * perRow;
    const left = blockColumns === undefined ? 0 : column / blockColumns;
    return byteRuns((first + left) * size, across * size, down, perRow * size);
  },

  checks: (_shape, { scale, type }, role) =>
    role === 'scale' ? floatsFinite(scale, 'scale') : floatsFinite(type, 'element', true),

  record: ({ type, scale, blockRows = 0, blockColumns = 0, hasZeroPoint = false }: ScaledForm) => ({
    type: ScaledTypeId[type],
    scale: ElementTypeId[scale],
    blockRows,
    blockColumns,
    hasZeroPoint,
  }),
  calls: { decode: 'decodeScaledElements' },
});
