// Streams as models: each form of stream, streams that cannot be read, and the end of a call.
import { openIndex } from 'scalepoint';
import { inspectModel, loadTensors, quantizeModel, saveTensors } from 'scalepoint/model';
import { describe, expect, it } from 'vitest';
import { rejectionOf, safetensors, weights } from '../../support/models.js';

const model = safetensors({ 'a.weight': weights('F32', [16, 128]), 'a.bias': weights('F32', [16]) });
const wanted = (await inspectModel(model)).tensors;

/** A stream of chunks of 1,000 bytes. */
const streamOf = (bytes: Uint8Array, type?: (chunk: Uint8Array) => unknown) => {
  let at = 0;
  return new ReadableStream({
    pull(controller) {
      const chunk = bytes.slice(at, at + 1000);
      at += 1000;
      controller.enqueue(type === undefined ? chunk : type(chunk));
      if (at >= bytes.length) controller.close();
    },
  });
};

async function* generated() {
  for (let at = 0; at < model.length; at += 999) yield model.slice(at, at + 999);
}

const forms: Record<string, () => unknown> = {
  'a Response': () => new Response(model),
  'a Response of a stream': () => new Response(streamOf(model)),
  'a ReadableStream': () => streamOf(model),
  'a generator': generated,
};

describe.each(Object.entries(forms))('%s', (_name, make) => {
  it('is inspected and quantized as its bytes are', async () => {
    expect((await inspectModel(make() as Response)).tensors).toEqual(wanted);
    const options = { to: 'int8', workers: 2 } as const;
    const result = await quantizeModel(make() as Response, options);
    expect(await result.bytes()).toEqual(await (await quantizeModel(model, options)).bytes());
  });
});

it('takes streams in lists, and for tensors and indexes', async () => {
  const [config] = [new Response('{"model_type":"x"}')];
  expect((await inspectModel([streamOf(model), new File([await config.text()], 'config.json')])).tensors).toEqual(
    wanted,
  );
  const saved = await saveTensors({ a: Float32Array.of(1, 2, 3) });
  expect(await loadTensors(new Response(saved))).toEqual({ a: Float32Array.of(1, 2, 3) });
  expect(await rejectionOf(openIndex(new Response(saved)))).toMatchObject({ code: 'BAD_FILE' });
});

it('refuses streams that were read, are read by others, or hold other chunks', async () => {
  const read = new Response(model);
  await read.arrayBuffer();
  const locked = streamOf(model);
  locked.getReader();
  const cases: [unknown, string][] = [
    [read, 'a stream that was not read before, got a Response'],
    [locked, 'a stream that is not locked, got a ReadableStream'],
    [streamOf(model, (chunk) => String(chunk[0])), 'a stream of Uint8Array, got "'],
  ];
  for (const [file, message] of cases) {
    const error = await rejectionOf(inspectModel(file as Response));
    expect(error).toMatchObject({ name: 'TypeError', option: 'file' });
    expect((error as Error).message).toContain(message);
  }
});

it('reports answers and streams that fail', async () => {
  const gone = await rejectionOf(inspectModel(new Response('none', { status: 404 })));
  expect(gone).toMatchObject({ code: 'IO', message: 'cannot fetch the file: the server answered 404' });
  const failing = new ReadableStream({
    pull(controller) {
      controller.error(new Error('the line is dead'));
    },
  });
  const dead = await rejectionOf(inspectModel(failing));
  expect(dead).toMatchObject({ code: 'IO', message: 'cannot read the stream: the line is dead' });
  const page = await rejectionOf(inspectModel(new Response('<!doctype html>')));
  expect(page).toMatchObject({ code: 'UNKNOWN_FORMAT' });
});

it('ends with the signal, and cancels the stream', async () => {
  const controller = new AbortController();
  let cancelled: unknown;
  const endless = new ReadableStream<Uint8Array>({
    pull: () => new Promise(() => {}),
    cancel(reason) {
      cancelled = reason;
    },
  });
  const call = rejectionOf(inspectModel(endless, { signal: controller.signal }));
  await new Promise((resolve) => setTimeout(resolve));
  controller.abort(new Error('enough'));
  expect(await call).toMatchObject({ message: 'enough' });
  await expect.poll(() => cancelled).toMatchObject({ message: 'enough' });
});
