// Dense packing, tile by tile: code i takes the bits [i * bits, (i + 1) * bits).

import { DTypeRecord, type StatusId } from '../core/door.js';
import { rangeError } from '../core/errors.js';
import { type Core, checkStatus, elementBytes, forEachTile } from '../core/memory.js';
import { exactly } from '../core/option-problem.js';
import type { WasmArray } from '../core/wasm-array.js';
import { type ResultSink, Sink } from './sink.js';
import { type CodeReader, CodeSource } from './source.js';
import type { CodeArray, DTypeInfo } from './tensor.js';

/** Bytes of n packed codes: ceil(n * bits / 8), without a product that a double does not hold. */
function packedSize(n: number, bits: number): number {
  return Math.floor(n / 8) * bits + Math.ceil(((n % 8) * bits) / 8);
}

/** A reader of n packed codes. @throws TypeError or RangeError naming `what` */
function bytesOfCodes(core: Core, bytes: unknown, n: number, bits: number, what: string, to?: number): CodeSource {
  const packed = new CodeSource(core, bytes, 'uint8', what, to);
  const expected = packedSize(n, bits);
  if (packed.length !== expected) throw rangeError(what, exactly(expected, 'bytes'), packed.length);
  return packed;
}

/** Codes of some bits, and the call of the core that packs some of them from one address to another, or unpacks them. */
interface Packing {
  readonly bits: number;
  run(from: number, count: number, to: number, start: number): StatusId;
}

/** Packs all codes, tile by tile. */
export function packTiles(core: Core, codes: CodeReader, out: unknown, { bits, run }: Packing): Uint8Array | WasmArray {
  const packed = new Sink(core, 'uint8', packedSize(codes.length, bits), out, 'out');
  const tile = core.scratch.x;
  forEachTile(codes.length, false, (start, count) => {
    const from = codes.at(start, count);
    const at = (start * bits) / 8;
    checkStatus(run(from, count, packed.at(at, tile), start));
    packed.put(at, packedSize(count, bits), tile);
  });
  return packed.result as Uint8Array | WasmArray;
}

/** Unpacks n codes, tile by tile. */
export function unpackTiles(
  core: Core,
  bytes: unknown,
  out: unknown,
  { n, bits, storage, run }: Packing & { readonly n: number; readonly storage: DTypeInfo['storage'] },
): CodeArray | WasmArray {
  const packed = bytesOfCodes(core, bytes, n, bits, 'bytes');
  const codes = new Sink(core, storage, n, out, 'out');
  const tile = core.scratch.x;
  forEachTile(n, false, (start, count) => {
    const from = packed.at((start * bits) / 8, packedSize(count, bits));
    checkStatus(run(from, count, codes.at(start, tile), start));
    codes.put(start, count, tile);
  });
  return codes.result as CodeArray | WasmArray;
}

/** Calls f with the address of a record of a dtype. */
export function withDType<T>(core: Core, { bits, signed }: DTypeInfo, f: (record: number) => T): T {
  return core.withRecord(DTypeRecord, { bits, isSigned: signed }, f);
}

/** Codes below a byte in front of `element` that share its first byte. */
function codesBefore(element: number, bits: number): number {
  return bits < 8 ? element % 8 : 0;
}

/** Packed codes of a tensor, unpacked tile by tile. */
export class PackedCodes implements CodeReader {
  readonly inPlace = false;
  readonly #bytes: CodeSource;

  /** @throws TypeError or RangeError naming `what` */
  constructor(
    private readonly core: Core,
    data: unknown,
    readonly length: number,
    private readonly info: DTypeInfo,
    what: string,
  ) {
    this.#bytes = bytesOfCodes(core, data, length, info.bits, what, core.scratch.bits);
  }

  at(start: number, count: number): number {
    const { core, info } = this;
    const { bits, storage } = info;
    const before = codesBefore(start, bits);
    const n = before + count;
    const from = this.#bytes.at(((start - before) * bits) / 8, packedSize(n, bits));
    const to = core.scratch.y;
    withDType(core, info, (record) => checkStatus(core.module._unpack(from, n, record, to)));
    return to + before * elementBytes[storage];
  }
}

/** Packs codes that come tile by tile, in order. Keeps those that do not fill a byte for the next tile. */
export class PackedSink implements ResultSink {
  readonly address = undefined;
  readonly #bytes: Sink;
  /** Codes of the last byte that are still to be packed. They lie at the start of the tile. */
  #kept = 0;
  /** Bytes so far. */
  #size = 0;

  /** @throws TypeError or RangeError naming `what` */
  constructor(
    private readonly core: Core,
    private readonly info: DTypeInfo,
    private readonly length: number,
    out: unknown,
    what: string,
  ) {
    this.#bytes = new Sink(core, 'uint8', packedSize(length, info.bits), out, what);
  }

  get result() {
    return this.#bytes.result;
  }

  at(_start: number, tile: number): number {
    return tile + this.#kept;
  }

  put(start: number, count: number, tile: number): void {
    const { core, info } = this;
    const { bits } = info;
    const all = this.#kept + count;
    const end = start + count;
    const kept = end === this.length ? 0 : codesBefore(end, bits);
    const size = packedSize(all - kept, bits);
    const to = this.#bytes.at(this.#size, core.scratch.bits);
    withDType(core, info, (record) => checkStatus(core.module._pack(tile, all - kept, record, to)));
    this.#bytes.put(this.#size, size, to);
    core.module.HEAPU8.copyWithin(tile, tile + all - kept, tile + all);
    this.#kept = kept;
    this.#size += size;
  }
}
