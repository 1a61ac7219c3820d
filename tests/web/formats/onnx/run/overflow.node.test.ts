// Activations that float16 cannot hold, which runs on wasm do not show: it computes float16 in float32.
import * as ort from 'onnxruntime-web';
import { calibrateModel, compareModels, inspectModel, quantizeModel } from 'scalepoint/model';
import { expect, it } from 'vitest';
import * as onnx from '../encoder.js';

ort.env.wasm.numThreads = 1;
ort.env.logLevel = 'error';
const run = { runtime: ort };

/** Products whose results have magnitudes about 1e6, and a LayerNormalization behind them. */
const file = onnx.model({
  nodes: [
    { op: 'MatMul', in: ['x', 'a'], out: ['p'] },
    { op: 'MatMul', in: ['p', 'b'], out: ['large'] },
    { op: 'LayerNormalization', in: ['large', 's'], out: ['n'] },
    { op: 'MatMul', in: ['n', 'c'], out: ['y'] },
  ],
  initializers: [
    onnx.floatTensor('a', [64, 64], 1, 100),
    onnx.floatTensor('b', [64, 64], 2, 300),
    onnx.floatTensor('s', [64], 3),
    onnx.floatTensor('c', [64, 32], 4),
  ],
  inputs: [['x', [3, 64]]],
  outputs: [['y', [3, 32]]],
});
const nodes = [
  { node: 'large', operator: 'MatMul', why: 'measured' },
  { node: 'n', operator: 'LayerNormalization', why: 'measured' },
];

it('is a finding of a comparison, though outputs agree', async () => {
  const made = await (await quantizeModel(file, { to: 'fp16', workers: 0 })).bytes();
  const { outputs, overflows } = await compareModels(file, made, { workers: 0, run });
  expect(outputs?.[0]?.error.cosine).toBeGreaterThan(0.9999);
  expect(overflows).toEqual([{ value: 'large', node: '', op: 'MatMul', largest: expect.any(Number) }]);
  expect(overflows?.[0]?.largest).toBeGreaterThan(65_504);
  const eight = await (await quantizeModel(file, { to: 'q8-blocks', workers: 0 })).bytes();
  expect((await compareModels(file, eight, { workers: 0, run })).overflows).toBeUndefined();
});

it.each([
  ['fp16', 0.9999],
  ['q4f16', 0.95],
] as const)('keeps nodes of %s in float32 by the run of the original, and raises nothing', async (to, minOutput) => {
  const { report, bytes } = await quantizeModel(file, { to, minOutput, run, workers: 0 });
  expect(report.repair).toMatchObject({ runs: 1, steps: [] });
  expect(report.notes.find(({ kind }) => kind === 'beyondHalf')).toMatchObject({ nodes });
  expect((await compareModels(file, await bytes(), { workers: 0, run })).overflows).toBeUndefined();
});

it('keeps them by the ranges of a calibration', async () => {
  const ranges = await calibrateModel(file, [{ x: { data: onnx.weights(192, 5, 1), shape: [3, 64] } }], {
    ranges: true,
    moments: false,
    run,
  });
  const { report } = await quantizeModel(file, { to: 'fp16', ranges, workers: 0 });
  expect(report.notes.find(({ kind }) => kind === 'beyondHalf')).toMatchObject({ nodes });
});

it('keeps values away from products, too, by the ranges of a calibration, and takes masks and empty values', async () => {
  const gated = onnx.model({
    nodes: [
      { op: 'MatMul', in: ['x', 'a'], out: ['p'] },
      { op: 'Mul', in: ['p', 'gate'], out: ['large'] },
      { op: 'LayerNormalization', in: ['large', 's'], out: ['n'] },
      { op: 'Where', in: ['hidden', 'infinity', 'n'], out: ['masked'] },
      { op: 'Softmax', in: ['masked'], out: ['q'] },
      { op: 'Slice', in: ['p', 'none', 'none'], out: ['empty'] },
      { op: 'Concat', in: ['q', 'empty'], out: ['r'], attributes: { axis: 0 } },
      { op: 'MatMul', in: ['r', 'c'], out: ['y'] },
    ],
    initializers: [
      onnx.floatTensor('a', [64, 64], 1, 10),
      onnx.floatTensor('s', [64], 3),
      onnx.floatTensor('c', [64, 32], 4),
      onnx.tensor({ name: 'infinity', dims: [], raw: onnx.floats([-Infinity]) }),
      onnx.tensor({ name: 'hidden', type: 9, dims: [64], raw: Array.from({ length: 64 }, (_, i) => +(i > 40)) }),
      onnx.tensor({ name: 'none', type: 7, dims: [1], raw: onnx.int64s([0]) }),
    ],
    inputs: [
      ['x', [3, 64]],
      ['gate', [3, 64]],
    ],
    outputs: [['y', [3, 32]]],
  });
  const [x, gate] = [1, 5e4].map((size, i) => ({ data: onnx.weights(192, 5 + i, size), shape: [3, 64] }));
  const ranges = await calibrateModel(gated, [{ x, gate } as never], { ranges: true, run });
  const { tensors } = await inspectModel((await ranges.ranges?.bytes()) as Uint8Array<ArrayBuffer>);
  const names = tensors.map(({ name }) => name);
  expect(names).toEqual(expect.arrayContaining(['gate', 'large', 'n', 'q']));
  expect(names).not.toContain('masked');
  expect(names).not.toContain('empty');
  const { report } = await quantizeModel(gated, { to: 'fp16', ranges, workers: 0 });
  const kept = report.notes.find(({ kind }) => kind === 'beyondHalf') as
    | { nodes?: readonly { node: string }[] }
    | undefined;
  expect(kept?.nodes?.map(({ node }) => node)).toEqual(['large', 'n']);
});
