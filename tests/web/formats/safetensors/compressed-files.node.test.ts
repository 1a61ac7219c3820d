// Whole files in compressed-tensors' layout, read by an independent reader (compressed.ts) and by @huggingface/hub. The digests hold the
// bytes, and tests/cpp/codecs_compressed_tensors_test.cpp has the arithmetic of all forms and types.
import { parseSafetensorsMetadata } from '@huggingface/hub';
import { describe, expect, it } from 'vitest';
import { type QuantizeModelOptions, quantizeModel } from '../../../../web/src/model.js';
import { numbersOf, parseSafetensors, readCompressed } from '../../support/compressed.js';
import { bytesOf, expectNear, safetensors, type TestTensor, weights } from '../../support/models.js';

type Options = Omit<QuantizeModelOptions, 'to'> & { to: 'int8' | 'int4' | 'float8e4m3fn' };

/** A model with what is converted and what is kept. */
function model(dtype: 'F32' | 'F16' | 'BF16', rows: number, columns: number) {
  const zeros = { dtype, shape: [2, columns], data: new (dtype === 'F32' ? Float32Array : Uint16Array)(2 * columns) };
  return {
    'layers.0.up.weight': weights(dtype, [rows, columns], 3),
    'layers.0.up.bias': weights(dtype, [rows], 4),
    'layers.0.zero.weight': zeros,
    'layers.1.down.weight': weights(dtype, [3, columns], 5),
    'lm_head.weight': weights(dtype, [5, columns], 6),
    'embed_tokens.weight': weights(dtype, [7, columns], 7),
  } satisfies Record<string, TestTensor>;
}

const converted = ['layers.0.up.weight', 'layers.0.zero.weight', 'layers.1.down.weight'];

const perChannel = { kind: 'per-channel' } as const;
const perGroup = (groupSize: number) => ({ kind: 'per-group', groupSize }) as const;
const cases: [what: string, options: Options, rows: number, columns: number][] = [
  ['int8', { to: 'int8' }, 9, 256],
  ['int8 in smaller groups', { to: 'int8' }, 9, 192],
  ['int8 of odd rows', { to: 'int8' }, 9, 100],
  ['plain int8', { to: 'int8', packed: false }, 9, 100],
  ['plain int8, asymmetric', { to: 'int8', packed: false, scheme: 'asymmetric' }, 9, 33],
  ['int8 with int8 activations', { to: 'int8', activations: 'int8-dynamic' }, 4, 64],
  ['packed int8 per channel', { to: 'int8', packed: true }, 6, 45],
  ['packed int8 per channel, asymmetric', { to: 'int8', packed: true, scheme: 'asymmetric' }, 6, 45],
  ['int8 in groups of 32', { to: 'int8', granularity: perGroup(32) }, 11, 128],
  ['int8 in groups of 64, asymmetric', { to: 'int8', granularity: perGroup(64), scheme: 'asymmetric' }, 7, 128],
  ['int4', { to: 'int4' }, 17, 256],
  ['int4, asymmetric', { to: 'int4', scheme: 'asymmetric' }, 17, 256],
  ['int4 in groups of 32', { to: 'int4', granularity: perGroup(32) }, 8, 96],
  ['int4 in groups of 64, asymmetric', { to: 'int4', granularity: perGroup(64), scheme: 'asymmetric' }, 9, 192],
  ['int4 in groups of 40', { to: 'int4', granularity: perGroup(40) }, 3, 120],
  ['int4 per channel', { to: 'int4', granularity: perChannel }, 10, 61],
  ['float8e4m3fn', { to: 'float8e4m3fn' }, 9, 100],
  ['float8e4m3fn in long rows', { to: 'float8e4m3fn' }, 2, 1031],
  ['int4 per channel, asymmetric', { to: 'int4', granularity: perChannel, scheme: 'asymmetric' }, 10, 61],
];

describe('weights', () => {
  it.each(cases.map((one, i) => [...one, (['F32', 'F16', 'BF16'] as const)[i % 3]!] as const))(
    'become %s',
    async (...one) => {
      const [_what, options, rows, columns, dtype] = one;
      const tensors: Record<string, TestTensor> = model(dtype, rows, columns);
      const file = safetensors(tensors, { format: 'pt' });
      const result = await quantizeModel(file, { ...options, workers: 0 });
      const config = result.config?.quantization_config;
      const names = Object.keys(tensors).filter((name) => tensors[name]!.shape.length > 1);
      const read = readCompressed(await result.bytes(), config, names);
      expect(read.metadata).toEqual({ format: 'pt' });

      const before = new Map(
        Object.entries(tensors).map(([name, { dtype: type, shape, data }]) => {
          return [name, { dtype: type, shape: [...shape], bytes: bytesOf(data) }];
        }),
      );
      expect([...read.weights.keys()].sort()).toEqual(converted.toSorted());
      for (const [name, weight] of read.weights) {
        const values = numbersOf(before.get(name)!);
        const { groupSize } =
          options.granularity?.kind === 'per-group' ? options.granularity : { groupSize: undefined };
        const isGrouped = options.granularity === undefined && options.packed !== false && !options.activations;
        const sizes = options.to === 'int4' ? [128] : options.to === 'int8' ? [128, 64, 32] : [];
        const group = groupSize ?? (isGrouped ? sizes.find((size) => columns % size === 0) : undefined);
        expect(weight).toMatchObject({
          type: options.to === 'float8e4m3fn' ? 'float' : 'int',
          bits: options.to === 'int4' ? 4 : 8,
          symmetric: options.scheme !== 'asymmetric',
          groupSize: group,
          scaleDtype: dtype,
        });
        expectNear(weight, values, name);
        // The report is about the values that a reader restores.
        let noise = 0;
        let signal = 0;
        for (const [i, v] of values.entries()) {
          noise += (v - weight.weights[i]!) ** 2;
          signal += v ** 2;
        }
        const { error } = result.report.tensors.find((tensor) => tensor.name === name)!;
        // float32 products and differences, and sums of 512 in float32: far less than 1e-3 dB.
        if (noise > 0) expect(error?.sqnrDb).toBeCloseTo(10 * Math.log10(signal / noise), 3);
      }
      for (const [name, tensor] of read.others) {
        expect(tensor).toEqual(before.get(name));
      }
      expect(read.others.has('lm_head.weight')).toBe(true);
    },
  );
});

it('makes files whose header @huggingface/hub reads', async () => {
  for (const [, options, rows, columns] of cases) {
    const file = safetensors(model('BF16', rows, columns));
    const result = await quantizeModel(file, { ...options, workers: 0 });
    const bytes = await result.bytes();
    const serve = async (_url: unknown, init?: RequestInit) => {
      const range = /^bytes=(\d+)-(\d+)$/.exec(new Headers(init?.headers).get('range') ?? '');
      if (range === null)
        return new Response(bytes, { headers: { etag: '"1"', 'content-length': String(bytes.length) } });
      const [begin, end] = [Number(range[1]), Math.min(Number(range[2]) + 1, bytes.length)];
      return new Response(bytes.subarray(begin, end), {
        status: 206,
        headers: { etag: '"1"', 'content-range': `bytes ${begin}-${end - 1}/${bytes.length}` },
      });
    };
    const metadata = await parseSafetensorsMetadata({
      repo: 'test/model',
      path: 'model.safetensors',
      fetch: serve as typeof fetch,
    });
    expect(metadata.sharded).toBe(false);
    if (metadata.sharded) return;
    const { tensors } = parseSafetensors(bytes);
    for (const [name, { dtype, shape }] of tensors) expect(metadata.header[name]).toMatchObject({ dtype, shape });
    expect(Object.keys(metadata.header).filter((name) => name !== '__metadata__')).toHaveLength(tensors.size);
  }
});
