// A page reads models of the hub and pushes results, by the same client, over three origins.
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { fileURLToPath } from 'node:url';
import { chromium } from 'playwright';
import { rolldown } from 'rolldown';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { launchOptions } from '../../../scripts/chromium.mjs';
import { startHub } from '../support/hub/hub.mjs';
import { hex } from '../support/hub/store.mjs';
import { languageModel } from './support.js';

/** The library and the client, as a page bundles them. */
const entry = `
import * as client from '@huggingface/hub';
import { hubModel, pushModel, readTensor } from ${JSON.stringify(fileURLToPath(new URL('../../../web/src/model.ts', import.meta.url)))};
globalThis.run = async ({ endpoint, token, repository }) => {
  const source = await hubModel('acme/tiny', { endpoint, token });
  const tensor = await readTensor(source, 'model.norm.weight');
  const content = new Blob([new Uint8Array(2_000_000).map((_, i) => i ^ (i >> 8))]);
  const files = [{ path: 'a.gguf', content }, { path: 'note.json', content: new Blob([String(tensor.data.length)]) }];
  const options = { endpoint, token, repository, source, client, card: [{ file: 'a.gguf', type: 'Q8_0', bytes: content.size }] };
  const first = await pushModel(files, options);
  return [first, await pushModel(files, options)];
};
`;

let code = '';
beforeAll(async () => {
  const resolve = {
    alias: {
      '@huggingface/hub': fileURLToPath(import.meta.resolve('@huggingface/hub')).replace(
        /dist.*/,
        'dist/browser/index.mjs',
      ),
    },
  };
  const app = {
    name: 'app',
    resolveId: (id: string) => (id === 'app.js' ? id : undefined),
    load: (id: string) => (id === 'app.js' ? entry : undefined),
  };
  const bundle = await rolldown({
    input: 'app.js',
    plugins: [app],
    resolve,
    platform: 'browser',
    external: [/^node:/],
  });
  const { output } = await bundle.generate({ format: 'esm', codeSplitting: false });
  await bundle.close();
  code = output[0].code;
});

const server = createServer(({ url }, response) => {
  response.setHeader('Content-Type', url === '/app.js' ? 'text/javascript' : 'text/html');
  response.end(url === '/app.js' ? code : '<!doctype html><script type="module" src="app.js"></script>');
});
afterAll(() => void server.close());

it.each(['basic', 'xet'] as const)('pushes from a page by %s, and a second time nothing', async (uploads) => {
  const token = 'hf_of_a_page';
  const hub = await startHub({
    uploads,
    tokens: { [token]: { user: 'me' } },
    repositories: { 'acme/tiny': { files: languageModel(), gated: 'auto' }, 'acme/other': { files: {} } },
  });
  const browser = await chromium.launch(launchOptions);
  try {
    if (!server.listening) await new Promise<void>((done) => server.listen(0, '127.0.0.1', done));
    const page = await browser.newPage();
    await page.goto(`http://127.0.0.1:${(server.address() as AddressInfo).port}/`);
    await page.waitForFunction(() => 'run' in globalThis);
    hub.tokens.set(token, { user: 'me', gated: ['acme/tiny'] });
    const options = { endpoint: hub.endpoint, token, repository: 'me/page-GGUF' };
    const [first, second] = await page.evaluate(
      (given) =>
        (globalThis as unknown as { run(options: object): Promise<{ pushed: string[]; isPrivate: boolean }[]> }).run(
          given,
        ),
      options,
    );
    expect([first?.pushed, first?.isPrivate]).toEqual([['a.gguf', 'note.json', 'README.md'], true]);
    const found = hub.repositories.get('me/page-GGUF');
    const bytes = new Uint8Array(2_000_000).map((_, i) => i ^ (i >> 8));
    expect(hex('sha256', found?.bytes('a.gguf') ?? '')).toBe(hex('sha256', bytes));
    expect(second?.pushed).toEqual([]);
    const uploaded = hub.requests.filter(({ origin, method }) => origin !== 'hub' && ['PUT', 'POST'].includes(method));
    expect(uploaded.length).toBe({ basic: 1, xet: 2 }[uploads]);
    const elsewhere = hub.requests.filter(
      ({ origin, headers }) => origin !== 'hub' && headers.authorization?.includes(token),
    );
    expect(elsewhere).toEqual([]);
  } finally {
    await browser.close();
    await hub.close();
  }
});
