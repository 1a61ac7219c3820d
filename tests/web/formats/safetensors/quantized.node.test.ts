// Inputs that are quantized already: recognized, refused, or read as the floats that their codes stand for. And reading single tensors back.
import { load } from 'scalepoint';
import { describe, expect, it } from 'vitest';
import {
  compareModels,
  planModel,
  type QuantizeModelOptions,
  quantizeModel,
  readFloats,
  readQuantized,
} from '../../../../web/src/model.js';
import { type CompressedWeight, numbersOf, parseSafetensors, readCompressed } from '../../support/compressed.js';
import { bytesOf, plain, safetensors, type TestTensor, weights } from '../../support/models.js';
import { tinyLlama } from '../../support/tiny-llama.js';

const raw = (dtype: string, shape: readonly number[], bytes: number): TestTensor => ({
  dtype,
  shape,
  data: Uint8Array.from({ length: bytes }, (_, i) => (i * 37) & 63),
});

const scale = (...shape: number[]): TestTensor => weights('F32', shape, 9);

/** Contents of quantized models, by the tool that made them. */
const strangers: Record<string, { tensors: Record<string, TestTensor>; by: string }> = {
  'GPTQ of 5 bits': {
    tensors: {
      'a.qweight': raw('I32', [5, 32], 640),
      'a.qzeros': raw('I32', [1, 5], 20),
      'a.scales': weights('F16', [1, 32]),
      'a.g_idx': raw('I32', [32], 128),
    },
    by: 'GPTQ',
  },
  'AWQ by rows': {
    tensors: {
      'a.qweight': raw('I32', [16, 8], 512),
      'a.qzeros': raw('I32', [1, 4], 16),
      'a.scales': weights('F16', [1, 32]),
    },
    by: 'AWQ or GPTQ',
  },
  'bitsandbytes, 4 bits': {
    tensors: {
      'a.weight': raw('U8', [512, 1], 512),
      'a.weight.absmax': scale(16),
      'a.weight.quant_map': scale(16),
      'a.weight.quant_state.bitsandbytes__nf4': raw('U8', [70], 70),
    },
    by: 'bitsandbytes',
  },
  'bitsandbytes, 8 bits': {
    tensors: {
      'a.weight': raw('I8', [16, 32], 512),
      'a.SCB': scale(16),
      'a.weight_format': { dtype: 'U8', shape: [1], data: Uint8Array.of(1) },
    },
    by: 'bitsandbytes',
  },
  'float8 of diffusion models': {
    tensors: {
      'a.weight': raw('F8_E5M2', [32, 32], 1024),
      'a.scale_weight': scale(),
      scaled_fp8: raw('F8_E5M2', [2], 2),
    },
    by: 'float8 with scales',
  },
  'compressed-tensors in another order': {
    tensors: {
      'a.weight_packed': raw('I32', [16, 4], 256),
      'a.weight_scale': scale(16, 1),
      'a.weight_shape': { dtype: 'I64', shape: [2], data: new Uint8Array(BigInt64Array.of(16n, 32n).buffer) },
      'a.weight_g_idx': raw('I32', [32], 128),
    },
    by: 'compressed-tensors',
  },
};

/** Methods that are not known by their names: a weight of integers is codes all the same. */
const unknownMethod = 'by a method that is not known here';
Object.assign(strangers, {
  HQQ: {
    tensors: { 'a.W_q': raw('U8', [16, 32], 512), 'a.scale': scale(32, 1), 'a.zero': scale(32, 1) },
    by: 'HQQ',
  },
  AQLM: {
    tensors: { 'a.codes': raw('I16', [16, 4, 1], 128), 'a.codebooks': scale(1, 256, 1, 8), 'a.scales': scale(16, 1) },
    by: 'AQLM',
  },
  VPTQ: {
    tensors: {
      'a.indices': raw('I32', [1, 4, 16], 256),
      'a.centroids.weight': scale(1, 4096),
      'a.weight_scale': weights('F16', [32]),
    },
    by: 'VPTQ',
  },
  SpQR: {
    tensors: {
      'a.dense_weights': raw('I64', [4, 16], 512),
      'a.row_offsets': raw('I32', [33], 132),
      'a.col_vals': raw('I32', [5], 20),
      'a.in_perm': raw('U16', [32], 64),
    },
    by: 'SpQR',
  },
  EXL2: {
    tensors: {
      'a.q_weight': raw('I32', [4, 16], 256),
      'a.q_scale': raw('I32', [1, 2], 8),
      'a.q_scale_max': weights('F16', [1]),
      'a.q_groups': raw('I16', [2], 4),
    },
    by: 'EXL2',
  },
  EXL3: {
    tensors: { 'a.trellis': raw('I16', [2, 2, 64], 512), 'a.suh': weights('F16', [32]), 'a.svh': weights('F16', [32]) },
    by: 'EXL3',
  },
  Marlin: { tensors: { 'a.B': raw('I32', [2, 64], 512), 'a.s': weights('F16', [1, 32]) }, by: 'Marlin' },
  'compressed-tensors with half of the weights': {
    tensors: {
      'a.weight_packed': raw('I32', [2, 32], 256),
      'a.scale_packed': weights('F16', [1, 32]),
      'a.meta': raw('I16', [4, 8], 64),
    },
    by: 'compressed-tensors, Marlin',
  },
  'compressed-tensors without the zeros': {
    tensors: {
      'a.compressed': weights('F16', [100]),
      'a.bitmask': raw('U8', [16, 4], 64),
      'a.shape': raw('I64', [2], 16),
      'a.row_offsets': raw('I64', [16], 128),
    },
    by: 'compressed-tensors, sparse',
  },
  EETQ: {
    tensors: { 'a.weight': raw('I8', [32, 16], 512), 'a.weight_scales': weights('F16', [16]) },
    by: unknownMethod,
  },
  SVDQuant: { tensors: { 'a.qweight': raw('I8', [16, 16], 256), 'a.wscales': scale(2, 16) }, by: unknownMethod },
  'codes alone': { tensors: { 'a.weight': raw('U8', [16, 16], 256) }, by: unknownMethod },
});

describe('a model that is quantized already', () => {
  it.each(Object.entries(strangers))('is recognized: %s', async (_name, { tensors, by }) => {
    const file = safetensors({ ...tensors, 'b.weight': weights('F32', [64, 128]) });
    for (const to of ['int8', 'int4', 'float8e4m3fn', 'float16'] as const) {
      for (const requantize of [false, true]) {
        const refused = {
          code: 'UNSUPPORTED_DTYPE',
          message: expect.stringContaining(`it is quantized already (${by})`),
        };
        await expect(planModel(file, { to, requantize })).rejects.toMatchObject(refused);
        await expect(quantizeModel(file, { to, requantize })).rejects.toMatchObject(refused);
      }
    }
  });

  it('is copied with the configuration that its codes need', async () => {
    const { tensors } = strangers['GPTQ of 5 bits'] as { tensors: Record<string, TestTensor> };
    const gptq = { model_type: 'llama', quantization_config: { quant_method: 'gptq', bits: 4 } };
    const floats = safetensors({ 'a.weight': weights('F32', [16, 128]) });
    const { bytes, config } = await quantizeModel(floats, { to: 'int8', config: { model_type: 'llama' }, workers: 0 });
    for (const [file, own] of [
      [safetensors(tensors), gptq],
      [await bytes(), { ...config }],
    ] as const) {
      expect((await quantizeModel(file, { to: 'copy', config: own, workers: 0 })).config).toEqual(own);
    }
    // Beside floats, an entry is about another model.
    expect((await quantizeModel(floats, { to: 'copy', config: { ...config }, workers: 0 })).config).toEqual({
      model_type: 'llama',
    });
    for (const to of ['copy', 'float16', 'int8'] as const) {
      const error = await quantizeModel(floats, { to, config: gptq, workers: 0 }).catch((reason) => reason);
      expect(error).toMatchObject({ code: 'BAD_FILE', message: expect.stringContaining('by "gptq"') });
    }
  });

  it('differs from one with tensors of the same types that are not codes', async () => {
    const file = safetensors({
      ids: raw('I32', [64], 256),
      'table.weight': raw('I64', [4, 4], 128),
      'counts.weight': raw('I32', [4], 16),
      bytes: raw('U8', [7, 2], 14),
      'small.weight': raw('F8_E4M3', [32, 32], 1024),
      'gain.weight': weights('F32', [64, 128]),
      'gain.weight_scale_factor': scale(4),
      'b.scales': scale(4),
    });
    const { tensors } = await planModel(file, { to: 'int8' });
    expect(Object.fromEntries(tensors.map(({ name, kept }) => [name, kept]))).toMatchObject({
      ids: { kind: 'nonFloat', dtype: 'I32', text: 'not a float' },
      'small.weight': { kind: 'smallFloat', bits: 8, text: 'float8 already' },
      'gain.weight': undefined,
    });
  });

  it('is refused by its configuration', async () => {
    const config = { quantization_config: { quant_method: 'bitsandbytes' } };
    const file = safetensors({ 'a.weight': weights('F32', [64, 128]) });
    await expect(quantizeModel(file, { to: 'int8', config })).rejects.toMatchObject({ code: 'BAD_FILE' });
  });

  const shape = [24, 384];
  const original = safetensors({
    'a.weight': weights('F32', shape, 1),
    'b.weight': weights('BF16', [9, 256], 2),
    'embed_tokens.weight': weights('F32', [16, 256], 3),
    'norm.weight': weights('F32', [64], 4),
  });
  const embedded = [{ match: /embed/, to: 'int8' }];
  const forms: QuantizeModelOptions[] = [
    { to: 'int8' },
    { to: 'int8', packed: false, scheme: 'asymmetric' },
    { to: 'int8', scheme: 'asymmetric', rules: embedded },
    { to: 'int4', scheme: 'asymmetric', granularity: { kind: 'per-group', groupSize: 32 } },
    { to: 'int4', granularity: { kind: 'per-channel' } },
    { to: 'float8e4m3fn' },
  ];

  it.each(forms)('is quantized again from what its codes stand for: %j', async (form) => {
    const made = await (await quantizeModel(original, { ...form, workers: 0 })).bytes();
    await expect(planModel(made, { to: 'int8' })).rejects.toMatchObject({
      code: 'UNSUPPORTED_DTYPE',
      tensor: expect.any(String),
    });
    // The floats that the codes stand for, as a model.
    const floats: Record<string, TestTensor> = {};
    for (const name of ['a.weight', 'b.weight', 'embed_tokens.weight', 'norm.weight']) {
      const { shape: read, data } = await readFloats(made, name, { workers: 0 });
      floats[name] = { dtype: 'F32', shape: [...read], data };
    }
    const restored = safetensors(floats);
    expect((await compareModels(restored, made, { workers: 0 })).total.maxAbsoluteError).toBe(0);
    for (const again of [{ to: 'int4' }, { to: 'int8', scheme: 'asymmetric' }, { to: 'bfloat16' }] as const) {
      const { report, config, bytes } = await quantizeModel(made, { ...again, requantize: true, workers: 0 });
      expect(report.tensors.map(({ name }) => name).sort()).toEqual(Object.keys(floats).sort());
      // The report says what was lost before.
      const coded =
        form.rules === undefined ? ['a.weight', 'b.weight'] : ['a.weight', 'b.weight', 'embed_tokens.weight'];
      const lost = report.notes.filter(({ kind }) => kind === 'sourceQuantized');
      expect(lost.map(({ tensors = [] }) => [...tensors].sort())).toEqual([coded]);
      expect(lost[0]?.text).toMatch(/compressed-tensors, (I8|I4|F8_E4M3)/);
      const direct = await quantizeModel(restored, { ...again, workers: 0 });
      const read = (file: Uint8Array, from: typeof config) =>
        from === undefined
          ? { weights: new Map<string, CompressedWeight>(), others: parseSafetensors(file).tensors }
          : readCompressed(file, from.quantization_config, Object.keys(floats));
      const [got, want] = [read(await bytes(), config), read(await direct.bytes(), direct.config)];
      expect([...got.weights.keys()].sort()).toEqual([...want.weights.keys()].sort());
      for (const [name, weight] of got.weights) {
        // Scales keep the type of those that they come from.
        if (name === 'a.weight') expect(weight).toEqual(want.weights.get(name));
        else expect(weight.shape).toEqual(want.weights.get(name)?.shape);
      }
      // Nothing is left of the codes that it was made from.
      const stored = [...parseSafetensors(await bytes()).tensors];
      const leftovers = stored.filter(
        ([name, { dtype }]) =>
          /^(I|U|F8)/.test(dtype) && !got.weights.has(name.replace(/_(packed|shape|zero_point)$/, '')),
      );
      expect(leftovers).toEqual([]);
    }
  });

  it('is restored to floats, bit by bit what its codes stand for, without the entry of its configuration', async () => {
    const first = await quantizeModel(original, { to: 'int8', config: { hidden_size: 4 }, workers: 0 });
    const options = {
      to: 'float16',
      requantize: true,
      config: first.config as Record<string, unknown>,
      workers: 0,
    } as const;
    const { bytes, config } = await quantizeModel(await first.bytes(), options);
    expect(config).toEqual({ hidden_size: 4 });
    const { tensors } = parseSafetensors(await bytes());
    expect([...tensors.keys()].sort()).toEqual(['a.weight', 'b.weight', 'embed_tokens.weight', 'norm.weight']);
    expect([...tensors.values()].map(({ dtype }) => dtype)).toEqual(['F16', 'F16', 'F16', 'F16']);
    // A model without one needs none taken out.
    expect(
      (await quantizeModel(original, { to: 'float16', config: { hidden_size: 4 }, workers: 0 })).config,
    ).toBeUndefined();
  });

  it('is never configured as ignored, whatever a rule keeps', async () => {
    const made = await (await quantizeModel(original, { to: 'int8', workers: 0 })).bytes();
    const rules = [{ match: /^a/, keep: true }] as const;
    const { bytes } = await quantizeModel(made, { to: 'int4', requantize: true, rules, workers: 0 });
    const { tensors } = parseSafetensors(await bytes());
    expect(tensors.get('a.weight')).toMatchObject({ dtype: 'F32', shape });
    expect(tensors.has('a.weight_packed')).toBe(false);
  });

  it('may have scales that are not numbers, which is an error with a name', async () => {
    const file = safetensors({
      'a.weight': raw('I8', [2, 8], 16),
      'a.weight_scale': { dtype: 'F32', shape: [2, 1], data: Float32Array.of(1, 0) },
    });
    const again = quantizeModel(file, { to: 'float16', requantize: true, workers: 0 });
    await expect(again).rejects.toMatchObject({ code: 'BAD_FILE', tensor: 'a.weight' });
  });
});

describe('reading a tensor of a result', () => {
  const model = safetensors({
    'fc.weight': weights('F32', [9, 96], 1),
    'conv.weight': weights('F16', [6, 5, 3, 3], 2),
    'lstm.weight_ih_l0': weights('BF16', [32, 64], 3),
    'norm.weight': weights('F32', [7], 4),
    ids: raw('I32', [4], 16),
  });
  const forms: QuantizeModelOptions[] = [
    { to: 'int8', include: 'all' },
    { to: 'int8', include: 'all', scheme: 'asymmetric' },
    { to: 'int8', ...plain },
    { to: 'int8', ...plain, scheme: 'asymmetric' },
    { to: 'int4', include: 'all', scheme: 'asymmetric', granularity: { kind: 'per-channel' } },
    {
      to: 'int4',
      include: 'all',
      granularity: { kind: 'per-group', groupSize: 32 },
    },
  ];

  it.each(forms)('gives it back by its name, as floats and as codes: %j', async (form) => {
    const sp = await load();
    const { bytes, config } = await quantizeModel(model, { ...form, workers: 0 });
    const file = await bytes();
    const names = ['fc.weight', 'conv.weight', 'lstm.weight_ih_l0'];
    const read = readCompressed(file, everything(config), names);
    expect([...read.weights.keys()].sort()).toEqual([...names].sort());
    for (const [name, weight] of read.weights) {
      const floats = await readFloats(file, name, { workers: 0 });
      expect(floats).toMatchObject({ name, shape: weight.shape });
      // One float32 product each.
      expect(floats.data).toEqual(Float32Array.from(weight.weights));
      const q = await readQuantized(file, name);
      expect(q).toMatchObject({ kind: 'linear', dtype: weight.bits === 4 ? 'int4' : 'int8', shape: weight.shape });
      if (q.kind !== 'linear') continue;
      expect(q.data).toEqual(weight.codes);
      expect(q.scale).toEqual(Float32Array.from(weight.scale));
      expect(q.zeroPoint).toEqual(weight.zeroPoint);
      expect(sp.dequantize(q)).toEqual(floats.data);
    }
    expect((await readFloats(file, 'norm.weight', { workers: 0 })).data).toEqual(weights('F32', [7], 4).data);
    sp.dispose();
  });

  it('reads floats of every type, and blocks', async () => {
    const types = {
      a: weights('F16', [3, 5], 1),
      b: weights('BF16', [15], 2),
      c: weights('F64', [], 3),
      d: weights('F32', [0, 4]),
    };
    const file = safetensors(types);
    for (const [name, { shape }] of Object.entries(types)) {
      const { shape: read, data } = await readFloats(file, name, { workers: 0 });
      expect(read).toEqual(shape);
      const stored = { dtype: types[name as 'a'].dtype, shape: [...shape], bytes: bytesOf(types[name as 'a'].data) };
      expect(data).toEqual(Float32Array.from(numbersOf(stored)));
    }
    const sp = await load();
    const gguf = await (await quantizeModel(tinyLlama(), { to: 'Q4_0', workers: 0 })).bytes();
    const name = 'blk.0.ffn_up.weight';
    const blocks = await readQuantized(gguf, name);
    expect(blocks).toMatchObject({ kind: 'blocks', type: 'Q4_0' });
    expect(sp.dequantize(blocks)).toEqual((await readFloats(gguf, name, { workers: 0 })).data);
    sp.dispose();
  });

  it('names what it cannot give', async () => {
    const float8 = await (await quantizeModel(model, { to: 'float8e4m3fn', workers: 0 })).bytes();
    await expect(readQuantized(float8, 'fc.weight')).rejects.toMatchObject({
      code: 'UNSUPPORTED_DTYPE',
      tensor: 'fc.weight',
    });
    await expect(readQuantized(model, 'fc.weight')).rejects.toMatchObject({ code: 'UNSUPPORTED_DTYPE' });
    await expect(readFloats(model, 'ids')).rejects.toMatchObject({ code: 'UNSUPPORTED_DTYPE', tensor: 'ids' });
    await expect(readFloats(model, 'fc')).rejects.toMatchObject({ code: 'NOT_FOUND', tensor: 'fc' });
    await expect(readQuantized(model, 'fc')).rejects.toMatchObject({ code: 'NOT_FOUND' });
    await expect(readFloats(model, 'ids', { workers: -1 })).rejects.toMatchObject({ option: 'workers' });
  });
});

/** The test's reader looks codes up by their modules. Those of an LSTM have none here, and are in the group of `fc`. */
function everything(config: unknown): object {
  const { quantization_config: quantization } = config as { quantization_config: { config_groups: object } };
  const groups = Object.entries<{ targets: string[] }>(
    quantization.config_groups as Record<string, { targets: string[] }>,
  );
  const named = groups.map(([name, group]) => {
    const targets = group.targets.includes('fc') ? [...group.targets, 'lstm.weight_ih_l0'] : group.targets;
    return [name, { ...group, targets }];
  });
  return { ...quantization, config_groups: Object.fromEntries(named) };
}
