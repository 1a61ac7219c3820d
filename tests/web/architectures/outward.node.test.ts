// GGUF files as sources of safetensors: whole results, beside the folder that the files were made from. Families are held by
// support/outward.ts in the tests of their tables.
import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { expect, it } from 'vitest';
import {
  inspectModel,
  type ModelTarget,
  type QuantizeModelOptions,
  quantizeModel,
  readFloats,
} from '../../../web/src/model.js';
import { caseOf } from '../support/decoder-cases.js';
import { dense } from '../support/decoders/dense.js';
import { mixtures } from '../support/decoders/experts.js';
import { latentAttention } from '../support/decoders/latent.js';
import { story, storyFolder } from '../support/divergence.js';
import { chosen, rejectionOf, safetensors } from '../support/models.js';
import { weightsOfTable } from '../support/tensor-table.js';
import { decoderConfig, plainTokenizer } from '../support/tiny-huggingface.js';
import { ggufFile, tinyLlama } from '../support/tiny-llama.js';
import { encoderOf, type Json, needTokenizers } from '../support/tokenizers.js';

needTokenizers();

const work = { workers: 0 } as const;
const inGguf = async (to: ModelTarget) =>
  (await quantizeModel(storyFolder, { to, missingBytes: 'keep', ...work })).bytes();
const jsonIn = (bytes: Uint8Array) => JSON.parse(new TextDecoder().decode(bytes)) as Json;

const digest = (bytes: Uint8Array) => createHash('sha256').update(bytes).digest('hex');

/** The tensors of a safetensors file by name: type, shape and a digest of their bytes. */
async function tensorsOf(file: Uint8Array<ArrayBuffer>) {
  const { tensors } = await inspectModel(file);
  return Object.fromEntries(
    tensors.map(({ name, dtype, shape, byteOffset, bytes }) => [
      name,
      [dtype, [...shape], digest(file.subarray(byteOffset, byteOffset + bytes))],
    ]),
  );
}

/** The tensors of the folder, which are in float16, as float32. */
async function widenedTensors() {
  const { tensors } = await inspectModel(storyFolder);
  const all = tensors.map(async ({ name, shape }) => {
    const { data } = await readFloats(storyFolder, name);
    return [name, ['F32', [...shape], digest(new Uint8Array(data.buffer, data.byteOffset, data.byteLength))]] as const;
  });
  return Object.fromEntries(await Promise.all(all));
}

it.each([
  ['F16', { to: 'float16' }],
  ['BF16', { to: 'bfloat16' }],
  ['F32', { to: 'float16', rules: [{ match: /./, keep: true }] }],
] as const)('an %s file gives the tensors of its folder, byte for byte', async (type, wish) => {
  const made = await quantizeModel(await inGguf(type), { ...wish, ...work });
  expect(made.files.map(({ name }) => name)).toEqual([
    ...['model.safetensors', 'config.json', 'tokenizer.json', 'tokenizer_config.json'],
  ]);
  const own =
    type === 'F32'
      ? await widenedTensors()
      : await tensorsOf(await (await quantizeModel(storyFolder, { ...wish, ...work })).bytes());
  expect(await tensorsOf(await made.bytes())).toEqual(own);
  // The numbers of config.json are those of the folder.
  const [config, theirs] = [
    jsonIn(await made.bytes('config.json')),
    jsonIn(readFileSync(`${storyFolder}/config.json`)),
  ];
  const { torch_dtype, head_dim, rope_theta, ...rest } = config;
  expect(torch_dtype).toBe(wish.to);
  expect(rope_theta).toBe(10000);
  expect(head_dim).toBe(Number(theirs.hidden_size) / Number(theirs.num_attention_heads));
  expect(theirs).toMatchObject(
    Object.fromEntries(Object.entries(rest).filter(([name]) => Object.hasOwn(theirs, name))),
  );
  expect(rest).toMatchObject({ model_type: 'llama', architectures: ['LlamaForCausalLM'], tie_word_embeddings: true });
  // The tokens are those of the folder, with the first one in front.
  const settings = jsonIn(await made.bytes('tokenizer_config.json'));
  const encoder = await encoderOf(jsonIn(await made.bytes('tokenizer.json')), settings);
  const original = await encoderOf(jsonIn(readFileSync(`${storyFolder}/tokenizer.json`)), {});
  expect(encoder.encode(story, { add_special_tokens: true }).ids).toEqual([
    1,
    ...original.encode(story, { add_special_tokens: false }).ids,
  ]);
});

it.each([
  [caseOf(mixtures.cases, 'gpt-oss in 16 bits'), 'gpt_oss'],
  [caseOf(mixtures.cases, 'Llama 4'), undefined],
  [caseOf(latentAttention.cases, 'DeepSeek V3'), 'deepseek_v3'],
  [caseOf(dense.cases, 'InternLM 2'), undefined],
] as const)('elements that change places come back through a file: $0.name', async (one, inMlx) => {
  const { table, layers = 3, hugging, config } = one;
  const stored = [...weightsOfTable(table, layers)].map(
    ([name, { shape, values: data }]) => [name, { dtype: 'F32', shape, data }] as const,
  );
  const text = (value: object) => new TextEncoder().encode(JSON.stringify(value));
  const settings = { num_hidden_layers: layers, torch_dtype: 'float16', model_type: inMlx, ...config };
  const beside = [
    chosen('config.json', text(decoderConfig(hugging, settings))),
    chosen('tokenizer.json', text(plainTokenizer())),
  ];
  const whole = chosen('model.safetensors', safetensors(Object.fromEntries(stored)));
  const half = await quantizeModel([whole, ...beside], { to: 'float16', ...work });
  const folder = [chosen('model.safetensors', await half.bytes()), ...beside];
  const file = await (await quantizeModel(folder, { to: 'F16', missingBytes: 'keep', ...work })).bytes();
  // Codes are those of a tensor for each expert, and in MLX those of a matrix of keys for each head.
  const inFloats = /norm|bias|sinks|router|gate\.weight/;
  for (const to of ['float16', 'int4', ...(inMlx === undefined ? [] : (['mlx-4bit'] as const))] as const) {
    const granularity = to === 'float16' ? undefined : ({ kind: 'per-group', groupSize: 32 } as const);
    const options = {
      to,
      granularity,
      rules: [{ match: inFloats, to: to.startsWith('mlx') ? 'bfloat16' : 'float16' }],
    };
    const made = await quantizeModel(file, { ...options, ...work } as QuantizeModelOptions);
    const own = await quantizeModel(folder, { ...options, ...work } as QuantizeModelOptions);
    expect(await tensorsOf(await made.bytes()), to).toEqual(await tensorsOf(await own.bytes()));
    expect(jsonIn(await made.bytes('config.json')).architectures).toEqual([hugging]);
    if (to === 'mlx-4bit' && hugging === 'DeepseekV3ForCausalLM') {
      const names = (await inspectModel(await made.bytes())).tensors.map(({ name }) => name);
      expect(names).toContain('model.layers.0.self_attn.unembed_out.scales');
      expect(names.some((name) => name.includes('kv_b_proj'))).toBe(false);
    }
  }
});

it('starts from the values of blocks, and describes codes in config.json', async () => {
  const file = await inGguf('Q8_0');
  expect(await rejectionOf(quantizeModel(file, { to: 'int8', ...work }))).toMatchObject({
    code: 'UNSUPPORTED_DTYPE',
    tensor: 'token_embd.weight',
    message: expect.stringContaining('requantize'),
  });
  const floats = await quantizeModel(file, { to: 'bfloat16', requantize: true, ...work });
  const names = ['config.json', 'tokenizer.json', 'tokenizer_config.json'];
  const folder = [
    chosen('model.safetensors', await floats.bytes()),
    ...(await Promise.all(names.map(async (name) => chosen(name, await floats.bytes(name))))),
  ];
  const back = await (await quantizeModel(folder, { to: 'F32', missingBytes: 'keep', ...work })).bytes();
  for (const { name } of (await inspectModel(file)).tensors) {
    const [was, is] = [await readFloats(file, name), await readFloats(back, name)];
    expect(is.shape).toEqual(was.shape);
    // bfloat16 has 8 digits, and rounds to the nearest.
    expect(is.data.every((value, i) => Math.abs(value - was.data[i]!) <= Math.abs(was.data[i]!) * 2 ** -8)).toBe(true);
  }
  const coded = await quantizeModel(file, { to: 'mlx-4bit', requantize: true, ...work });
  expect(jsonIn(await coded.bytes('config.json'))).toMatchObject({
    torch_dtype: 'bfloat16',
    quantization: { bits: 4, group_size: 64 },
    quantization_config: { bits: 4, group_size: 64 },
  });
});

it('refuses what it cannot turn back, and names what is missing', async () => {
  const error = (file: Uint8Array<ArrayBuffer>) => rejectionOf(quantizeModel(file, { to: 'float16', ...work }));
  const other = ggufFile({ pairs: [['general.architecture', 'string', 'rwkv6']], tensors: [] });
  expect(await error(other)).toMatchObject({
    code: 'UNKNOWN_FORMAT',
    message: 'models of the architecture "rwkv6" cannot be turned back into a folder: it is not known here',
  });
  expect(await error(tinyLlama())).toMatchObject({
    code: 'UNKNOWN_FORMAT',
    message: expect.stringContaining('the file cannot be turned back into a folder of LlamaForCausalLM: '),
  });
});
