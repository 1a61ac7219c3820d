// The page for model files: files that are dropped together, and the figures of a tensor.
import { readFileSync } from 'node:fs';
import type { Page } from 'playwright';
import { expect, it } from 'vitest';
import { quantizeModel } from '../../../../web/src/model.js';
import { tinyLlama } from '../../support/tiny-llama.js';
import { sample, startSite } from '../site.js';

const site = startSite();
let page: Page;
const fileOf = (name: string, bytes: Uint8Array) => ({ name, mimeType: '', buffer: Buffer.from(bytes) });
const drop = (...files: ReturnType<typeof fileOf>[]) => page.setInputFiles('#file', files);
const digits = () => fileOf('digits.safetensors', readFileSync(sample));
/** The start of a PNG picture. */
const picture = Uint8Array.of(0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a);

it('asks for one model if files of two formats are dropped together', async () => {
  page = await site.open('model/');
  const gguf = tinyLlama();
  await drop(fileOf('tiny.onnx', Uint8Array.of(8, 8)), fileOf('tiny.gguf', gguf));
  await expect.poll(() => page.textContent('#problems')).toContain('tiny.onnx and tiny.gguf are models of two formats');
  expect(await page.isVisible('#model-name')).toBe(false);
  await drop(fileOf('tiny.gguf', gguf));
  await expect.poll(() => page.textContent('#model-name')).toBe('tiny.gguf');
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
