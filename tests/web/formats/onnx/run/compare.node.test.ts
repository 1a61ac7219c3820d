// Two models are run on the same inputs, and what they compute is compared.
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { deflateRawSync } from 'node:zlib';
import { compareModels, quantizeModel, type RunOptions } from 'scalepoint/model';
import { describe, expect, it } from 'vitest';
import { npy, zip as zipOf } from '../../../support/npz.js';
import * as onnx from '../encoder.js';
import { encoderModel } from '../transformer.js';

const encoder = encoderModel();
const made = async (to: 'q8' | 'q4' | 'fp16' | 'int8-weights') =>
  (await quantizeModel(encoder, { to, workers: 0 })).bytes();

/** x + w as a product, where w is given. */
const product = (w: number[]) =>
  onnx.model({
    nodes: [
      { op: 'MatMul', in: ['x', 'w'], out: ['p'] },
      { op: 'Relu', in: ['p'], out: ['y'] },
    ],
    initializers: [onnx.tensor({ name: 'w', dims: [2, 2], raw: onnx.floats(w) })],
    inputs: [['x', ['n', 2]]],
    outputs: [['y', ['n', 2]]],
  });
const identity = product([1, 0, 0, 1]);

const zip = (entries: Parameters<typeof zipOf>[0]) => zipOf(entries, (bytes) => deflateRawSync(bytes));
const two = npy('<f4', '(1, 2)', Float32Array.of(3, -4).buffer);

describe('two models on the same inputs', () => {
  it('give the error of each output', async () => {
    const bounds = { q8: 0.99, q4: 0.98, fp16: 0.99999, 'int8-weights': 0.999 };
    for (const to of ['q8', 'q4', 'fp16', 'int8-weights'] as const) {
      const report = await compareModels(encoder, await made(to), { run: true, workers: 0 });
      expect(report.outputs).toMatchObject([{ name: 'logits', shape: [1, 16, 128], mismatched: 0 }]);
      expect(report.outputs?.[0]?.error.cosine, to).toBeGreaterThan(bounds[to]);
      expect(report.outputs?.[0]?.error.sqnrDb, to).toBeLessThan(100);
      expect(report.layers).toBeUndefined();
      // Weights are compared as ever.
      expect(report.tensors.length).toBeGreaterThan(5);
    }
  });

  it('give none if they are the same, and other inputs with another seed', async () => {
    const { outputs } = await compareModels(encoder, encoder, {
      run: { layers: false, dimensions: { batch_size: 2 } },
    });
    expect(outputs).toMatchObject([{ shape: [2, 16, 128], error: { sqnrDb: Infinity, cosine: 1 } }]);
    const wide = await compareModels(identity, identity, { run: { dimensions: { 'x.0': 5 } } });
    expect(wide.outputs).toMatchObject([{ shape: [5, 2] }]);
    const q8 = await made('q8');
    const errors = [];
    for (const seed of [1, 1, 2])
      errors.push((await compareModels(encoder, q8, { run: { seed } })).outputs?.[0]?.error);
    expect(errors[0]).toEqual(errors[1]);
    expect(errors[0]).not.toEqual(errors[2]);
  });

  it('give as many channels as convolutions take, or as images have', async () => {
    const images = (input: string, channels: number, name: string, group = 1) =>
      onnx.model({
        nodes: [
          { op: 'Conv', in: [input, 'w'], out: ['c'], attributes: { group } },
          { op: 'GlobalAveragePool', in: ['c'], out: ['y'] },
          { op: 'Identity', in: ['x'], out: ['z'] },
        ],
        initializers: [onnx.floatTensor('w', [8, channels / group, 3, 3])],
        inputs: [['x', ['batch_size', name, 9, 9]]],
        outputs: [
          ['y', ['a', 'b', 'c', 'd']],
          ['z', ['a', 'b', 'c', 'd']],
        ],
      });
    for (const [file, channels] of [
      [images('x', 5, 'unk__1'), 5],
      [images('x', 4, 'num_channels', 2), 4],
    ] as const) {
      const { outputs } = await compareModels(file, file, { run: true });
      expect(outputs?.[1]?.shape).toEqual([1, channels, 9, 9]);
    }
    const behind = onnx.model({
      nodes: [{ op: 'Relu', in: ['x'], out: ['z'] }],
      inputs: [['x', ['batch_size', 'num_channels', 9, 9]]],
      outputs: [['z', ['a', 'b', 'c', 'd']]],
    });
    expect((await compareModels(behind, behind, { run: true })).outputs?.[0]?.shape).toEqual([1, 3, 9, 9]);
    const given = { run: { dimensions: { num_channels: 2 } } };
    expect((await compareModels(behind, behind, given)).outputs?.[0]?.shape).toEqual([1, 2, 9, 9]);
  });

  it('show in which layer the error begins', async () => {
    const rules = [
      { match: /layer\.1\.up/, to: 'q4' },
      { match: /./, keep: true as const },
    ];
    const one = await (await quantizeModel(encoder, { to: 'q4', rules, workers: 0 })).bytes();
    const { layers = [] } = await compareModels(encoder, one, { run: { layers: true } });
    const first = layers.findIndex(({ error }) => error.sqnrDb !== Infinity);
    expect(layers[first]?.op).toBe('MatMul');
    // The second layer has its first product with `up` behind 3 products of attention, 2 of values and 1 of outputs, as the first has.
    expect(layers.slice(0, first).filter(({ op }) => op === 'MatMul')).toHaveLength(14);
    const worst = layers.reduce((most, layer) => (layer.lossDb > most.lossDb ? layer : most));
    expect(worst).toBe(layers[first]);
    expect(layers.at(-1)?.name).toBe('logits');
  });

  it('take inputs as arrays, .npy and .npz files', async () => {
    const double = product([2, 0, 0, 2]);
    // Relu leaves 3 and 0: twice that is off by 3.
    const folder = await mkdtemp(join(tmpdir(), 'scalepoint-inputs-'));
    try {
      await writeFile(join(folder, 'x.npy'), two);
      const int = npy('<i8', '(1, 2)', BigInt64Array.of(3n, -4n).buffer);
      for (const inputs of [
        { x: { data: [3, -4], shape: [1, 2] } },
        { x: two },
        two,
        int,
        join(folder, 'x.npy'),
        { x: join(folder, 'x.npy') },
        zip([['x.npy', two, 0]]),
        zip([['x.npy', two, 8]]),
        new Blob([zip([['x.npy', two, 8]])]),
      ]) {
        const { outputs } = await compareModels(identity, double, { run: { inputs } });
        expect(outputs).toMatchObject([{ name: 'y', shape: [1, 2], error: { maxAbsoluteError: 3, sqnrDb: 0 } }]);
      }
    } finally {
      await rm(folder, { recursive: true, force: true });
    }
  });

  it('name the inputs before a file of them is read', async () => {
    let reads = 0;
    const blob = new Blob([zip([['z.npy', npy('<f4', '(262144,)', new Float32Array(2 ** 18).buffer), 0]])]);
    const slice = blob.slice.bind(blob);
    blob.slice = (begin = 0, end = blob.size) => {
      reads += end - begin;
      return slice(begin, end);
    };
    await expect(compareModels(identity, identity, { run: { inputs: blob } })).rejects.toThrow(/expected 'x', got "z"/);
    expect(reads).toBeLessThan(2 ** 17);
    reads = 0;
    await expect(compareModels(identity, identity, { run: { inputs: { z: blob } } })).rejects.toThrow(/got "z"/);
    expect(reads).toBe(0);
  });

  it('are one array where one is wanted', async () => {
    const both = zip([
      ['a.npy', two, 0],
      ['b.npy', two, 8],
    ]);
    await expect(compareModels(identity, identity, { run: { inputs: { x: both } } })).rejects.toMatchObject({
      option: 'run.inputs["x"]',
      message: expect.stringMatching(/1 array/),
    });
  });

  it('refuse values that are not inputs', async () => {
    const other = npy('<f4', '(1, 3)', Float32Array.of(1, 2, 3).buffer);
    const cases: [inputs: Parameters<typeof zip>[0] | Uint8Array<ArrayBuffer>, message: RegExp][] = [
      [[['z.npy', two, 0]], /^run\.inputs: expected 'x', got "z"/],
      [[['x.npy', two, 9]], /packed in a way that is not read/],
      [[['x.npy', two, 8, two.length + 1]], /smaller than the zip archive says/],
      [[['x.npy', two, 8, two.length - 1]], /larger than the zip archive says/],
      [[['x.npy', two, 8, 2 ** 31]], /cannot be as large/],
      [other, /cannot run A/],
      [Uint8Array.of(1, 2, 3), /is not a .npy or .npz file/],
      [
        zip([['x.npy', two, 0]])
          .subarray(0, 100)
          .slice(),
        /has no end/,
      ],
    ];
    for (const [given, message] of cases) {
      const inputs = given instanceof Uint8Array ? given : zip(given);
      await expect(compareModels(identity, identity, { run: { inputs } })).rejects.toThrow(message);
    }
    for (const run of [{ sed: 1 }, { seed: 0.5 }, { dimensions: { n: -1 } }, 3]) {
      await expect(compareModels(identity, identity, { run: run as object })).rejects.toMatchObject({
        option: expect.stringMatching(/^run/),
      });
    }
  });

  it.each([
    ['int64', 7, [1.5, Number.NaN, 2 ** 63, 2n ** 63n], [2 ** 53, -(2 ** 63), -1n]],
    ['int32', 6, [2 ** 31, 0.5, 2n ** 31n], [-(2 ** 31), 2 ** 31 - 1]],
    ['uint8', 2, [256, -1, Infinity], [255, 0n]],
    ['bool', 9, [2, -1], [1, 0, true as unknown as number]],
  ] as const)('refuse numbers that %s does not hold', async (type, element, wrong, right) => {
    const file = onnx.model({
      nodes: [{ op: 'Identity', in: ['x'], out: ['y'] }],
      inputs: [['x', [2], element]],
      outputs: [['y', [2], element]],
    });
    const compare = (value: number | bigint) =>
      compareModels(file, file, { run: { inputs: { x: { data: [0, value], shape: [2] } } } });
    for (const value of wrong) {
      const problem = { option: 'run.inputs["x"][1]', expected: { kind: 'type', types: [type] }, got: value };
      await expect(compare(value)).rejects.toMatchObject({ name: 'RangeError', problem });
    }
    for (const value of right) expect((await compare(value)).outputs).toMatchObject([{ shape: [2] }]);
  });

  it('say what is missing', async () => {
    const nothing = { InferenceSession: { create: () => Promise.reject(new Error('no memory')) }, Tensor: class {} };
    await expect(
      compareModels(identity, identity, { run: { runtime: nothing as RunOptions['runtime'] } }),
    ).rejects.toMatchObject({
      code: 'RUNTIME',
      message: 'onnxruntime-web cannot load A: no memory',
    });
    await expect(compareModels(two, two, { run: true })).rejects.toMatchObject({
      code: 'RUNTIME',
      message: 'only ONNX models can be run, and this is npy',
    });
  });
});
