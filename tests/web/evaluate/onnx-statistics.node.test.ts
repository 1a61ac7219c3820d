// Statistics in ONNX results: codes that pass errors on against those that do not, on inputs that calibrating has not seen; notes; and
// statistics that do not fit.
import { existsSync } from 'node:fs';
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import * as ort from 'onnxruntime-web';
import {
  calibrateModel,
  type ModelStatistics,
  type ModelTarget,
  planModel,
  type QuantizeModelResult,
  quantizeModel,
  readFloats,
} from 'scalepoint/model';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import * as onnx from '../formats/onnx/encoder.js';
import { run } from '../formats/onnx/ort.js';
import { digitSamples, digitsModel } from '../support/digits-model.mjs';
import { divergence, drawTexts, momentsFile, StoryMoments, storyModel, storyWeights } from '../support/story-model.mjs';

const folder = await mkdtemp(join(tmpdir(), 'scalepoint-onnx-statistics-'));
afterAll(() => rm(folder, { recursive: true }));

const width = 64;

/** Rows whose columns depend on each other, and differ in size. */
function rows(count: number, seed: number) {
  const hidden = onnx.weights(count * 12, seed, 1);
  const mix = onnx.weights(12 * width, 5, 1);
  const noise = onnx.weights(count * width, seed + 1, 0.3);
  const data = Float32Array.from({ length: count * width }, (_, i) => {
    const [row, column] = [Math.floor(i / width), i % width];
    let sum = noise[i] as number;
    for (let k = 0; k < 12; k++) sum += (hidden[row * 12 + k] as number) * (mix[k * width + column] as number);
    return column % 7 === 0 ? 3 * sum : sum;
  });
  return { data, shape: [count, width] };
}

/** Two products, one of them a Gemm of the transposed weight, and a table that one product shares with a look-up. */
const network = onnx.model(
  {
    nodes: [
      { op: 'MatMul', in: ['x', 'first'], out: ['a'] },
      { op: 'Relu', in: ['a'], out: ['b'] },
      { op: 'Gemm', in: ['b', 'second', 'bias'], out: ['c'], attributes: { transB: 1, alpha: { float: 0.5 } } },
      { op: 'Transpose', in: ['table'], out: ['turned'], attributes: { perm: [1, 0] } },
      { op: 'MatMul', in: ['c', 'turned'], out: ['y'] },
      { op: 'Gather', in: ['table', 'ids'], out: ['z'] },
      { op: 'Gather', in: ['words', 'ids'], out: ['found'] },
    ],
    initializers: [
      onnx.floatTensor('first', [width, 96], 1),
      onnx.floatTensor('second', [64, 96], 2),
      onnx.floatTensor('bias', [64], 3),
      onnx.floatTensor('table', [50, 64], 4),
      onnx.floatTensor('words', [50, 64], 5),
    ],
    inputs: [
      ['x', ['n', width]],
      ['ids', [2], 7],
    ],
    outputs: [
      ['y', ['n', 50]],
      ['z', [2, 64]],
      ['found', [2, 64]],
    ],
  },
  { opset: 21, ir: 10 },
);

const ids = { data: [3, 7], shape: [2] };
const weightsOfProducts = ['first', 'second', 'table'];

/** The output of the products for rows that calibrating has not seen. */
async function outputOf(file: Uint8Array): Promise<Float32Array> {
  const { data, shape } = rows(200, 71);
  const feeds = {
    x: new ort.Tensor('float32', data, shape),
    ids: new ort.Tensor('int64', BigInt64Array.of(3n, 7n), [2]),
  };
  return (await run(file, 'disabled', feeds)).y as Float32Array;
}

const squared = (a: Float32Array, b: Float32Array) => a.reduce((sum, v, i) => sum + (v - (b[i] as number)) ** 2, 0);

const drawn = Array.from({ length: 8 }, (_, i) => ({ x: rows(50, 100 + 2 * i), ids }));
let statistics: ModelStatistics;
let expected: Float32Array;
beforeAll(async () => {
  statistics = await calibrateModel(network, drawn, { moments: true });
  expected = await outputOf(network);
});

const outputsOf = ({ report }: QuantizeModelResult) =>
  report.tensors.flatMap(({ name, error }) => (error?.output === undefined ? [] : [{ name, ...error.output }]));

interface Target {
  readonly to: ModelTarget;
  readonly zeroPoints?: boolean | 'float';
  readonly blockSize?: number;
}
const targets: readonly Target[] = [
  { to: 'q4' },
  { to: 'q4', zeroPoints: true, blockSize: 16 },
  { to: 'q4', zeroPoints: 'float' },
  { to: 'q2', blockSize: 16 },
  { to: 'int4-weights' },
  { to: 'int4-weights', zeroPoints: true },
  { to: 'bnb4', blockSize: 32 },
];

describe('statistics of ONNX models', () => {
  it('are taken as they are by `importance`, in memory or written, and refused in the place of others', async () => {
    const made = async (options: object) =>
      (await quantizeModel(network, { to: 'q4', workers: 0, ...options })).bytes();
    const expected = await made({ importance: await statistics.blob() });
    expect(Buffer.compare(await made({ importance: statistics }), expected)).toBe(0);
    const output = join(await mkdtemp(join(tmpdir(), 'scalepoint-statistics-')), 's.gguf');
    const written = await calibrateModel(network, drawn, { output });
    expect(Buffer.compare(await made({ importance: written }), expected)).toBe(0);
    await rm(dirname(output), { recursive: true });
    const refused = { code: 'BAD_FILE', message: expect.stringMatching(/importance matrix.*second moments/) };
    await expect(made({ method: 'gptq', moments: await statistics.blob() })).rejects.toMatchObject(refused);
    const moments = (await statistics.moments?.blob()) as Blob;
    await expect(made({ importance: moments })).rejects.toMatchObject({ code: 'BAD_FILE', hint: { kind: 'try' } });
  });

  it.each(targets)('lose less of outputs: $to $zeroPoints', async (target) => {
    const options = { ...target, workers: 0 } as const;
    // Blocks of floats have no range of their own.
    const mse = await quantizeModel(network, { ...options, range: target.to === 'bnb4' ? undefined : 'mse' });
    const weighted = await quantizeModel(network, { ...options, importance: await statistics.blob() });
    const fed = await quantizeModel(network, { ...options, method: 'gptq', moments: statistics });
    const [plain, important, passed] = await Promise.all(
      [mse, weighted, fed].map(async (made) => squared(expected, await outputOf(await made.bytes()))),
    );
    // Hidden values explain most of the inputs, so that most of the errors can be made up for.
    expect(passed).toBeLessThan(0.6 * (plain as number));
    expect(important).toBeLessThan(1.05 * (plain as number));
    expect(outputsOf(mse)).toEqual([]);
    expect(outputsOf(weighted)).toEqual([]);
    // MatMulBnb4 looks no rows up.
    const names = weightsOfProducts.filter((name) => target.to !== 'bnb4' || name !== 'table');
    expect(outputsOf(fed).map(({ name }) => name)).toEqual(names);
    for (const { name, before, after, damping } of outputsOf(fed)) {
      expect(after, name).toBeLessThan(0.8 * before);
      expect(damping).toBe(0.01);
    }
    // The same bytes of parts in the file.
    expect(fed.files).toEqual(mse.files.map(({ name }) => ({ name, bytes: expect.any(Number) })));
    expect((await fed.bytes()).length).toBe((await mse.bytes()).length);
  });

  it.each(['int4-weights', 'int8-weights'] as const)(
    'have errors of outputs on the sample that was held back: %s',
    async (to) => {
      expect(statistics).toMatchObject({ chunks: 8, heldBackChunks: 1 });
      const made = await quantizeModel(network, { to, method: 'gptq', moments: statistics, workers: 0 });
      const [w, q] = [await readFloats(network, 'first'), await readFloats(await made.bytes(), 'first')];
      expect(q.shape).toEqual(w.shape);
      const [inputs, outputs] = w.shape as [number, number];
      /** Sum of squares of the outputs of a matrix, for rows of inputs. */
      const squaresOf = ({ data: x, shape }: ReturnType<typeof rows>, matrix: (i: number) => number) => {
        let sum = 0;
        for (let row = 0; row < (shape[0] as number); row++) {
          for (let output = 0; output < outputs; output++) {
            let y = 0;
            for (let i = 0; i < inputs; i++) y += (x[row * inputs + i] as number) * matrix(i * outputs + output);
            sum += y * y;
          }
        }
        return sum;
      };
      const weight = (i: number) => w.data[i] as number;
      const error = (i: number) => (w.data[i] as number) - (q.data[i] as number);
      const held = rows(50, 102);
      const found = outputsOf(made).find(({ name }) => name === 'first');
      const expectedError = squaresOf(held, error) / squaresOf(held, weight);
      expect(found).toMatchObject({ heldBack: true });
      // Moments and their products are sums in float32.
      expect(Math.abs((found?.after as number) / expectedError - 1)).toBeLessThan(1e-3);
      // Other data have other errors, so that this is no coincidence.
      const others = squaresOf(rows(50, 100), error) / squaresOf(rows(50, 100), weight);
      expect(Math.abs((found?.after as number) / others - 1)).toBeGreaterThan(0.01);
    },
  );

  it.each(['int8-weights', 'uint8-weights', 'q8', 'int8', 'q8-blocks', 'q4f16', 'q2f16'] as const)(
    'passes errors on in %s',
    async (to) => {
      const options = { to, method: 'gptq', moments: statistics, workers: 0 } as const;
      const fed = await quantizeModel(network, options);
      const named = outputsOf(fed);
      // A table that is looked up has one scale in integers.
      const some = to === 'q8' || to === 'int8' ? ['first', 'second'] : weightsOfProducts;
      expect(named.map(({ name }) => name)).toEqual(some);
      for (const { name, before, after } of named) expect(after, name).toBeLessThan(before);
      const made = await outputOf(await fed.bytes());
      expect(made.every(Number.isFinite)).toBe(true);
      expect(squared(expected, made)).toBeLessThan(
        (to === 'q2f16' ? 0.5 : 0.05) *
          squared(
            expected,
            expected.map(() => 0),
          ),
      );
    },
  );

  it.each([...targets, { to: 'int8-weights' }, { to: 'q8' }, { to: 'q4f16' }] as readonly Target[])(
    'makes the same bytes in every way: $to $zeroPoints',
    async (target) => {
      const options = { ...target, method: 'gptq', moments: statistics } as const;
      const bytes = await (await quantizeModel(network, { ...options, workers: 0 })).bytes();
      const others = [
        { ...options, workers: 2, moments: new Blob([(await statistics.moments?.bytes()) as Uint8Array<ArrayBuffer>]) },
        { ...options, workers: 0, core: { simd: 'off' as const } },
      ];
      for (const other of others) {
        expect(Buffer.compare(await (await quantizeModel(network, other)).bytes(), bytes)).toBe(0);
      }
      // A stream takes the parts in their order, each of a large tensor on its own.
      const output = join(folder, `${target.to}${target.zeroPoints}.onnx`);
      await quantizeModel(network, { ...options, workers: 0, output });
      expect(Buffer.compare(await readFile(output), bytes)).toBe(0);
      const importance = await statistics.blob();
      const weighted = { ...target, importance, workers: 0 } as const;
      const [one, scalar] = await Promise.all(
        [weighted, { ...weighted, core: { simd: 'off' as const } }].map(async (o) =>
          (await quantizeModel(network, o)).bytes(),
        ),
      );
      expect(Buffer.compare(one as Uint8Array, scalar as Uint8Array)).toBe(0);
      expect(Buffer.compare(one as Uint8Array, bytes)).not.toBe(0);
    },
  );

  it('makes the same of tiles as of the whole', async () => {
    // Two tiles of columns, and of rows for the transposed weight; the moments come last, so that no tile has those of another weight.
    const [inputs, outputs] = [128, 8300];
    const model = onnx.model(
      {
        nodes: [
          { op: 'MatMul', in: ['x', 'w'], out: ['y'] },
          { op: 'Gemm', in: ['x', 'v'], out: ['z'], attributes: { transB: 1 } },
        ],
        initializers: [onnx.floatTensor('w', [inputs, outputs], 1), onnx.floatTensor('v', [outputs, inputs], 1)],
        inputs: [['x', ['n', inputs]]],
        outputs: [
          ['y', ['n', outputs]],
          ['z', ['n', outputs]],
        ],
      },
      { opset: 21, ir: 10 },
    );
    const x = onnx.weights(100 * inputs, 9, 1);
    const moments = new Float32Array(inputs * inputs);
    for (let i = 0; i < inputs; i++) {
      for (let j = 0; j <= i; j++) {
        let sum = 0;
        for (let row = 0; row < 100; row++) sum += (x[row * inputs + i] as number) * (x[row * inputs + j] as number);
        moments[i * inputs + j] = sum / 100;
        moments[j * inputs + i] = sum / 100;
      }
    }
    const data = new Blob([momentsFile([{ names: ['w', 'v'], columns: inputs, moments }], 100)]);
    for (const to of ['q4', 'int8-weights', 'int4-weights'] as const) {
      const options = { to, method: 'gptq', moments: data, rules: [{ match: '^v$', keep: true as const }] } as const;
      const whole = await (await quantizeModel(model, { ...options, workers: 0 })).bytes();
      const inWorkers = await (await quantizeModel(model, { ...options, workers: 2 })).bytes();
      expect(Buffer.compare(inWorkers, whole)).toBe(0);
      expect(outputsOf(await quantizeModel(model, { to, method: 'gptq', moments: data, workers: 2 })).length).toBe(2);
    }
  });

  it('names weights without statistics, and why', async () => {
    const made = await quantizeModel(network, { to: 'int8-weights', method: 'gptq', moments: statistics, workers: 0 });
    const note = made.report.notes.find(({ kind }) => kind === 'noStatistics');
    expect(note).toMatchObject({ tensors: ['words'], reasons: [{ kind: 'readBy', operator: 'Gather' }] });
    const convolution = onnx.model({
      nodes: [
        { op: 'Conv', in: ['x', 'w'], out: ['c'], attributes: { kernel_shape: [3, 3] } },
        { op: 'Flatten', in: ['c'], out: ['f'] },
        { op: 'MatMul', in: ['f', 'm'], out: ['y'] },
      ],
      initializers: [onnx.floatTensor('w', [16, 8, 3, 3], 1), onnx.floatTensor('m', [256, 20], 2)],
      inputs: [['x', [1, 8, 6, 6]]],
      outputs: [['y', [1, 20]]],
    });
    const samples = [{ x: { data: onnx.weights(288, 3, 1), shape: [1, 8, 6, 6] } }];
    const some = await calibrateModel(convolution, samples, { moments: true });
    for (const to of ['int8-weights', 'q8'] as const) {
      const { notes } = await planModel(convolution, { to, method: 'gptq', moments: some });
      expect(notes.find(({ kind }) => kind === 'noStatistics')).toMatchObject({
        tensors: ['w'],
        reasons: [{ kind: 'readBy', operator: 'Conv' }],
      });
    }
    // A weight that was not calibrated.
    const moments = Float32Array.from({ length: width * width }, (_, i) => (i % (width + 1) === 0 ? 1 : 0));
    const data = new Blob([momentsFile([{ names: ['first'], columns: width, moments }], 10)]);
    const { notes } = await planModel(network, { to: 'q4', method: 'gptq', moments: data });
    expect(notes.find(({ kind }) => kind === 'noImportance')).toMatchObject({ tensors: ['second', 'table'] });
    expect(notes.find(({ kind }) => kind === 'noFeedback')).toMatchObject({ tensors: ['second', 'table'] });
  });

  it('refuses statistics that do not fit, and options without a meaning', async () => {
    const rejects = async (options: object, problem: object) =>
      expect(
        quantizeModel(network, { to: 'q4', workers: 0, ...options } as Parameters<typeof quantizeModel>[1]),
      ).rejects.toMatchObject(problem);
    const unit = (n: number) => Float32Array.from({ length: n * n }, (_, i) => (i % (n + 1) === 0 ? 1 : 0));
    const file = (name: string, n: number, moments = unit(n)) => ({
      method: 'gptq',
      moments: new Blob([momentsFile([{ names: [name], columns: n, moments }], 10)]),
    });
    // Of another model: other names, or another number of inputs; the outputs of a weight are not its inputs.
    await rejects(file('other', width), { code: 'BAD_FILE' });
    await rejects(file('first', width + 1), { code: 'BAD_FILE', tensor: 'first' });
    await rejects(file('first', 96), { code: 'BAD_FILE', tensor: 'first' });
    await rejects(file('second', 64), { code: 'BAD_FILE', tensor: 'second' });
    const holed = unit(width);
    holed[5] = Number.NaN;
    await rejects(file('first', width, holed), { code: 'BAD_FILE', tensor: 'first' });
    const importance = await statistics.blob();
    await rejects({ moments: statistics }, { option: 'moments' });
    await rejects({ method: 'gptq' }, { option: 'moments' });
    await rejects({ damping: 0.1 }, { option: 'damping' });
    await rejects({ importance, range: 'min-max' }, { option: 'range' });
    await rejects({ to: 'int8-weights', importance, range: 'entropy' }, { option: 'range' });
    await rejects(
      { to: 'int8-weights', method: 'gptq', moments: statistics, range: { percentile: 99 } },
      { option: 'range' },
    );
    await rejects({ to: 'fp16', importance }, { option: 'importance' });
    await rejects({ to: 'fp16', method: 'gptq', moments: statistics }, { option: 'method' });
    await rejects({ importance: new Blob([network]) }, { code: 'BAD_FILE' });
    // The range that it has anyway.
    await quantizeModel(network, { to: 'q4', importance, range: 'mse', workers: 0 });
  });
});

describe('the network that reads digits', () => {
  it.each(['q4', 'q2', 'int4-weights'] as const)('loses less of its scores as %s', async (to) => {
    const model = digitsModel();
    const collected = await calibrateModel(model, [{ images: digitSamples(1000, 2) }], { moments: true });
    const others = digitSamples(500, 3);
    const scoresOf = async (file: Uint8Array) => {
      const images = new ort.Tensor('float32', others.data, others.shape);
      return (await run(file, 'all', { images })).scores as Float32Array;
    };
    const scores = await scoresOf(model);
    const errorOf = async (options: object) => {
      const made = await quantizeModel(model, { to, workers: 0, ...options } as Parameters<typeof quantizeModel>[1]);
      return squared(scores, await scoresOf(await made.bytes()));
    };
    const mse = await errorOf({ range: 'mse' });
    expect(await errorOf({ method: 'gptq', moments: collected })).toBeLessThan(0.7 * mse);
  });
});

const samples = process.env.SCALEPOINT_SAMPLES;
const story = join(samples ?? '', 'tinystories-656k');

describe.skipIf(samples === undefined || !existsSync(story))('the exported story model', () => {
  it('says what the network says, and more of it by passing errors on', async () => {
    const length = 96;
    const weights = storyWeights(story);
    const float = storyModel(weights, length);
    const moments = new StoryMoments();
    const seen = drawTexts(weights, { texts: 12, length, seed: 1 }, (name, x) => moments.add(name, x));
    const judged = drawTexts(weights, { texts: 6, length, seed: 2 });
    const logitsOf = async (file: Uint8Array) => {
      const input = new ort.Tensor('int64', BigInt64Array.from(judged.flat(), BigInt), [judged.length, length]);
      return (await run(file, 'all', { input_ids: input })).logits as Float32Array;
    };
    const reference = await logitsOf(float);
    const rules = [{ match: '^model\\.embed_tokens', keep: true as const }];
    const klOf = async (options: object) => {
      const made = await quantizeModel(float, { to: 'q4', rules, workers: 0, ...options } as Parameters<
        typeof quantizeModel
      >[1]);
      return divergence(reference, await logitsOf(await made.bytes()));
    };
    // Both statistics are of the same tokens: one by onnxruntime, the other by the network in JavaScript.
    const collected = await calibrateModel(
      float,
      seen.map((text) => ({ input_ids: { data: text, shape: [1, length] } })),
      { moments: true },
    );
    const mse = await klOf({ range: 'mse' });
    const own = await klOf({ method: 'gptq', moments: new Blob([moments.file()]) });
    const fed = await klOf({ method: 'gptq', moments: collected });
    expect(Math.abs(own.value / fed.value - 1)).toBeLessThan(0.1);
    expect(fed.value).toBeLessThan(0.75 * mse.value);
  });
});
