// Models in float16, converted further: their products and tables take codes with scales of float16.
import { existsSync } from 'node:fs';
import { createRequire } from 'node:module';
import { fileURLToPath } from 'node:url';
import * as web from 'onnxruntime-web';
import { inspectModel, type ModelTarget, planModel, quantizeModel } from 'scalepoint/model';
import { beforeAll, describe, expect, it } from 'vitest';
import * as onnx from './encoder.js';
import type { Engine } from './engines.js';
import { cosine, feedsFor } from './ort.js';
import { encoderModel } from './transformer.js';

const packages = fileURLToPath(new URL('../../../transformers/node_modules/', import.meta.url));
// onnxruntime-node is not installed with everything else.
const engines = [
  web as unknown as Engine,
  ...(existsSync(`${packages}onnxruntime-node`) ? [createRequire(packages)('onnxruntime-node') as Engine] : []),
];

const gather = onnx.model({
  nodes: [{ op: 'Gather', in: ['w', 'i'], out: ['y'] }],
  initializers: [onnx.floatTensor('w', [70, 64])],
  inputs: [['i', [3], 7]],
  outputs: [['y', [3, 64]]],
});

const models: readonly (readonly [name: string, file: Uint8Array<ArrayBuffer>])[] = [
  ['encoder', encoderModel()],
  ['MatMul', onnx.product('MatMul', [96, 64], [3, 96], [3, 64])()],
  ['Gemm', onnx.product('Gemm', [64, 96], [3, 96], [3, 64])({ transB: 1 }, { opset: 13 })],
  ['Conv', onnx.product('Conv', [16, 8, 3, 3], [1, 8, 9, 9], [1, 16, 7, 7])({}, { opset: 11 })],
  ['Gather', gather],
];

const limits: readonly (readonly [to: ModelTarget, least: number])[] = [
  ['int8-weights', 0.999],
  ['uint8-weights', 0.999],
  ['int4-weights', 0.98],
  ['q4', 0.98],
  ['q4f16', 0.98],
  ['q8-blocks', 0.999],
];

async function run({ InferenceSession }: Engine, file: Uint8Array, level: 'disabled' | 'all') {
  const session = await InferenceSession.create(file.slice(), { graphOptimizationLevel: level, logSeverityLevel: 3 });
  try {
    return Object.values(await session.run(feedsFor(session))).map(({ data }) =>
      Float32Array.from(data as Float32Array),
    );
  } finally {
    await session.release();
  }
}

describe.each(models)('%s in float16', (name, file) => {
  let half: Uint8Array<ArrayBuffer>;
  let expected: Awaited<ReturnType<typeof run>>;
  beforeAll(async () => {
    half = await (await quantizeModel(file, { to: 'fp16', workers: 0 })).bytes();
    expected = await run(engines[0] as Engine, file, 'all');
  });

  it.each(limits)('becomes %s', async (to, least) => {
    const plan = await planModel(half, { to });
    const { bytes } = await quantizeModel(half, { to, workers: 0 });
    const result = await bytes();
    expect(result.length).toBe(plan.totals.bytesAfter);
    if (name === 'Conv' && !['int8-weights', 'uint8-weights', 'int4-weights', 'q8-blocks'].includes(to)) {
      expect(plan.totals.quantized).toBe(0);
      return;
    }
    expect(plan.totals.quantized).toBeGreaterThan(0);
    expect(result.length).toBeLessThan(half.length);
    expect((await inspectModel(result)).tensors.some(({ dtype }) => dtype === 'F32')).toBe(false);
    for (const engine of engines) {
      for (const level of ['disabled', 'all'] as const) {
        const got = await run(engine, result, level);
        for (const [i, y] of got.entries())
          expect(cosine(y, expected[i] as Float32Array), level).toBeGreaterThan(least);
      }
    }
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
