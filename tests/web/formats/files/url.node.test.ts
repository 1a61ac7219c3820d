// Models on a server: read by ranges where the server has them, whole where it has not.
import { once } from 'node:events';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { gzipSync } from 'node:zlib';
import { afterEach, expect, test } from 'vitest';
import { inspectModel, planModel, quantizeModel } from '../../../../web/src/model.js';
import { hurried } from '../../support/hurried.js';
import { rejectionOf } from '../../support/models.js';
import { laidOut } from '../../support/plans.js';

let server: Server | undefined;
afterEach(() => server?.close());

/** A file with a matrix of 64 x 1024 and a bias. */
function model(): Uint8Array<ArrayBuffer> {
  const { header, tensors, size } = laidOut([
    { name: 'fc.weight', dtype: 'F32', shape: [64, 1024] },
    { name: 'fc.bias', dtype: 'F32', shape: [64] },
  ]);
  const bytes = new Uint8Array(size);
  bytes.set(header);
  for (const { byteOffset, bytes: length } of tensors) {
    const floats = Float32Array.from({ length: length / 4 }, (_, i) => Math.sin(i));
    bytes.set(new Uint8Array(floats.buffer), byteOffset);
  }
  return bytes;
}

interface Behaviour {
  readonly ranges: boolean;
  readonly etag?: () => string;
}

/** Serves the bytes; returns the address and how many bytes went out. */
async function serve(bytes: Uint8Array, { ranges, etag }: Behaviour) {
  const sent = { bytes: 0 };
  server?.close();
  server = createServer((request, response) => {
    const range = /^bytes=(\d+)-(\d+)$/.exec(request.headers.range ?? '');
    if (request.url === '/missing') {
      response.writeHead(404).end();
      return;
    }
    if (ranges && bytes.length === 0) {
      response.writeHead(request.headers.range === undefined ? 200 : 416).end();
      return;
    }
    let body = bytes;
    if (ranges && range !== null) {
      body = bytes.subarray(Number(range[1]), Number(range[2]) + 1);
      response.writeHead(206, {
        'content-range': `bytes ${range[1]}-${range[2]}/${bytes.length}`,
        ...(etag === undefined ? {} : { etag: etag() }),
      });
    } else response.writeHead(200);
    sent.bytes += body.length;
    response.end(body);
  });
  await new Promise<void>((resolve) => server?.listen(0, '127.0.0.1', resolve));
  const { port } = server.address() as AddressInfo;
  return { url: new URL(`http://127.0.0.1:${port}/folder/model.safetensors`), sent };
}

test('only the header of a remote model is fetched to list it', async () => {
  const bytes = model();
  const { url, sent } = await serve(bytes, { ranges: true });
  const info = await inspectModel(url);
  expect(info.files).toEqual(['model.safetensors']);
  expect(info.tensors.map(({ name }) => name)).toEqual(['fc.bias', 'fc.weight']);
  // The first bytes hold the header.
  expect(sent.bytes).toBe(100_000);
});

test.each([true, false])('a remote model gives the same bytes as a local one (ranges: %s)', async (ranges) => {
  const bytes = model();
  const { url } = await serve(bytes, { ranges });
  for (const workers of [0, 1]) {
    const [remote, local] = [
      await quantizeModel(url, { to: 'int8', workers }),
      await quantizeModel(bytes, { to: 'int8' }),
    ];
    expect(await remote.bytes()).toEqual(await local.bytes());
  }
});

test('a remote file that changes meanwhile is an error', async () => {
  let version = 0;
  const { url } = await serve(model(), { ranges: true, etag: () => `"${Math.min(version++, 1)}"` });
  await expect(quantizeModel(url, { to: 'int8' })).rejects.toMatchObject({ code: 'CHANGED' });
});

test('what the server refuses is an error that names the address', async () => {
  const { url } = await serve(model(), { ranges: true });
  const missing = new URL('/missing', url);
  await expect(inspectModel(missing)).rejects.toMatchObject({
    code: 'IO',
    message: expect.stringContaining('/missing: the server answered 404'),
  });
  const { url: empty } = await serve(new Uint8Array(0), { ranges: true });
  await expect(inspectModel(empty)).rejects.toMatchObject({ code: 'UNKNOWN_FORMAT' });
});

test.each([204, 206, 416])('a part is not taken for the whole file: %d', async (status) => {
  const { url } = await serve(model(), { ranges: true });
  server?.close();
  server = createServer((_, response) => {
    response.writeHead(status, { 'content-range': 'bytes 8-9/1000' }).end(status === 206 ? 'ab' : undefined);
  });
  await new Promise<void>((resolve) => server?.listen(0, '127.0.0.1', resolve));
  url.port = String((server.address() as AddressInfo).port);
  await expect(inspectModel(url)).rejects.toMatchObject({
    code: 'IO',
    message: expect.stringContaining(`the server answered ${status} instead of the whole file`),
  });
});

test('an error of the connection says what it was', async () => {
  const { url } = await serve(model(), { ranges: true });
  server?.close();
  server = createServer((_, response) => void response.writeHead(302, { location: '/again' }).end());
  await new Promise<void>((resolve) => server?.listen(0, '127.0.0.1', resolve));
  url.port = String((server.address() as AddressInfo).port);
  await expect(inspectModel(url)).rejects.toMatchObject({ code: 'IO', message: expect.stringContaining('redirect') });
});

/** Serves ranges, until the nth request, which is answered in another way. */
async function serveWrong(
  nth: number,
  wrong: (response: ServerResponse, begin: number, last: number, bytes: Uint8Array) => void,
): Promise<URL> {
  const bytes = model();
  let requests = 0;
  server?.close();
  server = createServer((request, response) => {
    const [, begin, last] = /^bytes=(\d+)-(\d+)$/.exec(request.headers.range ?? '') ?? [];
    if (++requests === nth) return wrong(response, Number(begin), Number(last), bytes);
    response.writeHead(206, { 'content-range': `bytes ${begin}-${last}/${bytes.length}` });
    response.end(bytes.subarray(Number(begin), Number(last) + 1));
  });
  await new Promise<void>((resolve) => server?.listen(0, '127.0.0.1', resolve));
  return new URL(`http://127.0.0.1:${(server.address() as AddressInfo).port}/model.safetensors`);
}

test.each<[string, 'IO' | 'CHANGED', (begin: number, last: number, size: number) => string | undefined]>([
  ['begins later', 'IO', (begin, last, size) => `bytes ${begin + 1}-${last}/${size}`],
  ['ends earlier', 'IO', (begin, last, size) => `bytes ${begin}-${last - 1}/${size}`],
  ['is no range', 'IO', () => 'bytes */*'],
  ['is missing', 'IO', () => undefined],
  ['is of a longer file', 'CHANGED', (begin, last, size) => `bytes ${begin}-${last}/${size + 1}`],
])('a range that %s is refused', async (_, code, rangeOf) => {
  // The first request is for the head of the file, the second one for the rest.
  const url = await serveWrong(2, (response, begin, last, bytes) => {
    const range = rangeOf(begin, last, bytes.length);
    response.writeHead(206, range === undefined ? {} : { 'content-range': range });
    response.end(bytes.subarray(begin, last + 1));
  });
  await expect(quantizeModel(url, { to: 'int8' })).rejects.toMatchObject({ code });
});

test('a range of a file whose size the server hides is taken', async () => {
  const url = await serveWrong(2, (response, begin, last, bytes) => {
    response.writeHead(206, { 'content-range': `bytes ${begin}-${last}/*` });
    response.end(bytes.subarray(begin, last + 1));
  });
  const { bytes } = await quantizeModel(url, { to: 'int8' });
  expect(await bytes()).toEqual(await (await quantizeModel(model(), { to: 'int8' })).bytes());
});

test('a whole file in place of a range means that the file was changed', async () => {
  const url = await serveWrong(2, (response, _begin, _last, bytes) => response.writeHead(200).end(bytes));
  await expect(quantizeModel(url, { to: 'int8' })).rejects.toMatchObject({ code: 'CHANGED' });
});

test('an answer that is longer than asked for is cut off at once', async () => {
  for (const nth of [1, 2]) {
    let sent = 0;
    let ended: Promise<unknown> | undefined;
    const url = await serveWrong(nth, (response, begin, last, bytes) => {
      response.writeHead(206, { 'content-range': `bytes ${begin}-${last}/${bytes.length}` });
      const more = () => {
        while (!response.destroyed && response.write(new Uint8Array(1 << 16))) sent += 1 << 16;
      };
      ended = once(response.on('drain', more), 'close');
      more();
    });
    await expect(quantizeModel(url, { to: 'int8' })).rejects.toMatchObject({
      code: 'IO',
      message: expect.stringMatching(/more than the \d+ bytes asked for/),
    });
    await ended;
    // The requested bytes, and those that the system had sent ahead.
    expect(sent).toBeLessThan(16 * 2 ** 20);
  }
});

test('of an answer that ends too early, the rest is asked for', async () => {
  const short = (response: ServerResponse, begin: number, last: number, bytes: Uint8Array) => {
    response.writeHead(206, { 'content-range': `bytes ${begin}-${last}/${bytes.length}` });
    response.end(bytes.subarray(begin, last));
  };
  const { result, pauses } = await hurried(async () => quantizeModel(await serveWrong(2, short), { to: 'int8' }));
  expect(await result.bytes()).toEqual(await (await quantizeModel(model(), { to: 'int8' })).bytes());
  expect(pauses).toEqual([1000]);
});

test('a file that has become shorter is an error behind the last try', async () => {
  const bytes = model();
  const ends = bytes.length - 4;
  let requests = 0;
  const url = await serveWrong(0, () => {});
  server?.removeAllListeners('request');
  server?.on('request', (request: IncomingMessage, response: ServerResponse) => {
    const [, begin, last] = /^bytes=(\d+)-(\d+)$/.exec(request.headers.range ?? '') ?? [];
    requests++;
    response.writeHead(206, { 'content-range': `bytes ${begin}-${last}/${bytes.length}` });
    response.end(bytes.subarray(Number(begin), Math.min(ends, Number(last) + 1)));
  });
  const { result, pauses } = await hurried(() => rejectionOf(quantizeModel(url, { to: 'int8' })));
  expect(result).toMatchObject({ code: 'CHANGED', byteOffset: ends });
  // The first bytes, the rest, and five tries for what is missing.
  expect([requests, pauses]).toEqual([6, [1000, 2000, 4000, 8000]]);
});

test.each([408, 429, 500, 502, 503, 504])('a server that answers %d is asked again when it says so', async (status) => {
  const url = await serveWrong(2, (response) => response.writeHead(status, { 'retry-after': '3' }).end());
  const { result, pauses } = await hurried(() => quantizeModel(url, { to: 'int8' }));
  expect(await result.bytes()).toEqual(await (await quantizeModel(model(), { to: 'int8' })).bytes());
  expect(pauses).toEqual([3000]);
});

test('a server that wants to be asked in an hour is not waited for', async () => {
  const url = await serveWrong(1, (response) => response.writeHead(503, { 'retry-after': '3600' }).end());
  const { result, pauses } = await hurried(() => rejectionOf(quantizeModel(url, { to: 'int8' })));
  expect(result).toMatchObject({ code: 'IO', message: expect.stringContaining('the server answered 503') });
  expect(pauses).toEqual([]);
});

test('a range that the server packs is refused', async () => {
  const url = await serveWrong(2, (response, begin, last, bytes) => {
    const range = `bytes ${begin}-${last}/${bytes.length}`;
    response.writeHead(206, { 'content-range': range, 'content-encoding': 'gzip' });
    response.end(gzipSync(bytes.subarray(begin, last + 1)));
  });
  const message = expect.stringContaining('the server sent a range packed by gzip');
  await expect(quantizeModel(url, { to: 'int8' })).rejects.toMatchObject({ code: 'IO', message });
});

test.each(['my model ü', '100%', 'a%20b#c?d', '模型 (1)'])(
  'an index and its shards are found by URL as %j',
  async (stem) => {
    const file = `${stem}.safetensors`;
    const index = JSON.stringify({ weight_map: { 'fc.weight': file, 'fc.bias': file } });
    const contents = new Map<string, Uint8Array>([
      [file, model()],
      [`${file}.index.json`, new TextEncoder().encode(index)],
    ]);
    server?.close();
    server = createServer((request, response) => {
      const bytes = contents.get(decodeURIComponent((request.url as string).slice(1)));
      response.writeHead(bytes === undefined ? 404 : 200).end(bytes);
    });
    await new Promise<void>((resolve) => server?.listen(0, '127.0.0.1', resolve));
    const base = `http://127.0.0.1:${(server.address() as AddressInfo).port}/`;
    const folder = await mkdtemp(join(tmpdir(), 'scalepoint-url ü-'));
    for (const [name, bytes] of contents) await writeFile(join(folder, name), bytes);
    const places = (name: string) => [new URL(encodeURIComponent(name), base), pathToFileURL(join(folder, name))];
    try {
      for (const [i, url] of places(`${file}.index.json`).entries()) {
        expect((await inspectModel(url)).files).toEqual([file]);
        // As a list of files, they are found by their names.
        const shard = places(file)[i] as URL;
        expect((await inspectModel([url, shard])).files).toEqual([file]);
        expect((await inspectModel(shard)).files).toEqual([file]);
      }
    } finally {
      await rm(folder, { recursive: true });
    }
  },
);

test('a name that is not percent-encoded UTF-8, or would be a path, stays as it is', async () => {
  const { url } = await serve(model(), { ranges: true });
  for (const name of ['100%.safetensors', '%ff.safetensors', 'a%2fb.safetensors']) {
    expect((await inspectModel(new URL(name, url))).files).toEqual([name]);
  }
});

test('a file beside a model that never ends is given up', async () => {
  const bytes = model();
  let asked = 0;
  server = createServer((request, response) => {
    const [, begin, last] = /^bytes=(\d+)-(\d+)$/.exec(request.headers.range ?? '') ?? [];
    if (request.url === '/model.safetensors') {
      response.writeHead(206, { 'content-range': `bytes ${begin}-${last}/${bytes.length}` });
      response.end(bytes.subarray(Number(begin), Number(last) + 1));
      return;
    }
    asked++;
    response.writeHead(200);
    const chunk = new Uint8Array(1 << 20);
    const more = () => {
      while (!response.destroyed && response.write(chunk));
    };
    response.on('drain', more);
    more();
  });
  await new Promise<void>((resolve) => server?.listen(0, '127.0.0.1', resolve));
  const { port } = server.address() as AddressInfo;
  const url = new URL(`http://127.0.0.1:${port}/model.safetensors`);
  await expect(planModel(url, { to: 'Q8_0' })).rejects.toMatchObject({
    code: 'BAD_FILE',
    message: `${new URL('config.json', url)} has more than the 100000000 bytes allowed`,
  });
  expect(asked).toBe(1);
  server.closeAllConnections();
});
