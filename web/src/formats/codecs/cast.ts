/** Casts floats to another type. The arithmetic is in cpp/codecs/cast.cpp. */
import { CastRecord, ElementTypeId } from '../../core/door.js';
import { codecInCore, elementFloats, observeElements } from './calls.js';
import { floatsFinite } from './checks.js';
import type { Codec, Form } from './codec.js';
import {
  bytesOfElements,
  changesElements,
  cutsAlong,
  type ElementChange,
  elementPart,
  elementRuns,
} from './elements.js';

/** Float types that tensors are cast to. */
export type CastType = 'F32' | 'F16' | 'BF16';

/** The type that holds the values of each float type: 8 bits are exact in float16; F64 is rounded to float32, the largest that is written. */
export const castTypeOf: Readonly<Record<string, CastType>> = {
  F32: 'F32',
  F16: 'F16',
  BF16: 'BF16',
  F64: 'F32',
  F8_E4M3: 'F16',
  F8_E5M2: 'F16',
};

/** F64 and the 8-bit types can be read, but not written. Elements do not depend on `importance`. */
export interface CastForm extends Form, ElementChange {
  readonly codec: 'cast';
  readonly to: CastType | 'F64' | 'F8_E4M3' | 'F8_E5M2';
  /** True: values beyond the type become its largest value. @defaultValue false: they are errors */
  readonly saturate?: boolean;
}

/** Elements can be cut anywhere. */
const anywhere = () => ({ rows: undefined, rowUnit: 1, columnUnit: 1 });

export const cast: Codec<CastForm> = {
  ...codecInCore(CastRecord, {
    id: 'cast',
    isPlain: true,
    label: ({ to }) => to,
    parts: (shape, { to }) => [elementPart('data', '', to, shape)],
    grid: anywhere,
    runs: (_shape, { to }, _role, rectangle) => elementRuns((n) => bytesOfElements(to, n), rectangle),
    cuts: cutsAlong(anywhere),
    // Elements that change cannot be used as they are stored.
    elementType: (form) => (changesElements(form) ? undefined : form.to),
    checks: (_shape, { to }) => floatsFinite(to, 'element'),
    overflow: ({ to }) => `, too large for ${to}`,
    record: ({ to, saturate = false }: CastForm) => ({ to: ElementTypeId[to], saturate }),
    calls: { encode: 'encodeCast' },
  }),

  // Each tile of a SetsCut is a set, and its pair of numbers the sum of its magnitudes.
  observe(_core, tile, _form, arena) {
    const { type, rows, columns, source } = tile;
    const { range, ...problem } = observeElements(arena, { type, rows, columns, source }, 'sumMagnitudesOfTile');
    return { sets: Float32Array.from(range), ...problem };
  },

  decode(_core, { rows, columns, parts }, { to, add, negativeExp, ternary, factor, rowFactors, columnFactors }, arena) {
    const elements = { type: to, rows, columns, source: Number(parts.data) };
    return elementFloats(arena, { ...elements, add, negativeExp, ternary, factor, rowFactors, columnFactors });
  },
};
