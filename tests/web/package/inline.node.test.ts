// scalepoint/inline: one file, in any form of bundle, with nothing beside it.
import { execFile } from 'node:child_process';
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { type Browser, chromium } from 'playwright';
import { rolldown } from 'rolldown';
import { quantizeModel } from 'scalepoint/model';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { pageOptions } from '../../../scripts/chromium.mjs';
import { serve } from '../../../scripts/serve.mjs';
import { safetensors, weights } from '../support/models.js';

const dist = fileURLToPath(new URL('../../../dist/inline.js', import.meta.url));
const folder = mkdtempSync(join(tmpdir(), 'scalepoint-inline-'));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

const model = safetensors({ 'a.weight': weights('F32', [64, 256]), 'b.weight': weights('F32', [32, 256], 2) });
/** The output of the program below: codes, the digest of a model made with two workers, and its notes. */
async function expected(): Promise<unknown> {
  const { bytes } = await quantizeModel(model, { to: 'int8', workers: 0 });
  return [[42, 85, -127], true, [...(await bytes())].join()];
}
const program = `
  import { load, quantizeModel } from ${JSON.stringify(dist)};
  const run = async () => {
    const sp = await load();
    const model = Uint8Array.from(${JSON.stringify([...model])});
    const { report, bytes } = await quantizeModel(model, { to: 'int8', workers: 2 });
    const result = [...sp.quantize([1, 2, -3]).data];
    return [result, sp.simd, [...(await bytes())].join(), report.notes.map(({ text }) => text).join()];
  };
  globalThis.answer = run().catch((error) => error.code + ': ' + error.message);
  if (typeof document === 'undefined') globalThis.answer.then((result) => console.log(JSON.stringify(result)));
`;

async function bundle(format: 'esm' | 'cjs' | 'iife'): Promise<string> {
  const input = join(folder, 'program.mjs');
  writeFileSync(input, program);
  const bundled = await rolldown({ input });
  const place = join(folder, format);
  mkdirSync(place, { recursive: true });
  const file = join(place, `bundle.${format === 'esm' ? 'mjs' : format === 'cjs' ? 'cjs' : 'js'}`);
  await bundled.write({ file, format, minify: true });
  await bundled.close();
  return file;
}

beforeAll(() => {
  if (!existsSync(dist)) throw new Error('there is no dist/: build first, with npm run build');
});

it('finds nothing beside itself, and evaluates no text', () => {
  // A message has code to write.
  const message = "`new URL('$" + "{source}', import.meta.url)`";
  const text = readFileSync(dist, 'utf8').replace(message, '');
  // A runtime of ONNX models is imported by its name, where a call asks for it.
  expect(text).not.toMatch(/import\.meta|\bimport\s*\(\s*["'`]|^import\s/m);
  expect(text).not.toMatch(/\bnew Function\b|(?<![\w$.])eval\(/);
});

describe.each(['esm', 'cjs'] as const)('bundled as %s, in Node', (format) => {
  it('gives what the files give', async () => {
    const { stdout } = await promisify(execFile)(process.execPath, [await bundle(format)], { cwd: tmpdir() });
    const [codes, simd, bytes, notes] = JSON.parse(stdout);
    expect([codes, simd, bytes]).toEqual(await expected());
    expect(notes).not.toContain('workers');
  });
});

describe('bundled as a classic script, in a page', () => {
  let browser: Browser;
  beforeAll(async () => {
    await bundle('iife');
    writeFileSync(
      join(folder, 'iife/index.html'),
      '<!doctype html><title>page</title><script src="bundle.js"></script>',
    );
    browser = await chromium.launch(pageOptions);
  });
  afterAll(() => browser?.close());

  it.each([
    ['with workers, if the policy allows them', 'blob:', false],
    ['without, if not', "'none'", true],
  ])('gives what the files give, %s', async (_what, workers, noted) => {
    const policy = `default-src 'none'; script-src 'self' 'wasm-unsafe-eval'; worker-src ${workers}`;
    const { url, close } = await serve({ folder: join(folder, 'iife'), port: 0, policy });
    try {
      const tab = await browser.newPage();
      await tab.goto(url);
      const [codes, simd, bytes, notes] = (await tab.evaluate('globalThis.answer')) as unknown[];
      expect([codes, simd, bytes]).toEqual(await expected());
      expect(String(notes).includes('without workers')).toBe(noted);
      await tab.close();
    } finally {
      await close();
    }
  });
});
