// Runs that are interrupted, and go on. The oracle is the run that was not interrupted.
import { createHash } from 'node:crypto';
import { mkdir, readdir, readFile, rm, stat, unlink, utimes, writeFile } from 'node:fs/promises';
import { describe, expect, it } from 'vitest';
import { pair, spellings } from '../support/lora.js';
import { safetensors } from '../support/models.js';
import { tinyLlama } from '../support/tiny-llama.js';
import { path, put, run, start, useFolder, wave } from './support.js';

useFolder();

const names = async (folder: string) => (await readdir(path(folder))).sort();
const digest = (bytes: Uint8Array | string) => createHash('sha256').update(bytes).digest('hex');
/** Digests of the files in a folder. */
const contents = async (folder: string) => {
  const all = await names(folder);
  return Object.fromEntries(
    await Promise.all(all.map(async (name) => [name, digest(await readFile(path(folder, name)))])),
  );
};
const identity = async (name: string) => {
  const { ino, mtimeMs } = await stat(path(name));
  return [ino, mtimeMs];
};

/** Four tensors, which become four files. */
const putFour = (value = wave, rows = 8) =>
  put('m.safetensors', Object.fromEntries([0, 1, 2, 3].map((i) => [`layers.${i}.weight`, [[rows, 64], value]])));
const command = (folder: string, ...more: string[]) => [
  ...['m.safetensors', '--to', 'int8', '--shard-size', '600B', '-o', `${folder}/m.safetensors`, ...more],
];
const shard = (number: number) => `m-0000${number}-of-00004.safetensors`;
const journal = '.m.safetensors.resume';

/** Makes a result as if the run had ended after some parts: with their files, the journal, and nothing else. */
async function interrupted(folder: string, parts: number): Promise<void> {
  await mkdir(path(folder));
  // A folder in the place of the next file ends the run there.
  await mkdir(path(folder, shard(parts + 1)));
  const { code, stderr } = await run(command(folder, '--resume', '-q', '-f'));
  expect([code, stderr]).toEqual([1, expect.stringContaining(shard(parts + 1))]);
  await rm(path(folder, shard(parts + 1)), { recursive: true });
}

describe('--resume', () => {
  it('does not mix an adapter, or a configuration, with one that replaced it', async () => {
    const module = 'model.layers.0.mlp.up_proj';
    const adapter = (seed: number) => safetensors(spellings['plain names'](module, pair(64, 64, 4, seed), 64, 4));
    await put('m.safetensors', {
      [`${module}.weight`]: [[64, 64], wave],
      'layers.1.weight': [[64, 64], wave],
    });
    await writeFile(path('a.safetensors'), adapter(1));
    await writeFile(path('config.json'), '{}');
    const args = (folder: string) => [
      ...['m.safetensors', '--to', 'int8', '--lora', 'a.safetensors', '--shard-size', '5kB'],
      ...['-o', `${folder}/m.safetensors`, '--resume', '-q'],
    ];
    for (const [folder, change] of [
      ['a', () => writeFile(path('a.safetensors'), adapter(2))],
      ['b', () => writeFile(path('config.json'), '{"a": 1}')],
    ] as const) {
      await mkdir(path(folder, 'm-00002-of-00002.safetensors'), { recursive: true });
      const { code, stderr } = await run([...args(folder), '-f']);
      expect([code, stderr]).toEqual([1, expect.stringContaining('m-00002-of-00002')]);
      await rm(path(folder, 'm-00002-of-00002.safetensors'), { recursive: true });
      await change();
      const again = await run(args(folder));
      expect([again.code, again.stderr]).toEqual([
        1,
        expect.stringContaining('the model changed since the interrupted run'),
      ]);
    }
  });

  it('makes the same files as a run without it, and leaves no journal', async () => {
    await putFour();
    for (const folder of ['a', 'b']) await mkdir(path(folder));
    const plain = await run(command('a', '--json'));
    const resumable = await run(command('b', '--resume', '--json'));
    expect(await contents('b')).toEqual(await contents('a'));
    const [one, other] = [plain, resumable].map(({ stdout }) => JSON.parse(stdout.replaceAll('"b/', '"a/')));
    expect({ ...other, peakBytes: 0 }).toEqual({ ...one, peakBytes: 0 });
  });

  it.each([1, 2, 3])('goes on after %i of four files, which stay as they are', async (parts) => {
    await putFour();
    await mkdir(path('a'));
    const plain = await run(command('a', '--json'));
    await interrupted('b', parts);
    const done = Array.from({ length: parts }, (_, i) => shard(i + 1));
    expect(await names('b')).toEqual([journal, ...done]);
    const before = await Promise.all(done.map((name) => identity(`b/${name}`)));
    const resumed = await run(command('b', '--resume', '--json'));
    expect(resumed.code).toBe(0);
    expect(await contents('b')).toEqual(await contents('a'));
    expect(await Promise.all(done.map((name) => identity(`b/${name}`)))).toEqual(before);
    // The report is that of all files.
    const [one, other] = [plain, resumed].map(({ stdout }) => JSON.parse(stdout.replaceAll('"b/', '"a/')));
    expect({ ...other, peakBytes: 0 }).toEqual({ ...one, peakBytes: 0 });
  });

  it('does nothing after the end, and says so', async () => {
    await putFour();
    await mkdir(path('a'));
    await run(command('a', '--resume', '-q'));
    const before = await Promise.all([1, 2, 3, 4].map((i) => identity(`a/${shard(i)}`)));
    expect(await run(command('a', '--resume'))).toEqual({
      code: 0,
      stdout: '',
      stderr:
        'scalepoint: a/m.safetensors is there already, with the files and sizes of the plan: nothing was done; --force makes it again\n',
    });
    const { stdout } = await run(command('a', '--resume', '--json'));
    expect(JSON.parse(stdout)).toMatchObject({ output: 'a/m.safetensors', to: 'int8', isWhole: true });
    expect(await Promise.all([1, 2, 3, 4].map((i) => identity(`a/${shard(i)}`)))).toEqual(before);
    // A result of other sizes, or one that is older than the model, is not this one.
    for (const change of [['--scheme', 'asymmetric'], []]) {
      if (change.length === 0) await putFour();
      const { code, stderr } = await run(command('a', '--resume', ...change));
      expect([code, stderr]).toEqual([1, expect.stringContaining('exists already')]);
    }
  });

  it('makes files again that are missing or were changed', async () => {
    await putFour();
    await mkdir(path('a'));
    await run(command('a', '-q'));
    await interrupted('b', 3);
    await unlink(path('b', shard(1)));
    await writeFile(path('b', shard(2)), 'other');
    expect(await run(command('b', '--resume', '-q'))).toEqual({ code: 0, stdout: '', stderr: '' });
    expect(await contents('b')).toEqual(await contents('a'));
  });

  it('refuses to go on with another model, other options or another version', async () => {
    await putFour();
    await interrupted('b', 2);
    const before = await contents('b');
    const refusal = async (...more: string[]) => {
      const { code, stderr } = await run(command('b', '--resume', ...more));
      expect(code).toBe(1);
      expect(await contents('b')).toEqual(before);
      return stderr;
    };
    const text = (what: string) =>
      `scalepoint: m.safetensors: ${what} changed since the interrupted run; --force begins anew\n`;
    expect(await refusal('--scheme', 'asymmetric')).toBe(text('the options'));
    expect(await refusal('--rule', '1=keep')).toBe(text('the options'));
    await utimes(path('m.safetensors'), 1, 1);
    expect(await refusal()).toBe(text('the model'));
    expect(await refusal('--rule', '1=keep')).toBe(text('the model and the options'));
    // With --force the run begins anew.
    expect((await run(command('b', '--resume', '-q', '-f', '--rule', '1=keep'))).code).toBe(0);
    await mkdir(path('a'));
    await run(command('a', '-q', '--rule', '1=keep'));
    expect(await contents('b')).toEqual(await contents('a'));
  });

  it('replaces no file of others', async () => {
    await putFour();
    await mkdir(path('b'));
    await writeFile(path('b', shard(3)), 'mine');
    const { code, stderr } = await run(command('b', '--resume'));
    expect([code, stderr]).toEqual([1, expect.stringMatching(/m-00003-of-00004\.safetensors" exists already/)]);
    expect(await contents('b')).toEqual({ [shard(3)]: digest('mine') });
  });

  it('goes on with several types, of which some are whole', async () => {
    await writeFile(path('m.gguf'), tinyLlama({ layers: 2, rows: 8 }));
    for (const folder of ['a', 'b']) await mkdir(path(folder));
    const several = (folder: string) => ['m.gguf', '--to', 'Q8_0,Q4_0,Q5_0', '-o', folder, '-q'];
    expect((await run(several('a'))).code).toBe(0);
    await mkdir(path('b', 'm-Q4_0.gguf'));
    expect((await run([...several('b'), '--resume', '-f'])).code).toBe(1);
    await rm(path('b', 'm-Q4_0.gguf'), { recursive: true });
    await run([...several('b'), '--resume']);
    expect(await contents('b')).toEqual(await contents('a'));
  });

  it('goes on after Ctrl-C', async () => {
    await putFour((i) => Math.sin(i), 2 ** 12);
    const large = (folder: string, ...more: string[]) => {
      const args = command(folder, '-q', '--workers', '0', ...more);
      return args.map((arg) => (arg === '600B' ? '300kB' : arg));
    };
    for (const folder of ['a', 'b']) await mkdir(path(folder));
    expect((await (await start(large('a'))).outcome).code).toBe(0);
    const { child, outcome } = await start(large('b', '--resume'));
    while (!(await names('b')).includes(shard(1)) && child.exitCode === null)
      await new Promise((r) => setTimeout(r, 1));
    child.kill('SIGINT');
    const { code, stderr } = await outcome;
    // On a fast machine, the run may have ended before.
    if (code !== 0) {
      expect([code, stderr]).toEqual([130, 'scalepoint: interrupted; the same command goes on\n']);
      expect(await names('b')).toContain(journal);
      expect((await (await start(large('b', '--resume'))).outcome).code).toBe(0);
    }
    expect(await contents('b')).toEqual(await contents('a'));
  });

  it.each([
    [['--part', '1/2'], '--resume: not together with --part'],
    [['--min-sqnr', '3'], '--resume: not together with --min-sqnr'],
    [['-o', '-'], '--resume: not together with --output -'],
  ])('is refused with %j', async (more, message) => {
    await putFour();
    const { code, stderr } = await run([...command('.'), '--resume', ...more]);
    expect([code, stderr]).toEqual([2, `scalepoint: ${message}; see scalepoint quantize --help\n`]);
  });

  it('says which journal is damaged', async () => {
    await putFour();
    await interrupted('b', 1);
    const state = await readFile(path('b', journal));
    await writeFile(path('b', journal), state.subarray(0, -1));
    const { code, stderr } = await run(command('b', '--resume'));
    expect([code, stderr]).toEqual([1, expect.stringContaining(`"b/${journal}" is damaged; remove it to begin anew`)]);
  });
});
