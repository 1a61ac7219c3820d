// The built pages behind a server, and a browser to open them in.
import { existsSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { type Browser, chromium } from 'playwright';
import { launchOptions } from '../../../scripts/chromium.mjs';
import { serve } from '../../../scripts/serve.mjs';

/** A path from the root of the project. */
export const path = (name: string) => fileURLToPath(new URL(`../../../${name}`, import.meta.url));

export interface Served {
  readonly server: Awaited<ReturnType<typeof serve>>;
  readonly browser: Browser;
  /** Ends both. */
  close(): Promise<void>;
}

/** Builds the pages if they are not there, serves them, and starts a browser. */
export async function servePages(): Promise<Served> {
  if (!existsSync(path('build/demo/index.html'))) {
    const { build } = await import('vite');
    await build({ configFile: path('vite.config.ts'), logLevel: 'warn' });
  }
  const server = await serve({ folder: path('build/demo'), port: 0 });
  const browser = await chromium.launch(launchOptions);
  const close = async () => {
    await browser.close();
    await server.close();
  };
  return { server, browser, close };
}
