import { spawn } from 'node:child_process';
import { copyFile, mkdir, open, readdir, readFile, rename, rm, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { compareModels, inspectModel, planModel, quantizeModel } from 'scalepoint/model';
import { describe, expect, it } from 'vitest';
import { root } from '../../../scripts/steps.mjs';
import { safetensors } from '../support/models.js';
import { npy } from '../support/npz.js';
import { everyPair, tinyLlama } from '../support/tiny-llama.js';
import { path, program, programFile, put, putModel, run, start, useFolder, wave } from './support.js';

useFolder();

/** A sparse safetensors file with one weight of zeros: reading it takes time, and storing it no space. */
async function putZeros(name: string, bytes: number) {
  const shape = [2 ** 9, bytes / 2 ** 11];
  const json = Buffer.from(JSON.stringify({ 'w.weight': { dtype: 'F32', shape, data_offsets: [0, bytes] } }));
  const length = Buffer.alloc(8);
  length.writeBigUInt64LE(BigInt(json.length));
  const file = await open(path(name), 'w');
  await file.write(Buffer.concat([length, json]));
  await file.truncate(8 + json.length + bytes);
  await file.close();
}

const commands = ['inspect', 'plan', 'quantize', 'compare', 'verify'];

describe('scalepoint', () => {
  it('explains itself and exits with 0', async () => {
    for (const args of [['--help'], ['-h'], ['help']]) {
      const { code, stdout, stderr } = await run(args);
      expect({ code, stderr }).toEqual({ code: 0, stderr: '' });
      expect(stdout).toMatch(
        /scalepoint \[quantize\] FILE --to int8[\s\S]*scalepoint inspect FILE[\s\S]*scalepoint plan[\s\S]*scalepoint compare A B/,
      );
    }
    for (const command of commands) {
      const { code, stdout } = await run([command, '--help']);
      expect(code).toBe(0);
      const files = command === 'compare' ? 'A B' : 'FILE';
      expect(stdout).toMatch(
        new RegExp(`^scalepoint \\[?${command}\\]? ${files}[\\s\\S]*\nExamples\n {2}scalepoint ${command} `),
      );
    }
  });

  it('fits its help into 80 columns, and into a narrower terminal', async () => {
    for (const args of [['--help'], ...[...commands, 'bench'].map((command) => [command, '--help'])]) {
      for (const columns of [80, 60]) {
        const { stdout } = await run(args, columns === 80 ? {} : { COLUMNS: String(columns) });
        // Examples are to be copied, and lists of names may have no spaces.
        const [text = ''] = stdout.split('\nExamples\n');
        for (const line of text.split('\n')) expect(line.length, line).toBeLessThanOrEqual(columns);
        expect(Math.max(...stdout.split('\n').map(({ length }) => length))).toBeLessThanOrEqual(80);
      }
    }
  });

  it('gives names lines of their own where the terminal is too narrow for the table', async () => {
    await putModel();
    const { stdout } = await run(['model.safetensors', '--to', 'int8'], { COLUMNS: '60' });
    expect(stdout.split('\n').slice(0, 6)).toEqual([
      'tensor',
      '  dtype     shape    before  after  SQNR dB  max error',
      'embed_tokens.weight',
      '  F32       8×16      512 B  512 B  kept: embedding',
      'layers.0.weight',
      expect.stringMatching(/^ {2}F32 → I8 {2}16×32 {3}2\.05 kB {2}592 B {4}\d\d\.\d\d {5}\d\.\de-\d$/),
    ]);
  });

  it('prints its version and the number of its build', async () => {
    const { version } = JSON.parse(await readFile(new URL('../../../package.json', import.meta.url), 'utf8'));
    const { code, stdout, stderr } = await run(['--version']);
    expect({ code, stderr }).toEqual({ code: 0, stderr: '' });
    expect(stdout).toMatch(new RegExp(`^scalepoint ${version.replaceAll('.', '\\.')} \\(build [0-9a-f]+\\)\n$`));
  });

  it('exits with 2 and one line if it is used wrongly', async () => {
    await putModel();
    const cases: [string[], RegExp][] = [
      [[], /expected a command \(quantize, inspect, plan, split, .*completions\) or a file; see scalepoint --help/],
      [['model.safetensors'], /quantize needs --to int8, .*; see scalepoint quantize --help/],
      [
        ['inspec', 'model.safetensors'],
        /expected a command .*, got "inspec"; did you mean inspect\? See scalepoint --help/,
      ],
      [['inspect'], /inspect needs a FILE; see scalepoint inspect --help/],
      [['inspect', 'a', 'b'], /inspect takes one FILE, got "b" as well/],
      [
        ['inspect', 'a', '--to', 'int8'],
        /--to: unknown option; scalepoint quantize takes --to; see scalepoint inspect --help/,
      ],
      [['quantize', 'model.safetensors'], /quantize needs --to int8, Q8_0, q8 or/],
      [['quantize', 'model.safetensors', '--to'], /--to: expected a value, got nothing; see/],
      [
        ['quantize', 'model.safetensors', '--to', 'int3'],
        /--to: expected int8, int4, .*, bfloat16 or copy for a safetensors file, got "int3"; see/,
      ],
      [['quantize', '--to', 'int8'], /quantize needs a FILE/],
      [['quantize', 'model.safetensors', '--to', 'int8', '-o', ''], /--output: expected a name of a file or -/],
      [
        ['quantize', 'model.safetensors', '--to', 'int8', '--rule', 'x'],
        /--rule: expected REGEX=TYPE or REGEX=keep, got "x"/,
      ],
      [['quantize', 'model.safetensors', '--to', 'int8', '--rule', '=keep'], /--rule: expected/],
      [['quantize', 'model.safetensors', '--to', 'int8', '--rule', 'x='], /--rule: expected/],
      [
        ['quantize', 'model.safetensors', '--to', 'int8', '--rule', 'y=keep', '--rule', 'x=int3'],
        /--rule "x=int3": expected int8, .*, got "int3"; see scalepoint quantize --help/,
      ],
      [
        ['plan', 'model.safetensors', '--to', 'q4_0'],
        /--to: expected a target of safetensors such as int8, .* or mxfp4, a target of GGUF .* a target of MLC .* or a target of transformers.js .*, got "Q4_0"/,
      ],
      [['quantize', 'model.safetensors', '--to', 'int8', '--pure'], /--pure: only for GGUF files;/],
      [['quantize', 'model.safetensors', '--to', 'int8', '--plain', '--packed'], /--plain: not together with --packed/],
      [['quantize', 'model.safetensors', '--to', 'int8', '--fix-alignment'], /--fix-alignment: only for GGUF files;/],
      [['quantize', 'model.safetensors', '--to', 'int8', '--scheme', 'odd'], /--scheme: expected .*, got "odd"/],
      [['quantize', 'model.safetensors', '--to', 'int8', '--granularity', 'x'], /--granularity: expected .*, got "x"/],
      [['quantize', 'model.safetensors', '--to', 'int8', '--range', 'best'], /--range: expected .*, got "best"/],
      [
        ['quantize', 'model.safetensors', '--to', 'int8', '--range', 'percentile:50'],
        /--range: expected a number above 50 and at most 100, got 50;/,
      ],
      [
        ['quantize', 'model.safetensors', '--to', 'float16', '--range', 'mse'],
        /--range: only with --to int8, int4, .* or awq, got --to float16;/,
      ],
      [['quantize', 'model.safetensors', '--to', 'int4', '--group-size', '31'], /--group-size: expected .*, got 31/],
      [
        ['quantize', 'model.safetensors', '--to', 'int4', '--group-size', '-8'],
        /--group-size: expected a whole number of at least 1, got "-8"/,
      ],
      [
        ['quantize', 'model.safetensors', '--to', 'int4', '--group-size', '1e2'],
        /--group-size: expected a whole number/,
      ],
      [
        ['quantize', 'model.safetensors', '--to', 'int8', '--granularity', 'per-channel', '--group-size', '32'],
        /--group-size: only with --granularity per-group/,
      ],
      [
        ['quantize', 'model.safetensors', '--to', 'int4', '--activations', 'int8-dynamic'],
        /--activations: only with --to int8, got --to int4;/,
      ],
      [['quantize', 'model.safetensors', '--to', 'int8', '--workers', 'all'], /--workers: expected a whole number/],
      [
        ['quantize', 'model.safetensors', '--to', 'int8', '--workers', '65'],
        /--workers: expected a whole number from 0 to 64, got 65/,
      ],
      [['quantize', 'm.gguf', '--to', 'Q4_0', '--config', 'c.json'], /--config: only for safetensors files/],
      [['plan', 'model.safetensors'], /plan needs --to int8, .*; see scalepoint plan --help/],
      [['compare', 'a'], /compare needs B; see scalepoint compare --help/],
      [['compare'], /compare needs A and B/],
      [['compare', 'a', 'b', 'c'], /compare takes A and B, got "c" as well/],
      [['compare', 'a', 'b', '--sort', 'name'], /--sort: expected file or sqnr, got "name"/],
      [['constructor'], /expected a command .*, got "constructor"/],
      [
        ['quantize', 'model.safetensors', '--to', 'int8', '--rule', '(?<=x)y=keep'],
        /--rule: expected a regular expression, got "\(\?<=x\)y": rules have no lookbehind \(\?<=; see/,
      ],
      [
        ['quantize', 'model.safetensors', '--to', 'int8', '--rule', '(=keep'],
        /--rule: expected a regular expression, got "\(": a \( has no \)/,
      ],
      [
        ['quantize', 'model.safetensors', '--to', 'int8', '--min-sqnr', 'high'],
        /--min-sqnr: expected a number of decibels, got "high"/,
      ],
      [['quantize', 'model.safetensors', '--to', 'int8', '--min-sqnr', ''], /--min-sqnr/],
      [
        ['quantize', 'model.safetensors', '--to', 'int8', '--frce'],
        /--frce: unknown option; did you mean --force\? See scalepoint quantize --help/,
      ],
    ];
    await Promise.all(
      cases.map(async ([args, message]) => {
        const { code, stdout, stderr } = await run(args);
        expect({ code, stdout }, args.join(' ')).toEqual({ code: 2, stdout: '' });
        expect(stderr).toMatch(/^scalepoint: [^\n]+\n$/);
        expect(stderr).toMatch(message);
      }),
    );
    expect(await readdir(path())).toEqual(['model.safetensors']);
  });
});

describe('scalepoint inspect', () => {
  it('lists what is in a file', async () => {
    await putModel();
    const { code, stdout, stderr } = await run(['inspect', 'model.safetensors']);
    expect({ code, stderr }).toEqual({ code: 0, stderr: '' });
    expect(stdout.split('\n')).toEqual([
      expect.stringMatching(/^model\.safetensors: safetensors, 4 tensors, 657 elements, \d\.\d\d kB$/),
      '',
      'tensor               dtype  shape      size',
      'embed_tokens.weight  F32    8×16      512 B',
      'layers.0.weight      F32    16×32   2.05 kB',
      'layers.0.bias        F32    16         64 B',
      'steps                I64    scalar      8 B',
      '',
      'metadata',
      '  format: pt',
      '',
    ]);
  });

  it('prints with --json what inspectModel gives', async () => {
    await putModel();
    const { code, stdout, stderr } = await run(['inspect', 'model.safetensors', '--json']);
    expect({ code, stderr }).toEqual({ code: 0, stderr: '' });
    const info = await inspectModel(path('model.safetensors'));
    const payload = 512 + 2048 + 64 + 8;
    expect(JSON.parse(stdout)).toEqual({
      file: 'model.safetensors',
      ...info,
      files: ['model.safetensors'],
      metadata: { format: 'pt' },
      totals: { elements: 657, bitsPerWeight: (8 * payload) / 657 },
      // A process of Node holds tens of megabytes, whatever it does.
      peakBytes: expect.toSatisfy((bytes) => bytes > 2 ** 24 && bytes < 2 ** 30),
    });
  });

  it('summarises a GGUF file and its metadata', async () => {
    await writeFile(path('model.gguf'), tinyLlama({ pairs: everyPair }));
    const { code, stdout, stderr } = await run(['inspect', 'model.gguf'], { COLUMNS: '80' });
    expect({ code, stderr }).toEqual({ code: 0, stderr: '' });
    const lines = stdout.split('\n');
    expect(lines[0]).toMatch(/^model\.gguf: gguf, 21 tensors, \d\d,\d{3} parameters, \d\d\.\d kB$/);
    expect(lines[1]).toMatch(/^architecture llama, 16\.\d\d bits per weight, 16 × F16, 5 × F32$/);
    expect(lines).toContain('blk.0.attn_q.weight       F16    4×256   2.05 kB');
    // 1e-5 as a float32 has more digits than anyone wrote.
    expect(lines).toContain('  llama.attention.layer_norm_rms_epsilon: 0.00001');
    expect(lines).toContain('  test.u64: 18446744073709551615');
    expect(lines).toContain('  test.f64: 0.1');
    expect(lines).toContain('  test.array.texts: ["", "é", "ab"]');
    expect(lines).toContain('  test.array.long: 65 × i32 [-3, -2, -1, 0, 1, 2, 3, 4, …]');
    for (const line of lines) expect(line.length).toBeLessThanOrEqual(80);

    const { metadata } = JSON.parse((await run(['inspect', 'model.gguf', '--json'])).stdout);
    expect(metadata['test.u64']).toBe('18446744073709551615');
    expect(metadata['test.array.words']).toEqual([1, '9223372036854775808']);
    expect(metadata['test.array.long']).toEqual({ elementType: 'i32', length: 65, first: [-3, -2, -1, 0, 1, 2, 3, 4] });
    expect(Object.getOwnPropertyDescriptor(metadata, '__proto__')?.value).toBe(7);
  });

  it('gives a name that is too long for the terminal a line of its own', async () => {
    await put('m.safetensors', { short: [[2, 2], wave], 'a.rather.long.name.of.a.tensor': [[2, 2], wave] });
    const { stdout } = await run(['inspect', 'm.safetensors'], { COLUMNS: '40' });
    expect(stdout.split('\n').slice(2, 6)).toEqual([
      'tensor                dtype  shape  size',
      'short                 F32    2×2    16 B',
      'a.rather.long.name.of.a.tensor',
      '                      F32    2×2    16 B',
    ]);
  });

  it('shows names and metadata that would disturb a terminal with escapes', async () => {
    await put('m.safetensors', { '\u001b[31mred\u202e\nline': [[2, 2], wave] }, { '\u0007k': '\u009b2J' });
    const { stdout } = await run(['inspect', 'm.safetensors']);
    expect(stdout).toContain('\\u{1b}[31mred\\u{202e}\\u{a}line');
    expect(stdout).toContain('\\u{7}k: \\u{9b}2J');
    // biome-ignore lint/suspicious/noControlCharactersInRegex: they are what this is about
    expect(stdout).not.toMatch(/[\u0000-\u0009\u000b-\u001f\u007f-\u009f\u202e]/);
  });

  it('names file, tensor and byte of an error on one line, and exits with 1', async () => {
    await putModel();
    const bytes = await readFile(path('model.safetensors'));
    await writeFile(path('bad.safetensors'), Buffer.from(bytes.toString('latin1').replace('I64', 'I65'), 'latin1'));
    await writeFile(path('page.safetensors'), '<!doctype html>');
    await mkdir(path('empty'));
    const at = bytes.indexOf('"steps"');
    const cases: [string, string][] = [
      ['bad.safetensors', `scalepoint: bad.safetensors: tensor "steps": dtype "I65" is unknown (byte ${at})\n`],
      ['missing.npy', 'scalepoint: cannot open "missing.npy": no such file or directory\n'],
      [
        'empty',
        'scalepoint: the folder "empty" holds no .safetensors.index.json, tensor-cache.json, .bin.index.json, .safetensors, .gguf, .onnx, .ckpt, .npy, .pth, .bin, .pt file\n',
      ],
    ];
    for (const [file, line] of cases)
      expect(await run(['inspect', file])).toEqual({ code: 1, stdout: '', stderr: line });
    const { stderr } = await run(['inspect', 'page.safetensors']);
    expect(stderr).toMatch(/^scalepoint: page\.safetensors: .*looks like a page of HTML or XML \([^\n]+\n$/);
  });

  it('prints an error with --json on stdout as well', async () => {
    await writeFile(path('x'), 'nothing');
    const { code, stdout, stderr } = await run(['inspect', 'x', '--json']);
    expect(code).toBe(1);
    expect(JSON.parse(stdout)).toMatchObject({
      file: 'x',
      error: { code: 'UNKNOWN_FORMAT', message: expect.stringMatching(/6e 6f 74/) },
    });
    expect(stderr).toMatch(/^scalepoint: x: /);
  });
});

describe('scalepoint inspect, sorted and filtered', () => {
  const put3 = () =>
    put('m.safetensors', {
      'layers.10.weight': [[4, 8], wave],
      'layers.2.weight': [[16, 8], wave],
      'layers.2.bias': [[64], () => 1n],
      'head.weight': [[16, 8], wave],
    });
  const names = async (...args: string[]) => {
    const { stdout } = await run(['inspect', 'm.safetensors', '--json', ...args]);
    return JSON.parse(stdout).tensors.map(({ name }: { name: string }) => name);
  };
  const [ten, two, bias, head] = ['layers.10.weight', 'layers.2.weight', 'layers.2.bias', 'head.weight'];

  it('lists tensors in the order of the file, of names with numbers, of sizes or of types', async () => {
    await put3();
    expect(await names()).toEqual([ten, two, bias, head]);
    expect(await names('--sort', 'file')).toEqual([ten, two, bias, head]);
    expect(await names('--sort', 'name')).toEqual([head, bias, two, ten]);
    expect(await names('--sort', 'size')).toEqual([two, bias, head, ten]);
    expect(await names('--sort', 'elements')).toEqual([two, head, bias, ten]);
    expect(await names('--sort=dtype')).toEqual([ten, two, head, bias]);
  });

  it('lists the tensors whose names match, and counts them', async () => {
    await put3();
    expect(await names('--filter', '^layers', '--sort', 'size')).toEqual([two, bias, ten]);
    expect(await names('--filter', '(?!.*bias)layers\\.2')).toEqual([two]);
    expect(await names('--filter', 'nothing')).toEqual([]);
    const { stdout } = await run(['inspect', 'm.safetensors', '--filter', '2']);
    expect(stdout).toMatch(/^m\.safetensors: safetensors, 4 tensors, 352 elements, 1\.96 kB\n/);
    expect(stdout).toMatch(/\n\n2 of 4 tensors match: 192 elements, 1\.02 kB\n$/);
    const { stdout: json } = await run(['inspect', 'm.safetensors', '--filter', '2', '--json']);
    expect(JSON.parse(json).totals.elements).toBe(352);
  });

  it('refuses other orders and wrong expressions', async () => {
    await put3();
    const fail = async (...args: string[]) => {
      const { code, stderr } = await run(['inspect', 'm.safetensors', ...args]);
      return `${code} ${stderr}`;
    };
    expect(await fail('--sort', 'sizes')).toBe(
      '2 scalepoint: --sort: expected file, name, size, elements or dtype, got "sizes"; did you mean size? See scalepoint inspect --help\n',
    );
    expect(await fail('--filter', '(a')).toBe(
      '2 scalepoint: --filter: expected a regular expression, got "(a": a ( has no ); see scalepoint inspect --help\n',
    );
  });
});

describe('scalepoint quantize', () => {
  it('writes the model beside the original and prints a table', async () => {
    await putModel();
    const { code, stdout, stderr } = await run(['quantize', 'model.safetensors', '--to', 'int8'], { COLUMNS: '80' });
    expect({ code, stderr }).toEqual({ code: 0, stderr: '' });
    expect(stdout.split('\n')).toEqual([
      'tensor               dtype     shape    before  after  SQNR dB  max error',
      'embed_tokens.weight  F32       8×16      512 B  512 B  kept: embedding',
      expect.stringMatching(
        /^layers\.0\.weight {6}F32 → I8 {2}16×32 {3}2\.05 kB {2}592 B {4}\d\d\.\d\d {5}\d\.\de-\d$/,
      ),
      'layers.0.bias        F32       16         64 B   64 B  kept: bias',
      'steps                I64       scalar      8 B    8 B  kept: not a float',
      '',
      'model.safetensors: 4 tensors, 1 quantized, 3 kept',
      expect.stringMatching(/^\d\.\d\d kB → \d\.\d\d kB, ratio \d\.\d\d, \d+\.\d\d bits per weight$/),
      expect.stringMatching(/^lowest SQNR \d\d\.\d\d dB: layers\.0\.weight$/),
      'wrote model.int8.safetensors',
      'wrote model.int8.config.json',
      '',
    ]);
    const { tensors, metadata } = await inspectModel(path('model.int8.safetensors'));
    expect(tensors.map(({ name }) => name)).toContain('layers.0.weight_scale');
    expect({ ...metadata }).toEqual({ format: 'pt' });
    expect((await readdir(path())).sort()).toEqual([
      'model.int8.config.json',
      'model.int8.safetensors',
      'model.safetensors',
    ]);
  });

  it('keeps its table of a real model within 80 columns', async () => {
    const file = join(root, 'web/demo/public/samples/storyteller/model.safetensors');
    const { code, stdout } = await run(['quantize', file, '--to', 'int8', '--all', '-o', 'small.safetensors'], {
      COLUMNS: '80',
    });
    expect(code).toBe(0);
    const lines = stdout.split('\n');
    for (const line of lines) expect(line.length).toBeLessThanOrEqual(80);
    const rows = lines.filter((line) => /\bF16\b/.test(line));
    expect(rows.length).toBe(38);
    for (const row of rows) expect(row).toMatch(/(kept: \S+| \d\d\.\d\d +\d\.\de-\d)$/);
  });

  it('prints with --json the report and nothing else', async () => {
    await putModel();
    const args = ['quantize', 'model.safetensors', '--to', 'int8', '-o', 'out.safetensors', '--json'];
    const { code, stdout, stderr } = await run(args);
    expect({ code, stderr }).toEqual({ code: 0, stderr: '' });
    const report = JSON.parse(stdout);
    expect(report).toMatchObject({
      file: 'model.safetensors',
      output: 'out.safetensors',
      config: 'out.config.json',
      to: 'int8',
      notes: [],
      peakBytes: expect.any(Number),
    });
    expect(report.totals).toMatchObject({ quantized: 1, kept: 3 });
    expect(report.tensors[1]).toMatchObject({
      name: 'layers.0.weight',
      shape: [16, 32],
      from: 'F32',
      to: 'I8',
      bytesBefore: 2048,
      bytesAfter: 592,
      error: { mse: expect.any(Number), sqnrDb: expect.any(Number), cosine: expect.any(Number), nonFinite: 0 },
    });
    expect(report.tensors[0]).toMatchObject({
      name: 'embed_tokens.weight',
      kept: { kind: 'embedding', text: 'embedding' },
    });
  });

  it('prints nothing with --quiet', async () => {
    await putModel();
    const outcome = await run(['quantize', 'model.safetensors', '--to', 'int8', '--quiet']);
    expect(outcome).toEqual({ code: 0, stdout: '', stderr: '' });
  });

  it('ends soon with rules that RegExp takes years for', async () => {
    const name = `${'a'.repeat(60)}!.weight`;
    await put('m.safetensors', { [name]: [[8, 64], wave] });
    await writeFile(path('rules.txt'), '^(a|a)*$=keep\n(?!(a+)+b)(a*)*!=bfloat16\n');
    const args = ['m.safetensors', '--to', 'int8', '--rule', '(a+)+$=keep', '--rules', 'rules.txt', '--json'];
    const { code, stdout, stderr } = await run(args);
    expect({ code, stderr }).toEqual({
      code: 0,
      stderr: ['(a+)+$', '^(a|a)*$'].map((rule) => `scalepoint: no tensor matches the rule ${rule}\n`).join(''),
    });
    expect(JSON.parse(stdout).tensors).toMatchObject([{ name, to: 'BF16' }]);
  });

  it('follows the rules in their order and names one that matches nothing', async () => {
    await putModel();
    const rules = [
      '--rule',
      '^embed=int8',
      '--rule',
      'layers\\..*weight$=keep',
      '--rule',
      'layers=int8',
      '--rule',
      'a=b=keep',
    ];
    const { code, stdout, stderr } = await run(['quantize', 'model.safetensors', '--to', 'int8', '--json', ...rules]);
    expect({ code, stderr }).toEqual({
      code: 0,
      stderr: expect.stringMatching(
        /\nscalepoint: the rule layers=int8 has no effect: .*\nscalepoint: no tensor matches the rule a=b\n$/,
      ),
    });
    const kept = JSON.parse(stdout).tensors.map(({ kept }: { kept?: object }) => kept);
    expect(kept).toEqual([
      undefined,
      { kind: 'rule', text: 'by a rule' },
      { kind: 'bias', text: 'bias' },
      { kind: 'nonFloat', dtype: 'I64', text: 'not a float' },
    ]);
  });

  it('fails if nothing would be converted, and says what would help', async () => {
    await put('rows.safetensors', { 'a.weight': [[4, 96], wave], 'a.bias': [[4], wave] });
    const rows = ['quantize', 'rows.safetensors', '--to', 'int4', '-o', 'out'];
    expect(await run(rows)).toEqual({
      code: 1,
      stdout: '',
      stderr:
        'scalepoint: rows.safetensors: nothing would be converted (1 tensor: row length 96 is not a multiple of group size 128, 1 tensor: bias); ' +
        '1 weight stays: rows of 96 cannot be divided into groups of 128; --group-size 32 converts it; --force copies it\n',
    });
    expect(await readdir(path())).toEqual(['rows.safetensors']);
    expect((await run([...rows, '--group-size', '32'])).code).toBe(0);
    await put('conv.safetensors', { 'c.weight': [[8, 4, 3, 3], wave], 'c.bias': [[8], wave] });
    const conv = await run(['quantize', 'conv.safetensors', '--to', 'int8', '--json']);
    expect(conv.stderr).toMatch(
      /nothing would be converted \(1 tensor: 4 dimensions, 1 tensor: bias\); 1 weight stays: .*; --all converts it, .*\n$/,
    );
    expect(JSON.parse(conv.stdout).error).toMatchObject({ code: 'NO_EFFECT' });
    expect(conv.code).toBe(1);
    const forced = await run(['quantize', 'conv.safetensors', '--to', 'int8', '--force', '-o', 'copy']);
    expect(forced.code).toBe(0);
    expect(forced.stderr).toMatch(/--all converts it/);
    expect(await readFile(path('copy'))).toHaveLength((await readFile(path('conv.safetensors'))).length + 2);
    const all = await run(['quantize', 'conv.safetensors', '--to', 'int8', '--all']);
    expect(all).toMatchObject({
      code: 0,
      stderr: expect.stringMatching(/Scalepoint reads them, vLLM, transformers and/),
    });
    // Of a plan it is no error.
    expect((await run(['plan', 'rows.safetensors', '--to', 'int4'])).code).toBe(0);
  });

  it('fails if nearly nothing would be converted', async () => {
    await put('some.safetensors', {
      'a.weight': [[1, 128], wave],
      'b.weight': [[160, 96], wave],
    });
    const args = ['some.safetensors', '--to', 'int4', '-o', 'out'];
    const { code, stderr } = await run(args);
    expect(code).toBe(1);
    expect(stderr).toMatch(
      /nearly nothing would be converted, 0\.8 % of the bytes \(1 tensor: row length 96 .*--force converts it all the same\n$/,
    );
    expect((await run(['plan', ...args])).stdout).toMatch(
      /2 tensors, 1 quantized, 1 kept; 0\.8 % of the bytes, nearly nothing/,
    );
    // A rule that keeps the others means it.
    expect((await run([...args, '--rule', 'b.weight=keep'])).code).toBe(0);
    expect((await run([...args, '--force'])).code).toBe(0);
  });

  it('does not replace a file without --force', async () => {
    await putModel();
    await writeFile(path('out'), 'mine');
    const args = ['quantize', 'model.safetensors', '--to', 'int8', '-o', 'out'];
    expect(await run(args)).toEqual({
      code: 1,
      stdout: '',
      stderr: 'scalepoint: "out" exists already; --force replaces it\n',
    });
    const { file, error } = JSON.parse((await run([...args, '--json'])).stdout);
    expect({ file, error }).toEqual({ file: 'out', error: { code: 'EXISTS', message: '"out" exists already' } });
    const missing = await run(['quantize', 'none.safetensors', '--to', 'int8', '--json']);
    expect(JSON.parse(missing.stdout)).toMatchObject({ file: 'none.safetensors', error: { code: 'IO' } });
    expect(await readFile(path('out'), 'utf8')).toBe('mine');
    expect((await run([...args, '--force'])).code).toBe(0);
    expect((await inspectModel(path('out'))).format).toBe('safetensors');
    expect((await readdir(path())).sort()).toEqual(['model.safetensors', 'out', 'out.config.json']);
  });

  it('exits with 1 and leaves nothing behind if the SQNR is too low', async () => {
    await putModel();
    const args = ['quantize', 'model.safetensors', '--to', 'int8', '--min-sqnr', '90'];
    const { code, stdout, stderr } = await run(args);
    expect(code).toBe(1);
    expect(stdout).toMatch(/layers\.0\.weight/);
    expect(stdout).not.toMatch(/wrote/);
    expect(stderr).toMatch(
      /^scalepoint: model\.safetensors: SQNR below 90 dB, nothing was written: "layers\.0\.weight" \(\d\d\.\d\d dB\)\n$/,
    );
    const json = JSON.parse((await run([...args, '--json'])).stdout);
    expect(json).toMatchObject({
      file: 'model.safetensors',
      output: null,
      config: null,
      to: 'int8',
      error: { code: 'QUALITY', tensor: 'layers.0.weight' },
    });
    expect(json.tensors).toHaveLength(4);
    expect(await readdir(path())).toEqual(['model.safetensors']);
    expect((await run(['quantize', 'model.safetensors', '--to', 'int8', '--min-sqnr', '20'])).code).toBe(0);
  });

  it('names the tensor and the byte of a NaN and leaves nothing behind', async () => {
    await put('m.safetensors', { weight: [[4, 16], (i) => (i === 18 ? Number.NaN : i)] });
    const { size } = { size: (await readFile(path('m.safetensors'))).length };
    expect(await run(['quantize', 'm.safetensors', '--to', 'int8'])).toEqual({
      code: 1,
      stdout: '',
      stderr: `scalepoint: m.safetensors: tensor "weight" holds NaN at [1, 2]; a rule can keep it (byte ${size - 256 + 72})\n`,
    });
    expect(await readdir(path())).toEqual(['m.safetensors']);
  });

  it('makes a safetensors file of a .npy file', async () => {
    await writeFile(path('w.npy'), npy('<f4', '(2, 3)', new Float32Array([1, 2, 3, 4, 5, 127]).buffer));
    expect((await run(['quantize', 'w.npy', '--to', 'int8', '--plain'])).code).toBe(0);
    const { tensors } = await inspectModel(path('w.int8.safetensors'));
    expect(tensors.map(({ name, dtype, shape }) => [name, dtype, shape])).toEqual([
      ['w_scale', 'F32', [2, 1]],
      ['w', 'I8', [2, 3]],
    ]);
  });

  it('uses colour only where it is wanted', async () => {
    await putModel();
    const args = ['quantize', 'model.safetensors', '--to', 'int8', '--force'];
    // biome-ignore lint/suspicious/noControlCharactersInRegex: the start of a colour
    const colour = /\u001b\[/;
    expect((await run(args)).stdout).not.toMatch(colour);
    expect((await run(args, { FORCE_COLOR: '1' })).stdout).toMatch(colour);
    expect((await run(args, { FORCE_COLOR: '1', NO_COLOR: '1' })).stdout).not.toMatch(colour);
    expect((await run([...args, '--no-color'], { FORCE_COLOR: '1' })).stdout).not.toMatch(colour);
    expect((await run(['inspect', 'none'], { FORCE_COLOR: '1' })).stderr).toMatch(colour);
  });

  it.each([
    ['SIGINT', 130, '0'],
    ['SIGINT', 130, '2'],
    ['SIGTERM', 143, '1'],
    ['SIGHUP', 129, '2'],
  ] as const)('removes its partial file at %s and exits with %i, with %s workers', async (signal, code, workers) => {
    await putZeros('big.safetensors', 2 ** 32);
    const { child, outcome } = await start(['quantize', 'big.safetensors', '--to', 'int8', '--workers', workers]);
    // Well into the work: a megabyte of codes is written.
    const written = async () => {
      const partial = (await readdir(path())).find((name) => name.endsWith('.partial'));
      return partial === undefined ? 0 : (await stat(path(partial))).size;
    };
    await expect.poll(written, { interval: 5 }).toBeGreaterThan(2 ** 20);
    child.kill(signal);
    // Work that went on would be cut off without these words.
    expect(await outcome).toMatchObject({
      code,
      stdout: '',
      stderr: 'scalepoint: interrupted, nothing was written\n',
    });
    expect(await readdir(path())).toEqual(['big.safetensors']);
  });

  it('survives a reader that stops reading', async () => {
    const tensors = Object.fromEntries(Array.from({ length: 3000 }, (_, i) => [`tensor.${i}`, [[1], wave]]));
    await put('many.safetensors', tensors as Record<string, [number[], (i: number) => number]>);
    const { child, outcome } = await start(['inspect', 'many.safetensors']);
    child.stdout?.destroy();
    expect(await outcome).toMatchObject({ code: 0, stderr: '' });
  });

  it('says what can be done about a model that is quantized already', async () => {
    await writeFile(path('model.gguf'), tinyLlama());
    await run(['quantize', 'model.gguf', '--to', 'Q8_0']);
    const args = ['quantize', 'model-Q8_0.gguf', '--to', 'Q4_0'];
    expect(await run(args)).toEqual({
      code: 1,
      stdout: '',
      stderr: expect.stringMatching(
        /^scalepoint: model-Q8_0\.gguf: tensor "output\.weight": .*; --requantize quantizes it again, .* \(byte \d+\)\n$/,
      ),
    });
    expect((await run([...args, '--requantize'])).code).toBe(0);
    expect((await readdir(path())).sort()).toEqual(['model-Q8_0-Q4_0.gguf', 'model-Q8_0.gguf', 'model.gguf']);
  });

  it('makes of a GGUF file what quantizeModel makes of it, whatever the case of the type', async () => {
    const file = tinyLlama();
    await writeFile(path('model.gguf'), file);
    const args = ['quantize', 'model.gguf', '--to', 'q4_k_m', '--rule', 'ffn_up=q8_0', '--rule', 'ffn_gate=KEEP'];
    const { code, stdout, stderr } = await run(args, { COLUMNS: '100' });
    expect({ code, stderr }).toEqual({ code: 0, stderr: '' });
    expect(stdout).toMatch(/\nblk\.0\.ffn_gate\.weight +F16 +4×256 +2\.05 kB +2\.05 kB +kept: by a rule\n/);
    expect(stdout).toMatch(/\nblk\.0\.ffn_up\.weight +F16 → Q8_0 +4×256 +2\.05 kB +1\.09 kB +\d\d\.\d\d +\d\.\de-\d\n/);
    expect(stdout).toMatch(/\nwrote model-Q4_K_M\.gguf\n$/);
    const rules = [
      { match: /ffn_up/, to: 'Q8_0' },
      { match: /ffn_gate/, keep: true },
    ] as const;
    const result = await quantizeModel(file, { to: 'Q4_K_M', rules });
    expect(await readFile(path('model-Q4_K_M.gguf'))).toEqual(Buffer.from(await result.bytes()));
    expect((await readdir(path())).sort()).toEqual(['model-Q4_K_M.gguf', 'model.gguf']);

    const pure = await quantizeModel(file, { to: 'Q4_K_M', pure: true });
    await run(['quantize', 'model.gguf', '--to', 'Q4_K', '--pure', '-o', 'pure.gguf']);
    expect(await readFile(path('pure.gguf'))).toEqual(Buffer.from(await pure.bytes()));
  });

  it('tells of an alignment that misleads, and can correct it', async () => {
    await writeFile(path('model.gguf'), tinyLlama({ alignment: 4096 }));
    const args = ['quantize', 'model.gguf', '--to', 'Q8_0', '--force'];
    expect((await run(args)).stderr).toMatch(
      /^scalepoint: general\.alignment says 4096, .* --fix-alignment states 32\n$/,
    );
    expect((await run([...args, '--quiet'])).stderr).toBe('');
    expect((await run([...args, '--fix-alignment'])).stderr).toBe('');
    expect((await inspectModel(path('model-Q8_0.gguf'))).tensors).toHaveLength(21);
  });

  it('takes every option of safetensors', async () => {
    await putModel();
    const file = await readFile(path('model.safetensors'));
    const groups = { kind: 'per-group', groupSize: 16 } as const;
    const cases: [string[], Omit<Parameters<typeof quantizeModel>[1], 'output'>][] = [
      [['int8', '--scheme', 'asymmetric'], { to: 'int8', scheme: 'asymmetric' }],
      [['int8', '--packed'], { to: 'int8', packed: true }],
      [
        ['int8', '--activations', 'int8-dynamic', '--plain'],
        { to: 'int8', packed: false, activations: 'int8-dynamic' },
      ],
      [['int8', '--all', '--requantize'], { to: 'int8', include: 'all', requantize: true }],
      [['int8', '--range', 'min-max'], { to: 'int8' }],
      [['int4', '--range', 'mse', '--group-size', '16'], { to: 'int4', range: 'mse', granularity: groups }],
      [['int8', '--range', 'entropy'], { to: 'int8', range: 'entropy' }],
      [['int8', '--range', 'percentile:99.5'], { to: 'int8', range: { percentile: 99.5 } }],
      [['INT8', '--activations', 'int8-dynamic'], { to: 'int8', activations: 'int8-dynamic' }],
      [['int4', '--group-size', '16'], { to: 'int4', granularity: groups }],
      [['int4', '--granularity', 'per-group', '--group-size', '16'], { to: 'int4', granularity: groups }],
      [
        ['int8', '--granularity', 'per-group', '--group-size', '16', '--rule', 'embed=int8'],
        {
          to: 'int8',
          granularity: groups,
          rules: [{ match: /embed/, to: 'int8' }],
        },
      ],
      [['float16'], { to: 'float16' }],
      [['bfloat16', '--rule', 'layers=Float16'], { to: 'bfloat16', rules: [{ match: /layers/, to: 'float16' }] }],
    ];
    await Promise.all(
      cases.map(async ([[to = '', ...options], expected], i) => {
        const args = ['quantize', 'model.safetensors', '--to', to, '-o', `${i}.safetensors`, ...options];
        expect(await run(args), args.join(' ')).toMatchObject({ code: 0, stderr: '' });
        const { bytes, config } = await quantizeModel(file, expected);
        expect(await readFile(path(`${i}.safetensors`)), args.join(' ')).toEqual(Buffer.from(await bytes()));
        const written = await readFile(path(`${i}.config.json`), 'utf8').catch(() => undefined);
        expect(written === undefined ? undefined : JSON.parse(written), args.join(' ')).toEqual(config);
      }),
    );
  });

  it('writes the same bytes with any number of workers', async () => {
    // 4 MiB: several tiles.
    await put('model.safetensors', { 'w.weight': [[64, 2 ** 14], wave] });
    const outputs = ['0', '1', '3'].map((workers) => `${workers}.safetensors`);
    for (const output of outputs) {
      const args = ['quantize', 'model.safetensors', '--to', 'int4', '-o', output, '--workers', output.charAt(0)];
      expect((await run(args)).code).toBe(0);
    }
    const [none, ...others] = await Promise.all(outputs.map((output) => readFile(path(output))));
    for (const other of others) expect(other.equals(none as Buffer)).toBe(true);
  });

  it('reads a sharded model by its index', async () => {
    await put('model-00001-of-00002.safetensors', { 'a.weight': [[16, 32], wave] });
    await put('model-00002-of-00002.safetensors', { 'b.weight': [[16, 32], wave], 'b.bias': [[16], wave] });
    const shard = (i: number) => `model-0000${i}-of-00002.safetensors`;
    const index = { weight_map: { 'a.weight': shard(1), 'b.weight': shard(2), 'b.bias': shard(2) } };
    await writeFile(path('model.safetensors.index.json'), JSON.stringify(index));
    expect((await run(['inspect', 'model.safetensors.index.json'])).stdout).toMatch(
      /^model\.safetensors\.index\.json: safetensors, 2 files, 3 tensors, 1,040 elements, /,
    );
    expect((await run(['quantize', 'model.safetensors.index.json', '--to', 'int8'])).code).toBe(0);
    const { tensors } = await inspectModel(path('model.int8.safetensors'));
    expect(tensors.map(({ name }) => name).sort()).toEqual([
      'a.weight_packed',
      'a.weight_scale',
      'a.weight_shape',
      'b.bias',
      'b.weight_packed',
      'b.weight_scale',
      'b.weight_shape',
    ]);
  });

  it('tells time and memory with --verbose, and of an error where it arose', async () => {
    await putModel();
    const { stdout } = await run(['quantize', 'model.safetensors', '--to', 'int8', '--verbose']);
    expect(stdout).toMatch(/\ntook \d+\.\d s, peak memory \d+(\.\d)? MB\nwrote model\.int8\.safetensors\n/);
    await writeFile(path('bad'), 'nothing');
    const { stderr } = await run(['quantize', 'bad', '--to', 'int8', '--verbose']);
    expect(stderr).toMatch(/^scalepoint: bad: [^\n]+\nScalepointError: [^\n]+\n {4}at /);
    expect((await run(['quantize', 'bad', '--to', 'int8'])).stderr).toMatch(/^[^\n]+\n$/);
  });

  it('prints an interruption with --json as well', async () => {
    await putZeros('big.safetensors', 2 ** 31);
    const { child, outcome } = await start(['quantize', 'big.safetensors', '--to', 'int8', '--json']);
    await expect.poll(() => readdir(path()), { interval: 5 }).toHaveLength(2);
    child.kill('SIGINT');
    const { code, stdout } = await outcome;
    expect(code).toBe(130);
    expect(JSON.parse(stdout)).toEqual({
      error: { code: 'ABORTED', message: 'interrupted, nothing was written' },
    });
  });

  it.runIf(process.platform === 'linux')('shows on a terminal how far it is', async () => {
    await putZeros('big.safetensors', 2 ** 28);
    const command = `stty cols 70; '${process.execPath}' '${programFile()}' quantize big.safetensors --to int8 --workers 0`;
    const child = spawn('script', ['-qec', command, '/dev/null'], {
      cwd: path(),
      stdio: ['ignore', 'pipe', 'inherit'],
    });
    let text = '';
    child.stdout.setEncoding('utf8').on('data', (part: string) => {
      text += part;
    });
    expect(await new Promise((resolve) => child.on('close', resolve))).toBe(0);
    const [first = '', ...lines] = text.split('\r\u001b[2K');
    expect(first).toBe('');
    // Drawn while it worked, and taken away at the end.
    expect(lines.length).toBeGreaterThan(2);
    const percents = lines.slice(0, -1).map((line) => {
      expect(line).toMatch(/^ *\d+% [█░]{20} (\d|\d\d|\d\d\d|\d\.\d\d|\d\d\.\d) ([kMG]?B) of 268 MB /);
      expect(line.length).toBeLessThan(70);
      return Number.parseInt(line, 10);
    });
    expect(percents).toEqual([...percents].sort((a, b) => a - b));
    expect(lines.at(-1)).toMatch(/^\S*tensor/);
  });
});

describe('the configuration of integers', () => {
  const quantizeTo = (output: string, ...more: string[]) =>
    run(['quantize', 'model.safetensors', '--to', 'int8', '-o', output, ...more]);

  it('stands beside the model: config.json for model.safetensors, with a name of its own for others', async () => {
    await putModel();
    await mkdir(path('out'));
    for (const [output, name] of [
      ['out/model.safetensors', 'out/config.json'],
      ['out/small.safetensors', 'out/small.config.json'],
      ['out/small', 'out/small.config.json'],
    ] as const) {
      expect((await quantizeTo(output, '--force')).stdout).toContain(`wrote ${output}\nwrote ${name}\n`);
      const { quantizationConfig } = await planModel(path('model.safetensors'), { to: 'int8' });
      expect(JSON.parse(await readFile(path(name), 'utf8'))).toEqual({
        quantization_config: quantizationConfig,
      });
    }
    expect((await readdir(path('out'))).sort()).toEqual([
      'config.json',
      'model.safetensors',
      'small',
      'small.config.json',
      'small.safetensors',
    ]);
  });

  it('never stays behind from another run', async () => {
    await putModel();
    await mkdir(path('out'));
    const output = join('out', 'model.safetensors');
    const to = (target: string, ...more: string[]) =>
      run(['quantize', 'model.safetensors', '--to', target, '-o', output, '--workers', '0', '--quiet', ...more]);
    const config = path('out', 'config.json');
    await writeFile(path('c.json'), '{\n  "eps": 1e-05,\n  "hidden_size": 64\n}\n');
    expect((await to('int8', '--config', 'c.json')).code).toBe(0);
    expect(JSON.parse(await readFile(config, 'utf8'))).toHaveProperty('quantization_config');
    // Also where the model itself is gone.
    await rm(path(output));
    expect(await to('float16')).toEqual({
      code: 1,
      stdout: '',
      stderr:
        'scalepoint: "out/config.json" exists already, with the quantization_config of another result; --force replaces it\n',
    });
    expect(await readdir(path('out'))).toEqual(['config.json']);
    const told = await run(['quantize', 'model.safetensors', '--to', 'float16', '-o', output, '--force']);
    expect(told).toMatchObject({
      code: 0,
      stderr: 'scalepoint: took the quantization_config out of out/config.json: the result has none\n',
    });
    expect(told.stdout).toMatch(/\nwrote out\/model\.safetensors\nwrote out\/config\.json\n$/);
    expect(await readFile(config, 'utf8')).toBe('{\n  "eps": 1e-05,\n  "hidden_size": 64\n}\n');
    // One that has none is left alone, as is one that is no JSON.
    expect((await to('bfloat16', '--force')).code).toBe(0);
    expect(await readFile(config, 'utf8')).toBe('{\n  "eps": 1e-05,\n  "hidden_size": 64\n}\n');
    await writeFile(config, 'mine');
    expect((await to('bfloat16', '--force')).code).toBe(0);
    expect(await readFile(config, 'utf8')).toBe('mine');
  });

  it('has a file of its own for older loaders of GPTQ and AWQ, which never stays behind', async () => {
    await put('model.safetensors', { 'layers.0.weight': [[32, 128], wave] });
    await mkdir(path('out'));
    const to = (target: string, output: string, ...more: string[]) =>
      run(['model.safetensors', '--to', target, '-o', join('out', output), '--workers', '0', ...more]);
    const files = async () => (await readdir(path('out'))).sort().filter((name) => name.includes('config'));
    const gptq = await to('gptq', 'model.safetensors');
    expect(gptq).toMatchObject({ code: 0, stderr: '' });
    expect(gptq.stdout).toMatch(/\nwrote out\/config\.json\nwrote out\/quantize_config\.json\n$/);
    const { quantizeConfig } = await planModel(path('model.safetensors'), { to: 'gptq' });
    expect(JSON.parse(await readFile(path('out', 'quantize_config.json'), 'utf8'))).toEqual(quantizeConfig);
    // Another name, JSON, and a plan.
    expect((await to('gptq', 'small.safetensors', '--json')).stdout).toContain('"out/small.quantize_config.json"');
    const plan = await run(['plan', 'model.safetensors', '--to', 'gptq', '--json']);
    expect(JSON.parse(plan.stdout)).toMatchObject({ quantizeConfig });
    expect((await to('int8', 'x.safetensors', '--json')).stdout).not.toContain('quantizeConfig');
    await Promise.all((await files()).filter((name) => /small|x/.test(name)).map((name) => rm(path('out', name))));
    // The next result in its place.
    await rm(path('out', 'model.safetensors'));
    await rm(path('out', 'config.json'));
    expect(await to('awq', 'model.safetensors')).toMatchObject({
      code: 1,
      stderr:
        'scalepoint: "out/quantize_config.json" exists already, with the quantize_config of another result; --force replaces it\n',
    });
    expect(await to('awq', 'model.safetensors', '--force')).toMatchObject({
      code: 0,
      stderr: 'scalepoint: removed out/quantize_config.json: the result has none\n',
    });
    expect(await files()).toEqual(['config.json', 'quant_config.json']);
    // A file of another kind under the name stays.
    await writeFile(path('out', 'quantize_config.json'), '{"mine": 1}');
    expect(await to('int8', 'model.safetensors', '--force')).toMatchObject({ code: 0 });
    expect(await files()).toEqual(['config.json', 'quantize_config.json']);
  });

  it('never stays behind beside a copy of floats, and stays beside one of codes', async () => {
    await putModel();
    await mkdir(path('out'));
    const to = (target: string, file: string, output: string, ...more: string[]) =>
      run([file, '--to', target, '-o', output, '--workers', '0', '--quiet', ...more]);
    const output = join('out', 'model.safetensors');
    expect((await to('int8', 'model.safetensors', output)).code).toBe(0);
    const config = await readFile(path('out', 'config.json'), 'utf8');
    // The codes themselves, here and into the folder.
    await rename(path(output), path('codes.safetensors'));
    expect(await to('copy', 'codes.safetensors', output)).toMatchObject({ code: 0, stderr: '' });
    expect(await readFile(path('out', 'config.json'), 'utf8')).toBe(config);
    await rm(path(output));
    expect((await to('copy', 'model.safetensors', output)).stderr).toMatch(/with the quantization_config of another/);
    expect(await to('copy', 'model.safetensors', output, '--force')).toMatchObject({ code: 0 });
    expect(await readFile(path('out', 'config.json'), 'utf8')).toBe('{}\n');
    // A copy in the same folder is of the same model.
    await writeFile(path('out', 'config.json'), config);
    await rename(path(output), path('out', 'whole.safetensors'));
    expect(await to('copy', join('out', 'whole.safetensors'), output)).toMatchObject({ code: 0, stderr: '' });
    expect(await readFile(path('out', 'config.json'), 'utf8')).toBe(config);
  });

  it('loses its entry where codes become floats', async () => {
    await putModel();
    await writeFile(path('c.json'), '{"eps": 1e-05}');
    expect((await run(['quantize', 'model.safetensors', '--to', 'int8', '--config', 'c.json'])).code).toBe(0);
    const again = [
      'quantize',
      'model.int8.safetensors',
      '--to',
      'float16',
      '-o',
      'back',
      '--config',
      'model.int8.config.json',
    ];
    expect((await run(again)).stderr).toMatch(
      /it is quantized already \(compressed-tensors\); --requantize starts from/,
    );
    expect(await run([...again, '--requantize'])).toMatchObject({
      code: 0,
      stderr: expect.stringMatching(/^scalepoint: a weight was quantized before \(compressed-tensors, I8\): [^\n]*\n$/),
    });
    expect(await readFile(path('back.config.json'), 'utf8')).toBe('{\n  "eps": 1e-05\n}\n');
  });

  it('holds all of a given config.json, numbers as they are spelled', async () => {
    await putModel();
    // As Python writes it: 1.0 is no integer there, and 2^70 fits.
    const given =
      '{"eps": 1e-05, "one": 1.0, "big": 1180591620717411303424, "text": "\\"2.0\\" 3.0", "list": [-0.50, 1E2, {"__proto__": 7}],' +
      '"quantization_config": {"quant_method": "compressed-tensors"}, "none": null}';
    await writeFile(path('given.json'), `\u{feff}${given}`);
    expect(await quantizeTo('small.safetensors', '--config', 'given.json')).toMatchObject({ code: 0, stderr: '' });
    const text = await readFile(path('small.config.json'), 'utf8');
    expect(text.split('"quantization_config"')[0]).toBe(
      `${[
        '{',
        '  "eps": 1e-05,',
        '  "one": 1.0,',
        '  "big": 1180591620717411303424,',
        '  "text": "\\"2.0\\" 3.0",',
        '  "list": [',
        '    -0.50,',
        '    1E2,',
        '    {',
        '      "__proto__": 7',
        '    }',
        '  ],',
        '  "none": null,',
      ].join('\n')}\n  `,
    );
    const { quantizationConfig } = await planModel(path('model.safetensors'), { to: 'int8' });
    expect(JSON.parse(text).quantization_config).toEqual(quantizationConfig);
    expect(await readFile(path('given.json'), 'utf8')).toBe(`\u{feff}${given}`);
  });

  it('is refused before any work if it is none, or tells of another quantization', async () => {
    await putModel();
    const cases: [string, RegExp][] = [
      ['{\n  "a": 01}', /^scalepoint: c\.json: it is not JSON: line 2, column 9: expected ',' or '}', got '1'\n$/],
      ['[]', /^scalepoint: c\.json: expected a JSON object\n$/],
      ['{"quantization_config": {"quant_method": "gptq"}}', /^scalepoint: c\.json: .*quantized already, by "gptq"\n$/],
    ];
    for (const [text, message] of cases) {
      await writeFile(path('c.json'), text);
      const { code, stderr } = await quantizeTo('out', '--config', 'c.json');
      expect({ code, stderr }).toEqual({ code: 1, stderr: expect.stringMatching(message) });
    }
    expect((await quantizeTo('out', '--config', 'none.json')).stderr).toBe(
      'scalepoint: cannot read "none.json": no such file or directory\n',
    );
    expect((await readdir(path())).sort()).toEqual(['c.json', 'model.safetensors']);
  });

  it('may tell of the quantization that --requantize starts from', async () => {
    const weight = {
      dtype: 'F32',
      shape: [64, 128],
      data: new Float32Array(64 * 128).map((_, i) => Math.sin(i)),
    } as const;
    await writeFile(path('model.safetensors'), safetensors({ 'layers.0.mlp.down_proj.weight': weight }));
    await writeFile(path('config.json'), '{"model_type": "llama"}');
    const first = await run(['quantize', 'model.safetensors', '--to', 'gptq', '-o', 'g.safetensors']);
    expect(first).toMatchObject({ code: 0 });
    expect(JSON.parse(await readFile(path('g.config.json'), 'utf8')).quantization_config.quant_method).toBe('gptq');
    const config = ['--requantize', '--config', 'g.config.json'];
    expect(await run(['quantize', 'g.safetensors', '--to', 'int8', ...config, '-o', 'i.safetensors'])).toMatchObject({
      code: 0,
    });
    const { quantization_config, ...rest } = JSON.parse(await readFile(path('i.config.json'), 'utf8'));
    expect([quantization_config.quant_method, rest]).toEqual(['compressed-tensors', { model_type: 'llama' }]);
    // The result of floats has none.
    expect(
      await run(['quantize', 'g.safetensors', '--to', 'bfloat16', ...config, '-o', 'b.safetensors']),
    ).toMatchObject({ code: 0 });
    expect(JSON.parse(await readFile(path('b.config.json'), 'utf8'))).toEqual({ model_type: 'llama' });
  });

  it('does not replace a file without --force, and says so before any work', async () => {
    await putModel();
    await writeFile(path('out.config.json'), 'mine');
    expect(await quantizeTo('out.safetensors')).toEqual({
      code: 1,
      stdout: '',
      stderr: 'scalepoint: "out.config.json" exists already; --force replaces it\n',
    });
    expect((await readdir(path())).sort()).toEqual(['model.safetensors', 'out.config.json']);
    expect((await quantizeTo('out.safetensors', '--force')).code).toBe(0);
    expect(JSON.parse(await readFile(path('out.config.json'), 'utf8'))).toHaveProperty('quantization_config');
  });

  it('fails with exit code 1 if it cannot be written, and says that the model was', async () => {
    await putModel();
    // The longest name that file systems take leaves no room for ".config.json".
    const output = 'x'.repeat(255);
    const { code, stdout, stderr } = await quantizeTo(output);
    expect({ code, stdout }).toEqual({ code: 1, stdout: '' });
    expect(stderr).toMatch(
      /^scalepoint: cannot write "x+\.config\.json": .*; the model was written to "x+", but loaders need the configuration\n$/,
    );
    expect((await readdir(path())).sort()).toEqual(['model.safetensors', output]);
  });

  it('is not written where nothing became integers', async () => {
    await putModel();
    await writeFile(path('c.json'), '{}');
    const args = ['quantize', 'model.safetensors', '--to', 'float16', '-o', 'half.safetensors', '--config', 'c.json'];
    const { code, stderr } = await run(args);
    expect({ code, stderr }).toEqual({
      code: 0,
      stderr: 'scalepoint: no quantization_config is needed, c.json was not used\n',
    });
    expect((await readdir(path())).sort()).toEqual(['c.json', 'half.safetensors', 'model.safetensors']);
  });
});

describe('scalepoint plan', () => {
  it('tells what quantize will do, and writes nothing', async () => {
    await putModel();
    const args = ['model.safetensors', '--to', 'int8', '--rule', 'nothing=keep'];
    const { code, stdout, stderr } = await run(['plan', ...args]);
    expect({ code, stderr }).toEqual({ code: 0, stderr: 'scalepoint: no tensor matches the rule nothing\n' });
    expect(await readdir(path())).toEqual(['model.safetensors']);
    await run(['quantize', ...args]);
    const { size } = await stat(path('model.int8.safetensors'));
    expect(stdout.split('\n')).toEqual([
      'tensor               dtype     shape    before  after  kept because',
      'embed_tokens.weight  F32       8×16      512 B  512 B  embedding',
      'layers.0.weight      F32 → I8  16×32   2.05 kB  592 B',
      'layers.0.bias        F32       16         64 B   64 B  bias',
      'steps                I64       scalar      8 B    8 B  not a float',
      '',
      'model.safetensors: 4 tensors, 1 quantized, 3 kept',
      expect.stringMatching(/^\d\.\d\d kB → \d\.\d\d kB, ratio \d\.\d\d, \d+\.\d\d bits per weight$/),
      `would write model.int8.safetensors: ${size.toLocaleString('en')} bytes`,
      'would write model.int8.config.json',
      '',
    ]);
  });

  it('prints with --json what planModel gives, as quantize --dry-run does', async () => {
    const file = tinyLlama();
    await writeFile(path('model.gguf'), file);
    const args = ['model.gguf', '--to', 'Q4_K_M', '--json'];
    const planned = JSON.parse((await run(['plan', ...args])).stdout);
    const plan = await planModel(file, { to: 'Q4_K_M' });
    const peak = { peakBytes: expect.any(Number) };
    expect(planned).toEqual({
      file: 'model.gguf',
      output: 'model-Q4_K_M.gguf',
      ...plan,
      files: [{ name: 'model-Q4_K_M.gguf', bytes: plan.totals.bytesAfter }],
      quantizationConfig: null,
      ...peak,
    });
    const dry = JSON.parse((await run(['quantize', ...args, '--dry-run', '--min-sqnr', '20'])).stdout);
    expect(dry).toEqual({ ...planned, ...peak });
    expect(await readdir(path())).toEqual(['model.gguf']);
  });

  it('needs neither wasm nor workers, nor does inspect', async () => {
    await putModel();
    const bare = path('bare');
    await mkdir(bare);
    await writeFile(join(bare, 'package.json'), '{"type":"module"}');
    for (const name of await readdir(program)) {
      if (/^(cli|chunk-.*)\.js$/.test(name)) await copyFile(join(program, name), join(bare, name));
    }
    for (const args of [
      ['inspect', 'model.safetensors'],
      ['plan', 'model.safetensors', '--to', 'int8'],
    ]) {
      expect(await (await start(args, { place: bare })).outcome, args[0]).toMatchObject({ code: 0, stderr: '' });
    }
    const quantize = await start(['quantize', 'model.safetensors', '--to', 'int8'], { place: bare });
    expect(await quantize.outcome).toMatchObject({ code: 1 });
  });
});

describe('scalepoint compare', () => {
  const putPair = async () => {
    await put('a.safetensors', {
      good: [[4, 4], wave],
      bad: [[4, 4], wave],
      same: [[4, 4], wave],
      'only a': [[2], wave],
      shape: [[2], wave],
      steps: [[], () => 3n],
    });
    await put('b.safetensors', {
      good: [[4, 4], (i) => wave(i) * (1 + 2 ** -10)],
      bad: [[4, 4], (i) => wave(i) * (1 + 2 ** -5)],
      same: [[4, 4], wave],
      shape: [[1, 2], wave],
      steps: [[], () => 3n],
      'only b': [[2], wave],
    });
  };

  it('prints the errors of every tensor, and what could not be compared', async () => {
    await putPair();
    const { code, stdout, stderr } = await run(['compare', 'a.safetensors', 'b.safetensors']);
    expect({ code, stderr }).toEqual({ code: 0, stderr: '' });
    // A factor of 1 + e has an SQNR of -20 log10(e), up to the rounding of the products to float32: 60.206 and 30.103 dB.
    expect(stdout.split('\n')).toEqual([
      'tensor  dtype  shape  SQNR dB    cosine  max error',
      expect.stringMatching(/^good {4}F32 {4}4×4 {6}60\.2[01] {2}1\.000000 {5}\d\.\de-4$/),
      expect.stringMatching(/^bad {5}F32 {4}4×4 {6}30\.10 {2}1\.000000 {5}\d\.\de-2$/),
      'same    F32    4×4      exact  1.000000          0',
      '',
      'a.safetensors and b.safetensors: 3 tensors compared',
      expect.stringMatching(/^SQNR 34\.8\d dB, cosine 0\.99\d{4}, max error \d\.\de-2$/),
      expect.stringMatching(/^lowest SQNR 30\.10 dB: bad$/),
      'not compared: shape: shapes 2 and 1×2',
      expect.stringMatching(/^not compared: steps: I64 /),
      'only in a.safetensors: only a',
      'only in b.safetensors: only b',
      '',
    ]);
    const names = (text: string) =>
      text
        .split('\n')
        .slice(1, 4)
        .map((line) => line.split(' ')[0]);
    expect(names((await run(['compare', 'a.safetensors', 'b.safetensors', '--sort', 'sqnr'])).stdout)).toEqual([
      'bad',
      'good',
      'same',
    ]);
  });

  it('prints with --json what compareModels gives', async () => {
    await putPair();
    const { stdout } = await run(['compare', 'a.safetensors', 'b.safetensors', '--json']);
    const report = await compareModels(path('a.safetensors'), path('b.safetensors'));
    // JSON has no Infinity.
    const expected = JSON.parse(JSON.stringify(report));
    expect(JSON.parse(stdout)).toEqual({
      a: 'a.safetensors',
      b: 'b.safetensors',
      ...expected,
      peakBytes: expect.any(Number),
    });
  });

  it('fails if an SQNR is lower than wanted, or nothing can be compared', async () => {
    await put('a.safetensors', { good: [[4, 4], wave], bad: [[4, 4], wave], steps: [[], () => 3n] });
    await put('b.safetensors', {
      good: [[4, 4], wave],
      bad: [[4, 4], (i) => wave(i) * (1 + 2 ** -5)],
      steps: [[], () => 4n],
    });
    const args = ['compare', 'a.safetensors', 'b.safetensors', '--min-sqnr'];
    // Integers of the same type in both are no floats, and no matter of quality.
    expect(await run([...args, '30', '--quiet'])).toEqual({ code: 0, stdout: '', stderr: '' });
    const { code, stdout, stderr } = await run([...args, '31']);
    expect({ code, stderr }).toEqual({ code: 1, stderr: 'scalepoint: SQNR below 31 dB: "bad" (30.10 dB)\n' });
    expect(stdout).toMatch(/2 tensors compared/);
    const json = JSON.parse((await run([...args, '31', '--json'])).stdout);
    expect(json.tensors).toHaveLength(2);
    expect(json.error).toEqual({ code: 'QUALITY', message: 'SQNR below 31 dB: "bad" (30.10 dB)', tensor: 'bad' });

    await put('c.safetensors', { steps: [[], () => 3n] });
    expect(await run(['compare', 'c.safetensors', 'c.safetensors', '--min-sqnr', '1', '--quiet'])).toEqual({
      code: 1,
      stdout: '',
      stderr: 'scalepoint: the models have no tensors to compare\n',
    });
    expect((await run(['compare', 'a.safetensors', 'c.safetensors'])).code).toBe(0);
  });

  it('fails with a gate if a tensor is missing, has another shape, or NaN where the other is finite', async () => {
    const models: Record<string, [Parameters<typeof put>[1], string]> = {
      missing: [{ good: [[4, 4], wave] }, 'only in A: "more"'],
      added: [{ good: [[4, 4], wave], more: [[4], wave], other: [[4], wave] }, 'only in B: "other"'],
      shape: [{ good: [[4, 4], wave], more: [[2, 2], wave] }, 'of another shape or type: "more"'],
      type: [{ good: [[4, 4], wave], more: [[4], (i) => BigInt(i)] }, 'of another shape or type: "more"'],
      nan: [
        { good: [[4, 4], (i) => (i === 5 ? Number.NaN : wave(i))], more: [[4], wave] },
        'NaN or infinite, and not the same in both: "good"',
      ],
      infinity: [
        { good: [[4, 4], wave], more: [[4], (i) => (i === 3 ? -Infinity : wave(i))] },
        'NaN or infinite, and not the same in both: "more"',
      ],
      both: [{ more: [[2], wave] }, 'only in A: "good"; of another shape or type: "more"'],
    };
    await put('a.safetensors', { good: [[4, 4], wave], more: [[4], wave] });
    for (const [name, [tensors, message]] of Object.entries(models)) {
      await put('b.safetensors', tensors);
      const { code, stdout, stderr } = await run([
        'compare',
        'a.safetensors',
        'b.safetensors',
        '--min-sqnr',
        '10',
        '--workers',
        '0',
      ]);
      expect({ code, stderr }, name).toEqual({ code: 1, stderr: `scalepoint: ${message}\n` });
      if (name === 'nan') expect(stdout).toContain('NaN or infinite, and not the same in both: good, 1 element\n');
      // Without a gate it is told, and nothing more.
      expect((await run(['compare', 'a.safetensors', 'b.safetensors', '--workers', '0'])).code).toBe(0);
    }
    // Nor are two infinities of different signs, or one of them and NaN, the same.
    for (const [a, b] of [
      [Infinity, -Infinity],
      [-Infinity, Number.NaN],
      [Number.NaN, Infinity],
    ]) {
      await put('a.safetensors', { good: [[4, 4], (i) => (i === 5 ? (a as number) : wave(i))] });
      await put('b.safetensors', { good: [[4, 4], (i) => (i === 5 ? (b as number) : wave(i))] });
      for (const workers of ['0', '1']) {
        const gate = ['--min-sqnr', '10', '--workers', workers, '--quiet'];
        expect(await run(['compare', 'a.safetensors', 'b.safetensors', ...gate])).toEqual({
          code: 1,
          stdout: '',
          stderr: 'scalepoint: NaN or infinite, and not the same in both: "good"\n',
        });
      }
    }
    // NaN at the same place in both is no difference.
    const holes = (i: number) => (i === 2 ? Number.NaN : i === 3 ? Infinity : wave(i));
    await put('a.safetensors', { good: [[4, 4], holes] });
    expect((await run(['compare', 'a.safetensors', 'a.safetensors', '--min-sqnr', '10'])).code).toBe(0);
  });

  it('takes codes with their scales and blocks for what they stand for', async () => {
    await putModel();
    await writeFile(path('model.gguf'), tinyLlama());
    for (const [file, to, output] of [
      ['model.safetensors', 'int8', 'model.int8.safetensors'],
      ['model.gguf', 'Q8_0', 'model-Q8_0.gguf'],
    ] as const) {
      const { tensors } = JSON.parse((await run(['quantize', file, '--to', to, '--json'])).stdout);
      const compared = JSON.parse((await run(['compare', file, output, '--json', '--workers', '1'])).stdout);
      const errors = new Map(compared.tensors.map(({ name, error }: { name: string; error: object }) => [name, error]));
      for (const { name, error } of tensors) if (error !== undefined) expect(errors.get(name)).toEqual(error);
    }
  });

  it('says which of the two has an error', async () => {
    await putModel();
    await writeFile(path('bad'), 'nothing');
    for (const args of [
      ['model.safetensors', 'bad'],
      ['bad', 'model.safetensors'],
    ]) {
      const { code, stderr } = await run(['compare', ...args]);
      expect({ code, stderr }).toEqual({
        code: 1,
        stderr: expect.stringMatching(/^scalepoint: bad: the file begins /),
      });
    }
  });
});
