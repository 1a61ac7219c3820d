// A few models as every target, for builds of onnxruntime other than that of the tests next to this one.
import { type ModelTarget, quantizeModel } from 'scalepoint/model';
import { expect } from 'vitest';
import * as onnx from './encoder.js';
import { cosine, type Engine, run } from './ort.js';
import { encoderModel } from './transformer.js';

/** The least cosine of outputs to those of float32, as for the build that runs all cases. */
const limits: readonly (readonly [to: ModelTarget, least: number])[] = [
  ['int8-weights', 0.999],
  ['uint8-weights', 0.999],
  ['int4-weights', 0.98],
  ['q8', 0.99],
  ['int8', 0.99],
  ['uint8', 0.99],
  ['q4', 0.98],
  ['q4f16', 0.98],
  ['q2', 0.6],
  ['q2f16', 0.6],
  ['q8-blocks', 0.9999],
  ['bnb4', 0.98],
  ['fp16', 0.99999],
];

const models: readonly (readonly [name: string, file: Uint8Array<ArrayBuffer>])[] = [
  ['encoder', encoderModel()],
  ['Gemm', onnx.product('Gemm', [64, 96], [3, 96], [3, 64])({ transB: 1 }, { opset: 21 })],
  [
    'Conv',
    onnx.product('Conv', [16, 8, 3, 3], [1, 8, 9, 9], [1, 16, 'h', 'w'])({ pads: [1, 1, 1, 1], strides: [2, 2] }),
  ],
  [
    'LSTM',
    onnx.model({
      nodes: [{ op: 'LSTM', in: ['x', 'w', 'r'], out: ['y'], attributes: { hidden_size: 32 } }],
      initializers: [onnx.floatTensor('w', [1, 128, 40], 1), onnx.floatTensor('r', [1, 128, 32], 2)],
      inputs: [['x', [5, 1, 40]]],
      outputs: [['y', [5, 1, 1, 32]]],
    }),
  ],
];

/** Runs all of them, or the first ones. */
export async function checkEngine(
  engine: Engine,
  levels: readonly ('disabled' | 'all')[] = ['all'],
  count = models.length,
): Promise<void> {
  for (const [name, file] of models.slice(0, count)) {
    const expected = await run(file, 'all', undefined, engine);
    for (const [to, least] of limits) {
      const made = await (await quantizeModel(file, { to, workers: 0 })).bytes();
      for (const level of levels) {
        const outputs = await run(made, level, undefined, engine);
        for (const [output, data] of Object.entries(expected)) {
          const closeness = cosine(data, outputs[output] as Float32Array);
          expect(closeness, `${name} as ${to}, optimizer ${level}`).toBeGreaterThan(least);
        }
      }
    }
  }
}
