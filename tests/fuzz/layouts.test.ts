// Quantized safetensors with parts, shapes and configurations that nobody expects: each file is read, or refused by a typed error that names
// a tensor. Files are those that other tests read, with one thing changed at a time; counts of each outcome show that the changes are neither
// too heavy nor too light. Hostile pickles are in tests/web/formats/pytorch/hostile.node.test.ts.
import { describe, expect, it } from 'vitest';
import { type FileInput, quantizeModel, ScalepointError } from '../../web/src/model.js';
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
} from '../web/support/foreign-layouts.js';
import { bytesOf, chosen, product, safetensors, type TestTensor } from '../web/support/models.js';
import { Random } from '../web/support/support.js';

type Tensors = Readonly<Record<string, TestTensor>>;
type Json = Readonly<Record<string, unknown>>;

/** A model: its tensors, the files beside it, and the metadata. */
interface Model {
  readonly tensors: Tensors;
  readonly config?: unknown;
  readonly metadata?: Readonly<Record<string, string>>;
}

const random = new Random(7);
const filled = (dtype: string, shape: readonly number[], bytes: number, most = 60): TestTensor => ({
  dtype,
  shape,
  data: Uint8Array.from({ length: bytes }, () => random.below(most)),
});
const float32 = (shape: readonly number[], value = 0.01): TestTensor => ({
  dtype: 'F32',
  shape,
  data: new Float32Array(product(shape)).fill(value),
});
const json = (value: unknown): TestTensor => {
  const data = new TextEncoder().encode(JSON.stringify(value));
  return { dtype: 'U8', shape: [data.length], data };
};
const shapeTensor = (...shape: bigint[]): TestTensor => ({
  dtype: 'I64',
  shape: [shape.length],
  data: BigInt64Array.from(shape),
});

const foreign = (weight: ForeignWeight, config?: Json): Model => ({
  tensors: tensorsOf({ 'model.layers.0.mlp.up_proj': weight }),
  config,
});

const layer = 'model.layers.0.mlp.up_proj.weight';
const named = (parts: Readonly<Record<string, TestTensor>>): Tensors =>
  Object.fromEntries(Object.entries(parts).map(([end, tensor]) => [layer + end, tensor]));

/** A model of each layout that is read. */
const models: Readonly<Record<string, Model>> = {
  GPTQ: foreign(gptqWeight({ rows: 32, columns: 64, bits: 4, groupSize: 32, groups: 'shuffled', seed: 1 }), {
    quantization_config: { quant_method: 'gptq', bits: 4, group_size: 32, checkpoint_format: 'gptq', desc_act: true },
  }),
  AWQ: foreign(awqWeight(32, 64, 32, 2), {
    quantization_config: { quant_method: 'awq', bits: 4, group_size: 32, version: 'gemm' },
  }),
  'bitsandbytes, 4 bits': foreign(
    bitsAndBytesWeight({ rows: 32, columns: 64, type: 'nf4', blockSize: 64, nested: true, dtype: 'float32', seed: 3 }),
  ),
  'bitsandbytes, int8': foreign(int8Weight(32, 64, 4)),
  MLX: foreign(mlxWeight(32, 64, 4, 32, 5), { quantization: { bits: 4, group_size: 32, mode: 'affine' } }),
  'ComfyUI, float8': {
    tensors: named({ '': filled('F8_E4M3', [32, 64], 2048), _scale: float32([]) }),
    metadata: {
      _quantization_metadata: JSON.stringify({
        format_version: '1.0',
        layers: { [layer.replace('.weight', '')]: { format: 'float8_e4m3fn' } },
      }),
    },
  },
  'ComfyUI, NVFP4': {
    tensors: {
      ...named({
        '': filled('U8', [32, 32], 1024, 256),
        _scale: filled('F8_E4M3', [128, 4], 512),
        _scale_2: float32([]),
      }),
      [layer.replace('weight', 'comfy_quant')]: json({ format: 'nvfp4' }),
    },
  },
  'compressed-tensors, packed': {
    tensors: named({
      _packed: filled('I32', [32, 8], 1024, 256),
      _scale: float32([32, 2]),
      _zero_point: filled('I32', [4, 2], 32, 256),
      _shape: shapeTensor(32n, 64n),
    }),
    config: { quantization_config: { quant_method: 'compressed-tensors', format: 'pack-quantized' } },
  },
  'compressed-tensors, 3 bits': foreign(
    packedWeight({ rows: 32, columns: 64, bits: 3, groupSize: 32, symmetric: false, groups: 'shuffled', seed: 6 }),
    {
      quantization_config: {
        quant_method: 'compressed-tensors',
        format: 'pack-quantized',
        config_groups: { a: { targets: ['Linear'], weights: { num_bits: 3 } } },
      },
    },
  ),
  'compressed-tensors, int8 with one zero point': foreign(wholeInt8Weight(32, 64, 7), {
    quantization_config: { quant_method: 'compressed-tensors', format: 'naive-quantized' },
  }),
  'ComfyUI, rotated': foreign(rotatedWeight(32, 64, 16, { convrot: true, convrot_groupsize: 16 }, 8)),
  'compressed-tensors, int8': {
    tensors: named({
      '': filled('I8', [32, 64], 2048, 256),
      _scale: float32([32, 1]),
      _zero_point: filled('I8', [32, 1], 32),
    }),
    config: { quantization_config: { quant_method: 'compressed-tensors', format: 'int-quantized' } },
  },
  'compressed-tensors, NVFP4': {
    tensors: named({
      _packed: filled('U8', [32, 32], 1024, 256),
      _scale: filled('F8_E4M3', [32, 4], 128),
      _global_scale: float32([1], 300),
    }),
    config: { quantization_config: { quant_method: 'compressed-tensors', format: 'nvfp4-pack-quantized' } },
  },
  'compressed-tensors, MXFP4': {
    tensors: named({ _packed: filled('U8', [32, 32], 1024, 256), _scale: filled('U8', [32, 2], 64, 130) }),
    config: { quantization_config: { quant_method: 'compressed-tensors', format: 'mxfp4-pack-quantized' } },
  },
  'ModelOpt, NVFP4': {
    tensors: named({
      '': filled('U8', [32, 32], 1024, 256),
      _scale: filled('F8_E4M3', [32, 4], 128),
      _scale_2: float32([]),
    }),
    config: { quantization_config: { quant_method: 'modelopt' } },
  },
  'float8 with scales of blocks': {
    tensors: named({ '': filled('F8_E4M3', [32, 64], 2048), _scale_inv: float32([2, 4]) }),
    config: { quantization_config: { quant_method: 'fp8', weight_block_size: [16, 16] } },
  },
};

// ------------------------------------------------------------------------------------------------------------------------ changes

/** A value nested so deep that functions that call themselves for each level run out of stack. */
function deep(levels: number, isObject: boolean): string {
  return isObject ? `${'{"a":'.repeat(levels)}1${'}'.repeat(levels)}` : '['.repeat(levels) + ']'.repeat(levels);
}

/** Text in place of a file of JSON. */
class Text {
  readonly text: string;

  constructor(text: string) {
    this.text = text;
  }
}

/** A member of a configuration that is nested deep. */
const withDeep = (config: unknown, member: string, isObject: boolean): Text => {
  const marker = '"MARKER"';
  const text = JSON.stringify(withMembers(config, { [member]: 'MARKER' }));
  return new Text(text.replace(marker, deep(50_000, isObject)));
};

/** A configuration with members of its description of quantization changed. */
function withMembers(config: unknown, members: Json): Json {
  const all = (config ?? {}) as Json;
  const key = 'quantization' in all ? 'quantization' : 'quantization_config';
  return { ...all, [key]: { ...(all[key] as Json | undefined), ...members } };
}

const padded = (tensor: TestTensor, shape: readonly number[]): TestTensor => {
  const size = tensor.data.byteLength / Math.max(1, product(tensor.shape));
  const data = new Uint8Array(product(shape) * size);
  const bytes = bytesOf(tensor.data);
  for (let i = 0; i < data.length; i++) data[i] = bytes[i % Math.max(1, bytes.length)] ?? 0;
  return { ...tensor, shape, data };
};

/** Changes of one tensor, whose bytes suit its new shape and type. */
const tensorChanges: Readonly<Record<string, (tensor: TestTensor) => TestTensor | undefined>> = {
  missing: () => undefined,
  transposed: (tensor) => ({ ...tensor, shape: [...tensor.shape].reverse() }),
  flat: (tensor) => ({ ...tensor, shape: [product(tensor.shape)] }),
  'with one more dimension': (tensor) => ({ ...tensor, shape: [...tensor.shape, 1] }),
  'with eight more dimensions': (tensor) => ({ ...tensor, shape: [1, 1, 1, 1, 1, 1, 1, 1, ...tensor.shape] }),
  empty: (tensor) => padded(tensor, [0, ...tensor.shape.slice(1)]),
  'a scalar': (tensor) => padded(tensor, []),
  'a row shorter': (tensor) => padded(tensor, [Math.max(1, (tensor.shape[0] ?? 2) - 1), ...tensor.shape.slice(1)]),
  'a row longer': (tensor) => padded(tensor, [(tensor.shape[0] ?? 1) + 1, ...tensor.shape.slice(1)]),
  'twice as wide': (tensor) => padded(tensor, [...tensor.shape.slice(0, -1), 2 * (tensor.shape.at(-1) ?? 1)]),
  'of float64': ({ shape }) => ({ dtype: 'F64', shape, data: new Float64Array(product(shape)).fill(1) }),
  'of int64': ({ shape }) => ({ dtype: 'I64', shape, data: new BigInt64Array(product(shape)).fill(-1n) }),
  'of bools': ({ shape }) => ({ dtype: 'BOOL', shape, data: new Uint8Array(product(shape)).fill(255) }),
  'of bytes 255': (tensor) => ({ ...tensor, data: bytesOf(tensor.data).map(() => 255) }),
  'of zeros': (tensor) => ({ ...tensor, data: new Uint8Array(tensor.data.byteLength) }),
  'of negative infinities': (tensor) => ({
    ...tensor,
    data:
      tensor.dtype === 'F32'
        ? new Float32Array(product(tensor.shape)).fill(-Infinity)
        : bytesOf(tensor.data).map(() => 0xfc),
  }),
};

/** Members of descriptions of quantization with values that none has, and ones that contradict the tensors. */
const members: readonly Json[] = [
  { bits: 0 },
  { bits: 64 },
  { bits: -4 },
  { bits: '4' },
  { bits: 8 },
  { bits: null },
  { group_size: 0 },
  { group_size: -1 },
  { group_size: 2 ** 53 },
  { group_size: 1e308 },
  { group_size: 16.5 },
  { group_size: 7 },
  { group_size: [32] },
  { quant_method: {} },
  { quant_method: 'other' },
  { checkpoint_format: 'marlin' },
  { checkpoint_format: ['gptq'] },
  { mode: 'mxfp4' },
  { version: 'gemv' },
  { weight_block_size: [0, 16] },
  { weight_block_size: [2 ** 40, 2 ** 40] },
  { weight_block_size: [16] },
  { config_groups: { a: null, b: [] } },
  { format: 5 },
];

/** Members in which a value is nested deep. */
const deepMembers = [
  'bits',
  'group_size',
  'mode',
  'checkpoint_format',
  'format',
  'quant_method',
  'weight_block_size',
  'config_groups',
];

/** Files in place of config.json. */
const configs: readonly unknown[] = [
  new Text(''),
  new Text('{'),
  new Text('[]'),
  new Text('null'),
  new Text('{"quantization_config":[]}'),
  new Text('{"quantization_config":{"__proto__":{"bits":4}},"quantization":null}'),
  new Text(deep(50_000, false)),
  new Text(`{"quantization_config":${deep(50_000, true)},"quantization":${deep(50_000, true)}}`),
  undefined,
];

/** Other groups of the columns, by the end of the name of the part that has them. */
const groupChanges = (end: string): readonly (readonly [what: string, (tensors: Tensors) => Tensors])[] =>
  [-1, -2, 2, 2 ** 31 - 1, 0].map((group) => [
    `a group ${group} of a column`,
    (tensors) => {
      const [key, index] = Object.entries(tensors).find(([name]) => name.endsWith(end))!;
      const data = new Int32Array(index.data as Int32Array).fill(group, 5, 7);
      return { ...tensors, [key]: { ...index, data } };
    },
  ]);

/** Markers of ComfyUI. */
const markers = (...texts: readonly string[]): readonly (readonly [what: string, (tensors: Tensors) => Tensors])[] =>
  texts.map((text) => [
    `a marker ${text.slice(0, 60)}`,
    (tensors) => {
      const data = new TextEncoder().encode(text);
      return { ...tensors, [layer.replace('weight', 'comfy_quant')]: { dtype: 'U8', shape: [data.length], data } };
    },
  ]);

/** Changes that a layout alone has. */
const ownChanges: Readonly<Record<string, readonly (readonly [what: string, (tensors: Tensors) => Tensors])[]>> = {
  GPTQ: [
    ...groupChanges('.g_idx'),
    ['a weight of floats of the same name', (tensors) => ({ ...tensors, [layer]: float32([32, 64]) })],
  ],
  'bitsandbytes, 4 bits': [
    { shape: [2 ** 31, 2 ** 31] },
    { shape: [2 ** 53, 1] },
    { shape: [-32, -64] },
    { shape: [32.5, 64] },
    { shape: [64, 32] },
    { shape: [] },
    { blocksize: 2 ** 40 },
    { blocksize: 0 },
    { blocksize: 128 },
    { nested_blocksize: 0 },
    { nested_blocksize: 2 ** 52 },
    { nested_offset: null },
    { nested_offset: '1e999' },
    { dtype: { toString: 'float32' } },
    { dtype: '__proto__' },
    { quant_type: 'fp4' },
    { quant_type: ['nf4'] },
  ]
    .map((change): readonly [string, (tensors: Tensors) => Tensors] => [
      `a state with ${JSON.stringify(change)}`,
      (tensors) => {
        const key = `${layer}.quant_state.bitsandbytes__nf4`;
        const state = JSON.parse(new TextDecoder().decode(bytesOf(tensors[key]!.data)));
        return { ...tensors, [key]: json({ ...state, ...change }) };
      },
    ])
    .concat(
      ['quant_type', 'dtype', 'shape'].map((member): readonly [string, (tensors: Tensors) => Tensors] => [
        `a state with a deep ${member}`,
        (tensors) => {
          const key = `${layer}.quant_state.bitsandbytes__nf4`;
          const state = new TextDecoder().decode(bytesOf(tensors[key]!.data));
          const text = JSON.stringify({ ...JSON.parse(state), [member]: 'MARKER' }).replace(
            '"MARKER"',
            deep(20_000, false),
          );
          const data = new TextEncoder().encode(text);
          return { ...tensors, [key]: { dtype: 'U8', shape: [data.length], data } };
        },
      ]),
    ),
  'compressed-tensors, packed': [
    [2n ** 40n, 2n ** 40n],
    [2n ** 62n, 64n],
    [-32n, -64n],
    [32n, 0n],
    [32n, 65n],
    [64n, 32n],
    [32n, 8n, 8n],
    [32n],
    Array.from({ length: 64 }, () => 1n),
    Array.from({ length: 63 }, () => 2n ** 20n),
  ].map((shape): readonly [string, (tensors: Tensors) => Tensors] => [
    `a shape [${shape.slice(0, 4)}]`,
    (tensors) => ({ ...tensors, [`${layer}_shape`]: shapeTensor(...shape) }),
  ]),
  'compressed-tensors, 3 bits': groupChanges('_g_idx'),
  'ComfyUI, NVFP4': markers(
    '{',
    '[]',
    '{"format":5}',
    '{"format":"nvfp4","params":[]}',
    '{"format":"awq_w4a16"}',
    '{"format":"int8_tensorwise"}',
    '{"format":"__proto__"}',
    `{"format":${deep(1500, false)}}`,
    '{"format":"nvfp4","params":{"convrot":true}}',
  ),
  'ComfyUI, rotated': markers(
    ...['0', '1', '2', '8', '-16', '16.5', '"16"', 'null', '[16]', '1e308', '65536', '262144', '128'].map(
      (size) => `{"format":"int8_tensorwise","convrot":true,"convrot_groupsize":${size}}`,
    ),
    `{"format":"int8_tensorwise","convrot":true,"convrot_groupsize":${deep(1500, true)}}`,
    '{"format":"int8_tensorwise","convrot":true}',
    '{"format":"int8_tensorwise","convrot":true,"params":{"convrot_groupsize":4}}',
    '{"format":"int8_tensorwise","convrot":false,"convrot_groupsize":7}',
    '{"format":"float8_e4m3fn","convrot":true,"convrot_groupsize":16}',
    '{"format":"mxfp8","convrot":true,"convrot_groupsize":16}',
  ),
};

/** All changes of a model, with what they change. */
function* changesOf(name: string, model: Model): Generator<readonly [what: string, Model]> {
  for (const key of Object.keys(model.tensors)) {
    for (const [what, change] of Object.entries(tensorChanges)) {
      const { [key]: tensor, ...others } = model.tensors;
      const changed = change(tensor!);
      yield [
        `${key.slice(layer.length - 7)} ${what}`,
        { ...model, tensors: changed ? { ...others, [key]: changed } : others },
      ];
    }
  }
  for (const change of members) yield [JSON.stringify(change), { ...model, config: withMembers(model.config, change) }];
  for (const member of deepMembers)
    for (const isObject of [false, true])
      yield [`a deep ${member}`, { ...model, config: withDeep(model.config, member, isObject) }];
  for (const config of configs)
    yield [`config ${config instanceof Text ? config.text.slice(0, 30) : ''}`, { ...model, config }];
  for (const [what, change] of ownChanges[name] ?? []) yield [what, { ...model, tensors: change(model.tensors) }];
}

// --------------------------------------------------------------------------------------------------------------------------- runs

function filesOf({ tensors, config, metadata }: Model): FileInput[] {
  const text = config instanceof Text ? config.text : JSON.stringify(config);
  const model = chosen('model.safetensors', safetensors(tensors, metadata));
  return config === undefined ? [model, chosen('other.json', '{}')] : [model, chosen('config.json', text)];
}

const codes = ['BAD_FILE', 'UNSUPPORTED_DTYPE', 'NON_FINITE', 'OVERFLOW'];

/** Converts a model. Returns what became of it. */
async function outcomeOf(what: string, model: Model): Promise<string> {
  try {
    const result = await quantizeModel(filesOf(model), { to: 'float16', requantize: true, workers: 0 });
    expect((await result.bytes()).length, what).toBeGreaterThan(8);
    return 'read';
  } catch (error) {
    if (!(error instanceof ScalepointError)) throw new Error(`${what}: ${String(error)}`, { cause: error });
    expect(codes, what).toContain(error.code);
    expect(error.message.length, what).toBeLessThan(1000);
    expect(error.tensor, `${what}: ${error.message}`).toMatch(/^model\.layers\.0\.mlp\.up_proj/);
    return error.code;
  }
}

describe('quantized safetensors with hostile parts', () => {
  it.each(Object.keys(models))('are read, or refused by their tensor: %s', async (name) => {
    const model = models[name]!;
    expect(await outcomeOf(name, model)).toBe('read');
    const outcomes: Record<string, number> = {};
    for (const [what, changed] of changesOf(name, model)) {
      const outcome = await outcomeOf(`${name}: ${what}`, changed);
      outcomes[outcome] = (outcomes[outcome] ?? 0) + 1;
    }
    const count = Object.values(outcomes).reduce((sum, n) => sum + n, 0);
    expect(count).toBeGreaterThan(60);
    expect(count - (outcomes.read ?? 0), JSON.stringify(outcomes)).toBeGreaterThanOrEqual(10);
    expect(outcomes.read, JSON.stringify(outcomes)).toBeGreaterThanOrEqual(5);
  });
});
