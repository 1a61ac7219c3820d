// Experts that checkpoints store in one tensor for all of a layer. Results with codes have to equal those of the same model with a matrix for
// each expert, byte for byte.
import { describe, expect, it } from 'vitest';
import { compareModels, planModel, quantizeModel, verifyModel } from '../../../../web/src/model.js';
import { parseSafetensors } from '../../support/compressed.js';
import { folder } from '../../support/folders.js';
import { matrixFile } from '../../support/importance.js';
import { safetensors, type TestTensor, weights } from '../../support/models.js';

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
