// Which nodes of a float16 graph stay in float32 because of their values: decisions, without a runtime.
import { planModel } from 'scalepoint/model';
import { describe, expect, it } from 'vitest';
import { rangesFile } from '../../../../web/src/formats/ranges-file.js';
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

describe('measured ranges', () => {
  const { file } = beyond['a Softmax written with exponentials'] as (typeof beyond)[string];
  const measured = (ranges: Record<string, readonly [number, number]>) =>
    planModel(file, { to: 'fp16', ranges: rangesFile(new Map(Object.entries(ranges)), 1) });

  it('let nodes compute in float16 that stay far below its end', async () => {
    const calm = { p: [-9, 9], e: [0, 9000], sum: [1, 16000], q: [0, 1], y: [-3, 3] } as const;
    const { notes } = await measured(calm);
    expect(notes.find(({ kind }) => kind === 'beyondHalf')).toBeUndefined();
    const near = (await measured({ ...calm, sum: [1, 40_000] })).notes;
    expect(near.find(({ kind }) => kind === 'beyondHalf')).toMatchObject({
      nodes: [
        { node: 'sum', why: 'growth' },
        { node: 'q', why: 'growth' },
      ],
    });
  });

  it('keep the node that gives values beyond it, and its readers', async () => {
    const { notes } = await measured({ p: [-133_339, 5], e: [0, 1], sum: [1, 48], q: [0, 1], y: [-3, 3] });
    expect(notes.find(({ kind }) => kind === 'beyondHalf')).toMatchObject({
      reached: 133_339,
      nodes: [
        { node: 'p', operator: 'MatMul', why: 'measured' },
        { node: 'e', operator: 'Exp', why: 'growth' },
      ],
      text: expect.stringContaining(
        'activations reach 133,339, beyond float16: 2 nodes, which compute with float32: p (MatMul)',
      ),
    });
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
