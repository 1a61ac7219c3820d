// Sources and options of folders for transformers.js: each result has the bytes that the float32 graph of the same weights gives with the same
// options.
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import {
  calibrateModel,
  type ModelTarget,
  planModel,
  type QuantizeModelOptions,
  quantizeModel,
  readFloats,
} from 'scalepoint/model';
import { describe, expect, it } from 'vitest';
import { languageModel, useHub } from '../../hub/support.js';
import { folder, type Json } from '../../support/folders.js';
import { awqWeight, type ForeignWeight, gptqWeight } from '../../support/foreign-layouts.js';
import { activationsOf, matrixFile } from '../../support/importance.js';
import { pair, spellings } from '../../support/lora.js';
import { chosen, expectBytes, rejectionOf, safetensors, type TestTensor } from '../../support/models.js';
import { Random } from '../../support/support.js';
import { decoderConfig, decoderWeights, plainTokenizer } from '../../support/tiny-huggingface.js';
import { archive, dict, type Storage, tensor } from '../../support/torch-file.js';
import { makeOf } from './runs.js';

type Tensors = Readonly<Record<string, TestTensor>>;
type Input = Parameters<typeof quantizeModel>[0];
type Options = Omit<QuantizeModelOptions, 'to'>;

const float32 = (shape: readonly number[], data: Float32Array): TestTensor => ({
  dtype: 'F32',
  shape,
  data,
});
const tensors: Tensors = Object.fromEntries(
  [...decoderWeights()].map(([name, { shape, values }]) => [name, float32(shape, values)]),
);
const files = {
  'config.json': decoderConfig('LlamaForCausalLM', { tie_word_embeddings: false }),
  'tokenizer.json': plainTokenizer(),
};
const llama = () => folder(tensors, files);
const isProduct = (name: string) => /_proj\.weight$/.test(name);

/** The model in a folder, and the other files. */
async function modelOf(input: Input, to: string, options: Options = {}) {
  const made = await makeOf(input, { to: to as ModelTarget, ...options });
  const name = [...made.files.keys()].find((one) => one.endsWith('.onnx')) ?? '';
  return { ...made, name, file: made.files.get(name) as Uint8Array<ArrayBuffer> };
}

/** Compares a folder of a type with its float32 graph in that type. @param source options about the source */
async function expectAsGraph(input: Input, to: ModelTarget, options: Options = {}, source: Options = {}) {
  const floats = await modelOf(input, 'onnx:fp32', source);
  const made = await modelOf(input, `onnx:${to}`, { ...source, ...options });
  const expected = await quantizeModel(floats.file, { to, workers: 0, ...options });
  expectBytes(made.file, await expected.bytes(), made.name);
  expect(made.result.report.totals.quantized).toBe(expected.report.totals.quantized);
  return { ...made, floats: floats.file, expected };
}

describe('an adapter', () => {
  const module = 'model.layers.1.mlp.up_proj';
  const lora = [
    {
      file: [
        chosen('adapter_model.safetensors', safetensors(spellings.peft(module, pair(96, 64, 4, 2), 64, 0))),
        chosen('adapter_config.json', { peft_type: 'LORA', r: 4, lora_alpha: 8 }),
      ],
      strength: 0.5,
    },
  ];

  it('is merged on the way', async () => {
    const { result, floats } = await expectAsGraph(llama(), 'q4', {}, { lora });
    expect(result.report.notes.map(({ kind }) => kind)).toContain('adaptersMerged');
    const merged = await (await quantizeModel(llama(), { to: 'copy', lora, workers: 0 })).bytes();
    const [, ...beside] = llama();
    const other = await modelOf([chosen('model.safetensors', merged), ...beside], 'onnx:fp32');
    expectBytes(floats, other.file);
  });

  it('is not taken for a model', async () => {
    const alone = [chosen('model.safetensors', safetensors(tensors)), chosen('adapter_config.json', {})];
    const rest = Object.entries(files).map(([name, json]) => chosen(name, json));
    await expect(quantizeModel([...alone, ...rest], { to: 'onnx:q4' })).rejects.toThrow('adapter_config.json');
  });
});

describe('a source of codes', () => {
  /** The model with products in a layout, and the model of the floats that they stand for. */
  function coded(make: (rows: number, columns: number, seed: number) => ForeignWeight, quantization: Json) {
    const [codes, floats]: [Record<string, TestTensor>, Record<string, TestTensor>] = [{}, {}];
    for (const [i, [name, one]] of Object.entries(tensors).entries()) {
      if (!isProduct(name)) {
        codes[name] = one;
        floats[name] = one;
        continue;
      }
      const { tensors: parts, shape, values } = make(one.shape[0]!, one.shape[1]!, i + 1);
      for (const [end, part] of Object.entries(parts)) codes[name.replace(/\.weight$/, '') + end] = part;
      floats[name] = float32(shape, values);
    }
    const config = { ...files['config.json'], quantization_config: quantization };
    return { codes: folder(codes, { ...files, 'config.json': config }), floats: folder(floats, files) };
  }
  const layouts = {
    GPTQ: coded((rows, columns, seed) => gptqWeight({ rows, columns, bits: 4, groupSize: 32, groups: 'order', seed }), {
      quant_method: 'gptq',
      checkpoint_format: 'gptq',
      bits: 4,
      group_size: 32,
    }),
    AWQ: coded((rows, columns, seed) => awqWeight(rows, columns, 32, seed), {
      quant_method: 'awq',
      version: 'gemm',
      bits: 4,
      group_size: 32,
      zero_point: true,
    }),
  };

  it.each(Object.entries(layouts))('of %s is restored', async (_name, { codes, floats }) => {
    for (const to of ['fp32', 'q4', 'q8'] as const) {
      const [made, expected] = [
        await modelOf(codes, `onnx:${to}`, { requantize: true }),
        await modelOf(floats, `onnx:${to}`),
      ];
      expectBytes(made.file, expected.file, to);
      const config = JSON.parse(new TextDecoder().decode(made.files.get('config.json')));
      expect(config.quantization_config).toBeUndefined();
    }
    const refused = await rejectionOf(quantizeModel(codes, { to: 'onnx:q4' }));
    expect(refused).toMatchObject({ code: 'UNSUPPORTED_DTYPE', message: expect.stringContaining('requantize') });
  });

  it.each(['int4', 'float8e4m3fn'] as const)('of our own %s is restored', async (to) => {
    const options = to === 'int4' ? ({ granularity: { kind: 'per-group', groupSize: 32 } } as const) : {};
    const result = await quantizeModel(llama(), { to, ...options, workers: 0, config: files['config.json'] });
    const codes = [
      chosen('model.safetensors', await result.bytes()),
      chosen('config.json', result.config as object),
      chosen('tokenizer.json', files['tokenizer.json']),
    ];
    const restored: Record<string, TestTensor> = {};
    for (const [name, { shape }] of Object.entries(tensors))
      restored[name] = float32(shape, (await readFloats(codes, name)).data);
    const made = await modelOf(codes, 'onnx:q4', { requantize: true });
    expectBytes(made.file, (await modelOf(folder(restored, files), 'onnx:q4')).file);
  });

  it('of PyTorch has the bytes of safetensors', async () => {
    const storages: Storage[] = [];
    const entries = Object.entries(tensors).map(([name, { shape, data }], i) => {
      const bytes = new Uint8Array(data.buffer, data.byteOffset, data.byteLength);
      storages.push({ key: String(i), type: 'FloatStorage', bytes, count: bytes.length / 4 });
      return [name, tensor(storages[i] as Storage, shape)] as const;
    });
    const file = archive(dict(Object.fromEntries(entries)), storages);
    const [, ...beside] = llama();
    const made = await modelOf([chosen('pytorch_model.bin', file), ...beside], 'onnx:q4');
    expectBytes(made.file, (await modelOf(llama(), 'onnx:q4')).file);
  });
});

describe('the hub', () => {
  const place = useHub();

  it('gives the bytes of a folder', async () => {
    const remote = languageModel(2);
    await place.start({ repositories: { 'acme/tiny': { files: remote } } });
    const local = folder(tensors, {
      'config.json': decoderConfig('LlamaForCausalLM'),
      'tokenizer.json': plainTokenizer(),
    });
    const [made, expected] = [await modelOf('hf:acme/tiny', 'onnx:q4'), await modelOf(local, 'onnx:q4')];
    expectBytes(made.file, expected.file);
    expect([...made.files.keys()].sort()).toEqual([...expected.files.keys()].sort());
    for (const [name, bytes] of expected.files) if (name.endsWith('.json')) expect(made.files.get(name)).toEqual(bytes);
  });
});

describe('options have the effect that they have on the float32 graph', () => {
  it.each<[ModelTarget, Options]>([
    [
      'q4',
      {
        rules: [
          { match: '^lm_head', keep: true },
          { match: 'mlp', to: 'q8-blocks' },
        ],
      },
    ],
    ['q4', { rules: [{ match: 'q_proj', to: 'fp16' }], blockSize: 16, zeroPoints: true }],
    ['q8', { perTensor: true, reduceRange: true, range: 'mse' }],
    ['bnb4', { blockSize: 32 }],
    ['q8-blocks', { range: 'mse' }],
  ])('%s with %j', async (to, options) => {
    const { result } = await expectAsGraph(llama(), to, options);
    // Each option changes something.
    const plain = await modelOf(llama(), `onnx:${to}`);
    expect(Buffer.compare(plain.file, (await modelOf(llama(), `onnx:${to}`, options)).file)).not.toBe(0);
    expect(result.report.notes.filter(({ kind }) => kind === 'unusedRule')).toEqual([]);
  });

  it('caches in float16, whose type config.json states', async () => {
    const { files: made } = await expectAsGraph(llama(), 'fp16', { kvCache: 'float16' });
    const config = JSON.parse(new TextDecoder().decode(made.get('config.json')));
    expect(config['transformers.js_config'].kv_cache_dtype).toEqual({ fp16: 'float16' });
  });

  it('weights in a second file, which config.json counts', async () => {
    const made = await modelOf(llama(), 'onnx:q4', { externalData: true });
    const place = mkdtempSync(join(tmpdir(), 'scalepoint-external-'));
    try {
      writeFileSync(join(place, 'model.onnx'), (await modelOf(llama(), 'onnx:fp32')).file);
      const output = join(place, 'model_q4.onnx');
      await quantizeModel(join(place, 'model.onnx'), { to: 'q4', externalData: true, output, workers: 0 });
      for (const end of ['', '_data']) {
        expectBytes(made.files.get(`onnx/model_q4.onnx${end}`)!, readFileSync(output + end), end);
      }
    } finally {
      rmSync(place, { recursive: true });
    }
    const config = JSON.parse(new TextDecoder().decode(made.files.get('config.json')));
    expect(config['transformers.js_config'].use_external_data_format).toEqual({ 'model_q4.onnx': 1 });
  });

  it('a plan, also a saved one', async () => {
    const rules = [{ match: 'mlp', keep: true as const }];
    const plan = await planModel(llama(), { to: 'onnx:q4', rules });
    const expected = await modelOf(llama(), 'onnx:q4', { rules });
    for (const one of [plan, JSON.parse(JSON.stringify(plan))]) {
      const made = await quantizeModel(llama(), one);
      expectBytes(await made.bytes(made.files[0]!.name), expected.file);
    }
    const all = [...expected.files.values()].reduce((sum, { length }) => sum + length, 0);
    expect(plan.totals.bytesAfter).toBe(all);
  });
});

describe('statistics', () => {
  const random = new Random(5);
  const ids = Uint32Array.from({ length: 256 }, () => random.below(260));

  it('of the float32 graph', async () => {
    const { file } = await modelOf(llama(), 'onnx:fp32');
    const statistics = await calibrateModel(file, ids, { moments: true, ranges: true, chunkSize: 64, workers: 0 });
    await expectAsGraph(llama(), 'q4', { importance: statistics });
    const { result } = await expectAsGraph(llama(), 'q4', { method: 'gptq', moments: statistics });
    expect(result.report.tensors.some(({ error }) => error?.output !== undefined)).toBe(true);
    await expectAsGraph(llama(), 'fp16', { ranges: statistics });
  });

  it('reach a type behind one that takes none', async () => {
    const { file } = await modelOf(llama(), 'onnx:fp32');
    const statistics = await calibrateModel(file, ids, { moments: true, chunkSize: 64, workers: 0 });
    const options = { method: 'gptq', moments: statistics } as const;
    const both = await modelOf(llama(), 'onnx:fp16', { also: ['onnx:q4'], ...options });
    const alone = await modelOf(llama(), 'onnx:q4', options);
    expectBytes(both.files.get('onnx/model_q4.onnx')!, alone.files.get('onnx/model_q4.onnx')!);
  });

  it('of the folder, in the names of llama.cpp', async () => {
    const shapes = Object.entries(tensors).filter(([name]) => isProduct(name) || name.startsWith('lm_head'));
    const own = activationsOf(shapes.map(([name, { shape }]) => ({ name, shape })));
    const parts: Readonly<Record<string, string>> = {
      'self_attn.q_proj': 'attn_q',
      'self_attn.k_proj': 'attn_k',
      'self_attn.v_proj': 'attn_v',
      'self_attn.o_proj': 'attn_output',
      'mlp.gate_proj': 'ffn_gate',
      'mlp.up_proj': 'ffn_up',
      'mlp.down_proj': 'ffn_down',
    };
    const named = own.map((one) => ({
      ...one,
      name: one.name
        .replace(/^model\.layers\.(\d+)\.(.*)\.weight$/, (_, i, part) => `blk.${i}.${parts[part]}.weight`)
        .replace('lm_head', 'output'),
    }));
    const [mine, theirs] = [own, named].map((some) => chosen('imatrix.gguf', matrixFile(some)));
    const expected = await modelOf(llama(), 'onnx:q4', { importance: mine! });
    const made = await modelOf(llama(), 'onnx:q4', { importance: theirs! });
    expectBytes(made.file, expected.file);
    const plain = await modelOf(llama(), 'onnx:q4');
    expect(Buffer.compare(made.file, plain.file)).not.toBe(0);
    // Those that a run of the folder gives.
    const statistics = await calibrateModel(llama(), ids, { moments: true, chunkSize: 64, workers: 0 });
    const { result } = await modelOf(llama(), 'onnx:q4', { method: 'gptq', moments: statistics });
    const judged = result.report.tensors.filter(({ error }) => error?.output !== undefined).map(({ name }) => name);
    expect(judged).toEqual(expect.arrayContaining(shapes.map(([name]) => name)));
  });
});

describe('a size', () => {
  it('is held by types of ONNX', async () => {
    const made = await modelOf(llama(), 'onnx:q4', { targetBitsPerWeight: 6 });
    const { fit } = made.result;
    expect(new Set(fit?.rules.map(({ to }) => to)).size).toBeGreaterThan(1);
    await expectAsGraph(llama(), 'q4', { rules: fit!.rules });
    expectBytes(made.file, (await modelOf(llama(), 'onnx:q4', { rules: fit!.rules })).file);
  });
});

it.each<[string, Options, string]>([
  ['onnx:fp32', { rules: [{ match: 'mlp', keep: true }] }, 'rules'],
  ['onnx:fp32', { targetBitsPerWeight: 8 }, 'targetBitsPerWeight'],
  ['onnx:fp16', { targetSize: 100_000 }, 'targetSize'],
  ['onnx:q4', { minOutput: 0.99 }, 'minOutput'],
  ['onnx:q4', { config: {} }, 'config'],
  ['onnx:q4', { search: 'best' } as Options, 'search'],
  ['onnx:q4', { perTensor: true }, 'perTensor'],
  ['onnx:q4', { rules: [{ match: 'mlp', to: 'Q4_0' as ModelTarget }] }, 'rules[0].to'],
])('%s refuses %j by name', async (to, options, name) => {
  const refused = await rejectionOf(quantizeModel(llama(), { to: to as ModelTarget, ...options }));
  expect(refused).toBeInstanceOf(RangeError);
  expect((refused as Error).message).toContain(name);
});
