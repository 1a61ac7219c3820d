/**
 * Codes of 4 bits with a scale for each 32 neighbors in a row, as MLC-LLM stores them for WebLLM: `X.weight` becomes
 *   X.q_weight   uint32 words, [..., columns / 8], lowest bits first
 *   X.q_scale    one for each group, float16; of q4f32_1, float32 that is stored as bfloat16
 * Reference: github.com/mlc-ai/mlc-llm at 01ced331. The arithmetic is in cpp/codecs/mlc.cpp.
 */
import { ElementTypeId, MlcRecord } from '../../core/door.js';
import { codecInCore } from './calls.js';
import { floatsFinite } from './checks.js';
import type { Codec, Form } from './codec.js';
import { cutsAlong, elementPart, elementRuns, rowGrid } from './elements.js';

/** Neighbors in a row that share a scale. */
export const mlcGroup = 32;

export interface MlcForm extends Form {
  readonly codec: 'mlc';
  /** The type that MLC computes in. */
  readonly floats: 'F16' | 'F32';
  /** Undefined: MLC's own rule. */
  readonly search?: 'best' | undefined;
}

/** The type in which scales are stored. It has two bytes. */
const scaleType = ({ floats }: MlcForm) => (floats === 'F16' ? 'F16' : 'BF16');

const codeGrid = (shape: readonly number[]) => rowGrid(shape, mlcGroup);

export const mlcCodec: Codec<MlcForm> = codecInCore(MlcRecord, {
  id: 'mlc',
  label: () => 'I4',

  parts(shape, form) {
    const [rows, columns = 1] = [shape.slice(0, -1), shape.at(-1)];
    return [
      elementPart('data', '.q_weight', 'U32', [...rows, columns / 8], '.weight'),
      elementPart('scale', '.q_scale', scaleType(form), [...rows, columns / mlcGroup], '.weight'),
    ];
  },

  grid: codeGrid,
  runs: (_shape, _form, role, rectangle) =>
    elementRuns((n) => (role === 'data' ? n / 2 : (n / mlcGroup) * 2), rectangle),
  cuts: cutsAlong(codeGrid),
  feedbackGroups: () => ({ group: mlcGroup, outer: 0 }),
  checks: (_shape, form, role) => (role === 'data' ? [] : floatsFinite(scaleType(form), 'scale')),
  overflow: ({ floats }) => `, too large for ${floats}`,
  record: ({ floats, search }: MlcForm) => ({ floats: ElementTypeId[floats], search: search !== undefined }),
  calls: { encode: 'encodeMlc', feedback: 'encodeMlcWithFeedback', decode: 'decodeMlc' },
});
