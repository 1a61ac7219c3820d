/**
 * Weights with adapters of low rank, such as LoRA: floats or codes of a base, to which products of two narrow matrices are added when they are
 * read. Such tensors are only read. The arithmetic is in cpp/codecs/low_rank.cpp.
 */
import { ElementTypeId, LowRankRecord, StatusId } from '../../core/door.js';
import { ScalepointError } from '../../core/errors.js';
import { checkCall } from './calls.js';
import { type CastType, castTypeOf } from './cast.js';
import type { BitCheck } from './checks.js';
import type { ByteRuns, Codec, Form, Rectangle, Role } from './codec.js';
import { byteRuns, bytesOfElements, elementsOf, multipleOf } from './elements.js';

/** Float types of an adapter's matrices. */
export type LowRankType = keyof typeof ElementTypeId;

/** True for a type of an adapter's matrices. */
export const isLowRankType = (dtype: string): dtype is LowRankType => Object.hasOwn(castTypeOf, dtype);

/** Roles of the matrices of an adapter by its place in the form. */
export const lowRankRoles = (index: number) => ({
  up: `up${index}`,
  down: `down${index}`,
  middle: `middle${index}`,
  magnitude: `magnitude${index}`,
});

type Matrix = keyof ReturnType<typeof lowRankRoles>;

/** The two matrices of an adapter for a weight [rows, columns]: up [rows, rank] and down [rank, columns]. */
export interface LowRankPair {
  readonly rank: number;
  readonly up: LowRankType;
  readonly down: LowRankType;
  /** True if the file has the transposes of both. */
  readonly turned: boolean;
  /**
   * The middle [rank, inner, kernel] of a convolution in three steps (LoCon). Down is then [inner, columns / kernel], and belongs to all columns.
   */
  readonly middle?: { readonly type: LowRankType; readonly inner: number; readonly kernel: number } | undefined;
  readonly strength: number;
  readonly alpha: number;
  /** True if alpha is divided by the root of the rank. */
  readonly root: boolean;
  /** DoRA: the type of the magnitudes of rows. */
  readonly magnitude?: LowRankType | undefined;
}

export interface LowRankForm extends Form {
  readonly codec: 'low-rank';
  /** The form of the weight without adapters. */
  readonly base: Form;
  /** The weight as a matrix: the first dimension, and all others. */
  readonly rows: number;
  readonly columns: number;
  /** Type of the floats that the weight is stored as where a target does not say. */
  readonly floats: CastType;
  /** Row length of the tensor, if it differs from that of the weight. Both have the same elements in the same order. */
  readonly rowLength?: number | undefined;
  /** In the order in which they are added. */
  readonly pairs: readonly LowRankPair[];
}

/** The pair and the matrix that a role names; undefined for parts of the base. */
function adapterMatrix(form: LowRankForm, role: Role): { pair: LowRankPair; matrix: Matrix } | undefined {
  const [, matrix, index] = /^(up|down|middle|magnitude)(\d+)$/.exec(role) ?? [];
  const pair = form.pairs[Number(index)];
  return matrix === undefined || pair === undefined ? undefined : { pair, matrix: matrix as Matrix };
}

/** A rectangle of a tensor in rows of another length, in those of the weight. It fills whole rows of both. */
function inMatrix({ columns: width, rowLength }: LowRankForm, rectangle: Rectangle): Rectangle {
  if (rowLength === undefined) return rectangle;
  const [row, rows] = [(rectangle.row * rowLength) / width, (rectangle.rows * rowLength) / width];
  return { row, rows, column: 0, columns: width, width };
}

/** The bytes of a matrix of an adapter for a rectangle of the weight. @param all rows and columns of the weight in the file */
function adapterRuns(
  pair: LowRankPair,
  matrix: Matrix,
  { row, rows, column, columns }: Rectangle,
  all: Pick<LowRankForm, 'rows' | 'columns'>,
): ByteRuns {
  const { rank, turned, middle } = pair;
  if (matrix === 'magnitude') {
    const size = bytesOfElements(pair.magnitude as LowRankType, 1);
    return byteRuns(row * size, rows * size);
  }
  if (middle !== undefined && matrix !== 'up') {
    const { type, inner, kernel } = middle;
    const bytes =
      matrix === 'middle'
        ? bytesOfElements(type, rank * inner * kernel)
        : bytesOfElements(pair.down, (inner * all.columns) / kernel);
    return byteRuns(0, bytes);
  }
  const size = bytesOfElements(pair[matrix as 'up' | 'down'], 1);
  const [first, count, whole] = matrix === 'up' ? [row, rows, all.rows] : [column, columns, all.columns];
  // The file holds the ranks of each row or column together, or the rows or columns of each rank.
  const isTogether = (matrix === 'up') !== turned;
  return isTogether
    ? byteRuns(first * rank * size, count * rank * size)
    : byteRuns(first * size, count * size, rank, whole * size);
}

/** Makes the codec. @param codecOf gives the codecs of bases */
export function lowRankCodec(codecOf: (form: Form) => Codec): Codec<LowRankForm> {
  return {
    id: 'low-rank',
    label: ({ base }) => codecOf(base).label(base),
    parts: (_shape, { base, rows, columns }) => codecOf(base).parts([rows, columns], base),

    grid(shape, { base, rows, columns, rowLength, pairs }) {
      const own = codecOf(base).grid([rows, columns], base);
      if (rowLength !== undefined) {
        // Both have whole rows where the row lengths meet.
        const unit = multipleOf([rowLength, own.rowUnit * columns]);
        return { rows: elementsOf(shape) / rowLength, rowUnit: unit / rowLength, columnUnit: rowLength };
      }
      const isWhole = pairs.some(({ middle, magnitude }) => (middle ?? magnitude) !== undefined);
      return { rows, rowUnit: own.rowUnit, columnUnit: isWhole ? columns : own.columnUnit };
    },

    runs(_shape, form, role, given) {
      const rectangle = inMatrix(form, given);
      const found = adapterMatrix(form, role);
      if (found !== undefined) return adapterRuns(found.pair, found.matrix, rectangle, form);
      return codecOf(form.base).runs([form.rows, form.columns], form.base, role, rectangle);
    },

    decode(core, stored, form, arena) {
      const tile = { row: 0, rows: stored.rows, column: 0, columns: stored.columns, width: stored.columns };
      const rectangle = inMatrix(form, tile);
      const { rows, columns } = rectangle;
      const { base, pairs } = form;
      const { decode } = codecOf(base);
      if (decode === undefined) throw new Error(`${base.codec} cannot be read as floats`);
      let x = decode(core, { rows, columns, parts: stored.parts }, base, arena);
      // The floats of the base may be those that were read, which are not to change.
      const y = arena.take(4 * rows * columns);
      for (const [i, pair] of pairs.entries()) {
        const roles = lowRankRoles(i);
        const part = (matrix: Matrix) => {
          const data = stored.parts[roles[matrix]];
          if (data === undefined) return { data: 0, size: 0 };
          const { bytes, count } = adapterRuns(pair, matrix, rectangle, rectangle);
          return { data, size: bytes * count };
        };
        const { rank, turned, strength, alpha, root, middle, magnitude } = pair;
        const record = {
          rank,
          upType: ElementTypeId[pair.up],
          downType: ElementTypeId[pair.down],
          middleType: ElementTypeId[middle?.type ?? pair.down],
          up: part('up'),
          down: part('down'),
          middle: part('middle'),
          inner: middle?.inner ?? 0,
          kernel: middle?.kernel ?? 1,
          turned,
          strength,
          alpha,
          root,
          magnitude: part('magnitude'),
          magnitudeType: ElementTypeId[magnitude ?? pair.down],
        };
        const from = x;
        const status = core.withRecord(LowRankRecord, record, (at) =>
          core.models.addLowRank(from, rows, columns, at, arena.address, y),
        );
        if (status === StatusId.badScale) {
          const message = `an adapter counts ${strength} * ${alpha} / ${rank} times, which float32 cannot hold`;
          throw new ScalepointError('BAD_FILE', message);
        }
        if (status === StatusId.badRange)
          throw new ScalepointError(
            'BAD_FILE',
            'an adapter (DoRA) gives a magnitude to a row whose norm is 0 in float32',
          );
        checkCall(status);
        x = y;
      }
      return x;
    },

    checks: (_shape, form, role): readonly BitCheck[] => {
      if (adapterMatrix(form, role) !== undefined) return [];
      return codecOf(form.base).checks?.([form.rows, form.columns], form.base, role) ?? [];
    },
  };
}
