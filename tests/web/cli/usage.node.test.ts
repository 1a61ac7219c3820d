import { spawn, spawnSync } from 'node:child_process';
import { closeSync, existsSync, openSync } from 'node:fs';
import { copyFile, readdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { inspectModel } from 'scalepoint/model';
import { describe, expect, it } from 'vitest';
import { jsonText } from '../../../web/src/cli/json.js';
import { tinyLlama } from '../support/tiny-llama.js';
import { path, program, programFile, put, putModel, run, useFolder, wave } from './support.js';

useFolder();

describe('commands', () => {
  it('quantizes where a file stands in place of a command', async () => {
    await putModel();
    const { code, stderr } = await run(['model.safetensors', '--to', 'int8']);
    expect({ code, stderr }).toEqual({ code: 0, stderr: '' });
    expect((await run(['--to', 'float16', 'model.safetensors', '--quiet'])).code).toBe(0);
    expect((await readdir(path())).sort()).toEqual([
      'model.float16.safetensors',
      'model.int8.config.json',
      'model.int8.safetensors',
      'model.safetensors',
    ]);
  });

  it('takes a word for a file if there is one, and otherwise for a command', async () => {
    await put('weights', { 'w.weight': [[8, 32], wave] });
    expect((await run(['weights', '--to', 'int8', '-o', 'out'])).code).toBe(0);
    const { code, stderr } = await run(['quantise', 'weights', '--to', 'int8']);
    expect(code).toBe(2);
    expect(stderr).toMatch(/ got "quantise"; did you mean quantize\? See scalepoint --help\n$/);
  });

  it('has help of a screen, and explains all options by --help-all', async () => {
    for (const command of ['quantize', 'plan']) {
      const { stdout } = await run([command, '--help']);
      expect(stdout.split('\n').length).toBeLessThanOrEqual(41);
      expect(stdout).toContain('\n  --help-all  ');
      const all = await run([command, '--help-all']);
      expect(all).toMatchObject({ code: 0, stderr: '', stdout: expect.stringContaining('\n  --imatrix FILE  ') });
    }
    expect(await run(['compare', '--help-all'])).toEqual(await run(['compare', '--help']));
  });

  it('explains a command by help as by --help', async () => {
    for (const command of ['inspect', 'plan', 'quantize', 'compare', 'verify', 'bench']) {
      const help = await run(['help', command]);
      expect(help).toEqual(await run([command, '--help']));
      expect(help).toMatchObject({ code: 0, stderr: '', stdout: expect.stringContaining(`scalepoint ${command}`) });
      const flags = [...help.stdout.matchAll(/^ {2}(?:-\w, )?(--[\w-]+)/gm)].map(([, flag]) => flag);
      expect(flags, command).toEqual([...new Set(flags)]);
    }
    expect(await run(['help'])).toEqual(await run(['--help']));
    expect(await run(['help', 'nothing'])).toMatchObject({ code: 2, stdout: '' });
  });

  it('takes one letter for frequent options', async () => {
    await putModel();
    for (const args of [[], ['-f']]) {
      const outcome = await run(['model.safetensors', '--to', 'int8', '-q', ...args]);
      expect(outcome).toEqual({ code: 0, stdout: '', stderr: '' });
    }
    expect(await run(['model.safetensors', '--to', 'float16', '-fq', '-o=x.safetensors'])).toEqual({
      code: 0,
      stdout: '',
      stderr: '',
    });
    expect((await run(['model.safetensors', '--to', 'int8'])).code).toBe(1);
    expect(await run(['verify', 'x.safetensors', '-q'])).toEqual({ code: 0, stdout: '', stderr: '' });
    expect(await run(['compare', '-q', 'x.safetensors', 'x.safetensors'])).toEqual({ code: 0, stdout: '', stderr: '' });
  });

  it('starts nothing else for its version', async () => {
    // The bundler may add a helper of a few lines.
    const names = ['cli.js', 'chunk-core.js', 'chunk-rolldown-runtime.js'].filter((name) =>
      existsSync(join(program, name)),
    );
    for (const name of names) await copyFile(join(program, name), path(name));
    await writeFile(path('package.json'), '{"type":"module"}');
    const { stdout, stderr } = spawnSync(process.execPath, [path('cli.js'), '--version'], { encoding: 'utf8' });
    expect({ stdout, stderr }).toEqual({ stdout: expect.stringMatching(/^scalepoint \d[^\n]*\n$/), stderr: '' });
  });

  it('prints its version at -V as well', async () => {
    expect(await run(['-V'])).toEqual(await run(['--version']));
  });
});

describe('a wrong command line', () => {
  const cases: [string[], RegExp][] = [
    [
      ['model.safetensors', '--to', 'fp16'],
      /^--to: expected a target of safetensors such as int8, .*, got "fp16"; did you mean float16\? See /,
    ],
    [
      ['model.safetensors', '--to', 'Q4_K'],
      /^--to: expected a target of safetensors such as int8, .*, got "Q4_K": GGUF needs config.json and the tokenizer beside the weights/,
    ],
    [['model.gguf', '--to', 'q8'], /^--to: expected a target of GGUF such as Q8_0, .*, got "q8"; did you mean Q8_0\?/],
    [
      ['model.safetensors', '--to', 'q8'],
      /^--to: expected a target of safetensors such as int8, .*, got "q8"; did you mean int8\?/,
    ],
    [
      ['model.safetensors', '--to', 'int8', '--shard-size', '1kB', '--part', '3'],
      /^--part: expected a string such as 1\/16 or 16\/16, got "3"; see /,
    ],
    [['model.onnx', '--to', 'q4', '--block-size', 'many'], /^--block-size: expected 16, .* or 256, got "many"; see /],
    [['model.onnx', '--to', 'q4', '--block-size', ' 32'], /^--block-size: expected 16, .* or 256, got " 32"; see /],
    [['model.gguf', '--to', 'Q8_0', '--rule', 'x=Q4_K_M'], /^--rule "x=Q4_K_M": .*; did you mean Q4_K\?/],
    [['model.safetensors', '--to', 'int8', '--rule', 'x=q4'], /^--rule "x=q4": .*; did you mean int4\?/],
    [['model.safetensors', '--to', 'int8', '--scheme', 'asymetric'], /^--scheme: .*; did you mean asymmetric\?/],
    [['model.safetensors', '--to', 'int8', '--grup-size', '8'], /^--grup-size: unknown option; did you mean --group-/],
    [['model.safetensors', '-x'], /^-x: unknown option; see scalepoint quantize --help/],
    [
      ['model.safetensors', '--to', 'int8', '--workers', '-1'],
      /^--workers: expected a whole number from 0 to 64, got "-1"/,
    ],
    [
      ['model.safetensors', '--to', '--json'],
      /^--to: expected a value, got "--json"; --to=--json takes --json itself; see/,
    ],
    [['model.safetensors', '--to=int8', '--force=yes'], /^--force: expected nothing, got "yes"/],
    [['inspect', '--json', '--nothing'], /^--nothing: unknown option; see scalepoint inspect --help/],
    [['model.safetensors', '--to', 'bfloat16', '--scheme', 'symmetric', '--packed', '--range', 'mse'], /^--/],
  ];

  it.each(cases)('%j is told in flags, without a word of Node, and with --json in JSON', async (args, message) => {
    await putModel();
    await writeFile(path('model.gguf'), tinyLlama());
    const { code, stderr } = await run(args);
    expect(code).toBe(2);
    expect(stderr).toMatch(/^scalepoint: [^\n]+\n$/);
    const text = stderr.slice('scalepoint: '.length);
    expect(text).toMatch(message);
    expect(text).not.toMatch(/(?<!-)\b(to|groupSize|granularity|workers): |argument|positional|undefined|ERR_/i);

    const { stdout, ...told } = await run([...args, '--json']);
    expect(told.code).toBe(2);
    const [, said] = /^(.*?)(; see|\? See) /.exec(text) as RegExpExecArray;
    expect(JSON.parse(stdout)).toEqual({ error: { code: 'USAGE', message: expect.stringContaining(said as string) } });
    expect((await readdir(path())).sort()).toEqual(['model.gguf', 'model.safetensors']);
  });

  it('takes values behind an equals sign, also of a short option', async () => {
    await putModel();
    expect((await run(['model.safetensors', '--to=int8', '-o=small', '--rule=x=keep', '--quiet'])).code).toBe(0);
    expect(await readdir(path())).toContain('small');
    expect((await run(['model.safetensors', '--to=int8', '-otiny', '--min-sqnr', '-3', '--quiet'])).code).toBe(0);
    expect(await readdir(path())).toContain('tiny');
  });
});

describe('--json', () => {
  it('escapes whatever could disturb a terminal, and stays the same value', async () => {
    const name = 'red\u009b31m \u202etfel\u2066 \u2028 \u{e0041} \u007f é ✓';
    await put('m.safetensors', { [name]: [[2, 2], wave] }, { [name]: name });
    const { stdout } = await run(['inspect', 'm.safetensors', '--json']);
    expect(stdout).not.toMatch(/[^\P{C}\n]|[\p{Zl}\p{Zp}]/u);
    expect(stdout).toContain('red\\u009b31m \\u202etfel\\u2066 \\u2028 \\udb40\\udc41 \\u007f é ✓');
    const { tensors, metadata } = JSON.parse(stdout);
    expect(tensors[0].name).toBe(name);
    expect(metadata[name]).toBe(name);
  });

  it('prints integers beyond 2^53 as strings', () => {
    expect(jsonText({ big: 2n ** 63n, list: [1n] })).toBe(
      '{\n  "big": "9223372036854775808",\n  "list": [\n    "1"\n  ]\n}',
    );
  });
});

describe('a very long name', () => {
  const name = 'x'.repeat(100_000);
  const longest = (text: string) => text.split('\n').reduce((most, line) => Math.max(most, line.length), 0);

  it('does not widen the rows of others, nor break the table in a pipe', async () => {
    // Rows of that length would make a text that is longer than strings can be.
    const names = [name, ...Array.from({ length: 5500 }, (_, i) => `tensor.${i}.weight`)];
    await put('m.safetensors', Object.fromEntries(names.map((one) => [one, [[1, 2], wave]])));
    for (const args of [
      ['inspect', 'm.safetensors'],
      ['plan', 'm.safetensors', '--to', 'int8'],
    ]) {
      const { code, stdout } = await run(args);
      expect(code).toBe(0);
      expect(stdout.split('\n').length).toBeGreaterThan(5500);
      expect(longest(stdout)).toBeLessThan(1100);
      expect(stdout).toContain(`\n${'x'.repeat(999)}…\n`);
    }
  });

  it('is cut short in messages, and whole in the result and with --json', async () => {
    await put('m.safetensors', { [name]: [[4, 4], wave], other: [[4, 4], wave] });
    const { code, stdout } = await run(['m.safetensors', '--to', 'float16', '--rule', 'x=float16']);
    expect(code).toBe(0);
    expect(longest(stdout)).toBeLessThan(1100);
    const compared = await run(['compare', 'm.safetensors', 'm.float16.safetensors']);
    expect(longest(compared.stdout)).toBeLessThan(1100);
    const { tensors } = await inspectModel(path('m.float16.safetensors'));
    expect(tensors.map((tensor) => tensor.name)).toContain(name);
    const json = JSON.parse((await run(['inspect', 'm.float16.safetensors', '--json'])).stdout);
    expect(json.tensors.map((tensor: { name: string }) => tensor.name)).toContain(name);
  });
});

describe.runIf(process.platform === 'linux')('standard output on a full disk', () => {
  it('is an error on one line and exit code 1, while the model stays', async () => {
    await putModel();
    const full = openSync('/dev/full', 'w');
    const file = programFile();
    const lines = [
      'inspect model.safetensors',
      'model.safetensors --to int8 -o out',
      'model.safetensors --to int8 -o -',
      'nothing --to int8',
    ];
    const results = lines.map(
      (line) =>
        new Promise((resolve) => {
          const child = spawn(process.execPath, [file, ...line.split(' ')], {
            cwd: path(),
            env: {},
            stdio: ['ignore', full, 'pipe'],
          });
          let stderr = '';
          child.stderr?.on('data', (text) => {
            stderr += text;
          });
          child.on('close', (code) => resolve({ code, stderr }));
        }),
    );
    const lost = { code: 1, stderr: 'scalepoint: cannot write to standard output: no space left on device\n' };
    // Which of the tensors it was depends on how much the system takes before it says so.
    const once = expect.stringMatching(
      /^scalepoint: [^\n]*cannot write to standard output: no space left on device\n$/,
    );
    expect(await Promise.all(results)).toEqual([
      lost,
      lost,
      { code: 1, stderr: once },
      expect.objectContaining({ code: 2 }),
    ]);
    closeSync(full);
    expect((await inspectModel(path('out'))).tensors).toHaveLength(6);
  });
});
