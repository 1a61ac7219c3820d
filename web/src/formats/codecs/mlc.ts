/**
 * Codes of 4 bits with a scale for each 32 neighbors in a row, as MLC-LLM stores them for WebLLM: `X.weight` becomes
 *   X.q_weight   uint32 words, [..., columns / 8], lowest bits first
 *   X.q_scale    one for each group, float16; of q4f32_1, float32 that is stored as bfloat16
 * Reference: github.com/mlc-ai/mlc-llm at 01ced331. The arithmetic is in cpp/codecs/mlc.cpp.
 */
import { ElementTypeId, MlcRecord, StoredRecord } from '../../core/door.js';
import { decodeTile, encodeTile, storedRecord } from './calls.js';
import { type BitCheck, floatsFinite } from './checks.js';
import type { Codec, Form, Part, Rectangle, Role } from './codec.js';
import { byteRuns, cutAlong, elementsOf } from './elements.js';

/** Neighbors in a row that share a scale. */
export const mlcGroup = 32;

export interface MlcForm extends Form {
  readonly codec: 'mlc';
  /** The type that MLC computes in. */
  readonly floats: 'F16' | 'F32';
  /** Undefined: MLC's own rule. */
  readonly search?: 'best' | undefined;
}

/** The type in which scales are stored. */
const scaleType = ({ floats }: MlcForm) => (floats === 'F16' ? 'F16' : 'BF16');

/** Bytes of the part of some elements. A scale has two. */
function mlcBytes(role: Role, elements: number): number {
  return role === 'data' ? elements / 2 : (elements / mlcGroup) * 2;
}

function runsOf(role: Role, { row, rows, column, columns, width }: Rectangle) {
  const size = (n: number) => mlcBytes(role, n);
  return byteRuns(size(row * width + column), size(columns), rows, size(width));
}

/** Where codes can be cut. */
function gridOf(shape: readonly number[]) {
  return { rows: elementsOf(shape.slice(0, -1)), rowUnit: 1, columnUnit: mlcGroup };
}

/** The record of a form for the core. */
function codesOf({ floats, search }: MlcForm): MlcRecord {
  return { floats: ElementTypeId[floats], search: search !== undefined };
}

export const mlcCodec: Codec<MlcForm> = {
  id: 'mlc',
  label: () => 'I4',

  parts(shape, form) {
    const [columns = 1] = shape.slice(-1);
    const elements = elementsOf(shape);
    const part = (role: Role, suffix: string, dtype: string, width: number): Part => ({
      role,
      suffix,
      replaces: '.weight',
      dtype,
      shape: [...shape.slice(0, -1), width],
      bytes: mlcBytes(role, elements),
    });
    return [
      part('data', '.q_weight', 'U32', columns / 8),
      part('scale', '.q_scale', scaleType(form), columns / mlcGroup),
    ];
  },

  grid: (shape) => gridOf(shape),
  runs: (_shape, _form, role, rectangle) => runsOf(role, rectangle),

  *cuts(shape, _form, roles, source) {
    const elements = elementsOf(shape);
    if (elements === 0) return;
    const own = gridOf(shape);
    yield* cutAlong(source === undefined ? [own] : [own, source], elements, roles);
  },

  encode(core, tile, form, arena) {
    return core.withRecord(MlcRecord, codesOf(form), (codes) =>
      encodeTile(core, tile, arena, (at, ...rest) => core.models.encodeMlc(at, codes, ...rest)),
    );
  },

  decode(core, { rows, columns, parts }, form, arena) {
    const rectangle = { row: 0, rows, column: 0, columns, width: columns };
    const stored = storedRecord(rows, columns, parts, (role) => {
      const { bytes, count } = runsOf(role, rectangle);
      return bytes * count;
    });
    return core.withRecord(MlcRecord, codesOf(form), (codes) =>
      core.withRecord(StoredRecord, stored, (at) =>
        decodeTile(core, arena, (...addresses) => core.models.decodeMlc(at, codes, ...addresses)),
      ),
    );
  },

  checks: (_shape, form, role): readonly BitCheck[] => (role === 'data' ? [] : floatsFinite(scaleType(form), 'scale')),
  overflow: ({ floats }) => `, too large for ${floats}`,
};
