// Compares the results of the model functions and of the command line with the digests in tests/golden/digests-models.json: bytes, reports,
// plans, configurations and errors. These tests show when a result changes. Other tests check which result is right.
import { mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import {
  compareModels,
  inspectModel,
  type ModelInput,
  type PlanOptions,
  planModel,
  type QuantizeModelOptions,
  quantizeModel,
  readTensor,
} from 'scalepoint/model';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { registerLibrary } from '../../web/src/architectures/webllm/families.js';
import { commands } from '../../web/src/cli/commands.js';
import { ggufTargets } from '../../web/src/formats/gguf/targets.js';
import { type MlcTarget, mlcTargets } from '../../web/src/formats/mlc/targets.js';
import { mergeConfig } from '../../web/src/formats/safetensors/config.js';
import { safetensorsTargets } from '../../web/src/formats/safetensors/layouts/registry.js';
import recorded from '../golden/digests-models.json' with { type: 'json' };
import { run } from './cli/support.js';
import { type Digests, digestOf, factsOf, Golden, outcomeOf } from './support/digests.js';
import { folder as folderOf, type Json } from './support/folders.js';
import { digestsOf, nameOf } from './support/model-digests.js';
import {
  fileWith,
  mixedModel,
  plain,
  safetensors,
  smallModel,
  type TestTensor,
  ways,
  weights,
} from './support/models.js';
import { Random } from './support/support.js';
import { decoderConfig, decoderWeights, plainTokenizer, tiny } from './support/tiny-huggingface.js';
import { everyPair, ggufFile, weights as ggufWeights, type TinyOptions, tinyLlama } from './support/tiny-llama.js';

const golden = new Golden('digests-models.json', recorded);

let folder = '';
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'scalepoint-digests-'));
});
afterAll(async () => {
  await rm(folder, { recursive: true, force: true });
  await golden.save();
});

type Bytes = Uint8Array<ArrayBuffer>;

/** A comparison without its words: the names of tensors that were not compared, and whether they differ. */
async function compared(...args: Parameters<typeof compareModels>) {
  const { skipped, ...rest } = await compareModels(...args);
  return { ...rest, skipped: skipped.map(({ name, differs }) => ({ name, differs })) };
}

const bytesOfResult = async (file: ModelInput, options: QuantizeModelOptions): Promise<Bytes> =>
  (await quantizeModel(file, { workers: 0, ...options })).bytes();

// ------------------------------------------------------------------------------------------------------------------------- files

const bell = (dtype: 'F32' | 'F16' | 'BF16' | 'F64', shape: readonly number[], seed: number): TestTensor =>
  weights(dtype, shape, seed);

/** A matrix whose rows are hard cases for scales: zeros, constants, an outlier, very small and very large values. */
function extremes(shape: readonly [number, number], seed: number): TestTensor {
  const [rows, columns] = shape;
  const random = new Random(seed);
  const data = random.bell(rows * columns);
  const row = (i: number) => data.subarray(i * columns, (i + 1) * columns);
  row(0).fill(0);
  row(1).fill(-7.3);
  row(2)[5] = 1e4;
  for (const [i, v] of row(3).entries()) row(3)[i] = v * 1e-30;
  for (const [i, v] of row(4).entries()) row(4)[i] = v * 1e30;
  for (const [i, v] of row(5).entries()) row(5)[i] = Math.abs(v);
  for (const [i, v] of row(6).entries()) row(6)[i] = -Math.abs(v) - 3;
  for (const i of row(7).keys()) row(7)[i] = (i % 16) - 7.5;
  return { dtype: 'F32', shape, data };
}

const raw = (dtype: string, shape: readonly number[], bytes: number): TestTensor => ({
  dtype,
  shape,
  data: Uint8Array.from({ length: bytes }, (_, i) => (i * 37) & 127),
});

/**
 * A model with names that are kept by default and similar names that are not, with all dtypes, ranks 0 to 4, and numbers of columns that
 * are no multiple of a group or of the codes in a word.
 */
const namedModel = () =>
  safetensors(
    {
      'model.embed_tokens.weight': bell('F32', [24, 64], 1),
      'model.layers.0.input_layernorm.weight': bell('F32', [64], 2),
      'model.layers.0.self_attn.q_proj.weight': bell('F32', [64, 128], 3),
      'model.layers.0.self_attn.q_proj.bias': bell('F32', [64], 4),
      'model.layers.0.self_attn.k_proj.weight': bell('BF16', [32, 256], 5),
      'model.layers.0.self_attn.v_proj.weight': bell('F16', [33, 384], 6),
      'model.layers.0.mlp.gate.weight': bell('F32', [8, 64], 7),
      'model.layers.0.mlp.experts.0.w1.weight': bell('BF16', [40, 64], 8),
      'model.layers.0.mlp.experts.0.gate.weight': bell('BF16', [40, 64], 9),
      'model.layers.1.router.weight': bell('F32', [8, 64], 10),
      'model.layers.1.norm1.linear.weight': bell('F32', [48, 64], 11),
      'model.layers.1.mlp.gate_proj.weight': bell('F16', [37, 45], 12),
      'odd.weight': bell('BF16', [5, 33], 13),
      'one.weight': bell('F32', [1, 1], 14),
      'column.weight': bell('F32', [70, 1], 15),
      'row.weight': bell('F32', [1, 130], 16),
      'ten.weight': bell('F32', [9, 10], 17),
      'conv.weight': bell('F32', [6, 5, 7, 3], 18),
      'conv1d.weight': bell('F16', [8, 4, 32], 19),
      'double.weight': bell('F64', [40, 128], 20),
      'extreme.weight': extremes([12, 128], 21),
      taken: bell('F32', [16, 64], 22),
      taken_scale: bell('F32', [16], 23),
      scalar: bell('F32', [], 25),
      vector: bell('BF16', [300], 26),
      'empty.weight': bell('F32', [0, 8], 27),
      'hollow.weight': bell('F32', [8, 0], 28),
      flags: raw('BOOL', [3], 3),
      bytes: raw('U8', [7, 2], 14),
      shorts: raw('I16', [2, 3], 12),
      words: raw('I32', [2, 2], 16),
      longs: raw('I64', [2], 16),
      'float8.weight': raw('F8_E4M3', [8, 8], 64),
      'name with spaces/ü模🙂"\\.weight': bell('F32', [16, 32], 29),
      'transformer.wte.weight': bell('F32', [16, 32], 30),
      'lm_head.weight': bell('F32', [24, 64], 31),
    },
    { format: 'pt', note: 'Gewichte für 模型 🙂' },
  );

/** A model with weights only, one of each float type that can be quantized. */
const plainModel = () =>
  safetensors({
    'a.weight': bell('F32', [48, 256], 40),
    'b.weight': bell('F16', [40, 128], 41),
    'c.weight': bell('BF16', [33, 384], 42),
    'd.weight': extremes([12, 256], 43),
  });

/** A .npy file. */
function npy(descr: string, shape: readonly number[], data: ArrayBufferView, fortran = false): Bytes {
  const tuple = shape.length === 1 ? `(${shape[0]},)` : `(${shape.join(', ')})`;
  const text = `{'descr': '${descr}', 'fortran_order': ${fortran ? 'True' : 'False'}, 'shape': ${tuple}, }`;
  const length = Math.ceil((10 + text.length + 1) / 64) * 64 - 10;
  const file = new Uint8Array(10 + length + data.byteLength).fill(0x20, 10, 10 + length);
  file.set([0x93, 0x4e, 0x55, 0x4d, 0x50, 0x59, 1, 0, length & 255, length >> 8]);
  file.set(new TextEncoder().encode(text), 10);
  file[10 + length - 1] = 0x0a;
  file.set(new Uint8Array(data.buffer, data.byteOffset, data.byteLength), 10 + length);
  return file;
}

const npyFiles = (): Record<string, Bytes> => {
  const values = (dtype: 'F32' | 'F16' | 'F64', n: number) => bell(dtype, [n], 50).data;
  return {
    'f4 40 x 128': npy('<f4', [40, 128], values('F32', 5120)),
    'f4 40 x 128, column-major': npy('<f4', [40, 128], values('F32', 5120), true),
    'f2 33 x 64': npy('<f2', [33, 64], values('F16', 2112)),
    'f2 33 x 64, column-major': npy('<f2', [33, 64], values('F16', 2112), true),
    'f8 9 x 35': npy('<f8', [9, 35], values('F64', 315)),
    'f8 9 x 35, column-major': npy('<f8', [9, 35], values('F64', 315), true),
    'f4 big-endian': npy('>f4', [16, 32], new Uint8Array(values('F32', 512).buffer).reverse()),
    'f4 4 x 3 x 8, column-major': npy('<f4', [4, 3, 8], values('F32', 96), true),
    'f4 1-D': npy('<f4', [256], values('F32', 256)),
    'f4 scalar': npy('<f4', [], values('F32', 1)),
    'f4 empty': npy('<f4', [0, 8], values('F32', 0)),
    'i4 4 x 8': npy('<i4', [4, 8], new Int32Array(32).fill(7)),
  };
};

/** A model in shards. */
const shards = (): File[] => {
  const one = { 'a.weight': bell('F32', [48, 256], 60), 'a.norm.weight': bell('F32', [48], 61) };
  const two = { 'b.weight': bell('BF16', [40, 128], 62), 'embed.weight': bell('F16', [16, 64], 63) };
  const names = ['model-00001-of-00002.safetensors', 'model-00002-of-00002.safetensors'] as const;
  const map = Object.fromEntries(
    [one, two].flatMap((part, i) => Object.keys(part).map((name) => [name, names[i as 0 | 1]])),
  );
  const index = JSON.stringify({ metadata: { total_size: 1 }, weight_map: map });
  return [
    new File([index], 'model.safetensors.index.json'),
    new File([safetensors(one, { format: 'pt', by: 'one' })], names[0]),
    new File([safetensors(two, { format: 'pt', more: 'two' })], names[1]),
  ];
};

const ggufVariants: Readonly<Record<string, TinyOptions>> = {
  plain: {},
  'rows of 288': { embedding: 288, feedForward: 352, attention: 100 },
  'eight experts': { experts: 8 },
  'two experts, grouped heads': { experts: 2, heads: 8, headsKv: 2 },
  'qkv, biases, tied': { qkv: true, biases: true, tied: true },
  'ten layers, F32': { layers: 10, source: 'F32' },
  'a falcon of ten layers': { layers: 10, architecture: 'falcon', source: 'BF16' },
  'alignment 64': { alignment: 64, layers: 1 },
  'every pair, version 2': { layers: 1, pairs: everyPair, version: 2 },
  'heads of each layer': { layers: 2, headsKv: [4, 1] },
  'other tensors': {
    layers: 1,
    pairs: [['split.no', 'u32', 0]],
    tensors: [
      { name: 'blk.0.ids', dtype: 'I32', ne: [6], data: new Uint8Array(24).fill(3) },
      { name: 'blk.0.ssm_conv1d.weight', dtype: 'F32', ne: [4, 8], data: ggufWeights('F32', 32, 9) },
      { name: 'blk.0.plain', dtype: 'F32', ne: [64, 8], data: ggufWeights('F32', 512, 10) },
      { name: 'cubic.weight', dtype: 'F16', ne: [64, 4, 4], data: ggufWeights('F16', 1024, 11) },
    ],
  },
};

// ------------------------------------------------------------------------------------------------------------------- safetensors

describe('safetensors', () => {
  it('become codes of every form', async () => {
    const granularities: PlanOptions['granularity'][] = [
      undefined,
      { kind: 'per-channel' },
      ...[8, 32, 64, 96, 128].map((groupSize) => ({ kind: 'per-group' as const, groupSize })),
    ];
    const list: QuantizeModelOptions[] = [];
    for (const to of ['int8', 'int4'] as const) {
      for (const scheme of ['symmetric', 'asymmetric'] as const) {
        for (const granularity of granularities) {
          for (const packed of [undefined, false, true]) {
            if (to === 'int4' && packed === false) continue;
            list.push({
              to,
              scheme,
              ...(granularity === undefined ? {} : { granularity }),
              ...(packed === undefined ? {} : { packed }),
            });
            // With what no loader decodes: codes as they are are those of the first version.
            if (packed !== true) {
              list.push({
                to,
                scheme,
                ...(granularity === undefined ? {} : { granularity }),
                ...(packed === undefined ? {} : { packed }),
                include: 'all',
              });
            }
          }
        }
      }
    }
    for (const scheme of ['symmetric', 'asymmetric'] as const) {
      for (const granularity of granularities.slice(0, 3) as NonNullable<PlanOptions['granularity']>[]) {
        const given = {
          to: 'int8',
          scheme,
          activations: 'int8-dynamic',
          ...(granularity ? { granularity } : {}),
        } as const;
        list.push(given, { ...given, include: 'all' });
      }
    }
    golden.check('codes of names', await digestsOf(namedModel(), list));
  });

  it('become other floats', async () => {
    const rules = [
      { match: /conv/, keep: true },
      { match: /q_proj|double/, to: 'bfloat16' },
    ] as const;
    const list: QuantizeModelOptions[] = (['float8e4m3fn', 'float16', 'bfloat16'] as const).flatMap((to) => [
      { to },
      { to, rules: [{ match: /extreme/, keep: true }] },
      { to, rules: [{ match: /extreme/, keep: true }, ...rules] },
      ...(to === 'float8e4m3fn' ? [{ to, include: 'all' as const }] : []),
    ]);
    golden.check('floats of names', await digestsOf(namedModel(), list));
  });

  it('have ranges that are searched for', async () => {
    const list: QuantizeModelOptions[] = [];
    for (const range of ['min-max', 'mse', 'entropy', { percentile: 99.9 }, { percentile: 90 }] as const) {
      for (const to of ['int8', 'int4'] as const) {
        for (const scheme of ['symmetric', 'asymmetric'] as const) {
          list.push({ to, scheme, range });
          list.push({ to, scheme, range, granularity: { kind: 'per-channel' } });
          list.push({ to, scheme, range, granularity: { kind: 'per-group', groupSize: 32 } });
          if (to === 'int8') list.push({ to, scheme, range, packed: true }, { to, scheme, range, packed: false });
        }
      }
    }
    golden.check('ranges', await digestsOf(plainModel(), list));
  });

  it('follow rules', async () => {
    const group = (groupSize: number) => ({ kind: 'per-group', groupSize }) as const;
    const list: QuantizeModelOptions[] = [
      { to: 'int8', rules: [{ match: /embed|wte/, to: 'int8' }] },
      { to: 'int8', ...plain, rules: [{ match: /embed|wte/, to: 'int8' }] },
      { to: 'int8', ...plain, rules: [{ match: /^model/, keep: true }] },
      { to: 'int8', rules: [{ match: /norm/, to: 'float16' }] },
      { to: 'int8', rules: [{ match: /lm_head/, to: 'int4' }] },
      { to: 'int8', rules: [{ match: /q_proj/, to: 'int4', granularity: group(64) }] },
      { to: 'int8', rules: [{ match: /q_proj/, to: 'int8', granularity: group(32) }] },
      { to: 'int8', rules: [{ match: /^model/, keep: true }] },
      { to: 'int8', rules: [{ match: /./, keep: true }] },
      { to: 'int8', rules: [{ match: /double|vector|scalar|conv|one|column/, to: 'int8' }] },
      { to: 'int4', rules: [{ match: /double|vector|scalar|conv|one|column/, to: 'int4' }] },
      { to: 'int4', granularity: group(32), rules: [{ match: /k_proj/, to: 'int8' }] },
      { to: 'int4', rules: [{ match: /k_proj/, to: 'int8', granularity: { kind: 'per-channel' } }] },
      { to: 'int4', scheme: 'asymmetric', rules: [{ match: /embed/gy, to: 'int4', granularity: group(64) }] },
      { to: 'float16', rules: [{ match: /q_proj/, to: 'int8' }] },
      { to: 'float8e4m3fn', rules: [{ match: /embed/, to: 'float8e4m3fn' }] },
      { to: 'float8e4m3fn', rules: [{ match: /embed/, to: 'int8' }] },
      { to: 'int8', rules: [{ match: /taken|float8|longs|flags/, to: 'int8' }] },
      { to: 'float16', rules: [{ match: /float8|longs/, to: 'float16' }] },
    ];
    golden.check('rules', await digestsOf(namedModel(), list));
  });

  it('have a configuration', async () => {
    const config = {
      architectures: ['LlamaForCausalLM'],
      hidden_size: 64,
      quantization_config: { quant_method: 'compressed-tensors', format: 'old' },
      torch_dtype: 'bfloat16',
    };
    const list: QuantizeModelOptions[] = safetensorsTargets.map((to) => ({ to, config }));
    list.push({ to: 'int8', config: { quantization_config: { quant_method: 'gptq' } } });
    list.push({ to: 'int8', config: { quantization_config: {} } });
    list.push({ to: 'int8', config: {}, activations: 'int8-dynamic' });
    list.push({ to: 'int8', config, packed: false });
    golden.check('configurations', await digestsOf(plainModel(), list));
    const merged = mergeConfig(config, { quant_method: 'compressed-tensors', version: 1 });
    golden.check('merged configuration', { text: JSON.stringify(merged) });
  });

  it('become codes for each loader, of models that it knows', async () => {
    const decoder = [...decoderWeights({ layers: 1 })].map(([name, { shape, values }]): [string, TestTensor] => [
      name,
      { dtype: 'F32', shape, data: values },
    ]);
    const language = folderOf(Object.fromEntries(decoder), {
      'config.json': decoderConfig('LlamaForCausalLM', { model_type: 'llama', torch_dtype: 'bfloat16' }),
    });
    const flux = safetensors({
      'double_blocks.0.img_attn.norm.query_norm.scale': bell('F32', [32], 70),
      'double_blocks.0.img_attn.proj.weight': bell('BF16', [160, 96], 71),
      'single_blocks.0.linear1.weight': bell('F32', [64, 128], 72),
    });
    const targets = (start: RegExp) => safetensorsTargets.filter((to) => start.test(to)).map((to) => ({ to }));
    golden.check('language model', await digestsOf(language, targets(/^(gptq|awq|mlx)/)));
    golden.check('diffusion model', await digestsOf(flux, targets(/^comfy/)));
  });

  it('become folders for WebLLM', async () => {
    const forget = registerLibrary({
      ...{ model: 'tiny-llama', family: 'llama', template: 'chatml', context: 128 },
      numbers: {
        ...{ hidden_size: tiny.hidden, intermediate_size: tiny.feedForward, num_hidden_layers: 1 },
        ...{ num_attention_heads: tiny.heads, num_key_value_heads: tiny.keyHeads, head_dim: tiny.hidden / tiny.heads },
        ...{ vocab_size: tiny.vocabulary, rms_norm_eps: 1e-5, rope_theta: 10000, rope_scaling: 'none' },
        tie_word_embeddings: false,
      },
    });
    // In the order of files of transformers, which has others between those that are joined.
    const sorted = [...decoderWeights({ layers: 1 })].sort(([a], [b]) => (a < b ? -1 : 1));
    const tensors = sorted.map(([name, { shape, values }]): [string, TestTensor] => [
      name,
      { dtype: 'F32', shape, data: values },
    ]);
    const model = folderOf(Object.fromEntries(tensors), {
      'config.json': decoderConfig('LlamaForCausalLM', { num_hidden_layers: 1, hidden_act: undefined }),
      'tokenizer.json': plainTokenizer() as Json,
      'generation_config.json': { eos_token_id: [2, 5], temperature: 0.5 },
    });
    const digests: Digests = {};
    for (const { name } of mlcTargets) {
      const to = name as MlcTarget;
      for (const options of [{ to }, { to, search: 'best' as const }]) {
        const { files, bytes } = await quantizeModel(model, { ...options, workers: 0 });
        for (const file of files) digests[`${nameOf(options)} ${file.name}`] = await digestOf(await bytes(file.name));
      }
    }
    forget();
    golden.check('WebLLM', digests);
  });

  it('come in shards', async () => {
    const files = shards();
    const list: QuantizeModelOptions[] = [
      { to: 'int8' },
      { to: 'int8', ...plain },
      { to: 'int4', granularity: { kind: 'per-group', groupSize: 32 } },
      { to: 'float16' },
    ];
    const digests = await digestsOf(files, list);
    digests.inspect = await digestOf(await inspectModel(files));
    digests['without a shard'] = factsOf(await inspectModel(files.slice(0, 2)).catch((error) => error));
    golden.check('shards', digests);
    const place = join(folder, 'shards');
    await mkdir(place);
    for (const file of files) await writeFile(join(place, file.name), await file.bytes());
    const index = join(place, 'model.safetensors.index.json');
    golden.check('shards', {
      ...(await digestsOf(index, list)),
      inspect: await digestOf(await inspectModel(index)),
      'without a shard': digests['without a shard'],
    });
  });

  it('take every way through the tiles', async () => {
    golden.check('ways, small', await digestsOf(smallModel(), ways));
    golden.check('ways, large', await digestsOf(mixedModel(), ways));
  });

  it('take every way through the tiles with a search', async () => {
    const list = ways.flatMap((way) =>
      way.to === 'int8' || way.to === 'int4'
        ? [
            { ...way, range: 'mse' as const },
            { ...way, range: { percentile: 99 } },
          ]
        : [],
    );
    golden.check('searches, small', await digestsOf(smallModel(), list));
  });
});

// ------------------------------------------------------------------------------------------------------------------------ outputs

/** A stream that collects the bytes that are written to it. */
function collector(): { stream: WritableStream<Bytes>; bytes: () => Promise<Bytes> } {
  const pieces: Bytes[] = [];
  const stream = new WritableStream<Bytes>({ write: (piece) => void pieces.push(piece.slice()) });
  return { stream, bytes: () => new Blob(pieces).bytes() };
}

describe('a result', () => {
  it('is the same in memory, at a path, in a stream, and with workers', async () => {
    const digests: Digests = {};
    const inputs: [string, Bytes, readonly QuantizeModelOptions[]][] = [
      ['safetensors', smallModel(), ways],
      ['gguf', tinyLlama(), (['Q4_K_M', 'Q8_0', 'F32'] as const).map((to) => ({ to }))],
      ['npy', npyFiles()['f2 33 x 64, column-major'] as Bytes, [{ to: 'int8' }, { to: 'bfloat16' }]],
    ];
    const path = join(folder, 'output');
    for (const [format, file, list] of inputs) {
      for (const options of list) {
        const name = `${format} ${nameOf(options)}`;
        const plain = await bytesOfResult(file, options);
        digests[name] = await digestOf(plain);
        // Two of the options are enough here: engine.node.test.ts takes every way to every kind of output.
        if (options !== list[0] && options !== list[2]) continue;
        for (const workers of [0, 1]) {
          const reports: string[] = [];
          const inMemory = await quantizeModel(file, { ...options, workers });
          expect(await digestOf(await inMemory.bytes()), `${name} in memory`).toBe(digests[name]);
          reports.push(await digestOf(inMemory.report));
          const atPath = await quantizeModel(file, { ...options, workers, output: path, overwrite: true });
          expect(await digestOf(new Uint8Array(await readFile(path))), `${name} at a path`).toBe(digests[name]);
          reports.push(await digestOf(atPath.report));
          const { stream, bytes } = collector();
          const streamed = await quantizeModel(file, { ...options, workers, output: stream });
          expect(await digestOf(await bytes()), `${name} in a stream`).toBe(digests[name]);
          reports.push(await digestOf(streamed.report));
          expect(new Set(reports), `reports of ${name}`).toEqual(new Set([reports[0]]));
        }
      }
    }
    golden.check('outputs', digests);
  });

  it('is the same in a stream with workers where tiles are cut', async () => {
    const file = mixedModel();
    const digests: Digests = {};
    for (const options of [ways[2], ways[6], ways[9]] as QuantizeModelOptions[]) {
      const { stream, bytes } = collector();
      await quantizeModel(file, { ...options, workers: 2, output: stream });
      digests[nameOf(options)] = await digestOf(await bytes());
      expect(await digestOf(await bytesOfResult(file, options))).toBe(digests[nameOf(options)]);
    }
    golden.check('outputs, large', digests);
  });
});

// -------------------------------------------------------------------------------------------------------------- other formats

describe('.npy', () => {
  it('becomes safetensors', async () => {
    for (const [name, file] of Object.entries(npyFiles())) {
      const list: QuantizeModelOptions[] = safetensorsTargets.map((to) => ({ to }));
      list.push({ to: 'int8', scheme: 'asymmetric', range: 'mse' });
      list.push({ to: 'int8', packed: false }, { to: 'int8', scheme: 'asymmetric', range: 'mse', packed: false });
      list.push({ to: 'int4', granularity: { kind: 'per-group', groupSize: 32 } });
      golden.check(`npy ${name}`, await digestsOf(file, list));
    }
  });
});

describe('GGUF', () => {
  const short = ['Q3_K', 'Q4_K', 'Q5_K'] as const;

  it('becomes every file type', async () => {
    const list = [...ggufTargets, ...short].flatMap((to) => [{ to }, { to, pure: true }]);
    golden.check('gguf plain', await digestsOf(tinyLlama(), list));
  });

  it('has mixtures that depend on the model', async () => {
    const targets = ['Q2_K', 'Q3_K_L', 'Q4_K_M', 'Q5_K_S', 'IQ4_NL', 'Q8_0', 'F16'] as const;
    for (const [name, options] of Object.entries(ggufVariants)) {
      if (name === 'plain') continue;
      const list: QuantizeModelOptions[] = targets.map((to) => ({ to }));
      list.push({ to: 'Q4_0', fixAlignment: true });
      golden.check(`gguf ${name}`, await digestsOf(tinyLlama(options), list));
    }
  });

  it('follows rules', async () => {
    const types = ['F32', 'F16', 'BF16', 'Q4_0', 'Q5_1', 'Q2_K', 'Q6_K', 'IQ4_NL', 'MXFP4'];
    const list: QuantizeModelOptions[] = types.map((to) => ({ to: 'Q4_K_M', rules: [{ match: /ffn_down/, to }] }));
    list.push({ to: 'Q8_0', rules: [{ match: /attn/, keep: true }] });
    list.push({ to: 'Q8_0', rules: [{ match: /norm/, to: 'Q4_0' }] });
    list.push({ to: 'Q8_0', rules: [{ match: /x/, to: 'int8' }] });
    golden.check('gguf rules', await digestsOf(tinyLlama({ layers: 1 }), list));
  });

  it('is quantized again where that is asked for', async () => {
    for (const from of ['Q8_0', 'Q4_K_M', 'Q5_1'] as const) {
      const file = await bytesOfResult(tinyLlama(), { to: from });
      const list: QuantizeModelOptions[] = (['Q4_0', 'Q6_K', 'Q8_0', 'F16', 'F32'] as const).flatMap((to) => [
        { to },
        { to, requantize: true },
      ]);
      golden.check(`gguf again from ${from}`, await digestsOf(file, list));
    }
  });
});

// ------------------------------------------------------------------------------------------------------------------------ reading

const everyFile = (): Record<string, ModelInput> => ({
  names: namedModel(),
  plain: plainModel(),
  small: smallModel(),
  shards: shards(),
  ...Object.fromEntries(Object.entries(npyFiles()).map(([name, file]) => [`npy ${name}`, file])),
  ...Object.fromEntries(Object.entries(ggufVariants).map(([name, options]) => [`gguf ${name}`, tinyLlama(options)])),
});

describe('a model', () => {
  it('is shown, and read tensor by tensor', async () => {
    const digests: Digests = {};
    for (const [name, file] of Object.entries(everyFile())) {
      const info = await inspectModel(file);
      const tensors = [];
      for (const tensor of info.tensors) tensors.push(await readTensor(file, tensor.name));
      digests[name] = `inspect ${await digestOf(info)}, tensors ${await digestOf(tensors)}`;
    }
    golden.check('reading', digests);
  });

  it('is held against what was made of it', async () => {
    const digests: Digests = {};
    const cases: [string, ModelInput, readonly QuantizeModelOptions[]][] = [
      ['safetensors', namedModel(), ways.map(({ rules: _, ...way }) => way)],
      ['shards', shards(), [{ to: 'int8' }]],
      ['gguf', tinyLlama(), ggufTargets.filter((to) => !/^(Q2_K_S|IQ[12]_|IQ3_XX?S)/.test(to)).map((to) => ({ to }))],
      ['npy', npyFiles()['f4 40 x 128, column-major'] as Bytes, [{ to: 'int8' }, { to: 'float16' }]],
    ];
    for (const [format, file, list] of cases) {
      for (const given of list) {
        const rules = given.to === 'float16' ? [{ match: /extreme/, keep: true as const }] : [];
        const options = { ...given, ...(rules.length > 0 ? { rules } : {}) };
        const made = await bytesOfResult(file, options);
        digests[`${format} ${nameOf(options)}`] = await digestOf(await compared(file, made, { workers: 0 }));
      }
    }
    const [a, b] = [namedModel(), plainModel()];
    digests['two models'] = await digestOf(await compared(a, b, { workers: 0 }));
    digests['safetensors and gguf'] = await digestOf(await compared(a, tinyLlama(), { workers: 0 }));
    digests['large, codes'] = await digestOf(
      await compared(mixedModel(), await bytesOfResult(mixedModel(), { to: 'int4', scheme: 'asymmetric' }), {
        workers: 0,
      }),
    );
    golden.check('comparing', digests);
  });
});

// ------------------------------------------------------------------------------------------------------------------------- errors

const withNaN = (value: number) => {
  const data = new Random(70).bell(64 * 128);
  data[777] = value;
  return safetensors({ 'a.weight': bell('F32', [8, 32], 71), 'b.weight': { dtype: 'F32', shape: [64, 128], data } });
};

describe('an error', () => {
  it('names the option', async () => {
    const file = plainModel();
    const gguf = tinyLlama({ layers: 1 });
    const bad: Record<string, unknown> = {
      nothing: undefined,
      null: null,
      'a string': 'int8',
      'no target': {},
      'another target': { to: 'int3' },
      'a target in capitals': { to: 'INT8' },
      'a number': { to: 8 },
      unknown: { to: 'int8', bits: 4 },
      scheme: { to: 'int8', scheme: 'affine' },
      'granularity, a string': { to: 'int8', granularity: 'per-channel' },
      'granularity, per-tensor': { to: 'int8', granularity: { kind: 'per-tensor' } },
      'granularity, no size': { to: 'int8', granularity: { kind: 'per-group' } },
      'granularity, 12': { to: 'int8', granularity: { kind: 'per-group', groupSize: 12 } },
      'granularity, too large': { to: 'int8', granularity: { kind: 'per-group', groupSize: 2 ** 19 } },
      'granularity, channel with size': { to: 'int8', granularity: { kind: 'per-channel', groupSize: 32 } },
      range: { to: 'int8', range: 'max' },
      'range, percentile 50': { to: 'int8', range: { percentile: 50 } },
      'range, percentile 101': { to: 'int8', range: { percentile: 101 } },
      'range, given': { to: 'int8', range: { min: -1, max: 1 } },
      packed: { to: 'int8', packed: 'yes' },
      'packed false of int4': { to: 'int4', packed: false },
      'packed false with groups': { to: 'int8', packed: false, granularity: { kind: 'per-group', groupSize: 32 } },
      activations: { to: 'int8', activations: 'int4' },
      'activations of int4': { to: 'int4', activations: 'int8-dynamic' },
      'activations with zero points': { to: 'int8', scheme: 'asymmetric', activations: 'int8-dynamic' },
      'activations, packed': { to: 'int8', packed: true, activations: 'int8-dynamic' },
      'float16 with a range': { to: 'float16', range: 'mse' },
      'float16 with a granularity': { to: 'float16', granularity: { kind: 'per-channel' } },
      'float8 with zero points': { to: 'float8e4m3fn', scheme: 'asymmetric' },
      'float8 in groups': { to: 'float8e4m3fn', granularity: { kind: 'per-group', groupSize: 32 } },
      'float8 packed': { to: 'float8e4m3fn', packed: true },
      'float8 with a range': { to: 'float8e4m3fn', range: 'mse' },
      'rules, an object': { to: 'int8', rules: {} },
      'rules, a text': { to: 'int8', rules: [{ match: '(a', keep: true }] },
      'rules, null': { to: 'int8', rules: [null] },
      'rules, neither': { to: 'int8', rules: [{ match: /a/ }] },
      'rules, both': { to: 'int8', rules: [{ match: /a/, keep: true, to: 'int8' }] },
      'rules, keep 1': { to: 'int8', rules: [{ match: /a/, keep: 1 }] },
      'rules, a target': { to: 'int8', rules: [{ match: /a/, to: 'Q4_0' }] },
      'rules, granularity of float16': {
        to: 'int8',
        rules: [{ match: /a/, to: 'float16', granularity: { kind: 'per-channel' } }],
      },
      'rules, granularity': { to: 'int8', rules: [{ match: /a/, to: 'int8', granularity: { kind: 'per-row' } }] },
      'rules, two forms': { to: 'int8', rules: [{ match: /a/, to: 'float8e4m3fn' }] },
      'a target of GGUF': { to: 'Q4_K_M' },
      'an option of GGUF': { to: 'int8', pure: true },
      fixAlignment: { to: 'int8', fixAlignment: true },
      overwrite: { to: 'int8', overwrite: 1 },
      minSqnrDb: { to: 'int8', minSqnrDb: '30' },
      'config, an array': { to: 'int8', config: [] },
      'workers, a text': { to: 'int8', workers: '2' },
      'workers, -1': { to: 'int8', workers: -1 },
      'workers, 65': { to: 'int8', workers: 65 },
      'workers, 1.5': { to: 'int8', workers: 1.5 },
      worker: { to: 'int8', worker: 'worker.js' },
      onProgress: { to: 'int8', onProgress: true },
      signal: { to: 'int8', signal: {} },
      output: { to: 'int8', output: 7 },
    };
    const badGguf: Record<string, unknown> = {
      'a target of safetensors': { to: 'int8' },
      scheme: { to: 'Q4_0', scheme: 'symmetric' },
      granularity: { to: 'Q4_0', granularity: { kind: 'per-channel' } },
      packed: { to: 'Q4_0', packed: true },
      pure: { to: 'Q4_0', pure: 1 },
      requantize: { to: 'Q4_0', requantize: 'yes' },
      fixAlignment: { to: 'Q4_0', fixAlignment: 32 },
      'rules, a target': { to: 'Q4_0', rules: [{ match: /a/, to: 'Q4_K_M' }] },
      'rules, granularity': { to: 'Q4_0', rules: [{ match: /a/, to: 'Q4_0', granularity: { kind: 'per-channel' } }] },
    };
    for (const [group, model, list] of [
      ['wrong options', file, bad],
      ['wrong options of GGUF', gguf, badGguf],
    ] as const) {
      const words: Digests = {};
      for (const [name, options] of Object.entries(list)) {
        const planned = await outcomeOf(() => planModel(model, options as PlanOptions));
        const done = await outcomeOf(() => quantizeModel(model, options as QuantizeModelOptions));
        const say = (outcome: { error: string } | object) => ('error' in outcome ? String(outcome.error) : 'accepted');
        words[name] = say(planned) === say(done) ? say(done) : `plan: ${say(planned)}; quantize: ${say(done)}`;
      }
      golden.check(group, words);
    }
    golden.check('wrong options of compare', {
      null: factsOf(await compareModels(file, file, null as never).catch((error) => error)),
      unknown: factsOf(await compareModels(file, file, { to: 'int8' } as never).catch((error) => error)),
      workers: factsOf(await compareModels(file, file, { workers: 99 }).catch((error) => error)),
    });
  });

  it('says what is wrong with a file', async () => {
    const good = plainModel();
    const gguf = tinyLlama({ layers: 1 });
    const array = npyFiles()['f4 40 x 128'] as Bytes;
    const text = (value: string) => new TextEncoder().encode(value);
    const entry = (rest: string) => fileWith(`{"a":${rest}}`, 64);
    const patched = (file: Bytes, at: number, ...bytes: number[]) => {
      const copy = file.slice();
      copy.set(bytes, at);
      return copy;
    };
    const files: Record<string, unknown> = {
      empty: new Uint8Array(0),
      zip: Uint8Array.of(0x50, 0x4b, 3, 4, 0, 0, 0, 0, 0, 0),
      pickle: Uint8Array.of(0x80, 2, 0, 0, 0, 0, 0, 0, 0, 0),
      HDF5: Uint8Array.of(0x89, 0x48, 0x44, 0x46, 0, 0, 0, 0, 0),
      HTML: text('<!doctype html>'),
      ONNX: Uint8Array.of(8, 7, 0x12, 0),
      'git-lfs': text('version https://git-lfs.github.com/spec/v1'),
      text: text('hello world, this is nothing'),
      'no file': undefined,
      'a number': 7,
      'no files': [],
      'two files without an index': [good, good],
      'a missing path': join(folder, 'missing.safetensors'),
      'a folder': folder,
      'safetensors, cut': good.subarray(0, good.length - 1),
      'safetensors, cut in the header': good.subarray(0, 40),
      'safetensors, longer': new Uint8Array([...good.subarray(0, 500), 0]),
      'safetensors, header too long': patched(good, 4, 255),
      'safetensors, unknown dtype': entry('{"dtype":"F7","shape":[16],"data_offsets":[0,64]}'),
      'safetensors, wrong size': entry('{"dtype":"F32","shape":[15],"data_offsets":[0,64]}'),
      'safetensors, offsets beyond': entry('{"dtype":"F32","shape":[32],"data_offsets":[0,128]}'),
      'safetensors, negative': entry('{"dtype":"F32","shape":[-16],"data_offsets":[0,64]}'),
      'safetensors, no shape': entry('{"dtype":"F32","data_offsets":[0,64]}'),
      'safetensors, reversed': entry('{"dtype":"F32","shape":[16],"data_offsets":[64,0]}'),
      'safetensors, twice': fileWith(
        '{"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}}',
        2,
      ),
      'safetensors, overlap': fileWith(
        '{"a":{"dtype":"U8","shape":[3],"data_offsets":[0,3]},"b":{"dtype":"U8","shape":[3],"data_offsets":[2,5]}}',
        5,
      ),
      'safetensors, a hole': fileWith(
        '{"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"b":{"dtype":"U8","shape":[2],"data_offsets":[3,5]}}',
        5,
      ),
      'safetensors, metadata': fileWith('{"__metadata__":{"a":1}}'),
      'index, no map': [new File(['{"metadata":{}}'], 'model.safetensors.index.json'), good],
      'gguf, version': patched(gguf, 4, 9),
      'gguf, tensors': patched(gguf, 8, 255, 255, 255),
      'gguf, pairs': patched(gguf, 16, 255, 255),
      'gguf, cut in the header': gguf.subarray(0, 300),
      'gguf, cut': gguf.subarray(0, gguf.length - 500),
      'gguf, a type': patched(gguf, 24 + 8 + 20, 99),
      'gguf, NVFP4': ggufFile({
        pairs: [['general.architecture', 'string', 'llama']],
        tensors: [{ name: 'a.weight', dtype: 'NVFP4', ne: [256, 2] }],
      }),
      'gguf, one of several': tinyLlama({ layers: 1, pairs: [['split.count', 'u16', 2]] }),
      'npy, cut': array.subarray(0, array.length - 1),
      'npy, cut in the header': array.subarray(0, 30),
      'npy, version': patched(array, 6, 9),
      'npy, no dict': patched(array, 10, 0x28),
      'npy, complex': npy('<c16', [2, 2], new Float64Array(8)),
      'npy, objects': npy('|O', [2], new Float64Array(2)),
    };
    const words: Digests = {};
    for (const [name, file] of Object.entries(files)) {
      const to = name.startsWith('gguf') ? 'Q8_0' : 'int8';
      const seen = await outcomeOf(() => inspectModel(file as ModelInput));
      const done = await outcomeOf(() => quantizeModel(file as ModelInput, { to, workers: 0 }));
      const say = (outcome: { error: string } | object) => ('error' in outcome ? String(outcome.error) : 'accepted');
      const all = say(seen) === say(done) ? say(done) : `inspect: ${say(seen)}; quantize: ${say(done)}`;
      words[name] = all.replaceAll(folder, '<folder>');
    }
    golden.check('wrong files', words);
  });

  it('says what is wrong with values, and with outputs', async () => {
    const words: Digests = {};
    const fail = async (name: string, f: () => Promise<unknown>) => {
      const outcome = await outcomeOf(f);
      words[name] = ('error' in outcome ? outcome.error : 'accepted').replaceAll(folder, '<folder>');
    };
    for (const value of [Number.NaN, Infinity, 1e30]) {
      for (const to of safetensorsTargets) {
        for (const workers of to === 'int8' ? [0, 2] : [0]) {
          await fail(`${value} to ${to}, workers ${workers}`, () => quantizeModel(withNaN(value), { to, workers }));
        }
      }
    }
    const data = ggufWeights('F32', 256 * 4, 3);
    new DataView(data.buffer).setFloat32(4 * 300, Number.NaN, true);
    const bad = tinyLlama({ layers: 1, tensors: [{ name: 'bad.weight', dtype: 'F32', ne: [256, 4], data }] });
    const huge = data.slice();
    new DataView(huge.buffer).setFloat32(4 * 300, 1e35, true);
    const far = tinyLlama({ layers: 1, tensors: [{ name: 'far.weight', dtype: 'F32', ne: [256, 4], data: huge }] });
    for (const to of ['Q8_0', 'Q4_K_M', 'F16', 'F32'] as const) {
      await fail(`NaN to ${to}`, () => quantizeModel(bad, { to, workers: 0 }));
      await fail(`1e35 to ${to}`, () => quantizeModel(far, { to, workers: 0 }));
    }
    await fail('quality', () => quantizeModel(plainModel(), { to: 'int4', workers: 0, minSqnrDb: 100 }));
    await fail('no such tensor', () => readTensor(plainModel(), 'e.weight'));
    const path = join(folder, 'exists');
    await writeFile(path, 'here');
    await fail('exists', () => quantizeModel(plainModel(), { to: 'int8', workers: 0, output: path }));
    const nowhere = join(folder, 'nowhere/result');
    await fail('no folder', () => quantizeModel(plainModel(), { to: 'int8', workers: 0, output: nowhere }));
    await fail('bytes of an output', async () => {
      const { stream } = collector();
      return (await quantizeModel(plainModel(), { to: 'int8', workers: 0, output: stream })).bytes();
    });
    const reason = new Error('enough');
    await fail('cancelled', () =>
      quantizeModel(plainModel(), { to: 'int8', workers: 0, signal: AbortSignal.abort(reason) }),
    );
    golden.check('wrong values', words);
  });
});

// ------------------------------------------------------------------------------------------------------------------ command line

/** Exit codes of runs of the command line, one after the other. */
async function runs(place: string, list: readonly string[]): Promise<Digests> {
  const codes: Digests = {};
  for (const line of list) codes[line] = `exit code ${(await run(line === '' ? [] : line.split(' '), {}, place)).code}`;
  return codes;
}

describe('the command line', () => {
  it('exits and writes as before', async () => {
    const place = join(folder, 'cli');
    await mkdir(place);
    const files: Record<string, Uint8Array | string> = {
      'model.safetensors': namedModel(),
      'plain.safetensors': plainModel(),
      'model.gguf': tinyLlama({ alignment: 64 }),
      'array.npy': npyFiles()['f4 40 x 128'] as Bytes,
      'bad.safetensors': plainModel().subarray(0, 4000),
      'nan.safetensors': withNaN(Number.NaN),
      'config.json': '{\n  "hidden_size": 64\n}\n',
      'text.txt': 'nothing',
    };
    for (const [name, content] of Object.entries(files)) await writeFile(join(place, name), content);
    golden.check(
      'command line',
      await runs(place, [
        '',
        'inspect model.safetensors',
        'inspect model.safetensors --json',
        'inspect model.gguf',
        'inspect model.gguf --json',
        'inspect array.npy',
        'inspect text.txt',
        'inspect bad.safetensors',
        'inspect bad.safetensors --json',
        'inspect missing',
        'inspect',
        'inspect a b',
        'plan model.safetensors --to int8',
        'plan model.safetensors --to int4 --group-size 64 --json',
        'plan plain.safetensors --to int8 --scheme asymmetric --packed --rule a=keep --json',
        'plan model.gguf --to q4_k_m',
        'plan model.gguf --to Q2_K --json',
        'plan model.gguf --to Q4_K_M --fix-alignment --rule ffn_down=q6_k',
        'plan model.safetensors',
        'plan model.safetensors --to int3',
        'plan model.safetensors --to Q4_0',
        'plan model.safetensors --to int8 --rule x',
        'plan model.safetensors --to int8 --rule nothing=keep --quiet',
        'plan model.safetensors --to int8 --group-size 12',
        'plan model.safetensors --to int8 --granularity per-row',
        'plan model.safetensors --to int8 --range percentile:40',
        'plan model.safetensors --to int8 --pure',
        'plan model.safetensors --to int8 --scheme odd',
        'plan model.safetensors --to int8 --unknown',
        'quantize plain.safetensors --to int8 -o dry --dry-run',
        'quantize plain.safetensors --to int8 --workers 0',
        'quantize plain.safetensors --to int4 --group-size 32 --range mse --workers 0 -o mse.safetensors --json',
        'quantize plain.safetensors --to int8 --config config.json --workers 0 -o model2.safetensors',
        'quantize model.gguf --to Q4_K_M --workers 0',
        'quantize array.npy --to int8 --workers 0 --quiet',
        'quantize plain.safetensors --to int4 --min-sqnr 90 --workers 0 -o never',
        'quantize plain.safetensors --to int4 --min-sqnr 90 --workers 0 -o never --json',
        'quantize nan.safetensors --to int8 --workers 0',
        'quantize nan.safetensors --to int8 --workers 0 --json',
        'quantize plain.safetensors --to int8 --workers 65',
        'quantize plain.safetensors --to int8 -o text.txt',
        'convert model.safetensors',
        '--wrong',
      ]),
    );
    golden.check(
      'command line, comparing',
      await runs(place, [
        'compare plain.safetensors plain.int8.safetensors --workers 0',
        'compare plain.safetensors mse.safetensors --workers 0 --sort sqnr --json',
        'compare plain.safetensors mse.safetensors --workers 0 --min-sqnr 60',
        'compare model.gguf model-Q4_K_M.gguf --workers 0',
        'compare model.gguf',
        'compare model.gguf model.safetensors --workers 0 --quiet',
        'quantize plain.safetensors --to int8 --workers 0',
      ]),
    );
    const written: Digests = {};
    for (const name of ['plain.int8.safetensors', 'plain.int8.config.json', 'mse.config.json', 'model2.config.json'])
      written[name] = await digestOf(new Uint8Array(await readFile(join(place, name))));
    golden.check('command line, files', written);
  });
});

// The help has a group of its own, since its wording changes more often than results do.
describe('the help of the command line', () => {
  it('is the same as before', async () => {
    const digests: Digests = {};
    const helps = Object.entries(commands).flatMap(([name, command]) => [
      `${name} --help`,
      ...('help-all' in command.flags() ? [`${name} --help-all`] : []),
    ]);
    for (const line of ['--help', ...helps]) {
      const { code, stdout, stderr } = await run(line.split(' '), {}, folder);
      expect([code, stderr]).toEqual([0, '']);
      digests[line] = await digestOf(stdout);
      if (line !== '--help') continue;
      for (const same of ['-h', 'help']) expect((await run([same], {}, folder)).stdout).toBe(stdout);
    }
    golden.check('help', digests);
  });
});
