import { spawn } from 'node:child_process';
import { closeSync, openSync } from 'node:fs';
import { link, mkdir, readdir, readFile, symlink, writeFile } from 'node:fs/promises';
import { inspectModel, modelFormats, presetTarget, quantizeModel } from 'scalepoint/model';
import { describe, expect, it } from 'vitest';
import { presets } from '../../../web/src/tooling.js';
import { product } from '../formats/onnx/encoder.js';
import { tinyLlama } from '../support/tiny-llama.js';
import { path, programFile, put, putModel, run, safetensors, start, useFolder, wave } from './support.js';

useFolder();

/** Two shards and their index in a folder. */
async function putShards(folder: string): Promise<void> {
  await mkdir(path(folder));
  const shard = (i: number) => `model-0000${i}-of-00002.safetensors`;
  await put(`${folder}/${shard(1)}`, { 'a.weight': [[16, 32], wave] });
  await put(`${folder}/${shard(2)}`, { 'b.weight': [[16, 32], wave] });
  const index = { weight_map: { 'a.weight': shard(1), 'b.weight': shard(2) } };
  await writeFile(path(folder, 'model.safetensors.index.json'), JSON.stringify(index));
}

describe('a folder', () => {
  it('is opened by its index, also when a result stands beside it', async () => {
    await putShards('shards');
    for (let i = 0; i < 2; i++) {
      const { code, stdout, stderr } = await run(['shards', '--to', 'int8', '--force']);
      expect({ code, stderr }).toEqual({ code: 0, stderr: '' });
      expect(stdout).toContain('model.safetensors.index.json: 2 tensors, 2 quantized');
      expect(stdout).toContain('wrote shards/model.int8.safetensors\n');
    }
    expect((await run(['inspect', 'shards/'])).stdout).toMatch(/^shards\/model\.safetensors\.index\.json: .*2 files/);
    expect((await run(['compare', 'shards', 'shards/model.int8.safetensors'])).stdout).toContain('2 tensors compared');
    expect(JSON.parse((await run(['plan', 'shards', '--preset', 'safe', '--json'])).stdout)).toMatchObject({
      file: 'shards/model.safetensors.index.json',
      output: 'shards/model.bfloat16.safetensors',
    });
  });

  it('is opened by its only model, or by the one that loaders look for', async () => {
    await mkdir(path('folder'));
    await writeFile(path('folder/readme.md'), 'nothing');
    await writeFile(path('folder/some.gguf'), tinyLlama());
    expect((await run(['inspect', 'folder'])).stdout).toMatch(/^folder\/some\.gguf: gguf/);
    await put('folder/model.safetensors', { w: [[4, 4], wave] });
    expect((await run(['inspect', 'folder'])).stdout).toMatch(/^folder\/model\.safetensors: safetensors/);
  });

  it('has its model in the folder onnx, as for transformers.js', async () => {
    await mkdir(path('hub/onnx'), { recursive: true });
    await writeFile(path('hub/config.json'), '{}');
    const tiny = product('MatMul', [4, 8], [1, 4], [1, 8])();
    for (const name of ['model', 'model_q4']) await writeFile(path(`hub/onnx/${name}.onnx`), tiny);
    expect(await run(['inspect', 'hub'])).toMatchObject({
      stdout: expect.stringMatching(/^hub\/onnx\/model\.onnx: onnx/),
      stderr: '',
    });
  });

  it('is an error if it holds several models, none, or cannot be read', async () => {
    await mkdir(path('several'));
    for (const name of ['a', 'b']) await put(`several/${name}.safetensors`, { w: [[4, 4], wave] });
    expect(await run(['inspect', 'several'])).toEqual({
      code: 1,
      stdout: '',
      stderr: 'scalepoint: the folder "several" holds several models; name one: a.safetensors, b.safetensors\n',
    });
    await mkdir(path('none'));
    expect((await run(['none', '--to', 'int8'])).stderr).toMatch(/^scalepoint: the folder "none" holds no \.safetens/);
    expect((await run(['inspect', 'missing'])).stderr).toBe(
      'scalepoint: cannot open "missing": no such file or directory\n',
    );
  });
});

describe('--output', () => {
  it('is refused under the name of another format', async () => {
    await putModel();
    await writeFile(path('model.gguf'), tinyLlama());
    const cases: [string, string, string, string][] = [
      ['model.safetensors', 'int8', 'x.gguf', 'x.safetensors'],
      ['model.safetensors', 'int8', 'X.GGUF', 'X.safetensors'],
      ['model.safetensors', 'int8', 'x.safetensors.index.json', 'x.safetensors'],
      ['model.gguf', 'Q8_0', 'x.safetensors', 'x.gguf'],
      ['model.gguf', 'Q8_0', 'x.npy', 'x.gguf'],
      ['model.gguf', 'Q8_0', 'config.json', 'config.gguf'],
      ['model.safetensors', 'int8', 'x.JSON', 'x.safetensors'],
    ];
    for (const [file, to, output, better] of cases) {
      for (const args of [
        [file, '--to', to, '-o', output],
        ['plan', file, '--to', to, '-o', output, '--json'],
      ]) {
        const { code, stderr } = await run(args);
        expect(code).toBe(2);
        expect(stderr).toMatch(/^scalepoint: --output: expected a name of a (safetensors|GGUF) file, got /);
        expect(stderr).toContain(`did you mean ${better}? See `);
      }
    }
    expect((await readdir(path())).sort()).toEqual(['model.gguf', 'model.safetensors']);
    for (const output of ['x', 'x.dat', 'x.gguf.safetensors']) {
      expect((await run(['model.safetensors', '--to', 'int8', '-o', output, '--quiet', '--force'])).code).toBe(0);
    }
  });

  it('is refused if it is the input itself, by whatever name and also with --force', async () => {
    await putModel();
    await putShards('shards');
    await link(path('model.safetensors'), path('hard.safetensors'));
    await symlink('model.safetensors', path('soft.safetensors'));
    const before = await readFile(path('model.safetensors'));
    const cases = [
      'model.safetensors',
      './model.safetensors',
      path('model.safetensors'),
      'hard.safetensors',
      'soft.safetensors',
    ];
    for (const output of cases) {
      for (const more of [[], ['--force']]) {
        const { code, stdout, stderr } = await run(['model.safetensors', '--to', 'int8', '-o', output, ...more]);
        expect({ code, stdout }).toEqual({ code: 2, stdout: '' });
        expect(stderr).toBe(
          `scalepoint: --output: expected a name of another file, got ${JSON.stringify(output)}: it is the input itself; see scalepoint quantize --help\n`,
        );
      }
    }
    expect(await readFile(path('model.safetensors'))).toEqual(before);
    const shard = 'shards/model-00002-of-00002.safetensors';
    expect((await run(['shards', '--to', 'int8', '-o', shard, '--force'])).stderr).toContain('is the input itself');
    expect((await inspectModel(path(shard))).tensors).toHaveLength(1);
  });
});

describe('a file that a flag names', () => {
  it('is not replaced by a result, or by rules', async () => {
    await putModel();
    await writeFile(path('config.txt'), '{"a": 1}');
    await writeFile(path('rules.txt'), 'nothing=keep\n');
    const before = await readFile(path('model.safetensors'));
    const model = ['model.safetensors', '--to', 'int8', '--force'];
    const fit = ['--target-bpw', '20', '--save-rules'];
    const cases: [string[], string][] = [
      [
        [...model, '-o', 'config.txt', '--config', 'config.txt'],
        '--output: expected a name of another file, got "config.txt": it is the file of --config',
      ],
      [
        [...model, '-o', 'rules.txt', '--rules', 'rules.txt'],
        '--output: expected a name of another file, got "rules.txt": it is the file of --rules',
      ],
      [
        [...model, ...fit, 'model.safetensors', '-o', 'x'],
        '--save-rules: expected a name of another file, got "model.safetensors": it is the input itself',
      ],
      [
        ['plan', ...model, ...fit, 'model.safetensors'],
        '--save-rules: expected a name of another file, got "model.safetensors": it is the input itself',
      ],
      [['plan', ...model, ...fit, 'rules.txt', '--rules', './rules.txt'], '"rules.txt": it is the file of --rules'],
    ];
    for (const [args, message] of cases) {
      const { code, stderr } = await run(args);
      expect({ code, stderr }).toEqual({ code: 2, stderr: expect.stringContaining(message) });
    }
    expect(await readFile(path('model.safetensors'))).toEqual(before);
    expect(await readFile(path('config.txt'), 'utf8')).toBe('{"a": 1}');
    expect(await readFile(path('rules.txt'), 'utf8')).toBe('nothing=keep\n');
  });
});

describe('--preset', () => {
  it('means for each format what the page offers by that name', async () => {
    await putModel();
    await writeFile(path('model.gguf'), tinyLlama());
    for (const { name, targets } of modelFormats()) {
      for (const preset of presets) {
        expect(targets.map((target) => target.name)).toContain(presetTarget(name as 'gguf', preset));
      }
    }
    const types: Record<string, string[]> = { small: [], balanced: [], safe: [] };
    for (const [preset, found] of Object.entries(types)) {
      for (const file of ['model.safetensors', 'model.gguf']) {
        found.push(JSON.parse((await run(['plan', file, '--preset', preset, '--json'])).stdout).to);
      }
    }
    expect(types).toEqual({ small: ['int4', 'Q3_K_M'], balanced: ['int8', 'Q4_K_M'], safe: ['bfloat16', 'Q8_0'] });
    expect((await run(['model.gguf', '--preset', 'balanced'])).stdout).toContain('wrote model-Q4_K_M.gguf');
  });

  it('is one of three words, in place of --to', async () => {
    await putModel();
    const fail = async (...args: string[]) => (await run(['model.safetensors', ...args])).stderr;
    expect(await fail('--preset', 'balance')).toMatch(
      /^scalepoint: --preset: expected small, balanced or safe, got "balance"; did you mean balanced\? See/,
    );
    expect(await fail('--preset', 'safe', '--to', 'int8')).toMatch(/--preset: not together with --to;/);
    expect(await fail('--preset', 'safe', '--range', 'mse')).toMatch(
      /^scalepoint: --range: only with --to int8, int4, .* or awq, got --to bfloat16;/,
    );
    expect(() => presetTarget('nothing' as 'gguf', 'safe')).toThrow(/format: expected 'safetensors', 'gguf'/);
    expect(() => presetTarget('gguf', 'large' as 'safe')).toThrow(/preset: expected 'small', 'balanced' or 'safe'/);
  });
});

describe('standard input and output', () => {
  it('are taken from a pipe and given to one', async () => {
    const file = safetensors({ 'a.weight': [[16, 32], wave], 'b.bias': [[16], wave] });
    const gguf = tinyLlama();
    const [piped, llama, inspected, failed] = await Promise.all(
      (
        [
          [['-', '--to', 'int8', '-o', '-'], file],
          [['-', '--to', 'Q4_K_M', '-o', '-', '--quiet'], gguf],
          [['inspect', '-', '--json'], file],
          [['-', '--to', 'int8', '-o', '-', '--workers', '0'], Buffer.from('nothing')],
        ] as [string[], Uint8Array][]
      ).map(async ([args, stdin]) => (await start(args, { stdin })).outcome),
    );
    expect(piped?.code).toBe(0);
    expect(piped?.bytes).toEqual(Buffer.from(await (await quantizeModel(file, { to: 'int8' })).bytes()));
    expect(piped?.stderr).toContain('standard input: 2 tensors, 1 quantized, 1 kept\n');
    expect(piped?.stderr).toContain(
      'scalepoint: standard output has no place for the quantization_config; scalepoint plan --json prints it\n',
    );
    expect(llama).toMatchObject({ code: 0, stderr: '' });
    expect(llama?.bytes).toEqual(Buffer.from(await (await quantizeModel(gguf, { to: 'Q4_K_M' })).bytes()));
    expect(JSON.parse(inspected?.stdout ?? '')).toMatchObject({ file: 'standard input', tensors: [{}, {}] });
    expect(failed).toMatchObject({ code: 1, stdout: '' });
    expect(failed?.stderr).toMatch(/^scalepoint: standard input: the file begins with 6e 6f 74/);
    expect(await readdir(path())).toEqual([]);
  });

  it('are read by position where they are a file, and told as broken where nobody reads', async () => {
    await putModel();
    const descriptor = openSync(path('model.safetensors'), 'r');
    const file = programFile();
    const child = (args: string[]) =>
      spawn(process.execPath, [file, ...args], { cwd: path(), stdio: [descriptor, 'pipe', 'pipe'] });
    const ended = (one: ReturnType<typeof child>) => new Promise((resolve) => one.on('close', resolve));
    const whole = child(['-', '--to', 'float16', '-o', 'half.safetensors']);
    const broken = child(['-', '--to', 'float16', '-o', '-', '--quiet']);
    broken.stdout?.destroy();
    let told = '';
    broken.stderr?.on('data', (text) => {
      told += text;
    });
    expect(await Promise.all([ended(whole), ended(broken)])).toEqual([0, 1]);
    expect(told).toMatch(/^scalepoint: [^\n]*cannot write to standard output: broken pipe\n$/);
    closeSync(descriptor);
    const expected = await quantizeModel(path('model.safetensors'), { to: 'float16' });
    expect(await readFile(path('half.safetensors'))).toEqual(Buffer.from(await expected.bytes()));
  });

  it('are refused where they cannot be', async () => {
    await putModel();
    const fail = async (...args: string[]) => {
      const { code, stderr } = await run(args);
      return `${code} ${stderr}`;
    };
    const file = 'model.safetensors';
    expect(await fail(file, '--to', 'int8', '-o', '-', '--json')).toMatch(/^2 .*--json: not together with --output -/);
    expect(await fail(file, '--to', 'int8', '-o', '-', '--min-sqnr', '9')).toMatch(
      /^2 .*--min-sqnr: .* cannot be taken back/,
    );
    expect(await fail('compare', '-', '-')).toMatch(/^2 .*only one of the two can be standard input/);
    const index = await start(['inspect', '-'], { stdin: Buffer.from('{"weight_map": {"a": "1.safetensors"}}') });
    expect(await index.outcome).toMatchObject({
      code: 2,
      stdout: '',
      stderr:
        'scalepoint: standard input cannot be an index; name its file, or the folder; see scalepoint inspect --help\n',
    });
    const stdin = safetensors({ 'a.weight': [[16, 32], wave] });
    const { outcome } = await start(['-', '--to', 'int8'], { stdin });
    expect(await outcome).toMatchObject({
      code: 2,
      stderr: expect.stringContaining('--output: required: a model from standard input has no name'),
    });
  });
});
