// Makes weights in the layouts of GPTQ, AWQ, bitsandbytes, MLX, compressed-tensors and ComfyUI out of random codes, one bit at a time, with the
// floats that they stand for. Written from the descriptions of the layouts; it shares no code with web/src and cpp/.
import type { TestTensor } from './models.js';
import { bfloat16Value, float16Value, Random } from './support.js';

/** A weight in a layout. */
export interface ForeignWeight {
  /** Stored tensors, by the end of their names behind the module's. */
  readonly tensors: Readonly<Record<string, TestTensor>>;
  readonly shape: readonly [rows: number, columns: number];
  readonly values: Float32Array<ArrayBuffer>;
}

/** Words of 32 bits that are filled bit by bit. */
class WordMatrix {
  readonly words: Uint32Array<ArrayBuffer>;
  readonly shape: readonly [number, number];

  constructor(rows: number, columns: number) {
    this.words = new Uint32Array(rows * columns);
    this.shape = [rows, columns];
  }

  /** Puts a code at a bit of a row of words, counted along the row. */
  along(row: number, bit: number, bits: number, code: number): void {
    for (let i = 0; i < bits; i++) this.#put(row, Math.floor((bit + i) / 32), (bit + i) % 32, (code >> i) & 1);
  }

  /** The same down a column of words. */
  down(column: number, bit: number, bits: number, code: number): void {
    for (let i = 0; i < bits; i++) this.#put(Math.floor((bit + i) / 32), column, (bit + i) % 32, (code >> i) & 1);
  }

  #put(row: number, column: number, bit: number, value: number): void {
    const at = row * this.shape[1] + column;
    this.words[at] = (this.words[at]! | (value << bit)) >>> 0;
  }

  tensor(dtype: 'I32' | 'U32' = 'I32'): TestTensor {
    return { dtype, shape: this.shape, data: this.words };
  }
}

const floatOf = { F16: float16Value, BF16: bfloat16Value } as const;

/** Random positive scales below 0.1, as bits of a 16-bit type. */
function scaleBits(random: Random, n: number, type: 'F16' | 'BF16'): Uint16Array<ArrayBuffer> {
  // Exponents from 2^-10 to 2^-5.
  const exponent = type === 'F16' ? 5 : 117;
  const fraction = type === 'F16' ? 10 : 7;
  return Uint16Array.from(
    { length: n },
    () => ((exponent + random.below(5)) << fraction) | random.below(1 << fraction),
  );
}

/** The group of each column, in order or shuffled. */
function groupIndices(columns: number, groupSize: number, random: Random | undefined): Int32Array<ArrayBuffer> {
  const index = Int32Array.from({ length: columns }, (_, i) => Math.floor(i / groupSize));
  for (let i = columns - 1; i > 0 && random !== undefined; i--) {
    const j = random.below(i + 1);
    [index[i], index[j]] = [index[j]!, index[i]!];
  }
  return index;
}

export interface GptqChoices {
  readonly rows: number;
  readonly columns: number;
  readonly bits: number;
  readonly groupSize: number;
  /** Zero points as they are, as in gptq_v2. */
  readonly v2?: boolean;
  /** `none`: no g_idx. `order`: in order. `shuffled`: as after desc_act. */
  readonly groups: 'none' | 'order' | 'shuffled';
  readonly symmetric?: boolean;
  readonly scale?: 'F16' | 'BF16';
  readonly seed: number;
}

export function gptqWeight(choices: GptqChoices): ForeignWeight {
  const { rows, columns, bits, groupSize, v2 = false, groups: kind, symmetric = false, scale = 'F16', seed } = choices;
  const random = new Random(seed);
  const groups = Math.ceil(columns / groupSize);
  const data = new WordMatrix((columns * bits) / 32, rows);
  const zeros = new WordMatrix(groups, (rows * bits) / 32);
  const scales = scaleBits(random, groups * rows, scale);
  const zeroPoint = new Int32Array(groups * rows);
  for (let group = 0; group < groups; group++) {
    for (let row = 0; row < rows; row++) {
      const zero = symmetric ? 2 ** (bits - 1) : random.below(2 ** bits) + (v2 ? 0 : 1);
      zeroPoint[group * rows + row] = zero;
      zeros.along(group, row * bits, bits, zero - (v2 ? 0 : 1));
    }
  }
  const index = groupIndices(columns, groupSize, kind === 'shuffled' ? random : undefined);
  const values = new Float32Array(rows * columns);
  for (let row = 0; row < rows; row++) {
    for (let column = 0; column < columns; column++) {
      const code = random.below(2 ** bits);
      data.down(row, column * bits, bits, code);
      const set = index[column]! * rows + row;
      values[row * columns + column] = floatOf[scale](scales[set]!) * (code - zeroPoint[set]!);
    }
  }
  return {
    tensors: {
      '.qweight': data.tensor(),
      '.qzeros': zeros.tensor(),
      '.scales': { dtype: scale, shape: [groups, rows], data: scales },
      ...(kind === 'none' ? {} : { '.g_idx': { dtype: 'I32', shape: [columns], data: index } }),
    },
    shape: [rows, columns],
    values,
  };
}

/** The column of eight that each nibble of a word of AWQ holds, the lowest first. */
const awqOrder = [0, 2, 4, 6, 1, 3, 5, 7];

export function awqWeight(rows: number, columns: number, groupSize: number, seed: number): ForeignWeight {
  const random = new Random(seed);
  const groups = columns / groupSize;
  const data = new WordMatrix(columns, rows / 8);
  const zeros = new WordMatrix(groups, rows / 8);
  const scales = scaleBits(random, groups * rows, 'F16');
  const bitOf = (row: number) => Math.floor(row / 8) * 32 + 4 * awqOrder.indexOf(row % 8);
  const zeroPoint = Int32Array.from({ length: groups * rows }, () => random.below(16));
  const values = new Float32Array(rows * columns);
  for (let row = 0; row < rows; row++) {
    for (let group = 0; group < groups; group++) zeros.along(group, bitOf(row), 4, zeroPoint[group * rows + row]!);
    for (let column = 0; column < columns; column++) {
      const code = random.below(16);
      data.along(column, bitOf(row), 4, code);
      const set = Math.floor(column / groupSize) * rows + row;
      values[row * columns + column] = float16Value(scales[set]!) * (code - zeroPoint[set]!);
    }
  }
  return {
    tensors: {
      '.qweight': data.tensor(),
      '.qzeros': zeros.tensor(),
      '.scales': { dtype: 'F16', shape: [groups, rows], data: scales },
    },
    shape: [rows, columns],
    values,
  };
}

/** nf4 by code, and the magnitudes of fp4. */
const nf4 = [
  -1, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635, -0.18477343022823334,
  -0.09105003625154495, 0, 0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224,
  0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1,
];
const fp4 = [0, 0.005208333333, 0.66666667, 1, 0.33333333, 0.5, 0.16666667, 0.25];

const float = new Float32Array(1);
const word = new Uint32Array(float.buffer);

/** A float32, rounded half to even to the upper 16 bits. */
function toBfloat16(value: number): number {
  float[0] = value;
  const bits = word[0]!;
  const kept = (bits >>> 16) & 1;
  return bfloat16Value((bits + 0x7fff + kept) >>> 16);
}

/** Choices of a weight of bitsandbytes, restored to float32 or bfloat16. */
export interface BitsAndBytesChoices {
  readonly rows: number;
  readonly columns: number;
  readonly type: 'nf4' | 'fp4';
  readonly blockSize: number;
  readonly nested: boolean;
  readonly dtype: 'float32' | 'bfloat16';
  readonly seed: number;
}

export function bitsAndBytesWeight(choices: BitsAndBytesChoices): ForeignWeight {
  const { rows, columns, type, blockSize, nested, dtype, seed } = choices;
  const random = new Random(seed);
  const n = rows * columns;
  const blocks = Math.ceil(n / blockSize);
  const data = Uint8Array.from({ length: Math.ceil(n / 2) }, () => random.below(256));
  const direct = random.uniform(blocks, 0.001, 0.1);
  const codes = Uint8Array.from({ length: blocks }, () => random.below(256));
  const map = random.uniform(256, -1, 1);
  const outer = random.uniform(Math.ceil(blocks / 256), 0.01, 0.02);
  const offset = Math.fround(0.05);
  const values = Float32Array.from({ length: n }, (_, i) => {
    const block = Math.floor(i / blockSize);
    const product = Math.fround(map[codes[block]!]! * outer[Math.floor(block / 256)]!);
    const scale = nested ? Math.fround(product + offset) : direct[block]!;
    const code = i % 2 === 0 ? data[i >> 1]! >> 4 : data[i >> 1]! & 15;
    const entry = type === 'nf4' ? nf4[code]! : code <= 8 ? fp4[code % 8]! : -fp4[code - 8]!;
    const value = Math.fround(Math.fround(entry) * scale);
    return dtype === 'bfloat16' ? toBfloat16(value) : value;
  });
  const state = {
    quant_type: type,
    blocksize: blockSize,
    dtype,
    shape: [rows, columns],
    ...(nested ? { nested_blocksize: 256, nested_dtype: 'float32', nested_offset: offset } : {}),
  };
  const text = new TextEncoder().encode(JSON.stringify(state));
  return {
    tensors: {
      '.weight': { dtype: 'U8', shape: [data.length, 1], data },
      '.weight.absmax': nested
        ? { dtype: 'U8', shape: [blocks], data: codes }
        : { dtype: 'F32', shape: [blocks], data: direct },
      '.weight.quant_map': { dtype: 'F32', shape: [16], data: Float32Array.from(nf4) },
      ...(nested
        ? {
            '.weight.nested_absmax': { dtype: 'F32', shape: [outer.length], data: outer },
            '.weight.nested_quant_map': { dtype: 'F32', shape: [256], data: map },
          }
        : {}),
      [`.weight.quant_state.bitsandbytes__${type}`]: { dtype: 'U8', shape: [text.length], data: text },
    },
    shape: [rows, columns],
    values,
  };
}

/** int8 codes of bitsandbytes. */
export function int8Weight(rows: number, columns: number, seed: number): ForeignWeight {
  const random = new Random(seed);
  const data = Int8Array.from({ length: rows * columns }, () => random.below(255) - 127);
  const scale = random.uniform(rows, 0.01, 2);
  const factor = Math.fround(7.874015718698502e-3);
  const values = Float32Array.from(data, (code, i) => Math.fround(code * scale[Math.floor(i / columns)]!) * factor);
  return {
    tensors: {
      '.weight': { dtype: 'I8', shape: [rows, columns], data },
      '.SCB': { dtype: 'F32', shape: [rows], data: scale },
      '.weight_format': { dtype: 'U8', shape: [], data: Uint8Array.of(0) },
    },
    shape: [rows, columns],
    values,
  };
}

/** Affine codes of MLX. */
export function mlxWeight(rows: number, columns: number, bits: number, groupSize: number, seed: number): ForeignWeight {
  const random = new Random(seed);
  const data = new WordMatrix(rows, (columns * bits) / 32);
  const groups = columns / groupSize;
  const scales = scaleBits(random, rows * groups, 'BF16');
  const biases = scaleBits(random, rows * groups, 'BF16').map((word) => word | 0x8000);
  const values = new Float32Array(rows * columns);
  for (let row = 0; row < rows; row++) {
    for (let column = 0; column < columns; column++) {
      const code = random.below(2 ** bits);
      data.along(row, column * bits, bits, code);
      const set = row * groups + Math.floor(column / groupSize);
      const product = Math.fround(code * bfloat16Value(scales[set]!));
      values[row * columns + column] = product + bfloat16Value(biases[set]!);
    }
  }
  const parameter = (words: Uint16Array): TestTensor => ({ dtype: 'BF16', shape: [rows, groups], data: words });
  return {
    tensors: { '.weight': data.tensor('U32'), '.scales': parameter(scales), '.biases': parameter(biases) },
    shape: [rows, columns],
    values,
  };
}

/** Choices of packed codes of compressed-tensors. */
export interface PackedChoices {
  readonly rows: number;
  readonly columns: number;
  readonly bits: number;
  /** True: words of whole codes, as older releases packed them. */
  readonly wholeWords?: boolean;
  readonly groupSize: number;
  readonly symmetric: boolean;
  /** `none`: no g_idx. `unset`: one of -1. `order` and `shuffled`: the groups in order, and as by activations. */
  readonly groups?: 'none' | 'unset' | 'order' | 'shuffled';
  readonly scale?: 'F16' | 'BF16';
  readonly seed: number;
}

/**
 * Packed codes of compressed-tensors: pack_to_int32 of compressors/pack_quantized/helpers.py at 01dd1a58, where codes cross words, and of
 * compressors/quantized_compressors/pack_quantized.py at 4432f13e, where they do not; with the groups that _process_group of
 * quantization/lifecycle/forward.py makes of g_idx.
 */
export function packedWeight(choices: PackedChoices): ForeignWeight {
  const { rows, columns, bits, wholeWords = false, groupSize, symmetric, groups: kind = 'none', seed } = choices;
  const { scale = 'BF16' } = choices;
  const random = new Random(seed);
  const groups = columns / groupSize;
  const perWord = Math.floor(32 / bits);
  const words = (n: number) => Math.ceil(wholeWords ? n / perWord : (n * bits) / 32);
  const bitOf = (i: number) => (wholeWords ? Math.floor(i / perWord) * 32 + (i % perWord) * bits : i * bits);
  const data = new WordMatrix(rows, words(columns));
  const zeros = new WordMatrix(words(rows), groups);
  const scales = scaleBits(random, rows * groups, scale);
  const zeroPoint = Int32Array.from({ length: rows * groups }, () =>
    symmetric ? 2 ** (bits - 1) : random.below(2 ** bits),
  );
  zeroPoint.forEach((zero, i) => {
    zeros.down(i % groups, bitOf(Math.floor(i / groups)), bits, zero);
  });
  // Sorting is stable, and each group has its size, so that the sorted columns of a group are those with its index.
  const index = groupIndices(columns, groupSize, kind === 'shuffled' ? random : undefined);
  const values = new Float32Array(rows * columns);
  for (let row = 0; row < rows; row++) {
    for (let column = 0; column < columns; column++) {
      const code = random.below(2 ** bits);
      data.along(row, bitOf(column), bits, code);
      const set = row * groups + index[column]!;
      values[row * columns + column] = floatOf[scale](scales[set]!) * (code - zeroPoint[set]!);
    }
  }
  return {
    tensors: {
      '.weight_packed': data.tensor(),
      '.weight_scale': { dtype: scale, shape: [rows, groups], data: scales },
      '.weight_shape': { dtype: 'I64', shape: [2], data: BigInt64Array.of(BigInt(rows), BigInt(columns)) },
      ...(symmetric ? {} : { '.weight_zero_point': zeros.tensor() }),
      ...(kind === 'none'
        ? {}
        : { '.weight_g_idx': { dtype: 'I32', shape: [columns], data: kind === 'unset' ? index.fill(-1) : index } }),
    },
    shape: [rows, columns],
    values,
  };
}

/** int8 codes of compressed-tensors with one scale and one zero point: naive_quantized with the strategy `tensor`. */
export function wholeInt8Weight(rows: number, columns: number, seed: number): ForeignWeight {
  const random = new Random(seed);
  const data = Int8Array.from({ length: rows * columns }, () => random.below(256) - 128);
  const [scale, zeroPoint] = [random.uniform(1, 0.001, 0.1), Int8Array.of(random.below(256) - 128)];
  return {
    tensors: {
      '.weight': { dtype: 'I8', shape: [rows, columns], data },
      '.weight_scale': { dtype: 'F32', shape: [1], data: scale },
      '.weight_zero_point': { dtype: 'I8', shape: [1], data: zeroPoint },
    },
    shape: [rows, columns],
    values: Float32Array.from(data, (code) => Math.fround(code - zeroPoint[0]!) * scale[0]!),
  };
}

/**
 * int8 codes of ComfyUI that stand for rotated columns. An element of the rotation is the product, over the digits of base 4 of both indices,
 * of -1 where two digits add up to 3 and 1 elsewhere, divided by the root of the size: _build_hadamard and _rotate_weight of comfy-kitchen at
 * 0935c34b, comfy_kitchen/tensor. The sum of codes is exact in double; one rounding follows.
 */
export function rotatedWeight(
  rows: number,
  columns: number,
  size: number,
  marker: object,
  seed: number,
): ForeignWeight {
  const random = new Random(seed);
  const data = Int8Array.from({ length: rows * columns }, () => random.below(256) - 128);
  const scale = random.uniform(rows, 0.001, 0.1);
  const sign = (i: number, j: number) => {
    let product = 1;
    for (let unit = 1; unit < size; unit *= 4) {
      if ((Math.floor(i / unit) % 4) + (Math.floor(j / unit) % 4) === 3) product = -product;
    }
    return product;
  };
  const signs = Array.from({ length: size }, (_, i) => Int8Array.from({ length: size }, (_, j) => sign(i, j)));
  const values = new Float32Array(rows * columns);
  for (let at = 0; at < values.length; at++) {
    const first = at - (at % size);
    let sum = 0;
    for (let i = 0; i < size; i++) sum += data[first + i]! * signs[at % size]![i]!;
    values[at] = (sum * scale[Math.floor(at / columns)]!) / Math.sqrt(size);
  }
  const text = new TextEncoder().encode(JSON.stringify({ format: 'int8_tensorwise', ...marker }));
  return {
    tensors: {
      '.weight': { dtype: 'I8', shape: [rows, columns], data },
      '.weight_scale': { dtype: 'F32', shape: [rows, 1], data: scale },
      '.comfy_quant': { dtype: 'U8', shape: [text.length], data: text },
    },
    shape: [rows, columns],
    values,
  };
}

/** The tensors of some modules in one file. */
export function tensorsOf(weights: Readonly<Record<string, ForeignWeight>>): Record<string, TestTensor> {
  return Object.fromEntries(
    Object.entries(weights).flatMap(([module, { tensors }]) =>
      Object.entries(tensors).map(([end, tensor]) => [module + end, tensor]),
    ),
  );
}
