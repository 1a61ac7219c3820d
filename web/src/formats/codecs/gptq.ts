/**
 * Codes with scales as GPTQ and AWQ store them, whose matrices are transposed: `X.weight` [N, K] of a layer is stored as
 *   X.qweight  int32 words: GPTQ [K * bits / 32, N], each of neighbors in a row of the weight; AWQ [K, N / 8], each of neighbors in a column
 *   X.qzeros   zero points [K / group, N * bits / 32]; GPTQ's first version stores them minus 1
 *   X.scales   [K / group, N]
 *   X.g_idx    GPTQ only: the group of each column
 * Reference: github.com/AutoGPTQ/AutoGPTQ at 9f7d3707, casper-hansen/AutoAWQ at 88e4c76b. The arithmetic is in cpp/codecs/gptq.cpp.
 */
import { ElementTypeId, GptqRecord, StoredRecord } from '../../core/door.js';
import { decodeTile, encodeTileByInputs, storedRecord } from './calls.js';
import type { CastType } from './cast.js';
import { type BitCheck, floatsFinite } from './checks.js';
import { type Codec, type Cuts, columnTileElements, type Form, type Part, type Rectangle, type Role } from './codec.js';
import { byteRuns } from './elements.js';

/** Bits of codes that the layout of GPTQ has. */
export type GptqWidth = 2 | 3 | 4 | 8;

export interface GptqForm extends Form {
  readonly codec: 'gptq';
  /** 4 in the layout of AWQ. */
  readonly bits: GptqWidth;
  /** The words: those of GPTQ hold neighbors in a row, those of AWQ neighbors in a column. */
  readonly words: 'gptq' | 'awq';
  /** Number of groups in a row. */
  readonly groups: number;
  /** Elements of a row that share a scale; the last group may be shorter. */
  readonly groupSize: number;
  /** True if zero points are stored minus 1. */
  readonly lessOne: boolean;
  /** True if a part has the group of each column. It is read, and in order when written. */
  readonly grouped: boolean;
  /** True for zero points in the middle of the codes. For writing. */
  readonly symmetric: boolean;
  /** F16 for writing. */
  readonly scale: CastType;
  /** Undefined: from the smallest to the largest value. For writing. */
  readonly range?: 'mse' | undefined;
  /** Weights of the squared errors of each column. Scales are then searched for. */
  readonly importance?: Float32Array<ArrayBuffer> | undefined;
}

/** Rows whose codes or zero points share words. */
export function gptqRowUnit({ words, bits }: Pick<GptqForm, 'words' | 'bits'>): number {
  if (words === 'awq') return 8;
  return bits === 3 ? 32 : 32 / bits;
}

/** Size of the rows of a stored part in bytes, for n outputs, and the number of these rows. */
function linesOf(
  { words, bits, groups, scale }: GptqForm,
  role: Role,
  n: number,
  k: number,
): [bytes: number, rows: number] {
  if (role === 'scale') return [n * (scale === 'F32' ? 4 : 2), groups];
  if (role === 'zeroPoint') return [(n * bits) / 8, groups];
  return words === 'awq' ? [n / 2, k] : [4 * n, (k * bits) / 32];
}

function runsOf([n = 1, k = 1]: readonly number[], form: GptqForm, role: Role, { row, rows }: Rectangle) {
  if (role === 'group') return byteRuns(0, 4 * k, 1, 4 * k);
  const [stride, count] = linesOf(form, role, n, k);
  const [offset] = linesOf(form, role, row, k);
  const [bytes] = linesOf(form, role, rows, k);
  return byteRuns(offset, bytes, count, stride);
}

/** The group of each column, little-endian. */
function groupBytes(k: number, groupSize: number): Uint8Array<ArrayBuffer> {
  const view = new DataView(new ArrayBuffer(4 * k));
  for (let i = 0; i < k; i++) view.setInt32(4 * i, Math.floor(i / groupSize), true);
  return new Uint8Array(view.buffer);
}

function partsOf([n = 1, k = 1]: readonly number[], form: GptqForm): Part[] {
  const { groupSize, grouped, scale } = form;
  const part = (role: Role, suffix: string, dtype: string, unit: number): Part => {
    const [bytes, rows] = linesOf(form, role, n, k);
    return { role, suffix, dtype, shape: [rows, bytes / unit], bytes: bytes * rows, replaces: '.weight' };
  };
  return [
    part('data', '.qweight', 'I32', 4),
    part('zeroPoint', '.qzeros', 'I32', 4),
    part('scale', '.scales', scale, scale === 'F32' ? 4 : 2),
    ...(grouped
      ? [
          {
            role: 'group',
            suffix: '.g_idx',
            dtype: 'I32',
            shape: [k],
            bytes: 4 * k,
            constant: groupBytes(k, groupSize),
            replaces: '.weight',
          },
        ]
      : []),
  ];
}

function* cutsOf([n = 1, k = 1]: readonly number[], form: GptqForm, roles: readonly Role[]): Cuts {
  const unit = gptqRowUnit(form);
  // Rows of words are long in wide tiles.
  const most = Math.max(1, Math.floor(columnTileElements / k / unit)) * unit;
  for (let row = 0; row < n; row += most) {
    const rectangle = { row, rows: Math.min(most, n - row), column: 0, columns: k, width: k };
    yield { kind: 'tile', rectangle, roles };
  }
}

/** The record of a form for the core. @param reads true for codes whose groups a part gives */
function codesOf(form: GptqForm, reads: boolean): GptqRecord {
  const { bits, words, groupSize, lessOne, grouped, symmetric, scale, range } = form;
  return {
    bits,
    groupSize,
    outputs: words === 'awq',
    lessOne,
    grouped: reads && grouped,
    symmetric,
    scale: ElementTypeId[scale],
    search: range !== undefined,
  };
}

export const gptq: Codec<GptqForm> = {
  id: 'gptq',
  label: ({ bits }) => `I${bits}`,
  parts: partsOf,
  grid: ([n = 1, k = 1], form) => ({ rows: n, rowUnit: gptqRowUnit(form), columnUnit: k }),
  runs: runsOf,
  cuts: cutsOf,
  feedbackGroups: (_core, { groupSize }) => ({ group: groupSize, outer: 0 }),

  encode(core, tile, form, arena) {
    return core.withRecord(GptqRecord, codesOf(form, false), (codes) =>
      encodeTileByInputs(core, tile, form.importance, arena, {
        plain: (at, ...rest) => core.models.encodeGptq(at, codes, ...rest),
        fed: (at, moments, ...rest) => core.models.encodeGptqWithFeedback(at, codes, moments, ...rest),
      }),
    );
  },

  decode(core, { rows, columns, parts }, form, arena) {
    const rectangle = { row: 0, rows, column: 0, columns, width: columns };
    const stored = storedRecord(rows, columns, parts, (role) => {
      const { bytes, count } = runsOf([rows, columns], form, role, rectangle);
      return bytes * count;
    });
    return core.withRecord(GptqRecord, codesOf(form, true), (codes) =>
      core.withRecord(StoredRecord, stored, (at) =>
        decodeTile(core, arena, (...addresses) => core.models.decodeGptq(at, codes, ...addresses)),
      ),
    );
  },

  checks: (_shape, { scale }, role): readonly BitCheck[] => (role === 'scale' ? floatsFinite(scale, 'scale') : []),
  overflow: () => ', too large for the scale',
};
