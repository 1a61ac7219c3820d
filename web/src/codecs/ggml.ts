/** Blocks of ggml along the last dimension. The arithmetic is that of cpp/codecs/ggml.cpp. */
import { type BlockType, blockTypeInfo } from '../core/blocks.js';
import { Status } from '../core/door.js';
import type { Core } from '../core/wasm.js';
import type { Codec, Form, Problem } from './codec.js';
import {
  addErrors,
  bytesOf,
  check,
  clearSums,
  cutFlat,
  elementsOf,
  floats,
  nonFinite,
  nothing,
  placeOfElements,
  sumsOf,
} from './elements.js';

export interface GgmlForm extends Form {
  readonly codec: 'ggml';
  readonly to: BlockType;
}

/** The element of largest magnitude in the first block whose scale overflows, among `count` elements from `start` on. */
function overflowIn(core: Core, x: number, start: number, count: number, to: BlockType): Problem {
  const { module, scratch } = core;
  const { id, elements } = blockTypeInfo(to);
  for (let at = start; at < start + count; at += elements) {
    if (module.quantizeBlocks(x + at * 4, elements, id, scratch.y) === Status.ok) continue;
    const block = module.HEAPF32.subarray(x / 4 + at, x / 4 + at + elements);
    const worst = block.reduce((best, v, i) => (Math.abs(v) > Math.abs(block[best] as number) ? i : best), 0);
    return { kind: 'overflow', index: at + worst, value: block[worst] as number };
  }
  throw new Error('blocks overflow together, but none of them alone does');
}

export const ggml: Codec<GgmlForm> = {
  id: 'ggml',

  label: ({ to }) => to,

  parts(shape, { to }) {
    return [{ role: 'data', suffix: '', dtype: to, shape, bytes: bytesOf(to, elementsOf(shape)) }];
  },

  grid: (_shape, { to }) => ({ rows: undefined, rowUnit: 1, columnUnit: blockTypeInfo(to).elements }),

  place: (_shape, { to }, _role, rectangle) => placeOfElements((n) => bytesOf(to, n), rectangle),

  cuts: (shape, _form, roles) => cutFlat(elementsOf(shape), roles),

  elementType: ({ to }) => to,

  overflow: ({ to }) => `, whose block of ${to} would need a scale beyond float16`,

  encode(core, tile, { to }, arena) {
    const { rows, columns, type, source, measures } = tile;
    const n = rows * columns;
    const x = floats(core, arena, type, source, n);
    const bytes = bytesOf(to, n);
    const out = arena.take(bytes);
    if (arena.onlyCounts) return nothing;
    const { module, scratch } = core;
    const { id } = blockTypeInfo(to);
    clearSums(core);
    // In steps that stay in the cache.
    for (let start = 0; start < n; start += scratch.elements) {
      const count = Math.min(scratch.elements, n - start);
      const target = out + bytesOf(to, start);
      const status = module.quantizeBlocks(x + start * 4, count, id, target);
      if (status === Status.nonFinite) return { parts: {}, problem: nonFinite(core, x, n, type, source) };
      if (status === Status.overflow) return { parts: {}, problem: overflowIn(core, x, start, count, to) };
      check(status);
      if (!measures) continue;
      check(module.dequantizeBlocks(target, count, id, scratch.y));
      addErrors(core, x + start * 4, scratch.y, count);
    }
    return { parts: { data: { address: out, bytes } }, ...(measures ? { sums: sumsOf(core) } : {}) };
  },

  decode(core, { rows, columns, parts }, { to }, arena) {
    return floats(core, arena, to, parts.data as number, rows * columns);
  },
};
