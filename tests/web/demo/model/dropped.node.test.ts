// The page for model files: files that are dropped together, and the figures of a tensor.
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import type { Page } from 'playwright';
import { afterAll, expect, it } from 'vitest';
import { quantizeModel } from '../../../../web/src/model.js';
import { safetensors } from '../../support/models.js';
import { decoderConfig, decoderWeights, plainTokenizer } from '../../support/tiny-huggingface.js';
import { tinyLlama } from '../../support/tiny-llama.js';
import { sample, startSite } from '../site.js';

const site = startSite();
let page: Page;
const fileOf = (name: string, bytes: Uint8Array) => ({ name, mimeType: '', buffer: Buffer.from(bytes) });
const drop = (...files: ReturnType<typeof fileOf>[]) => page.setInputFiles('#file', files);
const digits = () => fileOf('digits.safetensors', readFileSync(sample));
/** The start of a PNG picture. */
const picture = Uint8Array.of(0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a);

/** Drops files and folders of the disk on the page, as a visitor does. */
async function dropPaths(...files: string[]): Promise<void> {
  const session = await page.context().newCDPSession(page);
  const data = { items: [], files, dragOperationsMask: 1 };
  for (const type of ['dragEnter', 'dragOver', 'drop'] as const) {
    await session.send('Input.dispatchDragEvent', { type, x: 200, y: 200, data });
  }
}

const place = mkdtempSync(join(tmpdir(), 'scalepoint-dropped-'));
afterAll(() => rmSync(place, { recursive: true, force: true }));

/** Writes a file of the disk. Returns its path. */
function put(name: string, content: Uint8Array | string): string {
  const path = join(place, name);
  mkdirSync(dirname(path), { recursive: true });
  writeFileSync(path, content);
  return path;
}

/** A folder of a language model, with more files or others. */
function folder(name: string, files: Readonly<Record<string, string>> = {}): string {
  const tensors = [...decoderWeights()].map(([name, { shape, values }]) => [
    name,
    { dtype: 'F32', shape, data: values },
  ]);
  put(`${name}/model.safetensors`, safetensors(Object.fromEntries(tensors)));
  const all = {
    'config.json': JSON.stringify(decoderConfig('LlamaForCausalLM')),
    'tokenizer.json': JSON.stringify(plainTokenizer()),
    ...files,
  };
  for (const [file, text] of Object.entries(all)) put(`${name}/${file}`, text);
  return join(place, name);
}

/** The rows of the list: name and result, or why there is none. */
const rows = () =>
  page.$$eval('#several-rows tr', (all) =>
    all.map((row) => [row.querySelector('th')?.textContent?.trim(), row.querySelector('td:last-child')?.textContent]),
  );
const pointer = `version https://git-lfs.github.com/spec/v1\noid sha256:${'0'.repeat(64)}\nsize 123456\n`;

it('lists everything that is dropped together: models, folders, and why others are not opened', async () => {
  page = await site.open('model/');
  await dropPaths(
    put('digits.safetensors', readFileSync(sample)),
    put('half.safetensors', readFileSync(sample).subarray(0, 1000)),
    put('tiny.gguf', tinyLlama()),
    put('photo.png', picture),
    folder('one'),
    folder('two'),
    put('empty/.keep', '').slice(0, -'/.keep'.length),
  );
  await expect.poll(() => page.textContent('#several-title')).toBe('4 models of 7');
  await expect.poll(rows).toEqual([
    ['digits.safetensors', 'digits.int8.safetensors'],
    ['half.safetensors', expect.stringMatching(/data_offsets ends at 512, but the file has only 208 bytes/)],
    ['tiny.gguf', 'tiny-Q4_K_M.gguf'],
    ['photo.png', expect.stringContaining('photo.png is a PNG picture.')],
    ['one/model.safetensors', 'one-Q4_K_M.gguf'],
    ['two/model.safetensors', 'two-Q4_K_M.gguf'],
    ['empty', 'The folder empty holds no file of a model.'],
  ]);
  // The list is there again after a look at one of its models.
  await page.click('#several-rows button:has-text("one/")');
  await expect.poll(() => page.textContent('#model-name')).toBe('one');
  await page.evaluate(() => history.back());
  await expect.poll(() => page.isVisible('#several')).toBe(true);
  expect(await rows()).toHaveLength(7);
  expect(await site.axe('#several')).toEqual([]);
  await page.setViewportSize({ width: 360, height: 800 });
  expect(await page.evaluate(() => document.documentElement.scrollWidth)).toBe(360);
});

it('opens the model beside a damaged one of another format, and says why if nothing can be opened', async () => {
  page = await site.open('model/');
  await drop(fileOf('tiny.onnx', Uint8Array.of(8, 8)), fileOf('tiny.gguf', tinyLlama()));
  await expect.poll(() => page.textContent('#several-title')).toBe('1 model of 2');
  await expect.poll(rows).toEqual([
    ['tiny.onnx', expect.stringMatching(/./)],
    ['tiny.gguf', 'tiny-Q4_K_M.gguf'],
  ]);
  await drop(fileOf('a.gguf', Uint8Array.of(1)), fileOf('b.gguf', Uint8Array.of(2)));
  await expect.poll(() => page.textContent('#several-title')).toBe('None of these 2 can be opened');
  expect(await page.isVisible('#several-run')).toBe(false);
});

it('says that a folder cannot be read, on every page', async () => {
  const refuse = async (page: Page) => {
    await page.addInitScript(() => {
      DataTransferItem.prototype.webkitGetAsEntry = () => {
        const readEntries = (_found: unknown, failed: (error: unknown) => void) =>
          failed(new DOMException('gone', 'NotReadableError'));
        return { name: 'one', isDirectory: true, createReader: () => ({ readEntries }) } as never;
      };
    });
  };
  for (const [name, problems] of [
    ['model/', '#problems'],
    ['license/', '#problems'],
    ['numbers/', '#problems'],
    ['search/', '#problem'],
  ] as const) {
    page = await site.open(name, {}, refuse);
    // The page takes drops once it has started.
    await page.waitForSelector('.foot:has-text("core")');
    await dropPaths(folder('one'));
    await expect.poll(() => page.textContent(problems), { message: name }).toContain('Choose it again.');
  }
});

it('names what a folder lacks once, and makes a type of its own format instead with one button', async () => {
  for (const [name, files, title, words] of [
    [
      'short',
      { 'config.json': '{"architectures": ["LlamaForCausalLM"]}' },
      'config.json does not fit the model',
      'config.json does not fit.',
    ],
    ['speechless', { 'tokenizer.json': '' }, 'tokenizer.json is missing', 'Needs tokenizer.json.'],
  ] as const) {
    const path = folder(name, files);
    if (name === 'speechless') rmSync(join(path, 'tokenizer.json'));
    page = await site.open('model/');
    await dropPaths(path);
    await expect.poll(() => page.textContent('#problems strong'), { message: name }).toBe(title);
    await expect.poll(() => page.locator('.offer-note').allTextContents()).toEqual(Array(3).fill(words));
    // It is in view, above the model.
    const top = () => page.$eval('#problems', (node) => node.getBoundingClientRect().top);
    await expect.poll(top).toBeGreaterThanOrEqual(0);
    expect(await page.textContent('#problems')).not.toMatch(/damaged/);
    await page.click('#problems button:has-text("Make int8 safetensors instead")');
    await expect.poll(() => page.isEnabled('#model-run')).toBe(true);
    expect(await page.textContent('#problems')).toBe('');
    expect(await page.inputValue('#model-target')).toBe('int8');
  }
});

it('says what a pointer of Git LFS is, in a folder and by itself', async () => {
  const path = folder('pointers', { 'tokenizer.json': pointer });
  for (const [dropped, name] of [
    [put('far.gguf', pointer), 'far.gguf'],
    [path, 'tokenizer.json'],
  ] as const) {
    page = await site.open('model/');
    await dropPaths(dropped);
    await expect.poll(() => page.textContent('#problems')).toContain(`${name} is a pointer of Git LFS`);
  }
});

it('opens a model that is dropped with a picture and another file', async () => {
  page = await site.open('model/');
  await drop(fileOf('photo.png', picture), digits(), fileOf('notes.bin', Uint8Array.of(1, 2, 3)));
  await expect.poll(() => page.textContent('#model-name')).toBe('digits.safetensors');
  expect(await page.textContent('#problems')).toBe('');
  const [download] = await Promise.all([page.waitForEvent('download'), page.click('#model-run')]);
  const expected = await quantizeModel(readFileSync(sample), { to: 'int4' });
  expect(download.suggestedFilename()).toMatch(/^digits.*\.safetensors$/);
  expect(readFileSync(await download.path()).length).toBeGreaterThan(0);
  expect(expected.bytes?.length).toBeGreaterThan(0);
});

it('never shows the figures of one tensor under the name of another', async () => {
  page = await site.open('model/');
  await drop(digits());
  const settled = () => expect.poll(() => page.textContent('#look-verdict')).toMatch(/^[AB] /);
  await settled();
  // Look at each frame between the click and the answer.
  const mixed = await page.evaluate(async () => {
    const text = (id: string) => document.getElementById(id)?.textContent ?? '';
    const content = document.getElementById('look-content') as HTMLElement;
    const before = { name: text('look-name'), figures: document.getElementById('look-figures')?.innerHTML };
    const other = before.name === 'fc2.weight' ? 'fc1.weight' : 'fc2.weight';
    (document.querySelector(`#model-rows [data-look="${other}"]`) as HTMLElement).click();
    let frames = 0;
    for (;;) {
      await new Promise((done) => requestAnimationFrame(done));
      if (text('look-name') !== other) continue;
      if (content.hidden) continue;
      if (document.getElementById('look-figures')?.innerHTML !== before.figures) return frames;
      frames++;
    }
  });
  expect(mixed).toBe(0);
});

it('draws the codes that the plan makes, with the figures of the table', async () => {
  page = await site.open('model/');
  await drop(fileOf('tiny.gguf', tinyLlama({ layers: 1, source: 'F32' })));
  await expect.poll(() => page.isVisible('#opened')).toBe(true);
  await page.click('#more summary');
  const name = 'blk.0.ffn_up.weight';
  await page.click(`#model-rows [data-look="${name}"]`);
  for (const to of ['TQ1_0', 'Q2_K']) {
    await page.selectOption('#model-target', to);
    await expect.poll(() => page.textContent('#look-after-name'), { timeout: 30_000 }).toBe(`After: ${to}, as planned`);
    await expect.poll(() => page.textContent('#worst-basis'), { timeout: 30_000 }).toBe('Measured on all numbers.');
    expect(await page.textContent('#look-a option:checked')).toBe(`${to}, as planned`);
    const inTable = await page.textContent(`#model-rows tr:has([data-look="${name}"]) [data-column="SQNR"]`);
    expect(await page.textContent('#look-figures tr:first-child td')).toBe(inTable?.replace('low ', ''));
  }
});

it('marks no layer in the table if none stands out, and says so', async () => {
  page = await site.open('model/');
  await drop(digits());
  await expect.poll(() => page.textContent('#worst-basis')).toBe('Measured on all numbers.');
  expect(await page.textContent('#worst-words')).toBe('No layer stands out: the median is 43.12 dB.');
  expect(await page.textContent('#model-rows')).not.toContain('low');
  // A layer of another type stands out, in both places.
  await page.click('#more summary');
  await page.selectOption('#model-target', 'bfloat16');
  await page.fill('#model-rules', 'fc1.weight=int4');
  await page.locator('#model-rules').blur();
  await expect.poll(() => page.textContent('#worst-words')).toMatch(/^fc1\.weight stands out: the median is 5\d/);
  await expect.poll(() => page.textContent('#model-rows')).toContain('low');
});
