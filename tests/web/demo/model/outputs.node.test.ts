// The comparison of outputs on the page for model files, in a browser.
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import * as ort from 'onnxruntime-web/wasm';
import { chromium, type Page } from 'playwright';
import { afterAll, describe, expect, it } from 'vitest';
import { hangLimit, launchOptions } from '../../../../scripts/chromium.mjs';
import {
  divergenceAxis,
  type Judgment,
  type PlaceReport,
  pairText,
  places,
  placesText,
  rateOf,
  relativeText,
  secondsFor,
  usualRate,
  verdictOf,
  withError,
} from '../../../../web/demo/model/outputs.js';
import { compareModels, evaluateModel, type LanguageComparison, quantizeModel } from '../../../../web/src/model.js';
import type { RunReport } from '../../../../web/src/tooling.js';
import * as onnx from '../../formats/onnx/encoder.js';
import { type LlamaConfig, llamaModel } from '../../support/llama-onnx.js';
import { safetensors } from '../../support/models.js';
import { npy, zip } from '../../support/npz.js';
import { decoderConfig, decoderWeights, plainTokenizer } from '../../support/tiny-huggingface.js';
import { tinyLlama } from '../../support/tiny-llama.js';
import { path, startSite } from '../site.js';

const site = startSite();
const place = mkdtempSync(join(tmpdir(), 'scalepoint-outputs-'));
afterAll(() => rmSync(place, { recursive: true, force: true }));

let page: Page;
const text = (id: string) => page.textContent(`#${id}`);
const fileOf = (name: string, content: Uint8Array | string) => ({ name, mimeType: '', buffer: Buffer.from(content) });

/** A tokenizer of single bytes. */
const tokenizerFile = plainTokenizer({ decoder: null });

/** A small language model as a folder, with a tokenizer of single bytes. */
function folder(): string[] {
  const tensors = [...decoderWeights()].map(([name, { shape, values }]) => [
    name,
    { dtype: 'F32', shape, data: values },
  ]);
  const files = {
    'model.safetensors': safetensors(Object.fromEntries(tensors)),
    'config.json': JSON.stringify(decoderConfig('LlamaForCausalLM')),
    'tokenizer.json': JSON.stringify(tokenizerFile),
  };
  return Object.entries(files).map(([name, content]) => {
    writeFileSync(join(place, name), content);
    return join(place, name);
  });
}

/** Opens files and waits for the section. */
async function openWith(
  files: string | readonly string[] | ReturnType<typeof fileOf>,
  address = 'model/',
  ...more: unknown[]
): Promise<void> {
  page = await site.open(address, ...(more as []));
  await page.setInputFiles('#file', files as string[]);
  await page.waitForSelector('#outputs:visible');
}

/** Waits until the page is drawn, and nothing is being compared. */
async function ended(): Promise<void> {
  await page.evaluate(() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done))));
  await page.waitForSelector('#outputs-cancel', { state: 'hidden' });
}
/** Compares the outputs of the chosen type, or of all others. */
async function compare(): Promise<void> {
  await page.click('#outputs-run');
  await ended();
}
/** The rows of the table of figures. */
const rows = () =>
  page.$$eval('#outputs-table tbody tr', (all) =>
    all.map((row) => [...row.children].map(({ textContent }) => textContent)),
  );
/** Names of the points in the picture. */
const points = () => page.$$eval('#outputs-chart .marks text', (all) => all.map(({ textContent }) => textContent));
const pressed = () =>
  page.$$eval('#outputs-types [aria-pressed="true"]', (all) => all.map(({ textContent }) => textContent));
const focused = () => page.evaluate(() => document.activeElement?.id ?? '');

/** Drops a file onto the page. */
const drop = (name: string, content: string) =>
  page.evaluate(
    ([name, content]) => {
      const dataTransfer = new DataTransfer();
      dataTransfer.items.add(new File([content], name));
      for (const type of ['dragover', 'drop'])
        document
          .querySelector('header')
          ?.dispatchEvent(new DragEvent(type, { dataTransfer, bubbles: true, cancelable: true }));
    },
    [name, content] as const,
  );

describe('words about outputs', () => {
  const judged = (same: number, before: number, after: number, error = 0, vocabulary = 32_000): Judgment => {
    const estimate = (value: number) => ({ value, error: 0.01 });
    const figures = {
      vocabulary,
      sameTop: estimate(same),
      perplexity: estimate(after),
      referencePerplexity: estimate(before),
      kl: estimate(0.01),
      logDifference: { value: Math.log(after / before), error },
    };
    return { kind: 'texts', figures: figures as unknown as LanguageComparison };
  };

  it('are one sentence', () => {
    expect(verdictOf(judged(0.97, 8.1, 8.3))).toBe(
      'The next word that the model finds most likely is the same in 97 of 100 places; perplexity rises from 8.10 to 8.30.',
    );
    expect(verdictOf(judged(1, 8.1, 8.1))).toBe(
      'The next word that the model finds most likely is the same in all places; perplexity stays at 8.10.',
    );
    expect(verdictOf(judged(0.5, 12.3456, 12.3401))).toContain('perplexity falls from 12.35 to 12.34.');
  });

  it('say which differences a text cannot tell, and which texts do not suit a model', () => {
    // log(8.3 / 8.1) is .0244.
    expect(verdictOf(judged(0.97, 8.1, 8.3, 0.013))).toMatch(
      /^The next word .* rises from 8\.10 to 8\.30, within two standard errors, so that this text cannot tell them apart\.$/,
    );
    expect(verdictOf(judged(0.97, 8.1, 8.3, 0.012))).toMatch(/from 8\.10 to 8\.30\.$/);
    expect(verdictOf(judged(0.97, 400, 410, 0, 768))).toMatch(
      /; this text does not suit the model, whose perplexity of 400 is near that of a guess among its 768 tokens\.$/,
    );
    expect(verdictOf(judged(0.97, 300, 310, 0, 768))).toContain('rises from 300 to 310');
  });

  it('name what is infinite in float16, though the outputs agree here', () => {
    const outputs = [{ name: 'y', shape: [3], mismatched: 0, error: { sqnrDb: 70, relativeL2: 0.0003 } }];
    const overflows = [
      { value: 'a', node: '', op: 'Add', largest: 70_000 },
      { value: 'p', node: '', op: 'MatMul', largest: 133_339.4 },
    ];
    const figures = { inputs: [], guessedSizes: {}, outputs, skippedOutputs: [], overflows } as unknown as RunReport;
    expect(verdictOf({ kind: 'arrays', figures })).toBe(
      'The output y is off by 0.03 %. In float16 on a GPU, p (MatMul) is infinite: it reaches 133,339, beyond 65,504.',
    );
  });

  it('never say that all is the same if it is not', () => {
    expect([1, 0.9999, 0.996, 0.995, 0.9949, 0.5, 0].map(places)).toEqual([
      'all places',
      '999 of 1,000 places',
      '996 of 1,000 places',
      '995 of 1,000 places',
      '99 of 100 places',
      '50 of 100 places',
      '0 of 100 places',
    ]);
    expect(pairText(8, 8.00001)).toEqual(['8.00', '8.00']);
    expect(pairText(12345.6, 12399)).toEqual(['12,346', '12,399']);
    expect([0, 1e-7, 0.0081, 0.5, 12.3].map(relativeText)).toEqual([
      '0 %',
      'less than 0.001 %',
      '0.81 %',
      '50 %',
      '1,230 %',
    ]);
  });

  it('have the digits that the error leaves', () => {
    expect(withError(88.1889, 2.876, ' %')).toBe('88.2 ± 2.9 %');
    expect(withError(-0.00512, 0.0153)).toBe('\u22120.005 ± 0.015');
    expect(withError(1, 0, ' %')).toBe('1.000 %');
    expect(withError(7.25, Number.NaN)).toBe('7.250');
  });

  it('estimate a duration, and learn from one', () => {
    expect(secondsFor(1e9, 1000, usualRate)).toBe(500.5);
    expect(rateOf(1e9, 1000, 400.5)).toBe(5e9);
    // A short run is all overhead.
    expect(rateOf(1e6, 256, 1.2)).toBeUndefined();
  });

  it('label divergences by powers of ten', () => {
    const labels = (low: number, high: number, wanted: number) =>
      divergenceAxis.ticks(low, high, wanted).map((tick) => divergenceAxis.label(tick));
    // Heights are -log10 of divergences: from 0.1 to 0.0001.
    expect(labels(0.95, 4.05, 5).sort()).toEqual(['0.0001', '0.001', '0.01', '0.1']);
    expect(labels(1.2, 2.1, 5).sort()).toEqual(['0.01', '0.02', '0.05']);
    expect(labels(0.9, 9.2, 5).length).toBeLessThanOrEqual(5);
    // However little room there is, a wide range has a line.
    expect(labels(0.1, 7, 1).length).toBeGreaterThan(0);
    expect(divergenceAxis.label(5)).toBe('1e\u22125');
  });
});

it('compares a language model on the built-in story, with the figures of the package', async () => {
  const files = folder();
  await openWith(files);
  expect(await text('outputs-status')).toMatch(/^Takes about/);
  expect(await page.isHidden('#outputs-picture')).toBe(true);
  await page.focus('#outputs-run');
  await page.keyboard.press('Enter');
  await page.waitForSelector('#outputs-picture:visible');
  await ended();
  const { Tokenizer } = await import('@huggingface/tokenizers');
  const tokenizer = new Tokenizer(tokenizerFile, {});
  const story = readFileSync('web/demo/model/story.txt', 'utf8');
  const ids = Uint32Array.from(tokenizer.encode(story, { add_special_tokens: false }).ids).slice(0, 256);
  const small = await (await quantizeModel(files, { to: 'Q4_K_M', workers: 0 })).bytes();
  // The story is characters, so the model's first token stands in front.
  const figures = await evaluateModel(small, {
    reference: files,
    text: 'the story',
    tokenizer: { encode: () => ids },
    chunkSize: 256,
  });
  expect(await text('outputs-verdict')).toBe(verdictOf({ kind: 'texts', figures }));
  expect(await text('outputs-basis')).toMatch(
    /^Measured at 127 places \(± \d+ of 100\) in 256 tokens of the built-in story/,
  );
  const { value, error } = figures.kl;
  expect(await rows()).toContainEqual(['KL divergence, mean', withError(value, error)]);
  expect(await points()).toEqual(['Q4_K_M']);
  expect(await page.textContent('#outputs-chart .marks text.chosen')).toBe('Q4_K_M');
  expect(await focused()).toBe('outputs-run');

  // Another choice is judged anew, and the picture keeps both.
  await page.check('input[value="safe"]', { force: true });
  await expect.poll(() => text('outputs-verdict')).toBe('');
  await compare();
  expect(await text('outputs-verdict')).toMatch(/the same in /);
  expect((await points()).sort()).toEqual(['Q4_K_M', 'Q8_0']);
  expect(await page.textContent('#outputs-chart .marks text.chosen')).toBe('Q8_0');
  // Going back needs no work.
  await page.check('input[value="balanced"]', { force: true });
  await expect.poll(() => text('outputs-verdict')).toBe(verdictOf({ kind: 'texts', figures }));
});

it('judges the storyteller of the site by stories of its kind', async () => {
  const folder = 'web/demo/public/samples/storyteller';
  await openWith(['model.safetensors', 'config.json', 'tokenizer.json'].map((name) => path(`${folder}/${name}`)));
  await compare();
  expect(await text('outputs-verdict')).toMatch(/; perplexity \w+ (?:from|at) 1\d\.\d/);
});

it('adds types one after the other, takes them out, and stops', async () => {
  await openWith(folder());
  await compare();
  await page.click('#outputs-types button:text-is("Q2_K")');
  await page.click('#outputs-types button:text-is("Q8_0")');
  await ended();
  expect((await points()).sort()).toEqual(['Q2_K', 'Q4_K_M', 'Q8_0']);
  // The curve: more bytes, less divergence.
  const heights = await page.$$eval('#outputs-chart circle', (all) =>
    all.map((node) => [Number(node.getAttribute('cx')), Number(node.getAttribute('cy'))] as const),
  );
  heights.sort(([a], [b]) => a - b);
  expect(heights.map(([, y]) => y)).toEqual(heights.map(([, y]) => y).sort((a, b) => b - a));
  await page.click('#outputs-types button:text-is("Q2_K")');
  await expect.poll(async () => (await points()).sort()).toEqual(['Q4_K_M', 'Q8_0']);
  // Stopping forgets the types that wait.
  await page.click('#outputs-run');
  await page.click('#outputs-cancel');
  await expect.poll(() => text('outputs-status')).toMatch(/^Stopped\./);
  expect((await pressed()).length).toBeLessThan(10);
  expect(await focused()).toBe('outputs-run');
  await compare();
  expect((await pressed()).length).toBe(10);
});

it('restores codes of folders, so that safetensors are compared, too', async () => {
  await openWith(folder(), 'model/#to=int8');
  await compare();
  expect(await text('outputs-problem')).toBe('');
  expect(await text('outputs-verdict')).toMatch(/the same in /);
});

it('reads a text that is dropped, and says what is wrong with one', async () => {
  await openWith(folder());
  await drop('tale.txt', 'ab cd '.repeat(30));
  await expect.poll(() => text('outputs-source')).toBe('tale.txt');
  await compare();
  expect(await text('outputs-basis')).toContain('tokens of tale.txt');
  await drop('short.txt', 'a');
  await expect.poll(() => text('outputs-source')).toBe('short.txt');
  await compare();
  expect(await text('outputs-problem')).toBe(
    'Q4_K_M could not be compared: the text has 1 of the 8 tokens that are needed at least.',
  );
  await page.click('#outputs-usual');
  await expect.poll(() => text('outputs-source')).toBe('A built-in story');
  expect(await text('outputs-problem')).toBe('');
});

it('asks for the tokenizer of a GGUF file, and notices one that does not fit', async () => {
  await openWith(fileOf('tiny.gguf', tinyLlama()));
  expect(await text('outputs-basis')).toContain('without its tokenizer');
  expect(await text('outputs-run')).toBe('Choose tokenizer.json…');
  expect(await page.isHidden('#outputs-tokens')).toBe(true);
  await drop('tokenizer.json', '{}');
  await expect.poll(() => text('outputs-run')).toBe('Compare the outputs');
  await compare();
  expect(await text('outputs-problem')).toBe(
    'Q4_K_M could not be compared: tokenizer.json cannot be read: Tokenizer must contain a "model" property.',
  );
  await page.setInputFiles('#outputs-tokenizer', fileOf('my-tokenizer.json', JSON.stringify(tokenizerFile)));
  await compare();
  expect(await text('outputs-problem')).toMatch(/the tokenizer gives the id \d+, and the model has \d+\.$/);
});

it('runs ONNX models with the runtime of the site, which is loaded then and kept for visits without a network', async () => {
  const model = onnx.product('MatMul', [96, 64], ['n', 96] as unknown as number[], ['n', 64])();
  const seen: string[] = [];
  await openWith(fileOf('product.onnx', model), 'model/', { serviceWorkers: 'allow' }, async (page: Page) => {
    page.on('request', (request) => seen.push(new URL(request.url()).pathname));
  });
  const runtimes = () => seen.filter((name) => name.includes('/ort'));
  await expect.poll(() => page.textContent('#about-offline')).toContain('Works offline');
  const stored = () =>
    page.evaluate(async () => {
      const [name = ''] = await caches.keys();
      return (await (await caches.open(name)).keys()).filter(({ url }) => /ort.*[.]wasm$/.test(url)).length;
    });
  expect(runtimes()).toEqual([]);
  expect(await stored()).toBe(0);
  await compare();
  expect(await text('outputs-problem')).toBe('');
  expect(runtimes().length).toBeGreaterThan(0);
  await expect.poll(stored).toBe(1);

  ort.env.wasm.numThreads = 1;
  const made = await (await quantizeModel(model, { to: 'q8', workers: 0 })).bytes();
  const report = await compareModels(model, made, { run: { runtime: ort }, workers: 0 });
  expect(await text('outputs-verdict')).toBe(
    `The output y is off by ${relativeText(report.outputs?.[0]?.error.relativeL2 ?? 0)}.`,
  );
  expect(await text('outputs-basis')).toBe('Inputs: x (random, 1 × 96). Guessed: n = 1. Real inputs tell more.');
  expect(await rows()).toHaveLength(1);
  // The tests' browser has no GPU.
  expect(await text('outputs-places-text')).toMatch(
    /^On the processor q8 .*, and its outputs are off by .* %\. This browser gives no GPU to pages\.$/,
  );
  expect(await page.locator('#outputs-places tbody tr').count()).toBe(2);

  // Inputs of a file have the shape that it says.
  const array = npy('<f4', '(3, 96)', Float32Array.from({ length: 288 }, (_, i) => Math.sin(i)).buffer);
  const inputs = zip([['x.npy', array, 0]], (bytes) => bytes);
  await page.setInputFiles('#outputs-file', fileOf('inputs.npz', inputs));
  await compare();
  expect(await text('outputs-basis')).toBe('Inputs from inputs.npz: x (3 × 96).');
  await page.context().setOffline(true);
  await page.check('input[value="small"]', { force: true });
  await expect.poll(() => text('outputs-verdict')).toBe('');
  await compare();
  expect(await text('outputs-verdict')).toMatch(/^The output y is off by/);
});

it('runs ONNX models on WebGPU as well, where the browser has it', async () => {
  // SwiftShader stands in for a GPU.
  const flags = ['--enable-unsafe-webgpu', '--use-webgpu-adapter=swiftshader'];
  const args = [...launchOptions.args.filter((flag) => flag !== '--disable-gpu'), ...flags];
  const browser = await chromium.launch({ ...launchOptions, args });
  try {
    const page = await browser.newPage();
    page.setDefaultTimeout(hangLimit);
    const foreign: string[] = [];
    page.on('request', (request) => {
      if (!request.url().startsWith(site.url)) foreign.push(request.url());
    });
    await page.goto(`${site.url}model/`);
    const model = onnx.product('MatMul', [96, 64], [3, 96], [3, 64])();
    await page.setInputFiles('#file', fileOf('product.onnx', model));
    await page.click('#outputs-run');
    await page.waitForSelector('#outputs-places tbody tr');
    const words = await page.textContent('#outputs-places-text');
    expect(words).toMatch(/^On .* q8 .*, and its outputs are off by .* On the processor q8 /);
    const cells = await page.locator('#outputs-places tbody tr').allTextContents();
    expect(cells).toHaveLength(4);
    for (const cell of cells) expect(cell).toMatch(/(Original|q8), .*B.*m?s.*dB$/);
    expect(foreign.filter((url) => !url.startsWith('blob:'))).toEqual([]);

    // A result that does not run there has its reason above the table, which stays within the box at every width.
    await page.click('#outputs-types button:text-is("fp16")');
    await page.waitForSelector('#outputs-cancel', { state: 'hidden' });
    await page.check('input[value="safe"]', { force: true });
    const place = page.locator('#outputs-places tbody tr').last();
    await expect.poll(() => place.textContent()).toMatch(/^fp16, .*Bnot run––$/);
    expect(await page.textContent('#outputs-places-text')).toMatch(/ fp16 does not run: it computes in float16/);
    for (const width of [360, 1280]) {
      await page.setViewportSize({ width, height: 800 });
      const [inside, whole] = await page
        .locator('#outputs-places-box')
        .evaluate(({ clientWidth, scrollWidth }) => [clientWidth, scrollWidth]);
      expect(whole, String(width)).toBe(inside);
    }
  } finally {
    await browser.close();
  }
});

it('says why a model does not run', async () => {
  const nodes = [
    { op: 'MatMul', in: ['x', 'w'], out: ['p'] },
    { op: 'Unknown', domain: 'other', in: ['p'], out: ['y'] },
  ];
  const initializers = [onnx.floatTensor('w', [64, 64])];
  const inputs = [['x', [3, 64]]] as const;
  const outputs = [['y', [3, 64]]] as const;
  const model = onnx.model({ nodes, initializers, inputs, outputs }, { imports: { other: 1 } });
  await openWith(fileOf('unknown.onnx', model));
  await compare();
  expect(await text('outputs-problem')).toMatch(
    /^q8 could not be compared: onnxruntime-web cannot load A: .*Unknown.* \(A is the original, B the result\)\.$/s,
  );
});

it('says in one sentence a place what a result is like there', () => {
  const error = { relativeL2: 0.0123, sqnrDb: 38 };
  const run = (seconds: number) => ({
    kind: 'ran',
    outputs: [{ error }],
    times: { seconds, firstSeconds: 1, runs: 3 },
  });
  const gpu = { vendor: 'x', architecture: 'y', isSoftware: false, hasFloat16: false };
  const places = (...list: object[]) => placesText('q4', list as unknown as PlaceReport[]);
  const wasm = { backend: 'wasm', a: run(0.001), b: run(0.003) };
  expect(places(wasm, { backend: 'webgpu', adapter: gpu, a: run(0.021), b: run(0.01) })).toBe(
    'On your GPU q4 is 2.1 times as fast as the original, and its outputs are off by 1.2 %. On the processor q4 takes 3.0 times as long as ' +
      'the original, and its outputs are off by 1.2 %.',
  );
  expect(places(wasm, { backend: 'webgpu', adapter: gpu, a: run(1), b: { kind: 'needsFloat16', text: '' } })).toMatch(
    /^On your GPU, q4 does not run: it computes in float16, which this GPU does not\. On the processor/,
  );
  expect(places({ ...wasm, b: run(0.00105) })).toBe(
    'On the processor q4 is as fast as the original, and its outputs are off by 1.2 %. This browser gives no GPU to pages.',
  );
  // A time below the clock's steps has no ratio to others.
  for (const [before, after, words] of [
    [0.0001, 0, 'takes less than 1 ms, as the original does'],
    [0.012, 0, 'takes less than 1 ms, the original 12 ms'],
    [0, 0.0042, 'takes 4.2 ms, the original less than 1 ms'],
    [0, 0, 'takes less than 1 ms, as the original does'],
  ] as const) {
    expect(places({ ...wasm, a: run(before), b: run(after) })).toMatch(`On the processor q4 ${words}, and its outputs`);
  }
  expect(places(wasm, { backend: 'webgpu', adapter: { ...gpu, isSoftware: true }, a: run(1), b: run(1) })).toMatch(
    /^On WebGPU in software q4 .* These times are not those of a GPU\. On the processor/,
  );
});

describe.skipIf(process.env.SCALEPOINT_SAMPLES === undefined)('an ONNX language model', () => {
  it('is compared on a text if its tokenizer is there, or on arrays', async () => {
    const samples = join(process.env.SCALEPOINT_SAMPLES ?? '', 'tinystories-656k');
    const read = (name: string) => readFileSync(join(samples, name));
    const config = JSON.parse(read('config.json').toString()) as LlamaConfig;
    const model = fileOf('model.onnx', llamaModel(config, read('model.safetensors')));
    const files = [model, ...['config.json', 'tokenizer.json'].map((name) => fileOf(name, read(name)))];
    await openWith(files as unknown as string[], 'model/#to=q4');
    expect(await page.isChecked('#outputs-kind input[value="texts"]')).toBe(true);
    await compare();
    expect(await text('outputs-problem')).toBe('');
    expect(await text('outputs-verdict')).toMatch(/the same in \d+ of 100 places; perplexity/);
    await page.check('#outputs-kind input[value="arrays"]', { force: true });
    await expect.poll(() => text('outputs-source')).toBe('Random inputs');
    await compare();
    expect(await text('outputs-verdict')).toMatch(/^The output logits is off by/);
    // Without a tokenizer, arrays are what it can be run on at once.
    await openWith(model);
    expect(await page.isChecked('#outputs-kind input[value="arrays"]')).toBe(true);
    await page.check('#outputs-kind input[value="texts"]', { force: true });
    await expect.poll(() => text('outputs-run')).toBe('Choose tokenizer.json…');
  });
});

it('says why a model is not offered, where that is expected', async () => {
  const { Maker } = await import('../../support/tiny-huggingface.js');
  const weights = new Maker(1).matrix('model.layers.0.self_attn.q_proj.weight', 64, 64).weights;
  const tensors = [...weights].map(([name, { shape, values }]) => [name, { dtype: 'F32', shape, data: values }]);
  await openWith(fileOf('model.safetensors', safetensors(Object.fromEntries(tensors))));
  expect(await text('outputs')).toContain('drop the whole folder of the model');
  expect(await page.isHidden('#outputs-box')).toBe(true);
  // A model of another kind has no such section.
  await page.setInputFiles('#file', 'web/demo/public/samples/digits.safetensors');
  await page.waitForSelector('#outputs', { state: 'hidden' });
});

it('is usable at every width, in both themes, by everyone', async () => {
  // From wide to narrow, so that what keeps its width is found.
  const looks = [
    [1280, 'dark'],
    [768, 'light'],
    [360, 'dark'],
  ] as const;
  const judge = async (check: (width: number) => Promise<void>) => {
    for (const [width, colorScheme] of looks) {
      await page.setViewportSize({ width, height: 800 });
      await page.emulateMedia({ colorScheme });
      await ended();
      expect([width, colorScheme, ...(await site.axe('#outputs'))]).toEqual([width, colorScheme]);
      await check(width);
    }
  };
  await openWith(folder());
  await judge(async () => {});
  await compare();
  await page.click('#outputs-types button:text-is("Q2_K")');
  await ended();
  await page.click('#outputs-figures summary');
  await judge(async (width) => {
    expect(await page.evaluate(() => document.documentElement.scrollWidth)).toBe(width);
    const [box, chart] = await Promise.all(
      ['#outputs-box', '#outputs-chart'].map((name) => page.locator(name).boundingBox()),
    );
    expect(chart?.width).toBeLessThan(box?.width ?? 0);
  });
});

it('keeps the page answering while it works', async () => {
  await openWith(folder());
  await page.check('#outputs-tokens input[value="1024"]', { force: true });
  await page.click('#outputs-run');
  await page.waitForSelector('#outputs-cancel', { state: 'visible' });
  let answers = 0;
  while (await page.isVisible('#outputs-cancel')) {
    await page.evaluate(() => new Promise((done) => requestAnimationFrame(done)));
    answers++;
  }
  expect(await text('outputs-verdict')).toMatch(/the same in /);
  expect(answers).toBeGreaterThan(2);
});
