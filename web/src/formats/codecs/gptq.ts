/**
 * Codes with scales as GPTQ and AWQ store them, whose matrices are transposed: `X.weight` [N, K] of a layer is stored as
 *   X.qweight  int32 words: GPTQ [K * bits / 32, N], each of neighbors in a row of the weight; AWQ [K, N / 8], each of neighbors in a column
 *   X.qzeros   zero points [K / group, N * bits / 32]; GPTQ's first version stores them minus 1
 *   X.scales   [K / group, N]
 *   X.g_idx    GPTQ only: the group of each column
 * Reference: github.com/AutoGPTQ/AutoGPTQ at 9f7d3707, casper-hansen/AutoAWQ at 88e4c76b. The arithmetic is in cpp/codecs/gptq.cpp.
 */
import { ElementTypeId, GptqRecord } from '../../core/door.js';
import { codecInCore } from './calls.js';
import type { CastType } from './cast.js';
import { floatsFinite } from './checks.js';
import { type Codec, columnTileElements, type Form, type Role } from './codec.js';
import { byteRuns, bytesOfElements, cutOutputs, elementPart } from './elements.js';

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
}

/** Rows whose codes or zero points share words. */
export function gptqRowUnit({ words, bits }: Pick<GptqForm, 'words' | 'bits'>): number {
  if (words === 'awq') return 8;
  return bits === 3 ? 32 : 32 / bits;
}

/** Size of the rows of a stored part in bytes, for n outputs, and the number of these rows. */
function storedLines(
  { words, bits, groups, scale }: GptqForm,
  role: Role,
  n: number,
  k: number,
): [bytes: number, rows: number] {
  if (role === 'scale') return [bytesOfElements(scale, n), groups];
  if (role === 'zeroPoint') return [(n * bits) / 8, groups];
  return words === 'awq' ? [n / 2, k] : [4 * n, (k * bits) / 32];
}

export const gptq: Codec<GptqForm> = codecInCore(GptqRecord, {
  id: 'gptq',
  label: ({ bits }) => `I${bits}`,

  parts([n = 1, k = 1], form) {
    const { groupSize, grouped, scale } = form;
    const part = (role: Role, suffix: string, dtype: string) => {
      const [bytes, rows] = storedLines(form, role, n, k);
      return elementPart(role, suffix, dtype, [rows, bytes / bytesOfElements(dtype, 1)], '.weight');
    };
    const parts = [
      part('data', '.qweight', 'I32'),
      part('zeroPoint', '.qzeros', 'I32'),
      part('scale', '.scales', scale),
    ];
    if (!grouped) return parts;
    const groups = new DataView(new ArrayBuffer(4 * k));
    for (let i = 0; i < k; i++) groups.setInt32(4 * i, Math.floor(i / groupSize), true);
    const constant = new Uint8Array(groups.buffer);
    return [...parts, { ...elementPart('group', '.g_idx', 'I32', [k], '.weight'), constant }];
  },

  grid: ([n = 1, k = 1], form) => ({ rows: n, rowUnit: gptqRowUnit(form), columnUnit: k }),

  runs([n = 1, k = 1], form, role, { row, rows }) {
    if (role === 'group') return byteRuns(0, 4 * k);
    const [stride, count] = storedLines(form, role, n, k);
    const [offset] = storedLines(form, role, row, k);
    const [bytes] = storedLines(form, role, rows, k);
    return byteRuns(offset, bytes, count, stride);
  },

  // Rows of words are long in wide tiles.
  cuts: (shape, form, roles) => cutOutputs(shape, roles, { unit: gptqRowUnit(form), elements: columnTileElements }),
  feedbackGroups: (_core, { groupSize }) => ({ group: groupSize, outer: 0 }),
  checks: (_shape, { scale }, role) => (role === 'scale' ? floatsFinite(scale, 'scale') : []),
  overflow: () => ', too large for the scale',

  record: (
    { bits, words, groupSize, lessOne, grouped, symmetric, scale, range }: GptqForm,
    { isStored }: { readonly isStored: boolean },
  ) => ({
    bits,
    groupSize,
    outputs: words === 'awq',
    lessOne,
    grouped: isStored && grouped,
    symmetric,
    scale: ElementTypeId[scale],
    search: range !== undefined,
  }),
  calls: { encode: 'encodeGptq', feedback: 'encodeGptqWithFeedback', decode: 'decodeGptq' },
});
