// The static server behind `npm start`.
import { mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { connect } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { parsePort, serve } from '../../../scripts/serve.mjs';

const folder = mkdtempSync(join(tmpdir(), 'scalepoint-serve-'));
const policy = "default-src 'none'; script-src 'self' 'wasm-unsafe-eval'";
let server: Awaited<ReturnType<typeof serve>>;

beforeAll(async () => {
  mkdirSync(join(folder, 'page/assets'), { recursive: true });
  writeFileSync(join(folder, 'secret.txt'), 'secret');
  writeFileSync(join(folder, 'page/.hidden'), 'hidden');
  writeFileSync(
    join(folder, 'page/index.html'),
    `<meta http-equiv="Content-Security-Policy" content="${policy}"><p>hello`,
  );
  writeFileSync(join(folder, 'page/assets/a.js'), 'a');
  writeFileSync(join(folder, 'page/assets/a.wasm'), 'abc');
  symlinkSync(join(folder, 'secret.txt'), join(folder, 'page/link.txt'));
  server = await serve({ folder: join(folder, 'page'), port: 0 });
});

afterAll(async () => {
  await server.close();
  rmSync(folder, { recursive: true });
});

const get = (path: string, method = 'GET') => fetch(new URL(path, server.url), { method });

/** Sends a request with an unchanged path and returns the status code. (fetch would normalize the path.) */
function status(target: string): Promise<string> {
  return new Promise((done, fail) => {
    const socket = connect(Number(new URL(server.url).port), '127.0.0.1', () =>
      socket.write(`GET ${target} HTTP/1.0\r\n\r\n`),
    );
    let text = '';
    socket.on('data', (data) => {
      text += data;
    });
    socket.on('end', () => done(text.split(' ')[1] ?? text));
    socket.on('error', fail);
  });
}

describe('the static server', () => {
  it('sends the content type of each file, and index.html for a folder', async () => {
    expect((await get('assets/a.wasm')).headers.get('content-type')).toBe('application/wasm');
    expect((await get('assets/a.js?v=1')).headers.get('content-type')).toMatch(/^text\/javascript/);
    const page = await get('');
    expect(page.headers.get('content-type')).toMatch(/^text\/html/);
    expect(await page.text()).toContain('hello');
  });

  it("sends the page's own policy with every answer, and lets browsers keep files of the build alone", async () => {
    for (const path of ['', 'assets/a.js', 'nothing', 'assets/nothing.js']) {
      const { headers } = await get(path);
      expect(headers.get('content-security-policy')).toBe(`${policy}; frame-ancestors 'none'`);
      expect(headers.get('x-content-type-options')).toBe('nosniff');
      const lasts = path === 'assets/a.js';
      expect(headers.get('cache-control')).toBe(lasts ? 'public, max-age=31536000, immutable' : 'no-store');
    }
  });

  it('sends each page its policy, and other files that of the page for models', async () => {
    mkdirSync(join(folder, 'page/model'));
    const wider = `${policy}; connect-src https://hub.test`;
    writeFileSync(
      join(folder, 'page/model/index.html'),
      `<meta http-equiv="Content-Security-Policy" content="${wider}">`,
    );
    const policies = await Promise.all(
      ['', 'model/', 'assets/a.js'].map(async (path) => (await get(path)).headers.get('content-security-policy')),
    );
    rmSync(join(folder, 'page/model'), { recursive: true });
    expect(policies).toEqual([policy, wider, wider].map((own) => `${own}; frame-ancestors 'none'`));
  });

  it('answers HEAD like GET but without a body, and refuses other methods', async () => {
    const answer = await get('assets/a.wasm', 'HEAD');
    expect([answer.status, answer.headers.get('content-length'), await answer.text()]).toEqual([200, '3', '']);
    expect((await get('', 'POST')).status).toBe(405);
  });

  it('serves no file outside of its folder', async () => {
    expect(await status('/assets/a.js')).toBe('200');
    const targets = [
      '/../secret.txt',
      '/assets/../../secret.txt',
      '/%2e%2e/secret.txt',
      '/..%2fsecret.txt',
      '//secret.txt',
      '/%00',
      '/%',
      '/link.txt',
      '/.hidden',
      '/assets',
      `/${folder}/secret.txt`,
    ];
    for (const target of targets) expect(await status(target), target).toBe('404');
  });

  it('takes the next free port if the first one is in use', async () => {
    const port = Number(new URL(server.url).port);
    const second = await serve({ folder: join(folder, 'page'), port });
    expect(Number(new URL(second.url).port)).toBeGreaterThan(port);
    await second.close();
  });

  it('refuses text that is not a port number', () => {
    expect(parsePort('9000')).toBe(9000);
    for (const text of ['', '-1', '65536', '80 ', '1e3', 'abc']) expect(() => parsePort(text)).toThrow(RangeError);
  });
});
