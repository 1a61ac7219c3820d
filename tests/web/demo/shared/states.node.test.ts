// States of the pages that are not about one of them: results that come late, forced colors, zoom, what is missing.
import { expect, it } from 'vitest';
import { startSite } from '../site.js';

const site = startSite();

it.each([
  [360, 'light'],
  [1280, 'dark'],
] as const)('moves nothing when results come, %i pixels wide', async (width, colorScheme) => {
  for (const [name, place, words] of [
    ['', '#wall-basis', 'Computed in this browser'],
    ['numbers/', '#basis', 'all 4,096 numbers'],
    ['guide/bits-and-granularity/', '#fig-minus-zero-words', 'dB'],
  ] as const) {
    const page = await site.open(name, { viewport: { width, height: 800 }, colorScheme }, async (page) => {
      await page.addInitScript(() => {
        type Shift = PerformanceEntry & { value: number };
        const shifts: number[] = [];
        Object.assign(globalThis, { shifts });
        new PerformanceObserver((list) => {
          for (const { value } of list.getEntries() as Shift[]) shifts.push(value);
        }).observe({ type: 'layout-shift', buffered: true });
      });
    });
    await expect.poll(() => page.textContent(place), { timeout: 15_000 }).toContain(words);
    const moved = await page.evaluate(() =>
      (globalThis as unknown as { shifts: number[] }).shifts.reduce((sum, shift) => sum + shift, 0),
    );
    // Good is a tenth, by Core Web Vitals. This is what a sentence that takes a line more moves below it.
    expect([name, moved < 0.02 || moved]).toEqual([name, true]);
  }
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

it('says what to do once the worker of the page for numbers is lost', async () => {
  const page = await site.open('numbers/', {}, async (page) => {
    await page.addInitScript(() => {
      const { Worker } = globalThis;
      class Kept extends Worker {
        constructor(...given: ConstructorParameters<typeof Worker>) {
          super(...given);
          Object.assign(globalThis, {
            lose: () => this.dispatchEvent(new ErrorEvent('error', { message: 'it ended' })),
          });
        }
      }
      Object.assign(globalThis, { Worker: Kept });
    });
  });
  await expect.poll(() => page.textContent('#basis')).toContain('all 4,096 numbers');
  await page.evaluate(() => (globalThis as unknown as { lose(): void }).lose());
  await page.focus('#bits');
  await page.keyboard.press('ArrowRight');
  await expect.poll(() => page.textContent('#problems')).toContain('it ended. Load the page again.');
  expect(await page.isVisible('#problems button:has-text("Load again")')).toBe(true);
});
