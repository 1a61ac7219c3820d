// Calls from a page to its worker: answers, progress, errors, and the end.
import { expect, it } from 'vitest';
import { answerCalls, callWorker, isEnded, WorkerError } from '../../../../web/demo/shared/calls.js';
import { explainLoading, messageOf, sentence } from '../../../../web/demo/shared/problems.js';
import { ScalepointError } from '../../../../web/src/index.js';

const calls = {
  double: async (value: number, onProgress: (share: number) => void) => {
    onProgress(0.5);
    return 2 * value;
  },
  fail: (code: 'BAD_FILE') => {
    throw new ScalepointError(code, 'cut off', { tensor: 'a', byteOffset: 8 });
  },
  wait: (_: undefined) => new Promise<never>(() => {}),
};

/** A worker in this thread. Messages are cloned on their way, as between threads. */
class NearWorker {
  onmessage: ((event: { data: unknown }) => void) | undefined;
  onerror: ((event: { message: string }) => void) | undefined;
  isEnded = false;
  readonly #scope: { onmessage?: (event: { data: unknown }) => void; postMessage(data: unknown): void } = {
    postMessage: (data) => queueMicrotask(() => this.isEnded || this.onmessage?.({ data: structuredClone(data) })),
  };

  constructor() {
    Object.assign(globalThis, { self: this.#scope });
    answerCalls(calls);
  }
  postMessage(data: unknown) {
    const { postMessage } = this.#scope;
    // The functions reply through the global scope, which is that of the newest worker.
    Object.assign(globalThis, { self: { ...this.#scope, postMessage } });
    this.#scope.onmessage?.({ data: structuredClone(data) });
  }
  terminate() {
    this.isEnded = true;
  }
}

function start(options: { isOnly?: boolean; onLost?(error: Error): void } = {}) {
  const workers: NearWorker[] = [];
  const caller = callWorker<typeof calls>(
    () => {
      workers.push(new NearWorker());
      return workers.at(-1) as unknown as Worker;
    },
    { work: 'doubles', ...options },
  );
  return { workers, caller };
}

it('answers calls with progress, in one worker that the first call starts', async () => {
  const { workers, caller } = start();
  expect(workers).toHaveLength(0);
  const shares: number[] = [];
  const answers = [caller.call('double', 4, (share) => shares.push(share)), caller.call('double', 5)];
  expect(await Promise.all(answers)).toEqual([8, 10]);
  expect([shares, workers.length]).toEqual([[0.5], 1]);
});

it('rejects with the error of the worker, whose members survive', async () => {
  const { caller } = start();
  const error = await caller.call('fail', 'BAD_FILE').catch((thrown: unknown) => thrown);
  expect(error).toBeInstanceOf(WorkerError);
  expect(error).toMatchObject({ code: 'BAD_FILE', tensor: 'a', byteOffset: 8, name: 'ScalepointError' });
});

it('ends all calls at once, and the next one starts another worker', async () => {
  const { workers, caller } = start();
  const waiting = caller.call('wait', undefined).catch(isEnded);
  caller.end();
  expect(await waiting).toBe(true);
  expect(await caller.call('double', 1)).toBe(2);
  expect(workers.map((worker) => worker.isEnded)).toEqual([true, false]);
});

it.each([true, false])('says that the worker is lost, which is the only one: %s', async (isOnly) => {
  const lost: string[] = [];
  const { workers, caller } = start({ isOnly, onLost: ({ message }) => lost.push(message) });
  const waiting = caller.call('wait', undefined).catch((error: Error) => error.message);
  workers[0]?.onerror?.({ message: '' });
  expect(await waiting).toContain('the part of this page that doubles did not start');
  expect(lost).toEqual([await waiting]);
  const next = caller.call('double', 3);
  if (isOnly) await expect(next).rejects.toThrow('did not start');
  else expect(await next).toBe(6);
});

it('makes a sentence of an error, in which names of files and programs keep their case', () => {
  expect(sentence('the file is cut off')).toBe('The file is cut off.');
  expect(sentence('tokenizer.json: no model')).toBe('tokenizer.json: no model.');
  expect(sentence('onnxruntime cannot run it.')).toBe('onnxruntime cannot run it.');
});

it('keeps messages of the engine from visitors, and those of the package and of browsers as they are', () => {
  const option = Object.assign(new RangeError('to must be int8'), { problem: {} });
  expect([option, new Error('the file is gone'), 'text'].map(messageOf)).toEqual([
    'to must be int8',
    'the file is gone',
    'text',
  ]);
  expect(messageOf(new RangeError('offset is out of bounds'))).toBe('this page met an error of its own. Load it again');
  const lost = new TypeError('Failed to fetch dynamically imported module: https://a.test/x.js');
  expect(messageOf(lost)).toMatch(/^a part of this page could not be loaded/);
  expect(explainLoading(lost).details).toBe(`TypeError: ${lost.message}`);
});
