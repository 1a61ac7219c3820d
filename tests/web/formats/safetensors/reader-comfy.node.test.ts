// Files for ComfyUI, loaded as it loads them, and compared with comfy-kitchen's rules. tests/web/support/readers/comfy.ts names the sources.
import { describe, expect, it } from 'vitest';
import { type QuantizeModelOptions, quantizeModel, readFloats } from '../../../../web/src/model.js';
import { safetensors } from '../../support/models.js';
import { awkward, extremes, groups } from '../../support/readers/awkward.js';
import {
  type ComfyLayer,
  fp8Rule,
  int8Rule,
  loadLayer,
  type Made,
  mxfp8Rule,
  nvfp4Rule,
  restored,
} from '../../support/readers/comfy.js';
import { must, readSafetensors } from '../../support/readers/safetensors.js';
import { expectEqual, squaredError } from '../../support/readers/same.js';

const { bell, ties, zeros, outlier, negative } = groups;
const small = { bell, ties, zeros, negative } as typeof groups;

/** Layers of FLUX: more rows than a tile of scales has, one block, one row, sides that no block divides, and zeros alone. */
const layers = {
  'double_blocks.0.img_attn.proj': { shape: [160, 96], kinds: groups },
  'double_blocks.0.img_mlp.0': { shape: [32, 160], kinds: small },
  'double_blocks.0.img_mlp.2': { shape: [32, 32], kinds: { outlier, bell } as typeof groups },
  'single_blocks.0.linear1': { shape: [64, 64], kinds: extremes },
  'single_blocks.0.linear2': { shape: [32, 64], kinds: { zeros } as typeof groups },
  'single_blocks.0.odd': { shape: [50, 40], kinds: small },
  'single_blocks.0.row': { shape: [1, 64], kinds: small },
} as const;

function fluxOf(dtype: string) {
  const entries = Object.entries(layers).flatMap(([name, { shape, kinds }], seed) =>
    dtype === 'F16' && kinds === extremes
      ? []
      : [[`${name}.weight`, awkward(dtype, shape, { kinds, seed, group: 16 })] as const],
  );
  return {
    'img_in.weight': awkward(dtype, [64, 64]),
    'double_blocks.0.img_attn.norm.query_norm.scale': awkward('F32', [32]),
    'final_layer.linear.weight': awkward(dtype, [64, 64]),
    ...Object.fromEntries(entries),
  } as Record<string, ReturnType<typeof awkward>>;
}

async function made(flux: ReturnType<typeof fluxOf>, options: object) {
  const result = await quantizeModel(safetensors(flux), { workers: 0, ...options } as QuantizeModelOptions);
  const bytes = await result.bytes();
  const { tensors } = readSafetensors(bytes);
  const left = new Set(tensors.keys());
  const loaded = new Map<string, ComfyLayer>();
  for (const [name, { shape, data, dtype }] of Object.entries(flux)) {
    const layer = loadLayer(tensors, name.replace(/\.weight$/, ''), shape as [number, number], left);
    if (layer !== undefined) loaded.set(name, layer);
    else {
      const stored = tensors.get(name)!;
      left.delete(name);
      expect(stored.dtype).toBe(dtype);
      expect(Buffer.compare(Buffer.from(stored.bytes), Buffer.from(data.buffer as ArrayBuffer)), name).toBe(0);
    }
  }
  expect([...left]).toEqual([]);
  return { bytes, loaded };
}

/** The rules for weights widened to float32: in narrower types comfy-kitchen rounds each product and the scale of the tensor once more. */
const rules: Readonly<Record<string, (weight: ReturnType<typeof awkward>) => Made>> = {
  float8_e4m3fn: ({ values }) => fp8Rule(values),
  int8_tensorwise: ({ values, shape }) => int8Rule(values, shape[1]!),
  mxfp8: ({ values }) => mxfp8Rule(values),
  nvfp4: ({ values }) => nvfp4Rule(values),
};

const sum = (errors: readonly number[]) => errors.reduce((a, b) => a + b, 0);

/** Fails if a layer has a larger error than the rule in any group of 32. */
function expectNoWorse(weight: ReturnType<typeof awkward>, layer: ComfyLayer, rule: Made, name: string): void {
  const { values, shape } = weight;
  const theirs = restored(layer.format, shape[1]!, rule).values;
  const before = squaredError(values, theirs, 32);
  for (const [g, error] of squaredError(values, layer.values, 32).entries())
    must(error <= before[g]!, `${name}, group ${g}: error ${error} above ${before[g]}`);
}

const targets = {
  'comfy-fp8': 'float8_e4m3fn',
  'comfy-int8': 'int8_tensorwise',
  'comfy-mxfp8': 'mxfp8',
  'comfy-nvfp4': 'nvfp4',
} as const;

describe('a file for ComfyUI', () => {
  it.each(Object.entries(targets))('has codes of comfy-kitchen, which ComfyUI loads: %s', async (to, format) => {
    for (const dtype of ['F32', 'BF16', 'F16']) {
      const flux = fluxOf(dtype);
      const { bytes, loaded } = await made(flux, { to });
      for (const [name, layer] of loaded) {
        const weight = flux[name]!;
        expect(layer.format).toBe(format);
        expectEqual((await readFloats(bytes, name, { workers: 0 })).data, layer.values, `restored ${name}`);
        // The rules divide zeros by zero.
        if (weight.values.every((v) => v === 0)) {
          must(
            layer.values.every((v) => v === 0),
            `${name} is not 0`,
          );
          continue;
        }
        const rule = rules[format]!(weight);
        // MXFP8's rule gives the tiniest blocks a scale that reads as 0.
        if (format === 'mxfp8' && name.includes('linear1')) expectNoWorse(weight, layer, rule, name);
        else {
          expectEqual(layer.codes, rule.codes, `codes of ${name}`);
          expectEqual(layer.scales, rule.scales, `scales of ${name}`);
          expect(layer.whole).toBe(rule.whole);
        }
      }
      const expected = Object.keys(layers).filter((name) => !/mxfp8|nvfp4/.test(format) || !/odd|row/.test(name));
      expect([...loaded.keys()].map((name) => name.replace(/\.weight$/, ''))).toEqual(
        expected.filter((name) => `${name}.weight` in flux),
      );
    }
  });

  it('has no larger error in any matrix after a search', async () => {
    for (const to of ['comfy-int8', 'comfy-nvfp4']) {
      const flux = fluxOf('BF16');
      const [plain, searched] = await Promise.all([{}, { range: 'mse' }].map((more) => made(flux, { to, ...more })));
      for (const [name, { values }] of searched!.loaded) {
        const of = (restored: Float32Array) => sum(squaredError(flux[name]!.values, restored, 16));
        expect(of(values), `${to} ${name}`).toBeLessThanOrEqual(of(plain!.loaded.get(name)!.values));
      }
    }
  });
});
