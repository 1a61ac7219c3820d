// Every target runs in onnxruntime-node.
import { quantizeModel } from 'scalepoint/model';
import { expect, it } from 'vitest';
import * as onnx from './encoder.js';
import { checkEngine } from './engines.js';
import { nodeEngine } from './node-engines.js';
import { howToInstall } from './transformers.js';

it('in onnxruntime-node', async ({ skip }) => {
  if (nodeEngine === undefined) return skip(howToInstall);
  await checkEngine(nodeEngine, ['disabled', 'all']);
});

it('batches that are moved in front of a product, which crash it in float16', async ({ skip }) => {
  if (nodeEngine === undefined) return skip(howToInstall);
  const { InferenceSession, Tensor } = nodeEngine;
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
