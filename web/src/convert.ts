/**
 * One tensor from floats to int8: reads a range of bytes, converts it, hands back bytes and errors. Knows nothing of files; the wasm
 * core is used through the array API alone. A piece needs nothing but its own bytes (and the scale of a row that is longer than a
 * piece), so pieces can be converted anywhere and in any order.
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

/** The value of a float16's bits. */
function fromFloat16Bits(bits: number): number {
  const exponent = (bits >> 10) & 31;
  const mantissa = bits & 1023;
  let value = exponent === 0 ? mantissa * 2 ** -24 : (1024 + mantissa) * 2 ** (exponent - 25);
  if (exponent === 31) value = mantissa === 0 ? Number.POSITIVE_INFINITY : Number.NaN;
  return bits >= 0x8000 ? -value : value;
}

/** Floats as the array API takes them: 16-bit ones as bits, with the name of their format. */
interface Floats {
  readonly x: Float32Array | Float64Array | Uint16Array;
  readonly from: { readonly from?: 'float16' | 'bfloat16' };
}

/** Little-endian floats for the array API. Copies only where the bytes are not aligned. */
function floatsOf(bytes: Uint8Array<ArrayBuffer>, dtype: FloatDType): Floats {
  const size = floatBytes[dtype];
  const { buffer, byteOffset } = bytes.byteOffset % size === 0 ? bytes : bytes.slice();
  const length = bytes.byteLength / size;
  if (dtype === 'F32') return { x: new Float32Array(buffer, byteOffset, length), from: {} };
  if (dtype === 'F64') return { x: new Float64Array(buffer, byteOffset, length), from: {} };
  const from = dtype === 'F16' ? 'float16' : 'bfloat16';
  return { x: new Uint16Array(buffer, byteOffset, length), from: { from } };
}

/** The value of one of them. */
function valueAt({ x, from: { from } }: Floats, i: number): number {
  const v = x[i] as number;
  if (from === undefined) return v;
  if (from === 'float16') return fromFloat16Bits(v);
  oneWord[0] = v * 2 ** 16;
  return oneFloat[0] as number;
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
export function storeScales(scale: Float32Array, dtype: ScaleDType): StoredScales {
  // From here on a product rounds to infinity.
  const overflow = dtype === 'F16' ? 65520 : 2 ** 128 - 2 ** 103;
  const values = new Float32Array(scale.length);
  const bits = dtype === 'F32' ? new Uint32Array(values.buffer) : new Uint16Array(scale.length);
  const toNumber = (word: number): number => {
    if (dtype === 'F16') return fromFloat16Bits(word);
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
    while (127 * exact > 127.5 * toNumber(word)) word++;
    bits[row] = word;
    values[row] = toNumber(word);
  }
  return { bytes: new Uint8Array(bits.buffer), values };
}

// ------------------------------------------------------------------------------------------------------------------- conversion

/** What is used of the array API. */
export type ArrayCore = Pick<Scalepoint, 'quantize' | 'chooseQuantizationParameters' | 'errorSum'>;

/**
 * Index of the first element that is NaN, infinite, or infinite once rounded to float32; -1 if there is none.
 */
function firstNonFinite(floats: Floats): number {
  for (let i = 0; i < floats.x.length; i++) if (!Number.isFinite(Math.fround(valueAt(floats, i)))) return i;
  return -1;
}

const int8 = { dtype: 'int8', granularity: { kind: 'per-channel', axis: 0 } } as const;

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
  const errors = sp.errorSum();

  const load = async (begin: number, end: number): Promise<Floats> =>
    floatsOf(await job.read(begin * size, end * size), dtype);

  /** The scales that the rows ask for: absmax / 127. */
  const scalesOf = (begin: number, floats: Floats, count: number): Float32Array => {
    try {
      return sp.chooseQuantizationParameters(floats.x, {
        ...int8,
        ...floats.from,
        shape: [count, floats.x.length / count],
      }).scale;
    } catch (error) {
      if (!(error instanceof ScalepointError) || error.code !== 'NON_FINITE') throw error;
      const at = firstNonFinite(floats);
      const value = valueAt(floats, at);
      const what = Number.isFinite(value) ? `${value}, too large for float32,` : String(value);
      throw new ScalepointError(
        'NON_FINITE',
        `tensor ${quoted(job.name)} holds ${what} at ${indexOf(begin + at, shape)}; a rule can keep it`,
        {
          tensor: job.name,
          byteOffset: job.byteOffset === undefined ? undefined : job.byteOffset + (begin + at) * size,
        },
      );
    }
  };

  /** Converts rows, or a part of one, with codes made from the scales as they are stored. */
  const convert = async (begin: number, floats: Floats, stored: StoredScales) => {
    const { x, from } = floats;
    const q = sp.quantize(x, {
      ...int8,
      ...from,
      shape: [stored.values.length, x.length / stored.values.length],
      range: { scale: stored.values, zeroPoint: 0 },
    });
    errors.add(x, q, from);
    const codes = q.data as Int8Array<ArrayBuffer>;
    await job.writeCodes(begin, new Uint8Array(codes.buffer));
    job.progress?.((begin + x.length) * size);
  };

  if (inner <= pieceElements) {
    const rowsAtOnce = Math.floor(pieceElements / inner);
    for (let row = 0; row < rows; row += rowsAtOnce) {
      const count = Math.min(rowsAtOnce, rows - row);
      const floats = await load(row * inner, (row + count) * inner);
      const stored = storeScales(scalesOf(row * inner, floats, count), scaleDType(dtype));
      await convert(row * inner, floats, stored);
      await job.writeScale(row * scaleSize, stored.bytes);
    }
  } else {
    for (let row = 0; row < rows; row++) {
      const parts: [number, number][] = [];
      for (let begin = row * inner; begin < (row + 1) * inner; begin += pieceElements) {
        parts.push([begin, Math.min(begin + pieceElements, (row + 1) * inner)]);
      }
      // The scale of a part that is all 0 says nothing of the row.
      const scale = new Float32Array(1);
      for (const [begin, end] of parts) {
        const floats = await load(begin, end);
        const [part = 0] = scalesOf(begin, floats, 1);
        if (floats.x.some((_, i) => valueAt(floats, i) !== 0)) scale[0] = Math.max(scale[0] as number, part);
      }
      const stored = storeScales(scale[0] === 0 ? Float32Array.of(1) : scale, scaleDType(dtype));
      for (const [begin, end] of parts) await convert(begin, await load(begin, end), stored);
      await job.writeScale(row * scaleSize, stored.bytes);
    }
  }
  return errors.measures();
}
