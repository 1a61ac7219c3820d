// Models with values that float16 cannot hold, and ones that only seem to have them.
import * as onnx from './encoder.js';

export interface Beyond {
  readonly file: Uint8Array<ArrayBuffer>;
  /** Nodes that have to compute in float32, by their outputs, in order. */
  readonly floats: readonly string[];
}

const scalar = (name: string, value: number) => onnx.tensor({ name, dims: [], raw: onnx.floats([value]) });
const vector = (name: string, values: readonly number[]) =>
  onnx.tensor({ name, dims: [values.length], raw: onnx.floats(values) });
const integers = (name: string, values: readonly number[]) =>
  onnx.tensor({ name, type: 7, dims: [values.length], raw: onnx.int64s(values) });
const op = (type: string, inputs: string, out: string, attributes: onnx.TestNode['attributes'] = {}): onnx.TestNode => {
  return { op: type, in: inputs.split(' ').map((name) => (name === '-' ? '' : name)), out: out.split(' '), attributes };
};

/** A product of x [3, 64] with a weight, nodes behind it, and a product whose result is the output. */
function between(
  nodes: readonly onnx.TestNode[],
  initializers: readonly onnx.Bytes[],
  { spread = 0.1, inputs = [] as readonly onnx.TestValue[], opset = 17 } = {},
): Uint8Array<ArrayBuffer> {
  return onnx.model(
    {
      nodes: [op('MatMul', 'x w', 'p'), ...nodes, op('MatMul', 'q v', 'y')],
      initializers: [onnx.floatTensor('w', [64, 48], 1, spread), onnx.floatTensor('v', [48, 32], 2), ...initializers],
      inputs: [['x', [3, 64]], ...inputs],
      outputs: [['y', [3, 32]]],
    },
    { opset },
  );
}

const channels = (value: (i: number) => number) => Array.from({ length: 32 }, (_, i) => value(i));

/** A convolution and a BatchNormalization of some statistics. `scale`: that of the convolution's results. */
function normalized(scale: number, variance: number, mean: number, epsilon: number): Uint8Array<ArrayBuffer> {
  return onnx.model(
    {
      nodes: [
        op('Conv', 'x w', 'c', { pads: [1, 1, 1, 1] }),
        op('BatchNormalization', 'c s b m v', 'n', { epsilon: { float: epsilon } }),
        op('Relu', 'n', 'y'),
      ],
      initializers: [
        onnx.floatTensor('w', [32, 16, 3, 3], 1, scale),
        vector(
          's',
          channels((i) => 0.5 + i / 32),
        ),
        vector(
          'b',
          channels((i) => (i % 5) / 10),
        ),
        vector(
          'm',
          channels((i) => mean * ((i % 3) - 1)),
        ),
        vector(
          'v',
          channels((i) => variance * (1 + i / 32)),
        ),
      ],
      inputs: [['x', [1, 16, 8, 8]]],
      outputs: [['y', [1, 32, 8, 8]]],
    },
    { opset: 11, ir: 6 },
  );
}

/** Models by what they have. */
export const beyond: Readonly<Record<string, Beyond>> = {
  'variances of 1e7': { file: normalized(1000, 1e7, 100, 1e-5), floats: ['n'] },
  'a mean of 1e5, which the convolution before reaches': { file: normalized(1000, 1e7, 1e5, 1e-5), floats: ['c', 'n'] },
  'variances of 1e-8 with an epsilon of 1e-9': { file: normalized(1e-4, 1e-8, 0, 1e-9), floats: ['n'] },
  // 1.4 MB, which are read in pieces.
  'a large weight with a number of 1e6': {
    file: (() => {
      const large = onnx.weights(600 * 600, 3);
      large[300_000] = 1e6;
      return onnx.model({
        nodes: [op('MatMul', 'x w', 'p'), op('MatMul', 'p v', 'q'), op('Relu', 'q', 'y')],
        initializers: [
          onnx.tensor({ name: 'w', dims: [600, 600], raw: onnx.rawOf(large) }),
          onnx.floatTensor('v', [600, 32], 2),
        ],
        inputs: [['x', [3, 600]]],
        outputs: [['y', [3, 32]]],
      });
    })(),
    floats: ['p', 'q', 'y'],
  },
  'power spectra, up to their logarithm': {
    file: onnx.model(
      {
        nodes: [
          op('Conv', 'x k', 'c', { strides: [128] }),
          op('Split', 'c sizes', 're im', { axis: 1 }),
          op('Pow', 're two', 'r2'),
          op('Mul', 'im im', 'i2'),
          op('Add', 'r2 i2', 'power'),
          op('Transpose', 'power', 'rows', { perm: [0, 2, 1] }),
          op('MatMul', 'rows mel', 'bands'),
          op('Clip', 'bands low', 'bounded'),
          op('Log', 'bounded', 'logs'),
          op('Relu', 'logs', 'y'),
        ],
        initializers: [
          onnx.floatTensor('k', [80, 1, 256], 1, 200),
          integers('sizes', [40, 40]),
          scalar('two', 2),
          onnx.tensor({ name: 'mel', dims: [40, 32], raw: onnx.rawOf(onnx.weights(1280, 3).map(Math.abs)) }),
          scalar('low', 1e-10),
        ],
        inputs: [['x', [1, 1, 2048]]],
        outputs: [['y', [1, 15, 32]]],
      },
      { opset: 13 },
    ),
    floats: ['c', 're', 'r2', 'i2', 'power', 'rows', 'bands', 'bounded', 'logs'],
  },
  'a vector of zeros, divided by its length': {
    file: between(
      [
        op('Mul', 'p zero', 'z'),
        op('ReduceL2', 'z', 'length', { axes: [1], keepdims: 1 }),
        op('Clip', 'length e', 'bounded'),
        op('Shape', 'z', 'shape'),
        op('Expand', 'bounded shape', 'wide'),
        op('Div', 'z wide', 'unit'),
        op('Add', 'unit p', 'q'),
      ],
      [scalar('zero', 0), scalar('e', 1e-12)],
    ),
    floats: ['length', 'bounded', 'wide', 'unit'],
  },
  'a logarithm of probabilities': {
    file: between(
      [op('Softmax', 'p', 's', { axis: -1 }), op('Add', 's e', 'bounded'), op('Log', 'bounded', 'q')],
      [scalar('e', 1e-12)],
      { spread: 4 },
    ),
    floats: ['s', 'bounded', 'q'],
  },
  'a large factor and its inverse': {
    file: between([op('Mul', 'p up', 'h'), op('Relu', 'h', 'r'), op('Div', 'r up', 'q')], [scalar('up', 1e6)]),
    floats: ['h', 'r', 'q'],
  },
  'a tiny factor and its inverse': {
    file: between([op('Mul', 'p down', 'h'), op('Relu', 'h', 'r'), op('Div', 'r down', 'q')], [scalar('down', 1e-8)]),
    floats: ['h', 'r', 'q'],
  },
  'weights of 1e-7 before a factor of 1e7': {
    file: between([op('Mul', 'p up', 'q')], [scalar('up', 1e7)], { spread: 1e-7 }),
    floats: ['p', 'q'],
  },
  'a bias of 1e5 that is taken off again': {
    file: between([op('Add', 'p b', 'h'), op('Sub', 'h b', 'q')], [scalar('b', 1e5)]),
    floats: ['h', 'q', 'y'],
  },
  'a choice of 1e6, whose least element counts': {
    file: between(
      [
        op('Greater', 'p zero', 'isPositive'),
        op('Where', 'isPositive p far', 'h'),
        op('ReduceMin', 'h', 'least', { axes: [1], keepdims: 1 }),
        op('Add', 'p least', 'q'),
      ],
      [scalar('zero', 0), scalar('far', 1e6)],
    ),
    floats: ['h', 'least', 'q', 'y'],
  },
  'a Softmax written with exponentials': {
    file: between(
      [op('Exp', 'p', 'e'), op('ReduceSum', 'e last', 'sum', { keepdims: 1 }), op('Div', 'e sum', 'q')],
      [integers('last', [1])],
      { spread: 3 },
    ),
    floats: ['e', 'sum', 'q'],
  },
  'pictures of 16 bits': {
    file: between(
      [op('Cast', 'picture', 'floats', { to: 1 }), op('Div', 'floats most', 'scaled'), op('Add', 'p scaled', 'q')],
      [scalar('most', 65535)],
      { inputs: [['picture', [3, 48], 4]] },
    ),
    floats: ['scaled'],
  },
  'a running sum, as a phase': {
    file: between(
      [op('CumSum', 'p axis', 'sum'), op('Mul', 'sum turn', 'phase'), op('Sin', 'phase', 'q')],
      [onnx.tensor({ name: 'axis', type: 7, dims: [], raw: onnx.int64s([1]) }), scalar('turn', 2 * Math.PI)],
      { spread: 0.02 },
    ),
    floats: ['phase', 'q'],
  },
};

const mask = (number: number, nodes: readonly onnx.TestNode[]) =>
  between([...nodes, op('Softmax', 'added', 'q', { axis: -1 })], [scalar('number', number), scalar('one', 1)], {
    inputs: [['mask', [3, 48]]],
  });
const rows = op('ReduceMax', 'p', 'top', { axes: [1], keepdims: 1 });

/** Models that lose nothing in float16. */
export const held: Readonly<Record<string, Uint8Array<ArrayBuffer>>> = {
  ...Object.fromEntries(
    [-1e4, -1e9, -3.4028234663852886e38].map((number) => [
      `a mask of ${number}`,
      mask(number, [op('Sub', 'one mask', 'off'), op('Mul', 'off number', 'm'), op('Add', 'p m', 'added')]),
    ]),
  ),
  'a mask by choice': mask(-1e9, [op('Greater', 'mask one', 'isOn'), op('Where', 'isOn p number', 'added')]),
  'a bound beyond float16': mask(-3.4028234663852886e38, [
    op('Max', 'p number', 'm'),
    op('Clip', 'm number', 'c'),
    op('Add', 'c mask', 'added'),
  ]),
  'a LayerNormalization written out, with an epsilon of 1e-12': between(
    [
      op('ReduceMean', 'p', 'mean', { axes: [1], keepdims: 1 }),
      op('Sub', 'p mean', 'd'),
      op('Pow', 'd two', 'd2'),
      op('ReduceMean', 'd2', 'variance', { axes: [1], keepdims: 1 }),
      op('Add', 'variance e', 'positive'),
      op('Sqrt', 'positive', 'deviation'),
      op('Div', 'd deviation', 'q'),
    ],
    [scalar('two', 2), scalar('e', 1e-12)],
  ),
  'a Softmax written out, of differences from the largest': between(
    [
      rows,
      op('Sub', 'p top', 'd'),
      op('Exp', 'd', 'e'),
      op('ReduceSum', 'e last', 'sum', { keepdims: 1 }),
      op('Div', 'e sum', 'q'),
    ],
    [integers('last', [1])],
  ),
  'a sigmoid written out': between(
    [op('Neg', 'p', 'n'), op('Exp', 'n', 'e'), op('Add', 'e one', 's'), op('Div', 'one s', 'q')],
    [scalar('one', 1)],
  ),
  'a layer scale that is nearly 0': between(
    [op('Mul', 'p tiny', 'h'), op('Add', 'h p', 'q')],
    [
      vector(
        'tiny',
        Array.from({ length: 48 }, () => 1e-6),
      ),
    ],
  ),
  'squares of a Relu before a product': between(
    [op('Relu', 'p', 'r'), op('Mul', 'r r', 's'), op('MatMul', 's u', 'h'), op('Add', 'h p', 'q')],
    [onnx.floatTensor('u', [48, 48], 3)],
  ),
};
