import { access, mkdtemp, open, readdir, readFile, rm, truncate, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { load } from 'scalepoint';
import {
  type ErrorMeasures,
  inspectModel,
  type ModelReport,
  type Progress,
  QualityError,
  quantizeModel,
  type Rule,
  readTensor,
  ScalepointError,
  type TensorReport,
} from 'scalepoint/model';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { storeScales } from '../../web/src/convert.js';

const samples = process.env.SCALEPOINT_SAMPLES;
const noSamples = samples === undefined;
const sample = (name: string) => join(samples ?? '', name);
if (noSamples) console.warn('SCALEPOINT_SAMPLES is not set: the tests with sample files are left out');

// ------------------------------------------------------------------------------------------------------------- files for tests

/** float16 of a number, by search: shares nothing with the code under test. */
function float16Bits(x: number): number {
  const magnitude = Math.abs(x);
  let best = 0;
  for (let bits = 0; bits < 0x7c00; bits++) {
    const [error, least] = [Math.abs(float16(bits) - magnitude), Math.abs(float16(best) - magnitude)];
    if (error < least || (error === least && bits % 2 === 0)) best = bits;
  }
  return best + (x < 0 || Object.is(x, -0) ? 0x8000 : 0);
}

function float16(bits: number): number {
  const [exponent, mantissa] = [(bits >> 10) & 31, bits & 1023];
  const magnitude = exponent === 0 ? mantissa / 2 ** 24 : (1 + mantissa / 1024) * 2 ** (exponent - 15);
  return bits >= 0x8000 ? -magnitude : magnitude;
}

function bfloat16(bits: number): number {
  const view = new DataView(new ArrayBuffer(4));
  view.setUint16(0, bits);
  return view.getFloat32(0);
}

interface TestTensor {
  readonly dtype: string;
  readonly shape: readonly number[];
  readonly data: ArrayBufferView;
}

const bytesOf = (array: ArrayBufferView) =>
  new Uint8Array(array.buffer as ArrayBuffer, array.byteOffset, array.byteLength);

/** A safetensors file with these tensors in this order, whatever their alignment. */
function safetensors(
  tensors: Readonly<Record<string, TestTensor>>,
  metadata?: Record<string, string>,
): Uint8Array<ArrayBuffer> {
  const header: Record<string, unknown> = metadata === undefined ? {} : { __metadata__: metadata };
  let offset = 0;
  for (const [name, { dtype, shape, data }] of Object.entries(tensors)) {
    header[name] = { dtype, shape, data_offsets: [offset, offset + data.byteLength] };
    offset += data.byteLength;
  }
  const json = new TextEncoder().encode(JSON.stringify(header));
  const file = new Uint8Array(8 + json.length + offset);
  new DataView(file.buffer).setUint32(0, json.length, true);
  file.set(json, 8);
  let at = 8 + json.length;
  for (const { data } of Object.values(tensors)) {
    file.set(bytesOf(data), at);
    at += data.byteLength;
  }
  return file;
}

/** A stream of numbers in [0, 1) from a seed. */
function random(seed: number): () => number {
  let state = seed;
  return () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return state / 2 ** 32;
  };
}

function noise(length: number, seed = 1): Float32Array {
  const next = random(seed);
  const values = new Float32Array(length);
  for (let i = 0; i < length; i++) values[i] = next() + next() - 1;
  return values;
}

const f32 = (shape: readonly number[], data: Float32Array = noise(shape.reduce((a, b) => a * b, 1))): TestTensor => ({
  dtype: 'F32',
  shape,
  data,
});

/** A reader of its own for results: values of every tensor as numbers, I8 and I64 too. */
function decode(
  file: Uint8Array,
): Map<string, { dtype: string; shape: number[]; values: number[]; bytes: Uint8Array }> {
  const view = new DataView(file.buffer, file.byteOffset, file.byteLength);
  const length = Number(view.getBigUint64(0, true));
  const header = JSON.parse(new TextDecoder().decode(file.subarray(8, 8 + length)));
  delete header.__metadata__;
  const result = new Map();
  for (const [name, { dtype, shape, data_offsets }] of Object.entries<{
    dtype: string;
    shape: number[];
    data_offsets: [number, number];
  }>(header)) {
    const [begin, end] = data_offsets.map((offset) => 8 + length + offset) as [number, number];
    const values: number[] = [];
    for (let at = begin; at < end; ) {
      if (dtype === 'F32') values.push(view.getFloat32(at, true));
      else if (dtype === 'F64') values.push(view.getFloat64(at, true));
      else if (dtype === 'F16') values.push(float16(view.getUint16(at, true)));
      else if (dtype === 'BF16') values.push(bfloat16(view.getUint16(at, true)));
      else if (dtype === 'I64') values.push(Number(view.getBigInt64(at, true)));
      else values.push(view.getInt8(at));
      at += { F32: 4, F64: 8, F16: 2, BF16: 2, I64: 8 }[dtype] ?? 1;
    }
    result.set(name, { dtype, shape, values, bytes: file.subarray(begin, end) });
  }
  return result;
}

/**
 * Checks a result against its original, tensor by tensor: quantized ones within half a step, the others bit by bit, the report's numbers
 * against sums made here.
 */
function verify(before: Uint8Array, after: Uint8Array, report: ModelReport): void {
  const originals = decode(before);
  const results = decode(after);
  expect(report.tensors.map(({ name }) => name).sort()).toEqual([...originals.keys()].sort());
  const quantized = report.tensors.filter(({ kept }) => kept === undefined);
  expect(results.size).toBe(originals.size + quantized.length);
  for (const tensor of report.tensors) {
    const original = originals.get(tensor.name)!;
    const result = results.get(tensor.name)!;
    expect(result.shape).toEqual(original.shape);
    expect(tensor).toMatchObject({ shape: original.shape, from: original.dtype, to: result.dtype });
    expect(tensor.bytesBefore).toBe(original.bytes.length);
    if (tensor.kept !== undefined) {
      expect(tensor.kept).not.toBe('');
      expect(tensor.error).toBeUndefined();
      expect(tensor.bytesAfter).toBe(original.bytes.length);
      expect(result.dtype).toBe(original.dtype);
      expect(Buffer.from(result.bytes).equals(original.bytes), tensor.name).toBe(true);
      continue;
    }
    const scale = results.get(`${tensor.name}_scale`)!;
    expect(result.dtype).toBe('I8');
    expect(scale.dtype).toBe(original.dtype);
    expect(scale.shape).toEqual(original.shape.map((n, axis) => (axis === 0 ? n : 1)));
    expect(tensor.bytesAfter).toBe(result.bytes.length + scale.bytes.length);
    const inner = original.values.length / scale.values.length;
    let [signal, error, largest] = [0, 0, 0];
    for (const [i, x] of original.values.entries()) {
      const s = scale.values[Math.floor(i / inner)]!;
      const distance = Math.abs(x - s * result.values[i]!);
      // The code is round(x / s) with a float32 division, whose error is at most 2^-24 of |x / s| <= 127.5: 2^-17 of a step.
      if (!(distance <= s * (0.5 + 2 ** -17)))
        throw new Error(`${tensor.name}[${i}]: ${x} with scale ${s} is off by ${distance}`);
      // What is measured is all in float32: the original, the value restored, and their difference.
      const measured = Math.abs(Math.fround(Math.fround(x) - Math.fround(s * result.values[i]!)));
      signal += x * x;
      error += measured * measured;
      largest = Math.max(largest, measured);
    }
    const measures = tensor.error as ErrorMeasures;
    expect(measures.maxAbsoluteError).toBe(largest);
    expect(measures.nonFinite).toBe(0);
    // Sums of float32 blocks: off by at most 70 * 2^-24 of the sum, as accumulate_error in cpp/scalepoint.h says; the ratio of two by
    // twice that, which is 10 log10(1 + 140 * 2^-24) = 3.6e-5 dB.
    expect(Math.abs(measures.mse * original.values.length - error)).toBeLessThanOrEqual(error * 70 * 2 ** -24);
    if (error > 0) expect(Math.abs(measures.sqnrDb - 10 * Math.log10(signal / error))).toBeLessThan(4e-5);
    else expect(measures.sqnrDb).toBe(Number.POSITIVE_INFINITY);
    expect(measures.cosine).toBeGreaterThan(0.99);
    expect(measures.cosine).toBeLessThanOrEqual(1);
  }
  const { totals } = report;
  expect(totals).toMatchObject({
    quantized: quantized.length,
    kept: report.tensors.length - quantized.length,
    bytesBefore: before.length,
    bytesAfter: after.length,
    ratio: before.length / after.length,
  });
}

// --------------------------------------------------------------------------------------------------------------------- folders

let folder = '';
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'scalepoint-model-'));
});
afterAll(() => rm(folder, { recursive: true, force: true }));

let counter = 0;
/** A fresh file in the test's folder. */
async function put(bytes: Uint8Array, name = `${counter++}.safetensors`): Promise<string> {
  const path = join(folder, name);
  await writeFile(path, bytes);
  return path;
}

const keptOf = (report: ModelReport) =>
  Object.fromEntries(report.tensors.map(({ name, kept }) => [name, kept ?? 'int8']));

/** Quantizes in memory and verifies the result. */
async function quantized(bytes: Uint8Array, rules: readonly Rule[] = []) {
  const result = await quantizeModel(bytes, { to: 'int8', rules });
  const after = await result.bytes();
  verify(bytes, after, result.report);
  return { report: result.report, after, results: decode(after) };
}

const sp = await load();
const toFloat16Bits = (x: number) => sp.castFloat([x], 'float16')[0];
const toBfloat16Bits = (x: number) => sp.castFloat([x], 'bfloat16')[0];

describe('quantizing the sample models', () => {
  it.skipIf(noSamples)('brings silero_vad_16k to about a quarter of its size', async () => {
    const path = sample('silero_vad_16k.safetensors');
    const output = join(folder, 'silero.safetensors');
    const { report } = await quantizeModel(path, { to: 'int8', output });
    const before = await readFile(path);
    verify(before, await readFile(output), report);
    // 309633 floats; 307907 of them in weights with 1667 rows, the rest kept: 307907 + 4 * (1667 + 1726) bytes and two headers.
    expect(report.totals.ratio).toBeGreaterThan(3.8);
    expect(report.totals.ratio).toBeLessThan(4);
    expect(report.totals).toMatchObject({ quantized: 8, kept: 7 });
    for (const { name, error, kept } of report.tensors) {
      if (name.includes('bias')) expect(kept).toBe('bias');
      else expect(error?.sqnrDb, name).toBeGreaterThan(0);
    }
  });

  it.skipIf(noSamples)('keeps in mlp what is no weight, and stores scales in each tensor’s own dtype', async () => {
    const before = await readFile(sample('mlp.safetensors'));
    const { report, results, after } = await quantized(before);
    expect(keptOf(report)).toEqual({
      'layers.0.weight': 'int8',
      'layers.0.bias': 'bias',
      'layers.1.weight': 'int8',
      'layers.2.weight': 'int8',
      num_batches_tracked: 'not a float',
      empty: 'empty',
    });
    expect(results.get('layers.0.weight_scale')).toMatchObject({ dtype: 'F32', shape: [64, 1] });
    expect(results.get('layers.1.weight_scale')).toMatchObject({ dtype: 'F16', shape: [64, 1] });
    expect(results.get('layers.2.weight_scale')).toMatchObject({ dtype: 'BF16', shape: [10, 1] });
    expect((await inspectModel(after)).metadata).toEqual({ format: 'pt', made_by: 'make_samples.py' });
  });

  it.skipIf(noSamples)('takes a file of another writer', async () => {
    const { report, results } = await quantized(await readFile(sample('burn_multi_layer.safetensors')));
    expect(results.get('conv1.weight_scale')?.shape).toEqual([4, 1, 1, 1]);
    expect(keptOf(report)).toMatchObject({
      'conv1.weight': 'int8',
      'fc1.weight': 'int8',
      'norm1.running_mean': 'norm',
    });
  });
});

describe('what becomes of the values', () => {
  it('gives the codes and scales that sp.quantize gives', async () => {
    const data = noise(40 * 50);
    const { results } = await quantized(safetensors({ 'x.weight': f32([40, 5, 10], data) }));
    const sp = await load();
    const q = sp.quantize(data, { shape: [40, 50], granularity: { kind: 'per-channel', axis: 0 } });
    expect(results.get('x.weight')?.values).toEqual([...(q.data as Int8Array)]);
    expect(results.get('x.weight_scale')?.values).toEqual([...q.scale]);
    sp.dispose();
  });

  it('restores every float16 and bfloat16 within half a step, whatever the size of its row', async () => {
    // One row for each power of two between the smallest subnormal number and the largest one, and a row of zeros.
    const columns = 64;
    for (const [dtype, lowest, highest, value] of [
      ['F16', 0, 30, float16],
      ['BF16', 0, 254, bfloat16],
    ] as const) {
      const shift = dtype === 'F16' ? 10 : 7;
      const next = random(7);
      const rows: number[] = Array.from({ length: columns }, (_, i) => (i % 2) * 0x8000);
      for (let exponent = lowest; exponent <= highest; exponent++) {
        const top = ((exponent + 1) << shift) - 1;
        for (let i = 0; i < columns; i++)
          rows.push((i === 0 ? top : Math.floor(next() * top)) | (next() < 0.5 ? 0x8000 : 0));
      }
      const data = Uint16Array.from(rows);
      expect(value(data[columns]! & 0x7fff)).toBeGreaterThan(0);
      await quantized(safetensors({ w: { dtype, shape: [rows.length / columns, columns], data } }));
    }
  });

  it('restores float16 rows whose scale is a subnormal number or less', async () => {
    // Scales of these rows lie around the multiples of 2^-24 and half way between them.
    const rows: number[] = [];
    for (let absmax = 1; absmax <= 127 * 20; absmax++)
      rows.push(absmax, Math.floor(absmax / 2), Math.floor(absmax / 3) | 0x8000, 1);
    await quantized(safetensors({ w: { dtype: 'F16', shape: [rows.length / 4, 4], data: Uint16Array.from(rows) } }));
  });

  it('restores float32 rows from subnormal numbers to the largest ones', async () => {
    const rows: number[] = [0, -0, 0, -0];
    for (let exponent = -149; exponent <= 127; exponent++) {
      const top = Math.fround(2 ** exponent * (exponent < -126 ? 1 : 2 - 2 ** -23));
      rows.push(top, -top / 3, top / 254, -top);
    }
    await quantized(safetensors({ w: f32([rows.length / 4, 4], Float32Array.from(rows)) }), [
      { match: /w/, to: 'int8' },
    ]);
  });

  it('rounds scales to the nearest float16 and bfloat16, half to even', () => {
    for (let bits = 1; bits < 0x7bff; bits += 97) {
      const [low, high] = [float16(bits), float16(bits + 1)];
      expect(toFloat16Bits(low)).toBe(bits);
      expect(toFloat16Bits((low + high) / 2)).toBe(bits % 2 === 0 ? bits : bits + 1);
      expect(toFloat16Bits(Math.fround(low * 0.51 + high * 0.49))).toBe(bits);
      expect(toFloat16Bits(Math.fround(low * 0.49 + high * 0.51))).toBe(bits + 1);
    }
    expect([0, 2 ** -26, 2 ** -25, 65519, 65520, 1e30].map(toFloat16Bits)).toEqual([0, 0, 0, 0x7bff, 0x7c00, 0x7c00]);
    for (const x of [1e-6, 0.00012345, 0.3, 511.7])
      expect(toFloat16Bits(Math.fround(x))).toBe(float16Bits(Math.fround(x)));
    for (let bits = 1; bits < 0x7f7f; bits += 89) {
      const [low, high] = [bfloat16(bits), bfloat16(bits + 1)];
      expect(toBfloat16Bits(low)).toBe(bits);
      expect(toBfloat16Bits((low + high) / 2)).toBe(bits % 2 === 0 ? bits : bits + 1);
    }
  });

  it('takes the next larger scale where the nearest is too small for its row', () => {
    const step = 2 ** -24;
    const absmax = [127 * step, 190 * step, 191 * step, 192 * step, step / 4];
    const { values } = storeScales(
      sp,
      Float32Array.from(absmax, (a) => a / 127),
      'F16',
    );
    // 190 and 191 steps divided by 127 round to 1 and 2; 127.5 is the most that scale 1 restores.
    expect([...values].map((v) => v / step)).toEqual([1, 2, 2, 2, 1]);
  });

  it('takes the next smaller scale where the largest code would become infinite', () => {
    const largest = { F16: 65504, BF16: bfloat16(0x7f7f), F32: 2 ** 128 - 2 ** 104 };
    for (const dtype of ['F16', 'BF16', 'F32'] as const) {
      const [scale = 0] = storeScales(sp, Float32Array.of(largest[dtype] / 127), dtype).values;
      expect(127.5 * scale, dtype).toBeGreaterThanOrEqual(largest[dtype]);
      if (dtype === 'F16') expect(toFloat16Bits(127 * scale)).toBeLessThan(0x7c00);
      expect(Math.fround(127 * scale)).toBeLessThan(Number.POSITIVE_INFINITY);
    }
  });

  it('copies kept tensors bit by bit, NaN and infinities too', async () => {
    const special = new Uint32Array([0x7fc00001, 0xff800000, 0x7f800000, 0x80000000, 1]);
    const { report } = await quantized(
      safetensors({
        'a.bias': { dtype: 'F32', shape: [5], data: special },
        ids: { dtype: 'I64', shape: [2, 2], data: new BigInt64Array([1n, -1n, 2n, 3n]) },
        f8: { dtype: 'F8_E4M3', shape: [2, 3], data: new Uint8Array([0x7f, 0xff, 1, 2, 3, 4]) },
      }),
    );
    expect(report.totals).toMatchObject({ quantized: 0, kept: 3 });
  });

  it('keeps scalars and empty tensors, and takes tensors at any offset', async () => {
    const { report } = await quantized(
      safetensors({
        odd: { dtype: 'U8', shape: [3], data: new Uint8Array([1, 2, 3]) },
        w: f32([3, 4]),
        half: { dtype: 'BF16', shape: [2, 3], data: Uint16Array.of(0x3f80, 0xbf80, 0, 0x4000, 0x4040, 0x3e00) },
        one: f32([]),
        none: f32([0, 4]),
        double: { dtype: 'F64', shape: [2, 2], data: new Float64Array([1, 2, 3, 4]) },
      }),
    );
    const expected = { odd: 'not a float', w: 'int8', half: 'int8', one: 'scalar', none: 'empty', double: 'F64' };
    expect(keptOf(report)).toEqual(expected);
  });

  it('gives the same in pieces as at once, for many rows and for rows longer than a piece', async () => {
    const sp = await load();
    const million = 2 ** 20;
    for (const shape of [
      [5, million + 7],
      [3000, 700],
      [2, 3, million / 2 + 1],
    ]) {
      const data = noise(
        shape.reduce((a, b) => a * b, 1),
        shape[0],
      );
      const bytes = safetensors({ w: f32(shape, data) });
      const result = await quantizeModel(bytes, { to: 'int8' });
      const found = await readTensor(await result.bytes(), 'w');
      const scale = await readTensor(await result.bytes(), 'w_scale');
      const q = sp.quantize(data, { shape, granularity: { kind: 'per-channel', axis: 0 } });
      expect(Buffer.compare(bytesOf(found.data), bytesOf(q.data as Int8Array))).toBe(0);
      expect(scale.data).toEqual(q.scale);
      const measures = sp.compare(data, q);
      expect(result.report.tensors[0]?.error?.maxAbsoluteError).toBe(measures.maxAbsoluteError);
      expect(result.report.tensors[0]?.error?.sqnrDb).toBeCloseTo(measures.sqnrDb, 3);
      expect(result.report.tensors[0]?.error?.cosine).toBeCloseTo(measures.cosine, 6);
    }
    sp.dispose();
  });

  it('reads no more than about 4 MiB at a time', async () => {
    const path = await put(
      safetensors({
        a: f32([10, 2 ** 19], new Float32Array(10 * 2 ** 19)),
        b: f32([3, 2 ** 21], new Float32Array(3 * 2 ** 21)),
        'c.bias': f32([2 ** 21], new Float32Array(2 ** 21)),
      }),
    );
    const handle = await open(path);
    const lengths: number[] = [];
    const counting = {
      stat: () => handle.stat(),
      read(buffer: Uint8Array, offset: number, length: number, position: number) {
        lengths.push(length);
        return handle.read(buffer, offset, length, position);
      },
    };
    await quantizeModel(counting, { to: 'int8', output: join(folder, 'pieces.safetensors') });
    await handle.close();
    expect(Math.max(...lengths)).toBe(4 * 2 ** 20);
    expect(lengths.length).toBeGreaterThan(10);
  });
});

describe('what is quantized', () => {
  const two = f32([4, 4]);

  it('keeps embeddings, norms, biases, 1-D tensors and lm_head, and says why', async () => {
    const kinds: Record<string, string> = {
      'model.embed_tokens.weight': 'embedding',
      'bert.embeddings.word_embeddings.weight': 'embedding',
      'transformer.wte.weight': 'embedding',
      'transformer.wpe.weight': 'embedding',
      'shared.weight': 'embedding',
      'emb.weight': 'embedding',
      pos_embed: 'embedding',
      'params/Embed_0/embedding': 'embedding',
      'vit.cls_token': 'embedding',
      'lm_head.weight': 'lm_head',
      'model.lm_head.linear.weight': 'lm_head',
      'model.layers.0.input_layernorm.weight': 'norm',
      'h.0.ln_1.weight': 'norm',
      'ln_f.weight': 'norm',
      'blocks.0.norm1.weight': 'norm',
      'embeddings.LayerNorm.weight': 'norm',
      'layer1.0.bn2.weight': 'norm',
      'h.0.attn.bias': 'bias',
      'lstm.bias_ih_l0': 'bias',
      'mha.in_proj_bias': 'bias',
      'block.0.relative_attention_bias.weight': 'bias',
      'old.weight_scale': 'scale',
      'old.weight_zero_point': 'zero point',
    };
    const weights = [
      'model.layers.0.self_attn.q_proj.weight',
      'lstm.weight_ih_l0',
      'mha.in_proj_weight',
      'norm1.linear.weight',
      'patch_embed.proj.weight',
      'embedder.linear_1.weight',
      'embed_tokens.lora_A.weight',
      'debias.weight',
      'kernel',
    ];
    const all = Object.fromEntries([...Object.keys(kinds), ...weights].map((name) => [name, two]));
    const { report } = await quantized(safetensors({ ...all, gain: f32([4]) }));
    expect(keptOf(report)).toEqual({
      ...kinds,
      ...Object.fromEntries(weights.map((name) => [name, 'int8'])),
      gain: '1-D',
    });
  });

  it('keeps what would not become smaller', async () => {
    const { report } = await quantized(
      safetensors({
        narrow: f32([8, 1]),
        enough: f32([8, 2]),
        half: { dtype: 'F16', shape: [8, 2], data: new Uint16Array(16) },
      }),
    );
    expect(keptOf(report)).toEqual({ narrow: 'not smaller', enough: 'int8', half: 'not smaller' });
  });

  it('keeps a weight whose scale would take the name of another tensor', async () => {
    const { report } = await quantized(safetensors({ w: two, w_scale: f32([4]) }));
    expect(keptOf(report)).toEqual({ w: 'scale name taken', w_scale: 'scale' });
  });

  it('keeps everything in a file that it has made', async () => {
    const { after } = await quantized(safetensors({ 'x.weight': f32([16, 16]), 'x.bias': f32([16]) }));
    const again = await quantized(after);
    expect(keptOf(again.report)).toEqual({ 'x.weight': 'not a float', 'x.weight_scale': 'scale', 'x.bias': 'bias' });
    expect(Buffer.compare(again.after, after)).toBe(0);
  });

  it('lets the first rule that matches decide', async () => {
    const bytes = safetensors({ 'embed.weight': two, 'a.weight': two, 'b.weight': two, 'b.bias': f32([4]) });
    const rules: Rule[] = [
      { match: /^embed/, to: 'int8' },
      // With the g and y flags an expression remembers where it stopped; that must not matter.
      { match: /a/gy, keep: true },
      { match: /weight/g, to: 'int8' },
      { match: /./, keep: true },
    ];
    const { report } = await quantized(bytes, rules);
    expect(keptOf(report)).toEqual({
      'embed.weight': 'int8',
      'a.weight': 'rule',
      'b.weight': 'int8',
      'b.bias': 'rule',
    });
    const all = await quantized(bytes, [{ match: /./, to: 'int8' }]);
    expect(keptOf(all.report)).toMatchObject({ 'embed.weight': 'int8', 'b.bias': 'bias' });
  });

  it('quantizes float64 and what gets larger if a rule asks for it', async () => {
    const bytes = safetensors({
      double: { dtype: 'F64', shape: [2, 2], data: new Float64Array([1 / 3, -2 / 3, 1e-300, 0.1]) },
      narrow: f32([8, 1]),
    });
    const { report, bytes: take } = await quantizeModel(bytes, { to: 'int8', rules: [{ match: /./, to: 'int8' }] });
    expect(keptOf(report)).toEqual({ double: 'int8', narrow: 'int8' });
    expect((await readTensor(await take(), 'double_scale')).dtype).toBe('F32');
  });
});

describe('.npy files', () => {
  function npy(descr: string, shape: string, data: ArrayBufferView, order = 'False'): Uint8Array<ArrayBuffer> {
    const text = `{'descr': '${descr}', 'fortran_order': ${order}, 'shape': ${shape}, }`.padEnd(117);
    return new Uint8Array(Buffer.concat([Buffer.from(`\x93NUMPY\x01\0\x76\0${text}\n`, 'latin1'), bytesOf(data)]));
  }

  it('become safetensors with one weight, named after the file', async () => {
    const data = noise(6 * 8);
    const path = await put(npy('<f4', '(6, 8)', data), 'embedding.npy');
    const output = join(folder, 'embedding.safetensors');
    const { report } = await quantizeModel(path, { to: 'int8', output });
    expect(report.tensors).toMatchObject([
      { name: 'embedding', from: 'F32', to: 'I8', bytesBefore: 192, bytesAfter: 72 },
    ]);
    verify(safetensors({ embedding: f32([6, 8], data) }), await readFile(output), {
      ...report,
      totals: {
        ...report.totals,
        bytesBefore: safetensors({ embedding: f32([6, 8], data) }).length,
        ratio: expect.anything(),
      },
    });
  });

  it('give one result in either byte order and storage order, and from float64', async () => {
    const data = noise(6 * 8);
    const bytes = async (file: Uint8Array) => (await quantizeModel(file, { to: 'int8' })).bytes();
    const expected = await bytes(npy('<f4', '(6, 8)', data));
    const swapped = new Float32Array(data);
    const transposed = new Float32Array(data.length);
    new Uint8Array(swapped.buffer).forEach((_, i, all) => {
      all[i] = bytesOf(data)[i ^ 3]!;
    });
    for (let i = 0; i < 6; i++) for (let j = 0; j < 8; j++) transposed[j * 6 + i] = data[i * 8 + j]!;
    expect(await bytes(npy('>f4', '(6, 8)', swapped))).toEqual(expected);
    expect(await bytes(npy('<f4', '(6, 8)', transposed, 'True'))).toEqual(expected);
    expect(await bytes(npy('<f8', '(6, 8)', Float64Array.from(data)))).toEqual(expected);
  });

  it('are copied where there is nothing to quantize', async () => {
    const cases: [Uint8Array, string][] = [
      [npy('<f4', '(3,)', new Float32Array(3)), '1-D'],
      [npy('<f4', '()', new Float32Array(1)), 'scalar'],
      [npy('<f4', '(0, 3)', new Float32Array(0)), 'empty'],
      [npy('<i4', '(1, 3)', new Int32Array(3)), 'not a float'],
    ];
    for (const [file, kept] of cases) {
      const { report, bytes } = await quantizeModel(file, { to: 'int8' });
      expect(report.tensors).toMatchObject([{ name: 'array', kept }]);
      expect((await inspectModel(await bytes())).tensors[0]).toMatchObject({ name: 'array' });
    }
  });

  it('say where a value is that float32 cannot hold', async () => {
    const file = npy('<f8', '(2, 2)', new Float64Array([1, 2, 1e300, 3]));
    await expect(quantizeModel(file, { to: 'int8' })).rejects.toMatchObject({
      code: 'NON_FINITE',
      byteOffset: 128 + 16,
      message: expect.stringMatching(/1e\+300, too large for float32, at \[1, 0\]/),
    });
  });
});

describe('where models come from and go to', () => {
  it('reads paths, URLs, open files, Blobs and bytes alike', async () => {
    const bytes = safetensors({ w: f32([4, 5]) }, { a: 'b' });
    const path = await put(bytes);
    const handle = await open(path);
    const expected = await inspectModel(bytes);
    for (const input of [path, pathToFileURL(path), handle, new Blob([bytes]), bytes.buffer]) {
      expect(await inspectModel(input)).toEqual(expected);
      expect((await readTensor(input, 'w')).data).toEqual((await readTensor(bytes, 'w')).data);
    }
    // An open file is the caller's: it is still open.
    expect((await handle.stat()).size).toBe(bytes.length);
    await handle.close();
  });

  it('writes to a path, to a file: URL, or to memory', async () => {
    const bytes = safetensors({ w: f32([4, 5]) });
    const memory = await quantizeModel(bytes, { to: 'int8' });
    const expected = await memory.bytes();
    expect(new Uint8Array(await (await memory.blob()).arrayBuffer())).toEqual(expected);
    for (const output of [join(folder, 'path.out'), pathToFileURL(join(folder, 'url ü.out'))]) {
      const result = await quantizeModel(bytes, { to: 'int8', output });
      expect(new Uint8Array(await readFile(output))).toEqual(expected);
      await expect(result.bytes()).rejects.toThrow(TypeError);
      await expect(result.blob()).rejects.toThrow(TypeError);
    }
  });

  it('can replace the very file that it reads', async () => {
    const bytes = safetensors({ w: f32([40, 50]), 'a.bias': f32([3]) });
    const path = await put(bytes);
    const { report } = await quantizeModel(path, { to: 'int8', output: path, overwrite: true });
    verify(bytes, await readFile(path), report);
  });

  it('names a file that is not there, and one that is a folder', async () => {
    const missing = join(folder, 'missing.safetensors');
    await expect(inspectModel(missing)).rejects.toMatchObject({
      code: 'IO',
      message: `cannot open "${missing}": no such file or directory`,
      cause: expect.objectContaining({ code: 'ENOENT' }),
    });
    await expect(inspectModel(folder)).rejects.toMatchObject({
      code: 'IO',
      message: expect.stringMatching(/no regular file/),
    });
  });

  it('reports progress at least once a tensor, in order, up to the end', async () => {
    const tensors = { a: f32([4, 4]), 'a.bias': f32([4]), e: f32([0]), big: f32([3, 2 ** 20]) };
    const calls: Progress[] = [];
    await quantizeModel(safetensors(tensors), { to: 'int8', onProgress: (progress) => calls.push(progress) });
    const total = 64 + 16 + 12 * 2 ** 20;
    expect(new Set(calls.map(({ tensor }) => tensor))).toEqual(new Set(Object.keys(tensors)));
    expect(calls.map(({ bytesDone }) => bytesDone)).toEqual(
      calls.map(({ bytesDone }) => bytesDone).sort((a, b) => a - b),
    );
    expect(calls[0]).toEqual({ phase: 'quantize', tensor: 'a', index: 0, count: 4, bytesDone: 64, bytesTotal: total });
    expect(calls[1]).toMatchObject({ phase: 'copy', tensor: 'a.bias', index: 1 });
    expect(calls.at(-1)).toMatchObject({ tensor: 'big', index: 3, bytesDone: total, bytesTotal: total });
  });
});

describe('failing', () => {
  const good = safetensors({ 'a.bias': f32([64]), w: f32([64, 64]), v: f32([3, 2 ** 20]) });

  /** Expects that the call fails and that the folder is as before. Gives the error. */
  async function leavesNothing(call: () => Promise<unknown>): Promise<unknown> {
    const before = (await readdir(folder)).sort();
    const error = await call().then(
      () => new Error('the call succeeded'),
      (reason: unknown) => reason,
    );
    expect((await readdir(folder)).sort()).toEqual(before);
    return error;
  }
  const out = () => join(folder, 'never.safetensors');

  it('names the tensor, the element and its offset if a weight holds NaN or an infinity', async () => {
    for (const [index, value] of [
      [0, Number.NaN],
      [4999, Number.POSITIVE_INFINITY],
      [2 ** 20 + 5, Number.NEGATIVE_INFINITY],
    ] as const) {
      const data = noise(2 * (2 ** 20 + 3));
      data[index] = value;
      const bytes = safetensors({
        p: { dtype: 'U8', shape: [1], data: new Uint8Array(1) },
        w: f32([2, 2 ** 20 + 3], data),
      });
      const path = await put(bytes);
      const error = await leavesNothing(() => quantizeModel(path, { to: 'int8', output: out() }));
      const place = index < 2 ** 20 + 3 ? `[0, ${index}]` : `[1, ${index - 2 ** 20 - 3}]`;
      expect(error).toMatchObject({
        code: 'NON_FINITE',
        tensor: 'w',
        byteOffset: bytes.length - data.byteLength + 4 * index,
        message: `tensor "w" holds ${value} at ${place}; a rule can keep it`,
      });
      const { report } = await quantizeModel(path, { to: 'int8', rules: [{ match: /^w$/, keep: true }] });
      expect(report.totals.quantized).toBe(0);
    }
    const half = { dtype: 'F16', shape: [2, 3], data: Uint16Array.of(0, 0, 0, 0, 0x7c00, 0) };
    await expect(quantizeModel(safetensors({ half }), { to: 'int8' })).rejects.toMatchObject({
      code: 'NON_FINITE',
      message: expect.stringMatching(/Infinity at \[1, 1\]/),
    });
  });

  it('leaves nothing behind if the file is broken, whatever is', async () => {
    for (const bytes of [good.slice(0, 100), good.slice(0, good.length - 1), new Uint8Array(50), new Uint8Array()]) {
      const path = await put(bytes);
      const error = await leavesNothing(() => quantizeModel(path, { to: 'int8', output: out() }));
      expect(error).toBeInstanceOf(ScalepointError);
    }
  });

  it('leaves nothing behind if reading fails half way, or if the file gets shorter', async () => {
    const path = await put(good);
    const handle = await open(path);
    let reads = 0;
    const failing = {
      stat: () => handle.stat(),
      async read(buffer: Uint8Array, offset: number, length: number, position: number) {
        if (++reads === 6) throw new Error('EIO: i/o error, read');
        return handle.read(buffer, offset, length, position);
      },
    };
    const error = await leavesNothing(() => quantizeModel(failing, { to: 'int8', output: out() }));
    expect(error).toMatchObject({ code: 'IO', message: 'cannot read the open file: i/o error' });
    const shrinking = {
      stat: () => handle.stat(),
      async read(buffer: Uint8Array, offset: number, length: number, position: number) {
        if (position > good.length / 2) await truncate(path, Math.floor(good.length / 2));
        return handle.read(buffer, offset, length, position);
      },
    };
    expect(await leavesNothing(() => quantizeModel(shrinking, { to: 'int8', output: out() }))).toMatchObject({
      code: 'IO',
      message: expect.stringMatching(/became shorter/),
    });
    await handle.close();
  });

  it('stops at the signal with its reason and leaves nothing behind', async () => {
    const path = await put(good);
    const reason = new Error('enough');
    const early = await leavesNothing(() =>
      quantizeModel(path, { to: 'int8', output: out(), signal: AbortSignal.abort(reason) }),
    );
    expect(early).toBe(reason);
    for (const stop of ['a.bias', 'w', 'v']) {
      const controller = new AbortController();
      const onProgress = ({ tensor }: Progress) => tensor === stop && controller.abort(reason);
      const options = { to: 'int8', output: out(), signal: controller.signal, onProgress } as const;
      expect(await leavesNothing(() => quantizeModel(path, options))).toBe(reason);
    }
  });

  it('passes on what onProgress throws and leaves nothing behind', async () => {
    const reason = new Error('from the callback');
    const onProgress = () => {
      throw reason;
    };
    expect(await leavesNothing(() => quantizeModel(good, { to: 'int8', output: out(), onProgress }))).toBe(reason);
  });

  it('refuses a result below the required SQNR, with the report, and leaves nothing behind', async () => {
    const bytes = safetensors({ 'a.weight': f32([8, 64]), 'b.weight': f32([8, 64], new Float32Array(512).fill(0.5)) });
    const { report } = await quantizeModel(bytes, { to: 'int8' });
    const db = (report.tensors[0] as TensorReport).error?.sqnrDb as number;
    const error = await leavesNothing(() => quantizeModel(bytes, { to: 'int8', output: out(), minSqnrDb: db + 0.001 }));
    expect(error).toBeInstanceOf(QualityError);
    expect(error).toMatchObject({ code: 'QUALITY', tensor: 'a.weight', report });
    expect((error as QualityError).message).toBe(
      `SQNR below ${db + 0.001} dB, nothing was written: "a.weight" (${db.toFixed(2)} dB)`,
    );
    await quantizeModel(bytes, { to: 'int8', output: out(), minSqnrDb: db });
    await rm(out());
  });

  it('does not replace a file unless asked to, even one that appears meanwhile', async () => {
    const path = await put(new Uint8Array([1, 2, 3]), 'there.safetensors');
    const options = { to: 'int8', output: path } as const;
    expect(await leavesNothing(() => quantizeModel(good, options))).toMatchObject({ code: 'EXISTS' });
    expect([...(await readFile(path))]).toEqual([1, 2, 3]);
    await quantizeModel(good, { ...options, overwrite: true });
    expect((await inspectModel(path)).format).toBe('safetensors');

    const late = join(folder, 'late.safetensors');
    let made: Promise<void> | undefined;
    const onProgress = () => {
      made ??= writeFile(late, 'mine');
    };
    await expect(quantizeModel(good, { to: 'int8', output: late, onProgress })).rejects.toMatchObject({
      code: 'EXISTS',
    });
    await made;
    expect(await readFile(late, 'utf8')).toBe('mine');
  });

  it('says why an output cannot be written', async () => {
    const missing = join(folder, 'no', 'such', 'folder.safetensors');
    expect(await leavesNothing(() => quantizeModel(good, { to: 'int8', output: missing }))).toMatchObject({
      code: 'IO',
      message: `cannot write "${missing}": no such file or directory`,
    });
    const options = { to: 'int8', output: folder, overwrite: true } as const;
    expect(await leavesNothing(() => quantizeModel(good, options))).toMatchObject({
      code: 'IO',
      message: expect.stringMatching(/no regular file/),
    });
    await access(folder);
  });

  it('refuses wrong options by name', async () => {
    const wrong: [object, RegExp, new (...args: never[]) => Error][] = [
      [{}, /^to: expected 'int8', got undefined/, RangeError],
      [{ to: 'int9' }, /^to: expected 'int8', got "int9"/, RangeError],
      [{ to: 'int8', group: 5 }, /^group: unknown option/, TypeError],
      [{ to: 'int8', rules: 'x' }, /^rules: expected an array/, TypeError],
      [{ to: 'int8', rules: [null] }, /^rules\[0\]\.match/, TypeError],
      [
        { to: 'int8', rules: [{ match: 'x', keep: true }] },
        /^rules\[0\]\.match: expected a RegExp, got "x"/,
        TypeError,
      ],
      [{ to: 'int8', rules: [{ match: /x/ }] }, /^rules\[0\]: expected/, RangeError],
      [{ to: 'int8', rules: [{ match: /x/, to: 'int4' }] }, /^rules\[0\]: .*"int4"/, RangeError],
      [{ to: 'int8', rules: [{ match: /x/, to: 'int8', keep: true }] }, /^rules\[0\]/, RangeError],
      [{ to: 'int8', output: 5 }, /^output: expected a path, got 5/, TypeError],
      [{ to: 'int8', minSqnrDb: '40' }, /^minSqnrDb: expected a number, got "40"/, TypeError],
      [{ to: 'int8', minSqnrDb: Number.NaN }, /^minSqnrDb/, TypeError],
      [{ to: 'int8', onProgress: 1 }, /^onProgress/, TypeError],
      [{ to: 'int8', signal: {} }, /^signal/, TypeError],
    ];
    for (const [options, message, type] of wrong) {
      const error = await leavesNothing(() => quantizeModel(good, options as { to: 'int8' }));
      expect(error).toBeInstanceOf(type);
      expect((error as Error).message).toMatch(message);
    }
    await expect(quantizeModel(good, null as unknown as { to: 'int8' })).rejects.toThrow(
      /^options: expected an object/,
    );
  });
});
