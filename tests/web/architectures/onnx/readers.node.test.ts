// transformers.js 3 in Node, and transformers.js 4 in Chromium, in WebAssembly and on WebGPU (SwiftShader): texts, vectors and classes of folders
// as they were made, beside what the graphs give in onnxruntime.
import { spawn } from 'node:child_process';
import { existsSync } from 'node:fs';
import { mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { Tokenizer } from '@huggingface/tokenizers';
import { chromium } from 'playwright';
import type { ModelTarget, quantizeModel } from 'scalepoint/model';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { launchOptions } from '../../../../scripts/chromium.mjs';
import { howToInstall } from '../../formats/onnx/transformers.js';
import { storyFolder } from '../../support/divergence.js';
import { chosen, safetensors } from '../../support/models.js';
import type { Weights } from '../../support/recipes.js';
import { bertFiles, bertWeights, Maker, tiny, wordTokenizer } from '../../support/tiny-huggingface.js';
import type { Job } from './reader.mjs';
import { makeOf, RunningDecoder } from './runs.js';

const packages = fileURLToPath(new URL('../../../transformers/node_modules', import.meta.url));
const third = join(packages, 'transformers-3/dist/transformers.node.mjs');
const fourth = join(packages, '@huggingface/transformers/dist/transformers.min.js');
const isInstalled = existsSync(third) && existsSync(fourth);

let place = '';
beforeAll(async () => {
  place = await mkdtemp(join(tmpdir(), 'scalepoint-readers-'));
});
afterAll(() => rm(place, { recursive: true }));

const dtypes = ['fp32', 'fp16', 'q8', 'int8', 'uint8', 'q4', 'q4f16', 'bnb4', 'q8-blocks'] as const;
type Dtype = (typeof dtypes)[number];

const optionsOf = (dtype: Dtype) =>
  dtype === 'q8-blocks' ? { dtype: 'fp32', model_file_name: 'model_q8-blocks' } : { dtype };

// ---------------------------------------------------------------------------------------------------------------------------- models

const words = wordTokenizer({ decoder: { type: 'WordPiece', prefix: '##', cleanup: true }, post_processor: null });

/** BERT as a class, with more files and weights. */
function bert(architecture: string, more: Readonly<Record<string, object>> = {}, extra: Weights = new Map()) {
  const prefix = architecture === 'BertModel' ? '' : 'bert.';
  const named = [...bertWeights(12)].map(([name, one]) => [prefix + name, one] as const);
  const tensors = [...named, ...extra].map(([name, { shape, values }]) => {
    return [name, { dtype: 'F32', shape, data: values }] as const;
  });
  const { 'config.json': config, ...files } = bertFiles(12);
  const labels = { id2label: { 0: 'good', 1: 'bad' }, label2id: { good: 0, bad: 1 } };
  const all = {
    ...files,
    'tokenizer.json': words,
    'config.json': { ...config, architectures: [architecture], model_type: 'bert', ...labels },
    ...more,
  };
  return [
    chosen('model.safetensors', safetensors(Object.fromEntries(tensors))),
    ...Object.entries(all).map(([name, content]) => chosen(name, content)),
  ];
}

const { hidden } = tiny;
const dense = new Maker(3).matrix('linear.weight', 24, hidden).vector('linear.bias', 24, 0).weights;
const type = (name: string) => `sentence_transformers.models.${name}`;
const sources = {
  story: storyFolder,
  features: bert('BertModel'),
  classes: bert(
    'BertForSequenceClassification',
    {},
    new Maker(4).dense('bert.pooler.dense', hidden, hidden).dense('classifier', 2, hidden).weights as Weights,
  ),
  sentence: bert('BertModel', {
    'modules.json': ['Transformer', 'Pooling', 'Dense', 'Normalize'].map((name, i) => {
      return { idx: i, name: String(i), path: i === 0 ? '' : `${i}_${name}`, type: type(name) };
    }),
    '1_Pooling/config.json': { word_embedding_dimension: hidden, pooling_mode_mean_tokens: true },
    '2_Dense/config.json': {
      in_features: hidden,
      out_features: 24,
      activation_function: 'torch.nn.modules.activation.Tanh',
    },
    '2_Dense/model.safetensors': safetensors(
      Object.fromEntries([...dense].map(([name, one]) => [name, { dtype: 'F32', shape: one.shape, data: one.values }])),
    ),
  }),
} as const;

/** Folders on disk, by their names. */
const made = new Map<string, Promise<ReadonlyMap<string, Uint8Array<ArrayBuffer>>>>();

/** Makes a folder once. */
async function folderOf(source: keyof typeof sources, dtype: Dtype) {
  const name = `${source}-${dtype}`;
  const make = async () => {
    const { files } = await makeOf(sources[source] as Parameters<typeof quantizeModel>[0], {
      to: `onnx:${dtype}` as ModelTarget,
    });
    for (const [path, bytes] of files) {
      await mkdir(dirname(join(place, name, path)), { recursive: true });
      await writeFile(join(place, name, path), bytes);
    }
    return files;
  };
  const known = made.get(name) ?? make();
  made.set(name, known);
  return { name, files: await known };
}

const begins = ['Mia had a red', 'One day Tom and the dog went to the'];
const generated = 8;

/** The likeliest words behind a text, by the graph in onnxruntime-web. */
async function goesOn(file: Uint8Array, text: string): Promise<string> {
  const [json, settings] = await Promise.all(
    ['tokenizer.json', 'tokenizer_config.json'].map(async (name) =>
      JSON.parse(await readFile(join(storyFolder, name), 'utf8')),
    ),
  );
  const tokenizer = new Tokenizer(json, settings);
  const { ids } = tokenizer.encode(text);
  const decoder = await RunningDecoder.open(file);
  try {
    let { logits, cache } = await decoder.run([ids]);
    const found: number[] = [];
    while (found.length < generated) {
      const last = logits[0]!.at(-1)!;
      const next = last.indexOf(Math.max(...last));
      if (next === 2) break;
      found.push(next);
      ({ logits, cache } = await decoder.run([[next]], cache));
    }
    return tokenizer.decode([...ids, ...found], { skip_special_tokens: true });
  } finally {
    await decoder.close();
  }
}

// --------------------------------------------------------------------------------------------------------------------------- readers

type Program = (jobs: readonly Job[]) => Promise<unknown[][]>;

/** transformers.js in a process of its own: two onnxruntimes do not fit into one. */
const inNode =
  (entry: string): Program =>
  (jobs) =>
    new Promise((resolve, reject) => {
      const program = fileURLToPath(new URL('reader.mjs', import.meta.url));
      const child = spawn(process.execPath, [program, pathToFileURL(entry).href]);
      const [parts, errors]: [Buffer[], Buffer[]] = [[], []];
      child.stdout.on('data', (part: Buffer) => parts.push(part));
      child.stderr.on('data', (part: Buffer) => errors.push(part));
      child.on('close', (code) => {
        if (code === 0) resolve(JSON.parse(Buffer.concat(parts).toString()));
        else reject(new Error(`the reader ended with ${code}: ${Buffer.concat(errors)}`));
      });
      child.stdin.end(JSON.stringify({ place, jobs }));
    });

const html = `<!doctype html><link rel="icon" href="data:,"><script type="module">
  import * as transformers from '/transformers/transformers.min.js';
  import { answer } from '/reader/reader.mjs';
  const name = '/runtime/ort-wasm-simd-threaded.asyncify';
  const wasmPaths = { mjs: name + '.mjs', wasm: name + '.wasm' };
  Object.assign(transformers.env.backends.onnx.wasm, { numThreads: 1, wasmPaths });
  globalThis.answer = (work) => answer(transformers, work);
</script>`;

/** The functions of the page. */
interface Page {
  answer(work: object): Promise<unknown[][]>;
}

/** A page with transformers.js in Chromium, with WebGPU. */
async function openPage() {
  const folders: Readonly<Record<string, string>> = {
    models: place,
    reader: dirname(fileURLToPath(import.meta.url)),
    transformers: dirname(fourth),
    runtime: join(packages, 'onnxruntime-web/dist'),
  };
  const server = createServer(async (request, response) => {
    const path = decodeURIComponent(new URL(request.url ?? '/', 'http://localhost').pathname).slice(1);
    const [first = '', ...rest] = path.split('/');
    const folder = folders[first];
    const file = folder === undefined ? undefined : await readFile(join(folder, ...rest)).catch(() => undefined);
    const kind = /js$/.test(path) ? 'text/javascript' : path === '' ? 'text/html' : 'application/wasm';
    response.writeHead(path === '' || file !== undefined ? 200 : 404, { 'content-type': kind });
    response.end(path === '' ? html : file);
  });
  await new Promise<void>((done) => server.listen(0, 'localhost', done));
  const args = launchOptions.args.filter((argument) => argument !== '--disable-gpu');
  const gpu = ['--enable-unsafe-webgpu', '--use-webgpu-adapter=swiftshader'];
  const browser = await chromium.launch({ ...launchOptions, args: [...args, ...gpu] });
  const page = await browser.newPage();
  await page.goto(`http://localhost:${(server.address() as AddressInfo).port}/`);
  await page.waitForFunction(() => 'answer' in globalThis);
  const close = async () => {
    await browser.close();
    server.close();
  };
  return { page, close };
}

let opened: ReturnType<typeof openPage> | undefined;
afterAll(async () => (await opened)?.close());

/** One page serves both devices, so that onnxruntime is compiled once. */
const inChromium: Program = async (jobs) => {
  opened ??= openPage();
  const { page } = await opened;
  const work = { place: '/models/', jobs: [...jobs] };
  return page.evaluate((given) => (globalThis as unknown as Page).answer(given), work);
};

const readers = {
  'transformers.js 3 in Node': { device: 'cpu', program: inNode(third) },
  'transformers.js 4 in Chromium, in WebAssembly': { device: 'wasm', program: inChromium },
  'transformers.js 4 in Chromium, on WebGPU': { device: 'webgpu', program: inChromium },
} as const;
type ReaderName = keyof typeof readers;

/**
 * A type of each kind in Chromium, where a model takes half a minute. SwiftShader has no float16, and products of integers run on the CPU there.
 * The onnxruntime of version 3 has no products in blocks of 8 bits.
 */
function dtypesOf(reader: ReaderName): readonly Dtype[] {
  if (reader.endsWith('WebGPU')) return ['q4'];
  if (reader.includes('Chromium')) return ['fp16', 'q8', 'q4'];
  return reader.includes(' 3 ') ? dtypes.filter((dtype) => dtype !== 'q8-blocks') : dtypes;
}

const names = Object.keys(readers) as ReaderName[];
const textOf = (answer: unknown) => (answer as { generated_text: string }[])[0]!.generated_text;

interface Numbers {
  readonly dims: readonly number[];
  readonly data: readonly number[];
}

/** The job of one model. */
async function jobOf(device: Job['device'], source: keyof typeof sources, dtype: Dtype): Promise<Job> {
  const common = { device, name: (await folderOf(source, dtype)).name, options: optionsOf(dtype) };
  if (source === 'story') {
    const call = { max_new_tokens: generated, do_sample: false };
    return { ...common, task: 'text-generation', calls: [...begins, begins], call };
  }
  const calls = [['the cat sat on the mat.', 'cats']];
  if (source === 'features')
    return { ...common, task: 'feature-extraction', calls, call: { pooling: 'mean', normalize: true } };
  if (source === 'classes') return { ...common, task: 'text-classification', calls, call: { top_k: 2 } };
  return { ...common, task: 'sentence', calls };
}

const encoders = ['features', 'classes', 'sentence'] as const;

/** Encoders have the kinds of weights of decoders, so that Chromium loads one. */
const encoderDtypesOf = (name: ReaderName) => (name.includes('Chromium') ? dtypesOf(name).slice(-1) : dtypesOf(name));

/** Asks a program, and finds its answers by model and type. */
async function ask(program: Program, asked: readonly Promise<Job>[]) {
  const jobs = await Promise.all(asked);
  const answers = await program(jobs);
  const found = new Map(jobs.map(({ name }, i) => [name, answers[i]!]));
  return (source: keyof typeof sources, dtype: Dtype) => found.get(`${source}-${dtype}`)!;
}

const known = new Map<string, ReturnType<typeof ask>>();

/** The answers of a reader, which is asked once for both tests. */
function answersOf(name: ReaderName) {
  const { device, program } = readers[name];
  const make = () => {
    const stories = dtypesOf(name).map((dtype) => jobOf(device, 'story', dtype));
    const others = encoderDtypesOf(name).flatMap((dtype) => encoders.map((one) => jobOf(device, one, dtype)));
    return ask(program, [...stories, ...others]);
  };
  const answers = known.get(name) ?? make();
  known.set(name, answers);
  return answers;
}

/** The encoders in float32 in transformers.js 4 in Node. */
function reference() {
  const make = () =>
    ask(
      inNode(fourth.replace('.min.js', '.node.mjs')),
      encoders.map((one) => jobOf('cpu', one, 'fp32')),
    );
  const answers = known.get('reference') ?? make();
  known.set('reference', answers);
  return answers;
}

it.each(names)('%s goes on with texts, alone and side by side', async (name) => {
  if (!isInstalled) return expect(howToInstall).toBe('');
  const answers = await answersOf(name);
  for (const dtype of dtypesOf(name)) {
    const { files } = await folderOf('story', dtype);
    const file = [...files].find(([path]) => path.endsWith('.onnx'))![1];
    const expected = [await goesOn(file, begins[0]!), await goesOn(file, begins[1]!)];
    const [first, second, both] = answers('story', dtype);
    expect([textOf(first), textOf(second)], dtype).toEqual(expected);
    // Activations in 8 bits share a range, so that texts side by side change each other.
    if (!/8$/.test(dtype)) expect((both as unknown[]).map(textOf), dtype).toEqual(expected);
  }
});

it.each(names)('%s gives vectors and classes', async (name) => {
  if (!isInstalled) return expect(howToInstall).toBe('');
  const [answers, wanted] = [await answersOf(name), await reference()];
  // Least cosine to float32: rounding to 11 bits, activations of 8 bits, weights of 4 bits.
  const least: Readonly<Record<string, number>> = { fp32: 1 - 1e-6, fp16: 0.9999, 'q8-blocks': 0.999 };
  for (const dtype of encoderDtypesOf(name)) {
    for (const kind of ['features', 'sentence'] as const) {
      const [got, want] = [answers(kind, dtype)[0], wanted(kind, 'fp32')[0]] as [Numbers, Numbers];
      expect(got.dims).toEqual([2, kind === 'features' ? hidden : 24]);
      const length = want.dims[1]!;
      for (const row of [0, 1]) {
        const [x, y] = [got, want].map(({ data }) => data.slice(row * length, (row + 1) * length));
        // Both have the length 1.
        const cosine = x!.reduce((sum, v, k) => sum + v * y![k]!, 0);
        expect(cosine, `${dtype} ${kind}`).toBeGreaterThan(least[dtype] ?? 0.9);
        expect(Math.abs(Math.hypot(...x!) - 1)).toBeLessThan(1e-3);
      }
    }
    type Label = { label: string; score: number };
    const [labels, floats] = [answers('classes', dtype)[0], wanted('classes', 'fp32')[0]] as Label[][][];
    for (const [row, list] of labels!.entries()) {
      expect(list.map(({ label }) => label).sort()).toEqual(['bad', 'good']);
      const scoreOf = (some: readonly Label[]) => some.find(({ label }) => label === 'good')!.score;
      expect(Math.abs(scoreOf(list) - scoreOf(floats![row]!)), dtype).toBeLessThan(dtype === 'fp32' ? 1e-5 : 0.1);
    }
  }
});
