/**
 * One tensor from floats to int8: reads a range of bytes, converts it, hands back bytes and errors. Knows nothing of files; the wasm
 * core is used through the array API alone. A piece needs nothing but its own bytes (and the largest magnitude of a row that is
 * longer than a piece), so pieces can be converted anywhere and in any order.
 */
import { ScalepointError } from './errors.js';
import { quoted } from './formats/bytes.js';
import type { TensorDType } from './formats/safetensors.js';
import type { ErrorMeasures, Scalepoint } from './quantize.js';

/** Element types that can become int8. */
export type FloatDType = 'F32' | 'F16' | 'BF16' | 'F64';
/** Element types that a scale can have. */
export type ScaleDType = 'F32' | 'F16' | 'BF16';

/** Whether tensors of this type can become int8. */
export function isFloat(dtype: TensorDType): dtype is FloatDType {
  return dtype === 'F32' || dtype === 'F16' || dtype === 'BF16' || dtype === 'F64';
}

/** The type of a tensor's scales: its own, as the layout asks for; float32 for float64, which is computed in float32. */
export function scaleDType(dtype: FloatDType): ScaleDType {
  return dtype === 'F64' ? 'F32' : dtype;
}

/** Bytes of an element. */
export const floatBytes: Readonly<Record<FloatDType, number>> = { F32: 4, F16: 2, BF16: 2, F64: 8 };

// ---------------------------------------------------------------------------------------------------------- float16, bfloat16

const oneFloat = new Float32Array(1);
const oneWord = new Uint32Array(oneFloat.buffer);

/** v rounded half to even, for 0 <= v < 2^52. */
function roundHalfEven(v: number): number {
  const down = Math.floor(v);
  const rest = v - down;
  return rest > 0.5 || (rest === 0.5 && down % 2 === 1) ? down + 1 : down;
}

/** The bits of the float16 nearest to a positive float32, half to even. From 65520 on it is infinity. */
export function toFloat16Bits(x: number): number {
  oneFloat[0] = x;
  const word = oneWord[0] as number;
  // Below 2^-14 the float16s are the multiples of 2^-24; the smallest normal one follows the largest subnormal one without a gap.
  if (word < 0x38800000) return roundHalfEven(x * 2 ** 24);
  // Above, the exponent is rebased from 127 to 15 and 13 bits of mantissa go; a carry out of it moves the exponent on, as it should.
  return Math.min(roundHalfEven((word - 0x38000000) / 2 ** 13), 0x7c00);
}

/** The bits of the bfloat16 nearest to a positive float32, half to even: its upper half. */
export function toBfloat16Bits(x: number): number {
  oneFloat[0] = x;
  return roundHalfEven((oneWord[0] as number) / 2 ** 16);
}

let float16Values: Float32Array | undefined;

/** The values of all 65536 float16s, by their bits. */
function float16Table(): Float32Array {
  if (float16Values === undefined) {
    float16Values = new Float32Array(1 << 16);
    for (let bits = 0; bits < 1 << 16; bits++) {
      const exponent = (bits >> 10) & 31;
      const mantissa = bits & 1023;
      let value = exponent === 0 ? mantissa * 2 ** -24 : (1024 + mantissa) * 2 ** (exponent - 25);
      if (exponent === 31) value = mantissa === 0 ? Number.POSITIVE_INFINITY : Number.NaN;
      float16Values[bits] = bits >= 0x8000 ? -value : value;
    }
  }
  return float16Values;
}

/** Little-endian floats as numbers. Copies only where the bytes are not aligned or are no float32 or float64. */
export function decodeFloats(bytes: Uint8Array<ArrayBuffer>, dtype: FloatDType): Float32Array | Float64Array {
  const size = floatBytes[dtype];
  const { buffer, byteOffset } = bytes.byteOffset % size === 0 ? bytes : bytes.slice();
  const length = bytes.byteLength / size;
  if (dtype === 'F32') return new Float32Array(buffer, byteOffset, length);
  if (dtype === 'F64') return new Float64Array(buffer, byteOffset, length);
  const halves = new Uint16Array(buffer, byteOffset, length);
  const values = new Float32Array(length);
  if (dtype === 'F16') {
    const table = float16Table();
    for (let i = 0; i < length; i++) values[i] = table[halves[i] as number] as number;
  } else {
    const words = new Uint32Array(values.buffer);
    for (let i = 0; i < length; i++) words[i] = (halves[i] as number) << 16;
  }
  return values;
}

// ----------------------------------------------------------------------------------------------------------------------- scales

/** Scales as they are stored, and the same as numbers. */
interface StoredScales {
  readonly bytes: Uint8Array<ArrayBuffer>;
  readonly values: Float32Array;
}

/**
 * Rounds scales to the type that they are stored in: to nearest, up where the nearest would be too small for the largest magnitude of
 * its row, down where the largest code times the scale would be infinite.
 *
 * With int8 codes up to 127, scale s restores every |x| <= 127.5 s within s / 2. The core gives s = absmax / 127, which leaves a
 * margin of 1/254. Rounding a normal float16 (relative error at most 2^-11) or bfloat16 (2^-9) keeps within that, so there the
 * nearest value is the one. Among float16's subnormal numbers (rows with absmax < 127 * 2^-14) it may be too small, or 0: then the
 * next larger one is taken, the smallest that does. At the other end, a float16 row with 65504 has the nearest scale 516, and
 * 127 * 516 is infinite to whoever multiplies in float16; the next smaller one, 515.5, still reaches 65504. Likewise at the end of
 * float32, in which the other two types are restored.
 * The codes are made with the result, so the bound holds for what is stored.
 */
export function storeScales(scale: Float32Array, absmax: Float64Array, dtype: ScaleDType): StoredScales {
  // From here on a product rounds to infinity.
  const overflow = dtype === 'F16' ? 65520 : 2 ** 128 - 2 ** 103;
  const values = new Float32Array(scale.length);
  const bits = dtype === 'F32' ? new Uint32Array(values.buffer) : new Uint16Array(scale.length);
  const toNumber = (word: number): number => {
    if (dtype === 'F16') return float16Table()[word] as number;
    oneWord[0] = dtype === 'BF16' ? word * 2 ** 16 : word;
    return oneFloat[0] as number;
  };
  for (let row = 0; row < scale.length; row++) {
    const exact = scale[row] as number;
    oneFloat[0] = exact;
    let word = oneWord[0] as number;
    if (dtype === 'F16') word = toFloat16Bits(exact);
    if (dtype === 'BF16') word = toBfloat16Bits(exact);
    if (127 * toNumber(word) >= overflow) word--;
    while ((absmax[row] as number) > 127.5 * toNumber(word)) word++;
    bits[row] = word;
    values[row] = toNumber(word);
  }
  return { bytes: new Uint8Array(bits.buffer), values };
}

// ----------------------------------------------------------------------------------------------------------------------- errors

/** The measures of `sp.compare`, over pieces. Sums are in double. */
export class ErrorSums {
  private count = 0;
  private signal = 0;
  private restored = 0;
  private product = 0;
  private noise = 0;
  private absolute = 0;
  private largest = 0;

  /** Adds the elements of rows: x[i] against scale[row] * code, one float32 multiplication as `sp.dequantize` does it. */
  addRows(x: Float32Array | Float64Array, codes: Int8Array, scale: Float32Array): void {
    const inner = x.length / scale.length;
    // Sums in locals: fields of an object would be written back at every element.
    let [signal, restored, product, noise, absolute, largest] = [0, 0, 0, 0, 0, 0];
    for (let row = 0, i = 0; row < scale.length; row++) {
      const step = scale[row] as number;
      for (const end = i + inner; i < end; i++) {
        const original = x[i] as number;
        const value = Math.fround(step * (codes[i] as number));
        const error = Math.abs(original - value);
        signal += original * original;
        restored += value * value;
        product += original * value;
        noise += error * error;
        absolute += error;
        if (error > largest) largest = error;
      }
    }
    this.count += x.length;
    this.signal += signal;
    this.restored += restored;
    this.product += product;
    this.noise += noise;
    this.absolute += absolute;
    this.largest = Math.max(this.largest, largest);
  }

  /** Measures of everything that was added: at least one element, none of them NaN or infinite. */
  measures(): ErrorMeasures {
    const { count, signal, restored, product, noise, absolute, largest } = this;
    const mse = noise / count;
    const cosine = product / Math.sqrt(signal) / Math.sqrt(restored);
    return {
      mse,
      rmse: Math.sqrt(mse),
      meanAbsoluteError: absolute / count,
      maxAbsoluteError: largest,
      // A row without signal has scale 1 and no error, so that no quotient here is 0 / 0 when there is noise.
      relativeL2: noise === 0 ? 0 : Math.sqrt(noise / signal),
      sqnrDb: noise === 0 ? Number.POSITIVE_INFINITY : 10 * Math.log10(signal / noise),
      cosine: noise === 0 ? 1 : restored === 0 ? 0 : Math.min(cosine, 1),
      nonFinite: 0,
    };
  }
}

// ------------------------------------------------------------------------------------------------------------------- conversion

/** What is used of the array API. */
export type ArrayCore = Pick<Scalepoint, 'quantize' | 'chooseQuantizationParameters'>;

/** Rows of a tensor as int8. */
export interface ConvertedRows {
  /** One code an element. */
  readonly codes: Int8Array;
  /** One scale a row, in the tensor's scale dtype. */
  readonly scale: Uint8Array<ArrayBuffer>;
}

/**
 * Index of the first element that is NaN, infinite, or infinite once rounded to float32; -1 if there is none.
 */
function firstNonFinite(x: Float32Array | Float64Array): number {
  for (let i = 0; i < x.length; i++) if (!Number.isFinite(Math.fround(x[i] as number))) return i;
  return -1;
}

/** Raises each absmax[row] to the largest magnitude of the row. Returns false if a row holds NaN or an infinity. */
function observeRows(x: Float32Array | Float64Array, absmax: Float64Array): boolean {
  const inner = x.length / absmax.length;
  for (let row = 0, i = 0; row < absmax.length; row++) {
    let largest = absmax[row] as number;
    // A sum that any NaN or infinity turns into NaN; one test a row is cheaper than one an element.
    let poison = 0;
    for (const end = i + inner; i < end; i++) {
      const magnitude = Math.abs(Math.fround(x[i] as number));
      poison += magnitude * 0;
      if (magnitude > largest) largest = magnitude;
    }
    if (poison !== 0) return false;
    absmax[row] = largest;
  }
  return true;
}

/**
 * Converts rows: symmetric, one scale a row (scale = absmax / 127 as `sp.quantize` chooses it, then rounded by `storeScales`), codes
 * made with the scale as stored. Every finite x is restored within half a step, |x - s q| <= s / 2 up to the rounding of float32.
 * @param absmax the largest magnitude of each row, of which `x` may be a part
 */
export function convertRows(
  sp: ArrayCore,
  x: Float32Array | Float64Array,
  absmax: Float64Array,
  dtype: FloatDType,
  sums: ErrorSums,
): ConvertedRows {
  const rows = absmax.length;
  const granularity = { kind: 'per-channel', axis: 0 } as const;
  const { scale } = sp.chooseQuantizationParameters(absmax, { dtype: 'int8', shape: [rows, 1], granularity });
  const stored = storeScales(scale, absmax, scaleDType(dtype));
  const codes = new Int8Array(x.length);
  sp.quantize(x, {
    dtype: 'int8',
    shape: [rows, x.length / rows],
    granularity,
    range: { scale: stored.values, zeroPoint: 0 },
    out: codes,
  });
  sums.addRows(x, codes, stored.values);
  return { codes, scale: stored.bytes };
}

/** A tensor to convert and where its bytes come from and go to. */
export interface ConvertJob {
  readonly name: string;
  readonly dtype: FloatDType;
  /** At least one dimension, no zeros. */
  readonly shape: readonly number[];
  /** Offset of the tensor in its file, for errors; undefined if the file's bytes are in another order. */
  readonly byteOffset?: number | undefined;
  /** Bytes to hold of the original at a time. A row that is longer is read twice. */
  readonly pieceBytes: number;
  /** Bytes [begin, end) of the tensor. */
  read(begin: number, end: number): Promise<Uint8Array<ArrayBuffer>>;
  /** Takes codes at a byte offset in the result. */
  writeCodes(offset: number, codes: Uint8Array<ArrayBuffer>): Promise<void>;
  /** Takes scales at a byte offset in the tensor of scales. */
  writeScale(offset: number, scale: Uint8Array<ArrayBuffer>): Promise<void>;
  /** Called after each piece with the bytes of the original done so far; what it throws ends the conversion. */
  progress?(bytesDone: number): void;
}

/** The index of an element, as in `[3, 0, 7]`. */
function indexOf(element: number, shape: readonly number[]): string {
  const index: number[] = [];
  let rest = element;
  for (const dimension of [...shape].reverse()) {
    index.unshift(rest % dimension);
    rest = Math.floor(rest / dimension);
  }
  return `[${index.join(', ')}]`;
}

/**
 * Converts a tensor to int8 with one scale for each index of axis 0, piece by piece.
 * @throws ScalepointError `NON_FINITE` naming the tensor and the first element that is NaN or infinite
 */
export async function convertTensor(sp: ArrayCore, job: ConvertJob): Promise<ErrorMeasures> {
  const { dtype, shape } = job;
  const size = floatBytes[dtype];
  const rows = shape[0] as number;
  const inner = shape.slice(1).reduce((product, dimension) => product * dimension, 1);
  const scaleSize = floatBytes[scaleDType(dtype)];
  const pieceElements = Math.max(1, Math.floor(job.pieceBytes / size));
  const sums = new ErrorSums();

  /** Elements [begin, end) as numbers; widens absmax by them if it is given. */
  const load = async (begin: number, end: number, absmax?: Float64Array) => {
    const x = decodeFloats(await job.read(begin * size, end * size), dtype);
    if (absmax !== undefined && !observeRows(x, absmax)) {
      const at = firstNonFinite(x);
      const value = x[at] as number;
      const what = Number.isFinite(value) ? `${value}, too large for float32,` : String(value);
      const place = indexOf(begin + at, shape);
      throw new ScalepointError(
        'NON_FINITE',
        `tensor ${quoted(job.name)} holds ${what} at ${place}; a rule can keep it`,
        {
          tensor: job.name,
          byteOffset: job.byteOffset === undefined ? undefined : job.byteOffset + (begin + at) * size,
        },
      );
    }
    return x;
  };
  const convert = async (begin: number, x: Float32Array | Float64Array, absmax: Float64Array) => {
    const { codes, scale } = convertRows(sp, x, absmax, dtype, sums);
    await job.writeCodes(begin, new Uint8Array(codes.buffer as ArrayBuffer));
    job.progress?.((begin + x.length) * size);
    return scale;
  };

  if (inner <= pieceElements) {
    const rowsAtOnce = Math.floor(pieceElements / inner);
    for (let row = 0; row < rows; row += rowsAtOnce) {
      const absmax = new Float64Array(Math.min(rowsAtOnce, rows - row));
      const x = await load(row * inner, (row + absmax.length) * inner, absmax);
      await job.writeScale(row * scaleSize, await convert(row * inner, x, absmax));
    }
  } else {
    for (let row = 0; row < rows; row++) {
      const absmax = new Float64Array(1);
      const parts: [number, number][] = [];
      for (let begin = row * inner; begin < (row + 1) * inner; begin += pieceElements) {
        parts.push([begin, Math.min(begin + pieceElements, (row + 1) * inner)]);
      }
      for (const [begin, end] of parts) await load(begin, end, absmax);
      let scale = new Uint8Array();
      for (const [begin, end] of parts) scale = await convert(begin, await load(begin, end), absmax);
      await job.writeScale(row * scaleSize, scale);
    }
  }
  return sums.measures();
}
