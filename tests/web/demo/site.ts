// Shared by the tests of the site: the built pages in one browser, where tests share a page if they can.
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { brotliCompressSync } from 'node:zlib';
import type { Browser, BrowserContext, BrowserContextOptions, Page } from 'playwright';
import { afterAll, afterEach, beforeAll, expect } from 'vitest';
import { hangLimit } from '../../../scripts/chromium.mjs';
import { expectShortTasks, families, path, type Served, servePages, useFamily } from './served.js';

export { families, path };

/** The sample model that is served beside the pages. */
export const sample = path('web/demo/public/samples/digits.safetensors');

/** Settings of an opened page. */
interface SiteOptions extends BrowserContextOptions {
  /** The family of its font. The default is the first. */
  readonly family?: (typeof families)[number];
}

/** A site in a browser. */
export interface Site {
  readonly url: string;
  page: Page;
  /** Errors, warnings, and requests to other servers. It must be empty after each test; a test removes what it expects. */
  complaints: string[];
  /**
   * Opens a page of the site. Tests that ask for no more than a viewport and a color scheme have the same tab, emptied in between; others
   * have a context of their own.
   */
  open(path?: string, options?: SiteOptions, prepare?: (page: Page) => Promise<void>): Promise<Page>;
  /** Findings of axe on a part of the page. */
  axe(selector?: string): Promise<string[]>;
  /**
   * Fails if something takes a task that is too long on the page's main thread.
   * @param act starts with a page of its own each time
   * @param times how many times as long a task may be
   */
  expectShortTasks(act: () => Promise<unknown>, times?: number): Promise<void>;
}

const compressed = new Map<string, number>();

/** Bytes of a file of the site as servers send it, by its path below the root. */
export function brotliBytes(name: string): number {
  const file = `build/demo${name.endsWith('/') ? `${name}index.html` : name}`;
  const known = compressed.get(file) ?? brotliCompressSync(readFileSync(path(file))).length;
  compressed.set(file, known);
  return known;
}

/** Starts a server and a browser for the tests of a file. */
export function startSite(options?: Parameters<typeof servePages>[0]): Site {
  let served: Served | undefined;
  let server: Served['server'];
  let browser: Browser;
  /** The context of the test that runs, if it is its own. */
  let context: BrowserContext | undefined;
  /** The tab that tests share. A test that fails takes it down. */
  let shared: Page | undefined;
  const axeSource = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');
  const site: Site = {
    get url() {
      return server.url;
    },
    page: undefined as unknown as Page,
    complaints: [],
    async open(name = '', options = {}, prepare) {
      await context?.close();
      context = undefined;
      const { viewport = { width: 1280, height: 900 }, colorScheme = 'light', ...others } = options;
      if (prepare === undefined && Object.keys(others).length === 0) {
        if (shared === undefined) shared = await newPage({});
        else if (shared.url() !== 'about:blank') await leave(shared);
        site.page = shared;
        if (viewport !== null) await shared.setViewportSize(viewport);
        await shared.emulateMedia({ colorScheme });
      } else {
        site.page = await newPage({ ...others, viewport, colorScheme });
        context = site.page.context();
        await prepare?.(site.page);
      }
      await site.page.goto(server.url + name);
      return site.page;
    },
    async axe(selector = 'body') {
      // Code that the debugger evaluates is not subject to the page's policy.
      await site.page.evaluate(`if (!globalThis.axe) { ${axeSource} }`);
      return site.page.evaluate(async (selector) => {
        const { axe } = globalThis as unknown as {
          axe: {
            run(context: string, options: object): Promise<{ violations: { id: string; nodes: { html: string }[] }[] }>;
          };
        };
        const { violations } = await axe.run(selector, { resultTypes: ['violations'], preload: false });
        return violations.map(({ id, nodes }) => `${id}: ${nodes.map(({ html }) => html.slice(0, 160)).join(' | ')}`);
      }, selector);
    },
    expectShortTasks: (act, times) => expectShortTasks(browser, site.page, act, times),
  };
  /** Makes a page in a context of its own. */
  async function newPage({ family = families[0], ...options }: SiteOptions): Promise<Page> {
    const made = await browser.newContext({ reducedMotion: 'reduce', serviceWorkers: 'block', ...options });
    await useFamily(made, family);
    const page = await made.newPage();
    page.setDefaultTimeout(hangLimit);
    // The page draws with the next frame: an act of a test ends when that frame is drawn. A click may leave the page.
    for (const name of ['click', 'fill', 'check', 'uncheck', 'selectOption', 'setInputFiles', 'press'] as const) {
      const act = page[name].bind(page) as (...given: unknown[]) => Promise<unknown>;
      const drawn = async (...given: unknown[]) => {
        const result = await act(...given);
        await page
          .evaluate(
            (most) => Promise.race([new Promise(requestAnimationFrame), new Promise((f) => setTimeout(f, most))]),
            1000,
          )
          .catch(() => {});
        return result;
      };
      Object.assign(page, { [name]: drawn });
    }
    page.on('pageerror', (error) => site.complaints.push(`uncaught: ${error.message}`));
    page.on('console', (message) => {
      if (!message.text().includes('blocked by Playwright')) site.complaints.push(message.text());
    });
    page.on('request', (request) => {
      const address = request.url();
      if (!/^(blob|data):/.test(address) && !address.startsWith(server.url)) {
        site.complaints.push(`request to ${address}`);
      }
    });
    await page.addInitScript(() => {
      addEventListener('securitypolicyviolation', (event) => {
        console.error(`policy: ${event.violatedDirective} ${event.blockedURI}`);
      });
      // A test cannot answer the save dialog. Without one the page writes to the origin private file system.
      delete (globalThis as { showSaveFilePicker?: unknown }).showSaveFilePicker;
    });
    return page;
  }
  /** Empties the shared tab, with all that a test can have left behind with it. */
  async function leave(page: Page): Promise<void> {
    await page.unrouteAll();
    await page.goto('about:blank');
    const session = await page.context().newCDPSession(page);
    await session.send('Storage.clearDataForOrigin', { origin: new URL(server.url).origin, storageTypes: 'all' });
    await session.send('Page.resetNavigationHistory');
    await session.detach();
    await page.mouse.move(0, 0);
  }
  beforeAll(async () => {
    served = await servePages(options);
    ({ server, browser } = served);
  });
  afterAll(() => served?.close());
  afterEach(async ({ task }) => {
    await context?.close();
    context = undefined;
    if (task.result?.state === 'fail') {
      await shared?.context().close();
      shared = undefined;
    } else if (shared !== undefined && shared.url() !== 'about:blank') await leave(shared);
    const seen = site.complaints;
    site.complaints = [];
    expect(seen).toEqual([]);
  });
  return site;
}

/** The contrast of WCAG 2.2 of an element's text on its own background, which both are given as rgb(): 4.5 is its least. */
export function contrastOf(page: Page, selector: string): Promise<number> {
  return page.$eval(selector, (node) => {
    const { color, backgroundColor } = getComputedStyle(node);
    const [a, b] = [color, backgroundColor].map((text) => {
      const [red, green, blue] = (text.match(/[\d.]+/g) ?? []).map((v) => {
        const part = Number(v) / 255;
        return part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
      }) as [number, number, number];
      return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
    }) as [number, number];
    return (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
  });
}
