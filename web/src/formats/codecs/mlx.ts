/**
 * Codes with a scale and a bias for each group of neighbors in a row, as mlx-lm stores them: `X.weight` becomes
 *   X.weight   uint32 words, [..., columns * bits / 32], codes without gaps, lowest bits first
 *   X.scales   one for each group, of the model's float type
 *   X.biases   likewise
 * Reference: github.com/ml-explore/mlx at 846d1762, mlx-lm at d78bf58e. The arithmetic is in cpp/codecs/mlx.cpp.
 */
import { ElementTypeId, MlxRecord, StoredRecord } from '../../core/door.js';
import { decodeTile, encodeTile, storedRecord } from './calls.js';
import type { CastType } from './cast.js';
import { type BitCheck, floatsFinite } from './checks.js';
import type { Codec, Form, Part, Rectangle, Role } from './codec.js';
import { byteRuns, cutWeighted, elementsOf, rectanglesOf } from './elements.js';

/** Bits of MLX's codes. */
export type MlxWidth = 2 | 3 | 4 | 5 | 6 | 8;
export const mlxWidths: readonly MlxWidth[] = [2, 3, 4, 5, 6, 8];

/** Sizes of groups that MLX has. */
export const mlxGroupSizes: readonly number[] = [32, 64, 128];

export interface MlxForm extends Form {
  readonly codec: 'mlx';
  readonly bits: MlxWidth;
  readonly groupSize: number;
  /** Type of scales and biases. */
  readonly scale: CastType;
  /** Undefined: MLX's own rule. */
  readonly range?: 'mse' | undefined;
  /** With a range: a search that takes longer. */
  readonly search?: 'best' | undefined;
  /** Weights of the squared errors, one for each column of each matrix. The line of a group is then searched for. */
  readonly importance?: Float32Array<ArrayBuffer> | undefined;
}

function partBytes({ bits, groupSize, scale }: MlxForm, role: Role, elements: number): number {
  return role === 'data' ? (elements * bits) / 8 : (elements / groupSize) * (scale === 'F32' ? 4 : 2);
}

function partsOf(shape: readonly number[], form: MlxForm): Part[] {
  const { bits, groupSize, scale } = form;
  const [columns = 1] = shape.slice(-1);
  const rows = shape.slice(0, -1);
  const elements = elementsOf(shape);
  const part = (role: Role, suffix: string, dtype: string, width: number): Part => {
    const bytes = partBytes(form, role, elements);
    const own = { role, suffix, dtype, shape: [...rows, width], bytes };
    return suffix === '' ? own : { ...own, replaces: '.weight' };
  };
  return [
    part('data', '', 'U32', (columns * bits) / 32),
    part('scale', '.scales', scale, columns / groupSize),
    part('zeroPoint', '.biases', scale, columns / groupSize),
  ];
}

function runsOf(form: MlxForm, role: Role, { row, rows, column, columns, width }: Rectangle) {
  const size = (n: number) => partBytes(form, role, n);
  return byteRuns(size(row * width + column), size(columns), rows, size(width));
}

/** Rows of a tensor as a matrix. */
function rowsOf(shape: readonly number[]): number {
  return elementsOf(shape.slice(0, -1));
}

/** The record of a form for the core. */
function codesOf({ bits, groupSize, scale, range, search, importance }: MlxForm): MlxRecord {
  const searches = (range ?? importance) !== undefined;
  return { bits, groupSize, scale: ElementTypeId[scale], search: searches, best: search === 'best' };
}

export const mlx: Codec<MlxForm> = {
  id: 'mlx',
  label: ({ bits }) => `I${bits}`,
  parts: partsOf,
  grid: (shape, { groupSize }) => ({ rows: rowsOf(shape), rowUnit: 1, columnUnit: groupSize }),
  runs: (_shape, form, role, rectangle) => runsOf(form, role, rectangle),

  *cuts(shape, form, roles, source) {
    const elements = elementsOf(shape);
    if (elements === 0) return;
    if (form.importance !== undefined) {
      yield* cutWeighted(shape, form.importance, form, roles, source);
      return;
    }
    const own = { rows: rowsOf(shape), rowUnit: 1, columnUnit: form.groupSize };
    for (const rectangle of rectanglesOf(elements, source === undefined ? [own] : [own, source])) {
      yield { kind: 'tile', rectangle, roles };
    }
  },

  encode(core, tile, form, arena) {
    return core.withRecord(MlxRecord, codesOf(form), (codes) =>
      encodeTile(core, tile, arena, (at, ...rest) => core.models.encodeMlx(at, codes, ...rest), form.importance),
    );
  },

  decode(core, { rows, columns, parts }, form, arena) {
    const rectangle = { row: 0, rows, column: 0, columns, width: columns };
    const stored = storedRecord(rows, columns, parts, (role) => {
      const { bytes, count } = runsOf(form, role, rectangle);
      return bytes * count;
    });
    return core.withRecord(MlxRecord, codesOf(form), (codes) =>
      core.withRecord(StoredRecord, stored, (at) =>
        decodeTile(core, arena, (...addresses) => core.models.decodeMlx(at, codes, ...addresses)),
      ),
    );
  },

  checks: (_shape, { scale }, role): readonly BitCheck[] => (role === 'data' ? [] : floatsFinite(scale, 'scale')),
  overflow: ({ scale }) => `, too large for a scale or a bias of ${scale}`,
};
