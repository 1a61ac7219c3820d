// What all pages of the site have in common, in a browser.
import { readdirSync, readFileSync } from 'node:fs';
import { expect, it } from 'vitest';
import { serve } from '../../../../scripts/serve.mjs';
import { guidePages } from '../../../../web/demo/guide/build.mjs';
import { path, startSite } from '../site.js';

const site = startSite();
const pages = ['', 'model/', 'numbers/', 'speed/', ...guidePages().map(({ name }) => `guide/${name && `${name}/`}`)];

it('gives each page a title, a description and a strict policy of its own', () => {
  const heads = pages.map((page) => readFileSync(path(`build/demo/${page}index.html`), 'utf8'));
  const all = (pattern: RegExp) => heads.map((head) => pattern.exec(head)?.[1] ?? '');
  const titles = all(/<title>([^<]+)<\/title>/);
  const descriptions = all(/<meta name="description" content="([^"]+)">/);
  expect(new Set(titles).size).toBe(pages.length);
  expect(new Set(descriptions).size).toBe(pages.length);
  for (const policy of all(/http-equiv="Content-Security-Policy" content="([^"]+)"/)) {
    expect(policy).toContain("default-src 'none'; script-src 'self' 'wasm-unsafe-eval'; style-src 'self'");
    expect(policy).toContain("connect-src 'self'");
  }
});

it('links to pages that exist, and only to those', async () => {
  for (const name of pages) {
    const html = readFileSync(path(`build/demo/${name}index.html`), 'utf8');
    const base = new URL(name, 'https://site.test/sub/');
    for (const [, href = ''] of html.matchAll(/<a [^>]*href="([^"#]+)"/g)) {
      const target = new URL(href, base);
      if (target.origin !== base.origin) continue;
      expect(pages, `${href} in ${name}`).toContain(target.pathname.replace('/sub/', ''));
    }
  }
});

it('works offline after the first visit, in any folder of a server', async () => {
  const page = await site.open('', { serviceWorkers: 'allow' });
  await expect.poll(() => page.textContent('#about-offline'), { timeout: 20_000 }).toContain('Works offline');
  await page.context().setOffline(true);
  for (const [name, heading] of [
    ['model/', 'Make a model smaller'],
    ['guide/', 'What quantization is'],
    ['', 'Fewer bits'],
  ] as const) {
    await page.goto(site.url + name);
    expect(await page.textContent('h1')).toContain(heading);
  }
  await expect.poll(() => page.textContent('#width-right'), { timeout: 15_000 }).toMatch(/^98/);
});

it('says so when wasm is refused, and still shows the page', async () => {
  const server = await serve({
    folder: path('build/demo'),
    port: 0,
    policy:
      "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; worker-src 'self'",
  });
  try {
    for (const name of ['', 'numbers/']) {
      const page = await site.open(name, {}, async (page) => {
        await page.route(`${site.url}**`, async (route) => {
          const response = await fetch(route.request().url().replace(site.url, server.url));
          const headers = Object.fromEntries(response.headers);
          await route.fulfill({ status: response.status, headers, body: Buffer.from(await response.arrayBuffer()) });
        });
      });
      await expect.poll(() => page.textContent('#problems')).toContain('forbids WebAssembly');
      expect(await page.isVisible('h1')).toBe(true);
    }
  } finally {
    site.complaints = [];
    await server.close();
  }
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

it('keeps every file of web/demo below 500 lines', () => {
  const long = (folder: string): string[] =>
    readdirSync(path(folder), { withFileTypes: true }).flatMap((entry) => {
      const name = `${folder}/${entry.name}`;
      if (entry.isDirectory()) return long(name);
      return /\.(ts|mjs)$/.test(name) && readFileSync(path(name), 'utf8').split('\n').length > 500 ? [name] : [];
    });
  expect(long('web/demo')).toEqual([]);
});
