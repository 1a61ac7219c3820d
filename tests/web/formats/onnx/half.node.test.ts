// Graphs in float16 run in onnxruntime-web, with its optimizer and without, and give nearly what the float32 graph gives.
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { inspectModel, type PlanOptions, readTensor } from 'scalepoint/model';
import { describe, expect, it } from 'vitest';
import * as onnx from './encoder.js';
import { engines } from './node-engines.js';
import { expectLike, type Feeds, make, sileroFeeds } from './ort.js';

/** Holds a result against its model. */
async function check(file: Uint8Array, options: PlanOptions = { to: 'fp16' }, limit = 0.9999, feeds?: Feeds) {
  const result = await make(file, options);
  await expectLike(file, result.made, limit, { feeds });
  return result;
}

/** Types of nodes with a type, by what is in the file. */
const latin = (bytes: Uint8Array) => new TextDecoder('latin1').decode(bytes);
const casts = (bytes: Uint8Array) => latin(bytes).split('Cast').length - 1;

const unary: readonly [ops: string, from: number][] = [
  [
    'Abs Ceil Elu Exp Floor HardSigmoid Identity LeakyRelu LogSoftmax Neg Relu Selu Sigmoid Softmax Softplus Softsign Tanh Cos Sin Atan',
    7,
  ],
  ['Erf Sign Sinh Cosh Asinh', 9],
  ['ThresholdedRelu', 10],
  ['Round', 11],
  ['HardSwish', 14],
  ['Gelu', 20],
];
const binary = 'Add Sub Mul Div PRelu Sum Mean'.split(' ');

/** A graph in which each operator gives an output of its own. */
function everything(opset: number) {
  const nodes: onnx.TestNode[] = [{ op: 'Add', in: ['x', 'c'], out: ['a'] }];
  const outputs: onnx.TestValue[] = [];
  const shape = [2, 8, 6, 6];
  const add = (
    op: string,
    inputs: string[],
    attributes: onnx.TestNode['attributes'] = {},
    dims: readonly (number | string)[] = shape,
  ) => {
    const name = `${op}_${nodes.length}`;
    nodes.push({ op, in: inputs, out: [name], attributes });
    outputs.push([name, dims]);
  };
  for (const [ops, from] of unary) if (opset >= from) for (const op of ops.split(' ')) add(op, ['a']);
  for (const op of binary) add(op, ['a', 'c']);
  const any = ['p', 'q', 'r', 's'];
  for (const op of ['Log', 'Sqrt', 'Reciprocal']) {
    nodes.push({ op: 'Exp', in: ['a'], out: [`${op}_e`] });
    add(op, [`${op}_e`]);
  }
  add('Conv', ['a', 'conv', 'bias'], { pads: [1, 1, 1, 1] });
  add('ConvTranspose', ['a', 'conv', 'bias'], {}, any);
  add('BatchNormalization', ['a', 'bias', 'bias', 'bias', 'positive']);
  add('InstanceNormalization', ['a', 'bias', 'bias']);
  add('MaxPool', ['a'], { kernel_shape: [2, 2] }, any);
  add('AveragePool', ['a'], { kernel_shape: [2, 2] }, any);
  add('GlobalAveragePool', ['a'], {}, any);
  add('GlobalMaxPool', ['a'], {}, any);
  add('LRN', ['a'], { size: 3 });
  add('LpNormalization', ['a'], { axis: 1 });
  add('Transpose', ['a'], { perm: [0, 2, 3, 1] }, any);
  add('Concat', ['a', 'c2'], { axis: 1 }, any);
  add('Flatten', ['a'], {}, ['p', 'q']);
  add('MatMul', ['a', 'm']);
  add('Reshape', ['a', 'flat'], {}, ['p', 'q']);
  nodes.push({ op: 'Reshape', in: ['a', 'flat'], out: ['f'] });
  add('Gemm', ['f', 'g', 'bias'], { transB: 1 }, ['p', 'q']);
  add('Pow', ['a', 'two']);
  add('DepthToSpace', ['a'], { blocksize: 2 }, any);
  add('SpaceToDepth', ['a'], { blocksize: 2 }, any);
  add('Gather', ['a', 'i'], { axis: 1 }, any);
  add('Tile', ['a', 'tiles'], {}, any);
  if (opset < 18)
    for (const op of [
      'ReduceMean',
      'ReduceMax',
      'ReduceMin',
      'ReduceL1',
      'ReduceL2',
      'ReduceSumSquare',
      'ReduceLogSumExp',
    ])
      add(op, ['a'], { axes: [2, 3] }, any);
  else
    for (const op of ['ReduceMean', 'ReduceMax', 'ReduceL2', 'ReduceSumSquare', 'ReduceLogSumExp'])
      add(op, ['a', 'i'], {}, any);
  if (opset >= 13) {
    add('ReduceSum', ['a', 'i'], {}, any);
    add('Unsqueeze', ['a', 'i1'], {}, [...any, 't']);
    nodes.push({ op: 'Split', in: ['a', 'halves'], out: ['l', 'r'], attributes: { axis: 1 } });
  } else {
    add('ReduceSum', ['a'], { axes: [1] }, any);
    add('Unsqueeze', ['a'], { axes: [1] }, [...any, 't']);
    nodes.push({ op: 'Split', in: ['a'], out: ['l', 'r'], attributes: { axis: 1, split: [4, 4] } });
  }
  outputs.push(['l', any]);
  add('Mul', ['l', 'r'], {}, any);
  if (opset >= 8) add('Expand', ['a', 'wide'], {}, [...any, 't']);
  if (opset >= 8) add('Max', ['a', 'c']);
  if (opset >= 9) {
    nodes.push({ op: 'Greater', in: ['a', 'c'], out: ['gt'] });
    add('Where', ['gt', 'a', 'c']);
    nodes.push({ op: 'Shape', in: ['a'], out: ['shape'] }, { op: 'ConstantOfShape', in: ['shape'], out: ['zero'] });
    add('Add', ['zero', 'a']);
  }
  if (opset >= 11) {
    add('Clip', ['a', 'lo', 'hi']);
    add('Pad', ['a', 'pads', 'lo'], {}, any);
    add('Resize', ['a', 'none', 'scales'], {}, any);
    nodes.push({ op: 'TopK', in: ['a', 'k'], out: ['top', 'top_i'] });
    add('Neg', ['top'], {}, any);
    nodes.push(
      { op: 'ArgMax', in: ['a'], out: ['am'], attributes: { axis: 1 } },
      { op: 'Cast', in: ['am'], out: ['af'], attributes: { to: 1 } },
    );
    add('Mul', ['af', 'lo'], {}, any);
    add('CumSum', ['a', 'axis']);
    add('GatherElements', ['a', 'ge'], { axis: 0 }, any);
    add('Mod', ['a', 'hi'], { fmod: 1 });
    add('ScatterND', ['a', 'nd', 'upd']);
  } else add('Clip', ['a'], { min: { float: -0.5 }, max: { float: 0.5 } });
  if (opset >= 10) add('Slice', ['a', 'i1', 'two64', 'i1'], {}, any);
  if (opset >= 12) add('Einsum', ['a', 'm'], { equation: 'abcd,de->abce' });
  if (opset >= 14) add('Trilu', ['a']);
  if (opset >= 16) add('GridSample', ['a', 'grid'], {}, any);
  if (opset >= 17) add('LayerNormalization', ['a', 'six', 'six']);
  if (opset >= 21) add('GroupNormalization', ['a', 'bias', 'bias'], { num_groups: 2 });
  if (opset >= 23) add('RMSNormalization', ['a', 'six']);
  const scalar = (name: string, value: number) => onnx.tensor({ name, dims: [], raw: onnx.floats([value]) });
  const ints = (name: string, values: number[], dims = [values.length]) =>
    onnx.tensor({ name, type: 7, dims, raw: onnx.int64s(values) });
  const initializers = [
    onnx.floatTensor('c', shape, 2, 1),
    onnx.floatTensor('c2', shape, 3),
    onnx.floatTensor('conv', [8, 8, 3, 3], 4, 0.5),
    onnx.floatTensor('bias', [8], 5),
    onnx.floatTensor('six', [6], 9),
    onnx.tensor({ name: 'positive', dims: [8], raw: onnx.floats(Array(8).fill(0.7)) }),
    onnx.floatTensor('m', [6, 6], 6),
    onnx.floatTensor('g', [8, 288], 7),
    onnx.floatTensor('grid', [2, 3, 3, 2], 8, 0.5),
    onnx.floatTensor('upd', [1, 8, 6, 6], 10, 0.5),
    onnx.tensor({ name: 'scales', dims: [4], raw: onnx.floats([1, 1, 2, 2]) }),
    onnx.tensor({ name: 'none', dims: [0], raw: [] }),
    scalar('two', 2),
    scalar('lo', -0.5),
    scalar('hi', 0.5),
    ints('flat', [2, -1]),
    ints('i', [1, 3]),
    ints('i1', [1]),
    ints('two64', [5]),
    ints('tiles', [1, 2, 1, 1]),
    ints('wide', [2, 2, 8, 6, 6]),
    ints('halves', [4, 4]),
    ints('pads', [0, 0, 1, 1, 0, 0, 1, 1]),
    ints('k', [2]),
    ints('axis', [1], []),
    ints('nd', [1], [1, 1]),
    onnx.tensor({ name: 'ge', type: 7, dims: [1, 8, 6, 6], raw: onnx.int64s(Array(288).fill(1)) }),
  ];
  return onnx.model({ nodes, initializers, inputs: [['x', shape]], outputs }, { opset });
}

describe('operators', () => {
  it.each([7, 9, 11, 13, 17, 21, 23])('of opset %i', async (opset) => {
    await check(everything(opset));
  });
});

const w = onnx.floatTensor('w', [64, 48]);
const io = { inputs: [['x', [3, 64]]], outputs: [['y', [3, 48]]] } as const;

describe('what becomes of a graph', () => {
  it('has float16 between two casts, and in what is noted of values', async () => {
    const file = onnx.model({
      nodes: [
        { op: 'MatMul', in: ['x', 'w'], out: ['p'] },
        { op: 'Add', in: ['p', 'b'], out: ['s'] },
        { op: 'Relu', in: ['s'], out: ['y'] },
      ],
      initializers: [w, onnx.floatTensor('b', [48])],
      ...io,
      more: [...onnx.bytes(13, onnx.value(['p', [3, 48]])), ...onnx.bytes(13, onnx.value(['y', [3, 48]]))],
    });
    const { made, report } = await check(file);
    expect(casts(made)).toBe(2);
    expect((await readTensor(made, 'w')).dtype).toBe('F16');
    expect((await readTensor(made, 'b')).dtype).toBe('F16');
    expect(report.notes).toEqual([expect.objectContaining({ kind: 'runsOn' })]);
    const text = latin(made);
    // ValueInfoProto: name, then a type whose elem_type is 10.
    expect(text).toContain('\n\x01p\x12\x0e\n\x0c\x08\x0a');
  });

  it('says which nodes stay in float32', async () => {
    const { report } = await check(everything(17));
    expect(report.notes).toMatchObject([
      { kind: 'floatNodes', operators: { Resize: 1 } },
      { kind: 'beyondHalf' },
      { kind: 'runsOn' },
    ]);
  });

  it('has constants of nodes as float16', async () => {
    const file = onnx.model({
      nodes: [
        { op: 'Constant', in: [], out: ['k'], attributes: { value_float: { float: 0.3 } } },
        {
          op: 'Constant',
          in: [],
          out: ['t'],
          attributes: { value: { tensor: onnx.tensor({ dims: [], raw: onnx.floats([0.7]) }) } },
        },
        { op: 'Constant', in: [], out: ['v'], attributes: { value: { tensor: onnx.floatTensor('', [48]) } } },
        { op: 'MatMul', in: ['x', 'w'], out: ['p'] },
        { op: 'Mul', in: ['p', 'k'], out: ['q'] },
        { op: 'Add', in: ['q', 't'], out: ['r'] },
        { op: 'Add', in: ['r', 'v'], out: ['y'] },
      ],
      initializers: [w],
      ...io,
    });
    const { made } = await check(file);
    expect(latin(made)).not.toContain('Constant');
    expect((await inspectModel(made)).tensors.map(({ dtype }) => dtype)).toEqual(Array(4).fill('F16'));
  });

  it.each([3000, 1e6])('keeps positions, sizes and squares in float32, of values of %d', async (large) => {
    const file = onnx.model({
      nodes: [
        { op: 'Mul', in: ['x', 'large'], out: ['l'] },
        { op: 'ReduceMean', in: ['l'], out: ['mean'], attributes: { axes: [1] } },
        { op: 'Sub', in: ['l', 'mean'], out: ['d'] },
        { op: 'Pow', in: ['d', 'two'], out: ['sq'] },
        { op: 'ReduceMean', in: ['sq'], out: ['var'], attributes: { axes: [1] } },
        { op: 'Add', in: ['var', 'eps'], out: ['ve'] },
        { op: 'Sqrt', in: ['ve'], out: ['root'] },
        { op: 'Div', in: ['d', 'root'], out: ['scaled'] },
        // onnxruntime makes one node of all this, whose types have to be the same.
        { op: 'Mul', in: ['scaled', 'factors'], out: ['multiplied'] },
        { op: 'Add', in: ['multiplied', 'offsets'], out: ['normal'] },
        { op: 'MatMul', in: ['normal', 'w'], out: ['n'] },
        { op: 'Shape', in: ['i'], out: ['shape'] },
        { op: 'Cast', in: ['i'], out: ['pos'], attributes: { to: 1 } },
        { op: 'Mul', in: ['pos', 'third'], out: ['angle'] },
        { op: 'Sin', in: ['angle'], out: ['sin'] },
        { op: 'Cast', in: ['shape'], out: ['sf'], attributes: { to: 1 } },
        { op: 'Mul', in: ['sf', 'half'], out: ['sh'] },
        { op: 'Cast', in: ['sh'], out: ['si'], attributes: { to: 7 } },
        { op: 'Expand', in: ['sin', 'si2'], out: ['e'] },
        { op: 'Concat', in: ['one', 'si'], out: ['si2'], attributes: { axis: 0 } },
      ].sort((a, b) => Number(a.op === 'Expand') - Number(b.op === 'Expand')),
      initializers: [
        ...(['large', 'two', 'eps', 'third', 'half'] as const).map((name) => {
          const value = { large, two: 2, eps: 1e-12, third: 1.234, half: 1 }[name];
          return onnx.tensor({ name, dims: [], raw: onnx.floats([value]) });
        }),
        onnx.floatTensor('w', [64, 64]),
        onnx.floatTensor('factors', [64], 2, 1),
        onnx.floatTensor('offsets', [64], 3, 1),
        onnx.tensor({ name: 'one', type: 7, dims: [1], raw: onnx.int64s([2]) }),
        onnx.tensor({ name: 'i', type: 7, dims: [3], raw: onnx.int64s([2049, 30001, 60003]) }),
      ],
      inputs: [['x', [3, 64]]],
      outputs: [
        ['n', [3, 64]],
        ['e', [2, 3]],
      ],
    });
    const { made } = await make(file, { to: 'fp16' });
    await expectLike(file, made, 0.9999, { engines });
  });

  it('clamps numbers beyond float16, says how many, and has no zero for an epsilon', async () => {
    const file = onnx.model({
      nodes: [
        { op: 'Add', in: ['x', 'mask'], out: ['m'] },
        { op: 'Softmax', in: ['m'], out: ['s'], attributes: { axis: 1 } },
        { op: 'Mul', in: ['s', 'w'], out: ['y'] },
        { op: 'Add', in: ['y', 'eps'], out: ['z'] },
      ],
      initializers: [
        onnx.tensor({
          name: 'mask',
          dims: [2, 64],
          raw: onnx.floats([...Array(100).fill(0), ...Array(28).fill(-3.4e38)]),
        }),
        onnx.tensor({ name: 'eps', dims: [3, 1, 1, 1], raw: onnx.floats([1e-12, -1e-12, 0]) }),
        onnx.floatTensor('w', [16, 1, 64]),
      ],
      inputs: [['x', [2, 64]]],
      outputs: [
        ['y', [16, 2, 64]],
        ['z', [3, 16, 2, 64]],
      ],
    });
    const { made, report } = await check(file);
    expect(report.notes).toMatchObject([
      { kind: 'runsOn', webgpu: 'needsFloat16' },
      { text: '28 numbers are beyond F16 and became its largest one: "mask"' },
    ]);
    expect(report.tensors.find(({ name }) => name === 'mask')?.error?.saturated).toBe(28);
    expect((await readTensor(made, 'mask')).data.at(-1)).toBe(0xfbff);
    expect([...(await readTensor(made, 'eps')).data]).toEqual([1, 0x8001, 0]);
  });

  it('has all outputs of a normalization of a sum', async () => {
    const ones = onnx.tensor({ name: 'g', dims: [48], raw: onnx.floats(Array(48).fill(1.1)) });
    for (const op of ['SkipSimplifiedLayerNormalization', 'SkipLayerNormalization']) {
      const file = onnx.model(
        {
          nodes: [
            { op: 'MatMul', in: ['x', 'w'], out: ['p'] },
            { op, domain: 'com.microsoft', in: ['p', 'b', 'g'], out: ['n', '', '', 's'] },
            { op: 'Add', in: ['n', 's'], out: ['y'] },
          ],
          initializers: [w, onnx.floatTensor('b', [3, 48], 2, 1), ones],
          ...io,
        },
        { imports: { 'com.microsoft': 1 } },
      );
      const { report, made } = await check(file);
      expect(report.notes).toEqual([expect.objectContaining({ kind: 'runsOn' })]);
      expect(casts(made)).toBe(2);
    }
  });

  // onnxruntime for Node crashes otherwise: see engines.node.test.ts.
  it('moves batches in front of a product in float32', async () => {
    const turn = (from: string, to: string, perm: number[]): onnx.TestNode => {
      return { op: 'Transpose', in: [from], out: [to], attributes: { perm } };
    };
    const cases: [x: number[], y: number[], moved: onnx.TestNode[]][] = [
      [[2, 3, 64], [3, 2, 48], [turn('x', 't', [1, 0, 2])]],
      [[64, 3, 2], [3, 2, 48], [turn('x', 't', [1, 2, 0])]],
      [[2, 3, 5, 64], [3, 5, 2, 48], [turn('x', 't', [1, 2, 0, 3])]],
      [
        [2, 3, 64],
        [3, 2, 48],
        [turn('x', 'u', [0, 2, 1]), turn('u', 'v', [2, 0, 1]), { op: 'Identity', in: ['v'], out: ['t'] }],
      ],
    ];
    for (const [x, y, moved] of cases) {
      const file = onnx.model({
        nodes: [...moved, { op: 'MatMul', in: ['t', 'w'], out: ['y'] }],
        initializers: [w],
        inputs: [['x', x]],
        outputs: [['y', y]],
      });
      const { made } = await check(file);
      for (const node of moved) expect(Buffer.from(made).includes(Buffer.from(onnx.node(node)))).toBe(true);
    }
    const heads = turn('x', 't', [0, 2, 1]);
    const file = onnx.model({
      nodes: [heads, { op: 'MatMul', in: ['t', 'w'], out: ['y'] }],
      initializers: [w],
      inputs: [['x', [2, 64, 3]]],
      outputs: [['y', [2, 3, 48]]],
    });
    expect(Buffer.from((await check(file)).made).includes(Buffer.from(onnx.node(heads)))).toBe(false);
  });

  it('leaves readers of weights that a rule keeps in float32', async () => {
    const file = onnx.model({
      nodes: [
        { op: 'MatMul', in: ['x', 'w'], out: ['p'] },
        { op: 'Transpose', in: ['v'], out: ['t'], attributes: { perm: [1, 0] } },
        { op: 'MatMul', in: ['p', 't'], out: ['y'] },
      ],
      initializers: [w, onnx.floatTensor('v', [48, 48], 2)],
      ...io,
    });
    for (const to of ['fp16', 'q4f16'] as const) {
      const { made } = await check(file, { to, rules: [{ match: /^v$/, keep: true }] }, to === 'fp16' ? 0.9999 : 0.98);
      expect((await readTensor(made, 'v')).dtype).toBe('F32');
    }
    await check(file, { to: 'fp16', rules: [{ match: /^v$/, to: 'int8-weights' }] }, 0.999);
  });
});

describe('graphs inside of graphs', () => {
  const body = (nodes: onnx.TestNode[], inputs: onnx.TestValue[], outputs: onnx.TestValue[]) => ({
    graph: onnx.graph({ nodes, inputs, outputs, initializers: [onnx.floatTensor('inner', [48, 48], 7, 0.3)] }),
  });
  const one = onnx.tensor({ name: 'count', type: 7, dims: [], raw: onnx.int64s([3]) });
  const yes = onnx.tensor({ name: 'yes', type: 9, dims: [], raw: [1] });

  const files = {
    If: onnx.model({
      nodes: [
        { op: 'MatMul', in: ['x', 'w'], out: ['p'] },
        {
          op: 'If',
          in: ['yes'],
          out: ['q'],
          attributes: {
            then_branch: body([{ op: 'MatMul', in: ['p', 'inner'], out: ['b'] }], [], [['b', [3, 48]]]),
            else_branch: body([{ op: 'Identity', in: ['p'], out: ['b'] }], [], [['b', [3, 48]]]),
          },
        },
        { op: 'Relu', in: ['q'], out: ['y'] },
      ],
      initializers: [w, yes],
      ...io,
    }),
    Loop: onnx.model({
      nodes: [
        { op: 'MatMul', in: ['x', 'w'], out: ['p'] },
        {
          op: 'Loop',
          in: ['count', 'yes', 'p'],
          out: ['q', 'all'],
          attributes: {
            body: body(
              [
                { op: 'MatMul', in: ['state', 'inner'], out: ['next'] },
                { op: 'Add', in: ['next', 'p'], out: ['each'] },
                { op: 'Identity', in: ['go'], out: ['on'] },
              ],
              [
                ['i', [], 7],
                ['go', [], 9],
                ['state', [3, 48]],
              ],
              [
                ['on', [], 9],
                ['next', [3, 48]],
                ['each', [3, 48]],
              ],
            ),
          },
        },
        { op: 'Relu', in: ['q'], out: ['y'] },
        { op: 'Tanh', in: ['all'], out: ['z'] },
      ],
      initializers: [w, one, yes],
      inputs: io.inputs,
      outputs: [
        ['y', [3, 48]],
        ['z', [3, 3, 48]],
      ],
    }),
    Scan: onnx.model({
      nodes: [
        { op: 'MatMul', in: ['x', 'w'], out: ['p'] },
        {
          op: 'Scan',
          in: ['start', 'p'],
          out: ['q', 'all'],
          attributes: {
            num_scan_inputs: 1,
            body: body(
              [
                { op: 'Add', in: ['state', 'row'], out: ['sum'] },
                { op: 'MatMul', in: ['sum', 'inner'], out: ['next'] },
                { op: 'Identity', in: ['next'], out: ['each'] },
              ],
              [
                ['state', [48]],
                ['row', [48]],
              ],
              [
                ['next', [48]],
                ['each', [48]],
              ],
            ),
          },
        },
        { op: 'Relu', in: ['q'], out: ['y'] },
        { op: 'Tanh', in: ['all'], out: ['z'] },
      ],
      initializers: [w, onnx.floatTensor('start', [48], 9)],
      inputs: io.inputs,
      outputs: [
        ['y', [48]],
        ['z', [3, 48]],
      ],
    }),
  };
  const limits = {
    fp16: 0.9999,
    q4f16: 0.98,
    'int8-weights': 0.999,
    'uint8-weights': 0.999,
    q8: 0.99,
    int8: 0.99,
    uint8: 0.99,
    q4: 0.98,
    q2: 0.7,
    'q8-blocks': 0.999,
    bnb4: 0.98,
  } as const;
  const cases = Object.keys(files).flatMap((op) =>
    (Object.keys(limits) as (keyof typeof limits)[]).map((to) => [op as keyof typeof files, to] as const),
  );
  it.each(cases)('%s as %s', async (op, to) => {
    const { report } = await check(files[op], { to }, limits[to]);
    const converted = report.tensors.filter(({ kept, shape }) => kept === undefined && shape.length === 2);
    expect(converted.map(({ name }) => name).join()).toMatch(/inner/);
    expect(converted.length).toBeGreaterThanOrEqual(2);
  });
});

const samples = process.env.SCALEPOINT_SAMPLES;
describe.runIf(samples !== undefined && existsSync(samples))('sample models', () => {
  const files = ['cnn_fp32', 'onnxmlir_mnist', 'onnxjs_mnist', 'tract_keras_example', 'silero_vad_16k_op15'];
  const cases = files.flatMap((name) => (['fp16', 'q4f16'] as const).map((to) => [name, to] as const));
  it.each(cases)('%s as %s', async (name, to) => {
    const file = new Uint8Array(readFileSync(join(samples as string, `${name}.onnx`)));
    await check(file, { to }, to === 'fp16' ? 0.9999 : 0.98, name.startsWith('silero') ? sileroFeeds : undefined);
  });
});
