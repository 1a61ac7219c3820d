// First steps of a visitor on each page of the site, in any browser. The Firefox run and a test in Chromium share it.

import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';

/** @typedef {import('playwright').Page} Page */
/** @typedef {import('../support/hub/hub.mjs').TestHub} TestHub */

/**
 * Waits until an element has a text that fits.
 * @param {Page} page
 * @param {string} id
 * @param {RegExp} words
 */
const says = (page, id, words) =>
  page.waitForFunction(
    ([id, source]) => new RegExp(source).test(document.getElementById(id)?.textContent ?? ''),
    /** @type {const} */ ([id, words.source]),
  );

/** @type {readonly { name: string, run: (page: Page, url: string) => Promise<void> }[]} */
export const flows = [
  {
    name: 'takes bits from the network, and reads a drawing',
    async run(page, url) {
      await page.goto(url);
      await says(page, 'wall-basis', /^Computed in this browser/);
      await page.focus('#width');
      await page.keyboard.press('End');
      await says(page, 'width-right', /^11\.4/);
      const box = await page.locator('#pad').boundingBox();
      if (box === null) throw new Error('there is no canvas to draw on');
      await page.mouse.move(box.x + 0.3 * box.width, box.y + 0.2 * box.height);
      await page.mouse.down();
      await page.mouse.move(box.x + 0.7 * box.width, box.y + 0.2 * box.height, { steps: 4 });
      await page.mouse.move(box.x + 0.45 * box.width, box.y + 0.85 * box.height, { steps: 4 });
      await page.mouse.up();
      await says(page, 'pad-readings', /^732/);
    },
  },
  {
    name: 'hands the sample to the page for models, measures it, saves it, and gives it another size',
    async run(page, url) {
      await page.goto(url);
      await page.click('#sample');
      await says(page, 'worst-basis', /^Measured on all numbers/);
      await page.click('#model-run');
      await says(page, 'saved', /^\s*Saved digits\.int8\.safetensors/);
      await page.waitForSelector('#size:visible');
      await page.focus('#size');
      await page.keyboard.press('Home');
      await says(page, 'model-command', /--target-size 32kB$/);
      await says(page, 'size-words', /^Predicted: 2\d/);
    },
  },
  {
    name: 'reads numbers, and changes their bits',
    async run(page, url) {
      await page.goto(`${url}numbers/`);
      await says(page, 'basis', /^all 4,096 numbers/);
      await page.check('input[name="source"][value="text"]', { force: true });
      await page.fill('#text', '1 2 3 4');
      await says(page, 'headline', /^What 4 bits do to 4 numbers/);
      await page.focus('#bits');
      await page.keyboard.press('ArrowRight');
      await says(page, 'headline', /^What 5 bits do to 4 numbers/);
    },
  },
  {
    name: 'measures the headline, and shows a page of the guide',
    async run(page, url) {
      await page.goto(`${url}speed/`);
      await says(page, 'ratio', /^≈?\d/);
      await page.click('.nav a[href$="guide/"]');
      await page.waitForFunction(() => /quantization/i.test(document.querySelector('h1')?.textContent ?? ''));
    },
  },
];

const sample = fileURLToPath(new URL('../../../web/demo/public/samples/digits.safetensors', import.meta.url));
const token = 'hf_visitor0123456789';

/** The hub of the flows behind. @type {import('../support/hub/hub.mjs').HubOptions} */
export const hubOfFlows = {
  repositories: { 'acme/digits': { files: { 'model.safetensors': readFileSync(sample) }, gated: 'auto' } },
  tokens: { [token]: { user: 'me', gated: ['acme/digits'] } },
};

/** Flows on a site with the addresses of a hub. @type {readonly { name: string, run: (page: Page, url: string, hub: TestHub) => Promise<void> }[]} */
export const hubFlows = [
  {
    name: 'opens a gated model of the hub by its name, saves it, and pushes it',
    async run(page, url, hub) {
      await page.goto(`${url}model/`);
      await page.fill('#hub-name', 'acme/digits');
      await page.click('#hub summary');
      await page.fill('#hub-token', token);
      await page.click('#hub-open');
      await says(page, 'model-name', /^digits\.safetensors/);
      await page.click('#model-run');
      await says(page, 'saved', /^\s*Saved digits\.int8\.safetensors/);
      await page.click('#push-open');
      await says(page, 'push-account', /^Pushes as me/);
      await page.click('#push-run');
      await says(page, 'push-status', /^Pushed \d files to .*me\/digits-int8 \(private\)/);
      const pushed = hub.repositories.get('me/digits-int8')?.bytes('model.safetensors');
      const { quantizeModel } = await import('../../../dist/model.js');
      const made = await (await quantizeModel(sample, { to: 'int8', workers: 0 })).bytes();
      if (pushed === undefined || Buffer.compare(pushed, made) !== 0) throw new Error('the hub has other bytes');
      const leaked = hub.requests.find(
        ({ origin, headers }) => origin !== 'hub' && JSON.stringify(headers).includes(token),
      );
      if (leaked !== undefined) throw new Error(`the token went to ${leaked.origin} ${leaked.path}`);
    },
  },
];
