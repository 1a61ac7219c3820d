import { type FileHandle, mkdir, mkdtemp, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import { ScalepointError } from '../../../../web/src/core/errors.js';
import type { ByteSource } from '../../../../web/src/formats/files/bytes.js';
import { openSource } from '../../../../web/src/formats/files/open.js';
import { openShards, readIndex, type Shards } from '../../../../web/src/formats/safetensors/shards.js';
import { expectProportional } from '../../support/growth.js';

let folder = '';
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'scalepoint-shards-'));
});
afterAll(() => rm(folder, { recursive: true }));

/** A file with U8 tensors of these sizes, whose bytes count up from `first`. */
function shard(tensors: Readonly<Record<string, number>>, metadata?: object, first = 0): Uint8Array<ArrayBuffer> {
  const header: Record<string, unknown> = metadata === undefined ? {} : { __metadata__: metadata };
  let offset = 0;
  for (const [name, size] of Object.entries(tensors)) {
    header[name] = { dtype: 'U8', shape: [size], data_offsets: [offset, offset + size] };
    offset += size;
  }
  const json = new TextEncoder().encode(JSON.stringify(header));
  const file = new Uint8Array(8 + json.length + offset);
  new DataView(file.buffer).setUint32(0, json.length, true);
  file.set(json, 8);
  for (let i = 0; i < offset; i++) file[8 + json.length + i] = first + i;
  return file;
}

const one = 'model-00001-of-00002.safetensors';
const two = 'model-00002-of-00002.safetensors';
const indexName = 'model.safetensors.index.json';
const indexOf = (weightMap: object, metadata: object = { total_size: 9 }) =>
  JSON.stringify({ metadata, weight_map: weightMap }, undefined, 2);

/** A good model: the map is in another order than the files. */
const good = {
  [indexName]: indexOf({ c: two, a: one, b: one }),
  [one]: shard({ b: 2, a: 3 }, { format: 'pt', by: 'one' }, 10),
  [two]: shard({ c: 4 }, { format: 'np', more: 'two' }, 20),
};
type Files = Readonly<Record<string, string | Uint8Array<ArrayBuffer>>>;

/** Puts files into a new folder; gives the path of the index. */
async function put(files: Files, name = crypto.randomUUID()): Promise<string> {
  await mkdir(join(folder, name));
  for (const [file, content] of Object.entries(files)) await writeFile(join(folder, name, file), content);
  return join(folder, name, indexName);
}

const filesOf = (files: Files) => Object.entries(files).map(([name, content]) => new File([content], name));

/** Opens by path, hands the model to `use`, closes everything. */
async function beside<T>(path: string | URL, use: (shards: Shards) => Promise<T> | T): Promise<T> {
  const index = await openSource(path);
  try {
    const shards = await openShards(path, index);
    try {
      return await use(shards);
    } finally {
      await shards.close();
    }
  } finally {
    await index.close();
  }
}

/** Opens files given in this order, the index first. */
async function given(files: Files): Promise<Shards> {
  const [index, ...others] = await Promise.all(filesOf(files).map(openSource));
  return openShards(new File([], indexName), index as ByteSource, others);
}

async function thrownBy(promise: Promise<unknown>): Promise<unknown> {
  return promise.then(
    (value) => expect.fail(`accepted: ${JSON.stringify(value)}`),
    (error: unknown) => error,
  );
}

/** Expects a ScalepointError with this code and these words. */
async function refused(files: Files, code: string, words: RegExp): Promise<ScalepointError> {
  const path = await put(files);
  const errors = [await thrownBy(beside(path, () => 'opened'))];
  if (indexName in files) errors.push(await thrownBy(given(files)));
  for (const error of errors) {
    expect(error).toBeInstanceOf(ScalepointError);
    expect(error).toMatchObject({ code, message: expect.stringMatching(words) });
  }
  return errors[0] as ScalepointError;
}

/** The files that `use` opens: how many there are, and how many are open. */
async function handlesOf(use: (count: () => { opened: number; open: number }) => Promise<unknown>): Promise<void> {
  const handles: FileHandle[] = [];
  const files = process.getBuiltinModule('node:fs/promises');
  const { open } = files;
  const spy = vi.spyOn(files, 'open').mockImplementation(async (...parameters) => {
    const handle = await open(...parameters);
    handles.push(handle);
    return handle;
  });
  try {
    await use(() => ({ opened: handles.length, open: handles.filter(({ fd }) => fd >= 0).length }));
  } finally {
    spy.mockRestore();
  }
}

describe('opening a sharded model', () => {
  it('finds the files beside the index, and gives their tensors in order', async () => {
    const path = await put(good);
    for (const index of [path, pathToFileURL(path)]) {
      await beside(index, async ({ files, tensors, metadata, bytes, index: { weightMap, metadata: about } }) => {
        expect(files.map(({ name }) => name)).toEqual([one, two]);
        expect(tensors.map(({ name, file, shape }) => [name, file, shape])).toEqual([
          ['b', 0, [2]],
          ['a', 0, [3]],
          ['c', 1, [4]],
        ]);
        const read = tensors.map(({ file, byteOffset, bytes }) => files[file]!.read(byteOffset, byteOffset + bytes));
        expect((await Promise.all(read)).map((part) => [...part])).toEqual([
          [10, 11],
          [12, 13, 14],
          [20, 21, 22, 23],
        ]);
        expect({ ...metadata }).toEqual({ format: 'pt', by: 'one', more: 'two' });
        expect(bytes).toBe(good[one].length + good[two].length);
        expect([...weightMap]).toEqual([
          ['c', two],
          ['a', one],
          ['b', one],
        ]);
        expect({ ...about }).toEqual({ total_size: 9 });
      });
    }
  });

  it('finds a relative path, names with spaces and percent signs, and links', async () => {
    const odd = 'a %41 é.safetensors';
    const path = await put({ [indexName]: indexOf({ a: odd, b: 'link.safetensors' }), [odd]: shard({ a: 1 }) });
    const target = join(folder, 'elsewhere');
    await writeFile(target, shard({ b: 2 }));
    await symlink(target, join(path, '..', 'link.safetensors'));
    const before = process.cwd();
    try {
      process.chdir(join(path, '..'));
      for (const index of [indexName, `./${indexName}`, pathToFileURL(path)]) {
        expect(await beside(index, ({ tensors }) => tensors.map(({ name }) => name))).toEqual(['a', 'b']);
      }
    } finally {
      process.chdir(before);
    }
  });

  it('takes given files in any order, and leaves alone what the index does not name', async () => {
    const [index, ...others] = filesOf({ ...good, 'config.json': '{}', 'x.safetensors': shard({ x: 1 }) });
    const source = await openSource(index!);
    for (const list of [others, [...others].reverse()]) {
      const sources = await Promise.all(list.map(openSource));
      const { tensors, files } = await openShards(index!, source, sources);
      expect(tensors.map(({ name }) => name)).toEqual(['b', 'a', 'c']);
      expect(files.map((file) => sources.includes(file))).toEqual([true, true]);
    }
  });

  it('closes what it opened, and not what was given', async () => {
    const path = await put(good);
    await handlesOf(async (count) => {
      await beside(path, () => expect(count()).toEqual({ opened: 3, open: 3 }));
      expect(count()).toEqual({ opened: 3, open: 0 });
    });
    const closed: string[] = [];
    const spied = async (file: File) => ({
      ...(await openSource(file)),
      close: async () => void closed.push(file.name),
    });
    const [index, ...others] = await Promise.all(filesOf(good).map(spied));
    await (await openShards(new File([], indexName), index!, others)).close();
    expect(closed).toEqual([]);
  });

  it('closes what it opened if a later file is bad', async () => {
    const path = await put({ ...good, [two]: 'no such format' });
    await handlesOf(async (count) => {
      await thrownBy(beside(path, () => 'opened'));
      expect(count()).toEqual({ opened: 3, open: 0 });
    });
  });
});

describe('files that do not agree', () => {
  it('names a file that is missing', async () => {
    const { [two]: _, ...rest } = good;
    const path = await put(rest);
    expect(await thrownBy(beside(path, () => 'opened'))).toMatchObject({
      code: 'IO',
      message: expect.stringContaining(two),
    });
    expect(await thrownBy(given(rest))).toMatchObject({ code: 'NOT_FOUND', message: expect.stringContaining(two) });
  });

  it('names a tensor that is not where the index says', async () => {
    const none = await refused({ ...good, [two]: shard({}) }, 'BAD_FILE', /"c": .*"model-00002.*does not have it/);
    expect(none.tensor).toBe('c');
    const moved = { ...good, [one]: shard({ a: 1, b: 1, c: 1 }), [two]: shard({}) };
    await refused(moved, 'BAD_FILE', /"c": .*in "model-00002.*but it is in "model-00001/);
  });

  it('names a tensor that the index does not have', async () => {
    const more = { ...good, [two]: shard({ c: 4, stray: 1 }) };
    expect(await refused(more, 'BAD_FILE', /"stray": .*"model-00002.*not in the index/)).toMatchObject({
      tensor: 'stray',
    });
  });

  it('names a tensor in two files', async () => {
    const twice = { ...good, [two]: shard({ c: 4, a: 1 }) };
    await refused(twice, 'BAD_FILE', /"a": .*two files, "model-00001.*" and "model-00002/);
  });

  it('says which file is broken, and where', async () => {
    const broken = { ...good, [two]: shard({ c: 4 }).slice(0, -1) };
    const error = await refused(broken, 'BAD_FILE', /^"model-00002-of-00002.safetensors": tensor "c": /);
    expect(error.byteOffset).toBe(9);
  });

  it('refuses two given files of one name, and an index without files', async () => {
    const sources = await Promise.all([...filesOf(good), new File([good[two]], two)].map(openSource));
    const index = sources.shift() as ByteSource;
    await expect(openShards(new File([], indexName), index, sources)).rejects.toThrow(TypeError);
    for (const input of [new File([], indexName), new Uint8Array(3)]) {
      const error = await thrownBy(openShards(input, index));
      expect(error).toBeInstanceOf(TypeError);
      expect((error as Error).message).toMatch(/^file: /);
    }
  });
});

describe('reading an index', () => {
  const read = async (text: string | Uint8Array) =>
    readIndex(await openSource(typeof text === 'string' ? new TextEncoder().encode(text) : text));

  /** Expects BAD_FILE at the offset of `at` in the text. */
  async function bad(text: string, words: RegExp, at?: string): Promise<void> {
    const error = await thrownBy(read(text));
    expect(error).toBeInstanceOf(ScalepointError);
    expect(error).toMatchObject({ code: 'BAD_FILE', message: expect.stringMatching(words) });
    const { byteOffset } = error as ScalepointError;
    if (at === undefined) expect(byteOffset).toBeLessThanOrEqual(text.length);
    else expect(byteOffset).toBe(text.indexOf(at));
    expect(byteOffset).toBeGreaterThanOrEqual(0);
  }

  const map = (entries: string) => `{"weight_map":{${entries}}}`;

  it('takes any metadata, or none, and keys that it does not know', async () => {
    const about = '{"total_size": 1e3, "a": [1, {"b": null}], "__proto__": "p", "é": "\\u00e9"}';
    const { metadata } = await read(`{"x": [1], "weight_map": {"a": "b.safetensors"}, "metadata": ${about}} \n`);
    expect(Object.keys(metadata)).toEqual(['total_size', 'a', '__proto__', 'é']);
    expect(metadata.total_size).toBe(1000);
    expect(metadata.a).toEqual([1, { b: null }]);
    expect(metadata.é).toBe('é');
    expect((await read(map('"a":"b.safetensors"'))).metadata).toEqual({});
  });

  it('treats __proto__ and constructor as names like any other', async () => {
    const { weightMap } = await read(map('"__proto__":"b.safetensors","constructor":"b.SAFETENSORS"'));
    expect([...weightMap]).toEqual([
      ['__proto__', 'b.safetensors'],
      ['constructor', 'b.SAFETENSORS'],
    ]);
  });

  it('takes plain names of files only', async () => {
    const names = [
      '',
      '/etc/x.safetensors',
      '../x.safetensors',
      'a/../x.safetensors',
      'sub/x.safetensors',
      'a\\\\x.safetensors',
      '..\\\\x.safetensors',
      'C:x.safetensors',
      'x.safetensors:stream.safetensors',
      'a..b.safetensors',
      'a\\u0000.safetensors',
      'a\\n.safetensors',
      'a\\u007f.safetensors',
    ];
    for (const name of names)
      await bad(map(`"t":"${name}"`), /^tensor "t": the file name ".*" is not a plain name$/s, `"${name}"`);
    await bad(map('"t":"pytorch_model-00001-of-00002.bin"'), /not called .safetensors/, '"pytorch');
    await bad(map('"t":"x.safetensors\\\\"'), /plain/);
  });

  it('refuses other JSON than an index', async () => {
    await bad('', /expected '{'/);
    await bad('[]', /expected '{'/, '[');
    await bad('{}', /weight_map is missing/, '{');
    await bad('{"metadata":{}}', /weight_map is missing/);
    await bad(map(''), /weight_map is empty/);
    await bad('{"weight_map":[]}', /expected '{' at the start of weight_map/, '[');
    await bad(map('"a":3'), /^tensor "a": expected the name of its file, a string/, '3');
    await bad('{"metadata":4,"weight_map":{"a":"b.safetensors"}}', /start of metadata/, '4');
    await bad(`${map('"a":"b.safetensors"')}}`, /more than spaces/);
    await bad(map('"a":"b.safetensors",'), /expected a key/);
  });

  it('refuses names that stand there twice', async () => {
    await bad(map('"a":"b.safetensors","a":"b.safetensors"'), /the key "a" twice/);
    await bad(map('"a":"b.safetensors","\\u0061":"b.safetensors"'), /the key "a" twice/, '"\\u0061"');
    await bad('{"weight_map":{"a":"b.safetensors"},"weight_map":{}}', /the key "weight_map" twice/);
    await bad('{"metadata":{"x":{"y":1,"y":2}},"weight_map":{"a":"b.safetensors"}}', /the key "y" twice/);
  });

  it('refuses JSON that nests too deep, text that is not UTF-8, and every index that is cut off', async () => {
    await bad(`{"x":${'['.repeat(100_000)}`, /nests deeper/);
    await bad(`{"metadata":{"x":${'{"a":'.repeat(100_000)}`, /nests deeper/);
    const text = new TextEncoder().encode(indexOf({ a: one, é: two }));
    expect((await read(text)).weightMap.size).toBe(2);
    for (let length = 0; length < text.length; length++) {
      expect(await thrownBy(read(text.slice(0, length)))).toMatchObject({ code: 'BAD_FILE' });
    }
    const broken = text.slice();
    broken[text.indexOf(0xc3)] = 0xff;
    expect(await thrownBy(read(broken))).toMatchObject({ code: 'BAD_FILE', message: expect.stringMatching(/UTF-8/) });
  });

  it('reads nothing of an index that is too large', async () => {
    const source: ByteSource = {
      size: 100_000_001,
      read: () => expect.fail('nothing may be read'),
      verify: async () => {},
      close: async () => {},
    };
    expect(await thrownBy(readIndex(source))).toMatchObject({ code: 'BAD_FILE', byteOffset: 100_000_000 });
  });

  it('is read in time that is proportional to the number of tensors', async () => {
    await expectProportional((n) => {
      const entries = Array.from({ length: n }, (_, i) => `"layers.${i}.weight":"m-${i % 100}.safetensors"`);
      const text = map(entries.join());
      return async () => expect((await read(text)).weightMap.size).toBe(n);
    }, 10_000);
  });
});
