// A reader of compressed checkpoints for the tests. It parses the file, looks up a weight's arguments in the quantization_config as loaders
// do, unpacks and multiplies, one number at a time. It is written from the description of the layout and shares no code with web/src.

/** A tensor of a file. */
export interface StoredTensor {
  dtype: string;
  shape: number[];
  bytes: Uint8Array;
}

/** A weight that is stored as codes with scales. */
export interface CompressedWeight {
  /** `int`, or `float` for float8e4m3fn. */
  type: string;
  /** True if the file packs codes into int32 words; else one byte holds each code. */
  packed: boolean;
  bits: number;
  symmetric: boolean;
  /** Columns that share a scale. Undefined if each row has a single scale. */
  groupSize: number | undefined;
  shape: number[];
  /** One for each element. For float8e4m3fn, its bits. */
  codes: Int8Array;
  scaleDtype: string;
  scaleShape: number[];
  /** One for each group. */
  scale: Float64Array;
  /** One for each group. 0 if the file has none. */
  zeroPoint: Int32Array;
  /** (code - zero point) * scale, or the value of the float8 * scale. In double, so the products are exact. */
  weights: Float64Array;
}

export interface CompressedFile {
  metadata: Record<string, string>;
  /** Weights that are stored as codes, by their original names (`X.weight`). */
  weights: Map<string, CompressedWeight>;
  /** All other tensors of the file. */
  others: Map<string, StoredTensor>;
}

/** The arguments of weights in a quantization_config that a loader uses. */
interface WeightArguments {
  num_bits: number;
  type: string;
  symmetric: boolean;
  strategy: string;
  group_size: number | null;
  dynamic: boolean;
}

interface Config {
  quant_method: string;
  format: string;
  ignore: string[];
  config_groups: Record<string, { targets: string[]; weights: WeightArguments }>;
}

/** Fails with a message unless a condition holds. */
export function check(condition: boolean, message: string): asserts condition {
  if (!condition) throw new Error(message);
}

const product = (shape: readonly number[]) => shape.reduce((a, b) => a * b, 1);

/** Parses a safetensors file. Checks that the tensors are aligned, have the bytes of their shapes and fill the file. */
export function parseSafetensors(file: Uint8Array): {
  tensors: Map<string, StoredTensor>;
  metadata: Record<string, string>;
} {
  const view = new DataView(file.buffer, file.byteOffset, file.byteLength);
  const length = Number(view.getBigUint64(0, true));
  check(length % 8 === 0, 'the header is padded to a multiple of 8');
  const header = JSON.parse(new TextDecoder().decode(file.subarray(8, 8 + length)));
  const metadata = header.__metadata__ ?? {};
  delete header.__metadata__;
  const tensors = new Map<string, StoredTensor>();
  let covered = 0;
  const entries = Object.entries<{ dtype: string; shape: number[]; data_offsets: [number, number] }>(header);
  entries.sort(([, a], [, b]) => a.data_offsets[0] - b.data_offsets[0] || a.data_offsets[1] - b.data_offsets[1]);
  for (const [name, { dtype, shape, data_offsets }] of entries) {
    const [begin, end] = data_offsets;
    check(begin === covered, `${name} begins where the tensor before it ends`);
    const size = (
      { I8: 1, U8: 1, F8_E4M3: 1, F16: 2, BF16: 2, F32: 4, I32: 4, U32: 4, F64: 8, I64: 8 } as Record<string, number>
    )[dtype];
    if (size !== undefined) {
      check(end - begin === product(shape) * size, `${name} has the bytes of its shape`);
      check((8 + length + begin) % size === 0 || end === begin, `${name} is aligned`);
    }
    tensors.set(name, { dtype, shape, bytes: file.subarray(8 + length + begin, 8 + length + end) });
    covered = end;
  }
  check(8 + length + covered === file.length, 'the tensors fill the file');
  return { tensors, metadata };
}

/** The value of a float16. */
function half(bits: number): number {
  const sign = bits >> 15 ? -1 : 1;
  const exponent = (bits >> 10) & 31;
  const fraction = bits & 1023;
  if (exponent === 31) return fraction === 0 ? sign * Infinity : Number.NaN;
  return exponent === 0 ? sign * fraction * 2 ** -24 : sign * (1024 + fraction) * 2 ** (exponent - 25);
}

/** The value of a float8e4m3fn. It has 4 exponent bits with bias 7 and 3 fraction bits; all ones is NaN. */
function float8(bits: number): number {
  const sign = bits >> 7 ? -1 : 1;
  const exponent = (bits >> 3) & 15;
  const fraction = bits & 7;
  if (exponent === 15 && fraction === 7) return Number.NaN;
  return exponent === 0 ? sign * fraction * 2 ** -9 : sign * (8 + fraction) * 2 ** (exponent - 10);
}

/** The values of all codes of a type, once one is needed. */
const tables = new Map<(bits: number) => number, Float64Array>();
function tableOf(value: (bits: number) => number, bits: number): Float64Array {
  const table = tables.get(value) ?? Float64Array.from({ length: 2 ** bits }, (_, code) => value(code));
  tables.set(value, table);
  return table;
}

/** The numbers of a table for codes. */
function looked(table: Float64Array, codes: Uint8Array | Uint16Array): Float64Array {
  const values = new Float64Array(codes.length);
  for (let i = 0; i < values.length; i++) values[i] = table[codes[i]!]!;
  return values;
}

/** Float32 numbers by their upper halves. */
function widened(codes: Uint16Array): Float64Array {
  const words = new Uint32Array(codes.length);
  for (let i = 0; i < words.length; i++) words[i] = codes[i]! << 16;
  return new Float64Array(new Float32Array(words.buffer));
}

/** Elements of a type in a file: their bytes, and the values of all in a buffer. */
const elements: Record<string, [size: number, read: (...part: [ArrayBuffer, number, number]) => Float64Array]> = {
  F64: [8, (...part) => new Float64Array(...part)],
  F32: [4, (...part) => new Float64Array(new Float32Array(...part))],
  F16: [2, (...part) => looked(tableOf(half, 16), new Uint16Array(...part))],
  BF16: [2, (...part) => widened(new Uint16Array(...part))],
  F8_E4M3: [1, (...part) => looked(tableOf(float8, 8), new Uint8Array(...part))],
  I8: [1, (...part) => new Float64Array(new Int8Array(...part))],
  I32: [4, (...part) => new Float64Array(new Int32Array(...part))],
  I64: [8, (...part) => Float64Array.from(new BigInt64Array(...part), Number)],
};

/** The values of a tensor of floats or integers. */
export function numbersOf({ dtype, bytes }: StoredTensor): Float64Array {
  const reader = elements[dtype];
  check(reader !== undefined, `${dtype} can be read`);
  const [size, read] = reader;
  check(bytes.length % size === 0, `${dtype}: whole elements`);
  // Arrays of wide elements have to begin at a multiple of their size, as the copy does.
  return read(new Uint8Array(bytes).buffer, 0, bytes.length / size);
}

/**
 * Unpacks `count` codes, stored as code + 2^(bits - 1), from int32 words. Bit 0 is the least significant bit of the first word, so a code
 * lies in one byte or in two neighbors. Checks that all bits after the codes are 0.
 */
function unpackBits(words: Uint8Array, count: number, bits: number, what: string): Int8Array {
  const values = new Int8Array(count);
  const [mask, middle] = [2 ** bits - 1, 2 ** (bits - 1)];
  for (let i = 0; i < count; i++) {
    const at = (i * bits) >> 3;
    const two = words[at]! + 256 * (at + 1 < words.length ? words[at + 1]! : 0);
    values[i] = ((two >> ((i * bits) & 7)) & mask) - middle;
  }
  for (let b = count * bits; b < words.length * 8; b++) {
    if (((words[b >> 3]! >> (b & 7)) & 1) !== 0) throw new Error(`${what}: padding bit ${b} is 0`);
  }
  return values;
}

function sameShape(got: readonly number[], want: readonly number[], what: string): void {
  check(
    got.length === want.length && got.every((d, i) => d === want[i]),
    `${what}: shape [${got}] instead of [${want}]`,
  );
}

/** The arguments that a loader finds for a module. A group that names the module goes before a group for all linear layers. */
function argumentsFor(config: Config, module: string): WeightArguments {
  const groups = Object.values(config.config_groups);
  const group =
    groups.find(({ targets }) => targets.includes(module)) ?? groups.find(({ targets }) => targets.includes('Linear'));
  check(group !== undefined, `${module}: no group targets it`);
  check(!config.ignore.includes(module), `${module}: it is ignored, and compressed all the same`);
  return group.weights;
}

/** Reads the weight `name` and returns the names of the tensors that it consists of. */
function readWeight(
  name: string,
  tensors: Map<string, StoredTensor>,
  config: Config,
): { weight: CompressedWeight; used: string[] } {
  const args = argumentsFor(config, name.replace(/\.weight$/, ''));
  const { num_bits: bits, symmetric, strategy, group_size } = args;
  const { type } = args;
  check(type === (config.format === 'float-quantized' ? 'float' : 'int'), `${name}: ${type} in ${config.format}`);
  check(args.dynamic === false, `${name}: static weights`);
  check(type === 'int' || (bits === 8 && symmetric && strategy === 'channel'), `${name}: float8 with a scale a row`);
  check(strategy === 'channel' || strategy === 'group', `${name}: strategy ${strategy}`);
  check((strategy === 'group') === (group_size !== null), `${name}: group_size belongs to the strategy group`);
  const packed = config.format === 'pack-quantized';
  const groupSize = group_size ?? undefined;
  const used: string[] = [];
  const take = (tensor: string, dtypes: readonly string[]) => {
    const found = tensors.get(tensor);
    check(found !== undefined, `${tensor} is missing`);
    check(dtypes.includes(found.dtype), `${tensor}: dtype ${found.dtype} instead of ${dtypes}`);
    used.push(tensor);
    return found;
  };

  let shape: number[];
  let codes: Int8Array;
  if (packed) {
    const stored = take(`${name}_shape`, ['I64']);
    shape = [...numbersOf(stored)];
    // Tensors of more dimensions are packed as the matrix of their rows.
    sameShape(stored.shape, [shape.length], `${name}_shape`);
    const rows = shape[0]!;
    const columns = product(shape.slice(1));
    const words = Math.ceil((columns * bits) / 32);
    const data = take(`${name}_packed`, ['I32']);
    sameShape(data.shape, [rows, words], `${name}_packed`);
    codes = new Int8Array(rows * columns);
    for (let row = 0; row < rows; row++) {
      const line = data.bytes.subarray(row * words * 4, (row + 1) * words * 4);
      codes.set(unpackBits(line, columns, bits, `${name}_packed, row ${row}`), row * columns);
    }
  } else {
    check(bits === 8 && groupSize === undefined, `${name}: codes that are not packed have 8 bits and a scale a row`);
    const data = take(name, [type === 'float' ? 'F8_E4M3' : 'I8']);
    ({ shape } = data);
    codes = Int8Array.from(data.bytes);
  }

  const rows = shape[0]!;
  const columns = product(shape.slice(1));
  check(groupSize === undefined || columns % groupSize === 0, `${name}: groups divide the rows`);
  const perRow = groupSize === undefined ? 1 : columns / groupSize;
  const scaleShape = groupSize === undefined ? [rows, ...shape.slice(1).map(() => 1)] : [rows, perRow];
  const scales = take(`${name}_scale`, ['F32', 'F16', 'BF16']);
  sameShape(scales.shape, scaleShape, `${name}_scale`);
  const scale = numbersOf(scales);
  const bad = scale.findIndex((s) => !(s > 0 && Number.isFinite(s)));
  check(bad < 0, `${name}_scale: element ${bad} is ${scale[bad]}`);

  const zeroPoint = new Int32Array(scale.length);
  if (symmetric) check(!tensors.has(`${name}_zero_point`), `${name}: no zero points where codes are symmetric`);
  else if (packed) {
    const words = Math.ceil((rows * bits) / 32);
    const stored = take(`${name}_zero_point`, ['I32']);
    sameShape(stored.shape, [words, ...scaleShape.slice(1)], `${name}_zero_point`);
    const line = new Uint8Array(words * 4);
    for (let group = 0; group < perRow; group++) {
      for (let word = 0; word < words; word++) {
        const at = (word * perRow + group) * 4;
        for (let i = 0; i < 4; i++) line[word * 4 + i] = stored.bytes[at + i]!;
      }
      const values = unpackBits(line, rows, bits, `${name}_zero_point, column ${group}`);
      for (let row = 0; row < rows; row++) zeroPoint[row * perRow + group] = values[row]!;
    }
  } else {
    const stored = take(`${name}_zero_point`, ['I8']);
    sameShape(stored.shape, scaleShape, `${name}_zero_point`);
    zeroPoint.set(numbersOf(stored));
  }

  const weights = new Float64Array(codes.length);
  const floats = tableOf(float8, 8);
  // Rows are whole groups.
  const size = columns / perRow;
  for (let group = 0; group < scale.length; group++) {
    const [s, z] = [scale[group]!, zeroPoint[group]!];
    for (let i = group * size; i < (group + 1) * size; i++) {
      weights[i] = (type === 'float' ? floats[codes[i]! & 255]! : codes[i]! - z) * s;
    }
  }
  const { dtype: scaleDtype } = scales;
  const weight = {
    type,
    packed,
    bits,
    symmetric,
    groupSize,
    shape,
    codes,
    scaleDtype,
    scaleShape,
    scale,
    zeroPoint,
    weights,
  };
  return { weight, used };
}

/**
 * Reads a compressed checkpoint.
 * @param names the names of the tensors of the original
 * @throws Error if the file violates the layout, or if the config calls for a compressed weight that the file does not have
 */
export function readCompressed(file: Uint8Array, quantizationConfig: unknown, names: Iterable<string>): CompressedFile {
  const config = quantizationConfig as Config;
  check(config.quant_method === 'compressed-tensors', 'quant_method');
  const formats = ['pack-quantized', 'naive-quantized', 'int-quantized', 'float-quantized'];
  check(formats.includes(config.format), `format ${config.format}`);
  const { tensors, metadata } = parseSafetensors(file);
  const weights = new Map<string, CompressedWeight>();
  const others = new Map(tensors);
  for (const name of names) {
    const has = (suffix: string) => tensors.has(name + suffix);
    const stored = tensors.get(name);
    if (stored === undefined || (/^(I8|F8_E4M3)$/.test(stored.dtype) && has('_scale'))) {
      const { weight, used } = readWeight(name, tensors, config);
      weights.set(name, weight);
      for (const tensor of used) others.delete(tensor);
    } else if (stored.shape.length === 2 && name.endsWith('.weight')) {
      const module = name.slice(0, -'.weight'.length);
      check(config.ignore.includes(module), `${module}: it is not compressed, and not ignored`);
    }
  }
  return { metadata, weights, others };
}
