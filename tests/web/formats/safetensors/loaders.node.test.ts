// Which programs load which form. The rules of each loader are written down from its source, and share nothing with what writes the files:
//   compressed-tensors 0.15 to 0.18, compressors/{base,format}.py, pack_quantized/base.py, quantization/quant_scheme.py
//   vLLM, layers/quantization/compressed_tensors/compressed_tensors.py and schemes/compressed_tensors_wNa16.py
//   llama.cpp, conversion/base.py (dequant_model)
import { describe, expect, it } from 'vitest';
import { type QuantizeModelOptions, quantizeModel } from '../../../../web/src/model.js';
import { parseSafetensors } from '../../support/compressed.js';
import { safetensors, type TestTensor, weights } from '../../support/models.js';

interface Arguments {
  num_bits: number;
  type: string;
  symmetric: boolean;
  strategy: string;
  group_size: number | null;
  dynamic: boolean;
}

interface Group {
  targets: string[];
  weights: Arguments;
  input_activations: Arguments | null;
  format?: string;
}

interface Config {
  format: string;
  ignore: string[];
  config_groups: Record<string, Group>;
}

type Tensors = ReadonlyMap<string, { dtype: string; shape: number[] }>;

/** Modules of a model: the class of each module, and the shape of its weight. */
type Modules = Readonly<Record<string, readonly [type: string, ...shape: number[]]>>;

/** Keys that compressed-tensors knows. It refuses all others. */
const groupKeys = ['targets', 'weights', 'input_activations', 'output_activations', 'format'];
const argumentKeys = [
  ...['num_bits', 'type', 'symmetric', 'group_size', 'strategy', 'block_structure', 'dynamic', 'actorder', 'observer'],
  'observer_kwargs',
];

/** The group that a module belongs to: by its name, or by its class. */
function groupFor(config: Config, module: string, type: string): Group | undefined {
  if (config.ignore.includes(module)) return undefined;
  const groups = Object.values(config.config_groups);
  return groups.find(({ targets }) => targets.includes(module)) ?? groups.find(({ targets }) => targets.includes(type));
}

/** Names and types of the tensors of a module, in a form. */
function expectedTensors(module: string, { weights: args }: Group, format: string): Record<string, string> {
  const zeroPoint = args.symmetric
    ? {}
    : { [`${module}.weight_zero_point`]: format === 'pack-quantized' ? 'I32' : 'I8' };
  const scale = { [`${module}.weight_scale`]: 'F32', ...zeroPoint };
  if (format === 'pack-quantized') {
    return { [`${module}.weight_packed`]: 'I32', [`${module}.weight_shape`]: 'I64', ...scale };
  }
  return { [`${module}.weight`]: format === 'float-quantized' ? 'F8_E4M3' : 'I8', ...scale };
}

/** The class that compressed-tensors assumes if a module does not state its form. */
function inferred(group: Group): string {
  const { weights: args, input_activations: activations } = group;
  if (args.type === 'int') return activations === null ? 'pack-quantized' : 'int-quantized';
  return 'float-quantized';
}

/** Why transformers, with compressed-tensors, does not load a file; undefined if it does. */
function obstacleInTransformers(tensors: Tensors, config: Config, modules: Modules): string | undefined {
  const wanted: Record<string, string> = {};
  for (const group of Object.values(config.config_groups)) {
    const unknown = [
      ...Object.keys(group).filter((key) => !groupKeys.includes(key)),
      ...Object.keys(group.weights).filter((key) => !argumentKeys.includes(key)),
    ];
    if (unknown.length > 0) return `extra inputs: ${unknown}`;
  }
  for (const [module, [type]] of Object.entries(modules)) {
    const group = groupFor(config, module, type);
    if (group === undefined) wanted[`${module}.weight`] = 'F32';
    else if (type !== 'Linear' && type !== 'Embedding') return `${module}: a ${type} cannot be quantized`;
    else Object.assign(wanted, expectedTensors(module, group, group.format ?? inferred(group)));
  }
  for (const [name, dtype] of Object.entries(wanted)) {
    if (tensors.get(name)?.dtype !== dtype) return `${name}: ${tensors.get(name)?.dtype} instead of ${dtype}`;
  }
  for (const name of tensors.keys()) if (!(name in wanted)) return `unexpected: ${name}`;
  return undefined;
}

/** Why vLLM does not load a file. */
function obstacleInVllm(tensors: Tensors, config: Config, modules: Modules): string | undefined {
  for (const [module, [type, , columns = 0]] of Object.entries(modules)) {
    if (type !== 'Linear') {
      if (!tensors.has(`${module}.weight`)) return `${module}.weight is missing`;
      continue;
    }
    const group = groupFor(config, module, type);
    if (group === undefined) continue;
    const { weights: args, input_activations: activations } = group;
    const format = group.format ?? config.format;
    if (format === 'pack-quantized' && activations === null) {
      if (args.num_bits !== 4 && args.num_bits !== 8) return `${args.num_bits} bits`;
      if (![null, 32, 64, 128].includes(args.group_size)) return `groups of ${args.group_size}`;
      if (columns % (32 / args.num_bits) !== 0) return `rows of ${columns}`;
      if (!tensors.has(`${module}.weight_packed`)) return `${module}.weight_packed is missing`;
      continue;
    }
    if (args.type === 'float' && format === 'float-quantized' && args.symmetric && args.strategy === 'channel')
      continue;
    const isW8A8 =
      args.num_bits === 8 && args.symmetric && args.strategy === 'channel' && activations?.strategy === 'token';
    if (format !== 'int-quantized' || !isW8A8) return 'No compressed-tensors compatible scheme was found';
  }
  return undefined;
}

/** Why llama.cpp's converter does not read a file, or reads other numbers. */
function obstacleInConverter(tensors: Tensors, config: Config, modules: Modules): string | undefined {
  const [group, ...others] = Object.values(config.config_groups) as [Group, ...Group[]];
  if (others.length > 0) return 'multiple config groups';
  const { weights: args } = group;
  const read = new Set<string>();
  for (const name of tensors.keys()) {
    if (config.format === 'pack-quantized' && name.endsWith('.weight_packed')) {
      if (args.strategy !== 'group' || args.group_size === null || args.type !== 'int') return 'no groups';
      read.add(name.replace(/_packed$/, ''));
    }
    if (config.format !== 'pack-quantized' && name.endsWith('.weight_scale')) {
      if (args.strategy !== 'channel' || args.group_size !== null) return 'no channels';
      if (!args.symmetric) return 'zero points are ignored';
      read.add(name.replace(/_scale$/, ''));
    }
    if (name.endsWith('.weight')) read.add(name);
  }
  const missing = Object.keys(modules).find((module) => !read.has(`${module}.weight`));
  return missing === undefined ? undefined : `${missing}.weight is missing`;
}

const loaders = {
  transformers: obstacleInTransformers,
  vllm: obstacleInVllm,
  converter: obstacleInConverter,
};

const decoder: Modules = {
  'model.embed_tokens': ['Embedding', 64, 256],
  'model.layers.0.self_attn.q_proj': ['Linear', 64, 256],
  'model.layers.0.mlp.down_proj': ['Linear', 64, 384],
  'model.norm': ['RMSNorm', 64],
  lm_head: ['Linear', 64, 256],
};
const vision: Modules = {
  ...decoder,
  'patch_embed.proj': ['Conv2d', 64, 3, 4, 4],
};
/** Every row can be cut in groups of 64. */
const narrow: Modules = { ...decoder, 'model.layers.0.mlp.down_proj': ['Linear', 64, 320] };
/** No groups divide these rows. */
const odd: Modules = { ...decoder, 'model.layers.0.mlp.down_proj': ['Linear', 64, 100] };

const all: readonly string[] = Object.keys(loaders);

const cases: [what: string, modules: Modules, options: QuantizeModelOptions, readers: readonly string[]][] = [
  ['int8', decoder, { to: 'int8' }, all],
  ['int8 beside convolutions', vision, { to: 'int8' }, all],
  ['int8 in groups of 64', narrow, { to: 'int8' }, all],
  ['int8 of odd rows', odd, { to: 'int8' }, ['transformers', 'vllm']],
  ['int8, asymmetric', decoder, { to: 'int8', scheme: 'asymmetric' }, all],
  ['int8 per channel', decoder, { to: 'int8', granularity: { kind: 'per-channel' } }, ['transformers', 'vllm']],
  ['plain int8', decoder, { to: 'int8', packed: false }, ['transformers', 'converter']],
  ['plain int8, asymmetric', decoder, { to: 'int8', packed: false, scheme: 'asymmetric' }, ['transformers']],
  ['int8 with int8 activations', decoder, { to: 'int8', activations: 'int8-dynamic' }, all],
  ['int4', decoder, { to: 'int4' }, all],
  ['int4 beside convolutions', vision, { to: 'int4' }, all],
  ['int4 of rows that stay', narrow, { to: 'int4' }, all],
  [
    'int4 in groups of 32, asymmetric',
    decoder,
    { to: 'int4', scheme: 'asymmetric', granularity: { kind: 'per-group', groupSize: 32 } },
    all,
  ],
  ['float8e4m3fn', decoder, { to: 'float8e4m3fn' }, all],
  ['float8e4m3fn beside convolutions', vision, { to: 'float8e4m3fn' }, all],
  ['int4 and int8', decoder, { to: 'int4', rules: [{ match: /down_proj/, to: 'int8' }] }, ['transformers', 'vllm']],
  ['int8 of everything', vision, { to: 'int8', include: 'all' }, []],
];

describe('what loads', () => {
  it.each(cases)('%s', async (_what, modules, options, readers) => {
    const tensors = Object.fromEntries(
      Object.entries(modules).map(([module, [, ...shape]], i): [string, TestTensor] => {
        return [`${module}.weight`, weights('F32', shape, i)];
      }),
    );
    const result = await quantizeModel(safetensors(tensors), { ...options, workers: 0 });
    const config = result.config?.quantization_config as unknown as Config;
    const { tensors: stored } = parseSafetensors(await result.bytes());
    const obstacles = Object.fromEntries(
      Object.entries(loaders).map(([name, obstacleIn]) => [name, obstacleIn(stored, config, modules)]),
    );
    const loads = Object.keys(obstacles).filter((name) => obstacles[name] === undefined);
    expect(loads, JSON.stringify(obstacles)).toEqual(readers);
    for (const { format } of Object.values(config.config_groups)) expect(format).toBe(config.format);
  });
});
