// Several models on the page: a row each, the same settings, one folder.
import { readFileSync } from 'node:fs';
import { expect, it } from 'vitest';
import { planModel, quantizeModel } from '../../../../web/src/model.js';
import { safetensors, weights } from '../../support/models.js';
import { tinyLlama } from '../../support/tiny-llama.js';
import { sample, startSite } from '../site.js';

const site = startSite();
const fileOf = (name: string, bytes: Uint8Array) => ({ name, mimeType: '', buffer: Buffer.from(bytes) });
const digits = readFileSync(sample);
const llama = Buffer.from(tinyLlama());

it('lists models that are dropped together, and saves all of them with one button', async () => {
  // A folder in place of the one that a visitor chooses.
  const page = await site.open('model/', {}, async (page) => {
    await page.addInitScript(() => {
      Object.assign(globalThis, {
        showDirectoryPicker: async () =>
          (await navigator.storage.getDirectory()).getDirectoryHandle('out', { create: true }),
      });
    });
  });
  await page.setInputFiles('#file', [fileOf('digits.safetensors', digits), fileOf('tiny.gguf', llama)]);
  await expect.poll(() => page.textContent('#several-title')).toBe('2 models');
  expect(await page.isVisible('.welcome')).toBe(false);
  const sizes = await Promise.all([planModel(digits, { to: 'int8' }), planModel(llama, { to: 'Q4_K_M' })]);
  const result = (row: number) => page.textContent(`#several-rows tr:nth-child(${row}) td:last-child`);
  await expect.poll(() => result(2)).toBe('tiny-Q4_K_M.gguf');
  expect(await page.textContent('#several-total')).toMatch(/become/);
  expect(await page.textContent('#several-rows tr:nth-child(1) td:nth-child(3)')).toBe(
    `${(sizes[0].totals.bytesAfter / 1000).toFixed(1)}\u00a0kB`,
  );
  expect(await site.axe('#several')).toEqual([]);
  await page.click('#several-run');
  await expect.poll(() => page.textContent('#several-status')).toBe('2 of 2 models saved.');
  const saved = await page.evaluate(async () => {
    const folder = await (await navigator.storage.getDirectory()).getDirectoryHandle('out');
    const found: Record<string, number[]> = {};
    for await (const [name, handle] of (
      folder as unknown as { entries(): AsyncIterable<[string, FileSystemFileHandle]> }
    ).entries()) {
      found[name] = [...new Uint8Array(await (await handle.getFile()).arrayBuffer())];
    }
    return found;
  });
  expect(Object.keys(saved).sort()).toEqual(['digits.config.json', 'digits.int8.safetensors', 'tiny-Q4_K_M.gguf']);
  const expected = [await quantizeModel(digits, { to: 'int8' }), await quantizeModel(llama, { to: 'Q4_K_M' })];
  expect(saved['digits.int8.safetensors']).toEqual([...((await expected[0]?.bytes()) ?? [])]);
  expect(saved['tiny-Q4_K_M.gguf']).toEqual([...((await expected[1]?.bytes()) ?? [])]);
  // A second time leaves the files alone.
  await page.click('#several-run');
  await expect.poll(() => result(2)).toBe('Saved tiny-Q4_K_M-2.gguf');
  await page.click('#several-rows tr:nth-child(2) button');
  await expect.poll(() => page.textContent('#model-name')).toBe('tiny.gguf');
  expect(await page.isVisible('#several')).toBe(false);
});

it('goes on with the others if one fails, and says why', async () => {
  // Without a dialog for folders, files are downloaded.
  const page = await site.open('model/', {}, async (page) => {
    await page.addInitScript(() => void Reflect.deleteProperty(globalThis, 'showDirectoryPicker'));
  });
  const bad = weights('F32', [64, 128]);
  (bad.data as Float32Array)[70] = Number.NaN;
  await page.setInputFiles('#file', [
    fileOf('bad.safetensors', safetensors({ 'bad.weight': bad })),
    fileOf('good.safetensors', safetensors({ 'good.weight': weights('F32', [64, 128]) })),
  ]);
  await page.selectOption('#several-target', 'small');
  const downloads: string[] = [];
  page.on('download', (download) => downloads.push(download.suggestedFilename()));
  await page.click('#several-run');
  await expect.poll(() => page.textContent('#several-status')).toBe('1 of 2 models saved.');
  expect(await page.textContent('#several-rows tr:nth-child(1) td:last-child')).toContain('holds NaN');
  await expect.poll(() => [...downloads].sort()).toEqual(['good.config.json', 'good.int4.safetensors']);
  await page.click('#several-close');
  await expect.poll(() => page.isVisible('.welcome')).toBe(true);
});
