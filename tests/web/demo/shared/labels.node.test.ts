// Charts and tables in two families of fonts: no two labels lie on each other, none leaves the window, and columns are whole.
import type { Page } from 'playwright';
import { describe, expect, it } from 'vitest';
import { families, sample, startSite } from '../site.js';

const site = startSite();

/** Pairs of labels of one chart that lie on each other, and labels that leave the window, of the charts that are shown. */
function faultsOf(page: Page): Promise<string[]> {
  return page.evaluate(() => {
    const faults: string[] = [];
    for (const chart of document.querySelectorAll('svg:has(text)')) {
      const name = chart.id || chart.closest('[id]')?.id;
      const texts = [...chart.querySelectorAll('text')].map((node) => ({ node, box: node.getBoundingClientRect() }));
      const shown = texts.filter(({ box }) => box.width > 0);
      for (const [i, a] of shown.entries()) {
        const say = (b: string) => faults.push(`${name}: ${a.node.textContent} ${b}`);
        if (a.box.left < 0 || a.box.right > document.documentElement.clientWidth) say('leaves the window');
        for (const b of shown.slice(i + 1)) {
          const across = Math.min(a.box.right, b.box.right) - Math.max(a.box.left, b.box.left);
          const down = Math.min(a.box.bottom, b.box.bottom) - Math.max(a.box.top, b.box.top);
          if (across > 0.01 && down > 0.01)
            say(`on ${b.node.textContent} by ${across.toFixed(1)} x ${down.toFixed(1)}`);
        }
      }
    }
    return faults;
  });
}

/** Names of wide tables that are cut off. */
const cutTables = (page: Page) =>
  page.$$eval('.scroll:has(table)', (all) =>
    all.filter((box) => box.scrollWidth > box.clientWidth + 1).map((box) => (box as HTMLElement).dataset.name),
  );

/** Number of labels that the charts of a page show. */
const countOf = (page: Page) =>
  page.$$eval('svg text', (all) => all.filter((node) => node.getBoundingClientRect().width > 0).length);

/** The faults at two widths of the window, one after the other, after the charts have got their new size. @param least labels */
async function atWidths(page: Page, rested: () => Promise<unknown>, least = 4): Promise<string[]> {
  const faults: string[] = [];
  for (const width of [1280, 360]) {
    await page.setViewportSize({ width, height: 900 });
    // Observers of sizes run before the next frame is drawn.
    await page.evaluate(() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done))));
    await rested();
    expect(await countOf(page)).toBeGreaterThanOrEqual(least);
    faults.push(...(await faultsOf(page)).map((fault) => `${width}: ${fault}`));
  }
  return faults;
}

/** Settings of Your numbers whose levels are many or few, near or far apart, even or not, and in a corner of the range. */
const settings = [
  'distribution=uniform',
  'bits=2',
  'bits=5&distribution=heavy-tailed&cover=30',
  'bits=8&distribution=one-sided&scheme=asymmetric',
  'bits=16&distribution=heavy-tailed&cover=5',
  'codes=nf4&granularity=per-group&groupSize=64',
  'codes=float8',
  'codes=blocks&block=Q4_K',
];

describe.each(families)('with %s', (family) => {
  it('is drawn in that family', async () => {
    const page = await site.open('speed/', { family });
    const widths = await page.evaluate((family) => {
      const context = document.createElement('canvas').getContext('2d')!;
      return [`"${family}", monospace`, 'monospace'].map((font) => {
        context.font = `100px ${font}`;
        return context.measureText('Wide and thin').width;
      });
    }, family);
    expect(widths[0], `${family} is not installed`).not.toBe(widths[1]);
  });

  it('keeps labels of Your numbers apart', async () => {
    const page = await site.open('numbers/', { family }, async (page) => {
      await page.addInitScript(() => {
        const unfold = () => {
          // Open slow panels last.
          for (const details of document.querySelectorAll('details'))
            details.open = !details.matches('#twin, #closer-ladder, #closer-codes');
        };
        addEventListener('readystatechange', unfold, { capture: true, once: true });
      });
    });
    const rested = () => page.waitForSelector('#result[aria-busy="false"]', { state: 'attached' });
    await page.waitForSelector('#histogram .bars', { state: 'attached' });
    for (const hash of settings) {
      // The page takes the settings of a new address in an event.
      await page.evaluate(async (hash) => {
        const taken = new Promise((done) => addEventListener('popstate', done, { once: true }));
        location.hash = hash;
        await taken;
      }, hash);
      await rested();
      // Blocks have the labels of the axis alone.
      expect([hash, await atWidths(page, rested, hash.includes('blocks') ? 3 : 4)]).toEqual([hash, []]);
    }
    // The clipping chart has a label for each method.
    await page.evaluate(() => {
      location.hash = '';
      for (const details of document.querySelectorAll('details')) details.open = true;
    });
    await page.locator('#codes .series').first().waitFor();
    await expect.poll(() => page.locator('#clipping .marks text').count()).toBe(4);
    expect(await atWidths(page, rested)).toEqual([]);
    await page.setViewportSize({ width: 1280, height: 900 });
    await rested();
    expect(await cutTables(page)).toEqual([]);
  });

  it('keeps labels of the front page apart', async () => {
    const page = await site.open('', { family });
    await page.locator('#lab-chart .dot').first().waitFor({ state: 'attached' });
    expect(await atWidths(page, async () => {})).toEqual([]);
  });

  it('keeps labels of Your model apart', async () => {
    const page = await site.open('model/', { family });
    await page.setInputFiles('input[type=file]', sample);
    // The curve of sizes and the pictures of a tensor.
    for (const id of ['worst-basis', 'size', 'look-a-picture']) await page.waitForSelector(`#${id}:visible`);
    expect(await atWidths(page, async () => {})).toEqual([]);
  });
});
