// The numbers at which decisions about weights change, on both sides of each.
import { type ModelTarget, planModel } from 'scalepoint/model';
import { expect, it } from 'vitest';
import * as onnx from './encoder.js';

/** What becomes of the weight of one node: its type, or the reason to keep it. */
async function decided(op: 'MatMul' | 'Gemm', shape: readonly [number, number], to: ModelTarget, attributes = {}) {
  const [k, n] = shape;
  const file = onnx.product(op, [k, n], [3, k], [3, n])(attributes);
  const { tensors } = await planModel(file, { to });
  const { kept, to: type } = tensors.find(({ name }) => name === 'w') ?? {};
  return kept?.kind ?? type;
}

it('weights of 1,024 elements are worth codes', async () => {
  expect(await decided('MatMul', [32, 32], 'q8')).toBe('U8');
  expect(await decided('MatMul', [33, 31], 'q8')).toBe('small');
});

it('blocks are smaller than the weight', async () => {
  // A block of 32 codes of 4 bits and its scale take as much as five floats.
  expect(await decided('MatMul', [5, 256], 'q4')).toBe('notSmaller');
  expect(await decided('MatMul', [6, 256], 'q4')).toBe('Q4 (32)');
});

it('factors that float16 holds at full precision are multiplied in it', async () => {
  for (const [alpha, type] of [
    [65504, 'Q4 (32)'],
    [-65504, 'Q4 (32)'],
    [65536, 'F16'],
    [2 ** -14, 'Q4 (32)'],
    [2 ** -15, 'F16'],
  ] as const) {
    expect(await decided('Gemm', [64, 48], 'q4f16', { alpha: { float: alpha } }), String(alpha)).toBe(type);
  }
});
