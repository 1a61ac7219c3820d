// NVFP4, MXFP4 and MXFP8 in the layout of compressed-tensors, read and made as its sources do. tests/web/support/readers/small-floats.ts
// names them.
import { describe, expect, it } from 'vitest';
import { type QuantizeModelOptions, quantizeModel, readFloats } from '../../../../web/src/model.js';
import { chosen, safetensors } from '../../support/models.js';
import { awkward, extremes, groups } from '../../support/readers/awkward.js';
import { must, readSafetensors } from '../../support/readers/safetensors.js';
import { expectEqual, squaredError } from '../../support/readers/same.js';
import {
  mxRule,
  nvfp4Rule,
  readModule,
  restoredSmall,
  type SmallFloats,
  type WeightArgs,
} from '../../support/readers/small-floats.js';

const { zeros } = groups;
const attention = ['q', 'k', 'v'].map((name) => `self_attn.${name}_proj`);
const mlp = ['gate', 'up'].map((name) => `mlp.${name}_proj`);

/** Layers: one row, rows of one group, rows that no group divides, extremes, and zeros alone. */
const shapes: Readonly<Record<string, { shape: readonly number[]; kinds?: object }>> = {
  ...Object.fromEntries(attention.map((name, i) => [name, { shape: [3 - i, 96] }])),
  ...Object.fromEntries(mlp.map((name) => [name, { shape: [33, 32] }])),
  'mlp.down_proj': { shape: [7, 160], kinds: extremes },
  'self_attn.o_proj': { shape: [5, 64], kinds: { zeros } },
  'mlp.odd_proj': { shape: [9, 40] },
};

const nameOf = (module: string) => `model.layers.0.${module}.weight`;
const moduleOf = (name: string) => name.replace(/\.weight$/, '');

function weightsOf(dtype: string) {
  const entries = Object.entries(shapes).flatMap(([module, { shape, kinds }], seed) =>
    dtype === 'F16' && kinds === extremes
      ? []
      : [
          [
            nameOf(module),
            awkward(dtype, shape, { seed, group: 16, ...(kinds && { kinds: kinds as typeof groups }) }),
          ] as const,
        ],
  );
  return Object.fromEntries([['model.embed_tokens.weight', awkward(dtype, [4, 96])] as const, ...entries]);
}

async function made(weights: ReturnType<typeof weightsOf>, options: object) {
  const files = [chosen('model.safetensors', safetensors(weights)), chosen('config.json', { model_type: 'llama' })];
  const result = await quantizeModel(files, { workers: 0, ...options } as QuantizeModelOptions);
  const bytes = await result.bytes();
  const config = result.config!.quantization_config as {
    readonly format: string;
    readonly quant_method: string;
    readonly ignore: readonly string[];
    readonly config_groups: Readonly<
      Record<string, { readonly targets: readonly string[]; readonly weights: WeightArgs }>
    >;
  };
  const { tensors } = readSafetensors(bytes);
  const left = new Set(tensors.keys());
  const groupsOf = Object.values(config.config_groups);
  expect(groupsOf.map(({ targets }) => targets)).toEqual([['Linear']]);
  const args = groupsOf[0]!.weights;
  const modules = new Map<string, SmallFloats>();
  for (const [name, { shape, data }] of Object.entries(weights)) {
    if (!config.ignore.includes(moduleOf(name)))
      modules.set(name, readModule(tensors, moduleOf(name), shape, args, left));
    else {
      left.delete(name);
      expect(Buffer.compare(Buffer.from(tensors.get(name)!.bytes), Buffer.from(data.buffer as ArrayBuffer)), name).toBe(
        0,
      );
    }
  }
  expect([...left]).toEqual([]);
  return { config, args, modules, files: [chosen('model.safetensors', bytes), chosen('config.json', result.config!)] };
}

/** The largest number of a weight and of those with which vLLM joins it. */
function largestOf(weights: ReturnType<typeof weightsOf>, name: string): number {
  const joined = [attention, mlp].find((names) => names.some((one) => nameOf(one) === name))?.map(nameOf) ?? [name];
  return Math.max(...joined.flatMap((one) => [...weights[one]!.values].map(Math.abs)));
}

const targets = [
  ['nvfp4', 'nvfp4-pack-quantized', { num_bits: 4, strategy: 'tensor_group', group_size: 16 }],
  ['mxfp4', 'mxfp4-pack-quantized', { num_bits: 4, strategy: 'group', group_size: 32, scale_dtype: 'torch.uint8' }],
  ['mxfp8', 'mxfp8-quantized', { num_bits: 8, strategy: 'group', group_size: 32, scale_dtype: 'torch.uint8' }],
] as const;

describe('small floats in the layout of compressed-tensors', () => {
  it.each(targets)('have its codes and scales, which it restores: %s', async (to, format, stated) => {
    for (const dtype of ['F32', 'BF16', 'F16']) {
      const weights = weightsOf(dtype);
      const { args, config, modules, files } = await made(weights, { to });
      expect(config).toMatchObject({ quant_method: 'compressed-tensors', format });
      expect(args).toMatchObject({ type: 'float', symmetric: true, ...stated });
      const plain = Object.keys(weights).filter((name) => /embed|odd/.test(name));
      expect([...modules.keys()]).toEqual(Object.keys(weights).filter((name) => !plain.includes(name)));
      for (const [name, module] of modules) {
        const { values } = weights[name]!;
        const restored = restoredSmall(module, args.num_bits);
        expectEqual((await readFloats(files, name, { workers: 0 })).data, restored, `restored ${name}`);
        // NVFP4's rule divides by the largest number, which is 0 here.
        if (to === 'nvfp4' && name.includes('o_proj')) {
          must(
            restored.every((v) => v === 0),
            `${name} is not 0`,
          );
          continue;
        }
        const rule = to === 'nvfp4' ? nvfp4Rule(values, largestOf(weights, name)) : mxRule(values, args.num_bits);
        expectEqual(module.codes, rule.codes, `codes of ${name}`);
        expectEqual(module.scales, rule.scales, `scales of ${name}`);
        expect(module.divisor).toBe(rule.divisor);
      }
    }
  });

  it('have no larger error in any matrix after a search', async () => {
    for (const [to] of targets) {
      const weights = weightsOf('BF16');
      const [plain, searched] = await Promise.all([{}, { range: 'mse' }].map((more) => made(weights, { to, ...more })));
      for (const [name, module] of searched!.modules) {
        const { values } = weights[name]!;
        const [before, after] = [plain!.modules.get(name)!, module].map(
          (one) => squaredError(values, restoredSmall(one, plain!.args.num_bits), values.length)[0]!,
        );
        expect(after, `${to} ${name}`).toBeLessThanOrEqual(before!);
      }
    }
  });
});
