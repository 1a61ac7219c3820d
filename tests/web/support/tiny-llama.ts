// Small GGUF files for tests, written byte by byte from the description of the format. This file shares no code with web/src. `tinyLlama`
import { xorshift } from './xorshift.js';

// makes models of the llama architecture that llama.cpp's own tools can load.

/** The types of metadata values, with their numbers. */
const valueTypes = {
  u8: 0,
  i8: 1,
  u16: 2,
  i16: 3,
  u32: 4,
  i32: 5,
  f32: 6,
  bool: 7,
  string: 8,
  array: 9,
  u64: 10,
  i64: 11,
  f64: 12,
} as const;
export type ValueType = keyof typeof valueTypes;
export type Scalar = number | bigint | boolean | string;
/** A metadata pair. For an array, the type of its elements comes before the values. */
export type Pair =
  | readonly [key: string, type: Exclude<ValueType, 'array'>, value: Scalar]
  | readonly [key: string, type: 'array', element: ValueType, values: readonly Scalar[]];

/** The types that tests store, with ggml's number, the elements of a block and its bytes. */
const dtypes: Readonly<Record<string, { id: number; elements: number; bytes: number }>> = {
  F32: { id: 0, elements: 1, bytes: 4 },
  F16: { id: 1, elements: 1, bytes: 2 },
  BF16: { id: 30, elements: 1, bytes: 2 },
  F64: { id: 28, elements: 1, bytes: 8 },
  I8: { id: 24, elements: 1, bytes: 1 },
  I32: { id: 26, elements: 1, bytes: 4 },
  Q8_0: { id: 8, elements: 32, bytes: 34 },
  Q4_0: { id: 2, elements: 32, bytes: 18 },
  Q6_K: { id: 14, elements: 256, bytes: 210 },
  IQ2_XXS: { id: 16, elements: 256, bytes: 66 },
  NVFP4: { id: 40, elements: 64, bytes: 36 },
};

/** A tensor to write to a file. */
export interface Stored {
  name: string;
  dtype: string;
  /** The shape in ggml's order. The first dimension is contiguous. */
  ne: readonly number[];
  /** The default is zeros. */
  data?: Uint8Array;
}

/** The contents of a file. */
export interface File {
  version?: number;
  pairs: readonly Pair[];
  tensors: readonly Stored[];
  /** Alignment of the tensors' data. `ggufFile` writes no pair for it. */
  alignment?: number;
}

/** Appends little-endian values to a file. */
class Writer {
  private readonly pieces: Uint8Array[] = [];
  length = 0;

  raw(bytes: Uint8Array): void {
    this.pieces.push(bytes);
    this.length += bytes.length;
  }
  number(bytes: number, write: (view: DataView) => void): void {
    const piece = new Uint8Array(bytes);
    write(new DataView(piece.buffer));
    this.raw(piece);
  }
  u32(value: number): void {
    this.number(4, (view) => view.setUint32(0, value, true));
  }
  u64(value: number | bigint): void {
    this.number(8, (view) => view.setBigUint64(0, BigInt(value), true));
  }
  text(value: string): void {
    const bytes = new TextEncoder().encode(value);
    this.u64(bytes.length);
    this.raw(bytes);
  }
  pad(alignment: number): void {
    this.raw(new Uint8Array((alignment - (this.length % alignment)) % alignment));
  }

  scalar(type: ValueType, value: Scalar): void {
    const number = Number(value);
    // The setters of DataView take numbers modulo their range, so the signed ones work for unsigned numbers too.
    if (type === 'string') this.text(value as string);
    else if (type === 'u64' || type === 'i64') this.number(8, (view) => view.setBigInt64(0, BigInt(value), true));
    else if (type === 'f32') this.number(4, (view) => view.setFloat32(0, number, true));
    else if (type === 'f64') this.number(8, (view) => view.setFloat64(0, number, true));
    else if (type === 'u32' || type === 'i32') this.number(4, (view) => view.setInt32(0, number, true));
    else if (type === 'u16' || type === 'i16') this.number(2, (view) => view.setInt16(0, number, true));
    else this.number(1, (view) => view.setInt8(0, number));
  }

  done(): Uint8Array<ArrayBuffer> {
    const all = new Uint8Array(this.length);
    let at = 0;
    for (const piece of this.pieces) {
      all.set(piece, at);
      at += piece.length;
    }
    return all;
  }
}

/** Size of a tensor in bytes. */
export function bytesOf({ dtype, ne }: Stored): number {
  const { elements, bytes } = dtypes[dtype]!;
  return (ne.reduce((a, b) => a * b, 1) / elements) * bytes;
}

/** Writes a GGUF file. */
export function ggufFile({ version = 3, pairs, tensors, alignment = 32 }: File): Uint8Array<ArrayBuffer> {
  const out = new Writer();
  out.raw(new TextEncoder().encode('GGUF'));
  out.u32(version);
  out.u64(tensors.length);
  out.u64(pairs.length);
  for (const pair of pairs) {
    out.text(pair[0]);
    out.u32(valueTypes[pair[1]]);
    if (pair[1] === 'array') {
      out.u32(valueTypes[pair[2]]);
      out.u64(pair[3].length);
      for (const value of pair[3]) out.scalar(pair[2], value);
    } else {
      out.scalar(pair[1], pair[2]);
    }
  }
  let offset = 0;
  for (const tensor of tensors) {
    out.text(tensor.name);
    out.u32(tensor.ne.length);
    for (const n of tensor.ne) out.u64(n);
    out.u32(dtypes[tensor.dtype]!.id);
    out.u64(offset);
    offset += Math.ceil(bytesOf(tensor) / alignment) * alignment;
  }
  out.pad(alignment);
  for (const tensor of tensors) {
    out.raw(tensor.data ?? new Uint8Array(bytesOf(tensor)));
    out.pad(alignment);
  }
  return out.done();
}

// ----------------------------------------------------------------------------------------------------------------------- numbers

const double = new Float64Array(1);
const doubleWords = new Uint32Array(double.buffer);
/** 2^24 to 2^-5: the numbers by which values of the exponents from -14 to 15 become whole. */
const inverseUnits = Float64Array.from({ length: 30 }, (_, i) => 2 ** (24 - i));

/** The bits of the float16 nearest to x, ties to even. x must not exceed the largest float16. */
function float16Bits(x: number): number {
  const sign = x < 0 || Object.is(x, -0) ? 0x8000 : 0;
  const size = Math.abs(x);
  if (size < 2 ** -25) return sign;
  double[0] = size;
  const exponent = Math.max((doubleWords[1]! >> 20) - 1023, -14);
  const whole = size * inverseUnits[exponent + 14]!;
  let steps = Math.floor(whole);
  if (whole - steps > 0.5 || (whole - steps === 0.5 && steps % 2 === 1)) steps++;
  // The exponent bits are those of the number before, and steps >= 1024 carries into them.
  return sign | (((exponent + 14) << 10) + steps);
}

/** Random numbers distributed like weights, as bytes of a float type. The same seed gives the same bytes. */
export function weights(dtype: string, count: number, seed: number): Uint8Array {
  const next = xorshift(seed);
  const uniform = () => next() / 2 ** 32;
  const values = new Float32Array(count);
  for (let i = 0; i < count; i++) values[i] = 0.04 * (uniform() + uniform() + uniform() + uniform() - 2);
  if (dtype === 'F32') return new Uint8Array(values.buffer);
  const bits = new Uint16Array(count);
  const words = new Uint32Array(values.buffer);
  for (let i = 0; i < count; i++) bits[i] = dtype === 'F16' ? float16Bits(values[i]!) : words[i]! >>> 16;
  return new Uint8Array(bits.buffer);
}

// ------------------------------------------------------------------------------------------------------------------------- models

/** Options of `tinyLlama`. */
export interface TinyOptions {
  architecture?: string;
  layers?: number;
  /** Row length of most weights. */
  embedding?: number;
  /** Row length of ffn_down. */
  feedForward?: number;
  /** Row length of attn_output. */
  attention?: number;
  /** Rows of every weight. */
  rows?: number;
  heads?: number;
  headsKv?: number | readonly number[];
  vocabulary?: number;
  /** True if output.weight is left out, as in models with tied embeddings. */
  tied?: boolean;
  source?: 'F32' | 'F16' | 'BF16';
  alignment?: number;
  /** True if attn_qkv replaces attn_q, attn_k and attn_v. */
  qkv?: boolean;
  biases?: boolean;
  /** Number of experts. If it is above 0, the feed-forward weights are 3-D and there are routers. */
  experts?: number;
  version?: number;
  /** More pairs, after those of the model. */
  pairs?: readonly Pair[];
  /** More tensors, after those of the model. */
  tensors?: readonly Stored[];
}

/** Pairs with every type of value, including extremes and empty arrays. */
export const everyPair: readonly Pair[] = [
  ['test.u8', 'u8', 255],
  ['test.i8', 'i8', -128],
  ['test.u16', 'u16', 65535],
  ['test.i16', 'i16', -32768],
  ['test.u32', 'u32', 4294967295],
  ['test.i32', 'i32', -2147483648],
  ['test.f32', 'f32', -0],
  ['test.f64', 'f64', 0.1],
  ['test.yes', 'bool', true],
  ['test.no', 'bool', false],
  ['test.u64', 'u64', 2n ** 64n - 1n],
  ['test.i64', 'i64', -(2n ** 63n)],
  ['test.small', 'u64', 12],
  ['test.text', 'string', 'Gewichte für 模型 🙂'],
  ['test.empty', 'string', ''],
  ['test.template', 'string', '{{ bos_token }}'.repeat(400)],
  ['test.array.none', 'array', 'i32', []],
  ['test.array.texts', 'array', 'string', ['', 'é', 'ab']],
  ['test.array.bools', 'array', 'bool', [true, false, true]],
  ['test.array.bytes', 'array', 'u8', [0, 1, 255]],
  ['test.array.shorts', 'array', 'i16', [-1, 2]],
  ['test.array.words', 'array', 'u64', [1, 2n ** 63n]],
  ['test.array.floats', 'array', 'f32', [0.5, -0, 3]],
  ['test.array.doubles', 'array', 'f64', [0.1]],
  ['test.array.long', 'array', 'i32', Array.from({ length: 65 }, (_, i) => i - 3)],
  ['__proto__', 'u32', 7],
];

/** A model file of the llama architecture. */
export function tinyLlama({
  architecture = 'llama',
  layers = 2,
  embedding = 256,
  feedForward = 256,
  attention = 256,
  rows = 4,
  heads = 4,
  headsKv = 2,
  vocabulary = 32,
  tied = false,
  source = 'F16',
  alignment,
  qkv = false,
  biases = false,
  experts = 0,
  version = 3,
  pairs = [],
  tensors = [],
}: TinyOptions = {}): Uint8Array<ArrayBuffer> {
  const all: Stored[] = [];
  const add = (name: string, ne: readonly number[], dtype: string = source) => {
    const data = weights(
      dtype,
      ne.reduce((a, b) => a * b, 1),
      all.length * 77 + 5,
    );
    all.push({ name, dtype, ne, data });
  };
  add('token_embd.weight', [embedding, vocabulary]);
  for (let i = 0; i < layers; i++) {
    add(`blk.${i}.attn_norm.weight`, [embedding], 'F32');
    for (const part of qkv ? ['qkv'] : ['q', 'k', 'v']) {
      add(`blk.${i}.attn_${part}.weight`, [embedding, rows]);
      if (biases) add(`blk.${i}.attn_${part}.bias`, [rows], 'F32');
    }
    add(`blk.${i}.attn_output.weight`, [attention, rows]);
    add(`blk.${i}.ffn_norm.weight`, [embedding], 'F32');
    if (experts > 0) {
      add(`blk.${i}.ffn_gate_inp.weight`, [embedding, experts], 'F32');
      for (const part of ['gate', 'up']) add(`blk.${i}.ffn_${part}_exps.weight`, [embedding, rows, experts]);
      add(`blk.${i}.ffn_down_exps.weight`, [feedForward, rows, experts]);
    } else {
      for (const part of ['gate', 'up']) add(`blk.${i}.ffn_${part}.weight`, [embedding, rows]);
      add(`blk.${i}.ffn_down.weight`, [feedForward, rows]);
    }
  }
  add('output_norm.weight', [embedding], 'F32');
  if (!tied) add('output.weight', [embedding, vocabulary]);

  const a = architecture;
  const tokens = Array.from({ length: vocabulary }, (_, i) => ['<unk>', '<s>', '</s>'][i] ?? `w${i}`);
  return ggufFile({
    version,
    alignment: alignment ?? 32,
    pairs: [
      ['general.architecture', 'string', a],
      ['general.name', 'string', 'tiny'],
      ['general.file_type', 'u32', 1],
      ...(alignment === undefined ? [] : [['general.alignment', 'u32', alignment] as const]),
      [`${a}.block_count`, 'u32', layers],
      [`${a}.context_length`, 'u32', 64],
      [`${a}.embedding_length`, 'u32', embedding],
      [`${a}.feed_forward_length`, 'u32', feedForward],
      [`${a}.attention.head_count`, 'u32', heads],
      typeof headsKv === 'number'
        ? [`${a}.attention.head_count_kv`, 'u32', headsKv]
        : [`${a}.attention.head_count_kv`, 'array', 'u32', headsKv],
      [`${a}.attention.layer_norm_rms_epsilon`, 'f32', 1e-5],
      [`${a}.attention.key_length`, 'u32', 32],
      [`${a}.attention.value_length`, 'u32', 32],
      [`${a}.rope.dimension_count`, 'u32', 32],
      [`${a}.vocab_size`, 'u32', vocabulary],
      ...(experts > 0
        ? ([
            [`${a}.expert_count`, 'u32', experts],
            [`${a}.expert_used_count`, 'u32', Math.min(2, experts)],
          ] as const)
        : []),
      ['tokenizer.ggml.model', 'string', 'llama'],
      ['tokenizer.ggml.tokens', 'array', 'string', tokens],
      ['tokenizer.ggml.scores', 'array', 'f32', tokens.map(() => 0)],
      ['tokenizer.ggml.token_type', 'array', 'i32', tokens.map(() => 1)],
      ...pairs,
    ],
    tensors: [...all, ...tensors],
  });
}
