// Results run in onnxruntime-web, with its optimizer and without, and give nearly what the float32 model gives.
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { compareModels, type ModelReport, type ModelTarget, type PlanOptions, planModel } from 'scalepoint/model';
import { describe, expect, it } from 'vitest';
import type { OnnxReason } from '../../../../web/src/formats/onnx/reasons.js';
import * as onnx from './encoder.js';
import { cosine, expectLike, type Feeds, make, run, sileroFeeds } from './ort.js';

/** Least cosine of outputs: 0.999 for 8-bit weights, 0.99 with 8-bit activations, 0.98 for 4 bits. */
const limits: Partial<Record<ModelTarget, number>> = {
  'int8-weights': 0.999,
  'uint8-weights': 0.999,
  'int4-weights': 0.98,
  q8: 0.99,
  int8: 0.99,
  uint8: 0.99,
  q4: 0.98,
  q4f16: 0.98,
  q2: 0.85,
  q2f16: 0.85,
  'q8-blocks': 0.9999,
  bnb4: 0.98,
  fp16: 0.99999,
};
const all = Object.keys(limits) as ModelTarget[];

/** Blocks of floats need rows that they divide. Those of 8 bits do not pay if they are half empty. */
const uneven = all.filter((to) => to !== 'bnb4' && to !== 'q8-blocks');

/** Number of tensors that are not kept. */
function converted({ tensors }: ModelReport): number {
  return tensors.filter(({ kept }) => kept === undefined).length;
}

/** Holds a result against its model. Returns the report. */
async function check(
  file: Uint8Array,
  options: PlanOptions,
  limit = limits[options.to as ModelTarget] ?? 1,
  feeds?: Feeds,
) {
  const result = await make(file, options);
  await expectLike(file, result.made, limit, { feeds, what: options.to });
  return result;
}

const { product } = onnx;
const twoD = (op: string, w: number[], x: number[], attributes: onnx.TestNode['attributes'] = {}, opset = 17) =>
  product(op, w, x, [x[0] as number, 'n'])(attributes, { opset });

describe('weights of every operator', () => {
  const models: readonly [what: string, file: Uint8Array, targets?: readonly ModelTarget[]][] = [
    ['MatMul', twoD('MatMul', [96, 64], [3, 96])],
    ['MatMul, rows that fill no block', twoD('MatMul', [75, 33], [3, 75]), uneven],
    [
      'MatMul with a batch',
      product('MatMul', [2, 64, 48], [2, 3, 64], [2, 3, 48])(),
      ['int8-weights', 'uint8-weights', 'q8', 'fp16'],
    ],
    [
      'MatMul whose first input is the weight',
      onnx.model({
        nodes: [{ op: 'MatMul', in: ['w', 'x'], out: ['y'] }],
        initializers: [onnx.floatTensor('w', [48, 64])],
        inputs: [['x', [64, 3]]],
        outputs: [['y', [48, 3]]],
      }),
      ['int8-weights', 'uint8-weights', 'int4-weights', 'q8', 'fp16'],
    ],
    ['Gemm', twoD('Gemm', [96, 64], [3, 96])],
    ['Gemm with transB', twoD('Gemm', [64, 96], [3, 96], { transB: 1 })],
    ['Gemm with alpha', twoD('Gemm', [96, 64], [3, 96], { alpha: { float: 0.5 } })],
    [
      'Conv',
      product('Conv', [16, 8, 3, 3], [1, 8, 9, 9], [1, 16, 'h', 'w'])({ pads: [1, 1, 1, 1], strides: [2, 2] }),
      ['int8-weights', 'uint8-weights', 'q8', 'int8', 'uint8', 'fp16'],
    ],
    [
      'Conv with groups',
      product('Conv', [32, 4, 3, 3], [1, 16, 9, 9], [1, 32, 'h', 'w'])({ group: 4 }),
      ['int8-weights', 'q8', 'fp16'],
    ],
    [
      'Conv of one dimension',
      product('Conv', [16, 32, 5], [1, 32, 20], [1, 16, 'l'])(),
      ['int8-weights', 'q8', 'fp16'],
    ],
    [
      'ConvTranspose',
      product('ConvTranspose', [8, 16, 3, 3], [1, 8, 5, 5], [1, 16, 'h', 'w'])(),
      ['int8-weights', 'uint8-weights', 'q8', 'fp16'],
    ],
    [
      'Einsum',
      product('Einsum', [64, 48], [3, 64], [3, 48])({ equation: 'ab,bc->ac' }),
      ['int8-weights', 'q8', 'fp16'],
    ],
  ];
  const cases = models.flatMap(([what, file, targets = all]) => targets.map((to) => [what, to, file] as const));
  it.each(cases)('%s as %s', async (_what, to, file) => {
    const { report } = await check(file, { to });
    expect(converted(report)).toBe(1);
    const [weight] = report.tensors;
    expect(weight?.bytesAfter).toBeLessThan((weight?.bytesBefore ?? 0) * (to === 'fp16' ? 0.51 : 0.32));
  });

  it.each(['LSTM', 'GRU', 'RNN'])('%s', async (op) => {
    const gates = { LSTM: 4, GRU: 3, RNN: 1 }[op] as number;
    const file = onnx.model({
      nodes: [{ op, in: ['x', 'w', 'r'], out: ['y'], attributes: { hidden_size: 32, direction: 'bidirectional' } }],
      initializers: [onnx.floatTensor('w', [2, gates * 32, 40], 1), onnx.floatTensor('r', [2, gates * 32, 32], 2)],
      inputs: [['x', [5, 1, 40]]],
      outputs: [['y', [5, 2, 1, 32]]],
    });
    for (const to of ['int8-weights', 'uint8-weights', 'q8', 'fp16'] as const) {
      const { report } = await check(file, { to });
      expect(converted(report)).toBe(2);
    }
  });

  it.each([0, 1])('Gather along axis %i', async (axis) => {
    const file = onnx.gather([64, 48], ['a', 'b', 'c'])({ axis });
    for (const to of ['int8-weights', 'uint8-weights', 'q8', 'fp16'] as const) {
      const { report, made } = await check(file, { to });
      expect(converted(report)).toBe(1);
      if (axis === 0) await check(file, { to: 'q4', blockSize: 16 });
      // The table is never restored as a whole.
      if (to === 'int8-weights' && axis === 0)
        expect(new TextDecoder('latin1').decode(made)).not.toContain('DequantizeLinear');
    }
  });
});

it('weights become floats once, if that is wanted', async () => {
  const files = [
    twoD('MatMul', [96, 64], [3, 96]),
    twoD('Gemm', [64, 96], [3, 96], { transB: 1 }, 11),
    product('ConvTranspose', [8, 16, 3, 3], [1, 8, 5, 5], [1, 16, 'h', 'w'])({}, { opset: 7 }),
    product('Einsum', [64, 48], [3, 64], [3, 48])({ equation: 'ab,bc->ac' }),
  ];
  for (const file of files) {
    for (const to of ['int8-weights', 'uint8-weights'] as const) {
      const { made, report } = await check(file, { to, dequantize: 'cast' });
      expect(new TextDecoder('latin1').decode(made)).not.toContain('DequantizeLinear');
      const { tensors } = await compareModels(file, made);
      expect(tensors[0]?.error.maxAbsoluteError).toBe(report.tensors[0]?.error?.maxAbsoluteError);
      // Sums of 512 squares in float32, in another order: 512 * 2^-24 of each, which is 1.3e-4 dB.
      expect(tensors[0]?.error.sqnrDb).toBeCloseTo(report.tensors[0]?.error?.sqnrDb ?? 0, 3);
      const linear = await make(file, { to, dequantize: 'linear' });
      expect(linear.report.tensors[0]?.error).toEqual(report.tensors[0]?.error);
    }
  }
});

describe('blocks', () => {
  const options: PlanOptions[] = [16, 32, 64, 128, 256].flatMap((blockSize) =>
    [false, true].flatMap((zeroPoints) =>
      (['q4', 'q2', 'q8-blocks', 'q4f16', 'q2f16', 'int4-weights'] as const).flatMap((to) =>
        (['min-max', 'mse'] as const).map((range): PlanOptions => ({ to, blockSize, zeroPoints, range })),
      ),
    ),
  );
  it.each(options)('$to, $blockSize, zero points $zeroPoints, $range', async (choice) => {
    const file = onnx.product(
      'MatMul',
      [300, 48],
      [3, 300],
      [3, 48],
    )({}, { opset: choice.to === 'int4-weights' ? 21 : 17 });
    // 2 bits in large blocks leave little.
    const { report } = await check(file, choice, choice.to.startsWith('q2') ? 0.6 : 0.97);
    const plain = await make(file, { ...choice, range: 'min-max' });
    expect(report.tensors[0]?.error?.sqnrDb).toBeGreaterThanOrEqual(plain.report.tensors[0]?.error?.sqnrDb ?? 0);
  });

  it.each(['q4', 'q4f16', 'q2', 'q2f16'] as const)('%s with float zero points', async (to) => {
    const file = onnx.product('MatMul', [300, 48], [3, 300], [3, 48])();
    const { report } = await check(file, { to, zeroPoints: 'float', range: 'mse' }, to.startsWith('q2') ? 0.85 : 0.98);
    const whole = await make(file, { to, zeroPoints: true, range: 'mse' });
    const kinds = (notes: ModelReport['notes']) => notes.map(({ kind }) => kind);
    expect(kinds(report.notes)).toContain('floatZeroPoints');
    expect(kinds(whole.report.notes)).not.toContain('floatZeroPoints');
    const plain = await make(file, { to, zeroPoints: 'float' });
    const error = ({ tensors }: ModelReport) => tensors[0]?.error?.sqnrDb ?? 0;
    expect(error(report)).toBeGreaterThan(error(whole.report));
    expect(error(report)).toBeGreaterThan(error(plain.report));
    const { tensors } = await compareModels(file, (await make(file, { to, zeroPoints: 'float', range: 'mse' })).made);
    const found = tensors.find(({ name }) => name === 'w')?.error;
    expect(found?.maxAbsoluteError).toBe(report.tensors[0]?.error?.maxAbsoluteError);
    // Sums of 512 squares in float32, in another order: 512 * 2^-24 of each, which is 1.3e-4 dB.
    expect(found?.sqnrDb).toBeCloseTo(error(report), 3);
  });

  it('have whole zero points where rows are looked up', async () => {
    const file = onnx.gather([64, 64], ['a', 'b', 'c'])();
    const { report } = await check(file, { to: 'q4', zeroPoints: 'float' });
    expect(report.notes.map(({ kind }) => kind)).toEqual(['blockCost', 'runsOn']);
  });

  const table = (columns: number, more: readonly onnx.TestNode[] = []) => {
    const isRead = more.length > 0;
    return onnx.model({
      nodes: [{ op: 'Gather', in: ['w', 'i'], out: ['y'] }, ...more],
      initializers: [onnx.floatTensor('w', [500, columns])],
      inputs: [['i', [2, 3], 7], ...(isRead ? [['x', [4, columns]] as const] : [])],
      outputs: [['y', ['a', 'b', 'c']], ...(isRead ? [['z', ['d', 'e']] as const] : [])],
    });
  };
  const hasDequantize = (made: Uint8Array) => Buffer.from(made).includes('DequantizeLinear');

  it.each([false, true])(
    'of int4-weights are gathered, and not restored with their whole table, zero points %s',
    async (zeroPoints) => {
      for (const range of ['min-max', 'mse'] as const) {
        for (const columns of [64, 96]) {
          const { report, made } = await check(table(columns), { to: 'int4-weights', zeroPoints, range });
          expect(converted(report)).toBe(1);
          expect(hasDequantize(made)).toBe(false);
          expect(report.notes).toEqual([expect.objectContaining({ kind: 'runsOn', webgpu: 'gpu' })]);
          expect(report.totals.bytesAfter).toBeLessThan(table(columns).length * (zeroPoints ? 0.2 : 0.19));
        }
      }
    },
  );

  it('of int4-weights have a DequantizeLinear where a table is also multiplied, or for another range', async () => {
    const tied = table(64, [
      { op: 'Transpose', in: ['w'], out: ['t'], attributes: { perm: [1, 0] } },
      { op: 'MatMul', in: ['x', 't'], out: ['z'] },
    ]);
    for (const [file, choice] of [
      [tied, {}],
      [table(64), { range: { percentile: 99.9 } }],
    ] as const) {
      const { report, made } = await check(file, { to: 'int4-weights', ...choice });
      expect(converted(report)).toBe(1);
      expect(hasDequantize(made)).toBe(true);
    }
  });

  it('take as many bytes as they should', async () => {
    const file = onnx.product('MatMul', [512, 512], [3, 512], [3, 512])();
    const shares: [PlanOptions, number][] = [
      [{ to: 'q4' }, 0.157],
      [{ to: 'q4', zeroPoints: true }, 0.161],
      [{ to: 'q4f16' }, 0.141],
      [{ to: 'q2f16' }, 0.079],
      [{ to: 'int4-weights' }, 0.157],
      [{ to: 'int8-weights' }, 0.26],
      [{ to: 'q8' }, 0.26],
      [{ to: 'bnb4' }, 0.142],
    ];
    for (const [choice, share] of shares) {
      const { totals } = (await make(file, choice)).report;
      expect(totals.bytesAfter, choice.to).toBeLessThan(file.length * share);
    }
  });
});

describe('where weights hide', () => {
  const branch = (seed: number, more: readonly onnx.TestNode[] = [], input = 'w') =>
    onnx.graph({
      nodes: [...more, { op: 'MatMul', in: ['x', input], out: ['b'] }],
      initializers: more.length === 0 ? [onnx.floatTensor('w', [64, 48], seed)] : [],
      inputs: [],
      outputs: [['b', [3, 48]]],
    });
  const choice = (then: onnx.Bytes, otherwise: onnx.Bytes, main: Partial<onnx.TestGraph> = {}) =>
    onnx.model({
      nodes: [
        {
          op: 'If',
          name: 'choice',
          in: ['c'],
          out: ['y'],
          attributes: { then_branch: { graph: then }, else_branch: { graph: otherwise } },
        },
      ],
      inputs: [
        ['c', [], 9],
        ['x', [3, 64]],
      ],
      outputs: [['y', [3, 48]]],
      ...main,
    });
  const constant = (value: onnx.Bytes): onnx.TestNode => ({
    op: 'Constant',
    in: [],
    out: ['k'],
    attributes: { value: { tensor: value } },
  });

  it.each(all)('weights of branches, as %s', async (to) => {
    const { report } = await check(choice(branch(1), branch(2)), { to });
    expect(converted(report)).toBe(2);
  });

  it.each(all)('constants of branches, as %s', async (to) => {
    const value = onnx.tensor({ dims: [64, 48], raw: onnx.rawOf(onnx.weights(64 * 48)) });
    const inside = branch(1, [constant(value)], 'k');
    const { report } = await check(choice(inside, branch(2)), { to });
    expect(converted(report)).toBe(2);
  });

  it('get smaller where all of them are in branches or in constants of these', async () => {
    const big = (seed: number) => onnx.tensor({ dims: [512, 512], raw: onnx.rawOf(onnx.weights(512 * 512, seed)) });
    const inside = (seed: number) =>
      onnx.graph({
        nodes: [
          { ...constant(big(seed)), out: ['k'] },
          { op: 'MatMul', in: ['x', 'k'], out: ['b'] },
        ],
        inputs: [],
        outputs: [['b', [3, 512]]],
      });
    const file = choice(inside(1), inside(2), {
      inputs: [
        ['c', [], 9],
        ['x', [3, 512]],
      ],
      outputs: [['y', [3, 512]]],
    });
    for (const [to, share] of [
      ['q8', 0.26],
      ['int8-weights', 0.26],
      ['q4', 0.157],
      ['fp16', 0.505],
    ] as const) {
      const { made } = await make(file, { to });
      expect(made.length, to).toBeLessThan(file.length * share);
    }
  });

  it.each(all)('weights that branches take from outside, of which one has a namesake inside, as %s', async (to) => {
    const outer = onnx.graph({
      nodes: [{ op: 'MatMul', in: ['x', 'w'], out: ['b'] }],
      inputs: [],
      outputs: [['b', [3, 48]]],
    });
    const file = choice(outer, branch(2), { initializers: [onnx.floatTensor('w', [64, 48], 3)] });
    const { report } = await check(file, { to });
    expect(converted(report)).toBe(2);
  });

  it('weights behind Identity, Transpose, Reshape and Cast', async () => {
    const through = (nodes: onnx.TestNode[], dims: number[]) =>
      onnx.model({
        nodes: [...nodes, { op: 'MatMul', in: ['x', 'v'], out: ['y'] }],
        initializers: [
          onnx.floatTensor('w', dims),
          onnx.tensor({ name: 's', type: 7, dims: [2], raw: onnx.int64s([64, 48]) }),
          onnx.tensor({ name: 'two', type: 7, dims: [1], raw: onnx.int64s([2]) }),
        ],
        inputs: [['x', [3, 64]]],
        outputs: [['y', [3, 48]]],
      });
    const turn = (from: string, to: string): onnx.TestNode => ({ op: 'Transpose', in: [from], out: [to] });
    const paths: [onnx.TestNode[], number[]][] = [
      [[{ op: 'Identity', in: ['w'], out: ['v'] }], [64, 48]],
      [[{ op: 'Transpose', in: ['w'], out: ['v'] }], [48, 64]],
      [[{ op: 'Transpose', in: ['w'], out: ['v'], attributes: { perm: [1, 0] } }], [48, 64]],
      [
        [turn('w', 't'), turn('t', 'v')],
        [64, 48],
      ],
      [[{ op: 'Reshape', in: ['w', 's'], out: ['v'] }], [8, 8, 48]],
      [
        [{ op: 'Reshape', in: ['w', 's'], out: ['t'] }, turn('t', 'u'), turn('u', 'v')],
        [8, 8, 48],
      ],
      [
        [{ op: 'Squeeze', in: ['w', 'two'], out: ['t'] }, turn('t', 'v')],
        [48, 64, 1],
      ],
      [
        [{ op: 'Flatten', in: ['w'], out: ['t'] }, turn('t', 'u'), turn('u', 'v')],
        [64, 3, 16],
      ],
      [[{ op: 'Cast', in: ['w'], out: ['v'], attributes: { to: 1 } }], [64, 48]],
    ];
    for (const [nodes, dims] of paths) {
      for (const to of ['int8-weights', 'uint8-weights', 'q8', 'fp16'] as const) {
        const { report } = await check(through(nodes, dims), { to });
        expect(converted(report)).toBe(1);
      }
    }
    for (const [nodes, dims] of paths.slice(0, 4)) await check(through(nodes, dims), { to: 'q4' });
  });

  it('weights that no blocks replace, with the reason', async () => {
    const cases: [kept: OnnxReason, file: Uint8Array<ArrayBuffer>][] = [
      [
        { kind: 'firstInput', operator: 'MatMul' },
        onnx.model({
          nodes: [{ op: 'MatMul', in: ['w', 'x'], out: ['y'] }],
          initializers: [onnx.floatTensor('w', [48, 64])],
          inputs: [['x', [64, 3]]],
          outputs: [['y', [48, 3]]],
        }),
      ],
      [
        { kind: 'moved', operator: 'MatMul', movers: ['Slice'] },
        onnx.model({
          nodes: [
            { op: 'Slice', in: ['w', 'none', 'n'], out: ['v'] },
            { op: 'MatMul', in: ['x', 'v'], out: ['y'] },
          ],
          initializers: [
            onnx.floatTensor('w', [80, 48]),
            onnx.tensor({ name: 'none', type: 7, dims: [1], raw: onnx.int64s([0]) }),
            onnx.tensor({ name: 'n', type: 7, dims: [1], raw: onnx.int64s([64]) }),
          ],
          inputs: [['x', [3, 64]]],
          outputs: [['y', [3, 48]]],
        }),
      ],
    ];
    for (const [kept, file] of cases) {
      const { tensors } = await planModel(file, { to: 'q4' });
      expect(tensors.find(({ name }) => name === 'w')?.kept).toMatchObject(kept);
    }
  });

  it('one table for an embedding and for the output', async () => {
    const file = onnx.model({
      nodes: [
        { op: 'Gather', in: ['e', 'i'], out: ['h'] },
        { op: 'Transpose', in: ['e'], out: ['t'], attributes: { perm: [1, 0] } },
        { op: 'MatMul', in: ['h', 't'], out: ['y'] },
      ],
      initializers: [onnx.floatTensor('e', [80, 64])],
      inputs: [['i', [1, 4], 7]],
      outputs: [['y', [1, 4, 80]]],
    });
    for (const to of ['int8-weights', 'uint8-weights', 'q8', 'int8', 'q4', 'q4f16', 'q8-blocks', 'fp16'] as const) {
      const { report } = await check(file, { to });
      expect(converted(report)).toBe(1);
      expect(report.totals.bytesAfter).toBeLessThan(file.length * (to === 'fp16' ? 0.55 : 0.33));
    }
  });

  it('a weight with a reader that takes no codes, and as an output', async () => {
    const file = onnx.model({
      nodes: [
        { op: 'MatMul', in: ['x', 'w'], out: ['y'] },
        { op: 'Add', in: ['w', 'x2'], out: ['z'] },
      ],
      initializers: [onnx.floatTensor('w', [64, 48])],
      inputs: [
        ['x', [3, 64]],
        ['x2', [64, 48]],
      ],
      outputs: [
        ['y', [3, 48]],
        ['z', [64, 48]],
        ['w', [64, 48]],
      ],
    });
    for (const to of ['int8-weights', 'q8', 'fp16'] as const) {
      const { report } = await check(file, { to });
      expect(converted(report)).toBe(1);
    }
    const { report } = await make(file, { to: 'q4' });
    expect(report.tensors[0]?.kept).toMatchObject({ kind: 'alsoReadBy', operator: 'Add' });
  });

  it('a weight whose readers have their channels along different axes', async () => {
    const file = onnx.model({
      nodes: [
        { op: 'MatMul', in: ['x', 'w'], out: ['p'] },
        { op: 'Gemm', in: ['p', 'w'], out: ['y'], attributes: { transB: 1 } },
      ],
      initializers: [onnx.floatTensor('w', [64, 48])],
      inputs: [['x', [3, 64]]],
      outputs: [['y', [3, 64]]],
    });
    for (const to of ['int8-weights', 'uint8-weights', 'q8', 'fp16'] as const) {
      const { report } = await check(file, { to });
      expect(converted(report)).toBe(1);
    }
  });

  it('a weight that one node reads twice', async () => {
    const file = onnx.model({
      nodes: [
        { op: 'MatMul', in: ['w', 'w'], out: ['p'] },
        { op: 'Add', in: ['p', 'x'], out: ['y'] },
      ],
      initializers: [onnx.floatTensor('w', [64, 64])],
      inputs: [['x', [1]]],
      outputs: [['y', [64, 64]]],
    });
    for (const to of ['int8-weights', 'uint8-weights', 'int4-weights', 'q8', 'fp16'] as const) {
      const { report } = await check(file, { to });
      expect(converted(report)).toBe(1);
    }
  });

  it('a weight that is an output under another name, of a graph and of a branch', async () => {
    const identity = onnx.graph({
      nodes: [{ op: 'Identity', in: ['w'], out: ['a'] }],
      inputs: [],
      outputs: [['a', [64, 48]]],
    });
    const multiply = onnx.graph({
      nodes: [{ op: 'MatMul', in: ['x', 'w'], out: ['b'] }],
      inputs: [],
      outputs: [['b', [64, 48]]],
    });
    const initializers = [onnx.floatTensor('w', [64, 48])];
    const files = [
      onnx.model({
        nodes: [
          { op: 'Identity', in: ['w'], out: ['t'] },
          { op: 'MatMul', in: ['x', 't'], out: ['y'] },
        ],
        initializers,
        inputs: [['x', [64, 64]]],
        outputs: [
          ['y', [64, 48]],
          ['t', [64, 48]],
        ],
      }),
      onnx.model({
        nodes: [
          {
            op: 'If',
            in: ['c'],
            out: ['y'],
            attributes: { then_branch: { graph: identity }, else_branch: { graph: multiply } },
          },
        ],
        initializers,
        inputs: [
          ['x', [64, 64]],
          ['c', [], 9],
        ],
        outputs: [['y', [64, 48]]],
      }),
    ];
    for (const file of files) {
      for (const to of ['int8-weights', 'q8', 'q4f16', 'fp16'] as const) {
        const { report } = await check(file, { to });
        expect(converted(report)).toBe(1);
      }
      for (const to of ['q4', 'bnb4', 'q8-blocks'] as const) {
        const { report } = await make(file, { to });
        expect(report.tensors[0]?.kept).toMatchObject({ kind: 'output' });
      }
    }
  });

  it('a weight behind very many nodes', async () => {
    const count = 12_000;
    const chain = Array.from({ length: count }, (_, i): onnx.TestNode => {
      return { op: 'Identity', in: [i === 0 ? 'w' : `t${i}`], out: [`t${i + 1}`] };
    });
    const file = onnx.model({
      nodes: [...chain, { op: 'MatMul', in: ['x', `t${count}`], out: ['y'] }],
      initializers: [onnx.floatTensor('w', [64, 48])],
      inputs: [['x', [3, 64]]],
      outputs: [['y', [3, 48]]],
    });
    for (const to of ['q8', 'q4'] as const) {
      const { tensors } = await planModel(file, { to });
      expect(tensors[0]?.kept).toMatchObject({ kind: 'readBy', operator: 'Identity' });
    }
  });

  it('weights beside long lists in attributes', async () => {
    const columns = Array.from({ length: 300 }, (_, i) => i % 48);
    // As proto3 writes them: many in one field.
    const list = [...onnx.text(1, 'value_ints'), ...onnx.bytes(8, columns), ...onnx.int(20, 7)];
    const file = onnx.model({
      nodes: [
        { op: 'MatMul', in: ['x', 'w'], out: ['p'] },
        { op: 'Constant', in: [], out: ['i'], more: onnx.bytes(5, list) },
        { op: 'Gather', in: ['p', 'i'], out: ['y'], attributes: { axis: 1 } },
      ],
      initializers: [onnx.floatTensor('w', [64, 48])],
      inputs: [['x', [3, 64]]],
      outputs: [['y', [3, 300]]],
    });
    for (const to of ['int8-weights', 'q8', 'q4'] as const) {
      const { report } = await check(file, { to });
      expect(converted(report)).toBe(1);
    }
  });

  it('initializers that are inputs, in files of old versions', async () => {
    for (const opset of [7, 8, 9, 10, 11, 12, 13]) {
      const file = onnx.model(
        {
          nodes: [{ op: 'MatMul', in: ['x', 'w'], out: ['y'] }],
          initializers: [onnx.floatTensor('w', [64, 48])],
          inputs: [
            ['x', [3, 64]],
            ['w', [64, 48]],
          ],
          outputs: [['y', [3, 48]]],
        },
        { opset, ir: 3 },
      );
      for (const to of all) {
        const { made } = await make(file, { to });
        const limit = limits[to] as number;
        expect(cosine((await run(file)).y as Float32Array, (await run(made)).y as Float32Array)).toBeGreaterThan(limit);
      }
    }
  });

  it('graphs whose operators would mean something else in a newer version', async () => {
    const file = onnx.model(
      {
        nodes: [
          { op: 'MatMul', in: ['x', 'w'], out: ['p'] },
          { op: 'Expand', in: ['p', 's'], out: ['y'] },
          { op: 'Upsample', in: ['y', 'u'], out: ['z'] },
        ],
        initializers: [
          onnx.floatTensor('w', [64, 48]),
          onnx.tensor({ name: 's', type: 7, dims: [2], raw: onnx.int64s([3, 48]) }),
          onnx.tensor({ name: 'u', dims: [2], raw: onnx.floats([1, 2]) }),
        ],
        inputs: [['x', [3, 64]]],
        outputs: [['z', [3, 96]]],
      },
      { opset: 9 },
    );
    for (const to of ['int8-weights', 'uint8-weights', 'q8', 'q4', 'fp16'] as const) {
      const { report } = await check(file, { to });
      expect(converted(report)).toBe(1);
    }
    const { report } = await make(file, { to: 'int4-weights' });
    expect(report.tensors[0]?.kept).toEqual({
      kind: 'opset',
      opset: 9,
      operator: 'Upsample',
      text: 'opset 9: Upsample would mean something else in a newer one',
    });
  });
});

const samples = process.env.SCALEPOINT_SAMPLES;
describe.runIf(samples !== undefined && existsSync(samples))('sample models', () => {
  const files = ['cnn_fp32', 'onnxmlir_mnist', 'onnxjs_mnist', 'tract_keras_example', 'silero_vad_16k_op15'];
  const cases = files.flatMap((name) => all.map((to) => [name, to] as const));
  it.each(cases)('%s as %s', async (name, to) => {
    const file = new Uint8Array(readFileSync(join(samples as string, `${name}.onnx`)));
    // The last layers of these models have few weights.
    const feeds = name.startsWith('silero') ? sileroFeeds : undefined;
    await check(file, { to }, Math.min(limits[to] as number, 0.98), feeds);
  });
});
