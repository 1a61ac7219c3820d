// Folders of language models to models of MLC, by the names and the rule of MLC-LLM's sources (tests/web/support/mlc.ts).
import { mkdir, mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import {
  calibrateModel,
  compareModels,
  inspectModel,
  planModel,
  quantizeModel,
  readFloats,
  verifyModel,
} from 'scalepoint/model';
import { beforeAll, describe, expect, it } from 'vitest';
import { webllmFamilies } from '../../../../web/src/architectures/families/index.js';
import { chatConfig } from '../../../../web/src/architectures/webllm/chat-config.js';
import {
  librariesOf,
  type PrebuiltLibrary,
  registerLibrary,
} from '../../../../web/src/architectures/webllm/families.js';
import { named, nearest } from '../../support/floats.js';
import { loadCache, mlcCodes, parametersOf, readParameter, storedScales } from '../../support/mlc.js';
import { rejectionOf, safetensors, type TestTensor } from '../../support/models.js';
import type { Weights } from '../../support/recipes.js';
import { expectSame } from '../../support/support.js';
import {
  type DecoderOptions,
  decoderConfig,
  decoderWeights,
  plainTokenizer,
  tiny,
} from '../../support/tiny-huggingface.js';

let place: string;
beforeAll(async () => {
  place = await mkdtemp(join(tmpdir(), 'webllm-'));
  return () => rm(place, { recursive: true });
});

/** Families, with weights and keys of tiny models of them. */
const families: Readonly<
  Record<string, { family: PrebuiltLibrary['family']; weights?: DecoderOptions; keys?: object }>
> = {
  LlamaForCausalLM: { family: 'llama' },
  MistralForCausalLM: { family: 'mistral' },
  Qwen2ForCausalLM: { family: 'qwen2', weights: { biases: ['q_proj', 'k_proj', 'v_proj'], tied: true } },
  Qwen3ForCausalLM: { family: 'qwen3', weights: { headNorms: true } },
  GemmaForCausalLM: { family: 'gemma', weights: { tied: true, gemma: false } },
  Gemma2ForCausalLM: {
    family: 'gemma2',
    weights: { tied: true, gemma: true },
    keys: { query_pre_attn_scalar: 256, final_logit_softcapping: 30, attn_logit_softcapping: 50, sliding_window: 4096 },
  },
  Phi3ForCausalLM: { family: 'phi3', weights: { fused: true } },
};

const head = tiny.hidden / tiny.heads;

function libraryOf(architecture: string): PrebuiltLibrary {
  const { family, weights } = families[architecture]!;
  return {
    model: `tiny-${family}`,
    family,
    numbers: {
      hidden_size: tiny.hidden,
      intermediate_size: tiny.feedForward,
      num_hidden_layers: tiny.layers,
      num_attention_heads: tiny.heads,
      num_key_value_heads: tiny.keyHeads,
      head_dim: head,
      vocab_size: tiny.vocabulary,
      rms_norm_eps: 1e-5,
      rope_theta: 10000,
      rope_scaling: 'none',
      tie_word_embeddings: weights?.tied ?? false,
    },
    template: 'chatml',
    context: 128,
  };
}

beforeAll(() => {
  const forget = Object.keys(families).map((architecture) => registerLibrary(libraryOf(architecture)));
  return () => {
    for (const one of forget) one();
  };
});

it('counts 200,000 added tokens', () => {
  const library = libraryOf('LlamaForCausalLM');
  const added_tokens = Array.from({ length: 200_000 }, (_, id) => ({ id, content: `<${id}>` }));
  const tokenizer = { model: { vocab: {} }, added_tokens };
  const texts = { numbers: library.numbers, config: {}, generation: undefined, tokenizer, files: [] };
  const family = webllmFamilies.get('LlamaForCausalLM')!;
  const { active_vocab_size: size } = chatConfig(family, library, 'q4f16_1', texts);
  expect(size).toBe(200_000);
});

type Files = Readonly<Record<string, object | undefined>>;

/** Files of a model of an architecture. A key that is undefined is left out. */
function filesOf(architecture: string, keys: object = {}): Files {
  const { weights, keys: own } = families[architecture]!;
  const all = { head_dim: head, tie_word_embeddings: weights?.tied ?? false, hidden_act: undefined, ...own, ...keys };
  return {
    'config.json': decoderConfig(architecture, all),
    'tokenizer.json': plainTokenizer(),
    'tokenizer_config.json': {},
    'generation_config.json': { eos_token_id: [2, 5], temperature: 0.5 },
  };
}

async function write(
  name: string,
  weights: Weights,
  files: Files,
  tensors: (name: string) => Partial<TestTensor> = () => ({}),
) {
  const folder = join(place, name);
  await mkdir(folder, { recursive: true });
  const stored = [...weights].map(([tensor, { shape, values }]): [string, TestTensor] => [
    tensor,
    { dtype: 'F32', shape, data: values, ...tensors(tensor) },
  ]);
  await writeFile(join(folder, 'model.safetensors'), safetensors(Object.fromEntries(stored)));
  for (const [file, content] of Object.entries(files))
    if (content !== undefined) await writeFile(join(folder, file), JSON.stringify(content));
  return join(folder, 'model.safetensors');
}

it('rounds with GPTQ by the moments of the folder', async () => {
  const source = await write('moments', decoderWeights(), filesOf('LlamaForCausalLM'));
  const ids = Uint32Array.from({ length: 512 }, (_, i) => (i * 7 + (i >> 3)) % tiny.vocabulary);
  const moments = await calibrateModel(join(place, 'moments'), ids, { moments: true, chunkSize: 16 });
  for (const to of ['mlc-q4f16_1', 'mlc-q4f32_1'] as const) {
    const { report } = await quantizeModel(source, { to, method: 'gptq', moments });
    const outputs = report.tensors.flatMap(({ error }) => error?.output ?? []);
    // Seven weights of each layer, and the output layer: tokens look up rows of the other table.
    expect(outputs.length).toBe(7 * tiny.layers + 1);
    for (const { before, after } of outputs) expect(after).toBeLessThanOrEqual(before);
    const share = (pick: (one: (typeof outputs)[number]) => number) => outputs.reduce((sum, one) => sum + pick(one), 0);
    expect(share(({ after }) => after)).toBeLessThan(0.9 * share(({ before }) => before));
    const { notes } = report;
    expect(notes.find(({ kind }) => kind === 'noFeedback')?.tensors).toEqual(['model.embed_tokens.weight']);
    await expect(quantizeModel(source, { to, method: 'gptq' })).rejects.toThrow(/^moments: required/);
  }
});

const json = async (path: string) => JSON.parse(await readFile(path, 'utf8')) as Record<string, unknown>;

describe.each(Object.keys(families))('%s', (architecture) => {
  // Both forms have the names of a family, and their numbers differ alike in all.
  it.each(architecture.startsWith('Gemma') ? (['q4f16_1', 'q4f32_1'] as const) : (['q4f16_1'] as const))(
    'becomes what MLC-LLM makes of it, in %s',
    async (how) => {
      const weights = decoderWeights(families[architecture]!.weights);
      const source = await write(`${architecture}-${how}`, weights, filesOf(architecture));
      const output = join(place, `${architecture}-${how}-out`);
      const plan = await planModel(source, { to: `mlc-${how}`, output });
      const { files, report } = await quantizeModel(source, { to: `mlc-${how}`, output });
      const cache = new Map<string, Uint8Array>();
      for (const name of await readdir(output)) cache.set(name, await readFile(join(output, name)));
      const { arrays, metadata } = loadCache(cache);
      const count = [...weights.values()].reduce((sum, { values }) => sum + values.length, 0);
      expect(metadata.BitsPerParam).toBe(((metadata.ParamBytes as number) * 8) / count);
      const left = new Set(arrays.keys());
      for (const parameter of parametersOf(architecture, tiny.layers, families[architecture]!.weights?.tied ?? false)) {
        const { name, from, add } = parameter;
        const parts = from.map((tensor) => weights.get(tensor)!);
        const original = Float32Array.from(parts.flatMap(({ values }) => [...values].map((v) => v + add)));
        const columns = parts[0]!.shape[1];
        const rows = columns === undefined ? original.length : original.length / columns;
        const read = readParameter(arrays, parameter, columns === undefined ? [rows] : [rows, columns], how);
        for (const array of read.names) left.delete(array);
        expectSame((await readFloats(output, name, { workers: 0 })).data, read.values, `restored ${name}`);
        if (read.codes === undefined) {
          const cast = original.map((v) => nearest(v, how === 'q4f16_1' ? named.F16! : named.BF16!));
          expectSame(read.values, cast, name);
          continue;
        }
        const want = mlcCodes(original, columns!, how);
        expectSame(read.codes.scales, storedScales(want.scales, how), `scales of ${name}`);
        expectSame(read.codes.words, want.words, `words of ${name}`);
      }
      expect([...left]).toEqual([]);
      const names = (await readdir(output)).sort();
      expect(names).toEqual(
        [
          'mlc-chat-config.json',
          'ndarray-cache.json',
          'params_shard_0.bin',
          'tensor-cache.json',
          'tokenizer.json',
          'tokenizer_config.json',
        ].sort(),
      );
      // The plan has the exact sizes.
      expect(files).toEqual(
        plan.files.map(({ name, bytes }) => ({ name: name.replace(/^model/, `${architecture}-${how}-out`), bytes })),
      );
      for (const { name, bytes } of files) expect((await readFile(join(place, name))).length, name).toBe(bytes);
      expect(report.notes.map(({ kind }) => kind)).toEqual(['webllmLibrary']);
      expect(report.notes[0]).toMatchObject({ library: `tiny-${families[architecture]!.family}-${how}-MLC` });
      expect(await readFile(join(output, 'tokenizer.json'), 'utf8')).toBe(JSON.stringify(plainTokenizer()));
      const chat = await json(join(output, 'mlc-chat-config.json'));
      expect(chat).toMatchObject({
        version: '0.1.0',
        quantization: how,
        model_type: families[architecture]!.family,
        vocab_size: tiny.vocabulary,
        context_window_size: 128,
        prefill_chunk_size: 128,
        tokenizer_files: ['tokenizer.json', 'tokenizer_config.json'],
        tokenizer_info: {
          token_postproc_method: 'byte_fallback',
          prepend_space_in_encode: false,
          strip_space_in_decode: false,
        },
        temperature: 0.5,
        top_p: 1,
        bos_token_id: 1,
        eos_token_id: [2, 5],
        model_config: { hidden_size: tiny.hidden, context_window_size: 128 },
        conv_template: { name: 'chatml', stop_token_ids: [2, 5], seps: ['<|im_end|>\n'] },
      });
      // Nothing is wrong with the result, and it can be read.
      expect((await verifyModel(join(output, 'tensor-cache.json'))).problems).toEqual([]);
      const info = await inspectModel(output);
      expect(info.format).toBe('mlc');
      const { tensors } = await compareModels(output, output);
      expect(tensors.every(({ error }) => error?.mse === 0)).toBe(true);
    },
  );
});

describe('a result', () => {
  const architecture = 'LlamaForCausalLM';

  it('has the same bytes with any number of workers, in memory and in files', async () => {
    const source = await write('workers', decoderWeights(), filesOf(architecture));
    const inMemory = await quantizeModel(source, { to: 'mlc-q4f16_1', workers: 0 });
    for (const workers of [0, 1, 3]) {
      const output = join(place, `workers-${workers}`);
      await quantizeModel(source, { to: 'mlc-q4f16_1', workers, output });
      for (const { name } of inMemory.files) {
        const file = name.slice(name.indexOf('/') + 1);
        expect(Buffer.compare(await readFile(join(output, file)), await inMemory.bytes(name)), name).toBe(0);
      }
    }
  });

  it('restores the weights that were planned, joined', async () => {
    const weights = decoderWeights();
    const source = await write('restored', weights, filesOf(architecture));
    const output = join(place, 'restored-out');
    const { report } = await quantizeModel(source, { to: 'mlc-q4f16_1', output });
    const { data, shape } = await readFloats(output, 'model.layers.1.self_attn.qkv_proj.weight');
    expect(shape).toEqual([(tiny.heads + 2 * tiny.keyHeads) * head, tiny.hidden]);
    let at = 0;
    for (const name of ['q', 'k', 'v']) {
      const tensor = `model.layers.1.self_attn.${name}_proj.weight`;
      const { values } = weights.get(tensor)!;
      const sum = values.reduce((total, x, i) => total + (x - data[at + i]!) ** 2, 0);
      at += values.length;
      const { error } = report.tensors.find((one) => one.name === tensor)!;
      // The report adds up floats in another order: 2^-24 for each of at most 4096 sums.
      expect(Math.abs(sum / values.length / error!.mse - 1)).toBeLessThan(4096 * 2 ** -24);
    }
  });

  it('has lower errors in the same bytes with search best', async () => {
    const source = await write('search', decoderWeights(), filesOf(architecture));
    for (const to of ['mlc-q4f16_1', 'mlc-q4f32_1'] as const) {
      const plain = await quantizeModel(source, { to });
      const best = await quantizeModel(source, { to, search: 'best' });
      expect(best.files).toEqual(plain.files);
      for (const [i, { name, error, to: type }] of best.report.tensors.entries()) {
        const before = plain.report.tensors[i]!.error;
        if (type !== 'I4') expect(error).toEqual(before);
        // Measured: 0.68 to 0.72.
        else expect(error!.mse / before!.mse, name).toBeLessThan(0.75);
      }
    }
  });

  it('comes from weights that were quantized before', async () => {
    const source = await write('before', decoderWeights(), filesOf(architecture));
    const int8 = join(place, 'before-int8');
    await mkdir(int8);
    await quantizeModel(source, {
      to: 'int8',
      granularity: { kind: 'per-channel' },
      output: join(int8, 'model.safetensors'),
    });
    for (const [file, content] of Object.entries(filesOf(architecture)))
      await writeFile(join(int8, file), JSON.stringify(content));
    const model = join(int8, 'model.safetensors');
    expect(await rejectionOf(planModel(model, { to: 'mlc-q4f16_1' }))).toMatchObject({ code: 'UNSUPPORTED_DTYPE' });
    const { report } = await quantizeModel(model, { to: 'mlc-q4f16_1', requantize: true });
    expect(report.notes.map(({ kind }) => kind)).toEqual(['sourceQuantized', 'webllmLibrary']);
  });

  it('keeps nothing if it fails', async () => {
    const weights = decoderWeights();
    weights.get('model.layers.2.mlp.down_proj.weight')!.values[7] = Number.NaN;
    const source = await write('fails', weights, filesOf(architecture));
    const output = join(place, 'fails-out');
    expect(await rejectionOf(quantizeModel(source, { to: 'mlc-q4f16_1', output }))).toMatchObject({
      code: 'NON_FINITE',
      tensor: 'model.layers.2.mlp.down_proj.weight',
    });
    await expect(readdir(output)).rejects.toThrow();
    // A folder that was there stays, with what is in it.
    await mkdir(output);
    await writeFile(join(output, 'notes.txt'), 'mine');
    await rejectionOf(quantizeModel(source, { to: 'mlc-q4f16_1', output }));
    expect(await readdir(output)).toEqual(['notes.txt']);
  });

  it('does not replace files unasked', async () => {
    const source = await write('exists', decoderWeights(), filesOf(architecture));
    const output = join(place, 'exists-out');
    await mkdir(output);
    await writeFile(join(output, 'tokenizer.json'), 'mine');
    expect(await rejectionOf(quantizeModel(source, { to: 'mlc-q4f16_1', output }))).toMatchObject({ code: 'EXISTS' });
    expect(await readdir(output)).toEqual(['tokenizer.json']);
    await quantizeModel(source, { to: 'mlc-q4f16_1', output, overwrite: true });
    expect(await readFile(join(output, 'tokenizer.json'), 'utf8')).toBe(JSON.stringify(plainTokenizer()));
  });

  it('takes the form of chats from the tokenizer', async () => {
    const templates = {
      'llama-3': '<|start_header_id|>',
      gemma_instruction: '<start_of_turn>',
      chatml: '<|im_start|> <|start_header_id|>',
    };
    for (const [name, chat_template] of Object.entries(templates)) {
      const source = await write(`chat-${name}`, decoderWeights(), {
        ...filesOf(architecture),
        'tokenizer_config.json': { chat_template },
      });
      const result = await quantizeModel(source, { to: 'mlc-q4f16_1' });
      const chat = JSON.parse(new TextDecoder().decode(await result.bytes('model/mlc-chat-config.json')));
      const expected = name === 'llama-3' ? 'llama-3_1' : name;
      expect(chat.conv_template.name).toBe(expected);
      const kinds = result.report.notes.map(({ kind }) => kind);
      expect(kinds).toEqual(name === 'chatml' ? ['webllmLibrary'] : ['chatTemplate', 'webllmLibrary']);
    }
  });
});

describe('a folder', () => {
  const architecture = 'LlamaForCausalLM';
  const refusal = async (
    name: string,
    files: Files,
    weights: Weights = decoderWeights(),
    to: 'mlc-q4f16_1' | 'mlc-q4f32_1' = 'mlc-q4f16_1',
  ) => rejectionOf(planModel(await write(`refused-${name}`, weights, files), { to }));

  it('of other sizes is refused with what would fit', async () => {
    const error = await refusal('sizes', filesOf(architecture, { rope_theta: 500000, num_hidden_layers: 4 }));
    expect(error).toMatchObject({ code: 'UNKNOWN_FORMAT' });
    expect(String(error)).toContain(
      'the closest, tiny-llama, differs in num_hidden_layers 4 in place of 3, rope_theta 500000 in place of 10000',
    );
    expect(String(error)).toContain('Llama-3.2-1B-Instruct');
  });

  it('of another architecture is refused with the list', async () => {
    const error = await refusal('architecture', {
      ...filesOf(architecture),
      'config.json': decoderConfig('OlmoForCausalLM'),
    });
    expect(String(error)).toContain('no prebuilt library for the architecture');
    expect(String(error)).toContain('LlamaForCausalLM, MistralForCausalLM');
  });

  it('with other settings than the library is refused', async () => {
    for (const keys of [
      { attention_bias: true },
      { hidden_act: 'gelu' },
      { rope_scaling: { rope_type: 'yarn', factor: 2 } },
    ])
      expect(await refusal(`setting-${Object.keys(keys)[0]}`, filesOf(architecture, keys))).toMatchObject({
        code: 'UNKNOWN_FORMAT',
      });
  });

  it('without a tokenizer, a tensor, or with other tensors is refused', async () => {
    const files = filesOf(architecture);
    expect(String(await refusal('tokenizer', { ...files, 'tokenizer.json': undefined }))).toContain('tokenizer.model');
    const some = new Map(decoderWeights());
    some.delete('model.layers.1.mlp.up_proj.weight');
    expect(await refusal('missing', files, some)).toMatchObject({
      code: 'BAD_FILE',
      tensor: 'model.layers.1.mlp.up_proj.weight',
    });
    const more = new Map(decoderWeights());
    more.set('visual.proj.weight', { shape: [32, 32], values: new Float32Array(1024) });
    expect(await refusal('more', files, more)).toMatchObject({ code: 'BAD_FILE', tensor: 'visual.proj.weight' });
    const wide = new Map(decoderWeights());
    wide.set('model.norm.weight', { shape: [32], values: new Float32Array(32) });
    expect(await refusal('shape', files, wide)).toMatchObject({ code: 'BAD_FILE', tensor: 'model.norm.weight' });
  });

  it('takes no rules and no copies', async () => {
    const source = await write('rules', decoderWeights(), filesOf(architecture));
    const error = await rejectionOf(planModel(source, { to: 'mlc-q4f16_1', rules: [{ match: 'norm', keep: true }] }));
    expect(error).toMatchObject({ option: 'rules[0]' });
  });

  it('takes sources of 16 bits, and drops what a tied model does not have', async () => {
    const weights = decoderWeights({ ...families.Qwen2ForCausalLM!.weights, tied: false });
    const source = await write('tied', weights, filesOf('Qwen2ForCausalLM'));
    const { tensors } = await planModel(source, { to: 'mlc-q4f16_1' });
    expect(tensors.map(({ name }) => name)).not.toContain('lm_head.weight');
  });
});

it('has a library for each kind of model once, with even groups', () => {
  const names = new Set<string>();
  for (const { model, family, numbers } of [...webllmFamilies.values()].flatMap(librariesOf)) {
    const key = JSON.stringify([family, numbers]);
    if (!model.startsWith('tiny')) expect(names.has(key), model).toBe(false);
    names.add(key);
    for (const size of [numbers.hidden_size, numbers.intermediate_size, numbers.num_attention_heads * numbers.head_dim])
      expect(size % 32, model).toBe(0);
  }
});
