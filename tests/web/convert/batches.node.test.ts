// Small tensors travel together: few reads, few writes, and the same results.
import { mkdtemp, open, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { compareModels, type Progress, quantizeModel } from 'scalepoint/model';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import {
  expectBytes,
  expectResult,
  integers,
  plain,
  rejectionOf,
  safetensors,
  type TestTensor,
  weights,
} from '../support/models.js';
import { tinyLlama } from '../support/tiny-llama.js';

let folder = '';
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'scalepoint-batches-'));
});
afterAll(() => rm(folder, { recursive: true, force: true }));

const count = 1000;
const manyTensors = (change: (i: number, tensor: TestTensor) => TestTensor = (_, tensor) => tensor) =>
  Object.fromEntries(
    Array.from({ length: count }, (_, i) => {
      const tensor = weights(i % 2 === 0 ? 'F32' : 'BF16', [4, 5 + (i % 20)], i + 1);
      return [`layers.${i}.weight`, i % 50 === 1 ? integers([3], i) : change(i, tensor)];
    }),
  );
const many = safetensors(manyTensors());

/** A file that counts how often it is read and written. */
async function counted(path: string, flags: string) {
  const handle = await open(path, flags);
  const calls = { reads: 0, writes: 0 };
  const file = {
    stat: () => handle.stat(),
    read(buffer: Uint8Array, offset: number, length: number, position: number) {
      calls.reads++;
      return handle.read(buffer, offset, length, position);
    },
    write(buffer: Uint8Array, offset: number, length: number, position: number) {
      calls.writes++;
      return handle.write(buffer, offset, length, position);
    },
    truncate: (length: number) => handle.truncate(length),
  };
  return { file, calls, close: () => handle.close() };
}

describe('very many small tensors', () => {
  it.each([0, 2])('take few reads and writes, with %i workers', async (workers) => {
    const path = join(folder, 'many.safetensors');
    await writeFile(path, many);
    const input = await counted(path, 'r');
    const output = await counted(join(folder, `${workers}.out`), 'w+');
    const seen: Progress[] = [];
    const onProgress = (progress: Progress) => seen.push(progress);
    const options = { to: 'int8', ...plain, scheme: 'asymmetric', workers } as const;
    const { report, config } = await quantizeModel(input.file, { ...options, output: output.file, onProgress });
    await input.close();
    await output.close();
    const bytes = await readFile(join(folder, `${workers}.out`));
    expectResult(many, bytes, report, config);
    // Four batches of 256 tensors, in the order of their names. The file has them in the order of their numbers, so that the tensors of a
    // batch lie in a few places. Each batch writes scales of two types, and codes with zero points, in one place each.
    expect(input.calls.reads).toBeLessThan(50);
    expect(output.calls.writes).toBeLessThan(20);
    expect(new Set(seen.map(({ tensor }) => tensor)).size).toBe(count);
    expect(seen.at(-1)).toMatchObject({ count, bytesDone: seen[0]?.bytesTotal });
    const pieces: Uint8Array[] = [];
    const stream = new WritableStream<Uint8Array<ArrayBuffer>>({ write: (piece) => void pieces.push(piece) });
    await quantizeModel(many, { ...options, output: stream });
    expectBytes(Buffer.concat(pieces), bytes);
    expect(pieces.length).toBeLessThan(20);
  });

  it('are compared in few reads', async () => {
    const made = await (await quantizeModel(many, { to: 'int8', ...plain })).bytes();
    const path = join(folder, 'compared.safetensors');
    await writeFile(path, many);
    const input = await counted(path, 'r');
    const seen: string[] = [];
    const compared = await compareModels(input.file, made, { onProgress: ({ tensor }) => seen.push(tensor) });
    await input.close();
    expect(input.calls.reads).toBeLessThan(20);
    expect(compared.tensors).toHaveLength(count - count / 50);
    expect([...new Set(seen)].sort()).toEqual(compared.tensors.map(({ name }) => name).sort());
    const alone = await compareModels(
      safetensors({ 'layers.7.weight': manyTensors()['layers.7.weight'] as TestTensor }),
      made,
    );
    expect(compared.tensors.find(({ name }) => name === 'layers.7.weight')).toEqual(alone.tensors[0]);
  });

  it('are written together with the zeros between them', async () => {
    const file = tinyLlama({ layers: 10 });
    const path = join(folder, 'out.gguf');
    const output = await counted(path, 'w+');
    await quantizeModel(file, { to: 'Q8_0', workers: 0, output: output.file });
    await output.close();
    // One batch, and the header if it is long.
    expect(output.calls.writes).toBeLessThan(4);
    expectBytes(await readFile(path), await (await quantizeModel(file, { to: 'Q8_0', workers: 0 })).bytes());
  });

  it('are named one by one in errors', async () => {
    const nan = manyTensors((i, tensor) => {
      if (i !== 700) return tensor;
      const data = (tensor.data as Float32Array).slice();
      data[3] = Number.NaN;
      return { ...tensor, data };
    });
    for (const workers of [0, 1]) {
      const error = await rejectionOf(quantizeModel(safetensors(nan), { to: 'int8', ...plain, workers }));
      expect(error).toMatchObject({ code: 'NON_FINITE', tensor: 'layers.700.weight' });
    }
  });

  it('are named if the file ends too early, although they are read together', async () => {
    const path = join(folder, 'cut.safetensors');
    await writeFile(path, many);
    const handle = await open(path);
    const { size } = await handle.stat();
    const missing = 40;
    const file = {
      stat: async () => ({ size, mtimeMs: 0, isFile: () => true }),
      read: (buffer: Uint8Array, offset: number, length: number, position: number) =>
        handle.read(buffer, offset, Math.max(0, Math.min(length, size - missing - position)), position),
    };
    // All of them in the last tensor: 4 rows of 24 elements of 2 bytes.
    expect(many.length).toBe(size);
    for (const workers of [0, 1]) {
      const error = await rejectionOf(quantizeModel(file, { to: 'int8', ...plain, workers }));
      expect(error).toMatchObject({ code: 'IO', tensor: 'layers.999.weight' });
    }
    await handle.close();
  });
});
