// Outputs of two models over samples, against errors in float64 over what the runtime gives for each sample.
import { existsSync } from 'node:fs';
import { createRequire } from 'node:module';
import {
  calibrateModel,
  compareModels,
  evaluateModel,
  quantizeModel,
  type RunOptions,
  readFloats,
} from 'scalepoint/model';
import { describe, expect, it } from 'vitest';
import { npy } from '../../../support/npz.js';
import * as onnx from '../encoder.js';
import { encoderModel } from '../transformer.js';

const width = 64;
const model = onnx.model({
  nodes: [
    { op: 'MatMul', in: ['x', 'w'], out: ['p'] },
    { op: 'Log', in: ['p'], out: ['y'] },
  ],
  initializers: [onnx.floatTensor('w', [width, 32])],
  inputs: [['x', ['n', width]]],
  outputs: [
    ['p', ['n', 32]],
    ['y', ['n', 32]],
  ],
});
const small = await (await quantizeModel(model, { to: 'q4', workers: 0 })).bytes();
const sampleOf = (seed: number) => ({ x: { data: onnx.weights(3 * width, seed, 2), shape: [3, width] } });
const samples = [1, 2, 3, 4].map(sampleOf);

describe('outputs on samples', () => {
  it('have the errors of all samples together', async () => {
    const progress: unknown[] = [];
    const onProgress = (one: object) => progress.push(one);
    const found = await evaluateModel(small, { reference: model, data: samples, onProgress });
    // Each sample on its own.
    const each = await Promise.all(
      samples.map(async (sample) => (await compareModels(model, small, { run: { inputs: sample } })).outputs ?? []),
    );
    const ofP = each.map(([p]) => p?.error ?? { mse: 0, sqnrDb: 0, maxAbsoluteError: 0 });
    const [p, y] = found.outputs;
    expect(found.samples).toBe(4);
    expect(p).toMatchObject({ name: 'p', mismatched: 0 });
    // Means of four equal counts in double.
    expect(p?.error.mse).toBeCloseTo(ofP.reduce((sum, { mse }) => sum + mse, 0) / 4, 12);
    expect(p?.error.maxAbsoluteError).toBe(Math.max(...ofP.map((error) => error.maxAbsoluteError)));
    const lowest = Math.min(...ofP.map(({ sqnrDb }) => sqnrDb));
    expect(p?.worst).toMatchObject({
      sample: ofP.findIndex(({ sqnrDb }) => sqnrDb === lowest),
      error: { sqnrDb: lowest },
    });
    // Logarithms of negative numbers are NaN in both, or in one.
    expect(y?.error.nonFinite).toBeGreaterThan(0);
    expect(y?.mismatched).toBe(each.reduce((sum, outputs) => sum + (outputs[1]?.mismatched ?? 0), 0));
    expect(progress.at(-1)).toEqual({ phase: 'evaluate', unit: 'samples', pass: 1, passes: 1, done: 4, total: 4 });
  });

  it('come from files and from texts', async () => {
    const values = Float32Array.from(samples.flatMap(({ x }) => Array.from(x.data)));
    const files = npy('<f4', `(4, 3, ${width})`, values.buffer);
    const expected = await evaluateModel(small, { reference: model, data: samples });
    expect(await evaluateModel(small, { reference: model, data: { files } })).toEqual(expected);
    const encoder = encoderModel();
    const coded = await (await quantizeModel(encoder, { to: 'q4', workers: 0 })).bytes();
    const ids = Uint32Array.of(7, 8, 9, 10, 11, 12, 13, 14);
    const found = await evaluateModel(coded, { reference: encoder, data: ids, chunkSize: 4 });
    expect(found).toMatchObject({ samples: 2, outputs: [{ name: 'logits', mismatched: 0 }] });
  });

  it('that do not fit are named', async () => {
    const other = onnx.model({
      nodes: [
        { op: 'MatMul', in: ['x', 'w'], out: ['p'] },
        { op: 'Neg', in: ['p'], out: ['z'] },
      ],
      initializers: [onnx.floatTensor('w', [width, 16])],
      inputs: [['x', ['n', width]]],
      outputs: [
        ['p', ['n', 16]],
        ['z', ['n', 16]],
      ],
    });
    const { outputs, skippedOutputs } = await evaluateModel(other, { reference: model, data: samples });
    expect(outputs).toEqual([]);
    const kinds = Object.fromEntries(skippedOutputs.map(({ name, reason }) => [name, reason.kind]));
    expect(kinds).toEqual({ p: 'shapes', y: 'onlyInB', z: 'onlyInA' });
  });

  it('end with typed errors', async () => {
    const rejects = (options: object, problem: object) =>
      expect(evaluateModel(small, { reference: model, data: samples, ...options })).rejects.toMatchObject(problem);
    await rejects({ reference: undefined }, { option: 'reference' });
    await rejects({ text: 'a text' }, { option: 'text' });
    await rejects({ resume: 'state' }, { option: 'resume' });
    await rejects({ data: [] }, { message: 'data: expected at least 1 samples, got 0' });
    await rejects({ data: [{ z: samples[0]?.x }] }, { message: /^data\[0\]: expected 'x', got "z"/ });
    await rejects({ data: 'a text' }, { name: 'TypeError' });
    await rejects({ reference: npy('<f4', '(2,)', new ArrayBuffer(8)) }, { code: 'RUNTIME' });
    const reason = new Error('enough');
    const controller = new AbortController();
    await expect(
      evaluateModel(small, {
        reference: model,
        data: samples,
        signal: controller.signal,
        onProgress: () => controller.abort(reason),
      }),
    ).rejects.toBe(reason);
  });
});

// onnxruntime-node is not installed with everything else.
const packages = new URL('../../../../transformers/node_modules/', import.meta.url).pathname;
describe.skipIf(!existsSync(`${packages}onnxruntime-node`))('onnxruntime-node as the runtime', () => {
  it('gives the same but for rounding', async () => {
    const runtime = createRequire(packages)('onnxruntime-node') as NonNullable<RunOptions['runtime']>;
    const run = { runtime };
    const own = await calibrateModel(model, samples);
    const native = await calibrateModel(model, samples, { run });
    expect(native.weights).toEqual(own.weights);
    const floats = async (bytes: Uint8Array<ArrayBuffer>) => (await readFloats(bytes, 'w.in_sum2')).data;
    const [a, b] = [await floats(await own.bytes()), await floats(await native.bytes())];
    expect(a.length).toBe(width);
    // Sums of 12 squares in another order.
    for (const [i, value] of a.entries())
      expect(Math.abs(value - (b[i] as number))).toBeLessThanOrEqual(12 * 2 ** -23 * value);
    const web = await evaluateModel(small, { reference: model, data: samples });
    const node = await evaluateModel(small, { reference: model, data: samples, run });
    expect(node.outputs[0]?.error.sqnrDb).toBeCloseTo(web.outputs[0]?.error.sqnrDb as number, 2);
    const compared = await compareModels(model, small, { run: { runtime, inputs: samples[0] } });
    expect(compared.outputs?.[0]?.error.sqnrDb).toBeGreaterThan(10);
  });
});
