// The built package in a service worker, which allows no dynamic import: the plain entries say what to do, and scalepoint/inline works.
import { readFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { fileURLToPath } from 'node:url';
import { chromium } from 'playwright';
import { expect, it } from 'vitest';
import { pageOptions } from '../../../scripts/chromium.mjs';

const root = fileURLToPath(new URL('../../../dist/', import.meta.url));

const script = `
import * as arrays from './index.js';
import * as models from './model.js';
import * as inline from './inline.js';
const caught = async (call) => {
  try { return { value: await call() }; } catch (error) { return { error: error.toJSON ? error.toJSON() : String(error) }; }
};
const x = new Float32Array(64).map((_, i) => i);
const calls = {
  arrays: async () => [...(await arrays.load()).quantize([1, 2]).data],
  index: async () => (await arrays.load()).index(x, { shape: [4, 16], bits: 4 }).search(x.subarray(0, 16), 1).indices.length,
  openIndex: async () => arrays.openIndex(new Uint8Array(8)),
  save: async () => models.saveTensors({ x }),
  inspect: async () => (await models.inspectModel(self.model)).format,
  quantize: async () => models.quantizeModel(self.model, { to: 'int8' }),
  verify: async () => models.verifyModel(self.model),
  compare: async () => models.compareModels(self.model, self.model),
  estimate: async () => models.estimateModel(self.model, { to: 'int8' }),
  evaluate: async () => models.evaluateModel(self.model, { text: 'a' }),
  inlineIndex: async () => (await inline.load()).index(x, { shape: [4, 16], bits: 4 }).search(x.subarray(0, 16), 1).indices.length,
  inlineQuantize: async () => (await inline.quantizeModel(self.model, { to: 'int8' })).report.totals.quantized,
};
self.onmessage = async ({ data }) => {
  self.model = await inline.saveTensors({ 'a.weight': { name: 'a.weight', dtype: 'F32', shape: [4, 16], data: x } });
  const results = {};
  for (const [name, call] of Object.entries(calls)) results[name] = await caught(call);
  data.postMessage(results);
};
`;

it('names the entry that works', async () => {
  const made: Record<string, string> = { '/': '<!doctype html><title>x</title>', '/sw.js': script };
  const types: Record<string, string> = { js: 'text/javascript', wasm: 'application/wasm' };
  const server = createServer(async ({ url = '/' }, response) => {
    const type = types[url.split('.').pop() ?? ''] ?? 'text/html';
    response.setHeader('content-type', type).end(made[url] ?? (await readFile(root + url).catch(() => '')));
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const browser = await chromium.launch(pageOptions);
  try {
    const page = await browser.newPage();
    await page.goto(`http://127.0.0.1:${(server.address() as AddressInfo).port}/`);
    const results = await page.evaluate(async () => {
      const registration = await navigator.serviceWorker.register('sw.js', { type: 'module' });
      const worker = registration.installing ?? registration.active;
      const { port1, port2 } = new MessageChannel();
      const answer = new Promise((resolve) => {
        port1.onmessage = ({ data }) => resolve(data);
      });
      worker?.postMessage(port2, [port2]);
      return (await answer) as Record<string, { value?: unknown; error?: { code?: string; message: string } }>;
    });
    expect(results.arrays).toEqual({ value: [64, 127] });
    expect(results.inspect).toEqual({ value: 'safetensors' });
    expect(results.verify).toMatchObject({ value: { format: 'safetensors', problems: [] } });
    for (const name of ['openIndex', 'save', 'quantize', 'compare', 'evaluate', 'estimate']) {
      expect(results[name]?.error, name).toMatchObject({ code: 'IMPORT' });
      expect(results[name]?.error?.message, name).toContain("import from 'scalepoint/inline'");
    }
    for (const name of ['index', 'inlineIndex']) expect(results[name], name).toEqual({ value: 1 });
    expect(results.inlineQuantize).toEqual({ value: 1 });
  } finally {
    await browser.close();
    server.close();
  }
});
