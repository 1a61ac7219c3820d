// Masks add a number that stands for minus infinity. Beside it nothing else would count, and float16 cannot hold it.
import { compareModels, quantizeModel } from 'scalepoint/model';
import { describe, expect, it } from 'vitest';
import * as onnx from './encoder.js';

const least = -3.4028234663852886e38;
const masked = (number: number) =>
  onnx.model({
    nodes: [
      { op: 'MatMul', in: ['x', 'w'], out: ['p'] },
      { op: 'Mul', in: ['mask', 'least'], out: ['m'] },
      { op: 'Add', in: ['p', 'm'], out: ['s'] },
      { op: 'Softmax', in: ['s'], out: ['y'], attributes: { axis: -1 } },
    ],
    initializers: [
      onnx.floatTensor('w', [64, 48]),
      onnx.tensor({ name: 'least', dims: [], raw: onnx.floats([number]) }),
    ],
    inputs: [
      ['x', [3, 64]],
      ['mask', [3, 48]],
    ],
    outputs: [['y', [3, 48]]],
  });
const file = masked(least);

describe('the number of a mask', () => {
  it.each(['q4', 'fp16'] as const)('does not count in the error of a model as %s', async (to) => {
    const made = await (await quantizeModel(file, { to, workers: 0 })).bytes();
    const { tensors, total } = await compareModels(file, made, { workers: 0 });
    expect(tensors.map(({ name }) => name).sort()).toEqual(['least', 'w']);
    const { error } = tensors.find(({ name }) => name === 'w') as (typeof tensors)[number];
    expect(total).toEqual(error);
  });

  it('does not keep a model from being good enough', async () => {
    const { report } = await quantizeModel(file, { to: 'fp16', minSqnrDb: 60, workers: 0 });
    const { error } = report.tensors.find(({ name }) => name === 'least') as (typeof report.tensors)[number];
    // It is told all the same.
    expect(error).toMatchObject({ saturated: 1, sqnrDb: expect.closeTo(0, 9) });
    expect(report.notes).toContainEqual(
      expect.objectContaining({ kind: 'saturated', text: expect.stringContaining('1 number is beyond F16') }),
    );
    // A number within float16 counts as ever.
    const other = await (await quantizeModel(masked(-60_000.5), { to: 'fp16', workers: 0 })).bytes();
    const { total } = await compareModels(masked(-60_000.5), other, { workers: 0 });
    expect(total.maxAbsoluteError).toBe(0.5);
  });
});
