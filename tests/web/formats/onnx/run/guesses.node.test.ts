// Inputs that nobody gave: sizes by the names of inputs and dimensions, indices within their tables, masks that leave all.
import { compareModels, quantizeModel } from 'scalepoint/model';
import { describe, expect, it } from 'vitest';
import * as onnx from '../encoder.js';

/** Runs a model beside itself. Returns the shapes of its outputs. */
async function shapesOf(file: Uint8Array<ArrayBuffer>) {
  const { outputs = [] } = await compareModels(file, file, { run: true });
  return outputs.map(({ shape }) => shape);
}

/** A model that gives its inputs. */
function passing(...inputs: readonly onnx.TestValue[]) {
  return onnx.model({
    nodes: inputs.map(([name]) => ({ op: 'Identity', in: [name], out: [`${name}_out`] })),
    inputs,
    outputs: inputs.map(([name, shape, type = 1]) => [`${name}_out`, shape, type] as const),
  });
}

describe('sizes that are not fixed', () => {
  it.each([
    ['input_features', ['batch_size', 80, 'encoder_sequence_length'], [1, 80, 3000]],
    ['input_values', ['batch_size', 'sequence_length'], [1, 16_000]],
    ['x', ['batch_size', 'num_samples'], [1, 16_000]],
    ['latent_sample', ['batch_size', 4, 'height', 'width'], [1, 4, 32, 32]],
    ['sample', ['batch', 4, 'height', 'width'], [1, 4, 32, 32]],
    ['pixel_values', ['batch_size', 'num_channels', 'height', 'width'], [1, 3, 224, 224]],
    ['input_ids', ['batch_size', 'sequence_length'], [1, 16]],
    // Each of those without a name has a size of its own.
    ['x', ['', '', '', 5], [1, 3, 224, 5]],
    ['x', ['', 'rows', -1], [1, 16, 16]],
    ['x', ['?', '?', '?', 5], [1, 3, 224, 5]],
  ] as const)('of %s %j are %j', async (name, shape, expected) => {
    expect(await shapesOf(passing([name, shape]))).toEqual([expected]);
  });

  it('may be sums of names and numbers', async () => {
    const file = passing(
      ['attention_mask', ['batch_size', 'past_sequence_length + 1'], 7],
      ['past', ['batch_size', 2, 'past_sequence_length', 4]],
    );
    expect(await shapesOf(file)).toEqual([
      [1, 1],
      [1, 2, 0, 4],
    ]);
  });

  it('are told if the model does not run with them', async () => {
    const file = onnx.model({
      nodes: [{ op: 'Add', in: ['x', 'p'], out: ['y'] }],
      initializers: [onnx.floatTensor('p', [100, 8])],
      inputs: [['x', ['b', 'frames', 8]]],
      outputs: [['y', ['b', 'frames', 8]]],
    });
    await expect(compareModels(file, file, { run: true })).rejects.toThrow(
      /cannot run A: .*; sizes were guessed: b 1, frames 16; run\.dimensions sets others$/s,
    );
    expect((await compareModels(file, file, { run: { dimensions: { frames: 100 } } })).outputs).toHaveLength(1);
  });
});

describe('inputs that are looked up', () => {
  it('are within the tables of an EmbedLayerNormalization', async () => {
    const file = onnx.model(
      {
        nodes: [
          {
            op: 'EmbedLayerNormalization',
            domain: 'com.microsoft',
            in: ['ids', 'segments', 'words', 'positions', 'kinds', 'g', 'b'],
            out: ['y', 'mask'],
          },
        ],
        initializers: [
          onnx.floatTensor('words', [40, 32]),
          onnx.floatTensor('positions', [40, 32]),
          onnx.floatTensor('kinds', [2, 32]),
          onnx.floatTensor('g', [32]),
          onnx.floatTensor('b', [32]),
        ],
        inputs: [
          ['ids', ['b', 's'], 6],
          ['segments', ['b', 's'], 6],
        ],
        outputs: [['y', ['b', 's', 32]]],
      },
      { imports: { 'com.microsoft': 1 } },
    );
    expect(await shapesOf(file)).toEqual([[1, 16, 32]]);
  });

  it('are within tables of codes', async () => {
    const file = onnx.gather([4, 512], ['b', 's', 512], ['segments', ['b', 's'], 7])();
    for (const to of ['int4-weights', 'q4', 'uint8', 'fp16'] as const) {
      const made = await (await quantizeModel(file, { to, workers: 0 })).bytes();
      const { outputs } = await compareModels(made, file, { run: true });
      expect(outputs, to).toMatchObject([{ shape: [1, 16, 512], mismatched: 0 }]);
    }
  });
});

it('convolutions of codes tell channels, too', async () => {
  const file = onnx.product('Conv', [16, 10, 3, 3], ['b', 'c', 9, 9], ['b', 16, 7, 7])();
  for (const to of ['uint8', 'int8-weights', 'fp16'] as const) {
    const made = await (await quantizeModel(file, { to, workers: 0 })).bytes();
    const { outputs } = await compareModels(made, file, { run: true });
    expect(outputs, to).toMatchObject([{ shape: [1, 16, 7, 7] }]);
  }
});

it('masks of floats leave all', async () => {
  const file = onnx.model({
    nodes: [{ op: 'Log', in: ['attention_mask'], out: ['y'] }],
    inputs: [['attention_mask', ['b', 's']]],
    outputs: [['y', ['b', 's']]],
  });
  const ones = { attention_mask: { data: new Float32Array(16).fill(1), shape: [1, 16] } };
  const { outputs } = await compareModels(file, file, { run: true });
  // The logarithm of random numbers would be NaN for half of them.
  expect(outputs).toEqual((await compareModels(file, file, { run: { inputs: ones } })).outputs);
});
