/** Tensors that stay as they are, byte for byte. */
import { encodeTile } from './calls.js';
import { floatsFinite } from './checks.js';
import { type Codec, type Form, tileElements } from './codec.js';
import { cutAlong, elementRuns, elementsOf } from './elements.js';

export interface CopyForm extends Form {
  readonly codec: 'copy';
  readonly dtype: string;
  /** Size of the tensor in bytes. */
  readonly bytes: number;
}

/** Bytes of the float types, in which the core counts NaN and infinities. Other types are cut by bytes. */
const counted: Readonly<Record<string, number>> = { F64: 8, F32: 4, F16: 2, BF16: 2, F8_E4M3: 1, F8_E5M2: 1 };

export const copyCodec: Codec<CopyForm> = {
  id: 'copy',
  isPlain: true,
  label: ({ dtype }) => dtype,
  parts: (shape, { dtype, bytes }) => [{ role: 'data', suffix: '', dtype, shape, bytes }],
  grid: () => ({ rows: undefined, rowUnit: 1, columnUnit: 1 }),
  runs: (_shape, { dtype }, _role, rectangle) => elementRuns((n) => n * (counted[dtype] ?? 1), rectangle),
  cuts: (shape, { dtype, bytes }, roles) =>
    dtype in counted ? cutAlong([], elementsOf(shape), roles) : cutAlong([], bytes, roles, tileElements * 4),
  elementType: ({ dtype }) => dtype,

  checks(_shape, { dtype }) {
    if (dtype !== 'BOOL') return floatsFinite(dtype, 'element');
    const [one, many] = ['element is neither 0 nor 1', 'elements are neither 0 nor 1'];
    return [{ kind: 'notBoolean', unit: 1, at: 0, stride: 1, mask: 0xfe, wrong: 'any', isProblem: true, one, many }];
  },

  encode(core, tile, form, arena) {
    const unit = counted[form.dtype];
    const parts = { data: { address: tile.source, bytes: tile.rows * tile.columns * (unit ?? 1) } };
    if (!tile.measures || unit === undefined) return { parts };
    return { ...encodeTile(arena, tile, {}, (...call) => core.models.encodeCopy(...call)), parts };
  },
};
