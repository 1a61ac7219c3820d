// First steps of a visitor on each page of the site, in any browser. The Firefox run and a test in Chromium share it.

/** @typedef {import('playwright').Page} Page */

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
