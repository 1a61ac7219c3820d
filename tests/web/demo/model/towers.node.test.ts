// Models with a vision tower, on the page for models.
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, expect, it } from 'vitest';
import { planModel } from '../../../../web/src/model.js';
import { visionFolder } from '../../support/towers.js';
import { startSite } from '../site.js';

const site = startSite();
const folder = mkdtempSync(join(tmpdir(), 'scalepoint-towers-'));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

it('offers the file of the tower where llama.cpp has its types, and says so elsewhere', async () => {
  const contents = visionFolder();
  const files = Object.entries(contents).map(([name, content]) => {
    writeFileSync(join(folder, name), content);
    return join(folder, name);
  });
  const page = await site.open('model/');
  await page.setInputFiles('#file', files);
  await page.click('.settings > summary');
  await expect.poll(() => page.textContent('#model-command')).toContain('--to Q4_K_M');
  await expect.poll(() => page.textContent('main')).toMatch(/The vision tower is left out \(45 tensors\)/);
  expect(await page.$('#option-mmproj')).toBeNull();
  await page.selectOption('#model-target', 'F16');
  await page.click('#option-mmproj');
  // As on the page, without the name of a folder.
  const loose = Object.entries(contents).map(([name, content]) => new File([content], name));
  const { totals } = await planModel(loose, { to: 'F16', mmproj: true });
  await expect
    .poll(() => page.$eval('#model-size', (data) => Number((data as HTMLDataElement).value)))
    .toBe(totals.bytesAfter);
  await expect.poll(() => page.textContent('#model-command')).toContain('--to F16 --mmproj');
  await expect.poll(() => page.textContent('#model-status')).toContain('mmproj-model-F16.gguf');
  // Presets are for the language model.
  await expect
    .poll(() => page.textContent('#outputs-why'))
    .toContain('The outputs of a vision tower are not compared here.');
  const safe = await planModel(loose, { to: 'Q8_0' });
  await page.check('input[name="preset"][value="safe"]', { force: true });
  await expect.poll(() => page.textContent('#model-command')).toContain('--to Q8_0');
  expect(await page.textContent('#model-command')).not.toContain('--mmproj');
  await expect
    .poll(() => page.$eval('#model-size', (data) => Number((data as HTMLDataElement).value)))
    .toBe(safe.totals.bytesAfter);
});
