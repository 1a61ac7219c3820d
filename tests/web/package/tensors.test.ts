// Quantized tensors saved and loaded again.
import type { CodebookOptions, QuantizedTensor, QuantizeOptions, StoredFloats } from 'scalepoint';
import { blockTypes, dtypes } from 'scalepoint';
import { inspectModel, loadTensors, quantizeModel, readTensor, type SavedTensor, saveTensors } from 'scalepoint/model';
import { describe, expect, it } from 'vitest';
import { describeLarge, largeCores, Random } from '../support/support.js';

const x = new Random(11).bell(6 * 256);
const shape = [6, 256];

describeLarge('saveTensors', (sp) => {
  const granularities: QuantizeOptions['granularity'][] = [
    { kind: 'per-tensor' },
    { kind: 'per-channel', axis: 0 },
    { kind: 'per-channel', axis: -1 },
    { kind: 'per-group', groupSize: 96 },
    { kind: 'per-group', groupSize: 4, axis: 0 },
  ];

  it('keeps linear tensors of every type and granularity', async () => {
    const tensors: Record<string, QuantizedTensor> = {};
    for (const dtype of dtypes) {
      for (const scheme of ['symmetric', 'asymmetric'] as const) {
        for (const granularity of granularities as NonNullable<QuantizeOptions['granularity']>[]) {
          const name = `${dtype} ${scheme} ${JSON.stringify(granularity)}`;
          tensors[name] = sp.quantize(x, { dtype, scheme, granularity, shape });
        }
      }
    }
    expect(await loadTensors(await saveTensors(tensors))).toEqual(tensors);
  });

  it('keeps packed codes packed, and takes them from wasm memory', async () => {
    const tensors: Record<string, QuantizedTensor> = {};
    for (const dtype of dtypes) tensors[dtype] = sp.quantize(x, { dtype, shape, packed: true });
    const loaded = await loadTensors(await saveTensors(tensors));
    expect(loaded).toEqual(tensors);
    const plain = sp.quantize(x, { dtype: 'int4', shape });
    const packed = sp.quantize(x, { dtype: 'int4', shape, packed: true });
    const sizes = await Promise.all([plain, packed].map(async (q) => (await saveTensors({ q })).length));
    // The entry of the metadata says that the codes are packed.
    expect((sizes[1] as number) - (sizes[0] as number)).toBeLessThan(40);
    const out = sp.allocate('uint8', packed.data.length);
    const inWasm = sp.quantize(x, { dtype: 'int4', shape, packed: true, out });
    expect(await loadTensors(await saveTensors({ inWasm }))).toEqual({ inWasm: packed });
    out.dispose();
  });

  it('refuses packed codes whose entry is damaged', async () => {
    const file = await saveTensors({ a: sp.quantize(x, { dtype: 'int4', shape, packed: true }) });
    const text = new TextDecoder('latin1').decode(file);
    const at = text.indexOf('packed');
    expect(at).toBeGreaterThan(0);
    for (const value of ['"no"', '1234', 'null']) {
      const bad = file.slice();
      const [from, to] = [text.indexOf('true', at), value.padEnd(4, ' ')];
      for (let i = 0; i < 4; i++) bad[from + i] = to.charCodeAt(i);
      await expect(loadTensors(bad)).rejects.toMatchObject({ code: 'BAD_FILE' });
    }
  });

  it('keeps codebooks and blocks', async () => {
    const codebooks: CodebookOptions[] = [
      { codebook: 'nf4', blockSize: 64 },
      { codebook: 'fp4', blockSize: 100 },
      { codebook: { learn: 3 }, blockSize: 7, range: 'mse' },
      { codebook: { learn: 200 }, blockSize: 64 },
      { codebook: { learn: 16 }, blockSize: 16, absmaxType: 'int8' },
    ];
    const tensors: Record<string, QuantizedTensor> = {};
    for (const options of codebooks) tensors[JSON.stringify(options)] = sp.quantizeCodebook(x, { ...options, shape });
    const weights = new Float32Array(shape.at(-1) ?? 0).fill(1);
    for (const type of blockTypes) tensors[type] = sp.quantizeBlocks(x, type, { shape, weights });
    expect(await loadTensors(await saveTensors(tensors))).toEqual(tensors);
  });

  it('keeps the empty, names of all kinds, and views of wasm memory', async () => {
    const codes = sp.allocate('int8', x.length);
    const inWasm = sp.quantize(x, { out: codes });
    const tensors = {
      empty: sp.quantize(new Float32Array(0)),
      'a.weight': sp.quantize([1, 2, 3]),
      __proto__0: sp.quantize([1]),
      'with "quotes" and ü': sp.quantize([4]),
    };
    const loaded = await loadTensors(await saveTensors({ ...tensors, inWasm }));
    expect(loaded).toEqual({ ...tensors, inWasm: { ...inWasm, data: (codes.view as Int8Array).slice() } });
    codes.dispose();
  });

  it('keeps floats beside them, bit for bit', async () => {
    const bits = sp.castFloat(x, 'bfloat16');
    const inWasm = sp.allocate('float32', 3);
    inWasm.view.set([1, 2, 3]);
    const tensors = {
      weight: sp.quantize(x, { shape }),
      bias: Float32Array.of(1, -0, NaN, Infinity, 1e-45, 0.1),
      doubles: Float64Array.of(Math.PI),
      part: new Float32Array(12).fill(3).subarray(2, 5),
      empty: new Float32Array(0),
      norm: { dtype: 'F32', shape: [2, 3], data: Float32Array.of(1, 2, 3, 4, 5, 6) },
      half: { dtype: 'F16', shape: [1, 6, 256], data: sp.castFloat(x, 'float16') },
      brain: { dtype: 'BF16', shape, data: bits },
      exact: { dtype: 'F64', shape: [], data: Float64Array.of(Math.E) },
    } as const;
    const file = await saveTensors({ ...tensors, inWasm });
    const loaded = await loadTensors<Record<keyof typeof tensors | 'inWasm', SavedTensor>>(file);
    expect(loaded).toEqual({ ...tensors, inWasm: Float32Array.of(1, 2, 3) });
    expect(Object.keys(loaded)).toEqual([...Object.keys(tensors), 'inWasm']);
    // Array calls take them as they are, and other programs read them.
    const { bias, half } = await loadTensors<{ bias: Float32Array; half: StoredFloats }>(file);
    expect(Object.is(bias[1], -0)).toBe(true);
    const layer = sp.matmulFloat({ ...half, shape }, { bias });
    expect([layer.outputs, layer.inputs]).toEqual(shape);
    expect(await readTensor(file, 'half')).toEqual({ name: 'half', ...tensors.half });
    inWasm.dispose();
    layer.dispose();
  });

  it('keeps tensors of other libraries, in row-major order', async () => {
    const columns = Float32Array.of(1, 4, 2, 5, 3, 6);
    const rows = Float32Array.of(1, 2, 3, 4, 5, 6);
    const given = {
      ort: { data: rows, dims: [2, 3], type: 'float32' },
      half: { data: sp.castFloat(rows, 'float16'), dims: [2, 3], type: 'float16' },
      strided: { data: columns, shape: [2, 3], stride: [1, 2], offset: 0 },
      tf: { shape: [2, 3], dataSync: () => rows },
    };
    const stored = { dtype: 'F32', shape: [2, 3], data: rows };
    expect(await loadTensors(await saveTensors(given))).toEqual({
      ort: stored,
      half: { dtype: 'F16', shape: [2, 3], data: given.half.data },
      strided: stored,
      tf: stored,
    });
  });

  it('takes few bytes', async () => {
    const size = async (q: QuantizedTensor) => {
      const { tensors } = await inspectModel(await saveTensors({ q }));
      return Object.fromEntries(tensors.map(({ name, dtype, bytes }) => [name, `${dtype} ${bytes}`]));
    };
    expect(
      await size(sp.quantize(x, { dtype: 'uint3', scheme: 'asymmetric', range: { scale: 0.5, zeroPoint: 4 } })),
    ).toEqual({
      q: `U8 ${(x.length * 3) / 8}`,
      'q.scale': 'BF16 2',
      'q.zero_point': 'I8 1',
    });
    expect(await size(sp.quantizeCodebook(x, { codebook: { learn: 16 }, blockSize: 16, absmaxType: 'int8' }))).toEqual({
      q: `U8 ${x.length / 2}`,
      'q.codebook': 'F32 64',
      'q.absmax': `I8 ${x.length / 16}`,
      'q.absmax_scale': 'BF16 2',
    });
  });

  it('keeps an index', async () => {
    const index = sp.index(x, { shape, metric: 'cosine' });
    index.add(x.subarray(256, 512));
    const { saved } = await loadTensors(await saveTensors({ saved: index.tensor() }));
    const again = sp.index(saved as QuantizedTensor, { metric: 'cosine' });
    const query = x.subarray(512, 768);
    expect(again.search(query)).toEqual(index.search(query));
    index.dispose();
    again.dispose();
  });
});

describe('a file of saveTensors', () => {
  const { sp } = largeCores[0]!;
  const q = sp.quantize(x, { shape, granularity: { kind: 'per-channel', axis: 0 } });

  it('is a safetensors file, whose int8 codes others read', async () => {
    const file = await saveTensors({ q });
    expect(await readTensor(file, 'q')).toEqual({ name: 'q', dtype: 'I8', shape, data: q.data });
  });

  it('is refused at any other length, and with any wrong part', async () => {
    const codebook = sp.quantizeCodebook(x.subarray(0, 64), { codebook: 'nf4', blockSize: 64 });
    const file = await saveTensors({ q: sp.quantize([1, 2, 3], { dtype: 'int4', scheme: 'asymmetric' }), codebook });
    for (let length = 0; length < file.length; length++) {
      const error = await loadTensors(file.subarray(0, length)).catch((reason: unknown) => reason);
      expect(['BAD_FILE', 'UNKNOWN_FORMAT']).toContain((error as { code: string }).code);
    }
    const text = new TextDecoder('latin1').decode(file);
    const changed = (from: string, to: string) => {
      expect(text).toContain(from);
      expect(to).toHaveLength(from.length);
      return loadTensors(Uint8Array.from(text.replace(from, to), (c) => c.charCodeAt(0)));
    };
    for (const [from, to] of [
      ['\\"int4\\"', '\\"int6\\"'],
      ['\\"int4\\"', '\\"intx\\"'],
      ['\\"linear\\"', '\\"lineal\\"'],
      ['\\"version\\":1', '\\"version\\":2'],
      ['\\"shape\\":[3]', '\\"shape\\":[9]'],
      ['\\"shape\\":[64]', '\\"shape\\":[66]'],
      ['\\"blockSize\\":64', '\\"blockSize\\":32'],
      ['\\"blockSize\\":64', '\\"blockSize\\":-4'],
      ['per-tensor', 'per-sensor'],
      ['"q.scale"', '"q.scald"'],
      ['"codebook.absmax"', '"codebook.absmin"'],
      ['\\"tensors\\":{', '\\"tensors\\":['],
    ] as const) {
      await expect(changed(from, to), `${from} to ${to}`).rejects.toMatchObject({ code: 'BAD_FILE' });
    }
  });

  it('is refused if the type of floats was changed', async () => {
    const text = new TextDecoder('latin1').decode(
      await saveTensors({ a: Float32Array.of(1), b: { data: Float32Array.of(1), shape: [1] } }),
    );
    for (const [from, to] of [
      ['"dtype":"F32"', '"dtype":"I32"'],
      ['\\"kind\\":\\"array\\"', '\\"kind\\":\\"arrax\\"'],
      ['\\"kind\\":\\"floats\\"', '\\"kind\\":\\"linear\\"'],
    ] as const) {
      expect(text).toContain(from);
      const changed = Uint8Array.from(text.replace(from, to), (c) => c.charCodeAt(0));
      await expect(loadTensors(changed), to).rejects.toMatchObject({ code: 'BAD_FILE' });
    }
  });

  it('is told from other files', async () => {
    await expect(loadTensors(new Uint8Array(40))).rejects.toMatchObject({ code: 'UNKNOWN_FORMAT' });
    const bare = new TextEncoder().encode('........{}');
    bare.set([2, 0, 0, 0, 0, 0, 0, 0]);
    await expect(loadTensors(bare)).rejects.toMatchObject({ code: 'BAD_FILE' });
  });

  it('is loaded from several files as well, and from a list with other files of the folder', async () => {
    const saved = { q, other: sp.quantize(x, { dtype: 'int16' }) };
    const whole = await saveTensors(saved);
    const { files, bytes } = await quantizeModel(whole, { to: 'copy', shardSize: q.data.length, workers: 0 });
    expect(files.length).toBeGreaterThan(2);
    const parts = await Promise.all(files.map(async ({ name }) => new File([await bytes(name)], name)));
    expect(await loadTensors(parts)).toEqual(saved);
    expect(await loadTensors([new File(['{}'], 'config.json'), new File([whole], 'q.safetensors')])).toEqual(saved);
  });

  it('is told from models of other formats by their first bytes', async () => {
    const gguf = new Uint8Array(40);
    gguf.set(new TextEncoder().encode('GGUF'));
    await expect(loadTensors(gguf)).rejects.toMatchObject({ code: 'BAD_FILE' });
    await expect(loadTensors(gguf)).rejects.toThrow('not made by saveTensors: readTensor and readQuantized');
  });

  it('is not made of anything else', async () => {
    for (const [tensors, option] of [
      [q, 'tensors'],
      [null, 'tensors'],
      [new Float32Array(1), 'tensors'],
      [{ a: undefined }, 'tensors.a'],
      [{ a: null }, 'tensors.a'],
      [{ a: 1 }, 'tensors.a'],
      [{ a: [1, 2] }, 'tensors.a'],
      [{ a: {} }, 'tensors.a'],
      [{ a: Int32Array.of(1) }, 'tensors.a'],
      [{ a: Uint16Array.of(1) }, 'tensors.a'],
      [{ a: sp.allocate('uint16', 1) }, 'tensors.a'],
      [{ a: { data: Int32Array.of(1), shape: [1] } }, 'tensors.a.data'],
      [{ a: { data: Uint16Array.of(1), shape: [1] } }, 'tensors.a.data'],
      [{ a: { data: [1], shape: [1] } }, 'tensors.a.data'],
      [{ a: { data: Float32Array.of(1), shape: [2] } }, 'tensors.a.shape'],
      [{ a: { dtype: 'I64', shape: [1], data: BigInt64Array.of(1n) } }, 'tensors.a.data'],
      [{ a: { ...q, scale: new Float32Array(1) } }, 'tensors.a.scale'],
    ] as const) {
      await expect(saveTensors(tensors as never)).rejects.toMatchObject({ option });
    }
    await expect(saveTensors({ a: q, 'a.scale': q })).rejects.toThrow('"a.scale": the name is taken');
    await expect(saveTensors({ q }, { workers: 1 } as never)).rejects.toBeInstanceOf(TypeError);
  });
});

describe('JSON.stringify', () => {
  it('says what to use, and nothing else sees it', () => {
    const { sp } = largeCores[0]!;
    const made = [
      sp.quantize([1]),
      sp.quantizeCodebook([1], { codebook: 'nf4' }),
      sp.quantizeBlocks(new Float32Array(32), 'Q8_0'),
    ];
    for (const q of made) {
      expect(() => JSON.stringify(q)).toThrow('saveTensors');
      expect(Object.keys(q)).not.toContain('toJSON');
      expect(structuredClone(q)).toEqual(q);
    }
  });
});
