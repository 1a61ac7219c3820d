// Models of every version of ai.onnx that onnxruntime-web loads.
import { quantizeModel } from 'scalepoint/model';
import { describe, expect, it } from 'vitest';
import * as onnx from './encoder.js';
import { cosine, run } from './ort.js';

const targets = [
  'q8',
  'uint8',
  'int8-weights',
  'uint8-weights',
  'int4-weights',
  'q4',
  'q4f16',
  'bnb4',
  'fp16',
] as const;
const irOf = (opset: number) => (opset < 10 ? 4 : opset < 15 ? 6 : opset < 19 ? 8 : opset < 21 ? 9 : 10);

describe('a model of opset', () => {
  it.each(Array.from({ length: 17 }, (_, i) => 7 + i))('%i', async (opset) => {
    const file = onnx.model(
      {
        nodes: [
          { op: 'Conv', name: 'c', in: ['x', 'k', 'b'], out: ['h'], attributes: { pads: [1, 1, 1, 1] } },
          { op: 'Relu', in: ['h'], out: ['r'] },
          { op: 'Flatten', in: ['r'], out: ['f'] },
          { op: 'Gemm', name: 'g', in: ['f', 'w', 'd'], out: ['p'], attributes: { transB: 1 } },
          { op: 'MatMul', name: 'm', in: ['p', 'v'], out: ['y'] },
        ],
        initializers: [
          onnx.floatTensor('k', [16, 8, 3, 3]),
          onnx.floatTensor('b', [16], 2),
          onnx.floatTensor('w', [64, 16 * 25], 3),
          onnx.floatTensor('d', [64], 4),
          onnx.floatTensor('v', [64, 32], 5),
        ],
        inputs: [['x', [2, 8, 5, 5]]],
        outputs: [['y', [2, 32]]],
      },
      { opset, ir: irOf(opset) },
    );
    const { y } = await run(file);
    for (const to of targets) {
      const { bytes, report } = await quantizeModel(file, { to, workers: 0 });
      const made = await bytes();
      for (const level of ['disabled', 'all'] as const) {
        // Three layers, of which the last two have 64 columns: each adds the errors of its codes.
        const limit = to.includes('4') && to !== 'fp16' ? 0.95 : 0.99;
        expect(cosine(y as Float32Array, (await run(made, level)).y as Float32Array), to).toBeGreaterThan(limit);
      }
      expect(report.tensors.filter(({ kept }) => kept === undefined).length, to).toBeGreaterThan(0);
    }
  });
});
