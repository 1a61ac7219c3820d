// Weights whose channels differ in size, by operators whose channels are not easy to tell: a scale for each of them keeps the small ones.
import { planModel, quantizeModel } from 'scalepoint/model';
import { describe, expect, it } from 'vitest';
import * as onnx from './encoder.js';
import { run } from './ort.js';

/** Weights of channels along an axis, each of which is a tenth of the one before, over and over again. */
function uneven(dims: readonly number[], axis: number): onnx.Bytes {
  const inner = dims.slice(axis + 1).reduce((a, b) => a * b, 1);
  const values = onnx.weights(dims.reduce((a, b) => a * b, 1));
  return onnx.tensor({
    name: 'w',
    dims,
    raw: onnx.rawOf(values.map((value, i) => value * 10 ** -((Math.floor(i / inner) % (dims[axis] as number)) % 4))),
  });
}

/** A model of one node. */
function modelOf(
  op: string,
  attributes: NonNullable<onnx.TestNode['attributes']>,
  x: readonly number[],
  weight: onnx.Bytes,
  y: readonly number[],
  swapped = false,
) {
  return onnx.model(
    {
      nodes: [{ op, in: swapped ? ['w', 'x'] : ['x', 'w'], out: ['y'], attributes }],
      initializers: [weight],
      inputs: [['x', x]],
      outputs: [['y', y]],
    },
    { opset: 17 },
  );
}

/** The largest error of each channel of y, as a share of its largest value; the worst of them. */
function worst(y: Float32Array, made: Float32Array, dims: readonly number[], axis: number): number {
  const inner = dims.slice(axis + 1).reduce((a, b) => a * b, 1);
  const [errors, largest] = [new Map<number, number>(), new Map<number, number>()];
  for (const [i, value] of y.entries()) {
    const channel = Math.floor(i / inner) % (dims[axis] as number);
    errors.set(channel, Math.max(errors.get(channel) ?? 0, Math.abs(value - (made[i] as number))));
    largest.set(channel, Math.max(largest.get(channel) ?? 0, Math.abs(value)));
  }
  return Math.max(...[...errors].map(([channel, error]) => error / (largest.get(channel) as number)));
}

const einsum = (equation: string) => ({ equation });
const cases: readonly (readonly [
  name: string,
  file: Uint8Array<ArrayBuffer>,
  y: readonly number[],
  channels: number,
])[] = [
  ['bij,jk->bik', modelOf('Einsum', einsum('bij,jk->bik'), [1, 5, 64], uneven([64, 32], 1), [1, 5, 32]), [1, 5, 32], 2],
  ['bij,kj->bik', modelOf('Einsum', einsum('bij,kj->bik'), [1, 5, 64], uneven([32, 64], 0), [1, 5, 32]), [1, 5, 32], 2],
  ['ij, jk', modelOf('Einsum', einsum('ij, jk'), [5, 64], uneven([64, 32], 1), [5, 32]), [5, 32], 1],
  [
    '...j,jk->...k',
    modelOf('Einsum', einsum('...j,jk->...k'), [1, 5, 64], uneven([64, 32], 1), [1, 5, 32]),
    [1, 5, 32],
    2,
  ],
  ['hdo', modelOf('Einsum', einsum('bthd,hdo->bto'), [1, 5, 4, 16], uneven([4, 16, 32], 2), [1, 5, 32]), [1, 5, 32], 2],
  ['kj,bj->bk', modelOf('Einsum', einsum('kj,bj->bk'), [5, 64], uneven([32, 64], 0), [5, 32], true), [5, 32], 1],
  [
    '...kj,...j',
    modelOf('Einsum', einsum('...kj,...j->...k'), [1, 5, 64], uneven([1, 1, 32, 64], 2), [1, 5, 32], true),
    [1, 5, 32],
    2,
  ],
  [
    'ConvTranspose of a group for each channel',
    modelOf('ConvTranspose', { group: 32 }, [1, 32, 5, 5], uneven([32, 1, 6, 6], 0), [1, 32, 10, 10]),
    [1, 32, 10, 10],
    1,
  ],
  [
    'ConvTranspose of one group',
    modelOf('ConvTranspose', { group: 1 }, [1, 8, 5, 5], uneven([8, 16, 4, 4], 1), [1, 16, 8, 8]),
    [1, 16, 8, 8],
    1,
  ],
];

describe.each(cases)('%s', (_, file, dims, axis) => {
  it.each(['int8-weights', 'uint8-weights'] as const)('has a scale for each channel as %s', async (to) => {
    const { bytes, report } = await quantizeModel(file, { to, workers: 0 });
    expect(report.tensors[0]?.kept).toBeUndefined();
    const [before, after] = [await run(file), await run(await bytes(), 'disabled')];
    // A code is off by at most 1/254 of the largest weight, and sums of tens of them by some times as much. One scale for all would be off
    // by 1000 times as much in the smallest channels.
    expect(worst(before.y as Float32Array, after.y as Float32Array, dims, axis)).toBeLessThan(0.05);
  });
});

describe('int4-weights', () => {
  it('has blocks along the axis that Einsum sums over', async () => {
    const file = modelOf('Einsum', einsum('bij,jk->bik'), [1, 5, 64], uneven([64, 32], 1), [1, 5, 32]);
    const { bytes, report } = await quantizeModel(file, { to: 'int4-weights', workers: 0 });
    expect(report.tensors[0]).toMatchObject({ bytesAfter: (64 * 32) / 2 + (4 * 64 * 32) / 32 });
    const [before, after] = [await run(file), await run(await bytes())];
    // 4-bit codes are off by at most 1/14 of the largest weight.
    expect(worst(before.y as Float32Array, after.y as Float32Array, [1, 5, 32], 2)).toBeLessThan(0.3);
  });

  it('takes several matrices', async () => {
    const file = modelOf('MatMul', {}, [4, 3, 64], uneven([4, 64, 32], 2), [4, 3, 32]);
    const { bytes, report } = await quantizeModel(file, { to: 'int4-weights', workers: 0 });
    expect(report.tensors[0]).toMatchObject({ bytesAfter: (4 * 64 * 32) / 2 + (4 * 4 * 64 * 32) / 32 });
    const [before, after] = [await run(file), await run(await bytes())];
    expect(worst(before.y as Float32Array, after.y as Float32Array, [4, 3, 32], 2)).toBeLessThan(0.3);
  });

  it('gives 8 bits to kernels, which hold less than a block', async () => {
    for (const file of [
      modelOf('ConvTranspose', {}, [1, 32, 9], uneven([32, 48, 4], 1), [1, 48, 12]),
      modelOf('MatMul', {}, [4, 3, 8], uneven([4, 8, 64], 2), [4, 3, 64]),
    ]) {
      const { notes } = await planModel(file, { to: 'int4-weights' });
      expect(notes).toContainEqual(expect.objectContaining({ kind: 'eightBits', weights: 1 }));
    }
  });
});
