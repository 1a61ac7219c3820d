// Calibrations of ONNX models that go on after an interruption: the same bytes as those of a single run, and errors for states of other runs.
import { mkdtempSync, readdirSync } from 'node:fs';
import { readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { calibrateModel, type DataProgress, type ModelSample, type ModelSamples } from 'scalepoint/model';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { npy } from '../../../support/npz.js';
import * as onnx from '../encoder.js';

/** Two products of inputs of their own, of `columns` columns. */
const network = (columns: number) =>
  onnx.model({
    nodes: [
      { op: 'MatMul', in: ['x', 'w1'], out: ['a'] },
      { op: 'Relu', in: ['a'], out: ['b'] },
      { op: 'MatMul', in: ['z', 'w2'], out: ['c'] },
      { op: 'MatMul', in: ['b', 'w3'], out: ['d'] },
    ],
    initializers: [
      onnx.floatTensor('w1', [columns, 6], 1),
      onnx.floatTensor('w2', [columns, 1], 2),
      onnx.floatTensor('w3', [6, 4], 3),
    ],
    inputs: [
      ['x', ['n', columns]],
      ['z', ['n', columns]],
    ],
    outputs: [
      ['c', []],
      ['d', []],
    ],
  });

const sampleOf = (columns: number, seed: number): ModelSample => ({
  x: { data: onnx.weights(2 * columns, seed, 2), shape: [2, columns] },
  z: { data: onnx.weights(columns, seed + 50, 2), shape: [1, columns] },
});
const samplesOf = (columns: number, count: number) => Array.from({ length: count }, (_, i) => sampleOf(columns, i + 1));

const file = network(8);
const samples = samplesOf(8, 5);

let folder = '';
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'scalepoint-resume-onnx-'));
});
afterEach(() => rm(folder, { recursive: true }));

/** Options of a run that is stopped behind the first sample that passes a test. */
function stoppedIf(isEnd: (progress: DataProgress) => boolean) {
  const controller = new AbortController();
  const onProgress = (progress: DataProgress) => {
    if (isEnd(progress)) controller.abort(new Error('stopped'));
  };
  return { signal: controller.signal, onProgress };
}

/** The same behind a sample of a pass. */
const stoppedAt = (pass: number, done: number) =>
  stoppedIf((progress) => progress.pass === pass && progress.done === done);

/** Collects the progress of a run. */
function watched() {
  const seen: string[] = [];
  return { seen, onProgress: ({ pass, done }: DataProgress) => void seen.push(`${pass}:${done}`) };
}

const ends = ['', '.moments.safetensors', '.ranges.safetensors'];

/** Expects equal files of two runs, and no states. */
async function expectSame(output: string, whole: string): Promise<void> {
  for (const end of ends) expect((await readFile(output + end)).equals(await readFile(whole + end)), end).toBe(true);
  expect(readdirSync(folder).filter((name) => name.startsWith('.'))).toEqual([]);
}

describe('a calibration of an ONNX model', () => {
  const lines = new TextEncoder().encode(
    samples
      .map((sample) =>
        JSON.stringify(
          Object.fromEntries(Object.entries(sample).map(([k, v]) => [k, { ...v, data: Array.from(v.data, Number) }])),
        ),
      )
      .join('\n'),
  );
  const kinds: Readonly<Record<string, () => ModelSamples>> = {
    arrays: () => samples,
    iterables: () => ({ [Symbol.iterator]: () => samples[Symbol.iterator]() }),
    'iterators that end': () => samples.values(),
    files: () => ({ files: lines }),
  };

  /** Shares, and the counts of samples that they hold back. */
  const shares = [
    [undefined, 1],
    [0, 0],
    [0.5, 2],
  ] as const;
  const cases = Object.keys(kinds).flatMap((kind) => shares.map(([heldBack, chunks]) => ({ kind, heldBack, chunks })));

  it.each(Object.keys(kinds))('leaves nothing behind where nothing can be held back: %s', async (kind) => {
    const one: Readonly<Record<string, () => ModelSamples>> = {
      arrays: () => samples.slice(0, 1),
      iterables: () => ({ [Symbol.iterator]: () => samples.slice(0, 1).values() }),
      'iterators that end': () => samples.slice(0, 1).values(),
      files: () => ({ files: lines.slice(0, lines.indexOf(0x0a)) }),
    };
    const { seen, onProgress } = watched();
    const options = { moments: true, heldBack: 0.5, resume: true, output: join(folder, 'one.gguf'), onProgress };
    const data = (one[kind] as () => ModelSamples)();
    await expect(calibrateModel(file, data, options)).rejects.toMatchObject({ option: 'data', name: 'RangeError' });
    // A list is counted before the model runs; the rest after the first pass.
    expect(seen).toEqual(kind === 'arrays' ? [] : ['1:1']);
    expect(readdirSync(folder)).toEqual([]);
  });

  it.each(cases)('goes on behind the last finished sample, with $kind and heldBack $heldBack', async (one) => {
    const { kind, heldBack, chunks } = one;
    const data = kinds[kind] as () => ModelSamples;
    const options = { moments: true, ranges: true, heldBack };
    const whole = join(folder, 'whole.gguf');
    const { heldBackChunks } = await calibrateModel(file, data(), { ...options, output: whole });
    expect(heldBackChunks).toBe(chunks);
    expect((await readFile(`${whole}.moments.safetensors`)).includes('.heldBack')).toBe(heldBack !== 0);
    const output = join(folder, 'parts.gguf');
    const run = (more: object) => calibrateModel(file, data(), { ...options, output, resume: true, ...more });
    await expect(run(stoppedAt(1, 1))).rejects.toThrow('stopped');
    expect(readdirSync(folder).filter((name) => name.includes('parts'))).toEqual(['.parts.gguf.resume']);
    await expect(run(stoppedAt(1, 2))).rejects.toThrow('stopped');
    const { seen, onProgress } = watched();
    expect((await run({ onProgress })).heldBackChunks).toBe(heldBackChunks);
    expect(seen).toEqual(['1:3', '1:4', '1:5']);
    await expectSame(output, whole);
  });

  it('goes on in the pass in which it was', async () => {
    // Two inputs whose moments take a pass each.
    const [model, all] = [network(3600), samplesOf(3600, 4)];
    const options = { moments: true, ranges: true };
    const whole = join(folder, 'whole.gguf');
    await calibrateModel(model, all, { ...options, output: whole });
    const output = join(folder, 'parts.gguf');
    const run = (more: object) => calibrateModel(model, all, { ...options, output, resume: true, ...more });
    await expect(run(stoppedAt(2, 1))).rejects.toThrow('stopped');
    // A run keeps the state behind its first sample. Go on until there are moments of the second sample, which is held back.
    for (const _ of [1, 2]) await expect(run(stoppedIf(() => true))).rejects.toThrow('stopped');
    const before: string[] = [];
    const stop = stoppedAt(3, 1);
    const onSecond = (progress: DataProgress) => {
      before.push(`${progress.pass}:${progress.done}`);
      stop.onProgress(progress);
    };
    await expect(run({ signal: stop.signal, onProgress: onSecond })).rejects.toThrow('stopped');
    expect(before[0]).toMatch(/^2:[34]$/);
    const { seen, onProgress } = watched();
    await run({ onProgress });
    expect(seen.at(-1)).toBe('3:4');
    expect(seen.every((one) => one.startsWith('3'))).toBe(true);
    await expectSame(output, whole);
  });

  it('refuses another share of samples to hold back', async () => {
    const options = { moments: true, output: join(folder, 'imatrix.gguf'), resume: true };
    await expect(calibrateModel(file, samples, { ...options, ...stoppedAt(1, 2) })).rejects.toThrow('stopped');
    const other = calibrateModel(file, samples, { ...options, heldBack: 0.25 });
    await expect(other).rejects.toMatchObject({ code: 'CHANGED', message: expect.stringContaining('the options') });
  });

  it('refuses the state of another run', async () => {
    const output = join(folder, 'imatrix.gguf');
    const options = { output, resume: true };
    await expect(calibrateModel(file, samples, { ...options, ...stoppedAt(1, 1) })).rejects.toThrow('stopped');
    const others = [sampleOf(8, 70), ...samples.slice(1)];
    for (const [call, what] of [
      [() => calibrateModel(file, others, options), 'the data'],
      [() => calibrateModel(file, { files: lines }, options), 'the data'],
      [() => calibrateModel(file, samples, { ...options, moments: true }), 'the options'],
      [() => calibrateModel(network(16), samplesOf(16, 5), options), 'the model'],
    ] as const) {
      await expect(call()).rejects.toMatchObject({ code: 'CHANGED', message: expect.stringContaining(what) });
    }
    await expect(calibrateModel(file, [], options)).rejects.toMatchObject({ option: 'data', name: 'RangeError' });
    expect(readdirSync(folder)).toEqual(['.imatrix.gguf.resume']);
    // Begins anew where that is allowed.
    const { seen, onProgress } = watched();
    await calibrateModel(file, { files: lines }, { ...options, overwrite: true, onProgress });
    expect(seen[0]).toBe('1:1');
    expect(readdirSync(folder)).toEqual(['imatrix.gguf']);
  });

  it('refuses samples that differ from pass to pass', async () => {
    const model = network(3600);
    let reads = 0;
    const data = { [Symbol.iterator]: () => [sampleOf(3600, ++reads)].values() };
    const run = calibrateModel(model, data, { moments: true, output: join(folder, 'm.gguf'), resume: true });
    await expect(run).rejects.toMatchObject({ code: 'CHANGED' });
  });

  it('refuses damaged states', async () => {
    const output = join(folder, 'imatrix.gguf');
    const options = { output, resume: true, ranges: true };
    await expect(calibrateModel(file, samples, { ...options, ...stoppedAt(1, 1) })).rejects.toThrow('stopped');
    const path = join(folder, '.imatrix.gguf.resume');
    const state = await readFile(path);
    const changed = (from: string, to: string) => Buffer.from(state.toString('latin1').replace(from, to), 'latin1');
    for (const bytes of [
      state.subarray(0, state.length - 8),
      changed('"done":1', '"done":x'),
      changed('"done":1', '"dune":1'),
      changed('"rows":[2,', '"rows":[-,'),
      changed('"heldBackRows":[0,', '"heldBackRows":[3,'),
      changed('"heldBackRows":[0,', '"heldBackRows":['),
      changed('"pass":0', '"pass":7'),
      changed('"bytes":8', '"bytes":4'),
    ]) {
      await writeFile(path, bytes);
      await expect(calibrateModel(file, samples, options)).rejects.toMatchObject({ code: 'BAD_FILE' });
    }
    // A state of a language model.
    await writeFile(path, npy('<f4', '(2,)', new ArrayBuffer(8)));
    await expect(calibrateModel(file, samples, options)).rejects.toMatchObject({ code: 'BAD_FILE' });
    await writeFile(path, state);
    expect((await calibrateModel(file, samples, options)).chunks).toBe(5);
  });
});
