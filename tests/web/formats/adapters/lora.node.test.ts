// Adapters (LoRA) that are merged while a model is converted: the values beside a computation in float64, every spelling, every kind of
// result, and what is refused.
import { describe, expect, it } from 'vitest';
import {
  estimateModel,
  type FileInput,
  type ModelTarget,
  type PlanOptions,
  planModel,
  quantizeModel,
} from '../../../../web/src/model.js';
import { parseSafetensors } from '../../support/compressed.js';
import { gptqWeight, tensorsOf } from '../../support/foreign-layouts.js';
import { float32, merged, type Pair, pair, spellings, transpose, weight } from '../../support/lora.js';
import { chosen, integers, rejectionOf, safetensors, type TestTensor, weights } from '../../support/models.js';
import { bfloat16Value, expectSame } from '../../support/support.js';
import { decoderConfig, decoderWeights, plainTokenizer } from '../../support/tiny-huggingface.js';

type Tensors = Readonly<Record<string, TestTensor>>;
type Lora = NonNullable<PlanOptions['lora']>;

/** An adapter, with a configuration beside it if one is given. */
function adapter(tensors: Tensors, config?: object, name = 'adapter_model.safetensors'): FileInput[] {
  const file = chosen(name, safetensors(tensors));
  return config === undefined ? [file] : [file, chosen('adapter_config.json', config)];
}

const peftConfig = (alpha: number, more: object = {}) => ({ peft_type: 'LORA', r: 8, lora_alpha: alpha, ...more });

/** Lengths of rows (DoRA). @param end of the name: PEFT leaves `.weight` out when it saves an adapter */
const magnitudes = (name: string, shape: readonly number[], seed: number, end = ''): Tensors => ({
  [`base_model.model.${name}.lora_magnitude_vector${end}`]: weight(shape, seed),
});

/** The tensors of a result. */
async function resultOf(model: FileInput | FileInput[], to: ModelTarget, lora: Lora, options: object = {}) {
  const result = await quantizeModel(model, { to, lora, workers: 0, ...options });
  return { ...result, tensors: parseSafetensors(await result.bytes()).tensors };
}

const floatsIn = (bytes: Uint8Array) => new Float32Array(bytes.slice().buffer);

const module = 'model.layers.0.self_attn.q_proj';
const one = (data: TestTensor): Tensors => ({ [`${module}.weight`]: data, 'model.norm.weight': weight([4], 3) });

describe('merged weights', () => {
  it('are exact for small integers, in every spelling', async () => {
    const base = weight([24, 40], 1, true);
    const lora = pair(24, 40, 8, 2, true);
    // alpha / rank is a power of two.
    const { values } = merged(base, [{ pair: lora, factor: 0.5 * 2 }]);
    for (const [name, spell] of Object.entries(spellings)) {
      const file = adapter(spell(module, lora, 40, 16), name === 'peft' ? peftConfig(16) : undefined);
      const { tensors, report } = await resultOf(safetensors(one(base)), 'copy', [{ file, strength: 0.5 }]);
      expectSame(floatsIn(tensors.get(`${module}.weight`)!.bytes), Float32Array.from(values), name);
      expectSame(floatsIn(tensors.get('model.norm.weight')!.bytes), weight([4], 3).data as Float32Array, name);
      expect(report.notes, name).toContainEqual(
        expect.objectContaining({
          kind: 'adaptersMerged',
          adapters: [{ name: 'adapter_model.safetensors', strength: 0.5, weights: 1 }],
        }),
      );
    }
  });

  it.each([
    [1, 5, 3, 1],
    [33, 130, 7, 3],
    [1100, 1030, 8, 4],
  ])('are as near to float64 as float32 can be: [%i, %i], rank %i', async (rows, columns, rank, seed) => {
    const base = weight([rows, columns], seed);
    const [first, second] = [pair(rows, columns, rank, seed + 1), pair(rows, columns, 2 * rank, seed + 3)];
    // One with lengths stands before another, in both spellings. Convolutions have them in four dimensions.
    const lengths =
      rows === 33 ? magnitudes(module, [1, rows, 1, 1], 9) : magnitudes(module, [rows], 9, '.default.weight');
    const [{ data }] = Object.values(lengths) as [TestTensor];
    const lora: Lora = [
      { file: adapter(spellings.peft(module, first, columns, 0), peftConfig(3)), strength: -0.7 },
      {
        file: adapter({ ...spellings.peft(module, first, columns, 0), ...lengths }, peftConfig(3, { use_dora: true })),
      },
      { file: adapter(spellings.kohya(module, second, columns, 5)) },
    ];
    const { values, bounds } = merged(base, [
      { pair: first, factor: -0.7 * (3 / rank) },
      { pair: first, factor: 3 / rank, lengths: data as Float32Array<ArrayBuffer> },
      { pair: second, factor: 5 / (2 * rank) },
    ]);
    const results: Uint8Array[] = [];
    for (const workers of [0, 2]) {
      for (const simd of ['on', 'off'] as const) {
        const { tensors } = await resultOf(safetensors(one(base)), 'copy', lora, { workers, core: { simd } });
        results.push(tensors.get(`${module}.weight`)!.bytes.slice());
      }
    }
    for (const other of results) expect(Buffer.compare(other, results[0]!)).toBe(0);
    let differing = 0;
    for (const [i, got] of floatsIn(results[0]!).entries()) {
      const off = Math.abs(got - values[i]!);
      if (off > bounds[i]!) expect.fail(`element ${i} is ${off} off, of ${bounds[i]} allowed`);
      if (got !== (base.data as Float32Array)[i]) differing++;
    }
    expect(differing).toBeGreaterThan(0.99 * rows * columns);
  });

  it('of bfloat16 stay bfloat16 in copies, and are read as they are for the sums', async () => {
    const base = weights('BF16', [16, 64], 5);
    const lora = pair(16, 64, 4, 6);
    const exact = float32([16, 64], Float32Array.from(base.data as Uint16Array, bfloat16Value));
    const { values, bounds } = merged(exact, [{ pair: lora, factor: 2 }]);
    const file = adapter(spellings.kohya(module, lora, 64, 8));
    const { tensors } = await resultOf(safetensors(one(base)), 'copy', [{ file }]);
    const { dtype, bytes } = tensors.get(`${module}.weight`)!;
    expect(dtype).toBe('BF16');
    for (const [i, bits] of new Uint16Array(bytes.slice().buffer).entries()) {
      // Rounding to 8 bits adds half a step, 2^-8 of the value before rounding at most.
      const allowed = bounds[i]! + 2 ** -8 * (Math.abs(values[i]!) + bounds[i]!);
      expect(Math.abs(bfloat16Value(bits) - values[i]!)).toBeLessThanOrEqual(allowed);
    }
  });

  it('follow the scales of PEFT', async () => {
    const base = weight([16, 32], 1, true);
    const lora = pair(16, 32, 16, 2, true);
    const tensors = spellings.peft(module, lora, 32, 0);
    const cases: [object, number][] = [
      [peftConfig(8), 0.5],
      [peftConfig(8, { use_rslora: true }), 2],
      [peftConfig(8, { alpha_pattern: { 'self_attn.q_proj': 64 } }), 4],
      [peftConfig(8, { alpha_pattern: { 'layers.[0-3].self_attn.(q|k)_proj': 32, q_proj: 1 } }), 2],
      [peftConfig(8, { alpha_pattern: { _proj: 64, 'layers.1.*': 64 } }), 0.5],
      [peftConfig(8, { rank_pattern: { q_proj: 16 } }), 0.5],
    ];
    for (const [config, factor] of cases) {
      const { values } = merged(base, [{ pair: lora, factor }]);
      const { tensors: got } = await resultOf(safetensors(one(base)), 'copy', [{ file: adapter(tensors, config) }]);
      expectSame(floatsIn(got.get(`${module}.weight`)!.bytes), Float32Array.from(values), JSON.stringify(config));
    }
  });

  it('follow the configurations of diffusers in the metadata', async () => {
    const base = weight([8, 16], 1, true);
    const lora = pair(8, 16, 4, 2, true);
    const { alpha: _, ...tensors } = Object.fromEntries(
      Object.entries(spellings.diffusers(module, lora, 16, 0)).map(([name, value]) => [
        name.endsWith('.alpha') ? 'alpha' : name,
        value,
      ]),
    ) as Record<string, TestTensor>;
    const metadata = { lora_adapter_metadata: JSON.stringify({ 'transformer.r': 4, 'transformer.lora_alpha': 8 }) };
    for (const [header, factor] of [
      [metadata, 2],
      [undefined, 1],
    ] as const) {
      const file = chosen('lora.safetensors', safetensors(tensors, header));
      const { tensors: got } = await resultOf(safetensors(one(base)), 'copy', [{ file }]);
      const { values } = merged(base, [{ pair: lora, factor }]);
      expectSame(floatsIn(got.get(`${module}.weight`)!.bytes), Float32Array.from(values));
    }
  });

  it('take embeddings and layers whose weights are transposed', async () => {
    const [rows, columns, rank] = [20, 12, 4];
    const base = weight([rows, columns], 1, true);
    const lora = pair(rows, columns, rank, 2, true);
    const { values } = merged(base, [{ pair: lora, factor: 2 }]);
    const [a, b] = [
      float32([rank, rows], transpose(lora.up, rows)),
      float32([columns, rank], transpose(lora.down, rank)),
    ];
    const name = `base_model.model.${module}`;
    const cases: [Tensors, object][] = [
      [{ [`${name}.lora_embedding_A`]: a, [`${name}.lora_embedding_B`]: b }, peftConfig(8)],
      [{ [`${name}.lora_A.weight`]: a, [`${name}.lora_B.weight`]: b }, peftConfig(8, { fan_in_fan_out: true })],
    ];
    for (const [tensors, config] of cases) {
      const { tensors: got } = await resultOf(safetensors(one(base)), 'copy', [{ file: adapter(tensors, config) }]);
      expectSame(floatsIn(got.get(`${module}.weight`)!.bytes), Float32Array.from(values), JSON.stringify(config));
    }
  });

  it('take convolutions, in two steps and in three', async () => {
    const [rows, inputs, rank, kernel] = [12, 6, 4, 9];
    const base = weight([rows, inputs, 3, 3], 1, true);
    const two = pair(rows, inputs * kernel, rank, 2, true);
    const three: Pair = {
      ...pair(rows, inputs, rank, 4, true),
      middle: weight([rank, rank, 9], 6, true).data as Float32Array<ArrayBuffer>,
    };
    const up = (of: Pair) => float32([rows, rank, 1, 1], of.up);
    const cases: [Tensors, Pair][] = [
      [
        {
          'lora_unet_conv_in.lora_down.weight': float32([rank, inputs, 3, 3], two.down),
          'lora_unet_conv_in.lora_up.weight': up(two),
        },
        two,
      ],
      [
        {
          'lora_unet_conv_in.lora_down.weight': float32([rank, inputs, 1, 1], three.down),
          'lora_unet_conv_in.lora_mid.weight': float32([rank, rank, 3, 3], three.middle!),
          'lora_unet_conv_in.lora_up.weight': up(three),
        },
        three,
      ],
    ];
    for (const [tensors, lora] of cases) {
      const { tensors: got } = await resultOf(safetensors({ 'conv_in.weight': base }), 'copy', [
        { file: adapter(tensors), strength: 2 },
      ]);
      const { values } = merged(base, [{ pair: lora, factor: 2 }], kernel);
      expectSame(floatsIn(got.get('conv_in.weight')!.bytes), Float32Array.from(values));
    }
  });

  it('take codes of other tools with requantize', async () => {
    const source = gptqWeight({ rows: 32, columns: 64, bits: 4, groupSize: 32, groups: 'shuffled', seed: 3 });
    const lora = pair(32, 64, 4, 5);
    const file = adapter(spellings.kohya('a', lora, 64, 4));
    const model = safetensors(tensorsOf({ a: source }));
    const error = await rejectionOf(quantizeModel(model, { to: 'float16', lora: [{ file }], workers: 0 }));
    expect(error).toMatchObject({ code: 'UNSUPPORTED_DTYPE', message: expect.stringContaining('requantize') });
    const plain = { 'a.weight': float32([...source.shape], source.values) };
    for (const to of ['float16', 'bfloat16'] as const) {
      const got = await resultOf(model, to, [{ file }], { requantize: true });
      const merged = await resultOf(safetensors(plain), 'copy', [{ file }]);
      const floats = safetensors({ 'a.weight': float32([32, 64], floatsIn(merged.tensors.get('a.weight')!.bytes)) });
      const want = await resultOf(floats, to, []);
      expectSame(got.tensors.get('a.weight')!.bytes, want.tensors.get('a.weight')!.bytes, to);
      expect(got.report.notes.map(({ kind }) => kind)).toEqual(
        expect.arrayContaining(['adaptersMerged', 'sourceQuantized']),
      );
    }
  });
});

/** The layers of a decoder that an adapter changes. */
function decoderAdapter(
  all: ReadonlyMap<string, { shape: readonly number[] }>,
  wanted: RegExp,
  rank = 4,
  dora = false,
) {
  const tensors: Record<string, TestTensor> = {};
  let seed = 100;
  for (const [name, { shape }] of all) {
    if (!wanted.test(name)) continue;
    const [rows = 1, columns = 1] = shape;
    const layer = name.replace(/\.weight$/, '');
    seed += 2;
    Object.assign(tensors, spellings.peft(layer, pair(rows, columns, rank, seed), columns, 0));
    if (dora) Object.assign(tensors, magnitudes(layer, [rows], seed));
  }
  return adapter(tensors, peftConfig(2, { use_dora: dora }));
}

/** A folder with a decoder. */
function decoder(architecture: string, options: Parameters<typeof decoderWeights>[0], more: object = {}) {
  const all = decoderWeights(options);
  const tensors = Object.fromEntries(
    [...all].map(([name, { shape, values }]) => [name, float32(shape, values as Float32Array<ArrayBuffer>)]),
  );
  const files = [
    chosen('config.json', decoderConfig(architecture, more as never)),
    chosen('tokenizer.json', plainTokenizer()),
  ];
  return {
    all,
    tensors,
    folder: (own: Tensors = tensors): FileInput[] => [chosen('model.safetensors', safetensors(own)), ...files],
  };
}

const experts = {
  count: 4,
  router: 'mlp.gate',
  names: (e: number) => ['gate', 'up', 'down'].map((name) => `mlp.experts.${e}.${name}_proj`),
};

/** Decoders with the layers that adapters change. */
const decoders: Record<string, [ReturnType<typeof decoder>, RegExp]> = {
  Llama: [decoder('LlamaForCausalLM', {}), /_proj\.weight$/],
  'Llama, with DoRA': [decoder('LlamaForCausalLM', {}), /_proj\.weight$/],
  'Llama, with its embeddings': [decoder('LlamaForCausalLM', {}), /(q_proj|embed_tokens)\.weight$/],
  'Phi-3, whose matrices are taken apart': [decoder('Phi3ForCausalLM', { fused: true }), /_proj\.weight$/],
  'Qwen3 with experts, of which some are changed': [
    decoder(
      'Qwen3MoeForCausalLM',
      { experts, headNorms: true },
      {
        num_experts: 4,
        num_experts_per_tok: 2,
        moe_intermediate_size: 96,
      },
    ),
    /experts\.[02]\.\w+_proj\.weight$|self_attn.v_proj.weight/,
  ],
};

describe('results', () => {
  it.each(Object.keys(decoders))('in GGUF are those of a model that was merged before: %s', async (name) => {
    const [{ all, tensors, folder }, wanted] = decoders[name]!;
    const dora = name.includes('DoRA');
    const lora = [{ file: decoderAdapter(all, wanted, 4, dora), strength: dora ? 1 : 1.5 }];
    const copy = await quantizeModel(folder(), { to: 'copy', lora, workers: 0 });
    const found = parseSafetensors(await copy.bytes()).tensors;
    const before = Object.fromEntries(
      Object.entries(tensors).map(([key, { shape }]) => [key, float32(shape, floatsIn(found.get(key)!.bytes))]),
    );
    expect(
      Object.keys(before).filter(
        (key) => Buffer.compare(Buffer.from(before[key]!.data.buffer), Buffer.from(tensors[key]!.data.buffer)) !== 0,
      ).length,
    ).toBe([...all.keys()].filter((key) => wanted.test(key)).length);
    for (const to of ['F32', 'F16', 'Q8_0'] as const) {
      for (const workers of [0, 2]) {
        const got = await quantizeModel(folder(), { to, lora, workers });
        const want = await quantizeModel(folder(before), { to, workers });
        expect(Buffer.compare(await got.bytes(), await want.bytes()), `${to}, ${workers} workers`).toBe(0);
      }
    }
  });

  it.each(['int8', 'int4', 'float8e4m3fn', 'nvfp4', 'float16'] as const)('in safetensors, too: %s', async (to) => {
    const base = weight([128, 256], 1);
    const lora = [{ file: adapter(spellings.peft(module, pair(128, 256, 8, 2), 256, 0), peftConfig(16)) }];
    const copy = await resultOf(safetensors(one(base)), 'copy', lora);
    const before = one(float32([128, 256], floatsIn(copy.tensors.get(`${module}.weight`)!.bytes)));
    const got = await quantizeModel(safetensors(one(base)), { to, lora, workers: 0 });
    const want = await quantizeModel(safetensors(before), { to, workers: 0 });
    expect(Buffer.compare(await got.bytes(), await want.bytes())).toBe(0);
    const [mine, theirs] = [got, want].map(({ report }) => report.tensors.map(({ error }) => error));
    expect(mine).toEqual(theirs);
  });

  it('for ComfyUI and for GGUF of diffusion models, with convolutions in rows of 256', async () => {
    const name = 'input_blocks.3.0.op';
    const shapes: Record<string, readonly number[]> = {
      'input_blocks.6.0.op.weight': [32, 32, 3, 3],
      'input_blocks.9.0.op.weight': [32, 32, 3, 3],
      'output_blocks.2.1.conv.weight': [32, 32, 3, 3],
      'output_blocks.5.2.conv.weight': [32, 32, 3, 3],
      'output_blocks.8.2.conv.weight': [32, 32, 3, 3],
      'input_blocks.4.1.transformer_blocks.0.attn1.to_q.weight': [64, 96],
    };
    const prefix = 'model.diffusion_model.';
    const tensors = Object.fromEntries(
      [[`${name}.weight`, [32, 32, 3, 3]] as const, ...Object.entries(shapes)].map(([key, shape], i) => [
        prefix + key,
        weight(shape, i + 1),
      ]),
    );
    const conv = pair(32, 288, 4, 50);
    const linear = pair(64, 96, 4, 60);
    const file = adapter({
      ...spellings.kohya('input_blocks.4.1.transformer_blocks.0.attn1.to_q', linear, 96, 4),
      [`lora_unet_${name.replaceAll('.', '_')}.lora_down.weight`]: float32([4, 32, 3, 3], conv.down),
      [`lora_unet_${name.replaceAll('.', '_')}.lora_up.weight`]: float32([32, 4, 1, 1], conv.up),
    });
    const copy = await resultOf(safetensors(tensors), 'copy', [{ file }]);
    const before = Object.fromEntries(
      Object.entries(tensors).map(([key, { shape }]) => [key, float32(shape, floatsIn(copy.tensors.get(key)!.bytes))]),
    );
    for (const to of ['Q4_K_M', 'F16', 'comfy-fp8', 'comfy-int8'] as const) {
      const got = await quantizeModel(safetensors(tensors), { to, lora: [{ file }], workers: 0 });
      const want = await quantizeModel(safetensors(before), { to, workers: 0 });
      expect(Buffer.compare(await got.bytes(), await want.bytes()), to).toBe(0);
    }
  });

  it('are planned with exact sizes, also from JSON, and estimated on samples', async () => {
    const base = weights('BF16', [512, 512], 1);
    const lora = [
      { file: adapter(spellings.peft(module, pair(512, 512, 8, 2), 512, 0), peftConfig(16)), strength: 0.25 },
    ];
    const model = safetensors(one(base));
    const plan = await planModel(model, { to: 'int8', lora });
    const { totals } = await planModel(model, { to: 'int8' });
    expect(plan.totals.bytesAfter).toBe(totals.bytesAfter);
    const saved = JSON.parse(JSON.stringify(plan));
    expect(saved.options.lora).toEqual([{ file: null, strength: 0.25 }]);
    const got = await quantizeModel(model, saved, { lora, workers: 0 });
    const want = await quantizeModel(model, { to: 'int8', lora, workers: 0 });
    expect(Buffer.compare(await got.bytes(), await want.bytes())).toBe(0);
    expect(totals.bytesAfter).toBe((await want.bytes()).length);
    const estimate = await estimateModel(model, { to: 'int8', lora, sample: 4096, workers: 0 });
    expect(estimate.sampled).toBe(1);
    const errors = [estimate, want.report].map(
      ({ tensors }) => tensors.find(({ name }) => name === `${module}.weight`)!.error!.sqnrDb,
    );
    expect(Math.abs(errors[0]! - errors[1]!)).toBeLessThan(3);
  });
});

describe('adapters that are refused', () => {
  const base = safetensors(one(weight([8, 16], 1)));
  const good = spellings.kohya(module, pair(8, 16, 2, 2), 16, 2);
  const peft = spellings.peft(module, pair(8, 16, 2, 2), 16, 0);
  const key = `lora_unet_${module.replaceAll('.', '_')}`;
  const refuse = (tensors: Tensors, config?: object, model: FileInput = base) =>
    rejectionOf(quantizeModel(model, { to: 'copy', lora: [{ file: adapter(tensors, config) }], workers: 0 }));

  it.each([
    ['DoRA with scales', { [`${key}.dora_scale`]: weight([8, 1], 1) }],
    ['LoHa', { [`${key}.hada_w1_a`]: weight([8, 2], 1) }],
    ['LoKr', { [`${key}.lokr_w1`]: weight([2, 2], 1) }],
    ['differences of whole weights', { [`${key}.diff`]: weight([8, 16], 1) }],
    ['LoRA with biases', { [`base_model.model.${module}.lora_B.bias`]: weight([8], 1) }],
  ])('by name: %s', async (kind, tensors) => {
    const error = await refuse({ ...good, ...tensors });
    const [tensor] = Object.keys(tensors);
    expect(error).toMatchObject({
      code: 'UNKNOWN_FORMAT',
      tensor,
      message: expect.stringContaining(`it is ${kind}`),
    });
  });

  it('with layers that match no weight, of which it lists ten and says how many there are', async () => {
    const lost = Object.assign(
      {},
      ...Array.from({ length: 12 }, (_, i) => spellings.kohya(`other.${i}`, pair(8, 16, 2, 2), 16, 2)),
    );
    const error = (await refuse({ ...good, ...lost })) as Error;
    expect(error).toMatchObject({ code: 'BAD_FILE' });
    expect(error.message).toContain('12 of its 13 layers match no weight of the model: "lora_unet_other_0", ');
    expect(error.message).toContain('"lora_unet_other_9" and 2 more');
    expect(error.message).not.toContain('other_10');
  });

  it.each<[string, Tensors, object | undefined, string]>([
    ['a missing partner', { [`${key}.lora_up.weight`]: weight([8, 2], 1) }, undefined, 'has not just two matrices'],
    [
      'another shape',
      spellings.kohya(module, pair(8, 15, 2, 2), 15, 2),
      undefined,
      `do not fit the weight "${module}.weight" [8, 16]`,
    ],
    ['another rank', { ...good, [`${key}.lora_up.weight`]: weight([8, 3], 1) }, undefined, 'do not fit'],
    [
      'no rank',
      { ...good, [`${key}.lora_up.weight`]: weight([8, 0], 1), [`${key}.lora_down.weight`]: weight([0, 16], 1) },
      undefined,
      'do not fit',
    ],
    [
      'integers',
      { ...good, [`${key}.lora_up.weight`]: integers([8, 2]) },
      undefined,
      'is I64, which is not a float type',
    ],
    [
      'an alpha that is NaN',
      { ...good, [`${key}.alpha`]: float32([], Float32Array.of(Number.NaN)) },
      undefined,
      'is not a finite number',
    ],
    ['an alpha of many numbers', { ...good, [`${key}.alpha`]: weight([8], 1) }, undefined, 'is not a finite number'],
    [
      'two tensors for one place',
      { ...good, [`${key}_lora.up.weight`]: weight([8, 2], 1), [`${key}.lora.up.weight`]: weight([8, 2], 1) },
      undefined,
      'have the same place',
    ],
    [
      'a strange tensor',
      { ...good, 'text.embedding': weight([8], 1) },
      undefined,
      '"text.embedding" is not a matrix of LoRA',
    ],
    [
      'no configuration of PEFT',
      spellings.peft(module, pair(8, 16, 2, 2), 16, 0),
      undefined,
      'needs adapter_config.json',
    ],
    [
      'another method of PEFT',
      spellings.peft(module, pair(8, 16, 2, 2), 16, 0),
      peftConfig(1, { peft_type: 'ADALORA' }),
      'kind ADALORA',
    ],
    ['DoRA without magnitudes', peft, peftConfig(1, { use_dora: true }), 'lacks the magnitudes that use_dora asks for'],
    [
      'magnitudes without DoRA',
      { ...peft, ...magnitudes(module, [8], 1) },
      peftConfig(1),
      'has magnitudes without use_dora',
    ],
    [
      'DoRA of other rows',
      { ...peft, ...magnitudes(module, [7], 1) },
      peftConfig(1, { use_dora: true }),
      'do not fit the weight',
    ],
    [
      'DoRA of transposed weights',
      { ...peft, ...magnitudes(module, [8], 1) },
      peftConfig(1, { use_dora: true, fan_in_fan_out: true }),
      'DoRA of embeddings and of transposed weights',
    ],
    [
      'PiSSA',
      spellings.peft(module, pair(8, 16, 2, 2), 16, 0),
      peftConfig(1, { init_lora_weights: 'pissa_niter_4' }),
      'init_lora_weights is pissa',
    ],
    ['no alpha', spellings.peft(module, pair(8, 16, 2, 2), 16, 0), { peft_type: 'LORA' }, 'lora_alpha is missing'],
    [
      'a wrong pattern',
      spellings.peft(module, pair(8, 16, 2, 2), 16, 0),
      peftConfig(1, { alpha_pattern: { '(': 1 } }),
      'alpha_pattern has the key "("',
    ],
    ['nothing', {}, undefined, 'it has no matrices'],
  ])('for %s', async (_, tensors, config, text) => {
    expect(await refuse(tensors, config)).toMatchObject({ code: 'BAD_FILE', message: expect.stringContaining(text) });
  });

  it('for names that mean several weights, or one weight twice', async () => {
    const two = safetensors({
      'a.blocks.0.proj.weight': weight([8, 16], 1),
      'b.blocks.0.proj.weight': weight([8, 16], 2),
    });
    const file = spellings.kohya('blocks.0.proj', pair(8, 16, 2, 2), 16, 2);
    expect(await refuse(file, undefined, two)).toMatchObject({
      code: 'BAD_FILE',
      message: expect.stringContaining('may be any of "a.blocks.0.proj.weight", "b.blocks.0.proj.weight"'),
    });
    const twice = { ...good, ...spellings['plain names'](module, pair(8, 16, 2, 2), 16, 2) };
    expect(await refuse(twice)).toMatchObject({ code: 'BAD_FILE', message: expect.stringContaining('both change') });
  });

  it('where no product can be added', async () => {
    const norm = spellings.kohya('model.norm', pair(4, 1, 1, 2), 1, 1);
    expect(await refuse(norm)).toMatchObject({ code: 'UNSUPPORTED_DTYPE', tensor: 'model.norm.weight' });
    const whole = safetensors({ [`${module}.weight`]: integers([8, 16]) });
    expect(await refuse(good, undefined, whole)).toMatchObject({ code: 'UNSUPPORTED_DTYPE' });
  });

  it('with an infinite product, or a length for a row of zeros: named by its weight', async () => {
    const dora = adapter({ ...peft, ...magnitudes(module, [8], 1) }, peftConfig(0, { use_dora: true }));
    const zeros = safetensors(one(float32([8, 16], new Float32Array(128))));
    const run = (model: FileInput, lora: Lora) => rejectionOf(quantizeModel(model, { to: 'copy', lora, workers: 0 }));
    for (const error of [
      await run(base, [{ file: adapter(good), strength: 1e300 }]),
      await run(zeros, [{ file: dora }]),
    ])
      expect(error).toMatchObject({ code: 'BAD_FILE', tensor: `${module}.weight` });
    expect(await run(base, [{ file: dora, strength: 0.5 }])).toMatchObject({
      code: 'BAD_FILE',
      message: expect.stringContaining('DoRA with a strength of 0.5'),
    });
  });

  it('and wrong options', async () => {
    const wrong: [unknown, string][] = [
      [{}, 'lora'],
      [[{}], 'lora[0].file'],
      [[{ file: 'a', strength: '1' }], 'lora[0].strength'],
      [[{ file: 'a', strength: Number.NaN }], 'lora[0].strength'],
      [[{ file: 'a', alpha: 1 }], 'lora[0].alpha'],
      [[{ file: 5 }], 'lora[0].file'],
    ];
    for (const [lora, option] of wrong) {
      const error = await rejectionOf(quantizeModel(base, { to: 'copy', lora: lora as Lora, workers: 0 }));
      expect(error, JSON.stringify(lora)).toMatchObject({ option });
    }
  });
});

describe('tensors that an adapter holds whole', () => {
  const base = weight([24, 40], 1, true);
  const lora = pair(24, 40, 8, 2, true);
  const head = weight([6, 40], 5, true);
  const norm = weight([40], 6, true);
  const model = safetensors({
    [`${module}.weight`]: base,
    'lm_head.weight': weight([6, 40], 3, true),
    'score.bias': weight([40], 4, true),
  });
  const saved = (names: Tensors) => adapter({ ...spellings.peft(module, lora, 40, 16), ...names }, peftConfig(16));

  it('take the place of those of the model, beside matrices', async () => {
    const file = saved({
      'base_model.model.lm_head.modules_to_save.weight': head,
      'base_model.model.score.bias': norm,
    });
    const { tensors, report } = await resultOf(model, 'copy', [{ file }]);
    expectSame(floatsIn(tensors.get('lm_head.weight')!.bytes), head.data as Float32Array);
    expectSame(floatsIn(tensors.get('score.bias')!.bytes), norm.data as Float32Array);
    const { values } = merged(base, [{ pair: lora, factor: 2 }]);
    expectSame(floatsIn(tensors.get(`${module}.weight`)!.bytes), Float32Array.from(values));
    expect(report.notes[0]).toMatchObject({ kind: 'adaptersMerged', adapters: [{ weights: 1, replaced: 2 }] });
  });

  it.each([
    ['another shape', { 'base_model.model.lm_head.weight': weight([7, 40], 5) }, 1, 'tokens were added'],
    ['another name', { 'base_model.model.classifier.weight': head }, 1, 'replaces one that the model lacks'],
    ['a strength', { 'base_model.model.lm_head.weight': head }, 0.5, 'which a strength of 0.5 cannot scale'],
  ] as const)('are refused with %s', async (_, tensors, strength, words) => {
    const error = await rejectionOf(planModel(model, { to: 'copy', lora: [{ file: saved(tensors), strength }] }));
    expect(error).toMatchObject({ code: 'BAD_FILE', message: expect.stringContaining(words) });
  });
});
