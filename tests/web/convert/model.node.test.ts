import { mkdtemp, open, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { load } from 'scalepoint';
import {
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
import { numbersOf, parseSafetensors } from '../support/compressed.js';
import { bytesOf, expectBytes, expectResult, plain, product, safetensors, type TestTensor } from '../support/models.js';
import { bfloat16Value, float16Value, Random } from '../support/support.js';

// ------------------------------------------------------------------------------------------------------------- files for tests

function noise(length: number, seed = 1): Float32Array {
  const random = new Random(seed);
  const values = new Float32Array(length);
  for (let i = 0; i < length; i++) values[i] = (random.bits() + random.bits()) / 2 ** 32 - 1;
  return values;
}

const f32 = (shape: readonly number[], data: Float32Array = noise(product(shape))): TestTensor => ({
  dtype: 'F32',
  shape,
  data,
});

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

/** The kinds of the reasons to keep tensors. */
const keptOf = (report: ModelReport) =>
  Object.fromEntries(report.tensors.map(({ name, kept }) => [name, kept?.kind ?? 'int8']));

/** Quantizes in memory and holds the result to the reference. */
async function quantized(bytes: Uint8Array, rules: readonly Rule[] = []) {
  const { report, config, bytes: take } = await quantizeModel(bytes, { to: 'int8', ...plain, rules });
  const after = await take();
  expectResult(bytes, after, report, config);
  return { report, after, results: parseSafetensors(after).tensors };
}

describe('what becomes of the values', () => {
  it('gives the codes and scales that sp.quantize gives for the full range', async () => {
    const data = noise(40 * 50);
    const { results } = await quantized(safetensors({ 'x.weight': f32([40, 5, 10], data) }));
    const sp = await load();
    const granularity = { kind: 'per-channel', axis: 0 } as const;
    const q = sp.quantize(data, { shape: [40, 50], granularity, symmetricRange: 'full' });
    expect(results.get('x.weight')?.bytes).toEqual(bytesOf(q.data as Int8Array));
    expect(results.get('x.weight_scale')?.bytes).toEqual(bytesOf(q.scale));
    sp.dispose();
  });

  it('makes the codes of every float16 and bfloat16, whatever the size of its row', async () => {
    // One row for each power of two between the smallest subnormal number and the largest one, and a row of zeros. The largest bfloat16
    // are left out: a code of -128 stands for 128 / 127.5 of the largest number of a row, which is no float any more.
    const columns = 64;
    for (const [dtype, highest, value] of [
      ['F16', 30, float16Value],
      ['BF16', 253, bfloat16Value],
    ] as const) {
      const shift = dtype === 'F16' ? 10 : 7;
      const random = new Random(7);
      const rows: number[] = Array.from({ length: columns }, (_, i) => (i % 2) * 0x8000);
      for (let exponent = 0; exponent <= highest; exponent++) {
        const top = ((exponent + 1) << shift) - 1;
        for (let i = 0; i < columns; i++) rows.push((i === 0 ? top : random.below(top)) | (random.below(2) * 0x8000));
      }
      const data = Uint16Array.from(rows);
      expect(value(data[columns]! & 0x7fff)).toBeGreaterThan(0);
      await quantized(safetensors({ 'x.weight': { dtype, shape: [rows.length / columns, columns], data } }));
    }
  });

  it('makes codes of float16 rows whose scale is a subnormal number or less', async () => {
    // Scales of these rows lie around the multiples of 2^-24 and half way between them.
    const rows: number[] = [];
    for (let absmax = 1; absmax <= 128 * 20; absmax++)
      rows.push(absmax, Math.floor(absmax / 2), Math.floor(absmax / 3) | 0x8000, 1);
    const data = Uint16Array.from(rows);
    await quantized(safetensors({ 'x.weight': { dtype: 'F16', shape: [rows.length / 4, 4], data } }));
  });

  it('makes codes of float32 rows from subnormal numbers to large ones', async () => {
    const rows: number[] = [0, -0, 0, -0];
    for (let exponent = -149; exponent <= 126; exponent++) {
      const top = Math.fround(2 ** exponent * (exponent < -126 ? 1 : 2 - 2 ** -23));
      rows.push(top, -top / 3, top / 254, -top);
    }
    await quantized(safetensors({ 'x.weight': f32([rows.length / 4, 4], Float32Array.from(rows)) }));
  });

  it('copies kept tensors bit by bit, NaN and infinities too, if they are asked for', async () => {
    const special = new Uint32Array([0x7fc00001, 0xff800000, 0x7f800000, 0x80000000, 1]);
    const bytes = safetensors({
      'a.bias': { dtype: 'F32', shape: [5], data: special },
      ids: { dtype: 'I64', shape: [2, 2], data: new BigInt64Array([1n, -1n, 2n, 3n]) },
      f8: { dtype: 'F8_E4M3', shape: [2, 3], data: new Uint8Array([0x7f, 0xff, 1, 2, 3, 4]) },
    });
    const { report, bytes: take } = await quantizeModel(bytes, { to: 'int8', nonFinite: 'keep' });
    const { tensors } = parseSafetensors(await take());
    expect(tensors.get('a.bias')?.bytes).toEqual(new Uint8Array(special.buffer));
    expect(tensors.get('f8')?.bytes).toEqual(new Uint8Array([0x7f, 0xff, 1, 2, 3, 4]));
    expect(report.totals).toMatchObject({ quantized: 0, kept: 3 });
    expect(report.tensors.map(({ nonFinite }) => nonFinite)).toEqual([3, undefined, 2]);
    expect(report.notes).toMatchObject([{ kind: 'nonFinite', tensors: ['a.bias', 'f8'], count: 5 }]);
    // A rule that keeps a tensor asks for it as well, and so does a copy.
    const rules = [{ match: 'a.bias|f8', keep: true }] as const;
    expect((await quantizeModel(bytes, { to: 'int8', rules })).report.notes).toMatchObject([{ kind: 'nonFinite' }]);
    expect((await quantizeModel(bytes, { to: 'copy' })).report.notes).toMatchObject([{ kind: 'nonFinite' }]);
    await expect(quantizeModel(bytes, { to: 'copy', nonFinite: 'keep' })).rejects.toMatchObject({
      option: 'nonFinite',
    });
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
    const expected = { odd: 'nonFloat', w: 'int8', half: 'int8', one: 'rank', none: 'empty', double: 'dtype' };
    expect(keptOf(report)).toEqual(expected);
  });

  it('reads no more than 2 MiB at a time for workers that cannot read', async () => {
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
    await quantizeModel(counting, { to: 'int8', ...plain, output: join(folder, 'pieces.safetensors') });
    await handle.close();
    expect(Math.max(...lengths)).toBe(2 * 2 ** 20);
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
      'lm_head.weight': 'lmHead',
      'model.lm_head.linear.weight': 'lmHead',
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
      'old.weight_zero_point': 'zeroPoint',
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
      gain: 'rank',
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
    expect(keptOf(report)).toEqual({ narrow: 'notSmaller', enough: 'int8', half: 'notSmaller' });
  });

  it('keeps a weight whose scale would take the name of another tensor', async () => {
    const { report } = await quantized(safetensors({ w: two, w_scale: f32([4]) }));
    expect(keptOf(report)).toEqual({ w: 'nameTaken', w_scale: 'scale' });
  });

  it('takes no file that it has made', async () => {
    const { after } = await quantized(safetensors({ 'x.weight': f32([16, 16]), 'x.bias': f32([16]) }));
    const again = quantizeModel(after, { to: 'int8', ...plain });
    await expect(again).rejects.toMatchObject({ code: 'UNSUPPORTED_DTYPE', tensor: 'x.weight' });
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
    const { report } = await quantizeModel(path, { to: 'int8', ...plain, output });
    expect(report.tensors).toMatchObject([
      { name: 'embedding', from: 'F32', to: 'I8', bytesBefore: 192, bytesAfter: 72 },
    ]);
    const same = await quantizeModel(safetensors({ embedding: f32([6, 8], data) }), {
      to: 'int8',
      ...plain,
      rules: [{ match: /./, to: 'int8' }],
    });
    expectBytes(await readFile(output), await same.bytes());
    expect(report.tensors[0]?.error).toEqual(same.report.tensors[0]?.error);
  });

  it('give one result in either byte order and storage order, and from float64', async () => {
    const data = noise(6 * 8);
    const bytes = async (file: Uint8Array) => (await quantizeModel(file, { to: 'int8', ...plain })).bytes();
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
    const cases: [Uint8Array, object][] = [
      [npy('<f4', '(3,)', new Float32Array(3)), { kind: 'rank', rank: 1 }],
      [npy('<f4', '()', new Float32Array(1)), { kind: 'rank', rank: 0 }],
      [npy('<f4', '(0, 3)', new Float32Array(0)), { kind: 'empty' }],
      [npy('<i4', '(1, 3)', new Int32Array(3)), { kind: 'nonFloat', dtype: 'I32' }],
    ];
    for (const [file, kept] of cases) {
      const { report, bytes } = await quantizeModel(file, { to: 'int8', ...plain });
      expect(report.tensors).toMatchObject([{ name: 'array', kept }]);
      expect((await inspectModel(await bytes())).tensors[0]).toMatchObject({ name: 'array' });
    }
  });

  it('say where a value is that float32 cannot hold', async () => {
    const file = npy('<f8', '(2, 2)', new Float64Array([1, 2, 1e300, 3]));
    await expect(quantizeModel(file, { to: 'int8', ...plain })).rejects.toMatchObject({
      code: 'NON_FINITE',
      byteOffset: 128 + 16,
      message: expect.stringMatching(/holds 1e\+300 at \[1, 0\], too large for float32/),
    });
  });
});

describe('where models come from and go to', () => {
  it('reads paths, URLs, open files, Blobs and bytes alike', async () => {
    const bytes = safetensors({ w: f32([4, 5]) }, { a: 'b' });
    const path = await put(bytes);
    const handle = await open(path);
    const expected = await inspectModel(bytes);
    const name = path.slice(folder.length + 1);
    for (const [input, file] of [
      [path, name],
      [pathToFileURL(path), name],
      [handle, ''],
      [new Blob([bytes]), ''],
      [new File([bytes], 'a file'), 'a file'],
      [bytes.buffer, ''],
    ] as const) {
      expect(await inspectModel(input)).toEqual({ ...expected, files: [file] });
      expect((await readTensor(input, 'w')).data).toEqual((await readTensor(bytes, 'w')).data);
    }
    // An open file is the caller's: it is still open.
    expect((await handle.stat()).size).toBe(bytes.length);
    await handle.close();
  });

  it('never replaces the very file that it reads', async () => {
    const bytes = safetensors({ w: f32([40, 50]), 'a.bias': f32([3]) });
    const path = await put(bytes);
    const made = quantizeModel(path, { to: 'int8', ...plain, output: path, overwrite: true });
    await expect(made).rejects.toMatchObject({ option: 'output' });
    expect(Buffer.compare(await readFile(path), bytes)).toBe(0);
  });

  it('names a file that is not there, and a folder without a model', async () => {
    const missing = join(folder, 'missing.safetensors');
    await expect(inspectModel(missing)).rejects.toMatchObject({
      code: 'IO',
      message: `cannot open "${missing}": no such file or directory`,
      cause: expect.objectContaining({ code: 'ENOENT' }),
    });
    await expect(inspectModel(await mkdtemp(join(folder, 'empty-')))).rejects.toMatchObject({
      code: 'NOT_FOUND',
      message: expect.stringMatching(/^the folder ".*" holds no .* file$/),
    });
  });

  it('reports progress at least once a tensor, in order, up to the end', async () => {
    const tensors = { a: f32([4, 4]), 'a.bias': f32([4]), e: f32([0]), big: f32([3, 2 ** 20]) };
    const calls: Progress[] = [];
    await quantizeModel(safetensors(tensors), { to: 'int8', ...plain, onProgress: (progress) => calls.push(progress) });
    const total = 64 + 16 + 12 * 2 ** 20;
    expect(new Set(calls.map(({ tensor }) => tensor))).toEqual(new Set(Object.keys(tensors)));
    expect(calls.map(({ bytesDone }) => bytesDone)).toEqual(
      calls.map(({ bytesDone }) => bytesDone).sort((a, b) => a - b),
    );
    // In the order of the result, where kept floats come before codes.
    expect(calls[0]).toEqual({
      phase: 'copy',
      tensor: 'a.bias',
      index: 1,
      count: 4,
      bytesDone: 16,
      bytesTotal: total,
    });
    expect(calls[1]).toMatchObject({ phase: 'quantize', tensor: 'a', index: 0, bytesDone: 80 });
    expect(calls.at(-1)).toMatchObject({ bytesDone: total, bytesTotal: total });
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
      const error = await leavesNothing(() => quantizeModel(path, { to: 'int8', ...plain, output: out() }));
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
    await expect(quantizeModel(safetensors({ half }), { to: 'int8', ...plain })).rejects.toMatchObject({
      code: 'NON_FINITE',
      message: expect.stringMatching(/Infinity at \[1, 1\]/),
    });
  });

  it('leaves nothing behind if the file is broken, whatever is', async () => {
    for (const bytes of [good.slice(0, 100), good.slice(0, good.length - 1), new Uint8Array(50), new Uint8Array()]) {
      const path = await put(bytes);
      const error = await leavesNothing(() => quantizeModel(path, { to: 'int8', ...plain, output: out() }));
      expect(error).toBeInstanceOf(ScalepointError);
    }
  });

  it('leaves nothing behind if reading fails half way', async () => {
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
    const error = await leavesNothing(() => quantizeModel(failing, { to: 'int8', ...plain, output: out() }));
    expect(error).toMatchObject({ code: 'IO', message: 'tensor "v": cannot read the open file: i/o error' });
    await handle.close();
  });

  it('names the first NaN or infinity of a tensor that stays floats', async () => {
    const data = noise(2 ** 21 + 8);
    data[2 ** 20 + 9] = Number.NEGATIVE_INFINITY;
    const header = { dtype: 'BF16', shape: [4], data: new Uint16Array([1, 2, 0x7fc0, 0x7f80]) } as const;
    // The first number is beyond float32, and no infinity.
    const doubles = { dtype: 'F64', shape: [4], data: new Float64Array([1e300, 2, Number.NaN, 1]) } as const;
    const of = (tensor: Parameters<typeof safetensors>[0][string]) =>
      safetensors({ 'a.weight': f32([4, 64]), norm: tensor, 'z.weight': f32([4, 64]) });
    for (const [to, tensor, value, index, offset] of [
      ['int8', f32([2 ** 21 + 8], data), Number.NEGATIVE_INFINITY, 2 ** 20 + 9, 4 * (2 ** 20 + 9)],
      ['float16', f32([2 ** 21 + 8], data), Number.NEGATIVE_INFINITY, 2 ** 20 + 9, 4 * (2 ** 20 + 9)],
      ['int4', header, Number.NaN, 2, 4],
      ['bfloat16', header, Number.NaN, 2, 4],
      ['float16', header, Number.NaN, 2, 4],
      ['int4', doubles, Number.NaN, 2, 16],
    ] as const) {
      const bytes = of(tensor);
      const payload = bytes.length - 2 * 4 * 256 - tensor.data.byteLength;
      for (const workers of [0, 1]) {
        const error = await leavesNothing(() => quantizeModel(bytes, { to, workers, output: out() }));
        expect(error).toMatchObject({
          code: 'NON_FINITE',
          tensor: 'norm',
          byteOffset: payload + 4 * 256 + offset,
          message: `tensor "norm" holds ${value} at [${index}]; nonFinite: 'keep' writes it as it is`,
        });
      }
      const { report } = await quantizeModel(bytes, { to, nonFinite: 'keep' });
      expect(report.notes.at(-1)).toMatchObject({ kind: 'nonFinite', tensors: ['norm'] });
    }
  });

  it('names the element that is beyond the type that it would be stored in', async () => {
    const data = noise(2 * 2 ** 20);
    data[2 ** 20 + 9] = 65520;
    const bytes = safetensors({ w: f32([2, 2 ** 20], data) });
    const error = await leavesNothing(() => quantizeModel(bytes, { to: 'float16', output: out() }));
    expect(error).toMatchObject({
      code: 'OVERFLOW',
      tensor: 'w',
      byteOffset: bytes.length - data.byteLength + 4 * (2 ** 20 + 9),
      message: 'tensor "w" holds 65520 at [1, 9], too large for F16; a rule can keep it',
    });
    // Just below, it rounds to the largest number; infinities and NaN pass if they are asked for, and are counted.
    data[2 ** 20 + 9] = 65519;
    data[5] = Number.NEGATIVE_INFINITY;
    data[6] = Number.NaN;
    const { report, bytes: take } = await quantizeModel(safetensors({ w: f32([2, 2 ** 20], data) }), {
      to: 'float16',
      nonFinite: 'keep',
    });
    expect(report.tensors[0]?.nonFinite).toBe(2);
    expect(report.notes).toMatchObject([{ kind: 'nonFinite', tensors: ['w'], count: 2 }]);
    const stored = parseSafetensors(await take()).tensors.get('w') as Parameters<typeof numbersOf>[0];
    const values = numbersOf(stored);
    expect([values[2 ** 20 + 9], values[5], values[6]]).toEqual([65504, Number.NEGATIVE_INFINITY, Number.NaN]);
  });

  it('names the element whose code would stand for an infinity', async () => {
    // The code is -128, for 128 / 127.5 of the value.
    const largest = Math.fround(3.4028234663852886e38);
    const data = noise(3 * 64);
    data[130] = -largest;
    const bytes = safetensors({ 'x.weight': f32([3, 64], data) });
    for (const options of [{ to: 'int8' }, { to: 'int8', packed: true }] as const) {
      expect(await leavesNothing(() => quantizeModel(bytes, { ...options, output: out() }))).toMatchObject({
        code: 'OVERFLOW',
        tensor: 'x.weight',
        byteOffset: bytes.length - data.byteLength + 4 * 130,
        message: `tensor "x.weight" holds ${-largest} at [2, 2], too large for the scale; a rule can keep it`,
      });
    }
    data[130] = largest;
    await quantized(safetensors({ 'x.weight': f32([3, 64], data) }));
    // 3e38 is nearer to 4 than to 3 times its power of two, and 4 times that is beyond float32.
    data[130] = 3e38;
    const error = await leavesNothing(() =>
      quantizeModel(safetensors({ 'x.weight': f32([3, 64], data) }), { to: 'mxfp4', output: out() }),
    );
    expect(error).toMatchObject({ code: 'OVERFLOW', tensor: 'x.weight' });
    expect((error as Error).message).toMatch(/at \[2, 2\], too large for the scale/);
    data[130] = largest;
    // Of float8 codes the largest stands for the largest value, also where the scale is rounded to bfloat16.
    const brain = new Uint16Array(3 * 64).fill(0x3f80);
    brain[130] = 0x7f7f;
    brain[131] = 0xff7f;
    for (const tensor of [f32([3, 64], data), { dtype: 'BF16', shape: [3, 64], data: brain } as const]) {
      const { report } = await quantizeModel(safetensors({ 'x.weight': tensor }), { to: 'float8e4m3fn' });
      expect(report.tensors[0]).toMatchObject({ to: 'F8_E4M3', nonFinite: 0 });
    }
  });

  it('names weights with numbers that are too large to be those of a model', async () => {
    const data = noise(64 * 128);
    const bytes = (value: number) => {
      data[130] = value;
      return safetensors({ 'a.weight': f32([64, 128]), 'x.weight': f32([64, 128], data) });
    };
    for (const to of ['int4', 'int8', 'nvfp4', 'float8e4m3fn'] as const) {
      for (const value of [3e38, -1e6]) {
        const { report } = await quantizeModel(bytes(value), { to });
        expect(report.notes).toMatchObject([{ kind: 'hugeValues', tensors: ['x.weight'] }]);
      }
      expect((await quantizeModel(bytes(60), { to })).report.notes).toEqual([]);
    }
  });

  it('refuses a result below the required SQNR, with the report, and leaves nothing behind', async () => {
    const bytes = safetensors({ 'a.weight': f32([8, 64]), 'b.weight': f32([8, 64], new Float32Array(512).fill(0.5)) });
    const { report } = await quantizeModel(bytes, { to: 'int8', ...plain });
    const db = (report.tensors[0] as TensorReport).error?.sqnrDb as number;
    const error = await leavesNothing(() =>
      quantizeModel(bytes, { to: 'int8', ...plain, output: out(), minSqnrDb: db + 0.001 }),
    );
    expect(error).toBeInstanceOf(QualityError);
    expect(error).toMatchObject({ code: 'QUALITY', tensor: 'a.weight', report });
    expect((error as QualityError).message).toBe(
      `SQNR below ${db + 0.001} dB, nothing was written: "a.weight" (${db.toFixed(2)} dB)`,
    );
    await quantizeModel(bytes, { to: 'int8', ...plain, output: out(), minSqnrDb: db });
    await rm(out());
  });

  it('refuses wrong options by name', async () => {
    const [whole, boolean] = [
      { kind: 'number', whole: true, min: 0, max: 64 },
      { kind: 'type', types: ['boolean'] },
    ];
    const targets = { kind: 'anyOf' };
    const one = [{ match: /x/, to: 'int8', keep: true }];
    const wrong: [options: object, option: string, problem: object, type: new (...args: never[]) => Error][] = [
      [{}, 'to', { expected: targets, got: undefined }, RangeError],
      [{ to: 'int9' }, 'to', { expected: targets, got: 'int9' }, RangeError],
      [{ to: 'Q4_0' }, 'to', { expected: targets, got: 'Q4_0' }, RangeError],
      [{ to: 'int8', pure: true }, 'pure', { expected: { kind: 'onlyFor', files: 'GGUF files' } }, RangeError],
      [{ to: 'int8', group: 5 }, 'group', { expected: { kind: 'knownOption' } }, TypeError],
      [{ to: 'int8', rules: 'x' }, 'rules', { expected: { types: ['array'] }, got: 'x' }, TypeError],
      [{ to: 'int8', rules: [null] }, 'rules[0]', { expected: { types: ['object'] } }, TypeError],
      [{ to: 'int8', rules: [{ match: 5, keep: true }] }, 'rules[0].match', { got: 5 }, TypeError],
      [{ to: 'int8', rules: [{ match: '(x', keep: true }] }, 'rules[0].match', { got: '(x' }, RangeError],
      [{ to: 'int8', rules: [{ match: /x/ }] }, 'rules[0].to', { expected: { kind: 'required' } }, RangeError],
      [{ to: 'int8', rules: [{ match: /x/, to: 'Q4_0' }] }, 'rules[0].to', { got: 'Q4_0' }, RangeError],
      [{ to: 'int8', rules: one }, 'rules[0].to', { expected: { other: { option: 'rules[0].keep' } } }, RangeError],
      [{ to: 'int8', output: 5 }, 'output', { expected: { kind: 'type' }, got: 5 }, TypeError],
      [{ to: 'int8', workers: 1.5 }, 'workers', { expected: whole, got: 1.5 }, RangeError],
      [{ to: 'int8', workers: '2' }, 'workers', { expected: whole, got: '2' }, TypeError],
      [{ to: 'int8', worker: {} }, 'worker', { expected: { types: ['function'] } }, TypeError],
      [{ to: 'int8', overwrite: 1 }, 'overwrite', { expected: boolean, got: 1 }, TypeError],
      [{ to: 'int8', config: [] }, 'config', {}, TypeError],
      [{ to: 'int8', minSqnrDb: '40' }, 'minSqnrDb', { expected: { kind: 'number' }, got: '40' }, TypeError],
      [{ to: 'int8', minSqnrDb: Number.NaN }, 'minSqnrDb', { got: Number.NaN }, RangeError],
      [{ to: 'int8', onProgress: 1 }, 'onProgress', {}, TypeError],
      [{ to: 'int8', signal: {} }, 'signal', {}, TypeError],
    ];
    for (const [options, option, problem, type] of wrong) {
      const error = await leavesNothing(() => quantizeModel(good, options as { to: 'int8' }));
      expect(error).toBeInstanceOf(type);
      expect(error).toMatchObject({ option, problem: { option, ...problem } });
    }
    await expect(quantizeModel(good, null as unknown as { to: 'int8' })).rejects.toMatchObject({ option: 'options' });
  });
});
