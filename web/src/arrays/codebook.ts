// Codes of a codebook: checks and restores those of a caller.

import { checkNumber, checkOwnShape, checkWhole, sizeOfShape } from '../core/check.js';
import { CodebookJobRecord, DecisionId, maxCodebookSize, StatusId } from '../core/door.js';
import { rangeError, typeError } from '../core/errors.js';
import { type Core, checkStatus, forEachTile } from '../core/memory.js';
import { ofType, whole } from '../core/option-problem.js';
import { typedArrayName } from '../core/realms.js';
import type { WasmArray } from '../core/wasm-array.js';
import { checkBound, checkEach } from './job.js';
import type { GivenTensor, Restore } from './kind.js';
import { packTiles, unpackTiles } from './pack.js';
import { CodeSource, checkAttached, checkUnchanged, parametersOf, type Source } from './source.js';
import type { CodeArray, CodebookTensor } from './tensor.js';

/** Codebook and shape of packed codes, for `unpack`. */
export interface PackedCodebookTensor {
  readonly kind: 'codebook';
  /** The values of the codes, before the multiplication by the absmax of the block. */
  readonly codebook: Float32Array;
  /** Its product is the number of codes. */
  readonly shape: readonly number[];
}

/** Checks the number of values of a codebook: 2 to 256. */
export const checkCount = (n: unknown, what: string): number =>
  checkNumber(n, what, { kind: 'number', whole: true, min: 2, max: maxCodebookSize, unit: 'values' });

/** A copy of a codebook that the caller gave. */
export function valuesOf(given: unknown, what: string): Float32Array<ArrayBuffer> {
  if (typedArrayName(given) !== 'Float32Array') throw typeError(what, ofType('Float32Array'), given);
  checkAttached(given as Float32Array, what);
  const values = Float32Array.from(given as Float32Array);
  checkCount(values.length, what);
  checkEach(values, checkBound, what);
  return values;
}

/** Addresses of the parts of a codebook tensor in wasm memory. */
export interface CodebookAddresses {
  /** A CodebookJob of these parts. */
  readonly job: number;
  readonly codebook: number;
  readonly absmax: number;
}

/** Calls f with memory for a codebook and the absmax of `blocks` blocks. */
export function withCodebookMemory<T>(
  core: Core,
  blocks: number,
  { blockSize, values, decision }: Pick<CodebookJobRecord, 'blockSize' | 'values' | 'decision'>,
  f: (at: CodebookAddresses) => T,
): T {
  return core.withMemory((maxCodebookSize + blocks) * 4, (codebook) => {
    const absmax = codebook + maxCodebookSize * 4;
    return core.withRecord(CodebookJobRecord, { blockSize, absmax, codebook, values, decision }, (job) =>
      f({ job, codebook, absmax }),
    );
  });
}

/** Bits of a packed code: enough for every index of the codebook. */
function bitsOf(count: number): number {
  return Math.ceil(Math.log2(count));
}

/** A tensor of kind 'codebook', checked. */
export class GivenCodebook implements GivenTensor {
  readonly shape: readonly number[];
  readonly length: number;
  readonly inPlace: boolean;
  readonly #core: Core;
  readonly #what: string;
  readonly #codes: CodeSource;
  readonly #values: Float32Array;
  readonly #blockSize: number;
  readonly #absmax: Float32Array;

  constructor(core: Core, q: CodebookTensor, what: string) {
    this.#core = core;
    this.#what = what;
    this.#values = valuesOf(q.codebook, `${what}.codebook`);
    this.#blockSize = checkWhole(q.blockSize, `${what}.blockSize`, 1);
    this.#codes = new CodeSource(core, q.data, 'uint8', `${what}.data`);
    this.length = this.#codes.length;
    this.inPlace = this.#codes.inPlace;
    this.shape = checkOwnShape(q.shape, this.length, `${what}.shape`);
    const blocks = Math.ceil(this.length / this.#blockSize);
    this.#absmax = parametersOf(core, q.absmax, Float32Array, blocks, `${what}.absmax`);
    checkEach(this.#absmax, checkBound, `${what}.absmax`);
  }

  /** Calls f with the address of a CodebookJob of this tensor. */
  #withJob<T>(f: (job: number) => T): T {
    const core = this.#core;
    const record = { blockSize: this.#blockSize, values: this.#values.length, decision: DecisionId.nearest };
    return withCodebookMemory(core, this.#absmax.length, record, ({ job, codebook, absmax }) => {
      checkUnchanged(this.#absmax, Math.ceil(this.length / this.#blockSize), `${this.#what}.absmax`);
      core.module.HEAPF32.set(this.#values, codebook / 4);
      core.module.HEAPF32.set(this.#absmax, absmax / 4);
      return f(job);
    });
  }

  /** @throws RangeError naming the first code without a value in the codebook */
  #failCode(codes: number, count: number, start: number): void {
    const { length } = this.#values;
    const all = this.#core.module.HEAPU8.subarray(codes, codes + count);
    const index = all.findIndex((code) => code >= length);
    if (index < 0) return;
    throw rangeError(`${this.#what}.data[${start + index}]`, whole(0, length - 1), all[index]);
  }

  #check(status: StatusId, codes: number, count: number, start: number): void {
    if (status === StatusId.badRange) this.#failCode(codes, count, start);
    checkStatus(status);
  }

  restore<T>(f: (restore: Restore) => T): T {
    return this.#withJob((job) =>
      f((start, count, to) => {
        const codes = this.#codes.at(start, count);
        this.#check(this.#core.module._dequantizeCodebook(job, codes, count, start, to), codes, count, start);
      }),
    );
  }

  addErrors(x: Source, sums: number): void {
    this.#withJob((job) => {
      forEachTile(x.length, x.inPlace && this.inPlace, (start, count) => {
        const from = x.at(start, count);
        const codes = this.#codes.at(start, count);
        const status = this.#core.module._accumulateCodebookError(job, from, count, start, codes, sums);
        this.#check(status, codes, count, start);
      });
    });
  }

  pack(out: unknown): Uint8Array | WasmArray {
    const { module } = this.#core;
    const { length } = this.#values;
    const bits = bitsOf(length);
    const run = (from: number, count: number, to: number, start: number) => {
      const status = module._packCodebook(from, count, length, bits, to);
      if (status === StatusId.badRange) this.#failCode(from, count, start);
      return status;
    };
    return packTiles(this.#core, this.#codes, out, { bits, run });
  }
}

/** The codes of a tensor of kind 'codebook'. */
export function unpackCodebook(
  core: Core,
  bytes: unknown,
  q: PackedCodebookTensor,
  out: unknown,
): CodeArray | WasmArray {
  const bits = bitsOf(valuesOf(q.codebook, 'q.codebook').length);
  const n = sizeOfShape(q.shape, 'q.shape');
  const run = (from: number, count: number, to: number) => core.module._unpackCodebook(from, count, bits, to);
  return unpackTiles(core, bytes, out, { n, bits, storage: 'uint8', run });
}
