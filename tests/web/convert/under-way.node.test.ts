// Batches that workers have at a time, and bytes that are read before the work begins.
import { mkdtemp, open, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { inspectModel, quantizeModel } from 'scalepoint/model';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { floatTensor, model } from '../formats/onnx/encoder.js';
import { workersWith } from '../support/workers.js';

const side = 512;
const count = 8;

/** A model whose weights are a tile each, with the head of the next one between two of them. */
function matrices(): Uint8Array<ArrayBuffer> {
  const numbers = Array.from({ length: count }, (_, i) => i);
  return model({
    nodes: numbers.map((i) => ({ op: 'MatMul', in: ['x', `w${i}`], out: [`y${i}`] })),
    initializers: numbers.map((i) => floatTensor(`w${i}`, [side, side], i)),
    inputs: [['x', [1, side]]],
    outputs: numbers.map((i) => [`y${i}`, [1, side]] as const),
  });
}

let folder = '';
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'scalepoint-under-way-'));
});
afterAll(() => rm(folder, { recursive: true, force: true }));

it('a few known bytes between two tiles do not delay the next tile of a worker', async () => {
  let [underWay, most] = [0, 0];
  const create = () => {
    const worker = workersWith('')();
    const post = worker.postMessage.bind(worker);
    worker.postMessage = (request: { readonly kind: string; readonly job?: { readonly kind: string } }, transfer) => {
      if (request.job?.kind === 'batch') most = Math.max(most, ++underWay);
      post(request, transfer);
    };
    worker.on('message', ({ answer }: { readonly answer?: object }) => {
      if (answer !== undefined && 'output' in answer) underWay--;
    });
    return worker;
  };
  const output = join(folder, 'out.onnx');
  await quantizeModel(matrices(), { to: 'int8-weights', workers: 2, worker: create, output });
  // Each worker has one in work, and the next one.
  expect(most).toBe(4);
});

it('few bytes are read after each weight of a file to find the next one', async () => {
  const path = join(folder, 'model.onnx');
  const bytes = matrices();
  const file = await open(path, 'w+');
  await file.write(bytes);
  let read = 0;
  const counting = {
    stat: () => file.stat(),
    read: async (...args: Parameters<typeof file.read>) => {
      const result = await file.read(...args);
      read += result.bytesRead;
      return result;
    },
  };
  await inspectModel(counting as unknown as typeof file);
  await file.close();
  expect(read).toBeGreaterThan(count * 100);
  // The start of the file shows its format, and is read up to the first weight.
  expect(read).toBeLessThan(count * 2 ** 12 + 2 ** 16);
});
