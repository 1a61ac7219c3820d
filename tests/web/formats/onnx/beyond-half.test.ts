// Which nodes of a float16 graph stay in float32 because of their values: decisions, without a runtime.
import { planModel } from 'scalepoint/model';
import { describe, expect, it } from 'vitest';
import { beyond, held } from './beyond.js';
import * as onnx from './encoder.js';

interface Data {
  readonly nodes: readonly { readonly node: string }[];
}

/** Nodes that stay in float32 because of their values. */
async function floatsIn(file: Uint8Array, options: Parameters<typeof planModel>[1] = { to: 'fp16' }) {
  const { notes } = await planModel(file, options);
  const note = notes.find(({ kind }) => kind === 'beyondHalf');
  return ((note as Data | undefined)?.nodes ?? []).map(({ node }) => node);
}

describe('float32 from the cause to a usual size', () => {
  it.each(Object.entries(beyond))('%s', async (_what, { file, floats }) => {
    expect(await floatsIn(file)).toEqual(floats);
    // The same nodes in blocks and float16.
    expect(await floatsIn(file, { to: 'q4f16' })).toEqual(floats);
  });

  it.each(Object.entries(held))('not for %s', async (_what, file) => {
    expect(await floatsIn(file)).toEqual([]);
  });
});

describe('a weight that float16 does not hold', () => {
  const weights = onnx.weights(64 * 48);
  weights[5] = 1e5;
  const file = (opset: number) =>
    onnx.model(
      {
        nodes: [
          { op: 'MatMul', in: ['x', 'w'], out: ['p'] },
          { op: 'MatMul', in: ['p', 'v'], out: ['y'] },
        ],
        initializers: [
          onnx.tensor({ name: 'w', dims: [64, 48], raw: onnx.rawOf(weights) }),
          onnx.floatTensor('v', [48, 32], 2),
        ],
        inputs: [['x', [3, 64]]],
        outputs: [['y', [3, 32]]],
      },
      { opset, ir: opset < 10 ? 3 : 8 },
    );

  // Opset 6 keeps the graph in float32.
  it.each([17, 6])('is kept, opset %i', async (opset) => {
    const { tensors } = await planModel(file(opset), { to: 'fp16' });
    expect(tensors.map(({ name, kept }) => [name, kept?.kind])).toEqual([
      ['w', 'beyondHalf'],
      ['v', undefined],
    ]);
    expect(tensors[0]?.kept).toMatchObject({ most: 1e5 });
  });
});
