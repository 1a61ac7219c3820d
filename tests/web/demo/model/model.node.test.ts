// The panel for model files of the built demo page, in a browser.
import {
  closeSync,
  ftruncateSync,
  mkdtempSync,
  openSync,
  readFileSync,
  rmSync,
  writeFileSync,
  writeSync,
} from 'node:fs';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { type Browser, type BrowserContext, chromium, type Page } from 'playwright';
import { afterAll, afterEach, beforeAll, beforeEach, expect, it } from 'vitest';
import { serve } from '../../../../scripts/serve.mjs';
import { planModel, quantizeModel } from '../../../../web/src/model.js';
import { safetensors, weights } from '../../support/models.js';
import { tinyLlama } from '../../support/tiny-llama.js';

const path = (name: string) => fileURLToPath(new URL(`../../../../${name}`, import.meta.url));
const sample = path('web/demo/public/samples/digits.safetensors');

let server: Awaited<ReturnType<typeof serve>>;
let browser: Browser;
let context: BrowserContext;
let page: Page;
let folder: string;
/** Errors, warnings, and requests to other servers. It must be empty after each test. */
let complaints: string[] = [];

beforeAll(async () => {
  folder = mkdtempSync(join(tmpdir(), 'scalepoint-demo-'));
  server = await serve({ folder: path('build/demo'), port: 0 });
  browser = await chromium.launch({
    executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium',
    args: ['--no-sandbox', '--disable-gpu', '--disable-dev-shm-usage', '--disable-background-networking'],
  });
}, 60_000);
afterAll(async () => {
  await browser?.close();
  await server?.close();
  rmSync(folder, { recursive: true, force: true });
});
beforeEach(async () => {
  await openPage();
});
afterEach(async () => {
  await context.close();
  expect(complaints).toEqual([]);
});

async function openPage(options: Parameters<Browser['newContext']>[0] = {}): Promise<void> {
  await context?.close();
  complaints = [];
  context = await browser.newContext({ viewport: { width: 1280, height: 900 }, ...options });
  page = await context.newPage();
  page.on('pageerror', (error) => complaints.push(error.message));
  page.on('console', (message) => {
    if (['error', 'warning'].includes(message.type())) complaints.push(message.text());
  });
  page.on('request', (request) => {
    const url = request.url();
    if (!/^(blob:|data:)/.test(url) && !url.startsWith(server.url)) complaints.push(`request to ${url}`);
  });
  // A test cannot answer the save dialog. Without one the page writes to the origin private file system.
  await page.addInitScript(() => {
    delete (globalThis as { showSaveFilePicker?: unknown }).showSaveFilePicker;
  });
  await page.goto(`${server.url}model/`);
}

const bytesAfter = () => page.$eval('#model-figure-after', (data) => Number((data as HTMLDataElement).value));
const status = () => page.textContent('#model-status');
/** Waits until the page shows a size that differs from `before`. */
const planned = (before = 0) =>
  page.waitForFunction((old) => {
    const size = Number((document.querySelector('#model-figure-after') as HTMLDataElement).value);
    return size > 0 && size !== old;
  }, before);
const column = (index: number) =>
  page.$$eval('#model-rows tr', (rows, i) => rows.map((row) => row.children[i as number]?.textContent ?? ''), index);

/** Runs the quantization and returns the downloaded file. */
async function save(): Promise<{ name: string; bytes: Buffer }> {
  const [download] = await Promise.all([page.waitForEvent('download'), page.click('#model-run')]);
  return { name: download.suggestedFilename(), bytes: readFileSync(await download.path()) };
}

it('saves the same bytes as the package, in the planned size, for several targets', async () => {
  await page.setInputFiles('#file', sample);
  await planned();
  let before = 0;
  for (const to of ['int8', 'bfloat16', 'int4'] as const) {
    await page.selectOption('#model-target', to);
    await planned(before);
    before = await bytesAfter();
    const { name, bytes } = await save();
    expect(name).toBe(`digits.${to}.safetensors`);
    expect(bytes.length).toBe(before);
    const expected = await quantizeModel(sample, { to });
    expect(Buffer.compare(bytes, await expected.bytes())).toBe(0);
    await expect.poll(status).toContain(`Saved digits.${to}.safetensors`);
  }
});

it('keeps its main button readable under the pointer, in both themes', async () => {
  await page.setInputFiles('#file', sample);
  await planned();
  for (const colorScheme of ['light', 'dark'] as const) {
    await page.emulateMedia({ colorScheme, reducedMotion: 'reduce' });
    await page.hover('#model-run');
    // The contrast of WCAG 2.2, of colors that the page gives as rgb(): 4.5 is its least for text.
    const contrast = () =>
      page.$eval('#model-run', (button) => {
        const { color, backgroundColor } = getComputedStyle(button);
        const [a, b] = [color, backgroundColor].map((text) => {
          const [red, green, blue] = (text.match(/[\d.]+/g) ?? []).map((v) => {
            const part = Number(v) / 255;
            return part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
          }) as [number, number, number];
          return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
        }) as [number, number];
        return (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
      });
    await expect.poll(contrast).toBeGreaterThan(4.5);
  }
});

it('searches for the ranges of int4', async () => {
  await page.setInputFiles('#file', sample);
  await planned();
  await page.selectOption('#model-target', 'int4');
  await page.click('#model-form summary');
  await page.check('#model-search');
  await expect.poll(() => page.textContent('#model-command')).toContain('--to int4 --range mse');
  const { bytes } = await save();
  const expected = await quantizeModel(sample, { to: 'int4', range: 'mse' });
  expect(Buffer.compare(bytes, await expected.bytes())).toBe(0);
});

it('saves a GGUF file and shows the numbers of its blocks', async () => {
  const model = tinyLlama({ layers: 2 });
  await page.setInputFiles('#file', [{ name: 'tiny.gguf', mimeType: '', buffer: Buffer.from(model) }]);
  await planned();
  const { name, bytes } = await save();
  expect(name).toBe('tiny.Q4_K_M.gguf');
  const expected = await quantizeModel(model, { to: 'Q4_K_M' });
  expect(Buffer.compare(bytes, await expected.bytes())).toBe(0);

  // The result can be opened. Its blocks are dequantized.
  await page.setInputFiles('#file', [{ name: 'tiny.Q4_K_M.gguf', mimeType: '', buffer: bytes }]);
  await expect.poll(() => page.textContent('#model-name')).toContain('tiny.Q4_K_M.gguf');
  // Quantizing quantized tensors again is an option that is off by default.
  await page.selectOption('#model-target', 'Q8_0');
  await expect.poll(() => page.textContent('#model-problem')).toMatch(/quantized already|requantize/);
  expect(await page.isDisabled('#model-run')).toBe(true);
});

it('lists and plans a model of 3 GiB from its header, and cancels quantizing it', async () => {
  const rows = 3 * 2 ** 15;
  const json = JSON.stringify({
    'big.weight': { dtype: 'F32', shape: [rows, 8192], data_offsets: [0, rows * 8192 * 4] },
    'small.weight': { dtype: 'F32', shape: [8, 8], data_offsets: [rows * 8192 * 4, rows * 8192 * 4 + 256] },
  });
  const header = Buffer.alloc(8 + json.length);
  header.writeBigUInt64LE(BigInt(json.length));
  header.write(json, 8);
  const file = join(folder, 'big.safetensors');
  const descriptor = openSync(file, 'w');
  writeSync(descriptor, header);
  ftruncateSync(descriptor, header.length + rows * 8192 * 4 + 256);
  closeSync(descriptor);

  await page.evaluate(() => {
    const { slice } = Blob.prototype;
    Blob.prototype.slice = function (this: Blob, begin = 0, end = this.size, type?: string) {
      Object.assign(globalThis, { sliced: ((globalThis as { sliced?: number }).sliced ?? 0) + end - begin });
      return slice.call(this, begin, end, type);
    };
  });
  await page.setInputFiles('#file', file);
  await planned();
  // The header is read each time that the page plans, but not a row of the weight.
  const sliced = await page.evaluate(() => (globalThis as { sliced?: number }).sliced);
  expect(sliced).toBeGreaterThanOrEqual(header.length);
  expect(sliced).toBeLessThan(8192 * 4);
  const { totals } = await planModel(file, { to: 'int8' });
  expect(await bytesAfter()).toBe(totals.bytesAfter);

  for (let round = 0; round < 2; round++) {
    await page.click('#model-run');
    await expect.poll(status, { timeout: 20_000 }).toMatch(/MiB of 3\.0 GiB/);
    await page.click('#model-cancel');
    await expect.poll(status).toContain('Cancelled');
    const left = await page.evaluate(async () => {
      const names: string[] = [];
      const root = await navigator.storage.getDirectory();
      for await (const name of (root as unknown as { keys(): AsyncIterable<string> }).keys()) names.push(name);
      return names;
    });
    expect(left).toEqual([]);
  }
  // The page still works afterwards.
  await page.setInputFiles('#file', sample);
  await planned(totals.bytesAfter);
  expect((await save()).name).toBe('digits.int8.safetensors');
}, 120_000);

it('opens an index with its shards', async () => {
  const shards = [
    { name: 'a-1.safetensors', tensors: { 'x.weight': weights('F32', [16, 64]) } },
    { name: 'a-2.safetensors', tensors: { 'y.weight': weights('F32', [16, 64], 2) } },
  ];
  const map = { 'x.weight': 'a-1.safetensors', 'y.weight': 'a-2.safetensors' };
  const index = JSON.stringify({ metadata: {}, weight_map: map });
  await page.setInputFiles('#file', [
    ...shards.map(({ name, tensors }) => ({ name, mimeType: '', buffer: Buffer.from(safetensors(tensors)) })),
    { name: 'a.safetensors.index.json', mimeType: '', buffer: Buffer.from(index) },
  ]);
  await planned();
  expect(await column(0)).toEqual(['x.weight', 'y.weight']);
  const { name, bytes } = await save();
  expect(name).toBe('a.int8.safetensors');
  expect(bytes.length).toBe(await bytesAfter());
});

it('sorts tensors by error, filters them by name, and keeps one with a click', async () => {
  await page.setInputFiles('#file', sample);
  await planned();
  await save();
  await expect.poll(() => column(5)).toContainEqual(expect.stringContaining('dB'));
  const header = page.locator('#model-head th', { hasText: 'SQNR' });
  await header.locator('button').click();
  expect(await header.getAttribute('aria-sort')).toBe('ascending');
  const values = (await column(5)).filter((text) => text !== '').map(Number.parseFloat);
  expect(values).toEqual([...values].sort((a, b) => a - b));
  await header.locator('button').click();
  expect(await header.getAttribute('aria-sort')).toBe('descending');
  const reversed = (await column(5)).filter((text) => text !== '').map(Number.parseFloat);
  expect(reversed).toEqual([...values].reverse());

  await page.fill('#model-filter', 'FC3');
  expect(new Set(await column(0))).toEqual(new Set(['fc3.bias', 'fc3.weight']));
  const before = await bytesAfter();
  await page.click('[aria-label="Keep fc3.weight"]');
  await planned(before);
  const rules = [{ match: /^(fc3\.weight)$/, keep: true as const }];
  const { totals } = await planModel(sample, { to: 'int8', rules });
  expect(await bytesAfter()).toBe(totals.bytesAfter);
  expect(await page.textContent('#model-command')).toBe(
    "npx scalepoint quantize digits.safetensors --to int8 --rule '^(fc3\\.weight)$=keep'",
  );
  await page.click('[aria-label="Convert fc3.weight"]');
  await planned(totals.bytesAfter);
  expect(await bytesAfter()).toBe(before);
});

it('saves the configuration and the report', async () => {
  await page.setInputFiles('#file', sample);
  await planned();
  await save();
  const saved = async (button: string) => {
    const [download] = await Promise.all([page.waitForEvent('download'), page.click(button)]);
    return { name: download.suggestedFilename(), text: readFileSync(await download.path(), 'utf8') };
  };
  await page.waitForSelector('#model-after:visible');
  const config = await saved('#model-config');
  expect(config.name).toBe('config.json');
  expect(JSON.parse(config.text).quantization_config.quant_method).toBe('compressed-tensors');
  const report = await saved('#model-json');
  expect(JSON.parse(report.text).totals.bytesAfter).toBe(await bytesAfter());
  const csv = await saved('#model-csv');
  expect(csv.text.split('\r\n')).toHaveLength(10);
  expect(csv.text).toContain('"fc1.weight","128x256",F32,I8,131072,33808,');
});

it('names a tensor with NaN, and keeps it with one click', async () => {
  const bad = weights('F32', [16, 64]);
  (bad.data as Float32Array)[70] = Number.NaN;
  const file = safetensors({ 'bad.weight': bad, 'good.weight': weights('F32', [16, 64], 2) });
  await page.setInputFiles('#file', [{ name: 'bad.safetensors', mimeType: '', buffer: Buffer.from(file) }]);
  await planned();
  await page.click('#model-run');
  await expect.poll(() => page.textContent('#model-problem')).toContain('"bad.weight" holds NaN at [1, 6]');
  await page.click('#model-problem button');
  await expect.poll(() => page.isVisible('#model-problem')).toBe(false);
  expect((await save()).name).toBe('bad.int8.safetensors');
});

it('quantizes on the main thread if workers cannot be started', async () => {
  await page.route(/worker.*\.js$/, (route) => route.fulfill({ status: 404, body: 'not here' }));
  const rows = 2 ** 10;
  const file = join(folder, 'middle.safetensors');
  writeFileSync(file, safetensors({ 'middle.weight': weights('F32', [rows, 8192]) }));
  await page.setInputFiles('#file', file);
  await planned();
  const { name, bytes } = await save();
  expect(name).toBe('middle.int8.safetensors');
  const expected = await quantizeModel(file, { to: 'int8' });
  expect(Buffer.compare(bytes, await expected.bytes())).toBe(0);
  complaints = complaints.filter((text) => !text.includes('404'));
});

it.each([
  ['wide', 1280, 'light'],
  ['narrow', 360, 'light'],
  ['dark', 1280, 'dark'],
] as const)('is accessible and does not scroll horizontally: %s', async (_what, width, colorScheme) => {
  await openPage({ viewport: { width, height: 800 }, colorScheme });
  await page.setInputFiles('#file', sample);
  await planned();
  await save();
  await page.waitForSelector('#model-after:visible');
  expect(await page.evaluate(() => document.documentElement.scrollWidth)).toBe(width);
  await page.click('#model .more > summary');
  // Code that the debugger evaluates is not subject to the page's policy.
  await page.evaluate(readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8'));
  const violations = await page.evaluate(async () => {
    const { axe } = globalThis as unknown as {
      axe: { run(context: string): Promise<{ violations: { id: string; nodes: { html: string }[] }[] }> };
    };
    const results = await axe.run('#model');
    return results.violations.map(({ id, nodes }) => `${id}: ${nodes[0]?.html}`);
  });
  expect(violations).toEqual([]);
});
