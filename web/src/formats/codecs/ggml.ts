/** Blocks of ggml along the last dimension. The arithmetic is in cpp/codecs/ggml.cpp. */
import { type BlockType, blockFacts, blockTypeInfo } from '../../core/blocks.js';
import { BlockSearchId, FeedbackGroupsRecord, GgmlRecord, ScaleFormId } from '../../core/door.js';
import { encodeTileByInputs, floats } from './calls.js';
import { type BitCheck, blockFinite } from './checks.js';
import type { Codec, Form } from './codec.js';
import { bytesOfElements, cutAlong, cutFlat, cutWeighted, elementRuns, elementsOf } from './elements.js';

export interface GgmlForm extends Form {
  readonly codec: 'ggml';
  readonly to: BlockType;
  /** The weights of the squared errors, one for each column of each matrix, one matrix after the other. */
  readonly importance?: Float32Array<ArrayBuffer>;
  /** True: searches for lower errors than ggml. */
  readonly best?: boolean;
}

/** Checks that the scales of blocks are finite, and their minimums. */
function scaleChecks(type: BlockType): BitCheck[] {
  const { size, scale } = blockFacts(type);
  const finite = (float: string, what: string, at: number) => blockFinite(float, what, at, size.bytes);
  switch (scale.form) {
    case ScaleFormId.powerOfTwo:
      return [finite('F8_E8M0', 'block scale', scale.at)];
    case ScaleFormId.scattered:
      // The exponent lies in the last two of the four words.
      return [{ ...finite('F16', 'block scale', scale.at + 4), unit: 4, mask: 0x7000c000 }];
    case ScaleFormId.float16: {
      const check = finite('F16', 'block scale', scale.at);
      return scale.minimum ? [check, finite('F16', 'block minimum', scale.at + 2)] : [check];
    }
  }
}

export const ggml: Codec<GgmlForm> = {
  id: 'ggml',

  label: ({ to }) => to,

  parts(shape, { to }) {
    return [{ role: 'data', suffix: '', dtype: to, shape, bytes: bytesOfElements(to, elementsOf(shape)) }];
  },

  grid: (_shape, { to }) => ({ rows: undefined, rowUnit: 1, columnUnit: blockTypeInfo(to).elements }),

  runs: (_shape, { to }, _role, rectangle) => elementRuns((n) => bytesOfElements(to, n), rectangle),

  cuts(shape, form, roles, source) {
    if (form.importance !== undefined) return cutWeighted(shape, form.importance, form, roles, source);
    // Codes of other layouts are cut at their rows and groups.
    if (source?.rows === undefined) return cutFlat(elementsOf(shape), roles);
    return cutAlong([source, ggml.grid(shape, form)], elementsOf(shape), roles);
  },

  codes: (shape, { to }, { data }) => data && { kind: 'blocks', type: to, shape, data },

  elementType: ({ to }) => to,

  checks: (_shape, { to }) => scaleChecks(to),

  overflow: ({ to }) => `, whose block of ${to} would need a scale beyond float16`,

  feedbackGroups(core, { to }) {
    const result = core.pushRoom(FeedbackGroupsRecord.bytes);
    core.models.feedbackGroups(blockTypeInfo(to).id, result);
    const groups = FeedbackGroupsRecord.read(core.module, result);
    core.popRecord(result);
    return groups;
  },

  encode(core, tile, { to, importance, best = false }, arena) {
    const search = best ? BlockSearchId.best : BlockSearchId.usual;
    const { models } = core;
    return core.withRecord(GgmlRecord, { to: blockTypeInfo(to).id, search }, (blocks) =>
      encodeTileByInputs(core, tile, importance, arena, {
        plain: (at, ...rest) => models.encodeGgml(at, blocks, ...rest),
        fed: (at, moments, ...rest) => models.encodeGgmlWithFeedback(at, blocks, moments, ...rest),
      }),
    );
  },

  decode(core, { rows, columns, parts }, { to }, arena) {
    return floats(core, arena, to, rows, columns, parts.data as number);
  },
};
