// Attention of opset 23, as exporters write it: its caches have the type of its other floats.
import { describe, it } from 'vitest';
import * as onnx from './encoder.js';
import { expectLike, make } from './ort.js';

/** @param more names of further outputs of Attention */
const attention = (more: readonly string[]) =>
  onnx.model(
    {
      nodes: [
        ...['q', 'k', 'v'].map((name) => ({ op: 'MatMul', in: ['x', `w${name}`], out: [name] })),
        {
          op: 'Attention',
          in: ['q', 'k', 'v', '', 'pk', 'pv'],
          out: ['a', ...more],
          attributes: { q_num_heads: 4, kv_num_heads: 2, is_causal: 1 },
        },
        { op: 'MatMul', in: ['a', 'wo'], out: ['y'] },
        // A cache that is computed with, too.
        { op: 'Mul', in: ['prk', 'prk'], out: ['z'] },
      ],
      initializers: [
        onnx.floatTensor('wq', [64, 64], 1),
        onnx.floatTensor('wk', [64, 32], 2),
        onnx.floatTensor('wv', [64, 32], 3),
        onnx.floatTensor('wo', [64, 64], 4),
      ],
      inputs: [
        ['x', [1, 3, 64]],
        ['pk', [1, 2, 2, 16]],
        ['pv', [1, 2, 2, 16]],
      ],
      outputs: [
        ['y', [1, 3, 64]],
        ['z', [1, 2, 5, 16]],
        ...more.map((name) => [name, name === 'qk' ? [1, 4, 3, 5] : [1, 2, 5, 16]] as const),
      ],
    },
    { opset: 23, ir: 11 },
  );

describe.each([[['prk', 'prv']], [['prk', 'prv', 'qk']]])('Attention with %s', (more) => {
  it.each(['fp16', 'q4f16', 'q2f16'] as const)('as %s', async (to) => {
    const file = attention(more);
    await expectLike(file, (await make(file, { to })).made, { fp16: 0.9999, q4f16: 0.97, q2f16: 0.6 }[to]);
  });
});
