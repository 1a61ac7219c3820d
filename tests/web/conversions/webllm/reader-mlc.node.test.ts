// Folders for WebLLM, loaded as tvmjs loads them, and compared with MLC-LLM's rule. tests/web/support/readers/mlc.ts names the sources.
import { mkdtemp, readdir, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { beforeAll, describe, expect, it } from 'vitest';
import { registerLibrary } from '../../../../web/src/conversions/webllm/prebuilt.js';
import { type QuantizeModelOptions, quantizeModel, readFloats } from '../../../../web/src/model.js';
import { chosen, safetensors, type TestTensor } from '../../support/models.js';
import { awkward, groups } from '../../support/readers/awkward.js';
import { named, nearest } from '../../support/readers/floats.js';
import {
  loadCache,
  type MlcForm,
  mlcCodes,
  parametersOf,
  readParameter,
  storedScales,
} from '../../support/readers/mlc.js';
import { must } from '../../support/readers/safetensors.js';
import { expectEqual, squaredError } from '../../support/readers/same.js';
import { decoderConfig, plainTokenizer } from '../../support/tiny-huggingface.js';

// Rows of one, two and three groups, which every library has a multiple of, and one key head.
const sizes = {
  ...{ hidden_size: 64, intermediate_size: 32, num_hidden_layers: 1, num_attention_heads: 3, num_key_value_heads: 1 },
  ...{ head_dim: 32, vocab_size: 5 },
};
const families = { llama: 'LlamaForCausalLM', qwen2: 'Qwen2ForCausalLM' } as const;
type Family = keyof typeof families;
const tied = { llama: false, qwen2: true };

let place: string;
let count = 0;

beforeAll(async () => {
  place = await mkdtemp(join(tmpdir(), 'mlc-'));
  const forget = (['llama', 'qwen2'] as const).map((family) =>
    registerLibrary({
      ...{ model: `awkward-${family}`, family, template: 'chatml', context: 128 },
      numbers: {
        ...sizes,
        rms_norm_eps: 1e-5,
        rope_theta: 10000,
        rope_scaling: 'none',
        tie_word_embeddings: tied[family],
      },
    }),
  );
  return () => {
    for (const one of forget) one();
    return rm(place, { recursive: true });
  };
});

function weightsOf(family: Family, dtype: string, kinds = groups) {
  const { hidden_size: hidden, intermediate_size: inner, head_dim: head, vocab_size: rows } = sizes;
  const p = 'model.layers.0.';
  const shapes: Record<string, number[]> = {
    ...{ 'model.embed_tokens.weight': [rows, hidden], 'model.norm.weight': [hidden] },
    ...{ [`${p}input_layernorm.weight`]: [hidden], [`${p}post_attention_layernorm.weight`]: [hidden] },
    ...{ [`${p}self_attn.o_proj.weight`]: [hidden, 3 * head], [`${p}mlp.down_proj.weight`]: [hidden, inner] },
    ...{ [`${p}mlp.gate_proj.weight`]: [inner, hidden], [`${p}mlp.up_proj.weight`]: [inner, hidden] },
  };
  if (!tied[family]) shapes['lm_head.weight'] = [rows, hidden];
  for (const [part, count] of [
    ['q', 3 * head],
    ['k', head],
    ['v', head],
  ] as const) {
    shapes[`${p}self_attn.${part}_proj.weight`] = [count, hidden];
    if (family === 'qwen2') shapes[`${p}self_attn.${part}_proj.bias`] = [count];
  }
  return Object.fromEntries(
    Object.entries(shapes).map(([name, shape], seed) => [name, awkward(dtype, shape, { group: 32, kinds, seed })]),
  );
}

async function made(family: Family, weights: Readonly<Record<string, TestTensor>>, options: object) {
  const config = decoderConfig(families[family], {
    ...sizes,
    tie_word_embeddings: tied[family],
    hidden_act: undefined,
  });
  const files = [
    chosen('model.safetensors', safetensors(weights)),
    chosen('config.json', config),
    chosen('tokenizer.json', plainTokenizer()),
    chosen('tokenizer_config.json', {}),
  ];
  const output = join(place, `${count++}`);
  await quantizeModel(files, { workers: 0, output, ...options } as QuantizeModelOptions);
  const made = new Map<string, Uint8Array>();
  for (const name of await readdir(output)) made.set(name, await readFile(join(output, name)));
  return { output, files: made };
}

/** All parameters, after checking that the cache holds nothing else. */
function parametersIn(
  files: ReadonlyMap<string, Uint8Array>,
  family: Family,
  weights: ReturnType<typeof weightsOf>,
  form: MlcForm,
) {
  const { arrays, metadata } = loadCache(files);
  const left = new Set(arrays.keys());
  const all = parametersOf(families[family], 1, tied[family]).map((parameter) => {
    const parts = parameter.from.map((name) => weights[name]!);
    const shape = [parts.reduce((sum, part) => sum + part.shape[0]!, 0), ...parts[0]!.shape.slice(1)];
    const original = Float32Array.from(parts.flatMap(({ values }) => [...values]));
    const read = readParameter(arrays, parameter, shape, form);
    for (const name of read.names) left.delete(name);
    return { ...parameter, ...read, shape, original, quantized: read.codes };
  });
  must(left.size === 0, `parameters not in the model: ${[...left]}`);
  const count = Object.values(weights).reduce((sum, { values }) => sum + values.length, 0);
  expect(metadata.BitsPerParam).toBe(((metadata.ParamBytes as number) * 8) / count);
  return all;
}

/** Compares this library's reader with the one of the sources. */
async function expectRead(folder: string, all: ReturnType<typeof parametersIn>) {
  for (const { name, values, shape } of all) {
    const own = await readFloats(folder, name, { workers: 0 });
    expect(own.shape, name).toEqual(shape);
    expectEqual(own.data, values, `restored ${name}`);
  }
}

const cases = (['q4f16_1', 'q4f32_1'] as const).flatMap((form) =>
  (['llama', 'qwen2'] as const).map((family) => [form, family, family === 'llama' ? 'F32' : 'BF16'] as const),
);

describe('a folder for WebLLM', () => {
  it.each(cases)('has the codes of MLC-LLM, which tvmjs loads: %s, %s, %s', async (form, family, dtype) => {
    const weights = weightsOf(family, dtype);
    const { files, output } = await made(family, weights, { to: `mlc-${form}` });
    const all = parametersIn(files, family, weights, form);
    for (const { name, original, values, quantized, shape } of all) {
      if (quantized === undefined) {
        const cast = original.map((v) => nearest(v, form === 'q4f16_1' ? named.F16! : named.BF16!));
        expectEqual(values, cast, name);
        continue;
      }
      const want = mlcCodes(original, shape[1]!, form);
      expectEqual(quantized.scales, storedScales(want.scales, form), `scales of ${name}`);
      expectEqual(quantized.words, want.words, `words of ${name}`);
    }
    await expectRead(output, all);
  });

  it('has no larger error in any group after a search', async () => {
    for (const form of ['q4f16_1', 'q4f32_1'] as const) {
      const weights = weightsOf('llama', 'F32');
      const [plain, searched] = await Promise.all(
        [{}, { search: 'best' }].map(async (more) => {
          const { files, output } = await made('llama', weights, { to: `mlc-${form}`, ...more });
          const all = parametersIn(files, 'llama', weights, form);
          await expectRead(output, all);
          return all;
        }),
      );
      for (const [i, { name, original, values }] of searched!.entries()) {
        const before = squaredError(original, plain![i]!.values, 32);
        for (const [g, error] of squaredError(original, values, 32).entries())
          expect(error, `${form} ${name}, group ${g}`).toBeLessThanOrEqual(before[g]!);
      }
    }
  });
});
