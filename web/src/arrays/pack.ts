// Dense packing, tile by tile: code i takes the bits [i * bits, (i + 1) * bits).

import type { Status } from '../core/door.js';
import { rangeError } from '../core/errors.js';
import { type Core, checkStatus, forEachTile } from '../core/memory.js';
import { count } from '../core/option-problem.js';
import { Sink } from './sink.js';
import { CodeSource } from './source.js';
import type { CodeArray, DTypeInfo } from './tensor.js';

/** Bytes of n packed codes: ceil(n * bits / 8), without a product that a double does not hold. */
function packedSize(n: number, bits: number): number {
  return Math.floor(n / 8) * bits + Math.ceil(((n % 8) * bits) / 8);
}

/** Packs all codes, tile by tile. `pack` packs some codes from one address to another. */
export function packTiles(
  core: Core,
  codes: CodeSource,
  bits: number,
  pack: (from: number, count: number, to: number, start: number) => Status,
): Uint8Array<ArrayBuffer> {
  const packed = new Sink(core, 'uint8', packedSize(codes.length, bits), undefined, 'out');
  const tile = core.scratch.x;
  forEachTile(codes.length, false, (start, count) => {
    checkStatus(pack(codes.at(start, count), count, tile, start));
    packed.put((start * bits) / 8, packedSize(count, bits), tile);
  });
  return packed.result as Uint8Array<ArrayBuffer>;
}

/** The reverse, for n codes. */
export function unpackTiles(
  core: Core,
  bytes: Uint8Array,
  n: number,
  bits: number,
  storage: DTypeInfo['storage'],
  unpack: (from: number, count: number, to: number) => Status,
): CodeArray {
  const packed = new CodeSource(core, bytes, 'uint8', 'bytes');
  const expected = packedSize(n, bits);
  if (packed.length !== expected) {
    throw rangeError('bytes', count(expected, 'bytes'), packed.length);
  }
  const codes = new Sink(core, storage, n, undefined, 'out');
  const tile = core.scratch.x;
  forEachTile(n, false, (start, count) => {
    const from = packed.at((start * bits) / 8, packedSize(count, bits));
    checkStatus(unpack(from, count, tile));
    codes.put(start, count, tile);
  });
  return codes.result as CodeArray;
}
