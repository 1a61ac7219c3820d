// Ways to a model on the page besides a file that is dropped or chosen: samples, a folder, and the system.
import { cpSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import * as ort from 'onnxruntime-web/wasm';
import type { Page } from 'playwright';
import { load } from 'scalepoint';
import { expect, it } from 'vitest';
import { Network, plainStorage, readSample } from '../../../../web/demo/front/network.js';
import { classes, drawDigits, side, testSeed } from '../../../../web/demo/shared/digits.mjs';
import { onnxOfDigits } from '../../../../web/demo/shared/digits-onnx.js';
import { path, sample, startSite } from '../site.js';

const site = startSite();
let page: Page;
const folder = path('web/demo/public/samples/storyteller');
const name = () => page.textContent('#model-name').catch(() => '');
const facts = () => page.textContent('#model-facts').catch(() => '');

it('opens the language model of the site, with which it writes', async () => {
  page = await site.open('model/');
  await page.click('#sample-story');
  await page.waitForSelector('#write:visible');
  expect([await name(), await facts()]).toEqual(['storyteller', expect.stringMatching(/^safetensors · 38 tensors · /)]);
  expect(await page.isEnabled('#write-run')).toBe(true);
});

it('opens the digits as an ONNX model, which reads pictures as the network does', async () => {
  page = await site.open('model/');
  await page.click('#sample-picture');
  await page.waitForSelector('#outputs:visible');
  expect(await facts()).toMatch(/^ONNX · 8 tensors · /);
  await expect.poll(() => page.textContent('#outputs')).toMatch(/digit-\d\.png/);
  // A reload fetches the sample again, with its picture.
  await expect.poll(() => page.evaluate(() => typeof history.state.kept)).toBe('string');
  await page.reload();
  await expect.poll(() => page.textContent('#outputs').catch(() => '')).toMatch(/digit-\d\.png/);
  const file = new Uint8Array(readFileSync(sample)).buffer;
  const model = onnxOfDigits(file);
  ort.env.wasm.numThreads = 1;
  const session = await ort.InferenceSession.create(model);
  const { images, labels, count } = drawDigits(200, testSeed);
  const picture = new ort.Tensor('float32', images, [count, 1, side, side]);
  const scores = (await session.run({ picture })).scores!.data as Float32Array;
  const core = await load();
  const read = (await Network.create(core, readSample(file), plainStorage(32))).read(images, count);
  const best = Uint8Array.from({ length: count }, (_, n) => {
    const own = scores.subarray(n * classes, (n + 1) * classes);
    return own.indexOf(Math.max(...own));
  });
  expect(best).toEqual(read);
  expect(labels.filter((label, n) => label === best[n]).length).toBeGreaterThan(190);
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
  await page.evaluate(async (base64) => {
    const bytes = Uint8Array.from(atob(base64), (letter) => letter.charCodeAt(0));
    const folder = await navigator.storage.getDirectory();
    const handle = await folder.getFileHandle('mine.safetensors', { create: true });
    const stream = await handle.createWritable();
    await stream.write(bytes);
    await stream.close();
    const { launched } = globalThis as unknown as { launched(given: object): void };
    launched({ files: [handle] });
  }, readFileSync(sample).toString('base64'));
  await expect.poll(name).toBe('mine.safetensors');
  await page.waitForSelector('#opened:visible');
  const size = () => page.textContent('#model-size');
  await expect.poll(size).not.toBe('');
  const first = await size();
  await page.check('input[value="small"]', { force: true });
  await expect.poll(size).not.toBe(first);
  const small = await size();
  const kept = () => page.evaluate(() => typeof history.state.kept);
  await expect.poll(kept).toBe('string');

  // A reload keeps the model and its settings, and Back those of an earlier visit.
  const steps = () => page.evaluate(() => history.length);
  const before = await steps();
  await page.reload();
  await expect.poll(name).toBe('mine.safetensors');
  await expect.poll(size).toBe(small);
  expect([new URL(page.url()).hash, await steps()]).toEqual(['#to=int4', before]);
  await page.goBack();
  await expect.poll(size).not.toBe(small);
  expect(new URL(page.url()).hash).toBe('');
  expect(await name()).toBe('mine.safetensors');

  // Where the browser wants a permission again, one button asks for it.
  await page.context().addInitScript(() => {
    let state = 'prompt';
    Object.assign(FileSystemHandle.prototype, {
      queryPermission: async () => state,
      requestPermission: async () => {
        state = 'granted';
        return state;
      },
    });
  });
  await page.reload();
  await page.click('#problems button:has-text("Open mine.safetensors again")');
  await expect.poll(name).toBe('mine.safetensors');
  expect(await page.textContent('#problems')).toBe('');

  // It is in the list, until the visitor wants it to be forgotten.
  await page.click('#close');
  await page.waitForSelector('#recent:visible');
  expect(await site.axe('#recent')).toEqual([]);
  await page.click('#recent button:has-text("mine.safetensors")');
  await expect.poll(name).toBe('mine.safetensors');
  await expect.poll(kept).toBe('string');
  await page.click('#close');
  await page.click('#recent-forget');
  await expect.poll(() => page.isVisible('#recent')).toBe(false);
  await page.reload();
  await expect.poll(() => page.isVisible('#choose')).toBe(true);
  expect(await page.isVisible('#recent')).toBe(false);

  // A sample of the site is fetched again.
  await page.click('#sample');
  await page.waitForSelector('#opened:visible');
  await page.check('input[value="small"]', { force: true });
  await expect.poll(kept).toBe('string');
  await page.reload();
  await expect.poll(name).toBe('digits.safetensors');
  expect(new URL(page.url()).hash).toBe('#to=int4');
});

it('opens a dropped folder again after a reload, and says so if it is gone', async () => {
  const own = mkdtempSync(join(tmpdir(), 'scalepoint-kept-'));
  try {
    cpSync(folder, join(own, 'story'), { recursive: true });
    page = await site.open('model/');
    const session = await page.context().newCDPSession(page);
    const data = { items: [], files: [join(own, 'story')], dragOperationsMask: 1 };
    for (const type of ['dragEnter', 'dragOver', 'drop'] as const)
      await session.send('Input.dispatchDragEvent', { type, x: 200, y: 200, data });
    await expect.poll(facts).toMatch(/^safetensors · 38 tensors · /);
    await expect.poll(() => page.evaluate(() => typeof history.state.kept)).toBe('string');
    await page.reload();
    await expect.poll(facts).toMatch(/^safetensors · 38 tensors · /);
    expect(await page.$$eval('#model-files-list li', (all) => all.length)).toBe(4);
    rmSync(join(own, 'story'), { recursive: true });
    await page.reload();
    await expect.poll(() => page.textContent('#problems')).toContain('The browser could not read it');
  } finally {
    rmSync(own, { recursive: true, force: true });
  }
});
