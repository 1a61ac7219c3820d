// Several types in one command, each in a file of its own.
import { mkdir, readdir, readFile, stat, truncate, writeFile } from 'node:fs/promises';
import { quantizeModel } from 'scalepoint/model';
import { beforeEach, describe, expect, it } from 'vitest';
import * as onnx from '../formats/onnx/encoder.js';
import { path, run, start, useFolder } from './support.js';

useFolder();
const model = onnx.product('MatMul', [64, 48], [3, 64], [3, 48])();
beforeEach(async () => {
  await mkdir(path('onnx'));
  await writeFile(path('onnx', 'model.onnx'), model);
});

const names = async (folder: string) => (await readdir(path(folder))).sort();

describe('several types', () => {
  it('go beside the model, under the names that transformers.js looks for', async () => {
    const { code, stderr } = await run(['onnx/model.onnx', '--to', 'q8,int8, q4,fp16,q4f16,bnb4,q4', '--quiet']);
    expect([code, stderr]).toEqual([0, '']);
    const made = ['bnb4', 'fp16', 'int8', 'q4', 'q4f16', 'quantized'].map((end) => `model_${end}.onnx`);
    expect(await names('onnx')).toEqual(['model.onnx', ...made]);
    const alone = await (await quantizeModel(model, { to: 'q4' })).bytes();
    expect(await readFile(path('onnx', 'model_q4.onnx'))).toEqual(Buffer.from(alone));
  });

  it('go into a folder', async () => {
    await mkdir(path('out'));
    const { code, stdout } = await run(['onnx/model.onnx', '--to', 'q8,fp16', '-o', 'out']);
    expect(code).toBe(0);
    expect(stdout).toMatch(/wrote out\/model_quantized.onnx[\s\S]*wrote out\/model_fp16.onnx/);
    expect(await names('out')).toEqual(['model_fp16.onnx', 'model_quantized.onnx']);
  });

  it('share the options that they know', async () => {
    const { code } = await run(['onnx/model.onnx', '--to', 'fp16,q4', '--block-size', '16', '--quiet']);
    expect(code).toBe(0);
    const alone = await (await quantizeModel(model, { to: 'q4', blockSize: 16 })).bytes();
    expect(await readFile(path('onnx', 'model_q4.onnx'))).toEqual(Buffer.from(alone));
    const unknown = await run(['onnx/model.onnx', '--to', 'fp16,q8', '--block-size', '16', '--force']);
    expect(unknown.code).toBe(2);
    expect(unknown.stderr).toMatch(/--block-size: not together with --to fp16, got 16;/);
  });

  it('are a list in JSON, of plans and of reports', async () => {
    for (const command of ['plan', 'quantize']) {
      const { stdout } = await run([command, 'onnx/model.onnx', '--to', 'q8,fp16', '--json']);
      const documents = JSON.parse(stdout) as { to: string; output: string }[];
      expect(documents.map(({ to }) => to)).toEqual(['q8', 'fp16']);
      expect(documents[1]?.output).toBe('onnx/model_fp16.onnx');
    }
  });

  it('say which are there if the work is interrupted', async () => {
    // A sparse file of zeros: reading it takes time, and storing it no space.
    const [rows, columns] = [2 ** 13, 2 ** 12];
    const key = (name: string, value: string) => onnx.bytes(13, [...onnx.text(1, name), ...onnx.text(2, value)]);
    const more = [...key('location', 'zeros'), ...onnx.int(14, 1)];
    const initializers = [onnx.tensor({ name: 'w', dims: [rows, columns], more })];
    const nodes = [{ op: 'MatMul', in: ['x', 'w'], out: ['y'] }];
    const large = { nodes, initializers, inputs: [['x', [1, rows]]], outputs: [['y', [1, columns]]] } as const;
    await writeFile(path('onnx', 'large.onnx'), onnx.model(large));
    await writeFile(path('onnx', 'zeros'), '');
    await truncate(path('onnx', 'zeros'), 4 * rows * columns);
    const { child, outcome } = await start(['onnx/large.onnx', '--to', 'fp16,q4', '--workers', '0']);
    await expect.poll(() => names('onnx'), { interval: 5 }).toContain('large_fp16.onnx');
    child.kill('SIGINT');
    const { code, stderr } = await outcome;
    expect(code).toBe(130);
    expect(stderr).toMatch('scalepoint: interrupted, nothing was written but onnx/large_fp16.onnx\n');
    expect(await names('onnx')).toEqual(['large.onnx', 'large_fp16.onnx', 'model.onnx', 'zeros']);
  });

  it('say which of them is not good enough', async () => {
    const { stderr } = await run(['onnx/model.onnx', '--to', 'fp16,q4', '--min-sqnr', '40']);
    expect(stderr).toMatch('scalepoint: onnx/model.onnx to q4: SQNR below 40 dB, nothing was written');
    expect(await names('onnx')).toEqual(['model.onnx', 'model_fp16.onnx']);
  });

  it('write nothing if one of them cannot be written', async () => {
    await writeFile(path('onnx', 'model_fp16.onnx'), 'mine');
    const { code, stderr } = await run(['onnx/model.onnx', '--to', 'q8,fp16']);
    expect(code).toBe(1);
    expect(stderr).toMatch(/model_fp16.onnx" exists already, nothing was written/);
    expect(await names('onnx')).toEqual(['model.onnx', 'model_fp16.onnx']);
  });

  it('are all left if one of them would convert nothing, which is named', async () => {
    await writeFile(path('onnx', 'model.onnx'), onnx.product('Conv', [32, 16, 3, 3], [1, 16, 8, 8], [1, 32, 6, 6])());
    const { code, stderr } = await run(['onnx/model.onnx', '--to', 'q8,q4']);
    expect(code).toBe(1);
    expect(stderr).toMatch(
      /^scalepoint: onnx\/model.onnx to q4: nothing would be converted \(1 tensor: read by Conv\); .*--to q8-blocks saves 72%; blocks are for matrix multiplication /,
    );
    expect(await names('onnx')).toEqual(['model.onnx']);
  });

  it.each([
    ['q8,q3', [], /--to: expected .*, got "q3"/],
    ['q8,', [], /--to: expected .*, got ""/],
    ['q8,q4', ['-o', 'x.onnx'], /--output: expected an existing folder for several results, got "x.onnx"/],
    ['q8,q4', ['-o', '-'], /--to: expected 1 type with --output -, got 2/],
  ] as const)('%s with %j is an error', async (to, more, message) => {
    const { code, stderr } = await run(['onnx/model.onnx', '--to', to, ...more]);
    expect(code).toBe(2);
    expect(stderr).toMatch(message);
    expect(await names('onnx')).toEqual(['model.onnx']);
  });
});

describe('several models', () => {
  const other = onnx.product('MatMul', [48, 64], [3, 48], [3, 64])();
  beforeEach(async () => {
    await mkdir(path('b'));
    await writeFile(path('b', 'other.onnx'), other);
  });
  const both = ['onnx/model.onnx', 'b/other.onnx'];

  it('have a result each, beside them or in a folder', async () => {
    expect(await run([...both, '--to', 'q8,q4', '-q'])).toEqual({ code: 0, stdout: '', stderr: '' });
    expect(await names('onnx')).toEqual(['model.onnx', 'model_q4.onnx', 'model_quantized.onnx']);
    expect(await names('b')).toEqual(['other.onnx', 'other_q4.onnx', 'other_quantized.onnx']);
    await mkdir(path('out'));
    const { code, stdout } = await run([...both, '--preset', 'small', '-o', 'out', '--json']);
    expect([code, (JSON.parse(stdout) as { file: string }[]).map(({ file }) => file)]).toEqual([0, both]);
    for (const [name, bytes] of [['model', model] as const, ['other', other] as const]) {
      const alone = await (await quantizeModel(bytes, { to: 'q4' })).bytes();
      expect(await readFile(path('out', `${name}_q4.onnx`))).toEqual(Buffer.from(alone));
    }
    const planned = JSON.parse((await run(['plan', ...both, '--to', 'q4', '--json'])).stdout) as { file: string }[];
    expect(planned.map(({ file }) => file)).toEqual(both);
  });

  it('are all left if one of them cannot be converted, which is named', async () => {
    await writeFile(path('b', 'other.onnx'), 'nothing');
    const { code, stderr } = await run([...both, '--to', 'q4']);
    expect([code, stderr]).toEqual([1, expect.stringMatching(/^scalepoint: b\/other.onnx: /)]);
    expect(await names('onnx')).toEqual(['model.onnx']);
  });

  it('never replace each other', async () => {
    await writeFile(path('onnx', 'model_q4.onnx'), other);
    await writeFile(path('b', 'model.onnx'), other);
    await mkdir(path('out'));
    for (const [args, message] of [
      [
        ['onnx/model.onnx', 'onnx/model_q4.onnx', '-f'],
        /--output: expected a name of another file, got .*: it is the input itself/,
      ],
      [
        ['onnx/model.onnx', 'b/model.onnx', '-o', 'out'],
        /the results of onnx\/model.onnx and b\/model.onnx would both write out\/model_q4.onnx/,
      ],
      [[...both, '-o', 'out/x.onnx'], /--output: expected an existing folder for several results/],
      [[...both, '-o', '-'], /--output - goes with one FILE, got 2/],
      [[...both, '--save-plan', 'p.json'], /--save-plan goes with one FILE, got 2/],
      [['m-00001-of-00002.gguf', 'm-00002-of-00002.gguf'], /takes one FILE, got .*; for a model in several files/],
      [['onnx/model.onnx', 'onnx/model.onnx'], /takes one FILE/],
    ] as const) {
      const { code, stderr } = await run([...args, '--to', 'q4']);
      expect([code, stderr]).toEqual([2, expect.stringMatching(message)]);
    }
    expect(await names('out')).toEqual([]);
    expect(await readFile(path('onnx', 'model_q4.onnx'))).toEqual(Buffer.from(other));
  });
});

it('one type goes into a folder, too', async () => {
  await mkdir(path('out'));
  expect((await run(['onnx/model.onnx', '--to', 'q4', '-o', 'out'])).code).toBe(0);
  expect(await names('out')).toEqual(['model_q4.onnx']);
});

it.each([
  ['model_quantized.onnx', []],
  ['a-much-longer-name.onnx', ['-o', 'a-much-longer-name.onnx']],
])('the plan of a result with its weights beside it tells the sizes of %s', async (name, more) => {
  await writeFile(path('model.onnx'), model);
  const args = ['model.onnx', '--to', 'q8', '--external-data', ...more];
  const planned = JSON.parse((await run(['plan', ...args, '--json'])).stdout) as {
    readonly files: readonly { readonly name: string; readonly bytes: number }[];
    readonly totals: { readonly bytesAfter: number };
  };
  expect((await run([...args, '--quiet'])).code).toBe(0);
  const written = [];
  for (const file of [name, `${name}_data`]) written.push({ name: file, bytes: (await stat(path(file))).size });
  expect(planned.files).toEqual(written);
  expect(planned.totals.bytesAfter).toBe(written.reduce((sum, { bytes }) => sum + bytes, 0));
});
