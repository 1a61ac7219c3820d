// Non-uniform codes: blocks with a largest size each, and one codebook for all of them.

import { CodebookJob, Decision, maxCodebookSize, PublishedCodebook, Status } from '../core/door.js';
import { ScalepointError } from '../core/errors.js';
import { type Core, checkStatus, tileSize } from '../core/memory.js';
import { article, show } from '../core/show.js';
import { checkKeys, choice } from './options.js';
import {
  CodeSource,
  checkApart,
  checkAttached,
  copyOut,
  type FloatInput,
  forEachTile,
  type HalfFormat,
  Sink,
  type Source,
  sourceOf,
  typedArrayName,
  withResident,
  withWhole,
} from './source.js';
import { type CodebookTensor, checkShape, sizeOfShape, type WasmArray } from './tensor.js';

/** Where the values of the codes come from. */
export type CodebookSource =
  /** The 4-bit codebooks of bitsandbytes, with its decision thresholds. */
  | 'nf4'
  | 'fp4'
  /** 2 to 256 finite values in any order, of which each quotient x / absmax takes the nearest. */
  | Float32Array
  /** So many values, 2 to 256, chosen to make the squared error of these very data small. */
  | { readonly learn: number };

/** Options of `quantizeCodebook`. */
export interface CodebookOptions<Data extends Uint8Array | WasmArray = Uint8Array | WasmArray> {
  codebook: CodebookSource;
  /** Consecutive elements that share an absmax; the last block may be shorter. @defaultValue 64 */
  blockSize?: number;
  /**
   * 'mse': each absmax, and with it a learned codebook, is chosen for the least squared error; it may be negative, so that a codebook
   * with more on one side fits either way. Needs room for all of x in wasm memory.
   * @defaultValue 'min-max': the largest size in the block
   */
  range?: 'min-max' | 'mse';
  /**
   * 'int8': the absmax of 256 blocks each are whole multiples of one bfloat16. `sp.quantize(q.absmax, { dtype: 'int8', shape: [blocks],
   * granularity: { kind: 'per-group', groupSize: 256 } })` then stores them in 8.06 bits each without loss, unless they are below 1e-36.
   * @defaultValue 'float32'
   */
  absmaxType?: 'float32' | 'int8';
  /** Its product is the number of elements. @defaultValue [length] */
  shape?: readonly number[];
  /** The input is a Uint16Array of the bits of such floats. */
  from?: HalfFormat;
  /** A Uint8Array or a WasmArray of uint8 for the codes, one a byte, to fill instead of a fresh one. */
  out?: Data;
}

/** What `unpack` has to know of codes of a codebook. */
export interface PackedCodebookTensor {
  readonly kind: 'codebook';
  readonly codebook: Float32Array;
  readonly shape: readonly number[];
}

const keys = new Set(['codebook', 'blockSize', 'range', 'absmaxType', 'shape', 'from', 'out']);
const smallest = 2;
/** Of a search with a codebook that is learned: how often either follows the other, on how many values, from how many places. */
const rounds = 4;
const sampleSize = 2 ** 18;
const samplePlaces = 64;
export function isCodebook(value: unknown): value is CodebookTensor {
  return typeof value === 'object' && value !== null && (value as { kind?: unknown }).kind === 'codebook';
}

function checkCount(n: unknown, what: string): number {
  if (typeof n !== 'number') throw new TypeError(`${what}: expected a whole number, got ${show(n)}`);
  if (!Number.isInteger(n) || n < smallest || n > maxCodebookSize) {
    throw new RangeError(`${what}: expected ${smallest} to ${maxCodebookSize} values, got ${n}`);
  }
  return n;
}

/** A copy of a codebook that the caller gave. */
function valuesOf(given: unknown, what: string): Float32Array<ArrayBuffer> {
  if (typedArrayName(given) !== 'Float32Array') {
    throw new TypeError(`${what}: expected a Float32Array, got ${show(given)}`);
  }
  checkAttached(given as Float32Array, what);
  const values = Float32Array.from(given as Float32Array);
  checkCount(values.length, what);
  for (const [i, v] of values.entries()) {
    if (!Number.isFinite(v)) throw new RangeError(`${what}[${i}]: expected a finite number, got ${v}`);
  }
  return values;
}

function checkBlockSize(size: unknown, what: string): number {
  if (typeof size !== 'number') throw new TypeError(`${what}: expected a whole number, got ${show(size)}`);
  if (!Number.isSafeInteger(size) || size < 1) {
    throw new RangeError(`${what}: expected a whole number of at least 1, got ${size}`);
  }
  return size;
}

/** A checked `codebook` option. */
type Resolved =
  | { kind: 'values'; values: Float32Array; decision: Decision }
  | { kind: 'published'; values: undefined; number: PublishedCodebook; decision: Decision }
  | { kind: 'learn'; count: number };

function resolve(codebook: unknown): Resolved {
  if (codebook === 'nf4' || codebook === 'fp4') {
    return { kind: 'published', values: undefined, number: PublishedCodebook[codebook], decision: Decision[codebook] };
  }
  if (typeof codebook === 'object' && codebook !== null && 'learn' in codebook) {
    return { kind: 'learn', count: checkCount(codebook.learn, 'codebook.learn') };
  }
  if (typeof codebook === 'string') {
    throw new RangeError(`codebook: expected 'nf4', 'fp4', a Float32Array or { learn }, got ${show(codebook)}`);
  }
  if (!ArrayBuffer.isView(codebook)) {
    throw new TypeError(`codebook: expected 'nf4', 'fp4', a Float32Array or { learn }, got ${show(codebook)}`);
  }
  return { kind: 'values', values: valuesOf(codebook, 'codebook'), decision: Decision.nearest };
}

/** Where the parts of a codebook lie in wasm memory for the time of a call. */
interface Places {
  /** CodebookJob of the door. */
  readonly job: number;
  readonly values: number;
  readonly absmax: number;
}

/** Calls f with memory for a codebook of so many values and the absmax of so many blocks. */
function withPlaces<T>(
  core: Core,
  blocks: number,
  record: Pick<CodebookJob, 'blockSize' | 'values' | 'decision'>,
  f: (at: Places) => T,
): T {
  return core.withMemory((maxCodebookSize + blocks) * 4, (codebook) => {
    const absmax = codebook + maxCodebookSize * 4;
    return core.withRecord(CodebookJob, { ...record, codebook, absmax }, (job) => f({ job, values: codebook, absmax }));
  });
}

/** Neighbouring elements that begin with a block. */
interface Stretch {
  readonly start: number;
  readonly size: number;
}

/** All elements, or some from many places. */
function sampleOf(n: number, blockSize: number): readonly Stretch[] {
  const blocks = Math.ceil(n / blockSize);
  const wanted = Math.max(1, Math.floor(sampleSize / samplePlaces / blockSize));
  if (blocks <= wanted * samplePlaces) return [{ start: 0, size: n }];
  return Array.from({ length: samplePlaces }, (_, i) => {
    const start = Math.floor((i * (blocks - wanted)) / (samplePlaces - 1)) * blockSize;
    return { start, size: Math.min(wanted * blockSize, n - start) };
  });
}

/** See Scalepoint.quantizeCodebook. */
export function quantizeCodebook(core: Core, x: FloatInput, options: CodebookOptions): CodebookTensor {
  checkKeys(options, keys);
  const given = resolve(options.codebook);
  const blockSize = options.blockSize === undefined ? 64 : checkBlockSize(options.blockSize, 'blockSize');
  const source = sourceOf(core, x, options.from, 'x');
  const n = source.length;
  const shape = checkShape(options.shape, n);
  const blocks = Math.ceil(n / blockSize);
  const codes = new Sink(core, 'uint8', n, options.out, 'out');
  checkApart(x, options.out, 'out');
  const absmax = new Sink(core, 'float32', blocks, undefined, 'absmax');
  const count = given.kind === 'learn' ? given.count : given.kind === 'values' ? given.values.length : 16;
  const searched = choice(options, 'range', ['min-max', 'mse']) === 1;
  const rounded = choice(options, 'absmaxType', ['float32', 'int8']) === 1;
  const { scratch } = core;
  // Rounding needs the absmax of many blocks.
  const withinTiles = blockSize <= tileSize && !rounded;
  // Whole blocks, so that one visit to a tile can do all of its work; or blocks of several tiles.
  const step = withinTiles ? Math.floor(tileSize / blockSize) * blockSize : tileSize;

  const decision = given.kind === 'learn' ? Decision.nearest : given.decision;
  const values = withPlaces(core, blocks, { blockSize, values: count, decision }, (at) => {
    const { module } = core;
    const observe = (from: number, size: number, start: number) => {
      const status = module.observeAbsmax(at.job, from, size, start);
      if (status === Status.nonFinite) failNonFinite(core, from, size, start);
      checkStatus(status);
    };
    const encode = (from: number, size: number, start: number) => {
      const to = codes.at(start, scratch.y);
      checkStatus(module.quantizeCodebook(at.job, from, size, start, to));
      codes.put(start, size, scratch.y);
    };
    module.HEAPF32.fill(0, at.absmax / 4, at.absmax / 4 + blocks);
    if (given.kind === 'published') module.publishedCodebook(given.number, at.values);
    else if (given.kind === 'values') module.HEAPF32.set(given.values, at.values / 4);
    const observeAll = (kept: Source) => {
      forEachTile(n, false, (start, size) => observe(kept.at(start, size), size, start), step);
    };
    const encodeAll = (kept: Source) => {
      forEachTile(n, false, (start, size) => encode(kept.at(start, size), size, start), step);
    };
    if (searched) {
      withWhole(core, source, (whole) => {
        // What is not finite is found here.
        observeAll(whole);
        searchScales(core, whole.at(0, n), n, blockSize, at.job, given.kind === 'learn', rounded);
        encodeAll(whole);
      });
    } else if (given.kind === 'learn') {
      withResident(core, source, (kept) => {
        learn(core, at.job, (learner) => {
          const learnFrom = (from: number, size: number, start: number) =>
            checkStatus(module.observeCodebook(at.job, from, size, start, learner));
          forEachTile(
            n,
            false,
            (start, size) => {
              const from = kept.at(start, size);
              observe(from, size, start);
              if (withinTiles) learnFrom(from, size, start);
            },
            step,
          );
          if (rounded) checkStatus(module.roundAbsmax(at.absmax, blocks));
          if (!withinTiles) forEachTile(n, false, (start, size) => learnFrom(kept.at(start, size), size, start), step);
        });
        encodeAll(kept);
      });
    } else if (withinTiles) {
      forEachTile(
        n,
        false,
        (start, size) => {
          const from = source.at(start, size);
          observe(from, size, start);
          encode(from, size, start);
        },
        step,
      );
    } else {
      withResident(core, source, (kept) => {
        observeAll(kept);
        if (rounded) checkStatus(module.roundAbsmax(at.absmax, blocks));
        encodeAll(kept);
      });
    }
    copyOut(core, 'float32', at.absmax, blocks, absmax, 0);
    return core.module.HEAPF32.slice(at.values / 4, at.values / 4 + count) as Float32Array<ArrayBuffer>;
  });
  return {
    kind: 'codebook',
    codebook: values,
    blockSize,
    absmax: absmax.result as Float32Array,
    data: codes.result as Uint8Array | WasmArray,
    shape,
  };
}

/**
 * Searches for the absmax of every block, those of the largest sizes being in place, and for the values of a codebook that is learned.
 * Those follow the scales on a sample, and the scales them; in the end both once more on all elements.
 */
function searchScales(
  core: Core,
  x: number,
  n: number,
  blockSize: number,
  job: number,
  learned: boolean,
  rounded: boolean,
): void {
  const { module } = core;
  const search = ({ start, size }: Stretch, whether: boolean) =>
    checkStatus(module.searchAbsmax(job, x + start * 4, size, start, whether));
  const all = { start: 0, size: n };
  if (!learned) {
    search(all, rounded);
    return;
  }
  const learnFrom = (stretches: readonly Stretch[]) =>
    learn(core, job, (learner) => {
      for (const { start, size } of stretches) {
        checkStatus(module.observeCodebook(job, x + start * 4, size, start, learner));
      }
    });
  const sample = sampleOf(n, blockSize);
  learnFrom([all]);
  for (let round = 0; round < rounds; round++) {
    for (const stretch of sample) search(stretch, false);
    learnFrom(sample);
  }
  search(all, rounded);
  learnFrom([all]);
}

/** Leaves a learned codebook where the job has its own: `observe` shows all of the data to the learner. */
function learn(core: Core, job: number, observe: (learner: number) => void): void {
  core.withMemory(core.module.codebookLearnerBytes() + 8, (address) => {
    const learner = address + 8 - (address % 8);
    const { module } = core;
    checkStatus(module.clearCodebookLearner(learner));
    observe(learner);
    checkStatus(module.learnCodebook(job, learner));
  });
}

function failNonFinite(core: Core, x: number, size: number, start: number): never {
  const { module } = core;
  const index = module.firstNonFinite(x, size);
  const value = module.HEAPF32[x / 4 + index];
  throw new ScalepointError(
    'NON_FINITE',
    `x[${start + index}] is ${value}; codes of a codebook stand for finite values only`,
  );
}

/** A tensor of codes that the caller gave, checked. */
interface GivenCodebook {
  readonly what: string;
  readonly codes: CodeSource;
  readonly values: Float32Array;
  readonly blockSize: number;
  readonly absmax: Float32Array;
}

/** Checks a tensor of codes that the caller gave, down to every absmax. */
function codebookOf(core: Core, q: CodebookTensor, what: string): GivenCodebook {
  const values = valuesOf(q.codebook, `${what}.codebook`);
  const blockSize = checkBlockSize(q.blockSize, `${what}.blockSize`);
  const codes = new CodeSource(core, q.data, 'uint8', `${what}.data`);
  if (q.shape === undefined) throw new TypeError(`${what}.shape: expected an array of whole numbers, got undefined`);
  checkShape(q.shape, codes.length);
  const { absmax } = q;
  if (typedArrayName(absmax) !== 'Float32Array') {
    throw new TypeError(`${what}.absmax: expected ${article('Float32Array')}, got ${show(absmax)}`);
  }
  checkAttached(absmax, `${what}.absmax`);
  const blocks = Math.ceil(codes.length / blockSize);
  if (absmax.length !== blocks) {
    throw new RangeError(`${what}.absmax: expected ${blocks} elements, got ${absmax.length}`);
  }
  for (let i = 0; i < blocks; i++) {
    const v = absmax[i] as number;
    if (!Number.isFinite(v)) throw new RangeError(`${what}.absmax[${i}]: expected a finite number, got ${v}`);
  }
  // Taken over where it lies in memory that may grow.
  const kept = absmax.buffer === core.module.HEAPU8.buffer ? absmax.slice() : absmax;
  return { what, codes, values, blockSize, absmax: kept };
}

/** Brings codebook and absmax into wasm memory for f. */
function withGiven<T>(core: Core, { values, absmax, blockSize }: GivenCodebook, f: (at: Places) => T): T {
  const record = { blockSize, values: values.length, decision: Decision.nearest };
  return withPlaces(core, absmax.length, record, (at) => {
    core.module.HEAPF32.set(values, at.values / 4);
    core.module.HEAPF32.set(absmax, at.absmax / 4);
    return f(at);
  });
}

/** @throws RangeError naming the first code that the codebook has no value for */
function checkCodes(
  core: Core,
  given: GivenCodebook,
  status: Status,
  codes: number,
  size: number,
  start: number,
): void {
  if (status === Status.badRange) {
    const n = given.values.length;
    const all = core.module.HEAPU8.subarray(codes, codes + size);
    const index = all.findIndex((code) => code >= n);
    throw new RangeError(`${given.what}.data[${start + index}]: expected a code below ${n}, got ${all[index]}`);
  }
  checkStatus(status);
}

/** See Scalepoint.dequantize. */
export function dequantizeCodebook(
  core: Core,
  q: CodebookTensor,
  out: Float32Array | WasmArray | undefined,
): Float32Array | WasmArray {
  const given = codebookOf(core, q, 'q');
  const { codes } = given;
  const x = new Sink(core, 'float32', codes.length, out, 'out');
  checkApart(q.data, out, 'out');
  withGiven(core, given, (at) => {
    const tile = core.scratch.x;
    forEachTile(codes.length, codes.inPlace && x.address !== undefined, (start, size) => {
      const from = codes.at(start, size);
      const to = x.at(start, tile);
      const status = core.module.dequantizeCodebook(at.job, from, size, start, to);
      checkCodes(core, given, status, from, size, start);
      x.put(start, size, tile);
    });
  });
  return x.result as Float32Array | WasmArray;
}

/** Adds the errors of the codes to the sums at that address; before is called when nothing can go wrong any more but codes. */
export function addCodebookErrors(
  core: Core,
  source: Source,
  b: CodebookTensor,
  begin: (length: number) => void,
): void {
  const given = codebookOf(core, b, 'b');
  const { codes } = given;
  begin(codes.length);
  withGiven(core, given, (at) => {
    forEachTile(source.length, source.inPlace && codes.inPlace, (start, size) => {
      const x = source.at(start, size);
      const y = codes.at(start, size);
      const status = core.module.accumulateCodebookError(at.job, x, size, start, y, core.scratch.sums);
      checkCodes(core, given, status, y, size, start);
    });
  });
}

/** Bits that a code takes when packed: enough for every index of the codebook. */
function bitsOf(count: number): number {
  return Math.ceil(Math.log2(count));
}

function packedSize(n: number, bits: number): number {
  return Math.floor(n / 8) * bits + Math.ceil(((n % 8) * bits) / 8);
}

/** See Scalepoint.pack. */
export function packCodebook(core: Core, q: CodebookTensor): Uint8Array<ArrayBuffer> {
  const { codes, values, what } = codebookOf(core, q, 'q');
  const bits = bitsOf(values.length);
  const packed = new Sink(core, 'uint8', packedSize(codes.length, bits), undefined, 'out');
  const tile = core.scratch.x;
  forEachTile(codes.length, false, (start, size) => {
    const from = codes.at(start, size);
    const all = core.module.HEAPU8.subarray(from, from + size);
    const bad = values.length === maxCodebookSize ? -1 : all.findIndex((code) => code >= values.length);
    if (bad >= 0) {
      throw new RangeError(`${what}.data[${start + bad}]: expected a code below ${values.length}, got ${all[bad]}`);
    }
    checkStatus(core.module.packCodebook(from, size, bits, tile));
    packed.put((start * bits) / 8, packedSize(size, bits), tile);
  });
  return packed.result as Uint8Array<ArrayBuffer>;
}

/** See Scalepoint.unpack. */
export function unpackCodebook(core: Core, bytes: Uint8Array, q: PackedCodebookTensor): Uint8Array<ArrayBuffer> {
  const bits = bitsOf(valuesOf(q.codebook, 'q.codebook').length);
  const n = sizeOfShape(q.shape);
  const packed = new CodeSource(core, bytes, 'uint8', 'bytes');
  const expected = packedSize(n, bits);
  if (packed.length !== expected) {
    throw new RangeError(`bytes: expected ${expected} bytes for ${n} codes of ${bits} bits, got ${packed.length}`);
  }
  const codes = new Sink(core, 'uint8', n, undefined, 'out');
  const { module, scratch } = core;
  const tile = scratch.x;
  forEachTile(n, false, (start, size) => {
    const from = packed.at((start * bits) / 8, packedSize(size, bits));
    checkStatus(module.unpackCodebook(from, size, bits, tile));
    codes.put(start, size, tile);
  });
  return codes.result as Uint8Array<ArrayBuffer>;
}
