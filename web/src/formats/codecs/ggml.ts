/** Blocks of ggml along the last dimension. The arithmetic is in cpp/codecs/ggml.cpp. */
import { type BlockType, blockFacts, blockTypeInfo } from '../../core/blocks.js';
import { BlockSearchId, FeedbackGroupsRecord, GgmlRecord, ScaleFormId } from '../../core/door.js';
import { codecInCore, elementFloats } from './calls.js';
import { blockFinite } from './checks.js';
import type { Codec, Form, Grid } from './codec.js';
import { bytesOfElements, cutsAlong, elementPart, elementRuns } from './elements.js';

export interface GgmlForm extends Form {
  readonly codec: 'ggml';
  readonly to: BlockType;
  /** True: searches for lower errors than ggml. */
  readonly best?: boolean;
}

const blockGrid = (_shape: readonly number[], { to }: GgmlForm): Grid => ({
  rows: undefined,
  rowUnit: 1,
  columnUnit: blockTypeInfo(to).elements,
});

export const ggml: Codec<GgmlForm> = {
  ...codecInCore(GgmlRecord, {
    id: 'ggml',
    label: ({ to }) => to,
    parts: (shape, { to }) => [elementPart('data', '', to, shape)],
    grid: blockGrid,
    runs: (_shape, { to }, _role, rectangle) => elementRuns((n) => bytesOfElements(to, n), rectangle),

    // Codes of other layouts are cut at their rows and groups.
    cuts: cutsAlong(blockGrid),

    record: ({ to, best = false }: GgmlForm) => ({
      to: blockTypeInfo(to).id,
      search: best ? BlockSearchId.best : BlockSearchId.usual,
    }),
    calls: { encode: 'encodeGgml', feedback: 'encodeGgmlWithFeedback' },

    elementType: ({ to }) => to,
    overflow: ({ to }) => `, whose block of ${to} would need a scale beyond float16`,

    /** The scales of blocks are finite, and their minimums. */
    checks(_shape, { to }) {
      const { size, scale } = blockFacts(to);
      const finite = (float: string, what: string, at: number) => blockFinite(float, what, at, size.bytes);
      if (scale.form === ScaleFormId.powerOfTwo) return [finite('F8_E8M0', 'block scale', scale.at)];
      // The exponent lies in the last two of the four words.
      if (scale.form === ScaleFormId.scattered)
        return [{ ...finite('F16', 'block scale', scale.at + 4), unit: 4, mask: 0x7000c000 }];
      const check = finite('F16', 'block scale', scale.at);
      return scale.minimum ? [check, finite('F16', 'block minimum', scale.at + 2)] : [check];
    },

    feedbackGroups(core, { to }) {
      const result = core.pushRecord(FeedbackGroupsRecord);
      core.models.feedbackGroups(blockTypeInfo(to).id, result);
      const groups = FeedbackGroupsRecord.read(core.module, result);
      core.popRecord(result);
      return groups;
    },
  }),

  codes: (shape, { to }, { data }) => data && { kind: 'blocks', type: to, shape, data },

  decode: (_core, { rows, columns, parts }, { to }, arena) =>
    elementFloats(arena, { type: to, rows, columns, source: Number(parts.data) }),
};
