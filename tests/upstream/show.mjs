// Shows faults of onnxruntime-web in Chromium, with WebGPU on SwiftShader, and prints what each gives.
//   node tests/upstream/show.mjs [--web FOLDER] [--out FOLDER]
// --web: another onnxruntime-web than that installed. --out: writes the page and the models, to attach to a report.
import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { chromium } from 'playwright';
import { launchOptions } from '../../scripts/chromium.mjs';
import { faults } from './models.mjs';

const { values } = parseArgs({
  options: {
    web: { type: 'string', default: fileURLToPath(new URL('../../node_modules/onnxruntime-web', import.meta.url)) },
    out: { type: 'string' },
  },
});

/** Files beside the page. @type {Map<string, Uint8Array | string>} */
const files = new Map([['index.html', readFileSync(new URL('index.html', import.meta.url), 'utf8')]]);
const withoutFiles = (/** @type {string} */ key, /** @type {unknown} */ value) => (key === 'file' ? '' : value);
files.set('faults.json', JSON.stringify(faults, withoutFiles));
for (const [name, fault] of Object.entries(faults)) {
  if (fault.file !== undefined) files.set(`${name}.onnx`, fault.file);
  for (const [key, value] of Object.entries(fault)) {
    if (value.file !== undefined) files.set(`${name}-${key}.onnx`, value.file);
  }
}

if (values.out !== undefined) {
  mkdirSync(values.out, { recursive: true });
  for (const [name, bytes] of files) writeFileSync(join(values.out, name), bytes);
} else {
  const server = createServer((request, response) => {
    const path = new URL(request.url ?? '/', 'http://localhost').pathname.slice(1) || 'index.html';
    const file = join(values.web, 'dist', path.replace(/^web\//, ''));
    const body = files.get(path) ?? (path.startsWith('web/') && existsSync(file) ? readFileSync(file) : undefined);
    const type = path.endsWith('js') ? 'text/javascript' : path.endsWith('html') ? 'text/html' : 'application/wasm';
    response.writeHead(body === undefined ? 404 : 200, { 'content-type': type });
    response.end(body);
  });
  await new Promise((done) => server.listen(0, 'localhost', () => done(undefined)));
  const args = launchOptions.args.filter((argument) => argument !== '--disable-gpu');
  const browser = await chromium.launch({
    ...launchOptions,
    args: [...args, '--enable-unsafe-webgpu', '--use-webgpu-adapter=swiftshader'],
  });
  const page = await browser.newPage();
  await page.goto(`http://localhost:${/** @type {import('node:net').AddressInfo} */ (server.address()).port}`);
  await page.waitForFunction(() => 'results' in globalThis, undefined, { timeout: 300_000 });
  console.log(await page.textContent('#version'));
  for (const line of await page.locator('dt, dd').allTextContents()) console.log(line);
  await browser.close();
  server.close();
}
