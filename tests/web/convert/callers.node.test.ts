// Functions, workers and arrays of the caller's that are not what they should be: errors stay typed, and nothing waits for ever.
import { runInNewContext } from 'node:vm';
import { load } from 'scalepoint';
import {
  compareModels,
  inspectModel,
  type Progress,
  planModel,
  quantizeModel,
  ScalepointError,
  type WorkerLike,
} from 'scalepoint/model';
import { afterEach, describe, expect, it } from 'vitest';
import { rejectionOf, safetensors, weights } from '../support/models.js';

const model = safetensors({ 'a.weight': weights('F32', [8, 64]), 'b.weight': weights('F32', [8, 64], 2) });

describe('the worker option', () => {
  it.each<[string, () => unknown]>([
    ['undefined', () => undefined],
    ['null', () => null],
    ['an empty object', () => ({})],
    ['a promise', async () => ({})],
    ['a number', () => 1],
    ['something without events', () => ({ postMessage() {}, terminate() {} })],
  ])('that gives %s is a TypeError', async (_, worker) => {
    const options = { workers: 2, worker: worker as () => WorkerLike };
    for (const error of [
      await rejectionOf(quantizeModel(model, { to: 'int8', ...options })),
      await rejectionOf(compareModels(model, model, options)),
    ]) {
      expect(error).toBeInstanceOf(TypeError);
      expect(error).toMatchObject({ option: 'worker' });
    }
  });

  /** A request of a pool. */
  interface Asked {
    kind: string;
    id: number;
    job: { kind: string; batch: { outputBytes: number } };
  }

  /** A worker that answers by the given function. */
  function puppet(answer: (request: Asked) => unknown) {
    let receive = (_: unknown) => {};
    let ended = 0;
    const worker = {
      postMessage(request: never) {
        queueMicrotask(() => receive(answer(request)));
      },
      terminate: () => void ended++,
      on(type: string, listener: (value: unknown) => void) {
        if (type === 'message') receive = listener;
      },
    };
    return { worker: () => worker as WorkerLike, ends: () => ended };
  }

  /** Starts, opens no file, and answers batches by the given function. */
  const begin = (request: Asked, answer: (request: Asked) => unknown) => {
    const { kind, id, job } = request;
    if (kind === 'start') return { kind: 'ready', locked: false };
    return job.kind === 'open' ? { kind: 'answer', id, answer: { reads: [false], writes: false } } : answer(request);
  };
  /** A good result of two tasks, without its output. */
  const findings = { done: 2, measured: new Uint8Array(2), sums: new Float64Array(0), answers: [] };
  /** The answer to a batch, with other values. `less`: bytes that it lacks. */
  const result =
    (others: object, less = 0) =>
    ({ id, job }: Asked) => ({
      kind: 'answer',
      id,
      answer: { ...findings, output: new ArrayBuffer(job.batch.outputBytes - less), ...others },
    });
  it.each<[string, (request: Asked) => unknown]>([
    ['null', () => null],
    ['undefined', () => undefined],
    ['a string', () => 'ready'],
    ['an object of another kind', () => ({ kind: 'hello' })],
    ['no result', ({ id }) => ({ kind: 'answer', id })],
    ['a result without sums', result({ sums: undefined })],
    ['a result of too few tasks', result({ done: 1 })],
    ['sums of too few tasks', result({ sums: new Float64Array(7) })],
    ['that it has written, which it was not to do', result({ output: new ArrayBuffer(0), written: true })],
    ['a result that is too short', result({}, 1)],
    ['the result of another batch', (request) => ({ ...result({})(request), id: 1000 })],
    ['a failure without a text', ({ id }) => ({ kind: 'failure', id, error: {} })],
    ['a failed batch without a text', ({ id }) => ({ kind: 'answer', id, answer: { failed: { task: 0 } } })],
    [
      'a failed batch without a task',
      ({ id }) => ({ kind: 'answer', id, answer: { failed: { error: { message: 'no' } } } }),
    ],
  ])('that gives a worker which answers %s is a typed error', async (_, answer) => {
    const { worker, ends } = puppet((request) => begin(request, answer));
    const error = await rejectionOf(quantizeModel(model, { to: 'int8', workers: 1, worker }));
    expect(error).toBeInstanceOf(ScalepointError);
    expect(error).toMatchObject({ code: 'WORKER' });
    expect(ends()).toBe(1);
  });

  it('that gives a worker which opens files without a list is a typed error', async () => {
    const { worker, ends } = puppet(({ kind, id }) =>
      kind === 'start' ? { kind: 'ready', locked: false } : { kind: 'answer', id, answer: {} },
    );
    const error = await rejectionOf(quantizeModel(model, { to: 'int8', workers: 1, worker }));
    expect(error).toMatchObject({ code: 'WORKER', message: 'a worker sent an answer that nobody asked for' });
    expect(ends()).toBe(1);
  });

  it('may give a worker whose answers have arrays of another context, as in jsdom', async () => {
    const { worker } = puppet((request) =>
      begin(request, ({ id, job }) => {
        const output = runInNewContext(`new ArrayBuffer(${job.batch.outputBytes})`);
        const foreign = runInNewContext('({ measured: new Uint8Array(2), sums: new Float64Array(0) })');
        return { kind: 'answer', id, answer: { ...findings, ...foreign, output } };
      }),
    );
    const { bytes } = await quantizeModel(model, { to: 'int8', workers: 1, worker });
    const { totals } = await planModel(model, { to: 'int8' });
    expect(await bytes()).toHaveLength(totals.bytesAfter);
  });

  it('that gives a promise is a wrong argument, also if the promise rejects later', async () => {
    const unhandled: unknown[] = [];
    const note = (reason: unknown) => unhandled.push(reason);
    process.on('unhandledRejection', note);
    const worker = () => Promise.reject(new Error('no worker')) as never;
    const error = await rejectionOf(quantizeModel(model, { to: 'int8', workers: 1, worker }));
    expect(error).toMatchObject({ name: 'TypeError', option: 'worker' });
    await new Promise((resolve) => setTimeout(resolve, 10));
    process.off('unhandledRejection', note);
    expect(unhandled).toEqual([]);
  });

  it('that gives a worker which takes no messages, or cannot be ended, is a typed error', async () => {
    const fail = (message: string) => () => {
      throw new Error(message);
    };
    const events = () => Object.assign(new EventTarget(), { postMessage() {}, terminate() {} });
    const mute = Object.assign(events(), { postMessage: fail('mute') });
    expect(await rejectionOf(quantizeModel(model, { to: 'int8', workers: 1, worker: () => mute }))).toMatchObject({
      code: 'WORKER',
      message: 'a worker takes no messages: mute',
    });
    for (const terminate of [fail('no end'), () => Promise.reject(new Error('no end'))]) {
      const broken = Object.assign(events(), { terminate });
      broken.postMessage = () => void setTimeout(() => broken.dispatchEvent(new Event('error')), 1);
      const error = await rejectionOf(quantizeModel(model, { to: 'int8', workers: 1, worker: () => broken }));
      expect(error).toMatchObject({ code: 'WORKER', message: expect.stringContaining('could not be loaded') });
    }
  });

  it('that gives a worker which answers null at its start is a typed error', async () => {
    const { worker } = puppet(() => null);
    const error = await rejectionOf(quantizeModel(model, { to: 'int8', workers: 1, worker }));
    expect(error).toMatchObject({ name: 'ScalepointError', code: 'WORKER' });
  });
});

it('takes bytes of another context', async () => {
  const foreign = runInNewContext(`Uint8Array.of(${model})`);
  const expected = await inspectModel(model);
  for (const file of [foreign, foreign.buffer]) expect(await inspectModel(file)).toEqual(expected);
});

describe('an async onProgress', () => {
  const unhandled: unknown[] = [];
  const note = (reason: unknown) => unhandled.push(reason);
  afterEach(() => {
    process.off('unhandledRejection', note);
    unhandled.length = 0;
  });

  it('that rejects ends the call with its reason, whichever call of it rejects', async () => {
    process.on('unhandledRejection', note);
    const reason = new Error('from the callback');
    for (const nth of [1, 2]) {
      for (const use of [
        (onProgress: (progress: Progress) => void) => quantizeModel(model, { to: 'int8', onProgress }),
        (onProgress: (progress: Progress) => void) => compareModels(model, model, { onProgress }),
      ]) {
        let calls = 0;
        const onProgress = async () => {
          if (++calls === nth) throw reason;
        };
        expect(await rejectionOf(use(onProgress))).toBe(reason);
      }
    }
    await new Promise((resolve) => setTimeout(resolve));
    expect(unhandled).toEqual([]);
  });

  it('that never ends does not hold up the call', async () => {
    const onProgress = () => new Promise<void>(() => {});
    expect((await quantizeModel(model, { to: 'int8', onProgress })).report.tensors).toHaveLength(2);
  });

  it('leaves the signal of the caller as it was', async () => {
    const { signal } = new AbortController();
    const onProgress = async () => {
      throw new Error('from the callback');
    };
    await rejectionOf(quantizeModel(model, { to: 'int8', signal, onProgress }));
    expect(signal.aborted).toBe(false);
    await quantizeModel(model, { to: 'int8', signal });
  });
});

it('arguments that cannot be shown are wrong arguments', async () => {
  const sp = await load();
  const nothing = Object.create(null);
  const hostile = {
    get [Symbol.toStringTag](): string {
      throw new Error('not to be read');
    },
  };
  for (const value of [nothing, hostile, Symbol('s'), 1n, [nothing], [[hostile]]] as never[]) {
    for (const call of [
      () => sp.allocate(value, 4),
      () => sp.allocate('float32', value),
      () => sp.quantize(value),
      () => sp.quantize(new Float32Array(4), { dtype: value }),
    ]) {
      expect(call).toThrow(expect.objectContaining({ option: expect.any(String) }));
    }
    expect(await rejectionOf(quantizeModel(value, { to: 'int8' }))).toHaveProperty('option');
    expect(await rejectionOf(quantizeModel(model, { to: value }))).toHaveProperty('option');
    expect(await rejectionOf(quantizeModel(model, { to: 'int8', output: value }))).toHaveProperty('option');
  }
  sp.dispose();
});

it('a float64 beyond float32 is named as it is', async () => {
  for (const [value, text] of [
    [1e300, 'holds 1e+300 at [0, 3]'],
    [-4e38, 'holds -4e+38 at [0, 3]'],
    [Infinity, 'holds Infinity at [0, 3]'],
  ] as const) {
    const data = new Float64Array(64).map((_, i) => (i === 3 ? value : i));
    const file = safetensors({ 'a.weight': { dtype: 'F64', shape: [2, 32], data } });
    for (const to of ['int8', 'float8e4m3fn'] as const) {
      expect(await rejectionOf(quantizeModel(file, { to, rules: [{ match: /a/, to }] }))).toMatchObject({
        message: expect.stringContaining(text),
      });
    }
  }
});
