// Makes the pictures that links to the site show, from the pages themselves.
//
//   node scripts/make_previews.mjs        writes web/demo/public/previews/*.png; needs a built site and Chromium

import { mkdirSync, rmSync, writeFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { chromium } from 'playwright';
import UPNG from 'upng-js';
import { guidePages } from '../web/demo/guide/build.mjs';
import { launchOptions } from './chromium.mjs';
import { serve } from './serve.mjs';

const path = (/** @type {string} */ name) => fileURLToPath(new URL(`../${name}`, import.meta.url));

/** The pages, and what is done on each before the picture is taken. */
const pages = [
  {
    name: 'learn',
    address: '',
    async prepare(/** @type {import('playwright').Page} */ page) {
      await page.waitForFunction(() => /^Computed/.test(document.querySelector('#wall-basis')?.textContent ?? ''));
      // Three bits: most digits are still read, and the others are lit.
      await page.locator('#width').fill('7');
      await page.locator('#width').blur();
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
      await page.waitForSelector('#size:visible');
    },
  },
  { name: 'numbers', address: 'numbers/', async prepare() {} },
  {
    name: 'search',
    address: 'search/',
    async prepare(/** @type {import('playwright').Page} */ page) {
      await page.waitForSelector('#figures:not(.waiting)', { timeout: 60_000 });
      await page.waitForSelector('.cloud', { timeout: 60_000, state: 'attached' });
    },
  },
  { name: 'speed', address: 'speed/', async prepare() {} },
  ...guidePages().map(({ name }) => ({
    name: name === '' ? 'guide' : `guide-${name}`,
    address: `guide/${name === '' ? '' : `${name}/`}`,
    async prepare() {},
  })),
];

/** The size that most programs show. */
const size = { width: 1200, height: 630 };

/** The same picture in 256 colors: a third of the bytes that browsers write, and hardly a visible difference. @param {Buffer} png */
function inFewColors(png) {
  const picture = UPNG.decode(png);
  return Buffer.from(UPNG.encode(UPNG.toRGBA8(picture), picture.width, picture.height, 256));
}

const folder = path('web/demo/public/previews');
// Pages that are gone leave no pictures behind.
rmSync(folder, { recursive: true, force: true });
mkdirSync(folder, { recursive: true });
const server = await serve({ folder: path('build/demo'), port: 0 });
const browser = await chromium.launch(launchOptions);
try {
  for (const { name, address, prepare } of pages) {
    const context = await browser.newContext({ viewport: size, serviceWorkers: 'block' });
    const page = await context.newPage();
    await page.goto(server.url + address);
    await prepare(page);
    // Pictures that are drawn with the next frames, and measurements.
    await page.waitForTimeout(name === 'speed' ? 8000 : 800);
    writeFileSync(`${folder}/${name}.png`, inFewColors(await page.screenshot()));
    await context.close();
  }
} finally {
  await browser.close();
  await server.close();
}
