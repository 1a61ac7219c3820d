// The storyteller of the front page: its vocabulary, its forward pass, and its part of the page.
import { readFileSync } from 'node:fs';
import type { Page } from 'playwright';
import { load } from 'scalepoint';
import { evaluateModel } from 'scalepoint/model';
import { describe, expect, it } from 'vitest';
import { generator, story } from '../../../../scripts/site/storyteller/stories.mjs';
import { readLink } from '../../../../web/demo/front/link.js';
import { plainStorage, readSample } from '../../../../web/demo/front/network.js';
import { type StoryConfig, Storyteller } from '../../../../web/demo/front/story-model.js';
import { type TokenizerFile, Vocabulary } from '../../../../web/demo/front/story-words.js';
import { differing, wordsOf } from '../../../../web/demo/shared/continuations.js';
import { path, startSite } from '../site.js';

const folder = path('web/demo/public/samples/storyteller');
const textOf = (name: string) => readFileSync(`${folder}/${name}`, 'utf8');
const vocabulary = new Vocabulary(JSON.parse(textOf('tokenizer.json')) as TokenizerFile);

/** The storyteller with weights of some width. */
async function storyteller(bits: number) {
  const core = await load();
  const file = readFileSync(`${folder}/model.safetensors`);
  const tensors = readSample(
    file.buffer.slice(file.byteOffset, file.byteOffset + file.byteLength) as ArrayBuffer,
    core,
  );
  const config = JSON.parse(textOf('config.json')) as StoryConfig;
  return Storyteller.create(core, { config, tensors }, plainStorage(bits));
}

describe('the vocabulary', () => {
  it('restores every text, also one that it was not made for', () => {
    const random = generator(77);
    const texts = Array.from({ length: 50 }, () => story(random));
    for (const text of [...texts, '', ' ', '  two  blanks \n', "don't 12 Zürich ☃ 你好"]) {
      expect(vocabulary.decode(vocabulary.encode(text))).toBe(text);
    }
  });

  it('takes about a token for a word of a story', () => {
    const text = story(generator(5));
    expect(vocabulary.encode(text).length / wordsOf(text).length).toBeLessThan(1.6);
  });
});

describe('words that differ', () => {
  it('are those outside of the longest common sequence', () => {
    const marks = (text: string, other: string) => differing(wordsOf(text), wordsOf(other)).map(Number).join('');
    expect(marks('a b c d', 'a b c d')).toBe('0000');
    expect(marks('a x c d', 'a b c d')).toBe('0100');
    expect(marks('a c d', 'a b c d')).toBe('000');
    expect(marks('new a b', 'a b')).toBe('100');
    expect(marks('', 'a')).toBe('');
    expect(marks('a', '')).toBe('1');
  });
});

describe('the storyteller', () => {
  it('takes at most 1 MiB, and no story of the grammar exceeds its positions', () => {
    expect(readFileSync(`${folder}/model.safetensors`).length).toBeLessThanOrEqual(2 ** 20);
    const random = generator(3);
    for (let i = 0; i < 500; i++) expect(vocabulary.encode(story(random)).length).toBeLessThan(256);
  });

  it('writes whole stories that stay true to their people and animals', async () => {
    const teller = await storyteller(32);
    const begin = 'Mia was a girl who lived near the lake. She had a dog named Rex.';
    const tokens = [...teller.write(vocabulary.encode(begin))];
    const text = vocabulary.decode(tokens);
    expect(text).toMatch(/[.!"]$/);
    expect(text).toContain('Mia');
    expect(text).toContain('Rex');
    for (const name of ['Pip', 'Dot', 'Bruno', 'Coco', 'Pepper', 'Sunny', 'Moss', 'Biscuit'])
      expect(text).not.toContain(name);
    expect([...teller.write(vocabulary.encode(begin))]).toEqual(tokens);
    teller.dispose();
  });

  it('is a model that the package evaluates, and it expects stories', async () => {
    const random = generator(99);
    const text = Uint32Array.from(Array.from({ length: 30 }, () => [1, ...vocabulary.encode(story(random)), 2]).flat());
    const { perplexity } = await evaluateModel(folder, { text });
    // A story of 153 tokens holds some 36 nats of choices: at best exp(36 / 153) = 1.27. Chunks that begin within a story cost more.
    expect(perplexity.value).toBeLessThan(2);
  });
});

describe('its part of the page', () => {
  const site = startSite();
  let page: Page;
  const finish = () =>
    expect
      .poll(() => page.$$eval('.telling-verdict', (all) => all.filter((node) => node.textContent !== '').length))
      .toBe(5);

  it('is loaded when it comes into view, and not before', async () => {
    const asked: string[] = [];
    page = await site.open('', {}, async (made) => {
      made.on('request', (request) => asked.push(new URL(request.url()).pathname));
    });
    await expect.poll(() => page.textContent('#wall-basis')).toBe('Computed in this browser.');
    expect(asked.filter((name) => name.includes('storyteller'))).toEqual([]);
    await page.locator('#teller').scrollIntoViewIfNeeded();
    await finish();
    expect(asked.filter((name) => name.includes('storyteller')).length).toBe(3);
  });

  it('writes the story of the package with each width, and marks words that differ', async () => {
    page = await site.open('');
    await page.locator('#teller').scrollIntoViewIfNeeded();
    await finish();
    await page.uncheck('#teller-groups');
    await finish();
    const begin = await page.inputValue('#teller-begin');
    const teller = await storyteller(8);
    const expected = begin + vocabulary.decode([...teller.write(vocabulary.encode(begin))]);
    teller.dispose();
    const shown = await page.textContent('.telling[data-bits="8"] .telling-text');
    expect(shown).toBe(expected);
    const marked = await page.$$eval('.telling[data-bits="2"] mark', (all) => all.length);
    expect(marked).toBeGreaterThan(0);
    expect(await page.$$eval('.telling[data-bits="32"] mark', (all) => all.length)).toBe(0);
  });

  it('keeps beginning, bits and switches in the link', async () => {
    page = await site.open('#story=Tom%20had%20a%20cat.&story-bits=2&groups=no&search=yes');
    expect(await page.inputValue('#teller-begin')).toBe('Tom had a cat.');
    await page.locator('#teller').scrollIntoViewIfNeeded();
    await finish();
    expect(await page.getAttribute('#teller-bits', 'aria-valuetext')).toBe('2 bits');
    expect(await page.isChecked('#teller-groups')).toBe(false);
    await page.fill('#teller-begin', 'Anna met a fox.');
    await page.click('#teller button[type="submit"]');
    await finish();
    expect(readLink(new URL(page.url()).hash)).toMatchObject({
      begin: 'Anna met a fox.',
      tellBits: 2,
      groups: false,
      search: true,
    });
    expect(await page.textContent('.telling[data-bits="32"] .given')).toBe('Anna met a fox.');
  });

  it('says that a beginning is too long, and goes on with another', async () => {
    page = await site.open('');
    await page.locator('#teller').scrollIntoViewIfNeeded();
    await finish();
    await page.fill('#teller-begin', 'ẞ'.repeat(300));
    await page.click('#teller button[type="submit"]');
    await expect
      .poll(() => page.textContent('#teller-words'))
      .toMatch(/^This beginning takes \d+ tokens, and the storyteller reads 224: .* Shorten it/);
    await page.click('#teller-another');
    await finish();
  });

  it('says what is missing, and writes once it is there', async () => {
    page = await site.open('', {}, async (made) => {
      await made.route('**/storyteller/model.safetensors', (route) => route.abort(), { times: 1 });
    });
    site.complaints.length = 0;
    await page.locator('#teller').scrollIntoViewIfNeeded();
    await expect
      .poll(() => page.textContent('#teller-words'))
      .toContain('is not on this server, or the connection failed');
    site.complaints.length = 0;
    await page.click('#teller button[type="submit"]');
    await finish();
  });

  it('has no findings of axe, wide, narrow and dark', async () => {
    page = await site.open('');
    await page.locator('#teller').scrollIntoViewIfNeeded();
    await finish();
    for (const [width, colorScheme] of [
      [1280, 'light'],
      [360, 'dark'],
    ] as const) {
      await page.setViewportSize({ width, height: 900 });
      await page.emulateMedia({ colorScheme });
      expect(await site.axe('.teller-section')).toEqual([]);
      expect(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth)).toBe(true);
    }
  });
});
