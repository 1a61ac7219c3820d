import { readFile, writeFile } from 'node:fs/promises';
import { inspectModel, verifyModel } from 'scalepoint/model';
import { describe, expect, it } from 'vitest';
import { tinyLlama } from '../support/tiny-llama.js';
import { path, put, putModel, run, safetensors, start, useFolder, wave } from './support.js';

useFolder();

describe('scalepoint verify', () => {
  it('finds nothing wrong with a model and the configuration beside it', async () => {
    await putModel();
    await run(['model.safetensors', '--to', 'int8', '-o', 'out.safetensors']);
    const { code, stdout, stderr } = await run(['verify', 'out.safetensors']);
    expect({ code, stderr }).toEqual({ code: 0, stderr: '' });
    expect(stdout.split('\n')).toEqual([
      expect.stringMatching(/^out\.safetensors: safetensors, \d tensors, \d\.\d\d kB$/),
      'compared with out.config.json',
      'no problems found',
      '',
    ]);
    await writeFile(path('model.gguf'), tinyLlama());
    expect((await run(['verify', 'model.gguf'])).stdout).toMatch(/^model\.gguf: gguf, .*\nno problems found\n$/);
    expect(await run(['verify', 'model.gguf', '--quiet'])).toEqual({ code: 0, stdout: '', stderr: '' });
  });

  it('exits with 1 and lists what is wrong', async () => {
    await putModel();
    await run(['model.safetensors', '--to', 'int8', '-o', 'out.safetensors']);
    const bytes = await readFile(path('out.safetensors'));
    const { tensors } = await inspectModel(path('out.safetensors'));
    const scale = tensors.find(({ name }) => name.endsWith('_scale'));
    const at = scale?.byteOffset ?? 0;
    bytes.writeFloatLE(Number.NaN, at + 4 * 3);
    await writeFile(path('out.safetensors'), bytes);
    await writeFile(path('empty.json'), '{}');
    const { code, stdout, stderr } = await run(['verify', 'out.safetensors', '--config', 'empty.json']);
    expect({ code, stderr }).toEqual({ code: 1, stderr: 'scalepoint: out.safetensors: 2 problems found\n' });
    expect(stdout.split('\n').slice(1)).toEqual([
      'compared with empty.json',
      'problem: config.json has no quantization_config, but a tensor holds codes',
      `problem: tensor "layers.0.weight_scale": 1 scale is NaN or infinite, [3, 0] (byte ${at + 12})`,
      '2 problems found',
      '',
    ]);
    const json = JSON.parse((await run(['verify', 'out.safetensors', '--config', 'empty.json', '--json'])).stdout);
    expect(json).toEqual({
      file: 'out.safetensors',
      config: 'empty.json',
      ...(await verifyModel(path('out.safetensors'), { config: {} })),
      files: ['out.safetensors'],
      error: { code: 'BAD_FILE', message: '2 problems found' },
      peakBytes: expect.any(Number),
    });
  });

  it('tells of a header that is wrong, of a configuration that is none, and of one that does not belong', async () => {
    await putModel();
    const bytes = await readFile(path('model.safetensors'));
    await writeFile(path('short.safetensors'), bytes.subarray(0, -1));
    await writeFile(path('c.json'), '{');
    await writeFile(path('list.json'), '[]');
    await writeFile(path('model.gguf'), tinyLlama());
    const cases: [string[], number, RegExp][] = [
      [
        ['short.safetensors'],
        1,
        /^scalepoint: short\.safetensors: tensor "steps": data_offsets ends at .* \(byte \d+\)\n$/,
      ],
      [
        ['model.safetensors', '--config', 'c.json'],
        1,
        /^scalepoint: c\.json: it is not JSON: line 1, column 2: expected a key in double quotes, got the end\n$/,
      ],
      [['model.safetensors', '--config', 'list.json'], 1, /^scalepoint: list\.json: expected a JSON object\n$/],
      [['model.safetensors', '--config', 'none.json'], 1, /^scalepoint: cannot read "none\.json": no such file/],
      [['model.gguf', '--config', 'c.json'], 2, /^scalepoint: --config: only for safetensors files; see /],
      [[], 2, /^scalepoint: verify needs a FILE; see scalepoint verify --help\n$/],
      [['model.gguf', '--to', 'int8'], 2, /^scalepoint: --to: unknown option; scalepoint quantize takes --to; see/],
    ];
    for (const [args, code, message] of cases) {
      expect(await run(['verify', ...args]), args.join(' ')).toEqual({
        code,
        stdout: '',
        stderr: expect.stringMatching(message),
      });
    }
  });

  it('lists the first twenty findings, and all of them with --json', async () => {
    const names = Array.from({ length: 25 }, (_, i) => `w${i}`);
    await put('m.safetensors', Object.fromEntries(names.map((name) => [name, [[2], () => Number.NaN]])));
    const { code, stdout } = await run(['verify', 'm.safetensors']);
    expect(code).toBe(0);
    const lines = stdout.split('\n').filter((line) => line.startsWith('note: '));
    expect(lines).toHaveLength(21);
    expect(lines.at(-1)).toBe('note: 5 more, --json lists them');
    expect(JSON.parse((await run(['verify', 'm.safetensors', '--json'])).stdout).notes).toHaveLength(25);
  });

  it('reads a model from a pipe', async () => {
    const { outcome } = await start(['verify', '-'], { stdin: safetensors({ w: [[4, 4], wave] }) });
    expect(await outcome).toMatchObject({ code: 0, stdout: expect.stringMatching(/^standard input: .*\nno problems/) });
  });
});
