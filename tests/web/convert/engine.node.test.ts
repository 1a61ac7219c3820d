import { openAsBlob } from 'node:fs';
import { mkdtemp, open, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { compareModels, type ModelInput, planModel, quantizeModel } from 'scalepoint/model';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import {
  expectBytes,
  expectResult,
  mixedModel,
  plain,
  safetensors,
  smallModel,
  ways,
  weights,
} from '../support/models.js';

let folder = '';
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'scalepoint-engine-'));
});
afterAll(() => rm(folder, { recursive: true, force: true }));

let counter = 0;
const fresh = () => join(folder, `${counter++}.safetensors`);

const mixed = mixedModel();
const small = smallModel();
const nameOf = (way: (typeof ways)[number]) => JSON.stringify(way);

type Way = (typeof ways)[number];
const results = new Map<Way, ReturnType<typeof quantizeModel>>();

/** The result of the mixed model with the SIMD build in this thread, made once. */
function madeIn(way: Way): ReturnType<typeof quantizeModel> {
  const made = results.get(way) ?? quantizeModel(mixed, { ...way, workers: 0, core: { simd: 'on' } });
  results.set(way, made);
  return made;
}

describe('every way through the engine', () => {
  const large = ways.filter((_, i) => [2, 4, 7].includes(i));

  for (const way of ways) {
    it(`${nameOf(way)}: codes, scales and errors are right, and the same from any worker and build`, async () => {
      const { report, config, bytes } = await madeIn(way);
      const want = await bytes();
      // The reference is slow. It judges the large model only for the ways that cut tensors differently; the small one judges the arithmetic.
      if (large.includes(way)) expectResult(mixed, want, report, config);
      const little = await quantizeModel(small, { ...way, workers: 0 });
      expectResult(small, await little.bytes(), little.report, little.config);
      const { totals, tensors } = await planModel(mixed, way);
      expect(totals).toEqual(report.totals);
      expect(tensors).toEqual(report.tensors.map(({ error: _, nonFinite: __, ...planned }) => planned));

      const scalar = await quantizeModel(mixed, { ...way, workers: 0, core: { simd: 'off' } });
      expectBytes(await scalar.bytes(), want, 'scalar');
      expect(scalar.report).toEqual(report);
      const path = fresh();
      await writeFile(path, mixed);
      // Starting workers takes most of the time.
      for (const workers of large.includes(way) ? [1, 2, 3] : [2]) {
        const output = fresh();
        const result = await quantizeModel(path, { ...way, workers, output });
        expectBytes(await readFile(output), want, `${workers} workers`);
        expect(result.report).toEqual(report);
        await rm(output);
      }

      // Without positions the parts come in the order of the file, each by itself.
      const pieces: Uint8Array[] = [];
      const stream = new WritableStream<Uint8Array<ArrayBuffer>>({ write: (piece) => void pieces.push(piece) });
      const streamed = await quantizeModel(mixed, { ...way, workers: large.includes(way) ? 2 : 1, output: stream });
      expectBytes(Buffer.concat(pieces), want, 'stream');
      expect(streamed.report).toEqual(report);
      await rm(path);
    });
  }

  it('gives the errors that comparing the files gives', async () => {
    for (const way of ways) {
      const { report, bytes } = await madeIn(way);
      const compared = await compareModels(mixed, await bytes(), { workers: 2 });
      expect(compared).toMatchObject({ skipped: [{ name: 'flag' }, { name: 'ids' }], onlyInA: [], onlyInB: [] });
      const converted = report.tensors.filter(({ error }) => error !== undefined);
      expect(converted.length).toBeGreaterThan(2);
      for (const { name, error } of converted) {
        const other = compared.tensors.find((tensor) => tensor.name === name)?.error;
        if (error === undefined || other === undefined) throw new Error(`${name} was not compared`);
        expect(other.maxAbsoluteError, name).toBe(error.maxAbsoluteError);
        // The two cut tensors in places of their own, and so sum other blocks: each sum is off by 70 * 2^-24 of itself at most.
        expect(Math.abs(other.mse - error.mse), name).toBeLessThanOrEqual(2.01 * 70 * 2 ** -24 * error.mse);
        if (error.mse > 0) expect(Math.abs(other.sqnrDb - error.sqnrDb), name).toBeLessThan(8e-5);
      }
      for (const { name, kept } of report.tensors) {
        if (kept === undefined) continue;
        const same = compared.tensors.find((tensor) => tensor.name === name)?.error;
        if (same !== undefined) expect(same).toMatchObject({ mse: 0, cosine: 1, sqnrDb: Infinity });
      }
    }
  });

  it('compares codes of rows so short that their width does not follow from their words', async () => {
    for (const columns of [2, 3, 4, 5]) {
      const model = safetensors({ 'w.weight': weights('F32', [50, columns]) });
      for (const to of ['int4', 'int8'] as const) {
        const granularity = { kind: 'per-channel' } as const;
        const rules = [{ match: /w/, to, granularity }];
        const { report, bytes } = await quantizeModel(model, { to, granularity, packed: true, rules });
        const { tensors } = await compareModels(model, await bytes());
        expect(tensors).toMatchObject([{ name: 'w.weight', b: to === 'int4' ? 'I4' : 'I8' }]);
        expect(tensors[0]?.error.maxAbsoluteError).toBe(report.tensors[0]?.error?.maxAbsoluteError);
      }
    }
  });

  it('takes groups so long that no tile holds them for the eight rows of a word', async () => {
    const groupSize = 2 ** 18;
    const model = safetensors({ 'w.weight': weights('F16', [9, groupSize]) });
    for (const scheme of ['symmetric', 'asymmetric'] as const) {
      const options = { to: 'int4', scheme, granularity: { kind: 'per-group', groupSize } } as const;
      const { report, config, bytes } = await quantizeModel(model, { ...options, workers: 0 });
      expectResult(model, await bytes(), report, config);
    }
  });

  it('takes a model without tensors, and one of nothing but empty ones', async () => {
    for (const model of [
      safetensors({}),
      safetensors({ 'a.weight': weights('F32', [0, 4]), b: weights('F16', [0]) }),
    ]) {
      for (const workers of [0, 2]) {
        const { report, bytes } = await quantizeModel(model, { to: 'int8', ...plain, workers });
        expectResult(model, await bytes(), report);
      }
    }
  });
});

describe('where the bytes come from', () => {
  const model = safetensors(
    { 'a.weight': weights('F32', [700, 2100]), 'b.weight': weights('F64', [30, 50]), c: weights('BF16', [33, 9]) },
    { format: 'pt' },
  );
  const way = { to: 'int8', ...plain, scheme: 'asymmetric' } as const;
  let want: Uint8Array;
  beforeAll(async () => {
    const { report, config, bytes } = await quantizeModel(model, { ...way, workers: 0 });
    want = await bytes();
    expectResult(model, want, report, config);
  });

  const expectSame = async (input: ModelInput, what: string) => {
    for (const workers of [0, 1]) {
      const { bytes } = await quantizeModel(input, { ...way, workers });
      expectBytes(await bytes(), want, `${what}, ${workers} workers`);
    }
  };

  it('is memory of any kind and at any offset, which stays as it was', async () => {
    const shifted = new Uint8Array(model.length + 7).subarray(3, 3 + model.length);
    shifted.set(model);
    const shared = new Uint8Array(new SharedArrayBuffer(model.length));
    shared.set(model);
    const copy = model.slice();
    await expectSame(copy, 'array');
    await expectSame(copy.buffer, 'buffer');
    await expectSame(shifted, 'part of an array');
    await expectSame(shared, 'shared memory');
    for (const after of [copy, shifted, shared]) expectBytes(after, model, 'input');
  });

  it('is a Blob, a File, or a Blob of a file', async () => {
    const path = fresh();
    await writeFile(path, model);
    await expectSame(new Blob([model]), 'Blob');
    await expectSame(new Blob([new Uint8Array(5), model, new Uint8Array(5)]).slice(5, 5 + model.length), 'slice');
    await expectSame(new File([model], 'model.safetensors'), 'File');
    await expectSame(await openAsBlob(path), 'Blob of a file');
  });

  it('is a path, a file: URL, or an open file, which stays open', async () => {
    const path = fresh();
    await writeFile(path, model);
    await expectSame(path, 'path');
    await expectSame(pathToFileURL(path), 'URL');
    const handle = await open(path);
    await expectSame(handle, 'open file');
    const { fd: _, ...methods } = {
      fd: 0,
      stat: () => handle.stat(),
      // As few bytes at a time as a system may give.
      read: (buffer: Uint8Array, offset: number, length: number, position: number) =>
        handle.read(buffer, offset, Math.min(length, 100_003), position),
    };
    await expectSame(methods, 'what is like an open file');
    await handle.close();
  });

  it('is a server, with ranges and without', async () => {
    const server = createServer((request, response) => {
      const range = /^bytes=(\d+)-(\d+)$/.exec(request.headers.range ?? '');
      if (range === null || request.url === '/whole') {
        response.writeHead(200, { 'Content-Length': model.length }).end(model);
        return;
      }
      const [begin, end] = [Number(range[1]), Number(range[2]) + 1];
      response.writeHead(206, {
        'Content-Range': `bytes ${begin}-${end - 1}/${model.length}`,
        'Content-Length': end - begin,
        ETag: '"1"',
      });
      response.end(model.subarray(begin, end));
    });
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    const base = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
    await expectSame(new URL(`${base}/ranges`), 'ranges');
    await expectSame(new URL(`${base}/whole`), 'whole');
    server.close();
  });

  it('is a model in shards, found beside the index or given', async () => {
    const shards = {
      'model-1.safetensors': safetensors({ 'a.weight': weights('F32', [700, 2100]) }, { format: 'pt' }),
      'model-2.safetensors': safetensors({ 'b.weight': weights('F64', [30, 50]), c: weights('BF16', [33, 9]) }),
    };
    const weight_map = {
      'a.weight': 'model-1.safetensors',
      'b.weight': 'model-2.safetensors',
      c: 'model-2.safetensors',
    };
    const index = JSON.stringify({ metadata: { total_size: 1 }, weight_map });
    const path = join(folder, 'model.safetensors.index.json');
    await writeFile(path, index);
    for (const [name, bytes] of Object.entries(shards)) await writeFile(join(folder, name), bytes);
    await expectSame(path, 'index');
    const files = Object.entries(shards).map(([name, bytes]) => new File([bytes], name));
    await expectSame([...files, new File([index], 'model.safetensors.index.json')], 'files');
  });
});

describe('where the bytes go', () => {
  const model = safetensors({ 'a.weight': weights('F32', [700, 2100]), 'a.bias': weights('F32', [700]) });
  const way = { to: 'int4', scheme: 'asymmetric', granularity: { kind: 'per-channel' } } as const;
  let want: Uint8Array<ArrayBuffer>;
  beforeAll(async () => {
    want = await (await quantizeModel(model, { ...way, workers: 0 })).bytes();
  });

  it('is memory, as an array and as a Blob, as often as asked', async () => {
    const result = await quantizeModel(model, { ...way, workers: 2 });
    for (let i = 0; i < 2; i++) {
      expectBytes(await result.bytes(), want);
      expectBytes(new Uint8Array(await (await result.blob()).arrayBuffer()), want);
    }
  });

  it('is a path or a file: URL, with nothing else beside it', async () => {
    const names = await readdir(folder);
    for (const output of [join(folder, 'a path.out'), pathToFileURL(join(folder, 'url ü.out'))]) {
      const result = await quantizeModel(model, { ...way, output, workers: 1 });
      expectBytes(await readFile(output), want);
      await expect(result.bytes()).rejects.toThrow(TypeError);
      await expect(result.blob()).rejects.toThrow(TypeError);
    }
    expect((await readdir(folder)).sort()).toEqual([...names, 'a path.out', 'url ü.out'].sort());
  });

  it('is an open file, of which nothing older is left', async () => {
    const path = fresh();
    await writeFile(path, new Uint8Array(want.length + 1000).fill(7));
    const handle = await open(path, 'r+');
    await quantizeModel(model, { ...way, output: handle, workers: 2 });
    // Still open: it is the caller's.
    expect((await handle.stat()).size).toBe(want.length);
    await handle.close();
    expectBytes(await readFile(path), want);
  });

  it('is a stream that may keep what it gets, and is closed at the end', async () => {
    for (const workers of [0, 2]) {
      const pieces: Uint8Array[] = [];
      let closed = false;
      const stream = new WritableStream<Uint8Array<ArrayBuffer>>({
        write: (piece) => void pieces.push(piece),
        close() {
          closed = true;
        },
      });
      await quantizeModel(model, { ...way, output: stream, workers });
      expect(closed).toBe(true);
      expect(stream.locked).toBe(true);
      expectBytes(Buffer.concat(pieces), want);
    }
  });

  it('is a Blob of more than 64 MiB, of the same bytes', async () => {
    // 22 MiB of floats in each of four tensors that are kept: the result is as long, and handed over in pieces.
    const large = safetensors({
      'a.bias': weights('F32', [5.5 * 2 ** 20], 1),
      'b.weight': weights('F32', [2048, 2048], 2),
      'c.bias': weights('F32', [5.5 * 2 ** 20], 3),
      'd.bias': weights('F32', [5.5 * 2 ** 20], 4),
    });
    const options = { to: 'int8', ...plain, scheme: 'asymmetric' } as const;
    const output = fresh();
    const toFile = await quantizeModel(large, { ...options, output });
    const result = await quantizeModel(large, { ...options, workers: 2 });
    const blob = await result.blob();
    expect(blob.size).toBeGreaterThan(64 * 2 ** 20);
    expectBytes(new Uint8Array(await blob.arrayBuffer()), await readFile(output));
    expectBytes(await result.bytes(), await readFile(output));
    expect(result.report).toEqual(toFile.report);
  });
});
