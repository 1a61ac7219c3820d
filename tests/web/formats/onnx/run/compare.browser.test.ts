// Models run in a page, which hands over onnxruntime-web.
import * as ort from 'onnxruntime-web/wasm';
import { compareModels, quantizeModel } from 'scalepoint/model';
import { expect, it } from 'vitest';
import * as onnx from '../encoder.js';

it('compares what two models compute', async () => {
  ort.env.wasm.numThreads = 1;
  const model = onnx.product('MatMul', [96, 64], ['n', 96] as unknown as number[], ['n', 64])();
  const made = await (await quantizeModel(model, { to: 'q8', workers: 0 })).bytes();
  const { outputs, layers } = await compareModels(model, made, { run: { runtime: ort, layers: true }, workers: 0 });
  expect(outputs).toMatchObject([{ name: 'y', shape: [1, 64] }]);
  expect(outputs?.[0]?.error.cosine).toBeGreaterThan(0.99);
  expect(layers).toMatchObject([{ name: 'y', op: 'MatMul' }]);
});
