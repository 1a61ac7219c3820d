/** Makes the parts of a tensor in compressed-tensors' layout out of floats, and floats out of the parts. */
import {
  DType,
  ErrorSums,
  Layout,
  LinearJob,
  Minifloat,
  type QuantizationSpec,
  Scheme,
  Status,
  SymmetricRange,
} from '../core/door.js';
import { mseSearch, type RangeSearch, type SearchedRange, searchOf } from '../core/range.js';
import type { Core } from '../core/wasm.js';
import type { Arena } from './arena.js';
import type { CastType } from './cast.js';
import type { Bytes, Encoded, Form, Problem, Role, Stored, Tile } from './codec.js';
import { addErrors, check, clearSums, floats, layoutOfRuns, nonFinite, nothing, specOf, sumsOf } from './elements.js';

export interface CompressedForm extends Form {
  readonly codec: 'compressed-tensors';
  /** Integers, or float8e4m3fn: 8 bits, symmetric, with one scale a row and not packed. */
  readonly type: 'int' | 'float';
  readonly bits: 4 | 8;
  readonly symmetric: boolean;
  /** Elements of a row that share a scale, a divisor of its length. Undefined: the whole row shares one. */
  readonly groupSize: number | undefined;
  readonly packed: boolean;
  /** Type of the scales. */
  readonly scale: CastType;
  /** Of integers: how the ranges of rows that fit into a tile are found. Undefined: from the smallest and the largest value. */
  readonly range?: SearchedRange | undefined;
}

/** Int32 words that hold n codes. */
export function wordsOf(n: number, bits: number): number {
  return Math.ceil((n * bits) / 32);
}

/** Bytes of n neighboring codes. */
export function codeBytes(n: number, { packed, bits }: CompressedForm): number {
  return packed ? wordsOf(n, bits) * 4 : n;
}

export function scaleBytes({ scale }: CompressedForm): number {
  return scale === 'F32' ? 4 : 2;
}

// ------------------------------------------------------------------------------------------------------------------------- encode

/** float8e4m3fn, and its largest value. */
const float8 = { format: Minifloat.float8E4M3FN, largest: 448 };

/** The smallest positive number, and the distance from 1 to the next, of the types that scales are stored in. */
const smallest: Readonly<Record<CastType, number>> = { F32: 2 ** -149, F16: 2 ** -24, BF16: 2 ** -133 };
const epsilon: Readonly<Record<CastType, number>> = { F32: 2 ** -23, F16: 2 ** -10, BF16: 2 ** -7 };

/** Rounds half to even. |v| < 2^51. */
function roundHalfEven(v: number): number {
  return v + 6755399441055744 - 6755399441055744;
}

/** Runs of neighbors that share a scale, in a tile. */
function runsIn({ groupSize }: CompressedForm, { rows, columns }: { readonly rows: number; readonly columns: number }) {
  const size = groupSize ?? columns;
  return { count: (rows * columns) / size, size };
}

/** Room for the parameters of so many runs. */
function takeParameters(arena: Arena, count: number) {
  return {
    scale: arena.take(count * 4),
    zeroPoint: arena.take(count * 4),
    /** The scales in the type that they are stored in. */
    stored: arena.take(count * 4),
  };
}
type Parameters = ReturnType<typeof takeParameters>;

/** The memory of a tile that becomes codes. */
function layOut(core: Core, tile: Tile, form: CompressedForm, arena: Arena) {
  const { rows, columns, ranges, roles, type, source } = tile;
  const { count, size } = runsIn(form, tile);
  const n = rows * columns;
  const wantsData = roles.includes('data');
  const searches = form.range !== undefined && ranges === undefined;
  const searchBytes = searches
    ? core.withRecord(Layout, layoutOfRuns(count, size), (layout) => core.module.searchScratchBytes(layout, n))
    : 0;
  return {
    count,
    size,
    x: ranges === undefined || wantsData ? floats(core, arena, type, source, n) : 0,
    min: arena.take(count * 4),
    max: arena.take(count * 4),
    at: takeParameters(arena, count),
    job: arena.take(LinearJob.bytes),
    zeroPoints: arena.take(count * 4),
    search: searches
      ? { other: takeParameters(arena, count), scratch: arena.take(searchBytes), bytes: searchBytes }
      : undefined,
    codes: arena.take(wantsData ? n : 0),
    words: arena.take(wantsData && form.packed ? rows * codeBytes(columns, form) : 0),
  };
}
type Room = ReturnType<typeof layOut>;

/** The job that makes codes with parameters of a tile, good until the next call. Returns its address. */
function jobOf({ module }: Core, { job, count, size }: Room, { scale, zeroPoint }: Parameters, spec: QuantizationSpec) {
  LinearJob.write(module, job, { layout: layoutOfRuns(count, size), spec, scale, zeroPoint, parameters: count });
  return job;
}

/** See Codec. */
export function encode(core: Core, tile: Tile, form: CompressedForm, arena: Arena): Encoded {
  const { rows, columns, type, source, roles, measures, ranges } = tile;
  const room = layOut(core, tile, form, arena);
  if (arena.onlyCounts) return nothing;
  const { module } = core;
  const { count, x, min, max, codes } = room;
  const n = rows * columns;
  if (ranges === undefined) {
    module.clearRange(min, max, count);
    const status = module.observe(jobOf(core, room, room.at, specOf(form.bits)), x, n, 0, min, max);
    if (status === Status.nonFinite) return { parts: {}, problem: nonFinite(core, x, n, type, source) };
    check(status);
  } else {
    ranges.forEach(([low, high], i) => {
      module.HEAPF32[min / 4 + i] = low;
      module.HEAPF32[max / 4 + i] = high;
    });
  }
  chooseParameters(core, form, room);
  if (room.search !== undefined) searchParameters(core, form, room, room.search);
  const parts = storeParameters(core, form, room, rows, roles);
  if (!roles.includes('data')) return { parts };

  clearSums(core);
  const problem = makeCodes(core, form, room, n, measures);
  if (problem !== undefined) return { parts: {}, problem };
  if (form.packed) packCodes(core, form, room, rows, columns);
  const data = { address: form.packed ? room.words : codes, bytes: rows * codeBytes(columns, form) };
  return { parts: { data, ...parts }, ...(measures ? { sums: sumsOf(core) } : {}) };
}

/** Makes the codes of n floats. Adds up their errors if `measures`. */
function makeCodes(core: Core, form: CompressedForm, room: Room, n: number, measures: boolean): Problem | undefined {
  const { module, scratch } = core;
  const { x, codes } = room;
  const job = jobOf(core, room, room.at, specOf(form.bits));
  if (form.type === 'float') {
    check(module.quantizeMinifloat(job, x, n, 0, float8.format, codes));
    if (measures) measureFloats(core, room, job, n);
    return undefined;
  }
  if (!measures) {
    check(module.quantizeLinear(job, x, n, 0, codes));
    return undefined;
  }
  check(module.quantizeLinearMeasured(job, x, n, 0, codes, scratch.sums));
  // Codes reach half a step beyond the largest values, and may stand for more than the largest float.
  return ErrorSums.read(module, scratch.sums).nonFinite === 0 ? undefined : firstBeyondFloat(core, room, n);
}

/**
 * Adds the errors of float8 codes to the sums. float8e4m3fn has no infinity. The scale of the largest float32, FLT_MAX / 448, is still
 * finite, and so is 448 times a scale that was rounded up to 16 bits.
 */
function measureFloats(core: Core, { x, codes }: Room, job: number, n: number): void {
  const { module, scratch } = core;
  const { y } = scratch;
  for (let start = 0; start < n; start += scratch.elements) {
    const some = Math.min(scratch.elements, n - start);
    check(module.dequantizeMinifloat(job, codes + start, some, start, float8.format, y));
    addErrors(core, x + start * 4, y, some);
  }
}

/** The first element whose code stands for an infinity. */
function firstBeyondFloat(core: Core, { x, codes, size, at }: Room, n: number): Problem | undefined {
  const { HEAP8, HEAP32, HEAPF32 } = core.module;
  for (let i = 0; i < n; i++) {
    const run = Math.floor(i / size);
    const steps = (HEAP8[codes + i] as number) - (HEAP32[at.zeroPoint / 4 + run] as number);
    if (Number.isFinite(Math.fround(steps * (HEAPF32[at.scale / 4 + run] as number)))) continue;
    return { kind: 'overflow', index: i, value: HEAPF32[x / 4 + i] as number };
  }
  return undefined;
}

/** Codes as words of offset binary: two's complement with the top bit flipped. The padding of a row is 0. */
function packCodes(core: Core, form: CompressedForm, { codes, words }: Room, rows: number, columns: number): void {
  const { module } = core;
  const { bits } = form;
  const rowBytes = codeBytes(columns, form);
  core.withRecord(DType, specOf(bits).dtype, (dtype) => {
    if (rowBytes * 8 === columns * bits) {
      check(module.pack(codes, rows * columns, dtype, words));
      return;
    }
    module.HEAPU8.fill(0, words, words + rows * rowBytes);
    for (let row = 0; row < rows; row++) {
      check(module.pack(codes + row * columns, columns, dtype, words + row * rowBytes));
    }
  });
  const all = module.HEAP32.subarray(words / 4, (words + rows * rowBytes) / 4);
  flipTopBits(all, bits);
  const rest = columns % (32 / bits);
  if (rest === 0) return;
  const keep = 2 ** (rest * bits) - 1;
  for (let i = rowBytes / 4 - 1; i < all.length; i += rowBytes / 4) all[i] = (all[i] as number) & keep;
}

function flipTopBits(words: Int32Array, bits: number): void {
  const flip = bits === 4 ? 0x88888888 : 0x80808080;
  for (let i = 0; i < words.length; i++) words[i] = (words[i] as number) ^ flip;
}

// --------------------------------------------------------------------------------------------------------------------- parameters

/**
 * Scales and zero points by the formulas of compressed-tensors (calculate_qparams). The range includes 0.
 *   symmetric    scale = absmax / ((qmax - qmin) / 2)
 *   asymmetric   scale = (max - min) / (qmax - qmin), zero point = round(qmin - min / scale)
 * In float32. The scale is then rounded to the type that it is stored in; zero points and codes are made with the result. A run of
 * zeros gets the epsilon of that type as its scale, as it does there. A scale that would round to 0 becomes the smallest positive number.
 * For float8, qmin and qmax are the largest magnitudes of that type.
 */
function chooseParameters(core: Core, form: CompressedForm, room: Room): void {
  const { type, bits, symmetric, scale: stored } = form;
  const { module } = core;
  const { count, at } = room;
  const levels = type === 'float' ? 2 * float8.largest : 2 ** bits - 1;
  const qmin = -(2 ** (bits - 1));
  const min = module.HEAPF32.subarray(room.min / 4, room.min / 4 + count);
  const max = module.HEAPF32.subarray(room.max / 4, room.max / 4 + count);
  const scale = module.HEAPF32.subarray(at.scale / 4, at.scale / 4 + count);
  const zeroPoint = module.HEAP32.subarray(at.zeroPoint / 4, at.zeroPoint / 4 + count);
  for (let i = 0; i < count; i++) {
    const low = Math.min(min[i] as number, 0);
    const high = Math.max(max[i] as number, 0);
    // In double where the difference of two float32 would be infinite.
    const width = Number.isFinite(Math.fround(high - low)) ? Math.fround(high - low) : high - low;
    scale[i] = symmetric ? (Math.max(-low, high) * 2) / levels : width / levels;
  }
  narrowScales(core, stored, at, count);
  widenScales(core, stored, at, count);
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

/** Rounds scales to the type that they are stored in. float32 is that already. */
function narrowScales({ module }: Core, stored: CastType, at: Parameters, count: number): void {
  if (stored === 'F16') check(module.narrowFloat16(at.scale, count, at.stored));
  else if (stored === 'BF16') check(module.narrowBfloat16(at.scale, count, at.stored));
}

/** The floats that stored scales stand for. */
function widenScales({ module }: Core, stored: CastType, at: Parameters, count: number): void {
  if (stored === 'F16') check(module.widenFloat16(at.stored, count, at.scale));
  else if (stored === 'BF16') check(module.widenBfloat16(at.stored, count, at.scale));
}

/**
 * Replaces scales and zero points by those that the form's range asks for. With 'mse' only where they restore the run better with the
 * scale as it is stored. The neighbors of that scale are tried as well.
 */
function searchParameters(core: Core, form: CompressedForm, room: Room, search: NonNullable<Room['search']>): void {
  const { module } = core;
  const { bits, symmetric, scale: stored } = form;
  const { method, percentile } = searchOf(form.range) as RangeSearch;
  const { x, count, size } = room;
  const { other, scratch, bytes } = search;
  const spec = {
    ...specOf(bits),
    scheme: symmetric ? Scheme.symmetric : Scheme.asymmetric,
    symmetricRange: SymmetricRange.full,
  };
  const found = jobOf(core, room, other, spec);
  check(module.searchQparams(found, x, count * size, method, percentile, scratch, bytes));
  narrowScales(core, stored, other, count);
  widenScales(core, stored, other, count);
  if (method !== mseSearch.method) {
    takeUsable(core, room, other);
    return;
  }
  const job = jobOf(core, room, room.at, spec);
  const takeBetter = () => check(module.takeBetter(job, x, size, other.scale, other.zeroPoint));
  takeBetter();
  if (stored === 'F32') return;
  // The bits of positive floats are in their order: one up, then one down.
  const { HEAPU16 } = module;
  for (const step of [1, -2]) {
    for (let i = other.stored / 2; i < other.stored / 2 + count; i++) HEAPU16[i] = (HEAPU16[i] as number) + step;
    widenScales(core, stored, other, count);
    takeBetter();
  }
}

/** Takes the other parameters. Runs of zeros keep what they have, and so do those whose scale is beyond the stored type. */
function takeUsable(core: Core, { count, min, max, at }: Room, other: Parameters): void {
  const { HEAPF32, HEAP32 } = core.module;
  for (let i = 0; i < count; i++) {
    const scale = HEAPF32[other.scale / 4 + i] as number;
    const isZero = HEAPF32[min / 4 + i] === 0 && HEAPF32[max / 4 + i] === 0;
    if (isZero || !(scale > 0 && scale < Infinity)) continue;
    HEAPF32[at.scale / 4 + i] = scale;
    HEAP32[at.zeroPoint / 4 + i] = HEAP32[other.zeroPoint / 4 + i] as number;
  }
}

/** Scales and zero points as they are stored. */
function storeParameters(
  core: Core,
  form: CompressedForm,
  { count, at, zeroPoints }: Room,
  rows: number,
  roles: readonly Role[],
): Record<Role, Bytes> {
  const parts: Record<Role, Bytes> = {};
  if (roles.includes('scale')) {
    narrowScales(core, form.scale, at, count);
    parts.scale = { address: form.scale === 'F32' ? at.scale : at.stored, bytes: count * scaleBytes(form) };
  }
  if (roles.includes('zeroPoint')) {
    const { HEAP32, HEAPU8 } = core.module;
    const values = HEAP32.subarray(at.zeroPoint / 4, at.zeroPoint / 4 + count);
    const packed = form.packed ? packColumns(values, rows, count / rows, form.bits) : Int8Array.from(values);
    HEAPU8.set(new Uint8Array(packed.buffer), zeroPoints);
    parts.zeroPoint = { address: zeroPoints, bytes: packed.byteLength };
  }
  return parts;
}

/** Packs along the rows: word [r / n, c] holds the values [r .. r + n - 1, c] in offset binary, first row lowest. */
function packColumns(values: Int32Array, rows: number, columns: number, bits: number): Int32Array<ArrayBuffer> {
  const perWord = 32 / bits;
  const words = new Int32Array(Math.ceil(rows / perWord) * columns);
  for (let row = 0; row < rows; row++) {
    const shift = (row % perWord) * bits;
    const first = Math.floor(row / perWord) * columns;
    for (let column = 0; column < columns; column++) {
      const value = (values[row * columns + column] as number) + 2 ** (bits - 1);
      words[first + column] = (words[first + column] as number) | (value << shift);
    }
  }
  return words;
}

/** The reverse of packColumns. */
function unpackColumns(words: Int32Array, rows: number, columns: number, bits: number, out: Int32Array): void {
  const perWord = 32 / bits;
  for (let row = 0; row < rows; row++) {
    const shift = (row % perWord) * bits;
    const first = Math.floor(row / perWord) * columns;
    for (let column = 0; column < columns; column++) {
      const value = ((words[first + column] as number) >>> shift) & (2 ** bits - 1);
      out[row * columns + column] = value - 2 ** (bits - 1);
    }
  }
}

// ------------------------------------------------------------------------------------------------------------------------- decode

/** See Codec. */
export function decode(core: Core, stored: Stored, form: CompressedForm, arena: Arena): number {
  const { rows, columns } = stored;
  const n = rows * columns;
  const { count, size } = runsIn(form, stored);
  const x = arena.take(n * 4);
  const at = takeParameters(arena, count);
  const room = arena.take(form.packed ? n : 0);
  if (arena.onlyCounts) return x;
  const { module } = core;
  const scale = form.scale === 'F32' ? (stored.parts.scale as number) : at.scale;
  widenScales(core, form.scale, { ...at, stored: stored.parts.scale as number }, count);
  const data = stored.parts.data as number;
  const spec = specOf(form.bits);
  const job = { layout: layoutOfRuns(count, size), spec, scale, zeroPoint: at.zeroPoint, parameters: count };
  if (form.type === 'float') {
    core.withRecord(LinearJob, job, (to) => check(module.dequantizeMinifloat(to, data, n, 0, float8.format, x)));
    return x;
  }
  const codes = form.packed ? unpackCodes(core, form, data, rows, columns, room) : data;
  const zeroPoint = module.HEAP32.subarray(at.zeroPoint / 4, at.zeroPoint / 4 + count);
  const from = stored.parts.zeroPoint;
  if (from === undefined) zeroPoint.fill(0);
  else if (form.packed) unpackColumns(module.HEAP32.subarray(from / 4), rows, count / rows, form.bits, zeroPoint);
  else zeroPoint.set(module.HEAP8.subarray(from, from + count));
  core.withRecord(LinearJob, job, (to) => check(module.dequantizeLinear(to, codes, n, 0, x)));
  return x;
}

/** Unpacks words, which are changed on the way. Returns the address of the codes. */
function unpackCodes(core: Core, form: CompressedForm, data: number, rows: number, columns: number, codes: number) {
  const { module } = core;
  const rowBytes = codeBytes(columns, form);
  flipTopBits(module.HEAP32.subarray(data / 4, (data + rows * rowBytes) / 4), form.bits);
  core.withRecord(DType, specOf(form.bits).dtype, (dtype) => {
    for (let row = 0; row < rows; row++) {
      check(module.unpack(data + row * rowBytes, columns, dtype, codes + row * columns));
    }
  });
  return codes;
}
