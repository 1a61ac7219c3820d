// The headline of the page about speed.
import { expect, it } from 'vitest';
import { figuresOf } from '../../../../web/demo/speed/state.js';
import { startSite } from '../site.js';

const site = startSite();
const turns = (...ratios: number[]) => ratios.map((ratio) => ({ ours: 2, plain: 2 * ratio }));

it('takes the median of the turns, and the ends of their middle half', () => {
  expect(figuresOf(turns(13, 12, 11.5, 12.5, 40))).toEqual({
    ratio: 12.5,
    low: 12,
    high: 13,
    ours: 2,
    plain: 25,
    isBusy: false,
  });
  // Between two turns, the quartile is between their ratios.
  expect(figuresOf(turns(10, 11, 12, 13))).toMatchObject({ ratio: 11.5, low: 10.75, high: 12.25 });
});

it('calls a machine busy if the middle half spans more than a fifth of the median', () => {
  expect(figuresOf(turns(9, 10, 11)).isBusy).toBe(false);
  expect(figuresOf(turns(7, 10, 13)).isBusy).toBe(true);
});

it('shows one headline with its spread, in the place that is kept for it, and measures it again', async () => {
  const page = await site.open('speed/');
  const top = () => page.$eval('.all', (node) => node.getBoundingClientRect().top);
  const before = await top();
  const spread = () => page.textContent('#race-spread');
  await expect.poll(spread).toMatch(/^In the middle half of 15 turns it was [\d.]+ to [\d.]+ times as fast\./);
  const isBusy = (await spread())?.includes('busy') ?? false;
  expect(await page.textContent('#race-title')).toMatch(isBusy ? /is ≈[\d.]+× as/ : /is [\d.]+× as/);
  expect(await page.locator('#race-bars li').count()).toBe(2);
  expect(await top()).toBe(before);
  expect(await site.axe('#race')).toEqual([]);
  await page.click('#again');
  expect(await spread()).toBe('Measuring again…');
});
