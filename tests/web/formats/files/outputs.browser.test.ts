// Files of the browser's private file system as outputs.
import { quantizeModel } from 'scalepoint/model';
import { afterEach, expect, it } from 'vitest';
import { rejectionOf, safetensors, weights } from '../../support/models.js';
import * as onnx from '../onnx/encoder.js';

const model = safetensors({ 'a.weight': weights('F32', [8, 64]) });
const quantized = async () => (await quantizeModel(model, { to: 'int8' })).bytes();

let counter = 0;
async function freshFile(content = ''): Promise<FileSystemFileHandle> {
  const root = await navigator.storage.getDirectory();
  const handle = await root.getFileHandle(`output-${crypto.randomUUID()}-${counter++}`, { create: true });
  const stream = await handle.createWritable();
  await stream.write(content);
  await stream.close();
  return handle;
}
const textOf = async (handle: FileSystemFileHandle) => (await handle.getFile()).text();
const bytesOf = async (handle: FileSystemFileHandle) => new Uint8Array(await (await handle.getFile()).arrayBuffer());

it('a file that the user picked is written, with content or without', async () => {
  const empty = await freshFile();
  await quantizeModel(model, { to: 'int8', output: empty });
  expect(await bytesOf(empty)).toEqual(await quantized());
  const full = await freshFile('mine');
  const kept = quantizeModel(model, { to: 'int8', output: full, overwrite: false });
  expect(await rejectionOf(kept)).toMatchObject({ code: 'EXISTS' });
  expect(await textOf(full)).toBe('mine');
  // Picking a file again replaces it, whatever its length.
  for (const [overwrite, to] of [
    [undefined, 'int8'],
    [undefined, 'float16'],
    [true, 'int8'],
    [undefined, 'int8'],
  ] as const) {
    await quantizeModel(model, { to, output: full, ...(overwrite !== undefined && { overwrite }) });
    expect(await bytesOf(full)).toEqual(await (await quantizeModel(model, { to })).bytes());
  }
});

it('of several writers to a file one wins', async () => {
  const output = await freshFile();
  const calls = Array.from({ length: 4 }, () => quantizeModel(model, { to: 'int8', output }));
  const outcomes = await Promise.allSettled(calls);
  expect(outcomes.filter(({ status }) => status === 'fulfilled')).toHaveLength(1);
  for (const outcome of outcomes) {
    if (outcome.status === 'rejected') expect(outcome.reason).toMatchObject({ name: 'ScalepointError' });
  }
  expect(await bytesOf(output)).toEqual(await quantized());
});

it('a file is as before after an error, and can be written again', async () => {
  const output = await freshFile();
  const reason = new Error('enough');
  const onProgress = () => {
    throw reason;
  };
  expect(await rejectionOf(quantizeModel(model, { to: 'int8', output, onProgress }))).toBe(reason);
  expect(await textOf(output)).toBe('');
  await quantizeModel(model, { to: 'int8', output });
  expect(await bytesOf(output)).toEqual(await quantized());
});

/** Other tests of this origin list what they leave. */
afterEach(async () => {
  const root = await navigator.storage.getDirectory();
  const names: string[] = [];
  for await (const name of (root as unknown as { keys(): AsyncIterable<string> }).keys()) names.push(name);
  for (const name of names) if (name.startsWith('folder-')) await root.removeEntry(name, { recursive: true });
});

it('a folder takes all files of a result, or stays as it was', async () => {
  const root = await navigator.storage.getDirectory();
  const output = await root.getDirectoryHandle(`folder-${crypto.randomUUID()}`, { create: true });
  const several = safetensors({ 'a.weight': weights('F32', [8, 64]), 'b.weight': weights('F32', [8, 64], 2) });
  const options = { to: 'float16', shardSize: 1000, output } as const;
  const namesIn = async () => {
    const names: string[] = [];
    for await (const name of (output as unknown as { keys(): AsyncIterable<string> }).keys()) names.push(name);
    return names.sort();
  };
  const { files } = await quantizeModel(several, options);
  expect(files.map(({ name }) => name)).toEqual([
    'model.safetensors.index.json',
    'model-00001-of-00002.safetensors',
    'model-00002-of-00002.safetensors',
  ]);
  const there = await Promise.all(files.map(async ({ name }) => output.getFileHandle(name)));
  const inMemory = await quantizeModel(several, { to: 'float16', shardSize: 1000 });
  for (const [i, { name, bytes }] of files.entries()) {
    expect(await bytesOf(there[i]!)).toEqual(await inMemory.bytes(name));
    expect((await inMemory.blob(name)).size).toBe(bytes);
  }
  expect(await rejectionOf(inMemory.bytes())).toBeInstanceOf(TypeError);
  expect(await rejectionOf(quantizeModel(several, options))).toMatchObject({ code: 'EXISTS' });
  expect(await namesIn()).toHaveLength(3);
  for (const { name } of files.slice(0, 2)) await output.removeEntry(name);
  // Two of the files could be written, and are gone again.
  expect(await rejectionOf(quantizeModel(several, options))).toMatchObject({ code: 'EXISTS' });
  expect(await namesIn()).toEqual(['model-00002-of-00002.safetensors']);
  await quantizeModel(several, { ...options, overwrite: true });
  expect(await namesIn()).toHaveLength(3);
});

it('several targets go into a folder under their names, and are removed after an error', async () => {
  const file = onnx.product('MatMul', [64, 48], [3, 64], [3, 48])();
  const root = await navigator.storage.getDirectory();
  const folder = await root.getDirectoryHandle(`folder-${crypto.randomUUID()}`, { create: true });
  // TypeScript's library does not list the content of a folder.
  const namesOf = async () => {
    const names: string[] = [];
    for await (const name of (folder as unknown as { keys(): AsyncIterable<string> }).keys()) names.push(name);
    return names.sort();
  };
  const done: string[] = [];
  const controller = new AbortController();
  const onProgress = ({ to }: { to?: string | undefined }) => {
    if (to === 'fp16') controller.abort();
    done.push(to as string);
  };
  const { signal } = controller;
  const call = quantizeModel(file, { to: ['fp16', 'q4'], output: folder, workers: 0, onProgress, signal });
  expect(await rejectionOf(call)).toBe(signal.reason);
  expect(new Set(done)).toEqual(new Set(['fp16']));
  expect(await namesOf()).toEqual([]);
  await quantizeModel(file, { to: ['q8', 'q4'], output: folder, workers: 0 });
  expect(await namesOf()).toEqual(['model_q4.onnx', 'model_quantized.onnx']);
  for (const [name, to] of [
    ['model_q4.onnx', 'q4'],
    ['model_quantized.onnx', 'q8'],
  ] as const) {
    const expected = await (await quantizeModel(file, { to, workers: 0 })).bytes();
    expect(await bytesOf(await folder.getFileHandle(name))).toEqual(expected);
  }
  const again = quantizeModel(file, { to: ['q4', 'q8'], output: folder, workers: 0 });
  expect(await rejectionOf(again)).toMatchObject({ code: 'EXISTS' });
});
