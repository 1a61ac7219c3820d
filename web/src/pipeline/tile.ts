/**
 * One tile of a tensor: bytes in, bytes and error sums out. Runs in a worker, or on the main thread for small models. A tile needs
 * nothing but its own bytes, so tiles can be converted anywhere and in any order, and the results are the same.
 */
import { type BlockType, type BlockTypeInfo, blockTypeInfo, isBlockType } from '../core/blocks.js';
import {
  DType,
  ErrorSums,
  Granularity,
  Layout,
  LinearJob,
  Minifloat,
  NonFinite,
  type QuantizationSpec,
  Rounding,
  Scheme,
  Status,
  SymmetricRange,
} from '../core/door.js';
import { mseSearch, type RangeSearch, searchOf } from '../core/range.js';
import type { Core } from '../core/wasm.js';
import type { CastType, CodesConversion, Conversion, Role } from './plan.js';

/** How the elements of a stored tensor are to be read: what is needed to turn its bytes into floats. */
export type Encoding =
  | { readonly kind: 'plain'; readonly dtype: string }
  /** Codes with scales, as CodesConversion writes them. */
  | (Omit<CodesConversion, 'kind'> & { readonly kind: 'codes' });

/** Bytes that a tile is made from: `count` stretches of `bytes` bytes, each `stride` bytes after the one before. */
export interface InputRange {
  /** Which file, from 0. */
  readonly file: number;
  readonly begin: number;
  readonly bytes: number;
  readonly count: number;
  readonly stride: number;
}

/** Converts a tile. */
export interface ConvertTask {
  readonly kind: 'convert';
  readonly inputs: readonly [InputRange];
  /** Element type of the input. */
  readonly dtype: string;
  readonly rows: number;
  /** Elements of the tile in each row. */
  readonly columns: number;
  readonly conversion: Conversion;
  /** What to hand back. */
  readonly roles: readonly Role[];
  /** Whether to add up errors. */
  readonly measure: boolean;
  /** Smallest and largest value of the row, of which this tile is a part; undefined if rows are whole. */
  readonly range?: readonly [min: number, max: number];
}

/** Finds the smallest and the largest value of a part of a row. */
export interface RangeTask {
  readonly kind: 'range';
  readonly inputs: readonly [InputRange];
  readonly dtype: string;
  readonly elements: number;
}

/** Makes the scales and zero points of rows whose ranges are known. */
export interface ParametersTask {
  readonly kind: 'parameters';
  readonly inputs: readonly [];
  readonly ranges: readonly (readonly [min: number, max: number])[];
  readonly conversion: CodesConversion;
  readonly roles: readonly Role[];
}

/** Adds up the errors of one tensor against another. */
export interface CompareTask {
  readonly kind: 'compare';
  /** Of a, then of b: data, scales and zero points as far as the encoding has them. */
  readonly inputs: readonly InputRange[];
  readonly encodings: readonly [Encoding, Encoding];
  readonly rows: number;
  readonly columns: number;
}

export type TileTask = ConvertTask | RangeTask | ParametersTask | CompareTask;

/** An element that cannot be converted. */
export interface TileProblem {
  /** NaN or infinite; beyond float32; beyond the type that it or its block's scale is stored in. */
  readonly kind: 'non-finite' | 'beyond float32' | 'overflow';
  /** Which element of the tile, from 0, row by row. */
  readonly index: number;
  readonly value: number;
}

/** What came of a tile. */
export interface TileResult {
  readonly parts: Partial<Record<Role, ArrayBuffer>>;
  /** Error sums, in the order of the door's ErrorSums. */
  readonly sums?: Float64Array<ArrayBuffer>;
  readonly range?: readonly [min: number, max: number];
  /** Then everything else means nothing. */
  readonly problem?: TileProblem;
}

/** Elements of a tile: 4 MiB as float32. A multiple of every block, and of the 512 elements over which error sums are blocked. */
export const tileElements = 1 << 20;

/** Bytes of one element of the plain types that can be turned into floats. */
const plainBytes: Readonly<Record<string, number>> = { F32: 4, F16: 2, BF16: 2, F64: 8 };

/** Whether elements of this type can be turned into floats. */
export function isDecodable(dtype: string): boolean {
  return Object.hasOwn(plainBytes, dtype) || isBlockType(dtype);
}

/** Bytes of so many elements of a type that can be turned into floats. */
export function bytesOf(dtype: string, elements: number): number {
  if (!isBlockType(dtype)) return elements * (plainBytes[dtype] as number);
  const { elements: n, bytes } = blockTypeInfo(dtype);
  return (elements / n) * bytes;
}

/** Codes in a word of `weight_packed`. */
function codesPerWord(bits: number): number {
  return 32 / bits;
}

/** Bytes of one row of packed codes. */
export function packedRowBytes(columns: number, bits: number): number {
  return Math.ceil(columns / codesPerWord(bits)) * 4;
}

/** float8e4m3fn, and its largest value. */
const float8 = { format: Minifloat.float8E4M3FN, largest: 448 };

/** Rounds half to even. |v| < 2^51. */
function roundHalfEven(v: number): number {
  return v + 6755399441055744 - 6755399441055744;
}

/** The smallest positive number, and the distance from 1 to the next, of the types that scales are stored in. */
const smallest: Readonly<Record<CastType, number>> = { F32: 2 ** -149, F16: 2 ** -24, BF16: 2 ** -133 };
const epsilon: Readonly<Record<CastType, number>> = { F32: 2 ** -23, F16: 2 ** -10, BF16: 2 ** -7 };

/** Converts tiles in the memory of one core. */
export class TileConverter {
  readonly #core: Core;
  readonly #slots = new Map<string, { base: number; size: number }>();
  #spare: ArrayBuffer[] = [];

  constructor(core: Core) {
    this.#core = core;
  }

  /**
   * Takes all of the memory that a task needs and shows where its inputs go. The views are good until the next call of `prepare`.
   * @throws ScalepointError `OUT_OF_MEMORY`
   */
  prepare(task: TileTask): Uint8Array[] {
    const sizes = task.inputs.map(({ bytes, count }) => bytes * count);
    sizes.forEach((size, i) => {
      this.#slot(`input ${i}`, size);
    });
    if (task.kind === 'parameters') {
      this.#parameters(task.ranges.length);
    } else if (task.kind === 'range') {
      if (task.dtype !== 'F32') this.#slot('x 0', task.elements * 4);
      this.#parameters(1);
    } else {
      const n = task.rows * task.columns;
      const sides: readonly Encoding[] =
        task.kind === 'compare' ? task.encodings : [{ kind: 'plain', dtype: task.dtype }];
      sides.forEach((side, i) => {
        if (side.kind === 'codes' || side.dtype !== 'F32') this.#slot(`x ${i}`, n * 4);
      });
      const encodings = task.kind === 'compare' ? task.encodings : [task.conversion];
      for (const encoding of encodings) {
        if (encoding.kind === 'codes') {
          this.#slot('codes', n);
          if (encoding.packed) this.#slot('packed', task.rows * packedRowBytes(task.columns, encoding.bits));
          const { count, size } = runsOf(encoding, task.rows, task.columns);
          this.#parameters(count);
          if (searches(task)) {
            this.#others(count);
            this.#searchScratch(count, size);
          }
        } else if (task.kind === 'convert' && (encoding.kind === 'cast' || encoding.kind === 'blocks')) {
          this.#slot('out', bytesOf(encoding.to, n));
        }
      }
    }
    // Only now: taking memory may have moved all of it.
    const { buffer } = this.#core.module.HEAPU8;
    return sizes.map((size, i) => new Uint8Array(buffer, this.#slot(`input ${i}`, size), size));
  }

  /**
   * Carries out a task whose inputs are in place. Results go to `spare` buffers of their sizes: as garbage, each of some megabytes, they
   * would pile up until the engine cares to collect them.
   */
  run(task: TileTask, spare: readonly ArrayBuffer[]): TileResult {
    this.#spare = [...spare];
    try {
      return this.#run(task);
    } finally {
      this.#spare = [];
    }
  }

  #run(task: TileTask): TileResult {
    switch (task.kind) {
      case 'convert':
        return this.#convert(task);
      case 'range':
        return this.#range(task);
      case 'parameters': {
        const count = task.ranges.length;
        const { min, max } = this.#parameters(count);
        const { HEAPF32 } = this.#core.module;
        task.ranges.forEach(([low, high], i) => {
          HEAPF32[min / 4 + i] = low;
          HEAPF32[max / 4 + i] = high;
        });
        this.#chooseParameters(task.conversion, count);
        return { parts: this.#parameterParts(task.conversion, count, 1, task.roles) };
      }
      case 'compare':
        return this.#compare(task);
    }
  }

  // ------------------------------------------------------------------------------------------------------------------ memory

  /** Memory under a name, of at least so many bytes; the same again unless it has to grow. Aligned for vectors. */
  #slot(name: string, bytes: number): number {
    let slot = this.#slots.get(name);
    if (slot === undefined || slot.size < bytes) {
      if (slot !== undefined) this.#core.release(slot.base);
      this.#slots.delete(name);
      slot = { base: this.#core.allocate(bytes + 16), size: bytes };
      this.#slots.set(name, slot);
    }
    return Math.ceil(slot.base / 16) * 16;
  }

  /** Memory for the parameters of so many runs. */
  #parameters(count: number) {
    return {
      job: this.#slot('job', LinearJob.bytes),
      min: this.#slot('min', count * 4),
      max: this.#slot('max', count * 4),
      scale: this.#slot('scale', count * 4),
      zeroPoint: this.#slot('zero point', count * 4),
      stored: this.#slot('stored scale', count * 4),
    };
  }

  /** Memory for other parameters of so many runs. */
  #others(count: number) {
    return {
      scale: this.#slot('other scale', count * 4),
      zeroPoint: this.#slot('other zero point', count * 4),
      stored: this.#slot('other stored scale', count * 4),
    };
  }

  /** The job that makes codes of so many runs; good until the next call. */
  #job(
    { job, scale, zeroPoint }: { readonly job: number; readonly scale: number; readonly zeroPoint: number },
    count: number,
    size: number,
    spec: QuantizationSpec,
  ): number {
    const layout = layoutOfRuns(count, size);
    LinearJob.write(this.#core.module, job, { layout, spec, scale, zeroPoint, parameters: count });
    return job;
  }

  /** Memory for a search in so many runs. */
  #searchScratch(count: number, size: number) {
    const bytes = this.#core.withRecord(Layout, layoutOfRuns(count, size), (layout) =>
      this.#core.module.searchScratchBytes(layout, count * size),
    );
    return { at: this.#slot('search', bytes), bytes };
  }

  /** A copy of wasm memory that can be handed over. */
  #copy(address: number, bytes: number): ArrayBuffer {
    const spare = this.#spare.findIndex(({ byteLength }) => byteLength === bytes);
    const copy = (spare >= 0 && this.#spare.splice(spare, 1)[0]) || new ArrayBuffer(bytes);
    new Uint8Array(copy).set(this.#core.module.HEAPU8.subarray(address, address + bytes));
    return copy;
  }

  #check(status: Status): void {
    if (status !== Status.ok) throw new Error(`the core refused a tile with status ${status}`);
  }

  // ------------------------------------------------------------------------------------------------------------------ floats

  /** Makes floats of plain elements; returns their address, which is that of the input where they are floats already. */
  #floats(dtype: string, input: number, n: number, side: number): number {
    const { module } = this.#core;
    if (dtype === 'F32') return input;
    const x = this.#slot(`x ${side}`, n * 4);
    if (dtype === 'F16') this.#check(module.widenFloat16(input, n, x));
    else if (dtype === 'BF16') this.#check(module.widenBfloat16(input, n, x));
    else if (dtype === 'F64') {
      // Storing rounds to nearest.
      module.HEAPF32.set(module.HEAPF64.subarray(input / 8, input / 8 + n), x / 4);
    } else this.#check(module.dequantizeBlocks(input, n, blockTypeInfo(dtype as BlockType).id, x));
    return x;
  }

  /** What is wrong with the first element that is not finite. */
  #nonFinite(x: number, n: number, dtype: string, input: number): TileProblem {
    const { module } = this.#core;
    const index = module.firstNonFinite(x, n);
    const value = dtype === 'F64' ? module.HEAPF64[input / 8 + index] : module.HEAPF32[x / 4 + index];
    return { kind: Number.isFinite(value) ? 'beyond float32' : 'non-finite', index, value: value as number };
  }

  // ----------------------------------------------------------------------------------------------------------------- convert

  #convert(task: ConvertTask): TileResult {
    const { conversion, dtype, rows, columns, measure } = task;
    const n = rows * columns;
    const input = this.#slot('input 0', 0);
    if (conversion.kind === 'copy') {
      const parts = { data: this.#copy(input, task.inputs[0].bytes * task.inputs[0].count) };
      // Nothing is lost, but NaN and infinities are counted.
      if (!measure) return { parts };
      const x = this.#floats(dtype, input, n, 0);
      this.#clearSums();
      this.#addErrors(x, x, n);
      return { parts, sums: this.#sums() };
    }
    const x = this.#floats(dtype, input, n, 0);
    if (conversion.kind === 'codes') return this.#convertCodes(task, conversion, x, input);

    const { to } = conversion;
    const out = this.#slot('out', 0);
    const { module, scratch } = this.#core;
    this.#clearSums();
    // In steps that stay in the cache.
    for (let start = 0; start < n; start += scratch.elements) {
      const count = Math.min(scratch.elements, n - start);
      const from = x + start * 4;
      const target = out + bytesOf(to, start);
      if (conversion.kind === 'blocks') {
        const id = blockTypeInfo(conversion.to).id;
        const status = module.quantizeBlocks(from, count, id, target);
        if (status === Status.nonFinite) return { parts: {}, problem: this.#nonFinite(x, n, dtype, input) };
        if (status === Status.overflow) {
          return { parts: {}, problem: this.#overflow(from, start, count, id, blockTypeInfo(conversion.to).elements) };
        }
        this.#check(status);
        if (!measure) continue;
        this.#check(module.dequantizeBlocks(target, count, id, scratch.y));
        this.#addErrors(from, scratch.y, count);
        continue;
      }
      if (to === 'F32') {
        module.HEAPU8.copyWithin(target, from, from + count * 4);
        if (dtype === 'F64') {
          const problem = this.#lost(x, start, count, (i) => module.HEAPF64[input / 8 + i] as number);
          if (problem !== undefined) return { parts: {}, problem: { ...problem, kind: 'beyond float32' } };
        }
        if (measure) this.#addErrors(from, from, count);
        continue;
      }
      const half = to === 'F16';
      this.#check(half ? module.narrowFloat16(from, count, target) : module.narrowBfloat16(from, count, target));
      this.#check(
        half ? module.widenFloat16(target, count, scratch.y) : module.widenBfloat16(target, count, scratch.y),
      );
      const problem = this.#lost(scratch.y - start * 4, start, count, (i) => module.HEAPF32[x / 4 + i] as number);
      if (problem !== undefined) return { parts: {}, problem };
      if (measure) this.#addErrors(from, scratch.y, count);
    }
    return { parts: { data: this.#copy(out, bytesOf(to, n)) }, ...(measure ? { sums: this.#sums() } : {}) };
  }

  /** The first element from `start` on that was finite and is so no longer at `y`. Infinities and NaN pass. */
  #lost(y: number, start: number, count: number, before: (i: number) => number): TileProblem | undefined {
    const { module } = this.#core;
    const end = start + count;
    for (let i = start; i < end; i++) {
      i += module.firstNonFinite(y + i * 4, end - i);
      // A stretch of NaN or infinities would take a call each; its end is found here.
      while (i < end && !Number.isFinite(before(i))) i++;
      if (i < end && !Number.isFinite(module.HEAPF32[y / 4 + i])) {
        return { kind: 'overflow', index: i, value: before(i) };
      }
    }
    return undefined;
  }

  /** The largest element of the first block whose scale overflowed. */
  #overflow(from: number, start: number, count: number, id: BlockTypeInfo['id'], elements: number): TileProblem {
    const { module, scratch } = this.#core;
    for (let at = 0; at < count; at += elements) {
      if (module.quantizeBlocks(from + at * 4, elements, id, scratch.y) === Status.ok) continue;
      const block = module.HEAPF32.subarray(from / 4 + at, from / 4 + at + elements);
      const worst = block.reduce((best, v, i) => (Math.abs(v) > Math.abs(block[best] as number) ? i : best), 0);
      return { kind: 'overflow', index: start + at + worst, value: block[worst] as number };
    }
    throw new Error('a block overflowed, but none of them alone does');
  }

  #convertCodes(task: ConvertTask, conversion: CodesConversion, x: number, input: number): TileResult {
    const { rows, columns, roles, measure, range } = task;
    const { module } = this.#core;
    const n = rows * columns;
    const { bits, packed } = conversion;
    const { count, size } = runsOf(conversion, rows, columns);
    const at = this.#parameters(count);
    const spec = specOf(bits);
    if (range === undefined) {
      module.clearRange(at.min, at.max, count);
      const status = module.observe(this.#job(at, count, size, spec), x, n, 0, at.min, at.max);
      if (status === Status.nonFinite) return { parts: {}, problem: this.#nonFinite(x, n, task.dtype, input) };
      this.#check(status);
    } else {
      [module.HEAPF32[at.min / 4], module.HEAPF32[at.max / 4]] = range;
    }
    this.#chooseParameters(conversion, count);
    if (searches(task)) this.#searchParameters(conversion, x, count, size);
    const parts = this.#parameterParts(conversion, rows, count / rows, roles);
    if (!roles.includes('data')) return { parts };

    const codes = this.#slot('codes', n);
    this.#clearSums();
    const { sums } = this.#core.scratch;
    const job = this.#job(at, count, size, spec);
    if (conversion.type === 'float') {
      this.#check(module.quantizeMinifloat(job, x, n, 0, float8.format, codes));
      if (measure) this.#measureFloats(job, x, codes, n);
      parts.data = this.#copy(codes, n);
      return { parts, ...(measure ? { sums: this.#sums() } : {}) };
    }
    this.#check(
      measure ? module.quantizeLinearMeasured(job, x, n, 0, codes, sums) : module.quantizeLinear(job, x, n, 0, codes),
    );
    // Codes go half a step beyond the largest values, and with them beyond the largest float.
    if (measure && ErrorSums.read(module, sums).nonFinite !== 0) {
      const problem = this.#beyondFloat(x, codes, n, size, at);
      if (problem !== undefined) return { parts: {}, problem };
    }
    parts.data = packed ? this.#pack(codes, rows, columns, bits) : this.#copy(codes, n);
    return { parts, ...(measure ? { sums: this.#sums() } : {}) };
  }

  /**
   * Adds the errors of float8 codes to the sums. None stands for an infinity: the largest float is a float's multiple of 448, and scales
   * of 16 bits, rounded up, exceed those of the largest values of their type by less than float32 has room for.
   */
  #measureFloats(job: number, x: number, codes: number, n: number): void {
    const { module, scratch } = this.#core;
    const { y } = scratch;
    for (let start = 0; start < n; start += scratch.elements) {
      const some = Math.min(scratch.elements, n - start);
      const from = codes + start;
      this.#check(module.dequantizeMinifloat(job, from, some, start, float8.format, y));
      this.#addErrors(x + start * 4, y, some);
    }
  }

  /** The first element whose code stands for an infinity. */
  #beyondFloat(
    x: number,
    codes: number,
    n: number,
    size: number,
    { scale, zeroPoint }: { readonly scale: number; readonly zeroPoint: number },
  ): TileProblem | undefined {
    const { HEAP8, HEAP32, HEAPF32 } = this.#core.module;
    for (let i = 0; i < n; i++) {
      const run = Math.floor(i / size);
      const steps = (HEAP8[codes + i] as number) - (HEAP32[zeroPoint / 4 + run] as number);
      if (Number.isFinite(Math.fround(steps * (HEAPF32[scale / 4 + run] as number)))) continue;
      return { kind: 'overflow', index: i, value: HEAPF32[x / 4 + i] as number };
    }
    return undefined;
  }

  /** Codes as words: rows padded to whole words, offset binary (two's complement with the top bit flipped). */
  #pack(codes: number, rows: number, columns: number, bits: number): ArrayBuffer {
    const { module } = this.#core;
    const rowBytes = packedRowBytes(columns, bits);
    const packed = this.#slot('packed', rows * rowBytes);
    this.#core.withRecord(DType, specOf(bits).dtype, (dtype) => {
      if (rowBytes * 8 === columns * bits) {
        this.#check(module.pack(codes, rows * columns, dtype, packed));
        return;
      }
      module.HEAPU8.fill(0, packed, packed + rows * rowBytes);
      for (let row = 0; row < rows; row++) {
        this.#check(module.pack(codes + row * columns, columns, dtype, packed + row * rowBytes));
      }
    });
    const words = module.HEAP32.subarray(packed / 4, (packed + rows * rowBytes) / 4);
    const flip = bits === 4 ? 0x88888888 : 0x80808080;
    for (let i = 0; i < words.length; i++) words[i] = (words[i] as number) ^ flip;
    const rest = columns % codesPerWord(bits);
    if (rest !== 0) {
      // The padding is 0, not an offset.
      const keep = 2 ** (rest * bits) - 1;
      for (let i = rowBytes / 4 - 1; i < words.length; i += rowBytes / 4) words[i] = (words[i] as number) & keep;
    }
    return this.#copy(packed, rows * rowBytes);
  }

  // -------------------------------------------------------------------------------------------------------------- parameters

  /**
   * Scales and zero points from the ranges, by compressed-tensors' formulas (calculate_qparams): the range holds 0; symmetric
   * scale = absmax / ((qmax - qmin) / 2), asymmetric scale = (max - min) / (qmax - qmin) and zero point = round(qmin - min / scale).
   * In float32; the scale is then rounded to the type that it is stored in, and zero points and codes are made with the result.
   * Where all values are 0, the scale is that type's epsilon, as there; where it would only round to 0, the smallest positive number.
   * Of float8 codes qmin and qmax are their largest values.
   */
  #chooseParameters({ type, bits, symmetric, scale: stored }: CodesConversion, count: number): void {
    const { module } = this.#core;
    const at = this.#parameters(count);
    const levels = type === 'float' ? 2 * float8.largest : 2 ** bits - 1;
    const qmin = -(2 ** (bits - 1));
    const min = module.HEAPF32.subarray(at.min / 4, at.min / 4 + count);
    const max = module.HEAPF32.subarray(at.max / 4, at.max / 4 + count);
    const scale = module.HEAPF32.subarray(at.scale / 4, at.scale / 4 + count);
    const zeroPoint = module.HEAP32.subarray(at.zeroPoint / 4, at.zeroPoint / 4 + count);
    for (let i = 0; i < count; i++) {
      const low = Math.min(min[i] as number, 0);
      const high = Math.max(max[i] as number, 0);
      // In double where the difference of two float32 would be infinite.
      const width = Number.isFinite(Math.fround(high - low)) ? Math.fround(high - low) : high - low;
      scale[i] = symmetric ? (Math.max(-low, high) * 2) / levels : width / levels;
    }
    this.#narrowScales(stored, at, count);
    this.#widenScales(stored, at, count);
    for (let i = 0; i < count; i++) {
      const low = Math.min(min[i] as number, 0);
      if (scale[i] === 0) scale[i] = low === 0 && (max[i] as number) <= 0 ? epsilon[stored] : smallest[stored];
      if (symmetric) zeroPoint[i] = 0;
      else {
        const exact = Math.fround(qmin - Math.fround(low / (scale[i] as number)));
        zeroPoint[i] = roundHalfEven(Math.max(qmin, Math.min(exact, qmin + levels)));
      }
    }
  }

  /** Scales in the type that they are stored in, to `at.stored`; float32 is that already. */
  #narrowScales(stored: CastType, at: { readonly scale: number; readonly stored: number }, count: number): void {
    const { module } = this.#core;
    if (stored === 'F16') this.#check(module.narrowFloat16(at.scale, count, at.stored));
    else if (stored === 'BF16') this.#check(module.narrowBfloat16(at.scale, count, at.stored));
  }

  /** The floats that stored scales stand for. */
  #widenScales(stored: CastType, at: { readonly scale: number; readonly stored: number }, count: number): void {
    const { module } = this.#core;
    if (stored === 'F16') this.#check(module.widenFloat16(at.stored, count, at.scale));
    else if (stored === 'BF16') this.#check(module.widenBfloat16(at.stored, count, at.scale));
  }

  /**
   * Scales and zero points that the conversion's range asks for, in place of those of the smallest and the largest value. With 'mse'
   * only where they restore the run better with the scale as it is stored, for which its neighbours are tried as well.
   */
  #searchParameters(conversion: CodesConversion, x: number, count: number, size: number): void {
    const { module } = this.#core;
    const { bits, symmetric, scale: stored } = conversion;
    const { method, percentile } = searchOf(conversion.range) as RangeSearch;
    const at = this.#parameters(count);
    const other = this.#others(count);
    const scratch = this.#searchScratch(count, size);
    const spec = {
      ...specOf(bits),
      scheme: symmetric ? Scheme.symmetric : Scheme.asymmetric,
      symmetricRange: SymmetricRange.full,
    };
    const n = count * size;
    const search = this.#job({ ...other, job: at.job }, count, size, spec);
    this.#check(module.searchQparams(search, x, n, method, percentile, scratch.at, scratch.bytes));
    this.#narrowScales(stored, other, count);
    this.#widenScales(stored, other, count);
    const { HEAPF32, HEAP32, HEAPU16 } = module;
    if (method !== mseSearch.method) {
      for (let i = 0; i < count; i++) {
        const scale = HEAPF32[other.scale / 4 + i] as number;
        // Runs of zeros, and scales beyond the stored type, keep what they have.
        const isZero = HEAPF32[at.min / 4 + i] === 0 && HEAPF32[at.max / 4 + i] === 0;
        if (isZero || !(scale > 0 && scale < Infinity)) continue;
        HEAPF32[at.scale / 4 + i] = scale;
        HEAP32[at.zeroPoint / 4 + i] = HEAP32[other.zeroPoint / 4 + i] as number;
      }
      return;
    }
    const job = this.#job(at, count, size, spec);
    const takeBetter = () => this.#check(module.takeBetter(job, x, size, other.scale, other.zeroPoint));
    takeBetter();
    if (stored === 'F32') return;
    // The bits of positive floats are in their order: one up, then one down.
    for (const step of [1, -2]) {
      for (let i = other.stored / 2; i < other.stored / 2 + count; i++) HEAPU16[i] = (HEAPU16[i] as number) + step;
      this.#widenScales(stored, other, count);
      takeBetter();
    }
  }

  /** Scales and zero points as they are stored; `perRow` of them belong to each row. */
  #parameterParts(
    conversion: CodesConversion,
    rows: number,
    perRow: number,
    roles: readonly Role[],
  ): TileResult['parts'] {
    const { bits, packed, scale: stored } = conversion;
    const { module } = this.#core;
    const count = rows * perRow;
    const at = this.#parameters(count);
    const parts: Partial<Record<Role, ArrayBuffer>> = {};
    if (roles.includes('scale')) {
      if (stored === 'F32') parts.scale = this.#copy(at.scale, count * 4);
      else {
        const narrow = stored === 'F16' ? module.narrowFloat16 : module.narrowBfloat16;
        this.#check(narrow(at.scale, count, at.stored));
        parts.scale = this.#copy(at.stored, count * 2);
      }
    }
    if (roles.includes('zeroPoint')) {
      const zeroPoints = module.HEAP32.subarray(at.zeroPoint / 4, at.zeroPoint / 4 + count);
      parts.zeroPoint = packed ? packColumns(zeroPoints, rows, perRow, bits) : Int8Array.from(zeroPoints).buffer;
    }
    return parts;
  }

  // ------------------------------------------------------------------------------------------------------- range and compare

  #range({ dtype, elements }: RangeTask): TileResult {
    const { module } = this.#core;
    const input = this.#slot('input 0', 0);
    const x = this.#floats(dtype, input, elements, 0);
    const at = this.#parameters(1);
    const { min, max } = at;
    module.clearRange(min, max, 1);
    const status = module.observe(this.#job(at, 1, elements, specOf(8)), x, elements, 0, min, max);
    if (status === Status.nonFinite) return { parts: {}, problem: this.#nonFinite(x, elements, dtype, input) };
    this.#check(status);
    const { HEAPF32 } = module;
    return { parts: {}, range: [HEAPF32[min / 4] as number, HEAPF32[max / 4] as number] };
  }

  #compare({ encodings, rows, columns }: CompareTask): TileResult {
    let input = 0;
    const [a, b] = encodings.map((encoding, side) => {
      if (encoding.kind === 'plain') {
        return this.#floats(encoding.dtype, this.#slot(`input ${input++}`, 0), rows * columns, side);
      }
      const data = this.#slot(`input ${input++}`, 0);
      const scales = this.#slot(`input ${input++}`, 0);
      const zeroPoints = encoding.symmetric ? undefined : this.#slot(`input ${input++}`, 0);
      return this.#decode(encoding, rows, columns, data, scales, zeroPoints, this.#slot(`x ${side}`, 0));
    }) as [number, number];
    this.#clearSums();
    this.#addErrors(a, b, rows * columns);
    return { parts: {}, sums: this.#sums() };
  }

  /** The floats that codes stand for, at `x`. */
  #decode(
    encoding: Encoding & { kind: 'codes' },
    rows: number,
    columns: number,
    data: number,
    scales: number,
    zeroPoints: number | undefined,
    x: number,
  ): number {
    const { bits, packed, scale: stored } = encoding;
    const { module } = this.#core;
    const n = rows * columns;
    const { count, size } = runsOf(encoding, rows, columns);
    const at = this.#parameters(count);
    if (stored === 'F32') module.HEAPU8.copyWithin(at.scale, scales, scales + count * 4);
    else if (stored === 'F16') this.#check(module.widenFloat16(scales, count, at.scale));
    else this.#check(module.widenBfloat16(scales, count, at.scale));
    if (encoding.type === 'float') {
      const job = this.#job(at, count, size, specOf(bits));
      this.#check(module.dequantizeMinifloat(job, data, n, 0, float8.format, x));
      return x;
    }
    let codes = data;
    if (packed) {
      codes = this.#slot('codes', n);
      const rowBytes = packedRowBytes(columns, bits);
      const words = module.HEAP32.subarray(data / 4, (data + rows * rowBytes) / 4);
      const flip = bits === 4 ? 0x88888888 : 0x80808080;
      for (let i = 0; i < words.length; i++) words[i] = (words[i] as number) ^ flip;
      this.#core.withRecord(DType, specOf(bits).dtype, (dtype) => {
        for (let row = 0; row < rows; row++) {
          this.#check(module.unpack(data + row * rowBytes, columns, dtype, codes + row * columns));
        }
      });
    }
    const zeroPoint = module.HEAP32.subarray(at.zeroPoint / 4, at.zeroPoint / 4 + count);
    if (zeroPoints === undefined) zeroPoint.fill(0);
    else if (packed) unpackColumns(module.HEAP32, zeroPoints / 4, rows, count / rows, bits, zeroPoint);
    else zeroPoint.set(module.HEAP8.subarray(zeroPoints, zeroPoints + count));
    this.#check(module.dequantizeLinear(this.#job(at, count, size, specOf(bits)), codes, n, 0, x));
    return x;
  }

  // -------------------------------------------------------------------------------------------------------------------- sums

  #clearSums(): void {
    const { module, scratch } = this.#core;
    module.HEAPF64.fill(0, scratch.sums / 8, (scratch.sums + ErrorSums.bytes) / 8);
  }

  #addErrors(x: number, y: number, n: number): void {
    this.#check(this.#core.module.accumulateError(x, y, n, this.#core.scratch.sums));
  }

  #sums(): Float64Array<ArrayBuffer> {
    const { module, scratch } = this.#core;
    return module.HEAPF64.slice(scratch.sums / 8, (scratch.sums + ErrorSums.bytes) / 8) as Float64Array<ArrayBuffer>;
  }
}

/** Stretches of neighbours that share a scale, in a tile. */
function runsOf({ groupSize }: { readonly groupSize: number | undefined }, rows: number, columns: number) {
  const size = groupSize ?? columns;
  return { count: (rows * columns) / size, size };
}

/** Runs of that size, one after the other. */
function layoutOfRuns(count: number, size: number): Layout {
  return { granularity: Granularity.perChannel, axisSize: count, innerSize: size, groupSize: 1 };
}

/** Signed codes, rounded as torch.round(x / scale + zero point). */
function specOf(bits: number): QuantizationSpec {
  return {
    dtype: { bits, isSigned: true },
    scheme: Scheme.symmetric,
    symmetricRange: SymmetricRange.restricted,
    includeZero: true,
    rounding: Rounding.fused,
    nonFinite: NonFinite.error,
  };
}

/** Whether a tile's parameters are searched for. Where rows are cut, their ranges are given instead. */
function searches(task: TileTask): boolean {
  if (task.kind !== 'convert' || task.range !== undefined) return false;
  return task.conversion.kind === 'codes' && task.conversion.range !== undefined;
}

/** Packs along the rows: word [r / n, c] holds the values [r .. r + n - 1, c] in offset binary, first row lowest. */
function packColumns(values: Int32Array, rows: number, columns: number, bits: number): ArrayBuffer {
  const perWord = codesPerWord(bits);
  const words = new Int32Array(Math.ceil(rows / perWord) * columns);
  for (let row = 0; row < rows; row++) {
    const shift = (row % perWord) * bits;
    const first = Math.floor(row / perWord) * columns;
    for (let column = 0; column < columns; column++) {
      const value = (values[row * columns + column] as number) + 2 ** (bits - 1);
      words[first + column] = (words[first + column] as number) | (value << shift);
    }
  }
  return words.buffer;
}

/** The reverse of packColumns; the words begin at an index of `heap`. */
function unpackColumns(
  heap: Int32Array,
  start: number,
  rows: number,
  columns: number,
  bits: number,
  out: Int32Array,
): void {
  const perWord = codesPerWord(bits);
  for (let row = 0; row < rows; row++) {
    const shift = (row % perWord) * bits;
    const first = start + Math.floor(row / perWord) * columns;
    for (let column = 0; column < columns; column++) {
      const value = ((heap[first + column] as number) >>> shift) & (2 ** bits - 1);
      out[row * columns + column] = value - 2 ** (bits - 1);
    }
  }
}
