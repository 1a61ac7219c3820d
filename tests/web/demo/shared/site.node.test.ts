// Common parts of all pages of the site, in a browser.
import { readdirSync, readFileSync } from 'node:fs';
import type { Page } from 'playwright';
import { expect, it } from 'vitest';
import { serve } from '../../../../scripts/serve.mjs';
import { aboutPages } from '../../../../web/demo/about/build.mjs';
import { guidePages } from '../../../../web/demo/guide/build.mjs';
import { siteAddress, sourceLinks, withShell } from '../../../../web/demo/shared/shell.mjs';
import { path, startSite } from '../site.js';

const site = startSite();
const pages = [
  ...['', 'model/', 'numbers/', 'search/', 'speed/'],
  ...guidePages().map(({ name }) => `guide/${name && `${name}/`}`),
  ...aboutPages.map(({ name }) => `${name}/`),
];

it('gives each page a title, a description and a strict policy of its own', () => {
  const heads = pages.map((page) => readFileSync(path(`build/demo/${page}index.html`), 'utf8'));
  const all = (pattern: RegExp) => heads.map((head) => pattern.exec(head)?.[1] ?? '');
  const titles = all(/<title>([^<]+)<\/title>/);
  const descriptions = all(/<meta name="description" content="([^"]+)">/);
  expect(new Set(titles).size).toBe(pages.length);
  expect(new Set(descriptions).size).toBe(pages.length);
  for (const [i, image] of all(/<meta property="og:image" content="([^"]+)"/).entries()) {
    const file = new URL(image, new URL(pages[i] ?? '', 'https://site.test/')).pathname;
    const picture = readFileSync(path(`build/demo${file}`));
    expect(picture.toString('latin1', 1, 4)).toBe('PNG');
    expect([picture.readUInt32BE(16), picture.readUInt32BE(20)]).toEqual([1200, 630]);
  }
  for (const policy of all(/http-equiv="Content-Security-Policy" content="([^"]+)"/)) {
    expect(policy).toContain("default-src 'none'; script-src 'self' 'wasm-unsafe-eval'; style-src 'self'");
    expect(policy).toContain("connect-src 'self'");
  }
  // The page for models alone may ask another server: the hub.
  const reaches = all(/connect-src 'self' ([^;]+)/);
  expect(reaches.map((reach, i) => reach && [pages[i], reach]).filter(Boolean)).toEqual([
    ['model/', 'https://huggingface.co https://*.hf.co'],
  ]);
  // Nothing is seen without styles, so a slow connection brings them first.
  for (const head of heads) {
    expect(head.lastIndexOf('<link rel="stylesheet"')).toBeLessThan(head.indexOf('<script type="module"'));
    expect(head.indexOf('<link rel="stylesheet"')).toBeGreaterThan(0);
  }
});

it('begins each page of its own at one left edge, in windows of every width', async () => {
  const page = await site.open('');
  for (const width of [390, 1280, 2200]) {
    await page.setViewportSize({ width, height: 800 });
    const edges: [name: string, x: number][] = [];
    for (const name of ['', 'model/', 'numbers/', 'search/', 'speed/', ...aboutPages.map(({ name }) => `${name}/`)]) {
      await page.goto(`${site.url}${name}`);
      // Some pages draw their title.
      const title = await page.waitForSelector('h1');
      edges.push([name, await title.evaluate((node) => node.getBoundingClientRect().x)]);
    }
    expect(edges).toEqual(edges.map(([name]) => [name, edges[0]?.[1]]));
    expect(edges[0]?.[1]).toBeGreaterThan(0);
  }
});

it('gives preview pictures absolute addresses if the address of the site is known', () => {
  const html = '<html lang="en"><head><title>T</title></head><body></body></html>';
  const image = (address?: string) =>
    /property="og:image" content="([^"]+)"/.exec(withShell(html, 'guide/x/', address))?.[1];
  expect(image()).toBe('../../previews/guide.png');
  expect(image('https://a.test/b/')).toBe('https://a.test/b/previews/guide.png');
  expect(withShell(html, 'model/', 'https://a.test/b/')).toContain('rel="canonical" href="https://a.test/b/model/"');
  const before = process.env.SCALEPOINT_SITE;
  try {
    delete process.env.SCALEPOINT_SITE;
    expect(siteAddress()).toBeUndefined();
    process.env.SCALEPOINT_SITE = 'https://a.test/b';
    expect(siteAddress()).toBe('https://a.test/b/');
    process.env.SCALEPOINT_SITE = 'a.test/b';
    expect(siteAddress).toThrow('SCALEPOINT_SITE');
  } finally {
    if (before === undefined) delete process.env.SCALEPOINT_SITE;
    else process.env.SCALEPOINT_SITE = before;
  }
});

it('names build, tier, license and changelog on every page, and sources once there are some', async () => {
  const page = await site.open('license/');
  await expect.poll(() => page.textContent('.foot')).toMatch(/Scalepoint \d+\.\d+\.\d+, build [0-9a-f]+, SIMD core/);
  expect(await page.textContent('main')).toContain('WITHOUT WARRANTY OF ANY KIND');
  await page.click('.foot a:has-text("Changelog")');
  await expect.poll(() => page.textContent('h1')).toBe('Changelog');
  expect(sourceLinks({})).toBe('');
  for (const repository of ['github:a/b', { url: 'git+https://github.com/a/b.git' }]) {
    expect(sourceLinks({ repository })).toContain('"https://github.com/a/b">Sources');
    expect(sourceLinks({ repository })).toContain('"https://github.com/a/b/issues">Issues');
  }
});

it('links to pages that exist, and only to those', async () => {
  for (const name of pages) {
    const html = readFileSync(path(`build/demo/${name}index.html`), 'utf8');
    const base = new URL(name, 'https://site.test/sub/');
    for (const [, href = ''] of html.matchAll(/<a [^>]*href="([^"#]+)"/g)) {
      const target = new URL(href, base);
      if (target.origin !== base.origin) continue;
      expect([...pages, 'notices.txt'], `${href} in ${name}`).toContain(target.pathname.replace('/sub/', ''));
    }
  }
});

it('names the licenses of the packages that it holds', () => {
  const text = readFileSync(path('build/demo/notices.txt'), 'utf8');
  const { devDependencies } = JSON.parse(readFileSync(path('package.json'), 'utf8'));
  for (const name of ['onnxruntime-web', '@huggingface/tokenizers', '@huggingface/hub'])
    expect(text).toContain(`${name} ${devDependencies[name]}`);
  expect(text).toContain('Copyright (c) Microsoft Corporation');
  expect(text).toContain('Apache License');
});

/** The files of the site that are in the store of the browser, by their paths. */
const storedFiles = (page: Page) =>
  page.evaluate(async () => {
    const [name] = (await caches.keys()).filter((key) => key.startsWith('scalepoint-site-'));
    if (name === undefined) return [];
    return (await (await caches.open(name)).keys()).map(({ url }) => new URL(url).pathname);
  });

it('works offline after the first visit, in any folder of a server, with at most 3 MB', async () => {
  const page = await site.open('', { serviceWorkers: 'allow' });
  await expect.poll(() => page.textContent('#about-offline')).toBe('Works offline from now on.');
  const contents = (await storedFiles(page)).map((name) =>
    readFileSync(path(`build/demo${name.endsWith('/') ? `${name}index.html` : name}`)),
  );
  expect(contents.reduce((sum, { length }) => sum + length, 0)).toBeLessThan(3e6);
  // None is there twice under two names, but empty ones.
  const full = contents.filter(({ length }) => length > 0).map((content) => content.toString('latin1'));
  expect(new Set(full).size).toBe(full.length);
  // What is used later is stored then.
  await page.goto(`${site.url}guide/onnx/`);
  await page.goto(site.url);
  await page.locator('#teller').scrollIntoViewIfNeeded();
  await page.click('#teller button[type="submit"]');
  await expect.poll(() => page.textContent('#teller-words')).toMatch(/bits/);
  await page.context().setOffline(true);
  for (const [name, heading] of [
    ['model/', 'Make a model smaller'],
    ['guide/', 'What quantization is'],
    ['guide/onnx/', ''],
    ['', 'Fewer bits'],
  ] as const) {
    await page.goto(site.url + name);
    expect(await page.textContent('h1')).toContain(heading);
  }
  await expect.poll(() => page.textContent('#width-right')).toMatch(/^98/);
  await page.locator('#teller').scrollIntoViewIfNeeded();
  await page.click('#teller button[type="submit"]');
  await expect.poll(() => page.textContent('#teller-words')).toMatch(/bits/);
});

it('stores no more than what was used for a visitor who saves data', async () => {
  const page = await site.open('', { serviceWorkers: 'allow' }, async (page) => {
    await page.addInitScript(() => Object.defineProperty(navigator, 'connection', { value: { saveData: true } }));
  });
  await expect.poll(() => page.textContent('#about-offline')).toBe('What you have used works offline.');
  const stored = await storedFiles(page);
  expect(stored).toContain('/');
  expect(stored.filter((name) => name.endsWith('/'))).toEqual(['/']);
  await page.context().setOffline(true);
  await page.reload();
  expect(await page.textContent('h1')).toContain('Fewer bits');
});

it('says so when wasm is refused, and still shows the page', async () => {
  const server = await serve({
    folder: path('build/demo'),
    port: 0,
    policy:
      "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; worker-src 'self'; manifest-src 'self'",
  });
  try {
    for (const [name, place, words] of [
      ['', '#problems', 'forbids WebAssembly'],
      ['numbers/', '#problems', 'forbids WebAssembly'],
      ['speed/', '#race-failed', 'Nothing could be measured'],
    ] as const) {
      const page = await site.open(name, {}, async (page) => {
        await page.route(`${site.url}**`, async (route) => {
          const response = await fetch(route.request().url().replace(site.url, server.url));
          const headers = Object.fromEntries(response.headers);
          await route.fulfill({ status: response.status, headers, body: Buffer.from(await response.arrayBuffer()) });
        });
      });
      await expect.poll(() => page.locator(place, { hasText: words }).isVisible()).toBe(true);
      expect(await page.isVisible('h1')).toBe(true);
    }
  } finally {
    site.complaints = [];
    await server.close();
  }
});

it('remembers settings for the next visit, until they are reset', async () => {
  let page = await site.open('numbers/');
  const headline = (words: string) => expect.poll(() => page.textContent('h1')).toContain(`${words} do to 4,096`);
  await headline('4 bits');
  await page.focus('#bits');
  await page.keyboard.press('ArrowRight');
  await headline('5 bits');
  await page.goto(`${site.url}numbers/`);
  await headline('5 bits');
  expect(new URL(page.url()).hash).toBe('#bits=5');
  await page.click('#reset');
  await headline('4 bits');
  await page.goto(`${site.url}numbers/`);
  await headline('4 bits');

  page = await site.open('model/');
  const chosen = () => page.$eval('input[name="preset"]:checked', (radio) => (radio as HTMLInputElement).value);
  await page.click('#sample');
  await expect.poll(() => page.isVisible('#opened')).toBe(true);
  await expect.poll(chosen).toBe('balanced');
  await page.check('input[value="small"]', { force: true });
  await expect.poll(() => new URL(page.url()).hash).toBe('#to=int4');
  await page.goto(`${site.url}model/`);
  await page.click('#sample');
  await expect.poll(() => page.isVisible('#opened')).toBe(true);
  await expect.poll(chosen).toBe('small');
});

it('works when storage is refused', async () => {
  const page = await site.open('model/', {}, async (page) => {
    await page.addInitScript(() => {
      Object.defineProperty(globalThis, 'localStorage', {
        get() {
          throw new DOMException('denied', 'SecurityError');
        },
      });
    });
  });
  await page.selectOption('#theme', 'dark');
  expect(await page.getAttribute('html', 'data-theme')).toBe('dark');
});

it('has the shared styles before those of each page, which change them', () => {
  for (const name of [
    'index.html',
    ...['model', 'numbers', 'search', 'speed', 'guide'].map((page) => `${page}/index.html`),
  ]) {
    const html = readFileSync(path(`build/demo/${name}`), 'utf8');
    const [first = ''] = [...html.matchAll(/<link rel="stylesheet"[^>]* href="[./]*([^"]+)"/g)].map(([, file]) => file);
    expect([name, readFileSync(path(`build/demo/${first}`), 'utf8').includes('--accent:')]).toEqual([name, true]);
  }
});

it('keeps every file of web/demo below 500 lines', () => {
  const long = (folder: string): string[] =>
    readdirSync(path(folder), { withFileTypes: true }).flatMap((entry) => {
      const name = `${folder}/${entry.name}`;
      if (entry.isDirectory()) return long(name);
      return /\.(ts|mjs)$/.test(name) && readFileSync(path(name), 'utf8').split('\n').length > 500 ? [name] : [];
    });
  expect(long('web/demo')).toEqual([]);
});
