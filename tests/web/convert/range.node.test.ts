import { load } from 'scalepoint';
import { type PlanOptions, quantizeModel } from 'scalepoint/model';
import { describe, expect, it } from 'vitest';
import { parseSafetensors } from '../support/compressed.js';
import { bytesOf, plain, safetensors, type TestTensor, weights } from '../support/models.js';
import { Random } from '../support/support.js';

/** Weights with a few far from the rest, a row of zeros, and one whose scale is a subnormal float16. */
function tensor(dtype: 'F32' | 'F16' | 'BF16', shape: readonly [number, number]): TestTensor {
  const made = weights(dtype, shape, 3);
  const data = made.data as Float32Array | Uint16Array;
  const random = new Random(9);
  for (let i = 0; i < 40; i++) {
    const at = random.below(data.length);
    if (dtype === 'F32') data[at] = 6 * (data[at] as number);
    // Two in the exponent: four times as large, well within both types.
    else data[at] = (data[at] as number) + (2 << (dtype === 'F16' ? 10 : 7));
  }
  data.fill(0, shape[1], 2 * shape[1]);
  if (dtype === 'F16') for (let i = 2 * shape[1]; i < 3 * shape[1]; i++) data[i] = random.below(40) + (i % 2) * 0x8000;
  return made;
}

const forms: readonly Omit<PlanOptions, 'range'>[] = [
  { to: 'int8', ...plain },
  { to: 'int8', ...plain, scheme: 'asymmetric' },
  { to: 'int8', granularity: { kind: 'per-group', groupSize: 32 } },
  { to: 'int4' },
  { to: 'int4', scheme: 'asymmetric', granularity: { kind: 'per-group', groupSize: 32 } },
  { to: 'int4', granularity: { kind: 'per-channel' } },
];
const shape = [24, 256] as const;

describe('the range of a model', () => {
  it('mse restores weights better than min-max does, with scales as stored', async () => {
    for (const dtype of ['F32', 'F16', 'BF16'] as const) {
      const file = safetensors({ 'x.weight': tensor(dtype, shape) });
      for (const form of forms) {
        const plain = (await quantizeModel(file, form)).report.tensors[0]?.error;
        const found = (await quantizeModel(file, { ...form, range: 'mse' })).report.tensors[0]?.error;
        const what = `${dtype} ${JSON.stringify(form)}`;
        expect(found?.mse, what).toBeLessThan(plain?.mse as number);
      }
    }
  });

  it('gives what arrays get for float32', async () => {
    const sp = await load();
    const weight = tensor('F32', shape);
    const x = weight.data as Float32Array;
    const file = safetensors({ 'x.weight': weight });
    for (const range of ['mse', 'entropy', { percentile: 98 }] as const) {
      for (const scheme of ['symmetric', 'asymmetric'] as const) {
        const { bytes } = await quantizeModel(file, { to: 'int8', ...plain, scheme, range });
        const { tensors } = parseSafetensors(await bytes());
        const q = sp.quantize(x, {
          shape,
          granularity: { kind: 'per-channel', axis: 0 },
          symmetricRange: 'full',
          rounding: 'fused',
          scheme,
          range,
        });
        // The row of zeros has the scale of compressed-tensors.
        q.scale[1] = 2 ** -23;
        if (scheme === 'asymmetric') {
          const rest = (b: Uint8Array | undefined) => [...(b ?? [])].filter((_, i) => Math.floor(i / 256) !== 1);
          expect(rest(tensors.get('x.weight')?.bytes)).toEqual(rest(bytesOf(q.data as Int8Array)));
        } else expect(tensors.get('x.weight')?.bytes).toEqual(bytesOf(q.data as Int8Array));
        expect(tensors.get('x.weight_scale')?.bytes).toEqual(bytesOf(q.scale));
      }
    }
    sp.dispose();
  });

  it('of long rows in packed groups is that of arrays, however rows are cut', async () => {
    const sp = await load();
    // Eight rows share words of zero points and are cut in other places than their codes, which come one row at a time.
    const [rows, columns, groupSize] = [8, 163_808, 32];
    const x = new Random(13).bell(rows * columns).map((v) => v + 1);
    const weight: TestTensor = { dtype: 'F32', shape: [rows, columns], data: x };
    const granularity = { kind: 'per-group', groupSize } as const;
    const { bytes } = await quantizeModel(safetensors({ 'x.weight': weight }), {
      to: 'int4',
      scheme: 'asymmetric',
      granularity,
      range: 'mse',
    });
    const { tensors } = parseSafetensors(await bytes());
    const part = (name: string) => new Uint8Array(tensors.get(`x.weight_${name}`)?.bytes ?? []).buffer;
    const scale = new Float32Array(part('scale'));
    const words = new Int32Array(part('zero_point'));
    const zeroPoint = Int32Array.from(scale, (_, run) => {
      const perRow = columns / groupSize;
      return (((words[run % perRow] as number) >>> (4 * Math.floor(run / perRow))) & 15) - 8;
    });
    const q = sp.quantize(x, {
      dtype: 'int4',
      scheme: 'asymmetric',
      shape: [rows, columns],
      granularity,
      rounding: 'fused',
      range: { scale, zeroPoint },
    });
    const packed = new Uint8Array(part('packed'));
    expect(q.data.every((code, i) => code === (((packed[i >> 1] as number) >> (4 * (i & 1))) & 15) - 8)).toBe(true);
    sp.dispose();
  });

  it('does not depend on workers, nor on the order of writing', async () => {
    const file = safetensors({ 'x.weight': tensor('BF16', [512, 4096]) });
    for (const range of ['mse', { percentile: 99 }] as const) {
      const options = { to: 'int4', scheme: 'asymmetric', range } as const;
      const alone = await (await quantizeModel(file, { ...options, workers: 0 })).bytes();
      const together = await (await quantizeModel(file, { ...options, workers: 2 })).bytes();
      expect(Buffer.compare(alone, together)).toBe(0);
      const chunks: Uint8Array[] = [];
      const output = new WritableStream<Uint8Array>({ write: (chunk) => void chunks.push(chunk.slice()) });
      await quantizeModel(file, { ...options, output });
      expect(Buffer.compare(Buffer.concat(chunks), alone)).toBe(0);
    }
  });

  it('of rows longer than a tile is that of min-max', async () => {
    const file = safetensors({ 'x.weight': weights('F16', [2, 2 ** 20 + 8], 1) });
    const whole = await quantizeModel(file, { to: 'int8', ...plain });
    const found = await quantizeModel(file, { to: 'int8', ...plain, range: 'mse' });
    expect(Buffer.compare(await whole.bytes(), await found.bytes())).toBe(0);
    expect(found.report.notes).toEqual([
      ...whole.report.notes,
      {
        kind: 'rangeNotSearched',
        tensors: ['x.weight'],
        text: 'range: the channels of a tensor are too long to search; their range is min-max',
        parts: [
          { kind: 'option', option: 'range' },
          ': the channels of a tensor are too long to search; their range is min-max',
        ],
      },
    ]);
  });

  it('is named in the configuration', async () => {
    const file = safetensors({ 'x.weight': weights('F32', [16, 64]) });
    for (const [range, observer] of [
      ['mse', 'mse'],
      ['entropy', 'minmax'],
      ['min-max', 'minmax'],
    ] as const) {
      const { config } = await quantizeModel(file, { to: 'int8', ...plain, range });
      expect(config).toMatchObject({
        quantization_config: { config_groups: { group_0: { weights: { observer } } } },
      });
    }
  });

  it('is refused where it means nothing', async () => {
    const file = safetensors({ 'x.weight': weights('F32', [16, 64]) });
    const refused = (options: object, option: string, expected: object) =>
      expect(quantizeModel(file, options as PlanOptions)).rejects.toMatchObject({ problem: { option, expected } });
    const values = ['int8', 'int4', 'comfy-int8', 'comfy-nvfp4', 'nvfp4', 'mxfp4', 'mxfp8'];
    values.push(...[4, 2, 3, 5, 6, 8].map((bits) => `mlx-${bits}bit`), 'mlx-mxfp4', 'mlx-nvfp4', 'mlx-mxfp8');
    values.push('gptq', 'gptq-8bit', 'gptq-3bit', 'gptq-2bit', 'awq');
    const integers = { kind: 'onlyWith', option: 'to', values };
    await refused({ to: 'float16', range: 'mse' }, 'range', integers);
    await refused({ to: 'int8', ...plain, range: 'best' }, 'range', { kind: 'anyOf' });
    await refused({ to: 'int8', ...plain, range: { min: 0, max: 1 } }, 'range.min', { kind: 'knownOption' });
    const percent = { kind: 'number', above: 50, max: 100 };
    await refused({ to: 'int8', ...plain, range: { percentile: 50 } }, 'range.percentile', percent);
  });
});
