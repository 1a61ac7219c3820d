// The page *Search*: figures of a file against the package itself, the made vectors, and the page's own ways.
import type { Page } from 'playwright';
import { load } from 'scalepoint';
import { describe, expect, it } from 'vitest';
import { defaults, linkOf, readLink, type Settings } from '../../../../web/demo/search/settings.js';
import { Random } from '../../support/support.js';
import { brotliBytes, startSite } from '../site.js';

const site = startSite();

const count = 600;
const dimension = 24;
const asked = 64;
/** Vectors in few clusters, with the queries at their end. */
function made(): Float32Array {
  const random = new Random(50);
  const centers = random.bell(12 * dimension);
  const noise = random.bell((count + asked) * dimension);
  return noise.map((x, i) => {
    const row = Math.floor(i / dimension);
    return centers[(row % 12) * dimension + (i % dimension)]! + x;
  });
}
const rowsOf = (x: Float32Array) =>
  Array.from({ length: x.length / dimension }, (_, i) => [...x.subarray(i * dimension, (i + 1) * dimension)]);
const linesFile = (lines: readonly string[], name = 'notes.jsonl') => ({
  name,
  mimeType: 'application/jsonl',
  buffer: Buffer.from(lines.join('\n')),
});

/** Waits for the figures of the present settings. */
const settled = (page: Page) =>
  page.waitForFunction(
    () =>
      document.querySelector('#figures:not(.waiting)') !== null &&
      document.querySelector('#picture:not(.waiting) .cloud') !== null,
    undefined,
  );
const percent = (share: number) => (share === 1 ? '100 %' : `${(100 * share).toFixed(1)} %`);

describe('the page Search', () => {
  it('shows the recall that the package has, for lines of JSON', async () => {
    const x = made();
    const page = await site.open('search/');
    const lines = rowsOf(x).map((row, i) => JSON.stringify(i % 2 === 0 ? row : { id: i, embedding: row }));
    await page.setInputFiles('#file', linesFile(lines));
    await settled(page);
    expect(await page.textContent('h1')).toBe('Search 600 vectors in this tab');
    expect(await page.textContent('#data-words')).toContain('notes.jsonl: 600 vectors of 24 elements, 64 queries.');
    const sp = await load();
    const [vectors, queries] = [x.slice(0, count * dimension), x.slice(count * dimension)];
    for (const [bits, at] of [
      [1, 0],
      [4, 2],
    ] as const) {
      await page.fill('#bits', String(at));
      for (const metric of ['cosine', 'euclidean'] as const) {
        await page.check(`[value="${metric}"]`, { force: true });
        using index = sp.index(vectors, { shape: [count, dimension], bits, metric, rerank: { source: 'int8' } });
        for (const [place, factor] of [
          [0, false],
          [2, 4],
        ] as const) {
          await page.fill('#factor', String(place));
          await settled(page);
          const recall = index.recall(vectors, queries, { k: 10, rerank: factor });
          const shown = () => page.textContent('#recall');
          await expect.poll(shown, { message: `${bits} ${metric} ${factor}` }).toBe(percent(recall));
        }
      }
    }
    // All settings arrive while the page rests.
    await expect.poll(() => page.textContent('#recalls')).not.toContain('·');
    expect(await page.getAttribute('#result', 'aria-busy')).toBe('false');
    // Copies in float16 take twice as many bytes as those in 8 bits.
    const memory = async () => Number.parseFloat((await page.textContent('#memory')) ?? '');
    const small = await memory();
    await page.check('[value="float16"]', { force: true });
    await settled(page);
    using exact = sp.index(vectors, {
      shape: [count, dimension],
      bits: 4,
      metric: 'euclidean',
      rerank: { source: 'float16' },
    });
    const recall = exact.recall(vectors, queries, { k: 10, rerank: 4 });
    await expect.poll(() => page.textContent('#recall')).toBe(percent(recall));
    expect(await memory()).toBeGreaterThan(small);
    expect(await site.axe()).toEqual([]);
  });

  it('holds its settings in the address, and works by keyboard', async () => {
    const page = await site.open('search/#bits=4&rerank=0&metric=dot');
    await page.setInputFiles('#file', linesFile(rowsOf(made()).map((row) => JSON.stringify(row))));
    await settled(page);
    expect(await page.textContent('#bits-value')).toBe('4 bits');
    expect(await page.textContent('#factor-value')).toBe('none');
    expect(await page.isChecked('[value="dot"]')).toBe(true);
    await page.focus('#factor');
    await page.keyboard.press('End');
    await page.keyboard.press('ArrowLeft');
    await expect.poll(() => new URL(page.url()).hash).toBe('#bits=4&rerank=16&metric=dot');
    await expect.poll(() => page.getAttribute('#factor', 'aria-valuetext')).toBe('the best 160');
    await expect
      .poll(() => page.textContent('#picture-words'))
      .toMatch(/^Query 1 of 64: \d+ of its 10 true neighbors are among the 160 best by codes/);
    await page.click('#next');
    await expect.poll(() => page.textContent('#picture-words')).toMatch(/^Query 2 of 64/);
    await page.click('#reset');
    await expect.poll(() => page.textContent('#bits-value')).toBe('1 bit');
    expect(new URL(page.url()).hash).toBe('');
  });

  it('says what is wrong with a file, and goes on', async () => {
    const page = await site.open('search/');
    for (const [lines, words] of [
      [['[1, 2]', '[1, 2'], 'Line 2 is not JSON'],
      [['[1, 2]', '[1, 2, 3]'], 'Line 2 has 3 numbers, and the first one 2'],
      [['[1, "a"]'], 'element 2 is not a number'],
      [['{"id": 1}'], 'holds no array of numbers'],
      [['[1, 2]', '[3, 4]'], 'needs 50 of 2 at least'],
    ] as const) {
      await page.setInputFiles('#file', linesFile(lines));
      await expect.poll(() => page.textContent('#problem-text')).toContain(words);
      expect(await page.isVisible('#problem')).toBe(true);
    }
    const pointer = Buffer.from(`version https://git-lfs.github.com/spec/v1\noid sha256:${'0'.repeat(64)}\nsize 9\n`);
    for (const [name, buffer, words] of [
      ['photo.jpg', Buffer.of(0xff, 0xd8, 0xff, 0xe0), 'photo.jpg is a JPEG picture. This page reads a matrix'],
      ['notes.txt', Buffer.from('some words'), 'notes.txt holds no vectors. This page reads a matrix'],
      ['far.npy', pointer, 'far.npy is a pointer of Git LFS'],
    ] as const) {
      await page.setInputFiles('#file', { name, mimeType: '', buffer });
      await expect.poll(() => page.textContent('#problem-text')).toContain(words);
    }
    expect(await page.isEnabled('#next')).toBe(false);
    expect(await site.axe('#result')).toEqual([]);
    await page.setInputFiles('#file', linesFile(rowsOf(made()).map((row) => JSON.stringify(row))));
    await settled(page);
    expect(await page.isVisible('#problem')).toBe(false);
  });

  it('reads .npy, fits a narrow window, and loads little', async () => {
    const seen = new Set<string>();
    const page = await site.open('search/', { viewport: { width: 360, height: 780 } }, async (page) => {
      page.on('request', (request) => seen.add(new URL(request.url()).pathname));
    });
    await expect.poll(() => [...seen].filter((name) => name.endsWith('.wasm'))).toHaveLength(1);
    // The core with all codecs has a budget of its own (scripts/check_size.mjs).
    const own = [...seen].filter((name) => !name.endsWith('.wasm'));
    expect(own.reduce((sum, name) => sum + brotliBytes(name), 0)).toBeLessThan(80_000);
    const x = made();
    const header = `{'descr': '<f4', 'fortran_order': False, 'shape': (${count + asked}, ${dimension}), }`.padEnd(117);
    const head = Buffer.concat([
      Buffer.from([0x93, ...Buffer.from('NUMPY'), 1, 0, 118, 0]),
      Buffer.from(`${header}\n`),
    ]);
    const buffer = Buffer.concat([head, Buffer.from(x.buffer)]);
    await page.setInputFiles('#file', { name: 'x.npy', mimeType: 'application/octet-stream', buffer });
    await settled(page);
    expect(await page.textContent('#data-words')).toContain('x.npy: 600 vectors of 24 elements');
    const width = await page.evaluate(() => document.documentElement.scrollWidth);
    expect(width).toBeLessThanOrEqual(360);
    // The result stays in view beside each control.
    for (const id of ['bits', 'factor', 'part']) {
      await page.$eval(`#${id}`, (slider) => slider.scrollIntoView({ block: 'center' }));
      const { bottom = -1, top = -1 } = await page.$eval('#recall', (node) => node.getBoundingClientRect().toJSON());
      expect([id, top >= 0 && bottom <= 390]).toEqual([id, true]);
    }
  });

  it('searches in one worker, and shows only results of the present settings', async () => {
    const page = await site.open('search/', {}, async (page) => {
      await page.addInitScript(() => {
        const held: (() => void)[] = [];
        const replies = { held, areHeld: false };
        Object.assign(globalThis, { replies });
        /** Keeps replies back while a test asks for it. */
        class HoldingWorker extends Worker {
          override set onmessage(hear: (event: MessageEvent) => void) {
            this.addEventListener('message', (event) => {
              if (replies.areHeld) held.push(() => hear(event));
              else hear(event);
            });
          }
        }
        globalThis.Worker = HoldingWorker;
      });
    });
    const hold = (areHeld: boolean) =>
      page.evaluate((areHeld) => {
        const { replies } = globalThis as unknown as { replies: { held: (() => void)[]; areHeld: boolean } };
        replies.areHeld = areHeld;
        return replies.held.splice(0).map((hear) => hear()).length;
      }, areHeld);
    await page.setInputFiles('#file', linesFile(rowsOf(made()).map((row) => JSON.stringify(row))));
    await settled(page);
    await expect.poll(() => page.textContent('#recalls')).not.toContain('·');
    // A worker that was ended is listed until the browser says so.
    await expect.poll(() => page.workers().length).toBe(1);
    const recall = await page.textContent('#recall');

    // The page follows its sliders while the worker has not answered.
    await hold(true);
    await page.fill('#bits', '2');
    await page.fill('#part', '0');
    await expect.poll(() => page.textContent('#bits-value')).toBe('4 bits');
    await expect.poll(() => page.getAttribute('#result', 'aria-busy')).toBe('true');
    expect(await page.getAttribute('#figures', 'class')).toContain('waiting');
    // The dots stay as they are while only the factor moves.
    await page.evaluate(() => document.querySelector('.cloud')?.setAttribute('data-kept', ''));
    await page.fill('#factor', '2');
    await expect.poll(() => page.textContent('.cut-words')).toBe('the 40 best are scored again');
    expect(await page.locator('.cloud[data-kept]').count()).toBe(1);
    await page.fill('#factor', '5');
    // Late results of earlier settings do not change the page.
    await page.fill('#bits', '0');
    await page.fill('#part', '2');
    await settled(page);
    await expect
      .poll(() => page.evaluate(() => (globalThis as unknown as { replies: { held: object[] } }).replies.held.length))
      .toBeGreaterThan(1);
    expect(await hold(false)).toBeGreaterThan(1);
    await settled(page);
    expect(await page.textContent('#recall')).toBe(recall);
    await page.fill('#bits', '2');
    await page.fill('#part', '0');
    await settled(page);
    expect(await page.textContent('#recall')).not.toBe(recall);
    // Another file gets a new worker, and the old one ends.
    await page.setInputFiles(
      '#file',
      linesFile(
        rowsOf(made()).map((row) => JSON.stringify(row)),
        'more.jsonl',
      ),
    );
    await settled(page);
    // A worker that was ended is listed until the browser says so.
    await expect.poll(() => page.workers().length).toBe(1);
  });

  it('makes its vectors, and stays free while they are searched and sliders move', async () => {
    const page = await site.open('search/');
    await site.expectShortTasks(async () => {
      for (let i = 0; i < 24; i++) {
        await page.fill('#bits', String(i % 4));
        await page.fill('#factor', String(i % 6));
      }
    });
    await page.fill('#bits', '2');
    await settled(page);
    expect(await page.textContent('h1')).toBe('Search 100,000 vectors in this tab');
    expect(await page.textContent('#time')).toMatch(/ms$/);
    // Codes of 4 bits without copies of the vectors take an eighth of float32, and 8 bytes for each vector.
    await page.fill('#factor', '0');
    await settled(page);
    expect(await page.textContent('#memory-note')).toMatch(/^as float32: 102\sMB$/);
    await expect.poll(async () => Number.parseFloat((await page.textContent('#memory')) ?? '')).toBeLessThan(22);
    await expect.poll(async () => Number.parseFloat((await page.textContent('#recall')) ?? '')).toBeGreaterThan(80);
  });
});

describe('the address of settings', () => {
  it('gives them back, and ignores the rest', () => {
    const settings: Settings = { bits: 8, factor: 32, metric: 'euclidean', rows: 'float16', part: 4, query: 6 };
    expect(readLink(linkOf(settings))).toEqual(settings);
    expect(readLink(linkOf(defaults))).toEqual(defaults);
    expect(readLink('#bits=3&rerank=x&metric=&part=0&query=-1')).toEqual(defaults);
  });
});
