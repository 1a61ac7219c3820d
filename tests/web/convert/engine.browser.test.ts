import { compareModels, type Progress, quantizeModel, ScalepointError } from 'scalepoint/model';
import { afterEach, beforeAll, describe, expect, it } from 'vitest';
import {
  expectBytes,
  expectResult,
  mixedModel,
  plain,
  rejectionOf,
  safetensors,
  ways,
  weights,
} from '../support/models.js';

const reason = new Error('enough');
const workerUrl = new URL('../../../web/src/workers/scalepoint-worker.js', import.meta.url);

/** Makes workers, and keeps them. */
function workshop() {
  const workers: Worker[] = [];
  const create = () => {
    const worker = new Worker(workerUrl, { type: 'module' });
    workers.push(worker);
    return worker;
  };
  return { workers, create };
}

const bytesOfFile = async (handle: FileSystemFileHandle) =>
  new Uint8Array(await (await handle.getFile()).arrayBuffer());

let root: FileSystemDirectoryHandle;
beforeAll(async () => {
  root = await navigator.storage.getDirectory();
});
/** Everything in the private file system; what is being written is not listed. */
const names = async () => {
  const found: string[] = [];
  for await (const name of (root as unknown as { keys(): AsyncIterable<string> }).keys()) found.push(name);
  return found;
};
afterEach(async () => {
  for (const name of await names()) await root.removeEntry(name);
});
const fresh = (name = 'out.safetensors') => root.getFileHandle(name, { create: true });

const small = safetensors({ 'a.weight': weights('F32', [8, 64]) });

/** Expects that the call fails, and that the next one works. Gives the error. */
async function fails(call: () => Promise<unknown>): Promise<unknown> {
  const error = await rejectionOf(call());
  const { report, config, bytes } = await quantizeModel(small, { to: 'int8', ...plain, workers: 1 });
  expectResult(small, await bytes(), report, config);
  return error;
}

describe('in Chromium', () => {
  const mixed = mixedModel();

  // Node goes all ways. Workers, Blobs and files are the browser's own.
  for (const way of [4, 11].map((i) => ways[i] as (typeof ways)[number])) {
    it(`${JSON.stringify(way)} gives the same from any worker, build and input, to any output`, async () => {
      const { report, config, bytes } = await quantizeModel(mixed, { ...way, workers: 0, core: { simd: 'on' } });
      const want = await bytes();
      const scalar = await quantizeModel(mixed, { ...way, workers: 2, core: { simd: 'off' } });
      expectBytes(await scalar.bytes(), want, 'scalar');
      expect(scalar.report).toEqual(report);
      expect(scalar.config).toEqual(config);
      const file = new File([mixed], 'model.safetensors');
      for (const workers of [1, 2, 3]) {
        const result = await quantizeModel(file, { ...way, workers });
        expectBytes(await result.bytes(), want, `${workers} workers`);
        expectBytes(new Uint8Array(await (await result.blob()).arrayBuffer()), want);
        expect(result.report).toEqual(report);
      }
      const shifted = new Blob([new Uint8Array(3), mixed, new Uint8Array(2)]).slice(3, 3 + mixed.length);
      for (const workers of [0, 2]) {
        const output = await fresh();
        const toFile = await quantizeModel(shifted, { ...way, workers, output, overwrite: true });
        expectBytes(await bytesOfFile(output), want, 'OPFS');
        expect(toFile.report).toEqual(report);

        const pieces: Uint8Array<ArrayBuffer>[] = [];
        const stream = new WritableStream<Uint8Array<ArrayBuffer>>({ write: (piece) => void pieces.push(piece) });
        const streamed = await quantizeModel(file, { ...way, workers, output: stream });
        expectBytes(new Uint8Array(await new Blob(pieces).arrayBuffer()), want, 'stream');
        expect(streamed.report).toEqual(report);
      }
      // From the private file system, over what is there and longer than the result.
      const input = await fresh('in.safetensors');
      const write = await input.createWritable();
      await write.write(mixed);
      await write.close();
      const output = await (await fresh()).createWritable({ keepExistingData: true });
      await output.write(new Uint8Array(want.length + 1000));
      await quantizeModel(await input.getFile(), { ...way, workers: 2, output });
      expectBytes(await bytesOfFile(await fresh()), want, 'writable file');
    });
  }

  it('starts the worker by itself, reports progress, and compares in workers', async () => {
    const seen: Progress[] = [];
    const { report, config, bytes } = await quantizeModel(new Blob([mixed]), {
      to: 'int8',
      ...plain,
      workers: 2,
      onProgress: (progress) => seen.push(progress),
    });
    expectResult(mixed, await bytes(), report, config);
    expect(new Set(seen.map(({ tensor }) => tensor)).size).toBe(report.tensors.length);
    const done = seen.map(({ bytesDone }) => bytesDone);
    expect(done).toEqual(done.toSorted((a, b) => a - b));
    expect(done.at(-1)).toBe(seen[0]?.bytesTotal);
    const alone = await compareModels(mixed, await bytes(), { workers: 0 });
    expect(await compareModels(new Blob([mixed]), await bytes(), { workers: 2 })).toEqual(alone);
  });

  it('hands over a result of more than 64 MiB as a Blob', async () => {
    const large = safetensors({
      'a.bias': weights('F32', [17 * 2 ** 20], 1),
      'b.weight': weights('F32', [1024, 2048], 2),
    });
    const result = await quantizeModel(new Blob([large]), { to: 'int8', ...plain, workers: 2 });
    const output = await fresh();
    await quantizeModel(new Blob([large]), { to: 'int8', ...plain, workers: 2, output });
    const blob = await result.blob();
    expect(blob.size).toBeGreaterThan(64 * 2 ** 20);
    expectBytes(new Uint8Array(await blob.arrayBuffer()), await bytesOfFile(output));
    expectBytes(await result.bytes(), await bytesOfFile(output));
  });
});

describe('a cancelled call in Chromium', () => {
  const model = safetensors({
    'a.weight': weights('F32', [2048, 2048], 1),
    'b.weight': weights('F32', [2048, 2048], 2),
    'c.weight': weights('F32', [2048, 2048], 3),
  });

  it('stops at once while workers start, even if they never do', async () => {
    const silent = URL.createObjectURL(new Blob(['']));
    for (const worker of [workshop().create, () => new Worker(silent)]) {
      const controller = new AbortController();
      const output = await fresh();
      let steps = 0;
      const call = quantizeModel(new Blob([model]), {
        to: 'int8',
        ...plain,
        workers: 2,
        worker() {
          queueMicrotask(() => controller.abort(reason));
          return worker();
        },
        output,
        signal: controller.signal,
        onProgress: () => steps++,
      });
      expect(await fails(() => call)).toBe(reason);
      expect(steps).toBe(0);
      expect((await output.getFile()).size).toBe(0);
    }
    URL.revokeObjectURL(silent);
  });

  it('stops in the middle and at any time', async () => {
    for (const workers of [0, 2]) {
      for (const delay of [0, 15, 40]) {
        const controller = new AbortController();
        const { signal } = controller;
        let late = 0;
        // Slow enough that there is something to stop at any time.
        const output = new WritableStream<Uint8Array<ArrayBuffer>>({
          write() {
            if (signal.aborted) late++;
            return new Promise((f) => setTimeout(f, 20));
          },
        });
        const onProgress = () => {
          if (signal.aborted) late++;
          setTimeout(() => controller.abort(reason), delay);
        };
        const options = { to: 'int8', ...plain, workers, output, signal, onProgress } as const;
        expect(await fails(() => quantizeModel(new Blob([model]), options))).toBe(reason);
        // Nothing more is written or converted.
        expect(late).toBe(0);
      }
    }
  });

  it('leaves a file as it was', async () => {
    for (const workers of [0, 2]) {
      const output = await fresh();
      const before = await output.createWritable();
      await before.write('before');
      await before.close();
      const controller = new AbortController();
      const onProgress = ({ tensor }: Progress) => tensor === 'b.weight' && controller.abort(reason);
      const options = {
        to: 'int8',
        ...plain,
        workers,
        output,
        overwrite: true,
        signal: controller.signal,
        onProgress,
      } as const;
      expect(await fails(() => quantizeModel(new Blob([model]), options))).toBe(reason);
      expect(await (await output.getFile()).text()).toBe('before');
      expect(await names()).toEqual(['out.safetensors']);
    }
  });

  it('stops while a stream takes nothing more', async () => {
    for (const workers of [0, 2]) {
      const controller = new AbortController();
      const output = new WritableStream<Uint8Array<ArrayBuffer>>({
        write(piece) {
          if (piece.length < 1000) return;
          setTimeout(() => controller.abort(reason), 50);
          return new Promise(() => {});
        },
      });
      const options = { to: 'int8', ...plain, workers, output, signal: controller.signal } as const;
      expect(await fails(() => quantizeModel(new Blob([model]), options))).toBe(reason);
    }
  });
});

describe('a worker that fails in Chromium', () => {
  const model = safetensors({
    'a.weight': weights('F32', [2048, 2048], 1),
    'b.weight': weights('F32', [2048, 2048], 2),
    'c.weight': weights('F32', [2048, 2048], 3),
  });

  it('because it is ended, of which the browser says nothing, names the tensor', async () => {
    const { create, workers } = workshop();
    const output = await fresh();
    const onProgress = ({ tensor }: Progress) => {
      if (tensor !== 'a.weight') return;
      for (const worker of workers) worker.terminate();
    };
    const options = { to: 'int8', ...plain, workers: 2, worker: create, output, onProgress } as const;
    const error = await fails(() => quantizeModel(new Blob([model]), options));
    expect(error).toBeInstanceOf(ScalepointError);
    expect(error).toMatchObject({ code: 'WORKER', tensor: expect.stringMatching(/^[abc]\.weight$/) });
    expect((error as Error).message).toMatch(/^tensor "[abc]\.weight": a worker ended before its time$/);
    expect((await output.getFile()).size).toBe(0);
  });

  it('because it breaks off names the reason', async () => {
    const broken = URL.createObjectURL(new Blob(['throw new Error("broken at the start")']));
    const options = { to: 'int8', ...plain, workers: 2, worker: () => new Worker(broken) } as const;
    expect(await fails(() => quantizeModel(new Blob([model]), options))).toMatchObject({
      code: 'WORKER',
      message: expect.stringMatching(/broken at the start/),
    });
    URL.revokeObjectURL(broken);
  });

  it('because its file is not there says what to do', async () => {
    const url = new URL('/no/such/worker.js', location.href);
    const output = await fresh();
    const options = {
      to: 'int8',
      ...plain,
      workers: 2,
      worker: () => new Worker(url, { type: 'module' }),
      output,
    } as const;
    expect(await fails(() => quantizeModel(new Blob([model]), options))).toMatchObject({
      code: 'WORKER',
      message: expect.stringMatching(/could not be loaded: serve scalepoint-worker\.js/),
    });
    expect((await output.getFile()).size).toBe(0);
  });

  it('that the policy of the page forbids is done without, with a note', async () => {
    const frame = document.createElement('iframe');
    const answer = new Promise<string>((resolve) => {
      addEventListener('message', function listen(event) {
        if (event.source !== frame.contentWindow) return;
        removeEventListener('message', listen);
        resolve(String(event.data));
      });
    });
    const entry = new URL('../../../web/src/model.ts', import.meta.url).href;
    const policy = "script-src 'self' 'unsafe-inline' 'wasm-unsafe-eval'; worker-src 'none'";
    frame.srcdoc = `<!doctype html>
      <meta http-equiv="Content-Security-Policy" content="${policy}">
      <script type="module">
        // The test runner has put this around every import().
        globalThis.__vitest_browser_runner__ = { wrapDynamicImport: (load) => load() };
        const { quantizeModel } = await import(${JSON.stringify(entry)});
        const model = Uint8Array.from(${JSON.stringify([...small])});
        const call = (workers) => quantizeModel(model, { to: 'int8', packed: false, include: 'all', workers }).then(
          ({ report }) => report.totals.quantized + ' quantized, ' + report.notes.map(({ text }) => text).join(), (error) => error.code + ': ' + error.message);
        parent.postMessage([await call(2), await call(0)].join(' / '), '*');
      </script>`;
    document.body.append(frame);
    try {
      expect(await answer).toMatch(
        /^1 quantized, .*,without workers, which is slower: a worker could not be (loaded|started).* \/ 1 quantized, (?!.*without).*$/,
      );
    } finally {
      frame.remove();
    }
  });

  it('does not matter once the call is over', async () => {
    const { create, workers } = workshop();
    const { report, config, bytes } = await quantizeModel(small, { to: 'int8', ...plain, workers: 2, worker: create });
    for (const worker of workers) worker.terminate();
    expectResult(small, await bytes(), report, config);
  });
});
