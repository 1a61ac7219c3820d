// Commands and calls give for models, adapters and data of the hub what they give for folders with the same files.
import { mkdir, readdir, readFile, rm } from 'node:fs/promises';
import { describe, expect, it } from 'vitest';
import { estimateModel, measureTypes, quantizeModel } from '../../../web/src/model.js';
import { type Outcome, path, run, useFolder } from '../cli/support.js';
import * as onnx from '../formats/onnx/encoder.js';
import { madeUpLlama } from '../support/made-up-llama.js';
import { expectBytes, safetensors, weights } from '../support/models.js';
import { npy } from '../support/npz.js';
import { plainTokenizer } from '../support/tiny-huggingface.js';
import { languageModel, useHub, writeFiles } from './support.js';

useFolder();
const place = useHub();

const text = 'ab c '.repeat(24);
const tokenizer = { 'tokenizer.json': JSON.stringify(plainTokenizer({ decoder: null })) };
const [columns, rows] = [64, 16];
/** A model whose weights lie in a file beside it. */
const graph = (tensor: onnx.Bytes) => onnx.product('MatMul', [columns, rows], [1, columns], [1, rows], tensor)();
const adapted = 'base_model.model.model.layers.0.self_attn.q_proj';

/** The repositories of these tests. */
async function repositories() {
  const parts: Record<string, string | Uint8Array> = { ...languageModel(2), ...tokenizer };
  const graphs = {
    'model.onnx': graph(
      onnx.tensor({ name: 'w', dims: [columns, rows], more: onnx.external('data.bin', 4 * columns * rows) }),
    ),
    'data.bin': onnx.rawOf(onnx.weights(columns * rows)),
  };
  const half = await quantizeModel(graph(onnx.floatTensor('w', [columns, rows])), { to: 'q4', workers: 0 });
  const small = madeUpLlama({ layers: 1, width: 64 });
  const blocks = await quantizeModel(small, { to: 'Q8_0', workers: 0 });
  const sample = (i: number) => JSON.stringify({ x: [Array.from(onnx.weights(columns, i + 1, 2))] });
  return {
    tiny: parts,
    'tiny-GGUF': { 'tiny-F32.gguf': small, 'tiny-Q8_0.gguf': await blocks.bytes() },
    graph: { ...graphs },
    'graph-q4': { 'model.onnx': await half.bytes() },
    lora: {
      'adapter_model.safetensors': safetensors({
        [`${adapted}.lora_A.weight`]: weights('F32', [2, 64]),
        [`${adapted}.lora_B.weight`]: weights('F32', [64, 2], 2),
      }),
      'adapter_config.json': JSON.stringify({ peft_type: 'LORA', r: 2, lora_alpha: 4 }),
    },
    data: {
      'words.txt': text,
      'ids.txt': Array.from({ length: 24 }, (_, i) => 3 + i).join(' '),
      'samples.jsonl': [0, 1, 2].map(sample).join('\n'),
      'x.npy': npy('<f4', `(1, ${columns})`, onnx.weights(columns).buffer as ArrayBuffer),
    },
  };
}

/** Serves the repositories, and writes them into folders. Gives the names of both. */
async function start() {
  const all = await repositories();
  for (const [name, files] of Object.entries(all)) await writeFiles(path('source', name), files);
  const hub = await place.start({
    repositories: Object.fromEntries(Object.entries(all).map(([name, files]) => [`acme/${name}`, { files }])),
  });
  return { hub, all, places: { hub: 'hf:acme/', folder: `${path('source')}/` } as const };
}

/** The output of a command in JSON and on stderr, without figures of the process and the names of its FILEs. */
function said(from: string, to: string, { stdout, stderr }: Outcome) {
  const plain = (text: string) =>
    text
      .replaceAll(from, '')
      .replaceAll(`${to}/`, '')
      .replace(/@[0-9a-f]{40}/g, '');
  const { peakBytes, file, a, b, ...found } = JSON.parse(plain(stdout));
  expect(peakBytes).toBeGreaterThan(0);
  expect(String(file ?? a)).toMatch(/^(tiny|graph)/);
  return { ...found, stderr: plain(stderr) };
}

describe('commands', () => {
  it.each<[string, (from: string, to: string) => string[], readonly string[]]>([
    ['inspect', (from) => ['inspect', `${from}tiny`], []],
    ['verify', (from) => ['verify', `${from}tiny`], []],
    [
      'plan',
      (from, to) => ['plan', `${from}tiny`, '--to', 'Q4_K_M', '--lora', `${from}lora`, '-o', `${to}/a.gguf`],
      [],
    ],
    ['plan for a size', (from, to) => ['plan', `${from}tiny`, '--target-bpw', '6', '-o', `${to}/a.gguf`], []],
    ['plan of ONNX', (from, to) => ['plan', `${from}graph/model.onnx`, '--to', 'q4', '-o', `${to}/a.onnx`], []],
    [
      'evaluate',
      (from) => ['evaluate', `${from}tiny`, '--text', `${from}data/words.txt`, '--chunk-size', '8', '--workers', '0'],
      [],
    ],
    [
      'evaluate with a reference',
      (from) => [
        ...['evaluate', `${from}tiny-GGUF/tiny-Q8_0.gguf`, `${from}tiny-GGUF/tiny-F32.gguf`],
        ...['--ids', `${from}data/ids.txt`, '--chunk-size', '8', '--workers', '0'],
      ],
      [],
    ],
    [
      'evaluate on samples',
      (from) => [
        ...['evaluate', `${from}graph-q4/model.onnx`, `${from}graph/model.onnx`],
        ...['--data', `${from}data/samples.jsonl`],
      ],
      [],
    ],
    [
      'calibrate',
      (from, to) => [
        ...['calibrate', `${from}tiny`, '--text', `${from}data/words.txt`, '--chunk-size', '8', '--workers', '0'],
        ...['--moments', '-o', `${to}/m.gguf`],
      ],
      ['m.gguf', 'm.gguf.moments.safetensors'],
    ],
    [
      'calibrate of ONNX',
      (from, to) => [
        ...['calibrate', `${from}graph/model.onnx`, '--data', `${from}data/samples.jsonl`],
        ...['--moments', '--ranges', '-o', `${to}/m.gguf`],
      ],
      ['m.gguf', 'm.gguf.moments.safetensors', 'm.gguf.ranges.safetensors'],
    ],
    ['compare', (from) => ['compare', `${from}tiny`, `${from}tiny/model-00001-of-00002.safetensors`], []],
    [
      'compare --run',
      (from) => [
        ...['compare', `${from}graph/model.onnx`, `${from}graph-q4/model.onnx`, '--run', '--layers'],
        ...['--input', `x=${from}data/x.npy`],
      ],
      [],
    ],
    [
      'quantize with an adapter to safetensors',
      (from, to) => [
        ...[`${from}tiny`, '--to', 'int8', '--lora', `${from}lora:0.5`, '--workers', '0', '-o', `${to}/a.safetensors`],
      ],
      ['a.safetensors', 'a.config.json'],
    ],
    [
      'quantize with an adapter to GGUF',
      (from, to) => [
        ...[`${from}tiny`, '--to', 'Q8_0', '--lora', `${from}lora/adapter_model.safetensors`, '--workers', '0'],
        ...['-o', `${to}/a.gguf`],
      ],
      ['a.gguf'],
    ],
    ['merge', (from, to) => ['merge', `${from}tiny`, '-o', `${to}/a.safetensors`], ['a.safetensors']],
  ])('%s', async (_, line, made) => {
    const { hub, places } = await start();
    const found = [];
    for (const [folder, from] of Object.entries(places)) {
      await mkdir(path(folder));
      const outcome = await run([...line(from, path(folder)), '--json']);
      expect([outcome.code, outcome.code === 0 || outcome.stderr]).toEqual([0, true]);
      found.push({
        said: said(from, path(folder), outcome),
        files: await Promise.all(made.map((name) => readFile(path(folder, name)))),
      });
    }
    const [remote, local] = found;
    expect(remote?.said).toEqual(local?.said);
    for (const [i, bytes] of remote?.files.entries() ?? []) expectBytes(bytes, local?.files[i] as Uint8Array);
    expect(hub.requests.filter(({ status }) => status >= 400)).toEqual([]);
  });
});

describe('calls', () => {
  it.each([
    ['estimateModel', (from: string) => estimateModel(`${from}tiny`, { to: 'Q4_0', workers: 0 })],
    ['measureTypes', async (from: string) => (await measureTypes(`${from}tiny`, { to: 'auto', workers: 0 })).tensors],
  ])('%s', async (_, call) => {
    const { places } = await start();
    const [remote, local] = [await call(places.hub), await call(places.folder)];
    expect(remote).toEqual(local);
    expect(JSON.stringify(remote).length).toBeGreaterThan(100);
  });
});

it('--resume goes on behind an interruption with the same bytes, and not with an adapter of another commit', async () => {
  const { hub, places } = await start();
  const line = (from: string, to: string) => [
    ...[`${from}tiny`, '--to', 'int8', '--lora', `${from}lora`, '--shard-size', '40KB', '--workers', '0', '-q'],
    ...['-o', path(to, 'a.safetensors')],
  ];
  await mkdir(path('whole'));
  expect((await run(line(places.folder, 'whole'))).code).toBe(0);
  const names = (await readdir(path('whole'))).sort();
  const second = names.find((name) => name.includes('-00002-of-')) as string;
  for (const folder of ['parts', 'changed']) {
    // A folder in the place of the second file ends the run there.
    await mkdir(path(folder, second), { recursive: true });
    const { code, stderr } = await run([...line(places.hub, folder), '--resume', '-f']);
    expect([code, stderr]).toEqual([1, expect.stringContaining(second)]);
    await rm(path(folder, second), { recursive: true });
  }
  hub.requests.length = 0;
  expect(await run([...line(places.hub, 'parts'), '--resume'])).toMatchObject({ code: 0, stderr: '' });
  expect((await readdir(path('parts'))).sort()).toEqual(names);
  for (const name of names) expectBytes(await readFile(path('parts', name)), await readFile(path('whole', name)));
  hub.repositories.get('acme/lora')?.change({ 'README.md': '# Another text' });
  const changed = await run([...line(places.hub, 'changed'), '--resume']);
  expect([changed.code, changed.stderr]).toEqual([1, expect.stringContaining('the options')]);
});
