// Folders of language models to GGUF in one step, beside llama_model_quantize of a plain F32 file of the same recipes.
import { mkdir, mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import {
  compareModels,
  estimateModel,
  type FileInput,
  inspectModel,
  planModel,
  type QuantizeModelOptions,
  quantizeModel,
  ScalepointError,
} from 'scalepoint/model';
import { beforeAll, describe, expect, it } from 'vitest';
import { convertHuggingface } from '../../../web/src/architectures/huggingface/convert.js';
import type { GgufTarget } from '../../../web/src/formats/gguf/targets.js';
import { gptOssLayer, outside, prefix } from '../support/decoder-tables.js';
import { activationsOf, matrixFile } from '../support/importance.js';
import { fileTypes, llamaQuantize } from '../support/llama.js';
import { NativeModel } from '../support/llama-run.js';
import { chosen, rejectionOf, safetensors, type TestTensor } from '../support/models.js';
import { needNative } from '../support/native.js';
import { fileOf, folderOf, type Weights } from '../support/recipes.js';
import { type HandTable, weightsOfTable } from '../support/tensor-table.js';
import {
  type DecoderOptions,
  decoderConfig,
  decoderWeights,
  Maker,
  plainTokenizer,
} from '../support/tiny-huggingface.js';

let place: string;
beforeAll(async () => {
  place = await mkdtemp(join(tmpdir(), 'folder-'));
  return () => rm(place, { recursive: true });
});

type Stored = 'F32' | 'F16' | 'BF16';

/** The bits of a float that float16 holds exactly. */
function float16Bits(value: number): number {
  if (value === 0) return 0;
  const exponent = Math.max(-14, Math.floor(Math.log2(Math.abs(value))));
  const whole = Math.round(Math.abs(value) * 2 ** (10 - exponent));
  return (value < 0 ? 0x8000 : 0) + (exponent + 14) * 1024 + whole;
}

/** A weight as a file stores it. For 16 bits, the low bits of the floats are 0, so that nothing is rounded. */
function stored(values: Float32Array, shape: readonly number[], dtype: Stored): TestTensor {
  if (dtype === 'F32') return { dtype, shape, data: values };
  if (dtype === 'F16') return { dtype, shape, data: Uint16Array.from(values, float16Bits) };
  const bits = new Uint32Array(values.buffer, values.byteOffset, values.length);
  return { dtype, shape, data: Uint16Array.from(bits, (word) => word >>> 16) };
}

/** Weights that the type stores exactly. */
function exactly(weights: Weights, dtype: Stored): Weights {
  if (dtype === 'F32') return weights;
  return new Map(
    [...weights].map(([name, { shape, values }]) => {
      // 7 bits behind the first one for bfloat16; multiples of 1/1024 below 2 for float16.
      const words = new Uint32Array(values.slice().buffer).map((word) => word & 0xffff0000);
      // Without -0, which the writer of float16 has no bits for.
      const small = values.map((value) => Math.max(-1, Math.min(1, Math.round(value * 1024) / 1024)) + 0);
      return [name, { shape, values: dtype === 'F16' ? small : new Float32Array(words.buffer) }];
    }),
  );
}

type Files = Readonly<Record<string, unknown>>;

const checkpointOf = (weights: Weights, dtype: Stored = 'F32') =>
  safetensors(
    Object.fromEntries([...weights].map(([name, { shape, values }]) => [name, stored(values, shape, dtype)])),
  );

/** A folder as a list of files. */
function listOf(weights: Weights, files: Files, dtype: Stored = 'F32'): FileInput[] {
  const texts = Object.entries(files).map(([path, value]) => chosen(path, JSON.stringify(value)));
  return [chosen('model.safetensors', checkpointOf(weights, dtype)), ...texts];
}

const filesOf = (architecture: string, config: Record<string, unknown> = {}): Files => ({
  'config.json': decoderConfig(architecture, config),
  'tokenizer.json': plainTokenizer(),
});

async function convert(
  input: FileInput | readonly FileInput[],
  to: GgufTarget,
  options: Partial<QuantizeModelOptions> = {},
) {
  return (await quantizeModel(input, { workers: 0, ...options, to })).bytes();
}

function expectSame(got: Uint8Array, want: Uint8Array | string, what: string): void {
  if (typeof want === 'string') expect.fail(want);
  if (Buffer.compare(got, want) === 0) return;
  const at = got.findIndex((byte, i) => byte !== want[i]);
  expect.fail(`${what}: ${got.length} bytes instead of ${want.length}, the first difference at ${at}`);
}

const experts = {
  count: 3,
  router: 'mlp.gate',
  names: (e: number) => ['gate', 'up', 'down'].map((name) => `mlp.experts.${e}.${name}_proj`),
};

/** Models that need each of what recipes can say. */
const models: readonly (readonly [what: string, Files, DecoderOptions])[] = [
  [
    'Llama with biases and factors of frequencies',
    filesOf('LlamaForCausalLM', {
      attention_bias: true,
      rope_scaling: {
        rope_type: 'llama3',
        factor: 8,
        low_freq_factor: 1,
        high_freq_factor: 4,
        original_max_position_embeddings: 64,
      },
    }),
    { biases: ['q_proj', 'k_proj', 'v_proj', 'o_proj'] },
  ],
  ['Llama with tied embeddings', filesOf('LlamaForCausalLM', { tie_word_embeddings: true }), { tied: true }],
  [
    'Qwen3 with experts',
    filesOf('Qwen3MoeForCausalLM', {
      head_dim: 16,
      num_experts: 3,
      num_experts_per_tok: 2,
      moe_intermediate_size: 96,
      norm_topk_prob: true,
    }),
    { headNorms: true, experts },
  ],
  [
    'Gemma 2',
    filesOf('Gemma2ForCausalLM', { head_dim: 16, sliding_window: 4, query_pre_attn_scalar: 16 }),
    { gemma: true, tied: true },
  ],
];

/** Models whose tensors are made of rows of others. */
const divided: readonly (readonly [what: string, Files, HandTable])[] = [
  [
    'GPT-NeoX, whose queries, keys and values are gathered from each head',
    filesOf('GPTNeoXForCausalLM', { layer_norm_eps: 1e-5, rotary_pct: 0.25 }),
    {
      prefix: 'gpt_neox.layers.',
      outside: `
        gpt_neox.embed_in.weight          x  264x64
        gpt_neox.final_layer_norm.weight  x  64
        gpt_neox.final_layer_norm.bias    x  64
        embed_out.weight                  x  264x64`,
      layer: `
        input_layernorm.weight            x  64
        input_layernorm.bias              x  64
        post_attention_layernorm.weight   x  64
        post_attention_layernorm.bias     x  64
        attention.query_key_value.weight  x  192x64
        attention.query_key_value.bias    x  192
        attention.dense.weight            x  64x64
        attention.dense.bias              x  64
        mlp.dense_h_to_4h.weight          x  96x64
        mlp.dense_h_to_4h.bias            x  96
        mlp.dense_4h_to_h.weight          x  64x96
        mlp.dense_4h_to_h.bias            x  64`,
    },
  ],
  [
    'Ernie, whose matrices are halved',
    filesOf('Ernie4_5_ForCausalLM', { head_dim: 16 }),
    {
      prefix: 'ernie.layers.',
      outside: `
        ernie.embed_tokens.weight  x  264x64
        ernie.norm.weight          x  64
        lm_head.weight             x  264x64`,
      layer: `
        input_layernorm.weight           x  64
        post_attention_layernorm.weight  x  64
        self_attn.qkv_proj.weight        x  128x64
        self_attn.o_proj.weight          x  64x64
        mlp.up_gate_proj.weight          x  192x64
        mlp.down_proj.weight             x  64x96`,
    },
  ],
  [
    'GPT-2, whose matrices are transposed',
    filesOf('GPT2LMHeadModel', { n_embd: 64, n_layer: 3, n_head: 4, n_positions: 32 }),
    {
      prefix: 'h.',
      outside: `
        wte.weight   x  264x64
        wpe.weight   x  32x64
        ln_f.weight  x  64
        ln_f.bias    x  64`,
      layer: `
        ln_1.weight         x  64
        ln_1.bias           x  64
        ln_2.weight         x  64
        ln_2.bias           x  64
        attn.c_attn.weight  x  64x192
        attn.c_attn.bias    x  192
        attn.c_proj.weight  x  64x64
        attn.c_proj.bias    x  64
        mlp.c_fc.weight     x  64x256
        mlp.c_fc.bias       x  256
        mlp.c_proj.weight   x  256x64
        mlp.c_proj.bias     x  64`,
    },
  ],
  [
    'Qwen3.5, whose heads of values change places',
    filesOf('Qwen3_5ForCausalLM', {
      head_dim: 16,
      partial_rotary_factor: 0.25,
      linear_key_head_dim: 16,
      linear_value_head_dim: 16,
      linear_num_key_heads: 2,
      linear_num_value_heads: 4,
      full_attention_interval: 4,
      rope_scaling: { mrope_section: [1, 1] },
    }),
    {
      prefix: 'model.layers.',
      outside: `
        model.embed_tokens.weight  x  264x64
        model.norm.weight          x  64
        lm_head.weight             x  264x64
        mtp.norm.weight            x  64`,
      layer: `
        input_layernorm.weight           x  64
        post_attention_layernorm.weight  x  64
        mlp.gate_proj.weight             x  96x64
        mlp.up_proj.weight               x  96x64
        mlp.down_proj.weight             x  64x96
        linear_attn.in_proj_qkv.weight   x  128x64
        linear_attn.in_proj_z.weight     x  64x64
        linear_attn.in_proj_b.weight     x  4x64
        linear_attn.in_proj_a.weight     x  4x64
        linear_attn.conv1d.weight        x  128x1x4
        linear_attn.A_log                x  4
        linear_attn.dt_bias              x  4
        linear_attn.norm.weight          x  16
        linear_attn.out_proj.weight      x  64x64`,
    },
  ],
  [
    'Falcon-H1, whose weights are multiplied, some by a factor for each row',
    filesOf('FalconH1ForCausalLM', {
      head_dim: 16,
      mamba_d_ssm: 128,
      mamba_n_heads: 4,
      mamba_n_groups: 2,
      mamba_d_state: 16,
      key_multiplier: 0.8,
      attention_in_multiplier: 1.2,
      embedding_multiplier: 3.5,
      ssm_in_multiplier: 1.25,
      ssm_multipliers: [0.9, 1.1, 0.8, 1.3, 0.5],
    }),
    {
      prefix,
      outside: `
        model.embed_tokens.weight     x  264x64
        model.final_layernorm.weight  x  64
        lm_head.weight                x  264x64`,
      layer: `
        input_layernorm.weight         x  64
        pre_ff_layernorm.weight        x  64
        self_attn.q_proj.weight        x  64x64
        self_attn.k_proj.weight        x  32x64
        self_attn.v_proj.weight        x  32x64
        self_attn.o_proj.weight        x  64x64
        mamba.A_log                    x  4
        mamba.D                        x  4
        mamba.dt_bias                  x  4
        mamba.conv1d.weight            x  192x1x4
        mamba.conv1d.bias              x  192
        mamba.in_proj.weight           x  324x64
        mamba.out_proj.weight          x  64x128
        feed_forward.gate_proj.weight  x  96x64
        feed_forward.up_proj.weight    x  96x64
        feed_forward.down_proj.weight  x  64x96`,
    },
  ],
  [
    'gpt-oss, whose experts are transposed and have gates and ups in turn',
    filesOf('GptOssForCausalLM', { head_dim: 16, num_local_experts: 5, num_experts_per_tok: 2 }),
    {
      prefix,
      outside,
      layer: `${gptOssLayer}
        mlp.experts.gate_up_proj  x  5x64x192
        mlp.experts.down_proj     x  5x96x64`,
    },
  ],
];

/** A model whose transposes are larger than a tile. */
function wideTransposes(): { weights: Weights; files: Files } {
  const hidden = 640;
  const make = new Maker(8);
  make.matrix('wte.weight', 264, hidden).matrix('wpe.weight', 16, hidden).norm('ln_f', hidden);
  make.norm('h.0.ln_1', hidden).norm('h.0.ln_2', hidden);
  const matrices = { 'attn.c_attn': [1, 3], 'attn.c_proj': [1, 1], 'mlp.c_fc': [1, 4], 'mlp.c_proj': [4, 1] } as const;
  for (const [name, [into, out]] of Object.entries(matrices))
    make.matrix(`h.0.${name}.weight`, into * hidden, out * hidden).vector(`h.0.${name}.bias`, out * hidden, 0);
  const config = { n_embd: hidden, n_layer: 1, n_head: 4, n_positions: 16 };
  return { weights: make.weights, files: filesOf('GPT2LMHeadModel', config) };
}

describe('a folder', () => {
  needNative();

  it.each(divided)('of %s is read as its recipes say', async (_what, files, table) => {
    for (const dtype of ['F32', 'BF16', 'F16'] as const) {
      const weights = exactly(weightsOfTable(table, 3), dtype);
      const first = fileOf(await convertHuggingface(folderOf(weights, files)), weights);
      for (const to of dtype === 'F32' ? (['F32', 'Q4_K_M'] as const) : (['Q4_K_M'] as const)) {
        // Starting a worker takes most of the time.
        for (const workers of dtype === 'BF16' ? [0, 1] : [0]) {
          const got = await convert(listOf(weights, files, dtype), to, { workers });
          expectSame(got, llamaQuantize(first, fileTypes[to]!), `${dtype} to ${to}`);
        }
      }
    }
  });

  it.each(models)('of %s becomes what llama-quantize makes of the converted file', async (_what, files, options) => {
    for (const dtype of ['F32', 'BF16', 'F16'] as const) {
      const weights = exactly(decoderWeights(options), dtype);
      const first = fileOf(await convertHuggingface(folderOf(weights, files)), weights);
      for (const to of dtype === 'F32' ? (['F32', 'F16', 'BF16', 'Q8_0', 'Q2_K'] as const) : (['Q4_K_M'] as const)) {
        const got = await convert(listOf(weights, files, dtype), to);
        expectSame(got, llamaQuantize(first, fileTypes[to]!), `${dtype} to ${to}`);
      }
    }
  });

  it('becomes the same in two steps, with rules and in workers', async () => {
    const [, files, options] = models[2]!;
    const list = listOf(decoderWeights(options), files);
    const first = await convert(list, 'F32');
    const choices = {
      rules: [
        { match: /attn_v/, to: 'Q5_1' },
        { match: /ffn_up/, keep: true },
      ],
    } as const;
    expectSame(await convert(list, 'Q4_0', choices), await convert(first, 'Q4_0', choices), 'rules');
    expectSame(await convert(list, 'Q4_0', { workers: 2 }), await convert(first, 'Q4_0'), 'workers');
  });
});

/** A model whose queries are larger than a tile, which ends in the middle of a head and of a row. */
function wideModel(): { weights: Weights; files: Files } {
  const [hidden, head, heads] = [1000, 134, 8];
  const make = new Maker(7);
  make.matrix('model.embed_tokens.weight', 264, hidden).vector('model.norm.weight', hidden, 1);
  const p = 'model.layers.0.';
  make.matrix(`${p}self_attn.q_proj.weight`, heads * head, hidden);
  for (const name of ['k', 'v']) make.matrix(`${p}self_attn.${name}_proj.weight`, 2 * head, hidden);
  make.matrix(`${p}self_attn.o_proj.weight`, hidden, heads * head);
  for (const name of ['gate', 'up']) make.matrix(`${p}mlp.${name}_proj.weight`, 64, hidden);
  make.matrix(`${p}mlp.down_proj.weight`, hidden, 64);
  for (const name of ['input', 'post_attention']) make.vector(`${p}${name}_layernorm.weight`, hidden, 1);
  const config = {
    hidden_size: hidden,
    head_dim: head,
    num_attention_heads: heads,
    num_key_value_heads: 2,
    num_hidden_layers: 1,
    intermediate_size: 64,
    tie_word_embeddings: true,
  };
  return { weights: make.weights, files: filesOf('LlamaForCausalLM', config) };
}

describe('what a folder is given as', () => {
  const [, files, options] = models[0]!;
  const weights = decoderWeights(options);
  /** The same folder on the disk, in one file and in shards. */
  const onDisk = async () => {
    const folder = join(place, 'tiny');
    const shards = join(place, 'shards', 'tiny');
    const entries = [...weights];
    const halves = [entries.slice(0, 11), entries.slice(11)].map((half) => new Map(half));
    const weight_map: Record<string, string> = {};
    for (const [i, half] of halves.entries())
      for (const name of half.keys()) weight_map[name] = `part-${i}.safetensors`;
    for (const path of [folder, shards]) {
      await mkdir(path, { recursive: true });
      for (const [name, value] of Object.entries(files)) await writeFile(join(path, name), JSON.stringify(value));
    }
    await writeFile(join(folder, 'model.safetensors'), checkpointOf(weights));
    for (const [i, half] of halves.entries())
      await writeFile(join(shards, `part-${i}.safetensors`), checkpointOf(half));
    await writeFile(join(shards, 'model.safetensors.index.json'), JSON.stringify({ weight_map }));
    return { folder, shards };
  };

  it('a list, a path, a URL, an index and a list of shards give the same', async () => {
    const { folder, shards } = await onDisk();
    const expected = await convert(listOf(weights, files), 'Q8_0');
    const path = join(folder, 'model.safetensors');
    expectSame(await convert(path, 'Q8_0'), expected, 'path');
    expectSame(await convert(pathToFileURL(path), 'Q8_0'), expected, 'URL');
    const index = join(shards, 'model.safetensors.index.json');
    expectSame(await convert(index, 'Q8_0'), expected, 'index');
    const list = await Promise.all(
      (await readdir(shards)).map(async (name) => chosen(name, await readFile(join(shards, name)))),
    );
    expectSame(await convert(list, 'Q8_0'), expected, 'list of shards');
  });

  it('a result in several files is the same when it is joined, and takes edits of its metadata', async () => {
    const list = listOf(weights, files);
    const options = { metadata: { 'general.name': 'Another' } } as const;
    const whole = await convert(list, 'Q8_0', options);
    expect((await inspectModel(whole)).metadata['general.name']).toBe('Another');
    const output = join(place, 'split.gguf');
    await quantizeModel(list, { to: 'Q8_0', workers: 0, splitTensors: 10, output, ...options });
    expect((await readdir(place)).filter((name) => name.startsWith('split-'))).toHaveLength(5);
    expectSame(await convert(join(place, 'split-00001-of-00005.gguf'), 'copy'), whole, 'joined');
  });

  it('a given name stands in the place of the name of the folder, in one step and in two', async () => {
    const list = listOf(weights, files);
    const namesOf = async (bytes: Uint8Array) => Object.keys((await inspectModel(bytes)).metadata);
    const context = { 'llama.context_length': { int: 99 } } as const;
    for (const name of ['Another', 'Ein Name 🙂']) {
      const whole = await convert(list, 'Q8_0', { metadata: { 'general.name': name, ...context } });
      const { metadata } = await inspectModel(whole);
      expect([metadata['general.name'], metadata['llama.context_length']]).toEqual([name, 99]);
      // Other keys move to the end, as with --override-kv of llama-quantize.
      const usual = await namesOf(await convert(list, 'Q8_0'));
      const stay = usual.filter((key) => key !== 'llama.context_length');
      expect(await namesOf(whole)).toEqual([...stay, 'llama.context_length']);
      const first = await convert(list, 'F32', { metadata: { 'general.name': name } });
      expectSame(await convert(first, 'Q8_0', { metadata: context }), whole, 'two steps');
    }
    const wrong = convert(list, 'Q8_0', { metadata: { 'general.name': { int: 3 } } });
    await expect(wrong).rejects.toMatchObject({ problem: { option: 'metadata["general.name"]' } });
  });

  it('an output called .gguf makes GGUF of a given size, whatever the case', async () => {
    const { folder } = await onDisk();
    const input = join(folder, 'model.safetensors');
    const size = { to: 'auto', targetBitsPerWeight: 10 } as const;
    for (const output of [join(folder, 'x.gguf'), pathToFileURL(join(folder, 'X.GGUF'))]) {
      const plan = await planModel(input, { ...size, output, workers: 0 });
      expect(plan).toMatchObject({ format: 'gguf', architecture: 'llama' });
      expect(plan.totals.bitsPerWeight).toBeLessThanOrEqual(10);
      await quantizeModel(input, { ...size, output, workers: 0 });
      const { format, metadata } = await inspectModel(output);
      expect([format, metadata['general.architecture']]).toEqual(['gguf', 'llama']);
    }
    const large = { ...size, targetBitsPerWeight: 32 } as const;
    for (const output of [undefined, 'x.safetensors', 'gguf'])
      expect(await planModel(input, { ...large, ...(output && { output }) })).toMatchObject({ format: 'safetensors' });
    const alone = new File([await readFile(input)], 'model.safetensors');
    const refused = planModel(alone, { ...size, output: 'x.gguf', workers: 0 });
    await expect(refused).rejects.toMatchObject({ problem: { option: 'to' } });
  });

  it('a tokenizer is read once for the plans of all types', async () => {
    const list = listOf(weights, files) as File[];
    let reads = 0;
    const tokenizer = list.find(({ name }) => name === 'tokenizer.json') as File;
    const { slice } = tokenizer;
    tokenizer.slice = (...range) => {
      reads++;
      return slice.apply(tokenizer, range);
    };
    await planModel(list, { to: 'Q8_0' });
    const once = reads;
    expect(once).toBeGreaterThan(0);
    await planModel(list, { to: 'Q4_K_M', targetBitsPerWeight: 10, workers: 0 });
    expect(reads).toBe(2 * once);
  });

  it('a name that llama.cpp takes for Phi-3 needs the tokens of Phi-3, which a note says', async () => {
    const tokenizer = plainTokenizer();
    const model = tokenizer.model as { vocab: Record<string, number> };
    const more = { ...tokenizer, model: { ...model, vocab: { ...model.vocab, '<|endoftext|>': 264 } } };
    const phi = decoderWeights({ fused: true, rows: 265 });
    const config = decoderConfig('Phi3ForCausalLM', { vocab_size: 265 });
    for (const [name, tokens, isNoted] of [
      ['phi3', tokenizer, true],
      ['My-Phi-3-mini', tokenizer, true],
      ['mini', tokenizer, false],
      ['phi3', more, false],
    ] as const) {
      const own = folderOf(phi, { 'config.json': config, 'tokenizer.json': tokens }, { name });
      const conversion = await convertHuggingface(own);
      const note = { kind: 'nameNeedsTokens', name, missing: ['<|endoftext|>'] };
      expect(conversion.notes).toMatchObject(isNoted ? [note] : []);
      const load = () => new NativeModel(fileOf(conversion, phi))[Symbol.dispose]();
      if (isNoted) expect(load).toThrow();
      else load();
    }
  });

  it('a list whose index was renamed gives the same', async () => {
    const { shards } = await onDisk();
    const names = (await readdir(shards)).filter((name) => !name.endsWith('.index.json'));
    const rest = await Promise.all(names.map(async (name) => chosen(name, await readFile(join(shards, name)))));
    const index = await readFile(join(shards, 'model.safetensors.index.json'));
    const renamed = chosen('model.safetensors.index (1).json', new Uint8Array(index));
    expectSame(await convert([...rest, renamed], 'Q8_0'), await convert(listOf(weights, files), 'Q8_0'), 'renamed');
  });

  it('a server is asked for what lies beside only if that is needed', async () => {
    const { folder } = await onDisk();
    const asked: string[] = [];
    const server = createServer((request, response) => {
      const name = (request.url ?? '').slice('/tiny/'.length);
      asked.push(name);
      readFile(join(folder, name)).then(
        (bytes) => response.end(bytes),
        () => response.writeHead(404).end(),
      );
    });
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    try {
      const url = new URL(`http://127.0.0.1:${(server.address() as AddressInfo).port}/tiny/model.safetensors`);
      expect((await inspectModel(url)).conversion).toBeUndefined();
      expect([...new Set(asked)]).toEqual(['model.safetensors']);
      expectSame(await convert(url, 'Q8_0'), await convert(listOf(weights, files), 'Q8_0'), 'server');
      expect(asked).toContain('tokenizer_config.json');
    } finally {
      server.close();
    }
  });

  it('looking into a model tells what it can become, and does not fail because of what lies beside it', async () => {
    const { folder } = await onDisk();
    const path = join(folder, 'model.safetensors');
    expect((await inspectModel(path)).conversion).toEqual({ format: 'gguf', architecture: 'LlamaForCausalLM' });
    const config = join(folder, 'config.json');
    for (const text of ['{', '[]', '{"architectures":[7]}', '{"architectures":["Other"]}']) {
      await writeFile(config, text);
      expect((await inspectModel(path)).conversion, text).toBeUndefined();
    }
    await rm(config);
    await mkdir(config);
    expect((await inspectModel(path)).conversion).toBeUndefined();
    await rm(config, { recursive: true });
    expect((await inspectModel(path)).conversion).toBeUndefined();
  });

  it('a list without paths has no name, and differs in nothing else', async () => {
    const list = listOf(weights, files) as File[];
    const plain = await Promise.all(list.map(async (file) => new File([await file.arrayBuffer()], file.name)));
    const { tensors } = await planModel(plain, { to: 'Q8_0' });
    expect(tensors).toEqual((await planModel(list, { to: 'Q8_0' })).tensors);
  });

  it.each([
    ['heads', wideModel],
    ['transposes', wideTransposes],
  ])('tiles that end within %s are read right', async (_what, model) => {
    const wide = model();
    const conversion = await convertHuggingface(folderOf(wide.weights, wide.files));
    const first = fileOf(conversion, wide.weights, [
      ['general.quantization_version', 'u32', 2],
      ['general.file_type', 'u32', 1],
    ]);
    for (const workers of [0, 1]) {
      const got = await convert(listOf(wide.weights, wide.files), 'F16', { workers });
      const { tensors, onlyInA, onlyInB } = await compareModels(
        new Uint8Array(await convert(new Uint8Array(first), 'F16')),
        got,
        { workers: 0 },
      );
      expect([onlyInA, onlyInB]).toEqual([[], []]);
      for (const { name, error } of tensors) expect(error.maxAbsoluteError, name).toBe(0);
    }
  });

  it('is compared with its result, and sampled', async () => {
    const [, mixed, choice] = models[2]!;
    const list = listOf(decoderWeights(choice), mixed);
    const { tensors, onlyInA, onlyInB } = await compareModels(list, await convert(list, 'F32'), { workers: 0 });
    expect([onlyInA, onlyInB]).toEqual([[], []]);
    for (const { error } of tensors) expect(error.maxAbsoluteError).toBe(0);
    const { sampled, tensors: estimated } = await estimateModel(list, { to: 'Q8_0', sample: 64, workers: 0 });
    expect(sampled).toBeGreaterThan(10);
    for (const { name, error } of estimated.filter(({ kept }) => kept === undefined)) {
      expect(error!.sqnrDb, name).toBeGreaterThan(35);
    }
  });
});

describe('an estimate of a folder', () => {
  it('takes the expert from the middle with its own importance, as that of the converted file does', async () => {
    const files = filesOf('Qwen3MoeForCausalLM', {
      head_dim: 16,
      num_experts: 4,
      num_experts_per_tok: 2,
      moe_intermediate_size: 96,
      norm_topk_prob: true,
    });
    const list = listOf(decoderWeights({ headNorms: true, experts: { ...experts, count: 4 } }), files);
    const converted = await convert(list, 'F32');
    const importance = matrixFile(activationsOf((await inspectModel(converted)).tensors));
    const options = { to: 'Q4_0', importance, sample: 96 * 64, workers: 0 } as const;
    const { tensors } = await estimateModel(list, options);
    const whole = await estimateModel(converted, options);
    const ofExperts = (all: typeof tensors) =>
      new Map(all.filter(({ name }) => name.includes('_exps')).map(({ name, error }) => [name, error]));
    expect(ofExperts(tensors).size).toBe(9);
    expect(ofExperts(tensors)).toEqual(ofExperts(whole.tensors));
  });
});

describe('an estimate of transposed experts', () => {
  it('takes the one from the middle, as that of the converted file does', async () => {
    const [, files, table] = divided.find(([what]) => what.startsWith('gpt-oss'))!;
    const list = listOf(weightsOfTable(table, 3), files);
    const converted = await convert(list, 'F32');
    const importance = matrixFile(activationsOf((await inspectModel(converted)).tensors));
    const options = { to: 'Q4_0', importance, sample: 96 * 64, workers: 0 } as const;
    const { tensors, sampled } = await estimateModel(list, options);
    const whole = await estimateModel(converted, options);
    const ofExperts = (all: typeof tensors) =>
      new Map(all.filter(({ name }) => name.endsWith('_exps.weight')).map(({ name, error }) => [name, error]));
    expect(sampled).toBeGreaterThanOrEqual(9);
    expect(ofExperts(tensors).size).toBe(9);
    expect(ofExperts(tensors)).toEqual(ofExperts(whole.tensors));
  });
});

describe('a folder that cannot be converted', () => {
  const [, files, options] = models[1]!;
  const weights = decoderWeights(options);
  const without = (name: string) => new Map([...weights].filter(([key]) => key !== name));
  const instead = (name: string, tensor: TestTensor) =>
    safetensors({
      ...Object.fromEntries([...weights].map(([key, { shape, values }]) => [key, stored(values, shape, 'F32')])),
      [name]: tensor,
    });
  const others = listOf(weights, files).slice(1);
  const query = 'model.layers.1.self_attn.q_proj.weight';

  it.each<[what: string, input: FileInput[], code: string, message: RegExp]>([
    ['a tensor is missing', listOf(without(query), files), 'BAD_FILE', /q_proj/],
    [
      'a tensor has another shape',
      [
        chosen('model.safetensors', instead(query, { dtype: 'F32', shape: [32, 128], data: new Float32Array(4096) })),
        ...others,
      ],
      'BAD_FILE',
      /q_proj/,
    ],
    [
      'a weight holds integers',
      [
        chosen('model.safetensors', instead(query, { dtype: 'I32', shape: [64, 64], data: new Int32Array(4096) })),
        ...others,
      ],
      'UNSUPPORTED_DTYPE',
      /q_proj\.weight": it is quantized already/,
    ],
    [
      'a weight is NaN',
      [
        chosen(
          'model.safetensors',
          instead(query, { dtype: 'F32', shape: [64, 64], data: new Float32Array(4096).fill(Number.NaN) }),
        ),
        ...others,
      ],
      'NON_FINITE',
      /tensor "blk\.1\.attn_q\.weight" \("model\.layers\.1\.self_attn\.q_proj\.weight"\) holds NaN/,
    ],
    [
      'it is an adapter',
      [
        chosen(
          'adapter_model.safetensors',
          safetensors({
            'base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight': stored(
              new Float32Array(64),
              [1, 64],
              'F32',
            ),
          }),
        ),
        ...others,
      ],
      'UNKNOWN_FORMAT',
      /adapter \(LoRA\)/,
    ],
    ['config.json is no JSON', [listOf(weights, files)[0]!, chosen('config.json', '{"a"')], 'BAD_FILE', /config\.json/],
  ])('because %s is refused, and nothing is written', async (_what, input, code, message) => {
    const folder = await mkdtemp(join(place, 'refused-'));
    const error = await rejectionOf(quantizeModel(input, { to: 'Q8_0', output: join(folder, 'out.gguf'), workers: 0 }));
    expect(error).toBeInstanceOf(ScalepointError);
    expect(error).toMatchObject({ code, message: expect.stringMatching(message) });
    expect(await readdir(folder)).toEqual([]);
  });

  it('because two files have one name is refused', async () => {
    const [model, config, ...rest] = listOf(weights, files) as [File, File, ...File[]];
    const error = await rejectionOf(planModel([model, config, config, ...rest], { to: 'Q8_0' }));
    expect(error).toMatchObject({
      problem: { option: 'file', expected: { kind: 'distinct' }, got: 'config.json' },
    });
  });

  it('names the possible targets if there is no config.json', async () => {
    const error = await rejectionOf(planModel(listOf(weights, files)[0]!, { to: 'Q8_0' }));
    expect(error).toMatchObject({ option: 'to', message: expect.stringMatching(/has its config\.json beside it/) });
  });
});

describe.skipIf(process.env.SCALEPOINT_SAMPLES === undefined)('TinyStories', () => {
  needNative();

  it('goes on with a story as Q8_0', async () => {
    const folder = join(process.env.SCALEPOINT_SAMPLES!, 'tinystories-656k');
    const bytes = await convert(join(folder, 'model.safetensors'), 'Q8_0', { missingBytes: 'keep' });
    const { model } = JSON.parse(await readFile(join(folder, 'tokenizer.json'), 'utf8'));
    const texts = new Map(Object.entries<number>(model.vocab).map(([text, id]) => [id, text]));
    using native = new NativeModel(bytes);
    const tokens = native.tokenize('Once upon a time', { special: true });
    for (let i = 0; i < 16; i++) {
      const last = native.logits(tokens).at(-1)!;
      tokens.push(last.indexOf(Math.max(...last)));
    }
    const story = tokens
      .map((id) => texts.get(id))
      .join('')
      .replaceAll('▁', ' ');
    expect(story).toMatch(/Once upon a time, a little (girl|boy) named \w+ (lived|loved|was)/);
  });
});
