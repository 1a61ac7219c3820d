// Models in float16, converted further: their products and tables take codes with scales of float16.
import { inspectModel, type ModelTarget, planModel, quantizeModel } from 'scalepoint/model';
import { beforeAll, describe, expect, it } from 'vitest';
import * as onnx from './encoder.js';
import { engines } from './node-engines.js';
import { expectLike, make } from './ort.js';
import { encoderModel } from './transformer.js';

const models: readonly (readonly [name: string, file: Uint8Array<ArrayBuffer>])[] = [
  ['encoder', encoderModel()],
  ['MatMul', onnx.product('MatMul', [96, 64], [3, 96], [3, 64])()],
  ['Gemm', onnx.product('Gemm', [64, 96], [3, 96], [3, 64])({ transB: 1 }, { opset: 13 })],
  ['Conv', onnx.product('Conv', [16, 8, 3, 3], [1, 8, 9, 9], [1, 16, 7, 7])({}, { opset: 11 })],
  ['Gather', onnx.gather([70, 64], [3, 64], ['i', [3], 7])()],
];

const limits: readonly (readonly [to: ModelTarget, least: number])[] = [
  ['int8-weights', 0.999],
  ['uint8-weights', 0.999],
  ['int4-weights', 0.98],
  ['q4', 0.98],
  ['q4f16', 0.98],
  ['q8-blocks', 0.999],
];

describe.each(models)('%s in float16', (name, file) => {
  let half: Uint8Array<ArrayBuffer>;
  beforeAll(async () => {
    half = await (await quantizeModel(file, { to: 'fp16', workers: 0 })).bytes();
  });

  it.each(limits)('becomes %s', async (to, least) => {
    const { made: result, report } = await make(half, { to });
    if (name === 'Conv' && !['int8-weights', 'uint8-weights', 'int4-weights', 'q8-blocks'].includes(to)) {
      expect(report.totals.quantized).toBe(0);
      return;
    }
    expect(report.totals.quantized).toBeGreaterThan(0);
    expect(result.length).toBeLessThan(half.length);
    expect((await inspectModel(result)).tensors.some(({ dtype }) => dtype === 'F32')).toBe(false);
    await expectLike(file, result, least, { engines });
  });
});

it.each(['q8', 'int8', 'uint8', 'bnb4'] as const)('%s says that it is for float32', async (to) => {
  const half = await (await quantizeModel(models[1]?.[1] as Uint8Array<ArrayBuffer>, { to: 'fp16' })).bytes();
  const { totals, notes } = await planModel(half, { to });
  expect(totals.quantized).toBe(0);
  expect(notes).toMatchObject([
    { kind: 'littleConverted' },
    { kind: 'nothingConverted', why: 'dtype', others: ['q4', 'int8-weights'] },
  ]);
});
