// Folders for MLX, loaded as mlx-lm loads them, and compared with MLX's own rules. tests/web/support/readers/mlx.ts names the sources.
import { describe, expect, it } from 'vitest';
import {
  type QuantizeModelOptions,
  type QuantizeModelResult,
  quantizeModel,
  readFloats,
} from '../../../../web/src/model.js';
import { chosen, safetensors } from '../../support/models.js';
import { awkward, extremes, groups } from '../../support/readers/awkward.js';
import { named, nearest } from '../../support/readers/floats.js';
import { affineCodes, type Loaded, loadMlx, type Quantization, smallCodes } from '../../support/readers/mlx.js';
import { floatsOf, readSafetensors, wordsOf } from '../../support/readers/safetensors.js';
import { expectEqual, squaredError } from '../../support/readers/same.js';

type Json = Readonly<Record<string, unknown>>;
type Matrix = ReturnType<typeof awkward>;

const llama = {
  ...{ model_type: 'llama', architectures: ['LlamaForCausalLM'], hidden_size: 128, num_hidden_layers: 1 },
  ...{ intermediate_size: 3, num_attention_heads: 5, num_key_value_heads: 1, head_dim: 1, vocab_size: 11 },
  ...{ rms_norm_eps: 1e-5, max_position_embeddings: 64, rope_theta: 10000, tie_word_embeddings: false },
};

/** Names and shapes of a model of one layer. */
function shapesOf(config: Json, feedForward: Readonly<Record<string, readonly number[]>>, head = true) {
  const [hidden, heads, size] = [config.hidden_size, config.num_attention_heads, config.head_dim] as number[];
  const rows = { q: heads! * size!, k: size!, v: size! };
  const p = 'model.layers.0.';
  const shapes: Record<string, readonly number[]> = {
    'model.embed_tokens.weight': [config.vocab_size as number, hidden!],
    'model.norm.weight': [hidden!],
    [`${p}input_layernorm.weight`]: [hidden!],
    [`${p}post_attention_layernorm.weight`]: [hidden!],
    [`${p}self_attn.o_proj.weight`]: [hidden!, heads! * size!],
  };
  if (head) shapes['lm_head.weight'] = [config.vocab_size as number, hidden!];
  for (const [name, count] of Object.entries(rows)) shapes[`${p}self_attn.${name}_proj.weight`] = [count, hidden!];
  for (const [name, shape] of Object.entries(feedForward)) shapes[`${p}${name}.weight`] = shape;
  return shapes;
}

const dense = { 'mlp.gate_proj': [3, 128], 'mlp.up_proj': [3, 128], 'mlp.down_proj': [128, 3] };

function matrices(shapes: Readonly<Record<string, readonly number[]>>, dtype: string, group: number, kinds = groups) {
  const entries = Object.entries(shapes);
  return Object.fromEntries(entries.map(([name, s], seed) => [name, awkward(dtype, s, { group, kinds, seed })]));
}

const filesOf = (config: Json, weights: Readonly<Record<string, Matrix>>) => [
  chosen('model.safetensors', safetensors(weights)),
  chosen('config.json', config),
];

const quantized = (files: File[], options: object) =>
  quantizeModel(files, { workers: 0, ...options } as QuantizeModelOptions);

async function loaded(result: QuantizeModelResult) {
  const bytes = await result.bytes();
  const { tensors, metadata } = readSafetensors(bytes);
  expect(metadata.format).toBe('mlx');
  return { bytes, tensors, weights: loadMlx(result.config as Json, tensors) };
}

const codesOf = (values: Float32Array, { mode, bits, group_size }: Quantization, dtype: string) =>
  mode === 'affine' ? affineCodes(values, bits, group_size, named[dtype]!) : smallCodes(values, mode);

/** Compares codes, scales and biases with MLX's rule. */
function expectCodes(
  tensors: ReturnType<typeof readSafetensors>['tensors'],
  path: string,
  values: Float32Array,
  quantization: Quantization,
  dtype: string,
) {
  const want = codesOf(values, quantization, dtype);
  const scales = tensors.get(`${path}.scales`)!;
  expectEqual(scales.dtype === 'U8' ? scales.bytes : floatsOf(scales), want.scales, `scales of ${path}`);
  if (quantization.mode === 'affine') {
    expect(scales.dtype).toBe(dtype);
    expectEqual(floatsOf(tensors.get(`${path}.biases`)!), want.biases, `biases of ${path}`);
  }
  expectEqual(wordsOf(tensors.get(`${path}.weight`)!), want.words, `words of ${path}`);
}

/** Compares this library's reader with the one of the sources. */
async function expectRead(result: QuantizeModelResult, bytes: Uint8Array<ArrayBuffer>, weights: Map<string, Loaded>) {
  const files = [chosen('model.safetensors', bytes), chosen('config.json', result.config!)];
  for (const [name, { values, shape }] of weights) {
    const own = await readFloats(files, name, { workers: 0 });
    expect(own.shape, name).toEqual(shape);
    expectEqual(own.data, values, `restored ${name}`);
  }
}

const cases: readonly (readonly [string, number, string])[] = [
  ['mlx-2bit', 64, 'BF16'],
  ['mlx-3bit', 64, 'F16'],
  ['mlx-4bit', 64, 'BF16'],
  ['mlx-4bit', 32, 'F16'],
  ['mlx-4bit', 128, 'F32'],
  ['mlx-5bit', 32, 'F32'],
  ['mlx-6bit', 128, 'F16'],
  ['mlx-8bit', 64, 'BF16'],
  ['mlx-mxfp4', 32, 'BF16'],
  ['mlx-nvfp4', 16, 'F16'],
  ['mlx-mxfp8', 32, 'F32'],
];

describe('a folder for MLX', () => {
  it.each(cases)('has the codes of MLX, which mlx-lm loads: %s, groups of %d, %s', async (to, group, dtype) => {
    const granularity = to.endsWith('bit') ? { granularity: { kind: 'per-group', groupSize: group } } : {};
    for (const kinds of dtype === 'F16' ? [groups] : [groups, extremes]) {
      const made = matrices(shapesOf(llama, dense), dtype, group, kinds);
      const result = await quantized(filesOf(llama, made), { to, ...granularity });
      const { bytes, tensors, weights } = await loaded(result);
      for (const [name, { values, quantization }] of weights) {
        const original = made[name]!.values;
        if (quantization === undefined) expectEqual(values, original, name);
        else expectCodes(tensors, name.replace(/\.weight$/, ''), original, quantization, dtype);
      }
      const kept = [...weights].filter(([, { quantization }]) => quantization === undefined).map(([name]) => name);
      expect(kept.filter((name) => !name.includes('norm'))).toEqual(
        ['self_attn.o_proj', 'mlp.down_proj'].map((name) => `model.layers.0.${name}.weight`),
      );
      await expectRead(result, bytes, weights);
    }
  });

  it('has weights in the type of config.json before they become codes', async () => {
    for (const [torch_dtype, dtype] of [
      ['bfloat16', 'BF16'],
      ['float16', 'F16'],
      ['float32', 'F32'],
    ] as const) {
      const config = { ...llama, torch_dtype, tie_word_embeddings: true };
      const made = matrices(shapesOf(config, dense, false), 'F32', 64);
      // Numbers that a cast moves.
      for (const { values } of Object.values(made)) values.set(values.map((v) => Math.fround(v * 1.0009765625)));
      const files = filesOf(
        config,
        Object.fromEntries(Object.entries(made).map(([n, m]) => [n, { ...m, data: m.values }])),
      );
      const { tensors, weights } = await loaded(await quantized(files, { to: 'mlx-4bit' }));
      for (const [name, { values, quantization }] of weights) {
        const cast = made[name]!.values.map((v) => nearest(v, named[dtype]!));
        if (quantization === undefined) expectEqual(values, cast, name);
        else expectCodes(tensors, name.replace(/\.weight$/, ''), cast, quantization, dtype);
      }
    }
  });

  it('has an index over its files, with the sizes that mlx-lm counts', async () => {
    const made = matrices(shapesOf(llama, dense), 'BF16', 64);
    const result = await quantized(filesOf(llama, made), { to: 'mlx-4bit', shardSize: '4kB' });
    const tensors: ReturnType<typeof readSafetensors>['tensors'] = new Map();
    const places: [string, string][] = [];
    for (const { name } of result.files) {
      if (!name.endsWith('.safetensors')) continue;
      for (const [tensor, stored] of readSafetensors(await result.bytes(name)).tensors) {
        tensors.set(tensor, stored);
        places.push([tensor, name]);
      }
    }
    const index = JSON.parse(new TextDecoder().decode(await result.bytes('model.safetensors.index.json')));
    expect(Object.entries(index.weight_map)).toEqual(places.sort(([a], [b]) => (a < b ? -1 : 1)));
    const weights = loadMlx(result.config as Json, tensors);
    expect(index.metadata).toEqual({
      total_size: [...tensors.values()].reduce((sum, { bytes }) => sum + bytes.length, 0),
      total_parameters: [...weights.values()].reduce((sum, { values }) => sum + values.length, 0),
    });
  });

  it('stacks experts, gives routers 8 bits as mlx-lm does, and lists the modules of rules', async () => {
    const config = {
      ...{ ...llama, model_type: 'qwen3_moe', architectures: ['Qwen3MoeForCausalLM'], num_experts: 3 },
      ...{ num_experts_per_tok: 2, decoder_sparse_step: 1, mlp_only_layers: [], moe_intermediate_size: 2 },
      norm_topk_prob: true,
    };
    const experts = Object.fromEntries(
      [0, 1, 2].flatMap((e) => [
        ...['gate', 'up'].map((name) => [`mlp.experts.${e}.${name}_proj`, [2, 128]] as const),
        [`mlp.experts.${e}.down_proj`, [128, 2]] as const,
      ]),
    );
    const more = { 'mlp.gate': [3, 128], 'self_attn.q_norm': [1], 'self_attn.k_norm': [1] };
    const made = matrices(shapesOf(config, { ...experts, ...more }), 'BF16', 32);
    for (const to of ['mlx-4bit', 'mlx-mxfp4']) {
      const rules = [
        { match: /v_proj/, to: 'mlx-6bit' },
        { match: /lm_head/, keep: true },
      ];
      const result = await quantized(filesOf(config, made), { to, rules });
      const { bytes, tensors, weights } = await loaded(result);
      const of = (path: string) => weights.get(`model.layers.0.${path}.weight`)!.quantization;
      expect(of('mlp.gate')).toEqual({ group_size: 64, bits: 8, mode: 'affine' });
      expect(of('self_attn.v_proj')).toEqual({ group_size: 64, bits: 6, mode: 'affine' });
      expect(weights.get('lm_head.weight')!.quantization).toBeUndefined();
      for (const [name, { quantization }] of weights) {
        if (quantization === undefined) continue;
        const parts = name.includes('switch_mlp')
          ? [0, 1, 2].map((e) => name.replace('switch_mlp', `experts.${e}`))
          : [name];
        const values = Float32Array.from(parts.flatMap((part) => [...made[part]!.values]));
        expectCodes(tensors, name.replace(/\.weight$/, ''), values, quantization, 'BF16');
      }
      await expectRead(result, bytes, weights);
    }
  });

  it('has no larger error in any matrix after a search', async () => {
    for (const [to, group] of [
      ['mlx-2bit', 64],
      ['mlx-4bit', 64],
      ['mlx-8bit', 64],
    ] as const)
      for (const found of [{ range: 'mse' }, { search: 'best' }]) {
        const made = matrices(shapesOf(llama, dense), 'BF16', group);
        const files = filesOf(llama, made);
        const [plain, searched] = await Promise.all(
          [{}, found].map(async (more) => loaded(await quantized(files, { to, ...more }))),
        );
        for (const [name, { values, quantization }] of searched!.weights) {
          if (quantization === undefined) continue;
          const original = made[name]!.values;
          const before = squaredError(original, plain!.weights.get(name)!.values, group);
          const after = squaredError(original, values, group);
          for (const [g, error] of after.entries())
            expect(error, `${to} ${name}, group ${g}`).toBeLessThanOrEqual(before[g]!);
        }
      }
  });
});
