// The page for model files: while a result is saved, nothing else takes the place of its model.
import { readFileSync } from 'node:fs';
import type { Page } from 'playwright';
import { expect, it } from 'vitest';
import { planModel, quantizeModel } from '../../../../web/src/model.js';
import { safetensors, weights } from '../../support/models.js';
import { sample, startSite } from '../site.js';

const site = startSite();
let page: Page;

const digits = readFileSync(sample);
const other = Buffer.from(safetensors({ 'a.weight': weights('F32', [64, 64]), 'b.weight': weights('F32', [32, 64]) }));
const models = { 'digits.safetensors': digits, 'other.safetensors': other };
type Name = keyof typeof models;

const drop = (...names: Name[]) =>
  page.setInputFiles(
    '#file',
    names.map((name) => ({ name, mimeType: '', buffer: models[name] })),
  );

/** Opens the page with a dialog for saving whose files are written once `openGate` is called. */
async function openHeld(): Promise<void> {
  page = await site.open('model/', {}, async (page) => {
    await page.addInitScript(() => {
      let open = () => {};
      let gate = Promise.resolve();
      const { createWritable } = FileSystemFileHandle.prototype;
      FileSystemFileHandle.prototype.createWritable = async function (...args) {
        await gate;
        return createWritable.apply(this, args);
      };
      Object.assign(globalThis, {
        closeGate: () => {
          gate = new Promise((done) => {
            open = done;
          });
        },
        openGate: () => open(),
        showSaveFilePicker: async ({ suggestedName }: { suggestedName: string }) =>
          (await navigator.storage.getDirectory()).getFileHandle(suggestedName, { create: true }),
        showDirectoryPicker: () => navigator.storage.getDirectory(),
      });
    });
  });
}
const gate = (name: 'openGate' | 'closeGate') =>
  page.evaluate((name) => (globalThis as unknown as Record<string, () => void>)[name]?.(), name);

/** The bytes of a saved file. */
async function saved(name: string): Promise<Buffer> {
  const base64 = await page.evaluate(async (name) => {
    const root = await navigator.storage.getDirectory();
    const bytes = new Uint8Array(await (await (await root.getFileHandle(name)).getFile()).arrayBuffer());
    return btoa(Array.from(bytes, (byte) => String.fromCharCode(byte)).join(''));
  }, name);
  return Buffer.from(base64, 'base64');
}

/** Everything on the page that belongs to one model. */
const shown = () =>
  page.evaluate(() => ({
    name: document.getElementById('model-name')?.textContent,
    size: Number((document.getElementById('model-size') as HTMLDataElement).value),
    tensors: [...document.querySelectorAll('#model-rows .name')].map((node) => node.textContent),
    isOpen: !(document.getElementById('opened') as HTMLElement).hidden,
    hash: location.hash,
  }));

async function expectShown(name: Name, to: 'int4' | 'int8', hash: string): Promise<void> {
  const { totals, tensors } = await planModel(models[name], { to });
  const names = tensors.map((tensor) => tensor.name);
  await expect.poll(shown).toEqual({ name, size: totals.bytesAfter, tensors: names, isOpen: true, hash });
}

const problem = () => page.textContent('#problems');
const running = /^A save is runningdigits\.safetensors is being saved\. Wait until that is done, or cancel it\./;

it('holds the model on show, its choice and its address until a save has ended, whichever way leads away from it', async () => {
  await openHeld();
  await drop('other.safetensors');
  await expectShown('other.safetensors', 'int8', '');
  await drop('digits.safetensors');
  await expectShown('digits.safetensors', 'int8', '');
  await page.check('input[value="small"]', { force: true });
  await expectShown('digits.safetensors', 'int4', '#to=int4');
  await gate('closeGate');
  await page.click('#model-run');
  await page.waitForSelector('#model-cancel:visible');
  const ways: readonly [name: string, go: () => Promise<unknown>][] = [
    ['another model', () => drop('other.safetensors')],
    ['several models', () => drop('digits.safetensors', 'other.safetensors')],
    ['Close', () => page.click('#close')],
    ['Back', () => page.evaluate(() => history.back())],
    ['Back by two', () => page.evaluate(() => history.go(-2))],
  ];
  for (const [way, go] of ways) {
    await go();
    await expect.poll(problem, { message: way }).toMatch(running);
    await expectShown('digits.safetensors', 'int4', '#to=int4');
    expect(await page.isVisible('#model-cancel')).toBe(true);
  }
  expect(await page.isDisabled('input[value="balanced"]')).toBe(true);
  expect(await site.axe('#problems')).toEqual([]);
  await gate('openGate');
  await expect.poll(() => page.textContent('#saved-title')).toContain('Saved digits.int4.safetensors');
  await expect.poll(problem).toBe('');
  await expectShown('digits.safetensors', 'int4', '#to=int4');
  const expected = await quantizeModel(digits, { to: 'int4', workers: 0 });
  expect((await saved('digits.int4.safetensors')).equals(await expected.bytes())).toBe(true);
  // Afterwards each way is free again.
  await page.click('#close');
  await expect.poll(() => page.isVisible('.welcome')).toBe(true);
  await page.evaluate(() => history.back());
  await expectShown('digits.safetensors', 'int4', '#to=int4');
  await drop('other.safetensors');
  await expectShown('other.safetensors', 'int4', '#to=int4');
});

it('opens what was dropped during a save with one button, which cancels the save', async () => {
  await openHeld();
  await drop('digits.safetensors');
  await expectShown('digits.safetensors', 'int8', '');
  await gate('closeGate');
  await page.click('#model-run');
  await page.waitForSelector('#model-cancel:visible');
  await drop('other.safetensors');
  await page.click('#problems button:has-text("Cancel it and open other.safetensors")');
  await gate('openGate');
  await expectShown('other.safetensors', 'int8', '');
  expect(await problem()).toBe('');
  await page.click('#model-run');
  await expect.poll(() => page.textContent('#saved-title')).toContain('Saved other.int8.safetensors');
  const expected = await quantizeModel(other, { to: 'int8', workers: 0 });
  expect((await saved('other.int8.safetensors')).equals(await expected.bytes())).toBe(true);
});

it('holds the list of several models until all are saved, and shows it again on the way back', async () => {
  await openHeld();
  await drop('digits.safetensors', 'other.safetensors');
  const title = () => page.textContent('#several-title');
  await expect.poll(title).toBe('2 models');
  await expect.poll(() => page.textContent('#several-total')).toContain('become');
  await gate('closeGate');
  await page.click('#several-run');
  await page.waitForSelector('#several-cancel:visible');
  await drop('other.safetensors');
  await expect
    .poll(problem)
    .toMatch(/^A save is running2 models are being saved\. Wait until that is done, or cancel it\./);
  expect(await page.isVisible('#several-cancel')).toBe(true);
  await gate('openGate');
  await expect.poll(() => page.textContent('#several-status')).toBe('2 of 2 models saved.');
  await expect.poll(problem).toBe('');
  await page.click('#several-rows button:has-text("other")');
  await expectShown('other.safetensors', 'int8', '');
  expect(await page.isVisible('#several')).toBe(false);
  await page.evaluate(() => history.back());
  await expect.poll(() => page.isVisible('#several')).toBe(true);
  expect(await page.isVisible('#opened')).toBe(false);
  expect(await title()).toBe('2 models');
});
