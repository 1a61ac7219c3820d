// Makes the pictures that links to the site show, from the pages themselves.
//
//   node scripts/make_previews.mjs        writes web/demo/public/previews/*.png; needs a built site and Chromium

import { mkdirSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { chromium } from 'playwright';
import { launchOptions } from './chromium.mjs';
import { serve } from './serve.mjs';

const path = (/** @type {string} */ name) => fileURLToPath(new URL(`../${name}`, import.meta.url));

/** The pages, and what is done on each before the picture is taken. */
const pages = [
  {
    name: 'learn',
    address: '',
    async prepare(/** @type {import('playwright').Page} */ page) {
      await page.waitForFunction(() => /98/.test(document.querySelector('#width-right')?.textContent ?? ''));
      // Three bits: most digits are still read, and the others are lit.
      await page.locator('#width').fill('7');
      await page.waitForFunction(() => /95/.test(document.querySelector('#width-right')?.textContent ?? ''));
    },
  },
  {
    name: 'model',
    address: 'model/',
    async prepare(/** @type {import('playwright').Page} */ page) {
      await page.click('#sample');
      await page.waitForFunction(() => document.querySelectorAll('.offer-meter').length === 3);
      await page.waitForSelector('#look-figures tr');
    },
  },
  { name: 'numbers', address: 'numbers/', async prepare() {} },
  { name: 'speed', address: 'speed/', async prepare() {} },
  { name: 'guide', address: 'guide/', async prepare() {} },
];

const folder = path('web/demo/public/previews');
mkdirSync(folder, { recursive: true });
const server = await serve({ folder: path('build/demo'), port: 0 });
const browser = await chromium.launch(launchOptions);
try {
  for (const { name, address, prepare } of pages) {
    // 1200 × 630 is what most programs show.
    const context = await browser.newContext({ viewport: { width: 1200, height: 630 }, serviceWorkers: 'block' });
    const page = await context.newPage();
    await page.goto(server.url + address);
    await prepare(page);
    // Pictures that are drawn with the next frames, and measurements.
    await page.waitForTimeout(name === 'speed' ? 8000 : 800);
    await page.screenshot({ path: `${folder}/${name}.png` });
    await context.close();
  }
} finally {
  await browser.close();
  await server.close();
}
