// Quantized tensors saved and loaded again.
import type { CodebookOptions, QuantizedTensor, QuantizeOptions } from 'scalepoint';
import { blockTypes, dtypes } from 'scalepoint';
import { inspectModel, loadTensors, quantizeModel, readTensor, saveTensors } from 'scalepoint/model';
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
      [{ a: new Float32Array(1) }, 'tensors.a'],
      [{ a: undefined }, 'tensors.a'],
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
