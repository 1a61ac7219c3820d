// Weights of GPTQ, AWQ, bitsandbytes, MLX, compressed-tensors and ComfyUI as sources: restored to the floats that an oracle finds for their
// codes, and quantized again.
import { readFloats } from 'scalepoint/model';
import { describe, expect, it } from 'vitest';
import { quantizeModel } from '../../../../web/src/model.js';
import { parseSafetensors } from '../../support/compressed.js';
import { folder, type Json } from '../../support/folders.js';
import {
  awqWeight,
  bitsAndBytesWeight,
  type ForeignWeight,
  gptqWeight,
  int8Weight,
  mlxWeight,
  packedWeight,
  rotatedWeight,
  tensorsOf,
  wholeInt8Weight,
} from '../../support/foreign-layouts.js';
import { chosen, rejectionOf, safetensors, type TestTensor } from '../../support/models.js';
import { expectSame } from '../../support/support.js';
import { decoderConfig, decoderWeights, plainTokenizer } from '../../support/tiny-huggingface.js';

const configOf = (quantization: Json) => ({ 'config.json': { quantization_config: quantization } });

interface Case {
  readonly weight: ForeignWeight;
  readonly files: Readonly<Record<string, Json>>;
  /** True if its tiles are those of another case, so that reading it once is enough. */
  readonly isAlike?: boolean;
}

/** Weights of each layout with the configuration beside them. */
const cases: Record<string, Case> = {};
for (const bits of [2, 3, 4, 8]) {
  for (const groups of ['none', 'order', 'shuffled'] as const) {
    const v2 = groups === 'order';
    cases[`GPTQ, ${bits} bits, g_idx: ${groups}${v2 ? ', second version' : ''}`] = {
      weight: gptqWeight({ rows: 96, columns: 160, bits, groupSize: 32, groups, v2, seed: bits }),
      files: configOf({ quant_method: 'gptq', checkpoint_format: v2 ? 'gptq_v2' : 'gptq', group_size: 32 }),
    };
  }
}
cases['GPTQ, symmetric, a short last group'] = {
  weight: gptqWeight({ rows: 32, columns: 96, bits: 4, groupSize: 64, groups: 'none', symmetric: true, seed: 5 }),
  files: { 'quantize_config.json': { bits: 4, group_size: 64, checkpoint_format: 'gptq' } },
};
// Labels are wrong in files of several tools, and the zero points of symmetric codes show it. Others have to be believed.
for (const [what, v2, symmetric, bits, config] of [
  ['symmetric with zeros 8 under gptq', true, true, 4, { quant_method: 'gptq', checkpoint_format: 'gptq', sym: true }],
  ['symmetric with zeros 7 under gptq_v2', false, true, 4, { quant_method: 'gptq', checkpoint_format: 'gptq_v2' }],
  ['symmetric of 3 bits with zeros 4 under gptq', true, true, 3, { quant_method: 'gptq', checkpoint_format: 'gptq' }],
  [
    'symmetric of 2 bits with zeros 1',
    false,
    true,
    2,
    { quant_method: 'intel/auto-round', packing_format: 'auto_round' },
  ],
  ['symmetric of 8 bits with zeros 128', true, true, 8, { quant_method: 'gptq' }],
  ['AutoRound', true, false, 4, { quant_method: 'auto-round', packing_format: 'auto_round' }],
  ['AutoRound for ExLlamaV2', true, false, 4, { quant_method: 'intel/auto-round', backend: 'auto_round:exllamav2' }],
  ['AutoRound as AutoGPTQ', false, false, 4, { quant_method: 'auto-round', packing_format: 'auto_round:auto_gptq' }],
  ['AutoRound as GPTQ v2', true, false, 4, { quant_method: 'auto-round', packing_format: 'auto_round:gptqv2' }],
] as const) {
  cases[`GPTQ, ${what}`] = {
    weight: gptqWeight({ rows: 64, columns: 96, bits, groupSize: 32, groups: 'order', v2, symmetric, seed: 17 }),
    files: configOf({ ...config, group_size: 32 }),
    isAlike: true,
  };
}
cases['GPTQ, whole rows, scales of bfloat16'] = {
  weight: gptqWeight({ rows: 64, columns: 64, bits: 4, groupSize: 64, groups: 'order', scale: 'BF16', seed: 6 }),
  files: {},
};
cases.AWQ = {
  weight: awqWeight(72, 256, 64, 7),
  files: configOf({ quant_method: 'awq', version: 'gemm', group_size: 64, zero_point: true, bits: 4 }),
};
for (const type of ['nf4', 'fp4'] as const) {
  for (const nested of [false, true]) {
    cases[`bitsandbytes, ${type}${nested ? ', nested scales' : ''}`] = {
      weight: bitsAndBytesWeight({
        rows: 96,
        columns: 320,
        type,
        blockSize: 64,
        nested,
        dtype: nested ? 'bfloat16' : 'float32',
        seed: 8,
      }),
      files: {},
    };
  }
}
cases['bitsandbytes, int8'] = { weight: int8Weight(40, 72, 9), files: {} };
for (const bits of [2, 3, 4, 5, 6, 8]) {
  const groupSize = [32, 64, 128][bits % 3]!;
  cases[`MLX, ${bits} bits`] = {
    weight: mlxWeight(24, 256, bits, groupSize, bits),
    files: { 'config.json': { quantization: { bits, group_size: groupSize, mode: 'affine' } } },
  };
}

const packed = (bits: number) => ({
  quant_method: 'compressed-tensors',
  config_groups: { a: { targets: ['Linear'], weights: { num_bits: bits } } },
});
for (const bits of [2, 3, 5, 6, 7]) {
  for (const wholeWords of bits === 2 ? [false] : [false, true]) {
    const symmetric = bits % 2 === 0;
    cases[`compressed-tensors, ${bits} bits${wholeWords ? ', words of whole codes' : ''}`] = {
      weight: packedWeight({ rows: 43, columns: 120, bits, wholeWords, groupSize: 40, symmetric, seed: bits }),
      files: bits === 7 ? configOf(packed(bits)) : {},
      isAlike: true,
    };
  }
}
for (const groups of ['unset', 'order', 'shuffled'] as const) {
  const symmetric = groups === 'order';
  cases[`compressed-tensors, 4 bits, g_idx: ${groups}`] = {
    weight: packedWeight({ rows: 24, columns: 96, bits: 4, groupSize: 32, symmetric, groups, scale: 'F16', seed: 3 }),
    files: {},
    isAlike: groups !== 'shuffled',
  };
}
cases['compressed-tensors, 3 bits, g_idx: shuffled'] = {
  weight: packedWeight({
    rows: 35,
    columns: 96,
    bits: 3,
    groupSize: 32,
    symmetric: false,
    groups: 'shuffled',
    seed: 4,
  }),
  files: configOf(packed(3)),
};
cases['compressed-tensors, short rows'] = {
  weight: packedWeight({ rows: 40, columns: 5, bits: 6, groupSize: 5, symmetric: false, seed: 5 }),
  files: configOf(packed(6)),
  isAlike: true,
};
cases['compressed-tensors, int8 with one zero point'] = { weight: wholeInt8Weight(24, 40, 6), files: {} };
cases['ComfyUI, rotated'] = { weight: rotatedWeight(6, 512, 256, { convrot: true }, 7), files: {} };
for (const size of [4, 16, 64]) {
  const marker = { params: { convrot: true, convrot_groupsize: size } };
  cases[`ComfyUI, rotated, ${size} columns at a time`] = {
    weight: rotatedWeight(5, 3 * size, size, marker, size),
    files: {},
    isAlike: true,
  };
}

const names = Object.keys(cases);
const again = names.filter((name) => cases[name]!.isAlike !== true);

describe('weights of other tools', () => {
  it.each(names)('are restored exactly: %s', async (name) => {
    const { weight, files } = cases[name]!;
    const { data, shape } = await readFloats(folder(tensorsOf({ a: weight }), files), 'a.weight');
    expect(shape).toEqual(weight.shape);
    expectSame(data, weight.values, name);
  });

  it.each(again)('are quantized again as their floats are: %s', async (name) => {
    const { weight, files } = cases[name]!;
    const plain: TestTensor = { dtype: 'F32', shape: weight.shape, data: weight.values };
    const floats = [chosen('model.safetensors', safetensors({ 'a.weight': plain }))];
    for (const to of ['bfloat16', 'float16'] as const) {
      const options = { to, workers: 0, requantize: true } as const;
      const want = await (await quantizeModel(floats, options)).bytes();
      // Starting workers takes most of the time.
      for (const workers of to === 'float16' ? [0, 1] : [0]) {
        const got = await quantizeModel(folder(tensorsOf({ a: weight }), files), { ...options, workers });
        const [mine, theirs] = [await got.bytes(), want].map((bytes) => parseSafetensors(bytes).tensors);
        expectSame(mine!.get('a.weight')!.bytes, theirs!.get('a.weight')!.bytes, `${name} to ${to}`);
        expect(got.report.notes.map(({ kind }) => kind)).toContain('sourceQuantized');
      }
    }
  });

  it('need requantize', async () => {
    for (const name of names) {
      const { weight, files } = cases[name]!;
      const error = await rejectionOf(
        quantizeModel(folder(tensorsOf({ a: weight }), files), { to: 'int8', workers: 0 }),
      );
      expect(error, name).toMatchObject({ code: 'UNSUPPORTED_DTYPE', message: expect.stringContaining('requantize') });
    }
  });

  it('are cut into tiles at whole words, blocks and groups', async () => {
    // Rows of these sizes fill several tiles.
    const weights: Record<string, ForeignWeight> = {
      a: gptqWeight({ rows: 160, columns: 16384, bits: 3, groupSize: 128, groups: 'shuffled', seed: 1 }),
      b: awqWeight(136, 16384, 128, 2),
      c: bitsAndBytesWeight({
        rows: 700,
        columns: 3200,
        type: 'nf4',
        blockSize: 64,
        nested: true,
        dtype: 'bfloat16',
        seed: 3,
      }),
      d: packedWeight({
        rows: 96,
        columns: 16384,
        bits: 3,
        wholeWords: true,
        groupSize: 128,
        symmetric: false,
        groups: 'shuffled',
        seed: 4,
      }),
    };
    const plain = Object.fromEntries(
      Object.entries(weights).map(([module, { shape, values }]): [string, TestTensor] => [
        `${module}.weight`,
        { dtype: 'F32', shape, data: values },
      ]),
    );
    for (const to of ['bfloat16', 'int8', 'int4'] as const) {
      const options = { to, workers: 2, requantize: true, scheme: to === 'int4' ? 'asymmetric' : undefined } as const;
      const got = await quantizeModel(folder(tensorsOf(weights), {}), options);
      // Scales of the floats' type: those of codes are float16 or bfloat16, so that only float casts are comparable.
      if (to !== 'bfloat16') {
        expect(got.report.tensors.every(({ kept }) => kept === undefined)).toBe(true);
        continue;
      }
      const want = await quantizeModel([chosen('model.safetensors', safetensors(plain))], options);
      const [mine, theirs] = [await got.bytes(), await want.bytes()].map((bytes) => parseSafetensors(bytes).tensors);
      for (const name of Object.keys(plain)) expectSame(mine!.get(name)!.bytes, theirs!.get(name)!.bytes, name);
    }
  });
});

const modules = /^(model\.layers\.\d+\..*_proj)\.weight$/;

describe('folders of quantized language models', () => {
  const experts = {
    count: 3,
    router: 'mlp.gate',
    names: (e: number) => ['gate', 'up', 'down'].map((name) => `mlp.experts.${e}.${name}_proj`),
  };
  const architectures = {
    // Rows of queries and keys move.
    LlamaForCausalLM: { config: {}, weights: decoderWeights() },
    // Experts are stacked.
    Qwen3MoeForCausalLM: {
      config: { head_dim: 16, num_experts: 3, num_experts_per_tok: 2, moe_intermediate_size: 96 },
      weights: decoderWeights({ headNorms: true, experts }),
    },
  } as const;
  const layouts: Readonly<Record<string, (rows: number, columns: number, seed: number) => ForeignWeight>> = {
    GPTQ: (rows, columns, seed) => gptqWeight({ rows, columns, bits: 4, groupSize: 32, groups: 'shuffled', seed }),
    AWQ: (rows, columns, seed) => awqWeight(rows, columns, 32, seed),
    bitsandbytes: (rows, columns, seed) =>
      bitsAndBytesWeight({ rows, columns, type: 'nf4', blockSize: 32, nested: false, dtype: 'float32', seed }),
    MLX: (rows, columns, seed) => mlxWeight(rows, columns, 4, 32, seed),
  };
  const quantization: Readonly<Record<string, Json>> = {
    GPTQ: { quantization_config: { quant_method: 'gptq', bits: 4, group_size: 32, checkpoint_format: 'gptq' } },
    AWQ: { quantization_config: { quant_method: 'awq', bits: 4, group_size: 32, version: 'gemm' } },
    bitsandbytes: { quantization_config: { quant_method: 'bitsandbytes', load_in_4bit: true } },
    MLX: { quantization: { bits: 4, group_size: 32 }, quantization_config: { bits: 4, group_size: 32 } },
  };

  for (const [architecture, { config, weights }] of Object.entries(architectures)) {
    it.each(Object.keys(layouts))(`become the GGUF of their floats: ${architecture}, %s`, async (layout) => {
      const stored: Record<string, TestTensor> = {};
      const plain: Record<string, TestTensor> = {};
      let seed = 1;
      for (const [name, { shape, values }] of weights) {
        const module = modules.exec(name)?.[1];
        if (module === undefined) {
          stored[name] = { dtype: 'F32', shape, data: values };
          plain[name] = stored[name];
          continue;
        }
        const weight = layouts[layout]!(shape[0]!, shape[1]!, seed++);
        Object.assign(stored, tensorsOf({ [module]: weight }));
        plain[name] = { dtype: 'F32', shape, data: weight.values };
      }
      const files = (more: Json) => ({
        'config.json': decoderConfig(architecture, { ...config, ...more }),
        'tokenizer.json': plainTokenizer(),
      });
      for (const to of ['Q8_0', 'Q4_0'] as const) {
        const options = { to, workers: 0, requantize: true } as const;
        const want = await (await quantizeModel(folder(plain, files({})), options)).bytes();
        for (const workers of to === 'Q8_0' ? [0, 2] : [0]) {
          const got = await quantizeModel(folder(stored, files(quantization[layout]!)), { ...options, workers });
          expectSame(await got.bytes(), want, to);
          expect(got.report.notes.map(({ kind }) => kind)).toContain('sourceQuantized');
        }
      }
      const error = await rejectionOf(
        quantizeModel(folder(stored, files(quantization[layout]!)), { to: 'Q8_0', workers: 0 }),
      );
      expect(error).toMatchObject({ code: 'UNSUPPORTED_DTYPE', message: expect.stringContaining('requantize') });
    });
  }
});

/** Changes that make a good file a bad one. */
type Change = (tensors: Record<string, TestTensor>, files: Record<string, Json>) => void;

const typed =
  (end: string, dtype: string): Change =>
  (tensors) => {
    const { shape, data } = tensors[`a${end}`]!;
    tensors[`a${end}`] = { dtype, shape, data };
  };
const shaped =
  (end: string, ...shape: number[]): Change =>
  (tensors) => {
    tensors[`a${end}`] = { ...tensors[`a${end}`]!, shape };
  };
const filled =
  (end: string, byte: number): Change =>
  (tensors) => {
    const { dtype, shape, data } = tensors[`a${end}`]!;
    tensors[`a${end}`] = { dtype, shape, data: new Uint8Array(data.byteLength).fill(byte) };
  };
const without =
  (end: string): Change =>
  (tensors) => {
    delete tensors[`a${end}`];
  };
const sized =
  (end: string, dtype: string, ...shape: number[]): Change =>
  (tensors) => {
    const bytes = shape.reduce((a, b) => a * b, { F16: 2, F32: 4, I32: 4, U32: 4, BF16: 2 }[dtype] ?? 1);
    tensors[`a${end}`] = { dtype, shape, data: new Uint8Array(bytes) };
  };
const config =
  (value: Json): Change =>
  (_, files) => {
    files['config.json'] = value;
  };
const state =
  (change: (state: Record<string, unknown>) => unknown): Change =>
  (tensors) => {
    const name = 'a.weight.quant_state.bitsandbytes__nf4';
    const fields = JSON.parse(new TextDecoder().decode(tensors[name]!.data as Uint8Array<ArrayBuffer>));
    const data = new TextEncoder().encode(JSON.stringify(change(fields) ?? fields));
    tensors[name] = { dtype: 'U8', shape: [data.length], data };
  };
const set = (key: string, value: unknown) =>
  state((fields) => {
    fields[key] = value;
  });

const hostile: Readonly<Record<string, { good: string; changes: readonly Change[] }>> = {
  GPTQ: {
    good: 'GPTQ, 4 bits, g_idx: shuffled',
    changes: [
      typed('.qweight', 'U32'),
      typed('.qzeros', 'F32'),
      sized('.scales', 'F8_E4M3', 5, 96),
      shaped('.qweight', 1920),
      shaped('.qweight', 96, 20),
      shaped('.qzeros', 12, 5),
      shaped('.scales', 96, 5),
      shaped('.g_idx', 2, 80),
      sized('.g_idx', 'I32', 159),
      sized('.g_idx', 'I32', 0),
      typed('.g_idx', 'F32'),
      filled('.g_idx', 0xff),
      filled('.g_idx', 5),
      filled('.scales', 0xff),
      filled('.scales', 0x7c),
      without('.scales'),
      without('.qzeros'),
      sized('.qweight', 'I32', 0, 96),
      sized('.scales', 'F16', 0, 96),
      sized('.weight', 'F16', 96, 160),
      config({ quantization_config: { checkpoint_format: 'marlin' } }),
      sized('.qzeros', 'I32', 5, 15),
    ],
  },
  AWQ: {
    good: 'AWQ',
    changes: [
      typed('.qweight', 'U32'),
      typed('.qzeros', 'U32'),
      sized('.scales', 'I32', 4, 72),
      shaped('.qweight', 2304),
      shaped('.qweight', 128, 18),
      sized('.qweight', 'I32', 255, 9),
      shaped('.qzeros', 9, 4),
      sized('.qzeros', 'I32', 4, 8),
      sized('.qzeros', 'I32', 4, 18),
      sized('.scales', 'F16', 4, 71),
      sized('.scales', 'F16', 3, 72),
      sized('.scales', 'F16', 0, 72),
      filled('.scales', 0x7c),
      filled('.scales', 0xff),
      without('.scales'),
      without('.qzeros'),
      sized('.g_idx', 'I32', 256),
      sized('.weight', 'F16', 72, 256),
      config({ quantization_config: { quant_method: 'awq', checkpoint_format: 'gemv_fast' } }),
      sized('.qweight', 'I32', 0, 9),
    ],
  },
  bitsandbytes: {
    good: 'bitsandbytes, nf4, nested scales',
    changes: [
      set('quant_type', 'fp4'),
      set('blocksize', 63),
      set('blocksize', 2 ** 40),
      set('blocksize', '64'),
      set('dtype', 'float8'),
      set('dtype', '__proto__'),
      set('shape', [96, 319]),
      set('shape', [2 ** 30, 2 ** 30]),
      set('shape', [-96, -320]),
      set('shape', []),
      set('shape', null),
      set('nested_blocksize', 0),
      set('nested_blocksize', 3),
      set('nested_offset', 'x'),
      set('nested_offset', null),
      set('nested_dtype', 'float16'),
      state(() => []),
      state(() => 7),
      filled('.weight.nested_absmax', 0xff),
      filled('.weight.nested_quant_map', 0xff),
      sized('.weight.nested_quant_map', 'F32', 16),
      without('.weight.nested_quant_map'),
      without('.weight.absmax'),
      typed('.weight', 'I8'),
      filled('.weight.quant_state.bitsandbytes__nf4', 0x20),
    ],
  },
  MLX: {
    good: 'MLX, 4 bits',
    changes: [
      without('.biases'),
      without('.scales'),
      typed('.weight', 'I32'),
      typed('.scales', 'F16'),
      sized('.scales', 'F32', 24, 4),
      shaped('.weight', 768),
      shaped('.weight', 32, 24),
      shaped('.scales', 96),
      shaped('.scales', 4, 24),
      sized('.scales', 'BF16', 24, 0),
      sized('.biases', 'BF16', 24, 3),
      filled('.scales', 0xff),
      filled('.biases', 0xff),
      config({}),
      config({ quantization: [] }),
      config({ quantization: { bits: 7, group_size: 64 } }),
      config({ quantization: { bits: 4, group_size: 63 } }),
      config({ quantization: { bits: '4', group_size: 64 } }),
      config({ quantization: { bits: 4, group_size: 64, mode: 'mystery' } }),
      config({ quantization: { bits: 8, group_size: 64 } }),
      config({ quantization: { bits: 4, group_size: 64, a: { bits: 2 } } }),
      (_, files) => {
        delete files['config.json'];
      },
    ],
  },
};

describe('hostile files', () => {
  it.each(Object.keys(hostile))('are refused with the name of a tensor: %s', async (layout) => {
    const { good, changes } = hostile[layout]!;
    expect(changes.length).toBeGreaterThanOrEqual(20);
    for (const [i, change] of changes.entries()) {
      const { weight, files } = cases[good]!;
      const tensors = tensorsOf({ a: weight });
      const beside = { ...files };
      change(tensors, beside);
      const options = { to: 'bfloat16', workers: 0, requantize: true } as const;
      const error = await rejectionOf(quantizeModel(folder(tensors, beside), options)).catch(() => undefined);
      expect(error, `change ${i}`).toMatchObject({ name: 'ScalepointError', tensor: expect.stringMatching(/^a\./) });
    }
  });
});
