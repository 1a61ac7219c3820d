// Models on a server: read by ranges where the server has them, whole where it has not.
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { afterEach, expect, test } from 'vitest';
import { layoutSafetensors } from '../../../web/src/formats/safetensors/header.js';
import { inspectModel, quantizeModel } from '../../../web/src/model.js';

let server: Server | undefined;
afterEach(() => server?.close());

/** A file with a matrix of 64 x 1024 and a bias. */
function model(): Uint8Array<ArrayBuffer> {
  const { header, tensors, size } = layoutSafetensors([
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
  const headerBytes = new DataView(bytes.buffer).getUint32(0, true);
  const { url, sent } = await serve(bytes, { ranges: true });
  const info = await inspectModel(url);
  expect(info.files).toEqual(['model.safetensors']);
  expect(info.tensors.map(({ name }) => name)).toEqual(['fc.bias', 'fc.weight']);
  // A byte for the size of the file, the first 32 for the format, which tells one file from an index by them again, the length of the
  // header, and the header.
  expect(sent.bytes).toBe(1 + 2 * 32 + 8 + headerBytes);
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
  const { url } = await serve(model(), { ranges: true, etag: () => `"${Math.min(version++, 3)}"` });
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
