// Static quantization: activations as integers with ranges that were measured. Results run in onnxruntime-web, and what is stored follows rules
// that are written here once more.
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import * as ort from 'onnxruntime-web';
import {
  calibrateModel,
  inspectModel,
  type ModelSample,
  planModel,
  quantizeModel,
  readFloats,
  readTensor,
  verifyModel,
} from 'scalepoint/model';
import { describe, expect, it } from 'vitest';
import { openSource } from '../../../../web/src/formats/files/open.js';
import { openOnnx } from '../../../../web/src/formats/onnx/file/model.js';
import * as onnx from './encoder.js';
import { engines } from './node-engines.js';
import { expectLike, run } from './ort.js';
import { encoderModel } from './transformer.js';

const samples = process.env.SCALEPOINT_SAMPLES;

/** Two convolutions with Relu and a pool between them, and a product. */
const network = onnx.model({
  nodes: [
    { op: 'Conv', name: 'c1', in: ['x', 'w1', 'b1'], out: ['y1'], attributes: { pads: [1, 1, 1, 1] } },
    { op: 'Relu', name: 'r1', in: ['y1'], out: ['z1'] },
    { op: 'MaxPool', name: 'p1', in: ['z1'], out: ['q1'], attributes: { kernel_shape: [2, 2], strides: [2, 2] } },
    { op: 'Conv', name: 'c2', in: ['q1', 'w2', 'b2'], out: ['y2'], attributes: { pads: [1, 1, 1, 1] } },
    { op: 'Relu', name: 'r2', in: ['y2'], out: ['z2'] },
    { op: 'Flatten', name: 'f', in: ['z2'], out: ['flat'] },
    { op: 'Gemm', name: 'g', in: ['flat', 'w3', 'b3'], out: ['y'], attributes: { transB: 1 } },
  ],
  initializers: [
    onnx.floatTensor('w1', [16, 8, 3, 3], 1, 0.2),
    onnx.floatTensor('b1', [16], 2, 0.5),
    onnx.floatTensor('w2', [16, 16, 3, 3], 3, 0.2),
    onnx.floatTensor('b2', [16], 4, 0.5),
    onnx.floatTensor('w3', [10, 256], 5, 0.2),
    onnx.floatTensor('b3', [10], 6, 0.5),
  ],
  inputs: [['x', ['n', 8, 8, 8]]],
  outputs: [['y', ['n', 10]]],
});

const image = (seed: number): ModelSample => ({ x: { data: onnx.weights(512, seed, 1), shape: [1, 8, 8, 8] } });
const images = [1, 2, 3, 4, 5].map(image);
const feeds = (seed: number) => ({ x: new ort.Tensor('float32', onnx.weights(512, seed, 1), [1, 8, 8, 8]) });

const bounds = (min: number, max: number) => ({ min: { float: min }, max: { float: max } });

/** A branch that reads t of the graph around it. */
const branch = (op: string) =>
  onnx.graph({ nodes: [{ op, in: ['t'], out: [`${op}ed`] }], inputs: [], outputs: [[`${op}ed`, [16, 48]]] });

/** The nodes of a model. */
async function nodesOf(file: Uint8Array) {
  const source = await openSource(file);
  const { proto } = await openOnnx({ input: file, source }, [], openSource);
  return proto.graph.nodes.map(({ opType, domain, inputs, outputs }) => ({ opType, domain, inputs, outputs }));
}

/** The model with another output. */
const withOutput = (file: Uint8Array<ArrayBuffer>, name: string) =>
  Uint8Array.from([...file, ...onnx.bytes(7, onnx.bytes(12, onnx.text(1, name)))]);

/** Rounds half to even. */
const rounded = (x: number) => {
  const low = Math.floor(x);
  return x - low !== 0.5 ? Math.round(x) : low + (low % 2);
};

const statisticsOf = (file: Uint8Array<ArrayBuffer>, data = images) => calibrateModel(file, data, { ranges: true });

describe('ranges of activations', () => {
  it('are the least and the largest elements of all samples', async () => {
    const { ranges } = await statisticsOf(network);
    const file = (await ranges?.bytes()) as Uint8Array<ArrayBuffer>;
    const { tensors, metadata } = await inspectModel(file);
    // Those of products first: codes take these alone.
    expect(tensors.map(({ name }) => name)).toEqual(['x', 'z1', 'z2', 'y', 'y1', 'q1', 'y2', 'flat']);
    expect(metadata).toEqual({ format: 'scalepoint.ranges', samples: '5' });
    const found = async (name: string) => Array.from((await readFloats(file, name)).data);
    const inputs = images.flatMap(({ x }) => Array.from(x?.data as Float32Array));
    expect(await found('x')).toEqual([Math.min(...inputs), Math.max(...inputs)]);
    for (const name of ['z1', 'y']) {
      const values: number[] = [];
      for (let seed = 1; seed <= 5; seed++) {
        const results = await run(name === 'y' ? network : withOutput(network, name), 'all', feeds(seed));
        for (const value of results[name] as Float32Array) values.push(value);
      }
      const [least, largest] = await found(name);
      // Fused convolutions may add up in another order: off by some units in the last place of a sum of 73 products.
      const off = 1e-5 * Math.max(...values);
      expect(Math.abs((least as number) - Math.min(...values))).toBeLessThan(off);
      expect(Math.abs((largest as number) - Math.max(...values))).toBeLessThan(off);
    }
  });

  it('have to be finite, and are for ONNX models', async () => {
    const data = onnx.weights(512, 1, 1);
    data[3] = Number.POSITIVE_INFINITY;
    const work = calibrateModel(network, [{ x: { data, shape: [1, 8, 8, 8] } }], { ranges: true });
    await expect(work).rejects.toMatchObject({ code: 'NON_FINITE' });
    await expect(calibrateModel(network, images, { ranges: 1 as never })).rejects.toThrow(TypeError);
  });
});

describe('int8-static', () => {
  it('stores what its rules say, and runs near the float32 model', async () => {
    const ranges = await statisticsOf(network);
    const options = { to: 'int8-static', ranges, workers: 0 } as const;
    const made = await quantizeModel(network, options);
    const file = await made.bytes();
    expect(file.length).toBe((await planModel(network, options)).totals.bytesAfter);
    expect((await verifyModel(file)).problems).toEqual([]);
    expect(made.report.notes.map(({ kind }) => kind)).toEqual(['staticCost', 'runsOn']);

    // Outputs: near those of float32 with the optimizer, which fuses the nodes, and without.
    await expectLike(network, file, 0.995, { feeds: feeds(9) });

    // Nodes: a pair around each product, behind its Relu; the pool's elements have the scale of the Relu.
    const nodes = await nodesOf(file);
    const count = (op: string) => nodes.filter(({ opType }) => opType === op).length;
    // x, z1, q1, z2, flat, y.
    expect(count('QuantizeLinear')).toBe(6);
    // The same, three weights and three biases.
    expect(count('DequantizeLinear')).toBe(12);
    const by = (output: string) => nodes.find(({ outputs }) => outputs.includes(output));
    const read = (node: string, input: number) => {
      const found = nodes.find(({ outputs }) => outputs.includes(node));
      return by(found?.inputs[input] ?? '');
    };
    const pool = read('y2', 0);
    expect(pool?.opType).toBe('DequantizeLinear');
    const floatsOf = async (name = '') => Array.from((await readTensor(file, name)).data as Float32Array);
    const [range] = [(await readFloats((await ranges.ranges?.bytes()) as Uint8Array<ArrayBuffer>, 'z1')).data];
    // Outputs of a Relu begin at 0.
    const scale = Math.fround((range[1] as number) / 255);
    expect(await floatsOf(pool?.inputs[1])).toEqual([scale]);
    expect(await floatsOf(by('z1')?.inputs[1])).toEqual([scale]);
    expect((await readTensor(file, by('z1')?.inputs[2] ?? '')).data).toEqual(Uint8Array.of(0));
    const [least, largest] = (await readFloats((await ranges.ranges?.bytes()) as Uint8Array<ArrayBuffer>, 'x')).data;
    const inputScale = Math.fround(((largest as number) - (least as number)) / 255);
    const input = read('y1', 0);
    expect(await floatsOf(input?.inputs[1])).toEqual([inputScale]);
    const zero = Math.round(-(least as number) / inputScale);
    expect((await readTensor(file, input?.inputs[2] ?? '')).data).toEqual(Uint8Array.of(zero));

    // Biases: rounded by nodes, with the product of both scales.
    const scales = await floatsOf('w1_scale');
    expect(scales.length).toBe(16);
    const session = await ort.InferenceSession.create(withOutput(file, 'b1_quantized'), {
      graphOptimizationLevel: 'disabled',
    });
    const { b1_quantized: codes } = await session.run(feeds(9));
    await session.release();
    const expected = onnx.weights(16, 2, 0.5).map((bias, i) => {
      return rounded(Math.fround(bias / Math.fround(inputScale * (scales[i] as number))));
    });
    expect(Array.from(codes?.data as Int32Array)).toEqual(Array.from(expected));
  });

  it('shares what several products read, and keeps names of outputs', async () => {
    const file = onnx.model({
      nodes: [
        { op: 'MatMul', in: ['x', 'w1'], out: ['a'] },
        { op: 'MatMul', in: ['x', 'w2'], out: ['b'] },
        { op: 'MatMul', in: ['a', 'w3'], out: ['c'] },
        { op: 'Relu', in: ['b'], out: ['d'] },
        { op: 'Sigmoid', in: ['b'], out: ['e'] },
        { op: 'Clip', in: ['c', '', 'most'], out: ['f'] },
      ],
      initializers: [
        onnx.floatTensor('w1', [48, 48], 1),
        onnx.floatTensor('w2', [48, 48], 2),
        onnx.floatTensor('w3', [48, 48], 3),
        onnx.tensor({ name: 'most', dims: [], raw: onnx.floats([0.5]) }),
      ],
      inputs: [['x', ['n', 48]]],
      outputs: [
        ['a', ['n', 48]],
        ['d', ['n', 48]],
        ['e', ['n', 48]],
        ['f', ['n', 48]],
      ],
    });
    const data = [{ x: { data: onnx.weights(960, 1, 2), shape: [20, 48] } }];
    const ranges = await statisticsOf(file, data);
    const made = await (await quantizeModel(file, { to: 'int8-static', ranges, workers: 0 })).bytes();
    const nodes = await nodesOf(made);
    // x, a, b, f. Two nodes read b, so that its Relu stays behind the pair.
    expect(nodes.filter(({ opType }) => opType === 'QuantizeLinear').length).toBe(4);
    const products = nodes.filter(({ opType }) => opType === 'MatMul').map(({ inputs }) => inputs[0]);
    expect(products[0]).toBe(products[1]);
    expect(products[2]).toBe('a');
    const x = { x: new ort.Tensor('float32', onnx.weights(96, 7, 2), [2, 48]) };
    await expectLike(file, made, 0.995, { feeds: x });
  });

  it.each(['Conv', 'Gemm'])('keeps biases of channels of %s with tiny weights, and with zeros', async (op) => {
    const isConv = op === 'Conv';
    const [channels, size] = [16, 72];
    const tiny = onnx.weights(channels * size, 1, 0.2);
    for (let i = 0; i < size; i++)
      [tiny[i], tiny[size + i], tiny[2 * size + i]] = [(tiny[i] as number) * 1e-8, 0, 1e-41];
    const file = onnx.model({
      nodes: [{ op, in: ['x', 'w', 'b'], out: ['y'], attributes: isConv ? {} : { transB: 1 } }],
      initializers: [
        onnx.tensor({ name: 'w', dims: isConv ? [channels, 8, 3, 3] : [channels, size], raw: onnx.rawOf(tiny) }),
        onnx.tensor({
          name: 'b',
          dims: [channels],
          raw: onnx.floats(Array.from({ length: channels }, (_, i) => (i === 1 ? 1e-3 : 1 - i / 8))),
        }),
      ],
      inputs: [['x', isConv ? [1, 8, 3, 3] : [1, size]]],
      outputs: [['y', isConv ? [1, channels, 1, 1] : [1, channels]]],
    });
    const shape = isConv ? [1, 8, 3, 3] : [1, size];
    const x = onnx.weights(size, 3, 1);
    const ranges = await statisticsOf(file, [{ x: { data: x, shape } }]);
    for (const range of ['min-max', 'mse'] as const) {
      const made = await (await quantizeModel(file, { to: 'int8-static', ranges, range, workers: 0 })).bytes();
      const given = { x: new ort.Tensor('float32', x, shape) };
      for (const level of ['disabled', 'all'] as const) {
        const [before, after] = [(await run(file, level, given)).y, (await run(made, level, given)).y];
        // Outputs have 255 steps from the least to the largest, and rounding takes half of one. Products err by as much again.
        const step = (Math.max(...(before ?? [])) - Math.min(0, ...(before ?? []))) / 255;
        for (const channel of [0, 1, 2]) {
          expect(
            Math.abs((before?.[channel] as number) - (after?.[channel] as number)),
            `${range} ${channel}`,
          ).toBeLessThan(step);
        }
      }
    }
  });

  it.each([
    ['MatMul', [2, 3, 32], [2, 32, 32]],
    ['MatMul', [3, 32], [2, 2, 32, 32]],
    ['Conv', [1, 32, 40], [32, 32, 3]],
    ['Conv', [1, 8, 6, 6, 6], [16, 8, 3, 3, 3]],
  ] as const)('runs %s of %j and weights %j', async (op, x, w) => {
    const rank = Math.max(x.length, w.length);
    const file = onnx.product(
      op,
      [...w],
      [...x],
      Array.from({ length: rank }, (_, i) => `d${i}`),
    )();
    const data = onnx.weights(
      x.reduce((a: number, b) => a * b, 1),
      3,
      1,
    );
    const ranges = await statisticsOf(file, [{ x: { data, shape: x } }]);
    const made = await (await quantizeModel(file, { to: 'int8-static', ranges, workers: 0 })).bytes();
    const given = { x: new ort.Tensor('float32', data, x) };
    await expectLike(file, made, 0.999, { feeds: given });
  });

  // onnxruntime 1.30 does not load a Conv whose Clip its optimizer finds superfluous only when it joins the integers.
  it.each<[string, number, onnx.TestNode, number]>([
    ['a Clip with codes at both bounds', 11, { op: 'Clip', in: ['c', 'low', 'high'], out: ['a'] }, 0],
    ['attributes of a Clip', 9, { op: 'Clip', in: ['c'], out: ['a'], attributes: bounds(-0.7, 0.9) }, 0],
    ['a Clip that cuts between codes', 13, { op: 'Clip', in: ['c', 'between', 'high'], out: ['a'] }, 1],
  ])('runs with %s behind a Conv', async (_, opset, clip, clips) => {
    const file = onnx.model(
      {
        nodes: [{ op: 'Conv', in: ['x', 'w'], out: ['c'] }, clip, { op: 'Conv', in: ['a', 'w2'], out: ['y'] }],
        initializers: [
          onnx.floatTensor('w', [16, 8, 3, 3], 1, 0.3),
          onnx.floatTensor('w2', [16, 16, 1, 1], 4, 0.2),
          ...Object.entries({ low: -1.5, high: 1.5, between: 0.3 }).map(([name, value]) =>
            onnx.tensor({ name, dims: [], raw: onnx.floats([value]) }),
          ),
        ],
        inputs: [['x', [1, 8, 8, 8]]],
        outputs: [['y', [1, 16, 6, 6]]],
      },
      { opset },
    );
    const ranges = await statisticsOf(file, [image(9)]);
    const made = await (await quantizeModel(file, { to: 'int8-static', ranges, workers: 0 })).bytes();
    await expectLike(file, made, 0.999, { feeds: feeds(9), engines });
    expect((await nodesOf(made)).filter(({ opType }) => opType === 'Clip').length).toBe(clips);
  });

  // onnxruntime 1.30 does not load a Clip that it finds superfluous, overflows in a Softmax of integers that is nearly flat, and moves DequantizeLinear behind a Transpose, from where branches
  // do not find it.
  it.each<[string, number, readonly onnx.TestNode[]]>([
    [
      'a Clip behind a Concat',
      0.3,
      [
        { op: 'Concat', in: ['c', 'c'], out: ['cc'], attributes: { axis: 0 } },
        { op: 'Clip', in: ['cc', 'low', 'high'], out: ['clipped'] },
        { op: 'Slice', in: ['clipped', 'from', 'to'], out: ['a'] },
      ],
    ],
    ['a flat Softmax', 0.01, [{ op: 'Softmax', in: ['c'], out: ['a'], attributes: { axis: 1 } }]],
    [
      'a branch behind a Transpose',
      0.3,
      [
        { op: 'Transpose', in: ['c'], out: ['t'], attributes: { perm: [0, 1] } },
        { op: 'ReduceMax', in: ['t'], out: ['most'], attributes: { keepdims: 0 } },
        { op: 'Cast', in: ['most'], out: ['condition'], attributes: { to: 9 } },
        {
          op: 'If',
          in: ['condition'],
          out: ['a'],
          attributes: { then_branch: { graph: branch('Relu') }, else_branch: { graph: branch('Neg') } },
        },
      ],
    ],
  ])('runs with %s between products', async (_, spread, nodes) => {
    const file = onnx.model(
      {
        nodes: [{ op: 'MatMul', in: ['x', 'w'], out: ['c'] }, ...nodes, { op: 'MatMul', in: ['a', 'w2'], out: ['y'] }],
        initializers: [
          onnx.floatTensor('w', [32, 48], 1, spread),
          onnx.floatTensor('w2', [48, 40], 4, 0.2),
          onnx.tensor({ name: 'low', dims: [], raw: onnx.floats([-0.7]) }),
          onnx.tensor({ name: 'high', dims: [], raw: onnx.floats([0.9]) }),
          onnx.tensor({ name: 'from', type: 7, dims: [1], raw: onnx.int64s([0]) }),
          onnx.tensor({ name: 'to', type: 7, dims: [1], raw: onnx.int64s([16]) }),
        ],
        inputs: [['x', [16, 32]]],
        outputs: [['y', [16, 40]]],
      },
      { opset: 13 },
    );
    const x = { data: onnx.weights(512, 9, 1), shape: [16, 32] };
    const ranges = await statisticsOf(file, [{ x }]);
    const made = await (await quantizeModel(file, { to: 'int8-static', ranges, workers: 0 })).bytes();
    await expectLike(file, made, 0.999, { feeds: { x: new ort.Tensor('float32', x.data, x.shape) }, engines });
  });

  it.each(['Upsample', 'TopK', 'Scatter'])('runs in models of opset 9 that %s keeps from a newer one', async (op) => {
    const behind: Record<string, onnx.TestNode> = {
      Upsample: { op, in: ['y', 'scales'], out: ['z'] },
      TopK: { op, in: ['y'], out: ['z', 'i'], attributes: { k: 3 } },
      Scatter: { op, in: ['y', 'at', 'update'], out: ['z'] },
    };
    const old = onnx.model(
      {
        nodes: [
          { op: 'Conv', in: ['x', 'w', 'b'], out: ['c'] },
          { op: 'Relu', in: ['c'], out: ['y'] },
          behind[op] as onnx.TestNode,
          { op: 'Conv', in: ['z', 'w2', 'b2'], out: ['r'] },
        ],
        initializers: [
          onnx.floatTensor('w', [16, 8, 3, 3], 1, 0.2),
          onnx.floatTensor('b', [16], 2, 0.5),
          onnx.floatTensor('w2', [16, 16, 1, 1], 4, 0.2),
          onnx.floatTensor('b2', [16], 5, 0.5),
          onnx.tensor({ name: 'scales', dims: [4], raw: onnx.floats([1, 1, 2, 2]) }),
          onnx.tensor({ name: 'at', type: 7, dims: [1, 1, 1, 1], raw: onnx.int64s([0]) }),
          onnx.floatTensor('update', [1, 1, 1, 1]),
        ],
        inputs: [['x', [1, 8, 8, 8]]],
        outputs: [['r', [1, 16, 'h', 'w']]],
      },
      { opset: 9, ir: 4 },
    );
    const ranges = await statisticsOf(old);
    const { report, bytes } = await quantizeModel(old, { to: 'int8-static', ranges, workers: 0 });
    expect(report.notes.map(({ kind }) => kind)).toEqual(['floatActivations', 'runsOn']);
    await expectLike(old, await bytes(), 0.99, { feeds: feeds(9) });
  });

  it('runs in models of old versions, and leaves their biases', async () => {
    const old = onnx.model(
      {
        nodes: [
          { op: 'Conv', in: ['x', 'w', 'b'], out: ['y'] },
          // Means something else in version 13.
          { op: 'Softmax', in: ['y'], out: ['z'], attributes: { axis: 1 } },
        ],
        initializers: [onnx.floatTensor('w', [16, 8, 3, 3], 1, 0.2), onnx.floatTensor('b', [16], 2, 0.5)],
        inputs: [['x', [1, 8, 8, 8]]],
        outputs: [['z', [1, 16, 6, 6]]],
      },
      { opset: 9, ir: 4 },
    );
    const ranges = await statisticsOf(old);
    const made = await (await quantizeModel(old, { to: 'int8-static', ranges, workers: 0 })).bytes();
    await expectLike(old, made, 0.99, { feeds: feeds(9) });
  });

  it('takes an encoder', async () => {
    const file = encoderModel();
    const ids = Uint32Array.from({ length: 64 }, (_, i) => 5 + ((i * 7) % 23));
    const ranges = await calibrateModel(file, ids, { chunkSize: 16, ranges: true });
    const options = { to: 'int8-static', ranges, rules: [{ match: 'up', keep: true }], workers: 0 } as const;
    const { bytes, report } = await quantizeModel(file, options);
    const made = await bytes();
    expect(report.tensors.find(({ name }) => name === 'layer.0.up.weight')?.kept).toMatchObject({ kind: 'rule' });
    await expectLike(file, made, 0.95);
  });

  it.skipIf(samples === undefined)('takes sample models', async () => {
    for (const [name, input, shape] of [
      ['cnn_fp32', 'x', [1, 1, 8, 8]],
      ['onnxmlir_mnist', 'image', [1, 1, 28, 28]],
      ['onnxjs_mnist', 'Input3', [1, 1, 28, 28]],
    ] as const) {
      const file = new Uint8Array(await readFile(join(samples ?? '', `${name}.onnx`)));
      const size = shape.reduce((a: number, b) => a * b, 1);
      const image = (seed: number) => onnx.weights(size, seed, 1).map(Math.abs);
      const { inputs } = { inputs: (await ort.InferenceSession.create(file)).inputMetadata };
      expect(inputs.map((one) => one.name)).toEqual([input]);
      const data = [1, 2, 3, 4].map((seed) => ({ [input]: { data: image(seed), shape } }));
      const ranges = await statisticsOf(file, data);
      const made = await (await quantizeModel(file, { to: 'int8-static', ranges, workers: 0 })).bytes();
      const given = { [input]: new ort.Tensor('float32', image(5), shape) };
      await expectLike(file, made, 0.99, { feeds: given, what: name });
    }
  });

  it('needs ranges of the same model', async () => {
    const make = (options: object) => quantizeModel(network, { workers: 0, to: 'int8-static', ...options } as never);
    await expect(make({})).rejects.toMatchObject({ name: 'RangeError', option: 'ranges' });
    await expect(make({ ranges: {} })).rejects.toMatchObject({ name: 'TypeError', option: 'ranges' });
    const ranges = await statisticsOf(network);
    await expect(make({ to: 'q8', ranges })).rejects.toMatchObject({ name: 'RangeError', option: 'ranges' });
    const rules = [{ match: 'w1', to: 'int8-static' }];
    await expect(make({ to: 'q8', rules })).rejects.toMatchObject({ option: 'rules[0].to' });
    const single = onnx.model({
      nodes: [{ op: 'MatMul', in: ['u', 'w'], out: ['v'] }],
      initializers: [onnx.floatTensor('w', [48, 48])],
      inputs: [['u', [1, 48]]],
      outputs: [['v', [1, 48]]],
    });
    const work = quantizeModel(single, { to: 'int8-static', ranges, workers: 0 });
    await expect(work).rejects.toMatchObject({ code: 'BAD_FILE' });
    // Moments are no ranges, nor is a damaged file.
    const { moments } = await calibrateModel(single, [{ u: { data: onnx.weights(48), shape: [1, 48] } }], {
      moments: true,
    });
    await expect(make({ ranges: await moments?.blob() })).rejects.toMatchObject({ code: 'BAD_FILE' });
    const bytes = (await ranges.ranges?.bytes()) as Uint8Array<ArrayBuffer>;
    for (const length of [0, 7, 60, bytes.length - 1]) {
      await expect(make({ ranges: bytes.slice(0, length) })).rejects.toMatchObject({ code: 'BAD_FILE' });
    }
    const bad = bytes.slice();
    new DataView(bad.buffer).setFloat32(bad.length - 4, Number.NaN, true);
    await expect(make({ ranges: bad })).rejects.toMatchObject({ code: 'BAD_FILE', tensor: 'flat' });
    // Some ranges are enough for some products.
    const text = new TextDecoder('latin1').decode(bytes).replace('"y":', '"u":');
    const some = Uint8Array.from(text, (char) => char.charCodeAt(0));
    const { report } = await make({ ranges: some });
    expect(report.notes).toContainEqual(expect.objectContaining({ kind: 'noRanges', weights: ['w3'] }));
  });
});
