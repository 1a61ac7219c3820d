// NVFP4, MXFP4 and MXFP8 in compressed-tensors' layout, and small floats of other tools. tests/cpp/codecs_microscales_test.cpp holds codes
// and restored floats to the rules of the layout.
import { describe, expect, it } from 'vitest';
import {
  compareModels,
  planModel,
  type QuantizeModelOptions,
  quantizeModel,
  readFloats,
  verifyModel,
} from '../../../../web/src/model.js';
import { parseSafetensors } from '../../support/compressed.js';
import { matrixFile } from '../../support/importance.js';
import { safetensors, type TestTensor, weights } from '../../support/models.js';
import { Random } from '../../support/support.js';

const f = Math.fround;
const e2m1 = [0, 0.5, 1, 1.5, 2, 3, 4, 6];
/** E4M3 without a sign, by code. */
const e4m3 = Array.from({ length: 127 }, (_, code) => {
  const [exponent, fraction] = [code >> 3, code & 7];
  return exponent === 0 ? fraction * 2 ** -9 : (8 + fraction) * 2 ** (exponent - 10);
});
const unpacked = (bytes: Uint8Array) => [...bytes].flatMap((byte) => [byte & 15, byte >> 4]);

/** Types and shapes of the parts of a weight of 32 rows and 128 columns. */
const layouts: Readonly<Record<string, Readonly<Record<string, [dtype: string, shape: number[]]>>>> = {
  nvfp4: { _packed: ['U8', [32, 64]], _scale: ['F8_E4M3', [32, 8]], _global_scale: ['F32', [1]] },
  mxfp4: { _packed: ['U8', [32, 64]], _scale: ['U8', [32, 4]] },
  mxfp8: { '': ['F8_E4M3', [32, 128]], _scale: ['U8', [32, 4]] },
};

const blocks = { nvfp4: 16, mxfp4: 32, mxfp8: 32 } as const;
type Kind = keyof typeof blocks;

// -------------------------------------------------------------------------------------------------------------------------- files

/** Ties, zeros, a block of zeros, and ordinary values. */
function hard(rows: number, columns: number, seed: number): TestTensor {
  const tensor = weights('F32', [rows, columns], seed);
  const x = Float32Array.from(tensor.data as Float32Array);
  for (let i = 0; i < 32; i++) x[i] = 0;
  for (let i = 32; i < 64; i++) x[i] = ((i % 25) - 12) / 64;
  x[70] = -0;
  return { dtype: 'F32', shape: [rows, columns], data: x };
}

const floatsOf = ({ data }: TestTensor) => data as Float32Array;
const names = {
  q: 'model.layers.0.self_attn.q_proj.weight',
  k: 'model.layers.0.self_attn.k_proj.weight',
  up: 'model.layers.0.mlp.up_proj.weight',
  down: 'model.layers.0.mlp.down_proj.weight',
};
const model = {
  [names.q]: hard(32, 128, 1),
  [names.k]: { ...hard(16, 128, 2), data: floatsOf(hard(16, 128, 2)).map((x) => 5 * x) },
  [names.down]: hard(128, 64, 3),
  'model.layers.0.mlp.odd.weight': weights('F32', [8, 24], 4),
  'model.norm.weight': weights('F32', [128], 5),
  'model.embed_tokens.weight': weights('F32', [40, 128], 6),
  'lm_head.weight': weights('F32', [40, 128], 7),
};
const file = safetensors(model);

describe.each(Object.keys(blocks) as Kind[])('%s', (kind) => {
  it('keeps what has no blocks, and is the same from workers', async () => {
    const result = await quantizeModel(file, { to: kind, workers: 0 });
    const bytes = await result.bytes();
    const kept = Object.fromEntries(result.report.tensors.map(({ name, kept }) => [name, kept?.kind]));
    expect(kept).toMatchObject({
      'model.layers.0.mlp.odd.weight': 'notDivisible',
      'model.norm.weight': 'norm',
      'model.embed_tokens.weight': 'embedding',
      'lm_head.weight': 'lmHead',
    });
    const { tensors } = parseSafetensors(bytes);
    for (const [part, [dtype, shape]] of Object.entries(layouts[kind]!))
      expect(tensors.get(`${names.q}${part}`), part).toMatchObject({ dtype, shape });
    expect((await verifyModel(bytes, { config: result.config })).problems).toEqual([]);
    // Workers give the same bytes.
    const other = await quantizeModel(file, { to: kind, workers: 2 });
    expect(await other.bytes()).toEqual(bytes);
  });

  it('is planned with the sizes and the configuration of the result', async () => {
    const plan = await planModel(file, { to: kind });
    const { bytes, config } = await quantizeModel(file, { to: kind, workers: 0 });
    expect(plan.files.map(({ bytes: size }) => size)).toEqual([(await bytes()).length]);
    expect(config?.quantization_config).toEqual(plan.quantizationConfig);
    expect(plan.quantizationConfig).toMatchObject({
      format: kind === 'mxfp8' ? 'mxfp8-quantized' : `${kind}-pack-quantized`,
      ignore: ['model.layers.0.mlp.odd', 'model.embed_tokens', 'lm_head'],
      config_groups: {
        group_0: {
          targets: ['Linear'],
          weights: {
            num_bits: kind === 'mxfp8' ? 8 : 4,
            type: 'float',
            symmetric: true,
            strategy: kind === 'nvfp4' ? 'tensor_group' : 'group',
            group_size: blocks[kind],
            scale_dtype: kind === 'nvfp4' ? 'torch.float8_e4m3fn' : 'torch.uint8',
          },
        },
      },
    });
  });

  it('loses less with searched scales', async () => {
    const random = new Random(5);
    const uniform = () => (random.bits() + 0.5) / 2 ** 32;
    const data = Float32Array.from(
      { length: 64 * 1024 },
      () => Math.sqrt(-2 * Math.log(uniform())) * Math.cos(2 * Math.PI * uniform()),
    );
    const gaussian = safetensors({ 'a.weight': { dtype: 'F32', shape: [64, 1024], data } });
    const error = async (range: 'min-max' | 'mse') => {
      const { report } = await quantizeModel(gaussian, { to: kind, range, workers: 0 });
      return report.tensors[0]?.error?.mse ?? Number.NaN;
    };
    const [plain, searched] = [await error('min-max'), await error('mse')];
    // Measured: 0.732 for nvfp4, 0.996 for mxfp4. Whole powers of two leave mxfp8 hardly anything to search for.
    expect(searched).toBeLessThanOrEqual(plain * { nvfp4: 0.74, mxfp4: 0.997, mxfp8: 1 }[kind]);
  });

  it('takes the importance of columns', async () => {
    const name = 'a.weight';
    const matrix = hard(32, 128, 9);
    const sums = Float32Array.from({ length: 128 }, (_, i) => (i % 16 === 3 ? 100 : 0.01));
    const importance = matrixFile([{ name, sums, counts: [1] }]);
    const source = safetensors({ [name]: matrix });
    const weighed = async (options: Partial<QuantizeModelOptions>) => {
      const { bytes } = await quantizeModel(source, { to: kind, ...options, workers: 0 });
      const { data } = await readFloats(await bytes(), name, { workers: 0 });
      return floatsOf(matrix).reduce((sum, x, i) => sum + sums[i % 128]! * (x - data[i]!) ** 2, 0);
    };
    const [plain, searched] = [await weighed({ range: 'mse' }), await weighed({ importance })];
    expect(searched).toBeLessThanOrEqual(plain * (kind === 'nvfp4' ? 0.7 : 1));
  });

  it('is quantized again from its values', async () => {
    const made = await (await quantizeModel(file, { to: kind, workers: 0 })).bytes();
    await expect(planModel(made, { to: 'int8' })).rejects.toMatchObject({ code: 'UNSUPPORTED_DTYPE' });
    for (const again of [{ to: 'bfloat16' }, { to: 'int8' }, { to: 'nvfp4' }] as QuantizeModelOptions[]) {
      const { report, bytes } = await quantizeModel(made, { ...again, requantize: true, workers: 0 });
      expect(report.tensors.map(({ name }) => name).sort()).toEqual(Object.keys(model).sort());
      expect(report.notes.find(({ kind: its }) => its === 'sourceQuantized')?.text).toContain('compressed-tensors');
      if (again.to !== kind) continue;
      // The values are among those of the form: nothing more is lost.
      const { total } = await compareModels(made, await bytes(), { workers: 0 });
      expect(total.sqnrDb).toBeGreaterThan(40);
    }
  });
});

it('refuses ranges that blocks cannot have', async () => {
  await expect(planModel(file, { to: 'nvfp4', range: 'entropy' })).rejects.toMatchObject({ name: 'RangeError' });
});

// ------------------------------------------------------------------------------------------------------------------- other tools

const u8 = (dtype: string, shape: readonly number[], data: ArrayLike<number>): TestTensor => {
  return { dtype, shape, data: Uint8Array.from(data) };
};
const f32 = (shape: readonly number[], ...values: number[]): TestTensor => {
  return { dtype: 'F32', shape, data: Float32Array.from(values) };
};
const some = (n: number, most: number, step = 37) => Array.from({ length: n }, (_, i) => (i * step) % most);
const signed = (values: readonly number[], code: number, sign: number) => {
  return ((code & sign) === 0 ? 1 : -1) * values[code & (sign - 1)]!;
};

describe('small floats of other tools', () => {
  it('reads NVFP4 of ModelOpt, whose second scale multiplies', async () => {
    const packed = some(8 * 16, 256);
    const scales = some(16, 120, 7);
    const made = safetensors({
      'a.weight': u8('U8', [8, 16], packed),
      'a.weight_scale': u8('F8_E4M3', [8, 2], scales),
      'a.weight_scale_2': f32([], 0.037),
      'a.input_scale': f32([], 2),
    });
    const { data, shape } = await readFloats(made, 'a.weight', { workers: 0 });
    const codes = unpacked(Uint8Array.from(packed));
    const want = codes.map((code, i) => f(signed(e2m1, code, 8) * f(e4m3[scales[Math.floor(i / 16)]!]! * f(0.037))));
    expect(shape).toEqual([8, 32]);
    expect([...data]).toEqual(want);
    const { report } = await quantizeModel(made, { to: 'bfloat16', requantize: true, workers: 0 });
    expect(report.tensors.map(({ name }) => name)).toEqual(['a.weight']);
    expect(report.notes[0]?.text).toContain('ModelOpt, NVFP4');
  });

  it.each(['I8', 'F8_E4M3'])('leaves out scales of the inputs of %s with a scale for each row', async (dtype) => {
    const made = safetensors({
      'a.weight': u8(dtype, [8, 16], some(128, 120)),
      'a.weight_scale': f32([8, 1], ...some(8, 10).map((x) => x + 1)),
      'a.input_scale': f32([1], 2),
    });
    const { report } = await quantizeModel(made, { to: 'bfloat16', requantize: true, workers: 0 });
    expect(report.tensors.map(({ name }) => name)).toEqual(['a.weight']);
  });

  it.each([
    ['blocks of 128, the last ones cut off', '_scale_inv', [200, 300], [2, 3]],
    ['one scale', '_scale', [20, 30], []],
    ['one scale in a list', '_scale', [20, 30], [1]],
  ] as const)('reads float8 with %s', async (_, end, shape, scaleShape) => {
    const [rows, columns] = shape;
    const codes = some(rows * columns, 120).map((code, i) => code | (i % 3 === 0 ? 128 : 0));
    const scales = some(6, 100, 13).map((x) => f(x / 64 + 0.1));
    const count = scaleShape.reduce<number>((product, n) => product * n, 1);
    const made = safetensors({
      'a.weight': u8('F8_E4M3', shape, codes),
      [`a.weight${end}`]: f32(scaleShape, ...scales.slice(0, count)),
    });
    const { data } = await readFloats(made, 'a.weight', { workers: 0 });
    const scaleAt = (i: number) => {
      if (count === 1) return scales[0]!;
      return scales[Math.floor(Math.floor(i / columns) / 128) * 3 + Math.floor((i % columns) / 128)]!;
    };
    expect([...data]).toEqual(codes.map((code, i) => f(signed(e4m3, code, 128) * scaleAt(i))));
    // Tiles of other sizes give the same: the model becomes integers as its floats do.
    const floats = safetensors({ 'a.weight': { dtype: 'F32', shape, data } });
    const again = await quantizeModel(made, { to: 'bfloat16', requantize: true, workers: 0 });
    expect((await compareModels(floats, await again.bytes(), { workers: 0 })).total.sqnrDb).toBeGreaterThan(45);
    expect(again.report.tensors.map(({ name }) => name)).toEqual(['a.weight']);
  });

  it('takes scales of blocks that are as many as rows for those of blocks', async () => {
    const [rows, columns] = [256, 128 * 128];
    const made = safetensors({
      'a.weight': u8('F8_E4M3', [rows, columns], new Uint8Array(rows * columns).fill(0x38)),
      'a.weight_scale_inv': f32([2, 128], ...Array.from({ length: 256 }, (_, i) => i + 1)),
    });
    const { data } = await readFloats(made, 'a.weight', { workers: 0 });
    expect([data[0], data[128], data[127 * 128], data[128 * columns]]).toEqual([1, 2, 128, 129]);
  });
});

// ------------------------------------------------------------------------------------------------------------------ hostile files

const nvfp4 = {
  'a.weight_packed': u8('U8', [16, 16], some(256, 256)),
  'a.weight_scale': u8('F8_E4M3', [16, 2], some(32, 100)),
  'a.weight_global_scale': f32([1], 3),
};
const block = {
  'a.weight': u8('F8_E4M3', [130, 200], some(130 * 200, 100)),
  'a.weight_scale_inv': f32([2, 2], 1, 2, 3, 4),
};
const modelopt = {
  'a.weight': u8('U8', [16, 16], some(256, 256)),
  'a.weight_scale': u8('F8_E4M3', [16, 2], some(32, 100)),
  'a.weight_scale_2': f32([], 3),
};

/** Files with one thing wrong: refused by a typed error, never read as something else. */
const hostile: Record<string, Record<string, TestTensor>> = {
  'scales of another width': { ...nvfp4, 'a.weight_scale': u8('F8_E4M3', [16, 4], some(64, 100)) },
  'scales of fewer rows': { ...nvfp4, 'a.weight_scale': u8('F8_E4M3', [8, 2], some(16, 100)) },
  'scales of another type': { ...nvfp4, 'a.weight_scale': u8('F8_E5M2', [16, 2], some(32, 100)) },
  'scales as floats': { ...nvfp4, 'a.weight_scale': weights('F32', [16, 2]) },
  'two global scales': { ...nvfp4, 'a.weight_global_scale': f32([2], 1, 2) },
  'a global scale of 16 bits': { ...nvfp4, 'a.weight_global_scale': weights('F16', [1]) },
  'an empty global scale': { ...nvfp4, 'a.weight_global_scale': f32([0]) },
  'codes of three dimensions': { ...nvfp4, 'a.weight_packed': u8('U8', [4, 4, 16], some(256, 256)) },
  'codes of one dimension': { ...nvfp4, 'a.weight_packed': u8('U8', [256], some(256, 256)) },
  'codes of another type': { ...nvfp4, 'a.weight_packed': { ...raw('I16', [16, 8]), data: new Uint8Array(256) } },
  'a global scale of 0': { ...nvfp4, 'a.weight_global_scale': f32([1], 0) },
  'a negative global scale': { ...nvfp4, 'a.weight_global_scale': f32([1], -3) },
  'a global scale that is NaN': { ...nvfp4, 'a.weight_global_scale': f32([1], Number.NaN) },
  'an infinite global scale': { ...nvfp4, 'a.weight_global_scale': f32([1], Number.POSITIVE_INFINITY) },
  'a negative scale': { ...nvfp4, 'a.weight_scale': u8('F8_E4M3', [16, 2], [200, ...some(31, 100)]) },
  'a scale that is NaN': { ...nvfp4, 'a.weight_scale': u8('F8_E4M3', [16, 2], [127, ...some(31, 100)]) },
  'an exponent that is NaN': {
    'a.weight_packed': u8('U8', [16, 16], some(256, 256)),
    'a.weight_scale': u8('U8', [16, 1], [255, ...some(15, 200)]),
  },
  'blocks that are too few': { ...block, 'a.weight_scale_inv': f32([2, 1], 1, 2) },
  'blocks of another order': { ...block, 'a.weight_scale_inv': f32([4], 1, 2, 3, 4) },
  'a scale of a block that is NaN': { ...block, 'a.weight_scale_inv': f32([2, 2], 1, Number.NaN, 3, 4) },
  'a negative scale of a block': { ...block, 'a.weight_scale_inv': f32([2, 2], 1, 2, 3, -4) },
  'blocks of more dimensions': { ...block, 'a.weight_scale_inv': f32([2, 2, 1], 1, 2, 3, 4) },
  'scales of integers': { ...block, 'a.weight_scale_inv': raw('I32', [2, 2]) },
  'a second scale that is NaN': { ...modelopt, 'a.weight_scale_2': f32([], Number.NaN) },
  'a second scale of three': { ...modelopt, 'a.weight_scale_2': f32([3], 1, 2, 3) },
  'no second scale': { 'a.weight': modelopt['a.weight'], 'a.weight_scale': modelopt['a.weight_scale'] },
};

function raw(dtype: string, shape: readonly number[]): TestTensor {
  return { dtype, shape, data: new Uint8Array(4 * shape.reduce((product, n) => product * n, 1)) };
}

it.each(Object.entries(hostile))('refuses a file with %s', async (_, tensors) => {
  const made = quantizeModel(safetensors(tensors), { to: 'bfloat16', requantize: true, workers: 0 });
  const error = await made.then(
    ({ report }) => JSON.stringify(report.tensors),
    (thrown) => thrown,
  );
  expect(error).toMatchObject({
    name: 'ScalepointError',
    code: expect.stringMatching(/^(UNSUPPORTED_DTYPE|BAD_FILE)$/),
  });
});
