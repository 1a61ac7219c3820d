// The recipes that need a server, a service worker or an extension, each where it runs.
import { cpSync, mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { createServer, request, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { chromium } from 'playwright';
import { load } from 'scalepoint';
import { quantizeModel } from 'scalepoint/model';
import { afterAll, expect, it } from 'vitest';
import { hangLimit, launchOptions, pageOptions } from '../../../../scripts/chromium.mjs';
import { blocksIn } from '../../support/examples.js';
import { path as root } from '../served.js';

const folder = mkdtempSync(join(tmpdir(), 'scalepoint-recipes-'));
mkdirSync(join(folder, 'node_modules'));
symlinkSync(root('.'), join(folder, 'node_modules/scalepoint'), 'junction');
afterAll(() => rmSync(folder, { recursive: true, force: true }));

const blocks = blocksIn(readFileSync(root('web/demo/guide/09-recipes.md'), 'utf8'));
/** The recipes of a kind, by the names of their files. */
const recipes = (kind: string) =>
  new Map(
    blocks.flatMap(({ language, code }) =>
      language === kind ? [[/^\/\/ (\S+)\n/.exec(code)![1]!, code] as const] : [],
    ),
  );
const sample = root('web/demo/public/samples/digits.safetensors');
const bytes = readFileSync(sample);

/** Has a server listen to a free port. Returns its address. */
async function listen(server: Server): Promise<string> {
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}/`;
}

it('takes uploads on a server', async () => {
  const file = join(folder, 'server.mjs');
  // The limit is near the size of the sample, so that a test can exceed it.
  const code = recipes('js node').get('server.mjs')!.replace('[2e9, 2]', `[${bytes.length}, 2]`);
  expect(code).toContain(`[${bytes.length}, 2]`);
  writeFileSync(file, code);
  const { server } = (await import(pathToFileURL(file).href)) as { server: Server };
  const url = await listen(server);
  const post = async (body: BodyInit) => {
    const answer = await fetch(url, { method: 'POST', body, duplex: 'half' } as RequestInit);
    return [answer.status, Buffer.from(await answer.arrayBuffer())] as const;
  };
  /** An upload that does not say its length. */
  const stream = (...chunks: Uint8Array[]) =>
    new ReadableStream({
      start(controller) {
        for (const chunk of chunks) controller.enqueue(chunk);
        controller.close();
      },
    });
  try {
    const expected = await (await quantizeModel(sample, { to: 'int8' })).bytes();
    expect(await post(bytes)).toEqual([200, Buffer.from(expected)]);
    expect(await post(stream(bytes))).toEqual([200, Buffer.from(expected)]);
    expect((await fetch(url)).status).toBe(405);
    const long = Buffer.concat([bytes, Buffer.alloc(1)]);
    for (const body of [long, stream(long)]) {
      const [status, text] = await post(body);
      expect([status, String(text)]).toEqual([413, `more than ${bytes.length} bytes`]);
    }
    const [status, text] = await post(Buffer.from('no model'));
    expect(status).toBe(422);
    expect(String(text)).toContain('supported are');
    // Two clients that send nothing take both places. A third one is refused until one goes away.
    const slow = [1, 2].map(() => {
      const client = request(url, { method: 'POST', headers: { 'content-length': 100 } });
      client.on('error', () => {});
      client.flushHeaders();
      return client;
    });
    await expect.poll(async () => (await post(bytes))[0]).toBe(503);
    slow[0]!.destroy();
    await expect.poll(async () => (await post(bytes))[0]).toBe(200);
    slow[1]!.destroy();
  } finally {
    server.closeAllConnections();
    server.close();
  }
});

it('keeps vectors offline in a service worker', async () => {
  const floats = Float32Array.from({ length: 64 * 100 }, (_, i) => Math.sin(i * i));
  const sp = await load();
  const q = sp.quantize(floats, { dtype: 'int8', granularity: { kind: 'per-group', groupSize: 64 } });
  const expected = [...sp.dequantize(q)];
  const worker = recipes('js worker');
  let asked = 0;
  const files: Record<string, () => Uint8Array | string> = {
    '/': () => '<!doctype html><title>x</title>',
    '/page.js': () => worker.get('page.js')!,
    '/service-worker.js': () => worker.get('service-worker.js')!.replace("'scalepoint/inline'", "'./inline.js'"),
    '/inline.js': () => readFileSync(root('dist/inline.js')),
    '/vectors.f32': () => {
      asked++;
      return new Uint8Array(floats.buffer);
    },
  };
  const server = createServer((request, response) => {
    const file = files[request.url ?? ''];
    response.writeHead(file === undefined ? 404 : 200, {
      'content-type': request.url?.endsWith('.js') ? 'text/javascript' : 'text/html',
    });
    response.end(file?.());
  });
  const url = await listen(server);
  const browser = await chromium.launch(pageOptions);
  try {
    const page = await browser.newPage();
    await page.goto(url);
    await page.evaluate("import('/page.js')");
    // A worker answers the requests of pages that are opened after it.
    await page.reload();
    const read = () =>
      page.evaluate(async () => [...new Float32Array(await (await fetch('/vectors.f32')).arrayBuffer())]);
    expect(await read()).toEqual(expected);
    server.closeAllConnections();
    await new Promise((resolve) => server.close(resolve));
    expect(await read()).toEqual(expected);
    expect(asked).toBe(1);
    const stored = await page.evaluate(async () => {
      const answer = await (await caches.open('vectors')).match('/vectors.f32');
      return (await answer!.arrayBuffer()).byteLength;
    });
    expect(stored).toBeLessThan(floats.byteLength * 0.3);
  } finally {
    await browser.close();
    server.close();
  }
});

it('runs in an extension of Chromium', async () => {
  const extension = join(folder, 'extension');
  cpSync(root('dist'), join(extension, 'scalepoint'), { recursive: true });
  const manifest = blocks.find(({ language, code }) => language === 'json' && code.includes('manifest_version'))!.code;
  writeFileSync(join(extension, 'manifest.json'), manifest);
  for (const [name, code] of recipes('js extension')) writeFileSync(join(extension, name), code);
  const page = '<!doctype html><input type="file" /><script type="module" src="page.js"></script>';
  writeFileSync(join(extension, 'page.html'), page);
  // The headless shell has no extensions.
  const context = await chromium.launchPersistentContext(join(folder, 'profile'), {
    executablePath: launchOptions.executablePath,
    args: [...launchOptions.args, `--disable-extensions-except=${extension}`, `--load-extension=${extension}`],
    ignoreDefaultArgs: ['--disable-extensions'],
    channel: 'chromium',
  });
  try {
    const background = context.serviceWorkers()[0] ?? (await context.waitForEvent('serviceworker'));
    const tab = await context.newPage();
    tab.setDefaultTimeout(hangLimit);
    await tab.goto(new URL('page.html', background.url()).href);
    await tab.setInputFiles('input', sample);
    const [download] = await Promise.all([tab.waitForEvent('download'), tab.click('a')]);
    const expected = await (await quantizeModel(sample, { to: 'int8' })).bytes();
    expect(new Uint8Array(readFileSync(await download.path()))).toEqual(expected);
    const codes = await tab.evaluate('chrome.runtime.sendMessage([0.5, 1])');
    expect(codes).toEqual([...(await load()).quantize([0.5, 1], { dtype: 'int8' }).data]);
  } finally {
    await context.close();
  }
});
