// Graphs that compute in float16: attention of onnxruntime with its caches, and networks of images of bytes.
import * as ort from 'onnxruntime-web';
import { compareModels, planModel, quantizeModel } from 'scalepoint/model';
import { describe, expect, it } from 'vitest';
import { openSource } from '../../../../web/src/formats/files/open.js';
import { openOnnx } from '../../../../web/src/formats/onnx/file/model.js';
import * as onnx from './encoder.js';
import { expectLike, type Feeds, make } from './ort.js';

/** The nodes, inputs and outputs of a file. */
async function protoOf(file: Uint8Array<ArrayBuffer>) {
  const source = await openSource(file);
  return (await openOnnx({ input: file, source }, [], openSource)).proto.graph;
}
const castsOf = ({ nodes }: Awaited<ReturnType<typeof protoOf>>) => nodes.filter(({ opType }) => opType === 'Cast');

async function check(file: Uint8Array<ArrayBuffer>, to: 'fp16' | 'q4f16', limit: number, feeds?: Feeds) {
  const { made, report } = await make(file, { to });
  await expectLike(file, made, limit, { feeds, what: to });
  return { report, casts: castsOf(await protoOf(made)).length };
}

const grouped = ['pk', 'pv', 'sl', 'tl'];

/** Projections, attention, and a projection of its result. */
function layer(
  op: string,
  attributes: NonNullable<onnx.TestNode['attributes']>,
  sizes: readonly [number, number],
  more: readonly string[],
) {
  const [queries, keys] = sizes;
  const heads = keys / 16;
  const hasCache = more.includes('pk');
  const cache: onnx.TestValue[] = hasCache
    ? [
        ['pk', [1, heads, 'past', 16]],
        ['pv', [1, heads, 'past', 16]],
      ]
    : [];
  const isGrouped = op === 'GroupQueryAttention';
  const lengths: onnx.TestValue[] = isGrouped
    ? [
        ['sl', [1], 6],
        ['tl', [], 6],
      ]
    : [];
  return onnx.model(
    {
      nodes: [
        { op: 'MatMul', in: ['x', 'wq'], out: ['q'] },
        { op: 'MatMul', in: ['x', 'wk'], out: ['k'] },
        { op: 'MatMul', in: ['x', 'wv'], out: ['v'] },
        {
          op,
          domain: 'com.microsoft',
          in: ['q', 'k', 'v', ...more],
          out: hasCache ? ['a', 'prk', 'prv'] : ['a'],
          attributes,
        },
        { op: 'MatMul', in: ['a', 'wo'], out: ['y'] },
      ],
      initializers: [
        onnx.floatTensor('wq', [64, queries], 1),
        onnx.floatTensor('wk', [64, keys], 2),
        onnx.floatTensor('wv', [64, keys], 3),
        onnx.floatTensor('wo', [queries, 64], 4),
        onnx.floatTensor('bias', [queries + 2 * keys], 5),
        onnx.floatTensor('cos', [16, 8], 6, 1),
        onnx.floatTensor('sin', [16, 8], 7, 1),
      ],
      inputs: [['x', [1, 6, 64]], ...cache, ...lengths],
      outputs: [
        ['y', [1, 6, 64]],
        ...(hasCache
          ? ([
              ['prk', [1, heads, 'all', 16]],
              ['prv', [1, heads, 'all', 16]],
            ] as const)
          : []),
      ],
    },
    { imports: { 'com.microsoft': 1 } },
  );
}
describe('attention of com.microsoft', () => {
  const floats = (seed: number, shape: readonly number[]) =>
    new ort.Tensor(
      'float32',
      onnx.weights(
        shape.reduce((a, b) => a * b, 1),
        seed,
        1,
      ),
      shape,
    );
  const int32 = (values: readonly number[], shape: readonly number[]) =>
    new ort.Tensor('int32', Int32Array.from(values), shape);

  const feeds = (heads: number, cached: boolean, grouped: boolean): Feeds => ({
    x: floats(1, [1, 6, 64]),
    ...(cached && { pk: floats(2, [1, heads, 2, 16]), pv: floats(3, [1, heads, 2, 16]) }),
    ...(grouped && { sl: int32([7], [1]), tl: int32([8], []) }),
  });
  it.each([
    ['MultiHeadAttention', { num_heads: 4 }, [64, 64], [], 2],
    ['MultiHeadAttention', { num_heads: 4 }, [64, 64], ['bias'], 2],
    ['MultiHeadAttention', { num_heads: 4 }, [64, 64], ['', '', '', 'pk', 'pv'], 6],
    ['GroupQueryAttention', { num_heads: 4, kv_num_heads: 2 }, [64, 32], ['pk', 'pv', 'sl', 'tl'], 6],
    [
      'GroupQueryAttention',
      { num_heads: 4, kv_num_heads: 2, do_rotary: 1 },
      [64, 32],
      ['pk', 'pv', 'sl', 'tl', 'cos', 'sin'],
      6,
    ],
  ] as const)('%s %j %j %j computes in float16', async (op, attributes, sizes, more, most) => {
    const file = layer(op, attributes, sizes, more);
    const given = feeds(sizes[1] / 16, more.includes('pk' as never), op === 'GroupQueryAttention');
    for (const [to, limit] of [
      ['fp16', 0.9999],
      ['q4f16', 0.97],
    ] as const) {
      const { report, casts } = await check(file, to, limit, given);
      expect(report.notes.some(({ kind }) => kind === 'floatNodes')).toBe(false);
      // One at each input and output.
      expect(casts).toBe(most);
    }
  });
});

/** Attention of opset 23, and attention of plain products whose caches grow by Concat, as exporters write it; one cache is computed with. */
const cached = (isPlain: boolean) => {
  const [pk, pv] = isPlain ? ['past_key_values.0.key', 'past_key_values.0.value'] : ['pk', 'pv'];
  const [prk, prv] = isPlain ? ['present.0.key', 'present.0.value'] : ['prk', 'prv'];
  const turn = (from: string, to: string, perm: number[]): onnx.TestNode => {
    return { op: 'Transpose', in: [from], out: [to], attributes: { perm } };
  };
  const nodes: onnx.TestNode[] = isPlain
    ? [
        ...['q', 'k', 'v'].flatMap((name): onnx.TestNode[] => [
          { op: 'Reshape', in: [name, 'heads'], out: [`${name}s`] },
          turn(`${name}s`, `${name}t`, [0, 2, 1, 3]),
        ]),
        { op: 'Concat', in: [pk, 'kt'], out: [prk], attributes: { axis: 2 } },
        { op: 'Concat', in: [pv, 'vt'], out: [prv], attributes: { axis: 2 } },
        turn(prk, 'kk', [0, 1, 3, 2]),
        { op: 'MatMul', in: ['qt', 'kk'], out: ['scores'] },
        { op: 'Softmax', in: ['scores'], out: ['shares'], attributes: { axis: -1 } },
        { op: 'MatMul', in: ['shares', prv], out: ['at'] },
        turn('at', 'as', [0, 2, 1, 3]),
        { op: 'Reshape', in: ['as', 'whole'], out: ['a'] },
      ]
    : [
        {
          op: 'Attention',
          in: ['q', 'k', 'v', '', pk, pv],
          out: ['a', prk, prv],
          attributes: { q_num_heads: 4, kv_num_heads: 4, is_causal: 1 },
        },
      ];
  const cache = [1, 4, 'past', 16] as const;
  return onnx.model(
    {
      nodes: [
        ...['q', 'k', 'v'].map((name) => ({ op: 'MatMul', in: ['x', `w${name}`], out: [name] })),
        ...nodes,
        { op: 'MatMul', in: ['a', 'wo'], out: ['y'] },
        // CumSum stays in float32, and reads the cache behind a Cast.
        { op: 'CumSum', in: [prk, 'axis'], out: ['z'] },
      ],
      initializers: [
        ...['wq', 'wk', 'wv', 'wo'].map((name, i) => onnx.floatTensor(name, [64, 64], i + 1)),
        onnx.tensor({ name: 'heads', type: 7, dims: [4], raw: onnx.int64s([1, -1, 4, 16]) }),
        onnx.tensor({ name: 'whole', type: 7, dims: [3], raw: onnx.int64s([1, -1, 64]) }),
        onnx.tensor({ name: 'axis', type: 7, dims: [], raw: onnx.int64s([3]) }),
      ],
      inputs: [['x', [1, 3, 64]], [pk, cache] as const, [pv, cache] as const],
      outputs: [
        ['y', [1, 3, 64]],
        ['z', [1, 4, 'all', 16]],
        [prk, [1, 4, 'all', 16]],
        [prv, [1, 4, 'all', 16]],
      ],
    },
    { opset: 23, ir: 11 },
  );
};

describe('caches in float16', () => {
  // A result as a product with caches of float32 gives it: caches are rounded once more, by at most 2^-11 of each value.
  it.each([
    ['GroupQueryAttention', layer('GroupQueryAttention', { num_heads: 4, kv_num_heads: 2 }, [64, 32], grouped), 2],
    ['MultiHeadAttention', layer('MultiHeadAttention', { num_heads: 4 }, [64, 64], ['', '', '', 'pk', 'pv']), 2],
    ['Attention of opset 23', cached(false), 3],
    ['attention of products', cached(true), 3],
  ] as const)('of %s', async (name, file, casts) => {
    const inputs = name.startsWith('Group') ? { sl: { data: [7], shape: [1] }, tl: { data: [8], shape: [] } } : {};
    const run = { inputs, dimensions: { past: 2 }, runtime: ort };
    for (const [to, least] of [
      ['fp16', 0.9999],
      ['q4f16', 0.97],
    ] as const) {
      const options = { to, kvCache: 'float16', workers: 0 } as const;
      const { bytes, report } = await quantizeModel(file, options);
      const made = (await bytes()) as Uint8Array<ArrayBuffer>;
      expect(made.length).toBe((await planModel(file, { to, kvCache: 'float16' })).totals.bytesAfter);
      expect(report.notes).toContainEqual(expect.objectContaining({ kind: 'halfCaches', caches: 4 }));
      const graph = await protoOf(made);
      const halves = [...graph.inputs, ...graph.outputs].filter(({ type }) => type === 10).map((one) => one.name);
      expect(halves).toHaveLength(4);
      expect(castsOf(graph)).toHaveLength(casts);
      const compared = await compareModels(file, made, { run });
      const outputs = compared.outputs ?? [];
      expect(outputs.length).toBeGreaterThan(2);
      for (const output of outputs) expect(output.error.cosine, `${to} ${output.name}`).toBeGreaterThan(least);
    }
    // Without the option they stay as they are.
    const plain = await protoOf((await (await quantizeModel(file, { to: 'fp16', workers: 0 })).bytes()) as never);
    expect([...plain.inputs, ...plain.outputs].some(({ type }) => type === 10)).toBe(false);
  });

  it('holds a result against its original with --min-output', async () => {
    const file = cached(false);
    const run = { dimensions: { past: 2 }, runtime: ort };
    const minOutput = 0.999;
    await expect(
      quantizeModel(file, { to: 'fp16', kvCache: 'float16', minOutput, run, workers: 0 }),
    ).resolves.toBeDefined();
  });

  it('are refused for other targets, and noted if there are none', async () => {
    const file = cached(false);
    await expect(planModel(file, { to: 'q4', kvCache: 'float16' })).rejects.toThrow(/kvCache/);
    await expect(planModel(file, { to: 'fp16', kvCache: 'half' as never })).rejects.toThrow(/float16/);
    const [x, y] = [
      ['x', [3, 64]],
      ['y', [3, 64]],
    ] as const;
    const nodes = [{ op: 'MatMul', in: ['x', 'w'], out: ['y'] }];
    const without = onnx.model({ nodes, initializers: [onnx.floatTensor('w', [64, 64])], inputs: [x], outputs: [y] });
    const { notes } = await planModel(without, { to: 'fp16', kvCache: 'float16' });
    expect(notes).toContainEqual(expect.objectContaining({ kind: 'halfCaches', caches: 0 }));
  });
});

describe('a network of bytes', () => {
  it.each(['a Resize', 'bytes again'])('computes in float16 if it ends with %s', async (end) => {
    const isImage = end === 'bytes again';
    const file = onnx.model({
      nodes: [
        { op: 'Cast', in: ['img'], out: ['f'], attributes: { to: 1 } },
        { op: 'Mul', in: ['f', 'k'], out: ['n'] },
        { op: 'Transpose', in: ['n'], out: ['x'], attributes: { perm: [0, 3, 1, 2] } },
        { op: 'Conv', in: ['x', 'w1'], out: ['c1'], attributes: { pads: [1, 1, 1, 1] } },
        { op: 'Relu', in: ['c1'], out: ['r1'] },
        ...(isImage
          ? [
              { op: 'Conv', in: ['r1', 'w2'], out: ['y'] },
              { op: 'Cast', in: ['y'], out: ['z'], attributes: { to: 6 } },
            ]
          : [
              { op: 'Resize', in: ['r1', '', 'scales'], out: ['up'], attributes: { mode: 'nearest' } },
              { op: 'Conv', in: ['up', 'w2'], out: ['y'] },
            ]),
      ],
      initializers: [
        onnx.tensor({ name: 'k', dims: [], raw: onnx.floats([1 / 255]) }),
        onnx.floatTensor('w1', [64, 3, 3, 3], 1),
        onnx.floatTensor('w2', [16, 64, 3, 3], 2),
        onnx.tensor({ name: 'scales', dims: [4], raw: onnx.floats([1, 1, 2, 2]) }),
      ],
      inputs: [['img', [1, 16, 16, 3], 2]],
      outputs: [['y', [1, 16, 'h', 'w']], ...(isImage ? ([['z', [1, 16, 'h', 'w'], 6]] as const) : [])],
    });
    const img = new ort.Tensor(
      'uint8',
      Uint8Array.from({ length: 768 }, (_, i) => (i * 37) & 255),
      [1, 16, 16, 3],
    );
    const { report } = await check(file, 'fp16', 0.9999, { img });
    const floats = report.notes.find(({ kind }) => kind === 'floatNodes');
    expect(floats ?? { operators: {} }).toMatchObject({ operators: isImage ? {} : { Resize: 1 } });
    expect(report.tensors.find(({ name }) => name === 'w1')?.kept).toBeUndefined();
  });
});
