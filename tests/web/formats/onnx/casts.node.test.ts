// Weights that products read behind a Cast, as exporters of mixed precision write them.
import { type ModelTarget, planModel } from 'scalepoint/model';
import { describe, expect, it } from 'vitest';
import * as onnx from './encoder.js';
import { expectLike, make } from './ort.js';

const [float, half] = [1, 10];
const cast = (from: string, to: string, type: number): onnx.TestNode => {
  return { op: 'Cast', in: [from], out: [to], attributes: { to: type } };
};
const halves = (name: string, dims: readonly number[]) => {
  const values = onnx.weights(dims.reduce((a, b) => a * b, 1));
  // Multiples of 2^-8 below 2^3 are exact in float16: 1 bit of sign, exponent, 10 bits.
  const words = Array.from(values, (value) => {
    const rounded = Math.round(value * 256) / 256;
    const size = Math.abs(rounded);
    if (size === 0) return 0;
    const exponent = Math.floor(Math.log2(size));
    return (rounded < 0 ? 0x8000 : 0) | ((exponent + 15) << 10) | ((size / 2 ** exponent - 1) * 1024);
  });
  return onnx.tensor({ name, type: half, dims, raw: new Uint8Array(Uint16Array.from(words).buffer) });
};

/** A product of x and a weight, with nodes in between, that computes with a type. */
function modelOf(
  weight: onnx.Bytes,
  between: readonly onnx.TestNode[],
  type: number,
  more: readonly onnx.TestNode[] = [],
) {
  return onnx.model({
    nodes: [
      cast('x', 'a', type),
      ...between,
      { op: 'MatMul', in: ['a', 'b'], out: ['p'] },
      cast('p', 'y', float),
      ...more,
    ],
    initializers: [weight],
    inputs: [['x', [3, 64]]],
    outputs: [['y', [3, 48]], ...more.map(({ out: [name = ''] }) => [name, [64, 48]] as const)],
  });
}

const straight = onnx.floatTensor('w', [64, 48]);
const cases: readonly (readonly [name: string, file: Uint8Array<ArrayBuffer>, targets: readonly ModelTarget[]])[] = [
  [
    'float32 as it is',
    modelOf(straight, [cast('w', 'b', float)], float),
    ['q8', 'uint8', 'q4', 'q2', 'q8-blocks', 'bnb4'],
  ],
  [
    'float32, transposed',
    modelOf(
      onnx.floatTensor('w', [48, 64]),
      [cast('w', 'c', float), { op: 'Transpose', in: ['c'], out: ['b'], attributes: { perm: [1, 0] } }],
      float,
    ),
    ['q8', 'uint8', 'q4', 'q2', 'q8-blocks', 'bnb4'],
  ],
  ['float32 to float16', modelOf(straight, [cast('w', 'b', half)], half), ['q4', 'q2', 'q8-blocks']],
  ['float16 to float32', modelOf(halves('w', [64, 48]), [cast('w', 'b', float)], float), ['q4', 'q2', 'q8-blocks']],
];

describe.each(cases)('%s', (_, file, targets) => {
  it.each(targets)('becomes codes that are multiplied, as %s', async (to) => {
    const { made, report } = await make(file, { to });
    expect(report.tensors[0]?.kept).toBeUndefined();
    expect(new TextDecoder('latin1').decode(made)).not.toMatch('DequantizeLinear');
    // Rows of 64 in blocks of 32. Codes of 2 bits are off by half a step of a third of the range.
    await expectLike(file, made, to === 'q2' ? 0.6 : 0.98);
  });

  it.each(['q4f16', 'fp16', 'int8-weights'] as const)('runs as %s', async (to) => {
    await expectLike(file, (await make(file, { to })).made, 0.98);
  });
});

it('says why a weight of several types takes no blocks', async () => {
  const other = { op: 'Relu', in: ['w'], out: ['z'] };
  const file = modelOf(straight, [cast('w', 'b', half)], half, [other]);
  expect((await planModel(file, { to: 'q4' })).tensors[0]?.kept).toMatchObject({
    kind: 'readAs',
    types: ['F16', 'F32'],
  });
  const { tensors } = await planModel(modelOf(straight, [cast('w', 'b', half)], half), { to: 'bnb4' });
  expect(tensors[0]?.kept).toMatchObject({ kind: 'readAs', types: ['F16'] });
  const doubles = modelOf(straight, [cast('w', 'b', 11)], 11);
  expect((await planModel(doubles, { to: 'q4' })).tensors[0]?.kept).toMatchObject({ kind: 'readAs', types: ['F64'] });
});
