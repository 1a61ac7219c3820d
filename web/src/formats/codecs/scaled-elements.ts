/**
 * Elements of eight bits with a scale for the whole matrix, for each row, or for each block of rows and columns. Such tensors are only read.
 * The arithmetic is in cpp/codecs/scaled_elements.cpp.
 */
import { ElementTypeId, ScaledElementsRecord, ScaledTypeId, StoredRecord } from '../../core/door.js';
import { decodeTile, storedRecord } from './calls.js';
import type { CastType } from './cast.js';
import { floatsFinite } from './checks.js';
import type { Codec, Form, Rectangle, Role } from './codec.js';
import { byteRuns, elementsOf } from './elements.js';

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

const scaleBytes = ({ scale }: ScaledForm) => (scale === 'F32' ? 4 : 2);

/** Blocks along an axis of n. */
const blocksOf = (n: number, block: number | undefined) => (block === undefined ? 1 : Math.ceil(n / block));

function partRuns(form: ScaledForm, role: Role, { row, rows, column, columns, width }: Rectangle) {
  if (role === 'data') return byteRuns(row * width + column, columns, rows, width);
  if (role === 'zeroPoint') return byteRuns(0, 1, 1, 1);
  const { blockRows, blockColumns } = form;
  const size = scaleBytes(form);
  const perRow = blocksOf(width, blockColumns);
  const [down, across] = [blocksOf(rows, blockRows), blocksOf(columns, blockColumns)];
  const first = (blockRows === undefined ? 0 : row / blockRows) * perRow;
  const left = blockColumns === undefined ? 0 : column / blockColumns;
  return byteRuns((first + left) * size, across * size, down, perRow * size);
}

export const scaledElements: Codec<ScaledForm> = {
  id: 'scaled-elements',
  label: ({ type }) => type,

  parts(shape, form) {
    const [rows = 0, ...inner] = shape;
    const scales = [blocksOf(rows, form.blockRows), blocksOf(elementsOf(inner), form.blockColumns)];
    const bytes = elementsOf(scales) * scaleBytes(form);
    return [
      { role: 'data', suffix: '', dtype: form.type, shape, bytes: elementsOf(shape) },
      { role: 'scale', suffix: '_scale', dtype: form.scale, shape: scales, bytes },
      ...(form.hasZeroPoint
        ? [{ role: 'zeroPoint', suffix: '_zero_point', dtype: form.type, shape: scales, bytes: 1 }]
        : []),
    ];
  },

  grid: ([rows = 1], { blockRows = 1, blockColumns = 1 }) => ({ rows, rowUnit: blockRows, columnUnit: blockColumns }),
  runs: (_shape, form, role, rectangle) => partRuns(form, role, rectangle),
  cuts() {
    throw new Error('scalepoint: elements with scales are only read');
  },

  decode(core, { rows, columns, parts }, form, arena) {
    const rectangle = { row: 0, rows, column: 0, columns, width: columns };
    const stored = storedRecord(rows, columns, parts, (role) => {
      const { bytes, count } = partRuns(form, role, rectangle);
      return bytes * count;
    });
    const { type, scale, blockRows = 0, blockColumns = 0, hasZeroPoint = false } = form;
    const record = { type: ScaledTypeId[type], scale: ElementTypeId[scale], blockRows, blockColumns, hasZeroPoint };
    return core.withRecord(ScaledElementsRecord, record, (elements) =>
      core.withRecord(StoredRecord, stored, (at) =>
        decodeTile(core, arena, (...addresses) => core.models.decodeScaledElements(at, elements, ...addresses)),
      ),
    );
  },

  checks: (_shape, { scale, type }, role) =>
    role === 'scale'
      ? floatsFinite(scale, 'scale')
      : floatsFinite(type, 'element').map((c) => ({ ...c, isProblem: true })),
};
