// The tutorial of the guide, step by step: its program runs in Node, and its page in Chromium, as Vite bundles it.
import { execFile } from 'node:child_process';
import { mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { type Browser, chromium, type Page } from 'playwright';
import { type ModelInput, planModel, quantizeModel } from 'scalepoint/model';
import { build } from 'vite';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { hangLimit, pageOptions } from '../../../../scripts/chromium.mjs';
import { serve } from '../../../../scripts/serve.mjs';
import { blocksIn } from '../../support/examples.js';
import { path as root } from '../served.js';

const markdown = readFileSync(root('web/demo/guide/00-your-first-page.md'), 'utf8');
const codeOf = (language: string) =>
  blocksIn(markdown).flatMap((block) => (block.language === language ? [block.code] : []));
const [[model, numbers, plan, work], pages, [policy]] = [
  codeOf('js page') as [string, string, string, string],
  codeOf('html page'),
  blocksIn(readFileSync(root('web/demo/guide/10-bundlers.md'), 'utf8')).flatMap(({ language, code }) =>
    language === 'csp' ? [code.trim()] : [],
  ),
];

const folder = mkdtempSync(join(tmpdir(), 'scalepoint-first-'));
const modelFile = join(folder, 'model.safetensors');
let browser: Browser;
beforeAll(async () => {
  mkdirSync(join(folder, 'node_modules'));
  symlinkSync(root('.'), join(folder, 'node_modules/scalepoint'), 'junction');
  writeFileSync(join(folder, 'make-model.mjs'), model);
  await promisify(execFile)(process.execPath, ['make-model.mjs'], { cwd: folder });
  browser = await chromium.launch(pageOptions);
});
afterAll(async () => {
  await browser?.close();
  rmSync(folder, { recursive: true, force: true });
});

/** Writes the two files of a step, bundles them, and opens the page under the policy of the guide. It must not complain. */
async function withStep(html: string, script: string, use: (page: Page) => Promise<void>): Promise<void> {
  writeFileSync(join(folder, 'index.html'), html);
  writeFileSync(join(folder, 'main.js'), script);
  await build({ root: folder, logLevel: 'warn', configFile: false });
  const server = await serve({ folder: join(folder, 'dist'), port: 0, policy: policy! });
  const page = await browser.newPage();
  page.setDefaultTimeout(hangLimit);
  const complaints: string[] = [];
  page.on('console', (message) => complaints.push(message.text()));
  page.on('pageerror', (error) => complaints.push(error.message));
  try {
    // Browsers ask for an icon by themselves.
    await page.route('**/favicon.ico', (route) => route.fulfill({ status: 204 }));
    await page.goto(server.url);
    await use(page);
  } finally {
    await page.close();
    await server.close();
  }
  expect(complaints).toEqual([]);
}

const says = (page: Page, text: string) => expect.poll(() => page.textContent('#status')).toBe(text);

it('writes a model of the size that it says', () => {
  const { length } = readFileSync(modelFile);
  expect(markdown).toContain(`has ${Math.round(length / 1000)} kB`);
});

it('shows four numbers', async () => {
  const [, text] = /The page says `([^`]*)`/.exec(markdown)!;
  await withStep(pages[0]!, numbers, (page) => says(page, text!));
});

it('plans the model for each preset, and says why others are none', async () => {
  const [, text] = /Choose `model.safetensors`: (.* as int8)\./.exec(markdown)!;
  const start = (page: Page) => page.isEnabled('#start');
  await withStep(pages[1]!, plan, async (page) => {
    await says(page, 'Choose a model.');
    await page.setInputFiles('#files', modelFile);
    await says(page, text!);
    expect(await start(page)).toBe(true);
    await page.selectOption('#preset', 'small');
    await says(page, '0.59 MB become 0.08 MB, as int4');
    await page.setInputFiles('#files', root('tests/web/demo/guide/first-page.node.test.ts'));
    await expect.poll(() => page.textContent('#status')).toContain('supported are');
    expect(await start(page)).toBe(false);
  });
});

it('makes it, with the bytes of the library', async () => {
  const [, sqnr] = /as\n\[SQNR\]\([^)]*\): ([\d.]+ dB)\./.exec(markdown)!;
  const to = (await planModel(modelFile as ModelInput, { to: 'int8' })).to;
  const expected = await (await quantizeModel(modelFile, { to: to as 'int8' })).bytes();
  await withStep(pages[1]!, plan + work, async (page) => {
    await page.setInputFiles('#files', modelFile);
    await page.click('#start:enabled');
    await says(page, `Made ${(expected.length / 1e6).toFixed(2)} MB. The lowest SQNR of a tensor is ${sqnr}.`);
    const [download] = await Promise.all([page.waitForEvent('download'), page.click('#results a')]);
    expect(download.suggestedFilename()).toBe('model.int8.safetensors');
    expect(new Uint8Array(readFileSync(await download.path()))).toEqual(expected);
    // The next file begins anew.
    expect(await page.isHidden('#cancel')).toBe(true);
    await page.setInputFiles('#files', []);
    expect(await page.isEnabled('#start')).toBe(false);
  });
});
