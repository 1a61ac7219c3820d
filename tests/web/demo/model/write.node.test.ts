// The panel *Write with both*, in a browser.
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { Tokenizer } from '@huggingface/tokenizers';
import type { Page } from 'playwright';
import { describe, expect, it } from 'vitest';
import { resultText } from '../../../../web/demo/model/write.js';
import { quantizeModel } from '../../../../web/src/model.js';
import { withReader } from '../../../../web/src/tooling.js';
import { path, startSite } from '../site.js';

const site = startSite();
const folder = path('web/demo/public/samples/storyteller');
const storyFiles = ['model.safetensors', 'config.json', 'tokenizer.json', 'tokenizer_config.json'].map((name) =>
  join(folder, name),
);
const { tokenizer, config } = {
  tokenizer: JSON.parse(readFileSync(storyFiles[2] as string, 'utf8')) as object,
  config: JSON.parse(readFileSync(storyFiles[3] as string, 'utf8')) as object,
};
const words = new Tokenizer(tokenizer, config);

let page: Page;
const text = (selector: string) => page.textContent(selector);
const texts = () => page.$$eval('#write-texts p:nth-of-type(1)', (all) => all.map(({ textContent }) => textContent));

async function openWith(files: Parameters<Page['setInputFiles']>[1], to = 'Q4_0'): Promise<void> {
  page = await site.open(`model/#to=${to}`);
  await page.setInputFiles('#file', files);
  await page.waitForSelector('#write:visible');
}

async function write(begin: string, length = 40): Promise<void> {
  await page.fill('#write-begin', begin);
  await page.check(`[name="write-length"][value="${length}"]`);
  await page.click('#write-run');
  await page.waitForSelector('#write-run:visible');
}

/** The text that the library writes: the most likely token each time. */
async function continued(model: Uint8Array<ArrayBuffer> | string, begin: string, length: number): Promise<string> {
  const ids = [1, ...words.encode(begin, { add_special_tokens: false }).ids];
  return withReader(model, { room: 256, workers: 0 }, async ({ read, ends }) => {
    const all = [...ids];
    while (all.length < ids.length + length) {
      // The whole text anew each time, without what was kept.
      const [next] = await read(all, 0, 1);
      if (ends.includes(next as number)) break;
      all.push(next as number);
    }
    const decode = (some: number[]) => words.decode(some, { skip_special_tokens: true });
    return decode(all).slice(decode(ids).length);
  });
}

const begin = 'Mia was a girl who lived near the lake. She had a dog named Rex.';

describe('the panel', () => {
  it('writes what the library writes, before and after quantization', async () => {
    await openWith(storyFiles, 'Q2_K');
    await write(begin);
    const options = { to: 'Q2_K', missingBytes: 'keep' } as const;
    const result = await (await quantizeModel(folder, options)).bytes();
    expect(await texts()).toEqual([
      begin + (await continued(folder, begin, 40)),
      begin + (await continued(result, begin, 40)),
    ]);
    expect(await page.$$eval('#write-texts .hint', (all) => all.map(({ textContent }) => textContent))).toEqual([
      expect.stringMatching(/^[\d.]+\s[kM]B$/),
      expect.stringMatching(/^40 tokens, [\d,.]+ a second$/),
      expect.stringMatching(/^[\d.]+\s[kM]B$/),
      expect.stringMatching(/^40 tokens, [\d,.]+ a second$/),
    ]);
    expect(await text('#write-verdict')).toMatch(
      /^Reading what the original wrote, Q2_K finds the same next token at (all )?\d+( of 40)? places\. (\d+ of \d+ words differ|Word for word the same text)\.$/,
    );
    // Words of the result that differ are marked, and none of the original.
    expect(await page.$$eval('#write-texts .write-text:first-child mark', (all) => all.length)).toBe(0);
    expect(await site.axe('#write')).toEqual([]);
    // Both stay in memory: another text begins at once.
    await write('Once there was a boy');
    expect((await texts())[0]).toBe(`Once there was a boy${await continued(folder, 'Once there was a boy', 40)}`);
  });

  it('writes with a GGUF file alone, by the vocabulary in it', async () => {
    const file = await (await quantizeModel(folder, { to: 'F16', missingBytes: 'keep' })).bytes();
    await openWith({ name: 'story.gguf', mimeType: '', buffer: Buffer.from(file) }, 'Q8_0');
    await write(begin);
    expect((await texts())[0]).toBe(begin + (await continued(file, begin, 40)));
  });

  it('stops, and says what stands in the way', async () => {
    await openWith(storyFiles);
    // A text beyond the positions of the model.
    await write('the dog '.repeat(240));
    expect(await text('#write-problem')).toMatch(
      /^The text could not be written: the text has \d+ tokens, and at most 255 leave room for another word; shorten it\.$/,
    );
    await page.fill('#write-begin', '  ');
    await page.waitForSelector('#write-run:disabled');
    // Stop while it is made ready.
    await page.fill('#write-begin', begin);
    await page.click('#write-run');
    await page.click('#write-stop');
    await page.waitForSelector('#write-run:visible');
    expect(await page.isHidden('#write-problem')).toBe(true);
    // Another model takes its place.
    await page.click('#close');
    await page.waitForSelector('#write', { state: 'detached' });
  });

  it('asks for the tokenizer of a file that has none', async () => {
    const file = await (await quantizeModel(folder, { to: 'F16', missingBytes: 'keep' })).bytes();
    // Rename the vocabulary, so that it is not found.
    const place = Buffer.from(file).indexOf('gpt2');
    const renamed = Buffer.from(file);
    renamed.write('rwkv', place);
    await openWith({ name: 'story.gguf', mimeType: '', buffer: renamed });
    expect(await page.isDisabled('#write-run')).toBe(true);
    expect(await text('#write-status')).toContain('Drop the tokenizer.json');
    await page.setInputFiles('#outputs-tokenizer', storyFiles[2] as string);
    await write(begin);
    expect((await texts())[0]).toBe(begin + (await continued(file, begin, 40)));
  });
});

describe('words about two texts', () => {
  const side = (written: string, isStuck = false) => ({ text: written, tokens: 3, seconds: 1, isDone: true, isStuck });
  it.each([
    [
      ' a b c',
      ' a b c',
      3,
      3,
      'Reading what the original wrote, Q4_0 finds the same next token at all 3 places. Word for word the same text.',
    ],
    [
      ' a b c',
      ' a x c',
      2,
      3,
      'Reading what the original wrote, Q4_0 finds the same next token at 2 of 3 places. 1 of 3 words differs.',
    ],
    ['', ' a', 0, 0, 'The original writes nothing: for it, the text ends here.'],
  ])('%s and %s', (before, after, same, of, expected) => {
    const agreement = { same, of, bytes: 1 };
    expect(resultText({ sides: [side(before), side(after)], agreement, label: 'Q4_0' })).toBe(expected);
  });
});
