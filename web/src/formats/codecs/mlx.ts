/**
 * Codes with a scale and a bias for each group of neighbors in a row, as mlx-lm stores them: `X.weight` becomes
 *   X.weight   uint32 words, [..., columns * bits / 32], codes without gaps, lowest bits first
 *   X.scales   one for each group, of the model's float type
 *   X.biases   likewise
 * Reference: github.com/ml-explore/mlx at 846d1762, mlx-lm at d78bf58e. The arithmetic is in cpp/codecs/mlx.cpp.
 */
import { ElementTypeId, MlxRecord } from '../../core/door.js';
import { codecInCore } from './calls.js';
import type { CastType } from './cast.js';
import { floatsFinite } from './checks.js';
import type { Codec, Form } from './codec.js';
import { bytesOfElements, cutsAlong, elementPart, elementRuns, rowGrid } from './elements.js';

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
}

const groupGrid = (shape: readonly number[], { groupSize }: MlxForm) => rowGrid(shape, groupSize);

export const mlx: Codec<MlxForm> = codecInCore(MlxRecord, {
  id: 'mlx',
  label: ({ bits }) => `I${bits}`,

  parts(shape, { bits, groupSize, scale }) {
    const [rows, columns = 1] = [shape.slice(0, -1), shape.at(-1)];
    return [
      elementPart('data', '', 'U32', [...rows, (columns * bits) / 32]),
      elementPart('scale', '.scales', scale, [...rows, columns / groupSize], '.weight'),
      elementPart('zeroPoint', '.biases', scale, [...rows, columns / groupSize], '.weight'),
    ];
  },

  grid: groupGrid,
  runs: (_shape, { bits, groupSize, scale }, role, rectangle) =>
    elementRuns((n) => (role === 'data' ? (n * bits) / 8 : bytesOfElements(scale, n / groupSize)), rectangle),
  cuts: cutsAlong(groupGrid),
  feedbackGroups: (_core, { groupSize }) => ({ group: groupSize, outer: 0 }),
  checks: (_shape, { scale }, role) => (role === 'data' ? [] : floatsFinite(scale, 'scale')),
  overflow: ({ scale }) => `, too large for a scale or a bias of ${scale}`,

  record: ({ bits, groupSize, scale, range, search, importance }: MlxForm) => ({
    bits,
    groupSize,
    scale: ElementTypeId[scale],
    search: (range ?? importance) !== undefined,
    best: search === 'best',
  }),
  calls: { encode: 'encodeMlx', feedback: 'encodeMlxWithFeedback', decode: 'decodeMlx' },
});
