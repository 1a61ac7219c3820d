// Experts that checkpoints store in one tensor for all of a layer. Results with codes have to equal those of the same model with a matrix for
// each expert, byte for byte.
import { describe, expect, it } from 'vitest';
import { compareModels, planModel, quantizeModel, verifyModel } from '../../../../web/src/model.js';
import { parseSafetensors } from '../../support/compressed.js';
import { named, nearest } from '../../support/floats.js';
import { folder } from '../../support/folders.js';
import { matrixFile } from '../../support/importance.js';
import { bytesOf, safetensors, type TestTensor, weights } from '../../support/models.js';

const [experts, hidden, rows] = [3, 256, 384];
const all = [0, 1, 2];
const module = 'model.layers.0';

/** The matrices of an expert, with their outputs as rows. */
const gates = all.map((e) => weights('BF16', [rows, hidden], 10 + e));
const ups = all.map((e) => weights('BF16', [rows, hidden], 20 + e));
const downs = all.map((e) => weights('BF16', [hidden, rows], 30 + e));
const biases = all.map((e) => weights('BF16', [2 * rows + hidden], 40 + e));

/** The number of an element at a row and a column of a matrix. */
const at = ({ data, shape }: TestTensor, row: number, column: number) => {
  return (data as Uint16Array)[row * shape[1]! + column]!;
};

/** A stack of a shape, with the element of each expert at each row and column. */
function stack(
  shape: readonly [number, number],
  element: (e: number, row: number, column: number) => number,
): TestTensor {
  const [first, second] = shape;
  const data = new Uint16Array(experts * first * second);
  let i = 0;
  for (const e of all) for (let r = 0; r < first; r++) for (let c = 0; c < second; c++) data[i++] = element(e, r, c);
  return { dtype: 'BF16', shape: [experts, first, second], data };
}

const joined = (e: number, output: number, input: number) =>
  at((output < rows ? gates : ups)[e]!, output % rows, input);
const inTurns = (e: number, output: number, input: number) =>
  at((output % 2 === 0 ? gates : ups)[e]!, output >> 1, input);

const vector = (e: number, elements: readonly number[]): TestTensor => ({
  dtype: 'BF16',
  shape: [elements.length],
  data: Uint16Array.from(elements, (i) => (biases[e]!.data as Uint16Array)[i]!),
});
const numbers = (count: number, from = 0, step = 1) => Array.from({ length: count }, (_, i) => from + i * step);

const straight = {
  joined: stack([2 * rows, hidden], joined),
  down: stack([hidden, rows], (e, r, c) => at(downs[e]!, r, c)),
};
const turned = {
  joined: stack([hidden, 2 * rows], (e, r, c) => joined(e, c, r)),
  down: stack([rows, hidden], (e, r, c) => at(downs[e]!, c, r)),
};
const turns = { joined: stack([hidden, 2 * rows], (e, r, c) => inTurns(e, c, r)), down: turned.down };
const joinedBias: TestTensor = {
  dtype: 'BF16',
  shape: [experts, 2 * rows],
  data: Uint16Array.from(all.flatMap((e) => [...(biases[e]!.data as Uint16Array).subarray(0, 2 * rows)])),
};
const downBias: TestTensor = {
  dtype: 'BF16',
  shape: [experts, hidden],
  data: Uint16Array.from(all.flatMap((e) => [...(biases[e]!.data as Uint16Array).subarray(2 * rows)])),
};

/** The bits of the bfloat16 that is nearest to a value. */
const halfOf = (value: number) => new Uint32Array(Float32Array.of(nearest(value, named.BF16!)).buffer)[0]! >>> 16;

/** Tensors beside the experts. */
const others = {
  'model.embed_tokens.weight': weights('BF16', [16, hidden], 1),
  [`${module}.self_attn.q_proj.weight`]: weights('BF16', [hidden, hidden], 2),
  [`${module}.mlp.gate.weight`]: weights('BF16', [experts, hidden], 3),
};

/** The model with a matrix for each expert. */
function apart(prefix: string, hasBiases = false): Record<string, TestTensor> {
  const tensors: Record<string, TestTensor> = { ...others };
  for (const e of all) {
    tensors[`${prefix}.${e}.gate_proj.weight`] = gates[e]!;
    tensors[`${prefix}.${e}.up_proj.weight`] = ups[e]!;
    tensors[`${prefix}.${e}.down_proj.weight`] = downs[e]!;
    if (!hasBiases) continue;
    tensors[`${prefix}.${e}.gate_proj.bias`] = vector(e, numbers(rows, 0, 2));
    tensors[`${prefix}.${e}.up_proj.bias`] = vector(e, numbers(rows, 1, 2));
    tensors[`${prefix}.${e}.down_proj.bias`] = vector(e, numbers(hidden, 2 * rows));
  }
  return tensors;
}

const families = {
  'Qwen3.5 and Gemma 4': {
    prefix: `${module}.mlp.experts`,
    stacks: {
      [`${module}.mlp.experts.gate_up_proj`]: straight.joined,
      [`${module}.mlp.experts.down_proj`]: straight.down,
    },
  },
  Granite: {
    prefix: `${module}.block_sparse_moe.experts`,
    stacks: {
      [`${module}.block_sparse_moe.input_linear.weight`]: straight.joined,
      [`${module}.block_sparse_moe.output_linear.weight`]: straight.down,
    },
  },
  'Llama 4 and Qwen3-VL': {
    prefix: `${module}.feed_forward.experts`,
    stacks: {
      [`${module}.feed_forward.experts.gate_up_proj`]: turned.joined,
      [`${module}.feed_forward.experts.down_proj`]: turned.down,
    },
  },
  'gpt-oss': {
    prefix: `${module}.mlp.experts`,
    hasBiases: true,
    stacks: {
      [`${module}.mlp.experts.gate_up_proj`]: turns.joined,
      [`${module}.mlp.experts.gate_up_proj_bias`]: joinedBias,
      [`${module}.mlp.experts.down_proj`]: turns.down,
      [`${module}.mlp.experts.down_proj_bias`]: downBias,
    },
  },
};

/** A folder of Qwen 3 whose only layer has these experts. */
function qwen3(tensors: Readonly<Record<string, TestTensor>>) {
  const layer = {
    'self_attn.q_proj': [256, hidden],
    'self_attn.k_proj': [128, hidden],
    'self_attn.v_proj': [128, hidden],
    'self_attn.o_proj': [hidden, 256],
    'self_attn.q_norm': [64],
    'self_attn.k_norm': [64],
    input_layernorm: [hidden],
    post_attention_layernorm: [hidden],
  };
  const rest = Object.entries(layer).map(([name, shape], i) => [
    `${module}.${name}.weight`,
    weights('BF16', shape, 60 + i),
  ]);
  const config = {
    architectures: ['Qwen3MoeForCausalLM'],
    model_type: 'qwen3_moe',
    hidden_size: hidden,
    intermediate_size: 512,
    num_hidden_layers: 1,
    num_attention_heads: 4,
    num_key_value_heads: 2,
    head_dim: 64,
    vocab_size: 16,
    num_experts: experts,
    num_experts_per_tok: 2,
    moe_intermediate_size: rows,
    norm_topk_prob: true,
    tie_word_embeddings: true,
  };
  const all = { ...tensors, ...Object.fromEntries(rest), 'model.norm.weight': weights('BF16', [hidden], 70) };
  return folder(all, { 'config.json': config });
}

describe('an importance matrix', () => {
  const name = 'blk.0.ffn_';
  const entry = (end: string, columns: number, counts: readonly number[]) => ({
    name: `${name}${end}_exps.weight`,
    // Some columns of each expert weigh a hundred times as much as others.
    sums: Float32Array.from({ length: counts.length * columns }, (_, i) => (i % 7 === 0 ? 300 : 3)),
    counts,
  });
  const importance = matrixFile([
    entry('gate', hidden, [3, 0, 5]),
    entry('up', hidden, [3, 0, 5]),
    entry('down', rows, [3, 0, 5]),
  ]);
  const [stacked, separate] = [
    { ...others, ...families['Qwen3.5 and Gemma 4'].stacks },
    apart(`${module}.mlp.experts`),
  ];

  it('weighs each expert of a stack by its own columns, and names those that no token reached', async () => {
    const options = { to: 'int4', importance, workers: 0 } as const;
    const result = await quantizeModel(qwen3(stacked), options);
    const bytes = await result.bytes();
    expect(Buffer.compare(bytes, await (await quantizeModel(qwen3(separate), options)).bytes())).toBe(0);
    const partial = result.report.notes.find(({ kind }) => kind === 'partialImportance');
    const unreached = ['gate', 'up', 'down'].map((end) => `${module}.mlp.experts.1.${end}_proj.weight`);
    expect(partial).toMatchObject({ matrices: 3, tensors: unreached });
    // The matrix made a difference where tokens were.
    const plain = parseSafetensors(await (await quantizeModel(qwen3(stacked), { to: 'int4', workers: 0 })).bytes());
    const codes = (tensors: typeof plain.tensors, e: number) =>
      Buffer.from(tensors.get(`${module}.mlp.experts.${e}.gate_proj.weight_packed`)!.bytes);
    expect(codes(parseSafetensors(bytes).tensors, 0).equals(codes(plain.tensors, 0))).toBe(false);
  });
});

const targets = ['int4', 'int8', 'float8e4m3fn', 'nvfp4', 'mxfp4', 'mxfp8', 'gptq', 'gptq-8bit', 'awq'] as const;

describe.each(Object.entries(families))('stacked experts of %s', (family, { prefix, stacks, ...rest }) => {
  const { hasBiases = false } = rest as { hasBiases?: boolean };
  const stacked = safetensors({ ...others, ...stacks });
  const separate = safetensors(apart(prefix, hasBiases));

  it.each(/gpt|Qwen3.5/.test(family) ? targets : (['nvfp4'] as const))(
    'become the codes of their matrices: %s',
    async (to) => {
      const options = { to, workers: 0 } as const;
      const result = await quantizeModel(stacked, options);
      const wanted = await quantizeModel(separate, options);
      const bytes = await result.bytes();
      expect(Buffer.compare(bytes, await wanted.bytes())).toBe(0);
      expect(result.config).toEqual(wanted.config);
      // The plan has the sizes of the result.
      const plan = await planModel(stacked, options);
      expect(plan.totals.bytesAfter).toBe(bytes.length);
      expect(result.report.totals.bytesAfter).toBe(bytes.length);
      // Each expert has codes, and nothing is wrong with them.
      const { tensors } = parseSafetensors(bytes);
      const coded = result.report.tensors.filter(({ kept }) => kept === undefined).map(({ name }) => name);
      for (const e of all)
        for (const projection of ['gate_proj', 'up_proj', 'down_proj'])
          expect(coded).toContain(`${prefix}.${e}.${projection}.weight`);
      expect([...tensors.keys()].filter((name) => /gate_up_proj|_linear/.test(name))).toEqual([]);
      expect((await verifyModel(bytes, { config: result.config! })).problems).toEqual([]);
      expect(result.report.notes.map(({ kind }) => kind)).toContain('expertsApart');
    },
  );

  it('stay as they are in floats', async () => {
    const bytes = await (await quantizeModel(stacked, { to: 'float16', workers: 0 })).bytes();
    expect([...parseSafetensors(bytes).tensors.keys()].sort()).toEqual(Object.keys({ ...others, ...stacks }).sort());
  });

  it('are compared with the matrices', async () => {
    const bytes = await (await quantizeModel(stacked, { to: 'int8', workers: 0 })).bytes();
    const { onlyInA, onlyInB, tensors } = await compareModels(stacked, bytes, { workers: 0 });
    expect([onlyInA, onlyInB]).toEqual([[], []]);
    // Rounding to 255 steps of a group's range loses at least 40 dB.
    for (const { name, error } of tensors) expect(error.sqnrDb, name).toBeGreaterThan(40);
  });
});

describe('rows of experts that groups of 128 do not divide', () => {
  // As in Gemma 4, whose experts have 704 rows.
  const name = `${module}.mlp.experts`;
  const model = safetensors({
    ...others,
    [`${name}.gate_up_proj`]: weights('BF16', [2, 2 * 704, hidden], 5),
    [`${name}.down_proj`]: weights('BF16', [2, hidden, 704], 6),
  });

  it('become int4 in smaller groups, all of the layer in one scheme', async () => {
    const result = await quantizeModel(model, { to: 'int4', workers: 0 });
    const bytes = await result.bytes();
    const { tensors } = parseSafetensors(bytes);
    const groups = (weight: string, columns: number) => columns / tensors.get(`${weight}_scale`)!.shape[1]!;
    for (const e of [0, 1]) {
      expect(groups(`${name}.${e}.down_proj.weight`, 704)).toBe(64);
      expect(groups(`${name}.${e}.gate_proj.weight`, hidden)).toBe(64);
    }
    expect(groups(`${module}.self_attn.q_proj.weight`, hidden)).toBe(128);
    expect((await verifyModel(bytes, { config: result.config! })).problems).toEqual([]);
    expect(result.report.notes.map(({ kind }) => kind)).toEqual(['expertsApart']);
  });
});

describe('stacks of experts in mlx-lm', () => {
  // Names by mlx_lm/models: `sanitize` of each.
  const kinds = [
    ['qwen3_5_moe', families['Qwen3.5 and Gemma 4'].stacks, `language_model.${module}.mlp.switch_mlp`],
    ['qwen3_next', families['Qwen3.5 and Gemma 4'].stacks, `${module}.mlp.switch_mlp`],
    ['granitemoe', families.Granite.stacks, `${module}.block_sparse_moe.switch_mlp`],
    ['gpt_oss', families['gpt-oss'].stacks, `${module}.mlp.experts`],
  ] as const;

  it.each(kinds)('have the codes of their matrices: %s', async (type, stacks, stackName) => {
    const config = { model_type: type, torch_dtype: 'bfloat16', num_hidden_layers: 1 };
    const tensors = { ...others, ...stacks, 'lm_head.weight': weights('BF16', [16, hidden], 7) };
    const result = await quantizeModel(folder(tensors, { 'config.json': config }), { to: 'mlx-4bit', workers: 0 });
    const plain = { ...others, 'lm_head.weight': tensors['lm_head.weight'] };
    const known = { ...config, model_type: 'qwen3_moe' };
    const separate = folder({ ...plain, ...apart(`${module}.mlp.experts`) }, { 'config.json': known });
    const wanted = parseSafetensors(await (await quantizeModel(separate, { to: 'mlx-4bit', workers: 0 })).bytes());
    const { tensors: got } = parseSafetensors(await result.bytes());
    for (const projection of ['gate_proj', 'up_proj', 'down_proj'])
      for (const part of ['weight', 'scales', 'biases']) {
        const stacked = got.get(`${stackName}.${projection}.${part}`);
        const want = wanted.tensors.get(`${module}.mlp.switch_mlp.${projection}.${part}`)!;
        expect(stacked?.shape, projection).toEqual(want.shape);
        expect(Buffer.compare(stacked!.bytes, want.bytes), `${projection}.${part}`).toBe(0);
      }
    expect([...got.keys()].filter((name) => /gate_up_proj|_linear/.test(name))).toEqual([]);
    if (type !== 'gpt_oss') return;
    for (const [projection, from, step, count] of [
      ['gate_proj', 0, 2, rows],
      ['up_proj', 1, 2, rows],
      ['down_proj', 2 * rows, 1, hidden],
    ] as const) {
      const bias = got.get(`${stackName}.${projection}.bias`)!;
      expect(bias.shape).toEqual([experts, count]);
      const want = all.flatMap((e) => [...(vector(e, numbers(count, from, step)).data as Uint16Array)]);
      expect(Buffer.compare(bias.bytes, new Uint8Array(Uint16Array.from(want).buffer))).toBe(0);
    }
  });

  it('of Gemma 4 and Llama 4 stand beside their towers', async () => {
    for (const [type, prefix, stacks, stack] of [
      ['gemma4', 'model.language_model', families['Qwen3.5 and Gemma 4'].stacks, 'experts.switch_glu'],
      ['llama4', 'language_model.model', families['Llama 4 and Qwen3-VL'].stacks, 'feed_forward.experts'],
    ] as const) {
      const named = Object.entries({ ...others, ...stacks }).map(([name, tensor]) => [
        name
          .replace(/^model/, prefix)
          .replace(type === 'gemma4' ? '.mlp.experts' : '', type === 'gemma4' ? '.experts' : ''),
        tensor,
      ]);
      const tensors: Record<string, TestTensor> = {
        ...Object.fromEntries(named),
        [type === 'gemma4' ? 'model.vision_tower.patch.weight' : 'vision_model.patch.weight']: weights(
          'BF16',
          [8, 64],
          8,
        ),
      };
      if (type === 'llama4') tensors['language_model.lm_head.weight'] = weights('BF16', [16, hidden], 7);
      const config = { model_type: type, text_config: { dtype: 'bfloat16', num_hidden_layers: 1 } };
      const result = await quantizeModel(folder(tensors, { 'config.json': config }), { to: 'mlx-4bit', workers: 0 });
      const { tensors: got } = parseSafetensors(await result.bytes());
      const base = `language_model.${module}.${stack}`;
      expect(got.get(`${base}.gate_proj.weight`)?.shape).toEqual([experts, rows, hidden / 8]);
      expect(got.get(`${base}.down_proj.scales`)?.shape).toEqual([experts, hidden, rows / 64]);
      expect([...got.keys()].filter((name) => !name.startsWith('language_model.'))).toEqual([]);
    }
  });

  it('of Qwen3.5 stand beside norms to which 1 is added, and a convolution of other axes', async () => {
    const norm = { dtype: 'BF16', shape: [hidden], data: Uint16Array.from({ length: hidden }, (_, i) => 0x3d00 + i) };
    const convolution = weights('BF16', [64, 1, 4], 9);
    const tensors = {
      'model.language_model.embed_tokens.weight': weights('BF16', [16, hidden], 1),
      'model.language_model.layers.0.input_layernorm.weight': norm,
      'model.language_model.layers.0.linear_attn.norm.weight': norm,
      'model.language_model.layers.0.linear_attn.conv1d.weight': convolution,
      'model.language_model.layers.0.linear_attn.A_log': weights('F32', [4], 3),
      'mtp.fc.weight': weights('BF16', [hidden, hidden], 4),
    };
    const text = { dtype: 'bfloat16', num_hidden_layers: 1, tie_word_embeddings: true };
    const config = { model_type: 'qwen3_5', text_config: text };
    const result = await quantizeModel(folder(tensors, { 'config.json': config }), { to: 'mlx-4bit', workers: 0 });
    const { tensors: got } = parseSafetensors(await result.bytes());
    const layer = 'language_model.model.layers.0';
    expect(got.get(`${layer}.linear_attn.conv1d.weight`)?.shape).toEqual([64, 4, 1]);
    expect(Buffer.compare(got.get(`${layer}.linear_attn.norm.weight`)!.bytes, bytesOf(norm.data))).toBe(0);
    expect(got.get(`${layer}.linear_attn.A_log`)?.dtype).toBe('F32');
    const added = new Uint16Array(got.get(`${layer}.input_layernorm.weight`)!.bytes.slice().buffer);
    for (const [i, bits] of added.entries()) {
      const value = new Float32Array(Uint32Array.of((0x3d00 + i) << 16).buffer)[0]!;
      expect(bits, String(i)).toBe(halfOf(1 + value));
    }
    expect([...got.keys()].some((name) => name.includes('mtp'))).toBe(false);
  });
});
