// Graphs that no exporter writes: many nodes, chains that fork again and again, operators with the names of members of JavaScript's objects.
import { calibrateModel, inspectModel, planModel, quantizeModel, readFloats, readTensor } from 'scalepoint/model';
import { describe, expect, it } from 'vitest';
import { expectProportional } from '../../support/growth.js';
import * as onnx from './encoder.js';
import { expectLike, make } from './ort.js';

const targets = ['fp16', 'int8-weights', 'int4-weights', 'q4', 'q8'] as const;
type To = NonNullable<Parameters<typeof planModel>[1]>['to'];

/** A product of x and w, and behind it more nodes, the last of which gives y. */
const behindProduct = (nodes: readonly onnx.TestNode[], y: string, more: onnx.Bytes = []) =>
  onnx.model(
    {
      nodes: [{ op: 'MatMul', in: ['x', 'w'], out: ['p'] }, ...nodes],
      initializers: [onnx.floatTensor('w', [64, 64])],
      inputs: [['x', [1, 64]]],
      outputs: [[y, [1, 64]]],
      more,
    },
    { opset: 12 },
  );
const convertedOf = async (file: Uint8Array<ArrayBuffer>, to: To) =>
  (await planModel(file, { to })).tensors.flatMap(({ name, kept }) => (kept === undefined ? [name] : []));

describe('a graph', () => {
  it('may have more nodes than a call takes arguments', async () => {
    const [one, count] = [onnx.bytes(1, onnx.node({ op: 'Relu', in: ['p'], out: ['r'] })), 140_000];
    const more = new Uint8Array(count * one.length);
    for (let i = 0; i < count; i++) more.set(one, i * one.length);
    expect(await convertedOf(behindProduct([], 'p', more), 'q4')).toEqual(['w']);
  });

  /** A product behind which many others read the same weight. */
  function manyReaders(count: number): Uint8Array<ArrayBuffer> {
    const nodes = Array.from({ length: count }, (_, i) => onnx.node({ op: 'MatMul', in: ['p', 'w'], out: [`y${i}`] }));
    return behindProduct([], 'p', new Uint8Array(Buffer.concat(nodes.map((one) => onnx.bytes(1, one) as Uint8Array))));
  }
  it.each(['q4', 'q8', 'int8', 'uint8', 'int8-weights', 'q8-blocks', 'bnb4'] as const)(
    'may have thousands of nodes that read one weight, which becomes %s',
    async (to) => {
      await expectProportional((n) => {
        const file = manyReaders(n);
        return async () => expect(await convertedOf(file, to)).toEqual(['w']);
      }, 1000);
    },
  );

  it('may have more nodes that read one weight than a call takes arguments', async () => {
    const x = { data: new Float32Array(64).fill(1), shape: [1, 64] };
    expect((await calibrateModel(manyReaders(140_000), [{ x }])).weights).toEqual(['w']);
  });

  it('may have paths from a weight that fork again and again', async () => {
    const forks = Array.from({ length: 40 }, (_, i) => {
      return {
        op: 'Concat',
        in: [i === 0 ? 'w' : `${i}`, i === 0 ? 'w' : `${i}`],
        out: [`${i + 1}`],
        attributes: { axis: 0 },
      };
    });
    for (const to of ['q4', 'q8'] as const) expect(await convertedOf(behindProduct(forks, 'p'), to)).toEqual(['w']);
  });

  it.each(['__proto__', 'constructor', 'toString'])('may have an operator called %s', async (op) => {
    for (const to of targets) {
      const file = behindProduct([{ op, in: ['p'], out: ['y'], attributes: { mode: op } }], 'y');
      expect(await convertedOf(file, to), to).toEqual(['w']);
    }
    const sampling = behindProduct([{ op: 'GridSample', in: ['p', 'p'], out: ['y'], attributes: { mode: op } }], 'y');
    expect(await convertedOf(sampling, 'int4-weights')).toEqual(['w']);
  });

  it('may say no version of its operators', async () => {
    const main = onnx.graph({
      nodes: [{ op: 'MatMul', in: ['x', 'w'], out: ['y'] }],
      initializers: [onnx.floatTensor('w', [64, 64])],
      inputs: [['x', [1, 64]]],
      outputs: [['y', [1, 64]]],
    });
    const { tensors } = await planModel(Uint8Array.from([...onnx.int(1, 8), ...onnx.bytes(7, main)]), {
      to: 'int4-weights',
    });
    expect(tensors).toMatchObject([{ kept: { kind: 'noOpset' } }]);
  });

  it('may have a field for each of many floats', async () => {
    await expectProportional((n) => {
      const more = Uint8Array.from({ length: 5 * n }, (_, i) => (i % 5 === 0 ? (4 << 3) | 5 : 0));
      const initializers = [onnx.tensor({ name: 'w', dims: [n], more })];
      const file = onnx.model({ nodes: [], initializers, inputs: [['x', [1]]], outputs: [['x', [1]]] });
      return async () => expect((await inspectModel(file)).tensors).toMatchObject([{ name: 'w', bytes: 4 * n }]);
    }, 4000);
  });
});

describe('a weight of a function', () => {
  // The attribute of the function says whether the weight is transposed.
  const open = onnx.bytes(5, [...onnx.text(1, 'transB'), ...onnx.int(20, 2), ...onnx.text(21, 'swapped')]);
  it.each([
    ['is converted if its node tells everything', [], undefined],
    ['is kept if an attribute of its node is that of the function', open, 'openAttributes'],
  ])('%s', async (_what, more, kept) => {
    const value = { tensor: onnx.tensor({ dims: [64, 48], raw: onnx.rawOf(onnx.weights(64 * 48)) }) };
    const body = [
      onnx.node({ op: 'Constant', in: [], out: ['w'], attributes: { value } }),
      onnx.node({ op: 'Gemm', in: ['x', 'w'], out: ['y'], more }),
    ];
    const local = [
      ...[...onnx.text(1, 'F'), ...onnx.text(4, 'x'), ...onnx.text(5, 'y'), ...onnx.text(10, 'local')],
      ...body.flatMap((node) => [...onnx.bytes(7, node)]),
      ...onnx.bytes(9, onnx.int(2, 17)),
    ];
    const file = onnx.model(
      {
        nodes: [{ op: 'F', domain: 'local', in: ['x'], out: ['y'] }],
        inputs: [['x', [1, 64]]],
        outputs: [['y', [1, 48]]],
      },
      { imports: { local: 1 }, more: onnx.bytes(25, local) },
    );
    for (const to of ['q4', 'q8'] as const) {
      expect(
        (await planModel(file, { to })).tensors.map(({ name, kept }) => [name, kept?.kind]),
        to,
      ).toEqual([['F/w', kept]]);
    }
  });
});

describe('a weight that goes into functions, as torch.onnx.dynamo_export wrote modules', () => {
  const local = (name: string, inputs: string[], output: string, nodes: readonly onnx.Bytes[]) =>
    onnx.bytes(25, [
      ...[...onnx.text(1, name), ...inputs.flatMap((input) => [...onnx.text(4, input)]), ...onnx.text(5, output)],
      ...[...nodes.flatMap((node) => [...onnx.bytes(7, node)])],
      ...[...onnx.bytes(9, onnx.int(2, 17)), ...onnx.bytes(9, [...onnx.text(1, 'local'), ...onnx.int(2, 1)])],
      ...onnx.text(10, 'local'),
    ]);
  const call = (op: string, inputs: string[], output: string): onnx.TestNode => {
    return { op, domain: 'local', in: inputs, out: [output] };
  };
  const alpha = onnx.bytes(5, [...onnx.text(1, 'alpha'), ...onnx.int(20, 1), ...onnx.text(21, 'factor')]);
  const functions = [
    local('turn', ['v'], 'r', [onnx.node({ op: 'Transpose', in: ['v'], out: ['r'], attributes: { perm: [1, 0] } })]),
    local('multiply', ['a', 'b'], 'c', [onnx.node({ op: 'Gemm', in: ['a', 'b'], out: ['c'] })]),
    local('Linear', ['a', 'weight'], 'c', [
      onnx.node(call('turn', ['weight'], 't')),
      onnx.node(call('multiply', ['a', 't'], 'c')),
    ]),
  ];
  const file = onnx.model(
    {
      nodes: [call('Linear', ['x', 'w'], 'h'), call('Linear', ['h', 'v'], 'y')],
      initializers: [onnx.floatTensor('w', [48, 64]), onnx.floatTensor('v', [32, 48], 2)],
      inputs: [['x', [3, 64]]],
      outputs: [['y', [3, 32]]],
    },
    { imports: { local: 1 }, more: functions.flatMap((one) => [...one]) },
  );

  it.each(['int8-weights', 'uint8-weights', 'int4-weights', 'q8'] as const)(
    'becomes codes in front of them: %s',
    async (to) => {
      const { report, made } = await make(file, { to });
      expect(report.tensors.map(({ kept }) => kept)).toEqual([undefined, undefined]);
      // Channels are those of the product, behind two functions and a Transpose.
      if (to === 'int8-weights') expect((await readTensor(made, 'w_scale')).shape).toEqual([48]);
      await expectLike(file, made, to === 'int4-weights' ? 0.98 : 0.999);
    },
  );

  it('becomes no blocks of operators', async () => {
    const { tensors, notes } = await planModel(file, { to: 'bnb4' });
    expect(tensors).toMatchObject(Array(2).fill({ kept: { kind: 'inFunction', operator: 'Gemm' } }));
    expect(notes).toMatchObject([{ kind: 'littleConverted' }, { kind: 'nothingConverted', why: 'inFunctions' }]);
    // DequantizeLinear stays outside.
    const { tensors: restored } = await planModel(file, { to: 'q4' });
    expect(restored.map(({ kept }) => kept)).toEqual([undefined, undefined]);
  });

  it('may be multiplied with an attribute, which does not matter', async () => {
    const scaled = local('scaled', ['a', 'b'], 'c', [
      onnx.node({ op: 'Gemm', in: ['a', 'b'], out: ['c'], more: alpha }),
    ]);
    const other = onnx.model(
      {
        nodes: [{ ...call('scaled', ['x', 'w'], 'y'), attributes: { factor: { float: 1 } } }],
        initializers: [onnx.floatTensor('w', [64, 48])],
        inputs: [['x', [3, 64]]],
        outputs: [['y', [3, 48]]],
      },
      { imports: { local: 1 }, more: scaled },
    );
    expect((await planModel(other, { to: 'int8-weights' })).tensors.map(({ kept }) => kept)).toEqual([undefined]);
  });

  it('stays where a function gives it to its caller', async () => {
    const value = { tensor: onnx.floatTensor('', [64, 64]) };
    const giving = local('giving', ['a'], 'w', [
      onnx.node({ op: 'Constant', in: [], out: ['w'], attributes: { value } }),
      onnx.node({ op: 'MatMul', in: ['a', 'w'], out: ['unused'] }),
    ]);
    const other = onnx.model(
      { nodes: [call('giving', ['x'], 'y')], inputs: [['x', [3, 64]]], outputs: [['y', [64, 64]]] },
      { imports: { local: 1 }, more: giving },
    );
    expect((await planModel(other, { to: 'q4' })).tensors).toMatchObject([{ kept: { kind: 'output' } }]);
  });
});

describe('the weights of an LSTM', () => {
  it('become codes together if both become the same, whatever it is called', async () => {
    const file = onnx.model({
      nodes: [
        { op: 'MatMul', in: ['x', 'a'], out: ['p'] },
        { op: 'LSTM', in: ['p', 'w', 'r'], out: ['y'], attributes: { hidden_size: 32 } },
      ],
      initializers: [
        onnx.floatTensor('a', [40, 40]),
        onnx.floatTensor('w', [1, 128, 40], 2),
        onnx.floatTensor('r', [1, 128, 32], 3),
      ],
      inputs: [['x', [5, 2, 40]]],
      outputs: [['y', [5, 1, 2, 32]]],
    });
    // Without convolutions and attention, q8 is symmetric, as int8 is.
    for (const rules of [[], [{ match: /^[wr]$/, to: 'int8' as const }], [{ match: /^r$/, to: 'int8' as const }]]) {
      const made = await (await quantizeModel(file, { to: 'q8', rules, workers: 0 })).bytes();
      expect(new TextDecoder('latin1').decode(made)).toContain('DynamicQuantizeLSTM');
    }
    const rules = [{ match: /^r$/, to: 'uint8' as const }];
    const made = await (await quantizeModel(file, { to: 'q8', rules, workers: 0 })).bytes();
    expect(new TextDecoder('latin1').decode(made)).not.toContain('DynamicQuantizeLSTM');
  });
});

describe('numbers that are not finite', () => {
  /** A product, a bias, a norm, and a mask in front of a Softmax: as it is, and as rows of a table. */
  const graph = (values: Readonly<Record<string, number>>) => {
    const tensor = (name: string, dims: readonly number[], seed: number) => {
      const data = onnx.weights(
        dims.reduce((a, b) => a * b, 1),
        seed,
      );
      if (values[name] !== undefined) data[5] = values[name];
      return onnx.tensor({ name, dims, raw: onnx.rawOf(data) });
    };
    return onnx.model(
      {
        nodes: [
          { op: 'MatMul', in: ['x', 'w'], out: ['p'] },
          { op: 'Add', in: ['p', 'b'], out: ['s'] },
          { op: 'LayerNormalization', in: ['s', 'norm'], out: ['n'] },
          { op: 'Gather', in: ['table', 'i'], out: ['rows'] },
          { op: 'Add', in: ['n', 'rows'], out: ['m'] },
          { op: 'Add', in: ['m', 'mask'], out: ['o'] },
          { op: 'Softmax', in: ['o'], out: ['y'] },
          { op: 'Gather', in: ['words', 'i'], out: ['z'] },
        ],
        initializers: [
          tensor('w', [64, 64], 1),
          tensor('b', [64], 2),
          tensor('norm', [64], 3),
          tensor('table', [32, 64], 4),
          tensor('mask', [3, 64], 5),
          tensor('words', [32, 64], 6),
        ],
        inputs: [
          ['x', [3, 64]],
          ['i', [3], 7],
        ],
        outputs: [
          ['y', [3, 64]],
          ['z', [3, 64]],
        ],
      },
      { opset: 17 },
    );
  };

  it.each([
    ['w', NaN],
    ['w', Infinity],
    ['norm', NaN],
    ['norm', -Infinity],
    ['words', Infinity],
    ['b', NaN],
    ['mask', NaN],
  ])('are errors in %s: %d', async (name, value) => {
    const file = graph({ [name]: value });
    // The bias and the norm stay floats in both, the weights in the first.
    for (const to of ['fp16', 'q8-blocks'] as const) {
      const error = await quantizeModel(file, { to, workers: 0 }).catch((one: unknown) => one);
      expect(error, to).toMatchObject({ code: 'NON_FINITE', tensor: name });
    }
    const { report, bytes } = await quantizeModel(file, { to: 'fp16', nonFinite: 'keep', workers: 0 });
    const note = { kind: 'nonFinite', tensors: [name], count: 1 };
    const isMask = name === 'b' || name === 'mask';
    expect(report.notes.filter(({ kind }) => kind === 'nonFinite')).toMatchObject(isMask ? [] : [note]);
    expect((await readFloats(await bytes(), name)).data[5]).toBe(value);
    // A rule keeps it by name.
    await quantizeModel(file, { to: 'q8-blocks', rules: [{ match: name, keep: true }], workers: 0 });
  });

  it('may be infinities in masks', async () => {
    const file = graph({ mask: -Infinity, table: -Infinity });
    const { report, bytes } = await quantizeModel(file, { to: 'fp16', workers: 0 });
    expect(report.notes.map(({ kind }) => kind)).not.toContain('nonFinite');
    for (const name of ['mask', 'table']) expect((await readFloats(await bytes(), name)).data[5]).toBe(-Infinity);
  });
});
