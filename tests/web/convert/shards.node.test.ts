// Results in several files, in one run and in parts.
import { existsSync } from 'node:fs';
import { mkdir, mkdtemp, readdir, readFile, rm, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { parseSafetensorsMetadata } from '@huggingface/hub';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import {
  inspectModel,
  type ModelOutput,
  planModel,
  type QuantizeModelOptions,
  quantizeModel,
  verifyModel,
} from '../../../web/src/model.js';
import { parseSafetensors } from '../support/compressed.js';
import { expectBytes, rejectionOf, safetensors, smallModel, weights } from '../support/models.js';
import { tinyLlama } from '../support/tiny-llama.js';

let folder = '';
beforeEach(async () => {
  // Hundreds of files are written, and each waits until the disk has it.
  folder = await mkdtemp(join(existsSync('/dev/shm') ? '/dev/shm' : tmpdir(), 'scalepoint-shards-'));
});
afterEach(() => rm(folder, { recursive: true, force: true }));
const path = (...names: string[]) => join(folder, ...names);

const layers = (count: number, rows = 16) =>
  safetensors(
    Object.fromEntries(
      Array.from({ length: count }, (_, i) => [
        [`layers.${i}.fc.weight`, weights('F32', [rows, 128], i + 1)],
        [`layers.${i}.norm.weight`, weights('F32', [128], 90 + i)],
      ]).flat() as [string, ReturnType<typeof weights>][],
    ),
    { format: 'pt' },
  );

const model = layers(20);

/** The bytes of all files of a folder, by name. */
async function filesIn(name: string): Promise<Map<string, Buffer>> {
  const names = (await readdir(path(name))).sort();
  return new Map(await Promise.all(names.map(async (one) => [one, await readFile(path(name, one))] as const)));
}

async function run(to: string, options: Partial<QuantizeModelOptions>, file: Uint8Array<ArrayBuffer> = model) {
  await mkdir(path(to), { recursive: true });
  const output = path(to, 'model.safetensors');
  return quantizeModel(file, { to: 'int8', workers: 0, output, ...options });
}

describe('a safetensors result in several files', () => {
  it('has the names and the index of transformers, and files that can be read alone', async () => {
    const { files, report, isWhole } = await run('a', { shardSize: '13.5KB' });
    const found = await filesIn('a');
    const count = files.length - 1;
    expect(isWhole).toBe(true);
    expect(count).toBe(4);
    const name = (i: number) => `model-0000${i + 1}-of-00004.safetensors`;
    expect(files.map((file) => file.name)).toEqual([
      'model.safetensors.index.json',
      ...Array.from({ length: count }, (_, i) => name(i)),
    ]);
    for (const file of files) expect(found.get(file.name)?.length).toBe(file.bytes);
    const text = found.get('model.safetensors.index.json')!.toString();
    const index = JSON.parse(text);
    expect(text).toBe(`${JSON.stringify(index, null, 2)}\n`);
    expect(Object.keys(index)).toEqual(['metadata', 'weight_map']);
    expect(Object.keys(index.weight_map)).toEqual(Object.keys(index.weight_map).sort());
    const { bytes } = await quantizeModel(model, { to: 'int8', workers: 0 });
    const { tensors: whole } = parseSafetensors(await bytes());
    let total = 0;
    for (let i = 0; i < count; i++) {
      const { tensors: shard } = parseSafetensors(new Uint8Array(found.get(name(i))!));
      let size = 0;
      for (const [tensor, value] of shard) {
        expect(index.weight_map[tensor]).toBe(name(i));
        expect(value).toEqual(whole.get(tensor));
        size += value.bytes.length;
        whole.delete(tensor);
      }
      expect(size).toBeLessThanOrEqual(13_500);
      total += size;
      expect((await inspectModel(path('a', name(i)))).metadata).toEqual({ format: 'pt' });
    }
    expect(whole.size).toBe(0);
    expect(index.metadata).toEqual({ total_size: total });
    expect(report.totals.bytesAfter).toBe(files.reduce((sum, file) => sum + file.bytes, 0));
    // The parts of a weight are in one file.
    const map = index.weight_map;
    expect(map['layers.7.fc.weight_packed']).toBe(map['layers.7.fc.weight_scale']);
    expect(await verifyModel(path('a', 'model.safetensors.index.json'))).toMatchObject({ problems: [] });
  });

  it('is read by another program', async () => {
    const { files } = await run('a', { to: 'float16', shardSize: 20_000 });
    const contents = new Map<string, Buffer>();
    for (const { name } of files) contents.set(name, await readFile(path('a', name)));
    const serve = async (url: unknown, init?: RequestInit) => {
      const bytes = contents.get(new URL(String(url)).pathname.split('/').at(-1)!);
      if (bytes === undefined) return new Response('', { status: 404 });
      const range = /^bytes=(\d+)-(\d+)$/.exec(new Headers(init?.headers).get('range') ?? '');
      const begin = Number(range?.[1] ?? 0);
      const end = Math.min(Number(range?.[2] ?? Number.POSITIVE_INFINITY) + 1, bytes.length);
      const headers = { etag: '"1"', 'content-range': `bytes ${begin}-${end - 1}/${bytes.length}` };
      return new Response(new Uint8Array(bytes.subarray(begin, end)), { status: range === null ? 200 : 206, headers });
    };
    const found = await parseSafetensorsMetadata({
      repo: 'some/model',
      path: 'model.safetensors.index.json',
      fetch: serve as typeof fetch,
    });
    expect(found.sharded).toBe(true);
    if (!found.sharded) return;
    expect(Object.keys(found.headers)).toHaveLength(files.length - 1);
    const names = Object.values(found.headers).flatMap((header) => Object.keys(header));
    expect(names.filter((name) => name !== '__metadata__')).toHaveLength(40);
  });

  it('is stated by the plan, and is one file if that is enough', async () => {
    const plan = await planModel(model, { to: 'int8', shardSize: 13_500 });
    const { files } = await quantizeModel(model, plan, { workers: 0, output: path('model.safetensors') });
    expect(plan.files).toEqual(files);
    expect(plan.totals.bytesAfter).toBe(files.reduce((sum, { bytes }) => sum + bytes, 0));
    const small = await planModel(model, { to: 'int8', shardSize: '1 GiB' });
    expect(small.files).toEqual([{ name: 'model.safetensors', bytes: small.totals.bytesAfter }]);
  });

  it('is as in one file whatever the tensors are, and gives larger ones a file of their own', async () => {
    for (const [i, to] of (['int4', 'bfloat16', 'copy'] as const).entries()) {
      const file = smallModel();
      const { files, report } = await run(`m${i}`, { to, shardSize: 3000, workers: i }, file);
      expect(files.some(({ bytes }) => bytes > 6000)).toBe(true);
      expect(report.notes.at(-1)).toMatchObject({
        kind: 'largerThanFile',
        text: expect.stringMatching(/^exceeds the requested shard size.* and \d more$/),
      });
      const index = path(`m${i}`, 'model.safetensors.index.json');
      const joined = await quantizeModel(index, { to: 'copy', workers: 0 });
      expectBytes(await joined.bytes(), await (await quantizeModel(file, { to, workers: 0 })).bytes());
    }
  });

  it('needs a path, and good options', async () => {
    const cases: [
      Partial<Record<keyof QuantizeModelOptions, unknown>>,
      typeof RangeError | typeof TypeError,
      string,
    ][] = [
      [{ shardSize: 13_500, output: new WritableStream() }, RangeError, 'output'],
      [{ part: '1/2' }, RangeError, 'output'],
      [{ part: '1/2', output: new WritableStream() }, RangeError, 'output'],
      [{ shardSize: 0 }, RangeError, 'shardSize'],
      [{ shardSize: 1.5 }, RangeError, 'shardSize'],
      [{ shardSize: '5 apples' }, RangeError, 'shardSize'],
      [{ shardSize: '-5GB' }, RangeError, 'shardSize'],
      [{ shardSize: {} }, TypeError, 'shardSize'],
      [{ part: '0/4' }, RangeError, 'part'],
      [{ part: '5/4' }, RangeError, 'part'],
      [{ part: 3 }, RangeError, 'part'],
      [{ splitTensors: 3 }, RangeError, 'splitTensors'],
      [{ to: 'copy', rules: [{ match: /x/, to: 'int8' }] }, RangeError, 'rules'],
    ];
    for (const [options, type, option] of cases) {
      const error = await rejectionOf(
        quantizeModel(model, { to: 'int8', workers: 0, ...options } as QuantizeModelOptions),
      );
      expect(error).toBeInstanceOf(type);
      expect(error).toMatchObject({ option });
    }
  });
});

it('a model in several files is refused if one is missing, longer than it says, or that of another model', async () => {
  await run('a', { to: 'copy', shardSize: 50_000 });
  await run('b', { to: 'float16', shardSize: 25_000 }, layers(20, 15));
  const index = path('a', 'model.safetensors.index.json');
  const shard = path('a', 'model-00002-of-00004.safetensors');
  const good = await readFile(shard);
  const other = await readFile(path('b', 'model-00001-of-00004.safetensors'));
  const cases = [
    [undefined, 'IO', /model-00002-of-00004/],
    [Buffer.concat([good, Buffer.of(0)]), 'BAD_FILE', /^"model-00002-of-00004\.safetensors": /],
    [good.subarray(0, -1), 'BAD_FILE', /^"model-00002-of-00004\.safetensors": /],
    [other, 'BAD_FILE', /it is in two files, .*model-00002-of-00004/],
  ] as const;
  for (const [bytes, code, message] of cases) {
    await rm(shard);
    if (bytes !== undefined) await writeFile(shard, bytes);
    const options = { to: 'int8', workers: 0, output: path('out.safetensors'), shardSize: 9000 } as const;
    const calls = [inspectModel, verifyModel, (input: string) => quantizeModel(input, options)];
    for (const call of calls) {
      expect(await rejectionOf(call(index))).toMatchObject({ code, message: expect.stringMatching(message) });
    }
    expect((await readdir(folder)).sort()).toEqual(['a', 'b']);
    if (bytes === undefined) await writeFile(shard, '');
  }
});

describe('files of a result', () => {
  it('appear all or not at all', async () => {
    const output = path('model.safetensors');
    const options = { to: 'int8', shardSize: 13_500, workers: 0, output } as const;
    const third = path('model-00003-of-00004.safetensors');
    await writeFile(third, 'mine');
    await expect(quantizeModel(model, options)).rejects.toMatchObject({ code: 'EXISTS' });
    expect(await readdir(folder)).toEqual(['model-00003-of-00004.safetensors']);
    await rm(third);
    // The name is taken while the work is done: two files are in place when that shows.
    const taken = quantizeModel(model, {
      ...options,
      onProgress: ({ bytesDone, bytesTotal }) => {
        if (bytesDone === bytesTotal) return;
        void mkdir(path('model-00002-of-00004.safetensors'), { recursive: true });
      },
    });
    await expect(taken).rejects.toMatchObject({ name: 'ScalepointError' });
    expect(await readdir(folder)).toEqual(['model-00002-of-00004.safetensors']);
    await rm(path('model-00002-of-00004.safetensors'), { recursive: true });
    const controller = new AbortController();
    const { signal } = controller;
    const aborted = await rejectionOf(
      quantizeModel(model, { ...options, signal, onProgress: () => controller.abort() }),
    );
    expect(aborted).toBe(signal.reason);
    expect(await readdir(folder)).toEqual([]);
  });
});

describe('work in parts', () => {
  const count = 16;

  it('gives the same bytes as one run, in any order', async () => {
    const options = { shardSize: 3000, part: undefined } as const;
    await run('one', options);
    const order = [5, 16, 1, 9, 2, 3, 15, 4, 6, 14, 7, 8, 13, 10, 12, 11];
    const whole: boolean[] = [];
    for (const number of order) {
      const { isWhole, files } = await run('parts', { ...options, part: `${number}/${count}` });
      whole.push(isWhole);
      // The index is the last to come.
      const there = (await readdir(path('parts'))).includes('model.safetensors.index.json');
      expect(there).toBe(isWhole);
      expect(files.every(({ name }) => /-of-00020\.safetensors$/.test(name))).toBe(true);
    }
    expect(whole).toEqual(order.map((_, i) => i === count - 1));
    expect(await filesIn('parts')).toEqual(await filesIn('one'));
    expect(await verifyModel(path('parts', 'model.safetensors.index.json'))).toMatchObject({ problems: [] });
  });

  it('gives every part something where no size was said, and reports its share', async () => {
    const names: string[] = [];
    for (const number of [1, 2, 3]) {
      const plan = await planModel(model, { to: 'int8', part: `${number}/3` as const });
      const { report, files } = await run('parts', { part: `${number}/3` as const });
      expect(report.tensors.map(({ name }) => name)).toEqual(plan.tensors.map(({ name }) => name));
      expect(plan.files).toEqual(files);
      names.push(...plan.tensors.map(({ name }) => name));
    }
    const all = await planModel(model, { to: 'int8' });
    expect(names).toEqual(all.tensors.map(({ name }) => name));
    const joined = await quantizeModel(path('parts', 'model.safetensors.index.json'), { to: 'copy', workers: 0 });
    expectBytes(await joined.bytes(), await (await quantizeModel(model, { to: 'int8', workers: 0 })).bytes());
  });

  it('ends where all at once end, with the index once', async () => {
    const results = await Promise.all(
      Array.from({ length: 4 }, (_, i) => run('parts', { shardSize: 13_500, part: `${i + 1}/4` as const })),
    );
    expect(results.some(({ isWhole }) => isWhole)).toBe(true);
    await run('one', { shardSize: 13_500 });
    expect(await filesIn('parts')).toEqual(await filesIn('one'));
  });

  it('leaves parts without files where there are fewer files than parts', async () => {
    const two = layers(2);
    for (const number of [4, 3, 2, 1]) await run('parts', { shardSize: 3000, part: `${number}/4` as const }, two);
    await run('one', { shardSize: 3000 }, two);
    expect(await filesIn('parts')).toEqual(await filesIn('one'));
    const { files } = await run('few', { shardSize: '1GB', part: '1/4' }, two);
    expect(files).toEqual([]);
    const { files: last, isWhole } = await run('few', { shardSize: '1GB', part: '4/4' }, two);
    expect([last.map(({ name }) => name), isWhole]).toEqual([['model.safetensors'], true]);
  });

  it('does not take files of another run for its own, nor another index', async () => {
    await run('parts', { shardSize: 13_500, part: '1/2' });
    // Of another size, with another header.
    const second = path('parts', 'model-00004-of-00004.safetensors');
    await run('other', { to: 'float16', shardSize: 24_000 });
    await writeFile(second, await readFile(path('other', 'model-00004-of-00004.safetensors')));
    await writeFile(path('parts', 'model-00003-of-00004.safetensors'), '');
    expect((await run('parts', { shardSize: 13_500, part: '1/2', overwrite: true })).isWhole).toBe(false);
    await expect(run('parts', { shardSize: 13_500, part: '2/2' })).rejects.toMatchObject({ code: 'EXISTS' });
    expect((await run('parts', { shardSize: 13_500, part: '2/2', overwrite: true })).isWhole).toBe(true);
    const index = path('parts', 'model.safetensors.index.json');
    const { mtimeMs } = await stat(index);
    expect((await run('parts', { shardSize: 13_500, part: '2/2', overwrite: true })).isWhole).toBe(true);
    expect((await stat(index)).mtimeMs).toBe(mtimeMs);
    await writeFile(index, '{}');
    await rm(second);
    await rm(path('parts', 'model-00003-of-00004.safetensors'));
    await expect(run('parts', { shardSize: 13_500, part: '2/2' })).rejects.toMatchObject({ code: 'EXISTS' });
    expect(await readdir(path('parts'))).toHaveLength(3);
    // An index of something else would name files that are replaced now.
    await rm(path('parts', 'model-00001-of-00004.safetensors'));
    expect((await run('parts', { shardSize: 13_500, part: '2/2', overwrite: true })).isWhole).toBe(false);
    expect(await readdir(path('parts'))).not.toContain('model.safetensors.index.json');
  });

  it('splits GGUF as well', async () => {
    const file = tinyLlama({ layers: 3 });
    const output = (name: string): ModelOutput => path(`${name}.gguf`);
    const one = await quantizeModel(file, { to: 'Q4_K_M', shardSize: 8000, workers: 0, output: output('one') });
    const whole: boolean[] = [];
    for (const part of ['2/3', '3/3', '1/3'] as const) {
      const options = { to: 'Q4_K_M', shardSize: 8000, workers: 0, part, output: output('parts') } as const;
      whole.push((await quantizeModel(file, options)).isWhole);
    }
    expect(whole).toEqual([false, false, true]);
    for (const { name } of one.files) {
      expectBytes(await readFile(path(name.replace('one', 'parts'))), await readFile(path(name)));
    }
  });
});
