/** Blocks of ggml along the last dimension. The arithmetic is that of cpp/codecs/ggml.cpp. */
import { type BlockType, blockTypeInfo } from '../core/blocks.js';
import { Ggml } from '../core/door.js';
import { encodeTile, floats } from './calls.js';
import type { Codec, Form } from './codec.js';
import { bytesOf, cutFlat, elementsOf, placeOfElements } from './elements.js';

export interface GgmlForm extends Form {
  readonly codec: 'ggml';
  readonly to: BlockType;
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

  codes: (shape, { to }, { data }) => data && { kind: 'blocks', type: to, shape, data },

  elementType: ({ to }) => to,

  overflow: ({ to }) => `, whose block of ${to} would need a scale beyond float16`,

  encode(core, tile, { to }, arena) {
    return core.withRecord(Ggml, { to: blockTypeInfo(to).id }, (blocks) =>
      encodeTile(core, tile, arena, (at, ...room) => core.module.encodeGgml(at, blocks, ...room)),
    );
  },

  decode(core, { rows, columns, parts }, { to }, arena) {
    return floats(core, arena, to, rows, columns, parts.data as number);
  },
};
