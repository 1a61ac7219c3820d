import { writeFile } from 'node:fs/promises';
import { quantizeModel } from 'scalepoint/model';
import { describe, expect, it } from 'vitest';
import * as onnx from '../formats/onnx/encoder.js';
import { path, run, useFolder } from './support.js';

useFolder();

const model = onnx.model({
  nodes: [
    { op: 'MatMul', in: ['x', 'w'], out: ['p'] },
    { op: 'Relu', in: ['p'], out: ['y'] },
  ],
  initializers: [onnx.floatTensor('w', [64, 48])],
  inputs: [['x', ['n', 64]]],
  outputs: [['y', ['n', 48]]],
});

describe('scalepoint compare --run', () => {
  it('tells how far outputs are off, and where that begins', async () => {
    const { bytes } = await quantizeModel(model, { to: 'q4', workers: 0 });
    const [a, b] = [path('model.onnx'), path('model_q4.onnx')];
    await writeFile(a, model);
    await writeFile(b, await bytes());
    const { code, stdout } = await run(['compare', a, b, '--layers', '--dim', 'n=3']);
    expect(code).toBe(0);
    expect(stdout).toMatch(/layer +operator +shape +SQNR dB +cosine +max error +loss dB\n/);
    expect(stdout).toMatch(/the error begins at p \(MatMul\), SQNR \d\d\.\d\d dB\n/);
    expect(stdout).toMatch(/\noutput +shape +SQNR dB +cosine +max error\ny +3×48 /);

    const json = await run(['compare', a, b, '--run', '--seed', '2', '--json', '--min-sqnr', '10']);
    expect(json.code).toBe(0);
    expect(JSON.parse(json.stdout)).toMatchObject({ outputs: [{ name: 'y', shape: [1, 48] }], skippedOutputs: [] });
    const missed = await run(['compare', a, b, '--run', '--quiet', '--min-sqnr', '90']);
    expect(missed).toMatchObject({ code: 1, stderr: expect.stringMatching(/SQNR below 90 dB: "y" \(/) });
  });

  it('tells the sizes that it guessed if the model does not run with them', async () => {
    const file = onnx.model({
      nodes: [{ op: 'Add', in: ['x', 'p'], out: ['y'] }],
      initializers: [onnx.floatTensor('p', [3, 100, 8])],
      inputs: [['x', ['', 'frames', 8]]],
      outputs: [['y', ['n', 'frames', 8]]],
    });
    await writeFile(path('a.onnx'), file);
    const compare = async (...more: string[]) => (await run(['compare', 'a.onnx', 'a.onnx', '--run', ...more])).stderr;
    expect(await compare()).toMatch(/cannot run A: .*; sizes were guessed: x\.0 1, frames 16; --dim sets others\n$/s);
    expect(await compare('--dim', 'frames=2')).toMatch(/; sizes were guessed: x\.0 1; --dim sets others\n$/);
    expect(await compare('--dim', 'x.0=2', '--dim', 'x.1=2')).not.toMatch('guessed');
    expect(await compare('--dim', 'frames=100')).toBe('');
  });

  it('says what is wrong with its flags', async () => {
    for (const [flags, message] of [
      [['--dim', '3'], /--dim: expected NAME=N, got "3"/],
      [['--dim', 'n=x'], /--dim: expected a whole number/],
      [
        ['--input', 'a.npz', '--input', 'b.npz'],
        /--input: expected NAME=FILE such as x=x.npy with --input given several times, got "a.npz"/,
      ],
    ] as const) {
      const { code, stderr } = await run(['compare', 'a', 'b', ...flags]);
      expect(code).toBe(2);
      expect(stderr).toMatch(message);
    }
  });
});

describe('scalepoint evaluate --data', () => {
  it('compares outputs over samples', async () => {
    await writeFile(path('model.onnx'), model);
    await writeFile(path('model_q4.onnx'), await (await quantizeModel(model, { to: 'q4', workers: 0 })).bytes());
    const line = (i: number) => JSON.stringify({ x: [Array.from(onnx.weights(64, i, 2))] });
    await writeFile(path('samples.jsonl'), [1, 2, 3].map(line).join('\n'));
    const command = ['evaluate', 'model_q4.onnx', 'model.onnx', '--data', 'samples.jsonl'];
    const { code, stdout, stderr } = await run(command);
    expect([code, stderr]).toEqual([0, '']);
    expect(stdout).toMatch(
      /^model_q4\.onnx on 3 samples, beside model\.onnx\noutput +SQNR dB +cosine +max error +worst /,
    );
    expect(stdout).toMatch(/\ny +\d\d\.\d\d +0\.99\d+ +\S+ +[012] +\d\d\.\d\d\n$/);
    const json = JSON.parse((await run([...command, '--json'])).stdout);
    expect(json).toMatchObject({ a: 'model_q4.onnx', b: 'model.onnx', samples: 3, outputs: [{ name: 'y' }] });
    for (const [args, message] of [
      [['evaluate', 'model.onnx', '--data', 'samples.jsonl'], /needs A and B/],
      [[...command, '--text', 'a.txt'], /--data goes without --text/],
    ] as const) {
      const wrong = await run([...args]);
      expect(wrong).toMatchObject({ code: 2, stderr: expect.stringMatching(message) });
    }
  });
});

it('the number that a mask adds is not the worst tensor', async () => {
  const file = onnx.model({
    nodes: [
      { op: 'MatMul', in: ['x', 'w'], out: ['p'] },
      { op: 'Add', in: ['p', 'least'], out: ['y'] },
    ],
    initializers: [
      onnx.floatTensor('w', [64, 48]),
      onnx.tensor({ name: 'least', dims: [], raw: onnx.floats([-3.4028234663852886e38]) }),
    ],
    inputs: [['x', ['n', 64]]],
    outputs: [['y', ['n', 48]]],
  });
  await writeFile(path('a.onnx'), file);
  for (const args of [
    ['a.onnx', '--to', 'fp16'],
    ['compare', 'a.onnx', 'a_fp16.onnx'],
  ]) {
    const { code, stdout } = await run([...args, '--min-sqnr', '60']);
    expect(code).toBe(0);
    expect(stdout).toMatch(/\nlowest SQNR \d\d\.\d\d dB: w\n/);
  }
});
