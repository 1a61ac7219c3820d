/** Blocks of ggml along the last dimension. The arithmetic is that of cpp/codecs/ggml.cpp. */
import { type BlockType, blockTypeInfo } from '../core/blocks.js';
import { Ggml } from '../core/door.js';
import { encodeTile, floats, placeFloats } from './calls.js';
import { blockFinite } from './checks.js';
import { type Codec, type Form, type Role, tileElements } from './codec.js';
import { bytesOf, cutFlat, elementsOf, placeOfElements } from './elements.js';

export interface GgmlForm extends Form {
  readonly codec: 'ggml';
  readonly to: BlockType;
  /** What the squared errors of each column count: one number for each, those of several matrices one after the other. */
  readonly importance?: Float32Array<ArrayBuffer>;
}

/** Types whose scales are chosen by their errors, so that it makes a difference which columns are important. */
const weightedTypes: readonly BlockType[] = [
  'Q4_0',
  'Q4_1',
  'Q5_0',
  'Q5_1',
  'Q2_K',
  'Q3_K',
  'Q4_K',
  'Q5_K',
  'Q6_K',
  'IQ4_NL',
  'IQ4_XS',
];

/** The form of blocks, with the importance of the columns if the type takes notice of it. */
export function ggmlForm(to: BlockType, importance?: Float32Array<ArrayBuffer>): GgmlForm {
  return importance === undefined || !weightedTypes.includes(to)
    ? { codec: 'ggml', to }
    : { codec: 'ggml', to, importance };
}

/** Whole rows of one matrix after the other, each with its importance alone: workers are sent no more than they need. */
function* cutRows(
  shape: readonly number[],
  { codec, to, importance = new Float32Array() }: GgmlForm,
  roles: readonly Role[],
) {
  const width = shape.at(-1) as number;
  const matrices = importance.length / width;
  const rows = elementsOf(shape) / width / matrices;
  const most = Math.max(1, Math.floor(tileElements / width));
  for (let matrix = 0; matrix < matrices; matrix++) {
    const form: GgmlForm = { codec, to, importance: importance.slice(matrix * width, (matrix + 1) * width) };
    for (let row = 0; row < rows; row += most) {
      const rectangle = {
        row: matrix * rows + row,
        rows: Math.min(most, rows - row),
        column: 0,
        columns: width,
        width,
      };
      yield { kind: 'tile' as const, rectangle, roles, form };
    }
  }
}

/** The floats of a block. */
interface BlockFloat {
  readonly type: 'F16' | 'F8_E8M0';
  readonly what: string;
  /** Where it is in the block. */
  readonly at: number;
}

const scaleAt = (at: number): BlockFloat => ({ type: 'F16', what: 'block scale', at });
const minimumAt = (at: number): BlockFloat => ({ type: 'F16', what: 'block minimum', at });

/** Where blocks have their floats. Source: github.com/ggml-org/llama.cpp, ggml/src/ggml-common.h. */
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
  IQ4_NL: [scaleAt(0)],
  IQ4_XS: [scaleAt(0)],
  TQ1_0: [scaleAt(52)],
  TQ2_0: [scaleAt(64)],
  MXFP4: [{ type: 'F8_E8M0', what: 'block scale', at: 0 }],
  Q1_0: [scaleAt(0)],
  Q2_0: [scaleAt(0)],
};

export const ggml: Codec<GgmlForm> = {
  id: 'ggml',

  label: ({ to }) => to,

  parts(shape, { to }) {
    return [{ role: 'data', suffix: '', dtype: to, shape, bytes: bytesOf(to, elementsOf(shape)) }];
  },

  grid: (_shape, { to }) => ({ rows: undefined, rowUnit: 1, columnUnit: blockTypeInfo(to).elements }),

  place: (_shape, { to }, _role, rectangle) => placeOfElements((n) => bytesOf(to, n), rectangle),

  cuts: (shape, form, roles) =>
    form.importance === undefined ? cutFlat(elementsOf(shape), roles) : cutRows(shape, form, roles),

  codes: (shape, { to }, { data }) => data && { kind: 'blocks', type: to, shape, data },

  elementType: ({ to }) => to,

  checks(_shape, { to }) {
    const { bytes } = blockTypeInfo(to);
    return blockFloats[to].map(({ type, what, at }) => blockFinite(type, what, at, bytes));
  },

  overflow: ({ to }) => `, whose block of ${to} would need a scale beyond float16`,

  encode(core, tile, { to, importance }, arena) {
    const weights = importance === undefined ? 0 : placeFloats(core, importance, arena);
    return core.withRecord(Ggml, { to: blockTypeInfo(to).id, importance: weights }, (blocks) =>
      encodeTile(core, tile, arena, (at, ...room) => core.module.encodeGgml(at, blocks, ...room)),
    );
  },

  decode(core, { rows, columns, parts }, { to }, arena) {
    return floats(core, arena, to, rows, columns, parts.data as number);
  },
};
