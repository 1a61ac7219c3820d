import { type ChildProcess, spawn } from 'node:child_process';
import { copyFile, mkdtemp, open, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { rolldown } from 'rolldown';
import { compareModels, inspectModel, planModel, quantizeModel } from 'scalepoint/model';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { everyPair, tinyLlama } from './tiny-llama.js';

const source = fileURLToPath(new URL('../../web/src/', import.meta.url));
const samples = process.env.SCALEPOINT_SAMPLES;

let program = '';
beforeAll(async () => {
  program = await mkdtemp(join(tmpdir(), 'scalepoint-cli-'));
  const bundle = await rolldown({ input: { cli: join(source, 'cli.ts') }, platform: 'node' });
  await bundle.write({ dir: program, format: 'esm', entryFileNames: '[name].mjs', chunkFileNames: '[name].mjs' });
  await bundle.close();
  for (const tier of ['simd', 'scalar'])
    await copyFile(join(source, `core-${tier}.wasm`), join(program, `core-${tier}.wasm`));
  await copyFile(join(source, 'model/worker.js'), join(program, 'worker.js'));
}, 60_000);
afterAll(() => rm(program, { recursive: true, force: true }));

let folder = '';
beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'scalepoint-files-'));
});
afterEach(() => rm(folder, { recursive: true, force: true }));

interface Outcome {
  readonly code: number | null;
  readonly stdout: string;
  readonly stderr: string;
}

function start(
  args: readonly string[],
  env: Record<string, string> = {},
): { child: ChildProcess; outcome: Promise<Outcome> } {
  const { PATH = '' } = process.env;
  const child = spawn(process.execPath, [join(program, 'cli.mjs'), ...args], { cwd: folder, env: { PATH, ...env } });
  const texts = { stdout: '', stderr: '' };
  for (const name of ['stdout', 'stderr'] as const) {
    child[name].setEncoding('utf8').on('data', (text: string) => {
      texts[name] += text;
    });
  }
  const outcome = new Promise<Outcome>((resolve) => child.on('close', (code) => resolve({ code, ...texts })));
  return { child, outcome };
}

/** Runs the program in the test's folder. */
const run = (args: readonly string[], env?: Record<string, string>) => start(args, env).outcome;

/** A safetensors file of F32 tensors; of I64 where the data are bigints. */
async function put(
  name: string,
  tensors: Record<string, [number[], (i: number) => number | bigint]>,
  metadata?: object,
) {
  const header: Record<string, unknown> = metadata === undefined ? {} : { __metadata__: metadata };
  const parts: Uint8Array[] = [];
  let offset = 0;
  for (const [tensor, [shape, value]] of Object.entries(tensors)) {
    const values = Array.from({ length: shape.reduce((a, b) => a * b, 1) }, (_, i) => value(i));
    const isInteger = typeof values[0] === 'bigint';
    const array = isInteger ? BigInt64Array.from(values as bigint[]) : Float32Array.from(values as number[]);
    parts.push(new Uint8Array(array.buffer));
    header[tensor] = { dtype: isInteger ? 'I64' : 'F32', shape, data_offsets: [offset, offset + array.byteLength] };
    offset += array.byteLength;
  }
  const json = Buffer.from(JSON.stringify(header));
  const length = Buffer.alloc(8);
  length.writeBigUInt64LE(BigInt(json.length));
  await writeFile(join(folder, name), Buffer.concat([length, json, ...parts]));
}

/** A safetensors file of one weight, zeros that take no room on the disk: so many bytes of it take time, but no space. */
async function putZeros(name: string, bytes: number) {
  const shape = [2 ** 9, bytes / 2 ** 11];
  const json = Buffer.from(JSON.stringify({ w: { dtype: 'F32', shape, data_offsets: [0, bytes] } }));
  const length = Buffer.alloc(8);
  length.writeBigUInt64LE(BigInt(json.length));
  const file = await open(join(folder, name), 'w');
  await file.write(Buffer.concat([length, json]));
  await file.truncate(8 + json.length + bytes);
  await file.close();
}

const wave = (i: number) => Math.sin(i * 1.7) / (1 + (i % 7));

const putModel = () =>
  put(
    'model.safetensors',
    {
      'embed_tokens.weight': [[8, 16], wave],
      'layers.0.weight': [[16, 32], wave],
      'layers.0.bias': [[16], wave],
      steps: [[], () => 3n],
    },
    { format: 'pt' },
  );

const commands = ['inspect', 'plan', 'quantize', 'compare'];

describe('scalepoint', () => {
  it('explains itself and exits with 0', async () => {
    for (const args of [['--help'], ['-h'], ['help']]) {
      const { code, stdout, stderr } = await run(args);
      expect({ code, stderr }).toEqual({ code: 0, stderr: '' });
      expect(stdout).toMatch(
        /scalepoint inspect {2}FILE[\s\S]*scalepoint plan[\s\S]*scalepoint quantize FILE --to int8[\s\S]*scalepoint compare {2}A B/,
      );
    }
    for (const command of commands) {
      const { code, stdout } = await run([command, '--help']);
      expect(code).toBe(0);
      const files = command === 'compare' ? 'A B' : 'FILE';
      expect(stdout).toMatch(
        new RegExp(`^scalepoint ${command} ${files}[\\s\\S]*\nExamples\n {2}scalepoint ${command} `),
      );
    }
  });

  it('fits its help into 80 columns', async () => {
    for (const args of [['--help'], ...commands.map((command) => [command, '--help'])]) {
      for (const line of (await run(args)).stdout.split('\n')) expect(line.length).toBeLessThanOrEqual(80);
    }
  });

  it('prints its version and that of its core', async () => {
    const { version } = JSON.parse(await readFile(new URL('../../package.json', import.meta.url), 'utf8'));
    const { code, stdout, stderr } = await run(['--version']);
    expect({ code, stderr }).toEqual({ code: 0, stderr: '' });
    expect(stdout).toMatch(
      new RegExp(`^scalepoint ${version.replaceAll('.', '\\.')} \\(core [0-9a-f]+, (SIMD|scalar)\\)\n$`),
    );
  });

  it('exits with 2 and one line if it is used wrongly', async () => {
    await putModel();
    const cases: [string[], RegExp][] = [
      [[], /expected a command, inspect, plan, quantize or compare; see scalepoint --help/],
      [['model.safetensors'], /expected inspect, plan, quantize or compare, got "model.safetensors"/],
      [['inspect'], /inspect needs a FILE; see scalepoint inspect --help/],
      [['inspect', 'a', 'b'], /inspect takes one FILE, got "b" as well/],
      [['inspect', 'a', '--to', 'int8'], /Unknown option '--to'/],
      [['quantize', 'model.safetensors'], /quantize needs --to int8, Q8_0 or/],
      [['quantize', 'model.safetensors', '--to'], /'--to <value>' argument missing/],
      [['quantize', 'model.safetensors', '--to', 'int3'], /--to: expected int8, int4, .* for GGUF, got "int3"/],
      [['quantize', '--to', 'int8'], /quantize needs a FILE/],
      [['quantize', 'model.safetensors', '--to', 'int8', '-o', ''], /--output: expected the name of a file/],
      [['quantize', 'model.safetensors', '--to', 'int8', '-o', '-'], /--output: expected the name of a file/],
      [
        ['quantize', 'model.safetensors', '--to', 'int8', '--rule', 'x'],
        /--rule: expected 'REGEX=TYPE' or 'REGEX=keep', got "x"/,
      ],
      [['quantize', 'model.safetensors', '--to', 'int8', '--rule', '=keep'], /--rule: expected/],
      [['quantize', 'model.safetensors', '--to', 'int8', '--rule', 'x='], /--rule: expected/],
      [
        ['quantize', 'model.safetensors', '--to', 'int8', '--rule', 'y=keep', '--rule', 'x=int3'],
        /--rule "x=int3": expected one of 'int8', .*, got "int3"; see scalepoint quantize --help/,
      ],
      [['plan', 'model.safetensors', '--to', 'q4_0'], /--to: a safetensors file can become int8, .*, not "Q4_0"/],
      [['quantize', 'model.safetensors', '--to', 'int8', '--pure'], /--pure: this option is for GGUF files/],
      [['quantize', 'model.safetensors', '--to', 'int8', '--requantize'], /--requantize: this option is for GGUF/],
      [['quantize', 'model.safetensors', '--to', 'int8', '--fix-alignment'], /--fix-alignment: this option is for GGUF/],
      [['quantize', 'model.safetensors', '--to', 'int8', '--scheme', 'odd'], /--scheme: expected .*, got "odd"/],
      [['quantize', 'model.safetensors', '--to', 'int8', '--granularity', 'x'], /--granularity: expected .*, got "x"/],
      [['quantize', 'model.safetensors', '--to', 'int4', '--group-size', '31'], /--group-size: expected .*, got 31/],
      [['quantize', 'model.safetensors', '--to', 'int4', '--group-size', '-8'], /'--group-size' argument is ambiguous/],
      [['quantize', 'model.safetensors', '--to', 'int4', '--group-size', '1e2'], /--group-size: expected a whole number/],
      [
        ['quantize', 'model.safetensors', '--to', 'int8', '--granularity', 'per-channel', '--group-size', '32'],
        /--group-size: only for --granularity per-group/,
      ],
      [
        ['quantize', 'model.safetensors', '--to', 'int4', '--activations', 'int8-dynamic'],
        /--activations: 'int8-dynamic' needs int8 weights/,
      ],
      [['quantize', 'model.safetensors', '--to', 'int8', '--workers', 'all'], /--workers: expected a whole number/],
      [['quantize', 'model.safetensors', '--to', 'int8', '--workers', '65'], /--workers: expected 0 to 64, got 65/],
      [['quantize', 'm.gguf', '--to', 'Q4_0', '--config', 'c.json'], /--config: this option is for safetensors files/],
      [['plan', 'model.safetensors'], /plan needs --to int8, .*; see scalepoint plan --help/],
      [['compare', 'a'], /compare needs B; see scalepoint compare --help/],
      [['compare'], /compare needs A and B/],
      [['compare', 'a', 'b', 'c'], /compare takes A and B, got "c" as well/],
      [['compare', 'a', 'b', '--sort', 'name'], /--sort: expected file or sqnr, got "name"/],
      [['constructor'], /expected inspect, .*, got "constructor"/],
      [['quantize', 'model.safetensors', '--to', 'int8', '--rule', '(=keep'], /--rule: Invalid regular expression/],
      [
        ['quantize', 'model.safetensors', '--to', 'int8', '--min-sqnr', 'high'],
        /--min-sqnr: expected a number of decibels, got "high"/,
      ],
      [['quantize', 'model.safetensors', '--to', 'int8', '--min-sqnr', ''], /--min-sqnr/],
      [
        ['quantize', 'model.safetensors', '--to', 'int8', '--frce'],
        /Unknown option '--frce'; see scalepoint quantize --help/,
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
    expect(await readdir(folder)).toEqual(['model.safetensors']);
  }, 30_000);
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
    const info = await inspectModel(join(folder, 'model.safetensors'));
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
    const bytes = await readFile(join(folder, 'model.safetensors'));
    await writeFile(
      join(folder, 'bad.safetensors'),
      Buffer.from(bytes.toString('latin1').replace('I64', 'I65'), 'latin1'),
    );
    await writeFile(join(folder, 'page.safetensors'), '<!doctype html>');
    const at = bytes.indexOf('"steps"');
    const cases: [string, string][] = [
      ['bad.safetensors', `scalepoint: bad.safetensors: tensor "steps": dtype "I65" is unknown (byte ${at})\n`],
      ['missing.npy', 'scalepoint: cannot open "missing.npy": no such file or directory\n'],
      ['.', 'scalepoint: cannot read ".": it is no regular file\n'],
    ];
    for (const [file, line] of cases)
      expect(await run(['inspect', file])).toEqual({ code: 1, stdout: '', stderr: line });
    const { stderr } = await run(['inspect', 'page.safetensors']);
    expect(stderr).toMatch(/^scalepoint: page\.safetensors: .*looks like a page of HTML or XML \([^\n]+\n$/);
  });

  it('prints an error with --json on stdout as well', async () => {
    await writeFile(join(folder, 'x'), 'nothing');
    const { code, stdout, stderr } = await run(['inspect', 'x', '--json']);
    expect(code).toBe(1);
    expect(JSON.parse(stdout)).toMatchObject({
      file: 'x',
      error: { code: 'UNKNOWN_FORMAT', message: expect.stringMatching(/6e 6f 74/) },
    });
    expect(stderr).toMatch(/^scalepoint: x: /);
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
        /^layers\.0\.weight {6}F32 → I8 {2}16×32 {3}2\.05 kB {2}576 B {4}\d\d\.\d\d {5}\d\.\de-\d$/,
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
    const { tensors, metadata } = await inspectModel(join(folder, 'model.int8.safetensors'));
    expect(tensors.map(({ name }) => name)).toContain('layers.0.weight_scale');
    expect({ ...metadata }).toEqual({ format: 'pt' });
    expect((await readdir(folder)).sort()).toEqual([
      'model.int8.config.json',
      'model.int8.safetensors',
      'model.safetensors',
    ]);
  });

  it.skipIf(samples === undefined)('keeps its table of a real model within 80 columns', async () => {
    const file = join(samples ?? '', 'silero_vad_16k.safetensors');
    const { code, stdout } = await run(['quantize', file, '--to', 'int8', '-o', 'small.safetensors'], {
      COLUMNS: '80',
    });
    expect(code).toBe(0);
    for (const line of stdout.split('\n')) expect(line.length).toBeLessThanOrEqual(80);
    const rows = stdout.split('\n').slice(1, 16);
    for (const row of rows) expect(row).toMatch(/(kept: bias| \d\d\.\d\d +\d\.\de-\d)$/);
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
      bytesAfter: 576,
      error: { mse: expect.any(Number), sqnrDb: expect.any(Number), cosine: expect.any(Number), nonFinite: 0 },
    });
    expect(report.tensors[0]).toMatchObject({ name: 'embed_tokens.weight', kept: 'embedding' });
  });

  it('prints nothing with --quiet', async () => {
    await putModel();
    const outcome = await run(['quantize', 'model.safetensors', '--to', 'int8', '--quiet']);
    expect(outcome).toEqual({ code: 0, stdout: '', stderr: '' });
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
    expect({ code, stderr }).toEqual({ code: 0, stderr: 'scalepoint: no tensor matches the rule a=b\n' });
    const kept = JSON.parse(stdout).tensors.map(({ kept }: { kept?: string }) => kept);
    expect(kept).toEqual([undefined, 'rule', 'bias', 'not a float']);
  });

  it('does not replace a file without --force', async () => {
    await putModel();
    await writeFile(join(folder, 'out'), 'mine');
    const args = ['quantize', 'model.safetensors', '--to', 'int8', '-o', 'out'];
    expect(await run(args)).toEqual({
      code: 1,
      stdout: '',
      stderr: 'scalepoint: "out" exists already; --force replaces it\n',
    });
    expect(await readFile(join(folder, 'out'), 'utf8')).toBe('mine');
    expect((await run([...args, '--force'])).code).toBe(0);
    expect((await inspectModel(join(folder, 'out'))).format).toBe('safetensors');
    expect((await readdir(folder)).sort()).toEqual(['model.safetensors', 'out', 'out.config.json']);
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
    expect(json).toMatchObject({ file: 'model.safetensors', error: { code: 'QUALITY', tensor: 'layers.0.weight' } });
    expect(json.tensors).toHaveLength(4);
    expect(await readdir(folder)).toEqual(['model.safetensors']);
    expect((await run(['quantize', 'model.safetensors', '--to', 'int8', '--min-sqnr', '20'])).code).toBe(0);
  });

  it('names the tensor and the byte of a NaN and leaves nothing behind', async () => {
    await put('m.safetensors', { w: [[4, 4], (i) => (i === 6 ? Number.NaN : i)] });
    const { size } = { size: (await readFile(join(folder, 'm.safetensors'))).length };
    expect(await run(['quantize', 'm.safetensors', '--to', 'int8'])).toEqual({
      code: 1,
      stdout: '',
      stderr: `scalepoint: m.safetensors: tensor "w" holds NaN at [1, 2]; a rule can keep it (byte ${size - 64 + 24})\n`,
    });
    expect(await readdir(folder)).toEqual(['m.safetensors']);
  });

  it('makes a safetensors file of a .npy file', async () => {
    const header = "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }".padEnd(117);
    const data = Buffer.from(new Float32Array([1, 2, 3, 4, 5, 127]).buffer);
    await writeFile(
      join(folder, 'w.npy'),
      Buffer.concat([Buffer.from(`\x93NUMPY\x01\0\x76\0${header}\n`, 'latin1'), data]),
    );
    expect((await run(['quantize', 'w.npy', '--to', 'int8'])).code).toBe(0);
    const { tensors } = await inspectModel(join(folder, 'w.int8.safetensors'));
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
  ] as const)(
    'removes its partial file at %s and exits with %i, with %s workers',
    async (signal, code, workers) => {
      await putZeros('big.safetensors', 2 ** 31);
      const { child, outcome } = start(['quantize', 'big.safetensors', '--to', 'int8', '--workers', workers]);
      await expect.poll(() => readdir(folder), { timeout: 10_000, interval: 5 }).toHaveLength(2);
      child.kill(signal);
      expect(await outcome).toEqual({ code, stdout: '', stderr: 'scalepoint: interrupted, nothing was written\n' });
      expect(await readdir(folder)).toEqual(['big.safetensors']);
    },
    30_000,
  );

  it('survives a reader that stops reading', async () => {
    const tensors = Object.fromEntries(Array.from({ length: 3000 }, (_, i) => [`tensor.${i}`, [[1], wave]]));
    await put('many.safetensors', tensors as Record<string, [number[], (i: number) => number]>);
    const { child, outcome } = start(['inspect', 'many.safetensors']);
    child.stdout?.destroy();
    expect(await outcome).toMatchObject({ code: 0, stderr: '' });
  });
});
