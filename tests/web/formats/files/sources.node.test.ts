// Every read of a reader is checked: nothing that was in memory before reaches a result, and nothing waits for ever.
import { createReadStream } from 'node:fs';
import { mkdir, mkdtemp, open, readdir, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { inspectModel, quantizeModel, readTensor } from 'scalepoint/model';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { openSource } from '../../../../web/src/formats/files/open.js';
import { readerOf } from '../../../../web/src/formats/files/reference.js';
import { rejectionOf, safetensors, weights } from '../../support/models.js';

const model = safetensors({ 'a.weight': weights('F32', [8, 64]), 'b.weight': weights('F32', [64, 512], 2) });

let folder = '';
let path = '';
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'scalepoint-sources-'));
  path = join(folder, 'model.safetensors');
  await writeFile(path, model);
});
afterAll(() => rm(folder, { recursive: true, force: true }));

/** A handle over bytes in memory whose nth read reports another number of bytes. */
function handle(nth: number, reported: (asked: number) => unknown) {
  let reads = 0;
  return {
    stat: async () => ({ size: model.length, mtimeMs: 0, isFile: () => true }),
    async read(buffer: Uint8Array, offset: number, length: number, position: number) {
      const bytes = model.subarray(position, position + length);
      if (++reads === nth) {
        const bytesRead = reported(length) as number;
        buffer.set(bytes.subarray(0, Math.max(0, Number(bytesRead) || 0)), offset);
        return { bytesRead };
      }
      buffer.set(bytes, offset);
      return { bytesRead: bytes.length };
    },
  };
}

describe('a count of bytes', () => {
  it.each<[string, (asked: number) => unknown]>([
    ['0', () => 0],
    ['-1', () => -1],
    ['undefined', () => undefined],
    ['NaN', () => Number.NaN],
    ['Infinity', () => Infinity],
    ['a fraction', () => 0.5],
    ['a string', (asked) => String(asked)],
    ['a bigint', (asked) => BigInt(asked)],
    ['too large by one', (asked) => asked + 1],
  ])('that is %s is an error in each read', async (_, reported) => {
    for (const [nth, workers] of [
      [1, 0],
      [4, 0],
      [5, 0],
      [5, 1],
    ] as const) {
      const error = await rejectionOf(quantizeModel(handle(nth, reported), { to: 'int8', workers }));
      expect(error).toMatchObject({ name: 'ScalepointError', code: 'IO' });
    }
  });

  it('may be smaller than what was asked for', async () => {
    const expected = await (await quantizeModel(model, { to: 'int8' })).bytes();
    for (const nth of [1, 2, 3, 4, 5]) {
      const { bytes } = await quantizeModel(
        handle(nth, (asked) => Math.ceil(asked / 2)),
        { to: 'int8' },
      );
      expect(await bytes()).toEqual(expected);
    }
  });

  it('that is 0 means that the file was changed if it is shorter now', async () => {
    const reader = handle(4, () => 0);
    let stats = 0;
    const stat = async () => ({ size: stats++ === 0 ? model.length : 0, mtimeMs: 0, isFile: () => true });
    const error = await rejectionOf(quantizeModel({ ...reader, stat }, { to: 'int8' }));
    expect(error).toMatchObject({ code: 'CHANGED' });
  });

  it('to be written is checked as well', async () => {
    for (const reported of [0, -1, undefined, Number.NaN, 2 ** 40, 0.5]) {
      for (const nth of [1, 2]) {
        let writes = 0;
        const output = {
          truncate: async () => {},
          write: async (_: Uint8Array, __: number, length: number) => {
            return { bytesWritten: (++writes === nth ? reported : Math.ceil(length / 2)) as number };
          },
        };
        const error = await rejectionOf(quantizeModel(model, { to: 'int8', output }));
        expect(error).toMatchObject({ name: 'ScalepointError', code: 'IO' });
      }
    }
  });
});

describe('a Blob', () => {
  /** A Blob that gives more or fewer bytes than it was asked for. */
  class Other extends Blob {
    readonly #more: number;
    constructor(more: number) {
      super([model]);
      this.#more = more;
    }
    override slice(begin: number, end: number): Blob {
      return new Blob([model]).slice(begin, end + this.#more);
    }
  }

  it('that gives more bytes than asked for did not become shorter', async () => {
    expect(await rejectionOf(inspectModel(new Other(2)))).toMatchObject({
      code: 'IO',
      message: 'cannot read the file: 1026 bytes came, of 1024 that were asked for',
      byteOffset: 0,
    });
    expect(await rejectionOf(inspectModel(new Other(-2)))).toMatchObject({ code: 'CHANGED', byteOffset: 1022 });
  });

  it('gives the same error in a worker', async () => {
    class Streamed extends Blob {
      override slice(): Blob {
        return new Blob([model.subarray(0, 100)]);
      }
    }
    for (const asked of [99, 101]) {
      const read = readerOf({ kind: 'blob', blob: new Streamed([]) })!;
      const error = await rejectionOf(Promise.resolve(read(0, new Uint8Array(asked), 0, asked)));
      expect(error).toMatchObject({ code: asked < 100 ? 'IO' : 'CHANGED' });
      if (asked < 100) expect(error).toHaveProperty('message', expect.stringMatching(/: 100 bytes came, of 99 that/));
    }
  });
});

it.each([undefined, -1, Number.NaN, 0.5, 2 ** 60, '8', 8n])('a size of %s is an error', async (size) => {
  const stat = async () => ({ size: size as number, mtimeMs: 0, isFile: () => true });
  expect(await rejectionOf(inspectModel({ stat, read: handle(0, () => 0).read }))).toMatchObject({
    name: 'ScalepointError',
    code: 'IO',
  });
});

it.each([
  ['nothing', () => undefined],
  ['null', () => null],
  ['no isFile', () => ({ size: 8 })],
])('a status that is %s is an error', async (_, status) => {
  const stat = async () => status() as never;
  const error = await rejectionOf(inspectModel({ stat, read: handle(0, () => 0).read }));
  expect(error).toMatchObject({ name: 'ScalepointError', code: 'IO' });
});

it('a handle that is closed is an error of its own kind', async () => {
  const closed = await open(path);
  await closed.close();
  expect(await rejectionOf(inspectModel(closed))).toMatchObject({ name: 'ScalepointError', code: 'IO' });
  for (const workers of [0, 1]) {
    const closing = await open(path);
    const onProgress = () => void closing.close();
    const error = await rejectionOf(quantizeModel(closing, { to: 'int8', workers, onProgress }));
    expect(error).toMatchObject({ name: 'ScalepointError', code: 'IO' });
  }
});

describe('bytes in memory', () => {
  /** The model in a buffer that can shrink. */
  function resizable() {
    const buffer = new (ArrayBuffer as new (size: number, options: object) => ArrayBuffer)(model.length, {
      maxByteLength: model.length,
    }) as ArrayBuffer & { resize(size: number): void };
    const bytes = new Uint8Array(buffer);
    bytes.set(model);
    return { bytes, fixed: new Uint8Array(buffer, 0, model.length), shrink: (size: number) => buffer.resize(size) };
  }

  it('that shrink are an error, wherever they end then', async () => {
    for (const [workers, size] of [
      [0, 0],
      [0, 100],
      [0, model.length - 1],
      [1, 100],
    ] as const) {
      for (const kind of ['bytes', 'fixed'] as const) {
        const memory = resizable();
        const onProgress = () => memory.shrink(size);
        const error = await rejectionOf(quantizeModel(memory[kind], { to: 'int8', workers, onProgress }));
        expect(error).toMatchObject({ name: 'ScalepointError', code: 'CHANGED' });
      }
    }
  });

  it('that shrink between two reads of a header are an error', async () => {
    const memory = resizable();
    const source = await openSource(memory.bytes);
    expect((await source.read(0, 8)).length).toBe(8);
    memory.shrink(4);
    await expect(source.read(0, 8)).rejects.toMatchObject({ code: 'CHANGED' });
    await expect(source.readInto?.(0, new Uint8Array(2))).rejects.toMatchObject({ code: 'CHANGED' });
    await expect(source.verify()).rejects.toMatchObject({ code: 'CHANGED' });
  });

  it('that are detached are an error', async () => {
    for (const workers of [0, 1]) {
      const bytes = model.slice();
      const onProgress = () => structuredClone(bytes.buffer, { transfer: [bytes.buffer] });
      const error = await rejectionOf(quantizeModel(bytes, { to: 'int8', workers, onProgress }));
      expect(error).toMatchObject({ name: 'ScalepointError', code: 'CHANGED' });
    }
  });

  it('that were detached before are a wrong argument, as an array and as its buffer', async () => {
    const bytes = model.slice();
    structuredClone(bytes.buffer, { transfer: [bytes.buffer] });
    for (const file of [bytes, bytes.buffer]) {
      const error = await rejectionOf(quantizeModel(file, { to: 'int8' }));
      expect(error).toMatchObject({ name: 'TypeError', option: 'file', problem: { expected: { state: 'attached' } } });
    }
  });

  it('are copied by what reads them', async () => {
    const bytes = model.slice();
    const source = await openSource(bytes);
    const read = await source.read(0, 16);
    read.fill(0);
    expect(bytes).toEqual(model);
    const { data } = await readTensor(bytes, 'a.weight');
    data.fill(0 as never);
    expect(bytes).toEqual(model);
  });
});

it('takes streams of Node, and leaves no temporary file', async () => {
  const wanted = (await inspectModel(model)).tensors;
  const temporary = join(folder, 'temporary');
  await mkdir(temporary);
  const before = process.env.TMPDIR;
  try {
    process.env.TMPDIR = temporary;
    expect((await inspectModel(Readable.from([model.slice(0, 5), model.slice(5)]))).tensors).toEqual(wanted);
    const info = await inspectModel(createReadStream(path));
    expect(info.files).toEqual(['model.safetensors']);
    expect(await readdir(temporary)).toEqual([]);
  } finally {
    if (before === undefined) delete process.env.TMPDIR;
    else process.env.TMPDIR = before;
  }
});
