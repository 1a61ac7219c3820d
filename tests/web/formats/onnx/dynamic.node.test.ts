// Layers that quantize_dynamic has operators for, besides products and convolutions.
import { compareModels, type PlanOptions, readTensor } from 'scalepoint/model';
import { describe, expect, it } from 'vitest';
import * as onnx from './encoder.js';
import { expectLike, make } from './ort.js';

const latin = (bytes: Uint8Array) => new TextDecoder('latin1').decode(bytes);

async function check(file: Uint8Array<ArrayBuffer>, options: PlanOptions) {
  const result = await make(file, options);
  await expectLike(file, result.made, 0.99);
  // The report and the file agree on each tensor.
  const { tensors } = await compareModels(file, result.made);
  for (const { name, error } of tensors) {
    const reported = result.report.tensors.find((tensor) => tensor.name === name);
    if (reported?.kept === undefined) expect(error, name).toEqual(reported?.error);
  }
  return result;
}

const targets = ['q8', 'int8', 'uint8'] as const;
const choices: PlanOptions[] = targets.flatMap((to) => [{ to }, { to, perTensor: true }]);

function lstm(
  attributes: onnx.TestNode['attributes'] = {},
  more: readonly onnx.TestNode[] = [],
  inputs = ['x', 'w', 'r', 'b'],
) {
  const directions = attributes.direction === 'bidirectional' ? 2 : 1;
  return onnx.model({
    nodes: [
      ...more,
      { op: 'LSTM', name: 'rnn', in: inputs, out: ['y', 'h', 'c'], attributes: { hidden_size: 32, ...attributes } },
    ],
    initializers: [
      onnx.floatTensor('w', [directions, 128, 40], 1, 0.3),
      onnx.floatTensor('r', [directions, 128, 32], 2, 0.3),
      onnx.floatTensor('b', [directions, 256], 3),
    ],
    inputs: [['x', [5, 2, 40]]],
    outputs: [
      ['y', [5, directions, 2, 32]],
      ['h', [directions, 2, 32]],
      ['c', [directions, 2, 32]],
    ],
  });
}

describe('LSTM', () => {
  it.each([...choices, ...targets.map((to): PlanOptions => ({ to, reduceRange: false }))])(
    'in both directions, as $to, per tensor $perTensor, reduced $reduceRange',
    async (choice) => {
      const { made, report } = await check(lstm({ direction: 'bidirectional' }), choice);
      expect(latin(made)).toContain('DynamicQuantizeLSTM');
      expect(report.tensors.map(({ to }) => to)).toEqual(['I8', 'I8', 'F32']);
      // Weights of this operator have a sign, and 7 bits by default. Each direction and gate has a scale, or each direction.
      const { data, shape } = await readTensor(made, 'w_scale');
      expect(shape).toEqual(choice.perTensor ? [2] : [2, 128]);
      const [w, rows] = [onnx.weights(2 * 128 * 40, 1, 0.3), choice.perTensor ? 2 : 256];
      const size = w.length / rows;
      const largest = (i: number) =>
        w.subarray(i * size, (i + 1) * size).reduce((most, x) => Math.max(most, Math.abs(x)), 0);
      const range = choice.reduceRange === false ? 254 : 126;
      expect(data).toEqual(Float32Array.from({ length: rows }, (_, i) => (2 * largest(i)) / range));
      expect([...(await readTensor(made, 'w_zero_point')).data].every((zero) => zero === 0)).toBe(true);
    },
  );

  it('in one direction, with searched ranges', async () => {
    await check(lstm(), { to: 'q8' });
    await check(lstm({ direction: 'reverse' }), { to: 'q8', range: 'mse' });
  });

  it('has floats if one of its weights is kept', async () => {
    const { made, report } = await check(lstm(), { to: 'q8', rules: [{ match: /^r$/, keep: true }] });
    expect(latin(made)).not.toContain('DynamicQuantizeLSTM');
    expect(latin(made)).toContain('DequantizeLinear');
    expect(report.tensors.map(({ to }) => to)).toEqual(['I8', 'F32', 'F32']);
  });

  it('has floats if its weights come through other nodes, and a note says so', async () => {
    const file = lstm({}, [{ op: 'Identity', in: ['w'], out: ['v'] }], ['x', 'v', 'r', 'b']);
    const { made, report } = await check(file, { to: 'q8' });
    expect(latin(made)).not.toContain('DynamicQuantizeLSTM');
    const reason = { kind: 'readBy', operator: 'LSTM' };
    expect(report.notes).toContainEqual(
      expect.objectContaining({ kind: 'restoredAtEveryRun', weights: 2, reasons: [reason, reason] }),
    );
  });
});

it('GRU has floats, and a note says so', async () => {
  const file = onnx.model({
    nodes: [{ op: 'GRU', in: ['x', 'w', 'r'], out: ['y'], attributes: { hidden_size: 32 } }],
    initializers: [onnx.floatTensor('w', [1, 96, 40], 1), onnx.floatTensor('r', [1, 96, 32], 2)],
    inputs: [['x', [5, 1, 40]]],
    outputs: [['y', [5, 1, 1, 32]]],
  });
  const { report } = await check(file, { to: 'q8' });
  const reason = { kind: 'readBy', operator: 'GRU' };
  expect(report.notes).toContainEqual(
    expect.objectContaining({ kind: 'restoredAtEveryRun', weights: 2, reasons: [reason, reason] }),
  );
});

describe('Attention', () => {
  const attention = (inputs: readonly string[], attributes: onnx.TestNode['attributes'] = {}) =>
    onnx.model(
      {
        nodes: [
          {
            op: 'Attention',
            domain: 'com.microsoft',
            in: inputs,
            out: ['y'],
            attributes: { num_heads: 4, ...attributes },
          },
        ],
        initializers: [
          onnx.floatTensor('w', [48, 144], 1, 0.3),
          onnx.floatTensor('b', [144], 2),
          onnx.tensor({ name: 'mask', type: 6, dims: [2], raw: [5, 0, 0, 0, 3, 0, 0, 0] }),
        ],
        inputs: [['x', [2, 5, 48]]],
        outputs: [['y', [2, 5, 48]]],
      },
      { imports: { 'com.microsoft': 1 } },
    );
  it.each(choices)('as $to, per tensor $perTensor', async (choice) => {
    for (const inputs of [
      ['x', 'w', 'b'],
      ['x', 'w', 'b', 'mask'],
    ]) {
      const { made, report } = await check(attention(inputs), choice);
      expect(latin(made)).toContain('QAttention');
      expect(report.tensors[0]?.kept).toBeUndefined();
    }
  });
  it('computes with floats if its parts have sizes of their own', async () => {
    const { made } = await check(attention(['x', 'w', 'b'], { qkv_hidden_sizes: [48, 48, 48] }), { to: 'q8' });
    expect(latin(made)).not.toContain('QAttention');
  });
});

describe('EmbedLayerNormalization', () => {
  const embeddings = (segments: boolean) =>
    onnx.model(
      {
        nodes: [
          {
            op: 'EmbedLayerNormalization',
            domain: 'com.microsoft',
            in: ['i', segments ? 's' : '', 'word', 'position', segments ? 'segment' : '', 'gamma', 'beta'],
            out: ['y', 'm'],
            attributes: { epsilon: { float: 1e-12 } },
          },
        ],
        initializers: [
          onnx.floatTensor('word', [100, 32], 1),
          onnx.floatTensor('position', [48, 32], 2),
          ...(segments ? [onnx.floatTensor('segment', [2, 32], 3)] : []),
          onnx.floatTensor('gamma', [32], 4),
          onnx.floatTensor('beta', [32], 5),
        ],
        inputs: [['i', [2, 7], 6], ...(segments ? [['s', [2, 7], 6] as const] : [])],
        outputs: [['y', [2, 7, 32]]],
      },
      { imports: { 'com.microsoft': 1 } },
    );
  it.each([true, false])('with segments: %s', async (segments) => {
    const { made, report } = await check(embeddings(segments), { to: 'q8' });
    expect(latin(made)).toContain('QEmbedLayerNormalization');
    expect(report.tensors.every(({ to }) => to === 'U8')).toBe(true);
    await check(embeddings(segments), { to: 'int8-weights' });
  });
});
