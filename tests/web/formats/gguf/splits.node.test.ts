// Models in several GGUF files, made and read.
import { copyFile, mkdtemp, readdir, readFile, rename, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { gguf as parse } from '@huggingface/gguf';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import {
  compareModels,
  inspectModel,
  planModel,
  quantizeModel,
  readTensor,
  resultFiles,
  verifyModel,
} from '../../../../web/src/model.js';
import { expectBytes, rejectionOf } from '../../support/models.js';
import { everyPair, ggufFile, type Pair, tinyLlama, weights } from '../../support/tiny-llama.js';

let folder = '';
beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'scalepoint-splits-'));
});
afterEach(() => rm(folder, { recursive: true, force: true }));
const path = (name: string) => join(folder, name);

// @huggingface/gguf has no room for a key called __proto__.
const pairs = everyPair.filter(([key]) => key !== '__proto__');
const whole = tinyLlama({ layers: 3, pairs, source: 'F32' });
const shardSize = 40_000;

/** Splits a file. Returns the paths of its files. */
async function split(file = whole, options: object = { shardSize }, name = 'm.gguf'): Promise<string[]> {
  const { files } = await quantizeModel(file, { to: 'copy', workers: 0, ...options, output: path(name) });
  return files.map((one) => path(one.name));
}

const blobs = (paths: readonly string[]) =>
  Promise.all(paths.map(async (one) => new File([await readFile(one)], one.split('/').at(-1)!)));

describe('a GGUF result in several files', () => {
  it('has the names, keys and boundaries of gguf-split', async () => {
    const paths = await split();
    expect(paths.length).toBeGreaterThan(3);
    const digits = (n: number) => String(n).padStart(5, '0');
    expect((await readdir(folder)).sort()).toEqual(
      paths.map((_, i) => `m-${digits(i + 1)}-of-${digits(paths.length)}.gguf`),
    );
    const all = await inspectModel(whole);
    const found: string[] = [];
    for (const [i, one] of paths.entries()) {
      // Each file is read by itself, as if the others were not there.
      const { metadata, tensorInfos } = await parse(one, { allowLocalFile: true });
      expect(metadata).toMatchObject({
        'split.no': i,
        'split.count': paths.length,
        'split.tensors.count': all.tensors.length,
      });
      const keys = Object.keys(metadata).filter((key) => !['version', 'tensor_count', 'kv_count'].includes(key));
      expect(keys.slice(-3)).toEqual(['split.no', 'split.tensors.count', 'split.count']);
      expect(keys.length).toBe(3 + (i === 0 ? Object.keys(all.metadata).length : 0));
      found.push(...tensorInfos.map(({ name }) => name));
      const sizes = tensorInfos.map(({ name }) => all.tensors.find((tensor) => tensor.name === name)!.bytes);
      const total = (list: readonly number[]) => list.reduce((sum, n) => sum + Math.ceil(n / 32) * 32, 0);
      expect(total(sizes) <= shardSize || sizes.length === 1).toBe(true);
      // One more tensor would have been too many.
      const next = all.tensors[found.length];
      if (next !== undefined) expect(total([...sizes, next.bytes])).toBeGreaterThan(shardSize);
    }
    expect(found).toEqual(all.tensors.map(({ name }) => name));
  });

  it('may be cut by the number of tensors, and has a number even if it is one file', async () => {
    const { tensors } = await inspectModel(whole);
    expect(await split(whole, { splitTensors: 10 })).toHaveLength(Math.ceil(tensors.length / 10));
    expect(await split(whole, { shardSize: '1GB' }, 'one')).toEqual([path('one-00001-of-00001.gguf')]);
    expectBytes(await joined(path('one-00001-of-00001.gguf')), whole);
  });

  it('becomes the whole again, byte for byte', async () => {
    const others = [tinyLlama({ alignment: 64, attention: 64 }), tinyLlama({ tied: true })];
    for (const [i, file] of [whole, ...others].entries()) {
      const [first] = await split(file, { splitTensors: 4 }, `m${i}.gguf`);
      expectBytes(await joined(first!), file);
    }
  });

  it('is stated by the plan, names and sizes', async () => {
    const plan = await planModel(whole, { to: 'Q8_0', shardSize });
    expect(plan.files.length).toBeGreaterThan(1);
    expect(plan.totals.bytesAfter).toBe(plan.files.reduce((sum, { bytes }) => sum + bytes, 0));
    const { files } = await quantizeModel(whole, plan, { output: path('model.gguf'), workers: 0 });
    expect(files).toEqual(plan.files);
    for (const { name, bytes } of files) expect((await readFile(path(name))).length).toBe(bytes);
    expect(resultFiles('a.GGUF', plan)[0]).toMatch(/^a-00001-of-0000\d\.gguf$/);
  });
});

async function joined(first: string | File[]): Promise<Uint8Array> {
  return (await quantizeModel(first, { to: 'copy', workers: 0 })).bytes();
}

describe('a model in several GGUF files', () => {
  it('goes in wherever a whole one does', async () => {
    const paths = await split();
    const [first] = paths as [string];
    const given = await blobs(paths);
    for (const input of [first, given, [...given].reverse(), paths.toReversed(), new URL(`file://${first}`)]) {
      const info = await inspectModel(input);
      expect(info.tensors.map(({ name }) => name)).toEqual((await inspectModel(whole)).tensors.map(({ name }) => name));
      expect(info.files).toEqual(paths.map((one) => one.split('/').at(-1)));
      const { report, bytes } = await quantizeModel(input, { to: 'Q4_K_M', workers: 0 });
      const expected = await quantizeModel(whole, { to: 'Q4_K_M', workers: 0 });
      expectBytes(await bytes(), await expected.bytes());
      expect(report.tensors).toEqual(expected.report.tensors);
      expect(await verifyModel(input)).toMatchObject({ problems: [], files: info.files });
      const { tensors, onlyInA, onlyInB } = await compareModels(whole, input, { workers: 0 });
      expect([onlyInA, onlyInB]).toEqual([[], []]);
      expect(tensors.every(({ error }) => error.maxAbsoluteError === 0)).toBe(true);
      const name = 'blk.2.ffn_down.weight';
      expect((await readTensor(input, name)).data).toEqual((await readTensor(whole, name)).data);
    }
  });

  it('is converted and split at once, in workers, as in two steps', async () => {
    const paths = await split();
    const once = await quantizeModel(paths[0]!, { to: 'Q8_0', shardSize, workers: 2, output: path('a.gguf') });
    await quantizeModel(whole, { to: 'Q8_0', workers: 0, output: path('b.gguf') });
    const twice = await quantizeModel(path('b.gguf'), { to: 'copy', shardSize, workers: 0, output: path('c.gguf') });
    expect(once.files.length).toBe(twice.files.length);
    for (const [i, { name }] of once.files.entries()) {
      expectBytes(await readFile(path(name)), await readFile(path(twice.files[i]!.name)));
    }
  });
});

describe('bad files of a split model', () => {
  let paths: string[] = [];
  beforeEach(async () => {
    paths = await split(whole, { splitTensors: 12 });
    expect(paths).toHaveLength(3);
  });
  const base = (i: number) => paths[i]!.split('/').at(-1)!;

  /** Fails unless the model cannot be read, by its first file and as a list, and nothing is written. */
  async function expectBad(code: string, message: string | RegExp): Promise<void> {
    const lists = await Promise.all(paths.map((one) => readFile(one).catch(() => undefined)));
    const given = paths.flatMap((_, i) => (lists[i] === undefined ? [] : [new File([lists[i]], base(i))]));
    for (const input of [paths[0]!, given]) {
      const before = await readdir(folder);
      const error = await rejectionOf(quantizeModel(input, { to: 'Q8_0', workers: 0, output: path('out.gguf') }));
      expect(error).toMatchObject({ name: 'ScalepointError', message: expect.stringMatching(message) });
      expect(input === paths[0] ? ['IO', code] : [code]).toContain((error as { code: string }).code);
      expect(await readdir(folder)).toEqual(before);
    }
  }

  /** Writes a file by itself into the place of one of the files. */
  async function replace(i: number, pairs: readonly Pair[], extra = 0, name = 'x'): Promise<void> {
    const tensors = [{ name, dtype: 'F32', ne: [8], data: weights('F32', 8, 3) }];
    const file = ggufFile({ pairs, tensors });
    await writeFile(paths[i]!, Buffer.concat([file, Buffer.alloc(extra)]));
  }
  const keys = (no: number, count: number, tensors: number): Pair[] => [
    ['split.no', 'u16', no],
    ['split.tensors.count', 'i32', tensors],
    ['split.count', 'u16', count],
  ];

  it('that are missing', async () => {
    await rm(paths[1]!);
    await expectBad('NOT_FOUND', /m-00002-of-00003\.gguf/);
  });

  it('that contradict each other', async () => {
    const { tensors } = await inspectModel(whole);
    await replace(2, keys(2, 4, tensors.length));
    await expectBad('BAD_FILE', /m-00003-of-00003\.gguf.*one of 4 files/);
    await replace(2, keys(1, 3, tensors.length));
    await expectBad('BAD_FILE', /m-00003-of-00003\.gguf.*file 2 of 3, and so is/);
    await replace(2, keys(3, 3, tensors.length));
    await expectBad('BAD_FILE', /m-00003-of-00003\.gguf.*file 4 of 3/);
    await replace(2, keys(2, 3, 5));
    await expectBad('BAD_FILE', /m-00003-of-00003\.gguf.*model of 5 tensors/);
    await replace(2, keys(2, 3, tensors.length));
    await expectBad('BAD_FILE', /m-00001-of-00003\.gguf.*30 tensors, but the files hold 25/);
    await replace(2, keys(2, 3, tensors.length).slice(0, 2));
    await expect(inspectModel(paths[0]!)).rejects.toThrow(/m-00003-of-00003\.gguf.*split\.count/);
    await replace(2, [['split.no', 'i32', -1], ...keys(2, 3, tensors.length).slice(1)]);
    await expectBad('BAD_FILE', /m-00003-of-00003\.gguf.*split\.no/);
  });

  it('that belong to another model, or repeat tensors, or are longer than they say', async () => {
    const { tensors } = await inspectModel(whole);
    await replace(2, [['general.architecture', 'string', 'gemma'], ...keys(2, 3, tensors.length)]);
    await expectBad('BAD_FILE', /m-00003-of-00003\.gguf.*general\.architecture.*different models/);
    await replace(2, keys(2, 3, tensors.length), 0, 'token_embd.weight');
    await expectBad('BAD_FILE', /m-00003-of-00003\.gguf.*token_embd\.weight.*m-00001-of-00003/);
    await replace(2, keys(2, 3, tensors.length), 32);
    await expectBad('BAD_FILE', /m-00003-of-00003\.gguf.*its tensors end at/);
    await writeFile(paths[2]!, (await readFile(paths[2]!)).subarray(0, 90));
    await expectBad('BAD_FILE', /m-00003-of-00003\.gguf/);
  });

  it('of which one alone cannot be found, or is not the first', async () => {
    const [first, second] = await blobs(paths);
    const alone = await rejectionOf(inspectModel(first!));
    expect(alone).toBeInstanceOf(TypeError);
    expect(alone).toMatchObject({
      problem: { option: 'file', expected: { kind: 'number', is: 3, unit: 'files' }, got: 1 },
    });
    await expect(inspectModel(new Uint8Array(await readFile(paths[0]!)))).rejects.toMatchObject({ option: 'file' });
    await expect(inspectModel(paths[1]!)).rejects.toMatchObject({
      code: 'BAD_FILE',
      message: '"m-00002-of-00003.gguf": it is file 2 of 3; open "m-00001-of-00003.gguf"',
    });
    await expect(inspectModel([first!, second!])).rejects.toMatchObject({
      code: 'NOT_FOUND',
      message: 'file 3 of 3, "m-00003-of-00003.gguf", is missing',
    });
    await rename(paths[0]!, path('first.gguf'));
    await expect(inspectModel(path('first.gguf'))).rejects.toThrow(/name does not end with -00001-of-00003\.gguf/);
    // In a list the names mean nothing.
    expect((await inspectModel([path('first.gguf'), paths[2]!, paths[1]!])).tensors).toHaveLength(30);
  });

  it('that are several models', async () => {
    await writeFile(path('whole.gguf'), whole);
    const error = await rejectionOf(inspectModel([path('whole.gguf'), paths[0]!]));
    expect(error).toBeInstanceOf(RangeError);
    expect(error).toMatchObject({ problem: { option: 'file', expected: { is: 1, unit: 'file' }, got: 2 } });
    await copyFile(path('whole.gguf'), path('again.gguf'));
    await expect(inspectModel([path('whole.gguf'), path('again.gguf')])).rejects.toThrow(RangeError);
  });
});
