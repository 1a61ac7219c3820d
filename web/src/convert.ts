/**
 * One tensor from floats to int8: reads a range of bytes, converts it, hands back bytes and errors. Knows nothing of files; the wasm
 * core is used through the array API alone. A piece needs nothing but its own bytes (and the scale of a row that is longer than a
 * piece), so pieces can be converted anywhere and in any order.
 */
import { ScalepointError } from './errors.js';
import { quoted } from './formats/bytes.js';
import type { TensorDType } from './formats/safetensors.js';
import type { ErrorMeasures } from './measure.js';
import type { Scalepoint } from './quantize.js';

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

// ----------------------------------------------------------------------------------------------------------------------- floats

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

/** The values of such floats as numbers. */
function numbersOf(sp: ArrayCore, { x, from: { from } }: Floats): Float32Array | Float64Array {
  return x instanceof Uint16Array ? sp.castToFloat32(x, from ?? 'float16') : x;
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
export function storeScales(sp: ArrayCore, scale: Float32Array, dtype: ScaleDType): StoredScales {
  // From here on a product rounds to infinity.
  const overflow = dtype === 'F16' ? 65520 : 2 ** 128 - 2 ** 103;
  // Positive floats of any format order like their bits, so that neighbours are one apart.
  const format = dtype === 'F16' ? 'float16' : 'bfloat16';
  const bits = dtype === 'F32' ? new Uint32Array(scale.slice().buffer) : sp.castFloat(scale, format);
  const valuesOf = (b: Uint16Array | Uint32Array) =>
    b instanceof Uint16Array ? sp.castToFloat32(b, format) : new Float32Array(b.slice().buffer);
  const values = valuesOf(bits);
  for (const [row, exact] of scale.entries()) {
    const move = (by: 1 | -1) => {
      bits[row] = (bits[row] as number) + by;
      values[row] = valuesOf(bits.slice(row, row + 1))[0] as number;
    };
    if (127 * (values[row] as number) >= overflow) move(-1);
    while (127 * exact > 127.5 * (values[row] as number)) move(1);
  }
  return { bytes: new Uint8Array(bits.buffer as ArrayBuffer), values };
}

// ------------------------------------------------------------------------------------------------------------------- conversion

/** What is used of the array API. */
export type ArrayCore = Pick<
  Scalepoint,
  'quantize' | 'chooseQuantizationParameters' | 'errorSum' | 'castFloat' | 'castToFloat32'
>;

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
      const numbers = numbersOf(sp, floats);
      // Also what becomes infinite once rounded to float32.
      const at = numbers.findIndex((v) => !Number.isFinite(Math.fround(v)));
      const value = numbers[at] as number;
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
      errors,
    });
    const codes = q.data as Int8Array<ArrayBuffer>;
    await job.writeCodes(begin, new Uint8Array(codes.buffer));
    job.progress?.((begin + x.length) * size);
  };

  if (inner <= pieceElements) {
    const rowsAtOnce = Math.floor(pieceElements / inner);
    for (let row = 0; row < rows; row += rowsAtOnce) {
      const count = Math.min(rowsAtOnce, rows - row);
      const floats = await load(row * inner, (row + count) * inner);
      const stored = storeScales(sp, scalesOf(row * inner, floats, count), scaleDType(dtype));
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
        if (numbersOf(sp, floats).some((v) => v !== 0)) scale[0] = Math.max(scale[0] as number, part);
      }
      const stored = storeScales(sp, scale[0] === 0 ? Float32Array.of(1) : scale, scaleDType(dtype));
      for (const [begin, end] of parts) await convert(begin, await load(begin, end), stored);
      await job.writeScale(row * scaleSize, stored.bytes);
    }
  }
  return errors.measures();
}
