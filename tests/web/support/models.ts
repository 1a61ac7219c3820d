// Shared by the tests of the pipeline, in Node and in Chromium: safetensors files in memory, and checks of a result that compute one number
// at a time. It shares no code with web/src.
import type { ModelReport, QuantizeModelOptions } from 'scalepoint/model';
import { expect } from 'vitest';
import type { ErrorMeasures } from '../../../web/src/core/measure.js';
import { type CompressedWeight, numbersOf, parseSafetensors, readCompressed, type StoredTensor } from './compressed.js';
import { exponentOf, named, nearest } from './floats.js';
import { Random } from './support.js';

/** A tensor to write to a file. */
export interface TestTensor {
  readonly dtype: string;
  readonly shape: readonly number[];
  readonly data: ArrayBufferView;
}

export const product = (shape: readonly number[]) => shape.reduce((a, b) => a * b, 1);

export const bytesOf = (array: ArrayBufferView) =>
  new Uint8Array(array.buffer as ArrayBuffer, array.byteOffset, array.byteLength);

/** A tensor as a file stores it. */
export const storedOf = ({ dtype, shape, data }: TestTensor): StoredTensor => ({
  dtype,
  shape: [...shape],
  bytes: bytesOf(data),
});

/** A file as a folder that was chosen in a browser gives it. Objects become JSON. */
export function chosen(path: string, content: Uint8Array<ArrayBuffer> | string | object): File {
  const bytes = content instanceof Uint8Array || typeof content === 'string' ? content : JSON.stringify(content);
  const file = new File([bytes], path.split('/').at(-1)!);
  return Object.defineProperty(file, 'webkitRelativePath', { value: `tiny/${path}` });
}

/** A safetensors file with this header. `data` are its bytes, or their number if they are zeros. */
export function fileWith(json: string, data: Uint8Array | number = 0): Uint8Array<ArrayBuffer> {
  const header = new TextEncoder().encode(json);
  const file = new Uint8Array(8 + header.length + (typeof data === 'number' ? data : data.length));
  new DataView(file.buffer).setBigUint64(0, BigInt(header.length), true);
  file.set(header, 8);
  if (typeof data !== 'number') file.set(data, 8 + header.length);
  return file;
}

/** A safetensors file with these tensors in this order. They are not aligned. */
export function safetensors(
  tensors: Readonly<Record<string, TestTensor>>,
  metadata?: Readonly<Record<string, string>>,
): Uint8Array<ArrayBuffer> {
  const entries: string[] = metadata === undefined ? [] : [`"__metadata__":${JSON.stringify(metadata)}`];
  let size = 0;
  for (const [name, { dtype, shape, data }] of Object.entries(tensors)) {
    const data_offsets = [size, size + data.byteLength];
    entries.push(`${JSON.stringify(name)}:${JSON.stringify({ dtype, shape, data_offsets })}`);
    size += data.byteLength;
  }
  const all = new Uint8Array(size);
  let at = 0;
  for (const { data } of Object.values(tensors)) {
    all.set(bytesOf(data), at);
    at += data.byteLength;
  }
  return fileWith(`{${entries.join(',')}}`, all);
}

/** Parses such a file without any checks. Results are parsed by compressed.ts, which does check. */
function tensorsOf(file: Uint8Array): Map<string, StoredTensor> {
  const start = 8 + Number(new DataView(file.buffer, file.byteOffset).getBigUint64(0, true));
  const header = JSON.parse(new TextDecoder().decode(file.subarray(8, start)));
  delete header.__metadata__;
  const entries = Object.entries<{ dtype: string; shape: number[]; data_offsets: [number, number] }>(header);
  return new Map(
    entries.map(
      ([
        name,
        {
          dtype,
          shape,
          data_offsets: [begin, end],
        },
      ]) => {
        return [name, { dtype, shape, bytes: file.subarray(start + begin, start + end) }];
      },
    ),
  );
}

/** Random weights around 0. The same seed gives the same weights. */
export function weights(dtype: 'F32' | 'F16' | 'BF16' | 'F64', shape: readonly number[], seed = 1): TestTensor {
  const random = new Random(seed);
  const n = product(shape);
  const values = new Float32Array(n);
  for (let i = 0; i < n; i++) values[i] = (random.bits() + random.bits()) / 2 ** 32 - 1;
  if (dtype === 'F32') return { dtype, shape, data: values };
  if (dtype === 'F64') return { dtype, shape, data: new Float64Array(values).map((v) => v / 3) };
  const bits = new Uint32Array(values.buffer);
  // The low bits of a float32 serve as a float16, with an exponent from 2^-10 to 2^0.
  const narrow = (word: number) => (word & 0x83ff) | ((5 + ((word >>> 16) % 11)) << 10);
  const data = new Uint16Array(n);
  for (let i = 0; i < n; i++) data[i] = dtype === 'BF16' ? bits[i]! >>> 16 : narrow(bits[i]!);
  return { dtype, shape, data };
}

/** A tensor of random I64, which every target keeps. */
export function integers(shape: readonly number[], seed = 1): TestTensor {
  const random = new Random(seed);
  const words = new Uint32Array(2 * product(shape));
  for (let i = 0; i < words.length; i += 2) words[i] = random.bits();
  return { dtype: 'I64', shape, data: new BigInt64Array(words.buffer) };
}

/** Largest number of elements in a tile. Longer tensors are cut into several tiles. */
const tile = 2 ** 20;

/**
 * A model with a tensor for each way of cutting into tiles. There are rows longer than a tile; rows of which a tile holds fewer than eight,
 * the number whose 4-bit zero points share a word; more rows than fit in a tile; and rows that end inside of a word. Some tensors are kept.
 */
export function mixedModel(): Uint8Array<ArrayBuffer> {
  return mixture({ long: [2, tile + 128], wide: [9, 131_200], many: [4200, 256], ids: [tile / 2 + 3] });
}

/** The same tensors with smaller shapes, each of which fits in a tile. */
export function smallModel(): Uint8Array<ArrayBuffer> {
  return mixture({ long: [2, 1280], wide: [9, 640], many: [70, 256], ids: [5] });
}

function mixture(shapes: Readonly<Record<'long' | 'wide' | 'many' | 'ids', readonly number[]>>) {
  return safetensors(
    {
      'long.weight': weights('F32', shapes.long, 1),
      flag: { dtype: 'BOOL', shape: [3], data: Uint8Array.of(1, 0, 1) },
      'wide.weight': weights('BF16', shapes.wide, 2),
      'odd.weight': weights('F16', [37, 45], 3),
      'conv.weight': weights('F32', [6, 5, 7, 3], 4),
      'many.weight': weights('F32', shapes.many, 5),
      'double.weight': weights('F64', [40, 128], 6),
      'model.embed_tokens.weight': weights('F32', [50, 64], 7),
      'a.norm.weight': weights('F32', [64], 8),
      scalar: weights('F32', [], 9),
      'empty.weight': weights('F32', [0, 8]),
      ids: integers(shapes.ids),
      half: weights('F16', [64, 64], 10),
    },
    { format: 'pt' },
  );
}

/** int8 codes as they are, of everything that can have them: the form with the simplest layout. */
export const plain = { packed: false, include: 'all' } as const;

/** Options for each way through the pipeline. */
export const ways: readonly Pick<
  QuantizeModelOptions,
  'to' | 'scheme' | 'granularity' | 'packed' | 'activations' | 'include' | 'rules'
>[] = [
  { to: 'int8', ...plain, rules: [{ match: /double/, to: 'int8' }] },
  { to: 'int8', ...plain, scheme: 'asymmetric' },
  { to: 'int8', scheme: 'asymmetric', granularity: { kind: 'per-channel' } },
  { to: 'int8', activations: 'int8-dynamic', include: 'all' },
  { to: 'int8', scheme: 'asymmetric', granularity: { kind: 'per-group', groupSize: 32 } },
  { to: 'int4', rules: [{ match: /double/, to: 'int8' }] },
  { to: 'int4', scheme: 'asymmetric', granularity: { kind: 'per-group', groupSize: 64 } },
  { to: 'int4', scheme: 'asymmetric', granularity: { kind: 'per-channel' } },
  { to: 'int4', granularity: { kind: 'per-channel' } },
  { to: 'float16' },
  { to: 'bfloat16', rules: [{ match: /conv/, keep: true }] },
  { to: 'float8e4m3fn', include: 'all' },
  { to: 'int8' },
  { to: 'int8', include: 'all', scheme: 'asymmetric' },
];

/** True if two arrays hold the same bytes. */
function sameBytes(a: Uint8Array, b: Uint8Array): boolean {
  if (typeof Buffer !== 'undefined') return Buffer.compare(a, b) === 0;
  if (a.length !== b.length) return false;
  const [left, right] = [a, b].map((bytes) => new DataView(bytes.buffer, bytes.byteOffset, bytes.length)) as [
    DataView,
    DataView,
  ];
  // Four bytes at a time, and the rest.
  const words = a.length >> 2;
  for (let i = 0; i < words; i++) if (left.getUint32(4 * i) !== right.getUint32(4 * i)) return false;
  for (let i = 4 * words; i < a.length; i++) if (a[i] !== b[i]) return false;
  return true;
}

/** Fails if two arrays differ, and names the first byte that does. */
export function expectBytes(got: Uint8Array, want: Uint8Array, what = ''): void {
  if (sameBytes(got, want)) return;
  const at = got.findIndex((byte, i) => byte !== want[i]);
  expect.fail(`${what}: ${got.length} and ${want.length} bytes, different from byte ${at} on`);
}

/**
 * Checks error measures against the original and the restored values.
 *
 * A difference is one float32 subtraction, which this function repeats exactly. Let r = 70 * 2^-24, the bound on the relative error of a
 * sum (accumulate_error in cpp/arrays/metrics.h).
 *   The SQNR is a ratio of two sums. It is off by at most 10 log10(1 + 2 r) = 3.6e-5 dB.
 *   The cosine is c / sqrt(s t) with c = sum x y. Its sum is off by at most r sum |x y|, and the square root by at most r of itself. So the
 *   cosine is off by at most r (sum |x y| + |c|) / sqrt(s t).
 */
function expectMeasures(
  got: ErrorMeasures | undefined,
  original: ArrayLike<number>,
  restored: ArrayLike<number>,
  what: string,
): void {
  let [signal, error, absolute, largest, cross, crossSize, other] = [0, 0, 0, 0, 0, 0, 0];
  const n = original.length;
  for (let i = 0; i < n; i++) {
    const x = Math.fround(original[i] as number);
    const y = Math.fround(restored[i] as number);
    const e = Math.fround(x - y);
    signal += x * x;
    other += y * y;
    cross += x * y;
    crossSize += Math.abs(x * y);
    error += e * e;
    absolute += Math.abs(e);
    largest = Math.max(largest, Math.abs(e));
  }
  const relative = 70 * 2 ** -24;
  if (got === undefined) throw new Error(`${what} has no measures`);
  expect(got.maxAbsoluteError, `${what}: largest error`).toBe(largest);
  expect(got.nonFinite, what).toBe(0);
  if (n === 0) return;
  expect(Math.abs(got.mse * n - error), `${what}: mse`).toBeLessThanOrEqual(error * relative);
  expect(Math.abs(got.meanAbsoluteError * n - absolute), `${what}: mean`).toBeLessThanOrEqual(absolute * relative);
  if (error === 0) expect(got).toMatchObject({ sqnrDb: Infinity, cosine: 1, relativeL2: 0 });
  else {
    expect(Math.abs(got.sqnrDb - 10 * Math.log10(signal / error)), `${what}: SQNR`).toBeLessThan(4e-5);
    const size = Math.sqrt(signal * other);
    const slack = (relative * (crossSize + Math.abs(cross))) / size;
    expect(Math.abs(got.cosine - cross / size), `${what}: cosine`).toBeLessThanOrEqual(slack);
  }
}

/**
 * Fails unless codes stand for values near the original ones. The digests hold the bytes, and tests/cpp/codecs_compressed_tensors_test.cpp
 * the arithmetic.
 */
export function expectNear(weight: CompressedWeight, values: ArrayLike<number>, what: string): void {
  const { type, bits, symmetric, scaleDtype, scale, weights } = weight;
  const { fraction, smallest } = named[scaleDtype]!;
  const steps = type === 'float' ? 448 : symmetric ? 2 ** (bits - 1) : 2 ** bits;
  const perScale = values.length / scale.length;
  for (let i = 0; i < values.length; i++) {
    const [v, s] = [Math.fround(values[i]!), scale[Math.floor(i / perScale)]!];
    // At the ends of the range, where codes saturate: half a unit of the stored scale for each step, and half a step, which symmetric codes
    // lack at one end, and by which zero points are rounded.
    const end = steps * 2 ** (Math.max(exponentOf(s), smallest) - fraction - 1) + s / 2;
    // Elsewhere half a step. Float8 rounds by a 16th of a value, or half of its smallest step. Quotients are rounded to float32.
    const most = Math.max(end, type === 'int' ? s / 2 : Math.abs(v) / 16 + s * 2 ** -10) * (1 + 2 ** -15);
    if (!(Math.abs(v - weights[i]!) <= most)) expect.fail(`${what}[${i}]: ${weights[i]} for ${v}`);
  }
}

/**
 * Checks a safetensors result and its report against the original. Codes must stand for values near the original ones, casts
 * must be to the nearest, and kept tensors must have the same bytes.
 */
export function expectResult(
  before: Uint8Array,
  after: Uint8Array,
  report: ModelReport,
  config?: Readonly<Record<string, unknown>>,
): void {
  const originals = tensorsOf(before);
  const quantization = config?.quantization_config;
  const results =
    quantization === undefined
      ? { weights: new Map<string, CompressedWeight>(), others: parseSafetensors(after).tensors }
      : readCompressed(after, quantization, originals.keys());
  expect(report.tensors.map(({ name }) => name)).toEqual([...originals.keys()]);
  for (const tensor of report.tensors) {
    const { name, kept, error } = tensor;
    const original = originals.get(name) as StoredTensor;
    expect(tensor).toMatchObject({ shape: original.shape, from: original.dtype, bytesBefore: original.bytes.length });
    const weight = results.weights.get(name);
    if (weight !== undefined) {
      const values = numbersOf(original);
      expectNear(weight, values, name);
      expectMeasures(error, values, weight.weights, name);
      continue;
    }
    const result = results.others.get(name);
    if (result === undefined) throw new Error(`${name} is missing`);
    expect(result.shape).toEqual(original.shape);
    expect(tensor).toMatchObject({ to: result.dtype, bytesAfter: result.bytes.length });
    if (kept !== undefined) {
      expect(error).toBeUndefined();
      expect(result.dtype).toBe(original.dtype);
      expectBytes(result.bytes, original.bytes, name);
      continue;
    }
    const values = numbersOf(original);
    const restored = numbersOf(result);
    for (let i = 0; i < values.length; i++) {
      const want = nearest(Math.fround(values[i]!), named[result.dtype]!);
      if (!Object.is(restored[i], want)) expect.fail(`${name}[${i}]: ${restored[i]} instead of ${want}`);
    }
    expectMeasures(error, values, restored, name);
  }
  const kept = report.tensors.filter((tensor) => tensor.kept !== undefined).length;
  const cast = report.tensors.filter((tensor) => tensor.kept === undefined && /^B?F(16|32)$/.test(tensor.to)).length;
  expect(report.totals).toMatchObject({
    quantized: report.tensors.length - kept - cast,
    cast,
    kept,
    bytesBefore: before.length,
    bytesAfter: after.length,
    ratio: before.length / after.length,
  });
}

/** The reason with which a promise is rejected. Fails if it is fulfilled. */
export async function rejectionOf(promise: Promise<unknown>): Promise<unknown> {
  return promise.then(
    () => expect.fail('the promise was fulfilled'),
    (reason: unknown) => reason,
  );
}

// --------------------------------------------------------------------------------------------------------------------- gigabytes

/** A model file that is mostly zeros, so that it takes little space on a file system with sparse files. */
export interface SparseModel {
  readonly header: Uint8Array<ArrayBuffer>;
  readonly size: number;
  /** The values other than 0, at most one in each row. */
  readonly values: readonly {
    readonly tensor: string;
    /** Index of the element in its tensor. */
    readonly index: number;
    /** Elements in a row of the tensor. */
    readonly columns: number;
    readonly value: number;
    /** Position of the element in the file. */
    readonly position: number;
    /** The value as it is stored. */
    readonly bytes: Uint8Array<ArrayBuffer>;
  }[];
}

/** A safetensors model with 2.25 GiB of float32 in three matrices and a single row of 768 MiB. The last matrix begins below 2^31 and ends above. */
export function bigSafetensors(): SparseModel {
  const shapes = {
    'a.weight': [8192, 16_384],
    'b.weight': [1, 201_326_592],
    'c.weight': [8193, 16_384],
    'd.weight': [8192, 16_384],
  };
  const entries: string[] = [];
  const begins = new Map<string, number>();
  let size = 0;
  for (const [name, shape] of Object.entries(shapes)) {
    begins.set(name, size);
    entries.push(`"${name}":{"dtype":"F32","shape":[${shape}],"data_offsets":[${size},${size + product(shape) * 4}]}`);
    size += product(shape) * 4;
  }
  const header = fileWith(`{${entries.join()}}`);
  const values = Object.entries(shapes).flatMap(([tensor, [rows = 0, columns = 0]]) => {
    const places = rows === 1 ? [columns - 2] : [0, 1, 63, 64, 6000, rows - 1];
    return places.map((row, i) => {
      const index = rows === 1 ? row : row * columns + ((row * 7919) % (columns - 2)) + 1;
      const value = Math.fround((i % 2 === 0 ? 1 : -1) * (0.3 + row / 7));
      const position = header.length + (begins.get(tensor) as number) + index * 4;
      return { tensor, index, columns, value, position, bytes: new Uint8Array(Float32Array.of(value).buffer) };
    });
  });
  return { header, size: header.length + size, values };
}

/** A GGUF model of the llama architecture with 2.4 GiB of float32. */
export function bigGguf(): SparseModel {
  const pieces: Uint8Array<ArrayBuffer>[] = [];
  const u32 = (value: number) => void pieces.push(new Uint8Array(Uint32Array.of(value).buffer));
  const u64 = (value: number) => void pieces.push(new Uint8Array(BigUint64Array.of(BigInt(value)).buffer));
  const text = (value: string) => {
    u64(value.length);
    pieces.push(new TextEncoder().encode(value));
  };
  const layers = 2;
  const shapes = new Map([['token_embd.weight', [4096, 32_000]]]);
  for (let i = 0; i < layers; i++) {
    shapes.set(`blk.${i}.attn_v.weight`, [4096, 4096]);
    shapes.set(`blk.${i}.ffn_gate.weight`, [4096, 14_336]);
    shapes.set(`blk.${i}.ffn_up.weight`, [4096, 14_336]);
    shapes.set(`blk.${i}.ffn_down.weight`, [14_336, 4096]);
  }
  shapes.set('output.weight', [4096, 32_000]);

  pieces.push(new TextEncoder().encode('GGUF'));
  u32(3);
  u64(shapes.size);
  const pairs = {
    block_count: layers,
    embedding_length: 4096,
    'attention.head_count': 32,
    'attention.head_count_kv': 8,
  };
  u64(1 + Object.keys(pairs).length);
  text('general.architecture');
  u32(8);
  text('llama');
  for (const [key, value] of Object.entries(pairs)) {
    text(`llama.${key}`);
    u32(4);
    u32(value);
  }
  const begins = new Map<string, number>();
  let size = 0;
  for (const [name, ne] of shapes) {
    text(name);
    u32(ne.length);
    for (const n of ne) u64(n);
    u32(0);
    u64(size);
    begins.set(name, size);
    size += product(ne) * 4;
  }
  const length = pieces.reduce((sum, piece) => sum + piece.length, 0);
  const header = new Uint8Array(Math.ceil(length / 32) * 32);
  let at = 0;
  for (const piece of pieces) {
    header.set(piece, at);
    at += piece.length;
  }
  const values = [...shapes].flatMap(([tensor, [columns = 0, rows = 0]]) =>
    [0, 1, 2000, rows - 2].map((row, i) => {
      const index = row * columns + ((row * 7919) % (columns - 512));
      const value = (i % 2 === 0 ? 1 : -1) * 0.5;
      const position = header.length + (begins.get(tensor) as number) + index * 4;
      return { tensor, index, columns, value, position, bytes: new Uint8Array(Float32Array.of(value).buffer) };
    }),
  );
  return { header, size: header.length + size, values };
}
