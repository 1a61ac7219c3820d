// Decoders: their keys and tensors beside tables that were written by hand from llama.cpp's converter, and their logits in llama.cpp beside a
// forward pass in float64 that knows Hugging Face's definitions only. A family is a row of a list in support/decoders.
import { inspectModel, quantizeModel } from 'scalepoint/model';
import { describe, expect, it } from 'vitest';
import { convertHuggingface } from '../../../../web/src/architectures/huggingface/convert.js';
import type { Conversion } from '../../../../web/src/architectures/recipe.js';
import {
  caseOf,
  convertedDecoder,
  decoderTokens,
  type FolderJson,
  testDecoders,
  testRefusals,
} from '../../support/decoder-cases.js';
import { besideTowers } from '../../support/decoders/beside-towers.js';
import { dense } from '../../support/decoders/dense.js';
import { mixtures } from '../../support/decoders/experts.js';
import { hybrids, rwkvLines } from '../../support/decoders/hybrid.js';
import { latentAttention } from '../../support/decoders/latent.js';
import { mistral } from '../../support/decoders/mistral.js';
import { NativeModel } from '../../support/llama-run.js';
import { safetensors } from '../../support/models.js';
import { ownLogits } from '../../support/own-logits.js';
import { byName, elements, fileOf, folderOf, type Weights } from '../../support/recipes.js';
import { weightsOfTable } from '../../support/tensor-table.js';
import { decoderConfig, plainTokenizer } from '../../support/tiny-huggingface.js';

const families = [dense, mixtures, latentAttention, mistral, hybrids, besideTowers];
const cases = families.flatMap((family) => family.cases);
testDecoders(cases);
testRefusals(
  cases,
  families.flatMap(({ refusals }) => refusals),
);

it('outputs of models whose heads have norms of their own are refused', async () => {
  const one = caseOf(cases, 'Command R+');
  const weights = weightsOfTable(one.table, one.layers ?? 3);
  const file = new Uint8Array(fileOf(await convertedDecoder(one, weights), weights));
  await expect(ownLogits(file, decoderTokens)).rejects.toMatchObject({
    code: 'UNKNOWN_FORMAT',
    tensor: 'blk.0.attn_q_norm.weight',
  });
});

it('takes Phi-2 without a bias of the head as with one of zeros', async () => {
  const one = caseOf(cases, 'Phi-2');
  const weights = weightsOfTable(one.table, 3);
  const without = new Map([...weights].filter(([name]) => name !== 'lm_head.bias'));
  const zeros = new Map(weights).set('lm_head.bias', { shape: [264], values: new Float32Array(264) });
  const [made, stored] = [await convertedDecoder(one, without), await convertedDecoder(one, zeros)];
  expect(made.keys).toEqual(stored.keys);
  expect(made.tensors.find(({ name }) => name === 'output.bias')?.values).toEqual(new Float32Array(264));
  using native = new NativeModel(fileOf(made, without));
  using other = new NativeModel(fileOf(stored, zeros));
  expect(native.logits(decoderTokens)).toEqual(other.logits(decoderTokens));
});

it('reads the numbers of Apertus in a file', async () => {
  const one = caseOf(cases, 'Apertus');
  const weights = [...weightsOfTable(one.table, 3)].map(
    ([name, { shape, values }]) => [name, { dtype: 'F32' as const, shape, data: values }] as const,
  );
  const files = [
    new File([safetensors(Object.fromEntries(weights))], 'model.safetensors'),
    new File([JSON.stringify(decoderConfig(one.hugging, one.config))], 'config.json'),
    new File([JSON.stringify(plainTokenizer())], 'tokenizer.json'),
  ];
  const file = await (await quantizeModel(files, { to: 'F32', workers: 0 })).bytes();
  const { metadata } = await inspectModel(file);
  for (const [name, value] of one.keys.filter(([key]) => key.startsWith('xielu.')))
    expect([...(metadata[name] as Iterable<number>)], name).toEqual(value);
});

it.each([
  ['Llama 4', 'feed_forward.experts'],
  ['Granite with experts', 'block_sparse_moe.experts'],
  ['Qwen3-VL with experts', 'mlp.experts'],
  ['gpt-oss in 16 bits', 'mlp.experts'],
])('takes a tensor for each expert of %s in place of stacks', async (name, module) => {
  const one = caseOf(cases, name);
  const weights = weightsOfTable(one.table, one.layers ?? 3);
  const stacked = await convertedDecoder(one, weights);
  const apart = new Map(weights);
  for (const recipe of stacked.tensors) {
    const [, layer, part, end] = /^blk\.(\d+)\.ffn_(gate|up|down)_exps\.(weight|bias)$/.exec(recipe.name) ?? [];
    if (layer === undefined) continue;
    for (const source of recipe.sources) apart.delete(source);
    const [experts = 0, ...shape] = recipe.shape;
    const values = elements(recipe, weights);
    const size = values.length / experts;
    for (let e = 0; e < experts; e++)
      apart.set(`model.layers.${layer}.${module}.${e}.${part}_proj.${end}`, {
        shape,
        values: values.slice(e * size, (e + 1) * size),
      });
  }
  expect(apart.size).toBeGreaterThan(weights.size);
  const made = await convertedDecoder(one, apart);
  expect(made.keys).toEqual(stacked.keys);
  const all = (conversion: Conversion, of: Weights) =>
    byName(
      conversion.tensors.map(
        (recipe) =>
          [recipe.name, recipe.shape, Buffer.from(elements(recipe, of).slice().buffer).toString('base64')] as const,
      ),
    );
  expect(all(made, apart)).toEqual(all(stacked, weights));
});

it('takes the tokens of PLaMo 2 from its list', async () => {
  const one = caseOf(cases, 'PLaMo 2');
  const weights = weightsOfTable(one.table, 4);
  const { keys, notes } = await convertedDecoder(one, weights);
  const got = new Map(keys.flatMap(({ name, value }) => (name.startsWith('tokenizer.') ? [[name, value]] : [])));
  expect(notes).toEqual([]);
  const text = (got.get('tokenizer.ggml.tokens') as string[]).slice(-4);
  expect(text).toEqual(['<0xFF>', 'a', '[PAD1]', '[PAD2]']);
  const types = got.get('tokenizer.ggml.token_type') as number[];
  expect(types).toEqual([2, 3, 3, 3, 3, ...new Array<number>(256).fill(6), 1, 5, 5]);
  expect((got.get('tokenizer.ggml.scores') as number[]).slice(-3)).toEqual([-1.5, -1000, -1000]);
  const rest = [...got].filter(([name]) => !/tokens|token_type|scores/.test(name));
  expect(byName(rest.map(([name, value]) => [name.slice(15), value]))).toEqual(
    byName([
      ['model', 'plamo2'],
      ['pre', 'default'],
      ['bos_token_id', 1],
      ['eos_token_id', 2],
      ['eot_token_id', 4],
      ['add_space_prefix', false],
    ]),
  );
  const bad = (files: FolderJson) => convertedDecoder(one, weights, files);
  for (const [list, words] of [
    ['["a"]', /line 1 has to be a token and its score/],
    ['["a", 0]\n["a", 0]', /the token "a" occurs twice/],
    ['["a", 0]\n'.repeat(265), /vocab_size is 264, but tokenizer.jsonl has 265 tokens/],
    ['x', /tokenizer.jsonl: it is not JSON/],
  ] as const)
    await expect(bad({ 'tokenizer.jsonl': list })).rejects.toThrow(words);
  await expect(bad({ 'tokenizer.jsonl': undefined })).rejects.toMatchObject({ code: 'INCOMPLETE' });
  await expect(bad({ 'tokenizer_config.json': { sep_token: 'x' } })).rejects.toThrow(/sep_token "x" is no token/);
});

it('takes the tokens of RWKV from its list, and the names of its first folders', async () => {
  const one = caseOf(cases, 'RWKV 7');
  const weights = weightsOfTable(one.table, 3);
  const made = await convertedDecoder(one, weights, { 'tokenizer_config.json': { chat_template: 'left out' } });
  const { keys, notes } = made;
  const got = new Map(keys.flatMap(({ name, value }) => (name.startsWith('tokenizer.') ? [[name, value]] : [])));
  expect(notes).toEqual([]);
  const tokens = got.get('tokenizer.ggml.tokens') as string[];
  expect(tokens.slice(0, 12)).toEqual(['<s>', ...rwkvLines.map(([, token]) => token), '[PAD11]']);
  const types = got.get('tokenizer.ggml.token_type') as number[];
  expect(types).toEqual([3, ...rwkvLines.map(() => 1), ...new Array<number>(264 - 11).fill(5)]);
  const rest = [...got].filter(([name]) => !/tokens|token_type/.test(name));
  expect(byName(rest)).toEqual(
    byName([
      ['tokenizer.ggml.model', 'rwkv'],
      ['tokenizer.ggml.eot_token_id', 261],
      ['tokenizer.chat_template', 'rwkv-world'],
    ]),
  );
  const bad = (lines: string) => convertedDecoder(one, weights, { 'rwkv_vocab_v20230424.txt': lines });
  for (const line of ["1 'a' 2", "2 'a' 1", '1 a 1', "1 'a\\' 1", "1 '\\q' 1", "1 b'é' 2", "1 b'\\u0041' 1", "1 'a'"])
    await expect(bad(`${line}\n`), line).rejects.toThrow(/line 1 has to be 1, a token as Python writes it/);
  await expect(bad("1 'a' 1\n".repeat(264))).rejects.toThrow(/vocab_size is 264, but .* has 264 tokens/);
  // The first folders have other names, and narrow matrices as transposes; a folder of another kind has all shares in one tensor.
  const first = new Map(
    [...weights].map(([given, { shape, values }]) => {
      const narrow = /_lora\.lora\.[02]\.weight$/.test(given);
      const [rows = 1, columns = 1] = shape;
      const turned = values.map((_, i) => values[(i % rows) * columns + Math.floor(i / rows)]!);
      const name = given
        .replace('layers.0.pre_norm', 'pre_ln')
        .replace('model.norm', 'model.ln_out')
        .replace('lm_head', 'head')
        .replace(/attn_norm|ffn_norm/, (norm) => (norm.startsWith('a') ? 'ln1' : 'ln2'))
        .replace('attn.g_norm', 'attn.ln_x')
        .replace(
          /attn\.([rkvo])_proj/,
          (_, l: string) => `attn.${{ r: 'receptance', k: 'key', v: 'value', o: 'output' }[l]}`,
        )
        .replace(/_lora\.lora\.(0\.weight|2\.weight|2\.bias)$/, (_, end: string) =>
          end === '2.bias' ? '0' : end.startsWith('0') ? '1' : '2',
        )
        .replace('attn', 'attention')
        .replace('ffn', 'feed_forward');
      return [
        name,
        narrow
          ? { shape: [columns, rows], values: turned }
          : { shape: /\.k_[ak]$/.test(name) ? [1, 1, ...shape] : shape, values },
      ];
    }),
  );
  const joined = new Map(weights);
  for (const i of [0, 1, 2]) {
    const parts = [...'rwkvag'].map((l) => `model.layers.${i}.attn.x_${l}`);
    const values = Float32Array.from(parts.flatMap((name) => [...weights.get(name)!.values]));
    for (const name of parts) joined.delete(name);
    joined.set(`model.layers.${i}.attn.x_x`, { shape: [6, 128], values });
  }
  const ranks = Object.entries(one.config ?? {}).filter(([name]) => name.endsWith('_low_rank_dim'));
  const named = ['lora_rank_decay', 'lora_rank_iclr', 'lora_rank_value_residual_mix', 'lora_rank_gate'];
  const config = {
    ...{ head_dim: undefined, norm_eps: undefined, head_size: 64, layer_norm_epsilon: 1e-5 },
    ...Object.fromEntries(
      ranks.flatMap(([name, value], i) => [
        [name, undefined],
        [named[i]!, value],
      ]),
    ),
  };
  const all = ({ tensors }: Conversion, of: Weights) =>
    byName(
      tensors.map((one) => [one.name, one.shape, Buffer.from(elements(one, of).slice().buffer).toString('base64')]),
    );
  const others = await convertedDecoder({ ...one, config: { ...one.config, ...config } }, first);
  expect(all(others, first)).toEqual(all(made, weights));
  expect(others.keys).toEqual(keys);
  expect(all(await convertedDecoder(one, joined), joined)).toEqual(all(made, weights));
});

it('writes the pooling of Arcee', async () => {
  const one = caseOf(cases, 'Arcee');
  const { keys } = await convertedDecoder(one, weightsOfTable(one.table, 3), {
    'modules.json': [{ type: 'sentence_transformers.models.Pooling', path: '1_Pooling' }],
    '1_Pooling/config.json': { pooling_mode_mean_tokens: true },
  });
  expect(keys.find(({ name }) => name === 'arcee.pooling_type')?.value).toBe(1);
});

describe('tokens that the converter sets', () => {
  const ids = ({ keys }: Conversion) =>
    keys.filter(({ name }) => /_token_id$|add_/.test(name)).map(({ name, value }) => [name.slice(15), value]);
  const convertedOf = (name: string, config: FolderJson, files: FolderJson) => {
    const one = caseOf(cases, name);
    const weights = weightsOfTable(one.table, one.layers ?? 3);
    return convertedDecoder({ ...one, config: { ...one.config, ...config } }, weights, files);
  };
  const of = async (name: string, config: FolderJson, files: FolderJson) => ids(await convertedOf(name, config, files));

  it('for Gemma 1, Nemotron, Phi-2 and Hunyuan', async () => {
    const usual = { bos_token_id: 1, eos_token_id: 2, pad_token_id: 3 };
    expect(byName(await of('Gemma 1', usual, {}))).toEqual(
      byName([
        ['bos_token_id', 1],
        ['eos_token_id', 2],
        ['padding_token_id', 3],
        ['eot_token_id', 107],
        ['add_space_prefix', false],
      ]),
    );
    expect(byName(await of('Nemotron', usual, {}))).toEqual(
      byName([
        ['bos_token_id', 1],
        ['eos_token_id', 2],
        ['padding_token_id', 0],
        ['unknown_token_id', 1],
        ['add_space_prefix', false],
      ]),
    );
    expect(byName(await of('Phi-2', usual, { 'tokenizer_config.json': { add_bos_token: true } }))).toEqual(
      byName([
        ['add_bos_token', true],
        ['bos_token_id', 1],
        ['eos_token_id', 2],
        ['padding_token_id', 3],
        ['add_space_prefix', false],
      ]),
    );
    expect(byName(await of('Phi-2', {}, {}))).toEqual(
      byName([
        ['add_bos_token', false],
        ['add_space_prefix', false],
      ]),
    );
    const generation = { 'generation_config.json': { eos_token_id: [7, 8] } };
    expect(byName(await of('Hunyuan', { ...usual, eod_token_id: 5 }, generation))).toEqual(
      byName([
        ['bos_token_id', 1],
        ['eos_token_id', 5],
        ['padding_token_id', 3],
        ['eot_token_id', 7],
        ['add_space_prefix', false],
      ]),
    );
    const all = await convertedOf('ChatGLM 3 and GLM-4-9B', { eos_token_id: 2 }, {});
    expect(byName(ids(all))).toEqual(
      byName([
        ['add_bos_token', false],
        ['eos_token_id', 2],
        ['add_space_prefix', false],
      ]),
    );
    expect(byName(await of('Ernie 4.5', {}, { 'tokenizer_config.json': { add_prefix_space: true } }))).toEqual(
      byName([['add_space_prefix', true]]),
    );
  });
});

describe('limits of YaRN that llama.cpp rounds', () => {
  it.each([
    [false, 1],
    [true, 0],
    [undefined, 0],
  ])('have a note where config.json does not truncate them: %s', async (truncate, count) => {
    const yarn = { rope_type: 'yarn', factor: 32, original_max_position_embeddings: 64, truncate };
    const gptOss = caseOf(cases, 'gpt-oss in 16 bits');
    const one = { ...gptOss, config: { ...gptOss.config, rope_scaling: yarn } };
    const { notes } = await convertedDecoder(one, weightsOfTable(one.table, 4));
    const found = notes.filter(({ kind }) => kind === 'computedOtherwise');
    expect(found).toHaveLength(count);
    if (count > 0) expect(found[0]?.text).toContain('rope_scaling.truncate is false');
  });
});

describe('names and notes of language models beside towers', () => {
  const tower = { shape: [4], values: Float32Array.of(1, 2, 3, 4) };
  const named = (weights: Weights, change: (name: string) => string, ...towers: string[]): Weights =>
    new Map([
      ...[...weights].map(([name, weight]) => [change(name), weight] as const),
      ...towers.map((n) => [n, tower] as const),
    ]);

  it.each([
    ['LLaVA', (name: string) => `language_model.${name}`, 'vision_tower.vision_model.x', 'clip_vision_model'],
    [
      'LLaVA',
      (name: string) => name.replace('model.', 'model.language_model.'),
      'model.vision_tower.x',
      'clip_vision_model',
    ],
    ['SmolVLM', (name: string) => name.replace('model.', 'model.text_model.'), 'model.connector.x', 'smolvlm_vision'],
    ['Qwen3-VL', (name: string) => name.replace('model.', 'model.language_model.'), 'model.visual.x', 'qwen3_vl'],
  ])('of %s under the names of its folders', async (name, change, towerName, type) => {
    const one = caseOf(cases, name);
    const weights = weightsOfTable(one.table, 3);
    const plain = await convertedDecoder(one, weights);
    const vision = { ...(one.config?.vision_config as object | undefined), model_type: type };
    const { vision_config: _, ...config } = { ...one.config };
    const text = decoderConfig('', { ...config, architectures: undefined, num_hidden_layers: 3 });
    const files = {
      'config.json': { architectures: [one.hugging], text_config: text, vision_config: vision },
      'tokenizer.json': plainTokenizer(),
    };
    const whole = await convertHuggingface(folderOf(named(weights, change, towerName), files));
    expect(whole.keys).toEqual(plain.keys);
    expect(whole.tensors).toEqual(plain.tensors.map((tensor) => ({ ...tensor, sources: tensor.sources.map(change) })));
    expect(whole.notes).toEqual([
      expect.objectContaining({
        kind: 'towersLeftOut',
        count: 1,
        isKnown: true,
        text: "the vision tower is left out (1 tensor); mmproj: true with to: 'F16' makes a second file of it",
      }),
    ]);
  });

  it('names towers that are not converted', async () => {
    const weights = weightsOfTable(caseOf(cases, 'LLaVA').table, 3);
    const files = (more: object) => ({
      'config.json': { ...decoderConfig('LlamaForCausalLM'), ...more },
      'tokenizer.json': plainTokenizer(),
    });
    const folder = named(weights, (name) => name, 'audio_tower.x', 'vision_tower.y');
    const { notes } = await convertHuggingface(folderOf(folder, files({ audio_config: {} })));
    expect(notes).toMatchObject([{ kind: 'towersLeftOut', count: 2, isKnown: false }]);
    expect(notes[0]?.text).toMatch(/^towers for pictures or sound are left out \(2 tensors\)/);
    // Without towers there is nothing to say.
    expect((await convertHuggingface(folderOf(weights, files({ vision_config: {} })))).notes).toEqual([]);
  });
});
