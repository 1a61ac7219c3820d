/** Blocks of ggml along the last dimension. The arithmetic is in cpp/codecs/ggml.cpp. */
import { type BlockType, blockFacts, blockTypeInfo } from '../../core/blocks.js';
import { BlockSearchId, FeedbackGroupsRecord, GgmlRecord, ScaleFormId } from '../../core/door.js';
import { codecInCore, elementFloats } from './calls.js';
import { blockFinite } from './checks.js';
import type { Codec, Form } from './codec.js';
import { bytesOfElements, cutAlong, cutWeighted, elementPart, elementRuns, elementsOf } from './elements.js';

export interface GgmlForm extends Form {
  readonly codec: 'ggml';
  readonly to: BlockType;
  /** True: searches for lower errors than ggml. */
  readonly best?: boolean;
}

export const ggml: Codec<GgmlForm> = {
  ...codecInCore(GgmlRecord, {
    id: 'ggml',
    label: ({ to }) => to,
    parts: (shape, { to }) => [elementPart('data', '', to, shape)],
    grid: (_shape, { to }) => ({ rows: undefined, rowUnit: 1, columnUnit: blockTypeInfo(to).elements }),
    runs: (_shape, { to }, _role, rectangle) => elementRuns((n) => bytesOfElements(to, n), rectangle),

    // Codes of other layouts are cut at their rows and groups.
    cuts: (shape, form, roles, source) =>
      form.importance === undefined
        ? cutAlong([source, ggml.grid(shape, form)], elementsOf(shape), roles)
        : cutWeighted(shape, form.importance, form, roles, source),

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

  decode(core, { rows, columns, parts }, { to }, arena) {
    return elementFloats(core, arena, to, rows, columns, parts.data as number);
  },
};
