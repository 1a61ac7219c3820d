// Models as other tools write them, and results of this one as a source.

import { mkdtemp, rm, truncate, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import * as ort from 'onnxruntime-web';
import { compareModels, type Note, type PlanOptions, planModel, quantizeModel } from 'scalepoint/model';
import { describe, expect, it } from 'vitest';
import * as onnx from './encoder.js';
import { expectLike, type Feeds } from './ort.js';

type To = NonNullable<Parameters<typeof quantizeModel>[1]>['to'];
type File = Uint8Array<ArrayBuffer>;

async function make(file: File, to: To, options: object = {}) {
  const { bytes, report } = await quantizeModel(file, { to, workers: 0, ...options } as never);
  return { made: (await bytes()) as File, report };
}

/** Runs a result beside its model, without the optimizer and with it. */
async function check(file: File, to: To, limit: number, feeds?: Feeds) {
  const result = await make(file, to);
  await expectLike(file, result.made, limit, { feeds, what: to });
  return result;
}

/** Least cosine of small networks of random weights. */
const limits = { q8: 0.999, 'int8-weights': 0.999, 'q8-blocks': 0.999, q4: 0.98, q4f16: 0.98, fp16: 0.9999 } as const;
const named = Object.entries(limits) as [keyof typeof limits, number][];

const product = (w: onnx.Bytes, more: readonly onnx.TestNode[], reads: string) =>
  onnx.model({
    nodes: [...more, { op: 'MatMul', in: ['x', reads], out: ['y'] }],
    initializers: [w],
    inputs: [['x', [3, 64]]],
    outputs: [['y', [3, 64]]],
  });

describe('weights behind a Cast', () => {
  const floats = onnx.weights(64 * 64, 3);
  const bits = new Uint32Array(floats.buffer);
  const cast: onnx.TestNode = { op: 'Cast', in: ['W'], out: ['w'], attributes: { to: 1 } };
  const types = {
    BF16: { type: 16, raw: new Uint8Array(Uint16Array.from(bits, (one) => one >>> 16).buffer) },
    F64: { type: 11, raw: new Uint8Array(Float64Array.from(floats).buffer) },
  };
  it.each(Object.entries(types))('become codes if they are %s', async (name, { type, raw }) => {
    const file = product(onnx.tensor({ name: 'W', type, dims: [64, 64], raw }), [cast], 'w');
    for (const [to, limit] of named) {
      const { made, report } = await check(file, to, limit);
      // BF16 has as many bytes as float16.
      if (to === 'q4f16') expect(made.length).toBeLessThan(0.36 * file.length);
      else if (to !== 'fp16' || name === 'F64') expect(made.length).toBeLessThan(0.62 * file.length);
      else expect(report.notes).toMatchObject([{ kind: 'nothingConverted', why: 'sameType' }]);
    }
  });
});

describe('a weight under weight normalization', () => {
  it.each(['Conv', 'ConvTranspose', 'MatMul'])('becomes codes before %s', async (op) => {
    const [dims, x, axes] =
      op === 'MatMul'
        ? [[64, 48], [3, 64], [0]]
        : [
            [32, 32, 7],
            [1, 32, 20],
            [1, 2],
          ];
    const kept = dims.map((n, i) => (axes.includes(i) ? 1 : n));
    const file = onnx.model({
      nodes: [
        { op: 'ReduceL2', in: ['v'], out: ['n'], attributes: { axes, keepdims: 1 } },
        { op: 'Div', in: ['v', 'n'], out: ['u'] },
        { op: 'Mul', in: ['u', 'g'], out: ['w'] },
        { op, in: ['x', 'w'], out: ['y'] },
      ],
      initializers: [onnx.floatTensor('v', dims, 1), onnx.floatTensor('g', kept, 2)],
      inputs: [['x', x]],
      outputs: [['y', x.map((_, i) => `d${i}`)]],
    });
    for (const to of ['q8', 'int8-weights', 'q8-blocks'] as const) {
      const { made } = await check(file, to, 0.999);
      expect(made.length).toBeLessThan(0.4 * file.length);
    }
  });
});

it('blocks of 4 bits are restored under weight normalization', async () => {
  const file = onnx.model(
    {
      nodes: [
        { op: 'ReduceL2', in: ['v', 'axes'], out: ['n'] },
        { op: 'Div', in: ['v', 'n'], out: ['u'] },
        { op: 'Mul', in: ['u', 'g'], out: ['w'] },
        { op: 'MatMul', in: ['x', 'w'], out: ['y'] },
      ],
      initializers: [
        onnx.floatTensor('v', [64, 48], 1),
        onnx.floatTensor('g', [1, 48], 2),
        onnx.tensor({ name: 'axes', type: 7, dims: [1], raw: onnx.int64s([0]) }),
      ],
      inputs: [['x', [3, 64]]],
      outputs: [['y', [3, 48]]],
    },
    { opset: 21 },
  );
  const { made } = await check(file, 'q4', 0.98);
  expect(made.length).toBeLessThan(0.25 * file.length);
});

/** A table and a product. */
const withTable = (columns: number) =>
  onnx.model({
    nodes: [
      { op: 'Gather', in: ['E', 'ids'], out: ['e'] },
      { op: 'MatMul', in: ['e', 'w'], out: ['y'] },
    ],
    initializers: [onnx.floatTensor('E', [400, columns], 5), onnx.floatTensor('w', [columns, 64], 1)],
    inputs: [['ids', [2, 3], 7]],
    outputs: [['y', [2, 3, 64]]],
  });
const ids = { ids: new ort.Tensor('int64', BigInt64Array.of(0n, 7n, 399n, 31n, 200n, 8n), [2, 3]) };

describe('a table', () => {
  it.each([300, 312, 33])('of %i columns becomes blocks', async (columns) => {
    const file = withTable(columns);
    for (const [to, zeroPoints] of [
      ['q4', false],
      ['q4', true],
      ['int4-weights', false],
    ] as const) {
      const { made, report } = await make(file, to, { zeroPoints });
      expect(report.tensors.map(({ kept }) => kept)).toEqual([undefined, undefined]);
      await expectLike(file, made, 0.98, { feeds: ids });
      // It reads back in its own shape.
      const { tensors } = await compareModels(file, made);
      expect(tensors.map(({ name }) => name)).toContain('E');
    }
  });
});

describe('codes as a source', () => {
  it.each(['q4', 'q2', 'q8-blocks', 'int4-weights', 'int8-weights', 'uint8-weights', 'q8'] as const)(
    'keep their scales if they are %s',
    async (from) => {
      const { made } = await make(withTable(256), from);
      for (const to of ['q8', 'uint8', 'int8-weights', 'int4-weights', 'q4', 'q8-blocks'] as const) {
        const again = await make(made, to);
        expect(Buffer.compare(again.made, made), to).toBe(0);
        expect(again.report.notes, to).toContainEqual(
          expect.objectContaining({ kind: 'nothingConverted', why: 'quantized' }),
        );
      }
    },
  );
});

describe('nodes in another order than that of their dependencies', () => {
  const nodes: onnx.TestNode[] = [
    { op: 'MatMul', in: ['x', 'w1'], out: ['a'] },
    { op: 'Relu', in: ['a'], out: ['b'] },
    { op: 'MatMul', in: ['b', 'w2'], out: ['c'] },
    { op: 'Softmax', in: ['c'], out: ['d'] },
    { op: 'MatMul', in: ['d', 'w3'], out: ['y'] },
  ];
  it.each([
    [4, 3, 2, 1, 0],
    [2, 0, 4, 1, 3],
  ])('%i %i %i %i %i are converted as in order', async (...order) => {
    const file = onnx.model({
      nodes: order.map((i) => nodes[i] as onnx.TestNode),
      initializers: ['w1', 'w2', 'w3'].map((name, i) => onnx.floatTensor(name, [64, 64], i + 1)),
      inputs: [['x', [3, 64]]],
      outputs: [['y', [3, 64]]],
    });
    for (const [to, limit] of named) {
      const { report } = await check(file, to, limit);
      expect(report.notes.some(({ kind }) => kind === 'floatNodes')).toBe(false);
    }
  });
});

it.each([
  ['ScatterND', 'add', 16],
  ['ScatterND', 'max', 18],
  ['ScatterND', 'none', 16],
  ['ScatterElements', 'mul', 16],
  ['ScatterElements', 'min', 18],
] as const)('%s with the reduction %s runs in a float16 graph', async (op, reduction, opset) => {
  const indices = op === 'ScatterND' ? [0, 2] : Array.from({ length: 64 }, (_, i) => i % 3);
  const file = onnx.model(
    {
      nodes: [
        { op: 'MatMul', in: ['x', 'w1'], out: ['a'] },
        { op, in: ['a', 'i', 'u'], out: ['s'], attributes: { reduction } },
        { op: 'MatMul', in: ['s', 'w2'], out: ['y'] },
      ],
      initializers: [
        onnx.floatTensor('w1', [64, 64], 1),
        onnx.floatTensor('w2', [64, 64], 2),
        onnx.tensor({ name: 'i', type: 7, dims: op === 'ScatterND' ? [2, 1] : [1, 64], raw: onnx.int64s(indices) }),
        onnx.floatTensor('u', op === 'ScatterND' ? [2, 64] : [1, 64], 9, 1),
      ],
      inputs: [['x', [3, 64]]],
      outputs: [['y', [3, 64]]],
    },
    { opset },
  );
  for (const to of ['fp16', 'q4f16'] as const) await check(file, to, to === 'fp16' ? 0.9999 : 0.98);
});

it('int4-weights gives convolutions 8 bits', async () => {
  const file = onnx.product('Conv', [16, 8, 3, 3], [1, 8, 6, 6], [1, 16, 4, 4])();
  const { report } = await check(file, 'int4-weights', 0.999);
  expect(report.notes).toContainEqual(expect.objectContaining({ kind: 'eightBits', operators: { Conv: 1 } }));
});

describe('a target that leaves most as it is', () => {
  it('names the operators, their bytes and a target that helps, first of all', async () => {
    const file = onnx.model({
      nodes: [
        { op: 'MatMul', in: ['x', 'w'], out: ['a'] },
        { op: 'Conv', in: ['i', 'c'], out: ['y'] },
      ],
      initializers: [onnx.floatTensor('w', [64, 32]), onnx.floatTensor('c', [64, 64, 3, 3])],
      inputs: [
        ['x', [3, 64]],
        ['i', [1, 64, 9, 9]],
      ],
      outputs: [
        ['a', [3, 32]],
        ['y', [1, 64, 7, 7]],
      ],
    });
    const { notes } = await planModel(file, { to: 'q4' });
    expect(notes[0]).toMatchObject({
      kind: 'littleConverted',
      kept: [{ operator: 'Conv', bytes: 147456 }],
      helps: { to: 'q8-blocks' },
    });
    for (const to of ['q8', 'q8-blocks', 'fp16'] as const) {
      expect((await planModel(file, { to })).notes.some(({ kind }) => kind === 'littleConverted')).toBe(false);
    }
  });

  it('names experts that bnb4 leaves as they are', async () => {
    const file = onnx.model(
      {
        nodes: [
          {
            op: 'MoE',
            domain: 'com.microsoft',
            in: ['x', 'r', 'f1', '', 'f2'],
            out: ['y'],
            attributes: { k: 2, use_sparse_mixer: 1 },
          },
        ],
        initializers: [onnx.floatTensor('f1', [4, 64, 64]), onnx.floatTensor('f2', [4, 64, 64])],
        inputs: [
          ['x', [3, 64]],
          ['r', [3, 4]],
        ],
        outputs: [['y', [3, 64]]],
      },
      { imports: { 'com.microsoft': 1 } },
    );
    expect((await planModel(file, { to: 'bnb4' })).notes[0]).toMatchObject({
      kind: 'littleConverted',
      text: expect.stringContaining('131 kB of MoE'),
      kept: [{ operator: 'MoE', bytes: 131072 }],
      helps: { to: 'q8-blocks' },
    });
    for (const to of ['q4', 'q2', 'q8', 'int8-weights', 'int4-weights', 'q8-blocks'] as const) {
      expect((await planModel(file, { to })).tensors.filter(({ kept }) => kept !== undefined)).toEqual([]);
    }
  });
});

it.each([
  [
    [2, 3, 64],
    [2, 64, 64],
  ],
  [
    [3, 64],
    [2, 2, 64, 64],
  ],
])('q4 restores blocks of products with several matrices: %j and %j', async (x, w) => {
  const file = onnx.product(
    'MatMul',
    w,
    x,
    Array.from({ length: Math.max(x.length, w.length) }, (_, i) => `d${i}`),
  )();
  for (const to of ['q4', 'q2', 'q4f16'] as const) {
    const { made } = await check(file, to, 0.98);
    expect(made.length).toBeLessThan((to === 'q4f16' ? 0.53 : 0.2) * file.length);
  }
});

it('q4 and q8-blocks restore weights that functions take', async () => {
  const local = [
    ...[
      ...onnx.text(1, 'F'),
      ...onnx.text(4, 'a'),
      ...onnx.text(4, 'w'),
      ...onnx.text(5, 'o'),
      ...onnx.text(10, 'local'),
    ],
    ...onnx.bytes(7, onnx.node({ op: 'MatMul', in: ['a', 'w'], out: ['o'] })),
    ...onnx.bytes(9, onnx.int(2, 17)),
  ];
  const file = onnx.model(
    {
      nodes: [{ op: 'F', domain: 'local', in: ['x', 'w'], out: ['y'] }],
      initializers: [onnx.floatTensor('w', [64, 64])],
      inputs: [['x', [3, 64]]],
      outputs: [['y', [3, 64]]],
    },
    { imports: { local: 1 }, more: onnx.bytes(25, local) },
  );
  for (const [to, share] of [
    ['q4', 0.22],
    ['q8-blocks', 0.32],
  ] as const) {
    const { made } = await check(file, to, 0.98);
    expect(made.length).toBeLessThan(share * file.length);
  }
});

describe('a model of gigabytes', () => {
  /** Plans a product and a table of float32, whose data are a file of holes. */
  async function planned(rows: number, options: PlanOptions) {
    const folder = await mkdtemp(join(tmpdir(), 'scalepoint-large-'));
    try {
      const more = onnx.external('weights', 4 * 1024 * rows);
      const file = onnx.model({
        nodes: [
          { op: 'MatMul', in: ['x', 'w'], out: ['y'] },
          { op: 'MatMul', in: ['y', 'v'], out: ['z'] },
        ],
        initializers: [
          onnx.tensor({ name: 'w', dims: [1024, rows], more }),
          onnx.tensor({ name: 'v', dims: [rows, 1024], more }),
        ],
        inputs: [['x', [1, 1024]]],
        outputs: [['z', [1, 1024]]],
      });
      await writeFile(join(folder, 'model.onnx'), file);
      await writeFile(join(folder, 'weights'), '');
      await truncate(join(folder, 'weights'), 4 * 1024 * rows);
      return (await planModel(join(folder, 'model.onnx'), options)).notes;
    } finally {
      await rm(folder, { recursive: true, force: true });
    }
  }
  // Each weight has 1 MiB in 8 bits for 1024 rows.
  const mebibytes = (n: number) => 1024 * n;

  it('names tensors that need larger bindings than each GPU has', async () => {
    const large = (notes: readonly Note[]) => notes.find(({ kind }) => kind === 'largeBindings');
    expect(large(await planned(mebibytes(120), { to: 'q8-blocks' }))).toBeUndefined();
    const note = large(await planned(mebibytes(130), { to: 'q8-blocks' }));
    expect(note).toMatchObject({ tensors: [{ name: 'w', bytes: 130 * 2 ** 20 }, { name: 'v' }] });
    // DequantizeLinear restores float32 on the GPU.
    const restored = large(await planned(mebibytes(40), { to: 'int8-weights' }));
    expect(restored).toMatchObject({ tensors: [{ bytes: 160 * 2 ** 20 }, {}] });
  });

  it('does not run in WebAssembly if its weights fill the memory there', async () => {
    const runs = (notes: readonly Note[]) => notes.find(({ kind }) => kind === 'runsOn');
    // Two weights of 445 and 450 MiB as codes; those that a Cast restores become four times as large.
    const cast = { to: 'int8-weights', dequantize: 'cast' } as const;
    expect(runs(await planned(mebibytes(445), cast))).toMatchObject({ wasm: 'right' });
    const note = runs(await planned(mebibytes(450), cast));
    expect(note).toMatchObject({ wasm: 'tooLarge', node: 'right' });
    expect(note?.text).toContain('3774.9 MB');
    expect(runs(await planned(mebibytes(450), { to: 'int8-weights' }))).toMatchObject({ wasm: 'right' });
  });
});
