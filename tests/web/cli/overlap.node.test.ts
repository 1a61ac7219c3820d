// A run writes no file twice, and none that it reads: all names are compared before the work begins.
import { link, mkdir, readdir, readFile, symlink, writeFile } from 'node:fs/promises';
import { modelFormats, resultName } from 'scalepoint/model';
import { beforeEach, describe, expect, it } from 'vitest';
import * as onnx from '../formats/onnx/encoder.js';
import { pair, spellings } from '../support/lora.js';
import { madeUpLlama } from '../support/made-up-llama.js';
import { safetensors } from '../support/models.js';
import { tinyLlama } from '../support/tiny-llama.js';
import { path, programFile, put, run, start, useFolder, wave } from './support.js';

useFolder();
const model = tinyLlama({ rows: 8 });
const fit = ['--target-bpw', '6'];
const loose = ['--target-bpw', '20'];
beforeEach(async () => {
  await writeFile(path('tiny.gguf'), model);
  await put('model.safetensors', {
    'a.weight': [[64, 64], wave],
    'b.weight': [[64, 64], wave],
    'c.bias': [[16], wave],
  });
});

const names = async (folder = '.') => (await readdir(path(folder))).sort();

/** Fails with this message before anything is written, also with --force. */
async function refused(args: readonly string[], message: string): Promise<void> {
  const before = await names();
  for (const more of [[], ['--force']]) {
    const { code, stderr } = await run([...args, ...more]);
    expect({ args, code, stderr }).toEqual({ args, code: 2, stderr: expect.stringContaining(message) });
    expect(await names()).toEqual(before);
  }
}

const result = (name: string) =>
  `--save-rules: expected a name of another file, got ${JSON.stringify(name)}: it is a file of the result`;

describe('--save-rules', () => {
  it.each([
    ['the given name', ['-o', 'out.gguf'], 'out.gguf'],
    ['another spelling', ['-o', 'out.gguf'], './sub/../out.gguf'],
    ['an absolute path', ['-o', './out.gguf'], ''],
    ['other cases, which some systems take for the same', ['-o', 'out.gguf'], 'Out.GGUF'],
    ['other normal forms', ['-o', 'caf\u00e9.gguf'], 'cafe\u0301.gguf'],
    ['the usual name', [], 'tiny-6bpw.gguf'],
    ['a file of several', ['-o', 'out.gguf', '--split-tensors', '4'], 'out-00002-of-00006.gguf'],
    ['a file of another part', ['-o', 'out.gguf', '--split-tensors', '4', '--part', '1/2'], 'out-00006-of-00006.gguf'],
  ])('differs from all files of a GGUF result: %s', async (_, more, name) => {
    await mkdir(path('sub'));
    const given = name || path('out.gguf');
    const { stdout } = await run(['plan', 'tiny.gguf', ...fit, ...more, '--json']);
    for (const command of ['quantize', 'plan'])
      await refused([command, 'tiny.gguf', ...fit, ...more, '--save-rules', given], result(given));
    expect(stdout).toContain('"files"');
  });

  it.each([
    ['the result', 'out.safetensors', []],
    ['its configuration', 'out.config.json', []],
    ['a shard', 'out-00001-of-00002.safetensors', ['--split-size', '10kB']],
    ['the index', 'out.safetensors.index.json', ['--split-size', '10kB']],
    ['the index that the last part writes', 'out.safetensors.index.json', ['--split-size', '10kB', '--part', '1/2']],
    ['the configuration that the last part writes', 'out.config.json', ['--split-size', '10kB', '--part', '1/2']],
  ])('is not %s', async (_, name, more) => {
    const args = ['model.safetensors', '--to', 'int8', ...loose, '-o', 'out.safetensors', ...more];
    for (const command of ['quantize', 'plan']) await refused([command, ...args, '--save-rules', name], result(name));
  });

  it('is not the config.json beside model.safetensors', async () => {
    await mkdir(path('out'));
    const args = ['model.safetensors', '--to', 'int8', ...loose, '-o', 'out/model.safetensors'];
    await refused([...args, '--save-rules', 'out/config.json'], result('out/config.json'));
    expect(await names('out')).toEqual([]);
  });

  it('is not the data beside a large ONNX model', async () => {
    await writeFile(path('model.onnx'), onnx.product('MatMul', [256, 256], [3, 256], [3, 256])());
    const args = ['model.onnx', '--to', 'q4', ...fit, '-o', 'out.onnx', '--external-data'];
    const { stdout } = await run(['plan', ...args, '--json']);
    const files = JSON.parse(stdout).files.map(({ name }: { name: string }) => name);
    expect(files).toHaveLength(2);
    for (const name of files) await refused([...args, '--save-rules', name], result(name));
  });

  it('leads to the result over no link', async () => {
    await mkdir(path('real'));
    await symlink('real', path('folder'));
    await symlink('out.gguf', path('soft.txt'));
    await symlink('soft.txt', path('twice.txt'));
    await symlink(path('real', 'out.gguf'), path('far.txt'));
    for (const [output, rules] of [
      ['out.gguf', 'soft.txt'],
      ['out.gguf', 'twice.txt'],
      ['folder/out.gguf', 'real/out.gguf'],
      ['folder/out.gguf', 'far.txt'],
    ] as const)
      await refused(['tiny.gguf', ...fit, '-o', output, '--save-rules', rules], result(rules));
    await writeFile(path('real', 'old.gguf'), 'old');
    await link(path('real', 'old.gguf'), path('hard.txt'));
    await refused(['tiny.gguf', ...fit, '-o', 'folder/old.gguf', '--save-rules', 'hard.txt'], result('hard.txt'));
  });

  it('differs from all files that are read', async () => {
    await writeFile(path('rules.txt'), 'nothing=keep\n');
    await writeFile(path('types.txt'), 'nothing=Q8_0\n');
    await writeFile(path('tokenizer.json'), '{}');
    await symlink('tokenizer.json', path('soft.json'));
    const args = ['tiny.gguf', ...fit, '-o', 'out.gguf', '--force', '--save-rules'];
    const beside = 'it is a file that the input is read with';
    for (const [words, message] of [
      [[...args, 'tiny.gguf'], '"tiny.gguf": it is the input itself'],
      [[...args, 'rules.txt', '--rules', './rules.txt'], '"rules.txt": it is the file of --rules'],
      [[...args, 'types.txt', '--tensor-type-file', 'types.txt'], '"types.txt": it is the file of --tensor-type-file'],
      [['model.safetensors', '--to', 'int8', ...args.slice(1), 'tokenizer.json'], `"tokenizer.json": ${beside}`],
      [['model.safetensors', '--to', 'int8', ...args.slice(1), 'soft.json'], `"soft.json": ${beside}`],
    ] as const)
      await refused(
        words.map((word) => (words[0] === 'model.safetensors' && word === 'out.gguf' ? 'out' : word)),
        message,
      );
    expect(await readFile(path('tokenizer.json'), 'utf8')).toBe('{}');
  });

  it('is not a file that the shell opened', async () => {
    const args = ['-', ...fit, '-o', 'out.gguf', '--force', '--save-rules', 'tiny.gguf'];
    const { spawn } = await import('node:child_process');
    const { openSync, closeSync } = await import('node:fs');
    const file = programFile();
    const [input, output] = [openSync(path('tiny.gguf'), 'r'), openSync(path('copy.gguf'), 'w')];
    const ended = (words: readonly string[], stdin: number, stdout: number | 'pipe') =>
      new Promise<[unknown, string]>((resolve) => {
        const child = spawn(process.execPath, [file, ...words], { cwd: path(), stdio: [stdin, stdout, 'pipe'] });
        let text = '';
        child.stderr?.on('data', (chunk) => {
          text += chunk;
        });
        child.on('close', (code) => resolve([code, text]));
      });
    expect(await ended(args, input, 'pipe')).toEqual([
      2,
      expect.stringContaining('"tiny.gguf": it is the input itself'),
    ]);
    const piped = ['tiny.gguf', ...fit, '-o', '-', '--force', '--save-rules', 'copy.gguf'];
    expect(await ended(piped, input, output)).toEqual([
      2,
      expect.stringContaining('"copy.gguf": it is standard output'),
    ]);
    closeSync(input);
    closeSync(output);
    expect(await readFile(path('tiny.gguf'))).toEqual(Buffer.from(model));
  });

  it('is refused if the name is taken while the work is done', async () => {
    // The folder of the rules is missing: the model is there, and the message says so.
    const { code, stderr } = await run(['tiny.gguf', ...fit, '-o', 'out.gguf', '--save-rules', 'missing/rules.txt']);
    expect({ code, stderr }).toEqual({
      code: 1,
      stderr: expect.stringMatching(
        /cannot write "missing\/rules.txt": no such file[^\n]*; the model was written to "out.gguf"/,
      ),
    });
    await mkdir(path('folder'));
    const early = await run(['tiny.gguf', ...fit, '-o', 'x.gguf', '--force', '--save-rules', 'folder']);
    expect(early).toMatchObject({ code: 1, stderr: expect.stringContaining('"folder": it is not a regular file') });
    expect(await names()).not.toContain('x.gguf');
  });
});

describe('a result', () => {
  it('is not written over files that are read, however they are named', async () => {
    await writeFile(path('rules.txt'), 'nothing=keep\n');
    await writeFile(path('tokenizer.model'), 'mine');
    await writeFile(path('out.config.json'), 'nothing=keep\n');
    const args = ['model.safetensors', '--to', 'int8'];
    await refused(
      [...args, '-o', 'tokenizer.model'],
      '--output: expected a name of another file, got "tokenizer.model": it is a file that the input is read with',
    );
    const before = await names();
    const { code, stderr } = await run([...args, '-o', 'out.safetensors', '--rules', 'out.config.json', '--force']);
    expect([code, stderr]).toEqual([2, expect.stringContaining('"out.config.json": it is the file of --rules')]);
    expect(await names()).toEqual(before);
  });

  it('may replace its own configuration', async () => {
    const args = ['model.safetensors', '--to', 'int8', '-o', 'out.safetensors'];
    expect((await run(args)).code).toBe(0);
    expect((await run([...args, '--config', 'out.config.json', '--force'])).code).toBe(0);
  });
});

describe('files that a command reads', () => {
  const module = 'model.layers.0.mlp.up_proj';
  const pairOfLora = pair(64, 64, 4, 2);
  beforeEach(async () => {
    await writeFile(path('p.onnx'), onnx.product('MatMul', [64, 32], [1, 64], [1, 32])());
    await writeFile(path('s.jsonl'), '{}');
    await writeFile(path('ids.txt'), '1 2 3 4');
    await put('base.safetensors', { [`${module}.weight`]: [[64, 64], wave] });
    const adapter = safetensors(spellings['plain names'](module, pairOfLora, 64, 4));
    await mkdir(path('adapter'));
    await writeFile(path('adapter', 'adapter_model.safetensors'), adapter);
    await writeFile(path('style.safetensors'), adapter);
  });

  it('are replaced by no result, plan or state', async () => {
    const other = 'expected a name of another file';
    const lora = ['base.safetensors', '--to', 'int8', '--lora', 'style.safetensors:.5', '--lora', 'adapter'];
    const isGiven = `${other}, got "adapter/adapter_model.safetensors": it is the file of --lora`;
    for (const [args, message] of [
      [['calibrate', 'p.onnx', '--data', 's.jsonl', '-o', './p.onnx'], 'it is the input itself'],
      [['calibrate', 'p.onnx', '--data', 's.jsonl', '-o', 's.jsonl'], 'it is the file of --data'],
      [['calibrate', 'tiny.gguf', '--ids', 'ids.txt', '-o', 'ids.txt'], 'it is the file of --ids'],
      [[...lora, '-o', 'style.safetensors'], 'it is the file of --lora'],
      [[...lora, '-o', 'out.safetensors', '--save-plan', 'adapter/adapter_model.safetensors'], isGiven],
      [['plan', ...lora, '--save-plan', 'style.safetensors'], 'it is the file of --lora'],
    ] as const)
      await refused(args, message);
    expect(await readFile(path('ids.txt'), 'utf8')).toBe('1 2 3 4');
    for (const name of ['ids.txt', 'tiny.gguf']) {
      const { code, stderr } = await run(['evaluate', 'tiny.gguf', '--ids', 'ids.txt', '--resume', name]);
      expect([code, stderr]).toEqual([2, expect.stringContaining(`--resume: ${other}`)]);
    }
  });
});

it('an evaluation removes no file that it did not write', async () => {
  await writeFile(path('llama.gguf'), madeUpLlama({ layers: 1, width: 64 }));
  await writeFile(path('ids.txt'), Array.from({ length: 64 }, (_, i) => i).join(' '));
  await writeFile(path('state.moments'), 'mine');
  const { code, stderr } = await run(['evaluate', 'llama.gguf', '--ids', 'ids.txt', '--resume', 'state', '-q']);
  expect([code, stderr]).toEqual([0, '']);
  expect(await names()).toContain('state.moments');
  expect(await names()).not.toContain('state');
});

it('each type of a format has a result name of its own, whatever the case', () => {
  for (const { name: format, targets } of modelFormats()) {
    const all = targets.map(({ name: to }) => resultName('model.safetensors', { to, format }).toLowerCase());
    expect(new Set(all).size).toBe(targets.length);
  }
});

it('rules beside a result are written', async () => {
  const { code } = await run(['tiny.gguf', ...fit, '-o', 'out.gguf', '--save-rules', 'out.txt']);
  expect(code).toBe(0);
  expect(await names()).toEqual(['model.safetensors', 'out.gguf', 'out.txt', 'tiny.gguf']);
  const again = await start(['tiny.gguf', ...fit, '-o', 'out.gguf', '--save-rules', 'out.txt', '--force', '--quiet']);
  expect((await again.outcome).code).toBe(0);
});
