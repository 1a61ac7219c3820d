// Results in the layouts of GPTQ and AWQ, unpacked as their loaders do. tests/web/support/readers/gptq.ts names the sources.
import { describe, expect, it } from 'vitest';
import { type QuantizeModelOptions, quantizeModel, readFloats } from '../../../../web/src/model.js';
import { chosen, safetensors } from '../../support/models.js';
import { awkward, extremes, groups } from '../../support/readers/awkward.js';
import { awqRule, gptqRule, unpackAwq, unpackGptq } from '../../support/readers/gptq.js';
import { must, readSafetensors } from '../../support/readers/safetensors.js';
import { expectEqual, squaredError } from '../../support/readers/same.js';

const shapes = {
  ...{ a: [32, 128], wide: [64, 256], 'short.rows': [32, 96], eight: [8, 128] },
  // Shapes that no word or no group divides.
  ...{ 'odd.rows': [33, 128], 'odd.columns': [32, 100], one: [1, 128] },
} as const;
type Name = keyof typeof shapes;

const nameOf = (name: string) => `model.layers.0.${name}`;

const weightsOf = (dtype: string, kinds = groups, names = Object.keys(shapes) as Name[]) =>
  Object.fromEntries(
    names.map((name, seed) => [`${nameOf(name)}.weight`, awkward(dtype, shapes[name], { kinds, seed })]),
  );

interface Stated {
  readonly quant_method: string;
  readonly bits: number;
  readonly group_size: number;
  readonly dynamic?: Readonly<Record<string, { readonly bits?: number; readonly group_size?: number }>>;
  readonly modules_to_not_convert?: readonly string[] | null;
  readonly [key: string]: unknown;
}

/** Parameters of a module as loaders find them in config.json; undefined for one that stays floats. */
function statedFor(stated: Stated, module: string): { bits: number; group: number } | undefined {
  const usual = { bits: stated.bits, group: stated.group_size };
  if (stated.quant_method === 'awq')
    return (stated.modules_to_not_convert ?? []).some((part) => module.includes(part)) ? undefined : usual;
  for (const [pattern, own] of Object.entries(stated.dynamic ?? {})) {
    // Patterns begin with - for modules without codes. They are matched from the start on, as Python's re.match does.
    if (!new RegExp(`^(?:${pattern.replace(/^[-+]:/, '')})`).test(module)) continue;
    return pattern.startsWith('-:')
      ? undefined
      : { bits: own.bits ?? usual.bits, group: own.group_size ?? usual.group };
  }
  return usual;
}

async function made(weights: ReturnType<typeof weightsOf>, options: object) {
  const files = [chosen('model.safetensors', safetensors(weights)), chosen('config.json', { model_type: 'llama' })];
  const result = await quantizeModel(files, { workers: 0, ...options } as QuantizeModelOptions);
  const bytes = await result.bytes();
  const stated = result.config!.quantization_config as Stated;
  const { tensors } = readSafetensors(bytes);
  const left = new Set(tensors.keys());
  const layers = new Map<string, ReturnType<typeof unpackGptq>>();
  for (const [name, { shape, data }] of Object.entries(weights)) {
    const module = name.replace(/\.weight$/, '');
    const params = statedFor(stated, module);
    const parts = params === undefined ? ['weight'] : ['qweight', 'qzeros', 'scales'];
    if (params !== undefined && stated.quant_method === 'gptq') parts.push('g_idx');
    for (const part of parts) left.delete(`${module}.${part}`);
    if (params === undefined) {
      expect(Buffer.compare(Buffer.from(tensors.get(name)!.bytes), Buffer.from(data.buffer as ArrayBuffer)), name).toBe(
        0,
      );
      continue;
    }
    const of = shape as readonly [number, number];
    const unpacked =
      stated.quant_method === 'gptq'
        ? unpackGptq(tensors, module, of, params.bits, params.group)
        : unpackAwq(tensors, module, of, params.group);
    layers.set(name, unpacked);
  }
  expect([...left]).toEqual([]);
  return { stated, layers, files: [chosen('model.safetensors', bytes), chosen('config.json', result.config!)] };
}

/** True if each code is that of a level nearest to the number, for the stored scale and zero point. */
function expectNearest(
  original: Float32Array,
  { values, scales, zeros, group }: ReturnType<typeof unpackGptq>,
  bits: number,
  what: string,
) {
  for (const [i, v] of original.entries()) {
    const own = Math.floor(i / group);
    const [scale, zero] = [scales[own]!, zeros[own]!];
    const level = Math.min(Math.max(Math.round(v / scale), -zero), 2 ** bits - 1 - zero);
    // Half a step either way is as near; a double rounds the quotient once more.
    const bound = Math.abs(v - level * scale) + Math.abs(v) * 2 ** -24;
    must(Math.abs(v - values[i]!) <= bound, `${what}[${i}] = ${v}: ${values[i]} is not the nearest`);
  }
}

const targets = [
  ['gptq', 4, 'F32'],
  ['gptq-8bit', 8, 'BF16'],
  ['gptq-3bit', 3, 'F16'],
  ['gptq-2bit', 2, 'BF16'],
  ['awq', 4, 'F32'],
] as const;

describe('a result in the layout of GPTQ or AWQ', () => {
  it.each(targets)('is unpacked by loaders into the nearest codes: %s', async (to, bits, dtype) => {
    const weights = weightsOf(dtype);
    const { stated, layers, files } = await made(weights, { to });
    expect(stated).toMatchObject({ bits, group_size: 32 });
    const coded = to === 'awq' ? ['a', 'wide', 'short.rows', 'eight'] : ['a', 'wide', 'short.rows'];
    expect([...layers.keys()]).toEqual(coded.map((name) => `${nameOf(name)}.weight`));
    for (const [name, layer] of layers) {
      const original = weights[name]!.values;
      expectNearest(original, layer, bits, name);
      expectEqual((await readFloats(files, name, { workers: 0 })).data, layer.values, `restored ${name}`);
      // Scales and zero points of the tools lose at least as much in each group. AutoGPTQ's saturate where all numbers are positive.
      for (const [g, error] of squaredError(original, layer.values, layer.group).entries()) {
        const group = original.subarray(g * layer.group, (g + 1) * layer.group);
        const theirs = squaredError(group, to === 'awq' ? awqRule(group) : gptqRule(group, bits), layer.group)[0]!;
        must(error <= theirs, `${name}, group ${g}: error ${error} above ${theirs}`);
      }
    }
  });

  it('has other widths where rules say so, and no larger error in any group after a search', async () => {
    for (const to of ['gptq', 'awq'] as const) {
      const rules = to === 'gptq' ? [{ match: /wide/, to: 'gptq-8bit' }] : [{ match: /wide/, keep: true }];
      const weights = weightsOf('BF16');
      const [plain, searched] = await Promise.all(
        [{}, { range: 'mse' }].map((more) => made(weights, { to, rules, ...more })),
      );
      for (const [name, { values, group }] of searched!.layers) {
        const before = squaredError(weights[name]!.values, plain!.layers.get(name)!.values, group);
        for (const [g, error] of squaredError(weights[name]!.values, values, group).entries())
          must(error <= before[g]!, `${to} ${name}, group ${g}: error ${error} above ${before[g]}`);
      }
      expect(searched!.layers.has(`${nameOf('wide')}.weight`)).toBe(to === 'gptq');
    }
  });

  it('refuses weights whose scales exceed float16', async () => {
    const files = [chosen('model.safetensors', safetensors(weightsOf('BF16', extremes, ['a'])))];
    for (const to of ['gptq', 'awq'])
      await expect(quantizeModel(files, { to, workers: 0 } as QuantizeModelOptions)).rejects.toMatchObject({
        code: 'OVERFLOW',
        tensor: `${nameOf('a')}.weight`,
      });
  });
});
