// Models of every version of ai.onnx that onnxruntime-web loads.
import { planModel, quantizeModel } from 'scalepoint/model';
import { describe, expect, it } from 'vitest';
import * as onnx from './encoder.js';
import { expectLike, make } from './ort.js';

const latin = (bytes: Uint8Array) => new TextDecoder('latin1').decode(bytes);

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
    for (const to of targets) {
      const { made, report } = await make(file, { to });
      // Three layers, of which the last two have 64 columns: each adds the errors of its codes.
      await expectLike(file, made, to.includes('4') && to !== 'fp16' ? 0.95 : 0.99, { what: to });
      expect(report.tensors.filter(({ kept }) => kept === undefined).length, to).toBeGreaterThan(0);
    }
  });
});

it('weights of a version without broadcasting become floats by DequantizeLinear alone', async () => {
  const file = onnx.product('Gemm', [64, 48], [3, 64], [3, 48])({}, { opset: 6, ir: 3 });
  const { bytes, report } = await quantizeModel(file, { to: 'int8-weights', dequantize: 'cast', workers: 0 });
  expect(report.tensors[0]?.kept).toBeUndefined();
  const text = latin(await bytes());
  expect(text).toContain('DequantizeLinear');
  expect(text).not.toContain('Mul');
});

/** A graph of operators that a newer version writes in another way. Behind the product each output follows from it alone. */
function changing(opset: number) {
  const nodes: onnx.TestNode[] = [
    { op: 'MatMul', name: 'm', in: ['x', 'w'], out: ['p'] },
    { op: 'Softmax', in: ['p'], out: ['softmax'], attributes: { axis: 1 } },
    { op: 'LogSoftmax', in: ['p'], out: ['logs'] },
    { op: 'Softmax', in: ['p'], out: ['last'], attributes: { axis: 2 } },
    { op: 'Unsqueeze', in: ['p'], out: ['u'], attributes: { axes: [0, 2] } },
    { op: 'Squeeze', in: ['u'], out: ['squeezed'], attributes: { axes: [2] } },
    { op: 'ReduceSum', in: ['p'], out: ['sum'], attributes: { axes: [1], keepdims: 0 } },
    { op: 'ReduceSum', in: ['p'], out: ['total'] },
    { op: 'ReduceMean', in: ['p'], out: ['mean'], attributes: { axes: [-1] } },
    { op: 'Split', in: ['p'], out: ['s1', 's2'], attributes: { axis: 2, split: [16, 32] } },
    { op: 'Split', in: ['p'], out: ['e1', 'e2'], attributes: { axis: 2 } },
    { op: 'Dropout', in: ['p'], out: ['d'], attributes: opset < 12 ? { ratio: { float: 0.5 } } : {} },
    ...(opset < 11
      ? [
          { op: 'Clip', in: ['p'], out: ['clip'], attributes: { max: { float: 0.2 } } },
          { op: 'Clip', in: ['p'], out: ['low'], attributes: { min: { float: -0.2 } } },
          { op: 'Pad', in: ['p'], out: ['pad'], attributes: { pads: [0, 1, 0, 0, 0, 2], value: { float: 0.5 } } },
        ]
      : []),
    ...(opset < 10
      ? [{ op: 'Slice', in: ['p'], out: ['slice'], attributes: { starts: [8], ends: [40], axes: [2] } }]
      : []),
  ];
  const names = nodes.slice(1).flatMap(({ out }) => out);
  return onnx.model(
    {
      nodes,
      initializers: [onnx.floatTensor('w', [64, 48])],
      inputs: [['x', [2, 3, 64]]],
      outputs: names.map(
        (name) => [name, ['a', 'b', 'c', 'd', 'e'].slice(0, { sum: 2, u: 5, squeezed: 4 }[name] ?? 3)] as const,
      ),
    },
    { opset, ir: irOf(opset) },
  );
}

describe('operators that a newer version writes in another way', () => {
  it.each([8, 9, 10, 11, 12])('opset %i', async (opset) => {
    const file = changing(opset);
    const { report, made } = await make(file, { to: 'int4-weights' });
    expect(report.tensors[0]?.kept).toBeUndefined();
    await expectLike(file, made, 0.97);
  });
});

/** The ends of int64, which exporters write for open slices. */
const [least, most] = [-(2n ** 63n), 2n ** 63n - 1n];

describe('a Slice to the ends of a dimension, whose numbers become inputs', () => {
  const file = onnx.model(
    {
      nodes: [
        { op: 'MatMul', in: ['x', 'w'], out: ['p'] },
        { op: 'Slice', in: ['p'], out: ['y'], attributes: { starts: [least, 8], ends: [most, most], axes: [0, 1] } },
        // 2^53 + 1 is no JavaScript number.
        { op: 'Slice', in: ['p'], out: ['z'], attributes: { starts: [0], ends: [2n ** 53n + 1n], axes: [1] } },
      ],
      initializers: [onnx.floatTensor('w', [64, 40])],
      inputs: [['x', [3, 64]]],
      outputs: [
        ['y', [3, 32]],
        ['z', [3, 40]],
      ],
    },
    { opset: 9, ir: 4 },
  );

  it.each(targets)('as %s', async (to) => {
    const { made } = await make(file, { to });
    const text = latin(made);
    // Each number is there as it was: in an attribute, or in a tensor of int64.
    for (const value of [least, most, 2n ** 53n + 1n]) {
      const forms = [onnx.varint(value), onnx.int64s([value])].map((bytes) => latin(Uint8Array.from(bytes)));
      expect(
        forms.some((form) => text.includes(form)),
        `${value}`,
      ).toBe(true);
    }
    await expectLike(file, made, to.includes('4') ? 0.95 : 0.99);
  });
});

/** x as float16 through an operator whose numbers are attributes in old versions, and a product. */
function ofHalves(node: Omit<onnx.TestNode, 'in' | 'out'>) {
  const cast = (from: string, to: string, type: number) => {
    return { op: 'Cast', in: [from], out: [to], attributes: { to: type } };
  };
  return onnx.model(
    {
      nodes: [
        cast('x', 'h', 10),
        { ...node, in: ['h'], out: ['c'] },
        cast('w', 'v', 10),
        { op: 'MatMul', in: ['c', 'v'], out: ['p'] },
        cast('p', 'y', 1),
      ],
      initializers: [onnx.floatTensor('w', [64, 48])],
      inputs: [['x', [2, 64]]],
      outputs: [['y', [2, 48]]],
    },
    { opset: 8, ir: 4 },
  );
}

describe('numbers that become inputs', () => {
  it.each([
    { op: 'Clip', attributes: { min: { float: -0.5 }, max: { float: 0.5 } } },
    { op: 'Pad', attributes: { pads: [0, 0, 0, 0], value: { float: 0.5 } } },
  ])('have the type that $op computes with', async (node) => {
    const file = ofHalves(node);
    const { made, report } = await make(file, { to: 'int8-weights' });
    expect(report.tensors[0]?.kept).toBeUndefined();
    await expectLike(file, made, 0.999);
  });

  it('have that type in a graph that becomes float16, too', async () => {
    const file = onnx.model(
      {
        nodes: [
          { op: 'MatMul', in: ['x', 'w'], out: ['p'] },
          { op: 'Clip', in: ['p'], out: ['c'], attributes: { min: { float: -0.5 }, max: { float: 0.5 } } },
          { op: 'MatMul', in: ['c', 'v'], out: ['y'] },
        ],
        initializers: [onnx.floatTensor('w', [64, 48], 1), onnx.floatTensor('v', [48, 64], 2)],
        inputs: [['x', [2, 64]]],
        outputs: [['y', [2, 64]]],
      },
      { opset: 8, ir: 4 },
    );
    const rules = [{ match: /^v$/, to: 'int8-weights' }] as const;
    await expectLike(file, (await make(file, { to: 'fp16', rules })).made, 0.999);
  });
});

it('BatchNormalization may say what is the default: statistics of channels', async () => {
  const ones = (name: string) => onnx.tensor({ name, dims: [8], raw: onnx.floats(Array.from({ length: 8 }, () => 1)) });
  const model = (spatial: number) =>
    onnx.model(
      {
        nodes: [
          { op: 'MatMul', in: ['x', 'w'], out: ['p'] },
          { op: 'BatchNormalization', in: ['p', 's', 'b', 'm', 'v'], out: ['y'], attributes: { spatial } },
        ],
        initializers: [onnx.floatTensor('w', [64, 48]), ...['s', 'b', 'm', 'v'].map(ones)],
        inputs: [['x', [1, 8, 64]]],
        outputs: [['y', [1, 8, 48]]],
      },
      { opset: 8, ir: 4 },
    );
  const { report, made } = await make(model(1), { to: 'int4-weights' });
  expect(report.tensors[0]?.kept).toBeUndefined();
  await expectLike(model(1), made, 0.98);
  const other = await planModel(model(0), { to: 'int4-weights' });
  expect(other.tensors[0]?.kept).toMatchObject({ kind: 'opset', opset: 8, operator: 'BatchNormalization' });
});
