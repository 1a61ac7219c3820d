// --method gptq, --moments and --damping for ONNX models, from samples to codes, and for safetensors.
import { readFile, writeFile } from 'node:fs/promises';
import { describe, expect, it } from 'vitest';
import { quantizeModel, saveTensors } from '../../../web/src/model.js';
import * as onnx from '../formats/onnx/encoder.js';
import { momentsFile } from '../support/story-model.mjs';
import { Random } from '../support/support.js';
import { path, run, useFolder } from './support.js';

useFolder();

describe('--method gptq', () => {
  const model = onnx.product('MatMul', [64, 32], ['n', 64] as never, ['n', 32])();

  /** Writes the model and samples, and collects statistics. */
  async function calibrated() {
    await writeFile(path('m.onnx'), model);
    const rows = Array.from({ length: 100 }, (_, i) => [...onnx.weights(64, i + 1, 1)]);
    await writeFile(path('samples.jsonl'), rows.map((row) => `${JSON.stringify({ x: [row] })}\n`).join(''));
    const words = ['calibrate', 'm.onnx', '--data', 'samples.jsonl', '--moments', '-o', 's.gguf'];
    expect(await run(words)).toMatchObject({
      code: 0,
      stdout: expect.stringContaining('second moments, 13 samples of 100 held back, '),
    });
  }

  it('gives the file that the API gives', async () => {
    await calibrated();
    const moments = 's.gguf.moments.safetensors';
    const words = [
      'm.onnx',
      '--to',
      'q4',
      '--method',
      'gptq',
      '--moments',
      moments,
      '--damping',
      '0.05',
      '-o',
      'out.onnx',
    ];
    const outcome = await run(words);
    expect(outcome.code).toBe(0);
    const data = new Blob([await readFile(path(moments))]);
    const result = await quantizeModel(model, { to: 'q4', method: 'gptq', moments: data, damping: 0.05, workers: 0 });
    expect(Buffer.compare(await readFile(path('out.onnx')), await result.bytes())).toBe(0);
    const { before, after } = result.report.tensors.flatMap(({ error }) => error?.output ?? [])[0]!;
    expect(outcome.stdout).toContain(
      `\nsquared errors of outputs on held-back data: ${(after / before).toFixed(2)} of those without GPTQ\n`,
    );
    expect(await run(['m.onnx', '--to', 'q4', '--imatrix', 's.gguf', '-o', 'weighted.onnx'])).toMatchObject({
      code: 0,
    });
    const importance = new Blob([await readFile(path('s.gguf'))]);
    const weighted = await quantizeModel(model, { to: 'q4', importance, workers: 0 });
    expect(Buffer.compare(await readFile(path('weighted.onnx')), await weighted.bytes())).toBe(0);
  });

  it('holds back as much as it is asked to', async () => {
    await calibrated();
    const words = ['calibrate', 'm.onnx', '--data', 'samples.jsonl', '-f', '-o', 's.gguf'];
    const quarter = await run([...words, '--moments', '--held-back', '.25', '--json']);
    expect(JSON.parse(quarter.stdout)).toMatchObject({ chunks: 100, heldBackChunks: 25 });
    const nothing = await run([...words, '--moments', '--held-back', '0']);
    expect(nothing.stdout).toContain('second moments, no sample held back, ');
    const outcome = await run([
      'm.onnx',
      '--to',
      'q4',
      '--method',
      'gptq',
      '--moments',
      's.gguf.moments.safetensors',
      '-o',
      'o.onnx',
    ]);
    expect(outcome.stdout).toContain('\nsquared errors of outputs on the data that codes were fitted to: ');
    expect(outcome.stderr).toContain('their moments hold no data back');
    for (const [share, text] of [
      ['0.6', '--held-back'],
      ['-1', '--held-back'],
      ['some', '--held-back'],
    ] as const) {
      const refused = await run([...words, '--moments', `--held-back=${share}`]);
      expect(refused).toMatchObject({ code: 2, stderr: expect.stringContaining(text) });
    }
    const refused = await run([...words, '--held-back', '.1']);
    expect(refused).toMatchObject({ code: 2, stderr: expect.stringContaining('--moments') });
  });

  it('is refused where it has no meaning, and nothing is written', async () => {
    await calibrated();
    const refused = async (words: readonly string[], problem: { code: number; text: string }) => {
      const outcome = await run(['m.onnx', ...words, '-o', 'out.onnx']);
      expect(outcome).toMatchObject({ code: problem.code, stderr: expect.stringContaining(problem.text) });
      await expect(readFile(path('out.onnx'))).rejects.toThrow('ENOENT');
    };
    await refused(['--to', 'q4', '--method', 'gptq'], { code: 2, text: '--moments' });
    await refused(['--to', 'q4', '--damping', '0.1'], { code: 2, text: '--method gptq' });
    await refused(['--to', 'fp16', '--imatrix', 's.gguf'], { code: 2, text: '--imatrix' });
    await refused(['--to', 'q4', '--imatrix', 's.gguf', '--range', 'min-max'], { code: 2, text: '--range' });
    const gptq = ['--to', 'q4', '--method', 'gptq'];
    const text = '"s.gguf": this is an importance matrix, not a file of second moments; --imatrix takes it';
    await refused([...gptq, '--moments', 's.gguf'], { code: 1, text });
    await refused([...gptq, '--data', 's.gguf'], {
      code: 2,
      text: 'unknown option; scalepoint calibrate takes --data',
    });
    const other = ['--to', 'q4', '--imatrix', 's.gguf.moments.safetensors'];
    await refused(other, { code: 1, text: 'not an importance matrix; --moments takes it' });
  });
});

describe('--method gptq for safetensors', () => {
  it('gives the file that the API gives', async () => {
    const columns = 64;
    const random = new Random(31);
    const data = Float32Array.from(random.bell(48 * columns));
    const model = await saveTensors({ 'a.weight': { data, shape: [48, columns] } as never });
    await writeFile(path('m.safetensors'), model);
    // Neighboring inputs go together.
    const value = (i: number, j: number) => Math.exp(-Math.abs(i - j) / 8) * (1 + (i % 4)) * (1 + (j % 4));
    const moments = Float32Array.from({ length: columns ** 2 }, (_, i) => value(Math.floor(i / columns), i % columns));
    const statistics = momentsFile([{ names: ['a.weight'], columns, moments }], 100);
    await writeFile(path('s.safetensors'), statistics);
    const words = [
      'm.safetensors',
      '--to',
      'int4',
      '--group-size',
      '32',
      '--method',
      'gptq',
      '--moments',
      's.safetensors',
    ];
    expect(await run([...words, '-o', 'out.safetensors'])).toMatchObject({ code: 0 });
    const granularity = { kind: 'per-group', groupSize: 32 } as const;
    const options = { to: 'int4', granularity, method: 'gptq', moments: new Blob([statistics]), workers: 0 } as const;
    const result = await quantizeModel(model, options);
    expect(Buffer.compare(await readFile(path('out.safetensors')), await result.bytes())).toBe(0);
    const { before = 0, after = 1 } = result.report.tensors[0]?.error?.output ?? {};
    expect(after).toBeLessThan(0.9 * before);
    const refused = await run(['m.safetensors', '--to', 'int4', '--method', 'gptq', '-o', 'other.safetensors']);
    expect(refused).toMatchObject({ code: 2, stderr: expect.stringContaining('--moments') });
  });
});
