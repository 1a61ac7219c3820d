// Both models run on backends: on wasm, in a browser on WebGPU, and in onnxruntime-node. Where there is no GPU, SwiftShader stands in for one.
import { createHash } from 'node:crypto';
import { existsSync } from 'node:fs';
import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import * as ort from 'onnxruntime-web';
import { compareModels, type ModelTarget, modelFormats, quantizeModel } from 'scalepoint/model';
import { afterAll, describe, expect, it } from 'vitest';
import { launchOptions } from '../../../../../scripts/chromium.mjs';
import { NativeBackend } from '../../../../../web/src/cli/native.js';
import { BrowserBackend } from '../../../../../web/src/cli/webgpu.js';
import { execute, KeptDevice } from '../../../../../web/src/formats/onnx/run/execute.js';
import { decodeMessage, encodeMessage } from '../../../../../web/src/formats/onnx/run/message.js';
import type { TypedRuntime } from '../../../../../web/src/formats/onnx/run/runtime.js';
import type { BackendAnswer, BackendReport, BackendRun, RunBackend } from '../../../../../web/src/tooling.js';
import * as onnx from '../encoder.js';
import { encoderModel } from '../transformer.js';

ort.env.wasm.numThreads = 1;
const { resolve } = createRequire(import.meta.url);
const browser = new BrowserBackend(launchOptions.executablePath, dirname(resolve('onnxruntime-web')));
const packages = fileURLToPath(new URL('../../../../transformers/node_modules', import.meta.url));
const nodeFolder = join(packages, 'onnxruntime-node');
const native = new NativeBackend(join(nodeFolder, 'dist/index.js'));
afterAll(async () => {
  await browser.close();
  await native.close();
});

/** Answers by jobs: every target runs the same original. */
const answers = new Map<string, Promise<BackendAnswer>>();
const gpu: RunBackend = {
  name: 'webgpu',
  run(job, signal) {
    const key = createHash('sha256').update(encodeMessage(job)).digest('hex');
    const answer = answers.get(key) ?? browser.run(job, signal);
    answers.set(key, answer);
    return answer;
  },
};

type Ran = BackendRun & { kind: 'ran' };
function ran(run: BackendRun | undefined): Ran {
  if (run?.kind !== 'ran') throw new Error(`it did not run: ${run?.text}`);
  return run;
}

/** Both models on one backend. */
async function runOn(
  backend: 'wasm' | RunBackend,
  a: Uint8Array<ArrayBuffer>,
  b: Uint8Array<ArrayBuffer>,
): Promise<BackendReport> {
  const { backends } = await compareModels(a, b, { run: { backends: [backend], layers: true }, workers: 0 });
  return backends?.[0] as BackendReport;
}

const made = async (file: Uint8Array<ArrayBuffer>, to: ModelTarget) =>
  (await quantizeModel(file, { to, workers: 0 })).bytes();

/** Every kind of weight, each with its own input and output. */
const everything = onnx.model({
  nodes: [
    { op: 'MatMul', in: ['x', 'matmul'], out: ['m'] },
    { op: 'Gemm', in: ['x', 'gemm', 'bias'], out: ['g'], attributes: { transB: 1 } },
    { op: 'Conv', in: ['image', 'conv'], out: ['c'], attributes: { pads: [1, 1, 1, 1] } },
    { op: 'Gather', in: ['table', 'i'], out: ['t'] },
    { op: 'LSTM', in: ['steps', 'lstm_w', 'lstm_r'], out: ['l'], attributes: { hidden_size: 32 } },
  ],
  initializers: [
    onnx.floatTensor('matmul', [128, 64], 1),
    onnx.floatTensor('gemm', [64, 128], 2),
    onnx.floatTensor('bias', [64], 3),
    onnx.floatTensor('conv', [16, 8, 3, 3], 4),
    onnx.floatTensor('table', [64, 64], 5),
    onnx.floatTensor('lstm_w', [1, 128, 40], 6),
    onnx.floatTensor('lstm_r', [1, 128, 32], 7),
  ],
  inputs: [
    ['x', [3, 128]],
    ['image', [1, 8, 9, 9]],
    ['i', [2, 5], 7],
    ['steps', [4, 1, 40]],
  ],
  outputs: [
    ['m', [3, 64]],
    ['g', [3, 64]],
    ['c', [1, 16, 9, 9]],
    ['t', [2, 5, 64]],
    ['l', [4, 1, 1, 32]],
  ],
});

/** Those with operators of their own. */
const targets = (modelFormats().find(({ name }) => name === 'onnx')?.targets ?? [])
  .map(({ name }) => name as ModelTarget)
  .filter((name) => !['int8-static', 'int8', 'uint8', 'uint8-weights', 'q2f16'].includes(name));

describe('targets on WebGPU', () => {
  it.each(targets)('%s', async (to) => {
    const { adapter, a, b } = await runOn(gpu, everything, await made(everything, to));
    expect(ran(a).placement).toMatchObject({ onCpu: [], copies: 0 });
    expect(ran(a).nodes).toMatchObject({ compared: 5, off: 0, unknown: [] });
    // SwiftShader has no float16. A GPU may.
    if (b.kind === 'needsFloat16') {
      expect(adapter?.hasFloat16).toBe(false);
      expect(['fp16', 'q4f16']).toContain(to);
      return;
    }
    const { nodes, outputs, placement, times } = ran(b);
    expect(nodes).toMatchObject({ off: 0 });
    expect(outputs.map(({ name }) => name)).toEqual(['m', 'g', 'c', 't', 'l']);
    expect(times.runs).toBeGreaterThan(0);
    expect(times.firstSeconds).toBeGreaterThan(0);
    // Products of integers have no kernel for WebGPU.
    const away = placement?.onCpu.map(({ op }) => op) ?? [];
    expect(away.includes('MatMulInteger')).toBe(to === 'q8');
    if (away.includes('MatMulInteger')) expect(placement?.copies).toBeGreaterThan(1);
  });
});

describe('the first node that is off', () => {
  /** Two products, the second with weights of its own. */
  const chain = (second: onnx.Bytes) =>
    onnx.model({
      nodes: [
        { op: 'MatMul', name: 'first', in: ['x', 'w'], out: ['p'] },
        { op: 'Relu', name: 'between', in: ['p'], out: ['r'] },
        { op: 'MatMul', name: 'second', in: ['r', 'v'], out: ['s'] },
        { op: 'MatMul', name: 'third', in: ['s', 'w2'], out: ['y'] },
      ],
      initializers: [onnx.floatTensor('w', [96, 64], 1), second, onnx.floatTensor('w2', [32, 32], 3)],
      // With many rows, no column of the result of Relu is 0 in all.
      inputs: [['x', [24, 96]]],
      outputs: [['y', [24, 32]]],
    });
  const weights = onnx.weights(64 * 32, 2);
  const wrong = weights.slice();
  // The change is as large as a weight of the middle.
  wrong[5] = (wrong[5] as number) + 0.1;
  const asTensor = (values: Float32Array<ArrayBuffer>) =>
    onnx.tensor({ name: 'v', dims: [64, 32], raw: onnx.rawOf(values) });
  const [right, changed] = [chain(asTensor(weights)), chain(asTensor(wrong))];

  it('is the one whose weight differs', async () => {
    const { b } = await runOn('wasm', right, changed);
    expect(ran(b).nodes).toMatchObject({ compared: 4, off: 1, first: { node: 'second', op: 'MatMul', output: 's' } });
    const { first } = ran(b).nodes ?? {};
    expect(first?.error).toBeGreaterThan(first?.tolerance ?? Infinity);
    expect(first?.inputs).toEqual([
      { name: 'r', error: 0 },
      { name: 'v', error: undefined },
    ]);
    const same = await runOn('wasm', right, right);
    expect(ran(same.b).nodes).toEqual({ compared: 4, off: 0, first: undefined, unknown: [] });
  });

  it('is the one that a backend computes wrongly, although all behind it are wrong, too', async () => {
    /** A backend that reads one weight wrongly. */
    const broken: RunBackend = {
      name: 'webgpu',
      run(job) {
        const bytes = Buffer.from(job.model.bytes);
        const at = bytes.indexOf(Buffer.from(weights.buffer));
        expect(at).toBeGreaterThan(0);
        bytes.set(new Uint8Array(wrong.buffer), at);
        const model = { ...job.model, bytes: new Uint8Array(bytes) };
        return execute(ort as unknown as TypedRuntime, 'broken', 'wasm', { ...job, model });
      },
    };
    const { a, b } = await runOn(broken, right, right);
    for (const run of [a, b]) {
      expect(ran(run).nodes).toMatchObject({ compared: 4, off: 1, first: { node: 'second' } });
      expect(ran(run).outputs[0]?.error.sqnrDb).toBeLessThan(60);
    }
    expect(ran(b).outputs[0]?.own?.sqnrDb).toBe(ran(b).outputs[0]?.error.sqnrDb);
  });

  it('is found on WebGPU, against the model on wasm', async () => {
    const { b } = await runOn(gpu, right, changed);
    // The GPU computes the changed model as wasm does.
    expect(ran(b).nodes).toMatchObject({ off: 0 });
    expect(ran(b).outputs[0]?.own?.sqnrDb).toBeGreaterThan(100);
    expect(ran(b).outputs[0]?.error.sqnrDb).toBeLessThan(60);
  });

  it('is none in a transformer', async () => {
    const file = encoderModel();
    const { b } = await runOn('wasm', file, file);
    expect(ran(b).nodes).toMatchObject({ off: 0, first: undefined });
    expect(ran(b).nodes?.compared).toBeGreaterThan(50);
    // Every quantized product is off by more than rounding.
    const quantized = ran((await runOn('wasm', file, await made(file, 'q8'))).b);
    expect(quantized.nodes?.off).toBeGreaterThan(5);
  });
});

it('keeps a device for jobs that follow, but none for a job with measures', async () => {
  const file = onnx.model({
    nodes: [{ op: 'Relu', in: ['x'], out: ['y'] }],
    inputs: [['x', [1]]],
    outputs: [['y', [1]]],
  });
  const open = new Set<Uint8Array>();
  const events: string[] = [];
  const nameOf = (bytes: Uint8Array) => (bytes.length === file.length ? 'model' : 'device');
  const runtime = {
    Tensor: ort.Tensor,
    InferenceSession: {
      async create(bytes: Uint8Array) {
        events.push(`${nameOf(bytes)} beside ${[...open].map(nameOf).join(' and ') || 'nothing'}`);
        const session = await ort.InferenceSession.create(bytes);
        if (nameOf(bytes) === 'device') {
          const { y } = await session.run({ x: new ort.Tensor('float32', [7], [1]) });
          expect(y?.data).toEqual(Float32Array.of(7));
        }
        open.add(bytes);
        return {
          outputNames: session.outputNames,
          run: (feeds: Record<string, ort.Tensor>) => session.run(feeds),
          async release() {
            open.delete(bytes);
            await session.release();
          },
        };
      },
    },
  } as unknown as TypedRuntime;
  const device = new KeptDevice();
  const feeds = { x: { type: 'float32', dims: [1], data: Float32Array.of(1) } };
  for (const measures of [true, false, false, true]) {
    const job = { model: { bytes: file, externalData: [] }, feeds, level: 'all', measures } as const;
    expect(await execute(runtime, 'fake', 'wasm', job, device)).toMatchObject({ kind: 'ran' });
  }
  const measured = ['model beside nothing', 'device beside model'];
  expect(events).toEqual([...measured, 'model beside device', 'model beside device', ...measured]);
  await device.release();
  expect(open.size).toBe(0);
});

describe.skipIf(!existsSync(nodeFolder))('onnxruntime-node', () => {
  it('runs in a process of its own', async () => {
    const file = encoderModel();
    const { runtime, a, b } = await runOn(native, file, await made(file, 'uint8'));
    expect(runtime).toMatch(/^onnxruntime-node \d/);
    expect(ran(a).nodes).toMatchObject({ off: 0 });
    expect(ran(a).outputs[0]?.error.sqnrDb).toBeGreaterThan(100);
    expect(ran(b).outputs[0]?.error.cosine).toBeGreaterThan(0.99);
    expect(ran(b).placement).toBeUndefined();
  });

  it('says that it cannot load a model, and goes on', async () => {
    const feeds = { x: { type: 'float32', dims: [1], data: Float32Array.of(1) } };
    const job = { feeds, level: 'all', measures: false } as const;
    const bad = await native.run({ ...job, model: { bytes: Uint8Array.of(1, 2, 3), externalData: [] } }, undefined);
    expect(bad.kind).toBe('noSession');
    const file = onnx.model({
      nodes: [{ op: 'Relu', in: ['x'], out: ['y'] }],
      inputs: [['x', [1]]],
      outputs: [['y', [1]]],
    });
    const good = await native.run({ ...job, model: { bytes: file, externalData: [] } }, undefined);
    expect(good).toMatchObject({ kind: 'ran', outputs: { y: { type: 'float32', dims: [1] } } });
  });
});

describe('options', () => {
  it('names what is wrong with backends', async () => {
    const file = encoderModel();
    for (const [backends, message] of [
      ['wasm', /run\.backends: expected an array/],
      [['gpu'], /run\.backends\[0\]: expected 'wasm' or 'webgpu'/],
      [['wasm', {}], /run\.backends\[1\]: expected/],
    ] as const) {
      await expect(compareModels(file, file, { run: { backends: backends as unknown as [] } })).rejects.toThrow(
        message,
      );
    }
  });

  it('reports WebGPU that is not there as a result', async () => {
    const file = encoderModel();
    const { backends } = await compareModels(file, file, {
      run: { backends: ['wasm', 'webgpu'], runtime: ort },
      workers: 0,
    });
    expect(backends).toMatchObject([
      { backend: 'wasm', a: { kind: 'ran' }, b: { kind: 'ran' } },
      { backend: 'webgpu', a: { kind: 'noAdapter' }, b: { kind: 'noAdapter' } },
    ]);
  });
});

it('sends objects with arrays as bytes', () => {
  const message = {
    text: 'ä',
    list: [Float32Array.of(1.5, Number.NaN), BigInt64Array.of(-1n), new Uint8Array(0)],
    inner: { half: Uint16Array.of(1), buffer: Buffer.from([7, 8]) },
  };
  const expected = { ...message, inner: { ...message.inner, buffer: Uint8Array.of(7, 8) } };
  expect(decodeMessage(encodeMessage(message))).toEqual(expected);
  // A part of a larger buffer of Node.
  expect(decodeMessage(Buffer.concat([Buffer.alloc(3), encodeMessage(message)]).subarray(3))).toEqual(expected);
});
