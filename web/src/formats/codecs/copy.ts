/** Tensors that stay as they are, byte for byte. */
import type { Arena } from './arena.js';
import { encodeTile } from './calls.js';
import { floatsFinite } from './checks.js';
import { type Codec, type Form, type Tile, tileElements } from './codec.js';
import { cutFlat, elementRuns, elementsOf } from './elements.js';

export interface CopyForm extends Form {
  readonly codec: 'copy';
  readonly dtype: string;
  /** Size of the tensor in bytes. */
  readonly bytes: number;
}

/** Bytes of the float types, in which the core counts NaN and infinities. Other types are cut by bytes. */
const counted: Readonly<Record<string, number>> = { F64: 8, F32: 4, F16: 2, BF16: 2, F8_E4M3: 1, F8_E5M2: 1 };

/** Bytes of one unit of a rectangle: an element, or a byte. */
function unitOf({ dtype }: CopyForm): number {
  return counted[dtype] ?? 1;
}

export const copyCodec: Codec<CopyForm> = {
  id: 'copy',
  isPlain: true,

  label: ({ dtype }) => dtype,

  parts(shape, { dtype, bytes }) {
    return [{ role: 'data', suffix: '', dtype, shape, bytes }];
  },

  grid: () => ({ rows: undefined, rowUnit: 1, columnUnit: 1 }),

  runs(_shape, form, _role, rectangle) {
    return elementRuns((n) => n * unitOf(form), rectangle);
  },

  cuts(shape, form, roles) {
    if (form.dtype in counted) return cutFlat(elementsOf(shape), roles);
    return cutFlat(form.bytes, roles, tileElements * 4);
  },

  elementType: ({ dtype }) => dtype,

  checks(_shape, { dtype }) {
    if (dtype !== 'BOOL') return floatsFinite(dtype, 'element');
    const [one, many] = ['element is neither 0 nor 1', 'elements are neither 0 nor 1'];
    return [{ kind: 'notBoolean', unit: 1, at: 0, stride: 1, mask: 0xfe, wrong: 'any', isProblem: true, one, many }];
  },

  encode(core, tile: Tile, form, arena: Arena) {
    const { rows, columns, source, measures } = tile;
    const parts = { data: { address: source, bytes: rows * columns * unitOf(form) } };
    if (!measures || !(form.dtype in counted)) return { parts };
    return { ...encodeTile(core, tile, arena, (...call) => core.models.encodeCopy(...call)), parts };
  },
};
