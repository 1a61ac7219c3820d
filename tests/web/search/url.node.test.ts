// An index that a server holds: read by ranges, and later only the rows of the vectors that are scored again.
import { once } from 'node:events';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { load, openIndex } from 'scalepoint';
import { afterEach, expect, it } from 'vitest';
import { rejectionOf } from '../support/models.js';
import { Random } from '../support/support.js';

let server: Server | undefined;
afterEach(() => {
  server?.closeAllConnections();
  server?.close();
  server = undefined;
});

/** Serves bytes by ranges, and counts them. */
async function serve(bytes: Uint8Array) {
  const seen = { requests: 0, bytes: 0, failing: false };
  server = createServer((request, response) => {
    const [, begin, last] = /^bytes=(\d+)-(\d+)$/.exec(request.headers.range ?? '') ?? [];
    if (begin === undefined || seen.failing) {
      response.writeHead(seen.failing ? 503 : 400).end();
      return;
    }
    const end = Math.min(Number(last), bytes.length - 1);
    seen.requests++;
    seen.bytes += end + 1 - Number(begin);
    response.writeHead(206, { 'content-range': `bytes ${begin}-${end}/${bytes.length}` });
    response.end(bytes.subarray(Number(begin), end + 1));
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  return { url: new URL(`http://127.0.0.1:${port}/notes.safetensors`), seen };
}

it('is opened from a URL without its rows, which searches read by ranges', async () => {
  const dimension = 256;
  const count = 20_000;
  const sp = await load();
  const random = new Random(60);
  const x = random.bell(count * dimension);
  const queries = random.bell(3 * dimension);
  const ids = Array.from({ length: count }, (_, i) => `text ${i}`);
  const rerank = { source: 'float16', factor: 4 } as const;
  using index = sp.index(x, { shape: [count, dimension], bits: 1, metric: 'cosine', ids, rerank });
  const expected = await index.searchMany(queries, 10);
  const file = await index.save();
  const { url, seen } = await serve(file);
  const progress: number[] = [];
  using opened = await openIndex(url, { rerank: 'file', onProgress: ({ done, total }) => progress.push(done / total) });
  // Rows of float16 are most of the file.
  const rowBytes = dimension * 2;
  expect(seen.bytes).toBeLessThan(file.length - count * rowBytes + 1000);
  expect(opened.bytes).toBeLessThan((count + 64) * (dimension / 8 + 9) + 1000);
  expect(progress.at(-1)).toBe(1);
  const before = { ...seen };
  const found = await opened.searchMany(queries, 10);
  for (const [i, { ids, scores }] of found.entries()) {
    expect(ids).toEqual(expected[i]!.ids);
    expect(scores).toEqual(expected[i]!.scores);
  }
  // 40 rows for each query, and the gaps between near ones.
  expect(seen.requests - before.requests).toBeGreaterThan(0);
  expect(seen.requests - before.requests).toBeLessThanOrEqual(120);
  expect(seen.bytes - before.bytes).toBeLessThan(120 * (rowBytes + 2 ** 14));
  // Workers scan the codes, and this thread reads the rows.
  expect(await opened.searchMany(queries, 10, { workers: 2 })).toEqual(found);
  seen.failing = true;
  expect(await rejectionOf(opened.searchMany(queries, 10))).toMatchObject({ code: 'IO' });
});
