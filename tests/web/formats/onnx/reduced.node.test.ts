// Weights that are multiplied with uint8 activations: their sums fit into 16 bits, as onnxruntime's kernels for x86 without VNNI add them.
import { calibrateModel, type PlanOptions, quantizeModel, readTensor } from 'scalepoint/model';
import { describe, expect, it } from 'vitest';
import * as onnx from './encoder.js';
import { expectLike, run } from './ort.js';

const dense = onnx.product('MatMul', [64, 48], [16, 64], [16, 48])();
const many = onnx.product('MatMul', [1100, 1000], [1, 1100], [1, 1000])();
const gates = onnx.model({
  nodes: [{ op: 'LSTM', in: ['x', 'w', 'r'], out: ['y'], attributes: { hidden_size: 32 } }],
  initializers: [onnx.floatTensor('w', [1, 128, 40], 1), onnx.floatTensor('r', [1, 128, 32], 2)],
  inputs: [['x', [5, 1, 40]]],
  outputs: [['y', [5, 1, 1, 32]]],
});

async function codesOf(file: Uint8Array<ArrayBuffer>, options: PlanOptions, name = 'w') {
  const { report, bytes } = await quantizeModel(file, { workers: 0, ...options });
  const made = await bytes();
  const { data: codes } = await readTensor(made, `${name}_quantized`);
  const { data: scales } = await readTensor(made, `${name}_scale`);
  return { report, made, codes: codes as Int8Array | Uint8Array, scales: scales as Float32Array };
}

/** The largest sum of two products of a uint8 activation and a signed weight. */
const largestPair = (codes: Int8Array) => codes.reduce((most, code) => Math.max(most, 2 * 255 * Math.abs(code)), 0);

it('q8 has the values of int8 with 8 bits, without a sign', async () => {
  const [q8, int8] = [await codesOf(dense, { to: 'q8' }), await codesOf(dense, { to: 'int8', reduceRange: false })];
  expect(q8.codes).toBeInstanceOf(Uint8Array);
  expect(int8.codes).toBeInstanceOf(Int8Array);
  expect(q8.scales).toEqual(int8.scales);
  expect(Array.from(q8.codes, (code) => code - 128)).toEqual([...int8.codes]);
  expect(q8.report.tensors[0]?.error).toEqual(int8.report.tensors[0]?.error);
  expect(q8.report.notes.map(({ kind }) => kind)).not.toContain('reducedRange');
  const [a, b] = [await run(q8.made), await run(int8.made)];
  expect(a.y).toEqual(b.y);
});

describe('signed weights have 7 bits', () => {
  const data = () =>
    calibrateModel(dense, [{ x: { data: onnx.weights(64 * 16, 9, 1), shape: [16, 64] } }], { moments: true });
  it.each<[string, Uint8Array<ArrayBuffer>, PlanOptions]>([
    ['int8', dense, { to: 'int8' }],
    ['q8 on request', dense, { to: 'q8', reduceRange: true }],
    ['with one scale', dense, { to: 'int8', perTensor: true }],
    ['with searched ranges', dense, { to: 'int8', range: 'mse' }],
    ['with percentiles', dense, { to: 'int8', range: { percentile: 99 } }],
    ['in more than a tile', many, { to: 'int8' }],
    ['in more than a tile with one scale', many, { to: 'int8', perTensor: true }],
    ['an LSTM as q8', gates, { to: 'q8' }],
    ['an LSTM as uint8', gates, { to: 'uint8' }],
    ['an LSTM with searched ranges', gates, { to: 'int8', range: 'mse' }],
  ])('%s', async (_name, file, options) => {
    const { codes, report, made } = await codesOf(file, options);
    expect(codes).toBeInstanceOf(Int8Array);
    expect(largestPair(codes as Int8Array)).toBeLessThan(2 ** 15);
    expect(codes.some((code) => code === 63 || code === -63)).toBe(true);
    expect(report.notes).toContainEqual(expect.objectContaining({ kind: 'reducedRange', bits: 7 }));
    // 7 bits: a rounding error of at most 1/126 of the largest weight.
    await expectLike(file, made, 0.999);
  });

  it.each(['importance', 'gptq'])('by data: %s', async (method) => {
    const found = await data();
    const options: PlanOptions =
      method === 'gptq' ? { to: 'int8', method, moments: found } : { to: 'int8', importance: await found.blob() };
    const { codes, made } = await codesOf(dense, options);
    expect(largestPair(codes as Int8Array)).toBeLessThan(2 ** 15);
    await expectLike(dense, made, 0.999);
  });

  it('with attention', async () => {
    const file = onnx.model(
      {
        nodes: [
          { op: 'Attention', domain: 'com.microsoft', in: ['x', 'w', 'b'], out: ['y'], attributes: { num_heads: 4 } },
        ],
        initializers: [onnx.floatTensor('w', [48, 144], 1, 0.3), onnx.floatTensor('b', [144], 2)],
        inputs: [['x', [2, 5, 48]]],
        outputs: [['y', [2, 5, 48]]],
      },
      { imports: { 'com.microsoft': 1 } },
    );
    const [int8, q8] = [await codesOf(file, { to: 'int8' }), await codesOf(file, { to: 'q8' })];
    expect(largestPair(int8.codes as Int8Array)).toBeLessThan(2 ** 15);
    expect(q8.codes).toBeInstanceOf(Uint8Array);
  });
});

it('reduceRange: false gives them 8, with a note', async () => {
  for (const [file, to] of [
    [dense, 'int8'],
    [gates, 'q8'],
    [gates, 'uint8'],
  ] as const) {
    const { codes, report } = await codesOf(file, { to, reduceRange: false });
    expect(codes.some((code) => code === 127 || code === -127)).toBe(true);
    expect(report.notes).toContainEqual(expect.objectContaining({ kind: 'saturates', bits: 8 }));
  }
});

it('others do not take it', async () => {
  await expect(quantizeModel(dense, { to: 'q4', reduceRange: true, workers: 0 })).rejects.toThrow(/reduceRange/);
  await expect(quantizeModel(dense, { to: 'q8', reduceRange: 1 as never, workers: 0 })).rejects.toThrow(/reduceRange/);
});
