// Memory that headers take: not more than four times their size and 1 KiB for each tensor and key, however they are made. Each file is read
// by a process whose heap ends there; the bytes of a header are beside the heap.
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { build } from 'rolldown';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { fileWith } from '../support/models.js';

/** Size of a header, about. */
const size = 6 * 2 ** 20;
/** Memory of the engine alone, in MiB, with young objects. */
const base = 24;

let folder = '';
let program = '';
let quantizer = '';
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'scalepoint-headers-'));
  const entry = join(folder, 'read.mjs');
  const source = new URL('../../../web/src/model.ts', import.meta.url).pathname;
  const script = `
    import { inspectModel } from '${source}';
    const { tensors } = await inspectModel(process.argv[2]).catch((error) => ({ tensors: error.code }));
    console.log(Array.isArray(tensors) ? tensors.length : tensors);`;
  await writeFile(entry, script);
  program = join(folder, 'read-bundle.mjs');
  await build({
    input: entry,
    platform: 'node',
    output: { file: program, format: 'esm', codeSplitting: false },
    logLevel: 'silent',
  });
  // The built package, whose workers are files.
  const quantize = `
    import { quantizeModel } from '${new URL('../../../dist/model.js', import.meta.url)}';
    const peak = () => process.resourceUsage().maxRSS / 1024;
    const begin = peak();
    const { report } = await quantizeModel(process.argv[2], {
      to: 'int8', include: 'all', workers: Number(process.argv[4]), output: process.argv[3], overwrite: true,
    });
    console.log(JSON.stringify({ tensors: report.tensors.length, mebibytes: peak() - begin }));`;
  quantizer = join(folder, 'quantize.mjs');
  await writeFile(quantizer, quantize);
});
afterAll(() => rm(folder, { recursive: true, force: true }));

/** Reads a file in a process with a limited heap, in mebibytes. Gives its output: the number of tensors, or the code of an error. */
async function inspected(bytes: Uint8Array, heap: number, name = 'model.safetensors'): Promise<string> {
  await writeFile(join(folder, name), bytes);
  const args = [`--max-old-space-size=${heap}`, '--max-semi-space-size=2', program, join(folder, name)];
  const child = spawn(process.execPath, args, { stdio: ['ignore', 'pipe', 'ignore'] });
  let text = '';
  child.stdout.setEncoding('utf8').on('data', (part: string) => {
    text += part;
  });
  const [code] = await once(child, 'close');
  return code === 0 ? text.trim() : `ended with ${code}`;
}

/** Quantizes a file in a process with such flags. Gives the memory that it takes above that of its start. */
async function quantized(flags: readonly string[], name: string, workers: number) {
  const args = [...flags, quantizer, join(folder, name), join(folder, `${name}.out`), String(workers)];
  const child = spawn(process.execPath, args, { stdio: ['ignore', 'pipe', 'ignore'] });
  let text = '';
  child.stdout.setEncoding('utf8').on('data', (part: string) => {
    text += part;
  });
  const [code] = await once(child, 'close');
  return { code, ...(code === 0 ? (JSON.parse(text) as { tensors: number; mebibytes: number }) : { mebibytes: 0 }) };
}

const repeated = (text: string, bytes = size) => text.repeat(Math.floor(bytes / text.length));
const numbered = (text: (i: number) => string) => {
  const parts: string[] = [];
  for (let [i, length] = [0, 0]; length < size; i++) length += parts[parts.push(text(i)) - 1]?.length ?? 0;
  return parts.join('');
};
const entry = (extra: string) => `{"w":{"dtype":"U8","shape":[1],"data_offsets":[0,1]${extra}}}`;

it.each<[string, string, () => string]>([
  [
    'a shape of very many ones',
    'BAD_FILE',
    () => `{"w":{"dtype":"U8","data_offsets":[0,1],"shape":[${repeated('1,')}1]}}`,
  ],
  ['very many offsets', 'BAD_FILE', () => `{"w":{"dtype":"U8","shape":[1],"data_offsets":[${repeated('1,')}1]}}`],
  ['very many unknown keys', 'BAD_FILE', () => entry(numbered((i) => `,"${i}":0`))],
  [
    'very many keys of metadata',
    'BAD_FILE',
    () => `{"__metadata__":{${numbered((i) => `"${i}":"",`)}"z":""},${entry('').slice(1)}`,
  ],
  [
    'very many keys in a value that means nothing',
    'BAD_FILE',
    () => entry(`,"x":{${numbered((i) => `"${i}":0,`)}"z":0}`),
  ],
  ['very many small lists that mean nothing', '1', () => entry(`,"x":[${repeated('[],')}0]`)],
  ['very many small objects that mean nothing', '1', () => entry(`,"x":[${repeated('{"a":0},')}0]`)],
  ['one long text that means nothing', '1', () => entry(`,"x":"${repeated('x')}"`)],
  ['one long text of metadata', '1', () => `{"__metadata__":{"x":"${repeated('x')}"},${entry('').slice(1)}`],
])('of safetensors with %s', async (_, outcome, header) => {
  expect(await inspected(fileWith(header(), 1), base + (4 * size) / 2 ** 20)).toBe(outcome);
});

it.each<[string, string, () => string]>([
  ['lists', '1', () => `"x":[${repeated('[],')}0]`],
  ['numbers', '1', () => `"x":[${repeated('1.5,')}0]`],
  ['text', '1', () => `"x":"${repeated('x')}"`],
  ['keys', 'BAD_FILE', () => `${numbered((i) => `"${i}":0,`)}"z":0`],
])('of an index with very much metadata: %s', async (_, outcome, metadata) => {
  await writeFile(join(folder, 'one.safetensors'), fileWith(entry(''), 1));
  const index = `{"metadata":{${metadata()}},"weight_map":{"w":"one.safetensors"}}`;
  const bytes = new TextEncoder().encode(index);
  expect(await inspected(bytes, base + (4 * size) / 2 ** 20, 'model.safetensors.index.json')).toBe(outcome);
});

it('of safetensors with very many tensors', async () => {
  const count = 40_000;
  const header = Array.from({ length: count }, (_, i) => {
    return `"layers.${i}.weight":{"dtype":"U8","shape":[1],"data_offsets":[${i},${i + 1}]}`;
  }).join();
  const heap = base + Math.ceil((4 * header.length + 1024 * count) / 2 ** 20);
  expect(await inspected(fileWith(`{${header}}`, count), heap)).toBe(String(count));
});

describe('of safetensors with very many tensors, while they are quantized', () => {
  const bytes = 4 * 8 * 4;
  /** Writes a model of small tensors. Gives four times its header and 1 KiB for each tensor, in mebibytes. */
  async function written(name: string, count: number): Promise<number> {
    const header = Array.from({ length: count }, (_, i) => {
      return `"layers.${i}.weight":{"dtype":"F32","shape":[4,8],"data_offsets":[${i * bytes},${(i + 1) * bytes}]}`;
    }).join();
    await writeFile(join(folder, name), fileWith(`{${header}}`, count * bytes));
    return (4 * header.length + 1024 * count) / 2 ** 20;
  }

  it('in a heap that ends where garbage has no room', async () => {
    const count = 40_000;
    const stated = await written('many.safetensors', count);
    const heap = [`--max-old-space-size=${base + Math.ceil(stated)}`, '--max-semi-space-size=2'];
    expect(await quantized(heap, 'many.safetensors', 0)).toMatchObject({ code: 0, tensors: count });
  });

  // The guide states these bounds (web/demo/guide/12-limits.md): without an end of the heap, garbage takes as much as header and tensors.
  it.each([
    [40_000, 2],
    [200_000, 1],
  ])('%d tensors, with garbage, in %d worker(s)', async (count, workers) => {
    const stated = await written('most.safetensors', count);
    const free = await quantized([], 'most.safetensors', workers);
    expect(free).toMatchObject({ code: 0, tensors: count });
    expect(free.mebibytes).toBeLessThan(64 * workers + 2 * stated);
  });
});

/** A GGUF file without tensors: its pairs, each a key, a type and a value. */
function gguf(pairs: readonly Uint8Array[]): Uint8Array {
  const head = new Uint8Array(24);
  const view = new DataView(head.buffer);
  head.set(new TextEncoder().encode('GGUF'));
  view.setUint32(4, 3, true);
  view.setBigUint64(16, BigInt(pairs.length), true);
  return Buffer.concat([head, ...pairs]);
}
function pair(key: string, type: number, ...values: readonly Uint8Array[]): Uint8Array {
  const head = new Uint8Array(12);
  new DataView(head.buffer).setUint32(0, key.length, true);
  const [length, typeBytes] = [head.slice(0, 8), new Uint8Array([type, 0, 0, 0])];
  return Buffer.concat([length, new TextEncoder().encode(key), typeBytes, ...values]);
}
function arrayHead(type: number, count: number): Uint8Array {
  const bytes = new Uint8Array(12);
  const view = new DataView(bytes.buffer);
  view.setUint32(0, type, true);
  view.setBigUint64(4, BigInt(count), true);
  return bytes;
}

it.each<[string, string, () => Uint8Array]>([
  [
    'arrays of arrays',
    'BAD_FILE',
    () => gguf([pair('x', 9, arrayHead(9, size / 16), ...Array(1000).fill(arrayHead(4, 0)), new Uint8Array(size))]),
  ],
  ['an array of very many empty texts', '0', () => gguf([pair('x', 9, arrayHead(8, size / 8), new Uint8Array(size))])],
  ['an array of very many numbers', '0', () => gguf([pair('x', 9, arrayHead(0, size), new Uint8Array(size))])],
  [
    'very many short arrays',
    '0',
    () => gguf(Array.from({ length: 90_000 }, (_, i) => pair(`key.${i}`, 9, arrayHead(0, 64), new Uint8Array(64)))),
  ],
])('of GGUF with %s', async (_, outcome, file) => {
  const bytes = file();
  // Keys count as tensors do.
  const keys = new DataView(bytes.buffer, bytes.byteOffset).getUint32(16, true);
  const heap = base + Math.ceil((4 * bytes.length + 1024 * keys) / 2 ** 20);
  expect(await inspected(bytes, heap, 'model.gguf')).toBe(outcome);
});
