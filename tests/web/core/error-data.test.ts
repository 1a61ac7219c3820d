// Errors as plain data and back, as they travel between threads and through JSON.
import { errorFrom, load, ScalepointError } from 'scalepoint';
import { inspectModel, loadTensors, quantizeModel } from 'scalepoint/model';
import { expect, it } from 'vitest';
import { errorData } from '../../../web/src/core/errors.js';
import { rejectionOf, safetensors, weights } from '../support/models.js';
import { thrownBy } from '../support/support.js';

const sp = await load();
const model = safetensors({ 'a.weight': weights('F32', [8, 8]) });
const anything = (value: unknown) => value as never;

/** Passes a message channel, which clones. */
async function sent(value: unknown): Promise<unknown> {
  const { port1, port2 } = new MessageChannel();
  const received = new Promise((resolve) => {
    port2.onmessage = ({ data }) => resolve(data);
  });
  port1.postMessage(value);
  const data = await received;
  port1.close();
  return data;
}

const broken = model.slice();
broken[8] = 0;
const errors: Record<string, () => unknown> = {
  'a wrong value': () => thrownBy(() => sp.quantize([1], { dtype: anything('int9') })),
  'a wrong type': () => thrownBy(() => sp.quantize(anything(new Map()), {})),
  'a value that no message holds': () => thrownBy(() => sp.quantize(anything(() => {}))),
  'a wrong promise': () => rejectionOf(inspectModel(anything(Promise.resolve(model)))),
  'a NaN': () => thrownBy(() => sp.histogram([1], { bins: Number.NaN })),
  'a bigint': () => thrownBy(() => sp.histogram([1], { bins: anything(4n) })),
  'a tensor': () => thrownBy(() => sp.quantize([Number.NaN])),
  'a damaged file': () => rejectionOf(inspectModel(broken)),
  'a file of another kind': () => rejectionOf(loadTensors(model)),
  'a path without a file': () => rejectionOf(inspectModel('https://a.invalid/none')),
  'a target': () => rejectionOf(quantizeModel(model, { to: anything('Q4_K_M') })),
};

it.each(Object.entries(errors))('%s', async (_name, make) => {
  const error = (await make()) as ScalepointError & { option?: string; problem?: { expected: unknown } };
  const { name, message, code, option, problem, statement, byteOffset } = error;
  const wanted = { name, message, code, option, statement, byteOffset };
  for (const data of [await sent(error.toJSON()), JSON.parse(JSON.stringify(error))]) {
    const again = errorFrom(data) as typeof error;
    expect(again).toBeInstanceOf(error.constructor);
    const { name, message, code, option, statement, byteOffset } = again;
    expect({ name, message, code, option, statement, byteOffset }).toEqual(wanted);
    expect(again.problem?.expected).toEqual(problem && JSON.parse(JSON.stringify(problem.expected)));
    expect(again.toJSON()).toEqual(data);
  }
});

it('keeps causes, and other errors', async () => {
  const inner = new ScalepointError('IO', 'no disk', { path: 'a', cause: new RangeError('deep') });
  const error = new ScalepointError('WORKER', 'it ended', { cause: inner, hint: { kind: 'because', message: 'x' } });
  const again = errorFrom(await sent(error.toJSON())) as ScalepointError;
  expect(again).toMatchObject({ code: 'WORKER', message: 'it ended: x', statement: 'it ended' });
  expect(again.cause).toMatchObject({ code: 'IO', path: 'a', cause: { name: 'RangeError', message: 'deep' } });
  expect(errorFrom(error)).toBe(error);
  expect(errorFrom('gone')).toMatchObject({ message: 'gone' });
  expect(errorFrom({ name: 'AbortError', message: 'stop' })).toMatchObject({ name: 'AbortError', message: 'stop' });
  expect(errorFrom({ name: 'x', message: 5 })).toBeInstanceOf(Error);
});

it('keeps all of an error that a worker reports', async () => {
  const cause = Object.assign(new Error('no room'), { code: 'ENOSPC', errno: -28 });
  const hint = { kind: 'because', message: 'x' } as const;
  for (const error of [
    new ScalepointError('INCOMPLETE', 'no tokenizer', {
      missing: 'tokenizer.json',
      path: 'a',
      tensor: 't',
      hint,
      cause,
    }),
    thrownBy(() => sp.quantize([1], { dtype: anything('int9') })),
    cause,
  ]) {
    const again = errorFrom(await sent(errorData(error)));
    expect(again).toBeInstanceOf((error as Error).constructor);
    expect({ ...again, message: again.message }).toEqual({ ...(error as Error), message: (error as Error).message });
  }
});
