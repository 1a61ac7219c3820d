// Results that are folders, on the page for models.
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, expect, it } from 'vitest';
import { planModel } from '../../../../web/src/model.js';
import { putSmol } from '../../support/smol.js';
import { startSite } from '../site.js';

const site = startSite();
const folder = mkdtempSync(join(tmpdir(), 'scalepoint-folders-'));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

it('writes a model for WebLLM into a new folder of the one that the visitor chooses', async () => {
  const page = await site.open('model/', {}, async (page) => {
    await page.addInitScript(() => {
      Object.assign(globalThis, {
        showDirectoryPicker: async () =>
          (await navigator.storage.getDirectory()).getDirectoryHandle('out', { create: true }),
      });
    });
  });
  await putSmol(join(folder, 'smol'));
  const files = ['model.safetensors', 'config.json', 'tokenizer.json'].map((name) => join(folder, 'smol', name));
  await page.setInputFiles('#file', files);
  await page.click('.settings > summary');
  await page.selectOption('#model-target', 'mlc-q4f16_1');
  const { totals, files: planned } = await planModel(join(folder, 'smol/model.safetensors'), { to: 'mlc-q4f16_1' });
  await expect
    .poll(() => page.$eval('#model-size', (data) => Number((data as HTMLDataElement).value)))
    .toBe(totals.bytesAfter);
  await expect.poll(() => page.textContent('#model-command')).toContain('--to mlc-q4f16_1');
  // The presets are those of the usual format.
  await expect.poll(() => page.textContent('#offers')).toContain('Q8_0');
  await page.click('#model-run');
  await expect.poll(() => page.textContent('#readers')).toContain('SmolLM2-360M-Instruct-q4f16_1-MLC');
  const written = () =>
    page.evaluate(async () => {
      const namesOf = async (folder: FileSystemDirectoryHandle) => {
        const names: string[] = [];
        for await (const name of (folder as unknown as { keys(): AsyncIterable<string> }).keys()) names.push(name);
        return names;
      };
      const out = await (await navigator.storage.getDirectory()).getDirectoryHandle('out');
      const folders = await namesOf(out);
      const inside = await Promise.all(folders.map(async (name) => namesOf(await out.getDirectoryHandle(name))));
      return { folders, files: inside.flat() };
    });
  await expect.poll(async () => (await written()).files).toContain('mlc-chat-config.json');
  expect((await written()).folders).toEqual(['model-q4f16_1-MLC']);
  const names = planned.map(({ name }) => name.slice(name.indexOf('/') + 1));
  for (const name of (await written()).files) expect(names).toContain(name.replace(/\.crswap$/, ''));
  await page.click('#model-cancel');
  await expect.poll(() => page.textContent('#model-status')).toContain('Cancelled. Nothing was saved.');
  expect((await written()).folders).toEqual([]);
  // Save all of it: 724 MB become 204.
  await page.click('#model-run');
  await expect.poll(() => page.textContent('#model-status')).toContain('Saved model-q4f16_1-MLC');
  expect((await written()).files.sort()).toEqual(names.sort());
});
