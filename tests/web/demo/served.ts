// The built pages behind a server, and a browser to open them in.
import { existsSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { type Browser, type BrowserContext, chromium, type Page } from 'playwright';
import { expect } from 'vitest';
import { launchOptions, pageOptions } from '../../../scripts/chromium.mjs';
import { serve } from '../../../scripts/serve.mjs';

/** A path from the root of the project. */
export const path = (name: string) => fileURLToPath(new URL(`../../../${name}`, import.meta.url));

export interface Served {
  readonly server: Awaited<ReturnType<typeof serve>>;
  readonly browser: Browser;
  /** Ends both. */
  close(): Promise<void>;
}

/**
 * Builds the pages if they are not there, serves them, and starts a browser.
 * @param whole true: the whole browser, even if the headless shell is there
 * @param folder gives the folder of the pages to serve in place of the build
 */
export async function servePages({
  whole = false,
  folder = () => path('build/demo'),
}: {
  readonly whole?: boolean;
  readonly folder?: () => string;
} = {}): Promise<Served> {
  if (!existsSync(path('build/demo/index.html'))) {
    const { build } = await import('vite');
    await build({ configFile: path('vite.config.ts'), logLevel: 'warn' });
  }
  const server = await serve({ folder: folder(), port: 0 });
  const browser = await chromium.launch(whole ? launchOptions : pageOptions);
  const close = async () => {
    await browser.close();
    await server.close();
  };
  return { server, browser, close };
}

/** The families of fonts that pages are tested in: the widest and the tallest of those that Linux systems come with. */
export const families = ['DejaVu Sans', 'Noto Sans'] as const;

/** Has every page of a context use one family, whichever fonts this machine prefers. The policy of the pages forbids styles of other kinds. */
export async function useFamily(context: BrowserContext, family: (typeof families)[number]): Promise<void> {
  await context.addInitScript((family) => {
    const sheet = new CSSStyleSheet();
    sheet.replaceSync(`:root { font-family: "${family}", monospace !important; }`);
    document.adoptedStyleSheets = [sheet];
  }, family);
}

/** Milliseconds of processor time of the longest task on a page's main thread. Other processes do not count. */
async function longestTask(browser: Browser, page: Page, act: () => Promise<unknown>): Promise<number> {
  await browser.startTracing(page, { categories: ['toplevel', '__metadata'] });
  await act();
  // A task that answers is not over yet, and so not in the trace. The next one is not begun before.
  await page.evaluate(() => {});
  type Event = { name: string; ph: string; pid: number; tid: number; tdur?: number; args: { name?: string } };
  const { traceEvents } = JSON.parse(String(await browser.stopTracing())) as { traceEvents: Event[] };
  const threads = traceEvents.filter(({ name, args }) => name === 'thread_name' && args.name === 'CrRendererMain');
  const main = new Set(threads.map(({ pid, tid }) => `${pid} ${tid}`));
  const tasks = traceEvents.filter(({ ph, pid, tid }) => ph === 'X' && main.has(`${pid} ${tid}`));
  return Math.max(...tasks.map(({ tdur = 0 }) => tdur / 1000));
}

/** Has a page read half a million numbers, in one task. */
async function readNumbers(page: Page): Promise<void> {
  await page.evaluate(() => {
    const text = Array.from({ length: 500_000 }, (_, i) => (i % 1000) / 8).join('\n');
    Object.assign(globalThis, { text });
  });
  await page.evaluate(() => (globalThis as unknown as { text: string }).text.split('\n').map(Number).length);
}

/**
 * Fails if something takes a task that is too long on a page's main thread, by processor time. Allowed is as long as it takes to read half a
 * million numbers, which is near 50 ms on a desktop computer: it grows as the machine gets slower, as tasks do. A machine that does other
 * things makes some tasks longer. One that is too long by itself is so each of three times.
 * @param times how many times as long a task may be
 */
export async function expectShortTasks(
  browser: Browser,
  page: Page,
  act: () => Promise<unknown>,
  times = 1,
): Promise<void> {
  let [allowed, longest] = [0, Number.POSITIVE_INFINITY];
  for (let i = 0; i < 3 && longest >= allowed; i++) {
    allowed = times * (await longestTask(browser, page, () => readNumbers(page)));
    longest = await longestTask(browser, page, act);
  }
  expect(longest).toBeLessThan(allowed);
}
