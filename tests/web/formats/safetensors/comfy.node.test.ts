// ComfyUI's own safetensors: written for the architectures that are known, read again, and refused where they are damaged. ComfyUI itself is
// not run. tests/cpp/codecs_comfy_test.cpp holds codes, scales and restored floats to the rules of comfy-kitchen.
import { describe, expect, it } from 'vitest';
import {
  compareModels,
  type ModelTarget,
  planModel,
  quantizeModel,
  readFloats,
  readQuantized,
  verifyModel,
} from '../../../../web/src/model.js';
import { numbersOf, parseSafetensors } from '../../support/compressed.js';
import { bytesOf, expectBytes, rejectionOf, safetensors, type TestTensor, weights } from '../../support/models.js';

const targets = ['comfy-fp8', 'comfy-int8', 'comfy-mxfp8', 'comfy-nvfp4'] as const satisfies ModelTarget[];

const formats: Readonly<Record<string, string>> = {
  'comfy-fp8': 'float8_e4m3fn',
  'comfy-int8': 'int8_tensorwise',
  'comfy-mxfp8': 'mxfp8',
  'comfy-nvfp4': 'nvfp4',
};

/** Types and shapes of the parts of a layer of 160 rows and 96 columns, as ComfyUI's loader wants them. Scales of groups fill tiles of 128 x 4. */
const layouts: Readonly<Record<string, Readonly<Record<string, [dtype: string, shape: number[]]>>>> = {
  'comfy-fp8': { weight: ['F8_E4M3', [160, 96]], weight_scale: ['F32', []] },
  'comfy-int8': { weight: ['I8', [160, 96]], weight_scale: ['F32', [160, 1]] },
  'comfy-mxfp8': { weight: ['F8_E4M3', [160, 96]], weight_scale: ['U8', [256, 4]] },
  'comfy-nvfp4': { weight: ['U8', [160, 48]], weight_scale: ['F8_E4M3', [256, 8]], weight_scale_2: ['F32', []] },
};

const zeros = (shape: readonly number[]): TestTensor => ({
  dtype: 'BF16',
  shape,
  data: new Uint16Array(shape.reduce((a, b) => a * b, 1)),
});

/** A small FLUX, and the layers of it that become codes. */
const flux: Record<string, TestTensor> = {
  'img_in.weight': weights('BF16', [64, 64], 1),
  'img_in.bias': weights('BF16', [64], 2),
  'double_blocks.0.img_attn.norm.query_norm.scale': weights('F32', [32], 3),
  'double_blocks.0.img_attn.proj.weight': weights('BF16', [160, 96], 4),
  'double_blocks.0.img_attn.proj.bias': weights('BF16', [160], 5),
  'double_blocks.0.img_mlp.0.weight': weights('F16', [96, 160], 6),
  'single_blocks.0.linear1.weight': weights('F32', [1056, 1056], 7),
  'single_blocks.0.linear2.weight': zeros([64, 32]),
  'single_blocks.0.odd.weight': weights('BF16', [50, 40], 8),
  'final_layer.linear.weight': weights('BF16', [64, 64], 9),
};
const coded = [
  'double_blocks.0.img_attn.proj',
  'double_blocks.0.img_mlp.0',
  'single_blocks.0.linear1',
  'single_blocks.0.linear2',
];

/** The settings of a layer by its marker. */
const markerOf = (tensors: ReturnType<typeof parseSafetensors>['tensors'], layer: string) =>
  JSON.parse(new TextDecoder().decode(tensors.get(`${layer}.comfy_quant`)!.bytes));

const restoredWeight = async (bytes: Uint8Array<ArrayBuffer>, layer: string) =>
  (await readFloats(bytes, `${layer}.weight`)).data;

async function written(file: Uint8Array<ArrayBuffer>, options: Parameters<typeof quantizeModel>[1]) {
  const result = await quantizeModel(file, options);
  return { report: result.report, bytes: await result.bytes() };
}

describe('files for ComfyUI', () => {
  for (const to of targets) {
    for (const range of to === 'comfy-int8' || to === 'comfy-nvfp4' ? (['min-max', 'mse'] as const) : [undefined]) {
      it(`${to}${range === undefined ? '' : ` ${range}`}: writes codes, scales and markers`, async () => {
        const file = safetensors(flux);
        const options = { to, ...(range === undefined ? {} : { range }) };
        const { report, bytes } = await written(file, { ...options, workers: 0 });
        expect((await planModel(file, options)).totals.bytesAfter).toBe(bytes.length);
        expectBytes((await written(file, { ...options, workers: 1 })).bytes, bytes, 'by workers');
        const { tensors } = parseSafetensors(bytes);
        const layers = to === 'comfy-fp8' || to === 'comfy-int8' ? [...coded, 'single_blocks.0.odd'] : coded;
        for (const layer of layers) {
          expect(markerOf(tensors, layer)).toEqual({ format: formats[to] });
        }
        for (const [part, [dtype, shape]] of Object.entries(layouts[to]!))
          expect(tensors.get(`${coded[0]}.${part}`), part).toMatchObject({ dtype, shape });
        // Everything else is a copy.
        const others = Object.keys(flux).filter((name) => !layers.includes(name.replace(/\.weight$/, '')));
        for (const name of others) expectBytes(tensors.get(name)!.bytes, bytesOf(flux[name]!.data), name);
        expect(report.tensors.filter(({ kept }) => kept !== undefined).map(({ name }) => name)).toEqual(others);
        const compared = await compareModels(file, bytes, { workers: 0 });
        expect(compared.tensors.map(({ name }) => name).sort()).toEqual(Object.keys(flux).sort());
        expect(compared.onlyInB).toEqual([]);
        expect(await verifyModel(bytes)).toMatchObject({ problems: [], notes: [] });
      });
    }
  }

  it('lowers errors by searching, in the same bytes', async () => {
    for (const to of ['comfy-int8', 'comfy-nvfp4'] as const) {
      const usual = await written(safetensors(flux), { to });
      const searched = await written(safetensors(flux), { to, range: 'mse' });
      expect(searched.bytes.length).toBe(usual.bytes.length);
      for (const [i, { name, error }] of usual.report.tensors.entries()) {
        if (!name.includes('linear1')) continue;
        expect(searched.report.tensors[i]!.error!.sqnrDb).toBeGreaterThan(error!.sqnrDb);
      }
    }
    const error = await rejectionOf(quantizeModel(safetensors(flux), { to: 'comfy-nvfp4', range: 'entropy' } as never));
    expect(error).toBeInstanceOf(RangeError);
    const other = await rejectionOf(quantizeModel(safetensors(flux), { to: 'comfy-fp8', range: 'mse' } as never));
    expect(other).toBeInstanceOf(RangeError);
  });

  it('keeps other models of a checkpoint, and the names of all', async () => {
    const bundle = {
      ...Object.fromEntries(Object.entries(flux).map(([name, tensor]) => [`model.diffusion_model.${name}`, tensor])),
      'first_stage_model.decoder.weight': weights('F32', [64, 64], 20),
    };
    const { report, bytes } = await written(safetensors(bundle), { to: 'comfy-nvfp4' });
    const { tensors } = parseSafetensors(bytes);
    expect(markerOf(tensors, 'model.diffusion_model.double_blocks.0.img_mlp.0')).toEqual({ format: 'nvfp4' });
    expect(report.tensors.at(-1)).toMatchObject({ kept: { kind: 'otherModel' } });
  });

  it('keeps weights whose row length ComfyUI reads', async () => {
    const keys = {
      'adaln_single.emb.timestep_embedder.linear_2.weight': weights('BF16', [32, 32], 1),
      'transformer_blocks.27.scale_shift_table': weights('BF16', [6, 32], 2),
      'caption_projection.linear_2.weight': weights('BF16', [32, 32], 3),
      'transformer_blocks.0.attn2.to_k.weight': weights('BF16', [64, 64], 4),
      'transformer_blocks.1.attn2.to_k.weight': weights('BF16', [64, 64], 5),
    };
    const halved = await written(safetensors(keys), { to: 'comfy-nvfp4' });
    const kept = halved.report.tensors.flatMap(({ name, kept }) =>
      kept === undefined ? [] : [`${name}: ${kept.kind}`],
    );
    expect(kept).toContain('transformer_blocks.0.attn2.to_k.weight: measured');
    expect(halved.report.totals.quantized).toBe(1);
    expect((await written(safetensors(keys), { to: 'comfy-mxfp8' })).report.totals.quantized).toBe(2);
  });

  it('converts text encoders of T5', async () => {
    const t5 = {
      'shared.weight': weights('F16', [64, 64], 1),
      'encoder.block.0.layer.0.SelfAttention.q.weight': weights('F16', [64, 64], 2),
      'encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight': weights('F16', [32, 64], 3),
      'encoder.block.23.layer.1.DenseReluDense.wi_1.weight': weights('F16', [128, 64], 4),
    };
    const reasons = async (to: ModelTarget) =>
      (await written(safetensors(t5), { to })).report.tensors.map((t) => t.kept?.kind);
    expect(await reasons('comfy-fp8')).toEqual(['sensitive', undefined, 'sensitive', undefined]);
    expect(await reasons('comfy-nvfp4')).toEqual(['sensitive', undefined, 'sensitive', 'measured']);
  });

  it('refuses models that are not known, by name', async () => {
    const refused = async (...names: string[]) => {
      const tensors = Object.fromEntries(names.map((name) => [name, weights('BF16', [32, 32])]));
      return String(await rejectionOf(quantizeModel(safetensors(tensors), { to: 'comfy-fp8' })));
    };
    expect(await refused('model.layers.0.self_attn.q_proj.weight')).toMatch(
      /not those of a model that is known here: hyvid, flux, /,
    );
    expect(await refused('text_model.encoder.layers.0.self_attn.q_proj.weight')).toMatch(
      /encoder of CLIP.*--to float16/,
    );
    expect(await refused('single_transformer_blocks.0.attn.norm_k.weight')).toMatch(/flux in the layout of diffusers/);
  });
});

describe('files of ComfyUI as sources', () => {
  for (const to of targets) {
    it(`${to}: become other codes and floats with requantize`, async () => {
      const { bytes } = await written(safetensors(flux), { to });
      const error = String(await rejectionOf(quantizeModel(bytes, { to: 'bfloat16' })));
      expect(error).toMatch(/it is quantized already \(ComfyUI\)/);
      const back = await written(bytes, { to: 'float16', requantize: true });
      const { tensors } = parseSafetensors(back.bytes);
      expect([...tensors.keys()].sort()).toEqual(Object.keys(flux).sort());
      for (const layer of coded) {
        const values = numbersOf(tensors.get(`${layer}.weight`)!);
        const restored = await restoredWeight(bytes, layer);
        for (let i = 0; i < restored.length; i++) {
          const value = restored[i]!;
          // Half a unit in the last of 11 bits, or of the smallest numbers.
          if (Math.abs(values[i]! - value) > Math.max(Math.abs(value) * 2 ** -11, 2 ** -25)) {
            expect.fail(`${layer}[${i}]: ${values[i]} for ${value}`);
          }
        }
      }
      expect(back.report.notes.map(({ kind }) => kind)).toContain('sourceQuantized');
      const again = await written(bytes, { to: 'comfy-int8', requantize: true });
      expect(markerOf(parseSafetensors(again.bytes).tensors, coded[0]!)).toEqual({ format: 'int8_tensorwise' });
    });
  }

  for (const to of targets) {
    it(`${to}: become GGUF with requantize, as their floats do`, async () => {
      const { bytes } = await written(safetensors(flux), { to });
      expect(String(await rejectionOf(quantizeModel(bytes, { to: 'Q8_0' })))).toMatch(/quantized already.*with scales/);
      const floats = { ...flux };
      for (const layer of to === 'comfy-fp8' || to === 'comfy-int8' ? [...coded, 'single_blocks.0.odd'] : coded) {
        const { shape } = flux[`${layer}.weight`]!;
        floats[`${layer}.weight`] = { dtype: 'F32', shape, data: await restoredWeight(bytes, layer) };
      }
      for (const type of ['Q8_0'] as const) {
        const from = await written(bytes, { to: type, requantize: true });
        const expected = await written(safetensors(floats), { to: type });
        for (const layer of coded) {
          const codes = await readQuantized(from.bytes, `${layer}.weight`);
          const others = await readQuantized(expected.bytes, `${layer}.weight`);
          expectBytes(bytesOf(codes.data), bytesOf(others.data), layer);
        }
        expect(from.report.notes.map(({ kind }) => kind)).toContain('sourceQuantized');
      }
    });
  }

  /** A layer of float8 with its scale, under other names. */
  const codes: TestTensor = {
    dtype: 'F8_E4M3',
    shape: [32, 64],
    data: Uint8Array.from({ length: 2048 }, (_, i) => i % 126),
  };
  const half: TestTensor = { dtype: 'F32', shape: [], data: Float32Array.of(0.5) };
  const marker = (text: string): TestTensor => {
    const data = new TextEncoder().encode(text);
    return { dtype: 'U8', shape: [data.length], data };
  };

  const good = { 'a.weight': codes, 'a.weight_scale': half, 'a.comfy_quant': marker('{"format":"float8_e4m3fn"}') };

  it('reads older float8, and layers that the metadata list', async () => {
    const old = safetensors({
      'a.weight': codes,
      'a.scale_weight': half,
      'a.scale_input': half,
      scaled_fp8: { dtype: 'F8_E4M3', shape: [2], data: new Uint8Array(2) },
    });
    const metadata = { _quantization_metadata: '{"format_version":"1.0","layers":{"a":{"format":"float8_e4m3fn"}}}' };
    const listed = safetensors({ 'a.weight': codes, 'a.weight_scale': half, 'a.input_scale': half }, metadata);
    const marked = safetensors(good);
    // Float8e4m3: four bits of exponent with a bias of 7, and three of fraction.
    const expected = Float64Array.from(codes.data as Uint8Array, (code) =>
      code < 8 ? (code * 2 ** -9) / 2 : ((8 + (code & 7)) * 2 ** ((code >> 3) - 10)) / 2,
    );
    for (const file of [old, listed, marked]) {
      const { bytes, report } = await written(file, { to: 'bfloat16', requantize: true });
      expect(report.tensors.map(({ name }) => name)).toEqual(['a.weight']);
      expectBytes(bytesOf(numbersOf(parseSafetensors(bytes).tensors.get('a.weight')!)), bytesOf(expected));
    }
  });

  it('refuses what it cannot read, or keeps it as it is', async () => {
    const bytes = (dtype: string, shape: readonly number[]): TestTensor => ({
      dtype,
      shape,
      data: new Uint8Array(shape.reduce((a, b) => a * b, dtype === 'F32' ? 4 : 1)),
    });
    const nvfp4 = {
      'a.weight': bytes('U8', [32, 32]),
      'a.weight_scale': bytes('F8_E4M3', [128, 4]),
      'a.weight_scale_2': half,
      'a.comfy_quant': marker('{"format":"nvfp4"}'),
    };
    const hostile: readonly Readonly<Record<string, TestTensor>>[] = [
      { ...good, 'a.comfy_quant': marker('{"format":"convrot_w4a4"}') },
      { ...good, 'a.comfy_quant': marker('{"format":7}') },
      { ...good, 'a.comfy_quant': marker('{"format":"__proto__"}') },
      { ...good, 'a.comfy_quant': marker('[]') },
      { ...good, 'a.comfy_quant': marker('{') },
      { ...good, 'a.comfy_quant': marker('null') },
      { ...good, 'a.comfy_quant': bytes('U8', [5000]) },
      { ...good, 'a.comfy_quant': marker('{"format":"nvfp4"}') },
      { ...good, 'a.comfy_quant': marker('{"format":"mxfp8"}') },
      { ...good, 'a.weight_scale': bytes('F32', [32]) },
      { ...good, 'a.weight_scale': bytes('F32', [0]) },
      { ...good, 'a.weight_scale': { dtype: 'F16', shape: [], data: new Uint8Array(2) } },
      { ...good, 'a.weight_scale': bytes('F32', []) },
      { ...good, 'a.weight': { ...codes, shape: [32, 8, 8] } },
      { ...good, 'a.pre_quant_scale': half },
      { ...good, 'a.bias': weights('BF16', [30]) },
      { ...nvfp4, 'a.weight_scale': bytes('F8_E4M3', [32, 4]) },
      { ...nvfp4, 'a.weight_scale_2': bytes('F32', [2]) },
      { ...nvfp4, 'a.weight': bytes('U8', [32, 30]) },
      { ...nvfp4, 'a.weight_scale': { ...bytes('F8_E4M3', [128, 4]), data: new Uint8Array(512).fill(0x7f) } },
      { 'a.weight': codes, 'a.comfy_quant': marker('{"format":"float8_e4m3fn"}') },
      { ...good, 'a.comfy_quant': marker('{"format":"float8_e4m3fn","convrot":true}') },
    ];
    for (const [i, tensors] of hostile.entries()) {
      const result = await quantizeModel(safetensors(tensors), { to: 'float16', requantize: true }).then(
        () => 'done',
        (error: unknown) => error,
      );
      expect([i, (result as { code?: string }).code]).toEqual([
        i,
        expect.stringMatching(/^(UNSUPPORTED_DTYPE|BAD_FILE)$/),
      ]);
    }
    // Layers without weights, and names that are not those of layers.
    for (const metadata of [
      '{"layers":[]}',
      '{"layers":{"a":7,"b":{"format":"nvfp4"}}}',
      '{',
      '{"layers":{"__proto__":{"format":"nvfp4"}}}',
    ]) {
      const file = safetensors({ 'c.weight': weights('BF16', [4, 4]) }, { _quantization_metadata: metadata });
      expect((await written(file, { to: 'float16', requantize: true })).report.totals.cast).toBe(1);
    }
  });
});
