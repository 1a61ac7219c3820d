// The card of a result, to share.
import { readFileSync } from 'node:fs';
import { expect, it } from 'vitest';
import { type CardFacts, cardHeight, cardLines, cardWidth } from '../../../../web/demo/model/card.js';
import { formatBytes } from '../../../../web/demo/shared/format.js';
import { sample, startSite } from '../site.js';

const site = startSite();

const facts: CardFacts = {
  ...{ model: 'model.safetensors', type: 'Q4_K_M', bytesBefore: 4e9, bytesAfter: 1e9, link: 'https://a.b/model/#to=x' },
  ...{ sqnrDb: 31.2, sameTop: 0.97 },
};

it('says what is known', () => {
  expect(cardLines(facts)).toEqual({
    title: 'model.safetensors',
    sizes: `${formatBytes(4e9)} → ${formatBytes(1e9)}`,
    type: 'Q4_K_M, 75 % smaller',
    figures: ['Weights: very close, 31 dB', 'The same next token in 97 of 100 places'],
    link: 'a.b/model/#to=x',
  });
  const bare = cardLines({ ...facts, bytesAfter: 4e9, sqnrDb: undefined, sameTop: undefined });
  expect(bare).toMatchObject({ type: 'Q4_K_M', figures: [] });
});

it('is a picture of the size of link previews', async () => {
  const page = await site.open('model/');
  await page.setInputFiles('#file', sample);
  await page.waitForSelector('#model-card:enabled');
  const [download] = await Promise.all([page.waitForEvent('download'), page.click('#model-card')]);
  expect(download.suggestedFilename()).toMatch(/^digits.*[.]card[.]png$/);
  const bytes = readFileSync(await download.path());
  expect(bytes.subarray(1, 4).toString()).toBe('PNG');
  // Width and height follow the head of the first chunk.
  expect([bytes.readUInt32BE(16), bytes.readUInt32BE(20)]).toEqual([cardWidth, cardHeight]);
  // It has letters: pixels of several colors.
  const colors = await page.evaluate(async (base64) => {
    const data = Uint8Array.from(atob(base64), (letter) => letter.charCodeAt(0));
    const bitmap = await createImageBitmap(new Blob([data]));
    const context = new OffscreenCanvas(bitmap.width, bitmap.height).getContext(
      '2d',
    ) as OffscreenCanvasRenderingContext2D;
    context.drawImage(bitmap, 0, 0);
    const words = new Uint32Array(context.getImageData(0, 60, bitmap.width, 300).data.buffer);
    return new Set(words).size;
  }, bytes.toString('base64'));
  expect(colors).toBeGreaterThan(20);
});
