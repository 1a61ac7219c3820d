// Weights in the layouts of GPTQ and AWQ: shapes, the configuration that loaders expect, and layers that stay floats. The loaders themselves
// are not run. tests/cpp/codecs_gptq_test.cpp unpacks the words, and has their arithmetic.
import { describe, expect, it } from 'vitest';
import { calibrateModel, planModel, quantizeModel, verifyModel } from '../../../../web/src/model.js';
import { numbersOf, parseSafetensors, type StoredTensor } from '../../support/compressed.js';
import { storyFolder } from '../../support/divergence.js';
import { folder as folderOf, type Json, made as resultOf } from '../../support/folders.js';
import {
  autoAwqSettings,
  autoGptqSettings,
  gptqModelSettings,
  type LayerSettings,
  layerSettings,
} from '../../support/gptq.js';
import { expectBytes, rejectionOf, storedOf, type TestTensor, weights } from '../../support/models.js';
import { decoderConfig } from '../../support/tiny-huggingface.js';

const folder = (tensors: Readonly<Record<string, TestTensor>>) =>
  folderOf(tensors, { 'config.json': decoderConfig('LlamaForCausalLM', { torch_dtype: 'bfloat16' }) });

/** A result, with its `quantization_config` apart from the other keys of config.json. */
async function made(...given: Parameters<typeof resultOf>) {
  const { config: all, ...result } = await resultOf(...given);
  const { quantization_config: quantization, ...config } = all;
  return { ...result, config, quantization: quantization as Json };
}

const layer = 'model.layers.0';
const tensors: Record<string, TestTensor> = {
  'model.embed_tokens.weight': weights('BF16', [64, 256], 1),
  [`${layer}.input_layernorm.weight`]: weights('BF16', [256], 2),
  [`${layer}.self_attn.q_proj.weight`]: weights('BF16', [64, 256], 3),
  [`${layer}.self_attn.q_proj.bias`]: weights('BF16', [64], 4),
  [`${layer}.mlp.down_proj.weight`]: weights('F32', [96, 384], 5),
  [`${layer}.mlp.up_proj.weight`]: weights('F16', [1056, 1152], 6),
  'lm_head.weight': weights('BF16', [64, 256], 7),
};
const coded = ['self_attn.q_proj', 'mlp.down_proj', 'mlp.up_proj'].map((name) => `${layer}.${name}`);

/** Fails unless the parts of a layer have the types and shapes of its settings. */
function expectLayout(got: ReadonlyMap<string, StoredTensor>, module: string, settings: LayerSettings, of: TestTensor) {
  const { words, bits, groupSize } = settings;
  const [rows = 0, columns = 0] = of.shape;
  const groups = columns / groupSize;
  const parts = {
    qweight: ['I32', words === 'awq' ? [columns, rows / 8] : [(columns * bits) / 32, rows]],
    qzeros: ['I32', [groups, (rows * bits) / 32]],
    scales: ['F16', [groups, rows]],
    ...(words === 'gptq' && { g_idx: ['I32', [columns]] }),
  } as const;
  for (const [part, [dtype, shape]] of Object.entries(parts)) {
    expect(got.get(`${module}.${part}`), `${module}.${part}`).toMatchObject({ dtype, shape });
  }
  expect(got.has(`${module}.weight`), module).toBe(false);
}

const targets = { gptq: 4, 'gptq-8bit': 8, 'gptq-3bit': 3, 'gptq-2bit': 2, awq: 4 } as const;

describe('codes for loaders of GPTQ and AWQ', () => {
  for (const [to, bits] of Object.entries(targets) as [keyof typeof targets, number][]) {
    it(`${to}: have the parts of the layout, and copies of what stays`, async () => {
      const words = to === 'awq' ? 'awq' : 'gptq';
      const groupSize = to === 'gptq' || to === 'awq' ? 32 : 64;
      const granularity = { kind: 'per-group', groupSize } as const;
      const { tensors: got, bytes, config, quantization } = await made(folder(tensors), { to, granularity });
      for (const module of coded) {
        const settings = layerSettings(quantization, module)!;
        expect(settings).toMatchObject({ words, bits, groupSize, symmetric: words === 'gptq' });
        expectLayout(got, module, settings, tensors[`${module}.weight`]!);
      }
      for (const [name, tensor] of Object.entries(tensors)) {
        if (coded.some((module) => name === `${module}.weight`)) continue;
        expectBytes(got.get(name)!.bytes, storedOf(tensor).bytes, name);
      }
      expect((await verifyModel(bytes)).problems).toEqual([]);
      expect(config).toMatchObject({ hidden_size: 64 });
      expect(layerSettings(quantization, 'lm_head')).toBeUndefined();
    });
  }

  it('store zero points of the first version, minus 1, and groups in order', async () => {
    const { tensors: got } = await made(folder(tensors), { to: 'gptq' });
    expect(new Set(got.get(`${coded[0]}.qzeros`)!.bytes)).toEqual(new Set([0x77]));
    expect([...numbersOf(got.get(`${coded[0]}.g_idx`)!)]).toEqual(
      Array.from({ length: 256 }, (_, i) => Math.floor(i / 128)),
    );
  });

  it('lower the errors by search', async () => {
    for (const to of ['gptq', 'gptq-2bit', 'awq'] as const) {
      const errorOf = async (range: 'min-max' | 'mse') => {
        const { result } = await made(folder(tensors), { to, range });
        return result.report.tensors.reduce((sum, { error }) => sum + (error?.mse ?? 0), 0);
      };
      // Uniform weights leave little to gain.
      expect(await errorOf('mse'), to).toBeLessThan(await errorOf('min-max'));
    }
  });

  it('take the groups that divide all rows, and name layers without codes', async () => {
    const gate = { [`${layer}.mlp.gate.weight`]: weights('BF16', [4, 256], 8) };
    const experts = { [`${layer}.mlp.experts.0.up_proj.weight`]: weights('BF16', [64, 192], 9) };
    const all: typeof tensors = { ...tensors, ...gate, ...experts };
    const input = folder(all);
    const gptq = await made(input, { to: 'gptq', rules: [{ match: 'up_proj', to: 'gptq-8bit' }] });
    const found = (quantization: Json, names: readonly string[]) =>
      names.map((name) => {
        const its = layerSettings(quantization, `${layer}.${name}`);
        return its && [its.bits, its.groupSize];
      });
    const names = ['self_attn.q_proj', 'mlp.down_proj', 'mlp.up_proj', 'mlp.experts.0.up_proj', 'mlp.gate'];
    expect(found(gptq.quantization, names)).toEqual([[4, 128], [4, 128], [8, 64], [8, 64], undefined]);
    const awq = await made(input, { to: 'awq', rules: [{ match: 'q_proj.weight', keep: true }] });
    expect(found(awq.quantization, names)).toEqual([undefined, [4, 64], [4, 64], [4, 64], undefined]);
    // Coded layers have the settings of their tensors; layers of floats have no settings.
    for (const { tensors: got, quantization } of [gptq, awq]) {
      for (const name of names) {
        const settings = layerSettings(quantization, `${layer}.${name}`);
        expect(got.has(`${layer}.${name}.qweight`), name).toBe(settings !== undefined);
        if (settings !== undefined) expectLayout(got, `${layer}.${name}`, settings, all[`${layer}.${name}.weight`]!);
      }
    }
  });

  it('leave floats where loaders of AWQ would skip a layer for the name of another', async () => {
    const more = {
      // Its 4 rows fill no words of AWQ.
      [`${layer}.mlp.gate.weight`]: weights('BF16', [4, 256], 8),
      [`${layer}.mlp.gate_proj.weight`]: weights('BF16', [64, 256], 9),
      // Contains the name above, which is not at the begin.
      [`draft.${layer}.mlp.gate_proj.weight`]: weights('BF16', [64, 256], 10),
      'model.layers.00.mlp.gate_proj.weight': weights('BF16', [64, 256], 11),
    };
    const input = folder({ ...tensors, ...more });
    // A rule cannot override it, as the file would not load.
    for (const rules of [[], [{ match: 'gate_proj', to: 'awq' }]] as const) {
      const { tensors: got, result, quantization } = await made(input, { to: 'awq', rules });
      const names = Object.keys({ ...tensors, ...more }).flatMap(
        (name) => name.match(/^(.*_proj)\.weight$/)?.[1] ?? [],
      );
      // The oracle looks for names anywhere in those of layers, and each layer has to be in the form that it says.
      for (const name of names) {
        expect(got.has(`${name}.qweight`), name).toBe(layerSettings(quantization, name) !== undefined);
      }
      const kept = [`${layer}.mlp.gate_proj`, `draft.${layer}.mlp.gate_proj`];
      for (const name of names) expect(got.has(`${name}.weight`), name).toBe(kept.includes(name));
      const plan = await planModel(input, { to: 'awq', rules });
      expect(plan.notes).toEqual(result.report.notes);
      const tensorsKept = kept.map((name) => `${name}.weight`);
      expect(plan.notes).toMatchObject([{ kind: 'skippedByLoaders', tensors: tensorsKept }]);
      expect(plan.notes[0]?.text).toContain(`${kept[0]} contains ${layer}.mlp.gate;`);
      const reasons = result.report.tensors.filter(({ name }) => tensorsKept.includes(name)).map((its) => its.kept);
      expect(reasons).toMatchObject([1, 2].map(() => ({ kind: 'skippedWith', module: `${layer}.mlp.gate` })));
    }
    // Loaders of GPTQ match whole names, and a gate with enough rows becomes codes as well.
    const gptq = await made(input, { to: 'gptq' });
    expect(gptq.tensors.has(`${layer}.mlp.gate_proj.qweight`)).toBe(true);
    expect(gptq.result.report.notes).toEqual([]);
    const wide = folder({ ...tensors, ...more, [`${layer}.mlp.gate.weight`]: weights('BF16', [8, 256], 8) });
    const awq = await made(wide, { to: 'awq' });
    expect(awq.tensors.has(`${layer}.mlp.gate_proj.qweight`)).toBe(true);
    expect(awq.result.report.notes).toEqual([]);
  });

  it('have the files of older loaders, which say the same', async () => {
    const mixed = { rules: [{ match: 'q_proj.weight', keep: true }] };
    for (const [to, bits] of Object.entries(targets) as [keyof typeof targets, number][]) {
      for (const choices of [{}, mixed]) {
        const all = { ...choices, to };
        const { tensors: got, result, quantization } = await made(folder(tensors), all);
        const { quantizeConfig, quantConfig } = result;
        const file = quantizeConfig ?? quantConfig ?? {};
        expect(quantizeConfig === undefined, to).toBe(to === 'awq');
        expect(await planModel(folder(tensors), all)).toMatchObject(
          to === 'awq' ? { quantConfig } : { quantizeConfig },
        );
        // GPTQModel reads these files before config.json.
        for (const module of [...coded, 'lm_head']) {
          const settings = layerSettings(quantization, module);
          expect(layerSettings(gptqModelSettings(file), module), module).toEqual(settings);
          if (settings) expectLayout(got, module, settings, tensors[`${module}.weight`]!);
        }
        const alone = to === 'awq' ? autoAwqSettings(file) : undefined;
        const same = { bits, groupSize: quantization.group_size };
        if (to === 'awq') expect(alone).toEqual(same);
        else if (choices === mixed) expect(() => autoGptqSettings(file)).toThrow('dynamic');
        else expect(autoGptqSettings(file)).toEqual(same);
      }
    }
    const plain = await quantizeModel(folder(tensors), { to: 'int4', workers: 0 });
    expect([plain.quantizeConfig, plain.quantConfig]).toEqual([undefined, undefined]);
    const given = planModel(folder(tensors), { to: 'gptq', quantizeConfig: {} } as never);
    expect(await rejectionOf(given)).toMatchObject({ name: 'TypeError' });
  });

  it('are refused where scales exceed float16', async () => {
    const name = `${layer}.self_attn.q_proj.weight`;
    const large = { dtype: 'F32', shape: [32, 128], data: new Float32Array(4096).fill(2 ** 100) };
    for (const to of ['gptq', 'awq'] as const) {
      const error = await rejectionOf(quantizeModel(folder({ [name]: large }), { to, workers: 0 }));
      expect(error).toMatchObject({ code: 'OVERFLOW', tensor: name });
    }
  });

  it('are refused for wrong options, and keep rows that fill no words', async () => {
    const wrong = async (options: object, option: string) => {
      const error = await rejectionOf(planModel(folder(tensors), { to: 'gptq', ...options } as never));
      expect(error).toMatchObject({ option });
    };
    await wrong({ granularity: { kind: 'per-channel' } }, 'granularity.kind');
    await wrong({ granularity: { kind: 'per-group', groupSize: 16 } }, 'granularity.groupSize');
    await wrong({ range: 'entropy' }, 'range');
    await wrong({ scheme: 'asymmetric' }, 'scheme');
    await wrong({ rules: [{ match: 'a', to: 'int8' }] }, 'rules[0].to');
    const odd = { [`${layer}.odd.weight`]: weights('BF16', [40, 256], 8) };
    const { tensors: planned } = await planModel(folder({ ...tensors, ...odd }), { to: 'gptq' });
    const kept = planned.find(({ name }) => name.includes('odd'))?.kept;
    expect(kept).toMatchObject({ kind: 'notDivisible', dimension: 40, by: 32 });
    const { tensors: others } = await planModel(folder({ ...tensors, ...odd }), { to: 'awq' });
    expect(others.find(({ name }) => name.includes('odd'))?.kept).toBeUndefined();
  });
});

describe('by the method gptq', () => {
  it('pass errors on by data, in the same layout', async () => {
    const ids = Uint32Array.from({ length: 1024 }, (_, i) => 3 + ((i * 7919) % 500));
    const data = await calibrateModel(storyFolder, ids, { chunkSize: 64, moments: true });
    const granularity = { kind: 'per-group', groupSize: 32 } as const;
    const plain = await quantizeModel(storyFolder, { to: 'gptq', granularity, workers: 0 });
    const fed = await quantizeModel(storyFolder, {
      to: 'gptq',
      granularity,
      method: 'gptq',
      moments: data,
      workers: 0,
    });
    const [a, b] = [await plain.bytes(), await fed.bytes()];
    expect(a.length).toBe(b.length);
    expect(fed.config).toMatchObject({ quantization_config: { damp_percent: 0.01 } });
    expect(fed.quantizeConfig).toMatchObject({ damp_percent: 0.01, true_sequential: false });
    expect(autoGptqSettings(fed.quantizeConfig!)).toEqual({ bits: 4, groupSize: 32 });
    const names = [...parseSafetensors(a).tensors.keys()].filter((name) => name.endsWith('.qweight'));
    expect(names.length).toBeGreaterThan(0);
    // The report measures the outputs of each layer by the moments, before and after.
    const outputs = fed.report.tensors.flatMap(({ error }) => error?.output ?? []);
    expect(outputs.length).toBe(names.length);
    const sum = (key: 'before' | 'after') => outputs.reduce((total, its) => total + its[key], 0);
    expect(sum('after')).toBeLessThan(0.9 * sum('before'));
  });
});
