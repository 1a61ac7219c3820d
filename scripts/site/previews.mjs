// Draws the pictures that links to the site show: the title of each page in large letters, over the idea of the site.
//
//   node scripts/site/previews.mjs        writes web/demo/public/previews/*.png; needs a built site and Chromium

import { mkdirSync, rmSync, writeFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { chromium } from 'playwright';
import UPNG from 'upng-js';
import { guidePages } from '../../web/demo/guide/build.mjs';
import { entries } from '../../web/demo/shared/shell.mjs';
import { launchOptions } from '../chromium.mjs';
import { serve } from '../serve.mjs';

/** @typedef {import('playwright').Page} Page */
/** @typedef {{ bits: string, bytes: string, right: string }} Width */

const path = (/** @type {string} */ name) => fileURLToPath(new URL(`../../${name}`, import.meta.url));

/** The size that most programs show. */
const [width, height] = [1200, 630];

/** The same picture in 64 colors: text and bars have few. @param {Buffer} png */
function inFewColors(png) {
  const picture = UPNG.decode(png);
  return Buffer.from(UPNG.encode(UPNG.toRGBA8(picture), picture.width, picture.height, 64));
}

/** Reads from the front page the bytes of its network at each width, and the digits read right. @param {Page} page @returns {Promise<Width[]>} */
async function readWidths(page) {
  await page.waitForFunction(() => /^Computed/.test(document.querySelector('#wall-basis')?.textContent ?? ''));
  const widths = [];
  for (const stop of [0, 1, 5, 6, 7]) {
    await page.locator('#width').fill(String(stop));
    await page.waitForFunction(
      (stop) => document.querySelectorAll('#width-stops span')[stop]?.classList.contains('current'),
      stop,
    );
    const [bits = '', bytes = '', right = ''] = await Promise.all(
      ['bits', 'bytes', 'right'].map(async (name) => (await page.textContent(`#width-${name}`)) ?? ''),
    );
    widths.push({ bits, bytes, right });
  }
  return widths;
}

const escaped = (/** @type {string} */ text) => text.replace(/&/g, '&amp;').replace(/</g, '&lt;');

/** Bars for the size of the network at each width. @param {readonly Width[]} widths */
function barsOf(widths) {
  const most = Number.parseFloat(widths[0]?.bytes ?? '1');
  return widths
    .map(({ bits, bytes, right }, i) => {
      const y = 356 + i * 50;
      const length = Math.round((Number.parseFloat(bytes) / most) * 560);
      return `<text x="80" y="${y + 24}" class="label">${bits}</text>
        <rect x="190" y="${y}" width="${length}" height="32" rx="4"/>
        <text x="${190 + length + 16}" y="${y + 24}" class="label">${bytes}, ${right} read right</text>`;
    })
    .join('');
}

/** Levels over a bell of numbers. */
function bell() {
  const at = (/** @type {number} */ x) => 600 + x * 160;
  const top = (/** @type {number} */ x) => 590 - 190 * Math.exp((-x * x) / 2);
  const bars = Array.from({ length: 65 }, (_, i) => {
    const x = (i - 32) / 9.6;
    return `<path class="bars" d="M${at(x) - 7} 590V${top(x).toFixed(0)}H${at(x) + 7}V590Z"/>`;
  });
  const levels = Array.from({ length: 16 }, (_, i) => `<path class="level" d="M${at((i - 7.5) / 2.3)} 370V590"/>`);
  return [...bars, ...levels].join('');
}

/** Breaks a text into lines of at most `most` letters. @param {string} text @param {number} most */
function linesOf(text, most) {
  /** @type {string[]} */
  const lines = [];
  for (const word of text.split(' ')) {
    const line = lines.at(-1);
    if (line !== undefined && line.length + 1 + word.length <= most) lines[lines.length - 1] = `${line} ${word}`;
    else lines.push(word);
  }
  return lines;
}

/** @param {string} title @param {string} picture as elements of SVG */
function card(title, picture) {
  const lines = linesOf(title, 30);
  const mark =
    '<g class="mark" transform="translate(80 62) scale(2)"><path d="M3 20V4M9 20V9M15 20v-7M21 20V6"/><circle cx="9" cy="5" r="2"/></g>';
  return `<!doctype html><style>
      body { margin: 0; background: #fbfbf9; }
      text { font-family: system-ui, sans-serif; fill: #15201d; }
      .title { font-size: 68px; font-weight: 700; letter-spacing: -1.5px; }
      .brand { font-size: 38px; font-weight: 700; }
      .label { font-size: 25px; }
      rect, .mark circle { fill: #0a6b61; }
      .mark path, .level { stroke: #0a6b61; stroke-width: 2; stroke-linecap: round; fill: none; }
      .level { stroke-width: 4; }
      .bars { fill: #d5dedb; }
    </style>
    <svg width="${width}" height="${height}">${mark}<text x="146" y="100" class="brand">Scalepoint</text>
      ${lines.map((line, i) => `<text x="80" y="${206 + i * 80}" class="title">${escaped(line)}</text>`).join('')}${picture}
    </svg>`;
}

const folder = path('web/demo/public/previews');
const server = await serve({ folder: path('build/demo'), port: 0 });
const browser = await chromium.launch(launchOptions);
try {
  const page = await browser.newPage({ viewport: { width, height }, serviceWorkers: 'block', reducedMotion: 'reduce' });
  await page.goto(server.url);
  const learn = {
    name: 'learn',
    html: card('Fewer bits, smaller models. See what it costs.', barsOf(await readWidths(page))),
  };
  const others = [
    ...entries
      .filter(({ path }) => path !== '' && path !== 'guide/')
      .map(({ path, label }) => ({ name: path.slice(0, -1), title: label })),
    ...guidePages().map(({ name, title }) => ({ name: name === '' ? 'guide' : `guide-${name}`, title })),
  ];
  // Pages that are gone leave no pictures behind.
  rmSync(folder, { recursive: true, force: true });
  mkdirSync(folder, { recursive: true });
  for (const { name, html } of [learn, ...others.map(({ name, title }) => ({ name, html: card(title, bell()) }))]) {
    await page.goto('about:blank');
    await page.setContent(html);
    writeFileSync(`${folder}/${name}.png`, inFewColors(await page.screenshot()));
  }
} finally {
  await browser.close();
  await server.close();
}
