// The slider of sizes on the page for model files, in a browser.
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Page } from 'playwright';
import { afterAll, describe, expect, it } from 'vitest';
import { bytesIn, decibelsOf, lossAt, sizeText, stopsOf, worthChoosing } from '../../../../web/demo/model/sizes.js';
import { fitTypes, measureTypes, quantizeModel } from '../../../../web/src/model.js';
import { safetensors, weights } from '../../support/models.js';
import { tinyLlama } from '../../support/tiny-llama.js';
import { contrastOf, sample, startSite } from '../site.js';

const site = startSite();
const folder = mkdtempSync(join(tmpdir(), 'scalepoint-sizes-'));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

let page: Page;
const gguf = tinyLlama();
const llama = { name: 'tiny.gguf', mimeType: '', buffer: Buffer.from(gguf) };
const text = (id: string) => page.textContent(`#${id}`);
/** Opens a file and waits for the slider. */
const openWith = async (file: string | typeof llama, address = 'model/', ...options: unknown[]) => {
  page = await site.open(address, ...(options as []));
  await page.setInputFiles('#file', file);
  await page.waitForSelector('#size:visible');
};
/** Moves the slider to the stop that is nearest to a share of its way, and waits for the types. */
async function slideTo(share: number): Promise<string> {
  const before = await text('model-command');
  await page.$eval(
    '#size',
    (node, share) => {
      const slider = node as HTMLInputElement;
      slider.value = String(Number(slider.min) + share * (Number(slider.max) - Number(slider.min)));
      slider.dispatchEvent(new Event('input', { bubbles: true }));
      slider.dispatchEvent(new Event('change', { bubbles: true }));
    },
    share,
  );
  await expect.poll(() => text('model-command')).not.toBe(before);
  await expect.poll(() => text('size-words')).toMatch(/mixture of this size|×/);
  return /--target-size (\S+)/.exec((await text('model-command')) ?? '')?.[1] ?? '';
}
async function save(): Promise<{ name: string; bytes: Buffer }> {
  const [download] = await Promise.all([page.waitForEvent('download'), page.click('#model-run')]);
  return { name: download.suggestedFilename(), bytes: readFileSync(await download.path()) };
}

describe('sizes', () => {
  it('are read as the command line reads them, and written in few digits', () => {
    for (const [words, bytes] of [
      ['60kB', 60_000],
      ['3.5GB', 3.5e9],
      ['1234', 1234],
      ['0.29MB', 290_000],
    ] as const) {
      expect(bytesIn(words)).toBe(bytes);
      expect(bytesIn(sizeText(bytes))).toBe(bytes);
    }
    expect(['', '0', 'kB', '-5kB', '1 GB', '5GiB', '1e3'].map(bytesIn)).toEqual(Array(7).fill(undefined));
    expect(sizeText(999_950)).toBe('1000kB');
  });

  it('stand on round numbers, none below the smallest result', () => {
    const curve = [
      { bytes: 30_161, error: 0.3 },
      { bytes: 139_000, error: 1e-6 },
    ];
    expect(stopsOf(curve)).toEqual({ low: 32_000, high: 140_000, step: 2000 });
    expect(lossAt(curve, 138_999)).toBe(0.3);
    expect(lossAt(curve, 139_000)).toBe(1e-6);
    expect(lossAt(curve, 30_160)).toBeUndefined();
    // One step is enough for a curve of one size.
    expect(stopsOf([{ bytes: 7, error: 1 }])).toEqual({ low: 7, high: 7, step: 1 });
  });

  it('end where next to nothing is lost', () => {
    const points = [1e-2, 1e-4, 1e-6, 1e-8, 0].map((error, i) => ({ bytes: i, error }));
    expect(worthChoosing(points, 1)).toEqual(points.slice(0, 3));
    expect(worthChoosing(points.slice(0, 2), 1)).toEqual(points.slice(0, 2));
    // A point without any loss has no place on the chart.
    expect(worthChoosing([points[0]!, points[4]!], 1)).toEqual([points[0]]);
    expect(decibelsOf(0, 3)).toBe(Number.POSITIVE_INFINITY);
  });
});

it('makes the model that the command line makes for a size, without a long task, and says what it is made of', async () => {
  page = await site.open('model/');
  await site.expectShortTasks(async () => {
    await page.goto(`${site.url}model/`);
    await page.setInputFiles('#file', llama);
    await page.waitForSelector('#size:visible');
    for (const share of [0.2, 0.9]) await slideTo(share);
  });
  expect(await page.$$eval('#size-curve .marks text', (nodes) => nodes.map((node) => node.textContent))).toEqual([
    'Small',
    'Balanced',
    'Safe',
    expect.stringMatching(/^[\d.]+\skB$/),
  ]);
  const size = await slideTo(0.4);
  expect(new URL(page.url()).hash).toBe(`#to=auto&target-size=${size}`);
  expect(await text('model-command')).toBe(`npx scalepoint quantize tiny.gguf --target-size ${size}`);
  expect(await page.isChecked('.offer input >> nth=0')).toBe(false);
  expect(await page.isChecked('.offer input >> nth=1')).toBe(false);
  const table = await measureTypes(gguf, { to: 'auto', workers: 0 });
  const fit = fitTypes(table, { targetSize: size });
  const choices = table.tensors.filter(({ types }) => types.length > 1).length;
  expect(await text('size-words')).toContain(
    `Predicted: ${Number(decibelsOf(fit.error, choices).toFixed(1))} dB, the mean of all weights.`,
  );
  expect(await text('size-words')).toContain(fit.error === fit.bound ? 'No mixture' : '×');
  const { name, bytes } = await save();
  expect(name).toBe(`tiny-${size}.gguf`);
  const expected = await quantizeModel(gguf, { to: 'auto', targetSize: size, workers: 0 });
  expect(Buffer.compare(bytes, await expected.bytes())).toBe(0);
  expect(bytes.length).toBeLessThanOrEqual(bytesIn(size) ?? 0);
});

it('keeps the size for this model in this browser, in links and in code, until it is reset', async () => {
  await openWith(sample, 'model/', { permissions: ['clipboard-read', 'clipboard-write'] });
  expect(await text('size-words')).toContain('Drag the slider');
  const size = await slideTo(0.7);
  await page.click('.settings > summary');
  expect(await page.$eval('#model-target', (select) => (select as HTMLSelectElement).selectedOptions[0]?.text)).toBe(
    `a mixture of ${size}`,
  );
  await page.click('#model-copy-code');
  await expect
    .poll(() => page.evaluate(() => navigator.clipboard.readText()))
    .toContain(`to: "auto",\n  targetSize: "${size}",\n  output: "digits.${size}.safetensors"`);
  // A kept tensor takes its room from the others.
  await page.click('#model-rows [data-keep="fc2.weight"]');
  await expect.poll(() => text('model-command')).toContain("--rule '^(fc2\\.weight)$=keep'");
  const rules = [{ match: /^(fc2\.weight)$/, keep: true as const }];
  const expected = await quantizeModel(sample, { to: 'auto', targetSize: size, rules, workers: 0 });
  expect(Buffer.compare((await save()).bytes, await expected.bytes())).toBe(0);

  await page.goto(`${site.url}guide/`);
  await page.goto(`${site.url}model/`);
  await page.setInputFiles('#file', sample);
  await expect
    .poll(() => text('model-command'))
    .toBe(`npx scalepoint quantize digits.safetensors --target-size ${size}`);
  await page.setInputFiles('#file', llama);
  await expect.poll(() => text('model-command')).toContain('tiny.gguf --to Q4_K_M');
  await page.goBack();
  await expect.poll(() => text('model-command')).toContain(`--target-size ${size}`);
  await page.click('.settings > summary').catch(() => {});
  await page.$eval('#model-reset', (button) => (button as HTMLButtonElement).click());
  await expect.poll(() => text('model-command')).toBe('npx scalepoint quantize digits.safetensors --to int8');
});

it('says which size is the smallest if that of a link is smaller', async () => {
  page = await site.open('model/#to=auto&target-size=1kB');
  await page.setInputFiles('#file', sample);
  await expect.poll(() => text('problems')).toMatch(/Size: expected at least \d+ bytes/);
  // The slider leads out of it.
  await page.waitForSelector('#size:visible');
  await page.focus('#size');
  await page.keyboard.press('End');
  await expect.poll(() => page.isVisible('#problems .problem')).toBe(false);
  await expect.poll(() => page.isEnabled('#model-run')).toBe(true);
});

it('asks before it measures a large model, shows how far it is, and stops', async () => {
  const file = join(folder, 'large.safetensors');
  writeFileSync(file, safetensors({ 'a.weight': weights('F32', [2048, 2304]), 'b.weight': weights('F32', [64, 64]) }));
  page = await site.open('model/');
  await page.setInputFiles('#file', file);
  await page.waitForSelector('#size-measure:visible');
  expect(await site.axe('#sizes')).toEqual([]);
  await page.focus('#size-measure');
  await page.keyboard.press('Enter');
  await expect.poll(() => page.evaluate(() => document.activeElement?.id)).toBe('size-cancel');
  await page.keyboard.press('Enter');
  await expect.poll(() => page.evaluate(() => document.activeElement?.id)).toBe('size-measure');
  expect(await page.isVisible('#size-progress')).toBe(false);
  await page.keyboard.press('Enter');
  await page.waitForSelector('#size:visible');
  expect(await page.evaluate(() => document.activeElement?.id)).toBe('size');
});

it('is accessible on a narrow window, in the dark', async () => {
  const width = 360;
  await openWith(llama, 'model/', { viewport: { width, height: 800 }, colorScheme: 'dark' });
  await slideTo(0.5);
  expect(await site.axe('#sizes')).toEqual([]);
  expect(await page.evaluate(() => document.documentElement.scrollWidth)).toBe(width);
  expect(await page.getAttribute('#size', 'aria-valuetext')).toMatch(/^[\d.]+\skB, predicted [\d.]+ dB$/);
  // The thumb is below the mark of the size.
  const [thumb, mark] = await page.evaluate(() => {
    const slider = document.getElementById('size') as HTMLInputElement;
    const { left, width } = slider.getBoundingClientRect();
    const share = (slider.valueAsNumber - Number(slider.min)) / (Number(slider.max) - Number(slider.min));
    const circle = document.querySelector('#size-curve circle.chosen')?.getBoundingClientRect() as DOMRect;
    return [left + 8 + share * (width - 16), circle.x + circle.width / 2];
  });
  expect(Math.abs(thumb! - mark!)).toBeLessThan(3);
  await page.hover('#size-slider');
  expect(await contrastOf(page, '#model-run')).toBeGreaterThan(4.5);
});
