/** Blocks of ggml along the last dimension. The arithmetic is that of cpp/codecs/ggml.cpp. */
import { type BlockType, blockTypeInfo } from '../core/blocks.js';
import { BlockSearch, Ggml } from '../core/door.js';
import { encodeTile, floats } from './calls.js';
import { type BitCheck, blockFinite } from './checks.js';
import type { Codec, Form } from './codec.js';
import { bytesOf, cutFlat, cutWeighted, elementRuns, elementsOf } from './elements.js';

export interface GgmlForm extends Form {
  readonly codec: 'ggml';
  readonly to: BlockType;
  /** The weights of the squared errors, one for each column of each matrix, one matrix after the other. */
  readonly importance?: Float32Array<ArrayBuffer>;
  /** Whether to search for lower errors than ggml does. */
  readonly best?: boolean;
}

/** The floats of a block. */
interface BlockFloat {
  readonly type: 'F16' | 'F8_E8M0';
  readonly what: string;
  /** Its offset in the block, in bytes. */
  readonly at: number;
}

const scaleAt = (at: number): BlockFloat => ({ type: 'F16', what: 'block scale', at });
const minimumAt = (at: number): BlockFloat => ({ type: 'F16', what: 'block minimum', at });

/** Offsets of the floats of blocks. Source: github.com/ggml-org/llama.cpp, ggml/src/ggml-common.h. */
const blockFloats: Readonly<Record<BlockType, readonly BlockFloat[]>> = {
  Q4_0: [scaleAt(0)],
  Q4_1: [scaleAt(0), minimumAt(2)],
  Q5_0: [scaleAt(0)],
  Q5_1: [scaleAt(0), minimumAt(2)],
  Q8_0: [scaleAt(0)],
  Q2_K: [scaleAt(80), minimumAt(82)],
  Q3_K: [scaleAt(108)],
  Q4_K: [scaleAt(0), minimumAt(2)],
  Q5_K: [scaleAt(0), minimumAt(2)],
  Q6_K: [scaleAt(208)],
  IQ2_XXS: [scaleAt(0)],
  IQ2_XS: [scaleAt(0)],
  IQ3_XXS: [scaleAt(0)],
  IQ1_S: [scaleAt(0)],
  IQ4_NL: [scaleAt(0)],
  IQ3_S: [scaleAt(0)],
  IQ2_S: [scaleAt(0)],
  IQ4_XS: [scaleAt(0)],
  IQ1_M: [],
  TQ1_0: [scaleAt(52)],
  TQ2_0: [scaleAt(64)],
  MXFP4: [{ type: 'F8_E8M0', what: 'block scale', at: 0 }],
  Q1_0: [scaleAt(0)],
  Q2_0: [scaleAt(0)],
};

/** The scale of IQ1_M is in the top four bits of the last four words of the block. The mask holds the bits of its exponent. */
const scatteredScale: BitCheck = {
  ...blockFinite('F16', 'block scale', 0, 0),
  unit: 4,
  at: 52,
  stride: 56,
  mask: 0x7000c000,
};

export const ggml: Codec<GgmlForm> = {
  id: 'ggml',

  label: ({ to }) => to,

  parts(shape, { to }) {
    return [{ role: 'data', suffix: '', dtype: to, shape, bytes: bytesOf(to, elementsOf(shape)) }];
  },

  grid: (_shape, { to }) => ({ rows: undefined, rowUnit: 1, columnUnit: blockTypeInfo(to).elements }),

  runs: (_shape, { to }, _role, rectangle) => elementRuns((n) => bytesOf(to, n), rectangle),

  cuts: (shape, form, roles) =>
    form.importance === undefined
      ? cutFlat(elementsOf(shape), roles)
      : cutWeighted(shape, form.importance, form, roles),

  codes: (shape, { to }, { data }) => data && { kind: 'blocks', type: to, shape, data },

  elementType: ({ to }) => to,

  checks(_shape, { to }) {
    const { bytes } = blockTypeInfo(to);
    if (to === 'IQ1_M') return [scatteredScale];
    return blockFloats[to].map(({ type, what, at }) => blockFinite(type, what, at, bytes));
  },

  overflow: ({ to }) => `, whose block of ${to} would need a scale beyond float16`,

  encode(core, tile, { to, importance, best = false }, arena) {
    const search = best ? BlockSearch.best : BlockSearch.usual;
    return core.withRecord(Ggml, { to: blockTypeInfo(to).id, search }, (blocks) =>
      encodeTile(core, tile, arena, (at, ...room) => core.models.encodeGgml(at, blocks, ...room), importance),
    );
  },

  decode(core, { rows, columns, parts }, { to }, arena) {
    return floats(core, arena, to, rows, columns, parts.data as number);
  },
};
