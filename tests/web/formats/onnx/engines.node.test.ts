// Every target runs in onnxruntime-node.
import { existsSync } from 'node:fs';
import { createRequire } from 'node:module';
import { fileURLToPath } from 'node:url';
import { quantizeModel } from 'scalepoint/model';
import { expect, it } from 'vitest';
import * as onnx from './encoder.js';
import { checkEngine, type Engine } from './engines.js';
import { howToInstall } from './transformers.js';

const packages = fileURLToPath(new URL('../../../transformers/node_modules/', import.meta.url));

it('in onnxruntime-node', async ({ skip }) => {
  if (!existsSync(`${packages}onnxruntime-node`)) skip(howToInstall);
  await checkEngine(createRequire(packages)('onnxruntime-node') as Engine, ['disabled', 'all']);
});

it('batches that are moved in front of a product, which crash it in float16', async ({ skip }) => {
  if (!existsSync(`${packages}onnxruntime-node`)) skip(howToInstall);
  const { InferenceSession, Tensor } = createRequire(packages)('onnxruntime-node') as typeof import('onnxruntime-web');
  // An LSTM with the batch first and a product behind it, as exporters write them.
  const file = onnx.model({
    nodes: [
      { op: 'Transpose', in: ['x'], out: ['t'], attributes: { perm: [1, 0, 2] } },
      { op: 'LSTM', in: ['t', 'w', 'r'], out: ['h'], attributes: { hidden_size: 32 } },
      { op: 'Squeeze', in: ['h', 'one'], out: ['s'] },
      { op: 'Transpose', in: ['s'], out: ['u'], attributes: { perm: [1, 0, 2] } },
      { op: 'MatMul', in: ['u', 'v'], out: ['y'] },
    ],
    initializers: [
      onnx.floatTensor('w', [1, 128, 40], 1),
      onnx.floatTensor('r', [1, 128, 32], 2),
      onnx.floatTensor('v', [32, 48], 3),
      onnx.tensor({ name: 'one', type: 7, dims: [1], raw: onnx.int64s([1]) }),
    ],
    inputs: [['x', [2, 5, 40]]],
    outputs: [['y', [2, 5, 48]]],
  });
  const made = await (await quantizeModel(file, { to: 'fp16', workers: 0 })).bytes();
  const session = await InferenceSession.create(made, { graphOptimizationLevel: 'all' });
  const { y } = await session.run({ x: new Tensor('float32', onnx.weights(2 * 5 * 40), [2, 5, 40]) });
  expect(y?.dims).toEqual([2, 5, 48]);
});
