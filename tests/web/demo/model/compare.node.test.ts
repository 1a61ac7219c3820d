// Two files that are compared on the page.
import { readFileSync } from 'node:fs';
import { expect, it } from 'vitest';
import { formatDecibels } from '../../../../web/demo/shared/format.js';
import { compareModels, quantizeModel } from '../../../../web/src/model.js';
import { sample, startSite } from '../site.js';

const site = startSite();
const fileOf = (name: string, content: Uint8Array) => ({ name, mimeType: '', buffer: Buffer.from(content) });

it('compares two files, as the package does', async () => {
  const original = new Uint8Array(readFileSync(sample));
  const small = await (await quantizeModel(sample, { to: 'int4', workers: 0 })).bytes();
  const { tensors, total } = await compareModels(original, small, { workers: 0 });
  const page = await site.open('model/');
  // The larger one is the original, wherever it stands.
  await page.setInputFiles('#file', [fileOf('small.safetensors', small), fileOf('digits.safetensors', original)]);
  await page.click('#compare-run');
  await expect
    .poll(() => page.textContent('#compare-words'))
    .toMatch(/^small\.safetensors is .+ to digits\.safetensors: /);
  expect(await page.textContent('#compare-words')).toContain(
    `${formatDecibels(total.sqnrDb)} over ${tensors.length} tensors.`,
  );
  const worst = [...tensors].sort((a, b) => a.error.sqnrDb - b.error.sqnrDb);
  expect(
    await page.$$eval('#compare-rows tr', (all) => all.map((row) => [...row.children].map((cell) => cell.textContent))),
  ).toEqual(worst.map(({ name, a, b, error }) => [name, a, b, formatDecibels(error.sqnrDb)]));
  expect(await site.axe('#compared')).toEqual([]);
  // A file of other tensors says so, and three files are no pair.
  const bytes = JSON.stringify({ x: { dtype: 'F32', shape: [1], data_offsets: [0, 4] } });
  const other = Buffer.concat([
    Buffer.from(new BigUint64Array([BigInt(bytes.length)]).buffer),
    Buffer.from(bytes),
    Buffer.alloc(4),
  ]);
  await page.setInputFiles('#file', [fileOf('other.safetensors', other), fileOf('digits.safetensors', original)]);
  await expect.poll(() => page.textContent('#compare-words')).toBe('');
  await page.click('#compare-run');
  await expect
    .poll(() => page.textContent('#compare-words'))
    .toBe('No tensor of one name, with one shape and with floats, is in both files.');
  const three = ['a', 'b', 'c'].map((name) => fileOf(`${name}.safetensors`, original));
  await page.setInputFiles('#file', three);
  await expect.poll(() => page.textContent('#several-title')).toBe('3 models');
  expect(await page.locator('#compare-run').count()).toBe(0);
});
