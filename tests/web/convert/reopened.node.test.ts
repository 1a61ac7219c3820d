// Workers open the files of the model and of the result by themselves. Where they cannot, the thread that opened them first reads and
// writes, and the bytes are the same.
import { renameSync } from 'node:fs';
import { mkdtemp, open, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { inspectModel, type ModelInput, quantizeModel, ScalepointError } from 'scalepoint/model';
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import { expectBytes, plain, rejectionOf, safetensors, weights } from '../support/models.js';
import { tinyLlama } from '../support/tiny-llama.js';
import { replaced, workersWith } from '../support/workers.js';

let folder = '';
let input = '';
let want: Uint8Array;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'scalepoint-reopened-'));
  input = join(folder, 'model.safetensors');
  await writeFile(input, model);
  want = await (await quantizeModel(model, { ...way, workers: 0 })).bytes();
});
afterAll(() => rm(folder, { recursive: true, force: true }));

/** A tensor of two tiles, one whose scales and codes are written as one, and small ones that travel together. */
const tensorsFrom = (seed: number) => ({
  'a.weight': weights('F32', [1100, 1024], seed),
  'b.weight': weights('F32', [300, 1024], seed + 1),
  ...Object.fromEntries(Array.from({ length: 9 }, (_, i) => [`c${i}.weight`, weights('BF16', [8, 64], seed + 2 + i)])),
});
const model = safetensors(tensorsFrom(1));
const way = { to: 'int8', ...plain } as const;
const output = () => join(folder, 'out.safetensors');

/** Bytes that this thread reads and writes through files that it opens itself. */
async function watched<T>(use: () => Promise<T>): Promise<{ readonly read: number; readonly written: number }> {
  const files = process.getBuiltinModule('node:fs/promises');
  const count = { read: 0, written: 0 };
  const { open } = files;
  const spy = vi.spyOn(files, 'open').mockImplementation(async (...parameters) => {
    const handle = await open(...parameters);
    const { read, write } = handle;
    type Call = (bytes: Uint8Array, offset: number, length: number, position: number) => Promise<never>;
    (handle as { read: unknown }).read = (...call: Parameters<Call>) => {
      count.read += call[2];
      return (read as unknown as Call).apply(handle, call);
    };
    (handle as { write: unknown }).write = (...call: Parameters<Call>) => {
      count.written += call[2];
      return (write as unknown as Call).apply(handle, call);
    };
    return handle;
  });
  try {
    await use();
  } finally {
    spy.mockRestore();
  }
  return count;
}

/** Quantizes into a file, and expects the bytes that are always expected. */
async function quantized(code: string, file: ModelInput = input) {
  const worker = workersWith(code);
  const count = await watched(() =>
    quantizeModel(file, { ...way, workers: 2, worker, output: output(), overwrite: true }),
  );
  expectBytes(await readFile(output()), want);
  return count;
}

const dataBytes = 1400 * 1024 * 4;
const resultBytes = 1400 * 1024;
const noAccess = `(() => { throw Object.assign(new Error('EACCES: permission denied, open'), { code: 'EACCES' }); })()`;
const sinksOnly = `args[1] & fs.constants.O_WRONLY`;

describe('workers', () => {
  it('read and write files at paths, and leave the header to the thread that opened them', async () => {
    const { read, written } = await quantized('');
    expect(read).toBeLessThan(10_000);
    expect(written).toBeLessThan(10_000);
  });

  it.each<[string, string, boolean, boolean]>([
    ['may open nothing', replaced('openSync', noAccess), false, false],
    ['may only read', replaced('openSync', `${sinksOnly} ? ${noAccess} : original(...args)`), true, false],
    ['may only write', replaced('openSync', `${sinksOnly} ? original(...args) : ${noAccess}`), false, true],
    ['find other files', replaced('fstatSync', '{ ...original(...args), ino: 7 }'), false, false],
    ['find a file of another length', replaced('fstatSync', '{ ...original(...args), size: 7 }'), false, true],
    ['find a file that was written since', replaced('fstatSync', '{ ...original(...args), mtimeMs: 7 }'), false, true],
  ])('that %s are given the bytes', async (_, code, reads, writes) => {
    const { read, written } = await quantized(code);
    if (reads) expect(read).toBeLessThan(10_000);
    else expect(read).toBeGreaterThan(dataBytes);
    if (writes) expect(written).toBeLessThan(10_000);
    else expect(written).toBeGreaterThan(resultBytes);
  });

  it('write the zeros between small tensors as well', async () => {
    const gguf = tinyLlama({ layers: 10 });
    const path = join(folder, 'model.gguf');
    await writeFile(path, gguf);
    const options = { to: 'Q8_0', workers: 2, worker: workersWith(''), output: output(), overwrite: true } as const;
    const { written } = await watched(() => quantizeModel(path, options));
    const bytes = await readFile(output());
    expectBytes(bytes, await (await quantizeModel(gguf, { to: 'Q8_0', workers: 0 })).bytes());
    const { tensors } = await inspectModel(bytes);
    // The header alone, without the zeros behind it.
    const begin = Math.min(...tensors.map(({ byteOffset }) => byteOffset));
    expect(begin - written).toBeGreaterThanOrEqual(0);
    expect(begin - written).toBeLessThan(32);
  });

  it('read what was opened, even if another file has come to its name', async () => {
    const [path, other] = [join(folder, 'replaced.safetensors'), join(folder, 'other.safetensors')];
    await writeFile(path, model);
    await writeFile(other, safetensors(tensorsFrom(100)));
    const create = workersWith('');
    let isReplaced = false;
    const worker = () => {
      if (!isReplaced) renameSync(other, path);
      isReplaced = true;
      return create();
    };
    await quantizeModel(path, { ...way, workers: 2, worker, output: output(), overwrite: true });
    expectBytes(await readFile(output()), want);
  });

  it('share open files, or are given their bytes where descriptors are not shared', async () => {
    const handle = await open(input);
    await quantized('', handle);
    await quantized(
      replaced('fstatSync', `(() => { throw new Error('EBADF: bad file descriptor, fstat'); })()`),
      handle,
    );
    await handle.close();
  });
});

describe('a system that', () => {
  const counts = ['0', '-1', 'undefined', 'NaN', '0.5', '2 ** 40', 'String(args[3])'];
  it.each(counts.flatMap((told) => [['reads', 'readSync', told] as const, ['writes', 'writeSync', told] as const]))(
    '%s in a worker: %s gives %s, which is an error',
    async (_, name, told) => {
      const before = (await readdir(folder)).sort();
      const worker = workersWith(replaced(name, told, 2));
      const error = await rejectionOf(
        quantizeModel(input, { ...way, workers: 1, worker, output: join(folder, 'never') }),
      );
      expect(error).toBeInstanceOf(ScalepointError);
      expect(error).toMatchObject({ code: 'IO', tensor: expect.stringMatching(/weight$/) });
      expect((await readdir(folder)).sort()).toEqual(before);
    },
  );

  it('reads and writes less than was asked for is asked again', async () => {
    const some = 'original(args[0], args[1], args[2], Math.ceil(args[3] / 3), args[4])';
    await quantized(replaced('readSync', some) + replaced('writeSync', some));
  });

  it('fails with a code gives it to the caller', async () => {
    const code = replaced(
      'readSync',
      `(() => { throw Object.assign(new Error('EIO: i/o error, read'), { code: 'EIO' }); })()`,
    );
    const options = { ...way, workers: 1, worker: workersWith(code), output: join(folder, 'never') };
    expect(await rejectionOf(quantizeModel(input, options))).toMatchObject({
      code: 'IO',
      message: expect.stringMatching(/^tensor "[^"]+" of "model.safetensors": cannot read the file: i\/o error$/),
      cause: expect.objectContaining({ code: 'EIO' }),
    });
  });
});
