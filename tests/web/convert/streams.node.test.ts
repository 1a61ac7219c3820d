// Results in streams and in large memory: the same bytes as in a file, and each small tensor is read once.
import { quantizeModel } from 'scalepoint/model';
import { expect, it } from 'vitest';
import { memorySink } from '../../../web/src/formats/files/sinks.js';
import { expectBytes, integers, safetensors, weights } from '../support/models.js';

const small = safetensors({
  ...Object.fromEntries(Array.from({ length: 12 }, (_, i) => [`layers.${i}.weight`, weights('F32', [16, 64 + i], i)])),
  'layers.0.bias': weights('F32', [16], 50),
  ids: integers([7], 51),
  'empty.weight': weights('F32', [0, 4], 52),
});

/** A model that counts the bytes that are read of it. */
function counted(model: Uint8Array) {
  const read = { bytes: 0 };
  const input = {
    stat: async () => ({ size: model.length, mtimeMs: 0, isFile: () => true }),
    async read(buffer: Uint8Array, offset: number, length: number, position: number) {
      buffer.set(model.subarray(position, position + length), offset);
      read.bytes += length;
      return { bytesRead: length };
    },
  };
  return { input, read };
}

/** A stream, and what came. */
function collecting() {
  const pieces: Uint8Array<ArrayBuffer>[] = [];
  const output = new WritableStream<Uint8Array<ArrayBuffer>>({ write: (piece) => void pieces.push(piece.slice()) });
  return { output, bytes: async () => new Uint8Array(await new Blob(pieces).arrayBuffer()) };
}

it.each([
  { to: 'int8' },
  { to: 'int8', scheme: 'asymmetric' },
  { to: 'int4', granularity: { kind: 'per-group', groupSize: 32 } },
  { to: 'int8', range: 'mse' },
  { to: 'float8e4m3fn' },
  { to: 'float16' },
] as const)('small tensors are read once for a stream: %j', async (options) => {
  const want = await quantizeModel(small, options);
  for (const workers of 'range' in options ? [0, 1] : [0]) {
    const { input, read } = counted(small);
    const { output, bytes } = collecting();
    const { report } = await quantizeModel(input, { ...options, workers, output });
    expectBytes(await bytes(), await want.bytes(), `${workers} workers`);
    expect(report).toEqual(want.report);
    // The first bytes once more, to find the format; and small gaps.
    expect(read.bytes).toBeLessThan(small.length + 2 ** 13);
  }
});

it('large tensors are read once for each part, those that fit beside them once', async () => {
  // 17 Mi codes exceed the parts that may wait in memory. Those of the other tensors fit.
  const large = new Uint16Array(17 * 2 ** 20).fill(0x3c00);
  const model = safetensors({
    'a.weight': weights('F32', [64, 64]),
    'large.weight': { dtype: 'F16', shape: [17, 2 ** 20], data: large },
    'z.weight': weights('F32', [64, 64], 2),
  });
  const { input, read } = counted(model);
  const { output, bytes } = collecting();
  await quantizeModel(input, { to: 'int8', output });
  const want = await (await quantizeModel(model, { to: 'int8' })).bytes();
  expectBytes(await bytes(), want, 'stream');
  expect(read.bytes).toBeLessThan(model.length + large.byteLength + 2 ** 13);
});

it('a large result in memory takes bytes at any position', async () => {
  const size = 66 * 2 ** 20;
  const sink = memorySink(size);
  expect(sink.positional).toBe(true);
  const half = size / 2;
  const piece = new Uint8Array(2 ** 20);
  for (let at = 0; at < half; at += piece.length) {
    for (const [position, value] of [
      [half + at, 2],
      [at, 1],
    ] as const) {
      piece.fill(value + at / piece.length);
      await sink.write(position, piece);
    }
  }
  await sink.finish();
  const blob = sink.blob();
  expect(blob.size).toBe(size);
  for (const [position, value] of [
    [0, 1],
    [half - 1, 33],
    [half, 2],
    [half + 2 ** 20 - 1, 2],
    [size - 1, 34],
  ] as const) {
    expect(new Uint8Array(await blob.slice(position, position + 1).arrayBuffer())).toEqual(new Uint8Array([value]));
  }
});
