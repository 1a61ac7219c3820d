// The front page, in a browser.
import { execFile } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import type { Page } from 'playwright';
import { load } from 'scalepoint';
import { expect, it } from 'vitest';
import { drawTestDigits } from '../../../../scripts/site/digits.mjs';
import { Network, plainStorage, readSample, type Storage } from '../../../../web/demo/front/network.js';
import { isReleased } from '../../../../web/demo/shared/install.mjs';
import { brotliBytes, contrastOf, path, sample, startSite } from '../site.js';

const site = startSite();
let page: Page;
/** Opens the page and waits until all test digits are read with every width. */
const open = async (...options: Parameters<typeof site.open> | []) => {
  page = await site.open('', options[1], options[2]);
};
const read = async () => {
  await expect.poll(() => page.textContent('#wall-basis')).toBe('Computed in this browser.');
  expect(await page.textContent('#width-right')).toMatch(/^98\.5/);
};
const slide = (id: string, value: number) =>
  page.evaluate(
    ([id, value]) => {
      const slider = document.getElementById(id as string) as HTMLInputElement;
      slider.value = String(value);
      slider.dispatchEvent(new Event('input', { bubbles: true }));
    },
    [id, value] as const,
  );

/** Accuracy of the network by the package, in percent. */
async function accuracyOf(storage: Storage): Promise<number> {
  const core = await load();
  const file = readFileSync(sample);
  const tensors = readSample(file.buffer.slice(file.byteOffset, file.byteOffset + file.byteLength) as ArrayBuffer);
  const { images, labels, count } = drawTestDigits();
  const taken = (await Network.create(core, tensors, storage)).read(images, count);
  return (100 * taken.reduce((sum, digit, n) => sum + Number(digit === labels[n]), 0)) / count;
}

it('takes bits from a network with one slider, and tells accuracy and bytes', async () => {
  await open();
  await read();
  expect(await page.textContent('#width-bytes')).toBe('204\u00a0kB');
  for (const [stop, bits] of [
    [5, 4],
    [7, 2],
  ] as const) {
    await slide('width', stop);
    const expected = await accuracyOf(plainStorage(bits));
    await expect
      .poll(async () => Number.parseFloat((await page.textContent('#width-right')) ?? ''))
      .toBeCloseTo(expected, 1);
    expect(await page.textContent('#width-bits')).toBe(`${bits} bits`);
  }
  expect(await page.textContent('#wall-caption')).toBe(
    'The network reads 27 of these 240 new digits. Its mistakes are red.',
  );
  expect(await page.getAttribute('#width', 'aria-valuetext')).toBe('2 bits');
});

it('plays the slider once, and stops when it is touched', async () => {
  await open('', { reducedMotion: 'no-preference' }, async (page) => {
    await page.addInitScript(() => {
      const seen: string[] = [];
      Object.assign(globalThis, { seen });
      const look = () => {
        const bits = document.getElementById('width-bits')?.textContent;
        if (bits && seen.at(-1) !== bits) seen.push(bits);
        requestAnimationFrame(look);
      };
      requestAnimationFrame(look);
    });
  });
  const seen = () => page.evaluate(() => (globalThis as unknown as { seen: string[] }).seen);
  await expect.poll(async () => (await seen()).at(-1) === '32 bits' && (await seen()).length > 5).toBe(true);
  const played = (await seen()).map((text) => Number.parseInt(text, 10));
  expect(Math.min(...played)).toBeLessThanOrEqual(3);
  expect(await page.textContent('#hero-point')).toMatch(
    /^4 bits would be 7\.\d times smaller, \d+ of these 240 digits lost\.$/,
  );
  await page.reload();
  await page.mouse.click(5, 5);
  const touched = await page.textContent('#width-bits');
  await page.waitForTimeout(1000);
  expect(await page.textContent('#width-bits')).toBe(touched);
});

it('keeps the widths of the slider and of the lab in the link', async () => {
  page = await site.open('#bits=3&lab=4&scales=group&range=mse&levels=even');
  await expect.poll(() => page.textContent('#width-bits')).toBe('3 bits');
  await expect.poll(() => page.isChecked('input[name="granularity"][value="group"]')).toBe(true);
  await slide('width', 7);
  expect(new URL(page.url()).hash).toContain('bits=2');
  expect(new URL(page.url()).hash).toContain('scales=group');
});

it('reads a digit that the visitor draws, at every width', async () => {
  await open();
  await read();
  const box = (await page.locator('#pad').boundingBox()) as { x: number; y: number; width: number; height: number };
  const at = (x: number, y: number) => [box.x + box.width * x, box.y + box.height * y] as const;
  await page.mouse.move(...at(0.3, 0.2));
  await page.mouse.down();
  await page.mouse.move(...at(0.7, 0.2), { steps: 4 });
  await page.mouse.move(...at(0.45, 0.85), { steps: 4 });
  await page.mouse.up();
  const readings = () => page.$$eval('#pad-readings .reading', (nodes) => nodes.map((node) => node.textContent));
  await expect.poll(async () => (await readings())[0]).toBe('7');
  expect(await readings()).toHaveLength(8);
  await page.click('#pad-clear');
  await expect.poll(async () => (await readings())[0]).toBe('·');
  await page.click('#pad-another');
  await expect.poll(async () => (await readings())[0]).toBe('5');
});

it('has a handle in each of five figures, which the keyboard moves too', async () => {
  await open();
  await read();
  const words = (id: string) => page.textContent(`#fig-${id}-words`);
  const expected: [id: string, key: string, before: RegExp, after: RegExp][] = [
    ['round', 'Home', /becomes code 2/, /becomes code −4/],
    ['scale', 'Home', /0 % clipped|clipped/, /Scale 0\.05.*clipped/],
    ['outlier', 'Home', /share \d levels/, /share 1\d levels/],
    ['groups', 'End', /One scale for everything/, /A scale for each 8 neighbors/],
    ['codes', 'End', /Even levels/, /NF4/],
  ];
  for (const [id, key, before, after] of expected) {
    expect(await words(id)).toMatch(before);
    await page.focus(`#fig-${id} [role="slider"]`);
    await page.keyboard.press(key);
    await expect.poll(() => words(id)).toMatch(after);
    const handle = page.locator(`#fig-${id} [role="slider"]`);
    expect(await handle.getAttribute('aria-label')).toBeTruthy();
    expect((await handle.getAttribute('aria-valuetext'))?.length).toBeGreaterThan(3);
  }
  // Dragging moves the handle under the pointer. What is drawn late may move the figure meanwhile.
  const drag = async () => {
    await page.locator('#fig-round').scrollIntoViewIfNeeded();
    const box = (await page.locator('#fig-round').boundingBox()) as { x: number; y: number; width: number };
    await page.mouse.move(box.x + box.width / 2, box.y + 44);
    await page.mouse.down();
    await page.mouse.up();
    return words('round');
  };
  await expect.poll(drag).toMatch(/^−0\.1/);
});

it('saves the network with finer scales and better ranges', async () => {
  await open();
  await read();
  await expect.poll(() => page.textContent('#lab-right')).toMatch(/^11\.4/);
  expect(await page.textContent('#lab-words')).toContain('broken');
  await page.check('input[name="granularity"][value="group"]', { force: true });
  await page.check('input[name="range"][value="mse"]', { force: true });
  const expected = await accuracyOf({ bits: 2, granularity: 'group', range: 'mse', codes: 'even' });
  await expect
    .poll(async () => Number.parseFloat((await page.textContent('#lab-right')) ?? ''))
    .toBeCloseTo(expected, 1);
  expect(await page.textContent('#lab-words')).toMatch(/84 points more/);
});

it('opens at the story of a link, and copies such a link', async () => {
  page = await site.open('#story=Nora+had+a+cat.&story-bits=4', { permissions: ['clipboard-read', 'clipboard-write'] });
  await expect
    .poll(() => page.$eval('#teller-box', (box) => Math.abs(box.getBoundingClientRect().top) < 200))
    .toBe(true);
  expect(await page.inputValue('#teller-begin')).toBe('Nora had a cat.');
  await expect.poll(() => page.textContent('#tellings')).toContain('Nora had a cat.');
  await page.fill('#teller-begin', 'Tom had a dog.');
  await page.click('#teller-link');
  await expect.poll(() => page.evaluate(() => navigator.clipboard.readText())).toMatch(/#.*story=Tom\+had\+a\+dog\./);
});

it('hands a model to the page for models, and comes back', async () => {
  await open();
  await page.click('#sample');
  await expect.poll(() => page.textContent('#model-name').catch(() => '')).toBe('digits.safetensors');
  expect(new URL(page.url()).pathname).toBe('/model/');
  expect(await page.title()).toContain('Make a model smaller');
  expect(await page.getAttribute('.nav a[aria-current]', 'href')).toBe(`${site.url}model/`);
  await expect.poll(() => page.textContent('#offers')).toContain('int4');
  await page.goBack();
  await page.goBack();
  await expect.poll(() => page.textContent('h1')).toContain('Fewer bits');
});

it('says how to install the package before and after its first release, and copies the command', async () => {
  const { version } = JSON.parse(readFileSync(path('package.json'), 'utf8')) as { version: string };
  const command = `npm i ${isReleased ? 'scalepoint' : `${site.url}scalepoint-${version}.tgz`}`;
  await open('', { permissions: ['clipboard-read', 'clipboard-write'] });
  expect(await page.textContent('.developers')).toContain(command);
  // npm answers 404 before that. Then it installs the file of the site, which is the package.
  expect((await page.textContent('.developers'))?.includes('No release is on npm yet')).toBe(!isReleased);
  const place = mkdtempSync(join(tmpdir(), 'scalepoint-install-'));
  try {
    writeFileSync(join(place, 'package.json'), '{}');
    const given = `${site.url}scalepoint-${version}.tgz`;
    await promisify(execFile)('npm', ['i', '--prefer-offline', '--no-audit', '--no-fund', given], { cwd: place });
    const code = "import { load } from 'scalepoint'; console.log((await load()).version)";
    const { stdout } = await promisify(execFile)('node', ['--input-type=module', '-e', code], { cwd: place });
    expect(stdout.trim()).toBe(version);
  } finally {
    rmSync(place, { recursive: true });
  }
  // The module of the site is the package, too.
  expect(await page.textContent('.developers [data-here]:not(#install)')).toBe(`${site.url}scalepoint.js`);
  const loaded = await page.evaluate(`import('${site.url}scalepoint.js').then(async ({ load, quantizeModel }) => ({
    version: (await load()).version,
    hasModels: typeof quantizeModel,
  }))`);
  expect(loaded).toEqual({ version, hasModels: 'function' });
  // It is in the first view, and with the code.
  expect(await page.$eval('#copy-first', (button) => button.getBoundingClientRect().bottom)).toBeLessThan(900);
  for (const button of ['#copy-first', '#copy-install']) {
    await page.evaluate(() => navigator.clipboard.writeText(''));
    await page.click(button);
    await expect.poll(() => page.evaluate(() => navigator.clipboard.readText())).toBe(command);
  }
});

it.each([
  ['wide', 1280, 'light'],
  ['narrow', 360, 'dark'],
] as const)('is accessible and does not scroll horizontally: %s', async (_what, width, colorScheme) => {
  await open('', { viewport: { width, height: 800 }, colorScheme });
  await read();
  expect(await page.evaluate(() => document.documentElement.scrollWidth)).toBe(width);
  expect(await site.axe()).toEqual([]);
  for (const selector of ['#choose', '#sample', '#copy-install']) {
    await page.hover(selector);
    await expect.poll(() => contrastOf(page, selector)).toBeGreaterThan(4.5);
  }
});

it('leaves the main thread free while everything is moved', async () => {
  await open();
  const press = async (selector: string, key: string, count: number) => {
    await page.focus(selector);
    for (let i = 0; i < count; i++) await page.keyboard.press(key);
  };
  const moveAll = async () => {
    // Without the settings that the run before left in the address.
    await page.goto('about:blank');
    await page.goto(site.url);
    await read();
    await press('#width', 'ArrowRight', 7);
    for (const id of ['round', 'scale', 'outlier', 'groups', 'codes'])
      await press(`#fig-${id} [role="slider"]`, 'ArrowRight', 3);
    await press('#lab-bits', 'ArrowLeft', 3);
    await page.check('input[name="granularity"][value="group"]', { force: true });
    await expect.poll(() => page.textContent('#lab-words')).not.toContain('broken');
  };
  await site.expectShortTasks(moveAll);
});

it('can be touched before the core is there and with at most 150 kB, and loads the weights after that', async () => {
  const seen: string[] = [];
  let [sendCore, sendWeights] = [() => {}, () => {}];
  const coreHeld = new Promise<void>((done) => {
    sendCore = done;
  });
  const held = new Promise<void>((done) => {
    sendWeights = done;
  });
  await open('', {}, async (page) => {
    page.on('request', (request) => seen.push(new URL(request.url()).pathname));
    await page.route('**/*.wasm', (route) => coreHeld.then(() => route.continue()));
    await page.route('**/samples/**', (route) => held.then(() => route.continue()));
  });
  await slide('width', 6);
  await expect.poll(() => page.textContent('#width-right')).toMatch(/^95\.5/);
  await expect.poll(() => seen.filter((name) => /\.wasm$/.test(name))).toHaveLength(1);
  sendCore();
  await expect.poll(() => seen.filter((name) => name.startsWith('/samples/'))).toHaveLength(1);
  // Nothing waits for the weights: the network at each width, the pad, and the figures, which the core computes.
  await slide('width', 7);
  await expect.poll(() => page.textContent('#width-right')).toMatch(/^11\.4/);
  expect(await page.textContent('#wall-caption')).toBe(
    'The network reads 27 of these 240 new digits. Its mistakes are red.',
  );
  expect(await page.textContent('#wall-basis')).toBe('Recorded, and computed here in a moment.');
  expect(await page.textContent('#fig-round-words')).toContain('becomes code 2');
  const readings = () => page.$$eval('#pad-readings .reading', (nodes) => nodes.map((node) => node.textContent));
  await expect.poll(readings).toEqual(['8', '8', '8', '8', '8', '8', '8', '0']);
  const isSample = (name: string) => name.startsWith('/samples/');
  // The browser asks for the icon again once the address has changed.
  const [first, later] = [[...new Set(seen.filter((name) => !isSample(name)))], seen.filter(isSample)];
  expect(later).toEqual(['/samples/digits.safetensors']);
  expect(first.filter((name) => /\.wasm$/.test(name))).toHaveLength(1);
  expect(first.reduce((sum, name) => sum + brotliBytes(name), 0)).toBeLessThan(150_000);
  expect(later.reduce((sum, name) => sum + brotliBytes(name), 0)).toBeLessThan(200_000);
  sendWeights();
  await expect.poll(() => page.textContent('#wall-basis')).toBe('Computed in this browser.');
});

it('keeps what was recorded if the weights do not come, and says so', async () => {
  await open('', {}, async (page) => {
    await page.route('**/samples/**', (route) => route.fulfill({ status: 404, body: 'not here' }));
  });
  await expect.poll(() => page.textContent('#problems')).toContain('weights of the network did not');
  await slide('width', 6);
  await expect.poll(() => page.textContent('#width-right')).toMatch(/^95\.5/);
  expect(await page.textContent('#wall-basis')).toBe('Recorded: nothing could be computed here.');
  await page.check('input[name="granularity"][value="group"]', { force: true });
  await expect.poll(() => page.textContent('#lab-right')).toBe('–');
  site.complaints = site.complaints.filter((text) => !text.includes('404'));
});

it('reads numbers that are pasted on the front page, and on that for models', async () => {
  const paste = (text: string) =>
    page.evaluate((text) => {
      const clipboardData = new DataTransfer();
      clipboardData.setData('text/plain', text);
      document.body.dispatchEvent(new ClipboardEvent('paste', { clipboardData, bubbles: true, cancelable: true }));
    }, text);
  await open();
  await paste('1 2 3 4');
  await expect.poll(() => page.textContent('#summary').catch(() => '')).toContain('from 1 to 4');
  expect(new URL(page.url()).pathname).toBe('/numbers/');
  expect(await page.inputValue('#text')).toBe('1 2 3 4');

  page = await site.open('model/');
  await paste('5 6 7,5');
  await expect.poll(() => page.textContent('#problems')).toMatch(/The text is not a model/);
  await page.click('#problems button:has-text("Your numbers")');
  await expect.poll(() => page.textContent('#comma-legend').catch(() => '')).toContain('7,5');
});
