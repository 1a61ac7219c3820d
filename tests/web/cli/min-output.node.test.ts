// quantize --min-output: flags, tables and errors.
import { readdir, readFile, writeFile } from 'node:fs/promises';
import { quantizeModel } from 'scalepoint/model';
import { describe, expect, it } from 'vitest';
import * as onnx from '../formats/onnx/encoder.js';
import { path, run, useFolder } from './support.js';

useFolder();

const model = onnx.model({
  nodes: [
    { op: 'MatMul', in: ['x', 'w'], out: ['p'] },
    { op: 'MatMul', in: ['p', 'v'], out: ['y'] },
  ],
  initializers: [onnx.floatTensor('w', [64, 64]), onnx.floatTensor('v', [64, 64], 2)],
  inputs: [['x', ['n', 64]]],
  outputs: [['y', ['n', 64]]],
});

describe('scalepoint quantize --min-output', () => {
  it('raises types, and lists the steps', async () => {
    await writeFile(path('model.onnx'), model);
    const { code, stdout } = await run([
      'model.onnx',
      '--to',
      'q4',
      '--min-output',
      '30dB',
      '-o',
      'out.onnx',
      '--dim',
      'n=8',
    ]);
    expect(code).toBe(0);
    expect(stdout).toMatch(/\nraised +type +bytes +worst output +before +after\n/);
    expect(stdout).toMatch(/\n[wv] +q4 → q8-blocks +\+2\.05 kB +y on wasm +\d\d\.\d\d dB +\d\d\.\d\d dB\n/);
    expect(stdout).toMatch(/\noutputs are to have 30 dB at least: [12] tensors? raised, \d results run\n/);
    expect(stdout).toMatch(/\ny on wasm: cosine 0\.\d{6}, SQNR \d\d\.\d\d dB\n/);
    // The same as by the API.
    const options = { to: 'q4', minOutput: '30dB', run: { dimensions: { n: 8 } }, workers: 0 } as const;
    const made = await quantizeModel(model, options);
    expect(new Uint8Array(await readFile(path('out.onnx')))).toEqual(await made.bytes());

    // The saved rules make it again without runs.
    const flags = ['--to', 'q4', '-o', 'json.onnx', '--save-rules', 'rules.txt', '--json'];
    const json = await run(['model.onnx', ...flags, '--min-output', '30dB', '--dim', 'n=8']);
    const { repair } = JSON.parse(json.stdout);
    expect(repair).toEqual(made.report.repair);
    await run(['model.onnx', '--to', 'q4', '--rules', 'rules.txt', '-o', 'again.onnx']);
    expect(await readFile(path('again.onnx'))).toEqual(await readFile(path('out.onnx')));
  });

  it('reads samples', async () => {
    await writeFile(path('model.onnx'), model);
    const line = (i: number) => JSON.stringify({ x: [Array.from(onnx.weights(64, i, 2))] });
    await writeFile(path('samples.jsonl'), [1, 2, 3].map(line).join('\n'));
    const words = [
      'model.onnx',
      '--to',
      'q4',
      '--min-output',
      '0.9',
      '--samples',
      'samples.jsonl',
      '--json',
      '-o',
      'o.onnx',
    ];
    const { code, stdout } = await run(words);
    expect(code).toBe(0);
    const samples = [1, 2, 3].map((i) => ({ x: { data: onnx.weights(64, i, 2), shape: [1, 64] } }));
    const made = await quantizeModel(model, { to: 'q4', minOutput: 0.9, run: { samples }, workers: 0 });
    expect(JSON.parse(stdout).repair).toEqual(made.report.repair);
  });

  it('fails with the report of the best if the bound is out of reach', async () => {
    await writeFile(path('model.onnx'), model);
    const words = ['model.onnx', '--to', 'q4', '--rule', '.=q4', '--min-output', '0.9999', '-o', 'out.onnx'];
    const { code, stdout, stderr } = await run(words);
    expect(code).toBe(1);
    expect(stderr).toMatch(
      /outputs below a cosine of 0\.9999, nothing was written: the best reached is "y" on wasm \(0\.\d{6}\)\n/,
    );
    expect(stdout).toMatch(/\noutputs are to have a cosine of 0\.9999 at least: nothing was raised, 1 result run\n/);
    const json = await run([...words, '--json']);
    expect(JSON.parse(json.stdout)).toMatchObject({ output: null, repair: { steps: [] }, error: { code: 'QUALITY' } });
    expect(await readdir(path())).toEqual(['model.onnx']);
  });

  it.each([
    [
      ['--min-output', '2'],
      /--min-output: expected a number above 0 and at most 1 or a number of decibels such as 40dB, got 2/,
    ],
    [['--min-output', 'dB'], /--min-output: expected .*, got "dB"/],
    [['--samples', 's.npz'], /--samples: only with --min-output/],
    [['--backend', 'node'], /--backend: only with --min-output/],
    [['--min-output', '0.9', '--target-bpw', '5'], /--min-output: not together with --target-bpw/],
    [['--min-output', '0.9', '--save-plan', 'p.json'], /--min-output: not together with --save-plan/],
    [['--min-output', '0.9', '--resume'], /--resume: not together with --min-output/],
    [['--min-output', '0.9', '--dry-run'], /--min-output: expected nothing, got "0\.9": a plan runs no models/],
    [['--min-output', '0.9', '--backend', 'gpu'], /--backend: expected wasm, webgpu or node, got "gpu"/],
    [['--min-output', '0.9', '--browser', 'x'], /--browser goes with --backend webgpu/],
  ])('says what is wrong with its flags: %s', async (flags, message) => {
    await writeFile(path('model.onnx'), model);
    const { code, stderr } = await run(['model.onnx', '--to', 'q4', ...flags]);
    expect([code, stderr]).toEqual([2, expect.stringMatching(message)]);
    expect(await readdir(path())).toEqual(['model.onnx']);
  });
});
