import { execFile } from 'node:child_process';
import { openAsBlob } from 'node:fs';
import {
  chmod,
  type FileHandle,
  mkdir,
  mkdtemp,
  open,
  readdir,
  readFile,
  rm,
  truncate,
  writeFile,
} from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { Worker } from 'node:worker_threads';
import { compareModels, type Progress, quantizeModel, readTensor, ScalepointError } from 'scalepoint/model';
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import { hangLimit } from '../../../scripts/chromium.mjs';
import { expectResult, fileWith, plain, rejectionOf, safetensors, weights } from '../support/models.js';
import { replaced, workersWith } from '../support/workers.js';

let folder = '';
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'scalepoint-failures-'));
});
afterAll(() => rm(folder, { recursive: true, force: true }));

const workerFile = new URL('../../../web/src/workers/scalepoint-worker.js', import.meta.url);
const out = () => join(folder, 'never.safetensors');
let counter = 0;

/** A fresh file beside the outputs. */
async function put(bytes: Uint8Array, name = `${counter++}.safetensors`): Promise<string> {
  const path = join(folder, name);
  await writeFile(path, bytes);
  return path;
}

/** 40 MiB in tensors of several tiles each: enough to be interrupted anywhere. */
const model = safetensors({
  'a.bias': weights('F32', [64]),
  'b.weight': weights('F32', [2048, 2048], 2),
  'c.weight': weights('F16', [2, 2 ** 20 + 128], 3),
  'd.weight': weights('F32', [1024, 2048], 4),
  'e.weight': weights('F32', [1024, 2048], 5),
});
const small = safetensors({ 'a.weight': weights('F32', [8, 64]) });

/** Expects that the call fails, that the folder is as before, and that the next call works. Gives the error. */
async function leavesNothing(call: () => Promise<unknown>): Promise<unknown> {
  const before = (await readdir(folder)).sort();
  const error = await rejectionOf(call());
  expect((await readdir(folder)).sort()).toEqual(before);
  const { report, config, bytes } = await quantizeModel(small, { to: 'int8', ...plain });
  expectResult(small, await bytes(), report, config);
  return error;
}

/** Makes workers, counts the messages to them, and reports when they have ended. */
function workshop() {
  const workers: Worker[] = [];
  const ends: Promise<unknown>[] = [];
  let messages = 0;
  return {
    workers,
    messages: () => messages,
    create() {
      const worker = new Worker(workerFile);
      const post = worker.postMessage.bind(worker);
      worker.postMessage = (...message) => {
        messages++;
        post(...message);
      };
      workers.push(worker);
      ends.push(new Promise((resolve) => worker.once('exit', resolve)));
      return worker;
    },
    /** Fails by the test's time limit if a worker goes on. */
    allEnded: () => Promise.all(ends),
  };
}

describe('progress', () => {
  it('comes at least once a tensor, grows, and ends at the end', async () => {
    for (const workers of [0, 2]) {
      for (const output of [undefined, new WritableStream<Uint8Array<ArrayBuffer>>()]) {
        const seen: Progress[] = [];
        const onProgress = (progress: Progress) => seen.push(progress);
        const empty = weights('F32', [0, 4]);
        const all = safetensors({ x: empty, 'w.weight': weights('F32', [3, 2 ** 20]), 'w.bias': weights('F32', [3]) });
        await quantizeModel(all, { to: 'int8', ...plain, workers, onProgress, ...(output && { output }) });
        expect(new Set(seen.map(({ tensor }) => tensor))).toEqual(new Set(['x', 'w.weight', 'w.bias']));
        const done = seen.map(({ bytesDone }) => bytesDone);
        expect(done).toEqual(done.toSorted((a, b) => a - b));
        expect(seen.at(-1)).toMatchObject({ count: 3, bytesDone: 12 * 2 ** 20 + 12, bytesTotal: 12 * 2 ** 20 + 12 });
        expect(seen.find(({ tensor }) => tensor === 'w.bias')).toMatchObject({ phase: 'copy', index: 2 });
      }
    }
  });

  it('rejects the call with what it throws', async () => {
    const reason = new Error('from the callback');
    for (const workers of [0, 2]) {
      const { create, allEnded } = workshop();
      const onProgress = ({ tensor }: Progress) => {
        if (tensor === 'b.weight') throw reason;
      };
      const options = { to: 'int8', ...plain, workers, worker: create, output: out(), onProgress } as const;
      expect(await leavesNothing(() => quantizeModel(model, options))).toBe(reason);
      await allEnded();
    }
  });
});

describe('a cancelled call', () => {
  const reason = new Error('enough');

  it('does nothing if it was cancelled before', async () => {
    const { create, workers } = workshop();
    const options = { to: 'int8', ...plain, worker: create, workers: 2, output: out() } as const;
    const signal = AbortSignal.abort(reason);
    expect(await leavesNothing(() => quantizeModel(model, { ...options, signal }))).toBe(reason);
    expect(workers).toHaveLength(0);
  });

  it('stops while workers start', async () => {
    const controller = new AbortController();
    const { create, allEnded, messages } = workshop();
    let before = 0;
    const worker = () => {
      queueMicrotask(() => {
        before = messages();
        controller.abort(reason);
      });
      return create();
    };
    const onProgress = vi.fn();
    const { signal } = controller;
    const options = { to: 'int8', ...plain, worker, workers: 3, output: out(), signal, onProgress } as const;
    expect(await leavesNothing(() => quantizeModel(model, options))).toBe(reason);
    expect(onProgress).not.toHaveBeenCalled();
    expect(messages()).toBe(before);
    await allEnded();
  });

  it('stops in the middle of reading, converting and writing, at any time', async () => {
    const path = await put(new Uint8Array(0));
    const tensors = Array.from({ length: 8 }, (_, i) => {
      return [`w${i}.weight`, { dtype: 'F32', shape: [16_384, 1024], data_offsets: [i * 2 ** 26, (i + 1) * 2 ** 26] }];
    });
    const head = fileWith(JSON.stringify(Object.fromEntries(tensors)));
    await writeFile(path, head);
    await truncate(path, head.length + 8 * 2 ** 26);
    for (const workers of [0, 1, 2]) {
      // Milliseconds after the start of the call, or after the end of a tensor: however fast the machine is, a quarter of a GiB is left then.
      for (const [after, delay] of [
        [undefined, 0],
        [undefined, 20],
        ['w0.weight', 0],
        ['w1.weight', 7],
        ['w2.weight', 3],
      ] as const) {
        const { create, allEnded, messages } = workshop();
        const controller = new AbortController();
        let [before, late] = [0, 0];
        const abortLater = () =>
          setTimeout(() => {
            if (controller.signal.aborted) return;
            before = messages();
            controller.abort(reason);
          }, delay);
        if (after === undefined) abortLater();
        const onProgress = ({ tensor }: Progress) => {
          if (controller.signal.aborted) late++;
          if (tensor === after) abortLater();
        };
        const { signal } = controller;
        const options = { to: 'int4', workers, worker: create, output: out(), onProgress, signal } as const;
        expect(await leavesNothing(() => quantizeModel(path, options))).toBe(reason);
        // Nothing more is begun.
        expect({ workers, after, delay, late, messages: messages() }).toEqual({
          ...{ workers, after, delay },
          ...{ late: 0, messages: before },
        });
        await allEnded();
      }
    }
    await rm(path);
  });

  it('stops at any tensor, and passes over what is already written', async () => {
    for (const workers of [0, 2]) {
      for (const stop of ['a.bias', 'b.weight', 'c.weight', 'e.weight']) {
        const controller = new AbortController();
        const onProgress = ({ tensor }: Progress) => tensor === stop && controller.abort(reason);
        const options = {
          to: 'int8',
          ...plain,
          workers,
          output: out(),
          signal: controller.signal,
          onProgress,
        } as const;
        expect(await leavesNothing(() => quantizeModel(model, options))).toBe(reason);
      }
    }
  });

  it('stops while a stream takes nothing more, or a file gives nothing more', async () => {
    const path = await put(model);
    const handle = await open(path);
    const never = new Promise<never>(() => {});
    for (const workers of [0, 2]) {
      /** The event that follows once nothing goes on. */
      let whenStuck = () => {};
      const stuck = () => {
        setTimeout(whenStuck, 20);
        return never;
      };
      const stalled = {
        stat: () => handle.stat(),
        read: (buffer: Uint8Array, offset: number, length: number, position: number) =>
          position > 2 ** 23 ? stuck() : handle.read(buffer, offset, length, position),
      };
      let aborted: unknown;
      const taken = new WritableStream<Uint8Array<ArrayBuffer>>({
        write: (piece) => (piece.length > 1000 ? stuck() : undefined),
        abort(why) {
          aborted = why;
        },
      });
      for (const [input, output] of [
        [stalled, undefined],
        [stalled, out()],
        [path, taken],
      ] as const) {
        const controller = new AbortController();
        const { create, allEnded } = workshop();
        whenStuck = () => controller.abort(reason);
        const options = {
          to: 'int8',
          ...plain,
          workers,
          worker: create,
          signal: controller.signal,
          ...(output && { output }),
        };
        expect(await leavesNothing(() => quantizeModel(input, options as { to: 'int8' }))).toBe(reason);
        await allEnded();
      }
      // The stream would hear of it as soon as its write ends, which is never.
      expect(aborted).toBeUndefined();
    }
    await handle.close();
  });

  it('aborts its stream with the reason', async () => {
    const controller = new AbortController();
    let aborted: unknown;
    const output = new WritableStream<Uint8Array<ArrayBuffer>>({
      abort(why) {
        aborted = why;
      },
    });
    const onProgress = () => controller.abort(reason);
    const options = { to: 'int8', ...plain, workers: 2, output, signal: controller.signal, onProgress } as const;
    expect(await leavesNothing(() => quantizeModel(model, options))).toBe(reason);
    expect(aborted).toBe(reason);
  });

  it('stops comparing as well', async () => {
    for (const workers of [0, 2]) {
      const controller = new AbortController();
      const { create, allEnded } = workshop();
      const onProgress = () => controller.abort(reason);
      const call = () =>
        compareModels(model, model, { workers, worker: create, signal: controller.signal, onProgress });
      expect(await leavesNothing(call)).toBe(reason);
      await allEnded();
    }
  });

  it('lets the process end', async () => {
    const path = await put(model);
    const script = `
      import { quantizeModel } from ${JSON.stringify(new URL('../../../dist/model.js', import.meta.url).href)};
      const controller = new AbortController();
      const call = quantizeModel(${JSON.stringify(path)}, { to: 'int8', packed: false, include: 'all', workers: 2, output: ${JSON.stringify(out())},
        signal: controller.signal, onProgress: () => controller.abort('enough') });
      console.log(await call.catch((reason) => reason));`;
    const child = promisify(execFile)(process.execPath, ['--input-type=module', '-e', script], { timeout: hangLimit });
    expect((await child).stdout).toBe('enough\n');
  });
});

describe('an output that fails', () => {
  const noSpace = () => Object.assign(new Error('ENOSPC: no space left on device, write'), { code: 'ENOSPC' });

  /** Lets every file that is opened for writing fail at its nth call of a method. */
  async function failing<T>(method: 'write' | 'datasync' | 'close', nth: number, use: () => Promise<T>): Promise<T> {
    const files = process.getBuiltinModule('node:fs/promises');
    const { open } = files;
    const spy = vi.spyOn(files, 'open').mockImplementation(async (...parameters) => {
      const handle = await open(...parameters);
      if (parameters[1] !== 'wx') return handle;
      const original = handle[method].bind(handle) as (...values: unknown[]) => Promise<unknown>;
      let calls = 0;
      (handle[method] as unknown) = async (...values: unknown[]) => {
        if (++calls !== nth) return original(...values);
        if (method === 'close') await original();
        throw noSpace();
      };
      return handle;
    });
    try {
      return await use();
    } finally {
      spy.mockRestore();
    }
  }

  it('because the disk is full names the tensor and the file', async () => {
    for (const workers of [0, 2]) {
      for (const nth of [2, 5, 9]) {
        // Workers write by themselves.
        const full = `(() => { throw Object.assign(new Error('ENOSPC: no space left on device, write'), { code: 'ENOSPC' }); })()`;
        const worker = workersWith(replaced('writeSync', full, nth));
        const options = { to: 'int8', ...plain, workers, worker, output: out() } as const;
        const call = () => quantizeModel(model, options);
        const error = await leavesNothing(() => (workers === 0 ? failing('write', nth, call) : call()));
        expect(error).toBeInstanceOf(ScalepointError);
        expect(error).toMatchObject({
          code: 'IO',
          tensor: expect.stringMatching(/^[a-e]\./),
          cause: expect.objectContaining({ code: 'ENOSPC' }),
        });
        const { message, tensor } = error as ScalepointError;
        expect(message).toBe(`tensor "${tensor}": cannot write "${out()}": no space left on device`);
      }
    }
  });

  it('only when all was written names the file', async () => {
    for (const method of ['datasync', 'close'] as const) {
      const options = { to: 'int8', ...plain, workers: 0, output: out() } as const;
      const error = await leavesNothing(() => failing(method, 1, () => quantizeModel(model, options)));
      expect(error).toMatchObject({ code: 'IO', message: `cannot write "${out()}": no space left on device` });
    }
  });

  it('is emptied if it was opened by the caller', async () => {
    const path = await put(new Uint8Array(100).fill(7));
    const handle = await open(path, 'r+');
    let calls = 0;
    const output = {
      truncate: (length: number) => handle.truncate(length),
      async write(buffer: Uint8Array, offset: number, length: number, position: number) {
        if (++calls === 6) throw noSpace();
        // Part of it at a time, as a system may.
        return handle.write(buffer, offset, Math.min(length, 1_000_003), position);
      },
    };
    const error = await leavesNothing(() => quantizeModel(model, { to: 'int8', ...plain, workers: 2, output }));
    expect(error).toMatchObject({ code: 'IO', message: expect.stringMatching(/the open file: no space left/) });
    expect((await handle.stat()).size).toBe(0);
    await handle.close();
  });

  it.skipIf(process.platform !== 'linux')('is a device that is always full', async () => {
    const handle = await open('/dev/full', 'r+');
    const error = await leavesNothing(() => quantizeModel(model, { to: 'int8', ...plain, workers: 2, output: handle }));
    expect(error).toMatchObject({ code: 'IO', cause: expect.objectContaining({ code: 'ENOSPC' }) });
    await handle.close();
    const options = { to: 'int8', ...plain, output: '/dev/full', overwrite: true } as const;
    expect(await leavesNothing(() => quantizeModel(model, options))).toMatchObject({
      code: 'IO',
      message: 'cannot write "/dev/full": it is not a regular file',
    });
  });

  it('is a stream that breaks, before or in between', async () => {
    for (const nth of [1, 4]) {
      let calls = 0;
      const broken = new Error('the connection is gone');
      const output = new WritableStream<Uint8Array<ArrayBuffer>>({
        write() {
          if (++calls === nth) throw broken;
        },
      });
      const error = await leavesNothing(() => quantizeModel(model, { to: 'int8', ...plain, workers: 2, output }));
      expect(error).toMatchObject({ code: 'IO', cause: broken });
    }
    const locked = new WritableStream<Uint8Array<ArrayBuffer>>();
    locked.getWriter();
    expect(await leavesNothing(() => quantizeModel(model, { to: 'int8', ...plain, output: locked }))).toBeInstanceOf(
      TypeError,
    );
  });

  it('cannot be made in a folder that is read-only, a file, or missing', async () => {
    const closed = join(folder, 'closed');
    await mkdir(closed);
    await chmod(closed, 0o555);
    const file = await put(small);
    // The administrator may write anywhere, but not there.
    const refused = process.getuid?.() === 0 ? '/proc/self' : closed;
    for (const place of [refused, file, join(folder, 'missing')]) {
      const output = join(place, 'x.safetensors');
      const error = await leavesNothing(() => quantizeModel(small, { to: 'int8', ...plain, output }));
      expect(error).toMatchObject({
        code: 'IO',
        message: expect.stringContaining(`cannot write ${JSON.stringify(output)}`),
      });
    }
    await rm(closed, { recursive: true });
  });

  it('exists already, from the start or only at the end', async () => {
    const path = await put(Uint8Array.of(1, 2, 3));
    const options = { to: 'int8', ...plain, output: path } as const;
    expect(await leavesNothing(() => quantizeModel(model, options))).toMatchObject({ code: 'EXISTS' });
    expect([...(await readFile(path))]).toEqual([1, 2, 3]);
    const late = join(folder, 'late.safetensors');
    let made: Promise<void> | undefined;
    const onProgress = () => {
      made ??= writeFile(late, 'mine');
    };
    const error = await rejectionOf(
      quantizeModel(model, { to: 'int8', ...plain, output: late, workers: 2, onProgress }),
    );
    await made;
    expect(error).toMatchObject({ code: 'EXISTS' });
    expect(await readFile(late, 'utf8')).toBe('mine');
    expect((await readdir(folder)).filter((name) => name.endsWith('.partial'))).toEqual([]);
  });
});

describe('an input that changes while it is read', () => {
  /** Quantizes a file that `change` changes once the first tensor is done. */
  async function changed(workers: number, change: (path: string) => Promise<void>, blob = false): Promise<unknown> {
    const path = await put(model);
    let made: Promise<void> | undefined;
    const onProgress = () => {
      made ??= change(path);
    };
    // Waits for the change in the middle, in any order of the threads.
    const output = new WritableStream<Uint8Array<ArrayBuffer>>({ write: () => made });
    const input = blob ? await openAsBlob(path) : path;
    const error = await leavesNothing(() =>
      quantizeModel(input, { to: 'int8', ...plain, workers, output, onProgress }),
    );
    expect(error).toBeInstanceOf(ScalepointError);
    const name = blob ? '' : ` of "${path.slice(folder.length + 1)}"`;
    const { tensor, message } = error as ScalepointError;
    expect(message).toMatch(new RegExp(`^tensor "${tensor}"${name}: `));
    // The one that was just done if the change is quick.
    expect(tensor).toMatch(/^(a\.bias|[b-e]\.weight)$/);
    return error;
  }

  const shorter = (path: string) => truncate(path, 1000);
  const other = async (path: string) => {
    const handle: FileHandle = await open(path, 'r+');
    await handle.write(Uint8Array.of(1), 0, 1, model.length - 5000);
    await handle.utimes(new Date(), new Date(Date.now() + 5000));
    await handle.close();
  };
  const longer = (path: string) => writeFile(path, new Uint8Array(1000), { flag: 'a' });

  it('fails with the names of the tensor and the file, and the code CHANGED', async () => {
    for (const workers of [0, 1, 2]) {
      for (const change of [shorter, other, longer]) {
        expect(await changed(workers, change)).toMatchObject({ code: 'CHANGED' });
      }
    }
  });

  it('fails if it is a Blob of a file', async () => {
    for (const workers of [0, 2]) expect(await changed(workers, shorter, true)).toMatchObject({ code: 'IO' });
  });

  it('never brings old memory into the result, however much a system gives at once', async () => {
    const path = await put(model);
    const handle = await open(path);
    const lying = {
      // Larger than it is: the rest of the last tensor does not exist.
      stat: async () => ({ size: model.length + 4 * 1024 * 2048, mtimeMs: 0, isFile: () => true }),
      read: (buffer: Uint8Array, offset: number, length: number, position: number) =>
        handle.read(buffer, offset, length, position),
    };
    const header = JSON.parse(
      new TextDecoder().decode(model.subarray(8, 8 + new DataView(model.buffer).getUint32(0, true))),
    );
    const [begin, end] = header['e.weight'].data_offsets;
    const entry = JSON.stringify({
      ...header['e.weight'],
      shape: [2048, 2048],
      data_offsets: [begin, 2 * end - begin],
    });
    const text = JSON.stringify({ ...header, 'e.weight': 0 }).replace('"e.weight":0', `"e.weight":${entry}`);
    const file = fileWith(text, model.subarray(8 + JSON.stringify(header).length));
    await writeFile(path, file);
    lying.stat = async () => ({ size: file.length + (end - begin), mtimeMs: 0, isFile: () => true });
    for (const workers of [0, 2]) {
      const error = await leavesNothing(() => quantizeModel(lying, { to: 'int8', ...plain, workers, output: out() }));
      expect(error).toMatchObject({ code: 'IO', tensor: 'e.weight' });
    }
    await handle.close();
  });
});

describe('a worker that fails', () => {
  it('because it is ended names the tensor', async () => {
    for (const end of [
      (worker: Worker) => void worker.terminate(),
      (worker: Worker) => void worker.emit('error', new Error('out of memory')),
    ]) {
      const { create, workers, allEnded } = workshop();
      const onProgress = ({ tensor }: Progress) => {
        if (tensor === 'b.weight') end(workers[1] as Worker);
      };
      const options = { to: 'int8', ...plain, workers: 2, worker: create, output: out(), onProgress } as const;
      const error = await leavesNothing(() => quantizeModel(model, options));
      expect(error).toBeInstanceOf(ScalepointError);
      expect(error).toMatchObject({ code: 'WORKER', tensor: expect.stringMatching(/^[b-e]\.weight$/) });
      await allEnded();
    }
  });

  it('because it does not start names the reason', async () => {
    const cases: [() => Worker, RegExp][] = [
      [() => new Worker(new URL('./missing.js', import.meta.url)), /Cannot find module/],
      [() => new Worker('throw new Error("broken at the start")', { eval: true }), /broken at the start/],
      [() => new Worker('', { eval: true }), /ended before its time/],
    ];
    for (const [create, words] of cases) {
      const options = { to: 'int8', ...plain, workers: 2, worker: create, output: out() } as const;
      const error = await leavesNothing(() => quantizeModel(model, options));
      expect(error).toMatchObject({ code: 'WORKER', message: expect.stringMatching(words) });
    }
    const broken = new Error('no workers here');
    const worker = () => {
      throw broken;
    };
    const call = () => quantizeModel(model, { to: 'int8', ...plain, workers: 2, worker, output: out() });
    expect(await leavesNothing(call)).toBe(broken);
  });

  it('after the other ones have started ends them all', async () => {
    const { create, workers, allEnded } = workshop();
    const worker = () => (workers.length < 2 ? create() : new Worker('throw new Error("third")', { eval: true }));
    const call = () => quantizeModel(model, { to: 'int8', ...plain, workers: 3, worker, output: out() });
    expect(await leavesNothing(call)).toMatchObject({ code: 'WORKER', message: expect.stringMatching(/third/) });
    await allEnded();
  });

  it('does not matter once the call is over', async () => {
    const { create, workers, allEnded } = workshop();
    const { report, config, bytes } = await quantizeModel(small, { to: 'int8', ...plain, workers: 2, worker: create });
    await allEnded();
    expect(workers).toHaveLength(2);
    expectResult(small, await bytes(), report, config);
  });
});

describe('a bad file', () => {
  /** Expects a typed error with its position, and an empty output. */
  async function refused(bytes: Uint8Array, what: string, code = 'BAD_FILE'): Promise<void> {
    const before = await readdir(folder);
    const error = await rejectionOf(quantizeModel(bytes, { to: 'int8', ...plain, output: out() }));
    expect(error, what).toBeInstanceOf(ScalepointError);
    expect((error as ScalepointError).code, what).toBe(code);
    if (code === 'BAD_FILE') expect((error as ScalepointError).byteOffset, what).toBeGreaterThanOrEqual(0);
    expect(await readdir(folder), what).toEqual(before);
  }

  const entry = (dtype: string, shape: readonly number[], begin: number | string, end: number | string) =>
    `{"dtype":"${dtype}","shape":[${shape}],"data_offsets":[${begin},${end}]}`;

  it('is one that ends anywhere in its header or its data', async () => {
    const file = safetensors({ 'a.weight': weights('F32', [2, 4]), 'a.bias': weights('F16', [2]) }, { k: 'v' });
    for (let length = 0; length < file.length; length++) {
      const known = length > 8;
      await refused(file.subarray(0, length), `${length} bytes`, known ? 'BAD_FILE' : 'UNKNOWN_FORMAT');
    }
    await refused(Buffer.concat([file, Uint8Array.of(0)]), 'one byte more');
  });

  it('is one that lies about lengths, places or products', async () => {
    const lying: [string, string, number][] = [
      ['overlap', `{"a":${entry('F32', [2, 2], 0, 16)},"b":${entry('F32', [2, 2], 8, 24)}}`, 24],
      ['hole', `{"a":${entry('F32', [2, 2], 0, 16)},"b":${entry('F32', [2, 2], 24, 40)}}`, 40],
      ['hole at the start', `{"a":${entry('F32', [2, 2], 8, 24)}}`, 24],
      ['beyond the end', `{"a":${entry('F32', [2, 2], 0, 16)}}`, 15],
      ['far beyond the end', `{"a":${entry('F32', [2 ** 20, 2 ** 20], 0, 2 ** 42)}}`, 16],
      ['beyond 2^53', `{"a":${entry('F32', [1], '9007199254740993', '9007199254740997')}}`, 16],
      ['backwards', `{"a":${entry('F32', [2, 2], 16, 0)}}`, 16],
      ['too few bytes', `{"a":${entry('F32', [2, 3], 0, 16)}}`, 16],
      ['a product beyond 2^53', `{"a":${entry('F32', [2 ** 30, 2 ** 30], 0, 16)}}`, 16],
      ['a product that wraps to 16', `{"a":${entry('U8', [2 ** 32, 2 ** 32, 16], 0, 16)}}`, 16],
      ['a product hidden by a zero', `{"a":${entry('U8', [2 ** 40, 2 ** 40, 0], 0, 0)}}`, 0],
      ['negative', `{"a":${entry('F32', [-2, -2], 0, 16)}}`, 16],
      ['a fraction', `{"a":{"dtype":"F32","shape":[2,2.0],"data_offsets":[0,16]}}`, 16],
      ['one name twice', `{"a":${entry('F32', [2], 0, 8)},"a":${entry('F32', [2], 8, 16)}}`, 16],
      [
        'one name twice, spelt in two ways',
        `{"a":${entry('F32', [2], 0, 8)},"\\u0061":${entry('F32', [2], 8, 16)}}`,
        16,
      ],
      ['deep nesting', `{"a":{"x":${'['.repeat(1e6)}`, 16],
      ['deep objects', `{"a":{"x":${'{"x":'.repeat(1e6)}`, 16],
      ['a million dimensions', `{"a":${entry('F32', Array(1e6).fill(1), 0, 8)}}`, 8],
      ['an unknown type', `{"a":${entry('F31', [2, 2], 0, 16)}}`, 16],
    ];
    for (const [what, json, data] of lying) await refused(fileWith(json, data), what);
    for (const length of [0xffff_ffff_ffff_ffffn, 0x8000_0000_0000_0000n, 100_000_001n, 1n << 32n, 200n]) {
      const file = fileWith(`{"a":${entry('F32', [2, 2], 0, 16)}}`, 16);
      new DataView(file.buffer).setBigUint64(0, length, true);
      await refused(file, `a header of ${length} bytes`);
    }
    const many = Array.from({ length: 200_000 }, (_, i) => `"t${i}":${entry('U8', [0], 0, 0)}`).join();
    await refused(fileWith(`{${many},"z":${entry('U8', [1], 0, 1)}}`), 'many tensors and no data');
  });

  it('is not one whose names mean something to JavaScript', async () => {
    const names = ['__proto__', 'constructor', 'toString', 'hasOwnProperty', 'a b/ü"\\\n', ''];
    const entries = names.map((name, i) => `${JSON.stringify(name)}:${entry('F32', [4, 8], 128 * i, 128 * (i + 1))}`);
    const data = new Float32Array(32 * names.length).map((_, i) => Math.sin(i + 1));
    const file = fileWith(`{"__metadata__":{"__proto__":"p"},${entries.join()}}`, new Uint8Array(data.buffer));
    for (const workers of [0, 2]) {
      const { report, bytes } = await quantizeModel(file, { to: 'int8', ...plain, workers });
      expect(report.tensors.map(({ name }) => name)).toEqual(names);
      expect(report.totals.quantized).toBe(names.length);
      const result = await bytes();
      for (const [i, name] of names.entries()) {
        const codes = (await readTensor(result, name)).data as Int8Array;
        const [scale = 0] = (await readTensor(result, `${name}_scale`)).data as Float32Array;
        for (let j = 0; j < 8; j++) {
          expect(Math.abs((codes[j] as number) * scale - (data[32 * i + j] as number))).toBeLessThanOrEqual(
            scale * 0.51,
          );
        }
      }
      const compared = await compareModels(file, result);
      expect(compared.tensors.map(({ name }) => name)).toEqual(names);
    }
  });
});
