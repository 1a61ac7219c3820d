// Shared by several test files: both builds of the core, repeatable random numbers, and the oracle. The oracle computes codes, scales and
// restored values one at a time, as the documentation defines them. It shares no code with web/src or cpp.
import { type DType, type Granularity, load, type Scalepoint, ScalepointError } from 'scalepoint';
import { describe, expect } from 'vitest';
import { problemOf } from '../../../web/src/core/errors.js';
import { type Hint, sayProblem } from '../../../web/src/core/option-problem.js';

/** Both builds of the small module. All computations are tested with each. */
export const cores: readonly { build: string; sp: Scalepoint }[] = [
  { build: 'SIMD', sp: await load({ simd: 'on' }) },
  { build: 'scalar', sp: await load({ simd: 'off' }) },
];

/** Both builds of the large module, for tests with any block type. modules.test.ts compares the results of both modules. */
export const largeCores: readonly { build: string; sp: Scalepoint }[] = [
  { build: 'SIMD', sp: await load({ simd: 'on', blocks: true }) },
  { build: 'scalar', sp: await load({ simd: 'off', blocks: true }) },
];

/** Runs tests of an instance with each build of the small module. */
export function describeBuilds(what: string, tests: (sp: Scalepoint) => void): void {
  for (const { build, sp } of cores) describe(`${what} with the ${build} build`, () => tests(sp));
}

/** Runs tests of an instance with each build of the large module. */
export function describeLarge(what: string, tests: (sp: Scalepoint) => void): void {
  for (const { build, sp } of largeCores) describe(`${what} with the ${build} build`, () => tests(sp));
}

export const dtypes: readonly DType[] = [
  'int2',
  'int3',
  'int4',
  'int5',
  'int6',
  'int7',
  'int8',
  'int16',
  'uint2',
  'uint3',
  'uint4',
  'uint5',
  'uint6',
  'uint7',
  'uint8',
  'uint16',
];
export const schemes = ['symmetric', 'asymmetric'] as const;
export const roundings = ['onnx', 'fused', 'reciprocal'] as const;
export type Scheme = (typeof schemes)[number];
export type Rounding = (typeof roundings)[number];
export type Codes = Int8Array | Uint8Array | Int16Array | Uint16Array;

export const largestFloat = 2 ** 128 - 2 ** 104;
export const smallestFloat = 2 ** -149;
/** Largest relative error of one rounding to float32. It is half the distance from 1 to the next float32. */
export const epsilon = 2 ** -24;

export function rangeOf(dtype: DType): { bits: number; signed: boolean; qmin: number; qmax: number } {
  const signed = !dtype.startsWith('u');
  const bits = Number(dtype.slice(signed ? 3 : 4));
  return signed
    ? { bits, signed, qmin: -(2 ** (bits - 1)), qmax: 2 ** (bits - 1) - 1 }
    : { bits, signed, qmin: 0, qmax: 2 ** bits - 1 };
}

export function codesOf(dtype: DType, codes: ArrayLike<number> | number): Codes {
  const { bits, signed } = rangeOf(dtype);
  const make = signed ? (bits > 8 ? Int16Array : Int8Array) : bits > 8 ? Uint16Array : Uint8Array;
  return typeof codes === 'number' ? new make(codes) : new make(codes);
}

// ------------------------------------------------------------------------------------------------------------------- numbers

/** A generator of random numbers. It uses only integer operations and exact float operations, so every engine gives the same numbers. */
export class Random {
  #state: number;

  constructor(seed: number) {
    this.#state = seed | 0;
  }

  /** 32 random bits. */
  bits(): number {
    this.#state = (this.#state + 0x9e3779b9) | 0;
    let z = this.#state;
    z = Math.imul(z ^ (z >>> 16), 0x21f0aaad);
    z = Math.imul(z ^ (z >>> 15), 0x735a2d97);
    return (z ^ (z >>> 15)) >>> 0;
  }

  /** A whole number in [0, n). */
  below(n: number): number {
    return Math.floor((this.bits() / 2 ** 32) * n);
  }

  pick<T>(values: readonly T[]): T {
    return values[this.below(values.length)]!;
  }

  /** n float32 numbers in [low, high). */
  uniform(n: number, low = -1, high = 1): Float32Array {
    const values = new Float32Array(n);
    for (let i = 0; i < n; i++) values[i] = low + (this.bits() / 2 ** 32) * (high - low);
    return values;
  }

  /** n float32 numbers distributed around 0 like weights. Each is the sum of four uniform numbers. */
  bell(n: number): Float32Array {
    const values = new Float32Array(n);
    for (let i = 0; i < n; i++) {
      let sum = 0;
      for (let j = 0; j < 4; j++) sum += this.bits() / 2 ** 32 - 0.5;
      values[i] = sum;
    }
    return values;
  }

  /** n finite float32 numbers of any magnitude, made from random bits. */
  anyFinite(n: number): Float32Array {
    const bits = new Uint32Array(n);
    for (let i = 0; i < n; i++) {
      const word = this.bits();
      bits[i] = (word & 0x7f800000) === 0x7f800000 ? word & 0xbfffffff : word;
    }
    return new Float32Array(bits.buffer);
  }
}

/** The value of a float16, by the definition of IEEE 754. */
function halfValue(bits: number): number {
  const sign = bits & 0x8000 ? -1 : 1;
  const exponent = (bits >> 10) & 31;
  const fraction = bits & 1023;
  if (exponent === 31) return fraction ? Number.NaN : sign * Infinity;
  return exponent === 0 ? sign * fraction * 2 ** -24 : sign * (1 + fraction / 1024) * 2 ** (exponent - 15);
}

/** The values of all float16, once one is needed. */
let halves: Float64Array | undefined;

/** The value of a float16. */
export function float16Value(bits: number): number {
  halves ??= Float64Array.from({ length: 2 ** 16 }, (_, word) => halfValue(word));
  return halves[bits & 0xffff]!;
}

const word = new Uint32Array(1);
const float = new Float32Array(word.buffer);

/** The value of a bfloat16. */
export function bfloat16Value(bits: number): number {
  word[0] = bits << 16;
  return float[0]!;
}

// -------------------------------------------------------------------------------------------------------------------- oracle

export function roundHalfEven(v: number): number {
  const below = Math.floor(v);
  const rest = v - below;
  if (rest < 0.5) return below;
  if (rest > 0.5) return below + 1;
  return below % 2 === 0 ? below : below + 1;
}

/** For each element, the index of its scale. It is computed from the element's coordinates in the array and in the array of scales. */
export function parametersOf(shape: readonly number[], granularity?: Granularity): { of: Uint32Array; count: number } {
  const size = shape.reduce((a, b) => a * b, 1);
  const of = new Uint32Array(size);
  if (granularity === undefined || granularity.kind === 'per-tensor') return { of, count: 1 };
  const given = granularity.axis ?? -1;
  const axis = given < 0 ? given + shape.length : given;
  const step = granularity.kind === 'per-group' ? granularity.groupSize : 1;
  const scales = shape.map((length, d) => {
    if (d === axis) return Math.ceil(length / step);
    return granularity.kind === 'per-group' ? length : 1;
  });
  const at = shape.map(() => 0);
  for (let i = 0; i < size; i++) {
    let parameter = 0;
    for (let d = 0; d < shape.length; d++) {
      const coordinate = scales[d] === 1 ? 0 : d === axis ? Math.floor(at[d]! / step) : at[d]!;
      parameter = parameter * scales[d]! + coordinate;
    }
    of[i] = parameter;
    for (let d = shape.length - 1; d >= 0 && ++at[d]! === shape[d]; d--) at[d] = 0;
  }
  return { of, count: scales.reduce((a, b) => a * b, 1) };
}

/** Options of `quantize` that the oracle supports. */
export interface Rule {
  dtype?: DType;
  scheme?: Scheme;
  shape?: readonly number[];
  granularity?: Granularity;
  includeZero?: boolean;
  symmetricRange?: 'restricted' | 'full';
  rounding?: Rounding;
  nonFinite?: 'error' | 'saturate';
}

/** The next float32 below a positive float32. */
function floatBelow(v: number): number {
  const bits = new Uint32Array(new Float32Array([v]).buffer);
  bits[0]!--;
  return new Float32Array(bits.buffer)[0]!;
}

/**
 * Scale and zero point of a range of float32 numbers. It does not implement the limit of 2^22 on zero points of ranges without zero, so such
 * a range must be less than some million steps away from zero.
 */
function parametersFor(low: number, high: number, rule: Rule): { scale: number; zeroPoint: number } {
  const { dtype = 'int8', scheme = 'symmetric', includeZero = true, symmetricRange = 'restricted' } = rule;
  const { bits, signed, qmin, qmax } = rangeOf(dtype);
  const smallest = 2 ** -127;
  // Rounds a scale to float32, and lowers it if scale * steps would overflow. That product is the farthest value that a code restores to.
  const finite = (scale: number, steps: number) => {
    const staysFinite = (s: number) => Number.isFinite(Math.fround(s * steps));
    let rounded = Math.fround(scale);
    if (!staysFinite(rounded)) rounded = Math.fround(largestFloat / steps);
    while (!staysFinite(rounded)) rounded = floatBelow(rounded);
    return rounded;
  };
  if (scheme === 'symmetric') {
    const middle = signed ? 0 : 2 ** (bits - 1);
    const size = Math.max(Math.abs(low), Math.abs(high));
    if (size === 0) return { scale: 1, zeroPoint: middle };
    const levels = symmetricRange === 'restricted' ? 2 ** (bits - 1) - 1 : (2 ** bits - 1) / 2;
    const steps = symmetricRange === 'restricted' ? 2 ** (bits - 1) - 1 : 2 ** (bits - 1);
    return { scale: finite(Math.max(size / levels, smallest), steps), zeroPoint: middle };
  }
  let [min, max] = [low, high];
  if (includeZero) [min, max] = [Math.min(min, 0), Math.max(max, 0)];
  if (min === max && min === 0) return { scale: 1, zeroPoint: 0 };
  // A constant is one step away from its zero point. If that step would be below the smallest scale, it rounds to 0 or 1 steps.
  if (min === max) return { scale: Math.max(Math.abs(min), smallest), zeroPoint: min < 0 && !signed ? 1 : 0 };
  const scale = Math.max((max - min) / (qmax - qmin), smallest);
  const zeroPoint = roundHalfEven(qmin - min / scale) + 0;
  return { scale: finite(scale, Math.max(zeroPoint - qmin, qmax - zeroPoint)), zeroPoint };
}

/** The code of a float32 number. A quotient in double, rounded to float32, is the float32 quotient, because 53 >= 2 * 24 + 2. */
function codeFor(
  x: number,
  scale: number,
  zeroPoint: number,
  { qmin, qmax }: { qmin: number; qmax: number },
  rounding: Rounding,
): number {
  const v = rounding === 'reciprocal' ? Math.fround(x * Math.fround(1 / scale)) : Math.fround(x / scale);
  let code: number;
  if (Number.isNaN(v)) code = zeroPoint;
  else if (rounding === 'fused') code = roundHalfEven(Math.fround(v + zeroPoint));
  else code = roundHalfEven(v) + zeroPoint;
  return Math.min(Math.max(code, qmin), qmax) + 0;
}

/** Results of the oracle for an array. */
export interface Expected {
  data: Codes;
  scale: Float32Array;
  zeroPoint: Int32Array;
  /** The dequantized codes. */
  restored: Float32Array;
  /** For each element, the index of its scale. */
  of: Uint32Array;
}

/** The results that `quantize` and `dequantize` must have. `given` holds scales and zero points to use instead of those of the range. */
export function expected(
  x: ArrayLike<number>,
  rule: Rule,
  given?: { scale: ArrayLike<number>; zeroPoint: ArrayLike<number> },
): Expected {
  const { dtype = 'int8', rounding = 'onnx' } = rule;
  const { of, count } = parametersOf(rule.shape ?? [x.length], rule.granularity);
  const scale = new Float32Array(count);
  const zeroPoint = new Int32Array(count);
  if (given !== undefined) {
    for (let p = 0; p < count; p++) {
      scale[p] = given.scale[given.scale.length === 1 ? 0 : p]!;
      zeroPoint[p] = given.zeroPoint[given.zeroPoint.length === 1 ? 0 : p]!;
    }
  } else {
    const low = new Float64Array(count).fill(Infinity);
    const high = new Float64Array(count).fill(-Infinity);
    for (let i = 0; i < x.length; i++) {
      const v = x[i]!;
      if (!Number.isFinite(v)) continue;
      const p = of[i]!;
      if (v < low[p]!) low[p] = v;
      if (v > high[p]!) high[p] = v;
    }
    for (let p = 0; p < count; p++) {
      const empty = low[p]! > high[p]!;
      const chosen = parametersFor(empty ? 0 : low[p]!, empty ? 0 : high[p]!, rule);
      scale[p] = chosen.scale;
      zeroPoint[p] = chosen.zeroPoint;
    }
  }
  const data = codesOf(dtype, x.length);
  const range = rangeOf(dtype);
  const restored = new Float32Array(x.length);
  for (let i = 0; i < x.length; i++) {
    const p = of[i]!;
    data[i] = codeFor(x[i]!, scale[p]!, zeroPoint[p]!, range, rounding);
    // The difference is exact, and the product has at most 48 bits, so there is one rounding.
    restored[i] = Math.fround(scale[p]! * (data[i]! - zeroPoint[p]!));
  }
  return { data, scale, zeroPoint, restored, of };
}

// ---------------------------------------------------------------------------------------------------------------- comparing

function haveSameBytes(a: unknown, b: unknown): boolean {
  if (!ArrayBuffer.isView(a) || !ArrayBuffer.isView(b) || a.byteLength !== b.byteLength) return false;
  const [x, y] = [a, b].map((v) => new Uint8Array(v.buffer, v.byteOffset, v.byteLength)) as [Uint8Array, Uint8Array];
  if (typeof Buffer !== 'undefined') return Buffer.compare(x, y) === 0;
  for (let i = 0; i < x.length; i++) if (x[i] !== y[i]) return false;
  return true;
}

/** The first difference between two arrays, as text; undefined if they have the same type and numbers. -0 differs from 0. */
export function difference(got: unknown, want: ArrayLike<number>): string | undefined {
  const kind = Object.prototype.toString.call(want);
  if (Object.prototype.toString.call(got) !== kind)
    return `got ${Object.prototype.toString.call(got)}, expected ${kind}`;
  const a = got as ArrayLike<number>;
  if (haveSameBytes(got, want)) return undefined;
  if (a.length !== want.length) return `got ${a.length} elements, expected ${want.length}`;
  for (let i = 0; i < a.length; i++) {
    if (!Object.is(a[i], want[i])) return `element ${i}: got ${a[i]}, expected ${want[i]}`;
  }
  return undefined;
}

/** Fails unless both arrays have the same type and numbers. It is much faster than toEqual for long arrays. */
export function expectSame(got: unknown, want: ArrayLike<number>, what = ''): void {
  const found = difference(got, want);
  if (found !== undefined) expect.fail(`${what}${what && ': '}${found}`);
}

/** Fails unless quantize, chooseQuantizationParameters and dequantize give the same as the oracle. */
export function expectAsOracle(
  sp: Scalepoint,
  x: Float32Array,
  rule: Rule,
  what = JSON.stringify(rule),
  want = expected(x, rule),
): void {
  const q = sp.quantize(x, rule);
  expectSame(q.scale, want.scale, `scale of ${what}`);
  expectSame(q.zeroPoint, want.zeroPoint, `zero point of ${what}`);
  expectSame(q.data, want.data, `codes of ${what}`);
  expectSame(sp.dequantize(q), want.restored, `restored values of ${what}`);
  const parameters = sp.chooseQuantizationParameters(x, rule);
  expectSame(parameters.scale, want.scale, `scale alone of ${what}`);
  expectSame(parameters.zeroPoint, want.zeroPoint, `zero point alone of ${what}`);
}

/**
 * Fails unless |x[i] - y[i]| is at most half a step, up to float32 rounding. The range of the codes must be that of x. One rounding is off by
 * at most epsilon times its result. Let m be the largest |x[i]|. The bound on |x - y| is the sum of these terms:
 *   scale / 2                   the distance to the nearest code
 *   2 epsilon |x|               x / scale, or x times the rounded reciprocal, times scale
 *   epsilon (2^bits + 1) scale  adding the zero point before rounding, where the sum is less than 2^bits + 1
 *   epsilon |y|                 the product that restores the value
 *   2 epsilon m                 the rounded scale: its error is at most 2 epsilon of itself (if it is subnormal), and it moves the outermost
 *                               codes by so much
 */
export function expectWithinHalfStep(x: ArrayLike<number>, scale: number, y: ArrayLike<number>, bits: number): void {
  let m = 0;
  for (let i = 0; i < x.length; i++) m = Math.max(m, Math.abs(x[i]!));
  for (let i = 0; i < x.length; i++) {
    const bound = scale / 2 + epsilon * (2 * Math.abs(x[i]!) + Math.abs(y[i]!) + 2 * m + (2 ** bits + 1) * scale);
    if (!(Math.abs(x[i]! - y[i]!) <= bound)) {
      expect.fail(`element ${i}: ${y[i]} is not within half of ${scale} from ${x[i]}`);
    }
  }
}

/** An ArrayBuffer that can be resized to twice its size. */
export function resizableBuffer(bytes: number): ArrayBuffer & { resize(bytes: number): void } {
  const make = ArrayBuffer as unknown as new (
    bytes: number,
    options: { maxByteLength: number },
  ) => ReturnType<typeof resizableBuffer>;
  return new make(bytes, { maxByteLength: bytes * 2 });
}

/** A SharedArrayBuffer. Pages that are not isolated lack its constructor, so it comes from a wasm memory. */
export function sharedBuffer(bytes: number): ArrayBuffer {
  const pages = Math.max(1, Math.ceil(bytes / 65536));
  return new WebAssembly.Memory({ initial: pages, maximum: pages, shared: true }).buffer;
}

/** The error that f throws. Fails if it throws none. */
export function thrownBy(f: () => unknown): unknown {
  let result: unknown;
  try {
    result = f();
  } catch (error) {
    return error;
  }
  return expect.fail(`nothing was thrown, but ${String(result)} returned`);
}

/** The mistake that an error names: its option, its hint and the type of the error. */
export function mistakeIn(error: unknown): { type: unknown; option: string | undefined; hint: Hint | undefined } {
  const { option, hint } = problemOf(error) ?? {};
  return { type: (error as Error).constructor, option, hint };
}

/** Hints of mistakes. */
export const meant = (...names: string[]): Hint => ({ kind: 'didYouMean', names });
export const takenBy = (call: string, name: string): Hint => ({ kind: 'takenBy', call, name });

/**
 * Fails unless f throws an error of exactly this type about an argument, or about a part of it. The error has the path of the argument as
 * `option`, and its message says the problem that it holds.
 */
export function expectRefusal(f: () => unknown, type: typeof TypeError | typeof RangeError, name: string): void {
  const error = thrownBy(f);
  const told = error instanceof Error ? `${error.name}: ${error.message}` : String(error);
  const { message, option } = error as { message?: string; option?: unknown };
  const problem = problemOf(error);
  const named = typeof option === 'string' && (option === name || /^[.[]/.test(option.slice(name.length)));
  const isSaid = problem !== undefined && message === `${option}: ${sayProblem(problem)}`;
  const isAbout = named && option.startsWith(name) && problem?.option === option && isSaid;
  if ((error as object).constructor !== type || !isAbout) {
    expect.fail(`expected a ${type.name} about ${name}, got ${told}, with the option ${String(option)}`);
  }
}

/** Fails unless f throws a ScalepointError with this code. Returns the error. */
export function expectCode(f: () => unknown, code: string): ScalepointError {
  const error = thrownBy(f);
  expect(error).toBeInstanceOf(ScalepointError);
  expect((error as ScalepointError).code).toBe(code);
  return error as ScalepointError;
}

/** Fails unless the instance still computes correctly. */
export function expectGood(sp: Scalepoint): void {
  const q = sp.quantize(new Float32Array([-1.27, 0.004, 0.5, 1.27]));
  expectSame(q.data, new Int8Array([-127, 0, 50, 127]), 'a good call after a bad one');
  expectSame(sp.dequantize(q), expected(new Float32Array([-1.27, 0.004, 0.5, 1.27]), {}).restored);
}

/** Reads a file of the project, in Node and in the browser. */
export async function readBytes(url: URL): Promise<Uint8Array<ArrayBuffer>> {
  if (url.protocol === 'file:') {
    const { readFile } = process.getBuiltinModule('node:fs/promises');
    return new Uint8Array(await readFile(url));
  }
  const response = await fetch(url);
  if (!response.ok) throw new Error(`${url.href}: status ${response.status}`);
  return new Uint8Array(await response.arrayBuffer());
}

/** The wasm files of the large module. */
export const wasmFiles = {
  simd: new URL('../../../web/src/core/core-simd.wasm', import.meta.url),
  scalar: new URL('../../../web/src/core/core-scalar.wasm', import.meta.url),
};

/** The wasm files of the small module. */
export const arraysFiles = {
  simd: new URL('../../../web/src/core/arrays-simd.wasm', import.meta.url),
  scalar: new URL('../../../web/src/core/arrays-scalar.wasm', import.meta.url),
};

/** Size of the instance's wasm memory in bytes. */
export function memorySize(sp: Scalepoint): number {
  const one = sp.allocate('uint8', 1);
  const { byteLength } = one.view.buffer;
  one.dispose();
  return byteLength;
}
