// The page for model files, in a browser.
import {
  closeSync,
  ftruncateSync,
  mkdtempSync,
  openSync,
  readFileSync,
  rmSync,
  writeFileSync,
  writeSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Page } from 'playwright';
import { afterAll, expect, it } from 'vitest';
import { estimateModel, planModel, quantizeModel } from '../../../../web/src/model.js';
import { safetensors, weights } from '../../support/models.js';
import { npy } from '../../support/npz.js';
import { tinyLlama } from '../../support/tiny-llama.js';
import { brotliBytes, contrastOf, sample, startSite } from '../site.js';

const site = startSite();
const folder = mkdtempSync(join(tmpdir(), 'scalepoint-model-'));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

let page: Page;
const open = async (...options: Parameters<typeof site.open> | []) => {
  page = await site.open(options[0] ?? 'model/', options[1], options[2]);
};
const fileOf = (name: string, bytes: Uint8Array) => ({ name, mimeType: '', buffer: Buffer.from(bytes) });
const openFile = (...files: (string | ReturnType<typeof fileOf>)[]) =>
  page.setInputFiles('#file', files as string[] | ReturnType<typeof fileOf>[]);

const size = () => page.locator('#model-size').evaluate((data) => Number((data as HTMLDataElement).value));
const status = () => page.textContent('#model-status');
/** Waits until the page shows a size that differs from `before`. */
const planned = (before = 0) =>
  page.waitForFunction((old) => {
    const size = Number((document.querySelector('#model-size') as HTMLDataElement | null)?.value);
    const { hidden } = document.querySelector('#opened') as HTMLElement;
    return size > 0 && size !== old && !hidden;
  }, before);
/** Waits until everything is measured. */
const measured = () => expect.poll(() => page.textContent('#worst-basis')).toBe('Measured on all numbers.');
/** The texts of a column of the table. */
const column = (name: string) =>
  page.$$eval(
    '#model-rows tr:not(.space)',
    (rows, name) =>
      rows.map((row) =>
        name === 'Tensor'
          ? (row.querySelector('.name')?.textContent ?? '')
          : (row.querySelector(`[data-column="${name}"]`)?.textContent ?? ''),
      ),
    name,
  );
const focused = () => page.evaluate(() => document.activeElement?.id ?? '');

/** Runs the quantization and returns the downloaded file. */
async function save(): Promise<{ name: string; bytes: Buffer }> {
  const [download] = await Promise.all([page.waitForEvent('download'), page.click('#model-run')]);
  return { name: download.suggestedFilename(), bytes: readFileSync(await download.path()) };
}

/** Drops a file onto the header of the page. */
async function drop(name: string, bytes: Uint8Array): Promise<void> {
  const overlay = await page.evaluate(
    ([name, base64]) => {
      const dataTransfer = new DataTransfer();
      dataTransfer.items.add(new File([Uint8Array.from(atob(base64), (char) => char.charCodeAt(0))], name));
      return ['dragover', 'drop'].map((type) => {
        const event = new DragEvent(type, { dataTransfer, bubbles: true, cancelable: true });
        document.querySelector('header')?.dispatchEvent(event);
        return event.defaultPrevented && document.getElementById('overlay')?.hidden === (type === 'drop');
      });
    },
    [name, Buffer.from(bytes).toString('base64')] as const,
  );
  expect(overlay).toEqual([true, true]);
}

it('tells size and error of each preset before anything is saved, as the package has them', async () => {
  await open();
  await page.click('#sample');
  await measured();
  for (const [preset, to] of [
    ['small', 'int4'],
    ['balanced', 'int8'],
    ['safe', 'bfloat16'],
  ] as const) {
    const card = page.locator('.offer', { has: page.locator(`input[value="${preset}"]`) });
    const { totals, tensors } = await estimateModel(sample, { to, sample: Number.POSITIVE_INFINITY });
    expect(await card.textContent()).toContain(to);
    expect(await card.locator('.offer-size').textContent()).toBe(
      `${(totals.bytesAfter / 1000).toFixed(totals.bytesAfter < 99_950 ? 1 : 0)}\u00a0kB`,
    );
    let [signal, noise] = [0, 0];
    for (const { error, shape } of tensors) {
      if (error === undefined) continue;
      const own = error.mse * shape.reduce((a, b) => a * b, 1);
      noise += own;
      signal += own * 10 ** (error.sqnrDb / 10);
    }
    expect(await card.locator('.offer-loss').textContent()).toContain(
      `${Math.round(10 * Math.log10(signal / noise))} dB`,
    );
  }
});

it('saves the same bytes as the package, in the planned size, and says what to do with them', async () => {
  await open();
  await openFile(sample);
  await planned();
  let before = 0;
  for (const preset of ['balanced', 'safe', 'small'] as const) {
    await page.check(`input[value="${preset}"]`, { force: true });
    await planned(before);
    before = await size();
    const to = { balanced: 'int8', safe: 'bfloat16', small: 'int4' }[preset] as 'int8';
    const { name, bytes } = await save();
    expect(name).toBe(`digits.${to}.safetensors`);
    expect(bytes.length).toBe(before);
    const expected = await quantizeModel(sample, { to });
    expect(Buffer.compare(bytes, await expected.bytes())).toBe(0);
    await expect.poll(() => page.textContent('#saved-title')).toContain(`Saved digits.${to}.safetensors`);
  }
  // It is no language model, which vLLM would serve.
  expect(await page.textContent('#readers')).not.toContain('vLLM');
  expect(await page.textContent('#readers')).toContain("readFloats('digits.int4.safetensors'");
  const saved = async (button: string) => {
    const [download] = await Promise.all([page.waitForEvent('download'), page.click(button)]);
    return { name: download.suggestedFilename(), text: readFileSync(await download.path(), 'utf8') };
  };
  const config = await saved('#model-config');
  expect(config.name).toBe('config.json');
  expect(JSON.parse(config.text).quantization_config.quant_method).toBe('compressed-tensors');
  const report = await saved('#model-json');
  expect(JSON.parse(report.text).totals.bytesAfter).toBe(before);
  const csv = await saved('#model-csv');
  expect(csv.text.split('\r\n')).toHaveLength(10);
  expect(csv.text).toContain('"fc1.weight","128x256",F32,I4,131072,17424,');
});

it('saves the settings that older loaders of GPTQ and AWQ read', async () => {
  await open();
  await openFile(sample);
  await planned();
  expect(await page.isVisible('#model-settings')).toBe(false);
  await page.click('.settings > summary');
  for (const [to, file] of [
    ['gptq', 'quantize_config.json'],
    ['awq', 'quant_config.json'],
  ] as const) {
    await page.selectOption('#model-target', to);
    await expect.poll(() => page.textContent('#model-command')).toContain(`--to ${to}`);
    await save();
    await expect.poll(() => page.textContent('#model-settings')).toBe(`Save ${file}`);
    const [download] = await Promise.all([page.waitForEvent('download'), page.click('#model-settings')]);
    expect(download.suggestedFilename()).toBe(file);
    const { quantizeConfig, quantConfig } = await quantizeModel(sample, { to, workers: 0 });
    expect(JSON.parse(readFileSync(await download.path(), 'utf8'))).toEqual(quantizeConfig ?? quantConfig);
  }
});

it('opens .gguf, .onnx and .npy by their content, and quantizes each', async () => {
  await open();
  const gguf = tinyLlama({ layers: 2 });
  await openFile(fileOf('tiny.bin', gguf));
  await planned();
  expect(await page.textContent('#model-facts')).toContain('GGUF');
  const { name, bytes } = await save();
  expect(name).toBe('tiny-Q4_K_M.gguf');
  const expected = await quantizeModel(gguf, { to: 'Q4_K_M' });
  expect(Buffer.compare(bytes, await expected.bytes())).toBe(0);
  expect(await page.textContent('#readers')).toContain('llama-cli');

  // The result can be opened. What is quantized already is not quantized again unless that is asked for.
  await openFile(fileOf('tiny-Q4_K_M.gguf', bytes));
  // One sentence stands in place of the presets, which have nothing to offer, and one button accepts it.
  await expect
    .poll(status)
    .toMatch(/^This file is quantized already \(Q4_K.*\): quantizing it again adds to its errors\.$/);
  expect(await page.textContent('#problems')).toBe('');
  for (const id of ['where', 'sizes', 'model-run']) expect(await page.isVisible(`#${id}`), id).toBe(false);
  await page.click('#model-again');
  await planned();
  await page.check('input[value="safe"]', { force: true });
  await planned();
  expect(await page.textContent('#model-command')).toContain('--to Q8_0 --requantize');

  const values = Float32Array.from({ length: 64 * 64 }, (_, i) => Math.sin(i));
  await openFile(fileOf('wave.npy', npy('<f4', '(64, 64)', values.buffer)));
  await expect.poll(() => page.textContent('#model-name')).toBe('wave.npy');
  await planned();
  expect((await save()).name).toBe('wave.int8.safetensors');
});

it('says that a preset changes nothing', async () => {
  await open();
  const file = safetensors({ 'a.weight': weights('BF16', [64, 64]) });
  await openFile(fileOf('half.safetensors', file));
  const safe = page.locator('.offer', { has: page.locator('input[value="safe"]') });
  await expect.poll(() => safe.textContent()).toContain('Changes nothing: this file is BF16 already.');
  await page.check('input[value="safe"]', { force: true });
  await expect.poll(status).toBe('Nothing to convert with these settings.');
  expect(await page.isDisabled('#model-run')).toBe(true);
  // Indices are no weights: nothing here is in four bits already.
  const odd = { 'a.weight': weights('F32', [2, 3]), shape: { dtype: 'I64', shape: [2], data: new Uint8Array(16) } };
  await openFile(fileOf('odd.safetensors', safetensors(odd)));
  const small = page.locator('.offer', { has: page.locator('input[value="small"]') });
  await expect.poll(() => small.textContent()).toContain('Changes nothing: no tensor fits this type.');
  // Neither are floats of 16 bits.
  const short = { 'a.weight': weights('F32', [2, 3]), 'b.weight': weights('F16', [2, 3]) };
  await openFile(fileOf('short.safetensors', safetensors(short)));
  await expect.poll(() => page.textContent('#model-name')).toBe('short.safetensors');
  await small.waitFor();
  await expect.poll(() => small.textContent()).toContain('Changes nothing: no tensor fits this type.');
  await page.check('input[value="balanced"]', { force: true });
  // Layers of other kinds than linear ones are converted if that is asked for.
  await openFile(fileOf('images.safetensors', safetensors({ 'conv.weight': weights('F32', [16, 16, 3, 3]) })));
  await expect.poll(() => page.textContent('#model-name')).toBe('images.safetensors');
  const again = page.locator('#model-again');
  await expect.poll(() => again.textContent()).toBe('Convert them as well');
  expect(await status()).toContain('this type is for linear layers, and this model has others');
  await again.click();
  await expect.poll(() => page.isEnabled('#model-run')).toBe(true);
  await expect.poll(() => again.isHidden()).toBe(true);
});

it('lists and plans a model of 3 GiB from its header, and cancels quantizing it without a trace', async () => {
  const rows = 3 * 2 ** 15;
  const json = JSON.stringify({
    'big.weight': { dtype: 'F32', shape: [rows, 8192], data_offsets: [0, rows * 8192 * 4] },
    'small.weight': { dtype: 'F32', shape: [8, 8], data_offsets: [rows * 8192 * 4, rows * 8192 * 4 + 256] },
  });
  const header = Buffer.alloc(8 + json.length);
  header.writeBigUInt64LE(BigInt(json.length));
  header.write(json, 8);
  const file = join(folder, 'big.safetensors');
  const descriptor = openSync(file, 'w');
  writeSync(descriptor, header);
  ftruncateSync(descriptor, header.length + rows * 8192 * 4 + 256);
  closeSync(descriptor);

  await open();
  await page.evaluate(() => {
    const { slice } = Blob.prototype;
    Blob.prototype.slice = function (this: Blob, begin = 0, end = this.size, type?: string) {
      Object.assign(globalThis, { sliced: ((globalThis as { sliced?: number }).sliced ?? 0) + end - begin });
      return slice.call(this, begin, end, type);
    };
    // On a busy machine a file is still locked when its writer was stopped.
    const { removeEntry } = FileSystemDirectoryHandle.prototype;
    let locked = 2;
    FileSystemDirectoryHandle.prototype.removeEntry = function (this: FileSystemDirectoryHandle, ...args) {
      if (locked-- > 0) return Promise.reject(new DOMException('locked', 'NoModificationAllowedError'));
      return removeEntry.apply(this, args);
    };
  });
  await openFile(file);
  await planned();
  // A header is read each time that the page plans. The samples are read in workers.
  expect(await page.evaluate(() => (globalThis as { sliced?: number }).sliced)).toBeLessThan(2 ** 20);
  const { totals } = await planModel(file, { to: 'int8' });
  expect(await size()).toBe(totals.bytesAfter);
  await expect.poll(() => page.textContent('#worst-basis')).toContain('a sample');

  for (let round = 0; round < 2; round++) {
    await page.click('#model-run');
    await expect.poll(status).toMatch(/MB of 3.22.GB/);
    if (round === 0) expect(await site.axe('.decide')).toEqual([]);
    await page.click('#model-cancel');
    await expect.poll(status).toContain('Cancelled. Nothing was saved.');
    const left = await page.evaluate(async () => {
      const names: string[] = [];
      const root = await navigator.storage.getDirectory();
      for await (const name of (root as unknown as { keys(): AsyncIterable<string> }).keys()) names.push(name);
      return names;
    });
    expect(left).toEqual([]);
  }
});

it('starts one conversion for three clicks, and leaves no empty file when it is cancelled', async () => {
  await open('model/', {}, async (page) => {
    await page.addInitScript(() => {
      const calls = { asked: 0, removed: 0 };
      const handle = {
        kind: 'file',
        name: 'x.safetensors',
        getFile: async () => new File([], 'x.safetensors'),
        createWritable: () => new Promise(() => {}),
        remove: async () => void calls.removed++,
      };
      Object.assign(globalThis, {
        calls,
        showSaveFilePicker: async () => {
          calls.asked++;
          return handle;
        },
      });
    });
  });
  // The support for tests takes the dialog away before this.
  await openFile(sample);
  await planned();
  await page.evaluate(() => {
    const run = document.getElementById('model-run') as HTMLButtonElement;
    for (let i = 0; i < 3; i++) run.click();
  });
  await page.click('#model-cancel');
  await expect.poll(status).toContain('Cancelled');
  expect(await page.evaluate(() => (globalThis as unknown as { calls: unknown }).calls)).toEqual({
    asked: 1,
    removed: 1,
  });
});

it('opens an index with its shards, and lists the files', async () => {
  await open();
  const map = { 'x.weight': 'a-1.safetensors', 'y.weight': 'a-2.safetensors' };
  await openFile(
    fileOf('a-1.safetensors', safetensors({ 'x.weight': weights('F32', [16, 64]) })),
    fileOf('a-2.safetensors', safetensors({ 'y.weight': weights('F32', [16, 64], 2) })),
    fileOf('a.safetensors.index.json', Buffer.from(JSON.stringify({ metadata: {}, weight_map: map }))),
  );
  await planned();
  expect(await column('Tensor')).toEqual(['x.weight', 'y.weight']);
  expect(await page.textContent('#model-files-count')).toBe('3 files');
  const { name, bytes } = await save();
  expect(name).toBe('a.int8.safetensors');
  expect(bytes.length).toBe(await size());
});

it('opens all files of a split GGUF model, and names what is missing', async () => {
  const model = tinyLlama();
  const { files, bytes } = await quantizeModel(model, { to: 'copy', splitTensors: 9, workers: 0 });
  const parts = await Promise.all(files.map(async ({ name }) => fileOf(name, await bytes(name))));
  await open();
  await openFile(parts[0]!);
  await expect.poll(() => page.textContent('main')).toContain('is one of several files of a model');
  await openFile(...parts.toReversed());
  await planned();
  expect(await page.textContent('#model-files-count')).toBe('3 files');
  const saved = await save();
  expect(saved.name).toBe('model-Q4_K_M.gguf');
  const expected = await quantizeModel(model, { to: 'Q4_K_M', workers: 0 });
  expect(saved.bytes.equals(await expected.bytes())).toBe(true);
});

it('sorts by error, filters by name, and keeps a layer without losing the errors of others', async () => {
  await open();
  await openFile(sample);
  await measured();
  const header = page.locator('#model-head th', { hasText: 'SQNR' });
  await header.locator('button').click();
  await expect.poll(() => header.getAttribute('aria-sort')).toBe('ascending');
  const numbers = async () =>
    (await column('SQNR')).filter((text) => text !== '').map((text) => Number.parseFloat(text.replace('low ', '')));
  const values = await numbers();
  expect(values).toEqual([...values].sort((a, b) => a - b));
  await header.locator('button').click();
  await expect.poll(() => header.getAttribute('aria-sort')).toBe('descending');
  expect(await numbers()).toEqual([...values].reverse());

  const before = await size();
  await page.focus('[aria-label="Keep fc2.weight"]');
  await page.keyboard.press('Enter');
  await planned(before);
  const rules = [{ match: /^(fc2\.weight)$/, keep: true as const }];
  expect(await size()).toBe((await planModel(sample, { to: 'int8', rules })).totals.bytesAfter);
  expect((await column('SQNR')).filter((text) => text !== '')).toHaveLength(2);
  expect(await page.evaluate(() => document.activeElement?.getAttribute('aria-label'))).toBe('Convert fc2.weight');
  expect(await page.textContent('#model-command')).toBe(
    "npx scalepoint quantize digits.safetensors --to int8 --rule '^(fc2\\.weight)$=keep'",
  );

  await page.fill('#model-filter', 'FC3');
  await expect.poll(() => column('Tensor').then((names) => names.toSorted())).toEqual(['fc3.bias', 'fc3.weight']);
  await page.click('#worst [data-keep="fc3.weight"]');
  await expect.poll(() => page.textContent('#model-command')).toContain('fc3\\.weight');
});

it('saves the report before the model, with the errors that are known', async () => {
  await open();
  await openFile(sample);
  await measured();
  const [download] = await Promise.all([page.waitForEvent('download'), page.click('#model-json')]);
  expect(download.suggestedFilename()).toBe('digits.int8.report.json');
  const report = JSON.parse(readFileSync(await download.path(), 'utf8'));
  expect(report.isPlanned).toBe(true);
  const { tensors, totals } = await estimateModel(sample, { to: 'int8', sample: Number.POSITIVE_INFINITY });
  expect(report.totals.bytesAfter).toBe(totals.bytesAfter);
  expect(report.tensors.map((one: { error?: object }) => one.error)).toEqual(tensors.map(({ error }) => error));
});

it('shows the columns that the visitor chooses at any width, and remembers them', async () => {
  await open('model/', { viewport: { width: 360, height: 800 } });
  await openFile(sample);
  await measured();
  await page.click('#model-columns summary');
  await page.check('#model-columns-list input[value="cosine"]');
  await page.check('#model-columns-list input[value="before"]');
  await page.keyboard.press('Escape');
  expect(await page.isVisible('#model-columns-list')).toBe(false);
  const row = page.locator('#model-rows tr', { hasText: 'fc1.weight' });
  await expect.poll(() => row.locator('td[data-column="Cosine"]').isVisible()).toBe(true);
  expect(await row.locator('td[data-column="Before"]').textContent()).toBe('131\u00a0kB');
  expect(await covered()).toEqual([]);
  await page.reload();
  await openFile(sample);
  await measured();
  expect(await row.locator('td[data-column="Cosine"]').isVisible()).toBe(true);
});

it('takes back what was kept by hand beside the sizes', async () => {
  await open();
  await openFile(sample);
  await measured();
  const before = await size();
  for (const name of ['fc1.weight', 'fc2.weight']) await page.click(`#model-rows [data-keep="${name}"]`);
  await expect.poll(() => page.textContent('#model-kept-words')).toBe('Kept by you: fc2.weight and 1 other');
  await page.click('#model-undo');
  await expect.poll(() => page.textContent('#model-kept-words')).toBe('Kept by you: fc1.weight');
  await page.click('#model-undo');
  await expect.poll(() => page.isVisible('#model-kept')).toBe(false);
  await expect.poll(focused).toBe('model-run');
  await expect.poll(size).toBe(before);
});

it('says what a link with settings carries, before a model is open and beside its button', async () => {
  await open('model/#to=int4&group-size=32&keep=fc1.weight');
  await expect
    .poll(() => page.textContent('#linked-words'))
    .toBe(
      'This link carries settings: int4, group-size 32, the name of 1 kept tensor. They apply to the model that you open.',
    );
  await openFile(sample);
  await planned();
  expect(await page.textContent('#model-carried')).toBe(
    'The link carries int4, group-size 32, the name of 1 kept tensor, and nothing else of the file.',
  );
  // A flag stays whole, and with its value.
  const parts = await page.$$eval('#model-command .unbroken', (nodes) => nodes.map((node) => node.textContent));
  expect(parts).toContain('--to int4');
  await open('model/#to=int4');
  await page.click('#linked-forget');
  expect(await focused()).toBe('choose');
  expect(new URL(page.url()).hash).toBe('');
});

it.each(['guide/', 'speed/'])('opens a file that is dropped on %s', async (path) => {
  await open(path);
  await drop('digits.safetensors', readFileSync(sample));
  await expect.poll(() => page.textContent('#model-name')).toBe('digits.safetensors');
  expect(new URL(page.url()).pathname).toBe('/model/');
  expect(await page.locator('.guide').count()).toBe(0);
});

it('plans at once with a rule of a link that RegExp takes years for', async () => {
  await open('model/#rule=(a%2B)%2B%24%3Dkeep&rule=fc3%3Dbfloat16');
  const file = safetensors({
    [`${'a'.repeat(60)}!.weight`]: weights('F32', [8, 64]),
    'fc3.weight': weights('F32', [8, 64]),
  });
  await openFile(fileOf('m.safetensors', file));
  await planned();
  const rules = [{ match: 'fc3', to: 'bfloat16' }];
  expect(await size()).toBe((await planModel(file, { to: 'int8', rules })).totals.bytesAfter);
});

it('stores the settings in the link, goes back and forward, and closes the model', async () => {
  await open('model/#to=int4&group-size=32&range=mse');
  await openFile(sample);
  await planned();
  expect(await size()).toBe(
    (await planModel(sample, { to: 'int4', granularity: { kind: 'per-group', groupSize: 32 } })).totals.bytesAfter,
  );
  expect(await page.textContent('#model-command')).toBe(
    'npx scalepoint quantize digits.safetensors --to int4 --group-size 32 --range mse',
  );
  await page.click('.settings > summary');
  await page.selectOption('#option-range', { index: 0 });
  await expect.poll(() => new URL(page.url()).hash).toBe('#to=int4&group-size=32');
  await page.fill('#model-rules', 'fc1=nonsense');
  await page.locator('#model-rules').blur();
  await expect.poll(() => page.textContent('#rules-problem')).toContain('“nonsense” is not a type');
  await page.fill('#model-rules', '^fc1=int8');
  await page.locator('#model-rules').blur();
  await expect.poll(() => page.textContent('#model-command')).toContain("--rule '^fc1=int8'");
  await page.click('#model-reset');
  await expect.poll(() => new URL(page.url()).hash).toBe('');
  await page.click('#close');
  await expect.poll(() => page.isVisible('.welcome')).toBe(true);
  expect(await focused()).toBe('choose');
  await page.goBack();
  await expect.poll(() => page.isVisible('#opened')).toBe(true);
  expect(await page.textContent('#model-name')).toBe('digits.safetensors');
});

it('keeps both of two changes before one frame', async () => {
  await open('model/#to=int4&group-size=32&range=mse');
  await openFile(sample);
  await planned();
  await page.evaluate(() => {
    const change = (id: string, member: 'value' | 'selectedIndex', value: unknown) => {
      const control = document.getElementById(id)!;
      Object.assign(control, { [member]: value });
      for (const type of ['input', 'change']) control.dispatchEvent(new Event(type, { bubbles: true }));
    };
    change('option-range', 'selectedIndex', 0);
    change('model-rules', 'value', '^fc1=int8');
  });
  await expect
    .poll(() => page.textContent('#model-command'))
    .toBe("npx scalepoint quantize digits.safetensors --to int4 --group-size 32 --rule '^fc1=int8'");
});

it('names a tensor with NaN before saving, and keeps it with one click', async () => {
  await open();
  const bad = weights('F32', [16, 64]);
  (bad.data as Float32Array)[70] = Number.NaN;
  await openFile(
    fileOf('bad.safetensors', safetensors({ 'bad.weight': bad, 'good.weight': weights('F32', [16, 64], 2) })),
  );
  await expect.poll(() => page.textContent('#problems')).toContain('"bad.weight" holds NaN at [1, 6]');
  expect(await site.axe('#problems')).toEqual([]);
  await page.click('#problems button:has-text("Keep bad.weight")');
  await expect.poll(() => page.isVisible('#problems .problem')).toBe(false);
  expect((await save()).name).toBe('bad.int8.safetensors');
});

const unreadable = [
  ['cut.safetensors', readFileSync(sample).subarray(0, 150_000), /cut off/],
  ['damaged.safetensors', Buffer.from('oops, no header here'), /header is damaged/],
  [
    'picture.png',
    Buffer.from([0x89, 0x50, 0x4e, 0x47, 1, 2, 3]),
    /a PNG picture.*\.safetensors, \.gguf, \.onnx, \.npy and \.pth/,
  ],
  ['nothing.gguf', Buffer.alloc(0), /nothing\.gguf is empty/],
  ['text.txt', Buffer.from('1 2 3'), /Your numbers/],
] as const;

it('explains why a file cannot be opened', async () => {
  await open();
  for (const [name, bytes, words] of unreadable) {
    await drop(name, bytes);
    await expect.poll(() => page.textContent('#problems'), { message: name }).toMatch(words);
    expect(await page.locator('#problems .problem').count()).toBe(1);
    // It is where the visitor looks: above what the page offers.
    expect(await page.$eval('.problem', (node) => node.getBoundingClientRect().bottom)).toBeLessThan(500);
    expect(await page.isVisible('.welcome')).toBe(true);
  }
});

it('opens a file that is pasted, and copies what a report about a problem needs', async () => {
  await open('model/', { permissions: ['clipboard-read', 'clipboard-write'] });
  const paste = (name: string, bytes: Uint8Array) =>
    page.evaluate(
      ([name, base64]) => {
        const clipboardData = new DataTransfer();
        clipboardData.items.add(new File([Uint8Array.from(atob(base64), (char) => char.charCodeAt(0))], name));
        document.body.dispatchEvent(new ClipboardEvent('paste', { clipboardData, bubbles: true, cancelable: true }));
      },
      [name, Buffer.from(bytes).toString('base64')] as const,
    );
  await paste('nothing.gguf', new Uint8Array());
  await page.click('#problems button:has-text("Copy details")');
  const copied = () => page.evaluate(() => navigator.clipboard.readText());
  await expect
    .poll(copied)
    .toMatch(/^That cannot be opened here\nnothing\.gguf is empty\..*\n\nScalepoint \d.*\n.*Chrome/s);
  await paste('digits.safetensors', readFileSync(sample));
  await planned();
  expect(await page.isVisible('#problems .problem')).toBe(false);
  // The footer says what computes, once something was computed.
  await expect.poll(() => page.textContent('.foot')).toMatch(/build [0-9a-f]+, SIMD core/);
});

it('does everything by keyboard alone, with the focus visible', async () => {
  await open();
  /** Presses Tab until an element has the focus, which has to be visible on the way. */
  const tabTo = async (selector: string) => {
    for (let i = 0; i < 60; i++) {
      await page.keyboard.press('Tab');
      const at = await page.evaluate((selector) => {
        const node = document.activeElement as HTMLElement;
        const ringed = [node, node.nextElementSibling].some(
          (one) => one !== null && getComputedStyle(one).outlineStyle !== 'none',
        );
        return { there: node.matches(selector), ringed, what: `${node.tagName}#${node.id}` };
      }, selector);
      expect([at.what, at.ringed]).toEqual([at.what, true]);
      if (at.there) return;
    }
    throw new Error(`Tab does not lead to ${selector}`);
  };
  await tabTo('#sample');
  await page.keyboard.press('Enter');
  await page.waitForSelector('#size:visible');
  expect(await focused()).toBe('model-name');
  await tabTo('input[name="preset"]');
  await page.keyboard.press('ArrowRight');
  await expect.poll(() => page.textContent('#model-command')).toContain('--to bfloat16');
  await tabTo('#size');
  await page.keyboard.press('ArrowLeft');
  await expect.poll(() => page.textContent('#model-command')).toContain('--target-size');
  await tabTo('.settings > summary');
  await page.keyboard.press('Enter');
  await tabTo('#model-reset');
  await page.keyboard.press('Enter');
  await expect.poll(() => page.textContent('#model-command')).toContain('--to int8');
  await tabTo('[data-look="fc2.weight"]');
  await page.keyboard.press('Enter');
  await expect.poll(focused).toBe('look-name');
  // Until the tensor is read, the panel has nothing to tab to, and Tab leaves the page at its end.
  await page.waitForSelector('#look-b');
  await tabTo('#look-b');
  await page.focus('#model-run');
  const [download] = await Promise.all([page.waitForEvent('download'), page.keyboard.press('Enter')]);
  expect(download.suggestedFilename()).toBe('digits.int8.safetensors');
  // The button that stops the run had the focus, and goes when the run has ended. The report waits for the same.
  await page.waitForSelector('#model-json:enabled');
  expect(await focused()).toBe('model-run');
  await tabTo('#model-json');
});

it('quantizes on the main thread if workers cannot be started', async () => {
  await open();
  await page.route(/worker-[\w-]{8}\.js$/, (route) => route.fulfill({ status: 404, body: 'not here' }));
  const file = join(folder, 'middle.safetensors');
  writeFileSync(file, safetensors({ 'middle.weight': weights('F32', [128, 8192]) }));
  await openFile(file);
  await planned();
  const { bytes } = await save();
  const expected = await quantizeModel(file, { to: 'int8' });
  expect(Buffer.compare(bytes, await expected.bytes())).toBe(0);
  site.complaints = site.complaints.filter((text) => !text.includes('404'));
});

it('shows a tensor beside the table in two ways, on the same axes', async () => {
  await open();
  await openFile(sample);
  await measured();
  await page.click('#model-rows [data-look="fc2.weight"]');
  await expect.poll(() => page.textContent('#look-name')).toBe('fc2.weight');
  expect(await focused()).toBe('look-name');
  await page.selectOption('#look-a', 'int4-row');
  await page.selectOption('#look-b', 'nf4');
  await expect.poll(() => page.$$eval('#look-figures tr', (rows) => rows.length)).toBe(2);
  await expect.poll(() => page.textContent('#look-verdict')).toMatch(/^B is (\d|as large)/);
  // All numbers are shown first, where a scale for each row leaves no single set of levels.
  const part = () => page.textContent('#look-part');
  expect(await part()).toBe('all 16,384 numbers');
  await page.focus('#look-zoom');
  await page.keyboard.press('ArrowRight');
  await expect.poll(part).toBe('numbers 1 to 8,192 of 16,384');
  // The second press may come before the answer to the first.
  await page.keyboard.press('ArrowRight');
  await page.keyboard.press('ArrowRight');
  await expect.poll(part).toBe('numbers 1 to 2,048 of 16,384');
  await page.keyboard.press('End');
  await expect.poll(part).toBe('numbers 1 to 128 of 16,384');
  await page.focus('#look-place');
  await page.keyboard.press('ArrowRight');
  await expect.poll(part).toBe('numbers 129 to 256 of 16,384');
  await page.keyboard.press('ArrowLeft');
  await expect.poll(part).toBe('numbers 1 to 128 of 16,384');
  // 128 neighbors of a row, with one scale: at most 16 levels.
  const levels = await page.getAttribute('#look-a-picture .levels path', 'd');
  expect(levels?.match(/M/g)?.length).toBeLessThanOrEqual(16);
  const axes = await page.$$eval('#look-a-picture .axis text, #look-b-picture .axis text', (nodes) =>
    nodes.map((node) => node.textContent),
  );
  expect(axes.slice(0, axes.length / 2)).toEqual(axes.slice(axes.length / 2));
  // The picture follows the zoom. Colors of a row, which has one scale, are as many as its levels on the right of the divider.
  const colors = () =>
    page.$eval('#look-weights', (canvas) => {
      const { width } = canvas as HTMLCanvasElement;
      const data = (canvas as HTMLCanvasElement).getContext('2d')?.getImageData(0, 0, width, 1).data ?? [];
      return new Set(Array.from({ length: width }, (_, i) => data.slice(4 * i, 4 * i + 3).join())).size;
    });
  await page.focus('#look-divider');
  await page.keyboard.press('End');
  await expect.poll(colors).toBeGreaterThan(16);
  await page.keyboard.press('Home');
  await expect.poll(colors).toBeLessThanOrEqual(16);
  expect(await page.getAttribute('#look-divider', 'aria-valuetext')).toBe('before on the left 0 percent');
  // Chromium advises tests that read a canvas.
  site.complaints = site.complaints.filter((text) => !text.includes('willReadFrequently'));
  expect(await page.textContent('#look-weights-words')).toBe('24 × 128 numbers of 128 × 128, each of them.');
});

it('draws only the rows in view of thousands of tensors, without a long task, and saves them', async () => {
  const tensors = Object.fromEntries(
    Array.from({ length: 2000 }, (_, i) => [`layer.${i}.weight`, weights('F32', [8, 32], i)]),
  );
  const file = join(folder, 'many.safetensors');
  writeFileSync(file, safetensors(tensors));
  const lookThrough = async () => {
    await page.reload();
    await openFile(file);
    await measured();
    expect(await page.textContent('#model-found')).toBe('2,000 tensors');
    expect(await page.locator('#model-rows tr').count()).toBeLessThan(80);
    await page.click('#model-head th:has-text("SQNR") button');
    await page.$eval('#model-table', (box) => box.scrollTo(0, 40_000));
    await expect
      .poll(async () => Number(await page.getAttribute('#model-rows tr:nth-child(2)', 'aria-rowindex')))
      .toBeGreaterThan(900);
    await page.fill('#model-filter', '12');
    await page.fill('#model-filter', '');
  };
  await open();
  await site.expectShortTasks(lookThrough);
  const { bytes } = await save();
  expect(bytes.length).toBe(await size());
  // Twenty thousand matrices take tasks of at most 200 ms on a desktop computer, also while the presets are planned.
  const values = weights('F32', [4, 32]);
  const all = Object.fromEntries(Array.from({ length: 20_000 }, (_, i) => [`layer.${i}.weight`, values]));
  writeFileSync(file, safetensors(all));
  await site.expectShortTasks(async () => {
    await page.reload();
    await openFile(file);
    await expect.poll(() => page.textContent('#model-found')).toBe('20,000 tensors');
    // The model shows once the presets are planned.
    await page.waitForSelector('#opened:visible');
  }, 4);
});

it('opens a model while scrolled down, and moves the focus to it', async () => {
  await open('model/', { viewport: { width: 360, height: 780 } });
  await page.evaluate(() => scrollTo(0, document.body.scrollHeight));
  await drop('digits.safetensors', readFileSync(sample));
  await planned();
  expect(await focused()).toBe('model-name');
  const top = (id: string) => page.$eval(id, (node) => node.getBoundingClientRect().top);
  expect(await top('#model-name')).toBeLessThan(200);
  // The panel of a tensor is taller than the window: its heading comes into view, and not its end.
  await page.click('#model-rows [data-look="fc2.weight"]');
  await expect.poll(() => page.textContent('#look-verdict')).toMatch(/^B is/);
  expect(await focused()).toBe('look-name');
  expect(await top('#look-name')).toBeGreaterThanOrEqual(0);
  expect(await top('#look-name')).toBeLessThan(200);
  // It stays there when something above it grows.
  const before = await top('#look-name');
  await page.$eval('#model-notes', (notes) => {
    notes.textContent = 'A note. '.repeat(200);
  });
  // A page is scrolled by whole pixels.
  await expect.poll(async () => Math.abs((await top('#look-name')) - before)).toBeLessThan(1);
});

/** Cells of the table that lie outside of its box or under the button of their row. */
const covered = () =>
  page.$eval('#model-table', (box) => {
    const edge = box.getBoundingClientRect().right;
    return [...box.querySelectorAll('tr:not(.space)')].flatMap((row) => {
      const button = row.querySelector('.keep > *')?.getBoundingClientRect();
      return [...row.querySelectorAll('td, th > *')].flatMap((cell) => {
        const range = document.createRange();
        range.selectNodeContents(cell);
        const { left, right, top, bottom } = range.getBoundingClientRect();
        const isUnder =
          button !== undefined &&
          !cell.classList.contains('keep') &&
          right > button.left &&
          left < button.right &&
          bottom > button.top &&
          top < button.bottom;
        return isUnder || right > edge + 1 ? [cell.textContent] : [];
      });
    });
  });

// Colors and layout do not depend on each other, so each theme has a width of its own.
it.each([
  ['wide', 1280, 'light'],
  ['narrow', 360, 'dark'],
] as const)('is accessible and does not scroll horizontally: %s', async (_what, width, colorScheme) => {
  await open('model/', { viewport: { width, height: 800 }, colorScheme });
  expect(await site.axe()).toEqual([]);
  await openFile(sample);
  await measured();
  await page.click('.settings > summary');
  await save();
  await page.waitForSelector('#saved:visible');
  expect(await page.evaluate(() => document.documentElement.scrollWidth)).toBe(width);
  expect(await site.axe()).toEqual([]);
  expect(await covered()).toEqual([]);
  for (const selector of ['#model-run', '#model-config', '#close']) {
    await page.hover(selector);
    await expect.poll(() => contrastOf(page, selector)).toBeGreaterThan(4.5);
    await page.mouse.down();
    await expect.poll(() => contrastOf(page, selector)).toBeGreaterThan(4.5);
    // Let go elsewhere, so that nothing is pressed.
    await page.mouse.move(0, 0);
    await page.mouse.up();
  }
  const names = await page.$$eval('input[type="range"], progress', (nodes) =>
    nodes.map((node) => node.getAttribute('aria-label') ?? (node as HTMLInputElement).labels?.[0]?.textContent ?? ''),
  );
  expect(names.filter((name) => name.trim() === '')).toEqual([]);
  for (const other of [768, 1600, 2560]) {
    await page.setViewportSize({ width: other, height: 900 });
    // The table follows in the next frames.
    await page.evaluate(() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done))));
    expect([other, ...(await covered())]).toEqual([other]);
    expect(await page.evaluate(() => document.documentElement.scrollWidth)).toBe(other);
  }
});

it('is within its budget before a model is open', async () => {
  const seen: string[] = [];
  await open('model/', {}, async (page) => {
    page.on('request', (request) => seen.push(new URL(request.url()).pathname));
    // A busy browser may report a pointer that nobody moved.
    await page.addInitScript(() => addEventListener('pointermove', (event) => event.stopImmediatePropagation(), true));
  });
  await page.waitForLoadState('networkidle');
  // The panels and the library come when a visitor begins to do something.
  expect(seen.reduce((sum, name) => sum + brotliBytes(name), 0)).toBeLessThan(40_000);
});
