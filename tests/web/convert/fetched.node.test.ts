// Bytes that are fetched from a server, where a second read costs as much as the first.
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { inspectModel, quantizeModel } from 'scalepoint/model';
import { describe, expect, it } from 'vitest';
import { floatTensor, model } from '../formats/onnx/encoder.js';
import { expectBytes, safetensors, weights } from '../support/models.js';

/** A server of some bytes, in ranges, that counts what it gives. */
async function serve(file: Uint8Array) {
  let given = 0;
  const server = createServer(({ headers }, response) => {
    const [, begin, last] = /^bytes=(\d+)-(\d+)$/.exec(headers.range ?? '') ?? [];
    const body = file.subarray(Number(begin), Number(last) + 1);
    given += body.length;
    const range = `bytes ${begin}-${last}/${file.length}`;
    response.writeHead(206, { 'content-range': range, 'content-length': body.length });
    response.end(body);
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const { port } = server.address() as AddressInfo;
  return { url: new URL(`http://127.0.0.1:${port}/`), given: () => given, close: () => server.close() };
}

/** A model that multiplies by a matrix. */
function matmul(k: number, n: number): Uint8Array<ArrayBuffer> {
  return model({
    nodes: [{ op: 'MatMul', in: ['x', 'w'], out: ['y'] }],
    initializers: [floatTensor('w', [k, n])],
    inputs: [['x', [1, k]]],
    outputs: [['y', [1, n]]],
  });
}

/** Quantizes what a server gives. Holds the result to that of the same bytes in memory. Returns how often each byte came. */
async function fetched(
  file: Uint8Array<ArrayBuffer>,
  options: NonNullable<Parameters<typeof quantizeModel>[1]>,
): Promise<number> {
  const server = await serve(file);
  try {
    const { bytes, report } = await quantizeModel(server.url, options);
    const expected = await quantizeModel(file, { ...options, workers: 0 });
    expectBytes(await bytes(), await expected.bytes());
    expect(report.tensors).toEqual(expected.report.tensors);
    return server.given() / file.length;
  } finally {
    server.close();
  }
}

// Where every tile needs something of all others, a matrix is looked at before it is encoded.
describe('what is looked at first comes from a server once', () => {
  // 4.3 million elements are more than a tile. Rows of 1023 floats do not end with whole vectors.
  const file = matmul(4251, 1023);
  it.each([
    ['columns with a scale each', { to: 'int8-weights' }, 2],
    ['columns with a scale each, by one worker', { to: 'int8-weights' }, 1],
    ['columns with a scale each, without workers', { to: 'uint8-weights' }, 0],
    ['a scale for all', { to: 'q8', perTensor: true }, 2],
  ] as const)('%s', async (_what, options, workers) => {
    const times = await fetched(file, { ...options, workers });
    expect(times).toBeGreaterThan(0.99);
    // The parts that differ between tensors come in windows of their own.
    expect(times).toBeLessThan(1.05);
  });

  it.each([1, 0])('a matrix that is larger than what %d worker(s) keep of it', async (workers) => {
    const times = await fetched(matmul(4096, 2600), { to: 'int8-weights', workers });
    expect(times).toBeLessThan(1.05);
  });

  it('rows that are longer than a tile', async () => {
    const rows = safetensors({ 'x.weight': weights('F32', [3, 1_500_000]) });
    const times = await fetched(rows, { to: 'int8', packed: false, include: 'all', workers: 2 });
    expect(times).toBeLessThan(1.05);
  });
});

// Tiles of some columns have short runs, which are read with what lies between them.
describe('a matrix in four narrow tiles comes from a server twice at most', () => {
  // In a file that is near these are four tiles, of 8 KiB of each row.
  const file = matmul(256, 8192);
  it.each([2, 1, 0])('as blocks of 4 bits, with %d worker(s)', async (workers) => {
    expect(await fetched(file, { to: 'q4', blockSize: 256, workers })).toBeLessThan(2.05);
  });
});

// 4-bit floats are looked up in whole columns, of which few fit into a tile. A wide tile comes in pieces that are put together.
describe('a matrix in two tiles of long columns comes from a server once', () => {
  const [k, n] = [8192, 1024];
  const file = matmul(k, n);
  it.each([2, 1, 0])('as blocks of 4-bit floats, with %d worker(s)', async (workers) => {
    expect(await fetched(file, { to: 'bnb4', workers })).toBeLessThan(1.05);
  });

  // A stream takes the codes of all columns first, and then their scales.
  it.each([16, 256])('and pieces with blocks of %d into a stream', async (blockSize) => {
    const small = matmul(1280, 1003);
    const made: Uint8Array[] = [];
    const output = new WritableStream<Uint8Array>({ write: (bytes) => void made.push(bytes.slice()) });
    await quantizeModel(new Blob([small]), { to: 'bnb4', blockSize, workers: 0, output });
    const { bytes } = await quantizeModel(small, { to: 'bnb4', blockSize, workers: 0 });
    expectBytes(new Uint8Array(await new Blob(made as BlobPart[]).arrayBuffer()), await bytes());
  });

  it('a NaN is found where it is, in a later piece', async () => {
    const [weight] = (await inspectModel(file)).tensors;
    const bad = file.slice();
    new DataView(bad.buffer).setFloat32((weight?.byteOffset ?? 0) + 4 * (5000 * n + 7), Number.NaN, true);
    const server = await serve(bad);
    const failed = quantizeModel(server.url, { to: 'bnb4', workers: 0 });
    await expect(failed).rejects.toThrow('tensor "w" holds NaN at [5000, 7]');
    server.close();
  });
});
