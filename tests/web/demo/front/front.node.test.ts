// The front page, in a browser.
import { readFileSync } from 'node:fs';
import { brotliCompressSync } from 'node:zlib';
import type { Page } from 'playwright';
import { load } from 'scalepoint';
import { expect, it } from 'vitest';
import { drawTestDigits } from '../../../../scripts/make_sample.mjs';
import { Network, plainStorage, readSample, type Storage } from '../../../../web/demo/front/network.js';
import { contrastOf, path, sample, startSite } from '../site.js';

const site = startSite();
let page: Page;
/** Opens the page and waits until all test digits are read with every width. */
const open = async (...options: Parameters<typeof site.open> | []) => {
  page = await site.open('', options[1], options[2]);
};
const read = () => expect.poll(() => page.textContent('#width-right'), { timeout: 15_000 }).toMatch(/^98\.5/);
const slide = (id: string, value: number) =>
  page.evaluate(
    ([id, value]) => {
      const slider = document.getElementById(id as string) as HTMLInputElement;
      slider.value = String(value);
      slider.dispatchEvent(new Event('input', { bubbles: true }));
    },
    [id, value] as const,
  );

/** What the package makes of the network, in percent. */
async function accuracyOf(storage: Storage): Promise<number> {
  const core = await load();
  const file = readFileSync(sample);
  const tensors = readSample(file.buffer.slice(file.byteOffset, file.byteOffset + file.byteLength) as ArrayBuffer);
  const { images, labels, count } = drawTestDigits();
  const taken = new Network(core, tensors, storage).read(images, count);
  return (100 * taken.reduce((sum, digit, n) => sum + Number(digit === labels[n]), 0)) / count;
}

it('takes bits from a network with one slider, and tells accuracy and bytes', async () => {
  await open();
  await read();
  expect(await page.textContent('#width-bytes')).toBe('204\u00a0kB');
  for (const [stop, bits] of [
    [6, 4],
    [8, 2],
  ] as const) {
    await slide('width', stop);
    const expected = await accuracyOf(plainStorage(bits));
    await expect
      .poll(async () => Number.parseFloat((await page.textContent('#width-right')) ?? ''))
      .toBeCloseTo(expected, 1);
    expect(await page.textContent('#width-bits')).toBe(`${bits} bits`);
  }
  expect(await page.textContent('#wall-caption')).toMatch(/^213 of these 240 are read wrongly, and lit/);
  expect(await page.getAttribute('#width', 'aria-valuetext')).toBe('2 bits');
});

it('reads a digit that the visitor draws, at every width', async () => {
  await open();
  await read();
  const box = (await page.locator('#pad').boundingBox()) as { x: number; y: number; width: number; height: number };
  const at = (x: number, y: number) => [box.x + box.width * x, box.y + box.height * y] as const;
  await page.mouse.move(...at(0.3, 0.2));
  await page.mouse.down();
  await page.mouse.move(...at(0.7, 0.2), { steps: 4 });
  await page.mouse.move(...at(0.45, 0.85), { steps: 4 });
  await page.mouse.up();
  const readings = () => page.$$eval('#pad-readings .reading', (nodes) => nodes.map((node) => node.textContent));
  await expect.poll(async () => (await readings())[0]).toBe('7');
  expect(await readings()).toHaveLength(9);
  await page.click('#pad-another');
  await expect.poll(async () => (await readings())[0]).toBe('5');
});

it('has a handle in each of five figures, which the keyboard moves too', async () => {
  await open();
  await read();
  const words = (id: string) => page.textContent(`#fig-${id}-words`);
  const expected: [id: string, key: string, before: RegExp, after: RegExp][] = [
    ['round', 'Home', /becomes code 2/, /becomes code −4/],
    ['scale', 'Home', /0 % clipped|clipped/, /Scale 0\.05.*clipped/],
    ['outlier', 'End', /share 1\d levels/, /share 3 levels/],
    ['groups', 'End', /One scale for everything/, /A scale for each 8 neighbors/],
    ['codes', 'End', /Even levels/, /NF4/],
  ];
  for (const [id, key, before, after] of expected) {
    expect(await words(id)).toMatch(before);
    await page.focus(`#fig-${id} [role="slider"]`);
    await page.keyboard.press(key);
    await expect.poll(() => words(id)).toMatch(after);
    const handle = page.locator(`#fig-${id} [role="slider"]`);
    expect(await handle.getAttribute('aria-label')).toBeTruthy();
    expect((await handle.getAttribute('aria-valuetext'))?.length).toBeGreaterThan(3);
  }
  // Dragging moves the handle under the pointer.
  await page.locator('#fig-round').scrollIntoViewIfNeeded();
  const box = (await page.locator('#fig-round').boundingBox()) as { x: number; y: number; width: number };
  await page.mouse.move(box.x + box.width / 2, box.y + 44);
  await page.mouse.down();
  await page.mouse.up();
  await expect.poll(() => words('round')).toMatch(/^−0\.1/);
});

it('saves the network with finer scales and better ranges', async () => {
  await open();
  await read();
  await expect.poll(() => page.textContent('#lab-right')).toMatch(/^11\.4/);
  expect(await page.textContent('#lab-words')).toContain('broken');
  await page.check('input[name="granularity"][value="group"]', { force: true });
  await page.check('input[name="range"][value="mse"]', { force: true });
  const expected = await accuracyOf({ bits: 2, granularity: 'group', range: 'mse', codes: 'even' });
  await expect
    .poll(async () => Number.parseFloat((await page.textContent('#lab-right')) ?? ''))
    .toBeCloseTo(expected, 1);
  expect(await page.textContent('#lab-words')).toMatch(/84 points more/);
});

it('hands a model to the page for models, and comes back', async () => {
  await open();
  await page.click('#sample');
  await expect
    .poll(() => page.textContent('#model-name').catch(() => ''), { timeout: 15_000 })
    .toBe('digits.safetensors');
  expect(new URL(page.url()).pathname).toBe('/model/');
  expect(await page.title()).toContain('Make a model smaller');
  expect(await page.getAttribute('.nav a[aria-current]', 'href')).toBe(`${site.url}model/`);
  await expect.poll(() => page.textContent('#offers')).toContain('int4');
  await page.goBack();
  await page.goBack();
  await expect.poll(() => page.textContent('h1')).toContain('Fewer bits');
});

it('copies the install line', async () => {
  await open('', { permissions: ['clipboard-read', 'clipboard-write'] });
  await page.click('#copy-install');
  await expect.poll(() => page.evaluate(() => navigator.clipboard.readText())).toBe('npm i scalepoint');
});

it.each([
  ['wide', 1280, 'light'],
  ['narrow', 360, 'dark'],
] as const)('is accessible and does not scroll horizontally: %s', async (_what, width, colorScheme) => {
  await open('', { viewport: { width, height: 800 }, colorScheme });
  await read();
  expect(await page.evaluate(() => document.documentElement.scrollWidth)).toBe(width);
  expect(await site.axe()).toEqual([]);
  for (const selector of ['#choose', '#sample', '#copy-install']) {
    await page.hover(selector);
    await expect.poll(() => contrastOf(page, selector)).toBeGreaterThan(4.5);
  }
});

it('needs at most 150 kB of code and core, and asks nobody else', async () => {
  const seen: string[] = [];
  await open('', {}, async (page) => {
    page.on('request', (request) => seen.push(new URL(request.url()).pathname));
  });
  await read();
  const bytes = seen
    // The network itself is data: it comes after the page can be seen.
    .filter((name) => !name.startsWith('/samples/'))
    .map((name) => path(`build/demo${name.endsWith('/') ? `${name}index.html` : name}`))
    .reduce((sum, name) => sum + brotliCompressSync(readFileSync(name)).length, 0);
  expect(bytes).toBeLessThan(150_000);
});

it('keeps the main thread free while the slider moves', async () => {
  await open('', {}, async (page) => {
    await page.addInitScript(() => {
      const long: number[] = [];
      Object.assign(globalThis, { long });
      new PerformanceObserver((list) => {
        for (const { duration } of list.getEntries()) long.push(duration);
      }).observe({ type: 'longtask' });
    });
  });
  await read();
  await page.evaluate(() => void (globalThis as unknown as { long: number[] }).long.splice(0));
  for (const stop of [1, 3, 5, 7, 8, 6, 4, 2]) await slide('width', stop);
  await expect.poll(() => page.textContent('#width-bits')).toBe('8 bits');
  // A busy machine may stretch a task. What is looked for is work that takes hundreds of milliseconds.
  const long = await page.evaluate(() => (globalThis as unknown as { long: number[] }).long);
  expect(long.filter((duration) => duration > 200)).toEqual([]);
});
