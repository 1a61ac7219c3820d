// Graphs that compute in float16: attention of onnxruntime with its caches, and networks of images of bytes.
import * as ort from 'onnxruntime-web';
import { quantizeModel } from 'scalepoint/model';
import { describe, expect, it } from 'vitest';
import { openSource } from '../../../../web/src/files/open.js';
import { openOnnx } from '../../../../web/src/formats/onnx/file/model.js';
import * as onnx from './encoder.js';
import { cosine, type Feeds, run } from './ort.js';

async function check(file: Uint8Array<ArrayBuffer>, to: 'fp16' | 'q4f16', limit: number, feeds?: Feeds) {
  const { bytes, report } = await quantizeModel(file, { to, workers: 0 });
  const made = (await bytes()) as Uint8Array<ArrayBuffer>;
  for (const level of ['disabled', 'all'] as const) {
    const [before, after] = [await run(file, level, feeds), await run(made, level, feeds)];
    expect(Object.keys(after)).toEqual(Object.keys(before));
    for (const [name, y] of Object.entries(before)) {
      expect(cosine(y, after[name] as Float32Array), `${to} ${level} ${name}`).toBeGreaterThan(limit);
    }
  }
  const source = await openSource(made);
  const { proto } = await openOnnx({ input: made, source }, [], openSource);
  return { report, casts: proto.graph.nodes.filter(({ opType }) => opType === 'Cast').length };
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
