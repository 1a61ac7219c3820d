// Ways to a model on the page besides a file that is dropped or chosen: samples, a folder, and the system.
import { readFileSync } from 'node:fs';
import type { Page } from 'playwright';
import { expect, it } from 'vitest';
import { path, sample, startSite } from '../site.js';

const site = startSite();
let page: Page;
const folder = path('web/demo/public/samples/storyteller');
const facts = () => page.textContent('#model-facts').catch(() => '');

it('opens the language model of the site, with which it writes', async () => {
  page = await site.open('model/');
  await page.click('#sample-story');
  await page.waitForSelector('#write:visible');
  expect(await facts()).toMatch(/^safetensors · 38 tensors · /);
  expect(await page.isEnabled('#write-run')).toBe(true);
});

it('opens a folder that is chosen', async () => {
  page = await site.open('model/');
  expect(await page.isVisible('#choose-folder')).toBe(true);
  await page.setInputFiles('#folder', folder);
  await page.waitForSelector('#write:visible');
  expect(await page.$$eval('#model-files-list li', (all) => all.length)).toBe(4);
});

it('can be installed, and then opens files of the system', async () => {
  page = await site.open('model/', {}, async (page) => {
    await page.addInitScript(() => {
      const setConsumer = (take: unknown) => Object.assign(globalThis, { launched: take });
      Object.defineProperty(globalThis, 'launchQueue', { value: { setConsumer } });
    });
  });
  const address = await page.$eval('link[rel="manifest"]', (link) => (link as HTMLLinkElement).href);
  const manifest = (await page.evaluate(async (address) => (await fetch(address)).json(), address)) as {
    readonly start_url: string;
    readonly icons: readonly { readonly src: string }[];
    readonly file_handlers: readonly { readonly action: string; readonly accept: object }[];
  };
  const [icon] = manifest.icons;
  const [handler] = manifest.file_handlers;
  for (const part of [manifest.start_url, icon?.src, handler?.action]) {
    const place = new URL(part ?? '', address).href;
    expect(place.startsWith(site.url)).toBe(true);
    expect(await page.evaluate(async (address) => (await fetch(address)).ok, place)).toBe(true);
  }
  expect(Object.values(handler?.accept ?? {})).toEqual([['.gguf', '.safetensors', '.onnx']]);
  // The system hands over handles.
  await page.evaluate((base64) => {
    const bytes = Uint8Array.from(atob(base64), (letter) => letter.charCodeAt(0));
    const file = new File([bytes], 'mine.safetensors');
    const { launched } = globalThis as unknown as { launched(given: object): void };
    launched({ files: [{ getFile: async () => file }] });
  }, readFileSync(sample).toString('base64'));
  await expect.poll(() => page.textContent('#model-name').catch(() => '')).toBe('mine.safetensors');
});
