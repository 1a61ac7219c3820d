// States of the pages that are not about one of them: results that come late, forced colors, zoom, what is missing.
import { chromium, type Page } from 'playwright';
import { expect, it } from 'vitest';
import { pageOptions } from '../../../../scripts/chromium.mjs';
import { sample, startSite } from '../site.js';

const site = startSite();

/** Has a page keep the shifts of its layout that do not follow an input. */
async function watchShifts(page: Page): Promise<void> {
  await page.addInitScript(() => {
    type Shift = PerformanceEntry & { value: number; hadRecentInput: boolean };
    const shifts: number[] = [];
    Object.assign(globalThis, { shifts });
    new PerformanceObserver((list) => {
      for (const { value, hadRecentInput } of list.getEntries() as Shift[]) if (!hadRecentInput) shifts.push(value);
    }).observe({ type: 'layout-shift', buffered: true });
  });
}

/** The sum of these shifts. Good is a tenth, by Core Web Vitals. */
const moved = (page: Page) =>
  page.evaluate(() => (globalThis as unknown as { shifts: number[] }).shifts.reduce((sum, shift) => sum + shift, 0));

/** Moves of the content below a sentence that takes one line more. */
const mostMoved = 0.02;

const windows = [
  [360, 'light'],
  [1280, 'dark'],
] as const;

it.each(windows)('moves nothing when results come, %i pixels wide', async (width, colorScheme) => {
  for (const [name, place, words] of [
    ['', '#wall-basis', 'Computed in this browser'],
    ['numbers/', '#basis', 'all 4,096 numbers'],
    ['guide/bits-and-granularity/', '#fig-minus-zero-words', 'dB'],
  ] as const) {
    const page = await site.open(name, { viewport: { width, height: 800 }, colorScheme }, watchShifts);
    await expect.poll(() => page.textContent(place)).toContain(words);
    expect([name, (await moved(page)) < mostMoved || (await moved(page))]).toEqual([name, true]);
  }
});

it.each(windows)('moves nothing while a model is measured and saved, %i pixels wide', async (width, colorScheme) => {
  const page = await site.open('model/', { viewport: { width, height: 800 }, colorScheme }, watchShifts);
  await page.setInputFiles('#file', sample);
  await expect.poll(() => page.textContent('#worst-basis')).toBe('Measured on all numbers.');
  await page.waitForSelector('#size:visible');
  const measured = await moved(page);
  await Promise.all([page.waitForEvent('download'), page.click('#model-run')]);
  await expect.poll(() => page.textContent('#saved-title')).toContain('Saved digits.int8.safetensors');
  expect([measured < mostMoved || measured, (await moved(page)) - measured]).toEqual([true, 0]);
});

it('is accessible with forced colors, and with text of twice the size', async () => {
  for (const name of ['', 'model/', 'numbers/', 'speed/', 'guide/layers-and-search/']) {
    const page = await site.open(name, { viewport: { width: 640, height: 450 }, forcedColors: 'active' });
    expect(await page.isVisible('h1')).toBe(true);
    expect([name, await page.evaluate(() => document.documentElement.scrollWidth)]).toEqual([name, 640]);
    expect([name, ...(await site.axe())]).toEqual([name]);
  }
});

it('says at a figure of the guide what to do if the core does not load', async () => {
  const page = await site.open('guide/', {}, async (page) => {
    await page.route('**/*.wasm', (route) => route.fulfill({ status: 404, body: 'not here' }));
  });
  const figure = page.locator('[data-figure="zero-point"]');
  await expect.poll(() => figure.textContent()).toContain('Check the connection');
  expect(await figure.locator('button:has-text("Load again")').isVisible()).toBe(true);
  await expect.poll(() => page.textContent('#fig-round-words')).toContain('becomes code 2');
  site.complaints = [];
});

it.each([
  ['', '#problems'],
  ['numbers/', '#problems'],
  ['model/', '#problems'],
  ['speed/', '#problem'],
  ['search/', '#problem'],
] as const)('says for visitors what to do if the core does not load, on /%s', async (name, place) => {
  const page = await site.open(name, {}, async (page) => {
    await page.route('**/*.wasm', (route) => route.fulfill({ status: 404, body: 'not here' }));
  });
  if (name === 'model/') await page.setInputFiles('#file', sample);
  await expect.poll(() => page.textContent(place)).toContain('Check the connection and load the page again.');
  // Nothing in the text is for those who build pages, and it is in view.
  expect(await page.textContent(place)).not.toMatch(/wasm|Vite|http/);
  expect(await page.$eval(place, (node) => node.getBoundingClientRect().top)).toBeGreaterThanOrEqual(0);
  // Workers may still ask for files that are not there.
  await page.close();
  site.complaints = [];
});

it('says that WebAssembly is switched off, without words of the engine', async () => {
  const own = await chromium.launch({
    ...pageOptions,
    executablePath: pageOptions.executablePath,
    args: [...pageOptions.args, '--js-flags=--jitless'],
  });
  try {
    const page = await own.newPage();
    for (const [name, place] of [
      ['', '#problems'],
      ['numbers/', '#problems'],
      ['model/', '#problems'],
      ['search/', '#problem'],
    ] as const) {
      await page.goto(site.url + name);
      if (name === 'model/') await page.setInputFiles('#file', sample);
      await expect.poll(() => page.textContent(place), { message: name }).toContain('WebAssembly is switched off');
      expect(await page.textContent(place)).not.toContain('not defined');
    }
  } finally {
    await own.close();
  }
});

/** Has a page keep its workers, so that `lose` can end all of them as a browser does that runs out of memory. */
async function keepWorkers(page: Page): Promise<void> {
  await page.addInitScript(() => {
    const { Worker } = globalThis;
    const workers: Worker[] = [];
    class Kept extends Worker {
      constructor(...given: ConstructorParameters<typeof Worker>) {
        super(...given);
        workers.push(this);
      }
    }
    const lose = (message: string) => {
      for (const worker of workers.splice(0)) {
        worker.terminate();
        worker.dispatchEvent(new ErrorEvent('error', { message }));
      }
    };
    Object.assign(globalThis, { Worker: Kept, lose });
  });
}

const lose = (page: Page, message = '') =>
  page.evaluate((message) => (globalThis as unknown as { lose(message: string): void }).lose(message), message);

it('says what to do once the worker of the page for numbers is lost', async () => {
  const page = await site.open('numbers/', {}, keepWorkers);
  await expect.poll(() => page.textContent('#basis')).toContain('all 4,096 numbers');
  await lose(page, 'it ended');
  await page.focus('#bits');
  await page.keyboard.press('ArrowRight');
  await expect.poll(() => page.textContent('#problems')).toContain('it ended. Load the page again.');
  expect(await page.isVisible('#problems button:has-text("Load again")')).toBe(true);
});

it('goes on after the workers of the page for models are lost', async () => {
  const page = await site.open('model/', {}, keepWorkers);
  await page.setInputFiles('#file', sample);
  await page.waitForSelector('#size:visible');
  await expect.poll(() => page.textContent('#look-verdict')).toMatch(/^B is/);
  await lose(page);
  await expect.poll(() => page.textContent('#look-problem')).toContain('close other tabs, then try again.');
  await expect.poll(() => page.textContent('#size-words')).toContain('close other tabs, then try again.');
  await page.click('#size-measure');
  await page.waitForSelector('#size:visible');
  await page.click('#model-rows [data-look="fc2.weight"]');
  await expect.poll(() => page.isVisible('#look-problem')).toBe(false);
  await expect.poll(() => page.textContent('#look-verdict')).toMatch(/^B is/);
});

it('says what to do when the disk is full, and when a part of the page for models is not there', async () => {
  const page = await site.open('model/', {}, async (page) => {
    await page.addInitScript(() => {
      // Nothing fits into a file of the page.
      FileSystemFileHandle.prototype.createWritable = async () => {
        throw new DOMException('The quota has been exceeded.', 'QuotaExceededError');
      };
    });
  });
  await page.setInputFiles('#file', sample);
  await page.click('#model-run');
  await expect.poll(() => page.textContent('#problems')).toContain('There is no room for the result');
  expect(await page.textContent('#problems')).toContain('Nothing was saved. Free some room');

  const without = await site.open('model/', {}, async (page) => {
    await page.route('**/assets/panels-*.js', (route) => route.fulfill({ status: 404, body: 'not here' }));
  });
  await without.setInputFiles('#file', sample);
  await expect.poll(() => without.textContent('#problems')).toContain('Check the connection, load the page again');
  expect(await without.isVisible('#problems button:has-text("Load again")')).toBe(true);
  site.complaints = site.complaints.filter((text) => !text.includes('404'));
});
