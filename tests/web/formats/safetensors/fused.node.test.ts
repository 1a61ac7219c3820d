// Weights that vLLM joins into one matrix, or into one kernel of experts, get one scheme. The groups are written down by hand, from
// `packed_modules_mapping` of its models.
import { describe, expect, it } from 'vitest';
import { measureTypes, planModel, quantizeModel, sizeCurve, verifyModel } from '../../../../web/src/model.js';
import { parseSafetensors } from '../../support/compressed.js';
import { safetensors, type TestTensor, weights } from '../../support/models.js';

const expertNames = [0, 1, 2].flatMap((i) => ['gate', 'up', 'down'].map((name) => `mlp.experts.${i}.${name}_proj`));
const groups: readonly (readonly string[])[] = [
  ['self_attn.q_proj', 'self_attn.k_proj', 'self_attn.v_proj'],
  ['mlp.shared_expert.gate_proj', 'mlp.shared_expert.up_proj'],
  ['linear_attn.in_proj_qkv', 'linear_attn.in_proj_z'],
  ['linear_attn.in_proj_b', 'linear_attn.in_proj_a'],
  ['mla.q_a_proj', 'mla.kv_a_proj_with_mqa'],
  expertNames,
];
const single = ['self_attn.o_proj', 'mlp.shared_expert.down_proj', 'linear_attn.out_proj', 'mla.kv_b_proj'];

/** Weights whose errors differ much, so that each would get a type of its own. */
function rough(seed: number): TestTensor {
  const tensor = weights('F32', [32, 128], seed);
  const data = tensor.data as Float32Array;
  // A large value in some of the rows takes the precision of the others.
  for (let i = 0; i < data.length; i += 128) if ((i / 128) % 8 < seed % 8) data[i] = 2 ** (seed % 11);
  return tensor;
}

const names = [...groups.flat(), ...single].map((name) => `model.layers.0.${name}.weight`);
const tensorsOfModel = Object.fromEntries(names.map((name, i) => [name, rough(3 * i + 1)]));
const model = safetensors(tensorsOfModel);

/** The types of a weight's parts in a file. */
function partsOf(tensors: ReadonlyMap<string, { dtype: string; shape: number[] }>, module: string): string {
  const all = [...tensors].filter(([name]) => name.startsWith(`model.layers.0.${module}.`));
  return JSON.stringify(all.map(([name, { dtype, shape }]) => [name.slice(name.lastIndexOf('.')), dtype, ...shape]));
}

describe.each(['int4', 'int8', 'nvfp4', 'float8e4m3fn'] as const)('%s of a given size', async (to) => {
  const curve = sizeCurve(await measureTypes(model, { to, workers: 0 }));
  const [least, most] = [curve[0]!.bytes, curve.at(-1)!.bytes];

  it('has one scheme in each group', async () => {
    let mixed = 0;
    for (const share of [0.2, 0.5, 0.8]) {
      const targetSize = Math.ceil(least + share * (most - least)) + 4000;
      const result = await quantizeModel(model, { to, targetSize, workers: 0 });
      expect(result.report.notes).toEqual([]);
      const bytes = await result.bytes();
      expect(bytes.length).toBeLessThanOrEqual(targetSize);
      const { tensors } = parseSafetensors(bytes);
      const schemes = groups.map((modules) => new Set(modules.map((module) => partsOf(tensors, module))));
      expect(schemes.map(({ size }) => size)).toEqual(groups.map(() => 1));
      mixed += new Set(schemes.flatMap((one) => [...one])).size - 1;
      const { problems } = await verifyModel(bytes, { config: result.config! });
      expect(problems).toEqual([]);
    }
    // The sizes were such that types are mixed.
    expect(mixed).toBeGreaterThan(0);
  });
});

describe('a rule that cuts a group', () => {
  it.each([
    ['int4', /k_proj/, 'int8', groups[0]],
    ['nvfp4', /in_proj_z/, 'keep', groups[2]],
    ['int4', /experts\.1\.down_proj/, 'keep', expertNames],
  ] as const)('gets a note, and verify finds it: %s, %s', async (to, match, other, group) => {
    const rules = [other === 'keep' ? ({ match, keep: true } as const) : ({ match, to: other } as const)];
    const tensors = group!.map((name) => `model.layers.0.${name}.weight`).sort();
    const sorted = (all: readonly { kind: string; tensors?: unknown }[]) =>
      all.map(({ kind, tensors: found }) => ({ kind, tensors: [...(found as string[])].sort() }));
    const result = await quantizeModel(model, { to, rules, workers: 0 });
    expect(sorted(result.report.notes)).toEqual([{ kind: 'cutGroups', tensors }]);
    const { problems } = await verifyModel(await result.bytes(), { config: result.config! });
    expect(sorted(problems)).toEqual([{ kind: 'schemesDiffer', tensors }]);
  });

  it('decides for the whole group in a result of a given size', async () => {
    const rules = [{ match: /v_proj/, to: 'int8' }] as const;
    const { tensors, notes } = await planModel(model, { to: 'int4', rules, targetBitsPerWeight: 6, workers: 0 });
    expect(notes).toEqual([]);
    const types = new Map(tensors.map((tensor) => [tensor.name, tensor.to]));
    expect(groups[0]!.map((name) => types.get(`model.layers.0.${name}.weight`))).toEqual(['I8', 'I8', 'I8']);
  });
});

it('shares the scale of the whole matrix in NVFP4 within each matrix that loaders join', async () => {
  const result = await quantizeModel(model, { to: 'nvfp4', workers: 0 });
  const { tensors } = parseSafetensors(await result.bytes());
  const scaleOf = (module: string) =>
    Buffer.from(tensors.get(`model.layers.0.${module}.weight_global_scale`)!.bytes).readFloatLE();
  const largest = (module: string) =>
    Math.max(...(tensorsOfModel[`model.layers.0.${module}.weight`]!.data as Float32Array).map(Math.abs));
  // Each expert has a matrix of its own gate and up projection.
  const experts = [0, 1, 2].map((i) => ['gate', 'up'].map((name) => `mlp.experts.${i}.${name}_proj`));
  const alone = [...single, ...[0, 1, 2].map((i) => `mlp.experts.${i}.down_proj`)].map((module) => [module]);
  for (const modules of [...groups.slice(0, -1), ...experts, ...alone]) {
    const most = Math.max(...modules.map(largest));
    // (1 / amax) · 2688, each step in float32.
    const divisor = Math.fround(Math.fround(1 / most) * 2688);
    expect(modules.map(scaleOf), String(modules)).toEqual(modules.map(() => divisor));
  }
});
