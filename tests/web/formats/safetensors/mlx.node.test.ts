// Folders for mlx-lm: the modules and names of mlx-lm, its config.json, and searches. MLX itself is not run. tests/cpp/codecs_mlx_test.cpp and
// codecs_microscales_test.cpp hold codes to MLX's rules.
import { mkdir, mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import {
  type FileInput,
  type ModelTarget,
  planModel,
  type QuantizeModelOptions,
  quantizeModel,
  readFloats,
  verifyModel,
} from '../../../../web/src/model.js';
import { run } from '../../cli/support.js';
import { numbersOf, parseSafetensors } from '../../support/compressed.js';
import { named, nearest } from '../../support/floats.js';
import { folder as folderOf, type Json, made } from '../../support/folders.js';
import { gptqWeight, tensorsOf } from '../../support/foreign-layouts.js';
import { matrixFile } from '../../support/importance.js';
import { chosen, rejectionOf, safetensors, storedOf, type TestTensor, weights } from '../../support/models.js';
import { npy } from '../../support/npz.js';
import { expectSame, Random } from '../../support/support.js';
import { decoderConfig, decoderWeights } from '../../support/tiny-huggingface.js';

/** A folder with a model. Undefined without a configuration. */
const folder = (tensors: Readonly<Record<string, TestTensor>>, config?: Json) =>
  folderOf(tensors, config === undefined ? {} : { 'config.json': config });

const bits16 = new DataView(new ArrayBuffer(4));

/** Values as the tensor of a type. */
function tensorOf(dtype: 'F32' | 'BF16', shape: readonly number[], values: Float32Array): TestTensor {
  if (dtype === 'F32') return { dtype, shape, data: Float32Array.from(values) };
  const data = new Uint16Array(values.length);
  for (const [i, value] of values.entries()) {
    bits16.setFloat32(0, nearest(value, named.BF16!));
    data[i] = bits16.getUint16(0);
  }
  return { dtype, shape, data };
}

/** Fails unless a module holds these values in groups of this width and size: within two steps of each, as scales and biases are rounded. */
async function expectModule(
  { tensors, ...result }: Pick<Awaited<ReturnType<typeof made>>, 'tensors' | 'bytes' | 'config'>,
  module: string,
  values: Float32Array,
  bits: number,
  group: number,
  dtype: string,
) {
  const { dtype: words, shape } = tensors.get(`${module}.weight`)!;
  expect([words, shape.at(-1)], module).toEqual([
    'U32',
    (tensors.get(`${module}.scales`)!.shape.at(-1)! * group * bits) / 32,
  ]);
  for (const part of ['scales', 'biases']) expect(tensors.get(`${module}.${part}`)?.dtype, module).toBe(dtype);
  const restored = await restoredOf(result, `${module}.weight`);
  expect(restored.length, module).toBe(values.length);
  for (let start = 0; start < values.length; start += group) {
    const own = values.subarray(start, start + group);
    const step = (Math.max(...own) - Math.min(...own)) / (2 ** bits - 1);
    const largest = own.reduce((most, value, i) => Math.max(most, Math.abs(value - restored[start + i]!)), 0);
    if (!(largest <= 2 * step)) expect.fail(`${module}, from ${start}: ${largest} beside steps of ${step}`);
  }
}

/** The tensors of a tiny decoder. */
function decoder(options: Parameters<typeof decoderWeights>[0], dtype: 'F32' | 'BF16'): Record<string, TestTensor> {
  const all = [...decoderWeights(options)].map(([name, { shape, values }]) => [name, tensorOf(dtype, shape, values)]);
  return Object.fromEntries(all) as Record<string, TestTensor>;
}

/** The values of a tensor in the type of a model. */
const valuesIn = (tensor: TestTensor, dtype: string) =>
  Float32Array.from(numbersOf(storedOf(tensor)), (value) => nearest(value, named[dtype]!));

/** The floats of a result. */
async function restoredOf({ bytes, config }: Pick<Awaited<ReturnType<typeof made>>, 'bytes' | 'config'>, name: string) {
  return (await readFloats([chosen('model.safetensors', bytes), chosen('config.json', config)], name)).data;
}

const llama = (more: Json = {}) =>
  decoderConfig('LlamaForCausalLM', {
    model_type: 'llama',
    torch_dtype: 'bfloat16',
    tie_word_embeddings: false,
    ...more,
  });

const widths = [2, 3, 4, 5, 6, 8] as const;

describe('codes for MLX', () => {
  it('are read again', async () => {
    for (const bits of widths) {
      const { bytes, config } = await made(folder(decoder({ layers: 1 }, 'F32'), llama()), { to: `mlx-${bits}bit` });
      const input = [chosen('model.safetensors', bytes), chosen('config.json', config)];
      expect((await verifyModel(input, { config })).problems).toEqual([]);
      const again = await quantizeModel(input, { to: 'bfloat16', requantize: true, workers: 0 });
      expect(again.report.totals.cast).toBeGreaterThan(0);
    }
  });

  it('cut long rows and many rows into tiles', async () => {
    const tensors = {
      'model.embed_tokens.weight': weights('BF16', [9000, 128], 1),
      'lm_head.weight': weights('F32', [2, 2 ** 20 + 128], 2),
    };
    const result = await made(folder(tensors, llama()), { to: 'mlx-3bit' });
    for (const [name, tensor] of Object.entries(tensors)) {
      await expectModule(result, name.slice(0, -7), valuesIn(tensor, 'BF16'), 3, 64, 'BF16');
    }
  });

  it('have smaller errors by search, within the same bytes', async () => {
    const random = new Random(3);
    const values = random.bell(64 * 512);
    const tensors = { 'model.embed_tokens.weight': tensorOf('BF16', [64, 512], values) };
    const config = llama({ tie_word_embeddings: true });
    // A little less than was measured on these weights. tests/cpp/codecs_mlx_test.cpp searches with all widths.
    const gains: Readonly<Record<number, number>> = { 2: 0.3, 8: 0.45 };
    const further: Readonly<Record<number, number>> = { 2: 0.018, 8: 0.105 };
    const searches = [{ range: 'min-max' }, { range: 'mse' }, { search: 'best' }] as const;
    for (const bits of [2, 8] as const) {
      const errors: number[] = [];
      const sizes: number[] = [];
      for (const options of searches) {
        const result = await made(folder(tensors, config), { to: `mlx-${bits}bit`, ...options });
        const restored = await restoredOf(result, 'model.embed_tokens.weight');
        const x = valuesIn(tensors['model.embed_tokens.weight'], 'BF16');
        errors.push(x.reduce((sum, v, i) => sum + (v - restored[i]!) ** 2, 0));
        sizes.push(result.bytes.length);
      }
      expect(1 - errors[1]! / errors[0]!, `${bits} bits, mse`).toBeGreaterThan(gains[bits]!);
      expect(1 - errors[2]! / errors[1]!, `${bits} bits, best`).toBeGreaterThan(further[bits]!);
      expect(new Set(sizes).size).toBe(1);
    }
  });

  it('weigh columns by an importance matrix', async () => {
    const tensors = decoder({}, 'BF16');
    const name = 'model.layers.0.self_attn.q_proj.weight';
    const sums = Float32Array.from({ length: 64 }, (_, i) => (i < 8 ? 100 : 0.01));
    const importance = matrixFile([{ name, sums, counts: [1] }]);
    const before = valuesIn(tensors[name]!, 'BF16');
    const errorOf = async (options: Partial<QuantizeModelOptions>) => {
      const restored = await restoredOf(await made(folder(tensors, llama()), { to: 'mlx-2bit', ...options }), name);
      return before.reduce((sum, v, i) => sum + sums[i % 64]! * (v - restored[i]!) ** 2, 0);
    };
    expect(await errorOf({ importance })).toBeLessThan(0.6 * (await errorOf({ range: 'mse' })));
  });
});

describe('modules of mlx-lm', () => {
  const names = (tensors: ReadonlyMap<string, unknown>) =>
    [...tensors.keys()].filter((name) => name.endsWith('.weight'));

  it('leave out what mlx-lm does not read, and state whether the embedding is the output layer', async () => {
    const buffer: TestTensor = weights('F32', [8], 5);
    const tensors = { ...decoder({}, 'BF16'), 'model.layers.0.self_attn.rotary_emb.inv_freq': buffer };
    const tied = await made(folder(tensors, llama({ tie_word_embeddings: true })), { to: 'mlx-4bit' });
    expect(names(tied.tensors)).not.toContain('lm_head.weight');
    expect(tied.tensors.has('model.layers.0.self_attn.rotary_emb.inv_freq')).toBe(false);
    expect(tied.result.report.notes).toContainEqual(
      expect.objectContaining({
        kind: 'notReadByMlx',
        tensors: ['lm_head.weight', 'model.layers.0.self_attn.rotary_emb.inv_freq'],
      }),
    );
    const glm = await made(folder(tensors, llama({ model_type: 'glm', tie_word_embeddings: undefined })), {
      to: 'mlx-4bit',
    });
    const unsaid = await made(folder(tensors, llama({ tie_word_embeddings: undefined })), { to: 'mlx-4bit' });
    expect(names(unsaid.tensors)).toContain('lm_head.weight');
    expect(glm.tensors).toEqual(unsaid.tensors);
    expect(unsaid.config.tie_word_embeddings).toBe(false);
    expect(unsaid.metadata).toEqual({ format: 'mlx' });
    expect(Object.keys(unsaid.config).at(-1)).toBe('quantization_config');
    expect(unsaid.config).toMatchObject({ hidden_size: 64, model_type: 'llama' });
  });

  it('have the names of mlx-lm in GPT-NeoX', async () => {
    const tensors: Record<string, TestTensor> = {
      'gpt_neox.embed_in.weight': weights('F16', [40, 64], 1),
      'gpt_neox.layers.0.attention.query_key_value.weight': weights('F16', [192, 64], 2),
      'gpt_neox.layers.0.attention.query_key_value.bias': weights('F16', [192], 3),
      'gpt_neox.layers.0.attention.bias': { dtype: 'BOOL', shape: [1, 1, 4, 4], data: new Uint8Array(16) },
      'gpt_neox.layers.0.attention.masked_bias': weights('F16', [], 4),
      'gpt_neox.layers.0.attention.rotary_emb.inv_freq': weights('F32', [4], 4),
      'gpt_neox.final_layer_norm.weight': weights('F16', [64], 5),
      'embed_out.weight': weights('F16', [40, 64], 6),
    };
    const result = await made(folder(tensors, { model_type: 'gpt_neox' }), { to: 'mlx-4bit' });
    const { tensors: got } = result;
    expect([...got.keys()].filter((name) => !/scales|biases/.test(name)).sort()).toEqual([
      'model.embed_in.weight',
      'model.embed_out.weight',
      'model.final_layer_norm.weight',
      'model.h.0.attention.query_key_value.bias',
      'model.h.0.attention.query_key_value.weight',
    ]);
    // Without torch_dtype, everything keeps its type.
    expect(got.get('model.final_layer_norm.weight')?.dtype).toBe('F16');
    await expectModule(result, 'model.embed_out', valuesIn(tensors['embed_out.weight']!, 'F16'), 4, 64, 'F16');
  });

  it.each(['F32', 'BF16'] as const)('stack the experts of Mixtral, which were %s', async (dtype) => {
    const experts = {
      count: 3,
      router: 'block_sparse_moe.gate',
      names: (e: number) => ['w1', 'w3', 'w2'].map((name) => `block_sparse_moe.experts.${e}.${name}`),
    };
    const tensors = decoder({ experts }, dtype);
    const granularity = { kind: 'per-group', groupSize: 32 } as const;
    const result = await made(folder(tensors, llama({ model_type: 'mixtral' })), { to: 'mlx-4bit', granularity });
    const { tensors: got, config, bytes } = result;
    for (let layer = 0; layer < 3; layer++) {
      const block = `model.layers.${layer}.block_sparse_moe`;
      for (const [from, to] of [
        ['w1', 'gate_proj'],
        ['w2', 'down_proj'],
        ['w3', 'up_proj'],
      ]) {
        const values = [0, 1, 2].flatMap((e) => [
          ...valuesIn(tensors[`${block}.experts.${e}.${from}.weight`]!, 'BF16'),
        ]);
        const module = `${block}.switch_mlp.${to}`;
        expect(got.get(`${module}.weight`)?.shape).toEqual(to === 'down_proj' ? [3, 64, 12] : [3, 96, 8]);
        await expectModule(result, module, Float32Array.from(values), 4, 32, 'BF16');
      }
    }
    expect([...got.keys()].some((name) => name.includes('.experts.'))).toBe(false);
    // The result is a source for other targets of MLX.
    const again = await quantizeModel([chosen('model.safetensors', bytes), chosen('config.json', config)], {
      to: 'mlx-8bit',
      requantize: true,
      workers: 0,
    });
    expect((again.config as Json).quantization).toEqual({ group_size: 64, bits: 8, mode: 'affine' });
  });

  it('give routers of Qwen3-MoE 8 bits, and modules of rules theirs', async () => {
    const experts = {
      count: 4,
      router: 'mlp.gate',
      names: (e: number) => ['gate_proj', 'up_proj', 'down_proj'].map((name) => `mlp.experts.${e}.${name}`),
    };
    const tensors = decoder({ experts, headNorms: true }, 'BF16');
    const result = await made(folder(tensors, llama({ model_type: 'qwen3_moe' })), {
      to: 'mlx-4bit',
      rules: [
        { match: /layers\.0\..*gate_proj/, to: 'mlx-6bit', granularity: { kind: 'per-group', groupSize: 32 } },
        { match: /layers\.1\..*o_proj/, keep: true },
        { match: /layers\.2\..*o_proj/, to: 'float16' },
      ],
    });
    const { tensors: got, config, bytes } = result;
    const gate = { group_size: 64, bits: 8, mode: 'affine' };
    expect(config.quantization).toEqual({
      group_size: 64,
      bits: 4,
      mode: 'affine',
      'model.layers.0.mlp.switch_mlp.gate_proj': { group_size: 32, bits: 6, mode: 'affine' },
      ...Object.fromEntries([0, 1, 2].map((layer) => [`model.layers.${layer}.mlp.gate`, gate])),
    });
    expect(got.get('model.layers.1.self_attn.o_proj.weight')?.dtype).toBe('BF16');
    expect(got.get('model.layers.2.self_attn.o_proj.weight')?.dtype).toBe('F16');
    // Rows of 96 are not divided by 64.
    expect(got.get('model.layers.0.mlp.switch_mlp.down_proj.weight')).toMatchObject({
      dtype: 'BF16',
      shape: [4, 64, 96],
    });
    const down = [0, 1, 2, 3].flatMap((e) => [
      ...valuesIn(tensors[`model.layers.0.mlp.experts.${e}.down_proj.weight`]!, 'BF16'),
    ]);
    expectSame(numbersOf(got.get('model.layers.0.mlp.switch_mlp.down_proj.weight')!), Float64Array.from(down));
    const input = [chosen('model.safetensors', bytes), chosen('config.json', config)];
    expect((await verifyModel(input, { config })).problems).toEqual([]);
    const wrong = { ...config, quantization_config: { ...(config.quantization as Json), 'model.other': gate } };
    const { problems } = await verifyModel(input, { config: wrong });
    expect(problems.map(({ kind }) => kind)).toEqual(['noCodesOfModule']);
    const router = valuesIn(tensors['model.layers.0.mlp.gate.weight']!, 'BF16');
    await expectModule(result, 'model.layers.0.mlp.gate', router, 8, 64, 'BF16');
  });

  it('take weights of other tools', async () => {
    const gptq = gptqWeight({ rows: 64, columns: 64, bits: 4, groupSize: 32, groups: 'shuffled', seed: 4 });
    const plain = decoder({ layers: 1 }, 'BF16');
    const module = 'model.layers.0.self_attn.q_proj';
    const { [`${module}.weight`]: _, ...others } = plain;
    const quantization_config = { quant_method: 'gptq', checkpoint_format: 'gptq', group_size: 32 };
    const input = folder({ ...others, ...tensorsOf({ [module]: gptq }) }, llama({ quantization_config }));
    const result = await made(input, { to: 'mlx-8bit', requantize: true });
    const values = Float32Array.from(gptq.values, (value) => nearest(value, named.BF16!));
    await expectModule(result, module, values, 8, 64, 'BF16');
    expect(result.config.quantization_config).toEqual({ group_size: 64, bits: 8, mode: 'affine' });
  });

  it('are in files of at most the given size, with an index that counts the weights', async () => {
    const directory = await mkdtemp(join(tmpdir(), 'mlx-'));
    try {
      const tensors = decoder({}, 'BF16');
      await writeFile(join(directory, 'model.safetensors'), safetensors(tensors));
      await writeFile(join(directory, 'config.json'), JSON.stringify(llama()));
      const output = join(directory, 'out', 'model.safetensors');
      await mkdir(join(directory, 'out'));
      await quantizeModel(join(directory, 'model.safetensors'), {
        to: 'mlx-4bit',
        shardSize: 20000,
        output,
        workers: 0,
      });
      const index = JSON.parse(await readFile(`${output}.index.json`, 'utf8'));
      const count = Object.values(tensors).reduce((sum, { shape }) => sum + shape.reduce((a, b) => a * b, 1), 0);
      const places: [string, string][] = [];
      let size = 0;
      for (const name of await readdir(join(directory, 'out'))) {
        if (!name.endsWith('.safetensors')) continue;
        expect(name).toMatch(/^model-0000\d-of-0000\d\.safetensors$/);
        for (const [tensor, { bytes }] of parseSafetensors(await readFile(join(directory, 'out', name))).tensors) {
          places.push([tensor, name]);
          size += bytes.length;
        }
      }
      expect(index.metadata).toEqual({ total_size: size, total_parameters: count });
      // In the order of names, as mlx-lm sorts them.
      expect(Object.entries(index.weight_map)).toEqual(places.sort(([a], [b]) => (a < b ? -1 : 1)));
    } finally {
      await rm(directory, { recursive: true });
    }
  });
});

describe('models that mlx-lm does not load', () => {
  const source = decoder({ layers: 1 }, 'BF16');
  const cases: readonly [string, FileInput[], string][] = [
    ['no configuration', folder(source), 'needs the config.json'],
    ['an unknown type', folder(source, llama({ model_type: 'chatglm' })), '"chatglm"'],
    ['no type', folder(source, llama({ model_type: undefined })), 'undefined'],
    ['a type of the prototype', folder(source, llama({ model_type: 'toString' })), '"toString"'],
    ['an output layer', folder(source, llama({ model_type: 'gemma2' })), 'an output layer of their own'],
    [
      'no output layer',
      folder(decoder({ layers: 1, tied: true }, 'BF16'), llama()),
      'config.json does not say that the embedding',
    ],
    ['no embedding', folder({ 'lm_head.weight': weights('BF16', [8, 64], 1) }, llama()), 'model.embed_tokens.weight'],
    [
      'a missing expert',
      folder(
        { ...source, 'model.layers.0.mlp.experts.1.up_proj.weight': weights('BF16', [8, 64], 1) },
        llama({ model_type: 'qwen3_moe' }),
      ),
      'expert 0 is missing',
    ],
    [
      'unlike experts',
      folder(
        {
          ...source,
          'model.layers.0.mlp.experts.0.up_proj.weight': weights('BF16', [8, 64], 1),
          'model.layers.0.mlp.experts.1.up_proj.weight': weights('BF16', [8, 128], 1),
        },
        llama({ model_type: 'qwen3_moe' }),
      ),
      'it is BF16 [8, 128]',
    ],
    [
      'stacked experts of transformers 5',
      folder(
        { ...source, 'model.layers.0.mlp.experts.gate_up_proj': weights('BF16', [2, 8, 64], 1) },
        llama({ model_type: 'qwen3_moe' }),
      ),
      'no such tensor of an expert',
    ],
  ];

  it.each(cases)('are refused: %s', async (_, input, words) => {
    const error = await rejectionOf(planModel(input, { to: 'mlx-4bit' }));
    expect(error).toMatchObject({ name: 'ScalepointError', message: expect.stringContaining(words) });
  });

  it('include bare arrays', async () => {
    const bytes = npy('<f4', '(2, 64)', new ArrayBuffer(512));
    const error = await rejectionOf(planModel(bytes, { to: 'mlx-4bit' }));
    expect(error).toMatchObject({ code: 'UNKNOWN_FORMAT', message: expect.stringContaining('a single array') });
  });

  it('and wrong options are errors', async () => {
    const input = folder(source, llama());
    const wrong = async (options: object, option: string) => {
      const error = await rejectionOf(planModel(input, { to: 'mlx-4bit', ...options } as never));
      expect(error).toMatchObject({ option });
    };
    await wrong({ granularity: { kind: 'per-channel' } }, 'granularity.kind');
    await wrong({ granularity: { kind: 'per-group', groupSize: 16 } }, 'granularity.groupSize');
    await wrong({ range: 'entropy' }, 'range');
    await wrong({ scheme: 'asymmetric' }, 'scheme');
    await wrong({ rules: [{ match: 'a', to: 'int8' }] }, 'rules[0].to');
    await wrong(
      { rules: [{ match: 'a', to: 'mlx-8bit', granularity: { kind: 'per-channel' } }] },
      'rules[0].granularity.kind',
    );
  });

  it('say which rows no groups divide', async () => {
    const input = folder({ ...source, 'model.layers.0.mlp.odd.weight': weights('BF16', [8, 50], 1) }, llama());
    const { notes } = await planModel(input, { to: 'mlx-4bit' as ModelTarget });
    const note = notes.find(({ kind }) => kind === 'leftRows');
    expect(note).toMatchObject({ columns: [96, 50], groupSizes: [64] });
    expect(note?.text).not.toContain('per-channel');
  });
});

describe('on the command line', () => {
  let directory: string;
  beforeAll(async () => {
    directory = await mkdtemp(join(tmpdir(), 'mlx-cli-'));
    await mkdir(join(directory, 'tiny'));
    await mkdir(join(directory, 'out'));
    await writeFile(join(directory, 'tiny', 'model.safetensors'), safetensors(decoder({}, 'BF16')));
    // Python tells 1.0 from 1.
    const text = JSON.stringify(llama()).replace('"rope_theta":10000', '"rope_theta":10000.0');
    await writeFile(join(directory, 'tiny', 'config.json'), text);
  });
  afterAll(() => rm(directory, { recursive: true }));

  it('config.json is completed, with its numbers as they were', async () => {
    const output = join(directory, 'out', 'model.safetensors');
    const { code, stderr } = await run([join(directory, 'tiny'), '--to', 'mlx-4bit', '-o', output], {}, directory);
    expect(code, stderr).toBe(0);
    const text = await readFile(join(directory, 'out', 'config.json'), 'utf8');
    expect(text).toContain('"rope_theta": 10000.0');
    expect(JSON.parse(text)).toMatchObject({
      model_type: 'llama',
      quantization: { group_size: 64, bits: 4, mode: 'affine' },
    });
    const verified = await run(['verify', output], {}, directory);
    expect(verified.code, verified.stdout + verified.stderr).toBe(0);
  });
});

describe('small floats for MLX', () => {
  const kinds = { mxfp4: [4, 32], nvfp4: [4, 16], mxfp8: [8, 32] } as const;
  for (const [kind, [bits, block]] of Object.entries(kinds) as [keyof typeof kinds, readonly [number, number]][]) {
    it(`${kind}: have the shapes and the configuration of mlx-lm, and are read again`, async () => {
      const values = Float32Array.from(new Random(8).bell(40 * 96), (v, i) => (i < block ? 0 : i < 2 * block ? -0 : v));
      const odd = weights('BF16', [8, 40], 4);
      const tensors = {
        ...decoder({}, 'F32'),
        'model.layers.0.mlp.down_proj.weight': tensorOf('F32', [40, 96], values),
        'model.layers.0.mlp.odd.weight': odd,
      };
      const { tensors: got, config, bytes } = await made(folder(tensors, llama()), { to: `mlx-${kind}` });
      expect(config.quantization).toEqual({ group_size: block, bits, mode: kind });
      expect(got.get('model.layers.0.mlp.odd.weight')).toMatchObject({ dtype: 'BF16', shape: [8, 40] });
      const input = [chosen('model.safetensors', bytes), chosen('config.json', config)];
      expect((await verifyModel(input, { config })).problems).toEqual([]);
      let coded = 0;
      for (const [name, tensor] of Object.entries(tensors)) {
        const [rows = 0, columns = 1] = tensor.shape;
        if (tensor.shape.length !== 2 || columns % block !== 0) continue;
        coded++;
        const module = name.slice(0, -'.weight'.length);
        expect(got.get(name)).toMatchObject({ dtype: 'U32', shape: [rows, (columns * bits) / 32] });
        expect(got.get(`${module}.scales`)).toMatchObject({ dtype: 'U8', shape: [rows, columns / block] });
        expect(got.has(`${module}.biases`)).toBe(false);
      }
      expect(coded).toBeGreaterThan(20);
      const again = await quantizeModel(input, { to: 'mlx-4bit', requantize: true, workers: 0 });
      expect((again.config as Json).quantization).toEqual({ group_size: 64, bits: 4, mode: 'affine' });
    });
  }

  it('have smaller errors by search, and routers of Qwen3-MoE stay integers', async () => {
    const experts = {
      count: 4,
      router: 'mlp.gate',
      names: (e: number) => ['gate_proj', 'up_proj', 'down_proj'].map((name) => `mlp.experts.${e}.${name}`),
    };
    const input = folder(decoder({ experts, headNorms: true }, 'BF16'), llama({ model_type: 'qwen3_moe' }));
    const plain = await made(input, { to: 'mlx-mxfp4' });
    expect(plain.config.quantization).toMatchObject({
      mode: 'mxfp4',
      'model.layers.1.mlp.gate': { group_size: 64, bits: 8, mode: 'affine' },
    });
    expect(plain.tensors.get('model.layers.0.mlp.switch_mlp.down_proj.scales')?.shape).toEqual([4, 64, 3]);
    const found = await made(input, { to: 'mlx-mxfp4', range: 'mse' });
    const errorOf = ({ result }: typeof plain) =>
      result.report.tensors.reduce((sum, { error }) => sum + (error === undefined ? 0 : error.mse), 0);
    expect(errorOf(found)).toBeLessThan(errorOf(plain));
  });

  it('are refused where parts do not match', async () => {
    const { tensors, config } = await made(folder(decoder({ layers: 1 }, 'BF16'), llama()), { to: 'mlx-mxfp4' });
    const all = Object.fromEntries(
      [...tensors].map(([name, { dtype, shape, bytes }]): [string, TestTensor] => [
        name,
        { dtype, shape, data: bytes },
      ]),
    );
    const module = 'model.layers.0.self_attn.q_proj';
    const scales = all[`${module}.scales`]!;
    const wrong: readonly [Record<string, TestTensor>, Json, string][] = [
      [{ [`${module}.scales`]: { ...scales, dtype: 'I8' } }, {}, 'do not match'],
      [{ [`${module}.scales`]: { ...scales, shape: [32, 4] } }, {}, 'do not match'],
      [{ [`${module}.biases`]: scales }, {}, 'do not match'],
      [{}, { bits: 8 }, 'with 8 bits'],
      [{}, { group_size: 64 }, 'in groups of 64'],
      [{}, { mode: 'fp5' }, '"fp5"'],
      [{}, { mode: 'constructor' }, '"constructor"'],
    ];
    for (const [more, settings, words] of wrong) {
      const quantization = { ...(config.quantization as Json), ...settings };
      const input = folder({ ...all, ...more }, { ...config, quantization, quantization_config: quantization });
      const error = await rejectionOf(quantizeModel(input, { to: 'bfloat16', requantize: true, workers: 0 }));
      expect(error).toMatchObject({ code: 'UNSUPPORTED_DTYPE', message: expect.stringContaining(words) });
    }
  });
});
