// minOutput: types are raised until outputs of real runs hold the bound.
import { existsSync } from 'node:fs';
import { mkdtemp, readdir, rm, writeFile } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import {
  calibrateModel,
  compareModels,
  evaluateModel,
  type ModelTarget,
  QualityError,
  quantizeModel,
} from 'scalepoint/model';
import { afterAll, afterEach, beforeEach, describe, expect, it } from 'vitest';
import { launchOptions } from '../../../scripts/chromium.mjs';
import { NativeBackend } from '../../../web/src/cli/native.js';
import { BrowserBackend } from '../../../web/src/cli/webgpu.js';
import * as onnx from '../formats/onnx/encoder.js';
import { npy, zip } from '../support/npz.js';

let folder = '';
beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'scalepoint-output-'));
});
afterEach(() => rm(folder, { recursive: true, force: true }));

// Joined, because the package is not among those of the repository.
const packages = fileURLToPath(new URL('../../transformers/node_modules', import.meta.url));
const nodePackage = join(packages, 'onnxruntime-node', 'dist/index.js');
const native = new NativeBackend(nodePackage);
const browser = new BrowserBackend(
  launchOptions.executablePath,
  dirname(createRequire(import.meta.url).resolve('onnxruntime-web')),
);
afterAll(async () => {
  await native.close();
  await browser.close();
});

const size = 64;

/** The weights of a product in a chain, of which some rows or columns are replaced. */
function matrix(seed: number, replaced: (row: number, column: number, value: number) => number) {
  return onnx.rawOf(onnx.weights(size * size, seed).map((value, i) => replaced(Math.floor(i / size), i % size, value)));
}

/**
 * Products one after the other, of which one has weights that 4 bits hold badly: a row of each block is 60 times as large as the others, and
 * gives the block its scale. It is multiplied with zeros, so that only the errors of the others reach the output.
 */
function chain(count: number, culprit: number): Uint8Array<ArrayBuffer> {
  const value = (i: number) => (i === 0 ? 'x' : i === count ? 'y' : `h${i}`);
  const weight = (i: number) =>
    matrix(i + 1, (row, column, value) => {
      if (i === culprit && row % 32 === 0) return 60 * value;
      return i === culprit - 1 && column % 32 === 0 ? 0 : value;
    });
  return onnx.model({
    nodes: Array.from({ length: count }, (_, i) => ({ op: 'MatMul', in: [value(i), `w${i}`], out: [value(i + 1)] })),
    initializers: Array.from({ length: count }, (_, i) =>
      onnx.tensor({ name: `w${i}`, dims: [size, size], raw: weight(i) }),
    ),
    inputs: [['x', ['rows', size]]],
    outputs: [['y', ['rows', size]]],
  });
}

/** The output of a result beside the original, as a comparison finds it. */
async function outputOf(original: Uint8Array<ArrayBuffer>, made: Uint8Array<ArrayBuffer>) {
  const { outputs = [] } = await compareModels(original, made, { run: true, workers: 0 });
  return outputs.map(({ name: output, error: { cosine, sqnrDb } }) => ({ backend: 'wasm', output, cosine, sqnrDb }));
}

const file = chain(4, 2);

describe('minOutput', () => {
  it('raises nothing if the bound holds', async () => {
    const plain = await quantizeModel(file, { to: 'q4', workers: 0 });
    const { report, bytes } = await quantizeModel(file, { to: 'q4', minOutput: 0.3, workers: 0 });
    const outputs = await outputOf(file, await plain.bytes());
    const bound = { kind: 'cosine', least: 0.3 };
    expect(report.repair).toEqual({ bound, outputs, steps: [], rules: [], runs: 1 });
    expect(await bytes()).toEqual(await plain.bytes());
  });

  it.each([1, 2, 3])('raises the weight that is to blame: %s', async (culprit) => {
    const model = chain(4, culprit);
    const plain = await quantizeModel(model, { to: 'q4', workers: 0 });
    const [before] = await outputOf(model, await plain.bytes());
    const { report, bytes } = await quantizeModel(model, { to: 'q4', minOutput: 0.95, workers: 0 });
    // The rules of the report make the same without runs.
    const { rules = [] } = report.repair ?? {};
    expect(rules).toEqual([{ match: `^w${culprit}$`, to: 'q8-blocks' }]);
    const again = await quantizeModel(model, { to: 'q4', rules, workers: 0 });
    expect(await again.bytes()).toEqual(await bytes());
    const [after] = await outputOf(model, await bytes());
    expect(before?.cosine).toBeLessThan(0.5);
    expect(after?.cosine).toBeGreaterThan(0.95);
    // 8 bits take 16 bytes a block more than 4.
    const more = (size * size) / 2;
    const sizes = [plain, { report }].map((one) => one.report.totals.bytesAfter);
    expect(report.repair).toEqual({
      bound: { kind: 'cosine', least: 0.95 },
      outputs: [after],
      steps: [
        {
          tensors: [{ name: `w${culprit}`, from: 'q4', to: 'q8-blocks', bytes: more }],
          before: { ...before, bytes: sizes[0] },
          after: { ...after, bytes: sizes[1] },
        },
      ],
      rules,
      // The result, each weight alone, and the result with the raised one.
      runs: 6,
    });
  });

  it('finds it among many, in groups', async () => {
    const model = chain(40, 17);
    const plain = await quantizeModel(model, { to: 'int8-weights', workers: 0 });
    const [before] = await outputOf(model, await plain.bytes());
    const { report } = await quantizeModel(model, { to: 'int8-weights', minOutput: '20dB', workers: 0 });
    expect(before?.sqnrDb).toBeLessThan(10);
    expect(report.repair?.rules).toEqual([{ match: '^w17$', to: 'fp16' }]);
    // The result, 16 groups, the three weights of the worst, and the result with the raised one.
    expect(report.repair?.runs).toBe(1 + 16 + 3 + 1);
  });

  it.each([
    ['q2', 30],
    ['q2f16', 40],
    ['bnb4', 45],
    ['int8-weights', 55],
    ['int4-weights', 55],
    ['q8', 60],
    ['int8', 45],
    ['uint8', 45],
    ['fp16', 90],
  ] as const)('raises types by several steps: %s to %s dB', async (to, least) => {
    const { report, bytes } = await quantizeModel(file, { to, minOutput: `${least}dB`, workers: 0 });
    const [output] = await outputOf(file, await bytes());
    expect(output?.sqnrDb).toBeGreaterThanOrEqual(least);
    const { steps = [], outputs, runs = 0 } = report.repair ?? {};
    expect(outputs).toEqual([output]);
    expect(steps.length).toBeGreaterThan(0);
    // Steps follow each other.
    for (const [i, { before }] of steps.entries()) if (i > 0) expect(before).toEqual(steps[i - 1]?.after);
    expect(steps.at(-1)?.after).toEqual({ ...output, bytes: report.totals.bytesAfter });
    expect(runs).toBeLessThanOrEqual(1 + 6 * 38 + 1);
  });

  it('says how close it came if the bound is out of reach, and writes nothing', async () => {
    const output = join(folder, 'out.onnx');
    const rules = [{ match: /^w2$/, to: 'q4' as const }];
    const error = await quantizeModel(file, { to: 'q4', rules, minOutput: 0.9999, output, workers: 0 }).catch((e) => e);
    expect(error).toBeInstanceOf(QualityError);
    const { code, message, report } = error as QualityError;
    expect(code).toBe('QUALITY');
    expect(message).toMatch(
      /^outputs below a cosine of 0\.9999, nothing was written: the best reached is "y" on wasm \(0\.\d{6}\), with 3 tensors raised as far as possible$/,
    );
    const { steps = [], outputs: [best] = [] } = report.repair ?? {};
    expect(steps.flatMap(({ tensors }) => tensors.map(({ name }) => name))).not.toContain('w2');
    expect(message).toContain(best?.cosine.toFixed(6));
    // The report is that of the best.
    expect(steps.at(-1)?.after).toEqual({ ...best, bytes: report.totals.bytesAfter });
    expect(await readdir(folder)).toEqual([]);
  });

  it('leaves nothing if it is aborted in the middle', async () => {
    const output = join(folder, 'out.onnx');
    const controller = new AbortController();
    let runs = 0;
    const counted = {
      name: 'node' as const,
      async run(...args: Parameters<typeof native.run>) {
        if (++runs === 3) controller.abort(new Error('enough'));
        return native.run(...args);
      },
    };
    const { signal } = controller;
    const run = { backends: [counted] };
    await expect(quantizeModel(file, { to: 'q4', minOutput: 0.95, run, output, signal, workers: 0 })).rejects.toThrow(
      /enough|onnxruntime-node/,
    );
    await expect(quantizeModel(file, { to: 'q4', minOutput: 0.95, output, signal, workers: 0 })).rejects.toThrow(
      'enough',
    );
    const second = new AbortController();
    let calls = 0;
    const onProgress = () => {
      if (++calls === 9) second.abort(new Error('later'));
    };
    await expect(
      quantizeModel(file, { to: 'q4', minOutput: 0.95, output, signal: second.signal, onProgress, workers: 0 }),
    ).rejects.toThrow('later');
    expect(await readdir(folder)).toEqual([]);
  });

  it('judges by given samples', async () => {
    // Rows of large weights meet inputs of 0 in the samples alone.
    const model = chain(4, 0);
    const x = onnx.weights(3 * 4 * size, 5, 1).map((value, i) => (i % 32 === 0 ? 0 : value));
    const array = npy('<f4', `(3, 4, ${size})`, x.buffer);
    const path = join(folder, 'samples.npz');
    await writeFile(
      path,
      zip([['x.npy', array, 0]], (bytes) => bytes),
    );
    const options = { to: 'q4', minOutput: 0.95, workers: 0 } as const;
    const { report } = await quantizeModel(model, { ...options, run: { samples: { files: path } } });
    expect(report.repair?.rules).toEqual([{ match: '^w0$', to: 'q8-blocks' }]);
    const lists = Array.from({ length: 3 }, (_, i) => {
      return { x: { data: x.slice(i * 4 * size, (i + 1) * 4 * size), shape: [4, size] } };
    });
    const given = await quantizeModel(model, { ...options, run: { samples: lists } });
    expect(given.report.repair).toEqual(report.repair);
    expect((await quantizeModel(model, options)).report.repair?.rules).not.toEqual(report.repair?.rules);
    await expect(quantizeModel(model, { ...options, run: { samples: [] } })).rejects.toThrow(/run\.samples: expected/);
  });

  it('holds on several backends', async () => {
    const wanted = [
      'wasm' as const,
      ...(existsSync(nodePackage) ? [native] : []),
      ...(existsSync(launchOptions.executablePath) ? [browser] : []),
    ];
    const run = {
      backends: wanted,
      samples: [1, 2].map((i) => ({ x: { data: onnx.weights(size, i, 1), shape: [1, size] } })),
    };
    const { report } = await quantizeModel(file, { to: 'q4', minOutput: 0.9, run, workers: 0 });
    const { outputs = [], rules } = report.repair ?? {};
    expect(outputs.map(({ backend }) => backend)).toEqual(wanted.map((one) => (one === 'wasm' ? one : one.name)));
    for (const { cosine } of outputs) expect(cosine).toBeGreaterThan(0.9);
    expect(rules).toEqual([{ match: '^w2$', to: 'q8-blocks' }]);
  });

  it('makes several results', async () => {
    const made = await quantizeModel(file, { to: ['q4', 'int8-weights'], minOutput: 0.99, workers: 0 });
    for (const { report, bytes } of made) {
      expect(report.repair?.outputs[0]?.cosine).toBeGreaterThanOrEqual(0.99);
      expect(await outputOf(file, await bytes())).toEqual(report.repair?.outputs);
    }
  });

  it('takes models of other weights, also with their weights in a second file', async () => {
    const model = onnx.model({
      nodes: [
        { op: 'Gather', in: ['table', 'ids'], out: ['e'] },
        { op: 'Constant', in: [], out: ['c'], attributes: { value: { tensor: onnx.floatTensor('', [64, 64], 7) } } },
        { op: 'MatMul', in: ['e', 'c'], out: ['m'] },
        { op: 'LSTM', in: ['m', 'w', 'r'], out: ['y'], attributes: { hidden_size: 32 } },
      ],
      initializers: [
        onnx.floatTensor('table', [100, 64], 3, 1),
        onnx.floatTensor('w', [1, 128, 64], 4),
        onnx.floatTensor('r', [1, 128, 32], 5),
      ],
      inputs: [['ids', [5, 2], 7]],
      outputs: [['y', [5, 1, 2, 32]]],
    });
    const targets: readonly ModelTarget[] = ['q8', 'q4', 'q8-blocks', 'int4-weights'];
    for (const to of targets) {
      const output = join(folder, `${to}.onnx`);
      const options = { to, minOutput: '60dB', output, externalData: true, workers: 0 } as const;
      const { report, files } = await quantizeModel(model, options);
      const { outputs = [] } = await compareModels(model, output, { run: true, workers: 0 });
      expect(outputs[0]?.error.sqnrDb, to).toBeGreaterThanOrEqual(60);
      expect(outputs[0]?.error.sqnrDb, to).toBe(report.repair?.outputs[0]?.sqnrDb);
      expect(files.length, to).toBe(2);
    }
  });

  it('is an option of ONNX models, with a cosine or decibels', async () => {
    const npyFile = npy('<f4', '(64, 64)', onnx.weights(64 * 64).buffer);
    await expect(quantizeModel(npyFile, { to: 'int8', minOutput: 0.9, workers: 0 })).rejects.toThrow(
      /minOutput: .*ONNX files/,
    );
    const words = "expected a number above 0 and at most 1 or a number of decibels such as '40dB'";
    for (const minOutput of [0, 1.5, Number.NaN, 'dB', '40', true] as unknown as number[]) {
      await expect(quantizeModel(file, { to: 'q4', minOutput }), String(minOutput)).rejects.toThrow(words);
    }
    await expect(quantizeModel(file, { to: 'q4', run: {} })).rejects.toThrow(/run: .*minOutput/);
    const sized = { to: 'q4', targetSize: 20_000, minOutput: 0.9 } as const;
    await expect(quantizeModel(file, sized)).rejects.toThrow(/minOutput: .*targetSize/);
    const layers = { layers: true } as object;
    await expect(quantizeModel(file, { to: 'q4', minOutput: 0.9, run: layers })).rejects.toThrow(/run\.layers/);
  });
});

describe('foldOutliers', () => {
  const [width, outlier] = [32, 5];
  /** Weights of which one channel is 300 times as large in a norm, and as much smaller in the weights behind it: the same function. */
  const channel = (name: string, dims: readonly number[], seed: number, along: number, factor: number) => {
    const values = onnx
      .weights(
        dims.reduce((a, b) => a * b, 1),
        seed,
      )
      .map((value, i) => {
        const index = along === 0 ? Math.floor(i / (dims[1] ?? 1)) : i % (dims.at(-1) as number);
        return (dims.length === 1 ? 1 + value : value) * (index === outlier ? factor : 1);
      });
    return onnx.tensor({ name, dims, raw: onnx.rawOf(values) });
  };
  const vector = (name: string, seed: number, factor = 300) => channel(name, [width], seed, 1, factor);
  const square = (name: string, seed: number, along = 0, factor = 1 / 300) =>
    channel(name, [width, width], seed, along, factor);
  /** Norms in one node and in two, with weights as they are and transposed; the last one also reaches a sum. */
  const model = onnx.model({
    nodes: [
      { op: 'LayerNormalization', in: ['x', 'g1', 'b1'], out: ['n1'] },
      { op: 'MatMul', in: ['n1', 'w1'], out: ['p1'] },
      { op: 'MatMul', in: ['n1', 'v1'], out: ['q1'] },
      { op: 'Add', in: ['p1', 'q1'], out: ['h1'] },
      { op: 'SimplifiedLayerNormalization', in: ['h1', 'g2'], out: ['n2'] },
      { op: 'Gemm', in: ['n2', 'w2'], out: ['h2'], attributes: { transB: 1 } },
      { op: 'Mul', in: ['h2', 'g3'], out: ['m3'] },
      { op: 'Add', in: ['m3', 'b3'], out: ['n3'] },
      { op: 'Reshape', in: ['n3', 'apart'], out: ['r3'] },
      { op: 'MatMul', in: ['r3', 'w3'], out: ['s3'] },
      { op: 'Reshape', in: ['s3', 'together'], out: ['h3'] },
      { op: 'LayerNormalization', in: ['h3', 'g4', 'b4'], out: ['n4'] },
      { op: 'MatMul', in: ['n4', 'w4'], out: ['h4'] },
      { op: 'Add', in: ['h4', 'n4'], out: ['y'] },
    ],
    initializers: [
      ...[vector('g1', 1), vector('b1', 2), square('w1', 3), square('v1', 4)],
      ...[vector('g2', 5), square('w2', 6, 1)],
      ...[vector('g3', 7), vector('b3', 8), square('w3', 9)],
      ...[vector('g4', 10, 1), vector('b4', 11, 1), square('w4', 12, 0, 1)],
      onnx.tensor({ name: 'apart', type: 7, dims: [3], raw: onnx.int64s([1, -1, width]) }),
      onnx.tensor({ name: 'together', type: 7, dims: [2], raw: onnx.int64s([-1, width]) }),
    ],
    inputs: [['x', ['rows', width]]],
    outputs: [['y', ['rows', width]]],
  });
  const sampleOf = (seed: number) => ({ x: { data: onnx.weights(4 * width, seed, 1), shape: [4, width] } });
  const run = { samples: Array.from({ length: 8 }, (_, i) => sampleOf(100 + i)) };
  const others = Array.from({ length: 8 }, (_, i) => sampleOf(200 + i));
  const folded = quantizeModel(model, { to: 'q8', foldOutliers: true, run, workers: 0 });
  const cosineOf = async (made: Uint8Array<ArrayBuffer>) => {
    const { outputs } = await evaluateModel(made, { reference: model, data: others, workers: 0 });
    return outputs?.[0]?.error.cosine ?? 0;
  };

  it.each(['q8', 'int8-static'] as const)('brings outputs of %s closer, on other samples, too', async (to) => {
    const ranges = to === 'int8-static' ? { ranges: await calibrateModel(model, run.samples, { ranges: true }) } : {};
    const plain = await quantizeModel(model, { to, ...ranges, workers: 0 });
    const { report, bytes } = await quantizeModel(model, { to, ...ranges, foldOutliers: true, run, workers: 0 });
    const { norms = [], judged } = report.folding ?? {};
    expect(norms.map(({ value }) => value)).toEqual(['n1', 'n2', 'n3']);
    // 300 is 8.2 powers of two, and the others are less by the mean of all.
    for (const { exponents } of norms) expect(exponents[outlier]).toBeGreaterThanOrEqual(7);
    expect(judged?.after.sqnrDb).toBeGreaterThan((judged?.before.sqnrDb ?? 0) + 12);
    const [before, after] = [await cosineOf(await plain.bytes()), await cosineOf(await bytes())];
    expect(before).toBeLessThan(0.98);
    expect(after).toBeGreaterThan(0.999);
    expect(report.totals.bytesAfter).toBeLessThan(plain.report.totals.bytesAfter * 1.02);
    // The norms make the same file without runs.
    const again = await quantizeModel(model, { to, ...ranges, foldOutliers: norms, workers: 0 });
    expect(await again.bytes()).toEqual(await bytes());
  });

  it('leaves floats as they are, bit by bit, in both runtimes', async () => {
    const { norms = [] } = (await folded).report.folding ?? {};
    const rules = [{ match: '.', keep: true as const }];
    const { bytes } = await quantizeModel(model, { to: 'q8', rules, foldOutliers: norms, workers: 0 });
    expect(Buffer.compare(await bytes(), model)).not.toBe(0);
    const backends = existsSync(nodePackage) ? ['wasm' as const, native] : ['wasm' as const];
    const { outputs = [], backends: reports = [] } = await compareModels(model, await bytes(), {
      run: { backends },
      workers: 0,
    });
    const own = reports.flatMap(({ a, b }) => [a, b]).flatMap((one) => (one.kind === 'ran' ? one.outputs : []));
    expect(outputs.map(({ error }) => error.maxAbsoluteError)).toEqual([0]);
    expect(own.length).toBe(2 * backends.length);
    // Both differ from wasm alike.
    for (let i = 0; i < own.length; i += 2) expect(own[i + 1]?.error).toEqual(own[i]?.error);
  });

  it('folds nothing where outputs get no closer, and nothing without norms', async () => {
    const sum = 'outliers: nothing';
    const { report } = await quantizeModel(file, {
      to: 'q8',
      foldOutliers: true,
      run: { samples: [1, 2].map((i) => ({ x: { data: onnx.weights(size, i, 1), shape: [1, size] } })) },
      workers: 0,
    });
    expect(report.folding, sum).toEqual({ norms: [] });
  });

  it('names what it lacks', async () => {
    const { norms = [] } = (await folded).report.folding ?? {};
    const options = { to: 'q8', workers: 0 } as const;
    const [first] = norms as [(typeof norms)[number]];
    for (const [given, message] of [
      [{ foldOutliers: true }, 'run.samples: expected at least 2 samples'],
      [
        { foldOutliers: true, run: { samples: run.samples.slice(1, 2) } },
        'run.samples: expected at least 2 samples, got 1',
      ],
      [{ foldOutliers: [{ ...first, value: 'n4' }] }, "foldOutliers[0].value: expected 'n1', 'n2' or 'n3', got \"n4\""],
      [{ foldOutliers: [{ ...first, exponents: [30] }] }, 'foldOutliers: expected a boolean or a list of folded norms'],
      [{ foldOutliers: true, run, importance: new Blob([]) }, 'foldOutliers: not together with importance'],
    ] as const)
      await expect(quantizeModel(model, { ...options, ...given } as never)).rejects.toThrow(message);
  });
});
