/** Floats of another type. The arithmetic is that of cpp/codecs/cast.cpp. */
import type { Core } from '../core/wasm.js';
import type { Arena } from './arena.js';
import type { Codec, Encoded, Form, Tile } from './codec.js';
import {
  addErrors,
  bytesOf,
  check,
  clearSums,
  cutFlat,
  elementsOf,
  firstLost,
  floats,
  nothing,
  placeOfElements,
  sumsOf,
} from './elements.js';

/** Float types that tensors are cast to. */
export type CastType = 'F32' | 'F16' | 'BF16';

/** F64 is only read. */
export interface CastForm extends Form {
  readonly codec: 'cast';
  readonly to: CastType | 'F64';
}

/** Casts n floats at `x` to F16 or BF16 and back, in steps that stay in the cache. */
function castToHalf(core: Core, tile: Tile, to: 'F16' | 'BF16', x: number, out: number): Encoded {
  const { module, scratch } = core;
  const n = tile.rows * tile.columns;
  const narrow = to === 'F16' ? module.narrowFloat16 : module.narrowBfloat16;
  const widen = to === 'F16' ? module.widenFloat16 : module.widenBfloat16;
  for (let start = 0; start < n; start += scratch.elements) {
    const count = Math.min(scratch.elements, n - start);
    check(narrow(x + start * 4, count, out + start * 2));
    check(widen(out + start * 2, count, scratch.y));
    const before = (i: number) => module.HEAPF32[x / 4 + i] as number;
    const problem = firstLost(core, scratch.y - start * 4, start, count, before);
    if (problem !== undefined) return { parts: {}, problem };
    if (tile.measures) addErrors(core, x + start * 4, scratch.y, count);
  }
  return { parts: { data: { address: out, bytes: n * 2 } }, ...(tile.measures ? { sums: sumsOf(core) } : {}) };
}

/** Hands out n floats as they are. A float64 may have been beyond float32. */
function castToFloat(core: Core, { type, source, rows, columns, measures }: Tile, x: number): Encoded {
  const n = rows * columns;
  const { module } = core;
  if (type === 'F64') {
    const problem = firstLost(core, x, 0, n, (i) => module.HEAPF64[source / 8 + i] as number);
    if (problem !== undefined) return { parts: {}, problem: { ...problem, kind: 'beyond float32' } };
  }
  if (measures) addErrors(core, x, x, n);
  return { parts: { data: { address: x, bytes: n * 4 } }, ...(measures ? { sums: sumsOf(core) } : {}) };
}

export const cast: Codec<CastForm> = {
  id: 'cast',

  label: ({ to }) => to,

  parts(shape, { to }) {
    return [{ role: 'data', suffix: '', dtype: to, shape, bytes: bytesOf(to, elementsOf(shape)) }];
  },

  grid: () => ({ rows: undefined, rowUnit: 1, columnUnit: 1 }),

  place: (_shape, { to }, _role, rectangle) => placeOfElements((n) => bytesOf(to, n), rectangle),

  cuts: (shape, _form, roles) => cutFlat(elementsOf(shape), roles),

  elementType: ({ to }) => to,

  overflow: ({ to }) => `, too large for ${to}`,

  encode(core, tile, { to }, arena) {
    const n = tile.rows * tile.columns;
    const x = floats(core, arena, tile.type, tile.source, n);
    const out = to === 'F16' || to === 'BF16' ? arena.take(n * 2) : x;
    if (arena.onlyCounts) return nothing;
    clearSums(core);
    return to === 'F16' || to === 'BF16' ? castToHalf(core, tile, to, x, out) : castToFloat(core, tile, x);
  },

  decode(core, { rows, columns, parts }, { to }, arena: Arena) {
    return floats(core, arena, to, parts.data as number, rows * columns);
  },
};
