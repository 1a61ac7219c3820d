// A worker that never answers, such as one of the app's own files that a bundler started instead.
import { Worker } from 'node:worker_threads';
import { quantizeModel } from 'scalepoint/model';
import { afterEach, expect, it, vi } from 'vitest';
import { rejectionOf, safetensors, weights } from '../support/models.js';

afterEach(() => void vi.useRealTimers());

it('is an error after five seconds, which names the cause', async () => {
  vi.useFakeTimers({ toFake: ['setInterval', 'clearInterval'] });
  const workers: Worker[] = [];
  const worker = () => {
    const silent = new Worker("require('node:worker_threads').parentPort.on('message', () => {})", { eval: true });
    workers.push(silent);
    return silent;
  };
  const model = safetensors({ 'a.weight': weights('F32', [8, 64]) });
  const error = rejectionOf(quantizeModel(model, { to: 'int8', workers: 1, worker }));
  while (vi.getTimerCount() === 0) await new Promise((resolve) => setTimeout(resolve, 1));
  vi.advanceTimersByTime(5_000);
  expect(await error).toMatchObject({
    code: 'WORKER',
    message: expect.stringMatching(/said nothing for 5 s: its file is not scalepoint-worker\.js/),
  });
  await Promise.all(workers.map((ended) => ended.terminate()));
});
