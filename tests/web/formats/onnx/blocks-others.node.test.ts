// q8-blocks gives 8 bits to weights that blocks do not suit, too. They become floats when the model is loaded.
import { quantizeModel, readFloats } from 'scalepoint/model';
import { expect, it } from 'vitest';
import * as onnx from './encoder.js';
import { cosine, run } from './ort.js';

const gates = (op: 'LSTM' | 'GRU', rows: number) =>
  onnx.model({
    nodes: [{ op, in: ['x', 'w', 'r'], out: ['y'], attributes: { hidden_size: 32 } }],
    initializers: [onnx.floatTensor('w', [1, rows, 40], 1), onnx.floatTensor('r', [1, rows, 32], 2)],
    inputs: [['x', [5, 1, 40]]],
    outputs: [['y', [5, 1, 1, 32]]],
  });

it.each<[string, Uint8Array<ArrayBuffer>]>([
  ['a convolution', onnx.product('Conv', [16, 8, 3, 3], [1, 8, 9, 9], [1, 16, 9, 9])({ pads: [1, 1, 1, 1] })],
  ['a convolution transposed', onnx.product('ConvTranspose', [16, 8, 3, 3], [1, 16, 9, 9], [1, 8, 'h', 'w'])()],
  ['an LSTM', gates('LSTM', 128)],
  ['a GRU', gates('GRU', 96)],
  ['several matrices', onnx.product('MatMul', [3, 40, 24], [3, 5, 40], [3, 5, 24])()],
  [
    'a table whose rows blocks do not divide',
    onnx.model({
      nodes: [{ op: 'Gather', in: ['w', 'i'], out: ['y'] }],
      initializers: [onnx.floatTensor('w', [50, 40])],
      inputs: [['i', [2, 3], 7]],
      outputs: [['y', [2, 3, 40]]],
    }),
  ],
])('%s', async (_name, file) => {
  const { report, bytes } = await quantizeModel(file, { to: 'q8-blocks', workers: 0 });
  const made = await bytes();
  expect(report.tensors.every(({ kept, to }) => kept === undefined && to === 'U8')).toBe(true);
  expect(made.length).toBeLessThan(0.6 * file.length);
  // Nothing is dequantized at each run.
  expect(new TextDecoder('latin1').decode(made)).not.toContain('DequantizeLinear');
  for (const level of ['disabled', 'all'] as const) {
    const [before, after] = [await run(file, level), await run(made, level)];
    for (const [output, values] of Object.entries(before))
      expect(cosine(values, after[output] as Float32Array)).toBeGreaterThan(0.9999);
  }
  const name = report.tensors[0]?.name ?? '';
  const [was, is] = [await readFloats(file, name), await readFloats(made, name)];
  expect(cosine(was.data as Float32Array, is.data as Float32Array)).toBeGreaterThan(0.9999);
});

it('not with targets of other blocks', async () => {
  const file = gates('LSTM', 128);
  const { report } = await quantizeModel(file, { to: 'q4', workers: 0 });
  expect(report.tensors.map(({ kept }) => kept?.kind)).toEqual(['readBy', 'readBy']);
});
