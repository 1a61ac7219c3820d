// Gemm with factors and with a first input that is transposed, as blocks: onnxruntime's products with blocks have none of this.
import * as web from 'onnxruntime-web';
import { compareModels, inspectModel, type ModelTarget, planModel, quantizeModel } from 'scalepoint/model';
import { describe, expect, it } from 'vitest';
import * as onnx from './encoder.js';
import { engines } from './node-engines.js';
import { difference, type Engine, expectLike, type Feeds, levels, run } from './ort.js';

interface Case {
  readonly attributes: NonNullable<onnx.TestNode['attributes']>;
  /** The shape of C. Undefined: there is none. */
  readonly c?: readonly number[];
  /** The value of all elements of C. */
  readonly value?: number;
}

const ofC = ({ c = [], value }: Case) => {
  const values = onnx.weights(
    c.reduce((a, b) => a * b, 1),
    5,
    1,
  );
  return value === undefined ? values : values.fill(value);
};

/** A Gemm of [3, 64] by [64, 48]. @param taken names of tensors that nobody reads */
function gemm(asked: Case, taken: readonly string[] = []) {
  const { attributes, c } = asked;
  return onnx.model(
    {
      nodes: [{ op: 'Gemm', name: 'g', in: ['x', 'w', ...(c === undefined ? [] : ['c'])], out: ['y'], attributes }],
      initializers: [
        onnx.floatTensor('w', attributes.transB === 1 ? [48, 64] : [64, 48]),
        ...(c === undefined ? [] : [onnx.tensor({ name: 'c', dims: c, raw: onnx.rawOf(ofC(asked)) })]),
        ...taken.map((name) => onnx.floatTensor(name, [1])),
      ],
      inputs: [['x', attributes.transA === 1 ? [64, 3] : [3, 64]]],
      outputs: [['y', [3, 48]]],
    },
    { opset: 21 },
  );
}

const x = onnx.weights(3 * 64, 100, 1);
const plainFeeds: Feeds = { x: new web.Tensor('float32', x, [3, 64]) };
const turnedFeeds: Feeds = {
  x: new web.Tensor(
    'float32',
    Float32Array.from(x, (_, i) => x[(i % 3) * 64 + Math.floor(i / 3)] as number),
    [64, 3],
  ),
};

/** The output of a Gemm from a product. */
function finished(product: Float32Array, asked: Case): Float32Array {
  const [alpha, beta] = (['alpha', 'beta'] as const).map((name) => {
    const factor = asked.attributes[name] as { float: number } | undefined;
    return Math.fround(factor?.float ?? 1);
  }) as [number, number];
  const [c, rows] = [ofC(asked), asked.c?.[0] === 3];
  const added = (i: number) =>
    asked.c === undefined || beta === 0 ? 0 : beta * (c[rows ? Math.floor(i / 48) : i % 48] as number);
  return product.map((value, i) => alpha * value + added(i));
}

const products = new Map<string, Promise<Float32Array>>();
/** The product alone, by the same codes. */
function productOf(
  to: ModelTarget,
  isTurned: boolean,
  engine: Engine,
  level: (typeof levels)[number],
): Promise<Float32Array> {
  const key = [to, isTurned, engines.indexOf(engine), level].join();
  const make = async () => {
    const { bytes } = await quantizeModel(gemm({ attributes: { transB: isTurned ? 1 : 0 } }), { to, workers: 0 });
    return (await run(await bytes(), level, plainFeeds, engine)).y as Float32Array;
  };
  const known = products.get(key) ?? make();
  products.set(key, known);
  return known;
}

const float = (value: number) => ({ float: value });
const cases: readonly (readonly [what: string, Case])[] = [
  ['alpha', { attributes: { alpha: float(0.125) } }],
  ['alpha and a bias', { attributes: { alpha: float(-3), transB: 1 }, c: [48] }],
  ['beta', { attributes: { beta: float(0.3) }, c: [3, 1] }],
  ['beta without anything to add', { attributes: { beta: float(0.3) } }],
  ['beta of 0, which reads nothing', { attributes: { beta: float(0) }, c: [48], value: Number.NaN }],
  ['transA', { attributes: { transA: 1 } }],
  ['all of them', { attributes: { alpha: float(0.7), beta: float(-2), transA: 1, transB: 1 }, c: [1, 48] }],
];
const targets: readonly (readonly [to: ModelTarget, least: number])[] = [
  ['q4', 0.98],
  ['q4f16', 0.98],
  ['q2', 0.6],
  ['q2f16', 0.6],
  ['q8-blocks', 0.9999],
  ['bnb4', 0.98],
  ['int4-weights', 0.98],
];

describe.each(targets)('Gemm as %s', (to, least) => {
  it.each(cases)('with %s', async (_what, asked) => {
    const file = gemm(asked, ['y_alpha', 'y_beta', 'y_rows', 'y_product']);
    const { bytes, report } = await quantizeModel(file, { to, nonFinite: 'keep', workers: 0 });
    const made = await bytes();
    expect(made.length).toBe((await planModel(file, { to })).totals.bytesAfter);
    const ofW = <T extends { name: string }>(tensors: readonly T[]) => tensors.find(({ name }) => name === 'w') as T;
    expect(ofW(report.tensors).kept).toBeUndefined();
    const { error } = ofW((await compareModels(file, made)).tensors);
    expect(error.maxAbsoluteError).toBe(ofW(report.tensors).error?.maxAbsoluteError);
    const feeds = asked.attributes.transA === 1 ? turnedFeeds : plainFeeds;
    await expectLike(file, made, least, { feeds, engines });
    // onnxruntime-node computes with 8 bits where DequantizeLinear is in front of a product.
    if (to === 'int4-weights') return;
    for (const engine of engines) {
      for (const level of levels) {
        const after = (await run(made, level, feeds, engine)).y as Float32Array;
        const expected = finished(await productOf(to, asked.attributes.transB === 1, engine, level), asked);
        // A product is added up in another order by other kernels: 64 roundings to 2^-24. In float16 it, both factors, what they are
        // multiplied with, and the sum are rounded to 2^-11 each, and C is at most as large as the largest output.
        const most = to.endsWith('f16') ? 8 * 2 ** -11 : 64 * 2 ** -24;
        expect(difference(expected, after), level).toBeLessThan(most);
      }
    }
  });
});

it('a Gemm in float16 has its factors in float16', async () => {
  const [, asked] = cases.at(-1) as (typeof cases)[number];
  const file = gemm(asked);
  const half = await (await quantizeModel(file, { to: 'fp16', workers: 0 })).bytes();
  for (const to of ['q4', 'q8-blocks'] as const) {
    const { bytes } = await quantizeModel(half, { to, workers: 0 });
    const made = await bytes();
    expect(made.length).toBe((await planModel(half, { to })).totals.bytesAfter);
    const { tensors } = await inspectModel(made);
    // Two numbers, which become float16 when the model is loaded.
    expect(tensors.filter(({ dtype }) => dtype === 'F32').map(({ shape }) => shape)).toEqual([[], []]);
    expect(tensors.some(({ dtype }) => dtype === 'U8')).toBe(true);
    await expectLike(file, made, 0.98, { engines });
  }
});

it.each([1e-6, 1e6])(
  'a factor of %d stays with its Gemm in float16, and becomes a product in float32',
  async (alpha) => {
    const file = gemm({ attributes: { alpha: float(alpha) } });
    const kept = async (to: ModelTarget) =>
      (await planModel(file, { to })).tensors.find(({ name }) => name === 'w')?.to;
    expect(await kept('q4f16')).toBe('F16');
    expect(await kept('q4')).not.toBe('F32');
    const half = await (await quantizeModel(file, { to: 'fp16', workers: 0 })).bytes();
    const { tensors } = await planModel(half, { to: 'q4' });
    expect(tensors.find(({ name }) => name === 'w')?.kept).toMatchObject({ kind: 'factor', operator: 'Gemm' });
  },
);

it('a weight that several of them share is stored once', async () => {
  const node = (out: string, alpha: number): onnx.TestNode => {
    return { op: 'Gemm', in: ['x', 'w'], out: [out], attributes: { alpha: float(alpha), transA: 1 } };
  };
  const file = onnx.model({
    nodes: [node('p', 0.5), node('q', 2), { op: 'Add', in: ['p', 'q'], out: ['y'] }],
    initializers: [onnx.floatTensor('w', [64, 48])],
    inputs: [['x', [64, 3]]],
    outputs: [['y', [3, 48]]],
  });
  for (const to of ['q4', 'q4f16', 'bnb4'] as const) {
    const { bytes } = await quantizeModel(file, { to, workers: 0 });
    const made = await bytes();
    const { tensors } = await inspectModel(made);
    expect(tensors.filter(({ dtype }) => dtype === 'U8')).toHaveLength(1);
    await expectLike(file, made, 0.98, { engines });
  }
});

it.each(['w,v,c', 'c,w,v'])('a bias that another Gemm reads as float32: %s', async (order) => {
  const tensors = new Map<string, onnx.Bytes>([
    ['w', onnx.floatTensor('w', [64, 48])],
    ['v', onnx.floatTensor('v', [64, 48], 2)],
    ['c', onnx.floatTensor('c', [48], 3)],
  ]);
  const file = onnx.model({
    nodes: [
      { op: 'Gemm', in: ['x', 'w', 'c'], out: ['p'] },
      { op: 'Gemm', in: ['x', 'v', 'c'], out: ['q'] },
      { op: 'Add', in: ['p', 'q'], out: ['y'] },
    ],
    initializers: order.split(',').map((name) => tensors.get(name) as onnx.Bytes),
    inputs: [['x', [3, 64]]],
    outputs: [['y', [3, 48]]],
  });
  const rules = [{ match: /^v$/, keep: true }] as const;
  const made = await (await quantizeModel(file, { to: 'q4f16', rules, workers: 0 })).bytes();
  await expectLike(file, made, 0.98, { engines });
});

it('branches and functions have factors of their own', async () => {
  const node: onnx.TestNode = { op: 'Gemm', in: ['x', 'k'], out: ['b'], attributes: { alpha: float(0.5), transA: 1 } };
  const constant = (seed: number): onnx.TestNode => {
    return {
      op: 'Constant',
      in: [],
      out: ['k'],
      attributes: { value: { tensor: onnx.floatTensor('', [64, 48], seed) } },
    };
  };
  const branch = (seed: number) => onnx.graph({ nodes: [constant(seed), node], inputs: [], outputs: [['b', [3, 48]]] });
  const body = [constant(3), node].flatMap((one) => [...onnx.bytes(7, onnx.node(one))]);
  const local = onnx.bytes(25, [
    ...[...onnx.text(1, 'scaled'), ...onnx.text(4, 'x'), ...onnx.text(5, 'b')],
    ...[...body, ...onnx.bytes(9, onnx.int(2, 17)), ...onnx.text(10, 'local')],
  ]);
  const branches = { then_branch: { graph: branch(1) }, else_branch: { graph: branch(2) } };
  const file = onnx.model(
    {
      nodes: [
        { op: 'If', in: ['c'], out: ['p'], attributes: branches },
        { op: 'scaled', domain: 'local', in: ['x'], out: ['q'] },
        { op: 'Add', in: ['p', 'q'], out: ['y'] },
      ],
      inputs: [
        ['c', [], 9],
        ['x', [64, 3]],
      ],
      outputs: [['y', [3, 48]]],
    },
    { imports: { local: 1 }, more: local },
  );
  for (const to of ['q4', 'bnb4'] as const) {
    const { bytes, report } = await quantizeModel(file, { to, workers: 0 });
    expect(report.tensors.map(({ kept }) => kept)).toEqual([undefined, undefined, undefined]);
    const made = await bytes();
    await expectLike(file, made, 0.98, { engines });
  }
});

// quantize_dynamic makes products of integers of a Gemm only if it has neither, and the files of q8 are to be its own.
it.each(['q8', 'int8', 'uint8'] as const)('%s stores the weight as codes and leaves the Gemm as it is', async (to) => {
  const file = gemm({ attributes: { alpha: float(0.5), transA: 1 } });
  const made = await (await quantizeModel(file, { to, workers: 0 })).bytes();
  const text = new TextDecoder('latin1').decode(made);
  expect(text).toContain('Gemm');
  expect(text).not.toContain('MatMulInteger');
});
